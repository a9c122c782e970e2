"""What the checks of `changes` cost, and of days whose facts say less."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cdc_assets.cdc.changes.figures import day_figures
from cdc_assets.cdc.changes.findings import ParsedDays, changes_findings, quarantine_examples
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.state.order_findings import order_findings
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]


@pytest.fixture
def lake(lake_of: LakeOf, tmp_path: Path, name: str) -> Lake:
    """Three days of a table, the last of one heartbeat."""
    log = PgLog("shop", landing=Landing(DAYS[0]), types={"id": "int64"})
    log.create(id=1)
    log.next_day()
    log.create(id=2)
    log.next_day()
    log.heartbeat()
    tables = {"public.customers": {"key": ["id"]}}
    source = lakes.write_source(tmp_path, log.landed, tables=tables, max_silence_minutes=60)
    made = lake_of({name: source})
    lakes.run_stages(made, name, DAYS)
    return made


def test_ordinary_days_are_judged_by_one_job_that_reads_their_facts(lake: Lake, name: str) -> None:
    figures = day_figures(lake, name, DAYS)
    before = lakes.jobs_run(lake)
    parsed = ParsedDays(lake, name, figures)
    findings = changes_findings(parsed, quarantine_examples(parsed), order_findings(parsed))
    assert lakes.jobs_run(lake) - before <= 1
    assert all(f.passed for day in DAYS for f in findings[day] if f.name != "source_alive")


def test_days_whose_facts_lack_newer_columns_are_judged_the_same(lake: Lake, name: str) -> None:
    found = lakes.changes_found(lake, name, DAYS)
    facts = lake.stage(name, "facts")
    lake.spark.sql(f"ALTER TABLE {facts} DROP COLUMNS (incomplete, newest_ms)")
    assert lakes.changes_found(lake, name, DAYS) == found
    newest = [f.values["newest"] for day in DAYS for f in found[day] if f.name == "source_alive"]
    assert len(set(newest)) == len(DAYS)
