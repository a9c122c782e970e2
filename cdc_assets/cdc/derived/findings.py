"""The checks of a derived table's published day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from cdc_assets.cdc.findings import Check, Finding
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.names import FEED, HISTORY

_ON_DAY_BEFORE = Check(
    "built_on_day_before", "The day was built on the current version of the day before."
)
CHECKS: Mapping[str, Sequence[Check]] = {
    HISTORY: (
        Check(
            "versions_disjoint",
            "The versions of a key follow each other, by position and by time (audited before "
            "publishing).",
        ),
        Check(
            "versions_match_table",
            "The current versions are the rows of the table on the same day (audited before "
            "publishing).",
        ),
        _ON_DAY_BEFORE,
    ),
    FEED: (
        Check(
            "changes_match_table",
            "The rows that the day's changes insert and delete are those that the table has more "
            "or less than on the day before (audited before publishing).",
        ),
        _ON_DAY_BEFORE,
    ),
}
ALL_CHECKS = tuple({check.name: check for own in CHECKS.values() for check in own}.values())


def derived_findings(
    kind: str, state: TableState, day: date, audited: Mapping[str, Any]
) -> list[Finding]:
    """The findings of a day.

    Args:
        kind: of the derived table.
        state: its metadata in the lake.
        day: a published one.
        audited: the figures of its audits.
    """
    built_on, before = state.made_of(day).get("day_before"), state.day_before(day)
    *audits, _ = CHECKS[kind]
    return [
        # A day that fails one of these audits is not published: the step records the failure.
        *(Finding(check.name, True, audited) for check in audits),
        Finding(
            _ON_DAY_BEFORE.name,
            built_on in (None, before),
            {
                "built_on": str(built_on or "nothing, it is the first day"),
                "day_before": str(before or "none"),
            },
        ),
    ]
