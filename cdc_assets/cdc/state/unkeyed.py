"""Tables without a key (FORMATS O14): rows are appended, or taken away one by one.

`key: none` appends. `key: row` holds a multiset: each event adds the row that it says is there
now, and takes away one row equal to the one that it says was there before.

A row is known by the source elements of its event, its images, and its place among equals in
one unbroken run of offsets: a stretch that is sent again adds nothing, and equal rows of one
transaction all count. A connector that was killed may send the last row of a partition again
directly behind it; rows of one source position are decoded together, so a run also ends where
more than `_PAUSE_MS` lie between the times at which the connector processed two neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.snapshot_marks import Mark
from cdc_assets.cdc.config import TABLE_OF_ROW
from cdc_assets.cdc.positions import (
    cut_before,
    directly_after,
    latest,
    literal_position,
)
from cdc_assets.cdc.sqltext import case, literal
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.row_sql import standing_values
from cdc_assets.cdc.state.snapshots import has_landed_since
from cdc_assets.cdc.state.table_day import POSITION, TableDay
from cdc_assets.cdc.state.table_events import events_on
from cdc_assets.cdc.values.placeholders import placeholder_forms

# Shorter than the start of any connector, longer than it takes to decode the rows of a position.
_PAUSE_MS = 1000


@dataclass(frozen=True)
class UnkeyedDay:
    """The rows that a day adds to a table without a key, and those that it takes away."""

    day: TableDay
    columns: TableColumns

    @property
    def takes(self) -> bool:
        """Whether rows are taken away, too."""
        return self.day.config.key == "row"

    @property
    def past_cut(self) -> list[int] | None:
        """The highest truncate of the days looked back on."""
        return self.day.truncated(self.day.window)

    @property
    def floor(self) -> list[int] | None:
        """The highest truncate of the day, and of the days looked back on."""
        return self.day.truncated([*self.day.window, self.day.day])

    @property
    def leaf_floors(self) -> dict[str, list[int]]:
        """The highest truncates on these days of the tables that go into it, by their names."""
        return self.day.truncated_leaves([*self.day.window, self.day.day])

    @property
    def is_replaced(self) -> bool:
        """Whether the table becomes the day's snapshot, and what came after (R7)."""
        asked = self.day.settings.on_resnapshot == "replace"
        may = asked and not self.day.has_leaves and self.day.may_leave_unread
        return may and bool(self.day.snapshots.ended)

    @property
    def since(self) -> Mark | None:
        """What landed before is not in the table any more: a snapshot took its place."""
        if self.is_replaced:
            return self.day.snapshots.ended[0].first
        replaced = [s for d in self.day.window for s in self.day.removed_unread_on(d)]
        return replaced[-1].first if replaced else None

    def row_changes(self) -> DataFrame:
        """Rows added and taken away on the day and, with `key: row`, on those looked back on.

        Where a snapshot takes the place of the table, all that landed since is of the day.

        Returns:
            `is_removal`, `pos`, `after` (the row), `unfilled` (it has an unsent value that
            nothing fills), `schema_id`, `source_ts_ms`, `is_today`.
        """
        events = self._placed(self._fresh())
        is_on_day = F.lit(True) if self.is_replaced else F.col("landing_date") == self.day.day
        is_today = is_on_day.alias("is_today")
        common = ("pos", "schema_id", "source_ts_ms", is_today)
        after, unfilled = self._filled()
        adds = events.where("op IN ('c', 'r', 'u')").select(
            F.lit(False).alias("is_removal"), after.alias("after"), unfilled, *common
        )
        if not self.takes:
            return adds.where("is_today")
        takes = events.where("op IN ('u', 'd')").select(
            F.lit(True).alias("is_removal"),
            F.col("before").alias("after"),
            F.lit(False).alias("unfilled"),
            *common,
        )
        return adds.unionByName(takes)

    # --- events

    def _fresh(self) -> DataFrame:
        """Events of the day and of those looked back on, without what was sent again."""
        day, since = self.day, self.since
        first = min([day.day, *day.window, *([since.day] if since else [])])
        events = events_on(day, day.days_from(first)).where("op IN ('c', 'r', 'u', 'd')")
        is_known = "exists(source_elements, e -> e IS NOT NULL) OR identity IS NOT NULL"
        identity = "identity"
        if day.has_earlier_changes([*day.window, day.day]):
            # Days made by an earlier version do not say it: there the elements and images tell.
            equal = "PARTITION BY source_elements, before, after"
            identity = f"CASE WHEN count_if(identity IS NULL) OVER ({equal}) = 0 THEN identity END"
        elements = f"to_json(struct(source_elements, {identity} AS identity))"
        place = ["topic", "partition", "offset", "position"]  # a record may hold many rows
        events = events.dropDuplicates(place).withColumn(
            "elements", F.expr(case((is_known, elements)))
        )
        runs = _in_runs(events)
        image = ("elements", "before", "after")
        alike = Window.partitionBy("topic", "partition", "run", *image).orderBy(
            "offset", "position"
        )
        same = Window.partitionBy(*image, "ordinal").orderBy(
            "landing_date", "topic", "partition", "offset", "position"
        )
        numbered = runs.withColumn("ordinal", F.row_number().over(alike))
        # Without source elements every offset is a row.
        is_first = F.col("elements").isNull() | (F.row_number().over(same) == 1)
        fresh = numbered.withColumn("is_first", is_first).where("is_first")
        return fresh if since is None else fresh.where(has_landed_since(since))

    def _placed(self, events: DataFrame) -> DataFrame:
        """Add `pos`: an event without one of its own stands after the truncates before it (O6)."""
        truncates = events_on(self.day, [self.day.day]).where("op = 't' AND position IS NOT NULL")
        cuts = truncates.agg(
            F.collect_list(
                F.struct("topic", "partition", "offset", "position", "kafka_time", "landing_date")
            ).alias("cuts")
        )
        before = latest(cut_before(), literal_position(self.past_cut))
        after = directly_after(before, in_several_topics=self.day.has_leaves)
        placed = events.crossJoin(F.broadcast(cuts)).withColumn(
            "pos", F.coalesce("position", after)
        )
        for leaf, cut in self.leaf_floors.items():
            is_above = F.col("pos") > literal_position(cut)
            placed = placed.where(F.expr(f"NOT source_table <=> {literal(leaf)}") | is_above)
        if self.floor is None:
            return placed
        return placed.where(F.col("pos") > literal_position(self.floor))

    def _filled(self) -> tuple[Column, Column]:
        """`after` with the old row's values where one was not sent (R2), and whether one lacks."""
        if not self.day.day_facts.maybe_unchanged:
            return F.col("after"), F.lit(False).alias("unfilled")
        forms = placeholder_forms(self.day.settings.unavailable_value)
        new, old = (
            F.try_parse_json(image).try_cast("map<string,variant>") for image in ("after", "before")
        )

        def is_unsent(value: Column) -> Column:
            return F.coalesce(F.to_json(value).isin(forms), F.lit(False))

        known = F.coalesce(old, F.create_map().cast("map<string,variant>"))
        filled = F.transform_values(
            new,
            lambda name, value: F.when(is_unsent(value), F.element_at(known, name)).otherwise(
                value
            ),
        )
        lacks = F.exists(
            F.map_entries(new),
            lambda member: is_unsent(member["value"]) & F.element_at(known, member["key"]).isNull(),
        )
        text = F.to_json(F.to_variant_object(filled))
        return F.when(F.col("after").isNotNull(), text), lacks.alias("unfilled")

    def steps(self, known: DataFrame) -> DataFrame:
        """`identity`, `step`: by how many each row touched today becomes more or less.

        In order of position an event adds a row or takes one away that is there; one that was
        not there yet takes nothing, but is remembered, so that the row does not stay when it
        arrives late. The step is what today's events change in that, over the days looked back on.
        """
        touched = known.where("is_today").select("identity").distinct()
        start = self.day.window[0] if self.day.window else self.day.day
        stood = self._rows_at(start - timedelta(days=1)) if self.since is None else None
        entries = known.select(
            "identity", "pos", F.when(F.col("is_removal"), -1).otherwise(1).alias("x"), "is_today"
        )
        if stood is not None:
            rows = stood.select(
                "identity", "pos", F.lit(1).alias("x"), F.lit(False).alias("is_today")
            )
            entries = entries.unionByName(rows)
        so_far = (
            Window.partitionBy("identity")
            .orderBy("pos", "x")
            .rowsBetween(Window.unboundedPreceding, Window.currentRow)
        )
        past = F.when(F.col("is_today"), 0).otherwise(F.col("x"))

        def left(step: Column, lowest: str) -> Column:
            return F.sum(step) - F.least(F.lit(0), F.min(lowest))

        return (
            entries.join(touched, "identity", "left_semi")
            .withColumns({"past": past})
            .withColumns(
                {"height": F.sum("x").over(so_far), "past_height": F.sum("past").over(so_far)}
            )
            .groupBy("identity")
            .agg(
                (left(F.col("x"), "height") - left(F.col("past"), "past_height")).alias("step"),
            )
        )

    def _rows_at(self, day: date) -> DataFrame | None:
        """The table at the end of a day, above the floor: `identity`, `pos`."""
        state = self.day.state
        if state is None or day not in state.tags or self.day.day <= self.day.start:
            return None
        table = self.day.at(state.tags[day])
        for leaf, cut in self.leaf_floors.items():
            is_above = F.col(POSITION) > literal_position(cut)
            table = table.where(F.expr(f"NOT {TABLE_OF_ROW} <=> {literal(leaf)}") | is_above)
        rows = self.rows_of(table)
        return (
            rows if self.floor is None else rows.where(F.col("pos") > literal_position(self.floor))
        )

    def rows_of(self, table: DataFrame) -> DataFrame:
        """Rows of the table: `identity`, `pos` and `stored`, their position as it is written."""
        _, *values = standing_values(table.schema, self.columns)
        place = F.expr(self.day.position_of("rows_in")).alias("pos")
        own = F.col(f"rows_in.{POSITION}").alias("stored")
        rows = table.alias("rows_in").select(*values, place, own)
        return rows.select(self.identity().alias("identity"), "pos", "stored")

    def identity(self) -> Column:
        """A text that is the same for equal rows."""
        return F.to_json(F.struct(*(c.work for c in self.columns.own)))


def _in_runs(events: DataFrame) -> DataFrame:
    """Add `run`: the number of the unbroken run of offsets with the same `elements`."""
    stream = Window.partitionBy("topic", "partition").orderBy("offset", "position")
    pause = F.abs(F.col("processed_ts_ms") - F.lag("processed_ts_ms").over(stream))
    goes_on = (
        (F.col("elements") == F.lag("elements").over(stream))
        & (F.col("offset") <= F.lag("offset").over(stream) + 1)
        & F.coalesce(pause <= _PAUSE_MS, F.lit(True))
    )
    return events.withColumn(
        "is_start", (~F.coalesce(goes_on, F.lit(False))).cast("int")
    ).withColumn("run", F.sum("is_start").over(stream))
