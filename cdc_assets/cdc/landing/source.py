"""What a landing is, whatever its records come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, ClassVar, Generic, TypeVar

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayCommit, DayCommits

LOST = "lost"  # of a landed day: what its files no longer had, and `--allow-loss` gave up
LANDING = "landing"
_NOT_LANDED = DayCommit(0)

LandedT = TypeVar("LandedT")  # what a landed day was made of: files, or offsets


class LandingSource(ABC, Generic[LandedT]):
    """Where the records of a source come from.

    Args:
        config: cdc.yaml.
        source: the source's name.
    """

    kind: ClassVar[str]  # as Dagster shows it: `file`, `kafka`

    def __init__(self, config: Config, source: str) -> None:
        self.config, self.source = config, source
        self.settings = config.source(source)

    @abstractmethod
    def inputs(self, days: Sequence[date]) -> dict[date, Mapping[str, Any]]:
        """What a commit of these days would record now, found without Spark.

        Raises:
            OSError: a folder can't be listed.
            LandingError: the folder has entries, but none of a day.
        """

    @abstractmethod
    def land(
        self,
        lake: Lake,
        landed: DayCommits,
        days: Sequence[date],
        force: bool = False,
        allow_loss: bool = False,
    ) -> list[LandedT]:
        """Land those of the days that are not landed as they are now, in one commit.

        Args:
            lake: where to; it has the table `landing`.
            landed: the days of `landing`, read before anything else was looked at.
            days: the days, landed together or not at all.
            force: land days again that are landed.
            allow_loss: go on where the source no longer has what a day should hold.

        Returns:
            What every day asked for was made of.

        Raises:
            LandingError: the source can't be read, or less is left of a day than landed.
        """


def stale_days(
    landed: Mapping[date, DayCommit], inputs: Mapping[date, Mapping[str, Any]]
) -> list[date]:
    """The days that have not landed, or landed from something else.

    A commit may record more than the inputs, such as what was given up with `--allow-loss`.
    """
    return [
        day
        for day, expected in inputs.items()
        if not expected.items() <= landed.get(day, _NOT_LANDED).inputs.items()
    ]
