"""Figures of a report as a lake would give them, for pages of any size; some names are hostile."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

from cdc_assets.cdc.lag.measurement import KINDS
from cdc_assets.cli.report.data import Count, Figures, Seconds, Size
from cdc_assets.orchestration.runs.recorded_runs import Verdict

FIRST = date(2026, 10, 25)
HOSTILE = (
    'shop.public."<script>alert(1)</script>"',
    'shop.public."a\u202eb\'&quot;<b>x</b>"',
    "shop.public.<a href='http://127.0.0.1:9/'>y</a>" + "w" * 120,
    "shop.public.<img src=http://127.0.0.1:9/ onerror=alert(1)>",
    "shop.public.%{x}{{ 7 * 7 }}</script><!--",
)
FOUND = "examples:\n- <img src=http://127.0.0.1:9/ onerror=alert(1)>\nfaults: 3"
REASONS = (
    "malformed_json", "missing_op", "unknown_op", "missing_key", "malformed_key", "missing_image",
    "missing_table", "not_an_envelope", "unknown_format", "malformed_landing_line", "wrong_type",
)  # fmt: skip
SLO_MS = 60_000


def empty_figures(days: int = 1, **more: Any) -> Figures:
    """Made days on which nothing came."""
    listed = [FIRST + timedelta(days=n) for n in range(days)]
    start = datetime(FIRST.year, FIRST.month, FIRST.day, tzinfo=timezone.utc)
    known: dict[str, Any] = {
        "made_at": datetime(2026, 11, 24, 8, 0, tzinfo=timezone.utc),
        "version": "0.1.0",
        "asked": "all sources, the newest 30 made days",
        "timezone": "UTC",
        "sources": ["shop"],
        "days": listed,
        "start": start,
        "end": start + timedelta(days=days),
        "lag_slo_ms": {"shop": SLO_MS},
    }
    return Figures(**{**known, **more})


def lag_row(table: str, day: date, kind: str, ms: int, hour: datetime | None = None) -> Any:
    """A row of `lag` whose p50 is `ms`."""
    times = {"min_ms": ms, "p50_ms": ms, "p90_ms": 2 * ms, "p95_ms": 3 * ms, "p99_ms": 5 * ms}
    times |= {"max_ms": 8 * ms, "mean_ms": ms}
    counts = {"count": 100, "excluded": 0, "negative": 7 if ms < 0 else 0}
    where = {"source": "shop", "table": table, "kind": kind, "hour": hour}
    return {**where, "landing_date": str(day), **counts, **times}


def figures_of(tables: int, days: int) -> Figures:
    """Some thousand changes a table and day; every fiftieth table's clock is behind."""
    figures = empty_figures(days, open_days=[FIRST + timedelta(days=days - 1)])
    names = [*HOSTILE, *(f"shop.public.table_{n:03}" for n in range(tables))][-tables:]
    if tables > 100:
        names[: len(HOSTILE)] = HOSTILE
    for number, table in enumerate(names):
        for at, day in enumerate(figures.days):
            _add_day(figures, number, table, at, day)
    return figures


def _add_day(figures: Figures, number: int, table: str, at: int, day: date) -> None:
    seed = number * 31 + at * 17
    midnight = datetime(day.year, day.month, day.day, tzinfo=timezone.utc)
    for factor, kind in enumerate(KINDS, 1):
        behind = -50_000 if number % 50 == 49 and kind == "capture" else 0
        ms = factor * (20 + (seed * seed) % 7_000) + behind
        figures.lag_days.append(lag_row(table, day, kind, ms))
        for hour in range(24):
            if (seed + hour) % 3:
                of_hour = ms + 13 * hour
                when = midnight + timedelta(hours=hour)
                figures.lag_hours.append(lag_row(table, day, kind, of_hour, when))
    for n, op in enumerate("cudr"):
        figures.changes.append(Count(day, table, op, (seed * (n + 3)) % 4_999 + 1))
    if seed % 7 == 0:
        reason = REASONS[seed % len(REASONS)]
        figures.quarantine.append(Count(day, table, reason, seed % 40 + 1))
    figures.sizes.append(Size(day, table, 10 + seed * 997, 10_000 + seed * 99_991))
    figures.seconds.append(Seconds(day, table, round(seed % 200 / 10 + 0.05, 2)))
    for check in range(9):
        passed = (seed + check) % 97 != 0
        severity = "ERROR" if check % 2 else "WARN"
        says = "" if passed else FOUND
        figures.verdicts.append(
            Verdict(table, f"check_{check}", day, passed, severity, "All is as it should be.", says)
        )
