"""Column types (FORMATS R3, R5): message schema → types, and how a column grows.

A :class:`ColumnType` says how a value travels (its *wire*) and what column holds it. Schemas are
few: the driver reads them. Values are read by :mod:`~cdc_assets.cdc.values.readers`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from cdc_assets.cdc.names import ddl_of, quote
from cdc_assets.cdc.values.spark_types import evolution

MAX_DECIMAL = 38
MAX_SCALE = 10_000  # beyond, zeros would fill the memory


@dataclass(frozen=True)
class ColumnType:
    """How a value is written in messages (`wire`) and the Spark type (DDL) of its column.

    Arrays have an `element`, maps a `key` too, structs `members`; what travels as one type and
    is held as another (wire `held`) has the first as its `element`.

    `labels` are those of MySQL's ENUM (wire `enum`) or SET (wire `set`), whose values may be sent
    as their numbers; the wires `enum_label` and `set_label` are of sources that send labels alone.

    `comment` is the source's own text on the column: None where the schema says nothing of it,
    empty where it says that there is none. `encoding` tells what a column of the type `spark`
    holds where the type alone does not. Types that differ in these two alone are equal.
    """

    wire: str
    spark: str
    scale: int = 0
    element: ColumnType | None = None
    key: ColumnType | None = None
    members: tuple[tuple[str, ColumnType], ...] = ()
    labels: tuple[str, ...] = ()
    inferred: bool = False
    comment: str | None = attribute(default=None, compare=False)
    encoding: str = attribute(default="", compare=False)


_PRIMITIVES = {
    "boolean": ColumnType("boolean", "boolean"),
    "int8": ColumnType("int", "int"),
    "int16": ColumnType("int", "int"),
    "int32": ColumnType("int", "int"),
    "int64": ColumnType("bigint", "bigint"),
    "float": ColumnType("float", "float"),
    "float32": ColumnType("float", "float"),
    "double": ColumnType("double", "double"),
    "float64": ColumnType("double", "double"),
    "string": ColumnType("string", "string"),
    "bytes": ColumnType("bytes", "binary"),
}
_LOGICAL = {
    "io.debezium.time.Date": ColumnType("days", "date"),
    "org.apache.kafka.connect.data.Date": ColumnType("days", "date"),
    "io.debezium.time.Timestamp": ColumnType("timestamp_ms", "timestamp_ntz"),
    "org.apache.kafka.connect.data.Timestamp": ColumnType("timestamp_ms", "timestamp_ntz"),
    "io.debezium.time.MicroTimestamp": ColumnType("timestamp_us", "timestamp_ntz"),
    "io.debezium.time.NanoTimestamp": ColumnType("timestamp_ns", "timestamp_ntz"),
    "io.debezium.time.ZonedTimestamp": ColumnType("zoned", "timestamp"),
    "io.debezium.time.IsoTimestamp": ColumnType("iso_timestamp", "timestamp_ntz"),
    "io.debezium.time.IsoDate": ColumnType("iso_date", "date"),
    "io.debezium.time.Time": ColumnType("time_ms", "bigint"),
    "org.apache.kafka.connect.data.Time": ColumnType("time_ms", "bigint"),
    "io.debezium.time.MicroTime": ColumnType("time_us", "bigint"),
    "io.debezium.time.NanoTime": ColumnType("time_ns", "bigint"),
    "io.debezium.time.MicroDuration": ColumnType("bigint", "bigint"),
    "io.debezium.time.Year": ColumnType("int", "int"),
    "io.debezium.data.Bits": ColumnType("bytes", "binary"),
    "io.debezium.data.VariableScaleDecimal": ColumnType("variable_decimal", "string"),
}
_GEOMETRY = ColumnType("geometry", "struct<`wkb`:binary,`srid`:int>")
_TIME_OF_DAY = "time of day, microseconds since midnight"
# What a column holds of these, and its type: only of such a column it is said.
_ENCODINGS = {
    "io.debezium.time.Time": ("bigint", f"{_TIME_OF_DAY}, sent in milliseconds"),
    "org.apache.kafka.connect.data.Time": ("bigint", f"{_TIME_OF_DAY}, sent in milliseconds"),
    "io.debezium.time.MicroTime": ("bigint", _TIME_OF_DAY),
    "io.debezium.time.NanoTime": (
        "bigint",
        f"{_TIME_OF_DAY}, sent in nanoseconds and rounded down",
    ),
    "io.debezium.time.ZonedTime": ("string", "time of day with its zone, as ISO 8601 text"),
    "io.debezium.time.IsoTime": ("string", "time of day as ISO 8601 text"),
    "io.debezium.time.NanoTimestamp": (
        "timestamp_ntz",
        "sent in nanoseconds and rounded down to microseconds",
    ),
    "io.debezium.time.MicroDuration": ("bigint", "duration in microseconds"),
    "io.debezium.time.NanoDuration": ("bigint", "duration in nanoseconds"),
    "io.debezium.time.Interval": ("string", "duration as ISO 8601 text"),
    "io.debezium.time.Year": ("int", "year"),
    "io.debezium.data.Bits": ("binary", "bits, the lowest byte first"),
    "io.debezium.data.VariableScaleDecimal": ("string", "exact decimal as text"),
    "io.debezium.data.Json": ("string", "JSON as text"),
    "io.debezium.data.Xml": ("string", "XML as text"),
    "io.debezium.data.EnumSet": ("string", "values of a set, joined by commas"),
}
_COMMENT = "__debezium.source.column.comment"
# What Debezium says of a type, not of a column.
_DOCS_OF_TYPES = re.compile(
    r"(Geometry|Geography)( \([A-Z]+\))?|Variable scaled decimal|Sparse double vector"
)
CONFIGURED = {
    "boolean": "boolean",
    "int": "int",
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": "any_date",
    "timestamp": "any_instant",
    "timestamp_ntz": "any_local",
}
TEXT = ColumnType("string", "string")
# Sources that do not say how many digits a decimal has (C2).
BARE_DECIMAL = ColumnType("string", "string", encoding="exact decimal as text (decimal)")
# Read as text; what a schema says so says nothing of the column's values.
UNKNOWN = ColumnType("unknown", "string")

ColumnTypes = dict[str, ColumnType]


# --- schemas (driver)


_MOST_LEVELS = 200  # of a schema; deeper ones would exhaust Python's stack


def schema_document(text: str) -> Any:
    """A schema's document; an empty one where it nests deeper than any table's would."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return {} if deepest > _MOST_LEVELS else json.loads(text)


def columns_of_fields(schema: Mapping[str, Any]) -> ColumnTypes:
    """The members, in order, of a Kafka Connect schema of a struct.

    Where all are cells (D22), they are of the types of what the cells hold.
    """
    named = _named(schema)
    if named and all(_is_cell(kind) for _, kind in named):
        named = [(name, dict(_named(kind))["value"]) for name, kind in named]
    return {name: type_of(kind) for name, kind in named}


def _is_cell(schema: Mapping[str, Any]) -> bool:
    """Is this the schema of ``{"value": …, "set": …}``?"""
    members = dict(_named(schema)) if schema.get("type") == "struct" else {}
    return members.keys() == {"value", "set"} and members["set"].get("type") == "boolean"


def columns_of_images(schema: Mapping[str, Any]) -> ColumnTypes:
    """The row's columns, in order, of a Kafka Connect schema of a struct of two images."""
    row: Mapping[str, Any] = {}
    for field in _fields(schema):
        if field.get("field") in ("after", "before") and _fields(field):
            row = field
    return columns_of_fields(row)


def over(known: ColumnTypes, newer: ColumnTypes) -> ColumnTypes:
    """`newer` types over those `known`; one that is unknown changes none.

    A comment that is not there any more says nothing: the last known one stays, as after a
    connector's restart without `include.schema.comments`.
    """
    merged = dict(known)
    for name, kind in newer.items():
        before = known.get(name, kind)
        chosen = before if kind == UNKNOWN else kind
        comment = before.comment if kind.comment is None else kind.comment
        merged[name] = chosen if chosen.comment == comment else replace(chosen, comment=comment)
    return merged


def widest(known: ColumnTypes, other: ColumnTypes) -> ColumnTypes:
    """`other` types over those `known`, but not over wider ones."""

    def is_wider(name: str, than: str) -> bool:
        kind = known[name].spark if name in known else than
        return kind != than and evolution(kind, than) == []

    return over(known, {n: k for n, k in other.items() if not is_wider(n, k.spark)})


_UNSEEN = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
_LONGEST = 1_000  # characters of a text in a description; the table's metadata repeats it


def description(kind: ColumnType, column: str) -> str:
    """What a column says of itself: the source's comment, then how its values are encoded.

    Args:
        kind: the newest type in messages.
        column: the column's own type; an encoding is told of a column of that type only (R5).
    """
    texts = (kind.comment or "", kind.encoding if column == kind.spark else "")
    return "; ".join(filter(None, map(_on_one_line, texts)))


def _on_one_line(text: str) -> str:
    """A text from data: no line breaks, nothing unseen, of bounded length."""
    shown = _UNSEEN.sub(" ", text[: 10 * _LONGEST]).strip()
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def columns_of_key(text: str) -> ColumnTypes:
    """The key columns of a message key's own schema."""
    return columns_of_fields(schema_document(text))


def _fields(schema: Any) -> list[Any]:
    found = schema.get("fields") if isinstance(schema, dict) else None
    return [f for f in found if isinstance(f, dict)] if isinstance(found, list) else []


def _named(struct: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Names and schemas of a struct's fields, in both forms that are met (D5)."""
    named = []
    for field in _fields(struct):
        if isinstance(field.get("field"), str):
            named.append((field["field"], field))
        elif isinstance(field.get("name"), str) and isinstance(field.get("schema"), dict):
            of_field = {"doc": field["doc"]} if "doc" in field else {}
            named.append((field["name"], {**of_field, **field["schema"]}))
    return named


def type_of(schema: Mapping[str, Any]) -> ColumnType:
    """The type of one field of a Kafka Connect schema; an unknown one is read as text."""
    kind, name = _type_of(schema), schema.get("name")
    comment, encoding = _comment_in(schema), kind.encoding
    if isinstance(name, str):
        spark, text = _ENCODINGS.get(name, ("", ""))
        if kind.wire == "geometry":
            spark, text = kind.spark, "WKB and SRID of a shape"
        encoding = f"{text} ({name})" if text and kind.spark == spark else encoding
    if comment is None and encoding == kind.encoding:
        return kind
    return replace(kind, comment=kind.comment if comment is None else comment, encoding=encoding)


def _comment_in(schema: Mapping[str, Any]) -> str | None:
    """What the source says of a column: Debezium docs, `include.schema.comments`.

    Connectors write it into `doc`, and with `column.propagate.source.type` into a parameter; older
    ones into the parameter alone.
    """
    parameter, doc = _member(schema, "parameters").get(_COMMENT), schema.get("doc")
    if isinstance(parameter, str):
        return parameter
    return doc if isinstance(doc, str) and not _DOCS_OF_TYPES.fullmatch(doc) else None


def _type_of(schema: Mapping[str, Any]) -> ColumnType:
    name, kind = schema.get("name"), schema.get("type")
    if isinstance(kind, dict):
        return type_of(kind)
    if isinstance(name, str) and name in _LOGICAL:
        return _LOGICAL[name]
    if isinstance(name, str) and name.startswith("io.debezium.data.geometry."):
        return _GEOMETRY
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(_member(schema, "parameters"))
    kind = str(kind).lower()
    if kind == "array":
        return _array_of(type_of(_member(schema, "items")))
    if kind == "map":
        return _map_of(type_of(_member(schema, "keys")), type_of(_member(schema, "values")))
    members = tuple((name, type_of(field)) for name, field in _named(schema))
    names = [member for member, _ in members]
    # A struct with members that no column can have stays the text of its JSON.
    if kind == "struct" and members and all(names) and len(set(names)) == len(names):
        listed = ",".join(f"{quote(name)}:{member.spark}" for name, member in members)
        return ColumnType(
            "struct", f"struct<{listed}>", members=members, encoding=_of_parts(dict(members))
        )
    return _PRIMITIVES.get(kind, UNKNOWN)


def _member(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = schema.get(name)
    return found if isinstance(found, dict) else {}


def _array_of(element: ColumnType) -> ColumnType:
    encoding = _of_parts({"elements": element})
    return ColumnType("array", f"array<{element.spark}>", element=element, encoding=encoding)


def _map_of(key: ColumnType, value: ColumnType) -> ColumnType:
    spark, encoding = f"map<{key.spark},{value.spark}>", _of_parts({"keys": key, "values": value})
    return ColumnType("map", spark, key=key, element=value, encoding=encoding)


def _of_parts(parts: Mapping[str, ColumnType]) -> str:
    """What is to be said of the parts of a type, by their names."""
    said = {name: description(kind, kind.spark) for name, kind in parts.items()}
    return ", ".join(f"{name}: {text}" for name, text in said.items() if text)


def _decimal(parameters: Mapping[str, Any]) -> ColumnType:
    scale = _whole(parameters.get("scale"), 0)
    if abs(scale) > MAX_SCALE:
        return ColumnType("nothing", "string", encoding=f"always null: the scale is {scale}")
    precision = _whole(parameters.get("connect.decimal.precision"), MAX_DECIMAL)
    if not (0 < precision <= MAX_DECIMAL and 0 <= scale <= precision):
        why = f"exact decimal as text: no DECIMAL has precision {precision} and scale {scale}"
        return ColumnType("decimal", "string", scale, encoding=why)
    return ColumnType("decimal", f"decimal({precision},{scale})", scale)


def _whole(value: Any, default: int) -> int:
    return int(value) if re.fullmatch(r"-?\d{1,9}", str(value)) else default


def has_numbers(labels: Iterable[str]) -> bool:
    """Is one of some labels itself a whole number, so that a number may be a label?"""
    return any(re.fullmatch(r"\d+", label, re.ASCII) for label in labels)


def columns_of_config(columns: Mapping[str, str]) -> ColumnTypes:
    """Types that the configuration names, for messages without schema."""
    return {name: type_in_config(kind) for name, kind in columns.items()}


def type_in_config(kind: str) -> ColumnType:
    kind = kind.replace(" ", "")
    if kind.startswith("array<"):
        return _array_of(type_in_config(kind[len("array<") : -1]))
    if kind.startswith("map<string,"):
        return _map_of(TEXT, type_in_config(kind[len("map<string,") : -1]))
    if kind.startswith("decimal"):
        spark = kind.replace(",base64", "")
        wire = "number" if spark == kind else "decimal"  # of Connect, whose schema is gone
        return ColumnType(wire, spark, int(spark.split(",")[1].rstrip(")")))
    spark, _, unit = kind.rstrip(")").partition("(")
    wire = CONFIGURED[spark]
    return ColumnType(f"{wire}_{unit}" if unit else wire, spark)


def columns_of_inference(kind: str) -> ColumnTypes:
    """Types of what ``schema_of_variant_agg`` found in rows without any schema (R3)."""
    inferred: ColumnTypes = {}
    parsed = _parse_variant_schema(kind)
    for name, spark_type in parsed.items():
        if spark_type == "VOID":
            continue
        if re.fullmatch(r"BIGINT|DECIMAL\(\d+,0\)", spark_type):
            chosen = "bigint" if spark_type == "BIGINT" else "decimal(38,0)"
        elif spark_type.startswith(("DECIMAL", "DOUBLE", "FLOAT")):
            chosen = "double"
        elif spark_type == "BOOLEAN":
            chosen = "boolean"
        else:
            chosen = "string"
        inferred[name] = inferred_as(chosen)
    return inferred


def inferred_as(spark: str) -> ColumnType:
    """How values are read into a column whose type was inferred."""
    base = type_in_config(spark)
    wire = "inferred_double" if spark == "double" else base.wire
    return ColumnType(wire, base.spark, base.scale, inferred=True)


def _parse_variant_schema(kind: str) -> dict[str, str]:
    """The members of ``OBJECT<a: BIGINT, `b c`: STRING>``, one level deep."""
    members: dict[str, str] = {}
    if not kind.startswith("OBJECT<"):
        return members
    rest = kind[len("OBJECT<") : -1]
    while rest:
        if rest.startswith("`"):
            found = re.match(r"`((?:[^`]|``)*)`: ", rest)
            assert found, kind
            name = found.group(1).replace("``", "`")
            rest = rest[found.end() :]
        else:
            name, _, rest = rest.partition(": ")
        depth, end, quoted = 0, 0, False
        for end, char in enumerate(rest + ","):  # noqa: B007
            if char == "`":
                quoted = not quoted
            elif not quoted and char in "<(":
                depth += 1
            elif not quoted and char in ">)":
                depth -= 1
            elif not quoted and char == "," and depth == 0:
                break
        members[name] = rest[:end]
        rest = rest[end + 1 :].lstrip(" ")
    return members


def held_as(kind: ColumnType, column: str) -> ColumnType:
    """A type whose values a column of another type holds (R5)."""
    if "<" in column and "<" in kind.spark:
        return _nested_held_as(kind, DataType.fromDDL(column))
    return kind if column == kind.spark else ColumnType("held", column, element=kind)


def _nested_held_as(kind: ColumnType, column: DataType) -> ColumnType:
    spark = ddl_of(column)
    if spark == kind.spark:
        return kind
    if kind.wire == "array" and isinstance(column, ArrayType):
        assert kind.element is not None
        return replace(kind, spark=spark, element=_nested_held_as(kind.element, column.elementType))
    if kind.wire == "map" and isinstance(column, MapType):
        assert kind.element is not None
        assert kind.key is not None
        return replace(
            kind,
            spark=spark,
            key=_nested_held_as(kind.key, column.keyType),
            element=_nested_held_as(kind.element, column.valueType),
        )
    if kind.wire == "struct" and isinstance(column, StructType):
        own = dict(kind.members)
        members = tuple(
            (
                field.name,
                _nested_held_as(own[field.name], field.dataType)
                if field.name in own
                else ColumnType("nothing", ddl_of(field.dataType)),
            )
            for field in column.fields
        )
        return replace(kind, spark=spark, members=members)
    return ColumnType("held", spark, element=kind)
