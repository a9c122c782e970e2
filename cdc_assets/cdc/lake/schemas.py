"""The columns of each source's own tables, with their comments."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def _schema(*columns: tuple[str, DataType, str]) -> StructType:
    return StructType(
        [StructField(name, kind, True, {"comment": comment}) for name, kind, comment in columns]
    )


def _only(schema: StructType, *names: str) -> list[tuple[str, DataType, str]]:
    return [(n, schema[n].dataType, schema[n].metadata["comment"]) for n in names]


# 0001-01-01 to 9999-12-31, ms since 1970: the range of a timestamp; differences stay in int64.
MIN_MS, MAX_MS = -62_135_596_800_000, 253_402_300_799_999

_TEXT, _LONG = StringType(), LongType()
_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

LANDING = _schema(
    ("topic", _TEXT, "Kafka topic; null for a line that is not a record"),
    ("partition", IntegerType(), "Kafka partition"),
    ("offset", _LONG, "Kafka offset"),
    ("timestamp", TimestampType(), "Kafka timestamp of the record"),
    ("timestamp_type", IntegerType(), "0: the producer's clock; 1: the broker's"),
    ("key", BinaryType(), "message key, bytes as they came"),
    ("value", BinaryType(), "message value, bytes as they came"),
    ("headers", _HEADERS, "message headers in order"),
    ("landing_date", DateType(), "the day that the record landed"),
    ("file", _TEXT, "landed file that held the record; null from Kafka"),
)

QUARANTINE = StructType(
    [
        *LANDING.fields,
        *_schema(
            ("reason", _TEXT, "reason code, a closed list"),
            ("detail", _TEXT, "what was found, in one line"),
            ("table_name", _TEXT, "namespace.table, where the record could be read so far"),
        ).fields,
    ]
)

CHANGES = _schema(
    ("landing_date", DateType(), "the day that the record landed"),
    ("topic", _TEXT, "Kafka topic"),
    ("partition", IntegerType(), "Kafka partition"),
    ("offset", _LONG, "Kafka offset"),
    ("kafka_ts_ms", _LONG, "Kafka timestamp, ms UTC"),
    ("connector", _TEXT, "source.connector, or the format"),
    ("server", _TEXT, "source.name: the logical server"),
    ("db", _TEXT, "source database"),
    ("table_name", _TEXT, "namespace.table"),
    ("op", _TEXT, "c create, u update, d delete, r snapshot read, t truncate"),
    ("source_op", _TEXT, "op as sent; null for a tombstone"),
    ("key", _TEXT, "key columns as canonical JSON"),
    ("old_key", _TEXT, "key that the row had before this event, where it changed"),
    ("new_key", _TEXT, "key that the row has after this delete, where it changed"),
    ("before", _TEXT, "row before the change as JSON"),
    ("after", _TEXT, "row after the change as JSON"),
    ("source_ts_ms", _LONG, "when the source changed, ms UTC"),
    ("processed_ts_ms", _LONG, "when the connector processed the change, ms UTC"),
    ("position", ArrayType(_LONG), "order of events, element by element"),
    ("tx_id", _TEXT, "source transaction; not an order"),
    ("tx_order", _LONG, "order within the transaction"),
    ("is_snapshot", BooleanType(), "a snapshot read, not a change"),
    ("schema_id", _TEXT, "SHA-256 of the message's schema; see the table schemas"),
    (
        "source_elements",
        ArrayType(_LONG),
        "elements of the order as sent by the source; null if missing",
    ),
    ("position_basis", _TEXT, "what the elements of the position are"),
    ("identity", _TEXT, "what else identifies the change, as JSON; it orders nothing"),
    ("stream_element", ArrayType(_LONG), "what falls by a redelivery or a new server alone"),
    ("snapshot", _TEXT, "of a snapshot read: source.snapshot as sent, such as first or last"),
    ("source_table", _TEXT, "the event's own table, where that goes into another one"),
)

# A read at which a snapshot of its table begins or ends (FORMATS R7).
SNAPSHOT_MARK = StructType(
    [
        StructField("ms", _LONG),  # when it came to Kafka
        StructField("topic", _TEXT),
        StructField("partition", IntegerType()),
        StructField("offset", _LONG),
        StructField("mark", _TEXT),  # `source.snapshot`
        StructField("day", DateType()),
        StructField("source_ts_ms", _LONG),
        StructField("content", _LONG),  # a hash that its copies have, too
        StructField("stream", _TEXT),  # connector and server
        StructField("source_table", _TEXT),  # where that goes into another one
    ]
)

CONTROL = _schema(
    *_only(CHANGES, "landing_date", "topic", "partition", "offset", "kafka_ts_ms"),
    *_only(CHANGES, "connector", "server", "db", "table_name"),
    ("op", _TEXT, "message, heartbeat, transaction, ddl, tombstone or other"),
    *_only(CHANGES, "source_op", "key", "old_key", "new_key"),
    *_only(CHANGES, "source_ts_ms", "processed_ts_ms", "position"),
    *_only(CHANGES, "tx_id", "tx_order", "is_snapshot", "schema_id"),
    ("payload", _TEXT, "message content in base64, DDL text, transaction mark"),
)

SCHEMAS = _schema(
    ("schema_id", _TEXT, "SHA-256 of the schema text"),
    ("table_name", _TEXT, "namespace.table"),
    ("schema", _TEXT, "the schema that messages carried, as JSON"),
    ("first_landed", DateType(), "first day that it landed"),
    ("registry_id", _TEXT, "id of a schema registry's schema, which has no table; else null"),
)

FACTS = _schema(
    ("landing_date", DateType(), "the day that the records landed"),
    ("destination", _TEXT, "changes, control, quarantine; order, protected: of a table's events"),
    *_only(CHANGES, "table_name", "op", "source_op"),
    ("reason", _TEXT, "why they are in quarantine"),
    ("epoch", _LONG, "how many of the configured instants of position_reset they have reached"),
    ("basis", _TEXT, "what the elements of their positions are"),
    *_only(CHANGES, "schema_id"),
    ("records", _LONG, "how many there are"),
    ("without_position", _LONG, "how many have no position"),
    ("moves", _LONG, "how many changed their row's key"),
    ("without_before", _LONG, "how many have no row before the change"),
    ("without_schema", _LONG, "how many have a row after and no schema"),
    ("maybe_unsent", _LONG, "how many may hold a value that was not sent"),
    ("key_names", ArrayType(ArrayType(_TEXT)), "the key columns that they have"),
    ("lowest", ArrayType(_LONG), "lowest position"),
    ("highest", ArrayType(_LONG), "highest position"),
    ("first_source_ts_ms", _LONG, "lowest time at the source, of records with a position"),
    ("last_source_ts_ms", _LONG, "highest time at the source, of records with a position"),
    ("further_rows", _LONG, "how many are not the first row of their record"),
    ("key_changes", _LONG, "how many say by a header which key their row left or takes"),
    ("key_change_hash", _LONG, "the same for the deletes and the creates of the same key changes"),
    ("tied", _LONG, "keys with events that nothing of the source tells apart; by table"),
    ("scattered", _LONG, "keys with events of equal elements in several partitions; by table"),
    ("crossed", _LONG, "keys at which rows arrive and leave in one transaction; by table"),
    *_only(CHANGES, "topic", "partition"),
    ("first_tx", _LONG, "hash of the transaction of the first event in that partition"),
    ("last_tx", _LONG, "hash of the transaction of the last event there"),
    ("lowest_tx", _LONG, "hash of the transaction of the event at the lowest position there"),
    ("highest_tx", _LONG, "hash of the transaction of the event at the highest position there"),
    *_only(CHANGES, "db"),
    ("stream", _TEXT, "whose positions the events in that partition have: connector and server"),
    ("judged", _LONG, "how many of them have a stream_element; lowest and highest are of these"),
    ("first_offset", _LONG, "lowest offset there, also of records without a position"),
    ("last_offset", _LONG, "highest offset there, also of records without a position"),
    ("last_streamed_offset", _LONG, "highest offset there, of records with a position"),
    ("first_kafka_ms", _LONG, "lowest Kafka timestamp there, of records with a position"),
    ("last_kafka_ms", _LONG, "highest Kafka timestamp there"),
    ("highest_offset", _LONG, "offset of the last event with the highest stream_element there"),
    ("highest_kafka_ms", _LONG, "Kafka timestamp of that event"),
    ("falls", _LONG, "events whose stream_element is below one at a lower offset there"),
    ("falls_later", _LONG, "of these, those whose time at the source is above all before there"),
    ("columns_found", ArrayType(_TEXT), "which columns to protect its rows have; by table"),
    ("incomplete", _LONG, "how many lack a part of their position"),
    ("newest_ms", _LONG, "when the newest came to Kafka, or what stands in for it; ms"),
    ("placed_ties", _LONG, "keys whose equal positions the place in files decided; by table"),
    ("placed_reads", _LONG, "snapshot reads beside other events of their key, likewise; by table"),
    ("snapshot_marks", ArrayType(SNAPSHOT_MARK), "reads at which a snapshot begins or ends"),
    ("truncated_table", _TEXT, "of truncates of a table that goes into this one: that table"),
    ("unmarked_reads", _LONG, "how many other reads of a snapshot there are, not incremental"),
    ("last_unmarked_ms", _LONG, "when the last of those came to Kafka, ms"),
)

EPOCHS = _schema(
    ("landing_date", DateType(), "the day up to whose end the streams are judged"),
    ("streams", _TEXT, "each stream's epochs and highest elements, and each table's streams: JSON"),
)

LAG = _schema(
    ("landing_date", DateType(), "the day that the records landed"),
    ("table_name", _TEXT, "namespace.table"),
    ("hour", TimestampType(), "start of the source hour; null: the whole day"),
    ("kind", _TEXT, "capture, delivery or end_to_end"),
    ("count", _LONG, "events measured"),
    ("excluded", _LONG, "snapshot reads, tombstones and events without both times"),
    ("negative", _LONG, "measured events with a lag below zero"),
    ("min_ms", _LONG, "smallest lag, ms"),
    ("p50_ms", _LONG, "median lag, ms (percentile_disc)"),
    ("p90_ms", _LONG, "90th percentile, ms"),
    ("p95_ms", _LONG, "95th percentile, ms"),
    ("p99_ms", _LONG, "99th percentile, ms"),
    ("max_ms", _LONG, "largest lag, ms"),
    ("mean_ms", _LONG, "mean lag, ms, rounded half up"),
    ("complete", BooleanType(), "false while the day is open"),
)
