"""The inputs of a day of changes: the landings' snapshots and the rules of reading."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.lake.commits import DayCommit

# Increased when the reading of records changes: days made before are made again.
READER_VERSION = 8
FACTS = "facts"
# The tables that one pass over the landing fills, in the order of their commits.
PARSED = ("quarantine", FACTS, "control", "changes")
_DAY = timedelta(days=1)

Landed = Mapping[date, DayCommit]


def changes_inputs(config: Config, source: str, landed: Landed, day: date) -> dict[str, Any]:
    """The inputs of a day of changes, as its commits record them.

    Args:
        config: cdc.yaml.
        source: the source.
        landed: the days of `landing`.
        day: the day.

    Raises:
        MissingDayError: the day has no landing.
    """
    if day not in landed:
        raise MissingDayError(
            f"{source}.landing",
            day,
            f"Materialize it first: cdc-assets run --source {source} "
            f"--from {day} --to {day}, or the asset {source}/landing.",
        )
    return {**landing_snapshots(landed, day), "rules": rules_fingerprint(config, source)}


def landing_snapshots(landed: Landed, day: date) -> dict[str, Any]:
    """The landings that a day reads: its own, and for tombstones that of the day before."""
    return {
        "landing": landed[day].snapshot_id,
        "landing_before": landed[day - _DAY].snapshot_id if day - _DAY in landed else None,
    }


def rules_fingerprint(config: Config, source: str) -> str:
    """A hash of everything in the configuration that decides how a record is read."""
    settings = config.source(source)
    tables = {n: [t.key, t.replica_identity, t.columns] for n, t in sorted(settings.tables.items())}
    resets = [instant.isoformat() for instant in settings.resets]
    rules: list[Any] = [READER_VERSION, settings.format, resets, tables, settings.unavailable_value]
    if settings.landing.registry is not None:
        rules.append("registry")
    if settings.has_databases:
        rules.append("databases")
    if settings.format_settings:
        rules.append(settings.format_settings)
    if settings.emptied_by_statements:
        rules.append(["emptied", *settings.emptied_by_statements])
    if settings.has_leaves:
        entries = {n: e and [e.into, e.add] for n, e in settings.table_patterns.items()}
        rules.append(["into", list(entries.items())])
    if settings.is_protected:
        hidden = {
            n: [sorted(t.excluded), sorted(t.hashed)] for n, t in sorted(settings.tables.items())
        }
        rules += [hidden, config.hash_salt]
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]
