"""`cdc-assets trace`: the landed records that made a row, with Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_assets.cdc.java import STARTING_SPARK
from cdc_assets.cli.commands.history import parse_key
from cdc_assets.cli.options import ConfigFile, Form, Format, Verbose, load, parse_day, table_of_rows
from cdc_assets.cli.terminal import echo

if TYPE_CHECKING:
    from cdc_assets.cdc.history.trace import TracedRecord

_COLUMNS = (
    "landing_date", "topic", "partition", "offset", "op", "source_time", "did",
)  # fmt: skip


def trace(
    table: Annotated[str, typer.Argument(help="A table with a key: public.customers …")],
    key: Annotated[
        dict[str, Any],
        typer.Option(
            "--key", parser=parse_key, metavar="JSON", help="The row's key, such as '{\"id\": 7}'."
        ),
    ],
    as_of: Annotated[
        date | None,
        typer.Option(
            "--as-of",
            parser=parse_day,
            metavar="DAY",
            help="The row at the end of this day (default: the newest).",
        ),
    ] = None,
    form: Format = Form.table,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Print the landed records of a row in the order of its events, and what each did to it."""
    from cdc_assets.cli import output
    from cdc_assets.cli.spark_log import quiet

    with quiet(verbose, "reading cdc.yaml") as (activity, log):
        log.config = config = load(config_file)
        found = table_of_rows(config, table)
        activity.say(STARTING_SPARK)
        from cdc_assets.cdc.history.trace import trace as traced
        from cdc_assets.cli.lake_session import lake_of

        with lake_of(config) as lake:
            records = traced(lake, found.source, found.of, key, as_of)
    columns = _COLUMNS if form is Form.table else tuple(_row_names())
    printed = output.print_rows(columns, _rows(records, columns), form.value, fold=False)
    if form is Form.table:
        echo(f"{printed} records of {found}", err=True)


def _row_names() -> Iterator[str]:
    from dataclasses import fields

    from cdc_assets.cdc.history.trace import TracedRecord

    return (field.name for field in fields(TracedRecord))


def _rows(records: list[TracedRecord], columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for record in records:
        row = record.as_row()
        yield {name: _shown(row[name]) for name in columns}


def _shown(value: Any) -> Any:
    return str(value) if isinstance(value, date) else value
