"""Runs of this process: days of some assets in one Spark session, recorded in Dagster."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import dagster as dg

from cdc_assets.cdc.config import Config, config_path, load_config
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.java import require_java
from cdc_assets.cdc.lake.adopted_tables import with_adopted_tables
from cdc_assets.cdc.names import TableName
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.assets.keys import STAGES, asset_keys, table_key
from cdc_assets.orchestration.automation.health import build_health_checks
from cdc_assets.orchestration.execution import progress
from cdc_assets.orchestration.execution.interrupts import interruptible
from cdc_assets.orchestration.execution.jobs import (
    ALLOW_LOSS,
    FORCE,
    RANGE_END,
    RANGE_START,
    UNFINISHED,
    daily,
)
from cdc_assets.orchestration.execution.resources import SparkResource
from cdc_assets.orchestration.internals import (
    SINGLETON_REPOSITORY_NAME,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
    execute_run,
    location_origins_from_yaml_paths,
)

# Tags of a run: the process that makes it, `host:pid`; what it was asked for, in words.
PROCESS, DAYS, SOURCES, TABLE = "cdc/process", "cdc/days", "cdc/sources", "cdc/table"
_DEFINITIONS = "cdc_assets.definitions"


@dataclass
class Outcome:
    """How a run ended; `failures` are readable, one a failed step.

    `new_tables` have a pattern and were seen by this run; the next one makes them.
    """

    ok: bool = True
    seconds: float = 0.0
    run_ids: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    new_tables: list[str] = field(default_factory=list)


def run_days(
    first: date,
    last: date,
    source: str | None = None,
    table: str | None = None,
    config_file: str | None = None,
    allow_loss: bool = False,
    force: bool = False,
    spark: Mapping[str, str] | None = None,
) -> Outcome:
    """Make some days of all assets, or of one source, or of one table.

    `spark` holds settings for where cdc.yaml has none.
    `allow_loss` lands what Kafka still has where records are gone for good; `force` makes again
    what is made already.

    Raises:
        ConfigError: the days, the source or the table do not fit the configuration.
        JavaError: Spark can't start; Dagster records nothing.
        KeyboardInterrupt: Ctrl-C; Dagster records the run as canceled.
    """
    config = with_adopted_tables(load_config(config_file))
    if config_file:
        os.environ["CDC_CONFIG"] = str(config_path(config_file))
    _check_days(config, first, last)
    sources = [source] if source else list(config.sources)
    for name in sources:
        config.source(name)
    selection = _selection(config, sources, table)
    require_java()
    process = f"{socket.gethostname()}:{os.getpid()}"
    began, outcome = time.monotonic(), Outcome()
    with _instance() as instance:
        try:
            result = interruptible(
                _execute,
                instance,
                run_config=_run_config(spark or {}),
                tags={
                    RANGE_START: str(first),
                    RANGE_END: str(last),
                    PROCESS: process,
                    DAYS: str(first) if first == last else f"{first}…{last}",
                    SOURCES: ", ".join(sources),
                    **({TABLE: table} if table else {}),
                    **({ALLOW_LOSS: "true"} if allow_loss else {}),
                    **({FORCE: "true"} if force else {}),
                },
                selection=selection,
            )
        except KeyboardInterrupt:
            progress.mute()
            _cancel(instance, process)
            raise
        outcome.run_ids.append(result.run_id)
        outcome.ok = result.success
        outcome.failures = [
            f"{e.step_key}: {failure_reason(e)}" for e in result.all_events if e.is_step_failure
        ]
    outcome.new_tables = adopted_since(config, sources)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def adopted_since(config: Config, sources: Sequence[str]) -> list[str]:
    """The tables that patterns adopt by now and a configuration lacks, with their sources."""
    if not any(config.sources[name].adopts_tables for name in sources):
        return []
    now = with_adopted_tables(config)
    return [
        f"{name}.{table}"
        for name in sources
        for table in now.sources[name].tables
        if table not in config.sources[name].tables
    ]


def _execute(
    instance: dg.DagsterInstance,
    run_config: Mapping[str, object],
    tags: Mapping[str, str],
    selection: Sequence[dg.AssetKey],
) -> dg.JobExecutionResult:
    """A run of the job `daily` in this process, as one that Dagster's pages have started."""
    job = dg.reconstructable(daily_job)
    run = instance.create_run_for_job(
        job.get_definition(),
        run_config=run_config,
        tags=tags,
        asset_selection=frozenset(selection),
        job_code_origin=job.get_python_origin(),
        remote_job_origin=_origin(),
    )
    return execute_run(job, run, instance)


def _origin() -> RemoteJobOrigin | None:
    """Where Dagster's pages find the job: without it they leave the run out of the timeline.

    None where no workspace.yaml stands beside cdc.yaml or in the working folder (DAGSTER_HOME), or
    where it does not load these definitions.
    """
    folders = dict.fromkeys([Path.cwd(), config_path().parent])
    for file in (folder / "workspace.yaml" for folder in folders):
        if not file.is_file():
            continue
        for place in location_origins_from_yaml_paths([str(file)]):
            target = getattr(place, "loadable_target_origin", None)
            if target is not None and target.module_name == _DEFINITIONS:
                repository = RemoteRepositoryOrigin(place, SINGLETON_REPOSITORY_NAME)
                return RemoteJobOrigin(repository, daily.name)
    return None


def daily_job() -> dg.JobDefinition:
    """The job `daily` of the configuration that ``CDC_CONFIG``, or the working folder, names."""
    config = with_adopted_tables(load_config())
    return dg.Definitions(
        assets=[asset for name in config.sources for asset in build_assets(name, config)],
        asset_checks=build_health_checks(config),
        jobs=[daily],
        resources={"spark": SparkResource()},
    ).resolve_job_def(daily.name)


def _run_config(spark: Mapping[str, str]) -> dict[str, object]:
    if not spark:
        return {}
    return {"resources": {"spark": {"config": {"spark_config": dict(spark)}}}}


def _cancel(instance: dg.DagsterInstance, process: str) -> None:
    """Record the run of this process as canceled: a failed one would mark its days as failed."""
    of_process = dg.RunsFilter(tags={PROCESS: process}, statuses=UNFINISHED)
    for run in instance.get_runs(of_process):
        instance.report_run_canceled(run, "Stopped with Ctrl-C. Days made before are kept.")


def _check_days(config: Config, first: date, last: date) -> None:
    if last < first:
        raise ConfigError([f"the last day {last} is before the first {first}"])
    faults = {day: config.fault_of(day) for day in (first, last)}
    if wrong := [f"{day} {fault}" for day, fault in faults.items() if fault]:
        raise ConfigError(wrong)


def _selection(config: Config, sources: list[str], table: str | None) -> list[dg.AssetKey]:
    if table is None:
        return [key for source in sources for key in asset_keys(source, config)]
    try:
        name = str(TableName.parse(table))
    except ValueError as error:
        raise ConfigError([f"--table: {error}"]) from error
    owners = [s for s in sources if name in config.sources[s].tables]
    if len(owners) != 1:
        known = [f"{s}: {', '.join(config.sources[s].tables)}" for s in sources]
        says = "is in several sources; name one with --source" if owners else "is not configured"
        hint = "" if owners else config.hint_of_pattern(name, sources)
        raise ConfigError([f"--table {table} {says}. Configured: {'; '.join(known)}{hint}"])
    stages = [dg.AssetKey([owners[0], stage]) for stage in STAGES if stage != "lag"]
    return [*stages, table_key(owners[0], name)]


def failure_reason(event: dg.DagsterEvent) -> str:
    """Why a step failed, in a line or a few."""
    data = event.step_failure_data
    text = data.user_failure_data.description if data.user_failure_data else None
    if not text and data.error:
        cause = data.error.cause or data.error
        text = cause.message.strip().partition("\n")[0]  # what follows is in the log
    return text or "the log says why"


def _instance() -> dg.DagsterInstance:
    """The instance of DAGSTER_HOME, else of the folder of cdc.yaml where it has a dagster.yaml."""
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        folder = config_path().parent
        if not (folder / "dagster.yaml").is_file():
            return dg.DagsterInstance.ephemeral()
        os.environ["DAGSTER_HOME"] = home = str(folder)
    # dagster.yaml's relative folders start at the working directory.
    os.chdir(Path(home))
    return dg.DagsterInstance.get()
