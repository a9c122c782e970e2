"""Histories side by side with Spark's AUTO CDC: `make bench-peers`.

The same events are made into the versions of rows by both: a few told ones, whose differences
are printed with the rule behind each, and many drawn ones, whose seconds are. AUTO CDC gets the
events as its users would give them to it: the row after an event (of a delete the row before), its
op, and the LSN to be ordered by.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from cdc_assets.cdc.config import parse_config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import build_session
from cdc_assets_tests import lakes, row_stories
from cdc_assets_tests.events import Landing, Record
from cdc_assets_tests.paths import REPOSITORY
from cdc_assets_tests.row_stories import DAYS, TYPES, Story

Landed = Mapping[date, list[Record]]
Versions = list[str]


def same_values(log: Story) -> None:
    """An update that leaves all values as they were."""
    log.create(id=1, v="a")
    log.update(id=1, v="a")


def late_delete(log: Story) -> None:
    """A delete lands behind an update that is newer."""
    log.create(id=1, v="a", _lsn=100)
    log.update(id=1, v="c", _lsn=300)
    log.next_day()
    log.delete(id=1, _lsn=200)


TOLD: dict[str, tuple[Callable[[Story], None], str]] = {
    "plain": (row_stories.plain, ""),
    "late": (row_stories.late, ""),
    "late_delete": (late_delete, ""),
    "thrice": (row_stories.thrice, ""),
    "one_transaction": (
        row_stories.one_transaction,
        "a delete and an insert of one LSN: AUTO CDC keeps one of them, and does not say which "
        "(O4: their order in Kafka decides)",
    ),
    "moved": (row_stories.moved, ""),
    "truncates": (
        row_stories.truncates,
        "a truncate has no key; AUTO CDC of Apache Spark has no APPLY AS TRUNCATE (D3)",
    ),
    "unsent": (
        row_stories.unsent,
        "a value that was not sent is the connector's placeholder for AUTO CDC (R2)",
    ),
    "read_again": (row_stories.read_again, ""),
    "same_values": (
        same_values,
        "an update that changes no value: AUTO CDC begins no version where no value differs",
    ),
    "clock": (row_stories.clock, ""),
    "tracked": (row_stories.tracked, ""),
}


def drawn(days: int, keys: int, events: int, seed: int = 1) -> Landed:
    """Updates, deletes and inserts of some keys."""
    chance, landing = random.Random(seed), Landing(DAYS[0])
    log = Story("peers", table="drawn", types=TYPES, landing=landing)
    there: set[int] = set()
    for n in range(days):
        if n:
            log.next_day()
        for event in range(events):
            key = chance.randrange(keys)
            # Each event has a value of its own: AUTO CDC begins no version where none differs.
            row = {"id": key, "v": f"v{n}-{event}", "w": "w"}
            if key not in there:
                log.create(**row)
                there.add(key)
            elif chance.random() < 0.1:
                log.delete(id=key)
                there.discard(key)
            else:
                log.update(**row)
    return landing.landed


def told() -> dict[str, Landed]:
    """The events of each told story."""
    found = {}
    for name, (tell, _) in TOLD.items():
        landing = Landing(DAYS[0])
        tell(Story("peers", table=name, types=TYPES, landing=landing))
        found[name] = landing.landed
    return found


# -- cdc-assets ----------------------------------------------------------------------------------


def our_lake(folder: Path, stories: Mapping[str, Landed]) -> Lake:
    """A lake whose source has landed the stories, each a table with a history."""
    landed = {day: [r for own in stories.values() for r in own.get(day, ())] for day in DAYS}
    tables = {f"public.{name}": {"key": ["id"], "history": True} for name in stories}
    raw = {
        "lake": {"warehouse": str(folder / "warehouse")},
        "start_date": str(DAYS[0]),
        "sources": {"peers": lakes.write_source(folder / "landing", landed, tables=tables)},
    }
    config = parse_config(raw, folder)
    return Lake(build_session(config), config)


def ours(lake: Lake, stories: Iterable[str], days: int) -> tuple[list[float], dict[str, Versions]]:
    """Seconds of each day, from landed files to the history, and the versions at the end."""
    seconds = []
    for day in DAYS[:days]:
        began = time.monotonic()
        lakes.run_all(lake, "peers", [day])
        lakes.run_derived(lake, "peers", [day])
        seconds.append(round(time.monotonic() - began, 2))
    last = DAYS[days - 1]
    found = {
        name: [
            _version(row, row["_cdc_valid_to"] is None)
            for row in lakes.versions_at(lake, "peers", f"public.{name}", last)
        ]
        for name in stories
    }
    return seconds, found


def _version(row: Mapping[str, Any], is_current: bool) -> str:
    return f"{row['id']} {row['v']} {row['w'] or ''}{' (current)' if is_current else ''}".strip()


# -- AUTO CDC ------------------------------------------------------------------------------------


def theirs(
    folder: Path, stories: Mapping[str, Landed], days: int
) -> tuple[list[float], dict[str, Versions]]:
    """The same of AUTO CDC, a pipeline's run a day."""
    folder.mkdir()
    for n, day in enumerate(DAYS[:days]):
        lines = (
            json.dumps(event)
            for name, landed in stories.items()
            for record in landed.get(day, ())
            if (event := _event(name, record)) is not None
        )
        (folder / f"day-{n}.json").write_text("\n".join(lines) + "\n")
    found = _auto_cdc(folder)
    rows: dict[str, Versions] = defaultdict(list)
    for row in sorted(found["rows"], key=lambda row: row["s"]):
        rows[row["story"]].append(_version(row, row["e"] is None))
    return found["seconds"], rows


def _auto_cdc(folder: Path) -> dict[str, Any]:
    python = REPOSITORY / ".peers" / "bin" / "python"
    script = REPOSITORY / "cdc_assets_tests" / "peers" / "auto_cdc.py"
    with (folder / "log").open("w") as log:
        ended = subprocess.run(
            [python, script, folder], stdout=subprocess.PIPE, stderr=log, text=True, check=False
        )
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"AUTO CDC ended with {ended.returncode}: see {folder / 'log'}")
    found: dict[str, Any] = json.loads(lines[-1])
    if "error" in found:
        raise RuntimeError(found["error"])
    return found


def _event(story: str, record: Record) -> dict[str, Any] | None:
    """A record as AUTO CDC's users flatten it; None for one that is no event of a row."""
    try:
        value = json.loads(record.value or b"null")
    except ValueError:
        return None
    payload = (value or {}).get("payload", value)
    if not payload or payload["op"] == "t":
        return None
    row = payload["after"] or payload["before"]
    own = {name: row.get(name) for name in TYPES}
    return {"story": story, **own, "op": payload["op"], "seq": payload["source"]["lsn"]}


# -- side by side --------------------------------------------------------------------------------


def compare(folder: Path) -> list[str]:
    """What differs in the told stories, a line each; all of them were run by both."""
    stories = told()
    lake = our_lake(folder / "ours", stories)
    _, own = ours(lake, stories, len(DAYS))
    lake.spark.stop()
    _, other = theirs(folder / "theirs", stories, len(DAYS))
    lines = [f"an event without a position: AUTO CDC: {without_position(folder / 'without')}"]
    for name, (_, why) in TOLD.items():
        mine, peer = sorted(own[name]), sorted(other.get(name, []))
        lines.append(f"{name}: {'the same' if mine == peer else 'differs'}")
        if mine != peer:
            lines += [f"    cdc-assets: {', '.join(own[name])}"]
            lines += [f"    AUTO CDC:   {', '.join(other.get(name, [])) or 'nothing'}"]
            lines += [f"    why: {why or 'NOT EXPLAINED'}"]
    return lines


def without_position(folder: Path) -> str:
    """What AUTO CDC says of an event without a position."""
    folder.mkdir()
    row = {"story": "s", "id": 1, "v": "a", "w": None, "op": "r", "seq": None}
    (folder / "day-0.json").write_text(json.dumps(row) + "\n")
    try:
        return f"made {_auto_cdc(folder)['rows']}"
    except RuntimeError as error:
        return next((line for line in str(error).splitlines() if "AUTOCDC" in line), str(error))


def measure(folder: Path, events: int) -> list[str]:
    """Seconds of drawn days."""
    days = 3
    stories = {"drawn": drawn(days, events // 4, events)}
    lake = our_lake(folder / "ours", stories)
    seconds, own = ours(lake, stories, days)
    lake.spark.stop()
    their_seconds, other = theirs(folder / "theirs", stories, days)
    is_same = sorted(own["drawn"]) == sorted(other["drawn"])
    return [
        f"{days} days of {events} events, versions: {len(own['drawn'])}; "
        f"{'the same' if is_same else 'THEY DIFFER'}",
        f"cdc-assets, landing to history in Iceberg, s a day: {seconds}",
        f"AUTO CDC, a pipeline's run a day, target in memory, s: {their_seconds}",
    ]


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000, help="of a drawn day")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "told").mkdir()
        (folder / "drawn").mkdir()
        for line in [*compare(folder / "told"), "", *measure(folder / "drawn", args.events)]:
            print(line, flush=True)


if __name__ == "__main__":
    main()
