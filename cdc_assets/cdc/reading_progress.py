"""How much a thread's work is about to read: said where it is known, for whoever shows progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Expected:
    """At most what one Spark stage of the work reads; None where nobody knows."""

    rows: int | None = None
    bytes: int | None = None  # of files


_local = threading.local()  # `expected`: of the work of this thread


@contextmanager
def expecting() -> Iterator[Expected]:
    """What this thread says by :func:`expect` for the length of the block."""
    _local.expected = expected = Expected()
    try:
        yield expected
    finally:
        _local.expected = None


def expect(rows: int | None = None, bytes: int | None = None) -> None:
    """Say what the next Spark stages of this thread read, in place of what was said before."""
    expected = getattr(_local, "expected", None)
    if expected is not None:
        expected.rows, expected.bytes = rows, bytes
