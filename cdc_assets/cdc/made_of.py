"""What each day was made of, and whether that is still what is there: metadata alone, no Spark.

One answer a stage. Runs ask before they make a day, the schedule and the sensors before they
request one, steps before they are recorded as they were, checks and `doctor` to name what stands
behind. A stage's days are given as :class:`DayCommit`, which Spark's lake and PyIceberg both read.
Of a table, :class:`cdc_assets.cdc.state.day_inputs.DayInputs` answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.lake.commits import DayCommit

Days = Mapping[date, DayCommit]

# Raised when the reading of records changes, so that days made before are made again.
READER_VERSION = 8
FACTS = "facts"
LOST = "lost"  # of a landed day: what its files no longer had, and `--allow-loss` gave up
# The tables that one pass over the landing fills, in the order of their commits.
PARSED = ("quarantine", FACTS, "control", "changes")
_NOT_MADE = DayCommit(0)
_DAY = timedelta(days=1)


# -- landing -------------------------------------------------------------------------------------


def not_landed(landed: Days, files: Mapping[date, str]) -> list[date]:
    """The days whose files are not those that landed.

    Args:
        landed: the days of `landing`.
        files: for each day the fingerprint of the files that are there now.
    """
    return [
        day
        for day, found in files.items()
        if landed.get(day, _NOT_MADE).inputs.get("files") != found
    ]


def not_closed(landed: Days, days: Iterable[date]) -> list[date]:
    """The days of Kafka that have not landed, or while they were open: more may have come since."""
    return [day for day in days if not landed.get(day, _NOT_MADE).inputs.get("closed", False)]


# -- changes, control, quarantine ----------------------------------------------------------------


def of_changes(config: Config, name: str, landed: Days, day: date) -> dict[str, Any]:
    """What changes(day) is made of: the landings' snapshots and the rules of reading.

    Raises:
        MissingDayError: the day has no landing.
    """
    if day not in landed:
        raise MissingDayError(
            f"{name}.landing",
            day,
            f"Materialize it first: cdc-assets run --source {name} "
            f"--from {day} --to {day}, or the asset {name}/landing.",
        )
    return {**_landings(landed, day), "rules": rules_fingerprint(config, name)}


def _landings(landed: Days, day: date) -> dict[str, Any]:
    """Of tombstones the day before is read as well."""
    return {
        "landing": landed[day].snapshot_id,
        "landing_before": landed[day - _DAY].snapshot_id if day - _DAY in landed else None,
    }


def stale_changes(
    config: Config, name: str, landed: Days, made: Mapping[str, Days], days: Iterable[date]
) -> list[date]:
    """The days whose changes a run makes: of another landing, or by other rules.

    Args:
        config: cdc.yaml.
        name: the source.
        landed: the days of `landing`.
        made: the days of each of :data:`PARSED`.
        days: those asked about.

    Raises:
        MissingDayError: a day has no landing.
    """
    inputs = {day: of_changes(config, name, landed, day) for day in days}
    return [
        day
        for day, expected in inputs.items()
        if any(made[table].get(day, _NOT_MADE).inputs != expected for table in PARSED)
    ]


def older_than_landing(landed: Days, made: Days) -> list[date]:
    """The landed days whose changes are not made of what has landed, whatever the rules.

    Rules that changed are no reason to request a day: what earlier ones made stands until somebody
    makes it again. A day whose landed records maintenance has removed can't be made again.

    Args:
        landed: the days of `landing`.
        made: the days of `changes`, which is written last.
    """
    return [
        day
        for day in sorted(landed)
        if not _landings(landed, day).items() <= made.get(day, _NOT_MADE).inputs.items()
        and not any(landed.get(of, _NOT_MADE).removed is not None for of in (day, day - _DAY))
    ]


def made_by_other_rules(config: Config, name: str, made: Days) -> list[date]:
    """The days whose changes an older version or configuration made, oldest first.

    Args:
        config: cdc.yaml.
        name: the source.
        made: the days of `changes`.
    """
    rules = rules_fingerprint(config, name)
    return sorted(day for day, commit in made.items() if commit.inputs.get("rules") != rules)


def rules_fingerprint(config: Config, name: str) -> str:
    """Changes with everything in the configuration that decides how a record is read."""
    source = config.source(name)
    tables = {n: [t.key, t.replica_identity, t.columns] for n, t in sorted(source.tables.items())}
    resets = [instant.isoformat() for instant in source.resets]
    rules: list[Any] = [READER_VERSION, source.format, resets, tables, source.unavailable_value]
    if source.landing.registry is not None:
        rules.append("registry")
    if source.has_databases:
        rules.append("databases")
    if source.format_settings:
        rules.append(source.format_settings)
    if source.emptied_by_statements:
        rules.append(["emptied", *source.emptied_by_statements])
    if source.is_protected:
        hidden = {n: [sorted(t.exclude), sorted(t.hash)] for n, t in sorted(source.tables.items())}
        rules += [hidden, config.hash_salt]
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]


# -- lag -----------------------------------------------------------------------------------------


def of_lag(config: Config, name: str, made: Days, day: date) -> dict[str, Any]:
    """What lag(day) is made of: the snapshot of its changes, and whether the day was over.

    Raises:
        MissingDayError: the day has no changes.
    """
    if day not in made:
        raise MissingDayError(
            f"{name}.changes",
            day,
            f"Materialize it first: cdc-assets run --source {name} --from {day} --to {day}.",
        )
    return {"changes": made[day].snapshot_id, "complete": not config.is_open(day)}


def stale_lag(config: Config, name: str, made: Days, lag: Days, days: Iterable[date]) -> list[date]:
    """The days whose lag a run makes.

    Args:
        config: cdc.yaml.
        name: the source.
        made: the days of `changes`.
        lag: the days of `lag`.
        days: those asked about.

    Raises:
        MissingDayError: a day has no changes.
    """
    inputs = {day: of_lag(config, name, made, day) for day in days}
    return [day for day, expected in inputs.items() if lag.get(day, _NOT_MADE).inputs != expected]


# -- all of them ---------------------------------------------------------------------------------


def complete_days(landed: Days, made: Days, lag: Days) -> set[date]:
    """The days that the schedule does not request: made of what has landed, after their end.

    A day that was made before its end is not complete: more may have landed.
    """
    older = set(older_than_landing(landed, made))
    return {
        day
        for day, commit in made.items()
        if day not in older
        # Files have no mark of a closed day; the lag, which is made last, says so for both.
        and landed.get(day, _NOT_MADE).inputs.get("closed", True)
        and lag.get(day, _NOT_MADE).inputs == {"changes": commit.snapshot_id, "complete": True}
    }
