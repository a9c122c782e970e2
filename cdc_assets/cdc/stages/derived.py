"""The stages of tables that are derived from a table: its history, its feed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, ClassVar, TypeVar

from pyspark.sql.types import StructType

from cdc_assets.cdc.derived.findings import CHECKS, derived_findings
from cdc_assets.cdc.derived.inputs import DerivedInputs
from cdc_assets.cdc.derived.metadata import derived_day, summary_line
from cdc_assets.cdc.derived.stage import DerivedKind, DerivedReport
from cdc_assets.cdc.feed.kind import FEED, FeedReport
from cdc_assets.cdc.findings import Check, Finding
from cdc_assets.cdc.history.kind import HISTORY, HistoryReport
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.names import TableName, derived_name
from cdc_assets.cdc.stages.contract import AS_USUAL, MadeDay, MakeOptions
from cdc_assets.cdc.stages.one_table import OneTableStage, TableFigures
from cdc_assets.cdc.state.source_context import gather

ReportT = TypeVar("ReportT", bound=DerivedReport)


class DerivedStage(OneTableStage[ReportT]):
    """A table that is derived from another; each day stands on the table's day."""

    kind: ClassVar[DerivedKind[Any]]
    rows: ClassVar[str]  # what its rows are called

    def made_table(self) -> str:
        """The name of the derived table."""
        return str(derived_name(self.of, self.kind.name))

    def own_checks(self) -> Sequence[Check]:
        """Those of its kind."""
        return CHECKS[self.kind.name]

    def day_inputs(self, lake: LakeMetadata, days: Sequence[date]) -> Sequence[DerivedInputs]:
        """The day before, the table's day and the rules."""
        of_table, state = lake.table_state(self.source, self.of), self._state(lake)
        place = (self.config, self.source, self.of, self.kind.name)
        return [DerivedInputs(*place, day, of_table, state) for day in days]

    def is_complete(self, lake: LakeMetadata, day: date) -> bool:
        """As of all tables; a day that can't be made any more is nothing to wait for."""
        return not self.day_inputs(lake, [day])[0].can_be_made or super().is_complete(lake, day)

    # -- making days

    def rows_to_read(self, lake: Lake, known: LakeMetadata, days: Sequence[date]) -> int | None:
        """The events of the days, which are read at least."""
        if self._context is None:
            return None
        found = (self._context.days.get((self.of, day)) for day in days)
        return sum(facts.events for facts in found if facts is not None)

    def make(
        self,
        lake: Lake,
        days: Sequence[date],
        options: MakeOptions = AS_USUAL,
        known: LakeMetadata | None = None,
    ) -> dict[date, MadeDay]:
        """Make the days in order, each on the one before; `details` are their reports.

        Raises:
            MissingDayError: the day before, or the table's day, is not there yet.
            AuditError: a day's audit failed; nothing of it is published.
            ConcurrentRunError: another run published a day meanwhile, made of something else.
        """
        made = {}
        for day in days:
            context = self._context
            if context is None or self._is_earlier([day]):
                context = gather(lake, self.source, [self.of], [day])
            report = self.kind.make_day(lake, self.source, self.of, day, context, options.force)
            made[day] = MadeDay(report.made, report)
        return made

    def summary(
        self, known: LakeMetadata, figures: TableFigures[ReportT], made: Mapping[date, MadeDay]
    ) -> list[str]:
        return [
            f"{day.details.rows} {self.rows}" + ("" if day.is_new else " (as before)")
            for day in made.values()
        ]

    def findings(
        self, lake: Lake, figures: TableFigures[ReportT], table: str
    ) -> dict[date, list[Finding]]:
        return {
            day: derived_findings(self.kind.name, figures.state, day, self.audited(report))
            for day, report in figures.reports.items()
        }

    @abstractmethod
    def audited(self, report: ReportT) -> Mapping[str, Any]:
        """The figures of a day's audits."""

    def day_line(self, figures: TableFigures[ReportT], table: str, day: date) -> str:
        return summary_line(figures.reports[day], self.rows)

    def day_values(
        self, identifier: str, schema: StructType, state: TableState, report: ReportT
    ) -> dict[str, Any]:
        parent = (self.source, *TableName.parse(self.of))
        keys = self.key_columns(state)
        return derived_day(parent, identifier, schema, state, report, keys, self.rows)


class HistoryStage(DerivedStage[HistoryReport]):
    """The versions of a table's rows up to the end of each day."""

    kind = HISTORY
    rows = "versions"

    def audited(self, report: HistoryReport) -> Mapping[str, Any]:
        return {"versions_audited": report.versions_audited, "current": report.current}


class FeedStage(DerivedStage[FeedReport]):
    """The changes of a table's rows up to the end of each day."""

    kind = FEED
    rows = "changes"

    def audited(self, report: FeedReport) -> Mapping[str, Any]:
        return {
            "inserts": report.inserts,
            "updates": report.updates,
            "deletes": report.deletes,
        }


DERIVED_STAGES: Mapping[str, type[DerivedStage[Any]]] = {
    stage.kind.name: stage for stage in (HistoryStage, FeedStage)
}
