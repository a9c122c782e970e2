"""The job `maintenance` and its schedule: an op a source, figures on each table's own page.

(Dagster reads the annotations of an op's body as objects, so this module does not postpone them.)
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import dagster as dg

from cdc_assets.cdc.config import OWN_ASSETS, Config, load_config
from cdc_assets.cdc.errors import CdcError
from cdc_assets.cdc.java_errors import JAVA_ERRORS
from cdc_assets.cdc.lake import maintenance
from cdc_assets.cdc.lake.errors import one_line
from cdc_assets.cdc.lake.maintenance import Figures
from cdc_assets.orchestration import progress
from cdc_assets.orchestration.asset_keys import STAGES, table_key
from cdc_assets.orchestration.resources import SparkResource
from cdc_assets.orchestration.schedules import cron_of, status

# Sunday, 04:00: between the daily runs, where nobody says otherwise.
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
    """Every source's tables, source after source, in one Spark session."""

    @dg.job(
        name="maintenance",
        description="Compacts the newest days, and removes days, commits and files that are "
        "older than the configuration keeps.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        for name in config.sources:
            _op(name)()

    return job


def maintenance_schedule(config: Config, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """On from the start where cdc.yaml says when, else off until someone switches it on.

    Raises:
        ConfigError: `maintenance.cron` is no cron expression.
    """
    cron = config.maintenance.cron
    with cron_of("maintenance.cron", cron):
        return dg.ScheduleDefinition(
            name="maintenance_schedule",
            job=job,
            cron_schedule=cron or _CRON,
            execution_timezone=config.timezone,
            default_status=status(cron is not None),
            description="Maintenance of every source, as maintenance.cron says.",
        )


def _op(name: str) -> dg.OpDefinition:
    @dg.op(
        name=f"maintain_{name}",
        pool=f"cdc_{name}",  # neither beside a run of the source, nor a run beside it
        description=f"Maintains the tables of {name}.",
        out=dg.Out(dg.Nothing),
    )
    def op(context: dg.OpExecutionContext, spark: SparkResource) -> None:
        config = load_config(spark.config_path or None)
        try:
            lake = spark.lake()
            tables = maintenance.tables_of(lake, name)
        except (CdcError, *JAVA_ERRORS) as error:
            raise dg.Failure(one_line(error, config), allow_retries=False) from error
        done: list[Figures] = []
        failures: list[Exception] = []
        lines = progress.LogLines(lambda _: context.log)
        for table in tables:
            # A table that fails leaves the others their turn.
            with progress.listen(lines), progress.step(name, table, "maintenance") as say:
                try:
                    figures = maintenance.maintain_table(lake, name, table)
                except Exception as error:
                    failures.append(error)
                    say("failed")
                    continue
                say(summary(figures))
            done.append(figures)
            if (key := _asset_key(name, table)) is not None:
                context.log_event(dg.AssetObservation(key, metadata=_metadata(figures)))
        context.add_output_metadata(_totals(done))
        if failures:
            raise dg.Failure(
                description="\n".join(one_line(error, config) for error in failures),
                metadata=_totals(done),
                allow_retries=False,
            ) from failures[0]

    return op


def _asset_key(name: str, table: str) -> dg.AssetKey | None:
    """None for `schemas`, which stands behind `changes` and is no asset."""
    if table in OWN_ASSETS:
        return dg.AssetKey([name, table]) if table in STAGES else None
    return table_key(name, table)


def summary(figures: Figures) -> str:
    """Figures in a few words."""
    said = {
        "data files rewritten": figures.data_files,
        "days expired": figures.days_expired,
        "commits expired": figures.snapshots_expired,
        "orphan files": figures.orphan_files,
    }
    words = [f"{count} {what}" for what, count in said.items() if count]
    return ", ".join(words) or "nothing to do"


def _metadata(figures: Figures) -> Mapping[str, Any]:
    """Figures as Dagster shows and plots them; nothing where nothing is known."""
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
