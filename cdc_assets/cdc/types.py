"""Column types and values (FORMATS R3–R5): message schema → types, JSON → typed columns.

A :class:`ColumnType` says how a value travels (its *wire*) and what column holds it. The
driver reads schemas, which are few; values are read by Spark expressions alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.cdc.jsontext import field as json_field
from cdc_assets.cdc.jsontext import is_present, is_text, let

_MIN_DAY, _MAX_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31 in days since 1970
_MIN_SECOND, _MAX_SECOND = -62_135_596_800, 253_402_300_799
_MAX_DECIMAL = 38


@dataclass(frozen=True)
class ColumnType:
    """How a value is written in messages (`wire`) and the Spark type of its column."""

    wire: str
    spark: str
    scale: int = 0
    element: ColumnType | None = None
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
    "io.debezium.data.geometry.Geometry": ColumnType("geometry", "struct<wkb:binary,srid:int>"),
    "io.debezium.data.geometry.Geography": ColumnType("geometry", "struct<wkb:binary,srid:int>"),
    "io.debezium.data.geometry.Point": ColumnType("geometry", "struct<wkb:binary,srid:int>"),
}
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

Columns = dict[str, ColumnType]


# --- schemas (driver)


def columns_of_schema(text: str, format_name: str) -> Columns:
    """The row's columns, in order, of a schema that a message carried."""
    schema = json.loads(text)
    if format_name == "dataworks":
        return {
            column["name"]: _DATAWORKS.get(str(column.get("type")).upper(), _TEXT)
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
    name, kind = schema.get("name"), str(schema.get("type", "")).lower()
    if isinstance(name, str) and name in _LOGICAL:
        return _LOGICAL[name]
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(schema.get("parameters") or {})
    if kind == "array":
        element = type_of(schema.get("items") or {})
        return ColumnType("array", f"array<{element.spark}>", element=element)
    if kind == "map":
        element = type_of(schema.get("values") or {})
        return ColumnType("map", f"map<string,{element.spark}>", element=element)
    return _PRIMITIVES.get(kind, _TEXT)


def _decimal(parameters: Mapping[str, Any]) -> ColumnType:
    scale = _whole(parameters.get("scale"), 0)
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
    if kind.startswith("decimal"):
        kind = kind.replace(" ", "")
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
        base = _configured(chosen)
        inferred[name] = ColumnType(base.wire, base.spark, base.scale, inferred=True)
    return inferred


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


def widened(column: str, new: str) -> str | None:
    """The type that an existing column becomes to hold a new type too, or None (R5)."""
    if (column, new) in {("int", "bigint"), ("float", "double")}:
        return new
    old_decimal, new_decimal = _decimal_parts(column), _decimal_parts(new)
    if old_decimal and new_decimal and old_decimal[1] == new_decimal[1]:
        return new if new_decimal[0] > old_decimal[0] else None
    return None


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
    value = _READERS[kind.wire](at, kind)
    target = column or kind.spark
    if target == kind.spark:
        return value
    if target == "string":
        return F.coalesce(at("string"), F.to_json(at("variant")))
    if target in ("int", "bigint"):
        return let(
            value.cast("string"),
            lambda text: F.when(text.rlike(r"^[+-]?\d+$"), text.try_cast(target)),
        )
    if "<" in target or "<" in kind.spark:
        return F.lit(None).cast(target)
    return _exact(value, target)


def _exact(value: Column, target: str) -> Column:
    """A cast that refuses to round: what does not come back as it was is null."""
    decimals = _decimal_parts(target)
    if decimals is None:
        return value.cast("string").try_cast(target)

    def fitted(text: Column) -> Column:
        # A fraction that the scale cuts off would be lost in silence.
        digits = F.length(F.rtrim(F.regexp_extract(text, r"\.(\d+)$", 1), F.lit("0")))
        return F.when(digits <= decimals[1], text.try_cast(target))

    return let(value.cast("string"), fitted)


def _integer(at: At, spark: str = "bigint") -> Column:
    """An integer; null for a fraction, which a cast would cut, and for true and false."""
    text = at("string")
    return F.when(text.rlike(r"^[+-]?\d+$"), text.try_cast(spark))


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


def _iso(at: At, kind: ColumnType) -> Column:
    text = at("string")
    value = F.when(text.rlike(_ISO), F.trim(text).try_cast(kind.spark))
    return let(value, lambda found: F.when(F.year(found).between(1, 9999), found))


def _number_or_iso(per_second: int) -> Callable[[At, ColumnType], Column]:
    """Configured times: ISO text, or a whole number of ms (of days for a date)."""

    def read(at: At, kind: ColumnType) -> Column:
        text = at("string")
        number = F.when(text.rlike(r"^-?\d+$"), text.try_cast("bigint"))
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
        return F.concat(sign, F.when(scale > 0, fraction).otherwise(whole))

    return let(unscaled.cast("string"), text)


def _decimal_value(at: At, kind: ColumnType) -> Column:
    """Base64 of the unscaled bytes, or a JSON number (decimal.format NUMERIC)."""
    coded = is_text(at("variant"))
    of_bytes = _with_point(_unscaled(_from_base64(at("string"))), F.lit(kind.scale))
    if kind.spark == "string":
        return F.when(coded, of_bytes).otherwise(at("string"))
    return F.when(coded, of_bytes.try_cast(kind.spark)).otherwise(_exact(at("string"), kind.spark))


def _variable_decimal(at: At, _: ColumnType) -> Column:
    value = at("variant")
    scale = F.try_variant_get(value, "$.scale", "int")
    coded = F.try_variant_get(value, "$.value", "string")
    return _with_point(_unscaled(_from_base64(coded)), scale)


def _number(at: At, kind: ColumnType) -> Column:
    text = at("string")
    plain = F.when(text.rlike(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"), text)
    return _exact(plain, kind.spark)


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
    assert kind.element is not None
    element = kind.element

    def read(members: Column) -> Column:
        values = let(
            F.transform(F.map_values(members), lambda v: _checked(v, element)), _all_or_none
        )
        return F.when(values.isNotNull(), F.map_from_arrays(F.map_keys(members), values))

    return let(at("map<string,variant>"), read)


def _checked(value: Column, element: ColumnType) -> Column:
    return F.struct(
        read_value(_itself(value), element).alias("value"), is_present(value).alias("is_sent")
    )


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
    if kind.spark in ("int", "bigint", "boolean", "float", "double", "string"):
        return value.cast("variant")
    if kind.spark == "binary":
        return F.base64(value).cast("variant")
    if kind.spark == "date":
        return value.cast("string").cast("variant")
    if kind.spark.startswith("timestamp"):
        text = F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
        text = F.regexp_replace(F.regexp_replace(text, r"(\.\d*?)0+$", "$1"), r"\.$", "")
        zone = F.lit("Z" if kind.spark == "timestamp" else "")
        return F.concat(text, zone).cast("variant")
    if _decimal_parts(kind.spark):
        text = value.cast("string")
        text = F.when(text.contains("."), F.rtrim(F.rtrim(text, F.lit("0")), F.lit("."))).otherwise(
            text
        )
        return text.cast("variant")
    return at("variant")


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
