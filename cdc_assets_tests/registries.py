"""Events as Kafka Connect's Avro converter writes and reads them, and a registry of schemas."""

from __future__ import annotations

import base64
import io
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastavro

from cdc_assets_tests import events as ev
from cdc_assets_tests import loopback
from cdc_assets_tests.avro_bytes import NotAvroError, connect_value
from cdc_assets_tests.model import Landed, Record

_AVRO = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}


@dataclass
class Schemas:
    """Schemas by id as a registry hands them out; `registered` numbers the Avro ones."""

    by_id: dict[str, dict[str, Any]] = field(default_factory=dict)
    kind: str = "AVRO"  # what `sent` writes
    first: int = 1  # the lowest id
    references: dict[str, dict[str, Any]] = field(default_factory=dict)  # by subject
    asked: list[str] = field(default_factory=list)
    unknown: dict[str, Any] = field(
        default_factory=lambda: {"error_code": 40403, "message": "Schema not found"}
    )

    def registered(self, schema: Any, **more: Any) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        for number, known in self.by_id.items():
            if known == {"schema": text, **more}:
                return int(number)
        number = self.first + len(self.by_id)
        self.by_id[str(number)] = {"schema": text, **more}
        return number

    def sent(self, record: Record) -> Record:
        """A record that was written as JSON with schemas, as Avro or with a JSON Schema.

        Heartbeats and the like have no schema in JSON, and one of their members here. All else
        without a schema was not written by a converter and stays as it is.
        """
        if record.malformed_line:
            return record
        value = _document(record.value)
        images = [value.get("before"), value.get("after")]
        is_bare = bool(value) and "payload" not in value and images == [None, None]
        return replace(
            record,
            key=self._framed(record.key),
            value=self._framed(record.value, is_bare),
        )

    def all_sent(self, landed: Landed) -> Landed:
        return {day: [self.sent(record) for record in records] for day, records in landed.items()}

    def saved(self, folder: Path) -> Path:
        """Save the answers in a folder, as ``landing.registry.files`` reads them."""
        answers = {
            f"schemas/{'ids' if number.isdigit() else 'guids'}/{number}": schema
            for number, schema in self.by_id.items()
        }
        for subject, schema in self.references.items():
            answers[f"subjects/{quote(subject, safe='')}/versions/1"] = schema
        for path, answer in answers.items():
            file = folder / f"{path}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(answer))
        return folder

    def _framed(self, data: bytes | None, is_bare: bool = False) -> bytes | None:
        """JSON with its schema, or a document that is all payload; other bytes as they are."""
        document = _document(data)
        is_wrapped = isinstance(document.get("schema"), dict) and "payload" in document
        if not is_wrapped and not is_bare:
            return data
        schema = document["schema"] if is_wrapped else None
        payload = document["payload"] if is_wrapped else document
        if self.kind == "JSON":
            own = _json_schema(schema or {"type": "struct", "fields": []})
            number = self.registered(own, schemaType="JSON")
            return framed(number, json.dumps(payload, ensure_ascii=False).encode())
        whole, value = _avro(schema, payload, "Value")
        avro = _defined_once(whole, set())
        number = self.registered(avro)
        return framed(number, encoded(avro, value))


def _document(data: bytes | None) -> dict[str, Any]:
    """The JSON object of some bytes; an empty one where they are none."""
    try:
        document = json.loads(data or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


_TEXTS = (
    "version", "connector", "name", "snapshot", "db", "schema", "table", "file", "change_lsn",
    "commit_lsn", "scn", "commit_scn",
)  # fmt: skip
_NUMBERS = ("ts_ms", "txId", "lsn", "xmin", "pos", "row", "ssn", "commit_ts", "ord")
_SOURCE = {**dict.fromkeys(_TEXTS, "string"), **dict.fromkeys(_NUMBERS, "int64")}
_TRANSACTION = {"id": "string", "total_order": "int64"}


def as_structs(landed: Landed) -> Landed:
    """Events of Debezium with whole schemas and all members, as Kafka Connect's converters write.

    A struct has all fields of its schema, null where it was not set: Avro knows no absent member,
    and Kafka Connect's JSON has none either. The events of tests leave out most of `source`, and of
    an old row what it has not. Whatever has no schema is as it was.
    """
    return {day: [_as_struct(record) for record in records] for day, records in landed.items()}


def _as_struct(record: Record) -> Record:
    document = {} if record.malformed_line else _document(record.value)
    payload = document.get("payload")
    if not isinstance(payload, dict) or not isinstance(document.get("schema"), dict):
        return record
    schema = document["schema"]
    known = {"source": _SOURCE, "transaction": _TRANSACTION}
    fields = [f for f in schema["fields"] if f["field"] not in known]
    for name, members in known.items():
        sent = payload.get(name) or {}
        kinds = {n: _kind_of(sent[n]) for n in sent if sent[n] is not None}
        fields.append({**ev.struct_schema({**members, **kinds}), "field": name})
    whole = {**schema, "fields": fields}
    text = ev.to_json({"schema": whole, "payload": _filled(payload, whole)})
    return replace(record, value=text.encode())


def _filled(value: Any, schema: Mapping[str, Any]) -> Any:
    if schema["type"] != "struct" or not isinstance(value, dict):
        return value
    return {f["field"]: _filled(value.get(f["field"]), f) for f in schema["fields"]}


def framed(number: int, data: bytes) -> bytes:
    """Confluent's wire format."""
    return b"\0" + number.to_bytes(4, "big") + data


def avro_of(schema: Mapping[str, Any], value: Any) -> Any:
    """The Avro schema of a Connect schema; decimals are bytes. `value` is one of its values."""
    return plain_avro(_defined_once(_avro(schema, value, "Value")[0], set()))


def encoded(schema: Any, value: Any) -> bytes:
    """A value in Avro's binary encoding; decimals come as their bytes."""
    out, plain = io.BytesIO(), plain_avro(schema)
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), value)
    return out.getvalue()


def plain_avro(schema: Any) -> Any:
    """A schema without logical types, as values are read and written here."""
    if isinstance(schema, list):
        return [plain_avro(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {n: plain_avro(part) for n, part in schema.items() if n != "logicalType"}


def _avro(schema: Mapping[str, Any] | None, value: Any, name: str) -> tuple[Any, Any]:
    """The Avro schema of a Connect schema, and the value for it; without one, of the value alone.

    What a value has beyond its schema is added to it: the events of tests say little of `source`.
    """
    said = dict(schema or {})
    kind = said.get("type") or _kind_of(value)
    avro: Any
    if kind == "struct":
        # A table's two images have one type.
        own = "Row" if name in ("before", "after") else name
        fields, read = [], {}
        known = {f["field"]: f for f in said.get("fields", ())}
        members = value if isinstance(value, dict) else {}
        for member in [*known, *(m for m in members if m not in known)]:
            part, read[member] = _avro(known.get(member), members.get(member), member)
            fields.append({"name": member, "type": part})
        avro = {"type": "record", "name": own, "namespace": "inventory", "fields": fields}
        value = None if value is None else read
    elif kind == "array":
        items = [_avro(said["items"], v, name) for v in value or [None]]
        avro, value = {"type": "array", "items": items[0][0]}, value and [v for _, v in items]
    elif kind == "map":
        values = {k: _avro(said["values"], v, name) for k, v in (value or {"": None}).items()}
        avro = {"type": "map", "values": next(iter(values.values()))[0]}
        value = value and {k: v for k, (_, v) in values.items()}
    else:
        avro = {"type": _AVRO.get(kind, kind)}
        if kind in ("int8", "int16"):
            avro["connect.type"] = kind
        if kind == "bytes" and isinstance(value, str):
            value = base64.b64decode(value)
    for told in ("name", "version", "parameters"):
        if told in said:
            avro[f"connect.{told}"] = said[told]
    parameters = said.get("parameters", {})
    if said.get("name", "").endswith("connect.data.Decimal"):
        # As the converter writes it; without a precision it says one of 64.
        precision = int(parameters.get("connect.decimal.precision", 64))
        scale = int(parameters["scale"])
        avro |= {"logicalType": "decimal", "scale": scale, "precision": precision}
    # A test's event may lack what its schema wants.
    if value is None or said.get("optional", schema is None):
        return ["null", avro], value
    return avro, value


def in_json(record: Record, folder: Path) -> Record:
    """An Avro record as Kafka Connect's JSON converter would have written it.

    By the schemas in a folder of saved answers; what they do not decode is in the wire format.
    """
    key, value = (_json_of(record, part, folder) for part in ("key", "value"))
    return replace(record, key=key, value=value, sent_key=record.key)


def _json_of(record: Record, part: str, folder: Path) -> bytes | None:
    data: bytes | None = getattr(record, part)
    if data is None or (place := _place_of(record, part)) is None:
        return data
    answer, body = place
    try:
        schema = json.loads(json.loads((folder / answer).read_text())["schema"])
        payload = connect_value(schema, body)
    except (FileNotFoundError, NotAvroError):
        # Such a key is read as it is.
        return data if part == "key" else framed(0, data)
    document = {"schema": _connect_of(schema, {}), "payload": payload}
    return json.dumps(document, ensure_ascii=False).encode()


def _place_of(record: Record, part: str) -> tuple[str, bytes] | None:
    """The saved answer that a key or value names, and the bytes of the value; None without one."""
    data: bytes = getattr(record, part)
    headers = dict(reversed(record.headers))  # of equal names the first
    confluent = headers.get(f"__{part}_schema_id") or b""
    apicurio = headers.get(f"apicurio.{part}.contentId") or b""
    if len(confluent) == 17 and confluent[0] == 1:
        return f"schemas/guids/{uuid.UUID(bytes=confluent[1:])}.json", data
    if len(confluent) == 5 and confluent[0] == 0:
        number, body = confluent[1:], data
    elif len(apicurio) == 8:
        number, body = apicurio, data
    elif len(data) >= 5 and data[0] == 0:
        number, body = data[1:5], data[5:]
    else:
        return None
    return f"schemas/ids/{int.from_bytes(number, 'big')}.json", body


def _connect_of(avro: Any, named: dict[str, Any]) -> dict[str, Any]:
    """The Connect schema that an Avro schema of :func:`avro_of`'s converter was made of."""
    if isinstance(avro, list):
        [own] = [part for part in avro if part != "null"]
        return {**_connect_of(own, named), "optional": True}
    if isinstance(avro, str):
        return named.get(avro) or {"type": _CONNECT.get(avro, avro), "optional": False}
    told = {t: avro[f"connect.{t}"] for t in ("name", "version", "parameters", "type")
            if f"connect.{t}" in avro}  # fmt: skip
    if avro["type"] != "record":
        kind = _CONNECT.get(avro["type"], avro["type"])
        inner = {n: _connect_of(avro[n], named) for n in ("items", "values") if n in avro}
        return {"type": kind, "optional": False, **inner, **told}
    fields = [{**_connect_of(f["type"], named), "field": f["name"]} for f in avro["fields"]]
    name = ".".join(avro[n] for n in ("namespace", "name") if n in avro)
    named[name] = {"type": "struct", "fields": fields, "optional": False, **told}
    return dict(named[name])


_CONNECT = {"int": "int32", "long": "int64"}
_JSON = {"boolean": "boolean", "string": "string", "bytes": "string"}
_FLOATS = {"float": "float32", "double": "float64"}


def _json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema that Confluent's converter writes for a schema of Kafka Connect."""
    kind = schema.get("type")
    if kind == "struct":
        fields = {f["field"]: _json_schema(f) for f in schema["fields"]}
        for index, (name, field_) in enumerate(fields.items()):
            fields[name] = {**field_, "connect.index": index}
        # Members of an object have no order.
        own: dict[str, Any] = {"type": "object", "properties": dict(reversed(fields.items()))}
    elif kind == "array":
        own = {"type": "array", "items": _json_schema(schema["items"])}
    elif kind == "map":
        values = _json_schema(schema["values"])
        own = {"type": "object", "connect.type": "map", "additionalProperties": values}
    elif kind is None:
        own = {}
    else:
        number = "number" if kind in _FLOATS else "integer"
        own = {"type": _JSON.get(kind, number)}
        if kind not in ("boolean", "string"):
            own["connect.type"] = _FLOATS.get(kind, kind)
    for told, as_ in (("name", "title"), *((n, f"connect.{n}") for n in ("version", "parameters"))):
        if told in schema:
            own[as_] = schema[told]
    if schema.get("optional"):
        return {"oneOf": [{"type": "null"}, own]}
    return own


def _defined_once(avro: Any, defined: set[str]) -> Any:
    """A record that stands a second time becomes its name."""
    if isinstance(avro, list):
        return [_defined_once(part, defined) for part in avro]
    if not isinstance(avro, dict):
        return avro
    if avro.get("type") == "record":
        name = f"{avro['namespace']}.{avro['name']}"
        if name in defined:
            return name
        defined.add(name)
    return {name: _defined_once(part, defined) for name, part in avro.items()}


def _kind_of(value: Any) -> str:
    if isinstance(value, dict):
        return "struct"
    if isinstance(value, bool):
        return "boolean"
    return "int64" if isinstance(value, int) else "string"


@contextmanager
def serving(schemas: Schemas) -> Iterator[str]:
    """The URL of a registry of these schemas, on a loopback port."""

    class Handler(loopback.Handler):
        def do_GET(self) -> None:  # noqa: N802  (the name is the library's)
            schemas.asked.append(self.path)
            parts = self.path.split("/")
            if self.path == "/subjects":
                self._answer(200, list(schemas.by_id))
                return
            found = (schemas.references if parts[1] == "subjects" else schemas.by_id).get(
                parts[2] if parts[1] == "subjects" else parts[3]
            )
            self._answer(200 if found else 404, found or schemas.unknown)

        def _answer(self, status: int, body: Any) -> None:
            self.send_json(status, body, "application/vnd.schemaregistry.v1+json")

    with loopback.serving(Handler) as url:
        yield url
