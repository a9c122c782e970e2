"""Tables that go into one (R8): partitions of a table, shards, tenants."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.findings import Finding, Severity
from cdc_assets.cdc.history.trace import trace
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.state.findings import table_findings
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(4)]
TABLE = "public.events"
TYPES = {"id": "int32", "v": "string"}
LEAVES = {"public.events_*": {"into": TABLE}}


class Leaves:
    """What has landed of two leaves, by the WAL of one server, and how it is configured."""

    def __init__(self, lake_of: LakeOf, folder: Path, name: str) -> None:
        self.lake_of, self.folder, self.name = lake_of, folder, name
        self.landing = Landing(DAYS[0])
        self.a, self.b = self.leaf("events_a"), self.leaf("events_b")
        self.options: dict[str, Any] = {"late_days": 1}
        self.tables: dict[str, Any] = {**LEAVES, TABLE: {}}
        self.lsn = 1000

    def leaf(self, table: str, **options: Any) -> PgLog:
        return PgLog(table=table, types=TYPES, landing=self.landing, **options)

    def has_history_and_feed(self) -> None:
        self.tables[TABLE] = {"history": True, "feed": True}

    def at(self, leaf: PgLog) -> PgLog:
        """The leaf, whose next event follows the last one of any."""
        leaf.lsn = max(self.a.lsn, self.b.lsn, leaf.lsn)
        return leaf

    def run(self, days: Iterable[date] | None = None) -> Lake:
        """Make days of the table, and its history and feed."""
        made = DAYS[: len(self.landing.landed)] if days is None else list(days)
        options = {**self.options, "tables": self.tables}
        config = lakes.write_source(self.folder / "landing", self.landing.landed, **options)
        lake = self.lake_of({self.name: config})
        lakes.run_all(lake, self.name, made)
        lakes.run_derived(lake, self.name, made)
        return lake

    def rows(self, lake: Lake, day: date) -> list[tuple[Any, ...]]:
        """id, v and the leaf's letter of each row."""
        rows = lakes.rows_of(lake, self.name, TABLE, day)
        return sorted((r["id"], r["v"], r["_cdc_table"][-1]) for r in rows)

    def finding(self, lake: Lake, name: str, day: date) -> Finding:
        """What a check says of a day, which is made already."""
        state = lake.table_state(self.name, TABLE)
        assert state is not None
        ((_, report),) = lakes.run_all(lake, self.name, [day]).items()
        return next(f for f in table_findings(state, day, report) if f.name == name)


@pytest.fixture
def leaves(lake_of: LakeOf, tmp_path: Path) -> Leaves:
    return Leaves(lake_of, tmp_path, f"leaves_{uuid4().hex[:8]}")


def row(id: int, v: str = "x") -> dict[str, Any]:
    return {"id": id, "v": v}


@pytest.mark.usefixtures("_size")
def test_a_row_that_moves_between_leaves_stays_one_row(leaves: Leaves) -> None:
    leaves.has_history_and_feed()
    leaves.a.create(**row(1))
    leaves.at(leaves.b).create(**row(2))
    leaves.landing.next_day()
    leaves.at(leaves.a).delete(id=1)
    moved = leaves.at(leaves.b).create(**row(1, "moved"))
    lake = leaves.run()
    assert leaves.rows(lake, DAYS[0]) == [(1, "x", "a"), (2, "x", "b")]
    assert leaves.rows(lake, DAYS[1]) == [(1, "moved", "b"), (2, "x", "b")]
    assert leaves.finding(lake, "keys_agree", DAYS[1]).passed
    versions = lakes.versions_at(lake, leaves.name, TABLE, DAYS[1])
    assert sorted((v["id"], v["_cdc_table"][-1], v["_cdc_closed_by"] or "") for v in versions) == [
        (1, "a", "d"), (1, "b", ""), (2, "b", "")
    ]  # fmt: skip
    lakes.assert_feed_leads_on(lake, leaves.name, TABLE, DAYS[1])
    told = trace(lake, leaves.name, TABLE, {"id": 1}, DAYS[1])
    assert (told[-1].topic, told[-1].did) == (moved.topic, "is the row")


@pytest.mark.usefixtures("_size")
def test_a_truncate_touches_the_rows_of_its_own_leaf_alone(leaves: Leaves) -> None:
    leaves.has_history_and_feed()
    leaves.a.create(**row(1))
    leaves.at(leaves.a).create(**row(3))
    leaves.at(leaves.b).create(**row(2))
    leaves.landing.next_day()
    late_lsn = leaves.at(leaves.a).lsn
    leaves.a.lsn += 8
    leaves.a.delete(id=3)
    leaves.at(leaves.b).create(**row(3, "moved"))
    leaves.at(leaves.a).create(**row(4))
    leaves.at(leaves.a).truncate()
    leaves.at(leaves.a).create(**row(5))
    leaves.landing.next_day()
    leaves.a.create(**row(6), _lsn=late_lsn + 1)
    leaves.b.create(**row(7), _lsn=late_lsn + 2)
    lake = leaves.run()
    after = [(2, "x", "b"), (3, "moved", "b"), (5, "x", "a")]
    assert leaves.rows(lake, DAYS[1]) == after
    assert leaves.rows(lake, DAYS[2]) == [*after, (7, "x", "b")]
    versions = lakes.versions_at(lake, leaves.name, TABLE, DAYS[1])
    closed = {v["id"]: v["_cdc_closed_by"] for v in versions if v["_cdc_closed_by"]}
    assert closed == {1: "t", 3: "d", 4: "t"}
    for day in DAYS[1:3]:
        lakes.assert_feed_leads_on(lake, leaves.name, TABLE, day)


@pytest.mark.parametrize("key", ["none", "row"])
def test_so_it_does_without_a_key(leaves: Leaves, key: str) -> None:
    leaves.tables[TABLE] = {"key": key}
    leaves.a.key = leaves.b.key = None
    leaves.a.create(**row(1))
    leaves.at(leaves.b).create(**row(2))
    leaves.landing.next_day()
    late_lsn = leaves.at(leaves.a).lsn
    leaves.a.lsn += 8
    leaves.at(leaves.a).truncate()
    leaves.at(leaves.a).create(**row(3))
    leaves.landing.next_day()
    leaves.a.create(**row(4), _lsn=late_lsn + 1)
    leaves.b.create(**row(5), _lsn=late_lsn + 2)
    lake = leaves.run()
    assert leaves.rows(lake, DAYS[1]) == [(2, "x", "b"), (3, "x", "a")]
    assert leaves.rows(lake, DAYS[2]) == [(2, "x", "b"), (3, "x", "a"), (5, "x", "b")]


def test_a_snapshot_of_a_leaf_says_nothing_of_the_others(leaves: Leaves) -> None:
    leaves.options |= {"on_resnapshot": "replace", "resnapshot_remove_percent": 100}
    leaves.a.snapshot(row(1), row(2))
    leaves.b.snapshot(row(3), row(4))
    leaves.landing.next_day()
    leaves.at(leaves.a).snapshot(row(1, "z"))
    lake = leaves.run()
    assert leaves.rows(lake, DAYS[1]) == [(1, "z", "a"), (3, "x", "b"), (4, "x", "b")]
    found = leaves.finding(lake, "rows_missing_from_snapshot", DAYS[1])
    assert (found.passed, found.values["rows_removed"]) == (True, 1)


def test_columns_are_the_union(leaves: Leaves) -> None:
    leaves.a.create(**row(1))
    wider = {**TYPES, "w": "string"}
    leaves.at(leaves.b).create(**row(2), w="more", _types=wider)
    lake = leaves.run()
    found = {r["id"]: (r["v"], r["w"]) for r in lakes.rows_of(lake, leaves.name, TABLE, DAYS[0])}
    assert found == {1: ("x", None), 2: ("x", "more")}


def test_keys_that_collide_are_an_error_and_add_tells_them_apart(leaves: Leaves) -> None:
    leaves.a.create(**row(1, "of a"))
    leaves.at(leaves.b).create(**row(1, "of b"))
    leaves.landing.next_day()
    leaves.at(leaves.b).update(**row(1, "again"))
    leaves.at(leaves.a).update(**row(1, "of a again"))
    lake = leaves.run()
    for day in DAYS[:2]:
        found = leaves.finding(lake, "keys_agree", day)
        assert (found.passed, found.severity) == (False, Severity.ERROR)
        assert found.values["of_other_tables"] == 1
    leaves.tables = {
        "public.events_*": {"into": TABLE, "add": {"tenant": "t-{1}"}},
        TABLE: {},
    }
    other = Leaves(leaves.lake_of, leaves.folder / "added", f"{leaves.name}_added")
    other.tables, other.landing = leaves.tables, leaves.landing
    lake = other.run()
    rows = lakes.rows_of(lake, other.name, TABLE, DAYS[1])
    assert sorted((r["tenant"], r["id"], r["v"]) for r in rows) == [
        ("t-a", 1, "of a again"), ("t-b", 1, "again")
    ]  # fmt: skip
    assert other.finding(lake, "keys_agree", DAYS[1]).passed


def test_leaves_of_several_servers_need_keys_that_tell_them_apart(leaves: Leaves) -> None:
    other = PgLog(server="second", table="events_b", types=TYPES, landing=leaves.landing)
    leaves.a.create(**row(1))
    other.create(**row(1, "second"))
    leaves.at(leaves.a).create(**row(2))
    other.update(**row(1, "second again"))
    with pytest.raises(AuditError, match=r"its tables come from several servers .*\.add"):
        leaves.run()
    entry = {"into": TABLE, "add": {"shard": "{1}"}}
    leaves.tables = {"public.events_*": entry, TABLE: {}}
    with pytest.raises(AuditError, match=r"position_reset: \[\]"):
        leaves.run()
    leaves.options |= {"position_reset": []}
    lake = leaves.run()
    rows = lakes.rows_of(lake, leaves.name, TABLE, DAYS[0])
    assert sorted((r["shard"], r["id"], r["v"]) for r in rows) == [
        ("a", 1, "x"), ("a", 2, "x"), ("b", 1, "second again")
    ]  # fmt: skip
