"""Whether the files of a sink tell the order of events that have no positions (FORMATS O8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.cdc.config import LandingConfig
from cdc_assets.cdc.errors import OrderError
from cdc_assets.cdc.lake.catalog import landed_on
from cdc_assets.cdc.positions import KAFKA_TIME


def check_ordered(
    facts: Iterable[Row], landing: DataFrame, source: str, settings: LandingConfig
) -> None:
    """Stop days whose events have no positions, and whose files have no order either.

    Offsets that are counted from where files begin order the files of a partition only where they
    do not overlap. A job where such a day has events without positions.

    Args:
        facts: of the days to be written.
        landing: the landed records of these days.
        source: the source.
        settings: of its landing.

    Raises:
        OrderError: nothing orders the events of a table.
    """
    layout = settings.file_layout
    if layout is None or not settings.derives_offsets:
        return
    tables: dict[date, set[str]] = {}
    for fact in facts:
        if fact.destination == "changes" and (fact.basis or "").startswith(f"{KAFKA_TIME},"):
            tables.setdefault(fact.landing_date, set()).add(fact.table_name)
    if not tables:
        return
    if not layout.orders_records(settings.fields):
        day = min(tables)
        raise OrderError(source, day, tables[day], "neither paths nor lines of files have offsets")
    overlaps = _overlaps(landing, tables)
    if overlaps:
        day = min(overlaps)
        raise OrderError(source, day, tables[day], f"files overlap in {overlaps[day]}")


def _overlaps(landing: DataFrame, days: Mapping[date, object]) -> dict[date, str]:
    """By day, a partition in which files overlap."""
    places = (
        landing.where(landed_on(days))
        .groupBy("landing_date", "topic", "partition")
        .agg(F.count("offset").alias("records"), F.count_distinct("offset").alias("offsets"))
        .where("records > offsets")
        .orderBy("landing_date", "topic", "partition")
        .collect()
    )
    found: dict[date, str] = {}
    for place in places:
        found.setdefault(place.landing_date, f"{place.topic} [{place.partition}]")
    return found
