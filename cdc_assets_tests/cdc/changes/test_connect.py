"""Messages that carry a schema: each is read as if no other had come before it."""

from __future__ import annotations

import hashlib
import json
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.changes.parse import parse
from cdc_assets.cdc.changes.reading import read_records
from cdc_assets.cdc.config import FORMATS, SourceConfig
from cdc_assets.cdc.lake.checkpoints import local_checkpoints
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets_tests import events as ev
from cdc_assets_tests.model import Record

TYPES = {"id": "int32", "payload": "string", "schema": "string"}
ROW = {"id": 1, "payload": ',"payload":', "schema": '{"schema":'}
SCHEMA = '{"type":"struct","fields":[],"doc":",\\"payload\\":"}'
# Its text holds what stands behind a schema.
HIDING = '{"type":"struct","fields":[],"payload":{}}'
EVENT = '{"op":"c","after":{"id":1},"source":{"schema":"public","table":"customers","lsn":5}}'
# D1, D2, D19: what starts like a known message, and is one or is none.
ODD = {
    "as Connect writes it": f'{{"schema":{SCHEMA},"payload":{EVENT}}}',
    "payload first": f'{{"payload":{EVENT},"schema":{SCHEMA}}}',
    "spaces": f'{{"schema": {SCHEMA},"payload":{EVENT}}}',
    "more members": f'{{"schema":{SCHEMA},"payload":{EVENT},"more":1}}',
    "schema twice": f'{{"schema":{SCHEMA},"payload":{EVENT},"schema":1}}',
    "payload twice": f'{{"schema":{SCHEMA},"payload":{EVENT},"payload":1}}',
    "cut in the schema": f'{{"schema":{SCHEMA}',
    "cut in the payload": f'{{"schema":{SCHEMA},"payload":{{"op":"c"',
    "text behind": f'{{"schema":{SCHEMA},"payload":{EVENT}}} x',
    "null payload": f'{{"schema":{SCHEMA},"payload":null}}',
    "null schema": f'{{"schema":null,"payload":{EVENT}}}',
    "a schema that is text": f'{{"schema":"x","payload":{EVENT}}}',
    "a broken schema": f'{{"schema":{{"type":}},"payload":{EVENT}}}',
    "a bare envelope": f'{{"schema":{SCHEMA},"payload":1,{EVENT[1:]}',
}


def _records() -> list[Record]:
    texts = [text.replace(SCHEMA, schema) for schema in (SCHEMA, HIDING) for text in ODD.values()]
    return [
        ev.created(ROW, types=TYPES),
        ev.updated(ROW, {**ROW, "id": 2}, types=TYPES),
        ev.deleted({"id": 1}, types=TYPES),
        ev.created(ROW, types={**TYPES, "v": "double"}),
        ev.created(ROW),
        ev.heartbeat(),
        ev.tombstone({"id": 1}),
        *(ev.raw(text.encode(), key=b'{"id":1}') for text in texts),
    ]


@pytest.fixture(scope="module")
def landing(spark: SparkSession) -> Any:
    rows = [
        (r.topic, 0, n, None, None, r.key, r.value, None, date(2026, 11, 4), None)
        for n, r in enumerate(_records())
    ]
    return spark.createDataFrame(rows, LANDING).localCheckpoint()


def _source(format: str) -> SourceConfig:
    return SourceConfig.model_validate(
        {"format": format, "landing": {"files": "x"}, "tables": {"public.customers": {}}}
    )


def test_the_schemas_of_messages_are_known_by_the_hash_of_their_json(landing: Any) -> None:
    with local_checkpoints() as checkpoints:
        schemas = read_records(landing, _source("debezium"), checkpoints).schemas
    assert len(schemas) == 4
    for schema_id, text in schemas.items():
        assert hashlib.sha256(text.encode()).hexdigest() == schema_id
        assert json.loads(text)["type"] == "struct"


@pytest.mark.parametrize("format", FORMATS)
def test_a_message_is_read_the_same_alone_and_behind_others_of_its_schema(
    landing: Any, format: str
) -> None:
    count = landing.count()
    alone, behind = (
        parse(landing.repartitionByRange(n, "offset"), _source(format)) for n in (count, 1)
    )
    rows = sorted(map(str, behind.collect()))
    assert rows == sorted(map(str, alone.select(*behind.columns).collect()))
    assert len(rows) == count
