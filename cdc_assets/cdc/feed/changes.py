"""The entries of keys → the changes of rows since the day before: frames, no Spark job.

The rows that stood are entries among the day's events. What stands behind the last entry that an
earlier day knew changes the row; what is older changed nothing. Where late events may change a row
otherwise, the table's row at the end of the day is the last entry: so the changes always lead from
one day's table to the next one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, LongType, StringType, TimestampType

from cdc_assets.cdc.feed import columns as names
from cdc_assets.cdc.history import columns as versions
from cdc_assets.cdc.history.entries import Keys, entries_of_all
from cdc_assets.cdc.history.versions import differs_from_before, with_values
from cdc_assets.cdc.lake.tables import NUMBER
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import case, literal
from cdc_assets.cdc.state.entry_queue import LEAVES, READ, STOOD
from cdc_assets.cdc.state.keyed_day import KeyedDay
from cdc_assets.cdc.state.table_day import LANDED, POSITION
from cdc_assets.cdc.state.unsent_values import UnsentColumns

_IN_ORDER = "PARTITION BY k ORDER BY n"


def rows_as_versions(keyed: KeyedDay, start: date) -> DataFrame | None:
    """The rows of the table before a day, each as a version that has not ended.

    Returns:
        The table's columns, and `VERSION_COLUMNS`; None where it had no row.
    """
    table = keyed.table_before(start)
    if table is None:
        return None
    nothing = {
        versions.VALID_FROM: F.lit(None).cast(TimestampType()),
        versions.VALID_TO: F.lit(None).cast(TimestampType()),
        versions.FROM_POSITION: F.col(POSITION),
        versions.TO_POSITION: F.lit(None).cast(ArrayType(LongType())),
        versions.OP: F.lit(None).cast(StringType()),
        versions.CLOSED_BY: F.lit(None).cast(StringType()),
        versions.LAST_POSITION: F.col(POSITION),
        versions.LANDED: F.col(LANDED).cast(DateType()),
    }
    return table.withColumns(nothing)


def changes_of(parts: Sequence[Keys], unsent: UnsentColumns) -> DataFrame:
    """The changes of some keys on a day.

    Args:
        parts: the keys, all of which are folded, or none.
        unsent: the columns that some entries did not send.

    Returns:
        The table's own columns by quoted name, and `CHANGE_COLUMNS`.
    """
    keyed, on = parts[0].keyed, literal(parts[0].keyed.day.day)
    is_own = f"coalesce(is_typed, false) AND kind <> '{STOOD}'"  # the table's row at its end
    entries = entries_of_all(parts, unsent).extend(
        {"is_of_day": f"{is_own} OR landing_date <=> {on} AND kind <> '{STOOD}'"}
    )
    known = "max(CASE WHEN NOT is_of_day THEN n END) OVER (PARTITION BY k)"
    placed = entries.extend({"is_new": f"is_of_day AND n > coalesce({known}, -1)"})
    are_folded = parts[0].is_folded
    own = keyed.columns.own
    valued = with_values(placed, keyed.columns, unsent, are_folded, with_removed=True)
    removed = {} if are_folded else {
        c.work: case(("top < 0", f"lag({c.work}) OVER ({_IN_ORDER})"), otherwise=c.work)
        for c in own
    }  # fmt: skip
    may_say_nothing = f"kind = '{READ}' AND top_before >= 0 AND top >= 0"
    says = case((may_say_nothing, differs_from_before(own, _IN_ORDER)), otherwise="true")
    found = valued.extend({"says": says}).replace(removed)
    changes = found.where("is_new AND top <> top_before AND says")
    change = case(
        ("top < 0", literal(names.DELETE)),
        ("top_before < 0", literal(names.INSERT)),
        otherwise=literal(names.UPDATE),
    )
    return changes.select(
        *(f"{c.work} AS {quote(c.name)}" for c in own),
        f"{change} AS {names.CHANGE}",
        f"CASE WHEN kind = '{LEAVES}' THEN 'k' ELSE op END AS {names.OP}",
        f"CAST(row_number() OVER ({_IN_ORDER}) AS int) AS {NUMBER}",
        f"pos AS {names.POSITION}",
        f"time AS {names.TIME}",
        f"{on} AS {names.LANDED}",
    ).plan()
