"""A few rows of a table as texts, read without a Spark job."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from itertools import islice
from typing import Any

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.iceberg_rows import iceberg_rows


def first_rows(
    lake: Lake, identifier: str, snapshot: int, limit: int, is_hidden: Callable[[str], bool]
) -> tuple[list[str], list[list[str | None]]]:
    """The column names of a table and some of its rows as texts, as of a snapshot.

    Args:
        is_hidden: True for a column whose values become None.

    Returns:
        Names and rows. Bytes are base64, an empty text is ``""``, null is None.
    """
    table = lake.handle(identifier)
    with iceberg_rows(lake.spark, table, snapshot=snapshot) as rows:
        first = list(islice(rows, limit))
        fields = first[0].struct().fields() if first else table.schema().columns()
        columns = [(field.name(), field.type().toString()) for field in fields]
        texts = [
            [
                None if is_hidden(name) else _text(row.get(n), kind)
                for n, (name, kind) in enumerate(columns)
            ]
            for row in first
        ]
    return [name for name, _ in columns], texts


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
