"""Raw keys become one text for each row (DESIGN, column `key`), read or as they were sent."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.changes.keys import with_canonical
from cdc_assets.cdc.sqltext import Query, few_rows
from cdc_assets.cdc.values import column_types as types

KEYS = {
    # type → raw value: canonical value, None where the column can't hold it
    "bigint": {
        "12": "12", "-1": "-1", "0": "0", '"12"': "12", "1.0": "1", "1.5": None, "true": None,
        '"x"': None, "null": None, "999999999999999999": "999999999999999999",
        "9223372036854775807": "9223372036854775807", "9223372036854775808": None,
    },
    "int": {
        "12": "12", "999999999": "999999999", "2147483647": "2147483647", "2147483648": None,
        '"-7"': "-7",
    },
    "string": {
        '"a"': '"a"', '""': '""', '"é"': '"é"', '"😀 {}:,"': '"😀 {}:,"', r'"a\"b\\"': r'"a\"b\\"',
        r'"a\nb"': r'"a\nb"', "12": '"12"', "true": '"true"', "null": None,
    },
}  # fmt: skip


def _canonical(spark: SparkSession, columns: dict[str, str], raws: list[str]) -> list[str | None]:
    typed = types.columns_of_config(columns)
    rows = few_rows(spark, enumerate(raws), n="int", key_raw="string")
    planned = Query(rows).extend({"key_plan": "0"})
    found = with_canonical(planned, ["key_raw"], [(tuple(columns), tuple(typed.items()))])
    return [row.key for row in found.plan().orderBy("n").collect()]


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_as_its_column_holds_it(spark: SparkSession, kind: str) -> None:
    raws = [f'{{"id":{value}}}' for value in KEYS[kind]]
    wanted = [None if value is None else f'{{"id":{value}}}' for value in KEYS[kind].values()]
    assert _canonical(spark, {"id": kind}, raws) == wanted


def test_a_key_of_several_columns_has_them_in_order_of_name(spark: SparkSession) -> None:
    canonical = '{"a":1,"b":"x"}'
    raws = [canonical, '{"b":"x","a":1}', '{"a":"1","b":"x"}', '{"a":1}', '{"a":1,"b":null}']
    found = _canonical(spark, {"b": "string", "a": "bigint"}, raws)
    assert found == [canonical, canonical, canonical, None, None]


def test_a_key_column_may_have_a_name_that_a_pattern_would_read(spark: SparkSession) -> None:
    raws = ['{"a.b":1}', '{"axb":1}']
    assert _canonical(spark, {"a.b": "bigint"}, raws) == ['{"a.b":1}', None]
