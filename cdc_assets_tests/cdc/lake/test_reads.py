"""Reads without Spark: names, days and values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.cdc.changes.quarantine_rows import quarantine_counts
from cdc_assets.cdc.config import Config, parse_config
from cdc_assets.cdc.errors import (
    ConfigError,
    LakeError,
    MissingDayError,
    MissingTableError,
    UnknownTableError,
)
from cdc_assets.cdc.lake import pyiceberg_catalog
from cdc_assets.cdc.lake.figures import day_rows, lag_rows
from cdc_assets.cdc.lake.json_values import json_rows
from cdc_assets.cdc.lake.pyiceberg_catalog import catalog_properties, open_table
from cdc_assets.cdc.lake.rows import read_table
from cdc_assets.cdc.lake.tables import find_table, own_table


def config_with(tmp_path: Path, **lake: Any) -> Config:
    landing = {"files": "landing"}
    tables = {"public.customers": {}, 'public."price.list"': {}}
    return parse_config(
        {
            "lake": {"warehouse": str(tmp_path / "warehouse"), **lake},
            "start_date": date(2026, 11, 1),
            "sources": {
                "shop": {"format": "debezium", "landing": landing, "tables": tables},
                "store": {
                    "format": "debezium",
                    "landing": landing,
                    "tables": {"public.customers": {}, "public.orders": {}},
                },
            },
        },
        tmp_path,
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("shop.public.customers", "shop.public.customers"),
        ("lake.shop.public.customers", "shop.public.customers"),
        ("public.orders", "store.public.orders"),
        ("orders", "store.public.orders"),
        ("shop.changes", "shop.changes"),
        ('shop.public."price.list"', 'shop.public."price.list"'),
        # A shell takes the quotes away.
        ("shop.public.price.list", 'shop.public."price.list"'),
        ("price.list", 'shop.public."price.list"'),
    ],
)
def test_a_table_is_found_by_what_a_user_writes(tmp_path: Path, text: str, found: str) -> None:
    assert str(find_table(config_with(tmp_path), text)) == found


def test_a_name_in_two_sources_is_asked_back(tmp_path: Path) -> None:
    with pytest.raises(UnknownTableError, match=r"shop.public.customers, store.public.c"):
        find_table(config_with(tmp_path), "public.customers")
    found = find_table(config_with(tmp_path), "public.customers", source="store")
    assert found.parts == ("store", "public", "customers")


def test_an_unknown_table_lists_close_and_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownTableError, match=r"did you mean store.public.orders") as error:
        find_table(config_with(tmp_path), "public.order")
    assert "shop.public.customers" in str(error.value)
    assert "quarantine" in str(error.value)


def test_names_are_escaped_and_flat_where_configured(tmp_path: Path) -> None:
    nested = find_table(config_with(tmp_path), "price.list")
    flat = find_table(config_with(tmp_path, namespaces="flat"), "price.list")
    assert nested.parts == ("shop", "public", "price%2elist")
    assert flat.parts == ("shop__public", "price%2elist")


def test_a_lake_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    config = config_with(tmp_path)
    with pytest.raises(LakeError, match=r"there is no lake in .* yet. Make days first"):
        read_table(config, "shop", "public.customers")
    assert not (tmp_path / "warehouse").exists(), "a read makes nothing"


def test_a_catalog_without_tables_says_that_nothing_was_made(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    embedded = tmp_path / "warehouse" / "catalog.db"
    for file in (embedded, tmp_path / "other.db"):
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("CREATE TABLE unrelated (id INT)")
    own = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path / 'other.db'}"}
    for lake in ({}, {"catalog": own}):
        config = config_with(tmp_path, **lake)
        with pytest.raises(MissingTableError, match="cdc-assets run --"):
            open_table(config, own_table("shop", "landing"))


def test_a_catalog_that_does_not_answer_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "warehouse" / "catalog.db").write_bytes(b"this is no database at all" * 100)
    rest = {"type": "rest", "uri": "http://127.0.0.1:9"}
    database = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path / 'no folder' / 'x.db'}"}
    for lake in ({}, {"catalog": rest}, {"catalog": database}):
        config = config_with(tmp_path, **lake)
        with pytest.raises(LakeError, match="can't be read") as raised:
            open_table(config, own_table("shop", "landing"))
        assert not isinstance(raised.value, MissingTableError)


@pytest.mark.parametrize(
    ("installed", "driver"),
    [({"psycopg2"}, "psycopg2"), ({"psycopg"}, "psycopg"), ({"psycopg", "psycopg2"}, "psycopg2")],
)
def test_sparks_catalog_keys_become_pyicebergs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: set[str], driver: str
) -> None:
    monkeypatch.setattr(pyiceberg_catalog, "find_spec", lambda name: name in installed or None)
    jdbc = {
        "type": "jdbc",
        "uri": "jdbc:postgresql://db:5432/lake",
        "jdbc.user": "me",
        "jdbc.password": "p@ss",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": "http://store:9000",
    }
    found = catalog_properties(config_with(tmp_path, catalog=jdbc))
    assert found["type"] == "sql"
    assert found["uri"] == f"postgresql+{driver}://me:p%40ss@db:5432/lake"
    assert found["s3.endpoint"] == "http://store:9000"
    assert "io-impl" not in found
    rest = {"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "uri": "http://c"}
    assert catalog_properties(config_with(tmp_path, catalog=rest))["type"] == "rest"
    glue = {"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog"}
    assert catalog_properties(config_with(tmp_path, catalog=glue))["type"] == "glue"
    with pytest.raises(ConfigError, match=r"lake.catalog.type: got hadoop"):
        catalog_properties(config_with(tmp_path, catalog={"type": "hadoop"}))


def test_values_keep_what_json_would_lose() -> None:
    kinds = pa.schema(
        [
            ("instant", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("price", pa.decimal128(38, 10)),
            ("photo", pa.binary()),
            ("big", pa.int64()),
            ("nan", pa.float64()),
            ("tags", pa.map_(pa.string(), pa.decimal128(5, 2))),
            ("place", pa.struct([("wkb", pa.binary()), ("srid", pa.int32())])),
            ("list", pa.list_(pa.date32())),
        ]
    )
    row = {
        "instant": datetime(2026, 11, 4, 8, 0, 0, 1, tzinfo=timezone.utc),
        "local": datetime(2026, 11, 4, 8),
        "day": date(1, 1, 1),
        "price": Decimal("1234567890123456789012345678.9000000000"),
        "photo": b"\x00\xff",
        "big": 2**63 - 1,
        "nan": float("nan"),
        "tags": [("a", Decimal("1.50"))],
        "place": {"wkb": b"\x01", "srid": 4326},
        "list": [date(2026, 11, 4), None],
    }
    table = pa.Table.from_pylist([row, dict.fromkeys(row)], kinds)
    full, empty = json_rows(table)
    assert json.loads(json.dumps(full, allow_nan=False)) == {
        "instant": "2026-11-04T08:00:00.000001Z",
        "local": "2026-11-04T08:00:00",
        "day": "0001-01-01",
        "price": "1234567890123456789012345678.9000000000",
        "photo": "AP8=",
        "big": 2**63 - 1,
        "nan": "nan",
        "tags": {"a": "1.50"},
        "place": {"wkb": "AQ==", "srid": 4326},
        "list": ["2026-11-04", None],
    }
    assert set(empty.values()) == {None}


def test_the_lake_is_read_without_spark(
    lake_of: Callable[..., Any], name: str, tmp_path: Path
) -> None:
    from cdc_assets_tests import events as ev
    from cdc_assets_tests.lakes import run_all, write_source

    first, second = ev.DAY, ev.DAY + timedelta(days=1)
    log = ev.PgLog()
    log.create(id=2, name="b")
    log.create(id=1, name="a")
    log.next_day()
    log.delete(id=1)
    log.landing.put(ev.raw(b"{"))
    source = write_source(tmp_path, log.landed, tables={"public.customers": {"key": ["id"]}})
    lake = lake_of({name: source})
    run_all(lake, name, [first, second], lag=True)

    def names(as_of: date | None = None, limit: int | None = None) -> list[str]:
        rows = read_table(lake.config, name, "public.customers", as_of, limit)
        return rows["name"].to_pylist()

    assert names(first) == ["a", "b"]
    assert names(first, limit=1) == ["a"], "the lowest keys first"
    assert names(second) == names() == ["b"]
    found = find_table(lake.config, "public.customers", name)
    assert day_rows(lake.config, found) == {first: 2, second: 1}
    assert quarantine_counts(lake.config, name) == {"malformed_json": 1}
    assert read_table(lake.config, name, "changes", second).num_rows == 1
    assert {r["kind"] for r in lag_rows(lake.config, name, second)} == {
        "capture",
        "delivery",
        "end_to_end",
    }
    with pytest.raises(MissingDayError, match=f"It has {first} to {second}"):
        read_table(lake.config, name, "public.customers", date(2020, 1, 1))
