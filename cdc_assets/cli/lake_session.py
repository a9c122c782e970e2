"""A Spark session with the lake, for commands that read or write it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import build_session
from cdc_assets.orchestration.execution.interrupts import interruptible


@contextmanager
def lake_of(config: Config) -> Iterator[Lake]:
    """The lake, in a session that ends with the block."""
    spark = interruptible(build_session, config)
    try:
        yield Lake(spark, config)
    finally:
        spark.stop()
