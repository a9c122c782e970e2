"""What a run is doing, told to whoever listens: the command line, and the run's log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from cdc_assets.cdc.names import printable
from cdc_assets.cdc.reading_progress import Expected, expecting
from cdc_assets.cdc.reading_progress import expect as expect
from cdc_assets.cdc.spark import is_small

_LOOK_SECONDS = 3.0  # so often listeners are told how far Spark is
_LOG_SECONDS = 60.0  # so often a step's log says it
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
_expected: dict[str, Expected] = {}
_of_thread = threading.local()  # `step`: the one that this thread makes


@contextmanager
def listen(callback: Listener) -> Iterator[None]:
    """Call `callback` for each step as long as the block lasts, and while one takes long."""
    _watch.enter()
    _listeners.append(callback)
    try:
        yield
    finally:
        with suppress(ValueError):  # muted
            _listeners.remove(callback)
        _watch.leave()


class LogLines:
    """A listener that writes how far long steps are to their logs.

    The first line of a step comes after a minute, and then at most one a minute.

    Args:
        log_of: the log of a step.
    """

    def __init__(self, log_of: Callable[[Step], logging.Logger]) -> None:
        self._log_of = log_of
        self._said: dict[str, float] = {}  # when a step began, or its last line was written

    def __call__(self, step: Step | str) -> None:
        """Write a line where it is time."""
        if isinstance(step, str):
            return
        now = time.monotonic()
        if step.seconds is not None:
            self._said.pop(step.name, None)
        elif now - self._said.setdefault(step.name, now) >= _LOG_SECONDS:
            self._said[step.name] = now
            self._log_of(step).info(printable(f"{step.name}: {step.text}"))


def notify(news: Step | str) -> None:
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
    notify(begun)
    began = time.monotonic()
    said: list[str] = []
    try:
        with expecting() as _expected[begun.name]:
            yield said.append
    except BaseException:
        said = ["failed"]
        raise
    finally:
        _of_thread.step = None
        _under_way.pop(begun.name, None)
        _expected.pop(begun.name, None)
        name_jobs()
        text = " ".join(said) or "done"
        notify(replace(begun, text=text, seconds=round(time.monotonic() - began, 1)))


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
    bytes: int = 0  # of its input, files as they are stored; none of a shuffle's


def text_of(reading: Reading, expected: Expected | None) -> str:
    """How far a stage is, in words; of how many rows or bytes where that is known."""
    rows, most = f"{reading.rows:,}", expected or Expected()
    if most.rows is not None and reading.rows <= most.rows:
        read = f"{rows} of up to {most.rows:,} rows"
    elif most.bytes is not None and 0 < reading.bytes <= most.bytes:
        read = f"{rows} rows, {_megabytes(reading.bytes)} of up to {_megabytes(most.bytes)} MB"
    else:
        read = f"{rows} rows, {reading.tasks_done} of {reading.tasks} tasks"
    return f"Spark's stage {reading.stage_id} has read {read}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}"


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
            read = stage.inputBytes()
            found.append(Reading(step, stage.stageId(), rows, stage.numTasks(), done, read))
    return found


class _Watch:
    """One thread that looks how far Spark is, as long as somebody listens."""

    def __init__(self) -> None:
        self._listening, self._changing = 0, threading.Lock()
        self._thread, self._ended = threading.Thread(), threading.Event()

    def enter(self) -> None:
        with self._changing:
            self._listening += 1
            if self._listening == 1:
                self._ended = threading.Event()
                self._thread = threading.Thread(
                    target=_look, args=(self._ended,), name="progress", daemon=True
                )
                self._thread.start()

    def leave(self) -> None:
        with self._changing:
            self._listening -= 1
            if self._listening == 0:
                self._ended.set()
                self._thread.join(1)  # it may wait for a JVM that is gone


_watch = _Watch()


def _look(ended: threading.Event) -> None:
    while not ended.wait(_LOOK_SECONDS):
        context = SparkContext._active_spark_context
        if context is None or not _under_way:
            continue
        with suppress(Py4JError, OSError, AttributeError):  # Spark is stopped, or is gone
            notify_of(readings(context))


def notify_of(found: list[Reading]) -> None:
    """Tell of each step how far its largest stage is; small ones are soon done."""
    for reading in sorted(found, key=lambda reading: reading.rows):
        step = _under_way.get(reading.step)
        if step is not None and not is_small(reading.rows):
            notify(replace(step, text=text_of(reading, _expected.get(reading.step))))
