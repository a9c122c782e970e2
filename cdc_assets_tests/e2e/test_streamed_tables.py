"""Topics copied into tables by a stream that is killed. The truth is `SELECT * FROM`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import SHORT_RUN
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.e2e import tables as t
from cdc_assets_tests.e2e.stack import Process, wait_for
from cdc_assets_tests.e2e.test_live import compare, today, unread
from cdc_assets_tests.e2e.world import Variant, World, world
from cdc_assets_tests.lakes import land, landing_found, run_all, stage_rows
from cdc_assets_tests.paths import REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.sinks]

SEED = 20260303
# Rows without a key among them: an event that is read twice is a row too many.
STREAMED = Variant("streamed", tables=(t.ORDERS, t.FULL, t.INDEXED, t.TOASTED, t.AUDIT, t.BAG))
ICEBERG = "lake.bronze.kafka_raw"
KILLED_AT = 2  # the batch that is written and not confirmed, after 0 and 1

Place = tuple[str, int, int]  # topic, partition, offset


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world((STREAMED,), SEED, tmp_path_factory.mktemp("live")) as running:
        yield running


class Stream:
    """Fills an Iceberg and a Delta table from Kafka, in a process that ends with its block."""

    def __init__(self, live: World, lake: Lake, sources: dict[str, Any], folder: Path) -> None:
        self.lake, self.folder = lake, folder
        self.servers = live.stack.broker.servers
        self.delta = sources["delta"]["landing"]["table"]["path"]
        self.config = folder / "cdc.yaml"
        raw = {
            "lake": {"warehouse": lake.config.lake.warehouse},
            "spark": {"master": "local[2]", "memory": "1g", **SHORT_RUN},
            "start_date": lake.config.start_date,
            "sources": sources,
        }
        self.config.write_text(yaml.safe_dump(raw))

    @contextmanager
    def running(self, *waits_at: str) -> Iterator[Process]:
        command = [
            sys.executable, "-m", "cdc_assets_tests.e2e.stream_topics", str(self.config),
            self.servers, STREAMED.pattern, ICEBERG, self.delta, str(self.folder), *waits_at,
        ]  # fmt: skip
        process = Process.start("stream", command, self.folder / "stream.log", cwd=REPOSITORY)
        try:
            yield process
        finally:
            process.stop(signal.SIGKILL)

    @property
    def waits(self) -> bool:
        """Whether it has written the batch that it then does not confirm."""
        return (self.folder / "written").exists()

    def batches(self, table: str, kind: str) -> set[int]:
        """The batches that a checkpoint knows as begun (`offsets`) or confirmed (`commits`)."""
        files = (self.folder / table / kind).glob("[0-9]*")
        return {int(file.name) for file in files}

    def places(self, table: str) -> list[Place]:
        """The place in Kafka of each row of a table, as it is now."""
        spark = self.lake.spark
        delta = spark.read.format("delta")
        rows = spark.table(ICEBERG) if table == "iceberg" else delta.load(self.delta)
        return [(r[0], r[1], r[2]) for r in rows.select("topic", "partition", "offset").collect()]


def test_tables_of_a_killed_stream_equal_the_database(
    live: World, lake_of: LakeOf, tmp_path: Path
) -> None:
    first = today()
    landings: dict[str, Any] = {
        "iceberg": {"table": ICEBERG},
        "delta": {"table": {"path": str(tmp_path / "kafka_raw"), "format": "delta"}},
    }
    sources = {
        name: {"format": "debezium", "landing": landing, "tables": STREAMED.table_configs()}
        for name, landing in landings.items()
    }
    lake = lake_of(sources, first)
    stream = Stream(live, lake, sources, tmp_path)

    with stream.running(str(KILLED_AT)) as killed:
        _write_until(live, "a batch that is not confirmed", killed, lambda: stream.waits)
    assert killed.popen.returncode == -signal.SIGKILL
    assert stream.batches("delta", "offsets") == {*range(KILLED_AT + 1)}
    assert stream.batches("delta", "commits") == {*range(KILLED_AT)}
    assert stream.batches("iceberg", "commits")

    live.workload.run(40)
    live.workload.run_rare()
    # What the stream writes from here on comes to a day that has landed; the other source lands all
    # at once, what is there twice too.
    land(lake, "iceberg", _days(first))

    with stream.running() as again:
        since = {KILLED_AT, KILLED_AT + 1}
        _write_until(
            live, "more batches", again, lambda: since <= stream.batches("delta", "commits")
        )
        truth = live.cut()[STREAMED.prefix]
        sent = {_place(vars(record)) for record in live.records(*live.topics(STREAMED))}
        wait_for(
            "all that was sent, in both tables",
            lambda: again.check() and all(sent <= {*stream.places(name)} for name in sources),
            240,
            every=1,
        )
    delta = stream.places("delta")
    assert len(delta) > len({*delta})  # the killed batch is there twice

    days = _days(first)
    for source in sources:
        run_all(lake, source, days)
        landed = [_place(row) for row in stage_rows(lake, source, "landing")]
        assert len(landed) == len({*landed})
        assert sent <= {*landed}
        for day, found in landing_found(lake, source, days).items():
            assert all(finding.passed for finding in found), (day, found)
        assert unread(stage_rows(lake, source, "quarantine")) == []
        compare(lake, source, STREAMED, days[-1], truth, "after the kill")


def _days(first: date) -> list[date]:
    """The days since the test began: two where midnight has passed."""
    return [first + timedelta(days=n) for n in range((today() - first).days + 1)]


def _write_until(live: World, what: str, stream: Process, is_there: Callable[[], bool]) -> None:
    """Let transactions run until the stream has come so far."""

    def write_and_look() -> bool:
        live.workload.run(3)
        return stream.check() and is_there()

    wait_for(what, write_and_look, 240, every=0.5)


def _place(row: Mapping[str, Any]) -> Place:
    return row["topic"], row["partition"], row["offset"]
