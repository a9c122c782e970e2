"""Measures the changes of several formats: `python -m cdc_assets_tests.bench_formats`.

The same changes of four PostgreSQL tables (bench.py) as JSON with schemas, as Avro of a schema
registry, and as Canal's flat messages: three sources in one session, each read in turn. Everything
happens in a temporary folder.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import fastavro

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import build_session
from cdc_assets_tests import events as ev
from cdc_assets_tests.bench import (
    COLUMNS,
    DAY_2,
    TABLES,
    change_lines,
    parsed,
    run_events,
    timed,
    write_day,
)
from cdc_assets_tests.lakes import land, make_changes
from cdc_assets_tests.registries import Schemas, avro_of, encoded, framed, serving

ROUNDS = 4  # the first of which warms up
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
_AMOUNT = "amount"


def avro_lines(lines: Iterator[str], schemas: Schemas) -> Iterator[str]:
    """Landed lines of JSON with schemas, as Confluent's Avro converter would have sent them."""
    of_topic: dict[str, tuple[int, Any]] = {}
    key_id, key_schema = schemas.registered(KEY), fastavro.parse_schema(KEY)
    for line in lines:
        landed = json.loads(line)
        message = json.loads(landed.pop("value"))
        topic, payload = landed["topic"], message["payload"]
        if topic not in of_topic:
            schema = avro_of(message["schema"], payload)
            of_topic[topic] = schemas.registered(schema), fastavro.parse_schema(schema)
        number, schema = of_topic[topic]
        if payload["after"]:
            amount = base64.b64decode(payload["after"][_AMOUNT])
            payload["after"][_AMOUNT] = amount
        key = framed(key_id, encoded(key_schema, json.loads(landed.pop("key"))))
        value = framed(number, encoded(schema, payload))
        parts = {"key_base64": key, "value_base64": value}
        coded = {name: base64.b64encode(data).decode() for name, data in parts.items()}
        yield json.dumps({**landed, **coded}) + "\n"


def canal_lines(lines: Iterator[str]) -> Iterator[str]:
    """The same changes as Canal would have sent them: a row a message, its values as texts."""
    kinds = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}
    for line in lines:
        landed = json.loads(line)
        payload = json.loads(landed["value"])["payload"]
        source, after = payload["source"], payload["after"]
        row = after or json.loads(landed["key"])
        if after:
            cents = int.from_bytes(base64.b64decode(after[_AMOUNT]), "big", signed=True)
            row = {**after, _AMOUNT: f"{cents / 100:.2f}"}
        record = ev.canal_message(
            kinds[payload["op"]],
            [row],
            [{"quantity": 1}] if payload["op"] == "u" else None,
            table=(source["schema"], source["table"]),
            types={"id": "bigint", "customer": "int", "note": "varchar(80)"},
            es=source["ts_ms"],
            ts=payload["ts_ms"],
            id=source["lsn"],
        )
        assert record.value is not None
        yield json.dumps({**landed, "value": record.value.decode()}) + "\n"


def measure(folder: Path, tell: Callable[[str], None], events: int) -> dict[str, Any]:
    """Seconds of the stage `changes` by format, in rounds in which they take turns."""
    schemas = Schemas()
    tell(f"writing {events} changes in three formats")

    def lines() -> Iterator[str]:
        return change_lines(events, events)

    written = {
        "json": lines(),
        "avro": avro_lines(lines(), schemas),
        "canal": canal_lines(lines()),
    }
    sizes = {name: write_day(folder / name, DAY_2, of, events) for name, of in written.items()}
    with serving(schemas) as registry:
        config = parsed(_configuration(folder, registry), folder)
        spark = build_session(config)
        spark.sparkContext.setLogLevel("ERROR")
        try:
            seconds = _in_turn(Lake(spark, config), tell)
        finally:
            spark.stop()
    best = {name: min(of) for name, of in seconds.items()}
    figures: dict[str, Any] = {}
    for name in written:
        figures[f"{name}, bytes a line"] = sizes[name] // events
        figures[f"{name}, s"] = round(best[name], 1)
        figures[f"{name}, events/s"] = round(events / best[name])
        figures[f"{name}, all rounds, s"] = ", ".join(f"{s:.1f}" for s in seconds[name])
    return {
        **figures,
        "avro_ratio": round(best["avro"] / best["json"], 2),
        "canal_ratio": round(best["canal"] / best["json"], 2),
    }


def _in_turn(lake: Lake, tell: Callable[[str], None]) -> Mapping[str, list[float]]:
    """Seconds of each source's `changes`, by round; the first is left out."""
    names = sorted(lake.config.sources)
    for name in names:
        tell(f"landing {name}")
        land(lake, name, [DAY_2])
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(ROUNDS):
        tell(f"round {number + 1} of {ROUNDS}")
        for name in names:
            took = timed(partial(make_changes, lake, name, [DAY_2], force=True))
            if number:
                seconds[name].append(took)
    return seconds


def _configuration(folder: Path, registry: str) -> dict[str, Any]:
    tables = {f"public.{t}": {"key": ["id"], "columns": COLUMNS} for t in TABLES}

    def source(name: str, format: str, **landing: Any) -> dict[str, Any]:
        where = {"files": str(folder / name), **landing}
        return {"format": format, "landing": where, "tables": tables}

    return {
        "start_date": DAY_2,
        "sources": {
            "json": source("json", "debezium"),
            "avro": source("avro", "debezium", registry={"url": registry}),
            "canal": source("canal", "canal"),
        },
    }


def main() -> None:
    """Measure and print."""
    run_events(__doc__ or "", measure)


if __name__ == "__main__":
    main()
