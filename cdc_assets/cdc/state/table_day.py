"""One day of one table: what metadata says of it, and the frame of its events; no Spark job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.config import SourceConfig, TableConfig
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import REPORT, TableState
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.positions import is_all_after, on_basis
from cdc_assets.cdc.spark import is_small
from cdc_assets.cdc.state.day_inputs import DayInputs
from cdc_assets.cdc.state.facts import DayFacts, Facts, bases_of, pair_window_of, window_of

# A row of the table is read and written again in a quarter of the time that an event takes.
_ROWS_AN_EVENT = 4
_REWRITTEN_BYTES = 4_000_000


class TableDay:
    """A day of a table, with the table's metadata as it was read once.

    Args:
        state: what the table's metadata says, None where there is no table yet.
    """

    def __init__(
        self,
        lake: Lake,
        name: str,
        table: str,
        day: date,
        facts: Facts,
        state: TableState | None,
    ) -> None:
        self.name, self.table, self.day = name, table, day
        self.facts, self.state = facts, state
        self.source: SourceConfig = lake.config.source(name)
        self.config: TableConfig = self.source.tables[table]
        self.inputs = DayInputs(lake.config, name, table, day, facts.commits, state)
        self.start = self.inputs.start
        self.window = window_of(lake.config, name, day)
        self.pair_window = pair_window_of(lake.config, name, day)
        self.day_facts = facts.of_days.get((table, day), DayFacts())
        self.past = [facts.of_days.get((table, d), DayFacts()) for d in self.window]
        self.identifier = lake.state(name, TableName.parse(table))
        self.label = f"{name}.{table}"
        work = self._work()
        self.lake = lake.sized(work)
        # What stays as it was is written again, too: so the table must be small itself.
        self.is_rewritten = is_small(work) and self._stands("total-files-size") <= _REWRITTEN_BYTES

    def _work(self) -> int:
        """At most how many events are read for the day, or rows of the table for as much work."""
        read: list[DayFacts] = [self.day_facts, *(self.past if self.looks_back else ())]
        events = sum(of_day.events for of_day in read)
        return events + self._stands("total-records") // _ROWS_AN_EVENT

    def _stands(self, figure: str) -> int:
        """A total of the table at the end of the day before, by its commit's summary."""
        summary = self.state.day_summary(self.day - timedelta(days=1)) if self.state else {}
        return int(summary.get(figure, 0))

    # --- what it starts from

    @cached_property
    def base(self) -> int | None:
        """The snapshot that the day starts from, None for the first day.

        Raises:
            MissingDayError: the day before has expired, or the one before the `late_days`
                window.
        """
        if self.day <= self.start or self.state is None:
            return None
        before = self.day - timedelta(days=1)
        for needed in (before, min([self.day, *self.window]) - timedelta(days=1)):
            if needed >= self.start and self.state.is_expired(needed):
                raise self.inputs.missing(needed)
        return self.state.tags[before]

    @property
    def starts_empty(self) -> bool:
        """Whether no row stands in the table at the end of the day before."""
        if self.base is None or self.state is None:
            return True
        return self.state.snapshots[self.base].summary.get("total-records") == "0"

    @property
    def rows_before(self) -> int:
        """The rows of the table at the end of the day before."""
        return int(self._before.get("rows", 0))

    def report_on(self, day: date) -> dict[str, Any]:
        """What a published day came to; empty where it is not published."""
        summary = self.state.day_summary(day) if self.state and day >= self.start else {}
        found: dict[str, Any] = json.loads(summary.get(REPORT, "{}"))
        return found

    # --- what its events are

    @property
    def may_be_unsent(self) -> bool:
        """Whether an event of the day may leave a column as it was (R1, R2)."""
        return self.day_facts.maybe_unchanged > 0 or self.source.missing_columns == "keep"

    @property
    def has_split_updates(self) -> bool:
        """Whether the day, or one of those that it looks back on, has halves of split updates."""
        return any(of_day.split_updates for of_day in [self.day_facts, *self.past])

    @property
    def looks_back(self) -> bool:
        """Whether events of the days before may be read, not only what metadata says of them."""
        if self.config.key in ("none", "row") or self.has_split_updates:
            return True
        return not self.is_all_after or self.may_be_unsent

    @cached_property
    def bases(self) -> dict[int, str]:
        """What the table's positions are made of in each epoch, by the end of the day (O8)."""
        known = {int(epoch): basis for epoch, basis in self._before.get("bases", {}).items()}
        return bases_of([*self.past, self.day_facts], known)

    @property
    def highest(self) -> list[int] | None:
        """The highest position that has landed by the end of the day."""
        known = [self._before.get("highest"), list(self.day_facts.highest(self.bases) or ())]
        return max((p for p in known if p), default=None)

    @cached_property
    def is_all_after(self) -> bool:
        """Does each event of the day stand after all that landed before it?"""
        own = self.day_facts.of_bases(self.bases)
        if sum(r.count for r in own) < self.day_facts.events:
            return False
        before = [self._before.get("highest")]
        before += [of_day.highest(self.bases) for of_day in self.past]
        return all(is_all_after(r.lowest, p) for r in own for p in before if p)

    @property
    def _before(self) -> dict[str, Any]:
        return self.report_on(self.day - timedelta(days=1))

    def events(self, days: Sequence[date]) -> DataFrame:
        """The table's events of some days, in the order of the table's positions."""
        changed = self.lake.stage_days(self.name, "changes", days)
        events = changed.where(F.col("table_name") == self.table)
        ranges = [r for of_day in [*self.past, self.day_facts] for r in of_day.ranges]
        if all(self.bases.get(r.epoch) == r.basis for r in ranges):
            return events
        # O8: an event on another basis is older than all of its table's.
        own = on_basis(F.col("position"), F.col("position_basis"), self.bases)
        return events.withColumn("position", own)

    def truncated(self, days: Sequence[date]) -> list[int] | None:
        """The position of the highest truncate that landed on some days, None where none did."""
        found = (of_day.truncated(self.bases) for of_day in self.of_days(days))
        return max((position for position in found if position), default=None)

    def of_days(self, days: Sequence[date]) -> list[DayFacts]:
        """What metadata says of the table's events on some days; nothing of days without any."""
        known = self.facts.of_days
        return [known[self.table, day] for day in days if (self.table, day) in known]
