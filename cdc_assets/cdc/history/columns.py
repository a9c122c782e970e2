"""The columns of a history: those of its table, and what a version adds; all its DDL."""

from __future__ import annotations

from functools import partial

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cdc_assets.cdc.config import RESERVED_PREFIX
from cdc_assets.cdc.lake import tables
from cdc_assets.cdc.lake.catalog import Lake, column_ddl
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import TableName, ddl_of, quote
from cdc_assets.cdc.values.spark_types import evolution

VALID_FROM, VALID_TO = tables.VALID_FROM, tables.VALID_TO
FROM_POSITION, TO_POSITION = "_cdc_from_position", "_cdc_to_position"
OP, CLOSED_BY = "_cdc_op", "_cdc_closed_by"
LAST_POSITION, LANDED = "_cdc_position", "_cdc_landing_date"


def _column(name: str, kind: DataType, comment: str) -> StructField:
    return StructField(name, kind, True, {"comment": comment})


VERSION_COLUMNS = StructType(
    [
        _column(VALID_FROM, TimestampType(), "source time of the event that began the version"),
        _column(VALID_TO, TimestampType(), "that of the event that ended it; null: current"),
        _column(FROM_POSITION, ArrayType(LongType()), "position of the event that began it"),
        _column(TO_POSITION, ArrayType(LongType()), "that of the event that ended it"),
        _column(OP, StringType(), "op of the event that began it: c, u, r"),
        _column(CLOSED_BY, StringType(), "what ended it: u, d, t, k (the row took another key)"),
        _column(LAST_POSITION, ArrayType(LongType()), "position of the key's last event in it"),
        _column(LANDED, DateType(), "day whose changes began, changed or ended it"),
    ]
)


def own_columns(schema: StructType) -> list[StructField]:
    """The table's own columns, without those of cdc-assets."""
    return [field for field in schema.fields if not field.name.startswith(RESERVED_PREFIX)]


def prepare(
    lake: Lake, source: str, history: TableName, table: str, label: str, is_first: bool
) -> str:
    """Create the history, or add and widen the columns that its table has by now.

    Args:
        history: its name.
        table: the identifier of its table.
        label: the name of the table, for the comment.
        is_first: the day is the history's first one, so that no day before needs its columns.

    Returns:
        The identifier of the history.
    """
    wanted = own_columns(lake.spark.table(table).schema)
    identifier = lake.state(source, history)
    if not lake.exists(identifier):
        schema = StructType([*wanted, *VERSION_COLUMNS.fields])
        comment = f"every version of the rows of {label}: VERSION AS OF '<day>'"
        return lake.create_state(source, history, schema, comment, bucket=None)
    present = {f.name: ddl_of(f.dataType) for f in own_columns(lake.spark.table(identifier).schema)}
    last: str | None = None
    for field in wanted:
        kind, name = ddl_of(field.dataType), field.name
        changes = evolution(present[name], kind) if name in present else None
        if name in present and changes is None and is_first:
            _alter(lake, identifier, f"DROP COLUMN {quote(name)}")
        if changes is None:
            place = f"AFTER {quote(last)}" if last else "FIRST"
            column = column_ddl(name, kind, field.metadata.get("comment"))
            _alter(lake, identifier, f"ADD COLUMN {column} {place}")
        for path, to, is_new in changes or []:
            at = quote(name, *path)
            _alter(
                lake,
                identifier,
                f"ADD COLUMN {at} {to}" if is_new else f"ALTER COLUMN {at} TYPE {to}",
            )
        last = name
    return identifier


def _alter(lake: Lake, identifier: str, change: str) -> None:
    with_retry(partial(lake.spark.sql, f"ALTER TABLE {identifier} {change}"))
