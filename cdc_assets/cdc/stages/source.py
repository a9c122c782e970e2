"""All stages of a source, in the order in which data flows."""

from __future__ import annotations

from typing import Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.cdc.stages.contract import Stage
from cdc_assets.cdc.stages.history import HistoryStage
from cdc_assets.cdc.stages.lag import LagStage
from cdc_assets.cdc.stages.landing import LandingStage
from cdc_assets.cdc.stages.tables import TableStage


def source_stages(config: Config, source: str) -> list[Stage[Any]]:
    """Landing, changes and lag, each table, and each history."""
    settings = config.source(source)
    return [
        LandingStage(config, source),
        ChangesStage(config, source),
        LagStage(config, source),
        *(TableStage(config, source, table) for table in settings.tables),
        *(HistoryStage(config, source, table) for table in settings.histories),
    ]
