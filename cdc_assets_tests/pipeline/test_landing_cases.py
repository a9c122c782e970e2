"""The same records at rest in the shapes of other writers land as each shape's README says (shared
cases): the last state of every table equals that of the records in the project's own shape."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from datetime import date, datetime, time, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.landing.files import LandedDay
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.paths import CASES

SHAPES = CASES / "landings"
DAYS = [date(2026, 11, 4), date(2026, 11, 5)]
TABLES = ("public.teas", "public.orders")

pytestmark = [pytest.mark.slow, pytest.mark.cases]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The script that writes the shapes; it writes below its `HERE`."""
    spec = importlib.util.spec_from_file_location("shapes", SHAPES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.HERE = tmp_path_factory.mktemp("shapes")
    return module


def _source(landing: dict[str, Any]) -> dict[str, Any]:
    raw = yaml.safe_load((SHAPES / "reference" / "cdc.yaml").read_text(encoding="utf-8"))
    return {**raw["sources"]["teashop"], "landing": landing}


def _final(lake: Lake, source: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table at the end of the last day, without what the project adds."""
    return {
        table: sorted(
            (
                {name: value for name, value in row.items() if not name.startswith("_cdc_")}
                for row in lakes.rows_of(lake, source, table, DAYS[-1])
            ),
            key=repr,
        )
        for table in TABLES
    }


@pytest.fixture(scope="module")
def reference(lake_of: LakeOf) -> dict[str, list[dict[str, Any]]]:
    source = "landing_cases_reference"
    lake = lake_of({source: _source({"files": str(SHAPES / "reference")})}, DAYS[0])
    lakes.run_all(lake, source, DAYS)
    return _final(lake, source)


def _expected(file: Path) -> list[tuple[Any, ...]]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted(
        (
            date.fromisoformat(row["landing_date"]),
            *(row[name] for name in ("topic", "partition", "offset", "timestamp")),
            *(None if row[name] is None else row[name].encode() for name in ("key", "value")),
            repr([(h["key"], h["value"].encode()) for h in row["headers"]]),
        )
        for row in rows
    )


def _landed(lake: Lake, source: str) -> list[tuple[Any, ...]]:
    return sorted(
        (
            row["landing_date"],
            *(row[name] for name in ("topic", "partition", "offset")),
            round(row["timestamp"].timestamp() * 1000),
            *(row[name] for name in ("key", "value")),
            repr([(h["key"], h["value"]) for h in row["headers"]]),
        )
        for row in lakes.stage_rows(lake, source, "landing")
    )


def _catalog(name: str, folder: Path) -> dict[str, str]:
    """A catalog of its own, as `spark:` of cdc.yaml has it."""
    return {
        f"spark.sql.catalog.{name}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{name}.type": "jdbc",
        f"spark.sql.catalog.{name}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"spark.sql.catalog.{name}.warehouse": f"file://{folder}/warehouse",
        f"spark.sql.catalog.{name}.jdbc.schema-version": "V1",
    }


def _write_bronze(shapes: ModuleType) -> None:
    """One script writes the table and its files; they are written once."""
    if not (shapes.HERE / "bronze-iceberg").exists():
        shapes.bronze()


@pytest.mark.parametrize(
    ("make", "folder", "landing"),
    [
        (
            _write_bronze,
            "bronze-iceberg",
            {"table": "teashop.bronze.kafka_raw", "columns": {"timestamp": "kafka_timestamp"}},
        ),
        (
            lambda shapes: shapes.redpanda(),
            "more/redpanda-iceberg",
            {"table": 'teashop.redpanda."teashop.public.*"', "layout": "redpanda"},
        ),
        (
            _write_bronze,
            "bronze-iceberg",
            {"table": {"path": "{}/bronze-iceberg/parquet", "format": "parquet"}},
        ),
    ],
    ids=["bronze", "redpanda", "parquet"],
)
def test_tables_land_as_their_readme_says(
    lake_of: LakeOf,
    name: str,
    shapes: ModuleType,
    reference: dict[str, Any],
    make: Callable[[ModuleType], None],
    folder: str,
    landing: dict[str, Any],
) -> None:
    make(shapes)
    at = shapes.HERE / folder
    if isinstance(landing["table"], dict):
        path = landing["table"]["path"].format(shapes.HERE)
        landing = {"table": {**landing["table"], "path": path}}
    # The name of the catalog is in its rows.
    settings = _catalog("teashop", at)
    lake = lake_of({name: _source(landing)}, DAYS[0], spark=settings)
    session = lake.spark.newSession()  # a session opens a catalog of a name once
    for key, value in settings.items():
        session.conf.set(key, value)
    lake = Lake(session, lake.config)

    lakes.run_all(lake, name, DAYS)

    assert _landed(lake, name) == _expected(at / "expected.jsonl")
    assert _final(lake, name) == reference


def _values(lake: Lake, source: str, lacks: tuple[str, ...] = ()) -> list[str]:
    """The landed records; values are compared as JSON, as sinks do not keep their bytes."""
    return sorted(
        _shown(
            {
                **row,
                "landing_date": str(row["landing_date"]),
                "timestamp": row["timestamp"] and round(row["timestamp"].timestamp() * 1000),
                "headers": [(h["key"], h["value"].decode()) for h in row["headers"] or ()],
            },
            lacks,
        )
        for row in lakes.stage_rows(lake, source, "landing")
    )


def _expected_values(file: Path, lacks: tuple[str, ...] = ()) -> list[str]:
    """The rows of `expected.jsonl`, without those that have no day or that would be empty."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted(
        _shown({**row, "headers": [(h["key"], h["value"]) for h in row["headers"] or ()]}, lacks)
        for row in rows
        if row["landing_date"] is not None
        and (row["value"] is not None or (row["key"] is not None and "key" not in lacks))
    )


def _shown(row: dict[str, Any], lacks: tuple[str, ...]) -> str:
    """A record as text, without what its shape lacks."""
    document = {
        name: None if row[name] is None else json.loads(row[name]) for name in ("key", "value")
    }
    names = ("landing_date", "topic", "partition", "offset", "timestamp", "headers")
    shown = {name: row[name] for name in names} | document
    return json.dumps({n: v for n, v in shown.items() if n not in lacks}, sort_keys=True)


CONFLUENT = "confluent-json/topics"
AIVEN = {"layout": "aiven", "path": "{yyyy}-{MM}-{dd}/{topic}-{partition}-{offset}*"}
# Path and day of a file; the sink of this shape writes no day, the file's time says it.
CSV_DAYS = {"-0-40": 0, "-0-45": 1, "-0-7": 0, "-0-10": 1, "-1-3": 0, "-1-4": 1}


def _laid(folder: Path, *parts: tuple[str, str]) -> str:
    """A folder with what some globs find in the shapes, as it lies there."""
    for shape, glob in parts:
        for file in (SHAPES / shape).glob(glob):
            if file.is_file():
                place = folder / file.relative_to(SHAPES / shape)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
    return str(folder)


@pytest.mark.parametrize(
    ("parts", "landing", "expected", "left_out", "lacks"),
    [
        ([(CONFLUENT, "**/*")], {"layout": "confluent"}, "confluent-json", 0, ()),
        (
            [("confluent-json/stringconverter/topics", "**/*"), (CONFLUENT, "*orders/**/*")],
            {"layout": "confluent"},
            "confluent-json",
            0,
            ("key",),
        ),
        ([("aiven/jsonl", "**/*")], AIVEN, "aiven", 0, ()),
        (
            [("aiven/csv-fields", "*")],
            {
                "layout": "aiven",
                "fields": ["key", "value", "offset", "timestamp"],
                "day": "modified",
            },
            "aiven",
            0,
            ("headers",),
        ),
        (
            [("aiven/csv-default", "*")],
            {"layout": "aiven", "fields": ["value"], "day": "modified"},
            "aiven",
            2,
            ("headers", "key", "offset", "timestamp"),
        ),
        (
            [("eventhubs-capture", "teashop-ns/**/*")],
            {"layout": "eventhubs"},
            "eventhubs-capture",
            0,
            (),
        ),
        (
            [("values-only/firehose", "**/*")],
            {"path": "{yyyy}/{MM}/{dd}/{HH}/*", "record": "value", "topic": "teashop"},
            "values-only",
            0,
            ("topic", "partition", "offset"),
        ),
        (
            [("values-only/firehose-newline", "**/*")],
            {"path": "{yyyy}/{MM}/{dd}/{HH}/*", "record": "value", "topic": "teashop"},
            "values-only",
            2,
            ("topic", "partition", "offset"),
        ),
    ],
    ids=[
        "confluent_json", "string_converter", "aiven_jsonl", "aiven_csv", "aiven_csv_of_values",
        "event_hubs", "firehose", "firehose_lines",
    ],
)  # fmt: skip
def test_files_of_sinks_land_as_their_readme_says(
    lake_of: LakeOf,
    name: str,
    tmp_path: Path,
    reference: dict[str, Any],
    parts: list[tuple[str, str]],
    landing: dict[str, Any],
    expected: str,
    left_out: int,
    lacks: tuple[str, ...],
) -> None:
    folder = _laid(tmp_path / "files", *parts)
    for file in Path(folder).glob("*.gz"):
        day = next(day for end, day in CSV_DAYS.items() if file.stem.endswith(end))
        noon = datetime.combine(DAYS[day], time(12), tzinfo=timezone.utc).timestamp()
        os.utime(file, (noon, noon))
    source = _source({"files": folder, **landing})
    if "key" in lacks or expected == "values-only":
        # Without keys of messages a delete's row is told by the whole row before it.
        for table in source["tables"].values():
            table["replica_identity"] = "full"
    lake = lake_of({name: source}, DAYS[0])
    landed = lakes.land(lake, name, DAYS)
    lakes.run_all(lake, name, DAYS)
    assert _values(lake, name, lacks) == _expected_values(
        SHAPES / expected / "expected.jsonl", lacks
    )
    days = [day for day in landed if isinstance(day, LandedDay)]
    assert sum(day.counts["records_left_out"] for day in days) == left_out
    assert _final(lake, name) == reference


def test_avro_containers_without_days_land_by_the_time_in_their_values(
    lake_of: LakeOf, name: str, reference: dict[str, Any]
) -> None:
    """Types survive: what lands has Connect's schema, so `columns` are not needed."""
    landing = {"files": str(SHAPES / "confluent-avro" / "topics"), "layout": "confluent"}
    source = _source({**landing, "day": "value"})
    for table in source["tables"].values():
        del table["columns"]
    lake = lake_of({name: source}, DAYS[0])
    lakes.run_all(lake, name, DAYS)
    rows = lakes.stage_rows(lake, name, "landing")
    expected = SHAPES / "confluent-avro" / "expected.jsonl"
    documents = [json.loads(line) for line in expected.read_text(encoding="utf-8").splitlines()]
    places = ("topic", "partition", "offset")
    assert sorted(tuple(row[n] for n in places) for row in rows) == sorted(
        tuple(row[n] for n in places) for row in documents
    )
    times = {tuple(row[n] for n in places): json.loads(row["value"])["ts_ms"] for row in documents}
    for row in rows:
        at = datetime.fromtimestamp(times[tuple(row[n] for n in places)] / 1000, timezone.utc)
        assert row["landing_date"] == at.date()
    assert _final(lake, name) == reference
    assert lakes.land(lake, name, DAYS) is not None
    assert not any(report.made for report in lakes.run_all(lake, name, DAYS).values())


def test_envelopes_without_days_in_paths_land_by_their_timestamps(
    lake_of: LakeOf, name: str, shapes: ModuleType, reference: dict[str, Any]
) -> None:
    shapes.lenses()
    at = shapes.HERE / "more/lenses-envelope"
    path = {"path": "{topic}/{partition}/*.json", "record": "envelope", "day": "timestamp"}
    lake = lake_of({name: _source({"files": str(at), **path})}, DAYS[0])
    lakes.run_all(lake, name, DAYS)
    days = {
        (r["topic"], r["partition"], r["offset"]): r["landing_date"]
        for r in lakes.stage_rows(lake, name, "landing")
    }
    rows = [json.loads(line) for line in (at / "expected.jsonl").read_text("utf-8").splitlines()]
    assert days == {
        (r["topic"], r["partition"], r["offset"]): datetime.fromtimestamp(
            r["timestamp"] / 1000, timezone.utc
        ).date()
        for r in rows
    }
    assert _final(lake, name) == reference


def test_an_object_that_was_overwritten_with_a_shorter_one_is_an_error_that_names_it(
    lake_of: LakeOf, name: str, tmp_path: Path, reference: dict[str, Any]
) -> None:
    folder = _laid(tmp_path / "files", (CONFLUENT, "**/*"))
    lake = lake_of({name: _source({"files": folder, "layout": "confluent"})}, DAYS[0])
    lakes.run_all(lake, name, DAYS)
    _laid(tmp_path / "files", ("confluent-json/overwritten/topics", "**/*"))
    says = r"teas\+0\+0000000040\.json: 5 landed, 2 left.*--allow-loss"
    with pytest.raises(LandingError, match=says):
        lakes.land(lake, name, DAYS)
    assert len(lakes.stage_rows(lake, name, "landing")) == 12
    assert _final(lake, name) == reference


def test_objects_of_before_and_after_a_rebalance_make_the_same_tables(
    lake_of: LakeOf, name: str, tmp_path: Path, reference: dict[str, Any]
) -> None:
    """Offsets 9 and 10 are in two objects each."""
    teas = (CONFLUENT, "*teas/**/*")
    rest = (CONFLUENT, "*orders/**/*orders+1+*")
    folder = _laid(tmp_path / "files", teas, rest)
    _laid(tmp_path / "files", ("confluent-json/after-rebalance/topics", "**/*"))
    lake = lake_of({name: _source({"files": folder, "layout": "confluent"})}, DAYS[0])
    lakes.run_all(lake, name, DAYS)
    assert _final(lake, name) == reference
    found = lakes.landing_found(lake, name, DAYS)
    assert "two files or more" in "".join(str(f) for day in DAYS for f in found[day])


def test_event_hubs_without_keys_count_tombstones_and_make_the_same_tables(
    lake_of: LakeOf, name: str, tmp_path: Path, reference: dict[str, Any]
) -> None:
    folder = _laid(tmp_path / "files", ("eventhubs-capture", "teashop-ns/**/*"))
    _laid(tmp_path / "files", ("eventhubs-capture/without-keys", "**/*"))
    source = _source({"files": folder, "layout": "eventhubs"})
    for table in source["tables"].values():
        table["replica_identity"] = "full"
    lake = lake_of({name: source}, DAYS[0])
    landed = [day for day in lakes.land(lake, name, DAYS) if isinstance(day, LandedDay)]
    assert sum(day.counts["records_left_out"] for day in landed) == 1
    lakes.run_all(lake, name, DAYS)
    assert _final(lake, name) == reference


def test_the_file_of_maxwells_producer_lands_by_its_times(
    lake_of: LakeOf, name: str, tmp_path: Path
) -> None:
    folder = _laid(tmp_path / "files", ("values-only/maxwell-file", "*"))
    landing = {
        "files": folder, "path": "maxwell.json", "record": "value", "topic": "maxwell",
        "day": "value",
    }  # fmt: skip
    source = {"format": "maxwell", "landing": landing, "tables": {"tea.teas": {"key": ["sku"]}}}
    lake = lake_of({name: source}, DAYS[0])
    lakes.run_all(lake, name, DAYS)
    rows = lakes.stage_rows(lake, name, "landing")
    assert {(row["landing_date"], row["topic"]) for row in rows} == {(DAYS[0], "maxwell")}
    found = lakes.rows_of(lake, name, "tea.teas", DAYS[1])
    assert [(row["sku"], row["name"]) for row in found] == [("OOLONG-01", "Oolong")]


def test_the_folders_of_ticdcs_storage_sink_land_by_a_template(
    lake_of: LakeOf, name: str, shapes: ModuleType
) -> None:
    """Canal's format, whose events TiCDC gives a position: `_tidb.commitTs`."""
    shapes.ticdc()
    landing = {
        "files": str(shapes.HERE / "more/ticdc-storage/changes"),
        "path": "*/*/*/{yyyy}-{MM}-{dd}/CDC*.json", "record": "value", "topic": "tidb",
    }  # fmt: skip
    source = {"format": "canal", "landing": landing, "tables": {"tea.teas": {"key": ["sku"]}}}
    lake = lake_of({name: source}, DAYS[0])
    lakes.run_all(lake, name, DAYS)
    per_day = [row["landing_date"] for row in lakes.stage_rows(lake, name, "landing")]
    assert [per_day.count(day) for day in DAYS] == [3, 1]
    found = lakes.rows_of(lake, name, "tea.teas", DAYS[1])
    assert sorted(row["sku"] for row in found) == ["GYO-03", "OOLONG-01"]
