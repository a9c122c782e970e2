"""The interface of a source's landing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, ClassVar, Generic, TypeVar

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayCommit, DayCommits

LOST = "lost"  # input of a landed day: records that its files lacked, given up by `--allow-loss`
TABLE = "table"  # input of a landed day: the snapshot of each table that it was read from
LAYOUT = "layout"  # input of a landed day: how its files are named and read
DERIVED_OFFSETS = "derived_offsets"  # input: offsets are counted from where files begin
LANDING = "landing"
_NOT_LANDED = DayCommit(0)

LandedT = TypeVar("LandedT")  # the files or offsets of a landed day


class LandingSource(ABC, Generic[LandedT]):
    """The landing of a source: files, Kafka or a table.

    Args:
        config: cdc.yaml.
        source: the source's name.
    """

    kind: ClassVar[str]  # shown by Dagster: `file`, `kafka`, `iceberg`

    def __init__(self, config: Config, source: str) -> None:
        self.config, self.source = config, source
        self.settings = config.source(source)

    @abstractmethod
    def inputs(self, days: Sequence[date]) -> dict[date, Mapping[str, Any]]:
        """The inputs that a commit of these days would record now, found without Spark.

        Raises:
            OSError: a folder can't be listed.
            LandingError: the folder has entries, but none of a day.
        """

    def stale(self, landed: Mapping[date, DayCommit], days: Sequence[date]) -> list[date]:
        """The days that have not landed, or landed from something else, found without Spark.

        Raises:
            As :meth:`inputs`.
        """
        return stale_days(landed, self.inputs(days))

    @abstractmethod
    def land(
        self,
        lake: Lake,
        landed: DayCommits,
        days: Sequence[date],
        force: bool = False,
        allow_loss: bool = False,
    ) -> list[LandedT]:
        """Land the days that have not landed in their present state, in one commit.

        Args:
            lake: the lake; it has the table `landing`.
            landed: the days of `landing`, read before everything else.
            days: the days, landed together or not at all.
            force: also land days again that have landed.
            allow_loss: continue if the source has lost records of a day.

        Returns:
            The files or offsets of each day.

        Raises:
            LandingError: the source can't be read, or has lost records of a landed day.
        """


class WatchedLanding(LandingSource[LandedT]):
    """A landing that a sensor watches: landed days may change after their end."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is, for messages."""

    @abstractmethod
    def changed_days(self, landed: Mapping[date, DayCommit], before_ms: float) -> dict[date, str]:
        """Days to land for what is there now, with a text that differs where that does.

        Args:
            landed: the days of `landing`.
            before_ms: what is newer may still be written, and waits.

        Raises:
            OSError: a folder can't be listed.
            LandingError: there is nothing to land from.
        """


def stale_days(
    landed: Mapping[date, DayCommit], inputs: Mapping[date, Mapping[str, Any]]
) -> list[date]:
    """The days that have not landed, or landed from something else.

    A commit may record more than the inputs, such as records given up with `--allow-loss`.
    """
    return [
        day
        for day, expected in inputs.items()
        if not expected.items() <= landed.get(day, _NOT_LANDED).inputs.items()
    ]
