"""Values and column types: every odd JSON value in every type, as the model reads it (R3, R4)."""

from __future__ import annotations

import base64
import json
import math
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values import readers as values
from cdc_assets.cdc.values.configured import read_as
from cdc_assets.cdc.values.json_value import of_member
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model

TYPES: dict[str, Any] = {
    **{name: name for name in ("boolean", "int8", "int16", "int32", "int64")},
    **{name: name for name in ("float", "double", "string", "bytes")},
    **{
        name.rsplit(".", 1)[1]: name
        for name in (
            "io.debezium.time.Date",
            "io.debezium.time.MicroTimestamp",
            "io.debezium.time.NanoTimestamp",
            "io.debezium.time.ZonedTimestamp",
            "io.debezium.time.IsoDate",
            "io.debezium.time.IsoTimestamp",
            "io.debezium.time.ZonedTime",
            "io.debezium.time.Interval",
            "io.debezium.time.Time",
            "io.debezium.time.MicroTime",
            "io.debezium.time.NanoTime",
            "io.debezium.time.MicroDuration",
            "io.debezium.time.Year",
            "io.debezium.data.Bits",
            "io.debezium.data.Json",
            "io.debezium.data.Uuid",
            "io.debezium.data.Enum",
            "io.debezium.data.geometry.Point",
            ev.VARIABLE_SCALE_DECIMAL,
        )
    },
    "timestamp_ms": "io.debezium.time.Timestamp",
    "connect_timestamp": "org.apache.kafka.connect.data.Timestamp",
    "connect_date": "org.apache.kafka.connect.data.Date",
    "connect_time": "org.apache.kafka.connect.data.Time",
    "decimal_5_2": (ev.DECIMAL, 2, 5),
    "decimal_38_0": (ev.DECIMAL, 0, 38),
    "decimal_38_38": (ev.DECIMAL, 38, 38),
    "decimal_without_precision": (ev.DECIMAL, 4),
    "decimal_beyond_38": (ev.DECIMAL, 2, 60),
    "decimal_of_negative_scale": (ev.DECIMAL, -2, 10),
    "array_of_int": {"type": "array", "items": {"type": "int32"}},
    "array_of_day": {"type": "array", "items": ev.field_schema("io.debezium.time.Date")},
    "array_of_decimal": {"type": "array", "items": ev.field_schema((ev.DECIMAL, 2, 10))},
    "array_of_time": {"type": "array", "items": ev.field_schema("io.debezium.time.NanoTime")},
    "array_of_bytes": {"type": "array", "items": {"type": "bytes"}},
    "array_of_arrays": {"type": "array", "items": {"type": "array", "items": {"type": "int64"}}},
    "map_of_text": {
        "type": "map",
        "keys": {"type": "string"},
        "values": {"type": "string"},
    },
    "map_of_lists": {
        "type": "map",
        "keys": {"type": "string"},
        "values": {"type": "array", "items": {"type": "int32"}},
    },
    "map_by_number": {"type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}},
    "map_by_day": {
        "type": "map",
        "keys": ev.field_schema("io.debezium.time.Date"),
        "values": ev.field_schema((ev.DECIMAL, 2, 10)),
    },
    "struct": ev.struct_schema(
        {"a": "int32", "b `c`.d": "string", "e": ev.struct_schema({"f": (ev.DECIMAL, 2, 10)})}
    ),
    # No column has such members: the text of what stands there.
    "struct_without_members": ev.struct_schema({}),
    "struct_of_no_name": ev.struct_schema({"": "io.debezium.time.MicroTimestamp"}),
    "array_of_structs_of_no_name": {"type": "array", "items": ev.struct_schema({"": "int32"})},
    "array_of_structs": {"type": "array", "items": ev.struct_schema({"a": "int64", "b": "bytes"})},
}


def _bytes_of(number: int, size: int | None = None) -> str:
    length = size or (number if number >= 0 else ~number).bit_length() // 8 + 1
    return json.dumps(base64.b64encode(number.to_bytes(length, "big", signed=True)).decode())


NUMBERS = [0, 1, -1, 127, 128, -129, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1]
NUMBERS += [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**38 - 1, 10**38, 10**60]
NUMBERS += [2932896, 2932897, -719162, -719163, 253402300799999, 253402300800000]
NUMBERS += [-62135596800000, -62135596800001, 253402300799999999, 86_400_000, -86_400_000_001]
FRACTIONS = ["0.5", "-0.1", "1.0", "1E+400", "123.45", "-999.99", "999.995"]
FRACTIONS += ["0.123456789012345678901234567890123456789", "12345678901234567890.123456789"]
TEXTS = ["", " ", "x", "NaN", "Infinity", "-Infinity", "infinity", "-infinity", "true", "null"]
TEXTS += ["1", "-1", "1.5", "0x10", "9" * 40, "١٢"]
TEXTS += ["2026-11-04", "2026-02-30", "0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01"]
TEXTS += ["2026-11-04T12:00:00Z", "2026-11-04T12:00:00.123456789+02:00", "2026-11-04 12:00:00"]
TEXTS += ["2026-11-04T12:00:00.1-0130", "2026-11-04T00:00:00", "2026-11-04 00:00:00.000001"]
TEXTS += ["2026-11-04T00:00:00Z", "2026-11-04 00:00", "2026-11-04T24:00:00", "2026-11-04x"]
TEXTS += ["+12345-01-01T00:00:00Z", "-0044-03-15T00:00:00Z", "9999-12-31T23:59:59.999999Z"]
TEXTS += ["12:00:00+02", "P1Y", "AA==", "AP8=", "!!!", "A", "b68a35a7-17ad-35b3-af2a-ae46edb4545a"]
OTHERS = ["true", "false", "[]", "{}", "[1,2]", "[null]", '["a"]', "[[1]]", "[2147483648]"]
OTHERS += ['{"a":1}', '{"a":"b"}', '{"a":null}', '{"wkb":"AA==","srid":5}', '{"wkb":null}']
OTHERS += ['{"wkb":"!","srid":"x"}', '{"scale":2,"value":"AP8="}', '{"scale":-2,"value":"AQ=="}']
OTHERS += ['{"scale":0,"value":""}', '{"scale":99,"value":"AQ=="}', '{"scale":"x","value":1}']
# Debezium's IsoDate has a zone; no time is written so.
ZONED_DATES = ["2026-11-05Z", "0001-01-01Z", "2026-11-05+02:00"]
TEXTS += ZONED_DATES
OTHERS += [_bytes_of(n) for n in (*NUMBERS[:20], -(10**38), -(10**38) + 1, 2**127 - 1, -(2**127))]
OTHERS += [_bytes_of(5, 16), _bytes_of(-5, 16), _bytes_of(-(10**37) - 7)]
OTHERS += ['{"scale":2147483647,"value":"AQ=="}', '{"scale":-2147483648,"value":"AQ=="}']
OTHERS += ['["AQ==",null,"/w=="]', '["AQ==","!"]', "[[1,2],null,[]]", '[[1,"x"]]', "[1.5]"]
OTHERS += ['{"a":[1,2],"b":null}', '{"a":["x"]}', '{"1":"a","-2":null}', '{"x":"a"}']
OTHERS += ['[[1,"a"],[-2,null]]', '[["x","a"]]', "[[1]]"]
OTHERS += ['[[19000,"AQ=="],[-1,"/w=="]]', '[[99999999,"AQ=="]]', "[[1,2,3]]", '[["1","a"]]']
OTHERS += [
    '{"a":1,"b `c`.d":"x","e":{"f":"AQ=="}}',
    '{"a":1}',
    '{"a":"x"}',
    '{"a":1,"e":{"f":"!"}}',
]
OTHERS += ['{"a":null,"e":null,"more":1}', '[{"a":1,"b":"AQ=="},{"a":null}]', '[{"a":1,"b":"!"}]']
LONG = [sign * (10**digits + 7) for digits in (38, 39, 45, 60, 100) for sign in (1, -1)]
LONG += [2**127, -(2**127) - 1, 2**196 - 1, -(2**196), 10**63 - 1, -(10**500)]
OTHERS += [_bytes_of(n) for n in LONG]
OTHERS += [f'{{"scale":{s},"value":{_bytes_of(n)}}}' for n in LONG for s in (0, 3, -2, 700)]
# Spark's maps have neither a key twice nor null for a key.
NO_MAPS = ['[[1,"a"],[1,"b"]]', '[[null,"a"]]']
VALUES = [*map(str, NUMBERS), "-0", *FRACTIONS, *map(json.dumps, TEXTS), *OTHERS, *NO_MAPS]


@pytest.fixture(scope="module")
def read(spark: SparkSession) -> dict[tuple[str, str], Any]:
    """(type, JSON text) → the value in its column."""
    rows = spark.createDataFrame([(text,) for text in VALUES], "text string")
    opened = rows.withColumn("row", F.parse_json(F.concat(F.lit('{"v":'), "text", F.lit("}"))))
    at = of_member("row", "v")
    columns = {
        name: values.read_value(at, types.type_of(ev.field_schema(kind)))
        for name, kind in TYPES.items()
    }
    found = opened.selectExpr("text", *(f"{sql} AS {name}" for name, sql in columns.items()))
    return {(name, row["text"]): row[name] for row in lakes.plain(found) for name in columns}


ISO = {"ZonedTimestamp", "IsoDate", "IsoTimestamp"}
NANOS = {"NanoTimestamp", "NanoTime"}
OBJECTS = {"VariableScaleDecimal", "Point", "map_of_text", "map_of_lists"}
DAYS = {"Date", "connect_date"}
WIDE = {"decimal_beyond_38", "decimal_of_negative_scale"}


def _is_asked(name: str, text: str) -> bool:
    """Left out is what no producer writes, or what VARIANT does not tell apart."""
    value = model.parse_json(text.encode())
    is_number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    digits = sum(char.isdigit() for char in text)
    is_exact = digits <= 38 and "E" not in text
    if name in ISO:
        is_asked = name == "IsoDate" or value not in ZONED_DATES
        return is_asked and not is_number and value not in ("1", "-1")
    if name in NANOS:
        return not is_number or abs(value) < 2**63
    if name in OBJECTS:
        return isinstance(value, dict)
    if name == "map_by_number":
        return text not in NO_MAPS
    if name in DAYS:
        return not isinstance(value, str)
    if name in WIDE:
        return not is_number or is_exact
    column = model.wire_type(ev.field_schema(TYPES[name])) or ("string",)
    return is_exact or column[0] != "string" or not is_number


def _expected(kind: Any, text: str) -> Any:
    wire = ev.field_schema(kind)
    column = model.wire_type(wire) or ("string",)
    try:
        return model.hold(model.read_wire(wire, model.parse_json(text.encode())), column)
    except model.DoesNotFitError:
        return None


def _comparable(value: Any, name: str) -> Any:
    if name in WIDE and value is not None:  # 1.0 and 1.00 are one number
        return Decimal(value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return sorted(value.items())
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(value)
    return value


@pytest.mark.parametrize("name", TYPES)
def test_every_value_is_read_or_null_but_never_fails(
    read: dict[tuple[str, str], Any], name: str
) -> None:
    different = {}
    for text in filter(lambda text: _is_asked(name, text), VALUES):
        got, expected = (
            _comparable(read[name, text], name),
            _comparable(_expected(TYPES[name], text), name),
        )
        if got != expected:
            different[text] = (got, expected)
    assert not different, "\n".join(f"{t}: got {g!r}, not {e!r}" for t, (g, e) in different.items())


def test_pairs_that_are_no_map_are_null(read: dict[tuple[str, str], Any]) -> None:  # R4
    assert [read["map_by_number", text] for text in NO_MAPS] == [None, None]
    assert read["map_by_number", '[[1,"a"],[-2,null]]'] == {1: "a", -2: None}


def test_the_decimal_of_a_connect_schema_is_exact_to_38_digits(spark: SparkSession) -> None:
    kind = types.type_of(ev.field_schema((ev.DECIMAL, 0, 38)))
    numbers = [sign * (10**digits - 1) for digits in range(1, 39) for sign in (1, -1)]
    rows = spark.createDataFrame([(_bytes_of(n),) for n in numbers], "text string")
    at = of_member("""parse_json(concat('{"v":', text, '}'))""", "v")
    read = rows.selectExpr(f"{values.read_value(at, kind)} AS v")
    got = [row["v"] for row in lakes.plain(read)]
    assert got == [Decimal(n) for n in numbers]


@pytest.mark.parametrize(
    "kind", ["decimal(12,2)", "decimal(5,5)", "decimal(38,0)", "decimal(38,20)"]
)
def test_a_number_of_a_configured_decimal_is_exact_or_null(spark: SparkSession, kind: str) -> None:
    digits = ["0", "7", "99999", "1234567890", "123456789012345", "9" * 20]
    # Together 38 digits at most: what VARIANT makes a double of is told by other tests.
    fractions = ["", ".5", ".50", ".000", ".12345", ".123456", f".{'1' * 14}", f".{'1' * 18}"]
    texts = [f"{sign}{n}{f}" for sign in ("", "-") for n in digits for f in fractions]
    texts += ["1e2", "1.5e-1", '"12.50"', '" 1.5"', '"x"', "true", "[1]", "null"]
    (column,) = types.columns_of_config({"v": kind}).values()
    documents = spark.createDataFrame([(f'{{"v":{t}}}',) for t in texts], "text string")
    value = values.read_value(of_member("parse_json(text)", "v"), column)
    got = [row["v"] for row in lakes.plain(documents.selectExpr(f"{value} AS v"))]
    assert dict(zip(texts, got, strict=True)) == {t: _fitting(t, kind) for t in texts}


def _fitting(text: str, kind: str) -> Decimal | None:
    """What a decimal column holds of a JSON number or its text; null for what it would round."""
    precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
    text = {"true": "1"}.get(text, text)
    try:
        number = Decimal(text.strip('"') if '" ' not in text else "no number")
    except InvalidOperation:
        return None
    with localcontext(prec=100):
        fits = number == round(number, scale) and abs(number) < 10 ** (precision - scale)
    return number if fits else None


# -- what `columns:` may say of a column of messages (R3)


@pytest.mark.parametrize(
    ("sent", "wanted", "is_possible"),
    [
        ("int32", "string", True),
        ("int32", "date", True),
        ("bytes", "string", False),
        ("string", "binary", False),
        ("io.debezium.time.Time", "string", False),
        ("io.debezium.time.Time", "timestamp", False),
        ("io.debezium.time.Timestamp", "timestamp", False),
        ("io.debezium.time.ZonedTimestamp", "timestamp_ntz", False),
        ("io.debezium.time.Date", "timestamp_ntz", True),
        ("io.debezium.time.Date", "timestamp", False),
        ("io.debezium.time.Date", "int", False),
        ("int32", "array<int>", False),
        ((ev.DECIMAL, 2, 10), "double", True),
        ((ev.DECIMAL, 2, 60), "decimal(20,2)", True),
        ("boolean", "decimal(5,0)", True),
        ("double", "boolean", True),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}}, "string", True),
    ],
)
def test_pairs_of_types_are_a_closed_list(sent: Any, wanted: str, is_possible: bool) -> None:
    (configured,) = types.columns_of_config({"v": wanted}).values()
    found = read_as(types.type_of(ev.field_schema(sent)), configured)
    assert (found is not None) == is_possible
    if found is not None:
        assert found.spark == wanted


# -- what columns say of themselves --------------------------------------------------------------


def _said(schema: Any) -> str:
    kind = types.type_of(schema)
    return types.description(kind, kind.spark)


MIDNIGHT = "time of day, microseconds since midnight"
ENCODED: dict[str, tuple[Any, str]] = {
    "time_ms": (
        "io.debezium.time.Time",
        f"{MIDNIGHT}, sent in milliseconds (io.debezium.time.Time)",
    ),
    "connect_time": (
        "org.apache.kafka.connect.data.Time",
        f"{MIDNIGHT}, sent in milliseconds (org.apache.kafka.connect.data.Time)",
    ),
    "time_us": ("io.debezium.time.MicroTime", f"{MIDNIGHT} (io.debezium.time.MicroTime)"),
    "time_ns": (
        "io.debezium.time.NanoTime",
        f"{MIDNIGHT}, sent in nanoseconds and rounded down (io.debezium.time.NanoTime)",
    ),
    "timestamp_ns": (
        "io.debezium.time.NanoTimestamp",
        "sent in nanoseconds and rounded down to microseconds (io.debezium.time.NanoTimestamp)",
    ),
    "duration": (
        "io.debezium.time.MicroDuration",
        "duration in microseconds (io.debezium.time.MicroDuration)",
    ),
    "year": ("io.debezium.time.Year", "year (io.debezium.time.Year)"),
    "bits": ("io.debezium.data.Bits", "bits, the lowest byte first (io.debezium.data.Bits)"),
    "number": (
        {**ev.field_schema(ev.VARIABLE_SCALE_DECIMAL), "doc": "Variable scaled decimal"},
        f"exact decimal as text ({ev.VARIABLE_SCALE_DECIMAL})",
    ),
    "long_number": (
        (ev.DECIMAL, 2, 60),
        "exact decimal as text: no DECIMAL has precision 60 and scale 2",
    ),
    "odd_scale": ((ev.DECIMAL, 20_000), "always null: the scale is 20000"),
    "point": (
        {**ev.field_schema("io.debezium.data.geometry.Point"), "doc": "Geometry (POINT)"},
        "WKB and SRID of a shape (io.debezium.data.geometry.Point)",
    ),
    "json": ("io.debezium.data.Json", "JSON as text (io.debezium.data.Json)"),
    "times": (
        {"type": "array", "items": ev.field_schema("io.debezium.time.Year")},
        "elements: year (io.debezium.time.Year)",
    ),
    "years": (
        {
            "type": "map",
            "keys": {"type": "string", "doc": "of whom"},
            "values": ev.field_schema("io.debezium.time.Year"),
        },
        "keys: of whom, values: year (io.debezium.time.Year)",
    ),
    "struct": (
        ev.struct_schema({"a": {"type": "int32", "doc": "first"}, "b": "string"}),
        "a: first",
    ),
}


@pytest.mark.parametrize("name", ENCODED)
def test_an_encoded_column_says_what_it_holds(name: str) -> None:
    kind, said = ENCODED[name]
    assert _said(ev.field_schema(kind)) == said


@pytest.mark.parametrize("name", sorted(TYPES.keys() - {"struct", "array_of_structs"}))
def test_what_is_said_of_an_encoding_changes_no_type(name: str) -> None:
    schema = ev.field_schema(TYPES[name])
    kind = types.type_of(schema)
    same = types.type_of({**schema, "doc": "a comment"})
    assert (same, hash(same)) == (kind, hash(kind))
    assert types.description(same, "another type") == "a comment"


YEAR = "year (io.debezium.time.Year)"
OF_YEAR = ev.field_schema("io.debezium.time.Year")
FORMS: dict[str, tuple[dict[str, Any], str | None]] = {
    "none": ({}, None),
    "doc": ({"doc": "of birth"}, "of birth"),
    "parameter": ({"parameters": {"__debezium.source.column.comment": "of birth"}}, "of birth"),
    "both": (
        {"doc": "Geometry", "parameters": {"__debezium.source.column.comment": "of birth"}},
        "of birth",
    ),
    "empty": ({"doc": ""}, ""),
    "no_text": ({"doc": 7, "parameters": []}, None),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_comment_stands_in_both_forms_of_a_schema(name: str) -> None:  # D5
    more, comment = FORMS[name]
    after = {**OF_YEAR, **more}
    forms = [
        {"type": "struct", "fields": [{**after, "field": "y"}], "field": "after"},
        {"type": "struct", "fields": [{"name": "y", "schema": after}], "field": "after"},
    ]
    for form in forms:
        text = json.dumps({"type": "struct", "fields": [form]})
        (column,) = types.columns_of_images(types.schema_document(text)).values()
        assert column.comment == comment
        assert types.description(column, "int") == "; ".join(filter(None, [comment, YEAR]))
    outside = [{"name": "y", "doc": "of birth", "schema": OF_YEAR}]
    (key,) = types.columns_of_key(json.dumps({"type": "struct", "fields": outside})).values()
    assert key.comment == "of birth"


def test_a_newer_schema_without_a_comment_keeps_the_known_one() -> None:
    def column(kind: Any, **more: Any) -> types.ColumnTypes:
        return {"v": types.type_of({**ev.field_schema(kind), **more})}

    known = column("int32", doc="old")
    for newer, said in (
        (column("int64"), ("bigint", "old")),
        (column("int64", doc="new"), ("bigint", "new")),
        (column("int64", doc=""), ("bigint", "")),
        (column("what", doc="new"), ("int", "new")),
        (column("what"), ("int", "old")),
    ):
        found = types.over(known, newer)["v"]
        assert (found.spark, found.comment) == said


def test_a_comment_of_any_text_is_one_bounded_line() -> None:
    assert _said({"type": "string", "doc": " a\r\n\tb\0\u202ec\u2028d\ud800 "}) == "a b c d"
    assert _said({"type": "string", "doc": "x" * 5_000}) == "x" * 999 + "…"
    said = _said({**OF_YEAR, "doc": "x" * 5_000})
    assert said == f"{'x' * 999}…; {YEAR}"
