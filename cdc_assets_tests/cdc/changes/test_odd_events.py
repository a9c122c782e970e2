"""Events of Maxwell and GoldenGate with odd members that hostile draws seldom hit: as the model."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY, Landing
from cdc_assets_tests.model import Record

ROW = {"id": 1, "name": "Ann"}
WIDE = 10**38  # as a JSON number of 39 digits, more than VARIANT holds
KEY_NAMES: list[Any] = [
    [None],
    [5],
    ["id", None],
    ["id", "id"],
    [["id"]],
    [],
    "id",
    {"id": 1},
    [""],
]
PLACES = [
    "b.3:5",
    "b.3:",
    ":5",
    "3:5",
    "b.3:5 ",
    "b." + "9" * 30 + ":5",
    "b.3:" + "9" * 30,
    3,
    ["3:5"],
]
COMMITS: list[Any] = [True, False, "true", 1, None, {}]
TIMES: list[Any] = [
    "2026-11-04 12:00:00.5", "2026-11-04T12:00:00Z", "2026-11-04 12:00:00.123456789",
    "2026-11-04 12:00:00.", "2026-11-04 12:00", "2026-11-04", "2026-02-30 12:00:00",
    "2026-11-04 24:00:00", "2026-11-04 12:00:00+08:00", "0001-01-01 00:00:00", 2026, None, [],
]  # fmt: skip
NUMBERS: list[Any] = [
    WIDE, WIDE * 10, 10**37, "1" * 39, "1" * 40, "0" * 40, -1, "-1", Decimal("1.0"), Decimal("1.5"),
    "1.0", "", True, [], 0, "00",
]  # fmt: skip


def with_header(record: Record) -> Record:
    """A key in a header, of an event whose own key is not known."""
    return replace(record, key=None, headers=(("__debezium.oldkey", b'{"id":2}'),))


def maxwell(**members: Any) -> Record:
    event = {"database": "shop", "table": "customers", "type": "insert", "ts": 5, "data": ROW}
    value = ev.to_json({**event, **members}).encode()
    return ev.raw(value, topic="t", key=ev.maxwell_key({"id": 1}))


def ogg(**members: Any) -> Record:
    event = {"table": "SHOP.CUSTOMERS", "op_type": "I", "after": ROW, "pos": "7"}
    return ev.raw(ev.to_json({**event, **members}).encode(), topic="t", key=b'{"id":1}')


ODD = {
    "maxwell": [
        *(maxwell(primary_key_columns=names) for names in KEY_NAMES),
        *(maxwell(position=place, xoffset=1) for place in PLACES),
        *(maxwell(position="b.3:5", commit=commit) for commit in COMMITS),
        *(maxwell(position="b.3:5", xoffset=number) for number in NUMBERS),
        *(maxwell(ts=number) for number in (*NUMBERS, 2**62, -(2**62))),
        *(maxwell(type="update", old=old) for old in ({"name": "Bob"}, {"gone": 1}, {}, None, [])),
        *(
            maxwell(type=kind, data=data)
            for kind in ("delete", "update")
            for data in ({}, [], None)
        ),
        maxwell(type="update", data={"id": 1, "n": WIDE}, old={"n": WIDE * 10}),
        maxwell(type="update", data={"id": 2, "n": 1}, old={"id": 1}),
    ],
    "ogg": [
        *(ogg(primary_keys=names) for names in KEY_NAMES),
        *(ogg(pos=number, op_ts="2026-11-04 12:00:00") for number in NUMBERS),
        *(ogg(op_ts=time, current_ts=time) for time in TIMES),
        *(ogg(table=name) for name in ("a..b", ".b", "a.", ".", "a", "", "p.s.t", 'a".b', None, 5)),
        *(ogg(op_type=op, before=row, after=row) for op in "IUDTX" for row in (ROW, {}, None, 5)),
        ogg(op_type="U", before={"id": 2}, after={"id": 3}),
        ogg(op_type="U", before={"name": "Bob"}, after={"id": 3}),
        ogg(op_type="D", before={"name": "Bob"}),
        *(
            one
            for table in ("SHOP.CUSTOMERS", "SHOP.OTHERS")
            for one in (
                replace(ogg(table=table, after={"n": 1}, primary_keys=["id"]), key=b'""'),
                with_header(ogg(table=table, after={"n": 1}, primary_keys=["id"])),
                with_header(ogg(table=table, after={"n": 1})),
            )
        ),
    ],
}
TABLES = {"maxwell": "shop.customers", "ogg": "SHOP.CUSTOMERS"}


@pytest.mark.parametrize("format", ODD)
def test_odd_events_are_read_as_the_model_reads_them(
    lake_of: LakeOf, tmp_path: Path, format: str
) -> None:
    landing = Landing()
    for record in ODD[format]:
        landing.put(record)
    name = f"odd_{format}"
    tables: dict[str, Any] = {TABLES[format]: {}}
    lake = lake_of({name: lakes.write_source(tmp_path, landing.landed, format, tables=tables)})
    lakes.run_stages(lake, name, [DAY])
    classified = model.classify({"format": format, "tables": tables}, landing.landed)
    for got, expected in (
        (lakes.destinations_read(lake, name), lakes.destinations_expected(classified)),
        (lakes.changes_read(lake, name), lakes.changes_expected(classified)),
    ):
        difference = lakes.difference_of(got, expected)
        assert not difference, difference
