"""`cdc-assets maintain`: compaction and expiry."""

from __future__ import annotations

import traceback
from typing import Annotated, Any

import typer

from cdc_assets.cdc.java import STARTING_SPARK
from cdc_assets.cli.options import ConfigFile, Form, Format, Source, Verbose, load, selected_sources
from cdc_assets.cli.terminal import echo


def maintain(
    source: Source = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done; change nothing.")
    ] = False,
    form: Format = Form.table,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Compact tables; remove day tags, snapshots and orphan files older than cdc.yaml keeps.

    Days that are kept do not change. Do not run it together with a run of the same source: the
    second to commit fails.
    """
    from cdc_assets.cli import output
    from cdc_assets.cli.spark_log import quiet

    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    with quiet(verbose, "reading cdc.yaml") as (activity, log):
        log.config = config = load(config_file)
        sources = selected_sources(config, source)
        activity.say(STARTING_SPARK)
        from cdc_assets.cdc.lake.catalog import Lake
        from cdc_assets.cdc.lake.errors import one_line
        from cdc_assets.cdc.lake.maintenance import maintain_table, tables_of
        from cdc_assets.cdc.spark import build_session
        from cdc_assets.orchestration.execution.interrupts import interruptible

        spark = interruptible(build_session, config)
        try:
            lake = Lake(spark, config)
            for name in sources:
                for table in interruptible(tables_of, lake, name):
                    activity.say(f"maintaining {name}.{table}")
                    try:
                        figures = interruptible(maintain_table, lake, name, table, dry_run)
                        rows.append(figures.as_row())
                    except Exception as error:
                        traceback.print_exc()
                        failures.append(f"{name}.{table}: {one_line(error, config)}")
        finally:
            spark.stop()
        if failures:
            log.keep()
    output.print_rows(
        _MAINTENANCE if form is Form.table else list(rows[0] if rows else ()), rows, form.value
    )
    for failure in failures:
        echo(f"error: {failure}", err=True)
    if not rows and not failures:
        echo("the lake is empty", err=True)
    if failures:
        if log.file:
            echo(f"Spark's log: {log.file}", err=True)
        raise typer.Exit(1)


_MAINTENANCE = (
    "table", "compacted_day", "data_files", "days_expired", "snapshots_expired", "orphan_files",
    "files_before", "files_after", "bytes_before", "bytes_after", "seconds",
)  # fmt: skip
