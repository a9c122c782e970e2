"""Which row an event is about: key columns of every type, from every place (D5, D6, D7).

A row that was written with its key in an image must be met by a message key alone, however that
one is written. Columns are tried together, as one composite key: each row differs from the first
in one column, so that a row left behind names the column that did not meet.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog

pytestmark = pytest.mark.slow

D1, D2 = DAYS = [ev.DAY, ev.DAY + timedelta(days=1)]
SOURCE = "keys"
ID = {"id": "int32", "v": "string"}

# -- columns of every type -----------------------------------------------------------------------

TYPED: dict[str, tuple[Any, Any, Any]] = {
    # column → (schema, value of the first row, value of its own row)
    "int": ("int32", 1, -2),
    "bigint": ("int64", 2**53 + 1, 2**53 + 2),
    "yes": ("boolean", True, False),
    "text": ("string", "a", ""),
    "raw": ("bytes", bytes(100), b"\xff\x00"),  # Spark's base64 has lines of 57 bytes
    "double": ("double", Decimal("0.5"), Decimal("-1.25")),
    "float": ("float", Decimal("0.5"), Decimal("0.1")),
    "day": ("io.debezium.time.Date", date(2026, 11, 4), date(1, 1, 1)),
    "iso_day": ("io.debezium.time.IsoDate", date(2026, 11, 4), date(1582, 10, 4)),
    "at_ms": ("io.debezium.time.Timestamp", datetime(2026, 11, 4, 12), datetime(1969, 12, 31)),
    "at_us": (
        "io.debezium.time.MicroTimestamp",
        datetime(2026, 11, 4, 12, 0, 0, 1),
        datetime(2026, 11, 4, 12, 0, 0, 2),
    ),
    "at_ns": ("io.debezium.time.NanoTimestamp", datetime(2026, 11, 4), datetime(1969, 12, 31)),
    "zoned": (
        "io.debezium.time.ZonedTimestamp",
        datetime(2026, 11, 4, 12, tzinfo=timezone.utc),
        datetime(2026, 11, 4, 12, 0, 0, 500_000, tzinfo=timezone.utc),
    ),
    "time": ("io.debezium.time.MicroTime", 86_400_000_000, -1),
    "year": ("io.debezium.time.Year", 2026, 1970),
    "price": ((ev.DECIMAL, 2, 10), Decimal("1.50"), Decimal("-99999999.99")),
    "whole": ((ev.DECIMAL, 0, 38), Decimal(10**38 - 1), Decimal(-(10**37))),
    "wide": ((ev.DECIMAL, 2, 60), Decimal(10**50), Decimal(-(10**50)) - 1),
    "variable": (ev.VARIABLE_SCALE_DECIMAL, Decimal("1.5"), Decimal("-1.25")),
    "uuid": (
        "io.debezium.data.Uuid",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12",
    ),
    "enum": ("io.debezium.data.Enum", "small", "large"),
    "bits": ("io.debezium.data.Bits", b"\x03", b""),
}
TYPES = {name: schema for name, (schema, _, _) in TYPED.items()}

# Column → (type in the value's schema, JSON there; type in the key's schema, JSON there), the
# same value: converters of key and value are configured apart.
APART: dict[str, tuple[tuple[Any, Any], tuple[Any, Any]]] = {
    "number": (("int32", 1), ("string", "1")),
    "wider": (("int32", 7), ("int64", 7)),
    "price": (((ev.DECIMAL, 2, 10), Decimal("12.50")), ("string", "12.50")),
    # These digits are base64, too: only the key's schema tells.
    "digits": (((ev.DECIMAL, 0, 10), Decimal(1234)), ("string", "1234")),
    "numeric": (((ev.DECIMAL, 2, 10), Decimal("12.50")), ("double", Decimal("12.5"))),
    "of_text": (("string", "12.5"), ((ev.DECIMAL, 1, 10), Decimal("12.5"))),
    "day": (("io.debezium.time.Date", 19000), ("string", "2022-01-08")),
    "iso": (("io.debezium.time.IsoDate", "2022-01-08"), ("io.debezium.time.Date", 19000)),
    "at": (
        ("io.debezium.time.Timestamp", 1000),
        ("io.debezium.time.MicroTimestamp", 1_000_000),
    ),
    "zoned": (
        ("io.debezium.time.ZonedTimestamp", "2026-11-04T12:00:00Z"),
        ("io.debezium.time.ZonedTimestamp", "2026-11-04T14:00:00.000+02:00"),
    ),
    "yes": (("boolean", True), ("int32", 1)),
}

# Configured types, for messages without schema: the same value in image and message key.
CONFIGURED: dict[str, tuple[str, Any, Any]] = {
    "number": ("bigint", 1, "1"),
    "price": ("decimal(10,2)", "1.50", Decimal("1.5")),
    "other": ("decimal(10,2)", Decimal("2"), "2.00"),
    "day": ("date", "2022-01-08", "2022-01-08T00:00:00Z"),
    "at": ("timestamp", "1970-01-01T00:00:01Z", 1000),
    "local": ("timestamp_ntz", 1000, "1970-01-01 00:00:01"),
    "yes": ("boolean", True, "true"),
    "text": ("string", "1", 1),
    "raw": ("binary", "AP8=", "AP8="),
}

NAMES = ["a.b", "c d", 'e"f', "g'h", "i`j", "k[0]", "l\"m'n", "$", "o\\p", "ключ", "ID", "x:y,z"]
TEXTS = ["'", '"', "\\", "\n\t\r", "\u0001", "a,b=c{}", "null", " ", "𝄞 é ́", "$[0]", "`", "%41/.."]


def _composite(log: PgLog, first: dict[str, Any], own: dict[str, Any], **options: Any) -> None:
    """The first row, and one a column that differs there; the next day deletes these by key."""
    rows = [{**first, name: value} for name, value in own.items()]
    log.create(**first, v="first", **options)
    for row in rows:
        log.create(**row, v="own", **options)
    log.next_day()
    for row in rows:
        log.delete(_before=None, _key=dict(row), **options)


def typed(log: PgLog) -> None:
    log.key = tuple(TYPES)
    first = {name: value for name, (_, value, _) in TYPED.items()}
    rows = [{**first, name: value} for name, (_, _, value) in TYPED.items()]
    log.create(**first, v="first")
    for row in rows:
        log.create(**row, v="own")
    log.next_day()
    log.update(**first, v="again")
    for row in rows:
        schema = ev.struct_schema(TYPES)
        key = {"payload": ev.wire_row(row, TYPES), "schema": schema}
        log.delete(_before=None, _key=ev.to_json(key).encode())


def apart(log: PgLog) -> None:
    """Rows by image, deletes by a message key with another schema."""
    image = {name: value for name, ((_, value), _) in APART.items()}
    key_types = {name: kind for name, (_, (kind, _)) in APART.items()}
    key = ev.wire_row({name: value for name, (_, (_, value)) in APART.items()}, key_types)
    document = {"schema": ev.struct_schema(key_types), "payload": key}
    log.create(**image, v="gone", _key=None)
    log.create(**{**image, "number": 2}, v="stays", _key=None)
    log.next_day()
    log.delete(_before=None, _key=ev.to_json(document).encode())


def buried(log: PgLog) -> None:
    """As `apart`, by a tombstone alone (D11)."""
    log.create(id=1, price=Decimal("12.50"), v="gone")
    log.create(id=1, price=Decimal("12.75"), v="stays")
    log.next_day()
    schema = ev.struct_schema({"id": "string", "price": "string"})
    document = {"schema": schema, "payload": {"id": "1", "price": "12.50"}}
    log.tombstone(_key=ev.to_json(document).encode())


def configured(log: PgLog) -> None:
    image = {name: value for name, (_, value, _) in CONFIGURED.items()}
    key = {name: value for name, (_, _, value) in CONFIGURED.items()}
    log.create(**image, v="gone", _key=None)
    log.create(**{**image, "number": 2}, v="stays", _key=None)
    log.next_day()
    log.delete(_before=None, _key=key)


def named(log: PgLog) -> None:
    first = {name: n for n, name in enumerate(NAMES)}
    _composite(log, first, dict.fromkeys(NAMES, -1))


def named_with_schema(log: PgLog) -> None:
    first = {name: n for n, name in enumerate(NAMES)}
    _composite(log, first, dict.fromkeys(NAMES, -1))


def texts(log: PgLog) -> None:
    for text in [*TEXTS, "stays"]:
        log.create(id=text, v="x")
    log.next_day()
    for text in TEXTS:
        log.delete(_before=None, _key={"id": text})


FORMS: dict[str, bytes] = {
    "struct with schema": b'{"schema":{"type":"struct","fields":[{"type":"int32","field":"id"}]},'
    b'"payload":{"id":%d}}',
    "of the documents": b'{"schema":{"type":"struct","fields":[{"name":"id","index":"0",'
    b'"schema":{"type":"INT32","optional":"false"}}]},"payload":{"id":"%d"}}',
    "payload first": b'{"payload":{"id":%d},"schema":{"type":"struct"}}',
    "schema null": b'{"schema":null,"payload":{"id":%d}}',
    "bare struct": b'{"id":%d}',
    "with more": b' { "more" : [] , "id" : %d } ',
    "text in a struct": b'{"id":"%d"}',
    "scalar": b"%d",
    "scalar text": b'"%d"',
    "scalar with schema": b'{"schema":{"type":"int32"},"payload":%d}',
}
UNREADABLE: dict[str, tuple[bytes | None, str]] = {
    "null": (None, "missing_key"),
    "empty": (b"", "missing_key"),
    "JSON null": (b"null", "missing_key"),
    "empty struct": (b"{}", "missing_key"),
    "null payload": (b'{"schema":null,"payload":null}', "missing_key"),
    "another column": (b'{"other":1}', "missing_key"),
    "garbage": (b"{id:1}", "malformed_key"),
    "no UTF-8": (b"\xff\xfe", "malformed_key"),
    "list": (b"[1]", "malformed_key"),
    "null column": (b'{"id":null}', "malformed_key"),
    "a text for a number": (b'{"id":"one"}', "malformed_key"),
    "a fraction": (b'{"id":1.5}', "malformed_key"),
    "beyond the type": (b'{"id":2147483648}', "malformed_key"),
}


def forms(log: PgLog) -> None:
    """Each form of a message key deletes its row."""
    log.create(id=0, v="stays")
    for number, form in enumerate(FORMS.values(), start=1):
        log.create(id=number, v="x")
        log.delete(_before=None, _key=form % number)


def unreadable(log: PgLog) -> None:
    """An upsert takes its key from the value (D6); a delete can't."""
    for number, (key, _) in enumerate(UNREADABLE.values()):
        log.create(id=number, v="x", _key=key)
        log.delete(_before=None, _key=key)


def unnamed(log: PgLog) -> None:
    """No key is configured: the message key names it, in any order of its columns."""
    log.create(b=1, a=1, v="x", _key={"b": 1, "a": 1})
    log.create(b=2, a=1, v="x", _key={"b": 2, "a": 1})
    log.next_day()
    log.update(b=1, a=1, v="y", _key={"a": 1, "b": 1})
    log.delete(_before=None, _key={"a": 1, "b": 2})


def keyless(log: PgLog) -> None:
    """`key: none` appends (D7)."""
    log.create(id=1, v="x", _key=None)
    log.create(id=1, v="x", _key=b"{")
    log.update(id=1, v="y", _key=None)
    log.delete(id=1, _key=None)


UNTYPED = [Decimal("0.5"), Decimal("1E+309"), Decimal("-1.5E+399"), "1E+2", 10**39]


def untyped(log: PgLog) -> None:
    for number in UNTYPED:
        log.create(id=number, v="x")


TABLES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    # table → (story, configuration, options of its log)
    "typed": (typed, {"key": list(TYPES)}, {"types": {**TYPES, "v": "string"}}),
    "apart": (
        apart,
        {"key": list(APART)},
        {"types": {**{n: kind for n, ((kind, _), _) in APART.items()}, "v": "string"}},
    ),
    "buried": (
        buried,
        {"key": ["id", "price"]},
        {"types": {"id": "int32", "price": (ev.DECIMAL, 2, 10), "v": "string"}},
    ),
    "configured": (
        configured,
        {"key": list(CONFIGURED), "columns": {n: kind for n, (kind, _, _) in CONFIGURED.items()}},
        {},
    ),
    "named": (named, {"key": NAMES}, {"key": tuple(NAMES)}),
    "named_with_schema": (
        named_with_schema,
        {"key": NAMES},
        {"key": tuple(NAMES), "types": {**dict.fromkeys(NAMES, "int32"), "v": "string"}},
    ),
    "texts": (texts, {"key": ["id"]}, {}),
    "forms": (forms, {"key": ["id"]}, {"types": ID}),
    "unreadable": (unreadable, {"key": ["id"]}, {"types": ID}),
    "unnamed": (unnamed, {}, {}),
    "keyless": (keyless, {"key": "none"}, {}),
    "untyped": (untyped, {"key": ["id"]}, {}),
}


@dataclass
class Told:
    """The lake after both days, and what the model makes of the same records."""

    lake: Lake
    errors: dict[tuple[str, date], Exception]
    classified: dict[date, list[model.Classified]]


@pytest.fixture(scope="module")
def told(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Told:
    landing = Landing(D1)
    for name, (tell, _, options) in TABLES.items():
        landing.on(D1)
        tell(PgLog("keys", "public", name, landing=landing, **options))
    landed = {day: landing.landed.get(day, []) for day in DAYS}
    tables = {f"public.{name}": config for name, (_, config, _) in TABLES.items()}
    folder: Path = tmp_path_factory.mktemp("keys")
    source = lakes.write_source(folder, landed, tables=tables)
    lake = lake_of({SOURCE: source})
    lakes.run_stages(lake, SOURCE, DAYS)
    _, errors = lakes.run_tables(lake, SOURCE, DAYS)
    return Told(lake, errors, model.classify(source, landed))


def _rows(told: Told, table: str, day: date = D2) -> list[dict[str, Any]]:
    return lakes.rows_of(told.lake, SOURCE, f"public.{table}", day)


def _differing(row: dict[str, Any], first: dict[str, Any]) -> set[str]:
    return {name for name, value in row.items() if name != "v" and value != first[name]}


def test_no_table_fails(told: Told) -> None:
    assert told.errors == {}


def test_every_record_has_the_key_that_the_model_says(told: Told) -> None:
    lakes.assert_same_rows(
        lakes.destinations_read(told.lake, SOURCE), lakes.destinations_expected(told.classified)
    )


def test_keys_of_every_type_meet_in_image_and_message_key(told: Told) -> None:  # D5
    created = {row["v"]: row for row in _rows(told, "typed", D1)}
    assert len(_rows(told, "typed", D1)) == 1 + len(TYPED)
    left = [_differing(row, created["first"]) for row in _rows(told, "typed")]
    assert left == [set()]
    assert [row["v"] for row in _rows(told, "typed")] == ["again"]


def test_keys_are_canonical(told: Told) -> None:  # section 4, `key`
    changes = lakes.stage_rows(told.lake, SOURCE, "changes", [D1])
    keys = [json.loads(r["key"]) for r in changes if r["table_name"] == "public.typed"]
    first = keys[0]
    expected = {
        "int": 1,
        "bigint": 2**53 + 1,
        "yes": True,
        "raw": base64.b64encode(bytes(100)).decode(),
        "day": "2026-11-04",
        "at_ms": "2026-11-04T12:00:00",
        "at_us": "2026-11-04T12:00:00.000001",
        "zoned": "2026-11-04T12:00:00Z",
        "price": "1.5",
        "whole": str(10**38 - 1),
        "wide": f"{10**50}.00",
    }
    assert {name: first[name] for name in expected} == expected
    assert list(first) == sorted(first)
    assert {key["zoned"] for key in keys} == {first["zoned"], "2026-11-04T12:00:00.5Z"}


def test_a_number_that_nothing_types_stands_in_its_key_as_it_was_sent(told: Told) -> None:
    changes = lakes.stage_rows(told.lake, SOURCE, "changes", [D1])
    got = {r["offset"]: r["key"] for r in changes if r["table_name"] == "public.untyped"}
    numbers = ["0.5", '"1E+309"', '"-1.5E+399"', '"1E+2"', f'"{10**39}"']
    assert [got[n] for n in sorted(got)] == [f'{{"id":{number}}}' for number in numbers]
    expected = {
        found.record.offset: found.key
        for found in told.classified[D1]
        if found.table_name == "public.untyped"
    }
    assert got == expected


def test_a_key_is_met_by_a_message_key_that_is_written_otherwise(told: Told) -> None:  # D5
    assert [row["v"] for row in _rows(told, "apart")] == ["stays"]


def test_a_key_is_met_by_a_tombstone_that_is_written_otherwise(told: Told) -> None:  # D5, D11
    assert [row["v"] for row in _rows(told, "buried")] == ["stays"]


def test_configured_types_make_one_key_of_several_spellings(told: Told) -> None:  # D5
    assert [row["v"] for row in _rows(told, "configured")] == ["stays"]


@pytest.mark.parametrize("table", ["named", "named_with_schema"])
def test_key_columns_may_have_any_name(told: Told, table: str) -> None:
    assert len(_rows(told, table, D1)) == 1 + len(NAMES)
    (row,) = _rows(told, table)
    assert row == {**{name: n for n, name in enumerate(NAMES)}, "v": "first"}


def test_keys_may_hold_any_text(told: Told) -> None:
    assert {row["id"] for row in _rows(told, "texts", D1)} == {*TEXTS, "stays"}
    assert [row["id"] for row in _rows(told, "texts")] == ["stays"]


def test_every_form_of_a_message_key_names_its_row(told: Told) -> None:  # D6
    left = {row["id"]: list(FORMS)[row["id"] - 1] for row in _rows(told, "forms") if row["id"]}
    assert left == {}
    assert [row["v"] for row in _rows(told, "forms")] == ["stays"]


def test_an_upsert_with_an_unreadable_key_takes_the_key_of_its_value(told: Told) -> None:  # D6
    rows = _rows(told, "unreadable")
    assert sorted(row["id"] for row in rows) == list(range(len(UNREADABLE)))


def test_a_delete_with_an_unreadable_key_is_quarantined(told: Told) -> None:  # D6, D7
    quarantined = lakes.stage_rows(told.lake, SOURCE, "quarantine")
    own = sorted((r for r in quarantined if r["topic"].endswith(".unreadable")), key=_offset)
    assert [row["reason"] for row in own] == [reason for _, reason in UNREADABLE.values()]


def _offset(row: dict[str, Any]) -> int:
    return int(row["offset"])


def test_the_message_key_names_the_key_in_any_order(told: Told) -> None:  # D5
    assert _rows(told, "unnamed") == [{"a": 1, "b": 1, "v": "y"}]


def test_a_table_without_key_appends_and_quarantines_the_rest(told: Told) -> None:  # D7, O14
    assert [row["v"] for row in _rows(told, "keyless")] == ["x", "x"]
    quarantined = lakes.stage_rows(told.lake, SOURCE, "quarantine")
    own = [row["reason"] for row in quarantined if row["topic"].endswith(".keyless")]
    assert own == ["missing_key", "missing_key"]
