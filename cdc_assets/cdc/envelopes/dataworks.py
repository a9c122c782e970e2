"""DataWorks' messages (FORMATS W1–W7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_assets.cdc.envelopes.envelope import (
    Envelope,
    Format,
    TableAndRow,
    object_in,
    reason_of,
    table_and_row,
)
from cdc_assets.cdc.json_reader import Wanted, values_at
from cdc_assets.cdc.names import table_name_sql
from cdc_assets.cdc.positions import elements_of, wide_number
from cdc_assets.cdc.sqltext import Query, Sql, case, interpreted_if, literals, lookup, whole
from cdc_assets.cdc.values.column_types import UNKNOWN, ColumnType, ColumnTypes

# W2: case-sensitive, an open list. Both spellings of the first half are met.
BEFORE_OPS = ("UPDATE_BEFOR", "UPDATE_BEFORE")
ROW_OPS = {
    "INSERT": "c",
    "UPDATE_BEFOR": "u",
    "UPDATE_BEFORE": "u",
    "UPDATE_AFTER": "u",
    "DELETE": "d",
    "TRUNCATE": "t",
}
CONTROL_OPS = {
    "TRANSACTION_BEGIN": "transaction",
    "TRANSACTION_END": "transaction",
    "CREATE": "ddl",
    "ALTER": "ddl",
    "ERASE": "ddl",
    "QUERY": "ddl",
    "RENAME": "ddl",
    "CINDEX": "ddl",
    "DINDEX": "ddl",
    "GTID": "other",
    "XACOMMIT": "other",
    "XAROLLBACK": "other",
    "MHEARTBEAT": "heartbeat",
}
ROW_ID = "#alibaba_rds_row_id#"
ORACLE_ROW_ID = "rowid"

_TYPES = {  # W5
    "BOOLEAN": ColumnType("boolean", "boolean"),
    "DOUBLE": ColumnType("double", "double"),
    "DATE": ColumnType("instant_ms", "timestamp"),
    "BYTES": ColumnType("bytes", "binary"),
    "LONG": ColumnType("bigint", "bigint"),
    "STRING": ColumnType("string", "string"),
}
_SOURCE, _TIMES = ("schema", "source"), ("payload", "timestamp")
_PARTS = ("timestamp", "before", "after", "sequenceId", "ddl")  # an event has one, if only as null
EVENT: dict[str, Wanted] = {
    "payload_kind": ("kind", "payload"),
    "schema_kind": ("kind", "schema"),
    "schema_id": ("hash", "schema"),
    "schema_columns": ("items", "schema", "dataColumn"),
    "primary_key": ("texts", "schema", "primaryKey"),
    "source_kind": ("kind", *_SOURCE),
    "db_type": ("text", *_SOURCE, "dbType"),
    "db": ("text", *_SOURCE, "dbName"),
    "db_name": ("string", *_SOURCE, "dbName"),
    "schema_name": ("string", *_SOURCE, "schemaName"),
    "table_name": ("string", *_SOURCE, "tableName"),
    "op": ("string", "payload", "op"),
    "op_sent": ("json", "payload", "op"),
    "sequence": ("text", "payload", "sequenceId"),
    "ddl_text": ("text", "payload", "ddl", "text"),
    "event_time": ("text", *_TIMES, "eventTime"),
    "system_time": ("text", *_TIMES, "systemTime"),
    **{f"{name}_kind": ("kind", "payload", name) for name in _PARTS},
    **{n: ("object", "payload", n, "dataColumn") for n in ("before", "after")},
    **{f"{n}_size": ("size", "payload", n, "dataColumn") for n in ("before", "after")},
}


def read_dataworks(records: Query) -> Query:
    """Read DataWorks events.

    Args:
        records: has `d`, of the members `EVENT`.

    Returns:
        The records with the columns of `Envelope`.
    """
    parts = ", ".join(f"d.{name}_kind" for name in _PARTS)
    is_known = f"(d.source_kind <=> 'object' OR coalesce({parts}) IS NOT NULL)"
    named = records.extend(
        {
            "v_is_envelope": "d.payload_kind <=> 'object' AND d.schema_kind <=> 'object' "
            f"AND {is_known}",
            "v_is_null": "d.payload_kind <=> 'null'",
            "v_row_op": lookup("d.op", ROW_OPS),
            "v_control_op": lookup("d.op", CONTROL_OPS),
            "v_namespace": case(
                ("d.db_name <> ''", "concat_ws('__', d.db_name, nullif(d.schema_name, ''))")
            ),
            "v_table": "nullif(d.table_name, '')",
            "v_is_before": f"coalesce(d.op IN ({literals(BEFORE_OPS)}), false)",
        }
    )
    judged = named.extend({"v_name": table_name_sql("v_namespace", "v_table")})
    reasoned = judged.extend(
        {
            "v_reason": reason_of(
                no_event="NOT v_is_envelope",
                no_op="NOT coalesce(d.op_sent <> 'null', false)",
                unknown_op="v_row_op IS NULL AND v_control_op IS NULL",
                no_table="v_row_op IS NOT NULL AND v_name IS NULL",
                no_image="(d.op IN ('INSERT', 'UPDATE_AFTER') AND d.after IS NULL) "
                "OR (v_is_before AND d.before IS NULL)",
            )
        }
    )
    event_time = whole("d.event_time")
    elements = elements_of(wide_number("d.sequence"), "sequenceId", event_time)
    return Envelope(
        reason=case(("NOT v_is_null", "v_reason")),
        detail=case(
            ("v_reason = 'not_an_envelope'", "'JSON that is not a change event of this format'"),
            ("v_reason = 'missing_op'", "'an envelope without op'"),
            ("v_reason = 'unknown_op'", "concat('op ', substring(d.op_sent, 1, 40))"),
            ("v_reason = 'missing_table'", "'schema.source names no dbName and tableName'"),
            ("v_reason = 'missing_image'", "concat('op ', d.op, ' without its image')"),
        ),
        kind=case(
            ("v_is_null", "'tombstone'"),
            ("v_row_op IS NOT NULL", "'row'"),
            ("v_control_op IS NOT NULL", "'control'"),
        ),
        op="coalesce(v_row_op, v_control_op)",
        source_op="d.op",
        connector="'dataworks'",
        db="d.db",
        table_name="v_name",
        before="d.before",
        # The half that says how the row was says nothing of how it is.
        after=case(("NOT v_is_before", "d.after")),
        columns=f"greatest(d.before_size, {case(('NOT v_is_before', 'd.after_size'))})",
        key_names=_key_names(),
        source_ts_ms=event_time,
        processed_ts_ms=whole("d.system_time"),
        elements=elements.own,
        basis=elements.basis,
        stand_in=elements.stand_in,
        half="CASE WHEN v_is_before THEN 0 ELSE 1 END",
        schema_id=case((_has_columns(), "d.schema_id")),
        # W7: ddlMeta is a serialised object; it stays text in the landing.
        payload=case(("v_control_op = 'ddl'", "d.ddl_text")),
    ).add_to(reasoned)


def _has_columns() -> Sql:
    """Does the schema list columns? Among objects there may be what is none."""
    others = "exists(d.schema_columns, column -> startswith(column, '{'))"
    return case(
        ("startswith(get(d.schema_columns, 0), '{')", "true"),
        otherwise=interpreted_if("size(d.schema_columns) > 1", others),
    )


def _key_names() -> Sql:
    """The primary key that the message names, else the row id column (W4)."""
    row_ids = literals((ROW_ID, ORACLE_ROW_ID))
    held = values_at("coalesce(d.after, d.before)", f"array({row_ids})")
    return case(
        ("size(d.primary_key) > 0", "d.primary_key"),
        (f"get({held}, 0) IS NOT NULL", f"array('{ROW_ID}')"),
        (
            f"lower(d.db_type) = 'oracle' AND get({held}, 1) IS NOT NULL",
            f"array('{ORACLE_ROW_ID}')",
        ),
    )


def _columns_of_schema(schema: Mapping[str, Any]) -> ColumnTypes:
    columns = schema.get("dataColumn") or []
    return {
        column["name"]: _TYPES.get(str(column.get("type")).upper(), UNKNOWN)
        for column in columns
        if isinstance(column, dict) and isinstance(column.get("name"), str)
    }


def _table_and_row(document: Mapping[str, Any]) -> TableAndRow | None:
    source = object_in(object_in(document, "schema"), "source")
    row = object_in(object_in(object_in(document, "payload"), "after"), "dataColumn")
    names = (source.get("dbName"), source.get("schemaName"))
    database = "__".join(name for name in names if isinstance(name, str) and name)
    return table_and_row(database, source.get("tableName"), row)


DATAWORKS = Format(
    "dataworks",
    EVENT,
    read_dataworks,
    signatures=(("payload.op", "payload.sequenceId"), ("payload.op", "payload.timestamp")),
    columns_of_schema=_columns_of_schema,
    table_and_row=_table_and_row,
    whole_old_rows=True,
    names_keys=True,
    first_halves=BEFORE_OPS,
    second_halves=("UPDATE_AFTER",),
)
