"""Schema contracts as pandera models: columns and types of the lake's tables.

Importing pandera costs seconds; it is done in the run path, when a contract is checked.
Rows are not looked at here: what depends on values is counted by the stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType


def broken(frame: DataFrame, expected: StructType, needed: Sequence[str] = ()) -> list[str]:
    """How a table's columns differ from a contract; empty where they keep it.

    Args:
        frame: the table; no row of it is read.
        expected: the columns that it must have, with their types.
        needed: columns that it must have, whatever their types.
    """
    import pandera.pyspark as pa

    missing = [f"{name}: column is missing" for name in needed if name not in frame.columns]
    schema = pa.DataFrameSchema(
        {f.name: pa.Column(_untyped(f.dataType), nullable=True) for f in expected.fields}
    )
    out: Any = schema.validate(frame.limit(0), lazy=True)
    errors = dict(out.pandera.errors).get("SCHEMA", {})
    return missing + [
        f"{fault.get('column')}: {fault.get('error')}"
        for faults in errors.values()
        for fault in faults
    ]


def _untyped(kind: DataType) -> Any:
    """pandera takes Spark's types; its annotations do not say so."""
    return kind
