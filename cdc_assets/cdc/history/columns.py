"""What a version of a row has beside the table's own columns."""

from __future__ import annotations

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

from cdc_assets.cdc.lake import tables

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
