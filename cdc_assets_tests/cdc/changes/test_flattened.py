"""Flattened records in all modes of ExtractNewRecordState, from the landing to the day's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.changes.inputs import rules_fingerprint
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY, Landing, PgLog, Smt
from cdc_assets_tests.model import Record

DAYS = [DAY, DAY + timedelta(days=1)]
TOPIC = r"[^.]+\.(?<schema>[^.]+)\.(?<table>[^.]+)"
Rows = list[dict[str, Any]]


class SmtLog(PgLog):
    """As PgLog, through the transform."""

    def __init__(self, smt: Smt, table: str, landing: Landing) -> None:
        super().__init__("shop", "public", table, landing=landing)
        self.smt = smt

    def _put(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        offset = options.pop("offset", None)
        record = build(*images, **{**self.defaults, **options})
        written = self.smt.applied(record)
        return record if written is None else self.landing.put(written, offset)


def rows_change(log: SmtLog) -> None:
    """Rows are written, changed and deleted, within a day and over its end."""
    for n in (1, 2, 3, 4):
        log.create(id=n, v="a")
    log.delete(id=3, v="a", _tombstone=True)
    log.create(id=3, v="again")
    log.landing.on(DAYS[1])
    log.update(id=1, v="b")
    log.delete(id=2, v="a", _tombstone=True)
    log.create(id=4, v="a")
    log.delete(id=4, v="a", _tombstone=True)


ROWS = [{"id": 1, "v": "b"}, {"id": 3, "v": "again"}]
# Where deletes are dropped, all rows stay as they were last.
KEPT = [{"id": 1, "v": "b"}, {"id": 2, "v": "a"}, {"id": 3, "v": "again"}, {"id": 4, "v": "a"}]

NAMED = ("op", "schema", "table")
ORDERED = (*NAMED, "lsn", "source.ts_ms")
RENAMED = ("op:OP", "schema:S", "table:T", "lsn:POS", "source.ts_ms:AT", "version")


@dataclass
class Source:
    """A source of one set of settings; each of its tables was written by another transform."""

    settings: dict[str, Any]
    smts: dict[str, Smt]
    rows: dict[str, Rows] = field(default_factory=dict)


SOURCES = {
    "default": Source(
        {},
        {
            "rewritten": Smt("rewrite", ORDERED),
            "rewritten_and_tombstone": Smt("rewrite-with-tombstone", ORDERED),
            "without_op": Smt("rewrite-with-tombstone", ("schema", "table", "source.ts_ms")),
            "only_the_table": Smt("tombstone", ("schema", "table", "lsn")),
            "headers": Smt("tombstone", (), ORDERED),
            "headers_of_json": Smt("rewrite", (), ORDERED, converter=ev.as_json),
            "headers_of_schemas": Smt("tombstone", (), NAMED, converter=ev.as_json_with_schema),
            "deletes_are_null": Smt("delete-to-tombstone", (), ORDERED),
            "deletes_are_null_without_op": Smt("delete-to-tombstone", (), ORDERED[1:]),
            "null_and_tombstone": Smt("none", (), ORDERED),
            "half_and_half": Smt("tombstone", ("op", "lsn"), ("schema", "table")),
        },
    ),
    "topics": Source(
        {"table_from_topic": TOPIC},
        {
            "nothing": Smt(),
            "nothing_rewritten": Smt("rewrite"),
            "nothing_of_deletes": Smt("drop"),
            "null_for_a_delete": Smt("delete-to-tombstone"),
            "null_for_both": Smt("none"),
            "op_in_headers": Smt("rewrite-with-tombstone", (), ("op",)),
            "op_of_tombstones": Smt("tombstone", (), ("op",)),
            "op_of_deletes": Smt("delete-to-tombstone", (), ("op", "lsn")),
            "ordered_by_lsn": Smt("tombstone", ("lsn",)),
            "ordered_by_time": Smt("rewrite", ("source.ts_ms",)),
            "named": Smt("rewrite-with-tombstone", NAMED),
        },
        rows={"nothing_of_deletes": KEPT},
    ),
    "prefixes": Source(
        {"add_fields_prefix": "meta.", "add_headers_prefix": "X-"},
        {
            "fields": Smt("rewrite", ORDERED, (), "meta."),
            "headers": Smt("delete-to-tombstone", (), ORDERED, "meta.", "X-"),
        },
    ),
    "names": Source(
        {
            "add_fields": [*RENAMED],
            "add_fields_prefix": "",
            "add_headers": [*RENAMED],
        },
        {
            "fields": Smt("rewrite-with-tombstone", RENAMED, (), ""),
            "headers": Smt("none", (), RENAMED),
        },
    ),
}


@dataclass
class Made:
    lake: Lake
    sources: dict[str, dict[str, Any]]
    landed: dict[str, model.Landed]


@pytest.fixture(scope="module")
def made(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder: Path = tmp_path_factory.mktemp("flattened")
    sources, landed = {}, {}
    for name, source in SOURCES.items():
        landing = Landing(DAYS[0])
        for table, smt in source.smts.items():
            landing.on(DAYS[0])
            rows_change(SmtLog(smt, table, landing))
        tables: dict[str, Any] = {f"public.{table}": {} for table in source.smts}
        settings = {**source.settings, "tables": tables}
        own = f"flattened_{name}"
        landed[own] = landing.landed
        sources[own] = lakes.write_source(
            folder / name, landing.landed, "debezium-flat", **settings
        )
    lake = lake_of(sources, DAYS[0])
    for name in sources:
        lakes.run_all(lake, name, DAYS)
    return Made(lake, sources, landed)


@pytest.mark.parametrize(
    ("source", "table"), [(name, table) for name, one in SOURCES.items() for table in one.smts]
)
def test_the_rows_of_each_mode_are_those_of_the_database(
    made: Made, source: str, table: str
) -> None:
    got = lakes.rows_of(made.lake, f"flattened_{source}", f"public.{table}", DAYS[1])
    lakes.assert_same_rows(got, SOURCES[source].rows.get(table, ROWS), table)


@pytest.mark.parametrize("source", SOURCES)
def test_every_record_is_read_as_the_model_reads_it(made: Made, source: str) -> None:
    name = f"flattened_{source}"
    lakes.assert_as_model(made.lake, name, made.sources[name], made.landed[name])
    expected = model.tables(made.sources[name], made.landed[name])
    for table in SOURCES[source].smts:
        for day in DAYS:
            got = lakes.rows_of(made.lake, name, f"public.{table}", day)
            lakes.assert_same_rows(got, expected[day][f"public.{table}"], f"{table} {day}")


def test_a_delete_that_became_a_null_value_has_its_position(made: Made) -> None:
    rows = lakes.stage_rows(made.lake, "flattened_default", "changes")
    deletes = [
        row for row in rows
        if row["table_name"] == "public.deletes_are_null" and row["op"] == "d"
    ]  # fmt: skip
    assert [row["source_op"] for row in deletes] == ["d"] * 3
    assert all(row["position"] and row["position"][0] > 1000 for row in deletes)


# The members of `source` that order events, and those that say the namespace.
TOLD = {
    "mysql": (ev.mysql_source("public", "t", pos=5), ("db", "file", "pos", "row"), [3, 5]),
    "vitess": (ev.vitess_source("public", "t", number=5), ("keyspace",), [ev.NOON_MS + 5000]),
    "sqlserver": ({"commit_lsn": "27:5:2"}, ("schema", "commit_lsn"), [39, 5, 2]),
    "oracle": ({"scn": "7", "commit_scn": "9"}, ("schema", "scn", "commit_scn"), [7]),
}


@pytest.fixture(scope="module")
def ordered(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> list[lakes.Row]:
    """The changes of a source with a table of each connector, named after it."""
    landing = Landing()
    for connector, (source, added, _) in TOLD.items():
        members = {"connector": connector, "lsn": None, **source, "table": connector}
        event = ev.created(ROW, table=("public", connector), source=members)
        for said in ("source.ts_ms", "connector"):
            listed = ("op", "table", *added, said)
            landing.put(Smt(fields=listed).applied(event) or event)
    tables = {f"public.{connector}": {} for connector in TOLD}
    folder = tmp_path_factory.mktemp("ordered")
    config = lakes.write_source(folder, landing.landed, "debezium-flat", tables=tables)
    lake = lake_of({"flat_ordered": config})
    lakes.run_stages(lake, "flat_ordered", [DAY])
    lakes.assert_as_model(lake, "flat_ordered", config, landing.landed)
    return lakes.stage_rows(lake, "flat_ordered", "changes")


@pytest.mark.parametrize("connector", TOLD)
def test_events_are_ordered_by_what_was_added_without_the_connector(
    ordered: list[lakes.Row], connector: str
) -> None:  # O8
    *_, elements = TOLD[connector]
    positions = [row["position"] for row in ordered if row["table_name"] == f"public.{connector}"]
    without, told = sorted(positions, key=lambda position: position[-2])
    assert without == [*elements, 0, 0, 1]
    if connector != "vitess":  # whose time is what orders it
        assert told == [*elements, 0, 1, 1]


def _flat(row: Any, topic: str = "shop.public.t", **kafka: Any) -> Record:
    return ev.raw(ev.to_json(row).encode(), topic=topic, **{"key": b'{"id":1}', **kafka})


ROW = {"id": 1, "v": "a"}
NAMES = {"__schema": "public", "__table": "t"}
SAID = tuple((name, text.encode()) for name, text in {**NAMES, "__op": "c"}.items())
ODD = [
    _flat(ROW),
    _flat(ROW, topic="elsewhere"),
    _flat({**ROW, **NAMES}),
    _flat({**ROW, **NAMES, "__op": None}),
    replace(_flat({**ROW, "__op": None}), headers=SAID),
    replace(_flat({**ROW, "__op": "u"}, topic="elsewhere"), headers=SAID),
    replace(_flat(ROW, topic="elsewhere"), headers=(*SAID, ("__op", b"d"))),
    replace(_flat(ROW, topic="elsewhere"), headers=(("__op", b"x"), *SAID)),
    replace(_flat(ROW, topic="elsewhere"), headers=(("__op", None), *SAID[:2])),
    replace(_flat(ROW, topic="elsewhere"), headers=(("__op", b"null"), ("other", b"x"), *SAID[:2])),
    replace(_flat(ROW, topic="elsewhere"), headers=(("__op", b'{"payload":null}'), *SAID[:2])),
    replace(_flat(ROW, topic="elsewhere"), headers=(("__table", b"t"),)),
    replace(_flat(ROW, topic="elsewhere"), headers=(("other", b"x"),)),
    replace(_flat({**ROW, **NAMES}, topic="elsewhere"), headers=(("__op", b"r"),)),
    *(
        ev.raw(value, topic=topic, key=b'{"id":7}', headers=dict(headers))
        for value in (None, b"", b"null", b'{"schema":null,"payload":null}', b"5", b"{", b"[]")
        for topic in ("shop.public.t", "elsewhere", "shop.public.t.more")
        for headers in ((), SAID[:2], (*SAID[:2], ("__op", b"d")), SAID, (("__op", b"d"),))
    ),
    ev.raw(None, topic="shop.public.t", key=None, headers={**dict(SAID), "__op": b"t"}),
    _flat({"schema": {"type": "struct"}, "payload": ROW}),
    _flat({"payload": ROW, "schema": None}),
    _flat({"payload": {"x": 1}, "id": 1}),
    _flat({"payload": {"x": 1, "__op": "c"}, "id": 1, **NAMES}),
    _flat({"op": "c", "after": ROW, "source": NAMES}),
    _flat({"op": "c", "source": "web", "id": 1}),
    _flat({"ts_ms": 5}),
    _flat({"ts_ms": 5}, topic="__debezium-heartbeat.shop"),
    _flat({"status": "BEGIN", "id": "5", "ts_ms": 1}, topic="shop.transaction"),
    ev.message(topic="shop.message"),
    ev.message(topic="shop.public.t"),
    _flat({**ROW, "__db": "d", "__lsn": 5, "__source_ts_ms": 7, "__deleted": "true"}),
    _flat({**ROW, "__schema": None, "__db": "d", "__op": "c"}),
    _flat({**ROW, "__schema": 5, "__db": "d", "__op": "c"}),
    _flat({**ROW, "__table": "", "__op": "c"}),
    _flat({**ROW, "__op": "x"}),
    _flat({**ROW, "meta": 1, "__lsn": "12", "__total_order": "3"}, topic='shop.pu"b.a b'),
    _flat([], topic="shop.public.t"),
]


@pytest.mark.parametrize("pattern", [None, TOPIC, r"shop\.(?:x(.)y)?(?<db>p[a-z]+)\.(?<table>.+)"])
def test_odd_records_are_read_as_the_model_reads_them(
    lake_of: LakeOf, tmp_path: Path, name: str, pattern: str | None
) -> None:
    landing = Landing()
    for record in ODD:
        landing.put(record)
    own: dict[str, Any] = {"tables": {"public.t": {"key": ["id"]}}}
    if pattern is not None:
        own["table_from_topic"] = pattern
    source = lakes.write_source(tmp_path, landing.landed, "debezium-flat", **own)
    name = f"odd_flat_{'default' if pattern is None else len(pattern)}"
    lake = lake_of({name: source})
    lakes.run_stages(lake, name, [DAY])
    lakes.assert_as_model(lake, name, source, landing.landed)
    details = {row["detail"] for row in lakes.stage_rows(lake, name, "quarantine")}
    if pattern is None:
        unmarked = next(text for text in details if text.startswith("the record lacks __op"))
        assert "set add.fields=op,schema,table" in unmarked
        assert "or table_from_topic in cdc.yaml" in unmarked
    else:
        assert any("table_from_topic does not match the topic elsewhere" in d for d in details)


WRONG = {
    "another_format": (
        {"format": "debezium", "table_from_topic": TOPIC},
        "sources.s.table_from_topic: is for format debezium-flat; format is debezium",
    ),
    "a_prefix_of_another_format": (
        {"format": "lindorm", "add_fields_prefix": "__"},
        "sources.s.add_fields_prefix: is for format debezium-flat",
    ),
    "no_table": ({"table_from_topic": r"(?<schema>.+)"}, "and (?<table>…)"),
    "no_schema": ({"table_from_topic": r"(?<table>.+)"}, "(?<schema>…) or (?<db>…)"),
    "another_group": (
        {"table_from_topic": r"(?<server>\w+)\.(?<db>\w+)\.(?<table>\w+)"},
        "group 'server'",
    ),
    "open_group": ({"table_from_topic": r"(?<schema>.+)\.(?<table>.+"}, "not a regular expression"),
    "only_of_python": ({"table_from_topic": r"(?P<schema>.+)\.(?P<table>.+)"}, "part '(?P<schema>"),
    "only_of_java": ({"table_from_topic": r"(?<db>[a-z&&[b]]).(?<table>.+)"}, "'[a-z&&[b]]"),
    "no_prefix": ({"add_fields_prefix": ""}, "add_fields_prefix: without a prefix"),
    "no_name": ({"add_headers": ["op:"]}, "sources.s.add_headers: got 'op:'"),
    "one_name_twice": ({"add_fields": ["op:x", "table:X"]}, "sources.s.add_fields: 'x' is named"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_setting_is_an_error_with_its_path(tmp_path: Path, fault: str) -> None:
    settings, says = WRONG[fault]
    source = {"format": "debezium-flat", "landing": {"files": "x"}, **settings}
    with pytest.raises(ConfigError) as raised:
        lakes.config_of({"s": source}, tmp_path)
    assert says in str(raised.value)
    assert "sources.s" in str(raised.value)


def test_other_settings_are_other_rules(tmp_path: Path) -> None:
    source = {"format": "debezium-flat", "landing": {"files": "x"}}
    settings: list[dict[str, Any]] = [
        {},
        {"table_from_topic": TOPIC},
        {"add_fields_prefix": "_"},
        {"add_headers_prefix": "_"},
        {"add_fields": ["op"]},
        {"add_headers": ["op"]},
    ]
    made_by = {
        rules_fingerprint(lakes.config_of({"s": {**source, **one}}, tmp_path), "s")
        for one in settings
    }
    assert len(made_by) == len(settings)
