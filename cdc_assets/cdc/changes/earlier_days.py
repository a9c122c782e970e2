"""What the lake says about the days before those that are classified, and about schemas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, timedelta

from pyspark.sql import functions as F

from cdc_assets.cdc.changes.classify import EarlierDays
from cdc_assets.cdc.changes.inputs import FACTS
from cdc_assets.cdc.changes.key_forms import KeyForm
from cdc_assets.cdc.changes.keys import tables_in_doubt
from cdc_assets.cdc.changes.message_schemas import NO_SCHEMAS, KnownSchemas, SchemaOfTable
from cdc_assets.cdc.changes.reading import Reading
from cdc_assets.cdc.lake.catalog import Lake, landed_on
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.configured import as_configured
from cdc_assets.cdc.values.json_kinds import shallow

FirstDays = Mapping[SchemaOfTable, date]


def earlier_days(
    lake: Lake,
    source: str,
    reading: Reading,
    stored: KnownSchemas,
    days: Sequence[date],
    has_landing_before: bool,
) -> EarlierDays:
    """What landed before some days.

    Two jobs for each table with keys of several forms; one where a schema no longer begins on its
    first day, because that day landed again.

    Args:
        lake: has the tables of the source.
        source: the source.
        reading: the records of these days.
        stored: the schemas in the lake.
        days: in order, without a gap.
        has_landing_before: whether anything landed on the day before them.
    """
    first = days[0]
    schemas = stored.with_first_days(
        corrected_first_days(lake, source, stored, days, reading.first_landed)
    )
    joined = reading.joined_schemas(schemas)
    key_forms = {
        table: key_form_before(lake, source, table, first, joined)
        for table in tables_in_doubt(reading.keys, reading.settings, joined)
    }
    if not reading.keys.tombstones:
        return EarlierDays(schemas, key_forms)
    # Spark plans the read of a missing day as slowly as any other: leave it out.
    before = first - timedelta(days=1)
    landing = lake.stage_days(source, "landing", [before]) if has_landing_before else None
    changes = lake.spark.table(lake.stage(source, "changes"))
    past = changes.where(F.col("landing_date") < F.lit(first))
    tables = past.select("topic", "table_name", "landing_date")
    return EarlierDays(schemas, key_forms, landing, tables)


def key_form_before(
    lake: Lake, source: str, table: str, first: date, schemas: KnownSchemas
) -> KeyForm | None:
    """The form of a table's keys on its newest day of changes before `first`, if it has one."""
    settings = lake.config.source(source).tables[table]
    rows = lake.spark.table(lake.stage(source, "changes")).where(
        (F.col("landing_date") < F.lit(first))
        & (F.col("table_name") == table)
        & F.col("key").isNotNull()
    )
    newest = rows.agg(F.max("landing_date").alias("day")).first()
    if newest is None or newest.day is None:
        return None
    on_newest = rows.where(F.col("landing_date") == F.lit(newest.day))
    found = on_newest.agg(
        F.collect_set(F.array_sort(F.json_object_keys("key"))).alias("names"),
        F.expr(f"schema_of_variant_agg({shallow('key')})").alias("kind"),
    ).first()
    if found is None or len(found.names) != 1:
        return None
    inferred = types.columns_of_inference(found.kind or "")
    configured = types.columns_of_config(settings.columns)
    known = as_configured(schemas.latest(table, newest.day), configured, is_key=True)
    # The hash of a value does not show its type.
    columns = (
        (n, known.get(n) or (None if n in settings.hashed else inferred.get(n)))
        for n in sorted(found.names[0])
    )
    return KeyForm(tuple((n, (kind.spark,) if kind else ()) for n, kind in columns))


def known_schemas(lake: Lake, source: str, tables: Iterable[str] | None = None) -> KnownSchemas:
    """Read the table `schemas`; it has a row a table and schema version."""
    identifier = lake.stage(source, "schemas")
    if not lake.exists(identifier):
        return NO_SCHEMAS
    # A registry's schemas are no table's.
    frame = lake.spark.table(identifier).where("table_name IS NOT NULL")
    if tables is not None:
        frame = frame.where(F.col("table_name").isin(list(tables)))
    return NO_SCHEMAS.joined(frame.collect(), lake.config.source(source))


def corrected_first_days(
    lake: Lake, source: str, known: KnownSchemas, days: Sequence[date], found: FirstDays
) -> dict[SchemaOfTable, date | None]:
    """The new first days of schemas whose first day landed again without them.

    None where no day has the schema any more: otherwise types would come from records that are
    gone. One job, or none where there is no such schema.

    Args:
        lake: has the source's tables.
        source: the source.
        known: the schemas in the lake.
        days: days that are made again.
        found: the schemas of these days now.
    """
    changed = [
        key
        for key, first in known.first_landed.items()
        if first in days and found.get(key) != first
    ]
    if not changed or not _has_all_facts(lake, source):
        return {}
    elsewhere = _first_uses(lake, source, set(changed), days)
    firsts = {key: [d for d in (found.get(key), elsewhere.get(key)) if d] for key in changed}
    return {key: min(candidates, default=None) for key, candidates in firsts.items()}


def _first_uses(
    lake: Lake, source: str, schemas: Collection[SchemaOfTable], without: Sequence[date]
) -> dict[SchemaOfTable, date]:
    """The first day on which changes carry a schema, except days that are made again; a job."""
    rows = (
        lake.spark.table(lake.stage(source, FACTS))
        .where(~landed_on(without) & F.col("schema_id").isin(sorted({i for _, i in schemas})))
        .where("destination = 'changes'")
        .groupBy("table_name", "schema_id")
        .agg(F.min("landing_date").alias("first"))
        .collect()
    )
    return {
        (r.table_name, r.schema_id): r.first for r in rows if (r.table_name, r.schema_id) in schemas
    }


def _has_all_facts(lake: Lake, source: str) -> bool:
    """Whether all days of changes have their facts; those of early versions have none."""
    changes, recorded = (lake.day_commits(source, t) for t in ("changes", FACTS))
    return all(day in recorded for day in changes)
