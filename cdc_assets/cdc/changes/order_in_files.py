"""Whether the files of a sink tell the order of events that have no positions (FORMATS O8)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from pyspark.sql import Row

from cdc_assets.cdc.errors import OrderError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.landing.figures import count_landed
from cdc_assets.cdc.positions import is_placed_by_kafka


def check_ordered(lake: Lake, source: str, facts: Iterable[Row]) -> None:
    """Stop days whose events have no positions, and whose files have no order either.

    Offsets that are counted from where files begin order the files of a partition only where they
    do not overlap. A job where such a day has events without positions.

    Args:
        lake: has the landing of the days.
        source: the source.
        facts: of the days to be written.

    Raises:
        OrderError: nothing orders the events of a table.
    """
    landing = lake.config.source(source).landing
    layout = landing.file_layout
    if layout is None or not landing.derives_offsets:
        return
    tables: dict[date, set[str]] = {}
    for fact in facts:
        if fact.destination == "changes" and is_placed_by_kafka(fact.basis or ""):
            tables.setdefault(fact.landing_date, set()).add(fact.table_name)
    if not tables:
        return
    days = sorted(tables)
    if not layout.orders_records(landing.fields):
        why = "neither paths nor lines of files have offsets"
        raise OrderError(source, days[0], tables[days[0]], why)
    landed = count_landed(lake, source, days).offsets
    for day in days:
        for (topic, partition), row in sorted(landed.get(day, {}).items()):
            if row.with_offset > row.offsets:
                why = f"files overlap in {topic} [{partition}]"
                raise OrderError(source, day, tables[day], why)
