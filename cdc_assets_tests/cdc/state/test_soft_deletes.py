"""`soft_delete: true`: deleted rows stay with the time and what they last were."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cdc_assets.cdc.config import PLACEHOLDER, TableConfig
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.diff import read_diff
from cdc_assets.cdc.lake.maintenance import maintain_table
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(5)]
TABLE = "public.t"
TYPES = {"id": "int32", "v": "string", "w": "string"}
Deleted = dict[int, tuple[Any, Any, int]]  # id → v, w, when (ms)


class Source:
    """A table of four rows, beside one of the same events that keeps no deleted row."""

    def __init__(self, lake_of: LakeOf, folder: Path) -> None:
        self.lake_of, self.folder = lake_of, folder
        self.name = f"soft_{uuid4().hex[:8]}"
        self.log = ev.PgLog(table="t", types=TYPES, landing=ev.Landing(DAYS[0]))
        for n in range(1, 5):
            self.log.create(id=n, v=f"v{n}", w=f"w{n}")
        self.log.next_day()
        self.derived: dict[str, bool] = {}

    @property
    def plain(self) -> str:
        return f"{self.name}_plain"

    def lake(self, soft_delete: bool = True, **options: Any) -> Lake:
        def config(**table: Any) -> dict[str, Any]:
            tables = {TABLE: {"key": ["id"], **self.derived, **table}}
            options.setdefault("late_days", 1)
            folder = self.folder / "landing"
            return lakes.write_source(folder, self.log.landed, tables=tables, **options)

        return self.lake_of({self.name: config(soft_delete=soft_delete), self.plain: config()})

    def make(self, lake: Lake, days: list[date], force: bool = False) -> None:
        for name in (self.name, self.plain):
            lakes.run_all(lake, name, days, force=force)
            if self.derived:
                lakes.run_derived(lake, name, days)

    def deleted(self, lake: Lake, day: date) -> Deleted:
        """The deleted rows of a day; its others are those of the table that keeps none."""
        found: Deleted = {}
        standing = []
        frame = lakes.table_at(lake, self.name, TABLE, day)
        for row in lakes.plain(frame.drop("_cdc_position", "_cdc_source_ts_ms")):
            del row["_cdc_landing_date"]
            at = row.pop("_cdc_deleted_at", None)
            if at is None:
                standing.append(row)
                continue
            assert row["id"] not in found
            found[row["id"]] = (row["v"], row["w"], int(at.timestamp() * 1000))
        expected = lakes.rows_of(lake, self.plain, TABLE, day)
        assert not lakes.difference_of(standing, expected), day
        assert found.keys().isdisjoint(row["id"] for row in standing)
        for read in (lakes.changes_fed, lakes.versions_at) if self.derived else ():
            of_both = [read(lake, name, TABLE, day) for name in (self.name, self.plain)]
            assert not lakes.difference_of(*of_both), day
        reports = [self.report(lake, name, day) for name in (self.name, self.plain)]
        assert reports[0] == reports[1]
        return found

    @staticmethod
    def report(lake: Lake, source: str, day: date) -> dict[str, Any]:
        reports, errors = lakes.run_tables(lake, source, [day])
        assert not errors
        report = reports[TABLE, day]
        return {name: getattr(report, name) for name in ("rows", "written", "removed")}


@pytest.fixture
def source(lake_of: LakeOf, tmp_path: Path) -> Source:
    return Source(lake_of, tmp_path)


def ms(record: ev.Record) -> int:
    """When the source made the change."""
    found: dict[str, Any] = json.loads(record.value or b"")
    return int(found["payload"]["source"]["ts_ms"])


@pytest.mark.usefixtures("_size")
def test_a_deleted_row_stays_with_the_time_and_what_it_last_was(source: Source) -> None:
    log, source.derived = source.log, {"history": True, "feed": True}
    # Its delete has the key alone; the update before it did not send w.
    log.update(id=2, v="b", w=PLACEHOLDER)
    second = ms(log.delete(id=2))
    third = ms(log.delete(id=3, v="last", w="of all"))
    log.create(id=5, v="never", w="at the end of a day")
    fifth = ms(log.delete(id=5))
    log.next_day()
    log.create(id=2, v="again", w="here")
    log.delete(id=3, v="twice", w="deleted")
    log.delete(id=9)
    log.next_day()
    first = ms(log.delete(id=1))
    log.create(id=8, v="emptied", w="at once")
    log.truncate()
    log.create(id=6, v="after", w="it")
    log.next_day()
    lake = source.lake()
    source.make(lake, DAYS)
    assert source.deleted(lake, DAYS[0]) == {}
    on_second: Deleted = {
        2: ("b", "w2", second),
        3: ("last", "of all", third),
        5: ("never", "at the end of a day", fifth),
    }
    assert source.deleted(lake, DAYS[1]) == on_second
    del on_second[2]
    assert source.deleted(lake, DAYS[2]) == on_second
    on_fourth = source.deleted(lake, DAYS[3])
    cut = on_fourth[2][2]
    assert first < cut
    assert on_fourth == {
        **on_second,
        1: ("v1", "w1", first),
        2: ("again", "here", cut),
        4: ("v4", "w4", cut),
        8: ("emptied", "at once", cut),
    }
    assert source.deleted(lake, DAYS[4]) == on_fourth
    # Made again, and compacted, they are the same.
    source.make(lake, DAYS[1:3], force=True)
    assert source.deleted(lake, DAYS[2]) == on_second
    maintain_table(lake, source.name, TABLE)
    assert source.deleted(lake, DAYS[4]) == on_fourth


@pytest.mark.usefixtures("_size")
def test_it_may_begin_and_end_on_a_table_that_stands(source: Source) -> None:
    at = ms(source.log.delete(id=1))
    source.log.next_day()
    source.log.delete(id=2)
    lake = source.lake(soft_delete=False)
    source.make(lake, DAYS[:1])
    lake = source.lake()
    source.make(lake, DAYS[1:2])
    assert source.deleted(lake, DAYS[1]) == {1: ("v1", "w1", at)}
    lake = source.lake(soft_delete=False)
    source.make(lake, DAYS[2:3])
    assert source.deleted(lake, DAYS[2]) == {}


@pytest.mark.usefixtures("_size")
def test_a_deleted_row_is_none_for_late_events_and_differences(source: Source) -> None:
    log = source.log
    late = log.update(id=1, v="late", w="late")
    at = ms(log.delete(id=1))
    log.change_key({"id": 2}, id=7, v="moved", w="w2")
    log.landing.landed[DAYS[1]].remove(late)
    log.next_day()
    log.landing.add(late)
    lake = source.lake()
    source.make(lake, DAYS[:3])
    on_second = source.deleted(lake, DAYS[1])
    assert on_second.keys() == {1, 2}
    assert on_second[1] == ("v1", "w1", at)
    assert source.deleted(lake, DAYS[2]) == on_second, "the late event is older than the delete"
    changed = read_diff(lake.config, source.name, TABLE, *DAYS[:2]).to_pylist()
    ops = {(row["key"]["id"], row["op"]) for row in changed}
    assert ops == {(1, "d"), (2, "d"), (7, "c")}
    assert read_diff(lake.config, source.name, TABLE, *DAYS[1:3]).num_rows == 0


def test_rows_that_a_snapshot_did_not_read_stay_deleted(source: Source) -> None:
    source.log.snapshot({"id": 1, "v": "v1", "w": "w1"}, {"id": 2, "v": "v2", "w": "w2"})
    options = {"on_resnapshot": "replace", "resnapshot_remove_percent": 60}
    lake = source.lake(**options)
    source.make(lake, DAYS[:2])
    found = source.deleted(lake, DAYS[1])
    assert {n: row[:2] for n, row in found.items()} == {3: ("v3", "w3"), 4: ("v4", "w4")}


@pytest.mark.parametrize("key", ["none", "row"])
def test_rows_without_a_key_are_not_kept(key: str) -> None:
    with pytest.raises(ValueError, match="a deleted row is told by its key"):
        TableConfig.model_validate({"key": key, "soft_delete": True})
