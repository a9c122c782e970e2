"""Landed records older than `landing_keep_days`: removed, and said to be."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.config import local_path
from cdc_assets.cdc.errors import ConcurrentRunError, MissingDayError
from cdc_assets.cdc.lake import maintenance
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.maintenance import maintain_table
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import changes_found, land, rows_of, run_all, source_config, stage_rows

pytestmark = pytest.mark.slow

TABLE = "public.t"
DAYS = [ev.DAY + timedelta(days=n) for n in range(4)]
# On the day after the last one: the first two are older than two days.
AT = datetime.combine(DAYS[-1], datetime.min.time(), timezone.utc) + timedelta(hours=1)


def four_days(lake_of: LakeOf, folder: Path, name: str) -> Lake:
    log = ev.PgLog(name, "public", "t", types={"id": "int32"})
    for n, day in enumerate(DAYS):
        log.create(id=n)
        if day != DAYS[-1]:
            log.next_day()
    ev.write_landing(folder, log.landed)
    tables = {TABLE: {"key": ["id"]}}
    return lake_of({name: source_config(folder, tables=tables, landing_keep_days=2)})


def landed(lake: Lake, name: str) -> list[date]:
    return sorted({row["landing_date"] for row in stage_rows(lake, name, "landing")})


def removed(lake: Lake, name: str) -> dict[date, int]:
    commits = lake.day_commits(name, "landing")
    return {day: of.removed for day, of in commits.items() if of.removed is not None}


def test_old_days_leave_the_landing_and_nothing_else(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    lake = four_days(lake_of, tmp_path, name)
    run_all(lake, name, DAYS)
    assert maintain_table(lake, name, "landing", dry_run=True, at=AT).days_expired == 1
    assert landed(lake, name) == DAYS
    assert maintain_table(lake, name, "landing", at=AT).days_expired == 1
    assert landed(lake, name) == DAYS[1:]
    assert removed(lake, name) == {DAYS[0]: 1}
    assert {row["landing_date"] for row in stage_rows(lake, name, "changes")} == set(DAYS)
    # Days that are made stay made, and their check still adds up.
    assert lakes.make_changes(lake, name, DAYS) == []
    assert [report.made for report in run_all(lake, name, DAYS).values()] == [False] * 4
    findings = changes_found(lake, name, DAYS)
    assert all(f.passed for day in DAYS for f in findings[day] if f.name == "nothing_lost")


def test_a_day_without_its_landing_is_not_made_again_until_it_lands_again(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    lake = four_days(lake_of, tmp_path, name)
    run_all(lake, name, DAYS)
    maintain_table(lake, name, "landing", at=AT + timedelta(days=1))
    assert landed(lake, name) == DAYS[2:]
    for day in DAYS[:3]:  # the third is read with the tombstones of the second
        with pytest.raises(MissingDayError, match="landing_keep_days: 2") as raised:
            lakes.make_changes(lake, name, [day], force=True)
        assert "--force" in str(raised.value)
    assert len(stage_rows(lake, name, "changes")) == 4
    land(lake, name, DAYS[:2], force=True)
    assert removed(lake, name) == {}
    assert lakes.make_changes(lake, name, DAYS[:2], force=True) == DAYS[:2]
    assert len(rows_of(lake, name, TABLE, DAYS[-1])) == 4


def test_removed_records_are_gone_from_the_disk_once_their_commits_expire(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    lake = four_days(lake_of, tmp_path, name)
    run_all(lake, name, DAYS)
    state = lake.read_state(lake.stage(name, "landing"))
    assert state is not None
    folder = local_path(state.location) / "data" / f"landing_date={DAYS[0]}"
    maintain_table(lake, name, "landing", at=AT)
    assert list(folder.glob("*.parquet"))
    maintain_table(lake, name, "landing", at=datetime.now(timezone.utc) + timedelta(days=2))
    assert not list(folder.glob("*.parquet"))
    assert removed(lake, name)[DAYS[0]] == 1


def test_a_day_that_is_not_read_yet_stays(lake_of: LakeOf, tmp_path: Path, name: str) -> None:
    lake = four_days(lake_of, tmp_path, name)
    run_all(lake, name, DAYS[:1])
    land(lake, name, DAYS)
    assert maintain_table(lake, name, "landing", at=AT).days_expired == 0
    assert landed(lake, name) == DAYS


def test_a_day_that_lands_again_meanwhile_is_not_removed(
    lake_of: LakeOf, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = four_days(lake_of, tmp_path, name)
    run_all(lake, name, DAYS)
    choose = maintenance._StageMaintenance._landing_to_remove

    def chosen(work: maintenance._StageMaintenance) -> tuple[dict[date, int], int | None]:
        found = choose(work)
        if found[0]:
            # A run lands the day again, with a late record that `changes` has not read.
            late = ev.PgLog(name, "public", "t", types={"id": "int32"})
            late.landing.offset = 900
            late.create(id=99)
            lines = "".join(ev.kcat_line(r) + "\n" for r in late.landed[ev.DAY])
            (tmp_path / str(DAYS[0]) / "late.jsonl").write_text(lines, "utf-8")
            land(lake, name, DAYS[:1])
        return found

    monkeypatch.setattr(maintenance._StageMaintenance, "_landing_to_remove", chosen)
    with pytest.raises(ConcurrentRunError):
        maintain_table(lake, name, "landing", at=AT)
    monkeypatch.undo()
    assert landed(lake, name) == DAYS
    assert removed(lake, name) == {}
    run_all(lake, name, DAYS)
    assert {"id": 99} in rows_of(lake, name, TABLE, DAYS[-1])


def test_what_a_commit_says_that_comes_between_copying_and_expiring_is_kept(
    lake_of: LakeOf, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its snapshot may go only once its day's inputs are copied, too."""
    lake = four_days(lake_of, tmp_path, name)
    run_all(lake, name, DAYS[:2])
    read = lake.day_commits(name, "landing")
    state = maintenance._StageMaintenance._state
    calls: list[int] = []

    def with_a_commit_behind(work: maintenance._StageMaintenance) -> Any:
        found = state(work)
        calls.append(1)
        if found.refs["main"] == read.head and not found.snapshots[read.head].summary.get("x"):
            land(lake, name, DAYS[2:3])
            read.head = None
        return found

    now = datetime.now(timezone.utc)
    monkeypatch.setattr(maintenance._StageMaintenance, "_state", with_a_commit_behind)
    maintain_table(lake, name, "landing", at=now + timedelta(hours=25))
    monkeypatch.undo()
    for hours in (30, 40, 47):
        maintain_table(lake, name, "landing", at=now + timedelta(hours=hours))
        known = lake.day_commits(name, "landing")
        assert sorted(known) == DAYS[:3]
        assert all(known[day].inputs.get("files") for day in DAYS[:3])
    assert calls
