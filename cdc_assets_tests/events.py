"""Builders of landed records: the events of all tests, in one line each.

Single records: ``created({"id": 1, "name": "Ann"}, lsn=100)``. A story with offsets, LSNs and
clocks that move on by themselves::

    log = PgLog("inventory", "public", "customers")
    log.create(id=1, name="Ann")
    log.next_day()
    log.update(id=1, name="Anna")
    log.delete(id=1, _lsn=90)          # options of the builder carry an underscore
    log.landed                         # {date: [Record, …]}

Several logs share one Kafka by ``landing=``. Nothing here knows the package.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, Literal

from cdc_assets_tests.model import Record

Table = tuple[str, str]
Row = Mapping[str, Any]
Types = Mapping[str, Any]

DAY = date(2026, 11, 4)
NOON_MS = int(datetime(2026, 11, 4, 12, tzinfo=timezone.utc).timestamp() * 1000)
CUSTOMERS: Table = ("public", "customers")
TOAST = "__debezium_unavailable_value"

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
# How the semantic types are written where a test names only them.
SEMANTIC_BASE = {
    "io.debezium.time.Date": "int32",
    "org.apache.kafka.connect.data.Date": "int32",
    "io.debezium.time.Timestamp": "int64",
    "io.debezium.time.MicroTimestamp": "int64",
    "io.debezium.time.NanoTimestamp": "int64",
    "org.apache.kafka.connect.data.Timestamp": "int64",
    "io.debezium.time.Time": "int32",
    "io.debezium.time.MicroTime": "int64",
    "io.debezium.time.NanoTime": "int64",
    "org.apache.kafka.connect.data.Time": "int32",
    "io.debezium.time.MicroDuration": "int64",
    "io.debezium.time.Year": "int32",
    "io.debezium.data.Bits": "bytes",
    VARIABLE_SCALE_DECIMAL: "struct",
    "io.debezium.data.geometry.Geometry": "struct",
    "io.debezium.data.geometry.Geography": "struct",
    "io.debezium.data.geometry.Point": "struct",
    DECIMAL: "bytes",
}  # all others: string


# ---------------------------------------------------------------------------------------------
# JSON and schemas
# ---------------------------------------------------------------------------------------------


def to_json(value: Any) -> str:
    """JSON text in the order given; Decimals as exact numbers, bytes in base64."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(k)}:{to_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(to_json(v) for v in value) + "]"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return to_json(base64.b64encode(value).decode())
    return json.dumps(value, ensure_ascii=False)


def field_schema(type_: Any) -> dict[str, Any]:
    """``"int32"``, a semantic name, ``(DECIMAL, scale[, precision])``, or a whole field schema."""
    if isinstance(type_, Mapping):
        return dict(type_)
    name, *parameters = (type_,) if isinstance(type_, str) else type_
    if "." not in name:
        return {"type": name, "optional": True}
    schema: dict[str, Any] = {"type": SEMANTIC_BASE.get(name, "string"), "optional": True}
    schema |= {"name": name, "version": 1}
    if name == DECIMAL:
        scale, *precision = parameters
        schema["parameters"] = {"scale": str(scale)}
        if precision:
            schema["parameters"]["connect.decimal.precision"] = str(precision[0])
    return schema


def struct_schema(types: Types, **more: Any) -> dict[str, Any]:
    fields = [{**field_schema(type_), "field": column} for column, type_ in types.items()]
    return {"type": "struct", "fields": fields, "optional": True, **more}


def envelope_schema(types: Types, name: str = "server.Envelope") -> dict[str, Any]:
    """The schema of a Debezium value: both images, source, op, ts_ms."""
    return {
        "type": "struct",
        "fields": [
            struct_schema(types, field="before"),
            struct_schema(types, field="after"),
            struct_schema({"ts_ms": "int64", "lsn": "int64"}, field="source"),
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ],
        "optional": False,
        "name": name,
    }


def unscaled(number: Decimal, scale: int) -> str:
    """Base64 of the big-endian two's complement, as Connect writes a Decimal."""
    whole = int(number.scaleb(scale, Context(prec=100)))
    size = (whole if whole >= 0 else ~whole).bit_length() // 8 + 1
    return base64.b64encode(whole.to_bytes(size, "big", signed=True)).decode()


def wire_value(value: Any, type_: Any) -> Any:
    """A Python value as the producer writes it; what is JSON already passes."""
    schema = field_schema(type_)
    name = str(schema.get("name", ""))
    if isinstance(value, Decimal) and name == DECIMAL:
        return unscaled(value, int(schema["parameters"]["scale"]))
    if isinstance(value, Decimal) and name == VARIABLE_SCALE_DECIMAL:
        scale = max(0, -int(value.as_tuple().exponent))
        return {"scale": scale, "value": unscaled(value, scale)}
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
        micros = (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)
        if "Micro" in name:
            return micros
        return micros * 1000 if "Nano" in name else micros // 1000
    if isinstance(value, date):
        return value.isoformat() if "Iso" in name else (value - date(1970, 1, 1)).days
    return value


def wire_row(row: Row | None, types: Types | None) -> dict[str, Any] | None:
    if row is None or types is None:
        return None if row is None else dict(row)
    return {c: wire_value(v, types[c]) if c in types else v for c, v in row.items()}


def key_bytes(
    key: Any, row: Row | None, types: Types | None = None, *, wrap: bool = False
) -> bytes | None:
    """The message key: a tuple names columns of ``row``; bytes are as they are; else JSON."""
    if key is None or isinstance(key, bytes):
        return key
    schema: dict[str, Any] | None = None
    if isinstance(key, tuple):
        key = {column: (row or {}).get(column) for column in key}
    if isinstance(key, Mapping) and types is not None:
        own = {column: types[column] for column in key if column in types}
        key, schema = wire_row(key, own), struct_schema(own)
    if schema is not None or wrap:
        key = {"schema": schema, "payload": key}
    return to_json(key).encode()


def header_bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else to_json(value).encode()


def key_header(key: Row, form: Literal["struct", "text", "schema", "java"] = "struct") -> bytes:
    """A key as header value in the forms that header converters write (FORMATS D9)."""
    if form == "java":
        members = ",".join(f"{column}={value}" for column, value in key.items())
        return f"Struct{{{members}}}".encode()
    if form == "text":
        return to_json(to_json(key)).encode()
    if form == "schema":
        types = {c: "int64" if isinstance(v, int) else "string" for c, v in key.items()}
        return to_json({"schema": struct_schema(types), "payload": key}).encode()
    return to_json(key).encode()


def _record(
    value: bytes | None,
    *,
    topic: str,
    key: bytes | None = None,
    partition: int | None = 0,
    offset: int | None = 0,
    timestamp_ms: int | None = NOON_MS + 500,
    headers: Mapping[str, Any] | None = None,
) -> Record:
    pairs = tuple((name, header_bytes(v)) for name, v in (headers or {}).items())
    return Record(topic, partition, offset, timestamp_ms, key, value, pairs)


# ---------------------------------------------------------------------------------------------
# Debezium, PostgreSQL (MySQL by source=mysql_source(…))
# ---------------------------------------------------------------------------------------------


def change(
    op: Any,
    before: Row | None = None,
    after: Row | None = None,
    *,
    table: Table = CUSTOMERS,
    server: str = "inventory",
    topic: str | None = None,
    key: Any = ("id",),
    lsn: int | None = 1000,
    snapshot: Any = "false",
    source_ts_ms: int | None = NOON_MS,
    processed_ts_ms: int | None = NOON_MS + 200,
    transaction: Row | None = None,
    types: Types | None = None,
    wrap: bool = False,
    source: Row | None = None,
    extra: Row | None = None,
    **kafka: Any,
) -> Record:
    """A Debezium event.

    ``types`` puts the message schema in (``{"id": "int32", …}``), ``wrap`` only
    ``{"schema": null, "payload": …}``. ``source`` and ``extra`` replace or add members of
    ``source`` and of the payload. ``kafka``: partition, offset, timestamp_ms, headers.
    """
    before, after = wire_row(before, types), wire_row(after, types)
    payload: dict[str, Any] = {
        "before": before,
        "after": after,
        "source": {
            "version": "2.5.4.Final",
            "connector": "postgresql",
            "name": server,
            "ts_ms": source_ts_ms,
            "snapshot": snapshot,
            "db": "shop",
            "schema": table[0],
            "table": table[1],
            "txId": 700 if lsn is None else lsn,  # a transaction each
            "lsn": lsn,
            "xmin": None,
            **(source or {}),
        },
        "op": op,
        "ts_ms": processed_ts_ms,
        "transaction": transaction,
        **(extra or {}),
    }
    document: Any = payload
    if types is not None or wrap:
        schema = None if types is None else envelope_schema(types)
        document = {"schema": schema, "payload": payload}
    row = after if after is not None else before
    message_key = _key_of(key, row, types, wrap)
    topic = topic or f"{server}.{table[0]}.{table[1]}"
    return _record(to_json(document).encode(), topic=topic, key=message_key, **kafka)


def _key_of(key: Any, row: Row | None, types: Types | None, wrap: bool) -> bytes | None:
    """As key_bytes, for a row that is in wire form already."""
    if isinstance(key, tuple) and types is not None:
        own = {column: types[column] for column in key if column in types}
        struct = {column: (row or {}).get(column) for column in key}
        return to_json({"schema": struct_schema(own), "payload": struct}).encode()
    return key_bytes(key, row, types, wrap=wrap)


def created(after: Row, **options: Any) -> Record:
    return change("c", None, after, **options)


def updated(after: Row, before: Row | None = None, **options: Any) -> Record:
    """Replica identity DEFAULT unless ``before`` is given."""
    return change("u", before, after, **options)


def deleted(before: Row | None, **options: Any) -> Record:
    """``before`` as the replica identity has it; None needs an explicit ``key=``."""
    return change("d", before, None, **options)


def read(after: Row, *, snapshot: Any = "true", **options: Any) -> Record:
    return change("r", None, after, snapshot=snapshot, **options)


def snapshot_marks(rows: int, is_first_table: bool, is_last_table: bool) -> list[str]:
    """The marks of a table's reads, as Debezium sets them; a table of one row has one of them."""
    last = "last" if is_last_table else "last_in_data_collection"
    first = "first" if is_first_table else "first_in_data_collection"
    if rows == 1:
        return [first if is_first_table and not is_last_table else last]
    return [first, *["true"] * (rows - 2), last]


def truncated(**options: Any) -> Record:
    return change("t", **{"key": None, **options})


def message(prefix: str = "audit", content: bytes = b"hi", **options: Any) -> Record:
    """A logical message (D13); outside a transaction: ``source={"txId": None}``."""
    extra = {"message": {"prefix": prefix, "content": content}}
    defaults = {"table": ("", ""), "topic": "inventory.message", "key": {"prefix": prefix}}
    return change("m", extra=extra, **{**defaults, **options})


def tombstone(
    key: Any,
    *,
    table: Table = CUSTOMERS,
    server: str = "inventory",
    topic: str | None = None,
    value: bytes | None = None,
    types: Types | None = None,
    wrap: bool = False,
    **kafka: Any,
) -> Record:
    """``value``: b"null", b"" … as old converters write it."""
    topic = topic or f"{server}.{table[0]}.{table[1]}"
    own = types if isinstance(key, Mapping) else None
    return _record(value, topic=topic, key=key_bytes(key, None, own, wrap=wrap), **kafka)


def heartbeat(
    ts_ms: int = NOON_MS, *, topic: str = "__debezium-heartbeat.inventory", **kafka: Any
) -> Record:
    key = to_json({"serverName": "inventory"}).encode()
    return _record(to_json({"ts_ms": ts_ms}).encode(), topic=topic, key=key, **kafka)


def transaction_mark(
    status: str = "BEGIN",
    id: str = "700:1000",
    event_count: int | None = None,
    *,
    topic: str = "inventory.transaction",
    **kafka: Any,
) -> Record:
    value = {"status": status, "id": id, "ts_ms": NOON_MS, "event_count": event_count}
    return _record(to_json(value).encode(), topic=topic, key=to_json({"id": id}).encode(), **kafka)


def statement(ddl: str, **options: Any) -> Record:
    """A statement of DDL, with the source of a truncate that has these options."""
    record = truncated(**{**options, "types": None})
    event = json.loads(record.value or b"")
    gone = ("op", "before", "after", "transaction")
    told = {"databaseName": options["table"][0], "schemaName": None, "ddl": ddl, "tableChanges": []}
    value = {**{n: v for n, v in event.items() if n not in gone}, **told}
    key = to_json({"databaseName": options["table"][0]}).encode()
    return replace(record, value=to_json(value).encode(), key=key)


def as_cells(record: Record) -> Record:
    """An event without schema as YugabyteDB's own format has it: what was not sent is null."""

    def cells(image: Any) -> Any:
        if not isinstance(image, dict):
            return image
        return {n: None if v == TOAST else {"value": v, "set": True} for n, v in image.items()}

    event = json.loads(record.value or b"null")
    if not isinstance(event, dict) or "op" not in event:
        return record
    images = {n: cells(event[n]) for n in ("before", "after") if n in event}
    key = json.loads(record.key) if record.key else None
    sent = to_json(cells(key)).encode() if isinstance(key, dict) else record.key
    return replace(record, value=to_json({**event, **images}).encode(), key=sent)


def schema_change(ddl: str | None, *, topic: str = "inventory", **kafka: Any) -> Record:
    source = {"connector": "mysql", "db": "shop", "table": "customers", "ts_ms": NOON_MS}
    value = {"source": source, "ts_ms": NOON_MS, "databaseName": "shop", "ddl": ddl}
    key = to_json({"databaseName": "shop"}).encode()
    return _record(to_json(value).encode(), topic=topic, key=key, **kafka)


def mysql_source(
    db: str = "shop", table: str = "customers", *, file: str = "bin.000003", pos: int, row: int = 0
) -> dict[str, Any]:
    """For ``source=``: MySQL has no schema, and its position is file, pos and row."""
    members = {"connector": "mysql", "db": db, "schema": None, "table": table}
    return {**members, "lsn": None, "file": file, "pos": pos, "row": row}


def sqlserver_source(commit: str, change: str, serial: int = 1) -> dict[str, Any]:
    """For ``source=``: two LSNs and the event's number among those of one change."""
    members = {"connector": "sqlserver", "lsn": None, "txId": None}
    return {**members, "commit_lsn": commit, "change_lsn": change, "event_serial_no": serial}


def db2_source(commit: str, change: str) -> dict[str, Any]:
    """For ``source=``: Db2 numbers no events of a change."""
    members = {"connector": "db2", "lsn": None, "txId": None}
    return {**members, "commit_lsn": commit, "change_lsn": change}


def informix_source(commit: int, change: int, tx: int) -> dict[str, Any]:
    """For ``source=``: LSNs are decimal numbers as text."""
    members = {"connector": "informix", "lsn": None, "txId": str(tx)}
    return {**members, "commit_lsn": str(commit), "change_lsn": str(change), "begin_lsn": "0"}


def oracle_source(
    scn: int, commit_scn: int | None, *, tx: str | None, rs_id: str | None, ssn: int = 0
) -> dict[str, Any]:
    """For ``source=``: SCNs are decimal numbers as text."""
    members = {"connector": "oracle", "lsn": None, "txId": tx, "lcr_position": None}
    commit = None if commit_scn is None else str(commit_scn)
    return {**members, "scn": str(scn), "commit_scn": commit, "rs_id": rs_id, "ssn": ssn}


def vitess_source(
    keyspace: str, table: str, *, number: int, is_old: bool = False
) -> dict[str, Any]:
    """For ``source=``: a keyspace, until 1.9 called schema; its time has whole seconds.

    The vgtid, of which ``number`` counts the transactions, is a position for each shard: no order.
    """
    vgtid = [{"keyspace": keyspace, "shard": "-80", "gtid": f"MySQL56/7b4e:1-{number}"}]
    names = {"schema": keyspace} if is_old else {"schema": None, "keyspace": keyspace}
    members = {"connector": "vitess", "db": "shop" if is_old else "", **names, "table": table}
    time = {"ts_ms": NOON_MS + number * 1000}
    return {**members, **time, "lsn": None, "vgtid": to_json(vgtid)}


def spanner_source(database: str, captured: str | None) -> dict[str, Any]:
    """For ``source=``: what is captured of an update, its ``value_capture_type``, stands there."""
    members = {"connector": "spanner", "db": database, "schema": None, "lsn": None}
    return {**members, "value_capture_type": captured}


def raw(value: bytes | None, *, topic: str = "inventory.public.customers", **kafka: Any) -> Record:
    """Any bytes as value; ``key=`` is bytes too."""
    return _record(value, topic=topic, **kafka)


def malformed_line(text: str) -> Record:
    """A landed line that is no record."""
    return Record(None, None, None, None, None, text.encode(), malformed_line=True)


# ---------------------------------------------------------------------------------------------
# Debezium, flattened (D18)
# ---------------------------------------------------------------------------------------------


def as_text(value: Any) -> bytes | None:
    """Connect's SimpleHeaderConverter."""
    return None if value is None else str(value).encode()


def as_json(value: Any) -> bytes:
    """Connect's JsonConverter, without schemas."""
    return json.dumps(value).encode()


def as_json_with_schema(value: Any) -> bytes:
    """Connect's JsonConverter, with schemas."""
    kind = "int64" if isinstance(value, int) else "string"
    return to_json({"schema": {"type": kind, "optional": True}, "payload": value}).encode()


@dataclass(frozen=True)
class Smt:
    """The transform ExtractNewRecordState, from Debezium's document "New Record State Extraction".

    `mode` is its option `delete.tombstone.handling.mode`, or `none` as `delete.handling.mode` with
    `drop.tombstones=false`; `fields` and `headers` are `add.fields` and `add.headers`.
    """

    mode: str = "tombstone"
    fields: Sequence[str] = ()
    headers: Sequence[str] = ()
    fields_prefix: str = "__"
    headers_prefix: str = "__"
    converter: Callable[[Any], bytes | None] = as_text

    def applied(self, record: Record) -> Record | None:
        """What is written of a record; None where it is dropped."""
        document = _json_object(record.value)
        if document is None:
            return record
        event = document.get("payload", document)
        if not event:
            return self._tombstone(record)
        if event.get("op") in (None, "m") or not isinstance(event.get("source"), dict):
            return record
        headers = self._added(self.headers, self.headers_prefix, event)
        is_delete = event["op"] in ("d", "t")
        if is_delete and self.mode in ("drop", "tombstone"):
            return None
        if event["op"] == "t" and self.mode != "none":  # 2.5 and later drop truncates
            return None
        row = event.get("before" if is_delete else "after")
        if is_delete and not self.mode.startswith("rewrite"):
            row = None
        if row is None:
            return self._written(record, None, headers)
        fields = self._added(self.fields, self.fields_prefix, event)
        if self.mode.startswith("rewrite"):
            fields["__deleted"] = "true" if is_delete else "false"
        value: Any = {**row, **fields}
        if document.get("schema"):
            value = {"schema": _flat_schema(document["schema"], fields), "payload": value}
        return self._written(record, to_json(value).encode(), headers)

    def _tombstone(self, record: Record) -> Record | None:
        if self.mode in ("drop", "rewrite", "delete-to-tombstone"):
            return None
        added = self._added(self.headers, self.headers_prefix, {"op": "d"})
        said = {name: value for name, value in added.items() if value is not None}
        return self._written(record, record.value, said)

    def _added(self, listed: Sequence[str], prefix: str, event: Row) -> dict[str, Any]:
        added = {}
        for entry in listed:
            name, *new = entry.split(":")
            *structs, member = name.split(".")
            own = None if member in ("op", "ts_ms") else "source"
            own = "transaction" if member in ("id", "total_order") else own
            struct = structs[0] if structs else own
            holder = event.get(struct) or {} if struct else event
            added[prefix + (new[0] if new else name.replace(".", "_"))] = holder.get(member)
        return added

    def _written(self, record: Record, value: bytes | None, headers: Row) -> Record:
        pairs = tuple((name, self.converter(said)) for name, said in headers.items())
        return replace(record, value=value, headers=record.headers + pairs)


def _json_object(value: bytes | None) -> dict[str, Any] | None:
    """An object; an empty one where a tombstone says null, None where it is anything else."""
    try:
        document = json.loads(value or b"null", parse_float=Decimal)
    except ValueError:
        return None
    return {} if document is None else document if isinstance(document, dict) else None


def _flat_schema(schema: Row, fields: Row) -> dict[str, Any]:
    own = next(f for f in schema["fields"] if f["field"] == "after")
    kinds = {n: "int64" if isinstance(v, int) else "string" for n, v in fields.items()}
    whole = {**own, "fields": [*own["fields"], *struct_schema(kinds)["fields"]]}
    whole.pop("field")
    return {**whole, "name": "server.Value"}


FLAT_FIELDS = ("op", "schema", "table", "source.ts_ms", "ts_ms", "lsn", "source.snapshot")


def flattened(record: Record, fields: Sequence[str] = FLAT_FIELDS) -> Record:
    """The record as the transform writes it with ``rewrite-with-tombstone`` and these fields."""
    return Smt("rewrite-with-tombstone", fields).applied(record) or record


# ---------------------------------------------------------------------------------------------
# Debezium, MongoDB and Cassandra
# ---------------------------------------------------------------------------------------------


def mongodb_change(
    op: Any,
    document: Row,
    *,
    table: Table = ("shop", "customers"),
    topic: str = "mongodb",
    source_ts_ms: int | None = NOON_MS,
    processed_ts_ms: int | None = NOON_MS + 200,
    ord: int = 1,
    source: Row | None = None,
    extra: Row | None = None,
    key_id: Any = None,
    **kafka: Any,
) -> Record:
    """A document with its `_id`, as text; a delete has the id alone, in the message key.

    `key_id` is the id as message keys have it, where that is another form.
    """
    own = {"connector": "mongodb", "db": table[0], "collection": table[1]}
    event = {
        "op": op,
        "after": None if op == "d" else extended_json(document),
        "source": {**own, "ts_ms": source_ts_ms, "ord": ord, **(source or {})},
        "ts_ms": processed_ts_ms,
        **(extra or {}),
    }
    sent = document["_id"] if key_id is None else key_id
    key = to_json({"id": extended_json(sent)}).encode()
    return _record(to_json(event).encode(), topic=topic, key=key, **kafka)


def extended_json(value: Any) -> str:
    """MongoDB's extended JSON, in its shell's spacing; a Decimal is `$numberDecimal`."""

    def wrapped(number: Decimal) -> dict[str, str]:
        return {"$numberDecimal": str(number)}

    return json.dumps(value, default=wrapped)


def cassandra_change(
    op: Any,
    row: Row,
    *,
    key: Sequence[str] = ("id",),
    unsent: Iterable[str] = (),
    table: Table = ("shop", "customers"),
    topic: str = "cassandra",
    ts_micro: int | None = NOON_MS * 1000,
    processed_ts_ms: int | None = NOON_MS + 200,
    **kafka: Any,
) -> Record:
    """`row`: what a statement wrote, None for a cell that it deleted; it wrote none of `unsent`."""
    deleted_at = ts_micro and ts_micro // 1000 * 1000
    cells = {
        n: {"value": v, "deletion_ts": deleted_at if v is None else None, "set": True}
        for n, v in row.items()
    }
    source = {"connector": "cassandra", "cluster": "c1", "keyspace": table[0], "table": table[1]}
    event = {
        "op": op,
        "after": {**cells, **dict.fromkeys(unsent)},
        "source": {**source, "snapshot": False, "ts_micro": ts_micro},
        "ts_ms": processed_ts_ms,
    }
    message_key = to_json({name: row[name] for name in key}).encode()
    return _record(to_json(event).encode(), topic=topic, key=message_key, **kafka)


# ---------------------------------------------------------------------------------------------
# Lindorm
# ---------------------------------------------------------------------------------------------


def lindorm_change(
    op: str,
    before: Row | None,
    after: Row | None,
    *,
    table: Table = ("default", "customers"),
    db: str = "ld-test",
    topic: str = "lindorm",
    key: Any = ("id",),
    source_ts_ms: int | None = NOON_MS,
    processed_ts_ms: int | None = NOON_MS + 8,
    types: Types | None = None,
    **kafka: Any,
) -> Record:
    """The payload comes first and ``schema`` is ``{}`` unless ``types`` are given (L1)."""
    before, after = wire_row(before, types), wire_row(after, types)
    source = {"version": "v1.0", "db": db, "namespace": table[0], "table": table[1]}
    payload = {
        "op": op,
        "ts_ms": processed_ts_ms,
        "before": before,
        "after": after,
        "source": {**source, "ts_ms": source_ts_ms},
    }
    schema = {} if types is None else envelope_schema(types)
    row = after if after is not None else before
    value = to_json({"payload": payload, "schema": schema}).encode()
    return _record(value, topic=topic, key=key_bytes(key, row), **kafka)


def lindorm_created(after: Row, **options: Any) -> Record:
    return lindorm_change("c", None, after, **options)


def lindorm_updated(before: Row, after: Row, **options: Any) -> Record:
    return lindorm_change("u", before, after, **options)


def lindorm_deleted(before: Row, **options: Any) -> Record:
    return lindorm_change("d", before, None, **options)


# ---------------------------------------------------------------------------------------------
# DataWorks
# ---------------------------------------------------------------------------------------------


def dataworks_change(
    op: Any,
    before: Row | None = None,
    after: Row | None = None,
    *,
    table: Table = ("shop", "customers"),
    schema_name: str | None = None,
    db_type: str = "MySQL",
    topic: str = "dataworks",
    columns: Mapping[str, str] | None = None,
    primary_key: list[str] | None = ["id"],  # noqa: B006
    key: Any = None,
    sequence_id: str | None = "1620457642589000001",
    event_time: int | None = NOON_MS,
    system_time: int | None = NOON_MS + 900,
    ddl: Row | None = None,
    **kafka: Any,
) -> Record:
    """``columns`` are the DataWorks types; left out, they follow from the values."""
    rows = {**(before or {}), **(after or {})}
    columns = columns or {name: dataworks_type(value) for name, value in rows.items()}
    source = {"dbType": db_type, "dbName": table[0], "tableName": table[1]}
    if schema_name is not None:
        source["schemaName"] = schema_name
    timestamp = {"eventTime": event_time, "checkpointTime": event_time}
    if system_time is not None:
        timestamp["systemTime"] = system_time
    document = {
        "schema": {
            "dataColumn": [{"name": n, "type": t} for n, t in columns.items()],
            "primaryKey": primary_key,
            "source": source,
        },
        "payload": {
            "before": None if before is None else {"dataColumn": _dataworks_row(before)},
            "after": None if after is None else {"dataColumn": _dataworks_row(after)},
            "sequenceId": sequence_id,
            "timestamp": timestamp,
            "op": op,
            "ddl": ddl,
        },
        "version": "0.0.1",
    }
    row = after if after is not None else before
    message_key = key_bytes(key, row)
    return _record(to_json(document).encode(), topic=topic, key=message_key, **kafka)


def dataworks_type(value: Any) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "LONG"
    kinds: dict[type, str] = {float: "DOUBLE", Decimal: "DOUBLE", bytes: "BYTES", datetime: "DATE"}
    return kinds.get(type(value), "STRING")


def _dataworks_row(row: Row) -> dict[str, Any]:
    return {
        name: int(value.timestamp() * 1000) if isinstance(value, datetime) else value
        for name, value in row.items()
    }


def dataworks_inserted(after: Row, **options: Any) -> Record:
    return dataworks_change("INSERT", None, after, **options)


def dataworks_updated(before: Row, after: Row, **options: Any) -> Record:
    """One record with both images."""
    return dataworks_change("UPDATE_AFTER", before, after, **options)


def dataworks_update_before(before: Row, **options: Any) -> Record:
    return dataworks_change("UPDATE_BEFOR", before, None, **options)


def dataworks_update_after(after: Row, **options: Any) -> Record:
    return dataworks_change("UPDATE_AFTER", None, after, **options)


def dataworks_deleted(before: Row, **options: Any) -> Record:
    return dataworks_change("DELETE", before, None, **options)


def dataworks_truncated(**options: Any) -> Record:
    return dataworks_change("TRUNCATE", **options)


def dataworks_ddl(text: str, op: str = "ALTER", **options: Any) -> Record:
    ddl = {"text": text, "ddlMeta": "rO0ABXQAA2RkbA=="}
    return dataworks_change(op, ddl=ddl, **options)


def dataworks_heartbeat(
    event_time: int = NOON_MS, *, topic: str = "dataworks", **kafka: Any
) -> Record:
    """All members of the schema are null, and there is no systemTime (W6)."""
    times = {"eventTime": event_time, "checkpointTime": event_time}
    payload = {"before": None, "after": None, "sequenceId": None, "timestamp": times}
    document = {
        "schema": {"dataColumn": None, "primaryKey": None, "source": None},
        "payload": {**payload, "op": "MHEARTBEAT", "ddl": None},
        "version": "0.0.1",
    }
    return _record(to_json(document).encode(), topic=topic, **kafka)


# ---------------------------------------------------------------------------------------------
# Canal
# ---------------------------------------------------------------------------------------------


def canal_message(
    kind: Any,
    rows: Sequence[Any] | None = None,
    old: Sequence[Row | None] | None = None,
    *,
    table: Table = ("shop", "customers"),
    types: Mapping[str, str] | None = None,
    keys: list[str] | None = ["id"],  # noqa: B006
    topic: str = "canal",
    key: Any = None,
    es: int | None = NOON_MS,
    ts: int | None = NOON_MS + 200,
    id: int = 1,
    sql: str = "",
    is_ddl: bool = False,
    commit_ts: int | None = None,
    tidb: Mapping[str, Any] | None = None,
    **kafka: Any,
) -> Record:
    """A flat message of many rows; values are texts. ``types`` are MySQL's (`mysqlType`), ``tidb``
    what TiCDC says of the message beside its commit."""
    document = {
        **{"data": None if rows is None else [_canal_row(row) for row in rows]},
        **{"database": table[0], "es": es, "id": id, "isDdl": is_ddl, "mysqlType": types},
        **{"old": None if old is None else [_canal_row(row) for row in old], "pkNames": keys},
        **{"sql": sql, "sqlType": None, "table": table[1], "ts": ts, "type": kind},
    }
    if commit_ts is not None:
        document["_tidb"] = {"commitTs": commit_ts, **(tidb or {})}
    message_key = key_bytes(key, rows[0] if rows and isinstance(rows[0], dict) else None)
    return _record(to_json(document).encode(), topic=topic, key=message_key, **kafka)


def old_values(before: Row, row: Row) -> Row:
    """The old values of those columns of a row that changed, as Canal and Maxwell send them."""
    return {n: before[n] for n, v in row.items() if n in before and before[n] != v}


def _canal_row(row: Any) -> Any:
    if not isinstance(row, dict):
        return row
    return {name: None if value is None else str(value) for name, value in row.items()}


# ---------------------------------------------------------------------------------------------
# Maxwell
# ---------------------------------------------------------------------------------------------


def maxwell_change(
    type: Any,
    data: Row | None = None,
    old: Row | None = None,
    *,
    table: Table = ("shop", "customers"),
    topic: str = "maxwell",
    primary_key: list[str] | None = ["id"],  # noqa: B006
    key: Any = None,
    ts: int | None = NOON_MS // 1000,
    xid: int = 7125,
    position: str | None = None,
    xoffset: int | None = None,
    commit: bool = False,
    sql: str | None = None,
    **kafka: Any,
) -> Record:
    """``old`` holds the old values of changed columns alone; a delete's ``data`` is the old row."""
    optional = {"position": position, "xoffset": xoffset, "data": data, "old": old, "sql": sql}
    optional |= {"commit": commit or None, "primary_key_columns": primary_key}
    document = {"database": table[0], "table": table[1], "type": type, "ts": ts, "xid": xid}
    document |= {name: value for name, value in optional.items() if value is not None}
    if isinstance(key, tuple):
        key = maxwell_key({column: (data or {}).get(column) for column in key}, table)
    return _record(to_json(document).encode(), topic=topic, key=key_bytes(key, data), **kafka)


def maxwell_key(key: Row, table: Table = ("shop", "customers")) -> bytes:
    columns = {f"pk.{name}": value for name, value in key.items()}
    return to_json({"database": table[0], "table": table[1], **columns}).encode()


def maxwell_inserted(data: Row, **options: Any) -> Record:
    return maxwell_change("insert", data, **options)


def maxwell_updated(before: Row, data: Row, **options: Any) -> Record:
    return maxwell_change("update", data, old_values(before, data), **options)


def maxwell_deleted(before: Row, **options: Any) -> Record:
    return maxwell_change("delete", before, **options)


def maxwell_bootstrapped(data: Row, **options: Any) -> Record:
    return maxwell_change("bootstrap-insert", data, **options)


def maxwell_ddl(sql: str, type: str = "table-alter", **options: Any) -> Record:
    return maxwell_change(type, sql=sql, **{"primary_key": None, **options})


# ---------------------------------------------------------------------------------------------
# Oracle GoldenGate
# ---------------------------------------------------------------------------------------------


def ogg_change(
    op_type: Any,
    before: Row | None = None,
    after: Row | None = None,
    *,
    table: str = "SHOP.CUSTOMERS",
    topic: str = "ogg",
    primary_keys: list[str] | None = ["id"],  # noqa: B006
    key: Any = None,
    pos: Any = "00000000000000001443",
    op_ms: int | None = NOON_MS,
    current_ms: int | None = NOON_MS + 900,
    **kafka: Any,
) -> Record:
    """Images that are not there are left out."""
    document = {
        "table": table,
        "op_type": op_type,
        "op_ts": ogg_time(op_ms, " "),
        "current_ts": ogg_time(current_ms, "T"),
        "pos": pos,
        "xid": "0000000000000000001.0000000000.0000000001",
        "primary_keys": primary_keys,
        "before": before,
        "after": after,
    }
    value = {name: member for name, member in document.items() if member is not None}
    row = after if after is not None else before
    return _record(to_json(value).encode(), topic=topic, key=key_bytes(key, row), **kafka)


def ogg_time(ms: int | None, between: str) -> str | None:
    """``2026-11-04 12:00:00.000000``, in UTC."""
    if ms is None:
        return None
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=ms)
    return moment.isoformat(between, "microseconds")


def ogg_inserted(after: Row, **options: Any) -> Record:
    return ogg_change("I", None, after, **options)


def ogg_updated(before: Row | None, after: Row, **options: Any) -> Record:
    return ogg_change("U", before, after, **options)


def ogg_deleted(before: Row, **options: Any) -> Record:
    return ogg_change("D", before, **options)


def ogg_truncated(**options: Any) -> Record:
    return ogg_change("T", **options)


# ---------------------------------------------------------------------------------------------
# Logs: records that land one after the other
# ---------------------------------------------------------------------------------------------


class Landing:
    """One Kafka and its landing: days, the next offset of each partition, and a clock.

    The clock starts at noon of each day and moves on a second a record.
    """

    def __init__(self, day: date = DAY) -> None:
        self.landed: dict[date, list[Record]] = {day: []}
        self.day = day
        self.now_ms = 0
        self._offsets: dict[tuple[str | None, int | None], int] = defaultdict(int)
        self.on(day)

    def on(self, day: date) -> None:
        """What follows lands on that day."""
        self.day = day
        self.landed.setdefault(day, [])
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=timezone.utc)
        self.now_ms = int(noon.timestamp()) * 1000

    def next_day(self, days: int = 1) -> None:
        self.on(self.day + timedelta(days=days))

    def tick(self) -> int:
        self.now_ms += 1000
        return self.now_ms

    def add(self, record: Record) -> Record:
        """Land a record as it is."""
        self.landed[self.day].append(record)
        return record

    def put(self, record: Record, offset: int | None = None) -> Record:
        """Land a record at the next offset of its partition, or at the one given."""
        lane = (record.topic, record.partition)
        if offset is None:
            offset = self._offsets[lane]
        self._offsets[lane] = max(self._offsets[lane], offset + 1)
        return self.add(replace(record, offset=offset))

    def again(self, *records: Record) -> None:
        """Deliver records once more: same bytes, new offsets (O1)."""
        for record in records:
            self.put(replace(record, timestamp_ms=self.tick() + 500))


class Log:
    """A producer that writes into a landing; ``_name=`` options go to the builder."""

    def __init__(self, landing: Landing | None, **defaults: Any) -> None:
        self.landing = landing or Landing()
        self.defaults = defaults

    @property
    def landed(self) -> dict[date, list[Record]]:
        return self.landing.landed

    def on(self, day: date) -> None:
        self.landing.on(day)

    def next_day(self, days: int = 1) -> None:
        self.landing.next_day(days)

    def again(self, *records: Record) -> None:
        self.landing.again(*records)

    def _clock(self) -> dict[str, Any]:
        now = self.landing.tick()
        return {"source_ts_ms": now, "processed_ts_ms": now + 200, "timestamp_ms": now + 500}

    def _put(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        offset = options.pop("offset", None)
        return self.landing.put(build(*images, **{**self.defaults, **options}), offset)


def _split(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(row, options): options are the arguments that start with an underscore."""
    row = {name: value for name, value in arguments.items() if not name.startswith("_")}
    options = {name[1:]: value for name, value in arguments.items() if name.startswith("_")}
    return row, options


def _lane(record: Record) -> dict[str, Any]:
    return {"topic": record.topic, "partition": record.partition}


class PgLog(Log):
    """Debezium PostgreSQL events of one table; every event has the next LSN."""

    def __init__(
        self,
        server: str = "inventory",
        schema: str = "public",
        table: str = "customers",
        *,
        types: Types | None = None,
        key: Any = ("id",),
        wrap: bool = False,
        landing: Landing | None = None,
    ) -> None:
        super().__init__(landing, server=server, table=(schema, table), types=types, wrap=wrap)
        self.key = key
        self.lsn = 1000

    def _event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        self.lsn += 8
        defaults = {"lsn": self.lsn, "key": self.key, **self._clock()}
        return self._put(build, *images, **{**defaults, **options})

    def create(self, **row: Any) -> Record:
        row, options = _split(row)
        return self._event(created, row, **options)

    def update(self, **row: Any) -> Record:
        """``_before=`` for the old image."""
        row, options = _split(row)
        return self._event(updated, row, **options)

    def read(self, **row: Any) -> Record:
        row, options = _split(row)
        return self._event(read, row, **options)

    def snapshot(
        self, *rows: Row, is_first_table: bool = True, is_last_table: bool = True, **options: Any
    ) -> list[Record]:
        """A whole snapshot's reads of the table, marked as Debezium marks them (R7).

        ``_marks=`` gives each read its mark instead, ``_at=`` the snapshot's time.
        """
        _, options = _split(options)
        marks = options.pop("marks", None)
        marks = marks or snapshot_marks(len(rows), is_first_table, is_last_table)
        at = options.pop("at", self.landing.now_ms + 500)
        return [
            self._event(read, row, **{"source_ts_ms": at, **options, "snapshot": mark})
            for row, mark in zip(rows, marks, strict=True)
        ]

    def delete(self, **row: Any) -> Record:
        """The columns given are ``before``: the key alone for replica identity DEFAULT.

        ``_before=None`` with ``_key={…}`` for one that holds nothing; ``_tombstone=True`` lands
        its tombstone too.
        """
        row, options = _split(row)
        with_tombstone = options.pop("tombstone", False)
        record = self._event(deleted, options.pop("before", row), **options)
        if with_tombstone:
            self._put_tombstone(record.key, _lane(record))
        return record

    def tombstone(self, **key: Any) -> Record:
        """``_key=`` for key bytes, ``_value=`` for b"null" and the like."""
        key, options = _split(key)
        return self._put_tombstone(options.pop("key", key), options)

    def _put_tombstone(self, key: Any, options: dict[str, Any]) -> Record:
        timestamp = {"timestamp_ms": self.landing.tick() + 500}
        return self._put(tombstone, key, **{**timestamp, **options})

    def truncate(self, **options: Any) -> Record:
        return self._event(truncated, **{"key": None, **_split(options)[1]})

    def change_key(self, old: Row, **row: Any) -> tuple[Record, Record, Record]:
        """d(old key), its tombstone, c(new key), with the headers of D9 and one LSN."""
        row, options = _split(row)
        new = {column: row[column] for column in old}
        newkey = {"__debezium.newkey": key_header(new)}
        oldkey = {"__debezium.oldkey": key_header(old)}
        gone = self._event(deleted, dict(old), **{**options, "headers": newkey})
        options = {"lsn": self.lsn, **options}
        self.lsn -= 8
        buried = self._put_tombstone(gone.key, _lane(gone))
        return gone, buried, self._event(created, row, **{**options, "headers": oldkey})

    def message(self, prefix: str = "audit", content: bytes = b"hi", **options: Any) -> Record:
        return self.landing.put(message(prefix, content, **_split(options)[1]))

    def heartbeat(self) -> Record:
        return self.landing.put(heartbeat(self.landing.tick()))

    def transaction_mark(self, status: str = "BEGIN", **options: Any) -> Record:
        return self.landing.put(transaction_mark(status, **_split(options)[1]))

    def schema_change(self, ddl: str | None = None) -> Record:
        return self.landing.put(schema_change(ddl))


class FlatLog(PgLog):
    """As PgLog, flattened; ``_fields=`` says what is added to the row."""

    def _put(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        offset, fields = options.pop("offset", None), options.pop("fields", FLAT_FIELDS)
        record = build(*images, **{**self.defaults, **options})
        return self.landing.put(flattened(record, fields), offset)


class MongoLog(Log):
    """MongoDB's events of one collection; `id` is the document's `_id`."""

    def __init__(
        self, db: str = "shop", collection: str = "customers", *, landing: Landing | None = None
    ) -> None:
        super().__init__(landing, table=(db, collection), topic=f"mongodb.{collection}")

    def _event(self, op: str, row: Row, **options: Any) -> Record:
        document = {"_id" if name == "id" else name: value for name, value in row.items()}
        return self._put(mongodb_change, op, document, **{**self._clock(), **options})

    def create(self, **row: Any) -> Record:
        row, options = _split(row)
        return self._event("c", row, **options)

    def update(self, before: Row, **row: Any) -> Record:
        """An id that differs is another document's."""
        row, options = _split(row)
        return self._event("u", row, **options)

    def read(self, **row: Any) -> Record:
        row, options = _split(row)
        return self._event("r", row, **{"source": {"snapshot": "true"}, **options})

    def delete(self, **before: Any) -> Record:
        """``_tombstone=True`` lands its tombstone too."""
        row, options = _split(before)
        with_tombstone = options.pop("tombstone", False)
        record = self._event("d", row, **options)
        if with_tombstone:
            self.landing.put(replace(record, value=None, timestamp_ms=self.landing.tick() + 500))
        return record

    def heartbeat(self) -> Record:
        return self.landing.put(heartbeat(self.landing.tick()))


class CassandraLog(Log):
    """Cassandra's events of one table: the cells that a statement wrote."""

    def __init__(
        self,
        keyspace: str = "shop",
        table: str = "customers",
        *,
        key: Sequence[str] = ("id",),
        landing: Landing | None = None,
    ) -> None:
        super().__init__(landing, table=(keyspace, table), topic=f"cassandra.{table}", key=key)

    def _event(self, op: str, row: Row, **options: Any) -> Record:
        now = self.landing.tick()
        times = {"ts_micro": now * 1000, "processed_ts_ms": now + 200, "timestamp_ms": now + 500}
        return self._put(cassandra_change, op, row, **{**times, **options})

    def create(self, **row: Any) -> Record:
        row, options = _split(row)
        return self._event("i", row, **options)

    def update(self, before: Row, **row: Any) -> Record:
        """The key and what changed; a key that differs is another row's."""
        row, options = _split(row)
        written = {n: v for n, v in row.items() if n in self.defaults["key"] or before.get(n) != v}
        return self._event(
            "u", written, **{"unsent": [n for n in row if n not in written], **options}
        )

    def delete(self, **before: Any) -> Record:
        row, options = _split(before)
        key = {name: row[name] for name in self.defaults["key"]}
        return self._event("d", key, **{"unsent": [n for n in row if n not in key], **options})

    def heartbeat(self) -> Record:
        return self.landing.put(heartbeat(self.landing.tick()))


class LindormLog(Log):
    """Lindorm events of one table; ``before`` is the whole old row, given to each method."""

    def __init__(
        self,
        namespace: str = "default",
        table: str = "customers",
        *,
        types: Types | None = None,
        key: Any = ("id",),
        landing: Landing | None = None,
    ) -> None:
        super().__init__(landing, table=(namespace, table), types=types, key=key)

    def _event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        return self._put(build, *images, **{**self._clock(), **options})

    def create(self, **row: Any) -> Record:
        row, options = _split(row)
        return self._event(lindorm_created, row, **options)

    def update(self, before: Row, **row: Any) -> Record:
        row, options = _split(row)
        return self._event(lindorm_updated, before, row, **options)

    def delete(self, **before: Any) -> Record:
        row, options = _split(before)
        return self._event(lindorm_deleted, row, **options)

    def tombstone(self, **key: Any) -> Record:
        key, options = _split(key)
        defaults = {"topic": "lindorm", "timestamp_ms": self.landing.tick() + 500}
        return self.landing.put(tombstone(key, **{**defaults, **options}))


class DataWorksLog(Log):
    """DataWorks events of one table; every change has the next sequenceId."""

    def __init__(
        self,
        db: str = "shop",
        table: str = "customers",
        *,
        columns: Mapping[str, str] | None = None,
        primary_key: Iterable[str] | None = ("id",),
        landing: Landing | None = None,
        **defaults: Any,
    ) -> None:
        names = None if primary_key is None else list(primary_key)
        own = {"table": (db, table), "columns": columns, "primary_key": names}
        super().__init__(landing, **own, **defaults)
        self.sequence = 1_620_457_642_589_000_000

    def next_sequence(self) -> str:
        self.sequence += 1
        return str(self.sequence)

    def _event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        now = self.landing.tick()
        times = {"event_time": now, "system_time": now + 200, "timestamp_ms": now + 500}
        if "sequence_id" not in options:
            options["sequence_id"] = self.next_sequence()
        return self._put(build, *images, **{**times, **options})

    def insert(self, **row: Any) -> Record:
        row, options = _split(row)
        return self._event(dataworks_inserted, row, **options)

    def update(self, before: Row, **row: Any) -> Record:
        """One record with both images."""
        row, options = _split(row)
        return self._event(dataworks_updated, before, row, **options)

    def update_before(self, **before: Any) -> Record:
        row, options = _split(before)
        return self._event(dataworks_update_before, row, **options)

    def update_after(self, **after: Any) -> Record:
        row, options = _split(after)
        return self._event(dataworks_update_after, row, **options)

    def update_pair(self, before: Row, **row: Any) -> tuple[Record, Record]:
        """Two records with one sequenceId."""
        row, options = _split(row)
        options.setdefault("sequence_id", self.next_sequence())
        old = self._event(dataworks_update_before, before, **options)
        return old, self._event(dataworks_update_after, row, **options)

    def delete(self, **before: Any) -> Record:
        row, options = _split(before)
        return self._event(dataworks_deleted, row, **options)

    def truncate(self, **options: Any) -> Record:
        return self._event(dataworks_truncated, **_split(options)[1])

    def ddl(self, text: str, op: str = "ALTER", **options: Any) -> Record:
        return self._event(dataworks_ddl, text, op, **_split(options)[1])

    def heartbeat(self) -> Record:
        now = self.landing.tick()
        return self.landing.put(dataworks_heartbeat(now, timestamp_ms=now + 500))


class CanalLog(Log):
    """Canal's messages of one table."""

    def __init__(
        self,
        database: str = "shop",
        table: str = "customers",
        *,
        types: Mapping[str, str] | None = None,
        landing: Landing | None = None,
        **defaults: Any,
    ) -> None:
        super().__init__(landing, table=(database, table), types=types, **defaults)

    def says(
        self, kind: str, rows: Sequence[Row] | None, old: Any = None, **options: Any
    ) -> Record:
        """A message of any number of rows."""
        now = self.landing.tick()
        times = {"es": now, "ts": now + 200, "timestamp_ms": now + 500}
        return self._put(canal_message, kind, rows, old, **{**times, **options})

    def create(self, **row: Any) -> Record:
        row, options = _split(row)
        return self.says("INSERT", [row], **options)

    def update(self, before: Row, **row: Any) -> Record:
        row, options = _split(row)
        return self.says("UPDATE", [row], [old_values(before, row)], **options)

    def delete(self, **before: Any) -> Record:
        row, options = _split(before)
        return self.says("DELETE", [row], **options)

    def truncate(self, **options: Any) -> Record:
        own = {"types": None, "keys": None, "is_ddl": True, "sql": "TRUNCATE TABLE customers"}
        return self.says("TRUNCATE", None, **{**own, **_split(options)[1]})


class MaxwellLog(Log):
    """Maxwell's events of one table, each at a binlog position of its own."""

    def __init__(
        self,
        database: str = "shop",
        table: str = "customers",
        *,
        primary_key: Iterable[str] | None = ("id",),
        landing: Landing | None = None,
        **defaults: Any,
    ) -> None:
        names = None if primary_key is None else list(primary_key)
        own = {"table": (database, table), "primary_key": names, "key": ("id",)}
        super().__init__(landing, **{**own, **defaults})
        self.pos = 1000

    def _event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        self.pos += 8
        now = self.landing.tick()
        place = {"position": f"binlog.000006:{self.pos}", "xoffset": 0}
        times = {"ts": now // 1000, "timestamp_ms": now + 500}
        return self._put(build, *images, **{**place, **times, **options})

    def create(self, **row: Any) -> Record:
        row, options = _split(row)
        return self._event(maxwell_inserted, row, **options)

    def update(self, before: Row, **row: Any) -> Record:
        row, options = _split(row)
        return self._event(maxwell_updated, before, row, **options)

    def delete(self, **before: Any) -> Record:
        row, options = _split(before)
        return self._event(maxwell_deleted, row, **options)

    def read(self, **row: Any) -> Record:
        """A row of a bootstrap; it has no position."""
        row, options = _split(row)
        return self._event(maxwell_bootstrapped, row, **{"position": None, **options})

    def ddl(self, sql: str, type: str = "table-alter", **options: Any) -> Record:
        return self._event(maxwell_ddl, sql, type, **{"key": None, **_split(options)[1]})


class OggLog(Log):
    """GoldenGate's events of one table; every event has the next place in the trail."""

    def __init__(
        self,
        table: str = "SHOP.CUSTOMERS",
        *,
        primary_keys: Iterable[str] | None = ("id",),
        landing: Landing | None = None,
        **defaults: Any,
    ) -> None:
        names = None if primary_keys is None else list(primary_keys)
        super().__init__(landing, table=table, primary_keys=names, **defaults)
        self.pos = 1000

    def _event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        self.pos += 8
        now = self.landing.tick()
        times = {"op_ms": now, "current_ms": now + 200, "timestamp_ms": now + 500}
        return self._put(build, *images, **{"pos": f"{self.pos:020}", **times, **options})

    def create(self, **row: Any) -> Record:
        row, options = _split(row)
        return self._event(ogg_inserted, row, **options)

    def update(self, before: Row | None, **row: Any) -> Record:
        row, options = _split(row)
        return self._event(ogg_updated, before, row, **options)

    def delete(self, **before: Any) -> Record:
        row, options = _split(before)
        return self._event(ogg_deleted, row, **options)

    def truncate(self, **options: Any) -> Record:
        return self._event(ogg_truncated, **_split(options)[1])


# ---------------------------------------------------------------------------------------------
# Transactions of several statements
# ---------------------------------------------------------------------------------------------

Delivery = Callable[[int], list[Record]]  # of a change: its records, sent at that time


class TxLog(Log):
    """Transactions of several statements on one table, as a Debezium connector sends them::

        log = TxLog("oracle", table=("shop", "slots"))
        log.begin()
        log.insert({"id": 1, "v": "a"}, {"id": 2, "v": "b"})
        log.begin()
        log.hold()
        log.shift({"id": 1, "v": "a"}, {"id": 2, "v": "b"})  # id = id + 1
        log.deliver(2)  # two of its four changes
        log.next_day()
        log.redeliver(1)  # the connector starts again, one change back
        log.deliver()

    A change lands at once, or after `hold` by `deliver`; a delete lands with its tombstone.
    ``**source`` of a method are members of the event's `source`.
    """

    # What stands in an old row that has the key alone.
    made_up: Mapping[type, Any] = {str: "", int: 0}

    def __init__(
        self,
        connector: str,
        *,
        table: Table,
        key: Sequence[str] = ("id",),
        constant: Row | None = None,
        row_by_row: bool = False,
        keys_alone: bool = False,
        flat: Sequence[str] | None = None,
        partition: int = 0,
        start: int = 1,
        landing: Landing | None = None,
    ) -> None:
        """
        Args:
            constant: columns and values that every row has.
            row_by_row: keys are checked with each row: `shift` begins at the free end.
            keys_alone: `before` holds the key and made-up values (replica identity DEFAULT).
            flat: the fields that the transform adds; the records are flattened.
            partition: where changes land; may be set between statements.
            start: of the numbers of transactions and changes.
        """
        super().__init__(landing)
        self.connector, self.table, self.key = connector, table, tuple(key)
        self.constant, self.row_by_row, self.keys_alone = (
            dict(constant or {}),
            row_by_row,
            keys_alone,
        )
        self.flat, self.partition, self.spread = flat, partition, False
        self.headers = connector != "sqlserver"  # of a key change
        self.tx, self.change, self.order, self.row = start, start, 0, 0
        self.began_ms, self.known_by_id, self.ahead_ms = 0, False, 0
        self.sent: list[Delivery] = []
        self.records: list[Record] = []  # of all first deliveries, as they landed
        self.held: list[Delivery] = []
        self.holding = False

    # -- transactions and statements

    def begin(self, *, earlier_ms: int = 0, known_by_id: bool = False) -> None:
        """`earlier_ms`: how far its clock is behind; `known_by_id`: by `transaction.id` alone."""
        self.tx, self.order, self.known_by_id = self.tx + 1, 0, known_by_id
        self.began_ms = self.landing.tick() - earlier_ms

    def insert(self, *rows: Row, **source: Any) -> None:
        self._statement()
        for row in rows:
            self._next_row()
            self._inserted(self._whole(row), source)

    def update(self, old: Row, new: Row, **source: Any) -> None:
        """One update with both images, also of the key (D10)."""
        self._statement()
        self._next_row()
        self._updated(self._whole(old), self._whole(new), source)

    def delete(self, *rows: Row, **source: Any) -> None:
        self._statement()
        for row in rows:
            self._next_row()
            self._deleted(self._whole(row), source)

    def move(self, old: Row, new: Row, **source: Any) -> None:
        """An update of the key, as the connector tells it."""
        self._statement()
        self._next_row()
        self._moved(self._whole(old), self._whole(new), source)

    def shift(self, *rows: Row, by: int = 1, unsent: Sequence[str] = ()) -> None:
        """``id = id + by`` in one statement.

        Rows go in the order in which each meets the row of its new key still there, or, where keys
        are checked row by row, in the other one. Values of `unsent` are not sent.
        """
        self._statement()
        is_upwards = (by > 0) != self.row_by_row
        for row in sorted(rows, key=lambda row: int(row["id"]), reverse=not is_upwards):
            self._next_row()
            old, new = self._whole(row), self._whole({**row, "id": row["id"] + by})
            placeholders = dict.fromkeys(unsent, TOAST)
            # Oracle's old rows lack what its new ones lack; PostgreSQL's are whole.
            shown = {**old, **placeholders} if self.connector == "oracle" else old
            self._moved(shown, {**new, **placeholders}, {})

    def read(self, *rows: Row) -> None:
        """An incremental snapshot's reads; they have no position."""
        nowhere = dict.fromkeys(
            ("lsn", "txId", "commit_lsn", "change_lsn", "scn", "commit_scn", "rs_id")
        )
        for row in rows:
            source = {"file": "", "pos": 0, **nowhere, "snapshot": "incremental"}
            self._send("r", None, self._whole(row), source=source)

    def truncate(self) -> None:
        self._next_row()
        self._send("t", None, None)

    # -- delivery

    def hold(self) -> None:
        """What follows is not sent before `deliver`."""
        self.holding = True

    def deliver(self, count: int | None = None) -> None:
        """Send the next `count` changes held; without a count all, and all that follow at once."""
        if count is None:
            self.holding = False
        for delivery in self.held[:count]:
            self.records += self._land(delivery)
            self.sent.append(delivery)
        self.held = [] if count is None else self.held[count:]

    def lose(self) -> None:
        """The next change held is never sent."""
        del self.held[0]

    def redeliver(self, back: int, count: int | None = None) -> None:
        """Send changes again, from `back` ago on: `count` of them, or all."""
        again = self.sent[len(self.sent) - back :]
        for delivery in again[:count]:
            self._land(delivery)

    def land_twice(self) -> None:
        """All that was delivered lands once more, at its offsets: a file is there twice."""
        for record in self.records:
            self.landing.add(record)

    def _land(self, delivery: Delivery) -> list[Record]:
        return [self.landing.put(record) for record in delivery(self.landing.tick())]

    def _queue(self, delivery: Delivery) -> None:
        self.held.append(delivery)
        if not self.holding:
            self.deliver()

    # -- what an event is

    def _statement(self) -> None:
        self.row = -1

    def _next_row(self) -> None:
        """The change of a row; the two events of a key change share its number."""
        self.row, self.change = self.row + 1, self.change + 1

    def _whole(self, row: Row) -> dict[str, Any]:
        return {**self.constant, **row}

    def _partition_of(self, row: Row | None) -> int:
        return self.partition + (int(row["id"]) % 8 if self.spread and row else 0)

    def _inserted(self, row: Row, source: Row) -> None:
        self._send("c", None, row, source=source)

    def _updated(self, old: Row, new: Row, source: Row) -> None:
        self._send("u", None if self.keys_alone else old, new, source=source)

    def _deleted(self, row: Row, source: Row, headers: Row | None = None) -> None:
        if self.keys_alone:
            row = {n: v if n in self.key else self.made_up.get(type(v)) for n, v in row.items()}
        self._send("d", row, None, source=source, headers=headers)

    def _moved(self, old: Row, new: Row, source: Row) -> None:
        keys = [{name: row[name] for name in self.key} for row in (old, new)]
        newkey, oldkey = (
            (key_header(keys[1]), key_header(keys[0])) if self.headers else (None, None)
        )
        self._deleted(old, source, {"__debezium.newkey": newkey} if newkey else None)
        headers = {"__debezium.oldkey": oldkey} if oldkey else None
        self._send("c", None, new, source=source, headers=headers)

    def _source(self, op: str) -> dict[str, Any]:
        """What orders and identifies an event: lower parts contradict the stream's order."""
        tx, number = self.tx, self.change
        if self.connector == "oracle":
            rs_id = f"0x{97 * number % 61:06x}.{number:08x}.0010"
            return oracle_source(100 * tx, 100 * tx - 50, tx=f"{tx:016x}", rs_id=rs_id)
        if self.connector == "sqlserver":
            change = f"0000002a:{5 * number % 7:08x}:{number:04x}"
            return sqlserver_source(f"0000002a:{tx:08x}:0005", change, 2 if op == "u" else 1)
        if self.connector == "db2":
            change = f"00000000:{5 * number % 7:08x}:{number:08x}"
            return db2_source(f"00000000:00000000:{tx:08x}", change)
        if self.connector == "informix":
            return informix_source(tx * 4096, 5 * number % 7 * 10**9 + number, tx)
        if self.connector == "mysql":  # of a compressed transaction
            own = mysql_source(*self.table, pos=157 + 1000 * tx, row=self.row)
            return {**own, "txId": None, "gtid": f"5a2c1f9e-11ee-4b0a-9a5d-0242ac120002:{tx}"}
        return {"connector": self.connector, "lsn": 8 * number, "txId": tx}

    def _send(
        self,
        op: str,
        before: Row | None,
        after: Row | None,
        *,
        source: Row | None = None,
        headers: Row | None = None,
    ) -> None:
        members, transaction = {**self._source(op), **(source or {})}, None
        if self.known_by_id and op != "r":
            self.order += 1
            shown = f"{self.tx}:{8 * self.change}" if self.connector == "postgresql" else self.tx
            transaction = {"id": str(shown), "total_order": self.order}
            members["txId"] = None
        row = after if after is not None else before
        options: dict[str, Any] = {
            "table": self.table,
            "server": self.connector,
            "topic": f"{self.connector}.{'.'.join(self.table)}",
            "partition": self._partition_of(row),
        }
        event = {
            **options,
            "key": None if row is None else self.key,
            "source": members,
            "source_ts_ms": self.began_ms,
            "transaction": transaction,
            "headers": headers,
            "snapshot": members.get("snapshot", "false"),
        }
        ahead_ms = self.ahead_ms

        def delivery(now: int) -> list[Record]:
            at = {"processed_ts_ms": now + 200, "timestamp_ms": now + 500 + ahead_ms}
            record = change(op, before, after, **event, **at)
            records = [record]
            if op == "d":
                lane = {**options, "timestamp_ms": now + 500 + ahead_ms}
                records.append(tombstone(record.key, **lane))
            if self.flat is not None:
                records = [flattened(record, self.flat) for record in records]
            return records

        self._queue(delivery)


class CanalTxLog(TxLog):
    """As Canal sends them: an insert is one message, a key change an update; `es` is in seconds."""

    types: Mapping[str, str] = {"id": "int(11)"}  # all others: varchar(40)

    def insert(self, *rows: Row, **source: Any) -> None:
        if self.spread:
            return super().insert(*rows, **source)
        whole = [self._whole(row) for row in rows]
        return self._says("INSERT", whole, None)

    def _inserted(self, row: Row, source: Row) -> None:
        self._says("INSERT", [row], None)

    def _updated(self, old: Row, new: Row, source: Row) -> None:
        self._says("UPDATE", [new], [old_values(old, new)])

    def _deleted(self, row: Row, source: Row, headers: Row | None = None) -> None:
        self._says("DELETE", [row], None)

    def _moved(self, old: Row, new: Row, source: Row) -> None:
        self._updated(old, new, source)

    def truncate(self) -> None:
        self._says("TRUNCATE", None, None)

    def _says(self, kind: str, rows: Sequence[Row] | None, old: Sequence[Row] | None) -> None:
        row = rows[0] if rows else None
        ddl = {"keys": None, "is_ddl": True, "sql": f"TRUNCATE TABLE {self.table[1]}"}
        own = {"keys": list(self.key)} if row is not None else ddl
        options: dict[str, Any] = {
            "table": self.table,
            "topic": f"canal.{self.table[1]}",
            "partition": self._partition_of(row),
            "types": row and {name: self.types.get(name, "varchar(40)") for name in row},
            "es": self.began_ms // 1000 * 1000,
            **own,
        }
        ahead_ms = self.ahead_ms

        def delivery(now: int) -> list[Record]:
            at = {"ts": now + 200, "timestamp_ms": now + 500 + ahead_ms}
            return [canal_message(kind, rows, old, **options, **at)]

        self._queue(delivery)


class MaxwellTxLog(TxLog):
    """As Maxwell sends them; `has_position` is its option `output_binlog_position`."""

    def __init__(self, *, has_position: bool = True, **options: Any) -> None:
        super().__init__("maxwell", **options)
        self.has_position, self.xoffset = has_position, -1

    def begin(self, **options: Any) -> None:
        super().begin(**options)
        self.xoffset = -1

    def _next_row(self) -> None:
        super()._next_row()
        self.xoffset += 1

    def _inserted(self, row: Row, source: Row) -> None:
        self._says("insert", row, None)

    def _updated(self, old: Row, new: Row, source: Row) -> None:
        self._says("update", new, old_values(old, new))

    def _deleted(self, row: Row, source: Row, headers: Row | None = None) -> None:
        self._says("delete", row, None)

    def _moved(self, old: Row, new: Row, source: Row) -> None:
        self._updated(old, new, source)

    def read(self, *rows: Row) -> None:
        """Rows of a bootstrap."""
        for row in rows:
            self._says("bootstrap-insert", self._whole(row), None)

    def _says(self, kind: str, row: Row, old: Row | None) -> None:
        options: dict[str, Any] = {
            "table": self.table,
            "topic": f"maxwell.{self.table[1]}",
            "partition": self._partition_of(row),
            "key": self.key,
            "primary_key": list(self.key),
            "ts": self.began_ms // 1000,
            "xid": self.tx,
        }
        if kind != "bootstrap-insert":
            options["xoffset"] = self.xoffset
            if self.has_position:  # of the transaction: xoffset tells its rows apart
                options["position"] = f"binlog.000006:{157 + 1000 * self.tx}"
        ahead_ms = self.ahead_ms

        def delivery(now: int) -> list[Record]:
            return [maxwell_change(kind, row, old, **options, timestamp_ms=now + 500 + ahead_ms)]

        self._queue(delivery)


# ---------------------------------------------------------------------------------------------
# Landed files
# ---------------------------------------------------------------------------------------------


def kcat_line(record: Record) -> str:
    """The record as ``kcat -J`` prints it; base64 where bytes are not UTF-8."""
    if record.malformed_line:
        return _utf8(record.value or b"")
    line: dict[str, Any] = {"topic": record.topic, "partition": record.partition}
    line |= {"offset": record.offset, "tstype": "create", "ts": record.timestamp_ms, "broker": 1}
    if record.headers:
        try:
            flat = [(name, None if v is None else _utf8(v)) for name, v in record.headers]
            line["headers"] = [part for pair in flat for part in pair]
        except UnicodeDecodeError:  # kcat has no form for other bytes
            line["headers"] = [
                {"key": name, **_text_or_base64("value", "value", v)} for name, v in record.headers
            ]
    line |= _text_or_base64("key", "key", record.key)
    line |= _text_or_base64("payload", "value", record.value)
    return json.dumps(line, ensure_ascii=False)


def spark_line(record: Record) -> str:
    """The record with the names of Spark's Kafka source, ``timestamp`` as ISO text."""
    if record.malformed_line:
        return _utf8(record.value or b"")
    line: dict[str, Any] = {"topic": record.topic, "partition": record.partition}
    line |= {"offset": record.offset, "timestamp": _iso_ms(record.timestamp_ms)}
    line |= _text_or_base64("key", "key", record.key)
    line |= _text_or_base64("value", "value", record.value)
    headers = [(name, None if v is None else _utf8(v)) for name, v in record.headers]
    line["headers"] = [{"key": name, "value": value} for name, value in headers]
    return json.dumps(line, ensure_ascii=False)


def _text_or_base64(text_name: str, base64_name: str, data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {text_name: None}
    try:
        return {text_name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{base64_name}_base64": base64.b64encode(data).decode()}


def _utf8(data: bytes) -> str:
    """Headers have no base64 form in landed lines: other bytes are an error of the test."""
    return data.decode("utf-8")


def _iso_ms(timestamp_ms: int | None) -> str | None:
    if timestamp_ms is None:
        return None
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(timespec="milliseconds") + "Z"


def write_landing(
    folder: Path | str,
    landed: Mapping[date, Iterable[Record]],
    line: Callable[[Record], str] = kcat_line,
) -> None:
    """Write ``<folder>/<YYYY-MM-DD>/part-0.jsonl``, a record a line."""
    for day, records in landed.items():
        path = Path(folder) / day.isoformat() / "part-0.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(line(record) + "\n" for record in records)
        path.write_bytes(text.encode("utf-8"))
