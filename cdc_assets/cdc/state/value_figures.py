"""What the day's rows hold that their columns can't, and numbers in another unit (FORMATS R4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.sqltext import Query, Sql
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.row_sql import with_keys
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.table_events import events_on
from cdc_assets.cdc.values.times import PER_SECOND

# The years 1990 to 2100 in seconds: numbers in this range are plainly such.
_FROM, _TO = 631_152_000, 4_102_444_800
_SECONDS = f"unix_millis(CAST({{}} AS timestamp)) BETWEEN {_FROM} AND {_TO}"


@dataclass(frozen=True)
class ValueCounts:
    """Counts of :func:`value_counts`, and the fingerprint of the rows that are to be there."""

    n: int = 0
    contradicted: int = 0
    unfit: int = 0
    odd_times: int = 0
    fingerprint: int | None = None


@dataclass(frozen=True)
class ValueFigures:
    """What values came to.

    `unfit` has by column the number of values that it can't hold, and one of them; `contradicted`
    counts rows whose image has another key than their event; `units` has by column the type to
    configure, of time stamps in another unit than ms.
    """

    unfit: Mapping[str, Any] = field(default_factory=dict)
    contradicted: int = 0
    units: Mapping[str, str] = field(default_factory=dict)


def value_counts(columns: TableColumns) -> list[Column]:
    """`n` rows, how many contradict their key, and how many hold what a column can't (R4).

    `odd_times` have a time stamp without a unit that may be in another one than ms.
    """
    differ = [c.contradicted for c in columns.keys]
    unfit = ", ".join(c.unfit for c in columns.own)
    odd = (f"{_SECONDS.format(c.work)} OR {c.unfit} IS NOT NULL" for c in columns.without_unit)
    counts = {
        "n": "NOT is_removal",
        "odd_times": f"NOT is_removal AND ({' OR '.join(odd) or 'false'})",
        "contradicted": f"NOT is_removal AND ({' OR '.join(differ) or 'false'})",
        "unfit": f"NOT is_removal AND coalesce({unfit}) IS NOT NULL" if unfit else "false",
    }
    return [F.expr(f"count_if({condition}) AS {name}") for name, condition in counts.items()]


def judge_values(
    day: TableDay, rows: DataFrame, counts: ValueCounts, columns: TableColumns
) -> ValueFigures:
    """What the day's rows hold that their columns can't: a job each where there is something.

    Raises:
        AuditError: the type of such a column was inferred.
    """
    unfit = _unfit(day, rows, columns) if counts.unfit else {}
    for c in columns.own:
        if c.name in unfit and c.name in columns.inferred:
            raise AuditError(
                day.label,
                day.day,
                f"column {c.name!r} was inferred as {c.spark} and can't hold "
                f"{unfit[c.name].get('example', 'its values')} "
                f"({unfit[c.name]['count']} rows). Say its type "
                f"in cdc.yaml: sources.{day.source}.tables.{day.table}.columns: "
                f"{{{json.dumps(c.name, ensure_ascii=False)}: string}}",
            )
    units = _plain_units(rows, columns) if counts.odd_times else {}
    return ValueFigures(unfit, counts.contradicted, units)


def count_unreadable_keys(day: TableDay, columns: TableColumns) -> int:
    """Events whose key the table's inferred key columns can't hold; such change no row: a job."""
    if columns.inferred.isdisjoint(columns.key_names):
        return 0
    keyed = with_keys(events_on(day, [day.day]), columns)
    return keyed.where("key IS NOT NULL AND k IS NULL").count()


def _plain_units(rows: DataFrame, columns: TableColumns) -> dict[str, str]:
    """By column the type to configure where more than half of its numbers are plainly no ms: a job.

    Args:
        rows: of a day with `odd_times`.
    """
    asked = columns.without_unit
    larger = "try_cast({} AS bigint) BETWEEN {} AND {}"
    counts: dict[str, Sql] = {}
    for c in asked:
        counts[f"{c.work}_n"] = f"count({c.work}) + count({c.unfit})"
        counts[f"{c.work}_s"] = f"count_if({_SECONDS.format(c.work)})"
        for unit in ("us", "ns"):
            bounds = (limit * PER_SECOND[unit] for limit in (_FROM, _TO))
            counts[f"{c.work}_{unit}"] = f"count_if({larger.format(c.unfit, *bounds)})"
    found = Query(rows).where("NOT is_removal").aggregate((), counts).plan().first()
    assert found is not None
    return {
        c.name: f"{c.spark}({unit})"
        for c in asked
        for unit in ("s", "us", "ns")
        if 2 * found[f"{c.work}_{unit}"] > found[f"{c.work}_n"]
    }


def _unfit(day: TableDay, rows: DataFrame, columns: TableColumns) -> dict[str, Any]:
    """By column the number of values that it can't hold and one of them: a job of its own.

    What the source does not show is not taken: the report stands in the lake's metadata.
    """
    shown = {c.name for c in columns.own if day.settings.shows_column(day.table, c.name)}
    aggregates = [f"count({c.unfit}) AS {c.work}_n" for c in columns.own]
    aggregates += [
        f"min(substring({c.unfit}, 1, 60)) AS {c.work}_x" for c in columns.own if c.name in shown
    ]
    found = rows.where("NOT is_removal").selectExpr(*aggregates).first()
    assert found is not None
    return {
        c.name: {
            "count": found[f"{c.work}_n"],
            **({"example": found[f"{c.work}_x"]} if c.name in shown else {}),
        }
        for c in columns.own
        if found[f"{c.work}_n"]
    }
