"""What the stages of one table have in common: its own days, and those of tables derived from it.

They are made in one step: what the source's days hold for a table is read once for all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Generic, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.findings import Check
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.lake.published_day import PublishedDay, Report
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.stages.contract import MadeDay, Stage, Version, fingerprint
from cdc_assets.cdc.state.metadata import sample
from cdc_assets.cdc.state.renaming import at_in_lake
from cdc_assets.cdc.state.source_context import SourceContext, gather

ReportT = TypeVar("ReportT", bound=Report)


@dataclass(frozen=True)
class TableFigures(Generic[ReportT]):
    """Days of a table: its metadata, their reports and their rows."""

    state: TableState
    reports: Mapping[date, ReportT]
    frames: Mapping[date, DataFrame]


class OneTableStage(Stage[TableFigures[ReportT]]):
    """A stage whose days are tags of one table, each built on the day before.

    Args:
        config: cdc.yaml.
        source: the source.
        of: the table's name in the configuration.
        context: what the source's days hold for the table; read when a day is made if left out.
        first: the first day of the run.
    """

    name = "tables"
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
        self.of, self._context, self._first = of, context, first
        self.table_settings = self.settings.tables[of]
        self.table = self.made_table()
        self.checks = {self.table: self.own_checks()}
        self.start = config.start_of(source, of)

    def made_table(self) -> str:
        """The name of the table that it makes."""
        return self.of

    @abstractmethod
    def own_checks(self) -> Sequence[Check]:
        """The checks of that table."""

    @property
    def label(self) -> str:
        """The table that it makes."""
        return self.table

    # -- from metadata alone, without Spark

    @abstractmethod
    def day_inputs(self, lake: LakeMetadata, days: Sequence[date]) -> Sequence[PublishedDay]:
        """What each of some days is made of."""

    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """The snapshots and rules that a day is made of."""
        return self.day_inputs(lake, [day])[0].values

    def stale(self, lake: LakeMetadata, days: Sequence[date]) -> list[date]:
        """The days to make; all of them if a killed run left `main` behind the newest tag."""
        state = self._state(lake)
        tags = state.tags if state else {}
        if state is None or not tags or state.refs.get("main") != tags[max(tags)]:
            return list(days)
        return [inputs.day for inputs in self.day_inputs(lake, days) if not inputs.is_up_to_date]

    def is_complete(self, lake: LakeMetadata, day: date) -> bool:
        """Whether the day was made of what is there now, or has expired."""
        state = self._state(lake)
        if state is None:
            return False
        if state.expired is not None and day <= state.expired:
            return True
        return day in state.tags and self.day_inputs(lake, [day])[0].is_of_what_is_there

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
        """One day each, after days before them that are to be made again first."""
        if not days:
            return []
        earlier = self.day_inputs(lake, days[:1])[0].outdated
        return [*([earlier] if earlier else []), *([day] for day in days)]

    # -- making days

    @classmethod
    def prepared(
        cls, lake: Lake, stages: Sequence[Stage[Any]], days: Sequence[date]
    ) -> Sequence[Stage[Any]]:
        """The stages with what their source's days hold for their tables: two jobs for all."""
        own = [stage for stage in stages if isinstance(stage, OneTableStage)]
        if not own:
            return stages
        tables = list(dict.fromkeys(stage.of for stage in own))
        context = gather(lake, own[0].source, tables, days)
        return [type(s)(lake.config, s.source, s.of, context, days[0]) for s in own]

    def _is_earlier(self, days: Sequence[date]) -> bool:
        return self._first is not None and days[-1] < self._first

    def figures(
        self, lake: Lake, known: LakeMetadata, made: Mapping[date, MadeDay]
    ) -> TableFigures[ReportT]:
        """The reports of the days, and the table's metadata."""
        state = self._state(known)
        assert state is not None  # its days are made
        identifier = self._identifier(lake)
        rename = self.table_settings.rename
        frames = {day: at_in_lake(lake.at(identifier, state.tags[day]), rename) for day in made}
        return TableFigures(state, {day: found.details for day, found in made.items()}, frames)

    def values(
        self,
        lake: Lake,
        figures: TableFigures[ReportT],
        table: str,
        days: Sequence[date],
        seconds: float,
    ) -> dict[date, dict[str, Any]]:
        """The sample of the rows is one job a day."""
        return {day: self._values(lake, figures, day) for day in days}

    def _values(self, lake: Lake, figures: TableFigures[ReportT], day: date) -> dict[str, Any]:
        identifier, state = self._identifier(lake), figures.state
        schema, report = figures.frames[day].schema, figures.reports[day]
        values = self.day_values(identifier, schema, state, report)
        if not self.settings.samples:
            return values
        rows = sample(lake, identifier, state.tags[day], self.hidden_columns)
        return {"sample": rows, **values}

    @abstractmethod
    def day_values(
        self, identifier: str, schema: StructType, state: TableState, report: ReportT
    ) -> dict[str, Any]:
        """What is shown of a day beside a sample."""

    def key_columns(self, state: TableState) -> list[str]:
        """The key by its names in the lake."""
        return list(map(self.table_settings.lake_name, state.key_columns))

    @property
    def hidden_columns(self) -> Sequence[str]:
        """The columns of which no values are shown, by their names on all days."""
        settings = self.table_settings
        return [*settings.sent_names(settings.sensitive), *settings.in_lake.sensitive]

    def _identifier(self, lake: Lake) -> str:
        return lake.state(self.source, TableName.parse(self.table))

    def _state(self, lake: LakeMetadata) -> TableState | None:
        return lake.table_state(self.source, self.table)
