"""Measures the Kafka landing: `python -m cdc_assets_tests.bench_kafka`, or `make bench-kafka`.

A broker of its own gets a million events without schema (about 500 bytes a value) in four
partitions. They are read by a plain consumer, which keeps nothing, and landed into the lake,
in turn. Everything happens in a temporary folder.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from cdc_assets.cdc.config import parse_config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import build_session
from cdc_assets_tests import bench
from cdc_assets_tests.e2e.stack import Broker
from cdc_assets_tests.lakes import land
from cdc_assets_tests.topics import Topic, kafka_source

TOPIC, PARTITIONS = "shop.public.orders", 4


def fill(broker: Broker, events: int) -> int:
    """Write the events with the time of now; the bytes of all values."""
    Topic(broker, TOPIC, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": broker.servers,
            "linger.ms": 50,
            "queue.buffering.max.kbytes": 200_000,
            "compression.type": "lz4",
        }
    )
    rng, now, size = random.Random(3), int(time.time() * 1000), 0
    for n in range(events):
        row = bench._row(rng, n, now, coded=False)
        source = bench._source("orders", now, "false", 10**9 + n)
        value = f'{{"before":null,"after":{row},"source":{source},"op":"u","ts_ms":{now}}}'
        size += len(value)
        while True:
            try:
                producer.produce(TOPIC, value, f'{{"id":{n}}}', n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.5)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all events")
    return size


def consume(broker: Broker, events: int) -> int:
    """Read the events with a plain consumer; the bytes of all values."""
    consumer = Consumer(
        {"bootstrap.servers": broker.servers, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    seen = size = 0
    while seen < events:
        for message in consumer.consume(10_000, 30):
            size += len(message.value())
            seen += 1
    consumer.close()
    return size


def measure(folder: Path, tell: Callable[[str], None], events: int) -> dict[str, Any]:
    """All figures, by name."""
    with Broker(folder / "broker") as broker:
        tell(f"writing {events} events")
        size = fill(broker, events)
        tell("a plain consumer")
        consumed = min(bench.timed(lambda: consume(broker, events)) for _ in range(2))
        today = datetime.now(timezone.utc).date()
        first: date = today - timedelta(days=1)
        sources = {
            name: kafka_source(broker, [TOPIC], tables={"public.orders": {"key": ["id"]}})
            for name in ("cold", "shop", "again")
        }
        raw = {
            "lake": {"warehouse": str(folder / "warehouse")},
            "start_date": first,
            "sources": sources,
        }
        spark = build_session(parse_config(raw, folder))
        spark.sparkContext.setLogLevel("ERROR")
        try:
            lake = Lake(spark, parse_config(raw, folder))
            tell("landing, cold")
            days = [first, today]
            cold = bench.timed(lambda: land(lake, "cold", days))
            tell("landing")
            warm = min(bench.timed(lambda n=n: land(lake, n, days)) for n in ("shop", "again"))
            again = bench.timed(lambda: land(lake, "again", days))
            landed = lake.spark.table(lake.stage("again", "landing")).count()
            if landed != events:
                raise RuntimeError(f"{landed} of {events} events landed")
            memory = bench._memory(spark)
        finally:
            spark.stop()
    return {
        "bytes a value": size // events,
        "plain consumer, events/s": round(events / consumed),
        "landing, first of a session, events/s": round(events / cold),
        "landing, events/s": round(events / warm),
        "landing, MB/s": round(size / 1e6 / warm, 1),
        "landing again, nothing new, s": round(again, 1),
        **memory,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--folder", help="where the temporary folder is made")
    options = parser.parse_args()
    asked = {"events": options.events}
    bench.run(partial(measure, **asked), asked, options.folder)


if __name__ == "__main__":
    main()
