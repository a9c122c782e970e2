"""The reference model itself: each test shows a rule of FORMATS.md, without Spark."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets_tests import events as ev
from cdc_assets_tests.events import (
    DAY,
    TOAST,
    DataWorksLog,
    Landing,
    LindormLog,
    MaxwellLog,
    OggLog,
    PgLog,
)
from cdc_assets_tests.model import (
    Classified,
    InferredTypeError,
    KeyColumnsError,
    KeyTypeError,
    Record,
    classify,
    lag,
    tables,
)
from cdc_assets_tests.model.envelopes import read_events
from cdc_assets_tests.model.keyed import KeyedTable

NAME = "public.customers"


def a_source(format: str = "debezium", table: str = NAME, **options: Any) -> dict[str, Any]:
    """One table; options of the source, or of the table: key, columns, replica_identity …"""
    of_table = ("key", "columns", "replica_identity", "start_date")
    config = {name: options.pop(name) for name in of_table if name in options}
    return {"format": format, "tables": {table: config}, **options}


def one(record: Record, source: dict[str, Any] | None = None) -> Classified:
    """How a record is understood that landed alone."""
    return classify(source or a_source(), {DAY: [record]})[DAY][0]


def reason(record: Record, source: dict[str, Any] | None = None) -> str | None:
    return one(record, source).reason


def by_id(rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {row["id"]: row for row in rows}


def states(log: Any, source: dict[str, Any] | None = None, table: str = NAME) -> list[Any]:
    """The rows at the end of each day, in order."""
    by_day = tables(source or a_source(), log.landed)
    return [by_day[day][table] for day in sorted(by_day)]


# -- destinations and reasons --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\x00\x00\x00\x00\x07abc", "registry_encoded"),  # D17
        (b"{'op': 'c'}", "malformed_json"),
        (b'{"op":"c"} {}', "malformed_json"),
        (b'{"op":"c","op":"u"}', "malformed_json"),
        (b'{"op":NaN}', "malformed_json"),
        (b'{"op":"\xff"}', "malformed_json"),
        (b'{"op":"c",}', "malformed_json"),  # D19
        (b"[" * 1001 + b"]" * 1001, "malformed_json"),
        (b"[" * 1000 + b"]" * 1000, "not_an_envelope"),
        (b"5", "not_an_envelope"),
        (b'{"id":1}', "not_an_envelope"),
        (b'{"op":"c"}', "not_an_envelope"),
        (b'{"__op":"c","id":1}', "not_an_envelope"),  # D18
        (b'{"source":{}}', "missing_op"),
        (b'{"op":null,"after":{}}', "missing_op"),
        (b'{"op":"x","after":{}}', "unknown_op"),
        (b'{"op":7,"after":{}}', "unknown_op"),
        (b'{"op":"c","after":{"id":1}}', "missing_table"),
        (b'{"op":"c","source":{"schema":"","db":"d","table":"t"}}', "missing_table"),
        (b'{"op":"c","source":{"schema":"s","table":"t"}}', "missing_image"),
        (b'{"op":"u","source":{"schema":"s","table":"t"},"after":null}', "missing_image"),
    ],
)
def test_the_first_reason_that_applies_is_given(value: bytes, expected: str) -> None:
    assert reason(ev.raw(value)) == expected


def test_a_line_that_is_no_record_is_quarantined() -> None:
    found = one(ev.malformed_line("not json"))
    assert (found.destination, found.reason) == ("quarantine", "malformed_landing_line")


def test_an_envelope_is_read_bare_and_wrapped() -> None:  # D1, D2
    bare = one(ev.created({"id": 1}))
    wrapped = one(ev.created({"id": 1}, wrap=True))
    value = b'{"payload":' + (bare.record.value or b"") + b',"schema":{}}'
    payload_first = one(ev.raw(value, key=b'{"id":1}'))
    assert bare.op == wrapped.op == payload_first.op == "c"
    assert bare.after == wrapped.after == payload_first.after == {"id": 1}


def test_columns_named_like_the_envelope_are_columns() -> None:  # D1
    row = {"id": 1, "op": "x", "schema": "s", "payload": None}
    assert one(ev.created(row)).after == row
    found = one(ev.created(row, key=("schema", "op")), a_source(key=["schema", "op"]))
    assert found.key == '{"op":"x","schema":"s"}'


def test_the_table_is_in_source_and_its_odd_parts_are_quoted() -> None:  # D4
    assert one(ev.created({"id": 1}, source=ev.mysql_source(pos=4))).table_name == "shop.customers"
    odd = one(ev.created({"id": 1}, table=("public", 'a."b')))
    assert odd.table_name == 'public."a.""b"'


def test_control_events_change_no_row() -> None:  # D13, D16
    expected = {
        "message": ev.message(),
        "heartbeat": ev.heartbeat(),
        "transaction": ev.transaction_mark("END"),
        "ddl": ev.schema_change(None),
    }
    for op, record in expected.items():
        found = one(record)
        assert (found.destination, found.op) == ("control", op)
    without_message = ev.change("m", table=("", ""), extra={"tikv": 1})
    assert one(without_message).op == "message"


@pytest.mark.parametrize("mark", [True, "true", "first", "last", "incremental", "tomorrow"])
def test_any_mark_but_false_is_a_snapshot_read(mark: Any) -> None:  # D14, O6
    found = one(ev.created({"id": 1}, snapshot=mark))
    assert found.is_snapshot
    assert found.position is None
    assert not one(ev.created({"id": 1}, snapshot=False)).is_snapshot


# -- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "configured", "expected"),
    [
        (b'{"id":1}', None, '{"id":1}'),
        (b'{"schema":null,"payload":{"id":1}}', None, '{"id":1}'),
        (b"1", ["id"], '{"id":1}'),
        (b"garbage", ["id"], None),
        (b"garbage", None, None),
        (b"null", ["id"], None),
        (b"", None, None),
    ],
)
def test_a_delete_takes_its_key_from_the_message_key(
    key: bytes, configured: Any, expected: str | None
) -> None:  # D5, D6, D8
    found = one(ev.deleted(None, key=key), a_source(key=configured))
    assert found.key == expected
    if expected is None:
        assert found.reason == ("malformed_key" if key == b"garbage" else "missing_key")


def test_a_key_is_read_with_the_type_of_its_column() -> None:  # D5
    key_as_documented = {
        "schema": {"fields": [{"name": "id", "index": "0", "schema": {"type": "INT32"}}]},
        "payload": {"id": "1"},
    }
    text_key = b'{"id":"1"}'
    assert one(ev.deleted(None, key=json.dumps(key_as_documented).encode())).key == '{"id":1}'
    assert one(ev.deleted(None, key=text_key)).key == '{"id":"1"}'
    assert one(ev.deleted(None, key=text_key), a_source(columns={"id": "int"})).key == '{"id":1}'
    typed = ev.deleted({"id": 1}, key=text_key, types={"id": "int32"})
    assert one(typed).key == '{"id":1}'


def test_before_is_trusted_only_where_it_is_vouched_for() -> None:  # D5, D8
    record = ev.deleted({"id": 1, "email": "a@b.c"})
    assert reason(record, a_source(key=["email"])) == "missing_key"
    full = one(record, a_source(key=["email"], replica_identity="full"))
    assert full.key == '{"email":"a@b.c"}'


def test_a_null_in_the_key_is_malformed() -> None:
    assert reason(ev.created({"id": None}), a_source(key=["id"])) == "malformed_key"


def test_an_unconfigured_table_needs_no_key() -> None:
    found = one(ev.deleted(None, key=None, table=("public", "other")))
    assert (found.destination, found.key) == ("changes", None)


@pytest.mark.parametrize("form", ["struct", "text", "schema", "java"])
def test_a_key_change_is_followed_in_all_header_forms(form: Any) -> None:  # D9
    header = {"__debezium.oldkey": ev.key_header({"id": 1}, form)}
    record = ev.created({"id": 2}, headers=header)
    assert one(record, a_source(columns={"id": "bigint"})).old_key == '{"id":1}'


def test_an_update_that_moves_the_key_removes_the_old_row() -> None:  # D10
    full = a_source(key=["id"], replica_identity="full")
    log = PgLog()
    log.create(id=1, name="Ann")
    moved = log.update(id=2, name="Ann", _before={"id": 1, "name": "Ann"})
    assert states(log, full) == [[{"id": 2, "name": "Ann"}]]
    assert one(moved).old_key is None
    assert len(states(log)[0]) == 2


# -- tombstones ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, b"", b"null", b'{"schema":null,"payload":null}'])
def test_a_tombstone_after_its_delete_changes_nothing(value: bytes | None) -> None:  # D11
    log = PgLog()
    log.create(id=1)
    log.delete(id=1)
    log.tombstone(id=1, _value=value)
    found = classify(a_source(), log.landed)[DAY]
    assert [(c.destination, c.op) for c in found][1:] == [
        ("changes", "d"),
        ("control", "tombstone"),
    ]


def test_a_lone_tombstone_deletes_its_row_over_the_day_cut() -> None:  # D11, O6
    log = PgLog()
    log.create(id=1)
    log.next_day()
    log.tombstone(id=1)
    assert states(log) == [[{"id": 1}], []]


def test_a_redelivered_pair_does_not_delete_a_row_created_since() -> None:  # D11
    log = PgLog()
    log.create(id=1, name="first")
    gone = log.delete(id=1)
    buried = log.tombstone(id=1)
    log.create(id=1, name="second")
    log.again(gone)
    log.next_day()
    log.again(buried)
    assert [by_id(s)[1]["name"] for s in states(log)] == ["second", "second"]


def test_a_tombstone_of_two_possible_tables_is_quarantined() -> None:  # D11
    landing = Landing()
    for table in ("a", "b"):
        PgLog(table=table, landing=landing).create(id=1, _topic="all")
    landing.put(ev.tombstone({"id": 1}, topic="all"))
    landing.put(ev.tombstone({"id": 1}, topic="new"))
    found = classify(a_source(), landing.landed)[DAY]
    assert [c.reason for c in found] == [None, None, "missing_table", "missing_table"]


# -- order ---------------------------------------------------------------------------------------


def test_redelivery_does_not_turn_the_state_back() -> None:  # O1, O5
    log = PgLog()
    a = log.create(id=1, name="A")
    b = log.update(id=1, name="B")
    log.again(a)
    log.next_day()
    log.again(b)
    assert [by_id(s)[1]["name"] for s in states(log)] == ["B", "B"]


def test_a_lower_lsn_of_another_row_is_not_late() -> None:  # O2
    log = PgLog()
    log.create(id=1, _lsn=500)
    log.next_day()
    log.create(id=2, _lsn=400)
    assert len(states(log)[1]) == 2


def test_positions_have_one_shape_a_connector() -> None:  # O4, O8
    record = ev.created({"id": 1}, lsn=7, transaction={"total_order": "3"}, partition=2, offset=9)
    assert one(record).position == (7, 2, 9, 1)
    # O8: without an LSN the time of the source stands in.
    assert one(ev.deleted({"id": 1}, lsn=None)).position == (ev.NOON_MS, 0, 0, 0)
    mysql = ev.created({"id": 1}, source=ev.mysql_source(file="mysql-bin.000012", pos=4, row=1))
    assert one(mysql).position == (12, 4, 0, 0, 1)


def test_a_reset_of_positions_begins_an_epoch() -> None:  # O11
    log = PgLog()
    log.create(id=1, name="old", _lsn=9000)
    log.update(id=1, name="new", _lsn=10, _timestamp_ms=ev.NOON_MS + 60_000)
    reset = datetime.fromtimestamp(ev.NOON_MS / 1000 + 60, timezone.utc)
    assert by_id(states(log)[0])[1]["name"] == "old"
    for instant in (reset, "2026-11-04T12:01:00Z"):
        assert by_id(states(log, a_source(position_reset=[instant]))[0])[1]["name"] == "new"


def test_a_snapshot_read_stands_after_what_landed_before_it() -> None:  # O6
    log = PgLog()
    log.update(id=1, name="streamed", _lsn=900)
    log.next_day()
    log.read(id=1, name="read")
    log.update(id=1, name="below", _lsn=800)
    log.next_day()
    log.update(id=1, name="above", _lsn=901)
    assert [by_id(s)[1]["name"] for s in states(log)] == ["streamed", "read", "above"]


def test_a_snapshot_read_without_a_past_is_lowest() -> None:  # O6
    log = PgLog()
    log.read(id=1, name="read", _lsn=5000)
    log.update(id=1, name="open before the snapshot", _lsn=10)
    assert by_id(states(log)[0])[1]["name"] == "open before the snapshot"


def test_a_truncate_removes_what_is_below_it_in_any_partition() -> None:  # D12
    log = PgLog()
    log.truncate(_lsn=500)
    log.create(id=1, _lsn=400, _partition=1)
    log.create(id=2, _lsn=600, _partition=1)
    log.next_day()
    log.create(id=3, _lsn=450, _partition=1)
    assert [list(by_id(s)) for s in states(log)] == [[2], [2]]


@pytest.mark.parametrize(("days", "lives"), [(1, False), (3, False), (4, True)])
def test_a_delete_of_the_last_days_beats_an_older_update(days: int, lives: bool) -> None:  # O12
    log = PgLog()
    log.create(id=1, _lsn=100)
    log.delete(id=1, _lsn=300)
    log.next_day(days)
    log.update(id=1, _lsn=200)
    assert bool(states(log)[-1]) is lives


def test_the_old_key_stays_removed() -> None:  # D9, O12
    log = PgLog()
    log.create(id=1, name="Ann")
    log.change_key({"id": 1}, id=2, name="Ann")
    log.next_day()
    log.update(id=1, name="late", _lsn=1012)
    assert [list(by_id(s)) for s in states(log)] == [[2], [2]]


def test_days_without_records_carry_the_state() -> None:
    log = PgLog()
    log.create(id=1)
    log.next_day(3)
    log.create(id=2)
    assert [len(s) for s in states(log)] == [1, 1, 1, 2]


def test_a_table_starts_empty_at_its_start_date() -> None:
    log = PgLog()
    log.create(id=1)
    log.next_day()
    log.create(id=2)
    by_day = tables(a_source(start_date=DAY + timedelta(days=1)), log.landed)
    assert list(by_day.values()) == [{}, {NAME: [{"id": 2}]}]


# -- positions, copies, transactions -------------------------------------------------------------


def source_of(connector: str, **members: Any) -> dict[str, Any]:
    return {"connector": connector, "lsn": None, "txId": None, **members}


@pytest.mark.parametrize(
    ("source", "basis", "elements"),
    [
        (source_of("postgresql", lsn=7), "lsn", (7,)),
        (ev.mysql_source(pos=4), "file,pos", (3, 4)),
        (source_of("sqlserver", commit_lsn="0000002a:0000000b:0003"), "commit_lsn", (42, 11, 3)),
        (source_of("informix", commit_lsn="77"), "commit_lsn", (77, 0, 0)),
        (source_of("oracle", scn="9", commit_scn="5"), "scn", (9,)),
        (source_of("TiCDC", commit_ts=6), "commit_ts", (6,)),
        (source_of("mongodb", ts_ms=8, ord=2), "ts_ms,ord", (8, 2)),
        (source_of("vitess", ts_ms=8), "ts_ms", (8,)),
        (source_of("oracle", ts_ms=8, scn="0"), "ts_ms", (8,)),
        (source_of("mysql", ts_ms=8, pos=0), "kafka_ts_ms", (ev.NOON_MS + 500,)),
    ],
)
def test_what_orders_a_connectors_events(
    source: dict[str, Any], basis: str, elements: tuple[int, ...]
) -> None:  # O8
    transaction = {"id": "5", "total_order": 9}  # orders nothing (O4)
    found = one(ev.created({"id": 1}, source=source, transaction=transaction, offset=6), FREE)
    assert (found.position_basis, found.position) == (
        f"{basis},partition,offset,place",
        (*elements, 0, 6, 1),
    )


FREE = a_source(table="no.table")  # what any record says


@pytest.mark.parametrize(
    ("source", "identity", "tx_id"),
    [
        (
            ev.mysql_source(pos=4, row=2) | {"gtid": "a:1", "txId": None},
            {"gtid": "a:1", "row": "2"},
            None,
        ),
        (
            source_of("db2", change_lsn="1:2:3", event_serial_no=4),
            {"change_lsn": "1:2:3", "event_serial_no": "4"},
            None,
        ),
        (
            source_of("oracle", txId="0a", rs_id="r", ssn=1, commit_scn="5", scn="9"),
            {"rs_id": "r", "ssn": "1", "txId": "0a"},
            "0a",
        ),
        (source_of("postgresql", txId=7), None, "7"),
    ],
)
def test_what_identifies_a_change(
    source: dict[str, Any], identity: dict[str, str] | None, tx_id: str | None
) -> None:  # O8
    found = one(ev.created({"id": 1}, source=source), FREE)
    assert (found.identity, found.tx_id) == (
        identity and json.dumps(identity, separators=(",", ":")),
        tx_id,
    )


def test_a_place_in_a_transaction_identifies_a_change() -> None:  # O7, O8
    record = ev.created(
        {"id": 1}, source={"txId": None}, transaction={"id": "5:81", "total_order": 3}
    )
    found = one(record)
    assert found.identity == '{"transaction.id":"5:81","transaction.total_order":"3"}'
    assert found.tx_id == "5"
    assert one(ev.created({"id": 1}, transaction={"id": "5:81"})).identity is None


CANAL = a_source("canal", "shop.customers")


def test_the_kafka_timestamp_stands_in_where_nothing_orders() -> None:  # O8
    midnight = ev.NOON_MS + 12 * 3_600_000
    times = [ev.NOON_MS, ev.NOON_MS - 5, None, -1, midnight + 7]
    records = [
        ev.canal_message("INSERT", [{"id": n}], timestamp_ms=time, offset=n, ts=ev.NOON_MS + n)
        for n, time in enumerate(times)
    ]
    found = classify(CANAL, {DAY: records})[DAY]
    noon = ev.NOON_MS
    assert [c.position[0] for c in found if c.position] == [
        noon, noon, noon + 2, noon + 3, midnight - 1,
    ]  # fmt: skip
    alone = ev.canal_message("INSERT", [{"id": 1}], timestamp_ms=None, ts=None)
    assert one(alone, CANAL).position == (midnight - 24 * 3_600_000, 0, 0, 1)


def test_rows_of_one_record_have_places() -> None:  # O4
    record = ev.canal_message("DELETE", [{"id": 1}, {"id": 2}], offset=5)
    found = classify(CANAL, {DAY: [record]})[DAY]
    assert [c.position[-2:] for c in found if c.position] == [(5, 0), (5, 2)]


def test_where_elements_tie_the_offset_decides() -> None:  # O4, O15
    log = PgLog()
    log.create(id=1, _lsn=5)
    log.update(id=1, v="b", _lsn=5)
    log.delete(id=1, _lsn=5)
    log.create(id=2, _lsn=5)
    log.delete(id=2, _lsn=5)
    log.create(id=2, v="again", _lsn=5)
    assert states(log) == [[{"id": 2, "v": "again"}]]


def an_oracle_source(scn: int, tx: str, n: int) -> dict[str, Any]:
    return source_of("oracle", scn=str(scn), txId=tx, rs_id="0x1", ssn=n)


@pytest.mark.parametrize("days", [0, 3, 4])
def test_a_copy_is_left_out_in_the_day_and_the_late_days_before(days: int) -> None:  # O15
    log = PgLog()
    first = log.create(id=1, v="a", _source=an_oracle_source(9, "t", 1))
    log.update(id=1, v="b", _before={"id": 1, "v": "a"}, _source=an_oracle_source(9, "t", 2))
    log.next_day(days) if days else None
    log.again(first)
    assert states(log)[-1] == [{"id": 1, "v": "a" if days > 3 else "b"}]


@pytest.mark.parametrize("days", [0, 1])
def test_elements_that_do_not_identify_make_no_copies(days: int) -> None:  # O15
    log, source = PgLog(), ev.mysql_source(pos=4)
    here = {"_source": source}
    first = log.create(id=1, v="a", **here)
    log.delete(id=1, **here)
    log.next_day(days) if days else None
    log.again(first)
    by_day = tables(a_source(table="shop.customers"), log.landed)
    assert by_day[log.landing.day]["shop.customers"] == [{"id": 1, "v": "a"}]


def test_without_elements_each_event_counts_at_its_offset() -> None:  # O15
    log = ev.CanalLog(types={"id": "int", "v": "text"})
    first = log.create(id=1, v="a")
    log.update({"id": 1, "v": "a"}, id=1, v="b")
    log.again(first)
    assert states(log, CANAL, "shop.customers") == [[{"id": 1, "v": "a"}]]


FULL = a_source(replica_identity="full")


def departed(log: PgLog, tx: int, row: dict[str, Any], key: int) -> None:
    header = {"__debezium.newkey": ev.key_header({"id": key})}
    log.delete(**row, _source={"txId": tx}, _headers=header)


def arrived(log: PgLog, tx: int, row: dict[str, Any], key: int) -> None:
    """Has the LSN of the departure."""
    header = {"__debezium.oldkey": ev.key_header({"id": key})}
    log.create(**row, _source={"txId": tx}, _headers=header, _lsn=log.lsn)


def shifted(log: PgLog, tx: int, *rows: dict[str, Any]) -> None:
    """`id = id + 1`, in the order given."""
    for row in rows:
        departed(log, tx, row, row["id"] + 1)
        arrived(log, tx, {**row, "id": row["id"] + 1}, row["id"])


@pytest.mark.parametrize("cut", [False, True])
def test_a_key_may_be_held_twice_within_a_transaction(cut: bool) -> None:  # O16
    log = PgLog()
    a, b = {"id": 1, "v": "a"}, {"id": 2, "v": "b"}
    log.create(**a)
    log.create(**b)
    log.next_day()
    shifted(log, 9, a)
    if cut:  # the day ends while 2 is held twice
        log.next_day()
    shifted(log, 9, b)
    shifted(log, 9, {**a, "id": 2}, {**b, "id": 3})
    assert states(log, FULL)[-1] == [{"id": 3, "v": "a"}, {"id": 4, "v": "b"}]


def test_a_row_that_passes_a_key_leaves_nothing_there() -> None:  # O16
    log = PgLog()
    log.create(id=1, v="a")
    shifted(log, 9, {"id": 1, "v": "a"})
    shifted(log, 9, {"id": 2, "v": "a"})
    assert states(log, FULL) == [[{"id": 3, "v": "a"}]]


def test_a_whole_before_of_no_row_that_is_known_takes_none_that_arrived() -> None:  # O16
    log = PgLog()
    log.create(id=1, v="a")
    log.next_day()
    shifted(log, 9, {"id": 1, "v": "a"})
    log.update(id=2, v="c", _before={"id": 2, "v": "b"}, _source={"txId": 9})
    log.delete(id=2, v="c", _source={"txId": 9})
    assert states(log, FULL)[-1] == [{"id": 2, "v": "a"}]


def test_sql_server_marks_no_key_change_and_leaves_out_what_is_large() -> None:  # O16
    log = PgLog()

    def at(commit: int, n: int) -> dict[str, Any]:
        return {"_source": source_of("sqlserver", commit_lsn=str(commit), event_serial_no=n)}

    log.create(id=1, v="a", body="x", **at(1, 1))
    log.create(id=2, v="b", body="y", **at(1, 2))
    log.create(id=2, v="a", body="x", **at(2, 1))
    log.delete(id=2, v="b", body=None, **at(2, 2))
    log.delete(id=1, v="a", body=None, **at(2, 3))
    assert states(log) == [[{"id": 2, "v": "a", "body": "x"}]]


def test_other_connectors_events_stand_alone() -> None:  # O16
    log, here = PgLog(), {"_source": ev.mysql_source(pos=4)}
    log.create(id=1, v="a", **here)
    log.create(id=1, v="b", **here)
    log.delete(id=1, v="a", **here)
    assert states(log, a_source(table="shop.customers"), "shop.customers") == [[]]


def test_a_transaction_is_known_over_a_day_that_a_redelivery_fills() -> None:  # O16
    log = PgLog()
    old = log.create(id=2, v="b", _source={"txId": 8})
    log.create(id=1, v="a", _source={"txId": 8})
    log.next_day()
    shifted(log, 9, {"id": 1, "v": "a"})
    log.next_day()
    log.again(old)
    log.next_day()
    shifted(log, 9, {"id": 2, "v": "b"})
    assert states(log, FULL)[-1] == [{"id": 2, "v": "a"}, {"id": 3, "v": "b"}]


def test_each_of_two_transactions_that_days_cut_is_read_from_its_beginning() -> None:  # O16
    log = PgLog()
    log.create(id=2, v="a")
    log.create(id=1, v="b")
    log.next_day()
    shifted(log, 8, {"id": 1, "v": "b"})
    log.next_day()
    shifted(log, 8, {"id": 2, "v": "a"})
    log.create(id=2, v="passes", _source={"txId": 9})
    log.next_day()
    log.delete(id=2, v="passes", _source={"txId": 9})
    assert states(log, FULL)[-1] == [{"id": 2, "v": "b"}, {"id": 3, "v": "a"}]


def test_a_read_says_what_the_row_is_whatever_a_queue_held() -> None:  # O6
    log = PgLog()
    log.create(id=1, v="a", _source={"txId": 9})
    log.create(id=1, v="b", _source={"txId": 9})
    log.read(id=1, v="read")
    log.delete(id=1, v="read")
    assert states(log, FULL) == [[]]


def test_a_read_stands_after_a_truncate_of_another_partition_before_it() -> None:  # O6
    log = PgLog()
    log.create(id=1, v="a", _partition=1)
    log.read(id=2, v="below", _partition=1)
    log.truncate()
    log.read(id=1, v="above", _partition=1)
    assert states(log) == [[{"id": 1, "v": "above"}]]


def test_a_key_change_whose_delete_is_lost_removes_the_old_row() -> None:  # D9
    log = PgLog()
    log.create(id=1, v="a")
    header = {"__debezium.oldkey": ev.key_header({"id": 1})}
    log.create(id=2, v=TOAST, _headers=header)
    assert states(log) == [[{"id": 2, "v": "a"}]]


def test_a_key_change_with_its_delete_removes_no_row_that_arrived_between() -> None:  # D9, O16
    log = PgLog()
    log.create(id=1, v="a")
    departed(log, 9, {"id": 1, "v": "a"}, 2)
    log.create(id=1, v="new", _lsn=log.lsn, _source={"txId": 9})
    log.lsn -= 8
    arrived(log, 9, {"id": 2, "v": "a"}, 1)
    assert states(log, FULL) == [[{"id": 1, "v": "new"}, {"id": 2, "v": "a"}]]


@pytest.mark.parametrize("cut", [False, True])
def test_an_unsent_value_comes_from_the_row_that_departed(cut: bool) -> None:  # R2, O16
    log = PgLog()
    a, b = {"id": 1, "v": "a", "body": "of a"}, {"id": 2, "v": "b", "body": "of b"}
    log.create(**a)
    log.create(**b)
    log.next_day()
    departed(log, 9, a, 2)
    if cut:
        log.next_day()
    arrived(log, 9, {"id": 2, "v": "a", "body": TOAST}, 1)
    log.update(id=2, v="c", body=TOAST, _before=b, _source={"txId": 9})
    departed(log, 9, {**b, "v": "c"}, 3)
    arrived(log, 9, {"id": 3, "v": "c", "body": TOAST}, 2)
    assert states(log, FULL)[-1] == [{**a, "id": 2}, {"id": 3, "v": "c", "body": "of b"}]


def test_the_nth_arrival_is_of_the_row_that_departed_nth() -> None:  # R2
    log = PgLog(types={"id": "int32", "body": "string"})
    here = {"_source": ev.mysql_source(pos=4)}
    gone = {**here, "_headers": {"__debezium.newkey": ev.key_header({"id": 2})}}
    come = {**here, "_headers": {"__debezium.oldkey": ev.key_header({"id": 1})}}
    for body in ("first", "second"):  # of one compressed transaction
        log.create(id=1, body=body, **here)
        log.delete(id=1, **gone)
        log.create(id=2, body=TOAST, **come)
        log.delete(id=2, **here) if body == "first" else None
    assert states(log, a_source(table="shop.customers"), "shop.customers") == [
        [{"id": 2, "body": "second"}]
    ]


def test_an_unsent_value_may_stand_in_a_whole_before() -> None:  # R2
    log = PgLog(types={"id": "int32", "body": "string"})
    log.update(id=1, body=TOAST, _before={"id": 1, "body": "long"})
    assert states(log, FULL) == [[{"id": 1, "body": "long"}]]
    assert states(log) == [[{"id": 1, "body": None}]]


def test_keys_whose_tied_events_stand_in_several_partitions_are_counted() -> None:  # O8
    log = PgLog()
    log.create(id=1, v="a", _lsn=5)
    log.update(id=1, v="b", _lsn=5, _partition=1)
    log.create(id=2, v="a", _lsn=6)
    events = dict(read_events(a_source(), log.landed))
    table = KeyedTable(NAME, {}, a_source(), events)
    table.place(events[DAY])
    table.merge(DAY, events[DAY])
    assert table.scattered_keys(DAY) == 1


# -- rows without a key --------------------------------------------------------------------------


def test_appended_rows_survive_redelivery_once() -> None:  # O14, D7
    log = PgLog(key=None)
    twins = [log.create(v=1, _lsn=50), log.create(v=1, _lsn=50)]
    log.create(v=2, _lsn=60)
    log.again(*twins)
    log.create(v=3, _lsn=70)
    log.next_day()
    log.again(*twins)
    assert [len(s) for s in states(log, a_source(key="none"))] == [4, 4]
    assert reason(ev.deleted({"v": 1}), a_source(key="none")) == "missing_key"


def test_without_any_element_every_offset_is_a_row() -> None:  # O14
    log = ev.CanalLog(types={"id": "int"})
    twins = log.says("INSERT", [{"id": 1}, {"id": 1}])
    log.again(twins)
    log.landing.add(log.landed[DAY][-1])  # the same record, landed twice
    assert (
        len(
            states(log, CANAL | {"tables": {"shop.customers": {"key": "none"}}}, "shop.customers")[
                0
            ]
        )
        == 4
    )


def test_before_takes_one_equal_row_away() -> None:  # O14
    log = PgLog(key=None)
    log.create(v=1)
    log.create(v=1)
    log.delete(v=1)
    log.update(v=3, _before={"v": 1})
    assert states(log, a_source(key="row")) == [[{"v": 3}]]


# -- unchanged TOAST values ----------------------------------------------------------------------


def test_an_unsent_value_is_the_last_known_one() -> None:  # R2
    log = PgLog()
    log.create(id=1, n=1, body="long")
    log.next_day()
    log.update(id=1, n=2, body="longer")
    log.update(id=1, n=3, body=TOAST)
    log.next_day()
    log.update(id=1, n=4, body=TOAST)
    log.update(id=1, n=0, body="below the row", _lsn=1)
    bodies = [by_id(s)[1] for s in states(log)]
    assert bodies[1:] == [{"id": 1, "n": 3, "body": "longer"}, {"id": 1, "n": 4, "body": "longer"}]


def test_an_unsent_value_follows_a_key_change() -> None:  # R2, D9
    log = PgLog()
    log.create(id=1, body="long")
    log.next_day()
    log.change_key({"id": 1}, id=2, body=TOAST)
    assert states(log)[1] == [{"id": 2, "body": "long"}]


def test_an_unsent_value_does_not_survive_a_delete() -> None:  # R2
    log = PgLog()
    log.create(id=1, n=1, body="of the first life")
    log.delete(id=1)
    log.update(id=1, n=2, body=TOAST)
    assert states(log) == [[{"id": 1, "n": 2, "body": None}]]


ENCODED_TOAST = base64.b64encode(TOAST.encode()).decode()


@pytest.mark.parametrize(
    "form",
    [
        TOAST,
        ENCODED_TOAST,
        TOAST.encode().hex(),
        [TOAST],
        [ENCODED_TOAST],
        [TOAST.encode().hex()],
        [ord(char) for char in TOAST],
        {TOAST: TOAST},
        ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    ],
)
def test_all_forms_of_the_placeholder_are_known(form: Any) -> None:  # R2
    log = PgLog()
    log.create(id=1, body="long")
    log.update(id=1, body=form)
    assert states(log) == [[{"id": 1, "body": "long"}]]


def test_an_absent_column_is_null_unless_only_changes_are_sent() -> None:  # R1, L4
    log = PgLog()
    log.create(id=1, name="Ann", city="Oslo")
    log.update(id=1, name="Anna")
    assert states(log) == [[{"id": 1, "name": "Anna", "city": None}]]
    kept = states(log, a_source(missing_columns="keep"))
    assert kept == [[{"id": 1, "name": "Anna", "city": "Oslo"}]]


# -- types ---------------------------------------------------------------------------------------

CONNECT = "org.apache.kafka.connect.data."
DEBEZIUM_TIME = "io.debezium.time."


@pytest.mark.parametrize(
    ("type_", "sent", "held"),
    [
        ("int64", 9007199254740993, 9007199254740993),
        ("int32", 2**31, None),
        ("float", Decimal("3.14"), 3.140000104904175),
        ("double", Decimal("1E+400"), None),
        ("string", "x", "x"),
        ("bytes", "AQID", b"\x01\x02\x03"),
        (DEBEZIUM_TIME + "Date", -1, date(1969, 12, 31)),
        (DEBEZIUM_TIME + "Date", 2**31 - 1, None),
        (DEBEZIUM_TIME + "Timestamp", 1, datetime(1970, 1, 1, 0, 0, 0, 1000)),
        (DEBEZIUM_TIME + "MicroTimestamp", -1, datetime(1969, 12, 31, 23, 59, 59, 999999)),
        (DEBEZIUM_TIME + "MicroTimestamp", 9223372036825200000, None),
        (DEBEZIUM_TIME + "NanoTimestamp", -1, datetime(1969, 12, 31, 23, 59, 59, 999999)),
        (
            DEBEZIUM_TIME + "ZonedTimestamp",
            "2026-11-04T10:00:00.1234567+02:00",
            datetime(2026, 11, 4, 8, 0, 0, 123456, timezone.utc),
        ),
        (DEBEZIUM_TIME + "ZonedTimestamp", "infinity", None),
        (DEBEZIUM_TIME + "ZonedTimestamp", "+21016-11-04T06:51:30Z", None),
        (DEBEZIUM_TIME + "Time", -1, -1000),
        (DEBEZIUM_TIME + "MicroTime", 86_400_000_000, 86_400_000_000),
        (DEBEZIUM_TIME + "IsoDate", "2026-11-04", date(2026, 11, 4)),
        (DEBEZIUM_TIME + "Interval", "P1Y", "P1Y"),
        ((CONNECT + "Decimal", 2, 6), Decimal("-1234.11"), Decimal("-1234.11")),
        ((CONNECT + "Decimal", 2, 4), Decimal("123.45"), None),
        ((CONNECT + "Decimal", 2, 50), Decimal("1.10"), "1.10"),
        ("io.debezium.data.VariableScaleDecimal", {"scale": 4, "value": "AYr3"}, "10.1111"),
        ("io.debezium.data.Bits", "Aw==", b"\x03"),
        (
            "io.debezium.data.geometry.Point",
            {"wkb": "AQ==", "srid": None, "x": 1},
            {"wkb": b"\x01", "srid": None},
        ),
        ({"type": "array", "items": {"type": "int64"}}, [1, 2], [1, 2]),
        (
            {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
            {"a": None},
            {"a": None},
        ),
        (ev.struct_schema({"": "int32"}), {"": 1}, '{"":1}'),
        (ev.struct_schema({"": "int32"}), Decimal("-0"), "0"),
        (ev.struct_schema({"a": "int32"}), Decimal("-0"), None),
        ("int32", "12", 12),
        ("int32", "12a", None),
    ],
)
def test_message_schemas_make_the_types(type_: Any, sent: Any, held: Any) -> None:  # R3, R4
    log = PgLog(types={"id": "int32", "v": type_})
    log.create(id=1, v=sent)
    assert states(log) == [[{"id": 1, "v": held}]]


def test_types_are_configured_or_inferred_without_schema() -> None:  # R3
    log = PgLog()
    log.create(id=1, price=Decimal("0.10"), n=1, f=1, b=True, t="x", nested={"b": [1], "a": None})
    log.create(id=2, price=Decimal("2"), n=2, f=Decimal("0.5"), b=None, t="y", nested=None)
    rows = by_id(states(log, a_source(columns={"price": "decimal(10,2)"}))[0])
    expected = {"price": Decimal("0.10"), "n": 1, "f": 1.0, "b": True, "t": "x"}
    assert rows[1] == {"id": 1, **expected, "nested": '{"a":null,"b":[1]}'}
    assert isinstance(rows[1]["f"], float)
    assert rows[2]["nested"] is None


def test_a_value_beyond_an_inferred_type_fails_the_table() -> None:  # R3
    log = PgLog()
    log.create(id=1, n=1)
    log.next_day()
    log.update(id=1, n=Decimal("1.5"))
    with pytest.raises(InferredTypeError, match="columns:"):
        states(log)


def test_columns_are_added_widened_and_become_text() -> None:  # R5
    log = PgLog(types={"id": "int32", "a": "int32", "b": "string"})
    log.create(id=1, a=1, b="x")
    log.next_day()
    wider = {"id": "int32", "a": "int64", "c": "string"}
    log.create(id=2, a=2**40, c="new", _types=wider)
    log.next_day()
    log.create(id=3, a="text", _types={"id": "int32", "a": "string"})
    assert states(log)[1:] == [
        [{"id": 1, "a": 1, "b": "x", "c": None}, {"id": 2, "a": 2**40, "b": None, "c": "new"}],
        [
            {"id": 1, "a": "1", "b": "x", "c": None},
            {"id": 2, "a": str(2**40), "b": None, "c": "new"},
            {"id": 3, "a": "text", "b": None, "c": None},
        ],
    ]


def test_a_key_type_does_not_change_silently() -> None:  # R6
    log = PgLog(types={"id": "int32"})
    log.create(id=1)
    log.next_day()
    log.create(id="one", _types={"id": "string"})
    with pytest.raises(KeyTypeError) as caught:
        states(log)
    assert (caught.value.column, caught.value.day) == ("id", DAY + timedelta(days=1))


def test_a_key_of_other_columns_is_not_guessed() -> None:  # D5, R6
    log = PgLog(types={"id": "int32", "code": "string"})
    log.create(id=1, code="a", _key={"id": 1})
    log.next_day()
    log.create(id=2, code="b", _key={"code": "b"})
    with pytest.raises(KeyColumnsError) as caught:
        states(log)
    assert caught.value.day == DAY + timedelta(days=1)


# -- the other formats ---------------------------------------------------------------------------

LINDORM = a_source("lindorm", "default.customers", key=["id"])
DATAWORKS = a_source("dataworks", "shop.customers")


def test_lindorm_rows_follow_source_time_then_offset() -> None:  # L1–L4, O9
    log = LindormLog(types={"id": "string", "name": "string"})
    log.create(id="a", name="Ann", _source_ts_ms=5)
    log.update({"id": "a", "name": "Ann"}, id="a", name="Anna", _source_ts_ms=5)
    log.update({"id": "a", "name": "Ann"}, id="a", name="late", _source_ts_ms=4)
    assert states(log, LINDORM, "default.customers") == [[{"id": "a", "name": "Anna"}]]
    log.update({"id": "a", "name": "Anna"}, id="b")
    log.delete(id="c", _key=None)
    assert states(log, LINDORM, "default.customers") == [[{"id": "b", "name": None}]]
    assert reason(ev.lindorm_change("t", None, None), LINDORM) == "unknown_op"


def test_dataworks_operations() -> None:  # W1, W2, W5
    log = DataWorksLog(columns={"id": "LONG", "at": "DATE", "data": "BYTES"})
    log.insert(id=1, at=1590315269000, data="AQ==")
    log.insert(id=2)
    log.heartbeat()
    log.ddl("ADD COLUMN x")
    log.delete(id=2)
    at = datetime(2020, 5, 24, 10, 14, 29, tzinfo=timezone.utc)
    row = {"id": 1, "at": at, "data": b"\x01"}
    assert states(log, DATAWORKS, "shop.customers") == [[row]]
    found = classify(DATAWORKS, log.landed)[DAY]
    assert [c.op for c in found] == ["c", "c", "heartbeat", "ddl", "d"]
    assert [c.op for c in found if c.destination == "control"] == ["heartbeat", "ddl"]
    assert reason(ev.dataworks_change("insert", None, {"id": 1}), DATAWORKS) == "unknown_op"
    named = ev.dataworks_inserted({"id": 1}, schema_name="dbo")
    assert one(named, DATAWORKS).table_name == "shop__dbo.customers"


def test_a_sequence_id_is_an_integer_of_38_digits() -> None:  # O10
    record = ev.dataworks_inserted({"id": 1}, sequence_id="9" * 38)
    top, middle, low = 10**12 - 1, 10**13 - 1, 10**13 - 1
    assert one(record, DATAWORKS).position == (top, middle, low, 1, 0, 0, 1)


@pytest.mark.parametrize("after_first", [False, True])
def test_a_split_update_completes_with_its_later_half(after_first: bool) -> None:  # W3
    log = DataWorksLog()
    log.insert(id=1)
    sequence = log.next_sequence()
    halves = [
        lambda: log.update_before(id=1, _sequence_id=sequence),
        lambda: log.update_after(id=2, _sequence_id=sequence),
    ]
    if after_first:
        halves.reverse()
    halves[0]()
    log.next_day()
    halves[1]()
    first, second = (list(by_id(s)) for s in states(log, DATAWORKS, "shop.customers"))
    assert first == ([1, 2] if after_first else [1])
    assert second == [2]


@pytest.mark.parametrize(("late_days", "doc"), [(1, None), (2, "long")])
def test_halves_are_one_update_within_late_days(late_days: int, doc: str | None) -> None:  # W2
    log = DataWorksLog()
    log.insert(id=1, doc="long")
    sequence = log.next_sequence()
    log.update_before(id=1, doc="long", _sequence_id=sequence)
    log.next_day(2)
    log.update_after(id=2, doc=TOAST, _sequence_id=sequence)
    source = a_source("dataworks", "shop.customers", late_days=late_days)
    rows = by_id(states(log, source, "shop.customers")[-1])
    assert rows[2]["doc"] == doc  # R2: the old key's, if there is one
    assert (1 in rows) == (doc is None)


def test_one_record_with_both_images_moves_the_key() -> None:  # W3
    log = DataWorksLog()
    log.insert(id=1)
    moved = log.update({"id": 1}, id=2)
    assert one(moved, DATAWORKS).old_key == '{"id":1}'
    assert states(log, DATAWORKS, "shop.customers") == [[{"id": 2}]]


@pytest.mark.parametrize(
    ("column", "db_type"), [("#alibaba_rds_row_id#", "MySQL"), ("rowid", "Oracle")]
)
def test_a_row_id_is_the_key_without_a_primary_key(column: str, db_type: str) -> None:  # W4
    record = ev.dataworks_deleted({column: 15}, primary_key=None, key=b"", db_type=db_type)
    assert one(record, DATAWORKS).key == json.dumps({column: 15}, separators=(",", ":"))


MAXWELL = a_source("maxwell", "shop.customers")
OGG = a_source("ogg", "SHOP.CUSTOMERS")


def test_maxwell_operations() -> None:
    log = MaxwellLog()
    log.create(id=1, name="Ann", n=1)
    log.create(id=2, name="Bob", n=1)
    changed = log.update({"id": 1, "name": "Ann", "n": 1}, id=1, name="Anna", n=1)
    log.ddl("ALTER TABLE customers …")
    log.delete(id=2, name="Bob", n=1)
    log.read(id=3, name="Cid", n=1)
    names = {row["id"]: row["name"] for row in states(log, MAXWELL, "shop.customers")[-1]}
    assert names == {1: "Anna", 3: "Cid"}
    found = classify(MAXWELL, log.landed)[DAY]
    assert [c.op for c in found] == ["c", "c", "u", "ddl", "d", "r"]
    update = one(changed, MAXWELL)
    assert update.before == {"id": 1, "name": "Ann", "n": 1}
    assert update.position == (6, 1024, 0, 2, 1)
    assert found[-1].is_snapshot
    assert found[-1].position is None
    assert found[-2].before == {"id": 2, "name": "Bob", "n": 1}


def test_maxwell_moves_a_key_and_takes_it_from_the_message_key() -> None:
    log = MaxwellLog(primary_key=None)
    log.create(id=1, name="Ann")
    moved = log.update({"id": 1, "name": "Ann"}, id=2, name="Ann")
    assert one(moved, MAXWELL).old_key == '{"id":1}'
    assert states(log, MAXWELL, "shop.customers") == [[{"id": 2, "name": "Ann"}]]


def test_the_last_row_of_a_transaction_of_maxwell_has_no_offset_in_it() -> None:  # O8
    at = "binlog.000003:1500"
    first = one(ev.maxwell_inserted({"id": 1}, position=at, xoffset=7), MAXWELL)
    last = one(ev.maxwell_inserted({"id": 1}, position=at, commit=True), MAXWELL)
    assert first.position == last.position == (3, 1500, 0, 0, 1)
    assert json.loads(first.identity or "") == {
        "ts": str(ev.NOON_MS // 1000),
        "xid": "7125",
        "xoffset": "7",
    }
    without = one(ev.maxwell_inserted({"id": 1}, ts=5, xid=None, commit=True), MAXWELL)
    assert without.position == (ev.NOON_MS + 500, 0, 0, 1)
    assert without.identity is None  # a second alone identifies nothing


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (ev.maxwell_change("truncate", {"id": 1}), "unknown_op"),
        (ev.maxwell_change(None, {"id": 1}), "missing_op"),
        (ev.maxwell_change("insert", {"id": 1}, table=("shop", "")), "missing_table"),
        (ev.maxwell_change("delete"), "missing_image"),
        (ev.raw(b'{"database":"shop","table":"customers"}'), "not_an_envelope"),
        (ev.raw(b'{"type":"insert","data":{"id":1}}'), "not_an_envelope"),
    ],
)
def test_what_is_no_event_of_maxwell(record: Record, says: str) -> None:
    assert reason(record, MAXWELL) == says


def test_ogg_operations() -> None:
    log = OggLog()
    log.create(id=1, name="Ann")
    log.truncate()
    log.create(id=2, name="Bob")
    log.create(id=3, name="Cid")
    changed = log.update({"id": 2, "name": "Bob"}, id=4, name="Bob")
    log.delete(id=3)
    assert states(log, OGG, "SHOP.CUSTOMERS") == [[{"id": 4, "name": "Bob"}]]
    update = one(changed, OGG)
    assert (update.key, update.old_key) == ('{"id":4}', '{"id":2}')
    assert update.position == (0, 0, 1040, 0, 4, 1)
    assert update.source_ts_ms == ev.NOON_MS + 5000
    assert update.processed_ts_ms == ev.NOON_MS + 5200


@pytest.mark.parametrize(
    ("table", "name"),
    [("SHOP.CUSTOMERS", "SHOP.CUSTOMERS"), ("PDB.SHOP.CUSTOMERS", "PDB__SHOP.CUSTOMERS")],
)
def test_a_table_of_ogg_may_be_of_a_container_database(table: str, name: str) -> None:
    found = one(ev.ogg_inserted({"id": 1}, table=table, pos="1" * 39), OGG)
    assert found.table_name == name
    part = int("1" * 13)
    assert found.position == (part, part, part, 0, 0, 1)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (ev.ogg_change("K", None, {"id": 1}), "unknown_op"),
        (ev.ogg_change(None, None, {"id": 1}), "missing_op"),
        (ev.ogg_change("I", None, {"id": 1}, table="CUSTOMERS"), "missing_table"),
        (ev.ogg_change("U", {"id": 1}), "missing_image"),
        (ev.raw(b'{"table":"SHOP.CUSTOMERS","after":{"id":1}}'), "not_an_envelope"),
        (ev.raw(b'{"op_type":"I","after":{"id":1}}'), "not_an_envelope"),
    ],
)
def test_what_is_no_event_of_ogg(record: Record, says: str) -> None:
    assert reason(record, OGG) == says


def test_flattened_records_are_read_when_configured() -> None:  # D18
    meta = {"__op": "c", "__deleted": "false", "__schema": "public", "__table": "customers"}
    row = {"id": 1, **meta, "__lsn": 7, "__source_ts_ms": 5}
    record = ev.raw(ev.to_json(row).encode(), key=b'{"id":1}')
    found = one(record, a_source("debezium-flat"))
    assert (found.op, found.after, found.position) == ("c", {"id": 1}, (7, 0, 0, 1))
    gone = ev.raw(ev.to_json({**row, "__deleted": "true"}).encode(), key=b'{"id":1}')
    assert one(gone, a_source("debezium-flat")).op == "d"


# -- lag -----------------------------------------------------------------------------------------


def test_lag_has_a_row_an_hour_and_one_a_day() -> None:  # G1–G3
    log = PgLog()
    times = {"_source_ts_ms": ev.NOON_MS, "_timestamp_ms": ev.NOON_MS + 1000}
    for processed in (ev.NOON_MS - 50, ev.NOON_MS + 10, ev.NOON_MS + 20):
        log.create(id=processed, **times, _processed_ts_ms=processed)
    log.create(id=1, _source_ts_ms=None)
    log.read(id=2)
    log.tombstone(id=2)
    rows = lag(a_source(), log.landed)[DAY]
    day, hour = (r for r in rows if r["kind"] == "capture")
    assert (day["hour"], hour["hour"]) == (None, ev.NOON_MS)
    assert (day["count"], day["excluded"], day["negative"]) == (3, 3, 1)
    assert (day["min_ms"], day["p50_ms"], day["p99_ms"], day["mean_ms"]) == (-50, 10, 20, -7)
    assert (hour["count"], hour["excluded"]) == (3, 0)  # a snapshot read has no source hour
    delivery = next(r for r in rows if r["kind"] == "delivery" and r["hour"] is None)
    assert delivery["count"] == 4


def test_the_first_half_of_a_split_update_has_no_lag() -> None:  # W2
    log = DataWorksLog()
    log.update_pair({"id": 1}, id=1, name="x")
    rows = lag(DATAWORKS, log.landed)[DAY]
    assert [r["count"] + r["excluded"] for r in rows if r["hour"] is None] == [1, 1, 1]


# -- landed lines --------------------------------------------------------------------------------


def test_lines_hold_a_record_each(tmp_path: Any) -> None:
    record = ev.created({"id": 1}, headers={"h": b"x"}, offset=3)
    kcat, spark = json.loads(ev.kcat_line(record)), json.loads(ev.spark_line(record))
    assert kcat["payload"] == spark["value"] == (record.value or b"").decode()
    assert (kcat["headers"], spark["headers"]) == (["h", "x"], [{"key": "h", "value": "x"}])
    assert (kcat["ts"], spark["timestamp"]) == (ev.NOON_MS + 500, "2026-11-04T12:00:00.500Z")
    assert json.loads(ev.kcat_line(ev.raw(b"\xff")))["value_base64"] == "/w=="
    ev.write_landing(tmp_path, {DAY: [record, ev.malformed_line("{")]})
    lines = (tmp_path / "2026-11-04" / "part-0.jsonl").read_text().splitlines()
    assert lines[1] == "{"


# -- against a database --------------------------------------------------------------------------

STATEMENTS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "delete", "move", "truncate", "again", "day"]),
        st.integers(0, 3),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(STATEMENTS)
def test_the_state_is_that_of_the_database(statements: list[tuple[str, int, int, bool]]) -> None:
    """Whatever is redelivered within late_days, at the end the table is the database's (O1)."""
    log, database = PgLog(), {}
    sent: list[tuple[Record, ...]] = []  # a redelivery never begins between delete and tombstone
    for n, (what, key, other, toasted) in enumerate(statements):
        if what == "day":
            log.next_day()
        elif what == "again":
            stretch = sent[-(4 * key + other + 1) :][: other + 1]
            log.again(*(record for records in stretch for record in records))
        elif what == "truncate":
            sent.append((log.truncate(),))
            database.clear()
        elif what == "delete" and key in database:
            sent.append((log.delete(id=key), log.tombstone(id=key)))
            del database[key]
        elif what == "move" and key in database and other not in database:
            row = {**database.pop(key), "id": other, "n": n}
            body = {"body": TOAST} if toasted else {}
            gone, buried, created = log.change_key({"id": key}, **{**row, **body})
            sent.extend([(gone, buried), (created,)])
            database[other] = row
        elif what == "write" and key in database:
            row = database[key] | {"n": n} | ({} if toasted else {"body": f"b{n}"})
            sent.append((log.update(**(row | ({"body": TOAST} if toasted else {}))),))
            database[key] = row
        elif what == "write":
            database[key] = {"id": key, "n": n, "body": f"b{n}"}
            sent.append((log.create(**database[key]),))
    source = a_source(late_days=30)
    rows = tables(source, log.landed)[max(log.landed)][NAME]
    assert by_id(rows) == database


NAMES = ("schema", "payload", "op", "source", "before", "after", "table", "db", "ts_ms", "id")
MORE_NAMES = ("dataColumn", "primaryKey", "sequenceId", "fields", "type", "field", "name", "__op")
OTHER_NAMES = ("database", "data", "old", "op_type", "pos", "op_ts", "primary_keys", "position")
LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from(["c", "d", "t", "INSERT", ""])
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES + MORE_NAMES + OTHER_NAMES), inner, max_size=6)
    ),
    max_leaves=25,
)
BYTES = st.none() | st.binary(max_size=8) | DOCUMENTS.map(lambda d: json.dumps(d).encode())


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["debezium", "debezium-flat", "lindorm", "dataworks", "maxwell", "ogg"]),
    st.lists(st.tuples(BYTES, BYTES, BYTES), max_size=4),
)
def test_every_record_reaches_one_destination(
    format: str, documents: list[tuple[bytes | None, bytes | None, bytes | None]]
) -> None:
    records = [
        Record("t", 0, n, None, key, value, (("__debezium.oldkey", header),))
        for n, (key, value, header) in enumerate(documents)
    ]
    found = classify(a_source(format), {DAY: records})[DAY]
    assert [c.record for c in found] == records
    assert all((c.reason is not None) == (c.destination == "quarantine") for c in found)
