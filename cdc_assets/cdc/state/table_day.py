"""One day of one table: what metadata says of it, and the frame of its events; no Spark job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.changes import stage as changes
from cdc_assets.cdc.config import SourceConfig, TableConfig
from cdc_assets.cdc.errors import ConfigError, MissingDayError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import INPUTS, REPORT, DayCommit, TableState
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.positions import is_all_after, on_basis
from cdc_assets.cdc.spark import is_small
from cdc_assets.cdc.state.facts import Facts, Survey, bases_of, pair_window_of, window_of

# Raised when the making of days changes, so that days made before are made again.
MERGER_VERSION = 5
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
        self.start = lake.config.start_of(name, table)
        self.window = window_of(lake, name, day)
        self.pair_window = pair_window_of(lake, name, day)
        self.survey = facts.surveys.get((table, day), Survey())
        self.past = [facts.surveys.get((table, d), Survey()) for d in self.window]
        self.identifier = lake.state(name, TableName.parse(table))
        self.label = f"{name}.{table}"
        work = self._work()
        self.lake = lake.sized(work)
        # What stays as it was is written again, too: so the table must be small itself.
        self.is_rewritten = is_small(work) and self._stands("total-files-size") <= _REWRITTEN_BYTES

    def _work(self) -> int:
        """At most how many events are read for the day, or rows of the table for as much work."""
        read: list[Survey] = [self.survey, *(self.past if self.looks_back else ())]
        events = sum(survey.events for survey in read)
        return events + self._stands("total-records") // _ROWS_AN_EVENT

    def _stands(self, figure: str) -> int:
        """A total of the table at the end of the day before, by its commit's summary."""
        summary = self.state.day_summary(self.day - timedelta(days=1)) if self.state else {}
        return int(summary.get(figure, 0))

    # --- what the day is made of

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The commits and rules that the day is made of: a day of the same ones is up to date.

        Raises:
            ConfigError: the table starts later than a day that is made already.
            MissingDayError: the day before, or the day's changes, are not there yet.
        """
        self._check_start()
        commits = self.facts.commits
        expected = changes.inputs_of(self.lake.config, self.name, commits["landing"], self.day)
        for table in ("quarantine", "control", "changes"):
            if commits[table].get(self.day, DayCommit(0)).inputs != expected:
                raise MissingDayError(
                    f"{self.name}.{table}",
                    self.day,
                    "It is missing, or older than its landing. Materialize it first: "
                    f"cdc-assets run --source {self.name} --from {self.day} --to {self.day}.",
                )
        made_of = {
            str(d): commits["changes"][d].snapshot_id
            for d in [*self.pair_window, self.day]
            if d in commits["changes"]
        }
        return {"day_before": self._day_before(), "changes": made_of, "rules": self._rules()}

    @property
    def is_up_to_date(self) -> bool:
        """Whether the published day was made of the same."""
        return self.summary.get(INPUTS) == json.dumps(self.inputs, sort_keys=True)

    @property
    def summary(self) -> Mapping[str, str]:
        """The summary of the published day; empty where there is none."""
        return self.state.day_summary(self.day) if self.state else {}

    @cached_property
    def base(self) -> int | None:
        """The snapshot that the day starts from, None for the first day.

        Raises:
            MissingDayError: the day before has expired, or the one before the days that are
                looked back on.
        """
        if self.day <= self.start or self.state is None:
            return None
        before = self.day - timedelta(days=1)
        for needed in (before, min([self.day, *self.window]) - timedelta(days=1)):
            if needed >= self.start and self.state.is_expired(needed):
                raise self._missing(needed)
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

    @property
    def rules_changed(self) -> bool:
        """Whether the day was made before, by other rules: an older version or configuration."""
        state = self.state
        made_of = state.made_of(self.day) if state and self.day in state.tags else {}
        return bool(made_of) and made_of.get("rules") != self._rules()

    def report_on(self, day: date) -> dict[str, Any]:
        """What a published day came to; empty where it is not published."""
        summary = self.state.day_summary(day) if self.state and day >= self.start else {}
        found: dict[str, Any] = json.loads(summary.get(REPORT, "{}"))
        return found

    def _check_start(self) -> None:
        """A later start would leave days that no run can make again."""
        made = sorted(self.state.tags) if self.state else []
        if made and made[0] < self.start:
            raise ConfigError(
                [
                    f"{self.label}: start_date {self.start} is later than {made[0]}, which is "
                    f"made already. Set start_date: {made[0]}, or drop the table first"
                ]
            )

    def _day_before(self) -> int | None:
        if self.day <= self.start:
            return None
        made = self.state.day_before(self.day) if self.state else None
        if made is None:
            raise self._missing(self.day - timedelta(days=1))
        return made

    def _missing(self, day: date) -> MissingDayError:
        if self.state and self.state.is_expired(day):
            return MissingDayError(
                self.label,
                day,
                f"It has expired (keep_days: {self.source.keep_days}), and {self.day} can't be "
                "made without it. What was made stays as it is; to make the table anew from its "
                f"first day: cdc-assets run --source {self.name} --table '{self.table}' "
                f"--from {self.start} --to {max(self.state.tags)}.",
            )
        missing, tags = self.start, self.state.tags if self.state else {}
        while missing in tags:
            missing += timedelta(days=1)
        return MissingDayError(self.label, day, f"Materialize it first, or run --from {missing}.")

    def _rules(self) -> str:
        rules = [
            MERGER_VERSION,
            changes.rules_fingerprint(self.lake.config, self.name),
            self.source.missing_columns,
            self.source.unavailable_value,
            self.source.late_days,
            self.config.rename,
        ]
        return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]

    # --- what its events are

    @property
    def may_be_unsent(self) -> bool:
        """Whether an event of the day may leave a column as it was (R1, R2)."""
        return self.survey.maybe_unchanged > 0 or self.source.missing_columns == "keep"

    @property
    def halves_near(self) -> bool:
        """Whether the day, or one of those that it looks back on, has halves of split updates."""
        return any(survey.halves for survey in [self.survey, *self.past])

    @property
    def looks_back(self) -> bool:
        """Whether events of the days before may be read, not only what metadata says of them."""
        if self.config.key in ("none", "row") or self.halves_near:
            return True
        return not self.is_all_after or self.may_be_unsent

    @cached_property
    def bases(self) -> dict[int, str]:
        """What the table's positions are made of in each epoch, by the end of the day (O8)."""
        known = {int(epoch): basis for epoch, basis in self._before.get("bases", {}).items()}
        return bases_of([*self.past, self.survey], known)

    @property
    def highest(self) -> list[int] | None:
        """The highest position that has landed by the end of the day."""
        known = [self._before.get("highest"), list(self.survey.highest(self.bases) or ())]
        return max((p for p in known if p), default=None)

    @cached_property
    def is_all_after(self) -> bool:
        """Does each event of the day stand after all that landed before it?"""
        own = self.survey.of_bases(self.bases)
        if sum(r.count for r in own) < self.survey.events:
            return False
        before = [self._before.get("highest")]
        before += [survey.highest(self.bases) for survey in self.past]
        return all(is_all_after(r.lowest, p) for r in own for p in before if p)

    @property
    def _before(self) -> dict[str, Any]:
        return self.report_on(self.day - timedelta(days=1))

    def events(self, days: Sequence[date]) -> DataFrame:
        """The table's events of some days, in the order of the table's positions."""
        changed = self.lake.stage_days(self.name, "changes", days)
        events = changed.where(F.col("table_name") == self.table)
        ranges = [r for survey in [*self.past, self.survey] for r in survey.ranges]
        if all(self.bases.get(r.epoch) == r.basis for r in ranges):
            return events
        # O8: an event on another basis is older than all of its table's.
        own = on_basis(F.col("position"), F.col("position_basis"), self.bases)
        return events.withColumn("position", own)

    def truncated(self, days: Sequence[date]) -> list[int] | None:
        """The position of the highest truncate that landed on some days, None where none did."""
        found = (survey.truncated(self.bases) for survey in self.of_days(days))
        return max((position for position in found if position), default=None)

    def of_days(self, days: Sequence[date]) -> list[Survey]:
        """What metadata says of the table's events on some days; nothing of days without any."""
        surveys = self.facts.surveys
        return [surveys[self.table, day] for day in days if (self.table, day) in surveys]
