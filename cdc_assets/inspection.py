"""How each record of one landed file is understood, without a lake."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc.changes import parse
from cdc_assets.cdc.config import Config, LakeConfig, SourceConfig, parse_config
from cdc_assets.cdc.errors import ConfigError, LandingError
from cdc_assets.cdc.landing.files import LandedDay, read_days
from cdc_assets.cdc.spark import build_session

COLUMNS = (
    "topic", "partition", "offset", "destination", "table", "op", "key", "position", "lag_ms",
    "reason", "detail",
)  # fmt: skip


@dataclass(frozen=True)
class Rules:
    """The source by whose rules a file is read, and the configuration that it is from."""

    name: str
    source: SourceConfig
    config: Config


def rules_of_source(config: Config, name: str | None, file: Path) -> Rules:
    """The rules of a named source, else of the one in whose landing folder the file lies.

    Raises:
        ConfigError: there is no such source.
    """
    if name is not None:
        return Rules(name, config.source(name), config)
    for known, source in config.sources.items():
        if source.landing.files is None:
            continue
        folder = Path(source.landing.files.removeprefix("file://").removeprefix("file:"))
        if file.resolve().is_relative_to(folder.resolve()):
            return Rules(known, source, config)
    raise ConfigError(
        [
            f"{file} lies under no source's landing folder; say by whose rules to read it: "
            f"--source {' | '.join(config.sources)}, or --format-of debezium|lindorm|dataworks"
        ]
    )


def rules_of_format(name: str, file: Path) -> Rules:
    """The rules of a format alone: no table is configured, nothing of cdc.yaml is read.

    Raises:
        ConfigError: there is no such format.
    """
    raw = {
        "start_date": "2000-01-01",
        "sources": {"file": {"format": name, "landing": {"files": str(file.parent)}}},
    }
    try:
        config = parse_config(raw, file.parent)
    except ConfigError as error:
        raise ConfigError(
            [f"--format-of: got {name!r}; expected debezium, lindorm or dataworks"]
        ) from error
    return Rules(name, config.sources["file"], config)


def inspect_file(
    spark: SparkSession, file: Path, rules: Rules, limit: int | None = None
) -> list[dict[str, Any]]:
    """One row a record of the file, in its order, with `COLUMNS`.

    Raises:
        LandingError: the file is of another kind, or can't be read whole.
    """
    path = str(file.resolve())
    is_text = path.endswith((".jsonl", ".jsonl.gz"))
    if not is_text and not path.endswith(".parquet"):
        raise LandingError(
            rules.name, f"{path} is no landed file; expected *.jsonl, *.jsonl.gz or *.parquet", path
        )
    texts, parquets = ((path,), ()) if is_text else ((), (path,))
    day = LandedDay(date.min, texts, parquets, fingerprint="")
    records = parse(read_days(spark, rules.name, [day]), rules.source)
    understood = records.select(*_columns())
    try:
        rows = (understood if limit is None else understood.limit(limit)).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise LandingError(
            rules.name, f"{path} can't be read whole: {_cause(error)}", path
        ) from error
    return [row.asDict() for row in rows]


def _cause(error: Exception) -> str:
    causes = re.findall(r"Caused by: [\w.$]*?(\w+(?:Exception|Error): [^\n]*)", str(error))
    return causes[-1] if causes else str(error).partition("\n")[0]


@contextmanager
def session(rules: Rules) -> Iterator[SparkSession]:
    """A session with the configuration's settings and a lake of its own, which stays empty."""
    with tempfile.TemporaryDirectory(prefix="cdc-inspect-") as folder:
        own = LakeConfig(warehouse=folder)
        spark = build_session(rules.config.model_copy(update={"lake": own}))
        try:
            yield spark
        finally:
            spark.stop()


def _columns() -> list[Column]:
    is_bad = F.col("reason").isNotNull()
    destination = (
        F.when(is_bad, "quarantine")
        .when(F.col("kind") == "row", "changes")
        .when(F.col("kind") == "tombstone", "tombstone")
        .otherwise("control")
    )
    is_measured = ~is_bad & (F.col("kind") == "row") & ~F.coalesce("is_snapshot", F.lit(False))
    return [
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
        destination.alias("destination"),
        F.col("table_name").alias("table"),
        F.when(F.col("kind") == "tombstone", F.lit(None)).otherwise(F.col("op")).alias("op"),
        F.coalesce("key_raw", "message_key_json").alias("key"),
        F.to_json("position").alias("position"),
        F.when(is_measured, F.col("kafka_ts_ms") - F.col("source_ts_ms")).alias("lag_ms"),
        F.col("reason"),
        F.when(is_bad, F.col("detail")).alias("detail"),
    ]
