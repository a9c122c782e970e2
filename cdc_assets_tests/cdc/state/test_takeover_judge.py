"""The judging of streams in the product against that of the model, without Spark (O11)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from functools import partial

import pytest

from cdc_assets.cdc.state.takeovers import (
    Landed,
    PartitionFacts,
    Stream,
    epoch_at,
    judged,
)
from cdc_assets_tests.model.documents import key_text
from cdc_assets_tests.model.envelopes import read_events
from cdc_assets_tests.model.epochs import are_one, time_of
from cdc_assets_tests.model.positions import lane_of, offset_of
from cdc_assets_tests.model.records import Event
from cdc_assets_tests.takeover_simulation import KINDS, history

HISTORIES = 8


def row_of(event: Event, is_copy: bool) -> Landed:
    return Landed(
        *lane_of(event.record),
        offset_of(event.record),
        time_of(event),
        event.source_ts_ms,
        event.stream_element,
        event.is_snapshot,
        is_copy,
    )


def rows_of(events: Iterable[Event], earlier: list[Event]) -> list[Landed]:
    """A day's events in order; `earlier` has those of the `late_days` before."""
    known: dict[object, list[Event]] = defaultdict(list)
    rows = []
    for event in [*earlier, *sorted(events, key=lambda e: (time_of(e), lane_of(e.record)))]:
        place = (event.record.topic, event.table_name, key_text(event.key or {}), event.content)
        is_copy = any(are_one(one, event) for one in known[place])
        known[place].append(event)
        rows.append(row_of(event, is_copy))
    return rows[len(earlier) :]


def facts_of(rows: Iterable[Landed]) -> list[PartitionFacts]:
    partitions: dict[tuple[str, int], list[Landed]] = defaultdict(list)
    for row in rows:
        partitions[row.topic, row.partition].append(row)
    return [_facts(*place, own) for place, own in partitions.items()]


def _facts(topic: str, partition: int, rows: list[Landed]) -> PartitionFacts:
    streamed = [row for row in sorted(rows, key=lambda r: r.offset) if not row.is_read]
    own = [row for row in streamed if row.element is not None]
    top = max(own, key=lambda r: (r.element or (), r.offset), default=None)
    times = [row.source_ts_ms for row in streamed if row.source_ts_ms is not None]
    falls_later = sum(
        any((row.element or ()) < (other.element or ()) for other in own[:n])
        and all((row.source_ts_ms or 0) > (other.source_ts_ms or 0) for other in streamed[:n])
        for n, row in enumerate(own)
    )
    return PartitionFacts(
        topic,
        partition,
        streamed=len(streamed),
        judged=len(own),
        first_offset=min(row.offset for row in rows),
        last_offset=max(row.offset for row in rows),
        last_streamed_offset=max((row.offset for row in streamed), default=None),
        first_kafka_ms=min((row.kafka_ms for row in streamed), default=None),
        last_kafka_ms=max(row.kafka_ms for row in rows),
        last_source_ts_ms=max(times, default=None),
        lowest=min((row.element or () for row in own), default=None),
        highest=top and top.element,
        highest_offset=top and top.offset,
        highest_kafka_ms=top and top.kafka_ms,
        falls_later=falls_later,
    )


@pytest.mark.long
@pytest.mark.parametrize("by_rows_alone", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_epochs_of_drawn_takeovers_are_those_of_the_model(
    kind: str, by_rows_alone: bool
) -> None:
    days_read = days = 0
    for seed in range(HISTORIES):
        landed, _, source = history(kind, seed)
        stream = Stream("server")
        by_day: dict[date, list[Event]] = dict(read_events(source, landed))
        for day, events in by_day.items():
            earlier = [e for d, own in by_day.items() for e in own if 0 < (day - d).days <= 3]
            rows = rows_of(events, earlier)
            asked: list[date] = []

            def asked_rows(rows: list[Landed], asked: list[date], day: date) -> list[Landed]:
                asked.append(day)
                return rows

            facts = facts_of(rows)
            if by_rows_alone and facts:
                first = facts[0]
                facts = [replace(first, falls_later=1), *facts[1:]]
            stream = judged(stream, day, facts, partial(asked_rows, rows, asked, day))
            days, days_read = days + bool(rows), days_read + len(asked)
        for event in (e for of_day in by_day.values() for e in of_day if e.position is not None):
            place = (*lane_of(event.record), offset_of(event.record), time_of(event))
            assert epoch_at(stream, *place) == event.epoch, (seed, place)
    assert days_read == days if by_rows_alone else days_read < days


def test_a_day_whose_events_rise_is_told_by_its_facts_alone() -> None:
    def refuse() -> list[Landed]:
        raise AssertionError("a day without a fall reads no event")

    stream = Stream("server")
    for n in range(3):
        rows = [
            Landed("t", 0, 2 * n + i, 1000 * n + i, 1000 * n + i, (2 * n + i,), False, False)
            for i in range(2)
        ]
        stream = judged(stream, date(2026, 11, 1 + n), facts_of(rows), refuse)
    assert stream.begins == ()
    assert stream.latest == 2001
