"""Measures the stages on generated events: `python -m cdc_assets_tests.bench`.

Four PostgreSQL tables send changes through Debezium, the whole message schema in every
value (about 2.6 KB a value). The first table has a million rows, landed as snapshot reads
the day before. The same work is done a second time as one would write it without care, in
the same session on the same events. Everything happens in a temporary folder.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import duckdb
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cdc_assets.cdc import json_reader
from cdc_assets.cdc.config import Config, parse_config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import build_session
from cdc_assets.cdc.state import stage as table_days
from cdc_assets.cli import output
from cdc_assets_tests import lakes
from cdc_assets_tests.lakes import land

DAY_1, DAY_2 = date(2026, 11, 1), date(2026, 11, 2)
TABLES = ("orders", "items", "payments", "visits")
SOURCE = "shop"
COPY = "shop_copy"  # the same records from an Iceberg table, as a stream would write it
FILES = 4  # landed files a day
LARGE_DAY_ROWS = 100_000
LARGE_DAY_EVENTS = 600_000  # 2 GB
LARGE_TABLE_ROWS, LARGE_TABLE_EVENTS = 10_000_000, 100_000

COLUMNS = {
    "id": "bigint",
    "customer": "int",
    "status": "string",
    "note": "string",
    "amount": "decimal(12,2)",
    "quantity": "int",
    "created_at": "timestamp_ntz",
    "updated_at": "timestamp",
}
_FIELDS = {
    "id": {"type": "int64", "optional": False},
    "customer": {"type": "int32", "optional": True},
    "status": {"type": "string", "optional": True},
    "note": {"type": "string", "optional": True},
    "amount": {
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "12"},
    },
    "quantity": {"type": "int32", "optional": True},
    "created_at": {
        "type": "int64",
        "optional": True,
        "name": "io.debezium.time.MicroTimestamp",
        "version": 1,
    },
    "updated_at": {
        "type": "string",
        "optional": True,
        "name": "io.debezium.time.ZonedTimestamp",
        "version": 1,
    },
}
_SOURCE_FIELDS = {
    "version": "string",
    "connector": "string",
    "name": "string",
    "ts_ms": "int64",
    "snapshot": "string",
    "db": "string",
    "sequence": "string",
    "schema": "string",
    "table": "string",
    "txId": "int64",
    "lsn": "int64",
    "xmin": "int64",
}


# --- events


def _schema(table: str) -> str:
    """The schema of a message, as the JSON converter writes it."""

    def struct(name: str, fields: Mapping[str, Any], label: str, optional: bool = True) -> Any:
        listed = [{**kind, "field": field} for field, kind in fields.items()]
        return {
            "type": "struct", "fields": listed, "optional": optional, "name": name, "field": label,
        }  # fmt: skip

    row = f"{SOURCE}.public.{table}.Value"
    source = {n: {"type": kind, "optional": True} for n, kind in _SOURCE_FIELDS.items()}
    envelope = {
        "type": "struct",
        "fields": [
            struct(row, _FIELDS, "before"),
            struct(row, _FIELDS, "after"),
            struct("io.debezium.connector.postgresql.Source", source, "source", optional=False),
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ],
        "optional": False,
        "name": f"{SOURCE}.public.{table}.Envelope",
        "version": 1,
    }
    return json.dumps(envelope, separators=(",", ":"))


def _row(rng: random.Random, row_id: int, ts_ms: int, coded: bool) -> str:
    cents = rng.randrange(1, 10**7)
    stamp = datetime.fromtimestamp(ts_ms / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    if coded:
        size = (cents.bit_length() + 8) // 8
        amount = f'"{base64.b64encode(cents.to_bytes(size, "big", signed=True)).decode()}"'
    else:
        amount = f"{cents // 100}.{cents % 100:02}"
    created = (ts_ms - 86_400_000) * (1000 if coded else 1)
    return (
        f'{{"id":{row_id},"customer":{rng.randrange(1, 50_000)},"status":"open",'
        f'"note":"left at the door, no. {rng.randrange(10**6)}","amount":{amount},'
        f'"quantity":{rng.randrange(1, 9)},"created_at":{created},"updated_at":"{stamp}"}}'
    )


def _source(table: str, ts_ms: int, snapshot: str, lsn: int) -> str:
    return (
        f'{{"version":"2.5.4.Final","connector":"postgresql","name":"{SOURCE}","ts_ms":{ts_ms},'
        f'"snapshot":"{snapshot}","db":"{SOURCE}","sequence":"[\\"{lsn - 8}\\",\\"{lsn}\\"]",'
        f'"schema":"public","table":"{table}","txId":{lsn % 2**31},"lsn":{lsn},"xmin":null}}'
    )


def _line(table: str, offset: int, ts_ms: int, row_id: int, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f'{{"topic":"{SOURCE}.public.{table}","partition":0,"offset":{offset},'
        f'"timestamp":{ts_ms},"key":"{{\\"id\\":{row_id}}}","value":"{escaped}"}}\n'
    )


def _first_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=timezone.utc).timestamp() * 1000)


def snapshot_lines(rows: int) -> Iterator[str]:
    """A snapshot read of each row of the first table, without schema."""
    rng, first, table = random.Random(1), _first_ms(DAY_1), TABLES[0]
    for i in range(rows):
        ts_ms = first + i % 80_000_000
        after, source = _row(rng, i + 1, ts_ms, coded=False), _source(table, ts_ms, "true", 10**9)
        value = f'{{"before":null,"after":{after},"source":{source},"op":"r","ts_ms":{ts_ms + 9}}}'
        yield _line(table, i, ts_ms + 20, i + 1, value)


def write_snapshot(spark: SparkSession, folder: Path, rows: int) -> None:
    """Such snapshot reads in Parquet, written by Spark: for millions of rows."""
    table, lsn = TABLES[0], 10**9
    moment = "date_format(timestamp_millis(ts_ms), \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"
    note = "concat('left at the door, no. ', n * 104729 % 1000000)"
    after = (
        f"named_struct('id', n, 'customer', n * 7919 % 50000, 'status', 'open', 'note', {note}, "
        "'amount', n * 31 % 100000 + 0.25, 'quantity', 1 + n % 8, 'created_at', ts_ms - 86400000, "
        f"'updated_at', {moment})"
    )
    source = (
        "named_struct('version', '2.5.4.Final', 'connector', 'postgresql', "
        f"'name', '{SOURCE}', 'ts_ms', ts_ms, 'snapshot', 'true', 'db', '{SOURCE}', "
        f"'sequence', '[\"{lsn - 8}\",\"{lsn}\"]', 'schema', 'public', 'table', '{table}', "
        f"'txId', {lsn}, 'lsn', {lsn})"
    )
    event = f"struct({after} AS after, {source} AS source, 'r' AS op, ts_ms + 9 AS ts_ms)"
    (
        spark.range(1, rows + 1, numPartitions=FILES)
        .selectExpr("id AS n", f"{_first_ms(DAY_1)} + id % 80000000 AS ts_ms")
        .selectExpr(
            f"'{SOURCE}.public.{table}' AS topic",
            "0 AS partition",
            "n - 1 AS offset",
            "timestamp_millis(ts_ms + 20) AS timestamp",
            "CAST(to_json(struct(n AS id)) AS binary) AS key",
            f"CAST(to_json({event}) AS binary) AS value",
        )
        .write.parquet(str(folder / str(DAY_1)))
    )


def change_lines(events: int, rows: int, tables: Sequence[str] = TABLES) -> Iterator[str]:
    """A day of changes, the tables in turn: 65 % updates, 25 % creates, 10 % deletes."""
    rng, first = random.Random(2), _first_ms(DAY_2)
    schemas = {table: _schema(table) for table in tables}
    for i in range(events):
        table, ts_ms, lsn = (
            tables[i % len(tables)],
            first + i * 80_000_000 // events,
            10**10 + i * 64,
        )
        op = rng.choices("ucd", (65, 25, 10))[0]
        row_id = rows + i + 1 if op == "c" else rng.randrange(1, rows + 1)
        after = "null" if op == "d" else _row(rng, row_id, ts_ms, coded=True)
        payload = (
            f'{{"before":null,"after":{after},"source":{_source(table, ts_ms, "false", lsn)},'
            f'"op":"{op}","ts_ms":{ts_ms + rng.randrange(5, 900)}}}'
        )
        offset = rows + i // len(tables)
        value = f'{{"schema":{schemas[table]},"payload":{payload}}}'
        yield _line(table, offset, ts_ms + 1000, row_id, value)


def write_day(folder: Path, day: date, lines: Iterator[str], count: int) -> int:
    """Write a day's lines into a few files; the bytes written."""
    of_day = folder / str(day)
    of_day.mkdir(parents=True)
    size, per_file = 0, -(-count // FILES)
    out: TextIO | None = None
    for number, line in enumerate(lines):
        if number % per_file == 0:
            if out:
                out.close()
            out = (of_day / f"part-{number // per_file:05}.jsonl").open("w", encoding="utf-8")
        assert out is not None
        size += out.write(line)
    if out:
        out.close()
    return size


# --- the same, written without care

LANDED_LINE = (
    "topic string, partition int, offset bigint, timestamp bigint, key string, value string"
)


def naive_landing(spark: SparkSession, folder: Path, table: str) -> None:
    """The lines as Spark's own reader reads JSON, into an Iceberg table."""
    lines = spark.read.schema(LANDED_LINE).json(str(folder))
    lines.withColumn("timestamp", F.timestamp_millis("timestamp")).writeTo(table).createOrReplace()


def naive_first_load(spark: SparkSession, folder: Path, table: str) -> None:
    """The lines read, the message by one from_json, the newest of each row, written."""
    message = (
        "after struct<id bigint, customer int, status string, note string, amount decimal(12,2), "
        "quantity int, created_at bigint, updated_at timestamp>, "
        "source struct<ts_ms bigint, lsn bigint>, op string, ts_ms bigint"
    )
    lines = spark.read.schema(LANDED_LINE).json(str(folder))
    read = lines.withColumn("m", F.from_json("value", message))
    latest = Window.partitionBy("m.after.id").orderBy(F.desc("m.source.lsn"), F.desc("offset"))
    (
        read.withColumn("n", F.row_number().over(latest))
        .where("n = 1 AND m.op <> 'd'")
        .select("m.after.*", "m.source.ts_ms")
        .writeTo(table)
        .createOrReplace()
    )


def naive_changes(spark: SparkSession, landing: DataFrame, table: str) -> None:
    """One from_json of the whole message, its schema inferred from an example."""
    texts = landing.select(F.col("value").cast("string").alias("value"))
    first = texts.where(F.col("value").contains('"op":"u"')).first()
    assert first is not None
    inferred = spark.range(1).select(F.schema_of_json(F.lit(first.value)).alias("s")).first()
    assert inferred is not None
    message = F.from_json(F.col("value").cast("string"), inferred.s)
    parsed = landing.withColumn("m", message)
    parsed.select(
        "landing_date", "topic", "partition", "offset",
        F.unix_millis("timestamp").alias("kafka_ts_ms"),
        F.col("m.payload.source.table").alias("table_name"),
        F.col("m.payload.op").alias("op"),
        F.col("key").cast("string").alias("key"),
        F.col("m.payload.before").alias("before"),  # null throughout, so inferred as text
        F.to_json("m.payload.after").alias("after"),
        F.col("m.payload.source.ts_ms").alias("source_ts_ms"),
        F.col("m.payload.source.lsn").alias("lsn"),
        F.to_json("m.schema").alias("schema"),
    ).writeTo(table).createOrReplace()  # fmt: skip


# What both are asked to take out of an event.
_READ = (
    "schema", "payload.op", "payload.before", "payload.after", "payload.ts_ms",
    "payload.transaction.id", "payload.transaction.total_order",
    *(f"payload.source.{name}" for name in ("connector", "name", "db", "schema", "table", "ts_ms")),
    *(f"payload.source.{name}" for name in ("snapshot", "lsn", "sequence", "txId")),
)  # fmt: skip


def read_only(landing: DataFrame) -> None:
    """The members of each event read by the project's reader of JSON, and nothing kept.

    A schema is told by its hash, as the stage does; DuckDB takes its text.
    """
    members = {path: ("hash" if path == "schema" else "text", *path.split(".")) for path in _READ}
    rows = landing.selectExpr(f"{json_reader.read('value', **members)} AS d")
    rows.write.format("noop").mode("overwrite").save()


def read_only_by_duckdb(files: Sequence[str]) -> None:
    """The same members read by DuckDB, of the same Parquet files."""
    paths = ", ".join(f"'$.{path}'" for path in _READ)
    listed = ", ".join(f"'{file}'" for file in files)
    with duckdb.connect() as database:
        database.execute(
            f"CREATE TABLE events AS SELECT json_extract_string(decode(value), [{paths}]) AS d "
            f"FROM read_parquet([{listed}])"
        )


def naive_state(changes_of_all_days: DataFrame, table: str) -> None:
    """row_number() over all history for the latest row of each key, and a full overwrite."""
    kinds = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items() if name != "amount")
    row = F.from_json("after", kinds + ", amount string")
    latest = Window.partitionBy("key").orderBy(F.desc("source_ts_ms"), F.desc("offset"))
    (
        changes_of_all_days.withColumn("n", F.row_number().over(latest))
        .where("n = 1 AND op <> 'd'")
        .withColumn("row", row)
        .select("row.*", "source_ts_ms")
        .writeTo(table)
        .createOrReplace()
    )


# --- measuring


def timed(action: Callable[[], Any]) -> float:
    """Seconds that the action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def peak_mb(pid: int) -> int | None:
    """The most memory that a process has had, in MB; None where /proc does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return None
    found = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0].split()[1]) // 1024 if found else None


def _memory(spark: SparkSession) -> dict[str, int | None]:
    jvm: Any = spark._jvm
    return {
        "peak MB, JVM": peak_mb(jvm.java.lang.ProcessHandle.current().pid()),
        "peak MB, Python": peak_mb(os.getpid()),
    }


def measure(folder: Path, tell: Callable[[str], None], events: int, rows: int) -> dict[str, Any]:
    """All figures, by name."""
    landed = folder / "landing"
    tell(f"writing {rows} snapshot reads and {events} changes")
    write_day(landed, DAY_1, snapshot_lines(rows), rows)
    size = write_day(landed, DAY_2, change_lines(events, rows), events)
    raw = _configuration(folder)
    config = parsed(raw, folder)
    (folder / "cdc.yaml").write_text(json.dumps(raw, default=str), encoding="utf-8")
    spark = build_session(config)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        figures = {"bytes a landed line": size // events, **_stages(spark, config, events, tell)}
        figures |= _memory(spark)
    finally:
        spark.stop()
    tell("start-up times")
    return figures | _start_up(folder) | _ratios(figures)


def _ratios(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Ours by the twin's: speeds for landing and changes, seconds for the others."""
    return {
        "landing_ratio": _ratio(figures, "landing, events/s"),
        "changes_ratio": _ratio(figures, "changes, events/s"),
        "first_load_ratio": _ratio(figures, "first load, s"),
        "first_load_s": figures["first load, s"],
        "merge_ratio": figures["merge_ratio"],
        "duckdb_ratio": round(
            figures["reading alone, events/s"] / figures["DuckDB reading alone, events/s"], 2
        ),
        "repeat_s": figures["merge again, nothing new, s"],
        "peak_jvm_mb": figures["peak MB, JVM"],
    }


def _ratio(figures: Mapping[str, Any], of: str) -> float:
    return round(float(figures[of]) / float(figures[f"naive {of}"]), 2)


def measure_large_day(folder: Path, tell: Callable[[str], None], events: int) -> dict[str, Any]:
    """A day of changes through all stages, in a driver with a heap of 1 GB."""
    tell(f"writing {events} changes")
    size = write_day(folder / "landing", DAY_2, change_lines(events, LARGE_DAY_ROWS), events)
    own = {"start_date": DAY_2, "spark": {"spark.driver.memory": "1g"}}
    raw = {**_configuration(folder), **own}
    config = parsed(raw, folder)
    spark = build_session(config)
    spark.sparkContext.setLogLevel("ERROR")
    lake, figures = Lake(spark, config), {"MB landed": size // 1_000_000}
    steps: dict[str, Callable[[], Any]] = {
        "landing, s": lambda: land(lake, SOURCE, [DAY_2]),
        "changes, s": lambda: lakes.make_changes(lake, SOURCE, [DAY_2]),
        **{f"{table}, s": partial(_make, lake, f"public.{table}", DAY_2) for table in TABLES},
    }
    try:
        for name, step in steps.items():
            tell(name.removesuffix(", s"))
            figures[name] = round(timed(step))
        return figures | _memory(spark)
    finally:
        spark.stop()


def measure_large_table(
    folder: Path, tell: Callable[[str], None], rows: int, events: int
) -> dict[str, Any]:
    """A day of changes into a table of millions of rows, and its careless twin."""
    raw, big = _configuration(folder), f"public.{TABLES[0]}"
    config = parsed(raw, folder)
    spark = build_session(config)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        tell(f"writing {rows} snapshot reads and {events} changes")
        write_snapshot(spark, folder / "landing", rows)
        write_day(folder / "landing", DAY_2, change_lines(events, rows, TABLES[:1]), events)
        lake = Lake(spark, config)
        tell("landing")
        land(lake, SOURCE, [DAY_1, DAY_2])
        tell("changes")
        lakes.make_changes(lake, SOURCE, [DAY_1, DAY_2])
        tell("first day")
        _make(lake, big, DAY_1)
        tell("merges")
        return {**_merges_both_ways(lake, big, times=2), **_memory(spark)}
    finally:
        spark.stop()


def _make(lake: Lake, table: str, day: date, force: bool = False) -> table_days.DayReport:
    facts = table_days.gather(lake, SOURCE, [table], [day])
    return table_days.make_table_day(lake, SOURCE, table, day, facts, force)


def _merges_both_ways(lake: Lake, table: str, times: int) -> dict[str, Any]:
    """The second day of a table and its careless twin in turn, the best time of each.

    At last the day once more with nothing new.
    """
    spark = lake.spark
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.naive")
    history = spark.table(lake.stage(SOURCE, "changes")).where(F.col("table_name") == table)
    own, naive = [], []
    for _ in range(times):
        began = time.perf_counter()
        report = _make(lake, table, DAY_2, force=True)
        own.append(time.perf_counter() - began)
        naive.append(timed(lambda: naive_state(history, "lake.naive.state")))
    files = spark.sql("SELECT sum(file_size_in_bytes) AS size FROM lake.naive.state.files").first()
    assert files is not None
    return {
        "merge, rows before": report.rows_before,
        "merge, events": report.events,
        "merge, the first time, s": round(own[0], 1),
        "merge, s": round(min(own), 1),
        "merge, events/s": round(report.events / min(own)),
        "merge, MB written": round(report.bytes_added / 1e6, 1),
        "merge again, nothing new, s": round(timed(lambda: _make(lake, table, DAY_2)), 1),
        "naive merge, the first time, s": round(naive[0], 1),
        "naive merge, s": round(min(naive), 1),
        "naive merge, MB written": round(files["size"] / 1e6, 1),
        "merge_ratio": round(min(own) / min(naive), 2),
    }


def _configuration(folder: Path) -> dict[str, Any]:
    tables = {f"public.{t}": {"key": ["id"], "columns": COLUMNS} for t in TABLES}
    landings = {
        SOURCE: {"files": str(folder / "landing")},
        COPY: {"table": "lake.naive.kafka_raw"},
    }
    return {
        "start_date": DAY_1,
        "sources": {
            source: {"format": "debezium", "landing": landing, "tables": tables}
            for source, landing in landings.items()
        },
    }


def parsed(raw: Mapping[str, Any], folder: Path) -> Config:
    """The configuration, with its lake in the folder."""
    config = parse_config(raw, folder)
    lake = config.lake.model_copy(update={"warehouse": str(folder / "warehouse")})
    return config.model_copy(update={"lake": lake})


def _stages(
    spark: SparkSession, config: Config, events: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    lake, big = Lake(spark, config), f"public.{TABLES[0]}"
    tell("day 1: the table of snapshot reads")
    figures: dict[str, Any] = {}

    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.naive")

    def first_load() -> None:
        land(lake, SOURCE, [DAY_1])
        lakes.make_changes(lake, SOURCE, [DAY_1])
        _make(lake, big, DAY_1)

    files = Path(str(config.source(SOURCE).landing.files))
    # Each way once on the other day's files first, so that neither pays for a cold start.
    naive_first_load(spark, files / str(DAY_2), "lake.naive.warm_up")
    land(lake, SOURCE, [DAY_2])
    lakes.make_changes(lake, SOURCE, [DAY_2])
    figures["first load, s"] = round(timed(first_load), 1)
    twin = timed(lambda: naive_first_load(spark, files / str(DAY_1), "lake.naive.first_load"))
    figures["naive first load, s"] = round(twin, 1)
    tell("day 2: the changes")
    own, naive = [], []
    for _ in range(2):
        own.append(timed(lambda: land(lake, SOURCE, [DAY_2], force=True)))
        naive.append(timed(lambda: naive_landing(spark, files / str(DAY_2), "lake.naive.landing")))
    figures["landing, events/s"] = round(events / min(own))
    figures["naive landing, events/s"] = round(events / min(naive))
    tell("day 2: landing from a table")
    figures |= _landing_both_ways(lake, events)
    tell("day 2: changes")
    figures |= _changes_both_ways(lake, events)
    return figures | _merges_both_ways(lake, big, times=8)


def _landing_both_ways(lake: Lake, events: int) -> dict[str, Any]:
    """The same records from a table and from files in turn, the better of two times of each."""
    rows = lake.spark.table(lake.stage(SOURCE, "landing"))
    rows = rows.where(F.col("landing_date") == F.lit(DAY_2)).drop("landing_date", "file")
    rows.writeTo("lake.naive.kafka_raw").createOrReplace()
    files, table = [], []
    for _ in range(2):
        # With `allow_loss` no day is compared with what landed before, as none is the first time.
        files.append(timed(lambda: land(lake, SOURCE, [DAY_2], True, allow_loss=True)))
        table.append(timed(lambda: land(lake, COPY, [DAY_2], True, allow_loss=True)))
    return {
        "landing from a table, events/s": round(events / min(table)),
        "landing_table_ratio": round(min(files) / min(table), 2),
    }


def _changes_both_ways(lake: Lake, events: int) -> dict[str, Any]:
    """The changes stage and its careless twin in turn, the better of two times of each."""
    landing = lake.spark.table(lake.stage(SOURCE, "landing"))
    landing = landing.where(F.col("landing_date") == F.lit(DAY_2))
    own, naive, reader, duck = [], [], [], []
    listed = lake.spark.table(f"{lake.stage(SOURCE, 'landing')}.files")
    files = listed.where(F.col("partition.landing_date") == F.lit(DAY_2)).select("file_path")
    parquets = [row.file_path.removeprefix("file:") for row in files.collect()]
    for _ in range(2):
        own.append(timed(lambda: lakes.make_changes(lake, SOURCE, [DAY_2], force=True)))
        naive.append(timed(lambda: naive_changes(lake.spark, landing, "lake.naive.changes")))
        reader.append(timed(lambda: read_only(landing)))
        duck.append(timed(lambda: read_only_by_duckdb(parquets)))
    return {
        "changes, s": round(min(own), 1),
        "changes, events/s": round(events / min(own)),
        "naive changes, s": round(min(naive), 1),
        "naive changes, events/s": round(events / min(naive)),
        "reading alone, events/s": round(events / min(reader)),
        "DuckDB reading alone, events/s": round(events / min(duck)),
    }


def _start_up(folder: Path) -> dict[str, float]:
    environment = {
        **os.environ,
        "CDC_CONFIG": str(folder / "cdc.yaml"),
        "CDC_WAREHOUSE": str(folder / "warehouse"),
        "DAGSTER_HOME": "",
    }

    def seconds(*arguments: str) -> float:
        def run() -> None:
            subprocess.run(
                [sys.executable, *arguments], check=True, env=environment, capture_output=True
            )

        return round(min(timed(run) for _ in range(3)), 2)

    big = f"{SOURCE}.public.{TABLES[0]}"
    show = seconds("-m", "cdc_assets.cli.app", "show", big, "--as-of", str(DAY_2), "--limit", "20")
    dagster = seconds("-c", "import dagster")
    definitions = seconds("-c", "import dagster, cdc_assets.definitions")
    return {"show, s": show, "definitions beyond dagster, s": round(definitions - dagster, 2)}


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "load before": round(os.getloadavg()[0], 1),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=200_000, help="changes of four tables")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the first table")
    parser.add_argument("--quick", action="store_true", help="8000 events, 20000 rows")
    parser.add_argument(
        "--large-day", action="store_true", help="2 GB of changes in a driver of 1 GB"
    )
    parser.add_argument(
        "--large-table", action="store_true", help="100000 changes into 10 million rows, alone"
    )
    parser.add_argument("--folder", help="where the temporary folder is made")
    options = parser.parse_args()
    if options.quick:
        options.events, options.rows = 8_000, 20_000
    if options.large_day:
        large = {"events": LARGE_DAY_EVENTS}
        run(partial(measure_large_day, **large), large, options.folder)
        return
    if options.large_table:
        large = {"rows": LARGE_TABLE_ROWS, "events": LARGE_TABLE_EVENTS}
        run(partial(measure_large_table, **large), large, options.folder)
        return
    asked = {"events": options.events, "rows": options.rows}
    run(partial(measure, **asked), asked, options.folder)


def run_events(about: str, measure: Callable[..., dict[str, Any]]) -> None:
    """:func:`run` for a command that asks for a number of events.

    Args:
        about: the command's docstring.
        measure: as of :func:`run`, with `events`.
    """
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--events", type=int, default=200_000, help="changes of four tables")
    parser.add_argument("--folder", help="where the temporary folder is made")
    options = parser.parse_args()
    asked = {"events": options.events}
    run(partial(measure, **asked), asked, options.folder)


def run(
    measure: Callable[[Path, Callable[[str], None]], dict[str, Any]],
    asked: Mapping[str, Any],
    parent: str | None = None,
) -> None:
    """Measure in a temporary folder; print a table and a line of JSON.

    Args:
        measure: gets the folder, and what tells how far it is.
        asked: the sizes, which stand above the figures.
        parent: where the folder is made.
    """
    os.environ.pop("CDC_WAREHOUSE", None)
    figures: dict[str, Any] = {**_machine(), **asked}
    with tempfile.TemporaryDirectory(prefix="cdc-bench-", dir=parent) as name:
        folder = Path(name)
        with output.own_stderr(folder / "spark.log") as err:

            def tell(text: str) -> None:
                print(f"{time.strftime('%H:%M:%S')} {text}", file=err)

            try:
                figures |= measure(folder, tell)
            except BaseException:
                err.write((folder / "spark.log").read_text(encoding="utf-8")[-4000:])
                raise
    output.print_table(["figure", "value"], [{"figure": k, "value": v} for k, v in figures.items()])
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
