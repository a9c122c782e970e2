"""The times in messages, for landings that have no other to tell a record's day by."""

from __future__ import annotations

from pyspark.sql import DataFrame

from cdc_assets.cdc.changes.parse import parse
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.sqltext import Query


def record_times(rows: DataFrame, source: SourceConfig) -> DataFrame:
    """When the connector handled each record, else when its source changed.

    Args:
        rows: the columns of `LANDING`, `file_number` and `line`.
        source: the rules.

    Returns:
        `file_number`, `line` and `time_ms` (BIGINT, ms since 1970; null of records that say none).
    """
    # The number of its file and line stand for its place: they stay with what is read of it.
    placed = Query(rows).replace({"partition": "file_number", "offset": "line", "topic": "'-'"})
    events = Query(parse(placed.plan(), source))
    times = {"time_ms": "min(coalesce(processed_ts_ms, source_ts_ms))"}
    found = events.aggregate(["partition", "offset"], times)
    return found.select("partition AS file_number", "offset AS line", "time_ms").plan()
