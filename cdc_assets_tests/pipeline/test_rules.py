"""Small stories, each named for its rule of FORMATS.md, in one lake of three sources.

A story is a table: it lands its records and returns the rows that must stand at the end of the
last day. Those of one day happen on the last day, others end there. The model judges every day.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.errors import AuditError, SchemaDriftError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import TOAST, DataWorksLog, FlatLog, Landing, LindormLog, PgLog
from cdc_assets_tests.model import Record

pytestmark = pytest.mark.slow

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]
NAMESPACES = {
    **dict.fromkeys(("debezium", "keep", "flat"), "public"),
    "lindorm": "default",
    "dataworks": "shop",
}
FORMATS = {"keep": "debezium", "flat": "debezium-flat"}
LOGS: dict[str, Callable[..., Any]] = {
    "debezium": lambda table, landing, **o: PgLog("rules", "public", table, landing=landing, **o),
    "keep": lambda table, landing, **o: PgLog("keep", "public", table, landing=landing, **o),
    "flat": lambda table, landing, **o: FlatLog("flat", "public", table, landing=landing, **o),
    "lindorm": lambda table, landing, **o: LindormLog("default", table, landing=landing, **o),
    "dataworks": lambda table, landing, **o: DataWorksLog("shop", table, landing=landing, **o),
}
Rows = list[dict[str, Any]]


@dataclass
class Story:
    """A table's story: which rule, from which day, and what must stand in the end."""

    rule: str
    name: str
    source: str
    days: int
    log: dict[str, Any]
    config: dict[str, Any]
    tell: Callable[[Any], Rows]
    expected: Rows = field(default_factory=list)

    @property
    def table(self) -> str:
        return f"{NAMESPACES[self.source]}.{self.name}"

    @property
    def start(self) -> date:
        return DAYS[-self.days]


STORIES: dict[str, Story] = {}


def story(
    rule: str,
    days: int = 1,
    source: str = "debezium",
    log: dict[str, Any] | None = None,
    **config: Any,
) -> Callable[[Callable[[Any], Rows]], Callable[[Any], Rows]]:
    """A table of `source` whose records the function lands; it returns the rows in the end."""

    def register(tell: Callable[[Any], Rows]) -> Callable[[Any], Rows]:
        made = Story(rule, tell.__name__, source, days, log or {}, config, tell)
        STORIES[f"{rule}-{made.name}"] = made
        return tell

    return register


# -- envelopes -----------------------------------------------------------------------------------


@story("D1", key=["id"])
def columns_may_be_named_like_the_envelope(log: PgLog) -> Rows:
    row = {"id": 1, "schema": "s", "payload": "p", "op": "x", "source": "y"}
    log.create(**row)
    log.create(**{**row, "id": 2}, _wrap=True)
    return [row, {**row, "id": 2}]


@story("D2")
def payload_may_come_first_and_schema_may_be_null(log: PgLog) -> Rows:
    log.create(id=1, v="null schema", _wrap=True)
    bare = ev.created({"id": 2, "v": "first"}, table=("public", log.defaults["table"][1]), lsn=5)
    value = b'{"payload":' + (bare.value or b"") + b',"schema":{"type":"struct"}}'
    topic = f"rules.public.{log.defaults['table'][1]}"
    log.landing.put(ev.raw(value, topic=topic, key=b'{"payload":{"id":2},"schema":null}'))
    return [{"id": 1, "v": "null schema"}, {"id": 2, "v": "first"}]


@story("D4", log={"types": {"id": "int32", "v": "string"}})
def the_table_is_named_by_source_alone(log: PgLog) -> Rows:
    log.create(id=1, v="a", _topic="rules.elsewhere.other")
    return [{"id": 1, "v": "a"}]


@story("D3")
def images_and_times_that_are_optional_may_be_absent(log: PgLog) -> Rows:
    log.create(id=1, v="a", _processed_ts_ms=None)
    log.update(id=1, v="b", _before=None, _source_ts_ms=None)
    return [{"id": 1, "v": "b"}]


@story("D15")
def unknown_fields_never_fail_a_record(log: PgLog) -> Rows:
    log.create(id=1, _extra={"ts_us": 1, "new": {"a": []}}, _source={"ts_ns": 5, "x": [1]})
    return [{"id": 1}]


@story("D14")
def every_mark_but_false_is_a_snapshot_read(log: PgLog) -> Rows:
    for number, mark in enumerate(("first", "last_in_data_collection", "tomorrow", True)):
        log.create(id=number, _snapshot=mark, _source_ts_ms=0)
    log.create(id=9, _snapshot=False)
    return [{"id": number} for number in (0, 1, 2, 3, 9)]


# -- keys ----------------------------------------------------------------------------------------


@story("D5", log={"types": {"id": "int32", "v": "string"}})
def a_key_written_as_text_is_the_key_of_a_number(log: PgLog) -> Rows:
    log.create(id=1, v="a", _key={"id": "1"})
    log.update(id=1, v="b", _key=b'{"id":1}')
    schema = b'{"type":"struct","fields":[{"name":"id","schema":{"type":"INT32"}}]}'
    log.create(id=2, v="c")
    log.delete(_before=None, _key=b'{"schema":' + schema + b',"payload":{"id":"2"}}')
    return [{"id": 1, "v": "b"}]


@story("D5", key=["id"], replica_identity="full")
def a_full_old_row_may_give_the_key(log: PgLog) -> Rows:
    log.create(id=1, v="a")
    log.create(id=2, v="b")
    log.delete(id=1, v="a", _key=None)
    return [{"id": 2, "v": "b"}]


@story("D5", key=["id"])
def an_old_row_that_nobody_vouches_for_gives_no_key(log: PgLog) -> Rows:
    log.create(id=1, v="a")
    log.delete(id=1, v="a", _key=None)
    return [{"id": 1, "v": "a"}]


@story("D6", key=["id"])
def an_unreadable_key_is_taken_from_the_value(log: PgLog) -> Rows:
    for number, key in enumerate((b"garbage", None, b"", b"null", b"[1]", b"{}")):
        log.create(id=number, _key=key)
    log.delete(_before=None, _key=b"5")  # a scalar
    return [{"id": number} for number in range(5)]


@story("D7", key="none", log={"key": None})
def rows_without_key_are_appended(log: PgLog) -> Rows:
    log.create(a=1)
    log.read(a=1)
    log.update(a=2)
    log.delete(a=1)
    return [{"a": 1}, {"a": 1}]


@story("D8")
def a_partial_old_image_is_never_the_old_row(log: PgLog) -> Rows:
    log.create(id=1, v="a", n=7)
    log.update(id=1, v="b", n=7, _before={"id": 5, "v": "", "n": 0})
    log.create(id=5, v="c", n=1)
    log.create(id=6, v="d", n=1)
    log.delete(_before=None, _key={"id": 6})
    return [{"id": 1, "v": "b", "n": 7}, {"id": 5, "v": "c", "n": 1}]


@story("D9", days=2)
def a_changed_key_moves_the_row(log: PgLog) -> Rows:
    log.create(id=1, v="a")
    log.next_day()
    log.change_key({"id": 1}, id=2, v="b")
    return [{"id": 2, "v": "b"}]


@story("D9")
def the_old_key_is_read_in_every_form_of_header(log: PgLog) -> Rows:
    for number, form in enumerate(("struct", "text", "schema", "java")):
        header = ev.key_header({"id": number}, form)  # type: ignore[arg-type]
        log.create(id=number, v="old")
        # The delete of the old key is lost: the header alone removes the row.
        log.create(id=10 + number, v="new", _headers={"__debezium.oldkey": header})
    log.create(id=20, v="new", _headers={"__debezium.oldkey": b"no key"})
    return [{"id": number, "v": "new"} for number in (10, 11, 12, 13, 20)]


@story("D10", replica_identity="full", key=["id"])
def an_update_may_change_the_key_by_its_images(log: PgLog) -> Rows:
    log.create(id=1, v="a")
    log.update(id=2, v="b", _before={"id": 1, "v": "a"})
    return [{"id": 2, "v": "b"}]


@story("D10", replica_identity="full")
def images_are_asked_for_the_columns_that_the_message_key_names(log: PgLog) -> Rows:
    log.create(id=1, part="x", v="a", _key=("id", "part"))
    before = {"id": 1, "part": "x", "v": "a"}
    log.update(id=2, part="x", v="b", _before=before, _key=("id", "part"))
    return [{"id": 2, "part": "x", "v": "b"}]


@story("D10", source="lindorm")
def lindorm_changes_a_key_that_only_the_message_key_names(log: LindormLog) -> Rows:
    log.create(id="a", v=1)
    log.update({"id": "a", "v": 1}, id="b", v=2)
    return [{"id": "b", "v": 2}]


@story("D10", key=["id"])
def an_old_key_that_nobody_vouches_for_removes_nothing(log: PgLog) -> Rows:
    log.create(id=1, v="a")
    log.update(id=2, v="b", _before={"id": 1, "v": "a"})
    return [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]


# -- tombstones and truncates --------------------------------------------------------------------


@story("D11")
def a_tombstone_after_its_delete_changes_nothing(log: PgLog) -> Rows:
    for number, value in enumerate((None, b"null", b'{"schema":null,"payload":null}', b"")):
        log.create(id=number, v="old")
        gone = log.delete(id=number)
        buried = log.tombstone(id=number, _value=value)
        log.create(id=number, v="new")
        log.again(gone, buried)  # O1: a pair that is sent again
    return [{"id": number, "v": "new"} for number in range(4)]


@story("D11")
def a_lone_tombstone_deletes_its_row(log: PgLog) -> Rows:
    for number in range(5):
        log.create(id=number)
    for number, value in enumerate((None, b"null", b'{"schema":null,"payload":null}', b"")):
        log.tombstone(id=number, _value=value)
    return [{"id": 4}]


@story("D11", days=3)
def a_tombstone_knows_its_delete_of_the_day_before_only(log: PgLog) -> Rows:
    for number in (1, 2):
        log.create(id=number, v="old")
        log.delete(id=number)
    log.next_day()
    log.tombstone(id=1)
    log.create(id=1, v="new")
    log.create(id=2, v="new")
    log.next_day()
    log.tombstone(id=2)  # two days after its delete: a compacted topic deletes the row
    return [{"id": 1, "v": "new"}]


@story("D12", days=2)
def a_truncate_removes_what_has_a_lower_position(log: PgLog) -> Rows:
    log.create(id=1, _lsn=100)
    log.create(id=2, _lsn=900, _partition=1)
    log.next_day()
    log.create(id=3, _lsn=700, _partition=1)
    log.truncate(_lsn=500)
    log.create(id=4, _lsn=300, _partition=2)  # landed after, happened before
    log.create(id=5, _lsn=501)
    return [{"id": 2}, {"id": 3}, {"id": 5}]


@story("D12", days=2)
def a_truncate_of_yesterday_beats_an_older_event(log: PgLog) -> Rows:
    log.create(id=1, _lsn=100)
    log.truncate(_lsn=500)
    log.next_day()
    log.create(id=2, _lsn=300)
    log.create(id=3, _lsn=600)
    return [{"id": 3}]


# -- order ---------------------------------------------------------------------------------------


@story("O1", days=2)
def a_stretch_that_is_sent_again_changes_nothing(log: PgLog) -> Rows:
    sent = [log.create(id=1, v="a"), log.update(id=1, v="b"), log.create(id=2, v="c")]
    sent.append(log.delete(id=2))
    log.again(*sent)
    log.next_day()
    log.again(*sent)
    return [{"id": 1, "v": "b"}]


@story("O2")
def a_lower_lsn_of_another_row_is_no_repetition(log: PgLog) -> Rows:
    log.create(id=1, _lsn=9000)
    log.create(id=2, _lsn=5000)
    return [{"id": 1}, {"id": 2}]


@story("O4")
def the_offset_decides_within_one_lsn_and_not_total_order(log: PgLog) -> Rows:
    def at(order: str) -> dict[str, Any]:
        return {"id": "571:1", "total_order": order, "data_collection_order": "1"}

    log.update(id=1, v="first", _lsn=50, _transaction=at("10"))
    log.update(id=1, v="last", _lsn=50, _transaction=at("9"))
    for number in (2, 3, 4):
        log.create(id=number, v="copy", _lsn=60)  # COPY: one LSN for all
    return [{"id": 1, "v": "last"}] + [{"id": n, "v": "copy"} for n in (2, 3, 4)]


@story("O5", days=2)
def a_restart_over_the_day_cut_ends_in_the_last_state(log: PgLog) -> Rows:
    a = log.create(id=1, v="A")
    b = log.update(id=1, v="B")
    log.again(a)
    log.next_day()
    log.again(b)
    return [{"id": 1, "v": "B"}]


@story("O6", days=2)
def a_snapshot_read_stands_after_what_landed_before_it(log: PgLog) -> Rows:
    log.create(id=1, v="before", _lsn=5000)
    log.create(id=2, v="before", _lsn=5000)
    log.read(id=3, v="read", _lsn=9000)
    log.update(id=3, v="open when it was read", _lsn=100)
    log.next_day()
    log.read(id=1, v="read", _lsn=None, _snapshot="incremental")
    log.update(id=1, v="late", _lsn=4000)
    log.read(id=2, v="read", _lsn=None, _snapshot="incremental")
    log.update(id=2, v="after", _lsn=5001)
    return [
        {"id": 1, "v": "read"},
        {"id": 2, "v": "after"},
        {"id": 3, "v": "open when it was read"},
    ]


@story("O12", days=2)
def a_removal_of_yesterday_beats_an_older_event_of_today(log: PgLog) -> Rows:
    log.create(id=1, v="a", _lsn=10)
    log.delete(id=1, _lsn=100)
    log.create(id=2, v="a", _lsn=10)
    log.change_key({"id": 2}, id=3, v="moved", _lsn=200)
    log.create(id=4, v="a", _lsn=300)
    log.tombstone(id=4)
    log.next_day()
    log.update(id=1, v="late", _lsn=50)
    log.update(id=2, v="late", _lsn=150)
    log.update(id=4, v="late", _lsn=290)
    log.create(id=5, v="new", _lsn=20)
    return [{"id": 3, "v": "moved"}, {"id": 5, "v": "new"}]


@story("O3", days=2)
def a_sequence_that_falls_back_sends_a_stretch_again(log: PgLog) -> Rows:
    for step, (lsn, sequence) in enumerate(
        ((100, '[null,"100"]'), (110, '["100","110"]'), (120, '["110","120"]'))
    ):
        log.update(id=1, v=step, _lsn=lsn, _source={"sequence": sequence})
    log.next_day()
    log.update(id=1, v=1, _lsn=110, _source={"sequence": '["100","110"]'})
    return [{"id": 1, "v": 2}]


@story("O7")
def a_transaction_number_that_wraps_orders_nothing(log: PgLog) -> Rows:
    wrapped = {"id": "3:900", "total_order": "1", "data_collection_order": 1}
    log.create(id=1, v="old", _lsn=900, _source={"txId": 2**32 - 1})
    log.update(id=1, v="new", _lsn=950, _source={"txId": 3}, _transaction=wrapped)
    log.create(id=2, v="first", _lsn=1000, _transaction={**wrapped, "id": "9:1001"})
    log.update(id=2, v="second", _lsn=1000, _transaction={**wrapped, "id": "9:1", "total_order": 2})
    return [{"id": 1, "v": "new"}, {"id": 2, "v": "second"}]


@story("O13")
def the_time_of_the_connector_orders_nothing(log: PgLog) -> Rows:
    log.create(id=1, v="a", _processed_ts_ms=ev.NOON_MS + 7 * 86_400_000)
    log.update(id=1, v="b", _processed_ts_ms=ev.NOON_MS)
    return [{"id": 1, "v": "b"}]


@story("O14", days=2, key="none", log={"key": None})
def equal_rows_of_one_transaction_count_and_repeated_ones_do_not(log: PgLog) -> Rows:
    sent = [log.create(a=1, _lsn=500), log.create(a=1, _lsn=500), log.create(a=2, _lsn=500)]
    sent.append(log.create(a=3, _lsn=600))
    log.again(*sent)
    log.next_day()
    log.again(*sent)
    log.create(a=1, _lsn=700)
    return [{"a": number} for number in (1, 1, 2, 3, 1)]


@story("O14", days=2, key="none", log={"key": None})
def a_killed_connector_sends_the_last_row_again_right_behind_it(log: PgLog) -> Rows:
    later = ev.NOON_MS + 3_600_000
    log.create(a=1, _lsn=500)
    log.create(a=1, _lsn=500, _processed_ts_ms=later)
    for sent in (later, later, later + 2000, later + 2000, later + 2001):
        log.create(a=2, _lsn=600, _processed_ts_ms=sent)
    log.next_day()
    log.create(a=2, _lsn=600, _processed_ts_ms=later + 60_000)
    return [{"a": number} for number in (1, 2, 2, 2)]


@story("O14", key="none")
def tombstones_change_nothing_where_there_is_no_key(log: PgLog) -> Rows:
    log.create(id=1)
    log.delete(id=1, _tombstone=True)
    log.tombstone(id=1)
    log.tombstone(id=2)
    log.change_key({"id": 3}, id=4)
    return [{"id": 1}, {"id": 4}]


@story("O14", days=2, key="none", log={"key": None})
def a_truncate_empties_a_table_without_key(log: PgLog) -> Rows:
    log.create(a=1)
    log.next_day()
    log.create(a=2)
    log.truncate()
    log.create(a=3)
    return [{"a": 3}]


@story("O14", days=2, key="row", log={"key": None})
def a_whole_old_row_takes_one_equal_row_away(log: PgLog) -> Rows:
    for v in ("a", "a", "a", "b", None):
        log.create(id=1, v=v)
    log.delete(id=1, v="a")
    log.update(id=1, v="c", _before={"id": 1, "v": "b"})
    log.next_day()
    log.update(id=2, v="a", _before={"id": 1, "v": "a"})
    log.delete(id=1, v=None)
    log.delete(id=7, v="never there")
    return [{"id": 1, "v": "a"}, {"id": 1, "v": "c"}, {"id": 2, "v": "a"}]


@story("O14", days=2, key="row", log={"key": None})
def an_old_row_is_compared_by_columns_that_no_new_row_has(log: PgLog) -> Rows:
    log.create(id=1, extra={"a": 1})
    log.create(id=1)
    log.create(id=2)
    log.next_day()
    log.delete(id=1, extra={"a": 1})
    log.delete(id=2, extra={"a": 1})
    return [{"id": 1, "extra": None}, {"id": 2, "extra": None}]


@story("O14", days=2, key="row", log={"key": None})
def what_is_sent_again_takes_no_second_row(log: PgLog) -> Rows:
    sent = [log.create(a=n, _lsn=500) for n in (1, 1, 1, 2)]
    sent += [log.delete(a=1, _lsn=600), log.update(a=3, _before={"a": 2}, _lsn=700)]
    log.again(*sent)
    log.next_day()
    log.again(*sent)
    log.delete(a=1, _lsn=800)
    return [{"a": 1}, {"a": 3}]


@story("O14", days=3, key="row", log={"key": None})
def a_row_that_arrives_after_it_was_taken_away_does_not_stay(log: PgLog) -> Rows:  # O12
    log.create(a=0, _lsn=10)
    log.delete(a=1, _lsn=300)
    log.delete(a=2, _lsn=310)
    log.next_day()
    log.create(a=1, _lsn=200)
    log.create(a=2, _lsn=320)
    log.next_day()
    log.create(a=1, _lsn=210)
    log.create(a=2, _lsn=330)
    return [{"a": n} for n in (0, 1, 2, 2)]


@story("O14", days=2, key="row", log={"key": None})
def a_truncate_spares_what_came_after_it(log: PgLog) -> Rows:  # D12
    log.create(a=1, _lsn=100)
    log.create(a=1, _lsn=400)
    log.next_day()
    log.truncate(_lsn=300)
    log.delete(a=1, _lsn=200)
    log.create(a=2, _lsn=250)
    log.create(a=3, _lsn=350)
    return [{"a": 1}, {"a": 3}]


@story("O14", days=2, key="row", log={"key": None, "types": {"id": "int32", "big": "string"}})
def an_unsent_value_is_that_of_the_old_row(log: PgLog) -> Rows:  # R2
    log.create(id=1, big="long")
    log.next_day()
    log.update(id=2, big=TOAST, _before={"id": 1, "big": "long"})
    return [{"id": 2, "big": "long"}]


@story("O14", days=2, key="none", log={"key": None})
def snapshot_reads_that_are_sent_again_add_nothing(log: PgLog) -> Rows:
    reads = [log.read(a=n, _lsn=100) for n in (1, 1, 2)]
    log.create(a=3, _lsn=200)
    log.next_day()
    log.again(*reads)
    return [{"a": n} for n in (1, 1, 2, 3)]


# -- flattened records ---------------------------------------------------------------------------


@story("D18", source="flat", days=2)
def flattened_rows_are_written_and_deleted(log: FlatLog) -> Rows:
    log.create(id=1, v="a")
    log.create(id=2, v="a")
    log.create(id=3, v="a")
    log.next_day()
    log.update(id=1, v="b")
    log.update(id=1, v="older", _lsn=5)
    log.delete(id=2, v="a", _tombstone=True)
    return [{"id": 1, "v": "b"}, {"id": 3, "v": "a"}]


@story("D18", source="flat", log={"types": {"id": "int32", "at": "io.debezium.time.Date"}})
def a_flattened_row_has_the_types_of_its_schema(log: FlatLog) -> Rows:
    log.create(id=1, at=date(1969, 12, 31))
    return [{"id": 1, "at": date(1969, 12, 31)}]


@story("D18", source="flat", key=["id"])
def what_is_deleted_is_known_without_an_op(log: FlatLog) -> Rows:
    fields = ("source.schema", "source.table", "source.lsn")
    log.create(id=1, v="a", _fields=fields)
    log.create(id=2, v="a", _fields=fields)
    log.delete(id=1, v="a", _fields=fields)
    return [{"id": 2, "v": "a"}]


# -- rows and types ------------------------------------------------------------------------------


@story("R1", days=2)
def a_column_that_is_absent_is_null(log: PgLog) -> Rows:
    log.create(id=1, v="a", w="b")
    log.next_day()
    log.update(id=1, v="c")
    return [{"id": 1, "v": "c", "w": None}]


@story("R1", days=2, source="keep")
def a_column_that_is_absent_is_kept_where_the_producer_sends_changes_only(log: PgLog) -> Rows:
    log.create(id=1, v="a", w="b", x=1)
    log.next_day()
    log.update(id=1, w="c")
    log.update(id=1, v=None)
    return [{"id": 1, "v": None, "w": "c", "x": 1}]


@story("R2", days=2)
def an_unchanged_value_follows_a_row_through_several_keys_of_a_day(log: PgLog) -> Rows:
    log.create(id=1, doc="long", note="a")
    log.create(id=5, doc="there", note="a")
    log.next_day()
    log.change_key({"id": 1}, id=2, doc=TOAST, note=TOAST)
    log.change_key({"id": 2}, id=3, doc=TOAST, note="b")
    log.change_key({"id": 3}, id=4, doc=TOAST, note=TOAST)
    log.change_key({"id": 5}, id=6, doc=TOAST, note="b")
    log.change_key({"id": 6}, id=5, doc=TOAST, note="c")
    return [{"id": 4, "doc": "long", "note": "b"}, {"id": 5, "doc": "there", "note": "c"}]


@story("R2", days=3)
def an_unchanged_value_stays_when_a_key_change_is_delivered_again(log: PgLog) -> Rows:
    log.create(id=1, doc="long")
    log.next_day()
    moved = log.change_key({"id": 1}, id=2, doc=TOAST)
    log.next_day()
    log.again(*moved)
    return [{"id": 2, "doc": "long"}]


@story("R2", days=3)
def an_unsent_value_keeps_its_last_one_over_days(log: PgLog) -> Rows:
    log.create(id=1, v=1, note="one")
    log.update(id=1, v=2, note=TOAST)
    log.create(id=2, v=1, note="two")
    log.next_day()
    log.update(id=1, v=3, note=TOAST)
    log.update(id=2, v=2, note="new")
    log.update(id=2, v=3, note=TOAST)  # hides a value of the same day
    log.next_day()
    log.update(id=1, v=4, note=TOAST)
    log.update(id=2, v=4, note=TOAST)
    return [{"id": 1, "v": 4, "note": "one"}, {"id": 2, "v": 4, "note": "new"}]


@story("R2", days=2)
def an_unsent_value_may_be_the_placeholder_in_hexadecimal(log: PgLog) -> Rows:
    log.create(id=1, scan="ffd8", pages=["00ff"])
    log.next_day()
    log.update(id=1, scan=TOAST.encode().hex(), pages=[TOAST.encode().hex()])
    return [{"id": 1, "scan": "ffd8", "pages": '["00ff"]'}]


ARRAYS = {
    "id": "int32",
    "tags": {"type": "array", "items": {"type": "string", "optional": True}},
    "sizes": {"type": "array", "items": {"type": "int32"}},
    "names": {
        "type": "map",
        "keys": {"type": "string"},
        "values": {"type": "string", "optional": True},
    },
}


@story("R2", days=2, replica_identity="full", log={"types": ARRAYS})
def unsent_arrays_and_maps_stand_in_a_whole_old_row(log: PgLog) -> Rows:
    row: dict[str, Any] = {"id": 1, "tags": ["linen", None], "sizes": [38], "names": {"a": "b"}}
    log.next_day()
    codes = [ord(char) for char in TOAST]
    log.update(id=1, tags=[TOAST], sizes=codes, names={TOAST: TOAST}, _before=row)
    return [row]


@story("R2", days=2)
def an_unsent_value_is_that_of_the_old_key(log: PgLog) -> Rows:
    log.create(id=1, note="one")
    log.create(id=3, note="three")
    log.next_day()
    log.change_key({"id": 1}, id=2, note=TOAST)
    log.update(id=3, note="third")
    log.change_key({"id": 3}, id=4, note=TOAST)
    log.update(id=4, note=TOAST)
    return [{"id": 2, "note": "one"}, {"id": 4, "note": "third"}]


@story("R2", days=2)
def an_unsent_value_is_not_filled_from_what_is_older_or_gone(log: PgLog) -> Rows:
    log.create(id=1, note="newest", _lsn=5000)
    log.create(id=2, note="gone", _lsn=5000)
    log.next_day()
    log.update(id=1, note=TOAST, _lsn=6000)
    log.update(id=1, note="late", _lsn=4000)
    log.delete(id=2, _lsn=6000)
    log.create(id=2, note=TOAST, _lsn=6001)
    log.update(id=3, note=TOAST, _lsn=6002)
    return [
        {"id": 1, "note": "newest"},
        {"id": 2, "note": None},
        {"id": 3, "note": None},
    ]


TYPES: dict[str, Any] = {
    "id": "int64",
    "small": "int16",
    "yes": "boolean",
    "ratio": "double",
    "single": "float",
    "raw": "bytes",
    "day": "io.debezium.time.Date",
    "at_ms": "io.debezium.time.Timestamp",
    "at_us": "io.debezium.time.MicroTimestamp",
    "at_ns": "io.debezium.time.NanoTimestamp",
    "zoned": "io.debezium.time.ZonedTimestamp",
    "time_ms": "io.debezium.time.Time",
    "time_us": "io.debezium.time.MicroTime",
    "time_ns": "io.debezium.time.NanoTime",
    "iso_day": "io.debezium.time.IsoDate",
    "price": (ev.DECIMAL, 2, 38),
    "any": ev.VARIABLE_SCALE_DECIMAL,
    "uuid": "io.debezium.data.Uuid",
    "bits": "io.debezium.data.Bits",
    "place": "io.debezium.data.geometry.Point",
    "list": {"type": "array", "items": {"type": "int32"}, "optional": True},
    "map": {
        "type": "map",
        "keys": {"type": "string"},
        "values": {"type": "string"},
        "optional": True,
    },
}
WKB = base64.b64encode(b"\x01\x01").decode()


@story("R3", log={"types": TYPES})
def values_have_the_types_of_the_message_schema(log: PgLog) -> Rows:
    log.create(
        id=2**63 - 1,
        small=-3,
        yes=True,
        ratio=Decimal("0.1"),
        single=Decimal("0.5"),
        raw=b"\x00\xff",
        day=-1,
        at_ms=-1,
        at_us=1_577_880_000_123_456,
        at_ns=-1,
        zoned="2026-11-04T12:00:00.123456789+02:00",
        time_ms=86_400_000,
        time_us=-1,
        time_ns=1999,
        iso_day="1969-12-31",
        price=Decimal("-123456789012345678901234567890123456.78"),
        any=Decimal("1.2300"),
        uuid="0b0f6a50-0000-4000-8000-000000000001",
        bits=b"\x01",
        place={"x": 1.0, "y": 2.0, "wkb": WKB, "srid": 4326},
        list=[1, None, 3],
        map={"a": "b"},
    )
    return [
        {
            "id": 2**63 - 1,
            "small": -3,
            "yes": True,
            "ratio": 0.1,
            "single": 0.5,
            "raw": b"\x00\xff",
            "day": date(1969, 12, 31),
            "at_ms": datetime(1969, 12, 31, 23, 59, 59, 999000),
            "at_us": datetime(2020, 1, 1, 12, 0, 0, 123456),
            "at_ns": datetime(1969, 12, 31, 23, 59, 59, 999999),
            "zoned": datetime(2026, 11, 4, 10, 0, 0, 123456, timezone.utc),
            "time_ms": 86_400_000_000,
            "time_us": -1,
            "time_ns": 1,
            "iso_day": date(1969, 12, 31),
            "price": Decimal("-123456789012345678901234567890123456.78"),
            "any": "1.2300",
            "uuid": "0b0f6a50-0000-4000-8000-000000000001",
            "bits": b"\x01",
            "place": {"wkb": b"\x01\x01", "srid": 4326},
            "list": [1, None, 3],
            "map": {"a": "b"},
        }
    ]


@story("R3", columns={"price": "decimal(38,10)", "at": "timestamp", "local": "timestamp_ntz"})
def values_without_schema_have_configured_or_inferred_types(log: PgLog) -> Rows:
    log.create(
        id=9007199254740993,
        price=Decimal("1234567890123456789012345678.0123456789"),
        ratio=Decimal("0.5"),
        nested={"b": 1, "a": [2]},
        at=1000,
        local="2026-11-04 12:00:00",
    )
    return [
        {
            "id": 9007199254740993,
            "price": Decimal("1234567890123456789012345678.0123456789"),
            "ratio": 0.5,
            "nested": '{"a":[2],"b":1}',
            "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc),
            "local": datetime(2026, 11, 4, 12),
        }
    ]


@story("R3", days=2)
def events_without_schema_are_read_by_the_schema_that_landed_before(log: PgLog) -> Rows:
    types = {"id": "int32", "day": "io.debezium.time.Date"}
    log.create(id=1, day=1, _types=types)
    log.next_day()
    log.update(id=1, day=2)
    return [{"id": 1, "day": date(1970, 1, 3)}]


UNFIT = {
    "id": "int32",
    "day": "io.debezium.time.Date",
    "zoned": "io.debezium.time.ZonedTimestamp",
    "price": (ev.DECIMAL, 2, 4),
    "count": "int32",
}


@story("R4", log={"types": UNFIT})
def a_value_that_its_column_cannot_hold_is_null(log: PgLog) -> Rows:
    log.create(id=1, day=2**31 - 1, zoned="infinity", price=Decimal("123.45"), count=2**40)
    log.create(id=2, day=0, zoned="10000-01-01T00:00:00Z", price=Decimal("-99.99"), count="x")
    return [
        {"id": 1, "day": None, "zoned": None, "price": None, "count": None},
        {
            "id": 2,
            "day": date(1970, 1, 1),
            "zoned": None,
            "price": Decimal("-99.99"),
            "count": None,
        },
    ]


@story("R5", days=3)
def columns_are_added_and_widened_or_become_text(log: PgLog) -> Rows:
    log.create(id=1, n=1, _types={"id": "int32", "n": "int32", "old": "string"}, old="x")
    log.next_day()
    wider = {"id": "int32", "n": "int64", "new": "string"}
    log.create(id=2, n=2**40, new="y", _types=wider)
    log.next_day()
    text = {"id": "int32", "n": "string", "new": "string"}
    log.create(id=3, n="many", new=None, _types=text)
    log.create(id=4, n="12", new=None, _types=text)
    return [
        {"id": 1, "n": "1", "old": "x", "new": None},
        {"id": 2, "n": str(2**40), "old": None, "new": "y"},
        {"id": 3, "n": "many", "old": None, "new": None},
        {"id": 4, "n": "12", "old": None, "new": None},
    ]


@story("R5", days=2)
def true_and_false_are_1_and_0_of_a_column_of_numbers(log: PgLog) -> Rows:
    numbers = {"n": "int16", "f": "double", "d": (ev.DECIMAL, 2, 5)}
    log.create(id=1, n=1, f=Decimal("0.5"), d=Decimal("2.50"), _types={"id": "int32", **numbers})
    log.next_day()
    truths = {"id": "int32", **dict.fromkeys(numbers, "boolean")}
    log.create(id=2, n=True, f=True, d=True, _types=truths)
    log.update(id=1, n=False, f=False, d=False, _types=truths)
    return [
        {"id": 1, "n": 0, "f": 0.0, "d": Decimal("0.00")},
        {"id": 2, "n": 1, "f": 1.0, "d": Decimal("1.00")},
    ]


@story("R5", days=2)
def a_date_that_becomes_a_time_stamp_makes_the_column_one(log: PgLog) -> Rows:
    log.create(id=1, due=20811, _types={"id": "int32", "due": "io.debezium.time.Date"})
    log.create(id=2, due=20811, _types={"id": "int32", "due": "io.debezium.time.Date"})
    log.next_day()
    types = {"id": "int32", "due": "io.debezium.time.Timestamp"}
    log.update(id=1, due=20811 * 86_400_000 + 1, _types=types)
    log.update(id=2, due=20812 * 86_400_000, _types=types)
    first, second = datetime(2026, 12, 24, microsecond=1000), datetime(2026, 12, 25)
    return [{"id": 1, "due": first}, {"id": 2, "due": second}]


SAID: dict[str, tuple[Any, str, Any, Any]] = {  # message's type, cdc.yaml's, sent, held
    "i": ("int32", "bigint", 7, 7),
    "j": ("int64", "int", 2**31, None),
    "k": ("int64", "decimal(12,2)", 7, Decimal("7.00")),
    "m": ((ev.DECIMAL, 4, 10), "int", Decimal("19.0000"), 19),
    "n": ((ev.DECIMAL, 4, 10), "int", Decimal("19.9000"), None),
    "o": ("boolean", "int", True, 1),
    "p": ("int32", "boolean", 0, False),
    "q": ("string", "decimal(10,2)", "12.50", Decimal("12.50")),
    "r": ("string", "int", "true", 1),
    "s": ("int32", "string", 7, "7"),
    "t": ("int64", "timestamp_ntz(us)", 1_000_000, datetime(1970, 1, 1, 0, 0, 1)),
    "u": ("string", "date", "2026-11-04", date(2026, 11, 4)),
    "v": ("io.debezium.time.Date", "timestamp_ntz", 1, datetime(1970, 1, 2)),
    "w": ("io.debezium.time.Timestamp", "date", 86_400_000, date(1970, 1, 2)),
    "x": ("io.debezium.time.Timestamp", "date", 86_400_001, None),
    "y": ({"type": "array", "items": {"type": "int32"}}, "array<string>", [1, 2], ["1", "2"]),
    "z": ({"type": "array", "items": {"type": "int32"}}, "string", [1, 2], "[1,2]"),
}


@story(
    "R3",
    columns={name: wanted for name, (_, wanted, _, _) in SAID.items()},
    log={"types": {"id": "int32", **{name: kind for name, (kind, *_) in SAID.items()}}},
)
def a_configured_type_wins_over_the_one_of_the_messages(log: PgLog) -> Rows:
    log.create(id=1, **{name: sent for name, (_, _, sent, _) in SAID.items()})
    return [{"id": 1, **{name: held for name, (*_, held) in SAID.items()}}]


@story("R3", days=2, columns={"id": "string"}, log={"types": {"id": "int32", "v": "string"}})
def a_configured_key_holds_the_text_of_the_message_s(log: PgLog) -> Rows:
    log.create(id=1, v="one")
    log.create(id=2, v="gone")
    log.next_day()
    log.update(id=1, v="two")
    log.delete(id=2)
    return [{"id": "1", "v": "two"}]


UNITS = {"s": "timestamp(s)", "ms": "timestamp_ntz(ms)", "us": "timestamp_ntz(us)"}


@story("R3", columns={**UNITS, "ns": "timestamp_ntz( ns )", "several": "array<timestamp_ntz(us)>"})
def numbers_of_configured_times_have_the_unit_that_is_said(log: PgLog) -> Rows:
    now = 1_793_527_242
    sent = {"s": now, "ms": now * 1000 + 479, "us": now * 10**6 + 479_857}
    log.create(id=1, **sent, ns=now * 10**9 + 479_857_999, several=[now * 10**6])
    at = datetime(2026, 11, 1, 10, 0, 42)
    return [
        {
            "id": 1,
            "s": at.replace(tzinfo=timezone.utc),
            "ms": at.replace(microsecond=479_000),
            "us": at.replace(microsecond=479_857),
            "ns": at.replace(microsecond=479_857),
            "several": [at],
        }
    ]


@story("R3", days=2)
def of_the_schemas_of_one_day_the_widest_reads_events_without_schema(log: PgLog) -> Rows:
    log.create(id=1, n=2**40, _types={"id": "int32", "n": "int64"})
    for number in range(2, 6):
        other = {"id": "int32", "n": "int32", f"c{number}": "string"}
        log.create(id=number, n=number, **{f"c{number}": None}, _types=other)
    log.next_day()
    log.create(id=6, n=2**41)
    others = {f"c{number}": None for number in range(2, 6)}
    rows = {1: 2**40, 2: 2, 3: 3, 4: 4, 5: 5, 6: 2**41}
    return [{"id": key, "n": n, **others} for key, n in rows.items()]


MEMBERS = {
    "type": "struct",
    "fields": [{"type": "int32", "field": "b"}, {"type": "string", "field": "a"}],
}


@story("D22", days=2, log={"types": {"id": MEMBERS, "v": "string"}})
def a_key_of_members_is_the_text_of_its_json(log: PgLog) -> Rows:
    log.create(id={"b": 1, "a": "x"}, v="one")
    log.create(id={"b": 2, "a": "x"}, v="gone")
    log.next_day()
    log.update(id={"b": 1, "a": "x"}, v="two")
    log.delete(id={"b": 2, "a": "x"})
    return [{"id": '{"a":"x","b":1}', "v": "two"}]


# -- Lindorm -------------------------------------------------------------------------------------


@story("L1", source="lindorm", key=["id"])  # L2: namespace and table are in `source`
def lindorm_comes_payload_first_and_without_types(log: LindormLog) -> Rows:
    log.create(id="a", v=1)
    return [{"id": "a", "v": 1}]


@story("L3", source="lindorm", key=["id"])
def lindorm_sends_the_whole_old_row(log: LindormLog) -> Rows:
    log.create(id="a", v=1)
    log.update({"id": "a", "v": 1}, id="b", v=2)
    log.create(id="c", v=3)
    log.delete(id="c", v=3, _key=None)
    return [{"id": "b", "v": 2}]


@story("L4", days=2, source="lindorm", key=["id"])
def a_dropped_column_of_lindorm_is_null(log: LindormLog) -> Rows:
    log.create(id="a", v=1, w=2)
    log.next_day()
    log.update({"id": "a", "v": 1, "w": 2}, id="a", v=1)
    return [{"id": "a", "v": 1, "w": None}]


@story("O9", source="lindorm", key=["id"])
def the_offset_decides_within_a_millisecond(log: LindormLog) -> Rows:
    log.create(id="a", v=1, _source_ts_ms=ev.NOON_MS)
    log.update({"id": "a", "v": 1}, id="a", v=2, _source_ts_ms=ev.NOON_MS)
    log.update({"id": "a", "v": 2}, id="a", v=3, _source_ts_ms=ev.NOON_MS - 1)
    return [{"id": "a", "v": 2}]


# -- DataWorks -----------------------------------------------------------------------------------


@story("W2", source="dataworks")
def dataworks_changes_rows_in_pairs_and_in_one_record(log: DataWorksLog) -> Rows:
    log.insert(id=1, v="a")
    log.update_pair({"id": 1, "v": "a"}, id=1, v="b")
    log.insert(id=2, v="a")
    log.update({"id": 2, "v": "a"}, id=2, v="b")
    log.insert(id=3, v="a")
    log.delete(id=3, v="a")
    return [{"id": 1, "v": "b"}, {"id": 2, "v": "b"}]


@story("W2", source="dataworks")
def dataworks_truncates(log: DataWorksLog) -> Rows:
    log.insert(id=1)
    log.truncate()
    log.insert(id=2)
    return [{"id": 2}]


@story("W3", days=2, source="dataworks")
def a_pair_with_a_changed_key_removes_the_old_row(log: DataWorksLog) -> Rows:
    log.insert(id=1, v="a")
    log.insert(id=3, v="a")
    log.update_pair({"id": 1, "v": "a"}, id=2, v="b")
    sequence = log.next_sequence()
    table, spelling = log.defaults["table"], "UPDATE_BEFORE"
    half = ev.dataworks_change(spelling, {"id": 3, "v": "a"}, table=table, sequence_id=sequence)
    log.landing.put(half)
    log.next_day()
    log.update_after(id=4, v="b", _sequence_id=sequence)
    return [{"id": 2, "v": "b"}, {"id": 4, "v": "b"}]


@story("W3", source="dataworks")
def half_a_pair_changes_nothing(log: DataWorksLog) -> Rows:
    log.insert(id=1, v="a")
    log.update_before(id=1, v="a")
    return [{"id": 1, "v": "a"}]


@story("W4", source="dataworks", log={"primary_key": None})
def the_row_id_is_the_key_where_there_is_no_other(log: DataWorksLog) -> Rows:
    row_id = "#alibaba_rds_row_id#"
    log.insert(**{row_id: 7, "v": "a"}, _key=b"")
    log.update_pair({row_id: 7, "v": "a"}, **{row_id: 7, "v": "b"})
    return [{row_id: 7, "v": "b"}]


COLUMNS = {
    "id": "LONG",
    "yes": "BOOLEAN",
    "ratio": "DOUBLE",
    "at": "DATE",
    "raw": "BYTES",
    "text": "STRING",
}


@story("W5", source="dataworks", log={"columns": COLUMNS})
def dataworks_types_are_columns(log: DataWorksLog) -> Rows:
    at = datetime(2026, 11, 4, 12, 0, 0, 123000, timezone.utc)
    log.insert(id=2**62, yes=True, ratio=Decimal("0.1"), at=at, raw=b"\x00\x01", text="é")
    return [{"id": 2**62, "yes": True, "ratio": 0.1, "at": at, "raw": b"\x00\x01", "text": "é"}]


@story("W5", source="dataworks")
def a_type_that_is_not_known_says_nothing_of_its_column(log: DataWorksLog) -> Rows:
    for number in range(1, 6):
        log.insert(id=number, v="a")
    log.update({"id": 1, "v": "a"}, id=1, v="b", _columns={"id": 7, "v": "STRING"})
    log.update({"id": 2, "v": "a"}, id=2, v="b", _columns={"id": "INT128", "v": "X"})
    return [{"id": n, "v": "b" if n < 3 else "a"} for n in range(1, 6)]


@story("R3", source="dataworks")
def a_quarantined_record_types_no_column(log: DataWorksLog) -> Rows:
    log.insert(id=1, v="a")
    log.insert(id="no number", v="a", more=1, _columns={"id": "LONG", "v": "LONG", "more": "LONG"})
    return [{"id": 1, "v": "a"}]


@story("O10", source="dataworks")
def sequence_numbers_are_integers_of_any_length(log: DataWorksLog) -> Rows:
    log.insert(id=1, v="last", _sequence_id="1620457642589000002")
    log.update({"id": 1, "v": "x"}, id=1, v="same as a double", _sequence_id="1620457642589000001")
    log.insert(id=2, v="last", _sequence_id="10000000000000000000000000000000000000")
    log.update({"id": 2, "v": "x"}, id=2, v="first as text", _sequence_id="9223372036854775808")
    return [{"id": 1, "v": "last"}, {"id": 2, "v": "last"}]


# -- single records: destinations, reasons -------------------------------------------------------

BARE = {"table": ("public", "records"), "topic": "rules.records"}
OP = b'{"op":"c","source":{"schema":"public","table":"records"},'


def _raw(value: bytes, key: bytes | None = b'{"id":1}') -> Record:
    return ev.raw(value, topic="rules.records", key=key)


RECORDS: dict[str, tuple[Record, str, str]] = {
    "D13-a_message_is_control": (ev.message(topic="rules.records"), "control", "message"),
    "D13-a_message_without_content_is_control": (
        ev.change("m", **{**BARE, "table": ("", "")}),
        "control",
        "message",
    ),
    "D16-a_heartbeat_is_control": (ev.heartbeat(topic="rules.records"), "control", "heartbeat"),
    "D16-a_transaction_mark_is_control": (
        ev.transaction_mark("END", topic="rules.records"),
        "control",
        "transaction",
    ),
    "D16-a_mark_may_have_a_member_called_payload": (
        _raw(b'{"status":"BEGIN","id":"571","event_count":null,"payload":true}'),
        "control",
        "transaction",
    ),
    "D16-a_schema_change_is_control": (
        ev.schema_change("ALTER TABLE x", topic="rules.records"),
        "control",
        "ddl",
    ),
    "D3-op_is_mandatory": (
        _raw(b'{"op":null,"source":{"schema":"public","table":"records"},"after":{"id":1}}'),
        "quarantine",
        "missing_op",
    ),
    "D3-an_op_is_one_of_six": (ev.change("x", None, {"id": 1}, **BARE), "quarantine", "unknown_op"),
    "D3-an_op_is_case_sensitive": (
        ev.change("C", None, {"id": 1}, **BARE),
        "quarantine",
        "unknown_op",
    ),
    "D3-a_create_has_an_after": (
        ev.change("c", **BARE, key={"id": 1}),
        "quarantine",
        "missing_image",
    ),
    "D4-a_source_names_its_table": (
        ev.created({"id": 1}, **{**BARE, "table": ("public", "")}),
        "quarantine",
        "missing_table",
    ),
    "D5-a_delete_without_key": (
        ev.deleted({"id": 1}, **BARE, key=None),
        "quarantine",
        "missing_key",
    ),
    "D6-a_key_that_is_null": (
        ev.created({"id": None}, **BARE, key={"id": None}),
        "quarantine",
        "malformed_key",
    ),
    "D6-a_key_that_is_garbage": (
        ev.deleted(None, **BARE, key=b"{"),
        "quarantine",
        "malformed_key",
    ),
    "D17-registry": (_raw(b"\x00\x00\x00\x00\x07abc"), "quarantine", "registry_encoded"),
    "D19-a_missing_comma": (_raw(OP + b'"after":{"id":1} "x":1}'), "quarantine", "malformed_json"),
    "D19-a_trailing_comma": (_raw(OP + b'"after":{"id":1},}'), "quarantine", "malformed_json"),
    "D19-trailing_text": (_raw(OP + b'"after":{"id":1}} x'), "quarantine", "malformed_json"),
    "D19-two_documents": (_raw(OP + b'"after":{"id":1}}{}'), "quarantine", "malformed_json"),
    "D19-single_quotes": (_raw(b"{'op':'c'}"), "quarantine", "malformed_json"),
    "D19-a_name_twice": (_raw(OP + b'"op":"u","after":{"id":1}}'), "quarantine", "malformed_json"),
    "D19-a_name_twice_in_a_row": (
        _raw(OP + b'"after":{"id":1,"id":2}}'),
        "quarantine",
        "malformed_json",
    ),
    "D19-no_utf8": (_raw(OP + b'"after":{"id":1,"v":"\xff"}}'), "quarantine", "malformed_json"),
    "D19-a_byte_order_mark": (_raw(b"\xef\xbb\xbf{}"), "quarantine", "malformed_json"),
    "D19-nan": (_raw(OP + b'"after":{"id":1,"v":NaN}}'), "quarantine", "malformed_json"),
    "D19-a_leading_zero": (_raw(OP + b'"after":{"id":01}}'), "quarantine", "malformed_json"),
    "D19-a_comment": (_raw(b"/* */" + OP + b'"after":{"id":1}}'), "quarantine", "malformed_json"),
    "D19-a_control_character": (
        _raw(OP + b'"after":{"id":1,"v":"a\tb"}}'),
        "quarantine",
        "malformed_json",
    ),
    "D18-a_flattened_record": (_raw(b'{"id":1,"__op":"c"}'), "quarantine", "not_an_envelope"),
    "D18-a_number": (_raw(b"5"), "quarantine", "not_an_envelope"),
    "D18-an_empty_object": (_raw(b"{}"), "quarantine", "not_an_envelope"),
    "D7-no_key_anywhere": (ev.created({"v": 1}, **BARE, key=None), "quarantine", "missing_key"),
    "D4-a_table_that_is_configured": (ev.created({"id": 5}, **BARE), "changes", "c"),
    "D5-a_table_that_is_not_configured": (
        ev.created({"v": 1}, table=("public", "unknown"), topic="rules.records", key=None),
        "changes",
        "c",
    ),
    "malformed_landing_line": (
        ev.malformed_line("{no record"),
        "quarantine",
        "malformed_landing_line",
    ),
    "D11-a_lone_tombstone_on_a_topic_of_several_tables": (
        ev.tombstone({"id": 99}, topic="rules.records"),
        "quarantine",
        "missing_table",
    ),
}


def _dataworks(op: Any, *images: Any, **options: Any) -> Record:
    return ev.dataworks_change(op, *images, table=("shop", "records"), **options)


DATAWORKS_RECORDS: dict[str, tuple[Record, str, str]] = {
    **{
        f"W2-{op.lower()}_is_control": (_dataworks(op), "control", kind)
        for op, kind in {
            "TRANSACTION_BEGIN": "transaction",
            "TRANSACTION_END": "transaction",
            "CREATE": "ddl",
            "ALTER": "ddl",
            "ERASE": "ddl",
            "QUERY": "ddl",
            "CINDEX": "ddl",
            "DINDEX": "ddl",
            "GTID": "other",
            "XACOMMIT": "other",
            "XAROLLBACK": "other",
        }.items()
    },
    "W7-a_ddl": (
        ev.dataworks_ddl("RENAME TABLE a TO b", "RENAME", table=("shop", "records")),
        "control",
        "ddl",
    ),
    "W2-an_op_is_case_sensitive": (
        _dataworks("insert", None, {"id": 1}),
        "quarantine",
        "unknown_op",
    ),
    "W2-the_list_of_ops_is_open": (
        _dataworks("MERGE", None, {"id": 1}),
        "quarantine",
        "unknown_op",
    ),
    "W2-an_insert_has_an_after": (_dataworks("INSERT"), "quarantine", "missing_image"),
    "W2-a_first_half_has_a_before": (_dataworks("UPDATE_BEFOR"), "quarantine", "missing_image"),
    "W1-a_table_has_a_name": (
        ev.dataworks_change("INSERT", None, {"id": 1}, table=("shop", "")),
        "quarantine",
        "missing_table",
    ),
    "W6-a_heartbeat_has_null_members": (ev.dataworks_heartbeat(), "control", "heartbeat"),
    "W1-a_schema_name_belongs_to_the_namespace": (
        _dataworks("INSERT", None, {"id": 1}, schema_name="eu"),
        "changes",
        "c",
    ),
    "W4-no_key_at_all": (
        _dataworks("INSERT", None, {"v": 1}, primary_key=None),
        "quarantine",
        "missing_key",
    ),
    "D5-a_key_that_becomes_null_is_no_key": (
        _dataworks("UPDATE_AFTER", {"id": 1}, {"id": None}, columns={"id": "LONG"}),
        "quarantine",
        "malformed_key",
    ),
    "W1-a_payload_of_other_members": (
        ev.raw(
            b'{"schema":{"source":{"dbName":"shop","tableName":"records"}},"payload":{"":{}}}',
            topic="dataworks",
        ),
        "quarantine",
        "missing_op",
    ),
    "D6-a_delete_without_message_key": (
        _dataworks("DELETE", {"id": 8}, key=b""),
        "changes",
        "d",
    ),
    # Two empty keys are not one key, and the topic has several tables.
    "D11-a_tombstone_without_key": (
        ev.raw(b"null", topic="dataworks", key=b""),
        "quarantine",
        "missing_table",
    ),
}


def _flat(row: dict[str, Any], key: bytes | None = b'{"id":1}') -> Record:
    return ev.raw(ev.to_json(row).encode(), topic="flat.records", key=key)


FLAT_META = {"__op": "c", "__schema": "public", "__table": "records", "__lsn": 7}
FLAT_RECORDS: dict[str, tuple[Record, str, str]] = {
    "D18-a_flattened_row": (_flat({"id": 1, "op": "x", **FLAT_META}), "changes", "c"),
    "D18-an_envelope_in_a_flat_source": (
        ev.created({"id": 1}, topic="flat.records"),
        "quarantine",
        "not_an_envelope",
    ),
    "D18-a_row_without_marks": (_flat({"id": 1, "v": "a"}), "quarantine", "not_an_envelope"),
    "D18-an_unknown_op": (_flat({"id": 1, **FLAT_META, "__op": "x"}), "quarantine", "unknown_op"),
    "D18-a_row_is_no_message": (
        _flat({"id": 1, **FLAT_META, "__op": "m"}),
        "quarantine",
        "unknown_op",
    ),
    "D18-a_row_whose_op_is_null": (
        _flat({"id": 1, **FLAT_META, "__op": None}),
        "quarantine",
        "missing_op",
    ),
    "D18-no_table": (_flat({"id": 1, "__op": "c"}), "quarantine", "missing_table"),
    "D18-no_key": (_flat({"v": 1, **FLAT_META}, key=None), "quarantine", "missing_key"),
    "D18-a_heartbeat_is_left_as_it_was": (
        ev.heartbeat(topic="flat.records"),
        "control",
        "heartbeat",
    ),
    "D18-a_message_is_left_as_it_was": (ev.message(topic="flat.records"), "control", "message"),
    "D18-a_truncate": (_flat({**FLAT_META, "__op": "t"}, key=None), "changes", "t"),
}

# -- the lake of all stories ---------------------------------------------------------------------


@dataclass
class Told:
    """The lake after all stories, and what each of them landed."""

    lake: Lake
    sources: dict[str, dict[str, Any]]
    landed: dict[str, model.Landed]
    reports: lakes.Reports
    errors: dict[tuple[str, date], Exception]
    classified: dict[str, dict[date, list[model.Classified]]]


def _add(landing: Landing, records: dict[str, tuple[Record, str, str]]) -> None:
    landing.on(DAYS[-1])
    for record, _, _ in records.values():
        if record.malformed_line:
            landing.add(record)
        else:
            landing.put(record)


R6_TABLE = "public.a_key_of_another_type"
R3_TABLE = "public.an_inferred_type_that_does_not_last"


def _add_errors(landing: Landing) -> None:
    """Two tables whose second day must fail."""
    log = PgLog("rules", "public", "a_key_of_another_type", landing=landing)
    landing.on(DAYS[-2])
    log.create(id=1, _types={"id": "int32"})
    inferred = PgLog("rules", "public", "an_inferred_type_that_does_not_last", landing=landing)
    inferred.create(id=1, n=1)
    landing.on(DAYS[-1])
    log.create(id="one", _types={"id": "string"})
    inferred.create(id=2, n="many")


@pytest.fixture(scope="module")
def told(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder: Path = tmp_path_factory.mktemp("rules")
    landings = {source: Landing(DAYS[0]) for source in LOGS}
    tables: dict[str, dict[str, Any]] = {source: {} for source in LOGS}
    for item in STORIES.values():
        landing = landings[item.source]
        landing.on(item.start)
        item.expected = item.tell(LOGS[item.source](item.name, landing, **item.log))
        tables[item.source][item.table] = {**item.config, "start_date": item.start}
    _add_errors(landings["debezium"])
    for table in (R6_TABLE, R3_TABLE):
        tables["debezium"][table] = {"key": ["id"], "start_date": DAYS[-2]}
    _add(landings["debezium"], RECORDS)
    _add(landings["dataworks"], DATAWORKS_RECORDS)
    _add(landings["flat"], FLAT_RECORDS)
    sources, options = {}, {"keep": {"missing_columns": "keep"}}
    for source, landing in landings.items():
        landed = {day: landing.landed.get(day, []) for day in DAYS}
        format = FORMATS.get(source, source)
        own = {**options.get(source, {}), "tables": tables[source]}
        sources[f"rules_{source}"] = lakes.write_source(folder / source, landed, format, **own)
    for config, table, own in (
        ("debezium", "public.records", {"key": ["id"]}),
        ("dataworks", "shop.records", {}),
        ("flat", "public.records", {"key": ["id"]}),
    ):
        sources[f"rules_{config}"]["tables"][table] = own
    lake = lake_of(sources, DAYS[0])
    reports: lakes.Reports = {}
    errors: dict[tuple[str, date], Exception] = {}
    for source in sources:
        lakes.run_stages(lake, source, DAYS, lag=True)
        names = [t for t in sources[source]["tables"] if not t.endswith(".records")]
        made, failed = lakes.run_tables(lake, source, DAYS, names)
        reports.update(made)
        errors.update(failed)
    landed = {f"rules_{source}": landing.landed for source, landing in landings.items()}
    classified = {s: model.classify(config, landed[s]) for s, config in sources.items()}
    return Told(lake, sources, landed, reports, errors, classified)


def _by_model(told: Told, source: str, table: str) -> dict[date, dict[str, Rows]]:
    config = told.sources[source]
    alone = {**config, "tables": {table: config["tables"][table]}}
    return model.tables(alone, told.landed[source])


@pytest.mark.parametrize("name", STORIES)
def test_a_story_ends_as_its_rule_says(told: Told, name: str) -> None:
    item = STORIES[name]
    source = f"rules_{item.source}"
    failed = [error for (table, _), error in told.errors.items() if table == item.table]
    assert failed == []
    got = lakes.rows_of(told.lake, source, item.table, DAYS[-1])
    lakes.assert_same_rows(got, item.expected, "against the hand-written rows")


@pytest.mark.parametrize("name", STORIES)
def test_every_day_of_a_story_is_what_the_model_says(told: Told, name: str) -> None:
    item = STORIES[name]
    source = f"rules_{item.source}"
    expected = _by_model(told, source, item.table)
    for day in DAYS[-item.days :]:
        got = lakes.rows_of(told.lake, source, item.table, day)
        lakes.assert_same_rows(got, expected[day][item.table], str(day))


@pytest.mark.parametrize("name", [*RECORDS, *DATAWORKS_RECORDS, *FLAT_RECORDS])
def test_a_record_reaches_its_destination(told: Told, name: str) -> None:
    kinds = {"debezium": RECORDS, "dataworks": DATAWORKS_RECORDS, "flat": FLAT_RECORDS}
    kind = next(kind for kind, records in kinds.items() if name in records)
    source = f"rules_{kind}"
    record, destination, what = kinds[kind][name]
    own = [
        found
        for found in told.classified[source][DAYS[-1]]
        if (found.record.value, found.record.key) == (record.value, record.key)
        and found.record.topic == record.topic
    ][-1]
    column = "reason" if destination == "quarantine" else "op"
    place = ("topic", "partition", "offset")
    rows = [
        row
        for row in lakes.stage_rows(told.lake, source, destination, [DAYS[-1]])
        if all(row[part] == getattr(own.record, part) for part in place)
    ]
    assert [row[column] for row in rows] == [what]


@pytest.mark.parametrize("source", LOGS)
def test_all_records_of_the_stories_are_read_as_the_model_reads_them(
    told: Told, source: str
) -> None:
    name = f"rules_{source}"
    classified = told.classified[name]
    got = lakes.destinations_read(told.lake, name)
    lakes.assert_same_rows(got, lakes.destinations_expected(classified), "destinations")
    got = lakes.changes_read(told.lake, name)
    lakes.assert_same_rows(got, lakes.changes_expected(classified), "changes")
    got = lakes.lag_read(told.lake, name)
    expected = model.lag(told.sources[name], told.landed[name])
    lakes.assert_same_rows(got, lakes.lag_expected(expected), "lag")


# -- reports and errors --------------------------------------------------------------------------


def _report(told: Told, name: str) -> Any:
    return told.reports[f"public.{name}", DAYS[-1]]


def test_values_that_do_not_fit_are_counted_with_an_example(told: Told) -> None:  # R4
    unfit = _report(told, "a_value_that_its_column_cannot_hold_is_null").unfit
    counts = {column: found["count"] for column, found in unfit.items()}
    assert counts == {"day": 1, "zoned": 2, "price": 1, "count": 2}
    assert unfit["day"]["example"] == "2147483647"
    changes = lakes.stage_rows(told.lake, "rules_debezium", "changes", [DAYS[-1]])
    own = [row for row in changes if row["table_name"].endswith("cannot_hold_is_null")]
    assert any('"zoned":"infinity"' in row["after"] for row in own)  # the text stays


def test_unsent_values_that_nothing_fills_are_counted(told: Told) -> None:  # R2
    assert _report(told, "an_unsent_value_is_not_filled_from_what_is_older_or_gone").unresolved == 2
    assert _report(told, "an_unsent_value_is_that_of_the_old_key").unresolved == 0
    assert _report(told, "an_unsent_value_keeps_its_last_one_over_days").unresolved == 0


def test_a_type_that_changed_is_reported_with_both_and_the_rows(told: Told) -> None:  # R5
    report = _report(told, "columns_are_added_and_widened_or_become_text")
    said = "n: bigint → string from this day on, 2 rows written once more"
    assert report.incompatible == [said]
    assert report.unfit == {}


def test_a_key_of_another_type_is_an_error_that_names_it(told: Told) -> None:  # R6
    error = told.errors[R6_TABLE, DAYS[-1]]
    assert isinstance(error, SchemaDriftError)
    for part in (R6_TABLE, "'id'", "int", "string", str(DAYS[-1])):
        assert part in str(error)
    assert str(DAYS[-1]) not in lakes.refs_of(told.lake, "rules_debezium", R6_TABLE)


def test_a_value_beyond_an_inferred_type_fails_with_the_line_to_add(told: Told) -> None:  # R3
    error = told.errors[R3_TABLE, DAYS[-1]]
    assert isinstance(error, AuditError)
    assert f"sources.rules_debezium.tables.{R3_TABLE}.columns" in str(error)
    assert '{"n": string}' in str(error)
    refs = lakes.refs_of(told.lake, "rules_debezium", R3_TABLE)
    assert refs["main"] == refs[str(DAYS[-2])]
    assert not [name for name in refs if name.startswith("ld_")]


def test_positions_have_one_shape_a_connector_and_no_null(told: Told) -> None:  # O4
    for source, length in (("debezium", 4), ("lindorm", 4), ("dataworks", 7)):
        changes = lakes.stage_rows(told.lake, f"rules_{source}", "changes")
        lengths = {len(row["position"]) for row in changes if row["position"] is not None}
        assert lengths == {length}, source


def test_lag_is_measured_in_three_kinds(told: Told) -> None:  # G1
    rows = _lag(told, "the_table_is_named_by_source_alone")
    found = {row["kind"]: (row["count"], row["min_ms"], row["max_ms"]) for row in rows}
    assert found == {
        "capture": (1, 200, 200),
        "delivery": (1, 300, 300),
        "end_to_end": (1, 500, 500),
    }


def test_a_message_is_no_lag(told: Told) -> None:  # G4
    messages = [
        row
        for row in lakes.stage_rows(told.lake, "rules_debezium", "control")
        if row["op"] == "message"
    ]
    assert messages
    assert any(row["source_ts_ms"] is not None for row in messages)
    tables = {row["table_name"] for row in lakes.stage_rows(told.lake, "rules_debezium", "lag")}
    changed = {
        row["table_name"] for row in lakes.stage_rows(told.lake, "rules_debezium", "changes")
    }
    assert tables == changed


def test_lag_leaves_out_snapshot_reads_tombstones_and_missing_times(told: Told) -> None:  # G2
    rows = _lag(told, "every_mark_but_false_is_a_snapshot_read")
    assert [(row["count"], row["excluded"]) for row in rows] == [(1, 4)] * 3
    rows = _lag(told, "a_lone_tombstone_deletes_its_row")
    assert [(row["count"], row["excluded"]) for row in rows] == [(5, 4)] * 3
    rows = _lag(told, "images_and_times_that_are_optional_may_be_absent")
    found = {row["kind"]: (row["count"], row["excluded"]) for row in rows}
    assert found == {"capture": (0, 2), "delivery": (1, 1), "end_to_end": (1, 1)}


def test_negative_lag_is_kept_and_counted_apart(told: Told) -> None:  # G3
    capture = _lag(told, "the_time_of_the_connector_orders_nothing")[0]
    assert capture["kind"] == "capture"
    assert capture["negative"] == 1
    assert capture["min_ms"] < 0 < capture["max_ms"]


def test_half_a_pair_counts_in_no_lag_and_no_op(told: Told) -> None:  # W2
    rows = _lag(told, "half_a_pair_changes_nothing", "rules_dataworks", "shop")
    assert [row["count"] for row in rows] == [1, 1, 1]
    assert told.reports["shop.half_a_pair_changes_nothing", DAYS[-1]].ops == {"c": 1}


def test_ddl_text_is_kept_and_its_meta_is_not(told: Told) -> None:  # W7
    control = lakes.stage_rows(told.lake, "rules_dataworks", "control", [DAYS[-1]])
    texts = {row["payload"] for row in control if row["source_op"] == "RENAME"}
    assert texts == {"RENAME TABLE a TO b"}


def _lag(
    told: Told, name: str, source: str = "rules_debezium", namespace: str = "public"
) -> list[dict[str, Any]]:
    """The rows of the last whole day, by kind."""
    rows = [
        row
        for row in lakes.stage_rows(told.lake, source, "lag", [DAYS[-1]])
        if row["table_name"] == f"{namespace}.{name}" and row["hour"] is None
    ]
    return sorted(rows, key=lambda row: str(row["kind"]))
