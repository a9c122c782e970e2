"""Kafka's topics into an Iceberg and a Delta table, as a process that a test kills.

``python -m cdc_assets_tests.e2e.stream_topics CONFIG SERVERS PATTERN ICEBERG DELTA FOLDER [N]``

Both tables get the columns of Spark's Kafka source; the checkpoints are in FOLDER. Iceberg's sink
knows which batches it has. Delta gets them by ``foreachBatch``, which appends a batch again where
the process ended before it was confirmed. With N it waits between the two at that batch, and says
so by the file FOLDER/written.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cdc_assets.cdc.added_jars import add_kafka
from cdc_assets.cdc.config import load_config
from cdc_assets.cdc.spark import build_session

COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def stream(
    config: str,
    servers: str,
    pattern: str,
    iceberg: str,
    delta: str,
    folder: str,
    waits_at: str | None = None,
) -> None:
    """Write until the process ends."""
    spark = build_session(load_config(config))
    add_kafka(spark)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {iceberg.rpartition('.')[0]}")
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {iceberg} ({COLUMNS}) USING iceberg "
        "PARTITIONED BY (days(timestamp))"
    )
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribePattern", pattern)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )

    def append(batch: DataFrame, number: int) -> None:
        batch.write.format("delta").mode("append").save(delta)
        if str(number) == waits_at:
            Path(folder, "written").touch()
            time.sleep(600)

    def start(name: str) -> DataStreamWriter:
        place = str(Path(folder, name))
        every = records.writeStream.trigger(processingTime="1 second")
        return every.option("checkpointLocation", place)

    start("iceberg").option("fanout-enabled", "true").toTable(iceberg)
    start("delta").foreachBatch(append).start()
    spark.streams.awaitAnyTermination()  # raises what has stopped one


if __name__ == "__main__":
    stream(*sys.argv[1:])
