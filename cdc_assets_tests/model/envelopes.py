"""What each record says, and where it goes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

from cdc_assets_tests.model.documents import (
    LEAF,
    MONGODB_NUMBERS,
    YEAR_9999,
    NotJsonError,
    dict_of,
    double_text,
    finite_json,
    full_name,
    goes_into,
    has_databases,
    instant_ms,
    int_of,
    is_of_cells,
    is_wide,
    json_text,
    long_of,
    mongodb_id,
    mongodb_text,
    name_of,
    of_database,
    parse_json,
    table_configs,
    unavailable_value,
)
from cdc_assets_tests.model.epochs import set_epochs
from cdc_assets_tests.model.keys import judge_keys, set_keys
from cdc_assets_tests.model.positions import (
    KAFKA_TIME,
    SOURCE_TIME,
    identity_of,
    set_elements,
    set_positions,
    set_source,
)
from cdc_assets_tests.model.records import (
    ControlledError,
    Event,
    Landed,
    QuarantinedError,
    Record,
    Wire,
)
from cdc_assets_tests.model.statements import statement_of
from cdc_assets_tests.model.streams import number_runs, settle_tombstones
from cdc_assets_tests.model.values import (
    DATAWORKS_WIRES,
    Placeholder,
    has_open_labels,
    mysql_wire,
    schema_fields,
    wire_type,
)


def read_events(
    source: dict[str, Any],
    landed: Landed,
    misfits: frozenset[tuple[date, int]] = frozenset(),
) -> list[tuple[date, list[Event]]]:
    """All records of all days, classified.

    `misfits` (day, number in the day) have keys that are not their table's, so that they say
    nothing of its types; they are found by reading everything once.
    """
    configs = table_configs(source)
    placeholder = Placeholder(unavailable_value(source))
    days: list[tuple[date, list[Event]]] = []
    for day in sorted(landed):
        records = [_as_landed(record) for record in landed[day]]
        events = [event for r in records for event in _read_rows(source, r, day)]
        for event in events:
            _put_into(source, event)
        days.append((day, events))
    written = {id(e): dict(e.wires) for _, events in days for e in events}
    for has_schema in (True, False):
        for _, events in days:
            for event in events:
                is_row = event.destination == "changes" and not event.is_tombstone
                if is_row and bool(written[id(event)]) is has_schema:
                    set_keys(source, configs, placeholder, event)
        if has_schema:
            silent = {id(e[n]) for day, e in days for n in range(len(e)) if (day, n) in misfits}
            _lend_schemas([events for _, events in days], written, silent)
    _check_columns(source, days)
    settle_tombstones(source, configs, placeholder, days)
    set_positions(days)
    found = judge_keys(configs, days)
    if found and not misfits:
        return read_events(source, landed, found)
    _settle_labels(days)
    number_runs([event for _, events in days for event in events])
    set_epochs(source, days)
    return days


def _put_into(source: dict[str, Any], event: Event) -> None:
    """R8: an event of a leaf is one of the table that it goes into; its rows say the leaf."""
    found = goes_into(source, event.table_name) if event.table_name else None
    if found is None:
        return
    event.leaf, (event.table_name, added) = event.table_name, found
    for image in (event.before, event.after):
        if image is not None:
            image |= {LEAF: event.leaf, **added}


def most_bytes(source: dict[str, Any]) -> int:
    """Of a record's key and value (`max_record_mb`)."""
    return int(source.get("max_record_mb", 64)) << 20


def _check_columns(source: dict[str, Any], days: list[tuple[date, list[Event]]]) -> None:
    """`max_columns`, which is judged after all other reasons."""
    for _, events in days:
        for event in events:
            widest = max(len(image or {}) for image in (event.before, event.after))
            if event.destination != "quarantine" and widest > source.get("max_columns", 5000):
                event.destination, event.reason = "quarantine", "over_limit"


def _settle_labels(days: list[tuple[date, list[Event]]]) -> None:
    """C1: where a label is a number, the source's other columns of labels say what it sends."""
    are_labels = False
    for _, events in days:
        counts = {True: 0, False: 0}
        changes = [e for e in events if e.destination == "changes"]
        for event in changes:
            row = event.after if event.after is not None else event.before
            for name, wire in event.wires.items():
                sent = (row or {}).get(name)
                if wire.get("labels") and not has_open_labels(wire) and sent not in (None, ""):
                    counts[not str(sent).isdigit()] += 1
        if any(counts.values()):
            are_labels = counts[True] > counts[False]
        for event in changes if are_labels else []:
            for name, wire in list(event.wires.items()):
                if has_open_labels(wire) and name not in (event.key or {}):
                    event.wires = {**event.wires, name: {**wire, "are_labels": True}}


def _as_landed(record: Record) -> Record:
    """A landed line with a timestamp that Kafka can't have is no record; -1 is Kafka's "none"."""
    timestamp = record.timestamp_ms
    if timestamp is None or -1 <= timestamp <= YEAR_9999:
        return record
    return Record(None, None, None, None, None, None, malformed_line=True)


def _lend_schemas(
    days: list[list[Event]], written: dict[int, dict[str, Wire]], silent: set[int]
) -> None:
    """R3: what an event's own schema does not type is read as those of its table that have landed
    so far have it.

    What is quarantined says nothing about the table.
    """
    known: dict[str | None, dict[str, Wire]] = defaultdict(dict)
    for events in days:
        for event in events:
            if event.destination != "quarantine" and id(event) not in silent:
                typed = {n: w for n, w in written[id(event)].items() if wire_type(w)}
                known[event.table_name].update(typed)
        for event in events:
            event.has_own_schema = bool(written[id(event)])
            lent = known[event.table_name]
            own = event.wires
            event.wires = own | {n: w for n, w in lent.items() if not wire_type(own.get(n) or {})}


def _read_rows(source: dict[str, Any], record: Record, day: date) -> list[Event]:
    """The events of a record: one, but one for each row of a Canal message."""
    count = None
    is_read = record.value and len(record.value) <= most_bytes(source)
    if source.get("format") == "canal" and is_read:
        with suppress(NotJsonError):
            document = dict_of(parse_json(record.value or b"")) or {}
            rows = document.get("data")
            count = len(rows) if isinstance(rows, list) and rows else None
    numbers: list[int | None] = [None] if count is None else [*range(count)]
    events = [_read_record(source, record, day, number) for number in numbers]
    return [row for event in events for row in _rows_of_statement(source, event)]


def _rows_of_statement(source: dict[str, Any], event: Event) -> list[Event]:
    """D21: with `on_drop: empty` a statement that leaves no row of a table is its truncate."""
    if event.destination != "control" or event.op != "ddl" or event.is_snapshot:
        return [event]
    configs = table_configs(source)
    kind, hit = statement_of(event, configs)
    if kind not in ("DROP", "DROP DATABASE", "TRUNCATE"):
        return [event]
    rows = []
    for table in (name for name in configs if name in hit):
        if (configs[table].get("on_drop") or source.get("on_drop")) == "empty":
            row = replace(event, table_name=table, op="t", source_op=kind, destination="changes")
            row.row_number = len(rows)
            set_source(row, event.said_source, {})
            rows.append(row)
    if not rows or len(rows) < len(hit):
        rows.append(replace(event, row_number=len(rows)) if rows else event)
    return rows


def _read_record(
    source: dict[str, Any], record: Record, day: date, row_number: int | None
) -> Event:
    """The envelope of a record; its key is read later."""
    event = Event(record, day, row_number=row_number)
    try:
        if len(record.key or b"") + len(record.value or b"") > most_bytes(source):
            raise QuarantinedError("over_limit")
        if record.malformed_line:
            raise QuarantinedError("malformed_landing_line")
        document = _value_document(record.value)
        if source.get("format") == "debezium-flat":
            _read_flat(source, document, event)
        elif document is None:  # D11: also the text `null` and empty bytes
            event.is_tombstone = True
        elif not isinstance(document, dict):
            raise QuarantinedError("not_an_envelope")
        elif source.get("format") == "debezium-mongodb":
            _read_mongodb(source, document, event)
        elif source.get("format", "debezium") == "debezium":
            _read_debezium(
                document,
                event,
                unsent=unavailable_value(source),
                in_databases=has_databases(source),
            )
        else:
            READERS[source["format"]](document, event)
    except QuarantinedError as error:
        event.destination, event.reason = "quarantine", error.reason
    except ControlledError:
        event.destination = "control"
    return event


def _value_document(value: bytes | None) -> Any:
    if not value:
        return None
    if value[0] == 0 and len(value) >= 5:  # D17
        raise QuarantinedError("registry_encoded")
    try:
        return parse_json(value)
    except NotJsonError as error:  # D19
        raise QuarantinedError("malformed_json") from error


def _unwrap(document: dict[str, Any]) -> tuple[Any, Any]:
    """(schema, payload) of a document; schema is None where there is none (D1, D2)."""
    if "op" in document and any(name in document for name in ("source", "before", "after")):
        return None, document  # a bare envelope, whatever else is in it
    schema = dict_of(document.get("schema"))
    if "payload" in document:
        payload = document["payload"]
        if isinstance(payload, dict) or set(document) <= {"schema", "payload"}:
            return schema, payload
    return None, document


def _read_debezium(
    document: dict[str, Any],
    event: Event,
    *,
    lindorm: bool = False,
    unsent: str | None = None,
    in_databases: bool = False,
) -> None:
    schema, payload = _unwrap(document)
    _read_event(schema, payload, event, lindorm=lindorm, unsent=unsent, in_databases=in_databases)


def _read_event(
    schema: Any,
    payload: Any,
    event: Event,
    *,
    lindorm: bool = False,
    ops: tuple[str, ...] = ("c", "u", "d", "r", "t", "m"),
    unsent: str | None = None,
    in_databases: bool = False,
) -> None:
    if payload is None:
        event.is_tombstone = True
        return
    if not isinstance(payload, dict):
        raise QuarantinedError("not_an_envelope")
    op, source = payload.get("op"), dict_of(payload.get("source")) or {}
    event.before, event.after = dict_of(payload.get("before")), dict_of(payload.get("after"))
    event.source_ts_ms = long_of(source.get("ts_ms"))
    event.processed_ts_ms = long_of(payload.get("ts_ms"))
    other = "keyspace" if source.get("connector") == "vitess" else "db"
    own = "namespace" if lindorm else other if source.get("schema") is None else "schema"
    namespace = source.get(own)
    if in_databases:
        namespace = of_database(source.get("db"), source.get("schema"))
    _set_table(event, namespace, source.get("table"))  # D4, L2

    if op is None:
        _read_without_op(payload, event)
    if not any(name in payload for name in ("source", "before", "after")):
        raise QuarantinedError("not_an_envelope")
    event.source_op = event.op = op if isinstance(op, str) else None
    if op != "m" and isinstance(payload.get("ts_ms"), dict):  # Avro's JSON encoding
        raise QuarantinedError("not_an_envelope")
    if op not in (("c", "u", "d", "r") if lindorm else ops):  # D3, L3
        raise QuarantinedError("unknown_op")
    if op == "m":  # D13
        _control(event, "message")
    event.op = op
    if event.table_name is None:
        raise QuarantinedError("missing_table")
    if event.writes and event.after is None:
        raise QuarantinedError("missing_image")
    if op == "u" and source.get("connector") == "spanner" and not lindorm:
        captured = source.get("value_capture_type")
        if captured not in (*SPANNER_ROWS, "OLD_AND_NEW_VALUES"):
            raise QuarantinedError("missing_image")
        if captured not in SPANNER_ROWS and unsent is not None:
            # Only changed columns have values: what is null before and after did not change.
            was, now = event.before or {}, event.after or {}
            event.after = {
                n: unsent if v is None and was.get(n) is None else v for n, v in now.items()
            }

    if unsent is not None:
        _read_cells(event, unsent)
    # D14. A truncate is never read in a snapshot, whatever its mark says.
    mark = source.get("snapshot")
    event.is_snapshot = op != "t" and (op == "r" or _is_mark(mark))
    event.snapshot = _mark_text(mark)
    if lindorm:
        set_elements(event, SOURCE_TIME, [source.get("ts_ms")])
    else:
        set_source(event, source, dict_of(payload.get("transaction")) or {})

    envelope = schema_fields(schema)
    rows = [schema_fields(envelope.get(name)) for name in ("after", "before")]
    event.wires = rows[0] or rows[1]


def _read_cells(event: Event, unsent: str) -> None:
    """D22: each cell of YugabyteDB is an object of its own, null where nothing was sent."""
    if not is_of_cells(event.after or event.before):
        return

    def plain(image: dict[str, Any] | None, keeps: bool) -> dict[str, Any] | None:
        if image is None:
            return None
        was_set = {n: isinstance(cell, dict) and cell["set"] for n, cell in image.items()}
        return {
            n: cell["value"] if was_set[n] else unsent
            for n, cell in image.items()
            if was_set[n] or keeps
        }

    event.before = plain(event.before, False)
    event.after = plain(event.after, event.op == "u")


SPANNER_ROWS = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")


def _is_mark(mark: Any) -> bool:
    return not (mark is None or mark is False or mark == "false")  # 0 is a mark, and 0 == False


def _mark_text(mark: Any) -> str | None:
    """A mark as text: old versions sent true."""
    return (mark if isinstance(mark, str) else json_text(mark)) if _is_mark(mark) else None


def _read_without_op(payload: dict[str, Any], event: Event) -> None:
    """D16: what has no op may still be understood."""
    if "ddl" in payload:
        event.said_source = dict_of(payload.get("source")) or {}
        event.is_snapshot = _is_mark(event.said_source.get("snapshot"))
        event.statement = payload["ddl"] if isinstance(payload["ddl"], str) else None
        _control(event, "ddl")
    if payload.get("status") in ("BEGIN", "END") and "id" in payload:
        _control(event, "transaction")
    if long_of(payload.get("ts_ms")) is not None and all(n.startswith("ts_") for n in payload):
        _control(event, "heartbeat")
    if any(isinstance(payload.get(name), dict) for name in ("source", "before", "after")):
        raise QuarantinedError("missing_op")
    raise QuarantinedError("not_an_envelope")


def _read_lindorm(document: dict[str, Any], event: Event) -> None:
    _read_debezium(document, event, lindorm=True)


def _read_mongodb(source: dict[str, Any], document: dict[str, Any], event: Event) -> None:
    """A collection is a table of `_id` and `document`, or of `_id` and configured columns."""
    _, payload = _unwrap(document)
    if isinstance(payload, dict):
        of = dict_of(payload.get("source")) or {}
        namespace, collection = name_of(of.get("db")), name_of(of.get("collection"))
        table = full_name(namespace, collection) if namespace and collection else None
        columns = (table_configs(source).get(table or "") or {}).get("columns") or {}
        op = payload.get("op")
        text = name_of(payload.get("after")) or name_of(payload.get("patch"))
        rows = {
            "after": mongodb_row(text, columns),
            "before": mongodb_row(payload.get("before"), columns),
        }
        lone = mongodb_document(payload.get("filter"))
        if rows["before"] is None and op == "d" and lone is not None:
            rows["before"] = {"_id": mongodb_id(lone["_id"])}
        payload = payload | {n: row for n, row in rows.items() if n in payload or row is not None}
        if "source" in payload and isinstance(payload["source"], dict):
            payload["source"] = {**of, "table": of.get("collection")}
    event.source_key = None if payload is None else ["_id"]
    _read_event(None, payload, event, ops=("c", "u", "d", "r", "m"))


def mongodb_document(text: Any) -> dict[str, Any] | None:
    if not isinstance(text, str):
        return None
    try:
        found = dict_of(parse_json(finite_json(text).encode()))
    except NotJsonError:
        return None
    return found if found is not None and "_id" in found else None


def mongodb_row(text: Any, columns: dict[str, str]) -> dict[str, Any] | None:
    document = mongodb_document(text)
    if document is None:
        return None
    own = {"_id": mongodb_id(document["_id"])}
    names = set(columns) - {"_id"}
    if not names:
        return own | {"document": finite_json(text)}
    return own | {n: _mongodb_value(v) for n, v in document.items() if n in names}


def _mongodb_value(value: Any) -> Any:
    is_number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    if is_number and double_text(value).endswith("Infinity"):
        return double_text(value)
    if not isinstance(value, dict):
        return value
    for name in (*MONGODB_NUMBERS, "$numberDouble", "$numberDecimal", "$oid", "$date"):
        if isinstance(value.get(name), dict):
            return value[name].get("$numberLong") or json_text(value[name])
        if value.get(name) is not None:
            return mongodb_text(value[name])
    return value


def _read_cassandra(document: dict[str, Any], event: Event) -> None:
    """A row is the cells that were written."""
    schema, payload = _unwrap(document)
    source: dict[str, Any] = {}
    sent = None
    if isinstance(payload, dict):
        source, sent = dict_of(payload.get("source")) or {}, payload.get("op")
        payload = dict(payload)
        written = {
            name: cell
            for name, cell in (dict_of(payload.get("after")) or {}).items()
            if cell is not None and not (isinstance(cell, dict) and _is_false(cell.get("set")))
        }
        is_row = dict_of(payload.get("after")) is not None
        if sent == "i":
            payload["op"] = "c"
        if is_row and sent == "d":
            payload |= {"before": {n: _of_cell(c, "value") for n, c in written.items()}}
            payload |= {"after": None}
        elif is_row:
            payload |= {"after": {n: _of_cell(c, "now") for n, c in written.items()}}
        if source:
            payload["source"] = {**source, "schema": source.get("keyspace")}
    try:
        _read_event(schema, payload, event, ops=("c", "u", "d", "m"))
    finally:
        event.source_op = sent if isinstance(sent, str) and event.source_op else event.source_op
    micros, ms = long_of(source.get("ts_micro")), long_of(source.get("ts_ms"))
    if micros is None and ms is not None:
        micros = ms * 1000 if abs(ms) < 10**14 else ms
    event.source_ts_ms = None if micros is None else micros // 1000
    set_elements(event, "ts_micro", [micros])
    event.wires = {n: schema_fields(w).get("value") or w for n, w in event.wires.items()}


def _is_false(value: Any) -> bool:
    return value is False or value == "false"


def _of_cell(cell: Any, what: str) -> Any:
    if not isinstance(cell, dict):
        return cell
    if what == "now" and cell.get("deletion_ts") is not None:
        return None
    return cell.get("value", cell)


def _read_flat(source: dict[str, Any], document: Any, event: Event) -> None:
    """D18: ExtractNewRecordState puts what it keeps of the envelope beside the row's columns
    (`add.fields`) or into headers (`add.headers`).
    """
    fields, headers = Added(source, "fields"), Added(source, "headers")
    texts = _header_texts(event.record)
    marks = ["__deleted", *fields.names_of("op")]
    if document is not None and not isinstance(document, dict):
        raise QuarantinedError("not_an_envelope")
    is_row = document is not None and (
        any(mark in document for mark in marks) or not set(document) <= {"schema", "payload"}
    )
    schema, row = (None, document) if is_row else _unwrap(document or {})
    if document is None:
        row = None
    topic = _topic_names(source, event.record.topic)
    known = {name: text for name, text in texts.items() if headers.has(name)}

    def meta(name: str, default: Any = None) -> Any:
        for field in fields.names_of(name):
            if isinstance(row, dict) and row.get(field) is not None:
                return row[field]
        said = (known.get(header) for header in headers.names_of(name))
        return next((text for text in said if text is not None), default)

    def meta_of_source(name: str) -> Any:
        return meta(f"source.{name}", topic.get(name))

    deleted = False
    derived: str | None = None
    if row is None:
        # The delete itself, made a null value; a tombstone has `op` alone among its headers.
        says_more = any(header not in headers.names_of("op") for header in known)
        if not (meta("op") in ("d", None) and says_more) and meta("op") != "t":
            event.is_tombstone = True
            namespace = topic.get("schema") or topic.get("db")
            if has_databases(source):
                namespace = of_database(topic.get("db"), topic.get("schema"))
            _set_table(event, namespace, topic.get("table"))
            return
        derived = "d"
    elif not isinstance(row, dict):
        raise QuarantinedError("not_an_envelope")
    elif any(mark in row for mark in marks):
        deleted = row.get("__deleted") in (True, "true")
        if row.get("__deleted") is not None:
            derived = "d" if deleted else "u"
    else:
        # The transform leaves what is no row event as it was (D13, D16).
        is_envelope = row.get("op") is not None and any(
            isinstance(row.get(name), dict) for name in ("source", "before", "after")
        )
        has_field = any(row.get(f) is not None for f in fields.names_of("source.table"))
        if is_envelope or not (known or topic or has_field):
            if row.get("op") == "m":
                _read_debezium(document, event)
            if not any(name in row for name in ("op", "source", "before", "after")):
                _read_without_op(row, event)
            raise QuarantinedError("not_an_envelope")
        derived = "u"
    op = meta("op", derived)
    if op is None:
        raise QuarantinedError("missing_op")
    if op not in ("c", "u", "d", "r", "t"):
        raise QuarantinedError("unknown_op")
    event.op, event.source_op = ("d" if deleted else op), name_of(meta("op"))
    connector = _flat_connector(meta)
    other = "keyspace" if connector == "vitess" else "db"
    namespace = meta_of_source(other if meta_of_source("schema") is None else "schema")
    if has_databases(source):
        namespace = of_database(meta_of_source("db"), meta_of_source("schema"))
    _set_table(event, namespace, meta_of_source("table"))
    if event.table_name is None:
        raise QuarantinedError("missing_table")
    captured = meta("source.value_capture_type")
    if event.op == "u" and connector == "spanner" and captured not in SPANNER_ROWS:
        raise QuarantinedError("missing_image")
    if row is not None:
        own = {name: value for name, value in row.items() if not fields.has(name)}
        if event.op == "d":
            event.before = own
        elif event.op != "t":
            event.after = own
    event.source_ts_ms = long_of(meta("source.ts_ms"))
    event.processed_ts_ms = long_of(meta("ts_ms"))
    mark = meta("source.snapshot")
    event.is_snapshot = event.op != "t" and (event.op == "r" or _is_mark(mark))
    event.snapshot = _mark_text(mark)
    said = {name: meta(f"source.{name}") for name in ORDER_MEMBERS}
    said |= {"connector": connector, "ts_ms": meta("source.ts_ms")}
    transaction = {name: meta(f"transaction.{name}") for name in ("id", "total_order")}
    set_source(event, said, transaction)
    event.wires = {n: w for n, w in schema_fields(schema).items() if not fields.has(n)}


def _flat_connector(meta: Callable[[str], Any]) -> Any:
    """What was added, else the one whose members were: O8 names them."""
    if meta("source.connector") is not None:
        return meta("source.connector")
    members = {
        "lsn": "postgresql", "keyspace": "vitess", "pos": "mysql", "commit_lsn": "sqlserver",
        "scn": "oracle", "commit_ts": "TiCDC",
    }  # fmt: skip
    return next((c for n, c in members.items() if meta(f"source.{n}") is not None), None)


class Added:
    """What `add.fields` or `add.headers` added to records, as Debezium's document says."""

    def __init__(self, source: dict[str, Any], to: str) -> None:
        self.prefix = source.get(f"add_{to}_prefix", "__")
        self.listed = source.get(f"add_{to}") or []
        self.to = to

    def names_of(self, member: str) -> list[str]:
        """Under which names a member of the envelope, such as `source.lsn`, may stand."""
        struct, _, field = member.rpartition(".")
        # Without its struct a name is the envelope's where that has such a member.
        spelled = [member] if field in ("op", "ts_ms") or not struct else [member, field]
        if not self.listed:
            return [self.prefix + name.replace(".", "_") for name in spelled]
        found = []
        for entry in self.listed:
            name, *new = entry.split(":")
            if name in spelled:
                found.append(self.prefix + (new[0] if new else name.replace(".", "_")))
        return found

    def has(self, name: str) -> bool:
        """Is a field or header one of those that were added?"""
        if self.to == "fields":
            if name == "__deleted":
                return True
            if not self.listed:
                return bool(name.startswith(self.prefix))
            spelled = (entry.split(":") for entry in self.listed)
            return name in {self.prefix + s[-1].replace(".", "_") for s in spelled}
        return any(name in self.names_of(member) for member in ADDED_MEMBERS)


ORDER_MEMBERS = (
    "txId", "lsn", "file", "pos", "row", "gtid", "commit_lsn", "change_lsn", "event_serial_no",
    "commit_scn", "scn", "rs_id", "ssn", "lcr_position", "commit_ts", "ord",
)  # fmt: skip
ADDED_MEMBERS = (
    "op", "ts_ms", "transaction.id", "transaction.total_order", "source.collection",
    *(f"source.{name}" for name in (
        "connector", "name", "snapshot", "ts_ms", "db", "schema", "namespace", "keyspace",
        "table", "value_capture_type", *ORDER_MEMBERS,
    )),
)  # fmt: skip


def _header_texts(record: Record) -> dict[str, str | None]:
    """The values of headers, of equal names the first: text, JSON text, or JSON with its schema."""
    texts: dict[str, str | None] = {}
    for name, value in reversed(record.headers):
        text = None if value is None else value.decode(errors="replace")
        read: Any = text
        with suppress(NotJsonError):
            read = None if value is None else parse_json(value)
        if isinstance(read, dict):
            payload = read.get("payload")
            text = payload if isinstance(payload, str) or payload is None else json_text(payload)
        elif isinstance(read, str):
            text = read
        elif read is None:
            text = None
        texts[name] = text
    return texts


def _topic_names(source: dict[str, Any], topic: str | None) -> dict[str, str]:
    """What `table_from_topic` takes from the whole name of a topic."""
    pattern = source.get("table_from_topic")
    if pattern is None or topic is None:
        return {}
    found = re.fullmatch(pattern.replace("(?<", "(?P<"), topic)
    return {name: text for name, text in found.groupdict().items() if text} if found else {}


DATAWORKS_ROWS = {  # W2
    "INSERT": "c",
    "UPDATE_BEFOR": "u",
    "UPDATE_BEFORE": "u",
    "UPDATE_AFTER": "u",
    "DELETE": "d",
    "TRUNCATE": "t",
}
DATAWORKS_CONTROL = {
    "MHEARTBEAT": "heartbeat",
    **dict.fromkeys(("TRANSACTION_BEGIN", "TRANSACTION_END"), "transaction"),
    **dict.fromkeys(("CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX"), "ddl"),
    **dict.fromkeys(("GTID", "XACOMMIT", "XAROLLBACK"), "other"),
}
ROW_ID = "#alibaba_rds_row_id#"


def _read_dataworks(document: dict[str, Any], event: Event) -> None:
    if "payload" not in document:
        raise QuarantinedError("not_an_envelope")
    payload, schema = document["payload"], dict_of(document.get("schema"))
    if payload is None:
        event.is_tombstone = True
        return
    if not isinstance(payload, dict) or schema is None:
        raise QuarantinedError("not_an_envelope")
    source = dict_of(schema.get("source"))
    before, after, op = (
        dict_of(payload.get("before")),
        dict_of(payload.get("after")),
        payload.get("op"),
    )
    times = dict_of(payload.get("timestamp")) or {}
    event.source_ts_ms = long_of(times.get("eventTime"))
    event.processed_ts_ms = long_of(times.get("systemTime"))  # W6: may be absent
    event.before = dict_of((before or {}).get("dataColumn"))
    event.after = dict_of((after or {}).get("dataColumn"))
    db, inner = name_of((source or {}).get("dbName")), name_of((source or {}).get("schemaName"))
    namespace = f"{db}__{inner}" if db and inner else db
    _set_table(event, namespace, (source or {}).get("tableName"))  # W1

    if op is None:
        parts = ("before", "after", "sequenceId", "timestamp", "ddl")
        known = source is not None or any(name in payload for name in parts)
        raise QuarantinedError("missing_op" if known else "not_an_envelope")
    event.source_op = op if isinstance(op, str) else None
    if isinstance(op, str) and op in DATAWORKS_CONTROL:
        _control(event, DATAWORKS_CONTROL[op])
    if source is None and not any(name in payload for name in ("before", "after")):
        raise QuarantinedError("not_an_envelope")
    if not isinstance(op, str) or op not in DATAWORKS_ROWS:
        raise QuarantinedError("unknown_op")
    event.op = DATAWORKS_ROWS[op]
    if event.table_name is None:
        raise QuarantinedError("missing_table")
    if op in ("UPDATE_BEFOR", "UPDATE_BEFORE"):
        event.half, event.after = "before", None
        if event.before is None:
            raise QuarantinedError("missing_image")
    elif event.writes and event.after is None:
        raise QuarantinedError("missing_image")
    if op == "UPDATE_AFTER" and event.before is None:
        event.half = "after"

    # O10: up to 38 digits, so three elements of 13.
    number = int_of(payload.get("sequenceId"))
    event.sequence_id = number if number is not None and 0 <= number < 10**39 else None
    thirds: list[int | None] = [None, None, None]
    if event.sequence_id is not None:
        high, low = divmod(event.sequence_id, 10**13)
        thirds = [*divmod(high, 10**13), low]
    set_elements(event, "sequenceId", list(thirds))
    event.half_element = 0 if event.half == "before" else 1
    event.sequence_id = event.sequence_id or None

    columns = schema.get("dataColumn")
    for column in columns if isinstance(columns, list) else []:
        name = column.get("name") if isinstance(column, dict) else None
        if isinstance(name, int) and not isinstance(name, bool) and is_wide(name):
            name = json_text(name)  # a number of more digits than any column's is a text
        if isinstance(name, str):
            event.wires[name] = DATAWORKS_WIRES.get(str(column.get("type"))) or {}
    event.source_key = _dataworks_key(schema, source or {}, event)


def _dataworks_key(
    schema: dict[str, Any], source: dict[str, Any], event: Event
) -> list[str] | None:
    """W4."""
    names = schema.get("primaryKey")
    if isinstance(names, list) and names:
        return [name for name in names if isinstance(name, str)] or None
    known = {**event.wires, **(event.before or {}), **(event.after or {})}
    if ROW_ID in known:
        return [ROW_ID]
    oracle = str(source.get("dbType")).lower() == "oracle"
    return ["rowid"] if oracle and "rowid" in known else None


CANAL_ROWS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "TRUNCATE": "t", "INIT": "r"}
CANAL_CONTROL = {
    **dict.fromkeys(("MHEARTBEAT", "TIDB_WATERMARK"), "heartbeat"),
    **dict.fromkeys(("GTID", "XACOMMIT", "XAROLLBACK"), "other"),
    **dict.fromkeys(
        ("CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX", "DDL"), "ddl"
    ),
}


def _read_canal(document: dict[str, Any], event: Event) -> None:
    op = document.get("type")
    event.source_ts_ms, event.processed_ts_ms = (
        long_of(document.get("es")),
        long_of(document.get("ts")),
    )
    _set_table(event, document.get("database"), document.get("table"))
    control = CANAL_CONTROL.get(op) if isinstance(op, str) else None
    has_said = "type" in document or "data" in document
    if not (("database" in document and has_said) or control == "heartbeat"):
        raise QuarantinedError("not_an_envelope")
    if op is None:
        raise QuarantinedError("missing_op")
    event.source_op = op if isinstance(op, str) else None
    if control:
        _control(event, control)
    if event.source_op is None or op not in CANAL_ROWS:
        if event.source_op is not None and document.get("isDdl") in (True, "true"):
            _control(event, "ddl")
        raise QuarantinedError("unknown_op")
    event.op = CANAL_ROWS[op]
    if event.table_name is None:
        raise QuarantinedError("missing_table")
    row = old = None
    if event.row_number is not None:
        row = dict_of(document["data"][event.row_number])
        olds = document.get("old")
        if isinstance(olds, list) and event.row_number < len(olds):
            old = dict_of(olds[event.row_number])
    if row is None and op != "TRUNCATE":
        raise QuarantinedError("missing_image")
    tidb = dict_of(document.get("_tidb")) or {}
    is_key = tidb.get("onlyHandleKey") in (True, "true") or tidb.get("claimCheckLocation")
    if is_key and event.writes:  # D20
        raise QuarantinedError("missing_image")
    event.is_snapshot = event.op == "r"  # C3
    if op == "DELETE":
        event.before = row
    elif row is not None and op != "TRUNCATE":
        event.after = row
        if op == "UPDATE" and old is not None:  # old values of changed columns alone
            event.before = {name: old.get(name, value) for name, value in row.items()}
    commit = long_of(tidb.get("commitTs"))
    if commit is None:  # `es` is when the statement began: no order
        set_elements(event, KAFKA_TIME, [])
    else:
        set_elements(event, "commit_ts", [commit])
    for name, kind in (dict_of(document.get("mysqlType")) or {}).items():
        event.wires[name] = mysql_wire(kind) if isinstance(kind, str) else {}
    event.source_key = _column_names(document.get("pkNames"))


MAXWELL_ROWS = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
CHANGES_OF_SCHEMA = ("create", "alter", "drop")
MAXWELL_CONTROL = {
    **dict.fromkeys(("bootstrap-start", "bootstrap-complete"), "other"),
    **{f"{what}-{done}": "ddl" for what in ("table", "database") for done in CHANGES_OF_SCHEMA},
}


def _read_maxwell(document: dict[str, Any], event: Event) -> None:
    if "database" not in document or not {"type", "data"} & set(document):
        raise QuarantinedError("not_an_envelope")
    _set_table(event, document["database"], document.get("table"))
    event.source_ts_ms = _milliseconds_of_seconds(document.get("ts"))
    op = document.get("type")
    if op is None:
        raise QuarantinedError("missing_op")
    event.source_op = op if isinstance(op, str) else None
    if event.source_op in MAXWELL_CONTROL:
        _control(event, MAXWELL_CONTROL[op])
    if event.source_op not in MAXWELL_ROWS:
        raise QuarantinedError("unknown_op")
    event.op = MAXWELL_ROWS[op]
    if event.table_name is None:
        raise QuarantinedError("missing_table")
    row, old = dict_of(document.get("data")), dict_of(document.get("old"))
    if row is None:
        raise QuarantinedError("missing_image")
    if op == "delete":  # the row as it was
        event.before = row
    else:
        event.after = row
    if op == "update" and old is not None:  # the old values of what changed
        event.before = {name: old.get(name, value) for name, value in row.items()}
    event.is_snapshot = event.op == "r"
    set_elements(event, *_maxwell_elements(document))
    event.tx_id = identity_of({"xid": document.get("xid")}).get("xid")
    event.identity = identity_of({n: document.get(n) for n in ("xid", "xoffset")})
    if event.identity:  # a second alone identifies nothing
        event.identity |= identity_of({"ts": document.get("ts")})
    event.source_key = _column_names(document.get("primary_key_columns"))


def _milliseconds_of_seconds(value: Any) -> int | None:
    seconds = long_of(value)
    return None if seconds is None else long_of(seconds * 1000)


def _maxwell_elements(document: dict[str, Any]) -> tuple[str, list[Any]]:
    """The binlog's file and offset; `ts` is when the statement began: no order."""
    position = document.get("position")
    found = re.search(r"(\d+):(\d+)$", position, re.ASCII) if isinstance(position, str) else None
    return (KAFKA_TIME, []) if found is None else ("position", list(found.groups()))


OGG_ROWS = {"I": "c", "U": "u", "D": "d", "T": "t"}


def _read_ogg(document: dict[str, Any], event: Event) -> None:
    known = "op_type" in document or any(document.get(n) is not None for n in ("pos", "op_ts"))
    if "table" not in document or not known:
        raise QuarantinedError("not_an_envelope")
    name = name_of(document["table"]) or ""
    *namespace, table = name.split(".")
    _set_table(event, "__".join(namespace), table)
    event.source_ts_ms = _ms_of_text(document.get("op_ts"))
    event.processed_ts_ms = _ms_of_text(document.get("current_ts"))
    op = document.get("op_type")
    if op is None:
        raise QuarantinedError("missing_op")
    event.source_op = op if isinstance(op, str) else None
    if event.source_op not in OGG_ROWS:
        raise QuarantinedError("unknown_op")
    event.op = OGG_ROWS[op]
    if event.table_name is None:
        raise QuarantinedError("missing_table")
    if op in ("U", "D"):
        event.before = dict_of(document.get("before"))
    if op in ("I", "U"):
        event.after = dict_of(document.get("after"))
        if event.after is None:
            raise QuarantinedError("missing_image")
    set_elements(event, "pos", _thirds(document.get("pos")))
    event.tx_id = identity_of({"xid": document.get("xid")}).get("xid")
    event.source_key = _column_names(document.get("primary_keys"))


def _thirds(value: Any) -> list[int | None]:
    """A text or number of up to 39 digits as three of 13."""
    if not isinstance(value, str):
        value = str(int_of(value))
    if not re.fullmatch(r"\d{1,39}", value, re.ASCII):
        return [None, None, None]
    padded = value.zfill(39)
    return [int(padded[n : n + 13]) for n in (0, 13, 26)]


TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?Z?", re.ASCII)


def _ms_of_text(value: Any) -> int | None:
    """A time in UTC as ms since 1970."""
    if not isinstance(value, str) or not TIME.fullmatch(value):
        return None
    try:
        return instant_ms(value)
    except ValueError:  # 30 February
        return None


def _column_names(names: Any) -> list[str] | None:
    """The key columns that a message names; what is no name is of no row."""
    if not isinstance(names, list):
        return None
    texts = (
        name if isinstance(name, str) else json_text(name) for name in names if name is not None
    )
    return list(dict.fromkeys(texts)) or None


READERS: dict[str, Callable[[dict[str, Any], Event], None]] = {
    "debezium-cassandra": _read_cassandra,
    "lindorm": _read_lindorm,
    "dataworks": _read_dataworks,
    "canal": _read_canal,
    "maxwell": _read_maxwell,
    "ogg": _read_ogg,
}


def _control(event: Event, op: str) -> None:
    event.op = op
    raise ControlledError


def _set_table(event: Event, namespace: Any, table: Any) -> None:
    if name_of(namespace) and name_of(table):
        event.table_name = full_name(namespace, table)
