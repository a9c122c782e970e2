"""The expected size of a thread's reads, for progress display."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Expected:
    """The most that one Spark stage reads; None if unknown."""

    rows: int | None = None
    bytes: int | None = None  # of files


_local = threading.local()  # attribute `expected`


@contextmanager
def expecting() -> Iterator[Expected]:
    """Collect what this thread passes to :func:`expect` within the block."""
    _local.expected = expected = Expected()
    try:
        yield expected
    finally:
        _local.expected = None


def expect(rows: int | None = None, bytes: int | None = None) -> None:
    """Set the most that the next Spark stages of this thread read."""
    expected = getattr(_local, "expected", None)
    if expected is not None:
        expected.rows, expected.bytes = rows, bytes
