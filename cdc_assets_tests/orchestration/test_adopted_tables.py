"""Tables by pattern in Dagster: adopted from the lake when the definitions load, without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from pyspark.sql import SparkSession

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake.adopted_tables import with_adopted_tables
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.definitions import build_definitions
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.execution.resources import SparkResource
from cdc_assets.orchestration.runs.run_days import adopted_since
from cdc_assets_tests import events as ev
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import config_of, rows_of, source_config, stage_rows
from cdc_assets_tests.shared_spark import SharedSpark

DAYS = [ev.DAY, ev.DAY + timedelta(days=1)]
SOURCE = "adopted"
TABLES: dict[str, Any] = {
    "public.*": {"owners": ["team:all"]},
    "public.tmp_*": False,
    "public.orders": {"key": ["id"], "owners": ["team:orders"]},
}


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def run(lake: Lake, day: date, instance: dg.DagsterInstance) -> Any:
    SharedSpark.shared = lake
    return dg.materialize(
        build_assets(SOURCE, lake.config),
        instance=instance,
        resources={"spark": SharedSpark()},
        partition_key=str(day),
    )


@pytest.fixture(scope="module")
def landed(
    lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory, instance: dg.DagsterInstance
) -> tuple[Lake, Path]:
    """A day of three tables is made; the second day names another table and a row without key."""
    types: dict[str, Any] = {"id": "int32", "name": "string"}
    log = ev.PgLog("shop", "public", "customers", types=types)
    orders, tmp, late = (
        ev.PgLog("shop", "public", table, types=types, landing=log.landing)
        for table in ("orders", "tmp_load", "late")
    )
    log.create(id=1, name="Ann")
    orders.create(id=7, name="tea")
    tmp.create(id=1, name="x")
    log.next_day()
    log.update(id=1, name="Anna")
    late.create(id=5, name="new")
    folder = tmp_path_factory.mktemp("adopted")
    ev.write_landing(folder, log.landed)
    lake = lake_of({SOURCE: source_config(folder, tables=TABLES)})
    assert list(with_adopted_tables(lake.config).sources[SOURCE].tables) == ["public.orders"]
    run(lake, DAYS[0], instance)
    return lake, folder


def tables_of(config: Config) -> set[str]:
    keys = build_definitions(config).resolve_asset_graph().get_all_asset_keys()
    return {key.path[-1] for key in keys if len(key.path) == 3}


def test_a_table_of_a_pattern_is_an_asset_at_the_reload_after_its_first_changes(
    landed: tuple[Lake, Path], instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    lake, _ = landed
    assert tables_of(lake.config) == {"orders"}
    first = with_adopted_tables(lake.config)
    assert tables_of(first) == {"orders", "customers"}
    shop = first.sources[SOURCE]
    assert shop.tables["public.customers"].owners == ("team:all",)
    assert shop.tables["public.orders"].owners == ("team:orders",)
    assert shop.tables["public.orders"].key == ("id",)

    result = run(Lake(spark, first), DAYS[0], instance)
    assert result.success
    assert rows_of(lake, SOURCE, "public.customers", DAYS[0]) == [{"id": 1, "name": "Ann"}]
    checks = {
        e.check_name: e
        for e in result.get_asset_check_evaluations()
        if e.check_name == "tables_configured"
    }
    assert checks["tables_configured"].passed, "what a pattern excludes is no surprise"

    result = run(Lake(spark, first), DAYS[1], instance)
    assert result.success
    assert rows_of(lake, SOURCE, "public.customers", DAYS[1]) == [{"id": 1, "name": "Anna"}]
    assert tables_of(with_adopted_tables(lake.config)) == {"orders", "customers", "late"}


def test_a_table_stays_adopted_when_all_its_records_lack_the_key(
    lake_of: LakeOf, tmp_path: Path, name: str, spark: SparkSession
) -> None:
    from cdc_assets_tests.lakes import land, make_changes

    log = ev.PgLog("shop", "public", "unkeyed", types={"id": "int32"}, key=None)
    log.create(id=1)
    log.update(id=1)
    ev.write_landing(tmp_path, log.landed)
    lake = lake_of({name: source_config(tmp_path, tables={"public.*": {}})})
    land(lake, name, DAYS[:1])
    make_changes(lake, name, DAYS[:1])
    adopted = with_adopted_tables(lake.config)
    assert list(adopted.sources[name].tables) == ["public.unkeyed"]

    make_changes(Lake(spark, adopted), name, DAYS[:1])
    assert {r["reason"] for r in stage_rows(lake, name, "quarantine")} == {"missing_key"}
    assert not stage_rows(lake, name, "changes")
    assert with_adopted_tables(lake.config) == adopted


def test_definitions_adopt_tables_without_spark(landed: tuple[Lake, Path], tmp_path: Path) -> None:
    lake, folder = landed
    file = tmp_path / "cdc.yaml"
    raw = {
        "lake": {"warehouse": lake.config.lake.warehouse},
        "start_date": ev.DAY,
        "sources": {SOURCE: source_config(folder, tables=TABLES)},
    }
    file.write_text(yaml.safe_dump(raw), "utf-8")
    says = (
        "import json; from cdc_assets.definitions import defs; from pyspark import SparkContext; "
        "keys = defs.resolve_asset_graph().get_all_asset_keys(); "
        "print(json.dumps([sorted(k.path[-1] for k in keys if len(k.path) == 3), "
        "SparkContext._gateway is None]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", says],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "CDC_CONFIG": str(file)},
    )
    tables, has_no_spark = json.loads(done.stdout.splitlines()[-1])
    assert {"customers", "orders"} <= set(tables)
    assert "tmp_load" not in tables
    assert has_no_spark


def test_a_run_says_which_tables_it_has_seen_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "cdc_assets.cdc.lake.adopted_tables.seen_tables"
    before = config_of({"shop": source_config(tmp_path, tables=TABLES)}, tmp_path)
    monkeypatch.setattr(place, lambda *_: frozenset({"public.orders", "public.tmp_1", "public.a"}))
    assert adopted_since(before, ["shop"]) == ["shop.public.a"]
    assert adopted_since(with_adopted_tables(before), ["shop"]) == []


def test_a_run_has_one_list_of_tables_from_its_begin_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cdc.yaml"
    raw = {
        "start_date": ev.DAY,
        "sources": {"shop": source_config(tmp_path, tables={"public.*": {}})},
    }
    file.write_text(yaml.safe_dump(raw), "utf-8")
    seen = iter([["public.a"], ["public.a", "public.b"]])
    place = "cdc_assets.cdc.lake.adopted_tables.seen_tables"
    monkeypatch.setattr(place, lambda *_: frozenset(next(seen)))
    spark = SparkResource(config_path=str(file))
    assert list(spark.config().sources["shop"].tables) == ["public.a"]
    assert list(spark.config().sources["shop"].tables) == ["public.a"]
    spark.teardown_after_execution(dg.build_init_resource_context())
    assert list(spark.config().sources["shop"].tables) == ["public.a", "public.b"]
