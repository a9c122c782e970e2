"""Landed files: ``<files>/<YYYY-MM-DD>/*.jsonl | .jsonl.gz | .parquet`` become landing rows.

What a line is, see :mod:`~cdc_assets.cdc.landing.record_lines`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc.config import Config, local_path
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.java_errors import JAVA_ERRORS, causes, root_cause
from cdc_assets.cdc.lake.errors import UNREADABLE_FILE
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets.cdc.landing.record_lines import END_OF_TIME_MS, NO_TIMESTAMP, from_lines
from cdc_assets.cdc.reading_progress import expect
from cdc_assets.cdc.sqltext import local_frame

_GLOB = re.compile(r"([\\\[\]{}*?,])")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_IGNORED = ("_", ".")  # prefixes of ignored names, as in Spark and Hadoop
_TEXTS = (".jsonl", ".jsonl.gz")
LANDED = (*_TEXTS, ".parquet")  # endings of landed files
NO_DAY = date(1970, 1, 1)  # the day of a file outside a day's folder
_PARQUET_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
# Hadoop knows no class of a URL's scheme, or has no jar with it.
_NO_FILE_SYSTEM = (
    "org.apache.hadoop.fs.UnsupportedFileSystemException",
    "java.lang.ClassNotFoundException",
)


def is_ignored(name: str) -> bool:
    """True for names of files and folders that are not landings."""
    return name.startswith(_IGNORED)


def day_of(name: str) -> date | None:
    """The day of a folder ``YYYY-MM-DD``; None where the name is not a day."""
    try:
        return date.fromisoformat(name) if _DAY.fullmatch(name) else None
    except ValueError:
        return None


@dataclass(frozen=True)
class LandedDay:
    """The files of one day."""

    day: date
    texts: tuple[str, ...]
    parquets: tuple[str, ...]
    fingerprint: str  # changes when a file is added, removed, grown or touched
    bytes: int = 0
    sizes: tuple[int, ...] = ()  # of the texts
    counts: Mapping[str, int] = field(default_factory=dict)  # of what its records are, for people
    learned: Mapping[str, Any] = field(default_factory=dict)  # what to record of files beside it

    @property
    def files(self) -> int:
        """How many files there are."""
        return len(self.texts) + len(self.parquets)


def list_day(spark: SparkSession, source: str, folder: str, day: date) -> LandedDay:
    """The files of a day; none where the day has no folder.

    Names that start with ``_`` or ``.`` are skipped, as Spark and Hadoop do.

    Raises:
        LandingError: the landing folder is missing, or holds a file of an unknown kind.
    """
    root, system = _hadoop_folder(spark, folder)
    if not system.exists(root):
        raise LandingError(
            source,
            f"the landing folder {folder} is missing; create it, or correct "
            f"sources.{source}.landing.files in cdc.yaml",
            folder,
        )
    jvm: Any = spark._jvm
    day_folder = jvm.org.apache.hadoop.fs.Path(root, str(day))
    texts, sizes, parquets, seen = [], [], [], []
    statuses = system.listStatus(day_folder) if system.exists(day_folder) else []
    for status in sorted(statuses, key=lambda s: str(s.getPath().getName())):
        name, path = status.getPath().getName(), status.getPath().toString()
        if is_ignored(name):
            continue
        if status.isFile() and name.endswith(_TEXTS):
            texts.append(path)
            sizes.append(int(status.getLen()))
        elif status.isFile() and name.endswith(".parquet"):
            parquets.append(path)
        else:
            raise LandingError(
                source,
                f"{path} is not a landed file; expected *.jsonl, *.jsonl.gz or *.parquet. "
                "Rename it, move it away, or start its name with _ to have it ignored",
                path,
            )
        seen.append((name, status.getLen(), status.getModificationTime()))
    size = sum(length for _, length, _ in seen)
    return LandedDay(day, tuple(texts), tuple(parquets), fingerprint_of(seen), size, tuple(sizes))


def _hadoop_folder(spark: SparkSession, folder: str) -> tuple[Any, Any]:
    """Hadoop's path of a folder, and its file system."""
    jvm: Any = spark._jvm
    jsc: Any = spark._jsc
    root = jvm.org.apache.hadoop.fs.Path(folder)
    return root, root.getFileSystem(jsc.hadoopConfiguration())


def list_names(spark: SparkSession, folder: str) -> list[str]:
    """The names in a landing folder, without ignored ones; one listing."""
    root, system = _hadoop_folder(spark, folder)
    names = (str(status.getPath().getName()) for status in system.listStatus(root))
    return sorted(name for name in names if not is_ignored(name))


def no_day(source: str, folder: str, entries: Sequence[str]) -> LandingError:
    """The error for a landing folder with entries but no day."""
    more = f" and {len(entries) - 3} more" if entries[3:] else ""
    return LandingError(
        source,
        f"{folder} has no folder of a day, but {', '.join(entries[:3])}{more}; expected folders "
        "named YYYY-MM-DD with *.jsonl, *.jsonl.gz or *.parquet in them. Correct "
        f"sources.{source}.landing.files, have the files delivered by day, or let the names of "
        "what is not landed start with _",
        folder,
    )


def fingerprint_of(files: Iterable[tuple[str, int | str, int]]) -> str:
    """A hash of (name, bytes or what else tells it, modified in ms)."""
    lines = (f"{name}\0{size}\0{modified}\n" for name, size, modified in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:32]


NONE = fingerprint_of(())  # the fingerprint of a day without files


@dataclass(frozen=True)
class SeenDay:
    """The files of a day, listed without Spark."""

    fingerprint: str  # the same as `LandedDay.fingerprint`
    modified_ms: int  # of the newest file


def see_days(source: str, folder: str) -> dict[date, SeenDay]:
    """All days of a landing folder, local or in a store.

    Raises:
        OSError: the folder can't be listed.
        LandingError: the folder has entries, but none of a day.
    """
    from pyarrow import fs

    system, root = fs.FileSystem.from_uri(as_uri(folder))
    files: dict[date, list[tuple[str, int, int]]] = {}
    has_days, others = False, set[str]()
    for info in system.get_file_info(fs.FileSelector(root, recursive=True)):
        parts = info.path[len(root) :].strip("/").split("/")
        day = day_of(parts[0])
        if day is None and not is_ignored(parts[0]):
            others.add(parts[0])
        has_days = has_days or day is not None
        if day is None or len(parts) != 2 or is_ignored(parts[1]):
            continue
        files.setdefault(day, []).append((parts[1], info.size or 0, info.mtime_ns // 1_000_000))
    if others and not has_days:
        raise no_day(source, folder, sorted(others))
    return {
        day: SeenDay(fingerprint_of(listed), max(modified for *_, modified in listed))
        for day, listed in files.items()
    }


def open_landed(path: str) -> Any:
    """A landed file as a stream of its bytes, without Spark; a context manager."""
    from pyarrow import fs

    system, place = fs.FileSystem.from_uri(as_uri(path))
    return system.open_input_stream(place, compression=None)


def as_uri(place: str) -> str:
    """A folder or URL as PyArrow's file systems take it."""
    if "://" not in place:
        return local_path(place).absolute().as_uri()
    # s3a and s3n are schemes of Hadoop only.
    return re.sub(r"^s3[an]://", "s3://", place)


def read_days(spark: SparkSession, source: str, days: Sequence[LandedDay]) -> DataFrame:
    """The records of some days: the columns of `LANDING`, one row per record or line.

    Raises:
        LandingError: a file is gone, or a Parquet file can't be opened or lacks a column.
    """
    expect(bytes=sum(day.bytes for day in days))
    frames = []
    texts = [path for day in days for path in day.texts]
    if texts:
        try:
            lines = spark.read.option("lineSep", "\n").text([_literal_path(p) for p in texts])
        except JAVA_ERRORS as error:
            raise unreadable(source, error) from error
        frames.append(from_lines(lines.select("value", *_where_from(lines))))
    for path in (path for day in days for path in day.parquets):
        frames.append(_from_parquet(spark, source, path))
    if not frames:
        return local_frame(spark, [], LANDING)
    return reduce(DataFrame.unionByName, frames).to(LANDING)


def _literal_path(path: str) -> str:
    """A path with its glob characters escaped."""
    return _GLOB.sub(r"\\\1", path)


def _where_from(frame: DataFrame) -> tuple[Column, Column]:
    # F.col("_metadata") would find a Parquet file's own column of that name.
    metadata = frame.metadataColumn("_metadata")
    path = metadata.getField("file_path")
    folder = F.regexp_extract(path, r"/(\d{4}-\d{2}-\d{2})/[^/]+$", 1)
    # The date is null for a file outside a day's folder (read_file).
    return (
        folder.try_cast("date").alias("landing_date"),
        metadata.getField("file_name").alias("file"),
    )


def _from_millis(millis: Column) -> Column:
    """Null outside the years 1970 to 9999, where Spark or its readers overflow."""
    is_time = (millis >= 0) & (millis < END_OF_TIME_MS)
    return F.when(is_time, F.timestamp_millis(millis))


def _until_end_of_time(timestamp: Column) -> Column:
    return F.when(timestamp < F.timestamp_millis(F.lit(END_OF_TIME_MS)), timestamp)


def _check_parquet_columns(source: str, path: str, frame: DataFrame) -> None:
    missing = [name for name in _PARQUET_COLUMNS if name not in frame.columns]
    if missing:
        raise LandingError(
            source,
            f"{path} lacks {', '.join(missing)}; expected the columns of Spark's Kafka source: "
            + ", ".join(_PARQUET_COLUMNS),
            path,
        )


def _from_parquet(spark: SparkSession, source: str, path: str) -> DataFrame:
    try:
        frame = spark.read.parquet(_literal_path(path))
    except JAVA_ERRORS as error:
        raise unreadable(source, error, path) from error
    _check_parquet_columns(source, path, frame)
    present = set(frame.columns)
    sent = F.col("timestamp")
    if dict(frame.dtypes)["timestamp"] == "bigint":
        timestamp, is_no_timestamp = _from_millis(sent), sent == NO_TIMESTAMP
    else:
        timestamp, is_no_timestamp = _until_end_of_time(sent.cast("timestamp")), F.lit(False)
    partition = F.col("partition").try_cast("int")
    offset = F.col("offset").try_cast("bigint")
    is_record = (partition >= 0) & (offset >= 0)
    is_record = is_record & (sent.isNull() | timestamp.isNotNull() | is_no_timestamp)

    def if_record(field: Column) -> Column:
        return F.when(is_record, field)

    def optional(name: str) -> Column:
        return F.col(name) if name in present else F.lit(None)

    return frame.select(
        if_record(F.col("topic").cast("string")).alias("topic"),
        if_record(partition).alias("partition"),
        if_record(offset).alias("offset"),
        if_record(timestamp).alias("timestamp"),
        if_record(optional("timestampType").cast("int")).alias("timestamp_type"),
        if_record(F.col("key").cast("binary")).alias("key"),
        F.col("value").cast("binary").alias("value"),
        if_record(optional("headers").cast(LANDING["headers"].dataType)).alias("headers"),
        *_where_from(frame),
    )


def unreadable(
    source: str, error: Exception, path: str | None = None, with_values: bool = True
) -> LandingError:
    """The error for a file that can't be read whole; names the file."""
    chain = causes(error)
    if path is None:
        paths = [cause.message for cause in chain if cause.is_a(UNREADABLE_FILE)]
        path = next((p for cause in chain if (p := cause.parameters.get("path"))), None)
        path = path or next(iter(paths), None)
    remedy = "Deliver the file again, or move it away"
    if any(cause.is_a(*_NO_FILE_SYSTEM) for cause in chain):
        remedy = (
            "Name the jars with which Spark reads this store in spark.jars.packages in cdc.yaml"
        )
    return LandingError(
        source,
        f"{path or 'a landed file'} can't be read whole ({root_cause(error, with_values)}); "
        f"nothing of this day was landed. {remedy}",
        path,
    )


def read_file(
    spark: SparkSession, file: Path, source: str, config: Config | None = None
) -> DataFrame:
    """The landing rows of one file (`LANDING`), in its order; `landing_date` is never null.

    A record of a file outside a day's folder has the day of its timestamp, else today, in the
    configuration's time zone; without a configuration `NO_DAY`.

    Raises:
        LandingError: the file is of another kind, or can't be opened.
    """
    path = str(file.resolve())
    is_text = path.endswith(_TEXTS)
    if not is_text and not path.endswith(".parquet"):
        raise LandingError(
            source, f"{path} is not a landed file; expected *.jsonl, *.jsonl.gz or *.parquet", path
        )
    texts, parquets = ((path,), ()) if is_text else ((), (path,))
    rows = read_days(spark, source, [LandedDay(NO_DAY, texts, parquets, fingerprint="")])
    days = [F.col("landing_date")]
    if config is not None:
        zone = F.lit(config.timezone)
        days.append(
            F.convert_timezone(F.lit("UTC"), zone, F.col("timestamp").cast("timestamp_ntz")).cast(
                "date"
            )
        )
    days.append(F.lit(NO_DAY if config is None else config.today()))
    return rows.withColumn("landing_date", F.coalesce(*days))
