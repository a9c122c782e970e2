"""What a day of a derived table is made of: metadata alone, no Spark."""

from __future__ import annotations

import hashlib
import json
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.lake.published_day import PublishedDay
from cdc_assets.cdc.names import FEED, HISTORY

_DAY = timedelta(days=1)
# Raised when the making of days changes, so that days made before are made again.
_VERSIONS = {HISTORY: 2, FEED: 1}


class DerivedInputs(PublishedDay):
    """The snapshots and rules that a day of a derived table is made of.

    Args:
        config: cdc.yaml.
        source: the source's name in it.
        table: the name of the table that it is derived from.
        kind: the kind of the derived table.
        day: the day.
        of_table: the metadata of the table; None where there is none yet.
        state: that of the derived table; None where there is none yet.
    """

    def __init__(
        self,
        config: Config,
        source: str,
        table: str,
        kind: str,
        day: date,
        of_table: TableState | None,
        state: TableState | None,
    ) -> None:
        super().__init__(config, source, table, day, state)
        self.kind, self.of_table = kind, of_table

    @property
    def label(self) -> str:
        """The derived table in messages."""
        return f"the {self.kind} of {self.source}.{self.table}"

    @property
    def is_first(self) -> bool:
        """Whether the day is the first one: a feed may begin on any day.

        A history begins on the table's first day, or on the first one that has not expired.
        """
        if self.day <= self.start:
            return True
        days = self.state.tags if self.state else {}
        if (self.state and self.state.expired) or any(d < self.day for d in days):
            return False
        return self.kind == FEED or self._is_expired(self.day - _DAY)

    def begins_later(self, first: date) -> bool:
        """Whether a history was not there before a day, although its table was.

        Args:
            first: the first day whose events are read.
        """
        before = first - _DAY
        if self.kind != HISTORY or before < self.start:
            return False
        made = self.state
        return self.is_first or made is None or not (before in made.tags or made.expired)

    @property
    def can_be_made(self) -> bool:
        """False where the day of the table has expired; of a feed also the day before."""
        led_from = self.day - _DAY if self.kind == FEED and self.day > self.start else self.day
        return not self._is_expired(led_from)

    def _is_expired(self, day: date) -> bool:
        return self.of_table is not None and self.of_table.is_expired(day)

    @cached_property
    def values(self) -> dict[str, Any]:
        """As :attr:`PublishedDay.values`: the day before, the table's day, and the rules."""
        return {**self.parents(), "rules": self._rules()}

    def parents(self) -> dict[str, Any]:
        """The day before and the table's day, as they are now."""
        return {"table": self._day_of_table(), "day_before": self._day_before()}

    def _day_of_table(self) -> int:
        made = self.of_table
        if made is None or self.day not in made.tags:
            raise self._missing_of_table(self.day, "is made from it")
        if self.kind == FEED and self.day > self.start:
            # Its changes lead from one day to the next.
            if not self.can_be_made:
                raise self._missing_of_table(self.day - _DAY, "begins behind it")
            if made.made_of(self.day).get("day_before") != made.day_before(self.day):
                raise self._missing_of_table(self.day, "is made from it, and it is outdated")
        return made.made_as(self.day)

    def _missing_of_table(self, day: date, why: str) -> MissingDayError:
        return MissingDayError(
            f"{self.source}.{self.table}",
            day,
            f"Its {self.kind} {why}. Make it first: cdc-assets run --source {self.source} "
            f"--table '{self.table}' --from {day}.",
        )

    def _day_before(self) -> int | None:
        if self.is_first:
            return None
        made = self.state.day_before(self.day) if self.state else None
        if made is None:
            raise self.missing(self.day - _DAY)
        return made

    def missing(self, day: date) -> MissingDayError:
        """The error of an earlier day that this one can't be made without."""
        first = self.start
        tags = self.state.tags if self.state else {}
        if self.state is None or not self.state.is_expired(day):
            while first < day and (first in tags or self._is_expired(first)):
                first += _DAY
        return MissingDayError(
            self.label,
            day,
            f"Make it first: cdc-assets run --source {self.source} --table '{self.table}' "
            f"--from {first} --to {self.day}.",
        )

    def _rules(self) -> str:
        rules: list[Any] = [_VERSIONS[self.kind]]
        if self.kind == HISTORY and (history := self.settings.tables[self.table].history):
            rules.append(history.model_dump(mode="json"))
        return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]

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
