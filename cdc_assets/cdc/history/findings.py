"""The checks of a history's published day."""

from __future__ import annotations

from datetime import date

from cdc_assets.cdc.findings import Check, Finding
from cdc_assets.cdc.history.stage import HistoryReport
from cdc_assets.cdc.lake.commits import TableState

CHECKS = (
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
    Check("built_on_day_before", "The day was built on the current version of the day before."),
)


def history_findings(state: TableState, day: date, report: HistoryReport) -> list[Finding]:
    """The findings of a day.

    Args:
        state: the history's metadata in the lake.
        day: a published one.
        report: what the day came to.
    """
    built_on, before = state.made_of(day).get("day_before"), state.day_before(day)
    audited = {"versions_audited": report.versions_audited, "current": report.current}
    return [
        # A day that fails one of these audits is not published: the step records the failure.
        Finding("versions_disjoint", True, audited),
        Finding("versions_match_table", True, audited),
        Finding(
            "built_on_day_before",
            built_on in (None, before),
            {
                "built_on": str(built_on or "nothing, it is the first day"),
                "day_before": str(before or "none"),
            },
        ),
    ]
