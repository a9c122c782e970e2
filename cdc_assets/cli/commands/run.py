"""`cdc-assets run`: days of assets, in this process."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdc_assets.cdc.errors import CdcError, ConfigError, UnknownTableError
from cdc_assets.cli.options import (
    ConfigFile,
    Source,
    Verbose,
    check_range,
    load,
    parse_day,
)

if TYPE_CHECKING:
    from cdc_assets.cdc.config import Config
    from cdc_assets.cli.output import Progress


LOOKING = "looking which days are up to date"
_LISTED = 5  # new tables in the output


def run(
    first: Annotated[
        date, typer.Option("--from", parser=parse_day, metavar="DAY", help="First day, YYYY-MM-DD.")
    ],
    last: Annotated[
        date | None,
        typer.Option(
            "--to", parser=parse_day, metavar="DAY", help="Last day, inclusive (default: --from)."
        ),
    ] = None,
    source: Source = None,
    table: Annotated[
        str | None, typer.Option("--table", help="Only this table, such as public.customers.")
    ] = None,
    allow_loss: Annotated[
        bool,
        typer.Option(
            "--allow-loss",
            help="Land what is left where Kafka records or landed files are permanently gone.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also make days that are up to date.")
    ] = False,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Make a range of days in this process and record the run in Dagster."""
    check_range(first, last)
    from cdc_assets.cli.output import Activity

    with Activity("reading cdc.yaml"):
        config = load(config_file)
        _check_days(config, {"--from": first, "--to": last})
        if source:
            config.source(source)
        if table:
            source, table = _state_table(config, table, source)
    make_days(first, last or first, source, table, verbose, allow_loss, force)


def _check_days(config: Config, days: Mapping[str, date | None]) -> None:
    faults = {option: config.fault_of(day) for option, day in days.items() if day}
    if wrong := [f"{option} {days[option]} {fault}" for option, fault in faults.items() if fault]:
        raise ConfigError(wrong)


def _state_table(config: Config, text: str, source: str | None) -> tuple[str, str]:
    from cdc_assets.cdc.lake.tables import find_table

    found = find_table(config, text, source)
    if found.kind.is_own:
        raise UnknownTableError(text, "it is made with its source; leave --table out")
    return found.source, found.of


def make_days(
    first: date,
    last: date,
    source: str | None = None,
    table: str | None = None,
    verbose: bool = False,
    allow_loss: bool = False,
    force: bool = False,
    spark: Mapping[str, str] | None = None,
) -> None:
    """Make days and show the progress; exit 1 if a step failed."""
    from cdc_assets.cdc.java import require_java
    from cdc_assets.cli import output
    from cdc_assets.orchestration.runs.instance import dagster_home

    require_java()
    home = dagster_home(default=Path.cwd()).absolute()
    log = None if verbose else home / ".dagster" / "spark.log"
    with output.own_stderr(log) as err, output.Progress(LOOKING, err) as shown:
        from cdc_assets.orchestration.execution import progress
        from cdc_assets.orchestration.runs import run_days as runs

        try:
            with progress.listen(shown):
                outcome = runs.run_days(
                    first,
                    last,
                    source=source,
                    table=table,
                    allow_loss=allow_loss,
                    force=force,
                    spark=spark,
                )
        except CdcError:
            raise
        except Exception as error:
            from cdc_assets.cdc.java_errors import root_cause

            traceback.print_exc()
            shown.line(f"error: {type(error).__name__}: {root_cause(error)}")
            _name_log(shown, log)
            raise typer.Exit(1) from error
        for failure in outcome.failures:
            shown.line(f"error: {failure}")
        if outcome.new_tables:
            shown.line(_adopted(outcome.new_tables))
        span = str(first) if first == last else f"{first} to {last}"
        if outcome.ok:
            shown.line(f"made {span} in {outcome.seconds:.1f} s")
            return
        shown.line(f"{span}: {len(outcome.failures)} failed, after {outcome.seconds:.1f} s")
        _name_log(shown, log)
        raise typer.Exit(1)


def _adopted(tables: Sequence[str]) -> str:
    count = f"{len(tables)} new table{'s' if tables[1:] else ''}"
    listed = ", ".join([*tables[:_LISTED], *(["…"] if tables[_LISTED:] else [])])
    return (
        f"{count} by pattern: {listed}. The next run makes them; reload the definitions to see "
        "them in Dagster"
    )


def _name_log(shown: Progress, log: Path | None) -> None:
    if log:
        shown.line(f"Spark's and Dagster's logs: {log}")
