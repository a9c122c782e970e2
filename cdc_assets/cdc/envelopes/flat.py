"""Flattened Debezium records (FORMATS D18), as the transform `ExtractNewRecordState` writes them.

The row stands alone; what was kept of the envelope stands beside its columns in fields that
start with ``__``: ``__op``, ``__deleted``, ``__table``, ``__source_ts_ms``, ``__source_lsn`` …
(options `add.fields` and `delete.tombstone.handling.mode`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.envelopes.debezium import (
    ROW_OPS,
    foreign_format,
    of_event,
    read_envelope,
    unread_connector,
    with_event,
)
from cdc_assets.cdc.jsontext import at_path, is_object, is_present, string_of

MARK = "__"
_ADD_FIELDS = (
    ": set add.fields=op,schema,table,lsn,source.ts_ms (MySQL: op,db,table,file,pos,row,"
    "source.ts_ms) on ExtractNewRecordState"
)


def read_flat(records: DataFrame) -> DataFrame:
    """Read flattened events; what the transform leaves as it was (D13, D16) is control.

    Args:
        records: has `doc`, the value as :func:`~cdc_assets.cdc.jsontext.with_strict_json`
            gives it.

    Returns:
        The records with the columns of `Envelope`.
    """
    opened = with_event(records, is_bare=_has_mark("doc", "$[0]")).withColumns(
        {
            "is_flat": _has_mark("event", "$"),
            "flat_op": of_event("__op", "variant"),
            "is_deleted": F.lower(of_event("__deleted", "string")) == "true",
        }
    )
    # With `__deleted` alone a record is a write or a delete; either way it says how the row is now.
    is_delete = F.coalesce(F.col("is_deleted"), F.lit(False))
    derived = F.when(is_delete, F.lit("d")).when(F.col("is_deleted").isNotNull(), F.lit("u"))
    sent = F.col("flat_op")
    is_known = F.coalesce(F.try_variant_get(sent, "$", "string").isin(*ROW_OPS), F.lit(False))
    op = F.when(is_present(sent) & ~(is_delete & is_known), sent).otherwise(derived.cast("variant"))
    plain = of_event("op", "variant")
    is_message = F.try_variant_get("event", "$.op", "string") == "m"
    opened = opened.withColumns(
        {
            "v_op": F.when(F.col("is_flat"), op).when(is_message, plain),
            "own_row": F.when(F.col("is_flat"), _own_columns()),
        }
    ).withColumn("flat_op_text", F.try_variant_get("v_op", "$", "string"))
    is_delete, is_truncate = F.col("flat_op_text") == "d", F.col("flat_op_text") == "t"
    opened = opened.withColumns(
        {
            "v_source": F.when(F.col("is_flat"), F.col("event")).when(
                is_message, of_event("source", "variant")
            ),
            "v_before": F.when(is_delete, F.col("own_row")),
            "v_after": F.when(~is_delete & ~is_truncate, F.col("own_row")),
            "v_ts_ms": F.when(F.col("is_flat"), of_event("__ts_ms", "bigint")).otherwise(
                of_event("ts_ms", "bigint")
            ),
            "v_total_order": of_event("__transaction_total_order", "bigint"),
            "v_transaction": of_event("__transaction_id", "string"),
            "v_is_avro_json": F.lit(False),
        }
    )
    # An op that was worked out was not sent.
    sent_op = F.when(F.col("is_flat"), string_of(F.col("flat_op"))).otherwise(F.col("e_source_op"))
    return read_envelope(opened, _of_source, ROW_OPS, ~F.col("is_flat")).withColumns(
        {
            "e_source_op": sent_op,
            "e_detail": F.when(F.col("e_reason").isNotNull(), _detail()),
        }
    )


def _detail() -> Column:
    """Which fields a record lacks, and the option of the transform that adds them."""
    names_missing = F.concat_ws(
        " and ",
        F.when(F.col("v_namespace").isNull(), F.lit("__schema (or __db)")),
        F.when(F.col("v_table").isNull(), F.lit("__table")),
    )
    # ExtractNewDocumentState, the transform for MongoDB, names a collection.
    is_document = F.coalesce(
        of_event("__collection", "string"), of_event("__source_collection", "string")
    ).isNotNull()
    connector = F.when(is_document, "mongodb").otherwise(F.col("v_connector"))
    is_envelope = is_present(of_event("op", "variant")) & is_object(of_event("source", "variant"))
    return (
        F.when(
            F.col("e_reason") == "missing_table",
            F.coalesce(
                unread_connector(connector),
                F.concat(F.lit("the record lacks "), names_missing, F.lit(_ADD_FIELDS)),
            ),
        )
        .when(
            F.col("e_reason") == "not_an_envelope",
            F.when(
                is_envelope, F.lit("a whole envelope, not flattened: set `format: debezium`")
            ).otherwise(
                F.coalesce(
                    foreign_format(), F.lit("the record lacks __op and __deleted" + _ADD_FIELDS)
                )
            ),
        )
        .otherwise(F.col("e_detail"))
    )


def _has_mark(document: str, root: str) -> Column:
    found = F.lit(False)
    for name in ("__op", "__deleted"):
        found = found | F.try_variant_get(document, f"{root}.{name}", "variant").isNotNull()
    return found


def _own_columns() -> Column:
    """The row without the fields of the envelope."""
    members = F.coalesce("event_digits", "event").try_cast("map<string,variant>")
    own = F.map_filter(members, lambda name, _: ~name.startswith(MARK))
    return F.when(is_object(F.col("event")), F.to_variant_object(own))


def _of_source(path: str, kind: str) -> Column:
    """A member of what `source` was: ``__source_lsn``, or ``__lsn`` where that is how it is named.

    A logical message has its `source` still. ``__ts_ms`` is the envelope's, not the source's.
    """
    found = [at_path(F.col("v_source"), f"$.__source_{path}", kind)]
    if path != "ts_ms":
        found.append(at_path(F.col("v_source"), f"$.__{path}", kind))
    flat = F.coalesce(*found)
    if path == "connector":
        lsn = F.coalesce(of_event("__source_lsn", "bigint"), of_event("__lsn", "bigint"))
        flat = F.coalesce(flat, F.when(lsn.isNotNull(), F.lit("postgresql")))
    return F.when(F.col("is_flat"), flat).otherwise(at_path(F.col("v_source"), f"$.{path}", kind))
