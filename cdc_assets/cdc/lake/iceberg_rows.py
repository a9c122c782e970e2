"""Rows read by Iceberg's own reader: ten times faster than a Spark job for a few rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from cdc_assets.cdc.spark import EXPRESSIONS, GENERICS


@contextmanager
def iceberg_rows(
    spark: SparkSession,
    table: Any,
    *,
    snapshot: int | None = None,
    equal: Mapping[str, Any] | None = None,
    columns: Sequence[str] = (),
) -> Iterator[Iterator[Any]]:
    """The rows of a table as Iceberg's records; the files are closed at the end of the block.

    Args:
        table: as :meth:`~cdc_assets.cdc.lake.catalog.Lake.handle` gives it.
        snapshot: the snapshot to read [default: the current one].
        equal: required values by column.
        columns: the columns to read [default: all]; must include those of `equal`.
    """
    jvm: Any = spark._jvm
    scan = getattr(jvm, GENERICS).read(table)
    if snapshot is not None:
        scan = scan.useSnapshot(snapshot)
    for name, value in (equal or {}).items():
        scan = scan.where(getattr(jvm, EXPRESSIONS).equal(name, value))
    if columns:
        scan = scan.select(list(columns))
    found = scan.build()
    rows = found.iterator()
    try:
        yield _each(rows)
    finally:
        rows.close()
        found.close()


def _each(rows: Any) -> Iterator[Any]:
    while rows.hasNext():
        yield rows.next()
