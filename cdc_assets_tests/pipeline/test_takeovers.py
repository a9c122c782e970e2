"""When another server, or another connector, takes a stream over (O11), and when none did.

A story is a table of a stream of its own; it returns the rows at the end of each day, written by
hand. The simulation draws takeovers: see `takeover_simulation`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from operator import itemgetter
from typing import Any

import pytest

from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, Log
from cdc_assets_tests.model import Record
from cdc_assets_tests.takeover_simulation import KINDS, TABLE, history

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]
HISTORIES = int(os.environ.get("CDC_TAKEOVER_HISTORIES", "5"))
SECOND, HOUR = 1000, 3_600_000
by_id = itemgetter("id")
Rows = list[dict[str, Any]]


class ServerLog(Log):
    """A connector of one table; a test says each position."""

    def __init__(self, connector: str, name: str, landing: Landing | None = None) -> None:
        super().__init__(landing, server=name)
        self.connector, self.table = connector, name

    def write(self, row_id: int | None, v: str | None = None, *, at: int, **options: Any) -> Record:
        """An update of a row; a delete where no value is said, and without a row a truncate.

        Args:
            at: the place in the server's log.
            options: `gtid`, `clock` (ms that the source's clock is ahead), `name`; others go to the
                builder.
        """
        clock = self._clock()
        clock["source_ts_ms"] += options.pop("clock", 0)
        source = self._source(at, options.pop("gtid", None))
        source["name"] = options.pop("name", self.table)
        place = {"table": ("shop", self.table), "topic": f"shop.{self.table}", "source": source}
        given = {**clock, **place, **options}
        if row_id is None:
            return self._put(ev.truncated, **given)
        if v is None:
            return self._put(ev.deleted, {"id": row_id}, **given)
        return self._put(ev.updated, {"id": row_id, "v": v}, **given)

    def _source(self, at: int, gtid: str | None) -> dict[str, Any]:
        if self.connector == "mysql":
            return {**ev.mysql_source("shop", self.table, pos=at), "gtid": gtid}
        if self.connector == "sqlserver":
            return ev.sqlserver_source(f"0000002a:{at:08x}:0001", "0000002a:00000001:0002")
        if self.connector == "oracle":
            return ev.oracle_source(at, at, tx=str(at), rs_id=f"0x{at}")
        # `at` is the commit; the change itself stands before it.
        return {"lsn": at - 5, "sequence": f'["{at}", "{at - 5}"]'}


def rows(**values: str) -> Rows:
    """`a="1"` is row 1 with that value; b is 2, c is 3."""
    return [{"id": "abc".index(name) + 1, "v": v} for name, v in sorted(values.items())]


Tell = Callable[[ServerLog], list[Rows]]
STORIES: dict[str, tuple[str, Tell]] = {}


def story(*connectors: str) -> Callable[[Tell], Tell]:
    def register(tell: Tell) -> Tell:
        for connector in connectors:
            STORIES[f"{tell.__name__}__{connector}"] = (connector, tell)
        return tell

    return register


JUDGED = ("mysql", "sqlserver", "postgresql")


@story(*JUDGED)
def a_new_server_begins_lower(log: ServerLog) -> list[Rows]:
    log.write(1, "old", at=1000)
    log.write(2, "old", at=1010)
    log.write(1, "new", at=10)
    log.next_day()
    log.write(2, at=20)
    log.write(3, "new", at=30)
    return [rows(a="new", b="old"), rows(a="new", c="new")]


@story(*JUDGED)
def two_servers_after_one_another(log: ServerLog) -> list[Rows]:
    log.write(1, "first", at=1000)
    log.write(1, "second", at=500)
    log.write(2, "second", at=510)
    log.next_day()
    log.write(1, "third", at=100)
    return [rows(a="second", b="second"), rows(a="third", b="second")]


@story("mysql")
def a_server_whose_first_event_waited_for_a_lock_is_found_by_the_next_day(
    log: ServerLog,
) -> list[Rows]:
    log.write(1, "old", at=1000)
    log.write(2, "old", at=1010)
    log.write(1, "new", at=10, clock=-HOUR)  # its statement began before the old server went
    log.next_day()
    log.write(2, "new", at=20)
    return [rows(a="new", b="old"), rows(a="new", b="new")]


@story("mysql")
def another_partition_belongs_to_the_new_server_from_that_instant_on(
    log: ServerLog,
) -> list[Rows]:
    log.write(1, "old", at=1000)
    log.write(2, "old", at=100, partition=1)
    log.write(1, "new", at=10)
    log.write(2, "new", at=20, partition=1)
    log.write(2, "newer", at=30, partition=1)
    log.next_day()
    log.write(2, at=40, partition=1)
    return [rows(a="new", b="newer"), rows(a="new")]


@story("mysql")
def what_a_new_server_sends_again_by_gtid_counts_once(log: ServerLog) -> list[Rows]:
    log.write(1, "first", at=1000, gtid="a:1")
    log.write(1, "second", at=1010, gtid="a:2")
    log.write(2, "new", at=10, gtid="b:1")
    log.write(1, "first", at=20, gtid="a:1")
    log.next_day()
    log.write(3, "new", at=30, gtid="b:2")
    return [rows(a="second", b="new"), rows(a="second", b="new", c="new")]


@story("mysql")
def after_a_reset_of_its_numbers_a_gtid_says_another_change(log: ServerLog) -> list[Rows]:
    log.write(1, "first", at=1000, gtid="a:1")
    log.write(1, "second", at=1010, gtid="a:2")
    log.write(1, "third", at=10, gtid="a:1")
    log.next_day()
    log.write(1, "fourth", at=20, gtid="a:2")
    return [rows(a="third"), rows(a="fourth")]


@story(*JUDGED)
def a_redelivery_is_of_the_same_server(log: ServerLog) -> list[Rows]:
    first = log.write(1, "first", at=1000)
    second = log.write(1, "second", at=1010)
    log.write(2, "second", at=1020)
    log.again(first, second)
    log.next_day()
    log.again(first)
    return [rows(a="second", b="second"), rows(a="second", b="second")]


@story(*JUDGED)
def a_restart_to_before_all_that_landed_is_of_the_same_server(log: ServerLog) -> list[Rows]:
    log.write(1, "landed", at=1000)
    log.next_day()
    log.write(1, "older", at=900, clock=-48 * HOUR)
    log.write(2, "older", at=910, clock=-48 * HOUR)
    return [rows(a="landed"), rows(a="landed", b="older")]


@story("mysql")
def a_file_that_lands_late_is_of_the_same_server(log: ServerLog) -> list[Rows]:
    log.write(1, "first", at=1000)
    log.write(1, "third", at=1020, offset=2)
    log.next_day()
    log.write(1, "second", at=1010, offset=1, timestamp_ms=ev.NOON_MS)
    return [rows(a="third"), rows(a="third")]


@story("oracle")
def threads_that_take_turns_are_one_server(log: ServerLog) -> list[Rows]:
    log.write(1, "first", at=1000)
    log.write(2, "first", at=990)
    log.write(1, "second", at=995)
    return [rows(a="first", b="first")]


@story("postgresql")
def interleaved_transactions_are_of_one_server(log: ServerLog) -> list[Rows]:
    def sequence(commit: int, lsn: int) -> dict[str, Any]:
        return {"lsn": lsn, "sequence": f'["{commit}", "{lsn}"]', "name": log.table}

    place = {"table": ("shop", log.table), "topic": f"shop.{log.table}"}
    for commit, lsn, row_id in ((900, 1005, 1), (1010, 1000, 2), (1020, 1015, 1)):
        row = {"id": row_id, "v": str(lsn)}
        log._put(ev.updated, row, source=sequence(commit, lsn), **place, **log._clock())
    return [rows(a="1015", b="1000")]


@story("mysql")
def a_new_server_whose_clock_is_behind_is_found_when_its_clock_has_caught_up(
    log: ServerLog,
) -> list[Rows]:
    log.write(1, "old", at=1000, clock=HOUR)
    log.write(1, "new", at=10)
    log.next_day()
    log.write(1, "newer", at=20)
    return [rows(a="new"), rows(a="newer")]


@story("mysql")
def a_record_dated_in_the_future_hides_no_takeover_of_a_later_day(log: ServerLog) -> list[Rows]:
    log.write(1, "old", at=1000)
    log.write(2, "old", at=1010, timestamp_ms=ev.NOON_MS + 30 * 24 * HOUR)
    log.next_day()
    log.write(1, "new", at=10)
    log.next_day()
    log.write(2, "new", at=20)
    return [rows(a="old", b="old"), rows(a="new", b="old"), rows(a="new", b="new")]


@story("mysql")
def a_topic_made_anew_is_of_the_same_server(log: ServerLog) -> list[Rows]:
    for at in (1000, 1010, 1020):
        log.write(1, str(at), at=at)
    log.next_day()
    log.write(2, "1030", at=1030, offset=0)
    log.write(1, "1040", at=1040, offset=1)
    return [rows(a="1020"), rows(a="1040", b="1030")]


@story("mysql")
def a_topic_made_anew_for_a_new_server(log: ServerLog) -> list[Rows]:
    for at in (1000, 1010, 1020):
        log.write(1, str(at), at=at)
    log.next_day()
    log.write(2, "new", at=10, offset=0)
    log.write(1, "new", at=20, offset=1)
    return [rows(a="1020"), rows(a="new", b="new")]


@story("mysql", "oracle")
def another_connector_begins_anew(log: ServerLog) -> list[Rows]:
    log.write(1, "old", at=1000)
    log.write(2, "old", at=1010)
    log.next_day()
    log.write(1, "new", at=10, name="second")
    log.write(3, "new", at=20, name="second")
    return [rows(a="old", b="old"), rows(a="new", b="old", c="new")]


@story("mysql", "oracle")
def what_the_former_connector_sends_then_is_older(log: ServerLog) -> list[Rows]:
    log.write(1, "old", at=1000)
    log.write(1, "new", at=10, name="second")
    log.write(1, "overlaps", at=1010)
    log.write(2, "overlaps", at=1020)
    log.next_day()
    log.write(1, "comes back", at=1030)
    return [rows(a="new", b="overlaps"), rows(a="new", b="overlaps")]


def told(name: str) -> tuple[dict[date, list[Record]], list[Rows]]:
    connector, tell = STORIES[name]
    log = ServerLog(connector, name, Landing(DAYS[0]))
    expected = tell(log)
    return log.landed, expected


def source_of(name: str, **settings: Any) -> dict[str, Any]:
    table = {"key": ["id"], "columns": {"v": "string"}}
    return {"format": "debezium", "tables": {f"shop.{name}": table}, **settings}


@pytest.mark.parametrize("name", STORIES)
def test_the_model_has_the_rows_of_each_day(name: str) -> None:
    landed, expected = told(name)
    found = model.tables(source_of(name, position_reset="auto"), landed)
    got = [sorted(of_day[f"shop.{name}"], key=by_id) for of_day in found.values()]
    assert got == expected


@pytest.fixture(scope="module")
def told_in_a_lake(
    lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Callable[[str, date], Rows]]:
    """The rows of each story's table on a day, made night by night and all at once."""
    folder, landed, tables = tmp_path_factory.mktemp("takeovers"), {}, {}
    for name in STORIES:
        tables |= source_of(name)["tables"]
        for day, records in told(name)[0].items():
            landed.setdefault(day, []).extend(records)
    for day in DAYS:
        landed.setdefault(day, [])
    source = lakes.write_source(folder, landed, tables=tables)
    lake = lake_of({"by_night": source, "at_once": source})
    for day in DAYS:
        lakes.run_all(lake, "by_night", [day])
    lakes.run_all(lake, "at_once", DAYS)
    return {
        way: partial(lambda way, name, day: lakes.rows_of(lake, way, f"shop.{name}", day), way)
        for way in ("by_night", "at_once")
    }


@pytest.mark.slow
@pytest.mark.parametrize("way", ["by_night", "at_once"])
@pytest.mark.parametrize("name", STORIES)
def test_a_table_has_the_rows_of_each_day(
    told_in_a_lake: dict[str, Callable[[str, date], Rows]], name: str, way: str
) -> None:
    _, expected = told(name)
    rows_on = told_in_a_lake[way]
    got = [sorted(rows_on(name, day), key=by_id) for day, _ in zip(DAYS, expected, strict=False)]
    assert got == expected


@pytest.mark.parametrize("settings", [[], ["2026-11-20T00:00:00Z"]])
def test_named_instants_overrule_what_would_be_found(settings: list[str]) -> None:
    name = "a_new_server_begins_lower__mysql"
    landed, _ = told(name)
    found = model.tables(source_of(name, position_reset=settings), landed)
    assert found[DAYS[0]][f"shop.{name}"] == rows(a="old", b="old")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_model_holds_against_drawn_takeovers(kind: str) -> None:
    """Also as each day stands before the next one landed."""
    wrong = []
    for seed in range(HISTORIES):
        landed, truth, source = history(kind, seed)
        whole = model.tables(source, landed)
        for day, expected in truth.items():
            until = {d: records for d, records in landed.items() if d <= day}
            for found in (whole, model.tables(source, until)):
                if sorted(found[day][TABLE], key=by_id) != expected:
                    wrong.append((seed, str(day)))
    assert not wrong, f"{len({seed for seed, _ in wrong})} of {HISTORIES}: {wrong[:5]}"
