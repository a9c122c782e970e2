"""The rows of a source's table `schemas`: added, and moved where their first day was corrected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from pyspark.sql import Row

from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.sqltext import named


def add_schemas(lake: Lake, name: str, fresh: Sequence[Row]) -> None:
    """Add schemas to the table, which is there; one that it has keeps its earliest day.

    Args:
        lake: where the table is.
        name: the source.
        fresh: rows of `SCHEMAS`.
    """
    if not fresh:
        return
    # Few and small; as plain rows they can't meet MERGE's trouble with views on Iceberg tables.
    rows = lake.spark.createDataFrame(fresh, columns.SCHEMAS)
    listed = ", ".join(columns.SCHEMAS.names)
    values = ", ".join(f"s.{column}" for column in columns.SCHEMAS.names)
    with named(rows) as view:
        with_retry(
            lambda: lake.spark.sql(
                f"MERGE INTO {lake.stage(name, 'schemas')} t USING {view} s "
                "ON t.schema_id = s.schema_id AND t.table_name <=> s.table_name "
                "AND t.registry_id <=> s.registry_id WHEN MATCHED THEN "
                "UPDATE SET t.first_landed = least(t.first_landed, s.first_landed) "
                f"WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})"
            )
        )


def move_schemas(lake: Lake, name: str, to: Mapping[tuple[str, str], date | None]) -> None:
    """Give schemas of tables another first day, or remove those that have none any more.

    Args:
        lake: where the table is.
        name: the source.
        to: by table and schema id the day; None removes the row.
    """
    if not to:
        return
    listed = [(table, schema_id, first) for (table, schema_id), first in to.items()]
    moved = lake.spark.createDataFrame(
        listed, "table_name string, schema_id string, first_landed date"
    )
    with named(moved) as view:
        with_retry(
            lambda: lake.spark.sql(
                f"MERGE INTO {lake.stage(name, 'schemas')} t USING {view} s "
                "ON t.schema_id = s.schema_id AND t.table_name = s.table_name "
                "WHEN MATCHED AND s.first_landed IS NULL THEN DELETE "
                "WHEN MATCHED THEN UPDATE SET t.first_landed = s.first_landed"
            )
        )
