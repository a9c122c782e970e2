"""The rows of the lake as of a snapshot of its source.

A day's table has what had landed by the end of the day. Of a key that a transaction changed which
is not in the snapshot, or of which an event landed on a later day, the row is told anew: by the
last of its events that is in the snapshot, else by the table before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.errors import SourceError
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.sqltext import Query, Sql
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.row_sql import standing_values, typed_columns, with_keys
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.table_events import IS_UPSERT, events_on
from cdc_assets.cdc.state.writes import FEW_KEYS
from cdc_assets.cdc.values.placeholders import may_hold_placeholder
from cdc_assets.cdc.verification.postgres import Snapshot


@dataclass(frozen=True)
class LakeRows:
    """Rows as of a snapshot: `k` and the value of each column.

    `unknown` has the keys, `k`, whose rows nothing says exactly; `moved` is how many were told
    anew.
    """

    rows: DataFrame
    unknown: DataFrame
    moved: int


def rows_as_of(
    day: TableDay,
    columns: TableColumns,
    days: Sequence[date],
    snapshot: Snapshot,
    checkpoints: Checkpoints,
) -> LakeRows:
    """The rows of a day's table as of a snapshot of its source.

    Args:
        columns: with the types of all `days`.
        days: the day, and those of which changes have landed since.

    Raises:
        SourceError: a truncate is between the two.
    """
    assert day.state is not None  # its day is made
    known = [*day.window_since_start(day.day), *days]
    events = with_keys(events_on(day, known), columns, with_new_key=True)
    visible = _is_visible(snapshot)
    since = f"landing_date > DATE'{day.day}'"
    asked = Query(events).extend({"is_visible": visible}).plan()
    moving = asked.where(f"NOT is_visible OR {since}")
    if moving.where("op = 't'").count():
        raise SourceError(
            f"{day.label}: a truncate has landed that the table of {day.day} or the snapshot of "
            "the source does not have. Make the day that it is of, and verify again"
        )
    named = (moving.selectExpr(f"{k} AS k") for k in ("k", "ok", "nk"))
    keys = checkpoints.add(reduce(DataFrame.unionByName, named).where("k IS NOT NULL").distinct())
    moved = keys.count()
    rows = _typed(day.at(day.state.tags[day.day]), columns)
    if not moved:
        return LakeRows(rows, keys, 0)
    sent = F.broadcast(keys) if moved <= FEW_KEYS else keys
    told = checkpoints.add(_last_events(asked.where("is_visible"), sent))
    before = _before(day, columns, min(known))
    untold = keys.join(told.select("k"), "k", "left_anti")
    unsent = may_hold_placeholder("after", day.settings.unavailable_value)
    is_exact = f"NOT has_reads AND (is_removal OR NOT {unsent})"
    unknown = told.where(f"NOT ({is_exact})").select("k")
    upserts = told.where(f"{is_exact} AND NOT is_removal").select("k", "after", "schema_id")
    values = ["k", *(c.work for c in columns.own)]
    parts = [
        rows.join(sent, "k", "left_anti").select(values),
        typed_columns(Query(upserts), columns).plan().select(values),
    ]
    if before is None:
        unknown = unknown.unionByName(untold)
    else:
        parts.append(before.join(untold, "k", "left_semi").select(values))
    return LakeRows(reduce(DataFrame.unionByName, parts), checkpoints.add(unknown), moved)


def _is_visible(snapshot: Snapshot) -> Sql:
    """Is an event in the snapshot? A read has no transaction: it is as old as it says."""
    transaction = "try_cast(substring_index(tx_id, ':', 1) AS bigint)"
    return (
        f"coalesce(CASE WHEN op <> 'r' THEN {snapshot.is_visible(transaction)} END, "
        f"source_ts_ms <= {snapshot.ms})"
    )


def _last_events(events: DataFrame, keys: DataFrame) -> DataFrame:
    """What the last event of each key did: `is_removal`, `after`, `schema_id`; and `has_reads`."""
    own = (f"op = 'd' OR ({IS_UPSERT})", "k", "op = 'd'")
    left = ("op IN ('u', 'c') AND ok IS NOT NULL AND NOT ok <=> k", "ok", "true")
    done = (
        events.where(condition).selectExpr(
            f"{key} AS k",
            f"{is_removal} AS is_removal",
            f"CASE WHEN NOT ({is_removal}) THEN after END AS after",
            "schema_id",
            "op = 'r' AS is_read",
            f"struct(position IS NOT NULL, position, NOT ({is_removal}), kafka_time, offset) AS p",
        )
        for condition, key, is_removal in (own, left)
    )
    of_keys = reduce(DataFrame.unionByName, done).join(keys, "k", "left_semi")
    aggregates = {
        "w": "max_by(struct(is_removal, after, schema_id), p)",
        "has_reads": "bool_or(is_read)",
    }
    return Query(of_keys).aggregate(("k",), aggregates).select("k", "w.*", "has_reads").plan()


def _before(day: TableDay, columns: TableColumns, first: date) -> DataFrame | None:
    """The table before a day; None where nothing says it."""
    assert day.state is not None
    before = first - timedelta(days=1)
    if before in day.state.tags:
        return _typed(day.at(day.state.tags[before]), columns)
    if first <= day.start:
        return _typed(day.at(day.state.tags[day.day]), columns).where("false")
    return None


def _typed(table: DataFrame, columns: TableColumns) -> DataFrame:
    return table.select(*standing_values(table.schema, columns))
