"""How far long steps are: Spark's own figures, and what the command line makes of them."""

from __future__ import annotations

import io
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.cdc.landing.files import list_day, read_days
from cdc_assets.cdc.reading_progress import Expected, expect
from cdc_assets.cdc.spark import SMALL_ROWS
from cdc_assets.cli import output
from cdc_assets.orchestration.execution import progress
from cdc_assets.orchestration.execution.progress import Reading, Step

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
    assert progress.reading_text(reading, Expected(rows=4_000_000)) == (
        "Spark's stage 7 has read 1,200,000 of up to 4,000,000 rows"
    )
    of_files = replace(reading, bytes=120_000_000)
    assert progress.reading_text(of_files, Expected(bytes=480_500_000)) == (
        "Spark's stage 7 has read 1,200,000 rows, 120.0 of up to 480.5 MB"
    )
    tasks_alone = "Spark's stage 7 has read 1,200,000 rows, 12 of 40 tasks"
    for too_few in (None, Expected(), Expected(rows=1_000_000), Expected(bytes=119_999_999)):
        assert progress.reading_text(of_files, too_few) == tasks_alone
    assert progress.reading_text(reading, Expected(bytes=480_500_000)) == tasks_alone, "a shuffle"


def test_a_landing_of_files_expects_the_bytes_of_its_new_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    day = date(2026, 11, 1)
    lines = '{"topic":"t","partition":0,"offset":1,"value":"x"}\n' * ROWS
    files = [tmp_path / str(day) / name for name in ("a.jsonl", "b.jsonl")]
    files[0].parent.mkdir()
    for file in files:
        file.write_text(lines, encoding="utf-8")
    found = list_day(spark, "shop", str(tmp_path), day)
    told: list[Step] = []
    with progress.listen(told.append), progress.step("shop", "landing", str(day)):
        rows = read_days(spark, "shop", [found])
        assert progress._expected == {f"shop.landing {day}": Expected(bytes=2 * len(lines))}
        seen = half_read(rows, spark, tmp_path / "release")
        progress.expect()
        assert progress._expected == {f"shop.landing {day}": Expected()}
    assert len(lines) <= seen.bytes <= 2 * len(lines)
    assert progress._expected == {}


def half_read(rows: DataFrame, spark: SparkSession, release: Path) -> Reading:
    """What Spark says of a stage where the task of `a.jsonl` has ended, that of `b.jsonl` not."""
    name_of_step = progress._thread.step.name

    def held(part: Iterator[Any]) -> Iterator[int]:
        files = {row.file for row in part}
        end = time.monotonic() + 120
        while "b.jsonl" in files and not release.exists() and time.monotonic() < end:
            time.sleep(0.05)
        yield len(files)

    def run() -> None:
        spark.sparkContext.setJobDescription(name_of_step)
        rows.rdd.mapPartitions(held).collect()

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(run)
        seen: list[Reading] = []
        while not work.done() and not any(reading.tasks_done for reading in seen):
            seen = progress.readings(spark.sparkContext)
            time.sleep(0.05)
        release.touch()
        work.result(120)
    return seen[0]


def test_what_is_expected_is_of_the_thread_that_says_it_and_of_its_step_alone() -> None:
    with progress.step("shop", "changes", "2026-11-01"):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(expect, 5).result()
        assert progress._expected == {"shop.changes 2026-11-01": Expected()}
        expect(7)
        assert progress._expected == {"shop.changes 2026-11-01": Expected(rows=7)}
    expect(8)
    assert progress._expected == {}


def test_a_log_gets_a_line_of_a_long_step_after_a_minute_and_then_one_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    log = logging.getLogger("of the step")
    lines = progress.LogLines(lambda _: log)
    long, quick = (Step("shop", stage, "2026-11-01", "…") for stage in ("changes", "lag"))
    with caplog.at_level(logging.INFO):
        for seconds in (0, 3, 59, 60, 63, 119, 121):
            now = float(seconds)
            lines(replace(long, text=f"row {seconds}"))
        lines(replace(long, text="70 changes", seconds=122.0))
        lines(quick)
        now += 50
        lines(replace(quick, text="3 tables", seconds=50.0))
    assert [record.getMessage() for record in caplog.records] == [
        "shop.changes 2026-11-01: row 60",
        "shop.changes 2026-11-01: row 121",
    ]


def test_one_thread_looks_for_all_listeners_and_ends_with_the_last_one() -> None:
    def looking() -> int:
        return sum(thread.name == "progress" for thread in threading.enumerate())

    with progress.listen(lambda _: None):
        with progress.listen(lambda _: None):
            assert looking() == 1
        assert looking() == 1
    assert looking() == 0


def test_of_small_days_and_of_steps_that_ended_nothing_is_told() -> None:
    told: list[Step] = []
    progress._listeners.append(told.append)
    try:
        with progress.step("shop", "changes", "2026-11-01"):
            progress.notify_readings([Reading("shop.changes 2026-11-01", 1, SMALL_ROWS, 1, 0)])
        progress.notify_readings([Reading("shop.changes 2026-11-01", 1, ROWS, 1, 0)])
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
