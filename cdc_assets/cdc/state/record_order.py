"""The order in which records name their columns.

`changes` holds images as canonical JSON, their names sorted; the order that a producer wrote is in
the landed bytes alone. One or two records say it. Iceberg itself looks them up, without a Spark
job.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import date
from typing import Any

from pyspark.sql import Row

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import GENERICS
from cdc_assets.cdc.sqltext import Sql, case, literals

_PLACE = "topic, partition, offset"
_EXPRESSIONS = "org.apache.iceberg.expressions.Expressions"


def place_columns(known: Collection[str]) -> dict[str, Sql]:
    """Aggregates over events that say which records to look up.

    Args:
        known: names of the columns that have their place already. The events have `names`, those
            of their image.

    Returns:
        `first`, the first record with a new name, and `widest`, the first of those with most new
        names: what a sparse first record lacks. Both are null where no record has one.
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
    """Names of columns as the records have them, each once.

    Args:
        found: what :func:`place_columns` gives of the day's events.
        names: the columns that are asked for.

    Returns:
        Those of the names that the records have: of the first record, then of the widest.
    """
    places = [(p.topic, p.partition, p.offset) for p in (found.first, found.widest) if p]
    ordered: dict[str, None] = {}
    for place in dict.fromkeys(places):
        value = _landed(lake, source, day, *place)
        ordered.update(dict.fromkeys(order_in_message(value, names)))
    return list(ordered)


def _landed(
    lake: Lake, source: str, day: date, topic: str, partition: int, offset: int
) -> bytes | None:
    """The value of a landed record, None where the landing does not have it any more."""
    jvm: Any = lake.spark._jvm
    equal = getattr(jvm, _EXPRESSIONS).equal
    wanted = {"landing_date": str(day), "topic": topic, "partition": partition, "offset": offset}
    table = lake.handle(lake.stage(source, "landing"))
    scan = getattr(jvm, GENERICS).read(table)
    for name, value in wanted.items():
        scan = scan.where(equal(name, value))
    found = scan.select([*wanted, "value"]).build()
    rows = found.iterator()
    try:
        value = rows.next().getField("value") if rows.hasNext() else None
        return bytes(value.array()) if value is not None else None
    finally:
        rows.close()
        found.close()


def order_in_message(value: bytes | None, names: Collection[str]) -> list[str]:
    """The names in the order of the row that a message holds, whatever its format.

    The row is the object with most of the names, and of such the one with the fewest others.
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
