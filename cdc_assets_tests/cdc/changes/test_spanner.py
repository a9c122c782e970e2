"""Debezium's events of Spanner, from the landing to the day's table.

Their shape is that of Debezium's document on the connector; what a change stream captures of an
update, its `value_capture_type`, is that of Spanner's documents and of the connector's own tests.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY, Landing, PgLog
from cdc_assets_tests.registries import Schemas, serving

DAYS = [DAY, DAY + timedelta(days=1)]
SOURCE = "spanner"
TYPES = {"id": "int64", "name": "string", "city": "string", "n": "int64", "data": "bytes"}
EMPTY: dict[str, Any] = dict.fromkeys(TYPES)
CHANGED, ROW, NEW = "OLD_AND_NEW_VALUES", "NEW_ROW", "NEW_VALUES"


class Users(PgLog):
    """Events of one table: a value that Spanner does not send is null, in both images."""

    def __init__(self, table: str, landing: Landing) -> None:
        super().__init__("spanner", "shop", table, types=TYPES, landing=landing)

    def _event(self, build: Any, *images: Any, **options: Any) -> Any:
        options["source"] = ev.spanner_source("shop", options.pop("captured", CHANGED))
        return super()._event(build, *images, **options)

    def change(self, key: int, before: Any, after: Any, **options: Any) -> Any:
        images = [{**EMPTY, "id": key, **values} for values in (after, before)]
        return self._event(ev.updated, *images, **options)


def changed_values(landing: Landing, name: str) -> None:
    landing.on(DAYS[0])
    t = Users(name, landing)
    t.create(id=1, name="Anne", city="Bonn", n=1, data=b"\x01")
    t.create(id=2, name="Bob", city=None, n=2, data=None)
    t.change(1, {"n": 1}, {"n": 10})
    landing.on(DAYS[1])
    t.change(1, {"city": "Bonn"}, {"city": None})
    t.change(2, {}, {"city": "Rome"})
    t.change(2, {"name": "Bob"}, {"name": "Rob"})
    t.change(3, {"n": 3}, {"n": 4})  # written before the stream began
    t.create(id=4, name="Dora", city="Graz", n=4, data=None)
    t.delete(**{**EMPTY, "id": 4})


LAST = {
    1: {"name": "Anne", "city": None, "n": 10, "data": b"\x01"},
    2: {"name": "Rob", "city": "Rome", "n": 2, "data": None},
}


@pytest.fixture(scope="module")
def landing() -> Landing:
    landing = Landing(DAYS[0])
    changed_values(landing, "changed")
    landing.on(DAYS[0])
    rows = Users("rows", landing)
    rows.create(id=1, name="Anne", city="Bonn", n=1)
    rows.change(1, {}, {"name": "Anne", "n": 2}, captured=ROW)
    rows.change(1, {"n": 2}, {"name": "Anne", "n": 3}, captured=f"{ROW}_AND_OLD_VALUES")
    for captured in (NEW, None, "OTHER"):
        rows.change(1, {}, {"n": 4}, captured=captured)
    return landing


@pytest.fixture(scope="module")
def options(landing: Landing, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    tables: dict[str, Any] = {f"shop.{name}": {} for name in ("changed", "rows")}
    folder: Path = tmp_path_factory.mktemp(SOURCE)
    return lakes.write_source(folder, landing.landed, tables=tables)


Made = tuple[Lake, lakes.Reports]


@pytest.fixture(scope="module")
def made(lake_of: LakeOf, options: dict[str, Any]) -> Made:
    lake = lake_of({SOURCE: options}, DAYS[0])
    return lake, lakes.run_all(lake, SOURCE, DAYS)


@pytest.fixture(scope="module")
def lake(made: Made) -> Lake:
    return made[0]


def _rows(lake: Lake, table: str, source: str = SOURCE) -> dict[int, dict[str, Any]]:
    rows = lakes.rows_of(lake, source, f"shop.{table}", DAYS[1])
    return {row.pop("id"): row for row in rows}


def test_every_record_is_read_as_the_model_reads_it(
    lake: Lake, options: dict[str, Any], landing: Landing
) -> None:
    lakes.assert_as_model(lake, SOURCE, options, landing.landed)
    lakes.assert_tables_as_model(lake, SOURCE, options, landing.landed)


def test_columns_that_an_update_did_not_change_stay(lake: Lake) -> None:
    rows = _rows(lake, "changed")
    assert {key: rows[key] for key in LAST} == LAST


def test_values_of_before_the_stream_are_null_and_counted(made: Made) -> None:  # R2
    lake, reports = made
    assert _rows(lake, "changed")[3] == {"name": None, "city": None, "n": 4, "data": None}
    assert reports["shop.changed", DAYS[1]].unresolved == 1


def test_whole_rows_are_read_as_they_are(lake: Lake) -> None:
    assert _rows(lake, "rows") == {1: {"name": "Anne", "city": None, "n": 3, "data": None}}


def test_an_update_without_its_row_is_quarantined_with_what_to_set(lake: Lake) -> None:
    found = lakes.stage_rows(lake, SOURCE, "quarantine")
    assert [row["reason"] for row in found] == ["missing_image"] * 3
    start = f"an update with {NEW} of Spanner does not have the whole row: ALTER CHANGE STREAM"
    assert found[0]["detail"].startswith(start)
    assert found[0]["detail"].endswith("(value_capture_type = 'NEW_ROW')")
    assert "no value_capture_type" in found[1]["detail"]


def test_a_registry_s_updates_are_read_alike(lake_of: LakeOf, tmp_path: Path) -> None:
    landing, schemas = Landing(DAYS[0]), Schemas()
    changed_values(landing, "changed")
    source = lakes.write_source(
        tmp_path, schemas.all_sent(landing.landed), tables={"shop.changed": {}}
    )
    with serving(schemas) as url:
        source["landing"]["registry"] = {"url": url}
        made = lake_of({"avro": source}, DAYS[0])
        lakes.run_all(made, "avro", DAYS)
    rows = _rows(made, "changed", "avro")
    assert {key: rows[key] for key in LAST} == LAST


def test_flattened_updates_are_read_where_they_are_whole_rows(
    lake_of: LakeOf, tmp_path: Path
) -> None:
    log = Users("t", Landing(DAYS[0]))
    records = [
        log.create(id=1, name="Anne"),
        log.change(1, {}, {"name": "Bob"}, captured=ROW),
        log.change(1, {}, {"n": 1}, captured=NEW),
        log.change(1, {}, {"n": 2}),
    ]
    landing = Landing(DAYS[0])
    for record in records:
        added = ("op", "connector", "db", "table", "source.ts_ms", "value_capture_type")
        landing.put(ev.flattened(record, added))
    source = lakes.write_source(
        tmp_path, landing.landed, "debezium-flat", tables={"shop.t": {"key": ["id"]}}
    )
    made = lake_of({"flat": source}, DAYS[0])
    lakes.run_all(made, "flat", DAYS[:1])
    lakes.assert_as_model(made, "flat", source, landing.landed)
    found = lakes.stage_rows(made, "flat", "quarantine")
    assert [row["reason"] for row in found] == ["missing_image"] * 2
