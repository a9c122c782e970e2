"""Rows that meet another one at their key, where nothing says what became of that (O2, O16)."""

from __future__ import annotations

from pyspark.sql import functions as F

from cdc_assets.cdc.changes import order_facts
from cdc_assets.cdc.positions import LSN
from cdc_assets.cdc.sqltext import Query
from cdc_assets.cdc.state.keyed import IS_MOVE, Keyed
from cdc_assets.cdc.values.placeholders import may_hold_placeholder

# They carry changes of databases of any kind, and do not say of which.
_OF_ANY_DATABASE = ("ogg", "dataworks")


def count_met_rows(keyed: Keyed) -> dict[str, int]:
    """Rows of the day that met another one at their key: a job where a key changed.

    Returns:
        `arrived_on_rows`: rows that came by a key change to a key where one still stood, of formats
        that do not say the database. `before_of_others`: old images of PostgreSQL's whole rows that
        are not the row which another transaction left at the key on the same day. Both are
        left out where the day can have none.
    """
    day = keyed.day
    if day.settings.format in _OF_ANY_DATABASE:
        if day.day_facts.key_changes or day.has_split_updates:
            return {"arrived_on_rows": _arrived_on_rows(keyed)}
    elif day.config.replica_identity == "full" and day.day_facts.key_changes:
        return {"before_of_others": _before_of_others(keyed)}
    return {}


def _arrived_on_rows(keyed: Keyed) -> int:
    comes = "coalesce(NOT is_removal AND NOT (link <=> k) AND link IS NOT NULL, false)"
    moves = Query(keyed.moves()).select("k", "pos", "is_removal", f"{comes} AS arrives")
    entries = moves.plan()
    if keyed.day.has_split_updates and not keyed.day.may_be_unsent:  # else they have a link
        entries = entries.unionByName(keyed.pair_arrivals().withColumn("arrives", F.lit(True)))
    rows = keyed.standing()
    if rows is not None:
        keys = entries.where("arrives").select("k").distinct()
        standing = rows.join(keys, "k", "left_semi")
        entries = entries.unionByName(
            standing.selectExpr("k", "pos", "false AS is_removal", "false AS arrives")
        )
    stood = "NOT lag(is_removal, 1, true) OVER (PARTITION BY k ORDER BY pos)"
    return Query(entries).extend({"met": f"arrives AND {stood}"}).plan().where("met").count()


def _before_of_others(keyed: Keyed) -> int:
    day = keyed.day
    of_postgresql = f"position IS NOT NULL AND startswith(position_basis, '{LSN},')"
    events = keyed.without_copies(keyed.events([day.day]).where(of_postgresql))
    told = Query(events).extend({"tx": order_facts.transaction()}).plan()
    own = told.where(IS_MOVE).selectExpr("k", "position", "tx", "before", "after")
    left = keyed.left_keys(told, [day.day])
    left = left.selectExpr("k", "position", "tx", "before", "CAST(NULL AS string) AS after")
    in_order = "PARTITION BY k ORDER BY position"
    placed = Query(own.unionByName(left)).where("k IS NOT NULL")
    known = placed.extend(
        {"met": f"lag(after) OVER ({in_order})", "met_tx": f"lag(tx) OVER ({in_order})"}
    )
    # What was not sent (R2), and what only one of the two has, tells nothing.
    unsent = (may_hold_placeholder(n, day.settings.unavailable_value) for n in ("met", "before"))
    differs = (
        "tx <> met_tx AND before <> met AND json_object_keys(before) = json_object_keys(met) "
        f"AND NOT ({' OR '.join(unsent)})"
    )
    return known.plan().where(F.expr(differs)).count()
