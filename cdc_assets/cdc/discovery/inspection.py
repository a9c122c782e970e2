"""Explain each record of one landed file in words, without a lake.

A record is classified as the stage `changes` would if nothing but the file had landed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from operator import itemgetter
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.classify import Classified, EarlierDays, classified_tombstones, classify
from cdc_assets.cdc.changes.message_schemas import KnownSchemas
from cdc_assets.cdc.changes.reading import read_records
from cdc_assets.cdc.config import local_path
from cdc_assets.cdc.discovery.explanations import Row, explain
from cdc_assets.cdc.discovery.rules import Rules
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.java_errors import root_cause
from cdc_assets.cdc.lake.checkpoints import Checkpoints, local_checkpoints
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets.cdc.landing.files import NO_DAY, read_file
from cdc_assets.cdc.landing.sink_files import SinkFolder
from cdc_assets.cdc.landing.sink_records import SinkRecords
from cdc_assets.cdc.positions import stream_of, time_in_kafka
from cdc_assets.cdc.registry.decode import Decoding
from cdc_assets.cdc.registry.schema_cache import fetched_decoding
from cdc_assets.cdc.state.configured_types import with_messages
from cdc_assets.cdc.state.epochs import another_stream_in_words, begin_in_words
from cdc_assets.cdc.state.takeovers import Landed, Stream, judged_by_rows
from cdc_assets.cdc.values.column_types import columns_of_config
from cdc_assets.cdc.values.configured import has_no_unit

COLUMNS: tuple[str, ...] = (
    "topic", "partition", "offset", "destination", "table", "op", "key", "position", "lag_ms",
    "reason", "detail", "explanation",
)  # fmt: skip
# Additional columns for one offset.
DETAILS: tuple[str, ...] = (
    "source_op", "connector", "server", "db", "old_key", "new_key", "before", "after",
    "source_ts_ms", "processed_ts_ms", "kafka_ts_ms", "identity", "tx_id", "is_snapshot",
    "schema_id", "payload",
)  # fmt: skip


def inspect_file(
    spark: SparkSession,
    file: Path,
    rules: Rules,
    limit: int | None = None,
    offset: int | None = None,
) -> list[Row]:
    """One row with `COLUMNS` for each record of the file, in its order.

    Args:
        spark: any session.
        file: a landed file.
        rules: the rules that it is read by.
        limit: only so many records are read; tombstones are classified among these.
        offset: only the records with this offset, with `DETAILS` too.

    Raises:
        LandingError: the file is of another kind, or can't be read whole.
    """
    landing = _landed_from(spark, file, rules)
    try:
        return inspect_landing(landing, rules, limit, offset)
    except (PySparkException, Py4JJavaError) as error:
        path = str(file.resolve())
        raise LandingError(
            rules.source, f"{path} can't be read whole: {root_cause(error)}", path
        ) from error


def _landed_from(spark: SparkSession, file: Path, rules: Rules) -> DataFrame:
    """The landing rows of a file, as the layout of its source has it."""
    files = rules.settings.landing.files
    if rules.settings.landing.file_layout is not None and files is not None and "://" not in files:
        root, path = local_path(files).resolve(), file.resolve()
        folder = SinkFolder(rules.config, rules.source)
        day = folder.file_at(path.relative_to(root).as_posix()) if root in path.parents else None
        if day is not None:
            return SinkRecords(spark, folder).read([day]).select(*LANDING.names)
    return read_file(spark, file, rules.source, rules.config)


def inspect_landing(
    landing: DataFrame, rules: Rules, limit: int | None = None, offset: int | None = None
) -> list[Row]:
    """:func:`inspect_file` for landing rows (`LANDING`) from any place."""
    if limit is not None:
        landing = landing.limit(limit)
    with local_checkpoints() as checkpoints:
        landing = checkpoints.add(landing)
        decoding = fetched_decoding(landing, rules.source, rules.settings)
        classified = _classified(landing, rules, checkpoints, decoding)
        records = classified.records
        chosen = records if offset is None else records.where(F.col("offset") == offset)
        rows = [row.asDict() for row in chosen.select(*_columns()).collect()]
    rows.sort(key=itemgetter("line"))
    shown = COLUMNS if offset is None else (*COLUMNS, *DETAILS)
    begins = new_epochs(rows) if offset is None and rules.settings.finds_epochs else {}
    types = type_notes(rows, rules, classified.schemas)
    for row in rows:
        line = row["line"]
        row["explanation"] = explain(row, rules) + begins.get(line, "") + types.get(line, "")
    return [{name: row[name] for name in shown} for row in rows]


def _classified(
    landing: DataFrame, rules: Rules, checkpoints: Checkpoints, decoding: Decoding | None
) -> Classified:
    """Classify the records as if nothing else had landed; `line` has their order."""
    reading = read_records(landing, rules.settings, checkpoints, decoding)
    lines = reading.parsed.withColumn("line", F.monotonically_increasing_id())
    reading = replace(reading, parsed=checkpoints.add(lines))
    nothing = EarlierDays()
    tombstones = classified_tombstones(reading, nothing)
    return classify(reading, nothing, rules.config.timezone, tombstones)


def _columns() -> list[Column]:
    is_change = (F.col("destination") == "changes") & (F.col("kind") == "row")
    is_measured = is_change & ~F.coalesce("is_snapshot", F.lit(False))
    is_bad = F.col("destination") == "quarantine"
    return [
        *(F.col(name) for name in ("line", "topic", "partition", "offset", "destination", "kind")),
        F.col("table_name").alias("table"),
        F.when(~is_bad, F.col("op")).alias("op"),
        F.coalesce("key", "message_key_json").alias("key"),
        F.to_json("position").alias("position"),
        F.when(is_measured, F.col("kafka_ts_ms") - F.col("source_ts_ms")).alias("lag_ms"),
        F.col("reason"),
        F.when(is_bad, F.col("detail")).alias("detail"),
        F.col("nearest_offset"),
        _tombstone_value().alias("tombstone_value"),
        *(F.col(name) for name in DETAILS),
        F.when(is_change, F.expr(stream_of("connector", "server", "db"))).alias("stream"),
        F.col("stream_element"),
        F.col("source_elements"),
        F.expr(time_in_kafka("processed_ts_ms", "0L")).alias("landed_ms"),
    ]


def _tombstone_value() -> Column:
    """How a tombstone's value was written (D11)."""
    value = F.col("value_hash")
    return (
        F.when(value == F.xxhash64(F.lit(None).cast("binary")), "value is null")
        .when(value == F.xxhash64(F.lit(b"")), "value is empty")
        .when(value == F.xxhash64(F.lit(b"null")), "value is the text `null`")
        .otherwise("value has a `payload` that is null")
    )


# --- types (FORMATS R3)


def type_notes(rows: Sequence[Row], rules: Rules, schemas: KnownSchemas) -> dict[int, str]:
    """Notes on types at the first record of each table, by its `line`.

    They name entries of `columns` that the messages contradict, and the default unit of times that
    are numbers.
    """
    notes: dict[int, str] = {}
    seen: set[str] = set()
    for row in rows:
        table = row["table"]
        settings = rules.settings.tables.get(table)
        if table in seen or settings is None or row["destination"] != "changes":
            continue
        seen.add(table)
        message_types = schemas.latest(table, date.max)
        configured = columns_of_config(settings.lake_columns)
        keys = set(json.loads(row["key"] or "{}"))
        found = [
            str(c) for c in with_messages(rules.source, table, message_types, configured, keys)
        ]
        found += [
            f"Numbers in {name} are read as milliseconds since 1970; `{kind.spark}(us)` (s, ms, "
            "us, ns) in `columns` says another unit"
            for name, kind in configured.items()
            if name not in message_types and has_no_unit(kind)
        ]
        if found:
            notes[row["line"]] = ". " + ". ".join(found)
    return notes


# --- new servers (FORMATS O11)

_CONTENT = (
    "topic", "table", "op", "key", "old_key", "new_key", "before", "after", "stream"
)  # fmt: skip


def new_epochs(rows: Sequence[Row]) -> dict[int, str]:
    """Notes on the records at which another server takes over, by their `line`."""
    streamed = sorted(
        (row for row in rows if row["stream"] is not None),
        key=itemgetter("landed_ms", "topic", "partition", "offset"),
    )
    seen: set[Any] = set()
    landed: dict[str, list[Landed]] = {}
    for row in streamed:
        landed.setdefault(row["stream"], []).append(_landed(row, seen))
    begins = {
        (lane.topic, lane.partition, at): f". {begin_in_words(begin)}"
        for name, records in landed.items()
        for begin in judged_by_rows(Stream(name), NO_DAY, records).begins
        for lane, at in begin.offsets.items()
    }
    notes: dict[int, str] = {}
    streams: dict[str, list[str]] = {}
    for row in streamed:
        known = streams.setdefault(row["table"], [])
        if row["position"] is not None and row["stream"] not in known:
            if known:
                notes[row["line"]] = f". {another_stream_in_words(known[-1], row['stream'])}"
            known.append(row["stream"])
        place = (row["topic"], row["partition"], row["offset"])
        if place in begins:
            notes[row["line"]] = begins.pop(place)
    return notes


def _landed(row: Row, seen: set[Any]) -> Landed:
    content = tuple(row[name] for name in _CONTENT)
    gtid = json.loads(row["identity"] or "{}").get("gtid")
    names = {(*content, str(row["source_elements"]), row["identity"])}
    if gtid is not None:
        names.add((*content, "gtid", gtid))
    is_copy = not names.isdisjoint(seen)
    seen |= names
    element = None if row["stream_element"] is None else tuple(row["stream_element"])
    return Landed(
        row["topic"],
        row["partition"],
        row["offset"],
        row["landed_ms"],
        row["source_ts_ms"],
        element,
        is_read=row["position"] is None,
        is_copy=is_copy,
    )
