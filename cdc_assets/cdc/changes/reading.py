"""Parse landed records in one pass, and group them by what they have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.keys import KeyShapes, key_shapes
from cdc_assets.cdc.changes.message_schemas import (
    KnownSchemas,
    SchemaOfTable,
    first_uses,
    schema_texts,
)
from cdc_assets.cdc.changes.parse import parse
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.positions import is_kafka_placed, start_of_day, with_kafka_time
from cdc_assets.cdc.registry.decode import Decoding
from cdc_assets.cdc.sqltext import Query, case, literal, with_replaced

_SHAPE = (
    "kind", "landing_date", "table_name", "schema_id", "key_schema", "key_names", "key_kinds",
    "key_unquoted",
)  # fmt: skip


# The sender of events; a table's records are counted by sender.
_SENDER = ("connector", "server", "db")
_KIND = (*(name for name in _SHAPE if name not in ("kind", "landing_date")), *_SENDER)
_MOST_GROUPS = 200_000  # rows that the driver collects; a kind has one in each partition


def group_records(parsed: DataFrame) -> DataFrame:
    """Count readable records that look alike, by topic and partition, with the first offset."""
    return (
        parsed.where("reason IS NULL")
        .groupBy("topic", "partition", *_SHAPE, *_SENDER)
        .agg(
            F.expr("count(*) AS records"),
            F.expr("min(offset) AS first_offset"),
            F.expr(f"count_if({is_kafka_placed('position_basis')}) AS kafka_placed"),
        )
    )


def _bounded(parsed: DataFrame, most: int, checkpoints: Checkpoints) -> tuple[DataFrame, list[Row]]:
    """Quarantine the records beyond `most` kinds a day; returns the records and their groups.

    A kind is a table with a schema, a form of its key and a sender: each costs the driver a row,
    and the plans of the day a branch. The first kinds by topic, partition and offset are read;
    records of the others get the reason `over_limit`.
    """
    groups = group_records(parsed).limit(_MOST_GROUPS + 1).collect()
    # Key names are a list, which a set can't hold.
    found = {(r.landing_date, repr([r[name] for name in _KIND])) for r in groups}
    kinds = Counter(day for day, _ in found)
    if len(groups) <= _MOST_GROUPS and all(count <= most for count in kinds.values()):
        return parsed, groups
    names = ["landing_date", *_KIND]
    first = (
        parsed.where("reason IS NULL")
        .groupBy(*names)
        .agg(F.expr("min(struct(topic, partition, offset)) AS first"))
    )
    order = Window.partitionBy("landing_date").orderBy("first")
    allowed = (
        first.withColumn("n", F.row_number().over(order))
        .where(F.col("n") <= most)
        .select(*(F.col(name).alias(f"_{name}") for name in names))
        .withColumn("_is_allowed", F.lit(True))
    )
    same = reduce(and_, (F.col(name).eqNullSafe(F.col(f"_{name}")) for name in names))
    detail = literal(f"one of more than {most} kinds of records of the day, which is max_kinds")
    over = "reason IS NULL AND _is_allowed IS NULL"
    marked = with_replaced(
        parsed.join(F.broadcast(allowed), same, "left"),
        {
            "reason": case((over, "'over_limit'"), otherwise="reason"),
            "detail": case((over, detail), otherwise="detail"),
        },
    ).drop("_is_allowed", *(f"_{name}" for name in names))
    bounded = checkpoints.add(marked)
    return bounded, group_records(bounded).collect()


@dataclass(frozen=True)
class Reading:
    """The parsed records of some days, and what they have in common."""

    settings: SourceConfig  # of the source
    decoding: Decoding | None
    parsed: DataFrame  # a local checkpoint
    first_landed: Mapping[SchemaOfTable, date]  # by the readable records
    schemas: Mapping[str, str]  # the canonical JSON of those that were not known, by id
    keys: KeyShapes
    is_kafka_placed: bool  # some of them need :func:`placed_by_kafka`

    def new_schemas(self, known: KnownSchemas) -> list[Row]:
        """Rows of `schemas` for schemas that are not known, or landed before their known day."""
        return [
            Row(
                schema_id=schema_id,
                table_name=table,
                schema=self.schemas[schema_id],
                first_landed=landed,
                registry_id=None,
            )
            for (table, schema_id), landed in self.first_landed.items()
            if known.first_landed.get((table, schema_id), date.max) > landed
        ]

    def joined_schemas(self, known: KnownSchemas) -> KnownSchemas:
        """The known schemas and those of these records."""
        return known.joined(self.new_schemas(known), self.settings)


def read_records(
    landing: DataFrame,
    settings: SourceConfig,
    checkpoints: Checkpoints,
    decoding: Decoding | None = None,
    known: Collection[SchemaOfTable] = (),
) -> Reading:
    """Parse landing rows in one pass, and count them in groups.

    Args:
        landing: has the columns of `LANDING`.
        settings: the rules of the source.
        checkpoints: hold the parsed records.
        decoding: how records are decoded that were written with a schema registry.
        known: schemas that landed before these rows; they are not read again.
    """
    parsed = checkpoints.add(parse(landing, settings, decoding))
    parsed, groups = _bounded(parsed, settings.max_kinds, checkpoints)
    first = first_uses(groups)
    unknown = {key: place for key, place in first.items() if key not in known}
    return Reading(
        settings,
        decoding,
        parsed,
        {key: place.landing_date for key, place in first.items()},
        schema_texts(landing, settings, unknown, decoding),
        key_shapes(groups),
        any(group.kafka_placed for group in groups),
    )


def placed_by_kafka(parsed: DataFrame, timezone: str) -> DataFrame:
    """Position events that the source does not order by Kafka's timestamp (O8).

    A time later than the end of its landing day counts as that end. Each time is raised to the
    highest at a lower offset of its partition and day: a partition keeps its order, and truncates
    and events in other partitions are ordered by time.
    """
    start, end = (start_of_day(day, timezone) for day in ("landing_date", "landing_date + 1"))
    within = (
        "OVER (PARTITION BY landing_date, topic, partition ORDER BY offset "
        "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )
    timed = Query(parsed).extend({"_time": f"least(coalesce(kafka_time, {start}), {end} - 1)"})
    raised = timed.extend({"_raised": f"max(_time) {within}"})
    position = with_kafka_time("position", "position_basis", "_raised")
    return raised.replace({"position": position}).drop("_time", "_raised").plan()
