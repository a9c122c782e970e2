"""Whose positions an event's are: another server, or another connector, takes over (O11)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from cdc_assets_tests.model.documents import instant_ms, key_text
from cdc_assets_tests.model.positions import end_of, lane_of, offset_of
from cdc_assets_tests.model.records import Event
from cdc_assets_tests.model.streams import row_order

Stream = tuple[str, ...]
Lane = tuple[str, int, int]  # topic, partition, how often it had begun again


@dataclass
class Begin:
    """Where an epoch of a stream begins: at an instant, or at an offset where one is known."""

    stream: Stream
    instant: int
    offsets: dict[Lane, int]
    day: date  # whose events show it


@dataclass
class Epochs:
    """What was found of a source's streams."""

    begins: list[Begin] = field(default_factory=list)
    falls: list[Event] = field(default_factory=list)  # neither copies nor of a new server
    overtaken: list[Event] = field(default_factory=list)  # of a stream that another one follows


@dataclass
class _Partition:
    landed: list[Event] = field(default_factory=list)
    highest: Event | None = None  # by the element that is judged
    is_carried: bool = False  # that one landed before the partition began again


class Judge:
    """Finds the epochs of one stream, day by day."""

    def __init__(self, stream: Stream, late_days: int) -> None:
        self.stream, self.late_days = stream, late_days
        self.begins: list[Begin] = []
        self.falls: list[tuple[Event, Event]] = []  # and the event that it lies below
        self._partitions: dict[Lane, _Partition] = defaultdict(_Partition)
        self._begun_again: dict[tuple[str, int], list[int]] = defaultdict(list)  # when
        self._latest: int | None = None
        self._sent: dict[Any, list[Event]] = defaultdict(list)
        self._copies: set[int] = set()

    def read(self, day: date, events: Iterable[Event]) -> None:
        """A day's events of the stream, reads among them."""
        ends = {
            lane: (max(map(_offset, of.landed)), max(map(time_of, of.landed)))
            for lane, of in self._partitions.items()
            if of.landed
        }
        for event in sorted(events, key=_place):
            lane = self._lane(event)
            is_late = False
            if lane in ends and _offset(event) < ends[lane][0]:
                if time_of(event) > ends[lane][1]:
                    lane = self._begin_again(event, lane)
                else:
                    is_late = True
            self._read(day, event, self._partitions[lane], lane, is_late)

    def epoch_of(self, event: Event) -> int:
        """How many epochs of the stream have begun where the event stands."""
        return sum(self._has_begun(begin, event) for begin in self.begins)

    def _has_begun(self, begin: Begin, event: Event) -> bool:
        offset = begin.offsets.get(self._lane(event))
        return time_of(event) >= begin.instant if offset is None else _offset(event) >= offset

    def _lane(self, event: Event) -> Lane:
        place = lane_of(event.record)
        return (*place, sum(time_of(event) >= instant for instant in self._begun_again[place]))

    def _begin_again(self, event: Event, before: Lane) -> Lane:
        """The topic was made anew: its highest element stays."""
        self._begun_again[lane_of(event.record)].append(time_of(event))
        lane = self._lane(event)
        self._partitions[lane] = _Partition([], self._partitions[before].highest, True)
        return lane

    def _read(
        self, day: date, event: Event, partition: _Partition, lane: Lane, is_late: bool
    ) -> None:
        told_by = (event.record.topic, event.table_name, key_text(event.key or {}), event.content)
        known = [x for x in self._sent[told_by] if x.day >= day - timedelta(days=self.late_days)]
        if any(are_one(x, event) for x in known):
            self._copies.add(id(event))
        is_in_order = all(_offset(x) <= _offset(event) for x in partition.landed)
        partition.landed.append(event)
        if event.is_snapshot:
            return
        if not is_late and is_in_order and event.stream_element is not None:
            self._judge(day, event, partition, lane)
        self._sent[told_by].append(event)
        times = [t for t in (self._latest, event.source_ts_ms) if t is not None]
        self._latest = max(times, default=None)

    def _judge(self, day: date, event: Event, partition: _Partition, lane: Lane) -> None:
        highest = partition.highest
        element = event.stream_element or ()
        if highest is None or element >= (highest.stream_element or ()):
            partition.highest, partition.is_carried = event, False
            return
        if id(event) in self._copies:
            return
        if event.source_ts_ms is None or event.source_ts_ms <= (self._latest or 0):
            self.falls.append((event, highest))
            return
        first = min(
            (
                x
                for x in partition.landed
                if (partition.is_carried or _offset(x) > _offset(highest))
                and not x.is_snapshot
                and id(x) not in self._copies
            ),
            key=_offset,
        )
        offsets = {} if partition.is_carried else {lane: _offset(first)}
        if self.begins and time_of(highest) < self.begins[-1].instant:
            self.begins[-1].offsets.update(offsets)  # the same one, seen here, too
        else:
            self.begins.append(Begin(self.stream, time_of(first), offsets, day))
        partition.highest, partition.is_carried = event, False


def are_one(one: Event, other: Event) -> bool:
    """May the one be sent again as the other: equal elements or GTIDs?"""
    gtid = one.identity.get("gtid")
    if gtid is not None and gtid == other.identity.get("gtid"):
        return True
    return (one.own_elements, one.identity) == (other.own_elements, other.identity)


def set_epochs(source: dict[str, Any], days: Sequence[tuple[date, list[Event]]]) -> Epochs:
    """Set the epoch of every event that has a position, and mark what a new server sends again."""
    streamed = [
        event
        for _, events in days
        for event in events
        if event.destination == "changes" and event.position is not None
    ]
    resets = source.get("position_reset", "auto")
    if resets != "auto":
        instants = [instant_ms(instant) for instant in resets or []]
        for event in streamed:
            event.epoch = sum(
                event.record.timestamp_ms is not None and event.record.timestamp_ms >= instant
                for instant in instants
            )
        return Epochs()
    judges = _judged(days, source.get("late_days", 3))
    found = Epochs([begin for judge in judges.values() for begin in judge.begins])
    tables: dict[str | None, list[Event]] = defaultdict(list)
    for event in streamed:
        tables[event.table_name].append(event)
    for events in tables.values():
        _number(events, judges, found)
    for judge in judges.values():
        found.falls += [e for e, highest in judge.falls if e.epoch == judge.epoch_of(highest)]
    _mark_sent_again(streamed, source.get("late_days", 3))
    return found


def _judged(days: Iterable[tuple[date, list[Event]]], late_days: int) -> dict[Stream, Judge]:
    judges: dict[Stream, Judge] = {}
    for day, events in days:
        of_stream: dict[Stream, list[Event]] = defaultdict(list)
        for event in events:
            is_row = event.destination == "changes" and not event.is_tombstone
            if is_row and event.stream is not None:
                of_stream[event.stream].append(event)
        for stream, own in of_stream.items():
            judges.setdefault(stream, Judge(stream, late_days)).read(day, own)
    return judges


def _number(events: list[Event], judges: dict[Stream, Judge], found: Epochs) -> None:
    """A table's epochs, over the streams that it comes from one after the other."""
    first: dict[Stream, Event] = {}
    database = None
    for event in sorted(events, key=_place):
        own = (event.stream or ())[2:]
        database = database or own
        if event.stream is not None and own in ((), database):  # else it is not the table's (D4)
            first.setdefault(event.stream, event)
    starts = [time_of(event) for event in first.values()]
    bases: list[tuple[Stream, int, int]] = []  # the first epoch, and how many follow it
    number = 0
    for n, stream in enumerate(first):
        until = starts[n + 1] if n + 1 < len(starts) else None
        begun = [b for b in judges[stream].begins if until is None or b.instant < until]
        bases.append((stream, number, len(begun)))
        number += len(begun) + 1
    of_stream = {stream: n for n, stream in enumerate(first)}
    for event in events:
        if not bases or event.stream not in (None, *first):
            event.epoch = 0
            continue
        last = max(sum(time_of(event) >= start for start in starts) - 1, 0)
        n = last if event.stream is None else of_stream[event.stream]
        stream, base, most = bases[n]
        event.epoch = base + min(judges[stream].epoch_of(event), most)
        if n < last:
            found.overtaken.append(event)


def _mark_sent_again(events: Iterable[Event], late_days: int) -> None:
    """A GTID that landed in an earlier epoch: a copy, as often as it landed there."""
    landed: dict[Any, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda e: (e.day, row_order(e))):
        gtid = event.identity.get("gtid")
        if gtid is None:
            continue
        key = key_text(event.key or {})
        same = landed[event.record.topic, event.table_name, key, event.content, gtid]
        same.append(event)
        recent = [x for x in same if x.day >= event.day - timedelta(days=late_days)]
        epochs = Counter(x.epoch for x in recent)
        before = sum(n for epoch, n in epochs.items() if epoch < event.epoch)
        event.is_sent_again = epochs[event.epoch] <= before


def time_of(event: Event) -> int:
    """Its Kafka timestamp; no clock that is fast says a time after its landing day."""
    return min(event.landed_ms, end_of(event.day))


def _offset(event: Event) -> int:
    return offset_of(event.record)


def _place(event: Event) -> tuple[Any, ...]:
    return (time_of(event), *row_order(event))
