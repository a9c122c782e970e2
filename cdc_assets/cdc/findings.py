"""Checks of a day and their findings, as plain values that Dagster shows.

A check states the healthy condition and is evaluated per day, also in a range run. Findings
describe published days; the audit that stops a bad day runs before publishing, inside the step (see
:mod:`cdc_assets.cdc.state.stage`). Each stage has its checks in its module `findings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from cdc_assets.cdc import markdown

AUDIT = "audit"  # value of a check whose audit stopped a day
_EXAMPLES = 20  # most faults shown
_TABLES = 100  # most tables in the values of a finding


class Severity(Enum):
    """The severity of a failed check."""

    WARN = "WARN"
    ERROR = "ERROR"


@dataclass(frozen=True)
class Check:
    """A check: its name, healthy condition, and severity if it fails."""

    name: str
    description: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True)
class Finding:
    """The result of a check on a day.

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
    """A finding that passes without faults; the first faults are its examples."""
    values: dict[str, Any] = {"faults": len(faults)}
    if faults:
        values["examples"] = markdown.bullets(faults[:_EXAMPLES])
    return Finding(name, not faults, values)


def largest(counts: Mapping[str, int]) -> dict[str, int]:
    """The tables with the highest figures; the number of tables in the data is unbounded."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return dict(sorted(ordered[:_TABLES]))
