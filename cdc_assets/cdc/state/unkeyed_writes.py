"""The rows of a table without a key → its branch: appended, and taken away one by one (O14)."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.lake.commits import DayBranch
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.sqltext import named
from cdc_assets.cdc.state.retyping import as_stored, rows_on
from cdc_assets.cdc.state.table_day import LANDED, POSITION, SOURCE_TS
from cdc_assets.cdc.state.unkeyed import UnkeyedDay


def write_unkeyed(
    unkeyed: UnkeyedDay, branch: DayBranch, changes: DataFrame, checkpoints: Checkpoints
) -> int:
    """Write the day's rows to its branch; the branch's row count.

    Args:
        branch: rows below a truncate are gone from it.
        changes: `UnkeyedDay.row_changes`, typed.
        checkpoints: keeps what is read several times.

    Raises:
        AuditError: the rows taken away are not those that had to be.
    """
    spark, adds = unkeyed.day.lake.spark, changes.where("is_today AND NOT is_removal")
    if not unkeyed.takes:
        _append(unkeyed, branch, adds)
        return spark.table(branch.identifier).count()
    before = spark.table(branch.identifier).count()
    known = changes.withColumn("identity", unkeyed.identity())
    steps = checkpoints.add(unkeyed.steps(known))
    new = checkpoints.add(_newest(known.where("is_today AND NOT is_removal"), steps, "step"))
    standing = unkeyed.rows_of(spark.sql(f"SELECT * FROM {rows_on(branch)}"))
    gone = checkpoints.add(_newest(standing, steps, "-step").select("stored"))
    with named(gone) as view:
        with_retry(
            lambda: spark.sql(
                f"MERGE INTO {branch.identifier} t USING (SELECT * FROM {view}) s "
                f"ON t.{POSITION} = s.stored WHEN MATCHED THEN DELETE"
            )
        )
    _append(unkeyed, branch, new)
    rows, expected = spark.table(branch.identifier).count(), before + new.count() - gone.count()
    if rows != expected:
        raise AuditError(
            unkeyed.day.label,
            unkeyed.day.day,
            f"got {rows} rows, expected {expected}: two rows have the same position. Find them "
            "by _cdc_position and remove one",
        )
    return rows


def _newest(rows: DataFrame, steps: DataFrame, count: str) -> DataFrame:
    """The newest rows of each identity, as many as its step says."""
    by_newest = Window.partitionBy("identity").orderBy(F.desc("pos"))
    numbered = rows.withColumn("n", F.row_number().over(by_newest))
    return numbered.join(steps, "identity").where(f"n <= {count}")


def _append(unkeyed: UnkeyedDay, branch: DayBranch, rows: DataFrame) -> None:
    out = rows.select(
        *(F.col(c.work).alias(c.name) for c in unkeyed.columns.own),
        F.col("pos").alias(POSITION),
        F.col("source_ts_ms").alias(SOURCE_TS),
        F.lit(unkeyed.day.day).alias(LANDED),
    )
    stored = as_stored(out, branch)
    with_retry(lambda: stored.writeTo(branch.identifier).append())
