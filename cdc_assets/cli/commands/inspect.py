"""`cdc-assets inspect`: how each record of a landed file is understood."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdc_assets.cdc.java import STARTING_SPARK
from cdc_assets.cli.options import ConfigFile, Form, Format, Verbose, load
from cdc_assets.cli.terminal import echo

if TYPE_CHECKING:
    from cdc_assets.cdc.discovery.rules import Rules


def inspect(
    file: Annotated[
        Path,
        typer.Argument(
            help="A landed file: .jsonl, .jsonl.gz or .parquet.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            help="Read the file with this source's settings (default: the source whose landing "
            "folder holds it).",
        ),
    ] = None,
    format_of: Annotated[
        str | None,
        typer.Option(
            "--format-of",
            metavar="FORMAT",
            help="Read it without cdc.yaml: debezium, canal, maxwell …; no table configured.",
        ),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option("--offset", min=0, help="Only this offset, with the row images and times."),
    ] = None,
    form: Format = Form.table,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Read only the first N records.")
    ] = None,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Print where each record of a landed file goes, and why.

    It is judged as if the file were all that has landed: a tombstone whose delete lies in
    another file counts as a lone one, and its explanation says so.
    """
    if source and format_of:
        raise typer.BadParameter("give --source or --format-of, not both")
    from cdc_assets.cli import output
    from cdc_assets.cli.spark_log import quiet

    with quiet(verbose, f"looking at {file}") as (activity, _):
        from cdc_assets.cdc.discovery import inspection
        from cdc_assets.cli import landing_session
        from cdc_assets.orchestration.execution.interrupts import interruptible

        rules = _rules(file, source, format_of, config_file)
        activity.say(STARTING_SPARK)
        with landing_session.session(
            rules.config, landing_session.is_small([file], limit)
        ) as spark:
            activity.say(f"reading {file}")
            rows = interruptible(inspection.inspect_file, spark, file, rules, limit, offset)
    columns: tuple[str, ...] = inspection.COLUMNS
    whole: tuple[str, ...] = ("detail", "explanation")
    if offset is not None:
        columns = whole = (*columns, *inspection.DETAILS)
    output.print_rows(columns, rows, form.value, fold=False, whole=whole)
    if offset is not None and not rows:
        echo(f"{file} has no record at offset {offset}", err=True)


def _rules(file: Path, source: str | None, format_of: str | None, config_file: str | None) -> Rules:
    from cdc_assets.cdc.discovery.rules import rules_of_format, rules_of_source

    if format_of:
        return rules_of_format(format_of, file)
    config = load(config_file)
    return rules_of_source(config, source, file)
