"""The six days: a clock, background work at random times, scenes at fixed ones."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from itertools import count
from typing import Any, ClassVar

from .avro import Registry
from .kafka import Kafka, Scene

FIRST_DAY = datetime(2026, 11, 1, tzinfo=timezone.utc)
DAYS = 6
SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

Script = Callable[[], "Iterator[str] | None"]


def clock(text: str) -> int:
    """Epoch ms of "<day> <HH:MM[:SS[.mmm]]>"; clock("1 00:00") is the start of the sample."""
    day, time = text.split()
    hours, minutes, seconds = (time + ":0").split(":")[:3]
    in_day = int(hours) * HOUR + int(minutes) * MINUTE + round(float(seconds) * SECOND)
    return int(FIRST_DAY.timestamp()) * SECOND + (int(day) - 1) * 24 * HOUR + in_day


def day_of(ms: int) -> str:
    """The UTC date that holds the instant."""
    return datetime.fromtimestamp(ms // SECOND, timezone.utc).date().isoformat()


def scene(at: str, rules: str, tells: str) -> Callable[[Any], Any]:
    """Marks a method as a scripted scene that starts `at` a clock text.

    A scene that goes on later is a generator: it yields the clock text to go on at.
    """

    def mark(function: Any) -> Any:
        function.scene = (at, Scene(rules, tells))
        return function

    return mark


class Source:
    """A producer with its own Kafka topics, clock and random numbers."""

    name: ClassVar[str]
    seed: ClassVar[int]
    partitions: ClassVar[dict[str, int]] = {}
    registry: Registry | None = None  # of the schemas that its records were written with

    def __init__(self) -> None:
        self.kafka = Kafka(self.partitions)
        self.rng = random.Random(self.seed)
        self.now = clock("1 00:00")

    def background(self) -> list[tuple[int, Script]]:
        """The unscripted work: when, and what is done."""
        raise NotImplementedError

    def run(self) -> Kafka:
        """Plays scenes and background work in the order of the clock."""
        ticket = count()
        queue: list[tuple[int, int, Iterator[str], Scene | None]] = [
            (at, next(ticket), _steps(work), None) for at, work in self.background()
        ]
        for script in self._scenes():
            at, told = script.scene
            told = Scene(told.rules, told.tells)
            self.kafka.scenes.append(told)
            queue.append((clock(at), next(ticket), _steps(script), told))
        heapq.heapify(queue)
        while queue:
            self.now, _, steps, told = heapq.heappop(queue)
            # What is done on a day lands on it, whatever timestamps its records carry.
            self.kafka.day = day_of(self.now)
            with self.kafka.telling(told):
                go_on = next(steps, None)
            if go_on:
                heapq.heappush(queue, (clock(go_on), next(ticket), steps, told))
        return self.kafka

    def office_times(self, day: int, number: int) -> list[int]:
        """Instants of a day, most of them around noon."""
        hours = (self.rng.triangular(0.5, 23.5, 13) for _ in range(number))
        return sorted(clock(f"{day} 00:00") + int(hour * HOUR) for hour in hours)

    def _scenes(self) -> list[Any]:
        named = (getattr(self, name) for name in sorted(dir(type(self))))
        return sorted((s for s in named if hasattr(s, "scene")), key=lambda s: clock(s.scene[0]))


def _steps(script: Script) -> Iterator[str]:
    result = script()
    if result is not None:
        yield from result
