"""The stage `changes`: every landed record reaches one of changes, control and quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Any, ClassVar

from pyspark.sql import Row
from pyspark.sql.types import StructType

from cdc_assets.cdc.changes import inputs
from cdc_assets.cdc.changes.figures import ChangesFigures, day_figures
from cdc_assets.cdc.changes.findings import (
    CHECKS,
    QUARANTINE_CHECKS,
    ParsedDays,
    changes_findings,
    quarantine_examples,
    quarantine_findings,
)
from cdc_assets.cdc.changes.metadata import changes_day, examples_table, summary_line
from cdc_assets.cdc.changes.stage import create_tables, make_changes
from cdc_assets.cdc.findings import Check, Finding, fault_finding
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayCommit
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.stages.contract import (
    NOT_MADE,
    MadeDay,
    StageOfTables,
)
from cdc_assets.cdc.state.contracts import broken
from cdc_assets.cdc.state.order_findings import order_findings

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class ChangesDays:
    """The figures of some days, and some quarantined records of each."""

    days: Mapping[date, ChangesFigures]
    examples: Mapping[date, Sequence[Row]]


class ChangesStage(StageOfTables[ChangesDays]):
    """One pass over the landing of some days fills four tables, `changes` last."""

    name = "changes"
    tables = inputs.PARSED
    checks: Mapping[str, Sequence[Check]] = {
        "changes": CHECKS,
        "control": (),
        "quarantine": QUARANTINE_CHECKS,
    }
    schemas: ClassVar[Mapping[str, StructType]] = {
        "changes": columns.CHANGES,
        "control": columns.CONTROL,
        "quarantine": columns.QUARANTINE,
    }
    read = examined = "landing"

    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """The landings' snapshots, and the rules of reading."""
        landed = lake.day_commits(self.source, "landing")
        return inputs.changes_inputs(self.config, self.source, landed, day)

    def outdated(self, lake: LakeMetadata) -> list[date]:
        """The landed days whose changes were not made from what has landed, whatever the rules.

        A day whose landed records maintenance has removed can't be made again.
        """
        landed = lake.day_commits(self.source, "landing")
        return [day for day in sorted(landed) if self._is_outdated(lake, day)]

    def _is_outdated(self, lake: LakeMetadata, day: date) -> bool:
        landed = lake.day_commits(self.source, "landing")
        made = lake.day_commits(self.source, "changes").get(day, NOT_MADE)
        if day not in landed or any(
            landed.get(d, NOT_MADE).removed is not None for d in (day, day - _DAY)
        ):
            return False
        return not inputs.landing_snapshots(landed, day).items() <= made.inputs.items()

    def made_by_other_rules(self, lake: LakeMetadata) -> list[date]:
        """The days that another version or configuration made, oldest first."""
        made = lake.day_commits(self.source, "changes")
        return sorted(day for day, commit in made.items() if self._has_other_rules(commit))

    @cached_property
    def _rules(self) -> str:
        return inputs.rules_fingerprint(self.config, self.source)

    def _has_other_rules(self, commit: DayCommit) -> bool:
        return commit.inputs.get("rules") != self._rules

    def is_complete(self, lake: LakeMetadata, day: date) -> bool:
        """Whether the day was made from what has landed."""
        is_made = day in lake.day_commits(self.source, "changes")
        return is_made and not self._is_outdated(lake, day)

    def create_tables(self, lake: Lake) -> None:
        create_tables(lake, self.source)

    def details(self, known: LakeMetadata, day: date) -> bool:
        """Whether the day was made by other rules."""
        commits = known.day_commits(self.source, "changes")
        return day in commits and self._has_other_rules(commits[day])

    def write(
        self, lake: Lake, known: LakeMetadata, inputs: Mapping[date, Mapping[str, Any]]
    ) -> None:
        """One pass over the landing of days that follow one another."""
        make_changes(lake, self.source, known, inputs)

    def figures(self, lake: Lake, known: LakeMetadata, made: Mapping[date, MadeDay]) -> ChangesDays:
        """Counts and examples, mostly from `facts`."""
        days = day_figures(lake, self.source, list(made))
        return ChangesDays(days, quarantine_examples(ParsedDays(lake, self.source, days)))

    def counted(self, figures: ChangesDays) -> str:
        return ", ".join(
            f"{sum(day.records(table) for day in figures.days.values())} {table}"
            for table in self.checks
        )

    def summary(
        self, known: LakeMetadata, figures: ChangesDays, made: Mapping[date, MadeDay]
    ) -> list[str]:
        """With the days that earlier rules made."""
        texts = super().summary(known, figures, made)
        if again := sum(day.is_new and day.details for day in made.values()):
            texts.append(f"({again} days made again: the rules have changed)")
        if standing := self.made_by_other_rules(known):
            texts.append(
                f"({len(standing)} days, {standing[0]} to {standing[-1]}, stand as earlier "
                "rules made them; cdc-assets doctor says how to make them again)"
            )
        return texts

    def day_line(self, figures: ChangesDays, table: str, day: date) -> str:
        return summary_line(changes_day(figures.days[day])[table])

    def findings(self, lake: Lake, figures: ChangesDays, table: str) -> dict[date, list[Finding]]:
        """`control` has no check."""
        if table == "control":
            return {}
        if table == "quarantine":
            found = quarantine_findings(self.settings, figures.days)
        else:
            parsed = ParsedDays(lake, self.source, figures.days)
            found = changes_findings(parsed, figures.examples, order_findings(parsed))
        frame = lake.spark.table(lake.stage(self.source, table))
        contract = fault_finding("contract", broken(frame, self.schemas[table]))
        return {day: [*findings, contract] for day, findings in found.items()}

    def day_values(
        self, lake: Lake, figures: ChangesDays, table: str, days: Sequence[date]
    ) -> dict[date, dict[str, Any]]:
        values = {day: changes_day(figures.days[day])[table] for day in days}
        if table == "quarantine":
            for day, rows in figures.examples.items():
                if day in values:
                    values[day]["examples"] = examples_table(rows, self.settings.shows_values)
        return values
