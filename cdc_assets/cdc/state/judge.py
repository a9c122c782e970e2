"""Judging a source's streams day by day, and keeping what was found (FORMATS O11)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from itertools import groupby
from typing import Any

from pyspark.sql import Row

from cdc_assets.cdc.changes.facts import read_facts
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayCommit
from cdc_assets.cdc.lake.iceberg_rows import iceberg_rows
from cdc_assets.cdc.positions import stream_of, time_in_day
from cdc_assets.cdc.sqltext import Query, Sql, case, literal, local_frame
from cdc_assets.cdc.state.epochs import SourceEpochs, joined_first
from cdc_assets.cdc.state.takeovers import Landed, PartitionFacts, Stream, judged

TABLE, COMMENT = "epochs", "what is known of the source's streams at the end of a day"
# What is known is kept where it changes, else of each so many days: the facts of those between are
# read again, which are few rows.
_KEPT_EVERY = 16

Commits = Mapping[date, DayCommit]


@dataclass(frozen=True)
class Kept:
    """What is known of a source's streams at the end of a day; `day` None: nothing yet."""

    day: date | None
    epochs: SourceEpochs


def newest_kept(lake: Lake, source: str, changes: Commits) -> Kept:
    """The newest that was kept and still holds; what a later day found holds for earlier ones, too.

    Args:
        changes: the days of `changes`.
    """
    known = lake.day_commits(source, TABLE)
    valid = (d for d, commit in known.items() if commit.inputs["changes"] == _of(changes, d))
    day = max(valid, default=None)
    if day is None:
        return Kept(None, SourceEpochs())
    handle = lake.handle(lake.stage(source, TABLE))
    with iceberg_rows(lake.spark, handle, equal={"landing_date": _days(day)}) as rows:
        (document,) = (str(row.getField("streams")) for row in rows)
    return Kept(day, SourceEpochs.read(json.loads(document)))


def _days(day: date) -> int:
    return (day - date(1970, 1, 1)).days


def _of(changes: Commits, until: date) -> str:
    """What the days of `changes` up to one are, as a hash."""
    made = [[str(day), c.snapshot_id] for day, c in sorted(changes.items()) if day <= until]
    return hashlib.sha256(json.dumps(made).encode()).hexdigest()[:16]


def days_to_judge(kept: Kept, changes: Commits, until: date) -> list[date]:
    """The days whose facts tell what came after what is kept."""
    return sorted(d for d in changes if d <= until and (kept.day is None or d > kept.day))


def judge(
    lake: Lake, source: str, kept: Kept, days: Sequence[date], facts: Sequence[Row]
) -> SourceEpochs:
    """What is known of a source's streams at the end of some days.

    Args:
        kept: at the end of the day before.
        days: in order.
        facts: rows of `facts`, those of these days among them.
    """
    streams, first = dict(kept.epochs.streams), kept.epochs.first
    wanted = set(days)
    own = [f for f in facts if f.stream is not None and f.landing_date in wanted]
    own.sort(key=lambda f: (f.landing_date, f.stream, f.topic, f.partition))
    seen = ((f.table_name, f.stream, f.first_kafka_ms) for f in own if f.first_kafka_ms is not None)
    for (day, stream), rows in groupby(own, lambda f: (f.landing_date, f.stream)):
        partitions = _by_partition(list(rows))
        read = partial(_landed, lake, source, stream, day)
        streams[stream] = judged(streams.get(stream, Stream(stream)), day, partitions, read)
    return SourceEpochs(streams, joined_first(first, seen))


def keep(
    lake: Lake, source: str, changes: Commits, kept: Kept, day: date, epochs: SourceEpochs
) -> None:
    """Keep what is known at the end of a day, where that is news or the last time is long ago."""
    is_known = kept.day is not None and epochs.found == kept.epochs.found
    if is_known and kept.day is not None and day - kept.day < timedelta(days=_KEPT_EVERY):
        return
    if kept.day is None and not epochs.found and len(changes) < _KEPT_EVERY:
        return
    identifier = lake.create_stage(source, TABLE, columns.EPOCHS, COMMENT)
    head = lake.day_commits(source, TABLE).head
    row = (day, json.dumps(epochs.as_json()))
    rows = local_frame(lake.spark, [row], columns.EPOCHS)
    inputs = {day: {"changes": _of(changes, day), "found": epochs.found}}
    lake.overwrite_days(identifier, rows, inputs, head)


def _by_partition(facts: Sequence[Row]) -> list[PartitionFacts]:
    """The facts of a stream's day by partition, over its tables."""
    return [
        _joined(topic, partition, list(rows))
        for (topic, partition), rows in groupby(facts, lambda f: (f.topic, f.partition))
    ]


def _joined(topic: str, partition: int, facts: Sequence[Row]) -> PartitionFacts:
    def least(of: str) -> Any:
        return min((f[of] for f in facts if f[of] is not None), default=None)

    def most(of: str) -> Any:
        return max((f[of] for f in facts if f[of] is not None), default=None)

    with_element = [f for f in facts if f.highest is not None]
    top = max(with_element, key=lambda f: (tuple(f.highest), f.highest_offset), default=None)
    lowest = least("lowest")
    return PartitionFacts(
        topic,
        partition,
        streamed=sum(f.records for f in facts),
        judged=sum(f.judged for f in facts),
        first_offset=least("first_offset"),
        last_offset=most("last_offset"),
        last_streamed_offset=most("last_streamed_offset"),
        first_kafka_ms=least("first_kafka_ms"),
        last_kafka_ms=most("last_kafka_ms"),
        last_source_ts_ms=most("last_source_ts_ms"),
        lowest=None if lowest is None else tuple(lowest),
        highest=None if top is None else tuple(top.highest),
        highest_offset=None if top is None else top.highest_offset,
        highest_kafka_ms=None if top is None else top.highest_kafka_ms,
        falls_later=sum(f.falls_later for f in facts),
    )


def epochs_until(lake: Lake, source: str, until: date) -> SourceEpochs:
    """What is known of a source's streams at the end of a day; what is found is kept."""
    changes = lake.day_commits(source, "changes")
    kept = newest_kept(lake, source, changes)
    days = days_to_judge(kept, changes, until)
    epochs = judge(lake, source, kept, days, read_facts(lake, source, days, []))
    if days:
        keep(lake, source, changes, kept, days[-1], epochs)
    return epochs


@dataclass(frozen=True)
class OutOfOrder:
    """Events of a table that lie below earlier ones of their partition, and repeat nothing.

    `is_overtaken`: or that its former stream sent after the next one had begun.
    """

    table: str
    stream: str
    events: int
    since_ms: int  # the Kafka timestamp of the first
    is_overtaken: bool


def _counted(events: Query, is_overtaken: bool) -> list[OutOfOrder]:
    """By table and stream, of events that have `time`: a job."""
    found = events.aggregate(
        ("table_name", "stream"), {"events": "count(*)", "since": "min(time)"}
    ).plan()
    rows = found.orderBy("table_name", "stream").collect()
    return [OutOfOrder(r.table_name, r.stream, r.events, r.since, is_overtaken) for r in rows]


def unexplained_falls(lake: Lake, source: str, day: date, epochs: SourceEpochs) -> list[OutOfOrder]:
    """What falls on a day within an epoch, and is no copy: a job."""
    in_order = (
        "OVER (PARTITION BY stream, topic, partition, epoch ORDER BY offset "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    events = (
        _events(lake, source, day)
        .where("NOT is_read AND stream_element IS NOT NULL")
        .extend({"epoch": epoch_sql(epochs, "time")})
        .extend({"highest": f"max(stream_element) {in_order}"})
        .where("stream_element < highest AND NOT is_copy")
    )
    return _counted(events, is_overtaken=False)


def overtaken(lake: Lake, source: str, day: date, epochs: SourceEpochs) -> list[OutOfOrder]:
    """What former streams of tables send on a day: a job, none where no table has two."""
    several = {t: of for t in sorted(epochs.first) if len((of := epochs.for_table(t)).streams) > 1}
    if not several:
        return []
    conditions = (
        (f"table_name = {literal(table)}", of.is_overtaken_sql("time"))
        for table, of in several.items()
    )
    events = (
        Query(lake.stage_days(source, "changes", [day]))
        .where("position IS NOT NULL")
        .extend(
            {
                "stream": stream_of("connector", "server", "db"),
                "time": time_in_day(lake.config.timezone),
            }
        )
        .where(case(*conditions, otherwise="false"))
    )
    return _counted(events, is_overtaken=True)


def has_several_streams(lake: Lake, source: str) -> bool:
    """Is it known that tables of a source come from several streams, one after the other?"""
    known = lake.day_commits(source, TABLE)
    return bool(known) and bool(known[max(known)].inputs["found"].get("streams"))


def epoch_sql(epochs: SourceEpochs, kafka_time: Sql) -> Sql:
    """The epoch of an event of any table."""
    found = ((table, epochs.for_table(table)) for table in sorted(epochs.first))
    several = (
        (f"table_name = {literal(table)}", epochs_of_table.sql(kafka_time))
        for table, epochs_of_table in found
        if epochs_of_table.count > 1
    )
    return case(*several, otherwise="0L")


def _landed(lake: Lake, source: str, stream: str, day: date) -> Iterator[Landed]:
    """A stream's events of a day, in the order in which they are judged; a job."""
    events = _events(lake, source, day).where(f"stream = {literal(stream)}").plan()
    for row in events.orderBy("time", "topic", "partition", "offset").toLocalIterator():
        element = None if row.stream_element is None else tuple(row.stream_element)
        yield Landed(
            row.topic,
            row.partition,
            row.offset,
            row.time,
            row.source_ts_ms,
            element,
            row.is_read,
            row.is_copy,
        )


def _events(lake: Lake, source: str, day: date) -> Query:
    """The events of a day that say their stream, and whether they are copies of earlier ones."""
    window = lake.config.source(source).late_days
    days = [day - timedelta(days=n) for n in range(window, -1, -1)]
    place = "landing_date, time, topic, partition, offset, position"
    told_by = "topic, table_name, is_read, key, op, before, after, old_key, new_key"
    return (
        Query(lake.stage_days(source, "changes", days))
        .extend(
            {
                "stream": stream_of("connector", "server", "db"),
                "time": time_in_day(lake.config.timezone),
                "is_read": "position IS NULL",
                "gtid": "get_json_object(identity, '$.gtid')",
            }
        )
        .where("stream IS NOT NULL AND source_op IS NOT NULL")
        .extend(
            {
                "nth": f"row_number() OVER (PARTITION BY {told_by}, source_elements, identity "
                f"ORDER BY {place})",
                "nth_of_gtid": case(
                    (
                        "gtid IS NOT NULL",
                        f"row_number() OVER (PARTITION BY {told_by}, gtid ORDER BY {place})",
                    )
                ),
            }
        )
        .where(f"landing_date = {literal(day)}")
        .select(
            *("stream", "table_name", "topic", "partition", "offset", "time", "source_ts_ms"),
            *("connector", "server", "db", "stream_element", "is_read"),
            "nth > 1 OR coalesce(nth_of_gtid > 1, false) AS is_copy",
        )
    )
