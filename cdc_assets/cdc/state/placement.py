"""Late, repeated and unplaced row changes: where each stands in the order of events (O6, O12)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.order_facts import SAYS_NEW_KEY
from cdc_assets.cdc.positions import (
    cut_before,
    directly_after,
    latest,
    literal_position,
    real_part,
)
from cdc_assets.cdc.sqltext import Query, case, literal
from cdc_assets.cdc.state.entry_queue import DELETED, LEAVES
from cdc_assets.cdc.state.keyed_day import PLACE, KeyedDay
from cdc_assets.cdc.state.split_updates import first_halves, split_updates
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.table_events import IS_UPSERT


def removed_in_window(keyed: KeyedDay) -> DataFrame | None:
    """`k`, `pos` of what was removed in the `late_days` window; None where nothing was.

    None too if every event is newer than all landed ones and no value is unsent: only an unsent
    value may be that of a row before its removal.
    """
    day = keyed.day
    if day.is_all_after and not day.may_be_unsent:
        return None
    return removed_on(keyed, day.window)


def removed_on(keyed: KeyedDay, days: Sequence[date], told: Sequence[str] = ()) -> DataFrame | None:
    """What was removed on some days; None where nothing was.

    Args:
        told: which of `kind`, `source_ts_ms`, `kafka_time`, `landing_date` are needed.

    Returns:
        `k`, `pos` and what is told of each removal.
    """
    past = keyed.day.facts_on_days(days)
    if not any(facts.removals or facts.split_updates for facts in past):
        return None
    events = keyed.events(days)
    kind = case((SAYS_NEW_KEY, literal(LEAVES)), otherwise=literal(DELETED))
    shown = ("k", "position", "source_ts_ms", *PLACE)
    removals = events.where("op = 'd'").selectExpr(*shown, f"{kind} AS kind")
    left = keyed.old_key_removals(events, days).selectExpr(*shown, f"{literal(LEAVES)} AS kind")
    removed = keyed.without_copies(removals.unionByName(left))
    if any(facts.tombstones for facts in past):
        upserts = events.where(IS_UPSERT).selectExpr(*shown, "CAST(NULL AS string) AS kind")
        changes = removed.withColumn("is_removal", F.lit(True)).unionByName(
            upserts.withColumn("is_removal", F.lit(False))
        )
        base = keyed.rows_before(days[0])
        positions = None if base is None else base.select("k", "pos")
        placed = with_positions(keyed.day, changes, events, days, positions, None)
        removed = placed.where("is_removal").select("k", "pos", *told)
    else:
        removed = removed.select("k", F.col("position").alias("pos"), *told)
    if any(facts.split_updates for facts in past):
        first, last = F.lit(days[0]), F.lit(days[-1])
        earlier = split_updates(keyed).where(F.col("day").between(first, last))
        removed = removed.unionByName(first_halves(earlier).select("k", "pos", *told))
    return removed.where("k IS NOT NULL AND pos IS NOT NULL")


def without_removed(changes: DataFrame, removed: DataFrame) -> DataFrame:
    """Drop what an earlier day's removal of the same key beats."""
    beaten = removed.groupBy(F.col("k").alias("rk")).agg(F.max("pos").alias("rpos"))
    return changes.join(
        beaten, (F.col("k") == F.col("rk")) & (F.col("rpos") > F.col("pos")), "left_anti"
    )


def removed_before(
    keyed: KeyedDay, start: date, known: DataFrame, removed: DataFrame | None
) -> DataFrame | None:
    """`k`, `pos` of what was removed in the days that a day looks back on, without copies.

    Args:
        start: the day.
        known: entries, also of those days: `k`, `position`, `is_copy`.
        removed: what :func:`removed_in_window` gives; of another day it is looked up anew.
    """
    if start != keyed.day.day:
        removed = removed_on(keyed, keyed.day.window_before(start))
    if removed is None:
        return None
    again = known.where("is_copy").selectExpr("k AS copy_k", "position AS copy_at")
    return removed.join(again, F.expr("k = copy_k AND pos = copy_at"), "left_anti")


def placed_entries(
    keyed: KeyedDay,
    start: date,
    known: DataFrame,
    removed: DataFrame | None,
    base: DataFrame | None,
) -> DataFrame:
    """The entries from a day on with `pos`, newer than what was removed or truncated before it.

    Args:
        start: the day.
        known: entries, copies and those of the days looked back on among them.
        removed: `k`, `pos` of what was removed before the day.
        base: `k`, `pos` of the rows that stood before it.
    """
    day = keyed.day
    days = day.days_from(start)
    entries = Query(known).where(f"NOT is_copy AND landing_date >= {literal(start)}")
    placed = entries.drop("is_copy").extend({"pos": "position"}).plan()
    is_newer = start == day.day and day.is_all_after
    past_cut = None if is_newer else day.truncated(day.window_before(start))
    if any(day.facts_on(d).without_position for d in days):
        positions = highest_positions(removed, base)
        placed = with_positions(day, placed, keyed.events(days), days, positions, past_cut)
    if past_cut is not None:
        placed = placed.where(F.col("pos") > literal_position(past_cut))
    return placed if removed is None else without_removed(placed, removed)


def above_rows(entries: DataFrame, base: DataFrame) -> DataFrame:
    """The entries that are newer than the row of their key: all others are too late."""
    stands = base.selectExpr("k AS base_k", "pos AS base_pos")
    return entries.join(stands, F.expr("k = base_k AND pos <= base_pos"), "left_anti")


def highest_positions(removed: DataFrame | None, rows: DataFrame | None) -> DataFrame | None:
    """`k`, `pos`: the highest event of each key that landed before some day.

    Args:
        removed: what was removed before it.
        rows: the table as it stood before it.
    """
    parts = [frame.select("k", "pos") for frame in (rows, removed) if frame is not None]
    if not parts:
        return None
    both = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    return both.groupBy("k").agg(F.max("pos").alias("pos"))


def with_positions(
    day: TableDay,
    changes: DataFrame,
    events: DataFrame,
    days: Sequence[date],
    base: DataFrame | None,
    past_cut: Sequence[int] | None,
) -> DataFrame:
    """Add `pos`: a row change's own position, or directly after what landed before it (O6).

    Args:
        changes: `k`, `position`, and the place in Kafka of the event that each is of.
        events: for their truncates.
        days: of both.
        base: the highest position of each key that landed before these days.
        past_cut: that of truncates.
    """
    placed = changes.withColumn("seen", _seen(day, days))
    known = [F.col("seen"), literal_position(past_cut)]
    if any(facts.truncates for facts in day.facts_on_days(days)):
        placed = placed.crossJoin(F.broadcast(_cuts(events)))
        known += [cut_before(), _cut_earlier_day()]
    if base is not None:
        bases = base.select(F.col("k").alias("bk"), F.expr(real_part("pos")).alias("base_pos"))
        placed = placed.join(bases, F.col("k") == F.col("bk"), "left")
        known.append(F.col("base_pos"))
    after = directly_after(latest(*known), in_several_topics=day.has_leaves)
    return placed.withColumn("pos", F.coalesce("position", after)).drop(
        "cuts", "seen", "bk", "base_pos"
    )


def _seen(day: TableDay, days: Sequence[date]) -> Column:
    """The highest position of a key that landed before a row change on some days."""
    if all(facts.without_position == facts.events for facts in day.facts_on_days(days)):
        return literal_position(None)  # as in a first load: there is none to look for
    within = (
        Window.partitionBy("k", "topic", "partition")
        .orderBy("offset")
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    are_unread = any(day.removed_unread_on(d) for d in days)  # those stand behind events
    position = F.expr(real_part("position")) if are_unread else F.col("position")
    seen = [F.max(position).over(within)]
    if day.has_leaves:  # whose events are in several topics
        before = (
            Window.partitionBy("k", "landing_date")
            .orderBy("kafka_time")
            .rangeBetween(Window.unboundedPreceding, -1)
        )
        seen.append(F.max(position).over(before))
    if len(days) > 1:
        earlier_days = (
            Window.partitionBy("k")
            .orderBy(F.unix_date("landing_date"))
            .rangeBetween(Window.unboundedPreceding, -1)
        )
        seen.append(F.max(position).over(earlier_days))
    return latest(*seen)


def _cuts(events: DataFrame) -> DataFrame:
    """One row: `cuts`, the truncates that have a position, and where each stands in Kafka."""
    place = ("topic", "partition", "offset", "position", "landing_date", "kafka_time")
    truncates = events.where("op = 't' AND position IS NOT NULL")
    return truncates.agg(F.collect_list(F.struct(*place)).alias("cuts"))


def _cut_earlier_day() -> Column:
    """The highest truncate that landed on a day before; `cuts` lists them."""
    earlier = F.filter("cuts", lambda t: t["landing_date"] < F.col("landing_date"))
    return F.array_max(F.transform(earlier, lambda t: t["position"]))
