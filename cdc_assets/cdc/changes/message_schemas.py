"""The schemas that messages carry: found once a day, registered in the table `schemas`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.parse import with_texts
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.envelopes.connect import SCHEMA, has_start, parts_of, with_document
from cdc_assets.cdc.envelopes.formats import format_of
from cdc_assets.cdc.registry.decode import Decoding
from cdc_assets.cdc.sqltext import case, few_rows, is_object, literal, with_columns
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.strict_json import DOCUMENT, document_in, with_strict_json

log = logging.getLogger(__name__)


SchemaOfTable = tuple[str, str]  # a table and the id of a message schema


class RecordPlace(NamedTuple):
    """The position of a record in Kafka, and the day that it landed."""

    landing_date: date
    topic: str
    partition: int
    offset: int


class Carried(NamedTuple):
    """How a message identifies its schema: the hash of its start, else the schema's own id."""

    start_hash: str | None
    schema_id: str | None


@dataclass(frozen=True)
class MessageSchemas:
    """The schemas of some records.

    `start_ids` has the id of each start's schema, None for a start that is not ``{"schema":`` and a
    whole object; `texts` each schema's canonical JSON by id.
    """

    start_ids: Mapping[str, str | None]
    texts: Mapping[str, str]

    @property
    def no_starts(self) -> list[str]:
        """Starts after which a message must not be cut."""
        return [start for start, schema_id in self.start_ids.items() if schema_id is None]

    def id_of(self, carried: Carried) -> str | None:
        """The id of the schema that a record carries."""
        if carried.start_hash is None:
            return carried.schema_id
        return self.start_ids[carried.start_hash]


def read_schemas(
    landing: DataFrame,
    settings: SourceConfig,
    examples: Mapping[Carried, RecordPlace],
    decoding: Decoding | None = None,
) -> MessageSchemas:
    """The schemas of some records; one example of each schema that they carry is read again.

    The parsed records only carry hashes. Only the files that may hold the examples are read.
    """
    known = {} if decoding is None else decoding.starts
    registered = {start: known[start] for start, _ in examples if start in known}
    places = {place for what, place in examples.items() if what.start_hash not in known}
    found = _canonical(landing.sparkSession, registered) if registered else []
    if places:
        found += _carried_at(landing, settings, places)
    starts: dict[str, str | None] = {}
    by_id: dict[str, str] = {}
    for row in found:  # schemas are few
        if row.start_hash is not None:
            starts[row.start_hash] = row.start_id
        for schema_id, text in ((row.start_id, row.start_text), (row.schema_id, row.schema_text)):
            if schema_id is not None:
                by_id[schema_id] = text
    return MessageSchemas(starts, by_id)


_SCHEMAS = (
    "start_hash",
    "start_text",
    "sha2(start_text, 256) AS start_id",
    "schema_text",
    "sha2(schema_text, 256) AS schema_id",
)


def _canonical(spark: SparkSession, starts: Mapping[str, str]) -> list[Row]:
    """The schemas of some starts with their JSON, as rows of :func:`_carried_at`."""
    rows = few_rows(spark, starts.items(), start_hash="string", text="string")
    text = {"start_text": "to_json(try_parse_json(text))", "schema_text": "CAST(NULL AS string)"}
    return with_columns(rows, text).selectExpr(*_SCHEMAS).collect()


def _carried_at(
    landing: DataFrame, settings: SourceConfig, places: Iterable[RecordPlace]
) -> list[Row]:
    """The schemas that records at some places carry: in their starts, and elsewhere."""
    rows = landing.where(" OR ".join(f"({_is_at(place)})" for place in places))
    documents = with_document(with_texts(rows), cut=False)
    parts = parts_of("value_text")
    start = case((has_start("value_text", parts), f"{parts}[0]"))
    texts = with_strict_json(
        format_of(settings).read(documents).extend({"_start": start}),
        start_schema=f"substring(_start, {len(SCHEMA) + 1})",
    )
    start_text = case(
        (is_object("start_schema", DOCUMENT), f"to_json({document_in('start_schema')})")
    )
    found = texts.extend({"start_text": start_text, "schema_text": "to_json(e_schema)"})
    return found.select(*_SCHEMAS).plan().collect()


def _is_at(place: RecordPlace) -> str:
    return (
        f"landing_date = DATE'{place.landing_date}' AND topic = {literal(place.topic)} "
        f"AND partition = {place.partition} AND offset = {place.offset}L"
    )


@dataclass(frozen=True)
class KnownSchemas:
    """The message schemas of a source, read once for a stage."""

    columns: Mapping[SchemaOfTable, types.ColumnTypes]
    first_landed: Mapping[SchemaOfTable, date]

    def latest(self, table_name: str, day: date) -> types.ColumnTypes:
        """All columns of a table by its schemas up to a day; the latest schema wins.

        The widest type wins among schemas of one day: nothing says which came first.
        """
        if (table_name, day) not in self._latest:
            by_day: dict[date, types.ColumnTypes] = {}
            for schema_id, landed in self._by_table.get(table_name, ()):
                if landed <= day:
                    known = by_day.get(landed, {})
                    by_day[landed] = types.widest(known, self.columns[table_name, schema_id])
            merged: types.ColumnTypes = {}
            for landed in sorted(by_day):
                merged = types.over(merged, by_day[landed])
            self._latest[table_name, day] = merged
        return self._latest[table_name, day]

    # Cached: every schema and key of a day needs it.
    @cached_property
    def _latest(self) -> dict[tuple[str, date], types.ColumnTypes]:
        return {}

    @cached_property
    def _by_table(self) -> Mapping[str, Sequence[tuple[str, date]]]:
        found: dict[str, list[tuple[str, date]]] = {}
        for (name, schema_id), landed in sorted(self.first_landed.items()):
            found.setdefault(name, []).append((schema_id, landed))
        return found

    def with_first_days(self, to: Mapping[SchemaOfTable, date | None]) -> KnownSchemas:
        """These with other first days; None removes a schema that no record has any more."""
        gone = {key for key, first in to.items() if first is None}
        columns = {key: known for key, known in self.columns.items() if key not in gone}
        first = {
            key: to.get(key) or day for key, day in self.first_landed.items() if key not in gone
        }
        return KnownSchemas(columns, first)

    def joined(self, rows: Iterable[Row], settings: SourceConfig) -> KnownSchemas:
        """These and some rows of the table `schemas`, each with its earliest day."""
        parsed, landed = dict(self.columns), dict(self.first_landed)
        for row in rows:
            key = (row.table_name, row.schema_id)
            parsed[key] = columns_of_schema(row.schema, settings)
            landed[key] = min(row.first_landed, landed.get(key, date.max))
        return KnownSchemas(parsed, landed)


NO_SCHEMAS = KnownSchemas({}, {})


def columns_of_schema(text: str, settings: SourceConfig) -> types.ColumnTypes:
    """The row's columns, in order, by a schema that a message carried."""
    return format_of(settings).columns_of_schema(types.schema_document(text))


def schemas_carried(groups: Iterable[Row]) -> dict[tuple[str | None, Carried], RecordPlace]:
    """The first record of each table that carries a schema."""
    found: dict[tuple[str | None, Carried], RecordPlace] = {}
    for r in groups:
        carried = Carried(r.start_hash, r.schema_id)
        if carried == Carried(None, None) or not r.is_read:
            continue
        place = RecordPlace(r.landing_date, r.topic, r.partition, r.first_offset)
        before = found.get((r.table_name, carried), place)
        found[r.table_name, carried] = min(before, place)
    return found


def with_schema_ids(parsed: DataFrame, schemas: MessageSchemas) -> DataFrame:
    """Put each start's schema in `schema_id`."""
    rows = [(start, schema_id) for start, schema_id in schemas.start_ids.items()]
    if not rows:
        return parsed.drop("start_hash")
    known = few_rows(parsed.sparkSession, rows, start_hash="string", _start_id="string")
    joined = parsed.join(F.broadcast(known), "start_hash", "left")
    ids = F.expr("coalesce(_start_id, schema_id)")
    return joined.withColumn("schema_id", ids).drop("start_hash", "_start_id")
