"""The rows of changes, control and quarantine, from classified records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.classify import Classified
from cdc_assets.cdc.changes.parse import IDENTITY
from cdc_assets.cdc.changes.protected import protect
from cdc_assets.cdc.changes.reading import Reading
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.landing.lines import KEPT_BYTES
from cdc_assets.cdc.sqltext import with_replaced

# The columns that are written, and those that find a record in the landing again.
_ROUTED = (
    *dict.fromkeys((*columns.CHANGES.names, *columns.CONTROL.names)),
    *("value_hash", "message_key_json", "reason", "detail", "destination", "kind", "row_number"),
)
_BYTES = ("key", "value", "headers")


def routed_rows(
    classified: Classified, reading: Reading, salt: str | None, days: Sequence[date]
) -> DataFrame:
    """The columns of each record to write, without values that must not leave the landing."""
    records = classified.records.select(*_ROUTED)
    schema_ids = reading.first_landed.keys()
    protected = protect(records, reading.settings, salt, days, schema_ids, classified.schemas)
    return protected.drop("kind")


def quarantine_rows(landing: DataFrame, routed: DataFrame, settings: SourceConfig) -> DataFrame:
    """Landing rows of quarantined records; their bytes are read from the landing again.

    The columns in such bytes are unknown: where a column is protected, they stay in the landing.
    """
    bad = (
        routed.where("destination = 'quarantine'")
        .groupBy(*(F.col(c).alias(f"bad_{c}") for c in IDENTITY), "row_number")
        .agg(*(F.min(c).alias(c) for c in ("reason", "detail", "table_name")))
    )
    rows = landing.withColumn("value_hash", F.xxhash64("value"))
    same = [F.col(c).eqNullSafe(F.col(f"bad_{c}")) for c in IDENTITY]
    found = rows.join(bad, same)
    # The first bytes identify a record that is too large; the landing has all of it.
    is_over = F.col("reason") == "over_limit"
    first_bytes = {
        c: F.when(is_over, F.substring(c, 1, KEPT_BYTES)).otherwise(F.col(c))
        for c in ("key", "value")
    }
    found = found.withColumns(first_bytes).to(columns.QUARANTINE)
    if not settings.is_protected:
        return found
    nothing = {c: F.lit(None).cast(columns.QUARANTINE[c].dataType) for c in _BYTES}
    return found.withColumns(nothing)


def control_rows(routed: DataFrame) -> DataFrame:
    """The rows of `control`."""
    rows = routed.where("destination = 'control'")
    return with_replaced(rows, {"key": "coalesce(key, message_key_json)"}).to(columns.CONTROL)


def change_rows(routed: DataFrame) -> DataFrame:
    """The rows of `changes`."""
    return routed.where("destination = 'changes'").to(columns.CHANGES)
