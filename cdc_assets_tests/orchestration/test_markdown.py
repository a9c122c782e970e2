"""Markdown of values from data; `ui/test_markdown.py` shows it to a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from cdc_assets.cdc import markdown
from cdc_assets.cdc.changes.metadata import examples_table
from cdc_assets.cdc.findings import fault_finding
from cdc_assets.cdc.metadata import Columns
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.metadata import column_schema
from cdc_assets_tests.lakes import config_of, source_config

IMAGE = "![x](http://127.0.0.1:9/y)"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("Anna", "Anna"),
        ("no key column", "no key column"),
        (-1.5, "-1.5"),
        (0, "0"),
        (None, ""),
        ("   ", ""),
        ("•••", "•••"),
        (IMAGE, f"`{IMAGE}`"),
        ("public.customers", "`public.customers`"),
        ("__init__", "`__init__`"),
        ("www.example.org", "`www.example.org`"),
        ("ann@example.org", "`ann@example.org`"),
        ("a`b", "``a`b``"),
        ("`a``b`", "``` `a``b` ```"),
        (" a.b ", "`  a.b  `"),
        ("a\r\n\r\n# b", "`a # b`"),
        ("a|b", "`a`&#124;`b`"),
        ("|", "&#124;"),
        ("1.\\|2", "`1.\\`&#124;`2`"),
    ],
)
def test_a_value_is_plain_words_or_a_code_span(value: Any, says: str) -> None:
    assert markdown.literal(value) == says


@pytest.mark.parametrize(
    "text", ["Anna", IMAGE, "a`b", "`a``b`", " a.b ", "a|b", "|", "1.\\|2", "x: `y` | `z`", "``"]
)
def test_a_value_is_read_back_as_it_was(text: str) -> None:
    assert markdown.plain(markdown.literal(text)) == text
    assert markdown.plain(markdown.bullets([text, text])) == f"- {text}\n- {text}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Who buys, one row a person (see 'orders'); 10%.", None),
        ("of the day\n# no heading", "`of the day # no heading`"),
        ("microseconds since midnight (io.debezium.time.Time)", None),
        (IMAGE, f"`{IMAGE}`"),
        ("[x](javascript:alert(1))", "`[x](javascript:alert(1))`"),
        ("see www.example.org", "`see www.example.org`"),
        ("see HTTPS://example.org", "`see HTTPS://example.org`"),
        ("ann@example.org", "`ann@example.org`"),
        ("<b>", "`<b>`"),
        ("", ""),
    ],
)
def test_a_sentence_is_prose_or_a_code_span(text: str, says: str | None) -> None:
    assert markdown.sentence(text) == (text if says is None else says)


def test_the_columns_of_a_table_say_their_key_and_their_comments() -> None:
    comments = {"id": "who", "code": "", "at": IMAGE, "v": None}
    schema = StructType(
        [
            StructField(n, StringType(), True, {} if c is None else {"comment": c})
            for n, c in comments.items()
        ]
    )
    shown = {c.name: c.description for c in column_schema(Columns(schema, ["id", "code"])).columns}
    assert shown == {"id": "key; who", "code": "key", "at": f"`{IMAGE}`", "v": None}


def test_a_long_value_is_cut() -> None:
    assert markdown.literal("W" * 5_000) == f"`{'W' * 79}…`"
    assert markdown.literal("W" * 80) == "W" * 80


def test_a_row_stays_a_row_whatever_its_cells_hold() -> None:
    text = markdown.table(["a|b", "c"], [["x\n| y |", "\\"], ["z", 1]])
    assert [line.count(" | ") for line in text.splitlines()] == [1, 1, 1, 1]
    assert len(text.splitlines()) == 4


def test_faults_examples_and_descriptions_hold_no_markup_of_data() -> None:
    fault = fault_finding("positions_in_order", [f"{IMAGE}: fell behind"])
    assert fault.values["examples"] == f"- `{IMAGE}: fell behind`"
    names = ("reason", "table_name", "topic", "partition", "offset", "detail")
    example = dict.fromkeys(names, IMAGE)
    assert examples_table([example], with_values=True).count(f"`{IMAGE}`") == 6
    table = f'public."{IMAGE}"'
    config = config_of({"s": source_config("landed", tables={table: {}})}, "/lake")
    specs = [spec for asset in build_assets("s", config) for spec in asset.specs]
    (said,) = [spec.description or "" for spec in specs if IMAGE in (spec.description or "")]
    assert said.startswith(f"`{table}` as it stood")
