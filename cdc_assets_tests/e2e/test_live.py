"""Everything against the real thing: PostgreSQL, Debezium, Kafka. The truth is `SELECT * FROM`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from confluent_kafka import Producer
from pydantic import ValidationError

from cdc_assets.cdc.config import TableConfig
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets_tests import model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.e2e import tables as t
from cdc_assets_tests.e2e.stack import Broker
from cdc_assets_tests.e2e.world import State, Variant, World, by_day, world
from cdc_assets_tests.lakes import (
    Row,
    assert_same_rows,
    difference_of,
    lag_expected,
    lag_read,
    rows_of,
    run_all,
    stage_rows,
)
from cdc_assets_tests.topics import Topic, at, kafka_source

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SEED = 20260301


def is_known(table: t.Table) -> bool:
    """False for a table that is configured as the project can't read it yet."""
    try:
        TableConfig.model_validate(dict(table.config))
    except ValidationError:
        return False
    return True


TABLES = tuple(table for table in t.TABLES if is_known(table))

PLAIN = Variant("plain", {"provide.transaction.metadata": "true"}, TABLES)
TEXTS = Variant(
    "texts",
    {
        "decimal.handling.mode": "string",
        "time.precision.mode": "isostring",
        "binary.handling.mode": "base64",
        "interval.handling.mode": "string",
    },
    # Debezium sends no placeholder but null for unchanged bytes in base64.
    (t.TYPES, t.SHAPED, t.MARKER),
    reads=t.AS_TEXT,
)
NUMBERS = Variant(
    "numbers",
    {
        "decimal.handling.mode": "double",
        "time.precision.mode": "connect",
        "binary.handling.mode": "hex",
    },
    (t.TYPES, t.TOASTED, t.MARKER),
    reads=t.AS_NUMBERS,
)
BARE = Variant(
    "bare",
    {
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "decimal.handling.mode": "string",
    },
    (t.ORDERS, t.FULL, t.INDEXED, t.AUDIT, t.MARKER),
    columns={
        "orders": {"id": "int", "note": "string", "amount": "decimal(10,2)", "n": "int"},
        "full_identity": {
            "region": "string", "id": "int", "note": "string", "amount": "decimal(10,2)",
        },
        "index_identity": {"code": "string", "note": "string", "n": "int"},
        "audit_log": {"n": "int", "note": "string"},
    },
)  # fmt: skip
VARIANTS = (PLAIN, TEXTS, NUMBERS, BARE)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(VARIANTS, SEED, tmp_path_factory.mktemp("live")) as running:
        yield running


def today() -> date:
    return datetime.now(timezone.utc).date()


def compare(lake: Lake, source: str, variant: Variant, day: date, truth: State, what: str) -> None:
    """Every table of the day's tag holds what PostgreSQL held, value by value.

    A column that PostgreSQL has dropped stays in the lake; added rows have it null.
    """
    wrong = []
    for table in variant.tables:
        expected = truth[table.qualified]
        names = {name for row in expected for name in row}
        got = [
            {n: v for n, v in row.items() if n in names}
            for row in rows_of(lake, source, table.qualified, day)
        ]
        # A column that was added and not written since is not in the lake yet.
        absent = names - {name for row in got for name in row}
        expected = [{n: v for n, v in row.items() if n not in absent} for row in expected]
        if found := differences(table, got, expected):
            wrong.append(f"{what}: {source}.{table.qualified}\n{found}")
    assert not wrong, "\n\n".join(wrong)


def differences(table: t.Table, got: list[Row], expected: list[Row]) -> str:
    """Values that differ, a line each; whole rows where there is no key, or not the same keys."""

    def by_key(rows: list[Row]) -> dict[str, Row]:
        return {repr([row[name] for name in table.key]): row for row in rows}

    ours, theirs = by_key(got), by_key(expected)
    if not table.key or ours.keys() != theirs.keys() or len(ours) != len(got):
        return difference_of(got, expected)
    return "\n".join(
        f"{key} {name}: got {ours[key][name]!r:.200}, expected {value!r:.200}"
        for key, row in theirs.items()
        for name, value in row.items()
        if repr(ours[key][name]) != repr(value)
    )


def source_of(broker: Broker, variant: Variant) -> dict[str, Any]:
    return kafka_source(broker, pattern=variant.pattern, tables=variant.table_configs())


def test_tables_equal_the_database_at_every_cut(live: World, lake_of: LakeOf) -> None:
    first = today()
    sources = {v.prefix: source_of(live.stack.broker, v) for v in VARIANTS}
    lake = lake_of(sources, first)
    sent: list[Mapping[tuple[str, int], int]] = []
    truths: list[State] = []

    def made(variants: tuple[Variant, ...], what: str) -> None:
        """Stop writing, wait for the connectors, make the open day anew, compare."""
        truth = live.cut()
        days = [first + timedelta(days=n) for n in range((today() - first).days + 1)]
        for variant in variants:
            run_all(lake, variant.prefix, days, lag=True)
            compare(lake, variant.prefix, variant, days[-1], truth[variant.prefix], what)
        truths.append(truth[PLAIN.prefix])
        ends: dict[tuple[str, int], int] = {}
        for record in live.records(*live.topics(PLAIN)):
            place = (str(record.topic), int(record.partition or 0))
            ends[place] = max(ends.get(place, 0), int(record.offset or 0) + 1)
        sent.append(ends)

    live.workload.run(60)
    made((PLAIN,), "initial snapshot")

    live.signal_snapshot(t.ORDERS)
    live.signal_snapshot(t.TOASTED)
    live.workload.run(80)
    live.workload.run_rare()
    made((PLAIN,), "incremental snapshots beside writes")

    live.workload.run(60)
    live.stack.connect.kill()
    live.workload.run(20)
    live.stack.connect.start()
    made((PLAIN,), "Connect killed, changes sent again")

    live.workload.run(40)
    live.stack.broker.stop()
    live.workload.run(20)
    live.stack.broker.start()
    live.stack.connect.check()
    live.workload.run(40)
    made(VARIANTS, "broker restarted")

    _nothing_lost(lake)
    _lag_is_what_messages_say(lake, live, sources)
    _every_day_of_a_replay(live, lake_of, sent, truths)


def unread(quarantine: list[Row]) -> list[tuple[str, str, str]]:
    """Topic, reason and detail of what ought to have been read.

    The tombstone behind a delete of a table without key has no key.
    """
    return [
        (r["topic"], r["reason"], r["detail"])
        for r in quarantine
        if not (r["topic"].endswith(".bag") and r["value"] is None)
    ]


def _nothing_lost(lake: Lake) -> None:
    for variant in VARIANTS:
        reached = {
            k: stage_rows(lake, variant.prefix, k) for k in ("changes", "control", "quarantine")
        }
        landed = stage_rows(lake, variant.prefix, "landing")
        assert sum(map(len, reached.values())) == len(landed)
        assert unread(reached["quarantine"]) == []
        ops = {r["op"] for r in reached["changes"]}
        assert {"c", "u", "d", "r", "t"} <= ops
        assert {"heartbeat", "message"} <= {r["op"] for r in reached["control"]}
    incremental = [r for r in stage_rows(lake, "plain", "changes") if r["op"] == "r"]
    assert any(r["position"] is None for r in incremental)


def _lag_is_what_messages_say(lake: Lake, live: World, sources: Mapping[str, Any]) -> None:
    days = {r["landing_date"] for r in stage_rows(lake, PLAIN.prefix, "landing")}
    if len(days) > 1:
        return  # midnight passed; the landing cut the day elsewhere than the model would
    landed = {
        (r["topic"], r["partition"], r["offset"]) for r in stage_rows(lake, "plain", "landing")
    }
    records = [
        r
        for r in live.records(*live.topics(PLAIN))
        if (r.topic, r.partition, r.offset) in landed  # heartbeats go on
    ]
    expected = model.lag(dict(sources[PLAIN.prefix]), by_day(records, days.pop()))
    assert_same_rows(lag_read(lake, PLAIN.prefix), lag_expected(expected), "lag")


def _every_day_of_a_replay(
    live: World,
    lake_of: LakeOf,
    sent: list[Mapping[tuple[str, int], int]],
    truths: list[State],
) -> None:
    """The same bytes in new topics, a cut a day: each day's tag is the database at that cut."""
    broker = live.stack.broker
    days = [date(2026, 3, 1) + timedelta(days=n) for n in range(len(sent))]
    names = live.topics(PLAIN)
    partitions = {n: 1 + max(p for (t_, p) in sent[-1] if t_ == n) for n in names}
    for name, count in partitions.items():
        Topic(broker, f"again-{name}", count)
    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 0})
    for record in live.records(*names):
        place = (str(record.topic), int(record.partition or 0))
        day = next(
            (d for d, e in zip(days, sent, strict=True) if (record.offset or 0) < e.get(place, 0)),
            None,
        )
        if day is not None:
            producer.produce(
                f"again-{record.topic}", record.value, record.key, place[1],
                timestamp=at(day), headers=list(record.headers),
            )  # fmt: skip
            producer.poll(0)
    assert producer.flush(60) == 0
    source = kafka_source(broker, pattern="again-.*", tables=PLAIN.table_configs())
    lake = lake_of({"again": source}, days[0])
    run_all(lake, "again", days, lag=True)
    for day, truth in zip(days, truths, strict=True):
        compare(lake, "again", PLAIN, day, truth, f"day {day}")
