"""Failures as Dagster records them: a description without secrets, and a trace without messages.

Dagster would record the causes of an exception with their texts and Java's stack traces, which may
hold addresses with passwords and values of rows. The trace here has classes and places only.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.java_errors import causes
from cdc_assets.cdc.redaction import without_secrets

_MAX_LINES = 60  # of a trace


def failure(
    description: str,
    error: BaseException,
    config: Config,
    metadata: Mapping[str, Any] | None = None,
    allow_retries: bool | None = None,
) -> dg.Failure:
    """A failure, for ``raise … from None``.

    Args:
        description: its text; secrets are removed.
        error: the exception behind it.
        config: the configuration that has the secrets.
        metadata: figures to record with it.
        allow_retries: whether a retry may succeed.
    """
    return dg.Failure(
        description=without_secrets(description, config.secrets),
        metadata={**(metadata or {}), "trace": dg.MetadataValue.text(_trace(error))},
        allow_retries=allow_retries,
    )


def _trace(error: BaseException) -> str:
    lines = [line for raised in _chain(error) for line in _lines(raised)]
    left_out = [f"… {len(lines) - _MAX_LINES} lines more"] if lines[_MAX_LINES:] else []
    return "\n".join([*lines[:_MAX_LINES], *left_out])


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
