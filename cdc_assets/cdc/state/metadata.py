"""What is shown of a table's published day."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.cdc import markdown
from cdc_assets.cdc.config import is_reserved
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.lake.samples import first_rows
from cdc_assets.cdc.lake.tables import STATE
from cdc_assets.cdc.markdown import Markdown
from cdc_assets.cdc.metadata import (
    OPS,
    Columns,
    Lineage,
    Location,
    column_lineage,
    counts,
    query,
)
from cdc_assets.cdc.state.stage import DayReport

_SAMPLE_ROWS, _SAMPLE_WIDTH = 5, 40
_HIDDEN = "•••"
_SECRET = re.compile(
    r"passw|passphrase|secret|token|credential|api_?key|private_?key|ssn|iban", re.I
)
_OWN = {
    "_cdc_position": ["position"],
    "_cdc_source_ts_ms": ["source_ts_ms"],
    "_cdc_landing_date": ["landing_date"],
}


def table_lineage(source: str, schema: StructType, keys: Sequence[str]) -> Lineage:
    """Columns of a table come from the images of `changes`, its keys from their key."""
    origins = {**_OWN, **{key: ["key", "after"] for key in keys}, "*": ["after"]}
    return column_lineage(schema, (source, "changes"), (), origins)


def table_day(
    source: str,
    identifier: str,
    schema: StructType,
    state: TableState,
    report: DayReport,
    keys: Sequence[str],
) -> dict[str, Any]:
    """The values of a day.

    Args:
        source: the table's source.
        identifier: the table's name in the lake.
        schema: its columns on the day.
        state: its metadata in the lake.
        report: what the day came to.
        keys: the key's columns in the lake.
    """
    day = date.fromisoformat(report.day)
    # First: Dagster's pages keep the order.
    trace = {"trace": trace_command(source, report.table, keys, day)} if keys else {}
    return {
        "query": query(identifier, day, STATE),
        **trace,
        "dagster/row_count": report.rows,
        "dagster/column_schema": Columns(schema, keys),
        "dagster/column_lineage": table_lineage(source, schema, keys),
        "rows": report.rows,
        "rows_change": report.rows - report.rows_before,
        "events": report.events,
        **counts("op", OPS, report.ops),
        "rows_written": report.written,
        "bytes_added": report.bytes_added,
        "files_added": report.files_added,
        **({"rows_found_in": _places(report.touched)} if report.touched else {}),
        "values_unfit": sum(v["count"] for v in report.unfit.values()),
        "seconds": report.seconds,
        "location": Location(state.location),
    }


def _places(touched: Mapping[str, Any]) -> str:
    """Where in a table with partitions the rows of the day's keys stood."""
    if touched["unknown"]:
        columns = ", ".join(touched["unknown"])
        told = f"all partitions: changes of the day do not say the old value of {columns}"
        return f"{told}, which immutable does not name"
    parts = [f"{count} of {name}" for name, count in touched["partitions"].items()]
    if touched["elsewhere"]:
        parts.append(f"{touched['elsewhere']} keys looked up in all")
    return ", ".join(parts)


def trace_command(source: str, table: str, keys: Sequence[str], day: date) -> Markdown:
    """The command that says which messages made a row, with a key to fill in."""
    name, key = shlex.quote(f"{source}.{table}"), dict.fromkeys(keys, "…")
    text = shlex.quote(json.dumps(key, ensure_ascii=False))
    return markdown.shell(f"cdc-assets trace {name} --key {text} --as-of {day}")


def summary_line(report: DayReport) -> str:
    """A day of a table in a line."""
    ops = ", ".join(f"{op} {count}" for op, count in report.ops.items() if count)
    events = f", {report.events} events ({ops})" if report.events else ", no event"
    return f"{report.rows} rows ({report.rows - report.rows_before:+}){events}, " + (
        f"{report.seconds} s" if report.made else "as before"
    )


def sample(lake: Lake, identifier: str, snapshot: int, hidden: Sequence[str] = ()) -> Markdown:
    """A few rows of a snapshot: long values are cut, sensitive ones are not shown.

    Args:
        lake: where the table is.
        identifier: the table's name in the lake.
        snapshot: of which rows are shown.
        hidden: columns whose values are not shown, beside those whose names speak of secrets.
    """

    def is_secret(name: str) -> bool:
        return name in hidden or _SECRET.search(name) is not None

    names, rows = first_rows(lake, identifier, snapshot, _SAMPLE_ROWS, is_secret)
    shown = [n for n, name in enumerate(names) if not is_reserved(name)]
    if not shown:
        return Markdown("no columns yet")
    cells = [[_HIDDEN if is_secret(names[n]) else row[n] for n in shown] for row in rows]
    return markdown.table([names[n] for n in shown], cells, _SAMPLE_WIDTH)
