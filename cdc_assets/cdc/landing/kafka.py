"""Records of Kafka topics, read with Spark by their offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc.added_jars import add_kafka
from cdc_assets.cdc.config import KafkaConfig
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets.cdc.landing.kafka_client import Client, Explained
from cdc_assets.cdc.landing.kafka_plan import Range, TopicPartition
from cdc_assets.cdc.sqltext import local_frame

DayRange = tuple[str, int, int, int, date]  # topic, partition, first offset, end, landing day


def read_offsets(
    spark: SparkSession,
    source: str,
    config: KafkaConfig,
    ranges: Mapping[date, Mapping[TopicPartition, Range]],
) -> DataFrame:
    """The records of some days' offsets: the columns of `LANDING`, one row per record.

    One read for all days, whose offsets must be adjacent in each partition. Offsets without a
    record (compaction, transaction marks, aborted transactions) give no row.

    Raises:
        LandingError: no broker answers. Offsets that are gone fail the job that reads the rows.
    """
    add_kafka(spark)
    wanted = [
        (topic, partition, start, end, day)
        for day, partitions in ranges.items()
        for (topic, partition), (start, end) in partitions.items()
        if end > start
    ]
    if not wanted:
        return local_frame(spark, [], LANDING)
    reader = spark.read.format("kafka").options(
        **{
            **config.options,
            **_offset_options(wanted),
            "kafka.bootstrap.servers": config.bootstrap_servers,
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            # One core reads a partition unless its offsets are split.
            "minPartitions": str(spark.sparkContext.defaultParallelism),
        }
    )
    with Explained(source, config):
        records = reader.load()
    return _landed(records, wanted)


def _landed(records: DataFrame, wanted: Sequence[DayRange]) -> DataFrame:
    """Landing rows of Kafka's records, each with the day of its offset."""
    columns = (
        "wanted_topic string, wanted_partition int, first bigint, after bigint, landing_date date"
    )
    days = local_frame(records.sparkSession, wanted, columns)
    within = (
        (F.col("topic") == F.col("wanted_topic"))
        & (F.col("partition") == F.col("wanted_partition"))
        & (F.col("offset") >= F.col("first"))
        & (F.col("offset") < F.col("after"))
    )
    return records.join(F.broadcast(days), within).select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "value",
        F.col("headers").cast(LANDING["headers"].dataType).alias("headers"),
        "landing_date",
        F.lit(None).cast("string").alias("file"),
    )


def _offset_options(wanted: Sequence[DayRange]) -> dict[str, str]:
    """The partitions to read, from the first day's start to the last day's end."""
    first: dict[str, dict[str, int]] = {}
    last: dict[str, dict[str, int]] = {}
    for topic, partition, start, end, _ in wanted:
        starts, ends = first.setdefault(topic, {}), last.setdefault(topic, {})
        starts[str(partition)] = min(start, starts.get(str(partition), start))
        ends[str(partition)] = max(end, ends.get(str(partition), end))
    return {
        "assign": json.dumps({t: [int(p) for p in ps] for t, ps in first.items()}),
        "startingOffsets": json.dumps(first),
        "endingOffsets": json.dumps(last),
    }


def read_latest(
    spark: SparkSession, source: str, config: KafkaConfig, records: int = 100
) -> DataFrame:
    """The last committed records of each partition of a source: the columns of `LANDING`.

    At most `records` per partition (fewer if offsets have no record); `landing_date` is the day
    of the record's timestamp in UTC. Nothing is written.

    Raises:
        LandingError: Kafka does not answer, or a topic is missing.
    """
    with Client(spark, source, config) as client:
        found = client.find()
    ranges = {
        place: (max(found.first[place], end - records), end) for place, end in found.end.items()
    }
    rows = read_offsets(spark, source, config, {date(1970, 1, 1): ranges})
    return rows.withColumn("landing_date", F.to_date("timestamp"))
