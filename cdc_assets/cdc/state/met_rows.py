"""Rows that meet another one at their key, where nothing says what became of that (O2, O16)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.changes import order_facts
from cdc_assets.cdc.config import TABLE_OF_ROW
from cdc_assets.cdc.positions import LSN
from cdc_assets.cdc.sqltext import Query
from cdc_assets.cdc.state.keyed_day import KeyedDay
from cdc_assets.cdc.state.row_changes import row_changes
from cdc_assets.cdc.state.row_sql import standing_values
from cdc_assets.cdc.state.split_updates import split_update_arrivals
from cdc_assets.cdc.state.table_day import POSITION
from cdc_assets.cdc.state.table_events import IS_ROW_CHANGE
from cdc_assets.cdc.values.placeholders import may_hold_placeholder

# They carry changes of databases of any kind, and do not say of which.
_OF_ANY_DATABASE = ("ogg", "dataworks")


@dataclass(frozen=True)
class MetRows:
    """Rows of a day that met another one at their key; 0 where the day can have none.

    `arrived_on_rows` came by a key change to a key where one still stood, of formats that do not
    say the database. `before_of_others` are old images of PostgreSQL's whole rows that are not the
    row which another transaction left at the key on the same day. `of_other_tables` came to a key
    at which a row of another table stood, of tables that go into one (R8).
    """

    arrived_on_rows: int = 0
    before_of_others: int = 0
    of_other_tables: int = 0


def count_met_rows(keyed: KeyedDay, removed: DataFrame | None) -> MetRows:
    """Rows of the day that met another one at their key: a job where a key changed.

    Args:
        removed: what was removed in the `late_days` window.
    """
    day = keyed.day
    if day.has_leaves and day.day_facts.events:
        return MetRows(of_other_tables=_of_other_tables(keyed, removed))
    if day.settings.format in _OF_ANY_DATABASE:
        if day.day_facts.key_changes or day.has_split_updates:
            return MetRows(arrived_on_rows=_arrived_on_rows(keyed, removed))
    elif day.config.replica_identity == "full" and day.day_facts.key_changes:
        return MetRows(before_of_others=_before_of_others(keyed))
    return MetRows()


def _arrived_on_rows(keyed: KeyedDay, removed: DataFrame | None) -> int:
    comes = "coalesce(NOT is_removal AND NOT (link <=> k) AND link IS NOT NULL, false)"
    changes = Query(row_changes(keyed, removed))
    entries = changes.select("k", "pos", "is_removal", f"{comes} AS arrives").plan()
    if keyed.day.has_split_updates and not keyed.day.may_be_unsent:  # else they have a link
        arrivals = split_update_arrivals(keyed).withColumn("arrives", F.lit(True))
        entries = entries.unionByName(arrivals)
    rows = keyed.standing()
    if rows is not None:
        keys = entries.where("arrives").select("k").distinct()
        standing = rows.join(keys, "k", "left_semi")
        entries = entries.unionByName(
            standing.selectExpr("k", "pos", "false AS is_removal", "false AS arrives")
        )
    stood = "NOT lag(is_removal, 1, true) OVER (PARTITION BY k ORDER BY pos)"
    return Query(entries).extend({"met": f"arrives AND {stood}"}).plan().where("met").count()


def _of_other_tables(keyed: KeyedDay, removed: DataFrame | None) -> int:
    """Rows that came to a key at which one of another table stood, and was not removed."""
    leaf = f"get_json_object(after, '$.{TABLE_OF_ROW}')"
    changes = Query(row_changes(keyed, removed))
    entries = changes.select("k", "pos", "is_removal", f"{leaf} AS leaf", "true AS is_new").plan()
    table = keyed.table_before(keyed.day.day)
    if table is not None and TABLE_OF_ROW in table.columns:
        key, *_ = standing_values(table.schema, keyed.columns)
        leaf_of_row = F.col(TABLE_OF_ROW).alias("leaf")
        standing = table.select(key, F.col(POSITION).alias("pos"), leaf_of_row)
        met = standing.join(entries.select("k").distinct(), "k", "left_semi")
        entries = entries.unionByName(
            met.selectExpr("k", "pos", "leaf", "false AS is_removal", "false AS is_new")
        )
    before = "lag(struct(is_removal, leaf)) OVER (PARTITION BY k ORDER BY pos, is_new)"
    placed = Query(entries).extend({"met": before})
    differs = "is_new AND NOT is_removal AND NOT met.is_removal AND met.leaf <> leaf"
    return placed.where(differs).plan().count()


def _before_of_others(keyed: KeyedDay) -> int:
    day = keyed.day
    is_postgresql = f"position IS NOT NULL AND startswith(position_basis, '{LSN},')"
    events = keyed.without_copies(keyed.events([day.day]).where(is_postgresql))
    known = Query(events).extend({"tx": order_facts.transaction()}).plan()
    own = known.where(IS_ROW_CHANGE).selectExpr("k", "position", "tx", "before", "after")
    left = keyed.old_key_removals(known, [day.day])
    left = left.selectExpr("k", "position", "tx", "before", "CAST(NULL AS string) AS after")
    in_order = "PARTITION BY k ORDER BY position"
    placed = Query(own.unionByName(left)).where("k IS NOT NULL")
    met = placed.extend(
        {"met": f"lag(after) OVER ({in_order})", "met_tx": f"lag(tx) OVER ({in_order})"}
    )
    # What was not sent (R2), and what only one of the two has, tells nothing.
    unsent = (may_hold_placeholder(n, day.settings.unavailable_value) for n in ("met", "before"))
    differs = (
        "tx <> met_tx AND before <> met AND json_object_keys(before) = json_object_keys(met) "
        f"AND NOT ({' OR '.join(unsent)})"
    )
    return met.plan().where(F.expr(differs)).count()
