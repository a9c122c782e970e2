"""`cdc-assets doctor`: check the machine, the configuration and the lake."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Annotated

import typer

from cdc_assets.cdc.java import STARTING_SPARK
from cdc_assets.cli.options import ConfigFile, Verbose
from cdc_assets.cli.terminal import echo


class DoctorForm(str, Enum):
    """How the findings are printed."""

    table = "table"
    json = "json"


def doctor(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Do not start Spark; Java, jars and catalog are then not tested together.",
        ),
    ] = False,
    form: Annotated[
        DoctorForm,
        typer.Option("--format", help="table, or json (one object per line).", show_default=True),
    ] = DoctorForm.table,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Check Java, jars, packages, cdc.yaml, lake, landings, Kafka and Dagster; say how to fix.

    Exits with 1 if there is a problem.
    """
    from cdc_assets.cli import output
    from cdc_assets.cli.spark_log import quiet

    marks = {"ok": "ok     ", "warning": "WARNING", "problem": "PROBLEM"}
    problems = 0
    with quiet(verbose, "checking cdc.yaml, packages and Java") as (activity, _):
        from cdc_assets.cli.doctor import Status, run_checks

        def show(check: str) -> None:
            if check == "spark" and not quick:
                activity.say(STARTING_SPARK)
            else:
                activity.show(f"checking {check}")

        for finding in run_checks(config_file, quick, on_start=show):
            problems += finding.status is Status.problem
            with activity.paused():
                if form is DoctorForm.json:
                    row = {**asdict(finding), "status": finding.status.value}
                    output.print_rows((), [row], "json")
                    continue
                mark, found = marks[finding.status.value], finding.found
                echo(f"{mark}  {finding.check}: {found}")
                if finding.remedy:
                    echo(f"         {finding.remedy}")
    if problems:
        raise typer.Exit(1)
