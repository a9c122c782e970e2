"""What a check says of a day, and what it found there: plain values, shown by Dagster above.

A check states the healthy condition and is evaluated per day, also in a range run. The audit that
stops a bad day runs before publishing, inside the step (see :mod:`cdc_assets.cdc.state.stage`);
findings describe what is made. Each stage has its checks beside it, in a module `findings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from cdc_assets.cdc import markdown

AUDIT = "audit"  # value of a check whose audit kept a day from being published
_EXAMPLES = 20  # faults
_TABLES = 100  # in the values of a finding


class Severity(Enum):
    """How bad it is when a check fails."""

    WARN = "WARN"
    ERROR = "ERROR"


@dataclass(frozen=True)
class Check:
    """A check's name, what it says is true, and how bad it is when it is not."""

    name: str
    description: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True)
class Finding:
    """What a check found on a day.

    `values` are numbers, texts, mappings of these, a `datetime` or
    :class:`~cdc_assets.cdc.markdown.Markdown`. `severity` overrides the check's own. `description`
    is the finding as a sentence, without values of the data.
    """

    name: str
    passed: bool
    values: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity | None = None
    description: str | None = None


def fault_finding(name: str, faults: Sequence[str]) -> Finding:
    """A finding that passes where there is no fault; the first faults are its examples."""
    values: dict[str, Any] = {"faults": len(faults)}
    if faults:
        values["examples"] = markdown.bullets(faults[:_EXAMPLES])
    return Finding(name, not faults, values)


def largest(counts: Mapping[str, int]) -> dict[str, int]:
    """The tables with the highest figures: data alone decides how many tables there are."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return dict(sorted(ordered[:_TABLES]))
