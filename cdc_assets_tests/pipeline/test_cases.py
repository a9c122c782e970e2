"""Real events reach the outcome that their origin states (shared cases).

Apache Flink's Debezium logs, the documents' own samples, TiCDC's row of every MySQL type, and
vectors of PostgreSQL's types and TOAST placeholders.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.names import TableName, ddl_of
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY
from cdc_assets_tests.paths import CASES

FLINK, DEBEZIUM, TICDC = CASES / "flink", CASES / "debezium", CASES / "ticdc"
TABLE = "inventory.products"
LOGS = {
    "mysql_without_schema": "debezium-data-schema-exclude",
    "mysql_with_schema": "debezium-data-schema-include",
    "postgres_without_schema": "debezium-postgres-data-schema-exclude",
    "postgres_with_schema": "debezium-postgres-data-schema-include",
}
IDENTITY = "debezium-postgres-data-replica-identity"
KEYED, KEYLESS, REAL = "cases_keyed", "cases_keyless", "cases_real"
NEXT_DAY = DAY + timedelta(days=1)

pytestmark = [pytest.mark.slow, pytest.mark.cases]


def _landed(log: str, with_key: bool = False) -> dict[Any, list[ev.Record]]:
    records = []
    for offset, line in enumerate((FLINK / f"{log}.txt").read_bytes().splitlines()):
        event = json.loads(line)
        payload = event.get("payload", event)
        row = payload["after"] or payload["before"] or {"id": 111}
        key = ev.to_json({"id": row["id"]}).encode() if with_key else None
        records.append(ev.raw(line, topic="products", key=key, offset=offset))
    return {DAY: records}


# -- what is landed of the other cases -----------------------------------------------------------


def _sample(name: str, **options: Any) -> ev.Record:
    return ev.raw((DEBEZIUM / name).read_bytes(), topic="samples", **options)


def _documents(landing: ev.Landing) -> None:
    """The samples of the documents (offsets 0 to 10 of `samples`)."""
    prefix = "postgresql_v2.5.4.Final_"
    unreadable = (DEBEZIUM / f"{prefix}04.malformed.txt").read_bytes()
    # The key of the documents, without its commas too many.
    key = re.sub(rb",(\s*})", rb"\1", unreadable)
    landing.on(DAY)
    for number in ("01", "02", "03", "04", "10"):
        landing.put(_sample(f"{prefix}{number}.malformed.txt"))
    landing.put(_sample(f"{prefix}05.json", key=unreadable))
    landing.put(_sample(f"{prefix}06.json"))
    landing.put(_sample(f"{prefix}09.json"))
    landing.put(_sample(f"{prefix}07.json", key=unreadable))
    landing.on(NEXT_DAY)
    landing.put(_sample(f"{prefix}07.json", key=key))
    landing.put(_sample(f"{prefix}08.json"))


def _serde(landing: ev.Landing) -> None:
    landing.on(DAY)
    for name in ("serde-with-schema", "serde-without-schema", "serde-update"):
        landing.put(ev.raw((DEBEZIUM / f"{name}.json").read_bytes(), topic="serde"))


def _ticdc(landing: ev.Landing) -> None:
    landing.on(DAY)
    key = (TICDC / "datatype.dbz.key.json").read_bytes()
    landing.put(ev.raw((TICDC / "datatype.dbz.json").read_bytes(), topic="ticdc", key=key))


def _vectors() -> list[dict[str, Any]]:
    if not CASES.is_dir():  # the module is left out
        return []
    return list(json.loads((DEBEZIUM / "pg_type_vectors.json").read_text("utf-8"))["vectors"])


# The vectors leave out what arrays and maps hold.
ITEMS = {
    "char(10)[]": {"items": {"type": "string"}},
    "bigint[]": {"items": {"type": "int64"}},
    "hstore": {"keys": {"type": "string"}, "values": {"type": "string"}},
}


def _vector_schema(vector: dict[str, Any]) -> dict[str, Any]:
    schema = vector["field_schema"]
    if not isinstance(schema, dict):  # decimal.handling.mode=string
        return {"type": "string"}
    return {**schema, **ITEMS[vector["db_type"]]} if schema["type"] in ("array", "map") else schema


TOAST_COLUMNS: dict[str, tuple[Any, Any, Any]] = {
    # column of the file → (schema, JSON of a known value, the value)
    "text/varchar/json/xml/any string": ("string", "long", "long"),
    "bytea, binary.handling.mode=bytes": ("bytes", "AQID", b"\x01\x02\x03"),
    "bytea, binary.handling.mode=hex": ("string", "010203", "010203"),
    "bytea, binary.handling.mode=base64 / base64-url-safe": ("string", "AQID", "AQID"),
    "text[]/varchar[]/bpchar[]/json[]/jsonb[]": (
        {"type": "array", "items": {"type": "string"}},
        ["a", "b"],
        ["a", "b"],
    ),
    "int4[]/date[]": ({"type": "array", "items": {"type": "int32"}}, [1, 2], [1, 2]),
    "int8[]": ({"type": "array", "items": {"type": "int64"}}, [2**53 + 1], [2**53 + 1]),
    "hstore map": (
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
        {"k": "v"},
        {"k": "v"},
    ),
    "hstore json": ("io.debezium.data.Json", '{"k":"v"}', '{"k":"v"}'),
    "bytea[]": ({"type": "array", "items": {"type": "bytes"}}, ["AQID"], [b"\x01\x02\x03"]),
    "uuid[]": (
        {"type": "array", "items": ev.field_schema("io.debezium.data.Uuid")},
        ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
        ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    ),
    "configured unavailable.value.placeholder": ("string", "text", "text"),
}


def _placeholders() -> dict[str, Any]:
    found = json.loads((DEBEZIUM / "pg_type_vectors.json").read_text("utf-8"))
    return {form["column"]: form["json_value"] for form in found["toast_placeholders"]}


def _typed(landing: ev.Landing) -> None:
    """A row of all vectors; a row of known values, and its update with placeholders."""
    vectors = _vectors()
    schemas = {f"v{n}": _vector_schema(vector) for n, vector in enumerate(vectors)}
    log = ev.PgLog("cases", "public", "vectors", types={"id": "int32", **schemas}, landing=landing)
    landing.on(DAY)
    log.create(id=1, **{f"v{n}": vector["json_value"] for n, vector in enumerate(vectors)})
    columns = list(TOAST_COLUMNS.values())
    types = {"id": "int32", **{f"t{n}": schema for n, (schema, _, _) in enumerate(columns)}}
    toast = ev.PgLog("cases", "public", "toasted", types=types, landing=landing)
    toast.create(id=1, **{f"t{n}": known for n, (_, known, _) in enumerate(columns)})
    forms = _placeholders()
    sent = {f"t{n}": forms[name] for n, name in enumerate(TOAST_COLUMNS)}
    landing.on(NEXT_DAY)
    toast.update(id=1, **sent)


@pytest.fixture(scope="module")
def lake(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("cases")
    full = {TABLE: {"key": ["id"], "replica_identity": "full"}}
    sources = {
        f"cases_{name}": lakes.write_source(folder / name, _landed(log), tables=full)
        for name, log in LOGS.items()
    }
    unknown = {TABLE: {"key": ["id"]}}
    for name, with_key in ((KEYED, True), (KEYLESS, False)):
        landed = _landed(IDENTITY, with_key)
        sources[name] = lakes.write_source(folder / name, landed, tables=unknown)
    landing = ev.Landing(DAY)
    for land in (_documents, _serde, _ticdc, _typed):
        land(landing)
    keyed: dict[str, Any] = {"public.customers": {"key": ["id"]}, "public.vectors": {}}
    keyed |= {"inventory.customers": {"key": ["id"]}, "test.foo": {}, "public.toasted": {}}
    sources[REAL] = lakes.write_source(folder / REAL, landing.landed, tables=keyed)
    made = lake_of(sources)
    for name in sources:
        lakes.run_all(made, name, [DAY, NEXT_DAY] if name == REAL else [DAY])
    return made


# -- Flink ---------------------------------------------------------------------------------------


def _rows(lake: Lake, source: str) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in lakes.rows_of(lake, source, TABLE, DAY)}


def _assert_expected(rows: dict[int, dict[str, Any]], name: str) -> None:
    expected = json.loads((FLINK / name).read_text("utf-8"))
    assert sorted(rows) == [row["id"] for row in expected]
    for row in expected:
        assert rows[row["id"]] == {**row, "weight": pytest.approx(row["weight"], rel=1e-6)}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_of_flink_reaches_its_final_state(lake: Lake, name: str) -> None:
    _assert_expected(_rows(lake, f"cases_{name}"), f"{LOGS[name]}.txt.expected.json")


@pytest.mark.parametrize("name", LOGS)
def test_the_columns_of_a_log_of_flink_are_those_of_its_schema(lake: Lake, name: str) -> None:  # R3
    number = "int" if name.endswith("with_schema") else "bigint"
    expected = {"id": number, "name": "string", "description": "string", "weight": "double"}
    assert _types(lake, f"cases_{name}", TABLE) == expected


def test_a_delete_without_images_takes_its_key_from_the_message_key(lake: Lake) -> None:  # D8
    expected = f"{IDENTITY}.txt.expected-with-message-key.json"
    _assert_expected(_rows(lake, KEYED), expected)


def test_a_delete_without_images_and_key_is_quarantined_and_changes_nothing(
    lake: Lake,
) -> None:  # D8
    assert sorted(_rows(lake, KEYLESS)) == list(range(101, 112))
    quarantined = lakes.stage_rows(lake, KEYLESS, "quarantine")
    assert [(row["offset"], row["reason"]) for row in quarantined] == [(15, "missing_key")]


# -- the documents' samples ----------------------------------------------------------------------


def _types(lake: Lake, source: str, table: str) -> dict[str, str]:
    schema = lake.spark.table(lake.state(source, TableName.parse(table))).schema
    return {f.name: ddl_of(f.dataType) for f in schema.fields if not f.name.startswith("_cdc_")}


def test_the_documents_samples_reach_their_destinations(lake: Lake) -> None:
    read = {
        row["offset"]: (row["destination"], row["reason"])
        for row in lakes.destinations_read(lake, REAL)
        if row["topic"] == "samples"
    }
    changes, control = ("changes", None), ("control", None)
    assert read == {
        **dict.fromkeys(range(5), ("quarantine", "malformed_json")),  # D19
        5: changes,  # the key is unreadable, the value holds it (D6)
        6: changes,
        7: control,  # D13
        8: ("quarantine", "malformed_key"),  # `before` is nobody's word (D5, D8)
        9: changes,
        10: changes,
    }


def test_the_documents_samples_are_read_as_events_of_their_source_table(lake: Lake) -> None:  # D4
    rows = sorted(lakes.stage_rows(lake, REAL, "changes"), key=lambda row: row["offset"])
    read = [(r["table_name"], r["op"], r["key"]) for r in rows if r["topic"] == "samples"]
    table, key = "public.customers", '{"id":1}'
    # The documents' key schema is {"name": "id", "schema": {"type": "INT32"}}, its value "1" (D5).
    assert read == [(table, "c", key), (table, "u", key), (table, "d", key), (table, "t", None)]
    message = [r for r in lakes.stage_rows(lake, REAL, "control") if r["topic"] == "samples"]
    assert [(row["op"], row["payload"]) for row in message] == [("message", "Ymfy")]


def test_the_documents_samples_make_a_row_and_remove_it(lake: Lake) -> None:
    row = {"id": 1, "first_name": "Anne Marie", "last_name": "Kretchmar"}
    expected = [{**row, "email": "annek@noanswer.org"}]
    assert lakes.rows_of(lake, REAL, "public.customers", DAY) == expected
    assert lakes.rows_of(lake, REAL, "public.customers", NEXT_DAY) == []


def test_events_with_and_without_schema_are_one_row(lake: Lake) -> None:  # R3
    row = {"id": 1004, "first_name": "Anne", "last_name": "Kretchmar"}
    expected = [{**row, "email": "annek@noanswer.org"}]
    assert lakes.rows_of(lake, REAL, "inventory.customers", DAY) == expected
    assert _types(lake, REAL, "inventory.customers")["id"] == "int"
    changes = [r for r in lakes.stage_rows(lake, REAL, "changes") if r["topic"] == "serde"]
    assert sorted((r["offset"], r["op"], r["key"]) for r in changes) == [
        (0, "c", '{"id":1004}'),
        (1, "c", '{"id":1004}'),
        (2, "u", '{"id":1004}'),
    ]


# -- every MySQL type ----------------------------------------------------------------------------


def _local(micros: int = 0) -> datetime:
    return datetime(2023, 11, 30, 12, 34, 56, micros)


def _utc(micros: int = 0) -> datetime:
    return _local(micros).replace(tzinfo=timezone.utc)


CLOCK_US = 45_296_000_000  # 12:34:56
MYSQL: dict[str, tuple[str, Any]] = {
    "pk": ("int", 1),
    "col_d_2023": ("date", date(2023, 11, 30)),
    "col_d_1000": ("date", date(1000, 1, 1)),
    "col_d_9999": ("date", date(9999, 12, 31)),
    "col_d_0000": ("date", None),
    "col_dt": ("timestamp_ntz", _local()),
    "col_dt_fsp_0": ("timestamp_ntz", _local()),
    "col_dt_fsp_1": ("timestamp_ntz", _local(100_000)),
    "col_dt_fsp_4": ("timestamp_ntz", _local(123_500)),
    "col_dt_fsp_6": ("timestamp_ntz", _local(123_456)),
    "col_dt_0000": ("timestamp_ntz", None),
    "col_t": ("bigint", CLOCK_US),
    "col_t_fsp_0": ("bigint", CLOCK_US),
    "col_t_fsp_1": ("bigint", CLOCK_US + 100_000),
    "col_t_fsp_4": ("bigint", CLOCK_US + 123_500),
    "col_t_fsp_6": ("bigint", CLOCK_US + 123_456),
    "col_t_neg": ("bigint", -CLOCK_US - 123_456),
    "col_ts": ("timestamp", _utc()),
    "col_ts_fsp_0": ("timestamp", _utc()),
    "col_ts_fsp_1": ("timestamp", _utc(100_000)),
    "col_ts_fsp_5": ("timestamp", _utc(123_460)),
    "col_ts_fsp_6": ("timestamp", _utc(123_456)),
    "col_y": ("int", 2023),
    "col_bit_1": ("boolean", True),
    "col_bit_5": ("binary", b"\x10"),
    "col_bit_6": ("binary", b"\x10"),
    "col_bit_60": ("binary", b"\x10" + bytes(7)),
    "col_varchar": ("string", "foo"),
    "col_char": ("string", "foo"),
    # binary.handling.mode=base64: the schema says text.
    "col_varbinary": ("string", "Zm9v"),
    "col_binary": ("string", base64.b64encode(b"foo" + bytes(97)).decode()),
    "col_blob": ("string", "Zm9v"),
    "col_decimal": ("double", 12345.12345),
    "col_numeric": ("double", 12345.12345),
    "col_float": ("float", struct.unpack("f", struct.pack("f", 12345.12345))[0]),
    "col_double": ("double", 12345.12345),
    "col_int": ("int", -(2**31)),
    "col_int_unsigned": ("bigint", 2**32 - 1),
    "col_tinyint": ("int", -128),
    "col_tinyint_unsigned": ("int", 255),
    "col_smallint": ("int", -32768),
    "col_smallint_unsigned": ("int", 65535),
    "col_mediumint": ("int", -(2**23)),
    "col_mediumint_unsigned": ("int", 2**24 - 1),
    "col_bigint": ("bigint", -(2**63)),
    # bigint.unsigned.handling.mode=long: 2^64 - 1 was wrapped before it was sent.
    "col_bigint_unsigned": ("bigint", -1),
    "col_enum": ("string", "a"),
    "col_enum_invalid": ("string", ""),
    "col_set": ("string", "a,b"),
    "col_set_invalid": ("string", ""),
    "col_json": ("string", '["foo"]'),
}


def test_every_mysql_type_has_the_value_that_was_inserted(lake: Lake) -> None:  # R3
    columns = re.findall(r"^  (\w+) +[A-Z]", (TICDC / "datatype.ddl.sql").read_text(), re.M)
    assert columns == list(MYSQL)
    assert _types(lake, REAL, "test.foo") == {name: kind for name, (kind, _) in MYSQL.items()}
    assert lakes.rows_of(lake, REAL, "test.foo", DAY) == [
        {name: value for name, (_, value) in MYSQL.items()}
    ]


# -- PostgreSQL's types --------------------------------------------------------------------------

# One vector contradicts itself: its number is a second later than its text.
MISTAKEN = "1936-10-25T22:10:12.608"


def _micros_of_day(text: str) -> int:
    if text == "24:00:00":
        return 86_400_000_000
    since = datetime.combine(date.min, time.fromisoformat(text)) - datetime.min
    return since // timedelta(microseconds=1)


BY_NAME: dict[str, Callable[[Any], Any]] = {
    "io.debezium.time.MicroTimestamp": datetime.fromisoformat,
    "io.debezium.time.Timestamp": datetime.fromisoformat,
    "io.debezium.time.ZonedTimestamp": lambda text: datetime.fromisoformat(
        text.replace(" UTC", "+00:00")
    ),
    "io.debezium.time.Date": date.fromisoformat,
    "io.debezium.time.MicroTime": _micros_of_day,
    "io.debezium.time.Time": _micros_of_day,
    "org.apache.kafka.connect.data.Decimal": Decimal,
    "io.debezium.data.Bits": bytes,
    "io.debezium.data.Json": lambda value: value if isinstance(value, str) else None,
}


def _expected(vector: dict[str, Any]) -> Any:
    schema = _vector_schema(vector)
    name, kind, value = schema.get("name", ""), schema["type"], vector.get("expected")
    if vector["db_literal"] == MISTAKEN:
        assert value == MISTAKEN.replace("T", " ")
        return datetime(1936, 10, 25, 22, 10, 13, 608_000)
    if vector["db_type"] == "hstore":  # text, or a map
        return vector["json_value"]
    if kind == "string" and not name:  # the schema says text: what was sent
        return vector["json_value"]
    if kind == "bytes" and not name:
        return bytes(value)
    if value is None:
        return "NaN" if kind == "float" else None
    return BY_NAME.get(name, lambda same: same)(value)


@pytest.mark.parametrize("number", range(len(_vectors())))
def test_a_postgres_type_has_the_stated_value(lake: Lake, number: int) -> None:  # R3
    vector = _vectors()[number]
    (row,) = lakes.rows_of(lake, REAL, "public.vectors", DAY)
    got = row[f"v{number}"]
    if vector["db_type"] == "geometry":
        # EWKB: byte order, type with the SRID flag, SRID, x, y.
        *_, srid, x, y = struct.unpack("<BIIdd", got["wkb"])
        assert (got["srid"], srid, x, y) == (3187, 3187, 174.9479, -36.7208)
        return
    if isinstance(got, float) and math.isnan(got):
        got = "NaN"
    assert got == _expected(vector), vector


def test_infinity_and_years_beyond_9999_are_counted_with_an_example(lake: Lake) -> None:  # R4
    facts = lakes.table_days.gather(lake, REAL, ["public.vectors"], [DAY])
    report = lakes.table_days.make_table_day(lake, REAL, "public.vectors", DAY, facts)
    unheld = {
        f"v{number}": {"count": 1, "example": json.dumps(vector["json_value"])}
        for number, vector in enumerate(_vectors())
        if _vector_schema(vector).get("name", "").endswith("Timestamp") and "expected" not in vector
    }
    assert len(unheld) == 5
    assert report.unfit == unheld


NOT_TOLD = {
    # What these send in place of the value is null, which is a value (or not known here).
    "bytea, binary.handling.mode=base64 / base64-url-safe",
    "configured unavailable.value.placeholder",
}


@pytest.mark.parametrize("name", TOAST_COLUMNS)
def test_a_toast_placeholder_keeps_the_value_of_the_day_before(lake: Lake, name: str) -> None:  # R2
    column = f"t{list(TOAST_COLUMNS).index(name)}"
    (before,) = lakes.rows_of(lake, REAL, "public.toasted", DAY)
    (after,) = lakes.rows_of(lake, REAL, "public.toasted", NEXT_DAY)
    known = TOAST_COLUMNS[name][2]
    assert (name in NOT_TOLD) == (_placeholders()[name] is None)
    assert (before[column], after[column]) == (known, None if name in NOT_TOLD else known)
