"""The schemas that messages carry: found once a day, registered in the table `schemas`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import DataFrame, Row

from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.envelopes.formats import format_of
from cdc_assets.cdc.json_reader import read
from cdc_assets.cdc.registry.decode import Decoding
from cdc_assets.cdc.sqltext import literal
from cdc_assets.cdc.values import column_types as types

SchemaOfTable = tuple[str, str]  # a table and the id of a message schema


class RecordPlace(NamedTuple):
    """The position of a record in Kafka, and the day that it landed."""

    landing_date: date
    topic: str
    partition: int
    offset: int


def first_uses(groups: Iterable[Row]) -> dict[SchemaOfTable, RecordPlace]:
    """The first record of each table and message schema.

    Args:
        groups: rows of :func:`~cdc_assets.cdc.changes.reading.group_records`.
    """
    first: dict[SchemaOfTable, RecordPlace] = {}
    for r in groups:
        if r.table_name is not None and r.schema_id is not None:
            place = RecordPlace(r.landing_date, r.topic, r.partition, r.first_offset)
            key = (r.table_name, r.schema_id)
            first[key] = min(first.get(key, place), place)
    return first


def schema_texts(
    landing: DataFrame,
    settings: SourceConfig,
    first: Mapping[SchemaOfTable, RecordPlace],
    decoding: Decoding | None = None,
) -> dict[str, str]:
    """The canonical JSON of message schemas by id; one record of each is read again.

    The parsed records have only the ids. Only the files that may hold the examples are read.
    """
    known = {} if decoding is None else decoding.connect_schemas
    texts = {schema_id: known[schema_id] for _, schema_id in first if schema_id in known}
    examples: dict[str, RecordPlace] = {}
    for (_, schema_id), place in first.items():
        if schema_id not in known:
            examples[schema_id] = min(examples.get(schema_id, place), place)
    if not examples:
        return texts
    path = format_of(settings).schema_path
    schema = read("value", id=("hash", *path), text=("object", *path))
    rows = landing.where(" OR ".join(f"({_is_at(place)})" for place in set(examples.values())))
    found = rows.selectExpr(f"{schema} AS found").where("found.id IS NOT NULL").select("found.*")
    return texts | {row.id: row.text for row in found.collect()}  # schemas are few


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

    def landed_before(self, day: date) -> set[SchemaOfTable]:
        """The schemas that landed before a day."""
        return {key for key, first in self.first_landed.items() if first < day}

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
