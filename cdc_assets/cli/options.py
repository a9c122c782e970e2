"""Options that several commands share, and reading cdc.yaml."""

from __future__ import annotations

import os
import re
from datetime import date, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cdc_assets.cdc.config import Config
    from cdc_assets.cdc.lake.tables import LakeTable


def parse_day(text: str) -> date:
    """A day of the command line.

    Raises:
        typer.BadParameter: it is no day.
    """
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            pass
    raise typer.BadParameter(f"{text!r} is not a day; use YYYY-MM-DD, such as 2026-11-05")


def parse_instant(text: str) -> datetime:
    """An instant of the command line, with its time zone.

    Raises:
        typer.BadParameter: it is none, or says no zone.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise typer.BadParameter(
            f"{text!r} is not an instant with its zone, such as 2026-11-04T14:05:00Z"
        )
    return found


class Form(str, Enum):
    """How rows are printed."""

    table = "table"
    json = "json"
    csv = "csv"


ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Configuration file (default: CDC_CONFIG, else ./cdc.yaml).",
    ),
]
Source = Annotated[str | None, typer.Option("--source", help="Only this source.")]
From = Annotated[
    date | None,
    typer.Option("--from", parser=parse_day, metavar="DAY", help="First day, YYYY-MM-DD."),
]
To = Annotated[
    date | None, typer.Option("--to", parser=parse_day, metavar="DAY", help="Last day, inclusive.")
]
Format = Annotated[
    Form,
    typer.Option(
        "--format", help="Output format; json prints one object per line.", show_default=True
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=1,
        help="Maximum number of rows (default: 20 for a table, otherwise all).",
    ),
]
Raw = Annotated[
    bool, typer.Option("--raw", help="CSV: leave texts as they are that spreadsheets would run.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also print the logs of Spark and Dagster.")
]


def load(file: str | None) -> Config:
    """The configuration with the tables that its patterns adopt.

    Sets ``CDC_CONFIG``, so that all code of the process reads the same file.

    Raises:
        ConfigError: the file is missing or invalid.
    """
    from cdc_assets.cdc.config import config_path, load_config
    from cdc_assets.cdc.lake.adopted_tables import with_adopted_tables

    os.environ["CDC_CONFIG"] = str(config_path(file))
    return with_adopted_tables(load_config())


def selected_sources(config: Config, source: str | None) -> list[str]:
    """The source of `--source`, else all.

    Raises:
        ConfigError: there is no such source.
    """
    if source:
        config.source(source)
    return [source] if source else list(config.sources)


def table_of_rows(config: Config, table: str) -> LakeTable:
    """The table of the lake that `TABLE` names, which has a source's rows.

    Raises:
        typer.BadParameter: it is one of cdc-assets' own tables.
    """
    from cdc_assets.cdc.lake.tables import find_table

    found = find_table(config, table)
    if found.kind.is_own:
        raise typer.BadParameter(f"{found} is no table of rows", param_hint="'TABLE'")
    return found


def check_range(first: date | None, last: date | None) -> None:
    """Check that a range of days does not end before it begins.

    Raises:
        typer.BadParameter: it does.
    """
    if first and last and last < first:
        raise typer.BadParameter(f"{last} is before --from {first}", param_hint="'--to'")
