"""Registry schemas of landed records, cached in the table `schemas`.

The cache makes it possible to make a day again without the registry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import date

from pyspark.sql import DataFrame, Row

from cdc_assets.cdc.added_jars import add_avro
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.schema_rows import add_schemas
from cdc_assets.cdc.registry.client import RegistrySchema, fetch_schemas
from cdc_assets.cdc.registry.decode import PARTS, Decoding, Part, schema_id_of


def fetched_decoding(landing: DataFrame, source: str, settings: SourceConfig) -> Decoding | None:
    """The decoding of landed records, by schemas fetched from the registry.

    One Spark job finds the ids. None for a source without a registry.

    Raises:
        RegistryError: the registry does not answer.
    """
    registry = settings.landing.registry
    if registry is None:
        return None
    add_avro(landing.sparkSession)
    first_days, has_more = _ids(landing, settings.max_kinds)
    fetched = fetch_schemas(source, registry, sorted({i for _, i in first_days}))
    return _decoding(fetched, first_days, has_more)


def cached_decoding(lake: Lake, source: str, days: Sequence[date]) -> Decoding | None:
    """As :func:`fetched_decoding`; only schemas that the lake lacks are fetched.

    Args:
        lake: has the tables `schemas` and `landing` of the source.
        source: the source.
        days: whose records are decoded.
    """
    settings = lake.config.source(source)
    registry = settings.landing.registry
    if registry is None:
        return None
    add_avro(lake.spark)
    first_days, has_more = _ids(lake.stage_days(source, "landing", days), settings.max_kinds)
    first: dict[str, date] = {}
    for (_, schema_id), landed in first_days.items():
        first[schema_id] = min(landed, first.get(schema_id, date.max))
    known = {i: s for i, s in _cached(lake, source, registry.place).items() if i in first}
    fetched = fetch_schemas(source, registry, sorted(first.keys() - known.keys()))
    whole = {i: s for i, s in fetched.items() if not s.has_too_many_references}
    add_schemas(lake, source, [_row(registry.place, i, s, first[i]) for i, s in whole.items()])
    return _decoding({**known, **fetched}, first_days, has_more)


def _ids(landing: DataFrame, most: int) -> tuple[dict[tuple[Part, str], date], bool]:
    """The schema ids in keys and values with their first day, and whether there are more.

    At most `most` ids, in order of their texts: each unknown id is a request in every run.
    """
    listed = ", ".join(f"struct('{part}' AS part, {schema_id_of(part)} AS id)" for part in PARTS)
    ids = landing.selectExpr("landing_date", f"inline(array({listed}))").where("id IS NOT NULL")
    first = ids.groupBy("part", "id").agg({"landing_date": "min"})
    found = first.limit(most + 1).collect()
    has_more = len(found) > most
    if has_more:
        found = first.orderBy("id", "part").limit(most).collect()
    return {(part, schema_id): landed for part, schema_id, landed in found}, has_more


def _decoding(
    schemas: Mapping[str, RegistrySchema], found: Collection[tuple[Part, str]], has_more: bool
) -> Decoding:
    ids = {part: {i for where, i in found if where == part} for part in PARTS}
    return Decoding(schemas, ids, has_more)


def _cached(lake: Lake, source: str, url: str) -> dict[str, RegistrySchema]:
    table = lake.spark.table(lake.stage(source, "schemas"))
    rows = table.where("registry_id IS NOT NULL").collect()
    cached = {row.registry_id: json.loads(row.schema) for row in rows}
    return {
        schema_id: RegistrySchema(what["schemaType"], what["schema"], tuple(what["references"]))
        for schema_id, what in cached.items()
        # Another registry has other schemas under the same ids.
        if what["registry"] == url
    }


def _row(url: str, schema_id: str, schema: RegistrySchema, first: date) -> Row:
    """A row of the table `schemas`, as :func:`_cached` reads it."""
    what = {
        "registry": url,
        "schemaType": schema.kind,
        "schema": schema.text,
        "references": schema.references,
    }
    text = json.dumps(what, ensure_ascii=False)
    return Row(
        schema_id=hashlib.sha256(text.encode()).hexdigest(),
        table_name=None,
        schema=text,
        first_landed=first,
        registry_id=schema_id,
    )
