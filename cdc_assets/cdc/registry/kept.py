"""Which schemas of a registry some records need; those once fetched stay in the table `schemas`.

So a day can be made again without the registry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import date

from pyspark.sql import DataFrame, Row

from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.lake.catalog import Lake, landed_on
from cdc_assets.cdc.lake.schema_rows import add_schemas
from cdc_assets.cdc.registry.client import RegistrySchema, fetch_schemas
from cdc_assets.cdc.registry.decode import PARTS, Decoding, Part, schema_id_of
from cdc_assets.cdc.spark import add_avro


def fetched_decoding(landing: DataFrame, name: str, source: SourceConfig) -> Decoding | None:
    """How landed records are decoded, by schemas of the registry; None for a source without one.

    One Spark job finds the ids.

    Raises:
        RegistryError: the registry does not answer.
    """
    registry = source.landing.registry
    if registry is None:
        return None
    add_avro(landing.sparkSession)
    said, has_more = _ids(landing, source.max_kinds)
    fetched = fetch_schemas(name, registry, sorted({i for _, i in said}))
    return _decoding(fetched, said, has_more)


def kept_decoding(lake: Lake, name: str, days: Sequence[date]) -> Decoding | None:
    """As :func:`fetched_decoding`; the registry is asked for what the lake does not have yet.

    Args:
        lake: has the tables `schemas` and `landing` of the source.
        name: the source.
        days: whose records are decoded.
    """
    registry = lake.config.source(name).landing.registry
    if registry is None:
        return None
    add_avro(lake.spark)
    landing = lake.spark.table(lake.stage(name, "landing")).where(landed_on(days))
    said, has_more = _ids(landing, lake.config.source(name).max_kinds)
    first: dict[str, date] = {}
    for (_, schema_id), landed in said.items():
        first[schema_id] = min(landed, first.get(schema_id, date.max))
    known = {i: s for i, s in _kept(lake, name, registry.place).items() if i in first}
    fetched = fetch_schemas(name, registry, sorted(first.keys() - known.keys()))
    whole = {i: s for i, s in fetched.items() if not s.has_too_many_references}
    add_schemas(lake, name, [_row(registry.place, i, s, first[i]) for i, s in whole.items()])
    return _decoding({**known, **fetched}, said, has_more)


def _ids(landing: DataFrame, most: int) -> tuple[dict[tuple[Part, str], date], bool]:
    """The ids that keys and values say, each with the first day on which one does.

    Each unknown one is a request in every run: of more than `most` the first in order of their
    texts, and true.
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
    schemas: Mapping[str, RegistrySchema], said: Collection[tuple[Part, str]], has_more: bool
) -> Decoding:
    ids = {part: {i for of, i in said if of == part} for part in PARTS}
    return Decoding(schemas, ids, has_more)


def _kept(lake: Lake, name: str, url: str) -> dict[str, RegistrySchema]:
    rows = lake.spark.table(lake.stage(name, "schemas")).where("registry_id IS NOT NULL").collect()
    kept = {row.registry_id: json.loads(row.schema) for row in rows}
    return {
        schema_id: RegistrySchema(what["schemaType"], what["schema"], tuple(what["references"]))
        for schema_id, what in kept.items()
        # Another registry has other schemas under the same ids.
        if what["registry"] == url
    }


def _row(url: str, schema_id: str, schema: RegistrySchema, first: date) -> Row:
    """A row of the table `schemas`, as :func:`_kept` reads it."""
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
