"""What a stage is: days that are made of inputs, and recorded with them.

A stage is asked two kinds of questions. What its days are made of, and which of them a run has to
make, it answers from metadata alone: runs ask Spark's lake, while schedules, sensors, `doctor` and
steps whose days are recorded as they are ask PyIceberg's, without Spark. Nobody else compares
snapshots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake.commits import DayCommit, DayCommits, TableState
from cdc_assets.cdc.lake.metadata import LakeMetadata

NOT_MADE = DayCommit(0)


@dataclass(frozen=True)
class MakeOptions:
    """What a run was asked for beside its days."""

    force: bool = False  # make again what is made of the same
    allow_loss: bool = False  # land what is left where records are gone for good


class Stage(ABC):
    """A stage of a source.

    Args:
        config: cdc.yaml.
        source: the source's name.
    """

    name: ClassVar[str]
    assets: Sequence[str]  # the tables that Dagster shows

    def __init__(self, config: Config, source: str) -> None:
        self.config, self.source = config, source
        self.settings = config.source(source)

    @abstractmethod
    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """What a day is made of: snapshots, and the rules that decide the result.

        Raises:
            MissingDayError: something that the day is made of is not there.
        """

    @abstractmethod
    def stale(self, lake: LakeMetadata, days: Sequence[date]) -> list[date]:
        """Those of the days that a run makes: not made yet, or of other inputs than those now.

        Raises:
            MissingDayError: something that a day is made of is not there.
            LandingError, OSError: the landing can't be listed.
        """

    @abstractmethod
    def is_complete(self, lake: LakeMetadata, day: date) -> bool:
        """Whether a day was made of what is there now and after its end, whatever the rules.

        The schedule asks: rules that changed are no reason to request a day.
        """

    @abstractmethod
    def snapshots(self, lake: LakeMetadata, asset: str, days: Sequence[date]) -> dict[date, int]:
        """The commit that made each of the days that an asset has."""


class StageOfTables(Stage):
    """A stage that fills day-partitioned tables of the source, each commit with its inputs."""

    tables: ClassVar[Sequence[str]]  # in the order of their commits

    def stale(self, lake: LakeMetadata, days: Sequence[date]) -> list[date]:
        """See :meth:`Stage.stale`."""
        made = [lake.day_commits(self.source, table) for table in self.tables]
        inputs = {day: self.inputs(lake, day) for day in days}
        return [
            day
            for day, expected in inputs.items()
            if any(commits.get(day, NOT_MADE).inputs != expected for commits in made)
        ]

    def snapshots(self, lake: LakeMetadata, asset: str, days: Sequence[date]) -> dict[date, int]:
        """See :meth:`Stage.snapshots`."""
        commits = lake.day_commits(self.source, asset)
        return {day: commits[day].snapshot_id for day in days if day in commits}


class ReadOnce:
    """:class:`LakeMetadata` of a moment: each table is read when it is asked for first."""

    def __init__(self, lake: LakeMetadata) -> None:
        self._lake = lake
        self._commits: dict[tuple[str, str], DayCommits] = {}
        self._states: dict[tuple[str, str], TableState | None] = {}

    def day_commits(self, source: str, stage: str) -> DayCommits:
        """See :meth:`LakeMetadata.day_commits`."""
        if (source, stage) not in self._commits:
            self._commits[source, stage] = self._lake.day_commits(source, stage)
        return self._commits[source, stage]

    def table_state(self, source: str, table: str) -> TableState | None:
        """See :meth:`LakeMetadata.table_state`."""
        if (source, table) not in self._states:
            self._states[source, table] = self._lake.table_state(source, table)
        return self._states[source, table]
