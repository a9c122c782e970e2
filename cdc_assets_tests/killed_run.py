"""All stages of a small source, as a process that a test kills: ``python -m … CONFIG``.

Says on stdout which stage begins, so that the test knows where it strikes.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from cdc_assets.cdc import snapshots
from cdc_assets.cdc.changes import make_changes
from cdc_assets.cdc.config import load_config
from cdc_assets.cdc.lag import make_lag
from cdc_assets.cdc.lake import Lake
from cdc_assets.cdc.landing.stage import land
from cdc_assets.cdc.spark import build_session
from cdc_assets_tests import events as ev

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]


def say(stage: str) -> None:
    print(stage, flush=True)


def main(path: str) -> None:
    config = load_config(path)
    lake = Lake(build_session(config), config)
    for source, settings in config.sources.items():
        say("landing")
        land(lake, source, DAYS)
        say("changes")
        make_changes(lake, source, DAYS)
        say("lag")
        make_lag(lake, source, DAYS)
        facts = snapshots.gather(lake, source, settings.tables, DAYS)
        for day in DAYS:
            for table in settings.tables:
                say("table")
                snapshots.make_table_day(lake, source, table, day, facts)
    say("end")


if __name__ == "__main__":
    main(sys.argv[1])
