"""Which offsets of Kafka's topics a day has: decided from what is known, nothing is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from cdc_assets.cdc.errors import LandingError

TopicPartition = tuple[str, int]  # topic and partition
Range = tuple[int, int]  # first offset, offset after the last
ONE_DAY = timedelta(days=1)
NO_ID = "A" * 22  # what brokers without topic ids send: 16 zero bytes in base64


@dataclass(frozen=True)
class TopicDay:
    """A topic's part of a day."""

    topic_id: str
    offsets: Mapping[int, Range]  # by partition
    lost: Mapping[int, Range] = field(default_factory=dict)  # given up with --allow-loss


@dataclass(frozen=True)
class KafkaDay:
    """The offsets of one day; a closed one never changes again."""

    day: date
    topics: Mapping[str, TopicDay]
    closed: bool

    def to_inputs(self) -> dict[str, Any]:
        """As it is recorded with the day's commit."""
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
        """A recorded day, or None where the day was landed from files."""
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
        """The offsets of a partition; None where the day does not have this very topic."""
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
        """How many offsets the day has, with and without a record."""
        return sum(end - start for start, end in self.ranges.values())

    @property
    def lost(self) -> dict[TopicPartition, Range]:
        """Offsets that were given up."""
        return {(n, p): r for n, t in self.topics.items() for p, r in t.lost.items()}


def _is_same(one: str, other: str) -> bool:
    return one == other or NO_ID in (one, other)


@dataclass(frozen=True)
class Found:
    """What Kafka has: its topics' ids and partitions, and where the partitions stand."""

    ids: Mapping[str, str]
    first: Mapping[TopicPartition, int]  # the first offset that is still there
    end: Mapping[TopicPartition, int]  # the offset after the last committed record
    # By instant (ms UTC): the first committed record at or after it, as offset and timestamp.
    at: Mapping[int, Mapping[TopicPartition, tuple[int, int]]]

    def boundary(self, place: TopicPartition, instant: int) -> int:
        """The first offset at or after an instant, else the end."""
        offset, _ = self.at[instant].get(place, (-1, -1))
        return offset if offset >= 0 else self.end[place]


@dataclass(frozen=True)
class Asked:
    """A day to be planned: its end, and what is recorded around it."""

    day: date
    start_ms: int  # the end of the day before, ms UTC
    end_ms: int
    is_over: bool
    is_first: bool  # the project's first day takes what was there before it, too
    recorded: Mapping[date, KafkaDay]

    @property
    def own(self) -> KafkaDay | None:
        """The day as it was landed before."""
        return self.recorded.get(self.day)


def plan(source: str, asked: Asked, found: Found, allow_loss: bool) -> KafkaDay:
    """The offsets of a day.

    Raises:
        LandingError: records are gone that the day must have; `allow_loss` goes on without.
    """
    faults: list[str] = []
    offsets: dict[str, dict[int, Range]] = {name: {} for name in found.ids}
    lost: dict[str, dict[int, Range]] = {}
    faults += _gone_topics(asked, found)
    for place in sorted(found.first):
        topic_id = found.ids[place[0]]
        if fault := _recreated(asked, place, topic_id, found):
            faults.append(fault)
        start = _start(asked, place, topic_id, found)
        end = max(start, _end(asked, place, topic_id, found))
        read_from = _read_from(asked, place, topic_id, start)
        gone = min(found.first[place], end)
        if gone > read_from:
            faults.append(
                f"{_named(place)}: offsets {read_from} to {gone - 1} are gone before they were "
                f"landed (retention, or deleted); the first one left is {found.first[place]}"
            )
            lost.setdefault(place[0], {})[place[1]] = (read_from, gone)
        elif fault := _nothing_left(asked, place, topic_id, found):
            faults.append(fault)
        offsets[place[0]][place[1]] = (start, end)
    if faults and not allow_loss:
        raise LandingError(
            source,
            f"{asked.day} can't be landed whole:\n"
            + "\n".join(f"  - {fault}" for fault in faults[:20])
            + (f"\n  - and {len(faults) - 20} more" if len(faults) > 20 else "")
            + "\nNothing was written; days that were landed stay as they are. Have the connector "
            "take a new snapshot if rows are missing for good, then land what is left with "
            f"cdc-assets run --from {asked.day} --allow-loss",
        )
    topics = {n: TopicDay(found.ids[n], offsets[n], lost.get(n, {})) for n in found.ids}
    return KafkaDay(asked.day, topics, closed=asked.is_over)


def _named(place: TopicPartition) -> str:
    return f"{place[0]} [{place[1]}]"


def _day_before(asked: Asked) -> KafkaDay | None:
    return asked.recorded.get(asked.day - ONE_DAY)


def _gone_topics(asked: Asked, found: Found) -> list[str]:
    """Topics of a pattern that were landed yesterday, or earlier today, and are no more."""
    before = asked.own or _day_before(asked)
    return [
        f"topic {name} is gone; it was landed up to "
        + ", ".join(f"{end} [{p}]" for p, (_, end) in topic.offsets.items())
        + ", and what came after is lost"
        for name, topic in (before.topics.items() if before else ())
        if name not in found.ids
    ]


def _recreated(asked: Asked, place: TopicPartition, topic_id: str, found: Found) -> str | None:
    before = asked.own or _day_before(asked)
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


def _recorded_around(asked: Asked, place: TopicPartition, topic_id: str) -> tuple[int, int | None]:
    """Where earlier days end and later days begin; 0 and None where there are none."""
    earlier = [
        r[1]
        for day, known in asked.recorded.items()
        if day < asked.day and (r := known.range_of(place, topic_id))
    ]
    later = [
        r[0]
        for day, known in asked.recorded.items()
        if day > asked.day and (r := known.range_of(place, topic_id))
    ]
    return max(earlier, default=0), min(later, default=None)


def _start(asked: Asked, place: TopicPartition, topic_id: str, found: Found) -> int:
    own = asked.own.range_of(place, topic_id) if asked.own else None
    end_now = found.end[place]
    if own is not None:
        return own[0] if own[1] <= end_now else min(own[0], end_now)
    earlier, later = _recorded_around(asked, place, topic_id)
    before = _day_before(asked)
    if before is not None and before.closed:
        # A partition that the day before did not have begins with its first record.
        known = before.range_of(place, topic_id)
        start = known[1] if known is not None else earlier or _first_of(place, found)
    elif asked.is_first:
        start = _first_of(place, found)
    else:
        start = max(earlier, found.boundary(place, asked.start_ms))
    return min(start, end_now) if later is None else min(start, later)


def _first_of(place: TopicPartition, found: Found) -> int:
    return found.first[place]


def _end(asked: Asked, place: TopicPartition, topic_id: str, found: Found) -> int:
    own = asked.own.range_of(place, topic_id) if asked.own else None
    if own is not None and asked.own is not None and asked.own.closed:
        return own[1]
    after = asked.recorded.get(asked.day + ONE_DAY)
    if after is not None and (known := after.range_of(place, topic_id)):
        return known[0]
    reached = found.boundary(place, asked.end_ms)
    if own is not None:
        # What a producer's wrong clock dated into the next day, and landed today, stays today's.
        reached = max(reached, min(own[1], found.end[place]))
    _, later = _recorded_around(asked, place, topic_id)
    return reached if later is None else min(reached, later)


def _read_from(asked: Asked, place: TopicPartition, topic_id: str, start: int) -> int:
    """Rows that were landed while the day was open are kept: only what follows is read."""
    own = asked.own
    known = own.range_of(place, topic_id) if own is not None and not own.closed else None
    return max(start, known[1]) if known is not None else start


def _nothing_left(asked: Asked, place: TopicPartition, topic_id: str, found: Found) -> str | None:
    """A first landing that finds the day's records already removed.

    Without a record from before the day there is no telling which day the removed ones were of.
    """
    first = found.first[place]
    known = any(
        day <= asked.day and k.range_of(place, topic_id) for day, k in asked.recorded.items()
    )
    if first == 0 or known:
        return None
    if found.boundary(place, asked.start_ms) > first:
        return None  # there are records from before the day, so all of the day's are there
    return (
        f"{_named(place)}: its first {first} offsets are gone (retention, or deleted), and "
        f"records of {asked.day} may have been among them; no earlier record is left to check"
    )
