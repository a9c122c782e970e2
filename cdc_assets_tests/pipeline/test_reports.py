"""Problems that users of other tools reported: each case's tables are right on every day.

A case is a folder of ``cases/reports``: `cdc.yaml`, what landed, and `expected.json` with the rows
of every table by day and how many events reached each destination.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.config import Config, load_config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import catalog_conf
from cdc_assets_tests import lakes
from cdc_assets_tests.paths import CASES

REPORTS = CASES / "reports"
NAMES = (
    "canal-enum-set-numbers",
    "canal-es-goes-back",
    "canal-type-init",
    "date-to-datetime",
    "mysql-compressed-transaction",
    "mysql-drop-and-create",
    "mysql-failover",
    "oracle-key-shift",
    "oracle-rs-id",
    "placeholder-as-hex",
    "schemaless-microseconds",
    "sqlserver-two-databases",
    "mongodb-id-two-forms",
    "mongodb-infinity",
    "ticdc-handle-key-only",
    "ticdc-types-without-parameters",
    "tinyint-becomes-boolean",
    "toast-array-replica-full",
    "yugabytedb-value-set",
)

pytestmark = [pytest.mark.slow, pytest.mark.cases]


def _lake(spark: SparkSession, config: Config) -> Lake:
    """The lake of a configuration, in a session with a catalog of its own."""
    Path(config.lake.warehouse).mkdir(parents=True)
    settings = {**spark.conf.getAll, **catalog_conf(config)}
    session = SparkSession(spark.sparkContext, spark._jsparkSession.newSession(), settings)
    return Lake(session, config)


def _landed_days(landing: Path) -> list[date]:
    return lakes.days_of(date.fromisoformat(folder.name) for folder in landing.iterdir())


def _json_value(value: Any) -> Any:
    """A column's value as `expected.json` writes it."""
    if isinstance(value, dict):
        return {name: _json_value(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(member) for member in value]
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else value


def _differences(lake: Lake, source: str, own: dict[str, Any], days: list[date]) -> list[str]:
    """What differs from the rows of each day; of some days is said what a row never has."""
    found, never = [], own.get("never", [])
    later = own.get("later", {})  # what holds since columns take on other types
    for table, of_days in own["tables"].items():
        expected = {**of_days, **later.get(table, {})}
        for day in days:
            rows = [_json_value(row) for row in lakes.rows_of(lake, source, table, day)]
            wrong = [n for n in never if (n["table"], n["day"]) == (table, str(day))]
            for one in wrong:
                of_row = {**one["where"], one["column"]: one["value"]}
                if any(of_row.items() <= row.items() for row in rows):
                    found.append(f"{source}, {table} on {day} has {of_row}")
            if wrong and str(day) not in expected:
                continue
            if difference := lakes.difference_of(rows, expected.get(str(day), [])):
                found.append(f"{source}, {table} on {day}\n{difference}")
    return found


def _counts(lake: Lake, source: str) -> dict[str, int]:
    destinations = ("changes", "control", "quarantine")
    return {name: len(lakes.stage_rows(lake, source, name)) for name in destinations}


@pytest.mark.parametrize("name", NAMES)
def test_a_reported_case_has_the_right_rows_on_every_day(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    expected = json.loads((REPORTS / name / "expected.json").read_text("utf-8"))
    monkeypatch.setenv("CDC_WAREHOUSE", str(tmp_path / "lake"))
    lake = _lake(spark, load_config(REPORTS / name / "cdc.yaml"))
    days = _landed_days(REPORTS / name / "landing")
    # The tables of the first source, and where the case has a second one, of that.
    listed = [expected, *([expected["second"]] if "second" in expected else [])]
    found: list[str] = []
    for source, own in zip(lake.config.sources, listed, strict=True):
        lakes.run_all(lake, source, days)
        assert set(own["tables"]) <= set(lake.config.source(source).tables)
        found += _differences(lake, source, own, days)
    counts = _counts(lake, next(iter(lake.config.sources)))
    if counts != expected["counts"]:
        found.append(f"events got {counts}, expected {expected['counts']}")
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "name",
    ["readd", "rename"],
)
def test_columns_that_changed_at_the_source_lose_no_value(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    expected = json.loads((REPORTS / name / "expected.json").read_text("utf-8"))
    days = _landed_days(REPORTS / name / "landing")
    tables = expected["tables"]
    source = lakes.source_config(REPORTS / name / "landing", tables=tables)
    lake = _lake(spark, lakes.config_of({name: source}, tmp_path / "lake", days[0]))
    lakes.run_all(lake, name, days)
    (table,) = tables
    found = {
        day: lakes.difference_of(lakes.rows_of(lake, name, table, day), of_day)
        for day, of_day in expected["rows"].items()
    }
    assert not any(found.values()), found


@pytest.mark.parametrize("rename", [{"new": "old"}, {"old": "new"}])
def test_a_column_that_was_renamed_at_the_source_keeps_its_values(
    spark: SparkSession, tmp_path: Path, rename: dict[str, str]
) -> None:
    expected = json.loads((REPORTS / "rename" / "expected.json").read_text("utf-8"))
    days = _landed_days(REPORTS / "rename" / "landing")
    tables = {table: {"rename": rename} for table in expected["tables"]}
    source = lakes.source_config(REPORTS / "rename" / "landing", tables=tables)
    lake = _lake(spark, lakes.config_of({"renamed": source}, tmp_path / "lake", days[0]))
    lakes.run_all(lake, "renamed", days)
    (name,) = rename.values()
    for day, of_day in expected["rows_with_rename"].items():
        wanted = [{"id": row["id"], name: row["old"]} for row in of_day]
        found = lakes.rows_of(lake, "renamed", next(iter(tables)), day)
        assert not lakes.difference_of(found, wanted)


@pytest.mark.parametrize("on_resnapshot", ["warn", "replace"])
def test_rows_that_a_second_snapshot_did_not_read_are_said_or_removed(
    spark: SparkSession, tmp_path: Path, on_resnapshot: str
) -> None:
    expected = json.loads((REPORTS / "resnap" / "expected.json").read_text("utf-8"))
    days = _landed_days(REPORTS / "resnap" / "landing")
    options = {"on_resnapshot": on_resnapshot, "resnapshot_remove_percent": 50}
    landing, tables = REPORTS / "resnap" / "landing", expected["tables"]
    source = lakes.source_config(landing, tables=tables, **options)
    lake = _lake(spark, lakes.config_of({"resnap": source}, tmp_path / "lake", days[0]))
    (table,) = tables
    report = lakes.run_all(lake, "resnap", days)[table, days[-1]]
    assert report.snapshot is not None
    assert report.snapshot["missing"] == expected["rows_missing_from_snapshot"]
    rows = expected["rows" if on_resnapshot == "warn" else "rows_with_replace"]
    for day, of_day in rows.items():
        assert not lakes.difference_of(lakes.rows_of(lake, "resnap", table, day), of_day)


def test_leaves_of_a_partitioned_table_are_one_table(spark: SparkSession, tmp_path: Path) -> None:
    expected = json.loads((REPORTS / "leaves" / "expected.json").read_text("utf-8"))
    days = _landed_days(REPORTS / "leaves" / "landing")
    source = lakes.source_config(REPORTS / "leaves" / "landing", tables=expected["tables"])
    lake = _lake(spark, lakes.config_of({"leaves": source}, tmp_path / "lake", days[0]))
    lakes.run_all(lake, "leaves", days)
    for day, of_day in expected["rows"].items():
        rows = [
            {name: value for name, value in row.items() if name != "_cdc_table"}
            for row in lakes.rows_of(lake, "leaves", "public.ev", day)
        ]
        assert not lakes.difference_of(rows, of_day)
