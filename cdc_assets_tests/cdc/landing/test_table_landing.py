"""Landing from tables that have a copy of Kafka's records: which offsets land on which day."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import functions as F

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.discovery import landing_place, sources_block
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.findings import Severity
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.metadata import PyIcebergMetadata
from cdc_assets.cdc.landing.kafka_plan import KafkaDay
from cdc_assets.cdc.landing.table_landing import TableLanding
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import local_frame
from cdc_assets.cdc.stages.landing import LandingStage
from cdc_assets.cli.doctor.findings import Context, Status
from cdc_assets.cli.doctor.sources import landings
from cdc_assets.orchestration.automation.sensors import days_to_request
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import land, landing_found, stage_rows

DAY_1, DAY_2, DAY_3, DAY_4 = (date(2026, 3, 1) + timedelta(days=n) for n in range(4))
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)


class Clock:
    """Says which days are over: the only thing here that is not real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.today = DAY_4
        monkeypatch.setattr(Config, "is_open", lambda _, day: day >= self.today)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def at(day: date, hour: int = 12, minute: int = 0) -> datetime:
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=timezone.utc)


def record(offset: int | None, when: datetime, value: str = "v", **more: Any) -> tuple[Any, ...]:
    known = {
        "key": b"k",
        "value": value.encode(),
        "topic": "t",
        "partition": 0,
        "offset": offset,
        "timestamp": when,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}],
    }
    return tuple((known | more).values())


class Bronze:
    """A table as a stream writes it: one append a micro-batch."""

    def __init__(
        self, lake: Lake, name: str, columns: str = COLUMNS, partitioned: str = ""
    ) -> None:
        self.lake, self.columns = lake, columns
        self.parts = (f"{name}_bronze", "kafka_raw")
        self.identifier = quote("lake", *self.parts)
        lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {quote('lake', self.parts[0])}")
        lake.spark.sql(f"CREATE TABLE {self.identifier} ({columns}) USING iceberg {partitioned}")

    def put(self, *records: tuple[Any, ...]) -> None:
        local_frame(self.lake.spark, records, self.columns).writeTo(self.identifier).append()


def table_source(name: str, **more: Any) -> dict[str, Any]:
    return {"format": "debezium", "landing": {"table": f"lake.{name}_bronze.kafka_raw", **more}}


def lake_with(lake_of: LakeOf, name: str, **more: Any) -> Lake:
    return lake_of({name: table_source(name, **more)}, DAY_1)


def offsets(lake: Lake, name: str, partition: int = 0) -> dict[date, list[int]]:
    found: dict[date, list[int]] = {}
    for row in stage_rows(lake, name, "landing"):
        if row["partition"] == partition:
            found.setdefault(row["landing_date"], []).append(row["offset"])
    return {day: sorted(numbers) for day, numbers in sorted(found.items())}


def stale(lake: Lake, name: str, days: Iterable[date]) -> list[date]:
    """The days that a schedule or a sensor would ask for, found without Spark."""
    return LandingStage(lake.config, name).stale(PyIcebergMetadata(lake.config), list(days))


def verdicts(lake: Lake, name: str, days: list[date]) -> dict[date, tuple[bool, Any]]:
    found = landing_found(lake, name, days)
    return {day: (of[0].passed, of[0].severity) for day, of in found.items()}


def test_days_are_cut_by_offset_and_each_offset_lands_once(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    bronze.put(record(40, at(DAY_1)), record(41, at(DAY_1, 23)))
    straddling = (record(42, at(DAY_2, 0, 5)), record(43, at(DAY_1, 23, 59)))
    bronze.put(*straddling)
    bronze.put(*straddling)  # a stream that lost its checkpoint
    bronze.put(record(44, at(DAY_3)), record(3, at(DAY_2), partition=1))

    days = land(lake, name, [DAY_1, DAY_2, DAY_3])

    assert offsets(lake, name) == {DAY_1: [40, 41], DAY_2: [42, 43], DAY_3: [44]}
    assert offsets(lake, name, partition=1) == {DAY_2: [3]}
    ranges = [day.ranges for day in days if isinstance(day, KafkaDay)]
    assert [found["t", 0] for found in ranges] == [(40, 42), (42, 44), (44, 45)]
    row = next(r for r in stage_rows(lake, name, "landing") if r["offset"] == 40)
    assert (row["key"], row["value"], row["timestamp_type"]) == (b"k", b"v", 0)
    assert row["headers"] == [{"key": "h", "value": b"1"}]
    assert row["timestamp"] == at(DAY_1)
    assert row["file"] == f"lake.{name}_bronze.kafka_raw"
    assert stale(lake, name, [DAY_1, DAY_2, DAY_3]) == []


def test_a_day_landed_alone_reaches_the_same_offsets(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    bronze.put(*(record(n, at(DAY_1 + timedelta(days=n // 2))) for n in range(6)))
    for day in (DAY_3, DAY_1, DAY_2):
        land(lake, name, [day])
    assert offsets(lake, name) == {DAY_1: [0, 1], DAY_2: [2, 3], DAY_3: [4, 5]}


def test_a_record_whose_clock_is_far_off_lands_with_its_offset(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    long_ago, far_ahead = at(DAY_1 - timedelta(days=400)), at(DAY_1 + timedelta(days=30_000))
    bronze.put(record(0, at(DAY_1)), record(1, at(DAY_2)), record(2, long_ago))
    bronze.put(record(3, at(DAY_2)), record(4, far_ahead), record(5, at(DAY_3)))
    for day in (DAY_1, DAY_2, DAY_3):
        land(lake, name, [day])
    assert offsets(lake, name) == {DAY_1: [0], DAY_2: [1, 2, 3, 4], DAY_3: [5]}


def test_a_record_that_comes_after_its_day_landed_makes_it_stale(
    lake_of: LakeOf, name: str
) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    bronze.put(record(0, at(DAY_1)), record(2, at(DAY_1)), record(4, at(DAY_2)))
    land(lake, name, [DAY_1, DAY_2])
    assert verdicts(lake, name, [DAY_1]) == {DAY_1: (False, Severity.WARN)}

    bronze.put(record(5, at(DAY_3)))
    assert stale(lake, name, [DAY_1, DAY_2]) == []
    bronze.put(record(1, at(DAY_1)), record(3, at(DAY_1, 20)))
    assert stale(lake, name, [DAY_1, DAY_2]) == [DAY_1]

    land(lake, name, [DAY_1, DAY_2])
    assert offsets(lake, name) == {DAY_1: [0, 1, 2, 3], DAY_2: [4]}
    assert stale(lake, name, [DAY_1, DAY_2]) == []
    assert verdicts(lake, name, [DAY_1, DAY_2]) == {DAY_1: (True, None), DAY_2: (True, None)}


def test_late_records_at_the_end_of_the_newest_day_extend_it(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    bronze.put(record(0, at(DAY_1)))
    land(lake, name, [DAY_1])
    bronze.put(record(1, at(DAY_1, 23)), record(2, at(DAY_2)))
    assert stale(lake, name, [DAY_1]) == [DAY_1]
    land(lake, name, [DAY_1, DAY_2])
    assert offsets(lake, name) == {DAY_1: [0, 1], DAY_2: [2]}


def test_compaction_of_the_table_makes_no_day_stale(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    for n in range(4):
        bronze.put(record(n, at(DAY_1 + timedelta(days=n // 2))))
    land(lake, name, [DAY_1, DAY_2])
    commits = lake.day_commits(name, "landing")
    table = ".".join(bronze.parts)
    lake.spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{table}', "
        "options => map('min-input-files', '2'))"
    )
    assert stale(lake, name, [DAY_1, DAY_2]) == []
    land(lake, name, [DAY_1, DAY_2])
    assert lake.day_commits(name, "landing") == commits


def test_an_open_day_grows_and_closes_after_its_last_minutes(
    lake_of: LakeOf, name: str, clock: Clock
) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    clock.today = DAY_1
    bronze.put(record(0, at(DAY_1)))
    land(lake, name, [DAY_1])
    stage, known = LandingStage(lake.config, name), PyIcebergMetadata(lake.config)
    assert not stage.is_complete(known, DAY_1)

    bronze.put(record(1, at(DAY_1, 13)), record(2, at(DAY_2)))
    clock.today = DAY_2
    land(lake, name, [DAY_1])
    assert offsets(lake, name) == {DAY_1: [0, 1]}
    assert stage.is_complete(PyIcebergMetadata(lake.config), DAY_1)


def test_a_day_waits_for_late_batches(
    lake_of: LakeOf, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes = (datetime.now(timezone.utc) - at(DAY_1, 0)).total_seconds() // 60
    lake = lake_with(lake_of, name, settle_minutes=int(minutes))
    Bronze(lake, name).put(record(0, at(DAY_1)))
    (day,) = land(lake, name, [DAY_1])
    assert isinstance(day, KafkaDay)
    assert not day.closed


def test_what_retention_removed_is_not_skipped(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    bronze.put(record(0, at(DAY_1)))
    land(lake, name, [DAY_1])
    bronze.put(record(1, at(DAY_2)), record(2, at(DAY_2)), record(3, at(DAY_3)))
    lake.spark.sql(f"DELETE FROM {bronze.identifier} WHERE offset < 2")

    with pytest.raises(LandingError, match=r"t \[0\]: offsets 1 to 1 are gone"):
        land(lake, name, [DAY_2])
    (day,) = land(lake, name, [DAY_2], allow_loss=True)
    assert isinstance(day, KafkaDay)
    assert day.lost == {("t", 0): (1, 2)}
    assert offsets(lake, name) == {DAY_1: [0], DAY_2: [2]}


def test_rows_removed_from_the_table_stay_landed(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    bronze.put(record(0, at(DAY_1)), record(1, at(DAY_1)), record(3, at(DAY_1)))
    land(lake, name, [DAY_1])
    lake.spark.sql(f"DELETE FROM {bronze.identifier}")
    bronze.put(record(2, at(DAY_1)))
    land(lake, name, [DAY_1])
    assert offsets(lake, name) == {DAY_1: [0, 1, 2, 3]}
    assert verdicts(lake, name, [DAY_1]) == {DAY_1: (True, None)}
    with pytest.raises(LandingError, match="has fewer records than were landed"):
        land(lake, name, [DAY_1], force=True)
    land(lake, name, [DAY_1], force=True, allow_loss=True)
    assert offsets(lake, name) == {DAY_1: [2]}


def test_a_topic_created_anew_is_an_error(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    bronze.put(*(record(n, at(DAY_1)) for n in range(5)))
    land(lake, name, [DAY_1])
    bronze.put(record(0, at(DAY_2), "another topic of this name"))
    with pytest.raises(LandingError, match="offsets went backwards"):
        land(lake, name, [DAY_2])


@pytest.mark.parametrize("partitioned", ["", "PARTITIONED BY (days(timestamp))"])
def test_a_day_reads_the_files_around_it_alone(
    lake_of: LakeOf, name: str, partitioned: str
) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name, partitioned=partitioned)
    for n in range(9):
        bronze.put(record(n, at(DAY_1 - timedelta(days=20 - n))))
    for row in lake.spark.sql(f"SELECT file_path FROM {bronze.identifier}.files").collect():
        Path(row.file_path.removeprefix("file:")).unlink()
    lake = lake_of({name: table_source(name)}, DAY_1 - timedelta(days=30))
    bronze.put(record(9, at(DAY_1)), record(10, at(DAY_2)))
    bronze.put(record(11, at(DAY_3)))
    for day in (DAY_1, DAY_2):  # the second one stands on the first
        land(lake, name, [day])
    assert offsets(lake, name) == {DAY_1: [9], DAY_2: [10]}


def test_columns_may_have_other_names_and_hold_text(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(
        lake_of, name, columns={"timestamp": "kafka_ts", "value": "payload", "offset": "o"}
    )
    columns = "payload string, topic string, partition bigint, o bigint, kafka_ts timestamp_ntz"
    bronze = Bronze(lake, name, columns, "PARTITIONED BY (days(kafka_ts))")
    naive = at(DAY_1).replace(tzinfo=None)
    bronze.put(("näive", "t", 0, 7, naive), (None, "t", 0, 8, naive + timedelta(days=1)))
    land(lake, name, [DAY_1, DAY_2])
    rows: list[Mapping[str, Any]] = stage_rows(lake, name, "landing")
    found = [(r["landing_date"], r["offset"], r["value"], r["key"], r["headers"]) for r in rows]
    assert sorted(found) == [
        (DAY_1, 7, "näive".encode(), None, None),
        (DAY_2, 8, None, None, None),
    ]
    assert {r["timestamp"] for r in rows} == {at(DAY_1), at(DAY_2)}
    bronze.put(("late", "t", 0, 6, naive))
    assert stale(lake, name, [DAY_1, DAY_2]) == [DAY_1]


def test_redpandas_topics_have_a_table_each(lake_of: LakeOf, name: str) -> None:
    own = {"table": f'lake.{name}_topics."shop.public.*"', "layout": "redpanda"}
    lake = lake_of({name: {"format": "debezium", "landing": own}}, DAY_1)
    lake.spark.sql(f"CREATE NAMESPACE lake.{name}_topics")
    place = (
        "struct<partition: int, timestamp: timestamp, offset: bigint, "
        "headers: array<struct<key: string, value: binary>>, key: binary, timestamp_type: int>"
    )
    for topic in ("shop.public.a", "shop.public.b", "other"):
        table = quote("lake", f"{name}_topics", topic)
        lake.spark.sql(f"CREATE TABLE {table} (redpanda {place}, value binary) USING iceberg")
        of = {
            "partition": 0, "timestamp": at(DAY_1), "offset": 0, "headers": [], "key": b"k",
            "timestamp_type": 1,
        }  # fmt: skip
        rows = [(of, topic.encode()), ({**of, "offset": 1, "timestamp": at(DAY_2)}, None)]
        local_frame(lake.spark, rows, f"redpanda {place}, value binary").writeTo(table).append()
    land(lake, name, [DAY_1, DAY_2])
    found = {
        (r["landing_date"], r["topic"], r["offset"], r["value"], r["timestamp_type"])
        for r in stage_rows(lake, name, "landing")
    }
    assert found == {
        (day, topic, offset, value, 1)
        for topic in ("shop.public.a", "shop.public.b")
        for day, offset, value in ((DAY_1, 0, topic.encode()), (DAY_2, 1, None))
    }
    assert stale(lake, name, [DAY_1, DAY_2]) == []


@pytest.mark.parametrize(
    ("columns", "landing", "message"),
    [
        ("topic string", {}, "the column timestamp is missing; it has topic"),
        (
            COLUMNS.replace("timestamp timestamp", "ts timestamp"),
            {},
            "columns: {timestamp: <name>}",
        ),
        (COLUMNS.replace("value binary", "value int"), {}, "the column for value is int"),
        (COLUMNS.replace("headers array", "headers map<int, int>, x array"), {}, "headers is map"),
        (COLUMNS, {"columns": {"offset": "o"}}, "lacks the column o; it has key, value"),
        (COLUMNS, {"layout": "redpanda"}, "the column redpanda.timestamp is missing"),
    ],
)
def test_a_table_of_another_shape_is_refused(
    lake_of: LakeOf, name: str, columns: str, landing: dict[str, Any], message: str
) -> None:
    lake = lake_with(lake_of, name, **landing)
    bronze = Bronze(lake, name, columns)
    lake.spark.sql(f"INSERT INTO {bronze.identifier} VALUES ({_nulls(lake, bronze)})")
    with pytest.raises(LandingError) as error:
        land(lake, name, [DAY_1])
    assert message in str(error.value)


def _nulls(lake: Lake, bronze: Bronze) -> str:
    return ", ".join("NULL" for _ in lake.spark.table(bronze.identifier).columns)


def test_a_table_that_is_not_there_is_refused(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    with pytest.raises(LandingError, match=r"kafka_raw can't be opened"):
        land(lake, name, [DAY_1])
    other = {"table": f'lake.{name}_bronze."a*"'}
    Bronze(lake, name)
    lake = lake_of({name: {"format": "debezium", "landing": other}}, DAY_1)
    with pytest.raises(LandingError, match="the namespace has kafka_raw"):
        land(lake, name, [DAY_1])


def test_a_record_without_its_place_is_refused(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    Bronze(lake, name).put(record(0, at(DAY_1)), record(None, at(DAY_1)))
    with pytest.raises(LandingError, match="topic t, partition 0, offset None"):
        land(lake, name, [DAY_1])


def test_an_empty_table_lands_empty_days(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    Bronze(lake, name)
    land(lake, name, [DAY_1, DAY_2])
    assert offsets(lake, name) == {}
    assert stale(lake, name, [DAY_1, DAY_2, DAY_3]) == [DAY_3]


def test_the_sensor_asks_for_days_that_got_late_records(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    bronze.put(record(0, at(DAY_1)), record(2, at(DAY_2)))
    landing = TableLanding(lake.config, name)
    assert days_to_request(landing) is None
    land(lake, name, [DAY_1, DAY_2])
    lakes.make_changes(lake, name, [DAY_1, DAY_2])
    assert days_to_request(landing) is None
    bronze.put(record(1, at(DAY_1)))
    wanted = days_to_request(landing)
    assert wanted is not None
    assert (wanted.first, wanted.last, wanted.changed) == (DAY_1, DAY_2, (DAY_1,))


def test_discover_proposes_the_tables_of_a_bronze_table(
    lake_of: LakeOf, name: str, tmp_path: Path
) -> None:
    lake = lake_with(lake_of, name)
    event = ev.created({"id": 1, "name": "Ada"}, offset=0)
    Bronze(lake, name).put(
        record(0, at(DAY_1), event.value.decode(), key=b'{"id": 1}', topic="shop.public.customers")
    )
    written = tmp_path / "cdc.yaml"
    raw = {
        "lake": {"warehouse": lake.config.lake.warehouse},
        "start_date": DAY_1,
        "sources": {name: table_source(name)},
    }
    written.write_text(yaml.safe_dump(raw))
    place, _ = landing_place.resolve(name, str(written), None)
    found = landing_place.discover(lake.spark, place)
    proposed = yaml.safe_load(sources_block.as_yaml(found, place, []))["sources"][name]
    assert proposed["landing"] == {"table": f"lake.{name}_bronze.kafka_raw"}
    assert list(proposed["tables"]) == ["public.customers"]


def test_doctor_says_what_the_table_has(lake_of: LakeOf, name: str) -> None:
    lake = lake_with(lake_of, name)
    bronze = Bronze(lake, name)
    bronze.put(record(0, at(DAY_1)))

    def found() -> Any:
        return list(landings(Context(config=lake.config)))

    (finding,) = found()
    assert (finding.status, finding.found) == (
        Status.ok,
        f"lake.{name}_bronze.kafka_raw: 1 records",
    )
    lake.spark.sql(
        f"ALTER TABLE {bronze.identifier} SET TBLPROPERTIES "
        "('write.metadata.metrics.default' = 'none')"
    )
    bronze.put(record(1, at(DAY_1)))
    (finding,) = found()
    assert finding.status == Status.warning
    assert "has files without statistics of timestamp" in finding.found


class Folder:
    """A table in a folder, as Spark writes it; Hive's folders have the day of the ingestion."""

    def __init__(self, lake: Lake, path: Path, form: str) -> None:
        self.lake, self.path, self.form = lake, path, form

    def put(self, *records: tuple[Any, ...], on: date = DAY_1) -> None:
        rows = local_frame(self.lake.spark, records, COLUMNS).withColumn("ingest_date", F.lit(on))
        writer = rows.write.format(self.form).mode("append")
        writer.partitionBy("ingest_date").save(str(self.path))
        time.sleep(2.1)  # files of the last two seconds may have company yet


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_folder_lands_as_a_table_does(
    lake_of: LakeOf, name: str, tmp_path: Path, form: str
) -> None:
    place = tmp_path / "kafka raw"
    landing = {"table": {"path": str(place), "format": form}}
    lake = lake_of({name: {"format": "debezium", "landing": landing}}, DAY_1)
    folder = Folder(lake, place, form)
    folder.put(record(0, at(DAY_1)), record(2, at(DAY_1, 23)))
    folder.put(record(3, at(DAY_2)), record(2, at(DAY_1, 23)), on=DAY_2)
    land(lake, name, [DAY_1, DAY_2])
    assert offsets(lake, name) == {DAY_1: [0, 2], DAY_2: [3]}
    assert {row["file"] for row in stage_rows(lake, name, "landing")} == {str(place)}
    assert stale(lake, name, [DAY_1, DAY_2]) == []

    folder.put(record(1, at(DAY_1)), on=DAY_3)
    assert stale(lake, name, [DAY_1, DAY_2]) == [DAY_1]
    land(lake, name, [DAY_1, DAY_2])
    assert offsets(lake, name) == {DAY_1: [0, 1, 2], DAY_2: [3]}
    assert stale(lake, name, [DAY_1, DAY_2]) == []
    (finding,) = landings(Context(config=lake.config))
    assert (finding.status, finding.found) == (Status.ok, str(place))


def test_a_delta_table_with_a_checkpoint_lands(lake_of: LakeOf, name: str, tmp_path: Path) -> None:
    """Delta writes one with each tenth commit, and reads it where memory has not the table."""
    landing = {"table": {"path": str(tmp_path), "format": "delta"}}
    lake = lake_of({name: {"format": "debezium", "landing": landing}}, DAY_1)
    commits = range(12)
    for offset in commits:
        rows = local_frame(lake.spark, [record(offset, at(DAY_1))], COLUMNS)
        rows.write.format("delta").mode("append").save(str(tmp_path))
    assert list((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    jvm: Any = lake.spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    land(lake, name, [DAY_1])
    assert offsets(lake, name) == {DAY_1: [*commits]}


def test_a_folder_that_is_no_delta_table_is_refused(
    lake_of: LakeOf, name: str, tmp_path: Path
) -> None:
    landing = {"table": {"path": str(tmp_path), "format": "delta"}}
    lake = lake_of({name: {"format": "debezium", "landing": landing}}, DAY_1)
    with pytest.raises(LandingError, match="is no Delta table: it has no commit in _delta_log"):
        land(lake, name, [DAY_1])
    missing = {"table": {"path": str(tmp_path / "none"), "format": "parquet"}}
    lake = lake_of({name: {"format": "debezium", "landing": missing}}, DAY_1)
    with pytest.raises(LandingError, match="can't be listed"):
        land(lake, name, [DAY_1])
