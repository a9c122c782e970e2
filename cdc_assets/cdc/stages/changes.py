"""The stage `changes`: every landed record reaches one of changes, control and quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from cdc_assets.cdc.changes import inputs
from cdc_assets.cdc.changes.stage import create_tables, make_changes
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.stages.contract import NOT_MADE, MakeOptions, ReadOnce, StageOfTables

_DAY = timedelta(days=1)


class ChangesStage(StageOfTables):
    """One pass over the landing of some days fills four tables, `changes` last."""

    name = "changes"
    assets = ("changes", "control", "quarantine")
    tables = inputs.PARSED

    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """The landings' snapshots, and the rules of reading."""
        landed = lake.day_commits(self.source, "landing")
        return inputs.changes_inputs(self.config, self.source, landed, day)

    def outdated(self, lake: LakeMetadata) -> list[date]:
        """The landed days whose changes are not made of what has landed, whatever the rules.

        A day whose landed records maintenance has removed can't be made again.
        """
        landed = lake.day_commits(self.source, "landing")
        made = lake.day_commits(self.source, "changes")
        return [
            day
            for day in sorted(landed)
            if not inputs.landing_snapshots(landed, day).items()
            <= made.get(day, NOT_MADE).inputs.items()
            and all(landed.get(d, NOT_MADE).removed is None for d in (day, day - _DAY))
        ]

    def made_by_other_rules(self, lake: LakeMetadata) -> list[date]:
        """The days that an older version or configuration made, oldest first."""
        rules = inputs.rules_fingerprint(self.config, self.source)
        made = lake.day_commits(self.source, "changes")
        return sorted(day for day, commit in made.items() if commit.inputs.get("rules") != rules)

    def is_complete(self, lake: LakeMetadata, day: date) -> bool:
        """Whether the day is made of what has landed."""
        made = lake.day_commits(self.source, "changes")
        return day in made and day not in self.outdated(lake)

    def make(
        self, lake: Lake, days: Sequence[date], options: MakeOptions = MakeOptions()
    ) -> list[date]:
        """Make the stale ones of the days in one pass; those that were made.

        Raises:
            MissingDayError: a day has no landing.
        """
        create_tables(lake, self.source)
        metadata = ReadOnce(lake)
        to_make = list(days) if options.force else self.stale(metadata, days)
        day_inputs = {day: self.inputs(metadata, day) for day in to_make}
        make_changes(lake, self.source, metadata, day_inputs)
        return to_make
