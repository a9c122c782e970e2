"""All stages of a small source, as a process that a test kills: ``python -m … CONFIG [N]``.

Says on stdout which stage begins, so that the test knows where it strikes. With N it kills
Spark's executors itself, right after the N-th local checkpoint; then it says whether the error
was taken for what it is.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame

from cdc_assets.cdc.config import load_config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.spark import build_session, is_lost
from cdc_assets.cdc.state import stage as table_days
from cdc_assets_tests import events as ev
from cdc_assets_tests.lakes import land, make_changes, make_lag

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]


def say(stage: str) -> None:
    print(stage, flush=True)


def lose_executors_after(times: int) -> None:
    """Kill what the driver's JVM has started, after so many local checkpoints."""
    add, added = Checkpoints.add, 0

    def add_and_kill(self: Checkpoints, frame: DataFrame) -> DataFrame:
        nonlocal added
        rows, added = add(self, frame), added + 1
        if added == times:
            (driver,) = children(os.getpid())
            for executor in children(driver):
                os.kill(executor, signal.SIGKILL)
        return rows

    Checkpoints.add = add_and_kill  # type: ignore[method-assign]


def children(process: int) -> list[int]:
    """What a process has started, from whichever of its threads."""
    found = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    return [int(child) for text in found for child in text.split()]


def make(path: str) -> None:
    config = load_config(path)
    lake = Lake(build_session(config), config)
    for source, settings in config.sources.items():
        say("landing")
        land(lake, source, DAYS)
        say("changes")
        make_changes(lake, source, DAYS)
        say("lag")
        make_lag(lake, source, DAYS)
        facts = table_days.gather(lake, source, settings.tables, DAYS)
        for day in DAYS:
            for table in settings.tables:
                say("table")
                table_days.make_table_day(lake, source, table, day, facts)
    say("end")


def main(path: str, lose_after: str | None = None) -> None:
    if lose_after:
        lose_executors_after(int(lose_after))
    try:
        make(path)
    except Exception as error:
        say("lost" if is_lost(error) else f"failed: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
