"""A lake whose catalog is a server, by configuration alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_assets.cdc.spark import SHORT_RUN
from cdc_assets_tests import events as ev
from cdc_assets_tests.e2e.stack import JARS, Postgres
from cdc_assets_tests.lakes import source_config
from cdc_assets_tests.paths import REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_days_are_made_and_read_with_a_catalog_in_postgresql(tmp_path: Path) -> None:
    log = ev.PgLog("shop", "public", "customers", types={"id": "int32", "name": "string"})
    log.create(id=1, name="Ann")
    log.next_day()
    log.update(id=1, name="Anna")
    ev.write_landing(tmp_path / "landed", log.landed)
    (driver,) = JARS.glob("postgresql-*.jar")

    said: list[str] = []  # by each command on stderr

    def cli(*arguments: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CDC_")}
        environment |= {"DAGSTER_HOME": str(tmp_path), "PG_PASSWORD": "b0ok%@ keeper"}
        done = subprocess.run(
            [sys.executable, "-m", "cdc_assets.cli.app", *arguments],
            env=environment | {"CDC_CONFIG": str(tmp_path / "cdc.yaml")},
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert environment["PG_PASSWORD"] not in done.stdout + done.stderr
        said.append(done.stderr)
        return done.stdout

    def rows(day: str) -> list[dict[str, Any]]:
        shown = cli("show", "shop.public.customers", "--as-of", day, "--format", "json")
        return [json.loads(line) for line in shown.splitlines()]

    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with Postgres(tmp_path) as postgres:
        with postgres.connect() as admin:
            admin.execute("CREATE ROLE keeper LOGIN PASSWORD 'b0ok%@ keeper'")
            admin.execute("CREATE DATABASE books OWNER keeper")
        raw = {
            "lake": {
                "warehouse": str(tmp_path / "warehouse"),
                "namespaces": "flat",
                "catalog": {
                    "type": "jdbc",
                    "uri": f"jdbc:postgresql://127.0.0.1:{postgres.port}/books",
                    "jdbc.user": "keeper",
                    "jdbc.password": "${PG_PASSWORD}",
                },
            },
            "spark": {"master": "local[1]", "memory": "1g", "jars": str(driver), **SHORT_RUN},
            "start_date": ev.DAY,
            "sources": {
                "shop": source_config(tmp_path / "landed", tables={"public.customers": {}})
            },
        }
        (tmp_path / "cdc.yaml").write_text(yaml.safe_dump(raw))
        first, second = sorted(log.landed)
        cli("run", "--from", str(first), "--to", str(second))
        assert [row["name"] for row in rows(str(first))] == ["Ann"]
        assert [row["name"] for row in rows(str(second))] == ["Anna"]
        cli("run", "--from", str(first), "--to", str(second))
        assert "1 up to date" in said[-1]
        assert "starting Spark" not in said[-1]
        assert "catalog: jdbc: " in cli("doctor", "--quick")
        cli("maintain")
        assert [row["name"] for row in rows(str(first))] == ["Ann"]
