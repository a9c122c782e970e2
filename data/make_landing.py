"""Writes the sample landings: six days of three invented sources, one day of two more.

Run it again and the same bytes come out: all that is random is drawn from seeded generators.

    python data/make_landing.py                 # writes data/landing/<source>/<day>/… and, of a
                                                # source in Avro, data/registry/<source>/…
    python data/make_landing.py --scenes        # prints where each scripted scene landed (Markdown)
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path

# The script is also loaded by path, where its own folder is not importable by itself.
sys.path.insert(0, str(Path(__file__).parent))

from generator.agenda import Source
from generator.avro import Registry
from generator.billing import Billing
from generator.inventory_faults import Inventory
from generator.kafka import Kafka, Record, Scene
from generator.landed import write_file
from generator.loyalty import Loyalty
from generator.stock import Stock
from generator.telemetry import Telemetry

SOURCES: tuple[type[Source], ...] = (Inventory, Telemetry, Billing, Stock, Loyalty)

# The files of each day that has records; the form goes by the name (see `write_file`). Where a day
# has two files, the last one takes what `second_file` says, the first one all else.
FILES = {
    "inventory": (
        ("kcat.jsonl.gz",),
        ("part-00000.jsonl.gz",),
        ("part-00000.parquet",),
        ("kcat-tables.jsonl.gz", "kcat-without-schema.jsonl"),
        ("part-00000.jsonl.gz", "kcat-marks.jsonl"),
        ("kcat-tables.jsonl.gz", "part-marks.jsonl.gz"),
    ),
    "telemetry": (
        ("part-00000.jsonl.gz",),
        ("kcat.jsonl.gz",),
        ("part-00000.jsonl",),
        ("kcat.jsonl",),
        ("part-00000.jsonl.gz",),
        ("kcat.jsonl.gz",),
    ),
    "billing": (
        ("kcat.jsonl.gz",),
        ("part-00000.jsonl",),
        ("part-00000.jsonl.gz",),
        ("kcat.jsonl.gz",),
        ("part-00000.jsonl.gz",),
        ("kcat.jsonl",),
    ),
    "stock": (("kcat.jsonl",),),
    "loyalty": (("part-00000.jsonl.gz",),),
}
MARK_TOPICS = ("inventory.transaction", "inventory.message", "__debezium-heartbeat.inventory")


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent, help="gets landing/ and registry/"
    )
    parser.add_argument("--scenes", action="store_true", help="print the scenes, write nothing")
    options = parser.parse_args(arguments)
    for source in (kind() for kind in SOURCES):
        kafka = source.run()
        if options.scenes:
            print_lines(scene_table(source.name, kafka.scenes))
            continue
        print_lines(write_source(options.out / "landing" / source.name, source.name, kafka))
        if source.registry:
            print_lines(write_registry(options.out / "registry" / source.name, source.registry))


def write_source(folder: Path, name: str, kafka: Kafka) -> Iterator[str]:
    """Replaces the sample's days of a source; yields a line for each."""
    for day, files in zip(sorted(kafka.landed), FILES[name], strict=True):
        shutil.rmtree(folder / day, ignore_errors=True)
        (folder / day).mkdir(parents=True)
        items = kafka.landed[day]
        apart = second_file(files[-1]) if len(files) > 1 else lambda item: False
        write_file(folder / day / files[0], [item for item in items if not apart(item)])
        if len(files) > 1:
            write_file(folder / day / files[1], [item for item in items if apart(item)])
        size = sum((folder / day / file).stat().st_size for file in files)
        yield f"{name} {day} {len(items):5} lines {size:8,} bytes  {' '.join(files)}"


def write_registry(folder: Path, registry: Registry) -> Iterator[str]:
    """Replaces the saved answers of a source's registry."""
    shutil.rmtree(folder, ignore_errors=True)
    yield f"{folder.name} {registry.save(folder)} schemas"


def second_file(name: str) -> Callable[[Record | str], bool]:
    """Which records the second file of a day takes."""
    if "marks" in name:
        return lambda item: isinstance(item, Record) and item.topic in MARK_TOPICS
    return lambda item: isinstance(item, Record) and b'"schema":{' not in (item.value or b"")


def scene_table(name: str, scenes: Iterable[Scene]) -> Iterator[str]:
    """A Markdown table of the scenes of a source."""
    yield f"### {name}\n"
    yield "| rules | what happens | day `topic` partition:offsets |"
    yield "|---|---|---|"
    for told in scenes:
        tells = told.tells.replace("|", "\\|")
        yield f"| {told.rules} | {tells} | {'; '.join(whereabouts(told))} |"
    yield ""


def whereabouts(told: Scene) -> Iterator[str]:
    """The records of a scene, without transaction marks, as ranges of offsets."""
    lands = [(day, item) for day, item in told.records if not is_transaction_mark(item)]
    for day, of_day in groupby(lands, key=lambda land: land[0]):
        places = defaultdict[str, dict[int, list[int]]](dict)
        stray = 0
        for _, item in of_day:
            if isinstance(item, Record):
                places[item.topic].setdefault(item.partition, []).append(item.offset)
            else:
                stray += 1
        spots = [f"`{topic}` {in_partitions(found)}" for topic, found in places.items()]
        spots += [f"{stray} without offset"] * bool(stray)
        yield f"{day[5:]} {', '.join(spots)}"


def in_partitions(found: dict[int, list[int]]) -> str:
    """{0: [3, 4], 1: [7]} as "0:3-4 1:7"."""
    return " ".join(f"{p}:{','.join(ranges(offsets))}" for p, offsets in sorted(found.items()))


def is_transaction_mark(item: Record | str) -> bool:
    """BEGIN and END would fill the table and tell nothing."""
    return isinstance(item, Record) and item.topic == "inventory.transaction"


def ranges(offsets: list[int]) -> Iterator[str]:
    """1, 2, 3, 7 as "1-3", "7"."""
    for _, run in groupby(enumerate(sorted(offsets)), key=lambda pair: pair[1] - pair[0]):
        numbers = [offset for _, offset in run]
        yield f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def print_lines(lines: Iterable[str]) -> None:
    """One line each on stdout."""
    for line in lines:
        print(line)


if __name__ == "__main__":
    main()
