"""Opens the tables that a source lands from."""

from __future__ import annotations

from cdc_assets.cdc.config import Config, PathTableConfig
from cdc_assets.cdc.landing.iceberg_tables import iceberg_tables
from cdc_assets.cdc.landing.path_tables import path_table
from cdc_assets.cdc.landing.source_tables import REDPANDA, SourceTable, timestamp_column


def open_tables(config: Config, source: str) -> list[SourceTable]:
    """The tables that `landing.table` of a source names, in the order of their names.

    Raises:
        LandingError: there is none, its catalog or folder can't be read, or it lacks the timestamp.
    """
    landing = config.source(source).landing
    column = timestamp_column(landing.layout == REDPANDA, landing.columns)
    if isinstance(landing.table, PathTableConfig):
        return [path_table(source, landing.table, column)]
    return [*iceberg_tables(config, source, column)]
