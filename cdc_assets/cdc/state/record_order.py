"""Column order as the records have it.

`changes` holds row images as canonical JSON with sorted names, so the producer's order is only in
the landed bytes. One or two records are enough; Iceberg's own reader looks them up, without a
Spark job.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import date
from typing import Any

from pyspark.sql import Row

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.iceberg_rows import iceberg_rows
from cdc_assets.cdc.sqltext import Sql, case, literals

_PLACE = "topic, partition, offset"


def place_columns(known: Collection[str]) -> dict[str, Sql]:
    """Aggregates over events that say which records to look up.

    Args:
        known: names of the columns that have a place already. The events have a column `names`:
            the names in their row image.

    Returns:
        `first`, the first record with a new name, and `widest`, the first of the records with most
        new names, for what a sparse first record lacks. Both are null where no record has one.
    """
    placed = f"CAST(array({literals(sorted(known))}) AS array<string>)"
    new = f"size(array_except(names, {placed}))"
    wider = f"struct(-{new} AS lacking, {_PLACE})"
    return {
        "first": f"min({case((f'{new} > 0', f'struct({_PLACE})'))})",
        "widest": f"min({case((f'{new} > 0', wider))})",
    }


def names_in_order(
    lake: Lake, source: str, day: date, found: Row, names: Collection[str]
) -> list[str]:
    """Column names in the order of the records, each once.

    Args:
        found: the result of :func:`place_columns` over the day's events.
        names: the columns to order.

    Returns:
        The names that the records have: those of the first record, then those of the widest.
    """
    places = [(p.topic, p.partition, p.offset) for p in (found.first, found.widest) if p]
    ordered: dict[str, None] = {}
    for place in dict.fromkeys(places):
        value = _landed_value(lake, source, day, *place)
        ordered.update(dict.fromkeys(order_in_message(value, names)))
    return list(ordered)


def _landed_value(
    lake: Lake, source: str, day: date, topic: str, partition: int, offset: int
) -> bytes | None:
    """The value of a landed record; None where `landing` no longer has the record."""
    place = {"landing_date": str(day), "topic": topic, "partition": partition, "offset": offset}
    table = lake.handle(lake.stage(source, "landing"))
    with iceberg_rows(lake.spark, table, equal=place, columns=[*place, "value"]) as rows:
        record = next(rows, None)
        value = record.getField("value") if record is not None else None
        return bytes(value.array()) if value is not None else None


def order_in_message(value: bytes | None, names: Collection[str]) -> list[str]:
    """The names in the order of the row that a message holds, whatever its format.

    The row is the object with most of the names; among equals the one with the fewest others.
    """
    try:
        document = json.loads(value or b"null", parse_int=str, parse_float=str)
    except (ValueError, RecursionError):  # of no message that became a change
        return []
    wanted = set(names)
    rows = sorted(
        _objects_in(document), key=lambda row: (-len(wanted & row.keys()), len(row.keys() - wanted))
    )
    return [name for name in rows[0] if name in wanted] if rows else []


def _objects_in(document: Any) -> Iterator[dict[str, Any]]:
    left = [document]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
        if isinstance(value, (dict, list)):
            left.extend(value.values() if isinstance(value, dict) else value)
