"""The stage `landing`: Kafka records, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, ClassVar

from pyspark.sql.types import StructType

from cdc_assets.cdc.changes.record_times import record_times
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.findings import Check, Finding
from cdc_assets.cdc.lake import schemas
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.metadata import LakeMetadata, ReadOnce
from cdc_assets.cdc.landing.figures import LandedFigures, count_landed
from cdc_assets.cdc.landing.files import LandedDay
from cdc_assets.cdc.landing.findings import CHECKS, landing_findings
from cdc_assets.cdc.landing.kafka_plan import KafkaDay
from cdc_assets.cdc.landing.metadata import landing_day
from cdc_assets.cdc.landing.source import LANDING
from cdc_assets.cdc.landing.sources import landing_source
from cdc_assets.cdc.stages.contract import (
    AS_USUAL,
    NOT_MADE,
    MadeDay,
    MakeOptions,
    StageOfTables,
)


@dataclass(frozen=True)
class LandingFigures:
    """The files or offsets that landed on some days, and their figures."""

    landed: Mapping[date, LandedDay | KafkaDay]
    counted: LandedFigures

    def records(self, day: date) -> int:
        """How many records landed on one of the days."""
        return self.counted.records.get(day, 0)


class LandingStage(StageOfTables[LandingFigures]):
    """Rows of ``lake.<source>.landing``, from files or offsets."""

    name = LANDING
    tables = (LANDING,)
    checks: Mapping[str, Sequence[Check]] = {LANDING: CHECKS}
    schemas: ClassVar[Mapping[str, StructType]] = {LANDING: schemas.LANDING}
    read = examined = LANDING

    def __init__(self, config: Config, source: str) -> None:
        super().__init__(config, source)
        times = partial(record_times, source=config.source(source))
        self.landing = landing_source(config, source, times)

    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """The day's files as they are now, or offsets that are closed."""
        return self.landing.inputs([day])[day]

    def stale(self, lake: LakeMetadata, days: Sequence[date]) -> list[date]:
        """The days whose files have changed, that landed before their end, or got late records."""
        return self.landing.stale(lake.day_commits(self.source, LANDING), days)

    def is_complete(self, lake: LakeMetadata, day: date) -> bool:
        """False for a day that landed from Kafka before its end; files have no mark of an end."""
        commits = lake.day_commits(self.source, LANDING)
        return bool(commits.get(day, NOT_MADE).inputs.get("closed", True))

    def rows_to_read(self, lake: Lake, known: LakeMetadata, days: Sequence[date]) -> int | None:
        """Unknown; the landing itself says how many bytes or offsets it reads."""
        return None

    def make(
        self,
        lake: Lake,
        days: Sequence[date],
        options: MakeOptions = AS_USUAL,
        known: LakeMetadata | None = None,
    ) -> dict[date, MadeDay]:
        """Land the stale ones of the days in one commit; `details` are files or offsets.

        Raises:
            LandingError: the landing can't be read, or less is left of a day than landed; then no
                day is landed.
        """
        self.create_tables(lake)
        before = (known or ReadOnce(lake)).day_commits(self.source, LANDING)
        landed = self.landing.land(lake, before, days, options.force, options.allow_loss)
        after = lake.day_commits(self.source, LANDING)
        return {
            found.day: MadeDay(
                before.get(found.day, NOT_MADE).snapshot_id != after[found.day].snapshot_id, found
            )
            for found in landed
        }

    def create_tables(self, lake: Lake) -> None:
        comment = "Kafka records, bytes as they came, by landing day"
        lake.create_stage(self.source, LANDING, schemas.LANDING, comment)

    def figures(
        self, lake: Lake, known: LakeMetadata, made: Mapping[date, MadeDay]
    ) -> LandingFigures:
        """Records and offsets; a job."""
        landed = {day: found.details for day, found in made.items()}
        return LandingFigures(landed, count_landed(lake, self.source, list(made)))

    def counted(self, figures: LandingFigures) -> str:
        return f"{sum(map(figures.records, figures.landed))} records"

    def day_line(self, figures: LandingFigures, table: str, day: date) -> str:
        return f"{figures.records(day)} records"

    def findings(
        self, lake: Lake, figures: LandingFigures, table: str
    ) -> dict[date, list[Finding]]:
        """Gaps and repeats of offsets."""
        return landing_findings(lake, self.source, list(figures.landed), figures.counted)

    def day_values(
        self, lake: Lake, figures: LandingFigures, table: str, days: Sequence[date]
    ) -> dict[date, dict[str, Any]]:
        return {
            day: landing_day(figures.landed[day], figures.records(day), self.config.is_open(day))
            for day in days
        }
