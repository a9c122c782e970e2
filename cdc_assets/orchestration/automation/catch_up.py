"""The ended days that the lake lacks, and the runs that make them; without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake.metadata import LakeMetadata, PyIcebergMetadata
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.cdc.stages.contract import Stage
from cdc_assets.cdc.stages.lag import LagStage
from cdc_assets.cdc.stages.landing import LandingStage
from cdc_assets.cdc.stages.source import stages_of_table
from cdc_assets.orchestration.assets.keys import STAGES, asset_key, keys_of_table

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class CatchUp:
    """A run: days of a source, made in order, and the assets that lack them."""

    first: date
    last: date
    assets: tuple[dg.AssetKey, ...]
    is_behind: bool = False


def catch_up_runs(config: Config, source: str, ended: date) -> list[CatchUp]:
    """The runs that make the missing days of a source, oldest first.

    A run covers at most `automation.catch_up_days` days. Assets share a run, except tables so far
    behind that the run would not reach the newest days: those get runs of their own, so that a
    table that fails every night delays no other.

    Args:
        config: cdc.yaml.
        source: the source.
        ended: the newest day to make.

    Raises:
        LakeError: the catalog can't be read.
    """
    span = timedelta(days=config.automation.catch_up_days)
    stages, tables = missing_since(config, source, ended)
    newest = stages or ended + _DAY
    together = {table: day for table, day in tables.items() if day > newest - span}
    runs = []
    if stages or together:
        first = min([newest, *together.values()])
        made = tuple(asset_key(source, stage) for stage in (STAGES if stages else ()))
        assets = (*made, *_keys(config, source, together))
        runs.append(CatchUp(first, min(first + span - _DAY, ended), assets))
    behind: dict[date, list[str]] = defaultdict(list)
    for table, day in tables.items():
        if table not in together:
            behind[day].append(table)
    for first, late_tables in sorted(behind.items()):
        keys = _keys(config, source, late_tables)
        runs.append(CatchUp(first, first + span - _DAY, keys, is_behind=True))
    return runs


def _keys(config: Config, source: str, tables: Iterable[str]) -> tuple[dg.AssetKey, ...]:
    """The assets of some tables, and of those that are derived from them."""
    return tuple(key for table in tables for key in keys_of_table(source, table, config))


def missing_since(config: Config, source: str, ended: date) -> tuple[date | None, dict[str, date]]:
    """The oldest missing day of a source's stages, and of each table that lacks one.

    A day that was made before its end counts as missing: more may have landed.
    """
    lake = PyIcebergMetadata(config)
    settings = config.sources[source]
    stages = (LandingStage(config, source), ChangesStage(config, source), LagStage(config, source))
    tables = {
        table: _oldest_missing(
            lake, stages_of_table(config, source, table), config.start_of(source, table), ended
        )
        for table in settings.tables
    }
    return (
        _oldest_missing(lake, stages, config.start_date, ended),
        {table: day for table, day in tables.items() if day is not None},
    )


def _oldest_missing(
    lake: LakeMetadata, stages: Sequence[Stage[Any]], first: date, last: date
) -> date | None:
    days = (first + n * _DAY for n in range((last - first).days + 1))
    missing = (day for day in days if not all(stage.is_complete(lake, day) for stage in stages))
    return next(missing, None)
