"""Classify parsed landing rows and route them to a destination, without a lake or a job.

The stage `changes` classifies the days of a lake, `cdc-assets inspect` a file, tests a few events.
The caller passes in what the records of earlier days say (:class:`EarlierDays`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Row

from cdc_assets.cdc.changes.key_forms import KeyForm
from cdc_assets.cdc.changes.keys import Shape, judge_keys, with_canonical_keys
from cdc_assets.cdc.changes.message_schemas import NO_SCHEMAS, KnownSchemas
from cdc_assets.cdc.changes.parse import IDENTITY
from cdc_assets.cdc.changes.reading import Reading, placed_by_kafka
from cdc_assets.cdc.changes.tombstones import classify_tombstones, history_of_keys, tables_by_topic
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.sqltext import case, is_one_of, with_replaced

DESTINATIONS = ("changes", "control", "quarantine")
_DESTINATION = case(
    ("reason IS NOT NULL", "'quarantine'"),
    ("kind = 'row' OR (kind = 'tombstone' AND op = 'd')", "'changes'"),
    otherwise="'control'",
)


@dataclass(frozen=True)
class EarlierDays:
    """What landed before the records to classify; nothing by default.

    Attributes:
        schemas: the message schemas that the source has had.
        key_forms: the form of the keys of tables before these days; None where nothing says it.
            Only :meth:`~cdc_assets.cdc.changes.reading.Reading.tables_in_doubt` need theirs.
        landing: the landing rows of the day before, in which tombstones find their deletes.
        tables: `topic, table_name, landing_date` of earlier changes.
    """

    schemas: KnownSchemas = NO_SCHEMAS
    key_forms: Mapping[str, KeyForm | None] = field(default_factory=dict)
    landing: DataFrame | None = None
    tables: DataFrame | None = None


@dataclass(frozen=True)
class Classified:
    """Records with their destinations, and the message schemas by which they were judged.

    `records` are parsed records with `key, old_key, new_key`, the final `reason`, `detail`, `op`
    and `table_name`, `destination`, and for tombstones `nearest_offset`, the offset of the nearest
    earlier record of the same key. `new_schemas` are rows of the table `schemas`.
    """

    records: DataFrame
    schemas: KnownSchemas
    new_schemas: list[Row]


def classified_tombstones(reading: Reading, earlier: EarlierDays) -> DataFrame | None:
    """The tombstones of the records, by :func:`classify_tombstones`; None without any."""
    if not reading.keys.tombstones:
        return None
    history = history_of_keys(reading, earlier.landing)
    topics = tables_by_topic(reading.parsed, earlier.tables)
    return classify_tombstones(history, topics, min(shape.day for shape in reading.keys.tombstones))


def classify(
    reading: Reading, earlier: EarlierDays, timezone: str, tombstones: DataFrame | None
) -> Classified:
    """Give every record its canonical keys and its destination: changes, control or quarantine.

    Args:
        reading: the records of some days.
        earlier: what landed before them.
        timezone: the time zone of the days.
        tombstones: :func:`classified_tombstones`, perhaps as a checkpoint.
    """
    settings, keys = reading.settings, reading.keys
    new_schemas = reading.new_schemas(earlier.schemas)
    schemas = earlier.schemas.joined(new_schemas, settings)
    misfits = judge_keys(keys, settings, schemas, earlier.key_forms)
    if unused := _used_by_misfits_alone(keys.shapes, misfits):
        # The schema of a quarantined record says nothing about its table (R3).
        new_schemas = [r for r in new_schemas if (r.table_name, r.schema_id) not in unused]
        schemas = earlier.schemas.joined(new_schemas, settings)
    records, shapes = reading.parsed, set(keys.shapes)
    if reading.is_kafka_placed:
        records = placed_by_kafka(records, timezone)
    if tombstones is None:
        records = records.selectExpr("*", "CAST(NULL AS bigint) AS nearest_offset")
    else:
        records = _with_tombstones(records, tombstones, settings)
        shapes.update(keys.tombstones_as(settings.tables))
    keyed = with_canonical_keys(records, settings, sorted(shapes, key=str), schemas, misfits)
    routed = keyed.extend({"destination": _DESTINATION}).plan()
    return Classified(routed, schemas, new_schemas)


def _used_by_misfits_alone(
    shapes: Iterable[Shape], misfits: Mapping[Shape, str]
) -> set[tuple[str, str | None]]:
    used = {(s.table_name, s.schema_id) for s in shapes if s not in misfits}
    return {(s.table_name, s.schema_id) for s in misfits} - used


def _with_tombstones(parsed: DataFrame, tombstones: DataFrame, settings: SourceConfig) -> DataFrame:
    """Give each tombstone its table and op: control, or the delete of a row."""
    joined = parsed.join(tombstones, list(IDENTITY), "left")
    is_tombstone = "kind = 'tombstone'"
    is_lone = f"({is_tombstone} AND reason IS NULL AND NOT coalesce(follows_delete, false))"
    no_table = f"{is_lone} AND tombstone_table IS NULL"
    # O14: nothing says which row it deletes in a table without a key.
    unkeyed = [table for table, rules in settings.tables.items() if rules.key in ("none", "row")]
    is_unkeyed = f"({is_lone} AND {is_one_of('tombstone_table', unkeyed)})"
    configured = is_one_of("tombstone_table", settings.tables)
    no_key = f"({is_lone} AND key_raw IS NULL AND {configured})"
    reason = case(
        (no_table, "'missing_table'"),
        (f"{is_unkeyed} OR ({no_key} AND message_key IS NULL)", "'missing_key'"),
        (no_key, "'malformed_key'"),
    )
    detail = case(
        (no_table, "'a lone tombstone on a topic of no table, or of several'"),
        (is_unkeyed, "'a lone tombstone of a table without a key'"),
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
