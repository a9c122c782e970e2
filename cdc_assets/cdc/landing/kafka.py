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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc.config import KafkaConfig
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.expected import expect
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.checkpoints import local_checkpoints
from cdc_assets.cdc.lake.commits import DayCommits
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets.cdc.landing.kafka_client import Client, Explained
from cdc_assets.cdc.landing.kafka_plan import (
    ONE_DAY,
    Asked,
    Found,
    KafkaDay,
    Range,
    TopicPartition,
    plan,
)
from cdc_assets.cdc.made_of import not_closed
from cdc_assets.cdc.spark import add_kafka


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
    commits = lake.day_commits(name, "landing")
    recorded = {
        day: known for day, c in commits.items() if (known := KafkaDay.of_inputs(day, c.inputs))
    }
    wanted = list(days) if force else not_closed(commits, days)
    _refuse_landed_files(
        name, [d for d in wanted if d in commits and d not in recorded], allow_loss
    )
    if wanted:
        planned, found = _plan_days(lake, name, config, wanted, recorded, allow_loss)
        new = {d: p for d, p in planned.items() if force or p != recorded.get(d)}
        if new:
            expect(rows=sum(of_day.span for of_day in new.values()))
            with local_checkpoints() as checkpoints, Explained(name, config, lake):
                rows = _rows(lake, name, config, identifier, new, recorded, commits, found)
                if force and not allow_loss:
                    rows = checkpoints.add(rows)
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
    ends = {d: _millis(lake.config.end_of(d)) for of in days for d in (of - ONE_DAY, of)}
    # Before Kafka is asked: a day that ends meanwhile is closed the next time.
    is_over = {day: not lake.config.is_open(day) for day in days}
    with Client(lake.spark, name, config) as client:
        found = client.find(ends.values())
    found = _ignore_future_timestamps(lake.spark, name, config, found, recorded)
    known, planned = dict(recorded), {}
    for day in sorted(days):
        asked = Asked(
            day=day,
            start_ms=ends[day - ONE_DAY],
            end_ms=ends[day],
            is_over=is_over[day],
            is_first=day == lake.config.start_date,
            recorded=known,
        )
        planned[day] = known[day] = plan(name, asked, found, allow_loss)
    return planned, found


def _ignore_future_timestamps(
    spark: SparkSession,
    name: str,
    config: KafkaConfig,
    found: Found,
    recorded: Mapping[date, KafkaDay],
) -> Found:
    """Ignore future timestamps when finding a day's end offset.

    Otherwise one wrong clock would stop the landing until its date has come. Kafka's index gives
    only the first such record, so the records after it are searched.
    """
    now = _millis(datetime.now(timezone.utc))
    at = {instant: dict(places) for instant, places in found.at.items()}
    look: dict[TopicPartition, Range] = {}
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
    with Explained(name, config):
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
    to_read: dict[date, dict[TopicPartition, Range]] = {}
    frames = []
    for day, of_day in days.items():
        old = recorded.get(day)
        has: dict[TopicPartition, int] = {}
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


def _only(rows: DataFrame, below: Mapping[TopicPartition, int]) -> DataFrame:
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


def read_offsets(
    spark: SparkSession,
    source: str,
    config: KafkaConfig,
    ranges: Mapping[date, Mapping[TopicPartition, Range]],
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
    with Explained(source, config):
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
