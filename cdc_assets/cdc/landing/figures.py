"""Records and offsets that landed on some days, counted in one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.sql import Row
from pyspark.sql import functions as F

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.landing.kafka_plan import ONE_DAY, TopicPartition

Offsets = Mapping[TopicPartition, Row]  # `first, last, offsets, with_offset` of each partition


@dataclass(frozen=True)
class LandedFigures:
    """Figures of some days, and of the day before the first of them.

    `records` counts what landed, including records removed since; days without records are left
    out. `offsets` describes the rows in the table now.
    """

    records: Mapping[date, int]
    offsets: Mapping[date, Offsets]


def count_landed(lake: Lake, source: str, days: Sequence[date]) -> LandedFigures:
    """The figures of some days: a job."""
    span = [days[0] - ONE_DAY, *days]
    rows = (
        lake.stage_days(source, "landing", span)
        .groupBy("landing_date", "topic", "partition")
        .agg(
            F.count("*").alias("records"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count("offset").alias("with_offset"),
            F.count_distinct("offset").alias("offsets"),
        )
        .collect()
    )
    records: dict[date, int] = {}
    offsets: dict[date, dict[TopicPartition, Row]] = {}
    for row in rows:
        records[row.landing_date] = records.get(row.landing_date, 0) + row.records
        if row.with_offset:
            offsets.setdefault(row.landing_date, {})[row.topic, row.partition] = row
    commits = lake.day_commits(source, "landing")
    removed = {day: commits[day].removed for day in span if day in commits}
    records |= {day: count for day, count in removed.items() if count is not None}
    return LandedFigures(records, offsets)
