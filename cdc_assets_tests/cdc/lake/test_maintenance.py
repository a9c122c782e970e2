"""Maintenance: what is kept reads as before, and days go on being made as without it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import BRANCH_PREFIX
from cdc_assets.cdc.lake.maintenance import Figures, maintain, maintain_table
from cdc_assets.cdc.lake.metadata import made_days
from cdc_assets.cdc.lake.tables import own_table
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.state import table_day
from cdc_assets.cdc.state.findings import table_findings
from cdc_assets.orchestration.assets.keys import table_key
from cdc_assets.orchestration.automation.maintenance_job import maintenance_job
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog
from cdc_assets_tests.shared_spark import SharedSpark

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(6)]
KEYED, ODD = "public.customers", 'public."a b.%"'
TABLES: dict[str, Any] = {KEYED: {"key": ["id"]}, ODD: {"key": "none"}}
STAGES = ("landing", "changes", "control", "quarantine", "lag", "schemas")
KEPT = DAYS[2:5]  # of the first five, with keep_days: 2
# Two days on, all commits and files of the tests are older than what maintenance spares.
LATER = timedelta(days=2)


def a_story() -> Landing:
    """Six days: rows come, change and go, and every day makes small files."""
    landing = Landing(DAYS[0])
    log = PgLog("upkeep", types={"id": "int32", "v": "string"}, landing=landing)
    odd = PgLog("upkeep", table="a b.%", key=None, types={"a": "int32"}, landing=landing)
    for n, day in enumerate(DAYS):
        for i in range(8):
            log.create(id=10 * n + i, v=f"made on {day}")
        odd.create(a=n)
        if n:
            log.update(id=10 * n - 10, v=f"changed on {day}")
            for i in (1, 2, 3, 4):
                log.delete(id=10 * n - 10 + i)
        if day != DAYS[-1]:
            log.next_day()
    return landing


@dataclass
class Upkeep:
    """A lake that was maintained after five days, and one that never was."""

    lake: Lake
    kept: str
    plain: str
    folder: Path
    orphan: Path
    before: dict[str, int]
    dry: dict[str, Figures]
    figures: dict[str, Figures]


@pytest.fixture(scope="module")
def changed_in_parts() -> Iterator[None]:
    """Small tables are written anew each day, which leaves nothing to compact: not these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_day, "REWRITTEN_BYTES", -1)
        yield


@pytest.fixture(scope="module")
def upkeep(
    spark: SparkSession,
    lake_of: LakeOf,
    changed_in_parts: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Upkeep:
    folder = tmp_path_factory.mktemp("upkeep")
    ev.write_landing(folder, a_story().landed)
    own = {"tables": TABLES, "late_days": 1, "keep_days": 2}
    sources = {n: lakes.source_config(folder, **own) for n in ("upkeep_kept", "upkeep_plain")}
    lake = lake_of(sources)
    for days in (DAYS[:2], DAYS[2:5]):
        lakes.run_all(lake, "upkeep_kept", days, lag=True)
    lakes.run_all(lake, "upkeep_plain", DAYS[:5], lag=True)
    identifier = lake.state("upkeep_kept", TableName.parse(ODD))
    state = lake.read_state(identifier)
    assert state is not None
    orphan = Path(state.location) / "data" / "left-behind.parquet"
    orphan.write_bytes(b"of a crashed run")
    os.utime(orphan, (time.time() - 4 * 86_400,) * 2)
    at = datetime.now(timezone.utc) + LATER
    before = lakes.refs_of(lake, "upkeep_kept", KEYED)
    dry = {f.table: f for f in maintain(lake, "upkeep_kept", dry_run=True, at=at)}
    assert lakes.refs_of(lake, "upkeep_kept", KEYED) == before
    assert orphan.exists()
    figures = {f.table: f for f in maintain(lake, "upkeep_kept", at=at)}
    return Upkeep(lake, "upkeep_kept", "upkeep_plain", folder, orphan, before, dry, figures)


def assert_same(upkeep: Upkeep, days: list[date]) -> None:
    """The rows of both lakes, the ``_cdc_`` columns too."""
    for table in TABLES:
        for day in days:
            got, expected = (
                lakes.plain(lakes.table_at(upkeep.lake, source, table, day))
                for source in (upkeep.kept, upkeep.plain)
            )
            lakes.assert_same_rows(got, expected, f"{table} {day}")
    for stage in STAGES:
        got, expected = (
            lakes.stage_rows(upkeep.lake, source, stage) for source in (upkeep.kept, upkeep.plain)
        )
        lakes.assert_same_rows(got, expected, stage)


def test_kept_days_read_as_before_and_older_ones_are_gone(upkeep: Upkeep) -> None:
    assert_same(upkeep, KEPT)
    for table in TABLES:
        refs = lakes.refs_of(upkeep.lake, upkeep.kept, table)
        days = {ref for ref in refs if ref not in ("main", "empty")}
        assert days == set(map(str, KEPT))
        assert refs["main"] == refs[str(KEPT[-1])]


def test_the_newest_day_alone_is_compacted(upkeep: Upkeep) -> None:
    refs = lakes.refs_of(upkeep.lake, upkeep.kept, KEYED)
    moved = {str(day) for day in KEPT if refs[str(day)] != upkeep.before[str(day)]}
    assert moved == {str(KEPT[-1])}
    identifier = upkeep.lake.state(upkeep.kept, TableName.parse(KEYED))
    files = upkeep.lake.spark.sql(f"SELECT content, count(*) n FROM {identifier}.files GROUP BY 1")
    assert {row.content: row.n for row in files.collect()} == {0: 1}


def test_the_figures_say_what_was_done(upkeep: Upkeep) -> None:
    keyed, odd = upkeep.figures[KEYED], upkeep.figures[ODD]
    assert keyed.compacted_day == str(KEPT[-1])
    assert keyed.data_files >= 5
    assert keyed.days_expired == odd.days_expired == 2
    assert keyed.snapshots_expired > 2
    assert keyed.files_before is not None
    assert keyed.files_after is not None
    assert keyed.files_after < keyed.files_before
    assert upkeep.figures["changes"].snapshots_expired == 2
    assert not upkeep.orphan.exists()
    assert (upkeep.dry[ODD].orphan_files, odd.orphan_files) == (1, 1)
    assert upkeep.dry[KEYED].days_expired == 2
    assert upkeep.dry[KEYED].data_files == keyed.data_files


def test_a_stage_table_has_its_days_in_one_commit(upkeep: Upkeep) -> None:
    identifier = upkeep.lake.stage(upkeep.kept, "changes")
    commits = upkeep.lake.day_commits(upkeep.kept, "changes")
    state = upkeep.lake.read_state(identifier)
    assert state is not None
    assert list(state.snapshots) == [commits.head]
    assert sorted(commits) == DAYS[:5]
    changes = own_table(upkeep.kept, "changes")
    assert made_days(upkeep.lake.config, changes) == DAYS[:5]


def test_days_are_up_to_date_after_maintenance(upkeep: Upkeep) -> None:
    reports = lakes.run_all(upkeep.lake, upkeep.kept, KEPT, lag=True)
    assert not any(report.made for report in reports.values())
    for (table, day), report in reports.items():
        state = upkeep.lake.read_state(upkeep.lake.state(upkeep.kept, TableName.parse(table)))
        assert state is not None
        findings = table_findings(state, day, report)
        assert all(f.passed for f in findings), (table, day)


def test_maintenance_again_finds_nothing_to_do(upkeep: Upkeep) -> None:
    before = lakes.refs_of(upkeep.lake, upkeep.kept, KEYED)
    at = datetime.now(timezone.utc) + LATER
    for figures in maintain(upkeep.lake, upkeep.kept, at=at):
        assert figures.files_after == figures.files_before, figures
        assert not figures.data_files, figures
        assert not figures.snapshots_expired, figures
    assert lakes.refs_of(upkeep.lake, upkeep.kept, KEYED) == before


def test_a_day_whose_day_before_has_expired_says_so(upkeep: Upkeep) -> None:
    _, errors = lakes.run_tables(upkeep.lake, upkeep.kept, KEPT[:1], [KEYED], force=True)
    (error,) = errors.values()
    assert isinstance(error, MissingDayError)
    assert error.day == DAYS[1]
    assert "has expired (keep_days: 2)" in str(error)
    assert f"--from {DAYS[0]}" in str(error)


def test_a_crash_leaves_the_day_and_the_next_maintenance_mends_it(
    upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lakes.refs_of(upkeep.lake, upkeep.plain, ODD)
    at = datetime.now(timezone.utc) + LATER
    with monkeypatch.context() as patch:
        # As a kill would: nothing is published, and nothing cleans up.
        patch.setattr(Lake, "publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(Lake, "drop_branch", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            maintain_table(upkeep.lake, upkeep.plain, KEYED)
    refs = lakes.refs_of(upkeep.lake, upkeep.plain, KEYED)
    assert [ref for ref in refs if ref.startswith(BRANCH_PREFIX)]
    assert_same(upkeep, KEPT)
    assert lakes.refs_of(upkeep.lake, upkeep.plain, ODD) == before
    figures = maintain_table(upkeep.lake, upkeep.plain, KEYED, at=at, dry_run=True)
    assert figures.branches_dropped == 1


def test_the_job_records_the_figures_on_each_table_s_page(upkeep: Upkeep) -> None:
    whole = upkeep.lake.config
    config = whole.model_copy(update={"sources": {upkeep.kept: whole.sources[upkeep.kept]}})
    SharedSpark.shared = Lake(upkeep.lake.spark, config)
    with dg.DagsterInstance.ephemeral() as instance:
        result = maintenance_job(config).execute_in_process(
            resources={"spark": SharedSpark()}, instance=instance
        )
    assert result.success
    observed = {
        event.asset_observation_data.asset_observation.asset_key: set(
            event.asset_observation_data.asset_observation.metadata
        )
        for event in result.get_asset_observation_events()
    }
    assert set(observed) == {
        *(table_key(upkeep.kept, table) for table in TABLES),
        *(dg.AssetKey([upkeep.kept, stage]) for stage in STAGES if stage != "schemas"),
    }
    assert {"maintenance_bytes_before", "maintenance_bytes_saved"} <= set.intersection(
        *observed.values()
    )


def test_new_and_late_days_are_made_as_without_maintenance(upkeep: Upkeep) -> None:
    for source in (upkeep.kept, upkeep.plain):
        lakes.run_all(upkeep.lake, source, DAYS[5:], lag=True)
    assert_same(upkeep, [*KEPT, DAYS[5]])
    place = {"server": "upkeep", "lsn": 10**6}
    keyed = {**place, "types": {"id": "int32", "v": "string"}}
    odd = {**place, "table": ("public", "a b.%"), "key": None, "types": {"a": "int32"}}
    late = [
        ev.updated({"id": 20, "v": "late"}, offset=900, **keyed),
        ev.created({"id": 99, "v": "late"}, offset=901, **keyed),
        ev.created({"a": 77}, offset=902, **odd),
    ]
    text = "".join(ev.kcat_line(record) + "\n" for record in late)
    (upkeep.folder / str(DAYS[4]) / "late.jsonl").write_text(text, "utf-8")
    for source in (upkeep.kept, upkeep.plain):
        reports = lakes.run_all(upkeep.lake, source, DAYS[4:], lag=True)
        assert {day for (_, day), report in reports.items() if report.made} == set(DAYS[4:])
    assert_same(upkeep, [*KEPT, DAYS[5]])
