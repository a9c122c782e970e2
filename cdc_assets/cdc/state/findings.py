"""The checks of a table's published day."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from cdc_assets.cdc.findings import Check, Finding, Severity, fault_finding
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.names import key_in_database
from cdc_assets.cdc.state.stage import DayReport

CHECKS = (
    Check(
        "keys_unique",
        "Each key written on this day exists exactly once (audited before publishing).",
    ),
    Check("keys_readable", "Every event's key fits the table's key columns."),
    Check(
        "keys_agree",
        "No row image contradicts the key of its event, and none meets another row at its key.",
        Severity.WARN,
    ),
    Check(
        "positions_comparable",
        "Every event's position is made of the same source elements as the table's.",
        Severity.WARN,
    ),
    Check("one_database", "Every event is of the database that the table is of."),
    Check("built_on_day_before", "The day was built on the current version of the day before."),
    Check("late_within_window", "No event arrived later than late_days.", Severity.WARN),
    Check("values_representable", "Every value fits its column.", Severity.WARN),
    Check(
        "schema_compatible",
        "No column came with a type that its column can't take.",
        Severity.WARN,
    ),
    Check(
        "rows_missing_from_snapshot",
        "A snapshot of the table read all rows that were there, or those that it did not read were "
        "removed.",
        Severity.WARN,
    ),
    Check(
        "contract",
        "The table has all columns that messages and configuration name, with their types.",
    ),
)
KEY_CHECKS = ("keys_unique", "keys_readable", "keys_agree")  # of tables with a key


def table_checks(has_key: bool) -> list[Check]:
    """The checks of a table."""
    return [check for check in CHECKS if has_key or check.name not in KEY_CHECKS]


def table_findings(
    state: TableState,
    day: date,
    report: DayReport,
    shows: Callable[[str], bool] = lambda _: True,
) -> list[Finding]:
    """The findings of a day, but its `contract`.

    Args:
        state: the table's metadata in the lake.
        day: a published one.
        report: what the day came to.
        shows: whether a column's values may be shown.
    """
    return [
        # A day that fails this audit is not published: the step records the failure.
        Finding("keys_unique", True, {"keys_audited": report.keys_audited, "rows": report.rows}),
        Finding(
            "keys_readable",
            not report.unreadable_keys,
            {"unreadable_keys": report.unreadable_keys},
        ),
        _keys_agree(report),
        _positions_comparable(report),
        _one_database(report),
        _built_on_day_before(state, day),
        Finding("late_within_window", not report.too_late, {"too_late": report.too_late}),
        _values_representable(report, shows),
        fault_finding("schema_compatible", list(report.incompatible)),
        _rows_missing_from_snapshot(report),
    ]


def _keys_agree(report: DayReport) -> Finding:
    values = {
        "contradicted": report.contradicted,
        "arrived_on_rows": report.arrived_on_rows,
        "before_of_others": report.before_of_others,
        "of_other_tables": report.of_other_tables,
    }
    severity = Severity.ERROR if report.of_other_tables else None
    return Finding("keys_agree", not any(values.values()), values, severity)


def _positions_comparable(report: DayReport) -> Finding:
    bases = ", ".join(f"epoch {epoch}: {basis}" for epoch, basis in sorted(report.bases.items()))
    return Finding(
        "positions_comparable",
        not report.other_basis,
        {
            "events_on_another_basis": report.other_basis,
            "basis": bases or "no event with a position yet",
        },
    )


def _one_database(report: DayReport) -> Finding:
    """D4: events of another database wait in `changes` for a table of their own."""
    others = dict(report.other_databases)
    names = sorted({*others, *([] if report.database is None else [report.database])})
    cure = ", ".join(key_in_database(report.table, name) for name in names)
    return Finding(
        "one_database",
        not others,
        {
            "database": report.database or "none is said",
            **({"events_by_database": others} if others else {}),
            "events_of_other_databases": sum(others.values()),
        },
        description=(
            "events of other databases are left in changes; name all tables of the source in three "
            f"parts: {cure}"
            if others
            else None
        ),
    )


def _built_on_day_before(state: TableState, day: date) -> Finding:
    built_on, before = state.made_of(day).get("day_before"), state.day_before(day)
    return Finding(
        "built_on_day_before",
        built_on in (None, before),
        {
            "built_on": str(built_on or "nothing, it is the first day"),
            "day_before": str(before or "none"),
        },
    )


def _rows_missing_from_snapshot(report: DayReport) -> Finding:
    found = report.snapshot or {}
    missing, removed, reads = (found.get(name, 0) for name in ("missing", "removed", "reads"))
    what = None
    if missing > removed:
        what = (
            f"{missing} rows were not read by the snapshot that ended on this day: they were "
            "removed at the source while no event was recorded, or it was not of the whole table"
        )
    elif reads and not removed:
        what = (
            f"the table has no key: the {reads} reads of the snapshot that ended on this day may "
            "be rows that it had already"
        )
    cure = "on_resnapshot: replace, and run the day again, if snapshots are of whole tables"
    return Finding(
        "rows_missing_from_snapshot",
        what is None,
        {
            "rows_missing": missing,
            "rows_removed": removed,
            **({"reads_without_key": reads} if reads else {}),
            **({"such_as": ", ".join(found["examples"])} if found.get("examples") else {}),
            **({"snapshot": _places(found["ended"])} if found else {}),
        },
        description=None if what is None else f"{what}. To remove such rows: {cure}",
    )


def _places(ended: Sequence[Mapping[str, Any]]) -> str:
    """Where snapshots begin and end."""
    ends = ([snapshot[name] for name in ("first", "last")] for snapshot in ended)
    return "; ".join(
        " to ".join(f"{m['topic']}/{m['partition']}/{m['offset']} ({m['day']})" for m in both)
        for both in ends
    )


def _values_representable(report: DayReport, shows: Callable[[str], bool]) -> Finding:
    # Reports of earlier versions have examples of what is not to be shown.
    unfit = {
        column: f"{found['count']}"
        + (f", such as {found['example']}" if shows(column) and "example" in found else "")
        for column, found in report.unfit.items()
    }
    by_column = {
        "columns_to_write": report.units,
        "read_otherwise": report.read_otherwise,
        "numbers_that_may_be_labels": report.open_labels,
    }
    return Finding(
        "values_representable",
        not (unfit or report.unresolved or any(by_column.values())),
        {
            **unfit,
            **{
                name: json.dumps(dict(columns), ensure_ascii=False)
                for name, columns in by_column.items()
                if columns
            },
            "unfit_columns": len(unfit),
            "unresolved_unchanged_values": report.unresolved,
        },
    )
