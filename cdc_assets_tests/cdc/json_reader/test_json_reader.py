"""The reader of JSON in Java: what is a document, what is read of it, and in which form."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from cdc_assets.cdc.json_reader import object_of, overlay, pick, read, values_at
from cdc_assets.cdc.sqltext import literal
from cdc_assets_tests.conftest import LARGE_WORK

WHOLE = {"json": ("json",)}


@pytest.fixture(params=["interpreted", "compiled"])
def either(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session as it runs small work, and large."""
    before = {name: spark.conf.get(name) for name in LARGE_WORK}
    if request.param == "compiled":
        for name, value in LARGE_WORK.items():
            spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value or "")


def read_all(spark: SparkSession, documents: Sequence[bytes | str], **columns: Any) -> list[Row]:
    """What is read of each document, in one task."""
    kind = "string" if isinstance(documents[0], str) else "binary"
    rows = [(n, d if isinstance(d, str) else bytearray(d)) for n, d in enumerate(documents)]
    frame = spark.createDataFrame(rows, f"n int, v {kind}").coalesce(1)
    found = frame.selectExpr("n", f"{read('v', **columns)} AS r").select("n", "r.*").collect()
    return sorted(found, key=lambda row: row.n)


def value_of(spark: SparkSession, expression: str) -> Any:
    first = spark.sql(f"SELECT {expression} AS v").first()
    assert first is not None
    return first.v


# --- what is a document

DOCUMENTS = [
    b"{}", b"[]", b"null", b"true", b"false", b'""', b"0", b"-0", b"1.50", b"1e5", b"-1.5E-10",
    b' \t\r\n{"a" : [1 , {"b":null}] } \n', '{"é€😀":"é€😀"}'.encode(),
    b'"\\u0000\\ud83d\\ude00\\/"',
    b'"\x7f"', b'{"a":{"a":1},"b":[{"a":1},{"a":2}]}', b"[" * 1000 + b"]" * 1000,
    b'{"a":' * 1000 + b"1" + b"}" * 1000, b"9" * 5000, b'{"":1}', b'"\xf4\x8f\xbf\xbf"',
]  # fmt: skip
NO_DOCUMENTS = [
    b"", b" ", b"{", b"[", b'"', b'"\\', b'"\\u', b'"\\u12', b'"\\u123g"', b'"\\x"', b"'a'", b"a",
    b"nul", b"nulll", b"True", b"NaN", b"Infinity", b"-", b"-a", b"+1", b"01", b"-01", b"1.", b".5",
    b"1e", b"1e+", b"1.e5", b"0x1", b"[1,]", b"[,1]", b"[1 2]", b'{"a"}', b'{"a":}', b'{"a":1,}',
    b'{,"a":1}', b"{a:1}", b'{"a" 1}', b"{1:2}", b'{"a":1}x', b'{"a":1} {"b":2}', b"1 2",
    b"// c\n1",
    b"\xef\xbb\xbf{}", b'"\n"', b'"\x00"', b'"\x1f"',
    # Names that stand twice, also written otherwise, or in an inner object.
    b'{"a":1,"a":1}', b'{"a":1,"\\u0061":2}', b'[{"x":{"b":1,"c":2,"b":3}}]', b'{"":1,"":2}',
    b"{" + b",".join(b'"%d":1' % (n % 99) for n in range(100)) + b"}",
    # No UTF-8: alone, cut off, longer than needed, halves of surrogates, beyond the last character.
    b'"\x80"', b'"\xc3"', b'"\xe2\x82"', b'"\xf0\x9f\x98"', b'"\xc0\xaf"', b'"\xe0\x80\xaf"',
    b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xff"', b'{"\xc3":1}', b"\xc3\xa9", b'"\xe2',
    b"[" * 1001 + b"]" * 1001, b'{"a":' * 1001 + b"1" + b"}" * 1001, b"[" * 100_000,
]  # fmt: skip


def test_only_one_strict_document_is_read(either: SparkSession) -> None:
    texts = [*DOCUMENTS, *NO_DOCUMENTS]
    rows = read_all(either, texts, **WHOLE)
    expected = [*[True] * len(DOCUMENTS), *[False] * len(NO_DOCUMENTS)]
    wrong = [(t[:60], row.is_json) for t, row, is_json in zip(texts, rows, expected, strict=True)
             if (row.is_json, row.json is not None) != (is_json, is_json)]  # fmt: skip
    assert not wrong


def test_texts_are_read_as_bytes_are_and_null_is_null(spark: SparkSession) -> None:
    texts = [text.decode() for text in DOCUMENTS]
    of_bytes = read_all(spark, DOCUMENTS, **WHOLE)
    assert read_all(spark, texts, **WHOLE) == of_bytes
    assert value_of(spark, f"{read('CAST(NULL AS string)', **WHOLE)} IS NULL")


OCTETS = [
    b"", b"a", "é列😀".encode(), b"\x80", b"a\xff", b"\xc0\xaf", b"\xe0\x80\x80", b"\xed\xa0\x80",
    b"\xed\xb0\x80", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xef\xbf\xbd",
    b"\xc3(", b"\xe2\x82", b"x" * 3000 + b"\xfe",
]  # fmt: skip


def test_text_that_is_no_utf8_is_none(spark: SparkSession) -> None:
    def is_valid(octets: bytes) -> bool:
        try:
            octets.decode()
        except UnicodeDecodeError:
            return False
        return True

    rows = read_all(spark, [b'{"a":"%s"}' % octets for octets in OCTETS], **WHOLE)
    assert [row.is_json for row in rows] == list(map(is_valid, OCTETS))


# --- canonical JSON

CANONICAL = {
    ' { "b" : 1 ,\n"a":[ true , null ] } ': '{"a":[true,null],"b":1}',
    '{"b":{"d":1,"c":{"f":1,"e":2}},"a":0}': '{"a":0,"b":{"c":{"e":2,"f":1},"d":1}}',
    # The order of UTF-16: characters beyond U+FFFF come before U+E000.
    '{"\ue000":1,"😀":2,"é":3,"z":4,"a\\u0000":6,"a":5}': (
        '{"a":5,"a\\u0000":6,"z":4,"é":3,"😀":2,"\ue000":1}'
    ),
    '"\\u0041\\/\\u00e9\\ud83d\\ude00\\"\\\\\\b\\f\\n\\r\\t\\u001f\\u007f"': (
        '"A/é😀\\"\\\\\\b\\f\\n\\r\\t\\u001F\x7f"'
    ),
    '"\\ud83d \\ude00"': '"? ?"',  # halves of surrogates
    "1.50": "1.5", "1.0": "1", "-0": "0", "-0.00": "0", "100": "100", "0.10": "0.1",
    "-12.340": "-12.34", "0": "0", "10.0": "10",
    "9" * 38: "9" * 38, "-" + "9" * 38: "-" + "9" * 38,
    "9" * 39: f'"{"9" * 39}"', "-" + "1" * 400: f'"-{"1" * 400}"',
    "0." + "1" * 38: "0." + "1" * 38, "1." + "1" * 37: "1." + "1" * 37,
    "0." + "1" * 39: "0.1111111111111111", "1." + "1" * 38: "1.1111111111111112",
    "1e2": "100.0", "1E400": '"1E400"', "-1.5e+309": '"-1.5e+309"', "0e999": "0.0",
    "12345678.9e1": "1.23456789E8", "1e-400": "0.0",
}  # fmt: skip


def test_the_canonical_text_has_names_in_order_and_one_form_of_a_number(
    spark: SparkSession,
) -> None:
    rows = read_all(spark, list(CANONICAL), **WHOLE)
    assert {text: row.json for text, row in zip(CANONICAL, rows, strict=True)} == CANONICAL


def test_the_canonical_text_of_a_canonical_text_is_itself(spark: SparkSession) -> None:
    # Of a double without an exponent, 100.0, the second reading sees an exact number.
    exact = [text for text in CANONICAL.values() if not text.endswith(".0")]
    assert [row.json for row in read_all(spark, exact, **WHOLE)] == exact


# --- members

EVENT = """{"op":"u","n":1.50,"yes":true,"none":null,"o":{"b":[2, 1],"a":"\\u00e9"},
 "list":["x",1,null,{"b":1,"a":2}],"s.t":{"a\\"b":5,"\\u0061":"esc"},"empty":{},"nested":{"deep":{"v":7}}}"""


def test_members_are_read_as_what_is_wanted_of_them(either: SparkSession) -> None:
    columns = {
        "op": ("text", "op"), "op_json": ("json", "op"), "n": ("text", "n"), "yes": ("text", "yes"),
        "none": ("text", "none"), "none_json": ("json", "none"), "gone": ("json", "gone"),
        "o": ("text", "o"), "o_names": ("names", "o"), "o_size": ("size", "o"),
        "texts": ("texts", "list"), "items": ("items", "list"), "no_list": ("items", "o"),
        "no_names": ("names", "list"), "quoted": ("text", "s.t", 'a"b'),
        "escaped": ("text", "s.t", "a"), "empty": ("size", "empty"),
        "deep": ("text", "nested", "deep", "v"), "none_deep": ("text", "op", "x"),
        "string": ("string", "op"), "no_string": ("string", "n"), "no_object": ("object", "list"),
        "object": ("object", "o"), "kind": ("kind",), "no_kind": ("kind", "gone"),
        **{f"kind_{name}": ("kind", name) for name in ("op", "n", "yes", "none", "o", "list")},
    }  # fmt: skip
    (row,) = read_all(either, [EVENT], **columns)
    assert row.asDict() == {
        "n": "1.5", "op": "u", "op_json": '"u"', "yes": "true", "none": None, "none_json": "null",
        "gone": None, "o": '{"a":"é","b":[2,1]}', "o_names": ["b", "a"], "o_size": 2,
        "texts": ["x", "1", None, '{"a":2,"b":1}'], "items": ['"x"', "1", "null", '{"a":2,"b":1}'],
        "no_list": None, "no_names": None, "quoted": "5", "escaped": "esc", "empty": 0,
        "deep": "7", "none_deep": None, "is_json": True, "string": "u", "no_string": None,
        "no_object": None, "object": '{"a":"é","b":[2,1]}', "kind": "object", "no_kind": None,
        "kind_op": "string", "kind_n": "number", "kind_yes": "boolean", "kind_none": "null",
        "kind_o": "object", "kind_list": "array",
    }  # fmt: skip


def test_numbers_that_no_type_holds_are_texts_of_their_digits(spark: SparkSession) -> None:
    rows = read_all(spark, ["9" * 60, '{"a":1e999}'], whole=("text",), a=("text", "a"))
    assert [(row.whole, row.a) for row in rows] == [("9" * 60, None), ('{"a":"1e999"}', "1e999")]


# --- messages with their schemas

SCHEMA = '{"type":"struct","fields":[{"field":"payload","note":",\\"payload\\":"}]}'
OTHER = '{"type":"struct","fields":[]}'
WITH_SCHEMA = {"hash": ("hash", "schema"), "op": ("text", "payload", "op"), "s": ("json", "schema")}


def message(payload: str, schema: str = SCHEMA, more: str = "") -> str:
    return f'{{"schema":{schema},"payload":{payload}{more}}}'


def hash_of(schema: str) -> str:
    text = json.dumps(json.loads(schema), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_message_is_read_alike_whether_its_schema_was_met_before_or_not(
    either: SparkSession,
) -> None:
    messages = [
        message('{"op":"c"}'), message('{"op":"u"}'), message('{"op":"c"}', OTHER), message("null"),
        message('{"op":"d"}', more=',"z":1'), message(' {"op":"r"} ', more=" "), message("[1]"),
    ]  # fmt: skip
    rows = read_all(either, messages * 3, **WITH_SCHEMA)
    alone = [read_all(either, [text], **WITH_SCHEMA)[0] for text in messages]
    assert [row[1:] for row in rows] == [row[1:] for row in alone] * 3
    assert [row.op for row in alone] == ["c", "u", "c", None, "d", "r", None]
    schemas = [OTHER if n == 2 else SCHEMA for n in range(len(messages))]
    assert [row.hash for row in alone] == list(map(hash_of, schemas))
    assert [json.loads(row.s) for row in alone] == list(map(json.loads, schemas))


def test_a_message_whose_rest_is_wrong_is_none_also_behind_a_known_schema(
    spark: SparkSession,
) -> None:
    good = message('{"op":"c"}')
    bad = [
        good[:-1], good + "x", message('{"op":1,"op":2}'), message("{}", more=',"schema":1'),
        message("{}", more=',"payload":1'), message("{}", more=","), message(""),
    ]  # fmt: skip
    rows = read_all(spark, [good, *bad, good], **WITH_SCHEMA)
    assert [row.is_json for row in rows] == [True, *[False] * len(bad), True]
    assert [row.hash is None for row in rows] == [False, *[True] * len(bad), False]


def test_a_schema_has_one_hash_however_it_is_written(spark: SparkSession) -> None:
    texts = [
        '{"schema":{"a":1,"b":[]},"payload":1}', '{"schema": {"b":[],\n"a":1.0},"payload":1}',
        '{"payload":1,"schema":{"a":1 ,"b":[]}}',
        '{"schema":{"\\u0061":1,"b":[]},"x":1,"payload":1}',
    ]  # fmt: skip
    rows = read_all(spark, texts * 2, **WITH_SCHEMA)
    assert {row.hash for row in rows} == {hash_of('{"a":1,"b":[]}')}
    none = [message("1", "null"), message("1", "[1]"), message("1", '"{}"'), '{"payload":1}', "[]"]
    assert {row.hash for row in read_all(spark, none, **WITH_SCHEMA)} == {None}
    (empty,) = read_all(spark, [message("1", "{}")], **WITH_SCHEMA)
    assert empty.hash == hash_of("{}")


def test_members_of_a_schema_are_read_of_each_message(spark: SparkSession) -> None:
    texts = [message(str(n), f'{{"t":{{"n":"x{n % 2}"}},"k":[1]}}') for n in range(6)]
    wanted = {"t": ("text", "schema", "t", "n"), **WITH_SCHEMA}
    rows = read_all(spark, texts, **wanted)
    assert [row.t for row in rows] == [f"x{n % 2}" for n in range(6)]
    assert len({row.hash for row in rows}) == 2


def test_names_are_those_of_the_object_alone_also_behind_a_known_schema(
    spark: SparkSession,
) -> None:
    wanted: dict[str, Any] = {
        "outer": ("names",), "count": ("size",), "inner": ("names", "payload"),
        "deep": ("names", "payload", "o"), **WITH_SCHEMA,
    }  # fmt: skip
    payload = '{"op":{"x":1},"o":{"\\u0061\\"":{"z":1},"é":2},"l":[{"y":1}],"e":{}}'
    texts = [
        message(payload), message("{}"), message(payload, more=' , "more":1'), message("[]"), "[]",
    ]  # fmt: skip
    rows = read_all(spark, texts * 2, **wanted)
    found = [(row.outer, row["count"], row.inner, row.deep) for row in rows]
    inner, deep = ["op", "o", "l", "e"], ['a"', "é"]
    expected = [
        (["schema", "payload"], 2, inner, deep), (["schema", "payload"], 2, [], None),
        (["schema", "payload", "more"], 3, inner, deep), (["schema", "payload"], 2, None, None),
        (None, None, None, None),
    ]  # fmt: skip
    assert found == expected * 2


def test_more_schemas_than_are_kept_are_told_apart(spark: SparkSession) -> None:
    texts = [message(f'{{"op":{n}}}', f'{{"n":{n % 50}}}') for n in range(200)]
    rows = read_all(spark, texts, **WITH_SCHEMA)
    assert [row.op for row in rows] == [str(n) for n in range(200)]
    assert [row.hash for row in rows] == [hash_of(f'{{"n":{n % 50}}}') for n in range(200)]


# --- functions of objects


def test_values_are_found_by_name(either: SparkSession) -> None:
    names = "array('a', 'b\"', 'é', 'none', NULL)"
    expected = ["null", '{"x":[2,3]}', "100.0", None, None]
    for document in (
        '{"a":null,"b\\"":{"x":[2,3]},"é":100.0}',
        '{ "é" : 100.0, "b\\"": {"x":[2,3]} ,"a":null}',
    ):
        assert value_of(either, values_at(literal(document), names)) == expected
    for text in ("'[1]'", "'x'", "'null'", "CAST(NULL AS string)"):
        assert value_of(either, values_at(text, names)) is None


def test_each_of_many_names_is_found(spark: SparkSession) -> None:
    names = [f"n{n}" for n in range(300)]
    for listed in (names, sorted(names)):
        document = literal(json.dumps({name: name for name in listed}))
        wanted = f"array({', '.join(map(literal, names))})"
        found = value_of(spark, values_at(document, wanted))
        assert found == [f'"{name}"' for name in names]


def test_a_key_is_picked_from_the_first_object_that_has_each_column(either: SparkSession) -> None:
    def picked(*objects: str | None, names: str = "array('b', 'a')") -> Any:
        listed = f"array({', '.join(map(literal, objects))})"
        return value_of(either, pick(names, listed, """array('"unsent"')"""))

    assert picked('{"a":1.0,"b":"x","c":3}') == '{"a":1.0,"b":"x"}'
    assert picked('{"a":"unsent"}', None, '{"a":2,"b":{"z":1}}') == '{"a":2,"b":{"z":1}}'
    assert picked('{"a":1}', '{"a":2,"b":3}', "[]") == '{"a":1,"b":3}'
    assert picked('{"a":null}', '{"a":2,"b":3}') is None
    assert picked('{"a":1}') is None
    assert picked('{"a":1}', names="array()") is None
    assert picked('{"a":1}', names="CAST(NULL AS array<string>)") is None
    none = "CAST(NULL AS array<string>)"
    assert value_of(either, pick("array('a')", none, "array()")) is None
    assert (
        value_of(either, pick("array('a')", """array('{"a":1}')""", "array(NULL, '2')"))
        == '{"a":1}'
    )


def test_an_object_is_made_of_names_and_values(either: SparkSession) -> None:
    names, values = "array('b', 'a\"', 'none', '😀')", "array('{\"y\":1.0}', '1', NULL, '[]')"
    made = object_of(names, values)
    assert value_of(either, made) == '{"a\\"":1,"b":{"y":1.0},"😀":[]}'
    assert value_of(either, object_of("array('a')", "array(CAST(NULL AS string))")) == "{}"
    assert value_of(either, object_of("array('a')", "CAST(NULL AS array<string>)")) is None


def test_an_object_takes_the_values_of_another_under_its_own_names(either: SparkSession) -> None:
    old = overlay("""'{"a":2,"b":1,"c":3}'""", """'{"c":null,"a":{"z":1.0},"d":9}'""")
    assert value_of(either, old) == '{"a":{"z":1.0},"b":1,"c":null}'
    assert value_of(either, overlay("'{}'", """'{"a":1}'""")) == "{}"
    assert value_of(either, overlay("'[]'", "'{}'")) is None
    assert value_of(either, overlay("'{}'", "CAST(NULL AS string)")) is None


# --- drawn documents


class _Exact(str):
    """A number by its digits."""


def strict(text: bytes) -> Any:
    """Python's reader, strict: numbers as `_Exact`. Raises ValueError."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands twice")
        return found

    def constant(word: str) -> Any:
        raise ValueError(word)

    return json.loads(
        text.decode(), object_pairs_hook=members, parse_constant=constant,
        parse_int=_Exact, parse_float=_Exact,
    )  # fmt: skip


def is_same(sent: Any, canonical: Any) -> bool:
    """Has the canonical document the values of the sent one, its names in order?"""
    if isinstance(sent, _Exact):
        digits = sent.lower().lstrip("-")
        is_whole = not any(sign in digits for sign in ".e")
        number = float(sent)
        if (is_whole and len(digits) > 38) or number in (float("inf"), float("-inf")):
            return not isinstance(canonical, _Exact) and canonical == sent
        return isinstance(canonical, _Exact) and float(canonical) == number
    if isinstance(sent, dict):
        in_order = sorted(canonical, key=lambda name: name.encode("utf-16-be"))
        sent = {_replaced(name): value for name, value in sent.items()}
        return list(canonical) == in_order and canonical.keys() == sent.keys() and all(
            is_same(value, canonical[name]) for name, value in sent.items()
        )  # fmt: skip
    if isinstance(sent, list):
        return len(sent) == len(canonical) and all(map(is_same, sent, canonical))
    if isinstance(sent, str):
        return canonical == _replaced(sent)
    return bool(sent is canonical)


def _replaced(text: str) -> str:
    """As Java encodes it: half a surrogate pair is a question mark."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\ufffd", "?")


_PIECES = ["a", "b", "é", "€", "😀", "\ue000", "\\n", '\\"', "\\\\", "\\/", "\\u0041", "\\u0000",
           "\\ud83d\\ude00", "\\ud83d", " ", "\x7f"]  # fmt: skip
_BYTES = b'{}[],:"\\0123456789.eE+-tfnu\x00\x1f\x80\xc3\xed\xa0\xf4\xff \n'


class Draw:
    """Documents as a seed draws them, some of them damaged."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def document(self) -> bytes:
        drawn = bytearray((self.space() + self.value(4) + self.space()).encode())
        for _ in range(self.random.choice((0, 0, 0, 1, 2))):
            at = self.random.randrange(len(drawn) + 1)
            some = bytes([self.random.choice(_BYTES)])
            drawn[at : at + self.random.choice((0, 1, 1))] = self.random.choice((b"", some))
        return bytes(drawn)

    def value(self, depth: int) -> str:
        kind = self.random.randrange(10 if depth else 5)
        if kind < 3:
            return self.number()
        if kind < 5:
            return self.random.choice((self.string(), "true", "false", "null"))
        count = range(self.random.choice((0, 1, 3, 20)) if depth > 2 else self.random.randrange(3))
        if kind < 7:
            return "[" + ",".join(self.spaced(self.value(depth - 1)) for _ in count) + "]"
        members = (
            f"{self.spaced(self.string())}:{self.spaced(self.value(depth - 1))}" for _ in count
        )
        return "{" + ",".join(members) + "}"

    def number(self) -> str:
        draw = self.random
        text = draw.choice(("", "-")) + str(draw.randint(0, 10 ** draw.randrange(42)))
        if draw.random() < 0.4:
            text += "." + "".join(draw.choice("0019") for _ in range(draw.choice((1, 3, 38, 45))))
        if draw.random() < 0.2:
            text += draw.choice(("e", "E+", "e-")) + str(draw.choice((0, 1, 22, 300, 309, 400)))
        return text

    def string(self) -> str:
        pieces = (self.random.choice(_PIECES) for _ in range(self.random.choice((0, 1, 2, 6))))
        return '"' + "".join(pieces) + '"'

    def spaced(self, text: str) -> str:
        return self.space() + text + self.space()

    def space(self) -> str:
        return self.random.choice(("", "", "", " ", "\n\t"))


def test_drawn_documents_are_read_as_python_reads_them(spark: SparkSession) -> None:
    draw = Draw(7)
    documents = [draw.document() for _ in range(8_000)]
    readable = 0
    for text, row in zip(documents, read_all(spark, documents, **WHOLE), strict=True):
        try:
            sent = strict(text)
        except ValueError:
            assert not row.is_json, text
            continue
        readable += 1
        assert row.is_json, text
        assert is_same(sent, strict(row.json.encode())), (text, row.json)
    assert 2_000 < readable < 7_000
