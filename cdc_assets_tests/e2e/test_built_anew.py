"""A connector is lost and built anew; a table has partitions: against PostgreSQL and Debezium."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.e2e.stack import Stack, postgres_connector, running, wait_for
from cdc_assets_tests.e2e.world import read_all
from cdc_assets_tests.topics import kafka_source

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PREFIX = "anew"
TABLES = {
    "public.people": {},
    "public.settings": {},
    "public.visits_*": {"into": "public.visits"},
    "public.visits": {"key": ["id"], "history": True, "feed": True},
}
MADE = """
    CREATE TABLE people (id int PRIMARY KEY, name text);
    CREATE TABLE settings (id int PRIMARY KEY, value text);
    CREATE TABLE visits (id int, region text, note text, PRIMARY KEY (id, region))
        PARTITION BY LIST (region);
    CREATE TABLE visits_eu PARTITION OF visits FOR VALUES IN ('eu');
    CREATE TABLE visits_us PARTITION OF visits FOR VALUES IN ('us');
    INSERT INTO people SELECT n, 'p' || n FROM generate_series(1, 50) n;
    INSERT INTO settings VALUES (1, 'a'), (2, 'b');
    INSERT INTO visits SELECT n, CASE n % 2 WHEN 0 THEN 'eu' ELSE 'us' END, 'v' || n
        FROM generate_series(1, 20) n;
"""


def connect(stack: Stack, name: str) -> None:
    options = {"skipped.operations": "none", "table.include.list": r"public\..*"}
    stack.connect.add(name, {**postgres_connector(stack.postgres, PREFIX), **options})


def wait_for_text(stack: Stack, table: str, text: str) -> None:
    """Wait until a record of a table says a text."""
    topic = f"{PREFIX}.public.{table}"

    def is_there() -> bool:
        stack.connect.check()
        return any(text.encode() in (r.value or b"") for r in read_all(stack.broker, (topic,)))

    wait_for(f"{text} in {topic}", is_there, 120)


def truth(db: psycopg.Connection[Any], table: str) -> list[Sequence[Any]]:
    return sorted(db.execute(f"SELECT * FROM {table}").fetchall())  # type: ignore[call-overload,type-var]


def test_tables_equal_the_database_after_a_connector_was_built_anew(
    tmp_path: Path, lake_of: LakeOf
) -> None:
    first = datetime.now(timezone.utc).date()
    with running(tmp_path / "stack") as stack, stack.postgres.connect() as db:
        db.execute(MADE)
        connect(stack, "first")
        wait_for_text(stack, "visits_us", '"v19"')
        db.execute("UPDATE visits SET region = 'us', note = 'moved' WHERE id = 2")
        db.execute("INSERT INTO people VALUES (51, 'streamed')")
        wait_for_text(stack, "people", '"streamed"')
        wait_for_text(stack, "visits_us", '"moved"')
        stack.connect.remove("first")
        drop = (
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"
        )
        wait_for("the slot's end", lambda: db.execute(drop).fetchone() is not None, 60)
        # Nobody listens.
        db.execute("DELETE FROM people WHERE id % 7 = 0")
        db.execute("DELETE FROM settings WHERE id = 2")
        db.execute("DELETE FROM visits WHERE id IN (4, 5)")
        db.execute("UPDATE visits SET region = 'eu' WHERE id = 7")
        db.execute("INSERT INTO people VALUES (52, 'unseen')")
        connect(stack, "second")
        wait_for_text(stack, "people", '"unseen"')
        db.execute("INSERT INTO visits VALUES (30, 'eu', 'before'), (31, 'us', 'before')")
        db.execute("TRUNCATE visits_eu")
        db.execute("INSERT INTO visits VALUES (32, 'eu', 'last')")
        db.execute("UPDATE people SET name = 'last' WHERE id = 1")
        wait_for_text(stack, "visits_eu", '"last"')
        wait_for_text(stack, "people", '"last"')
        options = {"on_resnapshot": "replace", "resnapshot_remove_percent": 50}
        pattern = rf"{PREFIX}\..*"
        source = kafka_source(stack.broker, pattern=pattern, tables=TABLES, **options)
        lake = lake_of({PREFIX: source}, first)
        days = (datetime.now(timezone.utc).date() - first).days
        made = [first + timedelta(days=n) for n in range(days + 1)]
        reports = lakes.run_all(lake, PREFIX, made)
        lakes.run_derived(lake, PREFIX, made)
        for table in ("people", "settings", "visits"):
            rows = lakes.rows_of(lake, PREFIX, f"public.{table}", made[-1])
            got = [tuple(v for n, v in row.items() if n != "_cdc_table") for row in rows]
            assert sorted(got) == truth(db, table), table
        leaves = {
            (row["_cdc_table"], f"public.visits_{row['region']}")
            for row in lakes.rows_of(lake, PREFIX, "public.visits", made[-1])
        }
        assert all(said == own for said, own in leaves)
        removed = {
            table: sum(
                (r.snapshot or {}).get("removed", 0) for (t, _), r in reports.items() if t == table
            )
            for table in ("public.people", "public.settings", "public.visits")
        }
        # Row 4 went with the truncate of its leaf, and row 7 was read in its new leaf.
        assert removed == {"public.people": 7, "public.settings": 1, "public.visits": 1}
