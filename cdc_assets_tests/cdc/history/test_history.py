"""The versions of rows, against what was done to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from itertools import pairwise, starmap
from pathlib import Path
from typing import Any

import duckdb
import jinja2
import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.config import parse_config
from cdc_assets.cdc.errors import ConfigError, LakeError, MissingDayError
from cdc_assets.cdc.feed.kind import FEED
from cdc_assets.cdc.history.kind import HISTORY
from cdc_assets.cdc.history.trace import trace
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.json_values import json_rows
from cdc_assets.cdc.lake.maintenance import maintain
from cdc_assets.cdc.lake.rows import read_table
from cdc_assets.cdc.lake.versions import read_at, read_versions
from cdc_assets.cdc.state import table_day
from cdc_assets.cdc.state.source_context import SourceContext, gather
from cdc_assets.orchestration.automation.catch_up import catch_up_runs
from cdc_assets_tests import lakes, row_stories
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing
from cdc_assets_tests.paths import REPOSITORY
from cdc_assets_tests.row_stories import DAYS, TYPES, Story, at

pytestmark = pytest.mark.slow

# Small tables are written anew each day, larger ones get delete files.
SOURCES = ("history_rewritten", "history_in_parts")


STORIES: dict[str, tuple[Callable[[Story], None], Any, list[str]]] = {
    "plain": (
        row_stories.plain,
        True,
        [
            "1 a  0 12:00–0 12:05 c u",
            "1 b  0 12:05–… u",
            "2 x  0 12:01–1 12:00 c d",
            "2 y  2 12:00–… c",
        ],
    ),
    "late": (
        row_stories.late,
        True,
        [
            "1 a  0 12:00–0 12:05 c d",
            "1 b  0 12:10–0 12:20 u u",
            "1 c  0 12:20–1 12:00 u u",
            "1 d  1 12:00–… u",
        ],
    ),
    "one_transaction": (
        row_stories.one_transaction,
        True,
        ["1 a  0 12:00–3 12:00 c d", "1 b  3 12:00–… c"],
    ),
    "moved": (
        row_stories.moved,
        True,
        ["1 a  0 12:00–0 12:01 c k", "1 a  1 12:00–… c", "2 a  0 12:01–1 12:00 c k"],
    ),
    "truncates": (
        row_stories.truncates,
        True,
        [
            "1 a  0 12:00–1 12:00 c u",
            "1 b  1 12:00–1 12:01 u t",
            "1 c  1 12:02–2 12:00 c t",
            "2 x  0 12:00–1 12:01 c t",
        ],
    ),
    "thrice": (
        row_stories.thrice,
        True,
        ["1 a  0 12:00–0 12:01 c u", "1 b  0 12:01–0 12:02 u u", "1 c  0 12:02–… u"],
    ),
    "read_again": (
        row_stories.read_again,
        True,
        ["1 a  0 12:00–… r", "2 x  0 12:00–1 12:00 r u", "2 y  1 12:00–… r"],
    ),
    "unsent": (
        row_stories.unsent,
        True,
        [
            "1 a long 0 12:00–0 12:01 c u",
            "1 b long 0 12:01–0 12:02 u u",
            "1 c longer 0 12:02–1 12:00 u u",
            "1 d longer 1 12:00–… u",
        ],
    ),
    "clock": (
        row_stories.clock,
        True,
        ["1 a  0 12:10–0 12:10 c u", "1 b  0 12:10–0 12:10 u d", "1 c  0 12:10–… c"],
    ),
    "tracked": (
        row_stories.tracked,
        {"columns": ["v"]},
        ["1 a 2 0 12:00–0 12:02 c u", "1 b 4 0 12:02–2 12:00 u u", "1 c 4 2 12:00–… u"],
    ),
    "untracked": (
        row_stories.tracked,
        {"except": ["w"]},
        ["1 a 2 0 12:00–0 12:02 c u", "1 b 4 0 12:02–2 12:00 u u", "1 c 4 2 12:00–… u"],
    ),
    "columns": (
        row_stories.columns,
        True,
        [
            "1 a old 0 12:00–1 12:00 c u",
            "1 b  1 12:00–2 12:00 u u",
            "1 c  n=7 2 12:00–… u",
        ],
    ),
    "brought_back": (
        row_stories.brought_back,
        True,
        ["1 a  0 12:00–0 12:05 c u", "1 b  0 12:05–0 12:09 u d", "1 b  0 12:09–… r"],
    ),
    "after_removal": (
        row_stories.after_removal,
        True,
        [
            "1 a  0 12:05–0 12:20 c d",
            "2 m  0 12:06–0 12:21 c k",
            "4 m  0 12:21–… c",
            "9 z  0 12:00–… c",
        ],
    ),
    "above_removals": (
        row_stories.above_removals,
        True,
        ["1 a  0 12:25–… c", "2 x  0 12:10–0 12:29 c t"],
    ),
    "read_without_position": (
        row_stories.read_without_position,
        True,
        ["1 a  0 12:10–0 12:20 c d", "1 b  0 12:20–1 12:00 r d"],
    ),
    "beneath": (
        row_stories.beneath,
        True,
        [
            "1 a  0 12:00–1 12:02 c u",
            "1 a  1 12:02–2 12:00 c u",
            "1 b  1 12:02–1 12:02 c k",
            "1 c  2 12:00–… u",
            "2 b  0 12:01–1 12:02 c k",
            "3 b  1 12:02–… c",
            "4 late  0 12:03–… c",
        ],
    ),
}


CHANGES: dict[str, list[str]] = {
    "plain": [
        "0 1 insert c 1 a ",
        "0 1 insert c 2 x ",
        "0 2 update u 1 b ",
        "1 1 delete d 2 x ",
        "2 1 insert c 2 y ",
    ],
    "late": ["0 1 insert c 1 a ", "0 2 update u 1 c ", "1 1 update u 1 d "],
    "one_transaction": ["0 1 insert c 1 a ", "3 1 delete d 1 a ", "3 2 insert c 1 b "],
    "moved": [
        "0 1 insert c 1 a ",
        "0 2 delete k 1 a ",
        "0 1 insert c 2 a ",
        "1 1 insert c 1 a ",
        "1 1 delete k 2 a ",
    ],
    "truncates": [
        "0 1 insert c 1 a ",
        "0 1 insert c 2 x ",
        "1 1 delete t 2 x ",
        "1 1 update u 1 b ",
        "1 2 delete t 1 b ",
        "1 3 insert c 1 c ",
        "2 1 delete t 1 c ",
    ],
    "thrice": ["0 1 insert c 1 a ", "0 2 update u 1 b ", "0 3 update u 1 c "],
    "read_again": ["0 1 insert r 1 a ", "0 1 insert r 2 x ", "1 1 update r 2 y "],
    "unsent": [
        "0 1 insert c 1 a long",
        "0 2 update u 1 b long",
        "0 3 update u 1 c longer",
        "1 1 update u 1 d longer",
    ],
    "clock": [
        "0 1 insert c 1 a ",
        "0 2 update u 1 b ",
        "0 3 delete d 1 b ",
        "1 1 insert c 1 c ",
    ],
    "tracked": [
        "0 1 insert c 1 a 1",
        "0 2 update u 1 a 2",
        "0 3 update u 1 b 3",
        "1 1 update u 1 b 4",
        "2 1 update u 1 c 4",
    ],
    "columns": ["0 1 insert c 1 a old", "1 1 update u 1 b ", "2 1 update u 1 c  n=7"],
    "brought_back": ["0 1 insert c 1 a ", "0 2 delete d 1 a ", "3 1 insert u 1 b "],
    "after_removal": ["0 1 insert c 9 z ", "1 1 insert c 4 m "],
    "above_removals": ["1 1 insert c 1 a "],
    "read_without_position": [
        "0 1 insert c 1 a ",
        "0 2 delete d 1 a ",
        "1 1 insert r 1 b ",
        "1 2 delete d 1 b ",
    ],
    "beneath": [
        "0 1 insert c 1 a ",
        "0 1 insert c 2 b ",
        "1 1 update c 1 b ",
        "1 2 update k 1 a ",
        "1 1 delete k 2 b ",
        "1 1 insert c 3 b ",
        "2 1 update u 1 c ",
        "2 1 insert c 4 late ",
    ],
}
CHANGES["untracked"] = CHANGES["tracked"]


def told(row: dict[str, Any]) -> str:
    more = f" n={row['n']}" if row.get("n") is not None else ""
    end = _time(row["_cdc_valid_to"]) if row["_cdc_valid_to"] else "…"
    closed = f" {row['_cdc_closed_by']}" if row["_cdc_closed_by"] else ""
    times = f"{_time(row['_cdc_valid_from'])}–{end}"
    return f"{row['id']} {row['v']} {row.get('w') or ''}{more} {times} {row['_cdc_op']}{closed}"


def changed(day: int, row: dict[str, Any]) -> str:
    more = f" n={row['n']}" if row.get("n") is not None else ""
    change = f"{row['_cdc_sequence']} {row['_cdc_change']} {row['_cdc_op']}"
    return f"{day} {change} {row['id']} {row['v']} {row.get('w') or ''}{more}"


def _time(instant: datetime) -> str:
    return f"{(instant.date() - DAYS[0]).days} {instant:%H:%M}"


def versions(lake: Lake, source: str, table: str, day: date) -> list[str]:
    return sorted(map(told, lakes.versions_at(lake, source, f"public.{table}", day)))


@pytest.fixture(scope="module")
def lake(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The stories, each a table of two sources, with all their days made."""
    landing = Landing(DAYS[0])
    landed: dict[date, list[Any]] = {day: [] for day in DAYS}
    for name, (tell, _, _) in STORIES.items():
        own = Landing(DAYS[0])
        tell(Story("history", table=name, types=TYPES, landing=own))
        for day, records in own.landed.items():
            landed[day] += records
    assert landing.day == DAYS[0]
    tables = {
        f"public.{name}": {"key": ["id"], "history": history, "feed": True}
        for name, (_, history, _) in STORIES.items()
    }
    folder = tmp_path_factory.mktemp("history")
    raw = {
        source: lakes.write_source(folder / source, landed, tables=tables, late_days=2)
        for source in SOURCES
    }
    lake = lake_of(raw)
    with pytest.MonkeyPatch.context() as patch:
        for source in SOURCES:
            if source == SOURCES[1]:
                patch.setattr(table_day, "REWRITTEN_BYTES", -1)
            for day in DAYS:
                lakes.run_all(lake, source, [day])
                lakes.run_derived(lake, source, [day])
    return lake


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("source", SOURCES)
def test_versions_are_what_was_done_to_the_rows(lake: Lake, source: str, name: str) -> None:
    assert versions(lake, source, name, DAYS[-1]) == sorted(STORIES[name][2])


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("source", SOURCES)
def test_changes_are_those_that_the_events_made(lake: Lake, source: str, name: str) -> None:
    table = f"public.{name}"
    fed = [
        (n, c) for n, day in enumerate(DAYS) for c in lakes.changes_fed(lake, source, table, day)
    ]
    assert sorted(starmap(changed, fed)) == sorted(CHANGES[name])


def _documented(table: str) -> list[str]:
    """The SQL of docs/lake.md that reads a table, for the table `plain` of the first source."""
    text = (REPOSITORY / "docs" / "lake.md").read_text()
    found = [
        statement
        for block in re.findall(r"^```sql\n(.*?)^```", text, re.M | re.S)
        for statement in block.split(";")
        if f"orders__{table}" in statement
    ]
    own = {
        "lake.inventory.public.orders": f"lake.{SOURCES[0]}.public.plain",
        "order_id": "id",
        "5028": "1",
        "2026-11-04 14:05:00": f"{DAYS[0]} 12:03:00",
        "2026-11-03": str(DAYS[0]),
    }
    for shown, name in own.items():
        found = [statement.replace(shown, name) for statement in found]
    return found


def _in_duckdb(lake: Lake, statement: str) -> list[tuple[Any, ...]]:
    """What DuckDB makes of a statement, with the tables that it names as Arrow."""
    with duckdb.connect() as database:
        for name in re.findall(r"lake\.(\S+)", statement):
            table = name.rsplit(".", 1)[1]
            source, _, rest = name.partition(".")
            database.register(table, read_table(lake.config, source, rest, None))
            statement = statement.replace(f"lake.{name}", table)
        database.execute("SET TimeZone = 'UTC'")
        return database.execute(statement).fetchall()


def test_the_documented_sql_gives_the_same_in_spark_and_in_duckdb(lake: Lake) -> None:
    versions_of_key, at_an_instant = _documented("history")
    _, newest = _documented("feed")
    for statement, rows in ((versions_of_key, 2), (at_an_instant, 2), (newest, 1)):
        in_spark = [tuple(row)[:2] for row in lake.spark.sql(statement).collect()]
        assert len(in_spark) == rows, statement
        assert sorted(in_spark) == sorted(row[:2] for row in _in_duckdb(lake, statement))


def test_the_documented_model_takes_over_each_change_once(lake: Lake) -> None:
    """Rendered as dbt renders it, in DuckDB: a first run on the second day, one at the end."""
    model, _ = _documented("feed")
    place = (lake.config, SOURCES[0], "public.plain__feed")
    runs: list[date] = []
    template = jinja2.Template(model)
    shown = {"source": lambda *_: "feed", "this": "taken", "is_incremental": lambda: bool(runs)}
    with duckdb.connect() as database:
        for day in (DAYS[1], DAYS[-1]):
            database.register("feed", read_table(*place, day))
            into = "INSERT INTO taken" if runs else "CREATE TABLE taken AS"
            database.execute(f"{into} {template.render(shown)}")
            runs.append(day)
        taken = database.execute("SELECT id, _cdc_landing_date, _cdc_sequence FROM taken")
        rows = taken.fetchall()
    assert len(rows) == len(set(rows)) == len(CHANGES["plain"])


@pytest.mark.parametrize("source", SOURCES)
def test_the_changes_of_a_day_lead_from_the_day_before_to_it(lake: Lake, source: str) -> None:
    for name in STORIES:
        for day in DAYS:
            lakes.assert_feed_leads_on(lake, source, f"public.{name}", day)


def test_a_day_of_a_history_is_as_it_was_known_then(lake: Lake) -> None:
    assert versions(lake, SOURCES[0], "late", DAYS[1]) == [
        "1 a  0 12:00–0 12:20 c u",
        "1 c  0 12:20–1 12:00 u u",
        "1 d  1 12:00–… u",
    ]


def test_versions_of_a_key_are_disjoint_by_position_too(lake: Lake) -> None:
    for name in STORIES:
        rows = lakes.versions_at(lake, SOURCES[1], f"public.{name}", DAYS[-1])
        for id in {row["id"] for row in rows}:
            own = [row for row in rows if row["id"] == id]
            for before, after in pairwise(own):
                assert before["_cdc_to_position"] <= after["_cdc_from_position"]
                assert before["_cdc_valid_to"] <= after["_cdc_valid_from"]


def test_the_versions_of_a_key_and_a_table_at_an_instant_are_read_without_spark(
    lake: Lake,
) -> None:
    config, source = lake.config, SOURCES[0]
    found = read_versions(config, source, "public.plain", {"id": 1})
    assert found["v"].to_pylist() == ["a", "b"]
    noon = datetime.fromtimestamp(at(0, 0) / 1000, timezone.utc)
    rows = {
        minutes: [
            (row["id"], row["v"])
            for row in json_rows(
                read_at(config, source, "public.plain", noon + timedelta(minutes=minutes))
            )
        ]
        for minutes in (-1, 0, 3, 5, 24 * 60, 2 * 24 * 60)
    }
    assert rows == {
        -1: [],
        0: [(1, "a")],
        3: [(1, "a"), (2, "x")],
        5: [(1, "b"), (2, "x")],
        24 * 60: [(1, "b")],
        2 * 24 * 60: [(1, "b"), (2, "y")],
    }


TRACED: list[tuple[str, int, int, list[str]]] = [
    (
        "plain",
        1,
        3,
        ["0 c was the row", "0 u is the row", "0 None is in quarantine: malformed_json"],
    ),
    ("plain", 2, 3, ["0 c was the row", "1 d removed the row", "2 c is the row"]),
    ("plain", 2, 1, ["0 c was the row", "1 d removed the row"]),
    (
        "late",
        1,
        3,
        [
            "0 c was the row",
            "3 d lost: it is older than an event that had landed before",
            "2 u lost: it is older than an event that had landed before",
            "0 u was the row",
            "1 u is the row",
        ],
    ),
    ("late", 1, 1, ["0 c was the row", "0 u was the row", "1 u is the row"]),
    ("one_transaction", 1, 3, ["0 c was the row", "3 d removed the row", "3 c is the row"]),
    ("moved", 1, 3, ["0 c was the row", "0 d removed the row", "1 c is the row"]),
    (
        "truncates",
        2,
        3,
        ["0 c was the row", "1 t removed the row", "2 t removed nothing"],
    ),
    (
        "thrice",
        1,
        3,
        [
            "0 c was the row",
            "0 u was the row",
            "0 u is the row",
            "0 u repeats an event that had landed",
            "1 u repeats an event that had landed",
        ],
    ),
    (
        "brought_back",
        1,
        3,
        [
            "0 c was the row",
            "3 u is the row: what removed it had landed more than 2 days before, and is not looked "
            "up any more",
            "0 d removed the row",
        ],
    ),
    ("plain", 7, 3, []),
]


@pytest.mark.parametrize(("table", "id", "day", "expected"), TRACED)
def test_a_row_is_traced_to_its_records(
    lake: Lake, table: str, id: int, day: int, expected: list[str]
) -> None:
    found = trace(lake, SOURCES[0], f"public.{table}", {"id": id}, DAYS[day])
    did = [f"{(r.landing_date - DAYS[0]).days} {r.op} {r.did}" for r in found]
    assert did == expected


def test_a_trace_names_the_key_that_it_needs(lake: Lake) -> None:
    for key, says in (({"v": 1}, "keyed by"), ({"id": "x"}, "expected int")):
        with pytest.raises(ConfigError, match=says):
            trace(lake, SOURCES[0], "public.plain", key)
    with pytest.raises(MissingDayError):
        trace(lake, SOURCES[0], "public.plain", {"id": 1}, DAYS[-1] + timedelta(days=9))


def test_a_key_of_other_columns_or_types_is_refused(lake: Lake) -> None:
    for key, says in (({"v": 1}, "keyed by"), ({"id": None}, "got None"), ({"id": "x"}, "id")):
        with pytest.raises((ConfigError, LakeError), match=says):
            read_versions(lake.config, SOURCES[0], "public.plain", key)


def test_columns_that_the_table_has_not_begin_no_version(lake_of: LakeOf, tmp_path: Path) -> None:
    log = Story("other", types=TYPES)
    log.create(id=1, v="a", **log.at(0))
    table = {"key": ["id"], "history": {"columns": ["status"]}}
    raw = lakes.write_source(tmp_path, log.landed, tables={"public.customers": table})
    lake = lake_of({"history_other": raw})
    lakes.run_all(lake, "history_other", DAYS[:1])
    with pytest.raises(ConfigError, match=r"history\.columns: got status; the table has v, w"):
        lakes.run_derived(lake, "history_other", DAYS[:1])


def test_a_day_that_is_made_again_replaces_its_versions(
    spark: SparkSession, lake_of: LakeOf, tmp_path: Path
) -> None:
    landing = Landing(DAYS[0])
    log = Story("again", types=TYPES, landing=landing)
    log.create(id=1, v="a", _lsn=100, **log.at(0))
    log.update(id=1, v="c", _lsn=300, **log.at(9))
    log.next_day()
    log.update(id=1, v="d", _lsn=400, **log.at(0))
    table = {"key": ["id"], "history": True}
    raw = lakes.write_source(tmp_path, landing.landed, tables={"public.customers": table})
    lake = lake_of({"history_again": raw})
    lakes.run_all(lake, "history_again", DAYS[:2])
    lakes.run_derived(lake, "history_again", DAYS[:2])
    more = Landing(DAYS[0])
    other = Story("again", types=TYPES, landing=more)
    other.create(id=2, v="x", _lsn=200, _offset=50, **other.at(5))
    lakes.write_source(tmp_path, {DAYS[0]: [*landing.landed[DAYS[0]], *more.landed[DAYS[0]]]})
    lakes.run_all(lake, "history_again", DAYS[:2])
    made = lakes.run_derived(lake, "history_again", DAYS[:2])
    assert [report.made for report in made.values()] == [True, True]
    assert versions(lake, "history_again", "customers", DAYS[1]) == [
        "1 a  0 12:00–0 12:09 c u",
        "1 c  0 12:09–1 12:00 u u",
        "1 d  1 12:00–… u",
        "2 x  0 12:05–… c",
    ]
    again = lakes.run_derived(lake, "history_again", DAYS[:2])
    assert [report.made for report in again.values()] == [False, False]


def test_a_history_and_a_feed_that_are_switched_on_later_begin_with_the_days_that_are_kept(
    lake_of: LakeOf, tmp_path: Path
) -> None:
    landing = Landing(DAYS[0])
    log = Story("later", types=TYPES, landing=landing)
    log.create(id=1, v="a", **log.at(0))
    log.create(id=2, v="x", **log.at(1))
    log.next_day()
    log.update(id=1, v="b", **log.at(0))
    log.next_day()
    log.update(id=1, v="c", **log.at(0))
    log.delete(id=2, **log.at(1))
    log.next_day()
    log.create(id=3, v="y", **log.at(0))
    name, table = "history_later", "public.customers"
    kept = {"late_days": 1, "keep_days": 2}
    raw = lakes.write_source(tmp_path, landing.landed, tables={table: {"key": ["id"]}}, **kept)
    lake = lake_of({name: raw})
    lakes.run_all(lake, name, DAYS[:4], lag=True)
    list(maintain(lake, name, at=datetime.now(timezone.utc) + timedelta(days=2)))
    assert catch_up_runs(lake.config, name, DAYS[3]) == []

    raw["tables"][table] |= {"history": True, "feed": True}
    lake = lake_of({name: raw})
    (run,) = catch_up_runs(lake.config, name, DAYS[3])
    assert (run.first, run.last) == (DAYS[1], DAYS[3])
    with pytest.raises(MissingDayError, match=rf"Its history is made from it.*--from {DAYS[0]}"):
        HISTORY.make_day(lake, name, table, DAYS[0], _facts(lake, name, DAYS[:1]))
    with pytest.raises(MissingDayError, match=rf"Its feed begins behind it.*--from {DAYS[0]}"):
        FEED.make_day(lake, name, table, DAYS[1], _facts(lake, name, DAYS[1:2]))
    for day in DAYS[1:4]:
        HISTORY.make_day(lake, name, table, day, _facts(lake, name, [day]))
    for day in DAYS[2:4]:
        FEED.make_day(lake, name, table, day, _facts(lake, name, [day]))
        lakes.assert_feed_leads_on(lake, name, table, day)
    found = {
        DAYS[1]: ["1 b  1 12:00–… r", "2 x  0 12:01–… r"],
        DAYS[3]: [
            "1 b  1 12:00–2 12:00 r u",
            "1 c  2 12:00–… u",
            "2 x  0 12:01–2 12:01 r d",
            "3 y  3 12:00–… c",
        ],
    }
    assert {day: versions(lake, name, "customers", day) for day in found} == found
    assert catch_up_runs(lake.config, name, DAYS[3]) == []

    # Made again by another rule, it begins on the same day.
    raw["tables"][table] |= {"history": {"columns": ["v"]}}
    lake = lake_of({name: raw})
    for day in DAYS[1:4]:
        report = HISTORY.make_day(lake, name, table, day, _facts(lake, name, [day]))
        assert report.made
    assert {day: versions(lake, name, "customers", day) for day in found} == found


def _facts(lake: Lake, source: str, days: Sequence[date]) -> SourceContext:
    return gather(lake, source, ["public.customers"], days)


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"public.t": {"key": "none", "history": True}}, "versions are told apart by a key"),
        ({"public.t": {"history": {"columns": ["a"], "except": ["b"]}}}, "keep one"),
        ({"public.t": {"history": "yes"}}, r"history: got 'yes'; expected .*true"),
        ({"public.t": {"history": True}, "public.t__history": {}}, "would be one"),
        ({"public.t": {"history": True}, "public__t.history": {}}, "would be one"),
    ],
)
def test_what_can_have_no_history_is_refused(
    tables: dict[str, Any], says: str, tmp_path: Path
) -> None:
    source = lakes.source_config(tmp_path, tables=tables)
    raw = {"lake": {"warehouse": "/w"}, "start_date": "2026-11-01", "sources": {"s": source}}
    with pytest.raises(ConfigError, match=says):
        parse_config(raw, tmp_path)


def test_rows_without_a_key_of_their_own_have_no_history(tmp_path: Path) -> None:
    table = {"key": "row", "history": True}
    source = lakes.source_config(tmp_path, tables={"public.t": table})
    raw = {"lake": {"warehouse": "/w"}, "start_date": "2026-11-01", "sources": {"s": source}}
    assert parse_config(raw, tmp_path).sources["s"].derived == []
