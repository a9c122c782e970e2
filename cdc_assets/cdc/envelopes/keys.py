"""Which row an event is about (FORMATS D5–D10, W3, W4): key columns as sent.

The keys here are *raw*: JSON text of the key columns as the message wrote them. Canonical
keys need column types; :mod:`cdc_assets.cdc.changes.keys` makes them once the schemas are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cdc_assets.cdc.envelopes.envelope import SourceSettings, TableSettings
from cdc_assets.cdc.envelopes.formats import FORMATS
from cdc_assets.cdc.envelopes.headers import header
from cdc_assets.cdc.json_reader import Wanted, names_in, object_of, pick, read, values_at
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    interpreted_if,
    is_one_of,
    let,
    literal,
    literals,
)
from cdc_assets.cdc.values.placeholders import placeholder_forms

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
# The text of the message key; null where it is null or empty.
MESSAGE_KEY = "nullif(CAST(key AS string), '')"
# What is read of a message key, into the struct `k`.
KEY_MEMBERS: dict[str, Wanted] = {
    "json": ("json",),
    "kind": ("kind",),
    "text": ("text",),
    "payload_text": ("text", "payload"),
    "names": ("names",),
    "schema_kind": ("kind", "schema"),
    "schema": ("object", "schema"),
    "payload": ("json", "payload"),
    "payload_kind": ("kind", "payload"),
    "payload_names": ("names", "payload"),
}


def with_message_key(
    records: Query, key_row: Callable[[Sql], Sql] | None = None, known_schema: Sql | None = None
) -> Query:
    """Add `key_row`, `key_scalar`, `key_schema` (JSON), `key_scalar_text` and `key_is_garbage`.

    All are null or false where there is no message key (D6): null, empty, JSON null, or a struct
    without members. `key_schema` is the key's own schema.

    Args:
        records: has `key_text` (:data:`MESSAGE_KEY`) and `k`, of the members `KEY_MEMBERS`.
        key_row: gives the key columns among the members, where not all are.
        known_schema: the key's schema, where that does not stand in the key.
    """
    wraps = "k.schema_kind IS NOT NULL AND k.payload_kind IS NOT NULL"
    value, kind, text = (
        case((wraps, f"k.{part}"), otherwise=f"k.{whole}")
        for part, whole in (("payload", "json"), ("payload_kind", "kind"), ("payload_text", "text"))
    )
    own_schema = case((wraps, "k.schema"))
    is_row = f"{kind} = 'object' AND {value} <> '{{}}'"
    is_scalar = f"{kind} NOT IN ('object', 'array', 'null')"
    schema = own_schema if known_schema is None else f"coalesce({known_schema}, {own_schema})"
    return records.extend(
        {
            "key_row": case((is_row, key_row(value) if key_row else value)),
            "key_scalar": case((f"{is_scalar} AND {value} <> '\"\"'", value)),
            "key_scalar_text": case((is_scalar, f"nullif({text}, '')")),
            "key_schema": case((is_row, schema)),
            "key_is_garbage": "coalesce(key_text IS NOT NULL AND NOT coalesce(k.is_json, false) "
            f"OR {kind} = 'array', false)",
        }
    )


# Of a header's key: itself, what stands in it as a text, and the payload beside a schema.
_HEADER_MEMBERS: dict[str, Wanted] = {
    "row": ("object",),
    "text": ("string",),
    "schema_kind": ("kind", "schema"),
    "payload": ("object", "payload"),
}


def with_header_keys(records: Query) -> Query:
    """Add `header_old_key` and `header_new_key`, raw key JSON of the D9 headers."""

    def key_in(document: Sql) -> Sql:
        is_wrapped = f"{document}.schema_kind IS NOT NULL AND {document}.payload IS NOT NULL"
        return case((is_wrapped, f"{document}.payload"), otherwise=f"{document}.row")

    def key_of(sent: Sql) -> Sql:
        # A text converter writes the struct's JSON as a JSON string.
        inner = read(f"{sent}.text", **_HEADER_MEMBERS)
        return f"coalesce({let('inner', inner, key_in('inner'))}, {key_in(sent)})"

    has_any = "size(headers) > 0"
    keys = {"header_old_key": OLD_KEY, "header_new_key": NEW_KEY}
    return records.extend(
        {
            name: interpreted_if(
                has_any, let("sent", read(_header_text(header), **_HEADER_MEMBERS), key_of("sent"))
            )
            for name, header in keys.items()
        }
    )


# ``Struct{id=1,region=eu}``: how Connect's text converter writes a struct of plain values.
_JAVA_STRUCT = r'^Struct\{[^=,{}"\\]+=[^=,{}"\\]*(,[^=,{}"\\]+=[^=,{}"\\]*)*\}$'


def _header_text(name: str) -> Sql:
    """A header's key as JSON text, from what its converter wrote; null without the header."""
    text = f"CAST({header(name)} AS string)"
    members = f"regexp_replace({text}, '([^=,{{}}]+)=([^=,{{}}]*)', '\"$1\":\"$2\"')"
    java = f"regexp_replace({members}, '^Struct', '')"
    return case((f"{text} RLIKE {literal(_JAVA_STRUCT)}", java), otherwise=text)


def with_raw_keys(records: Query, source: SourceSettings) -> Query:
    """Add `key_raw`, `old_key_raw`, `new_key_raw` and `key_reason`.

    Args:
        records: has the columns of `Envelope`, :func:`with_message_key` and
            :func:`with_header_keys`.
    """
    table, whole_old_rows = "e_table_name", FORMATS[source.format].whole_old_rows
    # A key column may be taken from such a row (D5, D8, D10).
    full = [n for n, t in source.tables.items() if t.replica_identity == "full"]
    whole_old = "true" if whole_old_rows else is_one_of(table, full)
    # A list of nulls names none.
    names = "array_sort(array_distinct(array_compact(e_key_names)))"
    named = case((f"e_key_names IS NOT NULL AND size({names}) > 0", names))
    # The configured columns, or those that the message names; else the message key says them.
    names = f"coalesce({_configured_names(source)}, {named})"
    rows = records.extend(
        {
            # What a delete says of a row after it is not a row.
            "_after": case(("e_op <> 'd'", "e_after")),
            "_old": case((whole_old, "e_before")),
            "_names": names,
            "_columns": f"coalesce({names}, {names_in('key_row')})",
        }
    )
    # Where old rows are whole, an image says more than a message key without types.
    images = ["_after", "_old", "key_row"] if whole_old_rows else ["_after", "key_row", "_old"]
    unsent = [] if whole_old_rows else placeholder_forms(source.unavailable_value)
    is_one = "key_scalar IS NOT NULL AND size(_names) = 1"
    scalar = case((is_one, object_of("_names", "array(key_scalar)")))
    has_both = "e_op = 'u' AND _after IS NOT NULL AND _old IS NOT NULL"
    # R2: a placeholder is not a value of a key; of a message key without names it is as sent.
    ignored = f"CAST(array({literals(unsent)}) AS array<string>)"
    none = "CAST(array() AS array<string>)"
    picked = rows.extend(
        {
            "_key": case(
                ("_names IS NULL", pick("_columns", "array(key_row)", none)),
                otherwise=pick("_names", f"array({', '.join([*images, scalar])})", ignored),
            ),
            "_old_json": case((has_both, pick("_columns", "array(_old)", ignored))),
            "_now_json": case((has_both, pick("_columns", "array(_after)", ignored))),
        }
    )
    appends, by_row = (_tables_with_key(source, key) for key in ("none", "row"))
    # O14: the old row itself is the key.
    has_key = f"NOT ({appends} OR {by_row} OR e_op = 't')"
    needs_key = (
        f"e_kind = 'row' AND e_reason IS NULL AND {is_one_of(table, source.tables)} AND e_op <> 't'"
    )
    malformed = (
        f"{_has_null(images, unsent)} OR key_is_garbage "
        "OR (key_scalar IS NOT NULL AND _names IS NULL)"
    )
    reason = case(
        (f"NOT coalesce({needs_key}, false)", "NULL"),
        (appends, "CASE WHEN e_op NOT IN ('c', 'r') THEN 'missing_key' END"),
        (by_row, "CASE WHEN e_op IN ('u', 'd') AND e_before IS NULL THEN 'missing_key' END"),
        ("_key IS NOT NULL", "NULL"),
        (interpreted_if("_key IS NULL", malformed), "'malformed_key'"),
        otherwise="'missing_key'",
    )
    moved = case(("NOT (_old_json <=> coalesce(_now_json, _key))", "_old_json"))
    return picked.extend(
        {
            "key_reason": reason,
            "key_raw": case((has_key, "_key")),
            "old_key_raw": case((has_key, f"coalesce({_same_columns('header_old_key')}, {moved})")),
            "new_key_raw": case((has_key, _same_columns("header_new_key"))),
        }
    ).drop("_after", "_old", "_names", "_columns", "_key", "_old_json", "_now_json")


def key_detail(source: SourceSettings) -> Sql:
    """What there is to say of a `key_reason` of :func:`with_raw_keys`."""
    appends, by_row = (_tables_with_key(source, key) for key in ("none", "row"))
    return case(
        ("key_reason IS NULL", "NULL"),
        (appends, "concat('op ', e_op, ' on a table with key: none')"),
        (by_row, "concat('op ', e_op, ' without before, with key: row')"),
        (
            "key_reason = 'malformed_key'",
            "'a key column is null, or the message key is unreadable'",
        ),
        otherwise="'neither the message key nor the images that may serve hold the key'",
    )


def _tables_with_key(source: SourceSettings, key: str) -> Sql:
    """Is the record of a table whose `key` in cdc.yaml is this word?"""
    return is_one_of("e_table_name", [n for n, t in source.tables.items() if t.key == key])


def _same_columns(header: Sql) -> Sql:
    """The columns of the event's key out of a header's; null where it lacks one, or has a null."""
    chosen = pick("_columns", f"array({header})", "CAST(array() AS array<string>)")
    return case((f"{header} IS NOT NULL AND _key IS NOT NULL", chosen))


def _has_null(images: Sequence[str], unsent: Sequence[str]) -> Sql:
    """Is the first value of a key column null?"""
    found = []
    for image in images:
        value = f"get({values_at(image, '_columns')}, i)"
        if unsent:
            value = f"CASE WHEN {value} NOT IN ({literals(unsent)}) THEN {value} END"
        found.append(value)
    first = case(
        ("_names IS NULL", values_at("key_row", "_columns")),
        otherwise=f"transform(_columns, (name, i) -> coalesce({', '.join(found)}))",
    )
    return f"coalesce(array_contains({first}, 'null'), false)"


def _configured_names(source: SourceSettings) -> Sql:
    """The key columns that the configuration names for the record's table, in order of name."""
    by_key: dict[tuple[str, ...], list[str]] = {}
    for name, table in source.tables.items():
        if isinstance(table.key, tuple):
            by_key.setdefault(table.key, []).append(name)
    branches = (
        (is_one_of("e_table_name", tables), f"array({literals(sorted(key))})")
        for key, tables in by_key.items()
    )
    return case(*branches, otherwise="CAST(NULL AS array<string>)")


def key_columns(table: TableSettings) -> tuple[str, ...] | None:
    """The configured key columns, if the configuration names any."""
    return table.key if isinstance(table.key, tuple) else None
