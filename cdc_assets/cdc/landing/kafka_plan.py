"""The offsets of a day in Kafka's topics, computed without a call to Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from cdc_assets.cdc.errors import LandingError

TopicPartition = tuple[str, int]  # topic and partition
Range = tuple[int, int]  # first offset, offset after the last
ONE_DAY = timedelta(days=1)
NO_ID = "A" * 22  # from brokers without topic ids: 16 zero bytes in base64


@dataclass(frozen=True)
class TopicDay:
    """A topic's part of a day."""

    topic_id: str
    offsets: Mapping[int, Range]  # by partition
    lost: Mapping[int, Range] = field(default_factory=dict)  # given up with --allow-loss


@dataclass(frozen=True)
class KafkaDay:
    """The offsets of one day; a closed day never changes."""

    day: date
    topics: Mapping[str, TopicDay]
    closed: bool

    def to_inputs(self) -> dict[str, Any]:
        """The inputs that the day's commit records."""
        return {
            "closed": self.closed,
            "kafka": {
                name: {
                    "id": topic.topic_id,
                    "offsets": {str(p): list(r) for p, r in topic.offsets.items()},
                    **(
                        {"lost": {str(p): list(r) for p, r in topic.lost.items()}}
                        if topic.lost
                        else {}
                    ),
                }
                for name, topic in self.topics.items()
            },
        }

    @classmethod
    def from_inputs(cls, day: date, inputs: Mapping[str, Any]) -> KafkaDay | None:
        """The day in a commit's inputs; None if it landed from files."""
        if "kafka" not in inputs:
            return None

        def ranges(raw: Mapping[str, Sequence[int]]) -> dict[int, Range]:
            return {int(p): (r[0], r[1]) for p, r in raw.items()}

        topics = {
            name: TopicDay(raw["id"], ranges(raw["offsets"]), ranges(raw.get("lost", {})))
            for name, raw in inputs["kafka"].items()
        }
        return cls(day, topics, inputs["closed"])

    def range_of(self, place: TopicPartition, topic_id: str) -> Range | None:
        """The offsets of a partition; None if the day lacks the topic with this id."""
        topic = self.topics.get(place[0])
        if topic is None or not _is_same(topic.topic_id, topic_id):
            return None
        return topic.offsets.get(place[1])

    @property
    def ranges(self) -> dict[TopicPartition, Range]:
        """The offsets of every partition."""
        return {(n, p): r for n, t in self.topics.items() for p, r in t.offsets.items()}

    @property
    def span(self) -> int:
        """The number of the day's offsets, with and without a record."""
        return sum(end - start for start, end in self.ranges.values())

    @property
    def lost(self) -> dict[TopicPartition, Range]:
        """Offsets that were given up."""
        return {(n, p): r for n, t in self.topics.items() for p, r in t.lost.items()}


def _is_same(one: str, other: str) -> bool:
    return one == other or NO_ID in (one, other)


@dataclass(frozen=True)
class Found:
    """Kafka's topics: their ids and partitions, and the partitions' offsets."""

    ids: Mapping[str, str]
    first: Mapping[TopicPartition, int]  # the first offset that Kafka still has
    end: Mapping[TopicPartition, int]  # the offset after the last committed record
    # By instant (ms UTC): the first committed record at or after it, as offset and timestamp.
    at: Mapping[int, Mapping[TopicPartition, tuple[int, int]]]

    def boundary(self, place: TopicPartition, instant: int) -> int:
        """The first offset at or after an instant, or the end."""
        offset, _ = self.at[instant].get(place, (-1, -1))
        return offset if offset >= 0 else self.end[place]


@dataclass(frozen=True)
class DayRequest:
    """A day to plan, and the recorded days around it."""

    day: date
    start_ms: int  # the end of the day before, ms UTC
    end_ms: int
    is_over: bool
    is_first: bool  # the configuration's first day includes all earlier records
    recorded: Mapping[date, KafkaDay]
    # From a copy of the topics, which may begin with any offset, and get records late.
    is_copy: bool = False

    @property
    def own(self) -> KafkaDay | None:
        """The day as it landed before; None if it did not."""
        return self.recorded.get(self.day)


def plan(source: str, request: DayRequest, found: Found, allow_loss: bool) -> KafkaDay:
    """The offsets of a day.

    Raises:
        LandingError: records of the day are gone, and `allow_loss` is false.
    """
    faults: list[str] = []
    offsets: dict[str, dict[int, Range]] = {name: {} for name in found.ids}
    lost: dict[str, dict[int, Range]] = {}
    faults += _gone_topics(request, found)
    for place in sorted(found.first):
        topic_id = found.ids[place[0]]
        if fault := _recreated(request, place, topic_id, found):
            faults.append(fault)
        start = _start(request, place, topic_id, found)
        end = max(start, _end(request, place, topic_id, found))
        read_from = _read_from(request, place, topic_id, start)
        gone = min(found.first[place], end)
        if gone > read_from:
            faults.append(
                f"{_named(place)}: offsets {read_from} to {gone - 1} are gone before they were "
                f"landed (retention, or deleted); the first one left is {found.first[place]}"
            )
            lost.setdefault(place[0], {})[place[1]] = (read_from, gone)
        elif not request.is_copy and (fault := _nothing_left(request, place, topic_id, found)):
            faults.append(fault)
        offsets[place[0]][place[1]] = (start, end)
    if faults and not allow_loss:
        raise LandingError(
            source,
            f"{request.day} can't be landed whole:\n"
            + "\n".join(f"  - {fault}" for fault in faults[:20])
            + (f"\n  - and {len(faults) - 20} more" if len(faults) > 20 else "")
            + "\nNothing was written; days that were landed stay as they are. Have the connector "
            "take a new snapshot if rows are missing for good, then land what is left with "
            f"cdc-assets run --from {request.day} --allow-loss",
        )
    topics = {n: TopicDay(found.ids[n], offsets[n], lost.get(n, {})) for n in found.ids}
    return KafkaDay(request.day, topics, closed=request.is_over)


def _named(place: TopicPartition) -> str:
    return f"{place[0]} [{place[1]}]"


def _day_before(request: DayRequest) -> KafkaDay | None:
    return request.recorded.get(request.day - ONE_DAY)


def _gone_topics(request: DayRequest, found: Found) -> list[str]:
    """Topics that landed on the day or the day before and no longer exist."""
    before = request.own or _day_before(request)
    return [
        f"topic {name} is gone; it was landed up to "
        + ", ".join(f"{end} [{p}]" for p, (_, end) in topic.offsets.items())
        + ", and what came after is lost"
        for name, topic in (before.topics.items() if before else ())
        if name not in found.ids
    ]


def _recreated(
    request: DayRequest, place: TopicPartition, topic_id: str, found: Found
) -> str | None:
    before = request.own or _day_before(request)
    known = before.topics.get(place[0]) if before else None
    if known is None or place[1] not in known.offsets:
        return None
    _, landed = known.offsets[place[1]]
    if not _is_same(known.topic_id, topic_id):
        return (
            f"{_named(place)}: the topic was deleted and made again; it was landed up to offset "
            f"{landed}, and what the old one got after that is lost"
        )
    if found.end[place] < landed:
        return (
            f"{_named(place)}: offsets went backwards; it was landed up to {landed} and now ends "
            f"at {found.end[place]}, so the broker lost records that were landed, and may have "
            "given their offsets to others"
        )
    return None


def _recorded_around(
    request: DayRequest, place: TopicPartition, topic_id: str
) -> tuple[int, int | None]:
    """The end of earlier days and the start of later days; 0 and None without any."""
    earlier = [
        r[1]
        for day, known in request.recorded.items()
        if day < request.day and (r := known.range_of(place, topic_id))
    ]
    later = [
        r[0]
        for day, known in request.recorded.items()
        if day > request.day and (r := known.range_of(place, topic_id))
    ]
    return max(earlier, default=0), min(later, default=None)


def _start(request: DayRequest, place: TopicPartition, topic_id: str, found: Found) -> int:
    own = request.own.range_of(place, topic_id) if request.own else None
    end_now = found.end[place]
    if own is not None:
        return own[0] if own[1] <= end_now else min(own[0], end_now)
    earlier, later = _recorded_around(request, place, topic_id)
    before = _day_before(request)
    if before is not None and before.closed:
        # A partition that is new since the day before starts at its first record.
        known = before.range_of(place, topic_id)
        start = known[1] if known is not None else earlier or found.first[place]
    elif request.is_first:
        start = found.first[place]
    else:
        start = max(earlier, found.boundary(place, request.start_ms))
    return min(start, end_now) if later is None else min(start, later)


def _end(request: DayRequest, place: TopicPartition, topic_id: str, found: Found) -> int:
    own = request.own.range_of(place, topic_id) if request.own else None
    if own is not None and request.own is not None and request.own.closed and not request.is_copy:
        return own[1]
    after = request.recorded.get(request.day + ONE_DAY)
    if after is not None and (known := after.range_of(place, topic_id)):
        return known[0]
    reached = found.boundary(place, request.end_ms)
    if own is not None:
        # Landed records stay in this day even if a wrong clock dates them into the next one.
        reached = max(reached, min(own[1], found.end[place]))
    _, later = _recorded_around(request, place, topic_id)
    return reached if later is None else min(reached, later)


def _read_from(request: DayRequest, place: TopicPartition, topic_id: str, start: int) -> int:
    """The first offset to read: rows that landed while the day was open are not read again, nor
    are those of a copy, whose landed days only grow."""
    own = request.own
    keeps = own is not None and (request.is_copy or not own.closed)
    known = own.range_of(place, topic_id) if own is not None and keeps else None
    return max(start, known[1]) if known is not None else start


def _nothing_left(
    request: DayRequest, place: TopicPartition, topic_id: str, found: Found
) -> str | None:
    """The fault of a first landing whose records may already be removed.

    Without an earlier record, the day of the removed records is unknown.
    """
    first = found.first[place]
    known = any(
        day <= request.day and k.range_of(place, topic_id) for day, k in request.recorded.items()
    )
    if first == 0 or known:
        return None
    if found.boundary(place, request.start_ms) > first:
        return None  # Kafka has earlier records, so it has all of the day's
    return (
        f"{_named(place)}: its first {first} offsets are gone (retention, or deleted), and "
        f"records of {request.day} may have been among them; no earlier record is left to check"
    )
