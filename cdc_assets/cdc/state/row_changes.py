"""The row changes of a day: upserts and removals by key, each at its place, and their winners."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.positions import has_whole_rows, literal_position
from cdc_assets.cdc.sqltext import Query, case
from cdc_assets.cdc.state.keyed_day import PLACE, KeyedDay
from cdc_assets.cdc.state.placement import highest_positions, with_positions, without_removed
from cdc_assets.cdc.state.split_updates import split_update_removals, with_link
from cdc_assets.cdc.state.table_events import IS_ROW_CHANGE
from cdc_assets.cdc.state.unsent_values import UnsentColumns


def row_changes(keyed: KeyedDay, removed: DataFrame | None) -> DataFrame:
    """Upserts and removals of the day, also those that an earlier day's removal beats.

    Args:
        removed: `k`, `pos` of what was removed in the `late_days` window.

    Returns:
        `k` (typed key), `pos` (effective position), `is_removal`, `after`, `schema_id`,
        `source_ts_ms`, `link` (the key that the row had before, where it changed), `old_image`.
    """
    day = keyed.day
    events = keyed.events([day.day])
    # Above all that landed before, events meet no truncate of it.
    past_cut = None if day.is_all_after else day.truncated(day.window)
    changes = keyed.without_copies(_changes_by_key(keyed, with_link(keyed, events)))
    if day.day_facts.without_position:
        base = highest_positions(removed, keyed.rows_before(day.day))
        placed = with_positions(day, changes, events, [day.day], base, past_cut)
        changes = placed.drop("position", *PLACE)
    else:
        changes = Query(changes).extend({"pos": "position"}).drop("position", *PLACE).plan()
    if day.has_split_updates:
        changes = changes.unionByName(split_update_removals(keyed), allowMissingColumns=True)
    floor = max([p for p in (keyed.truncated, past_cut) if p is not None], default=None)
    if floor is not None:
        changes = changes.where(F.col("pos") > literal_position(floor))
    return changes


def _changes_by_key(keyed: KeyedDay, events: DataFrame) -> DataFrame:
    """What events do to keys: `k`, `is_removal`, `position`, `after`, `link` and their place."""
    day = keyed.day
    common = ["schema_id", "source_ts_ms", *PLACE]
    image = "CAST(NULL AS string)"
    if day.may_be_unsent:
        # The whole old row has what an update did not send (R2).
        is_full = day.config.replica_identity == "full"
        is_whole = has_whole_rows("position_basis", "connector", is_full)
        image = case((f"op IN ('u', 'd') AND {is_whole}", "before"))
    common.append(f"{image} AS old_image")
    own = Query(events).where(IS_ROW_CHANGE).extend({"is_removal": "op = 'd'"})
    kept = [f"CASE WHEN NOT is_removal THEN {name} END AS {name}" for name in ("after", "link")]
    changes = own.select("k", "is_removal", "position", *kept, *common).where("k IS NOT NULL")
    if not day.day_facts.key_changes:
        return changes.plan()
    gone = ("true AS is_removal", "position", "CAST(NULL AS string) AS after")
    no_link = f"CAST(NULL AS {events.schema['k'].dataType.simpleString()}) AS link"
    left = keyed.old_key_removals(events, [day.day]).where("k IS NOT NULL")
    return changes.plan().unionByName(left.selectExpr("k", *gone, no_link, *common))


def winners(changes: DataFrame, removed: DataFrame | None, unsent: UnsentColumns) -> DataFrame:
    """One row a key: its highest event, and what unsent columns last carried.

    Args:
        changes: the day's row changes as `UnsentColumns.add_to` gives them.
        removed: what was removed in the `late_days` window.

    Returns:
        `k`, `pos`, `is_removal`, `after`, `schema_id`, `source_ts_ms`, `removed_pos` (the highest
        removal of the day); with unsent columns `old_image`, their flags and carried values.
    """
    if removed is not None:
        changes = without_removed(changes, removed)
    what = ["is_removal", "pos", "after", "schema_id", "source_ts_ms", *unsent.flags]
    if unsent.columns:
        what.append("old_image")
    aggregates = {
        "w": f"max_by(struct({', '.join(what)}), pos)",
        "removed_pos": "max(CASE WHEN is_removal THEN pos END)",
        **unsent.aggregates(),
    }
    grouped = Query(changes).aggregate(("k",), aggregates)
    chosen = grouped.select("k", "w.*", "removed_pos", *unsent.carried)
    return chosen.replace(unsent.after_removal()).plan()
