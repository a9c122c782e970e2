"""The stage `lag`: how late the changes of a day were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, ClassVar

from pyspark.sql.types import StructType

from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.findings import Check, Finding
from cdc_assets.cdc.lag.charts import lag_over_hours
from cdc_assets.cdc.lag.findings import CHECKS, lag_findings
from cdc_assets.cdc.lag.metadata import lag_day
from cdc_assets.cdc.lag.stage import Rows, day_rows, make_lag, worst_by_hour
from cdc_assets.cdc.lake import schemas
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.stages.contract import (
    NOT_MADE,
    MadeDay,
    StageOfTables,
)


class LagStage(StageOfTables[Rows]):
    """Rows of ``lake.<source>.lag``: one a table, kind and source hour, and one for the day."""

    name = "lag"
    tables = ("lag",)
    checks: Mapping[str, Sequence[Check]] = {"lag": CHECKS}
    schemas: ClassVar[Mapping[str, StructType]] = {"lag": schemas.LAG}
    read = "changes"
    examined = "lag"

    def inputs(self, lake: LakeMetadata, day: date) -> Mapping[str, Any]:
        """The snapshot of the changes, and whether the day has ended."""
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
        """Whether the day was made from the current changes, after its end."""
        made = lake.day_commits(self.source, "changes")
        expected = {"changes": made.get(day, NOT_MADE).snapshot_id, "complete": True}
        return lake.day_commits(self.source, "lag").get(day, NOT_MADE).inputs == expected

    def create_tables(self, lake: Lake) -> None:
        comment = "how late changes came, per table and source hour, in ms"
        lake.create_stage(self.source, "lag", schemas.LAG, comment)

    def write(
        self, lake: Lake, known: LakeMetadata, inputs: Mapping[date, Mapping[str, Any]]
    ) -> None:
        """In one job."""
        rows = known.day_commits(self.source, "changes").records(inputs)
        head = known.day_commits(self.source, "lag").head
        make_lag(lake.for_rows(rows), self.source, inputs, head)

    def figures(self, lake: Lake, known: LakeMetadata, made: Mapping[date, MadeDay]) -> Rows:
        """The rows of whole days; a job."""
        rows = day_rows(lake, self.source, list(made))
        return {day: rows.get(day, []) for day in made}

    def counted(self, figures: Rows) -> str:
        return f"{len(_tables(row for rows in figures.values() for row in rows))} tables"

    def day_line(self, figures: Rows, table: str, day: date) -> str:
        return f"lag of {len(_tables(figures[day]))} tables"

    def findings(self, lake: Lake, figures: Rows, table: str) -> dict[date, list[Finding]]:
        slo_ms = self.settings.lag_slo_ms
        return {day: lag_findings(rows, slo_ms) for day, rows in figures.items()}

    def day_values(
        self, lake: Lake, figures: Rows, table: str, days: Sequence[date]
    ) -> dict[date, dict[str, Any]]:
        """A chart of the source hours, which is a job, and the figures of the day."""
        hours = worst_by_hour(lake, self.source, days)
        values = {}
        for day in days:
            chart = lag_over_hours(day, hours.get(day, []), self.settings.lag_slo_ms)
            # First: Dagster's pages keep the order.
            shown = {} if chart is None else {"by_hour": chart}
            values[day] = {**shown, **lag_day(figures[day], not self.config.is_open(day))}
        return values


def _tables(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    return {row["table_name"] for row in rows}
