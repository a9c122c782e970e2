"""The lake's metadata, as Spark's lake and PyIceberg read it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.lake.metadata import LakeMetadata, PyIcebergMetadata
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf

DAYS = [ev.DAY, ev.DAY + timedelta(days=1)]
TABLE, LATER = "public.t", "public.later"


def in_pyicebergs_words(state: TableState | None) -> TableState | None:
    """PyIceberg gives a summary without its operation."""
    if state is None:
        return None
    snapshots = {
        s.id: replace(s, summary={k: v for k, v in s.summary.items() if k != "operation"})
        for s in state.snapshots.values()
    }
    return replace(state, snapshots=snapshots)


def test_spark_and_pyiceberg_say_the_same(lake_of: LakeOf, tmp_path: Path, name: str) -> None:
    log = ev.PgLog("shop", "public", "t", types={"id": "int32"})
    log.create(id=1)
    log.next_day()
    log.create(id=2)
    ev.write_landing(tmp_path, log.landed)
    tables = {TABLE: {"key": ["id"]}, LATER: {"key": ["id"]}}
    lake = lake_of({name: lakes.source_config(tmp_path, tables=tables)})
    lakes.run_stages(lake, name, DAYS)
    lakes.run_tables(lake, name, DAYS, [TABLE])

    spark: LakeMetadata = lake
    without_spark: LakeMetadata = PyIcebergMetadata(lake.config)
    for stage in ("landing", "changes", "quarantine", "facts", "lag", "epochs"):
        commits = spark.day_commits(name, stage)
        assert without_spark.day_commits(name, stage) == commits
        assert without_spark.day_commits(name, stage).head == commits.head
    assert sorted(without_spark.day_commits(name, "changes")) == DAYS
    for table in (TABLE, LATER):
        expected = in_pyicebergs_words(spark.table_state(name, table))
        assert without_spark.table_state(name, table) == expected
    assert without_spark.table_state(name, LATER) is None


def test_what_no_run_has_made_is_empty(tmp_path: Path) -> None:
    source = lakes.source_config(tmp_path, tables={TABLE: {"key": ["id"]}})
    metadata = PyIcebergMetadata(lakes.config_of({"s": source}, tmp_path / "warehouse"))
    assert metadata.day_commits("s", "landing") == {}
    assert metadata.day_commits("s", "landing").head is None
    assert metadata.table_state("s", TABLE) is None
