"""Schema contracts as pandera models: columns and types of the lake's tables.

Importing pandera costs seconds; it is done in the run path, when a contract is checked.
Rows are not looked at here: what depends on values is counted by the stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructField, StructType

from cdc_assets.cdc.config import TableConfig
from cdc_assets.cdc.names import ddl_of, is_column_name
from cdc_assets.cdc.state.day_types import OWN_COLUMNS
from cdc_assets.cdc.values.column_types import ColumnTypes, columns_of_config
from cdc_assets.cdc.values.spark_types import evolution


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


def broken_of_table(
    frame: DataFrame, config: TableConfig, message_columns: ColumnTypes, keys: Sequence[str]
) -> list[str]:
    """How a state table differs from what its configuration and its messages say.

    A column may be wider than the configuration says: it has grown with its values (R5).

    Args:
        frame: the table.
        config: how it is read, with the columns' names in the lake.
        message_columns: the columns that message schemas name, by these names.
        keys: the key columns in the lake.
    """
    actual = {f.name: f.dataType for f in frame.schema.fields}
    expected = list(OWN_COLUMNS.fields)
    for own, column in columns_of_config(config.lake_columns).items():
        if own not in actual:
            continue
        fits = evolution(ddl_of(actual[own]), column.spark) == []
        expected.append(StructField(own, actual[own] if fits else DataType.fromDDL(column.spark)))
    named = [name for name in message_columns if is_column_name(name)]
    return broken(frame, StructType(expected), needed=list(dict.fromkeys([*keys, *named])))


def _untyped(kind: DataType) -> Any:
    """pandera takes Spark's types; its annotations do not say so."""
    return kind
