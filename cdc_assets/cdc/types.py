"""Column types and values (FORMATS R3–R5): message schema → types, JSON → typed columns.

A :class:`ColumnType` says how a value travels (its *wire*) and what column holds it. The
driver reads schemas, which are few; values are read by Spark expressions alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from cdc_assets.cdc.jsontext import field as json_field
from cdc_assets.cdc.jsontext import is_object, is_present, is_text, let
from cdc_assets.cdc.names import ddl_of, quote

_MIN_DAY, _MAX_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31 in days since 1970
_MIN_SECOND, _MAX_SECOND = -62_135_596_800, 253_402_300_799
_MAX_DECIMAL = 38
# Numbers longer than these are no numbers that a person wrote; zeros would fill the memory.
_MAX_NUMBER_BYTES, _MAX_SCALE = 1_000, 10_000


@dataclass(frozen=True)
class ColumnType:
    """How a value is written in messages (`wire`) and the Spark type (DDL) of its column.

    Arrays have an `element`, maps a `key` too, structs `members`; what travels as one type and
    is held as another (wire `held`) has the first as its `element`.
    """

    wire: str
    spark: str
    scale: int = 0
    element: ColumnType | None = None
    key: ColumnType | None = None
    members: tuple[tuple[str, ColumnType], ...] = ()
    inferred: bool = False


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
    "io.debezium.time.MicroTime": ColumnType("bigint", "bigint"),
    "io.debezium.time.NanoTime": ColumnType("time_ns", "bigint"),
    "io.debezium.time.MicroDuration": ColumnType("bigint", "bigint"),
    "io.debezium.time.Year": ColumnType("int", "int"),
    "io.debezium.data.Bits": ColumnType("bytes", "binary"),
    "io.debezium.data.VariableScaleDecimal": ColumnType("variable_decimal", "string"),
}
_GEOMETRY = ColumnType("geometry", "struct<`wkb`:binary,`srid`:int>")
_DATAWORKS = {
    "BOOLEAN": ColumnType("boolean", "boolean"),
    "DOUBLE": ColumnType("double", "double"),
    "DATE": ColumnType("instant_ms", "timestamp"),
    "BYTES": ColumnType("bytes", "binary"),
    "LONG": ColumnType("bigint", "bigint"),
    "STRING": ColumnType("string", "string"),
}
_CONFIGURED = {
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
_TEXT = ColumnType("string", "string")
# Read as text; what a schema says so says nothing of the column's values.
_UNKNOWN = ColumnType("unknown", "string")

Columns = dict[str, ColumnType]


# --- schemas (driver)


_MOST_LEVELS = 200  # of a schema; deeper ones would exhaust Python's stack


def _schema_of(text: str) -> Any:
    """A schema's document; an empty one where it nests deeper than any table's would."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return {} if deepest > _MOST_LEVELS else json.loads(text)


def columns_of_schema(text: str, format_name: str) -> Columns:
    """The row's columns, in order, of a schema that a message carried."""
    schema = _schema_of(text)
    if format_name == "dataworks":
        return {
            column["name"]: _DATAWORKS.get(str(column.get("type")).upper(), _UNKNOWN)
            for column in schema.get("dataColumn") or []
            if isinstance(column, dict) and isinstance(column.get("name"), str)
        }
    if format_name == "debezium-flat":
        return {n: type_of(kind) for n, kind in _named(schema) if not n.startswith("__")}
    row: Mapping[str, Any] = {}
    for field in _fields(schema):
        if field.get("field") in ("after", "before") and _fields(field):
            row = field
    return {name: type_of(kind) for name, kind in _named(row)}


def over(known: Columns, newer: Columns) -> Columns:
    """`newer` types over those `known`; one that is unknown changes none."""
    return {**known, **{n: k for n, k in newer.items() if k != _UNKNOWN or n not in known}}


def columns_of_key(text: str) -> Columns:
    """The key columns of a message key's own schema."""
    return {name: type_of(kind) for name, kind in _named(_schema_of(text))}


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
            named.append((field["name"], field["schema"]))
    return named


def type_of(schema: Mapping[str, Any]) -> ColumnType:
    """The type of one field of a Kafka Connect schema; an unknown one is read as text."""
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
        return ColumnType("struct", f"struct<{listed}>", members=members)
    return _PRIMITIVES.get(kind, _UNKNOWN)


def _member(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = schema.get(name)
    return found if isinstance(found, dict) else {}


def _array_of(element: ColumnType) -> ColumnType:
    return ColumnType("array", f"array<{element.spark}>", element=element)


def _map_of(key: ColumnType, value: ColumnType) -> ColumnType:
    return ColumnType("map", f"map<{key.spark},{value.spark}>", key=key, element=value)


def _decimal(parameters: Mapping[str, Any]) -> ColumnType:
    scale = _whole(parameters.get("scale"), 0)
    if abs(scale) > _MAX_SCALE:
        return ColumnType("nothing", "string")
    precision = _whole(parameters.get("connect.decimal.precision"), _MAX_DECIMAL)
    if not (0 < precision <= _MAX_DECIMAL and 0 <= scale <= precision):
        return ColumnType("decimal", "string", scale)
    return ColumnType("decimal", f"decimal({precision},{scale})", scale)


def _whole(value: Any, default: int) -> int:
    return int(value) if re.fullmatch(r"-?\d{1,9}", str(value)) else default


def columns_of_config(columns: Mapping[str, str]) -> Columns:
    """Types that the configuration names, for messages without schema."""
    return {name: _configured(kind) for name, kind in columns.items()}


def _configured(kind: str) -> ColumnType:
    kind = kind.replace(" ", "")
    if kind.startswith("array<"):
        return _array_of(_configured(kind[len("array<") : -1]))
    if kind.startswith("map<string,"):
        return _map_of(_TEXT, _configured(kind[len("map<string,") : -1]))
    if kind.startswith("decimal"):
        return ColumnType("number", kind, int(kind.split(",")[1].rstrip(")")))
    return ColumnType(_CONFIGURED[kind], kind)


def columns_of_inference(kind: str) -> Columns:
    """Types of what ``schema_of_variant_agg`` found in rows without any schema (R3)."""
    inferred: Columns = {}
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
    base = _configured(spark)
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


# --- evolution (driver)


class Change(NamedTuple):
    """One alteration of a column: the path of what is added or widened, and its type."""

    path: tuple[str, ...]
    kind: str
    is_new: bool = False


def evolution(column: str, new: str) -> list[Change] | None:
    """What makes a column hold a new type too: nothing, some changes, or None (R5)."""
    if column == new:
        return []
    if "<" in column and "<" in new:
        return _nested_evolution(DataType.fromDDL(column), DataType.fromDDL(new), ())
    return _scalar_evolution(column, new, ())


def _scalar_evolution(column: str, new: str, path: tuple[str, ...]) -> list[Change] | None:
    if holds(column, new):
        return []
    if (column, new) in {("int", "bigint"), ("float", "double")}:
        return [Change(path, new)]
    old_decimal, new_decimal = _decimal_parts(column), _decimal_parts(new)
    if old_decimal and new_decimal and old_decimal[1] == new_decimal[1]:
        return [Change(path, new)]
    return None


def _nested_evolution(
    column: DataType, new: DataType, path: tuple[str, ...]
) -> list[Change] | None:
    """Elements and values may widen; a struct may gain members; keys of maps stay."""
    if isinstance(column, ArrayType) and isinstance(new, ArrayType):
        parts = [_nested_evolution(column.elementType, new.elementType, (*path, "element"))]
    elif isinstance(column, MapType) and isinstance(new, MapType):
        same_keys = ddl_of(column.keyType) == ddl_of(new.keyType)
        values = _nested_evolution(column.valueType, new.valueType, (*path, "value"))
        parts = [values if same_keys else None]
    elif isinstance(column, StructType) and isinstance(new, StructType):
        own = {field.name: field.dataType for field in column.fields}
        parts = [
            _nested_evolution(own[field.name], field.dataType, (*path, field.name))
            if field.name in own
            else [Change((*path, field.name), ddl_of(field.dataType), is_new=True)]
            for field in new.fields
        ]
    else:
        return _scalar_evolution(ddl_of(column), ddl_of(new), path)
    changes: list[Change] = []
    for part in parts:
        if part is None:
            return None
        changes += part
    return changes


def grown(value: Column, old: DataType, column: str) -> Column:
    """A value of an older schema as its column's type now: widened, with new members null."""
    if ddl_of(old) == column:
        return value
    return _grown(value, old, DataType.fromDDL(column)) if "<" in column else value.cast(column)


def _grown(value: Column, old: DataType, new: DataType) -> Column:
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return F.transform(value, lambda v: _grown(v, old.elementType, new.elementType))
    if isinstance(old, MapType) and isinstance(new, MapType):
        return F.transform_values(value, lambda _, v: _grown(v, old.valueType, new.valueType))
    if isinstance(old, StructType) and isinstance(new, StructType):
        of_old = {field.name: field.dataType for field in old.fields}
        members = (
            _grown(value.getField(field.name), of_old[field.name], field.dataType)
            if field.name in of_old
            else F.lit(None).cast(ddl_of(field.dataType))
            for field in new.fields
        )
        struct = F.struct(*(m.alias(f.name) for m, f in zip(members, new.fields, strict=True)))
        return F.when(value.isNotNull(), struct)
    return value.cast(ddl_of(new))


def holds(column: str, new: str) -> bool:
    """True where a column of one type holds every value of another."""
    if column == new or (column, new) in {
        ("bigint", "int"),
        ("double", "float"),
        ("double", "int"),
    }:
        return True
    old_decimal, new_decimal = _decimal_parts(column), _decimal_parts(new)
    if old_decimal and new_decimal:
        whole = old_decimal[0] - old_decimal[1] >= new_decimal[0] - new_decimal[1]
        return whole and old_decimal[1] >= new_decimal[1]
    return False


def _decimal_parts(kind: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    return (int(found.group(1)), int(found.group(2))) if found else None


# --- values (Spark expressions)

At = Callable[[str], Column]
"""Reads one JSON value as a Spark type; null where it is absent or does not fit."""


def of_member(row: Column, name: str) -> At:
    """Reads the member `name` of a VARIANT row."""
    return lambda kind: json_field(row, name, kind)


def read_value(at: At, kind: ColumnType, column: str | None = None) -> Column:
    """The value as its column's type; null where the column can't hold it (R4).

    Args:
        at: where the value stands.
        kind: how it was written.
        column: the table column's type where it differs from the message's (R5).
    """
    held = kind if column is None or column == kind.spark else held_as(kind, column)
    return _READERS[held.wire](at, held)


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


def _held(at: At, kind: ColumnType) -> Column:
    """A value of one type in a column of another: exactly, or null (R4, R5)."""
    assert kind.element is not None
    sent, target = kind.element, kind.spark
    if "<" in target or ("<" in sent.spark and target != "string"):
        return F.lit(None).cast(target)
    if "<" in sent.spark:
        return F.to_json(at("variant"))
    value = read_value(at, sent)
    text = _plain_text(value, sent.spark)
    if target == "string":
        return text
    if target == "boolean":
        return F.when(text.isin("true", "1"), True).when(text.isin("false", "0"), False)
    if target in ("int", "bigint"):
        return let(
            F.regexp_replace(text, r"\.0+$", ""),
            lambda whole: F.when(whole.rlike(_WHOLE), whole.try_cast(target)),
        )
    if target in ("float", "double"):
        return let(text, lambda found: _unrounded(found, target))
    if target == "binary":
        return _from_base64(text) if sent.spark == "string" else F.lit(None).cast(target)
    if target in ("date", "timestamp", "timestamp_ntz"):
        return _iso_value(text, target)
    return _exact(text, target)


def _plain_text(value: Column, spark: str) -> Column:
    """A value as its canonical text (DESIGN, column `key`)."""
    if spark == "string":
        return value
    if spark == "binary":
        return F.base64(value)
    if spark.startswith("timestamp"):
        text = F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
        text = F.regexp_replace(F.regexp_replace(text, r"(\.\d*?)0+$", "$1"), r"\.$", "")
        return F.concat(text, F.lit("Z" if spark == "timestamp" else ""))
    if _decimal_parts(spark):
        return F.regexp_replace(value.cast("string"), r"\.0*$|(\.\d*?)0+$", "$1")
    return value.cast("string")


_WHOLE = r"^[+-]?\d+$"
_WHOLE_WITH_POINT = r"^[+-]?\d+\.0+$"
_DECIMAL_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def _unrounded(text: Column, target: str) -> Column:
    """A text as float or double; null for an integer that it would round, or an overflow (R3)."""
    number = text.try_cast(target)
    # A cast to BIGINT stops at the largest one.
    is_same = (text.try_cast("bigint") == number.try_cast("bigint")) & (number < F.lit(2.0**63))
    is_whole, is_word = text.rlike(_WHOLE), text.rlike(r"^-?[A-Z]")
    is_finite = F.abs(number) < F.lit(float("inf"))
    return F.when((is_whole & is_same) | (~is_whole & (is_finite | is_word)), number)


def _exact(text: Column, target: str) -> Column:
    """A number's text as DECIMAL; null where the scale would cut something off."""
    decimals = _decimal_parts(target)
    assert decimals is not None, target

    def fitted(number: Column) -> Column:
        fraction = F.length(F.rtrim(F.regexp_extract(number, r"\.(\d+)", 1), F.lit("0")))
        exponent = F.regexp_extract(number, r"[eE]([+-]?\d{1,9})$", 1).try_cast("int")
        digits = fraction - F.coalesce(exponent, F.lit(0))
        return F.when(digits <= decimals[1], number.try_cast(target))

    return let(F.when(text.rlike(_DECIMAL_NUMBER), text), fitted)


def _integer(at: At, spark: str = "bigint") -> Column:
    """An integer, also `1.0`; null for a fraction, which a cast would cut, for true and false."""
    text = at("string")
    whole = F.substring_index(text, ".", 1)
    return F.when(text.rlike(_WHOLE), text.try_cast(spark)).when(
        text.rlike(_WHOLE_WITH_POINT), whole.try_cast(spark)
    )


def _whole_number(at: At, kind: ColumnType) -> Column:
    return _integer(at, kind.spark)


def _boolean(at: At, _: ColumnType) -> Column:
    text = at("string")
    return F.when(text.isin("true", "1"), True).when(text.isin("false", "0"), False)


def _floating(at: At, kind: ColumnType) -> Column:
    """A double or float; null for an overflow, but not for the text that says infinity."""

    def fitted(value: Column) -> Column:
        is_infinite = value.isin(
            F.lit("Infinity").cast(kind.spark), F.lit("-Infinity").cast(kind.spark)
        )
        says_so = at("string").rlike("^[+-]?(?i:infinity)$") & is_text(at("variant"))
        return F.when(~is_infinite | says_so, value)

    is_boolean = at("string").isin("true", "false")
    return F.when(~is_boolean, let(at(kind.spark), fitted))


def _inferred_double(at: At, kind: ColumnType) -> Column:
    return _unrounded(at("string"), kind.spark)


def _text(at: At, _: ColumnType) -> Column:
    return F.coalesce(at("string"), F.nullif(F.to_json(at("variant")), F.lit("null")))


def _from_base64(text: Column) -> Column:
    """Bytes of padded base64; Spark alone would read the text NaN as two bytes."""
    return F.when(F.length(text) % 4 == 0, F.try_to_binary(text, F.lit("base64")))


def _base64(at: At, _: ColumnType) -> Column:
    # A number's digits are base64, too.
    return F.when(is_text(at("variant")), _from_base64(at("string")))


def _days(at: At, _: ColumnType) -> Column:
    return _date(_integer(at))


def _date(days: Column) -> Column:
    return F.when(days.between(_MIN_DAY, _MAX_DAY), F.date_from_unix_date(days.try_cast("int")))


def _instant(count: Column, per_second: int) -> Column:
    """A count of units since 1970 as TIMESTAMP, floored to µs; null outside years 1–9999."""
    if per_second == 1_000_000_000:
        # Years 1 to 9999 in ns are beyond int64: any int64 is in range.
        return F.timestamp_micros(_floor_by_1000(count))
    in_range = count.between(_MIN_SECOND * per_second, (_MAX_SECOND + 1) * per_second - 1)
    micros = count * F.lit(1_000_000 // per_second)
    return F.when(in_range, F.timestamp_micros(micros))


def _floor_by_1000(count: Column) -> Column:
    """Division that rounds down, also below zero, without passing through a double."""
    return F.floor(count.cast("decimal(20,0)") / F.lit(1000)).cast("bigint")


def _local(per_second: int) -> Callable[[At, ColumnType], Column]:
    return lambda at, _: _instant(_integer(at), per_second).cast("timestamp_ntz")


_ISO = r"^[+-]?\d{4,6}-\d{2}-\d{2}"
_ZONE_OF_DATE = _ISO.replace("^", "^(") + r")(Z|[+-]\d{2}:?\d{2})$"


def _iso(at: At, kind: ColumnType) -> Column:
    return _iso_value(at("string"), kind.spark)


def _iso_value(text: Column, spark: str) -> Column:
    if spark == "date":
        # Debezium's IsoDate carries a zone, which no cast to a date takes: 2026-11-05Z.
        text = F.regexp_replace(text, _ZONE_OF_DATE, "$1")
    value = F.when(text.rlike(_ISO), F.trim(text).try_cast(spark))
    return let(value, lambda found: F.when(F.year(found).between(1, 9999), found))


def _number_or_iso(per_second: int) -> Callable[[At, ColumnType], Column]:
    """Configured times: ISO text, or a whole number of ms (of days for a date)."""

    def read(at: At, kind: ColumnType) -> Column:
        text = at("string")
        number = F.when(text.rlike(_WHOLE), text.try_cast("bigint"))
        of_number = (
            _date(number) if kind.spark == "date" else _instant(number, per_second).cast(kind.spark)
        )
        return F.coalesce(of_number, _iso(at, kind))

    return read


def _unscaled(binary: Column) -> Column:
    """Big-endian two's complement of up to 16 bytes as DECIMAL(38,0), else null (R3)."""
    two_64 = F.lit(str(2**64)).cast("decimal(20,0)")
    mask = F.lit(str(2**64 - 1)).cast("decimal(20,0)")

    def half(digits: Column, start: int) -> Column:
        return F.conv(F.substring(digits, start, 16), 16, 10).cast("decimal(20,0)")

    def magnitude(high: Column, low: Column) -> Column:
        return F.try_add(F.try_multiply(high, two_64), low)

    def number(digits: Column) -> Column:
        high, low = half(digits, 1), half(digits, 17)
        is_negative = F.substring(digits, 1, 1) >= "8"
        # n is -1 - ~n: through the magnitude, as high * 2^64 alone may be beyond 38 digits, and
        # by subtraction, as Spark's negation rounds to 34 digits.
        below = F.try_subtract(F.lit(-1).cast("decimal(1,0)"), magnitude(mask - high, mask - low))
        return F.when(is_negative, below).otherwise(magnitude(high, low)).cast("decimal(38,0)")

    def filled(digits: Column) -> Column:
        is_negative = F.substring(digits, 1, 1) >= "8"
        return F.lpad(digits, F.lit(32), F.when(is_negative, "F").otherwise("0"))

    fits = F.length(binary).between(1, 16)
    return let(let(F.when(fits, F.hex(binary)), filled), number)


def _unscaled_text(binary: Column) -> Column:
    """Big-endian two's complement of any length as decimal text."""

    def text(number: Column) -> Column:
        long = F.when(F.length(number).between(1, _MAX_NUMBER_BYTES), _long_digits(number))
        return F.coalesce(_unscaled(number).cast("string"), long)

    return let(binary, text)


_LIMB = 1_000_000_000


def _long_digits(binary: Column) -> Column:
    """Decimal text of two's complement beyond 38 digits, which no Spark type holds.

    Horner's rule on limbs of nine decimal digits, lowest first, over 28 bits at a time: a limb
    times 2^28 with its carry stays within int64, and the carry within one limb.
    """

    def times_plus(limbs: Column, factor: int, carry: Column) -> Column:
        def step(done: Column, limb: Column) -> Column:
            def split(value: Column) -> Column:
                limbs = F.concat(done["limbs"], F.array(value % F.lit(_LIMB)))
                return F.struct(limbs.alias("limbs"), _div(value, _LIMB).alias("carry"))

            return let(limb * F.lit(factor) + done["carry"], split)

        none = F.array().cast("array<bigint>")
        start = F.struct(none.alias("limbs"), carry.cast("bigint").alias("carry"))
        return F.aggregate(
            limbs, start, step, lambda done: F.concat(done["limbs"], F.array(done["carry"]))
        )

    def digits(number: Column) -> Column:
        flipped = F.translate(number, "0123456789ABCDEF", "FEDCBA9876543210")
        is_negative = F.substring(number, 1, 1) >= "8"
        magnitude = F.when(is_negative, flipped).otherwise(number)
        whole = F.lpad(magnitude, _div(F.length(number) + F.lit(6), 7) * F.lit(7), F.lit("0"))
        chunks = F.transform(
            F.regexp_extract_all(whole, F.lit("(.{7})"), 1),
            lambda chunk: F.conv(chunk, 16, 10).cast("bigint"),
        )
        # -n is ~n + 1.
        one = F.when(is_negative, 1).otherwise(0)
        zero = F.array(F.lit(0).cast("bigint"))
        limbs = F.aggregate(chunks, zero, lambda done, chunk: times_plus(done, 2**28, chunk))
        parts = F.transform(
            F.reverse(times_plus(limbs, 1, one)), lambda limb: F.lpad(limb.cast("string"), 9, "0")
        )
        text = F.ltrim(F.concat_ws("", parts), F.lit("0"))
        return F.concat(F.when(is_negative, "-").otherwise(""), text)

    return let(F.hex(binary), digits)


def _div(value: Column, by: int) -> Column:
    """Integer division, which has no operator in Python's API."""
    return F.call_function("div", value, F.lit(by))


def _with_point(unscaled: Column, scale: Column) -> Column:
    """Exact text of ``unscaled * 10^-scale``."""

    def pointed(digits: Column) -> Column:
        cut = F.length(digits) - scale
        return F.concat(
            F.substring(digits, F.lit(1), cut), F.lit("."), F.substring(digits, cut + 1, scale)
        )

    def text(number: Column) -> Column:
        sign = F.when(number.startswith("-"), F.lit("-")).otherwise(F.lit(""))
        digits = F.ltrim(number, F.lit("-"))
        width = F.greatest(F.length(digits), scale + 1)
        fraction = let(F.lpad(digits, width, F.lit("0")), pointed)
        zeros = F.when(digits == "0", 0).otherwise(F.greatest(-scale, F.lit(0)))
        whole = F.concat(digits, F.repeat(F.lit("0"), zeros))
        return F.concat(sign, F.when(scale > 0, fraction).when(scale <= 0, whole))

    return let(unscaled, text)


def _decimal_value(at: At, kind: ColumnType) -> Column:
    """Base64 of the unscaled bytes, or a JSON number (decimal.format NUMERIC)."""
    coded = is_text(at("variant"))
    binary, scale = _from_base64(at("string")), F.lit(kind.scale)
    if kind.spark == "string":
        of_bytes = _with_point(_unscaled_text(binary), scale)
        return F.when(coded, of_bytes).otherwise(let(_number_text(at), _long_number(kind.scale)))
    of_bytes = _with_point(_unscaled(binary).cast("string"), scale)
    return F.when(coded, of_bytes.try_cast(kind.spark)).otherwise(
        _exact(_number_text(at), kind.spark)
    )


def _long_number(scale: int) -> Callable[[Column], Column]:
    """A JSON number with as many decimals as its base64 form would have."""
    places = min(max(scale, 0), _MAX_DECIMAL)

    def text(number: Column) -> Column:
        fixed = _exact(number, f"decimal({_MAX_DECIMAL},{places})").cast("string")
        return F.coalesce(fixed, F.when(number.rlike(r"^-?[\d.]+$"), number))

    return text


def _number_text(at: At) -> Column:
    """The digits of a JSON number; null where VARIANT had to round it to a double (R3).

    VARIANT keeps numbers of up to 38 digits without exponent; others become doubles, which
    give back no more than 15 digits as they were.
    """
    text = at("string")
    digits = F.length(F.regexp_replace(text, r"^-?0*\.?0*|\.|[eE].*$", ""))
    is_rounded = (F.schema_of_variant(at("variant")) == "DOUBLE") & (digits > 15)
    return F.when(~is_rounded, text)


def _variable_decimal(at: At, _: ColumnType) -> Column:
    value = at("variant")
    scale = F.try_variant_get(value, "$.scale", "int")
    coded = F.try_variant_get(value, "$.value", "string")
    return let(
        F.when(scale.between(-_MAX_SCALE, _MAX_SCALE), scale),
        lambda places: _with_point(_unscaled_text(_from_base64(coded)), places),
    )


def _number(at: At, kind: ColumnType) -> Column:
    """A configured decimal: a JSON number, or its text."""
    return _exact(_number_text(at), kind.spark)


def _geometry(at: At, kind: ColumnType) -> Column:
    value = at("variant")
    wkb = _from_base64(F.try_variant_get(value, "$.wkb", "string"))
    shape = F.struct(wkb.alias("wkb"), F.try_variant_get(value, "$.srid", "int").alias("srid"))
    return F.when(wkb.isNotNull(), shape)


def _array(at: At, kind: ColumnType) -> Column:
    assert kind.element is not None
    element = kind.element
    read = F.transform(at("array<variant>"), lambda v: _checked(v, element))
    return let(read, _all_or_none)


def _map(at: At, kind: ColumnType) -> Column:
    """A JSON object, or a list of pairs, which is how Connect writes keys that are no text."""
    assert kind.element is not None
    assert kind.key is not None
    key, element = kind.key, kind.element

    def of_parts(parts: Column) -> Column:
        keys, values = parts["keys"], parts["values"]
        is_whole = keys.isNotNull() & values.isNotNull() & ~F.exists(keys, lambda k: k.isNull())
        is_whole = is_whole & (F.size(F.array_distinct(keys)) == F.size(keys))
        return F.when(is_whole, F.map_from_arrays(keys, values))

    def all_read(found: Column, of: ColumnType) -> Column:
        return let(F.transform(found, lambda v: _checked(v, of)), _all_or_none)

    def read(entries: Column) -> Column:
        parts = F.struct(
            all_read(F.transform(entries, lambda e: e["key"]), key).alias("keys"),
            all_read(F.transform(entries, lambda e: e["value"]), element).alias("values"),
        )
        return F.when(entries.isNotNull(), let(parts, of_parts))

    members = F.transform(
        F.map_entries(at("map<string,variant>")),
        lambda e: F.struct(e["key"].cast("variant").alias("key"), e["value"].alias("value")),
    )
    if key.wire in ("string", "unknown"):
        return let(members, read)
    pairs = F.transform(
        at("array<array<variant>>"),
        lambda pair: F.struct(
            F.get(pair, F.lit(0)).alias("key"), F.get(pair, F.lit(1)).alias("value")
        ),
    )
    are_pairs = F.forall(at("array<array<variant>>"), lambda pair: F.size(pair) == 2)
    return let(F.coalesce(members, F.when(are_pairs, pairs)), read)


def _struct(at: At, kind: ColumnType) -> Column:
    def read(row: Column) -> Column:
        members = [
            _checked(json_field(row, name, "variant"), member).alias(f"m{number}")
            for number, (name, member) in enumerate(kind.members)
        ]
        return F.when(is_object(row), let(F.struct(*members), whole))

    def whole(found: Column) -> Column:
        fits, values = F.lit(True), []
        for number, (name, _) in enumerate(kind.members):
            member = found[f"m{number}"]
            fits = fits & (member["value"].isNotNull() | ~member["is_sent"])
            values.append(member["value"].alias(name))
        return F.when(fits, F.struct(*values))

    return let(at("variant"), read)


def _checked(value: Column, element: ColumnType) -> Column:
    is_sent = is_present(value) if element.wire != "nothing" else F.lit(False)
    return F.struct(read_value(_itself(value), element).alias("value"), is_sent.alias("is_sent"))


def _all_or_none(elements: Column) -> Column:
    """The values, or null where one of them does not fit: part of a list is no value (R4)."""
    is_lost = F.exists(elements, lambda e: e["is_sent"] & e["value"].isNull())
    return F.when(~is_lost, F.transform(elements, lambda e: e["value"]))


def _itself(value: Column) -> At:
    return lambda kind: F.try_variant_get(value, "$", kind)


_READERS: dict[str, Callable[[At, ColumnType], Column]] = {
    "boolean": _boolean,
    "int": _whole_number,
    "bigint": _whole_number,
    "float": _floating,
    "double": _floating,
    "string": _text,
    "unknown": _text,
    "bytes": _base64,
    "days": _days,
    "timestamp_ms": _local(1_000),
    "timestamp_us": _local(1_000_000),
    "timestamp_ns": _local(1_000_000_000),
    "instant_ms": lambda at, _: _instant(_integer(at), 1_000),
    "zoned": _iso,
    "iso_timestamp": _iso,
    "iso_date": _iso,
    "time_ms": lambda at, _: F.try_multiply(_integer(at), F.lit(1_000)),
    "time_ns": lambda at, _: _floor_by_1000(_integer(at)),
    "decimal": _decimal_value,
    "variable_decimal": _variable_decimal,
    "number": _number,
    "geometry": _geometry,
    "array": _array,
    "map": _map,
    "struct": _struct,
    "held": _held,
    "nothing": lambda _, kind: F.lit(None).cast(kind.spark),
    "inferred_double": _inferred_double,
    "any_date": _number_or_iso(1_000),
    "any_instant": _number_or_iso(1_000),
    "any_local": _number_or_iso(1_000),
}


# --- keys


def canonical_key(at: At, kind: ColumnType) -> Column:
    """A key column's value as VARIANT in canonical form (DESIGN, column `key`).

    Integers stay plain numbers; decimals are texts without trailing zeros, bytes base64,
    times ISO text. Null where the column can't hold the value.
    """
    value = read_value(at, kind)
    if "<" in kind.spark:
        return at("variant")
    if kind.spark in ("int", "bigint", "boolean", "float", "double", "string"):
        return value.cast("variant")
    return _plain_text(value, kind.spark).cast("variant")


def read_key(at: At, column: str) -> Column:
    """A canonical key value as its table column's type."""
    text = at("string")
    if column == "binary":
        return F.try_to_binary(text, F.lit("base64"))
    if column in ("int", "bigint"):
        return F.when(text.rlike(r"^[+-]?\d+$"), text.try_cast(column))
    if column == "string":
        return F.coalesce(text, F.to_json(at("variant")))
    return text.try_cast(column)
