"""changes → lag: how late the changes of a day came, and what is read of it again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc import made_of
from cdc_assets.cdc.lag.measurement import measure
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake, landed_on


def make_lag(lake: Lake, name: str, days: Sequence[date], force: bool = False) -> list[date]:
    """Make the lag of some days in one job; days made of the same changes are left.

    Returns:
        The days that were made.

    Raises:
        MissingDayError: a day has no changes.
    """
    identifier = lake.create_stage(
        name, "lag", columns.LAG, "how late changes came, per table and source hour, in ms"
    )
    made = lake.day_commits(lake.stage(name, "changes"))
    current = lake.day_commits(identifier)
    stale = list(days) if force else made_of.stale_lag(lake.config, name, made, current, days)
    if stale:
        inputs = {day: made_of.of_lag(lake.config, name, made, day) for day in stale}
        lake = lake.sized(made.records(stale))
        rows = lake.stage_days(name, "changes", stale)
        is_complete = ~landed_on(d for d in stale if not inputs[d]["complete"])
        measured = measure(rows).withColumn("complete", is_complete).select(*columns.LAG.names)
        ordered = measured.coalesce(1).sortWithinPartitions("landing_date", "table_name", "hour")
        lake.overwrite_days(identifier, ordered, inputs, current.head)
    return stale


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
