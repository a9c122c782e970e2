"""`cdc-assets diff`: what changed in a table between the ends of two days, without Spark."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

import typer

from cdc_assets.cli.imports import import_without_pandas
from cdc_assets.cli.options import (
    ConfigFile,
    Form,
    Format,
    Limit,
    Raw,
    check_range,
    load,
    parse_day,
)
from cdc_assets.cli.terminal import echo


def diff(
    table: Annotated[
        str, typer.Argument(help="A state table: public.customers, inventory.public.customers …")
    ],
    first: Annotated[
        date | None,
        typer.Option(
            "--from",
            parser=parse_day,
            metavar="DAY",
            help="Rows as they were at the end of this day (default: the one before --to).",
        ),
    ] = None,
    last: Annotated[
        date | None,
        typer.Option(
            "--to",
            parser=parse_day,
            metavar="DAY",
            help="Rows as they are at the end of this day (default: the newest).",
        ),
    ] = None,
    form: Format = Form.table,
    limit: Limit = None,
    raw: Raw = False,
    config_file: ConfigFile = None,
) -> None:
    """Print what changed in a table between the ends of two days: key, op, before and after."""
    from cdc_assets.cli import output

    check_range(first, last)
    with output.Activity(f"reading {table}"):
        config = load(config_file)
        from cdc_assets.cdc.lake.diff import diff_of
        from cdc_assets.cdc.lake.json_values import json_rows
        from cdc_assets.cdc.lake.tables import find_table

        found = find_table(config, table)
        if found.kind.is_own:
            raise typer.BadParameter(
                f"{found} is no table of rows that change; show prints its records",
                param_hint="'TABLE'",
            )
        import_without_pandas("pyarrow.dataset")
        rows, first, last = diff_of(config, found, first, last)
    if limit is None:
        limit = 20 if form is Form.table else rows.num_rows
    changes = json_rows(rows.slice(0, limit))
    if form is Form.table:
        changes = map(_what_differs, changes)
    printed = output.print_rows(rows.column_names, changes, form.value, fold=False, raw=raw)
    if form is Form.table:
        ops = rows["op"].to_pylist()
        counts = ", ".join(f"{ops.count(op)} {op}" for op in "cud")
        more = "; --limit N for more" if printed < rows.num_rows else ""
        echo(
            f"{printed} of {rows.num_rows} changes ({counts}), {found} from the end of {first} to "
            f"the end of {last}{more}",
            err=True,
        )


def _what_differs(change: dict[str, Any]) -> dict[str, Any]:
    """A change for a person: of an update the columns that differ, else those with a value."""
    before, after = change["before"], change["after"]
    names = [n for n in before or after if (before or {}).get(n) != (after or {}).get(n)]
    return {
        **change,
        "before": before and {name: before[name] for name in names},
        "after": after and {name: after[name] for name in names},
    }
