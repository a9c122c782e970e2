"""Charts of the lag as Markdown, drawn by matplotlib."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from cdc_assets.cdc.lag.measurement import KINDS
from cdc_assets.cdc.markdown import Markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]

_MEANING = {
    "capture": "the source changed → the producer met it",
    "delivery": "the producer met it → Kafka",
    "end_to_end": "the source changed → Kafka",
}
# Dashes and markers also tell the lines apart without colours. Markers show an hour whose
# neighbours have no event.
_FIGURES: dict[str, dict[str, Any]] = {
    "max_ms": {"label": "max", "color": "#555555", "linestyle": "--", "marker": "^"},
    "p95_ms": {"label": "p95", "color": "#c44e00", "linestyle": "-", "marker": "s"},
    "p50_ms": {"label": "p50", "color": "#0072b2", "linestyle": ":", "marker": "o"},
}
_MARKER_SIZES = {"max_ms": 7, "p95_ms": 4, "p50_ms": 2.5}  # all visible if values are equal
_SLO_COLOR = "#b00020"
# Days to draw; other hours are counted. Late events have older source hours, replayed events much
# older ones, and a wrong clock any.
_DAYS = 7
_HOUR = 3600
_SECOND, _MINUTE, _DAY = 1000, 60_000, 86_400_000
_TICKS = (
    *(1, 10, 100, _SECOND, 10 * _SECOND, _MINUTE, 10 * _MINUTE, 60 * _MINUTE, 6 * 60 * _MINUTE),
    *(n * _DAY for n in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)),
)


def lag_over_hours(day: date, rows: Rows, slo_ms: int | None) -> Markdown | None:
    """The lag over the source hours of a day as Markdown; None if nothing was measured.

    One panel per kind of lag, with p50, p95 and max of the slowest table.

    Args:
        day: the landing day.
        rows: `hour` (seconds since 1970), `kind, p50_ms, p95_ms, max_ms, negative`, ordered by
            hour.
        slo_ms: drawn as a line in the panel of capture.
    """
    if not rows:
        return None
    encoded = base64.b64encode(_png(lag_figure(day, rows, slo_ms))).decode()
    return Markdown(f"![{_alternative(day, rows)}](data:image/png;base64,{encoded})")


def lag_figure(day: date, rows: Rows, slo_ms: int | None) -> Figure:
    """The chart of :func:`lag_over_hours`, 720 pixels wide as Dagster's dialog."""
    from matplotlib.figure import Figure

    start = densest([row["hour"] for row in rows], _DAYS * 24 * _HOUR)
    drawn = [row for row in rows if start <= row["hour"] < start + _DAYS * 24 * _HOUR]
    # White in both themes of Dagster: a picture can't follow the theme.
    figure = Figure(figsize=(8, 6), layout="constrained", facecolor="white")
    panels = figure.subplots(len(KINDS), 1, sharex=True)
    for axes, kind in zip(panels, KINDS, strict=True):
        kind_rows = [row for row in drawn if row["kind"] == kind]
        axes.set_title(f"{kind}: {_MEANING[kind]}{_negative(kind_rows)}", loc="left", fontsize=9)
        _draw_kind(axes, kind_rows, slo_ms if kind == "capture" else None)
    _set_hours(panels[-1], drawn)
    lines = {
        label: line
        for axes in panels
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        lines.values(), lines.keys(), loc="outside lower center", ncols=4, fontsize=9, frameon=False
    )
    left_out = [row for row in rows if not start <= row["hour"] < start + _DAYS * 24 * _HOUR]
    figure.suptitle(
        f"Lag of the slowest table by source hour, landed on {day}{_outside(left_out)}",
        x=0.01,
        ha="left",
        fontsize=10,
    )
    return figure


def _png(figure: Figure) -> bytes:
    """PNG with a palette, a third of the size: Dagster stores one per day."""
    from PIL import Image

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=90)
    with Image.open(drawn) as picture:
        picture.convert("RGB").quantize(255, dither=Image.Dither.NONE).save(
            small, format="png", optimize=True
        )
    return small.getvalue()


def _draw_kind(axes: Axes, rows: Rows, slo_ms: int | None) -> None:
    values = [row[name] for row in rows for name in _FIGURES]
    axes.grid(visible=True, alpha=0.3)
    axes.tick_params(labelsize=8)
    if slo_ms is not None:
        axes.axhline(
            slo_ms,
            color=_SLO_COLOR,
            linewidth=1,
            dashes=(8, 2, 1, 2),
            label=f"lag_slo_ms: {duration(slo_ms)}",
        )
    if not values:
        axes.set_yticks([])
        axes.text(
            0.5,
            0.5,
            "nothing measured: no event of these hours has both times",
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=9,
            backgroundcolor="white",
        )
        return
    _set_scale(axes, [*values, *([] if slo_ms is None else [slo_ms])])
    hours, gaps = _with_gaps(rows)
    for name, style in _FIGURES.items():
        points = [math.nan if row is None else row[name] for row in gaps]
        size = _MARKER_SIZES[name]
        axes.plot(hours, points, markersize=size, markerfacecolor="none", linewidth=1.2, **style)
    if min(values) < 0:
        axes.axhspan(axes.get_ylim()[0], 0, color=_SLO_COLOR, alpha=0.08)


def _negative(rows: Rows) -> str:
    """The number of events with a negative lag, which the slowest table's figures may hide."""
    events = sum(row["negative"] for row in rows)
    says = "1 event is" if events == 1 else f"{events} events are"
    return f" ({says} below 0: the clocks disagree)" if events else ""


def _with_gaps(rows: Rows) -> tuple[list[float], list[Mapping[str, Any] | None]]:
    """Hours as matplotlib's dates and their rows, with None for missing hours between two."""
    hours: list[float] = []
    found: list[Mapping[str, Any] | None] = []
    for row in rows:
        day = row["hour"] / (24 * _HOUR)
        if hours and day - hours[-1] > 1.5 / 24:
            hours.append(day)
            found.append(None)
        hours.append(day)
        found.append(row)
    return hours, found


def _set_scale(axes: Axes, values: Sequence[int]) -> None:
    """Set a symmetric log scale for a wide or negative range, else a linear one from zero."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

    low, high = min(values), max(values)
    in_words = FuncFormatter(lambda ms, _: duration(ms))
    if low >= 0 and high < 20 * max(low, 1):
        axes.set_ylim(0, 1.1 * max(high, 1))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(in_words)
        return
    axes.set_yscale("symlog", linthresh=1, linscale=0.3)
    axes.set_ylim(2 * low if low < 0 else low / 2 if low > 1 else 0, 2 * max(high, 1))
    bottom, top = axes.get_ylim()
    ticks = [*(-t for t in reversed(_TICKS)), 0, *_TICKS]
    shown = [t for t in ticks if bottom <= t <= top]
    # A wide range shows every second or third tick: labels need room.
    step = -(-len(shown) // 7)
    zero = shown.index(0) if 0 in shown else 0
    axes.yaxis.set_major_locator(FixedLocator(shown[zero % step :: step]))
    axes.yaxis.set_major_formatter(in_words)
    axes.yaxis.set_minor_locator(FixedLocator([]))


def _set_hours(axes: Axes, rows: Rows) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    axes.xaxis_date("UTC")
    first, last = min(row["hour"] for row in rows), max(row["hour"] for row in rows)
    margin = max(_HOUR / 2, (6 * _HOUR - (last - first)) / 2)
    axes.set_xlim((first - margin) / (24 * _HOUR), (last + margin) / (24 * _HOUR))
    locator = AutoDateLocator(tz="UTC", minticks=4, maxticks=13)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz="UTC"))
    axes.set_xlabel("source hour, UTC", fontsize=9)


def _outside(rows: Rows) -> str:
    if not rows:
        return ""
    hours = len({row["hour"] for row in rows})
    worst = duration(max(row["max_ms"] for row in rows))
    are = "hour lies" if hours == 1 else "hours lie"
    return f"\n{hours} source {are} more than {_DAYS} days from these: not drawn (max {worst})"


def densest(moments: Sequence[int], length: int) -> int:
    """The start of the latest span of this length that holds the most moments."""
    known = sorted(moments)
    best, most, end = known[0], 0, 0
    for number, start in enumerate(known):
        while end < len(known) and known[end] < start + length:
            end += 1
        if end - number >= most:
            best, most = start, end - number
    return best


def _alternative(day: date, rows: Rows) -> str:
    """The alternative text of the chart."""
    texts = []
    for kind in KINDS:
        kind_rows = [row for row in rows if row["kind"] == kind]
        if kind_rows:
            figures = ", ".join(
                f"{style['label']} {duration(max(row[name] for row in kind_rows))}"
                for name, style in _FIGURES.items()
            )
            texts.append(f"{kind} {figures}")
    return f"lag by source hour of {day}, worst hour: {'; '.join(texts)}"


def duration(ms: float) -> str:
    """Milliseconds in a readable unit: `250 ms`, `1.5 s`, `10 min`, `-2 h`."""
    sign, size = ("-" if ms < 0 else ""), abs(ms)
    for unit, length in (("d", _DAY), ("h", 60 * _MINUTE), ("min", _MINUTE), ("s", _SECOND)):
        if size >= length:
            return f"{sign}{_rounded(size / length)} {unit}"
    return f"{sign}{_rounded(size)} ms" if size else "0"


def _rounded(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"
