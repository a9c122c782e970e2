"""Tables in a folder that no catalog has: Parquet files, in Hive's folders or none, and Delta."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cdc_assets.cdc.config import PathTableConfig
from cdc_assets.cdc.errors import LandingError, first_line
from cdc_assets.cdc.landing.files import as_uri, is_ignored
from cdc_assets.cdc.landing.source_tables import NEVER, Appended, Seen

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem
    from pyspark.sql import DataFrame, SparkSession

_LOG = "_delta_log"
# Spark lists the files of a table itself where more than these would have to be named.
_MOST_NAMED = 2_000
_SETTLED_MS = 2_000


@dataclass(frozen=True)
class _Folder:
    """What tables in a folder have in common; their rows are not counted."""

    path: str
    timestamp: str
    system: FileSystem

    @property
    def name(self) -> str:
        return self.path

    @property
    def topic(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def records(self) -> None:
        return None


@dataclass(frozen=True)
class ParquetFolder(_Folder):
    """Parquet files below a folder. It has no history: a file's time says when it was added.

    So a file that is written again makes the days of its records stale.
    """

    files: tuple[FileInfo, ...]
    listed_ms: int  # when they were listed

    @property
    def seen(self) -> Seen:
        # Stores keep times in seconds: a file may yet come with the time of the newest ones.
        times = (_modified_ms(info) for info in self.files)
        settled = [ms for ms in times if ms < self.listed_ms - _SETTLED_MS]
        return Seen(None, 0, max(settled)) if settled else NEVER

    @property
    def has_times(self) -> bool:
        return True

    def appended_since(self, seen: Seen) -> Iterator[Appended]:
        for info in self.files:
            added = Seen(None, 0, _modified_ms(info))
            if added.is_newer(seen) and (times := self._times(info)):
                yield Appended(added, *times)

    def _times(self, info: FileInfo) -> tuple[int, int] | None:
        """The first and last timestamp in a file, in ms; None for a file without rows.

        The column is read: Spark writes it by default as INT96, which has no statistics.
        """
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        with self.system.open_input_file(info.path) as opened:
            column = pq.ParquetFile(opened).read([self.timestamp]).column(0)
        found = pc.min_max(column).as_py()
        return None if found["min"] is None else (_millis(found["min"]), _millis(found["max"]))

    def read(self, spark: SparkSession, since_ms: int | None) -> DataFrame | None:
        """The rows of files that were written since; each holds no record from after it."""
        needed = [
            info.path for info in self.files if since_ms is None or _modified_ms(info) >= since_ms
        ]
        if not needed:
            return None
        reader = spark.read.option("basePath", self.path)
        if len(needed) > _MOST_NAMED:
            return reader.parquet(self.path)
        root = _root(self.path)
        return reader.parquet(*(f"{self.path}/{path[len(root) :].lstrip('/')}" for path in needed))


@dataclass(frozen=True)
class DeltaTable(_Folder):
    """A Delta table; its log says what each version added."""

    version: int
    committed_ms: int

    @property
    def seen(self) -> Seen:
        # The first version is 0, as is the sequence of a table that was never read.
        return Seen(self.version, self.version + 1, self.committed_ms)

    @property
    def has_times(self) -> bool:
        return all(_times(add, self.timestamp) is not None for add in self._added(self.version))

    def appended_since(self, seen: Seen) -> Iterator[Appended]:
        for version in range(seen.sequence, self.version + 1):
            added = Seen(version, version + 1, 0)
            for add in self._added(version):
                if times := _times(add, self.timestamp):
                    yield Appended(added, *times)

    def _added(self, version: int) -> Iterator[dict[str, Any]]:
        """The files with new rows of a version; none where the log has lost it."""
        place = f"{_root(self.path)}/{_LOG}/{version:020}.json"
        try:
            with self.system.open_input_stream(place) as opened:
                lines = opened.read().decode().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            add = json.loads(line).get("add")
            if add and add.get("dataChange", True):
                yield add

    def read(self, spark: SparkSession, since_ms: int | None) -> DataFrame:
        """Its rows at its version; statistics say which are needed."""
        return spark.read.format("delta").option("versionAsOf", str(self.version)).load(self.path)


def path_table(source: str, table: PathTableConfig, timestamp: str) -> ParquetFolder | DeltaTable:
    """The table in a folder, as it is now.

    Raises:
        LandingError: the folder can't be listed, or is no Delta table.
    """
    from pyarrow import fs

    path = table.path.rstrip("/")
    try:
        system, root = fs.FileSystem.from_uri(as_uri(path))
        if table.format == "delta":
            return _delta_table(source, path, timestamp, system, root)
        listed = system.get_file_info(fs.FileSelector(root, recursive=True))
    except OSError as error:
        raise LandingError(
            source,
            f"the table {path} can't be listed: {first_line(error)}. See "
            f"sources.{source}.landing.table.path, and that this user may read it",
            path,
        ) from error
    files = [
        info
        for info in listed
        if info.is_file
        and info.path.endswith(".parquet")
        and not any(map(is_ignored, info.path[len(root) :].strip("/").split("/")))
    ]
    in_order = tuple(sorted(files, key=lambda f: str(f.path)))
    return ParquetFolder(path, timestamp, system, in_order, int(time.time() * 1000))


def _delta_table(
    source: str, path: str, timestamp: str, system: FileSystem, root: str
) -> DeltaTable:
    from pyarrow import fs

    listed = system.get_file_info(fs.FileSelector(f"{root}/{_LOG}", allow_not_found=True))
    commits = {
        int(info.base_name.removesuffix(".json")): info
        for info in listed
        if info.base_name.removesuffix(".json").isdecimal()
    }
    if not commits:
        raise LandingError(
            source,
            f"{path} is no Delta table: it has no commit in {_LOG}. Correct "
            f"sources.{source}.landing.table",
            path,
        )
    newest = max(commits)
    return DeltaTable(path, timestamp, system, newest, _modified_ms(commits[newest]))


def _root(path: str) -> str:
    from pyarrow import fs

    return str(fs.FileSystem.from_uri(as_uri(path))[1])


def _modified_ms(info: FileInfo) -> int:
    return int(info.mtime_ns // 1_000_000)


def _times(add: dict[str, Any], timestamp: str) -> tuple[int, int] | None:
    """The first and last timestamp in a file, in ms, by its statistics in Delta's log."""
    stats = json.loads(add.get("stats") or "{}")
    first, last = (stats.get(of, {}).get(timestamp) for of in ("minValues", "maxValues"))
    if first is None or last is None:
        return None
    # Delta cuts maxima to milliseconds.
    return _millis(datetime.fromisoformat(first)), _millis(datetime.fromisoformat(last)) + 1


def _millis(instant: datetime) -> int:
    known = instant if instant.tzinfo else instant.replace(tzinfo=timezone.utc)
    return int(known.timestamp() * 1000)
