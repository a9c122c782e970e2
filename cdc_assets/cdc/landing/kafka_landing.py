"""A landing from Kafka: the offsets of a day become landing rows.

Day D of a partition is ``[end of D-1, end of D)``. The end is the first offset whose Kafka
timestamp is at or after the day's end; until there is one, the end of the committed records.
The commit records the day's offsets. They never change for a closed day, and the next day starts
at their end: every offset lands exactly once. A day that landed while it was open keeps its rows
and adds the records since.

Offsets come from Kafka's AdminClient in Spark's JVM: it takes the options of Spark's readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.config import KafkaConfig
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.lake import schemas
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.checkpoints import local_checkpoints
from cdc_assets.cdc.lake.commits import DayCommits
from cdc_assets.cdc.landing.kafka import read_offsets
from cdc_assets.cdc.landing.kafka_client import Client, Explained
from cdc_assets.cdc.landing.kafka_plan import (
    ONE_DAY,
    DayRequest,
    Found,
    KafkaDay,
    Range,
    TopicPartition,
    plan,
)
from cdc_assets.cdc.landing.source import LANDING, LandingSource, stale_days
from cdc_assets.cdc.reading_progress import expect
from cdc_assets.cdc.sqltext import local_frame

Recorded = Mapping[date, KafkaDay]


class KafkaLanding(LandingSource[KafkaDay]):
    """Topics of a Kafka cluster; a day that landed after its end is closed and never changes."""

    kind = "kafka"

    @property
    def kafka(self) -> KafkaConfig:
        """The cluster and its topics."""
        assert self.settings.landing.kafka is not None
        return self.settings.landing.kafka

    def inputs(self, days: Sequence[date]) -> dict[date, Mapping[str, Any]]:
        """A closed day, see :meth:`LandingSource.inputs`; an open one may still grow."""
        return {day: {"closed": True} for day in days}

    def land(
        self,
        lake: Lake,
        landed: DayCommits,
        days: Sequence[date],
        force: bool = False,
        allow_loss: bool = False,
    ) -> list[KafkaDay]:
        """See :meth:`LandingSource.land`; `force` reads closed days again, by the same offsets.

        Raises:
            LandingError: Kafka does not answer, or a day can't be landed whole and `allow_loss` is
                false.
        """
        recorded = {
            d: known for d, c in landed.items() if (known := KafkaDay.from_inputs(d, c.inputs))
        }
        wanted = list(days) if force else stale_days(landed, self.inputs(days))
        if not allow_loss:
            self._refuse_landed_files([d for d in wanted if d in landed and d not in recorded])
        if wanted:
            planned, found = self._plan_days(lake, wanted, recorded, allow_loss)
            new = {d: p for d, p in planned.items() if force or p != recorded.get(d)}
            if new:
                refuses_less = force and not allow_loss
                self._write(lake, landed.head, new, recorded, found, refuses_less)
            recorded |= planned
        return [recorded[day] for day in days]

    def _refuse_landed_files(self, days: Sequence[date]) -> None:
        if days:
            raise LandingError(
                self.source,
                f"{', '.join(map(str, days))} landed from files before; Kafka may have less of it. "
                "Give the Kafka source another name, or replace the days with --allow-loss",
            )

    def _plan_days(
        self, lake: Lake, days: Sequence[date], recorded: Recorded, allow_loss: bool
    ) -> tuple[dict[date, KafkaDay], Found]:
        ends = {d: _millis(self.config.end_of(d)) for end in days for d in (end - ONE_DAY, end)}
        # Checked before Kafka answers: a day that ends meanwhile is closed by the next run.
        is_over = {day: not self.config.is_open(day) for day in days}
        with Client(lake.spark, self.source, self.kafka) as client:
            found = client.find(ends.values())
        found = self._ignore_future_timestamps(lake, found, recorded)
        known, planned = dict(recorded), {}
        for day in sorted(days):
            request = DayRequest(
                day=day,
                start_ms=ends[day - ONE_DAY],
                end_ms=ends[day],
                is_over=is_over[day],
                is_first=day == self.config.start_date,
                recorded=known,
            )
            planned[day] = known[day] = plan(self.source, request, found, allow_loss)
        return planned, found

    def _ignore_future_timestamps(self, lake: Lake, found: Found, recorded: Recorded) -> Found:
        """Ignore future timestamps when finding a day's end offset.

        Otherwise one wrong clock would stop the landing until its date. Kafka's index gives only
        the first such record, so the records after it are searched.
        """
        now = _millis(datetime.now(timezone.utc))
        at, to_search = _without_future(found, now)
        if not to_search:
            return replace(found, at=at)
        for place, (first, end) in to_search.items():
            topic_id = found.ids[place[0]]
            landed = [r[1] for d in recorded.values() if (r := d.range_of(place, topic_id))]
            to_search[place] = (max(first, found.first[place], *landed), end)
        rows = read_offsets(lake.spark, self.source, self.kafka, {date(1970, 1, 1): to_search})
        timestamp_ms = F.unix_millis("timestamp")
        instants = [instant for instant in at if instant <= now]
        with Explained(self.source, self.kafka):
            first_offsets = (
                rows.where(timestamp_ms <= now)
                .groupBy("topic", "partition")
                .agg(
                    *(
                        F.min(F.when(timestamp_ms >= i, F.col("offset"))).alias(f"at_{i}")
                        for i in instants
                    )
                )
                .collect()
            )
        for row in first_offsets:
            for instant in instants:
                place = (row.topic, row.partition)
                if at[instant][place][0] < 0 and row[f"at_{instant}"] is not None:
                    at[instant][place] = (row[f"at_{instant}"], instant)
        return replace(found, at=at)

    def _write(
        self,
        lake: Lake,
        head: int | None,
        new: Recorded,
        recorded: Recorded,
        found: Found,
        refuses_less: bool,
    ) -> None:
        identifier = lake.stage(self.source, LANDING)
        expect(rows=sum(planned.span for planned in new.values()))
        with local_checkpoints() as checkpoints, Explained(self.source, self.kafka, lake):
            rows = self._rows(lake, head, new, recorded, found)
            if refuses_less:
                rows = checkpoints.add(rows)
                stored = lake.spark.table(identifier)
                refuse_fewer(self.source, "Kafka", stored, rows, list(new))
            inputs = {day: planned.to_inputs() for day, planned in new.items()}
            lake.overwrite_days(identifier, rows, inputs, head)

    def _rows(
        self, lake: Lake, head: int | None, new: Recorded, recorded: Recorded, found: Found
    ) -> DataFrame:
        """The rows of some days: the landed rows of open days, and the rest from Kafka."""
        to_read: dict[date, dict[TopicPartition, Range]] = {}
        frames = []
        for day, planned in new.items():
            old = recorded.get(day)
            has: dict[TopicPartition, int] = {}
            if old is not None and not old.closed:
                for place, (_, end) in planned.ranges.items():
                    if known := old.range_of(place, planned.topics[place[0]].topic_id):
                        has[place] = min(known[1], end)
                assert head is not None  # a recorded day has a commit
                landed = lake.at(lake.stage(self.source, LANDING), head)
                frames.append(_only(landed.where(F.col("landing_date") == F.lit(day)), has))
            to_read[day] = {
                place: (max(start, has.get(place, 0), min(found.first.get(place, 0), end)), end)
                for place, (start, end) in planned.ranges.items()
            }
        rows = read_offsets(lake.spark, self.source, self.kafka, to_read)
        for frame in frames:
            rows = rows.unionByName(frame)
        return rows


def refuse_fewer(
    source: str, origin: str, stored: DataFrame, rows: DataFrame, days: Sequence[date]
) -> None:
    """Refuse days with fewer records than landed, as after compaction; a job each.

    Args:
        source: the source.
        origin: what has the records, for the message.
        stored: the landing.
        rows: its rows as they would be.
        days: the days to compare.
    """
    landed, again = _count_by_day(stored, days), _count_by_day(rows, days)
    less = [
        f"{d}: {landed[d]} landed, {again.get(d, 0)} left"
        for d in days
        if landed.get(d, 0) > again.get(d, 0)
    ]
    if less:
        raise LandingError(
            source,
            f"{origin} has fewer records than were landed ({'; '.join(less)}), as after "
            "compaction; the landed days stay as they are. --allow-loss replaces them",
        )


Places = dict[TopicPartition, tuple[int, int]]  # offset and timestamp of a record


def _without_future(
    found: Found, now: int
) -> tuple[dict[int, Places], dict[TopicPartition, Range]]:
    """The offsets at instants without records from the future, and the ranges to search."""
    at = {instant: dict(places) for instant, places in found.at.items()}
    to_search: dict[TopicPartition, Range] = {}
    for instant, places in at.items():
        for place, (offset, timestamp) in list(places.items()):
            if offset >= 0 and timestamp > now:
                places[place] = (-1, -1)
                if instant <= now:
                    first = min(offset, to_search.get(place, (offset, 0))[0])
                    to_search[place] = (first, found.end[place])
    return at, to_search


def _millis(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)


def _only(rows: DataFrame, below: Mapping[TopicPartition, int]) -> DataFrame:
    """The rows of these partitions below an offset of each."""
    wanted = local_frame(
        rows.sparkSession,
        [(topic, partition, end) for (topic, partition), end in below.items()],
        "wanted_topic string, wanted_partition int, below bigint",
    )
    is_wanted = (
        (F.col("topic") == F.col("wanted_topic"))
        & (F.col("partition") == F.col("wanted_partition"))
        & (F.col("offset") < F.col("below"))
    )
    wanted_rows = rows.join(F.broadcast(wanted), is_wanted, "left_semi")
    return wanted_rows.select(*schemas.LANDING.names)


def _count_by_day(rows: DataFrame, days: Sequence[date]) -> dict[date, int]:
    within = rows.where(F.col("landing_date").isin([F.lit(d) for d in days]))
    counted = within.groupBy("landing_date").agg(F.count("*").alias("n")).collect()
    return {row.landing_date: row["n"] for row in counted}
