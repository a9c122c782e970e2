"""Columns over days: added, widened, dropped, contradicted, inferred (R3 to R6).

The tables of one lake, each a story of up to three days; the model judges those that succeed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.errors import AuditError, SchemaDriftError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.names import ddl_of
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog

pytestmark = pytest.mark.slow

D1, D2, D3 = DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]
SOURCE, FIXED = "evolution", "evolution_fixed"
DECIMAL = ev.DECIMAL
ID = {"id": "int32"}
TELL: dict[str, Callable[[PgLog], None]] = {}
BROKEN: set[str] = set()
LONG = {"inferred", "inferred_then_typed"}  # these have a third day
CONFIG: dict[str, dict[str, Any]] = {}


def table(
    broken: bool = False, **config: Any
) -> Callable[[Callable[[PgLog], None]], Callable[[PgLog], None]]:
    """A table of the lake, told by a function; the days of a broken one do not all succeed."""

    def register(tell: Callable[[PgLog], None]) -> Callable[[PgLog], None]:
        TELL[tell.__name__] = tell
        CONFIG[tell.__name__] = config
        if broken:
            BROKEN.add(tell.__name__)
        return tell

    return register


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": ev.field_schema(items)}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "keys": {"type": "string"}, "values": ev.field_schema(values)}


# -- with schemas (R5) ---------------------------------------------------------------------------


@table()
def added(log: PgLog) -> None:
    log.create(id=1, v="a", _types={**ID, "v": "string"})
    log.next_day()
    log.create(id=2, v="b", w=1, _types={**ID, "v": "string", "w": "int32"})


NARROW = {"id": "int32", "n": "int32", "f": "float", "d": (DECIMAL, 2, 5)}
NARROW |= {"a": _array("int32"), "m": _map("int32"), "s": ev.struct_schema({"x": "int32"})}
WIDE = {"id": "int64", "n": "int64", "f": "double", "d": (DECIMAL, 2, 12)}
WIDE |= {"a": _array("int64"), "m": _map("int64")}
WIDE |= {"s": ev.struct_schema({"x": "int64", "y z": "string"})}


@table()
def widened(log: PgLog) -> None:
    narrow = {"n": 1, "f": 0.5, "d": Decimal("1.25"), "a": [1], "m": {"k": 1}, "s": {"x": 1}}
    log.create(id=1, **narrow, _types=NARROW)
    log.create(id=2, **narrow, _types=NARROW)
    log.next_day()
    log.create(id=2, **narrow, _types=NARROW)
    wide = {"n": 2**40, "f": 1e300, "d": Decimal("1234567890.25"), "a": [2**40], "m": {"k": 2**40}}
    log.create(id=2**40, **wide, s={"x": 2**40, "y z": "new"}, _types=WIDE)


@table()
def widened_with_values_not_sent(log: PgLog) -> None:
    """The row of the day before fills in what was not sent, under the wider types (R2)."""
    types: dict[str, Any] = {"id": "int32", "v": "string", "s": ev.struct_schema({"x": "int32"})}
    log.create(id=1, v="long", s={"x": 1}, _types=types)
    log.create(id=2, v="old", s={"x": 2}, _types=types)
    log.next_day()
    types |= {"id": "int64", "s": ev.struct_schema({"x": "int32", "y": "int32"})}
    log.update(id=1, v=ev.TOAST, s={"x": 1, "y": 1}, _types=types)
    log.read(id=2, v="read", s=None, _types=types, _lsn=None)


@table()
def narrowed(log: PgLog) -> None:
    log.create(id=1, n=2**40, _types={**ID, "n": "int64"})
    log.next_day()
    log.create(id=2, n=1, _types={**ID, "n": "int32"})


@table()
def dropped(log: PgLog) -> None:
    log.create(id=1, v="a", w="x", _types={**ID, "v": "string", "w": "string"})
    log.create(id=2, v="a", w="x", _types={**ID, "v": "string", "w": "string"})
    log.next_day()
    log.update(id=2, v="b", _types={**ID, "v": "string"})
    log.create(id=3, v="c", _types={**ID, "v": "string"})


@table()
def contradicted(log: PgLog) -> None:
    first = {"number": "int64", "text": "string", "day": "io.debezium.time.Date"}
    first |= {"price": (DECIMAL, 2, 6), "list": _array("int32"), "yes": "boolean", "raw": "bytes"}
    first["data"] = "string"
    row = {"number": 1, "text": "a", "day": 0, "price": Decimal("1.50"), "list": [1], "data": ""}
    log.create(id=1, **row, yes=True, raw=b"\x01", _types={**ID, **first})
    log.next_day()
    then = {"number": "string", "text": (DECIMAL, 2, 6), "day": "string", "price": "double"}
    then |= {"list": "string", "yes": "int32", "raw": "int32", "data": "bytes"}
    log.create(
        id=2,
        number="7",
        text=Decimal("2.50"),
        day="2026-11-04",
        price=1.25,
        list="[1]",
        yes=1,
        raw=1,
        data=bytes(100),
        _types={**ID, **then},
    )
    log.create(
        id=3,
        number="many",
        text=None,
        day="soon",
        price=1.125,
        list=None,
        yes=2,
        raw=None,
        data=None,
        _types={**ID, **then},
    )


# -- values that do not fit (R4) -----------------------------------------------------------------

UNFIT: dict[str, tuple[Any, Any, str]] = {
    # column → (type, JSON value that does not fit, its text in the report)
    "local": ("io.debezium.time.MicroTimestamp", 9223372036825200000, "9223372036825200000"),
    "zoned": ("io.debezium.time.ZonedTimestamp", "infinity", '"infinity"'),
    "year_10000": (
        "io.debezium.time.ZonedTimestamp",
        "+10000-01-01T00:00:00Z",
        '"+10000-01-01T00:00:00Z"',
    ),
    "before_christ": ("io.debezium.time.Date", -800000, "-800000"),
    "small": ("int32", 2**31, "2147483648"),
    "single": ("float", 1e300, "1.0E300"),
    "price": ((DECIMAL, 2, 4), Decimal("123.45"), '"MDk="'),
    "not_a_number": ((DECIMAL, 2, 4), "NaN", '"NaN"'),
    "number": ("int64", "many", '"many"'),
    "list": (_array("int32"), [1, "x"], '[1,"x"]'),
    "map": (_map("int32"), {"a": "x"}, '{"a":"x"}'),
    "struct": (ev.struct_schema({"x": "int32"}), {"x": "y"}, '{"x":"y"}'),
    "raw": ("bytes", "!", '"!"'),
}
UNFIT_TYPES = {**ID, **{name: kind for name, (kind, _, _) in UNFIT.items()}}


@table()
def unfit(log: PgLog) -> None:
    wrong = {name: value for name, (_, value, _) in UNFIT.items()}
    log.create(id=1, **wrong, _types=UNFIT_TYPES)
    log.create(id=2, **wrong, _types=UNFIT_TYPES)
    log.create(id=3, **dict.fromkeys(UNFIT), _types=UNFIT_TYPES)


# -- without schemas (R3) ------------------------------------------------------------------------


@table()
def inferred(log: PgLog) -> None:
    log.create(id=1, n=1, x=None)
    log.next_day()
    log.create(id=2, n=None, x=None)
    log.next_day()
    log.create(id=3, n=3, x="late")


@table()
def inferred_then_typed(log: PgLog) -> None:
    log.create(id=1, n=1, ratio=0.5)
    log.next_day()
    log.create(id=2, n=2, ratio=1, _types={**ID, "n": "int64", "ratio": "double"})
    log.next_day()
    log.create(id=3, n="many", ratio=2)


@table(columns={"list": "array<int>", "prices": "map<string,decimal(6,2)>", "n": "int"})
def configured(log: PgLog) -> None:
    log.create(id=1, list=[1, 2], prices={"a": Decimal("1.50")}, n=1)
    log.next_day()
    log.create(id=2, list=[1, "x"], prices={"a": Decimal("1.555")}, n=2**31)


@table(broken=True)
def inferred_integer_gets_a_fraction(log: PgLog) -> None:
    log.create(id=1, n=1)
    log.next_day()
    log.create(id=2, n=Decimal("1.5"))


@table(broken=True)
def inferred_fraction_gets_a_long_integer(log: PgLog) -> None:
    log.create(id=1, x=Decimal("0.5"))
    log.next_day()
    log.create(id=2, x=2**53 + 1)


@table(broken=True)
def inferred_fraction_and_long_integer(log: PgLog) -> None:
    log.create(id=1, x=Decimal("0.5"))
    log.create(id=2, x=2**53 + 1)


@table(broken=True)
def inferred_integer_is_text_in_a_schema(log: PgLog) -> None:
    log.create(id=1, n=1)
    log.next_day()
    log.create(id=2, n="many", _types={**ID, "n": "string"})


# -- keys (R6) -----------------------------------------------------------------------------------


@table(broken=True)
def key_by_schema(log: PgLog) -> None:
    log.create(id=1, _types=ID)
    log.next_day()
    log.create(id="one", _types={"id": "string"})


@table(broken=True)
def key_by_value(log: PgLog) -> None:
    log.create(id=1)
    log.next_day()
    log.create(id="one")


@table(broken=True)
def key_of_deletes(log: PgLog) -> None:
    log.create(id=1)
    log.next_day()
    log.delete(_before=None, _key={"id": "one"})


@table(broken=True)
def key_scale(log: PgLog) -> None:
    log.create(id=Decimal("1.5"), _types={"id": (DECIMAL, 1, 5)})
    log.next_day()
    log.create(id=Decimal("1.5"), _types={"id": (DECIMAL, 2, 5)})


@table(broken=True)
def key_of_two_types_in_one_day(log: PgLog) -> None:
    log.create(id=1, _types=ID)
    log.create(id="one", _types={"id": "string"})


@table(broken=True, key=None)
def key_of_other_columns(log: PgLog) -> None:
    log.create(id=1, code="a")
    log.next_day()
    log.create(id=2, code="b", _key={"code": "b"})


# -- the lake ------------------------------------------------------------------------------------


@dataclass
class Told:
    """The lake after all days, and what each day said."""

    lake: Lake
    reports: lakes.Reports
    errors: dict[tuple[str, date], Exception]
    expected: dict[date, dict[str, list[dict[str, Any]]]]
    folder: Path


@pytest.fixture(scope="module")
def told(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("evolution")
    landing = Landing(D1)
    for name, tell in TELL.items():
        landing.on(D1)
        tell(PgLog("evolution", "public", name, landing=landing))
    landed = {day: landing.landed.get(day, []) for day in DAYS}
    tables = {f"public.{name}": {"key": ["id"], **CONFIG[name]} for name in TELL}
    # What becomes of columns otherwise is in test_type_changes.
    kept = {"tables": tables, "on_type_change": "keep"}
    sources = {SOURCE: lakes.write_source(folder / SOURCE, landed, **kept)}
    lake = lake_of(sources)
    lakes.run_stages(lake, SOURCE, DAYS)
    reports, errors = lakes.run_tables(lake, SOURCE, [D1, D2])
    late, failed = lakes.run_tables(lake, SOURCE, [D3], [f"public.{name}" for name in sorted(LONG)])
    reports.update(late)
    errors.update(failed)
    whole = {n: c for n, c in tables.items() if n.removeprefix("public.") not in BROKEN}
    expected = model.tables({**sources[SOURCE], "tables": whole}, landed)
    return Told(lake, reports, errors, expected, folder)


def _days(name: str) -> list[date]:
    return DAYS if name.removeprefix("public.") in LONG else [D1, D2]


def _rows(told: Told, name: str, day: date) -> dict[Any, dict[str, Any]]:
    found = lakes.rows_of(told.lake, SOURCE, f"public.{name}", day)
    return {row.pop("id"): row for row in found}


def _types(told: Told, name: str, day: date) -> dict[str, str]:
    schema = lakes.table_at(told.lake, SOURCE, f"public.{name}", day).schema
    return {f.name: ddl_of(f.dataType) for f in schema.fields if not f.name.startswith("_cdc_")}


def _report(told: Told, name: str, day: date) -> lakes.DayReport:
    return told.reports[f"public.{name}", day]


def test_only_the_tables_that_must_fail_do(told: Told) -> None:
    assert {table.removeprefix("public.") for table, _ in told.errors} == BROKEN


@pytest.mark.parametrize("name", [name for name in TELL if name not in BROKEN])
def test_every_day_is_what_the_model_says(told: Told, name: str) -> None:
    for day in _days(name):
        got = lakes.rows_of(told.lake, SOURCE, f"public.{name}", day)
        lakes.assert_same_rows(got, told.expected[day][f"public.{name}"], f"{name} {day}")


def test_a_new_column_is_added_and_null_before(told: Told) -> None:  # R5
    assert _types(told, "added", D1) == {"id": "int", "v": "string"}
    assert _rows(told, "added", D2) == {1: {"v": "a", "w": None}, 2: {"v": "b", "w": 1}}


def test_columns_widen_also_within_arrays_maps_and_structs(told: Told) -> None:  # R5
    assert _types(told, "widened", D1) == {
        "id": "int",
        "n": "int",
        "f": "float",
        "d": "decimal(5,2)",
        "a": "array<int>",
        "m": "map<string,int>",
        "s": "struct<`x`:int>",
    }
    assert _types(told, "widened", D2) == {
        "id": "bigint",
        "n": "bigint",
        "f": "double",
        "d": "decimal(12,2)",
        "a": "array<bigint>",
        "m": "map<string,bigint>",
        "s": "struct<`x`:bigint,`y z`:string>",
    }
    rows = _rows(told, "widened", D2)
    assert sorted(rows) == [1, 2, 2**40]
    assert rows[1]["s"] == rows[2]["s"] == {"x": 1, "y z": None}
    assert (rows[1]["d"], rows[2**40]["d"]) == (Decimal("1.25"), Decimal("1234567890.25"))
    assert _report(told, "widened", D2).incompatible == []


def test_a_narrower_type_keeps_the_column_and_warns(told: Told) -> None:  # R5
    assert _types(told, "narrowed", D2)["n"] == "bigint"
    assert _report(told, "narrowed", D2).incompatible == ["n: bigint ← int"]
    assert _rows(told, "narrowed", D2) == {1: {"n": 2**40}, 2: {"n": 1}}


def test_a_dropped_column_stays_and_is_null_from_then_on(told: Told) -> None:  # R1, R5
    rows = _rows(told, "dropped", D2)
    assert {key: row["w"] for key, row in rows.items()} == {1: "x", 2: None, 3: None}
    assert _report(told, "dropped", D2).incompatible == []


def test_a_type_that_contradicts_keeps_the_column_and_warns(told: Told) -> None:  # R5, R4
    assert _types(told, "contradicted", D2) == _types(told, "contradicted", D1)
    report, rows = _report(told, "contradicted", D2), _rows(told, "contradicted", D2)
    assert sorted(report.incompatible) == [
        "day: date ← string",
        "list: array<int> ← string",
        "number: bigint ← string",
        "price: decimal(6,2) ← double",
        "raw: binary ← int",
        "yes: boolean ← int",
    ]
    assert rows[2] == {
        "number": 7,
        "text": "2.50",
        "day": date(2026, 11, 4),
        "price": Decimal("1.25"),
        "list": None,
        "yes": True,
        "raw": None,
        "data": base64.b64encode(bytes(100)).decode(),  # Spark's has lines of 57 bytes
    }
    assert set(rows[3].values()) == {None}
    assert {column: found["count"] for column, found in report.unfit.items()} == {
        "number": 1,
        "day": 1,
        "price": 1,
        "list": 1,
        "yes": 1,
        "raw": 1,
    }


@pytest.mark.parametrize("name", UNFIT)
def test_a_value_that_does_not_fit_is_null_counted_and_kept_as_sent(
    told: Told, name: str
) -> None:  # R4
    report = _report(told, "unfit", D1)
    assert report.unfit[name] == {"count": 2, "example": UNFIT[name][2]}
    assert [row[name] for row in _rows(told, "unfit", D1).values()] == [None, None, None]
    changes = lakes.stage_rows(told.lake, SOURCE, "changes", [D1])
    sent = [row["after"] for row in changes if row["table_name"] == "public.unfit"]
    assert sum(UNFIT[name][2] in text for text in sent) == 2


def test_a_column_of_nulls_is_created_when_a_value_comes(told: Told) -> None:  # R3
    assert _types(told, "inferred", D1) == _types(told, "inferred", D2)
    assert _types(told, "inferred", D1) == {"id": "bigint", "n": "bigint"}
    assert _types(told, "inferred", D3) == {"id": "bigint", "n": "bigint", "x": "string"}


def test_a_schema_takes_over_an_inferred_column(told: Told) -> None:  # R3, R5
    report = _report(told, "inferred_then_typed", D3)
    assert report.unfit == {"n": {"count": 1, "example": '"many"'}}
    assert _rows(told, "inferred_then_typed", D3)[3] == {"n": None, "ratio": 2.0}


def test_configured_types_may_be_nested(told: Told) -> None:  # R3, R4
    assert _types(told, "configured", D1)["prices"] == "map<string,decimal(6,2)>"
    report = _report(told, "configured", D2)
    assert {column: found["count"] for column, found in report.unfit.items()} == {
        "list": 1,
        "prices": 1,
        "n": 1,
    }


INFERRED_FAULTS = {
    "inferred_integer_gets_a_fraction": (D2, "bigint", "1.5", "n"),
    "inferred_fraction_gets_a_long_integer": (D2, "double", "9007199254740993", "x"),
    "inferred_fraction_and_long_integer": (D1, "double", "9007199254740993", "x"),
    "inferred_integer_is_text_in_a_schema": (D2, "bigint", '"many"', "n"),
}


@pytest.mark.parametrize("name", INFERRED_FAULTS)
def test_a_value_beyond_an_inferred_column_fails_with_the_line_to_add(
    told: Told, name: str
) -> None:  # R3
    day, kind, value, column = INFERRED_FAULTS[name]
    error = told.errors[f"public.{name}", day]
    assert isinstance(error, AuditError)
    line = f'sources.{SOURCE}.tables.public.{name}.columns: {{"{column}": string}}'
    for part in (str(day), kind, value, line):
        assert part in str(error)
    assert str(day) not in lakes.refs_of(told.lake, SOURCE, f"public.{name}")


KEY_FAULTS = {
    "key_by_schema": (D2, "int", "string"),
    "key_by_value": (D2, "bigint", "string"),
    "key_of_deletes": (D2, "bigint", "string"),
    "key_scale": (D2, "decimal(5,1)", "decimal(5,2)"),
    "key_of_two_types_in_one_day": (D1, "int", "string"),
}


@pytest.mark.parametrize("name", KEY_FAULTS)
def test_a_key_of_another_type_names_table_column_types_and_day(
    told: Told, name: str
) -> None:  # R6
    day, *kinds = KEY_FAULTS[name]
    error = told.errors[f"public.{name}", day]
    assert isinstance(error, SchemaDriftError)
    for part in (f"public.{name}", "'id'", str(day), *kinds):
        assert part in str(error)
    assert str(day) not in lakes.refs_of(told.lake, SOURCE, f"public.{name}")


def test_a_key_of_other_columns_is_an_error_until_somebody_says_which(
    told: Told,
) -> None:  # D5, R6
    error = told.errors["public.key_of_other_columns", D2]
    assert isinstance(error, SchemaDriftError)
    setting = f"sources.{SOURCE}.tables.public.key_of_other_columns.key: […]"
    for part in (str(D2), "['code'] and ['id']", setting):
        assert part in str(error)
    assert str(D2) not in lakes.refs_of(told.lake, SOURCE, "public.key_of_other_columns")


# -- made again ----------------------------------------------------------------------------------

AGAIN = ["widened", "narrowed", *sorted(LONG)]


def test_a_day_made_again_after_later_days_is_what_it_was(told: Told) -> None:  # R3
    tables = [f"public.{name}" for name in AGAIN]
    before = {
        (t, day): (lakes.rows_of(told.lake, SOURCE, t, day), told.reports[t, day])
        for t in tables
        for day in _days(t)
    }
    made, errors = lakes.run_tables(told.lake, SOURCE, [D1, D2], tables, force=True)
    assert errors == {}
    late = [t for t in tables if len(_days(t)) == len(DAYS)]
    made |= lakes.run_tables(told.lake, SOURCE, [D3], late, force=True)[0]
    for (t, day), (rows, report) in before.items():
        # The schema of the lake is one for all days: a day made again has the later columns.
        again = lakes.rows_of(told.lake, SOURCE, t, day)
        own = {column for row in rows for column in row}
        assert {v for row in again for c, v in row.items() if c not in own} <= {None}
        same = [{c: _without_new_members(row[c], row, rows) for c in own} for row in again]
        lakes.assert_same_rows(same, rows, f"{t} {day}")
        assert made[t, day].made
        assert made[t, day].unfit == report.unfit
        assert made[t, day].incompatible == report.incompatible


def _without_new_members(value: Any, row: dict[str, Any], rows: list[dict[str, Any]]) -> Any:
    """A struct with the members that it had when the day was first made."""
    if not isinstance(value, dict):
        return value
    (old,) = (r for r in rows if r["id"] == row["id"])
    (column,) = (c for c, v in row.items() if v is value)
    assert {v for member, v in value.items() if member not in old[column]} <= {None}
    return {member: value[member] for member in old[column]}


def test_a_column_whose_inferred_type_is_too_narrow_becomes_string_by_an_entry(
    lake_of: LakeOf, tmp_path: Path
) -> None:  # R3
    log = PgLog("fixed", "public", "fixed")
    log.create(id=1, n=1)
    log.next_day()
    log.create(id=2, n="many")
    days, tables = [D1, D2], {"public.fixed": {"key": ["id"]}}
    source = lakes.write_source(tmp_path / FIXED, log.landed, tables=tables)
    lake = lake_of({FIXED: source})
    lakes.run_stages(lake, FIXED, days)
    _, errors = lakes.run_tables(lake, FIXED, days)
    assert isinstance(errors["public.fixed", D2], AuditError)

    tables["public.fixed"]["columns"] = {"n": "string"}
    lake = lake_of({FIXED: {**source, "tables": tables}})
    lakes.run_stages(lake, FIXED, days)
    assert not lakes.run_tables(lake, FIXED, [D2])[1]
    rows = lakes.rows_of(lake, FIXED, "public.fixed", D2)
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "n": "1"},
        {"id": 2, "n": "many"},
    ]
