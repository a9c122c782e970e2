"""Debezium's envelope (FORMATS D1–D17), and Lindorm's, which has the same shape (L1–L3)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc import positions
from cdc_assets.cdc.envelopes.registry import Envelope
from cdc_assets.cdc.jsontext import is_object, is_present
from cdc_assets.cdc.names import table_name

ROW_OPS = ("c", "u", "d", "r", "t")
MESSAGE_OP = "m"


def read_debezium(records: DataFrame) -> DataFrame:
    """Read Debezium events of any connector.

    Args:
        records: has `doc`, the value as :func:`~cdc_assets.cdc.jsontext.with_strict_json`
            gives it.

    Returns:
        The records with the columns of `Envelope`.
    """
    return _read(records, row_ops=ROW_OPS, lindorm=False)


def read_lindorm(records: DataFrame) -> DataFrame:
    """Read Lindorm events: Debezium's shape, `namespace` for the schema, ops c, u, d, r."""
    return _read(records, row_ops=("c", "u", "d", "r"), lindorm=True)


def _read(records: DataFrame, row_ops: tuple[str, ...], lindorm: bool) -> DataFrame:
    opened = _open(records)
    event = F.col("event")

    def at(path: str, kind: str) -> Column:
        return F.try_variant_get(event, f"$.{path}", kind)

    op_value = at("op", "variant")
    op = F.when(F.schema_of_variant(op_value) == "STRING", at("op", "string"))
    has_op = is_present(op_value)
    source = at("source", "variant")
    before, after = at("before", "variant"), at("after", "variant")
    has_body = source.isNotNull() | before.isNotNull() | after.isNotNull()
    is_event = has_op & has_body
    has_ddl = ~has_op & is_present(at("ddl", "variant"))
    is_mark = ~has_op & at("status", "string").isin("BEGIN", "END") & at("id", "string").isNotNull()
    is_heartbeat = ~has_op & ~has_body & _only_times(event)
    is_message = is_event & (op == MESSAGE_OP) if not lindorm else F.lit(False)
    is_row = is_event & op.isin(*row_ops)
    is_control = has_ddl | is_mark | is_heartbeat | is_message

    parts = ("namespace",) if lindorm else ("schema", "db")
    namespaces = [F.nullif(at(f"source.{part}", "string"), F.lit("")) for part in parts]
    name = table_name(F.coalesce(*namespaces), F.nullif(at("source.table", "string"), F.lit("")))
    needs_after = op.isin("c", "r", "u")
    reason = (
        F.when(is_control, None)
        .when(~has_op & (is_object(source) | is_object(before) | is_object(after)), "missing_op")
        .when(~is_event, "not_an_envelope")
        .when(op.isNull() | ~op.isin(*row_ops), "unknown_op")
        .when(name.isNull(), "missing_table")
        .when(needs_after & ~is_object(after), "missing_image")
    )
    detail = (
        F.when(reason == "missing_op", F.lit("an envelope without op"))
        .when(reason == "not_an_envelope", F.lit("JSON that is no change event of this format"))
        .when(
            reason == "unknown_op", F.concat(F.lit("op "), F.substring(F.to_json(op_value), 1, 40))
        )
        .when(reason == "missing_table", F.lit("source names no schema (or db) and table"))
        .when(reason == "missing_image", F.concat(F.lit("op "), op, F.lit(" without after")))
    )
    control_op = (
        F.when(is_message, "message")
        .when(has_ddl, "ddl")
        .when(is_mark, "transaction")
        .when(is_heartbeat, "heartbeat")
    )
    mark = at("source.snapshot", "string")
    return Envelope(
        reason=reason,
        detail=detail,
        kind=F.when(F.col("is_null_payload"), "tombstone")
        .when(is_control, "control")
        .when(is_row, "row"),
        op=F.coalesce(control_op, op),
        source_op=op,
        connector=F.coalesce(
            at("source.connector", "string"), F.lit("lindorm" if lindorm else None)
        ),
        server=at("source.name", "string"),
        db=at("source.db", "string"),
        table_name=name,
        before_row=F.when(is_object(before), before),
        after_row=F.when(is_object(after), after),
        key_names=F.lit(None).cast("array<string>"),
        source_ts_ms=at("source.ts_ms", "bigint"),
        processed_ts_ms=at("ts_ms", "bigint"),
        elements=positions.debezium_elements(at),
        tx_id=F.coalesce(at("transaction.id", "string"), at("source.txId", "string")),
        tx_order=at("transaction.total_order", "bigint"),
        rank=F.when(op == "d", 0).otherwise(1),
        # D14: a mark that is not yet known counts as a snapshot read.
        is_snapshot=(op == "r") | F.coalesce(mark != "false", F.lit(False)),
        schema=F.col("schema_member"),
        payload=_payload(at, is_message, has_ddl, is_mark),
    ).add_to(opened)


def _open(records: DataFrame) -> DataFrame:
    """Unwrap `{"schema": …, "payload": …}`; a bare envelope stays as it is (D1, D2)."""
    doc = F.col("doc")

    def root(path: str, kind: str = "variant") -> Column:
        return F.try_variant_get(doc, f"$[0].{path}", kind)

    has_body = root("source").isNotNull() | root("before").isNotNull() | root("after").isNotNull()
    # A row may itself have a column called payload: op beside an image decides first.
    is_bare = root("op").isNotNull() & has_body
    wrapped = ~is_bare & root("payload").isNotNull()
    event = F.when(wrapped, root("payload")).otherwise(F.try_variant_get(doc, "$[0]", "variant"))
    schema = F.when(wrapped & is_object(root("schema")), root("schema"))
    return records.withColumns({"event": event, "schema_member": schema}).withColumn(
        "is_null_payload", F.coalesce(F.is_variant_null("event"), F.lit(False))
    )


def _only_times(event: Column) -> Column:
    """A heartbeat is an object of times alone: `ts_ms`, in later versions also `ts_us` … (D16)."""
    names = F.json_object_keys(F.to_json(event))
    return F.coalesce(
        F.try_variant_get(event, "$.ts_ms", "bigint").isNotNull()
        & F.forall(names, lambda name: name.startswith("ts_")),
        F.lit(False),
    )


def _payload(at: positions.Reader, message: Column, ddl: Column, mark: Column) -> Column:
    """What a control event says, as text."""
    return (
        F.when(message, at("message.content", "string"))
        .when(ddl, at("ddl", "string"))
        .when(mark, F.concat_ws(" ", at("status", "string"), at("id", "string")))
    )
