"""What a day of a history is made of: metadata alone, no Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from cdc_assets.cdc.config import Config, HistoryConfig
from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.lake.commits import INPUTS, TableState

# Raised when the making of versions changes, so that days made before are made again.
HISTORY_VERSION = 1


@dataclass(frozen=True)
class HistoryInputs:
    """The snapshots and rules that a day of a history is made of.

    Attributes:
        config: cdc.yaml.
        source: the source's name in it.
        table: the name of the history's table.
        day: the day.
        of_table: the metadata of the table; None where there is none yet.
        state: that of the history; None where there is none yet.
    """

    config: Config
    source: str
    table: str
    day: date
    of_table: TableState | None
    state: TableState | None

    @property
    def start(self) -> date:
        """The first day of the table, and of its history."""
        return self.config.start_of(self.source, self.table)

    @property
    def settings(self) -> HistoryConfig:
        """Whose changes begin a version."""
        return self.config.source(self.source).tables[self.table].history or HistoryConfig()

    @cached_property
    def values(self) -> dict[str, Any]:
        """The snapshots and rules: a day that was made of the same ones is up to date.

        Raises:
            MissingDayError: the day of the table, or the day before, is not there yet.
        """
        table = self._day_of_table()
        if table is None:
            raise MissingDayError(
                f"{self.source}.{self.table}",
                self.day,
                f"Its history is made from it. Make it first: cdc-assets run --source "
                f"{self.source} --table '{self.table}' --from {self.day}.",
            )
        return {"day_before": self._day_before(), "table": table, "rules": self._rules()}

    def _day_of_table(self) -> int | None:
        of_table = self.of_table
        return of_table.made_as(self.day) if of_table and self.day in of_table.tags else None

    def _day_before(self) -> int | None:
        if self.day <= self.start:
            return None
        made = self.state.day_before(self.day) if self.state else None
        if made is None:
            raise self.missing(self.day - timedelta(days=1))
        return made

    def missing(self, day: date) -> MissingDayError:
        """The error of an earlier day that this one can't be made without."""
        first = self.start
        tags = self.state.tags if self.state else {}
        if self.state is None or not self.state.is_expired(day):
            while first in tags:
                first += timedelta(days=1)
        return MissingDayError(
            f"the history of {self.source}.{self.table}",
            day,
            f"Make it first: cdc-assets run --source {self.source} --table '{self.table}' "
            f"--from {first} --to {self.day}.",
        )

    def _rules(self) -> str:
        rules = [HISTORY_VERSION, self.settings.model_dump(mode="json")]
        return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def text(self) -> str:
        """The inputs as the day's snapshot records them."""
        return json.dumps(self.values, sort_keys=True)

    @property
    def summary(self) -> Mapping[str, str]:
        """The summary of the published day; empty where there is none."""
        return self.state.day_summary(self.day) if self.state else {}

    @property
    def is_up_to_date(self) -> bool:
        """Whether the published day was made of the same."""
        return self.summary.get(INPUTS) == self.text

    @property
    def is_of_what_is_there(self) -> bool:
        """Whether the published day was made of the table's day as it is now, whatever the rules.

        The schedule asks: rules that changed are no reason to request a day.
        """
        made_of = self.state.made_of(self.day) if self.state else {}
        try:
            before = self._day_before()
        except MissingDayError:
            return False
        return bool(made_of) and (made_of.get("day_before"), made_of.get("table")) == (
            before,
            self._day_of_table(),
        )

    @property
    def outdated(self) -> list[date]:
        """Published days before this one whose day of the table was made again since.

        They are made again first, the oldest first.
        """
        if self.state is None or self.of_table is None:
            return []
        earlier = sorted(d for d in self.state.tags if self.start <= d < self.day)
        made = self.of_table
        return [
            d
            for d in earlier
            if d in made.tags and self.state.made_of(d).get("table") != made.made_as(d)
        ]
