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
from cdc_assets.cdc.envelopes.images import images_of, with_images
from cdc_assets.cdc.names import table_name_sql
from cdc_assets.cdc.positions import KAFKA_TIME, NO_ELEMENTS, identity_of
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    get,
    is_present,
    is_text,
    literal,
    lookup,
    string_of,
    struct,
    whole,
)
from cdc_assets.cdc.values.strict_json import DOCUMENT

ROW_OPS = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
CONTROL_OPS = {
    **dict.fromkeys(("bootstrap-start", "bootstrap-complete"), "other"),
    **dict.fromkeys(("table-create", "table-alter", "table-drop"), "ddl"),
    **dict.fromkeys(("database-create", "database-alter", "database-drop"), "ddl"),
}
_EVENT = struct(
    type="variant", database="variant", table="variant", ts="string", xid="string",
    xoffset="string", position="string", data="variant", old="variant",
    primary_key_columns="array<string>", sql="string",
)  # fmt: skip
_BASIS = "position"
_KEY_PREFIX = "pk."


def read_maxwell(records: Query) -> Query:
    """Read Maxwell's events.

    Args:
        records: has the columns of :func:`~cdc_assets.cdc.envelopes.connect.with_document`.

    Returns:
        The records with the columns of `Envelope`.
    """
    opened = records.extend({"m": get("doc", DOCUMENT, _EVENT)})
    named = opened.extend(
        {
            "v_op": case((is_text("m.type"), get("m.type", "$", "string"))),
            "v_database": string_of("m.database"),
            "v_table": string_of("m.table"),
            "v_file": r"regexp_extract(m.position, '([0-9]+):[0-9]+$', 1)",
            "v_offset": r"regexp_extract(m.position, '[0-9]:([0-9]+)$', 1)",
        }
    )
    judged = named.extend(
        {
            "v_row_op": lookup("v_op", ROW_OPS),
            "v_control_op": lookup("v_op", CONTROL_OPS),
            "v_name": table_name_sql("v_database", "v_table"),
        }
    )
    images = with_images(
        judged,
        *images_of("m.data", "m.old", ROW_OPS),
        images_of(get("digits", "$.data"), get("digits", "$.old"), ROW_OPS),
    )
    is_event = "m.database IS NOT NULL AND (m.type IS NOT NULL OR m.data IS NOT NULL)"
    reasoned = images.extend(
        {
            "v_reason": reason_of(
                no_event=f"NOT coalesce({is_event}, false)",
                no_op=f"NOT {is_present('m.type')}",
                unknown_op="v_row_op IS NULL AND v_control_op IS NULL",
                no_table="v_row_op IS NOT NULL AND v_name IS NULL",
                no_image="v_row_op IS NOT NULL AND coalesce(before_row, after_row) IS NULL",
            )
        }
    )
    seconds = whole("m.ts")
    source_ts_ms = f"try_multiply({seconds}, 1000L)"
    is_placed = "nullif(v_offset, '') IS NOT NULL"
    elements = case(
        (is_placed, f"array({whole('v_file')}, {whole('v_offset')})"), otherwise=NO_ELEMENTS
    )
    # A second alone identifies nothing.
    is_numbered = "coalesce(m.xid, m.xoffset) IS NOT NULL"
    identity = identity_of(
        {"xid": "m.xid", "xoffset": "m.xoffset", "ts": case((is_numbered, "m.ts"))}
    )
    return Envelope(
        reason="v_reason",
        detail=detail_of(
            "type", "m.type", "the event names no database and table", " without data"
        ),
        kind=case(("v_row_op IS NOT NULL", "'row'"), ("v_control_op IS NOT NULL", "'control'")),
        op="coalesce(v_row_op, v_control_op)",
        source_op="v_op",
        connector="'maxwell'",
        db="v_database",
        table_name="v_name",
        before_row="before_row",
        after_row="after_row",
        before="before",
        after="after",
        key_names=case(("size(m.primary_key_columns) > 0", "m.primary_key_columns")),
        source_ts_ms=source_ts_ms,
        elements=elements,
        basis=case((is_placed, literal(_BASIS)), otherwise=literal(KAFKA_TIME)),
        stand_in=source_ts_ms,
        tx_id="m.xid",
        identity=identity,
        is_snapshot="coalesce(v_row_op = 'r', false)",
        payload=case(("v_control_op = 'ddl'", "m.sql")),
    ).add_to(reasoned)


def _key_row(key_row: Sql) -> Sql:
    """The columns of ``{"database": …, "table": …, "pk.id": 1}``."""
    columns = f"map_filter({key_row}, (name, v) -> startswith(name, '{_KEY_PREFIX}'))"
    named = f"transform_keys({columns}, (name, v) -> substring(name, {len(_KEY_PREFIX) + 1}))"
    return case((f"size({columns}) > 0", named))


def _table_and_row(document: Mapping[str, Any]) -> TableAndRow | None:
    if document.get("type") == "delete":
        return None
    return table_and_row(document.get("database"), document.get("table"), document.get("data"))


MAXWELL = Format(
    "maxwell",
    read_maxwell,
    signatures=(("database", "table", "type", "data"),),
    columns_of_schema=lambda schema: {},
    table_and_row=_table_and_row,
    whole_old_rows=True,
    names_keys=True,
    key_row=_key_row,
)
