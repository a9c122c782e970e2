"""A Kafka cluster as far as a landing shows it: offsets, timestamps, landing days."""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Json = Any


def compact(document: Json) -> str:
    """JSON text as the producers write it: no blanks, non-ASCII as is."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def as_bytes(content: bytes | str | Json) -> bytes | None:
    """Bytes and text as they are, None as Kafka's null, anything else as JSON."""
    if content is None or isinstance(content, bytes):
        return content
    return (content if isinstance(content, str) else compact(content)).encode()


@dataclass(frozen=True)
class Record:
    """One Kafka record; `ts` is its CreateTime in ms UTC."""

    topic: str
    partition: int
    offset: int
    ts: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Scene:
    """A scripted story: the rules of the formats it shows and the records that tell it."""

    rules: str
    tells: str
    records: list[tuple[str, Record | str]] = field(default_factory=list)


class Kafka:
    """Takes records, gives each the next offset of its partition, and lands it on `day`."""

    def __init__(self, partitions: dict[str, int] | None = None) -> None:
        self.day = ""
        self.landed: dict[str, list[Record | str]] = defaultdict(list)
        self.scenes: list[Scene] = []
        self._partitions = partitions or {}
        self._next_offset: Counter[tuple[str, int]] = Counter()
        self._telling: Scene | None = None

    def produce(
        self,
        topic: str,
        key: bytes | str | Json,
        value: bytes | str | Json,
        ts: int,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> Record:
        """Appends a record to the partition that the key's bytes hash to, as a producer does."""
        key, value = as_bytes(key), as_bytes(value)
        partition = zlib.crc32(key or b"") % self._partitions.get(topic, 1)
        offset = self._next_offset[topic, partition]
        self._next_offset[topic, partition] += 1
        record = Record(topic, partition, offset, ts, key, value, headers)
        self._land(record)
        return record

    def stray_line(self, line: str) -> None:
        """Lands a line that is no record; it takes no offset."""
        self._land(line)

    @contextmanager
    def telling(self, scene: Scene | None) -> Iterator[None]:
        """Notes what lands meanwhile as part of `scene`."""
        self._telling = scene
        yield
        self._telling = None

    def _land(self, item: Record | str) -> None:
        self.landed[self.day].append(item)
        if self._telling:
            self._telling.records.append((self.day, item))
