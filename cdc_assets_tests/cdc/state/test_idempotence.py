"""Making a day again, late files, failures: the same landing gives the same lake."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc import spark as cdc_spark
from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayBranch
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.cdc.state import apply, table_day
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import TOAST, Landing, PgLog

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(4)]
TABLES: dict[str, Any] = {"public.customers": {"key": ["id"]}, "public.log": {"key": "none"}}
CUSTOMERS = "public.customers"
STAGES = ("landing", "changes", "control", "quarantine", "lag")


def a_story(landing: Landing) -> None:
    """Four days of a keyed table and a log, with late and repeated events."""
    log = PgLog("idem", landing=landing)
    rows = PgLog("idem", table="log", key=None, landing=landing)
    first = log.create(id=1, v="a", note="long")
    log.create(id=2, v="a", note="two")
    log.create(id=3, v="a", note="three")
    rows.create(a=1)
    log.next_day()
    log.update(id=1, v="b", note=TOAST)
    log.delete(id=2, _tombstone=True)
    log.landing.put(ev.raw(b"no json", topic="idem.public.customers"))
    log.next_day()
    log.again(first)
    log.change_key({"id": 3}, id=4, v="c", note=TOAST)
    rows.create(a=2)
    log.heartbeat()
    log.next_day()
    log.update(id=1, v="d", note=TOAST)
    rows.create(a=2)


def commits(lake: Lake, source: str) -> dict[str, Any]:
    """The commits of every day of every stage, and the references of every table."""
    found: dict[str, Any] = {
        stage: {day: commit.snapshot_id for day, commit in lake.day_commits(source, stage).items()}
        for stage in STAGES
    }
    return {**found, **{table: lakes.refs_of(lake, source, table) for table in TABLES}}


def contents(lake: Lake, source: str, days: list[date] | None = None) -> dict[str, list[Any]]:
    """Rows of all stages and of all days of all tables; only `file` may differ."""
    days = days or DAYS
    found = {
        stage: [
            {k: v for k, v in row.items() if k != "file"}
            for row in lakes.stage_rows(lake, source, stage, days)
        ]
        for stage in STAGES
    }
    for table in TABLES:
        for day in days:
            found[f"{table} {day}"] = lakes.plain(lakes.table_at(lake, source, table, day))
    return found


def assert_same(got: dict[str, list[Any]], expected: dict[str, list[Any]]) -> None:
    assert got.keys() == expected.keys()
    for what, rows in expected.items():
        lakes.assert_same_rows(got[what], rows, what)


@pytest.fixture
def told(tmp_path: Path) -> Landing:
    landing = Landing(DAYS[0])
    a_story(landing)
    ev.write_landing(tmp_path / "files", landing.landed)
    return landing


def test_a_second_run_changes_nothing_and_a_forced_one_no_row(
    lake_of: LakeOf, tmp_path: Path, told: Landing, name: str
) -> None:
    lake = lake_of({name: lakes.source_config(tmp_path / "files", tables=TABLES)})
    lakes.run_all(lake, name, DAYS, lag=True)
    before, rows = commits(lake, name), contents(lake, name)
    again = lakes.run_all(lake, name, DAYS, lag=True)
    assert not any(report.made for report in again.values())
    assert commits(lake, name) == before

    lakes.run_all(lake, name, DAYS, force=True, lag=True)
    assert commits(lake, name)["landing"] != before["landing"]
    assert_same(contents(lake, name), rows)


def test_a_late_file_ends_in_the_lake_that_saw_it_from_the_start(
    lake_of: LakeOf, tmp_path: Path, told: Landing, name: str
) -> None:
    late = [
        ev.updated({"id": 1, "v": "late", "note": "newer"}, server="idem", lsn=1100, offset=50),
        ev.created({"id": 9, "v": "late", "note": "x"}, server="idem", lsn=1101, offset=51),
        ev.deleted({"id": 3}, server="idem", lsn=900, offset=52),
    ]
    sources = {}
    for suffix in ("late", "whole"):
        shutil.copytree(tmp_path / "files", tmp_path / suffix)
        sources[f"{name}_{suffix}"] = lakes.source_config(tmp_path / suffix, tables=TABLES)
    lake = lake_of(sources)

    def deliver(suffix: str) -> None:
        text = "".join(ev.kcat_line(record) + "\n" for record in late)
        (tmp_path / suffix / str(DAYS[1]) / "late.jsonl").write_text(text, "utf-8")

    deliver("whole")
    lakes.run_all(lake, f"{name}_whole", DAYS, lag=True)
    lakes.run_all(lake, f"{name}_late", DAYS, lag=True)
    first = commits(lake, f"{name}_late")["public.customers"][str(DAYS[0])]
    deliver("late")
    lakes.run_all(lake, f"{name}_late", DAYS[1:], lag=True)
    assert_same(contents(lake, f"{name}_late"), contents(lake, f"{name}_whole"))
    assert commits(lake, f"{name}_late")["public.customers"][str(DAYS[0])] == first
    rows = lakes.rows_of(lake, f"{name}_late", "public.customers", DAYS[1])
    assert {"id": 9, "v": "late", "note": "x"} in rows


def test_making_an_old_day_again_replaces_its_tag_alone(
    lake_of: LakeOf, tmp_path: Path, told: Landing, name: str
) -> None:
    lake = lake_of({name: lakes.source_config(tmp_path / "files", tables=TABLES)})
    days = DAYS[:3]
    lakes.run_all(lake, name, days, lag=True)
    before = lakes.refs_of(lake, name, "public.customers")
    rows = lakes.rows_of(lake, name, "public.customers", days[1])
    _, errors = lakes.run_tables(lake, name, [days[1]], ["public.customers"], force=True)
    assert errors == {}
    after = lakes.refs_of(lake, name, "public.customers")
    changed = {ref for ref in before if before[ref] != after[ref]}
    assert changed == {str(days[1])}
    assert before.keys() == after.keys()
    lakes.assert_same_rows(lakes.rows_of(lake, name, "public.customers", days[1]), rows)


OF_THE_DAY = "_cdc_landing_date = DATE'{1}'"
BEFORE = "_cdc_landing_date < DATE'{1}'"
FAULTS = {
    "a row doubled": f"INSERT INTO {{0}} SELECT * FROM {{0}} WHERE {OF_THE_DAY}",
    "an old row left": "INSERT INTO {0} SELECT * EXCEPT (_cdc_landing_date), DATE'2020-01-01' "
    f"FROM {{0}} WHERE {OF_THE_DAY}",
    "a row lost": f"DELETE FROM {{0}} WHERE {OF_THE_DAY}",
    "a wrong position": f"UPDATE {{0}} SET _cdc_position = array(1L) WHERE {OF_THE_DAY}",
    "a wrong key": f"UPDATE {{0}} SET id = id + 100 WHERE {OF_THE_DAY}",
}
FAULTS_OF_KEPT_ROWS = {
    "a kept row doubled": f"INSERT INTO {{0}} SELECT * FROM {{0}} WHERE {BEFORE}",
    "a kept row lost": f"DELETE FROM {{0}} WHERE {BEFORE}",
    "a kept row at another position": f"UPDATE {{0}} SET _cdc_position = array(1L) WHERE {BEFORE}",
    "a kept row under another key": f"UPDATE {{0}} SET id = id + 100 WHERE {BEFORE}",
}


def assert_faults_stop(
    lake: Lake,
    name: str,
    way: str,
    asked: list[tuple[list[date], bool]],
    monkeypatch: pytest.MonkeyPatch,
    faults: Mapping[str, str] = FAULTS,
) -> None:
    """Each fault right behind this way of writing fails the days; no reference moves."""
    before = lakes.refs_of(lake, name, "public.customers")
    write = getattr(apply, way)
    for fault, sql in faults.items():

        def fails(day: TableDay, branch: DayBranch, *rest: Any, sql: str = sql) -> Any:
            written = write(day, branch, *rest)
            lake.spark.sql(sql.format(branch.identifier, day.day))
            return written

        monkeypatch.setattr(apply, way, fails)
        for days, force in asked:
            _, errors = lakes.run_tables(lake, name, days, ["public.customers"], force=force)
            (error,) = errors.values()
            assert isinstance(error, AuditError), fault
            assert "keys were written" in str(error), fault
            assert lakes.refs_of(lake, name, "public.customers") == before, fault
    monkeypatch.undo()


@pytest.mark.long
@pytest.mark.parametrize("way", ["rewrite", "append"])
def test_a_fault_in_what_is_written_leaves_tags_and_main_as_they_were(
    way: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    told: Landing,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also on a day of a late event, which no row of the table is of: the third."""
    lake_of = request.getfixturevalue("lake_of" if way == "rewrite" else "large_lake_of")
    lake = lake_of({name: lakes.source_config(tmp_path / "files", tables=TABLES)})
    lakes.run_all(lake, name, DAYS[:2], lag=True)
    rows = lakes.rows_of(lake, name, "public.customers", "main")
    lakes.run_stages(lake, name, DAYS[:3], lag=True)
    asked = [([DAYS[2]], False), ([DAYS[1]], True)]
    faults = {**FAULTS, **FAULTS_OF_KEPT_ROWS} if way == "rewrite" else FAULTS
    assert_faults_stop(lake, name, way, asked, monkeypatch, faults)
    lakes.assert_same_rows(lakes.rows_of(lake, name, "public.customers", "main"), rows)
    _, errors = lakes.run_tables(lake, name, [DAYS[2]], ["public.customers"])
    assert errors == {}
    assert str(DAYS[2]) in lakes.refs_of(lake, name, "public.customers")


@pytest.mark.long
def test_a_fault_in_a_day_that_is_appended_leaves_tags_and_main_as_they_were(
    large_lake_of: LakeOf, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each event is newer than the table, the rows of its keys are deleted, and appended."""
    landing = Landing(DAYS[0])
    log = PgLog("idem", landing=landing)
    for row_id in (1, 2, 3):
        log.create(id=row_id, v="a", note="long")
    log.next_day()
    log.update(id=1, v="b", note="longer")
    log.delete(id=2)
    log.create(id=4, v="b", note="new")
    ev.write_landing(tmp_path / "files", landing.landed)
    table = {"public.customers": {"key": ["id"]}}
    lake = large_lake_of({name: lakes.source_config(tmp_path / "files", tables=table)})
    lakes.run_all(lake, name, DAYS[:1], lag=True)
    lakes.run_stages(lake, name, DAYS[:2], lag=True)
    assert_faults_stop(lake, name, "append", [([DAYS[1]], False)], monkeypatch)
    _, errors = lakes.run_tables(lake, name, [DAYS[1]], ["public.customers"])
    assert errors == {}
    rows = lakes.rows_of(lake, name, "public.customers", DAYS[1])
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, "b"), (3, "a"), (4, "b")]


def test_winners_that_are_lost_before_they_are_written_stop_a_late_day(
    large_lake_of: LakeOf, tmp_path: Path, told: Landing, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = large_lake_of({name: lakes.source_config(tmp_path / "files", tables=TABLES)})
    lakes.run_all(lake, name, DAYS[:2], lag=True)
    lakes.run_stages(lake, name, DAYS[:3], lag=True)
    before, compare = lakes.refs_of(lake, name, CUSTOMERS), apply.compare_with_table
    monkeypatch.setattr(apply, "compare_with_table", lambda *given: compare(*given).where("false"))
    _, errors = lakes.run_tables(lake, name, [DAYS[2]], [CUSTOMERS])
    (error,) = errors.values()
    assert isinstance(error, AuditError)
    assert "keys were written" in str(error)
    assert lakes.refs_of(lake, name, CUSTOMERS) == before


def test_a_table_that_was_changed_in_parts_is_written_anew_and_back(
    large_lake_of: LakeOf,
    lake_of: LakeOf,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A table shrinks and grows: delete files go with the files that they are of."""
    landing = Landing(DAYS[0])
    log = PgLog("idem", landing=landing)
    for row_id in range(1, 6):
        log.create(id=row_id, v="a", note="first")
    for day in (2, 3, 4):
        log.next_day()
        log.update(id=day, v="b", note="again")
        log.delete(id=day - 1)
    ev.write_landing(tmp_path / "files", landing.landed)
    config = {name: lakes.source_config(tmp_path / "files", tables={CUSTOMERS: {"key": ["id"]}})}
    large, small = large_lake_of(config), lake_of(config)
    lakes.run_stages(large, name, DAYS, lag=True)
    made = {}
    # Small are few rows and few bytes.
    limits = [(-1, 10**6), (10, 10), (10, 10**6), (-1, 10**6)]
    for day, lake, (rows, size) in zip(DAYS, (large, small, small, large), limits, strict=True):
        monkeypatch.setattr(cdc_spark, "SMALL_ROWS", rows)
        monkeypatch.setattr(table_day, "REWRITTEN_BYTES", size)
        reports, errors = lakes.run_tables(lake, name, [day], [CUSTOMERS])
        assert errors == {}
        made.update(reports)
    last = [made[CUSTOMERS, day] for day in DAYS[1:]]
    assert [(r.rows, r.written, r.removed) for r in last] == [(4, 1, 2), (3, 1, 2), (2, 1, 2)]
    state = lake.read_state(lake.state(name, TableName.parse(CUSTOMERS)))
    assert state is not None
    delete_files = [state.day_summary(day)["total-delete-files"] for day in DAYS]
    assert delete_files == ["0", "1", "0", "1"]
    found = [lakes.rows_of(lake, name, CUSTOMERS, day) for day in DAYS]
    assert [sorted(row["id"] for row in of_day) for of_day in found] == [
        [1, 2, 3, 4, 5], [2, 3, 4, 5], [3, 4, 5], [4, 5],
    ]  # fmt: skip


def test_days_made_at_once_are_those_made_one_by_one(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    """Types of a day use only what landed by that day (R3): also those of its keys."""
    landing = Landing(DAYS[0])
    log = PgLog("idem", landing=landing)
    log.create(id="1", v="a")
    log.delete(id="2", _tombstone=True)
    log.tombstone(id="3")
    log.next_day()
    log.update(id=1, v="b", _types={"id": "int32", "v": "string"})
    PgLog("idem", table="log", key=None, landing=landing).create(a=1)
    ev.write_landing(tmp_path / "files", landing.landed)
    tables = {"public.log": {"key": "none"}, "public.customers": {"key": ["id"]}}
    source = lakes.source_config(tmp_path / "files", tables=tables)
    lake = lake_of({f"{name}_once": source, f"{name}_daily": source})
    lakes.run_stages(lake, f"{name}_once", DAYS[:2], lag=True)
    for day in DAYS[:2]:
        lakes.run_stages(lake, f"{name}_daily", [day], lag=True)
    for stage in STAGES:
        got = lakes.stage_rows(lake, f"{name}_once", stage)
        lakes.assert_same_rows(got, lakes.stage_rows(lake, f"{name}_daily", stage), stage)


def _made_by_other_rules(lake: Lake, source: str) -> list[date]:
    return ChangesStage(lake.config, source).made_by_other_rules(lake)


def test_days_made_by_other_rules_are_made_again_and_the_run_says_so(
    lake_of: LakeOf, tmp_path: Path
) -> None:
    log = PgLog("rules_of_reading")
    log.create(id=1, v="a")
    table = "public.customers"
    source = lakes.write_source(tmp_path / "landing", log.landed, tables={table: {"key": ["id"]}})
    lake = lake_of({"rules_of_reading": source})
    day = DAYS[0]
    made = lakes.run_all(lake, "rules_of_reading", [day], lag=True)[table, day]
    assert (made.made, made.rules_changed) == (True, False)
    assert _made_by_other_rules(lake, "rules_of_reading") == []

    other = lake_of({"rules_of_reading": {**source, "position_reset": ["2026-11-01T00:00:00Z"]}})
    assert _made_by_other_rules(other, "rules_of_reading") == [day]
    again = lakes.run_all(other, "rules_of_reading", [day], lag=True)[table, day]
    assert (again.made, again.rules_changed) == (True, True)
    assert _made_by_other_rules(other, "rules_of_reading") == []
