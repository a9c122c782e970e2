"""Flattened Debezium records (FORMATS D18), as the transform `ExtractNewRecordState` writes them.

The row stands alone; what was kept of the envelope stands beside its columns in fields that
start with ``__``: ``__op``, ``__deleted``, ``__table``, ``__source_ts_ms``, ``__source_lsn`` …
(options `add.fields` and `delete.tombstone.handling.mode`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_assets.cdc.envelopes.debezium import (
    EVENT,
    ROW_OPS,
    SOURCE_NAMES,
    SOURCE_TEXTS,
    Source,
    member,
    read_envelope,
    unread_connector,
    with_event,
)
from cdc_assets.cdc.envelopes.envelope import Format, TableAndRow, object_in, table_and_row
from cdc_assets.cdc.envelopes.images import with_images
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    get,
    is_present,
    is_text,
    literal,
    literals,
    members_of,
    rarely,
    string_of,
    struct,
    whole,
)
from cdc_assets.cdc.values.column_types import ColumnTypes, columns_of_fields
from cdc_assets.cdc.values.strict_json import DOCUMENT

MARK = "__"
_ADD_FIELDS = (
    ": set add.fields=op,schema,table,lsn,source.ts_ms (MySQL: op,db,table,file,pos,row,"
    "source.ts_ms) on ExtractNewRecordState"
)
_KINDS = {**dict.fromkeys(SOURCE_TEXTS, "string"), **dict.fromkeys(SOURCE_NAMES, "variant")}
# `__ts_ms` is the envelope's, not the source's.
_FLAT = struct(
    __op="variant", __deleted="variant", __ts_ms="string", __transaction_id="string",
    __transaction_total_order="string", __collection="string", __source_collection="string",
    **{f"__source_{name}": kind for name, kind in _KINDS.items()},
    **{f"__{name}": kind for name, kind in _KINDS.items() if name != "ts_ms"},
)  # fmt: skip
_MESSAGE_SOURCE = struct(**_KINDS)


def read_flat(records: Query) -> Query:
    """Read flattened events; what the transform leaves as it was (D13, D16) is control.

    Args:
        records: has the columns of :func:`~cdc_assets.cdc.envelopes.connect.with_document`.

    Returns:
        The records with the columns of `Envelope`.
    """
    marks = struct(__op="variant", __deleted="variant")
    events = with_event(records, is_bare=_is_marked(get("doc", DOCUMENT, marks)))
    cast = events.extend({"f": member(kind=_FLAT), "e": member(kind=EVENT)})
    marked = cast.extend(
        {
            "is_flat": _is_marked("f"),
            "is_deleted": f"lower({get('f.__deleted', '$', 'string')}) = 'true'",
            "is_message": "coalesce(e.op = 'm', false)",
        }
    )
    is_known = f"coalesce({get('f.__op', '$', 'string')} IN ({literals(ROW_OPS)}), false)"
    # With `__deleted` alone a record is a write or a delete; either way it says how the row is now.
    derived = case(("is_deleted", "'d'"), ("NOT is_deleted", "'u'"))
    is_plain = f"NOT (coalesce(is_deleted, false) AND {is_known})"
    op = case(
        (f"{is_present('f.__op')} AND {is_plain}", "f.__op"),
        otherwise=f"CAST({derived} AS variant)",
    )
    opened = marked.extend(
        {
            "v_op": case(("is_flat", op), ("is_message", "CAST(e.op AS variant)")),
            "v_has_body": f"is_flat OR (is_message AND {member('source')} IS NOT NULL)",
            "v_has_source": "is_flat OR (is_message AND e.source IS NOT NULL)",
            "s": case(("is_message", member("source", _MESSAGE_SOURCE))),
            "v_ts_ms": case(("is_flat", whole("f.__ts_ms")), otherwise=whole("e.ts_ms")),
            "v_total_order": whole("f.__transaction_total_order"),
            "v_transaction": "f.__transaction_id",
            "v_is_avro_json": "false",
        }
    )
    with_op = opened.extend(
        {
            "flat_op_text": get("v_op", "$", "string"),
            "v_op_text": case((is_text("v_op"), get("v_op", "$", "string"))),
            "v_has_op": is_present("v_op"),
        }
    )
    own = case(("is_flat", _own(member())))
    exact = case(("is_flat", _own(_digits_event())))
    is_before = "coalesce(flat_op_text = 'd', false)"
    is_after = "coalesce(flat_op_text NOT IN ('d', 't'), false)"
    imaged = with_images(
        with_op,
        case((is_before, own)),
        case((is_after, own)),
        (case((is_before, exact)), case((is_after, exact))),
    )
    sent_op = case(("is_flat", string_of("f.__op")), otherwise="e_source_op")
    source = Source(text=_text_of_source, name=lambda name: string_of(_of_source(name)))
    read = read_envelope(imaged, source, ROW_OPS, "v_op", "NOT is_flat")
    detail = rarely("e_reason IS NOT NULL", _detail())
    return read.replace({"e_source_op": sent_op, "e_detail": detail})


def _detail() -> Sql:
    """Which fields a record lacks, and the option of the transform that adds them."""
    missing = (
        "concat_ws(' and ', CASE WHEN v_namespace IS NULL THEN '__schema (or __db)' END, "
        "CASE WHEN v_table IS NULL THEN '__table' END)"
    )
    # ExtractNewDocumentState, the transform for MongoDB, names a collection.
    is_document = "coalesce(f.__collection, f.__source_collection) IS NOT NULL"
    connector = case((is_document, "'mongodb'"), otherwise=_of_source("connector"))
    return case(
        (
            "e_reason = 'missing_table'",
            f"coalesce({unread_connector(connector)}, "
            f"concat('the record lacks ', {missing}, {literal(_ADD_FIELDS)}))",
        ),
        (
            "e_reason = 'not_an_envelope'",
            literal("the record lacks __op and __deleted" + _ADD_FIELDS),
        ),
        otherwise="e_detail",
    )


def _is_marked(cast: Sql) -> Sql:
    return f"coalesce({cast}.__op IS NOT NULL OR {cast}.__deleted IS NOT NULL, false)"


def _own(event: Sql) -> Sql:
    """The row without the fields of the envelope; null for what is not an object."""
    return f"map_filter({members_of(event)}, (name, value) -> NOT startswith(name, '{MARK}'))"


def _digits_event() -> Sql:
    return f"CASE WHEN is_wrapped THEN {get('digits', '$.payload')} ELSE digits END"


def _text_of_source(name: str) -> Sql:
    own = _of_source(name)
    return get(own, "$", "string") if name in SOURCE_NAMES else own


def _of_source(name: str) -> Sql:
    """A member of what `source` was: ``__source_lsn``, or ``__lsn`` where that is how it is named.

    A logical message has its `source` still.
    """
    found = [f"f.__source_{name}"]
    if name != "ts_ms":
        found.append(f"f.__{name}")
    if name == "connector":
        # PostgreSQL's alone has LSNs.
        lsn = f"coalesce({whole('f.__source_lsn')}, {whole('f.__lsn')})"
        found.append(f"CASE WHEN {lsn} IS NOT NULL THEN 'postgresql' END")
    return f"CASE WHEN is_flat THEN coalesce({', '.join(found)}) ELSE s.{name} END"


def _columns_of_schema(schema: Mapping[str, Any]) -> ColumnTypes:
    fields = columns_of_fields(schema)
    return {name: kind for name, kind in fields.items() if not name.startswith(MARK)}


def _table_and_row(document: Mapping[str, Any]) -> TableAndRow | None:
    marks = {"__op", "__deleted"}
    event = document if marks & document.keys() else object_in(document, "payload")
    if not marks & event.keys() or event.get("__op") == "d" or event.get("__deleted") == "true":
        return None
    source = {name.removeprefix(MARK).removeprefix("source_"): event[name] for name in event}
    row = {name: event[name] for name in event if not name.startswith(MARK)}
    return table_and_row(source.get("schema") or source.get("db"), source.get("table"), row)


DEBEZIUM_FLAT = Format(
    "debezium-flat",
    read_flat,
    signatures=(("__op",), ("__deleted",), ("payload.__op",), ("payload.__deleted",)),
    columns_of_schema=_columns_of_schema,
    table_and_row=_table_and_row,
)
