"""`verify` against PostgreSQL and Debezium under writes: each fault is found, and no other."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from cdc_assets.cdc.config.database import Address
from cdc_assets.cdc.errors import SourceError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.verification.findings import Verification, place
from cdc_assets.cdc.verification.postgres import snapshot_of
from cdc_assets.cdc.verification.verify import verify
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.automation.source_checks import build_source_checks
from cdc_assets.orchestration.runs.instance import open_instance
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.e2e.stack import Stack, postgres_connector, running, wait_for
from cdc_assets_tests.e2e.world import read_all
from cdc_assets_tests.shared_spark import SharedSpark
from cdc_assets_tests.topics import kafka_source

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PREFIX, TABLE = "verified", "public.orders"
CHECK = dg.AssetCheckKey(dg.AssetKey([PREFIX, "public", "orders"]), "matches_source")
ROWS = 1000
# A hundred were run without a false alarm: CDC_VERIFY_RUNS=100 pytest -m e2e -k under_writes.
RUNS = int(os.environ.get("CDC_VERIFY_RUNS", "2"))
MADE = f"""
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE TABLE orders (
        id int PRIMARY KEY, amount numeric(12,2), free numeric, price double precision,
        made date, at timestamptz, local timestamp, note text, code character(8), doc jsonb,
        raw bytea, tags text[], numbers int[], is_paid boolean, token uuid, feels mood,
        kept interval
    );
    INSERT INTO orders SELECT n, n * 1.25, n / 7.0, n / 3.0, date '1970-01-01' + n,
        timestamptz '2026-01-01 12:00:00.123456+05' + n * interval '1 hour',
        timestamp '0099-01-01' + n * interval '1 day', 'note ' || n, 'c' || n,
        jsonb_build_object('n', n, 'a', array[1.50, n]), decode(lpad(to_hex(n), 8, '0'), 'hex'),
        array['a', null, 'b' || n], array[n, null], n % 2 = 0, gen_random_uuid(), 'ok',
        interval '1 day' FROM generate_series(1, {ROWS}) n;
    UPDATE orders SET amount = NULL, note = NULL, tags = NULL, made = NULL WHERE id % 10 = 0;
    UPDATE orders SET amount = 'NaN', at = 'infinity' WHERE id = 7;
    CREATE TABLE heartbeat (id int PRIMARY KEY, at timestamptz);
    INSERT INTO heartbeat VALUES (1, now());
    CREATE ROLE reader LOGIN;
    GRANT SELECT ON orders TO reader;
"""
OPTIONS = {
    "skipped.operations": "none",
    "table.include.list": r"public\.(orders|heartbeat)",
    "heartbeat.interval.ms": "500",
    "heartbeat.action.query": "UPDATE heartbeat SET at = now() WHERE id = 1",
}


@contextmanager
def writes(stack: Stack) -> Iterator[None]:
    """Transactions of several rows go on meanwhile; one stays open for long each time."""
    stop = threading.Event()

    def write(seed: int) -> None:
        rng = random.Random(seed)
        with stack.postgres.connect(autocommit=False) as db:
            while not stop.is_set():
                for _ in range(rng.randrange(1, 6)):
                    n = rng.randrange(1, ROWS)
                    db.execute("UPDATE orders SET price = %s WHERE id = %s", (rng.random(), n))
                    if rng.random() < 0.2:
                        db.execute("DELETE FROM orders WHERE id = %s", (n,))
                    if rng.random() < 0.2:
                        db.execute(
                            "INSERT INTO orders (id, note) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                            (rng.randrange(1, 2 * ROWS), f"new {rng.random()}"),
                        )
                if seed == 0:
                    stop.wait(1.5)
                try:
                    db.commit()
                except psycopg.errors.DeadlockDetected:
                    db.rollback()
                stop.wait(0.05)

    def written(seed: int) -> None:
        while not stop.is_set():
            try:
                write(seed)
            except psycopg.errors.DeadlockDetected:
                continue

    threads = [threading.Thread(target=written, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def verified(lake: Lake, stack: Stack, lands: bool = True, **options: Any) -> Verification:
    url = f"postgresql://reader@127.0.0.1:{stack.postgres.port}/postgres"

    if not lands:
        options["land"] = lambda days: None
    return verify(lake, PREFIX, TABLE, Address.parse(url), **{"wait": 60.0, **options})


def inject(lake: Lake, day: date, count: int) -> dict[str, set[int]]:
    """Faults in the lake's table: rows that are lost, doubled, changed, or as they were before."""
    ids = [row["id"] for row in lakes.rows_of(lake, PREFIX, TABLE, day) if row["id"] % 10]
    chosen = random.Random(1).sample(sorted(set(ids) - {7}), count)
    lost, doubled, changed, old = (set(chosen[n::4]) for n in range(4))
    # As maintenance writes a day once more, so that it counts as made of the same.
    table, state = lake.state(PREFIX, TableName.parse(TABLE)), lake.table_state(PREFIX, TABLE)
    assert state is not None
    branch = lake.branch(table, day, state.tags[day], state.tags[day])
    lake.start(branch)
    own = branch.identifier

    def listed(of: set[int]) -> str:
        return ", ".join(map(str, of))

    for statement in (
        f"DELETE FROM {own} WHERE id IN ({listed(lost)})",
        f"INSERT INTO {own} SELECT * FROM {own} WHERE id IN ({listed(doubled)})",
        f"UPDATE {own} SET amount = coalesce(amount, 0) + 0.01, "
        f"at = coalesce(at, timestamp '2026-01-01') + INTERVAL 1 MICROSECOND "
        f"WHERE id IN ({listed(changed)})",
        # One of the doubled rows is changed as well: both of it.
        f"UPDATE {own} SET amount = -1 WHERE id = {min(doubled)}",
        f"UPDATE {own} SET note = 'an old one', price = 0 WHERE id IN ({listed(old)})",
    ):
        lake.spark.sql(statement)
    lake.publish(branch, state.summary_of_same_rows(day))
    return {"lost": lost, "doubled": doubled, "changed": changed, "old": old}


def command(folder: Path, source: dict[str, Any], first: date, port: int) -> None:
    """The command itself, in a lake of its own: it is equal, and that is recorded."""
    url = f"postgresql://reader:secret@127.0.0.1:{port}/postgres"
    config = {
        "start_date": str(first),
        "lake": {"warehouse": str(folder / "lake")},
        "spark": {"spark.driver.memory": "1g"},
        "sources": {PREFIX: {**source, "database": url}},
    }
    (folder / "cdc.yaml").write_text(json.dumps(config), "utf-8")
    (folder / "dagster.yaml").write_text("", "utf-8")
    environment = {name: text for name, text in os.environ.items() if not name.startswith("CDC_")}
    environment["DAGSTER_HOME"] = str(folder)
    run = ("run", "--from", str(first), "--to", str(first))
    for arguments in (run, ("verify", TABLE, "--format", "json")):
        done = subprocess.run(
            [sys.executable, "-m", "cdc_assets.cli.app", *arguments],
            env=environment, cwd=folder, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "secret" not in done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["is_equal"], told["differs"]) == (True, 0)
    assert told["equal"] > ROWS // 2
    with open_instance(folder) as instance:
        found = instance.get_latest_asset_check_evaluation_record(CHECK)
    assert found is not None
    assert found.evaluation is not None
    assert found.evaluation.passed
    assert found.evaluation.metadata["position"].value == place(told["lsn"])


def checked_in_dagster(lake: Lake) -> dg.AssetCheckEvaluation:
    """The check `matches_source` as its page runs it."""
    SharedSpark.shared = lake
    defs = dg.Definitions(
        assets=build_assets(PREFIX, lake.config),
        asset_checks=build_source_checks(lake.config),
        jobs=[dg.define_asset_job("asked", selection=dg.AssetSelection.checks(CHECK))],
        resources={"spark": SharedSpark()},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        ran = defs.resolve_job_def("asked").execute_in_process(instance=instance)
    (found,) = ran.get_asset_check_evaluations()
    return found


def in_parts(lake: Lake, stack: Stack) -> list[int]:
    """The keys as several connections read them in one snapshot, by the connection."""
    url = f"postgresql://reader@127.0.0.1:{stack.postgres.port}/postgres"
    with snapshot_of(lake.spark, Address.parse(url)) as snapshot:
        rows = snapshot.rows(TableName.parse(TABLE), {"id": "id::bigint"}, None, 8)
        read = rows.selectExpr("id", "spark_partition_id() AS part").collect()
        (there,) = snapshot.ask("SELECT count(*) AS n FROM orders")
    assert len({row.id for row in read}) == len(read) == int(there["n"])
    return [sum(row.part == part for row in read) for part in {row.part for row in read}]


def test_a_table_under_writes_is_equal_and_each_fault_is_found(
    tmp_path: Path, lake_of: LakeOf
) -> None:
    first = datetime.now(timezone.utc).date()
    with running(tmp_path / "stack") as stack, stack.postgres.connect() as db:
        db.execute(MADE)
        stack.connect.add("c", {**postgres_connector(stack.postgres, PREFIX), **OPTIONS})

        def is_there() -> bool:
            stack.connect.check()
            topic = f"{PREFIX}.{TABLE}"
            return sum(1 for _ in read_all(stack.broker, (topic,))) >= ROWS

        wait_for("the snapshot", is_there, 120)
        tables = {TABLE: {}, "public.heartbeat": {}}
        source = kafka_source(stack.broker, pattern=rf"{PREFIX}\..*", tables=tables)
        url = f"postgresql://reader@127.0.0.1:{stack.postgres.port}/postgres"
        lake = lake_of({PREFIX: {**source, "database": url}}, first)
        days = (datetime.now(timezone.utc).date() - first).days
        made = [first + timedelta(days=n) for n in range(days + 1)]
        lakes.run_all(lake, PREFIX, made, [TABLE])
        with writes(stack):
            assert len(in_parts(lake, stack)) > 3
            for n in range(RUNS):
                found = verified(lake, stack)
                assert found.is_equal, found
                assert found.left_out.keys() == {"kept"}, found.left_out
                assert n == 0 or found.moved
        # Quiet again: what cdc-assets made of it all.
        lakes.run_all(lake, PREFIX, made, [TABLE])
        found = verified(lake, stack)
        # Row 7 has NaN and infinity, unless it was made anew.
        asked = "SELECT coalesce(amount = 'NaN' OR at = 'infinity', false) FROM orders"
        rows = db.execute(asked).fetchall()
        assert (found.is_equal, found.moved) == (True, 0), found
        assert (found.equal, found.not_comparable) == (
            sum(not is_unfit for (is_unfit,) in rows),
            sum(is_unfit for (is_unfit,) in rows),
        ), found
        sample = verified(lake, stack, sample=ROWS // 5)
        assert sample.is_equal, sample
        assert ROWS // 10 < sample.equal < ROWS // 3
        assert sample.compared == "a sample of about 200 rows"
        assert checked_in_dagster(lake).passed
        # Heartbeats go on: an open day that lands again is made again, and would have no fault.
        faults = inject(lake, made[-1], 100)
        found = verified(lake, stack, lands=False)
        assert not found.is_equal
        got = (found.only_in_source, found.doubled, found.differs, found.only_in_lake)
        assert got == (25, 25, 51, 0), (found, faults)
        assert found.equal + found.not_comparable == len(rows) - 25 - 51, found
        assert found.columns == {
            "amount": 27,
            "at": 25,
            "note": 25,
            "price": 25,
        }  # rows, that one twice
        keys = {e["key"]["id"] for e in found.examples if e["what"] == "only in source"}
        assert keys <= faults["lost"]
        sample = verified(lake, stack, lands=False, sample=ROWS // 5)
        assert 0 < sample.only_in_source < 25, sample
        where = f"id IN ({', '.join(map(str, faults['old']))})"
        assert verified(lake, stack, lands=False, where=where).differs == 25
        command(tmp_path, source, first, stack.postgres.port)
        stack.connect.remove("c")
        db.execute("UPDATE orders SET note = 'nobody listens' WHERE id = 1")
        with pytest.raises(SourceError, match="has landed up to"):
            verified(lake, stack, wait=3.0, as_of=made[-1])
