"""Which row an event is about (FORMATS D5–D10, W3, W4): key columns as sent.

The keys here are *raw*: JSON text of the key columns as the message wrote them. Canonical
keys need column types; :mod:`cdc_assets.cdc.changes.keys` makes them once the schemas are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cdc_assets.cdc.envelopes.connect import SCHEMA, has_start, parts_of
from cdc_assets.cdc.envelopes.envelope import SourceSettings, TableSettings
from cdc_assets.cdc.envelopes.formats import FORMATS
from cdc_assets.cdc.envelopes.headers import header
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    get,
    is_object,
    is_one_of,
    is_present,
    literal,
    literals,
    members_of,
)
from cdc_assets.cdc.values.placeholders import placeholder_forms
from cdc_assets.cdc.values.strict_json import DOCUMENT, digits_of, document_in

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
# The text of the message key; null where it is null or empty.
MESSAGE_KEY = "nullif(CAST(key AS string), '')"
_NO_MEMBERS = "CAST(map() AS map<string, variant>)"


def with_message_key(
    records: Query, key_row: Callable[[Sql], Sql] | None = None, known_schema: Sql | None = None
) -> Query:
    """Add `key_row` (MAP<STRING, VARIANT>), `key_scalar` (VARIANT), `key_is_garbage`, `key_schema`.

    All are null or false where there is no message key (D6): null, empty, JSON null, or a struct
    without members. `key_schema` is the text of the key's own schema.

    Args:
        records: has `key_text` (:data:`MESSAGE_KEY`) and `key_doc`, the same as strict JSON.
        key_row: gives the key columns among the members, where not all are.
        known_schema: the key's schema, where that does not stand in the key.
    """
    digits = case((_may_be_huge("key_text"), digits_of("key_doc", "key_text")))
    exact = records.extend({"_key_digits": digits, "_key_parts": parts_of("key_text")})
    own = case(
        ("_key_digits IS NOT NULL", members_of("_key_digits")),
        otherwise=get("key_doc", DOCUMENT, "map<string, variant>"),
    )
    opened = exact.extend({"_key_own": own})
    wraps = "map_contains_key(_key_own, 'schema') AND map_contains_key(_key_own, 'payload')"
    wrapped = opened.extend({"_key_payload": case((wraps, "try_element_at(_key_own, 'payload')"))})
    read = wrapped.extend(
        {
            "_key_members": case(
                ("_key_payload IS NOT NULL", members_of("_key_payload")), otherwise="_key_own"
            ),
            # What is not a row.
            "_key_value": case(
                ("_key_payload IS NOT NULL", "_key_payload"),
                ("_key_own IS NULL", f"coalesce(_key_digits, {document_in('key_doc')})"),
            ),
        }
    )
    is_list = "(_key_members IS NULL AND try_cast(_key_value AS array<variant>) IS NOT NULL)"
    # The schema as it was sent, where it stands first: rebuilding its text costs more than reading.
    sent = f"substring(_key_parts[0], {len(SCHEMA) + 1})"
    other = "try_element_at(_key_own, 'schema')"
    schema = case(
        (has_start("key_text", "_key_parts"), sent),
        (f"_key_payload IS NOT NULL AND {is_object(other)}", f"to_json({other})"),
    )
    if known_schema is not None:
        schema = f"coalesce({known_schema}, {schema})"
    return read.extend(
        {
            "key_row": case(
                ("size(_key_members) > 0", key_row("_key_members") if key_row else "_key_members")
            ),
            "key_scalar": case(
                (
                    f"_key_members IS NULL AND {is_present('_key_value')} AND NOT {is_list} "
                    "AND to_json(_key_value) <> '\"\"'",
                    "_key_value",
                )
            ),
            "key_schema": case(("size(_key_members) > 0", schema)),
            "key_is_garbage": f"(key_text IS NOT NULL AND key_doc IS NULL) OR {is_list}",
        }
    ).drop(*("_key_digits", "_key_parts", "_key_own", "_key_payload", "_key_members", "_key_value"))


def _may_be_huge(text: Sql) -> Sql:
    return f"length({text}) > 5 AND {text} RLIKE '[0-9][eE]|[0-9]{{39}}'"


def with_header_keys(records: Query) -> Query:
    """Add `header_old_key` and `header_new_key`, raw key JSON of the D9 headers."""
    steps = {"header_old_key": OLD_KEY, "header_new_key": NEW_KEY}
    texts = records.extend({f"_{n}": _header_text(header) for n, header in steps.items()})
    documents = texts.extend(
        {f"_{n}_doc": case((f"_{n} IS NOT NULL", f"try_parse_json(_{n})")) for n in steps}
    )
    # A text converter writes the struct's JSON as a JSON string.
    inner = {n: f"try_parse_json({get(f'_{n}_doc', '$', 'string')})" for n in steps}
    unquoted = documents.extend(
        {
            f"_{n}_key": case(
                (f"_{n}_doc IS NULL", "NULL"),
                (f"{members_of(text)} IS NOT NULL", text),
                otherwise=f"_{n}_doc",
            )
            for n, text in inner.items()
        }
    )
    keys = {}
    for n in steps:
        document, payload = f"_{n}_key", get(f"_{n}_key", "$.payload")
        is_wrapped = (
            f"{get(document, '$.schema')} IS NOT NULL AND {members_of(payload)} IS NOT NULL"
        )
        key = case((is_wrapped, payload), otherwise=document)
        keys[n] = case((f"{members_of(document)} IS NOT NULL", f"to_json({key})"))
    read = unquoted.extend(keys)
    return read.drop(*(f"_{n}{part}" for n in steps for part in ("", "_doc", "_key")))


# ``Struct{id=1,region=eu}``: how Connect's text converter writes a struct of plain values.
_JAVA_STRUCT = r'^Struct\{[^=,{}"\\]+=[^=,{}"\\]*(,[^=,{}"\\]+=[^=,{}"\\]*)*\}$'


def _header_text(name: str) -> Sql:
    """A header's key as JSON text, from what its converter wrote; null without the header."""
    text = f"CAST({header(name)} AS string)"
    members = f"regexp_replace({text}, '([^=,{{}}]+)=([^=,{{}}]*)', '\"$1\":\"$2\"')"
    java = f"regexp_replace({members}, '^Struct', '')"
    plain = case((f"{text} RLIKE {literal(_JAVA_STRUCT)}", java), otherwise=text)
    return case(("size(headers) > 0", plain))


def with_raw_keys(records: Query, source: SourceSettings) -> Query:
    """Add `key_raw`, `old_key_raw`, `new_key_raw`, `key_reason` and `key_detail`.

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
    named = case((f"size({names}) > 0", names))
    rows = records.extend(
        {
            # What a delete says of a row after it is not a row.
            "_after": case(("e_op <> 'd'", "e_after_row")),
            "_old": case((whole_old, "e_before_row")),
            # The configured columns, or those that the message names.
            "_names": f"coalesce({_configured_names(source)}, {named})",
        }
    )
    # Where old rows are whole, an image says more than a message key without types.
    images = ["_after", "_old", "key_row"] if whole_old_rows else ["_after", "key_row", "_old"]
    unsent = [] if whole_old_rows else placeholder_forms(source.unavailable_value)
    has_both = "e_op = 'u' AND _after IS NOT NULL AND _old IS NOT NULL"
    of_image = "coalesce(_names, map_keys(key_row))"
    picks = {"_picked": _from_any(images, "_names", unsent, "key_scalar")}
    for name, image in (("_picked_old", "_old"), ("_picked_now", "_after")):
        picks[name] = case((has_both, _from_any([image], of_image, unsent, None)))
    picked = rows.extend(picks)
    judged = picked.extend(
        {
            "_complete": _is_complete("_picked", "_names"),
            "_has_null": "coalesce(exists(map_values(_picked), v -> is_variant_null(v)), false)",
            "_old_json": case((_is_complete("_picked_old", of_image), "to_json(_picked_old)")),
            "_now_json": case((_is_complete("_picked_now", of_image), "to_json(_picked_now)")),
        }
    )
    texts = judged.extend({"_key": case(("_complete", "to_json(_picked)"))})
    appends = is_one_of(table, [n for n, t in source.tables.items() if t.key == "none"])
    by_row = is_one_of(table, [n for n, t in source.tables.items() if t.key == "row"])
    # O14: the old row itself is the key.
    has_key = f"NOT ({appends} OR {by_row} OR e_op = 't')"
    needs_key = (
        f"e_kind = 'row' AND e_reason IS NULL AND {is_one_of(table, source.tables)} AND e_op <> 't'"
    )
    malformed = "_has_null OR key_is_garbage OR (key_scalar IS NOT NULL AND _picked IS NULL)"
    reason = case(
        (f"NOT coalesce({needs_key}, false)", "NULL"),
        (appends, "CASE WHEN e_op NOT IN ('c', 'r') THEN 'missing_key' END"),
        (by_row, "CASE WHEN e_op IN ('u', 'd') AND e_before_row IS NULL THEN 'missing_key' END"),
        ("_complete", "NULL"),
        (malformed, "'malformed_key'"),
        otherwise="'missing_key'",
    )
    reasoned = texts.extend({"key_reason": reason})
    moved = case(("NOT (_old_json <=> coalesce(_now_json, _key))", "_old_json"))
    return reasoned.extend(
        {
            "key_raw": case((has_key, "_key")),
            "old_key_raw": case((has_key, f"coalesce({_same_columns('header_old_key')}, {moved})")),
            "new_key_raw": case((has_key, _same_columns("header_new_key"))),
            "key_detail": case(
                ("key_reason IS NULL", "NULL"),
                (appends, "concat('op ', e_op, ' on a table with key: none')"),
                (by_row, "concat('op ', e_op, ' without before, with key: row')"),
                (
                    "key_reason = 'malformed_key'",
                    "'a key column is null, or the message key is unreadable'",
                ),
                otherwise="'neither the message key nor the images that may serve hold the key'",
            ),
        }
    ).drop(
        *("_after", "_old", "_names", "_picked", "_picked_old", "_picked_now"),
        *("_complete", "_has_null", "_old_json", "_now_json", "_key"),
    )


def _same_columns(header: Sql) -> Sql:
    """The columns of the event's key out of a header's; null where it lacks one, or has a null."""
    names = "json_object_keys(_key)"
    held = f"coalesce({members_of(f'try_parse_json({header})')}, {_NO_MEMBERS})"
    chosen = f"map_filter({held}, (name, v) -> array_contains({names}, name))"
    is_known = f"{header} IS NOT NULL AND _key IS NOT NULL"
    return case((f"{is_known} AND {_is_complete(chosen, names)}", f"to_json({chosen})"))


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


def _from_any(images: Sequence[str], names: Sql, unsent: Sequence[str], scalar: Sql | None) -> Sql:
    """Each key column from the first image that holds it, as MAP<STRING, VARIANT>.

    A column that none holds is left out. Where no names are known, the message key as it is.
    """
    found = []
    for image in images:
        member = f"try_element_at({image}, name)"
        if unsent:
            # R2: a placeholder is not a value of a key.
            member = f"CASE WHEN to_json({member}) NOT IN ({literals(unsent)}) THEN {member} END"
        found.append(member)
    if scalar is not None:
        found.append(f"CASE WHEN size({names}) = 1 THEN {scalar} END")
    value = f"coalesce({', '.join(found)})"
    entries = f"map_from_arrays({names}, transform({names}, name -> {value}))"
    chosen = f"map_filter({entries}, (name, v) -> v IS NOT NULL)"
    return case((f"{names} IS NOT NULL", chosen), otherwise="key_row")


def _is_complete(row: Sql, names: Sql) -> Sql:
    """Are all the key columns there, none of them null? Null names: those that are there."""
    all_there = f"size({row}) = size({names})"
    whole = case((f"{names} IS NOT NULL", all_there), otherwise="true")
    present = f"forall(map_values({row}), v -> v IS NOT NULL AND NOT is_variant_null(v))"
    return f"coalesce({row} IS NOT NULL AND {whole} AND {present}, false)"


def key_columns(table: TableSettings) -> tuple[str, ...] | None:
    """The configured key columns, if the configuration names any."""
    return table.key if isinstance(table.key, tuple) else None
