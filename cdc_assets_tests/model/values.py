"""Types and values (R3–R5).

A column type is a tuple: ("bigint",), ("decimal", 10, 2), ("array", element) … A "wire" is a
Connect field schema: it says how a type is written in JSON.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
import uuid
from collections.abc import Iterable
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

from cdc_assets_tests.model.documents import (
    EPOCH,
    EPOCH_UTC,
    NUMBER,
    WHOLE,
    dict_of,
    fraction_of,
    int_of,
    iso_text,
    json_text,
    number_text,
    without_zeros,
)
from cdc_assets_tests.model.records import Wire

Type = tuple[Any, ...]
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
CANAL_DECIMAL = "canal.Decimal"  # plain digits
CANAL_BYTES = "canal.Bytes"  # each byte as the character of its number

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


# By the name of a type of MySQL, as Canal writes it; others are tested in test_canal.py.
_ISO = "io.debezium.time.Iso"
MYSQL_WIRES: dict[str, Wire] = {
    "tinyint": {"type": "int32"},
    "int": {"type": "int32"},
    "bigint": {"type": "int64"},
    "double": {"type": "double"},
    "varchar": {"type": "string"},
    "text": {"type": "string"},
    "date": {"type": "string", "name": f"{_ISO}Date"},
    "datetime": {"type": "string", "name": f"{_ISO}Timestamp"},
    "timestamp": {"type": "string", "name": f"{_ISO}Timestamp"},
    "varbinary": {"type": "bytes", "name": CANAL_BYTES},
}


def mysql_wire(kind: str) -> Wire:
    """The field schema of a type such as ``decimal(10,2)`` or ``int(10) unsigned``."""
    base, _, rest = kind.lower().partition("(")
    if base in ("enum", "set"):
        labels = [label.replace("''", "'") for label in re.findall(r"'((?:''|[^'])*)'", kind)]
        return {"type": "string", "name": f"canal.{base}", "labels": labels}  # C1
    if base == "decimal":
        said = re.findall(r"\d+", rest)
        if not said:  # C2
            return {"type": "string"}
        return _canal_decimal(*said, *("10", "0")[len(said) :])
    if rest.endswith("unsigned"):
        wider: dict[str, Wire] = {"int": {"type": "int64"}, "bigint": _canal_decimal("20", "0")}
        return wider.get(base) or {}
    return MYSQL_WIRES.get(base) or {}


def _canal_decimal(precision: str, scale: str) -> Wire:
    parameters = {"connect.decimal.precision": precision, "scale": scale}
    return {"type": "string", "name": CANAL_DECIMAL, "parameters": parameters}


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
    if name in (DECIMAL, CANAL_DECIMAL):
        precision, scale = _decimal_parameters(wire)
        return ("decimal", precision, scale) if 0 <= scale <= precision <= 38 else ("string",)
    if isinstance(name, str) and name in NAMED_TYPES:
        return NAMED_TYPES[name]
    if isinstance(name, str) and name.startswith(GEOMETRY):
        return ("struct", (("wkb", ("binary",)), ("srid", ("int",))))
    if base == "array":
        element = wire_type(dict_of(wire.get("items")) or {})
        return ("array", element) if element else None
    if base == "map":
        key = wire_type(dict_of(wire.get("keys")) or {"type": "string"})
        value = wire_type(dict_of(wire.get("values")) or {})
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
    parameters = dict_of(wire.get("parameters")) or {}
    precision = int_of(parameters.get("connect.decimal.precision"))
    scale = int_of(parameters.get("scale"))
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
    cells = {name: _cell_fields(wire) for name, wire in result.items()}
    if result and all(cell is not None for cell in cells.values()):
        return {name: cell["value"] for name, cell in cells.items() if cell is not None}
    return result


def _cell_fields(wire: Wire) -> dict[str, Wire] | None:
    """D22: the fields of a cell, where it is one."""
    if wire.get("type") != "struct":
        return None
    fields = {f.get("field"): f for f in wire.get("fields") or [] if isinstance(f, dict)}
    is_cell = set(fields) == {"value", "set"} and fields["set"].get("type") == "boolean"
    return fields if is_cell else None


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
    if name == CANAL_BYTES:
        return raw.encode("latin-1")
    if name == "canal.enum":
        return _enum_label(wire["labels"], raw, wire.get("are_labels", False))
    if name == "canal.set":
        return _set_labels(wire["labels"], raw, wire.get("are_labels", False))
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
        return [read_wire(dict_of(wire.get("items")) or {}, v) for v in raw]
    if base == "map":
        return _map_members(wire, raw)
    # A struct with members that no column can have is text, whatever stands in its place.
    if base == "struct" and wire_type(wire) not in (None, ("string",)):
        if not isinstance(raw, dict):
            raise DoesNotFitError("not an object")
        if isinstance(name, str) and name.startswith(GEOMETRY):
            return {"wkb": raw["wkb"], "srid": raw.get("srid")} if raw.get("wkb") else None
        fields = schema_fields(wire)
        return {n: read_wire(fields[n], v) if n in fields else v for n, v in raw.items()}
    if isinstance(raw, (list, dict)):
        return json_text(raw)  # a type that holds no members reads them as text
    return raw  # hold() reads base64, ISO text and numbers


def _number_of(text: Any) -> int | None:
    is_number = isinstance(text, str) and re.fullmatch(r"\d+", text, re.ASCII)
    return int(text) if is_number else None


def has_open_labels(wire: Wire) -> bool:
    """Is a label of the column itself a number?"""
    return any(_number_of(label) is not None for label in wire.get("labels") or ())


def _enum_label(labels: list[str], sent: Any, are_labels: bool) -> Any:
    """C1: a label, or its index. `are_labels`: the source sends labels, says another column."""
    number = _number_of(sent)
    is_open = any(_number_of(label) is not None for label in labels)
    if number is None or number > len(labels) or (sent in labels and (are_labels or not is_open)):
        return sent
    return "" if number == 0 else labels[number - 1]


def _set_labels(labels: list[str], sent: Any, are_labels: bool) -> Any:
    number = _number_of(sent)
    if number is None or number >= 2 ** len(labels) or (are_labels and sent in labels):
        return sent
    return ",".join(label for n, label in enumerate(labels) if number >> n & 1)


def _connect_decimal(wire: Wire, raw: Any) -> Decimal:
    if isinstance(raw, str):
        _, scale = _decimal_parameters(wire)
        return _unscaled(raw, scale)
    return _exact_number(raw)


def _variable_scale_decimal(raw: Any) -> str:
    if not isinstance(raw, dict):
        return number_text(_exact_number(raw))
    scale, value = int_of(raw.get("scale")), raw.get("value")
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
    keys, values = (
        dict_of(wire.get("keys")) or {"type": "string"},
        dict_of(wire.get("values")) or {},
    )
    if isinstance(raw, dict):
        pairs = list(raw.items())
    elif isinstance(raw, list) and all(isinstance(p, list) and len(p) == 2 for p in raw):
        pairs = [(p[0], p[1]) for p in raw]  # how Connect writes a map whose keys are not text
    else:
        raise DoesNotFitError("not a map")
    return {read_wire(keys, k): read_wire(values, v) for k, v in pairs}


# Databases write `.5` and `+1` into texts, which JSON's numbers can't be.
DECIMAL_TEXT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def hold(value: Any, column_type: Type) -> Any:
    """The value as the column holds it. Raises: DoesNotFitError (R4)."""
    kind = column_type[0]
    if value is None:
        return None
    if kind in (*INTEGERS, "float", "double", "decimal") and _truth(value) is not None:
        value = int(bool(_truth(value)))  # R3
    if kind in INTEGERS:
        number = _exact_int(value)
        bits = INTEGERS[kind] - 1
        if not -(2**bits) <= number < 2**bits:
            raise DoesNotFitError(f"{number} is beyond {kind}")
        return number
    if kind in ("float", "double"):
        return _floating(value, kind)
    if kind == "decimal":
        is_decimal = isinstance(value, str) and DECIMAL_TEXT.fullmatch(value)
        number = fraction_of(value) if is_decimal else _exact_number(value)
        return _fixed(number, *column_type[1:])
    if kind == "string":
        return _text(value)
    if kind == "boolean" and json_text(value).strip('"') in ("true", "false", "0", "1"):
        return json_text(value).strip('"') in ("true", "1")
    if kind == "binary" and isinstance(value, (bytes, str)):
        return value if isinstance(value, bytes) else _from_base64(value)
    if kind == "date":
        return _date(value)
    if kind in ("timestamp", "timestamp_ntz"):
        return _timestamp(value, zoned=kind == "timestamp", unit=(*column_type, "ms")[1])
    if kind == "array" and isinstance(value, list):
        return [hold(v, column_type[1]) for v in value]
    if kind == "map" and isinstance(value, dict):
        return {hold(k, column_type[1]): hold(v, column_type[2]) for k, v in value.items()}
    if kind == "struct" and isinstance(value, dict):
        return {name: hold(value.get(name), member) for name, member in column_type[1]}
    raise DoesNotFitError(f"{type(value).__name__} in {kind}")


def _truth(value: Any) -> bool | None:
    return (
        {"true": True, "false": False}.get(value)
        if isinstance(value, str)
        else (value if isinstance(value, bool) else None)
    )


def _exact_number(value: Any) -> Decimal:
    if isinstance(value, str) and NUMBER.fullmatch(value):
        value = fraction_of(value)
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
    number = without_zeros(number)
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
    stripped = without_zeros(number)
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
        return iso_text(value)
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
            return _day_of(value)
        if isinstance(value, date):
            return value
        if isinstance(value, str) and (found := ISO_DATE.fullmatch(value)):
            return date(*(int(part) for part in found.groups()[:3]))
        if isinstance(value, str) and ISO_DATE.match(value):
            return _day_of(_timestamp(value, zoned=False))
        return (EPOCH + timedelta(days=_exact_int(value))).date()
    except (OverflowError, ValueError) as error:
        raise DoesNotFitError("no date of the years 1 to 9999") from error


def _day_of(time: datetime) -> date:
    """R5: no time of day is cut off."""
    if time.timetz().replace(tzinfo=None) != datetime.min.time():
        raise DoesNotFitError("a time of day in a date")
    return time.date()


UNITS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}  # in µs


def _timestamp(value: Any, *, zoned: bool, unit: str = "ms") -> datetime:
    """ISO text (without an offset: UTC), or a number of units since 1970."""
    if isinstance(value, (int, Decimal)) or (isinstance(value, str) and WHOLE.fullmatch(value)):
        times, by = UNITS[unit]
        return _from_micros(_exact_int(value) * times // by, EPOCH_UTC if zoned else EPOCH)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.replace(tzinfo=timezone.utc) if zoned else value
        utc = value.astimezone(timezone.utc)
        return utc if zoned else utc.replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=timezone.utc if zoned else None)
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
    if name.startswith("timestamp") and found[2]:
        return (name, found[2].strip())
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
        coded = [
            base64.b64encode(data).decode(),
            base64.urlsafe_b64encode(data).decode(),
            data.hex(),
        ]
        digest = bytearray(hashlib.md5(data).digest())
        digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
        name_uuid = str(uuid.UUID(bytes=bytes(digest)))  # Java's UUID.nameUUIDFromBytes
        self.texts = {text, *coded, json_text({text: text})}
        alone = [[one] for one in (text, *coded, name_uuid)]
        self.arrays = [*alone, [ord(char) for char in text]]
        self.map = {text: text}

    def __call__(self, raw: Any) -> bool:
        if isinstance(raw, str):
            return raw in self.texts
        if isinstance(raw, list):
            return raw in self.arrays
        return bool(raw == self.map)
