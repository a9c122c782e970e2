"""The strict reader of Avro that tests compare with, beside fastavro."""

from __future__ import annotations

import io
import math
from typing import Any

import fastavro
import pytest

from cdc_assets_tests.avro_bytes import NotAvroError, connect_value
from cdc_assets_tests.registries import encoded

SCHEMA = {
    "type": "record",
    "name": "shop.Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": ["null", "int"]},
        {"name": "name", "type": "string"},
        {"name": "state", "type": {"type": "enum", "name": "shop.S", "symbols": ["a", "b"]}},
        {"name": "flag", "type": "boolean"},
        {"name": "ratio", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "more", "type": {"type": "map", "values": "shop.S"}},
    ],
}
ROW = {
    "id": -(2**63), "n": 2**31 - 1, "name": "Änne \U0001f600", "state": "b", "flag": True,
    "ratio": 0.1, "tags": ["a", None], "more": {"k": "a"},
}  # fmt: skip


@pytest.mark.parametrize("n", [None, 0, -1, 64, -(2**31)])
def test_what_fastavro_writes_is_read(n: int | None) -> None:
    row = {**ROW, "n": n}
    assert connect_value(SCHEMA, encoded(SCHEMA, row)) == row


def test_bytes_that_fastavro_writes_again_as_they_are_are_read_as_it_reads_them() -> None:
    good, parsed, same = encoded(SCHEMA, ROW), fastavro.parse_schema(SCHEMA), 0
    for place in range(len(good) * 8):
        data = bytearray(good)
        data[place // 8] ^= 1 << place % 8
        stream = io.BytesIO(data)
        try:
            row: Any = fastavro.schemaless_reader(stream, parsed)
            is_exact = not stream.read() and encoded(SCHEMA, row) == data
        except (ValueError, EOFError, IndexError, TypeError, OverflowError):
            is_exact = False
        # fastavro keeps ints of more than 32 bits.
        if is_exact and -(2**31) <= (row["n"] or 0) < 2**31:
            same += 1
            assert connect_value(SCHEMA, bytes(data)) == row
    assert same > len(good)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("boolean", b"\2"),
        ("int", b"\x80\x80\x80\x80\x10"),
        ("long", b"\x80" * 10 + b"\0"),
        ("string", b"\2\xff"),
        ("string", b"\1a"),
        ("string", b"\4a"),
        ("string", b"\2ab"),
        (["null", "long"], b"\1"),
        ({"type": "enum", "name": "S", "symbols": ["a"]}, b"\1"),
        ({"type": "array", "items": "long"}, b"\2\2"),
    ],
)
def test_what_stands_for_no_value_is_refused(schema: Any, data: bytes) -> None:
    with pytest.raises(NotAvroError):
        connect_value(schema, data)


def test_other_spellings_of_a_value_are_read() -> None:
    assert connect_value("long", b"\x82\x80\0") == 1
    assert connect_value({"type": "array", "items": "long"}, b"\1\2\2\2\4\0") == [1, 2]


@pytest.mark.parametrize(
    ("number", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_numbers_that_json_lacks_are_text(number: float, text: str) -> None:
    assert connect_value("double", encoded("double", number)) == text
