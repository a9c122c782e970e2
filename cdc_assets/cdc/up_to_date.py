"""Which days a run would leave as they are, judged without Spark.

The same questions that each stage asks before it makes a day, asked of the tables' metadata as
PyIceberg reads it: the lake is the same, the answer takes a fraction of the time that Spark takes
to start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from cdc_assets.cdc import made_of
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import MissingTableError
from cdc_assets.cdc.lake.commits import DayCommit, TableState
from cdc_assets.cdc.lake.metadata import day_commits, table_state
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.tables import find_table, own_table
from cdc_assets.cdc.landing.files import NONE, see_days
from cdc_assets.cdc.state.day_inputs import DayInputs
from cdc_assets.cdc.state.judge import TABLE as EPOCHS


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
        state = table_state(open_table(self.config, find_table(self.config, table, self.name)))
        parsed = ("landing", "changes", "control", "quarantine", EPOCHS)
        commits = {stage: self._commits(stage) for stage in parsed}
        inputs = (DayInputs(self.config, self.name, table, d, commits, state) for d in days)
        # A run that was killed behind its last day may have left `main` a day behind.
        is_whole = bool(state.tags) and state.refs.get("main") == state.tags[max(state.tags)]
        return state if is_whole and all(of_day.is_up_to_date for of_day in inputs) else None

    def _has_landed(self, days: Sequence[date]) -> bool:
        landed, folder = self._commits("landing"), self._source.landing.files
        if folder is None:
            return not made_of.not_closed(landed, days)
        seen = see_days(self.name, folder)
        files = {day: seen[day].fingerprint if day in seen else NONE for day in days}
        return not made_of.not_landed(landed, files)

    def _has_changes(self, days: Sequence[date]) -> bool:
        made = {table: self._commits(table) for table in made_of.PARSED}
        landed = self._commits("landing")
        return not made_of.stale_changes(self.config, self.name, landed, made, days)

    def _has_lag(self, days: Sequence[date]) -> bool:
        made, lag = self._commits("changes"), self._commits("lag")
        return not made_of.stale_lag(self.config, self.name, made, lag, days)

    def _commits(self, stage: str) -> Mapping[date, DayCommit]:
        if stage not in self._read:
            table = own_table(self.name, stage)
            try:
                self._read[stage] = day_commits(open_table(self.config, table))
            except MissingTableError:
                if stage != EPOCHS:  # which is made where there is something to keep
                    raise
                self._read[stage] = {}
        return self._read[stage]
