"""A run of days in this process and one Spark session, recorded in Dagster."""

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
from cdc_assets.orchestration.assets.keys import STAGES, asset_key, asset_keys, keys_of_table
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
from cdc_assets.orchestration.runs.instance import run_instance

# Tags of a run: its process, `host:pid`, and what it was asked for, in words.
PROCESS, DAYS, SOURCES, TABLE = "cdc/process", "cdc/days", "cdc/sources", "cdc/table"
_DEFINITIONS = "cdc_assets.definitions"


@dataclass
class Outcome:
    """How a run ended; `failures` has a message per failed step.

    `new_tables` fit a pattern and first appear in this run; the next run makes them.
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
    """Make days of all assets, or of one source or table.

    Args:
        first: first day.
        last: last day, inclusive.
        source: only this source.
        table: only this table and the stages that it is built from.
        config_file: cdc.yaml [default: the usual places].
        allow_loss: land what Kafka still has where records are gone for good.
        force: also make days that are up to date.
        spark: settings that cdc.yaml overrides.

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
    for known in sources:
        config.source(known)
    selection = _selection(config, sources, table)
    require_java()
    tags = {
        RANGE_START: str(first),
        RANGE_END: str(last),
        PROCESS: f"{socket.gethostname()}:{os.getpid()}",
        DAYS: str(first) if first == last else f"{first}…{last}",
        SOURCES: ", ".join(sources),
        **({TABLE: table} if table else {}),
        **({ALLOW_LOSS: "true"} if allow_loss else {}),
        **({FORCE: "true"} if force else {}),
    }
    began = time.monotonic()
    outcome = _outcome(selection, tags, spark or {})
    outcome.new_tables = adopted_since(config, sources)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def _outcome(
    selection: Sequence[dg.AssetKey], tags: Mapping[str, str], spark: Mapping[str, str]
) -> Outcome:
    settings = {"resources": {"spark": {"config": {"spark_config": dict(spark)}}}}
    with run_instance() as instance:
        try:
            run = interruptible(_execute, instance, settings if spark else {}, tags, selection)
        except KeyboardInterrupt:
            progress.mute()
            _cancel(instance, tags[PROCESS])
            raise
        failures = [
            f"{e.step_key}: {failure_reason(e)}" for e in run.all_events if e.is_step_failure
        ]
        return Outcome(run.success, run_ids=[run.run_id], failures=failures)


def adopted_since(config: Config, sources: Sequence[str]) -> list[str]:
    """`<source>.<table>` of each table that a pattern adopts and that `config` lacks."""
    if not any(config.sources[source].adopts_tables for source in sources):
        return []
    now = with_adopted_tables(config)
    return [
        f"{source}.{table}"
        for source in sources
        for table in now.sources[source].tables
        if table not in config.sources[source].tables
    ]


def _execute(
    instance: dg.DagsterInstance,
    run_config: Mapping[str, object],
    tags: Mapping[str, str],
    selection: Sequence[dg.AssetKey],
) -> dg.JobExecutionResult:
    """Run the job `daily` in this process; Dagster's pages show it as one of their own."""
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
    """The origin of the job: Dagster's timeline leaves out runs without one.

    None if no workspace.yaml beside cdc.yaml or in the working folder (DAGSTER_HOME) loads these
    definitions.
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
    """The job `daily` of cdc.yaml, for :func:`dagster.reconstructable`."""
    config = with_adopted_tables(load_config())
    return dg.Definitions(
        assets=[asset for source in config.sources for asset in build_assets(source, config)],
        asset_checks=build_health_checks(config),
        jobs=[daily],
        resources={"spark": SparkResource()},
    ).resolve_job_def(daily.name)


def _cancel(instance: dg.DagsterInstance, process: str) -> None:
    """Record the run of this process as canceled: a failed one would mark its days as failed."""
    unfinished = dg.RunsFilter(tags={PROCESS: process}, statuses=UNFINISHED)
    for run in instance.get_runs(unfinished):
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
    stages = [asset_key(owners[0], stage) for stage in STAGES if stage != "lag"]
    return [*stages, *keys_of_table(owners[0], name, config)]


def failure_reason(event: dg.DagsterEvent) -> str:
    """Why a step failed, in one line or a few."""
    data = event.step_failure_data
    text = data.user_failure_data.description if data.user_failure_data else None
    if not text and data.error:
        cause = data.error.cause or data.error
        text = cause.message.strip().partition("\n")[0]  # what follows is in the log
    return text or "the log says why"
