"""Whether a source sends labels of ENUM and SET, or their numbers (FORMATS C1).

A label that is itself a number leaves open what a number is. Columns of the source with other
labels say it: a source sends all its columns alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.earlier_days import known_schemas
from cdc_assets.cdc.sqltext import Query, Sql, case, literal, literals
from cdc_assets.cdc.state.renaming import object_in_lake
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.json_value import member

_KINDS = ("enum", "set")


@dataclass(frozen=True)
class Labels:
    """What numbers are in columns with labels that are numbers.

    `are_sent`: labels, not numbers; None where no column has said it yet, which counts as numbers.
    `open` is how many values of a column that leaves open.
    """

    are_sent: bool | None = None
    open: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LabelQuestion:
    """What is to be counted: values of `own` columns that leave it open, and of `others`.

    `others` are columns of any table of the source whose labels are no numbers, by table and name.
    """

    own: Mapping[str, types.ColumnType]
    others: Mapping[tuple[str, str], types.ColumnType]


def is_open(kind: types.ColumnType) -> bool:
    """Does a type have labels that are numbers?"""
    return kind.wire in _KINDS and types.has_numbers(kind.labels)


def as_labels(kind: types.ColumnType) -> types.ColumnType:
    """The type of a source that sends labels alone."""
    return replace(kind, wire=f"{kind.wire}_label") if is_open(kind) else kind


def label_question(day: TableDay, columns: Iterable[types.ColumnTypes]) -> LabelQuestion | None:
    """What to ask the day's events; None where no column leaves it open.

    Args:
        columns: the types that messages have.
    """
    own = {name: kind for named in columns for name, kind in named.items() if is_open(kind)}
    if not own:
        return None
    # All tables of the source say it, also those that are not made now.
    known = known_schemas(day.lake, day.source)
    others = {
        (table, name): kind
        for (table, _), named in known.columns.items()
        for name, kind in named.items()
        if kind.wire in _KINDS and not types.has_numbers(kind.labels)
    }
    return LabelQuestion(own, others)


def label_counts(day: TableDay, question: LabelQuestion) -> DataFrame:
    """One row: `n<i>` numbers and `l<i>` labels of the others, `o<i>` open values of its own."""
    rows = day.lake.stage_days(day.source, "changes", [day.day])
    tables = sorted({day.table, *(table for table, _ in question.others)})
    image = "coalesce(after, before)"
    if day.sent.rename:
        own = (f"table_name = {literal(day.table)}", object_in_lake(image, day.sent.rename))
        image = case(own, otherwise=image)
    images = Query(rows.where(F.col("table_name").isin(tables))).extend(
        {"_row": f"try_parse_json({image})"}
    )
    counts: dict[str, Sql] = {}
    for n, (table, name) in enumerate(sorted(question.others)):
        value = member("_row", name, "string")
        is_here = f"table_name = {literal(table)} AND {value} <> ''"
        counts[f"n{n}"] = f"count_if({is_here} AND {value} RLIKE '^[0-9]+$')"
        counts[f"l{n}"] = f"count_if({is_here} AND NOT {value} RLIKE '^[0-9]+$')"
    for n, name in enumerate(sorted(question.own)):
        value = member("_row", name, "string")
        is_both = f"{value} IN ({literals(question.own[name].labels)}) AND {value} RLIKE '^[0-9]+$'"
        counts[f"o{n}"] = f"count_if(table_name = {literal(day.table)} AND {is_both})"
    return images.aggregate((), counts).plan()


def labels_counted(day: TableDay, question: LabelQuestion, counts: Row) -> Labels:
    """What the source sends.

    Args:
        day: the table's day; what its report of the day before says holds until the day itself
            says something else.
        counts: the row of :func:`label_counts`.
    """
    numbers, labels = (sum(counts[f"{k}{n}"] for n in range(len(question.others))) for k in "nl")
    are_sent = labels > numbers if numbers or labels else _labels_sent_before(day)
    left_open = {n: counts[f"o{i}"] for i, n in enumerate(sorted(question.own)) if counts[f"o{i}"]}
    return Labels(are_sent, left_open if are_sent is None else {})


def _labels_sent_before(day: TableDay) -> bool | None:
    said = day.report_on(day.day - timedelta(days=1)).get("labels_sent")
    return said if isinstance(said, bool) else None
