"""A column gets another type (R5): no value is lost, and no reader sees an empty column."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.table import Table

from cdc_assets.cdc.errors import AuditError, SchemaDriftError
from cdc_assets.cdc.lake import catalog as lake_catalog
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import REPORT
from cdc_assets.cdc.lake.diff import read_diff
from cdc_assets.cdc.lake.json_values import json_rows
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.tables import find_table
from cdc_assets.cdc.state import apply, retyping, stage
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(4)]
TABLE = "public.t"
INT = {"id": "int32", "v": "int32"}
Rows = dict[Any, Any]  # id → v


class Source:
    """What has landed of a table, and how it is configured."""

    def __init__(self, lake_of: LakeOf, folder: Path, name: str) -> None:
        self.lake_of, self.folder, self.name = lake_of, folder, name
        self.log = PgLog(table="t", types=INT, landing=Landing(DAYS[0]))
        self.options: dict[str, Any] = {"late_days": 1}
        self.table: dict[str, Any] = {"key": ["id"]}

    def lake(self) -> Lake:
        """The lake as configured now, with what has landed."""
        options = {**self.options, "tables": {TABLE: self.table}}
        config = lakes.write_source(self.folder / "landing", self.log.landed, **options)
        return self.lake_of({self.name: config})

    def says(self, **types: Any) -> None:
        """What the schemas of the next events say."""
        self.log.defaults["types"] = {"id": "int32", **types}

    def rows(self, lake: Lake, day: date) -> Rows:
        return {row["id"]: row["v"] for row in lakes.rows_of(lake, self.name, TABLE, day)}

    def main(self, lake: Lake) -> Rows:
        """What a reader of `main` sees, without Spark."""
        rows = self._opened(lake).scan().to_arrow().to_pylist()
        return {row["id"]: row["v"] for row in rows}

    def columns(self, lake: Lake) -> dict[str, str]:
        """The columns of `main`, and their types."""
        fields = self._opened(lake).schema().fields
        own = ("_cdc_position", "_cdc_source_ts_ms", "_cdc_landing_date")
        return {f.name: str(f.field_type) for f in fields if f.name not in own}

    def _opened(self, lake: Lake) -> Table:
        return open_table(lake.config, find_table(lake.config, TABLE, self.name))


@pytest.fixture
def source(lake_of: LakeOf, tmp_path: Path) -> Source:
    return Source(lake_of, tmp_path, f"retyped_{uuid4().hex[:8]}")


def integers_become_text(source: Source) -> None:
    log = source.log
    log.create(id=1, v=1)
    log.create(id=2, v=2)
    log.create(id=3, v=3)
    log.next_day()
    source.says(v="string")
    log.update(id=1, v="one")
    log.delete(id=3)
    log.next_day()
    log.create(id=4, v="four")
    log.next_day()


BEFORE: Rows = {1: 1, 2: 2, 3: 3}
CHANGED: Rows = {1: "one", 2: "2"}
LAST: Rows = {**CHANGED, 4: "four"}
SAID = "v: int → string from this day on, 3 rows written once more"


def incompatible(lake: Lake, source: Source, day: date) -> list[str]:
    """What the day's report says of types."""
    state = lake.table_state(source.name, TABLE)
    assert state is not None
    said: list[str] = json.loads(state.day_summary(day)[REPORT])["incompatible"]
    return said


@pytest.mark.usefixtures("_size")
def test_a_column_whose_type_changed_is_string_from_that_day_on_with_all_values(
    source: Source,
) -> None:
    integers_become_text(source)
    source.table |= {"history": True, "feed": True}
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS)
    assert [source.rows(lake, day) for day in DAYS] == [BEFORE, CHANGED, LAST, LAST]
    assert source.main(lake) == LAST
    assert source.columns(lake) == {"id": "int", "v": "string"}
    assert [incompatible(lake, source, day) for day in DAYS] == [[], [SAID], [], []]
    (report,) = (r for r in lakes.run_all(lake, source.name, DAYS[1:2]).values())
    assert (report.rows, report.written, report.removed) == (2, 1, 2)


@pytest.mark.usefixtures("_size")
def test_history_feed_and_diff_compare_the_column_by_its_text(source: Source) -> None:
    integers_become_text(source)
    source.table |= {"history": True, "feed": True}
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS)
    lakes.run_derived(lake, source.name, DAYS)
    versions = lakes.versions_at(lake, source.name, TABLE, DAYS[-1])
    assert sorted((r["id"], r["v"], r["_cdc_closed_by"] or "") for r in versions) == [
        (1, "1", "u"),
        (1, "one", ""),
        (2, "2", ""),
        (3, "3", "d"),
        (4, "four", ""),
    ]
    fed = [
        (c["_cdc_change"], c["id"], c["v"])
        for day in DAYS
        for c in lakes.changes_fed(lake, source.name, TABLE, day)
    ]
    assert sorted(fed) == [
        ("delete", 3, "3"),
        ("insert", 1, "1"),
        ("insert", 2, "2"),
        ("insert", 3, "3"),
        ("insert", 4, "four"),
        ("update", 1, "one"),
    ]
    found = json_rows(read_diff(lake.config, source.name, TABLE, DAYS[0], DAYS[1]))
    told = [(c["op"], (c["before"] or {}).get("v"), (c["after"] or {}).get("v")) for c in found]
    assert sorted(told, key=str) == [("d", "3", None), ("u", "1", "one")]


@pytest.mark.parametrize(
    ("before", "old", "after", "new", "kept"),
    [
        ((ev.DECIMAL, "2", "10"), Decimal("7.50"), "string", "x", "7.50"),
        ("int32", 7, (ev.DECIMAL, "1", "10"), Decimal("2.5"), "7"),
        ("double", 0.1, "string", "x", "0.1"),
        ("bytes", b"\x01", "string", "x", "AQ=="),
        ("io.debezium.time.MicroTimestamp", datetime(2026, 1, 2, 3, 4), "string", "x",
         "2026-01-02T03:04:00"),
        ("io.debezium.time.Date", date(2026, 1, 2), "int32", 5, "2026-01-02"),
        ("boolean", True, "string", "x", "true"),
        ({"type": "array", "items": {"type": "int32", "optional": True}, "optional": True},
         [1, 2], "string", "x", "[1,2]"),
        ("string", "a", "int32", 5, "a"),
        ("int32", 7, "bytes", b"\x01", "7"),
    ],
)  # fmt: skip
def test_values_of_any_type_become_the_text_that_events_leave_in_a_string_column(
    source: Source, before: Any, old: Any, after: Any, new: Any, kept: str
) -> None:
    source.says(v=before)
    source.log.create(id=1, v=old)
    source.log.next_day()
    source.says(v=after)
    source.log.create(id=2, v=new)
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[:2])
    text = {b"\x01": "AQ=="}.get(new) if isinstance(new, bytes) else str(new)
    assert source.rows(lake, DAYS[1]) == {1: kept, 2: text}
    # The same as where the column is STRING from its first day.
    source.name += "_string"
    source.table |= {"columns": {"v": "string"}} if "bytes" not in (before, after) else {}
    again = source.lake()
    lakes.run_all(again, source.name, DAYS[:2])
    assert source.rows(again, DAYS[1]) == {1: kept, 2: text}


def test_a_date_that_becomes_a_time_stamp_makes_the_column_one(source: Source) -> None:
    source.says(v="io.debezium.time.Date")
    source.log.create(id=1, v=date(2026, 1, 2))
    source.log.next_day()
    source.says(v="io.debezium.time.Timestamp")
    source.log.create(id=2, v=datetime(2026, 1, 2, 15, 30))
    source.log.next_day()
    source.says(v="io.debezium.time.Date")
    source.log.create(id=3, v=date(2026, 1, 4))
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[:3])
    assert source.rows(lake, DAYS[0]) == {1: date(2026, 1, 2)}
    both = {1: datetime(2026, 1, 2), 2: datetime(2026, 1, 2, 15, 30)}
    assert source.rows(lake, DAYS[1]) == both
    assert source.rows(lake, DAYS[2]) == {**both, 3: datetime(2026, 1, 4)}
    assert source.columns(lake)["v"] == "timestamp"


def test_one_stray_record_of_another_schema_changes_no_type(source: Source) -> None:
    log = source.log
    log.create(id=1, v=1)
    log.next_day()
    source.says(v="string")
    log.create(id=2, v="two")
    source.says(v="int32")
    log.create(id=3, v=3)
    log.next_day()
    source.says(v="string")
    log.create(id=4, v="4", _lsn=1004)  # the only one of its day, and older than all
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[:3])
    assert source.rows(lake, DAYS[1]) == {1: 1, 2: None, 3: 3}
    assert source.rows(lake, DAYS[2]) == {1: 1, 2: None, 3: 3, 4: 4}
    assert incompatible(lake, source, DAYS[1]) == ["v: int ← string"]


def test_keep_keeps_the_type_and_fail_publishes_nothing(source: Source) -> None:
    integers_become_text(source)
    source.options |= {"on_type_change": "keep"}
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS)
    assert source.rows(lake, DAYS[1]) == {1: None, 2: 2}

    source.name += "_fail"
    source.options |= {"on_type_change": "fail"}
    lake = source.lake()
    with pytest.raises(SchemaDriftError, match="'v' is int and now comes as string") as found:
        lakes.run_all(lake, source.name, DAYS)
    assert "on_type_change: string" in str(found.value)
    assert source.main(lake) == BEFORE
    assert source.columns(lake) == {"id": "int", "v": "int"}


@pytest.mark.usefixtures("_size")
def test_a_reader_sees_the_old_column_or_the_new_one_between_all_steps(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    integers_become_text(source)
    lake = source.lake()
    lakes.run_stages(lake, source.name, DAYS)
    lakes.run_tables(lake, source.name, DAYS[:1])
    seen: list[Rows] = []
    tags: list[Rows] = []

    def watched(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            seen.append(source.main(lake))
            tags.append(source.rows(lake, DAYS[0]))
            try:
                return step(*args, **named)
            finally:
                seen.append(source.main(lake))
                tags.append(source.rows(lake, DAYS[0]))

        return run

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    lakes.run_tables(lake, source.name, DAYS[1:2])
    assert len(seen) >= 12
    changed = seen.index(CHANGED)
    assert seen == [BEFORE] * changed + [CHANGED] * (len(seen) - changed)
    assert tags == [BEFORE] * len(tags)


STEPS = [
    (retyping, "_add_fields"),
    (stage, "write_again"),
    (apply, "make_rows"),
    (apply, "value_counts"),
    (Lake, "start"),
    (Lake, "publish"),
    (Lake, "_publish_refs"),
    (lake_catalog, "retype"),
]


@pytest.mark.parametrize("killed_in", STEPS, ids=lambda step: step[1])
def test_a_run_that_was_killed_leaves_the_column_and_the_next_one_makes_the_day(
    source: Source, monkeypatch: pytest.MonkeyPatch, killed_in: tuple[Any, str]
) -> None:
    integers_become_text(source)
    lake = source.lake()
    lakes.run_stages(lake, source.name, DAYS)
    lakes.run_tables(lake, source.name, DAYS[:1])
    owner, name = killed_in
    step = getattr(owner, name)

    def killed(*args: Any, **named: Any) -> Any:
        step(*args, **named)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, killed)
        patch.setattr(Lake, "drop_branch", lambda *_: None)  # a kill runs no more code
        with pytest.raises(SystemExit):
            lakes.run_tables(lake, source.name, DAYS[1:2])
    is_published = name == "publish"
    assert source.main(lake) == (CHANGED if is_published else BEFORE)
    assert not lakes.run_tables(lake, source.name, DAYS)[1]
    assert source.rows(lake, DAYS[1]) == CHANGED
    assert source.main(lake) == LAST
    assert source.columns(lake) == {"id": "int", "v": "string"}


def test_what_a_killed_run_left_goes_where_the_column_keeps_its_type(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    integers_become_text(source)
    source.table |= {"history": True}
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[:1])
    lakes.run_derived(lake, source.name, DAYS[:1])

    def killed(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(stage, "write_again", killed)
        patch.setattr(Lake, "drop_branch", killed)
        with pytest.raises(SystemExit):
            lakes.run_all(lake, source.name, DAYS[:2])
    assert source.columns(lake) == {"id": "int", "v": "int", "_cdc_new_v": "string"}
    source.options |= {"on_type_change": "keep"}
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[:2])
    lakes.run_derived(lake, source.name, DAYS[:2])
    assert source.columns(lake) == {"id": "int", "v": "int"}
    assert source.main(lake) == {1: None, 2: 2}


def test_a_failed_audit_leaves_schema_rows_tag_and_main(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    integers_become_text(source)
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[:1])
    columns, refs = source.columns(lake), lakes.refs_of(lake, source.name, TABLE)

    def fails(*_: Any) -> None:
        raise AuditError(TABLE, DAYS[1], "no row is right")

    with monkeypatch.context() as patch:
        patch.setattr(apply, "audit_rewritten", fails)
        with pytest.raises(AuditError, match="no row is right"):
            lakes.run_all(lake, source.name, DAYS)
    assert source.columns(lake) == columns == {"id": "int", "v": "int"}
    assert lakes.refs_of(lake, source.name, TABLE) == refs
    assert source.main(lake) == BEFORE


@pytest.mark.usefixtures("_size")
def test_earlier_days_made_again_have_the_same_values_in_the_newer_type(source: Source) -> None:
    integers_become_text(source)
    source.table |= {"history": True, "feed": True}
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS)
    lakes.run_derived(lake, source.name, DAYS)
    for day in DAYS:
        lakes.run_tables(lake, source.name, [day], force=True)
        assert source.main(lake) == LAST
    texts = [{n: str(v) for n, v in BEFORE.items()}, CHANGED, LAST, LAST]
    assert [source.rows(lake, day) for day in DAYS] == texts
    lakes.run_derived(lake, source.name, DAYS)
    for before, day in pairwise(DAYS):
        lakes.assert_feed_leads_on(lake, source.name, TABLE, day)
        lakes.assert_diff_leads_on(lake, source.name, TABLE, before, day)


@pytest.mark.usefixtures("_size")
def test_a_day_made_again_that_lies_before_the_newest_one_loses_no_value_either(
    source: Source,
) -> None:
    integers_become_text(source)
    source.table |= {"history": True, "feed": True}
    source.options |= {"on_type_change": "keep"}
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS)
    lakes.run_derived(lake, source.name, DAYS)
    kept = source.main(lake)
    assert kept == {1: None, 2: 2, 4: None}

    source.options |= {"on_type_change": "string"}
    lake = source.lake()
    lakes.run_tables(lake, source.name, DAYS[:2])
    assert source.rows(lake, DAYS[1]) == CHANGED
    assert source.main(lake) == {1: None, 2: "2", 4: None}
    lakes.run_all(lake, source.name, DAYS)
    lakes.run_derived(lake, source.name, DAYS)
    texts = {n: str(v) for n, v in BEFORE.items()}
    assert [source.rows(lake, day) for day in DAYS] == [texts, CHANGED, LAST, LAST]
    assert source.main(lake) == LAST
    versions = lakes.versions_at(lake, source.name, TABLE, DAYS[-1])
    assert sorted((r["id"], r["v"]) for r in versions) == [
        (1, "1"),
        (1, "one"),
        (2, "2"),
        (3, "3"),
        (4, "four"),
    ]


def test_an_entry_string_in_columns_makes_a_column_that_stands_string(source: Source) -> None:
    source.log.create(id=1, v=1)
    source.log.next_day()
    source.log.create(id=2, v=2)
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[:1])
    source.table |= {"columns": {"v": "string"}}
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[1:2])
    assert source.rows(lake, DAYS[0]) == {1: 1}
    assert source.rows(lake, DAYS[1]) == {1: "1", 2: "2"}
    # Also on a day without events.
    source.name += "_quiet"
    source.table.pop("columns")
    lakes.run_all(source.lake(), source.name, DAYS[:2])
    source.table |= {"columns": {"v": "string"}}
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[2:3])
    assert source.rows(lake, DAYS[2]) == {1: "1", 2: "2"} == source.main(lake)


@pytest.mark.parametrize("key", ["none", "row"])
def test_a_table_without_a_key_keeps_its_rows_in_the_new_type(source: Source, key: str) -> None:
    source.table = {"key": key}
    log = source.log
    log.create(id=1, v=1, _key=None)
    log.create(id=2, v=2, _key=None)
    log.next_day()
    source.says(v="string")
    log.create(id=3, v="three", _key=None)
    log.delete(id=1, v="1", _key=None)
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[:2])
    gone = {1: "1"} if key == "none" else {}
    assert source.rows(lake, DAYS[1]) == {**gone, 2: "2", 3: "three"}


def test_a_column_whose_type_changes_twice_on_its_first_day_is_string(source: Source) -> None:
    source.log.create(id=1, v=1)
    source.says(v="string")
    source.log.create(id=2, v="two")
    source.log.next_day()
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[:2])
    assert source.rows(lake, DAYS[0]) == {1: "1", 2: "two"} == source.main(lake)
