"""Whether a source sends labels of ENUM and SET, or their numbers (FORMATS C1).

A label that is itself a number leaves open what a number is. Columns of the source with other
labels say it: a source sends all its columns alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from pyspark.sql import functions as F

from cdc_assets.cdc.changes.earlier_days import known_schemas
from cdc_assets.cdc.sqltext import Query, Sql, literal, literals
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.readers import member

_KINDS = ("enum", "set")


@dataclass(frozen=True)
class Labels:
    """What numbers are in columns with labels that are numbers.

    `are_sent`: labels, not numbers; None where no column has said it yet, which counts as numbers.
    `open` is how many values of a column that leaves open.
    """

    are_sent: bool | None = None
    open: Mapping[str, int] = field(default_factory=dict)


def is_open(kind: types.ColumnType) -> bool:
    """Does a type have labels that are numbers?"""
    return kind.wire in _KINDS and types.has_numbers(kind.labels)


def as_labels(kind: types.ColumnType) -> types.ColumnType:
    """The type of a source that sends labels alone."""
    return replace(kind, wire=f"{kind.wire}_label") if is_open(kind) else kind


def find_labels(day: TableDay, columns: Iterable[types.ColumnTypes]) -> Labels:
    """What the source sends; a job of its own, none where no column leaves it open.

    Args:
        day: the table's day; what its report of the day before says holds until the day itself
            says something else.
        columns: the types that messages have.
    """
    own = {name: kind for of in columns for name, kind in of.items() if is_open(kind)}
    if not own:
        return Labels()
    # All tables of the source say it, also those that are not made now.
    known = known_schemas(day.lake, day.name)
    others = {
        (table, name): kind
        for (table, _), of in known.columns.items()
        for name, kind in of.items()
        if kind.wire in _KINDS and not types.has_numbers(kind.labels)
    }
    rows = day.lake.stage_days(day.name, "changes", [day.day])
    tables = sorted({day.table, *(table for table, _ in others)})
    images = Query(rows.where(F.col("table_name").isin(tables))).extend(
        {"_row": "try_parse_json(coalesce(after, before))"}
    )
    counts: dict[str, Sql] = {}
    for n, (table, name) in enumerate(sorted(others)):
        value = member("_row", name, "string")
        is_here = f"table_name = {literal(table)} AND {value} <> ''"
        counts[f"n{n}"] = f"count_if({is_here} AND {value} RLIKE '^[0-9]+$')"
        counts[f"l{n}"] = f"count_if({is_here} AND NOT {value} RLIKE '^[0-9]+$')"
    for n, name in enumerate(sorted(own)):
        value = member("_row", name, "string")
        is_both = f"{value} IN ({literals(own[name].labels)}) AND {value} RLIKE '^[0-9]+$'"
        counts[f"o{n}"] = f"count_if(table_name = {literal(day.table)} AND {is_both})"
    found: Any = images.aggregate((), counts).plan().first()
    numbers, labels = (sum(found[f"{k}{n}"] for n in range(len(others))) for k in "nl")
    are_sent = labels > numbers if numbers or labels else _before(day)
    counted = {name: found[f"o{n}"] for n, name in enumerate(sorted(own)) if found[f"o{n}"]}
    return Labels(are_sent, counted if are_sent is None else {})


def _before(day: TableDay) -> bool | None:
    said = day.report_on(day.day - timedelta(days=1)).get("labels_sent")
    return said if isinstance(said, bool) else None
