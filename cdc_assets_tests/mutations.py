"""Hostile variants of good change events, from a seed.

``Mutator(Random(7))(record)`` returns what lands instead of a good record: the record itself, a
changed one, two, or none. Each entry of `MUTATIONS` is one kind of damage with its weight; a kind
can be left out by name. Pure Python, and the same for the same seed.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from random import Random
from typing import Any

from cdc_assets_tests import events as ev
from cdc_assets_tests.model import Record

LONG = "n" * 300
NAMES = (
    "", " ", " id", "id ", "ID", "Id", "NAME", "a.b", "a.", "..", "a`b", "`", 'a"b', "a'b", "\"'",
    "a\\b", "a\nb", "a\tb", "a\0b", "a\x01b", "a\x7fb", "a/b", "a%20b", "a;b", "a,b", "a:b", "a{b}",
    "a(b)", "a[0]", "a=b", "$", "$.a", "*", "a--b", "/*", "<a>", "😀", "列名", "é", "e\u0301", "ß",
    "\u00a0", "\u200b", "\ufeffa", "\uffff", "1a", "-", "select", "null", "true", LONG,
    "_CDC_POSITION", "_file", "_pos", "_spec_id", "_partition",
    "_deleted", "_row_id", "_last_updated_sequence_number", "_change_type", "_FILE", "_metadata",
    "file_path", "pos", "partition", "id_bucket", "element", "key", "value", "k", "k0", "c0", "x0",
    "s", "t", "row", "is_removal", "__row_id", "__row_operation", "__row_from_source",
    "__row_from_target", "schema", "payload", "op", "after", "source", "dataColumn",
    "#alibaba_rds_row_id#", "__op", "__deleted",
)  # fmt: skip
TEXTS = (
    "", " ", "null", "true", "NaN", "Infinity", "-", "0", "-1", "1", "1.0", "1e3", "0x10", "٣", "x",
    "a\0b", "\ufeff", "\uffff", "'; DROP TABLE x; --", "${jndi:ldap://x}", "%n%s", "2026-02-30",
    "2026-11-04", "9999-12-31T23:59:59.999999999Z", "+999999-01-01T00:00:00Z", "infinity",
    "9223372036854775807", "9223372036854775808", "9" * 30, "9" * 400, "f" * 15, "f" * 16,
    "f" * 20, "0" * 40 + "1", "f" * 64, "0000002a:00000460:0003", "ffffffffff:ffffffffffffffff:1",
    "g", "x" * 70_000, ev.TOAST, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "AQ", "AQ==", "=",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 127, 128, 32_767, 32_768, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63,
    -(2**63), -(2**63) - 1, 2**64, 10**18, 10**25, 10**37, 10**38, 10**39, -(10**38), 10**400,
    Decimal("0.1"), Decimal("-0"), Decimal("1.0"), Decimal("0.5"), Decimal("1E+2"),
    Decimal("1E-40"), Decimal("1E+308"), Decimal("1E+309"), Decimal("9" * 38 + ".5"),
    Decimal("0." + "1" * 45),
)  # fmt: skip
CLOCKS = (
    0, -1, 1, None, "", "x", True, Decimal("1.5"), 10**9, 10**15, 10**18, 2**62, 2**63 - 1, 2**63,
    -(2**63), -(2**63) - 1, 10**30, 253_402_300_800_000, 8_210_266_876_799_999, -62_135_596_800_001,
    "1793793600000", "9223372036854775807", [], {},
)  # fmt: skip
POSITIONS = (
    None, 0, -1, 1, "0", "", "x", True, [], {}, 2**63 - 1, 2**63, 10**25, 10**38, 10**39, 10**60,
    "9" * 19, "9" * 38, "9" * 60, Decimal("1.5"), "00000025:00000d98:00a2", "f" * 15, "f" * 16,
    "f" * 17, "f" * 40, "ffffffffffffffff:ffffffffffffffff:ffff", "0x1f", "mysql-bin.000003",
    "bin." + "9" * 30, "bin.", ":", "::", "-5",
)  # fmt: skip
ELEMENTS = (
    "lsn", "file", "pos", "row", "commit_lsn", "change_lsn", "event_serial_no", "scn", "commit_scn",
    "ssn", "commit_ts", "ord", "sequence", "snapshot",
)  # fmt: skip
CONNECTORS = (
    None, "", "mysql", "mariadb", "postgresql", "PostgreSQL", "sqlserver", "db2", "informix",
    "oracle", "TiCDC", "mongodb", "vitess", "spanner", 1, True, {}, [],
)  # fmt: skip
OPS = (
    None, "", "c", "u", "d", "r", "t", "m", "C", "c ", "x", 1, True, [], {}, "INSERT", "insert",
    "UPDATE_BEFOR", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE", "TRUNCATE", "QUERY", "MHEARTBEAT",
)  # fmt: skip
# Of Maxwell and GoldenGate, beside those of all.
OTHER_OPS = (
    *OPS, "update", "delete", "bootstrap-insert", "bootstrap-complete", "table-alter",
    "database-drop", "I", "U", "D", "T", "i", "K",
)  # fmt: skip
OTHER_POSITIONS = (
    *POSITIONS, "binlog.000003:1500", "binlog.:5", "binlog.3:", "3:5", "-3:5", "3:5 ", "3:5:7",
    "binlog.000003:" + "9" * 30, "b." + "9" * 30 + ":5", "0" * 19 + "7", "0" * 39, "1" * 39,
    "0" * 40, "7 ",
)  # fmt: skip
TIMES = (
    "2026-11-04 12:00:01.500000", "2026-11-04T12:00:01", "2026-11-04 12:00:01.123456789Z",
    "2026-11-04", "2026-11-04 12:00", "2026-11-04 12:00:01+08:00", "2026-13-04 12:00:01",
    "2026-11-04 24:00:00", "12:00:01", "1793793600000", "9999-12-31 23:59:59.999999",
    "0001-01-01 00:00:00", " 2026-11-04 12:00:01",
)  # fmt: skip
MAXWELL_KEYS = (
    b'{"database":"shop","table":"customers","pk.id":5}', b'{"pk.id":"x"}', b'{"pk.id":null}',
    b'{"pk.":1}', b'{"pk":1}', b'{"database":"shop","table":"customers","_uuid":"8f"}',
    b'["shop","customers",[{"id":1}]]', b'{"schema":null,"payload":{"pk.id":7}}',
)  # fmt: skip
SNAPSHOTS = (None, True, False, "true", "first", "last", "incremental", "false", "new", 1, {})
KEYS = (
    b"", b" ", b"null", b"{}", b"[]", b"[1]", b"1", b"-0", b"1.5", b'"k"', b'""', b"true", b"{",
    b"\0", b"\xff", b"\x00\x00\x00\x00\x07\x02", b'{"id":null}', b'{"id":{}}', b'{"id":[1]}',
    b'{"id":"x"}',
    b'{"id":1.5}', b'{"id":1e400}', b'{"id":true}', b'{"id":9223372036854775808}', b'{"id":""}',
    b'{"ID":1}', b'{"no":1}', b'{"id":1,"no":2}', b'{"":1}', b'{"id":1,"id":2}', b'{"id":" 1"}',
    b'{"schema":null,"payload":null}', b'{"schema":{"type":"int32"},"payload":7}',
    b'{"schema":{"type":"struct","fields":[{"field":"id","type":"string"}]},"payload":{"id":"7"}}',
    b'{"schema":{"type":"struct","fields":[{"field":"no","type":"int32"}]},"payload":{"no":7}}',
    b'{"schema":{"type":"struct","fields":5},"payload":{"id":7}}', b'{"payload":{"id":7}}',
)  # fmt: skip
HEADERS = (
    b"", b"null", b"{}", b'{"id":5}', b'{"id":"x"}', b'{"no":5}', b'"{\\"id\\":5}"',
    b"Struct{id=5}",
    b'{"schema":null,"payload":{"id":5}}', b"{", b"5", b'{"id":null}',
)  # fmt: skip
TABLES = ("", "..", "a.b", 'a"b', "a/b", "%", "😀", " ", "A" * 300, None, 1, {}, "landing", "\0")
TYPES = (
    "string", "int8", "int32", "int64", "float", "double", "boolean", "bytes", "struct", "array",
    "map", "x", "", None, 5, {},
)  # fmt: skip
SEMANTIC = (
    *ev.SEMANTIC_BASE, "io.debezium.time.ZonedTimestamp", "io.debezium.data.Json",
    "io.debezium.data.Uuid", "x.y.Unknown", "", 5,
)  # fmt: skip
# Of MongoDB: what stands in the place of a document's text, or of the id in its key.
DOCUMENTS = (
    None, "", "{", "{}", "[1]", '"x"', "5", '{"_id":1} x', '{"_id":null}', '{"_id":{}}',
    '{"_id":[1]}', '{"_id":1.0}', '{"_id":1,"_id":2}', '{"_id":{"$numberLong":"7"}}',
    '{"_id":{"b":1.50,"a":{}}}', '{"_id":{"$oid":null}}', '{"_id":"\\ud800"}', '{"name":1}', 5, {},
    {"_id": 1},
)  # fmt: skip
MONGODB_KEYS = (
    b'{"id":"1"}', b'{"id":1}', b'{"id":"\\"k\\""}', b'{"id":"{\\"$numberLong\\":\\"7\\"}"}',
    b'{"id":"1 2"}', b'{"id":"[1]"}', b'{"id":"{"}', b'{"id":"null"}', b'{"_id":"1"}',
)  # fmt: skip
CELLS = (
    None, {}, {"value": None}, {"value": 5, "set": False}, {"value": 5, "deletion_ts": 7},
    {"value": "x", "deletion_ts": None}, {"deletion_ts": 7, "set": True}, {"value": {"value": 1}},
)  # fmt: skip
SUFFIXES = (b"}", b" x", b"\0", b",", b"{}", b"\n{}", b"\xff", b"\xef\xbb\xbf")


class Text(dict[str, Any]):
    """A JSON object that stands in its document as a text."""


@dataclass
class Draft:
    """A record while it is changed: its value and key as JSON where they are, else as bytes."""

    record: Record
    value: Any
    format: str = ""  # where it is one that is told apart
    encoded: list[Callable[[bytes], bytes]] = field(default_factory=list)  # applied to the bytes
    copies: int = 1
    lines: list[str] = field(default_factory=list)  # lands beside it as lines that are no record

    @property
    def payload(self) -> dict[str, Any]:
        """The envelope, or the flattened row."""
        document = _object(self.value)
        return _object(document.get("payload")) or document

    @property
    def source(self) -> dict[str, Any]:
        """The members that name table, connector and position, wherever the format has them."""
        schema = _object(_object(self.value).get("schema"))
        return _object(self.payload.get("source")) or _object(schema.get("source")) or self.payload

    @property
    def is_maxwell(self) -> bool:
        return "database" in self.payload

    @property
    def is_ogg(self) -> bool:
        return "op_type" in self.payload

    @property
    def is_mongodb(self) -> bool:
        return self.format == "debezium-mongodb"

    @property
    def is_cassandra(self) -> bool:
        return self.format == "debezium-cassandra"

    def meta(self, name: str) -> str:
        """How a member of `source` or of the envelope is called; a flattened row prefixes them."""
        if name == "op" and (self.is_maxwell or self.is_ogg):
            return "type" if self.is_maxwell else "op_type"
        return f"__{name}" if any(known.startswith("__") for known in self.payload) else name

    @property
    def images(self) -> list[dict[str, Any]]:
        """The rows that the event carries, `after` last."""
        names = ("old", "data") if self.is_maxwell else ("before", "after")
        found = [_object(self.payload.get(name)) for name in names]
        rows = [_object(image.get("dataColumn")) or image for image in found if image]
        return rows or [self.payload]

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The field schemas of the `after` image."""
        schema = _object(_object(self.value).get("schema"))
        if schema.get("dataColumn"):
            return [f for f in schema["dataColumn"] if isinstance(f, dict)]
        fields = schema.get("fields")
        for one in fields if isinstance(fields, list) else ():
            if isinstance(one, dict) and one.get("field") == "after":
                fields = one.get("fields")
        return [f for f in fields if isinstance(f, dict)] if isinstance(fields, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def raw_json(text: str) -> str:
    """A text that stands in a document for this JSON, which Python's values can't spell."""
    return f"@@{base64.b64encode(text.encode()).decode()}@@"


def json_bytes(document: Any) -> bytes:
    """The document as JSON, with what `raw_json` stands for."""

    def spelled(found: re.Match[str]) -> str:
        return base64.b64decode(found[1]).decode()

    text = re.sub(r'"@@([A-Za-z0-9+/=]*)@@"', spelled, ev.to_json(_with_texts(document)))
    return text.encode("utf-8")


def _with_texts(value: Any) -> Any:
    if isinstance(value, Text):
        return json_bytes(dict(value)).decode()
    if isinstance(value, dict):
        return {name: _with_texts(member) for name, member in value.items()}
    return [_with_texts(member) for member in value] if isinstance(value, list) else value


# -- places in a document --------------------------------------------------------------------------

Place = tuple[Any, Any]  # a container and the name or index of one of its members


def _places(value: Any) -> list[Place]:
    members = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[Place] = []
    for name, member in members:
        found.append((value, name))
        if isinstance(member, (dict, list)):
            found += _places(member)
    return found


def _place(rng: Random, draft: Draft) -> Place | None:
    """Any member, those of the payload as often as those of a long schema."""
    inside = rng.choice([draft.value, draft.payload, draft.source, *draft.images])
    found = _places(inside) if isinstance(inside, (dict, list)) else []
    return rng.choice(found) if found else None


def _value(rng: Random) -> Any:
    return rng.choice(
        (rng.choice(NUMBERS), rng.choice(TEXTS), None, True, False, [], {}, [1, "x"], {"a": 1})
    )


def column_value(rng: Random, name: str) -> Any:
    """A value for a column of that name: always of one kind, so that an inferred type holds it."""
    kind = sum(name.encode("utf-8")) % 3
    return (rng.randrange(1000), f"v{rng.randrange(1000)}", bool(rng.randrange(2)))[kind]


# -- damage --------------------------------------------------------------------------------------


def remove(rng: Random, draft: Draft) -> None:
    if place := _place(rng, draft):
        container, name = place
        del container[name]


def retype(rng: Random, draft: Draft) -> None:
    if place := _place(rng, draft):
        container, name = place
        container[name] = _value(rng)


def number(rng: Random, draft: Draft) -> None:
    if place := _place(rng, draft):
        container, name = place
        exotic = raw_json(rng.choice(("1e400", "-0", "1e99999999999999999999", "01", "NaN", "1.")))
        container[name] = rng.choice((rng.choice(NUMBERS), exotic))


def text(rng: Random, draft: Draft) -> None:
    """A text cut, doubled or replaced."""
    if place := _place(rng, draft):
        container, name = place
        old = container[name] if isinstance(container[name], str) else "text"
        cut = old[: rng.randrange(len(old) + 1)]
        lone = raw_json(rng.choice(('"\\ud800"', '"\\udc00x"', '"\\ud83d\\ude00"', '"\\u0000"')))
        container[name] = rng.choice((cut, old * 2, rng.choice(TEXTS), lone))


def nest(rng: Random, draft: Draft) -> None:
    if place := _place(rng, draft):
        container, name = place
        depth = rng.choice((1, 2, 10, 200, 990, 1001, 3000))
        opening, closing = rng.choice((("[", "]"), ('{"a":', "}"), ('{"":', "}")))
        inner = json_bytes(container[name]).decode()
        container[name] = raw_json(opening * depth + inner + closing * depth)


def add(rng: Random, draft: Draft) -> None:
    """A member of a hostile name, outside the images."""
    place = rng.choice((draft.payload, draft.source, _object(draft.value)))
    if place not in draft.images:
        place[rng.choice(NAMES)] = _value(rng)


def double_member(rng: Random, draft: Draft) -> None:
    """The same name twice in one object."""
    place = rng.choice((draft.payload, draft.source, draft.images[-1]))
    if place:
        place[raw_json(json.dumps(rng.choice(list(place))))] = rng.choice((1, "x", None))


def column(rng: Random, draft: Draft, names: Collection[str] = NAMES) -> None:
    """A column of a hostile name, with a field of the schema or without."""
    name = rng.choice(list(names))
    value = column_value(rng, name)
    for image in rng.choice((draft.images, draft.images[-1:])):
        image.setdefault(name, value)
    if draft.fields and rng.random() < 0.8:
        kind = {int: "int64", str: "string", bool: "boolean"}[type(value)]
        schema = _object(draft.value["schema"])
        if isinstance(schema.get("dataColumn"), list):
            own = {"int64": "LONG", "string": "STRING", "boolean": "BOOLEAN"}[kind]
            schema["dataColumn"].append({"name": name, "type": own})
        else:
            for one in schema["fields"]:
                if _object(one).get("field") in ("before", "after"):
                    one["fields"].append({"type": kind, "optional": True, "field": name})


def lone_surrogate_name(rng: Random, draft: Draft) -> None:
    draft.images[-1][raw_json(rng.choice(('"a\\ud800"', '"\\udc00"')))] = "v"


def nested_names(rng: Random, draft: Draft) -> None:
    """A structure whose members' names fold together, by the schema where there is one."""
    draft.images[-1]["nested"] = {"a": 1, "A": 2, "": 3, "a.b": 4}
    if draft.fields and isinstance(_object(draft.value["schema"]).get("fields"), list):
        members = ev.struct_schema({"a": "int32", "A": "int32", "": "int32", "a.b": "int32"})
        for one in draft.value["schema"]["fields"]:
            if _object(one).get("field") == "after":
                one["fields"].append({**members, "field": "nested"})


def field_schema(rng: Random, draft: Draft) -> None:
    """A column's schema is of another type or name, or no schema at all."""
    if not draft.fields:
        return
    one = rng.choice(draft.fields)
    if one.get("field", one.get("name")) in ("id", "part"):
        return  # a key column's type is drift, and rightly stops the table (R6)
    change = rng.choice(("type", "name", "parameters", "items", "fields"))
    options = {"type": TYPES, "name": SEMANTIC}.get(change, (None, 5, {}, [], {"scale": "x"}))
    if change == "name" and "field" not in one:
        change, options = "type", ("STRING", "LONG", "BYTES", "X", None, 5)
    one[change] = rng.choice(options)


def schema(rng: Random, draft: Draft) -> None:
    if isinstance(draft.value, dict) and "schema" in draft.value:
        draft.value["schema"] = rng.choice(
            (None, {}, [], 5, "x", {"type": "struct"}, {"fields": 5})
        )


def op(rng: Random, draft: Draft) -> None:
    ops = OTHER_OPS if draft.is_maxwell or draft.is_ogg or draft.is_cassandra else OPS
    draft.payload[draft.meta("op")] = rng.choice(ops)


def connector(rng: Random, draft: Draft) -> None:
    draft.source.pop(draft.meta("connector"), None)
    if rng.random() < 0.6:
        draft.source[draft.meta("connector")] = rng.choice(CONNECTORS)


def position(rng: Random, draft: Draft) -> None:
    """Elements of the position (O8), of this connector or of another."""
    if draft.is_maxwell or draft.is_ogg:
        names = ("position", "xoffset", "commit") if draft.is_maxwell else ("pos",)
        for name in rng.sample(names, rng.randrange(len(names)) + 1):
            draft.payload[name] = rng.choice(OTHER_POSITIONS)
        return
    if rng.random() < 0.3:
        draft.source[draft.meta("connector")] = rng.choice(
            ("sqlserver", "db2", "oracle", "mysql", "mongodb")
        )
    own = [name for name in ELEMENTS if draft.meta(name) in draft.source]
    for name in rng.sample(ELEMENTS, 2) + own[:1]:
        draft.source[draft.meta(name)] = rng.choice(POSITIONS)
    if "sequenceId" in draft.payload:
        draft.payload["sequenceId"] = rng.choice(POSITIONS)
    if rng.random() < 0.2:
        draft.payload[draft.meta("transaction")] = {"id": "1", "total_order": rng.choice(POSITIONS)}


def clock(rng: Random, draft: Draft) -> None:
    if draft.is_maxwell or draft.is_ogg:
        names = ["ts"] if draft.is_maxwell else ["op_ts", "current_ts"]
        draft.payload[rng.choice(names)] = rng.choice((rng.choice(CLOCKS), rng.choice(TIMES)))
        return
    place = rng.choice((draft.source, draft.payload))
    ends = ("ts_ms", "ts_micro") if draft.is_cassandra else "ts_ms"
    names = [n for n in place if n.endswith(ends)] or [draft.meta("ts_ms")]
    place[rng.choice(names)] = rng.choice(CLOCKS)
    times = draft.payload.get("timestamp")
    if isinstance(times, dict) and times:
        times[rng.choice(list(times))] = rng.choice(CLOCKS)


def kafka_clock(rng: Random, draft: Draft) -> None:
    """Kafka's timestamp: none, of 1970, of the year 9999, in nanoseconds."""
    clocks = (None, 0, 1, 253_402_300_799_999, 1_793_793_600_000_000_000)
    draft.record = replace(draft.record, timestamp_ms=rng.choice(clocks))


def snapshot(rng: Random, draft: Draft) -> None:
    draft.source[draft.meta("snapshot")] = rng.choice(SNAPSHOTS)


def table(rng: Random, draft: Draft) -> None:
    if draft.is_maxwell or draft.is_ogg:
        names = ("database", "table") if draft.is_maxwell else ("table",)
        options = (*TABLES, "SHOP.", ".CUSTOMERS", "PDB.SHOP.CUSTOMERS", "a..b")
        draft.payload[rng.choice(names)] = rng.choice(options)
        return
    members = ("table", "schema", "db", "namespace")
    if draft.is_mongodb or draft.is_cassandra:
        members = ("table", "keyspace", "db", "collection")
    name = draft.meta(rng.choice(members))
    draft.source[name] = rng.choice(TABLES)


def key(rng: Random, draft: Draft) -> None:
    own = MAXWELL_KEYS if draft.is_maxwell else MONGODB_KEYS if draft.is_mongodb else ()
    keys = (*KEYS, *own)
    draft.record = replace(draft.record, key=rng.choice(keys))


def no_key(rng: Random, draft: Draft) -> None:
    draft.record = replace(draft.record, key=None)


def key_column(rng: Random, draft: Draft) -> None:
    """The image lacks the key's columns, or says otherwise than the message key."""
    image = rng.choice(draft.images)
    for name in [name for name in ("id", "part") if name in image]:
        if rng.random() < 0.5:
            del image[name]
        else:
            image[name] = rng.choice(
                (None, "x", "", 7, 2**70, Decimal("7.5"), [], {}, True, ev.TOAST)
            )


def header(rng: Random, draft: Draft) -> None:
    name = rng.choice(("__debezium.newkey", "__debezium.oldkey", "x", ""))
    added = (name, rng.choice(HEADERS))
    draft.record = replace(draft.record, headers=(*draft.record.headers, added))


def unsent(rng: Random, draft: Draft) -> None:
    image = draft.images[-1]
    if draft.is_mongodb:
        draft.payload[rng.choice(("after", "after", "before", "patch", "filter"))] = rng.choice(
            DOCUMENTS
        )
        return
    if draft.is_cassandra:
        image[rng.choice(list(image) or ["id"])] = rng.choice(CELLS)
        return
    if image:
        image[rng.choice(list(image))] = rng.choice((ev.TOAST, [ev.TOAST], {ev.TOAST: ev.TOAST}))


def damage_bytes(rng: Random, draft: Draft) -> None:
    """The bytes cut, a byte changed, something before or behind them."""
    at, byte = rng.random(), rng.randrange(256)
    draft.encoded.append(
        rng.choice(
            (
                lambda data: data[: int(at * len(data))],
                lambda data: (
                    data[: int(at * len(data))] + bytes([byte]) + data[int(at * len(data)) :]
                ),
                lambda data: data + rng.choice(SUFFIXES),
                lambda data: b"\xef\xbb\xbf" + data,
                lambda data: b"\x00\x00\x00\x00\x07" + data,
                lambda data: data.replace(b'"', b"'"),
                lambda data: json.dumps(data.decode("utf-8", "replace")).encode(),
                lambda data: b"[" + data + b"]",
                lambda data: b'{"payload":' + data + b"}",
                lambda data: b" \r\n\t" + data + b" \r\n",
                lambda _: rng.choice((b"", b" ", b"null", b"{}", b"[]", b"5", b'""', b"\0")),
            )
        )
    )


def tombstone(rng: Random, draft: Draft) -> None:
    draft.value = None
    value = rng.choice((None, b"", b"null", b'{"schema":null,"payload":null}'))
    draft.record = replace(draft.record, value=value)


def again(rng: Random, draft: Draft) -> None:
    draft.copies = rng.choice((2, 2, 3))


def lost(rng: Random, draft: Draft) -> None:
    draft.copies = 0


def line(rng: Random, draft: Draft) -> None:
    """A line of the landed file that is no record lands beside this one."""
    good = ev.kcat_line(draft.record)
    draft.lines.append(
        rng.choice(
            (
                "no record",
                "{}",
                "[1]",
                good[: rng.randrange(1, len(good))],
                good.replace('"offset": ', '"offset": "x'),
                good.replace('"partition": 0', '"partition": null'),
                good.replace('"topic": ', '"topic": 5, "topic": '),
                good + "}",
            )
        )
    )


Damage = Callable[[Random, Draft], None]
MUTATIONS: Mapping[Damage, int] = {
    remove: 12, retype: 12, number: 8, text: 8, nest: 4, add: 4, double_member: 2, column: 6,
    lone_surrogate_name: 1, nested_names: 2, field_schema: 4, schema: 2, op: 4, connector: 3,
    position: 6, clock: 5, kafka_clock: 1, snapshot: 3, table: 2, key: 4, no_key: 1, key_column: 4,
    header: 3, unsent: 3, damage_bytes: 6, tombstone: 3, again: 4, lost: 1, line: 1,
}  # fmt: skip


class Mutator:
    """Changes a share of the records that it is given, each in one to three ways.

    Args:
        rng: where all draws come from.
        share: how many of the records change, between 0 and 1.
        names: the hostile column names; a table takes on each as a column.
        without: names of mutations that are left out.
        format: of the records, where some mutations have to know.
    """

    def __init__(
        self,
        rng: Random,
        *,
        share: float = 0.3,
        names: Collection[str] = NAMES,
        without: Collection[str] = (),
        format: str = "",
    ) -> None:
        known = {damage.__name__ for damage in MUTATIONS}
        if unknown := set(without) - known:
            raise ValueError(f"got the mutations {sorted(unknown)}; known are {sorted(known)}")
        self.rng, self.share, self.names, self.format = rng, share, names, format
        self._kinds = [damage for damage in MUTATIONS if damage.__name__ not in without]
        self._weights = [MUTATIONS[damage] for damage in self._kinds]

    def __call__(self, record: Record) -> list[Record]:
        """What lands instead of a good record; offsets are still those of that record."""
        rng = self.rng
        if record.malformed_line or rng.random() >= self.share:
            return [record]
        draft = Draft(record, _parsed(record.value), self.format)
        if draft.is_mongodb and draft.value is not None:
            _open_texts(draft.payload)
        for damage in rng.choices(self._kinds, self._weights, k=rng.choice((1, 1, 1, 2, 3))):
            if draft.value is None and damage not in _NEED_NO_DOCUMENT:
                continue
            if damage is column:
                column(rng, draft, self.names)
            else:
                damage(rng, draft)
        changed = draft.record
        if draft.value is not None:
            value = json_bytes(draft.value)
            for change in draft.encoded:
                value = change(value)
            changed = replace(changed, value=value)
        return [changed] * draft.copies + [ev.malformed_line(found) for found in draft.lines]


_NEED_NO_DOCUMENT = (key, no_key, header, kafka_clock, again, lost, line)


def _open_texts(payload: dict[str, Any]) -> None:
    """Make objects of the documents, so that their members change as those of rows do."""
    for image in ("before", "after"):
        text = payload.get(image)
        document = _parsed(text.encode()) if isinstance(text, str) else None
        if document is not None:
            payload[image] = Text(document)


def _parsed(value: bytes | None) -> Any:
    """The document of a good value; None where the value is no JSON object."""
    try:
        document = json.loads(value or b"null", parse_float=Decimal)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
