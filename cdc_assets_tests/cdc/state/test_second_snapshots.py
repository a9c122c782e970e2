"""A second snapshot of a table (R7): what it did not read was removed while nobody listened."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.findings import Finding
from cdc_assets.cdc.history.trace import trace
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.state.findings import table_findings
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(4)]
TABLE = "public.t"
TYPES = {"id": "int32", "v": "string"}


class Source:
    """What has landed of a table, and how it is configured."""

    def __init__(self, lake_of: LakeOf, folder: Path, name: str) -> None:
        self.lake_of, self.folder, self.name = lake_of, folder, name
        self.log = PgLog(table="t", types=TYPES, landing=Landing(DAYS[0]))
        self.options: dict[str, Any] = {"late_days": 1, "resnapshot_remove_percent": 50}
        self.table: dict[str, Any] = {"key": ["id"]}

    def run(self, days: list[date] | None = None) -> Lake:
        """Make days of the table, and its history and feed."""
        made = DAYS[: len(self.log.landed)] if days is None else days
        options = {**self.options, "tables": {TABLE: self.table}}
        config = lakes.write_source(self.folder / "landing", self.log.landed, **options)
        lake = self.lake_of({self.name: config})
        lakes.run_all(lake, self.name, made)
        lakes.run_derived(lake, self.name, made)
        return lake

    def has_history_and_feed(self) -> None:
        self.table |= {"history": True, "feed": True}

    def replaces(self) -> None:
        self.options |= {"on_resnapshot": "replace"}

    def has_no_key(self, key: str) -> None:
        self.table = {"key": key}
        self.log.key = None

    def rows(self, lake: Lake, day: date) -> list[tuple[int, str]]:
        return sorted((r["id"], r["v"]) for r in lakes.rows_of(lake, self.name, TABLE, day))

    def finding(self, lake: Lake, day: date) -> Finding:
        """What the check says of a day, which is made already."""
        state = lake.table_state(self.name, TABLE)
        assert state is not None
        ((_, report),) = lakes.run_all(lake, self.name, [day]).items()
        assert not report.made
        found = table_findings(state, day, report)
        return next(f for f in found if f.name == "rows_missing_from_snapshot")


@pytest.fixture
def source(lake_of: LakeOf, tmp_path: Path) -> Source:
    return Source(lake_of, tmp_path, f"reread_{uuid4().hex[:8]}")


def row(id: int, v: str = "a") -> dict[str, Any]:
    return {"id": id, "v": v}


def three_rows(source: Source) -> PgLog:
    """Rows 1, 2 and 3 on the first day."""
    source.log.snapshot(row(1), row(2), row(3))
    source.log.next_day()
    return source.log


ALL = [(1, "a"), (2, "a"), (3, "a")]
READ = [(1, "z"), (3, "z")]


def test_rows_that_a_second_snapshot_did_not_read_are_counted_and_stay(source: Source) -> None:
    log = three_rows(source)
    log.snapshot(row(1, "z"), row(3, "z"))
    lake = source.run()
    assert source.rows(lake, DAYS[1]) == [(1, "z"), (2, "a"), (3, "z")]
    first, second = (source.finding(lake, day) for day in DAYS[:2])
    assert first.passed
    assert not second.passed
    assert second.values["rows_missing"] == 1
    assert second.values["rows_removed"] == 0
    assert second.values["such_as"] == '{"id":2}'
    assert f"inventory.public.t/0/3 ({DAYS[1]})" in second.values["snapshot"]
    assert "1 rows were not read" in (second.description or "")


@pytest.mark.usefixtures("_size")
def test_replace_removes_them_after_the_last_read_in_table_history_and_feed(
    source: Source,
) -> None:
    source.replaces()
    source.has_history_and_feed()
    log = three_rows(source)
    last = log.snapshot(row(1, "z"), row(3, "z"))[-1]
    log.next_day()
    log.update(**row(1, "y"))
    lake = source.run()
    assert [source.rows(lake, d) for d in DAYS[:3]] == [ALL, READ, [(1, "y"), (3, "z")]]
    found = source.finding(lake, DAYS[1])
    assert found.passed
    assert (found.values["rows_missing"], found.values["rows_removed"]) == (1, 1)
    versions = lakes.versions_at(lake, source.name, TABLE, DAYS[2])
    (ended,) = [v for v in versions if v["id"] == 2]
    assert ended["_cdc_closed_by"] == "d"
    assert ended["_cdc_valid_to"].timestamp() * 1000 == last.timestamp_ms - 2000
    for day in DAYS[1:3]:
        lakes.assert_feed_leads_on(lake, source.name, TABLE, day)
    deleted = [c for c in lakes.changes_fed(lake, source.name, TABLE, DAYS[1]) if c["id"] == 2]
    assert [(c["_cdc_change"], c["v"]) for c in deleted] == [("delete", "a")]
    told = trace(lake, source.name, TABLE, {"id": 2}, DAYS[2])
    assert [(r.offset, r.did) for r in told] == [
        (1, "was the row"),
        (last.offset, "ended a snapshot that had not read the row: it was removed"),
    ]


@pytest.mark.usefixtures("_size")
def test_no_late_event_brings_such_a_row_back_and_a_new_one_does(source: Source) -> None:
    source.replaces()
    source.has_history_and_feed()
    log = three_rows(source)
    log.update(**row(2, "late"), _lsn=1004, _source_ts_ms=ev.NOON_MS)  # before the last one
    log.snapshot(row(1, "z"), row(3, "z"))
    log.next_day()
    log.update(**row(2, "later"), _lsn=1002, _source_ts_ms=ev.NOON_MS)
    log.next_day()
    log.create(**row(2, "new"))
    lake = source.run()
    anew = [(1, "z"), (2, "new"), (3, "z")]
    assert [source.rows(lake, d) for d in DAYS[1:]] == [READ, READ, anew]
    for day in DAYS[1:]:
        lakes.assert_feed_leads_on(lake, source.name, TABLE, day)


@pytest.mark.parametrize("on_resnapshot", ["warn", "replace"])
def test_a_snapshot_may_cross_the_days_end(source: Source, on_resnapshot: str) -> None:
    source.options |= {"on_resnapshot": on_resnapshot}
    log = three_rows(source)
    log.snapshot(row(1, "z"), _marks=["first"])
    log.update(**row(1, "y"))
    log.next_day()
    log.snapshot(row(3, "z"), _marks=["last"])
    lake = source.run()
    assert source.rows(lake, DAYS[1]) == [(1, "y"), (2, "a"), (3, "a")]
    assert source.finding(lake, DAYS[1]).passed
    rest = [] if on_resnapshot == "replace" else [(2, "a")]
    assert source.rows(lake, DAYS[2]) == [(1, "y"), *rest, (3, "z")]
    assert source.finding(lake, DAYS[2]).values["rows_missing"] == 1


@pytest.mark.parametrize("again", [slice(0, 2), slice(1, 2), slice(0, 1)], ids=str)
def test_a_snapshot_that_is_delivered_twice_counts_once(source: Source, again: slice) -> None:
    source.replaces()
    log = three_rows(source)
    reads = log.snapshot(row(1, "z"), row(3, "z"))
    log.create(**row(4))
    log.next_day()
    log.again(*reads[again])
    lake = source.run()
    assert source.rows(lake, DAYS[2]) == [*READ, (4, "a")]
    assert source.finding(lake, DAYS[2]).values["rows_missing"] == 0


def test_a_snapshot_that_broke_off_or_is_incremental_says_nothing(source: Source) -> None:
    source.replaces()
    log = three_rows(source)
    log.snapshot(row(1, "z"), row(3, "z"), _marks=["first", "true"])
    log.next_day()
    log.snapshot(row(1, "z"), _marks=["incremental"])
    lake = source.run()
    assert source.rows(lake, DAYS[2]) == [(1, "z"), (2, "a"), (3, "z")]
    assert source.finding(lake, DAYS[1]).values["rows_missing"] == 0
    log.next_day()
    log.snapshot(row(1, "x"), row(3, "x"))
    lake = source.run()
    assert source.rows(lake, DAYS[3]) == [(1, "x"), (3, "x")]


@pytest.mark.parametrize("marks", ["last", "last_in_data_collection", "first"])
def test_a_table_of_one_row_has_one_read_with_a_mark(source: Source, marks: str) -> None:
    source.replaces()
    source.options["resnapshot_remove_percent"] = 100
    source.log.snapshot(row(1), row(2), row(3))
    source.log.next_day()
    source.log.snapshot(row(1, "z"), _marks=[marks])
    other = PgLog(table="u", types=TYPES, landing=source.log.landing)
    last = {"first": "last"}.get(marks, "true")
    other.snapshot(row(1), row(2), _marks=["first_in_data_collection", last])
    lake = source.run()
    assert source.rows(lake, DAYS[1]) == [(1, "z")]


def test_rows_with_an_event_since_the_first_read_stay(source: Source) -> None:
    source.replaces()
    log = three_rows(source)
    log.snapshot(row(1, "z"), _marks=["first"])
    log.update(**row(2, "changed meanwhile"))
    log.create(**row(4))
    log.snapshot(row(3, "z"), _marks=["last"])
    lake = source.run()
    assert source.rows(lake, DAYS[1]) == [
        (1, "z"), (2, "changed meanwhile"), (3, "z"), (4, "a")
    ]  # fmt: skip


def test_a_row_that_changed_after_the_snapshots_time_stays(source: Source) -> None:
    """Another connector's events may have landed before the first read of a long snapshot."""
    source.replaces()
    log = three_rows(source)
    at = log.landing.now_ms
    log.create(**row(4))
    log.snapshot(row(1, "z"), row(3, "z"), _at=at)
    lake = source.run()
    assert source.rows(lake, DAYS[1]) == [*READ, (4, "a")]


def test_a_snapshot_whose_reads_have_no_time_removes_them_all_the_same(source: Source) -> None:
    source.replaces()
    log = source.log
    log.snapshot(row(1), row(2), row(3), _at=0)
    log.next_day()
    log.snapshot(row(1, "z"), row(3, "z"), _at=0)
    lake = source.run()
    assert source.rows(lake, DAYS[1]) == READ


def test_a_truncate_beside_it_removes_all_rows_before(source: Source) -> None:
    source.replaces()
    log = three_rows(source)
    log.snapshot(row(1, "z"), row(3, "z"))
    log.truncate()
    log.create(**row(9))
    log.next_day()
    log.snapshot(row(9), row(8))
    lake = source.run()
    assert source.rows(lake, DAYS[1]) == [(9, "a")]
    assert source.rows(lake, DAYS[2]) == [(8, "a"), (9, "a")]
    assert source.finding(lake, DAYS[1]).values["rows_missing"] == 0


def test_more_of_them_than_may_go_keep_the_day_from_being_published(source: Source) -> None:
    source.replaces()
    source.options["resnapshot_remove_percent"] = 10
    log = three_rows(source)
    log.snapshot(row(1, "z"), row(3, "z"))
    with pytest.raises(AuditError) as found:
        source.run()
    said = str(found.value)
    assert 'a snapshot did not read 1 of its 3 rows, such as those with the keys {"id":2}' in said
    assert f"sources.{source.name}.resnapshot_remove_percent" in said
    source.options["resnapshot_remove_percent"] = 34
    lake = source.run()
    assert source.rows(lake, DAYS[1]) == READ


def test_two_snapshots_on_the_first_day_leave_what_the_second_one_read(source: Source) -> None:
    source.replaces()
    log = source.log
    log.snapshot(row(1), row(2), row(3))
    log.update(**row(2, "b"))
    log.delete(id=3)
    log.snapshot(row(1, "z"), row(4, "z"))
    lake = source.run()
    assert source.rows(lake, DAYS[0]) == [(1, "z"), (4, "z")]
    assert source.finding(lake, DAYS[0]).values["rows_missing"] == 1
    log.next_day()
    log.update(**row(2, "late"), _lsn=1002, _source_ts_ms=ev.NOON_MS)
    lake = source.run()
    assert source.rows(lake, DAYS[1]) == [(1, "z"), (4, "z")]


def test_keys_that_the_source_does_not_show_are_not_shown(source: Source) -> None:
    source.options |= {"samples": False}
    log = three_rows(source)
    log.snapshot(row(1, "z"), row(3, "z"))
    found = source.finding(source.run(), DAYS[1])
    assert found.values["rows_missing"] == 1
    assert "such_as" not in found.values


@pytest.mark.parametrize("key", ["none", "row"])
def test_without_a_key_the_reads_are_counted_or_take_the_place_of_all_rows(
    source: Source, key: str
) -> None:
    source.has_no_key(key)
    log = source.log
    log.snapshot(row(1), row(1), row(2))
    log.next_day()
    log.create(**row(3))
    log.snapshot(row(1), row(3), _marks=["first", "true"])
    log.next_day()
    log.create(**row(4))
    log.snapshot(row(4), _marks=["last"])
    log.next_day()
    added = log.create(**row(5))
    log.create(**row(6))
    log.again(added)
    lake = source.run()
    found = source.finding(lake, DAYS[2])
    assert not found.passed
    assert found.values["reads_without_key"] == 3
    assert len(source.rows(lake, DAYS[3])) == 10
    source.replaces()
    lake = source.run()
    ids = [[id for id, _ in source.rows(lake, day)] for day in DAYS]
    assert ids == [[1, 1, 2], [1, 1, 1, 2, 3, 3], [1, 3, 4, 4], [1, 3, 4, 4, 5, 6]]
    found = source.finding(lake, DAYS[2])
    assert found.passed
    assert found.values["rows_removed"] == 6
