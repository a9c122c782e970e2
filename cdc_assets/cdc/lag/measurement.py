"""The lag of change events per table and source hour (FORMATS G1–G4)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.envelopes.formats import FIRST_HALVES
from cdc_assets.cdc.lake.schemas import MAX_MS, MIN_MS

KINDS = ("capture", "delivery", "end_to_end")
_PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}
_HOUR_MS = 3_600_000


def measure(changes: DataFrame) -> DataFrame:
    """Lag of change events.

    Args:
        changes: rows of the table `changes`.

    Returns:
        The columns of `lag` except `complete`: one row per day, table, kind and source hour, and
        one with `hour` null for the whole day. Times in ms; percentiles are measured values
        (`percentile_disc`).
    """
    per_kind = _lags(changes)
    hourly = per_kind.where("hour IS NOT NULL").groupBy(
        "landing_date", "table_name", "hour", "kind"
    )
    daily = per_kind.groupBy("landing_date", "table_name", "kind")
    whole_day = daily.agg(*_figures()).withColumn("hour", F.lit(None).cast("timestamp"))
    return hourly.agg(*_figures()).unionByName(whole_day)


def _lags(changes: DataFrame) -> DataFrame:
    """The lags of each event: `landing_date, table_name, hour, kind, ms`; null where unmeasured."""
    # Numbers beyond the years 1 to 9999 are not times: excluded and counted (G2).
    source, processed, kafka = (
        F.when(F.col(name).between(MIN_MS, MAX_MS), F.col(name))
        for name in ("source_ts_ms", "processed_ts_ms", "kafka_ts_ms")
    )
    # The first half of a split update is counted with its second (W2).
    events = changes.where(~F.coalesce(F.col("source_op").isin(*FIRST_HALVES), F.lit(False)))
    # Tombstones have no times and are excluded as well.
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
    return events.select(
        "landing_date",
        "table_name",
        # The source time of a snapshot read is not the time of the row's change.
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
