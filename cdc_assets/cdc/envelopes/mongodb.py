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

from cdc_assets.cdc.envelopes.debezium import (
    event_in,
    event_type,
    member,
    read_envelope,
    source_of,
    with_event,
    with_parts,
)
from cdc_assets.cdc.envelopes.envelope import (
    Format,
    SourceSettings,
    TableAndRow,
    object_in,
    table_and_row,
)
from cdc_assets.cdc.envelopes.extended_json import as_json, id_text
from cdc_assets.cdc.envelopes.images import with_images
from cdc_assets.cdc.names import table_name_sql
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    get,
    interpreted_if,
    is_object,
    is_one_of,
    is_text,
    literal,
    literals,
    members_of,
    string_of,
)
from cdc_assets.cdc.values.strict_json import DOCUMENT, document_in, with_strict_json

ROW_OPS = ("c", "u", "d", "r")
ID, TEXT = "_id", "document"
_EVENT = event_type("variant", "collection", patch="variant", filter="variant")
# How extended JSON writes the values that JSON has no type for.
_NUMBERS = ("$numberLong", "$numberInt")
_SCALARS = (*_NUMBERS, "$numberDouble", "$numberDecimal", "$oid", "$date.$numberLong", "$date")
_NO_DOCUMENT = (
    " without a document in after: set capture.mode=change_streams_update_full on the connector "
    "(Debezium 1.x: upgrade it)"
)

Columns = Mapping[str, tuple[str, ...]]


def _read_mongodb(records: Query, columns: Columns) -> Query:
    """Read events of MongoDB.

    Args:
        records: has the columns of :func:`~cdc_assets.cdc.envelopes.connect.with_document`.
        columns: the members that are read of the documents of some tables.

    Returns:
        The records with the columns of `Envelope`.
    """
    events = with_event(records).extend({"e": member(kind=_EVENT)})
    source = source_of(table="collection")
    # A document that takes another's place is sent whole, in 1.x as the patch.
    texts = with_parts(events, ROW_OPS).extend(
        {
            "m_after": as_json(f"coalesce({string_of('e.after')}, {string_of('e.patch')})"),
            "m_before": as_json(string_of("e.before")),
            "m_filter": as_json(string_of("e.filter")),
            "m_table": table_name_sql(source.name("db"), source.name("table")),
        }
    )
    names = ("after", "before", "filter")
    read = with_strict_json(texts, **{f"m_{name}_doc": f"m_{name}" for name in names})
    ids = read.extend(
        {f"m_{n}_id": id_text(get(f"m_{n}_doc", f"{DOCUMENT}.{ID}"), f"m_{n}") for n in names}
    )
    is_removed = "v_op_text = 'd' AND m_filter_id IS NOT NULL"
    removed = case((is_removed, f"map('{ID}', CAST(m_filter_id AS variant))"))
    before = f"coalesce({_row('m_before', columns)}, {removed})"
    after = case((f"v_op_text IN ({literals(ROW_OPS)})", _row("m_after", columns)))
    imaged = with_images(ids, before, after, (before, after))
    envelope = read_envelope(imaged, source, ROW_OPS, member("op"), "true")
    detail = case(
        ("e_reason = 'missing_image'", f"concat('op ', v_op_text, {literal(_NO_DOCUMENT)})"),
        ("e_reason = 'missing_table'", "'source lacks db or collection'"),
        otherwise="e_detail",
    )
    return envelope.replace(
        {
            "e_detail": interpreted_if("e_reason IS NOT NULL", detail),
            "e_key_names": f"array('{ID}')",
            # It says that documents are texts.
            "e_schema": "CAST(NULL AS variant)",
            "e_start": "CAST(NULL AS string)",
        }
    )


def _row(name: str, columns: Columns) -> Sql:
    """The row of a document as MAP<STRING, VARIANT>; null where it has no id."""
    document, own_id = document_in(f"{name}_doc"), f"CAST({name}_id AS variant)"
    whole = f"map('{ID}', {own_id}, '{TEXT}', CAST({name} AS variant))"
    by_members: dict[tuple[str, ...], list[str]] = {}
    for table, members in columns.items():
        by_members.setdefault(members, []).append(table)
    typed = (
        (is_one_of("m_table", tables), _typed(document, own_id, members))
        for members, tables in by_members.items()
    )
    return case((f"{name}_id IS NOT NULL", case(*typed, otherwise=whole) if columns else whole))


def _typed(document: Sql, own_id: Sql, members: tuple[str, ...]) -> Sql:
    """The id and some members of a document, its own types as plain values."""
    chosen = f"map_filter({members_of(document)}, (name, v) -> name IN ({literals(members)}))"
    scalars = ", ".join(get("v", f"$.{name}", "string") for name in _SCALARS)
    plain = case(
        (is_object("v"), f"coalesce(CAST(coalesce({scalars}) AS variant), v)"), otherwise="v"
    )
    return f"map_concat(map('{ID}', {own_id}), transform_values({chosen}, (name, v) -> {plain}))"


def _key_row(key_row: Sql) -> Sql:
    """The id out of ``{"id": "{\\"$oid\\": \\"…\\"}"}``."""
    sent = f"try_element_at({key_row}, 'id')"
    text = as_json(get(sent, "$", "string"))
    # Text behind the document would be a second element.
    listed = f"try_parse_json(concat('[', {text}, ']'))"
    is_one = f"{is_text(sent)} AND size(try_cast({listed} AS array<variant>)) = 1"
    document = f"concat('{{\"{ID}\":', {text}, '}}')"
    own_id = id_text(get(listed, "$[0]"), document)
    return case((is_one, f"map('{ID}', CAST({own_id} AS variant))"))


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
