"""Landing from files that sinks wrote: what a path says, what lies beside it, what goes wrong."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.discovery import landing_place, sources_block
from cdc_assets.cdc.discovery.inspection import inspect_file
from cdc_assets.cdc.discovery.rules import rules_of_source
from cdc_assets.cdc.errors import LandingError, OrderError
from cdc_assets.cdc.findings import Severity
from cdc_assets.cdc.java_errors import JAVA_ERRORS
from cdc_assets.cdc.landing.files import LandedDay, unreadable
from cdc_assets.cdc.landing.sink_files import SinkFolder
from cdc_assets.cdc.landing.sink_landing import SinkLanding
from cdc_assets.cdc.stages.landing import LandingStage
from cdc_assets.cli.doctor.findings import Context, Status
from cdc_assets.cli.doctor.sources import landings
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import land, landing_found, stage_rows

DAY_1, DAY_2 = date(2026, 3, 1), date(2026, 3, 2)
DAYS = [DAY_1, DAY_2]
TOPIC = "shop.public.customers"
CONFLUENT = {"layout": "confluent"}
CUSTOMERS = {"public.customers": {"key": ["id"]}}


def event(row_id: int, v: str = "a", op: str = "c", at: int = 0) -> dict[str, Any]:
    row = {"id": row_id, "v": v}
    return {
        "before": row if op == "d" else None,
        "after": None if op == "d" else row,
        "source": {
            "connector": "postgresql", "name": "shop", "db": "d", "schema": "public",
            "table": "customers", "lsn": 1000 + at, "ts_ms": 1_772_360_000_000, "snapshot": "false",
        },
        "op": op,
        "ts_ms": 1_772_360_000_100,
    }  # fmt: skip


class Bucket:
    """A folder as Kafka Connect's sinks of objects fill it."""

    def __init__(self, root: Path) -> None:
        self.root = root / "topics"
        self.root.mkdir()

    def put(self, path: str, *lines: Any, zipped: bool = False) -> Path:
        """A file of a line for each value: bytes as they are, others as JSON."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        data = b"".join(text + b"\n" for text in texts)
        place.write_bytes(gzip.compress(data) if zipped else data)
        return place

    def write(
        self, day: date, start: int, *events: Any, keys: bool = True, topic: str = TOPIC
    ) -> Path:
        """Values with their keys, as the daily partitioner names them."""
        if keys:
            found = [(e["after"] or e["before"])["id"] for e in events]
            self.put(named(day, start, ".keys.json", topic), *({"id": id} for id in found))
        return self.put(named(day, start, ".json", topic), *events)

    def write_values(self, day: date, start: int, *values: Any) -> Path:
        """Values alone, of any format, as the daily partitioner names them."""
        return self.put(named(day, start, ".json"), *values)


def named(day: date, start: int, ending: str, topic: str = TOPIC) -> str:
    folder = f"{topic}/year={day.year}/month={day.month:02}/day={day.day:02}"
    return f"{folder}/{topic}+0+{start:010}{ending}"


def modified(file: Path, day: date) -> None:
    noon = datetime.combine(day, time(12), tzinfo=timezone.utc).timestamp()
    os.utime(file, (noon, noon))


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path)


def source(bucket: Bucket, landing: Mapping[str, Any] = CONFLUENT, **more: Any) -> dict[str, Any]:
    return {
        "format": "debezium",
        "landing": {"files": str(bucket.root), **landing},
        "tables": CUSTOMERS,
        **more,
    }


# -- what lands -----------------------------------------------------------------------------------


def test_a_line_has_its_place_from_its_path_and_what_lies_beside_it(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    bucket.put(named(DAY_1, 40, ".json.gz"), event(1), event(2), zipped=True)
    bucket.put(named(DAY_1, 40, ".keys.json.gz"), {"id": 1}, {"id": 2}, zipped=True)
    headers = [[{"key": "till", "value": "3"}], []]
    bucket.put(named(DAY_1, 40, ".headers.json.gz"), *headers, zipped=True)
    lake = lake_of({name: source(bucket)}, DAY_1)
    land(lake, name, DAYS)
    rows = sorted(stage_rows(lake, name, "landing"), key=lambda row: row["offset"])
    path = named(DAY_1, 40, ".json.gz")
    assert [(r["landing_date"], r["topic"], r["partition"], r["offset"]) for r in rows] == [
        (DAY_1, TOPIC, 0, 40),
        (DAY_1, TOPIC, 0, 41),
    ]
    assert [json.loads(row["value"]) for row in rows] == [event(1), event(2)]
    assert [json.loads(row["key"]) for row in rows] == [{"id": 1}, {"id": 2}]
    assert [row["headers"] for row in rows] == [[{"key": "till", "value": b"3"}], None]
    assert {(row["file"], row["timestamp"]) for row in rows} == {(path, None)}


@pytest.mark.parametrize("codec", ["gzip", "zstd", "framed snappy"])
def test_a_file_is_read_by_its_content_whatever_its_name(
    lake_of: LakeOf, spark: SparkSession, bucket: Bucket, name: str, codec: str
) -> None:
    data = b"".join(json.dumps(event(id)).encode() + b"\n" for id in range(3))
    file = bucket.put(f"{DAY_1}/{TOPIC}-0-7.lz4")
    if codec == "framed snappy":
        jvm: Any = spark._jvm
        framed = jvm.org.xerial.snappy.SnappyFramedOutputStream(
            jvm.java.io.FileOutputStream(str(file))
        )
        framed.write(data)
        framed.close()
    else:
        with pa.CompressedOutputStream(str(file), codec) as out:
            out.write(data)
    path = {"path": "{yyyy}-{MM}-{dd}/{topic}-{partition}-{offset}*", "record": "value"}
    lake = lake_of({name: source(bucket, path)}, DAY_1)
    land(lake, name, [DAY_1])
    assert sorted(row["offset"] for row in stage_rows(lake, name, "landing")) == [7, 8, 9]


def test_names_are_taken_as_they_are(lake_of: LakeOf, bucket: Bucket, name: str) -> None:
    for folder in ("a%2Fb", "c d", "e+f", "g{h}*"):
        bucket.put(f"{folder}/{DAY_1}/x", event(1))
    path = {"path": "*/{yyyy}-{MM}-{dd}/*", "record": "value", "topic": "t"}
    lake = lake_of({name: source(bucket, path)}, DAY_1)
    land(lake, name, [DAY_1])
    rows = stage_rows(lake, name, "landing")
    assert sorted(row["file"].split("/")[0] for row in rows) == ["a%2Fb", "c d", "e+f", "g{h}*"]
    first = (DAY_1 - date(1970, 1, 1)).days << 32
    assert sorted(row["offset"] for row in rows) == [first + n for n in range(4)]


def test_headers_of_avro_containers_are_read_beside_their_values(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    value = {"type": "record", "name": "V", "fields": [{"name": "id", "type": "long"}]}
    pair = {
        "type": "record", "name": "ConnectDefault",
        "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "string"}],
    }  # fmt: skip
    headers = [[{"key": "a", "value": "é"}, {"key": "a", "value": "2"}], []]
    for ending, schema, records in (
        (".avro", value, [{"id": 1}, {"id": 2}]),
        (".headers.avro", {"type": "array", "items": pair}, headers),
    ):
        file = bucket.put(named(DAY_1, 7, ending))
        with file.open("wb") as out:
            fastavro.writer(out, fastavro.parse_schema(schema), records)
    lake = lake_of({name: source(bucket)}, DAY_1)
    land(lake, name, [DAY_1])
    rows = sorted(stage_rows(lake, name, "landing"), key=lambda row: row["offset"])
    assert [json.loads(row["value"])["payload"] for row in rows] == [{"id": 1}, {"id": 2}]
    found = [[(h["key"], bytes(h["value"]).decode()) for h in r["headers"] or ()] for r in rows]
    assert found == [[("a", "é"), ("a", "2")], []]


def test_values_without_a_place_follow_one_another_by_name_and_line(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    one, two, three = (json.dumps(event(id)).encode() for id in (1, 2, 3))
    bucket.put(f"{DAY_1:%Y/%m/%d}/09/a", one + two, b"", three)
    bucket.put(f"{DAY_1:%Y/%m/%d}/10/b", b'{"broken":', one + b" " + two)
    path = {"path": "{yyyy}/{MM}/{dd}/{HH}/*", "record": "value", "topic": "all"}
    lake = lake_of({name: source(bucket, path)}, DAY_1)
    (landed,) = land(lake, name, [DAY_1])
    rows = sorted(stage_rows(lake, name, "landing"), key=lambda row: row["offset"])
    assert [row["value"] for row in rows] == [one, two, three, b'{"broken":', one, two]
    first = (DAY_1 - date(1970, 1, 1)).days << 32
    assert [row["offset"] - first for row in rows] == [0, 1, 3, 4, 5, 6]
    assert isinstance(landed, LandedDay)
    assert landed.counts == {"records_left_out": 1}


def test_a_line_of_a_sink_that_is_no_record_lands_as_it_is(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    lines = [
        {"key": {"id": 1}, "value": event(1), "offset": 5, "timestamp": 1_772_360_000_000},
        {"key": "k", "value": None, "offset": 6, "headers": {"h": "x", "n": 1}},
        b"no json",
        {"other": 1},
        {"key": None, "value": "text", "offset": "no number"},
    ]
    bucket.put(f"{DAY_1}/{TOPIC}-0-5", *lines)
    path = {"path": "{yyyy}-{MM}-{dd}/{topic}-{partition}-{offset}*", "record": "envelope"}
    lake = lake_of({name: source(bucket, path)}, DAY_1)
    land(lake, name, [DAY_1])
    rows = stage_rows(lake, name, "landing")
    found = {row["offset"]: row for row in rows if row["topic"] is not None}
    assert sorted(found) == [5, 6, 9]  # a line says no offset: the path's and its number do
    assert found[5]["timestamp"] == datetime.fromtimestamp(1_772_360_000, timezone.utc)
    assert (found[6]["key"], found[6]["value"]) == (b"k", None)
    assert found[6]["headers"] == [{"key": "h", "value": b"x"}, {"key": "n", "value": b"1"}]
    assert found[9]["value"] == b"text"
    others = sorted(row["value"] for row in rows if row["topic"] is None)
    assert others == [b"no json", json.dumps({"other": 1}).encode()]


def test_values_with_commas_are_read_where_the_sink_wrote_them_so(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    lines = [b"k1,%s,7,2026-03-01T10:00:00Z" % json.dumps(event(1)).encode(), b"k2,,8,", b"short"]
    bucket.put(f"{DAY_1}/{TOPIC}-0-7", *lines)
    landing = {
        "layout": "aiven",
        "path": "{yyyy}-{MM}-{dd}/{topic}-{partition}-{offset}*",
        "fields": ["key", "value", "offset", "timestamp"],
        "encoding": "none",
    }
    lake = lake_of({name: source(bucket, landing)}, DAY_1)
    land(lake, name, [DAY_1])
    rows = {row["offset"]: row for row in stage_rows(lake, name, "landing")}
    assert rows.keys() == {7, 8, None}
    assert json.loads(rows[7]["value"]) == event(1)
    assert rows[7]["timestamp"] == datetime(2026, 3, 1, 10, tzinfo=timezone.utc)
    assert (rows[8]["key"], rows[8]["value"]) == (b"k2", None)
    assert rows[None]["value"] == b"short"


def test_a_line_that_is_too_long_lands_its_beginning_and_length(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    long = b'{"a":"' + b"x" * (3 << 20) + b'"}'
    bucket.put(named(DAY_1, 0, ".json"), long, event(1))
    lake = lake_of({name: source(bucket, max_record_mb=2)}, DAY_1)
    land(lake, name, [DAY_1])
    rows = {row["offset"]: row for row in stage_rows(lake, name, "landing")}
    assert rows.keys() == {None, 1}
    assert rows[None]["value"] == long[: 1 << 20]
    (header,) = rows[None]["headers"]
    assert header["value"] == str(len(long)).encode()


def test_decimals_whose_schema_is_gone_are_read_from_base64(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    sent = {1: "BNI=", 2: "/w==", 3: "AA==", 4: "no base64", 5: "f///////////////////8A==", 6: 12}
    events = [event(row_id, at=row_id) for row_id in sent]
    for told in events:
        told["after"]["v"] = sent[told["after"]["id"]]
    bucket.write(DAY_1, 0, *events)
    columns = {"id": "bigint", "v": "decimal(10,2,base64)"}
    tables = {"public.customers": {"key": ["id"], "columns": columns}}
    lake = lake_of({name: source(bucket, tables=tables)}, DAY_1)
    lakes.run_all(lake, name, [DAY_1])
    found = lakes.rows_of(lake, name, "public.customers", DAY_1)
    held = {1: Decimal("12.34"), 2: Decimal("-0.01"), 3: Decimal("0.00"), 6: Decimal("12.00")}
    assert {row["id"]: row["v"] for row in found} == {row_id: held.get(row_id) for row_id in sent}


# -- tombstones -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tombstones", ["ignore", "modified"])
def test_tombstones_in_files_of_their_own_never_delete(
    lake_of: LakeOf, bucket: Bucket, name: str, tombstones: str
) -> None:
    bucket.write(DAY_1, 0, event(1), event(2, at=1), event(2, op="d", at=2))
    bucket.write(DAY_2, 4, event(2, "again", at=3))
    alone = bucket.put(f"{TOPIC}/tombstone/{TOPIC}+0+0000000003.keys.json", {"id": 2})
    modified(alone, DAY_2)
    landing = {**CONFLUENT, "tombstones": tombstones}
    lake = lake_of({name: source(bucket, landing)}, DAY_1)
    lakes.run_all(lake, name, DAYS)
    landed = stage_rows(lake, name, "landing", [DAY_2])
    assert len(landed) == (1 if tombstones == "ignore" else 2)
    kinds = [row["op"] for row in stage_rows(lake, name, "control")]
    assert kinds == ([] if tombstones == "ignore" else ["tombstone"])
    rows = lakes.rows_of(lake, name, "public.customers", DAY_2)
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, "a"), (2, "again")]


# -- days that records say -------------------------------------------------------------------------


BY_VALUE = {"path": "{topic}-{partition}-{offset}*", "record": "value", "day": "value"}


def timed(row_id: int, day: date, at: int = 0, hour: int = 12) -> dict[str, Any]:
    when = datetime.combine(day, time(hour), tzinfo=timezone.utc)
    return {**event(row_id, at=at), "ts_ms": round(when.timestamp() * 1000)}


def days_of(lake: Any, name: str) -> dict[int, date]:
    return {row["offset"]: row["landing_date"] for row in stage_rows(lake, name, "landing")}


def test_a_record_lands_on_the_day_that_its_value_says(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    """What says none has the day of the record before it; the first ones that of the next."""
    early = timed(3, DAY_1 - timedelta(days=30))
    ahead = timed(4, DAY_2 + timedelta(days=30))
    lines = [b"{", timed(1, DAY_1), b"no json", early, ahead, timed(2, DAY_2, hour=0), b"{}"]
    modified(bucket.put(f"{TOPIC}-0-10", *lines), DAY_2)
    modified(bucket.put(f"{TOPIC}-0-90", b"no day at all"), DAY_2)
    lake = lake_of({name: source(bucket, BY_VALUE)}, DAY_1)
    one, two = land(lake, name, DAYS)
    assert days_of(lake, name) == {
        10: DAY_1, 11: DAY_1, 12: DAY_1, 13: DAY_1, 14: DAY_1, 15: DAY_2, 16: DAY_2, 90: DAY_2
    }  # fmt: skip
    assert isinstance(one, LandedDay)
    assert isinstance(two, LandedDay)
    counted = {
        "records_left_out": 0, "records_before_start_date": 1, "records_ahead_of_their_file": 1
    }  # fmt: skip
    assert one.counts == counted
    assert two.counts == dict.fromkeys(counted, 0)


def test_a_file_that_grew_makes_the_days_of_its_new_records_again_and_no_others(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    """Maxwell's file producer: one file, which grows; its times are seconds in `ts`."""

    def change(row_id: int, day: date) -> dict[str, Any]:
        when = datetime.combine(day, time(12), tzinfo=timezone.utc)
        return {
            "database": "shop", "table": "customers", "type": "insert", "xid": row_id,
            "ts": round(when.timestamp()), "position": f"bin.000004:{row_id}", "xoffset": 0,
            "primary_key_columns": ["id"], "data": {"id": row_id},
        }  # fmt: skip

    path = {"path": "maxwell.json", "record": "value", "topic": "maxwell", "day": "value"}
    maxwell = source(bucket, path, format="maxwell", tables={"shop.customers": {"key": ["id"]}})
    days = [DAY_1, DAY_2, DAY_2 + timedelta(days=1)]
    told = [change(1, DAY_1), change(2, DAY_2)]
    modified(bucket.put("maxwell.json", *told), days[2])
    lake = lake_of({name: maxwell}, DAY_1)
    landing = LandingStage(lake.config, name)
    assert landing.stale(lake, days) == days
    land(lake, name, days)
    assert landing.stale(lake, days) == []
    before = lake.day_commits(name, "landing")

    modified(bucket.put("maxwell.json", *told, change(3, days[2])), days[2])
    assert landing.stale(lake, days) == [days[2]]  # on which it was written: a run finds out
    land(lake, name, days)
    after = lake.day_commits(name, "landing")
    assert [before[d].snapshot_id != after[d].snapshot_id for d in days] == [False, False, True]
    assert landing.stale(lake, days) == []
    assert sorted(days_of(lake, name).values()) == days


def test_a_source_whose_records_say_no_day_is_refused(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    file = bucket.put(f"{TOPIC}-0-10", event(1))
    modified(file, DAY_1)
    lake = lake_of({name: source(bucket, {**BY_VALUE, "day": "timestamp"})}, DAY_1)
    with pytest.raises(LandingError, match=r"no record in .* says its day .*or set day: modified"):
        land(lake, name, DAYS)


# -- what goes wrong ------------------------------------------------------------------------------


def test_files_of_different_length_are_an_error_that_names_them(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    bucket.write(DAY_1, 0, event(1), event(2))
    bucket.put(named(DAY_1, 0, ".keys.json"), {"id": 1})
    lake = lake_of({name: source(bucket)}, DAY_1)
    with pytest.raises(
        LandingError,
        match=r"0000000000\.json can't be read whole .*has more records than .*\.keys\.json",
    ):
        land(lake, name, [DAY_1])
    assert stage_rows(lake, name, "landing") == []


@pytest.mark.parametrize("kind", ["gzip", "avro", "no file"])
def test_a_file_that_is_broken_is_named_and_nothing_of_its_day_lands(
    lake_of: LakeOf, bucket: Bucket, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.write(DAY_1, 0, event(1))
    if kind == "avro":
        file = bucket.put(named(DAY_1, 9, ".avro"))
        schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}
        with file.open("wb") as out:
            fastavro.writer(out, schema, [{"a": "x" * 100}] * 100, codec="null")
    else:
        many = [event(id) for id in range(100)]
        file = bucket.put(named(DAY_1, 9, ".json.gz"), *many, zipped=True)
    file.write_bytes(file.read_bytes()[:-40])
    if kind == "no file":  # it is gone between its listing and its reading
        listed = SinkFolder.list_days

        def gone(self: SinkFolder, days: Any) -> Any:
            found = listed(self, days)
            file.unlink(missing_ok=True)
            return found

        monkeypatch.setattr(SinkFolder, "list_days", gone)
    lake = lake_of({name: source(bucket)}, DAY_1)
    with pytest.raises(LandingError, match=rf"{re.escape(file.name)} can't be read whole"):
        land(lake, name, [DAY_1])
    assert stage_rows(lake, name, "landing") == []


@pytest.mark.parametrize(
    ("url", "why"), [("s3://lake/a", "S3AFileSystem not found"), ("gs://lake/a", "No FileSystem")]
)
def test_a_store_whose_jars_spark_lacks_is_an_error_that_says_so(
    spark: SparkSession, url: str, why: str
) -> None:
    with pytest.raises(JAVA_ERRORS) as caught:
        spark.read.text(url)
    said = str(unreadable("shop", caught.value, url))
    assert re.search(rf"{url} can't be read whole .*{why}.*Name the jars .*jars\.packages", said)


def test_keys_without_their_values_are_an_error(lake_of: LakeOf, bucket: Bucket, name: str) -> None:
    bucket.write(DAY_1, 0, event(1)).unlink()
    bucket.write(DAY_1, 5, event(2))
    lake = lake_of({name: source(bucket)}, DAY_1)
    with pytest.raises(LandingError, match=r"\.keys\.json has no .*\.json beside it"):
        land(lake, name, [DAY_1])


def test_keys_that_arrive_behind_their_values_make_the_day_stale(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    bucket.write(DAY_1, 0, event(1), keys=False)
    bucket.write(DAY_2, 1, event(2))
    lake = lake_of({name: source(bucket)}, DAY_1)
    land(lake, name, DAYS)
    bucket.put(named(DAY_1, 0, ".keys.json"), {"id": 1})
    landing = SinkLanding(lake.config, name)
    commits = lake.day_commits(name, "landing")
    assert landing.stale(commits, DAYS) == [DAY_1]
    assert list(landing.changed_days(commits, datetime.now().timestamp() * 1000)) == [DAY_1]
    land(lake, name, DAYS)
    assert landing.stale(lake.day_commits(name, "landing"), DAYS) == []
    assert [row["key"] is None for row in stage_rows(lake, name, "landing", [DAY_1])] == [False]


def test_a_late_file_in_the_folder_of_yesterday_makes_that_day_again(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    bucket.write(DAY_1, 0, event(1))
    bucket.write(DAY_2, 3, event(3, at=3))
    lake = lake_of({name: source(bucket)}, DAY_1)
    lakes.run_all(lake, name, DAYS)
    bucket.write(DAY_1, 1, event(2, at=1))
    before = lake.day_commits(name, "landing")
    lakes.run_all(lake, name, DAYS)
    after = lake.day_commits(name, "landing")
    assert [before[d].snapshot_id != after[d].snapshot_id for d in DAYS] == [True, False]
    rows = lakes.rows_of(lake, name, "public.customers", DAY_2)
    assert sorted(row["id"] for row in rows) == [1, 2, 3]


@pytest.mark.parametrize("what", ["overwritten", "gone"])
def test_a_file_with_fewer_records_than_landed_is_an_error(
    lake_of: LakeOf, bucket: Bucket, name: str, what: str
) -> None:
    file = bucket.write(DAY_1, 0, event(1), event(2, at=1))
    bucket.write(DAY_1, 2, event(3, at=2))
    lake = lake_of({name: source(bucket)}, DAY_1)
    land(lake, name, [DAY_1])
    if what == "gone":
        file.unlink()
        (bucket.root / named(DAY_1, 0, ".keys.json")).unlink()
    else:
        bucket.write(DAY_1, 0, event(1))
    left = {"overwritten": "1 left", "gone": "none left"}[what]
    with pytest.raises(LandingError, match=rf"0000000000\.json: 2 landed, {left}.*--allow-loss"):
        land(lake, name, [DAY_1])
    assert len(stage_rows(lake, name, "landing")) == 3
    land(lake, name, [DAY_1], allow_loss=True)
    assert len(stage_rows(lake, name, "landing")) == {"overwritten": 2, "gone": 1}[what]


def test_the_same_records_in_two_files_make_one_row_and_a_warning(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    events = [event(1), event(1, "b", at=1), event(2, at=2)]
    bucket.write(DAY_1, 7, *events)
    bucket.write(DAY_1, 8, *events[1:])
    bucket.write(DAY_2, 9, *events[2:])
    lake = lake_of({name: source(bucket)}, DAY_1)
    lakes.run_all(lake, name, DAYS)
    found = lakes.rows_of(lake, name, "public.customers", DAY_2)
    assert sorted((row["id"], row["v"]) for row in found) == [(1, "b"), (2, "a")]
    (finding,) = landing_found(lake, name, [DAY_1])[DAY_1]
    assert (finding.passed, finding.severity) == (False, Severity.WARN)
    assert "2 offsets are in two files or more" in str(finding)
    (finding,) = landing_found(lake, name, [DAY_2])[DAY_2]
    assert finding.passed


def canal(row_id: int, v: str, at: int) -> dict[str, Any]:
    return {
        "database": "shop", "table": "customers", "type": "UPDATE", "isDdl": False, "id": at,
        "es": 1_772_360_000_000, "ts": 1_772_360_000_100, "pkNames": ["id"],
        "data": [{"id": str(row_id), "v": v}], "old": [{"v": "before"}],
    }  # fmt: skip


CANAL = {"format": "canal", "tables": {"shop.customers": {"key": ["id"]}}}


def test_a_file_that_repeats_another_is_left_out_where_only_the_place_orders(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    """Read behind the whole file, the older change would win."""
    events = [canal(1, "a", 1), canal(1, "b", 2), canal(1, "c", 3)]
    bucket.write_values(DAY_1, 7, *events)
    bucket.write_values(DAY_1, 9, events[0], events[1])  # its offsets count from another start
    bucket.write_values(DAY_1, 20, canal(1, "c", 3), canal(1, "d", 4))
    bucket.write_values(DAY_2, 22, canal(1, "d", 4))
    lake = lake_of({name: source(bucket, **CANAL)}, DAY_1)
    landed = {day.day: day.counts for day in land(lake, name, DAYS) if isinstance(day, LandedDay)}
    assert landed[DAY_1]["records_in_copied_files"] == 2
    assert "records_in_copied_files" not in landed[DAY_2]
    offsets = sorted(row["offset"] for row in stage_rows(lake, name, "landing"))
    assert offsets == [7, 8, 9, 20, 21, 22]
    lakes.run_all(lake, name, DAYS)
    assert [row["v"] for row in lakes.rows_of(lake, name, "shop.customers", DAY_1)] == ["d"]
    (finding,) = landing_found(lake, name, [DAY_1])[DAY_1]
    assert finding.passed


def test_a_copy_that_landed_before_the_whole_file_is_no_loss(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    events = [canal(1, "a", 1), canal(1, "b", 2), canal(1, "c", 3)]
    bucket.write_values(DAY_1, 8, *events[1:])
    lake = lake_of({name: source(bucket, **CANAL)}, DAY_1)
    land(lake, name, [DAY_1])
    bucket.write_values(DAY_1, 7, *events)
    land(lake, name, [DAY_1])
    assert sorted(row["offset"] for row in stage_rows(lake, name, "landing")) == [7, 8, 9]


def test_files_that_overlap_are_an_error_where_only_the_place_orders(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    bucket.write_values(DAY_1, 7, canal(1, "a", 1), canal(1, "b", 2))
    bucket.write_values(DAY_1, 8, canal(1, "c", 3))
    lake = lake_of({name: source(bucket, **CANAL)}, DAY_1)
    land(lake, name, [DAY_1])
    says = (
        rf"{name}, {DAY_1}: nothing orders the events of shop\.customers: they have no positions, "
        rf"and files overlap in {TOPIC} \[0\]"
    )
    with pytest.raises(OrderError, match=says):
        lakes.make_changes(lake, name, [DAY_1])
    assert lakes.stage_rows(lake, name, "changes") == []


@pytest.mark.parametrize("format", ["canal", "maxwell"])
def test_files_without_any_offset_are_an_error_where_events_have_no_positions(
    lake_of: LakeOf, bucket: Bucket, name: str, format: str
) -> None:
    maxwell = {
        "database": "shop", "table": "customers", "type": "insert", "ts": 1_772_360_000, "xid": 1,
        "primary_key_columns": ["id"], "data": {"id": 1},
    }  # fmt: skip
    path = {"path": "{yyyy}/{MM}/{dd}/*", "record": "value", "topic": TOPIC}
    bucket.put("2026/03/01/a", canal(1, "a", 1) if format == "canal" else maxwell)
    lake = lake_of({name: source(bucket, path, **{**CANAL, "format": format})}, DAY_1)
    land(lake, name, [DAY_1])
    says = "nothing orders the events of .* neither paths nor lines of files have offsets"
    with pytest.raises(OrderError, match=says):
        lakes.make_changes(lake, name, [DAY_1])


@pytest.mark.parametrize("has_offsets", [True, False])
def test_what_only_the_place_in_files_decided_is_counted(
    lake_of: LakeOf, bucket: Bucket, name: str, has_offsets: bool
) -> None:
    read = event(1, "read", op="r")
    read["source"] = {**read["source"], "snapshot": "true", "lsn": None}
    alone = event(3, "alone", op="r")
    alone["source"] = {**alone["source"], "snapshot": "true", "lsn": None}
    events = [
        event(1, "a", at=1), read, alone,
        event(2, "b", op="u", at=5), event(2, "c", op="u", at=5),  # COPY has one LSN for all
        event(4, "d", at=6), event(4, "d", at=6),  # one of them is a copy
    ]  # fmt: skip
    landing: dict[str, Any] = CONFLUENT
    if has_offsets:
        bucket.write(DAY_1, 7, *events)
    else:
        landing = {"path": "{yyyy}/{MM}/{dd}/*", "record": "value", "topic": TOPIC}
        bucket.put("2026/03/01/a", *events)
    full = {"public.customers": {"key": ["id"], "replica_identity": "full"}}
    lake = lake_of({name: source(bucket, landing, tables=full)}, DAY_1)
    lakes.run_all(lake, name, [DAY_1])
    found = {f.name: f for f in lakes.changes_found(lake, name, [DAY_1])[DAY_1]}
    finding = found["positions_in_order"]
    assert finding.values["ties_decided_by_place"] == 1
    assert finding.values["snapshot_reads_decided_by_place"] == 1
    assert finding.passed is has_offsets
    if not has_offsets:
        assert "public.customers: 1 keys have events of equal positions" in str(finding)


@pytest.mark.parametrize("when", ["the next day", "the same day"])
def test_a_topic_created_anew_lands_although_its_names_and_offsets_return(
    lake_of: LakeOf, bucket: Bucket, name: str, when: str
) -> None:
    """Of the same day, its files lie in a later hour."""
    hourly = {"path": "{topic}/{yyyy}-{MM}-{dd}/{HH}/{topic}+{partition}+{offset}.json"}
    files = f"{TOPIC}+0+0000000000.json"
    later = DAY_2 if when == "the next day" else DAY_1
    bucket.put(f"{TOPIC}/{DAY_1}/09/{files}", event(1), event(2, at=1), event(3, at=2))
    bucket.put(f"{TOPIC}/{later}/17/{files}", event(1, "new", op="u", at=7), event(4, at=8))
    full = {"public.customers": {"key": ["id"], "replica_identity": "full"}}
    lake = lake_of({name: source(bucket, {**CONFLUENT, **hourly}, tables=full)}, DAY_1)
    lakes.run_all(lake, name, DAYS)
    landed = [(row["landing_date"], row["offset"]) for row in stage_rows(lake, name, "landing")]
    expected = [(DAY_1, 0), (DAY_1, 1), (DAY_1, 2), (later, 0), (later, 1)]
    assert sorted(landed) == sorted(expected)
    found = lakes.rows_of(lake, name, "public.customers", DAY_2)
    assert sorted((row["id"], row["v"]) for row in found) == [
        (1, "new"), (2, "a"), (3, "a"), (4, "a"),
    ]  # fmt: skip
    (finding,) = landing_found(lake, name, [later])[later]
    assert finding.passed is (when == "the next day")


@pytest.mark.parametrize("day", ["path", "value"])
@pytest.mark.parametrize("what", ["a new file", "a longer one"])
def test_what_arrives_while_a_bucket_is_read_lands_with_the_next_run(
    lake_of: LakeOf,
    bucket: Bucket,
    name: str,
    what: str,
    day: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A day is recorded as it was listed: what came since makes it stale."""
    place = named(DAY_1, 0, ".json") if day == "path" else f"{TOPIC}-0-0000000000"
    landing = CONFLUENT if day == "path" else BY_VALUE
    own, later = timed(1, DAY_1), timed(2, DAY_1 if day == "path" else DAY_2)
    modified(bucket.put(place, own), DAY_1)
    lake = lake_of({name: source(bucket, landing)}, DAY_1)
    read = SinkLanding._records

    def arriving(self: SinkLanding, *args: Any) -> Any:
        new = [later] if what == "a new file" else [own, later]
        start = place.replace("0000000000", f"{2 - len(new):010}")
        modified(bucket.put(start, *new), DAY_1)
        return read(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(SinkLanding, "_records", arriving)
        land(lake, name, DAYS)
    stage = LandingStage(lake.config, name)
    assert stage.stale(lake, DAYS) == [DAY_1]
    land(lake, name, DAYS)
    assert days_of(lake, name) == {0: DAY_1, 1: DAY_1 if day == "path" else DAY_2}
    assert stage.stale(lake, DAYS) == []


def test_what_is_unfinished_or_no_record_is_left_out(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    bucket.write(DAY_1, 0, event(1))
    for path in (
        f"+tmp/{named(DAY_1, 1, '.json')}",
        named(DAY_1, 2, ".json").replace("day=01/", "day=01/_temporary/"),
        named(DAY_1, 3, ".index"),
        named(DAY_1, 0, "").rpartition("/")[0] + "/_SUCCESS",
    ):
        bucket.put(path, event(9))
    lake = lake_of({name: source(bucket)}, DAY_1)
    land(lake, name, [DAY_1])
    assert [row["offset"] for row in stage_rows(lake, name, "landing")] == [0]


def test_a_folder_of_another_layout_says_what_was_seen_and_expected(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    bucket.put(f"{TOPIC}/partition=0/{TOPIC}+0+0000000000.json", event(1))
    lake = lake_of({name: source(bucket)}, DAY_1)
    says = r"has no file named \{topic\}/year=.*, but shop\.public\.customers/partition=0/"
    with pytest.raises(LandingError, match=says):
        land(lake, name, [DAY_1])
    (finding,) = landings(Context(config=lake.config))
    assert finding.status == Status.problem
    by_time = lake_of({name: source(bucket, {**CONFLUENT, "day": "modified"})}, DAY_1)
    modified(next(bucket.root.rglob("*.json")), DAY_2)
    land(by_time, name, DAYS)
    assert [row["landing_date"] for row in stage_rows(by_time, name, "landing")] == [DAY_2]


def test_a_folder_that_is_missing_is_an_error(lake_of: LakeOf, bucket: Bucket, name: str) -> None:
    lake = lake_of({name: source(bucket)}, DAY_1)
    bucket.root.rmdir()
    with pytest.raises(LandingError, match="can't be listed"):
        land(lake, name, [DAY_1])


def test_another_layout_makes_the_days_again(lake_of: LakeOf, bucket: Bucket, name: str) -> None:
    bucket.put(f"{DAY_1}/{TOPIC}-0-5", {"value": event(1), "offset": 50})
    path = {"path": "{yyyy}-{MM}-{dd}/{topic}-{partition}-{offset}*"}
    lake = lake_of({name: source(bucket, {**path, "record": "value"})}, DAY_1)
    land(lake, name, [DAY_1])
    lake = lake_of({name: source(bucket, {**path, "record": "envelope"})}, DAY_1)
    assert SinkLanding(lake.config, name).stale(lake.day_commits(name, "landing"), [DAY_1])
    land(lake, name, [DAY_1])
    assert [row["offset"] for row in stage_rows(lake, name, "landing")] == [50]


def test_doctor_and_discover_know_the_layout(
    lake_of: LakeOf, bucket: Bucket, name: str, tmp_path: Path
) -> None:
    bucket.write(DAY_1, 0, event(1))
    bucket.write(DAY_2, 1, event(2, at=1))
    lake = lake_of({name: source(bucket)}, DAY_1)
    (finding,) = landings(Context(config=lake.config))
    assert finding.status == Status.ok
    assert f"2 days, the newest {DAY_2}" in finding.found
    config = tmp_path / "cdc.yaml"
    document = {"start_date": str(DAY_1), "sources": {name: source(bucket)}}
    config.write_text(json.dumps(document), encoding="utf-8")
    place, _ = landing_place.resolve(name, str(config), None)
    found = landing_place.discover(lake.spark, place, 1, None)
    text = sources_block.as_yaml(found, place, [])
    assert "layout: confluent" in text
    assert "public.customers" in text


def test_inspect_reads_a_file_as_its_layout_has_it(
    lake_of: LakeOf, bucket: Bucket, name: str
) -> None:
    file = bucket.write(DAY_1, 40, event(1), event(2))
    lake = lake_of({name: source(bucket)}, DAY_1)
    rules = rules_of_source(lake.config, None, file)
    rows = inspect_file(lake.spark, file, rules)
    assert [(row["offset"], row["key"]) for row in rows] == [(40, '{"id":1}'), (41, '{"id":2}')]
