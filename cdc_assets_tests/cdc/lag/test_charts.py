"""The picture of a day's lag."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest
from PIL import Image

from cdc_assets.cdc.lag.charts import densest, duration, lag_figure, lag_over_hours
from cdc_assets.cdc.lag.measurement import KINDS

DAY = date(2026, 11, 5)
MIDNIGHT = (DAY - date(1970, 1, 1)).days * 86_400


def hour_of(kind: str, hour: int, p50: int, p95: int, longest: int, negative: int = 0) -> Any:
    figures = {"p50_ms": p50, "p95_ms": p95, "max_ms": longest, "negative": negative}
    return {"hour": MIDNIGHT + 3600 * hour, "kind": kind, **figures}


def panels_of(rows: list[Any], slo_ms: int | None = None) -> Mapping[str, Any]:
    axes = lag_figure(DAY, rows, slo_ms).axes
    return {one.get_title(loc="left").partition(":")[0]: one for one in axes}


def lines_of(panel: Any) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in panel.get_lines()}


def test_each_kind_has_a_panel_of_its_name_with_p50_p95_and_max() -> None:
    rows = [
        hour_of(kind, h, 100 + n, 200 + n, 900 + n) for h in (3, 4) for n, kind in enumerate(KINDS)
    ]
    panels = panels_of(rows)
    assert list(panels) == ["capture", "delivery", "end_to_end"]
    for number, panel in enumerate(panels.values()):
        assert lines_of(panel) == {
            "p50": [100 + number] * 2,
            "p95": [200 + number] * 2,
            "max": [900 + number] * 2,
        }


def test_the_slo_is_a_line_in_the_panel_of_capture_alone() -> None:
    panels = panels_of([hour_of(kind, 3, 1, 2, 3) for kind in KINDS], slo_ms=60_000)
    slo = {kind: [n for n in lines_of(panel) if "slo" in n] for kind, panel in panels.items()}
    assert slo == {"capture": ["lag_slo_ms: 1 min"], "delivery": [], "end_to_end": []}
    low, high = panels["capture"].get_ylim()
    assert low < 60_000 < high


def test_lags_below_zero_are_drawn_and_said() -> None:
    panels = panels_of([hour_of("capture", 3, -5_000, 20, 300, 7), hour_of("delivery", 3, 1, 2, 3)])
    assert "7 events are below 0: the clocks disagree" in panels["capture"].get_title(loc="left")
    assert panels["capture"].get_ylim()[0] < -5_000
    assert "below 0" not in panels["delivery"].get_title(loc="left")


def test_a_kind_without_a_measured_event_says_so() -> None:
    panels = panels_of([hour_of("delivery", 3, 1, 2, 3)], slo_ms=10)
    said = {kind: [t.get_text() for t in panel.texts] for kind, panel in panels.items()}
    assert "nothing measured" in said["capture"][0]
    assert said["delivery"] == []


def test_a_line_is_broken_where_hours_are_missing() -> None:
    rows = [hour_of("capture", hour, 100, 200, 300) for hour in (1, 2, 9)]
    points = lines_of(panels_of(rows)["capture"])["p95"]
    assert points[:2] == [200, 200]
    assert points[2] != points[2], "not a number between the hours"
    assert points[3] == 200


def test_hours_far_from_most_are_counted_and_not_drawn() -> None:
    rows = [hour_of("capture", hour, 1, 2, 3) for hour in (3, 4)]
    figure = lag_figure(DAY, [hour_of("capture", -1_000, 1, 2, 7_200_000), *rows], None)
    says = "1 source hour lies more than 7 days from these: not drawn (max 2 h)"
    assert says in figure.get_suptitle()
    assert lines_of(figure.axes[0])["max"] == [3, 3]


def test_a_replay_of_old_changes_is_drawn_in_its_own_hours() -> None:
    rows = [hour_of("capture", hour, 1, 2, 3) for hour in range(-1_000, -976)]
    figure = lag_figure(DAY, rows, None)
    assert "not drawn" not in figure.get_suptitle()
    assert lines_of(figure.axes[0])["max"] == [3] * 24


def test_the_picture_is_markdown_that_says_what_it_shows() -> None:
    rows = [hour_of(kind, h, 100, 200, 61_000) for h in range(24) for kind in KINDS]
    text = lag_over_hours(DAY, rows, 60_000)
    assert text is not None
    said, _, encoded = text.partition("](data:image/png;base64,")
    assert "capture max 1.02 min, p95 200 ms, p50 100 ms" in said
    with Image.open(io.BytesIO(base64.b64decode(encoded.removesuffix(")")))) as picture:
        assert picture.size == (720, 540)
    assert len(text) < 100_000, "Dagster keeps one a day"


def test_a_day_without_a_lag_has_no_picture() -> None:
    assert lag_over_hours(DAY, [], 60_000) is None


def test_the_stretch_with_the_most_moments_is_the_latest_of_several() -> None:
    assert densest([5], 10) == 5
    assert densest([0, 1, 2, 50, 51, 90], 10) == 0
    assert densest([50, 51, 0, 1], 10) == 50


@pytest.mark.parametrize(
    ("ms", "says"),
    [
        (0, "0"),
        (7, "7 ms"),
        (1_000, "1 s"),
        (-1_500, "-1.5 s"),
        (60_000, "1 min"),
        (7_200_000, "2 h"),
        (864_000_000, "10 d"),
        (10**14, "1157407 d"),
    ],
)
def test_a_duration_is_in_the_unit_in_which_it_is_read(ms: int, says: str) -> None:
    assert duration(ms) == says
