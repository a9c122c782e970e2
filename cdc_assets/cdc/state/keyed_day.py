"""A day of a table with a key: frames of its events and of the rows that stood; no Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.order_facts import LEAVES_KEY, SAYS_OLD_KEY, compared_elements
from cdc_assets.cdc.positions import literal_position, removal_position
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.implied_removals import ImpliedRemovals
from cdc_assets.cdc.state.row_sql import standing_values, with_keys
from cdc_assets.cdc.state.table_day import POSITION, SOURCE_TS, TableDay
from cdc_assets.cdc.state.table_events import events_on

# The place of an event in Kafka.
PLACE = ("landing_date", "topic", "partition", "offset", "kafka_time")
CHANGES_KEY = "ok IS NOT NULL AND NOT (ok <=> k)"
IS_LINK = f"op IN ('c', 'u') AND {CHANGES_KEY}"  # its row comes from another key


@dataclass(frozen=True)
class KeptEvents:
    """The events of some days, a local checkpoint, as :func:`with_keys` gives them with `nk`."""

    days: frozenset[date]
    events: DataFrame


@dataclass(frozen=True)
class KeyedDay:
    """A day of a table with a key.

    `kept` are events that were read once for all that will ask for them. `copies` has `k`, `topic`,
    `landing_date`, `position` of row changes that repeat others (O15). `is_made`: the table's day
    is published, so that what it removed of its own accord is among its events (R7).
    """

    day: TableDay
    columns: TableColumns
    kept: KeptEvents | None = None
    copies: DataFrame | None = None
    is_made: bool = False

    @property
    def truncated(self) -> list[int] | None:
        """The position of the highest truncate of the day."""
        return self.day.truncated([self.day.day])

    @property
    def is_all_after(self) -> bool:
        """Does each row change stand after all that landed before the day?"""
        return self.day.is_all_after and not self.day.has_split_updates

    # --- events

    def events(self, days: Sequence[date], with_new_key: bool = False) -> DataFrame:
        """The events of some days, with `k` and `ok`, their key and old key.

        Rows that a snapshot did not read were removed by no event: each has one here (R7).
        """
        if self.kept is None or not self.kept.days.issuperset(days):
            return self._read(days, with_new_key)
        if self.kept.days == set(days):
            return self.kept.events
        return self.kept.events.where(F.col("landing_date").isin(*days))

    def _read(self, days: Sequence[date], with_new_key: bool) -> DataFrame:
        events = with_keys(events_on(self.day, days), self.columns, with_new_key)
        implied = ImpliedRemovals(self.day, self.columns, self.table_before, self.is_made)
        return implied.added_to(events, days)

    def without_copies(self, changes: DataFrame) -> DataFrame:
        """Row changes without those that repeat others."""
        if self.copies is None:
            return changes
        names = ("k", "topic", "landing_date", "position")
        return changes.join(self.copies, list(names), "left_anti")

    def old_key_removals(self, events: DataFrame, days: Sequence[date]) -> DataFrame:
        """The old keys of key changes, as removals: `k`, and their place before the row's (O4).

        An update says its old key itself (D10). A create whose header says it stands behind the
        delete that takes the row away (D9), and counts only where that one was lost.

        Args:
            events: of `days`.

        Returns:
            The columns of events; `left_for`, the key that the row took.
        """
        changed = events.where(IS_LINK)
        left = changed.where(LEAVES_KEY)
        known = self.day.facts_on_days(days)
        if not all(facts.is_paired and facts.is_order_known for facts in known):
            elements = compared_elements()
            gone = ("k AS gone", f"{elements} AS gone_at")
            deletes = events.where("op = 'd'").selectExpr(*gone)
            # The delete may have landed on a day before.
            others = [d for d in self.day.window if d not in days]
            if any(facts.ops.get("d") for facts in self.day.facts_on_days(others)):
                earlier = self.events(others).where("op = 'd'")
                deletes = deletes.unionByName(earlier.selectExpr(*gone))
            deletes = deletes.distinct()
            is_it = F.expr(f"ok = gone AND {elements} <=> gone_at")
            lone = changed.where(SAYS_OLD_KEY).join(deletes, is_it, "left_anti")
            left = left.unionByName(lone)
        return left.withColumns(
            {
                "left_for": F.col("k"),
                "k": F.col("ok"),
                "position": F.expr(removal_position("position")),
            }
        )

    # --- rows

    def standing(self) -> DataFrame | None:
        """The rows at the end of the day before that no truncate of the day removes."""
        rows, cut = self.rows_before(self.day.day), self.truncated
        if rows is None or cut is None:
            return rows
        return rows.where(F.col("pos") >= literal_position(cut))

    def rows_before(self, day: date) -> DataFrame | None:
        """The table as it stood before a day; None where it was not there.

        Returns:
            `k`, `pos`, `stood_source_ts_ms` and the value of each column.
        """
        table = self.table_before(day)
        if table is None:
            return None
        return table.select(
            F.col(POSITION).alias("pos"),
            F.col(SOURCE_TS).alias("stood_source_ts_ms"),
            *standing_values(table.schema, self.columns),
        )

    def table_before(self, day: date) -> DataFrame | None:
        """The table itself, with positions of today's form; None where it was not there."""
        snapshot = self._snapshot_before(day)
        if snapshot is None:
            return None
        table = self.day.at(snapshot)
        if self.day.earlier_rows is None:
            return table
        turned = F.expr(self.day.position_of("rows_in"))
        return table.alias("rows_in").withColumn(POSITION, turned)

    def columns_before(self, day: date) -> list[str]:
        """The columns that the table had before a day."""
        snapshot = self._snapshot_before(day)
        return [] if snapshot is None else self.day.at(snapshot).columns

    def _snapshot_before(self, day: date) -> int | None:
        state, before = self.day.state, day - timedelta(days=1)
        if state is None or before not in state.tags or day <= self.day.start:
            return None
        return state.tags[before]
