"""`make stack`: PostgreSQL, Kafka and Debezium on this machine, written to until Ctrl-C.

Two tables of a small shop change about ten times a second. ``.stack/cdc.yaml`` is the
configuration that reads them. Each start is a new world: what the one before left is removed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psycopg
import yaml

from cdc_assets_tests.e2e import stack as st

TABLES = """
CREATE TABLE customers (
    id integer PRIMARY KEY, name text NOT NULL, city text, since timestamptz DEFAULT now());
CREATE TABLE orders (
    id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY, customer integer NOT NULL,
    status text NOT NULL, amount numeric(10,2) NOT NULL, placed timestamptz NOT NULL DEFAULT now());
CREATE TABLE visits (at timestamptz NOT NULL DEFAULT now(), customer integer, page text);
INSERT INTO customers SELECT n, 'customer ' || n, 'Berlin' FROM generate_series(1, 100) n;
"""
STATUSES = ("placed", "paid", "packed", "sent", "returned")


def configuration(folder: Path, broker: st.Broker) -> dict[str, Any]:
    """The cdc.yaml of the shop."""
    return {
        "lake": {"warehouse": str(folder / "warehouse")},
        "start_date": datetime.now(timezone.utc).date(),
        "sources": {
            "shop": {
                "format": "debezium",
                "landing": {
                    "kafka": {
                        "bootstrap_servers": broker.servers,
                        "topic_pattern": r"(__debezium-heartbeat\.)?shop(\..*)?",
                    }
                },
                "lag_slo_ms": 60_000,
                "tables": {
                    "public.customers": {},
                    "public.orders": {},
                    "public.visits": {"key": "none"},
                },
            }
        },
    }


def change(db: psycopg.Connection[Any], rng: random.Random) -> None:
    """One transaction of the shop."""
    with db.transaction():
        customer = rng.randint(1, 100)
        kind = rng.random()
        if kind < 0.4:
            db.execute(
                "INSERT INTO orders (customer, status, amount) VALUES (%s, 'placed', %s)",
                [customer, rng.randint(100, 99_999) / 100],
            )
        elif kind < 0.75:
            db.execute(
                "UPDATE orders SET status = %s WHERE id ="
                " (SELECT id FROM orders ORDER BY random() LIMIT 1)",
                [rng.choice(STATUSES)],
            )
        elif kind < 0.8:
            db.execute("DELETE FROM orders WHERE status = 'returned'")
        elif kind < 0.85:
            city = rng.choice(["Berlin", "Lyon", "Oslo", "上海"])
            db.execute("UPDATE customers SET city = %s WHERE id = %s", [city, customer])
        else:
            page = rng.choice(["/", "/cart", "/help"])
            db.execute("INSERT INTO visits (customer, page) VALUES (%s, %s)", [customer, page])


def main() -> int:
    """Run the stack until Ctrl-C or SIGTERM; 1 where something is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path(".stack"), help="where it all is")
    parser.add_argument("--rate", type=float, default=10.0, help="transactions a second")
    parser.add_argument("--seconds", type=float, help="stop by itself after so long")
    options = parser.parse_args()
    if lacks := st.missing_parts():
        print(f"missing: {', '.join(lacks)}; run scripts/e2e.sh", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    folder = options.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    print("starting PostgreSQL, Kafka and Kafka Connect …", flush=True)
    try:
        with st.running(folder) as stack, stack.postgres.connect() as db:
            db.execute(TABLES.encode())
            connector = st.postgres_connector(stack.postgres, "shop")
            more = {"skipped.operations": "none", "heartbeat.interval.ms": "5000"}
            stack.connect.add("shop", {**connector, **more})
            file = folder / "cdc.yaml"
            config = configuration(folder, stack.broker)
            file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
            print(
                f"PostgreSQL: psql '{stack.postgres.dsn}'\n"
                f"Kafka:      {stack.broker.servers}\n"
                f"Connect:    http://127.0.0.1:{stack.connect.port}\n"
                f"logs:       {folder}/*/*.log\n\n"
                "In another terminal, as often as you like:\n\n"
                f"    export CDC_CONFIG={file}\n"
                f"    .venv/bin/cdc-assets run --from {config['start_date']}\n"
                "    .venv/bin/cdc-assets show shop.public.orders --limit 5\n"
                "    .venv/bin/cdc-assets lag\n\n"
                "Ctrl-C stops it all.",
                flush=True,
            )
            write(stack, db, options.rate, options.seconds)
    except KeyboardInterrupt:
        print("\nstopped")
    return 0


def write(stack: st.Stack, db: psycopg.Connection[Any], rate: float, seconds: float | None) -> None:
    """Change the shop until the time is up; a part that ends by itself raises."""
    rng, began, done = random.Random(), time.monotonic(), 0
    while seconds is None or time.monotonic() - began < seconds:
        change(db, rng)
        done += 1
        if done % 100 == 0:
            stack.connect.check()
        time.sleep(max(0.0, began + done / rate - time.monotonic()))


if __name__ == "__main__":
    sys.exit(main())
