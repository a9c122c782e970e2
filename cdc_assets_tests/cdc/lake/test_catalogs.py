"""Catalogs with branches and tags of tables, in which days are, and without; names in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.errors import LakeError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.maintenance import maintain_table
from cdc_assets.cdc.lake.metadata import day_commits, table_state
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.rows import read_table
from cdc_assets.cdc.lake.tables import find_table, own_table
from cdc_assets.cdc.names import TableName, quote
from cdc_assets.cdc.spark import catalog_conf
from cdc_assets.cli.doctor.findings import Status
from cdc_assets.cli.doctor.lake import references
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.rest_catalog import rest_catalog

DAYS = [ev.DAY, ev.DAY + timedelta(days=1)]
TABLE = "public.t"

RestLake = Callable[[bool], Lake]


def two_days(table: str) -> ev.PgLog:
    """A row on each day."""
    log = ev.PgLog("shop", "public", table, types={"id": "int32"})
    log.create(id=1)
    log.next_day()
    log.create(id=2)
    return log


@pytest.fixture
def rest_lake(spark: SparkSession, tmp_path: Path) -> Iterator[RestLake]:
    """A lake in a REST catalog of its own, in a session of its own."""
    ev.write_landing(tmp_path / "landed", two_days("t").landed)
    source = lakes.source_config(tmp_path / "landed", tables={TABLE: {"key": ["id"]}})

    with ExitStack() as stack:

        def make(keeps_references: bool) -> Lake:
            folder = tmp_path / f"lake_{keeps_references}"
            uri = stack.enter_context(rest_catalog(folder, keeps_references))
            io = "org.apache.iceberg.hadoop.HadoopFileIO"
            place: dict[str, Any] = {
                "warehouse": f"file:{folder}",
                "catalog": {"type": "rest", "uri": uri, "io-impl": io},
            }
            config = lakes.config_of({"s": source}, folder, lake=place)
            settings = {**spark.conf.getAll}
            session: Any = spark
            twin = SparkSession(spark.sparkContext, session._jsparkSession.newSession(), settings)
            for name in list(settings):
                if name.startswith("spark.sql.catalog.lake"):
                    twin.conf.unset(name)
            for name, value in catalog_conf(config).items():
                twin.conf.set(name, value)
            return Lake(twin, config)

        yield make


def test_a_catalog_that_keeps_references_has_days(rest_lake: RestLake) -> None:
    lake = rest_lake(True)
    lakes.run_all(lake, "s", DAYS, lag=True)
    assert lakes.rows_of(lake, "s", TABLE, DAYS[0]) == [{"id": 1}]
    assert len(lakes.rows_of(lake, "s", TABLE, DAYS[1])) == 2
    found = references(lake)
    assert (found.status, found.found) == (
        Status.ok,
        "the catalog keeps branches and tags of tables",
    )


def test_a_catalog_that_drops_references_is_named_before_a_day_is_lost(rest_lake: RestLake) -> None:
    lake = rest_lake(False)
    found = references(lake)
    assert found.status is Status.problem
    assert "does not keep branches and tags" in found.found + found.remedy
    lakes.run_stages(lake, "s", DAYS[:1], lag=True)
    _, errors = lakes.run_tables(lake, "s", DAYS[:1])
    error = errors[TABLE, DAYS[0]]
    assert isinstance(error, LakeError)
    assert "the catalog (rest) does not keep branches and tags" in str(error)
    assert "lake.catalog" in str(error)


def test_tags_and_branches_of_others_are_left_alone(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    ev.write_landing(tmp_path, two_days("t").landed)
    lake = lake_of({name: lakes.source_config(tmp_path, tables={TABLE: {"key": ["id"]}})})
    lakes.run_all(lake, name, DAYS[:1], lag=True)
    own = {"prod-final": "TAG", "ld_of_others": "BRANCH", "2026-13-99": "TAG"}
    for identifier in (lake.state(name, TableName.parse(TABLE)), lake.stage(name, "changes")):
        for reference, kind in own.items():
            lake.spark.sql(f"ALTER TABLE {identifier} CREATE {kind} {quote(reference)}")
    lakes.run_all(lake, name, DAYS, force=True, lag=True)
    assert len(lakes.rows_of(lake, name, TABLE, DAYS[1])) == 2
    table = open_table(lake.config, find_table(lake.config, TABLE, name))
    assert sorted(table_state(table).tags) == DAYS
    later = day_commits(open_table(lake.config, own_table(name, "changes")))
    assert sorted(later) == DAYS
    for of in (TABLE, "changes"):
        maintain_table(lake, name, of, at=datetime.now(timezone.utc) + timedelta(hours=40))
    assert own.keys() <= lakes.refs_of(lake, name, TABLE).keys()
    state = lake.read_state(lake.stage(name, "changes"))
    assert state is not None
    assert own.keys() <= state.refs.keys()


def test_tables_that_an_earlier_version_named_are_found(
    lake_of: LakeOf, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cdc_assets.cdc import places

    table = 'public."price.list"'
    ev.write_landing(tmp_path, two_days("price.list").landed)
    lake = lake_of({name: lakes.source_config(tmp_path, tables={table: {"key": ["id"]}})})
    with monkeypatch.context() as patch:
        patch.setattr(places, "escape", places.escape_in_upper_case)
        lakes.run_all(lake, name, DAYS[:1], lag=True)
    lakes.run_all(lake, name, DAYS, lag=True)
    assert "%2Elist" in lake.state(name, TableName.parse(table))
    found = read_table(lake.config, name, table)
    assert sorted(found["id"].to_pylist()) == [1, 2]
    fresh = lake_of({f"{name}_new": lakes.source_config(tmp_path, tables={table: {"key": ["id"]}})})
    lakes.run_all(fresh, f"{name}_new", DAYS[:1], lag=True)
    assert "%2elist" in fresh.state(f"{name}_new", TableName.parse(table))
