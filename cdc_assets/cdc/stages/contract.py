"""The contract of a stage: its days are made from inputs, and recorded with them.

Metadata alone says what a day is made from and whether a run has to make it: runs read it through
Spark, while schedules, sensors, `doctor` and steps whose days are recorded already use PyIceberg,
without Spark. Only stages compare snapshots.
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
from cdc_assets.cdc.lake.commits import DayCommit, DayFiles
from cdc_assets.cdc.lake.metadata import LakeMetadata, ReadOnce
from cdc_assets.cdc.metadata import stage_day
from cdc_assets.cdc.stages.added_checks import AddedCheck, added_checks

NOT_MADE = DayCommit(0)
# Increased when the record of a day changes: days are recorded again.
_RECORD_VERSION = 1


@dataclass(frozen=True)
class MakeOptions:
    """Options of a run beside its days."""

    force: bool = False  # make a day again even from the same inputs
    allow_loss: bool = False  # land what is left where records are gone for good


AS_USUAL = MakeOptions()


@dataclass(frozen=True)
class MadeDay:
    """The result of making a day."""

    is_new: bool  # False where it was left, as made from the same inputs
    details: Any = None  # the stage's own: files or offsets, or a report


@dataclass(frozen=True)
class Version:
    """The version that a record of a day is made from; the same version gives the same figures."""

    snapshot: int  # the commit that made the day
    fingerprint: str  # of the settings; of the day before too where checks compare both


def fingerprint(shown: Any) -> str:
    """A hash of what a record is made from, such as limits of checks and `samples`."""
    text = json.dumps([_RECORD_VERSION, shown], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


FiguresT = TypeVar("FiguresT")  # the figures of the days of a run


class Stage(ABC, Generic[FiguresT]):
    """A stage of a source.

    Args:
        config: cdc.yaml.
        source: the source.
    """

    name: ClassVar[str]
    is_of_one_table: ClassVar[bool] = False  # a step makes many of them, in threads
    checks: Mapping[str, Sequence[Check]]  # by table that Dagster shows, in their order

    def __init__(self, config: Config, source: str) -> None:
        self.config, self.source = config, source
        self.settings = config.source(source)

    @property
    def label(self) -> str:
        """Its name in the output of a run."""
        return self.name

    @property
    def all_checks(self) -> dict[str, list[Check]]:
        """The checks of each table, and those added from outside."""
        return {
            table: [*own, *(added.check for added in self._added(table))]
            for table, own in self.checks.items()
        }

    def _added(self, table: str) -> Sequence[AddedCheck]:
        return added_checks(table)

    # -- from metadata alone, without Spark

    @abstractmethod
    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """The inputs of a day: snapshots, and the rules that decide the result.

        Raises:
            MissingDayError: an input of the day is missing.
        """

    @abstractmethod
    def stale(self, lake: LakeMetadata, days: Sequence[date]) -> list[date]:
        """The days that a run makes: not made yet, or made from other inputs than the current ones.

        Raises:
            MissingDayError: an input of a day is missing.
            LandingError, OSError: the landing can't be listed.
        """

    @abstractmethod
    def is_complete(self, lake: LakeMetadata, day: date) -> bool:
        """Whether a day was made from the current inputs and after its end, whatever the rules.

        For schedules: changed rules are no reason to request a day.
        """

    @abstractmethod
    def versions(self, lake: LakeMetadata, table: str, days: Sequence[date]) -> dict[date, Version]:
        """The version of each of these days, which are all made."""

    def own_days(self, days: Iterable[date]) -> list[date]:
        """The days that the stage has, in order."""
        return sorted(days)

    def batches(self, lake: LakeMetadata, days: Sequence[date]) -> list[list[date]]:
        """Batches of days that are made together, in order."""
        return [list(days)]

    # -- making days, with Spark

    @classmethod
    def prepared(
        cls, lake: Lake, stages: Sequence[Stage[Any]], days: Sequence[date]
    ) -> Sequence[Stage[Any]]:
        """The stages of a step, with what is read once for all of them."""
        return stages

    @abstractmethod
    def rows_to_read(self, lake: Lake, known: LakeMetadata, days: Sequence[date]) -> int | None:
        """At most how many rows making a batch reads; None where it is unknown."""

    @abstractmethod
    def make(
        self,
        lake: Lake,
        days: Sequence[date],
        options: MakeOptions = AS_USUAL,
        known: LakeMetadata | None = None,
    ) -> dict[date, MadeDay]:
        """Make the stale days of a batch.

        Args:
            lake: the lake to write to.
            days: the batch.
            options: of the run.
            known: the lake's metadata, where the caller has read it.
        """

    def examining(self, lake: Lake, known: LakeMetadata, days: Sequence[date]) -> Lake:
        """The lake with the session that suits the figures, findings and values of some days."""
        return lake

    @abstractmethod
    def figures(self, lake: Lake, known: LakeMetadata, made: Mapping[date, MadeDay]) -> FiguresT:
        """The figures of some days, read from the lake."""

    @abstractmethod
    def summary(
        self, known: LakeMetadata, figures: FiguresT, made: Mapping[date, MadeDay]
    ) -> list[str]:
        """The result of a batch, as texts for the terminal."""

    @abstractmethod
    def findings(self, lake: Lake, figures: FiguresT, table: str) -> dict[date, list[Finding]]:
        """The findings of a table's checks, by day."""

    def all_findings(
        self, lake: Lake, figures: FiguresT, table: str, days: Sequence[date]
    ) -> dict[date, list[Finding]]:
        """The findings of a table on the days of the figures, and those of added checks."""
        found = self.findings(lake, figures, table)
        for added in self._added(table) if days else ():
            for day, finding in added.find(lake, self.source, table, days).items():
                found.setdefault(day, []).append(finding)
        return found

    @abstractmethod
    def day_line(self, figures: FiguresT, table: str, day: date) -> str:
        """A day of a table in one line."""

    @abstractmethod
    def values(
        self, lake: Lake, figures: FiguresT, table: str, days: Sequence[date], seconds: float
    ) -> dict[date, dict[str, Any]]:
        """What Dagster shows of a table, by day; `seconds` is about how long a day took."""


class StageOfTables(Stage[FiguresT]):
    """A stage that fills day-partitioned tables of the source, each commit with its inputs."""

    tables: ClassVar[Sequence[str]]  # in the order of their commits
    schemas: ClassVar[Mapping[str, StructType]]  # of the tables that Dagster shows
    read: ClassVar[str]  # the table that a day is made from
    examined: ClassVar[str]  # the table that the figures and findings of a day are read from

    def stale(self, lake: LakeMetadata, days: Sequence[date]) -> list[date]:
        made = [lake.day_commits(self.source, table) for table in self.tables]
        inputs = {day: self.inputs(lake, day) for day in days}
        return [
            day
            for day, expected in inputs.items()
            if any(commits.get(day, NOT_MADE).inputs != expected for commits in made)
        ]

    def versions(self, lake: LakeMetadata, table: str, days: Sequence[date]) -> dict[date, Version]:
        """Checks compare a day with the one before it."""
        commits = lake.day_commits(self.source, table)
        settings = fingerprint(self.settings.model_dump(mode="json", exclude={"landing"}))
        before = {day: commits.get(day - timedelta(days=1), NOT_MADE).snapshot_id for day in days}
        return {
            day: Version(
                commits[day].snapshot_id,
                # The end of a day makes no commit where files land.
                fingerprint([settings, before[day], self.config.is_open(day)]),
            )
            for day in days
        }

    def rows_to_read(self, lake: Lake, known: LakeMetadata, days: Sequence[date]) -> int | None:
        return known.day_commits(self.source, self.read).records(days)

    def summary(
        self, known: LakeMetadata, figures: FiguresT, made: Mapping[date, MadeDay]
    ) -> list[str]:
        new = sum(day.is_new for day in made.values())
        if not new:
            return ["up to date"]
        left = f" ({len(made) - new} of {len(made)} days as before)" if new < len(made) else ""
        return [self.counted(figures) + left]

    @abstractmethod
    def counted(self, figures: FiguresT) -> str:
        """The figures of all days in a few words, for :meth:`summary`."""

    def values(
        self, lake: Lake, figures: FiguresT, table: str, days: Sequence[date], seconds: float
    ) -> dict[date, dict[str, Any]]:
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
        """The stage's own part of :meth:`values`."""

    def examining(self, lake: Lake, known: LakeMetadata, days: Sequence[date]) -> Lake:
        return lake.for_rows(known.day_commits(self.source, self.examined).records(days))

    def make(
        self,
        lake: Lake,
        days: Sequence[date],
        options: MakeOptions = AS_USUAL,
        known: LakeMetadata | None = None,
    ) -> dict[date, MadeDay]:
        """Make the stale days together.

        Raises:
            MissingDayError: an input of a day is missing.
        """
        self.create_tables(lake)
        known = known or ReadOnce(lake)
        to_make = list(days) if options.force else self.stale(known, days)
        made = {day: MadeDay(day in to_make, self.details(known, day)) for day in days}
        if to_make:
            self.write(lake, known, {day: self.inputs(known, day) for day in to_make})
        return made

    @abstractmethod
    def create_tables(self, lake: Lake) -> None:
        """Create the tables where they are missing."""

    def details(self, known: LakeMetadata, day: date) -> Any:
        """What :meth:`make` says of a day beside whether it is new."""
        return None

    def write(
        self, lake: Lake, known: LakeMetadata, inputs: Mapping[date, Mapping[str, Any]]
    ) -> None:
        """Write the days of these inputs; a stage with a :meth:`make` of its own has none."""
        raise NotImplementedError
