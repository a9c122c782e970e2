"""Calls that Ctrl-C interrupts while Spark works."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def interruptible(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work` in a thread of its own, so that Ctrl-C interrupts the caller at once.

    Only the main thread gets signals. If it waits for the JVM, Py4J turns the interrupt into an
    error of the call; and PySpark and Dagster replace the main thread's signal handler.

    Raises:
        KeyboardInterrupt: Ctrl-C; `work` continues until the process ends.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="interruptible")
    try:
        return pool.submit(work, *args, **kwargs).result()
    finally:
        pool.shutdown(wait=False)
