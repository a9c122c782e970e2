"""Days that the version before made stand: their positions are read in today's form.

A day is made by today's code and then written again as the version before wrote it: positions of
the epoch, the source's elements, the order in the transaction, a rank, partition and offset. After
it, the first event of a key must win, and a late one must lose.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc import earlier_positions
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import INPUTS, REPORT
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.cdc.state import table_day
from cdc_assets.cli.doctor.findings import Context, Status
from cdc_assets.cli.doctor.lake import catalog
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, TxLog
from cdc_assets_tests.model import Record

pytestmark = pytest.mark.slow

EARLIER, TODAY = DAYS = [ev.DAY, ev.DAY + timedelta(days=1)]
Row = dict[str, Any]


def row(id: int, v: str) -> Row:
    return {"id": id, "v": v}


# -- connectors ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """What a connector says of a change's place, and what its positions were made of before.

    `elements` are SQL of `p`, a position of today without its epoch; a number that today's do not
    hold is made up.
    """

    source: Callable[[int], Row]
    basis: str
    elements: str


def _mysql(at: int) -> Row:
    return {"connector": "mysql", "file": "bin.000003", "pos": at, "row": 0, "gtid": f"5a2c:{at}"}


def _oracle(at: int) -> Row:
    return ev.oracle_source(at, None, tx=f"{at:016x}", rs_id=f"0x{at:06x}.00000001.0010")


FORMS = {
    "postgresql": Form(lambda at: {"lsn": at, "txId": at}, "lsn", "p[0]"),
    "mysql": Form(_mysql, "file,pos,row", "p[0], p[1], 0L"),
    # The order of commits contradicts that of changes.
    "oracle": Form(_oracle, "commit_scn,scn,ssn", "9000L - p[0], p[0], 0L"),
}
# Of the version before and of today, of the third row of its record where that had rows.
POSITIONS = {
    "lsn": ([0, 4711, 5, 1, 2, 90], [0, 4711, 2, 90, 1]),
    "file,pos,row": ([0, 3, 157, 4, 0, 1, 2, 90], [0, 3, 157, 2, 90, 1]),
    "commit_lsn,change_lsn,event_serial_no": (
        [1, 42, 2752, 3, 42, 2700, 7, 2, 0, 1, 2, 90],
        [1, 42, 2752, 3, 2, 90, 1],
    ),
    "commit_scn,scn,ssn": ([0, 500, 450, 1, 0, 0, 2, 90], [0, 450, 2, 90, 0]),
    "commit_ts": ([0, 45, 90 * 2**20 + 2, 1, 2, 90], [0, 45, 2, 90, 5]),
    "ts_ms,ord": ([0, 1700, 3, 0, 1, 2, 90], [0, 1700, 3, 2, 90, 1]),
    "ts_ms": ([0, 1700, 0, 1, 2, 90], [0, 1700, 2, 90, 1]),
    "sequenceId": ([0, 0, 162, 4576, 0, 1, 2, 90], [0, 0, 162, 4576, 1, 2, 90, 1]),
    "position,xoffset": ([0, 6, 1000, 2**63 - 1, 0, 1, 2, 90], [0, 6, 1000, 2, 90, 1]),
    "pos": ([0, 0, 0, 1443, 0, 1, 2, 90], [0, 0, 0, 1443, 2, 90, 1]),
    "ts_micro": ([0, 1700, 0, 1, 2, 90], [0, 1700, 2, 90, 1]),
}

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
        return f"shop.{self.table}"

    def send(self, op: str, row: Row | None, at: int, **more: Any) -> Record:
        """A change at a place in the source's order."""
        source = {"lsn": None, "txId": None, **FORMS[self.form].source(at)}
        before, after = (row, None) if op == "d" else (None, row)
        own = {"table": ("shop", self.table), "source": source, "timestamp_ms": self.landing.tick()}
        key = None if row is None else ("id",)
        return self.landing.put(ev.change(op, before, after, **{"key": key, **own, **more}))


def _keyed(form: str) -> Story:
    story = Story(form, form)
    send = story.send
    for id in (1, 2, 3, 4):
        send("c", row(id, "a"), 10 + id)
    send("u", row(1, "b"), 20)
    send("d", row(2, "a"), 21)
    sent = [send("u", row(3, "b"), 22), send("d", row(4, "a"), 23)]
    story.landing.next_day()
    send("u", row(1, "c"), 30)
    send("c", row(2, "c"), 31)
    send("c", row(5, "a"), 32)
    send("u", row(3, "late"), 16)
    send("u", row(4, "late"), 17)
    story.landing.again(*sent)
    story.rows = [
        [row(1, "b"), row(3, "b")],
        [row(1, "c"), row(2, "c"), row(3, "b"), row(5, "a")],
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
    story.rows = [[row(2, "a")], [row(2, "b")]]
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
    story.rows = [[one, one, two], [one, one, one, two]]
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
    story.rows = [[row(2, "a")], [row(2, "a"), row(3, "b")]]
    return story


# -- the version before --------------------------------------------------------------------------


def _positions(form: Form, position: str, rank: str, is_of_table: bool = False) -> str:
    """SQL of a position as it was, of one of today; what stands behind one is left there."""
    real = (
        f"CASE WHEN array_contains({position}, -1L) THEN slice({position}, 1, "
        f"CAST(array_position({position}, -1L) AS int) - 1) ELSE {position} END"
    )
    own = f"slice({real}, {1 + is_of_table}, size({real}))"
    elements = form.elements.replace("p[", f"({own})[")
    turned = (
        f"concat(array(0L, {elements}, 0L, {rank}, element_at({own}, -3), "
        f"element_at({own}, -2)), slice({position}, size({real}) + 1, size({position})))"
    )
    return f"CASE WHEN size({real}) > 0 THEN {turned} ELSE {position} END"


def _by_table(stories: Sequence[Story], sql: Callable[[Form], str], otherwise: str) -> str:
    branches = (f"WHEN '{s.name}' THEN {sql(FORMS[s.form])}" for s in stories)
    return f"CASE table_name {' '.join(branches)} ELSE {otherwise} END"


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
    made = lake.day_commits(source, table)
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
    rows = lake.at(identifier, tag).withColumn("_cdc_position", F.expr(position))
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
            if difference := lakes.difference_of(got, expected):
                found.append(f"{story.name} {day}\n{difference}")
    return found


@pytest.mark.parametrize("basis", POSITIONS)
def test_a_position_of_the_version_before_is_read_in_todays_form(
    spark: SparkSession, basis: str
) -> None:
    # O4, O8
    earlier, today = POSITIONS[basis]
    assert earlier_positions.from_earlier(earlier, basis) == today
    behind = [-1, 20761, 2, 91]  # a snapshot read stands directly after it
    unplaced = [0, -2, *earlier[1:]]  # of another basis, below all
    listed = [
        (p,) for p in (earlier, [*earlier, *behind], today, [*today, *behind], unplaced, behind)
    ]
    read = spark.createDataFrame(listed, "p array<bigint>").selectExpr(
        f"{earlier_positions.from_earlier_sql('p', basis)} AS p"
    )
    expected = [today, [*today, *behind], today, [*today, *behind], unplaced, behind]
    assert [found.p for found in read.collect()] == expected


def test_the_first_event_after_the_version_before_wins_and_a_late_one_loses(
    lake_of: LakeOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # O4, O8, O14, O16
    stories = [_keyed("oracle"), _truncated("mysql"), _appended("mysql"), _cut("postgresql")]
    landed: dict[Any, list[Record]] = {day: [] for day in DAYS}
    for story in stories:
        for day, records in story.landing.landed.items():
            landed[day] += records
    tables = {story.name: story.config for story in stories}
    source = "earlier_positions"
    lake = lake_of({source: lakes.write_source(tmp_path, landed, tables=tables)})
    lakes.run_all(lake, source, [EARLIER])
    _as_the_version_before(lake, source, stories)
    with monkeypatch.context() as patch:  # large tables keep their rows as they are
        patch.setattr(table_day, "REWRITTEN_BYTES", 0)
        lakes.run_all(lake, source, [TODAY])
    found = _differences(lake, source, stories, DAYS)
    assert not found, "\n" + "\n".join(found)
    # They stand, and it is said which they are.
    assert ChangesStage(lake.config, source).made_by_other_rules(lake) == [EARLIER]
    (warning,) = [f for f in catalog(Context(config=lake.config)) if "earlier rules" in f.found]
    assert warning.status is Status.warning
    assert warning.found == f"{source}: 1 days, {EARLIER} to {EARLIER}, were made by earlier rules"
    assert f"--source {source} --from {EARLIER} --to {TODAY}" in warning.remedy
    # What doctor says makes them again, under today's rules.
    lakes.run_all(lake, source, [EARLIER, TODAY])
    assert ChangesStage(lake.config, source).made_by_other_rules(lake) == []
    assert not _differences(lake, source, stories, DAYS)
