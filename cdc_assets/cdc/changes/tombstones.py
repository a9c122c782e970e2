"""Tombstones (FORMATS D11): those that follow their own delete, and lone ones, which delete."""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.parse import IDENTITY, parse
from cdc_assets.cdc.changes.reading import Reading
from cdc_assets.cdc.sqltext import case, literal, with_columns


def history_of_keys(reading: Reading, landing_before: DataFrame | None) -> DataFrame:
    """The records with the topic, partition and key bytes of a tombstone.

    Args:
        reading: the records of some days.
        landing_before: what landed on the day before them; None where nothing did.

    Returns:
        `IDENTITY, message_key, kind, op, table_name, reason` of these records and of tombstones
        without a key, which follow nothing.
    """
    slim = reading.parsed.select(*IDENTITY, "message_key", "kind", "op", "table_name", "reason")
    tombstones = slim.where("kind = 'tombstone' AND reason IS NULL AND length(message_key) > 0")
    place = ["topic", "partition", "message_key"]
    history = slim.join(tombstones.select(*place).distinct(), place, "left_semi").unionByName(
        slim.where("kind = 'tombstone' AND coalesce(length(message_key), 0) = 0")
    )
    if landing_before is None:
        return history
    keys = tombstones.selectExpr("topic", "partition", "message_key AS key").distinct()
    rows = landing_before.join(keys, ["topic", "partition", "key"], "left_semi")
    rows = rows.to(landing_before.schema)
    read = parse(rows, reading.settings, reading.decoding)
    return history.unionByName(read.select(*slim.columns))


def classify_tombstones(history: DataFrame, topics: DataFrame, first: date) -> DataFrame:
    """Compare each tombstone from `first` on with the nearest record before it (D11).

    Args:
        history: :func:`history_of_keys`.
        topics: :func:`tables_by_topic`.
        first: tombstones of earlier days are left out.

    Returns:
        `IDENTITY`, `follows_delete`, `tombstone_table`, and `nearest_offset`, the offset of the
        nearest earlier record with the same key bytes (null: there is none).
    """
    # Offsets strictly below: a record that landed twice is not its own predecessor.
    below = (
        "OVER (PARTITION BY topic, partition, message_key ORDER BY offset "
        "RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    # A delete counts even if it is quarantined, without a key or under `key: none`.
    is_delete = "coalesce(kind = 'row' AND op = 'd', false)"
    seen_before = f"struct({is_delete} AS is_delete, landing_date, table_name, offset)"
    nearest = with_columns(history, {"nearest": f"max_by({seen_before}, offset) {below}"})
    tombstones = nearest.where("kind = 'tombstone' AND reason IS NULL")
    has_key = "length(message_key) > 0"  # D6: an empty key is no key
    is_recent = "nearest.landing_date >= date_sub(landing_date, 1)"
    follows = f"coalesce({has_key} AND nearest.is_delete AND {is_recent}, false)"
    # The tables that the topic had by the day of the tombstone.
    until = "filter(seen, t -> t.since <= landing_date)"
    only_table = case((f"size({until}) = 1", f"get({until}, 0).table_name"))
    return (
        tombstones.where(f"landing_date >= {literal(first)}")
        .join(F.broadcast(topics), "topic", "left")
        .selectExpr(
            *IDENTITY,
            f"{follows} AS follows_delete",
            f"CASE WHEN {follows} THEN nearest.table_name "
            f"ELSE coalesce(table_name, {only_table}) END AS tombstone_table",
            f"CASE WHEN {has_key} THEN nearest.offset END AS nearest_offset",
        )
        .distinct()
    )


def tables_by_topic(parsed: DataFrame, earlier: DataFrame | None) -> DataFrame:
    """`topic`, `seen`: the tables of each topic and the day each was first seen.

    Args:
        parsed: the records of some days.
        earlier: `topic, table_name, landing_date` of changes before these.
    """
    rows = parsed.where("kind = 'row' AND reason IS NULL")
    seen = rows.select("topic", "table_name", "landing_date")
    if earlier is not None:
        seen = seen.unionByName(earlier)
    return (
        seen.where("table_name IS NOT NULL")
        .groupBy("topic", "table_name")
        .agg(F.min("landing_date").alias("since"))
        .groupBy("topic")
        .agg(F.collect_list(F.struct("table_name", "since")).alias("seen"))
    )
