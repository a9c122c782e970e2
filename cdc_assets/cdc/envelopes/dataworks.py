"""DataWorks' messages (FORMATS W1–W7)."""

from __future__ import annotations

from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.envelopes.registry import Envelope
from cdc_assets.cdc.jsontext import at_path, is_object, is_present, string_of
from cdc_assets.cdc.names import table_name
from cdc_assets.cdc.positions import Reader, wide_number

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


def read_dataworks(records: DataFrame) -> DataFrame:
    """Read DataWorks events.

    Args:
        records: has `doc`, the value as :func:`~cdc_assets.cdc.jsontext.with_strict_json`
            gives it.

    Returns:
        The records with the columns of `Envelope`.
    """

    def at(path: str, kind: str) -> Column:
        name, _, rest = path.partition(".")
        if name == "schema":
            return at_path(F.col("v_schema"), f"$.{rest}", kind)
        return at_path(F.col("doc"), f"$[0].{path}", kind)

    schema = F.coalesce("start_schema", F.try_variant_get("doc", "$[0].schema", "variant"))
    # Read once, named often: Spark would read a member anew wherever an expression names it.
    records = records.withColumns(
        {
            "v_payload": at("payload", "variant"),
            "v_op": at("payload.op", "variant"),
            "v_before": _exact("before.dataColumn", "variant"),
            "v_after": _exact("after.dataColumn", "variant"),
            "v_schema": schema,
        }
    )
    payload = F.col("v_payload")
    op_value = F.col("v_op")
    op = F.when(F.schema_of_variant(op_value) == "STRING", at("payload.op", "string"))
    known = is_object(at("schema.source", "variant"))
    for name in ("timestamp", "before", "after", "sequenceId", "ddl"):
        known = known | at(f"payload.{name}", "variant").isNotNull()
    is_envelope = is_object(payload) & known & is_object(F.col("v_schema"))
    row_op, control_op = _lookup(op, ROW_OPS), _lookup(op, CONTROL_OPS)
    table = _table(at)
    before, after = F.col("v_before"), F.col("v_after")
    no_image = (op.isin("INSERT", "UPDATE_AFTER") & ~is_object(after)) | (
        op.isin(*BEFORE_OPS) & ~is_object(before)
    )
    reason = (
        F.when(~is_envelope, "not_an_envelope")
        .when(~is_present(op_value), "missing_op")
        .when(row_op.isNull() & control_op.isNull(), "unknown_op")
        .when(row_op.isNotNull() & table.isNull(), "missing_table")
        .when(no_image, "missing_image")
    )
    detail = (
        F.when(reason == "not_an_envelope", F.lit("JSON that is no change event of this format"))
        .when(reason == "missing_op", F.lit("an envelope without op"))
        .when(
            reason == "unknown_op", F.concat(F.lit("op "), F.substring(F.to_json(op_value), 1, 40))
        )
        .when(reason == "missing_table", F.lit("schema.source names no dbName and tableName"))
        .when(reason == "missing_image", F.concat(F.lit("op "), op, F.lit(" without its image")))
    )
    is_before = op.isin(*BEFORE_OPS)
    return Envelope(
        reason=F.when(~_is_null_payload(at), reason),
        detail=detail,
        kind=F.when(_is_null_payload(at), "tombstone")
        .when(row_op.isNotNull(), "row")
        .when(control_op.isNotNull(), "control"),
        op=F.coalesce(row_op, control_op),
        source_op=op,
        connector=F.lit("dataworks"),
        server=F.lit(None).cast("string"),
        db=at("schema.source.dbName", "string"),
        table_name=table,
        before_row=F.when(is_object(before), before),
        # The half that says how the row was says nothing of how it is.
        after_row=F.when(is_object(after) & ~is_before, after),
        key_names=_key_names(at, F.coalesce(after, before)),
        source_ts_ms=at("payload.timestamp.eventTime", "bigint"),
        processed_ts_ms=at("payload.timestamp.systemTime", "bigint"),
        elements=wide_number(_exact("sequenceId", "string")),
        basis=F.lit("sequenceId"),
        stand_in=at("payload.timestamp.eventTime", "bigint"),
        tx_id=F.lit(None).cast("string"),
        tx_order=F.lit(None).cast("bigint"),
        rank=F.when(is_before, 0).otherwise(1),
        is_snapshot=F.lit(False),
        schema=F.when(_has_columns(at), F.col("v_schema")),
        # W7: ddlMeta is a serialised object; it stays text in the landing.
        payload=F.when(control_op == "ddl", at("payload.ddl.text", "string")),
    ).add_to(records)


def _exact(path: str, kind: str) -> Column:
    """A member of the payload; numbers that VARIANT can't hold as texts."""
    whole = f"$[0].payload.{path}"
    return F.coalesce(*(F.try_variant_get(of, whole, kind) for of in ("digits", "doc")))


def _lookup(op: Column, table: dict[str, str]) -> Column:
    return F.element_at(F.create_map(*(F.lit(x) for x in chain(*table.items()))), op)


def _is_null_payload(at: Reader) -> Column:
    return F.coalesce(F.is_variant_null(at("payload", "variant")), F.lit(False))


def _has_columns(at: Reader) -> Column:
    kind = F.schema_of_variant(at("schema.dataColumn", "variant"))
    # Among objects there may be what is none.
    return F.coalesce(kind.startswith("ARRAY<OBJECT") | (kind == "ARRAY<VARIANT>"), F.lit(False))


def _table(at: Reader) -> Column:
    """W1: ``dbName.tableName``; with a schema name ``dbName__schemaName.tableName``."""

    def name(part: str) -> Column:
        return string_of(at(f"schema.source.{part}", "variant"))

    namespace = F.when(
        name("dbName").isNotNull(), F.concat_ws("__", name("dbName"), name("schemaName"))
    )
    return table_name(namespace, name("tableName"))


def _key_names(at: Reader, image: Column) -> Column:
    """The primary key that the message names, else the row id column (W4)."""
    primary = at("schema.primaryKey", "array<string>")
    row_id = F.try_variant_get(image, f'$["{ROW_ID}"]', "variant").isNotNull()
    oracle = (F.lower(at("schema.source.dbType", "string")) == "oracle") & F.try_variant_get(
        image, f"$.{ORACLE_ROW_ID}", "variant"
    ).isNotNull()
    return (
        F.when(F.size(primary) > 0, primary)
        .when(row_id, F.array(F.lit(ROW_ID)))
        .when(oracle, F.array(F.lit(ORACLE_ROW_ID)))
    )
