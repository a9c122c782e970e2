"""`cdc-assets show`: rows of a table, without Spark."""

from __future__ import annotations

from datetime import date, datetime
from functools import partial
from itertools import chain
from typing import Annotated

import typer

from cdc_assets.cli.imports import import_without_pandas
from cdc_assets.cli.options import (
    ConfigFile,
    Form,
    Format,
    Limit,
    Raw,
    load,
    parse_day,
    parse_instant,
)
from cdc_assets.cli.terminal import echo


def show(
    table: Annotated[
        str,
        typer.Argument(help="public.customers, inventory.public.customers, inventory.changes …"),
    ],
    as_of: Annotated[
        date | None,
        typer.Option(
            "--as-of",
            parser=parse_day,
            metavar="DAY",
            help="State tables: rows at the end of this day. landing, changes …: records that "
            "landed on it.",
        ),
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option(
            "--at",
            parser=parse_instant,
            metavar="INSTANT",
            help="A table with a history: rows as they were at this instant of source time, such "
            "as 2026-11-04T14:05:00Z; with --as-of by what had landed at the end of that day.",
        ),
    ] = None,
    form: Format = Form.table,
    limit: Limit = None,
    raw: Raw = False,
    config_file: ConfigFile = None,
) -> None:
    """Print the rows of a table, as of its newest day or another."""
    from cdc_assets.cli import output

    if limit is None and form is Form.table:
        limit = 20
    with output.Activity(f"reading {table}"):
        config = load(config_file)
        from cdc_assets.cdc.lake.figures import day_rows
        from cdc_assets.cdc.lake.json_values import json_messages, json_rows
        from cdc_assets.cdc.lake.rows import read_all_rows, read_rows
        from cdc_assets.cdc.lake.tables import find_table
        from cdc_assets.cdc.lake.versions import rows_at

        found = find_table(config, table)
        import_without_pandas("pyarrow.dataset")
        if at is not None:
            parts = iter([rows_at(config, found, at, as_of)])
        elif limit is None:
            parts = read_all_rows(config, found, as_of)
        else:
            parts = iter([read_rows(config, found, as_of, limit + 1)])
        rows = next(parts)
    more = limit is not None and rows.num_rows > limit
    as_json = partial(json_messages, with_bytes=form is Form.json)
    values = as_json if found.kind.has_messages else json_rows
    printed = output.print_rows(
        rows.column_names,
        (row for part in chain([rows.slice(0, limit)], parts) for row in values(part)),
        form.value,
        fold=False,
        raw=raw,
    )
    if form is Form.table:
        known = {} if found.kind.is_own else day_rows(config, found)
        day = as_of or (max(known) if known else None)
        place = str(found) + found.kind.in_words.format(day=day)
        total = f" of {known[day]}" if day in known and at is None else ""
        if at is not None:
            place = f"{found} at {at.isoformat()}, by what had landed at the end of {day}"
        echo(f"{printed}{total} rows, {place}{'; --limit N for more' if more else ''}", err=True)
