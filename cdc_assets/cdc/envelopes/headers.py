"""Headers of records, as expressions that Spark compiles: a lambda over them is interpreted."""

from __future__ import annotations

from cdc_assets.cdc.sqltext import Sql, literal


def header(name: str) -> Sql:
    """The value (BINARY) of a record's first header of this name; null without one."""
    return f"get(headers.value, CAST(array_position(headers.key, {literal(name)}) AS int) - 1)"
