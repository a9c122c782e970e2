"""Dagster as `make ui` starts it, on sample days in a folder of its own, and its GraphQL endpoint.

The sample's days are landed as the days before today: Dagster's dialogs offer the last ninety.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import yaml

from cdc_assets.cdc.spark import SHORT_RUN
from cdc_assets_tests.conftest import SPARK
from cdc_assets_tests.e2e.stack import Process, free_port, wait_for
from cdc_assets_tests.paths import REPOSITORY

SOURCES = ("inventory", "telemetry")
SAMPLE = [date(2026, 11, n) for n in (1, 2, 3, 4)]
TODAY = datetime.now(timezone.utc).date()
DAYS = [str(TODAY - timedelta(days=n)) for n in (4, 3, 2, 1)]

_MATERIALIZATIONS = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  assetMaterializations(limit: 100) { partition runId metadataEntries {
    label ... on IntMetadataEntry { intValue } ... on BoolMetadataEntry { boolValue }
    ... on TextMetadataEntry { text } ... on MarkdownMetadataEntry { mdStr } } } } } }
"""


@dataclass(frozen=True)
class Materialization:
    """A materialization of one partition; `metadata` is its entries of ints, bools and texts."""

    day: str
    run_id: str
    metadata: dict[str, Any]


def write_project(folder: Path) -> dict[str, Any]:
    """A project of its own: `cdc.yaml` with some sources of the sample, and their landed days.

    Returns what stands in `cdc.yaml`.
    """
    sample = yaml.safe_load((REPOSITORY / "cdc.yaml").read_text("utf-8"))
    sources = {name: sample["sources"][name] for name in SOURCES}
    for name, source in sources.items():
        source["landing"] = {"files": f"landing/{name}"}
        for old, new in zip(SAMPLE, DAYS, strict=True):
            shutil.copytree(
                REPOSITORY / "data/landing" / name / str(old), folder / "landing" / name / new
            )
    config = {
        "lake": {"warehouse": "warehouse"},
        # Each run is a process of its own, that makes a few days and ends.
        "spark": {**SPARK, **SHORT_RUN, "spark.driver.memory": "2g"},
        "start_date": DAYS[0],
        # Nothing is made but what a test asks for.
        "automation": {"daily_at": None, "new_files": False},
        "sources": sources,
    }
    (folder / "cdc.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    for file in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(REPOSITORY / file, folder)
    return config


@dataclass(frozen=True)
class DagsterDev:
    """A running Dagster: where it is, and what it is made of."""

    url: str
    folder: Path
    config: dict[str, Any]

    @property
    def asset_keys(self) -> list[list[str]]:
        """The keys that the configuration stands for, one by one."""
        stages = ("landing", "changes", "control", "quarantine", "lag")
        return [
            [name, *parts]
            for name, source in self.config["sources"].items()
            for parts in (
                *([stage] for stage in stages),
                # One schema and a table; the dot in the sample's one name that has one is coded.
                *(
                    table.replace('"price.list"', "price_x2E_list").split(".", 1)
                    for table in source["tables"]
                ),
            )
        ]

    @property
    def location(self) -> str:
        """The name of the one code location, which is part of some addresses."""
        workspace = self.ask(
            "{ workspaceOrError { ... on Workspace { locationEntries { name } } } }"
        )
        return str(workspace["workspaceOrError"]["locationEntries"][0]["name"])

    def ask(self, query: str, **variables: Any) -> Any:
        """The data of a GraphQL query: what Dagster has recorded, whatever its pages show."""
        request = urllib.request.Request(
            f"{self.url}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer["errors"]
        return answer["data"]

    def materializations(self, asset: list[str]) -> list[Materialization]:
        """The materializations of an asset, the newest first."""
        node = self.ask(_MATERIALIZATIONS, key={"path": asset})["assetNodeOrError"]
        return [
            Materialization(event["partition"], event["runId"], _values(event["metadataEntries"]))
            for event in node["assetMaterializations"]
        ]


def _values(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Label → value; None for entries of a type that the query does not ask for."""
    return {
        entry["label"]: next((value for name, value in entry.items() if name != "label"), None)
        for entry in entries
    }


@contextmanager
def dagster_dev(folder: Path) -> Iterator[DagsterDev]:
    """`dagster dev` with its daemon in an empty folder; it ends with all that it has started."""
    config, port = write_project(folder), free_port()
    env = {name: value for name, value in os.environ.items() if name != "CDC_WAREHOUSE"}
    env |= {"DAGSTER_HOME": str(folder), "CDC_CONFIG": str(folder / "cdc.yaml")}
    process = Process.start(
        "dagster dev",
        [
            *(sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml"),
            *("-h", "127.0.0.1", "-p", str(port)),
        ],
        folder / "dagster.log",
        env=env,
        cwd=folder,
    )
    dagster = DagsterDev(f"http://127.0.0.1:{port}", folder, config)
    try:
        wait_for("dagster dev", lambda: process.check() and _has_loaded(dagster), seconds=180)
        yield dagster
    finally:
        process.stop()
        # A run's own process outlives the one that launched it.
        with suppress(ProcessLookupError):
            os.killpg(process.popen.pid, signal.SIGKILL)


def _has_loaded(dagster: DagsterDev) -> bool:
    return bool(dagster.ask("{ assetNodes { id } }")["assetNodes"])
