"""`cdc-assets report`: the figures of days as one HTML page, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdc_assets.cli.imports import import_without_pandas
from cdc_assets.cli.options import ConfigFile, From, Source, To, check_range, load
from cdc_assets.cli.terminal import echo


def report(
    source: Source = None,
    first: From = None,
    last: To = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", dir_okay=False, help="The page to write.")
    ] = Path("report.html"),
    config_file: ConfigFile = None,
) -> None:
    """Write lag, changes, quarantine, sizes, seconds and checks of days as one HTML page.

    The page needs no network. Without --from it has the newest 30 made days.
    """
    check_range(first, last)
    from cdc_assets.cli import output

    with output.Activity("reading the lake") as activity:
        config = load(config_file)
        if source:
            config.source(source)
        import_without_pandas("pyarrow.dataset")
        from cdc_assets.cli.report import data, page

        page.check_out(out)
        figures = data.gather(config, source, first, last, activity.line)
        size = page.write(figures, out)
    days = figures.days
    span = f"{days[0]} to {days[-1]}" if len(days) > 1 else str(days[0])
    echo(f"wrote {out}: {size / 1e6:.1f} MB, {span} ({len(days)} made days)", err=True)
