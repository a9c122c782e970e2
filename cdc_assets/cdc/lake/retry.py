"""Retries of commits while the catalog is busy."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    before_sleep_log,
    retry,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from cdc_assets.cdc.lake.errors import is_contention

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60

T = TypeVar("T")


def with_retry(action: Callable[[], T]) -> T:
    """Retry a commit while the catalog is busy, for at most `PATIENCE_SECONDS`."""
    attempt = retry(
        retry=retry_if_exception(is_contention),
        wait=wait_random_exponential(multiplier=0.1, max=5),
        stop=stop_after_delay(PATIENCE_SECONDS),
        before_sleep=before_sleep_log(log, logging.INFO),
        reraise=True,
    )
    return attempt(action)()
