"""The stage `tables`: the state of each table at the end of a day, published as a tag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import DataFrame

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.findings import Finding, fault_finding
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayCommits, TableState
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.stages.added_checks import TABLES, AddedCheck, added_checks
from cdc_assets.cdc.stages.contract import (
    AS_USUAL,
    MadeDay,
    MakeOptions,
    Stage,
    Version,
    fingerprint,
)
from cdc_assets.cdc.state.contracts import broken_of_table
from cdc_assets.cdc.state.day_inputs import DayInputs
from cdc_assets.cdc.state.findings import table_checks, table_findings
from cdc_assets.cdc.state.metadata import sample, summary_line, table_day
from cdc_assets.cdc.state.read_estimate import rows_to_read
from cdc_assets.cdc.state.source_context import SourceContext, gather
from cdc_assets.cdc.state.stage import DayReport, make_earlier_again, make_table_day


@dataclass(frozen=True)
class TableFigures:
    """Days of a table: its metadata, their reports and their rows."""

    state: TableState
    reports: Mapping[date, DayReport]
    frames: Mapping[date, DataFrame]


class TableStage(Stage[TableFigures]):
    """One table of a source; each day is built on the day before.

    Args:
        config: cdc.yaml.
        source: the source.
        table: the table's name in the configuration.
        context: what the source's days hold for the table; read when a day is made if left out.
        first: the first day of the run.
    """

    name = "tables"
    is_of_one_table = True

    def __init__(
        self,
        config: Config,
        source: str,
        table: str,
        context: SourceContext | None = None,
        first: date | None = None,
    ) -> None:
        super().__init__(config, source)
        self.table, self._context, self._first = table, context, first
        self.table_settings = self.settings.tables[table]
        has_key = self.table_settings.key not in ("none", "row")
        self.checks = {table: table_checks(has_key)}
        self.start = config.start_of(source, table)

    @property
    def label(self) -> str:
        """The table."""
        return self.table

    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """The day before, the changes and the rules."""
        return self._day_inputs(lake, self._state(lake), [day])[0].values

    def stale(self, lake: LakeMetadata, days: Sequence[date]) -> list[date]:
        """The days to make; all of them if a killed run left `main` behind the newest tag."""
        state = self._state(lake)
        tags = state.tags if state else {}
        if state is None or not tags or state.refs.get("main") != tags[max(tags)]:
            return list(days)
        return [d.day for d in self._day_inputs(lake, state, days) if not d.is_up_to_date]

    def is_complete(self, lake: LakeMetadata, day: date) -> bool:
        """Whether the day was made of what is there now, or has expired."""
        state = self._state(lake)
        if state is None:
            return False
        if state.expired is not None and day <= state.expired:
            return True
        return day in state.tags and self._day_inputs(lake, state, [day])[0].is_of_what_is_there

    def versions(self, lake: LakeMetadata, table: str, days: Sequence[date]) -> dict[date, Version]:
        """A day that is made from another previous day has another snapshot."""
        shown = fingerprint(self.settings.model_dump(mode="json", exclude={"landing", "tables"}))
        settings = fingerprint([shown, self.table_settings.model_dump(mode="json")])
        state = self._state(lake)
        assert state is not None  # its days are made
        return {day: Version(state.made_as(day), settings) for day in days}

    def _added(self, table: str) -> Sequence[AddedCheck]:
        return added_checks(TABLES)

    def own_days(self, days: Iterable[date]) -> list[date]:
        """The days from the table's first day on."""
        return sorted(day for day in days if day >= self.start)

    def batches(self, lake: LakeMetadata, days: Sequence[date]) -> list[list[date]]:
        """One day each, after days to make again without a former server's later events (O11)."""
        if not days:
            return []
        earlier = self._day_inputs(lake, self._state(lake), days[:1])[0].outdated
        return [*([earlier] if earlier else []), *([day] for day in days)]

    # -- making days

    @classmethod
    def prepared(
        cls, lake: Lake, stages: Sequence[Stage[Any]], days: Sequence[date]
    ) -> Sequence[Stage[Any]]:
        """The tables with what their source's days hold for them: two jobs."""
        tables = [stage.table for stage in stages if isinstance(stage, TableStage)]
        if not tables:
            return stages
        source = stages[0].source
        context = gather(lake, source, tables, days)
        return [TableStage(lake.config, source, table, context, days[0]) for table in tables]

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

    def _is_earlier(self, days: Sequence[date]) -> bool:
        return self._first is not None and days[-1] < self._first

    def figures(
        self, lake: Lake, known: LakeMetadata, made: Mapping[date, MadeDay]
    ) -> TableFigures:
        """The reports of the days, and the table's metadata."""
        state = self._state(known)
        assert state is not None  # its days are made
        identifier = lake.state(self.source, TableName.parse(self.table))
        frames = {day: lake.at(identifier, state.tags[day]) for day in made}
        return TableFigures(state, {day: found.details for day, found in made.items()}, frames)

    def summary(
        self, known: LakeMetadata, figures: TableFigures, made: Mapping[date, MadeDay]
    ) -> list[str]:
        return [_summary(day.details) for day in made.values()]

    def findings(self, lake: Lake, figures: TableFigures, table: str) -> dict[date, list[Finding]]:
        return {day: self._day_findings(figures, day) for day in figures.reports}

    def _day_findings(self, figures: TableFigures, day: date) -> list[Finding]:
        settings, state = self.table_settings, figures.state
        # Columns by their names in the lake.
        source_names = {to: before for before, to in settings.rename.items()}
        found = table_findings(
            state,
            day,
            figures.reports[day],
            lambda column: self.settings.shows_column(self.table, source_names.get(column, column)),
        )
        known = {check.name for check in self.checks[self.table]}
        assert self._context is not None  # the day was made with it
        columns = self._context.columns_of(self.table, [day])
        faults = broken_of_table(figures.frames[day], settings, columns, state.key_columns)
        return [
            *(finding for finding in found if finding.name in known),
            fault_finding("contract", faults),
        ]

    def day_line(self, figures: TableFigures, table: str, day: date) -> str:
        return summary_line(figures.reports[day])

    def values(
        self, lake: Lake, figures: TableFigures, table: str, days: Sequence[date], seconds: float
    ) -> dict[date, dict[str, Any]]:
        """The sample of the rows is one job a day."""
        return {day: self._day_values(lake, figures, day) for day in days}

    def _day_values(self, lake: Lake, figures: TableFigures, day: date) -> dict[str, Any]:
        identifier = lake.state(self.source, TableName.parse(self.table))
        schema, state = figures.frames[day].schema, figures.state
        values = table_day(self.source, identifier, schema, state, figures.reports[day])
        if not self.settings.samples:
            return values
        rows = sample(lake, identifier, state.tags[day], self.table_settings.sensitive)
        return {"sample": rows, **values}

    def _state(self, lake: LakeMetadata) -> TableState | None:
        return lake.table_state(self.source, self.table)

    def _day_inputs(
        self, lake: LakeMetadata, state: TableState | None, days: Sequence[date]
    ) -> list[DayInputs]:
        commits = _Commits(lake, self.source)
        return [
            DayInputs(self.config, self.source, self.table, day, commits, state) for day in days
        ]


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
