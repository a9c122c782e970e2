"""When a new server takes a stream over (FORMATS O11, `position_reset: auto`); no Spark here.

A day is judged by the facts of its partitions alone where none of them can hold a takeover. Of the
others the rows are asked for, in the order in which they landed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import date
from typing import Any, NamedTuple

Element = tuple[int, ...]


class Lane(NamedTuple):
    """A partition of a topic; `anew` is how often the topic was made anew before."""

    topic: str
    partition: int
    anew: int = 0


@dataclass(frozen=True)
class PartitionFacts:
    """A stream's events of a day in a partition of a topic; times in ms UTC.

    `highest_offset` and `highest_kafka_ms` are those of the last event with the highest element.
    `falls_later` counts events below an earlier one of the partition whose time at the source is
    later than that of all before them.
    """

    topic: str
    partition: int
    streamed: int  # that are no snapshot reads
    judged: int  # of these with an element
    first_offset: int
    last_offset: int
    last_streamed_offset: int | None
    first_kafka_ms: int | None
    last_kafka_ms: int
    last_source_ts_ms: int | None
    lowest: Element | None
    highest: Element | None
    highest_offset: int | None
    highest_kafka_ms: int | None
    falls_later: int


class Landed(NamedTuple):
    """An event of the day, as it is judged; `is_copy`: it landed before (O15)."""

    topic: str
    partition: int
    offset: int
    kafka_ms: int
    source_ts_ms: int | None
    element: Element | None
    is_read: bool
    is_copy: bool


@dataclass(frozen=True)
class Begin:
    """Where an epoch of a stream begins: at an instant, in some partitions at an offset.

    `highest` and `fallen` say why: an event with the element `fallen` came after one with
    `highest`, which is later at the source than all before it.
    """

    stream: str
    instant: int  # Kafka timestamp, ms UTC
    offsets: Mapping[Lane, int]
    day: date  # whose events show it
    highest: Element
    fallen: Element


@dataclass(frozen=True)
class _Top:
    """The highest element that landed in a partition, and the first event after it."""

    element: Element
    offset: int | None  # None: of the partition before the topic was made anew
    kafka_ms: int
    next_offset: int | None = None
    next_kafka_ms: int | None = None


@dataclass(frozen=True)
class _Partition:
    last_offset: int
    last_kafka_ms: int
    top: _Top | None = None


@dataclass(frozen=True)
class Stream:
    """What is known of a stream at the end of a day."""

    name: str
    latest: int | None = None  # the latest time at the source of all that landed, ms
    partitions: Mapping[Lane, _Partition] = field(default_factory=dict)
    anew: Mapping[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)  # instants, ms
    begins: tuple[Begin, ...] = ()

    def lane(self, topic: str, partition: int, kafka_ms: int) -> Lane:
        """Where an event stands."""
        instants = self.anew.get((topic, partition), ())
        return Lane(topic, partition, sum(kafka_ms >= instant for instant in instants))

    def newest(self, topic: str, partition: int) -> Lane:
        """The partition as it is now."""
        return Lane(topic, partition, len(self.anew.get((topic, partition), ())))


def judged(
    stream: Stream,
    day: date,
    facts: Sequence[PartitionFacts],
    rows_of: Callable[[], Iterable[Landed]],
) -> Stream:
    """A stream at the end of a day.

    Args:
        stream: as it was at the end of the day before.
        facts: of the day.
        rows_of: the stream's events of the day by Kafka timestamp, topic, partition and offset,
            asked for where the facts do not tell.
    """
    if all(_is_told(stream, partition) for partition in facts):
        return _by_facts(stream, facts)
    return judged_by_rows(stream, day, rows_of())


def judged_by_rows(stream: Stream, day: date, rows: Iterable[Landed]) -> Stream:
    """A stream at the end of a day, by all its events of the day."""
    judge = _Judge(stream, day)
    for row in rows:
        judge.read(row)
    return judge.stream


def _is_told(stream: Stream, facts: PartitionFacts) -> bool:
    """Do the facts of a partition tell that no server took over there, and where it ends?"""
    if facts.judged == 0:
        return True
    if facts.judged < facts.streamed or facts.falls_later:
        return False
    if facts.highest is None or facts.highest_offset != facts.last_streamed_offset:
        return False  # what comes after the highest one may be of a new server
    known = stream.partitions.get(stream.newest(facts.topic, facts.partition))
    if known is None:
        return True
    if facts.first_offset <= known.last_offset:
        return False  # what landed late, or a topic that was made anew
    if known.top is None or facts.lowest is None or facts.lowest >= known.top.element:
        return True
    is_later = _is_later(facts.last_source_ts_ms, stream.latest)
    return not is_later and facts.highest >= known.top.element


def _is_later(time: int | None, latest: int | None) -> bool:
    return time is not None and (latest is None or time > latest)


def _by_facts(stream: Stream, facts: Sequence[PartitionFacts]) -> Stream:
    partitions = dict(stream.partitions)
    for partition in facts:
        lane = stream.newest(partition.topic, partition.partition)
        known = partitions.get(lane)
        top = known.top if known else None
        if partition.highest is not None and (top is None or partition.highest >= top.element):
            assert partition.highest_kafka_ms is not None
            top = _Top(partition.highest, partition.highest_offset, partition.highest_kafka_ms)
        partitions[lane] = _Partition(
            max(partition.last_offset, known.last_offset if known else -1),
            max(partition.last_kafka_ms, known.last_kafka_ms if known else -1),
            top,
        )
    times = [stream.latest, *(partition.last_source_ts_ms for partition in facts)]
    latest = max((time for time in times if time is not None), default=None)
    return replace(stream, latest=latest, partitions=partitions)


class _Judge:
    """Reads a day's events of a stream, one after the other."""

    def __init__(self, stream: Stream, day: date) -> None:
        self.day, self.name = day, stream.name
        self.latest, self.begins = stream.latest, list(stream.begins)
        self.anew, self.partitions = dict(stream.anew), dict(stream.partitions)
        self.before = stream.partitions

    @property
    def stream(self) -> Stream:
        """What is known after what was read."""
        return Stream(self.name, self.latest, self.partitions, self.anew, tuple(self.begins))

    def read(self, row: Landed) -> None:
        lane, is_late = self._placed(row)
        known = self.partitions.get(lane) or _Partition(-1, -1)
        top = known.top
        if not row.is_read and not is_late and row.offset >= known.last_offset:
            top = self._judged(row, lane, top)
        self.partitions[lane] = _Partition(
            max(known.last_offset, row.offset), max(known.last_kafka_ms, row.kafka_ms), top
        )
        if not row.is_read and _is_later(row.source_ts_ms, self.latest):
            self.latest = row.source_ts_ms

    def _placed(self, row: Landed) -> tuple[Lane, bool]:
        """Where the event stands, and whether it landed late."""
        place = (row.topic, row.partition)
        instants = self.anew.get(place, ())
        lane = Lane(*place, sum(row.kafka_ms >= instant for instant in instants))
        ended = self.before.get(lane)
        if ended is None or row.offset >= ended.last_offset:
            return lane, False
        if row.kafka_ms <= ended.last_kafka_ms:
            return lane, True
        # The topic was made anew; its highest element stays.
        self.anew[place] = (*instants, row.kafka_ms)
        top = self.partitions[lane].top
        lane = lane._replace(anew=lane.anew + 1)
        self.partitions[lane] = _Partition(-1, -1, top and _Top(top.element, None, top.kafka_ms))
        return lane, False

    def _judged(self, row: Landed, lane: Lane, top: _Top | None) -> _Top | None:
        """The highest element of the partition after an event."""
        if row.element is not None and (top is None or row.element >= top.element):
            return _Top(row.element, row.offset, row.kafka_ms)
        if row.is_copy or top is None:
            return top
        if top.next_offset is None or top.next_kafka_ms is None:
            top = replace(top, next_offset=row.offset, next_kafka_ms=row.kafka_ms)
        if row.element is None or not _is_later(row.source_ts_ms, self.latest):
            return top
        self._take_over(row.element, lane, top)
        return _Top(row.element, row.offset, row.kafka_ms)

    def _take_over(self, fallen: Element, lane: Lane, top: _Top) -> None:
        assert top.next_offset is not None
        assert top.next_kafka_ms is not None
        offsets = {} if top.offset is None else {lane: top.next_offset}
        last = self.begins[-1] if self.begins else None
        if last is not None and top.kafka_ms < last.instant:  # the same one, seen here, too
            self.begins[-1] = replace(last, offsets={**last.offsets, **offsets})
        else:
            instant = top.next_kafka_ms
            self.begins.append(Begin(self.name, instant, offsets, self.day, top.element, fallen))


def epoch_at(stream: Stream, topic: str, partition: int, offset: int, kafka_ms: int) -> int:
    """How many epochs of a stream have begun where an event stands."""
    lane = stream.lane(topic, partition, kafka_ms)
    return sum(has_begun(begin, lane, offset, kafka_ms) for begin in stream.begins)


def has_begun(begin: Begin, lane: Lane, offset: int, kafka_ms: int) -> bool:
    """Has an epoch begun where an event stands?"""
    at = begin.offsets.get(lane)
    return kafka_ms >= begin.instant if at is None else offset >= at


# --- as it is kept


def stream_as_json(stream: Stream) -> dict[str, Any]:
    """A stream as JSON holds it."""
    return {
        "latest": stream.latest,
        "partitions": [
            [*lane, p.last_offset, p.last_kafka_ms, None if p.top is None else list(astuple(p.top))]
            for lane, p in sorted(stream.partitions.items())
        ],
        "anew": [[*place, list(instants)] for place, instants in sorted(stream.anew.items())],
        "begins": [
            {
                "instant": b.instant,
                "day": str(b.day),
                "highest": list(b.highest),
                "fallen": list(b.fallen),
                "offsets": [[*lane, offset] for lane, offset in sorted(b.offsets.items())],
            }
            for b in stream.begins
        ],
    }


def stream_from_json(name: str, document: Mapping[str, Any]) -> Stream:
    """The stream that :func:`stream_as_json` was given."""

    def top_of(listed: list[Any] | None) -> _Top | None:
        return None if listed is None else _Top(tuple(listed[0]), *listed[1:])

    return Stream(
        name,
        document["latest"],
        {
            Lane(topic, partition, anew): _Partition(offset, kafka_ms, top_of(top))
            for topic, partition, anew, offset, kafka_ms, top in document["partitions"]
        },
        {(topic, partition): tuple(instants) for topic, partition, instants in document["anew"]},
        tuple(
            Begin(
                name,
                b["instant"],
                {Lane(*lane): offset for *lane, offset in b["offsets"]},
                date.fromisoformat(b["day"]),
                tuple(b["highest"]),
                tuple(b["fallen"]),
            )
            for b in document["begins"]
        ),
    )
