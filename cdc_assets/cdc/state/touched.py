"""Where the rows of a day's keys stand in a table that is partitioned by what its rows hold.

What the day's images say of their partitions is only a guess: rows that are not found there are
looked up by their keys in the whole table. So a wrong guess costs time, and no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame

from cdc_assets.cdc.config import Transform
from cdc_assets.cdc.json_reader import value_at
from cdc_assets.cdc.lake.commits import DayBranch
from cdc_assets.cdc.lake.layouts import partition_value
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Query, Sql, literal, named
from cdc_assets.cdc.state.day_types import OwnColumn
from cdc_assets.cdc.state.keyed_day import KeyedDay
from cdc_assets.cdc.state.retyping import rows_on
from cdc_assets.cdc.state.row_sql import key_types, typed_columns

# A day that touches more values of a partition is not worth a filter.
_MOST_VALUES = 1000
_RANGED = ("int", "bigint", "string", "date")


@dataclass(frozen=True)
class Touched:
    """Where the rows of a day's keys stand.

    `where` is a condition on a row `t` of the table. `partitions` are how many values of each
    partition the day touches; `elsewhere` is how many keys are looked up in the whole table;
    `unknown` are columns whose old values are not sent, so that all partitions are read.
    """

    where: Sql = "true"
    partitions: Mapping[str, int] = field(default_factory=dict)
    elsewhere: int = 0
    unknown: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """As a day's report has it."""
        return {
            "partitions": dict(self.partitions),
            "elsewhere": self.elsewhere,
            "unknown": list(self.unknown),
        }


EVERYWHERE = Touched()


def touched(keyed: KeyedDay, on: DayBranch, rows: DataFrame) -> Touched:
    """Where the rows of the day's keys stand: two or three jobs, none without partitions.

    Args:
        rows: the day's winners, a local checkpoint.
    """
    config, columns = keyed.day.config, keyed.columns
    own = {c.name: c for c in columns.own}
    partitions = [p for p in config.layout.partitions if p.column in own]
    if not partitions:
        return EVERYWHERE
    unknown = _without_old_values(keyed, [own[p.column] for p in partitions])
    known = [p for p in partitions if p.column not in unknown]
    found = {p: _values(keyed, rows, p, own[p.column]) for p in known}
    listed = {p: values for p, values in found.items() if values is not None}
    if not listed:
        return Touched(unknown=unknown)
    where = " AND ".join(f"({_is_in(p, values)})" for p, values in listed.items())
    elsewhere, others = _keys_elsewhere(keyed, on, rows, where)
    return Touched(
        where if others is None else f"(({where}) OR {others})",
        {str(p): len(values) for p, values in listed.items()},
        elsewhere,
        unknown,
    )


def _old_images(keyed: KeyedDay) -> DataFrame:
    """The changes of rows that may have stood in the table before: `k`, `after`, `schema_id`."""
    events = keyed.events([keyed.day.day]).where("op IN ('u', 'd')")
    return events.selectExpr("k", "before AS after", "schema_id")


def _without_old_values(keyed: KeyedDay, columns: Iterable[OwnColumn]) -> list[str]:
    """The columns whose old values some changes of the day lack, and which may change."""
    config, keys = keyed.day.config, keyed.columns.key_names
    asked = sorted({c.name for c in columns} - {*keys, *config.immutable})
    if not asked:
        return []
    counts = {
        f"n{n}": f"count_if({value_at('after', literal(name))} IS NULL)"
        for n, name in enumerate(asked)
    }
    found = Query(_old_images(keyed)).aggregate((), counts).plan().first()
    assert found is not None
    return [name for n, name in enumerate(asked) if found[n]]


def _values(
    keyed: KeyedDay, rows: DataFrame, partition: Transform, column: OwnColumn
) -> list[Any] | None:
    """The partition's values before and after the day's changes; None: too many to list."""
    columns = keyed.columns
    work = dict(zip(columns.key_names, columns.key_work, strict=True))
    if column.name in work:
        key = partition_value(partition, f"k.{work[column.name]}")
        frames = [rows.selectExpr(f"{key} AS value")]
    else:
        value = f"{partition_value(partition, column.work)} AS value"
        old = typed_columns(Query(_old_images(keyed)), replace(columns, own=(column,)))
        old_values = old.where(f"{column.work} IS NOT NULL").plan()  # null: may not be sent
        frames = [rows.where("NOT is_removal").selectExpr(value), old_values.selectExpr(value)]
    distinct = reduce(DataFrame.union, frames).distinct()
    values = [row.value for row in distinct.limit(_MOST_VALUES + 1).collect()]
    is_listed = len(values) <= _MOST_VALUES and all(map(_has_literal, values))
    return values if is_listed else None


def _is_in(partition: Transform, values: Sequence[Any]) -> Sql:
    """True for a row `t` of the table with one of these values of a partition."""
    column = f"t.{quote(partition.column)}"
    given = ", ".join(map(_literal, (v for v in values if v is not None)))
    conditions = [f"{partition_value(partition, column)} IN ({given})"] if given else []
    if None in values:
        conditions.append(f"{column} IS NULL")
    return " OR ".join(conditions) or "false"


def _keys_elsewhere(
    keyed: KeyedDay, on: DayBranch, rows: DataFrame, where: Sql
) -> tuple[int, Sql | None]:
    """The keys that no row of these partitions has: how many, and a condition on their rows."""
    columns = keyed.columns
    same = [
        (f"s.k.{work}", f"t.{quote(name)}")
        for name, work in zip(columns.key_names, columns.key_work, strict=True)
    ]
    ranged = [
        (key, target)
        for (key, target), kind in zip(same, key_types(columns), strict=True)
        if kind in _RANGED or kind.startswith("decimal")
    ]
    bounds = [f"min({key}), max({key})" for key, _ in ranged]
    with named(rows.select("k")) as winners:
        found = rows.sparkSession.sql(
            f"SELECT {', '.join(['count(*)', *bounds])} FROM {winners} s WHERE NOT EXISTS ("
            f"SELECT 1 FROM {keyed.day.rows_in(rows_on(on))} t WHERE ({where}) AND "
            f"{' AND '.join(f'{key} = {target}' for key, target in same)})"
        ).first()
    assert found is not None
    count, *ends = found
    if not count:
        return 0, None
    ranges = (
        f"{target} BETWEEN {_literal(low)} AND {_literal(high)}"
        for (_, target), low, high in zip(ranged, ends[::2], ends[1::2], strict=True)
    )
    return count, f"({' AND '.join(ranges) or 'true'})"


def _has_literal(value: Any) -> bool:
    return value is None or (
        isinstance(value, (str, int, Decimal, date)) and not hasattr(value, "hour")
    )


def _literal(value: Any) -> Sql:
    """A value that Spark returned, as SQL."""
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    # Iceberg's functions return INT: a BIGINT beside one would hide it from its scans.
    is_int = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31
    return str(value) if is_int else literal(value)
