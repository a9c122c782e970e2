"""The stage `lag`: how late the changes of a day came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.lag import make_lag
from cdc_assets.cdc.lake import schemas
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.stages.contract import NOT_MADE, MakeOptions, ReadOnce, StageOfTables


class LagStage(StageOfTables):
    """Rows of ``lake.<source>.lag``: one a table, kind and source hour, and one for the day."""

    name = "lag"
    assets = tables = ("lag",)

    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """The snapshot of the changes, and whether the day was over."""
        made = lake.day_commits(self.source, "changes")
        if day not in made:
            raise MissingDayError(
                f"{self.source}.changes",
                day,
                f"Materialize it first: cdc-assets run --source {self.source} "
                f"--from {day} --to {day}.",
            )
        return {"changes": made[day].snapshot_id, "complete": not self.config.is_open(day)}

    def is_complete(self, lake: LakeMetadata, day: date) -> bool:
        """Whether the day was made of the changes that are there, after its end."""
        made = lake.day_commits(self.source, "changes")
        expected = {"changes": made.get(day, NOT_MADE).snapshot_id, "complete": True}
        return lake.day_commits(self.source, "lag").get(day, NOT_MADE).inputs == expected

    def make(
        self, lake: Lake, days: Sequence[date], options: MakeOptions = MakeOptions()
    ) -> list[date]:
        """Make the stale ones of the days in one job; those that were made.

        Raises:
            MissingDayError: a day has no changes.
        """
        lake.create_stage(
            self.source, "lag", schemas.LAG, "how late changes came, per table and source hour, in ms"
        )
        metadata = ReadOnce(lake)
        to_make = list(days) if options.force else self.stale(metadata, days)
        if to_make:
            inputs = {day: self.inputs(metadata, day) for day in to_make}
            made = metadata.day_commits(self.source, "changes")
            head = metadata.day_commits(self.source, "lag").head
            make_lag(lake.sized(made.records(to_make)), self.source, inputs, head)
        return to_make
