"""`cdc-assets maintain`: compaction and expiry."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_assets.cdc.java import STARTING_SPARK
from cdc_assets.cli.options import ConfigFile, Form, Format, Source, Verbose, load, selected_sources
from cdc_assets.cli.terminal import echo

if TYPE_CHECKING:
    from cdc_assets.cdc.lake.catalog import Lake
    from cdc_assets.cli.output import Activity


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

    with quiet(verbose, "reading cdc.yaml") as (activity, log):
        log.config = config = load(config_file)
        sources = selected_sources(config, source)
        activity.say(STARTING_SPARK)
        from cdc_assets.cli.lake_session import lake_of

        with lake_of(config) as lake:
            rows, failures = _maintain(lake, sources, dry_run, activity)
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


def _maintain(
    lake: Lake, sources: Sequence[str], dry_run: bool, activity: Activity
) -> tuple[list[dict[str, Any]], list[str]]:
    """The figures of each table, and the errors of those that failed."""
    from cdc_assets.cdc.lake.errors import one_line
    from cdc_assets.cdc.lake.maintenance import maintain_table, tables_of
    from cdc_assets.orchestration.execution.interrupts import interruptible

    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    for source in sources:
        for table in interruptible(tables_of, lake, source):
            activity.say(f"maintaining {source}.{table}")
            try:
                rows.append(interruptible(maintain_table, lake, source, table, dry_run).as_row())
            except Exception as error:
                traceback.print_exc()
                failures.append(f"{source}.{table}: {one_line(error, lake.config)}")
    return rows, failures


_MAINTENANCE = (
    "table", "compacted_day", "data_files", "days_expired", "snapshots_expired", "orphan_files",
    "files_before", "files_after", "bytes_before", "bytes_after", "seconds",
)  # fmt: skip
