"""Reports and schemas → Dagster metadata: numbers that plot over the days, and a few words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg
from pyspark.sql.types import StructField, StructType

from cdc_assets.cdc.changes.figures import ChangesFigures
from cdc_assets.cdc.changes.reasons import REASONS
from cdc_assets.cdc.config import RESERVED_PREFIX, Config
from cdc_assets.cdc.envelopes.formats import FIRST_HALVES
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayFiles, TableState
from cdc_assets.cdc.lake.samples import first_rows
from cdc_assets.cdc.landing.files import LandedDay
from cdc_assets.cdc.landing.kafka_plan import KafkaDay
from cdc_assets.cdc.state.stage import DayReport
from cdc_assets.orchestration import markdown

OPS = ("c", "u", "d", "r", "t")
CONTROL_OPS = ("message", "heartbeat", "transaction", "ddl", "tombstone", "other")

_SAMPLE_ROWS, _SAMPLE_WIDTH = 5, 40
_HIDDEN = "•••"
_SECRET = re.compile(
    r"passw|passphrase|secret|token|credential|api_?key|private_?key|ssn|iban", re.I
)


def column_schema(schema: StructType, keys: Sequence[str] = ()) -> dg.TableSchema:
    """Dagster's table schema of Spark columns; key columns are said to be some."""

    def description(column: StructField) -> str | None:
        comment = markdown.sentence(column.metadata.get("comment", ""))
        said = ["key" if column.name in keys else "", comment]
        return "; ".join(filter(None, said)) or None

    return dg.TableSchema(
        [
            dg.TableColumn(
                f.name,
                f.dataType.simpleString(),
                description=description(f),
                constraints=dg.TableColumnConstraints(nullable=f.nullable and f.name not in keys),
            )
            for f in schema.fields
        ]
    )


def column_lineage(
    schema: StructType, parent: dg.AssetKey, known: Sequence[str], sources: Mapping[str, Any]
) -> dg.TableColumnLineage:
    """Which columns of the parent each column comes from.

    Args:
        schema: the asset's columns.
        parent: the asset that they come from.
        known: the parent's columns; one of the same name is the source of a column.
        sources: of columns that have other names there; of all others ``*``.
    """
    return dg.TableColumnLineage(
        {
            name: [
                dg.TableColumnDep(parent, column)
                for column in sources.get(name, [name] if name in known else sources["*"])
            ]
            for name in schema.names
        }
    )


_TIMES = ["source_ts_ms", "processed_ts_ms", "kafka_ts_ms"]


def lineage_of_stage(name: str, table: str, schema: StructType) -> dg.TableColumnLineage | None:
    """The lineage of a source's own table; None of the landing, which has no table before it."""
    if table == "landing":
        return None
    if table == "lag":
        parent, known = "changes", columns.CHANGES.names
        sources = {"hour": ["source_ts_ms"], "complete": ["landing_date"], "*": _TIMES}
    else:
        parent, known = "landing", columns.LANDING.names
        keys = {c: ["value", "key", "headers"] for c in ("key", "old_key", "new_key")}
        keys = {} if table == "quarantine" else keys
        sources = {**keys, "kafka_ts_ms": ["timestamp"], "*": ["value"]}
    return column_lineage(schema, dg.AssetKey([name, parent]), known, sources)


_OWN = {
    "_cdc_position": ["position"],
    "_cdc_source_ts_ms": ["source_ts_ms"],
    "_cdc_landing_date": ["landing_date"],
}


def lineage_of_table(name: str, schema: StructType, keys: Sequence[str]) -> dg.TableColumnLineage:
    """Columns of a table come from the images of `changes`, its keys from their key."""
    sources = {**_OWN, **{key: ["key", "after"] for key in keys}, "*": ["after"]}
    return column_lineage(schema, dg.AssetKey([name, "changes"]), (), sources)


def query_of(identifier: str, day: date, is_state: bool) -> dg.MarkdownMetadataValue:
    """SQL for Spark that reads the day, ready to be copied."""
    which = f"VERSION AS OF '{day}'" if is_state else f"WHERE landing_date = DATE '{day}'"
    return dg.MetadataValue.md(markdown.sql(f"SELECT *\nFROM {identifier}\n{which}"))


def of_stage_day(
    identifier: str, location: str, day: date, held: DayFiles, seconds: float
) -> dict[str, Any]:
    """What all stages say of a day: where it is, its size in the lake, how long it took."""
    return {
        "query": query_of(identifier, day, is_state=False),
        "location": dg.MetadataValue.path(location),
        "data_files": held.files,
        "bytes": held.bytes,
        "seconds": seconds,
    }


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


def of_changes(figures: ChangesFigures) -> dict[str, dict[str, Any]]:
    """A parsed day: metadata for changes, control and quarantine.

    What did not occur is 0, so that a plot over the days has its good days.
    """
    ops: dict[str, int] = {}
    for label, count in figures.changes.items():
        op, _, source_op = label.partition(":")
        if source_op not in FIRST_HALVES:
            ops[op] = ops.get(op, 0) + count

    return {
        "changes": {
            "dagster/partition_row_count": figures.records("changes"),
            "landed": figures.landed,
            "quarantined": figures.records("quarantine"),
            **_counts("op", OPS, ops),
        },
        "control": {
            "dagster/partition_row_count": figures.records("control"),
            **_counts("op", CONTROL_OPS, figures.control),
        },
        "quarantine": {
            "dagster/partition_row_count": figures.records("quarantine"),
            **_counts("reason", REASONS, figures.quarantine),
        },
    }


def _counts(what: str, known: Iterable[str], counted: Mapping[str, int]) -> dict[str, int]:
    return {f"{what}_{name}": n for name, n in {**dict.fromkeys(known, 0), **counted}.items()}


def of_table(
    name: str, identifier: str, schema: StructType, state: TableState, report: DayReport
) -> dict[str, Any]:
    """A published day of a table."""
    keys = state.key_columns
    return {
        "query": query_of(identifier, date.fromisoformat(report.day), is_state=True),
        "dagster/row_count": report.rows,
        "dagster/column_schema": column_schema(schema, keys),
        "dagster/column_lineage": lineage_of_table(name, schema, keys),
        "rows": report.rows,
        "rows_change": report.rows - report.rows_before,
        "events": report.events,
        **_counts("op", OPS, report.ops),
        "rows_written": report.written,
        "bytes_added": report.bytes_added,
        "files_added": report.files_added,
        "values_unfit": sum(v["count"] for v in report.unfit.values()),
        "seconds": report.seconds,
        "location": dg.MetadataValue.path(state.location),
    }


def in_words(report: DayReport) -> str:
    """A day of a table in a line."""
    ops = ", ".join(f"{op} {count}" for op, count in report.ops.items() if count)
    events = f", {report.events} events ({ops})" if report.events else ", no event"
    return f"{report.rows} rows ({report.rows - report.rows_before:+}){events}, " + (
        f"{report.seconds} s" if report.made else "as before"
    )


def words(figures: Mapping[str, Any]) -> str:
    """The counts of a stage's day in a line."""
    named = {
        k.removeprefix("op_").removeprefix("reason_"): v
        for k, v in figures.items()
        if k.startswith(("op_", "reason_")) and v
    }
    listed = ", ".join(f"{name} {count}" for name, count in named.items())
    return f"{figures['dagster/partition_row_count']} records" + (f" ({listed})" if listed else "")


def sample(lake: Lake, identifier: str, snapshot: int, hidden: Sequence[str] = ()) -> str:
    """A few rows of a snapshot as a Markdown table: long values cut, sensitive ones not shown.

    Args:
        hidden: columns whose values are not shown, beside those whose names speak of secrets.
    """

    def is_secret(name: str) -> bool:
        return name in hidden or _SECRET.search(name) is not None

    names, rows = first_rows(lake, identifier, snapshot, _SAMPLE_ROWS, is_secret)
    shown = [n for n, name in enumerate(names) if not name.startswith(RESERVED_PREFIX)]
    if not shown:
        return "no columns yet"
    cells = [[_HIDDEN if is_secret(names[n]) else row[n] for n in shown] for row in rows]
    return markdown.table([names[n] for n in shown], cells, _SAMPLE_WIDTH)


def quarantine_examples(examples: Sequence[Any], with_values: bool) -> dg.MarkdownMetadataValue:
    """Some quarantined records of a day; `detail` may hold a part of a message."""
    names = ["reason", "table_name", "topic", "partition", "offset"]
    names += ["detail"] if with_values else []
    return dg.MetadataValue.md(
        markdown.table(names, [[e[name] for name in names] for e in examples])
    )


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
        markdown.table(shown, [[r[c] for c in shown] for r in rows])
    )
    return metadata
