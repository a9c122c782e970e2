"""A lake that can't be written or read is named as that, in one line with what to do."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from cdc_assets.cdc.added_jars import add_kafka
from cdc_assets.cdc.config import Config, KafkaConfig
from cdc_assets.cdc.errors import ConfigError, LakeError, LandingError, MissingTableError
from cdc_assets.cdc.java_errors import JAVA_ERRORS, causes, root_cause
from cdc_assets.cdc.lake import retry
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.errors import is_conflict, is_contention, lake_error, one_line
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.tables import own_table
from cdc_assets.cdc.landing.file_landing import FileLanding
from cdc_assets.cdc.landing.kafka_client import failed
from cdc_assets.cdc.spark import build_session, is_lost
from cdc_assets.definitions import build_definitions
from cdc_assets.orchestration.automation.sensors import days_to_request
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.lakes import land
from cdc_assets_tests.paths import REPOSITORY

DAY, NEXT_DAY = ev.DAY, ev.DAY.replace(day=ev.DAY.day + 1)
TABLES = {"public.customers": {"key": ["id"]}}


def config_of(folder: Path, **lake: Any) -> Config:
    """A source `shop` with one landed day, and a warehouse of its own."""
    landing, warehouse = folder / "landing", folder / "warehouse"
    ev.write_landing(landing, {DAY: [ev.created({"id": 1}, offset=1)]})
    sources = {"shop": lakes.source_config(landing, tables=TABLES)}
    return lakes.config_of(sources, warehouse, lake={"warehouse": str(warehouse), **lake})


# -- a warehouse that Spark can't write ----------------------------------------------------------


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """A lake of the test's own, in which a day of `shop` has landed."""
    config = config_of(tmp_path)
    lake = Lake(session_of(spark, tmp_path), config)
    land(lake, "shop", [DAY])
    return lake


def session_of(spark: SparkSession, folder: Path) -> SparkSession:
    """A session whose catalog is the folder's; a new session opens it anew."""
    warehouse = folder / "warehouse"
    warehouse.mkdir(exist_ok=True)
    session = spark.newSession()
    catalog = "spark.sql.catalog.lake"
    session.conf.set(f"{catalog}.warehouse", str(warehouse))
    uri = f"jdbc:sqlite:{warehouse}/catalog.db?journal_mode=WAL&busy_timeout=50"
    session.conf.set(f"{catalog}.uri", uri)
    return session


def opened_anew(lake: Lake) -> Lake:
    return Lake(session_of(lake.spark, Path(lake.config.lake.warehouse).parent), lake.config)


def failure(lake: Lake, folder: Path, day: Any = DAY) -> str:
    """The one line that making a day of the landing ends in, which is no fault of the landing."""
    with pytest.raises(JAVA_ERRORS) as raised:  # and no LandingError
        land(lake, "shop", [day], force=True)
    line = one_line(raised.value, lake.config)
    assert isinstance(lake_error(raised.value, lake.config), LakeError), line
    assert "\n" not in line
    assert str(folder / "landing") not in line, "the user's source data is not to blame"
    return line


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """A mount on a folder, where this user may mount."""
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this user may not mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        # Lazily: Hadoop may hold a file of a failed write open.
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("day", [DAY, NEXT_DAY], ids=["with files", "without files"])
def test_a_read_only_warehouse_is_not_a_landed_file_that_cannot_be_read(
    lake: Lake, tmp_path: Path, day: Any
) -> None:
    warehouse = tmp_path / "warehouse"
    with mounted(warehouse, "--bind", str(warehouse)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(warehouse)], check=True)
        line = failure(opened_anew(lake), tmp_path, day)
    assert line.startswith(f"the warehouse {warehouse} can't be written ("), line
    assert "writable for this user" in line
    assert "run the same again" in line


@pytest.mark.parametrize("part", ["data", "metadata"])
def test_a_file_in_the_place_of_a_folder_of_the_lake_is_named(
    lake: Lake, tmp_path: Path, part: str
) -> None:
    folder = tmp_path / "warehouse" / "shop" / "landing" / part
    if part == "data":
        shutil.rmtree(folder)
        folder.write_text("a file")
    else:  # of a table that is new
        lake = Lake(lake.spark, config_of(tmp_path))
        lake.spark.sql("DROP TABLE lake.shop.landing PURGE")
        shutil.rmtree(folder.parent)
        folder.parent.write_text("a file")
    ev.write_landing(tmp_path / "landing", {NEXT_DAY: [ev.created({"id": 2}, offset=2)]})
    line = failure(lake, tmp_path, NEXT_DAY)
    assert line.startswith("a file of the lake can't be written or read (")
    assert str(folder.parent) in line
    assert f"the warehouse {tmp_path / 'warehouse'}" in line


def test_a_full_disk_is_said_with_the_room_that_is_left(lake: Lake, tmp_path: Path) -> None:
    records = [ev.created({"id": n, "v": os.urandom(200).hex()}, offset=n) for n in range(2000)]
    ev.write_landing(tmp_path / "landing", {NEXT_DAY: records})
    data = tmp_path / "warehouse" / "shop" / "landing" / "data"
    with mounted(data, "-t", "tmpfs", "-o", "size=64k", "tmpfs"):
        line = failure(lake, tmp_path, NEXT_DAY)
    assert line.startswith("no space is left for the lake (IOException: No space left on device)")
    assert "MB free" in line
    assert "Spark's scratch folder" in line
    assert "Make room" in line


def test_a_landed_file_that_breaks_off_stays_a_landed_file(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "landing" / str(DAY) / "cut.jsonl.gz"
    file.write_bytes(gzip.compress(os.urandom(5000))[:2500])
    with pytest.raises(LandingError, match=r"cut\.jsonl\.gz can't be read whole \(EOFException: "):
        land(lake, "shop", [DAY])


# -- a catalog that can't be used ----------------------------------------------------------------


def break_catalog(folder: Path, how: str) -> Path:
    """`garbage` in the catalog's file, or a `folder` in its place."""
    file = folder / "warehouse" / "catalog.db"
    file.parent.mkdir(exist_ok=True)
    for path in (file, *file.parent.glob("catalog.db-*")):
        path.unlink(missing_ok=True)
    if how == "folder":
        file.mkdir()
    else:
        file.write_bytes(b"this is no database " * 500)
    return file


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("garbage", "is damaged or not an SQLite database (SQLiteException: [SQLITE_NOTADB]"),
        ("folder", "can't be used (SQLiteException: [SQLITE_CANTOPEN]"),
    ],
)
def test_a_broken_catalog_is_named_with_what_to_do(
    lake: Lake, tmp_path: Path, how: str, says: str
) -> None:
    file = break_catalog(tmp_path, how)
    anew = opened_anew(lake)
    line = failure(anew, tmp_path)
    assert line.startswith(f"the catalog {file} {says}"), line
    with pytest.raises(Py4JJavaError):
        anew.exists(anew.stage("shop", "landing"))


def test_a_catalog_that_another_program_locks_stays_busy_and_then_is_named(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PATIENCE_SECONDS", 1)
    file = tmp_path / "warehouse" / "catalog.db"
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        line = failure(lake, tmp_path)
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert line.startswith(f"the catalog {file} stays busy ("), line
    assert "end the program that holds it" in line
    land(lake, "shop", [DAY], force=True)


def test_metadata_that_is_gone_is_no_missing_table(lake: Lake, tmp_path: Path) -> None:
    for file in (tmp_path / "warehouse" / "shop" / "landing" / "metadata").glob("*.json"):
        file.unlink()
    assert failure(lake, tmp_path).startswith("a file that belongs to the lake is missing (")
    with pytest.raises(LakeError, match=r"shop\.landing: a file of it") as raised:
        open_table(lake.config, own_table("shop", "landing"))
    assert not isinstance(raised.value, MissingTableError)


# -- exceptions of Java, by class ----------------------------------------------------------------


def raised_by(java: Any) -> Py4JJavaError:
    """A throwable as Py4J raises it."""
    return Py4JJavaError("An error occurred while calling o1.x.\n", java)


def test_a_java_exception_is_known_by_its_classes_and_codes(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg.exceptions
    lost = raised_by(jvm.java.lang.RuntimeException("x", jvm.java.lang.OutOfMemoryError("heap")))
    assert is_lost(lost)
    assert [cause.classes[0] for cause in causes(lost)] == [
        "java.lang.RuntimeException",
        "java.lang.OutOfMemoryError",
    ]
    assert root_cause(lost) == "OutOfMemoryError: heap"
    empty = jvm.java.util.ArrayList().toArray()
    assert is_contention(raised_by(iceberg.CommitFailedException("another one won", empty)))
    assert is_conflict(raised_by(iceberg.ValidationException("files differ", empty)))
    sqlite = jvm.org.sqlite
    busy = sqlite.SQLiteException("x", sqlite.SQLiteErrorCode.SQLITE_BUSY_SNAPSHOT)
    assert is_contention(raised_by(jvm.java.lang.RuntimeException("x", busy)))
    assert is_contention(raised_by(jvm.java.sql.SQLException("x", "23505")))
    assert not is_contention(raised_by(jvm.java.sql.SQLException("x", "08001")))


def test_words_in_a_message_decide_nothing(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    words = (
        "java.lang.OutOfMemoryError CommitFailedException SQLITE_BUSY database is locked "
        "Cannot commit Found conflicting files org.apache.iceberg.exceptions.ValidationException"
    )
    error = raised_by(jvm.java.lang.RuntimeException(f"the value '{words}' is no number"))
    assert not is_lost(error)
    assert not is_contention(error)
    assert not is_conflict(error)


def test_a_line_of_the_catalog_keeps_its_password(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    catalog = {"type": "jdbc", "uri": "jdbc:postgresql://db/lake", "jdbc.password": "hush7"}
    config = config_of(tmp_path, catalog=catalog)
    refused = jvm.java.sql.SQLException("postgresql://me:hush7@db/lake: no hush7 answer", "08001")
    line = one_line(raised_by(refused), config)
    assert line.startswith("the catalog jdbc can't be used (SQLException: postgresql://***@db")
    assert "hush7" not in line
    assert "lake.catalog" in line


KAFKA_FAILURES = [
    ("kafka.common.errors.SaslAuthenticationException", "the credentials were refused"),
    ("kafka.common.errors.TopicAuthorizationException", "the user may not do this"),
    ("kafka.common.errors.TimeoutException", "no broker answers"),
    ("kafka.common.errors.UnknownTopicOrPartitionException", "a topic has just gone"),
    (
        "kafka.common.errors.OffsetOutOfRangeException",
        "records were removed while they were read, by retention or with their topic",
    ),
    ("kafka.common.config.ConfigException", "an option is wrong"),
]


@pytest.fixture(scope="module")
def kafka_client(spark: SparkSession) -> Any:
    """Kafka's packages in Spark's JVM."""
    try:
        add_kafka(spark)
    except ConfigError as error:
        pytest.skip(str(error))
    jvm: Any = spark._jvm
    return jvm.org.apache


@pytest.mark.parametrize(("java", "says"), KAFKA_FAILURES)
def test_a_failure_of_kafka_is_known_by_its_class(
    spark: SparkSession, kafka_client: Any, java: str, says: str
) -> None:
    config = KafkaConfig(bootstrap_servers="broker:9092", topics=["t"])
    jvm: Any = spark._jvm
    add_kafka(spark)  # gives this thread its class loader
    cause = kafka_client
    for part in java.split("."):
        cause = getattr(cause, part)
    outer = jvm.java.util.concurrent.ExecutionException("x", cause("of the password"))
    error = raised_by(outer)
    simple = java.rpartition(".")[2]
    assert f"broker:9092: {says} ({simple}: of the password)" in str(failed("s", config, error))
    words = " ".join(name for name, _ in KAFKA_FAILURES)
    other = raised_by(jvm.java.lang.RuntimeException(words))
    assert "Kafka can't be read (RuntimeException: " in str(failed("s", config, other))


# -- reads without Spark: only a table that does not exist was never made ------------------------


def no_lake(folder: Path) -> None:
    """Nothing was made."""


def empty_catalog(folder: Path) -> None:
    (folder / "warehouse").mkdir()
    (folder / "warehouse" / "catalog.db").touch()


def other_tables(folder: Path) -> None:
    (folder / "warehouse").mkdir()
    SqlCatalog("lake", uri=f"sqlite:///{folder}/warehouse/catalog.db")


def file_as_warehouse(folder: Path) -> None:
    (folder / "warehouse").write_text("a file")


def garbage(folder: Path) -> None:
    break_catalog(folder, "garbage")


def folder_as_catalog(folder: Path) -> None:
    break_catalog(folder, "folder")


def settled() -> float:
    """A time at which no landed file is young."""
    return time.time() + 600


def catalogs(folder: Path) -> Iterator[dict[str, Any]]:
    """The embedded catalog, and the same file as a JDBC catalog by configuration."""
    yield {}
    yield {"catalog": {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/warehouse/catalog.db"}}


@pytest.mark.parametrize("make", [no_lake, empty_catalog, other_tables])
def test_a_table_that_does_not_exist_was_never_made(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path)
    for lake in catalogs(tmp_path):
        if make is no_lake and lake:
            continue  # SQLite can't open a file in a folder that is missing
        config = config_of(tmp_path, **lake)
        with pytest.raises(MissingTableError, match="cdc-assets run --"):
            open_table(config, own_table("shop", "landing"))
        wanted = days_to_request(FileLanding(config, "shop"), settled())
        assert wanted is not None
        assert wanted.changed == (DAY,)


@pytest.mark.parametrize("make", [file_as_warehouse, garbage, folder_as_catalog])
def test_an_outage_of_the_catalog_asks_for_no_day(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path)
    for lake in catalogs(tmp_path):
        config = config_of(tmp_path, **lake)
        with pytest.raises(LakeError, match=r"catalog.* can't be read: ") as raised:
            days_to_request(FileLanding(config, "shop"), settled())
        assert not isinstance(raised.value, MissingTableError)
        assert "\n" not in str(raised.value)


def test_a_catalog_server_that_does_not_answer_asks_for_no_day(tmp_path: Path) -> None:
    rest = {"type": "rest", "uri": "http://127.0.0.1:9"}
    config = config_of(tmp_path, catalog=rest)
    with pytest.raises(LakeError, match=r"the catalog \(rest\) can't be read: ") as raised:
        days_to_request(FileLanding(config, "shop"), settled())
    assert not isinstance(raised.value, MissingTableError)


def test_the_sensor_fails_with_the_outage_and_requests_nothing(tmp_path: Path) -> None:
    garbage(tmp_path)
    defs = build_definitions(config_of(tmp_path))
    sensor = defs.resolve_sensor_def("landed_files")
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance, definitions=defs) as context,
        pytest.raises(dg.Failure, match=r"shop: the catalog .* can't be read"),
    ):
        sensor.evaluate_tick(context)


# -- the command line ----------------------------------------------------------------------------


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`cdc-assets` in a process of its own, in a folder with cdc.yaml and a landed day."""
    ev.write_landing(folder / "landing", {DAY: [ev.created({"id": 1}, offset=1)]})
    raw = {
        "lake": {"warehouse": "warehouse"},
        "start_date": str(DAY),
        "sources": {"shop": lakes.source_config("landing", tables=TABLES)},
    }
    (folder / "cdc.yaml").write_text(json.dumps(raw), "utf-8")
    own = {"CDC_CONFIG": str(folder / "cdc.yaml"), "PYTHONPATH": str(REPOSITORY)}
    kept = {k: v for k, v in os.environ.items() if k not in ("CDC_WAREHOUSE", "DAGSTER_HOME")}
    return subprocess.run(
        [sys.executable, "-m", "cdc_assets.cli.app", *arguments],
        cwd=folder,
        env={**kept, **own},
        capture_output=True,
        text=True,
        timeout=300,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], says: str) -> None:
    """One error on the terminal, without a stack trace."""
    assert done.returncode == 1, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert errors, done.stderr
    assert says in errors[0]
    for trace in ("Traceback", "\tat ", "\\tat ", "JVM stacktrace", "Py4JJavaError"):
        assert trace not in done.stderr, done.stderr


def test_a_session_is_not_started_over_a_warehouse_that_cannot_be_made(tmp_path: Path) -> None:
    file_as_warehouse(tmp_path)
    with pytest.raises(LakeError, match=r"the warehouse .* can't be created \(File exists"):
        build_session(config_of(tmp_path))
    done = command(tmp_path, "run", "--from", str(DAY))
    assert_one_line(done, "shop__landing: the warehouse ")


@pytest.mark.slow
def test_a_run_over_a_broken_catalog_ends_in_one_line_and_its_trace_is_in_the_named_log(
    tmp_path: Path,
) -> None:
    file = break_catalog(tmp_path, "garbage")
    done = command(tmp_path, "run", "--from", str(DAY), "--to", str(DAY))
    assert_one_line(done, f"error: shop__landing: the catalog {file} is damaged")
    log = tmp_path / ".dagster" / "spark.log"
    assert f"logs: {log}" in done.stderr
    assert "\tat org.sqlite." in log.read_text("utf-8", errors="replace")


@pytest.mark.slow
def test_maintenance_of_a_broken_catalog_ends_in_one_line_and_names_its_log(
    tmp_path: Path,
) -> None:
    file = break_catalog(tmp_path, "garbage")
    done = command(tmp_path, "maintain")
    assert_one_line(done, f"error: the catalog {file} is damaged")
    log = Path(done.stderr.rpartition("Spark's log: ")[2].strip())
    assert "\tat org.sqlite." in log.read_text("utf-8", errors="replace")
    shutil.rmtree(log.parent)
