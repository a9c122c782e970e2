"""Where each record goes: changes, control or quarantine, under which key."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from cdc_assets.cdc.changes.keys import KeyShapes, Shape, with_canonical_keys
from cdc_assets.cdc.changes.message_schemas import KnownSchemas
from cdc_assets.cdc.changes.parse import IDENTITY
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.sqltext import case, is_one_of, with_replaced

DESTINATIONS = ("changes", "control", "quarantine")
_DESTINATION = case(
    ("reason IS NOT NULL", "'quarantine'"),
    ("kind = 'row' OR (kind = 'tombstone' AND op = 'd')", "'changes'"),
    otherwise="'control'",
)


def route(
    parsed: DataFrame,
    source: SourceConfig,
    keys: KeyShapes,
    schemas: KnownSchemas,
    verdicts: DataFrame | None,
    misfits: Mapping[Shape, str] | None = None,
) -> DataFrame:
    """Give every parsed record its canonical keys and its destination.

    Args:
        parsed: as :func:`parse` gives it.
        keys: :func:`key_shapes` of these records.
        verdicts: of their tombstones (:func:`judge_tombstones`); None where there are none.
        misfits: of these keys (:func:`judge_keys`).

    Returns:
        The records with `key, old_key, new_key`, the final `reason`, `detail`, `op` and
        `table_name`, and `destination`: changes, control or quarantine.
    """
    shapes, settled = set(keys.shapes), parsed
    if verdicts is not None:
        settled = _with_verdicts(parsed, verdicts, source)
        shapes.update(keys.of_tombstones(source.tables))
    keyed = with_canonical_keys(settled, source, sorted(shapes, key=str), schemas, misfits or {})
    return keyed.extend({"destination": _DESTINATION}).plan()


def _with_verdicts(parsed: DataFrame, verdicts: DataFrame, source: SourceConfig) -> DataFrame:
    """Give each tombstone its table and op: control, or the delete of a row."""
    joined = parsed.join(verdicts, list(IDENTITY), "left")
    is_tombstone = "kind = 'tombstone'"
    is_lone = f"({is_tombstone} AND reason IS NULL AND NOT coalesce(follows_delete, false))"
    no_table = f"{is_lone} AND tombstone_table IS NULL"
    # O14: nothing says which row of a table without a key it deletes.
    unkeyed = [name for name, table in source.tables.items() if table.key in ("none", "row")]
    of_unkeyed = f"({is_lone} AND {is_one_of('tombstone_table', unkeyed)})"
    configured = is_one_of("tombstone_table", source.tables)
    no_key = f"({is_lone} AND key_raw IS NULL AND {configured})"
    reason = case(
        (no_table, "'missing_table'"),
        (f"{of_unkeyed} OR ({no_key} AND message_key IS NULL)", "'missing_key'"),
        (no_key, "'malformed_key'"),
    )
    detail = case(
        (no_table, "'a lone tombstone on a topic of no table, or of several'"),
        (of_unkeyed, "'a lone tombstone of a table without a key'"),
        (no_key, "'a lone tombstone without a readable key'"),
    )
    return with_replaced(
        joined,
        {
            "reason": f"coalesce(reason, {reason})",
            "detail": f"coalesce({detail}, detail)",
            "op": case((is_lone, "'d'"), (is_tombstone, "'tombstone'"), otherwise="op"),
            "table_name": case((is_tombstone, "tombstone_table"), otherwise="table_name"),
            "is_snapshot": case((is_tombstone, "false"), otherwise="is_snapshot"),
        },
    ).drop("follows_delete", "tombstone_table")
