"""Names and values from data in SQL texts: whatever they hold, they stay names and values."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import few_rows, is_one_of, literal, with_columns

HOSTILE = [
    "", " ", "'", "''", '"', "`", "``", "\\", "\\'", "\\\\", "\\n", "\n", "\t", "\r\n", "\x01",
    "%", "_", "${env:HOME}", "${spark.app.name}", "{{x}}", ":name", "?", "1' OR '1'='1",
    "x'; DROP TABLE t; --", "/* x */", "-- x", "$.a", "$['a']", "a.b", "a`.`b", "\\u0041", "\\101",
    "é", "列名", "😀", "\ufeff", "\u200b", "x" * 10_000,
]  # fmt: skip


def test_a_text_is_the_same_as_a_literal(spark: SparkSession) -> None:
    found = spark.sql(f"SELECT {', '.join(map(literal, HOSTILE))}").first()
    assert list(found or ()) == HOSTILE


def test_texts_are_rows(spark: SparkSession) -> None:
    rows = list(enumerate(HOSTILE))
    assert list(map(tuple, few_rows(spark, rows, n="int", text="string").collect())) == rows


@pytest.mark.parametrize("listed", [HOSTILE, []])
def test_a_text_is_one_of_those_listed_or_none(spark: SparkSession, listed: list[str]) -> None:
    rows = few_rows(spark, [(text,) for text in [*HOSTILE, "other", None]], text="string")
    found = with_columns(rows, {"is_one": is_one_of("text", listed)}).where("is_one")
    assert [row.text for row in found.collect()] == listed


def test_a_quoted_name_is_one_column(spark: SparkSession) -> None:
    names = [name for name in HOSTILE if name]
    frame = spark.sql(f"SELECT {', '.join(f'{i} AS {quote(n)}' for i, n in enumerate(names))}")
    assert frame.columns == names
    assert list(frame.selectExpr(*map(quote, names)).first() or ()) == list(range(len(names)))
