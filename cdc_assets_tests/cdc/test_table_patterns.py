"""Tables by pattern in cdc.yaml: what is a pattern, which one decides, and what is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.config import Config, SourceConfig, parse_config
from cdc_assets.cdc.errors import ConfigError, LakeError, UnknownTableError
from cdc_assets.cdc.lake import adopted_tables
from cdc_assets.cdc.lake.adopted_tables import with_adopted_tables
from cdc_assets.cdc.lake.tables import find_table
from cdc_assets.cdc.names import config_key, is_table_pattern


def config(tables: Any, folder: Path, **settings: Any) -> Config:
    source = {"format": "debezium", "landing": {"files": "files"}, "tables": tables, **settings}
    lake = {"warehouse": str(folder / "warehouse")}
    return parse_config(
        {"lake": lake, "start_date": "2026-11-01", "sources": {"shop": source}}, folder
    )


def source(tables: Any, folder: Path, **settings: Any) -> SourceConfig:
    return config(tables, folder, **settings).sources["shop"]


def seen(monkeypatch: pytest.MonkeyPatch, *tables: str) -> None:
    """The lake has events of these tables."""
    monkeypatch.setattr(adopted_tables, "seen_tables", lambda *_: frozenset(tables))


def test_names_with_wildcards_outside_quotes_are_patterns(tmp_path: Path) -> None:
    shop = source(
        {"public.*": {"key": ["id"]}, "a?.b": None, "public.x": {}, 'public."a*b"': {}}, tmp_path
    )
    assert list(shop.tables) == ["public.x", "public.a*b"]
    assert {text: t and t.key for text, t in shop.table_patterns.items()} == {
        "public.*": ("id",),
        "a?.b": None,
    }


def test_a_name_that_holds_a_wildcard_is_written_in_quotes() -> None:
    for name in ("public.a*b", "a?b.c", 'public."a.b"', 'public."a.*"', "public.a"):
        assert not is_table_pattern(config_key(name)), name
    assert config_key("public.a*b") == 'public."a*b"'
    assert config_key("public.a") == "public.a"


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("public.*", ["public.a", 'public."a.b"', "public.A\nb"], ["other.a", "Public.a"]),
        ("*.orders", ["public.orders", '"a.b".orders'], ["public.orders_old", "public.x"]),
        ("*.*", ["public.orders"], []),
        ("shop_?.t", ["shop_1.t"], ["shop_12.t", "shop_.t"]),
        ("public.a[1]*", ["public.a[1]x"], ["public.a1"]),
        ('"a.b".*', ['"a.b".c'], ["a.c", "axb.c"]),
    ],
)
def test_a_wildcard_stays_within_its_part(
    tmp_path: Path, pattern: str, matching: list[str], others: list[str]
) -> None:
    shop = source({pattern: {}}, tmp_path)
    assert [name for name in (*matching, *others) if shop.pattern_of(name)] == matching


def test_the_most_specific_entry_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {
        "public.orders": {"key": ["id"]},
        "public.tmp_keep": None,
        "public.tmp_*": False,
        "public.*": {"key": ["a"]},
        "*.*": {"key": ["b"]},
        "public.gone": False,
    }
    names = ("orders", "tmp_1", "tmp_keep", "gone", "customers")
    seen(monkeypatch, *(f"public.{name}" for name in names), "other.t")
    found = with_adopted_tables(config(tables, tmp_path)).sources["shop"].tables
    assert {name: table.key for name, table in found.items()} == {
        "public.orders": ("id",),
        "public.tmp_keep": None,
        "other.t": ("b",),
        "public.customers": ("a",),
    }


@pytest.mark.parametrize("last", ["public.a*", "public.*a"])
def test_of_equally_specific_patterns_the_last_decides(tmp_path: Path, last: str) -> None:
    tables = {"public.a*": {}, "public.*a": {}}
    tables[last] = tables.pop(last)
    assert source(tables, tmp_path).pattern_of("public.aba") == last


def test_a_pattern_adopts_nothing_that_the_lake_can_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen(monkeypatch, "changes.t", "no_namespace", "public.t")
    found = with_adopted_tables(config({"*.*": {}}, tmp_path)).sources["shop"].tables
    assert list(found) == ["public.t"]
    assert "changes.t matches a pattern and is not adopted" in caplog.text


def test_without_a_lake_nothing_is_adopted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = with_adopted_tables(config({"*.*": {}, "a.b": {}}, tmp_path)).sources["shop"]
    assert list(shop.tables) == ["a.b"]
    assert not caplog.text


def test_a_catalog_that_can_not_be_read_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise LakeError("the catalog (rest) can't be read: Connection refused")

    monkeypatch.setattr(adopted_tables, "seen_tables", broken)
    shop = with_adopted_tables(config({"*.*": {}, "a.b": {}}, tmp_path)).sources["shop"]
    assert list(shop.tables) == ["a.b"]
    assert "sources.shop.tables: no table is adopted by pattern" in caplog.text
    assert "Connection refused" in caplog.text


def test_without_patterns_nothing_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cdc.yaml"
    file.write_text(
        "start_date: 2026-11-01\nsources: {shop: {format: debezium, landing: {files: x}, "
        "tables: {a.b: {}, a.c: false}}}\n"
    )
    says = (
        "import sys; from cdc_assets.cdc.config import load_config; "
        "from cdc_assets.cdc.lake.adopted_tables import with_adopted_tables; "
        f"found = with_adopted_tables(load_config({str(file)!r})); "
        "print(*found.sources['shop'].tables, {'pyiceberg', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", says], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "a.b set()"


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"public.*": {"keys": 1}}, "sources.shop.tables.public.*.keys: unknown key"),
        ({"public.*": {"key": 1}}, "sources.shop.tables.public.*.key: got 1, which YAML reads as"),
        ({"public.*": True}, "sources.shop.tables.public.*: got True; expected a mapping"),
        ({"*": {}}, "sources.shop.tables: '*' is not <namespace>.<table>"),
        ({"public.a": {}, '"public".a': False}, "are two spellings of one table, public.a"),
        ({"public.*": {"hash": ["x"]}}, "public.*: exclude and hash protect a table from its"),
    ],
)
def test_a_wrong_pattern_says_what_and_where(tmp_path: Path, tables: Any, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        source(tables, tmp_path)
    assert says in str(raised.value)
    assert len(raised.value.faults) == 1


def test_a_pattern_for_whole_rows_needs_their_format(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tables\.public\.\*\.key: got row, which needs"):
        source({"public.*": {"key": "row"}}, tmp_path, format="lindorm")


@pytest.mark.parametrize("text", ["public.new", "shop.public.new"])
def test_the_error_for_an_unknown_table_says_when_a_pattern_adopts_it(
    tmp_path: Path, text: str
) -> None:
    found = config({"public.*": {}, "public.tmp_*": False}, tmp_path)
    with pytest.raises(UnknownTableError) as raised:
        find_table(found, text)
    assert (
        "The entry public.* of sources.shop.tables adopts public.new once shop.changes has events "
        "of it: make a day without --table first"
    ) in str(raised.value)
    with pytest.raises(UnknownTableError, match=r"public\.tmp_\* .* is false and excludes"):
        find_table(found, "public.tmp_1")


def test_into_needs_no_entry_of_its_table_and_gives_it_a_column_that_says_the_leaf(
    tmp_path: Path,
) -> None:
    entry = {"into": "public.ev", "add": {"tenant": "{1}"}}
    shop = source({"public.ev_*": entry, "public.old_ev": {"into": "public.ev"}}, tmp_path)
    assert list(shop.tables) == ["public.ev"]
    assert shop.tables["public.ev"].columns == {"_cdc_table": "string", "tenant": "string"}
    assert list(shop.leaves_of("public.ev")) == ["public.ev_*", "public.old_ev"]
    assert not shop.adopts_tables
    listed = source({"public.ev_*": entry, "public.ev": {"columns": {"tenant": "int"}}}, tmp_path)
    assert listed.tables["public.ev"].columns == {"_cdc_table": "string", "tenant": "int"}


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        (
            {"a.b_*": {"into": "a.b", "key": ["id"]}},
            "got key beside it; write that under a.b",
        ),
        ({"a.b_*": {"add": {"c": "x"}}}, "add: is for an entry with into"),
        ({"a.b_*": {"into": "a.b", "add": {"_cdc_x": "x"}}}, "got the column '_cdc_x'"),
        ({"a.b_*": {"into": "a"}}, "'a' is not <namespace>.<table>"),
        (
            {"a.b_*": {"into": "a.b", "add": {"c": "{2}"}}},
            "tables.a.b_*.add.c: got {2}; the name has 1 wildcards",
        ),
        (
            {"a.b_*": {"into": "a.b", "add": {"c": "{1}"}}, "a.b": {"key": ["id"]}},
            "tables.a.b_*.add: c is no column of tables.a.b.key; name it there, too",
        ),
    ],
)
def test_a_wrong_into_is_an_error_that_says_what_to_write(
    tables: Any, fault: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as found:
        source(tables, tmp_path)
    assert fault in str(found.value)


def test_a_leaf_that_is_asked_for_is_said_to_be_a_part_of_its_table(tmp_path: Path) -> None:
    found = config({"public.ev_*": {"into": "public.ev"}}, tmp_path)
    assert "makes public.ev_1 a part of public.ev" in found.hint_of_pattern("public.ev_1", ["shop"])
