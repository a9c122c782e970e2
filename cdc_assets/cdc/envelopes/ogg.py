"""Oracle GoldenGate's JSON messages (`op_type`), of the Kafka handler with `format=json`.

`pos` is the place in the trail, a number of 20 digits or more, and orders the events. Where the
trail is compressed, `after` holds the changed columns and the key alone: such sources need
`missing_columns: keep`.
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
from cdc_assets.cdc.envelopes.images import with_images
from cdc_assets.cdc.names import table_name_sql
from cdc_assets.cdc.positions import elements_of, wide_number
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    get,
    is_present,
    is_text,
    lookup,
    members_of,
    string_of,
    struct,
)
from cdc_assets.cdc.values.strict_json import DOCUMENT

ROW_OPS = {"I": "c", "U": "u", "D": "d", "T": "t"}
_EVENT = struct(
    op_type="variant", table="variant", op_ts="string", current_ts="string", pos="string",
    primary_keys="array<string>", before="variant", after="variant", xid="string",
)  # fmt: skip
_TIME = r"^[0-9]{4}(-[0-9]{2}){2}[ T][0-9]{2}(:[0-9]{2}){2}([.][0-9]{1,9})?Z?$"


def read_ogg(records: Query) -> Query:
    """Read GoldenGate's events.

    Args:
        records: has the columns of :func:`~cdc_assets.cdc.envelopes.connect.with_document`.

    Returns:
        The records with the columns of `Envelope`.
    """
    opened = records.extend({"g": get("doc", DOCUMENT, _EVENT)})
    named = opened.extend(
        {
            "v_op": case((is_text("g.op_type"), get("g.op_type", "$", "string"))),
            # `SCHEMA.TABLE`; of a container database `PDB.SCHEMA.TABLE`.
            "v_parts": f"split({string_of('g.table')}, '[.]')",
            "v_source_ts_ms": _milliseconds("g.op_ts"),
        }
    )
    judged = named.extend(
        {
            "v_row_op": lookup("v_op", ROW_OPS),
            "v_namespace": case(
                ("size(v_parts) > 1", "array_join(slice(v_parts, 1, size(v_parts) - 1), '__')")
            ),
            "v_table": "element_at(v_parts, -1)",
        }
    )
    tabled = judged.extend(
        {"v_name": table_name_sql("nullif(v_namespace, '')", "nullif(v_table, '')")}
    )
    images = with_images(
        tabled,
        members_of("g.before"),
        members_of("g.after"),
        (members_of(get("digits", "$.before")), members_of(get("digits", "$.after"))),
    )
    reasoned = images.extend(
        {
            "v_reason": reason_of(
                no_event=(
                    "NOT coalesce(g.table IS NOT NULL AND (g.op_type IS NOT NULL "
                    "OR g.pos IS NOT NULL OR g.op_ts IS NOT NULL), false)"
                ),
                no_op=f"NOT {is_present('g.op_type')}",
                unknown_op="v_row_op IS NULL",
                no_table="v_name IS NULL",
                no_image="v_op IN ('I', 'U') AND after_row IS NULL",
            )
        }
    )
    elements = elements_of(wide_number("g.pos"), "pos", "v_source_ts_ms")
    return Envelope(
        reason="v_reason",
        detail=detail_of("op_type", "g.op_type", "table is not SCHEMA.TABLE", " without after"),
        kind=case(("v_row_op IS NOT NULL", "'row'")),
        op="v_row_op",
        source_op="v_op",
        connector="'ogg'",
        db="v_namespace",
        table_name="v_name",
        before_row=case(("v_op IN ('U', 'D')", "before_row")),
        after_row=case(("v_op IN ('I', 'U')", "after_row")),
        before=case(("v_op IN ('U', 'D')", "before")),
        after=case(("v_op IN ('I', 'U')", "after")),
        key_names=case(("size(g.primary_keys) > 0", "g.primary_keys")),
        source_ts_ms="v_source_ts_ms",
        processed_ts_ms=_milliseconds("g.current_ts"),
        elements=elements.own,
        basis=elements.basis,
        stand_in=elements.stand_in,
        tx_id="g.xid",
    ).add_to(reasoned)


def _milliseconds(text: Sql) -> Sql:
    """An ISO time without zone, which GoldenGate writes in UTC, as ms since 1970."""
    return case((f"{text} RLIKE '{_TIME}'", f"unix_millis(try_cast({text} AS timestamp))"))


def _table_and_row(document: Mapping[str, Any]) -> TableAndRow | None:
    name = document.get("table")
    if not isinstance(name, str) or "." not in name or document.get("op_type") == "D":
        return None
    *namespace, table = name.split(".")
    return table_and_row("__".join(namespace), table, document.get("after"))


OGG = Format(
    "ogg",
    read_ogg,
    signatures=(("op_type", "table"),),
    columns_of_schema=lambda schema: {},
    table_and_row=_table_and_row,
    whole_old_rows=True,
    names_keys=True,
)
