"""What the check on values says to write has its effect: on a new lake, and on one that stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.envelopes import canal
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.findings import Finding
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.state import stage
from cdc_assets.cdc.state.findings import table_findings
from cdc_assets.cdc.values import placeholders
from cdc_assets.cdc.values.column_types import ColumnType
from cdc_assets.cli.doctor.columns import column_types
from cdc_assets.cli.doctor.findings import Context, Status
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY, Landing, PgLog, canal_message

pytestmark = pytest.mark.slow

DAYS = [DAY, DAY + timedelta(days=1)]
FIRST, LAST = DAYS
NOW = 1_793_613_600
AT = datetime(2026, 11, 2, 10)


@dataclass(frozen=True)
class Value:
    """A value that its column can't hold: how it was sent, and what is to be written."""

    kinds: tuple[Any, Any] | None  # in messages, by day
    sent: tuple[Any, Any]
    advice: str
    held: tuple[Any, Any]
    columns: str | None = None  # as it was configured before


VALUES = {
    "amounts": Value(
        ((ev.DECIMAL, 2, 5), (ev.DECIMAL, 2, 5)),
        (Decimal("1.25"), Decimal("12345.25")),
        "decimal(12,2)",
        (Decimal("1.25"), Decimal("12345.25")),
    ),
    "counts": Value(("int32", "int32"), (7, 2**40), "bigint", (7, 2**40)),
    "days": Value(
        ("io.debezium.time.Date", "io.debezium.time.Timestamp"),
        (20_759, (NOW + 1) * 1000),
        "timestamp_ntz",
        (datetime(2026, 11, 2), AT + timedelta(seconds=1)),
    ),
    "times": Value(
        None, (NOW * 10**6, NOW * 10**6), "timestamp_ntz(us)", (AT, AT), columns="timestamp_ntz"
    ),
}


def landed() -> Landing:
    landing = Landing(FIRST)
    logs = {name: PgLog("advice", "public", name, landing=landing) for name in VALUES}
    for number, day in enumerate(DAYS):
        landing.on(day)
        for name, value in VALUES.items():
            types = {"id": "int32", "v": value.kinds[number]} if value.kinds else None
            logs[name].create(id=number, v=value.sent[number], _types=types)
    return landing


def tables(advised: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in VALUES.items():
        kind = value.advice if advised else value.columns
        found[f"public.{name}"] = {"key": ["id"], **({"columns": {"v": kind}} if kind else {})}
    return found


def finding(lake: Lake, source: str, table: str, report: stage.DayReport) -> Finding:
    state = lake.read_state(lake.state(source, TableName.parse(table)))
    assert state is not None
    found = table_findings(state, LAST, report)
    return next(one for one in found if one.name == "values_representable")


def told_by_doctor(lake: Lake, source: str, status: Status) -> list[str]:
    context = Context(None, quick=True)
    context.config = lake.config
    return [
        f"{found.found}: {found.remedy}"
        for found in column_types(context)
        if found.check == f"columns of {source}" and found.status is status
    ]


def values(lake: Lake, source: str, table: str, column: str = "v") -> list[Any]:
    rows = lakes.rows_of(lake, source, table, LAST)
    return [row[column] for row in sorted(rows, key=lambda row: str(row["id"]))]


def test_a_type_that_the_check_advises_holds_the_values_on_a_new_and_on_a_standing_lake(
    lake_of: LakeOf, tmp_path: Path
) -> None:
    records = landed().landed
    kept = {"tables": tables(advised=False), "on_type_change": "keep"}
    before = lakes.write_source(tmp_path / "old", records, **kept)
    options = {**before, "tables": tables(advised=True)}
    lake = lake_of({"advice": before, "advice_fresh": options}, FIRST)
    lakes.run_stages(lake, "advice", DAYS)
    reports, errors = lakes.run_tables(lake, "advice", DAYS)
    assert errors == {}
    for name in VALUES:
        table = f"public.{name}"
        found = finding(lake, "advice", table, reports[table, LAST])
        assert not found.passed, name
        assert values(lake, "advice", table)[1] is None, name
        if name == "times":
            assert json.loads(found.values["columns_to_write"]) == {"v": VALUES[name].advice}
    lakes.run_all(lake, "advice_fresh", DAYS)
    again = lake_of({"advice": options, "advice_fresh": options}, FIRST)
    (told,) = told_by_doctor(again, "advice", Status.problem)
    assert "v is timestamp_ntz, but the column in the lake is date" in told
    assert told_by_doctor(again, "advice_fresh", Status.problem) == []
    lakes.run_stages(again, "advice", DAYS)
    _, errors = lakes.run_tables(again, "advice", DAYS[1:])
    # The other columns grow.
    (error,) = errors.values()
    assert isinstance(error, ConfigError)
    for text in ("v is timestamp_ntz, but the column in the lake is date", f"--from {FIRST}"):
        assert text in str(error)
    reports, errors = lakes.run_tables(again, "advice", DAYS, force=True)
    assert errors == {}
    for name, value in VALUES.items():
        table = f"public.{name}"
        for source in ("advice", "advice_fresh"):
            assert values(again, source, table) == list(value.held), (source, name)
        assert finding(again, "advice", table, reports[table, LAST]).passed, name


def test_an_entry_that_messages_contradict_stops_its_table_alone_and_doctor_says_it_before(
    lake_of: LakeOf, tmp_path: Path
) -> None:
    landing = Landing(FIRST)
    for name, kind in (("refused", "bytes"), ("right", "int32")):
        log = PgLog("advice", "public", name, landing=landing, wrap=True)
        log.create(id=1, v="AA==" if kind == "bytes" else 1, _types={"id": "int32", "v": kind})
    tables = {f"public.{name}": {"columns": {"v": "string"}} for name in ("refused", "right")}
    options = lakes.write_source(tmp_path, landing.landed, tables=tables)
    lake = lake_of({"advice_pairs": options}, FIRST)
    (told,) = told_by_doctor(lake, "advice_pairs", Status.problem)
    lakes.run_stages(lake, "advice_pairs", DAYS[:1])
    _, errors = lakes.run_tables(lake, "advice_pairs", DAYS[:1])
    assert {table for table, _ in errors} == {"public.refused"}
    (error,) = errors.values()
    assert isinstance(error, ConfigError)
    for text in (told, str(error)):
        assert "columns: v is string, but messages have binary, which can't become that" in text
        assert "Leave the entry out, or write one of binary" in text
    rows = lakes.rows_of(lake, "advice_pairs", "public.right", FIRST)
    assert rows == [{"id": 1, "v": "1"}]


PLACEHOLDER = b"__debezium_unavailable_value".hex()
TYPES = {"id": "bigint", "size": "enum('S','M','L')", "amount": "decimal", "name": "varchar"}


def bills(landing: Landing) -> None:
    for day in DAYS:
        landing.on(day)
        now = landing.tick()
        rows = [
            {"id": day.day, "size": "2", "amount": "19.9000", "name": "tea"},
            {"id": 100 + day.day, "size": "3", "amount": "5.0000", "name": None},
        ]
        landing.put(
            canal_message(
                "INSERT", rows, table=("shop", "bills"), types=TYPES, es=now, timestamp_ms=now
            )
        )


def scans(landing: Landing) -> None:
    log = PgLog("advice", "public", "scans", landing=landing)
    landing.on(FIRST)
    log.create(id=0, v="00ff")
    log.update(id=0, v=PLACEHOLDER)
    landing.on(LAST)
    log.create(id=1, v="01")


def _as_before(patch: pytest.MonkeyPatch) -> None:
    """Read as the version before did."""
    own = canal.type_of

    def type_of(text: str) -> ColumnType:
        if text == "decimal":
            return ColumnType("number", "decimal(10,0)")
        return replace(own(text), wire="string", labels=())

    patch.setattr(canal, "type_of", type_of)
    patch.setattr(placeholders, "_coded", lambda placeholder: [])
    patch.setattr(stage, "VALUES_VERSION", 0)
    patch.setattr(stage, "earlier_values", lambda *_: {})


@pytest.mark.parametrize(
    ("source", "table", "tell", "named", "column", "held"),
    [
        ("advice_canal", "shop.bills", bills, "size", "size", ["L", "L", "M", "M"]),
        (
            "advice_ticdc",
            "shop.bills",
            bills,
            "amount",
            "amount",
            ["5.0000", "5.0000", "19.9000", "19.9000"],
        ),
        ("advice_hex", "public.scans", scans, "v", "v", ["00ff", "01"]),
    ],
)
def test_what_the_version_before_read_otherwise_is_named_until_the_table_is_made_anew(
    lake_of: LakeOf,
    tmp_path: Path,
    source: str,
    table: str,
    tell: Callable[[Landing], None],
    named: str,
    column: str,
    held: list[Any],
) -> None:
    landing = Landing(FIRST)
    tell(landing)
    format = "canal" if tell is bills else "debezium"
    options = lakes.write_source(tmp_path, landing.landed, format, tables={table: {}})
    lake = lake_of({source: options}, FIRST)
    with pytest.MonkeyPatch.context() as patch:
        _as_before(patch)
        lakes.run_all(lake, source, DAYS[:1])
    if tell is bills:  # of a placeholder the rows alone tell
        (told_before,) = told_by_doctor(lake, source, Status.warning)
        assert named in told_before
    reports = lakes.run_all(lake, source, DAYS[1:])
    (told_after,) = told_by_doctor(lake, source, Status.warning)
    assert named in told_after
    assert f"--from {FIRST} --to {LAST}" in told_after
    found = finding(lake, source, table, reports[table, LAST])
    assert not found.passed
    told = json.loads(found.values["read_otherwise"])
    assert named in told
    assert f"--from {FIRST} --to {LAST}" in told["make_anew"]
    assert values(lake, source, table, column) != held
    reports = lakes.run_all(lake, source, DAYS, force=True)
    assert values(lake, source, table, column) == held
    assert finding(lake, source, table, reports[table, LAST]).passed
    assert told_by_doctor(lake, source, Status.warning) == []
