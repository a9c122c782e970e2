"""What the assets of a source are called."""

from __future__ import annotations

import re

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.names import TableName

PARSED = ("changes", "control", "quarantine")
STAGES = ("landing", *PARSED, "lag")


def table_key(name: str, table: str) -> dg.AssetKey:
    """``[source, schema, table]``; characters that Dagster's names can't hold are coded."""
    parts = TableName.parse(table)
    return dg.AssetKey([name, *(_part(p) for p in parts)])


def key_of(name: str, stage: str) -> dg.AssetKey:
    """The asset of a stage or of a table."""
    return dg.AssetKey([name, stage]) if stage in STAGES else table_key(name, stage)


def _part(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-]", lambda m: f"_x{ord(m.group()):X}_", part)


def asset_keys(name: str, config: Config) -> list[dg.AssetKey]:
    """All assets of a source."""
    stages = [dg.AssetKey([name, stage]) for stage in STAGES]
    return [*stages, *(table_key(name, table) for table in config.sources[name].tables)]
