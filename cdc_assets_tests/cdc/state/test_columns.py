"""What columns of real tables say of themselves, and the order in which they stand (R3, R5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.state.record_order import names_in_order
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import FlatLog, Landing, LindormLog, PgLog

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(6)]
ADDED, SAME, CHANGED, ABSENT, EMPTIED, BACK = DAYS
TELL: dict[str, Callable[[PgLog], None]] = {}
CONFIG: dict[str, dict[str, Any]] = {}


def table(**config: Any) -> Callable[[Callable[[PgLog], None]], Callable[[PgLog], None]]:
    """A table of the lake, told by a function."""

    def register(tell: Callable[[PgLog], None]) -> Callable[[PgLog], None]:
        TELL[tell.__name__], CONFIG[tell.__name__] = tell, config
        return tell

    return register


# -- described (schemas with comments) -----------------------------------------------------------


def commented(kind: Any, comment: str | None) -> dict[str, Any]:
    schema = ev.field_schema(kind)
    return schema if comment is None else {**schema, "doc": comment}


HOSTILE = "it's \\ \"${spark.app.name}\"\n'); DROP TABLE x; -- 名"


@table(rename={"at": "opens_at"})
def described(log: PgLog) -> None:
    def types(at: str | None, name: str | None = HOSTILE, **more: Any) -> dict[str, Any]:
        own = {"id": commented("int32", "who"), "name": commented("string", name)}
        years = {"type": "array", "items": ev.field_schema("io.debezium.time.Year")}
        own |= {"at": commented("io.debezium.time.Time", at), "years": commented(years, at)}
        return {**own, **more}

    log.create(id=1, name="a", at=1, _types=types("opens"))
    log.next_day()
    log.create(id=2, name="b", at=2, _types=types("opens"))
    log.next_day()
    new = {"day": commented("io.debezium.time.Year", "of the contract")}
    log.create(id=3, name="c", at=3, day=2026, _types=types("opens at", **new))
    log.next_day()
    log.create(id=4, name="d", at=4, _types=types(None, None))
    log.next_day()
    log.create(id=5, name="e", at=5, _types=types("", ""))
    log.next_day()
    log.create(id=6, name="f", at=6, _types=types("opens"))


@table()
def plain(log: PgLog) -> None:
    """Has the days of the table `described`, and no comments."""
    types = {"v": "string", "id": "int32"}
    for n in range(len(DAYS)):
        if n:
            log.next_day()
        log.create(id=n, v="a", _types=types)


@table()
def contradicted(log: PgLog) -> None:
    log.create(id=1, at=1, _types={"id": "int32", "at": "io.debezium.time.Time"})
    log.next_day()
    log.create(id=2, at="2", _types={"id": "int32", "at": "string"})


# -- ordered (no schemas) ------------------------------------------------------------------------


@table(key=["id"])
def ordered(log: PgLog) -> None:
    log.create(zone="z", name="n", id=1, city="c")
    log.create(id=2, city="c", zone="z", name="n")
    log.next_day()
    log.create(id=3, city="c", zone="z", name="n")
    log.next_day()
    log.create(id=4, y="y", city="c", x="x")


@table(key=["id"])
def sparse(log: PgLog) -> None:
    log.create(name="n", id=1)
    log.create(size=1, name="n", id=2, age=3)
    log.create(weight=1, id=3, colour="red")


@table(key=["b", "a"], columns={"a": "bigint", "b": "bigint", "v": "string", "w": "string"})
def configured(log: PgLog) -> None:
    log.create(w="w", a=1, v="v", b=2, _key=("a", "b"))


@table(key=["b"], columns={"v": "bigint"}, rename={"b": "key of b"})
def renamed_and_partly_configured(log: PgLog) -> None:
    log.create(z="z", v=1, y="y", b=2, _key=("b",))


@table(key=None)
def deletes_first(log: PgLog) -> None:
    log.delete(id=1, _before=None, _key={"id": 1})
    log.next_day()
    log.create(zone="z", id=1, city="c", _key={"id": 1})


@dataclass
class Told:
    lake: Lake
    source: str = "columns"
    commits: dict[tuple[str, date], int] = field(default_factory=dict)

    def columns(self, name: str, day: date) -> dict[str, str | None]:
        """The names and descriptions of a table's own columns at the end of a day."""
        schema = lakes.table_at(self.lake, self.source, f"public.{name}", day).schema
        own = (f for f in schema.fields if not f.name.startswith("_cdc_"))
        return {f.name: f.metadata.get("comment") for f in own}

    def commits_so_far(self, name: str) -> int:
        identifier = self.lake.state(self.source, TableName("public", name))
        return self.lake.spark.table(f"{identifier}.metadata_log_entries").count()


@pytest.fixture(scope="module")
def told(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Told:
    landing = Landing(ADDED)
    for name, tell in TELL.items():
        landing.on(ADDED)
        tell(PgLog("columns", "public", name, landing=landing))
    landed = {day: landing.landed.get(day, []) for day in DAYS}
    tables = {f"public.{name}": CONFIG[name] for name in TELL}
    folder = tmp_path_factory.mktemp("columns")
    options = {"tables": tables, "on_type_change": "keep"}
    told = Told(lake_of({"columns": lakes.write_source(folder, landed, **options)}))
    lakes.run_stages(told.lake, told.source, DAYS)
    for day in DAYS:
        _, errors = lakes.run_tables(
            told.lake, told.source, [day], ["public.described", "public.plain"]
        )
        assert errors == {}
        for name in ("described", "plain"):
            told.commits[name, day] = told.commits_so_far(name)
    others = [t for t in tables if t not in ("public.described", "public.plain")]
    _, errors = lakes.run_tables(told.lake, told.source, DAYS[:3], others)
    assert errors == {}
    return told


TIME = "time of day, microseconds since midnight, sent in milliseconds (io.debezium.time.Time)"
YEAR = "year (io.debezium.time.Year)"
SHOWN = "it's \\ \"${spark.app.name}\" '); DROP TABLE x; -- 名"


def test_a_columns_comment_and_encoding_are_its_description(told: Told) -> None:
    assert told.columns("described", ADDED) == {
        "id": "who",
        "name": SHOWN,
        "opens_at": f"opens; {TIME}",
        "years": f"opens; elements: {YEAR}",
    }
    own = lakes.table_at(told.lake, told.source, "public.described", ADDED).schema
    assert own["_cdc_landing_date"].metadata["comment"] == "day whose changes wrote the row"


def test_a_comment_that_changes_changes_the_description_from_that_day_on(told: Told) -> None:
    assert told.columns("described", CHANGED) == {
        "id": "who",
        "name": SHOWN,
        "opens_at": f"opens at; {TIME}",
        "years": f"opens at; elements: {YEAR}",
        "day": f"of the contract; {YEAR}",
    }
    assert told.columns("described", SAME) == told.columns("described", ADDED)


def test_a_comment_that_is_absent_stays_and_an_empty_one_takes_it_away(told: Told) -> None:
    assert told.columns("described", ABSENT) == told.columns("described", CHANGED)
    assert told.columns("described", EMPTIED) == {
        **told.columns("described", CHANGED),
        "name": None,
        "opens_at": TIME,
        "years": f"elements: {YEAR}",
    }


def test_a_schema_that_comes_back_is_the_newest_again(told: Told) -> None:
    assert told.columns("described", BACK) == {
        **told.columns("described", ADDED),
        "day": f"of the contract; {YEAR}",
    }


def test_only_a_change_of_comments_costs_a_commit(told: Told) -> None:
    def commits(name: str) -> list[int]:
        counts = [told.commits[name, day] for day in DAYS]
        return [later - earlier for earlier, later in pairwise(counts)]

    # Day by day: the same, changed (and a new column), absent, empty, back.
    more = [a - b for a, b in zip(commits("described"), commits("plain"), strict=True)]
    assert more == [0, 2, 0, 1, 1]


def test_an_encoding_is_told_of_columns_of_its_type_alone(told: Told) -> None:  # R5
    assert told.columns("contradicted", SAME)["at"] == TIME


ORDERED = {
    "ordered": ["id", "zone", "name", "city"],
    "sparse": ["id", "name", "size", "age", "colour", "weight"],
    "configured": ["b", "a", "w", "v"],
    "renamed_and_partly_configured": ["key of b", "z", "v", "y"],
    "deletes_first": ["id"],
}


@pytest.mark.parametrize("name", ORDERED)
def test_without_schemas_the_key_comes_first_and_then_the_order_of_the_first_record(
    told: Told, name: str
) -> None:  # R3
    assert list(told.columns(name, ADDED)) == ORDERED[name]


def test_later_columns_follow_in_the_order_of_their_first_record(told: Told) -> None:  # R5
    assert list(told.columns("ordered", SAME)) == ORDERED["ordered"]
    assert list(told.columns("ordered", CHANGED)) == [*ORDERED["ordered"], "y", "x"]
    assert list(told.columns("deletes_first", SAME)) == ["id", "zone", "city"]


def test_with_schemas_their_order_stays(told: Told) -> None:
    assert list(told.columns("plain", ADDED)) == ["v", "id"]


def test_a_day_made_again_leaves_the_descriptions_of_later_days(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = PgLog()
    log.create(id=1, _types={"id": commented("int32", "old")})
    log.next_day()
    log.create(id=2, _types={"id": commented("int32", "new")})
    tables = {"public.customers": {"key": ["id"]}}
    lake = lake_of({name: lakes.write_source(tmp_path, log.landed, tables=tables)})
    told = Told(lake, name)
    lakes.run_all(lake, name, DAYS[:2])
    assert told.columns("customers", DAYS[0]) == {"id": "old"}
    made = lakes.run_all(lake, name, DAYS[:1], force=True)
    assert made["public.customers", DAYS[0]].made
    assert told.columns("customers", DAYS[0]) == {"id": "new"}


@pytest.mark.parametrize("form", [FlatLog, LindormLog])
def test_every_format_keeps_the_order_of_its_records(
    large_lake_of: LakeOf, tmp_path: Path, name: str, form: Any
) -> None:
    log = form()
    log.create(zone="z", id=1, city="c", **{"before": "b", "ts_ms": 5})
    of_log = "debezium-flat" if form is FlatLog else "lindorm"
    key = f"{'public' if form is FlatLog else 'default'}.customers"
    source = lakes.write_source(tmp_path, log.landed, of_log, tables={key: {"key": ["id"]}})
    lake = large_lake_of({name: source})
    lakes.run_all(lake, name, [ev.DAY])
    (row,) = lakes.rows_of(lake, name, key, ev.DAY)
    assert list(row) == ["id", "zone", "city", "before", "ts_ms"]


def test_the_order_is_looked_up_without_a_spark_job(told: Told) -> None:
    events = told.lake.stage_days(told.source, "changes", [ADDED])
    event = events.where("table_name = 'public.sparse'").orderBy("offset").first()
    assert event is not None
    found = Row(first=event, widest=None)
    before = lakes.jobs_run(told.lake)
    names = names_in_order(told.lake, told.source, ADDED, found, {"id", "name"})
    assert (names, lakes.jobs_run(told.lake)) == (["name", "id"], before)
    assert names_in_order(told.lake, told.source, SAME, found, {"id", "name"}) == []
