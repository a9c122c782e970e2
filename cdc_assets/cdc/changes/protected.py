"""Columns that must not leave the landing: left out (`exclude`), or hashed (`hash`).

It happens just before records are written to `changes` and `control`: no later stage knows such a
value. A hash is the SHA-256 of the salt followed by the value's text,
where the text is that of the canonical key (decimals without trailing zeros, bytes base64, times
ISO): a key and a column that refers to it have the same hash in all tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.keys import KeyShapes
from cdc_assets.cdc.changes.message_schemas import KnownSchemas
from cdc_assets.cdc.config import SourceConfig, TableConfig
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.json_reader import object_of, overlay, read, values_at
from cdc_assets.cdc.sqltext import Query, Sql, case, get, is_one_of, literal, literals, local_frame
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.json_value import itself
from cdc_assets.cdc.values.placeholders import placeholder_forms
from cdc_assets.cdc.values.readers import canonical_key

FOUND = "protected_found"
_HASH = replace(types.TEXT, encoding="salted SHA-256 of the value, in hexadecimal digits")
PROTECTED = "protected"  # the destination of facts that say which columns were found
_IMAGES, _KEYS = ("before", "after"), ("key", "old_key", "new_key")
_SEE = literal("not shown, because columns of this source are protected: see landing")
# Details of these reasons show a part of the message.
_SHOWING = ("malformed_landing_line", "malformed_json", "unknown_op", "malformed_key")
_SHOWS = f"reason IN ({literals(_SHOWING)}) AND NOT startswith(detail, 'the key is (')"
_HIDDEN_TEXTS = {
    # The columns in an unreadable record are unknown.
    "detail": case((f"coalesce({_SHOWS}, false)", _SEE), otherwise="detail"),
    # A statement, or a message of an application, may hold any value.
    "payload": case(
        ("payload IS NULL OR op IN ('transaction', 'heartbeat')", "payload"), otherwise=_SEE
    ),
    "message_key_json": case(("kind <> 'tombstone'", "message_key_json")),
}

Known = tuple[tuple[str, types.ColumnType], ...]


def check_found(facts: Iterable[Row], source: str, settings: SourceConfig) -> None:
    """Stop a source with `protect: strict` where a column to protect is missing.

    Args:
        facts: of the days to be written.
        source: the source.
        settings: its rules; with `protect: check` a check of the day reports them instead.

    Raises:
        ConfigError: a column is in no row of a day: its values may have another name there.
    """
    if settings.protect != "strict":
        return
    faults = [
        f"sources.{source}.tables.{table}: no row of {day} has the column {', '.join(missing)}, "
        "which exclude or hash names: its values may have another name there. Nothing of the day "
        "was written. Correct the name, or take it out"
        for (day, table), missing in missing_columns(facts, settings).items()
    ]
    if faults:
        raise ConfigError(faults)


def missing_columns(
    facts: Iterable[Row], settings: SourceConfig
) -> dict[tuple[date, str], list[str]]:
    """The columns to protect that no row has, by day and table."""
    found: dict[tuple[date, str], set[str]] = {}
    for fact in facts:
        if fact.destination == PROTECTED:
            found_on_day = found.setdefault((fact.landing_date, fact.table_name), set())
            found_on_day.update(fact.columns_found or ())
    missing = {
        (day, table): [
            column
            for column in (*settings.tables[table].exclude, *settings.tables[table].hash)
            if columns.isdisjoint(settings.tables[table].sent_names([column]))
        ]
        for (day, table), columns in found.items()
        if table in settings.tables
    }
    return {place: columns for place, columns in missing.items() if columns}


def check_keys(keys: KeyShapes, source: str, settings: SourceConfig) -> None:
    """See that no excluded column is part of a message key.

    Raises:
        ConfigError: one is; without it rows of different keys would become one.
    """
    faults = {
        f"sources.{source}.tables.{shape.table_name}.exclude: {column} is a column of the key. "
        "Name it in hash, or set a key without it"
        for shape in keys.shapes
        for column in sorted(_table(settings, shape.table_name).excluded)
        if column in shape.names
    }
    if faults:
        raise ConfigError(sorted(faults))


def protect(
    records: DataFrame,
    settings: SourceConfig,
    salt: str | None,
    days: Iterable[date],
    schema_ids: Iterable[tuple[str, str]],
    schemas: KnownSchemas,
) -> DataFrame:
    """Leave out and hash the columns that the configuration names.

    Args:
        records: routed records with the columns of `changes`, `detail`, `reason` and
            `message_key_json`.
        settings: the source's, with the rules.
        salt: what hashes begin with; None where no column is hashed.
        days: their landing days.
        schema_ids: the tables and message schemas of these records.
        schemas: the columns of these schemas.

    Returns:
        The same records, and `protected_found`: the columns to protect that a record with a row or
        a key has. Records are left as they are where no column is named.
    """
    if not settings.is_protected:
        return records
    if salt is not None:  # joined as a row: Spark shows and logs the literals of plans
        row = local_frame(records.sparkSession, [(salt,)], "_salt string")
        records = records.crossJoin(F.broadcast(row))
    tables = {name: table for name, table in settings.tables.items() if table.is_protected}
    plans = {name: _plans(name, table, days, schema_ids, schemas) for name, table in tables.items()}
    texts = _texts(tables)
    # A value is parsed once: its canonical form asks for it several times.
    most = max(len(table.hashed) for table in tables.values())
    values = {
        f"_{name}_{n}": f"try_parse_json(get(_{name}_hashed, {n}))"
        for name in (*_IMAGES, *_KEYS)
        for n in range(most)
    }
    hidden = {
        **_hidden_images(tables, plans, settings.unavailable_value),
        **_hidden_keys(tables),
        **_HIDDEN_TEXTS,
    }
    found = Query(records).extend(texts).extend(values).extend({FOUND: _found(tables)})
    steps = (*texts, *values, *(["_salt"] if salt is not None else []))
    return found.replace(hidden).drop(*steps).plan()


def _texts(tables: Mapping[str, TableConfig]) -> dict[str, Sql]:
    """The names in each image and key, and the JSON of the values to hash."""
    is_table = is_one_of("table_name", tables)
    by_table = [(name, table.hashed) for name, table in tables.items() if table.hash]
    found = {}
    for document in (*_IMAGES, *_KEYS):
        names = f"{read(document, names=('names',))}.names"
        found[f"_{document}_names"] = case((is_table, names))
        found[f"_{document}_hashed"] = case(
            *(
                (f"table_name = {literal(name)}", values_at(document, f"array({literals(hashed)})"))
                for name, hashed in by_table
            )
        )
    return found


def _hidden_images(
    tables: Mapping[str, TableConfig], plans: Mapping[str, Mapping[Known, Sql]], unsent: str
) -> dict[str, Sql]:
    return {
        image: case(
            (f"NOT ({is_one_of('table_name', tables)})", image),
            *(
                (condition, _hidden(image, tables[table], dict(known), unsent))
                for table, by_types in plans.items()
                for known, condition in by_types.items()
            ),
        )
        for image in _IMAGES
    }


def _hidden_keys(tables: Mapping[str, TableConfig]) -> dict[str, Sql]:
    return {
        key: case(
            (f"NOT ({is_one_of('table_name', tables)})", key),
            *(
                (f"table_name = {literal(name)}", _hidden(key, table))
                for name, table in tables.items()
            ),
        )
        for key in _KEYS
    }


def _found(tables: Mapping[str, TableConfig]) -> Sql:
    """The columns to protect that a change has; null for a record without a row."""
    none = "CAST(array() AS array<string>)"
    members = ", ".join(f"coalesce(_{n}_names, {none})" for n in (*_IMAGES, "key"))
    named = case(
        *(
            (
                f"table_name = {literal(name)}",
                f"array({literals([*table.excluded, *table.hashed])})",
            )
            for name, table in tables.items()
        )
    )
    has_row = "destination = 'changes' AND (_before_names IS NOT NULL OR _after_names IS NOT NULL)"
    return case((has_row, f"array_intersect({named}, concat({members}))"))


def _plans(
    name: str,
    table: TableConfig,
    days: Iterable[date],
    schema_ids: Iterable[tuple[str, str]],
    schemas: KnownSchemas,
) -> dict[Known, Sql]:
    """The types of a table's hashed columns, with the condition of the records that have them.

    The types come from the message's own schema, else from the schemas until its day, else from
    the configuration, as for keys.
    """
    configured = types.columns_of_config(table.columns)
    places: dict[Known, list[Sql]] = {}
    for day in days:
        latest = types.over(configured, schemas.latest(name, day))
        for schema_id in sorted({i for t, i in schema_ids if t == name} | {""}):
            own = types.over(latest, schemas.columns.get((name, schema_id), {}))
            known = tuple((column, own[column]) for column in table.hashed if column in own)
            place = f"(landing_date = {literal(day)} AND coalesce(schema_id, '') = "
            places.setdefault(known, []).append(f"{place}{literal(schema_id)})")
    if len(places) == 1:
        return {known: f"table_name = {literal(name)}" for known in places}
    return {
        known: f"table_name = {literal(name)} AND ({' OR '.join(conditions)})"
        for known, conditions in places.items()
    }


def protected_schemas(schemas: KnownSchemas, settings: SourceConfig) -> KnownSchemas:
    """The schemas as `changes` has their columns: hashes are texts, excluded columns are not."""
    if not settings.is_protected:
        return schemas
    protected = {
        (name, schema_id): _columns(columns, _table(settings, name))
        for (name, schema_id), columns in schemas.columns.items()
    }
    return replace(schemas, columns=protected)


def _columns(columns: Mapping[str, types.ColumnType], table: TableConfig) -> types.ColumnTypes:
    return {
        name: replace(_HASH, comment=kind.comment) if name in table.hashed else kind
        for name, kind in columns.items()
        if name not in table.excluded
    }


def _table(settings: SourceConfig, table: str) -> TableConfig:
    return settings.tables.get(table) or TableConfig()


def _hidden(
    document: str,
    table: TableConfig,
    known: types.ColumnTypes | None = None,
    unsent: str | None = None,
) -> Sql:
    """The JSON of an image, or of a key, without excluded columns and with hashes.

    Args:
        document: the column that has it.
        table: the rules of its table.
        known: the types of the columns of an image; the values of a key are canonical.
        unsent: the text of a value that was not sent, which can't be hashed (R2).
    """
    row = document
    if table.exclude:
        names = f"array_except(_{document}_names, array({literals(table.excluded)}))"
        row = object_of(names, values_at(document, names))
    if not table.hash:
        return row
    hashes = (
        _hash(document, n, (known or {}).get(name), unsent) for n, name in enumerate(table.hashed)
    )
    return overlay(
        row, object_of(f"array({literals(table.hashed)})", f"array({', '.join(hashes)})")
    )


def _hash(document: str, n: int, kind: types.ColumnType | None, unsent: str | None) -> Sql:
    """The JSON of the hash of the value in `_…_n`; null where that is null, or not there."""
    sent, value = f"get(_{document}_hashed, {n})", f"_{document}_{n}"
    form = _canonical(value, kind)
    # The JSON itself where VARIANT can't hold the value.
    text = f"coalesce({get(form, '$', 'string')}, to_json({form}), {sent})"
    hashed = f"concat('\"', sha2(concat(_salt, {text}), 256), '\"')"
    unhashed = [(f"{sent} = 'null'", "CAST(NULL AS string)")]
    if unsent is not None:
        placeholder = literal(json.dumps(unsent, ensure_ascii=False))
        unhashed.append((f"{sent} IN ({literals(placeholder_forms(unsent))})", placeholder))
    return case(*unhashed, otherwise=hashed)


def _canonical(value: Sql, kind: types.ColumnType | None) -> Sql:
    """A value in its canonical form, or as it was sent where no column can hold it."""
    if kind is None or kind.wire == "unknown":
        return value
    return f"coalesce({canonical_key(itself(value), kind)}, {value})"
