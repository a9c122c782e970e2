"""`cdc-assets verify`: is a table of the lake equal to its source? With Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_assets.cdc.java import STARTING_SPARK
from cdc_assets.cli.options import ConfigFile, Form, Format, Verbose, load, parse_day, table_of_rows
from cdc_assets.cli.terminal import echo

if TYPE_CHECKING:
    from cdc_assets.cdc.config import Config
    from cdc_assets.cdc.config.database import Address
    from cdc_assets.cdc.verification.findings import Verification

NOT_EQUAL = 3
_COLUMNS = ("what", "key", "column", "source", "lake")


def verify(
    table: Annotated[str, typer.Argument(help="A table with a key: public.customers …")],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="URL",
            help="Its database: postgresql://user@host:5432/db; the password in PGPASSWORD "
            "(default: sources.<source>.database).",
        ),
    ] = None,
    as_of: Annotated[
        date | None,
        typer.Option(
            "--as-of",
            parser=parse_day,
            metavar="DAY",
            help="The lake's table of this day and what has landed since (default: the newest).",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="SQL",
            help="Only rows of this condition, which PostgreSQL and Spark understand alike.",
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample", metavar="N", min=1, help="Only about so many rows, by their keys."
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", min=0, help="For what has not landed yet."),
    ] = 300.0,
    form: Format = Form.table,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Compare a table with its database in one snapshot; exit 3 if they are not equal."""
    from cdc_assets.cli import output
    from cdc_assets.cli.spark_log import quiet

    with quiet(verbose, "reading cdc.yaml") as (activity, log):
        log.config = config = load(config_file)
        found = table_of_rows(config, table)
        address = _address(config, found.source, against)
        activity.say(STARTING_SPARK)
        from cdc_assets.cdc.verification.verify import verify as verified
        from cdc_assets.cli.lake_session import lake_of

        with lake_of(config) as lake:
            result = verified(
                lake, found.source, found.of, address, as_of, where, sample, wait, tell=activity.say
            )
        is_recorded = _record(config, found.source, found.of, result)
    if form is Form.table:
        output.print_rows(_COLUMNS, _differences(result), form.value, fold=False)
        left_out = (f"\nnot compared: {name}: {why}" for name, why in result.left_out.items())
        echo(result.summary + "".join(left_out), err=True)
        if is_recorded:
            echo("recorded as the check matches_source of its asset", err=True)
    else:
        row = result.as_row()
        output.print_rows(tuple(row), iter([row]), form.value, fold=False)
    if not result.is_equal:
        raise typer.Exit(NOT_EQUAL)


def _differences(result: Verification) -> Iterator[dict[str, Any]]:
    """A line for each column of an example."""
    for example in result.examples:
        key = None if example["key"] is None else json.dumps(example["key"], default=str)
        line = {"what": example["what"], "key": key, "column": None, "source": None, "lake": None}
        if not example["columns"]:
            yield line
        for name, pair in example["columns"].items():
            source, lake = pair or ("not shown", "not shown")
            yield {**line, "column": name, "source": source, "lake": lake}


def _address(config: Config, source: str, against: str | None) -> Address:
    from cdc_assets.cdc.config.database import Address
    from cdc_assets.cdc.errors import ConfigError

    url = against or config.source(source).database
    if url is None:
        raise ConfigError([f"--against: is not given, nor is sources.{source}.database"])
    try:
        return Address.parse(url)
    except ValueError as error:
        raise ConfigError([f"--against: {error}"]) from error


def _record(config: Config, source: str, table: str, result: Verification) -> bool:
    """Record it where Dagster's records are; False if nothing shows it there."""
    from cdc_assets.orchestration.automation.source_checks import record
    from cdc_assets.orchestration.runs.instance import dagster_home, has_instance, open_instance

    home = dagster_home().absolute()
    if config.source(source).database is None or not has_instance(home):
        return False
    with open_instance(home) as instance:
        return record(instance, config, source, table, result)
