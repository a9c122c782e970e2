"""Rows computed once and read several times, cut off from the plan that made them.

A cached DataFrame keeps its plan, and Spark compares every later plan with it, which for
the wide plans here costs more than the work itself. A local checkpoint forgets the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame


class Kept:
    """Frames kept for the length of a ``with`` block (see :func:`keeping`)."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute the rows now (one job) and keep them, on disk where memory is short."""
        rows = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
        self._frames.append(rows)
        return rows

    def release(self) -> None:
        """Give the memory and disk back."""
        for frame in self._frames:
            plan: Any = frame._jdf.queryExecution().analyzed()
            plan.rdd().unpersist(False)
        self._frames.clear()


@contextmanager
def keeping() -> Iterator[Kept]:
    """A scope for kept rows: ``with keeping() as kept: rows = kept.keep(frame)``."""
    kept = Kept()
    try:
        yield kept
    finally:
        kept.release()
