"""Tables that go into another one: partitions, shards, tenants (FORMATS R8).

An event of such a leaf becomes one of the table that it goes into, before its key is read. Its
rows get a column that says the leaf, and those that `add` asks for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cdc_assets.cdc.config import TABLE_OF_ROW, SourceConfig
from cdc_assets.cdc.json_reader import names_in, object_of, values_at
from cdc_assets.cdc.names import TableName, pattern_of_names, wildcards_in_parts
from cdc_assets.cdc.sqltext import Query, Sql, case, interpreted_if, is_one_of, literal, literals

_IMAGES = ("e_before", "e_after")
_KEYS = ("key_row", "header_old_key", "header_new_key")
_NUMBER = re.compile(r"(\{\d+\})")


def with_leaves(events: Query, source: SourceConfig) -> Query:
    """Add `e_source_table`, the leaf of an event, null of others; its table is the one it goes to.

    Args:
        events: has the columns of `Envelope`.
    """
    if not source.has_leaves:
        return events.extend({"e_source_table": "CAST(NULL AS string)"})
    known = events.extend({"e_into": _into(source)})
    added = {TABLE_OF_ROW: _json_text("e_table_name"), **_added(source, "e_table_name")}
    images = {image: _with_members(image, added, "e_into IS NOT NULL") for image in _IMAGES}
    leaf = {"e_source_table": case(("e_into IS NOT NULL", "e_table_name"))}
    placed = known.extend(leaf).replace(images)
    return placed.replace({"e_table_name": "coalesce(e_into, e_table_name)"}).drop("e_into")


def with_added_keys(records: Query, source: SourceConfig) -> Query:
    """The columns of `add` in the keys that messages and headers have.

    Args:
        records: of :func:`with_leaves`, with the raw keys of messages and headers.
    """
    added = _added(source, "e_source_table")
    if not added:
        return records
    is_leaf = "e_source_table IS NOT NULL"
    return records.replace({key: _with_members(key, added, is_leaf) for key in _KEYS})


def _into(source: SourceConfig) -> Sql:
    """The table that an event's own table goes into; null where it goes into none."""
    branches = [(is_one_of("e_table_name", source.tables), "NULL")]
    for text in source.patterns_in_order:
        entry = source.table_patterns[text]
        into = literal(str(TableName.configured(entry.into)) if entry and entry.into else None)
        branches.append((_is_of(text, "e_table_name"), into))
    return case(*branches, otherwise="CAST(NULL AS string)")


def _is_of(text: str, name: Sql) -> Sql:
    return f"coalesce({name} RLIKE {literal(f'^{pattern_of_names(text)}$')}, false)"


def _added(source: SourceConfig, leaf: Sql) -> dict[str, Sql]:
    """The columns that `add` asks for, by name: JSON of a text each, null where a leaf has none."""
    columns: dict[str, list[tuple[Sql, Sql]]] = {}
    for text in source.patterns_in_order:
        entry = source.table_patterns[text]
        for column, template in (entry.add if entry else {}).items():
            value = _filled(template, text, leaf)
            columns.setdefault(column, []).append((_is_of(text, leaf), _json_text(value)))
    return {column: case(*values) for column, values in columns.items()}


def _filled(template: str, text: str, leaf: Sql) -> Sql:
    """A template in which numbers in braces are what wildcards of an entry's name stand for."""
    pattern, parts = pattern_of_names(text), []
    by_part = wildcards_in_parts(text)
    for part in _NUMBER.split(template):
        if not _NUMBER.fullmatch(part):
            parts.append(literal(part))
            continue
        plain, quoted = _groups(int(part[1:-1]), by_part)
        found = [f"regexp_extract({leaf}, {literal(pattern)}, {n})" for n in (plain, quoted)]
        parts.append(f"{found[0]}, replace({found[1]}, '\"\"', '\"')")
    return f"concat({', '.join(parts)})"


def _groups(number: int, by_part: Sequence[int]) -> tuple[int, int]:
    """The groups of a wildcard in the pattern: those of a part stand twice, the quoted behind."""
    before = 0
    for count in by_part:
        if number <= count:
            return 2 * before + number, 2 * before + count + number
        number, before = number - count, before + count
    raise ValueError(f"no wildcard {number}")


def _json_text(text: Sql) -> Sql:
    """A text as JSON."""
    return f"regexp_replace(to_json(array({text})), '^\\\\[|\\\\]$', '')"


def _with_members(image: Sql, added: Mapping[str, Sql], condition: Sql) -> Sql:
    """An image, JSON of an object, with more members, where a condition holds."""
    names = f"array_sort(array_union({names_in(image)}, array({literals(added)})))"
    given = ((f"name = {literal(n)}", f"coalesce({value}, v)") for n, value in added.items())
    new = case(*given, otherwise="v")
    values = f"zip_with({names}, {values_at(image, names)}, (name, v) -> {new})"
    is_there = f"{condition} AND {image} IS NOT NULL"
    return case((is_there, interpreted_if(is_there, object_of(names, values))), otherwise=image)
