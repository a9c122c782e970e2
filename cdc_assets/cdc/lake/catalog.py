"""The lake: its tables, atomic day overwrites, and days as tags.

Two kinds of tables live here. Stage tables (landing, changes, …) are partitioned by
`landing_date`; a day is replaced by one overwrite commit whose summary names what the
day was made of. State tables hold one table of the source; a day is a tag, made on a
branch and published by one commit (write, audit, publish).

Concurrent writers never overwrite each other. A commit to a stage table fails if one of its days
was written after the writer read the table. A day of a state table is built on a private branch and
published only if its tag is still the one that the writer found.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import ConcurrentRunError, ConfigError, LakeError, MissingDayError
from cdc_assets.cdc.java_errors import JAVA_ERRORS
from cdc_assets.cdc.lake.commits import (
    DAY,
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
from cdc_assets.cdc.lake.references import move_main, retype, start_branch, without_references
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import TableName, ddl_of, quote
from cdc_assets.cdc.places import CATALOG, earlier_place, own_place, state_place
from cdc_assets.cdc.spark import EXPRESSIONS, METADATA, SESSION, STRING, TABLES, session_for
from cdc_assets.cdc.sqltext import literal

_STAGE_FILES = {
    # Stages sort their own output; a hash by day would write a day on one core.
    "write.distribution-mode": "none",
    # Events compress to a few percent: with Iceberg's default of 128 MB, one core would read a day
    # of millions of events.
    "write.parquet.row-group-size-bytes": "8388608",
    "read.split.target-size": "4194304",
    "read.split.open-file-cost": "65536",
}


class Lake:
    """The catalog `lake` of one configuration, in one Spark session.

    `large` is the session for large work; `spark` may be its twin for small work.
    """

    def __init__(
        self, spark: SparkSession, config: Config, large: SparkSession | None = None
    ) -> None:
        self.spark = spark
        self.config = config
        self._large = large or spark

    def for_rows(self, rows: int | None) -> Lake:
        """The lake in the session for work on so many rows; None: many."""
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

    def made_day(self, source: str, table: str, day: date | None = None) -> tuple[TableState, date]:
        """The metadata of a table, and a day of it that was made [default: the newest].

        Raises:
            MissingDayError: it was not made.
        """
        state = self.table_state(source, table)
        day = day or max(state.tags if state else {}, default=None)
        if state is None or day is None or day not in state.tags:
            missing = day or self.config.today()
            remedy = "Make it first, or name another day."
            raise MissingDayError(f"{source}.{table}", missing, remedy)
        return state, day

    def handle(self, identifier: str) -> Any:
        """Iceberg's own table object, for commits that SQL lacks."""
        session: Any = self.spark._jsparkSession
        # Spark opens a catalog with the settings of the thread's active session.
        self._java(SESSION).setActiveSession(session)
        return self._java(TABLES).loadIcebergTable(session, identifier)

    def _java(self, name: str) -> Any:
        """A Java class by its full name; the frequent ones are cached (`_HELD_CLASSES`)."""
        return getattr(self.spark._jvm, name)

    def read_state(self, identifier: str) -> TableState | None:
        """A table's metadata in one call, or None where there is no such table."""
        try:
            metadata = self.handle(identifier).operations().current()
        except AnalysisException:
            # Checking first would read each table twice. A broken table raises its own error.
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
        """Append columns that a table of an earlier version lacks."""
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
        self,
        source: str,
        table: TableName,
        columns: StructType,
        comment: str,
        bucket: str | None,
        day_column: str | None = None,
    ) -> str:
        """Create a state table if it is missing; its identifier.

        Merge-on-read keeps a day as small as what it changed; `bucket` is a partition
        expression such as ``bucket(16, `id`)``, `day_column` a column that has one value in all
        rows of a day: partitions, too.
        """
        identifier = self.state(source, table)
        if not self.exists(identifier):
            self.create_namespace(source, table)
            self._create(
                identifier,
                columns,
                comment,
                partition=bucket or day_column,
                properties={
                    "write.merge.mode": "merge-on-read",
                    "write.update.mode": "merge-on-read",
                    "write.delete.mode": "merge-on-read",
                    # The day is already sorted; a shuffle before each write is wasted.
                    **{
                        f"write.{way}distribution-mode": "hash" if bucket else "none"
                        for way in ("", "merge.", "delete.")
                    },
                    # Finds the rows of a day; by default only the first 100 columns have metrics.
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
        rows: DataFrame | None,
        inputs: Mapping[date, Mapping[str, Any]],
        since: int | None,
    ) -> None:
        """Replace whole days by these rows in one commit.

        Args:
            identifier: the stage table.
            rows: its columns; every `landing_date` is one of `inputs` (rows of other days
                are filtered out rather than added to days that are not replaced). None: the days
                have no row, and Spark plans nothing.
            inputs: the days to replace and what each was made of.
            since: the table's newest commit when the days were chosen (:attr:`DayCommits.head`).

        Raises:
            ConcurrentRunError: another run wrote one of the days since; nothing is replaced.
        """
        summary = json.dumps({str(day): made_of for day, made_of in inputs.items()})
        if rows is None:
            self.remove_days(identifier, inputs, {INPUTS: summary}, since)
            return
        days = landed_on(inputs)
        options = {
            f"snapshot-property.{INPUTS}": summary,
            "fanout-enabled": "true",
            "isolation-level": "serializable",
            **({} if since is None else {"validate-from-snapshot-id": str(since)}),
        }
        write = rows.where(days).writeTo(identifier).options(**options)
        self._commit_days(identifier, inputs, since, lambda: write.overwrite(days))

    def remove_days(
        self,
        identifier: str,
        days: Collection[date],
        properties: Mapping[str, str],
        since: int | None,
    ) -> None:
        """Remove all rows of some days in one commit of metadata alone.

        Args:
            identifier: the stage table.
            days: the days.
            properties: of the commit.
            since: the table's newest commit when the days were chosen.

        Raises:
            ConcurrentRunError: another run wrote one of the days since; nothing is removed.
        """
        expressions = self._java(EXPRESSIONS)

        def commit() -> None:
            on_days = expressions.alwaysFalse()
            for day in days:
                is_day = expressions.equal("landing_date", str(day))
                on_days = getattr(expressions, "or")(on_days, is_day)
            change = self.handle(identifier).newOverwrite().overwriteByRowFilter(on_days)
            change = change.conflictDetectionFilter(on_days)
            change = change.validateNoConflictingData().validateNoConflictingDeletes()
            if since is not None:
                change = change.validateFromSnapshot(since)
            for name, value in properties.items():
                change = change.set(name, value)
            change.commit()

        self._commit_days(identifier, days, since, commit)

    def _commit_days(
        self, identifier: str, days: Iterable[date], since: int | None, commit: Callable[[], None]
    ) -> None:
        def checked() -> None:
            self.refuse_overtaken(identifier, days, since)
            commit()

        try:
            with_retry(checked)
        except JAVA_ERRORS as error:
            if is_conflict(error):
                raise ConcurrentRunError(identifier, list(days)) from error
            raise

    def refuse_overtaken(self, identifier: str, days: Iterable[date], since: int | None) -> None:
        """Refuse to commit days that were written after the commit `since`.

        Iceberg's own validation compares files, and a day that became empty has none.

        Raises:
            ConcurrentRunError: one of the days was written.
        """
        state = self.read_state(identifier)
        if state is None or state.refs.get("main") == since:
            return
        ids = list(state.snapshots)
        newer = ids[ids.index(since) + 1 :] if since is not None and since in ids else ids
        written = [json.loads(state.snapshots[i].summary.get(INPUTS, "{}")) for i in newer]
        if overtaken := [day for day in days if any(str(day) in inputs for inputs in written)]:
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
        """A day's branch with a new name, to start at `base`; nothing is written.

        `replaces` is the day's published snapshot as the writer found it.
        """
        name = f"{branch_prefix(day)}{uuid.uuid4().hex[:8]}"
        return DayBranch(identifier, day, base, replaces, name)

    def start(self, branch: DayBranch) -> None:
        """Create the branch at its base, or empty."""

        def commit() -> None:
            transaction = self.handle(branch.table).newTransaction()
            start_branch(transaction, branch)
            transaction.commitTransaction()

        with_retry(commit)
        if branch.base is None:
            self._require_reference(branch.table, branch.name)

    def publish(
        self, branch: DayBranch, summary: Mapping[str, str], is_started: bool = True
    ) -> None:
        """Tag the branch's end as the day, with this summary; main follows the newest day.

        One commit: a reader sees the old day or the new one, with its types. It also removes all
        branches of the day, which can no longer be published.

        Args:
            branch: what is published.
            summary: what the day was made of, and its report.
            is_started: whether the branch exists.

        Raises:
            ConcurrentRunError: the day was published since the branch was named.
        """
        tag = str(branch.day)

        def commit() -> None:
            # After a concurrent commit Iceberg repeats the append but not the change of references:
            # the transaction fails, and with_retry() repeats all of it.
            transaction = self.handle(branch.table).newTransaction()
            refs = transaction.table().refs()
            published = refs.get(tag).snapshotId() if refs.containsKey(tag) else None
            if published != branch.replaces or refs.containsKey(branch.name) != is_started:
                raise ConcurrentRunError(branch.table, [branch.day])
            if not is_started:
                start_branch(transaction, branch)
            if branch.retyped:
                retype(transaction, branch)
            end = transaction.newAppend().toBranch(branch.name)
            for key, value in {DAY: tag, **summary}.items():
                end.set(key, value)
            end.commit()
            self._publish_refs(transaction, branch, is_new=published is None)
            transaction.commitTransaction()

        with_retry(commit)
        if branch.base is None:
            self._require_reference(branch.table, tag)

    def _publish_refs(self, transaction: Any, branch: DayBranch, is_new: bool) -> None:
        """Tag the branch's end as the day, move main, and remove the day's branches."""
        refs, tag = transaction.table().refs(), str(branch.day)
        snapshot = refs.get(branch.name).snapshotId()
        change = transaction.manageSnapshots()
        change = (change.createTag if is_new else change.replaceTag)(tag, snapshot)
        names = self._names(refs)
        if max([*days_named(names), branch.day]) == branch.day:
            change = move_main(change, refs, snapshot)
        for name in names:
            if name.startswith(branch_prefix(branch.day)):
                change = change.removeBranch(name)
        change.commit()

    def _require_reference(self, identifier: str, name: str) -> None:
        """Check on a table's first day that the catalog keeps branches and tags.

        Raises:
            LakeError: it dropped the reference without an error.
        """
        if not self.config.lake.catalog or self.handle(identifier).refs().containsKey(name):
            return
        raise LakeError(f"{identifier.replace('`', '')}: {without_references(self.config)}")

    def mend_main(self, identifier: str) -> None:
        """Move main to the newest day if it is elsewhere."""

        def commit() -> None:
            table = self.handle(identifier)
            change = table.manageSnapshots()
            refs = table.refs()
            newest = refs.get(str(max(days_named(self._names(refs))))).snapshotId()
            if not refs.containsKey("main") or refs.get("main").snapshotId() != newest:
                move_main(change, refs, newest).commit()

        with_retry(commit)

    def _names(self, refs: Any) -> list[str]:
        """The names of a table's references, in one call to the JVM."""
        joined: str = self._java(STRING).join("\n", refs.keySet())
        return joined.split("\n")

    def drop_branch(self, branch: DayBranch) -> None:
        """Remove a branch if it exists, and the fields that were added for it."""

        def commit() -> None:
            table = self.handle(branch.table)
            if table.refs().containsKey(branch.name):
                table.manageSnapshots().removeBranch(branch.name).commit()
            names = [retyped.stored for retyped in branch.retyped]
            if left := [name for name in names if table.schema().findField(name) is not None]:
                update = table.updateSchema()
                for name in left:
                    update = update.deleteColumn(name)
                update.commit()

        with_retry(commit)

    def at(self, identifier: str, snapshot: int) -> DataFrame:
        """A table as of one snapshot."""
        return self.spark.read.option("versionAsOf", str(snapshot)).table(identifier)


def landed_on(days: Iterable[date], name: str = "landing_date") -> Column:
    """True for rows of some days."""
    listed = ", ".join(map(literal, days))
    return F.expr(f"{name} IN ({listed})" if listed else "false")


def column_ddl(name: str, kind: str, comment: str | None = None) -> str:
    """One column of a CREATE or ALTER TABLE."""
    return f"{quote(name)} {kind}" + (f" COMMENT {literal(comment)}" if comment else "")
