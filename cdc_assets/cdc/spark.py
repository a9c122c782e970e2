"""The Spark session that the stages run in: versions, jars, catalog and time zone.

Everything here is configuration; a cluster or another catalog needs no code.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import ConfigError

CATALOG = "lake"
PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.53.2.0",
)
_SHORT_NAMES = {
    "packages": "spark.jars.packages",
    "memory": "spark.driver.memory",
    "cores": "spark.cores.max",
}


def spark_conf(config: Config) -> dict[str, str]:
    """All Spark settings: ours, then what cdc.yaml says under `spark` and `lake.catalog`.

    Raises:
        ConfigError: ``CDC_SPARK_JARS`` names a folder without jars.
    """
    own = {_conf_name(name): value for name, value in config.spark.items()}
    return {
        "spark.app.name": "cdc-assets",
        "spark.master": "local[*]",
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 2)),
        # Where in Python each expression was written, kept inside every expression, makes
        # tasks several times slower to ship than to run.
        "spark.sql.dataFrameQueryContext.enabled": "false",
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        **_jars(own.pop("spark.jars.packages", "")),
        **catalog_conf(config),
        **own,
        # Fixed: results must not depend on the machine's zone, nor columns on their case.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",
        "spark.sql.ansi.enabled": "true",
        # With Iceberg's extensions, spark.sql(query, args=…) fails without it.
        "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
        # A day that can't be read whole must fail, never land by half.
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
    }


def _conf_name(name: str) -> str:
    return _SHORT_NAMES.get(name) or (name if name.startswith("spark.") else f"spark.{name}")


def _jars(extra: str) -> dict[str, str]:
    folder = os.environ.get("CDC_SPARK_JARS")
    if not folder:
        return {"spark.jars.packages": ",".join([*PACKAGES, *filter(None, [extra])])}
    jars = sorted(str(jar) for jar in Path(folder).glob("*.jar"))
    if not jars:
        raise ConfigError(
            [f"CDC_SPARK_JARS: {folder} holds no *.jar; put {' and '.join(PACKAGES)} there"]
        )
    found = {"spark.jars": ",".join(jars)}
    return {**found, "spark.jars.packages": extra} if extra else found


def catalog_conf(config: Config) -> dict[str, str]:
    """The settings of the catalog `lake`: JDBC on SQLite, or what `lake.catalog` says."""
    name = f"spark.sql.catalog.{CATALOG}"
    common = {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.warehouse": config.lake.warehouse,
        # A cached table hides what another process committed.
        f"{name}.cache-enabled": "false",
    }
    if config.lake.catalog:
        return {**common, **{f"{name}.{k}": v for k, v in config.lake.catalog.items()}}
    folder = sqlite_folder(config)
    return {
        **common,
        f"{name}.type": "jdbc",
        f"{name}.uri": f"jdbc:sqlite:{folder}/catalog.db?journal_mode=WAL&busy_timeout=60000",
        f"{name}.jdbc.schema-version": "V1",
    }


def sqlite_folder(config: Config) -> Path:
    """The folder of the embedded catalog: the warehouse itself."""
    return Path(config.lake.warehouse.removeprefix("file://").removeprefix("file:"))


def build_session(config: Config) -> SparkSession:
    """A session for this configuration; the embedded catalog's folder is made if missing."""
    # Workers must run this interpreter, or they pick another python3 from PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if not config.lake.catalog:
        sqlite_folder(config).mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder
    for key, value in spark_conf(config).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
