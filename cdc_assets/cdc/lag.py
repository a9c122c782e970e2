"""changes → lag: how late the changes of a day came, per table and source hour (FORMATS G1–G4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.envelopes.formats import FIRST_HALVES
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake, landed_on

KINDS = ("capture", "delivery", "end_to_end")
_PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}
_HOUR_MS = 3_600_000
# 0001-01-01 to 9999-12-31, ms since 1970: what a timestamp can hold, and differences stay in int64.
MIN_MS, MAX_MS = -62_135_596_800_000, 253_402_300_799_999


def measure(changes: DataFrame) -> DataFrame:
    """Lag of change events.

    Args:
        changes: rows of the table `changes`.

    Returns:
        The columns of `lag` but `complete`: one row a day, table, kind and source hour, and
        one with `hour` null for the whole day. Times in ms; percentiles are values that
        occurred (`percentile_disc`).
    """
    # A number beyond the years 1 to 9999 is not a time: it is left out and counted (G2).
    source, processed, kafka = (
        F.when(F.col(name).between(MIN_MS, MAX_MS), F.col(name))
        for name in ("source_ts_ms", "processed_ts_ms", "kafka_ts_ms")
    )
    # The first half of a split update is counted with its second (W2).
    events = changes.where(~F.coalesce(F.col("source_op").isin(*FIRST_HALVES), F.lit(False)))
    # A tombstone has no times, so that it is left out, too.
    is_measurable = ~F.col("is_snapshot")
    by_kind = F.explode(
        F.array(
            *(
                F.struct(F.lit(kind).alias("kind"), lag.alias("ms"))
                for kind, lag in (
                    ("capture", processed - source),
                    ("delivery", kafka - processed),
                    ("end_to_end", kafka - source),
                )
            )
        )
    )
    hour = F.timestamp_millis(source - F.pmod(source, F.lit(_HOUR_MS)))
    per_kind = events.select(
        "landing_date",
        "table_name",
        # A snapshot read's source time says nothing of when the row changed.
        F.when(is_measurable, hour).alias("hour"),
        is_measurable.alias("is_measurable"),
        by_kind.alias("lag"),
    ).select(
        "landing_date",
        "table_name",
        "hour",
        F.col("lag.kind").alias("kind"),
        F.when(F.col("is_measurable"), F.col("lag.ms")).alias("ms"),
    )
    hourly = per_kind.where("hour IS NOT NULL").groupBy(
        "landing_date", "table_name", "hour", "kind"
    )
    daily = per_kind.groupBy("landing_date", "table_name", "kind")
    whole_day = daily.agg(*_figures()).withColumn("hour", F.lit(None).cast("timestamp"))
    return hourly.agg(*_figures()).unionByName(whole_day)


def _figures() -> list[Column]:
    ms = F.col("ms")
    return [
        F.count(ms).alias("count"),
        F.count_if(ms.isNull()).alias("excluded"),
        F.count_if(ms < 0).alias("negative"),
        F.min(ms).alias("min_ms"),
        *(
            F.expr(f"percentile_disc({fraction}) WITHIN GROUP (ORDER BY ms)")
            .cast("bigint")
            .alias(name)
            for name, fraction in _PERCENTILES.items()
        ),
        F.max(ms).alias("max_ms"),
        F.round(F.avg(ms)).cast("bigint").alias("mean_ms"),
    ]


def make_lag(
    lake: Lake, source: str, inputs: Mapping[date, Mapping[str, Any]], head: int | None
) -> None:
    """Make the lag of some days in one job.

    Args:
        lake: where to; it has the table `lag`.
        source: the source.
        inputs: for each day what it is made of.
        head: the table's newest commit when the inputs were read.
    """
    rows = lake.stage_days(source, "changes", inputs)
    is_complete = ~landed_on(day for day in inputs if not inputs[day]["complete"])
    measured = measure(rows).withColumn("complete", is_complete).select(*columns.LAG.names)
    ordered = measured.coalesce(1).sortWithinPartitions("landing_date", "table_name", "hour")
    lake.overwrite_days(lake.stage(source, "lag"), ordered, inputs, head)


Rows = dict[date, list[dict[str, Any]]]


def of_days(lake: Lake, name: str, days: Sequence[date]) -> Rows:
    """The rows of whole days, by day, ordered by table and kind."""
    rows = lake.stage_days(name, "lag", days).where("hour IS NULL").orderBy("table_name", "kind")
    return _by_day(rows)


def worst_by_hour(lake: Lake, name: str, days: Sequence[date]) -> Rows:
    """The slowest table of each hour, by day: `hour, kind, p50_ms, p95_ms, max_ms, negative`.

    `negative` is the sum over all tables. `hour` is seconds since 1970: Spark would give a
    timestamp in the zone of this machine.
    """
    worst = [F.max(figure).alias(figure) for figure in ("p50_ms", "p95_ms", "max_ms")]
    rows = (
        lake.stage_days(name, "lag", days)
        .where("hour IS NOT NULL AND count > 0")
        .groupBy("landing_date", "hour", "kind")
        .agg(*worst, F.sum("negative").alias("negative"))
        .withColumn("hour", F.unix_seconds("hour"))
        .orderBy("hour", "kind")
    )
    return _by_day(rows)


def _by_day(rows: DataFrame) -> Rows:
    found: Rows = {}
    for row in rows.collect():
        found.setdefault(row.landing_date, []).append(row.asDict())
    return found
