"""The events of a table on some days, in the order of its positions: a frame, no Spark job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.earlier_positions import changes_from_earlier
from cdc_assets.cdc.positions import epoch_of, in_epoch, on_basis, start_of_day, time_in_kafka
from cdc_assets.cdc.sqltext import Query, Sql, case, literal
from cdc_assets.cdc.state.renaming import events_in_lake
from cdc_assets.cdc.state.table_day import TableDay

# A row is there after it; the BEFOR half of a split update writes none (W3).
IS_UPSERT = "op IN ('c', 'u', 'r') AND after IS NOT NULL"
# The newest event is the highest; one without a position stands below those that have one.
BY_AGE = "struct(position IS NOT NULL, position, kafka_time, offset)"
IS_ROW_CHANGE = f"op = 'd' OR ({IS_UPSERT})"  # it does something to its key


def events_on(day: TableDay, days: Sequence[date]) -> DataFrame:
    """The table's events of some days, in the order of the table's positions.

    Returns:
        The columns of `CHANGES`, positions with their epoch and of today's form, and
        `kafka_time`, the Kafka timestamp or what stands in for it (ms).
    """
    # A new server sends the last transactions of the former one again: those are known by GTID.
    is_sent_again = _may_be_sent_again(day, days)
    before = day.window_before(min(days)) if is_sent_again else []
    changed = day.lake.stage_days(day.source, "changes", [*before, *days])
    start = start_of_day("landing_date", day.lake.config.timezone)
    own = Query(changed.where(F.col("table_name") == day.table))
    if day.is_of_other_databases(days):
        own = own.where(f"db IS NULL OR db = {literal(day.database)}")
    events = own.extend({"kafka_time": time_in_kafka("processed_ts_ms", start)})
    events = events_in_lake(events, day.sent.rename)
    if day.has_earlier_changes(days):
        events = events.replace(changes_from_earlier(_time_in_day(day)))
    if is_sent_again:
        events = _without_sent_again(events, _epoch(day)).where(_is_on(days))
    events = events.replace({"position": in_epoch("position", _epoch(day))})
    ranges = [r for d in days for r in day.facts_on(d).ranges]
    if any(day.bases.get(r.epoch) != r.basis for r in ranges):
        # O8: an event on another basis is older than all of its table's.
        placed = on_basis("position", "position_basis", day.bases)
        events = events.replace({"position": case(("position IS NOT NULL", placed))})
    return events.plan()


def newest_schema(day: TableDay) -> str | None:
    """The schema of the day's newest event; runs a Spark job.

    None: it has none, or an event that landed on an earlier day stands behind it.
    """
    events = events_on(day, [day.day])
    found = events.selectExpr(f"max_by(struct(schema_id, position), {BY_AGE}) AS newest").first()
    if found is None or found.newest is None:
        return None
    position, before = found.newest.position, day.highest_before
    if position and before and list(position) < list(before):
        return None
    schema_id: str | None = found.newest.schema_id
    return schema_id


def _time_in_day(day: TableDay) -> Sql:
    """`kafka_time`, at most the end of the landing day (ms)."""
    end = start_of_day("landing_date + 1", day.lake.config.timezone)
    return f"least(kafka_time, {end} - 1)"


def _epoch(day: TableDay) -> Sql:
    """The epoch of an event that has `kafka_time`."""
    if day.epochs is None:
        return epoch_of("kafka_ts_ms", day.settings.resets)
    return day.epochs.sql(_time_in_day(day))


def _may_be_sent_again(day: TableDay, days: Sequence[date]) -> bool:
    """Did a new server take over on these days, or in the `late_days` before?"""
    if not days or day.epochs is None:
        return False
    first = min([*day.window_before(min(days)), *days])
    began = day.inputs.config.end_of(first - timedelta(days=1)).timestamp() * 1000
    begins = (begin for stream in day.epochs.streams for begin in stream.begins)
    return any(begin.instant >= began for begin in begins)


def _is_on(days: Iterable[date]) -> Sql:
    return f"landing_date IN ({', '.join(map(literal, sorted(days)))})"


def _without_sent_again(events: Query, epoch: Sql) -> Query:
    """Without events whose GTID landed in an earlier epoch: copies, as often as it landed (O11)."""
    told_by = "topic, key, op, before, after, old_key, new_key, gtid"
    counted = events.extend(
        {
            "gtid": case(("position IS NOT NULL", "get_json_object(identity, '$.gtid')")),
            "epoch": epoch,
        }
    ).extend(
        {
            "nth": f"row_number() OVER (PARTITION BY {told_by}, epoch "
            "ORDER BY landing_date, topic, partition, offset, position)",
            "landed_before": f"count(*) OVER (PARTITION BY {told_by} ORDER BY epoch "
            "RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)",
        }
    )
    kept = counted.where("gtid IS NULL OR nth > landed_before")
    return kept.drop("gtid", "epoch", "nth", "landed_before")
