"""The Kafka landing against a real broker: which offsets land on which day, and what stops it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.discovery import landing_place, sources_block
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.metadata import PyIcebergMetadata
from cdc_assets.cdc.landing.kafka import read_latest
from cdc_assets.cdc.landing.kafka_plan import KafkaDay
from cdc_assets.cdc.stages.landing import LandingStage
from cdc_assets_tests import events as ev
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.e2e.stack import PASSWORD, USER, free_port, wait_for
from cdc_assets_tests.lakes import land, landing_found, stage_rows
from cdc_assets_tests.paths import REPOSITORY
from cdc_assets_tests.topics import Topic, at, kafka_source

if TYPE_CHECKING:
    from cdc_assets_tests.e2e.stack import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

DAY_1, DAY_2, DAY_3, DAY_4 = (date(2026, 3, 1) + timedelta(days=n) for n in range(4))


class Clock:
    """Says which days are over: the only thing here that is not real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.today = DAY_4
        monkeypatch.setattr(Config, "is_open", lambda _, day: day >= self.today)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def landed(lake: Lake, name: str) -> dict[date, list[tuple[int, int, str | None]]]:
    """Partition, offset and value of what each day holds."""
    days: dict[date, list[tuple[int, int, str | None]]] = {}
    for row in stage_rows(lake, name, "landing"):
        value = None if row["value"] is None else row["value"].decode()
        days.setdefault(row["landing_date"], []).append((row["partition"], row["offset"], value))
    return {day: sorted(rows) for day, rows in sorted(days.items())}


def offsets(lake: Lake, name: str) -> dict[date, list[int]]:
    """The offsets of a source with one partition."""
    return {day: [o for _, o, _ in rows] for day, rows in landed(lake, name).items()}


def faults(lake: Lake, name: str, days: list[date]) -> dict[date, int]:
    """How many faults the check of the landing finds."""
    found = landing_found(lake, name, days)
    return {day: findings[0].values["faults"] for day, findings in found.items()}


def now() -> int:
    return time.time_ns() // 1_000_000


def of(lake_of: LakeOf, name: str, source: dict[str, Any], start: date = DAY_1) -> Lake:
    return lake_of({name: source}, start)


def test_days_are_contiguous_whatever_the_order_of_timestamps(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(broker, name, partitions=2)
    topic.put(["before"], at(DAY_1 - timedelta(days=5)))
    topic.put(["a", "b"], at(DAY_1), headers=[("h", b"\x00\xff"), ("none", None), ("h", b"2")])
    topic.put(["c"], at(DAY_2))
    topic.put(["late, of day 1"], at(DAY_1, 23))
    topic.put(["d"], at(DAY_3))
    topic.put(["x", None], at(DAY_2), partition=1, key="k")
    lake = of(lake_of, name, kafka_source(broker, [name]))

    days = land(lake, name, [DAY_1, DAY_2, DAY_3])

    assert landed(lake, name) == {
        DAY_1: [(0, 0, "before"), (0, 1, "a"), (0, 2, "b")],
        DAY_2: [(0, 3, "c"), (0, 4, "late, of day 1"), (1, 0, "x"), (1, 1, None)],
        DAY_3: [(0, 5, "d")],
    }
    ranges = [day.ranges for day in days if isinstance(day, KafkaDay)]
    assert ranges == [
        {(name, 0): (0, 3), (name, 1): (0, 0)},
        {(name, 0): (3, 5), (name, 1): (0, 2)},
        {(name, 0): (5, 6), (name, 1): (2, 2)},
    ]
    assert faults(lake, name, [DAY_1, DAY_2, DAY_3]) == {DAY_1: 0, DAY_2: 0, DAY_3: 0}
    row = next(r for r in stage_rows(lake, name, "landing") if r["offset"] == 1)
    assert row["headers"] == [
        {"key": "h", "value": b"\x00\xff"},
        {"key": "none", "value": None},
        {"key": "h", "value": b"2"},
    ]
    assert row["timestamp"].timestamp() * 1000 == at(DAY_1)
    assert (row["timestamp_type"], row["file"]) == (0, None)


def test_a_closed_day_made_again_reads_the_same_offsets(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(broker, name)
    topic.put(["a", "b"], at(DAY_1))
    lake = of(lake_of, name, kafka_source(broker, [name]))
    land(lake, name, [DAY_1])
    commit = lake.day_commits(name, "landing")[DAY_1]
    topic.put(["came after the day was landed"], at(DAY_1, 23))
    topic.put(["c"], at(DAY_2))

    land(lake, name, [DAY_1])
    assert lake.day_commits(name, "landing")[DAY_1] == commit
    land(lake, name, [DAY_1], force=True)
    assert offsets(lake, name) == {DAY_1: [0, 1]}
    land(lake, name, [DAY_2])
    assert offsets(lake, name) == {DAY_1: [0, 1], DAY_2: [2, 3]}


def test_days_may_be_landed_in_any_order(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(broker, name)
    for day in (DAY_1, DAY_2, DAY_3):
        topic.put(["a", "b"], at(day))
    lake = of(lake_of, name, kafka_source(broker, [name]))

    land(lake, name, [DAY_3])
    topic.put(["of day 1, written after day 3 was landed"], at(DAY_1))
    land(lake, name, [DAY_1])
    land(lake, name, [DAY_2])

    assert offsets(lake, name) == {DAY_1: [0, 1], DAY_2: [2, 3], DAY_3: [4, 5]}
    assert faults(lake, name, [DAY_1, DAY_2, DAY_3]) == {DAY_1: 0, DAY_2: 0, DAY_3: 0}


def test_an_open_day_grows_and_is_closed_at_its_end(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(broker, name)
    topic.put(["a"], at(DAY_1))
    lake = of(lake_of, name, kafka_source(broker, [name]))
    clock.today = DAY_1
    (day,) = land(lake, name, [DAY_1])
    assert isinstance(day, KafkaDay)
    assert (day.closed, offsets(lake, name)) == (False, {DAY_1: [0]})

    topic.put(["b"], at(DAY_1, 20))
    # What is landed stays, and does not have to be there still.
    topic.delete_until(1)
    (day,) = land(lake, name, [DAY_1])
    assert isinstance(day, KafkaDay)
    assert (day.closed, offsets(lake, name)) == (False, {DAY_1: [0, 1]})

    topic.put(["c"], at(DAY_1, 23))
    topic.put(["d"], at(DAY_2))
    clock.today = DAY_2
    first, second = land(lake, name, [DAY_1, DAY_2])
    assert isinstance(first, KafkaDay)
    assert isinstance(second, KafkaDay)
    assert (first.closed, second.closed) == (True, False)
    assert offsets(lake, name) == {DAY_1: [0, 1, 2], DAY_2: [3]}


def _to_land(lake: Lake, source: str, days: list[date]) -> list[date]:
    return LandingStage(lake.config, source).stale(PyIcebergMetadata(lake.config), days)


def test_a_closed_day_is_up_to_date_without_asking_kafka_and_an_open_one_is_not(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(broker, name)
    topic.put(["a"], at(DAY_1))
    lake = of(lake_of, name, kafka_source(broker, [name]))
    clock.today = DAY_1
    land(lake, name, [DAY_1])
    assert _to_land(lake, name, [DAY_1]) == [DAY_1]
    clock.today = DAY_2
    land(lake, name, [DAY_1])
    assert _to_land(lake, name, [DAY_1]) == []
    landed_days = PyIcebergMetadata(lake.config).day_commits(name, "landing")
    assert landed_days[DAY_1] == lake.day_commits(name, "landing")[DAY_1]
    assert _to_land(lake, name, [DAY_1, DAY_2]) == [DAY_2]


def test_an_open_day_without_news_is_left_as_it_is(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(broker, name)
    topic.put(["a"], at(DAY_1))
    lake = of(lake_of, name, kafka_source(broker, [name]))
    clock.today = DAY_1
    land(lake, name, [DAY_1])
    commit = lake.day_commits(name, "landing")[DAY_1]
    land(lake, name, [DAY_1])
    assert lake.day_commits(name, "landing")[DAY_1] == commit


def test_the_day_after_an_open_one_leaves_it_its_records(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(broker, name)
    topic.put(["a"], at(DAY_1))
    lake = of(lake_of, name, kafka_source(broker, [name]))
    clock.today = DAY_1
    land(lake, name, [DAY_1])
    topic.put(["b"], at(DAY_1, 23))
    topic.put(["c"], at(DAY_2))
    clock.today = DAY_2
    land(lake, name, [DAY_2])
    assert faults(lake, name, [DAY_2]) == {DAY_2: 1}
    land(lake, name, [DAY_1])
    assert offsets(lake, name) == {DAY_1: [0, 1], DAY_2: [2]}
    assert faults(lake, name, [DAY_1, DAY_2]) == {DAY_1: 0, DAY_2: 0}


def test_a_record_that_is_dated_ahead_holds_up_no_day(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(broker, name)
    topic.put(["a"], at(DAY_1))
    topic.put(["of a clock that is wrong"], at(date(2040, 1, 1)))
    topic.put(["b"], at(DAY_1))
    topic.put(["c"], at(DAY_2))
    topic.put(["d"], at(DAY_3))
    lake = of(lake_of, name, kafka_source(broker, [name]))
    land(lake, name, [DAY_1])
    land(lake, name, [DAY_2, DAY_3])
    assert offsets(lake, name) == {DAY_1: [0, 1, 2], DAY_2: [3], DAY_3: [4]}


def test_only_committed_transactions_land(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    # The marks of transactions have the broker's own time, so the day is today's.
    today = clock.today = datetime.now(timezone.utc).date()
    topic = Topic(broker, name)
    topic.put(["plain"], now())
    with topic.transaction(["aborted 1", "aborted 2"], now()) as producer:
        producer.abort_transaction(30)
    with topic.transaction(["committed"], now()) as producer:
        producer.commit_transaction(30)
    lake = of(lake_of, name, kafka_source(broker, [name]), today)
    # The marks of a transaction are written after its producer has gone on.
    wait_for("commit", lambda: len(topic.offsets()) == 2)
    with topic.transaction(["open"], now()) as producer:
        topic.put(["behind the open one"], now())
        # Its records are not decided, nor is the order behind them read.
        (day,) = land(lake, name, [today])
        assert isinstance(day, KafkaDay)
        assert [v for _, _, v in landed(lake, name)[today]] == ["plain", "committed"]
        assert day.ranges == {(name, 0): (0, 6)}
        producer.commit_transaction(30)
    wait_for("commit", lambda: len(topic.offsets()) == 4)
    land(lake, name, [today])

    values = [v for _, _, v in landed(lake, name)[today]]
    assert values == ["plain", "committed", "open", "behind the open one"]
    # Aborted records and the marks of transactions are offsets without a record, and no fault.
    assert faults(lake, name, [today]) == {today: 0}


def test_gaps_of_compaction_are_no_loss_and_landed_records_stay(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(
        broker, name, cleanup_policy="compact", segment_ms=50, min_cleanable_dirty_ratio=0.01,
        min_compaction_lag_ms=0, max_compaction_lag_ms=100,
    )  # fmt: skip
    lake = of(lake_of, name, kafka_source(broker, [name]))
    for n in range(3):
        topic.put([f"{n}"], at(DAY_1), key="one")
    land(lake, name, [DAY_1])
    assert offsets(lake, name) == {DAY_1: [0, 1, 2]}

    for n in range(3, 6):
        topic.put([f"{n}"], at(DAY_2) + 10 * n, key="one")
    topic.put(["end"], at(DAY_2, 23), key="two")  # rolls the segment before it

    def is_compacted() -> bool:
        topic.put(["end"], at(DAY_3), key=f"{os.urandom(4).hex()}")
        return not {0, 1, 2, 3, 4} & set(topic.offsets())

    wait_for("compaction", is_compacted, 90)
    (day,) = land(lake, name, [DAY_2])
    assert isinstance(day, KafkaDay)
    assert day.ranges == {(name, 0): (3, 7)}
    assert offsets(lake, name)[DAY_2] == [5, 6]
    assert faults(lake, name, [DAY_1, DAY_2]) == {DAY_1: 0, DAY_2: 0}

    with pytest.raises(LandingError, match=f"{DAY_1}: 3 landed, 0 left"):
        land(lake, name, [DAY_1], force=True)
    assert offsets(lake, name)[DAY_1] == [0, 1, 2]
    land(lake, name, [DAY_1], force=True, allow_loss=True)
    assert DAY_1 not in offsets(lake, name)


def test_retention_that_passed_is_an_error_that_says_what_is_lost(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(broker, name)
    topic.put(["a", "b"], at(DAY_1))
    lake = of(lake_of, name, kafka_source(broker, [name]))
    land(lake, name, [DAY_1])
    topic.put(["c", "d", "e"], at(DAY_2))
    topic.delete_until(4)

    with pytest.raises(LandingError, match=r"offsets 2 to 3 are gone .* the first one left is 4"):
        land(lake, name, [DAY_2])
    assert offsets(lake, name) == {DAY_1: [0, 1]}
    with pytest.raises(LandingError, match=r"offsets 0 to 1 are gone"):
        land(lake, name, [DAY_1], force=True)
    assert offsets(lake, name) == {DAY_1: [0, 1]}

    (day,) = land(lake, name, [DAY_2], allow_loss=True)
    assert isinstance(day, KafkaDay)
    assert (day.ranges, day.lost) == ({(name, 0): (2, 5)}, {(name, 0): (2, 4)})
    assert offsets(lake, name) == {DAY_1: [0, 1], DAY_2: [4]}
    assert faults(lake, name, [DAY_2]) == {DAY_2: 1}
    topic.put(["f"], at(DAY_3))
    land(lake, name, [DAY_3])
    assert offsets(lake, name)[DAY_3] == [5]
    assert faults(lake, name, [DAY_3]) == {DAY_3: 0}


def test_a_first_landing_finds_out_that_retention_has_passed(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(broker, name)
    topic.put(["a"], at(DAY_1))
    topic.put(["b", "c"], at(DAY_2))
    topic.put(["d"], at(DAY_3))
    topic.delete_until(2)
    lake = of(lake_of, name, kafka_source(broker, [name]))
    with pytest.raises(LandingError, match=r"its first 2 offsets are gone"):
        land(lake, name, [DAY_2])
    # A record from before the day is there, so nothing of the day is missing.
    land(lake, name, [DAY_3])
    assert offsets(lake, name) == {DAY_3: [3]}


def test_a_topic_that_was_made_again_is_an_error(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    topic = Topic(broker, name)
    topic.put(["a", "b"], at(DAY_1))
    lake = of(lake_of, name, kafka_source(broker, [name]))
    land(lake, name, [DAY_1])
    topic.delete()
    topic.create()
    # As many offsets as before: only its id tells.
    topic.put(["new 1", "new 2", "new 3"], at(DAY_2))
    with pytest.raises(LandingError, match=r"deleted and made again; it was landed up to offset 2"):
        land(lake, name, [DAY_2])
    land(lake, name, [DAY_2], allow_loss=True)
    assert offsets(lake, name) == {DAY_1: [0, 1], DAY_2: [0, 1, 2]}
    topic.put(["new 4"], at(DAY_3))
    land(lake, name, [DAY_3])
    assert offsets(lake, name)[DAY_3] == [3]
    assert faults(lake, name, [DAY_2, DAY_3]) == {DAY_2: 1, DAY_3: 0}


def test_new_partitions_and_topics_appear_by_themselves(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    first = Topic(broker, f"{name}.first")
    first.put(["a"], at(DAY_1))
    lake = of(lake_of, name, kafka_source(broker, pattern=rf"{name}\..*"))
    land(lake, name, [DAY_1])
    first.add_partitions(2)
    # The clock of its producer is behind: it was not there when day 1 was landed.
    first.put(["b"], at(DAY_1, 23), partition=1)
    second = Topic(broker, f"{name}.second")
    second.put(["c"], at(DAY_1))
    Topic(broker, f"{name}-other").put(["not of the pattern"], at(DAY_2))
    land(lake, name, [DAY_2])

    rows = stage_rows(lake, name, "landing", [DAY_2])
    assert sorted((r["topic"], r["partition"], r["offset"]) for r in rows) == [
        (first.name, 1, 0),
        (second.name, 0, 0),
    ]
    assert faults(lake, name, [DAY_2]) == {DAY_2: 0}
    second.delete()
    with pytest.raises(LandingError, match=rf"topic {name}.second is gone; .* up to 1 \[0\]"):
        land(lake, name, [DAY_3])
    land(lake, name, [DAY_3], allow_loss=True)
    land(lake, name, [DAY_4])


def test_a_missing_topic_is_named(broker: Broker, lake_of: LakeOf, name: str) -> None:
    lake = of(lake_of, name, kafka_source(broker, [f"{name}-typo"]))
    with pytest.raises(LandingError, match=f"topic {name}-typo is missing at {broker.servers}"):
        land(lake, name, [DAY_1])
    lake = of(lake_of, name, kafka_source(broker, pattern=f"{name}-no.*"))
    with pytest.raises(LandingError, match="no topic matches topic_pattern"):
        land(lake, name, [DAY_1])


def test_an_unreachable_broker_is_an_error_in_seconds(
    broker: Broker, lake_of: LakeOf, name: str
) -> None:
    servers = f"127.0.0.1:{free_port()}"
    lake = of(lake_of, name, kafka_source(broker, [name], servers=servers))
    with pytest.raises(LandingError, match=rf"{servers}: no broker answers"):
        land(lake, name, [DAY_1])


def sasl(password: str) -> dict[str, str]:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{login} username="{USER}" password="{password}";',
    }


def test_credentials_open_a_listener_and_wrong_ones_are_told_without_them(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock
) -> None:
    Topic(broker, name).put(["a"], at(DAY_1))
    right = kafka_source(broker, [name], servers=broker.sasl_servers, options=sasl(PASSWORD))
    wrong = kafka_source(broker, [name], servers=broker.sasl_servers, options=sasl("guessed"))
    lake = of(lake_of, name, wrong)
    with pytest.raises(LandingError, match="the credentials were refused") as refused:
        land(lake, name, [DAY_1])
    assert "guessed" not in str(refused.value)
    lake = of(lake_of, name, right)
    land(lake, name, [DAY_1])
    assert offsets(lake, name) == {DAY_1: [0]}
    assert PASSWORD not in repr(lake.config)


def test_a_day_of_files_is_not_replaced_by_kafka(
    broker: Broker, lake_of: LakeOf, name: str, clock: Clock, tmp_path: Path
) -> None:
    (tmp_path / str(DAY_1)).mkdir()
    (tmp_path / str(DAY_1) / "a.jsonl").write_text('{"topic":"t","partition":0,"offset":7}\n')
    land(
        of(lake_of, name, {"format": "debezium", "landing": {"files": str(tmp_path)}}),
        name,
        [DAY_1],
    )
    Topic(broker, name).put(["a"], at(DAY_1))
    lake = of(lake_of, name, kafka_source(broker, [name]))
    with pytest.raises(LandingError, match="landed from files before"):
        land(lake, name, [DAY_1])
    assert offsets(lake, name) == {DAY_1: [7]}


def test_the_latest_records_are_read_without_landing_them(
    broker: Broker, lake_of: LakeOf, name: str
) -> None:
    topic = Topic(broker, name, partitions=2)
    topic.put(["a", "b", "c"], at(DAY_1))
    topic.put(["d"], at(DAY_2), partition=1)
    lake = of(lake_of, name, kafka_source(broker, [name]))
    kafka = lake.config.source(name).landing.kafka
    assert kafka is not None
    rows = read_latest(lake.spark, name, kafka, 2).collect()
    assert sorted((r.partition, r.offset, r.landing_date) for r in rows) == [
        (0, 1, DAY_1),
        (0, 2, DAY_1),
        (1, 0, DAY_2),
    ]


def test_a_kafka_source_is_discovered_from_its_latest_records(
    broker: Broker, lake_of: LakeOf, name: str
) -> None:
    log = ev.PgLog("shop", "public", "customers", types={"id": "int32", "name": "string"})
    log.create(id=1, name="Ada")
    topic = Topic(broker, name)
    for record in log.landed[ev.DAY]:
        topic.put([record.value], at(ev.DAY), key=(record.key or b"").decode())
    lake = of(lake_of, name, kafka_source(broker, [name]))
    source = lake.config.source(name)
    place = landing_place.Place(name, "topics", None, settings=source)
    found = landing_place.discover(lake.spark, place)
    block = sources_block.proposed(found, place)["sources"][name]
    assert block["format"] == "debezium"
    assert block["landing"] == {"kafka": {"bootstrap_servers": broker.servers, "topics": [name]}}
    assert list(block["tables"]) == ["public.customers"]


def run_cli(config: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{k: v for k, v in os.environ.items() if k != "CDC_WAREHOUSE"},
        "CDC_CONFIG": str(config),
        "DAGSTER_HOME": str(home),
        "KAFKA_PASSWORD": PASSWORD,
    }
    return subprocess.run(
        [sys.executable, "-m", "cdc_assets.cli.app", *arguments],
        env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_a_run_over_a_loss_keeps_secrets_out_of_logs_and_metadata(
    broker: Broker, tmp_path: Path, name: str
) -> None:
    topic = Topic(broker, name)
    topic.put(["a", "b"], at(DAY_1))
    topic.delete_until(1)
    logging = tmp_path / "log4j2.properties"
    logging.write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.err.ref = err\n"
        "logger.kafka.name = org.apache.kafka\nlogger.kafka.level = info\n"
        "appender.err.type = Console\nappender.err.name = err\nappender.err.target = SYSTEM_ERR\n"
        "appender.err.layout.type = PatternLayout\nappender.err.layout.pattern = %c %m%n\n"
    )
    options = {**sasl("${KAFKA_PASSWORD}"), "kafka.client.id": "cdc"}
    source = kafka_source(broker, [name], servers=broker.sasl_servers, options=options)
    raw = {
        "lake": {"warehouse": str(tmp_path / "warehouse")},
        "spark": {
            "master": "local[2]",
            "memory": "1g",
            "log.level": "INFO",
            "driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
        },
        "start_date": DAY_1,
        "sources": {"shop": source},
    }
    config, home = tmp_path / "cdc.yaml", tmp_path / "home"
    config.write_text(yaml.safe_dump(raw))
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")

    without = run_cli(config, home, "run", "--verbose", "--from", str(DAY_1))
    assert without.returncode == 1
    assert "its first 1 offsets are gone" in without.stderr
    assert "--allow-loss" in without.stderr
    with_loss = run_cli(config, home, "run", "--verbose", "--from", str(DAY_1), "--allow-loss")
    assert with_loss.returncode == 0, with_loss.stderr[-3000:]

    # Dagster keeps what the JVM says beside its records.
    told = [without.stdout, without.stderr, with_loss.stdout, with_loss.stderr]
    written = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    written += [text.encode() for text in told]
    assert any(b"sasl.jaas.config = [hidden]" in content for content in written)
    assert any(name.encode() in content for content in written)
    assert not any(PASSWORD.encode() in content for content in written)


def test_the_doctor_looks_at_topics_and_credentials(
    broker: Broker, tmp_path: Path, name: str
) -> None:
    topic = Topic(broker, name, partitions=2)
    topic.put(["a", "b"], at(DAY_1))
    topic.put(["c"], at(DAY_1), partition=1)
    sources = {
        "right": kafka_source(
            broker, [name], servers=broker.sasl_servers, options=sasl("${KAFKA_PASSWORD}")
        ),
        "refused": kafka_source(
            broker, [name], servers=broker.sasl_servers, options=sasl("guessed")
        ),
        "missing": kafka_source(broker, [f"{name}-typo"]),
        "silent": kafka_source(broker, [name], servers=f"127.0.0.1:{free_port()}"),
    }
    raw = {
        "lake": {"warehouse": str(tmp_path / "warehouse")},
        "spark": {"master": "local[1]", "memory": "1g"},
        "start_date": DAY_1,
        "sources": sources,
    }
    config = tmp_path / "cdc.yaml"
    config.write_text(yaml.safe_dump(raw))

    done = run_cli(config, tmp_path, "doctor", "--format", "json")
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {
        line["check"].removeprefix("landing of "): (line["status"], line["found"])
        for line in lines
        if line["check"].startswith("landing of ")
    }
    assert found["right"] == (
        "ok",
        f"{broker.sasl_servers}: 1 topics, 2 partitions, 3 offsets retained",
    )
    for source, says in (
        ("refused", "the credentials were refused"),
        ("missing", f"topic {name}-typo is missing"),
        ("silent", "no broker answers"),
    ):
        assert found[source][0] == "problem"
        assert says in found[source][1]
    assert PASSWORD not in done.stdout + done.stderr
    assert "guessed" not in done.stdout + done.stderr
