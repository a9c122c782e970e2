"""What later stages ask of a day's records, counted in the pass that reads them: table `facts`.

A row is of records alike: of one destination, table, op and reason, of one epoch and basis of
their positions, under one schema. The state floor reads these few rows and none of its
changes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake, landed_on
from cdc_assets.cdc.sqltext import Sql, case, literal
from cdc_assets.cdc.values.placeholders import placeholder_cores

TABLE, COMMENT = "facts", "counts of the records of each day by destination, table and op"

_ALIKE = (
    "landing_date", "destination", "table_name", "op", "source_op", "reason", "epoch", "basis",
    "schema_id",
)  # fmt: skip


def facts_of(records: DataFrame, source: SourceConfig) -> DataFrame:
    """The facts of some records.

    Args:
        records: has `destination`, `reason`, `row_number` and else the columns of `CHANGES`.

    Returns:
        The columns of `FACTS`.
    """
    is_change = "destination = 'changes'"
    seen = records.selectExpr(
        *("landing_date", "destination", "table_name", "op", "source_op", "reason", "schema_id"),
        "get(position, 0) AS epoch",
        "CASE WHEN position IS NOT NULL THEN position_basis END AS basis",
        "position",
        "old_key IS NOT NULL AS is_move",
        "before IS NULL AS has_no_before",
        "schema_id IS NULL AND after IS NOT NULL AS is_untyped",
        f"{_may_be_unsent(source)} AS may_be_unsent",
        "row_number",
        f"{case((is_change, 'json_object_keys(key)'))} AS names",
    )
    counted = seen.groupBy(*_ALIKE).agg(
        *map(
            F.expr,
            (
                "count(*) AS records",
                "count_if(position IS NULL) AS without_position",
                "count_if(is_move) AS moves",
                "count_if(has_no_before) AS without_before",
                "count_if(is_untyped) AS without_schema",
                "count_if(may_be_unsent) AS maybe_unsent",
                "collect_set(names) AS key_names",
                "min(position) AS lowest",
                "max(position) AS highest",
                "count_if(row_number > 0) AS further_rows",
            ),
        )
    )
    return counted.to(columns.FACTS)


def _may_be_unsent(source: SourceConfig) -> Sql:
    """May `after` hold a value that was not sent (R2)? A pattern without signs is found fast."""
    found = (
        f"after RLIKE {literal(re.escape(core))}"
        for core in placeholder_cores(source.unavailable_value)
    )
    return f"coalesce({' OR '.join(found)}, false)"


def read_facts(
    lake: Lake, name: str, days: Sequence[date], tables: Sequence[str] | None = None
) -> list[Row]:
    """The facts of some days: recorded ones, or of days made without any, counted now.

    Args:
        tables: only these.
    """
    identifier = lake.stage(name, "changes")
    changes, recorded = (lake.day_commits(i) for i in (identifier, lake.stage(name, TABLE)))
    made = [day for day in days if day in changes]
    # Facts of another making than the changes are of a run that did not end.
    with_facts = [d for d in made if d in recorded and recorded[d].inputs == changes[d].inputs]
    without = [d for d in made if d not in with_facts]
    found: list[Row] = []
    if with_facts:
        found += _of(lake.stage_days(name, TABLE, with_facts), tables).collect()
    if without:
        rows = lake.spark.table(identifier).where(landed_on(without))
        marked = _of(rows, tables).selectExpr(
            "*",
            "'changes' AS destination",
            "CAST(NULL AS string) AS reason",
            "CAST(NULL AS int) AS row_number",
        )
        found += facts_of(marked, lake.config.source(name)).collect()
    return found


def _of(rows: DataFrame, tables: Sequence[str] | None) -> DataFrame:
    return rows if tables is None else rows.where(F.col("table_name").isin(list(tables)))
