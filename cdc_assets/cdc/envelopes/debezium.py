"""Debezium's envelope (FORMATS D1–D17), and Lindorm's, which has the same shape (L1–L3)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc import positions
from cdc_assets.cdc.envelopes.registry import Envelope
from cdc_assets.cdc.jsontext import at_path, is_object, is_present, string_of, text_of
from cdc_assets.cdc.names import table_name

ROW_OPS = ("c", "u", "d", "r", "t")
MESSAGE_OP = "m"
# Connectors whose events say the table, and mostly the row, in a way of their own; and where.
_UNREAD_CONNECTORS = {
    "mongodb": "source.collection, its documents are JSON in a text",
    "cassandra": "source.keyspace, its rows are cells with a deletion_ts",
    "vitess": "source.keyspace",
}


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
    opened = with_event(records).withColumns(
        {
            "v_op": of_event("op", "variant"),
            "v_source": of_event("source", "variant"),
            "v_before": of_image("before"),
            "v_after": of_image("after"),
            "v_ts_ms": of_event("ts_ms", "bigint"),
            "v_total_order": of_event("transaction.total_order", "bigint"),
            "v_transaction": of_event("transaction.id", "string"),
        }
    )
    # Avro's JSON encoding writes {"long": 1} where Connect's converter writes 1, and wraps rows in
    # the names of their types.
    is_avro_json = F.col("v_ts_ms").isNull() & is_object(of_event("ts_ms", "variant"))
    opened = opened.withColumn("v_is_avro_json", is_avro_json)

    def of_source(path: str, kind: str) -> Column:
        return at_path(F.col("v_source"), f"$.{path}", kind)

    return read_envelope(opened, of_source, row_ops, F.lit(not lindorm), lindorm)


def of_event(path: str, kind: str) -> Column:
    """A member of the column `event` as a type."""
    return at_path(F.col("event"), f"$.{path}", kind)


def of_image(path: str) -> Column:
    """A member of the event, numbers that VARIANT can't hold as texts."""
    return F.coalesce(
        F.try_variant_get("event_digits", f"$.{path}", "variant"), of_event(path, "variant")
    )


def read_envelope(
    opened: DataFrame,
    of_source: positions.Reader,
    row_ops: tuple[str, ...],
    may_be_message: Column,
    lindorm: bool = False,
) -> DataFrame:
    """Judge and name the parts of Debezium events.

    Args:
        opened: has :func:`with_event`'s columns and the parts of the envelope: `v_op`,
            `v_source`, `v_before`, `v_after` (VARIANT), `v_ts_ms`, `v_total_order` (BIGINT),
            `v_transaction` (STRING), `v_is_avro_json` (BOOLEAN).
        of_source: reads a member of the event's `source`.
        row_ops: the ops that change rows.
        may_be_message: where op `m` is a logical message (D13).
        lindorm: the table is `source.namespace`.
    """
    parts = ("namespace",) if lindorm else ("schema", "db")
    # Read once, named often: Spark would read a member anew wherever an expression names it.
    opened = opened.withColumns(
        {
            "v_ddl": of_event("ddl", "variant"),
            "v_status": of_event("status", "string"),
            "v_id": of_event("id", "string"),
            "v_table_member": of_source("table", "variant"),
            **{f"v_{part}": of_source(part, "variant") for part in parts},
        }
    )
    source = F.col("v_source")

    # A schema that is there and no text names no table; only without one the database does.
    own, *others = (F.col(f"v_{part}") for part in parts)
    namespace = string_of(own)
    for other in others:
        namespace = F.when(is_present(own), namespace).otherwise(string_of(other))
    table = string_of(F.col("v_table_member"))
    opened = opened.withColumns(
        {
            "v_op_text": F.when(
                F.schema_of_variant("v_op") == "STRING", F.try_variant_get("v_op", "$", "string")
            ),
            "v_has_op": is_present(F.col("v_op")),
            "v_source_is_object": is_object(source),
            "v_before_is_object": is_object(F.col("v_before")),
            "v_after_is_object": is_object(F.col("v_after")),
            "v_namespace": namespace,
            "v_table": table,
            "v_connector": of_source("connector", "string"),
            "v_mark": of_source("snapshot", "string"),
        }
    ).withColumn("v_name", table_name(F.col("v_namespace"), F.col("v_table")))
    op_value, op = F.col("v_op"), F.col("v_op_text")
    before, after = F.col("v_before"), F.col("v_after")
    has_op, name = F.col("v_has_op"), F.col("v_name")
    has_body = source.isNotNull() | before.isNotNull() | after.isNotNull()
    is_event = has_op & has_body
    has_ddl = ~has_op & F.col("v_ddl").isNotNull()  # D16: also JSON null
    is_avro_json = F.col("v_is_avro_json")
    is_mark = ~has_op & F.col("v_status").isin("BEGIN", "END") & F.col("v_id").isNotNull()
    is_heartbeat = ~has_op & ~has_body & _only_times(F.col("event"))
    is_message = is_event & (op == MESSAGE_OP) & may_be_message
    is_row = is_event & op.isin(*row_ops)
    is_control = has_ddl | is_mark | is_heartbeat | is_message
    has_object = (
        F.col("v_source_is_object") | F.col("v_before_is_object") | F.col("v_after_is_object")
    )
    needs_after = op.isin("c", "r", "u")
    reason = (
        F.when(is_control, None)
        .when(~has_op & has_object, "missing_op")
        .when(~is_event | is_avro_json, "not_an_envelope")
        .when(op.isNull() | ~op.isin(*row_ops), "unknown_op")
        .when(name.isNull(), "missing_table")
        .when(needs_after & ~F.col("v_after_is_object"), "missing_image")
    )
    unread = unread_connector(F.col("v_connector"))
    detail = (
        F.when(
            reason.isin("missing_op", "not_an_envelope"),
            F.coalesce(
                F.when(is_avro_json, F.lit(_AVRO_JSON)),
                foreign_format(),
                F.when(reason == "missing_op", F.lit("an envelope without op")),
                F.lit("JSON that is no change event of this format"),
            ),
        )
        .when(
            reason == "unknown_op",
            F.coalesce(unread, F.concat(F.lit("op "), F.substring(F.to_json(op_value), 1, 40))),
        )
        .when(
            reason == "missing_table",
            F.coalesce(unread, _missing_table(F.col("v_namespace"), F.col("v_table"), lindorm)),
        )
        .when(
            reason == "missing_image",
            F.coalesce(unread, F.concat(F.lit("op "), op, F.lit(" without after"))),
        )
    )
    control_op = (
        F.when(is_message, "message")
        .when(has_ddl, "ddl")
        .when(is_mark, "transaction")
        .when(is_heartbeat, "heartbeat")
    )
    mark = F.col("v_mark")
    connector = F.lit(None).cast("string") if lindorm else F.col("v_connector")
    elements = positions.debezium_elements(connector, of_source)
    return Envelope(
        reason=reason,
        detail=detail,
        kind=F.when(F.col("is_null_payload"), "tombstone")
        .when(is_control, "control")
        .when(is_row, "row"),
        op=F.coalesce(control_op, op),
        source_op=op,
        connector=F.coalesce("v_connector", F.lit("lindorm" if lindorm else None)),
        server=of_source("name", "string"),
        db=of_source("db", "string"),
        table_name=name,
        before_row=F.when(F.col("v_before_is_object"), before),
        after_row=F.when(F.col("v_after_is_object"), after),
        key_names=F.lit(None).cast("array<string>"),
        source_ts_ms=of_source("ts_ms", "bigint"),
        processed_ts_ms=F.col("v_ts_ms"),
        elements=elements.own,
        basis=elements.basis,
        stand_in=elements.stand_in,
        tx_id=F.coalesce("v_transaction", of_source("txId", "string")),
        tx_order=F.col("v_total_order"),
        rank=F.lit(1),
        # D14: a mark that is not yet known counts as a snapshot read. No truncate is read from a
        # table: without a position of its own it would remove nothing.
        is_snapshot=(op == "r") | F.coalesce((op != "t") & (mark != "false"), F.lit(False)),
        schema=F.col("schema_member"),
        payload=_payload(of_event, is_message, has_ddl, is_mark),
    ).add_to(opened)


def with_event(records: DataFrame, is_bare: Column | None = None) -> DataFrame:
    """Add `event`, `event_digits`, `schema_member` (VARIANT) and `is_null_payload`.

    Unwraps `{"schema": …, "payload": …}`; a bare envelope stays as it is (D1, D2).

    Args:
        records: has the columns of :func:`~cdc_assets.cdc.connect.with_document`.
        is_bare: what tells a bare event, if not `op` beside an image or `source`.
    """
    root = {
        f"r_{name}": F.try_variant_get("doc", f"$[0].{name}", "variant")
        for name in ("op", "source", "before", "after", "payload")
    }
    schema = F.coalesce("start_schema", F.try_variant_get("doc", "$[0].schema", "variant"))
    root["r_schema"] = schema
    read = records.withColumns(root)
    has_body = F.col("r_source").isNotNull() | F.col("r_before").isNotNull()
    has_body = has_body | F.col("r_after").isNotNull()
    # A row may itself have a column called payload: op beside an image decides first.
    if is_bare is None:
        is_bare = F.col("r_op").isNotNull() & has_body
    # Without an object in it, payload is the wrapper's only where nothing but schema is beside it.
    names = F.map_keys(F.try_variant_get("doc", "$[0]", "map<string,variant>"))
    is_alone = F.size(F.array_except(names, F.array(F.lit("schema"), F.lit("payload")))) == 0
    is_wrapper = F.when(is_object(F.col("r_payload")), True).otherwise(is_alone)
    # A column of its own: three others name it.
    is_wrapped = ~is_bare & F.col("r_payload").isNotNull() & is_wrapper
    read, wrapped = read.withColumn("r_wrapped", is_wrapped), F.col("r_wrapped")
    bare = F.try_variant_get("doc", "$[0]", "variant")
    has_schema = F.col("start_schema_id").isNotNull() | is_object(F.col("r_schema"))
    return (
        read.withColumns(
            {
                "event": F.when(wrapped, F.col("r_payload")).otherwise(bare),
                "event_digits": F.when(
                    F.col("digits").isNotNull(),
                    F.when(
                        wrapped, F.try_variant_get("digits", "$[0].payload", "variant")
                    ).otherwise(F.try_variant_get("digits", "$[0]", "variant")),
                ),
                "schema_member": F.when(wrapped & has_schema, F.col("r_schema")),
            }
        )
        .withColumn("is_null_payload", F.coalesce(F.is_variant_null("event"), F.lit(False)))
        .drop(*root, "r_wrapped")
    )


def _only_times(event: Column) -> Column:
    """A heartbeat is an object of times alone: `ts_ms`, in later versions also `ts_us` … (D16)."""
    names = F.json_object_keys(F.to_json(event))
    return F.coalesce(
        at_path(event, "$.ts_ms", "bigint").isNotNull()
        & F.forall(names, lambda name: name.startswith("ts_")),
        F.lit(False),
    )


_AVRO_JSON = (
    'Avro\'s JSON encoding ({"long": …} for a number) is not read: write the topic with the '
    "converter org.apache.kafka.connect.json.JsonConverter"
)


def foreign_format() -> Column:
    """Which other format the column `event` is written in, and what to do; null if none is known.

    Only for events that have a reason: it looks at many members.
    """

    def has(*names: str) -> Column:
        found = F.lit(True)
        for name in names:
            found = found & of_event(name, "variant").isNotNull()
        return found

    other_tool = ": capture the database with Debezium, or have the tool write Debezium's format"
    return (
        F.when(has("isDdl", "database", "type"), F.lit("the format Canal is not read" + other_tool))
        .when(
            has("database", "table", "type"), F.lit("the format Maxwell is not read" + other_tool)
        )
        .when(
            has("op_type", "table"),
            F.lit("the format of Oracle GoldenGate (op_type) is not read" + other_tool),
        )
        .when(
            has("__op") | has("__deleted"),
            F.lit("a flattened record (__op, __deleted): set `format: debezium-flat`"),
        )
    )


def unread_connector(connector: Column) -> Column:
    """Says that the events of a connector are not read; null for the others."""
    said = F.lit(None).cast("string")
    for name, where in _UNREAD_CONNECTORS.items():
        text = f"events of the connector {name} are not read: their table is in {where}"
        said = F.when(connector == name, F.lit(text)).otherwise(said)
    return said


def _missing_table(namespace: Column, table: Column, lindorm: bool) -> Column:
    wanted = "namespace" if lindorm else "schema (or db)"
    missing = F.concat_ws(
        " and ",
        F.when(namespace.isNull(), F.lit(wanted)),
        F.when(table.isNull(), F.lit("table")),
    )
    return F.concat(F.lit("source lacks "), missing)


def _payload(at: positions.Reader, message: Column, ddl: Column, mark: Column) -> Column:
    """What a control event says, as text."""
    return (
        F.when(message, at("message.content", "string"))
        .when(
            ddl,
            F.coalesce(
                F.nullif(at("ddl", "string"), F.lit("")), text_of(at("tableChanges", "variant"))
            ),
        )
        .when(mark, F.concat_ws(" ", at("status", "string"), at("id", "string")))
    )
