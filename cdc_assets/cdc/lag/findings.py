"""The check of a day's lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc_assets.cdc.findings import Check, Finding, Severity, largest

CHECKS = (
    Check(
        "lag_within_slo",
        "The p95 capture lag of each table is within lag_slo_ms.",
        Severity.WARN,
    ),
)


def lag_findings(rows: Sequence[Mapping[str, Any]], slo_ms: int | None) -> list[Finding]:
    """`lag_within_slo` of one day's lag rows (hour null)."""
    capture = {
        r["table_name"]: r["p95_ms"]
        for r in rows
        if r["kind"] == "capture" and r["p95_ms"] is not None
    }
    late = {t: p95 for t, p95 in capture.items() if slo_ms is not None and p95 > slo_ms}
    values: dict[str, Any] = {
        "lag_slo_ms": slo_ms if slo_ms is not None else "none",
        "tables_above": len(late),
    }
    if capture:
        values["worst_p95_ms"] = max(capture.values())
    if late:
        values["late_tables"] = largest(late)
    return [Finding("lag_within_slo", not late, values)]
