"""The stage `landing`: Kafka records, bytes as they came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake import schemas
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.landing.files import LandedDay
from cdc_assets.cdc.landing.kafka_plan import KafkaDay
from cdc_assets.cdc.landing.source import LANDING, stale_days
from cdc_assets.cdc.landing.sources import landing_source
from cdc_assets.cdc.stages.contract import NOT_MADE, MakeOptions, StageOfTables


class LandingStage(StageOfTables):
    """Files or offsets become rows of ``lake.<source>.landing``."""

    name = LANDING
    assets = tables = (LANDING,)

    def __init__(self, config: Config, source: str) -> None:
        super().__init__(config, source)
        self.landing = landing_source(config, source)

    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """The day's files as they are now, or offsets that are closed."""
        return self.landing.inputs([day])[day]

    def stale(self, lake: LakeMetadata, days: Sequence[date]) -> list[date]:
        """The days whose files have changed, or that landed before their end."""
        return stale_days(lake.day_commits(self.source, LANDING), self.landing.inputs(days))

    def is_complete(self, lake: LakeMetadata, day: date) -> bool:
        """False for a day that landed from Kafka before its end; files have no mark of an end."""
        commits = lake.day_commits(self.source, LANDING)
        return bool(commits.get(day, NOT_MADE).inputs.get("closed", True))

    def make(
        self, lake: Lake, days: Sequence[date], options: MakeOptions = MakeOptions()
    ) -> list[LandedDay] | list[KafkaDay]:
        """Land the stale ones of the days in one commit.

        Returns:
            What every day asked for was made of: files, or offsets.

        Raises:
            LandingError: the landing can't be read, or less is left of a day than landed; then no
                day is landed.
        """
        lake.create_stage(
            self.source, LANDING, schemas.LANDING, "Kafka records, bytes as they came, by landing day"
        )
        landed = lake.day_commits(self.source, LANDING)
        return self.landing.land(lake, landed, days, options.force, options.allow_loss)
