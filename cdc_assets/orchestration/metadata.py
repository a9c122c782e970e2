"""Values of `cdc` → Dagster's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import dagster as dg
from pyspark.sql.types import StructField

from cdc_assets.cdc import markdown
from cdc_assets.cdc.markdown import Markdown
from cdc_assets.cdc.metadata import Columns, Lineage, Location
from cdc_assets.cdc.names import TableName
from cdc_assets.orchestration.assets.keys import table_key


def dagster_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a day or finding as Dagster's metadata; other values stay."""
    return {name: _dagster_value(value) for name, value in values.items()}


def _dagster_value(value: Any) -> Any:
    match value:
        case Markdown():
            return dg.MetadataValue.md(str(value))
        case Location():
            return dg.MetadataValue.path(str(value))
        case datetime():
            return dg.MetadataValue.timestamp(value)
        case Columns():
            return column_schema(value)
        case Lineage():
            return column_lineage(value)
    return value


def column_schema(columns: Columns) -> dg.TableSchema:
    """Dagster's schema of a table; descriptions mark key columns."""

    def description(column: StructField) -> str | None:
        comment = markdown.sentence(column.metadata.get("comment", ""))
        key = "key" if column.name in columns.keys else ""
        return "; ".join(filter(None, [key, comment])) or None

    return dg.TableSchema(
        [
            dg.TableColumn(
                f.name,
                f.dataType.simpleString(),
                description=description(f),
                constraints=dg.TableColumnConstraints(
                    nullable=f.nullable and f.name not in columns.keys
                ),
            )
            for f in columns.schema.fields
        ]
    )


def column_lineage(lineage: Lineage) -> dg.TableColumnLineage:
    """Dagster's lineage of a table's columns."""
    source, *table = lineage.parent
    is_table = len(table) == 2
    parent = table_key(source, str(TableName(*table))) if is_table else dg.AssetKey(lineage.parent)
    return dg.TableColumnLineage(
        {
            name: [dg.TableColumnDep(parent, origin) for origin in origins]
            for name, origins in lineage.columns.items()
        }
    )
