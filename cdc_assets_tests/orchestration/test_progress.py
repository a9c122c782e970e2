"""How far long steps are: Spark's own figures, and what the command line makes of them."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.spark import SMALL_ROWS
from cdc_assets.cli import output
from cdc_assets.orchestration import progress
from cdc_assets.orchestration.progress import Reading, Step

ROWS = SMALL_ROWS + 1000


def test_a_step_tells_how_many_rows_its_running_stage_has_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One task has read its file, the other one is held: half of the rows are read for sure."""
    for name in ("first", "second"):
        (tmp_path / f"{name}.txt").write_text(f"{name}\n" * ROWS, encoding="utf-8")
    release = tmp_path / "release"

    def read(rows: Iterator[Any]) -> Iterator[int]:
        texts = {row.value for row in rows}
        end = time.monotonic() + 120
        while "second" in texts and not release.exists() and time.monotonic() < end:
            time.sleep(0.05)
        yield len(texts)

    def run() -> list[int]:
        with progress.step("shop", "changes", "2026-11-01"):
            progress.expect(2 * ROWS)
            lines = spark.read.text([str(tmp_path / "first.txt"), str(tmp_path / "second.txt")])
            return lines.rdd.mapPartitions(read).collect()

    told: list[Step] = []
    with ThreadPoolExecutor(1) as pool, progress.listen(told.append):
        work = pool.submit(run)
        end = time.monotonic() + 120
        while not any("has read" in step.text for step in told) and time.monotonic() < end:
            time.sleep(0.05)
        release.touch()
        assert work.result(120) == [1, 1]
    first, *under_way, last = told
    assert (first.text, first.seconds, last.text) == ("…", None, "done")
    texts = {step.text.partition("has ")[2] for step in under_way}
    # The last look may have seen the second task's rows, too.
    whole = f"read {2 * ROWS:,} of up to {2 * ROWS:,} rows"
    assert texts - {whole} == {f"read {ROWS:,} of up to {2 * ROWS:,} rows"}
    # Jobs of no step are nobody's, and a step that has ended is not told of.
    assert progress.readings(spark.sparkContext) == []
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_of_how_many_is_said_only_where_it_can_be_true() -> None:
    reading = Reading("shop.changes 2026-11-01", 7, 1_200_000, 40, 12)
    assert progress.text_of(reading, 4_000_000) == (
        "Spark's stage 7 has read 1,200,000 of up to 4,000,000 rows"
    )
    for expected in (None, 1_000_000):
        assert progress.text_of(reading, expected) == (
            "Spark's stage 7 has read 1,200,000 rows, 12 of 40 tasks"
        )


def test_of_small_days_and_of_steps_that_ended_nothing_is_told() -> None:
    told: list[Step] = []
    progress._listeners.append(told.append)
    try:
        with progress.step("shop", "changes", "2026-11-01"):
            progress.tell_readings([Reading("shop.changes 2026-11-01", 1, SMALL_ROWS, 1, 0)])
        progress.tell_readings([Reading("shop.changes 2026-11-01", 1, ROWS, 1, 0)])
    finally:
        progress._listeners.remove(told.append)
    assert [step.text for step in told] == ["…", "done"]


def test_piped_a_long_step_says_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(output.time, "monotonic", lambda: now)
    out = io.StringIO()
    shown = output.Progress("starting Spark", out)
    for seconds in (0, 3, 29, 31, 34, 60, 62):
        now = float(seconds)
        shown(Step("shop", "changes", "2026-11-01", f"row {seconds}"))
    shown(Step("shop", "changes", "2026-11-01", "70 changes", 70.0))
    lines = [line.split()[-2:] for line in out.getvalue().splitlines()]
    assert lines == [["row", "31"], ["row", "62"], ["70", "changes"]]
