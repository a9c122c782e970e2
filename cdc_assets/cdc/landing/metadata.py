"""Materialization metadata of a landed day."""

from __future__ import annotations

from typing import Any

from cdc_assets.cdc.landing.files import LandedDay
from cdc_assets.cdc.landing.kafka_plan import KafkaDay


def landing_day(landed: LandedDay | KafkaDay, records: int, is_open: bool) -> dict[str, Any]:
    """Files or offsets, and records.

    Compaction, aborted transactions and transaction marks leave offsets without a record.

    Args:
        landed: the day's files or offsets.
        records: the number of landed records.
        is_open: whether the day is not over; unused for a day from Kafka, which records it.
    """
    if isinstance(landed, KafkaDay):
        lost = sum(end - start for start, end in landed.lost.values())
        return {
            "dagster/partition_row_count": records,
            "topics": len(landed.topics),
            "partitions": len(landed.ranges),
            "offsets": landed.span,
            "offsets_without_record": landed.span - lost - records,
            "offsets_lost": lost,
            "complete": landed.closed,
        }
    return {
        "dagster/partition_row_count": records,
        "files": landed.files,
        **landed.counts,
        "complete": not is_open,
    }
