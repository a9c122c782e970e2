"""`cdc-assets quarantine`: unreadable records and remedies, without Spark."""

from __future__ import annotations

from datetime import date
from typing import Annotated

import typer

from cdc_assets.cli.imports import import_without_pandas
from cdc_assets.cli.options import (
    ConfigFile,
    Form,
    Format,
    From,
    Source,
    To,
    check_range,
    load,
    parse_day,
    selected_sources,
)
from cdc_assets.cli.terminal import echo


def quarantine(
    source: Source = None,
    day: Annotated[
        date | None,
        typer.Option(
            "--day", parser=parse_day, metavar="DAY", help="Only records that landed on this day."
        ),
    ] = None,
    first: From = None,
    last: To = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Only this reason, such as malformed_json.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            help="Maximum number of records (default: 20 for a table, otherwise all).",
        ),
    ] = None,
    form: Format = Form.table,
    export: Annotated[
        str | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write the records as landed lines, to correct and land again; - for stdout.",
        ),
    ] = None,
    config_file: ConfigFile = None,
) -> None:
    """Print the records that could not be read: counts, reasons, messages, and what to do."""
    check_range(first, last)
    if day and (first or last):
        raise typer.BadParameter("give --day, or --from and --to", param_hint="'--day'")
    if export and form is not Form.table:
        raise typer.BadParameter("give --export or --format, not both", param_hint="'--export'")
    from cdc_assets.cli import output

    with output.Activity("reading the quarantine"):
        config = load(config_file)
        import_without_pandas("pyarrow.dataset")
        from cdc_assets.cdc.changes import quarantine_selection
        from cdc_assets.cli import quarantine as printed

        if reason and (fault := quarantine_selection.reason_fault(reason)):
            raise typer.BadParameter(fault, param_hint="'--reason'")
        if export is not None and (fault := quarantine_selection.export_fault(export)):
            raise typer.BadParameter(fault, param_hint="'--export'")
        sources = selected_sources(config, source)
        if export and len(sources) > 1:
            raise typer.BadParameter(
                f"a source's records land again in that source; give --source "
                f"{' | '.join(sources)}",
                param_hint="'--export'",
            )
        selection = quarantine_selection.select(config, sources, day or first, day or last, reason)
    if not selection.total:
        echo(printed.why_none(selection, reason), err=True)
    elif export:
        done = quarantine_selection.export(selection, export, limit)
        for line in printed.advice(config, sources[0], done, export):
            echo(line, err=True)
    else:
        if limit is None and form is Form.table:
            limit = 20
        printed.print_selection(selection, form.value, limit)
