"""Rows of a source's table `schemas`: add them, and correct their first day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from pyspark.sql import Row
from pyspark.sql.types import StructType

from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.sqltext import local_frame, named

_MOVED = StructType([columns.SCHEMAS[n] for n in ("table_name", "schema_id", "first_landed")])


def add_schemas(lake: Lake, source: str, new: Sequence[Row]) -> None:
    """Add schemas to the existing table; a known one keeps its earliest day.

    Args:
        lake: the lake.
        source: the source.
        new: rows of `SCHEMAS`.
    """
    if not new:
        return
    # Few and small: plain rows avoid MERGE's trouble with views on Iceberg tables.
    rows, identifier = (
        local_frame(lake.spark, new, columns.SCHEMAS),
        lake.stage(source, "schemas"),
    )
    state = lake.read_state(identifier)
    if state is not None and "main" not in state.refs:
        # Planning a MERGE takes three times as long, and an empty table has nothing to match.
        with_retry(lambda: rows.writeTo(identifier).append())
        return
    listed = ", ".join(columns.SCHEMAS.names)
    values = ", ".join(f"s.{column}" for column in columns.SCHEMAS.names)
    with named(rows) as view:
        with_retry(
            lambda: lake.spark.sql(
                f"MERGE INTO {identifier} t USING {view} s "
                "ON t.schema_id = s.schema_id AND t.table_name <=> s.table_name "
                "AND t.registry_id <=> s.registry_id WHEN MATCHED THEN "
                "UPDATE SET t.first_landed = least(t.first_landed, s.first_landed) "
                f"WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})"
            )
        )


def move_schemas(
    lake: Lake, source: str, first_days: Mapping[tuple[str, str], date | None]
) -> None:
    """Set the first day of tables' schemas, or remove schemas without one.

    Args:
        lake: the lake.
        source: the source.
        first_days: the day by table and schema id; None removes the row.
    """
    if not first_days:
        return
    listed = [(table, schema_id, first) for (table, schema_id), first in first_days.items()]
    moved = local_frame(lake.spark, listed, _MOVED)
    with named(moved) as view:
        with_retry(
            lambda: lake.spark.sql(
                f"MERGE INTO {lake.stage(source, 'schemas')} t USING {view} s "
                "ON t.schema_id = s.schema_id AND t.table_name = s.table_name "
                "WHEN MATCHED AND s.first_landed IS NULL THEN DELETE "
                "WHEN MATCHED THEN UPDATE SET t.first_landed = s.first_landed"
            )
        )
