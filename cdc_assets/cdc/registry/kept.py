"""Which schemas of a registry some records need; those once fetched stay in the table `schemas`.

So a day can be made again without the registry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import date

from pyspark.sql import DataFrame, Row

from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.registry.client import RegistrySchema, fetch_schemas
from cdc_assets.cdc.registry.decode import PARTS, Decoding, schema_id_of
from cdc_assets.cdc.spark import add_avro
from cdc_assets.cdc.sqltext import named


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
    return Decoding(fetch_schemas(name, registry, sorted(_ids(landing))))


def kept_decoding(lake: Lake, name: str, landing: DataFrame) -> Decoding | None:
    """As :func:`fetched_decoding`; the registry is asked for what the lake does not have yet.

    Args:
        lake: has the table `schemas` of the source.
        name: the source.
        landing: the records.
    """
    registry = lake.config.source(name).landing.registry
    if registry is None:
        return None
    add_avro(lake.spark)
    first = _ids(landing)
    kept = _kept(lake, name, registry.url)
    missing = sorted(first.keys() - kept.keys())
    fetched = fetch_schemas(name, registry, missing) if missing else {}
    _keep(lake, name, registry.url, fetched, first)
    return Decoding({i: s for i, s in {**kept, **fetched}.items() if i in first})


def _ids(landing: DataFrame) -> dict[str, date]:
    """The ids that records say, each with the first day on which one does."""
    listed = ", ".join(schema_id_of(part) for part in PARTS)
    ids = landing.selectExpr("landing_date", f"explode(array({listed})) AS id")
    first = ids.where("id IS NOT NULL").groupBy("id").agg({"landing_date": "min"})
    return dict(tuple(row) for row in first.collect())


def _kept(lake: Lake, name: str, url: str) -> dict[str, RegistrySchema]:
    rows = lake.spark.table(lake.stage(name, "schemas")).where("registry_id IS NOT NULL").collect()
    kept = {row.registry_id: json.loads(row.schema) for row in rows}
    return {
        schema_id: RegistrySchema(what["schemaType"], what["schema"], tuple(what["references"]))
        for schema_id, what in kept.items()
        # Another registry has other schemas under the same ids.
        if what["registry"] == url
    }


def _keep(
    lake: Lake,
    name: str,
    url: str,
    fetched: Mapping[str, RegistrySchema],
    first: Mapping[str, date],
) -> None:
    if not fetched:
        return
    rows = []
    for schema_id, schema in fetched.items():
        what = {
            "registry": url,
            "schemaType": schema.kind,
            "schema": schema.text,
            "references": schema.references,
        }
        text = json.dumps(what, ensure_ascii=False)
        digest = hashlib.sha256(text.encode()).hexdigest()
        rows.append(
            Row(
                schema_id=digest,
                table_name=None,
                schema=text,
                first_landed=first[schema_id],
                registry_id=schema_id,
            )
        )
    with named(lake.spark.createDataFrame(rows, columns.SCHEMAS)) as view:
        with_retry(
            lambda: lake.spark.sql(
                f"MERGE INTO {lake.stage(name, 'schemas')} t USING {view} s "
                "ON t.registry_id = s.registry_id AND t.schema_id = s.schema_id "
                "WHEN NOT MATCHED THEN "
                "INSERT (schema_id, table_name, schema, first_landed, registry_id) VALUES "
                "(s.schema_id, s.table_name, s.schema, s.first_landed, s.registry_id)"
            )
        )
