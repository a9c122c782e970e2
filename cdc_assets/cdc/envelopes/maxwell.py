"""Maxwell's messages: a row of MySQL each, with the old values of what an update changed.

`data` is the row, `old` the old values of changed columns alone, `ts` the second in which the
statement began. `position` (`output_binlog_position`) orders events; without it the Kafka timestamp
stands in, since `ts` goes back where a change waited for a lock. `xid` (of the transaction),
`xoffset` (of the row in it, which the last one lacks) and `ts` identify a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_assets.cdc.envelopes.envelope import (
    Envelope,
    Format,
    TableAndRow,
    detail_of,
    reason_of,
    table_and_row,
)
from cdc_assets.cdc.envelopes.images import images_of
from cdc_assets.cdc.json_reader import Wanted, object_of, values_at
from cdc_assets.cdc.names import table_name_sql
from cdc_assets.cdc.positions import KAFKA_TIME, NO_ELEMENTS, identity_of
from cdc_assets.cdc.sqltext import Query, Sql, case, literal, lookup, whole

ROW_OPS = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
CONTROL_OPS = {
    **dict.fromkeys(("bootstrap-start", "bootstrap-complete"), "other"),
    **dict.fromkeys(("table-create", "table-alter", "table-drop"), "ddl"),
    **dict.fromkeys(("database-create", "database-alter", "database-drop"), "ddl"),
}
EVENT: dict[str, Wanted] = {
    "kind": ("kind",),
    "op": ("string", "type"),
    "op_sent": ("json", "type"),
    "database": ("string", "database"),
    "database_kind": ("kind", "database"),
    "table": ("string", "table"),
    "ts": ("text", "ts"),
    "xid": ("text", "xid"),
    "xoffset": ("text", "xoffset"),
    "position": ("text", "position"),
    "data": ("object", "data"),
    "data_kind": ("kind", "data"),
    "data_size": ("size", "data"),
    "old": ("object", "old"),
    "key_names": ("texts", "primary_key_columns"),
    "sql": ("text", "sql"),
}
_BASIS = "position"
_KEY_PREFIX = "pk."


def read_maxwell(records: Query) -> Query:
    """Read Maxwell's events.

    Args:
        records: has `d`, of the members `EVENT`.

    Returns:
        The records with the columns of `Envelope`.
    """
    before, after = images_of("d.data", "d.old", ROW_OPS)
    named = records.extend(
        {
            "v_op": "d.op",
            "v_row_op": lookup("d.op", ROW_OPS),
            "v_control_op": lookup("d.op", CONTROL_OPS),
            "v_database": "nullif(d.database, '')",
            "v_table": "nullif(d.table, '')",
            "v_file": r"regexp_extract(d.position, '([0-9]+):[0-9]+$', 1)",
            "v_offset": r"regexp_extract(d.position, '[0-9]:([0-9]+)$', 1)",
        }
    )
    name = table_name_sql("v_database", "v_table")
    images = named.extend({"v_name": name, "v_before": before, "v_after": after})
    is_event = "d.database_kind IS NOT NULL AND coalesce(d.op_sent, d.data_kind) IS NOT NULL"
    reasoned = images.extend(
        {
            "v_reason": reason_of(
                no_event=f"NOT coalesce({is_event}, false)",
                no_op="NOT coalesce(d.op_sent <> 'null', false)",
                unknown_op="v_row_op IS NULL AND v_control_op IS NULL",
                no_table="v_row_op IS NOT NULL AND v_name IS NULL",
                no_image="v_row_op IS NOT NULL AND coalesce(v_before, v_after) IS NULL",
            )
        }
    )
    seconds = whole("d.ts")
    source_ts_ms = f"try_multiply({seconds}, 1000L)"
    is_placed = "nullif(v_offset, '') IS NOT NULL"
    elements = case(
        (is_placed, f"array({whole('v_file')}, {whole('v_offset')})"), otherwise=NO_ELEMENTS
    )
    # A second alone identifies nothing.
    is_numbered = "coalesce(d.xid, d.xoffset) IS NOT NULL"
    identity = identity_of(
        {"xid": "d.xid", "xoffset": "d.xoffset", "ts": case((is_numbered, "d.ts"))}
    )
    return Envelope(
        reason="v_reason",
        detail=detail_of(
            "type", "d.op_sent", "the event names no database and table", " without data"
        ),
        kind=case(("v_row_op IS NOT NULL", "'row'"), ("v_control_op IS NOT NULL", "'control'")),
        op="coalesce(v_row_op, v_control_op)",
        source_op="v_op",
        connector="'maxwell'",
        db="v_database",
        table_name="v_name",
        before="v_before",
        after="v_after",
        columns=case(("v_row_op IS NOT NULL", "d.data_size")),
        key_names=case(("size(d.key_names) > 0", "d.key_names")),
        source_ts_ms=source_ts_ms,
        elements=elements,
        basis=case((is_placed, literal(_BASIS)), otherwise=literal(KAFKA_TIME)),
        stand_in=source_ts_ms,
        tx_id="d.xid",
        identity=identity,
        is_snapshot="coalesce(v_row_op = 'r', false)",
        payload=case(("v_control_op = 'ddl'", "d.sql")),
    ).add_to(reasoned)


def _key_row(key_row: Sql) -> Sql:
    """The columns of ``{"database": …, "table": …, "pk.id": 1}``."""
    names = f"filter(json_object_keys({key_row}), name -> startswith(name, '{_KEY_PREFIX}'))"
    columns = f"transform(names, name -> substring(name, {len(_KEY_PREFIX) + 1}))"
    row = case(("size(names) > 0", object_of(columns, values_at(key_row, "names"))))
    return f"get(transform(array({names}), names -> {row}), 0)"


def _table_and_row(document: Mapping[str, Any]) -> TableAndRow | None:
    if document.get("type") == "delete":
        return None
    return table_and_row(document.get("database"), document.get("table"), document.get("data"))


MAXWELL = Format(
    "maxwell",
    EVENT,
    read_maxwell,
    signatures=(("database", "table", "type", "data"),),
    columns_of_schema=lambda schema: {},
    table_and_row=_table_and_row,
    whole_old_rows=True,
    names_keys=True,
    key_row=_key_row,
)
