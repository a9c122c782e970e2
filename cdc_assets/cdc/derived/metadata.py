"""What is shown of a derived table's published day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.cdc.config import is_reserved
from cdc_assets.cdc.derived.stage import DerivedReport
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.lake.tables import STATE
from cdc_assets.cdc.metadata import Columns, Location, column_lineage, query


def derived_day(
    parent: tuple[str, ...],
    identifier: str,
    schema: StructType,
    state: TableState,
    report: DerivedReport,
    keys: Sequence[str],
    rows: str,
) -> dict[str, Any]:
    """The values of a day.

    Args:
        parent: the asset key of the table that it is derived from.
        identifier: the derived table's name in the lake.
        schema: its columns on the day.
        state: its metadata in the lake.
        report: what the day came to.
        keys: the table's key columns in the lake.
        rows: what a row is called, in the plural.
    """
    own = [name for name in schema.names if not is_reserved(name)]
    return {
        "query": query(identifier, date.fromisoformat(report.day), STATE),
        "dagster/row_count": report.rows,
        "dagster/column_schema": Columns(schema, keys),
        "dagster/column_lineage": column_lineage(schema, parent, own, {"*": []}),
        rows: report.rows,
        f"{rows}_change": report.rows - report.rows_before,
        "events": report.events,
        f"{rows}_written": report.written,
        "bytes_added": report.bytes_added,
        "files_added": report.files_added,
        "seconds": report.seconds,
        "location": Location(state.location),
    }


def summary_line(report: DerivedReport, rows: str) -> str:
    """A day of a derived table in a line."""
    change = f"({report.rows - report.rows_before:+})"
    seconds = f"{report.seconds} s" if report.made else "as before"
    return f"{report.rows} {rows} {change}, {report.events} events, {seconds}"
