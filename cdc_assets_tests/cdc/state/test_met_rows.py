"""Rows that meet another one at their key, where nothing tells what became of it, are counted."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.findings import Finding
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.state.findings import table_findings
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing
from cdc_assets_tests.model import Record

pytestmark = pytest.mark.slow

D1, D2 = ev.DAY, ev.DAY + timedelta(days=1)


def row(id: int, v: str) -> dict[str, Any]:
    return {"id": id, "v": v}


def findings(lake_of: LakeOf, name: str, source: dict[str, Any], table: str) -> list[Finding]:
    """What `keys_agree` says of each day."""
    lake = lake_of({name: source})
    lakes.run_stages(lake, name, [D1, D2])
    reports, _ = lakes.run_tables(lake, name, [D1, D2])
    state = lake.read_state(lake.state(name, TableName.parse(table)))
    assert state is not None
    found = [table_findings(state, day, reports[table, day]) for day in (D1, D2)]
    return [next(f for f in of_day if f.name == "keys_agree") for of_day in found]


def landing_of(first: list[Record], second: list[Record]) -> Landing:
    landing = Landing(D1)
    for record in first:
        landing.put(record)
    landing.on(D2)
    for record in second:
        landing.put(record)
    return landing


def test_a_row_of_golden_gate_that_moves_onto_a_standing_row_is_counted(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:  # O16
    options: dict[str, Any] = {"table": "SHOP.SLOTS"}
    landing = landing_of(
        [ev.ogg_inserted(row(n, "a"), pos=str(10 + n), **options) for n in (1, 2, 5)],
        [
            ev.ogg_updated(row(1, "a"), row(2, "a"), pos="21", **options),  # where 2 stands
            ev.ogg_updated(row(2, "a"), row(3, "a"), pos="22", **options),
            ev.ogg_deleted(row(5, "a"), pos="23", **options),
            ev.ogg_updated(row(3, "a"), row(5, "a"), pos="24", **options),  # after 5 has gone
        ],
    )
    tables = {"SHOP.SLOTS": {"key": ["id"]}}
    source = lakes.write_source(tmp_path, landing.landed, "ogg", tables=tables)
    before, found = findings(lake_of, name, source, "SHOP.SLOTS")
    assert (before.passed, before.values["arrived_on_rows"]) == (True, 0)
    assert (found.passed, found.values["arrived_on_rows"]) == (False, 1)


@pytest.mark.parametrize("halves", [True, False])
def test_a_row_of_dataworks_that_moves_onto_a_standing_row_is_counted(
    lake_of: LakeOf, tmp_path: Path, name: str, halves: bool
) -> None:  # O16
    def moved(before: dict[str, Any], after: dict[str, Any], n: int) -> list[Record]:
        at = {"sequence_id": f"16204576425890000{n}"}
        if halves:
            return [
                ev.dataworks_update_before(before, **at),
                ev.dataworks_update_after(after, **at),
            ]
        return [ev.dataworks_updated(before, after, **at)]

    landing = landing_of(
        [
            ev.dataworks_inserted(row(n, "a"), sequence_id=f"16204576425890000{10 + n}")
            for n in (1, 2)
        ],
        [
            *moved(row(1, "a"), row(2, "a"), 21),  # where 2 stands
            *moved(row(2, "a"), row(3, "a"), 22),
            *moved(row(3, "a"), row(4, "a"), 23),
        ],
    )
    tables = {"shop.customers": {"key": ["id"]}}
    source = lakes.write_source(tmp_path, landing.landed, "dataworks", tables=tables)
    before, found = findings(lake_of, name, source, "shop.customers")
    assert (before.passed, before.values["arrived_on_rows"]) == (True, 0)
    assert (found.passed, found.values["arrived_on_rows"]) == (False, 1)


def test_an_old_row_that_is_not_what_another_transaction_left_is_counted(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:  # O2
    def event(op: str, before: Any, after: Any, lsn: int, tx: int, **options: Any) -> Record:
        more = {"txId": tx, **options.pop("source", {})}
        return ev.change(op, before, after, lsn=lsn, source=more, **options)

    def moved(before: Any, after: Any, lsn: int, tx: int) -> list[Record]:
        to, of = ({"id": image["id"]} for image in (after, before))
        leaves = {"__debezium.newkey": ev.key_header(to)}
        arrives = {"__debezium.oldkey": ev.key_header(of)}
        return [
            event("d", before, None, lsn, tx, headers=leaves),
            event("c", None, after, lsn + 1, tx, headers=arrives),
        ]

    landing = landing_of(
        [event("c", None, row(1, "a"), 10, 1), event("c", None, row(2, "b"), 11, 1)],
        [
            *moved(row(2, "b"), row(9, "b"), 30, 3),
            *moved(row(1, "a"), row(2, "a"), 32, 4),
            event("u", row(2, "c"), row(2, "d"), 34, 5),  # of a row that never came to key 2
            event("u", row(2, "d"), row(2, "e"), 35, 6),
        ],
    )
    tables = {"public.customers": {"key": ["id"], "replica_identity": "full"}}
    source = lakes.write_source(tmp_path, landing.landed, tables=tables)
    before, found = findings(lake_of, name, source, "public.customers")
    assert (before.passed, before.values["before_of_others"]) == (True, 0)
    assert (found.passed, found.values["before_of_others"]) == (False, 1)
