"""How late changes came (G1–G4)."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import Any

from cdc_assets_tests.model.documents import YEAR_1, YEAR_9999
from cdc_assets_tests.model.records import Event

HOUR_MS = 3_600_000
PERCENTILES = (50, 90, 95, 99)


def lag_of_day(day: date, events: list[Event]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, int | None, str], list[int | None]] = defaultdict(list)
    for event in events:
        if event.destination != "changes" or event.table_name is None or event.half == "before":
            continue  # W2: an update in two halves counts once
        for kind, value in _lags(event).items():
            groups[event.table_name, None, kind].append(value)
            # A snapshot read's source time says nothing of when the row changed.
            source = event.source_ts_ms
            is_time = source is not None and YEAR_1 <= source <= YEAR_9999
            if source is not None and is_time and not (event.is_snapshot or event.is_tombstone):
                hour = source // HOUR_MS * HOUR_MS
                groups[event.table_name, hour, kind].append(value)
    ordered = sorted(groups, key=lambda g: (g[0], g[1] is not None, g[1] or 0, g[2]))
    return [_lag_row(day, *group, groups[group]) for group in ordered]


def _lags(event: Event) -> dict[str, int | None]:
    """G1: ms by kind; None for what is left out and counted (G2)."""
    kafka = event.record.timestamp_ms
    kafka = None if kafka is not None and kafka < 0 else kafka  # Kafka's "no timestamp" is -1
    source, processed = event.source_ts_ms, event.processed_ts_ms
    # A number that no calendar has is no time.
    source, processed, kafka = (
        t if t is not None and YEAR_1 <= t <= YEAR_9999 else None
        for t in (source, processed, kafka)
    )
    if event.is_snapshot or event.is_tombstone:
        source = processed = kafka = None

    def between(start: int | None, end: int | None) -> int | None:
        return None if start is None or end is None else end - start

    return {
        "capture": between(source, processed),
        "delivery": between(processed, kafka),
        "end_to_end": between(source, kafka),
    }


def _lag_row(
    day: date, table: str, hour: int | None, kind: str, values: list[int | None]
) -> dict[str, Any]:
    counted = sorted(v for v in values if v is not None)
    n = len(counted)
    # percentile_disc: the first value at or below which that share of the values lies
    ranks = {p: -(-n * p // 100) - 1 for p in PERCENTILES}
    return {
        "landing_date": day,
        "table_name": table,
        "hour": hour,
        "kind": kind,
        "count": n,
        "excluded": len(values) - n,
        "negative": sum(1 for v in counted if v < 0),  # G3
        "min_ms": counted[0] if n else None,
        **{f"p{p}_ms": counted[ranks[p]] if n else None for p in PERCENTILES},
        "max_ms": counted[-1] if n else None,
        "mean_ms": _rounded_mean(counted) if n else None,
        "complete": True,
    }


def _rounded_mean(values: list[int]) -> int:
    """To the nearest ms, halves away from zero, as Spark's ROUND."""
    total, n = sum(values), len(values)
    nearest = (2 * abs(total) + n) // (2 * n)
    return nearest if total >= 0 else -nearest
