"""Makes Java's class data archive of this environment: ``python -m cdc_assets.warm``.

It runs a few changes through all stages in a temporary lake and archives the classes that Java has
loaded, which later sessions load faster. The archive fits this environment's Java and jars only.
"""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from cdc_assets.cdc.config import parse_config
from cdc_assets.cdc.java import class_archive
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import SHORT_RUN, build_session
from cdc_assets.cdc.stages.source import source_stages

_DAYS = [date(2026, 1, 1), date(2026, 1, 2)]
_TABLE = "public.orders"
_OPTIONS = "spark.driver.extraJavaOptions"


def main() -> int:
    """Make the archive; returns the exit code."""
    archive = class_archive()
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        _run_stages(Path(folder), f'{SHORT_RUN[_OPTIONS]} "-XX:ArchiveClassesAtExit={archive}"')
        gateway: Any = SparkContext._gateway
        # Java writes the archive when it ends, and ends when its stdin is closed.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=300)
    return 0 if archive.is_file() else 1


def _run_stages(folder: Path, java_options: str) -> None:
    _write_landing(folder / "landed")
    config = parse_config(
        {
            "spark": {**SHORT_RUN, _OPTIONS: java_options, "memory": "1g", "master": "local[2]"},
            "lake": {"warehouse": str(folder / "lake")},
            "start_date": _DAYS[0],
            "sources": {
                "shop": {
                    "format": "debezium",
                    "landing": {"files": str(folder / "landed")},
                    "tables": {_TABLE: {"key": ["id"], "columns": {"id": "bigint"}}},
                }
            },
        },
        folder,
    )
    lake = Lake(build_session(config), config)
    for stage in source_stages(config, "shop"):
        stage.make(lake, _DAYS)
    lake.spark.stop()


def _write_landing(folder: Path) -> None:
    for number, day in enumerate(_DAYS):
        lines = []
        for offset, op in enumerate("cud"):
            row = {"id": offset, "name": f"order {offset}"}
            source = {"connector": "postgresql", "schema": "public", "table": "orders"}
            event = {
                "op": op,
                "before": row if op == "d" else None,
                "after": None if op == "d" else row,
                "source": {**source, "lsn": 10 * number + offset, "ts_ms": 1},
                "ts_ms": 2,
            }
            place = {"topic": "shop.public.orders", "partition": 0, "offset": 10 * number + offset}
            key, payload = json.dumps({"id": offset}), json.dumps(event)
            lines.append(json.dumps({**place, "ts": 1, "key": key, "payload": payload}))
        (folder / str(day)).mkdir(parents=True)
        (folder / str(day) / "part-0.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
