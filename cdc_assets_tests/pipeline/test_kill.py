"""``kill -9`` in the middle of any stage, then the same again: the lake of an unhurt run.

Of the run's process with its JVM, and of Spark's executors where they are processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.catalog import load_catalog

from cdc_assets.cdc.spark import SHORT_RUN
from cdc_assets_tests import events as ev
from cdc_assets_tests.killed_run import DAYS
from cdc_assets_tests.lakes import source_config
from cdc_assets_tests.paths import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.long]

# Which announcement of which stage to strike after, and how many seconds later.
STRIKES = [
    ("landing", 1, 1.0),
    ("changes", 1, 0.5),
    ("changes", 1, 5.0),
    ("table", 1, 0.7),
    ("table", 2, 1.2),
    ("table", 4, 0.4),
]


def start(config: Path, *arguments: str) -> subprocess.Popen[str]:
    """The run as a process group of its own, so that its JVM dies with it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CDC_WAREHOUSE",))}
    return subprocess.Popen(
        [sys.executable, "-m", "cdc_assets_tests.killed_run", str(config), *arguments],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def kill(run: subprocess.Popen[str]) -> None:
    """SIGKILL for Python and its JVM, unless the run ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)


def strike(config: Path, stage: str, times: int, after: float) -> bool:
    """Start a run and kill it; false where it had ended before."""
    with start(config) as run:
        assert run.stdout is not None
        seen = 0
        timer: threading.Timer | None = None
        for line in run.stdout:
            seen += line.strip() == stage
            if seen == times and timer is None:
                timer = threading.Timer(after, kill, (run,))
                timer.start()
        if timer is not None:
            timer.cancel()
        return run.wait() == -signal.SIGKILL


def contents(warehouse: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, of state tables at every tag; order plays no part."""
    catalog = load_catalog(
        "lake", type="sql", uri=f"sqlite:///{warehouse}/catalog.db", init_catalog_tables="false"
    )
    found = {}
    spaces = [("killed",), ("killed", "public")]
    for identifier in (name for space in spaces for name in catalog.list_tables(space)):
        table = catalog.load_table(identifier)
        tags = [name for name, ref in table.metadata.refs.items() if ref.snapshot_ref_type == "tag"]
        for tag in [None, *tags]:
            snapshot = table.snapshot_by_name(tag) if tag else table.current_snapshot()
            assert snapshot is not None
            rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
            found[f"{'.'.join(identifier)}@{tag}"] = sorted(rows, key=repr)
        assert [name for name in table.metadata.refs if name.startswith("ld_")] == []
    return found


def last_word(config: Path, *arguments: str) -> str:
    """What a run says at its end; a failure's reason."""
    with start(config, *arguments) as run:
        assert run.stdout is not None
        return run.stdout.read().splitlines()[-1]


@dataclass(frozen=True)
class Unhurt:
    """Landed files, and the lake that a run made of them which nothing disturbed."""

    files: Path
    warehouse: Path


@pytest.fixture(scope="module")
def unhurt(tmp_path_factory: pytest.TempPathFactory) -> Unhurt:
    folder = tmp_path_factory.mktemp("unhurt")
    write_landing(folder / "files")
    found = Unhurt(folder / "files", folder / "lake")
    assert last_word(write_config(found.files, found.warehouse)) == "end"
    return found


def write_landing(files: Path) -> None:
    types = {"id": "int32", "name": "string"}
    log = ev.PgLog("killed", "public", "first", types=types)
    second = ev.PgLog("killed", "public", "second", types=types, landing=log.landing)
    for day in range(3):
        for n in range(40):
            log.create(id=100 * day + n, name=f"row {n}")
            second.create(id=100 * day + n, name=f"row {n}")
        log.update(id=100 * day, name="changed")
        log.delete(id=100 * day + 1, _tombstone=True)
        second.change_key({"id": 100 * day}, id=1000 + day, name="moved")
        log.landing.put(ev.raw(b"{'no': 'json'}", topic="killed.public.first"))
        log.next_day()
    ev.write_landing(files, log.landed)


def write_config(files: Path, warehouse: Path, **spark: str) -> Path:
    """The configuration of a lake of these files, beside it."""
    raw = {
        "lake": {"warehouse": str(warehouse)},
        "spark": {"master": "local[2]", "memory": "1g", **SHORT_RUN, **spark},
        "start_date": DAYS[0],
        "sources": {
            "killed": source_config(
                files, tables={"public.first": {"key": ["id"]}, "public.second": {}}
            )
        },
    }
    config = warehouse.with_suffix(".yaml")
    config.write_text(yaml.safe_dump(raw))
    return config


def assert_same_lakes(unhurt: Unhurt, hurt: Path) -> None:
    expected, found = contents(unhurt.warehouse), contents(hurt)
    assert expected.keys() == found.keys()
    for table in expected:
        assert found[table] == expected[table], table
    assert len(expected["killed.public.first@2026-11-06"]) == 3 * 39


def test_a_killed_run_that_is_run_again_leaves_the_lake_of_one_never_killed(
    unhurt: Unhurt, tmp_path: Path
) -> None:
    hurt = write_config(unhurt.files, tmp_path / "lake")
    killed = [strike(hurt, *where) for where in STRIKES]
    assert all(killed[:4])
    assert last_word(hurt) == "end"
    assert_same_lakes(unhurt, tmp_path / "lake")


def test_a_run_that_lost_its_executors_is_known_as_such_and_goes_on_when_run_again(
    unhurt: Unhurt, tmp_path: Path
) -> None:
    """On executors in processes of their own, as on a cluster; the rows they keep die with them."""
    executors = {
        "spark.executor.memory": "1g",
        "spark.executor.extraJavaOptions": SHORT_RUN["spark.driver.extraJavaOptions"],
    }
    cluster = {"master": "local-cluster[1,1,1024]", **executors}
    hurt = write_config(unhurt.files, tmp_path / "lake", **cluster)
    assert last_word(hurt, "3") == "lost"
    assert last_word(hurt) == "end"
    assert_same_lakes(unhurt, tmp_path / "lake")
