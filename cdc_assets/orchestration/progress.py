"""What a run is doing, told to whoever listens (the command line)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from cdc_assets.cdc.spark import is_small

_LOOK_SECONDS = 3.0  # so often a listener is told how far Spark is
UNDER_WAY = "…"  # the text of a step of which nothing is known yet


@dataclass(frozen=True)
class Step:
    """One step of a run; `seconds` is None while it is under way."""

    source: str
    stage: str
    day: str
    text: str
    seconds: float | None = None

    @property
    def name(self) -> str:
        """What Spark's jobs of the step are called."""
        return f"{self.source}.{self.stage} {self.day}"


Listener = Callable[[Step | str], None]  # a step, or a sentence of the run as a whole

_listeners: list[Listener] = []
_under_way: dict[str, Step] = {}
_rows_expected: dict[str, int] = {}
_of_thread = threading.local()  # `step`: the one that this thread makes


@contextmanager
def listen(callback: Listener) -> Iterator[None]:
    """Call `callback` for each step as long as the block lasts, and while one takes long."""
    _listeners.append(callback)
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(ended,), name="progress", daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        with suppress(ValueError):
            _listeners.remove(callback)
        watch.join(1)  # it may wait for a JVM that is gone


def tell(news: Step | str) -> None:
    """Tell all listeners of a step, or of what the run does."""
    for listener in list(_listeners):
        listener(news)


def mute() -> None:
    """Tell nobody any more: what becomes of the steps of a run that was stopped is no news."""
    _listeners.clear()


@contextmanager
def step(source: str, stage: str, day: str) -> Iterator[Callable[[str], None]]:
    """Tell that a step begins, and when it ended what came of it.

    Spark's jobs that this thread starts meanwhile are called after the step.
    """
    begun = Step(source, stage, day, UNDER_WAY)
    _of_thread.step = _under_way[begun.name] = begun
    name_jobs()
    tell(begun)
    began = time.monotonic()
    said: list[str] = []
    try:
        yield said.append
    except BaseException:
        said = ["failed"]
        raise
    finally:
        _of_thread.step = None
        _under_way.pop(begun.name, None)
        _rows_expected.pop(begun.name, None)
        name_jobs()
        text = " ".join(said) or "done"
        tell(replace(begun, text=text, seconds=round(time.monotonic() - began, 1)))


def expect(rows: int | None) -> None:
    """Say how many rows, at most, the step of this thread has to read; None where nobody knows."""
    current = getattr(_of_thread, "step", None)
    if current is not None and rows is not None:
        _rows_expected[current.name] = rows


def name_jobs() -> None:
    """Call Spark's jobs of this thread after its step, once there is a session."""
    context = SparkContext._active_spark_context
    current = getattr(_of_thread, "step", None)
    if context is not None:
        named: Any = context  # PySpark takes None, and declares a text
        with suppress(Py4JError, OSError):  # Spark is gone: the step itself says so
            named.setJobDescription(current.name if current else None)


# --- how far Spark is


@dataclass(frozen=True)
class Reading:
    """A stage of Spark at work: what its tasks have read so far, ended or not."""

    step: str
    stage_id: int
    rows: int
    tasks: int
    tasks_done: int


def text_of(reading: Reading, expected: int | None) -> str:
    """How far a stage is, in words; of how many rows where that is known."""
    if expected is not None and reading.rows <= expected:
        of_all = f" of up to {expected:,} rows"
    else:
        of_all = f" rows, {reading.tasks_done} of {reading.tasks} tasks"
    return f"Spark's stage {reading.stage_id} has read {reading.rows:,}{of_all}"


def readings(context: SparkContext) -> list[Reading]:
    """The active stages of steps, from Spark's own records: no job, nothing is counted twice.

    Tasks that run report every ten seconds (`spark.executor.heartbeatInterval`).
    """
    java: Any = context._jsc.sc()
    found = []
    stages = java.statusStore().activeStages()
    for number in range(stages.size()):
        stage = stages.apply(number)
        description = stage.description()
        step = str(description.get()) if description.isDefined() else ""
        if step in _under_way:
            rows = stage.inputRecords() + stage.shuffleReadRecords()
            done = stage.numCompleteTasks()
            found.append(Reading(step, stage.stageId(), rows, stage.numTasks(), done))
    return found


def _watch(ended: threading.Event) -> None:
    while not ended.wait(_LOOK_SECONDS):
        context = SparkContext._active_spark_context
        if context is None or not _under_way:
            continue
        with suppress(Py4JError, OSError, AttributeError):  # Spark is stopped, or is gone
            tell_readings(readings(context))


def tell_readings(found: list[Reading]) -> None:
    """Tell of each step how far its largest stage is; small ones are soon done."""
    for reading in sorted(found, key=lambda reading: reading.rows):
        step = _under_way.get(reading.step)
        if step is not None and not is_small(reading.rows):
            tell(replace(step, text=text_of(reading, _rows_expected.get(reading.step))))
