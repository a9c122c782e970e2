"""Measures many small tables: `python -m cdc_assets_tests.bench_tables`.

Three sources have 200 tables between them, each with a thousand changes a day. Two days are made
with tables side by side, as a run does it, and the second again one at a time, in the same
session. How many cores the JVM used says what bounds it: a small table's merge is mostly planning.
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

from cdc_assets.cdc import lag
from cdc_assets.cdc.changes import stage as changes
from cdc_assets.cdc.config import parse_config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.landing.stage import land
from cdc_assets.cdc.spark import build_session
from cdc_assets.cdc.state import stage as snapshots
from cdc_assets.orchestration.assets import TABLES_AT_ONCE
from cdc_assets_tests import bench
from cdc_assets_tests import events as ev

DAYS = [ev.DAY, ev.DAY + timedelta(days=1)]
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


def write(folder: Path, tables: int, events: int) -> None:
    """Landed files of both days."""
    for source in SOURCES:
        for number, day in enumerate(DAYS):
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


def make_tables(lake: Lake, day: date, tables: int, at_once: int, force: bool) -> int:
    """One day of all tables; how many were made."""
    made = 0
    for source in SOURCES:
        names = tables_of(source, tables)
        facts = snapshots.gather(lake, source, names, [day])

        def make(
            name: str, source: str = source, facts: snapshots.Facts = facts
        ) -> snapshots.DayReport:
            return snapshots.make_table_day(lake, source, name, day, facts, force)

        with ThreadPoolExecutor(at_once) as pool:
            made += sum(report.made for report in pool.map(make, names))
    return made


def make_stages(lake: Lake, days: Sequence[date]) -> None:
    """landing, changes and lag of all sources."""
    for source in SOURCES:
        land(lake, source, days)
        changes.make_changes(lake, source, days)
        lag.make_lag(lake, source, days)


def measure(folder: Path, tell: Callable[[str], None], tables: int, events: int) -> dict[str, Any]:
    """Seconds of each step."""
    tell(f"writing {tables * events * len(DAYS)} events of {tables} tables")
    write(folder / "landing", tables, events)
    raw = {
        "lake": {"warehouse": str(folder / "lake")},
        "spark": {"spark.log.level": "ERROR"},
        "start_date": DAYS[0],
        "sources": {
            source: {
                "format": "debezium",
                "landing": {"files": str(folder / "landing" / source)},
                "tables": {name: {"key": ["id"]} for name in tables_of(source, tables)},
            }
            for source in SOURCES
        },
    }
    config = parse_config(raw, folder)
    lake = Lake(build_session(config), config)
    figures: dict[str, Any] = {}

    def timed(what: str, action: Any) -> None:
        tell(what)
        began, used = time.monotonic(), cpu_seconds(lake)
        action()
        seconds = time.monotonic() - began
        figures[f"{what}, s"] = round(seconds, 1)
        figures[f"{what}, cores used by the JVM"] = round((cpu_seconds(lake) - used) / seconds, 2)

    timed("stages of two days", lambda: make_stages(lake, DAYS))
    timed("first day", lambda: make_tables(lake, DAYS[0], tables, TABLES_AT_ONCE, False))
    timed(
        "second day, side by side",
        lambda: make_tables(lake, DAYS[1], tables, TABLES_AT_ONCE, False),
    )
    timed("second day, one at a time", lambda: make_tables(lake, DAYS[1], tables, 1, True))
    for way in ("side by side", "one at a time"):
        figures[f"a table's day, {way}, s"] = round(figures[f"second day, {way}, s"] / tables, 2)
    timed("nothing new", lambda: make_tables(lake, DAYS[1], tables, TABLES_AT_ONCE, False))
    figures["second_day_s_per_table"] = figures["a table's day, side by side, s"]
    figures["nothing_new_s"] = figures["nothing new, s"]
    lake.spark.stop()
    return figures


def main() -> None:
    """The figures as a table, and as a line of JSON on stdout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", type=int, default=200, help="of three sources")
    parser.add_argument("--events", type=int, default=1_000, help="of a table and day")
    arguments = parser.parse_args()
    asked = {"tables": arguments.tables, "events": arguments.events}
    bench.run(partial(measure, **asked), asked)


if __name__ == "__main__":
    main()
