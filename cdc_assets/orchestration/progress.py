"""What a run is doing, told to whoever listens (the command line)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One step of a run; `seconds` is None while it is under way."""

    source: str
    stage: str
    day: str
    text: str
    seconds: float | None = None


_listeners: list[Callable[[Step], None]] = []


@contextmanager
def listen(callback: Callable[[Step], None]) -> Iterator[None]:
    """Call `callback` for each step as long as the block lasts."""
    _listeners.append(callback)
    try:
        yield
    finally:
        _listeners.remove(callback)


def tell(step: Step) -> None:
    """Tell all listeners of a step."""
    for listener in list(_listeners):
        listener(step)


@contextmanager
def step(source: str, stage: str, day: str) -> Iterator[Callable[[str], None]]:
    """Tell that a step begins, and when it ended what came of it."""
    tell(Step(source, stage, day, "…"))
    began = time.monotonic()
    said: list[str] = []
    try:
        yield said.append
    except BaseException:
        said = ["failed"]
        raise
    finally:
        text = " ".join(said) or "done"
        tell(Step(source, stage, day, text, round(time.monotonic() - began, 1)))
