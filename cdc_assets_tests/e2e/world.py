"""The stack with its connectors and its workload: writes, cuts, and what was sent."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

from cdc_assets_tests.e2e import stack as st
from cdc_assets_tests.e2e.tables import MARKER, TABLES, Reads, Table, state
from cdc_assets_tests.e2e.workload import Workload
from cdc_assets_tests.model import Record

State = dict[str, list[dict[str, Any]]]  # rows by table

# Debezium leaves truncates out unless told otherwise.
COMMON = {
    "skipped.operations": "none",
    "heartbeat.interval.ms": "500",
    "heartbeat.action.query": "UPDATE heartbeat SET at = now() WHERE id = 1",
    "signal.data.collection": "public.signals",
    "incremental.snapshot.chunk.size": "7",
}


@dataclass(frozen=True)
class Variant:
    """A connector, its converters and modes, and how a source reads it."""

    prefix: str
    options: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[Table, ...] = TABLES
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of cdc.yaml
    reads: Reads = field(default_factory=dict)
    registry: str | None = None  # the URL of the one that its records are written with

    @property
    def pattern(self) -> str:
        """All its topics: tables, transactions, messages, heartbeats."""
        return rf"(__debezium-heartbeat\.)?{self.prefix}(\..*)?"

    def table_configs(self) -> dict[str, dict[str, Any]]:
        """The `tables:` block of the source."""
        return {
            t.qualified: {
                **t.config,
                **({"columns": dict(self.columns[t.name])} if t.name in self.columns else {}),
            }
            for t in self.tables
        }


class World:
    """The running stack, written to by a workload and read by connectors."""

    def __init__(self, stack: st.Stack, variants: tuple[Variant, ...], seed: int) -> None:
        self.stack, self.variants = stack, variants
        self.workload = Workload(stack.postgres, TABLES, seed)
        self._db = stack.postgres.connect()
        self._cuts = 0

    def close(self) -> None:
        self.workload.close()
        self._db.close()

    def connect(self, variant: Variant) -> None:
        """Add the variant's connector; its initial snapshot begins."""
        config = st.postgres_connector(self.stack.postgres, variant.prefix)
        self.stack.connect.add(variant.prefix, {**config, **COMMON, **variant.options})

    def signal_snapshot(self, table: Table) -> None:
        """Ask for an incremental snapshot of a table."""
        data = f'{{"type": "incremental", "data-collections": ["{table.qualified}"]}}'
        self._db.execute(
            "INSERT INTO signals VALUES (%s, 'execute-snapshot', %s)", [f"s{time.time_ns()}", data]
        )

    def cut(self) -> dict[str, State]:
        """What PostgreSQL holds now, by variant, once every connector has sent all of it."""
        self._cuts += 1
        self._db.execute("INSERT INTO marker VALUES (%s, %s)", [self._cuts, self._cuts])
        row = self._db.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert row is not None
        truth = {
            v.prefix: {t.qualified: state(self._db, t, v.reads) for t in v.tables}
            for v in self.variants
        }
        for variant in self.variants:
            st.wait_for(
                f"marker {self._cuts} of {variant.prefix}",
                lambda v=variant: self._sent_marker(v),
                180,
            )
            # Confirmed is what the broker has acknowledged; heartbeats carry it past the marker.
            st.wait_for(
                f"{variant.prefix} to confirm {row[0]}",
                lambda v=variant: self._confirmed(v, row[0]),
                180,
            )
        return truth

    def _sent_marker(self, variant: Variant) -> bool:
        self.stack.connect.check()
        topic = f"{variant.prefix}.{MARKER.qualified}"
        key = f'"id":{self._cuts}'.encode()
        if variant.registry is not None:
            key = bytes([2 * self._cuts])  # Avro's zigzag, of numbers up to 63
        return any((r.key or b"").rstrip(b"}").endswith(key) for r in self.records(topic))

    def _confirmed(self, variant: Variant, lsn: str) -> bool:
        found = self._db.execute(
            "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots"
            " WHERE slot_name = %s",
            [lsn, variant.prefix],
        ).fetchone()
        return bool(found and found[0])

    def records(self, *topics: str) -> list[Record]:
        """All records of some topics, in the order of each partition."""
        return list(read_all(self.stack.broker, topics))

    def topics(self, variant: Variant) -> list[str]:
        """The topics that there are of a variant."""
        mine = (f"{variant.prefix}.", f"__debezium-heartbeat.{variant.prefix}")
        listed = self.stack.broker.admin().list_topics(timeout=30).topics
        return sorted(t for t in listed if t.startswith(mine) or t == variant.prefix)


def read_all(broker: st.Broker, topics: tuple[str, ...]) -> Iterator[Record]:
    """Every record that the topics hold now."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.servers,
            "group.id": f"all-{time.monotonic_ns()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        known = consumer.list_topics(timeout=30).topics
        places = [
            TopicPartition(t, p, 0) for t in topics if t in known for p in known[t].partitions
        ]
        consumer.assign(places)
        # One that still grows says several times that it has been read to its end.
        left = {(place.topic, place.partition) for place in places}
        while left:
            message = consumer.poll(30)
            if message is None:
                raise st.StackError(f"{topics}: nothing for 30 s")
            if message.error():
                left.discard((message.topic(), message.partition()))
                continue
            kind, ms = message.timestamp()
            yield Record(
                message.topic(),
                message.partition(),
                message.offset(),
                None if kind == TIMESTAMP_NOT_AVAILABLE else ms,
                message.key(),
                message.value(),
                tuple((k, v) for k, v in message.headers() or ()),
            )
    finally:
        consumer.close()


@contextmanager
def world(variants: tuple[Variant, ...], seed: int, folder: Path | None = None) -> Iterator[World]:
    """A running world: tables made and filled before the connectors' initial snapshots."""
    with st.running(folder) as stack:
        made = World(stack, variants, seed)
        try:
            made.workload.create()
            made.workload.run(40)
            for variant in variants:
                made.connect(variant)
                made.workload.run(20, rare=False)  # beside the initial snapshot
            made.cut()
            yield made
        finally:
            made.close()


def by_day(records: list[Record], day: date) -> dict[date, list[Record]]:
    """Records as the model takes them, all landed on one day."""
    return {day: sorted(records, key=lambda r: (r.topic, r.partition, r.offset))}
