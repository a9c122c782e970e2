"""Measures many small tables: `python -m cdc_assets_tests.bench_tables`.

Three sources have 200 tables between them, each with a thousand changes a day. Two days are made
with tables side by side, as a run does it, and the second again one at a time, in the same
session. How many cores the JVM used says what bounds it: a small table's merge is mostly planning.

`--backfill 30` makes so many days of a few tables as one run does it instead, and says how much
longer that takes than the merges alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from cdc_assets.cdc.config import parse_config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.names import FEED, HISTORY
from cdc_assets.cdc.spark import build_session
from cdc_assets.cdc.state import stage as table_days
from cdc_assets.orchestration.assets.body import STAGES_AT_ONCE
from cdc_assets_tests import bench, lakes
from cdc_assets_tests import events as ev
from cdc_assets_tests.lakes import land

SOURCES = ("first", "second", "third")
TYPES = {"id": "int64", "name": "string", "status": "string", "amount": "int64"}


def tables_of(source: str, tables: int) -> list[str]:
    """The source's share of the tables."""
    number = SOURCES.index(source)
    return [f"public.t{n:03}" for n in range(tables) if n % len(SOURCES) == number]


def lines(table: str, day: int, events: int, first_offset: int) -> Iterator[str]:
    """Half of a day's events are new rows, half change rows of the same and the day before."""
    short = table.removeprefix("public.")
    start = 10_000 * day
    for n in range(events):
        is_new = n < events // 2
        back = start if n % 2 or not day else start - 10_000
        row_id = start + n if is_new else back + n - events // 2
        row = {"id": row_id, "name": f"row {n}", "status": f"s{n % 7}", "amount": n}
        at = 1_000 * n + 86_400_000 * day + ev.NOON_MS
        record = (ev.created if is_new else ev.updated)(
            row,
            table=("public", short),
            topic=f"many.{table}",
            offset=first_offset + n,
            types=TYPES,
            lsn=10_000_000 * (day + 1) + n,
            source_ts_ms=at,
            processed_ts_ms=at + 200,
        )
        yield ev.kcat_line(record)


def days_of(count: int) -> list[date]:
    """So many days in a row."""
    return [ev.DAY + timedelta(days=n) for n in range(count)]


def write(folder: Path, days: Sequence[date], tables: int, events: int) -> None:
    """Landed files of some days."""
    for source in SOURCES:
        for number, day in enumerate(days):
            path = folder / source / str(day) / "part-0.jsonl"
            path.parent.mkdir(parents=True)
            with path.open("w") as file:
                for table in tables_of(source, tables):
                    for line in lines(table, number, events, number * events):
                        file.write(f"{line}\n")


def cpu_seconds(lake: Lake) -> float:
    """What the JVM has used so far, as Linux counts it."""
    jvm: Any = lake.spark._jvm
    stat = Path(f"/proc/{jvm.ProcessHandle.current().pid()}/stat")
    if not stat.exists():
        return float("nan")
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def make_tables(lake: Lake, days: Sequence[date], tables: int, at_once: int, force: bool) -> None:
    """Some days of all tables, one source after another."""
    for source in SOURCES:
        names = tables_of(source, tables)
        facts = table_days.gather(lake, source, names, days)

        def make(name: str, source: str = source, facts: table_days.SourceContext = facts) -> None:
            for day in days:
                table_days.make_table_day(lake, source, name, day, facts, force)

        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(make, names))


def make_derived(
    kind: str, lake: Lake, days: Sequence[date], tables: int, at_once: int, force: bool
) -> None:
    """As :func:`make_tables`, of their histories or feeds."""
    for source in SOURCES:
        names = tables_of(source, tables)
        facts = table_days.gather(lake, source, names, days)

        def make(name: str, source: str = source, facts: table_days.SourceContext = facts) -> None:
            for day in days:
                lakes.KINDS[kind].make_day(lake, source, name, day, facts, force)

        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(make, names))


def make_stages(lake: Lake, days: Sequence[date]) -> None:
    """landing, changes and lag of all sources."""
    for source in SOURCES:
        land(lake, source, days)
        lakes.make_changes(lake, source, days)
        lakes.make_lag(lake, source, days)


class Clock:
    """Seconds of named steps, and the cores that the JVM used meanwhile."""

    def __init__(self, lake: Lake, tell: Callable[[str], None]) -> None:
        self.lake, self.tell = lake, tell
        self.figures: dict[str, Any] = {}

    def time(self, what: str, action: Callable[[], None]) -> float:
        """Take the time of a step; its seconds."""
        self.tell(what)
        began, used = time.monotonic(), cpu_seconds(self.lake)
        action()
        seconds = time.monotonic() - began
        cores = (cpu_seconds(self.lake) - used) / seconds
        self.figures[f"{what}, s"] = round(seconds, 1)
        self.figures[f"{what}, cores used by the JVM"] = round(cores, 2)
        return seconds


def landed_lake(
    folder: Path, tell: Callable[[str], None], days: Sequence[date], tables: int, events: int
) -> Lake:
    """An empty lake whose sources have landed files of these days."""
    tell(f"writing {tables * events * len(days)} events of {tables} tables")
    write(folder / "landing", days, tables, events)
    raw = {
        "lake": {"warehouse": str(folder / "lake")},
        "spark": {"spark.log.level": "ERROR"},
        "start_date": days[0],
        "sources": {
            source: {
                "format": "debezium",
                "landing": {"files": str(folder / "landing" / source)},
                "tables": {
                    name: {"key": ["id"], "history": True, "feed": True}
                    for name in tables_of(source, tables)
                },
            }
            for source in SOURCES
        },
    }
    config = parse_config(raw, folder)
    return Lake(build_session(config), config)


def measure(folder: Path, tell: Callable[[str], None], tables: int, events: int) -> dict[str, Any]:
    """Seconds of each step of two days."""
    days = days_of(2)
    lake = landed_lake(folder, tell, days, tables, events)
    clock = Clock(lake, tell)
    clock.time("stages of two days", lambda: make_stages(lake, days))
    clock.time("first day", lambda: make_tables(lake, days[:1], tables, STAGES_AT_ONCE, False))

    def second(at_once: int, force: bool) -> None:
        make_tables(lake, days[1:], tables, at_once, force)

    beside = clock.time("second day, side by side", lambda: second(STAGES_AT_ONCE, False))
    alone = clock.time("second day, one at a time", lambda: second(1, True))
    nothing = clock.time("nothing new", lambda: second(STAGES_AT_ONCE, False))
    # Once more, warm alike.
    seconds = {}
    for kind, label in ((HISTORY, "histories"), (FEED, "feeds")):

        def derived(day: date, force: bool, kind: str = kind) -> None:
            make_derived(kind, lake, [day], tables, STAGES_AT_ONCE, force)

        clock.time(f"{label} of the first day", partial(derived, days[0], False))
        clock.time(f"{label} of the second day", partial(derived, days[1], False))
        again = clock.time(f"second day, beside {label}", lambda: second(STAGES_AT_ONCE, True))
        made = clock.time(f"{label} of the second day, again", partial(derived, days[1], True))
        seconds[kind] = (made, again)
    figures = clock.figures
    figures["a table's day, side by side, s"] = round(beside / tables, 3)
    figures["a table's day, one at a time, s"] = round(alone / tables, 3)
    for kind, (made, again) in seconds.items():
        figures[f"a {kind}'s day, side by side, s"] = round(made / tables, 3)
        figures[f"{kind}_ratio"] = round(made / again, 2)
    figures["second_day_s_per_table"] = round(beside / tables, 3)
    figures["nothing_new_s"] = round(nothing, 1)
    lake.spark.stop()
    return figures


def backfill(
    folder: Path, tell: Callable[[str], None], tables: int, events: int, days: int
) -> dict[str, Any]:
    """Seconds of a range of days, all stages included, against the sum of its merges.

    What a merge takes is measured on the last day, one table at a time.
    """
    span = days_of(days)
    lake = landed_lake(folder, tell, span, tables, events)
    clock = Clock(lake, tell)
    stages = clock.time(f"stages of {days} days", lambda: make_stages(lake, span))
    merges = clock.time(
        f"{days} days of {tables} tables",
        lambda: make_tables(lake, span, tables, STAGES_AT_ONCE, False),
    )
    last = clock.time(
        "last day, one at a time", lambda: make_tables(lake, span[-1:], tables, 1, True)
    )
    lake.spark.stop()
    figures = clock.figures
    figures["a table's day, side by side, s"] = round(merges / tables / days, 3)
    figures["a table's last day, one at a time, s"] = round(last / tables, 3)
    return {**figures, "backfill_ratio": round((stages + merges) / (last * days), 2)}


def main() -> None:
    """The figures as a table, and as a line of JSON on stdout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", type=int, help="of three sources (200; of a backfill 12)")
    parser.add_argument("--events", type=int, default=1_000, help="of a table and day")
    parser.add_argument("--backfill", type=int, metavar="DAYS", help="make so many days at once")
    arguments = parser.parse_args()
    asked: dict[str, Any] = {"events": arguments.events}
    if arguments.backfill:
        asked |= {"tables": arguments.tables or 12, "days": arguments.backfill}
        bench.run(partial(backfill, **asked), asked)
    else:
        asked |= {"tables": arguments.tables or 200}
        bench.run(partial(measure, **asked), asked)


if __name__ == "__main__":
    main()
