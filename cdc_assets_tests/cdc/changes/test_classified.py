"""Events are classified without a lake as the stages classify them, and as the model does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.classified import classified
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing
from cdc_assets_tests.model import Landed, Record, classify

DAYS = [ev.DAY + timedelta(days=n) for n in range(2)]
TABLE = ("shop", "customers")
# Of each format: a row's insert, update and delete, and its table.
BUILDERS: dict[str, tuple[Callable[..., Record], ...]] = {
    "debezium": (ev.created, ev.updated, ev.deleted),
    "lindorm": (ev.lindorm_created, ev.lindorm_updated, ev.lindorm_deleted),
    "dataworks": (ev.dataworks_inserted, ev.dataworks_updated, ev.dataworks_deleted),
    "maxwell": (ev.maxwell_inserted, ev.maxwell_updated, ev.maxwell_deleted),
    "ogg": (ev.ogg_inserted, ev.ogg_updated, ev.ogg_deleted),
}


def _told(format: str) -> Landed:
    """Two days with rows, keys of another form, and records that can't be read."""
    landing = Landing(ev.DAY)
    created, updated, deleted = BUILDERS[format]

    def put(build: Callable[..., Record], *images: Any) -> Record:
        table: Any = ".".join(TABLE) if format == "ogg" else TABLE
        return landing.put(build(*images, table=table, timestamp_ms=landing.tick()))

    for row_id in range(3):
        first = put(created, {"id": row_id, "v": "a"})
    landing.add(ev.malformed_line("{x"))
    landing.next_day()
    old, new = {"id": 1, "v": "a"}, {"id": 1, "v": "b"}
    put(updated, *((new, old) if format == "debezium" else (old, new)))
    gone = put(deleted, {"id": 2, "v": "a"})
    landing.put(replace(gone, value=None))
    put(created, {"id": "x", "v": "c"})
    landing.put(ev.raw(b"[]", topic=str(first.topic)))
    landing.put(replace(first, value=None))
    return landing.landed


@pytest.mark.slow
@pytest.mark.parametrize("format", BUILDERS)
def test_a_lake_and_the_model_agree(
    spark: SparkSession, lake_of: LakeOf, tmp_path: Path, name: str, format: str
) -> None:
    landed = _told(format)
    options = {"tables": {".".join(TABLE): {"key": ["id"]}}}
    found = asdict(classified(spark, landed, format, **options))

    lake = lake_of({name: lakes.write_source(tmp_path, landed, format, **options)})
    lakes.land(lake, name, DAYS)
    lakes.make_changes(lake, name, DAYS)
    for table, rows in found.items():
        in_lake = lakes.stage_rows(lake, name, table)
        if table == "quarantine":  # the landed file's path
            rows, in_lake = ([{**r, "file": None} for r in of] for of in (rows, in_lake))
        lakes.assert_same_rows(rows, in_lake, table)
        assert rows or table == "control", table

    expected = classify({"format": format, **options}, landed)
    lakes.assert_same_rows(lakes.destinations_in(found), lakes.destinations_expected(expected))
    lakes.assert_same_rows(lakes.changes_in(found["changes"]), lakes.changes_expected(expected))


def test_excluded_and_hashed_columns_are_not_in_changes(spark: SparkSession) -> None:
    landed = {ev.DAY: [ev.created({"id": 1, "name": "Ann", "card": "4111"}, lsn=1)]}
    tables = {"public.customers": {"key": ["id"], "exclude": ["card"], "hash": ["name"]}}
    [row] = classified(spark, landed, hash_salt="x" * 32, tables=tables).changes
    assert "4111" not in row["after"]
    assert "Ann" not in row["after"]
