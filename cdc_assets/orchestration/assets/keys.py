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
from cdc_assets.cdc.derived.findings import ALL_CHECKS
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.stages.contract import Stage
from cdc_assets.cdc.stages.derived import DerivedStage
from cdc_assets.cdc.state import findings as state
from cdc_assets.cdc.verification.findings import MATCHES_SOURCE

_JOINT = "__"  # also joins a database and its schema
# An underscore stays unless it could be read as part of a joint or a code.
_TO_CODE = re.compile(r"[^A-Za-z0-9_]|_(?![A-Za-z0-9])|_(?=x[0-9A-F])")
# An end that Dagster would read as the name of a check.
_CHECKS = "|".join(check.name for check in (*state.CHECKS, *ALL_CHECKS, MATCHES_SOURCE))
_BEFORE_CHECK = re.compile(rf"_(?=(?:{_CHECKS})\Z)")

PARSED = ("changes", "control", "quarantine")
STAGES = ("landing", *PARSED, "lag")


def table_key(source: str, table: str, kind: str | None = None) -> dg.AssetKey:
    """``[source, schema, table]``, unique also in the names that Dagster derives from it.

    All but letters, digits and single underscores is encoded: `order-items` is `order_x2D_items`.
    A schema with its database, `sales__dbo`, stays, and so does the end of a derived table's name,
    which is its `kind`.
    """
    parts = TableName.parse(table)
    schema = _JOINT.join(map(_coded, parts.namespace.split(_JOINT)))
    name = _BEFORE_CHECK.sub(_code("_"), _coded(parts.table))
    return dg.AssetKey([source, schema, f"{name}{_JOINT}{kind}" if kind else name])


def asset_key(source: str, table: str) -> dg.AssetKey:
    """The key of a stage's table or of a state table."""
    return dg.AssetKey([source, table]) if table in STAGES else table_key(source, table)


def stage_key(stage: Stage[Any], table: str) -> dg.AssetKey:
    """The key of a table that a stage makes."""
    if isinstance(stage, DerivedStage):
        return table_key(stage.source, stage.of, stage.kind.name)
    return asset_key(stage.source, table)


def _coded(part: str) -> str:
    return _TO_CODE.sub(lambda found: _code(found[0]), part)


def _code(character: str) -> str:
    return f"_x{ord(character):X}_"


def asset_keys(source: str, config: Config) -> list[dg.AssetKey]:
    """All assets of a source."""
    return [
        *(asset_key(source, stage) for stage in STAGES),
        *(
            key
            for table in config.sources[source].tables
            for key in keys_of_table(source, table, config)
        ),
    ]


def keys_of_table(source: str, table: str, config: Config) -> list[dg.AssetKey]:
    """A table, and those that are derived from it."""
    kinds = config.sources[source].tables[table].derived
    return [table_key(source, table), *(table_key(source, table, kind) for kind in kinds)]
