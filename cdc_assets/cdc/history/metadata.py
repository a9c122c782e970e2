"""What is shown of a history's published day."""

from __future__ import annotations

from datetime import date
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.cdc.history import columns as names
from cdc_assets.cdc.history.stage import HistoryReport
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.lake.tables import STATE
from cdc_assets.cdc.metadata import Columns, Location, column_lineage, query

_FROM_CHANGES = (*names.VERSION_COLUMNS.names,)


def history_day(
    parent: tuple[str, ...],
    identifier: str,
    schema: StructType,
    state: TableState,
    report: HistoryReport,
) -> dict[str, Any]:
    """The values of a day.

    Args:
        parent: the asset key of the table that it is the history of.
        identifier: the history's name in the lake.
        schema: its columns on the day.
        state: its metadata in the lake.
        report: what the day came to.
    """
    own = [name for name in schema.names if name not in _FROM_CHANGES]
    return {
        "query": query(identifier, date.fromisoformat(report.day), STATE),
        "dagster/row_count": report.rows,
        "dagster/column_schema": Columns(schema, state.key_columns),
        "dagster/column_lineage": column_lineage(schema, parent, own, {"*": []}),
        "versions": report.rows,
        "versions_change": report.rows - report.rows_before,
        "events": report.events,
        "versions_written": report.written,
        "bytes_added": report.bytes_added,
        "files_added": report.files_added,
        "seconds": report.seconds,
        "location": Location(state.location),
    }


def summary_line(report: HistoryReport) -> str:
    """A day of a history in a line."""
    change = f"({report.rows - report.rows_before:+})"
    seconds = f"{report.seconds} s" if report.made else "as before"
    return f"{report.rows} versions {change}, {report.events} events, {seconds}"
