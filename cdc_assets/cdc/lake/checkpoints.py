"""Local checkpoints: rows that are computed once and read several times.

A cached DataFrame keeps its plan, and Spark compares every later plan with it, which costs more
than the work itself for the wide plans here. A local checkpoint truncates the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame


class Checkpoints:
    """The local checkpoints of a ``with`` block (see :func:`local_checkpoints`)."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def add(self, frame: DataFrame) -> DataFrame:
        """Checkpoint a frame now (one job), in memory and on disk."""
        rows = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
        self._frames.append(rows)
        return rows

    def release(self) -> None:
        """Free the memory and disk."""
        for frame in self._frames:
            plan: Any = frame._jdf.queryExecution().analyzed()
            plan.rdd().unpersist(False)
        self._frames.clear()


@contextmanager
def local_checkpoints() -> Iterator[Checkpoints]:
    """Local checkpoints that are released at the end of the block."""
    checkpoints = Checkpoints()
    try:
        yield checkpoints
    finally:
        checkpoints.release()
