"""The address of a database, what is in a snapshot of it, and which columns are compared."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.config.database import Address
from cdc_assets.cdc.verification.columns import columns_of
from cdc_assets.cdc.verification.postgres import Snapshot, SourceColumn

WRAP = 1 << 32


def snapshot(spark: SparkSession, xmax: int, *in_progress: int) -> Snapshot:
    address = Address.parse("postgresql://db/shop")
    return Snapshot(spark, address, None, "1", xmax, in_progress, 0, 0, 160_000)


def test_an_address_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    address = Address.parse("postgresql://ann:p%40ss@db.example.org:6543/my%20shop?sslmode=require")
    assert address.jdbc_url == "jdbc:postgresql://db.example.org:6543/my shop"
    assert address.properties == {"sslmode": "require", "user": "ann", "password": "p@ss"}
    assert "p@ss" not in f"{address}{address!r}"
    assert "p%40ss" not in f"{address}{address!r}"


def test_the_password_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "secret")
    address = Address.parse("postgres://ann@[::1]/shop")
    assert address.properties == {"user": "ann", "password": "secret"}
    assert address.jdbc_url == "jdbc:postgresql://[::1]:5432/shop"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://ann:secret@db/shop", "got the scheme 'mysql'"),
        ("postgresql://ann:secret@/shop", "the host or the database is missing"),
        ("postgresql://ann:secret@db", "the host or the database is missing"),
        ("postgresql://ann:secret@db:port/shop", "the address can't be read"),
    ],
)
def test_a_wrong_address_says_what_is_wrong_and_no_password(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        Address.parse(url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("xmax", "in_progress", "sent", "expected"),
    [
        (100, (), 99, True),
        (100, (), 100, False),
        (100, (90,), 90, False),
        (100, (90,), 91, True),
        # The upper half: this epoch, the one before, the one behind.
        (WRAP + 100, (), 99, True),
        (WRAP + 100, (), WRAP - 1, True),
        (WRAP + 100, (WRAP - 1,), WRAP - 1, False),
        (2 * WRAP - 5, (), 3, False),
        (2 * WRAP - 5, (), WRAP - 6, True),
    ],
)
def test_a_transaction_of_32_bits_is_in_a_snapshot_or_is_not(
    spark: SparkSession, xmax: int, in_progress: tuple[int, ...], sent: int, expected: bool
) -> None:
    visible = snapshot(spark, xmax, *in_progress).is_visible(f"{sent}L")
    row = spark.sql(f"SELECT {visible} AS is_visible").first()
    assert row is not None
    assert row.is_visible == expected


def column(name: str, kind: str, **more: Any) -> SourceColumn:
    return SourceColumn(
        name, kind, more.pop("declared", kind), more.pop("kind", "b"), **{"element": None, **more}
    )


def test_columns_that_only_one_side_has_or_that_do_not_compare_are_named() -> None:
    source = [column(n, k) for n, k in (("id", "int4"), ("new", "text"), ("kept", "interval"))]
    source.append(column("mail", "text"))
    lake = {"id": "int", "kept": "bigint", "old": "string", "mail": "string"}
    found = columns_of(source, lake, {}, hashed=("mail",))
    assert [c.name for c in found.compared] == ["id"]
    assert found.left_out == {
        "new": "the lake has no such column",
        "kept": "interval and bigint are not compared",
        "mail": "the lake has its hash",
        "old": "the source has no such column",
    }


def test_a_renamed_column_is_compared_under_its_name_in_the_lake() -> None:
    found = columns_of([column("odd name", "text")], {"name": "string"}, {"odd name": "name"})
    (own,) = found.compared
    assert (own.name, own.asked) == ("name", '"odd name"::text')


@pytest.mark.parametrize(
    ("kind", "lake", "sent", "held", "is_same"),
    [
        ("numeric", "string", "1.500", "1.5", True),
        ("numeric", "string", "100", "1", False),
        ("numeric", "decimal(12,2)", "1.50", "1.5", True),
        ("jsonb", "string", '{"b": 1, "a": [1.50]}', '{"a":[1.50],"b":1}', True),
        ("jsonb", "string", '{"a": 1}', '{"a": 2}', False),
        ("text", "string", "a ", "a", False),
    ],
)
def test_values_compare_by_what_they_are(
    spark: SparkSession, kind: str, lake: str, sent: str, held: str, is_same: bool
) -> None:
    (own,) = columns_of([column("v", kind)], {"v": lake}, {}).compared
    row = spark.sql(
        f"SELECT (SELECT {own.source} FROM (SELECT '{sent}' AS v)) "
        f"<=> (SELECT {own.lake} FROM (SELECT CAST('{held}' AS {lake}) AS v)) AS same"
    ).first()
    assert row is not None
    assert row.same == is_same


def test_what_a_column_can_not_hold_is_told_apart_from_null(spark: SparkSession) -> None:
    (amount,) = columns_of([column("v", "numeric")], {"v": "decimal(12,2)"}, {}).compared
    found = [
        spark.sql(f"SELECT {amount.is_unfit} AS x FROM (SELECT {v} AS v)").first()
        for v in ("'NaN'", "'1.50'", "CAST(NULL AS string)")
    ]
    assert [row and row.x for row in found] == [True, False, False]
