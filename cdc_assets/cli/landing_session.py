"""A Spark session without a lake, for commands that read landings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.spark import SHORT_RUN, SMALL_ROWS, SMALL_WORK, build_session
from cdc_assets.cli import imports
from cdc_assets.orchestration.execution.interrupts import interruptible

_RECORD_BYTES = 3_500  # of a landed line, with its schema
_COMPRESSION = 10


def is_small(files: Iterable[Path], limit: int | None = None) -> bool:
    """Whether the input is so small that Spark's start and planning take most of the time.

    Args:
        files: the landed files that are read.
        limit: number of records that are read.
    """
    if limit is not None and limit <= SMALL_ROWS:
        return True
    return sum(_text_bytes(file) for file in files) <= SMALL_ROWS * _RECORD_BYTES


def _text_bytes(file: Path) -> int:
    size = file.stat().st_size
    return size if file.name.endswith(".jsonl") else size * _COMPRESSION


@contextmanager
def session(config: Config, is_small: bool) -> Iterator[SparkSession]:
    """A session with the configuration's settings and no lake."""
    quick = {**SHORT_RUN, **SMALL_WORK} if is_small else {}
    settings = config.model_copy(update={"spark": {**quick, **config.spark}})
    imports.import_without_pandas("pyspark.testing.utils")
    spark = interruptible(build_session, settings, with_lake=False)
    try:
        yield spark
    finally:
        # The JVM ends with a process of our own; stopping it first takes a second.
        if not imports.is_own_process:
            spark.stop()
