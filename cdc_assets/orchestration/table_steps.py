"""The days of one table in a run: each made in order, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.findings import AUDIT, Finding, fault_finding
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.state import contracts, metadata
from cdc_assets.cdc.state import stage as table_days
from cdc_assets.cdc.state.expected import rows_to_read
from cdc_assets.cdc.state.findings import KEY_CHECKS, table_findings
from cdc_assets.orchestration import progress, records
from cdc_assets.orchestration.resources import SparkResource

# Merges of small tables wait more for the driver than for the cores.
TABLES_AT_ONCE = 4


@dataclass(frozen=True)
class MadeTable:
    """How a run's days of a table ended; a failed day stops those behind it."""

    error: Exception | None = None
    left_out: Sequence[date] = ()


class TableSteps:
    """Makes the days of one table in order, and says what is recorded of each.

    Args:
        known: the metadata that Dagster has recorded of the table's days.
    """

    def __init__(
        self,
        lake: Lake,
        name: str,
        table: str,
        key: dg.AssetKey,
        facts: table_days.Facts,
        known: Mapping[date, records.Metadata],
        spark: SparkResource,
    ) -> None:
        self.lake, self.name, self.table, self.key = lake, name, table, key
        self.facts, self.known, self.spark = facts, known, spark
        self.source = lake.config.source(name)
        self.identifier = lake.state(name, TableName.parse(table))
        self._state: TableState | None = None

    def make(
        self, days: Sequence[date], is_forced: bool, came: Callable[[records.DayRecord], None]
    ) -> MadeTable:
        """The days in order, each handed to `came` as soon as it is done."""
        start = self.lake.config.start_of(self.name, self.table)
        for day in days:
            if day < start or self.spark.is_canceled:
                continue
            try:
                for record in self._earlier_again(day):
                    came(record)
                came(self._day(day, is_forced, is_last=day == days[-1]))
            except Exception as error:
                if isinstance(error, AuditError) and error.check is not None:
                    failed = Finding(error.check, False, {AUDIT: str(error)})
                    came(records.DayRecord(self.key, error.day, findings=[failed]))
                return MadeTable(error, left_out=[d for d in days if d > day])
        return MadeTable()

    def _day(self, day: date, is_forced: bool, is_last: bool) -> records.DayRecord:
        with progress.step(self.name, self.table, str(day)) as say:
            progress.expect(self._rows_to_read(day))
            report = table_days.make_table_day(
                self.lake, self.name, self.table, day, self.facts, is_forced, self._state
            )
            again = ", made again: the rules have changed" if report.rules_changed else ""
            say(f"{report.rows} rows" + (again if report.made else " (as before)"))
        return self._record(day, report, is_last)

    def _earlier_again(self, day: date) -> list[records.DayRecord]:
        """Earlier days, made again without what a former server sent after a new one (O11)."""
        self._state = self._state or self.lake.read_state(self.identifier)
        made = table_days.make_earlier_again(
            self.lake, self.name, self.table, day, self.facts, self._state
        )
        return [self._record(earlier, report, is_last=False) for earlier, report in made.items()]

    def _record(self, day: date, report: table_days.DayReport, is_last: bool) -> records.DayRecord:
        if report.made or self._state is None:
            self._state = self.lake.read_state(self.identifier)
            assert self._state is not None
        versions = records.table_versions(
            self.lake.config, self.name, self.table, self._state, [day]
        )
        found = versions[day].as_recorded(self.known.get(day))
        findings: Sequence[Finding] = ()
        # Of a run's last day all checks are evaluated, so that none is missing from the run.
        if found is None or is_last:
            frame = self.lake.at(self.identifier, self._state.tags[day])
            findings = self._findings(self._state, frame, day, report)
            if found is None:
                found = self._metadata(self._state, frame, day, report)
                found |= versions[day].metadata(unchanged=not report.made)
        return records.DayRecord(self.key, day, metadata.summary_line(report), found, findings)

    def _rows_to_read(self, day: date) -> int | None:
        self._state = self._state or self.lake.read_state(self.identifier)
        return rows_to_read(self.lake, self.name, self.table, day, self.facts, self._state)

    def _metadata(
        self, state: TableState, frame: DataFrame, day: date, report: table_days.DayReport
    ) -> dict[str, Any]:
        values = metadata.table_day(self.name, self.identifier, frame.schema, state, report)
        if self.source.samples:
            hidden = self.source.tables[self.table].sensitive
            shown = metadata.sample(self.lake, self.identifier, state.tags[day], hidden)
            values = {"sample": shown, **values}
        return values

    def _findings(
        self, state: TableState, frame: DataFrame, day: date, report: table_days.DayReport
    ) -> list[Finding]:
        settings = self.source.tables[self.table]
        # Columns by their names in the lake.
        source_names = {to: of for of, to in settings.rename.items()}
        found = table_findings(
            state,
            day,
            report,
            lambda column: self.source.shows_column(self.table, source_names.get(column, column)),
        )
        if settings.key in ("none", "row"):
            found = [f for f in found if f.name not in KEY_CHECKS]
        faults = contracts.broken_of_table(
            frame,
            settings,
            self.facts.columns_of(self.table, [day]),
            state.key_columns,
        )
        return [*found, fault_finding("contract", faults)]
