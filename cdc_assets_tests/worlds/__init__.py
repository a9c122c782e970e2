"""Small worlds, drawn by hypothesis: a table's rows change, and their events arrive as Kafka brings
them: late, twice, out of order, in part.

A `World` is one configured table and all that landed for it. Its keys fall into families that have
nothing to do with each other, so that one table, whose every day costs Spark a second of planning,
holds several histories. Steps are of transactions: one begins with a step, and steps after it go on
in it, under its elements, on later days too. A world's table and topic bear its name; worlds whose
`Settings` are the same are tables of one source.

To add a kind of event, write a method of the `Teller` and name it in `ACTIONS`; to add a format,
derive a Teller and name it in `TELLERS`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st

from cdc_assets_tests import events as ev
from cdc_assets_tests.registries import as_structs
from cdc_assets_tests.worlds.debezium import BY_COMMIT, COARSE, DebeziumTeller, FlatTeller
from cdc_assets_tests.worlds.other_formats import (
    CanalTeller,
    CassandraTeller,
    DataWorksTeller,
    LindormTeller,
    MaxwellTeller,
    MongoTeller,
    OggTeller,
)
from cdc_assets_tests.worlds.teller import (
    FAMILIES,
    KEYS,
    NOON,
    PARTITIONS,
    Kept,
    Servers,
    Step,
    Teller,
    Traits,
)
from cdc_assets_tests.worlds.world import DAYS, Settings, World, family_of, landing_lines

__all__ = [
    "DAYS",
    "Settings",
    "World",
    "family_of",
    "landing_lines",
    "settings_of",
    "worlds",
]

TELLERS: dict[str, type[Teller]] = {
    "canal": CanalTeller,
    "debezium-mongodb": MongoTeller,
    "debezium-cassandra": CassandraTeller,
    "debezium": DebeziumTeller,
    "debezium-flat": FlatTeller,
    "lindorm": LindormTeller,
    "dataworks": DataWorksTeller,
    "maxwell": MaxwellTeller,
    "ogg": OggTeller,
}


ACTIONS = {
    "write": 72,
    "delete": 27,
    "move": 24,
    "chain": 12,
    "there_and_back": 6,
    "shift": 12,
    "several": 12,
    "slide": 20,
    "repeat": 12,
    "read": 12,
    "lone_tombstone": 6,
    "again": 18,
    "odd": 6,
    "bad": 3,
    "control": 1,
    "alter": 2,
    "truncate": 1,
}


def _weighted(weights: dict[str, int]) -> list[str]:
    return [name for name, weight in weights.items() for _ in range(weight)]


def steps() -> st.SearchStrategy[Step]:
    return st.builds(
        Step,
        action=st.sampled_from(_weighted(ACTIONS)),
        family=st.integers(0, FAMILIES - 1),
        key=st.integers(0, KEYS - 1),
        unsent=st.sampled_from([0, 0, 0, 1, 1, 2, 3]),
        delay=st.sampled_from([0] * 14 + [-1, -1, 1, 1, 2, 3]),
        joins=st.sampled_from([0] * 6 + [1] * 5 + [2]),
        form=st.integers(0, 2**60 - 1),
    )


def traits(format: str) -> st.SearchStrategy[Traits]:
    keys: list[Any] = [None, None, ["id"], ["id"], ["id"]]
    if format in ("debezium", "debezium-flat"):
        keys.append("none")
    return st.builds(
        Traits,
        schemas=st.sampled_from(["on", "off", "mixed"]),
        key=st.sampled_from(keys),
        composite=st.sampled_from([False, False, True]),
        text_keys=st.sampled_from([False, False, True]),
        full=st.booleans(),
        start=st.sampled_from([0, 0, 0, 0, 1, 2]),
        lanes=st.integers(1, PARTITIONS),
        shared_topic=st.sampled_from([False, False, False, True]),
        grown=st.sampled_from([None, None, 1, 2]),
        outage=st.sampled_from([None, None, None, 1, 2]),
        clock=st.sampled_from(["right"] * 5 + ["ahead"]),
        alike=st.sampled_from([False, False, True]),
        grain=st.sampled_from(["change"] * 3 + ["transaction"] * 3 + ["block", "block", "nothing"]),
        identity=st.sampled_from(["change", "change", "statement", "nothing"]),
        names=st.sampled_from(["source", "source", "transaction", "both", "nothing"]),
        connector=st.sampled_from(["postgresql"] * len(COARSE) + [*COARSE, "mysql", "mysql"]),
        kept=kept() if format == "debezium-flat" else st.none(),
    )


def kept() -> st.SearchStrategy[Kept]:
    return st.builds(
        Kept,
        mode=st.sampled_from(
            ["rewrite"] * 3
            + ["rewrite-with-tombstone"] * 3
            + ["tombstone", "tombstone", "delete-to-tombstone", "none", "drop"]
        ),
        place=st.sampled_from(["fields", "fields", "headers", "both", "split"]),
        op=st.sampled_from([True, True, False]),
        table=st.booleans(),
        order=st.sampled_from([True, True, False]),
        connector=st.booleans(),
        times=st.sampled_from(
            [("source.ts_ms", "ts_ms"), ("source.ts_ms",), ("source.ts_ms", "source.snapshot"), ()]
        ),
        converter=st.sampled_from([ev.as_text, ev.as_json, ev.as_json_with_schema]),
    )


# New names of all that a world may keep, of any connector.
RENAMED = (
    "op:OP", "connector", "schema:S", "db", "keyspace", "table:T", "lsn:POS", "file", "pos:at",
    "source.ts_ms:changed_at", "ts_ms", "transaction.total_order", "version", "transaction.id:tx",
    "txId", "row:line", "gtid", "commit_lsn", "change_lsn", "event_serial_no:nth", "scn", "rs_id",
)  # fmt: skip
BY_TOPIC = r"[^.]+\.(?<schema>[^.]+)\.(?<table>[^.]+)"


def flattenings() -> st.SearchStrategy[tuple[tuple[str, Any], ...]]:
    """The options of `debezium-flat` in cdc.yaml; without a list any field may have been added."""
    lists: list[dict[str, Any]] = [
        {},
        {},
        {"add_fields_prefix": "meta.", "add_headers_prefix": "X-"},
        {"add_fields_prefix": "_cdc"},
        {"add_fields": RENAMED, "add_fields_prefix": "", "add_headers": ()},
        {"add_fields": ("op:deleted_by",), "add_headers": RENAMED, "add_headers_prefix": ""},
    ]
    topics = [{}, {"table_from_topic": BY_TOPIC}]
    topics.append({"table_from_topic": BY_TOPIC.replace("schema", "db")})
    return st.builds(
        lambda listed, topic: tuple({**listed, **topic}.items()),
        st.sampled_from(lists),
        st.sampled_from(topics),
    )


def servers() -> st.SearchStrategy[Servers]:
    days = st.sampled_from([None, 1, 1, 2])
    return st.builds(
        Servers,
        server=st.sampled_from([1, 1, 2]),
        begins=st.sampled_from(["lower", "lower", "overlapping", "higher"]),
        connector=days,
        shares=st.booleans(),
        database=days,
    )


def settings_of(format: str) -> st.SearchStrategy[Settings]:
    noon_of_a_day = [(NOON + timedelta(days=n, seconds=8)).isoformat() for n in (1, 2)]
    resets = st.sampled_from([(), (), *((instant,) for instant in noon_of_a_day)])
    return st.builds(
        Settings,
        format=st.just(format),
        late_days=st.integers(0, 2),
        missing_columns=st.sampled_from(["null", "null", "keep"]),
        position_reset=resets if format in ("debezium", "debezium-flat") else st.just(()),
        flattening=flattenings() if format == "debezium-flat" else st.just(()),
    )


@st.composite
def worlds(draw: st.DrawFn, settings: Settings, name: str) -> World:
    drawn = draw(traits(settings.format))
    if settings.registry is not None:
        drawn = replace(drawn, schemas="on")
    if drawn.connector == "mysql" and drawn.key == "none":
        # Without a key a snapshot's read can't be told from its redelivery (see `read`).
        drawn = replace(drawn, connector="postgresql")
    if settings.reread and drawn.key == "none":  # likewise
        drawn = replace(drawn, key=None)
    if settings.connector is not None:
        drawn = replace(drawn, connector=settings.connector, text_keys=False)
    if drawn.connector in BY_COMMIT and drawn.grain == "change":
        drawn = replace(drawn, grain="transaction")
    if settings.connector == "spanner":  # whose tables have keys, and old images few columns
        drawn = replace(drawn, full=False, key=None if drawn.key == "none" else drawn.key)
    if settings.servers:
        drawn = replace(drawn, servers=draw(servers()))
    teller = TELLERS[settings.format](name, settings, drawn)
    if teller.traits.shared_topic:
        teller.neighbour()
    # As many steps over more days: hypothesis draws no more than so much at once.
    of_a_day = st.lists(steps(), min_size=96 // len(DAYS), max_size=360 // len(DAYS))
    for of_day in draw(st.tuples(*(of_a_day for _ in DAYS))):
        for step in of_day:
            teller.tell(step)
        teller.next_day()
    world = teller.world()
    if settings.registry != "AVRO":
        return world
    return replace(world, landed={d: tuple(of) for d, of in as_structs(world.landing()).items()})
