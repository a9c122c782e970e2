"""After a key change, what an event did not send is what the old key's row had (FORMATS R2)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.positions import is_one_change, removal_position
from cdc_assets.cdc.sqltext import Query, case
from cdc_assets.cdc.state.day_types import OwnColumn
from cdc_assets.cdc.state.unsent_values import UnsentColumns


def inherit(
    changes: DataFrame,
    unsent: UnsentColumns,
    past: tuple[DataFrame | None, DataFrame | None],
    has_split_updates: bool,
    checkpoints: Checkpoints,
) -> DataFrame:
    """Give an event that changed the key, for what it did not send, the old key's values.

    The old key's values may be inherited too (a→b→c): each round looks one change further,
    and most days have none. A removal of the old key ends the search, unless it is part of
    the same change.

    Args:
        changes: the day's row changes as `UnsentColumns.add_to` gives them; `is_truncate`, where
            it is there, says which are none of the key's own.
        past: the table's rows at the end of the day before, and `k`, `pos` of removals on the days
            looked back on; each None where there are none.
        checkpoints: keeps the few rows of each round: a job each.
    """
    if not unsent.has_links:
        return changes
    lacking = F.lit(False)
    for flag in unsent.flags:
        lacking = lacking | F.col(flag)
    concerned = changes.where(F.col("link").isNotNull() & lacking)
    movers = checkpoints.add(concerned.select("k", "pos", "link").distinct())
    entries = _entries_before(movers, unsent, *past)

    def inherited_from(known: DataFrame) -> DataFrame:
        return _values_of_old_keys(movers, known, entries, unsent, has_split_updates)

    inherited = inherited_from(changes)
    chained = movers
    while not (chained := checkpoints.add(_chained(chained))).isEmpty():
        inherited = checkpoints.add(inherited)
        inherited = inherited_from(_with_inherited(changes, inherited, unsent))
    return _with_inherited(changes, inherited, unsent)


def _entries_before(
    movers: DataFrame,
    unsent: UnsentColumns,
    rows: DataFrame | None,
    removed: DataFrame | None,
) -> DataFrame | None:
    """Entries of old keys from before the day: the rows that stood there, and removals."""
    olds = movers.select(F.col("link").alias("k")).distinct()
    parts = []
    if rows is not None:
        values = {
            c.last: F.struct(
                F.lit(None).cast("string").alias("json"),
                F.lit(None).cast("string").alias("schema_id"),
                F.col(c.work).alias("row"),
            )
            for c in unsent.columns
        }
        standing = rows.join(olds, "k", "left_semi").withColumns(values)
        parts.append(standing.select("k", "pos", F.lit(False).alias("is_removal"), *values))
    if removed is not None:
        gone = removed.join(olds, "k", "left_semi").withColumn("is_removal", F.lit(True))
        parts.append(gone)
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    return parts[0].unionByName(parts[1], allowMissingColumns=True)


def _chained(movers: DataFrame) -> DataFrame:
    """The key changes whose old key is the new key of one of these."""
    earlier = movers.select(F.col("k").alias("via"), F.col("pos").alias("via_pos"))
    follows = (F.col("link") == F.col("via")) & (F.col("via_pos") < F.col("pos"))
    return movers.join(earlier, follows, "left_semi")


def _with_inherited(changes: DataFrame, inherited: DataFrame, unsent: UnsentColumns) -> DataFrame:
    found = {c.last: f"i{c.index}" for c in unsent.columns}
    values = inherited.select(
        F.col("k").alias("mover_k"),
        F.col("pos").alias("mover_pos"),
        *(F.col(last).alias(name) for last, name in found.items()),
    )
    same = (F.col("k") == F.col("mover_k")) & (F.col("pos") == F.col("mover_pos"))
    known = {
        last: F.coalesce(last, F.when(~F.col("is_removal"), F.col(name)))
        for last, name in found.items()
    }
    joined = changes.join(values, same, "left").withColumns(known)
    return joined.drop("mover_k", "mover_pos", *found.values())


def _values_of_old_keys(
    movers: DataFrame,
    changes: DataFrame,
    past: DataFrame | None,
    unsent: UnsentColumns,
    has_split_updates: bool,
) -> DataFrame:
    """`k`, `pos` of key changes, and the last values of the old key below each."""
    entries = changes.select("k", "pos", "is_removal", *unsent.lasts)
    is_truncate = F.lit(False)
    if "is_truncate" in changes.columns:
        is_truncate = F.coalesce("is_truncate", F.lit(False))
        entries = changes.select("k", "pos", "is_removal", "is_truncate", *unsent.lasts)
    if past is not None:
        entries = entries.unionByName(past, allowMissingColumns=True)
    olds = entries.select(
        F.col("k").alias("old_k"),
        F.col("pos").alias("old_pos"),
        F.col("is_removal").alias("is_gone"),
        is_truncate.alias("is_cut"),
        *(F.col(c.last).alias(_old(c)) for c in unsent.columns),
    )
    below = (F.col("link") == F.col("old_k")) & (F.col("old_pos") < F.col("pos"))
    same_change = is_one_change("old_pos", "pos", has_split_updates)
    own = f"(NOT is_cut AND ({same_change} OR old_pos = {removal_position('pos')}))"
    left_at = f"max(CASE WHEN is_gone AND {own} THEN old_pos END) OVER (PARTITION BY k, pos)"
    # Where this change took the row away: what stood before that is what it was.
    found = Query(movers.join(olds, below)).extend({"left_at": f"coalesce({left_at}, pos)"})
    gone_before = f"is_gone AND NOT {own} AND old_pos < left_at"
    aggregates = {"ended": f"max({case((gone_before, 'old_pos'))})"}
    known = []
    for c in unsent.columns:
        old, at, image = _old(c), f"at{c.index}", f"image{c.index}"
        stood_at = case((f"{old} IS NOT NULL AND NOT is_gone AND old_pos < left_at", "old_pos"))
        image_at = case((f"{old} IS NOT NULL AND is_gone AND {own}", "old_pos"))
        aggregates |= {old: f"max_by({old}, {stood_at})", at: f"max({stood_at})"}
        aggregates[image] = f"max_by({old}, {image_at})"
        last = case((f"ended IS NULL OR {at} > ended", old))
        known.append(f"coalesce({image}, {last}) AS {c.last}")
    return found.aggregate(("k", "pos"), aggregates).select("k", "pos", *known).plan()


def _old(c: OwnColumn) -> str:
    """The last value of the old key."""
    return f"o{c.index}"
