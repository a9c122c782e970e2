"""Is a day made, of what is there now: asked by runs, schedule, sensor, checks and records."""

from __future__ import annotations

import json
import os
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.metadata import PyIcebergMetadata
from cdc_assets.cdc.landing.file_landing import FileLanding
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.orchestration.assets.keys import asset_keys
from cdc_assets.orchestration.automation.catch_up import catch_up_runs
from cdc_assets.orchestration.automation.health import MADE, health_findings
from cdc_assets.orchestration.automation.sensors import days_to_request
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import land

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]
TABLE = "public.t"
TABLES = {TABLE: {"key": ["id"]}}
LATER = datetime.now(timezone.utc) + timedelta(hours=2)


def write(folder: Path, day: date, file: str, ids: list[int], first: int = 0) -> Path:
    """A landed file with a record for each id, written ten minutes ago."""
    records = [
        ev.created({"id": n}, offset=first + i, table=("public", "t"), types={"id": "int32"})
        for i, n in enumerate(ids)
    ]
    path = folder / str(day) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(ev.kcat_line(record) + "\n" for record in records), "utf-8")
    then = datetime.now().timestamp() - 600
    os.utime(path, (then, then))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, day in enumerate(DAYS):
        write(tmp_path / "landed", day, "a.jsonl", [number], first=10 * number)
    return tmp_path / "landed"


@pytest.fixture
def lake(lake_of: LakeOf, folder: Path, name: str) -> Lake:
    lake = lake_of({name: lakes.source_config(folder, tables=TABLES)})
    lakes.run_all(lake, name, DAYS, lag=True)
    return lake


def requested(lake: Lake, name: str, folder: Path) -> Any:
    return days_to_request(FileLanding(lake.config, name), LATER.timestamp())


def _to_make(lake: Lake, name: str) -> list[date]:
    return ChangesStage(lake.config, name).stale(PyIcebergMetadata(lake.config), DAYS)


def test_a_day_whose_late_file_landed_and_whose_changes_failed_is_asked_for_until_they_are_made(
    lake: Lake, folder: Path, name: str
) -> None:
    assert requested(lake, name, folder) is None
    assert catch_up_runs(lake.config, name, DAYS[-1]) == []
    write(folder, DAYS[1], "late.jsonl", [77], first=15)
    land(lake, name, [DAYS[1]])  # the registry is away, or the disk is full: nothing follows

    found = requested(lake, name, folder)
    assert (found.first, found.last, found.changed) == (DAYS[1], DAYS[2], (DAYS[1], DAYS[2]))
    (run,) = catch_up_runs(lake.config, name, DAYS[-1])
    assert (run.first, run.last) == (DAYS[1], DAYS[2])
    assert set(run.assets) == set(asset_keys(name, lake.config)) - {
        key for key in asset_keys(name, lake.config) if key.path[-1] == "t"
    }
    assert _to_make(lake, name) == DAYS[1:]
    (finding,) = (f for f in health_findings(lake.config, name, LATER) if f.name == MADE.name)
    assert not finding.passed
    assert f"--from {DAYS[1]}" in (finding.description or "")
    # Within the hour a run may still be under way.
    (young,) = (f for f in health_findings(lake.config, name) if f.name == MADE.name)
    assert young.passed

    lakes.run_all(lake, name, DAYS, lag=True)
    assert requested(lake, name, folder) is None
    assert catch_up_runs(lake.config, name, DAYS[-1]) == []
    assert _to_make(lake, name) == []
    (mended,) = (f for f in health_findings(lake.config, name, LATER) if f.name == MADE.name)
    assert mended.passed
    assert {"id": 77} in lakes.rows_of(lake, name, TABLE, DAYS[-1])


def test_a_day_that_landed_and_was_never_made_is_asked_for(
    lake_of: LakeOf, folder: Path, name: str
) -> None:
    lake = lake_of({name: lakes.source_config(folder, tables=TABLES)})
    land(lake, name, DAYS)
    found = requested(lake, name, folder)
    assert (found.first, found.last) == (DAYS[0], DAYS[2])


def test_a_table_whose_day_before_was_made_again_alone_is_asked_for(lake: Lake, name: str) -> None:
    lakes.run_tables(lake, name, DAYS[:1], force=True)
    (run,) = catch_up_runs(lake.config, name, DAYS[-1])
    assert (run.first, run.last) == (DAYS[1], DAYS[2])
    lakes.run_tables(lake, name, DAYS)
    assert catch_up_runs(lake.config, name, DAYS[-1]) == []


# -- files that have less than before ------------------------------------------------------------


def test_a_file_with_fewer_records_than_it_landed_with_is_refused_until_it_is_given_up_or_mended(
    lake: Lake, folder: Path, name: str
) -> None:
    write(folder, DAYS[1], "a.jsonl", [1, 2, 3], first=10)
    lakes.run_all(lake, name, DAYS, lag=True)
    write(folder, DAYS[1], "a.jsonl", [1], first=10)
    write(folder, DAYS[1], "b.jsonl", [4, 5, 6], first=20)  # the day has more than before
    with pytest.raises(LandingError) as raised:
        land(lake, name, DAYS)
    assert f"{DAYS[1]}/a.jsonl: 3 landed, 1 left" in str(raised.value)
    assert "--allow-loss" in str(raised.value)
    assert len(lakes.stage_rows(lake, name, "landing", [DAYS[1]])) == 3

    land(lake, name, DAYS, allow_loss=True)
    assert len(lakes.stage_rows(lake, name, "landing", [DAYS[1]])) == 4
    (given_up,) = lakes.landing_found(lake, name, [DAYS[1]])[DAYS[1]]
    assert "a.jsonl: 2 of 3 records were given up" in str(given_up.values["examples"])
    # It stays given up when the day lands again, and is over when the file has its records.
    land(lake, name, DAYS, force=True)
    (given_up,) = lakes.landing_found(lake, name, [DAYS[1]])[DAYS[1]]
    assert "a.jsonl: 2 of 3 records were given up" in str(given_up.values["examples"])
    write(folder, DAYS[1], "a.jsonl", [1, 2, 3], first=10)
    land(lake, name, DAYS)
    (mended,) = lakes.landing_found(lake, name, [DAYS[1]])[DAYS[1]]
    assert "given up" not in str(mended.values.get("examples"))


def test_a_file_that_is_gone_is_refused_by_its_name(lake: Lake, folder: Path, name: str) -> None:
    write(folder, DAYS[0], "b.jsonl", [7], first=5)
    (folder / str(DAYS[0]) / "a.jsonl").unlink()
    with pytest.raises(LandingError, match=f"{DAYS[0]}/a.jsonl: 1 landed, none left"):
        land(lake, name, DAYS)
    assert len(lakes.stage_rows(lake, name, "landing", [DAYS[0]])) == 1


# -- folders that hold no day --------------------------------------------------------------------


def test_a_folder_with_entries_and_no_day_is_an_error_that_shows_them(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    """As a sink of Kafka Connect leaves it."""
    folder = tmp_path / "landed"
    (folder / "topics" / "shop" / "year=2026").mkdir(parents=True)
    (folder / "topics" / "shop" / "year=2026" / "x.json").write_text("{}\n")
    lake = lake_of({name: lakes.source_config(folder, tables=TABLES)})
    with pytest.raises(LandingError, match="has no folder of a day, but topics; expected folders"):
        land(lake, name, DAYS)
    with pytest.raises(LandingError, match="has no folder of a day, but topics"):
        requested(lake, name, folder)
    assert lake.day_commits(name, "landing") == {}


def test_an_empty_folder_makes_empty_days(lake_of: LakeOf, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "landed"
    (folder / "_temporary").mkdir(parents=True)
    lake = lake_of({name: lakes.source_config(folder, tables=TABLES)})
    assert [day.files for day in land(lake, name, DAYS[:1])] == [0]


# -- schemas of records that are gone ------------------------------------------------------------


def test_a_schema_that_no_record_has_any_more_is_gone_with_it(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    """The same landing gives the same rows, also to a table made anew."""
    kinds = {"id": "int32", "wrong": "string"}
    folders = [tmp_path / "corrected", tmp_path / "straight"]
    for folder in folders:
        write(folder, DAYS[0], "a.jsonl", [1])
    wrong = ev.created({"id": 1, "wrong": "x"}, offset=0, table=("public", "t"), types=kinds)
    first = folders[0] / str(DAYS[0]) / "a.jsonl"
    text = first.read_text("utf-8")
    first.write_text(ev.kcat_line(wrong) + "\n", "utf-8")
    names = [f"{name}_{folder.name}" for folder in folders]
    configs = {
        n: lakes.source_config(f, tables=TABLES) for n, f in zip(names, folders, strict=True)
    }
    lake = lake_of(configs)
    lakes.run_all(lake, names[0], DAYS[:1], lag=True)
    first.write_text(text, "utf-8")
    os.utime(first, (datetime.now().timestamp() + 5,) * 2)
    for one in names:
        lakes.run_stages(lake, one, DAYS[:1], lag=True)
    schemas = [
        [(r["table_name"], json.loads(r["schema"])) for r in lakes.stage_rows(lake, one, "schemas")]
        for one in names
    ]
    assert schemas[0] == schemas[1]
    state = lake.state(names[0], TableName.parse(TABLE))
    lake.spark.sql(f"DROP TABLE {state}")
    for one in names:
        lakes.run_tables(lake, one, DAYS[:1], force=True)
    rows = [lakes.rows_of(lake, one, TABLE, DAYS[0]) for one in names]
    assert rows[0] == rows[1] == [{"id": 1}]


def test_a_schema_that_a_later_day_has_too_begins_there(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    kinds = {"id": "int32", "v": "string"}
    lines = [
        ev.kcat_line(ev.created({"id": n, "v": "x"}, offset=n, table=("public", "t"), types=kinds))
        for n in range(2)
    ]
    for day, line in zip(DAYS[:2], lines, strict=True):
        path = write(tmp_path, day, "a.jsonl", [])
        path.write_text(line + "\n", "utf-8")
    lake = lake_of({name: lakes.source_config(tmp_path, tables=TABLES)})
    lakes.run_stages(lake, name, DAYS[:2], lag=True)
    (row,) = lakes.stage_rows(lake, name, "schemas")
    assert row["first_landed"] == DAYS[0]
    other = ev.created({"id": 0}, offset=0, table=("public", "t"), types={"id": "int32"})
    (tmp_path / str(DAYS[0]) / "a.jsonl").write_text(ev.kcat_line(other) + "\n", "utf-8")
    lakes.run_stages(lake, name, DAYS[:1], lag=True)
    found = {
        len(json.loads(r["schema"])["fields"][0]["fields"]): r["first_landed"]
        for r in lakes.stage_rows(lake, name, "schemas")
    }
    assert found == {1: DAYS[0], 2: DAYS[1]}
