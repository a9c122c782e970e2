"""`cdc-assets history`: the versions of a table's rows, without Spark."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import typer

from cdc_assets.cli.imports import import_without_pandas
from cdc_assets.cli.options import ConfigFile, Form, Format, Limit, Raw, load, parse_day
from cdc_assets.cli.terminal import echo


def parse_key(text: str) -> dict[str, Any]:
    """A key of the command line: a JSON object, whose numbers stay exact.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        key = json.loads(text, parse_float=Decimal)
    except ValueError:
        key = None
    if not isinstance(key, dict):
        raise typer.BadParameter(f"{text!r} is not a JSON object, such as '{{\"id\": 7}}'")
    return key


def history(
    table: Annotated[
        str, typer.Argument(help="A table with a history: public.customers, customers …")
    ],
    key: Annotated[
        dict[str, Any] | None,
        typer.Option(
            "--key",
            parser=parse_key,
            metavar="JSON",
            help="Only the row with this key, such as '{\"id\": 7}' (default: all rows).",
        ),
    ] = None,
    as_of: Annotated[
        date | None,
        typer.Option(
            "--as-of",
            parser=parse_day,
            metavar="DAY",
            help="As it was known at the end of this day (default: the newest).",
        ),
    ] = None,
    form: Format = Form.table,
    limit: Limit = None,
    raw: Raw = False,
    config_file: ConfigFile = None,
) -> None:
    """Print the versions of a table's rows: what each was, from when to when."""
    from cdc_assets.cli import output

    with output.Activity(f"reading {table}"):
        config = load(config_file)
        from cdc_assets.cdc.lake.json_values import json_rows
        from cdc_assets.cdc.lake.tables import find_table
        from cdc_assets.cdc.lake.versions import versions_of

        found = find_table(config, table)
        import_without_pandas("pyarrow.dataset")
        rows = versions_of(config, found, key, as_of)
    if limit is None:
        limit = 20 if form is Form.table else rows.num_rows
    names = _shown(rows.column_names) if form is Form.table else rows.column_names
    printed = output.print_rows(
        names, json_rows(rows.select(names).slice(0, limit)), form.value, fold=False, raw=raw
    )
    if form is Form.table:
        day = f" at the end of {as_of}" if as_of else ""
        more = "; --limit N for more" if printed < rows.num_rows else ""
        echo(f"{printed} of {rows.num_rows} versions of {found}{day}{more}", err=True)


_TIMES = ("_cdc_valid_from", "_cdc_valid_to", "_cdc_op", "_cdc_closed_by")


def _shown(names: list[str]) -> list[str]:
    """The columns of a printed table: positions are for programs."""
    from cdc_assets.cdc.config import is_reserved

    return [n for n in names if not is_reserved(n)] + [n for n in _TIMES if n in names]
