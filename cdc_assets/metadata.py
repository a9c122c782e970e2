"""Reports and schemas → Dagster metadata: numbers that plot over the days, and a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.envelopes.dataworks import BEFORE_OPS
from cdc_assets.cdc.lake import Lake
from cdc_assets.cdc.landing.files import LandedDay
from cdc_assets.cdc.landing.kafka import KafkaDay
from cdc_assets.cdc.snapshots import DayReport

_SAMPLE_ROWS, _SAMPLE_WIDTH = 5, 40


def column_schema(schema: StructType) -> dg.TableSchema:
    """Dagster's table schema of Spark columns."""
    return dg.TableSchema(
        [
            dg.TableColumn(f.name, f.dataType.simpleString(), description=f.metadata.get("comment"))
            for f in schema.fields
        ]
    )


def of_landing(landed: LandedDay | KafkaDay, records: int, config: Config) -> dict[str, Any]:
    """A landed day: files or offsets, and records.

    Offsets without a record are those that compaction, aborted transactions or the marks of
    transactions left.
    """
    if isinstance(landed, KafkaDay):
        lost = sum(end - start for start, end in landed.lost.values())
        return {
            "dagster/partition_row_count": records,
            "topics": len(landed.topics),
            "partitions": len(landed.ranges),
            "offsets": landed.span,
            "offsets_without_record": landed.span - lost - records,
            "offsets_lost": lost,
            "complete": landed.closed,
        }
    return {
        "dagster/partition_row_count": records,
        "files": landed.files,
        "complete": not config.is_open(landed.day),
    }


def of_changes(figures: Mapping[str, Any], seconds: float) -> dict[str, Mapping[str, Any]]:
    """A parsed day: metadata for changes, control and quarantine."""
    ops: dict[str, int] = {}
    for label, count in figures["changes"].items():
        op, _, source_op = label.partition(":")
        if source_op not in BEFORE_OPS:
            ops[f"op_{op}"] = ops.get(f"op_{op}", 0) + count

    def total(kind: str) -> int:
        return sum(figures[kind].values())

    return {
        "changes": {
            "dagster/partition_row_count": total("changes"),
            "landed": figures["landed"],
            "quarantined": total("quarantine"),
            "seconds": seconds,
            **ops,
        },
        "control": {
            "dagster/partition_row_count": total("control"),
            **{f"op_{op}": n for op, n in sorted(figures["control"].items())},
        },
        "quarantine": {
            "dagster/partition_row_count": total("quarantine"),
            **{f"reason_{r}": n for r, n in sorted(figures["quarantine"].items())},
        },
    }


def of_table(lake: Lake, identifier: str, report: DayReport) -> dict[str, Any]:
    """A published day of a table."""
    return {
        "dagster/row_count": report.rows,
        "dagster/column_schema": column_schema(lake.spark.table(identifier).schema),
        "rows": report.rows,
        "rows_change": report.rows - report.rows_before,
        "events": report.events,
        **{f"op_{op}": count for op, count in report.ops.items()},
        "rows_written": report.written,
        "bytes_added": report.bytes_added,
        "files_added": report.files_added,
        "values_unfit": sum(v["count"] for v in report.unfit.values()),
        "seconds": report.seconds,
        "unchanged_since_last_made": not report.made,
        "query": dg.MetadataValue.md(
            f"```sql\nSELECT * FROM {identifier} VERSION AS OF '{report.day}'\n```"
        ),
    }


def sample(lake: Lake, identifier: str, day: date) -> str:
    """A few rows of a day as a Markdown table, long values cut."""
    table = lake.spark.read.option("versionAsOf", str(day)).table(identifier)
    names = [f.name for f in table.schema.fields if not f.name.startswith("_cdc_")]
    if not names:
        return "no columns yet"
    cells = [
        F.substring(F.to_json(F.struct(F.col(f"`{n.replace('`', '``')}`").alias("v"))), 6, 80)
        for n in names
    ]
    rows = table.select(*(c.alias(f"c{i}") for i, c in enumerate(cells))).limit(_SAMPLE_ROWS)
    return markdown_table(names, [[_cell(v) for v in row] for row in rows.collect()])


def _cell(json_text: str | None) -> str:
    text = (json_text or "").removesuffix("}")
    return text if len(text) <= _SAMPLE_WIDTH else text[: _SAMPLE_WIDTH - 1] + "…"


def markdown_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; pipes and line breaks in cells can't break it."""

    def line(cells: Sequence[Any]) -> str:
        safe = (str(c).replace("|", "\\|").replace("\n", " ") for c in cells)
        return "| " + " | ".join(safe) + " |"

    return "\n".join([line(names), line(["---"] * len(names)), *(line(row) for row in rows)])


def of_lag(rows: Sequence[Mapping[str, Any]], complete: bool) -> dict[str, Any]:
    """A day's lag: over all tables the worst of each figure and kind, and a table of them."""
    metadata: dict[str, Any] = {"complete": complete}
    for kind in ("capture", "delivery", "end_to_end"):
        of_kind = [r for r in rows if r["kind"] == kind and r["count"]]
        for figure in ("p50_ms", "p95_ms", "p99_ms", "max_ms"):
            if of_kind:
                metadata[f"{kind}_{figure}"] = max(r[figure] for r in of_kind)
        if of_kind:
            metadata[f"{kind}_negative"] = sum(r["negative"] for r in of_kind)
    shown = ("table_name", "kind", "count", "excluded", "negative", "p50_ms", "p95_ms", "max_ms")
    metadata["by_table"] = dg.MetadataValue.md(
        markdown_table(shown, [[r[c] for c in shown] for r in rows])
    )
    return metadata
