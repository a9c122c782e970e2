"""Columns by their names in the lake: of events as they are read, of schemas, of earlier days.

What comes after has one name for a column, also where its source has renamed it and messages of
both names came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame

from cdc_assets.cdc.changes.message_schemas import KnownSchemas
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.json_reader import names_in, object_of, values_at
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Query, Sql, case, interpreted_if, literal, literals
from cdc_assets.cdc.values.column_types import ColumnTypes

_OBJECTS = ("before", "after", "key", "old_key", "new_key")


def object_in_lake(document: Sql, rename: Mapping[str, str]) -> Sql:
    """The JSON of an object, its members by the names of their columns in the lake.

    One that has two names of the same column stays as it is: they are two columns.
    """
    sent = names_in(document)
    given = ((f"name = {literal(name)}", literal(to)) for name, to in rename.items())
    names = f"transform({sent}, name -> {case(*given, otherwise='name')})"
    is_renamed = (
        f"coalesce(arrays_overlap({sent}, array({literals(rename)})), false) "
        f"AND size(array_distinct({names})) = size({names})"
    )
    # The names of an object are in order.
    members = (
        f"array_sort(zip_with({names}, {values_at(document, sent)}, (name, v) -> struct(name, v)))"
    )
    renamed = object_of(f"{members}.name", f"{members}.v")
    return case((is_renamed, interpreted_if(is_renamed, renamed)), otherwise=document)


def events_in_lake(events: Query, rename: Mapping[str, str]) -> Query:
    """Events of `changes`, the members of their images and keys by their names in the lake."""
    if not rename:
        return events
    return events.replace({name: object_in_lake(name, rename) for name in _OBJECTS})


def schemas_in_lake(schemas: KnownSchemas, settings: SourceConfig) -> KnownSchemas:
    """Message schemas, their columns by their names in the lake."""
    names = {name: table.rename for name, table in settings.tables.items() if table.rename}
    if not names:
        return schemas
    renamed = {
        (table, schema_id): _renamed(columns, names.get(table, {}))
        for (table, schema_id), columns in schemas.columns.items()
    }
    return replace(schemas, columns=renamed)


def _renamed(columns: ColumnTypes, rename: Mapping[str, str]) -> ColumnTypes:
    named = {rename.get(name, name): kind for name, kind in columns.items()}
    return named if len(named) == len(columns) else columns


def at_in_lake(frame: DataFrame, rename: Mapping[str, str]) -> DataFrame:
    """A table of an earlier day, its columns by their names of today."""
    return frame.withColumnsRenamed(_earlier(frame.columns, rename))


def rename_columns(
    lake: Lake, identifier: str, names: Sequence[str], rename: Mapping[str, str]
) -> dict[str, str]:
    """Give a table's columns the names that they are to have, with their values.

    A column stays as it is where another one has the name.

    Args:
        names: the names of the table's columns.

    Returns:
        By their names before it, those that were renamed.
    """
    earlier = _earlier(names, rename)
    for name, to in earlier.items():
        change = f"ALTER TABLE {identifier} RENAME COLUMN {quote(name)} TO {quote(to)}"
        with_retry(partial(lake.spark.sql, change))
    return earlier


def _earlier(names: Sequence[str], rename: Mapping[str, str]) -> dict[str, str]:
    """The columns that have an earlier name."""
    found: dict[str, str] = {}
    for name, to in rename.items():
        is_earlier = name in names and name not in rename.values()
        if is_earlier and to not in [*names, *found.values()]:
            found[name] = to
    return found
