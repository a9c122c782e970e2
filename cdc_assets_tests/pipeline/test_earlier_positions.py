"""Days that the version before made stand: their positions are read in today's form.

A day is made by today's code and then written again as the version before wrote it: positions of
the epoch, the source's elements, the order in the transaction, a rank, partition and offset. After
it, the first event of a key must win, and a late one must lose.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.stage import made_by_other_rules
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import INPUTS, REPORT
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.state import table_day
from cdc_assets.cli.doctor.findings import Context, Status
from cdc_assets.cli.doctor.lake import catalog
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, TxLog
from cdc_assets_tests.model import Record

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]
EARLIER = DAYS[0]
Row = dict[str, Any]
Send = Callable[..., Record]  # op, row, place in the source's order; builds the record
NOON_S = ev.NOON_MS // 1000


def row(id: int, v: str) -> Row:
    return {"id": id, "v": v}


# -- connectors ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """How a connector sends changes, and what positions of the version before were made of.

    `elements` are SQL of `p`, a position of today without its epoch; a number that today's do not
    hold is made up.
    """

    format: str
    build: Send
    basis: str
    elements: str
    by_kafka: bool = False  # then nothing that lands is late
    namespace: str = "shop"


def _debezium(
    source_of: Callable[[int], Row], op: str, row: Row | None, at: int, **more: Any
) -> Any:
    after = None if op in ("d", "t") else row
    options = {"source_ts_ms": ev.NOON_MS + at, "key": None if op == "t" else ("id",), **more}
    own = {"lsn": None, "txId": None, **source_of(at)}
    return ev.change(op, row if op == "d" else None, after, source=own, **options)


def _mysql(at: int) -> Row:
    return {"connector": "mysql", "file": "bin.000003", "pos": at, "row": 0, "gtid": f"5a2c:{at}"}


def _sqlserver(at: int) -> Row:
    return ev.sqlserver_source(f"0000002a:{at:08x}:0003", f"0000002a:{at:08x}:0001")


def _oracle(at: int) -> Row:
    return ev.oracle_source(at, None, tx=f"{at:016x}", rs_id=f"0x{at:06x}.00000001.0010")


def _mongodb(op: str, row: Row, at: int, **more: Any) -> Record:
    document = {"_id": row["id"], "v": row["v"]}
    return ev.mongodb_change(op, document, source_ts_ms=ev.NOON_MS + at, **more)


def _cassandra(op: str, row: Row, at: int, **more: Any) -> Record:
    cells = {"id": row["id"]} if op == "d" else row
    ts = ev.NOON_MS * 1000 + at
    return ev.cassandra_change("i" if op == "c" else op, cells, ts_micro=ts, **more)


def _lindorm(op: str, row: Row, at: int, **more: Any) -> Record:
    images = (row, None) if op == "d" else (None if op == "c" else {**row, "v": "?"}, row)
    return ev.lindorm_change(op, *images, source_ts_ms=ev.NOON_MS + at, **more)


def _dataworks(op: str, row: Row, at: int, **more: Any) -> Record:
    images = (row, None) if op == "d" else (None if op == "c" else {**row, "v": "?"}, row)
    kind = {"c": "INSERT", "u": "UPDATE_AFTER", "d": "DELETE"}[op]
    sequence = str(1_620_457_642_589_000_000 + at)
    return ev.dataworks_change(kind, *images, sequence_id=sequence, **more)


def _ogg(op: str, row: Row, at: int, **more: Any) -> Record:
    images = (row, None) if op == "d" else (None, row)
    kind = {"c": "I", "u": "U", "d": "D"}[op]
    own = {**more, "table": ".".join(more["table"])}
    return ev.ogg_change(kind, *images, pos=f"{at:020}", **own)


def _maxwell(op: str, row: Row, at: int, *, has_position: bool, **more: Any) -> Record:
    kind = {"c": "insert", "u": "update", "d": "delete"}[op]
    place = {"position": f"binlog.000006:{at}", "xoffset": 0} if has_position else {}
    old = {"v": "?"} if op == "u" else None
    return ev.maxwell_change(kind, row, old, ts=NOON_S + at, xid=at, **{**place, **more})


def _canal(op: str, row: Row, at: int, **more: Any) -> Record:
    kind = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op]
    old = [{"v": "?"}] if op == "u" else None
    own = {"types": {"id": "bigint", "v": "varchar(20)"}, "es": ev.NOON_MS + at, **more}
    return ev.canal_message(kind, [row], old, **own)


_TIDB = {"connector": "TiCDC", "schema": None}
_LATER = "4102444800000L"  # a source's clock ahead of all times of Kafka
FORMS = {
    "postgresql": Form(
        "debezium", partial(_debezium, lambda at: {"lsn": at, "txId": at}), "lsn", "p[0]"
    ),
    "mysql": Form("debezium", partial(_debezium, _mysql), "file,pos,row", "p[0], p[1], 0L"),
    "sqlserver": Form(
        "debezium",
        partial(_debezium, _sqlserver),
        "commit_lsn,change_lsn,event_serial_no",
        "p[0], p[1], p[2], 42L, 9L, 1L, 1L",
    ),
    # The order of commits contradicts that of changes.
    "oracle": Form(
        "debezium", partial(_debezium, _oracle), "commit_scn,scn,ssn", "9000L - p[0], p[0], 0L"
    ),
    "ticdc": Form(
        "debezium", partial(_debezium, lambda at: {**_TIDB, "commit_ts": at}), "commit_ts", "p[0]"
    ),
    "spanner": Form(
        "debezium", partial(_debezium, lambda _: {"connector": "spanner"}), "ts_ms", "p[0]"
    ),
    "mongodb": Form("debezium-mongodb", _mongodb, "ts_ms,ord", "p[0], p[1]"),
    "cassandra": Form("debezium-cassandra", _cassandra, "ts_micro", "p[0]"),
    "lindorm": Form("lindorm", _lindorm, "ts_ms", "p[0]", namespace="default"),
    "dataworks": Form("dataworks", _dataworks, "sequenceId", "p[0], p[1], p[2]"),
    "ogg": Form("ogg", _ogg, "pos", "p[0], p[1], p[2]", namespace="SHOP"),
    "maxwell": Form(
        "maxwell", partial(_maxwell, has_position=True), "position,xoffset", "p[0], p[1], 0L"
    ),
    "maxwell_without_position": Form(
        "maxwell", partial(_maxwell, has_position=False), "ts_ms", _LATER, by_kafka=True
    ),
    "canal": Form("canal", _canal, "ts_ms", _LATER, by_kafka=True),
}
FORMATS = sorted({form.format for form in FORMS.values()})

# -- what lands ----------------------------------------------------------------------------------


@dataclass
class Story:
    """One table: its settings, what it lands, and its rows by day."""

    form: str
    table: str
    config: Row = field(default_factory=lambda: {"key": ["id"]})
    rows: list[list[Row]] = field(default_factory=list)
    landing: Landing = field(default_factory=lambda: Landing(EARLIER))

    @property
    def name(self) -> str:
        return f"{FORMS[self.form].namespace}.{self.table}"

    def send(self, op: str, row: Row | None, at: int, **more: Any) -> Record:
        now = self.landing.tick()
        place = {"table": (FORMS[self.form].namespace, self.table), "topic": self.table}
        options = {**place, "timestamp_ms": now, **more}
        return self.landing.put(FORMS[self.form].build(op, row, at, **options))


def _keyed(form: str) -> Story:
    story = Story(form, form)
    send, is_late = story.send, not FORMS[form].by_kafka
    for id in (1, 2, 3, 4):
        send("c", row(id, "a"), 10 + id)
    send("u", row(1, "b"), 20)
    send("d", row(2, "a"), 21)
    sent = [send("u", row(3, "b"), 22), send("d", row(4, "a"), 23)]
    story.landing.next_day()
    send("u", row(1, "c"), 30)
    send("c", row(2, "c"), 31)
    send("c", row(5, "a"), 32)
    if is_late:
        send("u", row(3, "late"), 16)
        send("u", row(4, "late"), 17)
        story.landing.again(*sent)
    story.landing.next_day()
    send("u", row(3, "d"), 40)
    send("d", row(5, "a"), 41)
    if is_late:
        send("u", row(1, "late"), 25)
        send("u", row(4, "late"), 18)
    story.rows = [
        [row(1, "b"), row(3, "b")],
        [row(1, "c"), row(2, "c"), row(3, "b"), row(5, "a")],
        [row(1, "c"), row(2, "c"), row(3, "d")],
    ]
    return story


def _truncated(form: str) -> Story:
    story = Story(form, f"{form}_truncated")
    send = story.send
    send("c", row(1, "a"), 10)
    send("t", None, 20)
    send("c", row(2, "a"), 21)
    story.landing.next_day()
    send("u", row(1, "late"), 15)
    send("u", row(2, "b"), 30)
    story.landing.next_day()
    send("c", row(4, "a"), 36)
    send("t", None, 35)
    send("u", row(2, "late"), 34)
    story.rows = [[row(2, "a")], [row(2, "b")], [row(4, "a")]]
    return story


def _appended(form: str) -> Story:
    """What landed before the upgrade lands once more after it."""
    story = Story(form, f"{form}_appended", {"key": "none"})
    send = partial(story.send, key=None)
    sent = [send("c", row(1, "a"), 10), send("c", row(1, "a"), 10), send("c", row(2, "a"), 11)]
    story.landing.next_day()
    story.landing.again(*sent)
    send("c", row(1, "a"), 30)
    one, two = row(1, "a"), row(2, "a")
    story.rows = [[one, one, two], [one, one, one, two], [one, one, one, two]]
    return story


def _counted(form: str) -> Story:
    story = Story(form, f"{form}_counted", {"key": "row"})
    send = partial(story.send, key=None)
    sent = [send("c", row(id, "a"), 10 + id) for id in (1, 1, 2, 3)]
    sent.append(send("d", row(3, "a"), 14))
    story.landing.next_day()
    story.landing.again(*sent)
    send("d", row(1, "a"), 30)
    story.landing.next_day()
    send("d", row(2, "a"), 31)
    story.rows = [
        [row(1, "a"), row(1, "a"), row(2, "a")],
        [row(1, "a"), row(2, "a")],
        [row(1, "a")],
    ]
    return story


def _cut(form: str) -> Story:
    """A transaction in which two rows hold a key when the last earlier day ends."""
    story = Story(form, f"{form}_cut", {"key": ["id"], "replica_identity": "full"})
    log = TxLog(form, table=("shop", story.table), landing=story.landing)
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.begin()
    log.hold()
    log.shift(row(1, "a"), row(2, "b"))
    log.deliver(2)
    log.next_day()
    log.deliver()
    log.next_day()
    log.begin()
    log.update(row(3, "b"), row(3, "c"))
    story.rows = [
        [row(2, "a")],
        [row(2, "a"), row(3, "b")],
        [row(2, "a"), row(3, "c")],
    ]
    return story


def _stories(format: str) -> list[Story]:
    stories = [_keyed(name) for name, form in FORMS.items() if form.format == format]
    if format == "debezium":
        stories += [_truncated("oracle"), _appended("mysql"), _counted("sqlserver")]
        stories += [_cut(form) for form in ("postgresql", "sqlserver")]
    if format == "maxwell":
        stories.append(_appended("maxwell_without_position"))
    return stories


# -- the version before --------------------------------------------------------------------------


def _positions(form: Form, position: str, rank: str, is_of_table: bool = False) -> str:
    """SQL of a position as it was, of one of today; what stands behind one is left there."""
    half, first = int(form.format == "dataworks"), int(is_of_table)
    real = f"CASE WHEN array_contains({position}, -1L) THEN slice({position}, 1, CAST("
    real += f"array_position({position}, -1L) AS int) - 1) ELSE {position} END"
    own = f"slice({real}, {1 + first}, size({real}))"
    if half:
        rank = f"element_at({own}, -4)"
    # Canal's rows were numbered within their record.
    order = f"element_at({own}, -2) * 1048576 + element_at({own}, -1) div 2"
    order = order if form.format == "canal" else "0L"
    elements = form.elements.replace("p[", f"({own})[")
    turned = (
        f"concat(array(0L, {elements}, {order}, {rank}, element_at({own}, -3), "
        f"element_at({own}, -2)), slice({position}, size({real}) + 1, size({position})))"
    )
    return f"CASE WHEN size({real}) > 0 THEN {turned} ELSE {position} END"


def _by_table(stories: Sequence[Story], sql: Callable[[Form], str], otherwise: str) -> str:
    branches = (f"WHEN '{s.name}' THEN {sql(FORMS[s.form])}" for s in stories)
    return f"CASE table_name {' '.join(branches)} ELSE {otherwise} END"


def _replaced(rows: DataFrame, **columns: str) -> DataFrame:
    return rows.withColumns({name: F.expr(sql) for name, sql in columns.items()})


def _as_the_version_before(lake: Lake, source: str, stories: Sequence[Story]) -> None:
    """Write the earlier day again as the version before wrote it."""
    # Of a key change's delete the rank was 0.
    rank = "CASE WHEN op = 'd' AND new_key IS NOT NULL THEN 0L ELSE 1L END"
    basis = _by_table(stories, lambda form: f"'{form.basis}'", "NULL")
    elements = _by_table(
        stories,
        lambda f: f"array({f.elements.replace('p[', 'position[')})",
        "NULL",
    )
    _write_again(
        lake,
        source,
        "changes",
        position=_by_table(stories, lambda f: _positions(f, "position", rank), "position"),
        position_basis=f"CASE WHEN position IS NOT NULL THEN {basis} END",
        source_elements=f"CASE WHEN position IS NOT NULL THEN {elements} END",
        identity="CAST(NULL AS string)",
        # PostgreSQL's was transaction.id, of which only the first part is the transaction.
        tx_id="CASE WHEN connector = 'postgresql' AND position IS NOT NULL "
        "THEN concat(tx_id, ':', position[0]) ELSE tx_id END",
    )
    for table in ("control", "quarantine"):
        _write_again(lake, source, table)
    nothing = ("key_changes", "key_change_hash", "tied", "scattered", "crossed")
    _write_again(
        lake,
        source,
        "facts",
        basis=f"CASE WHEN lowest IS NOT NULL THEN {basis} END",
        **{
            end: _by_table(stories, partial(_positions, position=end, rank="1L"), end)
            for end in ("lowest", "highest")
        },
        **dict.fromkeys(nothing, "CAST(NULL AS bigint)"),
    )
    for story in stories:
        _write_table_again(lake, source, story)


def _write_again(lake: Lake, source: str, table: str, **columns: str) -> None:
    identifier = lake.stage(source, table)
    made = lake.day_commits(identifier)
    rows = lake.stage_days(source, table, [EARLIER])
    if table == "facts":
        rows = rows.where("destination <> 'order'")
    # Each is of the columns as they were.
    names = [F.expr(columns[c]).alias(c) if c in columns else F.col(c) for c in rows.columns]
    inputs = {**made[EARLIER].inputs, "rules": "earlier"}
    lake.overwrite_days(identifier, rows.select(*names), {EARLIER: inputs}, made.head)


def _write_table_again(lake: Lake, source: str, story: Story) -> None:
    identifier, form = lake.state(source, TableName.parse(story.name)), FORMS[story.form]
    state = lake.read_state(identifier)
    assert state is not None
    tag, summary = state.tags[EARLIER], state.day_summary(EARLIER)
    position = _positions(form, "_cdc_position", "1L", is_of_table=True)
    rows = _replaced(lake.at(identifier, tag), _cdc_position=position)
    report = json.loads(summary[REPORT])
    for name in ("earlier_until", "earlier_bases"):
        del report[name]
    report["bases"] = dict.fromkeys(report["bases"], form.basis)
    if report["highest"]:
        highest = f"array({', '.join(f'{n}L' for n in report['highest'])})"
        turned = lake.spark.range(1).selectExpr(
            f"{_positions(form, highest, '1L', is_of_table=True)} AS p"
        )
        report["highest"] = turned.collect()[0].p
    inputs = {**json.loads(summary[INPUTS]), "rules": "earlier"}
    branch = lake.branch(identifier, EARLIER, tag, tag)
    lake.start(branch)
    rows.writeTo(branch.identifier).overwrite(F.lit(True))
    lake.publish(branch, {INPUTS: json.dumps(inputs), REPORT: json.dumps(report)})


# -- tests ---------------------------------------------------------------------------------------


def _differences(lake: Lake, source: str, stories: Sequence[Story], days: Any) -> list[str]:
    found = []
    for story in stories:
        for day in days:
            got = lakes.rows_of(lake, source, story.name, day)
            expected = story.rows[DAYS.index(day)]
            if story.form == "mongodb":
                got = [{"id": r["id"], "v": r["v"]} for r in map(_of_document, got)]
            if difference := lakes.difference_of(got, expected):
                found.append(f"{story.name} {day}\n{difference}")
    return found


def _of_document(found: Mapping[str, Any]) -> Row:
    return {"id": found.get("_id", found.get("id")), "v": found["v"]}


@pytest.mark.parametrize("format", FORMATS)
def test_the_first_event_after_the_version_before_wins_and_a_late_one_loses(
    lake_of: LakeOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    # O4, O8
    stories = _stories(format)
    landed: dict[Any, list[Record]] = {day: [] for day in DAYS}
    for story in stories:
        for day, records in story.landing.landed.items():
            landed[day] += records
    tables = {story.name: story.config for story in stories}
    source = f"earlier_{format.replace('-', '_')}"
    lake = lake_of({source: lakes.write_source(tmp_path, landed, format, tables=tables)})
    lakes.run_all(lake, source, [EARLIER])
    _as_the_version_before(lake, source, stories)
    if format == "debezium":  # as in large tables, which keep their rows as they are
        monkeypatch.setattr(table_day, "_REWRITTEN_BYTES", 0)
    lakes.run_all(lake, source, DAYS[1:])
    found = _differences(lake, source, stories, DAYS)
    assert not found, "\n" + "\n".join(found)
    # They stand, and it is said which they are.
    assert made_by_other_rules(lake, source, DAYS) == [EARLIER]
    (warning,) = [f for f in catalog(Context(config=lake.config)) if "earlier rules" in f.found]
    assert warning.status is Status.warning
    assert warning.found == f"{source}: 1 days, {EARLIER} to {EARLIER}, were made by earlier rules"
    assert f"--source {source} --from {EARLIER} --to {DAYS[-1]}" in warning.remedy
