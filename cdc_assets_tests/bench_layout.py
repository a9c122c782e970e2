"""Measures what a table's layout saves: `python -m cdc_assets_tests.bench_layout`.

The same rows, created over 100 days, are in a table without partitions, in one by day of creation,
and in one by bucket of the key, sorted by it. Their keys grow with time, as UUIDs of version 7 do,
and they land in no order, as those of a table do that has changed for long. A day changes rows that
were created in the last three days, and creates others. Bytes are all that Spark's process reads
meanwhile, metadata, the day's changes and shuffles included.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

from cdc_assets.cdc.config import parse_config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.maintenance import maintain_table
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.spark import build_session
from cdc_assets_tests import bench, lakes

DAY_1, DAY_2 = date(2026, 11, 1), date(2026, 11, 2)
TABLE = "public.orders"
CREATED_OVER = 100  # days
CHANGED, CREATED = 5_000, 5_000
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "by_day": {"partition_by": ["days(created_at)"], "sort_by": ["id"]},
    "by_key": {"partition_by": ["bucket(16, id)"], "sort_by": ["id"]},
}


def _created_at(n: int, rows: int) -> datetime:
    return datetime(2026, 7, 24) + timedelta(days=n * CREATED_OVER / rows)


def _key(n: int) -> str:
    return f"{n:012x}-{random.Random(n).getrandbits(96):024x}"


def _row(n: int, rows: int, status: str, noise: random.Random) -> dict[str, Any]:
    note = f"{noise.getrandbits(1600):0400x}"
    return {"id": _key(n), "created_at": str(_created_at(n, rows)), "status": status, "note": note}


def _record(n: int, day: date, op: str, before: Any, after: Any) -> str:
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=timezone.utc)
    ms = int(noon.timestamp() * 1000) + n
    source = {
        "version": "3.0.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": ms,
        "snapshot": "true" if op == "r" else "false", "db": "shop", "schema": "public",
        "table": "orders", "txId": n, "lsn": 1000 + n,
    }  # fmt: skip
    event = {"before": before, "after": after, "source": source, "op": op, "ts_ms": ms}
    key = json.dumps({"id": (after or before)["id"]})
    record = {
        "topic": "shop.public.orders", "partition": 0, "offset": n, "tstype": "create", "ts": ms,
        "broker": 1, "headers": [], "key": key, "payload": json.dumps(event),
    }  # fmt: skip
    return json.dumps(record)


def _first_day(rows: int) -> Iterator[str]:
    noise = random.Random(1)
    for n, key in enumerate(noise.sample(range(rows), rows)):
        yield _record(n, DAY_1, "r", None, _row(key, rows, "new", noise))


def _second_day(rows: int) -> Iterator[str]:
    noise = random.Random(2)
    recent = rows * 3 // CREATED_OVER
    for n, key in enumerate(noise.sample(range(rows - recent, rows), CHANGED), rows):
        before = _row(key, rows, "new", noise)
        yield _record(n, DAY_2, "u", before, {**before, "status": "paid"})
    for n in range(rows, rows + CREATED):
        yield _record(n + CHANGED, DAY_2, "c", None, _row(n, rows, "new", noise))


def _lake(folder: Path, rows: int, tell: Callable[[str], None]) -> Lake:
    tell(f"writing {rows} rows and {CHANGED + CREATED} changes")
    for day, lines in ((DAY_1, _first_day(rows)), (DAY_2, _second_day(rows))):
        place = folder / "landing" / str(day)
        place.mkdir(parents=True)
        with (place / "part.jsonl").open("w") as file:
            file.writelines(f"{line}\n" for line in lines)
    sources = {
        name: lakes.source_config(
            folder / "landing",
            tables={
                TABLE: {
                    "key": ["id"],
                    "columns": {"id": "string", "created_at": "timestamp_ntz"},
                    **layout,
                }
            },
        )
        for name, layout in LAYOUTS.items()
    }
    config = parse_config(
        {
            "lake": {"warehouse": str(folder / "lake")},
            "spark": {"spark.log.level": "ERROR"},
            "start_date": DAY_1,
            "sources": sources,
        },
        folder,
    )
    return Lake(build_session(config), config)


def _bytes_read(lake: Lake) -> int:
    jvm: Any = lake.spark._jvm
    told = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/io").read_text()
    return int(dict(line.split(": ") for line in told.splitlines())["rchar"])


def _read_by(lake: Lake, action: Callable[[], Any]) -> int:
    before = _bytes_read(lake)
    action()
    return _bytes_read(lake) - before


def measure(folder: Path, tell: Callable[[str], None], rows: int) -> dict[str, Any]:
    """Bytes that a merge and a point read take, by layout."""
    lake = _lake(folder, rows, tell)
    figures: dict[str, Any] = {}
    merged, points = {}, {}
    for name in LAYOUTS:
        tell(name)
        lakes.run_all(lake, name, [DAY_1])
        # Small files of the first write, as any day leaves them, are compacted first.
        maintain_table(lake, name, TABLE)
        lakes.run_stages(lake, name, [DAY_2])
        merged[name] = _read_by(lake, partial(lakes.run_tables, lake, name, [DAY_2]))
        maintain_table(lake, name, TABLE)
        table = lake.state(name, TableName.parse(TABLE))
        lake.spark.sql(f"SELECT count(*) FROM {table} WHERE id = ''").collect()  # classes
        query = f"SELECT * FROM {table} WHERE id = '{_key(rows // 3)}'"
        points[name] = _read_by(lake, lake.spark.sql(query).collect)
        figures[f"{name}: bytes that the merge of a day reads"] = merged[name]
        figures[f"{name}: bytes that a point read reads"] = points[name]
        rows_of_name = lake.spark.table(table).count()
        assert rows_of_name == rows + CREATED, rows_of_name
    figures["merge_ratio"] = round(merged["plain"] / merged["by_day"], 1)
    figures["point_read_ratio"] = round(points["plain"] / points["by_key"], 1)
    lake.spark.stop()
    return figures


def main() -> None:
    """The figures as a table, and as a line of JSON on stdout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=300_000)
    arguments = parser.parse_args()
    asked = {"rows": arguments.rows}
    bench.run(partial(measure, **asked), asked)


if __name__ == "__main__":
    main()
