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
    literal,
    literals,
    lookup,
    members_of,
    string_of,
    struct,
    whole,
)
from cdc_assets.cdc.values.column_types import UNKNOWN, ColumnType, ColumnTypes
from cdc_assets.cdc.values.strict_json import DOCUMENT

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
_IMAGE = struct(dataColumn="variant")
_PAYLOAD = struct(
    op="variant", before="variant", after="variant", sequenceId="variant", ddl="variant",
    timestamp="variant",
)  # fmt: skip
_TIMES = struct(eventTime="string", systemTime="string")
_SCHEMA = struct(
    dataColumn="variant", primaryKey="array<string>",
    source=struct(
        dbType="string", dbName="variant", schemaName="variant", tableName="variant"
    ),
)  # fmt: skip


def read_dataworks(records: Query) -> Query:
    """Read DataWorks events.

    Args:
        records: has the columns of :func:`~cdc_assets.cdc.envelopes.connect.with_document`, read
            whole: the schema names the table.

    Returns:
        The records with the columns of `Envelope`.
    """
    opened = records.extend(
        {"r": get("doc", DOCUMENT, struct(schema="variant", payload="variant"))}
    )
    cast = opened.extend({"p": get("r.payload", "$", _PAYLOAD), "h": get("r.schema", "$", _SCHEMA)})
    parts = cast.extend(
        {
            "t": get("p.timestamp", "$", _TIMES),
            "v_before": f"{get('p.before', '$', _IMAGE)}.dataColumn",
            "v_after": f"{get('p.after', '$', _IMAGE)}.dataColumn",
            "v_op": case((is_text("p.op"), get("p.op", "$", "string"))),
            "is_null_payload": "coalesce(is_variant_null(r.payload), false)",
        }
    )
    again = [members_of(get("digits", f"$.payload.{n}.dataColumn")) for n in ("before", "after")]
    imaged = with_images(parts, members_of("v_before"), members_of("v_after"), (again[0], again[1]))
    parts_known = ("timestamp", "before", "after", "sequenceId", "ddl")
    known = " OR ".join(("h.source IS NOT NULL", *(f"p.{n} IS NOT NULL" for n in parts_known)))
    named = imaged.extend(
        {
            "v_is_envelope": f"p IS NOT NULL AND ({known}) AND h IS NOT NULL",
            "v_row_op": lookup("v_op", ROW_OPS),
            "v_control_op": lookup("v_op", CONTROL_OPS),
            "v_db": string_of("h.source.dbName"),
            "v_schema": string_of("h.source.schemaName"),
            "v_table": string_of("h.source.tableName"),
            "v_is_before": f"coalesce(v_op IN ({literals(BEFORE_OPS)}), false)",
            # A number of 39 digits, too, is exact.
            "v_sequence": f"coalesce({get('digits', '$.payload.sequenceId', 'string')}, "
            f"{get('p.sequenceId', '$', 'string')})",
        }
    )
    namespace = "CASE WHEN v_db IS NOT NULL THEN concat_ws('__', v_db, v_schema) END"
    tabled = named.extend({"v_namespace": namespace})
    judged = tabled.extend({"v_name": table_name_sql("v_namespace", "v_table")})
    no_image = (
        "(v_op IN ('INSERT', 'UPDATE_AFTER') AND after_row IS NULL) "
        "OR (v_is_before AND before_row IS NULL)"
    )
    reasoned = judged.extend(
        {
            "v_reason": reason_of(
                no_event="NOT v_is_envelope",
                no_op=f"NOT {is_present('p.op')}",
                unknown_op="v_row_op IS NULL AND v_control_op IS NULL",
                no_table="v_row_op IS NOT NULL AND v_name IS NULL",
                no_image=no_image,
            )
        }
    )
    event_time = whole("t.eventTime")
    elements = elements_of(wide_number("v_sequence"), "sequenceId", event_time)
    return Envelope(
        reason=case(("NOT is_null_payload", "v_reason")),
        detail=case(
            ("v_reason = 'not_an_envelope'", "'JSON that is not a change event of this format'"),
            ("v_reason = 'missing_op'", "'an envelope without op'"),
            ("v_reason = 'unknown_op'", "concat('op ', substring(to_json(p.op), 1, 40))"),
            ("v_reason = 'missing_table'", "'schema.source names no dbName and tableName'"),
            ("v_reason = 'missing_image'", "concat('op ', v_op, ' without its image')"),
        ),
        kind=case(
            ("is_null_payload", "'tombstone'"),
            ("v_row_op IS NOT NULL", "'row'"),
            ("v_control_op IS NOT NULL", "'control'"),
        ),
        op="coalesce(v_row_op, v_control_op)",
        source_op="v_op",
        connector="'dataworks'",
        db=get("h.source.dbName", "$", "string"),
        table_name="v_name",
        before_row="before_row",
        # The half that says how the row was says nothing of how it is.
        after_row=case(("NOT v_is_before", "after_row")),
        before="before",
        after=case(("NOT v_is_before", "after")),
        key_names=_key_names(),
        source_ts_ms=event_time,
        processed_ts_ms=whole("t.systemTime"),
        elements=elements.own,
        basis=elements.basis,
        stand_in=elements.stand_in,
        half="CASE WHEN v_is_before THEN 0 ELSE 1 END",
        schema=case((f"start_hash IS NULL AND {_has_columns()}", "r.schema")),
        start=case((_has_columns(), "start_hash")),
        # W7: ddlMeta is a serialised object; it stays text in the landing.
        payload=case(("v_control_op = 'ddl'", get("p.ddl", "$.text", "string"))),
    ).add_to(reasoned)


def _has_columns() -> Sql:
    # Among objects there may be what is none.
    return "coalesce(schema_of_variant(h.dataColumn) RLIKE '^ARRAY<(OBJECT|VARIANT>)', false)"


def _key_names() -> Sql:
    """The primary key that the message names, else the row id column (W4)."""
    image = "coalesce(after_row, before_row)"
    return case(
        ("size(h.primaryKey) > 0", "h.primaryKey"),
        (f"map_contains_key({image}, {literal(ROW_ID)})", f"array({literal(ROW_ID)})"),
        (
            f"lower(h.source.dbType) = 'oracle' AND map_contains_key({image}, '{ORACLE_ROW_ID}')",
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
    read_dataworks,
    signatures=(("schema.source.tableName",),),
    columns_of_schema=_columns_of_schema,
    table_and_row=_table_and_row,
    whole_old_rows=True,
    names_keys=True,
    reads_schema=True,
    first_halves=BEFORE_OPS,
    second_halves=("UPDATE_AFTER",),
)
