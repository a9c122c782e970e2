"""The charts of a report, as data for :func:`~cdc_assets.cli.report.page.page_data`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from cdc_assets.cdc.lag.charts import densest, duration
from cdc_assets.cdc.lag.measurement import KINDS
from cdc_assets.cdc.names import printable
from cdc_assets.cli.report.data import Count, Figures

_LAG = ("p50", "p95", "p99", "max")
_OPS = {"c": "create", "u": "update", "d": "delete", "r": "snapshot read", "t": "truncate"}
_MAX_COLUMNS = 400
_MAX_CELLS = 40_000  # tables times columns, per kind of lag
_STEPS = (1, 2, 3, 4, 6, 8, 12, 24)  # hours per column; then whole days

Panel = dict[str, Any]


def panels(figures: Figures) -> list[Panel]:
    """The charts in the order of the page."""
    return [
        _lag_panel(figures),
        _changes_panel(figures),
        _quarantine_panel(figures),
        _sizes_panel(figures),
        _seconds_panel(figures),
    ]


def some(number: int, what: str) -> str:
    """A number of things: ``1 table``, ``2 tables``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _panel(
    figures: Figures, name: str, title: str, says: str, values: Sequence[Mapping[str, str]]
) -> Panel:
    marks = dict.fromkeys(figures.open_days, " (open)")
    return {
        "id": name,
        "title": title,
        "says": says,
        "notes": [],
        "columns": [f"{day}{marks.get(day, '')}" for day in figures.days],
        "column": "Day",
        "row": "Table",
        "rows_are": "tables",
        "rows": [],
        "figures": list(values),
        "group": "",
        "groups": [],
        "bars": False,
        "long": False,
        "empty": "",
    }


def _worst_lag(figures: Figures) -> str:
    worst = max(
        (row for row in figures.lag_days if row["p95_ms"] is not None),
        key=lambda row: row["p95_ms"],
        default=None,
    )
    if worst is None:
        return "No lag was measured on these days."
    return (
        f"The worst p95 of a table's day is {worst['p95_ms']:,} ms "
        f"({duration(worst['p95_ms'])}, {worst['kind']}): {printable(worst['table'])}, landed on "
        f"{worst['landing_date']}."
    )


def _lag_panel(figures: Figures) -> Panel:
    panel = _panel(
        figures,
        "lag",
        "Lag by table and source hour",
        _worst_lag(figures),
        [{"label": figure, "unit": "ms"} for figure in _LAG],
    )
    panel |= {"group": "Kind", "column": "Source hour, UTC"}
    measured = [row for row in figures.lag_hours if row["count"]]
    start = _first_hour(figures, measured)
    end = start + (figures.end - figures.start)
    inside = [row for row in measured if start <= row["hour"] < end]
    names = sorted({row["table"] for row in inside})
    step, panel["columns"] = _hour_columns(start, end, len(names))
    panel["rows"] = [printable(name) for name in names]
    for kind in KINDS:
        kind_rows = [row for row in inside if row["kind"] == kind]
        panel["groups"].append({"label": kind, "cells": _lag_cells(kind_rows, names, start, step)})
    if step > 1:
        panel["notes"].append(
            f"A column is {step} source hours: the largest value of them. Percentiles of several "
            "hours can't be had from those of each."
        )
    if start != figures.start:
        panel["notes"].append(
            f"Most of what landed on these days changed at other times: the chart starts at "
            f"{start:%Y-%m-%d %H:%M}."
        )
    if len(inside) < len(measured):
        panel["notes"].append(_outside(measured, inside))
    if negative := sum(r["negative"] for r in figures.lag_days):
        panel["notes"].append(
            f"{negative:,} lags are below zero: the clocks of source, producer and broker disagree."
        )
    if not inside:
        panel["empty"] = "No lag was measured in the hours of these days."
    return panel


def _lag_cells(
    rows: Iterable[Mapping[str, Any]], names: Sequence[str], start: datetime, step: int
) -> list[list[Any]]:
    index = {name: number for number, name in enumerate(names)}
    cells: dict[int, dict[int, list[int]]] = {}
    for row in rows:
        column = (row["hour"] - start) // timedelta(hours=step)
        values = [row[f"{figure}_ms"] for figure in _LAG]
        cell_row = cells.setdefault(index[row["table"]], {})
        # Late changes of an hour land on several days: the largest value counts.
        known = cell_row.get(column, values)
        cell_row[column] = [max(pair) for pair in zip(known, values, strict=True)]
    return _cells(cells)


def _outside(measured: Sequence[Mapping[str, Any]], inside: Sequence[Mapping[str, Any]]) -> str:
    known = {id(row) for row in inside}
    outside = [row for row in measured if id(row) not in known]
    tables, hours = len({r["table"] for r in outside}), len({r["hour"] for r in outside})
    return (
        f"{some(hours, 'source hour')} of {some(tables, 'table')} lie before or after those of "
        "the chart (late changes, or clocks that are wrong; max "
        f"{max(r['max_ms'] for r in outside):,} ms). They count in the lag of whole days."
    )


def _first_hour(figures: Figures, rows: Sequence[Mapping[str, Any]]) -> datetime:
    """The start of the chart: the first day, unless most lag is of other hours (a replay)."""
    inside = sum(figures.start <= row["hour"] < figures.end for row in rows)
    if 2 * inside >= len(rows):
        return figures.start
    hour = timedelta(hours=1)
    moments = [(row["hour"] - figures.start) // hour for row in rows]
    return figures.start + densest(moments, (figures.end - figures.start) // hour) * hour


def _hour_columns(start: datetime, end: datetime, tables: int) -> tuple[int, list[str]]:
    """Hours per column and the columns' labels, as fine as the page allows."""
    hours = math.ceil((end - start) / timedelta(hours=1))
    room = max(1, min(_MAX_COLUMNS, _MAX_CELLS // max(tables, 1)))
    steps = [*_STEPS, *(24 * n for n in range(2, hours // 24 + 2))]
    step = next((s for s in steps if math.ceil(hours / s) <= room), steps[-1])
    starts = [start + timedelta(hours=h) for h in range(0, hours, step)]
    return step, [f"{hour:%Y-%m-%d %H:%M}" for hour in starts]


def _cells(cells: Mapping[int, Mapping[int, Sequence[Any]]]) -> list[list[Any]]:
    found = []
    for row, row_cells in sorted(cells.items()):
        columns = sorted(row_cells)
        values = [list(column) for column in zip(*(row_cells[c] for c in columns), strict=True)]
        found.append([row, columns, *values])
    return found


def _changes_panel(figures: Figures) -> Panel:
    says, ops = _total(figures.changes, "changes"), Counter[str]()
    for change in figures.changes:
        ops[change.what] += change.records
    if ops:
        says += f" By op: {', '.join(f'{op} {n:,}' for op, n in _by_count(ops))}."
    return _counts_panel(figures, "changes", "Changes by op and day", says, figures.changes, _OPS)


def _quarantine_panel(figures: Figures) -> Panel:
    reasons = Counter[str]()
    for count in figures.quarantine:
        reasons[count.what] += count.records
    says = _total(figures.quarantine, "records in quarantine")
    if reasons:
        reason, records = _by_count(reasons)[0]
        says += f" The most frequent reason is {printable(reason)}: {records:,}."
    labels = {reason: "" for reason, _ in _by_count(reasons)}
    panel = _counts_panel(
        figures, "quarantine", "Quarantine by reason and day", says, figures.quarantine, labels
    )
    return {**panel, "long": True}


def _by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The counts, most frequent first, in a stable order."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _total(counts: Sequence[Count], what: str) -> str:
    if not counts:
        return f"There are no {what} on these days."
    tables = len({count.table for count in counts})
    return f"{sum(c.records for c in counts):,} {what}, of {some(tables, 'table')}."


def _counts_panel(
    figures: Figures,
    name: str,
    title: str,
    says: str,
    counts: Sequence[Count],
    labels: Mapping[str, str],
) -> Panel:
    found = {count.what for count in counts}
    kinds = [*(k for k in labels if k in found), *sorted(found - set(labels))]
    shown = [f"{printable(k)} {labels.get(k, '')}".strip() for k in kinds]
    panel = _panel(figures, name, title, says, [{"label": s, "unit": "records"} for s in shown])
    panel |= {"bars": True, "empty": "" if counts else says}
    sums: dict[str, dict[Any, list[int]]] = {}
    for count in counts:
        day_counts = sums.setdefault(count.table, {}).setdefault(count.day, [0] * len(kinds))
        day_counts[kinds.index(count.what)] += count.records
    _fill(panel, figures, sums)
    return panel


def _fill(panel: Panel, figures: Figures, values: Mapping[str, Mapping[Any, Any]]) -> None:
    """Fill a panel of days with values by name and day, in one group."""
    column = {day: number for number, day in enumerate(figures.days)}
    names = sorted(values)
    panel["rows"] = [printable(name) for name in names]
    cells = {
        row: {column[day]: cell for day, cell in values[name].items()}
        for row, name in enumerate(names)
    }
    panel["groups"] = [{"label": "", "cells": _cells(cells)}]


def _sizes_panel(figures: Figures) -> Panel:
    newest = [size for size in figures.sizes if size.day == figures.days[-1]]
    says = "No table is made on these days."
    if figures.sizes:
        says = (
            f"At the end of {figures.days[-1]}: {sum(s.rows for s in newest):,} rows and "
            f"{sum(s.bytes for s in newest):,} bytes in {some(len(newest), 'table')}."
        )
    panel = _panel(
        figures,
        "sizes",
        "Size of the tables at the end of each day",
        says,
        [{"label": "rows", "unit": "rows"}, {"label": "bytes", "unit": "bytes"}],
    )
    panel["empty"] = "" if figures.sizes else says
    values: dict[str, dict[Any, list[int]]] = {}
    for size in figures.sizes:
        values.setdefault(size.table, {})[size.day] = [size.rows, size.bytes]
    _fill(panel, figures, values)
    return panel


def _seconds_panel(figures: Figures) -> Panel:
    says = "The duration of these days is not recorded."
    if figures.seconds:
        slowest = max(figures.seconds, key=lambda made: made.seconds)
        says = (
            f"The slowest is {printable(slowest.asset)} on {slowest.day}: {slowest.seconds:,} s. "
            "Tables are made side by side: a run takes less than the sum."
        )
    panel = _panel(
        figures,
        "seconds",
        "Seconds that making a day took",
        says,
        [{"label": "seconds", "unit": "s"}],
    )
    panel |= {"row": "Stage or table", "rows_are": "stages and tables"}
    panel |= {"empty": "" if figures.seconds else says}
    if figures.no_records:
        panel["notes"].append(f"Of stages nothing is known. {figures.no_records}")
    values: dict[str, dict[Any, list[float]]] = {}
    for made in figures.seconds:
        values.setdefault(made.asset, {})[made.day] = [made.seconds]
    _fill(panel, figures, values)
    return panel
