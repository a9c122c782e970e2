"""changes → lag: write the lag of days, and read it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.lag.measurement import measure
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake, landed_on


def make_lag(
    lake: Lake, source: str, inputs: Mapping[date, Mapping[str, Any]], head: int | None
) -> None:
    """Make the lag of some days in one job.

    Args:
        lake: the lake; it has the table `lag`.
        source: the source.
        inputs: the inputs of each day, to be recorded.
        head: the table's newest commit when the inputs were read.
    """
    rows = lake.stage_days(source, "changes", inputs)
    is_complete = ~landed_on(day for day in inputs if not inputs[day]["complete"])
    measured = measure(rows).withColumn("complete", is_complete).select(*columns.LAG.names)
    ordered = measured.coalesce(1).sortWithinPartitions("landing_date", "table_name", "hour")
    lake.overwrite_days(lake.stage(source, "lag"), ordered, inputs, head)


Rows = dict[date, list[dict[str, Any]]]


def day_rows(lake: Lake, source: str, days: Sequence[date]) -> Rows:
    """The rows of whole days, by day, ordered by table and kind."""
    rows = lake.stage_days(source, "lag", days).where("hour IS NULL").orderBy("table_name", "kind")
    return _by_day(rows)


def worst_by_hour(lake: Lake, source: str, days: Sequence[date]) -> Rows:
    """The slowest table of each hour, by day: `hour, kind, p50_ms, p95_ms, max_ms, negative`.

    `negative` is the sum over all tables. `hour` is seconds since 1970, as collect() returns
    timestamps in the time zone of this machine.
    """
    worst = [F.max(figure).alias(figure) for figure in ("p50_ms", "p95_ms", "max_ms")]
    rows = (
        lake.stage_days(source, "lag", days)
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
