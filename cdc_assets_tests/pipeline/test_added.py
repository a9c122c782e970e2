"""A format and a check from outside the package, as docs/how-it-works.md describes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_assets.cdc.envelopes.declared import DECLARED, DeclaredFormat
from cdc_assets.cdc.envelopes.envelope import (
    Envelope,
    Format,
    TableAndRow,
    detail_of,
    object_in,
    reason_of,
)
from cdc_assets.cdc.envelopes.formats import FORMATS, add_format
from cdc_assets.cdc.findings import Check, Finding, Severity
from cdc_assets.cdc.json_reader import Wanted
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.sqltext import Query, case, literal, lookup, whole
from cdc_assets.cdc.stages.added_checks import TABLES, add_check, remove_check
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.execution.jobs import RANGE_END, RANGE_START
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.shared_spark import SharedSpark

# {"do": "put", "on": "bank.accounts", "row": {"id": 1}, "no": 7, "at": 1750000000000}
EVENT: dict[str, Wanted] = {
    "do": ("string", "do"),
    "do_sent": ("json", "do"),
    "table": ("string", "on"),
    "row": ("object", "row"),
    "no": ("text", "no"),
    "at": ("text", "at"),
}
_OPS = {"put": "u", "drop": "d"}


def read_ledger(records: Query) -> Query:
    """Read the toy's events: a row each, put or dropped, numbered in their order."""
    named = records.extend({"v_op": "d.do", "v_row_op": lookup("d.do", _OPS)})
    reasoned = named.extend(
        {
            "v_reason": reason_of(
                no_event="d.table IS NULL AND d.do_sent IS NULL",
                no_op="d.do_sent IS NULL",
                unknown_op="v_row_op IS NULL",
                no_table="d.table IS NULL",
                no_image="d.row IS NULL",
            )
        }
    )
    return Envelope(
        reason="v_reason",
        detail=detail_of("do", "d.do_sent", "the event names no table", " without a row"),
        kind="'row'",
        op="v_row_op",
        source_op="v_op",
        connector="'ledger'",
        db="CAST(NULL AS string)",
        table_name="d.table",
        before=case(("v_op = 'drop'", "d.row")),
        after=case(("v_op = 'put'", "d.row")),
        key_names="CAST(NULL AS array<string>)",
        source_ts_ms=whole("d.at"),
        elements=f"array({whole('d.no')})",
        basis=literal("no"),
        stand_in=whole("d.at"),
    ).add_to(reasoned)


def _table_and_row(document: Mapping[str, Any]) -> TableAndRow | None:
    row = object_in(document, "row")
    return (str(document["on"]), row) if row and isinstance(document.get("on"), str) else None


LEDGER = Format(
    "ledger",
    EVENT,
    read_ledger,
    signatures=(("do", "on"),),
    columns_of_schema=lambda schema: {},
    table_and_row=_table_and_row,
    whole_old_rows=True,
)
OPEN_ACCOUNTS = Check("accounts_open", "At least one account is open.", Severity.WARN)


def find_open_accounts(
    lake: Lake, source: str, table: str, days: Sequence[date]
) -> dict[date, Finding]:
    """What the toy's check finds: how many rows the table has."""
    counts = {day: lakes.table_at(lake, source, table, day).count() for day in days}
    return {day: Finding(OPEN_ACCOUNTS.name, n > 0, {"open": n}) for day, n in counts.items()}


def event(do: str, row: dict[str, Any], no: int) -> dict[str, Any]:
    return {"do": do, "on": "bank.accounts", "row": row, "no": no, "at": ev.NOON_MS + no}


@pytest.fixture
def added() -> Iterator[None]:
    """The toy format and the toy check, for one test."""
    add_format(LEDGER, DeclaredFormat("ledger"))
    add_check(TABLES, OPEN_ACCOUNTS, find_open_accounts)
    yield
    remove_check(TABLES, OPEN_ACCOUNTS.name)
    del FORMATS["ledger"], DECLARED["ledger"]


def test_a_format_and_a_check_from_outside_are_run_with_those_of_the_package(
    added: None, lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    days = [ev.DAY, ev.DAY + timedelta(days=1)]
    sent = [
        [event("put", {"id": 1, "owner": "Ann"}, 1), event("put", {"id": 2, "owner": "Bo"}, 2)],
        [event("drop", {"id": 1, "owner": "Ann"}, 3), event("drop", {"id": 2}, 4), {"do": "tip"}],
    ]
    for day, messages in zip(days, sent, strict=True):
        (tmp_path / str(day)).mkdir()
        lines = [
            {"topic": "ledger", "partition": 0, "offset": 10 * day.day + n, "ts": ev.NOON_MS}
            | {"key": json.dumps({"id": m.get("row", {}).get("id")}), "payload": json.dumps(m)}
            for n, m in enumerate(messages)
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (tmp_path / str(day) / "part-0.jsonl").write_text(text)
    tables = {"bank.accounts": {"key": ["id"]}}
    lake = lake_of({name: lakes.source_config(tmp_path, "ledger", tables=tables)})

    SharedSpark.shared = lake
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            build_assets(name, lake.config),
            instance=instance,
            resources={"spark": SharedSpark()},
            tags={RANGE_START: str(days[0]), RANGE_END: str(days[1])},
        )
    assert result.success
    assert lakes.rows_of(lake, name, "bank.accounts", days[0]) == [
        {"id": 1, "owner": "Ann"},
        {"id": 2, "owner": "Bo"},
    ]
    assert lakes.rows_of(lake, name, "bank.accounts", days[1]) == []
    (bad,) = lakes.stage_rows(lake, name, "quarantine")
    assert bad["reason"] == "unknown_op"
    found = {
        e.partition: (e.passed, e.metadata["open"].value)
        for e in result.get_asset_check_evaluations()
        if e.check_name == OPEN_ACCOUNTS.name
    }
    assert found == {str(days[0]): (True, 2), str(days[1]): (False, 0)}


def test_two_formats_or_checks_of_one_name_are_refused(added: None) -> None:
    with pytest.raises(ValueError, match="ledger"):
        add_format(LEDGER, DeclaredFormat("ledger"))
    with pytest.raises(ValueError, match="accounts_open"):
        add_check(TABLES, OPEN_ACCOUNTS, find_open_accounts)
