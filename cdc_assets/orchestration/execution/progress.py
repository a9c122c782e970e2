"""Progress of a run: steps that begin, read and end, for listeners (terminal, run log)."""

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

_POLL_SECONDS = 3.0  # between two looks at Spark's active stages
_LOG_SECONDS = 60.0  # between two lines in a step's log
UNDER_WAY = "…"  # the text of a step that has no progress yet


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
        """The description of the step's Spark jobs."""
        return f"{self.source}.{self.stage} {self.day}"


Listener = Callable[[Step | str], None]  # a step, or a sentence of the run as a whole

_listeners: list[Listener] = []
_under_way: dict[str, Step] = {}
_expected: dict[str, Expected] = {}
_thread = threading.local()  # `step`: the step of this thread


@contextmanager
def listen(callback: Listener) -> Iterator[None]:
    """Call `callback` when a step begins or ends, and regularly during a long one."""
    _watch.enter()
    _listeners.append(callback)
    try:
        yield
    finally:
        with suppress(ValueError):  # muted
            _listeners.remove(callback)
        _watch.leave()


class LogLines:
    """A listener that writes the progress of long steps to their logs, at most a line a minute.

    Args:
        step_log: returns the log of a step.
    """

    def __init__(self, step_log: Callable[[Step], logging.Logger]) -> None:
        self._step_log = step_log
        self._logged_at: dict[str, float] = {}  # start or last line of each step

    def __call__(self, step: Step | str) -> None:
        """Write a line if one is due."""
        if isinstance(step, str):
            return
        now = time.monotonic()
        if step.seconds is not None:
            self._logged_at.pop(step.name, None)
        elif now - self._logged_at.setdefault(step.name, now) >= _LOG_SECONDS:
            self._logged_at[step.name] = now
            self._step_log(step).info(printable(f"{step.name}: {step.text}"))


def notify(news: Step | str) -> None:
    """Call all listeners."""
    for listener in list(_listeners):
        listener(news)


def mute() -> None:
    """Remove all listeners: a stopped run reports nothing more."""
    _listeners.clear()


@contextmanager
def step(source: str, stage: str, day: str) -> Iterator[Callable[[str], None]]:
    """Report the begin and end of a step; yields a function that takes the texts of its result.

    Spark jobs that this thread starts in the block carry the step's name.
    """
    begun = Step(source, stage, day, UNDER_WAY)
    _thread.step = _under_way[begun.name] = begun
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
        _thread.step = None
        _under_way.pop(begun.name, None)
        _expected.pop(begun.name, None)
        name_jobs()
        text = " ".join(said) or "done"
        notify(replace(begun, text=text, seconds=round(time.monotonic() - began, 1)))


def name_jobs() -> None:
    """Name this thread's Spark jobs after its step, if there is a session."""
    context = SparkContext._active_spark_context
    current = getattr(_thread, "step", None)
    if context is not None:
        named: Any = context  # PySpark declares str and accepts None
        with suppress(Py4JError, OSError):  # Spark is lost: the step itself fails
            named.setJobDescription(current.name if current else None)


# --- progress of Spark


@dataclass(frozen=True)
class Reading:
    """An active Spark stage: what its tasks, running or ended, have read so far."""

    step: str
    stage_id: int
    rows: int
    tasks: int
    tasks_done: int
    bytes: int = 0  # of its input files, compressed; 0 for a shuffle


def reading_text(reading: Reading, expected: Expected | None) -> str:
    """The progress of a Spark stage as text, with the expected rows or bytes if known."""
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
    """The active stages of steps, from Spark's status store: starts no job.

    Running tasks report every ten seconds (`spark.executor.heartbeatInterval`).
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
    """A thread that polls Spark while there are listeners."""

    def __init__(self) -> None:
        self._listening, self._changing = 0, threading.Lock()
        self._thread, self._ended = threading.Thread(), threading.Event()

    def enter(self) -> None:
        with self._changing:
            self._listening += 1
            if self._listening == 1:
                self._ended = threading.Event()
                self._thread = threading.Thread(
                    target=_poll, args=(self._ended,), name="progress", daemon=True
                )
                self._thread.start()

    def leave(self) -> None:
        with self._changing:
            self._listening -= 1
            if self._listening == 0:
                self._ended.set()
                self._thread.join(1)  # it may wait for a lost JVM


_watch = _Watch()


def _poll(ended: threading.Event) -> None:
    while not ended.wait(_POLL_SECONDS):
        context = SparkContext._active_spark_context
        if context is None or not _under_way:
            continue
        with suppress(Py4JError, OSError, AttributeError):  # Spark is stopped or lost
            notify_readings(readings(context))


def notify_readings(found: list[Reading]) -> None:
    """Report the largest stage of each step last; small ones end soon and are left out."""
    for reading in sorted(found, key=lambda reading: reading.rows):
        step = _under_way.get(reading.step)
        if step is not None and not is_small(reading.rows):
            notify(replace(step, text=reading_text(reading, _expected.get(reading.step))))
