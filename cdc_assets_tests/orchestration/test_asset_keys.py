"""Names of tables in Dagster: no two tables have one, whatever characters they hold."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets.cdc.config import parse_config
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.state.findings import CHECKS
from cdc_assets.definitions import build_definitions
from cdc_assets.orchestration.assets.keys import table_key
from cdc_assets_tests.lakes import source_config

ODD = [
    ("public.order-items", "public.order_items"),
    ("a__b.c", "a.b__c"),
    ('public."a.b"', "public.a_b"),
    ('public."a*"', "public.a_x2A_"),
    ("public.t", "public.t_contract"),
    ("public.Orders", "public.orders"),
]


def names_in_dagster(table: TableName) -> list[str]:
    """What Dagster calls the outputs of a table and of its checks."""
    key = table_key("s", str(table))
    checks = (dg.AssetCheckSpec(check.name, asset=key) for check in CHECKS)
    return [key.to_python_identifier(), *(check.get_python_identifier() for check in checks)]


def test_no_two_tables_come_to_one_name() -> None:
    parts = ["".join(p) for n in (1, 2, 3) for p in product("a_x2-.*", repeat=n)]
    tables = {TableName("a", part) for part in parts} | {TableName(part, "a") for part in parts}
    tables |= {TableName(one, other) for one in parts[:56] for other in parts[:56]}
    tables |= {TableName("a", f"{part}_{c.name}") for part in parts[:56] for c in CHECKS}
    known: dict[str, TableName] = {}
    for table in tables:
        for name in names_in_dagster(table):
            assert known.setdefault(name, table) == table, name
    assert len(known) == len(tables) * (len(CHECKS) + 1)


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ("public.customers", ["public", "customers"]),
        ("public._migrations_2", ["public", "_migrations_2"]),
        ("sales__dbo.orders", ["sales__dbo", "orders"]),
        ("public.order-items", ["public", "order_x2D_items"]),
    ],
)
def test_plain_names_stay_as_they_are(table: str, path: list[str]) -> None:
    assert table_key("s", table).path == ["s", *path]


@pytest.mark.parametrize("pair", ODD, ids=lambda pair: pair[1])
def test_two_names_that_look_alike_are_two_assets(pair: tuple[str, str]) -> None:
    source = source_config("landed", tables={name: {"key": ["id"]} for name in pair})
    known = parse_config({"start_date": "2026-11-01", "sources": {"s": source}}, Path("/"))
    keys = build_definitions(known).resolve_asset_graph().get_all_asset_keys()
    assert len([key for key in keys if len(key.path) == 3]) == 2
