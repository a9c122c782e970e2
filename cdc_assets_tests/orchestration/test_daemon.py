"""Dagster's own daemon and commands on a small project, as its users run them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from cdc_assets.cdc.config import load_config
from cdc_assets.cdc.lake.metadata import table_state
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.rows import read_table
from cdc_assets.cdc.lake.tables import find_table
from cdc_assets.cdc.spark import SHORT_RUN
from cdc_assets.orchestration.assets.keys import table_key
from cdc_assets.orchestration.automation.catch_up import catch_up_runs
from cdc_assets.orchestration.execution.jobs import RANGE_END, RANGE_START
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.e2e.stack import Process, StackError, wait_for
from cdc_assets_tests.paths import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.long]

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]
TABLE = "public.customers"
TYPES = {"id": "int32", "name": "string"}
PATIENCE = 420  # seconds, of a machine that has much else to do


class Project:
    """A folder as a user has it, with Dagster's records in it."""

    def __init__(self, folder: Path, start: date = DAYS[0]) -> None:
        self.folder = folder
        self.log = folder / "daemon.log"
        (folder / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text())
        self.raw = {
            "spark": {**SHORT_RUN, "spark.master": "local[2]", "spark.driver.memory": "1g"},
            "lake": {"warehouse": "lake"},
            "start_date": start,
            "sources": {"shop": lakes.source_config("landed", tables={TABLE: {"key": ["id"]}})},
        }
        self.configure()
        outside = {k: v for k, v in os.environ.items() if not k.startswith(("CDC_", "DAGSTER_"))}
        self.environment = {**outside, "DAGSTER_HOME": str(folder), "PYTHONPATH": str(REPOSITORY)}
        # On a busy machine a process takes longer to load the project than Dagster waits for it.
        self.environment["DAGSTER_GRPC_TIMEOUT_SECONDS"] = "300"

    def configure(self, **top: Any) -> None:
        """Write cdc.yaml, with these settings besides."""
        (self.folder / "cdc.yaml").write_text(yaml.safe_dump({**self.raw, **top}))

    def land(self, day: date, file: str, ids: list[int]) -> None:
        """A landed file that is not young any more."""
        records = [ev.created({"id": n, "name": f"row {n}"}, offset=n, types=TYPES) for n in ids]
        ev.write_landing(self.folder / "new", {day: records})
        target = self.folder / "landed" / str(day) / file
        target.parent.mkdir(parents=True, exist_ok=True)
        then = time.time() - 600
        source = self.folder / "new" / str(day) / "part-0.jsonl"
        os.utime(source, (then, then))
        source.rename(target)

    def dagster(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dagster", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def start_run(self, first: date, last: date) -> subprocess.Popen[str]:
        """`cdc-assets run`, with its lines on stderr."""
        command = [sys.executable, "-m", "cdc_assets.cli.app", "run"]
        return subprocess.Popen(
            [*command, "--from", str(first), "--to", str(last)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ids(self, day: date) -> set[int]:
        config = load_config(self.folder / "cdc.yaml")
        return set(read_table(config, "shop", TABLE, as_of=day)["id"].to_pylist())

    def start_daemon(self) -> Process:
        command = [sys.executable, "-m", "dagster._daemon", "run", "-m", "cdc_assets.definitions"]
        return Process.start("the daemon", command, self.log, env=self.environment, cwd=self.folder)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The project with its daemon running."""
    known = Project(tmp_path_factory.mktemp("project"))
    for number, day in enumerate(DAYS):
        known.land(day, "first.jsonl", [10 * number + n for n in range(3)])
    # Two processes that make Dagster's tables at once get into each other's way.
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(known.folder)  # dagster.yaml's folders are relative
        dg.DagsterInstance.from_config(str(known.folder)).dispose()
    daemon = known.start_daemon()
    try:
        yield known
    finally:
        print(known.log.read_text()[-4000:])  # pytest shows it where a test failed
        daemon.stop(seconds=30)


@pytest.fixture(scope="module")
def instance(project: Project) -> Iterator[dg.DagsterInstance]:
    here = Path.cwd()
    os.chdir(project.folder)  # dagster.yaml's folders are relative
    try:
        with dg.DagsterInstance.from_config(str(project.folder)) as found:
            yield found
    finally:
        os.chdir(here)


def finished(instance: dg.DagsterInstance, known: set[str], **tags: str) -> Any:
    """The newest run that is not known, once it has ended."""
    runs = [r for r in instance.get_runs(dg.RunsFilter(tags=tags)) if r.run_id not in known]
    return runs[0] if runs and runs[0].is_finished else None


def days_made(instance: dg.DagsterInstance, run_id: str) -> list[str | None]:
    records = instance.fetch_materializations(table_key("shop", TABLE), limit=100).records
    made = [r.asset_materialization for r in records if r.run_id == run_id]
    return sorted(event.partition or "" for event in made if event)


def test_the_daemon_makes_landed_days_and_late_ones_and_queued_backfills(
    project: Project, instance: dg.DagsterInstance
) -> None:
    first = wait_for(
        "the run of the first files",
        lambda: finished(instance, set(), **{"cdc/source": "shop"}),
        PATIENCE,
        every=1,
    )
    assert first.is_success
    assert days_made(instance, first.run_id) == [str(day) for day in DAYS]
    assert project.ids(DAYS[2]) == {0, 1, 2, 10, 11, 12, 20, 21, 22}

    project.land(DAYS[1], "late.jsonl", [77])
    known = {first.run_id}
    second = wait_for(
        "the run of the late file",
        lambda: finished(instance, known, **{"cdc/source": "shop"}),
        PATIENCE,
        every=1,
    )
    assert second.is_success
    assert days_made(instance, second.run_id) == [str(day) for day in DAYS[1:]]
    assert 77 not in project.ids(DAYS[0])
    assert 77 in project.ids(DAYS[2])

    queued = project.dagster(
        *("job", "backfill", "-m", "cdc_assets.definitions", "-j", "daily", "--noprompt"),
        *("--from", str(DAYS[0]), "--to", str(DAYS[1])),
    )
    assert queued.returncode == 0, queued.stdout + queued.stderr
    known.add(second.run_id)

    def backfilled() -> list[dg.DagsterRun] | None:
        runs = [r for r in instance.get_runs() if "dagster/backfill" in r.tags]
        days = {day for run in runs if run.is_success for day in days_made(instance, run.run_id)}
        if any(run.is_failure_or_canceled for run in runs):
            raise StackError(f"a run of the backfill failed: {[run.status for run in runs]}")
        return runs if days == {str(DAYS[0]), str(DAYS[1])} else None

    wait_for("the backfill", backfilled, PATIENCE, every=1)


def test_after_three_nights_without_a_daemon_the_next_one_makes_all_missing_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = datetime.now(timezone.utc).date()
    days = [today - timedelta(days=n) for n in (4, 3, 2, 1)]
    project = Project(tmp_path, start=days[0])
    for number, day in enumerate(days):
        project.land(day, "first.jsonl", [number])
    with project.start_run(days[0], days[0]) as before:
        assert before.stderr is not None
        said = before.stderr.read()
    assert before.returncode == 0, said

    at = datetime.now(timezone.utc) + timedelta(seconds=200)  # the daemon is up by then
    if at.date() != today:
        pytest.skip("the day has changed meanwhile, and with it the days that have ended")
    project.configure(automation={"daily_at": f"{at:%H:%M}", "new_files": False})
    monkeypatch.chdir(tmp_path)  # dagster.yaml's folders are relative
    nightly = {"dagster/schedule_name": "daily_schedule"}
    daemon = project.start_daemon()
    try:
        with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
            run = wait_for(
                "the run of the missing days",
                lambda: finished(instance, set(), **nightly),
                2 * PATIENCE,
                every=1,
            )
            asked = (run.tags[RANGE_START], run.tags[RANGE_END])
            assert asked == (str(days[1]), str(days[-1]))
            assert run.is_success
            assert days_made(instance, run.run_id) == [str(day) for day in days[1:]]
            assert len(instance.get_runs(dg.RunsFilter(tags=nightly))) == 1
    finally:
        print(project.log.read_text()[-4000:])
        daemon.stop(seconds=30)
    assert project.ids(days[-1]) == {0, 1, 2, 3}
    assert catch_up_runs(load_config(tmp_path / "cdc.yaml"), "shop", days[-1]) == []


def test_a_run_can_be_stopped_and_goes_on_where_it_was(tmp_path: Path) -> None:
    project = Project(tmp_path)
    # So many that the run goes on while the signal is on its way.
    days = [ev.DAY + timedelta(days=n) for n in range(16)]
    for number, day in enumerate(days):
        project.land(day, "first.jsonl", [10 * number + n for n in range(3)])

    def made() -> list[date]:
        config = load_config(tmp_path / "cdc.yaml")
        table = open_table(config, find_table(config, TABLE))
        return sorted(table_state(table).tags)

    with project.start_run(days[0], days[-1]) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if TABLE in line:
                running.send_signal(signal.SIGINT)
                break
        said = running.stderr.read()
        assert running.wait(60) != 0
    assert "Traceback" not in said
    stopped = made()
    assert days[0] in stopped
    assert stopped == days[: len(stopped)]
    assert len(stopped) < len(days), "it was stopped in vain"

    with project.start_run(days[0], days[-1]) as running:
        assert running.stderr is not None
        lines = running.stderr.read().splitlines()
    assert running.returncode == 0
    assert made() == days
    as_before = [line for line in lines if TABLE in line and "(as before)" in line]
    assert len(as_before) == len(stopped)
    assert project.ids(days[-1]) == {10 * n + i for n in range(len(days)) for i in range(3)}


def test_dagster_materializes_a_range_of_one_table(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for number, day in enumerate(DAYS):
        project.land(day, "first.jsonl", [10 * number + n for n in range(3)])
    done = project.dagster(
        *("asset", "materialize", "-m", "cdc_assets.definitions"),
        *("--select", "+key:shop/public/customers"),
        *("--partition-range", f"{DAYS[0]}...{DAYS[2]}"),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert project.ids(DAYS[1]) == {0, 1, 2, 10, 11, 12}
