"""One record must not stop a day, nor decide what it has no right to (FORMATS O4, O8, D5, R6).

Each table is a story of some good records and one odd one. The model judges every day.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any
from unittest.mock import ANY

import pytest

from cdc_assets.cdc.errors import SchemaDriftError
from cdc_assets.cdc.findings import Finding
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.state.findings import table_findings
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing

pytestmark = pytest.mark.slow

D1, D2 = DAYS = [ev.DAY, ev.DAY + timedelta(days=1)]
SOURCE = "one_record"
FAR = 2**63 - 1


@dataclass(frozen=True)
class Teller:
    """Lands events of one table."""

    name: str
    landing: Landing

    @property
    def table(self) -> tuple[str, str]:
        return ("public", self.name)

    def event(self, op: str, row: dict[str, Any], lsn: int | None, **options: Any) -> None:
        """An event of the day; deletes carry the row as `before`."""
        before, after = (row, None) if op == "d" else (None, row)
        partition = options.pop("partition", 0)
        record = ev.change(
            op, before, after, table=self.table, lsn=lsn, partition=partition, **options
        )
        self.landing.put(record)

    def next_day(self) -> None:
        self.landing.on(D2)


STORIES: dict[str, tuple[dict[str, Any], Callable[[Teller], None]]] = {}


def story(**config: Any) -> Callable[[Callable[[Teller], None]], Callable[[Teller], None]]:
    def register(tell: Callable[[Teller], None]) -> Callable[[Teller], None]:
        STORIES[tell.__name__] = (config, tell)
        return tell

    return register


@story()
def a_key_that_the_image_lacks(t: Teller) -> None:  # D5
    t.event("c", {"id": 1, "v": "a"}, 10)
    t.event("c", {"v": "b"}, 11, key={"id": 2})
    t.event("c", {"id": 7, "v": "c"}, 12, key={"id": 3})
    t.next_day()
    t.event("u", {"id": 9, "v": "d"}, 13, key={"id": 3})


@story()
def a_key_of_another_type(t: Teller) -> None:  # R6
    for number in (1, 2, 3):
        t.event("c", {"id": number, "v": "a"}, number)
    t.event("c", {"id": 4, "v": "a"}, 4, key={"id": "four"})
    t.next_day()
    t.event("u", {"id": 1, "v": "b"}, 5)
    t.event("u", {"id": 2, "v": "b"}, 6, key={"id": "two"})
    t.event("d", {"id": 3}, 7, key={"id": "3"})


@story()
def a_key_of_other_columns(t: Teller) -> None:  # R6
    for number in (1, 2, 3):
        t.event("c", {"id": number, "code": "x"}, number)
    t.event("c", {"id": 4, "code": "y"}, 4, key={"code": "y"})
    t.next_day()
    t.event("u", {"id": 1, "code": "z"}, 5)
    t.event("u", {"id": 2, "code": "z"}, 6, key={"code": "z"})


@story()
def a_key_of_another_schema(t: Teller) -> None:  # R6
    types = {"id": "int64", "v": "string"}
    t.event("c", {"id": 1, "v": "a"}, 1, types=types)
    t.event("c", {"id": 2, "v": "a"}, 2, types=types)
    t.event("c", {"id": "x", "v": "a"}, 3, types={"id": "string", "v": "string"})
    t.next_day()
    t.event("u", {"id": 1, "v": "b"}, 4)


@story()
def a_record_without_connector(t: Teller) -> None:  # O8
    t.event("c", {"id": 1, "v": "a"}, 10)
    t.event("c", {"id": 2, "v": "a"}, 11)
    t.event("u", {"id": 1, "v": "late by definition"}, None, source={"connector": None})
    t.next_day()
    t.event("u", {"id": 1, "v": "b"}, 12)
    t.event("d", {"id": 2, "v": "a"}, None, source={"connector": None})


@story()
def a_record_of_another_connector(t: Teller) -> None:  # O11: whose positions begin anew
    t.event("c", {"id": 1, "v": "a"}, 10)
    t.event("c", {"id": 2, "v": "a"}, 11)
    t.next_day()
    t.event("u", {"id": 1, "v": "b"}, 12)
    t.event("d", {"id": 2, "v": "a"}, None, source={"connector": "vitess"})
    t.event("u", {"id": 1, "v": "older by definition"}, 13)


@story()
def a_truncate_before_any_row(t: Teller) -> None:  # D12: nothing says the key yet
    t.landing.put(ev.change("t", None, None, table=t.table, lsn=1))
    t.next_day()
    t.event("c", {"id": 1, "v": "a"}, 2)


@story()
def names_that_no_column_can_have(t: Teller) -> None:
    of_merge = ("__row_from_source", "__row_operation")
    odd = dict.fromkeys(("", "_file", "_pos", "_deleted", "_row_id", *of_merge), "x")
    t.event("c", {"id": 1, "v": "a"}, 10)
    t.event("c", {"id": 2, "v": "a", **odd}, 11)
    t.next_day()
    t.event("u", {"id": 1, "v": "b", **odd}, 12)
    t.event("d", {"id": 2}, 13)


@story(columns={"a": "string", "a.b": "string"})
def names_that_only_look_alike(t: Teller) -> None:
    t.event("c", {"id": 1, "ID": 2, "a.b": "x", "a": "y", "`": "z", "it's": 'q"', " id": 0}, 10)
    t.next_day()
    t.event("u", {"id": 1, "ID": 3, "a.b": "x", "a": "y", "`": "w", "it's": 'q"', " id": 1}, 11)


@story(columns={"v": "string"})
def names_that_look_like_variables_of_sql(t: Teller) -> None:
    t.event("c", {"id": 1, "${spark.app.name}": "${env:HOME}", "v": "${system:user.home}"}, 10)
    t.next_day()
    t.event("u", {"id": 1, "${spark.app.name}": "b", "v": "${spark.app.name}"}, 11)


@story(columns={"v": "string"})
def numbers_beyond_their_range(t: Teller) -> None:
    db2 = {"connector": "db2", "commit_lsn": "0" * 16 + ":0:1", "change_lsn": "1:2:3"}
    t.event("c", {"id": 1, "v": "a"}, None, source=db2)
    long = {**db2, "commit_lsn": "f" * 30 + ":" + "f" * 31 + ":" + "f" * 32}
    t.event("c", {"id": 2, "v": "a"}, None, source=long, source_ts_ms=FAR)
    t.event("c", {"id": 3, "v": "a"}, None, source={**db2, "commit_lsn": "f" * 200})
    t.event("c", {"id": 4, "v": "a"}, None, source=db2, source_ts_ms=-FAR, processed_ts_ms=FAR)
    t.event("c", {"id": 5, "v": [[]]}, None, source=db2, processed_ts_ms=10**40)


@story(columns={"v": "string"})
def a_document_of_many_levels(t: Teller) -> None:
    t.event("c", {"id": 1, "v": "a"}, 10)
    t.event("c", {"id": 2, "v": "nested"}, 11)
    record = t.landing.landed[D1].pop()
    nested = b"[" * 980 + b"1" + b"]" * 980
    assert record.value is not None
    t.landing.add(replace(record, value=record.value.replace(b'"nested"', nested)))
    # Of objects Spark can say the type only to some 250 levels.
    t.event("c", {"id": 3, "v": "a", "w": "nested"}, 12)
    record = t.landing.landed[D1].pop()
    nested = b'{"a":' * 900 + b"1" + b"}" * 900
    assert record.value is not None
    t.landing.add(replace(record, value=record.value.replace(b'"nested"', nested)))


@story(columns={"id": "bigint", "d": "double", "s": "string"})
def numbers_that_no_double_holds(t: Teller) -> None:  # R4
    rows: list[tuple[bytes, bytes]] = [
        (b"1e400", b'"x"'),
        (b" -1.5E+0309 ", b"1E+400"),
        (b"1" + b"0" * 308, b'"y"'),
        (b"1" + b"0" * 309, b"-" + b"9" * 310),
        (b"1.7976931348623157e308", b'"Infinity"'),
        (b'"Infinity"', b'"1e400"'),
        (b"0.5", b'"x:1e400,"'),
    ]
    for number, (double, text) in enumerate(rows, 1):
        record = ev.change("c", None, {"id": number, "d": "D", "s": "S"}, table=t.table, lsn=number)
        assert record.value is not None
        value = record.value.replace(b'"D"', double).replace(b'"S"', text)
        t.landing.put(replace(record, value=value))


@story()
def keys_that_are_mostly_of_another_type(t: Teller) -> None:  # R6: drift
    t.event("c", {"id": 1, "v": "a"}, 1)
    t.next_day()
    t.event("u", {"id": 1, "v": "b"}, 2)
    t.event("c", {"id": "x", "v": "b"}, 3)
    t.event("c", {"id": "y", "v": "b"}, 4)


DRIFT = "public.keys_that_are_mostly_of_another_type"


@dataclass(frozen=True)
class Told:
    """The lake after all stories."""

    lake: Lake
    source: dict[str, Any]
    landed: model.Landed
    reports: lakes.Reports
    errors: dict[tuple[str, date], Exception]


@pytest.fixture(scope="module")
def told(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Told:
    landed: dict[date, list[model.Record]] = {}
    for name, (_, tell) in STORIES.items():
        landing = Landing()
        tell(Teller(name, landing))
        for day, records in landing.landed.items():
            landed.setdefault(day, []).extend(records)
    tables = {f"public.{name}": config for name, (config, _) in STORIES.items()}
    folder = tmp_path_factory.mktemp("landing")
    source = lakes.write_source(folder, landed, tables=tables)
    lake = lake_of({SOURCE: source})
    lakes.run_stages(lake, SOURCE, DAYS, lag=True)
    reports, errors = lakes.run_tables(lake, SOURCE, DAYS)
    return Told(lake, source, landed, reports, errors)


def test_every_stage_goes_on_and_every_record_arrives(told: Told) -> None:
    assert set(told.errors) == {(DRIFT, D2)}
    classified = model.classify(told.source, told.landed)
    got = lakes.destinations_read(told.lake, SOURCE)
    lakes.assert_same_rows(got, lakes.destinations_expected(classified), "destinations")
    got = lakes.changes_read(told.lake, SOURCE)
    lakes.assert_same_rows(got, lakes.changes_expected(classified), "changes")
    expected = model.lag(told.source, told.landed)
    lakes.assert_same_rows(lakes.lag_read(told.lake, SOURCE), lakes.lag_expected(expected), "lag")


@pytest.mark.parametrize("name", [n for n in STORIES if f"public.{n}" != DRIFT])
def test_the_table_is_the_models(told: Told, name: str) -> None:
    table = f"public.{name}"
    source = {**told.source, "tables": {table: told.source["tables"][table]}}
    expected = model.tables(source, told.landed)
    for day in DAYS:
        got = lakes.rows_of(told.lake, SOURCE, table, day)
        own = {column for row in got for column in row}
        rows = [{c: row.get(c) for c in own} for row in expected[day][table]]
        lakes.assert_same_rows(got, rows, f"{table} {day}")


def _finding(told: Told, name: str, day: date, check: str) -> Finding:
    table = f"public.{name}"
    state = told.lake.read_state(told.lake.state(SOURCE, lakes.TableName.parse(table)))
    assert state is not None
    found = table_findings(state, day, told.reports[table, day])
    return next(finding for finding in found if finding.name == check)


def _quarantined(told: Told, name: str) -> list[tuple[date, str, str]]:
    rows = lakes.stage_rows(told.lake, SOURCE, "quarantine")
    own = [row for row in rows if row["table_name"] == f"public.{name}"]
    return sorted((row["landing_date"], row["reason"], row["detail"]) for row in own)


def test_key_columns_hold_the_key_and_contradictions_are_counted(told: Told) -> None:  # D5
    rows = lakes.rows_of(told.lake, SOURCE, "public.a_key_that_the_image_lacks", D2)
    assert {row["id"]: row["v"] for row in rows} == {1: "a", 2: "b", 3: "d"}
    found = _finding(told, "a_key_that_the_image_lacks", D1, "keys_agree")
    assert (found.passed, found.values["contradicted"]) == (False, 1)


def test_a_few_keys_of_another_type_are_malformed(told: Told) -> None:  # R6
    found = _quarantined(told, "a_key_of_another_type")
    assert [(day, reason) for day, reason, _ in found] == [
        (D1, "malformed_key"),
        (D2, "malformed_key"),
    ]
    assert found[0][2] == "the key is (id string), the table's is (id bigint)"
    rows = lakes.rows_of(told.lake, SOURCE, "public.a_key_of_another_type", D2)
    assert {row["id"]: row["v"] for row in rows} == {1: "b", 2: "a"}


def test_a_few_keys_of_other_columns_are_malformed(told: Told) -> None:  # R6
    found = _quarantined(told, "a_key_of_other_columns")
    assert [(day, reason) for day, reason, _ in found] == [
        (D1, "malformed_key"),
        (D2, "malformed_key"),
    ]


def test_keys_that_are_mostly_of_another_type_are_drift(told: Told) -> None:  # R6
    error = told.errors[DRIFT, D2]
    assert isinstance(error, SchemaDriftError)
    for part in (DRIFT, str(D2), "'id'", "bigint", "string"):
        assert part in str(error)
    assert not _quarantined(told, DRIFT.removeprefix("public."))


def test_a_position_on_another_basis_is_late_and_counted(told: Told) -> None:  # O8
    name = "a_record_without_connector"
    rows = lakes.rows_of(told.lake, SOURCE, f"public.{name}", D2)
    assert {row["id"]: row["v"] for row in rows} == {1: "b", 2: "a"}
    for day in DAYS:
        found = _finding(told, name, day, "positions_comparable")
        assert (found.passed, found.values["events_on_another_basis"]) == (False, 1)
        assert found.values["basis"] == "epoch 0: lsn,partition,offset,place"


def test_columns_that_no_table_can_have_are_left_out_and_named(told: Told) -> None:
    name = "names_that_no_column_can_have"
    (row,) = lakes.rows_of(told.lake, SOURCE, f"public.{name}", D2)
    assert row == {"id": 1, "v": "b"}
    found = _finding(told, name, D1, "schema_compatible")
    assert (found.passed, found.values["faults"]) == (False, 7)
    assert (
        f"sources.{SOURCE}.tables.public.{name}.rename"
        in told.reports[f"public.{name}", D1].incompatible[0]
    )


def test_numbers_that_no_double_holds_are_counted_and_keep_their_digits(told: Told) -> None:  # R4
    name = "numbers_that_no_double_holds"
    rows = {r["id"]: r["d"] for r in lakes.rows_of(told.lake, SOURCE, f"public.{name}", D1)}
    assert rows == {
        1: None,
        2: None,
        3: 1e308,
        4: None,
        5: 1.7976931348623157e308,
        6: math.inf,
        7: 0.5,
    }
    found = _finding(told, name, D1, "values_representable")
    assert not found.passed
    assert told.reports[f"public.{name}", D1].unfit == {"d": {"count": 3, "example": ANY}}
    changes = lakes.stage_rows(told.lake, SOURCE, "changes", [D1])
    images = [row["after"] for row in changes if row["table_name"] == f"public.{name}"]
    assert sum('"d":"1e400"' in image for image in images) == 1
    assert sum('"s":"x:1e400,"' in image for image in images) == 1


def test_what_was_audited_is_said(told: Told) -> None:
    found = _finding(told, "a_key_of_another_type", D1, "keys_unique")
    assert (found.passed, found.values["keys_audited"]) == (True, 3)
