"""Debezium's events of MongoDB: a document each, as a text of MongoDB's extended JSON.

A collection is a table ``<db>.<collection>`` of two columns: `_id`, the id as extended JSON text,
and `document`, the text as it was sent, but that what JSON has no number for, a bare `NaN`, is
extended JSON. Where cdc.yaml gives the table `columns`, these members take the place of `document`.
The id stands in `after`, in the message key (``{"id": "…"}``), and in Debezium 1.x in `filter`. An
update without the whole document can't be read: what `patch` and `updateDescription` say is a part
of one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from cdc_assets.cdc.envelopes.debezium import event_in, read_envelope
from cdc_assets.cdc.envelopes.debezium_event import event_members, parts, source_of, with_event
from cdc_assets.cdc.envelopes.envelope import (
    Format,
    SourceSettings,
    TableAndRow,
    object_in,
    table_and_row,
)
from cdc_assets.cdc.envelopes.extended_json import as_json, id_text
from cdc_assets.cdc.json_reader import Wanted, object_of, read, values_at
from cdc_assets.cdc.names import table_name_sql
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    interpreted_if,
    is_one_of,
    literal,
    literals,
)

ROW_OPS = ("c", "u", "d", "r")
ID, TEXT = "_id", "document"
_TEXTS = ("before", "after", "patch", "filter")  # documents, as texts
EVENT = event_members("collection", **{name: ("string", name) for name in _TEXTS})
# How extended JSON writes the values that JSON has no type for.
_SCALARS = ("$numberLong", "$numberInt", "$numberDouble", "$numberDecimal", "$oid")
_SCALAR_TEXTS: dict[str, Wanted] = {
    f"text{n}": ("text", *path.split("."))
    for n, path in enumerate((*_SCALARS, "$date.$numberLong", "$date"))
}
_NO_DOCUMENT = (
    " without a document in after: set capture.mode=change_streams_update_full on the connector "
    "(Debezium 1.x: upgrade it)"
)

Columns = Mapping[str, tuple[str, ...]]


def _read_mongodb(records: Query, columns: Columns) -> Query:
    """Read events of MongoDB.

    Args:
        records: has `d`, of the members `EVENT`.
        columns: the members that are read of the documents of some tables.

    Returns:
        The records with the columns of `Envelope`.
    """
    source = source_of(table="collection")
    # A document that takes another's place is sent whole, in 1.x as the patch.
    texts = (
        with_event(records, EVENT)
        .extend(parts())
        .extend(
            {
                "m_after": as_json("coalesce(nullif(e.after, ''), e.patch)"),
                "m_before": as_json("e.before"),
                "m_filter": as_json("e.filter"),
                "m_table": table_name_sql(source.name("db"), source.name("table")),
            }
        )
    )
    names = ("after", "before", "filter")
    wanted: dict[str, Wanted] = {"id": ("json", ID)}
    if columns:
        wanted["members"] = ("object",)
    documents = texts.extend(
        {
            "m_columns": _columns_of_table(columns),
            **{f"m_{n}_doc": read(f"m_{n}", **wanted) for n in names},
        }
    )
    ids = documents.extend({f"m_{n}_id": id_text(f"m_{n}_doc.id", f"m_{n}") for n in names})
    is_removed = "v_op_text = 'd' AND m_filter_id IS NOT NULL"
    removed = case((is_removed, f"to_json(named_struct('{ID}', m_filter_id))"))
    imaged = ids.extend(
        {
            "v_before": f"coalesce({_row('m_before', columns)}, {removed})",
            "v_after": case((f"v_op_text IN ({literals(ROW_OPS)})", _row("m_after", columns))),
        }
    )
    envelope = read_envelope(imaged, source, ROW_OPS, "true")
    detail = case(
        ("e_reason = 'missing_image'", f"concat('op ', v_op_text, {literal(_NO_DOCUMENT)})"),
        ("e_reason = 'missing_table'", "'source lacks db or collection'"),
        otherwise="e_detail",
    )
    return envelope.replace(
        {
            "e_detail": interpreted_if("e_reason IS NOT NULL", detail),
            "e_key_names": f"array('{ID}')",
            # A row has no more columns than cdc.yaml names.
            "e_columns": "CAST(NULL AS int)",
            # It says that documents are texts.
            "e_schema_id": "CAST(NULL AS string)",
        }
    )


def _columns_of_table(columns: Columns) -> Sql:
    """The members that are read of the documents of a record's table; null: their text."""
    by_members: dict[tuple[str, ...], list[str]] = {}
    for table, members in columns.items():
        by_members.setdefault(members, []).append(table)
    branches = (
        (is_one_of("m_table", tables), f"array({literals(members)})")
        for members, tables in by_members.items()
    )
    return case(*branches, otherwise="CAST(NULL AS array<string>)")


def _row(name: str, columns: Columns) -> Sql:
    """The row of a document, JSON; null where it has no id."""
    whole = f"to_json(named_struct('{ID}', {name}_id, '{TEXT}', {name}))"
    values = f"transform({values_at(f'{name}_doc.members', 'm_columns')}, v -> {_plain('v')})"
    names = f"concat(array('{ID}'), m_columns)"
    typed = object_of(names, f"concat(array({_json_of(f'{name}_id')}), {values})")
    row = case(("m_columns IS NOT NULL", typed), otherwise=whole) if columns else whole
    return case((f"{name}_id IS NOT NULL", row))


def _plain(value: Sql) -> Sql:
    """A member's JSON; of a value that says its own type, that of its text."""
    text = f"coalesce({', '.join(f's.{name}' for name in _SCALAR_TEXTS)})"
    scalar = f"get(transform(array({read(value, **_SCALAR_TEXTS)}), s -> {_json_of(text)}), 0)"
    return case((f"startswith({value}, '{{')", f"coalesce({scalar}, {value})"), otherwise=value)


def _json_of(text: Sql) -> Sql:
    """A text as JSON; null of null."""
    return f"nullif(btrim(to_json(array({text})), '[]'), 'null')"


def _key_row(key_row: Sql) -> Sql:
    """The id out of ``{"id": "{\\"$oid\\": \\"…\\"}"}``."""
    text = as_json(f"{read(key_row, id=('string', 'id'))}.id")
    own_id = id_text(f"{read(text, id=('json',))}.id", f"concat('{{\"{ID}\":', {text}, '}}')")
    return f"nullif(to_json(named_struct('{ID}', {own_id})), '{{}}')"


def _table_and_row(document: Mapping[str, Any], columns: Columns) -> TableAndRow | None:
    event = event_in(document)
    source, after = object_in(event, "source"), event.get("after")
    try:
        row = json.loads(after) if isinstance(after, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or ID not in row:
        return None
    found = table_and_row(source.get("db"), source.get("collection"), row)
    if found is None or found[0] in columns:
        return found
    return found[0], {ID: json.dumps(row[ID]), TEXT: after}


def _format(columns: Columns) -> Format:
    return Format(
        "debezium-mongodb",
        EVENT,
        partial(_read_mongodb, columns=columns),
        signatures=(("source.collection",), ("payload.source.collection",)),
        columns_of_schema=lambda schema: {},
        table_and_row=partial(_table_and_row, columns=columns),
        whole_old_rows=True,
        names_keys=True,
        key_row=_key_row,
        columns_choose=True,
        configured=_configured,
    )


def _configured(source: SourceSettings) -> Format:
    members = {n: tuple(sorted(t.columns.keys() - {ID})) for n, t in source.tables.items()}
    return _format({name: own for name, own in members.items() if own})


DEBEZIUM_MONGODB = _format({})
