"""Names and values from data in SQL texts: whatever they hold, they stay names and values."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Query, few_rows, interpreted_if, is_one_of, literal, with_columns

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


@pytest.mark.parametrize("steps", [1, 3, 4, 5, 9])
def test_steps_are_done_in_their_order_however_many_there_are(
    spark: SparkSession, steps: int
) -> None:
    query = Query(spark.range(2).selectExpr("id AS n", "'x' AS gone")).drop("gone")
    for i in range(steps):
        query = query.extend({f"was_{i}": "n"}).replace({"n": f"n + {i}"})
    rows = query.where("n >= 0").plan().orderBy("n").collect()
    assert [row.n for row in rows] == [start + sum(range(steps)) for start in (0, 1)]
    assert [row[f"was_{steps - 1}"] for row in rows] == [
        start + sum(range(steps - 1)) for start in (0, 1)
    ]


def test_columns_put_in_the_place_of_others_see_those_that_were_there(spark: SparkSession) -> None:
    found = Query(spark.sql("SELECT 1 AS a, 2 AS b")).replace({"a": "b", "b": "a"}).plan()
    assert found.select("a", "b").collect() == [(2, 1)]


def test_texts_from_data_stay_texts_in_steps(spark: SparkSession) -> None:
    rows = few_rows(spark, enumerate(HOSTILE), n="int", text="string")
    is_same = " OR ".join(f"(n = {i} AND text = {literal(t)})" for i, t in enumerate(HOSTILE))
    found = Query(rows).extend({"is_same": is_same}).where("is_same").plan()
    assert found.count() == len(HOSTILE)


def test_what_few_records_ask_for_is_null_for_the_others(spark: SparkSession) -> None:
    found = Query(spark.range(3)).select("id", f"{interpreted_if('id = 1', 'id + 10')} AS x").plan()
    assert [row.x for row in found.orderBy("id").collect()] == [None, 11, None]
