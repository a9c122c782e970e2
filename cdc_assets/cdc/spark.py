"""The Spark session that the stages run in: versions, jars, catalog and time zone.

Everything here is configuration; a cluster or another catalog needs no code.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import ConfigError, JavaError, LakeError
from cdc_assets.cdc.jars import check_jars, fetched_jar, ivy_folder
from cdc_assets.cdc.java import class_archive_options, first_failure, require_java
from cdc_assets.cdc.java_errors import Cause, causes, root_cause
from cdc_assets.cdc.places import CATALOG

PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.53.2.0",
)
# Spark's connector for Kafka and all that it needs, each pinned and fetched by itself: versions of
# one release are not always all in a repository, and none may pull in another. The connector is of
# Spark's own minor line; the token provider serves Kerberos delegation tokens only.
KAFKA_PACKAGES = (
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
)
# Spark's own module; the newest of its minor line that every repository has.
AVRO_PACKAGES = ("org.apache.spark:spark-avro_2.13:4.1.1",)
# Up to so many rows planning and compiling take the time, and not reading.
SMALL_ROWS = 5_000
# They are read in one piece, and what runs once is interpreted: half the work on the sample.
SMALL_WORK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.iceberg.distribution-mode": "none",
}
# For processes that make small days and end: compile fast rather than well.
SHORT_RUN = {
    # The small compiler's own room for code, 48 MB, is full at once and swept all the time. A heap
    # that starts large is not collected as long as it grows.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:InitialRAMPercentage=8"
    ),
}
# Spark walks a document of up to 1,000 nested levels by recursion, from deep within a plan: Java's
# default stack of 1 MB overflows, which ends the JVM.
_DEEP_STACK = "-Xss16m"
# What Spark generates to read an event is longer than the 8,000 bytes of bytecode up to which Java
# compiles a method: reading took half as long again.
_COMPILE_ALL = "-XX:-DontCompileHugeMethods"
# Nobody waits for a pause of the collector here: the one of most throughput and least memory.
_COLLECT_FAST = "-XX:+UseParallelGC"
# Spark's classes need more room than Java starts with, and to make it Java collects all it has.
_CLASS_ROOM = "-XX:MetaspaceSize=256m"
# Avro's readers make room for a text or an array before they look whether so many bytes follow: a
# damaged length of 2 GB would end the JVM. Kafka's records are shorter by far.
_AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{of}.maxLength={most}"
    for of, most in (("bytes", 1 << 25), ("string", 1 << 25), ("collectionItems", 1 << 22))
)
# Each where the user's own flags say nothing of it.
_JAVA_FLAGS = (
    (_DEEP_STACK, "-Xss"),
    (_COMPILE_ALL, "DontCompileHugeMethods"),
    (_COLLECT_FAST, r"-XX:\+Use\w+GC"),
    (_CLASS_ROOM, "MetaspaceSize"),
    (_AVRO_LIMITS, r"-Dorg\.apache\.avro\.limits"),
)
_LOG = Path(__file__).with_name("log4j2.properties")
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_SHORT_NAMES = {
    "packages": "spark.jars.packages",
    "memory": "spark.driver.memory",
    "cores": "spark.cores.max",
}


def spark_conf(config: Config, with_lake: bool = True) -> dict[str, str]:
    """All Spark settings: ours, then what cdc.yaml says under `spark` and `lake.catalog`.

    Without a lake they are those of a session that only reads landings, which needs no Iceberg.

    Raises:
        ConfigError: ``CDC_SPARK_JARS`` names a folder without jars.
    """
    own = {conf_name(name): value for name, value in config.spark.items()}
    for side in ("driver", "executor"):
        options = f"spark.{side}.extraJavaOptions"
        for flag, sign in _JAVA_FLAGS:
            if not re.search(sign, given := own.get(options, "")):
                own[options] = f"{flag} {given}".strip()
    driver = "spark.driver.extraJavaOptions"
    if "ArchiveClassesAtExit" not in own[driver]:
        own[driver] = f"{own[driver]} {class_archive_options()}".strip()
    if not _has_own_log(own[driver]):
        own[driver] = f'{own[driver]} "-Dlog4j2.configurationFile={_LOG}"'
    master = own.get("spark.master", "local[*]")
    return {
        "spark.app.name": "cdc-assets",
        "spark.master": master,
        # All of it is in one process: nobody else has to reach its ports, which ask for no secret.
        **(_LOOPBACK if master.startswith("local") else {}),
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What Spark's own pages would show of past queries, with the text of each plan.
        "spark.sql.ui.retainedExecutions": "10",
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.log.level": "WARN",
        # Beside Spark's own words, names of settings whose values are not shown.
        "spark.redaction.regex": "(?i)secret|password|token|credential|jaas|access[.-]?key|salt",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 2)),
        # Where in Python each expression was written, kept inside every expression, makes
        # tasks several times slower to ship than to run.
        "spark.sql.dataFrameQueryContext.enabled": "false",
        # The same on Python's side: five more calls to the JVM for each operation on a column.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # The first lower() by ICU's rules maps all of Unicode: two seconds and 4 GB of garbage, to
        # compare names that are ASCII.
        "spark.sql.icu.caseMappings.enabled": "false",
        **_jars(PACKAGES if with_lake else (), own.pop("spark.jars.packages", "")),
        **(_lake_conf(config) if with_lake else {}),
        **own,
        # Fixed: results must not depend on the machine's zone, nor columns on their case.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",
        "spark.sql.ansi.enabled": "true",
        # Names and values from data may stand in SQL text; none is a variable's.
        "spark.sql.variable.substitute": "false",
        # With Iceberg's extensions, spark.sql(query, args=…) fails without it.
        "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
        # A day that can't be read whole must fail, never land by half.
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
    }


def conf_name(name: str) -> str:
    """The whole name of a setting, as Spark has it."""
    return _SHORT_NAMES.get(name) or (name if name.startswith("spark.") else f"spark.{name}")


def _lake_conf(config: Config) -> dict[str, str]:
    extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    return {"spark.sql.extensions": extensions, **catalog_conf(config)}


def _jars(packages: Sequence[str], extra: str) -> dict[str, str]:
    folder = os.environ.get("CDC_SPARK_JARS")
    if not folder:
        listed = ",".join([*packages, *filter(None, [extra])])
        return {"spark.jars.packages": listed} if listed else {}
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
        # Of the JDBC catalogs: without it Spark can't ask whether a name is a view.
        f"{name}.jdbc.schema-version": "V1",
    }
    if config.lake.catalog:
        return {**common, **{f"{name}.{k}": v for k, v in config.lake.catalog.items()}}
    return {
        **common,
        f"{name}.type": "jdbc",
        f"{name}.uri": f"jdbc:sqlite:{config.lake.sqlite_file}?journal_mode=WAL&busy_timeout=60000",
    }


def _has_own_log(java_options: str) -> bool:
    """Whether the user says how Spark logs."""
    folder = os.environ.get("SPARK_CONF_DIR")
    is_there = folder is not None and (Path(folder) / "log4j2.properties").exists()
    return is_there or "log4j2.configurationFile" in java_options


def build_session(config: Config, with_lake: bool = True) -> SparkSession:
    """A session for this configuration; the embedded catalog's folder is made if missing.

    Without a lake it starts sooner, and only reads landings.

    Raises:
        LakeError: the folder can't be made.
        JavaError: there is no Java that Spark can run on, or Spark does not start.
    """
    starts_java = SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ
    if starts_java:
        require_java()
    # Workers must run this interpreter, or they pick another python3 from PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if with_lake and not config.lake.catalog:
        _make_folder(config.lake.folder)
        _make_private(config.lake.sqlite_file)
    settings = spark_conf(config, with_lake)
    if with_lake:
        present, fresh = _own_jars(settings)
        check_jars(present)
    if starts_java:
        _start_java(settings)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise JavaError(root_cause(error), _START_REMEDY) from None
    _hold_classes(session)
    if with_lake and fresh:
        check_jars(fresh)
    return session


def _own_jars(settings: Mapping[str, str]) -> tuple[list[Path], list[Path]]:
    """The jars that Spark is given: those that are there, and those that it is about to fetch."""
    if folder := os.environ.get("CDC_SPARK_JARS"):
        return sorted(Path(folder).glob("*.jar")), []
    ivy = ivy_folder(settings)
    jars = [fetched_jar(package, ivy) for package in PACKAGES]
    return [j for j in jars if j.exists()], [j for j in jars if not j.exists()]


_START_REMEDY = "see the settings under spark in cdc.yaml, and Spark's log"


def _start_java(settings: Mapping[str, str]) -> None:
    """Start the JVM that PySpark talks to.

    By itself PySpark would write all settings into its command line, where every user of this
    machine can read them: here they are in a file that this user alone can read.

    Raises:
        JavaError: it did not start.
    """
    try:
        gateway = _launched(settings)
    except PySparkRuntimeError:
        # Its words went to the terminal or the log: once more, to read them.
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            try:
                gateway = _launched(settings, {"stdout": said, "stderr": subprocess.STDOUT})
            except PySparkRuntimeError:
                said.seek(0)
                raise JavaError(first_failure(said), _START_REMEDY) from None
    SparkContext._ensure_initialized(gateway=gateway)


def _launched(settings: Mapping[str, str], streams: Mapping[str, Any] | None = None) -> Any:
    handle, name = tempfile.mkstemp(prefix="cdc-assets-", suffix=".properties")  # mode 0600
    before = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(f"{key}={_property(value)}\n" for key, value in settings.items())
        # Spark leaves its own file of defaults out where another one is named.
        ours = f"--load-spark-defaults --properties-file {shlex.quote(name)}"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{ours} {before}"
        return launch_gateway(popen_kwargs=dict(streams or {}))
    finally:
        if before == "pyspark-shell":
            os.environ.pop("PYSPARK_SUBMIT_ARGS", None)
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before
        Path(name).unlink()


def _property(value: str) -> str:
    """A value as a file of Java's properties has it."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return re.sub(r"^(?=[ \t\f])", r"\\", escaped)


_small_sessions: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()
_making = Lock()


def is_small(rows: int) -> bool:
    """Whether work on so many rows is small: planning it takes longer than reading them."""
    return rows <= SMALL_ROWS


def session_for(spark: SparkSession, config: Config, rows: int) -> SparkSession:
    """The session for work on so many rows: this one, or its twin with settings for small work.

    What cdc.yaml says of such a setting holds for both. Frames of the two must not meet.
    """
    if not is_small(rows):
        return spark
    with _making:
        if spark not in _small_sessions:
            said = {conf_name(name) for name in config.spark}
            small = {name: value for name, value in SMALL_WORK.items() if name not in said}
            context, twin = spark.sparkContext, spark._jsparkSession.newSession()
            settings = {**spark.conf.getAll, **small}
            _small_sessions[spark] = SparkSession(context, twin, settings)
        return _small_sessions[spark]


# PySpark asks the JVM again for a class at every call of a function, and the JVM then looks for it
# in each jar: a third of the time of a small day.
SESSION = "org.apache.spark.sql.classic.SparkSession"
TABLES = "org.apache.iceberg.spark.Spark3Util"
METADATA = "org.apache.iceberg.TableMetadataParser"
STRING = "java.lang.String"
GENERICS = "org.apache.iceberg.data.IcebergGenerics"
EXPRESSIONS = "org.apache.iceberg.expressions.Expressions"
_HELD_CLASSES = (
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
    "py4j",
    "org",
    "org.apache.spark.sql.functions",
    *(SESSION, TABLES, METADATA, STRING, GENERICS, EXPRESSIONS),
)


def _hold_classes(session: SparkSession) -> None:
    jvm: Any = session._jvm
    for name in _HELD_CLASSES:
        setattr(jvm, name, getattr(jvm, name))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LakeError(
            f"the warehouse {folder} can't be created ({error.strerror}: {error.filename}). Make "
            "it a folder that this user may write, or change lake.warehouse"
        ) from error


def _make_private(file: Path) -> None:
    """Make the catalog's file, so that others can't read it; SQLite's files beside it follow."""
    with suppress(OSError):  # SQLite says what is wrong
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o660))
        if (mode := stat.S_IMODE(file.stat().st_mode)) & 0o007:
            file.chmod(mode & ~0o007)


_LOST = (
    "java.lang.OutOfMemoryError",
    "org.apache.spark.shuffle.FetchFailedException",  # an executor's shuffle files
)
_LOST_ROWS = (
    "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"  # an executor's local checkpoint, see checkpoints.py
)
# The scheduler gives these reasons in the message of its own exception, which has no cause then.
_LOST_REASONS = (
    "ExecutorLostFailure",
    "executor lost",
    "FetchFailed",
    "SparkContext was shut down",
    "stopped SparkContext",
)


def is_lost(error: BaseException | None) -> bool:
    """True where Spark itself is gone, its driver or executors, and the data is not to blame."""
    if error is None:
        return False
    is_gone = isinstance(error, (Py4JNetworkError, ConnectionError)) or (
        isinstance(error, Py4JError) and _is_jvm_dead(patient=not isinstance(error, Py4JJavaError))
    )
    return is_gone or _says_lost(causes(error)) or is_lost(error.__cause__)


def _says_lost(chain: Sequence[Cause]) -> bool:
    return any(c.is_a(*_LOST) or c.condition == _LOST_ROWS for c in chain) or (
        bool(chain) and any(reason in chain[-1].message for reason in _LOST_REASONS)
    )


def _is_jvm_dead(patient: bool) -> bool:
    """Py4J says of a dead JVM now this and now that; the process that PySpark started knows.

    Patient: a JVM that has been killed a moment ago may not have ended yet.
    """
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    with suppress(TimeoutExpired):
        process.wait(1 if patient else 0)
    return process.poll() is not None


_adding_jars = Lock()


def add_kafka(spark: SparkSession) -> None:
    """Give a session Spark's connector for Kafka, unless it has it.

    The jars are fetched the first time a source needs them, from where `spark.jars.packages`
    come; or they are in the folder ``CDC_SPARK_JARS``.

    Raises:
        ConfigError: they can't be fetched.
    """
    _add_jars(spark, "connector for Kafka", KAFKA_PACKAGES)


def add_avro(spark: SparkSession) -> None:
    """Give a session Spark's module for Avro, unless it has it; as :func:`add_kafka`."""
    _add_jars(spark, "module for Avro", AVRO_PACKAGES)


def _add_jars(spark: SparkSession, what: str, packages: Sequence[str]) -> None:
    context: Any = spark.sparkContext._jsc.sc()
    jvm: Any = spark._jvm
    name = packages[-1].split(":")[1]
    with _adding_jars:
        if name not in context.listJars().mkString(" "):
            _fetch_jars(spark, what, packages)
    # Added jars have a class loader of their own; another thread may have added them.
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
