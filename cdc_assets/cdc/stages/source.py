"""All stages of a source, in the order in which data flows."""

from __future__ import annotations

from typing import Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.cdc.stages.contract import Stage
from cdc_assets.cdc.stages.derived import DERIVED_STAGES
from cdc_assets.cdc.stages.lag import LagStage
from cdc_assets.cdc.stages.landing import LandingStage
from cdc_assets.cdc.stages.one_table import OneTableStage
from cdc_assets.cdc.stages.tables import TableStage


def source_stages(config: Config, source: str) -> list[Stage[Any]]:
    """Landing, changes and lag, and the stages of each table."""
    return [
        LandingStage(config, source),
        ChangesStage(config, source),
        LagStage(config, source),
        *stages_of_tables(config, source),
    ]


def stages_of_tables(config: Config, source: str) -> list[OneTableStage[Any]]:
    """Each table of a source, followed by those that are derived from it."""
    return [
        stage
        for table in config.source(source).tables
        for stage in stages_of_table(config, source, table)
    ]


def stages_of_table(config: Config, source: str, table: str) -> list[OneTableStage[Any]]:
    """A table, and those that are derived from it."""
    kinds = config.source(source).tables[table].derived
    derived = (DERIVED_STAGES[kind](config, source, table) for kind in kinds)
    return [TableStage(config, source, table), *derived]
