"""Tables by pattern: what the lake has seen of a source and a pattern of cdc.yaml matches.

The names are those in the table `facts`, which has a few rows per table and day. They are read
without Spark, and not at all where the configuration has no pattern.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cdc_assets.cdc.config import OWN_ASSETS, Config, SourceConfig, TableConfig
from cdc_assets.cdc.errors import MissingTableError, first_line
from cdc_assets.cdc.names import TableName

if TYPE_CHECKING:
    from pyiceberg.table import Table

log = logging.getLogger(__name__)

# Once a table is adopted, records without a usable key leave `changes`; it stays adopted.
_SEEN = "destination = 'changes' OR reason IN ('missing_key', 'malformed_key')"
# A snapshot never changes: a process reads each one once.
_names: dict[tuple[str, int], frozenset[str]] = {}


def with_adopted_tables(config: Config) -> Config:
    """The configuration with the tables that its patterns adopt, each under its exact name.

    Tables that are listed already keep their settings. Where the lake can't be read, a warning is
    logged and nothing is adopted.
    """
    sources = {
        name: _adopting(source, _seen(config, name)) if source.adopts_tables else source
        for name, source in config.sources.items()
    }
    return config.model_copy(update={"sources": sources})


def _adopting(source: SourceConfig, seen: Iterable[str]) -> SourceConfig:
    adopted: dict[str, TableConfig] = {}
    for table in sorted(set(seen) - source.tables.keys()):
        settings = source.table_patterns.get(source.pattern_of(table) or "")
        if settings is None:
            continue
        if TableName.parse(table).namespace in OWN_ASSETS:
            log.warning(
                "%s matches a pattern and is not adopted: its namespace is the name of one of the "
                "source's own tables",
                table,
            )
            continue
        adopted[table] = settings
    return source.model_copy(update={"tables": {**source.tables, **adopted}})


def _seen(config: Config, name: str) -> frozenset[str]:
    try:
        return seen_tables(config, name)
    except Exception as error:  # of as many libraries as there are catalogs
        log.warning(
            "sources.%s.tables: no table is adopted by pattern, because the lake can't be read: %s",
            name,
            first_line(error),
        )
        return frozenset()


def seen_tables(config: Config, name: str) -> frozenset[str]:
    """The tables whose events `changes` of a source has, by name; none where there is no lake yet.

    Raises:
        LakeError: the catalog or the table's metadata can't be read.
        ConfigError: the catalog can't be read without Spark.
    """
    from cdc_assets.cdc.lake import pyiceberg_reads as reads

    try:
        facts = reads.open_table(config, reads.own_table(name, "facts"))
    except MissingTableError:
        return frozenset()
    snapshot = facts.current_snapshot()
    if snapshot is None:
        return frozenset()
    known = (facts.location(), snapshot.snapshot_id)
    if known not in _names:
        _names[known] = _names_of(facts)
    return _names[known]


def _names_of(facts: Table) -> frozenset[str]:
    rows = facts.scan(row_filter=_SEEN, selected_fields=("table_name",)).to_arrow()
    return frozenset(filter(None, rows["table_name"].unique().to_pylist()))
