"""Maintenance: compaction, and expiry of days, snapshots and orphan files.

Four steps per table. Each step is one commit that leaves the lake readable, so a crash loses only
the work of the step that it interrupts:

1. Remove day tags older than ``keep_days`` (state tables) and the branches of crashed runs; from
   `landing` the records older than ``landing_keep_days``, where it is set.
2. Compact small data files and drop deleted rows. A state table is compacted on its newest ended
   day: the day's tag is set to the compacted snapshot, which records the same day and the same
   inputs, so that the following days inherit the compacted files.
3. Expire snapshots that no tag and no branch references. The day inputs that a stage table's
   snapshots record are first copied into the summary of a new snapshot.
4. Remove files in the table's folder that no snapshot references.

The rows of `changes` and the other stage tables never expire, nor those of `landing` unless
``landing_keep_days`` is set: a table can be made again from them, from its first day on.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from py4j.protocol import Py4JError

from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import (
    CARRIED,
    CARRIED_UNTIL,
    EXPIRED,
    REMOVED,
    DayBranch,
    TableState,
    days_made,
    is_own_branch,
)
from cdc_assets.cdc.lake.layouts import COMPACTED, NO_LAYOUT, layout_of
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.lake.tables import kind_of
from cdc_assets.cdc.names import TableName, derived_name, quote
from cdc_assets.cdc.places import CATALOG, OWN_ASSETS
from cdc_assets.cdc.sqltext import literal, literals

# The order in which the stages write: the merge of a table then reads only its part of a file.
_SORTED = {
    table: ", ".join(quote(c) for c in ("table_name", "topic", "partition", "offset"))
    for table in ("changes", "control")
}


_REWRITE_ALL = {"rewrite-all": "true"}


@dataclass(frozen=True)
class Figures:
    """The result of maintaining a table, or in a dry run the expected result.

    `files_…` and `bytes_…` are those in the table's folder, metadata included; None where only the
    catalog can read it. `data_files` and `data_bytes` are those that compaction rewrote.
    """

    source: str
    table: str
    files_before: int | None = None
    files_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    compacted_day: str | None = None
    data_files: int = 0
    data_bytes: int = 0
    days_expired: int = 0
    branches_dropped: int = 0
    snapshots_expired: int = 0
    orphan_files: int = 0
    seconds: float = 0.0

    @property
    def bytes_saved(self) -> int | None:
        """How much smaller the folder is; negative where tags still need the rewritten files."""
        if self.bytes_before is None or self.bytes_after is None:
            return None
        return self.bytes_before - self.bytes_after

    def as_row(self) -> dict[str, Any]:
        """The figures by name; `table` is `<source>.<table>`."""
        row = {**asdict(self), "table": f"{self.source}.{self.table}"}
        return {**row, "bytes_saved": self.bytes_saved}


def tables_of(lake: Lake, source: str) -> list[str]:
    """The tables of a source that are in the lake: state tables first, then stage tables."""
    settings = lake.config.source(source)
    derived = (str(derived_name(of, kind)) for of, kind in settings.derived)
    names = [*settings.tables, *derived, *OWN_ASSETS]
    return [name for name in names if lake.exists(_identifier(lake, source, name))]


def _identifier(lake: Lake, source: str, table: str) -> str:
    if kind_of(table).is_own:
        return lake.stage(source, table)
    return lake.state(source, TableName.parse(table))


def maintain(
    lake: Lake, source: str, dry_run: bool = False, at: datetime | None = None
) -> Iterator[Figures]:
    """Maintain every table of a source; see :func:`maintain_table`."""
    for table in tables_of(lake, source):
        yield maintain_table(lake, source, table, dry_run, at)


def maintain_table(
    lake: Lake, source: str, table: str, dry_run: bool = False, at: datetime | None = None
) -> Figures:
    """Maintain one table.

    Safe at the same time as a run, but better avoided: where both commit to the same day, the
    second commit fails.

    Args:
        lake: the lake, with the configuration of what expires.
        source: the source's name.
        table: `public.customers`, or one of the source's own tables.
        dry_run: change nothing, only return the expected figures.
        at: the instant to which the ages of snapshots and files are measured [default: now].

    Raises:
        ConcurrentRunError: a run has made the newest day again meanwhile, or has landed a day
            again whose landed records were to be removed.
        AuditError: the compacted day has another number of rows; it is not published.
    """
    began = time.monotonic()
    kind = _StageMaintenance if kind_of(table).is_own else _StateMaintenance
    work = kind(lake, source, table, dry_run, at or datetime.now(timezone.utc))
    files, size = work.folder()
    figures = replace(work.figures(), files_before=files, bytes_before=size)
    files, size = work.folder()
    seconds = round(time.monotonic() - began, 2)
    return replace(figures, files_after=files, bytes_after=size, seconds=seconds)


class _Maintenance(ABC):
    """The maintenance of one table."""

    def __init__(self, lake: Lake, source: str, table: str, dry_run: bool, at: datetime) -> None:
        self.lake, self.source, self.table, self.dry_run = lake, source, table, dry_run
        self.identifier = _identifier(lake, source, table)
        self.settings = lake.config.maintenance
        self.at = at

    def figures(self) -> Figures:
        """Run the four steps."""
        days = self._days_to_expire(self._state())
        branches = self._stale_branches(self._state())
        if (days or branches) and not self.dry_run:
            self._drop_refs()
        landed = self._remove_landing()
        day, files, size = self._compact()
        return Figures(
            self.source,
            self.table,
            compacted_day=None if day is None else str(day),
            data_files=files,
            data_bytes=size,
            days_expired=len(days) + landed,
            branches_dropped=len(branches),
            snapshots_expired=self._expire_snapshots(set(map(str, days)) | branches),
            orphan_files=self._remove_orphans(),
        )

    def _state(self) -> TableState:
        state = self.lake.read_state(self.identifier)
        assert state is not None  # tables_of() returned it
        return state

    def folder(self) -> tuple[int, int] | tuple[None, None]:
        """Files and bytes in the table's folder."""
        jvm: Any = self.lake.spark._jvm
        jsc: Any = self.lake.spark._jsc
        path = jvm.org.apache.hadoop.fs.Path(self._state().location)
        with suppress(Py4JError):  # a store that only Iceberg's own FileIO reads
            summary = path.getFileSystem(jsc.hadoopConfiguration()).getContentSummary(path)
            return int(summary.getFileCount()), int(summary.getLength())
        return None, None

    def _before(self, hours: int) -> int:
        """The instant so many hours ago, ms UTC."""
        return int((self.at - timedelta(hours=hours)).timestamp() * 1000)

    # --- 1. days and branches

    @abstractmethod
    def _days_to_expire(self, state: TableState) -> list[date]:
        """The days whose tags are dropped for their age."""

    def _remove_landing(self) -> int:
        """Remove landed records for their age; the number of days that had them."""
        return 0

    def _stale_branches(self, state: TableState) -> set[str]:
        before = self._before(self.settings.snapshot_hours)
        return {
            name
            for name, snapshot in state.refs.items()
            if is_own_branch(name) and state.snapshots[snapshot].timestamp_ms < before
        }

    def _drop_refs(self) -> None:
        """Drop the tags and branches; the same commit records the newest day that has expired."""

        def commit() -> None:
            transaction = self.lake.handle(self.identifier).newTransaction()
            state = self._state()
            change = transaction.manageSnapshots()
            days = self._days_to_expire(state)
            for day in days:
                change = change.removeTag(str(day))
            for name in self._stale_branches(state):
                change = change.removeBranch(name)
            change.commit()
            if days:
                newest = max([days[-1], *filter(None, [state.expired])])
                transaction.updateProperties().set(EXPIRED, str(newest)).commit()
            transaction.commitTransaction()

        with_retry(commit)

    # --- 2. compaction

    @abstractmethod
    def _compact(self) -> tuple[date | None, int, int]:
        """Compact the table: the day that is compacted, if it is one; data files and bytes."""

    def _plan(self, snapshot: int, all_files: bool = False) -> tuple[int, int]:
        """Files and bytes that Iceberg would rewrite by its own criteria, or all."""
        jvm: Any = self.lake.spark._jvm
        iceberg = jvm.org.apache.iceberg
        planner = iceberg.actions.BinPackRewriteFilePlanner(
            self.lake.handle(self.identifier), iceberg.expressions.Expressions.alwaysTrue(),
            snapshot, True,
        )  # fmt: skip
        planner.init(_REWRITE_ALL if all_files else {})
        groups = planner.plan().groups().iterator()
        files = size = 0
        while groups.hasNext():
            group = groups.next()
            files += int(group.inputFileNum())
            size += int(group.inputFilesSizeInBytes())
        return files, size

    def _rewrite(
        self, branch: str | None = None, all_files: bool = False, is_sorted: bool = False
    ) -> None:
        """Rewrite data files.

        Args:
            branch: of which; None: of the table.
            all_files: also those that Iceberg would leave.
            is_sorted: the table has an order of its own.
        """
        order = _SORTED.get(self.table)
        options = {"remove-dangling-deletes": "true", **(_REWRITE_ALL if all_files else {})}
        self._call(
            "rewrite_data_files",
            options=f"map({literals(text for option in options.items() for text in option)})",
            **({"branch": literal(branch)} if branch else {}),
            **({"strategy": "'sort'"} if order or is_sorted else {}),
            **({"sort_order": literal(order)} if order else {}),
        )

    # --- 3. snapshots

    def _expire_snapshots(self, dropped: set[str]) -> int:
        """Expire unreferenced snapshots older than `snapshot_hours`; queries may read newer ones.

        Args:
            dropped: references to ignore; a dry run has not dropped them.
        """
        state = self._state()
        before = self._before(self.settings.snapshot_hours)
        # Others may have set tags and branches, on stage tables too.
        kept = {s for name, s in state.refs.items() if name not in {*dropped, "main"}}
        old = {s.id for s in state.snapshots.values() if s.timestamp_ms < before} - kept
        expired = self._not_needed(state, old)
        if expired and not self.dry_run:
            with_retry(lambda: self._expire(expired))
        return len(expired)

    @abstractmethod
    def _not_needed(self, state: TableState, old: set[int]) -> set[int]:
        """Those of the old snapshots that are safe to expire."""

    def _expire(self, ids: Iterable[int]) -> None:
        # By id only: expiring by age would remove the history of main, too.
        expire = self.lake.handle(self.identifier).expireSnapshots().expireOlderThan(0)
        for snapshot in ids:
            expire = expire.expireSnapshotId(snapshot)
        expire.commit()

    # --- 4. files

    def _remove_orphans(self) -> int:
        """Remove files that no snapshot references: of crashed runs, and replaced metadata."""
        before = self.at - timedelta(hours=self.settings.orphan_hours)
        return self._call(
            "remove_orphan_files",
            older_than=f"TIMESTAMP '{before:%Y-%m-%d %H:%M:%S}'",
            dry_run=str(self.dry_run).lower(),
        )

    def _call(self, procedure: str, **arguments: str) -> int:
        """Run one of Iceberg's procedures on the table; returns the number of its result rows."""
        named = {"table": literal(self.identifier), **arguments}
        listed = ", ".join(f"{name} => {value}" for name, value in named.items())
        call = f"CALL {quote(CATALOG)}.system.{procedure}({listed})"
        return len(with_retry(lambda: self.lake.spark.sql(call).collect()))


class _StateMaintenance(_Maintenance):
    """The maintenance of a state table, whose days are tags."""

    def _days_to_expire(self, state: TableState) -> list[date]:
        """Days older than `keep_days`, counted back from the table's newest day.

        A table without new days therefore keeps its days. The days that making the newest day
        again reads never expire.
        """
        if not state.tags:
            return []
        source = self.lake.config.source(self.source)
        keep_days = max(source.keep_days, source.late_days + 1)
        oldest = max(state.tags) - timedelta(days=keep_days)
        return sorted(day for day in state.tags if day < oldest)

    def _compact(self) -> tuple[date | None, int, int]:
        """Compact the newest ended day; the open day will be made again."""
        state = self._state()
        ended = [day for day in state.tags if not self.lake.config.is_open(day)]
        if not ended:
            return None, 0, 0
        day = max(ended)
        snapshot, layout = state.tags[day], layout_of(state.properties)
        # Iceberg leaves files that are large enough as they are, whatever their partitions.
        is_new = layout != state.properties.get(COMPACTED, NO_LAYOUT)
        files, size = self._plan(snapshot, is_new)
        if not files:
            return None, 0, 0
        if self.dry_run:
            return day, files, size
        branch = self.lake.branch(self.identifier, day, base=snapshot, replaces=snapshot)
        try:
            self.lake.start(branch)
            self._rewrite(branch.name, is_new, bool(json.loads(layout)["sort_by"]))
            self._audit(branch, snapshot)
            self.lake.publish(branch, state.summary_of_same_rows(day))
            if is_new:
                with_retry(lambda: self._record_layout(layout))
        except BaseException:
            self.lake.drop_branch(branch)
            raise
        return day, files, size

    def _record_layout(self, layout: str) -> None:
        self.lake.handle(self.identifier).updateProperties().set(COMPACTED, layout).commit()

    def _audit(self, branch: DayBranch, before: int) -> None:
        """Check that the compacted day has as many rows as before."""
        expected = self.lake.at(self.identifier, before).count()
        rows = self.lake.spark.table(branch.identifier).count()
        if rows != expected:
            raise AuditError(
                f"{self.source}.{self.table}",
                branch.day,
                f"compaction left {rows} of {expected} rows; the day stays as it was. Please "
                "report it, with the versions of Spark and Iceberg",
            )

    def _not_needed(self, state: TableState, old: set[int]) -> set[int]:
        return {snapshot for snapshot in old if snapshot != state.refs.get("main")}


class _StageMaintenance(_Maintenance):
    """The maintenance of one of the source's own tables, whose days are partitions."""

    def _days_to_expire(self, state: TableState) -> list[date]:
        return []

    def _remove_landing(self) -> int:
        days, since = self._landing_to_remove()
        if days and not self.dry_run:
            self._delete_landed(days, since)
        return len(days)

    def _landing_to_remove(self) -> tuple[dict[date, int], int | None]:
        """Days of `landing` older than `landing_keep_days`, each with its number of records.

        And the commit that they were read from. Only days that `changes` has read, and whose
        following day `changes` has read.
        """
        keep = self.lake.config.source(self.source).landing_keep_days
        if self.table != "landing" or keep is None:
            return {}, None
        oldest = self.at.astimezone(ZoneInfo(self.lake.config.timezone)).date()
        oldest -= timedelta(days=keep)
        landed = self.lake.day_commits(self.source, self.table)
        changes = self.lake.day_commits(self.source, "changes")

        def is_read(day: date) -> bool:
            made_of = changes[day].inputs if day in changes else {}
            return made_of.get("landing") == landed[day].snapshot_id

        days = [
            day
            for day, commit in landed.items()
            if day < oldest and commit.removed is None and is_read(day)
            if (following := day + timedelta(days=1)) not in landed or is_read(following)
        ]
        held = self.lake.day_files(self.identifier, days) if days else {}
        found = {day: held[day].records if day in held else 0 for day in days}
        return found, landed.head

    def _delete_landed(self, days: Mapping[date, int], since: int | None) -> None:
        """Delete whole files; the commit records how many records each day had.

        A day that has landed again since it was chosen has records that `changes` has not read:
        nothing is removed then.
        """
        removed = json.dumps({str(day): records for day, records in days.items()})
        self.lake.remove_days(self.identifier, days, {REMOVED: removed}, since)

    def _compact(self) -> tuple[date | None, int, int]:
        head = self._state().refs.get("main")
        files, size = (0, 0) if head is None else self._plan(head)
        if files and not self.dry_run:
            self._rewrite()
        return None, files, size

    def _not_needed(self, state: TableState, old: set[int]) -> set[int]:
        """Snapshots that are safe to expire: a later one repeats their day inputs.

        Readers use the day inputs in the summaries (:func:`days_made`), not the snapshots: an empty
        append records the inputs of all days in its summary.
        """
        head = state.refs.get("main")
        others = old - {head}
        if head is None or not others or _repeats(state, head):
            return others
        if not self.dry_run:
            made = days_made((s.id, s.summary) for s in state.snapshots.values())
            carried = {
                str(day): {"commit": of.snapshot_id, "inputs": of.inputs, "removed": of.removed}
                for day, of in made.items()
            }
            text = json.dumps(carried)

            def commit() -> None:
                append = self.lake.handle(self.identifier).newAppend()
                append.set(CARRIED, text).set(CARRIED_UNTIL, str(head)).commit()

            with_retry(commit)
        return old


def _repeats(state: TableState, head: int) -> bool:
    """Whether the newest commit repeats the day inputs of all commits before it."""
    newest = state.snapshots[head]
    return CARRIED in newest.summary and newest.summary.get(CARRIED_UNTIL) == str(newest.parent)
