"""Values of standing rows that an earlier version read otherwise (FORMATS C1, C2, R2).

The rows stand as they were made, and are named on each day until the table is made anew: a number
where a label is meant, a placeholder in hexadecimal, a decimal without its fraction.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pyspark.sql.types import StringType

from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Query, Sql, literal, literals
from cdc_assets.cdc.state.configured_types import command_to_make
from cdc_assets.cdc.state.day_types import OwnColumn, TableColumns, read_otherwise
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.values.placeholders import hexadecimal_form

# Raised when values are read otherwise than by the version before.
VALUES_VERSION = 1
MAKE_ANEW = "make_anew"


def earlier_values(day: TableDay, columns: TableColumns) -> dict[str, str]:
    """The columns with rows that were read otherwise, and how; with them, how the table is made
    anew.

    A job of its own on the first day after an upgrade; later days repeat what it found.

    Raises:
        AuditError: keys are among them, whose next change would be a second row.
    """
    if day.base is None or day.starts_empty:
        return {}
    before = day.report_on(day.day - timedelta(days=1))
    if before.get("values_version") == VALUES_VERSION:
        counted = {n: what for n, what in before["read_otherwise"].items() if n != MAKE_ANEW}
    else:
        counted = _counted(day, columns)
        _refuse_keys(day, columns, counted)
    types = read_otherwise(day, columns.types.described, {c.name: c.spark for c in columns.own})
    found = {**counted, **dict.fromkeys(types, "a decimal without digits was a DECIMAL(10,0)")}
    return {**found, MAKE_ANEW: how_to_make(day)} if found else {}


def _refuse_keys(day: TableDay, columns: TableColumns, counted: Mapping[str, str]) -> None:
    if wrong := sorted({c.name for c in columns.keys} & set(counted)):
        raise AuditError(
            day.label,
            day.day,
            f"the key {', '.join(wrong)} has rows with numbers that are read as their labels now: "
            f"the next change of such a row would be a second one. {how_to_make(day)}",
        )


def how_to_make(day: TableDay) -> str:
    """How a table is made anew."""
    return (
        f"Make the table anew: {command_to_make(day.source, day.table, day.start, day.day)}. Where "
        f"the landing does not reach back to {day.start}, have the connector take a new snapshot "
        f"and set sources.{day.source}.tables.{day.table}.start_date to its day"
    )


def _counted(day: TableDay, columns: TableColumns) -> dict[str, str]:
    """How many of the rows of the day before have such values, by column."""
    rows = day.at(day.base or 0)
    texts = {field.name for field in rows.schema.fields if field.dataType == StringType()}
    hexadecimal = hexadecimal_form(day.settings.unavailable_value)
    asked: dict[str, tuple[OwnColumn, str]] = {}
    counts: dict[str, Sql] = {}
    for c in columns.own:
        if c.name not in texts:  # or became STRING since
            continue
        value, kind = quote(c.name), columns.types.latest.get(c.name)
        asked[f"h{c.index}"] = c, "with a placeholder in hexadecimal"
        counts[f"h{c.index}"] = f"count_if({value} = {literal(hexadecimal)})"
        if kind is not None and kind.wire in ("enum", "set"):
            is_number = f"{value} RLIKE '^[0-9]+$' AND {value} NOT IN ({literals(kind.labels)})"
            asked[f"n{c.index}"] = c, f"with a number of {kind.wire.upper()}"
            counts[f"n{c.index}"] = f"count_if({is_number})"
    if not counts:
        return {}
    found: Any = Query(rows).aggregate((), counts).plan().first()
    return {c.name: f"{found[n]} rows {what}" for n, (c, what) in asked.items() if found[n]}
