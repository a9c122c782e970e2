"""What a stage is: days that are made of inputs, and recorded with them.

A stage is asked two kinds of questions. What its days are made of, and which of them a run has to
make, it answers from metadata alone: runs ask Spark's lake, while schedules, sensors, `doctor` and
steps whose days are recorded as they are ask PyIceberg's, without Spark. Nobody else compares
snapshots.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, ClassVar, Generic, TypeVar

from pyspark.sql.types import StructType

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.findings import Check, Finding
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayCommit, DayCommits, DayFiles, TableState
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.metadata import stage_day

NOT_MADE = DayCommit(0)
# Raised when what is recorded of a day changes, so that days are recorded anew.
_RECORD_VERSION = 1


@dataclass(frozen=True)
class MakeOptions:
    """What a run was asked for beside its days."""

    force: bool = False  # make again what is made of the same
    allow_loss: bool = False  # land what is left where records are gone for good


AS_USUAL = MakeOptions()


@dataclass(frozen=True)
class MadeDay:
    """What came of a day."""

    is_new: bool  # False where it was made of the same before, and left
    details: Any = None  # of the stage: its files or offsets, or its report


@dataclass(frozen=True)
class Version:
    """What a record of a day is made from.

    A day that was recorded from the same version is recorded with the same figures again.
    """

    snapshot: int  # the commit that made the day
    fingerprint: str  # of the settings, and where checks compare the two of the day before


def fingerprint(shown: Any) -> str:
    """Changes with what a record is made from, such as limits of checks and `samples`."""
    text = json.dumps([_RECORD_VERSION, shown], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


FiguresT = TypeVar("FiguresT")  # what is counted of the days that a run looks at


class Stage(ABC, Generic[FiguresT]):
    """A stage of a source.

    Args:
        config: cdc.yaml.
        source: the source's name.
    """

    name: ClassVar[str]
    checks: Mapping[str, Sequence[Check]]  # for each table that Dagster shows, in their order

    def __init__(self, config: Config, source: str) -> None:
        self.config, self.source = config, source
        self.settings = config.source(source)

    @property
    def label(self) -> str:
        """What a person calls it in a run of its source."""
        return self.name

    # -- asked of metadata alone, without Spark

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
    def versions(self, lake: LakeMetadata, table: str, days: Sequence[date]) -> dict[date, Version]:
        """What a record of each of these days is made from; all of them are made."""

    def own_days(self, days: Iterable[date]) -> list[date]:
        """Those of the days that the stage has, in order."""
        return sorted(days)

    def batches(self, lake: LakeMetadata, days: Sequence[date]) -> list[list[date]]:
        """The days that are made together, in order."""
        return [list(days)]

    # -- making days, with Spark

    @classmethod
    def prepared(
        cls, lake: Lake, stages: Sequence[Stage[Any]], days: Sequence[date]
    ) -> Sequence[Stage[Any]]:
        """The stages of a step with what is read once for all of them."""
        return stages

    @abstractmethod
    def rows_to_read(self, lake: Lake, known: LakeMetadata, days: Sequence[date]) -> int | None:
        """At most how many rows the making of a batch reads; None where nobody knows."""

    @abstractmethod
    def make(
        self,
        lake: Lake,
        days: Sequence[date],
        options: MakeOptions = AS_USUAL,
        known: LakeMetadata | None = None,
    ) -> dict[date, MadeDay]:
        """Make the stale ones of a batch of days.

        Args:
            lake: where to.
            days: the batch.
            options: what else the run was asked for.
            known: the lake's metadata, where the caller has read it.
        """

    @abstractmethod
    def figures(self, lake: Lake, known: LakeMetadata, made: Mapping[date, MadeDay]) -> FiguresT:
        """What is counted of some days, read from the lake."""

    @abstractmethod
    def summary(
        self, known: LakeMetadata, figures: FiguresT, made: Mapping[date, MadeDay]
    ) -> list[str]:
        """What a batch came to, for the terminal.

        Args:
            known: the lake's metadata.
            figures: of the days that were looked at.
            made: the batch.
        """

    @abstractmethod
    def findings(self, lake: Lake, figures: FiguresT, table: str) -> dict[date, list[Finding]]:
        """What the checks of a table find on the days of the figures."""

    @abstractmethod
    def day_line(self, figures: FiguresT, table: str, day: date) -> str:
        """What a day of a table came to, in a line."""

    @abstractmethod
    def values(
        self, lake: Lake, figures: FiguresT, table: str, days: Sequence[date], seconds: float
    ) -> dict[date, dict[str, Any]]:
        """What Dagster shows of some of the days of the figures.

        Args:
            lake: where they are.
            figures: what was counted.
            table: one of the stage's.
            days: some of the days of the figures.
            seconds: how long a day took, about.
        """


class StageOfTables(Stage[FiguresT]):
    """A stage that fills day-partitioned tables of the source, each commit with its inputs."""

    tables: ClassVar[Sequence[str]]  # in the order of their commits
    schemas: ClassVar[Mapping[str, StructType]]  # of the tables that Dagster shows
    read: ClassVar[str]  # the table whose rows making a day reads

    def stale(self, lake: LakeMetadata, days: Sequence[date]) -> list[date]:
        """See :meth:`Stage.stale`."""
        made = [lake.day_commits(self.source, table) for table in self.tables]
        inputs = {day: self.inputs(lake, day) for day in days}
        return [
            day
            for day, expected in inputs.items()
            if any(commits.get(day, NOT_MADE).inputs != expected for commits in made)
        ]

    def versions(self, lake: LakeMetadata, table: str, days: Sequence[date]) -> dict[date, Version]:
        """See :meth:`Stage.versions`; checks compare a day with the one before it."""
        commits = lake.day_commits(self.source, table)
        settings = fingerprint(self.settings.model_dump(mode="json", exclude={"landing"}))
        before = {day: commits.get(day - timedelta(days=1), NOT_MADE).snapshot_id for day in days}
        return {
            day: Version(
                commits[day].snapshot_id,
                # A day of files ends without a commit.
                fingerprint([settings, before[day], self.config.is_open(day)]),
            )
            for day in days
        }

    def rows_to_read(self, lake: Lake, known: LakeMetadata, days: Sequence[date]) -> int | None:
        """See :meth:`Stage.rows_to_read`."""
        return known.day_commits(self.source, self.read).records(days)

    def summary(
        self, known: LakeMetadata, figures: FiguresT, made: Mapping[date, MadeDay]
    ) -> list[str]:
        """See :meth:`Stage.summary`."""
        new = sum(day.is_new for day in made.values())
        if not new:
            return ["up to date"]
        left = f" ({len(made) - new} of {len(made)} days as before)" if new < len(made) else ""
        return [self.counted(figures) + left]

    @abstractmethod
    def counted(self, figures: FiguresT) -> str:
        """The figures of all days in a few words."""

    def values(
        self, lake: Lake, figures: FiguresT, table: str, days: Sequence[date], seconds: float
    ) -> dict[date, dict[str, Any]]:
        """See :meth:`Stage.values`."""
        if not days:
            return {}
        identifier = lake.stage(self.source, table)
        state = lake.read_state(identifier)
        location = state.location if state else ""
        files = lake.day_files(identifier, days)
        shown = self.day_values(lake, figures, table, days)
        return {
            day: {
                **shown[day],
                **stage_day(identifier, location, day, files.get(day, DayFiles()), seconds),
            }
            for day in days
        }

    @abstractmethod
    def day_values(
        self, lake: Lake, figures: FiguresT, table: str, days: Sequence[date]
    ) -> dict[date, dict[str, Any]]:
        """What the stage itself shows of days."""

    def sized(self, lake: Lake, known: LakeMetadata, table: str, days: Sequence[date]) -> Lake:
        """The lake in the session that suits what these days of a table hold."""
        return lake.for_rows(known.day_commits(self.source, table).records(days))


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
