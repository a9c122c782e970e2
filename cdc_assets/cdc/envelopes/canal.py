"""Canal's flat messages, also as Alibaba's DTS and TiCDC (`canal-json`) write them.

A message holds many rows: `data` is a list of them, `old` a list beside it with the old values of
what an update changed. Values are texts; `mysqlType` says what they are. TiCDC's `_tidb.commitTs`
orders events. Nothing of Canal's own does: `es` is the second in which a statement began, so that a
change that waited for a lock comes later with a lower one, and `id` counts anew when a server
starts. The Kafka timestamp stands in, then the offset decides, then the row's place in its message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
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
from cdc_assets.cdc.json_reader import Wanted, read
from cdc_assets.cdc.names import table_name_sql
from cdc_assets.cdc.positions import COMMIT_TS, KAFKA_TIME, NO_ELEMENTS
from cdc_assets.cdc.sqltext import Query, case, literal, literals, lookup, whole
from cdc_assets.cdc.values.column_types import (
    BARE_DECIMAL,
    MAX_DECIMAL,
    UNKNOWN,
    ColumnType,
    ColumnTypes,
)

# INIT: the first load of Tencent's DTS and Huawei's DRS (C3).
ROW_OPS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "INIT": "r", "TRUNCATE": "t"}
CONTROL_OPS = {
    **dict.fromkeys(
        ("CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX", "DDL"), "ddl"
    ),
    **dict.fromkeys(("GTID", "XACOMMIT", "XAROLLBACK"), "other"),
    **dict.fromkeys(("MHEARTBEAT", "TIDB_WATERMARK"), "heartbeat"),
}
EVENT: dict[str, Wanted] = {
    "kind": ("kind",),
    "op": ("string", "type"),
    "op_sent": ("json", "type"),
    "database": ("string", "database"),
    "database_kind": ("kind", "database"),
    "table": ("string", "table"),
    "es": ("text", "es"),
    "ts": ("text", "ts"),
    "is_ddl": ("text", "isDdl"),
    "data": ("items", "data"),
    "data_kind": ("kind", "data"),
    "old": ("items", "old"),
    "schema_id": ("hash", "mysqlType"),
    "sql": ("text", "sql"),
    "key_names": ("texts", "pkNames"),
    "commit_ts": ("text", "_tidb", "commitTs"),
    "is_key_alone": ("text", "_tidb", "onlyHandleKey"),
    "row_place": ("text", "_tidb", "claimCheckLocation"),
}
_KEY_ALONE = (
    " with the key of its row alone, since the row was too large: raise max-message-bytes of TiCDC "
    "and of the topic, and have the row written again"
)
_IMAGED = literals(op for op, short in ROW_OPS.items() if short in "curd")


def read_canal(records: Query) -> Query:
    """Read Canal's events: a row out for each row of a message.

    Args:
        records: has `d`, of the members `EVENT`.

    Returns:
        The records with the columns of `Envelope`.
    """
    ddl = case(("d.is_ddl = 'true' AND d.op IS NOT NULL", "'ddl'"))
    named = records.explode("d.data", "v_number", "v_item").extend(
        {
            "v_op": "d.op",
            "v_row_op": lookup("d.op", ROW_OPS),
            "v_control_op": f"coalesce({lookup('d.op', CONTROL_OPS)}, {ddl})",
            "v_database": "nullif(d.database, '')",
            "v_table": "nullif(d.table, '')",
            "v_row": case(("startswith(v_item, '{')", "v_item")),
        }
    )
    before, after = images_of("v_row", "get(d.old, v_number)", ROW_OPS)
    name = table_name_sql("v_database", "v_table")
    images = named.extend({"v_name": name, "v_before": before, "v_after": after})
    # TiCDC says so of a message that would have been too large (D20).
    is_key = (
        "v_row_op IN ('c', 'u') "
        "AND (coalesce(d.is_key_alone = 'true', false) OR d.row_place IS NOT NULL)"
    )
    is_event = "d.database_kind IS NOT NULL AND coalesce(d.op_sent, d.data_kind) IS NOT NULL"
    reasoned = images.extend(
        {
            "v_reason": reason_of(
                no_event=f"NOT coalesce({is_event} OR v_control_op = 'heartbeat', false)",
                no_op="NOT coalesce(d.op_sent <> 'null', false)",
                unknown_op="v_row_op IS NULL AND v_control_op IS NULL",
                no_table="v_row_op IS NOT NULL AND v_name IS NULL",
                no_image=f"(v_op IN ({_IMAGED}) AND v_row IS NULL) OR {is_key}",
            )
        }
    )
    key_alone = (
        f"concat('type ', v_op, {literal(_KEY_ALONE)}, "
        "coalesce(concat(' (the row is in ', d.row_place, ')'), ''))"
    )
    no_table = "the event names no database and table"
    detail = detail_of("type", "d.op_sent", no_table, " without its row in data")
    has_image = "coalesce(v_before, v_after) IS NOT NULL"
    es, commit = whole("d.es"), whole("d.commit_ts")
    return Envelope(
        reason="v_reason",
        detail=case((f"v_reason = 'missing_image' AND {is_key}", key_alone), otherwise=detail),
        kind=case(("v_row_op IS NOT NULL", "'row'"), ("v_control_op IS NOT NULL", "'control'")),
        op="coalesce(v_row_op, v_control_op)",
        source_op="v_op",
        connector="'canal'",
        db="v_database",
        table_name="v_name",
        before="v_before",
        after="v_after",
        columns=case((has_image, f"{read('v_row', size=('size',))}.size")),
        key_names=case(("size(d.key_names) > 0", "d.key_names")),
        source_ts_ms=es,
        processed_ts_ms=whole("d.ts"),
        elements=case((f"{commit} IS NOT NULL", f"array({commit})"), otherwise=NO_ELEMENTS),
        basis=case((f"{commit} IS NOT NULL", literal(COMMIT_TS)), otherwise=literal(KAFKA_TIME)),
        is_snapshot="coalesce(v_row_op = 'r', false)",
        stand_in=es,
        schema_id=case(("v_row_op IS NOT NULL", "d.schema_id")),
        payload=case(("v_control_op = 'ddl'", "d.sql")),
        row_number="v_number",
    ).add_to(reasoned)


# --- types


_TYPES = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "year", "boolean", "bool"), ColumnType("int", "int")
    ),
    **dict.fromkeys(("int", "integer"), ColumnType("int", "int")),
    "bigint": ColumnType("bigint", "bigint"),
    "float": ColumnType("float", "float"),
    **dict.fromkeys(("double", "double precision", "real"), ColumnType("double", "double")),
    "date": ColumnType("iso_date", "date"),
    **dict.fromkeys(("datetime", "timestamp"), ColumnType("iso_timestamp", "timestamp_ntz")),
    **dict.fromkeys(
        ("char", "varchar", "tinytext", "text", "mediumtext", "longtext"),
        ColumnType("string", "string"),
    ),
    "json": ColumnType("string", "string", encoding="JSON as text (json)"),
    "time": ColumnType("string", "string", encoding="time of day as text (time)"),
    # Each byte as the character of its number (ISO 8859-1).
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
        ColumnType("latin1", "binary"),
    ),
}
_UNSIGNED = {"int": ColumnType("bigint", "bigint"), "bigint": ColumnType("number", "decimal(20,0)")}
_MYSQL_TYPE = re.compile(r"\s*([a-z]+(?: precision)?)\s*(?:\(([^)]*)\))?(.*)", re.DOTALL)
_LABEL = re.compile(r"'((?:[^']|'')*)'")


def type_of(text: str) -> ColumnType:
    """The type of a column of MySQL: ``decimal(10,2)``, ``bigint(20) unsigned``; else text."""
    found = _MYSQL_TYPE.match(text.lower())
    if found is None:
        return UNKNOWN
    name, numbers, rest = found.groups()
    if name in ("enum", "set"):
        labels = tuple(label.replace("''", "'") for label in _LABEL.findall(text))
        # Of a type that does not name them (`enum` alone) values stay as they are sent.
        return ColumnType(name, "string", labels=labels) if labels else _TYPES["varchar"]
    if name in ("decimal", "numeric", "dec", "fixed"):
        # TiCDC names no digits unless it is told to (C2).
        return BARE_DECIMAL if numbers is None else _decimal(numbers)
    kind = _TYPES.get(name, UNKNOWN)
    if "unsigned" in rest and name in ("int", "integer", "bigint"):
        kind = _UNSIGNED[kind.spark]
    return kind


def _decimal(numbers: str) -> ColumnType:
    digits = re.fullmatch(r"\s*(\d{1,3})\s*(?:,\s*(\d{1,3})\s*)?", numbers)
    if digits is None:
        return UNKNOWN
    precision, scale = int(digits[1]), int(digits[2] or 0)
    if not 0 < precision <= MAX_DECIMAL or scale > precision:
        text = ColumnType("string", "string")
        return replace(text, encoding=f"exact decimal as text (decimal({precision},{scale}))")
    return ColumnType("number", f"decimal({precision},{scale})", scale)


def _columns_of_schema(schema: Mapping[str, Any]) -> ColumnTypes:
    return {
        name: type_of(kind) if isinstance(kind, str) else UNKNOWN for name, kind in schema.items()
    }


def _table_and_row(document: Mapping[str, Any]) -> TableAndRow | None:
    rows = document.get("data")
    if document.get("type") == "DELETE" or not isinstance(rows, list) or not rows:
        return None
    return table_and_row(document.get("database"), document.get("table"), rows[0])


CANAL = Format(
    "canal",
    EVENT,
    read_canal,
    signatures=(("database", "table", "type", "data", "es"), ("database", "table", "isDdl")),
    columns_of_schema=_columns_of_schema,
    table_and_row=_table_and_row,
    schema_path=("mysqlType",),
    whole_old_rows=True,
    names_keys=True,
)
