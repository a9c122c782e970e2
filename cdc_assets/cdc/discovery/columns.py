"""The columns of each table in landed records and in the lake's message schemas, without Spark.

`cdc-assets doctor` compares them with cdc.yaml. This is not a full reader: it skips records that it
can't read, which the stage `changes` quarantines.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from cdc_assets.cdc.changes.message_schemas import columns_of_schema
from cdc_assets.cdc.config import Config, SourceConfig, local_path
from cdc_assets.cdc.envelopes.envelope import TableAndRow, object_in
from cdc_assets.cdc.envelopes.formats import format_of
from cdc_assets.cdc.errors import CdcError
from cdc_assets.cdc.lake.rows import read_rows
from cdc_assets.cdc.lake.tables import own_table
from cdc_assets.cdc.landing.files import LANDED, day_of, is_ignored
from cdc_assets.cdc.values import column_types as types

# Records of the newest days; a table without a row among them is left out.
_RECORDS = 2_000


def table_columns(config: Config, source: str) -> dict[str, set[str]]:
    """The columns of each table of a source that shows at least one whole row or schema.

    Raises:
        OSError: a landed file can't be read.
    """
    rows: dict[str, set[str]] = {}
    keys: dict[str, set[str]] = {}
    settings = config.sources[source]
    for table, text in _schemas(config, source):
        rows.setdefault(table, set()).update(columns_of_schema(text, settings))
    for key, value in islice(_landed(settings.landing.files), _RECORDS):
        table_and_row = row_of(value, settings)
        if table_and_row is not None:
            table, row = table_and_row
            rows.setdefault(table, set()).update(row)
            keys.setdefault(table, set()).update(_payload(key))
    return {table: names | keys.get(table, set()) for table, names in rows.items() if names}


def table_types(config: Config, source: str) -> dict[str, types.ColumnTypes]:
    """The column types of each table of a source by its messages; newer types win.

    Raises:
        OSError: a landed file can't be read.
    """
    found: dict[str, types.ColumnTypes] = {}
    settings = config.sources[source]
    for _, value in islice(_landed(settings.landing.files), _RECORDS):
        table_and_row, schema = row_of(value, settings), _schema_of(value)
        if table_and_row is not None and schema is not None:
            said = columns_of_schema(json.dumps(schema), settings)
            found[table_and_row[0]] = types.over(said, found.get(table_and_row[0], {}))
    for table, text in _schemas(config, source):
        found[table] = types.over(columns_of_schema(text, settings), found.get(table, {}))
    return found


def _schema_of(value: Any) -> Mapping[str, Any] | None:
    """An event's column types: Connect's schema, or Canal's `mysqlType`."""
    schema = value.get("schema", value.get("mysqlType")) if isinstance(value, dict) else None
    return schema if isinstance(schema, dict) else None


def _schemas(config: Config, source: str) -> Iterator[tuple[str, str]]:
    """Table and text of each schema in the lake, oldest first."""
    try:
        found = read_rows(config, own_table(source, "schemas"))
    except CdcError:  # no lake yet, or the check of the catalog says what is wrong with it
        return
    named = found.select(["table_name", "schema", "first_landed"]).to_pylist()
    for row in sorted(named, key=itemgetter("first_landed")):
        if row["table_name"] is not None:  # not a registry's
            yield row["table_name"], row["schema"]


# --- landed records


def _landed(place: str | None) -> Iterator[tuple[Any, Any]]:
    """Key and value of landed records as JSON documents, those of the newest day first."""
    folder = None if place is None else local_path(place)
    if folder is None or not folder.is_dir():
        return
    days = sorted((path for path in folder.iterdir() if day_of(path.name)), reverse=True)
    for file in (file for day in days if day.is_dir() for file in sorted(day.iterdir())):
        if file.name.endswith(LANDED) and not is_ignored(file.name):
            for key, value in _parquet(file) if file.suffix == ".parquet" else _lines(file):
                yield _json(key), _json(value)


def _lines(file: Path) -> Iterator[tuple[Any, Any]]:
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        for line in lines:
            record = _json(line)
            if isinstance(record, dict):
                yield _member(record, "key"), _member(record, "value", "payload")


def _member(record: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if record.get(f"{name}_base64") is not None:
            return base64.b64decode(record[f"{name}_base64"])
        if record.get(name) is not None:
            return record[name]
    return None


def _parquet(file: Path) -> Iterator[tuple[Any, Any]]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as opened:
        for batch in opened.iter_batches(_RECORDS, columns=["key", "value"]):
            for row in batch.to_pylist():
                yield row["key"], row["value"]


def _json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


# --- rows


def row_of(value: Any, settings: SourceConfig) -> TableAndRow | None:
    """Table and row of an event with the whole new row; None for all others."""
    return format_of(settings).table_and_row(value) if isinstance(value, dict) else None


def _payload(document: Any) -> Mapping[str, Any]:
    """An object, out of `{"schema": …, "payload": …}` where it is wrapped."""
    if not isinstance(document, dict):
        return {}
    return object_in(document, "payload") if "payload" in document else document
