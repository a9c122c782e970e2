"""The lake: its tables, atomic day overwrites, and days as tags.

Two kinds of tables live here. Stage tables (landing, changes, …) are partitioned by
`landing_date`; a day is replaced by one overwrite commit whose summary names what the
day was made of. State tables hold one table of the source; a day is a tag, made on a
branch and published by one commit (write, audit, publish).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from tenacity import (
    before_sleep_log,
    retry,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.names import TableName, ddl_of, escape, quote
from cdc_assets.cdc.spark import CATALOG

log = logging.getLogger(__name__)

INPUTS = "cdc.inputs"  # snapshot property: {day: what it was made of}, as JSON
DAY = "cdc.day"
TIMEZONE = "cdc.timezone"  # table property: the zone in which its days are cut
EMPTY = "empty"  # the tag of a state table before its first day

_BUSY = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "database is locked",
    "CommitFailedException",
    "Cannot commit",
    "SQLITE_CANTOPEN",
    # Two that create one namespace at once: the loser finds it when it tries again.
    "SQLITE_CONSTRAINT_PRIMARYKEY",
    "duplicate key value",
)

T = TypeVar("T")


def is_contention(error: BaseException) -> bool:
    """True for a commit that lost a race or met a busy catalog, and may be tried again."""
    return isinstance(error, (Py4JJavaError, PySparkException)) and any(
        sign in str(error) for sign in _BUSY
    )


def with_retry(action: Callable[[], T]) -> T:
    """Run a commit again while other commits keep the catalog busy, for a minute at most."""
    attempt = retry(
        retry=retry_if_exception(is_contention),
        wait=wait_random_exponential(multiplier=0.1, max=5),
        stop=stop_after_delay(60),
        before_sleep=before_sleep_log(log, logging.INFO),
        reraise=True,
    )
    return attempt(action)()


@dataclass(frozen=True)
class Snapshot:
    """One commit of a table."""

    id: int
    summary: Mapping[str, str]
    timestamp_ms: int


@dataclass(frozen=True)
class TableState:
    """What a table's metadata says: references, snapshots, properties."""

    refs: Mapping[str, int]
    snapshots: Mapping[int, Snapshot]
    properties: Mapping[str, str]
    location: str

    @property
    def tags(self) -> dict[date, int]:
        """The published days and the snapshot of each."""
        return {
            date.fromisoformat(name): snapshot
            for name, snapshot in self.refs.items()
            if len(name) == 10 and name[4] == "-"
        }

    def day_summary(self, day: date) -> Mapping[str, str]:
        """The summary of a published day; empty where the day has no tag."""
        snapshot = self.tags.get(day)
        return self.snapshots[snapshot].summary if snapshot is not None else {}


@dataclass(frozen=True)
class DayCommit:
    """The commit that last wrote a day of a stage table, and what the day was made of."""

    snapshot_id: int
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DayFiles:
    """What a day of a stage table takes in the lake."""

    files: int = 0
    bytes: int = 0


class Lake:
    """The catalog `lake` of one configuration, in one Spark session."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self.spark = spark
        self.config = config

    # --- names

    def stage(self, source: str, table: str) -> str:
        """The identifier of a source's own table: ``lake.<source>.<table>``."""
        return quote(CATALOG, escape(source), table)

    def state(self, source: str, table: TableName) -> str:
        """The identifier of a state table, nested or flat as configured."""
        return quote(CATALOG, *state_parts(self.config, source, table))

    # --- metadata

    def exists(self, identifier: str) -> bool:
        """True where the catalog knows the table."""
        return self.spark.catalog.tableExists(identifier)

    def handle(self, identifier: str) -> Any:
        """Iceberg's own table object, for commits that SQL has no words for."""
        jvm: Any = self.spark._jvm
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self.spark._jsparkSession, identifier
        )

    def read_state(self, identifier: str) -> TableState | None:
        """A table's metadata in one call, or None where there is no such table."""
        if not self.exists(identifier):
            return None
        jvm: Any = self.spark._jvm
        metadata = self.handle(identifier).operations().current()
        raw = json.loads(jvm.org.apache.iceberg.TableMetadataParser.toJson(metadata))
        snapshots = {
            s["snapshot-id"]: Snapshot(s["snapshot-id"], s["summary"], s["timestamp-ms"])
            for s in raw.get("snapshots", [])
        }
        refs = {name: ref["snapshot-id"] for name, ref in raw.get("refs", {}).items()}
        return TableState(refs, snapshots, raw.get("properties", {}), raw["location"])

    def day_commits(self, identifier: str) -> dict[date, DayCommit]:
        """For each day of a stage table the commit that wrote it last."""
        state = self.read_state(identifier)
        commits: dict[date, DayCommit] = {}
        for snapshot in state.snapshots.values() if state else ():
            for day, inputs in json.loads(snapshot.summary.get(INPUTS, "{}")).items():
                commits[date.fromisoformat(day)] = DayCommit(snapshot.id, inputs)
        return commits

    # --- creation

    def create_namespace(self, source: str, table: TableName | None = None) -> None:
        """Create the namespaces that a table stands in."""
        levels = state_parts(self.config, source, table)[:-1] if table else (escape(source),)
        for depth in range(1, len(levels) + 1):
            name = quote(CATALOG, *levels[:depth])
            with_retry(partial(self.spark.sql, f"CREATE NAMESPACE IF NOT EXISTS {name}"))

    def create_stage(self, source: str, table: str, schema: StructType, comment: str) -> str:
        """Create a day-partitioned table of a source if it is missing; its identifier.

        Raises:
            ConfigError: the table's days are cut in another time zone than configured.
        """
        identifier = self.stage(source, table)
        state = self.read_state(identifier)
        if state is not None:
            zone = state.properties.get(TIMEZONE, self.config.timezone)
            if zone != self.config.timezone:
                raise ConfigError(
                    [
                        f"timezone: got {self.config.timezone}, but the days of {identifier} are "
                        f"cut in {zone}. Set timezone: {zone}, or use another warehouse"
                    ]
                )
            self._add_columns(identifier, schema)
        else:
            self.create_namespace(source)
            partitioned = any(f.name == "landing_date" for f in schema.fields)
            self._create(
                identifier,
                schema,
                comment,
                partition="landing_date" if partitioned else None,
                # Stages sort their own output; a hash by day would put a day on one core.
                properties={
                    "write.distribution-mode": "none",
                    TIMEZONE: self.config.timezone,
                },
            )
        return identifier

    def _add_columns(self, identifier: str, schema: StructType) -> None:
        """A table of an earlier version lacks what was added since, at the end."""
        present = set(self.spark.table(identifier).columns)
        for new in schema.fields:
            if new.name not in present:
                kind = new.dataType.simpleString()
                ddl = column_ddl(new.name, kind, new.metadata.get("comment"))
                with_retry(partial(self.spark.sql, f"ALTER TABLE {identifier} ADD COLUMN {ddl}"))

    def _create(
        self,
        identifier: str,
        schema: StructType,
        comment: str,
        partition: str | None,
        properties: Mapping[str, str],
    ) -> None:
        columns = ", ".join(
            column_ddl(f.name, ddl_of(f.dataType), f.metadata.get("comment")) for f in schema.fields
        )
        settings = {"format-version": "2", **properties}
        listed = ", ".join(f"{_text(k)} = {_text(v)}" for k, v in settings.items())
        by = f"PARTITIONED BY ({partition})" if partition else ""
        with_retry(
            lambda: self.spark.sql(
                f"CREATE TABLE IF NOT EXISTS {identifier} ({columns}) USING iceberg {by} "
                f"COMMENT {_text(comment)} TBLPROPERTIES ({listed})"
            )
        )

    def create_state(
        self, source: str, table: TableName, columns: StructType, comment: str, bucket: str | None
    ) -> str:
        """Create a state table if it is missing; its identifier.

        Merge-on-read keeps a day as small as what it changed; `bucket` is a partition
        expression such as ``bucket(16, `id`)``.
        """
        identifier = self.state(source, table)
        if not self.exists(identifier):
            self.create_namespace(source, table)
            self._create(
                identifier,
                columns,
                comment,
                partition=bucket,
                properties={
                    "write.merge.mode": "merge-on-read",
                    "write.update.mode": "merge-on-read",
                    "write.delete.mode": "merge-on-read",
                    "write.distribution-mode": "hash" if bucket else "none",
                },
            )
        return identifier

    # --- days of stage tables

    def overwrite_days(
        self, identifier: str, rows: DataFrame, inputs: Mapping[date, Mapping[str, Any]]
    ) -> None:
        """Replace whole days by these rows in one commit.

        Args:
            identifier: the stage table.
            rows: its columns; every `landing_date` is one of `inputs` (rows of other days
                are filtered out rather than added to days that are not replaced).
            inputs: the days to replace and what each was made of.
        """
        days = F.col("landing_date").isin([F.lit(day) for day in inputs])
        summary = json.dumps({str(day): made_of for day, made_of in inputs.items()})
        with_retry(
            lambda: (
                rows.where(days)
                .writeTo(identifier)
                .option(f"snapshot-property.{INPUTS}", summary)
                .option("fanout-enabled", "true")
                .overwrite(days)
            )
        )

    def day_files(self, identifier: str, days: Iterable[date]) -> dict[date, DayFiles]:
        """Data files of some days of a stage table, by its metadata alone."""
        rows = (
            self.spark.table(f"{identifier}.files")
            .where(F.col("partition.landing_date").isin([F.lit(day) for day in days]))
            .groupBy(F.col("partition.landing_date").alias("day"))
            .agg(F.count("*").alias("files"), F.sum("file_size_in_bytes").alias("bytes"))
            .collect()
        )
        return {row.day: DayFiles(row.files, row.bytes) for row in rows}

    # --- days of state tables

    def start_branch(self, identifier: str, day: date, base: int | None) -> str:
        """A fresh branch for the day, at `base` or empty; the branch's identifier."""
        branch = branch_name(day)

        def commit() -> None:
            table = self.handle(identifier)
            if table.refs().containsKey(branch):
                table.manageSnapshots().removeBranch(branch).commit()
            if base is not None:
                start = base
            elif table.refs().containsKey(EMPTY):
                start = table.refs().get(EMPTY).snapshotId()
            else:
                # A branch starts at a snapshot, and a new table has none yet.
                table.newAppend().toBranch(branch).commit()
                snapshot = table.refs().get(branch).snapshotId()
                table.manageSnapshots().createTag(EMPTY, snapshot).commit()
                return
            table.manageSnapshots().createBranch(branch, start).commit()

        with_retry(commit)
        return f"{identifier}.{quote('branch_' + branch)}"

    def seal_branch(self, identifier: str, day: date, summary: Mapping[str, str]) -> None:
        """An empty commit that closes the day's branch and says what it was made of."""

        def commit() -> None:
            append = self.handle(identifier).newAppend().toBranch(branch_name(day))
            for key, value in {DAY: str(day), **summary}.items():
                append.set(key, value)
            append.commit()

        with_retry(commit)

    def publish(self, identifier: str, day: date) -> None:
        """Tag the branch's newest snapshot as the day; main follows where it is the newest.

        One commit: a reader sees the day before or the day after, nothing between.
        """

        def commit() -> None:
            table = self.handle(identifier)
            refs = table.refs()
            branch, tag = branch_name(day), str(day)
            snapshot = refs.get(branch).snapshotId()
            change = table.manageSnapshots()
            if refs.containsKey(tag):
                change = change.replaceTag(tag, snapshot)
            else:
                change = change.createTag(tag, snapshot)
            newest = max([*self._tag_days(refs), day])
            if newest == day:
                if refs.containsKey("main"):
                    change = change.replaceBranch("main", snapshot)
                else:
                    change = change.createBranch("main", snapshot)
            change.removeBranch(branch).commit()

        with_retry(commit)

    @staticmethod
    def _tag_days(refs: Any) -> Iterable[date]:
        for name in refs.keySet():
            if len(name) == 10 and name[4] == "-":
                yield date.fromisoformat(name)

    def drop_branch(self, identifier: str, day: date) -> None:
        """Remove the day's branch, if it is there."""

        def commit() -> None:
            table = self.handle(identifier)
            if table.refs().containsKey(branch_name(day)):
                table.manageSnapshots().removeBranch(branch_name(day)).commit()

        with_retry(commit)

    def at(self, identifier: str, snapshot: int) -> DataFrame:
        """A table as of one snapshot."""
        return self.spark.read.option("versionAsOf", str(snapshot)).table(identifier)


def branch_name(day: date) -> str:
    """Branches and tags share one namespace: `ld_<day>` is built, `<day>` is published."""
    return f"ld_{day}"


def state_parts(config: Config, source: str, table: TableName) -> tuple[str, ...]:
    """Namespace levels and name of a state table, escaped."""
    namespace, name = escape(table.namespace), escape(table.table)
    if config.lake.namespaces == "flat":
        return (f"{escape(source)}__{namespace}", name)
    return (escape(source), namespace, name)


def column_ddl(name: str, kind: str, comment: str | None = None) -> str:
    """One column of a CREATE or ALTER TABLE."""
    return f"{quote(name)} {kind}" + (f" COMMENT {_text(comment)}" if comment else "")


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
