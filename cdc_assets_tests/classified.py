"""Landed events → rows of changes, control and quarantine, by classification alone: no lake.

For tests that ask how events are read and where they go. One pass over local rows; what the
tables, the days' facts and the commits add is left to tests with a lake.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.classify import EarlierDays, classified_tombstones, classify
from cdc_assets.cdc.changes.reading import read_records
from cdc_assets.cdc.changes.written import (
    change_rows,
    control_rows,
    quarantine_rows,
    routed_rows,
)
from cdc_assets.cdc.lake.checkpoints import local_checkpoints
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets.cdc.sqltext import local_frame
from cdc_assets_tests.lakes import Row, config_of, plain, source_config
from cdc_assets_tests.model import Landed, Record

SOURCE = "classified"


@dataclass(frozen=True)
class ClassifiedRows:
    """The rows of each table, in no order."""

    changes: list[Row]
    control: list[Row]
    quarantine: list[Row]


def classified(
    spark: SparkSession,
    landed: Landed,
    format: str = "debezium",
    *,
    timezone: str = "UTC",
    hash_salt: str | None = None,
    **options: Any,
) -> ClassifiedRows:
    """What becomes of landed records, as if nothing else had landed.

    Args:
        spark: any session.
        landed: records by day, of the builders of `events`.
        format: that of the source.
        timezone: that of the days.
        hash_salt: for sources with hashed columns.
        options: other settings of the source, as cdc.yaml writes them: tables, late_days …
    """
    source = source_config("nowhere", format, **options)
    top = {"timezone": timezone} | ({} if hash_salt is None else {"hash_salt": hash_salt})
    settings = config_of({SOURCE: source}, Path("nowhere"), **top).source(SOURCE)
    landing = landing_rows(spark, landed)
    with local_checkpoints() as checkpoints:
        reading = read_records(landing, settings, checkpoints)
        earlier = EarlierDays()
        tombstones = classified_tombstones(reading, earlier)
        found = classify(reading, earlier, timezone, tombstones)
        routed = checkpoints.add(routed_rows(found, reading, hash_salt, sorted(landed)))
        return ClassifiedRows(
            plain(change_rows(routed)),
            plain(control_rows(routed)),
            plain(quarantine_rows(landing, routed, settings)),
        )


def landing_rows(spark: SparkSession, landed: Landed) -> DataFrame:
    """Records as rows of `landing`."""
    rows = [_landing_row(day, record) for day, records in landed.items() for record in records]
    # Kafka's timestamps may be of years that Python has no datetime for.
    fields = [f"`{f.name}` {f.dataType.simpleString()}" for f in LANDING if f.name != "timestamp"]
    frame = local_frame(spark, rows, ", ".join([*fields, "timestamp_ms bigint"]))
    return frame.withColumn("timestamp", F.timestamp_millis("timestamp_ms")).select(*LANDING.names)


def _landing_row(day: date, r: Record) -> tuple[Any, ...]:
    if r.malformed_line:
        return (None, None, None, None, None, r.value, None, day, "part-0.jsonl", None)
    place = (r.topic, r.partition, r.offset)
    return (*place, 0, r.key, r.value, list(r.headers) or None, day, "part-0.jsonl", r.timestamp_ms)
