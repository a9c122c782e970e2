"""The epochs of a source's streams and tables: what positions have in front (FORMATS O11).

A stream is a server, of some connectors a database of it. Its epochs are found by
:mod:`cdc_assets.cdc.state.takeovers`; those of a table are numbered on over the streams that it
comes from, one after the other. What was found stands in the table `epochs` of the source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

from cdc_assets.cdc.positions import stream_of
from cdc_assets.cdc.sqltext import Sql, case, literal
from cdc_assets.cdc.state.takeovers import (
    Begin,
    Lane,
    Stream,
    has_begun,
    stream_as_json,
    stream_from_json,
)


@dataclass(frozen=True)
class StreamEpochs:
    """The epochs of a table while it comes from one stream.

    `number` is the first of them, `begins` are where the others begin; `first_ms` is the Kafka
    timestamp of the table's first event from the stream.
    """

    stream: str
    first_ms: int
    number: int
    begins: tuple[Begin, ...]


@dataclass(frozen=True)
class TableEpochs:
    """The epochs of a table."""

    streams: tuple[StreamEpochs, ...]
    anew: Mapping[str, Mapping[tuple[str, int], tuple[int, ...]]]  # by stream: topics made anew

    @property
    def starts(self) -> list[int]:
        """When those after the first begin: Kafka timestamps, ms."""
        begins = (begin.instant for of in self.streams for begin in of.begins)
        return sorted({*begins, *(of.first_ms for of in self.streams[1:])})

    @property
    def in_words(self) -> list[str]:
        """Each of those after the first: since when, of whom, and what shows it."""
        later = [
            f"{another_stream_in_words(former.stream, of.stream)} from "
            f"{instant_text(of.first_ms)} on"
            for former, of in pairwise(self.streams)
        ]
        return [*(begin_in_words(b) for of in self.streams for b in of.begins), *later]

    @property
    def count(self) -> int:
        """How many there are."""
        return self.streams[-1].number + len(self.streams[-1].begins) + 1 if self.streams else 1

    def sql(self, kafka_time: Sql) -> Sql:
        """The epoch of an event: BIGINT.

        Args:
            kafka_time: its Kafka timestamp, or what stands in for it, at most the end of its
                landing day; ms.
        """
        if self.count == 1:
            return "0L"
        named = stream_of("connector", "server", "db")
        own = case(
            *(
                (f"{named} = {literal(of.stream)}", self._number(of, kafka_time))
                for of in self.streams
            )
        )
        # What does not say its stream is of the one that the table comes from at that time.
        at_time = case(
            *(
                (f"{kafka_time} >= {of.first_ms}L", self._number(of, kafka_time))
                for of in reversed(self.streams[1:])
            ),
            otherwise=self._number(self.streams[0], kafka_time),
        )
        return f"coalesce({own}, {at_time})"

    def is_overtaken_sql(self, kafka_time: Sql) -> Sql:
        """Does an event come from a stream after the first event of the next one?"""
        named = stream_of("connector", "server", "db")
        after = (
            f"{named} = {literal(former.stream)} AND {kafka_time} >= {of.first_ms}L"
            for former, of in pairwise(self.streams)
        )
        return " OR ".join(f"({one})" for one in after) or "false"

    def comes_from(self, stream: str | None) -> bool:
        """May an event of a stream be the table's? One of another database is not (D4)."""
        return stream is None or any(of.stream == stream for of in self.streams)

    def number_in(
        self,
        stream: str | None,
        topic: str,
        partition: int,
        offsets: tuple[int, int],
        times: tuple[int, int],
    ) -> int | None:
        """The epoch of a day's events in a partition; None where they are not all of one.

        Args:
            offsets, times: the first and the last of them; times are Kafka timestamps, ms.
        """
        first, last = (
            self._number_at(stream, topic, partition, *at)
            for at in zip(offsets, times, strict=True)
        )
        return first if first == last else None

    def _number_at(
        self, stream: str | None, topic: str, partition: int, offset: int, kafka_ms: int
    ) -> int:
        if stream is None:
            begun = [of for of in self.streams if kafka_ms >= of.first_ms]
            of = begun[-1] if begun else self.streams[0]
        else:
            of = next(of for of in self.streams if of.stream == stream)
        instants = self.anew.get(of.stream, {}).get((topic, partition), ())
        lane = Lane(topic, partition, sum(kafka_ms >= instant for instant in instants))
        return of.number + sum(has_begun(begin, lane, offset, kafka_ms) for begin in of.begins)

    def _number(self, of: StreamEpochs, kafka_time: Sql) -> Sql:
        begun = (self._has_begun(of.stream, begin, kafka_time) for begin in of.begins)
        return " + ".join([f"{of.number}L", *(f"CAST({one} AS bigint)" for one in begun)])

    def _has_begun(self, stream: str, begin: Begin, kafka_time: Sql) -> Sql:
        at_offsets = (
            (self._is_in(stream, lane, kafka_time), f"offset >= {offset}L")
            for lane, offset in begin.offsets.items()
        )
        return case(*at_offsets, otherwise=f"{kafka_time} >= {begin.instant}L")

    def _is_in(self, stream: str, lane: Lane, kafka_time: Sql) -> Sql:
        instants = self.anew.get(stream, {}).get((lane.topic, lane.partition), ())
        parts = [f"topic = {literal(lane.topic)}", f"partition = {lane.partition}"]
        if lane.anew > 0:
            parts.append(f"{kafka_time} >= {instants[lane.anew - 1]}L")
        if lane.anew < len(instants):
            parts.append(f"{kafka_time} < {instants[lane.anew]}L")
        return " AND ".join(parts)


@dataclass(frozen=True)
class SourceEpochs:
    """What is known of a source's streams.

    `first` has for each table its streams, and the Kafka timestamp (ms) of its first event of each.
    """

    streams: Mapping[str, Stream] = field(default_factory=dict)
    first: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def begins(self) -> list[Begin]:
        """All epochs that were found, the earliest first."""
        found = (begin for stream in self.streams.values() for begin in stream.begins)
        return sorted(found, key=lambda begin: begin.instant)

    @property
    def starts(self) -> list[int]:
        """When epochs of any table begin, but the first ones: Kafka timestamps, ms."""
        return sorted({start for table in self.first for start in self.for_table(table).starts})

    @property
    def in_words(self) -> list[str]:
        """What was found: since when, of whom, and what shows it."""
        tables: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for table in sorted(self.first):
            for former, of in pairwise(self.for_table(table).streams):
                tables.setdefault((former.stream, of.stream), []).append((of.first_ms, table))
        return [
            *map(begin_in_words, self.begins),
            *(
                f"{another_stream_in_words(*streams)} from {instant_text(min(of)[0])} on: "
                f"{_some([table for _, table in of])}"
                for streams, of in sorted(tables.items())
            ),
        ]

    def for_table(self, table: str) -> TableEpochs:
        """The epochs of a table."""
        listed = sorted(self.first.get(table, {}).items(), key=lambda item: (item[1], item[0]))
        ordered = _of_one_database(listed)
        found: list[StreamEpochs] = []
        number = 0
        for n, (name, first) in enumerate(ordered):
            end = ordered[n + 1][1] if n + 1 < len(ordered) else None
            begins = tuple(b for b in self.streams[name].begins if end is None or b.instant < end)
            found.append(StreamEpochs(name, first, number, begins))
            number += len(begins) + 1
        anew = {name: self.streams[name].anew for name, _ in ordered}
        return TableEpochs(tuple(found), anew)

    @property
    def found(self) -> dict[str, Any]:
        """What decides on epochs, as JSON holds it: empty of a source whose positions have one."""
        begins = [
            [b.stream, b.instant, sorted([*lane, offset] for lane, offset in b.offsets.items())]
            for b in self.begins
        ]
        several = {
            table: {of.stream: of.first_ms for of in table_epochs.streams}
            for table in sorted(self.first)
            if len((table_epochs := self.for_table(table)).streams) > 1
        }
        anew = {
            name: sorted([*place, list(instants)] for place, instants in s.anew.items())
            for name, s in sorted(self.streams.items())
            if s.anew and s.begins
        }
        named = {"begins": begins, "streams": several, "anew": anew}
        return {name: value for name, value in named.items() if value}

    def as_json(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "streams": {name: stream_as_json(s) for name, s in sorted(self.streams.items())},
            "first": {table: dict(sorted(of.items())) for table, of in sorted(self.first.items())},
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> SourceEpochs:
        """What :meth:`as_json` gave."""
        streams = {name: stream_from_json(name, text) for name, text in document["streams"].items()}
        return cls(streams, {table: dict(of) for table, of in document["first"].items()})


def _of_one_database(streams: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """A table's streams, by their first event, that are of the database of the first (D4)."""
    databases = [(json.loads(name)[2:] or [None])[0] for name, _ in streams]
    own = next((database for database in databases if database is not None), None)
    return [of for of, db in zip(streams, databases, strict=True) if db in (None, own)]


def begin_in_words(begin: Begin) -> str:
    """Since when another server's events come, and what shows it."""
    fallen, highest = (", ".join(map(str, of)) for of in (begin.fallen, begin.highest))
    return (
        f"a new server of {stream_in_words(begin.stream)} sends from {instant_text(begin.instant)} "
        f"on: {fallen} comes after {highest} and is later at the source"
    )


def stream_in_words(stream: str) -> str:
    """A stream's connector and names, as in `mysql shop`."""
    return " ".join(part or "-" for part in json.loads(stream))


def another_stream_in_words(former: str, stream: str) -> str:
    """Whose events follow those of another stream."""
    return f"{stream_in_words(stream)} sends instead of {stream_in_words(former)}"


def _some(names: Sequence[str], shown: int = 3) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def instant_text(ms: int) -> str:
    """A Kafka timestamp (ms) as cdc.yaml names it."""
    instant = datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
    return instant.replace("+00:00", "Z")


def named_instants(instants: Iterable[int]) -> str:
    """What to write as `position_reset`, which overrules what is found: a list of all instants."""
    return f"[{', '.join(map(instant_text, sorted(set(instants))))}]"


def joined_first(
    known: Mapping[str, Mapping[str, int]], seen: Iterable[tuple[str, str, int]]
) -> dict[str, dict[str, int]]:
    """The first event of each table and stream.

    Args:
        seen: tables, their streams and the Kafka timestamp of an event, ms.
    """
    found = {table: dict(of) for table, of in known.items()}
    for table, stream, kafka_ms in seen:
        table_epochs = found.setdefault(table, {})
        table_epochs[stream] = min(kafka_ms, table_epochs.get(stream, kafka_ms))
    return found
