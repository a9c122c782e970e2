"""The stage `tables`: each table as it stood at the end of a day, published as a tag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake.commits import DayCommits, TableState
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.stages.contract import Stage, Version, fingerprint
from cdc_assets.cdc.state.day_inputs import DayInputs


class TableStage(Stage):
    """One table of a source; its days are built one on the other.

    Args:
        config: cdc.yaml.
        source: the source's name.
        table: the table's name in the configuration.
    """

    name = "tables"

    def __init__(self, config: Config, source: str, table: str) -> None:
        super().__init__(config, source)
        self.table = table
        self.assets = (table,)
        self.start = config.start_of(source, table)

    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """The day before, the changes and the rules."""
        return self._day_inputs(lake, self._state(lake), [day])[0].values

    def stale(self, lake: LakeMetadata, days: Sequence[date]) -> list[date]:
        """The days to make; all of them where a killed run left `main` behind the newest tag."""
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

    def versions(self, lake: LakeMetadata, asset: str, days: Sequence[date]) -> dict[date, Version]:
        """See :meth:`Stage.versions`; a day made on another day before is another snapshot."""
        shown = self.settings.model_dump(mode="json", exclude={"landing", "tables"})
        table = self.settings.tables[self.table].model_dump(mode="json")
        state = self._state(lake)
        # Compaction moves the tag and keeps the rows.
        return {
            day: Version(state.made_as(day), fingerprint([shown, table])) for day in days if state
        }

    def own_days(self, days: Iterable[date]) -> list[date]:
        """Those from the table's first day on."""
        return sorted(day for day in days if day >= self.start)

    def _state(self, lake: LakeMetadata) -> TableState | None:
        return lake.table_state(self.source, self.table)

    def _day_inputs(
        self, lake: LakeMetadata, state: TableState | None, days: Sequence[date]
    ) -> list[DayInputs]:
        commits = _Commits(lake, self.source)
        return [
            DayInputs(self.config, self.source, self.table, day, commits, state) for day in days
        ]


class _Commits(dict[str, DayCommits]):
    """The days of the source's stages, each read when it is asked for."""

    def __init__(self, lake: LakeMetadata, source: str) -> None:
        super().__init__()
        self._lake, self._source = lake, source

    def __missing__(self, stage: str) -> DayCommits:
        self[stage] = self._lake.day_commits(self._source, stage)
        return self[stage]
