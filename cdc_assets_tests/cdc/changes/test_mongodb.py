"""Debezium's events of MongoDB, from the landing to the day's table.

The shapes are those of Debezium's document on the connector: keys of all kinds of ids, documents
as texts of extended JSON, the events of 1.x.
"""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.envelopes import extended_json, mongodb
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.state import stage
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY, Landing

DAYS = [DAY, DAY + timedelta(days=1)]
SOURCE = "mongodb"
OID = '{"$oid": "596e275826f08b2730779e1f"}'
SAME_OID = '{"$oid":"596e275826f08b2730779e1f"}'
COLUMNS = {
    "name": "string", "n": "bigint", "price": "decimal(10,2)", "at": "timestamp", "home": "string",
    "document": "string",
}  # fmt: skip
TABLES: dict[str, Any] = {
    **{f"shop.{name}": {} for name in ("people", "ids", "old", "schemas", "moved", "numbers")},
    "shop.ratios": {"columns": {"ratio": "double"}},
    "shop.typed": {"columns": COLUMNS},
}


class Collection:
    """Lands events of one collection, a second apart."""

    def __init__(self, name: str, landing: Landing) -> None:
        self.name, self.landing = name, landing

    def says(self, op: Any, after: Any = None, key: Any = None, **members: Any) -> model.Record:
        """`after` and `key` are texts of extended JSON."""
        now = self.landing.tick()
        source = {"connector": "mongodb", "name": "shop", "db": "shop", "ts_ms": now, "ord": 1}
        source |= {"rs": "rs0", "collection": self.name, "snapshot": "false"}
        event = {"op": op, "after": after, "ts_ms": now + 200, "source": source, **members}
        sent = None if key is None else json.dumps({"id": key}).encode()
        return self._put(json.dumps(event).encode(), sent, now)

    def tombstone(self, key: str) -> model.Record:
        return self._put(None, json.dumps({"id": key}).encode(), self.landing.tick())

    def with_schema(self, op: str, after: str, key: str) -> model.Record:
        """As Connect's converter writes it with schemas."""
        now = self.landing.tick()
        text = {"type": "string", "optional": True, "name": "io.debezium.data.Json"}
        fields = [{**text, "field": "after"}, {"type": "string", "field": "op"}]
        source = {"connector": "mongodb", "db": "shop", "collection": self.name, "ts_ms": now}
        event = {"op": op, "after": after, "source": source, "ts_ms": now + 200}
        own = {"type": "struct", "fields": [{"type": "string", "field": "id"}]}
        value = {"schema": {"type": "struct", "fields": fields}, "payload": event}
        wrapped = {"schema": own, "payload": {"id": key}}
        return self._put(json.dumps(value).encode(), json.dumps(wrapped).encode(), now)

    def _put(self, value: bytes | None, key: bytes | None, now: int) -> model.Record:
        topic = f"shop.shop.{self.name}"
        return self.landing.put(ev.raw(value, topic=topic, key=key, timestamp_ms=now + 500))


def people(landing: Landing) -> None:
    one = Collection("people", landing)
    one.says("r", '{"_id": 1, "name": "Anne"}', "1")
    one.says("c", '{"_id": 2, "name": "Bob"}', "2")
    one.says("c", '{"_id": 3, "name": "Carl"}', "3")
    one.says(
        "u", '{"name": "Anne Marie", "_id": 1}', "1", updateDescription={"removedFields": None}
    )
    landing.on(DAYS[1])
    one.says("d", None, "2")
    one.tombstone("2")
    one.says("d", None, "3", before='{"_id": 3, "name": "Carl"}')
    one.says("u", None, "1", updateDescription={"updatedFields": '{"name": "x"}'})


UUID_BYTES = "yO2rw/c4TKO2jaqSqRR4ow=="
UUID = f'{{"$binary":{{"base64":"{UUID_BYTES}","subType":"04"}}}}'
# What the table has: the texts of the same id, the message key's first, then the document's (M1).
IDS: dict[str, tuple[str, ...]] = {
    SAME_OID: (OID, OID),
    "1004": ("1004", '{"$numberInt": "1004"}'),
    "1004000000000": ("1004000000000", '{"$numberLong": "1004000000000"}'),
    '"1004"': ('"1004"', '"1004"'),
    '"a \\"b\\" {"': ('"a \\"b\\" {"', '"a \\u0022b\\" {"'),
    "12.5": ("12.50", '{"$numberDouble": "12.5"}'),
    "null": ("null", "null"),
    "true": ("true", "true"),
    # Numbers that are equal are one id, of whatever types (M2).
    "7": ("7.0", '{"$numberDouble":"7.0"}', '{"$numberDecimal":"7.00"}', "7E0"),
    "0": ("0", '{"$numberDouble":"-0.0"}'),
    "0.375": ("0.375", '{"$numberDecimal":"0.3750"}', '{"$numberDouble":"375E-3"}'),
    "0.1": ("0.1", '{"$numberDouble":"0.1"}'),
    '{"$numberDecimal":"0.1"}': ('{"$numberDecimal":"0.10"}', '{"$numberDecimal":"1E-1"}'),
    "1.0E-7": ("1.0E-7", '{"$numberDouble":"1.0E-7"}'),
    "1.5E300": ("1.5E300", '{"$numberDouble":"1.5E+300"}'),
    "1.23456785E7": ("1.23456785E7", '{"$numberDouble":"12345678.5"}'),
    '{"$numberDouble":"NaN"}': ("NaN", '{"$numberDouble":"NaN"}', '{"$numberDecimal":"NaN"}'),
    '{"$numberDouble":"-Infinity"}': ("-Infinity", '{"$numberDouble":"-Infinity"}'),
    '{"$date":"2026-11-05T10:00:00Z"}': (
        '{"$date": "2026-11-05T10:00:00Z"}',
        '{"$date": {"$numberLong": "1793872800000"}}',
        '{"$date": 1793872800000}',
        '{"$date": "2026-11-05T11:30:00.000+0130"}',
    ),
    '{"$date":"2026-11-05T10:00:00.120Z"}': (
        '{"$date": "2026-11-05T10:00:00.12Z"}',
        '{"$date": 1793872800120}',
    ),
    '{"$date":{"$numberLong":"-1"}}': (
        '{"$date": {"$numberLong": "-1"}}',
        '{"$date": -1}',
        '{"$date": "1969-12-31T23:59:59.999Z"}',
    ),
    '{"$binary":{"base64":"a2Fma2E=","subType":"00"}}': (
        '{"$binary": {"base64": "a2Fma2E=", "subType": "00"}}',
        '{"$binary": "a2Fma2E=", "$type": "00"}',
        '{"$binary": "a2Fma2E=", "$type": "0"}',
    ),
    UUID: (
        UUID,
        f'{{"$binary": "{UUID_BYTES}", "$type": "04"}}',
        '{"$uuid": "c8edabc3-f738-4ca3-b68d-aa92a91478a3"}',
    ),
    # The order of members counts (M2).
    '{"nums":[10,0.5],"hi":"kafka"}': (
        '{"nums": [10.0, 0.5], "hi": "kafka"}',
        '{"nums": [{"$numberLong": "10"}, {"$numberDouble": "0.5"}], "hi": "kafka"}',
    ),
    '{"hi":"kafka","nums":[10,0.5]}': ('{"hi": "kafka", "nums": [10.0, 0.5]}',),
    '{"t":{"$date":"2026-11-05T10:00:00Z"},"s":"{\\"$date\\":5} 1.0","n":{"b":1,"a":null}}': (
        '{"t": {"$date": "2026-11-05T10:00:00Z"}, "s": "{\\"$date\\":5} 1.0", '
        '"n": {"b": 1, "a": null}}',
        '{"t": {"$date": {"$numberLong": "1793872800000"}}, "s": "{\\"$date\\":5} 1.0", '
        '"n": {"b": {"$numberLong": "1"}, "a": null}}',
    ),
}


def ids(landing: Landing) -> None:
    landing.on(DAYS[0])
    one = Collection("ids", landing)
    for n, (of_key, *texts) in enumerate(IDS.values()):
        one.says("c", f'{{"n": {n}, "_id": {[*texts, of_key][0]}}}', of_key)
        for m, text in enumerate(texts):
            one.says("u", f'{{"_id": {text}, "n": {n}, "m": {m}}}', text)
    landing.on(DAYS[1])
    for n, (of_key, *_) in enumerate(IDS.values()):
        if n % 2:
            one.says("d", None, of_key)
        else:
            one.says("u", f'{{"_id": {of_key}, "n": {n + 100}}}', of_key)


NOT_FINITE = (
    '{"_id": 1, "a": NaN, "b": [-Infinity,Infinity], "c": "NaN, \\"NaN", "d": -1, "e": {"f":NaN}}'
)


LONG = ['"a\\"NaN"', "-1.5"] * 30_000  # more than Java's stack would bear


def not_finite(landing: Landing) -> None:
    landing.on(DAYS[0])
    one = Collection("numbers", landing)
    one.says("c", NOT_FINITE, "1")
    one.says("c", '{"_id": 2, "a": NaNs}', "2")
    one.says("c", '{"_id": 3, "a": Infinity, "b": nan}', "3")
    one.says("c", f'{{"_id": 4, "n": [{", ".join(LONG)}, NaN]}}', "4")
    two = Collection("ratios", landing)
    two.says("c", '{"_id": 1, "ratio": NaN}', "1")
    two.says("c", '{"_id": 2, "ratio": {"$numberDouble": "-Infinity"}}', "2")


def old(landing: Landing) -> None:
    """Debezium 1.x: `patch` and `filter`, and no key in the message."""
    landing.on(DAYS[0])
    one = Collection("old", landing)
    long = '{"_id" : {"$numberLong" : "1004"}}'
    one.says("c", '{"_id" : {"$numberLong" : "1004"},"name" : "Anne"}')
    one.says("c", '{"_id" : {"$numberLong" : "1005"},"name" : "Bob"}')
    one.says("u", None, patch='{"$set": {"name": "x"}}', filter=long)
    one.says("u", None, patch='{"_id" : {"$numberLong" : "1005"},"name" : "Bo"}', filter=long)
    one.says("d", None, filter=long)


def schemas(landing: Landing) -> None:
    landing.on(DAYS[0])
    one = Collection("schemas", landing)
    one.with_schema("c", f'{{"_id": {OID}, "v": 1}}', OID)
    one.with_schema("u", f'{{"_id": {OID}, "v": 2}}', SAME_OID)


def typed(landing: Landing) -> None:
    landing.on(DAYS[0])
    one = Collection("typed", landing)
    one.says(
        "c",
        '{"_id": 1, "name": "Anne", "n": {"$numberLong": "9007199254740993"}, '
        '"price": {"$numberDecimal": "1.25"}, "at": {"$date": 1780000000123}, '
        '"home": {"city": "X", "zip": [1]}, "document": "d", "more": 1}',
        "1",
    )
    one.says(
        "c",
        '{"_id": 2, "n": 5, "at": {"$date": "2026-11-04T10:00:00Z"}, "name": {"$oid": "ab"}}',
        "2",
    )
    one.says("c", '{"_id": 3, "at": {"$date": {"$numberLong": "1780000000000"}}}', "3")
    landing.on(DAYS[1])
    one.says("u", '{"_id": 1, "name": "Anne"}', "1")


def odd(landing: Landing) -> None:
    landing.on(DAYS[0])
    one = Collection("moved", landing)
    texts = ("{}", "[]", "5", "{", '{"_id": 1, "_id": 2}', '{"_id": 1} x', "", '{"n": 1}', None, 5)
    for text in (*texts, {"_id": 1}):
        one.says("c", text, "1")
        one.says("d", text, "1", filter=text)
    for key in (5, "x", "1 2", "1, 2", "", None, {"$oid": "a"}):
        one.says("d", None, key)
        one.says("c", '{"_id": 7, "n": 1}', key)
    for op in ("t", "x", None, 5, "m"):
        one.says(op, '{"_id": 1, "n": 1}', "1")
    one.says("c", '{"_id": 1, "n": 1}', "1", source={"connector": "mongodb", "db": "shop"})
    one.says("c", '{"_id": 1, "n": 1}', "1", source={"connector": "mongodb", "collection": "moved"})
    one.says("c", '{"_id": 1, "n": 1}', "1", source=None)


@pytest.fixture(scope="module")
def landing() -> Landing:
    landing = Landing(DAYS[0])
    for tell in (people, ids, not_finite, old, schemas, typed, odd):
        tell(landing)
    return landing


@pytest.fixture(scope="module")
def options(landing: Landing, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp(SOURCE)
    return lakes.write_source(folder, landing.landed, "debezium-mongodb", tables=TABLES)


@pytest.fixture(scope="module")
def lake(lake_of: LakeOf, options: dict[str, Any]) -> Lake:
    made = lake_of({SOURCE: options}, DAYS[0])
    lakes.run_all(made, SOURCE, DAYS)
    return made


def test_every_record_is_read_as_the_model_reads_it(
    lake: Lake, options: dict[str, Any], landing: Landing
) -> None:
    lakes.assert_as_model(lake, SOURCE, options, landing.landed)
    lakes.assert_tables_as_model(lake, SOURCE, options, landing.landed)


def test_a_document_is_its_id_and_its_text(lake: Lake) -> None:
    assert lakes.rows_of(lake, SOURCE, "shop.people", DAYS[1]) == [
        {"_id": "1", "document": '{"name": "Anne Marie", "_id": 1}'}
    ]


def test_ids_of_all_kinds_are_those_of_the_message_keys(lake: Lake) -> None:
    first = {row["_id"] for row in lakes.rows_of(lake, SOURCE, "shop.ids", DAYS[0])}
    assert first == set(IDS)
    last = {row["_id"] for row in lakes.rows_of(lake, SOURCE, "shop.ids", DAYS[1])}
    assert last == set(list(IDS)[::2])


def test_what_json_has_no_number_for_is_extended_json_in_its_place(lake: Lake) -> None:
    wrapped = NOT_FINITE.replace('"a": NaN', '"a": {"$numberDouble":"NaN"}')
    wrapped = wrapped.replace('"f":NaN', '"f":{"$numberDouble":"NaN"}')
    for sign in ("-", ""):
        number = f"{sign}Infinity"
        wrapped = wrapped.replace(f"[{number}", f'[{{"$numberDouble":"{number}"}}')
        wrapped = wrapped.replace(f",{number}", f',{{"$numberDouble":"{number}"}}')
    rows = {r["_id"]: r["document"] for r in lakes.rows_of(lake, SOURCE, "shop.numbers", DAYS[0])}
    assert rows.keys() == {"1", "4"}
    assert rows["1"] == wrapped
    last = '{"$numberDouble":"NaN"}]}'
    assert rows["4"] == f'{{"_id": 4, "n": [{", ".join(LONG)}, {last}'
    ratios = {r["_id"]: r["ratio"] for r in lakes.rows_of(lake, SOURCE, "shop.ratios", DAYS[0])}
    assert math.isnan(ratios["1"])
    assert ratios["2"] == -math.inf


def test_an_update_without_the_document_is_quarantined_with_the_cure(lake: Lake) -> None:
    details = [
        row["detail"]
        for row in lakes.stage_rows(lake, SOURCE, "quarantine")
        if row["topic"] == "shop.shop.people"
    ]
    assert len(details) == 1
    assert details[0].startswith("op u without a document in after: set capture.mode=")


def test_events_of_debezium_1_are_read_by_filter_and_by_whole_patches(lake: Lake) -> None:
    rows = lakes.rows_of(lake, SOURCE, "shop.old", DAYS[0])
    assert [(row["_id"], json.loads(row["document"])["name"]) for row in rows] == [("1005", "Bo")]


def test_configured_columns_take_the_place_of_the_document(lake: Lake) -> None:
    rows = {row["_id"]: row for row in lakes.rows_of(lake, SOURCE, "shop.typed", DAYS[0])}
    first = rows["1"]
    assert (first["name"], first["n"], first["document"]) == ("Anne", 9007199254740993, "d")
    assert first["price"] == Decimal("1.25")
    assert first["home"] == '{"city":"X","zip":[1]}'
    assert first["at"] == datetime.fromtimestamp(1780000000.123, timezone.utc)
    assert (rows["2"]["name"], rows["2"]["n"]) == ("ab", 5)
    assert rows["3"]["at"] == datetime.fromtimestamp(1780000000, timezone.utc)
    later = {row["_id"]: row for row in lakes.rows_of(lake, SOURCE, "shop.typed", DAYS[1])}
    assert (later["1"]["name"], later["1"]["n"]) == ("Anne", None)


# Ids, and whether a table of them that the version before made goes on; `{}` stands for the text.
STANDING = [
    ([OID, '"a"', "1004", '{"$numberLong": "5"}', "true"], True),
    (['{"$date": {"$numberLong": "1793872800000"}}'], False),
    (['{"$binary": "a2Fma2E=", "$type": "00"}'], False),
    (['{"$numberDouble": "7.0"}'], False),
    (['{"a": 1}', '{"a": 1, "b": 2}'], True),
    (['{"b": 1, "a": 2}'], False),
]


@pytest.mark.slow
def test_a_table_with_ids_that_are_written_otherwise_now_stops_with_how_to_make_it_anew(
    lake_of: LakeOf, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(DAYS[0])
    texts = {f"t{n}": ids for n, (ids, _) in enumerate(STANDING)}
    typed = {f"typed{n}": ids[-1:] for n, (ids, _) in enumerate(STANDING[4:])}
    for day in DAYS:
        landing.on(day)
        for collection, ids in {**texts, **typed}.items():
            for sent in ids:
                Collection(collection, landing).says("c", f'{{"_id": {sent}, "n": 1}}', sent)
    tables: dict[str, Any] = {f"shop.{collection}": {} for collection in texts}
    tables |= {f"shop.{collection}": {"columns": {"n": "int"}} for collection in typed}
    options = lakes.write_source(tmp_path, landing.landed, "debezium-mongodb", tables=tables)
    lake = lake_of({name: options}, DAYS[0])
    with monkeypatch.context() as before:
        before.setattr(mongodb, "id_text", lambda value, _: extended_json.plain_id_text(value))
        before.setattr(stage, "has_document_ids", lambda day: False)
        lakes.run_all(lake, name, DAYS[:1])
    lakes.run_stages(lake, name, DAYS[1:])
    _, errors = lakes.run_tables(lake, name, DAYS[1:])
    stopped = {table: str(error) for (table, _), error in errors.items()}
    goes_on = {f"shop.t{n}": goes_on for n, (_, goes_on) in enumerate(STANDING)}
    # Without the document nothing shows the order of an id's members.
    assert stopped.keys() == {t for t, goes in goes_on.items() if not goes} | {
        f"shop.{collection}" for collection in typed
    }
    assert f"--table shop.t1 --from {DAYS[0]} --to {DAYS[1]}" in stopped["shop.t1"]
    assert "have the connector take a new snapshot" in stopped["shop.t1"]
    lakes.run_all(lake, name, DAYS, ["shop.t1"], force=True)
    assert len(lakes.rows_of(lake, name, "shop.t1", DAYS[1])) == 1
