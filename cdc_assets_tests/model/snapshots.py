"""Snapshots of a table that has rows already (R7): when they end, and what landed since."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any

from cdc_assets_tests.model.documents import json_text
from cdc_assets_tests.model.records import Event
from cdc_assets_tests.model.streams import kafka_order

FIRST, LAST = ("first", "first_in_data_collection"), ("last", "last_in_data_collection")
Ended = tuple[Event, Event]  # first read, last read


class Snapshots:
    """Follows the marks of one table, day by day."""

    def __init__(
        self, table: str, events: dict[date, list[Event]], in_window: Callable[[date, date], bool]
    ) -> None:
        self.table, self.events, self.in_window = table, events, in_window
        self.first: Event | None = None  # of the one that has not ended
        self.is_newest = True  # no other one has begun in the stream since

    def end_on(self, day: date) -> Ended | None:
        """The newest snapshot that ends on a day; the days are asked for in their order."""
        ended = None
        seen = {_content(e) for d in self.events if self.in_window(d, day) for e in self._marked(d)}
        for event in sorted(self._marked(day), key=_arrival):
            if _content(event) in seen:
                continue  # a redelivery
            seen.add(_content(event))
            if event.table_name != self.table:
                if self.first is not None and event.stream == self.first.stream:
                    self.is_newest &= event.snapshot != "first"
                    if event.snapshot == "last" and self.is_newest:
                        ended, self.first = (self.first, event), None
            elif event.snapshot in FIRST:
                self.first, self.is_newest = event, True
            else:
                if self.first is not None or self._is_one_row(day, event):
                    ended = (self.first or event, event)
                self.first = None
        return ended

    def _marked(self, day: date) -> list[Event]:
        changes = [e for e in self.events.get(day, []) if e.destination == "changes"]
        return [e for e in changes if e.snapshot in (*FIRST, *LAST)]

    def _is_one_row(self, day: date, last: Event) -> bool:
        """No other read of the table came since the mark before this one."""
        near = [day, *(d for d in [day - timedelta(days=1)] if self.in_window(d, day))]
        own = [
            e
            for d in self.events
            if d == day or self.in_window(d, day)
            for e in self.events[d]
            if e.destination == "changes" and e.table_name == self.table and e.leaf == last.leaf
        ]
        marked = [e for e in own if e.snapshot in (*FIRST, *LAST) and _arrival(e) < _arrival(last)]
        others = [
            e
            for d in near
            for e in self.events.get(d, [])
            if e.destination == "changes"
            and (e.table_name, e.op) == (self.table, "r")
            and e.snapshot not in (None, "incremental", *FIRST, *LAST)
        ]
        newest = max((_time_in_day(e) for e in others), default=-1)
        return newest <= max((_time_in_day(e) for e in marked), default=-1)


def landed_since(first: Event, event: Event) -> bool:
    """At the first read or after it; in other partitions by the Kafka timestamp."""
    if event.day != first.day:
        return event.day > first.day
    one, other = kafka_order(first), kafka_order(event)
    return other >= one if other[:2] == one[:2] else event.landed_ms >= _time_in_day(first)


def _time_in_day(event: Event) -> int:
    end = datetime(*(event.day + timedelta(days=1)).timetuple()[:3], tzinfo=timezone.utc)
    return min(event.landed_ms, int(end.timestamp() * 1000) - 1)


def _arrival(event: Event) -> tuple[Any, ...]:
    """Where all arrive in a millisecond, a snapshot's own order stands."""
    rank = (*FIRST, *reversed(LAST)).index(event.snapshot or "")
    return _time_in_day(event), rank, kafka_order(event)


def _content(event: Event) -> str:
    times = event.source_ts_ms, event.processed_ts_ms
    return json_text([event.snapshot, event.key, event.after, *times, list(event.own_elements)])
