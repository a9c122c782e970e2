"""Records that were written with a schema registry."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.config import RegistryConfig
from cdc_assets.cdc.discovery import inspection
from cdc_assets.cdc.discovery.rules import rules_of_source
from cdc_assets.cdc.errors import ConfigError, RegistryError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.registry.avro import SchemaError, read_avro
from cdc_assets.cdc.registry.client import RegistrySchema, fetch_schemas
from cdc_assets.cdc.registry.json_schema import read_json_schema
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY, Landing, PgLog
from cdc_assets_tests.lakes import land, make_changes
from cdc_assets_tests.model import Record
from cdc_assets_tests.registries import Schemas, encoded, framed, serving

NEXT = ev.DAY.replace(day=ev.DAY.day + 1)
TABLES = {"public.customers": {"key": ["id"]}}
TYPES = {
    "id": {"type": "int64", "optional": False},
    "name": "string",
    "active": "boolean",
    "small": "int16",
    "ratio": "double",
    "price": (ev.DECIMAL, 2, 10),
    "money": (ev.DECIMAL, 2),
    "any_scale": {
        "type": "struct",
        "optional": True,
        "name": ev.VARIABLE_SCALE_DECIMAL,
        "version": 1,
        "fields": [
            {"type": "int32", "optional": False, "field": "scale"},
            {"type": "bytes", "optional": False, "field": "value"},
        ],
    },
    "born": "io.debezium.time.Date",
    "seen_at": "io.debezium.time.MicroTimestamp",
    "zoned": "io.debezium.time.ZonedTimestamp",
    "photo": "bytes",
    "state": {
        "type": "string",
        "optional": True,
        "name": "io.debezium.data.Enum",
        "version": 1,
        "parameters": {"allowed": "new,old"},
    },
    "tags": {
        "type": "array",
        "items": {"type": "string", "optional": True},
        "optional": True,
    },
    # A message is cut at the first member of this name.
    "payload": {"type": "string", "optional": True, "parameters": {"a": "1", "payload": "2"}},
}
ROW: dict[str, Any] = {
    "id": 1,
    "name": "Änne \u2028 \U0001f600 \"'\\",
    "active": True,
    "small": -7,
    "ratio": 0.1,
    "price": Decimal("-1234567.89"),
    "money": Decimal("98765432109876543210.12"),
    "any_scale": Decimal("3.14159265358979323846264338327950288"),
    "born": -719_162,
    "seen_at": 1_762_257_600_123_456,
    "zoned": "2026-11-04T12:00:00.123456Z",
    "photo": b"\0\x01\xff" * 40,
    "state": "new",
    "tags": ["a", None, ""],
    "payload": "p",
}


def many_kinds() -> model.Landed:
    """Two days of one table: all kinds of events, and a new column within the first day."""
    log = PgLog(types=TYPES)
    log.read(**ROW)
    log.create(**{**dict.fromkeys(ROW), "id": 2})
    log.update(**{**ROW, "price": Decimal("0.01"), "ratio": 1e300})
    log.defaults["types"] = {**TYPES, "city": "string"}
    log.update(**{**ROW, "id": 2, "city": "Köln"})
    log.create(**{**ROW, "id": 3, "city": None})
    log.delete(id=3, _tombstone=True)
    log.on(NEXT)
    log.change_key({"id": 2}, **{**ROW, "id": 9, "city": "Bonn"})
    log.tombstone(id=1)
    log.create(**{**ROW, "id": 4, "city": "Ulm"})
    return log.landed


def source_at(url: str, folder: Path, landed: model.Landed) -> dict[str, Any]:
    source = lakes.write_source(folder, landed, tables=TABLES)
    source["landing"]["registry"] = {"url": url}
    return source


def quarantined(lake: Lake, name: str) -> list[tuple[int, str, str]]:
    rows = lakes.stage_rows(lake, name, "quarantine")
    return sorted((row["offset"], row["reason"], row["detail"]) for row in rows)


def changes_of(lake: Lake, name: str) -> list[lakes.Row]:
    """Changes; an Avro record has all of its members, where the old row of a test has its key."""
    rows = lakes.changes_read(lake, name)
    return [{**row, "before": row["before"] and _sent(json.loads(row["before"]))} for row in rows]


def _sent(row: dict[str, Any]) -> dict[str, Any]:
    return {column: value for column, value in row.items() if value is not None}


KINDS = pytest.mark.parametrize("kind", ["AVRO", "JSON"])


@KINDS
def test_a_registry_makes_the_tables_and_changes_that_the_same_events_in_json_make(
    lake_of: LakeOf, tmp_path: Path, name: str, kind: str
) -> None:
    landed, schemas = many_kinds(), Schemas(kind=kind)
    with serving(schemas) as url:
        avro = source_at(url, tmp_path / "avro", schemas.all_sent(landed))
        sources = {
            name: avro,
            f"{name}_plain": lakes.write_source(tmp_path / "json", landed, tables=TABLES),
        }
        lake = lake_of(sources)
        for each in sources:
            lakes.run_all(lake, each, [DAY, NEXT])
    assert quarantined(lake, name) == []
    for day in (DAY, NEXT):
        ours, theirs = (lakes.rows_of(lake, n, "public.customers", day) for n in sources)
        lakes.assert_same_rows(ours, theirs, str(day))
        assert len(theirs) == 2
    lakes.assert_same_rows(changes_of(lake, name), changes_of(lake, f"{name}_plain"), "changes")
    # Values, keys, and the column that came in between: each schema is asked for once.
    assert len(schemas.asked) == len(set(schemas.asked)) == len(schemas.by_id)


def test_a_day_is_made_again_without_its_registry(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    landed, schemas = many_kinds(), Schemas()
    with serving(schemas) as url:
        lake = lake_of({name: source_at(url, tmp_path, schemas.all_sent(landed))})
        lakes.run_all(lake, name, [DAY])
    before = lakes.changes_read(lake, name)
    assert make_changes(lake, name, [DAY], force=True) == [DAY]
    lakes.assert_same_rows(lakes.changes_read(lake, name), before, "made again")


def test_a_day_whose_registry_does_not_answer_fails_and_stays_as_it_was(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    schemas = Schemas()
    landed = schemas.all_sent(many_kinds())
    with serving(schemas) as url:
        pass  # it is gone
    lake = lake_of({name: source_at(url, tmp_path, landed)})
    land(lake, name, [DAY])
    with pytest.raises(RegistryError, match=rf"{name}: the schema registry does not answer.*{url}"):
        make_changes(lake, name, [DAY])
    assert not lake.day_commits(name, "changes")


def test_saved_answers_make_the_changes_that_their_registry_makes(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    schemas = Schemas()
    landed = schemas.all_sent(many_kinds())
    from_folder = lakes.write_source(tmp_path / "files", landed, tables=TABLES)
    folder = str(schemas.saved(tmp_path / "registry"))
    from_folder["landing"]["registry"] = {"files": folder}
    with serving(schemas) as url:
        sources = {name: from_folder, f"{name}_url": source_at(url, tmp_path / "url", landed)}
        lake = lake_of(sources)
        for each in sources:
            lakes.run_stages(lake, each, [DAY, NEXT])
    assert quarantined(lake, name) == []
    ours, theirs = (lakes.changes_read(lake, each) for each in sources)
    lakes.assert_same_rows(ours, theirs, "changes")
    kept = lake.spark.table(lake.stage(name, "schemas")).where("registry_id IS NOT NULL")
    assert {json.loads(row.schema)["registry"] for row in kept.collect()} == {folder}


def fetched(folder: Path, *ids: str) -> dict[str, RegistrySchema]:
    return fetch_schemas("shop", RegistryConfig(files=str(folder)), ids)


def test_saved_answers_are_found_by_id_guid_and_reference(tmp_path: Path) -> None:
    guid = "0f8fad5b-d9cb-469f-a165-70867728950e"
    referring = {
        "schema": "{}",
        "schemaType": "JSON",
        "references": [{"name": "r", "subject": "a/b ü", "version": 1}],
    }
    by_id = {"7": {"schema": '"string"'}, guid: referring}
    Schemas(by_id, references={"a/b ü": {"schema": '"long"'}}).saved(tmp_path)
    assert fetched(tmp_path, "7", "8", guid) == {
        "7": RegistrySchema("AVRO", '"string"'),
        guid: RegistrySchema("JSON", "{}", ('"long"',)),
    }


@pytest.mark.parametrize("subject", ["..", ".", "../../outside", "/outside", "a\0b", ""])
def test_no_name_leads_out_of_the_folder_of_saved_answers(subject: str, tmp_path: Path) -> None:
    for outside in ("outside", "versions/1", "inner/versions/1", "inner/outside"):
        file = tmp_path / f"{outside}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"schema": "secret"}))
    reference = {"name": "r", "subject": subject, "version": 1}
    schemas = Schemas({"7": {"schema": "{}", "references": [reference]}})
    folder = schemas.saved(tmp_path / "inner")
    with pytest.raises(RegistryError, match="does not have it, though another schema refers"):
        fetched(folder, "7")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no JSON"),
        ("\xff", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ('{"error_code": 40403}', "has no schema: got .*40403"),
        ('{"schema": 1}', "has no schema"),
        ("7", "has no schema: got 7"),
        (None, "can't be read"),
    ],
)
def test_a_saved_answer_that_holds_no_schema_is_an_error(
    text: str | None, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "schemas" / "ids" / "7.json"
    (file if text is None else file.parent).mkdir(parents=True)
    if text is not None:
        file.write_bytes(text.encode("latin-1"))
    with pytest.raises(RegistryError, match=why) as raised:
        fetched(tmp_path, "7")
    assert raised.value.url == str(file)
    assert "expected what GET /schemas/ids/7 answers" in str(raised.value)
    assert "save it again, or remove the file" in str(raised.value)


def test_a_folder_without_saved_answers_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"expected schemas/ids/<id>\.json in it"):
        fetched(tmp_path, "7")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        # Of Confluent's server below a wrong path.
        ({"error_code": 404, "message": "HTTP 404 Not Found"}, "answers 404: HTTP 404 Not Found"),
        ({"error_code": 40101, "message": "Unauthorized"}, "answers 404: Unauthorized"),
        ({}, "answers 404"),
    ],
)
def test_an_address_that_is_no_registry_s_is_an_error_and_no_unknown_schema(
    answer: dict[str, Any], why: str
) -> None:
    schemas = Schemas(unknown=answer)
    with serving(schemas) as url, pytest.raises(RegistryError, match=why):
        fetch_schemas("shop", RegistryConfig(url=url), ["1"])


def test_what_a_schema_does_not_fit_is_quarantined_and_says_why(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    schemas = Schemas()
    landing = Landing()
    good = schemas.sent(PgLog(types=TYPES).create(**ROW))
    assert good.value is not None
    union = schemas.registered(["string", "long"])
    itself = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}
    endless = schemas.registered(itself)
    schemas.by_id["77"] = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    odd = [
        good.value,
        good.value[:-1],
        good.value + b"\2",
        framed(4_000_000_000, good.value[5:]),
        framed(union, b"\0\2a"),
        framed(endless, b"\0"),
        framed(77, b"\0\1"),
    ]
    for value in odd:
        landing.put(replace(good, value=value))
    with serving(schemas) as url:
        lake = lake_of({name: source_at(url, tmp_path, landing.landed)})
        lakes.run_all(lake, name, [DAY])
    misfit = "the bytes are not exactly one value of this schema"
    assert [(reason, detail) for _, reason, detail in quarantined(lake, name)] == [
        ("registry_encoded", f"encoded by a schema registry, schema id {number}: {why}")
        for number, why in (
            (int.from_bytes(good.value[1:5], "big"), misfit),
            (int.from_bytes(good.value[1:5], "big"), misfit),
            (4_000_000_000, "the registry has no schema of this id"),
            (union, "the schema: a union of 2 types, which no column can hold"),
            (endless, "the schema.r: R holds itself, which no column can"),
            (77, "a schema of PROTOBUF is not read, only AVRO and JSON"),
        )
    ]
    assert [row["id"] for row in lakes.rows_of(lake, name, "public.customers", DAY)] == [1]


PARTS_SCHEMA = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "op", "type": "string"},
        {"name": "after", "type": ["null", {
            "type": "record", "name": "Row", "fields": [
                {"name": "id", "type": "long"},
                {"name": "flag", "type": "boolean"},
                {"name": "flags", "type": {"type": "array", "items": ["null", "boolean"]}},
                {"name": "n", "type": ["null", "int"]},
                {"name": "photo", "type": "bytes"},
                {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["a", "b"]}},
                {"name": "tags", "type": {"type": "array", "items": "string"}},
                {"name": "more", "type": {"type": "map", "values": "boolean"}},
            ],
        }]},
        {"name": "source", "type": {
            "type": "record", "name": "Source",
            "fields": [{"name": n, "type": "string"} for n in ("schema", "table")],
        }},
    ],
}  # fmt: skip
PARTS = {
    "op": b"\2c",
    "after": b"\2",
    "id": b"\2",
    "flag": b"\1",
    "flags": b"\4\0\2\1\0",
    "n": b"\2\2",
    "photo": b"\2\xff",
    "state": b"\2",
    "tags": b"\4\2a\2b\0",
    "more": b"\2\2k\1\0",
    "source": b"\14public\22customers",
}
TWO_BILLION, NONE_LEFT = b"\xee\xff\xff\xff\x0f", b"\xff" * 9 + b"\1"
# Each part with other bytes that stand for the same value, and with such as stand for none.
SAME = {
    "id": b"\x84\0",  # of the first, whose id is 2
    "flags": b"\3\6\0\2\1\0",  # a block that says its bytes
    "n": b"\2\x82\x80\0",
    "tags": b"\2\2a\2\2b\0",  # two blocks
    "more": b"\4\2k\0\2k\1\0",  # the last of a key counts
}
NO_VALUES = {
    "op": [b"\1c", b"\4\xc3(", b"\6\xed\xa0\x80", TWO_BILLION, NONE_LEFT],
    "after": [b"\4", b"\1", TWO_BILLION],
    "id": [b"\x82" + b"\x80" * 9 + b"\0"],
    "flag": [b"\2", b"\xff"],
    "flags": [b"\2\2\2\0", TWO_BILLION, NONE_LEFT],
    "n": [b"\2\x80\x80\x80\x80\x10", b"\2\xff\xff\xff\xff\x1f"],
    "photo": [TWO_BILLION, b"\x80\xa8\xd6\xb9\7", NONE_LEFT],
    "state": [b"\4", b"\1"],
    "tags": [b"\2\2\xff\0", TWO_BILLION, b"\x80\xa8\xd6\xb9\7", NONE_LEFT],
    "more": [b"\2\2\xff\1\0", b"\2\2k\2\0", TWO_BILLION, NONE_LEFT],
}


def test_bytes_that_stand_for_no_value_are_quarantined_and_others_read(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    schemas, landing = Schemas(), Landing()
    number = schemas.registered(PARTS_SCHEMA)

    def put(key: int, part: str = "", data: bytes = b"") -> None:
        value = b"".join({**PARTS, "id": bytes([2 * key]), part: data}.values())
        landing.put(ev.raw(framed(number, value)))

    bad = [(part, data) for part, found in NO_VALUES.items() for data in found]
    for part, data in bad:
        put(0, part, data)
    put(1)
    for key, (part, data) in enumerate(SAME.items(), 2):
        put(key, part, data)
    with serving(schemas) as url:
        lake = lake_of({name: source_at(url, tmp_path, landing.landed)})
        lakes.run_all(lake, name, [DAY])
    reasons = {offset: reason for offset, reason, _ in quarantined(lake, name)}
    assert reasons == dict.fromkeys(range(len(bad)), "registry_encoded")
    rows = lakes.rows_of(lake, name, "public.customers", DAY)
    assert sorted(row["id"] for row in rows) == [*range(1, len(SAME) + 2)]
    for row in rows:
        same = {column: row[column] for column in ("flag", "n", "photo", "state", "tags")}
        whole = {"flag": True, "n": 1, "photo": b"\xff", "state": "b", "tags": ["a", "b"]}
        assert same == whole, row
        assert (row["flags"], dict(row["more"])) == ([None, True], {"k": True}), row


def test_a_json_schema_that_says_nothing_leaves_its_records_readable(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    schemas, landing = Schemas(kind="JSON"), Landing()
    number = schemas.registered({}, schemaType="JSON")
    landing.put(ev.raw(framed(number, b'{"ts_ms":1}')))
    row = {"op": "c", "after": {"id": 1}, "source": {"schema": "public", "table": "customers"}}
    landing.put(ev.raw(framed(number, json.dumps(row).encode())))
    with serving(schemas) as url:
        lake = lake_of({name: source_at(url, tmp_path, landing.landed)})
        lakes.run_all(lake, name, [DAY])
    assert quarantined(lake, name) == []
    assert [row["op"] for row in lakes.stage_rows(lake, name, "control")] == ["heartbeat"]
    assert [row["id"] for row in lakes.rows_of(lake, name, "public.customers", DAY)] == [1]


def test_ids_in_headers_are_found(lake_of: LakeOf, tmp_path: Path, name: str) -> None:
    schemas, landing, log = Schemas(), Landing(), PgLog(types=TYPES)
    guid = "0f8fad5b-d9cb-469f-a165-70867728950e"

    def in_headers(record: Record, key: tuple[str, bytes], value: tuple[str, bytes]) -> None:
        assert record.key is not None
        assert record.value is not None
        bare = replace(record, key=record.key[5:], value=record.value[5:], headers=(key, value))
        landing.put(bare)

    first, second, third = (schemas.sent(log.create(**{**ROW, "id": n})) for n in (1, 2, 3))
    assert first.key is not None
    assert first.value is not None
    key, value = first.key[:5], first.value[:5]
    schemas.by_id[guid] = schemas.by_id[str(int.from_bytes(value, "big"))]
    in_headers(first, ("__key_schema_id", key), ("__value_schema_id", value))
    of_guid = b"\1" + bytes.fromhex(guid.replace("-", ""))
    in_headers(second, ("__key_schema_id", key), ("__value_schema_id", of_guid))
    eight = [int.from_bytes(part, "big").to_bytes(8, "big") for part in (key, value)]
    in_headers(third, ("apicurio.key.contentId", eight[0]), ("apicurio.value.contentId", eight[1]))
    with serving(schemas) as url:
        lake = lake_of({name: source_at(url, tmp_path, landing.landed)})
        lakes.run_all(lake, name, [DAY])
    assert quarantined(lake, name) == []
    rows = lakes.rows_of(lake, name, "public.customers", DAY)
    assert sorted(row["id"] for row in rows) == [1, 2, 3]
    assert f"/schemas/guids/{guid}" in schemas.asked


def test_types_of_other_subjects_are_found(lake_of: LakeOf, tmp_path: Path, name: str) -> None:
    address = {
        "type": "record",
        "name": "shop.Address",
        "fields": [{"name": "city", "type": "string"}],
    }
    row = {
        "type": "record",
        "name": "shop.Row",
        "fields": [{"name": "id", "type": "long"}, {"name": "home", "type": "shop.Address"}],
    }
    event = {
        "type": "record",
        "name": "shop.Event",
        "fields": [
            {"name": "op", "type": "string"},
            {"name": "after", "type": ["null", "shop.Row"]},
            {"name": "source", "type": {
                "type": "record", "name": "Source",
                "fields": [{"name": n, "type": "string"} for n in ("schema", "table")],
            }},
        ],
    }  # fmt: skip
    schemas = Schemas()
    schemas.by_id["5"] = {
        "schema": json.dumps(event),
        "references": [{"name": "shop.Row", "subject": "row", "version": 1}],
    }
    schemas.references["row"] = {
        "schema": json.dumps(row),
        "references": [{"name": "shop.Address", "subject": "address", "version": 3}],
    }
    schemas.references["address"] = {"schema": json.dumps(address)}
    value = {
        "op": "c",
        "after": {"id": 1, "home": {"city": "Ulm"}},
        "source": {"schema": "public", "table": "customers"},
    }
    whole = json.loads(json.dumps(event).replace('"shop.Row"]', json.dumps(row) + "]").replace(
        '"type": "shop.Address"', f'"type": {json.dumps(address)}'
    ))  # fmt: skip
    landing = Landing()
    landing.put(ev.raw(framed(5, encoded(whole, value))))
    with serving(schemas) as url:
        lake = lake_of({name: source_at(url, tmp_path, landing.landed)})
        lakes.run_all(lake, name, [DAY])
    assert quarantined(lake, name) == []
    [found] = lakes.rows_of(lake, name, "public.customers", DAY)
    assert found["home"] == {"city": "Ulm"}


def test_inspect_reads_what_the_registry_decodes(spark: SparkSession, tmp_path: Path) -> None:
    schemas = Schemas()
    landed = schemas.all_sent({DAY: [PgLog(types=TYPES).create(**ROW)]})
    with serving(schemas) as url:
        config = lakes.config_of({"shop": source_at(url, tmp_path, landed)}, tmp_path)
        file = tmp_path / DAY.isoformat() / "part-0.jsonl"
        rules = rules_of_source(config, None, file)
        [row] = inspection.inspect_file(spark, file, rules)
    assert (row["destination"], row["table"]) == ("changes", "public.customers")


def test_logical_types_without_connect_s_names_are_known() -> None:
    def connect(**schema: Any) -> dict[str, Any]:
        return read_avro(json.dumps(schema)).connect

    assert connect(type="int", logicalType="date")["name"] == "org.apache.kafka.connect.data.Date"
    micros = connect(type="long", logicalType="timestamp-micros")
    assert micros["name"] == "io.debezium.time.MicroTimestamp"
    decimal = connect(type="bytes", logicalType="decimal", precision=9, scale=2)
    assert decimal["parameters"] == {"scale": "2", "connect.decimal.precision": "9"}
    # Kafka Connect's converters write 64 where no precision is known.
    money = connect(type="bytes", logicalType="decimal", precision=64, scale=2)
    assert money["parameters"] == {"scale": "2"}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('{"type": "array", "items": "Nowhere"}', "items: Nowhere is no type of Avro"),
        ('{"type": "record", "fields": []}', "a record without name"),
        ('{"type": "record", "name": "R", "fields": ["x"]}', "the schema: a field without name"),
        ('["null"]', "a union of 0 types"),
        ("17", "expected an Avro type"),
        ('{"type": "map"}', "values: got null"),
    ],
)
def test_a_schema_that_can_t_be_read_says_where(schema: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        read_avro(schema)


@pytest.mark.parametrize(
    ("registry", "fault"),
    [
        ({"url": "registry:8081"}, "landing.registry.url"),
        ({"url": "http://me:secret@registry:8081"}, "landing.registry.url"),
        ({"url": "http://r", "password": "p"}, "needs a username"),
        ({"url": "http://r", "username": "u", "token": "t"}, "both of username and token"),
        ({}, r"landing\.registry: got neither of url and files"),
        ({"url": "http://r", "files": "f"}, r"landing\.registry: got both of url and files"),
        ({"files": ""}, r"landing\.registry\.files: .*not empty"),
        ({"files": "s3://bucket/f"}, r"landing\.registry\.files: .*a folder of this machine"),
        ({"files": "f", "username": "u"}, "username: it belongs to url"),
        ({"files": "f", "password": "p"}, "password: it belongs to url"),
        ({"files": "f", "token": "t"}, "token: it belongs to url"),
        ({"files": "f", "ca": "c"}, "ca: it belongs to url"),
    ],
)
def test_a_wrong_registry_is_a_fault_of_the_configuration(
    registry: dict[str, str], fault: str, tmp_path: Path
) -> None:
    source = lakes.source_config(tmp_path, tables=TABLES)
    source["landing"]["registry"] = registry
    with pytest.raises(ConfigError, match=fault):
        lakes.config_of({"avro": source}, tmp_path)


def test_the_folder_of_saved_answers_starts_at_the_configuration_s(tmp_path: Path) -> None:
    source = lakes.source_config(tmp_path, tables=TABLES)
    source["landing"]["registry"] = {"files": "registry/shop"}
    read = lakes.config_of({"avro": source}, tmp_path).source("avro").landing.registry
    assert read is not None
    assert read.place == str(tmp_path / "registry" / "shop")


def test_a_value_behind_a_json_schema_s_id_is_exactly_one_document(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    schemas = Schemas({"7": {"schema": '{"type":"object"}', "schemaType": "JSON"}})
    texts = ("{", '{"a":1} {"b":2}', '1,"b":2', '1},"c":{"d":1', "", '{"a":1,"a":2}', "\udcff")
    landing = Landing()
    for text in texts:
        data = framed(7, text.encode("utf-8", "surrogateescape"))
        landing.put(ev.raw(data, topic="inventory.public.customers", key=b'{"id":1}'))
    with serving(schemas) as url:
        lake = lake_of({name: source_at(url, tmp_path, landing.landed)})
        lakes.run_stages(lake, name, [DAY])
    found = quarantined(lake, name)
    assert [reason for _, reason, _ in found] == ["registry_encoded"] * len(texts)
    assert {detail for _, _, detail in found} == {
        "encoded by a schema registry, schema id 7: the bytes are not exactly one value of this "
        "schema"
    }


JSON_SCHEMAS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a_class": (
        {
            "title": "Customer",
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "name": {"type": ["null", "string"]},
                "score": {"oneOf": [{"type": "null"}, {"type": "number"}]},
                "any": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                "tags": {"type": "object", "additionalProperties": {"type": "string"}},
                "home": {"$ref": "#/definitions/Home"},
                "up": {"$ref": "#/definitions/Loop"},
            },
            "definitions": {
                "Home": {"type": "object", "properties": {"city": {"type": "string"}}},
                "Loop": {"type": "object", "properties": {"up": {"$ref": "#/definitions/Loop"}}},
            },
        },
        {"id": "int64", "name": "string", "score": "double", "any": None, "tags": "map",
         "home": "struct", "up": "struct"},
    ),
    "properties_without_a_type": (
        {"properties": {"id": {"type": "integer"}, "home": {"properties": {}}}},
        {"id": "int64", "home": "struct"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", JSON_SCHEMAS)
def test_json_schemas_of_other_writers_are_known(case: str) -> None:
    schema, kinds = JSON_SCHEMAS[case]
    read = read_json_schema(json.dumps(schema))
    assert {f["field"]: f.get("type") for f in read["fields"]} == kinds


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "the schema: Expecting"),
        ("[]", "expected a JSON Schema"),
        ('{"$ref": "other.json"}', "other.json names another schema"),
        ('{"$ref": "#/definitions/x"}', "#/definitions/x is not in it"),
    ],
)
def test_a_json_schema_that_can_t_be_read_says_why(schema: str, why: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(why)):
        read_json_schema(schema)
