"""One Spark session and one warehouse a test session; a test has sources of its own names."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc import spark as cdc_spark
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.jars import fetched_jar, ivy_folder
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import SMALL_WORK, build_session, packages_of
from cdc_assets_tests import events as ev
from cdc_assets_tests.lakes import config_of, source_config
from cdc_assets_tests.paths import CASES

if TYPE_CHECKING:
    from cdc_assets_tests.e2e.stack import Broker

LakeOf = Callable[..., Lake]
SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "4g",
    # Small plans in great number, most of them run once: generating code for them does not pay.
    # Spark itself, which plans them for minutes, is worth both of Java's compilers and room for
    # what they make; once warm it plans in half the time. The better compiler takes a third of a
    # core: it is left what runs four times as often as Java's defaults ask.
    **SMALL_WORK,
    "spark.driver.extraJavaOptions": (
        "-XX:ReservedCodeCacheSize=480m -XX:InitialRAMPercentage=8 "
        "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 "
        "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
    ),
}

# The same draws in every run; --hypothesis-profile=default draws others each time.
hypothesis.settings.register_profile("repeatable", derandomize=True, database=None)
hypothesis.settings.load_profile("repeatable")

# Where tests run in the background, their shell has made them, and the commands that they start,
# deaf to Ctrl-C, which some of them wait for.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the session's lake: a catalog's warehouse can't change with a test."""
    os.environ.pop("CDC_WAREHOUSE", None)
    return tmp_path_factory.mktemp("lake") / "warehouse"


@pytest.fixture(scope="session")
def spark(warehouse: Path) -> Iterator[SparkSession]:
    # Delta's module can only be there from the start.
    delta = {"table": {"path": str(warehouse), "format": "delta"}}
    sources = {"none": source_config(warehouse), "delta": {"format": "debezium", "landing": delta}}
    config = config_of(sources, warehouse, spark=SPARK)
    with _fetching_alone(config):
        session = build_session(config)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@contextmanager
def _fetching_alone(config: Config) -> Iterator[None]:
    """One process at a time fetches jars: Ivy's folder has no lock, and workers begin together."""
    ivy = ivy_folder(config.spark)
    with (Path(tempfile.gettempdir()) / "cdc-assets-jars.lock").open("w") as lock:
        if not all(fetched_jar(package, ivy).exists() for package in packages_of(config)):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def lake_of(spark: SparkSession, warehouse: Path) -> LakeOf:
    """``lake_of(sources, start=…, **top)``: the session's lake as these sources see it."""
    return _lakes(spark, warehouse)


def _lakes(session: SparkSession, warehouse: Path) -> LakeOf:
    def make(sources: dict[str, Any], start: date = ev.DAY, **top: Any) -> Lake:
        return Lake(session, config_of(sources, warehouse, start, **top))

    return make


LARGE_WORK = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
}


@pytest.fixture
def large_lake_of(spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> LakeOf:
    """As `lake_of`; all work, however small, has the settings that large days have."""
    monkeypatch.setattr(cdc_spark, "SMALL_ROWS", -1)
    settings = {**spark.conf.getAll, **LARGE_WORK}
    twin = SparkSession(spark.sparkContext, spark._jsparkSession.newSession(), settings)
    for name in SMALL_WORK.keys() - LARGE_WORK.keys():
        twin.conf.unset(name)
    return _lakes(twin, warehouse)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker of this session; `make e2e` gets its jars."""
    from cdc_assets_tests.e2e.stack import Broker

    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files begin first, so that two workers end together. Tests that start processes
    and wait for them begin before all others, which run meanwhile. Tests of events from outside
    are left out where there are none."""
    items.sort(key=_turn)
    if not CASES.is_dir():
        left_out = [item for item in items if item.get_closest_marker("cases")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


# The longest of the tests against the real stack, and of the long ones: before the processes.
_FIRST = ("test_live.py", "test_streamed_tables.py", "test_wheel.py")
# Files of more than about a minute, the longest first.
_LONGEST = (
    "test_idempotence.py",
    "test_worlds.py",
    "test_order.py",
    "test_takeovers.py",
    "test_history.py",
    "test_registry.py",
    "test_rules.py",
    "test_keys.py",
    "test_protected.py",
    "test_sample.py",
    "test_flattened.py",
    "test_as_recorded.py",
    "test_mongodb.py",
    "test_made_of.py",
    "test_maintenance.py",
    "test_discover.py",
    "test_connect.py",
    "test_evolution.py",
    "test_adopted_tables.py",
    "test_limits.py",
    "test_concurrency.py",
)


def _turn(item: pytest.Item) -> int:
    file = item.path.name
    if file in _FIRST:
        return _FIRST.index(file) - len(_FIRST)
    if item.get_closest_marker("process") is not None:
        return 0
    if file in _LONGEST:
        return 1 + _LONGEST.index(file)
    return 1 + len(_LONGEST) + (item.path.parent.parent.name != "cdc")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seconds that each file took, fixtures included, and what was left out."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.split("::")[0]] += report.duration
    terminalreporter.section("seconds by file")
    for file, took in seconds.most_common():
        terminalreporter.write_line(f"{took:7.0f}  {file}")
    if not CASES.is_dir():
        terminalreporter.write_line(
            f"left out: the tests that read real events; no folder {CASES} (CDC_CASES names it)"
        )


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A source's name that no other test has."""
    place = f"{request.path.stem.removeprefix('test_')}__{request.node.name}"
    return re.sub(r"[^A-Za-z0-9_]", "_", place)[:100]
