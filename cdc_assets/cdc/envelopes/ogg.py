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
from cdc_assets.cdc.json_reader import Wanted
from cdc_assets.cdc.names import table_name_sql
from cdc_assets.cdc.positions import elements_of, wide_number
from cdc_assets.cdc.sqltext import Query, Sql, case, lookup

ROW_OPS = {"I": "c", "U": "u", "D": "d", "T": "t"}
EVENT: dict[str, Wanted] = {
    "kind": ("kind",),
    "op": ("string", "op_type"),
    "op_sent": ("json", "op_type"),
    "table": ("string", "table"),
    "table_kind": ("kind", "table"),
    "op_ts": ("text", "op_ts"),
    "current_ts": ("text", "current_ts"),
    "pos": ("text", "pos"),
    "key_names": ("texts", "primary_keys"),
    "before": ("object", "before"),
    "before_size": ("size", "before"),
    "after": ("object", "after"),
    "after_size": ("size", "after"),
    "xid": ("text", "xid"),
}
_TIME = r"^[0-9]{4}(-[0-9]{2}){2}[ T][0-9]{2}(:[0-9]{2}){2}([.][0-9]{1,9})?Z?$"


def read_ogg(records: Query) -> Query:
    """Read GoldenGate's events.

    Args:
        records: has `d`, of the members `EVENT`.

    Returns:
        The records with the columns of `Envelope`.
    """
    named = records.extend(
        {
            "v_op": "d.op",
            "v_row_op": lookup("d.op", ROW_OPS),
            # `SCHEMA.TABLE`; of a container database `PDB.SCHEMA.TABLE`.
            "v_parts": "split(nullif(d.table, ''), '[.]')",
            "v_source_ts_ms": _milliseconds("d.op_ts"),
        }
    )
    parted = named.extend(
        {
            "v_namespace": case(
                ("size(v_parts) > 1", "array_join(slice(v_parts, 1, size(v_parts) - 1), '__')")
            ),
            "v_table": "element_at(v_parts, -1)",
        }
    )
    tabled = parted.extend(
        {"v_name": table_name_sql("nullif(v_namespace, '')", "nullif(v_table, '')")}
    )
    reasoned = tabled.extend(
        {
            "v_reason": reason_of(
                no_event=(
                    "NOT coalesce(d.table_kind IS NOT NULL "
                    "AND coalesce(d.op_sent, d.pos, d.op_ts) IS NOT NULL, false)"
                ),
                no_op="NOT coalesce(d.op_sent <> 'null', false)",
                unknown_op="v_row_op IS NULL",
                no_table="v_name IS NULL",
                no_image="v_op IN ('I', 'U') AND d.after IS NULL",
            )
        }
    )
    has_before, has_after = "v_op IN ('U', 'D')", "v_op IN ('I', 'U')"
    columns = (case((has_before, "d.before_size")), case((has_after, "d.after_size")))
    elements = elements_of(wide_number("d.pos"), "pos", "v_source_ts_ms")
    return Envelope(
        reason="v_reason",
        detail=detail_of("op_type", "d.op_sent", "table is not SCHEMA.TABLE", " without after"),
        kind=case(("v_row_op IS NOT NULL", "'row'")),
        op="v_row_op",
        source_op="v_op",
        connector="'ogg'",
        db="v_namespace",
        table_name="v_name",
        before=case((has_before, "d.before")),
        after=case((has_after, "d.after")),
        columns=f"greatest({', '.join(columns)})",
        key_names=case(("size(d.key_names) > 0", "d.key_names")),
        source_ts_ms="v_source_ts_ms",
        processed_ts_ms=_milliseconds("d.current_ts"),
        elements=elements.own,
        basis=elements.basis,
        stand_in=elements.stand_in,
        tx_id="d.xid",
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
    EVENT,
    read_ogg,
    signatures=(("op_type", "table"),),
    columns_of_schema=lambda schema: {},
    table_and_row=_table_and_row,
    whole_old_rows=True,
    names_keys=True,
)
