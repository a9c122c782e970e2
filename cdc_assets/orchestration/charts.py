"""Pictures for Dagster's Markdown, drawn by matplotlib (imported where one is drawn)."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

_KINDS = {"capture": "source → connector", "end_to_end": "source → Kafka"}
_LINES = {"p50_ms": ":", "p95_ms": "-", "max_ms": "--"}


def lag_over_hours(day: date, rows: Sequence[Mapping[str, Any]], slo_ms: int | None) -> str | None:
    """The lag over the source hours of a day as Markdown; None where nothing was measured.

    Args:
        day: the landing day, for the title.
        rows: `hour` (seconds since 1970)`, kind, p50_ms, p95_ms, max_ms`, ordered by hour.
        slo_ms: drawn as a line.
    """
    if not rows:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")  # without pyplot: no state to share
    axes = figure.subplots()
    for number, (kind, says) in enumerate(_KINDS.items()):
        of_kind = [row for row in rows if row["kind"] == kind]
        hours = [row["hour"] / 86_400 for row in of_kind]  # matplotlib's dates are days
        for name, style in _LINES.items():
            # A clock that is behind gives a negative lag, which has no place on a log scale.
            seconds = [max(row[name], 1) / 1000 for row in of_kind]
            label = f"{says}, {name.removesuffix('_ms')}"
            axes.plot(hours, seconds, style, marker=".", color=f"C{number}", label=label)
    if slo_ms is not None:
        axes.axhline(max(slo_ms, 1) / 1000, color="C3", linewidth=1, label="lag_slo_ms")
    axes.xaxis_date("UTC")
    axes.set_yscale("log")
    axes.set_ylabel("seconds")
    axes.set_title(f"{day}: lag of the slowest table, by source hour (UTC)", fontsize=10)
    axes.grid(visible=True, alpha=0.3)
    axes.tick_params(axis="x", rotation=30, labelsize=8)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=80)
    return f"![lag by hour](data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()})"
