"""The stage `tables`: the state of each table at the end of a day, published as a tag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.cdc.findings import Check, Finding, fault_finding
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayCommits, TableState
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.stages.added_checks import TABLES, AddedCheck, added_checks
from cdc_assets.cdc.stages.contract import AS_USUAL, MadeDay, MakeOptions
from cdc_assets.cdc.stages.one_table import OneTableStage, TableFigures
from cdc_assets.cdc.state.contracts import broken_of_table
from cdc_assets.cdc.state.day_inputs import DayInputs
from cdc_assets.cdc.state.findings import table_checks, table_findings
from cdc_assets.cdc.state.metadata import summary_line, table_day
from cdc_assets.cdc.state.read_estimate import rows_to_read
from cdc_assets.cdc.state.source_context import gather
from cdc_assets.cdc.state.stage import DayReport, make_earlier_again, make_table_day

Figures = TableFigures[DayReport]


class TableStage(OneTableStage[DayReport]):
    """A table of a source as it stood at the end of each day."""

    @property
    def has_key(self) -> bool:
        """False where the configuration says that there is none."""
        return self.table_settings.key not in ("none", "row")

    def own_checks(self) -> Sequence[Check]:
        """Those of keys only where the table has one."""
        return table_checks(self.has_key)

    def day_inputs(self, lake: LakeMetadata, days: Sequence[date]) -> Sequence[DayInputs]:
        """The day before, the changes and the rules."""
        commits, state = _Commits(lake, self.source), self._state(lake)
        return [
            DayInputs(self.config, self.source, self.table, day, commits, state) for day in days
        ]

    def _added(self, table: str) -> Sequence[AddedCheck]:
        return added_checks(TABLES)

    # -- making days

    def rows_to_read(self, lake: Lake, known: LakeMetadata, days: Sequence[date]) -> int | None:
        """See :func:`cdc_assets.cdc.state.read_estimate.rows_to_read`."""
        context, state = self._context, self._state(known)
        if context is None or self._is_earlier(days):
            return None
        return rows_to_read(lake, self.source, self.table, days[0], context, state)

    def make(
        self,
        lake: Lake,
        days: Sequence[date],
        options: MakeOptions = AS_USUAL,
        known: LakeMetadata | None = None,
    ) -> dict[date, MadeDay]:
        """Make the days in order, each on the one before; `details` are their reports.

        Raises:
            MissingDayError: the day before, or the day's changes, are not there yet.
            AuditError: a day's audit failed; nothing of it is published.
            ConfigError: a column can't be in the lake under its name.
            SchemaDriftError: the key's columns or types changed.
            ConcurrentRunError: another run published a day meanwhile, made of something else.
        """
        place = (lake, self.source, self.table)
        context = self._context or gather(lake, self.source, [self.table], days)
        state = self._state(known) if known else None
        reports = {}
        if self._is_earlier(days):
            assert self._first is not None  # the day that they are made again for
            reports = make_earlier_again(*place, self._first, context, state)
        else:
            for day in days:
                reports[day] = make_table_day(*place, day, context, options.force, state)
                state = None  # the day has changed it
        return {day: MadeDay(report.made, report) for day, report in reports.items()}

    def summary(
        self, known: LakeMetadata, figures: Figures, made: Mapping[date, MadeDay]
    ) -> list[str]:
        return [_summary(day.details) for day in made.values()]

    def findings(self, lake: Lake, figures: Figures, table: str) -> dict[date, list[Finding]]:
        return {day: self._day_findings(figures, day) for day in figures.reports}

    def _day_findings(self, figures: Figures, day: date) -> list[Finding]:
        settings, state = self.table_settings.in_lake, figures.state
        found = table_findings(
            state,
            day,
            figures.reports[day],
            lambda column: self.settings.shows_column(self.table, column),
        )
        known = {check.name for check in self.checks[self.table]}
        assert self._context is not None  # the day was made with it
        columns = self._context.columns_of(self.table, [day])
        faults = broken_of_table(figures.frames[day], settings, columns, self.key_columns(state))
        return [
            *(finding for finding in found if finding.name in known),
            fault_finding("contract", faults),
        ]

    def day_line(self, figures: Figures, table: str, day: date) -> str:
        return summary_line(figures.reports[day])

    def day_values(
        self, identifier: str, schema: StructType, state: TableState, report: DayReport
    ) -> dict[str, Any]:
        keys = self.key_columns(state)
        return table_day(self.source, identifier, schema, state, report, keys)


def _summary(report: DayReport) -> str:
    if not report.made:
        return f"{report.rows} rows (as before)"
    again = ", made again: the rules have changed" if report.rules_changed else ""
    return f"{report.rows} rows{again}"


class _Commits(dict[str, DayCommits]):
    """The days of the source's stages, each read at the first access."""

    def __init__(self, lake: LakeMetadata, source: str) -> None:
        super().__init__()
        self._lake, self._source = lake, source

    def __missing__(self, stage: str) -> DayCommits:
        self[stage] = self._lake.day_commits(self._source, stage)
        return self[stage]
