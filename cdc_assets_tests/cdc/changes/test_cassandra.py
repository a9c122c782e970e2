"""Debezium's events of Cassandra, from the landing to the day's table.

The shapes are those of Debezium's document on the connector and of its source: cells, ops `i`, `u`,
`d` and `r`, writes in microseconds.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.config import parse_config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY, Landing

DAYS = [DAY, DAY + timedelta(days=1)]
SOURCE = "cassandra"
TABLES: dict[str, Any] = {f"shop.{name}": {} for name in ("people", "typed", "nodes", "odd")}
GONE = {"gone": True}


class Table:
    """Lands events of one table, a second apart."""

    def __init__(self, name: str, landing: Landing) -> None:
        self.name, self.landing = name, landing

    def says(self, op: Any, cells: Any, schema: bool = False, **source: Any) -> model.Record:
        """`cells`: values, `GONE` for a deleted cell, `...` for one that was not written."""
        now = self.landing.tick()
        own = {"connector": "cassandra", "cluster": "c1", "snapshot": False, "keyspace": "shop"}
        own |= {"table": self.name, "file": "commitlog-6-1.log", "pos": 54, "ts_micro": now * 1000}
        after = (
            {n: self._cell(v, now) for n, v in cells.items()} if isinstance(cells, dict) else cells
        )
        event: dict[str, Any] = {"op": op, "ts_ms": now + 200, "after": after}
        event["source"] = {**own, **source}
        document = event if not schema else {"schema": SCHEMA, "payload": event}
        return self.put(
            json.dumps(document).encode(), json.dumps({"id": _number(cells)}).encode(), now
        )

    def put(self, value: bytes | None, key: bytes | None, now: int) -> model.Record:
        topic = f"srv.shop.{self.name}"
        return self.landing.put(ev.raw(value, topic=topic, key=key, timestamp_ms=now + 500))

    @staticmethod
    def _cell(value: Any, now: int) -> Any:
        if value is ...:
            return None
        gone = value is GONE
        deleted = now * 1000 if gone else None
        return {"value": None if gone else value, "deletion_ts": deleted, "set": True}


def _number(cells: Any) -> int:
    number = cells["id"] if isinstance(cells, dict) else None
    return number if isinstance(number, int) else 1


def _field(name: str, kind: str) -> dict[str, Any]:
    parts = [{"field": "value", "type": kind, "optional": True}]
    parts += [{"field": "deletion_ts", "type": "int64"}, {"field": "set", "type": "boolean"}]
    return {"field": name, "type": "struct", "name": "cell_value", "fields": parts}


ROW = [_field("id", "int32"), _field("name", "string"), _field("n", "int64")]
SCHEMA = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": ROW}]}


def people(landing: Landing, name: str, schema: bool) -> None:
    landing.on(DAYS[0])
    t = Table(name, landing)
    t.says("i", {"id": 1, "name": "Anne", "n": 1}, schema)
    t.says("i", {"id": 2, "name": "Bob", "n": 2}, schema)
    t.says("i", {"id": 3, "name": "Carl", "n": ...}, schema)
    t.says("u", {"id": 1, "name": ..., "n": 10}, schema)
    t.says("c", {"id": 4, "name": "Dora", "n": 4}, schema)
    landing.on(DAYS[1])
    t.says("u", {"id": 1, "name": GONE, "n": ...}, schema)
    t.says("i", {"id": 4, "name": ..., "n": 5}, schema)
    t.says("d", {"id": 2, "name": ..., "n": ...}, schema)
    t.put(None, b'{"id":2}', landing.tick())
    t.says("d", {"id": 3, "name": ..., "n": ...}, schema)
    t.says("i", {"id": 3, "name": ..., "n": 33}, schema)


LAST = [
    {"id": 1, "name": None, "n": 10},
    {"id": 3, "name": None, "n": 33},
    {"id": 4, "name": "Dora", "n": 5},
]


def nodes(landing: Landing) -> None:
    """What was written last counts, also where another node's commit log comes later."""
    landing.on(DAYS[0])
    t = Table("nodes", landing)
    base = landing.now_ms * 1000
    t.says("i", {"id": 1, "name": "newer"}, ts_micro=base + 5_000)
    t.says("i", {"id": 1, "name": "older"}, ts_micro=base + 4_999)
    t.says("i", {"id": 2, "name": "in ms"}, ts_micro=None, ts_ms=landing.now_ms)
    t.says("u", {"id": 2, "name": "in µs"}, ts_micro=None, ts_ms=landing.now_ms * 1000 + 1)


def odd(landing: Landing) -> None:
    landing.on(DAYS[0])
    t = Table("odd", landing)
    t.says("r", {"id": 1})
    for op in ("t", "x", None, 5, "m"):
        t.says(op, {"id": 1})
    for cells in (None, 5, [], {"id": ...}, {"id": GONE}):
        for op in "iud":
            t.says(op, cells)
    t.says("i", {"id": 5}, keyspace=None)
    t.says("i", {"id": 5}, table="")
    # Before 1970, and at the end of what 64 bits hold.
    t.says("i", {"id": 7}, ts_micro=-1)
    t.says("i", {"id": 7}, ts_micro=None, ts_ms=-(2**63))
    # Without a key, of a table that is not configured.
    other = Table("other", landing)
    other.says("i", {"id": 1})
    other.put(None, None, landing.tick())
    plain = {"id": 6, "name": {"value": "x", "deletion_ts": None, "set": False}, "n": {"a": 1}}
    event = {"op": "i", "after": plain, "source": {"keyspace": "shop", "table": "odd", "ts_ms": 5}}
    for key in (b'{"id":6}', b'{"id":{"value":6,"deletion_ts":null,"set":true}}', b"6", None):
        t.put(json.dumps(event).encode(), key, landing.tick())


@pytest.fixture(scope="module")
def landing() -> Landing:
    landing = Landing(DAYS[0])
    people(landing, "people", schema=False)
    people(landing, "typed", schema=True)
    nodes(landing)
    odd(landing)
    return landing


@pytest.fixture(scope="module")
def options(landing: Landing, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp(SOURCE)
    own: dict[str, Any] = {"tables": TABLES, "missing_columns": "keep"}
    return lakes.write_source(folder, landing.landed, "debezium-cassandra", **own)


@pytest.fixture(scope="module")
def lake(lake_of: LakeOf, options: dict[str, Any]) -> Lake:
    made = lake_of({SOURCE: options}, DAYS[0])
    lakes.run_all(made, SOURCE, DAYS)
    return made


def test_every_record_is_read_as_the_model_reads_it(
    lake: Lake, options: dict[str, Any], landing: Landing
) -> None:
    lakes.assert_as_model(lake, SOURCE, options, landing.landed)
    lakes.assert_tables_as_model(lake, SOURCE, options, landing.landed)


@pytest.mark.parametrize("table", ["people", "typed"])
def test_columns_that_a_statement_did_not_write_stay(lake: Lake, table: str) -> None:
    lakes.assert_same_rows(lakes.rows_of(lake, SOURCE, f"shop.{table}", DAYS[1]), LAST, table)


def test_columns_have_the_types_of_the_cells_values(lake: Lake) -> None:
    kinds = dict(lakes.table_at(lake, SOURCE, "shop.typed", DAYS[1]).dtypes)
    assert (kinds["id"], kinds["name"], kinds["n"]) == ("int", "string", "bigint")


def test_the_time_of_the_write_orders_events_of_several_nodes(lake: Lake) -> None:
    rows = {row["id"]: row["name"] for row in lakes.rows_of(lake, SOURCE, "shop.nodes", DAYS[1])}
    assert rows == {1: "newer", 2: "in µs"}


def test_times_before_1970_are_rounded_down(lake: Lake) -> None:
    times = [row["source_ts_ms"] for row in lakes.changes_read(lake, SOURCE)]
    assert -1 in times


def test_a_tombstone_without_a_key_is_judged_for_configured_tables_only(lake: Lake) -> None:
    found = lakes.destinations_read(lake, SOURCE)
    own = [row["destination"] for row in found if row["topic"] == "srv.shop.other"]
    assert own == ["changes", "changes"]


def test_a_deleted_range_is_quarantined_with_what_it_is(lake: Lake) -> None:
    details = {row["detail"] for row in lakes.stage_rows(lake, SOURCE, "quarantine")}
    assert any(text.startswith("op r deletes a range of rows") for text in details)


def test_columns_are_kept_unless_told_otherwise(tmp_path: Path) -> None:
    source = {"format": "debezium-cassandra", "landing": {"files": str(tmp_path)}}
    for told, expected in (({}, "keep"), ({"missing_columns": "null"}, "null")):
        document = {"start_date": DAY, "sources": {"s": {**source, **told}}}
        config = parse_config(document, tmp_path / "cdc.yaml")
        assert config.sources["s"].missing_columns == expected
