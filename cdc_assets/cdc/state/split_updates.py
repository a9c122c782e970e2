"""Updates that arrive as two events, old row and new row, and change the key (FORMATS W2, W3)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.envelopes.formats import FIRST_HALVES, SECOND_HALVES
from cdc_assets.cdc.positions import says_order
from cdc_assets.cdc.sqltext import with_columns
from cdc_assets.cdc.state.entry_queue import LEAVES
from cdc_assets.cdc.state.keyed_day import KeyedDay
from cdc_assets.cdc.state.row_sql import with_keys
from cdc_assets.cdc.state.table_events import events_on


def split_updates(keyed: KeyedDay) -> DataFrame:
    """Split updates that change the key and are complete.

    Returns:
        `sequence`, the keys `before_k` and `after_k` of first and second half, their days, `pos`
        and `source_ts_ms` of the first half, `day` on which the later half landed.
    """
    day = keyed.day
    is_before = F.col("source_op").isin(*FIRST_HALVES)
    is_after = F.col("source_op").isin(*SECOND_HALVES) & F.col("before").isNull()
    halves = events_on(day, [*day.pair_window, day.day]).where(is_before | is_after)
    # Without a sequenceId nothing says which halves belong together.
    ordered = halves.where(says_order(F.col("source_elements")))
    near = with_keys(ordered, keyed.columns).withColumnRenamed("source_elements", "sequence")
    before = near.where(is_before).select(
        "sequence",
        F.col("k").alias("before_k"),
        F.col("position").alias("pos"),
        "source_ts_ms",
        F.col("landing_date").alias("before_day"),
    )
    after = near.where(is_after).select(
        "sequence", F.col("k").alias("after_k"), F.col("landing_date").alias("after_day")
    )
    apart = F.abs(F.date_diff("before_day", "after_day"))
    return (
        before.join(after, "sequence")
        .where(F.col("before_k") != F.col("after_k"))
        .where(apart <= day.settings.late_days)
        .withColumn("day", F.greatest("before_day", "after_day"))
    )


def first_halves(pairs: DataFrame) -> DataFrame:
    """The old keys of split updates, as entries.

    Args:
        pairs: as :func:`split_updates` gives them.

    Returns:
        `k`, `kind`, `op`, `to_k` (the key that the row takes), `pos`, `source_ts_ms`, `kafka_time`
        (null) and `landing_date`, on which the update is complete.
    """
    return pairs.selectExpr(
        "before_k AS k", f"'{LEAVES}' AS kind", "'d' AS op", "after_k AS to_k", "pos",
        "source_ts_ms", "CAST(NULL AS bigint) AS kafka_time", "day AS landing_date",
    )  # fmt: skip


def with_link(keyed: KeyedDay, events: DataFrame) -> DataFrame:
    """Add `link`: the key that the row had before, also where a first half says so (W3)."""
    if not (keyed.day.may_be_unsent and keyed.day.has_split_updates):
        return with_columns(events, {"link": "ok"})
    pairs = (
        split_updates(keyed)
        .where(F.col("after_day") == F.lit(keyed.day.day))
        .groupBy(F.col("sequence").alias("pair_sequence"))
        .agg(F.max("before_k").alias("before_k"))
    )
    is_after = F.col("source_op").isin(*SECOND_HALVES) & F.col("before").isNull()
    same = is_after & (F.col("source_elements") == F.col("pair_sequence"))
    return events.join(pairs, same, "left").withColumn("link", F.coalesce("ok", "before_k"))


def split_update_removals(keyed: KeyedDay) -> DataFrame:
    """`k`, `is_removal`, `pos`, `source_ts_ms` of old keys whose update is complete on the day."""
    pairs = split_updates(keyed).where(F.col("day") == F.lit(keyed.day.day))
    removal = F.lit(True).alias("is_removal")
    return pairs.select(F.col("before_k").alias("k"), removal, "pos", "source_ts_ms").distinct()


def split_update_arrivals(keyed: KeyedDay) -> DataFrame:
    """`k`, `pos` (of the first half), `is_removal` of the day's rows that split updates bring."""
    pairs = split_updates(keyed).where(F.col("after_day") == F.lit(keyed.day.day))
    first = pairs.groupBy("sequence", F.col("after_k").alias("k")).agg(F.min("pos").alias("pos"))
    return first.select("k", "pos", F.lit(False).alias("is_removal"))
