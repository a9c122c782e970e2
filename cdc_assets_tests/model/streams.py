"""What neighbours in a partition say of each other: tombstones (D11) and runs (O14)."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from datetime import date, timedelta
from typing import Any

from cdc_assets_tests.model.documents import json_text
from cdc_assets_tests.model.keys import read_keys, set_keys
from cdc_assets_tests.model.records import Event, QuarantinedError
from cdc_assets_tests.model.values import Placeholder


def settle_tombstones(
    source: dict[str, Any],
    configs: dict[str, dict[str, Any]],
    placeholder: Placeholder,
    days: list[tuple[date, list[Event]]],
) -> None:
    seen: dict[str | None, set[str]] = defaultdict(set)  # topic → tables in changes so far
    of_key: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for day, events in days:
        for event in events:
            of_key[_key_place(day, event)].append(event)
    for day, events in days:
        for event in events:
            changes = event.destination == "changes" and not event.is_tombstone
            if changes and event.table_name is not None:
                seen[event.record.topic].add(event.table_name)
        for event in events:
            if not event.is_tombstone:
                continue
            tables_of_topic = seen[event.record.topic]
            if event.table_name is None and len(tables_of_topic) == 1:
                event.table_name = next(iter(tables_of_topic))
            today, day_before = (
                of_key.get(_key_place(d, event), []) for d in (day, day - timedelta(days=1))
            )
            _settle_tombstone(source, configs, placeholder, event, today, day_before)


def _key_place(day: date, event: Event) -> tuple[Any, ...]:
    record = event.record
    key = record.key if record.sent_key is None else record.sent_key
    return (day, record.topic, record.partition, key)


def _settle_tombstone(
    source: dict[str, Any],
    configs: dict[str, dict[str, Any]],
    placeholder: Placeholder,
    event: Event,
    today: list[Event],
    day_before: list[Event],
) -> None:
    nearest = _nearest_earlier(event, today) or _nearest_earlier(event, day_before)
    if nearest is not None and nearest.op == "d" and not nearest.is_tombstone:
        event.destination, event.op = "control", "tombstone"
        with suppress(QuarantinedError):
            config = configs.get(event.table_name or "") or {}
            read_keys(source, config, placeholder, event)
        return
    event.op = "d"
    if event.table_name is None:
        event.destination, event.reason = "quarantine", "missing_table"
        return
    set_keys(source, configs, placeholder, event)


def _nearest_earlier(event: Event, others: list[Event]) -> Event | None:
    """The newest of those of the same topic, partition and key that stand before the event."""
    mine = event.record
    if not mine.key:
        return None
    earlier = [
        other
        for other in others
        if not other.record.malformed_line and (other.record.offset or 0) < (mine.offset or 0)
    ]
    return max(earlier, key=lambda e: e.record.offset or 0, default=None)


def number_runs(events: list[Event]) -> None:
    """O14: the ordinal among equals in one unbroken run of offsets that share the elements."""
    ordered = sorted(events, key=row_order)
    counts: dict[str, int] = defaultdict(int)
    previous: Event | None = None
    for event in ordered:
        same_record = previous is not None and row_order(previous) == row_order(event)
        if same_record and previous is not None:  # the record has landed twice
            event.ordinal = previous.ordinal
            continue
        if previous is None or not _one_run(previous, event):
            counts.clear()
        image = json_text([event.table_name, event.before, event.after])
        event.ordinal = counts[image]
        counts[image] += 1
        previous = event


def _one_run(previous: Event, event: Event) -> bool:
    one, other = previous.record, event.record
    return (
        previous.destination == event.destination == "changes"
        and (one.topic, one.partition) == (other.topic, other.partition)
        and (one.offset or 0) + 1 >= (other.offset or 0)
        and previous.has_elements
        and event.has_elements
        and previous.own_elements == event.own_elements
        and previous.identity == event.identity
        and not _paused(previous.processed_ts_ms, event.processed_ts_ms)
    )


def _paused(one: int | None, other: int | None) -> bool:
    """More than a second between two events: the connector was started again."""
    return one is not None and other is not None and abs(one - other) > 1000


def kafka_order(event: Event) -> tuple[str, int, int]:
    record = event.record
    return (record.topic or "", record.partition or 0, record.offset or 0)


def landed_before(one: Event, other: Event) -> bool:
    """O6: on an earlier day, or in the partition at a lower offset; a truncate also elsewhere, at
    an earlier Kafka timestamp."""
    if one.day != other.day:
        return one.day < other.day
    place, own = row_order(one), row_order(other)
    if place[:2] == own[:2]:
        return place < own
    is_anywhere = one.op == "t" or other.leaf is not None  # R8: a key in several topics
    return is_anywhere and one.landed_ms < other.landed_ms


def place_in_day(event: Event) -> tuple[int, int]:
    """What orders events of a day that have no position; of leaves (R8) Kafka's time."""
    _, partition, offset = kafka_order(event)
    return (partition if event.leaf is None else event.landed_ms), offset


def row_order(event: Event) -> tuple[str, int, int, int]:
    """The order of rows, where records have many."""
    return (*kafka_order(event), event.row_number or 0)
