"""What a statement of DDL does to the rows of tables (FORMATS D21), read from its text.

Only statements that change rows, or which row a key names, without an event for each are told:
those that drop, empty, rename or replace tables and partitions, and those that change a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc_assets.cdc.names import TableName, table_name_sql
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    get,
    interpreted_if,
    is_one_of,
    literal,
    literals,
    lookup,
)

DROP, DROP_DATABASE, TRUNCATE = "DROP", "DROP DATABASE", "TRUNCATE"
RENAME, PARTITION, KEY = "RENAME", "DROP PARTITION", "ALTER KEY"
KINDS = (DROP, DROP_DATABASE, TRUNCATE, RENAME, PARTITION, KEY)
# After these no row of the table is left.
EMPTYING = (DROP, DROP_DATABASE, TRUNCATE)
# Sources that say so beside the text, or instead of it.
_OF_SOURCE_OPS = {"ERASE": DROP, "table-drop": DROP, "database-drop": DROP_DATABASE}

_COMMENT = r"(?s)/\*.*?\*/"
# Possessive: Java's stack bears no long repetition that may be taken back.
_NAME = r'(?:`[^`]*+(?:``[^`]*+)*+`|"[^"]*+(?:""[^"]*+)*+"|\[[^\]]++\]|[^\s,.;()`"\[\]]++)'
_TABLE = rf"{_NAME}(?:\s*\.\s*{_NAME}){{0,2}}"
_TABLES = rf"{_TABLE}(?:\s*,\s*{_TABLE})*+"
_ALTER = r"(?is)^ALTER\s+(?:(?:IGNORE|ONLINE|OFFLINE)\s+)*+TABLE\s+(?:IF\s+EXISTS\s+)?(?:ONLY\s+)?"
_RENAMES = r"\sRENAME\s+(?!(?:COLUMN|INDEX|KEY|CONSTRAINT|PARTITION|SUBPARTITION)\b)"
_NAMED = (
    # Each takes out of a statement the names of its tables.
    r"(?is)^(?:DROP\s+TABLE|CREATE\s+OR\s+REPLACE\s+TABLE|DROP\s+(?:DATABASE|SCHEMA)"
    rf"|TRUNCATE(?:\s+TABLE)?)\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?({_TABLES})",
    r"(?is)^RENAME\s+(?:TABLES?\s+)?(.*)$",
    rf"{_ALTER}({_TABLE})",
    rf"{_ALTER}{_TABLE}\s.*{_RENAMES}(?:(?:TO|AS)\s+|=\s*)?({_TABLE})",
    rf"{_ALTER}{_TABLE}{_RENAMES}(?:(?:TO|AS)\s+|=\s*)?({_TABLE})",
)


def kind_of(text: Sql, source_op: Sql) -> Sql:
    """One of :data:`KINDS`; null for any other statement.

    Args:
        text: the statement, or what changed as Debezium's `tableChanges` (JSON).
        source_op: what the source calls it, or its kind where it was read before.
    """
    alters = f"s RLIKE {literal(_ALTER)}"
    kind = case(
        (f"s RLIKE {_pattern('DROP TABLE')}", literal(DROP)),
        (f"s RLIKE {_pattern('CREATE OR REPLACE TABLE')}", literal(DROP)),
        (f"s RLIKE {_pattern('DROP (?:DATABASE|SCHEMA)')}", literal(DROP_DATABASE)),
        (f"s RLIKE {_pattern('TRUNCATE')}", literal(TRUNCATE)),
        (f"s RLIKE {_pattern('RENAME')}", literal(RENAME)),
        (f"{alters} AND s RLIKE {literal('(?is)' + _RENAMES)}", literal(RENAME)),
        (f"{alters} AND s RLIKE {literal(_PARTITIONS)}", literal(PARTITION)),
        (f"{alters} AND s RLIKE {literal(_PRIMARY_KEY)}", literal(KEY)),
        (f"size({_dropped('s')}) > 0", literal(DROP)),
        (is_one_of(source_op, KINDS), source_op),
        otherwise=lookup(source_op, _OF_SOURCE_OPS),
    )
    # The text is named often: it is planned, and cleaned, once.
    return f"get(transform(array({_cleaned(text)}), s -> {kind}), 0)"


_PARTITIONS = r"(?is)\s(?:DROP|TRUNCATE|EXCHANGE)\s+(?:SUB)?PARTITION"
_PRIMARY_KEY = r"(?is)\sPRIMARY\s+KEY"


def _pattern(words: str) -> Sql:
    return literal("(?is)^" + words.replace(" ", r"\s+") + r"\s")


def _cleaned(text: Sql) -> Sql:
    return f"trim(regexp_replace({text}, {literal(_COMMENT)}, ' '))"


def _dropped(text: Sql) -> Sql:
    """The ids of tables that `tableChanges` say are gone."""
    changes = get(f"try_parse_json({text})", "$", "array<struct<type: string, id: string>>")
    return f"transform(filter({changes}, c -> c.type = 'DROP'), c -> c.id)"


def tables_of(text: Sql, kind: Sql, table_name: Sql, database: Sql) -> Sql:
    """The tables that a statement is about, as ARRAY<STRING> of `namespace.table`.

    Of a dropped database the array has its name.

    Args:
        text: the statement.
        kind: :func:`kind_of`.
        table_name: the table that the event itself names.
        database: the database that it was run in.
    """
    said = _cleaned(text)
    named = ", ".join(f"nullif(regexp_extract({said}, {literal(p)}, 1), '')" for p in _NAMED)
    listed = rf"regexp_replace(concat_ws(',', {named}), '(?i)\\s+TO\\s+', ',')"
    found = (
        f"concat(regexp_extract_all({listed}, {literal(_TABLE)}, 0), {_or_none(_dropped(text))})"
    )
    namespace = f"nullif(regexp_extract({table_name}, {literal(_NAMESPACE)}, 1), '')"
    default = f"coalesce({namespace}, {database})"
    unquoted = r"""regexp_replace(p, '^[`"\\[]|[`"\\]]$', '')"""
    parts = f"transform(regexp_extract_all(q, {literal(_NAME)}, 0), p -> {unquoted})"
    last, before = f"element_at({parts}, -1)", f"try_element_at({parts}, -2)"
    full = f"coalesce({table_name_sql(before, last)}, {table_name_sql(default, last)})"
    of_kind = case((f"{kind} = {literal(DROP_DATABASE)}", last), otherwise=full)
    own = case(
        (f"{kind} = {literal(DROP_DATABASE)}", f"array({database})"),
        otherwise=f"array({table_name})",
    )
    names = f"transform({found}, q -> {of_kind})"
    return f"array_compact(CASE WHEN size({found}) > 0 THEN {names} ELSE {own} END)"


_NAMESPACE = r'^(.*)\.(?:"[^"]*+(?:""[^"]*+)*+"|[^."]++)$'


def _or_none(names: Sql) -> Sql:
    return f"coalesce({names}, CAST(array() AS array<string>))"


def hit_of(tables: Mapping[str, str], kind: Sql, named: Sql) -> Sql:
    """Those of some tables that a statement is about, as ARRAY<STRING>.

    Args:
        tables: their names, with the database of each.
        kind: :func:`kind_of`.
        named: :func:`tables_of`.
    """
    listed = ", ".join(
        f"named_struct('name', {literal(name)}, 'db', {literal(db)})" for name, db in tables.items()
    )
    is_hit = case(
        (f"{kind} = {literal(DROP_DATABASE)}", f"array_contains({named}, t.db)"),
        otherwise=f"array_contains({named}, t.name)",
    )
    return f"transform(filter(array({listed}), t -> {is_hit}), t -> t.name)"


def namespaces_of(tables: Mapping[str, object]) -> dict[str, str]:
    """Each table's namespace: its database, where the source has no schemas."""
    return {name: TableName.parse(name).namespace for name in tables}


def with_emptied(events: Query, tables: Mapping[str, str], emptied: Iterable[str]) -> Query:
    """Make a truncate, `op` t, of each table that a statement of DDL empties (D21).

    The statement itself stays where it hits a table that keeps its rows, or none.

    Args:
        events: has the columns of `Envelope`.
        tables: all tables of the source, with the database of each.
        emptied: those of them that are emptied so.
    """
    is_statement = "e_kind = 'control' AND e_op = 'ddl' AND NOT coalesce(e_is_snapshot, false)"
    empties = f"_kind IN ({literals(EMPTYING)})"
    judged = events.extend(
        {"_kind": interpreted_if(is_statement, kind_of("e_payload", "e_source_op"))}
    )
    tables_named = tables_of("e_payload", "_kind", "e_table_name", "e_db")
    named = judged.extend({"_named": interpreted_if(empties, tables_named)})
    hit = named.extend({"_hit": interpreted_if(empties, hit_of(tables, "_kind", "_named"))})
    found = hit.extend({"_found": f"filter(_hit, n -> n IN ({literals(emptied)}))"})
    # A null stands for the statement itself.
    itself, none = "array(CAST(NULL AS string))", "CAST(array() AS array<string>)"
    others = case(("size(_found) < size(_hit)", itself), otherwise=none)
    rows = found.extend(
        {"_rows": case(("size(_found) > 0", f"concat(_found, {others})"), otherwise=itself)}
    )
    is_emptied = "_emptied IS NOT NULL"
    replaced = {
        "e_kind": case((is_emptied, "'row'"), otherwise="e_kind"),
        "e_op": case((is_emptied, "'t'"), otherwise="e_op"),
        "e_source_op": case((is_emptied, "_kind"), otherwise="e_source_op"),
        "e_table_name": case((is_emptied, "_emptied"), otherwise="e_table_name"),
        # It is that of statements.
        "e_schema_id": case((f"NOT ({is_emptied})", "e_schema_id")),
        "e_row_number": case(("size(_found) > 0", "_number"), otherwise="e_row_number"),
    }
    exploded = rows.explode("_rows", "_number", "_emptied").replace(replaced)
    return exploded.drop("_kind", "_named", "_hit", "_found", "_rows", "_number", "_emptied")
