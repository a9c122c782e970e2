"""A few rows of a table, read by Iceberg itself: a Spark job would take ten times as long."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import GENERICS


def first_rows(
    lake: Lake, identifier: str, snapshot: int, limit: int, is_hidden: Callable[[str], bool]
) -> tuple[list[str], list[list[str | None]]]:
    """The names of a table's columns and some of its rows as texts, as of a snapshot.

    Args:
        is_hidden: true of the columns whose values are not read; they are None.

    Returns:
        Names and rows. Bytes are base64, an empty text is ``""``, null is None.
    """
    table = lake.handle(identifier)
    found = getattr(lake.spark._jvm, GENERICS).read(table).useSnapshot(snapshot).build()
    rows = found.iterator()
    try:
        read: list[Any] = []
        while len(read) < limit and rows.hasNext():
            read.append(rows.next())
        fields = read[0].struct().fields() if read else table.schema().columns()
        kinds = [(field.name(), field.type().toString()) for field in fields]
        texts = [
            [
                None if is_hidden(name) else _text(row.get(n), kind)
                for n, (name, kind) in enumerate(kinds)
            ]
            for row in read
        ]
        return [name for name, _ in kinds], texts
    finally:
        rows.close()
        found.close()


def _text(value: Any, kind: str) -> str | None:
    if value is None or isinstance(value, str):
        return '""' if value == "" else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, (int, float)):
        return str(value)
    if kind == "binary":
        return base64.b64encode(value.array()).decode()
    return str(value.toString())
