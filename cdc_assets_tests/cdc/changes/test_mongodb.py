"""Debezium's events of MongoDB, from the landing to the day's table.

The shapes are those of Debezium's document on the connector: keys of all kinds of ids, documents
as texts of extended JSON, the events of 1.x.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.lake.catalog import Lake
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
    **{f"shop.{name}": {} for name in ("people", "ids", "old", "schemas", "moved")},
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


IDS = {
    OID: SAME_OID,
    "1004": "1004",
    '{"$numberLong": "1004000000000"}': "1004000000000",
    '"1004"': '"1004"',
    "12.50": "12.5",
    '{"nums": [10.0], "hi": "kafka"}': '{"hi":"kafka","nums":[10]}',
    '{"$binary": "a2Fma2E=", "$type": "00"}': '{"$binary":"a2Fma2E=","$type":"00"}',
    "null": "null",
}


def ids(landing: Landing) -> None:
    landing.on(DAYS[0])
    one = Collection("ids", landing)
    for n, sent in enumerate(IDS):
        one.says("c", f'{{"_id": {sent}, "n": {n}}}', sent)
    landing.on(DAYS[1])
    for n, sent in enumerate(IDS):
        if n % 2:
            one.says("d", None, sent)
        else:
            one.says("u", f'{{"_id": {sent}, "n": {n + 100}}}', sent)


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
    for tell in (people, ids, old, schemas, typed, odd):
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
    assert first == set(IDS.values())
    last = {row["_id"] for row in lakes.rows_of(lake, SOURCE, "shop.ids", DAYS[1])}
    assert last == set(list(IDS.values())[::2])


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
