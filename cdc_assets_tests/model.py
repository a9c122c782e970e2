"""A plain-Python reference of FORMATS.md: slow and obvious, the referee of the Spark code.

Three questions about a source and what has landed, each a function of the whole history:

- ``classify``: where does each record go, as what, with which key and position?
- ``tables``: what does each configured table hold at the end of each day?
- ``lag``: how late were the changes of each day?

Only the standard library, nothing from the package: what both get wrong, they get wrong twice.
Rule ids (D1, O4, R2 …) are those of FORMATS.md; "section 4" is DESIGN.md's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
import struct
import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Literal

Destination = Literal["changes", "control", "quarantine"]
Landed = dict[date, list["Record"]]


@dataclass(frozen=True)
class Record:
    """One landed Kafka record; ``timestamp_ms`` is Kafka's, in ms UTC."""

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    malformed_line: bool = False  # the landed line itself was no record


@dataclass(frozen=True)
class Classified:
    """Where a record goes. All but record, day and reason are None for a quarantined one."""

    record: Record
    day: date
    destination: Destination
    reason: str | None = None
    op: str | None = None
    source_op: str | None = None
    table_name: str | None = None
    key: str | None = None
    old_key: str | None = None
    new_key: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    source_ts_ms: int | None = None
    processed_ts_ms: int | None = None
    is_snapshot: bool = False
    position: tuple[int, ...] | None = None


class TableError(Exception):
    """Raised when a day of a table can't be published; names table, column and day."""

    def __init__(self, message: str, *, table: str, column: str, day: date) -> None:
        super().__init__(f"{table}.{column}, {day}: {message}")
        self.table, self.column, self.day = table, column, day


class InferredTypeError(TableError):
    """Raised when a value doesn't fit the type that its column was inferred to have (R3)."""


class KeyTypeError(TableError):
    """Raised when a key column changes to a type that its own can't take (R6)."""


class KeyColumnsError(TableError):
    """Raised when the keys of messages name different columns and nobody says which (D5, R6)."""


def classify(source: dict[str, Any], landed: Landed) -> dict[date, list[Classified]]:
    """One Classified for each landed record, in the order in which the day's records landed."""
    with deep_recursion():
        return {day: [e.public() for e in events] for day, events in _events(source, landed)}


def tables(source: dict[str, Any], landed: Landed) -> dict[date, dict[str, list[dict[str, Any]]]]:
    """Day → configured table → its rows at the end of that day, own columns only.

    Every day from the first to the last that landed is there, in order. A table is absent before
    its ``start_date``. Rows of a table are in the order of their keys' text.

    Raises: InferredTypeError (R3), KeyTypeError, KeyColumnsError (R6).
    """
    if not landed:
        return {}
    with deep_recursion():
        events = dict(_events(source, landed))
        first, last = min(landed), max(landed)
        days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        result: dict[date, dict[str, list[dict[str, Any]]]] = {day: {} for day in days}
        for name, config in _table_configs(source).items():
            state = _table_state(name, config, source, events)
            start = _as_date(config.get("start_date")) or first
            for day in days:
                own = [
                    e
                    for e in events.get(day, [])
                    if e.destination == "changes" and e.table_name == name
                ]
                state.place(own)
                if day < start:
                    state.look_on(day, own)
                else:
                    state.merge(day, own)
                    result[day][name] = state.rows()
        return result


def lag(source: dict[str, Any], landed: Landed) -> dict[date, list[dict[str, Any]]]:
    """Day → rows of the ``lag`` table: for each table and kind one a source hour, one for the day.

    ``hour`` is the start of the hour in ms UTC, None for the whole day; snapshot reads count in the
    whole day alone. A group in which all is excluded has count 0 and no numbers. ``complete`` is
    always True: the model has no clock.
    """
    with deep_recursion():
        return {day: _lag_of_day(day, events) for day, events in _events(source, landed)}


# ---------------------------------------------------------------------------------------------
# JSON, strict and exact
# ---------------------------------------------------------------------------------------------

MAX_DEPTH = 1000


class NotJsonError(ValueError):
    """Raised when bytes are not exactly one strict JSON document."""


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Documents nest up to 1000 levels, and a level costs the functions here a few frames."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 20_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def parse_json(data: bytes) -> Any:
    """Integers become int, other numbers Decimal: no number passes through a double (R3).

    Raises: NotJsonError for trailing text, NaN, duplicate names, bad UTF-8, a BOM, more than
    1000 levels … (D19).
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJsonError(str(error)) from error
    if _depth(text) > MAX_DEPTH:
        raise NotJsonError(f"more than {MAX_DEPTH} levels")
    try:
        document = json.loads(
            text,
            parse_int=_integer,
            parse_float=_fraction,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique_names,
        )
    except ValueError as error:
        raise NotJsonError(str(error)) from error
    # Java writes a lone surrogate, which only an escape can spell, as "?".
    return _without_lone_surrogates(document) if "\\u" in text else document


def _depth(text: str) -> int:
    depth = deepest = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= 4000 else Decimal(text)  # Python limits int() to 4300 digits


def _fraction(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of nineteen digits and more: no column holds it (R4)
        return Decimal("Infinity")


def _refuse_constant(text: str) -> Any:
    raise NotJsonError(f"{text} is not JSON")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise NotJsonError("a name twice in one object")
    return result


def _without_lone_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_without_lone_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {_without_lone_surrogates(k): _without_lone_surrogates(v) for k, v in value.items()}
    return value


def json_text(value: Any) -> str:
    """Compact JSON, names sorted, numbers exact: what a nested value is as text."""
    if isinstance(value, dict):
        members = (f"{_quoted(k)}:{json_text(value[k])}" for k in sorted(value))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(json_text(v) for v in value) + "]"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Decimal):
        return number_text(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def number_text(number: Decimal) -> str:
    """Plain digits without trailing zeros (scientific beyond 400 digits)."""
    if not number.is_finite():
        return str(number)
    stripped = _strip(number)
    return format(stripped, "f") if abs(stripped.adjusted()) < 400 else str(stripped)


def _strip(number: Decimal) -> Decimal:
    """The same number without trailing zeros; Decimal.normalize would round to 28 digits."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return number
    kept = list(digits)
    while kept and kept[-1] == 0:
        kept.pop()
        exponent += 1
    return Decimal((sign, tuple(kept), exponent)) if kept else Decimal(0)


def key_text(key: dict[str, Any]) -> str:
    """The canonical text of a key: section 4, ``changes.key``."""
    return json_text({name: _key_member(value) for name, value in key.items()})


class _AsSent(Decimal):
    """A number of a key whose column's type nobody knows: it stands as JSON wrote it."""


def _key_member(value: Any) -> Any:
    if isinstance(value, Decimal) and not isinstance(value, _AsSent):
        return number_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (date, datetime)):
        return _iso(value)
    if isinstance(value, dict):
        return {name: _key_member(v) for name, v in value.items()}
    if isinstance(value, list):
        return [_key_member(v) for v in value]
    return value


def _iso(value: date | datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")


# ---------------------------------------------------------------------------------------------
# Small readings
# ---------------------------------------------------------------------------------------------

NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"-?\d+", re.ASCII)


def _int(value: Any) -> int | None:
    """An integer that may come as text (``"ts_ms": "1580390884335"`` in the documents)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= 4000 and WHOLE.fullmatch(value):
        return int(value)
    if isinstance(value, Decimal) and value.is_finite():
        sign, digits, exponent = value.as_tuple()  # 1.0 is the number 1
        if isinstance(exponent, int) and -38 <= exponent < 0 and not any(digits[exponent:]):
            return int(Decimal((sign, digits[:exponent], 0)))
    return None


def _long(value: Any) -> int | None:
    """As :func:`_int`, where a column of 64 bits holds it."""
    number = _int(value)
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _dict(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _as_date(value: Any) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    return date.fromisoformat(value) if isinstance(value, str) else value


def _instant_ms(value: str | datetime) -> int:
    if isinstance(value, str):
        value = datetime.fromisoformat(value.replace("Z", "+00:00"))
    if value.tzinfo is None:
        value = value.replace(tzinfo=timezone.utc)
    return (value - EPOCH_UTC) // timedelta(milliseconds=1)


def _table_configs(source: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: config or {} for name, config in (source.get("tables") or {}).items()}


def full_name(namespace: str, table: str) -> str:
    """``namespace.table``; a part that holds a dot or a quote is quoted."""
    parts = (
        '"' + part.replace('"', '""') + '"' if "." in part or '"' in part else part
        for part in (namespace, table)
    )
    return ".".join(parts)


# ---------------------------------------------------------------------------------------------
# Types (R3–R5). A column type is a tuple: ("bigint",), ("decimal", 10, 2), ("array", element) …
# A "wire" is a Connect field schema: it says how a type is written in JSON.
# ---------------------------------------------------------------------------------------------

Type = tuple[Any, ...]
Wire = dict[str, Any]

EPOCH = datetime(1970, 1, 1)
EPOCH_UTC = EPOCH.replace(tzinfo=timezone.utc)
INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

BASE_TYPES: dict[str, Type] = {
    "boolean": ("boolean",),
    "int8": ("int",),
    "int16": ("int",),
    "int32": ("int",),
    "int64": ("bigint",),
    "float": ("float",),
    "float32": ("float",),
    "double": ("double",),
    "float64": ("double",),
    "string": ("string",),
    "bytes": ("binary",),
}

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
GEOMETRY = "io.debezium.data.geometry."
DATAWORKS_DATE = "dataworks.Date"

# name → (column type, how many of the unit are a microsecond: (numerator, denominator))
MS, US, NS = (1000, 1), (1, 1), (1, 1000)
TIMES: dict[str, tuple[Type, tuple[int, int]]] = {
    "io.debezium.time.Timestamp": (("timestamp_ntz",), MS),
    "io.debezium.time.MicroTimestamp": (("timestamp_ntz",), US),
    "io.debezium.time.NanoTimestamp": (("timestamp_ntz",), NS),
    "org.apache.kafka.connect.data.Timestamp": (("timestamp_ntz",), MS),
    DATAWORKS_DATE: (("timestamp",), MS),  # W5
    "io.debezium.time.Time": (("bigint",), MS),
    "io.debezium.time.MicroTime": (("bigint",), US),
    "io.debezium.time.NanoTime": (("bigint",), NS),
    "org.apache.kafka.connect.data.Time": (("bigint",), MS),
}
NAMED_TYPES: dict[str, Type] = {
    "io.debezium.time.Date": ("date",),
    "org.apache.kafka.connect.data.Date": ("date",),
    "io.debezium.time.ZonedTimestamp": ("timestamp",),
    "io.debezium.time.IsoDate": ("date",),
    "io.debezium.time.IsoTimestamp": ("timestamp_ntz",),
    "io.debezium.time.MicroDuration": ("bigint",),
    "io.debezium.time.Year": ("int",),
    VARIABLE_SCALE_DECIMAL: ("string",),
    **{name: column_type for name, (column_type, _) in TIMES.items()},
}
# W5
DATAWORKS_WIRES: dict[str, Wire] = {
    "BOOLEAN": {"type": "boolean"},
    "DOUBLE": {"type": "double"},
    "DATE": {"type": "int64", "name": DATAWORKS_DATE},
    "BYTES": {"type": "bytes"},
    "LONG": {"type": "int64"},
    "STRING": {"type": "string"},
}


class DoesNotFitError(ValueError):
    """Raised when a column type can't hold a value (R4)."""


def wire_type(wire: Wire) -> Type | None:
    """The column type of a field schema (the table in R3); None where it says nothing."""
    name, base = wire.get("name"), wire.get("type")
    if isinstance(base, dict):  # {"type": {"type": "int32"}} is seen in nested schemas
        return wire_type(base)
    if not isinstance(base, str):
        return None
    base = base.lower()
    if name == DECIMAL:
        precision, scale = _decimal_parameters(wire)
        return ("decimal", precision, scale) if 0 <= scale <= precision <= 38 else ("string",)
    if isinstance(name, str) and name in NAMED_TYPES:
        return NAMED_TYPES[name]
    if isinstance(name, str) and name.startswith(GEOMETRY):
        return ("struct", (("wkb", ("binary",)), ("srid", ("int",))))
    if base == "array":
        element = wire_type(_dict(wire.get("items")) or {})
        return ("array", element) if element else None
    if base == "map":
        key = wire_type(_dict(wire.get("keys")) or {"type": "string"})
        value = wire_type(_dict(wire.get("values")) or {})
        return ("map", key, value) if key and value else None
    if base == "struct":
        members = tuple((n, wire_type(w)) for n, w in schema_fields(wire).items())
        named = [_struct_member(w) for w in wire.get("fields") or []]
        if not all(named) or len(set(named)) != len(named):
            return ("string",)  # no column has such members: its JSON text
        return ("struct", members) if members and all(t for _, t in members) else None
    return BASE_TYPES.get(base)


def _struct_member(wire: Any) -> str:
    name = wire.get("field", wire.get("name")) if isinstance(wire, dict) else None
    return name if isinstance(name, str) else ""


def _decimal_parameters(wire: Wire) -> tuple[int, int]:
    parameters = _dict(wire.get("parameters")) or {}
    precision = _int(parameters.get("connect.decimal.precision"))
    scale = _int(parameters.get("scale"))
    return (38 if precision is None else precision), (0 if scale is None else scale)


def _levels(value: Any) -> int:
    """How deep a document nests."""
    deepest, level = 0, [value]
    while level := [v for v in level if isinstance(v, (dict, list))]:
        deepest += 1
        inner = (v.values() if isinstance(v, dict) else v for v in level)
        level = [member for members in inner for member in members]
    return deepest


def schema_fields(schema: Any) -> dict[str, Wire]:
    """Name → field schema, also of the documents' form {"name":…, "schema": {"type":…}} (D5)."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if _levels(schema) > 200:  # no table's schema is so deep
        fields = None
    result = {}
    for wire in fields if isinstance(fields, list) else []:
        if not isinstance(wire, dict):
            continue
        if isinstance(wire.get("field"), str):
            result[wire["field"]] = wire
        elif isinstance(wire.get("name"), str) and isinstance(wire.get("schema"), dict):
            result[wire["name"]] = wire["schema"]
    return result


def read_wire(wire: Wire, raw: Any) -> Any:
    """A JSON value as its field schema means it. Raises: DoesNotFitError."""
    name, base = wire.get("name"), wire.get("type")
    if raw is None:
        return None
    if isinstance(base, dict):
        return read_wire(base, raw)
    base = base.lower() if isinstance(base, str) else None
    if name == DECIMAL:
        number = _connect_decimal(wire, raw)
        return number if wire_type(wire) != ("string",) else format(number, "f")
    if name == VARIABLE_SCALE_DECIMAL:
        return _variable_scale_decimal(raw)
    if name in ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"):
        return _date(_exact_int(raw))
    if isinstance(name, str) and name in TIMES:
        column_type, (numerator, denominator) = TIMES[name]
        micros = _exact_int(raw) * numerator // denominator  # ns are floored
        if column_type == ("bigint",):
            return micros
        return _from_micros(micros, EPOCH_UTC if column_type == ("timestamp",) else EPOCH)
    if base == "array":
        if not isinstance(raw, list):
            raise DoesNotFitError("not an array")
        return [read_wire(_dict(wire.get("items")) or {}, v) for v in raw]
    if base == "map":
        return _map_members(wire, raw)
    if base == "struct":
        if not isinstance(raw, dict):
            raise DoesNotFitError("not an object")
        if isinstance(name, str) and name.startswith(GEOMETRY):
            return {"wkb": raw["wkb"], "srid": raw.get("srid")} if raw.get("wkb") else None
        fields = schema_fields(wire)
        return {n: read_wire(fields[n], v) if n in fields else v for n, v in raw.items()}
    if isinstance(raw, (list, dict)):
        return json_text(raw)  # a type that holds no members reads them as text
    return raw  # hold() reads base64, ISO text and numbers


def _connect_decimal(wire: Wire, raw: Any) -> Decimal:
    if isinstance(raw, str):
        _, scale = _decimal_parameters(wire)
        return _unscaled(raw, scale)
    return _exact_number(raw)


def _variable_scale_decimal(raw: Any) -> str:
    if not isinstance(raw, dict):
        return number_text(_exact_number(raw))
    scale, value = _int(raw.get("scale")), raw.get("value")
    if scale is None or not isinstance(value, str):
        raise DoesNotFitError("no scale and value")
    return format(_unscaled(value, scale), "f")


def _unscaled(text: str, scale: int) -> Decimal:
    """Big-endian two's complement in base64, and a scale."""
    data = _from_base64(text)
    if not data or len(data) > 1000 or abs(scale) > 10_000:
        raise DoesNotFitError("no decimal")
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = tuple(int(d) for d in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


def _map_members(wire: Wire, raw: Any) -> dict[Any, Any]:
    keys, values = _dict(wire.get("keys")) or {"type": "string"}, _dict(wire.get("values")) or {}
    if isinstance(raw, dict):
        pairs = list(raw.items())
    elif isinstance(raw, list) and all(isinstance(p, list) and len(p) == 2 for p in raw):
        pairs = [(p[0], p[1]) for p in raw]  # how Connect writes a map whose keys are not text
    else:
        raise DoesNotFitError("not a map")
    return {read_wire(keys, k): read_wire(values, v) for k, v in pairs}


def hold(value: Any, column_type: Type) -> Any:
    """The value as the column holds it. Raises: DoesNotFitError (R4)."""
    kind = column_type[0]
    if value is None:
        return None
    if kind in INTEGERS:
        number = _exact_int(value)
        bits = INTEGERS[kind] - 1
        if not -(2**bits) <= number < 2**bits:
            raise DoesNotFitError(f"{number} is beyond {kind}")
        return number
    if kind in ("float", "double"):
        return _floating(value, kind)
    if kind == "decimal":
        return _fixed(_exact_number(value), *column_type[1:])
    if kind == "string":
        return _text(value)
    if kind == "boolean" and json_text(value).strip('"') in ("true", "false", "0", "1"):
        return json_text(value).strip('"') in ("true", "1")
    if kind == "binary" and isinstance(value, (bytes, str)):
        return value if isinstance(value, bytes) else _from_base64(value)
    if kind == "date":
        return _date(value)
    if kind in ("timestamp", "timestamp_ntz"):
        return _timestamp(value, zoned=kind == "timestamp")
    if kind == "array" and isinstance(value, list):
        return [hold(v, column_type[1]) for v in value]
    if kind == "map" and isinstance(value, dict):
        return {hold(k, column_type[1]): hold(v, column_type[2]) for k, v in value.items()}
    if kind == "struct" and isinstance(value, dict):
        return {name: hold(value.get(name), member) for name, member in column_type[1]}
    raise DoesNotFitError(f"{type(value).__name__} in {kind}")


def _exact_number(value: Any) -> Decimal:
    if isinstance(value, str) and NUMBER.fullmatch(value):
        value = _fraction(value)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise DoesNotFitError("not a number")
    return Decimal(value)


def _exact_int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and "e" in value.lower():
        raise DoesNotFitError("no whole number as text")
    number = _exact_number(value)
    if not number.is_finite() or number.adjusted() > 400:
        raise DoesNotFitError("beyond all integers")
    number = _strip(number)
    if number.adjusted() < 0 and number != 0:
        raise DoesNotFitError("a fraction")
    if int(number) != number:
        raise DoesNotFitError("a fraction")
    return int(number)


def _floating(value: Any, kind: str) -> float:
    if isinstance(value, str) and value.lower() in ("nan", "infinity", "-infinity"):
        return float(value)
    number = value if isinstance(value, float) else float(_exact_number(value))
    if kind == "float":
        try:
            number = struct.unpack("f", struct.pack("f", number))[0]
        except OverflowError as error:
            raise DoesNotFitError("beyond float") from error
    if number in (float("inf"), float("-inf")):
        raise DoesNotFitError(f"beyond {kind}")
    return number


def _fixed(number: Decimal, precision: int, scale: int) -> Decimal:
    if not number.is_finite():
        raise DoesNotFitError("not finite")
    stripped = _strip(number)
    exponent = stripped.as_tuple().exponent
    fits = isinstance(exponent, int) and exponent >= -scale
    if stripped != 0 and not (fits and stripped.adjusted() < precision - scale):
        raise DoesNotFitError(f"beyond decimal({precision},{scale})")
    return stripped.quantize(Decimal((0, (1,), -scale)), context=Context(prec=100))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (date, datetime)):
        return _iso(value)
    return json_text(value)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DoesNotFitError("not base64") from error


ISO_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(Z|[+-]\d{2}:?\d{2})?", re.ASCII)
ISO_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?)?"
    r"(Z|[+-]\d{2}(?::?\d{2})?)?",
    re.ASCII,
)


def _date(value: Any) -> date:
    """Days since 1970, or ISO text."""
    try:
        if isinstance(value, datetime):
            return value.date()
        if isinstance(value, date):
            return value
        if isinstance(value, str) and (found := ISO_DATE.match(value)):
            return date(*(int(part) for part in found.groups()[:3]))
        return (EPOCH + timedelta(days=_exact_int(value))).date()
    except (OverflowError, ValueError) as error:
        raise DoesNotFitError("no date of the years 1 to 9999") from error


def _timestamp(value: Any, *, zoned: bool) -> datetime:
    """ISO text (without an offset: UTC), or a number of ms since 1970."""
    if isinstance(value, (int, Decimal)) or (isinstance(value, str) and WHOLE.fullmatch(value)):
        return _from_micros(_exact_int(value) * 1000, EPOCH_UTC if zoned else EPOCH)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.replace(tzinfo=timezone.utc) if zoned else value
        utc = value.astimezone(timezone.utc)
        return utc if zoned else utc.replace(tzinfo=None)
    found = ISO_TIMESTAMP.fullmatch(value) if isinstance(value, str) else None
    if not found:
        raise DoesNotFitError("no timestamp")
    *clock, fraction, offset = found.groups()
    micros = int(((fraction or "") + "000000")[:6])  # floored
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in clock)
        local = datetime(year, month, day, hour, minute, second, micros)
        utc = local - _offset(offset) if zoned else local
    except (OverflowError, ValueError) as error:
        raise DoesNotFitError("no timestamp of the years 1 to 9999") from error
    return utc.replace(tzinfo=timezone.utc) if zoned else utc


def _offset(text: str | None) -> timedelta:
    if text in (None, "Z"):
        return timedelta()
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return timedelta(minutes=-minutes if text[0] == "-" else minutes)


def _from_micros(micros: int, epoch: datetime) -> datetime:
    try:
        return epoch + timedelta(microseconds=micros)
    except OverflowError as error:
        raise DoesNotFitError("no timestamp of the years 1 to 9999") from error


def widen(old: Type, new: Type) -> Type | None:
    """The type that holds both where R5 allows it (new may be the narrower); else None."""
    if old == new:
        return old
    for ladder in (("tinyint", "smallint", "int", "bigint"), ("float", "double")):
        if old[0] in ladder and new[0] in ladder:
            return (ladder[max(ladder.index(old[0]), ladder.index(new[0]))],)
    if old[0] == new[0] == "decimal" and old[2] == new[2]:
        return ("decimal", max(old[1], new[1]), old[2])
    if old[0] == new[0] == "array" and (element := widen(old[1], new[1])):
        return ("array", element)
    if old[0] == new[0] == "map" and old[1] == new[1] and (value := widen(old[2], new[2])):
        return ("map", old[1], value)
    if old[0] == new[0] == "struct":
        members = dict(old[1])
        for name, member in new[1]:
            wider = widen(members.get(name, member), member)
            if wider is None:
                return None
            members[name] = wider
        return ("struct", tuple(members.items()))
    return None


def grown(value: Any, column_type: Type) -> Any:
    """A value that was held before its struct gained members: these are null (R5)."""
    if column_type[0] == "array" and isinstance(value, list):
        return [grown(v, column_type[1]) for v in value]
    if column_type[0] == "map" and isinstance(value, dict):
        return {k: grown(v, column_type[2]) for k, v in value.items()}
    if column_type[0] == "struct" and isinstance(value, dict):
        return {name: grown(value.get(name), member) for name, member in column_type[1]}
    return value


def infer(values: Iterable[Any]) -> Type:
    """The type of JSON values that neither schema nor configuration know (R3)."""
    kinds = {_json_kind(value) for value in values}
    if kinds <= {"integer"}:
        return ("bigint",)
    if kinds <= {"integer", "fraction"}:
        return ("double",)
    return ("boolean",) if kinds == {"boolean"} else ("string",)


def _json_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, Decimal):  # Spark's VARIANT doesn't tell 1.0 from 1
        exponent = value.as_tuple().exponent
        is_whole = isinstance(exponent, int) and exponent < 0 and value == value.to_integral_value()
        return "integer" if is_whole else "fraction"
    return "text"


TYPE_NAMES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "numeric": "decimal",
    "dec": "decimal",
    "bytes": "binary",
    "bool": "boolean",
    "timestamp_ltz": "timestamp",
    "varchar": "string",
    "char": "string",
    "text": "string",
}


def parse_type(text: str) -> Type:
    """A configured type, as Spark's DDL writes it: ``decimal(10,2)``, ``array<int>`` …"""
    text = text.strip()
    found = re.fullmatch(r"(\w+)\s*(?:\((.*)\)|<(.*)>)?", text, re.DOTALL)
    if not found:
        raise ValueError(f"no type: {text}")
    name = TYPE_NAMES.get(found[1].lower(), found[1].lower())
    if name == "decimal":
        parts = [int(p) for p in (found[2] or "10,0").split(",")]
        return ("decimal", parts[0], parts[1] if len(parts) > 1 else 0)
    if name in ("array", "map"):
        return (name, *(parse_type(p) for p in _split_type(found[3])))
    if name == "struct":
        members = (re.split(r"\s*:\s*|\s+", p.strip(), maxsplit=1) for p in _split_type(found[3]))
        return ("struct", tuple((n, parse_type(t)) for n, t in members))
    return (name,)


def _split_type(text: str) -> list[str]:
    parts, depth = [""], 0
    for char in text:
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


class Placeholder:
    """The ways in which "unchanged, not sent" is written (R2)."""

    def __init__(self, text: str) -> None:
        data = text.encode()
        encoded = base64.b64encode(data).decode()
        digest = bytearray(hashlib.md5(data).digest())
        digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
        name_uuid = str(uuid.UUID(bytes=bytes(digest)))  # Java's UUID.nameUUIDFromBytes
        self.texts = {text, encoded, json_text({text: text})}
        self.arrays = [[text], [encoded], [name_uuid], [ord(char) for char in text]]
        self.map = {text: text}

    def __call__(self, raw: Any) -> bool:
        if isinstance(raw, str):
            return raw in self.texts
        if isinstance(raw, list):
            return raw in self.arrays
        return bool(raw == self.map)


# ---------------------------------------------------------------------------------------------
# Envelopes: what a record says
# ---------------------------------------------------------------------------------------------


class QuarantinedError(Exception):
    """Raised when a record can't be understood; carries the reason code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ControlledError(Exception):
    """Raised to leave the reading of a record that changes no row."""


@dataclass
class KeyDocument:
    """A message key or key header: missing, garbage, scalar or struct (D6)."""

    state: Literal["missing", "garbage", "scalar", "struct"]
    value: Any = None
    wires: dict[str, Wire] = field(default_factory=dict)


@dataclass
class Event:
    """A record and all that is known of it."""

    record: Record
    day: date
    destination: Destination = "changes"
    reason: str | None = None
    op: str | None = None
    source_op: str | None = None
    table_name: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    source_ts_ms: int | None = None
    processed_ts_ms: int | None = None
    is_snapshot: bool = False
    is_tombstone: bool = False
    half: Literal["before", "after"] | None = None  # of a split DataWorks update
    sequence_id: int | None = None
    elements: tuple[int, ...] = ()  # O8
    has_elements: bool = False
    own_elements: tuple[int | None, ...] = ()  # before anything stands in for them
    basis: str = ""  # what the elements are; those of different bases can't be compared (O8)
    total_order: int = 0
    position: tuple[int, ...] | None = None
    key: dict[str, Any] | None = None  # column → value, read with its type
    old_key: dict[str, Any] | None = None
    new_key: dict[str, Any] | None = None
    wires: dict[str, Wire] = field(default_factory=dict)  # column → field schema
    has_own_schema: bool = False  # the message names its columns, so that none is inferred (R3)
    source_key: list[str] | None = None  # the key columns that the producer names (W4)
    ordinal: int = 0  # O14

    @property
    def removes(self) -> bool:
        return self.op == "d"

    @property
    def writes(self) -> bool:
        """A row is there after it; a BEFOR half writes none (W3)."""
        return self.op in ("c", "u", "r") and self.half != "before"

    def image(self) -> dict[str, Any]:
        """The row written: ``after``, and key columns that only the message key has."""
        return {**(self.key or {}), **(self.after or {})}

    def public(self) -> Classified:
        if self.destination == "quarantine":
            return Classified(self.record, self.day, "quarantine", self.reason)
        return Classified(
            record=self.record,
            day=self.day,
            destination=self.destination,
            reason=None,
            op=self.op,
            source_op=self.source_op,
            table_name=self.table_name,
            key=None if self.key is None else key_text(self.key),
            old_key=None if self.old_key is None else key_text(self.old_key),
            new_key=None if self.new_key is None else key_text(self.new_key),
            before=self.before if self.destination == "changes" else None,
            after=self.after if self.destination == "changes" else None,
            source_ts_ms=self.source_ts_ms,
            processed_ts_ms=self.processed_ts_ms,
            is_snapshot=self.is_snapshot,
            position=self.position,
        )


def _events(
    source: dict[str, Any],
    landed: Landed,
    misfits: frozenset[tuple[date, int]] = frozenset(),
) -> list[tuple[date, list[Event]]]:
    """All records of all days, classified.

    `misfits` (day, number in the day) have keys that are not their table's, so that they say
    nothing of its types; they are found by reading everything once.
    """
    configs = _table_configs(source)
    placeholder = Placeholder(_unavailable_value(source))
    days: list[tuple[date, list[Event]]] = []
    for day in sorted(landed):
        days.append((day, [_read_record(source, _as_landed(r), day) for r in landed[day]]))
    written = {id(e): dict(e.wires) for _, events in days for e in events}
    for has_schema in (True, False):
        for _, events in days:
            for event in events:
                is_row = event.destination == "changes" and not event.is_tombstone
                if is_row and bool(written[id(event)]) is has_schema:
                    _set_keys(source, configs, placeholder, event)
                    _set_position(source, event)
        if has_schema:
            silent = {id(e[n]) for day, e in days for n in range(len(e)) if (day, n) in misfits}
            _lend_schemas([events for _, events in days], written, silent)
    _settle_tombstones(source, configs, placeholder, days)
    found = _judge_keys(configs, days)
    if found and not misfits:
        return _events(source, landed, found)
    _number_runs([event for _, events in days for event in events])
    return days


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


def _unavailable_value(source: dict[str, Any]) -> str:
    return source.get("unavailable_value") or "__debezium_unavailable_value"


def _read_record(source: dict[str, Any], record: Record, day: date) -> Event:
    """The envelope of a record; its key is read later."""
    event = Event(record, day)
    try:
        if record.malformed_line:
            raise QuarantinedError("malformed_landing_line")
        document = _value_document(record.value)
        if document is None:  # D11: also the text `null` and empty bytes
            event.is_tombstone = True
        elif not isinstance(document, dict):
            raise QuarantinedError("not_an_envelope")
        else:
            READERS[source.get("format", "debezium")](document, event)
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
    schema = _dict(document.get("schema"))
    if "payload" in document:
        payload = document["payload"]
        if isinstance(payload, dict) or set(document) <= {"schema", "payload"}:
            return schema, payload
    return None, document


def _read_debezium(document: dict[str, Any], event: Event, *, lindorm: bool = False) -> None:
    schema, payload = _unwrap(document)
    if payload is None:
        event.is_tombstone = True
        return
    if not isinstance(payload, dict):
        raise QuarantinedError("not_an_envelope")
    op, source = payload.get("op"), _dict(payload.get("source")) or {}
    event.before, event.after = _dict(payload.get("before")), _dict(payload.get("after"))
    event.source_ts_ms = _long(source.get("ts_ms"))
    event.processed_ts_ms = _long(payload.get("ts_ms"))
    namespace = "namespace" if lindorm else "db" if source.get("schema") is None else "schema"
    _set_table(event, source.get(namespace), source.get("table"))  # D4, L2

    if op is None:
        _read_without_op(payload, event)
    if not any(name in payload for name in ("source", "before", "after")):
        raise QuarantinedError("not_an_envelope")
    event.source_op = event.op = op if isinstance(op, str) else None
    if op != "m" and isinstance(payload.get("ts_ms"), dict):  # Avro's JSON encoding
        raise QuarantinedError("not_an_envelope")
    if op not in (("c", "u", "d", "r") if lindorm else ("c", "u", "d", "r", "t", "m")):  # D3, L3
        raise QuarantinedError("unknown_op")
    if op == "m":  # D13
        _control(event, "message")
    event.op = op
    if event.table_name is None:
        raise QuarantinedError("missing_table")
    if event.writes and event.after is None:
        raise QuarantinedError("missing_image")

    # D14. A truncate is never read in a snapshot, whatever its mark says.
    mark = source.get("snapshot")
    event.is_snapshot = op != "t" and (op == "r" or _is_mark(mark))
    _set_elements(
        event, *((SOURCE_TIME, [source.get("ts_ms")]) if lindorm else _source_elements(source))
    )
    transaction = _dict(payload.get("transaction")) or {}
    event.total_order = max(_long(transaction.get("total_order")) or 0, 0)

    envelope = schema_fields(schema)
    rows = [schema_fields(envelope.get(name)) for name in ("after", "before")]
    event.wires = rows[0] or rows[1]


def _is_mark(mark: Any) -> bool:
    return not (mark is None or mark is False or mark == "false")  # 0 is a mark, and 0 == False


def _read_without_op(payload: dict[str, Any], event: Event) -> None:
    """D16: what has no op may still be understood."""
    if "ddl" in payload:
        _control(event, "ddl")
    if payload.get("status") in ("BEGIN", "END") and "id" in payload:
        _control(event, "transaction")
    if _long(payload.get("ts_ms")) is not None and all(n.startswith("ts_") for n in payload):
        _control(event, "heartbeat")
    if any(isinstance(payload.get(name), dict) for name in ("source", "before", "after")):
        raise QuarantinedError("missing_op")
    raise QuarantinedError("not_an_envelope")


def _read_lindorm(document: dict[str, Any], event: Event) -> None:
    _read_debezium(document, event, lindorm=True)


def _read_flat(document: dict[str, Any], event: Event) -> None:
    """D18: ExtractNewRecordState puts what it keeps of the envelope into ``__`` fields."""
    marks = ("__op", "__deleted")
    is_bare = any(mark in document for mark in marks)
    schema, row = (None, document) if is_bare else _unwrap(document)
    if row is None:
        event.is_tombstone = True
        return
    if not isinstance(row, dict):
        raise QuarantinedError("not_an_envelope")
    if not any(mark in row for mark in marks):
        # The transform leaves what is no row event as it was (D13, D16).
        if row.get("op") == "m":
            _read_debezium(document, event)
        if not any(name in row for name in ("op", "source", "before", "after")):
            _read_without_op(row, event)
        raise QuarantinedError("not_an_envelope")

    def meta(name: str) -> Any:
        return row.get(f"__source_{name}", row.get(f"__{name}"))

    deleted = row.get("__deleted") in (True, "true")
    op = row.get("__op")
    if op is None and row.get("__deleted") is None:
        raise QuarantinedError("missing_op")
    if op is None:
        op = "d" if deleted else "u"
    if op not in ("c", "u", "d", "r", "t"):
        raise QuarantinedError("unknown_op")
    event.op, event.source_op = ("d" if deleted else op), _name(row.get("__op"))
    namespace = "db" if meta("schema") is None else "schema"
    _set_table(event, meta(namespace), meta("table"))
    if event.table_name is None:
        raise QuarantinedError("missing_table")
    own = {name: value for name, value in row.items() if not name.startswith("__")}
    if event.op == "d":
        event.before = own
    elif event.op != "t":
        event.after = own
    event.source_ts_ms = _long(row.get("__source_ts_ms"))
    event.processed_ts_ms = _long(row.get("__ts_ms"))
    mark = meta("snapshot")
    event.is_snapshot = event.op != "t" and (event.op == "r" or _is_mark(mark))
    names = ("connector", "lsn", "file", "pos", "row", "commit_lsn", "change_lsn", "ord")
    others = ("event_serial_no", "commit_scn", "scn", "ssn", "commit_ts")
    source = {name: meta(name) for name in (*names, *others)}
    if source["connector"] is None and source["lsn"] is not None:
        source["connector"] = "postgresql"
    _set_elements(event, *_source_elements({**source, "ts_ms": row.get("__source_ts_ms")}))
    event.total_order = max(_long(row.get("__transaction_total_order")) or 0, 0)
    event.wires = {n: w for n, w in schema_fields(schema).items() if not n.startswith("__")}


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
    payload, schema = document["payload"], _dict(document.get("schema"))
    if payload is None:
        event.is_tombstone = True
        return
    if not isinstance(payload, dict) or schema is None:
        raise QuarantinedError("not_an_envelope")
    source = _dict(schema.get("source"))
    before, after, op = _dict(payload.get("before")), _dict(payload.get("after")), payload.get("op")
    times = _dict(payload.get("timestamp")) or {}
    event.source_ts_ms = _long(times.get("eventTime"))
    event.processed_ts_ms = _long(times.get("systemTime"))  # W6: may be absent
    event.before = _dict((before or {}).get("dataColumn"))
    event.after = _dict((after or {}).get("dataColumn"))
    db, inner = _name((source or {}).get("dbName")), _name((source or {}).get("schemaName"))
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
    number = _int(payload.get("sequenceId"))
    event.sequence_id = number if number is not None and 0 <= number < 10**39 else None
    thirds: list[int | None] = [None, None, None]
    if event.sequence_id is not None:
        high, low = divmod(event.sequence_id, 10**13)
        thirds = [*divmod(high, 10**13), low]
    _set_elements(event, "sequenceId", list(thirds))
    event.sequence_id = event.sequence_id or None

    columns = schema.get("dataColumn")
    for column in columns if isinstance(columns, list) else []:
        if isinstance(column, dict) and isinstance(column.get("name"), str):
            event.wires[column["name"]] = DATAWORKS_WIRES.get(str(column.get("type"))) or {}
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


READERS: dict[str, Callable[[dict[str, Any], Event], None]] = {
    "debezium": _read_debezium,
    "debezium-flat": _read_flat,
    "lindorm": _read_lindorm,
    "dataworks": _read_dataworks,
}


def _control(event: Event, op: str) -> None:
    event.op = op
    raise ControlledError


def _set_table(event: Event, namespace: Any, table: Any) -> None:
    if _name(namespace) and _name(table):
        event.table_name = full_name(namespace, table)


CONNECTORS = {  # O8
    "postgresql": "lsn",
    "mysql": "binlog",
    "mariadb": "binlog",
    "sqlserver": "commit_lsn",
    "db2": "commit_lsn",
    "informix": "commit_lsn",
    "oracle": "scn",
    "ticdc": "commit_ts",
    "mongodb": "ord",
}
SOURCE_TIME = "time"
BASIS_NAMES = {  # as `changes` calls them: two that are as frequent are told apart by name
    "lsn": "lsn",
    "binlog": "file,pos,row",
    "commit_lsn": "commit_lsn,change_lsn,event_serial_no",
    "scn": "commit_scn,scn,ssn",
    "commit_ts": "commit_ts",
    "ord": "ts_ms,ord",
    "sequenceId": "sequenceId",
    SOURCE_TIME: "ts_ms",
}


def _source_elements(source: dict[str, Any]) -> tuple[str, list[Any]]:
    """O8. The connector decides the shape, never the single event (O4)."""
    basis = CONNECTORS.get(str(source.get("connector")).lower(), SOURCE_TIME)
    if basis == "binlog":
        file = source.get("file")  # a number is no file's name
        number = re.search(r"\d+$", file, re.ASCII) if isinstance(file, str) else None
        elements = [number[0] if number else None, source.get("pos"), source.get("row")]
    elif basis == "commit_lsn":
        parts = (*_lsn_parts(source.get("commit_lsn")), *_lsn_parts(source.get("change_lsn")))
        elements = [*parts, source.get("event_serial_no")]
    else:
        members = {
            "lsn": ["lsn"],
            "scn": ["commit_scn", "scn", "ssn"],
            "commit_ts": ["commit_ts"],
            "ord": ["ts_ms", "ord"],
            SOURCE_TIME: ["ts_ms"],
        }
        elements = [source.get(name) for name in members[basis]]
    return basis, elements


def _lsn_parts(value: Any) -> list[int | None]:
    text = str(value)
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return [int(text), 0, 0]
    found = re.fullmatch(r"([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)", text, re.ASCII)
    if not found or any(len(part) > 32 for part in found.groups()):
        return [None, None, None]
    numbers = (int(part, 16) for part in found.groups())
    return [number if number < 16**15 else None for number in numbers]


def _set_elements(event: Event, basis: str, elements: list[Any]) -> None:
    """O8: where all are absent or 0 the source's time stands in."""
    numbers = [_long(element) for element in elements]
    event.own_elements = tuple(numbers)
    event.has_elements = any(number is not None for number in numbers)
    event.basis, event.elements = basis, tuple(max(number or 0, 0) for number in numbers)
    if not any(event.elements):
        event.basis, event.elements = SOURCE_TIME, (max(event.source_ts_ms or 0, 0),)


def _set_position(source: dict[str, Any], event: Event) -> None:
    """O4; None for snapshot reads (O6)."""
    if event.is_snapshot or event.destination != "changes":
        return
    record = event.record
    timestamp = record.timestamp_ms
    resets = [_instant_ms(instant) for instant in source.get("position_reset") or []]
    epoch = sum(1 for reset in resets if timestamp is not None and timestamp >= reset)  # O11
    # O4: the half of a change that takes a row away while its other half writes one.
    is_left = event.op == "d" and any(name == "__debezium.newkey" for name, _ in record.headers)
    rank = 0 if is_left or event.half == "before" else 1
    kafka = (record.partition or 0, record.offset or 0)
    event.position = (epoch, *event.elements, event.total_order, rank, *kafka)


# ---------------------------------------------------------------------------------------------
# Keys (D5–D10)
# ---------------------------------------------------------------------------------------------


def read_key_document(data: bytes | None) -> KeyDocument:
    """A message key: struct with schema, bare struct, scalar, null, empty or garbage (D6)."""
    if not data:
        return KeyDocument("missing")
    try:
        document = parse_json(data)
    except NotJsonError:
        return KeyDocument("garbage")
    return _key_document(document)


def _key_document(document: Any) -> KeyDocument:
    schema: Any = None
    # A key may have a column named `payload`: only the two names together are a wrapper.
    if isinstance(document, dict) and set(document) == {"schema", "payload"}:
        wrapper = document["schema"]
        if wrapper is None or isinstance(wrapper, dict):
            schema, document = wrapper, document["payload"]
    if document in (None, "", {}):
        return KeyDocument("missing")
    if isinstance(document, list):
        return KeyDocument("garbage")
    if isinstance(document, dict):
        return KeyDocument("struct", document, schema_fields(schema))
    return KeyDocument("scalar", document, {"": schema} if schema else {})


def read_header_key(data: bytes | None) -> KeyDocument:
    """A key in a header: struct, JSON text, JSON with schema, or ``Struct{id=1}`` (D9)."""
    found = read_key_document(data)
    if found.state == "scalar" and isinstance(found.value, str):
        try:
            return _key_document(parse_json(found.value.encode()))
        except NotJsonError:
            return found
    if found.state == "garbage" and data is not None:
        java = re.fullmatch(rb"Struct\{(.*)\}", data, re.DOTALL)
        members = [part.split("=", 1) for part in java[1].decode().split(",")] if java else [[""]]
        if all(len(member) == 2 for member in members):
            return KeyDocument("struct", {member[0]: member[1] for member in members})
    return found


def _header_key(record: Record, name: str) -> KeyDocument:
    values = [value for header, value in record.headers if header == name]
    try:
        return read_header_key(values[0] if values else None)
    except UnicodeDecodeError:
        return KeyDocument("garbage")


def _set_keys(
    source: dict[str, Any],
    configs: dict[str, dict[str, Any]],
    placeholder: Placeholder,
    event: Event,
) -> None:
    """key, old_key, new_key; or quarantine with a key reason if the table is configured."""
    config = configs.get(event.table_name or "")
    try:
        _read_keys(source, config or {}, placeholder, event)
    except QuarantinedError as error:
        if config is not None:
            event.destination, event.reason = "quarantine", error.reason


def _read_keys(
    source: dict[str, Any], config: dict[str, Any], placeholder: Placeholder, event: Event
) -> None:
    key_config = config.get("key")
    if event.op == "t":
        return
    if key_config == "none":  # D7, O14
        if event.op not in ("c", "r"):
            raise QuarantinedError("missing_key")
        return
    if key_config == "row":  # O14: the old row itself is the key
        needs_before = event.removes or (event.op == "u" and event.half != "after")
        if needs_before and event.before is None:
            raise QuarantinedError("missing_key")
        return

    message_key = read_key_document(event.record.key)
    columns = _key_columns(key_config, event, message_key)
    # D5, D8: `before` is the old row only where somebody vouches for it.
    by_format = source.get("format") in ("lindorm", "dataworks")
    whole_before = by_format or config.get("replica_identity") == "full"
    old_row = event.before if whole_before else None
    after = event.after if event.writes else None
    if by_format:
        placeholder = Placeholder("\0there is none\0")
    types = {name: parse_type(text) for name, text in (config.get("columns") or {}).items()}
    # Without a configured key the message key says it all.
    places: list[dict[str, Any] | KeyDocument | None] = [message_key]
    if key_config or event.source_key:
        places = [after, old_row, message_key] if by_format else [after, message_key, old_row]
    event.key = _key_from(columns, places, event, types, placeholder)
    if event.writes:
        images = {**(event.after or {}), **((old_row or {}) if by_format else {})}
        for name in event.key:
            if name not in images and name in message_key.wires and name not in types:
                event.wires.setdefault(name, message_key.wires[name])

    if event.is_tombstone:
        return
    event.new_key = _key_of_header("__debezium.newkey", columns, event, types, placeholder)
    event.old_key = _key_of_header("__debezium.oldkey", columns, event, types, placeholder)
    if event.old_key is None and event.op == "u" and event.after is not None and whole_before:
        event.old_key = _moved_from(columns or [], event, types, placeholder)  # D10, W3
    if event.old_key is not None and key_text(event.old_key) == key_text(event.key):
        event.old_key = None


def _key_columns(key_config: Any, event: Event, message_key: KeyDocument) -> list[str] | None:
    if key_config:
        return [key_config] if isinstance(key_config, str) else list(key_config)
    if event.source_key:
        return event.source_key
    return list(message_key.value) if message_key.state == "struct" else None


def _key_from(
    columns: list[str] | None,
    places: Sequence[dict[str, Any] | KeyDocument | None],
    event: Event,
    types: dict[str, Type],
    placeholder: Placeholder,
) -> dict[str, Any]:
    """Each key column from the first place that has it: images, and the message key."""
    documents = [place for place in places if isinstance(place, KeyDocument)]
    unreadable = any(found.state == "garbage" for found in documents)
    if columns is None:
        is_scalar = any(found.state == "scalar" for found in documents)
        raise QuarantinedError("malformed_key" if unreadable or is_scalar else "missing_key")
    key: dict[str, Any] = {}
    missing = False
    for name in columns:
        for place in places:
            if isinstance(place, KeyDocument):
                if place.state == "struct" and name in place.value:
                    raw, key_wire = place.value[name], place.wires.get(name)
                    break
                if place.state == "scalar" and len(columns) == 1:
                    raw, key_wire = place.value, place.wires.get("")
                    break
            elif place is not None and name in place and not placeholder(place[name]):
                raw, key_wire = place[name], None
                break
        else:
            missing = True
            continue
        if raw is None:
            raise QuarantinedError("malformed_key")
        try:
            key[name] = _key_value(raw, key_wire, event.wires.get(name), types.get(name))
        except DoesNotFitError as error:
            raise QuarantinedError("malformed_key") from error
    if missing:
        raise QuarantinedError("malformed_key" if unreadable else "missing_key")
    return key


def _key_value(
    raw: Any, key_wire: Wire | None, value_wire: Wire | None, configured: Type | None
) -> Any:
    """Read as the key's schema writes it, held as the value's column has it (D5)."""
    wire = key_wire or value_wire
    value = read_wire(wire, raw) if wire else raw
    target = (value_wire and wire_type(value_wire)) or configured
    target = target or (key_wire and wire_type(key_wire)) or None
    if target:
        return hold(value, target)
    is_number = isinstance(value, Decimal) and math.isfinite(float(value))
    return _AsSent(value) if is_number else value


def _key_of_header(
    header: str,
    columns: list[str] | None,
    event: Event,
    types: dict[str, Type],
    placeholder: Placeholder,
) -> dict[str, Any] | None:
    found = _header_key(event.record, header)
    if found.state != "struct":
        return None
    try:
        return _key_from(columns, [found], event, types, placeholder)
    except QuarantinedError:
        return None


def _moved_from(
    columns: list[str], event: Event, types: dict[str, Type], placeholder: Placeholder
) -> dict[str, Any] | None:
    """The key of ``before`` where it differs from that of ``after`` (D10)."""
    try:
        old = _key_from(columns, [event.before], event, types, placeholder)
    except QuarantinedError:
        return None
    try:
        now = _key_from(columns, [event.after], event, types, placeholder)
    except QuarantinedError:
        now = event.key or {}
    return old if key_text(old) != key_text(now) else None


# ---------------------------------------------------------------------------------------------
# Keys that are not their table's (R6)
# ---------------------------------------------------------------------------------------------

KeyForm = tuple[tuple[str, tuple[Type, ...]], ...]  # column → the types it can be read as


def _judge_keys(
    configs: dict[str, dict[str, Any]], days: list[tuple[date, list[Event]]]
) -> frozenset[tuple[date, int]]:
    """A few keys with other columns, or of a type that the table's key can't hold, are malformed;
    where they are more than half of the day they are the rule, and the table refuses them."""
    misfits: set[tuple[date, int]] = set()
    for name, config in configs.items():
        if config.get("key") in ("none", "row"):
            continue
        so_far: KeyForm | None = None
        for day, events in days:
            for event in events:
                old_key = (event.old_key or {}).items()
                if not all(_holds(wire_type(event.wires.get(n) or {}), v) for n, v in old_key):
                    event.old_key = None  # no row has such a key
            keyed = [
                e
                for e in events
                if e.destination == "changes" and e.table_name == name and e.key is not None
            ]
            forms = {id(e): _key_form(e, config) for e in keyed}
            counts = Counter(forms[id(e)] for e in keyed if not e.is_tombstone)
            settled = _settled_form(counts, so_far)
            so_far = settled or so_far
            for event in keyed if settled is not None else []:
                if event.is_tombstone:
                    fits = _key_fits(settled or (), event.key or {})
                else:
                    fits = _form_holds(settled or (), forms[id(event)])
                if not fits:
                    event.destination, event.reason = "quarantine", "malformed_key"
                    misfits |= {(day, n) for n, e in enumerate(events) if e is event}
    return frozenset(misfits)


def _holds(column_type: Type | None, value: Any) -> bool:
    """Can a column of this type hold the value? Of an unknown type: yes."""
    with suppress(DoesNotFitError):
        if column_type is not None:
            hold(value, column_type)
        return True
    return False


def _key_form(event: Event, config: dict[str, Any]) -> KeyForm:
    types = {name: parse_type(text) for name, text in (config.get("columns") or {}).items()}
    form = []
    for name, value in sorted((event.key or {}).items()):
        wire = event.wires.get(name)
        known = (wire and wire_type(wire)) or types.get(name)
        form.append((name, (known,) if known and _holds(known, value) else _readings(value)))
    return tuple(form)


def _readings(value: Any) -> tuple[Type, ...]:
    """The types that a JSON value can be read as, its own first."""
    is_long = isinstance(value, int) and abs(value) >= 2**63
    kinds: list[Type] = [("decimal", 38, 0) if is_long else infer([value])]
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,18}", value, re.ASCII):
        kinds.append(("bigint",))
    if ("bigint",) in kinds:
        kinds.append(("double",))
    return tuple(dict.fromkeys([*kinds, ("string",)]))


def _form_holds(own: KeyForm, other: KeyForm) -> bool:
    if [name for name, _ in own] != [name for name, _ in other]:
        return False
    pairs = zip(own, other, strict=True)
    return all(any(widen(o[0], kind) for kind in kinds) for (_, o), (_, kinds) in pairs)


def _key_fits(form: KeyForm, key: dict[str, Any]) -> bool:
    """Can the table's key hold a tombstone's, which comes without the value's schema?"""
    kinds = dict(form)
    if set(kinds) != set(key):
        return False
    try:
        for column, value in key.items():
            hold(value, kinds[column][0])
    except DoesNotFitError:
        return False
    return True


def _settled_form(counts: Counter[KeyForm], before: KeyForm | None) -> KeyForm | None:
    total = counts.total()

    def held(form: KeyForm) -> int:
        return sum(n for other, n in counts.items() if _form_holds(form, other))

    if before is not None and (total - held(before)) * 2 <= total:
        return before
    most = max(counts, key=lambda f: (counts[f], held(f), str(f)), default=None)
    return most if most is not None and held(most) * 2 > total else None


# ---------------------------------------------------------------------------------------------
# Tombstones (D11) and runs (O14)
# ---------------------------------------------------------------------------------------------


def _settle_tombstones(
    source: dict[str, Any],
    configs: dict[str, dict[str, Any]],
    placeholder: Placeholder,
    days: list[tuple[date, list[Event]]],
) -> None:
    seen: dict[str | None, set[str]] = defaultdict(set)  # topic → tables in changes so far
    of_key: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for day, events in days:
        for event in events:
            of_key[_key_place(day, event)].append(event)
    for day, events in days:
        for event in events:
            changes = event.destination == "changes" and not event.is_tombstone
            if changes and event.table_name is not None:
                seen[event.record.topic].add(event.table_name)
        for event in events:
            if not event.is_tombstone:
                continue
            tables_of_topic = seen[event.record.topic]
            if len(tables_of_topic) == 1:
                event.table_name = next(iter(tables_of_topic))
            today, day_before = (
                of_key.get(_key_place(d, event), []) for d in (day, day - timedelta(days=1))
            )
            _settle_tombstone(source, configs, placeholder, event, today, day_before)


def _key_place(day: date, event: Event) -> tuple[Any, ...]:
    record = event.record
    return (day, record.topic, record.partition, record.key)


def _settle_tombstone(
    source: dict[str, Any],
    configs: dict[str, dict[str, Any]],
    placeholder: Placeholder,
    event: Event,
    today: list[Event],
    day_before: list[Event],
) -> None:
    nearest = _nearest_earlier(event, today) or _nearest_earlier(event, day_before)
    if nearest is not None and nearest.op == "d" and not nearest.is_tombstone:
        event.destination, event.op = "control", "tombstone"
        with suppress(QuarantinedError):
            config = configs.get(event.table_name or "") or {}
            _read_keys(source, config, placeholder, event)
        return
    event.op = "d"
    if event.table_name is None:
        event.destination, event.reason = "quarantine", "missing_table"
        return
    _set_keys(source, configs, placeholder, event)


def _nearest_earlier(event: Event, others: list[Event]) -> Event | None:
    """The newest of those of the same topic, partition and key that stand before the event."""
    mine = event.record
    if not mine.key:
        return None
    earlier = [
        other
        for other in others
        if not other.record.malformed_line and (other.record.offset or 0) < (mine.offset or 0)
    ]
    return max(earlier, key=lambda e: e.record.offset or 0, default=None)


def _number_runs(events: list[Event]) -> None:
    """O14: the ordinal among equals in one unbroken run of offsets that share the elements."""
    ordered = sorted(events, key=_kafka_order)
    counts: dict[str, int] = defaultdict(int)
    previous: Event | None = None
    for event in ordered:
        same_record = previous is not None and _kafka_order(previous) == _kafka_order(event)
        if same_record and previous is not None:  # the record has landed twice
            event.ordinal = previous.ordinal
            continue
        if previous is None or not _one_run(previous, event):
            counts.clear()
        image = json_text([event.table_name, event.before, event.after])
        event.ordinal = counts[image]
        counts[image] += 1
        previous = event


def _one_run(previous: Event, event: Event) -> bool:
    one, other = previous.record, event.record
    return (
        previous.destination == event.destination == "changes"
        and (one.topic, one.partition) == (other.topic, other.partition)
        and (one.offset or 0) + 1 == (other.offset or 0)
        and previous.has_elements
        and event.has_elements
        and previous.own_elements == event.own_elements
        and not _paused(previous.processed_ts_ms, event.processed_ts_ms)
    )


def _paused(one: int | None, other: int | None) -> bool:
    """More than a second between two events: the connector was started again."""
    return one is not None and other is not None and abs(one - other) > 1000


def _kafka_order(event: Event) -> tuple[str, int, int]:
    record = event.record
    return (record.topic or "", record.partition or 0, record.offset or 0)


# ---------------------------------------------------------------------------------------------
# The state of a table, day by day
# ---------------------------------------------------------------------------------------------

# Where an event or row stands among the others: its position, or for what has none (O6) that of
# the event after which it is put, then the landing (day, partition, offset). `()` is lowest.
Order = tuple[tuple[int, ...], tuple[date, int, int] | tuple[()]]


@dataclass
class Row:
    values: dict[str, Any]
    order: Order
    key: dict[str, Any] = field(default_factory=dict)


@dataclass
class Removal:
    """Something removed on a day: the row of a key, or with key None the whole table (O12)."""

    day: date
    key: dict[str, Any] | None
    order: Order
    event: Event


@dataclass
class Entry:
    """One thing in the history of a key: a row of the day before, an event, or a removal."""

    order: Order
    row: Row | None = None
    event: Event | None = None
    removed: bool = False
    lane: tuple[str, int, int] | None = None  # (topic, partition, offset) if of today


_UNKNOWN = object()
# Names that no column of an Iceberg table can have, or none that Spark's MERGE writes.
NO_COLUMNS = {"", "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id"}
NO_COLUMNS |= {"_last_updated_sequence_number", "__row_id"}
NO_COLUMNS |= {"__row_from_source", "__row_from_target", "__row_operation"}


class Table:
    """What all kinds of tables share: types, removals, orders."""

    def __init__(
        self,
        name: str,
        config: dict[str, Any],
        source: dict[str, Any],
        events: dict[date, list[Event]],
    ) -> None:
        self.name, self.config = name, config
        self.late_days = source.get("late_days", 3)
        self.keep_missing = source.get("missing_columns") == "keep"
        self.placeholder = Placeholder(_unavailable_value(source))
        self.types: dict[str, Type] = {}
        self.inferred: set[str] = set()
        self.removals: list[Removal] = []
        self.bases: dict[int, str] = {}  # epoch → what positions are made of (O8)
        self.halves = [
            e
            for of_day in events.values()
            for e in of_day
            if e.destination == "changes" and e.table_name == name and e.half
        ]

    def merge(self, day: date, events: list[Event]) -> None:
        raise NotImplementedError

    def look_on(self, day: date, events: list[Event]) -> None:
        """A day before the table starts: what is removed there still beats older events (O12)."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def place(self, events: list[Event]) -> None:
        """O8: an event on another basis than its table's is older than all of the epoch."""
        found: dict[int, Counter[str]] = defaultdict(Counter)
        for event in events:
            if event.position is not None:
                found[event.position[0]][event.basis] += 1
        for epoch, counts in found.items():
            most = max(counts, key=lambda b: (counts[b], b != SOURCE_TIME, BASIS_NAMES[b]))
            self.bases.setdefault(epoch, most)
        for event in events:
            if event.position is not None and event.basis != self.bases[event.position[0]]:
                epoch, *rest = event.position
                event.position = (epoch, -2, *rest)

    def _in_window(self, then: date, day: date) -> bool:
        return day - timedelta(days=self.late_days) <= then < day

    def _recent_removals(self, day: date) -> list[Removal]:
        return [r for r in self.removals if self._in_window(r.day, day)]

    def _completed_pairs(self, day: date) -> list[tuple[Event, Event]]:
        """(BEFOR, AFTER) of one sequenceId of which the later half has landed today (W2, W3)."""
        return [
            (before, after)
            for before in self.halves
            for after in self.halves
            if before.half == "before"
            and after.half == "after"
            and before.sequence_id is not None
            and before.sequence_id == after.sequence_id
            and max(before.day, after.day) == day
            and abs((before.day - after.day).days) <= self.late_days
        ]

    # -- types ---------------------------------------------------------------------------------

    def _learn_types(self, day: date, events: list[Event]) -> None:
        """R3, R5: message schema, else configuration, else inferred; only from what has landed."""
        if not events:
            return
        key_columns = {name for event in events for name in event.key or {}}
        # One record types no column: the schema of most events comes first.
        schemas = Counter(json_text(event.wires) for event in events)
        for event in sorted(events, key=lambda e: (-schemas[json_text(e.wires)], _kafka_order(e))):
            for column, wire in event.wires.items():
                seen = wire_type(wire)
                if seen is None or column in NO_COLUMNS:
                    continue
                old = self.types.get(column, seen)
                wider = widen(old, seen)
                if wider is None and column in key_columns:  # R6
                    raise KeyTypeError(
                        f"the key is {old}, now {seen}", table=self.name, column=column, day=day
                    )
                self.types[column] = wider or old
                if wider is not None:
                    self.inferred.discard(column)
        for column, text in (self.config.get("columns") or {}).items():
            self.types.setdefault(column, parse_type(text))
        unknown: dict[str, list[Any]] = defaultdict(list)
        for event in events:
            is_inferred = event.writes and not event.has_own_schema
            for column, raw in event.image().items() if is_inferred else ():
                if column in self.types or column in NO_COLUMNS:
                    continue
                if raw is not None and not self.placeholder(raw):
                    unknown[column].append(raw)
        for column, values in unknown.items():
            keys = [e.key[column] for e in events if e.key and column in e.key]
            self.types[column] = self._infer_key(values, keys) if keys else infer(values)
            self.inferred.add(column)
        for column in {column for event in events for column in event.wires} - set(NO_COLUMNS):
            self.types.setdefault(column, ("string",))  # named, and typed by nobody

    @staticmethod
    def _infer_key(images: list[Any], keys: list[Any]) -> Type:
        """Keys are typed by the images (D5), unless these could not hold them all."""
        found = infer(images)
        try:
            for key in keys:
                hold(key, found)
        except DoesNotFitError:
            return infer(keys)
        return found

    def _typed(self, event: Event, column: str, raw: Any, day: date) -> Any:
        """A value of an image as its column holds it, None where it can't (R4)."""
        column_type, wire = self.types.get(column), event.wires.get(column)
        if raw is None or column_type is None:
            return None
        if column in (event.key or {}) and column not in (event.after or {}):
            wire = None  # a key value is read already
        try:
            value = hold(read_wire(wire, raw) if wire else raw, column_type)
            if column in self.inferred and isinstance(value, float) and isinstance(raw, int):
                self._refuse_if_rounded(value, raw)
            return value
        except DoesNotFitError as error:
            is_written = event.after is not None and raw is event.after.get(column)
            if is_written and column in self.inferred:
                raise InferredTypeError(
                    f"{raw!r} doesn't fit {column_type}: {error}; add it to `columns:`",
                    table=self.name,
                    column=column,
                    day=day,
                ) from error
            return None

    @staticmethod
    def _refuse_if_rounded(value: float, raw: int) -> None:
        if int(value) != raw:  # R3: an integer never passes through a double
            raise DoesNotFitError("the integer would be rounded")

    def _shown(self, values: dict[str, Any]) -> dict[str, Any]:
        return {c: grown(values.get(c), column_type) for c, column_type in self.types.items()}


class KeyedTable(Table):
    """A table with a key: per key, the highest of row, events and removals wins."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state: list[Row] = []
        self.entries: dict[str, list[Entry]] = {}
        self.truncates: list[Entry] = []
        self.key_columns: set[frozenset[str]] = set()

    def rows(self) -> list[dict[str, Any]]:
        ordered = sorted(self.state, key=lambda row: key_text(row.key))
        return [self._shown(row.values) for row in ordered]

    def look_on(self, day: date, events: list[Event]) -> None:
        self._collect(day, events)

    def merge(self, day: date, events: list[Event]) -> None:
        self.key_columns |= {frozenset(event.key) for event in events if event.key}
        if len(self.key_columns) > 1:
            columns = " and ".join(sorted(str(sorted(names)) for names in self.key_columns))
            raise KeyColumnsError("keys differ", table=self.name, column=columns, day=day)
        self._learn_types(day, events)
        self._collect(day, events)
        state = []
        for identity in self.entries:
            top = self._timeline(identity)[-1]
            if top.removed:
                continue
            if top.row is not None:
                state.append(top.row)
            elif top.event is not None:
                state.append(self._build(identity, top, day))
        self.state = state

    # -- the history of each key ---------------------------------------------------------------

    def _collect(self, day: date, events: list[Event]) -> None:
        """Entries per key: the rows of the day before, recent removals, today's events."""
        self.entries, self.truncates = defaultdict(list), []
        for row in self.state:
            self.entries[self._identity(row.key)].append(Entry(row.order, row=row))
        for removal in self._recent_removals(day):  # O12
            entry = Entry(removal.order, event=removal.event, removed=True)
            if removal.key is None:
                self.truncates.append(entry)
            else:
                self.entries[self._identity(removal.key)].append(entry)
        for event in sorted(events, key=_kafka_order):
            if event.op == "t":  # D12
                self._remove(day, None, event)
            elif event.removes and event.key is not None:
                self._remove(day, event.key, event)
            elif event.writes and event.key is not None:
                identity = self._identity(event.key, of_row_on=day)
                if event.old_key is not None and self._identity(event.old_key) != identity:
                    self._remove(day, event.old_key, event)  # D9, D10
                order = self._order(event, identity)
                entry = Entry(order, event=event, lane=_kafka_order(event))
                self.entries[identity].append(entry)
        for before, after in self._completed_pairs(day):  # W3
            if before.key is None or after.key is None:
                continue
            if self._identity(before.key) != self._identity(after.key):
                self._remove(day, before.key, before)

    def _remove(self, day: date, key: dict[str, Any] | None, event: Event) -> None:
        identity = None if key is None else self._identity(key)
        order = self._order(event, identity, removes=True)
        entry = Entry(order, event=event, removed=True, lane=_kafka_order(event))
        (self.truncates if identity is None else self.entries[identity]).append(entry)
        self.removals.append(Removal(day, key, order, event))

    def _order(self, event: Event, identity: str | None, *, removes: bool = False) -> Order:
        if event.position is not None:
            *higher, rank, partition, offset = event.position
            rank = 0 if removes and event.writes else rank  # the old key of D9, D10
            return (*higher, rank, partition, offset), ()
        # O6: directly after the highest of its own key, or truncate, that landed before it.
        topic, partition, offset = _kafka_order(event)
        before = [
            entry.order[0]
            for entry in [*self.entries.get(identity or "", []), *self.truncates]
            if entry.lane is None
            or (entry.lane[:2] == (topic, partition) and entry.lane[2] < offset)
        ]
        return max(before, default=()), (event.day, partition, offset)

    def _identity(self, key: dict[str, Any], *, of_row_on: date | None = None) -> str:
        """The key as text, its values as the table's columns hold them (D5)."""
        held = {}
        for column, value in key.items():
            try:
                column_type = self.types.get(column)
                held[column] = hold(value, column_type) if column_type else value
            except DoesNotFitError as error:
                if of_row_on is not None:  # R6
                    raise KeyTypeError(
                        f"key value {value!r} doesn't fit {column_type}",
                        table=self.name,
                        column=column,
                        day=of_row_on,
                    ) from error
                held[column] = value  # no row has such a key
        return key_text(held)

    def _timeline(self, identity: str) -> list[Entry]:
        """Lowest first; at equal order the row beats the event it came from, landed again."""
        return sorted(
            [*self.entries.get(identity, []), *self.truncates],
            key=lambda entry: (entry.order, entry.row is not None),
        )

    # -- the row of the winner -----------------------------------------------------------------

    def _build(self, identity: str, entry: Entry, day: date) -> Row:
        event = entry.event
        assert event is not None
        values = {}
        for column in self.types:
            value = self._carried(event, column, day)
            if value is _UNKNOWN:
                value = self._filled(identity, entry, column, day)
            values[column] = None if value is _UNKNOWN else value
        return Row(values, entry.order, event.key or {})

    def _carried(self, event: Event, column: str, day: date) -> Any:
        """The value that the event itself brings, _UNKNOWN where it says "unchanged"."""
        image = event.image()
        if column in (event.key or {}):  # D5
            return self._key_value(event, column)
        if column not in image:
            return _UNKNOWN if self.keep_missing else None  # R1
        if self.placeholder(image[column]):
            return _UNKNOWN  # R2
        return self._typed(event, column, image[column], day)

    def _key_value(self, event: Event, column: str) -> Any:
        """A key column holds the key, whatever the image says."""
        try:
            return hold((event.key or {})[column], self.types[column])
        except DoesNotFitError:
            return None

    def _filled(self, identity: str, entry: Entry, column: str, day: date) -> Any:
        """R2: after a key change the old key's row, else the row's own last known value."""
        event = entry.event
        assert event is not None
        for old in self._old_keys(event, day):
            found = self._last_known(self._identity(old), column, entry.order, event, day)
            if found is not _UNKNOWN:
                return found
        return self._last_known(identity, column, entry.order, None, day)

    def _last_known(
        self, identity: str, column: str, below: Order, mover: Event | None, day: date
    ) -> Any:
        """Down the history of a key to the first value; a removal ends it, unless it is part of
        the key change ``mover`` itself."""
        for entry in reversed(self._timeline(identity)):
            if not entry.order < below:
                continue
            if entry.removed:
                if mover is not None and self._part_of(entry, mover):
                    continue
                return _UNKNOWN
            if entry.row is not None:
                return entry.row.values.get(column, _UNKNOWN)
            assert entry.event is not None
            found = self._carried(entry.event, column, day)
            if found is _UNKNOWN and self._old_keys(entry.event, day):
                found = self._filled(identity, entry, column, day)
            if found is not _UNKNOWN:
                return found
        return _UNKNOWN

    @staticmethod
    def _part_of(removal: Entry, mover: Event) -> bool:
        """Does the old key's delete, its tombstone or its BEFOR half belong to this key change?"""
        event = removal.event
        if event is None or event.op == "t" or mover.position is None or not any(mover.elements):
            return event is mover
        shared = len(mover.position) - 4  # epoch and source elements
        return removal.order[0][:shared] == mover.position[:shared]

    def _old_keys(self, event: Event, day: date) -> list[dict[str, Any]]:
        paired = [
            before.key
            for before in self.halves
            if event.half == "after"
            and before.half == "before"
            and before.day <= day
            and abs((before.day - event.day).days) <= self.late_days
            and before.sequence_id is not None
            and before.sequence_id == event.sequence_id
        ]
        own = self._identity(event.key or {})
        olds = [old for old in (event.old_key, *paired) if old is not None]
        return [old for old in olds if self._identity(old) != own]


class AppendedTable(Table):
    """``key: none``: rows are appended, known by their identity; a truncate empties it (O14)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state: list[Row] = []
        self.seen: list[tuple[date, Any]] = []

    def rows(self) -> list[dict[str, Any]]:
        return [self._shown(row.values) for row in self.state]

    def look_on(self, day: date, events: list[Event]) -> None:
        for event in events:
            self.seen.append((day, self._row_identity(event)))
            if event.op == "t" and event.position is not None:
                self.removals.append(Removal(day, None, (event.position, ()), event))

    def merge(self, day: date, events: list[Event]) -> None:
        self._learn_types(day, events)
        ordered = sorted(events, key=_kafka_order)
        for event in ordered:
            if event.op == "t" and event.position is not None:
                self.removals.append(Removal(day, None, (event.position, ()), event))
        for event in ordered:
            if self._is_new(day, event) and event.writes:
                values = self._values(event, event.after, day)
                self.state.append(Row(values, self._order(day, event)))
        truncates = [r.order for r in self._truncates(day)]
        self.state = [row for row in self.state if not any(t > row.order for t in truncates)]

    def _truncates(self, day: date) -> list[Removal]:
        recent = [r for r in self.removals if r.day == day or self._in_window(r.day, day)]
        return [r for r in recent if r.key is None]

    def _is_new(self, day: date, event: Event) -> bool:
        identity = self._row_identity(event)
        known = any(i == identity and (d == day or self._in_window(d, day)) for d, i in self.seen)
        self.seen.append((day, identity))
        return not known

    def _row_identity(self, event: Event) -> Any:
        if not event.has_elements:
            return _kafka_order(event)
        return event.own_elements, json_text([event.before, event.after]), event.ordinal

    def _values(self, event: Event, image: dict[str, Any] | None, day: date) -> dict[str, Any]:
        values = {}
        for column in self.types:
            raw = (image or {}).get(column)
            values[column] = None if self.placeholder(raw) else self._typed(event, column, raw, day)
        return values

    def _order(self, day: date, event: Event) -> Order:
        if event.position is not None:
            return event.position, ()
        topic, partition, offset = _kafka_order(event)
        before = []
        for removal in self._truncates(day):
            lane = _kafka_order(removal.event)
            earlier = lane[:2] == (topic, partition) and lane[2] < offset
            if removal.day < day or earlier:
                before.append(removal.order[0])
        return max(before, default=()), (event.day, partition, offset)


class MultisetTable(AppendedTable):
    """``key: row``: as above, and ``before`` takes one equal row away (O14)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.debts: list[tuple[date, Row]] = []  # taken away before they were there

    def merge(self, day: date, events: list[Event]) -> None:
        self._learn_types(day, events)
        for event in events:
            if event.op == "t" and event.position is not None:
                self.removals.append(Removal(day, None, (event.position, ()), event))
        completed = []
        for before, _ in self._completed_pairs(day):
            if before not in completed:
                completed.append(before)
        ready = [event for event in sorted(events, key=_kafka_order) if event.half != "before"]
        fresh = [event for event in [*ready, *completed] if self._is_new(day, event)]
        truncates = [r.order for r in self._truncates(day)]
        self.debts = [(d, row) for d, row in self.debts if self._in_window(d, day)]
        for event in sorted(fresh, key=lambda e: self._order(day, e)):
            order = self._order(day, event)
            if event.op in ("u", "d") and event.half != "after":
                self._take(day, self._values(event, event.before, day), order)
            if event.writes:
                after = dict(event.after or {})
                for column, raw in (event.before or {}).items():
                    if self.placeholder(after.get(column)):
                        after[column] = raw
                self._add(Row(self._values(event, after, day), order))
        self.state = [row for row in self.state if not any(t > row.order for t in truncates)]

    def _take(self, day: date, values: dict[str, Any], order: Order) -> None:
        shown = self._shown(values)
        for row in sorted(self.state, key=lambda r: r.order, reverse=True):
            if row.order < order and self._shown(row.values) == shown:
                self.state = [other for other in self.state if other is not row]
                return
        self.debts.append((day, Row(values, order)))

    def _add(self, row: Row) -> None:
        for debt in self.debts:
            if debt[1].order > row.order and self._shown(debt[1].values) == self._shown(row.values):
                self.debts = [other for other in self.debts if other is not debt]
                return
        self.state.append(row)


def _table_state(
    name: str, config: dict[str, Any], source: dict[str, Any], events: dict[date, list[Event]]
) -> Table:
    kinds: dict[Any, type[Table]] = {"none": AppendedTable, "row": MultisetTable}
    key = config.get("key")
    kind = kinds.get(key, KeyedTable) if isinstance(key, str) else KeyedTable
    return kind(name, config, source, events)


# ---------------------------------------------------------------------------------------------
# Lag (G1–G4)
# ---------------------------------------------------------------------------------------------

HOUR_MS = 3_600_000
YEAR_1, YEAR_9999 = -62_135_596_800_000, 253_402_300_799_999  # ms since 1970
PERCENTILES = (50, 90, 95, 99)


def _lag_of_day(day: date, events: list[Event]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, int | None, str], list[int | None]] = defaultdict(list)
    for event in events:
        if event.destination != "changes" or event.table_name is None or event.half == "before":
            continue  # W2: an update in two halves counts once
        for kind, value in _lags(event).items():
            groups[event.table_name, None, kind].append(value)
            # A snapshot read's source time says nothing of when the row changed.
            source = event.source_ts_ms
            is_time = source is not None and YEAR_1 <= source <= YEAR_9999
            if source is not None and is_time and not (event.is_snapshot or event.is_tombstone):
                hour = source // HOUR_MS * HOUR_MS
                groups[event.table_name, hour, kind].append(value)
    ordered = sorted(groups, key=lambda g: (g[0], g[1] is not None, g[1] or 0, g[2]))
    return [_lag_row(day, *group, groups[group]) for group in ordered]


def _lags(event: Event) -> dict[str, int | None]:
    """G1: ms by kind; None for what is left out and counted (G2)."""
    kafka = event.record.timestamp_ms
    kafka = None if kafka is not None and kafka < 0 else kafka  # Kafka's "no timestamp" is -1
    source, processed = event.source_ts_ms, event.processed_ts_ms
    # A number that no calendar has is no time.
    source, processed, kafka = (
        t if t is not None and YEAR_1 <= t <= YEAR_9999 else None
        for t in (source, processed, kafka)
    )
    if event.is_snapshot or event.is_tombstone:
        source = processed = kafka = None

    def between(start: int | None, end: int | None) -> int | None:
        return None if start is None or end is None else end - start

    return {
        "capture": between(source, processed),
        "delivery": between(processed, kafka),
        "end_to_end": between(source, kafka),
    }


def _lag_row(
    day: date, table: str, hour: int | None, kind: str, values: list[int | None]
) -> dict[str, Any]:
    counted = sorted(v for v in values if v is not None)
    n = len(counted)
    # percentile_disc: the first value at or below which that share of the values lies
    ranks = {p: -(-n * p // 100) - 1 for p in PERCENTILES}
    return {
        "landing_date": day,
        "table_name": table,
        "hour": hour,
        "kind": kind,
        "count": n,
        "excluded": len(values) - n,
        "negative": sum(1 for v in counted if v < 0),  # G3
        "min_ms": counted[0] if n else None,
        **{f"p{p}_ms": counted[ranks[p]] if n else None for p in PERCENTILES},
        "max_ms": counted[-1] if n else None,
        "mean_ms": _rounded_mean(counted) if n else None,
        "complete": True,
    }


def _rounded_mean(values: list[int]) -> int:
    """To the nearest ms, halves away from zero, as Spark's ROUND."""
    total, n = sum(values), len(values)
    nearest = (2 * abs(total) + n) // (2 * n)
    return nearest if total >= 0 else -nearest
