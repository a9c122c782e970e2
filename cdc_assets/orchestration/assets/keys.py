"""What the assets of a source are called.

Dagster makes the names of a step's outputs out of asset keys: it joins the parts by `__`, writes
`-` and `.` as `_`, and appends the names of checks. Two keys that come to one such name are refused
with all other definitions, so that the coding here leaves no two tables with one name.
"""

from __future__ import annotations

import re

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.state.findings import CHECKS

_JOINT = "__"  # of Dagster, and of a database and its schema
# An underscore stays where neither a joint nor a code can be read into it.
_TO_CODE = re.compile(r"[^A-Za-z0-9_]|_(?![A-Za-z0-9])|_(?=x[0-9A-F])")
# Behind a table's name Dagster would read the name of a check.
_BEFORE_CHECK = re.compile(rf"_(?=(?:{'|'.join(check.name for check in CHECKS)})\Z)")

PARSED = ("changes", "control", "quarantine")
STAGES = ("landing", *PARSED, "lag")


def table_key(name: str, table: str) -> dg.AssetKey:
    """``[source, schema, table]``; no other table has it, and none the names that Dagster makes.

    Characters but letters, digits and single underscores are coded: `order-items` is
    `order_x2D_items`. A schema of a database, `sales__dbo`, stays as it is.
    """
    parts = TableName.parse(table)
    schema = _JOINT.join(map(_coded, parts.namespace.split(_JOINT)))
    return dg.AssetKey([name, schema, _BEFORE_CHECK.sub(_code("_"), _coded(parts.table))])


def asset_key(name: str, stage: str) -> dg.AssetKey:
    """The asset of a stage or of a table."""
    return dg.AssetKey([name, stage]) if stage in STAGES else table_key(name, stage)


def _coded(part: str) -> str:
    return _TO_CODE.sub(lambda found: _code(found[0]), part)


def _code(character: str) -> str:
    return f"_x{ord(character):X}_"


def asset_keys(name: str, config: Config) -> list[dg.AssetKey]:
    """All assets of a source."""
    stages = [dg.AssetKey([name, stage]) for stage in STAGES]
    return [*stages, *(table_key(name, table) for table in config.sources[name].tables)]
