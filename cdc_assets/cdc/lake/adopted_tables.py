"""Adopted tables: tables in the lake's events that a pattern of cdc.yaml matches.

Their names come from the table `facts`, which has a few rows per table and day. It is read without
Spark, and only if the configuration has a pattern.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cdc_assets.cdc.config import Config, SourceConfig, TableConfig
from cdc_assets.cdc.errors import MissingTableError, first_line
from cdc_assets.cdc.names import derived_name, printable
from cdc_assets.cdc.places import Places

if TYPE_CHECKING:
    from pyiceberg.table import Table

log = logging.getLogger(__name__)

# After adoption, records without a usable key go to quarantine; they still count as seen.
_SEEN = "destination = 'changes' OR reason IN ('missing_key', 'malformed_key')"
# Table names by location and snapshot; snapshots are immutable.
_names: dict[tuple[str, int], Sequence[str]] = {}


def with_adopted_tables(config: Config) -> Config:
    """The configuration with the tables that its patterns adopt, each under its exact name.

    Listed tables keep their settings. If the lake can't be read, a warning is logged and nothing is
    adopted.
    """
    places = taken_places(config)
    sources = {
        source: _adopting(source, settings, _seen(config, source), places)
        if settings.adopts_tables
        else settings
        for source, settings in config.sources.items()
    }
    return config.model_copy(update={"sources": sources})


def taken_places(config: Config) -> Places:
    """The places of the tables that a configuration lists."""
    places = config.lake.places(config.sources)
    for source, settings in config.sources.items():
        for table, kind in settings.derived:
            places.take_derived(source, table, kind)
        for table in settings.tables:
            places.take(source, table)
    return places


def _adopting(
    source: str, settings: SourceConfig, seen: Iterable[str], places: Places
) -> SourceConfig:
    adopted: dict[str, TableConfig] = {}
    # If two tables would share a place, the one seen first has it and keeps it.
    for table in seen:
        own = settings.table_patterns.get(settings.pattern_of(table) or "")
        if own is None or own.into is not None or table in settings.tables:
            continue
        names = (table, *(str(derived_name(table, kind)) for kind in own.derived))
        if fault := next(filter(None, (places.fault_of(source, name) for name in names)), None):
            message = printable(f"{source}.{table} matches a pattern and is not adopted: {fault}")
            log.warning("%s", message)
            continue
        places.take(source, table)
        for kind in own.derived:
            places.take_derived(source, table, kind)
        adopted[table] = own
    by_name = dict(sorted(adopted.items()))
    return settings.model_copy(update={"tables": {**settings.tables, **by_name}})


def _seen(config: Config, source: str) -> Sequence[str]:
    try:
        return seen_tables(config, source)
    except Exception as error:  # each catalog has a library and errors of its own
        log.warning(
            "sources.%s.tables: no table is adopted by pattern, because the lake can't be read: %s",
            source,
            first_line(error),
        )
        return ()


def seen_tables(config: Config, source: str) -> Sequence[str]:
    """The tables with events in `changes` of a source, by first day and name.

    Empty if there is no lake yet.

    Raises:
        LakeError: the catalog or the table's metadata can't be read.
        ConfigError: the catalog can't be read without Spark.
    """
    from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
    from cdc_assets.cdc.lake.tables import own_table

    try:
        facts = open_table(config, own_table(source, "facts"))
    except MissingTableError:
        return ()
    snapshot = facts.current_snapshot()
    if snapshot is None:
        return ()
    known = (facts.location(), snapshot.snapshot_id)
    if known not in _names:
        _names[known] = _names_of(facts)
    return _names[known]


def _names_of(facts: Table) -> Sequence[str]:
    columns = ("table_name", "landing_date")
    rows = facts.scan(row_filter=_SEEN, selected_fields=columns).to_arrow()
    first = rows.group_by("table_name").aggregate([("landing_date", "min")]).to_pylist()
    named = [row for row in first if row["table_name"]]
    named.sort(key=lambda row: (row["landing_date_min"], row["table_name"]))
    return [row["table_name"] for row in named]
