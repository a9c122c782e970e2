"""`soft_delete: true`: rows that the source deleted stay in the table, with the time (D12, O4).

They are none of the table's rows for all that makes its days: those see what
:meth:`~cdc_assets.cdc.state.table_day.TableDay.at` and ``rows_in`` show. Once the day's rows are
written and audited, the deleted ones are put beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.config import DELETED_AT
from cdc_assets.cdc.json_reader import value_at
from cdc_assets.cdc.lake.commits import DayBranch
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Query, Sql, case, is_one_of, literal
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.keyed_day import KeyedDay
from cdc_assets.cdc.state.retyping import as_stored, rows_on
from cdc_assets.cdc.state.row_sql import standing_values, typed_columns
from cdc_assets.cdc.state.table_day import LANDED, POSITION, SOURCE_TS, TableDay
from cdc_assets.cdc.state.table_events import BY_AGE, IS_ROW_CHANGE, IS_UPSERT
from cdc_assets.cdc.values.placeholders import placeholder_forms


@dataclass(frozen=True)
class DayRows:
    """How many rows a day has, and how many were written and removed; deleted ones are none."""

    rows: int
    written: int
    removed: int


def keep_deleted(keyed: KeyedDay, on: DayBranch, winners: DataFrame, is_whole: bool) -> DayRows:
    """Put the deleted rows beside those of the day; take all away where the table keeps none.

    Args:
        on: the branch, with the rows of the day.
        winners: of the day, a local checkpoint.
        is_whole: rows may be gone from the branch that no winner replaced.
    """
    day = keyed.day
    counted = day.lake.spark.sql(
        f"SELECT count(*) AS rows, count_if({LANDED} <=> DATE'{day.day}') AS written "
        f"FROM {day.rows_in(rows_on(on))}"
    ).first()
    assert counted is not None
    if day.config.soft_delete:
        rows = as_stored(_deleted(keyed, on, winners, is_whole), on)
        with_retry(lambda: rows.writeTo(on.identifier).append())
    else:
        statement = f"DELETE FROM {on.identifier} WHERE {DELETED_AT} IS NOT NULL"
        with_retry(lambda: day.lake.spark.sql(statement))
    removed = day.rows_before + counted.written - counted.rows
    return DayRows(counted.rows, counted.written, removed)


def _deleted(keyed: KeyedDay, on: DayBranch, winners: DataFrame, is_whole: bool) -> DataFrame:
    """The deleted rows that are not on the branch, as the table holds them.

    A row has the values that it last had: those of the image of its delete, else of its last event
    of the day, else those that stood.
    """
    day, columns = keyed.day, keyed.columns
    removals = winners.where("is_removal").selectExpr("k", "pos AS w_pos", "source_ts_ms AS w_ms")
    if keyed.truncated is not None:
        removals = removals.unionByName(_below_truncate(keyed, winners))
    told = _told_by_images(keyed, removals)
    stood = _stood(day, columns, winners, is_whole)
    found = removals.join(told, "k", "left")
    found = found.withColumnRenamed("k", "w_k") if stood is not None else found
    if stood is not None:
        joined = stood.join(found, F.expr("b_k <=> w_k"), "full")
        rows = Query(joined).extend({"k": "coalesce(b_k, w_k)"})
    else:
        nothing = {"b_k": f"CAST(NULL AS {winners.schema['k'].dataType.simpleString()})"}
        nothing |= {f"b_{c.work}": f"CAST(NULL AS {c.spark})" for c in columns.own}
        nothing |= {f"b_{n}": f"CAST(NULL AS {t})" for n, t in _STOOD.items()}
        rows = Query(found).extend(nothing)
    is_newer = "u_is_there AND (b_k IS NULL OR u_pos IS NULL OR u_pos > b_pos)"
    rows = rows.extend({"is_newer": f"coalesce({is_newer}, false)"}).where(
        "b_k IS NOT NULL OR is_newer"
    )
    rows = rows.extend({"is_kept": "b_deleted_at IS NOT NULL AND NOT is_newer"})
    gone = rows.plan().join(_keys_on(day, on, columns), "k", "left_anti")
    values: dict[str, Sql] = {}
    keys = dict(zip(columns.key_names, columns.key_work, strict=True))
    for c in columns.own:
        if c.name in keys:
            values[quote(c.name)] = f"k.{keys[c.name]}"
            continue
        values[quote(c.name)] = case(
            ("is_kept", f"b_{c.work}"),
            (f"d_sent_{c.work}", f"d_{c.work}"),
            (f"is_newer AND u_sent_{c.work}", f"u_{c.work}"),
            otherwise=f"b_{c.work}",
        )
    removed_at = case(("u_pos > w_pos", "NULL"), otherwise="w_ms")  # a truncate came behind it
    at = f"timestamp_millis(coalesce({removed_at}, {_removed_at(keyed)}L))"
    values |= {
        POSITION: case(("is_kept", "b_pos"), otherwise="greatest(w_pos, u_pos, b_pos)"),
        SOURCE_TS: case(("is_kept", "b_ms"), otherwise="coalesce(w_ms, b_ms)"),
        LANDED: case(("is_kept", "b_landed"), otherwise=literal(day.day)),
        DELETED_AT: case(("is_kept", "b_deleted_at"), otherwise=at),
    }
    return gone.selectExpr(*(f"{sql} AS {name}" for name, sql in values.items()))


def _below_truncate(keyed: KeyedDay, winners: DataFrame) -> DataFrame:
    """The keys that only events below the day's truncate have, with their last delete."""
    events = keyed.events([keyed.day.day]).where(f"({IS_ROW_CHANGE}) AND k IS NOT NULL")
    last = f"max_by(struct(position, source_ts_ms), {BY_AGE}) FILTER (WHERE op = 'd')"
    below = Query(events).aggregate(("k",), {"w": last})
    found = below.select("k", "w.position AS w_pos", "w.source_ts_ms AS w_ms").plan()
    return found.join(winners.select("k"), "k", "left_anti")


_STOOD = {
    "pos": "array<bigint>",
    "ms": "bigint",
    "landed": "date",
    "deleted_at": "timestamp",
}


def _stood(
    day: TableDay, columns: TableColumns, winners: DataFrame, is_whole: bool
) -> DataFrame | None:
    """The rows of the day before, deleted ones too, that may be gone; None: there was none.

    Returns:
        `b_k`, `b_pos`, `b_ms`, `b_landed`, `b_deleted_at` and each column's value.
    """
    if day.base is None:
        return None
    table = day.at_with_deleted(day.base)
    key, *values = standing_values(table.schema, columns)
    has_deleted = DELETED_AT in table.columns
    deleted_at = F.col(DELETED_AT) if has_deleted else F.lit(None).cast("timestamp")
    named = [F.expr(day.position_of("rows_in")).alias("b_pos"), F.col(SOURCE_TS).alias("b_ms")]
    named += [F.col(LANDED).alias("b_landed"), deleted_at.alias("b_deleted_at")]
    rows = table.alias("rows_in").select(key, *values, *named)
    if not is_whole:
        rows = rows.join(winners.select("k"), "k", "left_semi")
    prefixed = {c.work: f"b_{c.work}" for c in columns.own}
    return rows.withColumnsRenamed({"k": "b_k", **prefixed})


def _told_by_images(keyed: KeyedDay, removals: DataFrame) -> DataFrame:
    """What images of the day say of the rows that it removes.

    Returns:
        `k`, `u_is_there`, `u_pos` (the position of the last upsert), and the values of upserts
        (`u_…`) and of the deletes' old images (`d_…`), each with whether it was sent.
    """
    day, columns = keyed.day, keyed.columns
    events = keyed.events([day.day]).join(removals.select("k"), "k", "left_semi")
    is_delete = "op = 'd' AND before IS NOT NULL"
    grouped = Query(events).aggregate(
        ("k",),
        {
            "u": f"max_by(struct(after, schema_id, position), {BY_AGE}) FILTER (WHERE {IS_UPSERT})",
            "d": f"max_by(struct(before AS after, schema_id), {BY_AGE}) FILTER (WHERE {is_delete})",
        },
    )
    images = grouped.plan()
    upserts = images.selectExpr("k", "u.after", "u.schema_id", "u.position AS u_pos")
    deletes = images.selectExpr("k", "d.after", "d.schema_id")
    is_there = upserts.withColumn("u_is_there", F.expr("after IS NOT NULL"))
    of_upserts = _sent(day, columns, is_there, "u", ["u_pos", "u_is_there"])
    return of_upserts.join(_sent(day, columns, deletes, "d", []), "k", "full")


def _sent(
    day: TableDay, columns: TableColumns, images: DataFrame, prefix: str, kept: Sequence[str]
) -> DataFrame:
    """The values of an image by column, and which of them it has (R1, R2)."""
    forms = placeholder_forms(day.settings.unavailable_value)
    flags = {}
    for c in columns.own:
        value = value_at("after", literal(c.name))
        is_sent = f"{value} IS NOT NULL AND NOT {is_one_of(value, forms)}"
        flags[f"{prefix}_sent_{c.work}"] = f"coalesce({is_sent}, false)"
    typed = typed_columns(Query(images).extend(flags), columns).plan()
    values = [f"{c.work} AS {prefix}_{c.work}" for c in columns.own]
    return typed.selectExpr("k", *kept, *flags, *values)


def _keys_on(day: TableDay, on: DayBranch, columns: TableColumns) -> DataFrame:
    """The keys of all rows on the branch."""
    rows = day.lake.spark.sql(f"SELECT * FROM {rows_on(on)}")
    key, *_ = standing_values(rows.schema, columns)
    return rows.select(key)


def _removed_at(keyed: KeyedDay) -> int:
    """When rows went that no event of theirs removed (ms UTC): with a truncate, or a snapshot."""
    day = keyed.day
    if keyed.truncated is not None:
        truncates = keyed.events([day.day]).where("op = 't'")
        found = truncates.selectExpr("max(coalesce(source_ts_ms, kafka_time)) AS ms").first()
        if found is not None and found.ms is not None:
            return int(found.ms)
    if day.snapshots.ended:
        return max(snapshot.last.ms for snapshot in day.snapshots.ended)
    return int(day.inputs.config.end_of(day.day).timestamp() * 1000) - 1
