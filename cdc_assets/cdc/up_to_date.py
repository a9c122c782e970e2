"""Which days a run would leave as they are, judged without Spark.

The same questions that each stage asks before it makes a day, asked of the tables' metadata as
PyIceberg reads it: the lake is the same, the answer takes a fraction of the time that Spark takes
to start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from cdc_assets.cdc import lag
from cdc_assets.cdc.changes import stage as changes
from cdc_assets.cdc.changes.facts import TABLE as FACTS
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import MissingTableError
from cdc_assets.cdc.lake import pyiceberg_reads as reads
from cdc_assets.cdc.lake.commits import DayCommit, TableState
from cdc_assets.cdc.landing.files import NONE, see_days
from cdc_assets.cdc.landing.kafka_plan import KafkaDay
from cdc_assets.cdc.state.day_inputs import DayInputs
from cdc_assets.cdc.state.judge import TABLE as EPOCHS

_NOT_MADE = DayCommit(0)


class UpToDate:
    """What of a source is up to date. Each table's metadata is read once.

    All methods raise :class:`CdcError` where the lake or the landing's days are not there or can't
    be read, and OSError where the landing folder can't be listed.
    """

    def __init__(self, config: Config, name: str) -> None:
        self.config, self.name = config, name
        self._source = config.source(name)
        self._read: dict[str, dict[date, DayCommit]] = {}

    def stage(self, stage: str, days: Sequence[date]) -> Mapping[date, DayCommit] | None:
        """The days of a stage table; None where a run would make one of those asked for again."""
        judges = {"landing": self._has_landed, "lag": self._has_lag}
        is_made = judges.get(stage, self._has_changes)(days)
        return self._commits(stage) if is_made else None

    def table(self, table: str, days: Sequence[date]) -> TableState | None:
        """What a table's metadata says; None where a run would make one of the days again."""
        state = reads.table_state(
            reads.open_table(self.config, reads.find_table(self.config, table, self.name))
        )
        parsed = ("landing", "changes", "control", "quarantine", EPOCHS)
        commits = {stage: self._commits(stage) for stage in parsed}
        inputs = (DayInputs(self.config, self.name, table, d, commits, state) for d in days)
        # A run that was killed behind its last day may have left `main` a day behind.
        is_whole = bool(state.tags) and state.refs.get("main") == state.tags[max(state.tags)]
        return state if is_whole and all(of_day.is_up_to_date for of_day in inputs) else None

    def _has_landed(self, days: Sequence[date]) -> bool:
        landed = self._commits("landing")
        if self._source.landing.files is None:
            recorded = (KafkaDay.of_inputs(day, landed.get(day, _NOT_MADE).inputs) for day in days)
            return all(day is not None and day.closed for day in recorded)
        seen = see_days(self._source.landing.files)
        files = {day: seen[day].fingerprint if day in seen else NONE for day in days}
        return all(
            landed.get(day, _NOT_MADE).inputs.get("files") == found for day, found in files.items()
        )

    def _has_changes(self, days: Sequence[date]) -> bool:
        landed = self._commits("landing")
        made_of = {day: changes.inputs_of(self.config, self.name, landed, day) for day in days}
        return all(
            self._commits(table).get(day, _NOT_MADE).inputs == inputs
            for table in ("quarantine", FACTS, "control", "changes")
            for day, inputs in made_of.items()
        )

    def _has_lag(self, days: Sequence[date]) -> bool:
        made, current = self._commits("changes"), self._commits("lag")
        return all(
            current.get(day, _NOT_MADE).inputs == lag.inputs_of(self.config, self.name, made, day)
            for day in days
        )

    def _commits(self, stage: str) -> Mapping[date, DayCommit]:
        if stage not in self._read:
            table = reads.own_table(self.name, stage)
            try:
                self._read[stage] = reads.day_commits(reads.open_table(self.config, table))
            except MissingTableError:
                if stage != EPOCHS:  # which is made where there is something to keep
                    raise
                self._read[stage] = {}
        return self._read[stage]
