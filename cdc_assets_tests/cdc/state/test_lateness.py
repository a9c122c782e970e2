"""Events that come later than is looked back on, or that lack their place: counted and checked."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cdc_assets.cdc.changes.figures import day_figures
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.names import TableName
from cdc_assets.orchestration import checks
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(4)]
SOURCE, TABLE = "lateness", "public.customers"
IN_TIME, TOO_LATE = DAYS[2], DAYS[3]


@pytest.fixture(scope="module")
def made(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, lakes.Reports]:
    """Rows 1 and 2 are deleted on the second day; older events of them come on the days after."""
    log = PgLog(SOURCE, landing=Landing(DAYS[0]))
    log.create(id=1, v="a", _lsn=100)
    log.create(id=2, v="a", _lsn=110)
    log.next_day()
    log.delete(id=1, _lsn=200)
    log.delete(id=2, _lsn=210)
    log.next_day()
    log.update(id=1, v="late", _lsn=150)
    log.create(id=3, v="new", _lsn=300)
    log.next_day()
    log.update(id=2, v="too late", _lsn=160)
    log.create(id=4, v="no place", _lsn=None)
    folder: Path = tmp_path_factory.mktemp(SOURCE)
    tables = {TABLE: {"key": ["id"]}}
    source = lakes.write_source(folder, log.landed, late_days=1, tables=tables)
    lake = lake_of({SOURCE: source}, DAYS[0])
    return lake, lakes.run_all(lake, SOURCE, DAYS)


def test_a_removal_beats_what_comes_within_late_days(
    made: tuple[Lake, lakes.Reports],
) -> None:  # O12
    lake, reports = made
    rows = lakes.rows_of(lake, SOURCE, TABLE, IN_TIME)
    assert [row["id"] for row in rows] == [3]
    assert reports[TABLE, IN_TIME].too_late == 0


def test_what_comes_later_than_late_days_is_counted(
    made: tuple[Lake, lakes.Reports],
) -> None:  # O12
    lake, reports = made
    rows = lakes.rows_of(lake, SOURCE, TABLE, TOO_LATE)
    assert sorted(row["id"] for row in rows) == [2, 3, 4]
    # The row that came back; the event that says nothing of its place is counted apart (O8).
    assert reports[TABLE, TOO_LATE].too_late == 1
    assert reports[TABLE, TOO_LATE].other_basis == 1
    state = lake.read_state(lake.state(SOURCE, TableName.parse(TABLE)))
    assert state is not None
    for day, passed in ((IN_TIME, True), (TOO_LATE, False)):
        findings = checks.table_findings(state, day, reports[TABLE, day])
        assert next(f for f in findings if f.name == "late_within_window").passed is passed


def test_a_position_that_lacks_a_part_is_counted(made: tuple[Lake, lakes.Reports]) -> None:  # O4
    lake, _ = made
    figures = day_figures(lake, SOURCE, DAYS)
    by_day = checks.changes_findings(lake, SOURCE, figures, {})
    found = {
        day: next(f for f in findings if f.name == "positions_complete")
        for day, findings in by_day.items()
    }
    assert [found[day].passed for day in DAYS] == [True, True, True, False]
    assert "1 events" in found[TOO_LATE].metadata["examples"].md_str
