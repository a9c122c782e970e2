"""The types that a day's messages give a table's columns; no Spark, no lake."""

from __future__ import annotations

from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_assets.cdc.changes.message_schemas import KnownSchemas
from cdc_assets.cdc.config import TableConfig
from cdc_assets.cdc.errors import ConfigError, SchemaDriftError
from cdc_assets.cdc.state.day_types import Inferred, day_types, message_types
from cdc_assets.cdc.state.source_context import DayFacts
from cdc_assets.cdc.values.column_types import ColumnType, inferred_as

TODAY, TABLE = date(2026, 11, 5), "public.customers"
BEFORE = TODAY - timedelta(days=1)
INT, LONG = ColumnType("int", "int"), ColumnType("bigint", "bigint")
TEXT = ColumnType("string", "string")


def day_with(
    *schemas: tuple[date, dict[str, ColumnType]], keys: Any = (("id",),), **config: Any
) -> Any:
    """A day whose events have the schemas that landed on it."""
    names = [f"s{n}" for n in range(len(schemas))]
    landed = {(TABLE, name): day for name, (day, _) in zip(names, schemas, strict=True)}
    columns = {(TABLE, name): had for name, (_, had) in zip(names, schemas, strict=True)}
    ids = tuple(name for name in names if landed[TABLE, name] == TODAY)
    return SimpleNamespace(
        source="shop",
        table=TABLE,
        day=TODAY,
        label=f"shop.{TABLE}",
        sent=(sent := TableConfig(**config)),
        config=sent.in_lake,
        state=None,
        day_facts=DayFacts(events=1, schema_ids=ids, key_names=keys),
        context=SimpleNamespace(schemas=KnownSchemas(columns, landed)),
    )


def test_columns_of_records_without_a_schema_follow_those_of_schemas_in_the_order_of_a_record() -> (
    None
):
    day = day_with((TODAY, {"id": LONG, "name": TEXT}))
    inferred = {"b": inferred_as("string"), "a": inferred_as("bigint")}
    found = day_types(day, message_types(day), Inferred(inferred, order=["b", "a"]))
    assert found.wanted == {"id": ["bigint"], "name": ["string"], "b": ["string"], "a": ["bigint"]}
    assert found.schema_columns == {"id", "name"}
    assert found.inferred == {"a", "b"}
    assert set(found.by_schema[None]) == {"id", "name", "a", "b"}
    assert found.key_names == ("id",)


def test_a_column_has_the_types_of_all_schemas_of_the_day() -> None:
    day = day_with((TODAY, {"id": INT}), (TODAY, {"id": LONG}))
    assert day_types(day, message_types(day), Inferred()).wanted == {"id": ["int", "bigint"]}


def test_a_type_that_becomes_narrower_is_reported() -> None:
    day = day_with((BEFORE, {"id": INT, "n": LONG}), (TODAY, {"id": INT, "n": INT}))
    assert message_types(day).narrower == {"n": "n: bigint ← int"}


def test_a_column_that_no_table_can_have_is_left_out_and_reported() -> None:
    day = day_with((TODAY, {"id": INT, "": TEXT}))
    found = day_types(day, message_types(day), Inferred())
    assert list(found.wanted) == ["id"]
    assert "is left out" in found.incompatible[""]


@pytest.mark.parametrize(
    ("columns", "config", "said"),
    [
        ({"id": INT, "_cdc_x": TEXT}, {}, "starts with _cdc_"),
        ({"id": INT, "a": TEXT, "b": TEXT}, {"rename": {"a": "b"}}, "two columns the same name"),
    ],
)
def test_a_name_that_is_taken_says_what_to_do(
    columns: dict[str, ColumnType], config: dict[str, Any], said: str
) -> None:
    day = day_with((TODAY, columns), **config)
    with pytest.raises(ConfigError, match=said):
        day_types(day, message_types(day), Inferred())


def test_keys_of_different_columns_are_an_error() -> None:
    day = day_with((TODAY, {"id": INT, "no": INT}), keys=(("id",), ("no",)))
    with pytest.raises(SchemaDriftError, match="message keys name different columns"):
        message_types(day)
