"""The entries of keys → versions of rows: frames, no Spark job."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.derived.columns import own_columns
from cdc_assets.cdc.history import columns as names
from cdc_assets.cdc.history.entries import CLOSING, Keys, entries_of_all
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Query, Sql, case, literal
from cdc_assets.cdc.state.day_types import OwnColumn, TableColumns
from cdc_assets.cdc.state.entry_queue import READ, STOOD
from cdc_assets.cdc.state.row_sql import typed_columns
from cdc_assets.cdc.state.table_day import LANDED, POSITION, SOURCE_TS, TableDay
from cdc_assets.cdc.state.unsent_values import UnsentColumns

_IN_ORDER = "PARTITION BY k ORDER BY n"
_SO_FAR = f"({_IN_ORDER} ROWS UNBOUNDED PRECEDING)"


def versions_of(
    parts: Sequence[Keys], unsent: UnsentColumns, tracked: Sequence[OwnColumn] | None
) -> DataFrame:
    """The versions of some keys that began on a day, or that it may have changed or ended.

    Args:
        parts: the keys, all of which are folded, or none.
        unsent: the columns that some entries did not send.
        tracked: the columns whose changes begin a version; None: each event does, but a read that
            says nothing new.

    Returns:
        `k`, the table's own columns by quoted name, and `VERSION_COLUMNS`.
    """
    day, columns = parts[0].keyed.day, parts[0].keyed.columns
    on, entries = day.day, entries_of_all(parts, unsent)
    has_reads = unsent.has_links or any(keys.has_reads for keys in parts)
    timed = entries.extend(
        {
            # A source's clock may fall back: versions never overlap.
            "at": f"max(time) OVER {_SO_FAR}",
            "met": f"lag(pos) OVER ({_IN_ORDER})",
            "met_last": "max(pos) OVER (PARTITION BY k)",
        }
    )
    tail = f"array(-1L, CAST(unix_date({literal(on)}) AS bigint))"
    placed = timed.extend({"place": f"coalesce(pos, concat(met, {tail}))"})
    valued = with_values(placed, columns, unsent, parts[0].is_folded)
    changes = valued.where("top <> top_before")
    begins = _begins(columns.values if tracked is None else tracked, tracked is not None, has_reads)
    opened = changes.extend({"begins": f"coalesce({begins}, true)"})
    first = "struct(coalesce(from_position, place) AS from_position, at AS valid_from, op)"
    runs = opened.extend(
        {
            "began": f"last(CASE WHEN begins THEN {first} END, true) OVER {_SO_FAR}",
            "run": f"count_if(begins) OVER {_SO_FAR}",
            "goes_on": f"NOT coalesce(lead(begins) OVER ({_IN_ORDER}), true)",
            "end": f"lead(struct(place, at, kind, landing_date, met)) OVER ({_IN_ORDER})",
        }
    ).extend({"changed_on": "max(landing_date) OVER (PARTITION BY k, run)"})
    kept = runs.where("top >= 0 AND NOT goes_on")
    closed_by = case(
        *((f"end.kind = '{kind}'", f"'{op}'") for op, kind in CLOSING.items()),
        ("end IS NOT NULL", "'u'"),
    )
    return kept.select(
        "k",
        *(f"{c.work} AS {quote(c.name)}" for c in columns.own),
        f"began.valid_from AS {names.VALID_FROM}",
        f"end.at AS {names.VALID_TO}",
        f"began.from_position AS {names.FROM_POSITION}",
        f"end.place AS {names.TO_POSITION}",
        f"began.op AS {names.OP}",
        f"{closed_by} AS {names.CLOSED_BY}",
        f"CASE WHEN end IS NULL THEN met_last ELSE end.met END AS {names.LAST_POSITION}",
        f"coalesce(greatest(changed_on, end.landing_date), {literal(on)}) AS {names.LANDED}",
    ).plan()


def rows_that_stand(day: TableDay) -> DataFrame:
    """The first versions of a history that begins later than its table: its rows on a day.

    Returns:
        The table's own columns, and `VERSION_COLUMNS`.
    """
    assert day.state is not None  # the table's day is made
    table = day.at(day.state.tags[day.day])
    values = {
        names.VALID_FROM: f"timestamp_millis({SOURCE_TS})",
        names.VALID_TO: "CAST(NULL AS timestamp)",
        names.FROM_POSITION: POSITION,
        names.TO_POSITION: "CAST(NULL AS array<bigint>)",
        names.OP: "'r'",
        names.CLOSED_BY: "CAST(NULL AS string)",
        names.LAST_POSITION: POSITION,
        names.LANDED: LANDED,
    }
    own = (quote(field.name) for field in own_columns(table.schema))
    return table.selectExpr(*own, *(f"{value} AS {name}" for name, value in values.items()))


def with_values(
    entries: Query,
    columns: TableColumns,
    unsent: UnsentColumns,
    are_folded: bool,
    with_removed: bool = False,
) -> Query:
    """Each entry with the values of the row that is the key's after it.

    Args:
        entries: those of :func:`entries_of_all`.
        columns: the table's.
        unsent: the columns that some entries did not send.
        are_folded: their keys are.
        with_removed: an entry of a folded key that leaves no row has the one that it took.
    """
    stood = {c.stood: c.work for c in columns.own}
    kept = entries.extend(stood).drop(*stood.values())
    if unsent.columns and are_folded:
        kept = kept.extend({"old_image": "CAST(NULL AS string)"})
    typed = typed_columns(kept, columns, unsent)
    values = {}
    for c in columns.own:
        value = c.work
        if c in unsent.columns:
            value = case((f"{c.unsent} <=> true", c.fill), otherwise=c.work)
        values[c.work] = case(("is_typed", c.stood), otherwise=value)
    found = typed.replace(values)
    if not are_folded:
        return found
    frame = found.plan()
    rows = Query(frame).select(
        "k AS row_k",
        "n AS row_n",
        "op AS row_op",
        *(f"{c.work} AS r{c.index}" for c in columns.own),
    )
    row = case(("top < 0", "top_before"), otherwise="top") if with_removed else "top"
    joined = Query(frame.join(rows.plan(), F.expr(f"k = row_k AND {row} = row_n"), "left"))
    op = case(("top < 0", "op"), otherwise="coalesce(row_op, op)")
    return joined.replace({"op": op, **{c.work: f"r{c.index}" for c in columns.own}})


def _begins(compared: Sequence[OwnColumn], is_tracked: bool, has_reads: bool) -> Sql:
    """Does a version begin with the row that an entry leaves, behind another one of its key?"""
    if not (is_tracked or has_reads):
        return "true"
    # What stood began versions by the rules of its day.
    may_go_on = f"top_before >= 0 AND top >= 0 AND kind <> '{STOOD}'"
    may_go_on += "" if is_tracked else f" AND kind = '{READ}'"
    return case((may_go_on, differs_from_before(compared, _IN_ORDER)), otherwise="true")


def differs_from_before(compared: Sequence[OwnColumn], window: Sql) -> Sql:
    """Has an entry other values than the one before it?"""
    values = [_comparable(c) for c in compared]
    row = f"struct({', '.join(values)})" if values else "1"
    return f"NOT (lag({row}) OVER ({window}) <=> {row})"


def _comparable(c: OwnColumn) -> Sql:
    """A value as something that can be compared; a map can't."""
    return f"to_json(struct({c.work}))" if "map<" in c.spark else c.work
