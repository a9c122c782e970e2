"""Two runs of one day at once, without a pool: the second never overwrites the first unseen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.errors import ConcurrentRunError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import BRANCH_PREFIX
from cdc_assets.cdc.state import apply
from cdc_assets.cdc.state import stage as table_days
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog
from cdc_assets_tests.lakes import land

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(2)]
TABLE = "public.log"


@pytest.fixture
def landed(lake_of: LakeOf, tmp_path: Path, name: str) -> Lake:
    """Two days of a log, whose rows would double if they were appended twice."""
    log = PgLog("race", table="log", key=None, landing=Landing(DAYS[0]))
    log.create(a=1)
    log.next_day()
    log.create(a=2)
    ev.write_landing(tmp_path, log.landed)
    tables: dict[str, Any] = {TABLE: {"key": "none"}}
    lake = lake_of({name: lakes.source_config(tmp_path, tables=tables)})
    lakes.run_stages(lake, name, DAYS)
    lakes.run_tables(lake, name, DAYS[:1])
    return lake


def deliver_late(folder: Path) -> None:
    """A file that arrives for the second day."""
    late = ev.created(
        {"a": 3}, server="race", table=("public", "log"), key=None, lsn=5000, offset=90
    )
    (folder / str(DAYS[1]) / "late.jsonl").write_text(ev.kcat_line(late) + "\n", "utf-8")


def meanwhile(
    patch: pytest.MonkeyPatch, owner: Any, method: str, when: str, act: Callable[[], None]
) -> None:
    """Let another run `act` once, before or after a method's own work."""
    original = getattr(owner, method)

    def interleaved(*arguments: Any) -> Any:
        patch.setattr(owner, method, original)
        if when == "before":
            act()
            return original(*arguments)
        done = original(*arguments)
        act()
        return done

    patch.setattr(owner, method, interleaved)


def values(lake: Lake, source: str, day: date) -> list[int]:
    return sorted(row["a"] for row in lakes.rows_of(lake, source, TABLE, day))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_day_that_another_run_made_of_the_same_is_left_to_it(
    landed: Lake, name: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    facts = table_days.gather(landed, name, [TABLE], DAYS)
    published: dict[str, int] = {}

    def other_run() -> None:
        assert table_days.make_table_day(landed, name, TABLE, DAYS[1], facts).made
        published.update(lakes.refs_of(landed, name, TABLE))

    meanwhile(monkeypatch, apply, "make_rows", when, other_run)
    report = table_days.make_table_day(landed, name, TABLE, DAYS[1], facts)
    assert (report.made, report.rows) == (False, 2)
    refs = lakes.refs_of(landed, name, TABLE)
    assert {ref: refs[ref] for ref in refs if not ref.startswith(BRANCH_PREFIX)} == {
        ref: published[ref] for ref in published if not ref.startswith(BRANCH_PREFIX)
    }
    assert values(landed, name, DAYS[1]) == [1, 2]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_day_that_another_run_made_of_more_is_not_overwritten(
    landed: Lake, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    stale = table_days.gather(landed, name, [TABLE], DAYS)

    def other_run() -> None:
        deliver_late(tmp_path)
        lakes.run_all(landed, name, DAYS[1:])

    meanwhile(monkeypatch, apply, "make_rows", when, other_run)
    with pytest.raises(ConcurrentRunError, match=f"{TABLE} {DAYS[1]}: another run"):
        table_days.make_table_day(landed, name, TABLE, DAYS[1], stale)
    assert values(landed, name, DAYS[1]) == [1, 2, 3]
    refs = lakes.refs_of(landed, name, TABLE)
    assert refs["main"] == refs[str(DAYS[1])]
    assert not [ref for ref in refs if ref.startswith(BRANCH_PREFIX)]


@pytest.mark.parametrize("at", ["refuse_overtaken before", "refuse_overtaken after"])
def test_a_landing_does_not_overwrite_what_another_one_landed(
    landed: Lake, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Seen before the commit, or by the commit itself."""

    def other_run() -> None:
        deliver_late(tmp_path)
        land(landed, name, DAYS[1:])

    method, _, when = at.partition(" ")
    meanwhile(monkeypatch, Lake, method, when, other_run)
    with pytest.raises(ConcurrentRunError, match=f"landing {DAYS[1]}: another run"):
        land(landed, name, DAYS[1:], force=True)
    assert len(lakes.stage_rows(landed, name, "landing", DAYS[1:])) == 2


def test_runs_of_different_days_do_not_hinder_each_other(
    landed: Lake, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_run() -> None:
        deliver_late(tmp_path)
        land(landed, name, DAYS[1:])

    meanwhile(monkeypatch, Lake, "refuse_overtaken", "after", other_run)
    land(landed, name, DAYS[:1], force=True)
    assert len(lakes.stage_rows(landed, name, "landing", DAYS)) == 3


def test_two_empty_landings_of_a_day_are_told_apart(landed: Lake, name: str) -> None:
    """No file of an empty day could tell Iceberg that it was written."""
    identifier = landed.stage(name, "landing")
    day = DAYS[1] + timedelta(days=1)
    nothing = landed.spark.table(identifier).where("false")
    since = landed.day_commits(name, "landing").head
    landed.overwrite_days(identifier, nothing, {day: {"files": "one"}}, since)
    with pytest.raises(ConcurrentRunError):
        landed.overwrite_days(identifier, nothing, {day: {"files": "two"}}, since)
    assert landed.day_commits(name, "landing")[day].inputs == {"files": "one"}
