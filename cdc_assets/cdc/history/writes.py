"""The versions of a day → the day's branch, and the audit of what stands there then."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.history import columns as names
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayBranch
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Query, Sql, named
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.retyping import as_stored, rows_on
from cdc_assets.cdc.state.row_sql import standing_values
from cdc_assets.cdc.state.table_day import TableDay


@dataclass(frozen=True)
class Versions:
    """What a day leaves of the versions of its keys; of a small table of all keys.

    `latest_ms` is the last time at which one began or ended.
    """

    current: int = 0
    audited: int = 0
    latest_ms: int | None = None


def write(
    lake: Lake,
    on: DayBranch,
    versions: DataFrame,
    replaced: DataFrame,
    columns: TableColumns,
    is_rewritten: bool,
) -> None:
    """Replace the versions of some keys that end at a position or later, or are current.

    Args:
        lake: where the branch is.
        on: the branch.
        versions: what takes their place, with `k`.
        replaced: `k`, `low`: the keys and the position.
        columns: the key's among them.
        is_rewritten: the table is small: it is written anew as a whole.
    """
    new = as_stored(versions.drop("k"), on)
    if on.base is not None:
        with named(replaced) as lows:
            since = f"(t.{names.TO_POSITION} IS NULL OR t.{names.TO_POSITION} >= s.low)"
            is_it = f"{_same_key(columns)} AND {since}"
            is_replaced = f"EXISTS (SELECT 1 FROM {lows} s WHERE {is_it})"
            if is_rewritten:
                kept = lake.spark.sql(f"SELECT * FROM {on.identifier} t WHERE NOT {is_replaced}")
                rows = kept.unionByName(new, allowMissingColumns=True)
                with_retry(lambda: rows.writeTo(on.identifier).overwrite(F.lit(True)))
                return
            statement = f"DELETE FROM {on.identifier} t WHERE {is_replaced}"
            with_retry(lambda: lake.spark.sql(statement))
    with_retry(lambda: new.writeTo(on.identifier).append())


def _same_key(columns: TableColumns) -> Sql:
    pairs = zip(columns.key_names, columns.key_work, strict=True)
    return " AND ".join(f"t.{quote(name)} = s.k.{work}" for name, work in pairs)


def audit(day: TableDay, on: DayBranch, keys: DataFrame | None, columns: TableColumns) -> Versions:
    """The versions of a key follow each other, and its last one is its row in the table.

    Args:
        keys: `k`: those that are looked at; None: all.

    Raises:
        AuditError: versions overlap, or the current ones are not the rows of the table.
    """
    history = day.lake.spark.sql(f"SELECT * FROM {rows_on(on)}")
    assert day.state is not None  # the table's day is made
    table = day.at(day.state.tags[day.day])
    known = {name: F.col(name) for name in _AUDITED}
    versions = history.select(*standing_values(history.schema, columns), *known.values())
    rows = table.select(*standing_values(table.schema, columns))
    if keys is not None:
        versions, rows = (f.join(F.broadcast(keys), "k", "left_semi") for f in (versions, rows))
    hashed = f"xxhash64({', '.join(_parts(columns))}) AS h"
    following = {
        "next_from": f"lead({names.VALID_FROM}) OVER ({_IN_ORDER})",
        "next_position": f"lead({names.FROM_POSITION}) OVER ({_IN_ORDER})",
    }
    is_current = f"{names.TO_POSITION} IS NULL"
    counted = (
        Query(versions)
        .select("k", *known, hashed)
        .extend(following)
        .aggregate(
            (),
            {
                "n": "count(*)",
                "current": f"count_if({is_current})",
                "h": f"bit_xor(CASE WHEN {is_current} THEN h END)",
                "overlapping": f"count_if({_OVERLAPS})",
                "latest": f"unix_millis(max(coalesce({names.VALID_TO}, {names.VALID_FROM})))",
            },
        )
    )
    standing = (
        Query(rows)
        .select("k", hashed)
        .aggregate(
            (),
            {
                "n": "NULL",
                "current": "count(*)",
                "h": "bit_xor(h)",
                "overlapping": "0",
                "latest": "NULL",
            },
        )
    )
    found, expected = counted.plan().unionByName(standing.plan()).collect()
    if found.n is None:
        found, expected = expected, found
    if found.overlapping:
        raise AuditError(
            day.label,
            day.day,
            f"{found.overlapping} versions of its history overlap the next one of their key. "
            f"{_REPORT}",
            check="versions_disjoint",
        )
    if (found.current, found.h) != (expected.current, expected.h):
        raise AuditError(
            day.label,
            day.day,
            f"its history has {found.current} current versions of the {expected.current} rows "
            f"that stand in the table{_where(versions, rows, columns)}. {_REPORT}",
            check="versions_match_table",
        )
    return Versions(found.current, found.n, found.latest)


_AUDITED = (names.VALID_FROM, names.VALID_TO, names.FROM_POSITION, names.TO_POSITION)
_IN_ORDER = f"PARTITION BY k ORDER BY {names.FROM_POSITION}"
_OVERLAPS = (
    f"{names.VALID_TO} < {names.VALID_FROM} OR next_from < {names.VALID_TO} "
    f"OR {names.TO_POSITION} < {names.FROM_POSITION} OR next_position < {names.TO_POSITION} "
    f"OR (next_position IS NOT NULL AND {names.TO_POSITION} IS NULL)"
)
_REPORT = "Nothing is published; make the day again, and report this with the tables' snapshots"


def _parts(columns: TableColumns) -> list[Sql]:
    """What a row's hash is made of; a hash leaves nulls out, and can't be made of a map."""
    return [
        part
        for c in columns.own
        for part in (
            f"to_json(struct({c.work}))" if "map<" in c.spark else c.work,
            f"{c.work} IS NULL",
        )
    ]


def _where(versions: DataFrame, rows: DataFrame, columns: TableColumns) -> str:
    """How many of the rows are in one of both only, as the rest of a sentence."""
    work = [c.work for c in columns.own if "map<" not in c.spark]
    current = versions.where(F.col(names.TO_POSITION).isNull()).select(*work)
    rows = rows.select(*work)
    only_here, only_there = current.exceptAll(rows).count(), rows.exceptAll(current).count()
    return f": {only_here} are not there, {only_there} are missing"
