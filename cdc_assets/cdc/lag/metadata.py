"""Materialization metadata of a day's lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc_assets.cdc import markdown
from cdc_assets.cdc.lag.measurement import KINDS

_FIGURES = ("p50_ms", "p95_ms", "p99_ms", "max_ms")
_SHOWN = ("table_name", "kind", "count", "excluded", "negative", "p50_ms", "p95_ms", "max_ms")


def lag_day(rows: Sequence[Mapping[str, Any]], complete: bool) -> dict[str, Any]:
    """The maximum of each figure by kind over all tables, and a table of the rows.

    Args:
        rows: the day's rows of `lag` with `hour` null.
        complete: whether the day is over.
    """
    values: dict[str, Any] = {"complete": complete}
    for kind in KINDS:
        measured = [r for r in rows if r["kind"] == kind and r["count"]]
        if measured:
            values |= {f"{kind}_{figure}": max(r[figure] for r in measured) for figure in _FIGURES}
            values[f"{kind}_negative"] = sum(r["negative"] for r in measured)
    values["by_table"] = markdown.table(_SHOWN, [[r[c] for c in _SHOWN] for r in rows])
    return values
