"""Message schemas that come with every message, read once each.

Kafka Connect's JSON converter writes ``{"schema":…,"payload":…}``, the schema often five times
the size of the event and the same in millions of them. Here the distinct ones are found
first, and a message that starts with one of them is read without it. What is found is the same as
by reading the whole message, by the grammar of JSON: where a document starts with
``{"schema":`` and a whole JSON object and ``,"payload":``, that object is its schema, wherever
else these texts occur.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.jsontext import digits_of, is_object, with_strict_json

_START, _NEXT = '{"schema":', ',"payload":'
_MOST = 1_000  # schemas; a source with more pays by reading messages whole


def known_starts(landing: DataFrame) -> DataFrame:
    """The starts of messages that are ``{"schema":`` and a whole schema, few and small.

    Args:
        landing: rows with `value`.

    Returns:
        `start` (text up to the payload), `start_length` (characters), `start_schema` (VARIANT),
        `start_schema_id` (SHA-256 of the schema as canonical JSON).
    """
    value = F.col("value")
    texts = landing.where(value.startswith(F.lit(_START.encode()))).select(
        value.cast("string").alias("text")
    )
    starts = (
        texts.where(F.is_valid_utf8("text") & F.col("text").contains(_NEXT))
        .select(F.substring_index("text", _NEXT, 1).alias("start"))
        .distinct()
        .limit(_MOST)
    )
    read = with_strict_json(starts, schema=F.expr(f"substring(start, {len(_START) + 1})"))
    schema = F.try_variant_get("schema", "$[0]", "variant")
    return (
        read.withColumn("start_schema", schema)
        .where(is_object(F.col("start_schema")))
        .select(
            "start",
            F.length("start").alias("start_length"),
            "start_schema",
            schema_id(F.col("start_schema")).alias("start_schema_id"),
        )
    )


def schema_id(schema: Column) -> Column:
    """SHA-256 of a schema (VARIANT) as canonical JSON."""
    return F.sha2(F.to_json(schema), 256)


def with_document(records: DataFrame, starts: DataFrame | None, **texts: Column) -> DataFrame:
    """Add `doc`, the value as strict JSON, `digits`, `start_schema` and `start_schema_id`.

    Where a start is known, `doc` is the document without its schema, and the two last
    columns are not null. `digits` is :func:`~cdc_assets.cdc.jsontext.digits_of` of `doc`.

    Args:
        records: has `value_text`.
        starts: of :func:`known_starts`; None reads every message whole.
        texts: more texts to read as strict JSON.
    """
    text = F.col("value_text")
    if starts is None:
        none = records.sparkSession.sql("SELECT parse_json('null') AS v LIMIT 0").schema["v"]
        nothing = {
            "start_schema": F.lit(None).cast(none.dataType),
            "start_schema_id": F.lit(None).cast("string"),
        }
        read = with_strict_json(records.withColumns(nothing), doc=text, **texts)
        return read.withColumn("digits", digits_of(F.col("doc"), text))
    start = F.when(text.startswith(_START), F.substring_index(text, _NEXT, 1))
    known = F.broadcast(starts)
    joined = records.withColumn("own_start", start).join(
        known, F.col("own_start") == F.col("start"), "left"
    )
    is_known = F.col("start_schema_id").isNotNull()
    # The comma behind the schema becomes the brace that opens the rest.
    rest = F.concat(F.lit("{"), F.expr("substring(value_text, start_length + 2)"))
    cut = joined.withColumn("own_text", F.when(is_known, rest).otherwise(text))
    read = with_strict_json(cut, doc=F.col("own_text"), **texts)
    names_it_twice = F.try_variant_get("doc", "$[0].schema", "variant").isNotNull()
    return (
        read.withColumn("doc", F.when(~(is_known & names_it_twice), F.col("doc")))
        .withColumn("digits", digits_of(F.col("doc"), F.col("own_text")))
        .drop("own_start", "own_text", "start", "start_length")
    )
