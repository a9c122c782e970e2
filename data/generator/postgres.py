"""A PostgreSQL database with a Debezium connector in front of Kafka."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from .avro import Registry
from .kafka import Json, Kafka, compact
from .wire import UNAVAILABLE

Row = dict[str, Any]
Key = tuple[Any, ...]

# A stand-in for the 2 kB of the real TOAST threshold: it keeps the sample small.
TOAST_THRESHOLD = 200
MADE_UP = {"string": "", "boolean": False, "bytes": ""}


@dataclass(frozen=True)
class Column:
    """A column as the schema of a message describes it."""

    name: str
    type: str
    semantic: str | None = None
    required: bool = False
    parameters: tuple[tuple[str, str], ...] = ()

    def field_schema(self) -> Json:
        schema: dict[str, Json] = {"type": self.type, "optional": not self.required}
        if self.semantic:
            schema |= {"name": self.semantic, "version": 1}
        if self.parameters:
            schema["parameters"] = dict(self.parameters)
        return schema | {"field": self.name}


def decimal_column(name: str, precision: int, scale: int) -> Column:
    """A column of Kafka Connect's Decimal."""
    parameters = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
    return Column(name, "bytes", "org.apache.kafka.connect.data.Decimal", parameters=parameters)


@dataclass
class Table:
    """A table's definition and its committed rows."""

    name: str
    columns: list[Column]
    key: tuple[str, ...] = ()
    full_identity: bool = False
    topic: str = ""
    schema: str = "public"
    rows: dict[Key, Row] = field(default_factory=dict)
    _ordinals: Iterator[int] = field(default_factory=count)

    def key_of(self, row: Row) -> Key:
        """The primary key; a row of a table without one is known by its ordinal."""
        return tuple(row[c] for c in self.key) if self.key else (next(self._ordinals),)

    def key_document(self, key: Key) -> Row | None:
        return dict(zip(self.key, key, strict=True)) if self.key else None

    def old_image(self, row: Row) -> Row:
        """What a delete's `before` holds: all, or the key and made-up values (D8)."""
        if self.full_identity:
            return row
        return {
            c.name: row[c.name]
            if c.name in self.key
            else (MADE_UP.get(c.type, 0) if c.required else None)
            for c in self.columns
        }


@dataclass(frozen=True)
class Change:
    """An event of the replication stream; a redelivery is the same Change sent again."""

    op: str
    table: Table | None
    key: Key | None
    before: Row | None
    after: Row | None
    lsn: int | None
    tx_id: int | None
    order: int = 0
    sequence: str | None = None
    commit_ms: int = 0
    snapshot: str | bool = "false"
    new_key: Key | None = None
    old_key: Key | None = None
    message: Row | None = None


class Transaction:
    """Writes that become visible, and reach the stream, when they are committed."""

    def __init__(self, db: Postgres) -> None:
        self.db = db
        self.id = db.next_tx_id()
        self.changes: list[Change] = []
        self._pending: dict[tuple[str, Key], Row | None] = {}

    def row(self, table: Table, *key: Any) -> Row:
        row = self._pending.get((table.name, key), table.rows.get(key))
        if row is None:
            raise LookupError(f"{table.name} has no row {key}")
        return row

    def insert(self, table: Table, row: Row) -> None:
        self._write("c", table, table.key_of(row), None, row)

    def update(self, table: Table, key: Key, new: Row) -> None:
        old = self.row(table, *key)
        row = old | new
        before = old if table.full_identity else None
        self._write("u", table, key, before, row, self._sent_image(table, old, row))

    def delete(self, table: Table, key: Key, **more: Any) -> None:
        old = self.row(table, *key)
        self._write("d", table, key, table.old_image(old), None, **more)

    def rekey(self, table: Table, key: Key, new: Row) -> None:
        """A primary-key change: d and c that share one LSN and name each other (D9)."""
        old = self.row(table, *key)
        row = old | new
        new_key = table.key_of(row)
        with self.db.one_lsn():
            self.delete(table, key, new_key=new_key)
            sent = self._sent_image(table, old, row)
            self._write("c", table, new_key, None, row, sent, old_key=key)

    def truncate(self, table: Table) -> None:
        self._add("t", table, None, None, None)

    def message(self, prefix: str, content: str) -> None:
        self._add("m", None, None, None, None, message={"prefix": prefix, "content": content})

    def apply(self) -> None:
        """Makes the writes visible to other transactions."""
        for change in self.changes:
            if change.op == "t" and change.table:
                change.table.rows.clear()
        tables = {c.table.name: c.table for c in self.changes if c.table}
        for (name, key), row in self._pending.items():
            if row is None:
                tables[name].rows.pop(key, None)
            else:
                tables[name].rows[key] = row

    def _sent_image(self, table: Table, old: Row, new: Row) -> Row:
        """The row as the log has it: without out-of-line values that are unchanged (R2)."""
        return {
            name: UNAVAILABLE
            if isinstance(value, str) and len(value) > TOAST_THRESHOLD and value == old.get(name)
            else value
            for name, value in new.items()
        }

    def _write(
        self,
        op: str,
        table: Table,
        key: Key,
        before: Row | None,
        row: Row | None,
        sent: Row | None = None,
        **more: Any,
    ) -> None:
        self._pending[table.name, key] = row
        self._add(op, table, key if table.key else None, before, sent or row, **more)

    def _add(
        self,
        op: str,
        table: Table | None,
        key: Key | None,
        before: Row | None,
        after: Row | None,
        **more: Any,
    ) -> None:
        lsn = self.db.advance()
        self.changes.append(Change(op, table, key, before, after, lsn, self.id, **more))


class Postgres:
    """The write-ahead log's numbers and the connector that turns commits into records."""

    def __init__(
        self,
        kafka: Kafka,
        rng: random.Random,
        server: str,
        first_lsn: int,
        database: str = "warehouse",
        registry: Registry | None = None,
    ) -> None:
        """With a `registry` the converter writes Avro, and there are no transaction marks."""
        self.kafka, self.rng, self.server = kafka, rng, server
        self.database, self.registry = database, registry
        self.has_marks = registry is None
        self.version = "2.5.4.Final"
        self.extra_fields = False
        # How the converters write: with_schema, payload_first, null_schema or bare.
        self.style = "with_schema"
        self.key_header_form = "with_schema"
        self.stalled_until = 0
        self._lsn = self._last_commit = first_lsn
        # 32 bits wide: it wraps within the sample (O7).
        self._tx_id = 2**32 - 190
        self._shared_lsn: int | None = None
        self._processed = 0
        self._schemas: dict[Any, Json] = {}

    # -- the log

    def next_tx_id(self) -> int:
        self._tx_id += 1
        if self._tx_id >= 2**32:
            self._tx_id = 3
        return self._tx_id

    def advance(self) -> int:
        if self._shared_lsn is None:
            self._lsn += self.rng.randrange(56, 900, 8)
        return self._lsn

    @contextmanager
    def one_lsn(self) -> Iterator[None]:
        """Everything written inside shares one LSN, as COPY and multi-row inserts do (O4)."""
        self._shared_lsn = self.advance()
        yield
        self._shared_lsn = None

    def begin(self) -> Transaction:
        return Transaction(self)

    def commit(self, tx: Transaction, at: int, deliver: bool = True) -> list[Change]:
        """Commits, and sends the events unless the caller wants to hold them back."""
        tx.apply()
        commit_lsn = self.advance()
        changes = [
            replace(
                c,
                order=n * self.has_marks,
                commit_ms=at,
                sequence=compact([str(self._last_commit), str(c.lsn)]),
            )
            for n, c in enumerate(tx.changes, start=1)
        ]
        self._last_commit = commit_lsn
        if deliver:
            self._send_mark("BEGIN", tx.id, commit_lsn, at, None)
            for change in changes:
                self.send(change)
            self._send_mark("END", tx.id, commit_lsn, at, changes)
        return changes

    def snapshot(self, tables: Sequence[Table], at: int, tx_id: int, lsn: int) -> None:
        """The initial snapshot: every row as `r`, marked first … last (D14)."""
        last_table = len(tables) - 1
        for n, table in enumerate(tables):
            rows = list(table.rows.items())
            for m, (key, row) in enumerate(rows):
                mark = "true"
                if m == 0:
                    mark = "first" if n == 0 else "first_in_data_collection"
                elif m == len(rows) - 1:
                    mark = "last" if n == last_table else "last_in_data_collection"
                self.send(self.read(table, key, row, at, mark, tx_id, lsn))

    def read(
        self,
        table: Table,
        key: Key,
        row: Row,
        at: int,
        mark: str | bool,
        tx_id: int | None = None,
        lsn: int | None = None,
    ) -> Change:
        """A snapshot read; an incremental one has neither LSN nor transaction (O6)."""
        sequence = compact([None, str(lsn) if lsn else None])
        image = (None, row, lsn, tx_id)
        key_sent = key if table.key else None
        return Change("r", table, key_sent, *image, sequence=sequence, commit_ms=at, snapshot=mark)

    @property
    def lsn(self) -> int:
        return self._lsn

    # -- the connector

    def send(self, change: Change, at: int = 0, tombstone: bool = True) -> None:
        """Sends an event, and after a delete its tombstone; `at` if later than its commit."""
        processed = self._process(max(change.commit_ms, at))
        payload = self.payload(change, processed)
        if change.table is None:
            topic, name = f"{self.server}.message", "io.debezium.connector.common.Message"
            key = self.wrap(_MESSAGE_KEY, {"prefix": (change.message or {}).get("prefix")})
            value = self.wrap(self._message_schema(name), payload)
        else:
            topic = self.topic(change.table)
            key = self.key(change.table, change.key)
            value = self.wrap(self.value_schema(change.table), payload)
        ts = self._kafka_ts(processed)
        self.kafka.produce(topic, key, value, ts, self._headers(change))
        if change.op == "d" and tombstone:
            self.send_tombstone(change)

    def send_tombstone(self, change: Change, value: str | None = None, at: int = 0) -> None:
        """The record for log compaction: the key of a delete without a value (D11)."""
        assert change.table
        ts = at or self._kafka_ts(self._processed)
        self.kafka.produce(self.topic(change.table), self.key(change.table, change.key), value, ts)

    def heartbeat(self, at: int) -> None:
        """A sign of life, on a topic of its own (D16)."""
        key = _heartbeat_schema("ServerNameKey", "serverName", "string")
        value = _heartbeat_schema("Heartbeat", "ts_ms", "int64")
        self.kafka.produce(
            f"__debezium-heartbeat.{self.server}",
            self.wrap(key, {"serverName": self.server}),
            self.wrap(value, {"ts_ms": at}),
            at + 6,
        )

    def topic(self, table: Table) -> str:
        return table.topic or f"{self.server}.{table.schema}.{table.name}"

    def key(self, table: Table, key: Key | None) -> Json:
        document = table.key_document(key) if key is not None else None
        return None if document is None else self.wrap(self._key_schema(table), document)

    def wrap(self, schema: Json, payload: Json) -> Json:
        """The document as the configured converter writes it (D1, D2)."""
        if self.registry:
            return self.registry.framed(schema, payload)
        if self.style == "bare":
            return payload
        if self.style == "null_schema":
            return {"schema": None, "payload": payload}
        if self.style == "payload_first":
            return {"payload": payload, "schema": schema}
        return {"schema": schema, "payload": payload}

    def payload(self, change: Change, processed: int) -> Row:
        """The envelope's payload."""
        table = change.table
        source = {
            "version": self.version,
            "connector": "postgresql",
            "name": self.server,
            "ts_ms": change.commit_ms,
            "snapshot": change.snapshot,
            "db": self.database,
            "sequence": change.sequence,
            "schema": table.schema if table else "",
            "table": table.name if table else "",
            "txId": change.tx_id,
            "lsn": change.lsn,
            "xmin": None,
        }
        payload: Row = {"before": change.before, "after": change.after, "source": source}
        if change.message:
            payload = {"source": source}
        transaction = self._transaction_block(change)
        payload |= {"op": change.op, "ts_ms": processed, "transaction": transaction}
        if self.extra_fields:
            source |= _finer_times(change.commit_ms)
            payload |= _finer_times(processed)
        if change.message:
            payload["message"] = change.message
        return payload

    def value_schema(self, table: Table) -> Json:
        """The envelope schema of a table, for the columns it has now."""
        cache = (table.name, tuple(table.columns), self.extra_fields)
        if cache not in self._schemas:
            columns = [c.field_schema() for c in table.columns]
            name = f"{self.server}.{table.schema}.{table.name}"
            image = {"type": "struct", "fields": columns, "optional": True, "name": f"{name}.Value"}
            fields = [image | {"field": "before"}, image | {"field": "after"}]
            self._schemas[cache] = self._envelope(f"{name}.Envelope", fields)
        return self._schemas[cache]

    def _envelope(self, name: str, images: list[Json], more: Sequence[Json] = ()) -> Json:
        finer = ("ts_us", "ts_ns") if self.extra_fields else ()
        fields = [
            *images,
            _source_schema(finer),
            _field("op", "string"),
            _field("ts_ms", "int64", 1),
        ]
        fields += [_field(name, "int64", 1) for name in finer]
        fields += [_TRANSACTION_BLOCK, *more]
        return {"type": "struct", "fields": fields, "optional": False, "name": name, "version": 1}

    def _message_schema(self, name: str) -> Json:
        content = [_field("prefix", "string", 1), _field("content", "bytes", 1)]
        message = {"type": "struct", "fields": content, "optional": False, "field": "message"}
        return self._envelope(name + "Value", [], [message])

    def _key_schema(self, table: Table) -> Json:
        columns = {c.name: c for c in table.columns}
        fields = [replace(columns[c], required=True).field_schema() for c in table.key]
        name = f"{self.server}.{table.schema}.{table.name}.Key"
        return {"type": "struct", "fields": fields, "optional": False, "name": name}

    def _headers(self, change: Change) -> tuple[tuple[str, bytes], ...]:
        named = (("__debezium.newkey", change.new_key), ("__debezium.oldkey", change.old_key))
        return tuple((name, self._key_header(change, key)) for name, key in named if key)

    def _key_header(self, change: Change, key: Key) -> bytes:
        assert change.table
        document = change.table.key_document(key) or {}
        if self.key_header_form == "struct":
            return ("Struct{" + ",".join(f"{k}={v}" for k, v in document.items()) + "}").encode()
        if self.key_header_form == "with_schema":
            document = {"schema": self._key_schema(change.table), "payload": document}
        return compact(document).encode()

    def _transaction_block(self, change: Change) -> Json:
        if not change.order:
            return None
        # The id holds the event's own LSN, so it differs within one transaction (O7).
        identity = f"{change.tx_id}:{change.lsn}"
        return {"id": identity, "total_order": change.order, "data_collection_order": change.order}

    def _send_mark(
        self, status: str, tx_id: int, lsn: int, at: int, changes: list[Change] | None
    ) -> None:
        """A BEGIN or END on the transaction topic (D16)."""
        if not self.has_marks:
            return
        identity = f"{tx_id}:{lsn}"
        collections: Json = None
        if changes is not None:
            names = [f"{c.table.schema}.{c.table.name}" for c in changes if c.table]
            collections = [
                {"data_collection": name, "event_count": names.count(name)}
                for name in dict.fromkeys(names)
            ]
        payload = {
            "status": status,
            "id": identity,
            "event_count": len(changes) if changes is not None else None,
            "data_collections": collections,
            "ts_ms": at,
        }
        ts = self._kafka_ts(self._process(at))
        topic, key = f"{self.server}.transaction", self.wrap(_MARK_KEY, {"id": identity})
        self.kafka.produce(topic, key, self.wrap(_MARK_VALUE, payload), ts)

    def _process(self, commit_ms: int) -> int:
        """When the connector met a commit: soon after it, never before what it met last."""
        lag = min(25 + int(self.rng.expovariate(1 / 260)), 6_000)
        self._processed = max(self._processed, commit_ms + lag, self.stalled_until)
        return self._processed

    def _kafka_ts(self, processed: int) -> int:
        return processed + self.rng.randrange(2, 45)


def _field(name: str, type_: str, optional: int = 0) -> Json:
    return {"type": type_, "optional": bool(optional), "field": name}


def _heartbeat_schema(name: str, field_name: str, type_: str) -> Json:
    return {
        "type": "struct",
        "fields": [_field(field_name, type_)],
        "optional": False,
        "name": f"io.debezium.connector.common.{name}",
    }


def _finer_times(ms: int) -> Row:
    return {"ts_us": ms * 1_000, "ts_ns": ms * 1_000_000}


def _source_schema(more_times: Sequence[str]) -> Json:
    snapshot = {
        "type": "string",
        "optional": True,
        "name": "io.debezium.data.Enum",
        "version": 1,
        "parameters": {"allowed": "true,last,false,incremental"},
        "default": "false",
        "field": "snapshot",
    }
    fields = [_field(name, "string") for name in ("version", "connector", "name")]
    fields += [_field("ts_ms", "int64"), snapshot, _field("db", "string")]
    fields += [
        _field("sequence", "string", 1),
        _field("schema", "string"),
        _field("table", "string"),
    ]
    fields += [_field(name, "int64", 1) for name in ("txId", "lsn", "xmin", *more_times)]
    return {
        "type": "struct",
        "fields": fields,
        "optional": False,
        "name": "io.debezium.connector.postgresql.Source",
        "field": "source",
    }


_TRANSACTION_BLOCK = {
    "type": "struct",
    "fields": [
        _field("id", "string"),
        _field("total_order", "int64"),
        _field("data_collection_order", "int64"),
    ],
    "optional": True,
    "name": "event.block",
    "version": 1,
    "field": "transaction",
}
_MESSAGE_KEY = {
    "type": "struct",
    "fields": [_field("prefix", "string", 1)],
    "optional": False,
    "name": "io.debezium.connector.common.MessageKey",
}
_MARK_KEY = {
    "type": "struct",
    "fields": [_field("id", "string")],
    "optional": False,
    "name": "io.debezium.connector.common.TransactionMetadataKey",
}
_MARK_VALUE = {
    "type": "struct",
    "fields": [
        _field("status", "string"),
        _field("id", "string"),
        _field("event_count", "int64", 1),
        {
            "type": "array",
            "items": {
                "type": "struct",
                "fields": [_field("data_collection", "string"), _field("event_count", "int64")],
                "optional": False,
                "name": "event.collection",
                "version": 1,
            },
            "optional": True,
            "field": "data_collections",
        },
        _field("ts_ms", "int64"),
    ],
    "optional": False,
    "name": "io.debezium.connector.common.TransactionMetadataValue",
}
