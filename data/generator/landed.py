"""The forms in which a day of records can lie in a folder."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .kafka import Json, Record, compact


def kcat_line(record: Record) -> str:
    """A line of `kcat -J`: headers as one flat list."""
    flat = [part for name, value in record.headers for part in (name, value.decode())]
    line = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": "create",
        "ts": record.ts,
        "broker": 1,
    }
    if flat:
        line["headers"] = flat
    return compact(line | _text_or_base64("key", record.key) | _payload(record.value))


def spark_line(record: Record) -> str:
    """A line with the column names of Spark's Kafka source."""
    at = datetime.fromtimestamp(record.ts // 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    line = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": f"{at}.{record.ts % 1000:03}Z",
        "timestampType": 0,
    }
    line |= _text_or_base64("key", record.key) | _text_or_base64("value", record.value)
    return compact(line | {"headers": [{"key": k, "value": v.decode()} for k, v in record.headers]})


def _text_or_base64(name: str, content: bytes | None) -> dict[str, Json]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def _payload(value: bytes | None) -> dict[str, Json]:
    line = _text_or_base64("value", value)
    return {"payload": line["value"]} if "value" in line else line


SPARK_KAFKA_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def write_parquet(path: Path, records: Sequence[Record]) -> None:
    """A Parquet file with the columns of Spark's Kafka source."""
    rows = [
        {
            "key": r.key,
            "value": r.value,
            "topic": r.topic,
            "partition": r.partition,
            "offset": r.offset,
            "timestamp": r.ts * 1000,
            "timestampType": 0,
            "headers": [{"key": k, "value": v} for k, v in r.headers] or None,
        }
        for r in records
    ]
    table = pa.Table.from_pylist(rows, schema=SPARK_KAFKA_SCHEMA)
    pq.write_table(table, path, compression="zstd", compression_level=9, version="2.6")


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """A text file with a line each; a name that ends in .gz is compressed."""
    content = "".join(line + "\n" for line in lines).encode()
    if path.suffix == ".gz":
        packed = io.BytesIO()
        # Neither a name nor a time in the gzip header, so that equal content is equal bytes.
        with gzip.GzipFile("", "wb", compresslevel=9, fileobj=packed, mtime=0) as stream:
            stream.write(content)
        content = packed.getvalue()
    path.write_bytes(content)


def write_file(path: Path, items: Sequence[Record | str]) -> None:
    """Writes a file in the form its name asks for: `kcat…`, `….parquet`, else Spark's names."""
    if path.suffix == ".parquet":
        write_parquet(path, [item for item in items if isinstance(item, Record)])
        return
    form = kcat_line if path.name.startswith("kcat") else spark_line
    write_lines(path, [item if isinstance(item, str) else form(item) for item in items])
