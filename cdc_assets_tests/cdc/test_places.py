"""Each table has a place of its own in the lake, or is refused before a run meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.config import Config, parse_config
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.lake import adopted_tables
from cdc_assets.cdc.lake.adopted_tables import with_adopted_tables
from cdc_assets.cdc.lake.commits import is_day, is_own_branch
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.places import earlier_place, own_place, state_place
from cdc_assets_tests.lakes import source_config

GLUE = {"type": "glue"}


def config(tables: dict[str, Any], namespaces: str = "nested", **catalog: str) -> Config:
    """Sources with their tables."""
    sources = {name: source_config("landed", tables=of) for name, of in tables.items()}
    lake = {"warehouse": "/w", "namespaces": namespaces, "catalog": catalog}
    return parse_config({"lake": lake, "start_date": "2026-11-01", "sources": sources}, Path("/"))


@pytest.mark.parametrize(
    ("tables", "settings", "says"),
    [
        (
            {"shop": {"eu__public.t": {}}, "shop__eu": {"public.t": {}}},
            {"namespaces": "flat"},
            r"sources\.shop__eu\.tables\.public\.t: it and shop\.eu__public\.t would be one table",
        ),
        (
            {"shop": {"public.landing": {}}, "shop__public": {}},
            {"namespaces": "flat"},
            r"sources\.shop\.tables\.public\.landing: it and shop__public\.landing would be one",
        ),
        (
            {"shop": {"public.Orders": {}, "public.orders": {}}},
            GLUE,
            r"\.orders: it and shop\.public\.Orders would be one table .* upper and lower case",
        ),
        ({"shop": {"landing.t": {}}}, {}, r"sources\.shop\.tables\.landing\.t: the namespace of"),
    ],
)
def test_two_tables_of_one_place_are_refused(
    tables: dict[str, Any], settings: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        config(tables, **settings)


def test_names_that_only_some_catalogs_tell_apart_are_two_tables_there() -> None:
    tables = {"shop": {"public.Orders": {}, "public.orders": {}, "landing_.t": {}}}
    assert len(config(tables).sources["shop"].tables) == 3
    assert config({"shop": {"landing.t": {}}}, namespaces="flat").sources["shop"].tables


def test_of_two_tables_of_one_place_the_one_that_was_seen_first_is_adopted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = ("public.orders", "public.Orders", "public.b\x1b[2J")
    monkeypatch.setattr(adopted_tables, "seen_tables", lambda *_: seen)
    found = with_adopted_tables(config({"shop": {"*.*": {}}}, **GLUE)).sources["shop"].tables
    assert list(found) == ["public.b\x1b[2J", "public.orders"]
    assert "shop.public.Orders matches a pattern and is not adopted" in caplog.text
    flat = config({"shop": {"*.*": {}}, "shop__public": {}}, namespaces="flat")
    monkeypatch.setattr(adopted_tables, "seen_tables", lambda *_: ("public.landing\x1b",))
    with_adopted_tables(flat)
    assert "\x1b" not in caplog.text


def test_places_are_written_in_lower_case_and_those_of_earlier_versions_are_known() -> None:
    table = TableName("public", "price.list")
    assert state_place("shop", table, flat=False) == ("shop", "public", "price%2elist")
    assert earlier_place("shop", table, flat=False) == ("shop", "public", "price%2Elist")
    assert own_place("shop", "landing") == ("shop", "landing")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("2026-11-01", True),
        ("prod-final", False),
        ("2026-13-01", False),
        ("2026-1101", False),
        ("20261101", False),
        ("v100-2-3-4", False),
    ],
)
def test_a_tag_of_others_is_no_day(name: str, expected: bool) -> None:
    assert is_day(name) is expected


def test_a_branch_of_others_is_not_one_of_a_crashed_run() -> None:
    assert is_own_branch("ld_2026-11-01_0123abcd")
    assert not is_own_branch("ld_of_others")


def test_a_warehouse_that_a_rest_catalog_knows_by_name_is_no_folder() -> None:
    rest = parse_config(
        {
            "lake": {"warehouse": "bronze", "catalog": {"type": "rest", "uri": "http://h"}},
            "start_date": "2026-11-01",
            "sources": {"shop": source_config("landed")},
        },
        Path("/project"),
    ).lake
    assert (rest.warehouse, rest.is_local) == ("bronze", False)
    local = config({"shop": {}}).lake
    assert local.is_local
