"""`cdc-assets inspect`: destinations and reasons in words; the closed list of reasons."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeGuard

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.changes.reasons import REASONS
from cdc_assets.cdc.discovery import inspection
from cdc_assets.cdc.discovery.rules import Rules
from cdc_assets.cdc.landing.files import read_file
from cdc_assets_tests import events as ev
from cdc_assets_tests.events import DataWorksLog, Landing, PgLog
from cdc_assets_tests.lakes import config_of, source_config
from cdc_assets_tests.paths import REPOSITORY

Rows = list[dict[str, Any]]


def rules_of(folder: Path, format: str = "debezium", **settings: Any) -> Rules:
    """`public__customers` is a table, a name without `__` a setting of the source."""
    tables = {n.replace("__", "."): table for n, table in settings.items() if "__" in n}
    others = {n: value for n, value in settings.items() if "__" not in n}
    source = source_config(folder, format, tables=tables, **others)
    config = config_of({"inventory": source}, folder / "warehouse")
    return Rules("inventory", config.sources["inventory"], config)


def inspected(
    spark: SparkSession, folder: Path, landing: Landing, rules: Rules, **options: Any
) -> Rows:
    ev.write_landing(folder, {landing.day: landing.landed[landing.day]})
    file = folder / str(landing.day) / "part-0.jsonl"
    return inspection.inspect_file(spark, file, rules, **options)


def words(rows: Rows) -> list[tuple[str, str]]:
    return [(row["destination"], row["explanation"]) for row in rows]


# -- explanations


def test_each_record_is_explained_in_words(spark: SparkSession, tmp_path: Path) -> None:
    log = PgLog()
    log.create(id=1, name="a")
    log.update(id=1, name="b")
    log.delete(id=1, _tombstone=True)
    log.change_key({"id": 2}, id=3, name="c")
    log.read(id=4)
    log.truncate()
    log.heartbeat()
    log.transaction_mark("END")
    log.message("audit")
    log.schema_change("ALTER TABLE customers ADD COLUMN\n note text")
    other = PgLog(table="orders", landing=log.landing)
    other.create(id=7)
    rows = inspected(spark, tmp_path, log.landing, rules_of(tmp_path, public__customers={}))
    customers = "of inventory.public.customers"
    assert words(rows) == [
        ("changes", f'an insert of row {{"id":1}} {customers}: goes to changes'),
        ("changes", f'an update of row {{"id":1}} {customers}: goes to changes'),
        ("changes", f'a delete of row {{"id":1}} {customers}: goes to changes'),
        (
            "control",
            "value is null: a tombstone; follows its own delete at offset 2, so nothing changes",
        ),
        (
            "changes",
            f'a delete of row {{"id":2}} {customers}, whose key changes to {{"id":3}}: '
            "goes to changes",
        ),
        (
            "control",
            "value is null: a tombstone; follows its own delete at offset 4, so nothing changes",
        ),
        (
            "changes",
            f'an insert of row {{"id":3}} {customers}, whose key was {{"id":2}} before: '
            "goes to changes",
        ),
        (
            "changes",
            f'a snapshot read of row {{"id":4}} {customers}: not a change, so it has no position '
            "and no lag: goes to changes",
        ),
        (
            "changes",
            "a truncate: empties inventory.public.customers of what is older than it: "
            "goes to changes",
        ),
        ("control", "a heartbeat: understood, changes no row"),
        ("control", "a transaction mark (END 700:1000): understood, changes no row"),
        ("control", "a logical message: understood, changes no row"),
        (
            "control",
            "a schema change or statement (ALTER TABLE customers ADD COLUMN note text): "
            "understood, changes no row",
        ),
        (
            "changes",
            'an insert of row {"id":7} of inventory.public.orders: goes to changes. '
            "sources.inventory.tables in cdc.yaml does not list public.orders, so it stays there",
        ),
    ]


def test_a_contradicted_type_and_the_unit_of_times_are_said_once_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = PgLog(types={"id": "int32", "raw": "bytes"})
    for number in (1, 2):
        log.create(id=number, raw="AA==")
    bare = PgLog(table="times", landing=log.landing)
    bare.create(id=1, at=1_793_527_242_000, us=1_793_527_242_000_000)
    times = {"at": "timestamp_ntz", "us": "timestamp(us)"}
    tables = {"public__customers": {"columns": {"raw": "string"}}}
    rules = rules_of(tmp_path, **tables, public__times={"columns": times})
    first, second, of_times = words(inspected(spark, tmp_path, log.landing, rules))
    assert first[1].endswith(
        ": goes to changes. sources.inventory.tables.public.customers.columns: raw is string, but "
        "messages have binary, which can't become that. Leave the entry out, or write one of binary"
    )
    assert second[1].endswith(": goes to changes")
    assert of_times[1].endswith(
        ": goes to changes. Numbers in at are read as milliseconds since 1970; "
        "`timestamp_ntz(us)` (s, ms, us, ns) in `columns` says another unit"
    )


def test_a_lone_tombstone_says_what_the_file_can_tell(spark: SparkSession, tmp_path: Path) -> None:
    log = PgLog()
    log.create(id=1)
    # D11
    log.tombstone(id=1, _value=b"null")  # its delete never landed: an earlier record tells
    log.tombstone(id=2, _value=b"")
    log.tombstone(id=3, _topic="inventory.unknown")
    rows = inspected(spark, tmp_path, log.landing, rules_of(tmp_path, public__customers={}))
    lone = "a lone tombstone: deletes row"
    assert words(rows[1:]) == [
        (
            "changes",
            f'value is the text `null`: {lone} {{"id":1}} of inventory.public.customers, '
            "goes to changes",
        ),
        (
            "changes",
            f'value is empty: {lone} {{"id":2}} of inventory.public.customers, goes to changes. '
            "This file has no earlier record of its key: if one that landed before, up to the day "
            "before, is the row's delete, it changes nothing",
        ),
        (
            "quarantine",
            "value is null: a lone tombstone, and this file shows not exactly one table on its "
            "topic. Earlier days may have shown it, else it is quarantined. "
            f"Next: {REASONS['missing_table'].remedy}",
        ),
    ]
    assert [row["op"] for row in rows[1:]] == ["d", "d", None]


def test_the_halves_of_a_split_update_are_named(spark: SparkSession, tmp_path: Path) -> None:
    log = DataWorksLog()
    log.update_pair({"id": 1, "name": "a"}, id=1, name="b")  # W3
    log.update({"id": 1, "name": "b"}, id=2, name="b")
    log.ddl("GRANT ALL", "QUERY")
    rows = inspected(spark, tmp_path, log.landing, rules_of(tmp_path, "dataworks"))
    where = 'of row {"id":1} of inventory.shop.customers'
    said = [row["explanation"].partition(": goes")[0] for row in rows]
    assert said == [
        f"the first half of an update {where}, as it was: waits for its UPDATE_AFTER "
        "(same sequenceId)",
        f"the second half of an update {where}, as it is now",
        'an update of row {"id":2} of inventory.shop.customers, whose key was {"id":1} before',
        "a schema change or statement (GRANT ALL): understood, changes no row",
    ]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_file_outside_a_days_folder_has_the_days_of_its_timestamps_else_today(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    rules = rules_of(tmp_path, public__customers={})
    config = rules.config.model_copy(update={"timezone": "Asia/Shanghai"})
    rules = replace(rules, config=config)
    event = {"op": "c", "after": {"id": 1}, "source": {"schema": "public", "table": "customers"}}
    value = json.dumps(event)
    stamps = [datetime(2026, 11, 4, 15, 59), datetime(2026, 11, 4, 16, 1), None]
    place = {"topic": "t", "partition": 0}
    file = tmp_path / f"dump.{kind}"
    if kind == "jsonl":
        lines = [
            {**place, "offset": n, "value": value} | ({"timestamp": f"{at}Z"} if at else {})
            for n, at in enumerate(stamps)
        ]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    else:
        columns = {"topic": ["t"] * 3, "partition": [0] * 3, "offset": [0, 1, 2]}
        columns |= {"timestamp": pa.array(stamps, pa.timestamp("us", "UTC"))}
        columns |= {"key": pa.nulls(3, pa.binary()), "value": [value.encode()] * 3}
        pq.write_table(pa.table(columns), file)
    landing = read_file(spark, file, rules.source, config).orderBy("offset")
    days = [row.landing_date for row in landing.select("landing_date").collect()]
    assert days == [date(2026, 11, 4), date(2026, 11, 5), config.today()]
    rows = inspection.inspect_file(spark, file, rules)
    assert [row["destination"] for row in rows] == ["quarantine"] * 3  # without key
    assert {row["reason"] for row in rows} == {"missing_key"}


def test_one_offset_is_shown_with_its_row_images(spark: SparkSession, tmp_path: Path) -> None:
    log = PgLog()
    log.create(id=1, name="a")
    log.update(id=1, name="b", _before={"id": 1, "name": "a"})
    rules = rules_of(tmp_path, public__customers={})
    (row,) = inspected(spark, tmp_path, log.landing, rules, offset=1)
    assert set(row) == {*inspection.COLUMNS, *inspection.DETAILS}
    assert (row["offset"], row["before"]) == (1, '{"id":1,"name":"a"}')
    assert row["after"] == '{"id":1,"name":"b"}'
    assert inspected(spark, tmp_path, log.landing, rules, offset=9) == []


def test_keys_are_shown_as_the_stage_changes_writes_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    # The key's text becomes the number that the row's schema says (D5).
    log = PgLog(types={"id": "int32", "name": "string"})
    log.create(id=1, name="a", _key=b'{"id":"1"}')
    log.delete(id=1, _before=None, _key=b'{"id":"x"}')
    rows = inspected(spark, tmp_path, log.landing, rules_of(tmp_path, public__customers={}))
    assert (rows[0]["key"], rows[0]["reason"]) == ('{"id":1}', None)
    assert (rows[1]["destination"], rows[1]["reason"]) == ("quarantine", "malformed_key")


# -- reasons


ENVELOPE = {"op": "c", "after": {"id": 1}, "ts_ms": 1}
MARKS = {"id": 1, "__op": "c", "__lsn": 7}
# format → value, reason, what `detail` says
DETAILS: dict[str, list[tuple[dict[str, Any], str, str]]] = {
    "debezium": [
        (MARKS, "not_an_envelope", "an event of the format debezium-flat: set `format: debe"),
        ({"id": 1}, "not_an_envelope", "JSON that is not a change event"),
        ({**ENVELOPE, "source": {"table": "t"}}, "missing_table", "source lacks schema (or db)"),
        ({**ENVELOPE, "source": {"db": "d"}}, "missing_table", "source lacks table"),
        (ENVELOPE, "missing_table", "source lacks schema (or db) and table"),
        (
            {**ENVELOPE, "source": {"connector": "mongodb", "db": "d", "collection": "t"}},
            "missing_table",
            "events of the connector mongodb are not read",
        ),
        (
            {**ENVELOPE, "op": "i", "source": {"connector": "cassandra", "keyspace": "k"}},
            "unknown_op",
            "events of the connector cassandra are not read",
        ),
        ({**ENVELOPE, "op": "i", "source": {}}, "unknown_op", 'op "i"'),
        ({"before": {"id": 1}}, "missing_op", "an envelope without op"),
    ],
    "debezium-flat": [
        (
            ENVELOPE | {"source": {"db": "d", "table": "t"}},
            "not_an_envelope",
            "an event of the format debezium: set `format: debezium`",
        ),
        ({"id": 1}, "not_an_envelope", "the record lacks __op and __deleted: set add.fields="),
        (MARKS, "missing_table", "the record lacks __schema (or __db) and __table: set add.fields"),
        ({**MARKS, "__table": "t"}, "missing_table", "the record lacks __schema (or __db): set"),
        ({**MARKS, "__db": "d"}, "missing_table", "the record lacks __table: set add.fields"),
        (
            {**MARKS, "__db": "d", "__collection": "t"},
            "missing_table",
            "events of the connector mongodb are not read",
        ),
        ({**MARKS, "__op": "x"}, "unknown_op", 'op "x"'),
        (
            {"type": "insert", "database": "d", "table": "t", "data": {"id": 1}},
            "not_an_envelope",
            "an event of the format maxwell: set `format: maxwell`",
        ),
    ],
    "lindorm": [(ENVELOPE | {"source": {"table": "t"}}, "missing_table", "source lacks namespace")],
    "maxwell": [
        ({"id": 1}, "not_an_envelope", "JSON that is not a change event of this format"),
        ({"database": "d", "data": {}}, "missing_op", "an event without type"),
        ({"database": "d", "type": "x"}, "unknown_op", 'type "x"'),
        (
            {"database": "d", "type": "insert", "data": {"id": 1}},
            "missing_table",
            "the event names no database and table",
        ),
        (
            {"database": "d", "table": "t", "type": "delete"},
            "missing_image",
            "type delete without data",
        ),
        (
            {"table": "s.t", "op_type": "I", "after": {"id": 1}},
            "not_an_envelope",
            "an event of the format ogg: set `format: ogg`",
        ),
    ],
    "ogg": [
        ({"table": "s.t"}, "not_an_envelope", "JSON that is not a change event of this format"),
        ({"table": "s.t", "pos": "1"}, "missing_op", "an event without op_type"),
        ({"table": "s.t", "op_type": "x"}, "unknown_op", 'op_type "x"'),
        (
            {"table": "t", "op_type": "I", "after": {"id": 1}},
            "missing_table",
            "table is not SCHEMA.TABLE",
        ),
        ({"table": "s.t", "op_type": "U"}, "missing_image", "op_type U without after"),
    ],
}


@pytest.mark.parametrize("format", DETAILS)
def test_the_detail_says_what_is_missing_and_what_adds_it(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    landing = Landing()
    for value, _, _ in DETAILS[format]:
        landing.put(ev.raw(ev.to_json(value).encode(), topic="t"))
    rows = inspected(spark, tmp_path, landing, rules_of(tmp_path, format))
    for row, (value, reason, says) in zip(rows, DETAILS[format], strict=True):
        assert (row["reason"], row["detail"][: len(says)]) == (reason, says), value


def test_a_flattened_column_named_ts_ms_may_be_an_object(
    spark: SparkSession, tmp_path: Path
) -> None:
    landing = Landing()
    row = {**MARKS, "__schema": "public", "__table": "t", "ts_ms": {"long": 1}}
    landing.put(ev.raw(ev.to_json(row).encode(), topic="t"))
    found = inspected(spark, tmp_path, landing, rules_of(tmp_path, "debezium-flat"))
    assert [row["destination"] for row in found] == ["changes"]


def each_bad_record() -> Landing:
    """A record for each reason, in the order of the list; the first is over a limit of 1 MB."""
    log = PgLog()
    landing = log.landing
    landing.put(ev.raw(b'"' + b"x" * (1 << 20) + b'"'))
    landing.add(ev.malformed_line("no record"))
    landing.put(ev.raw(b"\x00\x00\x00\x00\x07..."))
    landing.put(ev.raw(b"{"))
    landing.put(ev.raw(b'{"hello":"world"}'))
    log.create(id=1, _extra={"op": None})
    log.create(id=1, _extra={"op": "x"})
    log.create(id=1, _source={"table": None})
    log.create(id=1, _extra={"after": None})
    log.create(id=None, _key=b"garbage")
    log.create(name="a", _key=None)
    return landing


def test_every_reason_is_met_and_says_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    rules = rules_of(tmp_path, public__customers={"key": ["id"]}, max_record_mb=1)
    rows = inspected(spark, tmp_path, each_bad_record(), rules)
    assert [row["reason"] for row in rows] == list(REASONS)
    for row in rows:
        reason = REASONS[row["reason"]]
        said = f"can't be read: it {reason.record}. Next: {reason.remedy}"
        assert (row["destination"], row["explanation"]) == ("quarantine", said)
        assert row["op"] is None
        assert row["detail"]


def test_the_list_of_reasons_is_closed() -> None:
    """What the package can write and what the model knows is the list, no more and no less."""
    cdc = REPOSITORY / "cdc_assets" / "cdc"
    written = set()
    readers = sorted((cdc / "envelopes").glob("*.py"))
    for file in [cdc / "changes" / "stage.py", cdc / "changes" / "parse.py", *readers]:
        written |= _case_values(ast.parse(file.read_text("utf-8")))
    files = (REPOSITORY / "cdc_assets_tests" / "model").glob("*.py")
    model = "\n".join(file.read_text("utf-8") for file in files)
    known = set(re.findall(r'(?:QuarantinedError\(|"quarantine", )"(\w+)"', model))
    known |= set(re.findall(r'QuarantinedError\("(\w+)" if .* else "\w+"\)', model))
    assert written == set(REASONS)
    assert known <= set(REASONS)
    assert set(REASONS) - known <= {"malformed_key"}, "a reason that the model does not know"


def _case_values(tree: ast.Module) -> set[str]:
    """The texts of two words or more that some branch of an SQL CASE gives out."""
    texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    of_case = [n.elts[1] for n in ast.walk(tree) if isinstance(n, ast.Tuple) and len(n.elts) == 2]
    of_case += [n.value for n in ast.walk(tree) if isinstance(n, ast.keyword)]
    values = {n.value.strip("'") for n in of_case if _is_quoted(n)}
    for text in texts:
        if isinstance(text, str):
            values.update(re.findall(r"THEN '(\w+)'", text))
    return {v for v in values if re.fullmatch(r"[a-z]+(_[a-z]+)+", v)}


def _is_quoted(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and str(node.value).startswith("'")


@pytest.mark.parametrize("code", list(REASONS))
def test_a_reason_fits_its_sentence(code: str) -> None:
    reason = REASONS[code]
    assert reason.record.split()[0] in ("is", "has", "names", "lacks")
    assert "|" not in reason.record + reason.remedy
    assert not reason.remedy.endswith(".")
