"""Jars that a session loads once something asks for them: Kafka's connector, Avro's module."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.jars import check_jars, fetched_jar, ivy_folder
from cdc_assets.cdc.java_errors import root_cause
from cdc_assets.cdc.spark import PACKAGES

# Spark's connector for Kafka and its dependencies, each pinned and fetched without transitive ones:
# repositories do not always have all artifacts of a release. The connector is of Spark's own minor
# line; the token provider serves Kerberos delegation tokens only.
KAFKA_PACKAGES = (
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
)
# Spark's own module; the newest of its minor line that every repository has.
AVRO_PACKAGES = ("org.apache.spark:spark-avro_2.13:4.1.1",)

POSTGRESQL_PACKAGES = ("org.postgresql:postgresql:42.7.14",)

_adding_jars = Lock()


def add_kafka(spark: SparkSession) -> None:
    """Add Spark's connector for Kafka to a session, unless it has it.

    The jars are in the folder ``CDC_SPARK_JARS``, or are fetched at first use from the repositories
    of `spark.jars.packages`.

    Raises:
        ConfigError: they can't be fetched.
    """
    _add_jars(spark, "connector for Kafka", KAFKA_PACKAGES)


def add_avro(spark: SparkSession) -> None:
    """Add Spark's module for Avro to a session, as :func:`add_kafka`."""
    _add_jars(spark, "module for Avro", AVRO_PACKAGES)


def add_postgresql(spark: SparkSession) -> None:
    """Add PostgreSQL's driver to a session, as :func:`add_kafka`."""
    _add_jars(spark, "driver of PostgreSQL", POSTGRESQL_PACKAGES)


def _add_jars(spark: SparkSession, what: str, packages: Sequence[str]) -> None:
    context: Any = spark.sparkContext._jsc.sc()
    name = packages[-1].split(":")[1]
    with _adding_jars:
        if name not in context.listJars().mkString(" "):
            _fetch_jars(spark, what, packages)
    use_added_jars(spark)


def use_added_jars(spark: SparkSession) -> None:
    """Let this thread find the classes of jars that it or another one added to the session.

    Spark loads them with a class loader of their own, which is a thread's own setting.
    """
    jvm: Any = spark._jvm
    loader = spark._jsparkSession.sharedState().jarClassLoader()
    jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)


def _fetch_jars(spark: SparkSession, what: str, packages: Sequence[str]) -> None:
    try:
        for package in packages:
            spark.sql(f"ADD JAR 'ivy://{package}?transitive=false'")
        ivy = ivy_folder(spark.conf.getAll)
        check_jars(fetched_jar(package, ivy) for package in packages)
    except (Py4JError, PySparkException) as error:
        why = root_cause(error)
        raise ConfigError(
            [
                f"Spark's {what} can't be fetched ({why}). Without a network put "
                f"{', '.join((*PACKAGES, *packages))} into a folder and name it in CDC_SPARK_JARS"
            ]
        ) from error
