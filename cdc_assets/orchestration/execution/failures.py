"""Failures as Dagster records them: a sentence, and where in the program it was.

Dagster would keep what an exception was raised from, with all that its text and Java's stack trace
say: addresses with passwords, and values of rows. Kept here are our own sentences without secrets,
and of a stack trace the classes and places without the messages.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.java_errors import causes
from cdc_assets.cdc.redaction import without_secrets

_MOST = 60  # lines of a trace


def failure(
    description: str,
    error: BaseException,
    config: Config,
    metadata: Mapping[str, Any] | None = None,
    allow_retries: bool | None = None,
) -> dg.Failure:
    """A failure to be raised ``from None``.

    Args:
        description: what is said of it.
        error: the exception behind it.
        config: the configuration whose secrets are not shown.
        metadata: figures to show beside it.
        allow_retries: whether a retry may mend it.
    """
    return dg.Failure(
        description=without_secrets(description, config.secrets),
        metadata={**(metadata or {}), "trace": dg.MetadataValue.text(_trace(error))},
        allow_retries=allow_retries,
    )


def _trace(error: BaseException) -> str:
    lines = [line for raised in _chain(error) for line in _lines(raised)]
    left_out = [f"… {len(lines) - _MOST} lines more"] if lines[_MOST:] else []
    return "\n".join([*lines[:_MOST], *left_out])


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _lines(error: BaseException) -> Iterator[str]:
    yield type(error).__name__
    yield from (f"  Java: {cause.kind}" for cause in causes(error))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        yield f"  {frame.filename}:{frame.lineno} in {frame.name}"
