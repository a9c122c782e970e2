"""Topics of a test: what is written to Kafka, and when."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic

from cdc_assets_tests.e2e.stack import Broker, StackError, wait_for


def at(day: date, hour: float = 12) -> int:
    """An instant of a day in UTC, as ms."""
    start = datetime(day.year, day.month, day.day, tzinfo=timezone.utc)
    return int((start + timedelta(hours=hour)).timestamp() * 1000)


class Topic:
    """A topic that is made new, with the records that are written to it."""

    def __init__(self, broker: Broker, name: str, partitions: int = 1, **config: Any) -> None:
        self.broker, self.name, self._admin = broker, name, broker.admin()
        self.create(partitions, **config)
        self._producer = self._new_producer()

    def create(self, partitions: int = 1, **config: Any) -> None:
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        new = NewTopic(self.name, num_partitions=partitions, config=settings)
        for done in self._admin.create_topics([new]).values():
            done.result(30)

    def _new_producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.broker.servers, "linger.ms": 0, "log_level": 0})

    def delete(self) -> None:
        for done in self._admin.delete_topics([self.name]).values():
            done.result(30)
        wait_for("deletion", lambda: self.name not in self._admin.list_topics().topics)

    def add_partitions(self, total: int) -> None:
        for done in self._admin.create_partitions([NewPartitions(self.name, total)]).values():
            done.result(30)
        wait_for("partitions", lambda: self.partitions() == total)
        self._producer = self._new_producer()  # the old one remembers how many there were

    def partitions(self) -> int:
        return len(self._admin.list_topics(self.name).topics[self.name].partitions)

    def put(
        self,
        values: Iterable[str | bytes | None],
        ms: int,
        partition: int = 0,
        key: str | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Write records with one timestamp and see that they are there."""
        for value in values:
            self._producer.produce(
                self.name, value, key, partition, timestamp=ms, headers=list(headers)
            )
        if self._producer.flush(30):
            raise StackError(f"{self.name}: not written")

    @contextmanager
    def transaction(self, values: Iterable[str], ms: int) -> Iterator[Producer]:
        """Write records in a transaction that the block commits, aborts or leaves open."""
        producer = Producer(
            {"bootstrap.servers": self.broker.servers, "transactional.id": f"{self.name}-tx"}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value, None, 0, timestamp=ms)
        producer.flush(30)
        yield producer

    def delete_until(self, offset: int, partition: int = 0) -> None:
        """Remove the records below an offset, as retention does."""
        place = TopicPartition(self.name, partition, offset)
        for done in self._admin.delete_records([place]).values():
            done.result(30)

    def offsets(self, partition: int = 0) -> list[int]:
        """The offsets that hold a record."""
        return [message.offset() for message in self.messages([partition])]

    def messages(self, partitions: Sequence[int]) -> list[Any]:
        """All records, committed or not part of a transaction, partition by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.servers,
                "group.id": f"look-{time.monotonic_ns()}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        found = []
        try:
            for partition in partitions:
                consumer.assign([TopicPartition(self.name, partition, 0)])
                while True:
                    message = consumer.poll(30)
                    if message is None:
                        raise StackError(f"{self.name} [{partition}]: nothing for 30 s")
                    if message.error():
                        break  # the end
                    found.append(message)
        finally:
            consumer.close()
        return found


def kafka_source(
    broker: Broker,
    topics: Sequence[str] = (),
    pattern: str | None = None,
    format: str = "debezium",
    servers: str | None = None,
    options: Mapping[str, str] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """A source as cdc.yaml writes it."""
    where = {"topics": list(topics)} if topics else {"topic_pattern": pattern}
    kafka = {
        "bootstrap_servers": servers or broker.servers,
        **where,
        "options": {
            "kafka.default.api.timeout.ms": "8000",
            "kafka.request.timeout.ms": "4000",
            **(options or {}),
        },
    }
    return {"format": format, "landing": {"kafka": kafka}, **settings}
