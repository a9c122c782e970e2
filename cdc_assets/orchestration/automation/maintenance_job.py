"""The job `maintenance` and its schedule: an op per source; figures are asset observations.

(Dagster reads the annotations of an op's body as objects, so this module does not postpone them.)
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError
from cdc_assets.cdc.java_errors import JAVA_ERRORS
from cdc_assets.cdc.lake import maintenance
from cdc_assets.cdc.lake.errors import one_line
from cdc_assets.cdc.lake.maintenance import Figures
from cdc_assets.cdc.names import derived_name
from cdc_assets.cdc.places import OWN_ASSETS
from cdc_assets.orchestration.assets.keys import STAGES, asset_key, table_key
from cdc_assets.orchestration.automation.schedules import cron_setting, status
from cdc_assets.orchestration.execution import progress
from cdc_assets.orchestration.execution.failures import failure
from cdc_assets.orchestration.execution.resources import SparkResource

# The default: Sunday 04:00, between the daily runs.
_CRON = "0 4 * * 0"
_SUMS = (
    "files_before",
    "files_after",
    "bytes_before",
    "bytes_after",
    "data_files",
    "days_expired",
    "snapshots_expired",
    "orphan_files",
)


def maintenance_job(config: Config) -> dg.JobDefinition:
    """Maintain the tables of all sources, one source after another, in one Spark session."""

    @dg.job(
        name="maintenance",
        description="Compacts the newest day of each table, and removes days, snapshots and files "
        "that are older than cdc.yaml keeps.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        for source in config.sources:
            _op(source)()

    return job


def maintenance_schedule(config: Config, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """The schedule of the job, on by default if `maintenance.cron` is set.

    Raises:
        ConfigError: `maintenance.cron` is not a cron expression.
    """
    cron = config.maintenance.cron
    with cron_setting("maintenance.cron", cron):
        return dg.ScheduleDefinition(
            name="maintenance_schedule",
            job=job,
            cron_schedule=cron or _CRON,
            execution_timezone=config.timezone,
            default_status=status(cron is not None),
            description="Runs the job maintenance for every source, as maintenance.cron sets.",
        )


def _op(source: str) -> dg.OpDefinition:
    @dg.op(
        name=f"maintain_{source}",
        pool=f"cdc_{source}",  # not at the same time as a run of the source
        description=f"Compacts the tables of {source} and removes what has expired.",
        out=dg.Out(dg.Nothing),
    )
    def op(context: dg.OpExecutionContext, spark: SparkResource) -> None:
        config = spark.config()
        try:
            lake = spark.lake()
            tables = maintenance.tables_of(lake, source)
        except (CdcError, *JAVA_ERRORS) as error:
            text = one_line(error, config)
            raise failure(text, error, config, allow_retries=False) from None
        done: list[Figures] = []
        failures: list[Exception] = []
        lines = progress.LogLines(lambda _: context.log)
        for table in tables:
            # A table that fails does not stop the others.
            with progress.listen(lines), progress.step(source, table, "maintenance") as say:
                try:
                    figures = maintenance.maintain_table(lake, source, table)
                except Exception as error:
                    failures.append(error)
                    say("failed")
                    continue
                say(summary(figures))
            done.append(figures)
            if (key := _asset_key(config, source, table)) is not None:
                context.log_event(dg.AssetObservation(key, metadata=_metadata(figures)))
        context.add_output_metadata(_totals(done))
        if failures:
            text = "\n".join(one_line(error, config) for error in failures)
            raise failure(text, failures[0], config, _totals(done), allow_retries=False) from None

    return op


def _asset_key(config: Config, source: str, table: str) -> dg.AssetKey | None:
    """The asset of a table; None for a table without one, such as `schemas`."""
    if table in OWN_ASSETS and table not in STAGES:
        return None
    derived = {str(derived_name(*made)): made for made in config.sources[source].derived}
    return table_key(source, *derived[table]) if table in derived else asset_key(source, table)


def summary(figures: Figures) -> str:
    """Figures in one line."""
    counts = {
        "data files rewritten": figures.data_files,
        "days expired": figures.days_expired,
        "snapshots expired": figures.snapshots_expired,
        "orphan files": figures.orphan_files,
    }
    words = [f"{count} {what}" for what, count in counts.items() if count]
    return ", ".join(words) or "nothing to do"


def _metadata(figures: Figures) -> Mapping[str, Any]:
    """Figures as metadata that Dagster shows and plots, without unknown ones."""
    known = {
        f"maintenance_{k}": v
        for k, v in dataclasses.asdict(figures).items()
        if v is not None and k not in ("source", "table")
    }
    if figures.bytes_saved is not None:
        known["maintenance_bytes_saved"] = figures.bytes_saved
    return known


def _totals(done: list[Figures]) -> dict[str, Any]:
    totals = {name: sum(getattr(f, name) or 0 for f in done) for name in _SUMS}
    totals["bytes_saved"] = totals["bytes_before"] - totals["bytes_after"]
    return {"tables": len(done), **totals}
