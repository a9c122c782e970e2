"""What a day of a table is made of, and whether it is up to date: metadata alone, no Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from cdc_assets.cdc.changes.inputs import changes_inputs, rules_fingerprint
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import ConfigError, MissingDayError
from cdc_assets.cdc.lake.commits import DayCommit, TableState
from cdc_assets.cdc.lake.published_day import PublishedDay
from cdc_assets.cdc.state.judge import TABLE as EPOCHS
from cdc_assets.cdc.state.source_context import pair_window_of

# Raised when the making of days changes, so that days made before are made again.
MERGER_VERSION = 9


class DayInputs(PublishedDay):
    """The snapshots and rules that a day of a table is made of.

    Args:
        config: cdc.yaml.
        source: the name of the source in cdc.yaml.
        table: the table's name in the configuration.
        day: the day.
        commits: for each stage table its days.
        state: what the table's metadata says, None where there is no table yet.
    """

    def __init__(
        self,
        config: Config,
        source: str,
        table: str,
        day: date,
        commits: Mapping[str, Mapping[date, DayCommit]],
        state: TableState | None,
    ) -> None:
        super().__init__(config, source, table, day, state)
        self.commits = commits

    @cached_property
    def values(self) -> dict[str, Any]:
        """The snapshots and rules: a day that was made of the same ones is up to date.

        Raises:
            ConfigError: the table starts later than a day that is made already.
            MissingDayError: the day before, or the day's changes, are not there yet.
        """
        self._check_start()
        expected = changes_inputs(self.config, self.source, self.commits["landing"], self.day)
        for table in ("quarantine", "control", "changes"):
            if self.commits[table].get(self.day, DayCommit(0)).inputs != expected:
                raise MissingDayError(
                    f"{self.source}.{table}",
                    self.day,
                    "It is missing, or older than its landing. Materialize it first: "
                    f"cdc-assets run --source {self.source} --from {self.day} --to {self.day}.",
                )
        found = {**self.parents(), "rules": self._rules()}
        # Most sources have one server all their life.
        return {**found, "epochs": epochs} if (epochs := self.epochs_on(self.day)) else found

    def parents(self) -> dict[str, Any]:
        """The day before and the changes, as they are now."""
        days = [*pair_window_of(self.config, self.source, self.day), self.day]
        made = self.commits["changes"]
        return {
            "day_before": self._day_before(),
            "changes": {str(day): made[day].snapshot_id for day in days if day in made},
        }

    def epochs_on(self, day: date) -> dict[str, Any]:
        """What is known of epochs that had begun by the end of a day (O11); empty: there is one."""
        if not self.settings.finds_epochs or not self.commits[EPOCHS]:
            return {}
        found = self.commits[EPOCHS][max(self.commits[EPOCHS])].inputs["found"]
        end = int(self.config.end_of(day).timestamp() * 1000)
        begun = [begin for begin in found.get("begins", []) if begin[1] < end]
        streams = found.get("streams", {}).get(self.table, {})
        known = {
            "begins": begun,
            "streams": {name: first for name, first in streams.items() if first < end},
        }
        return {name: value for name, value in known.items() if value}

    @property
    def outdated(self) -> list[date]:
        """Published days before this one that were made before an epoch was found to begin there.

        They are made again first, the oldest first.
        """
        if self.state is None or not self.settings.finds_epochs or not self.commits[EPOCHS]:
            return []
        tags = sorted(day for day in self.state.tags if self.start <= day < self.day)
        return [d for d in tags if self.state.made_of(d).get("epochs", {}) != self.epochs_on(d)]

    @property
    def rules_changed(self) -> bool:
        """Whether the day was made before, by other rules: an older version or configuration."""
        state = self.state
        made_of = state.made_of(self.day) if state and self.day in state.tags else {}
        return bool(made_of) and made_of.get("rules") != self._rules()

    def missing(self, day: date) -> MissingDayError:
        """The error of an earlier day that this one can't be made without."""
        if self.state and self.state.is_expired(day):
            return MissingDayError(
                f"{self.source}.{self.table}",
                day,
                f"It has expired (keep_days: {self.settings.keep_days}), and {self.day} can't be "
                "made without it. What was made stays as it is; to rebuild the table from its "
                f"first day: cdc-assets run --source {self.source} --table '{self.table}' "
                f"--from {self.start} --to {max(self.state.tags)}.",
            )
        missing, tags = self.start, self.state.tags if self.state else {}
        while missing in tags:
            missing += timedelta(days=1)
        return MissingDayError(
            f"{self.source}.{self.table}", day, f"Materialize it first, or run --from {missing}."
        )

    def _check_start(self) -> None:
        """A later start would leave days that no run can make again."""
        made = sorted(self.state.tags) if self.state else []
        if made and made[0] < self.start:
            raise ConfigError(
                [
                    f"{self.source}.{self.table}: start_date {self.start} is later than {made[0]}, "
                    f"which is made already. Set start_date: {made[0]}, or drop the table first"
                ]
            )

    def _day_before(self) -> int | None:
        if self.day <= self.start:
            return None
        made = self.state.day_before(self.day) if self.state else None
        if made is None:
            raise self.missing(self.day - timedelta(days=1))
        return made

    def _rules(self) -> str:
        rules = [
            MERGER_VERSION,
            rules_fingerprint(self.config, self.source),
            self.settings.missing_columns,
            self.settings.on_type_change,
            self.settings.unavailable_value,
            self.settings.late_days,
            self.settings.tables[self.table].rename,
        ]
        if self.settings.on_resnapshot == "replace":
            rules.append([self.settings.on_resnapshot, self.settings.resnapshot_remove_percent])
        return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]
