"""The tables of a report, as data for :func:`~cdc_assets.cli.report.page.page_data`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cdc_assets.cdc.lake.figures import LAG_COLUMNS
from cdc_assets.cdc.names import printable
from cdc_assets.cli.report.data import Figures

if TYPE_CHECKING:
    from cdc_assets.orchestration.runs.recorded_runs import Verdict


def _table(
    texts: Iterable[str], numbers: Iterable[str], rows: list[list[Any]], asset: str
) -> dict[str, Any]:
    labels = [*texts, *numbers]
    text_columns = set(texts)
    return {
        "columns": [{"label": label, "number": label not in text_columns} for label in labels],
        "rows": rows,
        "asset": labels.index(asset),
    }


def lag_table(figures: Figures) -> dict[str, Any]:
    """The lag of each table, day and kind, the highest p95 first."""
    names = [name for name in LAG_COLUMNS if name.endswith("_ms")]
    names = ["count", "excluded", "negative", *names]
    rows = []
    for row in figures.lag_days:
        slo = figures.lag_slo_ms.get(row["source"]) if row["kind"] == "capture" else None
        within = "" if slo is None or row["p95_ms"] is None else f"≤ {slo:,} ms"
        if within and figures.is_over_slo(row):
            within = f"over {slo:,} ms"
        head = [printable(row["table"]), row["landing_date"], row["kind"], within]
        rows.append([*head, *(row[name] for name in names)])
    p95 = 4 + names.index("p95_ms")
    rows.sort(key=lambda row: (row[p95] is None, -(row[p95] or 0)))
    shown = [name.replace("_ms", ", ms") for name in names]
    return _table(("Table", "Day", "Kind", "lag_slo_ms"), shown, rows, "Table")


def check_tables(figures: Figures) -> dict[str, dict[str, Any]]:
    """Failing verdicts, errors and newest days first; and the newest verdict of every check."""
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
    """A row per failing check and severity, over all days and assets, with its newest verdict.

    `search` has the assets of each row, for the filter.
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
        head = [severity, check, str(newest.day), newest.holds, listed, _lines(newest.says)]
        rows.append([*head, len(days), len(assets)])
        search.append(assets)
    texts = ("Severity", "Check", "Newest day", "What should hold", "Assets", "What was found last")
    table = _table(texts, ("Days", "Assets failing"), rows, "Check")
    return {**table, "search": search}


_NAMED = 3  # assets in a row


def _lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
