"""`cdc-assets verify`: is a table of the lake equal to its source? With Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_assets.cdc.java import STARTING_SPARK
from cdc_assets.cli.options import ConfigFile, Form, Format, Verbose, load, parse_day
from cdc_assets.cli.terminal import echo

if TYPE_CHECKING:
    from cdc_assets.cdc.verification.verify import Verification

NOT_EQUAL = 3
_COLUMNS = ("what", "key", "column", "source", "lake")


def verify(
    table: Annotated[str, typer.Argument(help="A table with a key: public.customers …")],
    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="URL",
            help="Its database: postgresql://user@host:5432/db; the password in PGPASSWORD.",
            show_default=False,
        ),
    ],
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
        from cdc_assets.cdc.lake.tables import find_table
        from cdc_assets.cdc.verification.postgres import Address

        found = find_table(config, table)
        if found.kind.is_own:
            raise typer.BadParameter(f"{found} is no table of rows", param_hint="'TABLE'")
        address = Address.parse(against)
        activity.say(STARTING_SPARK)
        from cdc_assets.cdc.lake.catalog import Lake
        from cdc_assets.cdc.spark import build_session
        from cdc_assets.cdc.stages.changes import ChangesStage
        from cdc_assets.cdc.stages.contract import AS_USUAL
        from cdc_assets.cdc.stages.landing import LandingStage
        from cdc_assets.cdc.verification.verify import verify as verified
        from cdc_assets.orchestration.execution.interrupts import interruptible

        spark = interruptible(build_session, config)
        try:
            lake = Lake(spark, config)
            stages = (LandingStage(config, found.source), ChangesStage(config, found.source))

            def land(days: Sequence[date]) -> None:
                for stage in stages:
                    stage.make(lake, days, AS_USUAL)

            result = verified(
                lake, found.source, found.of, address, land, as_of, where, wait, activity.say
            )
        finally:
            spark.stop()
    if form is Form.table:
        output.print_rows(_COLUMNS, _differences(result), form.value, fold=False)
        echo(_told(result), err=True)
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


def _told(result: Verification) -> str:
    counts = (
        (result.equal, "equal"),
        (result.differs, "differ"),
        (result.only_in_source, "only in the source"),
        (result.only_in_lake, "only in the lake"),
        (result.doubled, "doubled in the lake"),
        (result.not_comparable, "not comparable"),
    )
    listed = ", ".join(f"{count} {what}" for count, what in counts if count or what == "equal")
    left_out = "".join(f"\nnot compared: {name}: {why}" for name, why in result.left_out.items())
    return (
        f"{result.table} of {result.day}: {listed}; {result.moved} keys as their events of this "
        f"moment say{left_out}"
    )
