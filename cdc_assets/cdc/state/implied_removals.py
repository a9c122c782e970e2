"""Removals that no event of their key says: each becomes one, behind the events that it removes.

A snapshot did not read a row, which so was removed unseen (FORMATS R7); a truncate of a table that
goes into this one removes the rows that came from there (R8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.config import TABLE_OF_ROW
from cdc_assets.cdc.names import column
from cdc_assets.cdc.positions import behind_all, latest, literal_position, real_part
from cdc_assets.cdc.sqltext import Query, literal
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.row_sql import standing_values, with_keys
from cdc_assets.cdc.state.snapshots import Snapshot, has_landed_since
from cdc_assets.cdc.state.table_day import POSITION, SOURCE_TS, TableDay
from cdc_assets.cdc.state.table_events import IS_ROW_CHANGE, IS_UPSERT, events_on

BY_TRUNCATE = "truncated"  # the `snapshot` of those of leaves, which no source sends
_IS_LEAF_TRUNCATE = "op = 't' AND source_table IS NOT NULL"


@dataclass(frozen=True)
class ImpliedRemovals:
    """The implied removals of a table's days.

    Attributes:
        table_before: the table as it stood before a day; None where it was not there.
        is_made: the day itself is made: what a snapshot did not read was removed on it, too.
    """

    day: TableDay
    columns: TableColumns
    table_before: Callable[[date], DataFrame | None]
    is_made: bool

    def added_to(self, events: DataFrame, days: Sequence[date]) -> DataFrame:
        """Events of some days, and the removals that are in none of them.

        Args:
            events: with their keys. A truncate of a leaf is left out, as its removals are there.
        """
        parts = [events]
        if any(facts.leaf_truncate_ranges for facts in self.day.facts_on_days(days)):
            parts = [events.where(f"NOT ({_IS_LEAF_TRUNCATE})"), self._by_truncates(days)]
        for day in days:
            if day < self.day.day or self.is_made:
                snapshots = self.day.removed_unread_on(day)
                parts += [f for s in snapshots if (f := self._unread(day, s)) is not None]
        return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)

    def _unread(self, day: date, snapshot: Snapshot) -> DataFrame | None:
        """The removals of what a snapshot that ended on a day did not read.

        Also of keys whose row was removed before by an event of the day: there it says nothing new.
        Each stands behind all that landed of its key.
        """
        table, known = self.table_before(day), []
        if table is not None:
            key, *_ = standing_values(table.schema, self.columns)
            met = F.col(POSITION).alias("met"), F.lit(True).alias("has")
            known.append(table.select(key, SOURCE_TS, _leaf_of(table), *met))
        if snapshot.first.day == day:
            own = with_keys(events_on(self.day, [day]), self.columns)
            own = own.where(IS_ROW_CHANGE)
            keys = f"named_struct('k', k, 'has', {IS_UPSERT}), named_struct('k', ok, 'has', false)"
            leaf = "source_table" if self.day.has_leaves else "CAST(NULL AS string)"
            placed = (f"{leaf} AS {TABLE_OF_ROW}", "position AS met", f"inline(array({keys}))")
            known.append(own.selectExpr(f"source_ts_ms AS {SOURCE_TS}", *placed))
        if not known:
            return None
        met_by_key = reduce(DataFrame.unionByName, known).where("k IS NOT NULL")
        of_row = "CASE WHEN has THEN {} END"
        highest = {
            SOURCE_TS: f"max({of_row.format(SOURCE_TS)})",
            TABLE_OF_ROW: f"max_by({of_row.format(TABLE_OF_ROW)}, struct(has, met))",
            "met": f"max({real_part('met')})",
            "has": "bool_or(has)",
        }
        rows = Query(met_by_key).aggregate(("k",), highest).where("has").plan()
        unread = not_read(self.day, self.columns, rows, snapshot)
        cut = self.day.truncated([*self.day.window_before(day), day])
        last = snapshot.last
        place = behind_all(latest(F.col("met"), literal_position(cut)), day, last.offset)
        return unread.select("k", place.alias("position")).selectExpr(
            "k", "position", "'d' AS op", f"{literal(day)} AS landing_date",
            f"{literal(self.day.table)} AS table_name", f"{literal(last.topic)} AS topic",
            f"{last.partition} AS partition", f"{last.offset}L AS offset",
            f"{last.ms}L AS kafka_time",
            f"CAST({literal(last.source_ts_ms)} AS bigint) AS source_ts_ms",
        )  # fmt: skip

    def _by_truncates(self, days: Sequence[date]) -> DataFrame:
        """The removals of the rows that came from a leaf, at the place of its truncate.

        The newest event of the key below the truncate says where its row is. Those that landed
        later than the truncate count, too, up to the day.
        """
        with_any = [d for d in days if self.day.facts_on(d).leaf_truncate_ranges]
        sent = events_on(self.day, with_any).where(f"{_IS_LEAF_TRUNCATE} AND position IS NOT NULL")
        shown = ("landing_date", "topic", "partition", "offset", "kafka_time", "source_ts_ms")
        cuts = sent.selectExpr("source_table", "position", *shown)
        landed = with_keys(events_on(self.day, self.day.days_from(with_any[0])), self.columns)
        leaf, met = f"source_table AS {TABLE_OF_ROW}", "position AS met"
        when = "struct(landing_date, kafka_time) AS came"
        known = [landed.where(IS_UPSERT).selectExpr("k", leaf, met, when)]
        table = self.table_before(with_any[0])
        if table is not None:
            key, *_ = standing_values(table.schema, self.columns)
            before = F.expr("CAST(NULL AS struct<landing_date: date, kafka_time: bigint>) AS came")
            known.append(table.select(key, _leaf_of(table), F.col(POSITION).alias("met"), before))
        rows = Query(reduce(DataFrame.unionByName, known)).where("k IS NOT NULL")
        # An event without a position stands behind what landed before it (O6).
        seen = f"max({real_part('met')}) OVER (PARTITION BY k ORDER BY came NULLS FIRST)"
        placed = rows.extend({"at_least": f"coalesce(met, {seen})"}).plan()
        came_before = "came < struct(landing_date, kafka_time)"
        is_below = f"CASE WHEN met IS NULL THEN {came_before} ELSE met < position END"
        below = placed.crossJoin(F.broadcast(cuts)).where(is_below)
        newest = f"max_by({TABLE_OF_ROW}, struct(at_least, met IS NULL, came))"
        by_key = Query(below).aggregate(
            ("k", "source_table", "position"),
            {"newest": newest, "at": f"first(struct({', '.join(shown)}))"},
        )
        removed = by_key.where("newest = source_table").select(
            "k", "position", "source_table", "'d' AS op",
            f"{literal(self.day.table)} AS table_name", f"{literal(BY_TRUNCATE)} AS snapshot",
            "at.*",
        )  # fmt: skip
        return removed.plan()


def not_read(
    day: TableDay, columns: TableColumns, rows: DataFrame, snapshot: Snapshot
) -> DataFrame:
    """The rows of which no event has landed since a snapshot began: it did not read them.

    Args:
        day: the table's day.
        columns: the table's.
        rows: `k`, `_cdc_source_ts_ms`, of a table with leaves also `_cdc_table`, and more.
        snapshot: of the table, or of one of its leaves.
    """
    first = snapshot.first
    events = with_keys(events_on(day, snapshot.days), columns, with_new_key=True)
    since = events.where(has_landed_since(first))
    keys = since.selectExpr(
        "inline(array(named_struct('k', k), named_struct('k', ok), named_struct('k', nk)))"
    )
    # What changed after the snapshot may not be in it, and its event come again. Old versions
    # of Debezium say 0 for that time.
    older = rows.where(f"coalesce({SOURCE_TS} < {literal(first.source_ts_ms or None)}, true)")
    if first.source_table is not None:
        older = older.where(f"{TABLE_OF_ROW} = {literal(first.source_table)}")
    return older.join(keys.where("k IS NOT NULL"), "k", "left_anti")


def _leaf_of(table: DataFrame) -> Column:
    """The leaf that each row of a table came from."""
    has_any = TABLE_OF_ROW in table.columns
    return (column(TABLE_OF_ROW) if has_any else F.lit(None).cast("string")).alias(TABLE_OF_ROW)
