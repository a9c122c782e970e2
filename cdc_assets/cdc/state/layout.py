"""The layout of a table as cdc.yaml has it: `partition_by` and `sort_by`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from cdc_assets.cdc.config import Layout, Transform
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.lake.layouts import NO_LAYOUT, layout_of, layout_text, set_layout
from cdc_assets.cdc.state.table_day import TableDay

_WHOLE = (IntegerType, LongType, DecimalType)
_TIMES = (TimestampType, TimestampNTZType)
# By the transforms of Iceberg's specification.
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "hours": _TIMES,
    "days": (DateType, *_TIMES),
    "months": (DateType, *_TIMES),
    "years": (DateType, *_TIMES),
    "bucket": (*_WHOLE, DateType, *_TIMES, StringType, BinaryType),
    "truncate": (*_WHOLE, StringType, BinaryType),
}


def lay_out(day: TableDay, columns: Mapping[str, str], is_dropped: bool) -> None:
    """Give the table the layout that cdc.yaml asks for, where it has another one.

    Args:
        columns: the table's own columns, and their types.
        is_dropped: :func:`drop_layout` was called.

    Raises:
        ConfigError: it has no such column, or Iceberg no such transform of its type.
    """
    layout = day.config.layout
    stored = layout_of(day.state.properties) if day.state and not is_dropped else NO_LAYOUT
    if layout_text(layout) == stored or not columns:
        return
    _check(day, layout, columns)
    set_layout(day.lake, day.identifier, layout)


def drop_layout(day: TableDay) -> None:
    """Take the layout away, so that its columns may go: :func:`lay_out` gives it again."""
    if day.state is not None and layout_of(day.state.properties) != NO_LAYOUT:
        set_layout(day.lake, day.identifier, Layout())


def _check(day: TableDay, layout: Layout, columns: Mapping[str, str]) -> None:
    faults = []
    listed = [("partition_by", term) for term in layout.partitions]
    listed += [("sort_by", field.term) for field in layout.order]
    for setting, term in listed:
        where = f"sources.{day.source}.tables.{day.table}.{setting}: {term}"
        if term.column not in columns:
            known = ", ".join(columns)
            faults.append(f"{where}: the table has no column {term.column!r}; it has {known}")
        elif fault := _misfit(term, columns[term.column]):
            faults.append(f"{where}: {fault}")
    if faults:
        raise ConfigError(faults)


def _misfit(term: Transform, kind: str) -> str | None:
    """What is wrong with a transform of a column's type."""
    data_type = DataType.fromDDL(kind)
    allowed = _TYPES.get(term.name, tuple({t for types in _TYPES.values() for t in types}))
    if isinstance(data_type, allowed):
        return None
    can_be = ", ".join(sorted({kind.typeName() for kind in allowed}))
    return f"the column is {kind}; expected one of {can_be}"
