"""`cdc-assets doctor`: what is wrong with the machine, the configuration or the lake."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from cdc_assets.cdc.java import STARTING_SPARK
from cdc_assets.cli.options import ConfigFile, Verbose


class DoctorForm(str, Enum):
    """How the findings are printed."""

    table = "table"
    json = "json"


def doctor(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Do not start Spark. Only a session proves that Java, jars and catalog work.",
        ),
    ] = False,
    form: Annotated[
        DoctorForm, typer.Option("--format", help="table or json (a line each).", show_default=True)
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
    with quiet(verbose, "looking at cdc.yaml, packages and Java") as (activity, _):
        from cdc_assets.cli import doctor as checks

        def begin(check: str) -> None:
            if check == "spark" and not quick:
                activity.say(STARTING_SPARK)
            else:
                activity.show(f"checking {check}")

        for line in checks.examine(config_file, quick, begin=begin):
            problems += line.status is checks.Status.problem
            row = {"check": line.check, "status": line.status.value, "found": line.found}
            with activity.paused():
                if form is DoctorForm.json:
                    output.print_rows((), [{**row, "remedy": line.remedy}], "json")
                    continue
                typer.echo(f"{marks[row['status']]}  {line.check}: {output.printable(line.found)}")
                if line.remedy:
                    typer.echo(f"         {output.printable(line.remedy)}")
    if problems:
        raise typer.Exit(1)
