"""Kafka topics: the offsets of a day become landing rows.

Day D of a partition is ``[end of D-1, end of D)``. The end is the first offset whose Kafka
timestamp is at or after the day's end, or while there is none the end of what is committed.
What a day was made of is recorded with its commit: from then on a closed day is these offsets
and no others, the next day starts where it ended, and no offset lands twice or never. A day
that was landed while it was open keeps its rows and takes what came since.

Kafka is asked through its own AdminClient in Spark's JVM, which takes the very options that
Spark's readers take: one client, one set of options.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from types import TracebackType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc.config import KafkaConfig
from cdc_assets.cdc.errors import LandingError, first_line
from cdc_assets.cdc.java_errors import JAVA_ERRORS, Cause, causes
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.checkpoints import keeping
from cdc_assets.cdc.lake.commits import DayCommits
from cdc_assets.cdc.lake.errors import lake_error
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets.cdc.spark import add_kafka, is_lost

Place = tuple[str, int]  # topic and partition
Range = tuple[int, int]  # first offset, offset after the last
_ONE_DAY = timedelta(days=1)
_NO_ID = "A" * 22  # what brokers without topic ids send: 16 zero bytes in base64


# --- what a day is made of


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
    def of_inputs(cls, day: date, inputs: Mapping[str, Any]) -> KafkaDay | None:
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

    def range_of(self, place: Place, topic_id: str) -> Range | None:
        """The offsets of a partition; None where the day does not have this very topic."""
        topic = self.topics.get(place[0])
        if topic is None or not _is_same(topic.topic_id, topic_id):
            return None
        return topic.offsets.get(place[1])

    @property
    def ranges(self) -> dict[Place, Range]:
        """The offsets of every partition."""
        return {(n, p): r for n, t in self.topics.items() for p, r in t.offsets.items()}

    @property
    def span(self) -> int:
        """How many offsets the day has, with and without a record."""
        return sum(end - start for start, end in self.ranges.values())

    @property
    def lost(self) -> dict[Place, Range]:
        """Offsets that were given up."""
        return {(n, p): r for n, t in self.topics.items() for p, r in t.lost.items()}


def _is_same(one: str, other: str) -> bool:
    return one == other or _NO_ID in (one, other)


# --- asking Kafka


@dataclass(frozen=True)
class Found:
    """What Kafka has: its topics' ids and partitions, and where the partitions stand."""

    ids: Mapping[str, str]
    first: Mapping[Place, int]  # the first offset that is still there
    end: Mapping[Place, int]  # the offset after the last committed record
    # By instant (ms UTC): the first committed record at or after it, as offset and timestamp.
    at: Mapping[int, Mapping[Place, tuple[int, int]]]

    def boundary(self, place: Place, instant: int) -> int:
        """The first offset at or after an instant, else the end."""
        offset, _ = self.at[instant].get(place, (-1, -1))
        return offset if offset >= 0 else self.end[place]


class Client:
    """Kafka's AdminClient, in Spark's JVM; a context manager.

    Raises, in each method:
        LandingError: Kafka can't be asked, with what to do.
    """

    def __init__(self, spark: SparkSession, source: str, config: KafkaConfig) -> None:
        add_kafka(spark)
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._source, self._config = source, config
        own = {name.removeprefix("kafka."): v for name, v in config.options.items()}
        # Kafka's own patience is a minute, also for an address where nobody listens.
        patience = {"default.api.timeout.ms": "30000", "request.timeout.ms": "15000"}
        options = {**patience, **own, "bootstrap.servers": config.bootstrap_servers}
        with self._explained():
            self._admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(options)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(1))

    def _explained(self) -> _Explained:
        return _Explained(self._source, self._config)

    def find(self, instants: Iterable[int] = ()) -> Found:
        """The source's topics and where they stand now, and at some instants (ms UTC)."""
        with self._explained():
            names = self._names()
            ids, partitions = self._describe(names)
            spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
            first = self._offsets(partitions, spec.earliest())
            end = self._offsets(partitions, spec.latest())
            at = {ms: self._offsets(partitions, spec.forTimestamp(ms)) for ms in set(instants)}
        return Found(
            ids, {p: o for p, (o, _) in first.items()}, {p: o for p, (o, _) in end.items()}, at
        )

    def _names(self) -> list[str]:
        there = set(self._admin.listTopics().names().get())
        pattern = self._config.topic_pattern
        if pattern is not None:
            names = sorted(n for n in there if re.fullmatch(pattern, n))
            if not names:
                raise LandingError(
                    self._source,
                    f"no topic matches topic_pattern {pattern!r} at "
                    f"{self._config.bootstrap_servers} ({_some(there)}). Correct "
                    f"sources.{self._source}.landing.kafka.topic_pattern, or its user's rights",
                )
            return names
        if missing := [n for n in self._config.topics if n not in there]:
            raise LandingError(
                self._source,
                f"topic {', '.join(missing)} is missing at {self._config.bootstrap_servers} "
                f"({_some(there)}). Create it, correct "
                f"sources.{self._source}.landing.kafka.topics, or give its user the right to "
                "describe it; topic_pattern takes what there is",
            )
        return list(self._config.topics)

    def _describe(self, names: Sequence[str]) -> tuple[dict[str, str], list[Place]]:
        described = self._admin.describeTopics(list(names)).allTopicNames().get()
        ids, partitions = {}, []
        for name in names:
            topic = described[name]
            ids[name] = topic.topicId().toString()
            partitions += [(name, int(p.partition())) for p in topic.partitions()]
        return ids, partitions

    def _offsets(self, partitions: Sequence[Place], spec: Any) -> dict[Place, tuple[int, int]]:
        """Offset and timestamp by partition; -1 where Kafka has none."""
        kafka = self._jvm.org.apache.kafka
        places = {place: kafka.common.TopicPartition(*place) for place in partitions}
        committed = kafka.clients.admin.ListOffsetsOptions(
            kafka.common.IsolationLevel.READ_COMMITTED
        )
        asked = self._admin.listOffsets(dict.fromkeys(places.values(), spec), committed)
        answers = asked.all().get()
        return {
            place: (int(answers[p].offset()), int(answers[p].timestamp()))
            for place, p in places.items()
        }


def _some(names: Iterable[str], most: int = 5) -> str:
    own = sorted(n for n in names if not n.startswith("__"))
    more = f" and {len(own) - most} more" if len(own) > most else ""
    return f"there: {', '.join(own[:most])}{more}" if own else "there is none to be seen"


# --- errors of Kafka, told without secrets

_SECRET = re.compile(r"jaas|password|secret|token|credential|keystore\.key$", re.IGNORECASE)
_ERRORS = "org.apache.kafka.common.errors"
_DATA_LOSS = "data loss"
_NO_ADDRESS = "No resolvable bootstrap urls"  # of a ConfigException, as other wrong options
_WHY: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        (f"{_ERRORS}.AuthenticationException",),
        "the credentials were refused",
        "correct kafka.sasl.* or kafka.ssl.* in landing.kafka.options, or the variables they name",
    ),
    (
        (f"{_ERRORS}.AuthorizationException",),
        "the user may not do this",
        "give it the rights to describe and read the topics",
    ),
    (
        (
            f"{_ERRORS}.TimeoutException",
            f"{_ERRORS}.DisconnectException",
            "java.util.concurrent.TimeoutException",
            _NO_ADDRESS,
        ),
        "no broker answers",
        "see that it runs, that bootstrap_servers names it, and that kafka.security.protocol is "
        "the listener's",
    ),
    (
        (f"{_ERRORS}.UnknownTopicOrPartitionException", f"{_ERRORS}.UnknownTopicIdException"),
        "a topic has just gone",
        "run again; if it stays away, correct the configuration",
    ),
    (
        (
            f"{_ERRORS}.OffsetOutOfRangeException",
            "org.apache.kafka.clients.consumer.OffsetOutOfRangeException",
            _DATA_LOSS,
        ),
        "records went away while they were read, by retention or with their topic",
        "run again: what is lost is said then",
    ),
    (
        (
            "org.apache.kafka.common.config.ConfigException",
            "javax.security.auth.login.LoginException",
            "java.lang.IllegalArgumentException",
        ),
        "an option is wrong",
        "correct landing.kafka.options",
    ),
)  # fmt: skip


def _is_data_loss(cause: Cause) -> bool:
    return cause.condition.startswith("KAFKA_DATA_LOSS")


def _signs(cause: Cause) -> set[str]:
    """What tells the kinds of `_WHY` apart: classes, and the two that have none."""
    has_no_address = _NO_ADDRESS in cause.message
    return {
        *cause.classes,
        *([_NO_ADDRESS] if has_no_address else ()),
        *([_DATA_LOSS] if _is_data_loss(cause) else ()),
    }


def failed(source: str, config: KafkaConfig, error: Exception) -> LandingError:
    """The error of Kafka in words: what happened, and what to do; without secrets."""
    chain = causes(error)
    shown = [cause for cause in chain if not cause.is_a("java.util.concurrent.ExecutionException")]
    what = "; ".join(dict.fromkeys(map(str, shown[-2:]))) or first_line(error)
    why, remedy = "Kafka can't be read", "see the log"
    found = set().union(*map(_signs, chain))
    for signs, reason, then in _WHY:
        if not found.isdisjoint(signs):
            why, remedy = reason, then
            break
    told = without_secrets(f"{why} ({what})", config)
    return LandingError(
        source, f"{config.bootstrap_servers}: {told}; nothing was landed. To go on: {remedy}"
    )


def without_secrets(text: str, config: KafkaConfig) -> str:
    """A text in which no value of a secret option stands, whole or in part."""
    secrets: set[str] = set()
    for name, value in config.options.items():
        if _SECRET.search(name):
            secrets |= {value, *re.findall(r"""["']([^"']+)["']""", value)}
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


class _Explained:
    """Turns Kafka's exceptions into a :class:`LandingError`; their own text may hold secrets.

    Where a block commits to a lake as well, the lake's exceptions stay what they are, and so do
    those of a Spark that is gone.
    """

    def __init__(self, source: str, config: KafkaConfig, lake: Lake | None = None) -> None:
        self._source, self._config, self._lake = source, config, lake

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if isinstance(error, JAVA_ERRORS) and not self._is_others(error):
            raise failed(self._source, self._config, error) from None

    def _is_others(self, error: Exception) -> bool:
        if self._lake is None or any(map(_is_of_kafka, causes(error))):
            return False
        return is_lost(error) or lake_error(error, self._lake.config) is not None


def _is_of_kafka(cause: Cause) -> bool:
    return _is_data_loss(cause) or any(
        name.startswith(("org.apache.kafka.", "org.apache.spark.sql.kafka010."))
        for name in cause.classes
    )


# --- the offsets of days


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
                f"landed (retention, or deleted); the first still there is {found.first[place]}"
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


def _named(place: Place) -> str:
    return f"{place[0]} [{place[1]}]"


def _day_before(asked: Asked) -> KafkaDay | None:
    return asked.recorded.get(asked.day - _ONE_DAY)


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


def _recreated(asked: Asked, place: Place, topic_id: str, found: Found) -> str | None:
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


def _recorded_around(asked: Asked, place: Place, topic_id: str) -> tuple[int, int | None]:
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


def _start(asked: Asked, place: Place, topic_id: str, found: Found) -> int:
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


def _first_of(place: Place, found: Found) -> int:
    return found.first[place]


def _end(asked: Asked, place: Place, topic_id: str, found: Found) -> int:
    own = asked.own.range_of(place, topic_id) if asked.own else None
    if own is not None and asked.own is not None and asked.own.closed:
        return own[1]
    after = asked.recorded.get(asked.day + _ONE_DAY)
    if after is not None and (known := after.range_of(place, topic_id)):
        return known[0]
    reached = found.boundary(place, asked.end_ms)
    if own is not None:
        # What a producer's wrong clock dated into the next day, and landed today, stays today's.
        reached = max(reached, min(own[1], found.end[place]))
    _, later = _recorded_around(asked, place, topic_id)
    return reached if later is None else min(reached, later)


def _read_from(asked: Asked, place: Place, topic_id: str, start: int) -> int:
    """Rows that were landed while the day was open are kept: only what follows is read."""
    own = asked.own
    known = own.range_of(place, topic_id) if own is not None and not own.closed else None
    return max(start, known[1]) if known is not None else start


def _nothing_left(asked: Asked, place: Place, topic_id: str, found: Found) -> str | None:
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
        f"records of {asked.day} may have been among them; no earlier record is left to tell"
    )


# --- landing


def land_offsets(
    lake: Lake,
    name: str,
    identifier: str,
    days: Sequence[date],
    force: bool = False,
    allow_loss: bool = False,
) -> list[KafkaDay]:
    """Land some days in one commit, those that are closed already left as they are.

    `force` reads closed days again, too: the same offsets.

    Raises:
        LandingError: Kafka can't be asked, or a day can't be landed whole and `allow_loss` does
            not say otherwise; then no day of this call is landed.
    """
    config = lake.config.source(name).landing.kafka
    assert config is not None
    commits = lake.day_commits(identifier)
    recorded = {
        day: known for day, c in commits.items() if (known := KafkaDay.of_inputs(day, c.inputs))
    }
    wanted = [d for d in days if force or d not in recorded or not recorded[d].closed]
    _refuse_landed_files(
        name, [d for d in wanted if d in commits and d not in recorded], allow_loss
    )
    if wanted:
        planned, found = _plan_days(lake, name, config, wanted, recorded, allow_loss)
        new = {d: p for d, p in planned.items() if force or p != recorded.get(d)}
        if new:
            with keeping() as kept, _Explained(name, config, lake):
                rows = _rows(lake, name, config, identifier, new, recorded, commits, found)
                if force and not allow_loss:
                    rows = kept.keep(rows)
                    _refuse_less(lake, name, identifier, rows, list(new))
                inputs = {day: of_day.to_inputs() for day, of_day in new.items()}
                lake.overwrite_days(identifier, rows, inputs, commits.head)
        recorded |= planned
    return [recorded[day] for day in days]


def _plan_days(
    lake: Lake,
    name: str,
    config: KafkaConfig,
    days: Sequence[date],
    recorded: Mapping[date, KafkaDay],
    allow_loss: bool,
) -> tuple[dict[date, KafkaDay], Found]:
    ends = {d: _millis(lake.config.end_of(d)) for of in days for d in (of - _ONE_DAY, of)}
    # Before Kafka is asked: a day that ends meanwhile is closed the next time.
    is_over = {day: not lake.config.is_open(day) for day in days}
    with Client(lake.spark, name, config) as client:
        found = client.find(ends.values())
    found = _without_dated_ahead(lake.spark, name, config, found, recorded)
    known, planned = dict(recorded), {}
    for day in sorted(days):
        asked = Asked(
            day=day,
            start_ms=ends[day - _ONE_DAY],
            end_ms=ends[day],
            is_over=is_over[day],
            is_first=day == lake.config.start_date,
            recorded=known,
        )
        planned[day] = known[day] = plan(name, asked, found, allow_loss)
    return planned, found


def _without_dated_ahead(
    spark: SparkSession,
    name: str,
    config: KafkaConfig,
    found: Found,
    recorded: Mapping[date, KafkaDay],
) -> Found:
    """What Kafka has, where no record that is dated ahead of now ends a day.

    One wrong clock would otherwise hold up the landing until its date has come. Kafka's index
    knows the first such record only, so what follows it is looked through.
    """
    now = _millis(datetime.now(timezone.utc))
    at = {instant: dict(places) for instant, places in found.at.items()}
    look: dict[Place, Range] = {}
    for instant, places in at.items():
        for place, (offset, timestamp) in list(places.items()):
            if offset >= 0 and timestamp > now:
                places[place] = (-1, -1)
                if instant <= now:
                    first = min(offset, look.get(place, (offset, 0))[0])
                    look[place] = (first, found.end[place])
    if not look:
        return replace(found, at=at)
    for place, (first, end) in look.items():
        landed = [r[1] for d in recorded.values() if (r := d.range_of(place, found.ids[place[0]]))]
        look[place] = (max(first, found.first[place], *landed), end)
    rows = read_offsets(spark, name, config, {date(1970, 1, 1): look})
    dated = F.unix_millis("timestamp")
    instants = [instant for instant in at if instant <= now]
    with _Explained(name, config):
        honest = (
            rows.where(dated <= now)
            .groupBy("topic", "partition")
            .agg(*(F.min(F.when(dated >= i, F.col("offset"))).alias(f"at_{i}") for i in instants))
            .collect()
        )
    for row in honest:
        for instant in instants:
            place = (row.topic, row.partition)
            if at[instant][place][0] < 0 and row[f"at_{instant}"] is not None:
                at[instant][place] = (row[f"at_{instant}"], instant)
    return replace(found, at=at)


def _millis(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)


def _rows(
    lake: Lake,
    name: str,
    config: KafkaConfig,
    identifier: str,
    days: Mapping[date, KafkaDay],
    recorded: Mapping[date, KafkaDay],
    commits: DayCommits,
    found: Found,
) -> DataFrame:
    """The rows of some days: what an open day has already, and the rest from Kafka."""
    to_read: dict[date, dict[Place, Range]] = {}
    frames = []
    for day, of_day in days.items():
        old = recorded.get(day)
        has: dict[Place, int] = {}
        if old is not None and not old.closed:
            for place, (_, end) in of_day.ranges.items():
                if known := old.range_of(place, of_day.topics[place[0]].topic_id):
                    has[place] = min(known[1], end)
            assert commits.head is not None  # a recorded day has a commit
            landed = lake.at(identifier, commits.head)
            frames.append(_only(landed.where(F.col("landing_date") == F.lit(day)), has))
        to_read[day] = {
            place: (max(start, has.get(place, 0), min(found.first.get(place, 0), end)), end)
            for place, (start, end) in of_day.ranges.items()
        }
    rows = read_offsets(lake.spark, name, config, to_read)
    for frame in frames:
        rows = rows.unionByName(frame)
    return rows


def _only(rows: DataFrame, below: Mapping[Place, int]) -> DataFrame:
    """The rows of some partitions, below an offset each."""
    wanted = rows.sparkSession.createDataFrame(
        [(topic, partition, end) for (topic, partition), end in below.items()],
        "of_topic string, of_partition int, below bigint",
    )
    is_wanted = (
        (F.col("topic") == F.col("of_topic"))
        & (F.col("partition") == F.col("of_partition"))
        & (F.col("offset") < F.col("below"))
    )
    return rows.join(F.broadcast(wanted), is_wanted, "left_semi").select(*LANDING.names)


def _refuse_landed_files(name: str, days: Sequence[date], allow_loss: bool) -> None:
    if days and not allow_loss:
        raise LandingError(
            name,
            f"{', '.join(map(str, days))} landed from files before; Kafka may have less of it. "
            "Give the Kafka source another name, or replace the days with --allow-loss",
        )


def _refuse_less(
    lake: Lake, name: str, identifier: str, rows: DataFrame, days: Sequence[date]
) -> None:
    """A topic that was compacted since has fewer records than were landed."""

    def count(frame: DataFrame) -> dict[date, int]:
        within = frame.where(F.col("landing_date").isin([F.lit(d) for d in days]))
        return {r.landing_date: r["n"] for r in within.groupBy("landing_date").agg(
            F.count("*").alias("n")).collect()}  # fmt: skip

    landed, again = count(lake.spark.table(identifier)), count(rows)
    less = [
        f"{d}: {landed[d]} landed, {again.get(d, 0)} left"
        for d in days
        if landed.get(d, 0) > again.get(d, 0)
    ]
    if less:
        raise LandingError(
            name,
            f"Kafka has fewer records than were landed ({'; '.join(less)}), as after compaction; "
            "the landed days stay as they are. --allow-loss replaces them",
        )


# --- reading


def read_offsets(
    spark: SparkSession,
    source: str,
    config: KafkaConfig,
    ranges: Mapping[date, Mapping[Place, Range]],
) -> DataFrame:
    """The records of some days' offsets: the columns of `LANDING`, one row a record.

    One read for all days, which must lie side by side in each partition. Offsets without a
    record (compaction, transaction marks, aborted transactions) give no row.

    Raises:
        LandingError: a broker can't be asked. Offsets that have gone fail the rows' own job.
    """
    add_kafka(spark)
    wanted = [
        (topic, partition, start, end, day)
        for day, of_day in ranges.items()
        for (topic, partition), (start, end) in of_day.items()
        if end > start
    ]
    if not wanted:
        return spark.createDataFrame([], LANDING)
    first: dict[str, dict[str, int]] = {}
    last: dict[str, dict[str, int]] = {}
    for topic, partition, start, end, _ in wanted:
        starts, ends = first.setdefault(topic, {}), last.setdefault(topic, {})
        starts[str(partition)] = min(start, starts.get(str(partition), start))
        ends[str(partition)] = max(end, ends.get(str(partition), end))
    reader = spark.read.format("kafka").options(
        **{
            **config.options,
            "kafka.bootstrap.servers": config.bootstrap_servers,
            "kafka.isolation.level": "read_committed",
            "assign": json.dumps({t: [int(p) for p in ps] for t, ps in first.items()}),
            "startingOffsets": json.dumps(first),
            "endingOffsets": json.dumps(last),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            # A partition is read by one core unless its offsets are split.
            "minPartitions": str(spark.sparkContext.defaultParallelism),
        }
    )
    with _Explained(source, config):
        records = reader.load()
    days = spark.createDataFrame(
        wanted,
        "of_topic string, of_partition int, first bigint, after bigint, landing_date date",
    )
    within = (
        (F.col("topic") == F.col("of_topic"))
        & (F.col("partition") == F.col("of_partition"))
        & (F.col("offset") >= F.col("first"))
        & (F.col("offset") < F.col("after"))
    )
    return records.join(F.broadcast(days), within).select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "value",
        F.col("headers").cast(LANDING["headers"].dataType).alias("headers"),
        "landing_date",
        F.lit(None).cast("string").alias("file"),
    )


def read_latest(
    spark: SparkSession, source: str, config: KafkaConfig, records: int = 100
) -> DataFrame:
    """The last committed records of each partition of a source: the columns of `LANDING`.

    At most `records` a partition (fewer where offsets have no record); `landing_date` is the
    day of the record's timestamp in UTC. Nothing is recorded.

    Raises:
        LandingError: Kafka can't be asked, or a topic is missing.
    """
    with Client(spark, source, config) as client:
        found = client.find()
    ranges = {
        place: (max(found.first[place], end - records), end) for place, end in found.end.items()
    }
    rows = read_offsets(spark, source, config, {date(1970, 1, 1): ranges})
    return rows.withColumn("landing_date", F.to_date("timestamp"))
