"""Figures of days → one HTML page that needs no network: style, script and plotly.js stand in it.

Its charts are drawn in the browser from the JSON of :func:`page_data`. Texts from data reach the
page through Jinja's escaping, `textContent`, or the script's own escape for Plotly, which takes
some tags as markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cdc_assets.cdc.errors import CdcError, ConfigError, first_line
from cdc_assets.cdc.lag.charts import densest, duration
from cdc_assets.cdc.lag.measurement import KINDS
from cdc_assets.cdc.lake.figures import LAG_COLUMNS
from cdc_assets.cdc.names import printable
from cdc_assets.cli.report import Count, Figures

if TYPE_CHECKING:
    from cdc_assets.orchestration.recorded_runs import Verdict

# The page's first lines hold it: what may be overwritten is a page of ours.
GENERATOR = "cdc-assets report"

_FILES = Path(__file__).parent
_LAG = ("p50", "p95", "p99", "max")
_OPS = {"c": "create", "u": "update", "d": "delete", "r": "snapshot read", "t": "truncate"}
_MAX_COLUMNS = 400
_MAX_CELLS = 40_000  # tables times columns, of each kind of lag
_STEPS = (1, 2, 3, 4, 6, 8, 12, 24)  # hours a column; whole days beyond

Panel = dict[str, Any]


def check_out(out: Path) -> None:
    """See that a page may be written there: over an older report, but over nothing else.

    Raises:
        ConfigError: the folder is missing, or there is a file that is no report.
    """
    if not out.absolute().parent.is_dir():
        raise ConfigError(
            [f"--out {out}: the folder {out.absolute().parent} does not exist; create it"]
        )
    if out.exists():
        with out.open("rb") as file:
            is_report = f'content="{GENERATOR} '.encode() in file.read(1_000)
        if not is_report:
            raise ConfigError(
                [f"--out {out}: it exists and is not a report of cdc-assets; name another file"]
            )


def write(figures: Figures, out: Path) -> int:
    """Write the page, whole or not at all; its size in bytes.

    Raises:
        CdcError: the file can't be written.
    """
    content = page(figures).encode()
    try:
        with tempfile.NamedTemporaryFile(dir=out.absolute().parent, delete=False) as file:
            unfinished = Path(file.name)
            try:
                file.write(content)
                file.close()
                # As any file that this user makes; a temporary one is for its owner alone.
                unfinished.chmod(0o666 & ~_umask())
                unfinished.replace(out)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise CdcError(
            f"{out} can't be written: {first_line(error)}. See that the disk has room and that "
            "this user may write there, or name another --out"
        ) from error
    return len(content)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def page(figures: Figures) -> str:
    """The page as a text."""
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=FileSystemLoader(_FILES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = printable
    scripts = [get_plotlyjs(), (_FILES / "report.js").read_text("utf-8")]
    data = page_data(figures)
    return environment.get_template("report.html.jinja").render(
        generator=GENERATOR,
        figures=figures,
        made_at=_instant(figures.made_at),
        headline=headline(figures),
        panels=data["panels"],
        checks=_checks_summary(figures),
        style=Markup((_FILES / "report.css").read_text("utf-8")),
        data=Markup(_json_in_html(data)),
        scripts=[Markup(script) for script in scripts],
        hashes=" ".join(f"'sha256-{_sha256(script)}'" for script in scripts),
    )


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json_in_html(data: Any) -> str:
    """JSON that ends no script element, whatever is in it."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _instant(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


# --- what stands above


def headline(figures: Figures) -> list[dict[str, Any]]:
    """The few figures at the top: `label, value` and `state` (ok, warn, error or empty)."""
    tables = {c.table for c in figures.changes} | {size.table for size in figures.sizes}
    quarantined = sum(count.records for count in figures.quarantine)
    capture = [r for r in figures.lag_days if r["kind"] == "capture" and r["p95_ms"] is not None]
    worst = max(capture, key=lambda row: row["p95_ms"], default=None)
    failing = Counter(v.severity for v in figures.verdicts if not v.passed)
    return [
        {"label": "tables", "value": f"{len(tables):,}", "state": ""},
        {"label": "changes", "value": f"{sum(c.records for c in figures.changes):,}", "state": ""},
        {
            "label": "records in quarantine",
            "value": f"{quarantined:,}",
            "state": "warn" if quarantined else "ok",
        },
        {
            "label": "worst p95 capture lag of a table's day",
            "value": "none measured" if worst is None else duration(worst["p95_ms"]),
            "detail": ""
            if worst is None
            else f"{worst['p95_ms']:,} ms: {worst['table']}, {worst['landing_date']}",
            "state": "warn" if worst is not None and _is_over_slo(figures, worst) else "",
        },
        _failing(figures, failing),
    ]


def _failing(figures: Figures, failing: Mapping[str, int]) -> dict[str, Any]:
    label = "failing verdicts of checks"
    if figures.no_records:
        return {"label": label, "value": "not known", "state": ""}
    errors, warnings = failing.get("ERROR", 0), failing.get("WARN", 0)
    return {
        "label": label,
        "value": f"{errors + warnings:,}",
        "detail": f"{_some(errors, 'error')}, {_some(warnings, 'warning')}",
        "state": "error" if errors else "warn" if warnings else "ok",
    }


def _some(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _is_over_slo(figures: Figures, row: Mapping[str, Any]) -> bool:
    slo = figures.lag_slo_ms.get(row["source"])
    return row["kind"] == "capture" and slo is not None and row["p95_ms"] > slo


def _checks_summary(figures: Figures) -> str:
    if figures.no_records:
        return figures.no_records
    failing = [verdict for verdict in figures.verdicts if not verdict.passed]
    of = f"{len(figures.verdicts):,} newest verdicts (one a check, asset and day)"
    if not failing:
        return f"None of the {of} fails."
    checks = len({(verdict.asset, verdict.check) for verdict in failing})
    return f"{len(failing):,} of the {of} fail, of {checks:,} checks."


# --- the data of charts and tables


def page_data(figures: Figures) -> dict[str, Any]:
    """What the script draws: panels and tables; names with control characters made visible.

    A panel is `columns` (labels), `rows` (names), `figures` (`label` and `unit`), and `groups`
    of `cells`: ``[row, [columns], [values of the first figure], …]``, values null where there is
    none. A table is `columns` (`label` and whether it is a `number`), `rows`, and `asset`: which
    column holds the name that the filter looks at.
    """
    panels = [
        _lag_panel(figures),
        _changes_panel(figures),
        _quarantine_panel(figures),
        _sizes_panel(figures),
        _seconds_panel(figures),
    ]
    tables = {"lag-days": _lag_table(figures), **_check_tables(figures)}
    return {"panels": panels, "tables": tables}


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


def _lag_panel(figures: Figures) -> Panel:
    worst = max(
        (row for row in figures.lag_days if row["p95_ms"] is not None),
        key=lambda row: row["p95_ms"],
        default=None,
    )
    says = (
        "No lag was measured on these days."
        if worst is None
        else f"The worst p95 of a table's day is {worst['p95_ms']:,} ms "
        f"({duration(worst['p95_ms'])}, {worst['kind']}): {printable(worst['table'])}, landed on "
        f"{worst['landing_date']}."
    )
    panel = _panel(
        figures,
        "lag",
        "Lag by table and source hour",
        says,
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
    index = {name: number for number, name in enumerate(names)}
    for kind in KINDS:
        cells: dict[int, dict[int, list[int]]] = {}
        for row in (row for row in inside if row["kind"] == kind):
            column = (row["hour"] - start) // timedelta(hours=step)
            values = [row[f"{figure}_ms"] for figure in _LAG]
            of_row = cells.setdefault(index[row["table"]], {})
            # An hour lands on several days where changes came late: the worst of them counts.
            known = of_row.get(column, values)
            of_row[column] = [max(pair) for pair in zip(known, values, strict=True)]
        panel["groups"].append({"label": kind, "cells": _cells(cells)})
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


def _outside(measured: Sequence[Mapping[str, Any]], inside: Sequence[Mapping[str, Any]]) -> str:
    known = {id(row) for row in inside}
    outside = [row for row in measured if id(row) not in known]
    tables, hours = len({r["table"] for r in outside}), len({r["hour"] for r in outside})
    return (
        f"{_some(hours, 'source hour')} of {_some(tables, 'table')} lie before or after those of "
        "the chart (late changes, or clocks that are wrong; max "
        f"{max(r['max_ms'] for r in outside):,} ms). They count in the lag of whole days."
    )


def _first_hour(figures: Figures, rows: Sequence[Mapping[str, Any]]) -> datetime:
    """Where the chart starts: with the first day, unless most was measured elsewhere (a replay)."""
    inside = sum(figures.start <= row["hour"] < figures.end for row in rows)
    if 2 * inside >= len(rows):
        return figures.start
    hour = timedelta(hours=1)
    moments = [(row["hour"] - figures.start) // hour for row in rows]
    return figures.start + densest(moments, (figures.end - figures.start) // hour) * hour


def _hour_columns(start: datetime, end: datetime, tables: int) -> tuple[int, list[str]]:
    """Hours a column, and the columns' labels: as fine as the page can bear."""
    hours = math.ceil((end - start) / timedelta(hours=1))
    room = max(1, min(_MAX_COLUMNS, _MAX_CELLS // max(tables, 1)))
    steps = [*_STEPS, *(24 * n for n in range(2, hours // 24 + 2))]
    step = next((s for s in steps if math.ceil(hours / s) <= room), steps[-1])
    starts = [start + timedelta(hours=h) for h in range(0, hours, step)]
    return step, [f"{one:%Y-%m-%d %H:%M}" for one in starts]


def _cells(cells: Mapping[int, Mapping[int, Sequence[Any]]]) -> list[list[Any]]:
    found = []
    for row, of_row in sorted(cells.items()):
        columns = sorted(of_row)
        values = [list(column) for column in zip(*(of_row[c] for c in columns), strict=True)]
        found.append([row, columns, *values])
    return found


def _changes_panel(figures: Figures) -> Panel:
    says, ops = _total(figures.changes, "changes"), Counter[str]()
    for change in figures.changes:
        ops[change.what] += change.records
    if ops:
        says += f" By op: {', '.join(f'{op} {n:,}' for op, n in _by_count(ops))}."
    return _counts_panel(
        figures, "changes", "Changes by op and day", says, figures.changes, _OPS, long=False
    )


def _quarantine_panel(figures: Figures) -> Panel:
    reasons = Counter[str]()
    for count in figures.quarantine:
        reasons[count.what] += count.records
    says = _total(figures.quarantine, "records in quarantine")
    if reasons:
        reason, records = _by_count(reasons)[0]
        says += f" The most frequent reason is {printable(reason)}: {records:,}."
    labels = {reason: "" for reason, _ in _by_count(reasons)}
    return _counts_panel(
        figures, "quarantine", "Quarantine by reason and day", says, figures.quarantine, labels
    )


def _by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Most frequent first; in the same order whatever the order in which they were read."""
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))


def _total(counts: Sequence[Count], what: str) -> str:
    if not counts:
        return f"There are no {what} on these days."
    tables = len({count.table for count in counts})
    return f"{sum(c.records for c in counts):,} {what}, of {_some(tables, 'table')}."


def _counts_panel(
    figures: Figures,
    name: str,
    title: str,
    says: str,
    counts: Sequence[Count],
    labels: Mapping[str, str],
    long: bool = True,
) -> Panel:
    met = {count.what for count in counts}
    kinds = [*(k for k in labels if k in met), *sorted(met - set(labels))]
    shown = [f"{printable(k)} {labels.get(k, '')}".strip() for k in kinds]
    panel = _panel(figures, name, title, says, [{"label": s, "unit": "records"} for s in shown])
    panel |= {"bars": True, "long": long, "empty": "" if counts else says}
    sums: dict[str, dict[Any, list[int]]] = {}
    for count in counts:
        of_day = sums.setdefault(count.table, {}).setdefault(count.day, [0] * len(kinds))
        of_day[kinds.index(count.what)] += count.records
    _fill(panel, figures, sums)
    return panel


def _fill(panel: Panel, figures: Figures, values: Mapping[str, Mapping[Any, Any]]) -> None:
    """Put values by name and day into a panel of days, in one group."""
    column = {day: number for number, day in enumerate(figures.days)}
    names = sorted(values)
    panel["rows"] = [printable(name) for name in names]
    cells = {
        row: {column[day]: of_day for day, of_day in values[name].items()}
        for row, name in enumerate(names)
    }
    panel["groups"] = [{"label": "", "cells": _cells(cells)}]


def _sizes_panel(figures: Figures) -> Panel:
    newest = [size for size in figures.sizes if size.day == figures.days[-1]]
    says = "No table is made on these days."
    if figures.sizes:
        says = (
            f"At the end of {figures.days[-1]}: {sum(s.rows for s in newest):,} rows and "
            f"{sum(s.bytes for s in newest):,} bytes in {_some(len(newest), 'table')}."
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
        slowest = max(figures.seconds, key=lambda one: one.seconds)
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
    for one in figures.seconds:
        values.setdefault(one.asset, {})[one.day] = [one.seconds]
    _fill(panel, figures, values)
    return panel


def _table(
    texts: Iterable[str], numbers: Iterable[str], rows: list[list[Any]], asset: str
) -> dict[str, Any]:
    labels = [*texts, *numbers]
    of_text = set(texts)
    return {
        "columns": [{"label": label, "number": label not in of_text} for label in labels],
        "rows": rows,
        "asset": labels.index(asset),
    }


def _lag_table(figures: Figures) -> dict[str, Any]:
    names = [name for name in LAG_COLUMNS if name.endswith("_ms")]
    names = ["count", "excluded", "negative", *names]
    rows = []
    for row in figures.lag_days:
        slo = figures.lag_slo_ms.get(row["source"]) if row["kind"] == "capture" else None
        within = "" if slo is None or row["p95_ms"] is None else f"≤ {slo:,} ms"
        if within and _is_over_slo(figures, row):
            within = f"over {slo:,} ms"
        head = [printable(row["table"]), row["landing_date"], row["kind"], within]
        rows.append([*head, *(row[name] for name in names)])
    p95 = 4 + names.index("p95_ms")
    rows.sort(key=lambda row: (row[p95] is None, -(row[p95] or 0)))
    shown = [name.replace("_ms", ", ms") for name in names]
    return _table(("Table", "Day", "Kind", "lag_slo_ms"), shown, rows, "Table")


def _check_tables(figures: Figures) -> dict[str, dict[str, Any]]:
    order = {"ERROR": 0, "WARN": 1}
    failing = sorted(
        (v for v in figures.verdicts if not v.passed),
        key=lambda v: (order.get(v.severity, 2), -v.day.toordinal(), v.asset, v.check),
    )
    fails = [
        [v.severity, str(v.day), printable(v.asset), v.check, v.holds, _lines(v.says)]
        for v in failing
    ]
    passed: Counter[tuple[str, str]] = Counter()
    newest: dict[tuple[str, str], Any] = {}
    for v in figures.verdicts:
        passed[v.asset, v.check] += v.passed
        key = (v.asset, v.check)
        if key not in newest or v.day > newest[key].day:
            newest[key] = v
    evaluated = Counter((v.asset, v.check) for v in figures.verdicts)
    every: list[list[Any]] = []
    for key in sorted(newest, key=lambda key: (passed[key] - evaluated[key], key)):
        last = newest[key]
        verdict = "passed" if last.passed else f"failed ({last.severity})"
        failed, without = evaluated[key] - passed[key], len(figures.days) - evaluated[key]
        head = [printable(last.asset), last.check, str(last.day), verdict]
        every.append([*head, failed, passed[key], without])
    texts = ("Severity", "Day", "Asset", "Check", "What should hold", "What was found")
    return {
        "findings": _findings_table(failing),
        "failing": _table(texts, (), fails, "Asset"),
        "every-check": _table(
            ("Asset", "Check", "Newest day", "Newest verdict"),
            ("Days failed", "Days passed", "Days without a verdict"),
            every,
            "Asset",
        ),
    }


def _findings_table(failing: Sequence[Verdict]) -> dict[str, Any]:
    """What fails, a line a check and severity over all days and assets, with the newest of it.

    `search` has the assets of each line: the filter looks at these.
    """
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in failing:  # errors first, the newest day first
        groups.setdefault((verdict.severity, verdict.check), []).append(verdict)
    rows, search = [], []
    for (severity, check), found in groups.items():
        newest = found[0]
        assets = list(dict.fromkeys(printable(v.asset) for v in found))
        days = {v.day for v in found}
        listed = ", ".join(assets[:_NAMED]) + (
            f" and {len(assets) - _NAMED} more" if assets[_NAMED:] else ""
        )
        said = _lines(newest.says)
        head = [severity, check, str(newest.day), newest.holds, listed, said]
        rows.append([*head, len(days), len(assets)])
        search.append(assets)
    texts = ("Severity", "Check", "Newest day", "What should hold", "Assets", "What was found last")
    table = _table(texts, ("Days", "Assets failing"), rows, "Check")
    return {**table, "search": search}


_NAMED = 3  # assets of a line


def _lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
