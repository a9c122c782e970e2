"""What a change of a row has beside the table's own columns."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cdc_assets.cdc.lake.tables import NUMBER

CHANGE, OP, TIME = "_cdc_change", "_cdc_op", "_cdc_source_time"
POSITION, LANDED = "_cdc_position", "_cdc_landing_date"
INSERT, UPDATE, DELETE = "insert", "update", "delete"


def _column(name: str, kind: DataType, comment: str) -> StructField:
    return StructField(name, kind, True, {"comment": comment})


CHANGE_COLUMNS = StructType(
    [
        _column(CHANGE, StringType(), "insert, update: the row after it; delete: the one it took"),
        _column(OP, StringType(), "op of the event: c, u, r, d, t, k (the row took another key)"),
        _column(NUMBER, IntegerType(), "orders the changes of a key on a day, from 1"),
        _column(POSITION, ArrayType(LongType()), "position of the event; null: see docs/lake.md"),
        _column(TIME, TimestampType(), "source time of the event"),
        _column(LANDED, DateType(), "day on whose table the change was made"),
    ]
)
