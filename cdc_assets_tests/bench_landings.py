"""Measures landings that others wrote: `python -m cdc_assets_tests.bench_landings`.

The same changes of four PostgreSQL tables (bench.py) as files in a day's folder; as Kafka Connect's
sinks of objects leave them, JSON, which has no schemas, and Avro containers, with keys beside the
values; and as an Iceberg table has them that Spark copied from Kafka. The sources of one session
land in turn, in a temporary folder.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
from pyspark.sql import functions as F

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import build_session
from cdc_assets_tests.bench import DAY_2, TABLES, change_lines, parsed, run_events, timed, write_day
from cdc_assets_tests.lakes import land
from cdc_assets_tests.registries import avro_of

BRONZE = "lake.bronze.kafka_raw"
ROUNDS = 6  # the first of which warms up
PER_FILE = 10_000  # flush.size of the sink
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
DAY_FOLDER = f"year={DAY_2.year}/month={DAY_2.month:02}/day={DAY_2.day:02}"


def write_sinks(folder: Path, lines: Iterable[str]) -> None:
    """The lines as the sink writes them, of JSON and of Avro."""
    by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        landed = json.loads(line)
        held = by_topic[landed["topic"]]
        held.append(landed)
        if len(held) == PER_FILE:
            _write(folder, landed["topic"], by_topic.pop(landed["topic"]))
    for topic, held in by_topic.items():
        _write(folder, topic, held)


def _write(folder: Path, topic: str, records: list[dict[str, Any]]) -> None:
    keys = [json.loads(record["key"]) for record in records]
    messages = [json.loads(record["value"]) for record in records]
    values = [message["payload"] for message in messages]
    start = records[0]["offset"]

    def place(form: str, ending: str) -> Path:
        path = folder / form / topic / DAY_FOLDER / f"{topic}+0+{start:010}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    for ending, documents in ((".json", values), (".keys.json", keys)):
        text = "".join(json.dumps(d, separators=(",", ":")) + "\n" for d in documents)
        place("confluent_json", ending).write_text(text, encoding="utf-8")
    schema = avro_of(messages[0]["schema"], values[0])
    for value in values:
        if value["after"]:
            value["after"]["amount"] = base64.b64decode(value["after"]["amount"])
    for ending, own, documents in ((".avro", schema, values), (".keys.avro", KEY, keys)):
        with place("confluent_avro", ending).open("wb") as file:
            fastavro.writer(file, fastavro.parse_schema(own), documents, codec="null")


def measure(folder: Path, tell: Callable[[str], None], events: int) -> dict[str, Any]:
    """Seconds of the landing of each shape, in rounds in which they take turns."""
    tell(f"writing {events} changes in four shapes")
    write_day(folder / "files", DAY_2, change_lines(events, events), events)
    write_sinks(folder, change_lines(events, events))
    config = parsed(_configuration(folder), folder)
    spark = build_session(config)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        lake = Lake(spark, config)
        _write_table(lake)
        seconds = _in_turn(lake, tell)
    finally:
        spark.stop()
    best = {name: min(of) for name, of in seconds.items()}
    figures: dict[str, Any] = {}
    for name, took in best.items():
        figures[f"{name}, s"] = round(took, 1)
        figures[f"{name}, events/s"] = round(events / took)
        figures[f"{name}, all rounds, s"] = ", ".join(f"{s:.1f}" for s in seconds[name])
    ratios = {
        f"{name}_ratio": round(best["files"] / best[name], 2) for name in best if name != "files"
    }
    return figures | ratios


def _write_table(lake: Lake) -> None:
    """The records of the day's files as a table of Kafka's records."""
    land(lake, "files", [DAY_2])
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
    rows = lake.spark.table(lake.stage("files", "landing")).select(*names)
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {BRONZE.rpartition('.')[0]}")
    rows.writeTo(BRONZE).partitionedBy(F.days("timestamp")).create()


def _in_turn(lake: Lake, tell: Callable[[str], None]) -> Mapping[str, list[float]]:
    """Seconds of each source's landing, by round; the first is left out."""
    names = sorted(lake.config.sources)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(ROUNDS):
        tell(f"round {number + 1} of {ROUNDS}")
        for name in names:
            # With `allow_loss` no day is compared with what landed before.
            took = timed(partial(land, lake, name, [DAY_2], True, allow_loss=True))
            if number:
                seconds[name].append(took)
    return seconds


def _configuration(folder: Path) -> dict[str, Any]:
    landings = {
        "files": {"files": str(folder / "files")},
        "iceberg_table": {"table": BRONZE},
        **{
            name: {"files": str(folder / name), "layout": "confluent"}
            for name in ("confluent_json", "confluent_avro")
        },
    }
    tables = {f"public.{table}": {"key": ["id"]} for table in TABLES}
    return {
        "start_date": DAY_2,
        "sources": {
            name: {"format": "debezium", "landing": landing, "tables": tables}
            for name, landing in landings.items()
        },
    }


def main() -> None:
    """Measure and print."""
    run_events(__doc__ or "", measure)


if __name__ == "__main__":
    main()
