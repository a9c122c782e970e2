"""What changed between the ends of two days, against what was done on them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import ArrowScan
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.diff import read_diff
from cdc_assets.cdc.lake.json_values import json_rows
from cdc_assets.cdc.lake.maintenance import maintain
from cdc_assets.cdc.state import table_day
from cdc_assets.cli.app import app
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(6)]
KEYED, UNKEYED = "public.customers", "public.visits"
TABLES: dict[str, Any] = {
    KEYED: {"key": ["id"], "replica_identity": "full"},
    UNKEYED: {"key": "none"},
}
TYPES = {"id": "int32", "v": "string", "price": "double"}
WIDER = {"id": "int32", "v": "string", "price": "double", "note": "string"}
# Small tables are written anew each day, larger ones get delete files.
SOURCES = ("diff_rewritten", "diff_in_parts")


def row(id: int, v: str, price: Any = 1.5, **more: Any) -> dict[str, Any]:
    return {"id": id, "v": v, "price": price, **more}


def a_story() -> Landing:
    landing = Landing(DAYS[0])
    log = PgLog("diff", types=TYPES, landing=landing)
    visits = PgLog("diff", table="visits", key=None, types={"page": "string"}, landing=landing)
    log.create(**row(1, "a"))
    log.create(**row(2, "b", "NaN"))
    log.create(**row(3, "c"))
    log.create(**row(4, "d"))
    for page in ("home", "home", "cart"):
        visits.create(page=page)
    log.next_day()  # each kind of change, and what leaves no trace
    log.update(**row(1, "A"), _before=row(1, "a"))
    log.update(**row(2, "other", "NaN"), _before=row(2, "b", "NaN"))
    log.update(**row(2, "b", "NaN"), _before=row(2, "other", "NaN"))
    log.delete(**row(3, "c"))
    log.create(**row(5, "e"))
    log.delete(**row(5, "e"))
    log.change_key({"id": 4}, **row(6, "d"))
    visits.create(page="home")
    log.next_day()  # a column more
    wider = PgLog("diff", types=WIDER, landing=landing)
    wider.lsn = log.lsn + 100
    wider.update(**row(1, "A", note="new"), _before=row(1, "A"))
    log.next_day()  # nothing
    log.next_day()
    wider.truncate()
    wider.create(**row(7, "g", note=None))
    visits.lsn = wider.lsn + 100
    visits.truncate()
    visits.create(page="cart")
    log.next_day()
    wider.lsn = visits.lsn + 100
    wider.update(**row(7, "G", note="x"), _before=row(7, "g", note=None))
    return landing


@dataclass
class Ran:
    lake: Lake
    folder: Path

    def changes(self, source: str, first: date, last: date, table: str = KEYED) -> list[Any]:
        return list(json_rows(read_diff(self.lake.config, source, table, first, last)))


@pytest.fixture(scope="module")
def ran(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("diff")
    ev.write_landing(folder, a_story().landed)
    lake = lake_of({name: lakes.source_config(folder, tables=TABLES) for name in SOURCES})
    lakes.run_all(lake, SOURCES[0], DAYS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_day, "REWRITTEN_BYTES", -1)
        lakes.run_all(lake, SOURCES[1], DAYS)
        yield Ran(lake, folder)


def created(id: int, after: dict[str, Any]) -> dict[str, Any]:
    return {"key": {"id": id}, "op": "c", "before": None, "after": after}


def updated(id: int, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {"key": {"id": id}, "op": "u", "before": before, "after": after}


def deleted(id: int, before: dict[str, Any]) -> dict[str, Any]:
    return {"key": {"id": id}, "op": "d", "before": before, "after": None}


@pytest.mark.parametrize("source", SOURCES)
def test_each_changed_key_is_listed_once_with_both_rows(ran: Ran, source: str) -> None:
    assert ran.changes(source, DAYS[0], DAYS[1]) == [
        updated(1, row(1, "a"), row(1, "A")),
        deleted(3, row(3, "c")),
        deleted(4, row(4, "d")),
        created(6, row(6, "d")),
    ]


def test_spark_takes_the_changes_as_they_are(ran: Ran, spark: SparkSession) -> None:
    changes = read_diff(ran.lake.config, SOURCES[0], KEYED, DAYS[0], DAYS[1])
    rows = spark.createDataFrame(changes).selectExpr("key.id", "op", "after.v").collect()
    assert [tuple(r) for r in rows] == [
        (1, "u", "A"),
        (3, "d", None),
        (4, "d", None),
        (6, "c", "d"),
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_a_day_without_changes_has_none(ran: Ran, source: str) -> None:
    assert ran.changes(source, DAYS[2], DAYS[3]) == []
    assert ran.changes(source, DAYS[2], DAYS[2]) == []


@pytest.mark.parametrize("source", SOURCES)
def test_rows_before_a_column_was_added_lack_its_value(ran: Ran, source: str) -> None:
    (change,) = ran.changes(source, DAYS[1], DAYS[2])
    assert change == updated(1, row(1, "A", note=None), row(1, "A", note="new"))


@pytest.mark.parametrize("source", SOURCES)
def test_a_truncate_deletes_each_row(ran: Ran, source: str) -> None:
    found = ran.changes(source, DAYS[3], DAYS[4])
    assert [(change["key"]["id"], change["op"]) for change in found] == [
        (1, "d"), (2, "d"), (6, "d"), (7, "c"),
    ]  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_from_a_later_day_to_an_earlier_one_is_the_way_back(ran: Ran, source: str) -> None:
    turned = {"c": "d", "d": "c", "u": "u"}
    forth, back = ran.changes(source, DAYS[0], DAYS[5]), ran.changes(source, DAYS[5], DAYS[0])
    assert back == [
        {**c, "op": turned[c["op"]], "before": c["after"], "after": c["before"]} for c in forth
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_rows_without_a_key_are_counted(ran: Ran, source: str) -> None:
    def listed(first: date, last: date) -> list[tuple[str, str]]:
        found = ran.changes(source, first, last, UNKEYED)
        return sorted((c["op"], (c["after"] or c["before"])["page"]) for c in found)

    assert listed(DAYS[0], DAYS[1]) == [("c", "home")]
    assert listed(DAYS[0], DAYS[4]) == [("d", "home"), ("d", "home")]
    assert listed(DAYS[1], DAYS[3]) == []


@pytest.mark.parametrize("source", SOURCES)
def test_the_changes_of_each_day_lead_to_the_next(ran: Ran, source: str) -> None:
    for first in DAYS:
        for last in DAYS:
            lakes.assert_diff_leads_on(ran.lake, source, KEYED, first, last)
            lakes.assert_diff_leads_on(ran.lake, source, UNKEYED, first, last)


def test_files_that_both_days_have_are_not_read(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    to_table = ArrowScan.to_table

    def counting(self: ArrowScan, tasks: Any) -> Any:
        tasks = list(tasks)
        read.extend(task.file.file_path for task in tasks)
        return to_table(self, tasks)

    monkeypatch.setattr(ArrowScan, "to_table", counting)
    ran.changes(SOURCES[1], DAYS[2], DAYS[3])
    assert read == []
    ran.changes(SOURCES[1], DAYS[4], DAYS[5])
    assert len(read) == 2, "the file whose row is gone, and that of the new row"


def test_days_made_again_and_compacted_files_change_what_rows_are_alone(
    lake_of: LakeOf, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    landing = Landing(DAYS[0])
    log = PgLog("diff", types=TYPES, landing=landing)
    for id in range(1, 5):
        log.create(**row(id, "a"))
    for n in range(1, 4):
        log.next_day()
        log.update(**row(n, f"on day {n}"), _before=row(n, "a"))
    late = log.lsn + 8
    ev.write_landing(tmp_path, landing.landed)
    tables = {KEYED: TABLES[KEYED]}
    lake = lake_of({name: lakes.source_config(tmp_path, tables=tables, late_days=2)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_day, "REWRITTEN_BYTES", -1)
        lakes.run_all(lake, name, DAYS[:4])
        changes = Ran(lake, tmp_path).changes
        before = changes(name, DAYS[0], DAYS[3])
        # A late file of the second day.
        again = Landing(DAYS[1])
        more = PgLog("diff", types=TYPES, landing=again)
        more.lsn = late
        more.create(**row(9, "late"), _partition=3)
        lines = "".join(ev.kcat_line(record) + "\n" for record in again.landed[DAYS[1]])
        (tmp_path / str(DAYS[1]) / "late.jsonl").write_text(lines, "utf-8")
        lakes.run_all(lake, name, DAYS[:2])
        # The days behind it are still those of before.
        assert [c["op"] for c in changes(name, DAYS[1], DAYS[2])] == ["u", "d"]
        lakes.run_all(lake, name, DAYS[:4])
        assert changes(name, DAYS[0], DAYS[3]) == [*before, created(9, row(9, "late"))]
        for n in range(1, 4):
            lakes.assert_diff_leads_on(lake, name, KEYED, DAYS[n - 1], DAYS[n])
        maintain(lake, name, at=datetime.now(timezone.utc) + timedelta(days=2))
        lakes.run_all(lake, name, DAYS[:4], force=True)
        assert changes(name, DAYS[0], DAYS[3]) == [*before, created(9, row(9, "late"))]


def test_a_table_whose_key_no_record_has_carried_yet_has_no_changes(
    lake_of: LakeOf, tmp_path: Path
) -> None:
    landing = Landing(DAYS[0])
    log = PgLog("diff_empty", types=TYPES, landing=landing)
    log.create(**row(1, "a"))
    log.next_day()
    log.create(**row(2, "b"))
    tables = {KEYED: {"key": ["id"]}, "public.others": {"key": ["number"]}}
    lake = lake_of({"diff_empty": lakes.write_source(tmp_path, landing.landed, tables=tables)})
    lakes.run_all(lake, "diff_empty", DAYS[:2])
    assert read_diff(lake.config, "diff_empty", "public.others", *DAYS[:2]).num_rows == 0


def test_a_day_that_was_not_made_is_an_error(ran: Ran) -> None:
    with pytest.raises(MissingDayError, match=f"It has {DAYS[0]} to {DAYS[5]}"):
        ran.changes(SOURCES[0], DAYS[0], DAYS[5] + timedelta(days=1))


def test_the_command_prints_what_changed(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ran.lake.config
    monkeypatch.setattr("cdc_assets.cli.commands.diff.load", lambda file: config)
    table = f"{SOURCES[0]}.{KEYED}"

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["diff", *arguments])

    found = run(table, "--from", str(DAYS[0]), "--to", str(DAYS[1]), "--format", "json")
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert lines == ran.changes(SOURCES[0], DAYS[0], DAYS[1])
    newest = run(table)
    (line,) = newest.stdout.splitlines()[1:]
    differs = ['{"id": 7}', "u", '{"v": "g", "note": null}', '{"v": "G", "note": "x"}']
    assert re.split("  +", line) == differs, "of an update, what differs"
    assert (
        f"1 of 1 changes (0 c, 1 u, 0 d), {table} from the end of {DAYS[4]} to the end of {DAYS[5]}"
    ) in newest.stderr
    limited = run(table, "--from", str(DAYS[0]), "--limit", "2")
    assert "2 of 5 changes" in limited.stderr
    assert "--limit N for more" in limited.stderr
    own = run(f"{SOURCES[0]}.changes")
    assert own.exit_code == 2
    assert "show prints its records" in own.stderr
    turned = run(table, "--from", str(DAYS[1]), "--to", str(DAYS[0]))
    assert turned.exit_code == 2
