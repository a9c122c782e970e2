"""`cdc-assets demo`: all landed days, end to end."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cli.commands.run import make_days
from cdc_assets.cli.options import ConfigFile, Verbose, load

if TYPE_CHECKING:
    from cdc_assets.cdc.config import Config


def demo(config_file: ConfigFile = None, verbose: Verbose = False) -> None:
    """Make all landed days, then print row counts, lag and quarantined records."""
    from cdc_assets.cli.output import Activity

    with Activity("looking for landed days"):
        config = load(config_file)
        first, last = config.start_date, _last_landed_day(config)
        from cdc_assets.cdc.spark import SHORT_RUN

    make_days(first, last, verbose=verbose, spark=SHORT_RUN)
    from cdc_assets.cli.demo import print_results

    print_results(config, first, last)


def _last_landed_day(config: Config) -> date:
    from cdc_assets.cdc.config import local_path
    from cdc_assets.cdc.landing.files import day_of

    landings = [settings.landing.files for settings in config.sources.values()]
    if None in landings:
        return config.today()  # Kafka's open day
    days = []
    for files in filter(None, landings):
        folder = local_path(files)
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        days += [day for day in map(day_of, names) if day is not None]
    days = [day for day in days if config.start_date <= day <= config.today()]
    if not days:
        folders = ", ".join(filter(None, landings))
        raise ConfigError(
            [
                f"no landed day from start_date {config.start_date} on in {folders}; "
                "expected folders named YYYY-MM-DD"
            ]
        )
    return max(days)
