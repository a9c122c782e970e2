"""The asset keys of a source.

Dagster derives a step's output names from asset keys: it joins the parts by `__`, replaces `-` and
`.` by `_`, and appends the names of checks. It refuses all definitions if two keys give one name,
so table names are encoded here.
"""

from __future__ import annotations

import re
from typing import Any

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.history import findings as history
from cdc_assets.cdc.names import HISTORY, TableName
from cdc_assets.cdc.stages.contract import Stage
from cdc_assets.cdc.stages.history import HistoryStage
from cdc_assets.cdc.state import findings as state

HISTORY_END = f"__{HISTORY}"
_JOINT = "__"  # also joins a database and its schema
# An underscore stays unless it could be read as part of a joint or a code.
_TO_CODE = re.compile(r"[^A-Za-z0-9_]|_(?![A-Za-z0-9])|_(?=x[0-9A-F])")
# An end that Dagster would read as the name of a check.
_CHECKS = "|".join(check.name for check in (*state.CHECKS, *history.CHECKS))
_BEFORE_CHECK = re.compile(rf"_(?=(?:{_CHECKS})\Z)")

PARSED = ("changes", "control", "quarantine")
STAGES = ("landing", *PARSED, "lag")


def table_key(source: str, table: str, is_history: bool = False) -> dg.AssetKey:
    """``[source, schema, table]``, unique also in the names that Dagster derives from it.

    All but letters, digits and single underscores is encoded: `order-items` is `order_x2D_items`.
    A schema with its database, `sales__dbo`, stays, and so does the end of a history's name.
    """
    parts = TableName.parse(table)
    schema = _JOINT.join(map(_coded, parts.namespace.split(_JOINT)))
    name = _BEFORE_CHECK.sub(_code("_"), _coded(parts.table))
    return dg.AssetKey([source, schema, f"{name}{HISTORY_END}" if is_history else name])


def asset_key(source: str, table: str) -> dg.AssetKey:
    """The key of a stage's table or of a state table."""
    return dg.AssetKey([source, table]) if table in STAGES else table_key(source, table)


def history_key(source: str, table: str) -> dg.AssetKey:
    """The key of a table's history; no other asset can have it (:mod:`cdc_assets.cdc.places`)."""
    return table_key(source, table, is_history=True)


def stage_key(stage: Stage[Any], table: str) -> dg.AssetKey:
    """The key of a table that a stage makes."""
    if isinstance(stage, HistoryStage):
        return history_key(stage.source, stage.of)
    return asset_key(stage.source, table)


def _coded(part: str) -> str:
    return _TO_CODE.sub(lambda found: _code(found[0]), part)


def _code(character: str) -> str:
    return f"_x{ord(character):X}_"


def asset_keys(source: str, config: Config) -> list[dg.AssetKey]:
    """All assets of a source."""
    settings = config.sources[source]
    return [
        *(asset_key(source, table) for table in (*STAGES, *settings.tables)),
        *(history_key(source, table) for table in settings.histories),
    ]
