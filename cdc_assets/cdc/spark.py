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

from cdc_assets.cdc import json_reader
from cdc_assets.cdc.config import Config, PathTableConfig
from cdc_assets.cdc.errors import ConfigError, JavaError, LakeError
from cdc_assets.cdc.jars import check_jars, fetched_jar, ivy_folder
from cdc_assets.cdc.java import class_archive_options, first_failure, require_java
from cdc_assets.cdc.java_errors import Cause, causes, root_cause
from cdc_assets.cdc.places import CATALOG

PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.53.2.0",
)
DELTA_PACKAGES = ("io.delta:delta-storage:4.3.1", "io.delta:delta-spark_4.1_2.13:4.3.1")
# Up to this number of rows, planning and compiling take longer than reading.
SMALL_ROWS = 5_000
# One task, interpreted instead of compiled: halves the time on the sample.
SMALL_WORK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.iceberg.distribution-mode": "none",
    # What the optimizer looks for to read less: a sixth of the CPU of such days went there.
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.sources.v2.bucketing.enabled": "false",
}
# For short processes that make small days: compile fast rather than well.
SHORT_RUN = {
    # The C1 compiler's default code cache of 48 MB fills at once and is swept all the time. A heap
    # that starts large is not collected while it grows.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:InitialRAMPercentage=8"
    ),
}
# Spark recurses through documents of up to 1,000 levels from deep within a plan: Java's default
# stack of 1 MB would overflow and end the JVM.
_DEEP_STACK = "-Xss16m"
# Spark's generated code for an event exceeds 8,000 bytes, Java's limit for compiled methods:
# without this flag reading takes half as long again.
_COMPILE_ALL = "-XX:-DontCompileHugeMethods"
# The collector with the most throughput and least memory; pauses do not matter.
_COLLECT_FAST = "-XX:+UseParallelGC"
# Spark's classes exceed Java's initial metaspace, and growing it triggers full collections.
_CLASS_ROOM = "-XX:MetaspaceSize=256m"
# Avro's readers allocate a text or an array before they check its length: a damaged length of 2 GB
# would end the JVM. Kafka's records are far shorter.
_AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{kind}.maxLength={most}"
    for kind, most in (("bytes", 1 << 25), ("string", 1 << 25), ("collectionItems", 1 << 22))
)
# Flags, and the pattern of a user's own flag that replaces each.
_JAVA_FLAGS = (
    (_DEEP_STACK, "-Xss"),
    (_COMPILE_ALL, "DontCompileHugeMethods"),
    (_COLLECT_FAST, r"-XX:\+Use\w+GC"),
    (_CLASS_ROOM, "MetaspaceSize"),
    (_AVRO_LIMITS, r"-Dorg\.apache\.avro\.limits"),
)
_JARS = "spark.jars"
_LOG = Path(__file__).with_name("log4j2.properties")
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_SHORT_NAMES = {
    "packages": "spark.jars.packages",
    "memory": "spark.driver.memory",
    "cores": "spark.cores.max",
}


_DEFAULTS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Limits of what Spark keeps of past queries for its pages, with the text of each plan.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.log.level": "WARN",
    # Names of settings whose values are hidden; more than Spark's own.
    "spark.redaction.regex": "(?i)secret|password|token|credential|jaas|access[.-]?key|salt",
    # The Python call site in every expression makes tasks several times slower to ship than to
    # run.
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # The same on Python's side: five more calls to the JVM for each operation on a column.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The first lower() by ICU's rules maps all of Unicode: two seconds and 4 GB of garbage for
    # ASCII names.
    "spark.sql.icu.caseMappings.enabled": "false",
    # A day of changes takes more than a hundred generated classes. Spark's cache has room for a
    # hundred: each day would compile them again, and Java with them, on one of two cores.
    "spark.sql.codegen.cache.maxEntries": "1000",
}
_FIXED = {
    # Results must not depend on the machine's time zone, nor on the case of column names.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "true",
    # Names and values from data in SQL text are never variables.
    "spark.sql.variable.substitute": "false",
    # With Iceberg's extensions, spark.sql(query, args=…) fails without it.
    "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
    # A day that can't be read whole must fail, never land in part.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}


# Reading needs none of the extensions that Delta asks a session for.
_READ_DELTA = {"spark.databricks.delta.requiredSparkConfsCheck.enabled": "false"}


def packages_of(config: Config) -> tuple[str, ...]:
    """The packages that a session with a lake starts with: Delta's only where a source needs it.

    Other than Kafka's and Avro's, its classes can't be added to a running session: Spark would load
    them once for the driver and once for executors in the same JVM, which Delta refuses.
    """
    return (*PACKAGES, *DELTA_PACKAGES) if _reads_delta(config) else PACKAGES


def _reads_delta(config: Config) -> bool:
    tables = (settings.landing.table for settings in config.sources.values())
    return any(isinstance(of, PathTableConfig) and of.format == "delta" for of in tables)


def spark_conf(config: Config, with_lake: bool = True) -> dict[str, str]:
    """All Spark settings: the defaults, then those under `spark` and `lake.catalog` in cdc.yaml.

    Without a lake the session only reads landings and needs no Iceberg.

    Raises:
        ConfigError: ``CDC_SPARK_JARS`` names a folder without jars.
    """
    own = {conf_name(name): value for name, value in config.spark.items()}
    own |= _java_options(own)
    master = own.get("spark.master", "local[*]")
    settings = {
        "spark.app.name": "cdc-assets",
        "spark.master": master,
        # In local mode one process does it all: nobody else has to reach its unprotected ports.
        **(_LOOPBACK if master.startswith("local") else {}),
        **_DEFAULTS,
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 2)),
        **_jars(packages_of(config) if with_lake else (), own.pop("spark.jars.packages", "")),
        **(_lake_conf(config) if with_lake else {}),
        **(_READ_DELTA if _reads_delta(config) else {}),
        **own,
        **json_reader.CATALOG_SETTINGS,
        **_FIXED,
    }
    jar = json_reader.find_jar()
    return _with_jar(settings, jar) if jar else settings


def _with_jar(settings: Mapping[str, str], jar: Path) -> dict[str, str]:
    """The settings with one more jar, of drivers and executors."""
    return {**settings, _JARS: ",".join([*filter(None, [settings.get(_JARS)]), str(jar)])}


def _java_options(own: Mapping[str, str]) -> dict[str, str]:
    """Java's options of driver and executors: the user's own and those that they lack."""
    driver, executor = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
    options = {side: own.get(side, "") for side in (driver, executor)}
    for side in options:
        for flag, sign in _JAVA_FLAGS:
            if not re.search(sign, options[side]):
                options[side] = f"{flag} {options[side]}".strip()
    if "ArchiveClassesAtExit" not in options[driver]:
        options[driver] = f"{options[driver]} {class_archive_options()}".strip()
    if not _has_own_log(options[driver]):
        options[driver] = f'{options[driver]} "-Dlog4j2.configurationFile={_LOG}"'
    return options


def conf_name(name: str) -> str:
    """The full name of a Spark setting."""
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
    found = {_JARS: ",".join(jars)}
    return {**found, "spark.jars.packages": extra} if extra else found


def catalog_conf(config: Config) -> dict[str, str]:
    """The settings of the catalog `lake`: JDBC on SQLite, or those of `lake.catalog`."""
    name = f"spark.sql.catalog.{CATALOG}"
    common = {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.warehouse": config.lake.warehouse,
        # A cached table hides commits of other processes.
        f"{name}.cache-enabled": "false",
        # Without it a JDBC catalog can't tell Spark whether a name is a view.
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
    """Whether the user configures Spark's log."""
    folder = os.environ.get("SPARK_CONF_DIR")
    has_file = folder is not None and (Path(folder) / "log4j2.properties").exists()
    return has_file or "log4j2.configurationFile" in java_options


def build_session(config: Config, with_lake: bool = True) -> SparkSession:
    """A session for this configuration; creates the embedded catalog's folder if missing.

    Without a lake it starts sooner, and only reads landings.

    Raises:
        LakeError: the folder can't be created.
        JavaError: there is no Java that Spark can run on, or Spark does not start.
    """
    starts_java = SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ
    if starts_java:
        require_java()
    # Workers must run this interpreter instead of the first python3 in PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if with_lake and not config.lake.catalog:
        _make_folder(config.lake.folder)
        _make_private(config.lake.sqlite_file)
    settings = spark_conf(config, with_lake)
    if with_lake:
        present, missing = _own_jars(settings)
        check_jars(present)
    had_jar = json_reader.find_jar() is not None
    if starts_java:
        _start_java(settings)
    if not (starts_java and had_jar):
        settings = _with_json_reader(settings)
    settings = _with_fetched_jars(settings)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise JavaError(root_cause(error), _START_REMEDY) from None
    _hold_classes(session)
    _read_s3_by_s3a(session)
    if with_lake and missing:
        check_jars(missing)
    return session


def _with_json_reader(settings: Mapping[str, str]) -> dict[str, str]:
    """Give the reader of JSON to a JVM that started without it; it is compiled where need be."""
    SparkContext._ensure_initialized()
    gateway: Any = SparkContext._gateway
    jar = json_reader.find_jar()
    if jar is None:
        jar = json_reader.compile_jar(gateway)
        settings = _with_jar(settings, jar)
    gateway.jvm.org.apache.spark.sql.api.python.PythonSQLUtils.addJarToCurrentClassLoader(str(jar))
    return dict(settings)


def _with_fetched_jars(settings: Mapping[str, str]) -> dict[str, str]:
    """Keep the jars that Java was started with: those of `spark.jars.packages` are among them.

    A session's own `spark.jars` takes their place, and executors of a cluster would not get them.
    """
    gateway: Any = SparkContext._gateway
    started_with = gateway.jvm.java.lang.System.getProperty(_JARS) or ""
    jars = [*started_with.split(","), *settings.get(_JARS, "").split(",")]
    by_place = {jar.removeprefix("file:").replace("///", "/"): jar for jar in filter(None, jars)}
    return {**settings, _JARS: ",".join(by_place.values())} if by_place else dict(settings)


def _own_jars(settings: Mapping[str, str]) -> tuple[list[Path], list[Path]]:
    """Spark's additional jars: those present, and those that it is about to fetch."""
    if folder := os.environ.get("CDC_SPARK_JARS"):
        return sorted(Path(folder).glob("*.jar")), []
    ivy = ivy_folder(settings)
    asked = settings.get("spark.jars.packages", "").split(",")
    packages = [package for package in (*PACKAGES, *DELTA_PACKAGES) if package in asked]
    jars = [fetched_jar(package, ivy) for package in packages]
    return [j for j in jars if j.exists()], [j for j in jars if not j.exists()]


_START_REMEDY = "see the settings under spark in cdc.yaml, and Spark's log"


def _start_java(settings: Mapping[str, str]) -> None:
    """Start the JVM that PySpark talks to.

    PySpark would write all settings into its command line, which every user of this machine can
    read; here they are in a private file.

    Raises:
        JavaError: it did not start.
    """
    try:
        gateway = _launched(settings)
    except PySparkRuntimeError:
        # Its output went to the terminal or the log: start it again to capture it.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            try:
                gateway = _launched(settings, {"stdout": output, "stderr": subprocess.STDOUT})
            except PySparkRuntimeError:
                output.seek(0)
                raise JavaError(first_failure(output), _START_REMEDY) from None
    SparkContext._ensure_initialized(gateway=gateway)


def _launched(settings: Mapping[str, str], streams: Mapping[str, Any] | None = None) -> Any:
    handle, name = tempfile.mkstemp(prefix="cdc-assets-", suffix=".properties")  # mode 0600
    before = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(f"{key}={_property(value)}\n" for key, value in settings.items())
        # With --properties-file alone, Spark would ignore its file of defaults.
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
    """A value escaped for a file of Java properties."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return re.sub(r"^(?=[ \t\f])", r"\\", escaped)


_small_sessions: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()
_making = Lock()


def is_small(rows: int) -> bool:
    """Whether planning work on so many rows takes longer than reading them."""
    return rows <= SMALL_ROWS


def session_for(spark: SparkSession, config: Config, rows: int) -> SparkSession:
    """The session for work on so many rows: this one, or its twin with settings for small work.

    Settings in cdc.yaml hold for both. Frames of the two sessions can't be combined.
    """
    if not is_small(rows):
        return spark
    with _making:
        if spark not in _small_sessions:
            own = {conf_name(name) for name in config.spark}
            small = {name: value for name, value in SMALL_WORK.items() if name not in own}
            context, twin = spark.sparkContext, spark._jsparkSession.newSession()
            settings = {**spark.conf.getAll, **small}
            _small_sessions[spark] = SparkSession(context, twin, settings)
        return _small_sessions[spark]


# PySpark looks up a class in the JVM at every call of a function, and the JVM searches all jars: a
# third of the time of a small day. So these classes are cached.
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


def _read_s3_by_s3a(session: SparkSession) -> None:
    """Read ``s3://`` as ``s3a://``, unless a cluster says otherwise, such as Amazon's EMR."""
    jsc: Any = session._jsc
    jsc.hadoopConfiguration().setIfUnset("fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LakeError(
            f"the warehouse {folder} can't be created ({error.strerror}: {error.filename}). Make "
            "it a folder that this user may write, or change lake.warehouse"
        ) from error


def _make_private(file: Path) -> None:
    """Create the catalog's file, unreadable for others; SQLite's other files inherit the mode."""
    with suppress(OSError):  # SQLite reports the fault
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
# Reasons in the message of the scheduler's exception, which then has no cause.
_LOST_REASONS = (
    "ExecutorLostFailure",
    "executor lost",
    "FetchFailed",
    "SparkContext was shut down",
    "stopped SparkContext",
)


def is_lost(error: BaseException | None) -> bool:
    """True if Spark's driver or executors are gone and the data is not to blame."""
    if error is None:
        return False
    is_gone = isinstance(error, (Py4JNetworkError, ConnectionError)) or (
        isinstance(error, Py4JError) and _is_jvm_dead(wait=not isinstance(error, Py4JJavaError))
    )
    return is_gone or _says_lost(causes(error)) or is_lost(error.__cause__)


def _says_lost(chain: Sequence[Cause]) -> bool:
    return any(c.is_a(*_LOST) or c.condition == _LOST_ROWS for c in chain) or (
        bool(chain) and any(reason in chain[-1].message for reason in _LOST_REASONS)
    )


def _is_jvm_dead(wait: bool) -> bool:
    """Whether the process that PySpark started has ended; Py4J's errors vary for a dead JVM.

    `wait`: wait a second, as a JVM that was just killed may still run.
    """
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    with suppress(TimeoutExpired):
        process.wait(1 if wait else 0)
    return process.poll() is not None
