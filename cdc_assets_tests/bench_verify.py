"""Measures `cdc-assets verify`: `python -m cdc_assets_tests.bench_verify --rows 10000000`.

A PostgreSQL server of its own has a table; a lake beside it the same rows, as they landed from a
snapshot. Both share the machine's cores. Memory is the most that Spark's process ever had. What
`verify` finds is said as well: all rows are equal, and after that one of each kind of fault.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

from cdc_assets.cdc.config import parse_config
from cdc_assets.cdc.config.database import Address
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import build_session
from cdc_assets.cdc.verification.findings import Verification
from cdc_assets.cdc.verification.verify import verify
from cdc_assets_tests import bench, lakes
from cdc_assets_tests.e2e.stack import Postgres

SOURCE, TABLE = "shop", "public.orders"
MADE = """
    CREATE TABLE orders (
        id bigint PRIMARY KEY, customer int, amount numeric(12,2), price double precision,
        at timestamptz, day date, status text, note text
    );
    INSERT INTO orders SELECT n, n % 100000, n % 1000000 * 1.25, n / 3.0,
        timestamptz '2026-01-01Z' + n * interval '1 second', date '2026-01-01' + n::int % 300,
        CASE n % 3 WHEN 0 THEN 'new' WHEN 1 THEN 'paid' ELSE 'sent' END, md5(n::text)
        FROM generate_series(1, {rows}::bigint) n;
    VACUUM ANALYZE orders;
"""
# What a connector with `decimal.handling.mode: string` writes of a snapshot, a line a record.
LANDED = """
    COPY (SELECT json_build_object(
        'topic', 'shop.public.orders', 'partition', 0, 'offset', id, 'tstype', 'create',
        'ts', {ms}, 'broker', 1, 'headers', json_build_array(),
        'key', json_build_object('id', id)::text,
        'payload', json_build_object('before', null, 'after', json_build_object(
            'id', id, 'customer', customer, 'amount', amount::text, 'price', price,
            'at', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
            'day', day - date '1970-01-01', 'status', status, 'note', note),
        'source', json_build_object('version', '3.0.0.Final', 'connector', 'postgresql',
            'name', 'shop', 'ts_ms', {ms}, 'snapshot', 'true', 'db', 'postgres',
            'schema', 'public', 'table', 'orders', 'txId', 700, 'lsn', 1000),
        'op', 'r', 'ts_ms', {ms})::text) FROM orders)
    TO STDOUT (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')
"""
COLUMNS = {
    "id": "bigint", "customer": "int", "amount": "decimal(12,2)", "price": "double",
    "at": "timestamp", "day": "date", "status": "string", "note": "string",
}  # fmt: skip


def _noon(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, 12, tzinfo=timezone.utc).timestamp() * 1000)


def _land_rows(postgres: Postgres, folder: Path, day: date) -> None:
    place = folder / "landing" / str(day)
    place.mkdir(parents=True)
    copy = LANDED.format(ms=_noon(day)).encode()
    with (
        (place / "part.jsonl").open("wb") as file,
        postgres.connect() as db,
        db.cursor().copy(copy) as lines,
    ):
        for line in lines:
            file.write(line)


def _land_heartbeat(postgres: Postgres, folder: Path, day: date) -> None:
    """What a connector sends from time to time: an event behind all that has been written."""
    place = folder / "landing" / str(day)
    place.mkdir(exist_ok=True)
    with postgres.connect() as db:
        row = db.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").fetchone()
    assert row is not None
    ms = _noon(day)
    source = {
        "version": "3.0.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": ms,
        "snapshot": "false", "db": "postgres", "schema": "public", "table": "heartbeat",
        "txId": 900, "lsn": int(row[0]) + 1000,
    }  # fmt: skip
    event = {"before": None, "after": {"id": 1}, "source": source, "op": "u", "ts_ms": ms}
    record = {
        "topic": "shop.public.heartbeat", "partition": 0, "offset": 1, "tstype": "create", "ts": ms,
        "broker": 1, "headers": [], "key": '{"id": 1}', "payload": json.dumps(event),
    }  # fmt: skip
    (place / "heartbeat.jsonl").write_text(json.dumps(record) + "\n", "utf-8")


def _memory(lake: Lake) -> int:
    """The most memory that Spark's process ever had, MB."""
    jvm: Any = lake.spark._jvm
    told = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status").read_text()
    return int(told.partition("VmHWM:")[2].split()[0]) // 1024


def _lake(folder: Path, day: date) -> Lake:
    config = parse_config(
        {
            "lake": {"warehouse": str(folder / "lake")},
            "spark": {"spark.log.level": "ERROR"},
            "start_date": day,
            "sources": {
                SOURCE: lakes.source_config(
                    folder / "landing",
                    tables={
                        TABLE: {"key": ["id"], "columns": COLUMNS},
                        "public.heartbeat": {"key": ["id"]},
                    },
                )
            },
        },
        folder,
    )
    return Lake(build_session(config), config)


def measure(folder: Path, tell: Callable[[str], None], rows: int) -> dict[str, Any]:
    """Seconds and memory of a verification of equal rows, and what another one finds."""
    today = datetime.now(timezone.utc).date()
    day = today - timedelta(days=1)
    with Postgres(folder / "postgres") as postgres:
        tell(f"writing {rows} rows")
        with postgres.connect() as db:
            for statement in MADE.format(rows=rows).split(";\n"):
                db.execute(statement.encode())
        _land_rows(postgres, folder, day)
        tell("making the lake's table")
        lake = _lake(folder, day)
        lakes.run_all(lake, SOURCE, [day], [TABLE])
        lake.spark.stop()
        _land_heartbeat(postgres, folder, today)
        # A process of its own would start as cold as this session.
        lake = _lake(folder, day)
        first = _verified(lake, postgres, day, tell)
        memory = _memory(lake)
        assert (first.equal, first.is_equal) == (rows, True), first
        with postgres.connect() as db:
            db.execute("UPDATE orders SET status = 'lost' WHERE id = 3")
            db.execute("DELETE FROM orders WHERE id = 4")
            db.execute("INSERT INTO orders (id, note) VALUES (0, 'only here')")
        _land_heartbeat(postgres, folder, today)
        second = _verified(lake, postgres, day, tell)
        lake.spark.stop()
    found = (second.differs, second.only_in_source, second.only_in_lake)
    assert found == (1, 1, 1), second
    return {
        "verify: seconds": first.seconds,
        "rows a second": round(rows / first.seconds),
        "memory of Spark's process, MB": memory,
        "with three faults: seconds": second.seconds,
    }


def _verified(
    lake: Lake, postgres: Postgres, day: date, tell: Callable[[str], None]
) -> Verification:
    began = time.monotonic()

    def say(text: str) -> None:
        tell(f"{time.monotonic() - began:.1f} s: {text}")

    address = Address.parse(f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres")
    return verify(lake, SOURCE, TABLE, address, day, wait=10, tell=say)


def main() -> None:
    """The figures as a table, and as a line of JSON on stdout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    asked = {"rows": arguments.rows}
    bench.run(partial(measure, **asked), asked)


if __name__ == "__main__":
    main()
