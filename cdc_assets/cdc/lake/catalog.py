"""The lake: its tables, atomic day overwrites, and days as tags.

Two kinds of tables live here. Stage tables (landing, changes, …) are partitioned by
`landing_date`; a day is replaced by one overwrite commit whose summary names what the
day was made of. State tables hold one table of the source; a day is a tag, made on a
branch and published by one commit (write, audit, publish).

No writer overwrites what another one made meanwhile. A commit of a stage's days fails where
one of them was written since the writer read the table; a day of a state table is built on a
branch that its writer alone knows, and published only where its tag is still the one that the
writer found.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import date
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import ConcurrentRunError, ConfigError, LakeError
from cdc_assets.cdc.java_errors import JAVA_ERRORS
from cdc_assets.cdc.lake.commits import (
    DAY,
    EMPTY,
    INPUTS,
    TIMEZONE,
    DayBranch,
    DayCommits,
    DayFiles,
    Snapshot,
    TableState,
    branch_prefix,
    days_named,
)
from cdc_assets.cdc.lake.errors import is_conflict
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import TableName, ddl_of, quote
from cdc_assets.cdc.places import CATALOG, earlier_place, own_place, state_place
from cdc_assets.cdc.spark import METADATA, SESSION, STRING, TABLES, session_for
from cdc_assets.cdc.sqltext import literal

_STAGE_FILES = {
    # Stages sort their own output; a hash by day would put a day on one core.
    "write.distribution-mode": "none",
    # Events shrink to a few percent in a file: in parts of Iceberg's default size, 128 MB, a day of
    # millions would be read on one core.
    "write.parquet.row-group-size-bytes": "8388608",
    "read.split.target-size": "4194304",
    "read.split.open-file-cost": "65536",
}


class Lake:
    """The catalog `lake` of one configuration, in one Spark session.

    `large` is the session for large work, where `spark` is its twin for small work.
    """

    def __init__(
        self, spark: SparkSession, config: Config, large: SparkSession | None = None
    ) -> None:
        self.spark = spark
        self.config = config
        self._large = large or spark

    def for_rows(self, rows: int | None) -> Lake:
        """The lake in the session that suits work on so many rows; None: on many."""
        chosen = self._large if rows is None else session_for(self._large, self.config, rows)
        return Lake(chosen, self.config, self._large)

    # --- names

    def stage(self, source: str, table: str) -> str:
        """The identifier of a source's own table: ``lake.<source>.<table>``."""
        return quote(CATALOG, *own_place(source, table))

    def state(self, source: str, table: TableName) -> str:
        """The identifier of a state table, nested or flat as configured.

        A table that an earlier version made keeps its name.
        """
        flat = self.config.lake.is_flat
        place = quote(CATALOG, *state_place(source, table, flat))
        earlier = quote(CATALOG, *earlier_place(source, table, flat))
        is_earlier = earlier != place and not self.exists(place) and self.exists(earlier)
        return earlier if is_earlier else place

    # --- metadata

    def exists(self, identifier: str) -> bool:
        """True where the catalog knows the table."""
        return self.spark.catalog.tableExists(identifier)

    def handle(self, identifier: str) -> Any:
        """Iceberg's own table object, for commits that SQL has no words for."""
        session: Any = self.spark._jsparkSession
        # A catalog is opened with the settings of the thread's session, whatever session asks.
        self._java(SESSION).setActiveSession(session)
        return self._java(TABLES).loadIcebergTable(session, identifier)

    def _java(self, name: str) -> Any:
        """A Java class by its full name; those asked for often are held (`_HELD_CLASSES`)."""
        return getattr(self.spark._jvm, name)

    def read_state(self, identifier: str) -> TableState | None:
        """A table's metadata in one call, or None where there is no such table."""
        try:
            metadata = self.handle(identifier).operations().current()
        except AnalysisException:
            # Asked first, the catalog would read each table twice. A broken one says why here.
            if self.exists(identifier):
                raise
            return None
        raw = json.loads(self._java(METADATA).toJson(metadata))
        snapshots = {
            s["snapshot-id"]: Snapshot(
                s["snapshot-id"], s["summary"], s["timestamp-ms"], s.get("parent-snapshot-id")
            )
            for s in raw.get("snapshots", [])
        }
        refs = {name: ref["snapshot-id"] for name, ref in raw.get("refs", {}).items()}
        return TableState(refs, snapshots, raw.get("properties", {}), raw["location"])

    def day_commits(self, source: str, stage: str) -> DayCommits:
        """As :meth:`LakeMetadata.day_commits`."""
        return DayCommits.recorded_in(self.read_state(self.stage(source, stage)))

    def table_state(self, source: str, table: str) -> TableState | None:
        """As :meth:`LakeMetadata.table_state`."""
        return self.read_state(self.state(source, TableName.parse(table)))

    # --- creation

    def create_namespace(self, source: str, table: TableName | None = None) -> None:
        """Create the namespaces of a table."""
        flat = self.config.lake.is_flat
        levels = (state_place(source, table, flat) if table else own_place(source, ""))[:-1]
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
                properties={**_STAGE_FILES, TIMEZONE: self.config.timezone},
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
        listed = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in settings.items())
        by = f"PARTITIONED BY ({partition})" if partition else ""
        with_retry(
            lambda: self.spark.sql(
                f"CREATE TABLE IF NOT EXISTS {identifier} ({columns}) USING iceberg {by} "
                f"COMMENT {literal(comment)} TBLPROPERTIES ({listed})"
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
                    # A day is sorted as it is; a shuffle before each write would cost another.
                    **{
                        f"write.{way}distribution-mode": "hash" if bucket else "none"
                        for way in ("", "merge.", "delete.")
                    },
                    # By it the rows of a day are found, also behind a hundred columns.
                    "write.metadata.metrics.column._cdc_landing_date": "full",
                },
            )
        return identifier

    # --- days of stage tables

    def stage_days(self, source: str, table: str, days: Iterable[date]) -> DataFrame:
        """The rows of some days of one of a source's own tables."""
        return self.spark.table(self.stage(source, table)).where(landed_on(days))

    def overwrite_days(
        self,
        identifier: str,
        rows: DataFrame,
        inputs: Mapping[date, Mapping[str, Any]],
        since: int | None,
    ) -> None:
        """Replace whole days by these rows in one commit.

        Args:
            identifier: the stage table.
            rows: its columns; every `landing_date` is one of `inputs` (rows of other days
                are filtered out rather than added to days that are not replaced).
            inputs: the days to replace and what each was made of.
            since: the table's newest commit when it was found that they are to be made
                (:attr:`DayCommits.head`).

        Raises:
            ConcurrentRunError: another run wrote one of the days since; nothing is replaced.
        """
        days = landed_on(inputs)
        summary = json.dumps({str(day): made_of for day, made_of in inputs.items()})
        options = {
            f"snapshot-property.{INPUTS}": summary,
            "fanout-enabled": "true",
            "isolation-level": "serializable",
            **({} if since is None else {"validate-from-snapshot-id": str(since)}),
        }

        def commit() -> None:
            self.refuse_overtaken(identifier, inputs, since)
            rows.where(days).writeTo(identifier).options(**options).overwrite(days)

        try:
            with_retry(commit)
        except JAVA_ERRORS as error:
            if is_conflict(error):
                raise ConcurrentRunError(identifier, list(inputs)) from error
            raise

    def refuse_overtaken(self, identifier: str, days: Iterable[date], since: int | None) -> None:
        """Refuse to commit days that were written since; `since` is the commit that was read.

        Iceberg compares the files of days; a day that was made empty has none.

        Raises:
            ConcurrentRunError: one of the days was written.
        """
        state = self.read_state(identifier)
        if state is None or state.refs.get("main") == since:
            return
        ids = list(state.snapshots)
        newer = ids[ids.index(since) + 1 :] if since is not None and since in ids else ids
        written = [json.loads(state.snapshots[i].summary.get(INPUTS, "{}")) for i in newer]
        if overtaken := [day for day in days if any(str(day) in of for of in written)]:
            raise ConcurrentRunError(identifier, overtaken)

    def day_files(self, identifier: str, days: Iterable[date]) -> dict[date, DayFiles]:
        """Data files of some days of a stage table, by its metadata alone."""
        rows = (
            self.spark.table(f"{identifier}.files")
            .where(landed_on(days, "partition.landing_date"))
            .groupBy(F.col("partition.landing_date").alias("day"))
            .agg(
                F.count("*").alias("files"),
                F.sum("file_size_in_bytes").alias("bytes"),
                F.sum("record_count").alias("records"),
            )
            .collect()
        )
        return {row.day: DayFiles(row.files, row.bytes, row.records) for row in rows}

    # --- days of state tables

    def branch(
        self, identifier: str, day: date, base: int | None, replaces: int | None
    ) -> DayBranch:
        """A fresh name for the day's branch, which is to start at `base`; nothing is written.

        `replaces` is the day's published snapshot as the writer found it.
        """
        name = f"{branch_prefix(day)}{uuid.uuid4().hex[:8]}"
        return DayBranch(identifier, day, base, replaces, name)

    def start(self, branch: DayBranch) -> None:
        """Make the branch, at its base or empty, so that it can be written to."""

        def commit() -> None:
            transaction = self.handle(branch.table).newTransaction()
            _start(transaction, branch)
            transaction.commitTransaction()

        with_retry(commit)
        if branch.base is None:
            self._require_reference(branch.table, branch.name)

    def publish(
        self, branch: DayBranch, summary: Mapping[str, str], is_started: bool = True
    ) -> None:
        """Tag the branch's end as the day, with this summary; main follows where it is the newest.

        One commit: a reader sees the day before or the day after, nothing between. Branches
        that others left or hold of the day go with it: they can't be published any more.

        Args:
            branch: what is published.
            summary: what the day was made of and came to.
            is_started: whether the branch was made, to be written to.

        Raises:
            ConcurrentRunError: the day was published since the branch was named.
        """
        tag = str(branch.day)

        def commit() -> None:
            # Where another commit came between, Iceberg applies the append again, but no change of
            # references that was begun before: it fails, and all of this is done again.
            transaction = self.handle(branch.table).newTransaction()
            refs = transaction.table().refs()
            published = refs.get(tag).snapshotId() if refs.containsKey(tag) else None
            if published != branch.replaces or refs.containsKey(branch.name) != is_started:
                raise ConcurrentRunError(branch.table, [branch.day])
            if not is_started:
                _start(transaction, branch)
            end = transaction.newAppend().toBranch(branch.name)
            for key, value in {DAY: tag, **summary}.items():
                end.set(key, value)
            end.commit()
            refs = transaction.table().refs()
            snapshot = refs.get(branch.name).snapshotId()
            change = transaction.manageSnapshots()
            if published is None:
                change = change.createTag(tag, snapshot)
            else:
                change = change.replaceTag(tag, snapshot)
            names = self._names(refs)
            if max([*days_named(names), branch.day]) == branch.day:
                change = _move_main(change, refs, snapshot)
            for name in names:
                if name.startswith(branch_prefix(branch.day)):
                    change = change.removeBranch(name)
            change.commit()
            transaction.commitTransaction()

        with_retry(commit)
        if branch.base is None:
            self._require_reference(branch.table, tag)

    def _require_reference(self, identifier: str, name: str) -> None:
        """See that the catalog kept a branch or a tag: some drop them without a word.

        Asked of a table's first day.

        Raises:
            LakeError: it did not.
        """
        if not self.config.lake.catalog or self.handle(identifier).refs().containsKey(name):
            return
        raise LakeError(f"{identifier.replace('`', '')}: {without_references(self.config)}")

    def mend_main(self, identifier: str) -> None:
        """Put main on the newest day, where something else moved it."""

        def commit() -> None:
            table = self.handle(identifier)
            change = table.manageSnapshots()
            refs = table.refs()
            newest = refs.get(str(max(days_named(self._names(refs))))).snapshotId()
            if not refs.containsKey("main") or refs.get("main").snapshotId() != newest:
                _move_main(change, refs, newest).commit()

        with_retry(commit)

    def _names(self, refs: Any) -> list[str]:
        """The names of a table's references, in one call however many there are."""
        joined: str = self._java(STRING).join("\n", refs.keySet())
        return joined.split("\n")

    def drop_branch(self, branch: DayBranch) -> None:
        """Remove a branch, if it is there."""

        def commit() -> None:
            table = self.handle(branch.table)
            if table.refs().containsKey(branch.name):
                table.manageSnapshots().removeBranch(branch.name).commit()

        with_retry(commit)

    def at(self, identifier: str, snapshot: int) -> DataFrame:
        """A table as of one snapshot."""
        return self.spark.read.option("versionAsOf", str(snapshot)).table(identifier)


def landed_on(days: Iterable[date], name: str = "landing_date") -> Column:
    """True for rows of some days."""
    listed = ", ".join(map(literal, days))
    return F.expr(f"{name} IN ({listed})" if listed else "false")


def _start(transaction: Any, branch: DayBranch) -> None:
    refs, start = transaction.table().refs(), branch.base
    if start is None and refs.containsKey(EMPTY):
        start = refs.get(EMPTY).snapshotId()
    if start is not None:
        transaction.manageSnapshots().createBranch(branch.name, start).commit()
        return
    # A branch starts at a snapshot, and a new table has none yet.
    transaction.newAppend().toBranch(branch.name).commit()
    empty = transaction.table().refs().get(branch.name).snapshotId()
    transaction.manageSnapshots().createTag(EMPTY, empty).commit()


def _move_main(change: Any, refs: Any, snapshot: int) -> Any:
    if refs.containsKey("main"):
        return change.replaceBranch("main", snapshot)
    return change.createBranch("main", snapshot)


def without_references(config: Config) -> str:
    """What is said of a catalog that keeps no branches and tags of tables."""
    kind = config.lake.catalog.get("type") or config.lake.catalog.get("catalog-impl", "")
    return (
        f"the catalog ({kind}) does not keep branches and tags of Iceberg tables, in which the "
        "days are (Nessie drops them, and has branches of its own). Catalogs that keep them are "
        "JDBC, Hive, Glue, and REST servers such as Polaris and Lakekeeper: name another one in "
        "lake.catalog"
    )


def column_ddl(name: str, kind: str, comment: str | None = None) -> str:
    """One column of a CREATE or ALTER TABLE."""
    return f"{quote(name)} {kind}" + (f" COMMENT {literal(comment)}" if comment else "")
