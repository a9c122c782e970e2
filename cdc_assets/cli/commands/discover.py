"""`cdc-assets discover`: landings → a `sources:` block."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated

import typer

from cdc_assets.cdc.java import STARTING_SPARK
from cdc_assets.cli.options import ConfigFile, Verbose
from cdc_assets.cli.terminal import echo


class DiscoverForm(str, Enum):
    """How what was found is printed."""

    yaml = "yaml"
    json = "json"


def discover(
    place: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE_OR_PATH",
            help="A source of cdc.yaml; or a landing folder, a day's folder or a landed file.",
        ),
    ],
    days: Annotated[
        int | None, typer.Option("--days", min=1, help="Read only the newest N days.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Read only N records.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the source (default: that of the source or folder)."),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            metavar="URL",
            help="Schema registry that the records were written with, such as "
            "https://registry:8081 (default: landing.registry of the source in cdc.yaml, which "
            "also has its login).",
        ),
    ] = None,
    form: Annotated[
        DiscoverForm,
        typer.Option("--format", help="yaml, or json (a line a table).", show_default=True),
    ] = DiscoverForm.yaml,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Read landings and print a sources: block for cdc.yaml: format, tables, keys, types.

    Comments give the evidence for each setting, what could not be read, and what you have to
    decide. A path needs no cdc.yaml.
    """
    from cdc_assets.cli import output
    from cdc_assets.cli.spark_log import quiet

    with quiet(verbose, f"looking at {place}") as (activity, _):
        from cdc_assets.cdc.discovery import landing_place, sources_block
        from cdc_assets.cli import landing_session
        from cdc_assets.orchestration.execution.interrupts import interruptible

        found_place, config = landing_place.resolve(place, config_file, name, registry)
        activity.say(STARTING_SPARK)
        files = landing_place.local_files(found_place, days)
        is_small = files is not None and landing_session.is_small(files, limit)
        with landing_session.session(config, is_small) as spark:
            activity.say(f"reading {place}")
            found = interruptible(landing_place.discover, spark, found_place, days, limit)
    if found_place.kafka is not None:
        bounds = [
            f"only the newest {landing_place.KAFKA_RECORDS} offsets of each partition were read"
        ]
    elif found_place.tables is not None:
        bounds = [f"at most {landing_place.TABLE_RECORDS} records of the table were read"]
    else:
        bounds = [f"only the newest {days} days were read"] if days else []
    bounds += [f"only {limit} records were read"] if limit else []
    bounds += found_place.notes
    if form is DiscoverForm.yaml:
        sys.stdout.write(sources_block.as_yaml(found, found_place, bounds))
        return
    output.print_rows((), sources_block.as_rows(found, found_place), form.value)
    for note in sources_block.notes(found, found_place, bounds):
        echo(note, err=True)
