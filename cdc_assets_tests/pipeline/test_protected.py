"""Excluded and hashed columns: the same tables, with hashes, and without what must not leave.

The sample's days are made twice, with protected columns and without.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import Row as PlainRow

from cdc_assets.cdc.changes.message_schemas import KnownSchemas
from cdc_assets.cdc.changes.protected import protect, protected_schemas
from cdc_assets.cdc.config import Config, TableConfig, parse_config
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.values.column_types import description
from cdc_assets_tests import events as ev
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import (
    Row,
    assert_same_rows,
    changes_found,
    make_changes,
    plain,
    rows_of,
    run_all,
    run_stages,
    source_config,
    stage_rows,
)
from cdc_assets_tests.paths import REPOSITORY

SALT = "a salt of these tests"
DAYS = [date(2026, 11, 1) + timedelta(days=n) for n in range(4)]
PROTECTED: dict[str, dict[str, dict[str, list[str]]]] = {
    "inventory": {
        "public.customers": {
            "exclude": ["email", "phone"],
            "hash": ["id", "last_name", "credit_limit", "birth_date", "notes", "profile"],
        },
        "public.orders": {"hash": ["customer_id"]},
        "public.audit_log": {"exclude": ["payload"]},
    },
    "billing": {"shop.invoices": {"hash": ["invoice_id", "customer_id"], "exclude": ["memo"]}},
}


def hash_of(text: str) -> str:
    return hashlib.sha256((SALT + text).encode()).hexdigest()


def text_of(value: Any) -> str:
    """A typed value as a canonical key holds it."""
    if isinstance(value, Decimal):
        return format(value.normalize(), "f")
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return str(value)


def protected_rows(rows: list[Row], exclude: list[str], hash: list[str]) -> list[Row]:
    return [
        {
            name: hash_of(text_of(value)) if name in hash and value is not None else value
            for name, value in row.items()
            if name not in exclude
        }
        for row in rows
    ]


def sample_source(name: str, **tables: Any) -> dict[str, Any]:
    raw = yaml.safe_load((REPOSITORY / "cdc.yaml").read_text(encoding="utf-8"))["sources"][name]
    raw["landing"]["files"] = str(REPOSITORY / raw["landing"]["files"])
    for table, settings in tables.items():
        raw["tables"][table] = {**(raw["tables"][table] or {}), **settings}
    return raw


@pytest.fixture(scope="module")
def lakes(lake_of: LakeOf) -> tuple[Lake, dict[str, str]]:
    """The sample made twice; the names of the plain sources by those of the protected ones."""
    plain_names = {f"protected_{name}": f"open_{name}" for name in PROTECTED}
    sources = {f"open_{name}": sample_source(name) for name in PROTECTED}
    sources |= {f"protected_{n}": sample_source(n, **tables) for n, tables in PROTECTED.items()}
    lake = lake_of(sources, DAYS[0], hash_salt=SALT)
    for name in sources:
        run_all(lake, name, DAYS, lag=True)
    return lake, plain_names


@pytest.mark.slow
@pytest.mark.parametrize("name", PROTECTED)
def test_tables_are_the_same_but_for_what_is_protected(
    lakes: tuple[Lake, dict[str, str]], name: str
) -> None:
    lake, _ = lakes
    for table in lake.config.sources[f"open_{name}"].tables:
        rules = PROTECTED[name].get(table, {})
        for day in DAYS:
            expected = protected_rows(
                rows_of(lake, f"open_{name}", table, day),
                rules.get("exclude", []),
                rules.get("hash", []),
            )
            got = rows_of(lake, f"protected_{name}", table, day)
            assert_same_rows(got, expected, f"{table} {day}")
            assert got, table


@pytest.mark.slow
def test_a_key_and_what_refers_to_it_have_one_hash(lakes: tuple[Lake, dict[str, str]]) -> None:
    lake, _ = lakes
    ids = {row["id"] for row in rows_of(lake, "protected_inventory", "public.customers", DAYS[-1])}
    orders = rows_of(lake, "protected_inventory", "public.orders", DAYS[-1])
    assert {row["customer_id"] for row in orders} & ids
    keys = [
        json.loads(row["key"])
        for row in stage_rows(lake, "protected_inventory", "changes")
        if row["table_name"] == "public.customers" and row["key"] is not None
    ]
    assert {len(key["id"]) for key in keys} == {64}
    assert {key["id"] for key in keys} >= ids


@pytest.mark.slow
def test_what_is_excluded_is_in_no_table_but_the_landing(
    lakes: tuple[Lake, dict[str, str]],
) -> None:
    lake, _ = lakes
    secrets = {
        value
        for row in stage_rows(lake, "open_inventory", "changes")
        if row["table_name"] == "public.customers"
        for image in (row["before"], row["after"])
        if image is not None
        for name, value in json.loads(image).items()
        if name in ("email", "phone") and value is not None and "@" in str(value)
    }
    assert len(secrets) > 50
    held = {
        table: " ".join(map(repr, plain(lake.spark.table(identifier))))
        for table, identifier in _tables(lake, "protected_inventory")
    }
    found = {table for table, text in held.items() for secret in secrets if secret in text}
    assert found == set()
    assert "quarantine" in held
    landing = repr(stage_rows(lake, "protected_inventory", "landing"))
    assert sum(secret in landing for secret in secrets) > 50


def _tables(lake: Lake, source: str) -> Iterator[tuple[str, str]]:
    for stage in ("changes", "control", "quarantine", "facts", "lag", "schemas"):
        yield stage, lake.stage(source, stage)
    from cdc_assets.cdc.names import TableName

    for table in lake.config.sources[source].tables:
        yield table, lake.state(source, TableName.parse(table))


@pytest.mark.slow
def test_a_quarantined_record_keeps_its_place_and_leaves_its_bytes_in_the_landing(
    lakes: tuple[Lake, dict[str, str]],
) -> None:
    lake, _ = lakes
    names = ("landing_date", "topic", "partition", "offset", "reason", "table_name")
    rows = {
        source: [{n: row[n] for n in names} for row in stage_rows(lake, source, "quarantine")]
        for source in ("open_inventory", "protected_inventory")
    }
    assert_same_rows(rows["protected_inventory"], rows["open_inventory"])
    hidden = stage_rows(lake, "protected_inventory", "quarantine")
    assert {(row["key"], row["value"], row["headers"]) for row in hidden} == {(None, None, None)}


# -- values --------------------------------------------------------------------------------------


def made(lake_of: LakeOf, name: str, folder: Path, log: ev.PgLog, table: dict[str, Any]) -> Lake:
    ev.write_landing(folder, log.landed)
    lake = lake_of({name: source_config(folder, tables={"public.t": table})}, hash_salt=SALT)
    run_all(lake, name, sorted(log.landed))
    return lake


def not_sent(landing: ev.Landing) -> dict[str, Any]:
    types = {"id": "int32", "body": "string", "n": "int32"}
    log = ev.PgLog("values", "public", "not_sent", types=types, landing=landing)
    log.create(id=1, body="long", n=1)
    log.next_day()
    log.update(id=1, body="__debezium_unavailable_value", n=2)
    return {"key": ["id"], "hash": ["body"]}


def null_and_key(landing: ev.Landing) -> dict[str, Any]:
    types = {"id": "string", "mail": "string"}
    log = ev.PgLog("values", "public", "null_and_key", types=types, landing=landing)
    log.create(id="a", mail=None)
    log.create(id="b", mail="b@example.org")
    log.update(id="c", mail="b@example.org", _before={"id": "b", "mail": "b@example.org"})
    log.delete(id="b")
    log.create(id="c", mail="c@example.org")
    log.next_day()
    log.delete(id="a")
    return {"key": ["id"], "hash": ["id", "mail"], "replica_identity": "full"}


def without_schema(landing: ev.Landing) -> dict[str, Any]:
    log = ev.PgLog("values", "public", "without_schema", landing=landing)
    log.create(id=1, tags=[1, 2], flag=True, amount=1.5)
    return {"key": ["id"], "hash": ["tags", "flag", "amount"]}


VALUE_DAYS = [ev.DAY, ev.DAY + timedelta(days=1)]


@pytest.fixture(scope="module")
def values(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table of each story, of its name."""
    landing, tables = ev.Landing(), {}
    for story in (not_sent, null_and_key, without_schema):
        landing.on(ev.DAY)
        tables[f"public.{story.__name__}"] = story(landing)
    folder = tmp_path_factory.mktemp("values")
    ev.write_landing(folder, landing.landed)
    lake = lake_of({"values": source_config(folder, tables=tables)}, hash_salt=SALT)
    run_all(lake, "values", VALUE_DAYS)
    return lake


def test_a_value_that_was_not_sent_stays_as_it_was(values: Lake) -> None:
    (row,) = rows_of(values, "values", "public.not_sent", VALUE_DAYS[1])
    assert row == {"id": 1, "body": hash_of("long"), "n": 2}


def test_null_stays_null_and_a_changed_hashed_key_moves_its_row(values: Lake) -> None:
    first, second = (rows_of(values, "values", "public.null_and_key", day) for day in VALUE_DAYS)
    assert_same_rows(
        first,
        [
            {"id": hash_of("a"), "mail": None},
            {"id": hash_of("c"), "mail": hash_of("c@example.org")},
        ],
    )
    assert [row["id"] for row in second] == [hash_of("c")]


def test_values_without_a_schema_are_hashed_as_they_were_sent(values: Lake) -> None:
    (row,) = rows_of(values, "values", "public.without_schema", VALUE_DAYS[1])
    expected = {"tags": hash_of("[1,2]"), "flag": hash_of("true"), "amount": hash_of("1.5")}
    assert row == {"id": 1, **expected}


def test_an_excluded_column_of_the_message_key_is_refused(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = ev.PgLog(name, "public", "t", types={"id": "int32"})
    log.create(id=1)
    ev.write_landing(tmp_path, log.landed)
    tables = {"public.t": {"exclude": ["id"]}}
    lake = lake_of({name: source_config(tmp_path, tables=tables)}, hash_salt=SALT)
    with pytest.raises(ConfigError, match=r"tables\.public\.t\.exclude: id is a column of the key"):
        run_stages(lake, name, sorted(log.landed))


def test_days_are_made_again_where_a_column_becomes_protected(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = ev.PgLog(name, "public", "t", types={"id": "int32", "mail": "string"})
    log.create(id=1, mail="a@example.org")
    lake = made(lake_of, name, tmp_path, log, {"key": ["id"]})
    days = sorted(log.landed)
    assert make_changes(lake, name, days) == []
    lake = made(lake_of, name, tmp_path, log, {"key": ["id"], "hash": ["mail"]})
    (row,) = rows_of(lake, name, "public.t", days[0])
    assert row["mail"] == hash_of("a@example.org")


# -- names that protect nothing --------------------------------------------------------------------


def renamed(name: str) -> ev.PgLog:
    """On the second day the column `mail` is called `e_mail`."""
    log = ev.PgLog(name, "public", "t", types={"id": "int32", "mail": "string"})
    log.create(id=1, mail="a@example.org")
    log.next_day()
    log.create(id=2, e_mail="b@example.org", _types={"id": "int32", "e_mail": "string"})
    return log


def test_a_day_without_a_protected_column_fails_its_check(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = renamed(name)
    lake = made(lake_of, name, tmp_path, log, {"key": ["id"], "hash": ["mail"]})
    days = sorted(log.landed)
    findings = changes_found(lake, name, days)
    first, second = (
        next(f for f in findings[day] if f.name == "columns_protected") for day in days
    )
    assert first.passed
    assert not second.passed
    assert second.severity is None, "an error, as the check is"
    assert "no row of the day has mail" in str(second.values["examples"])


def test_a_column_that_rename_follows_stays_protected(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = renamed(name)
    table = {"key": ["id"], "hash": ["mail"], "rename": {"e_mail": "mail"}}
    lake = made(lake_of, name, tmp_path, log, table)
    days = sorted(log.landed)
    findings = changes_found(lake, name, days)
    assert all(f.passed for day in days for f in findings[day] if f.name == "columns_protected")
    rows = rows_of(lake, name, "public.t", days[1])
    assert {row["mail"] for row in rows} == {hash_of("a@example.org"), hash_of("b@example.org")}


def test_a_strict_source_makes_no_day_without_a_protected_column(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = renamed(name)
    ev.write_landing(tmp_path, log.landed)
    tables = {"public.t": {"key": ["id"], "hash": ["mail"], "exclude": ["phone"]}}
    source = source_config(tmp_path, tables=tables, protect="strict")
    days = sorted(log.landed)
    lake = lake_of({name: source}, hash_salt=SALT)
    with pytest.raises(ConfigError, match=f"no row of {days[0]} has the column phone"):
        run_stages(lake, name, days[:1])
    assert stage_rows(lake, name, "changes") == []
    del tables["public.t"]["exclude"]
    lake = lake_of({name: source}, hash_salt=SALT)
    run_stages(lake, name, days[:1])
    with pytest.raises(ConfigError, match=f"no row of {days[1]} has the column mail"):
        run_stages(lake, name, days[1:])
    assert {row["landing_date"] for row in stage_rows(lake, name, "changes")} == {days[0]}


def test_no_plan_has_the_salt(lake_of: LakeOf, tmp_path: Path, name: str) -> None:
    log = ev.PgLog(name, "public", "t", types={"id": "int32", "mail": "string"})
    log.create(id=1, mail="a")
    ev.write_landing(tmp_path, log.landed)
    tables = {"public.t": {"key": ["id"], "hash": ["mail"]}}
    lake = lake_of({name: source_config(tmp_path, tables=tables)}, hash_salt=SALT)
    source = lake.config.source(name)
    rows = lake.spark.createDataFrame(
        [],
        "table_name string, destination string, kind string, "
        "op string, reason string, detail string, payload string, message_key_json string, "
        "before string, after string, key string, old_key string, new_key string, "
        "landing_date date, schema_id string",
    )
    protected = protect(rows, source, SALT, [ev.DAY], [], KnownSchemas({}, {}))
    plan = protected._jdf.queryExecution().toString()
    assert "sha2" in plan
    assert SALT not in plan


# -- configuration -------------------------------------------------------------------------------


def configured(table: dict[str, Any], **top: Any) -> Config:
    source = source_config("landing", tables={"public.t": table})
    return parse_config({"start_date": DAYS[0], "sources": {"s": source}, **top}, Path("/"))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: configured({"hash": ["a"]}), "hash_salt: is missing"),
        (
            lambda: configured({"hash": ["a"], "exclude": ["a"]}, hash_salt=SALT),
            "exclude and hash both name a",
        ),
        (
            lambda: configured({"key": ["a"], "exclude": ["a"]}, hash_salt=SALT),
            "exclude names a, a column of the key",
        ),
        (lambda: configured({"hash": ["a"]}, hash_salt="short"), "hash_salt: got 5 characters"),
    ],
)
def test_a_protection_that_can_not_be_is_refused(make: Callable[[], Config], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make()
    assert says in str(raised.value)
    assert "short" not in str(raised.value)


def test_the_salt_is_not_shown() -> None:
    config = configured({"hash": ["a"]}, hash_salt=SALT)
    assert SALT not in repr(config)
    assert TableConfig(columns={"a": "bigint", "b": "date"}, hash=("a",)).lake_columns == {
        "a": "string",
        "b": "date",
    }


def test_a_hashed_column_says_so_beside_its_comment() -> None:
    config = configured({"hash": ["a"], "exclude": ["b"]}, hash_salt=SALT)
    (source,) = config.sources.values()
    (table,) = source.tables
    types = {"a": ("io.debezium.time.Year", "of birth"), "b": ("string", "not there")}
    row = [
        {**ev.field_schema(kind), "field": n, "doc": comment}
        for n, (kind, comment) in types.items()
    ]
    after = {"type": "struct", "fields": row, "field": "after"}
    text = json.dumps({"type": "struct", "fields": [after]})
    fresh = [PlainRow(schema_id="s", table_name=table, schema=text, first_landed=DAYS[0])]
    schemas = KnownSchemas({}, {}).joined(fresh, source)
    found = protected_schemas(schemas, source).columns[table, "s"]
    assert {n: description(kind, kind.spark) for n, kind in found.items()} == {
        "a": "of birth; salted SHA-256 of the value, in hexadecimal digits"
    }
