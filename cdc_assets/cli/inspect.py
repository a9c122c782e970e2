"""How each record of one landed file is understood, in words, without a lake.

A record is judged as the stage `changes` would judge it if the file were all that has landed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from operator import itemgetter
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.classify import (
    Classified,
    EarlierDays,
    classify,
    tombstone_verdicts,
)
from cdc_assets.cdc.changes.message_schemas import KnownSchemas
from cdc_assets.cdc.changes.reading import read_records
from cdc_assets.cdc.changes.reasons import REASONS
from cdc_assets.cdc.config import (
    FORMATS,
    Config,
    SourceConfig,
    local_path,
    parse_config,
)
from cdc_assets.cdc.envelopes.formats import FIRST_HALVES, SECOND_HALVES
from cdc_assets.cdc.errors import ConfigError, LandingError
from cdc_assets.cdc.java_errors import root_cause
from cdc_assets.cdc.lake.checkpoints import Checkpoints, local_checkpoints
from cdc_assets.cdc.landing.files import LandedDay, read_days
from cdc_assets.cdc.positions import stream_of, time_in_kafka
from cdc_assets.cdc.registry.decode import Decoding
from cdc_assets.cdc.registry.kept import fetched_decoding
from cdc_assets.cdc.spark import SHORT_RUN, SMALL_ROWS, SMALL_WORK, build_session
from cdc_assets.cdc.state.configured_types import with_messages
from cdc_assets.cdc.state.epochs import another_stream_in_words, begin_in_words
from cdc_assets.cdc.state.takeovers import Landed, Stream, judged_by_rows
from cdc_assets.cdc.values.column_types import columns_of_config, has_no_unit
from cdc_assets.cli import imports
from cdc_assets.orchestration.interrupts import interruptible

COLUMNS: tuple[str, ...] = (
    "topic", "partition", "offset", "destination", "table", "op", "key", "position", "lag_ms",
    "reason", "detail", "explanation",
)  # fmt: skip
# What the view of one offset adds.
DETAILS: tuple[str, ...] = (
    "source_op", "connector", "server", "db", "old_key", "new_key", "before", "after",
    "source_ts_ms", "processed_ts_ms", "kafka_ts_ms", "identity", "tx_id", "is_snapshot",
    "schema_id", "payload",
)  # fmt: skip
NO_DAY = date(1970, 1, 1)  # of a file that lies in no day's folder
_RECORD_BYTES = 3_500  # of a landed line, with its schema
_COMPRESSION = 10

Row = dict[str, Any]


@dataclass(frozen=True)
class Rules:
    """The source by whose rules a file is read, and the configuration that it is from."""

    name: str
    source: SourceConfig
    config: Config
    is_bare: bool = False  # a format alone, without cdc.yaml


def rules_of_source(config: Config, name: str | None, file: Path) -> Rules:
    """The rules of a named source, else of the one in whose landing folder the file lies.

    Raises:
        ConfigError: there is no such source.
    """
    if name is not None:
        return Rules(name, config.source(name), config)
    for known, source in config.sources.items():
        if source.landing.files is None:
            continue
        folder = local_path(source.landing.files)
        if file.resolve().is_relative_to(folder.resolve()):
            return Rules(known, source, config)
    raise ConfigError(
        [
            f"{file} is not in the landing folder of a source; name its source or format: "
            f"--source {' | '.join(config.sources)}, or --format-of {'|'.join(FORMATS)}"
        ]
    )


def rules_of_format(name: str, file: Path) -> Rules:
    """The rules of a format alone: no table is configured, nothing of cdc.yaml is read.

    Raises:
        ConfigError: there is no such format.
    """
    raw = {
        "start_date": "2000-01-01",
        "sources": {"file": {"format": name, "landing": {"files": str(file.parent)}}},
    }
    try:
        config = parse_config(raw, file.parent)
    except ConfigError as error:
        raise ConfigError(
            [f"--format-of: got {name!r}; expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"]
        ) from error
    return Rules(name, config.sources["file"], config, is_bare=True)


def inspect_file(
    spark: SparkSession,
    file: Path,
    rules: Rules,
    limit: int | None = None,
    offset: int | None = None,
) -> list[Row]:
    """One row a record of the file, in its order, with `COLUMNS`.

    Args:
        spark: any session.
        file: a landed file.
        rules: by which it is read.
        limit: only so many records are read; tombstones are settled among these.
        offset: only the records with this offset, with `DETAILS` too.

    Raises:
        LandingError: the file is of another kind, or can't be read whole.
    """
    landing = read_file(spark, file, rules.name, rules.config)
    try:
        return inspect_landing(landing, rules, limit, offset)
    except (PySparkException, Py4JJavaError) as error:
        path = str(file.resolve())
        raise LandingError(
            rules.name, f"{path} can't be read whole: {root_cause(error)}", path
        ) from error


def read_file(
    spark: SparkSession, file: Path, name: str, config: Config | None = None
) -> DataFrame:
    """The landing rows of one file (`LANDING`), in its order; `landing_date` is never null.

    Of a file outside a day's folder each record has the day of its timestamp, else today, in the
    configuration's time zone; without a configuration `NO_DAY`.

    Raises:
        LandingError: the file is of another kind, or can't be opened.
    """
    path = str(file.resolve())
    is_text = path.endswith((".jsonl", ".jsonl.gz"))
    if not is_text and not path.endswith(".parquet"):
        raise LandingError(
            name, f"{path} is not a landed file; expected *.jsonl, *.jsonl.gz or *.parquet", path
        )
    texts, parquets = ((path,), ()) if is_text else ((), (path,))
    rows = read_days(spark, name, [LandedDay(NO_DAY, texts, parquets, fingerprint="")])
    days = [F.col("landing_date")]
    if config is not None:
        zone = F.lit(config.timezone)
        days.append(
            F.convert_timezone(F.lit("UTC"), zone, F.col("timestamp").cast("timestamp_ntz")).cast(
                "date"
            )
        )
    days.append(F.lit(NO_DAY if config is None else config.today()))
    return rows.withColumn("landing_date", F.coalesce(*days))


def inspect_landing(
    landing: DataFrame, rules: Rules, limit: int | None = None, offset: int | None = None
) -> list[Row]:
    """As :func:`inspect_file`, of landing rows (`LANDING`) from wherever they are."""
    if limit is not None:
        landing = landing.limit(limit)
    with local_checkpoints() as checkpoints:
        landing = checkpoints.add(landing)
        decoding = fetched_decoding(landing, rules.name, rules.source)
        classified = _classified(landing, rules, checkpoints, decoding)
        records = classified.records
        chosen = records if offset is None else records.where(F.col("offset") == offset)
        rows = [row.asDict() for row in chosen.select(*_columns()).collect()]
    rows.sort(key=itemgetter("line"))
    shown = COLUMNS if offset is None else (*COLUMNS, *DETAILS)
    begins = new_epochs(rows) if offset is None and rules.source.finds_epochs else {}
    types = said_of_types(rows, rules, classified.schemas)
    for row in rows:
        line = row["line"]
        row["explanation"] = explain(row, rules) + begins.get(line, "") + types.get(line, "")
    return [{name: row[name] for name in shown} for row in rows]


def _classified(
    landing: DataFrame, rules: Rules, checkpoints: Checkpoints, decoding: Decoding | None
) -> Classified:
    """The records with `line`, their order, as if nothing else had landed."""
    reading = read_records(landing, rules.source, checkpoints, decoding)
    lines = reading.parsed.withColumn("line", F.monotonically_increasing_id())
    reading = replace(reading, parsed=checkpoints.add(lines))
    nothing = EarlierDays()
    verdicts = tombstone_verdicts(reading, nothing)
    return classify(reading, nothing, rules.config.timezone, verdicts)


def is_small(files: Iterable[Path], limit: int | None = None) -> bool:
    """Whether so little is read that Spark's start and planning take the time.

    Args:
        files: that are read, landed files of any kind.
        limit: only so many records are read.
    """
    if limit is not None and limit <= SMALL_ROWS:
        return True
    return sum(_text_bytes(file) for file in files) <= SMALL_ROWS * _RECORD_BYTES


def _text_bytes(file: Path) -> int:
    size = file.stat().st_size
    return size if file.name.endswith(".jsonl") else size * _COMPRESSION


@contextmanager
def session(config: Config, is_small: bool) -> Iterator[SparkSession]:
    """A session with the configuration's settings that reads landings and knows no lake."""
    quick = {**SHORT_RUN, **SMALL_WORK} if is_small else {}
    own = config.model_copy(update={"spark": {**quick, **config.spark}})
    imports.import_without_pandas("pyspark.testing.utils")
    spark = interruptible(build_session, own, with_lake=False)
    try:
        yield spark
    finally:
        # A process of our own ends, and its JVM with it; to stop first takes a second.
        if not imports.is_own_process:
            spark.stop()


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


def said_of_types(rows: Sequence[Row], rules: Rules, schemas: KnownSchemas) -> dict[int, str]:
    """What to say at the first record of a table, by its `line`: entries of `columns` that its
    messages contradict, and in which unit numbers of a time are read that nobody named."""
    said: dict[int, str] = {}
    seen: set[str] = set()
    for row in rows:
        table = row["table"]
        settings = rules.source.tables.get(table)
        if table in seen or settings is None or row["destination"] != "changes":
            continue
        seen.add(table)
        of_messages = schemas.latest(table, date.max)
        configured = columns_of_config(settings.lake_columns)
        keys = set(json.loads(row["key"] or "{}"))
        found = [str(c) for c in with_messages(rules.name, table, of_messages, configured, keys)]
        found += [
            f"Numbers in {name} are read as milliseconds since 1970; `{kind.spark}(us)` (s, ms, "
            "us, ns) in `columns` says another unit"
            for name, kind in configured.items()
            if name not in of_messages and has_no_unit(kind)
        ]
        if found:
            said[row["line"]] = ". " + ". ".join(found)
    return said


# --- new servers (FORMATS O11)

_TOLD_BY = (
    "topic", "table", "op", "key", "old_key", "new_key", "before", "after", "stream"
)  # fmt: skip


def new_epochs(rows: Sequence[Row]) -> dict[int, str]:
    """What to say of the records at which another server takes over, by their `line`."""
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
        for name, of_stream in landed.items()
        for begin in judged_by_rows(Stream(name), NO_DAY, of_stream).begins
        for lane, at in begin.offsets.items()
    }
    said: dict[int, str] = {}
    of_table: dict[str, list[str]] = {}
    for row in streamed:
        known = of_table.setdefault(row["table"], [])
        if row["position"] is not None and row["stream"] not in known:
            if known:
                said[row["line"]] = f". {another_stream_in_words(known[-1], row['stream'])}"
            known.append(row["stream"])
        place = (row["topic"], row["partition"], row["offset"])
        if place in begins:
            said[row["line"]] = begins.pop(place)
    return said


def _landed(row: Row, seen: set[Any]) -> Landed:
    told_by = tuple(row[name] for name in _TOLD_BY)
    gtid = json.loads(row["identity"] or "{}").get("gtid")
    names = {(*told_by, str(row["source_elements"]), row["identity"])}
    if gtid is not None:
        names.add((*told_by, "gtid", gtid))
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


# --- in words


def explain(row: Row, rules: Rules) -> str:
    """What a record is and where it goes, in one sentence for somebody who is new to this.

    Args:
        row: a record with `COLUMNS` but `explanation`, with `DETAILS`, and `kind`,
            `nearest_offset` and `tombstone_value`.
        rules: by which it was read.
    """
    if row["destination"] == "quarantine":
        said = _quarantined(row)
    elif row["kind"] == "tombstone":
        said = _tombstone(row, rules)
    elif row["destination"] == "control":
        said = f"{_control(row)}: understood, changes no row"
    else:
        said = f"{_change(row, rules)}: goes to changes"
    return said + _configured(row, rules)


def _quarantined(row: Row) -> str:
    reason = REASONS[row["reason"]]
    said = f"can't be read: it {reason.record}. Next: {reason.remedy}"
    if row["kind"] == "tombstone" and row["reason"] == "missing_table":
        said = (
            f"{row['tombstone_value']}: a lone tombstone, and this file shows not exactly one "
            "table on its topic. Earlier days may have shown it, else it is quarantined. "
            f"Next: {reason.remedy}"
        )
    return said


def _tombstone(row: Row, rules: Rules) -> str:
    form = f"{row['tombstone_value']}: a"
    if row["destination"] == "control":
        return (
            f"{form} tombstone; follows its own delete at offset {row['nearest_offset']}, "
            "so nothing changes"
        )
    said = f"{form} lone tombstone: deletes {_the_row(row, rules)}, goes to changes"
    if row["nearest_offset"] is None:
        said += (
            ". This file has no earlier record of its key: if one that landed before, up to the "
            "day before, is the row's delete, it changes nothing"
        )
    return said


_CONTROL = {
    "heartbeat": "a heartbeat",
    "transaction": "a transaction mark",
    "message": "a logical message",
    "ddl": "a schema change or statement",
}


def _control(row: Row) -> str:
    said = _CONTROL.get(row["op"]) or f"an event that concerns no row ({row['source_op']})"
    text = None if row["op"] == "message" else row["payload"]
    return f"{said} ({_one_line(text)})" if text else said


def _change(row: Row, rules: Rules) -> str:
    where = _the_row(row, rules)
    if row["op"] == "t":
        return f"a truncate: empties {_table(row, rules)} of what is older than it"
    if row["source_op"] in FIRST_HALVES:
        return (
            f"the first half of an update of {where}, as it was: waits for its UPDATE_AFTER "
            "(same sequenceId)"
        )
    if row["source_op"] in SECOND_HALVES and row["before"] is None:
        return f"the second half of an update of {where}, as it is now"
    if row["is_snapshot"]:
        return f"a snapshot read of {where}: not a change, so it has no position and no lag"
    if row["op"] == "d" and row["new_key"]:
        return f"a delete of {where}, whose key changes to {row['new_key']}"
    said = {"c": "an insert", "u": "an update", "d": "a delete", "r": "a read"}[row["op"]]
    if row["old_key"]:
        return f"{said} of {where}, whose key was {row['old_key']} before"
    return f"{said} of {where}"


def _the_row(row: Row, rules: Rules) -> str:
    key = f"row {row['key']}" if row["key"] else "a row without key"
    return f"{key} of {_table(row, rules)}"


def _table(row: Row, rules: Rules) -> str:
    return str(row["table"]) if rules.is_bare else f"{rules.name}.{row['table']}"


def _configured(row: Row, rules: Rules) -> str:
    is_known = rules.is_bare or row["table"] is None or rules.source.knows(row["table"])
    if is_known or row["destination"] != "changes":
        return ""
    return (
        f". sources.{rules.name}.tables in cdc.yaml does not list {row['table']}, so it stays there"
    )


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 80 else flat[:79] + "…"
