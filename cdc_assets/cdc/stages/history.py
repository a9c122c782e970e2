"""The stage `histories`: the versions of a table's rows up to the end of a day, as a tag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import DataFrame

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.findings import Finding
from cdc_assets.cdc.history.findings import CHECKS, history_findings
from cdc_assets.cdc.history.inputs import HistoryInputs
from cdc_assets.cdc.history.metadata import history_day, summary_line
from cdc_assets.cdc.history.stage import HistoryReport, make_history_day
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.names import TableName, history_of
from cdc_assets.cdc.stages.contract import (
    AS_USUAL,
    MadeDay,
    MakeOptions,
    Stage,
    Version,
    fingerprint,
)
from cdc_assets.cdc.state.metadata import sample
from cdc_assets.cdc.state.source_context import SourceContext, gather


@dataclass(frozen=True)
class HistoryFigures:
    """Days of a history: its metadata, their reports and their rows."""

    state: TableState
    reports: Mapping[date, HistoryReport]
    frames: Mapping[date, DataFrame]


class HistoryStage(Stage[HistoryFigures]):
    """The history of one table; each day is built on the day before and on the table's day.

    Args:
        config: cdc.yaml.
        source: the source.
        of: the table's name in the configuration.
        context: what the source's days hold for the table; read when a day is made if left out.
        first: the first day of the run; days that are made again before it are read apart.
    """

    name = "histories"
    is_of_one_table = True

    def __init__(
        self,
        config: Config,
        source: str,
        of: str,
        context: SourceContext | None = None,
        first: date | None = None,
    ) -> None:
        super().__init__(config, source)
        self.of, self.table, self._context = of, str(history_of(of)), context
        self._first = first
        self.table_settings = self.settings.tables[of]
        self.checks = {self.table: CHECKS}
        self.start = config.start_of(source, of)

    @property
    def label(self) -> str:
        """The name of the history's table."""
        return self.table

    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """The day before, the table's day and the rules."""
        return self._inputs(lake, day).values

    def stale(self, lake: LakeMetadata, days: Sequence[date]) -> list[date]:
        """The days to make; all of them if a killed run left `main` behind the newest tag."""
        state = self._state(lake)
        tags = state.tags if state else {}
        if state is None or not tags or state.refs.get("main") != tags[max(tags)]:
            return list(days)
        return [day for day in days if not self._inputs(lake, day).is_up_to_date]

    def is_complete(self, lake: LakeMetadata, day: date) -> bool:
        """Whether the day was made of what is there now, or has expired."""
        state = self._state(lake)
        if state is None:
            return False
        if state.expired is not None and day <= state.expired:
            return True
        return day in state.tags and self._inputs(lake, day).is_of_what_is_there

    def versions(self, lake: LakeMetadata, table: str, days: Sequence[date]) -> dict[date, Version]:
        """A day that is made from another previous day has another snapshot."""
        shown = fingerprint(self.settings.model_dump(mode="json", exclude={"landing", "tables"}))
        settings = fingerprint([shown, self.table_settings.model_dump(mode="json")])
        state = self._state(lake)
        assert state is not None  # its days are made
        return {day: Version(state.made_as(day), settings) for day in days}

    def own_days(self, days: Iterable[date]) -> list[date]:
        """The days from the table's first day on."""
        return sorted(day for day in days if day >= self.start)

    def batches(self, lake: LakeMetadata, days: Sequence[date]) -> list[list[date]]:
        """One day each, after those whose day of the table was made again."""
        if not days:
            return []
        earlier = self._inputs(lake, days[0]).outdated
        return [*([earlier] if earlier else []), *([day] for day in days)]

    # -- making days

    @classmethod
    def prepared(
        cls, lake: Lake, stages: Sequence[Stage[Any]], days: Sequence[date]
    ) -> Sequence[Stage[Any]]:
        """The histories with what their source's days hold for them: two jobs."""
        tables = [stage.of for stage in stages if isinstance(stage, HistoryStage)]
        if not tables:
            return stages
        source = stages[0].source
        context = gather(lake, source, tables, days)
        return [HistoryStage(lake.config, source, table, context, days[0]) for table in tables]

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
            if context is None or self._first is None or day < self._first:
                context = gather(lake, self.source, [self.of], [day])
            report = make_history_day(lake, self.source, self.of, day, context, options.force)
            made[day] = MadeDay(report.made, report)
        return made

    def figures(
        self, lake: Lake, known: LakeMetadata, made: Mapping[date, MadeDay]
    ) -> HistoryFigures:
        """The reports of the days, and the table's metadata."""
        state = self._state(known)
        assert state is not None  # its days are made
        identifier = lake.state(self.source, TableName.parse(self.table))
        frames = {day: lake.at(identifier, state.tags[day]) for day in made}
        return HistoryFigures(state, {day: found.details for day, found in made.items()}, frames)

    def summary(
        self, known: LakeMetadata, figures: HistoryFigures, made: Mapping[date, MadeDay]
    ) -> list[str]:
        return [
            f"{day.details.rows} versions" + ("" if day.is_new else " (as before)")
            for day in made.values()
        ]

    def findings(
        self, lake: Lake, figures: HistoryFigures, table: str
    ) -> dict[date, list[Finding]]:
        return {
            day: history_findings(figures.state, day, report)
            for day, report in figures.reports.items()
        }

    def day_line(self, figures: HistoryFigures, table: str, day: date) -> str:
        return summary_line(figures.reports[day])

    def values(
        self, lake: Lake, figures: HistoryFigures, table: str, days: Sequence[date], seconds: float
    ) -> dict[date, dict[str, Any]]:
        """The sample of the rows is one job a day."""
        return {day: self._day_values(lake, figures, day) for day in days}

    def _day_values(self, lake: Lake, figures: HistoryFigures, day: date) -> dict[str, Any]:
        identifier = lake.state(self.source, TableName.parse(self.table))
        schema, state = figures.frames[day].schema, figures.state
        parent = (self.source, *TableName.parse(self.of))
        values = history_day(parent, identifier, schema, state, figures.reports[day])
        if not self.settings.samples:
            return values
        rows = sample(lake, identifier, state.tags[day], self.table_settings.sensitive)
        return {"sample": rows, **values}

    def _state(self, lake: LakeMetadata) -> TableState | None:
        return lake.table_state(self.source, self.table)

    def _inputs(self, lake: LakeMetadata, day: date) -> HistoryInputs:
        of_table = lake.table_state(self.source, self.of)
        return HistoryInputs(self.config, self.source, self.of, day, of_table, self._state(lake))
