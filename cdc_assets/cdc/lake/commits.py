"""Days in a table's commits and references, without Spark or a catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from cdc_assets.cdc.names import quote

INPUTS = "cdc.inputs"  # snapshot property: {day: what it was made of}, as JSON
CARRIED = "cdc.carried"  # snapshot property: day inputs of expired commits, as JSON
# Snapshot property: the newest commit that `CARRIED` covers. If it is not the parent, `CARRIED`
# lacks the parent's day inputs.
CARRIED_UNTIL = "cdc.carried_until"
REMOVED = "cdc.removed"  # snapshot property: {day: records removed for their age}, as JSON
REPORT = "cdc.report"  # snapshot property: figures of a state table's day, as JSON
DAY = "cdc.day"
MADE_AS = "cdc.made_as"  # snapshot property: the commit that made the day, before compaction
EXPIRED = "cdc.expired"  # table property: the newest day whose tag was dropped for its age
KEY = "cdc.key"  # table property: the key's columns, as JSON
TIMEZONE = "cdc.timezone"  # table property: the time zone of its days
# Table property: the last day that gave a column another field, for a type that it now has.
RETYPED = "cdc.retyped"
KEEPS_DELETED = "cdc.keeps-deleted"  # table property: deleted rows stay in it, or stayed
EMPTY = "empty"  # the tag of a state table before its first day


@dataclass(frozen=True)
class Snapshot:
    """One commit of a table."""

    id: int
    summary: Mapping[str, str]
    timestamp_ms: int
    parent: int | None = None


@dataclass(frozen=True)
class TableState:
    """A table's metadata: references, snapshots, properties."""

    refs: Mapping[str, int]
    snapshots: Mapping[int, Snapshot]
    properties: Mapping[str, str]
    location: str

    @cached_property
    def tags(self) -> dict[date, int]:
        """The published days and the snapshot of each."""
        return {
            date.fromisoformat(name): snapshot
            for name, snapshot in self.refs.items()
            if is_day(name)
        }

    @property
    def expired(self) -> date | None:
        """The newest day that maintenance dropped; it and earlier days may be gone."""
        text = self.properties.get(EXPIRED)
        return date.fromisoformat(text) if text else None

    def is_expired(self, day: date) -> bool:
        """True for a day that was made and has expired."""
        return day not in self.tags and self.expired is not None and day <= self.expired

    def made_as(self, day: date) -> int:
        """The snapshot that made a published day: compaction moves the tag and keeps the rows."""
        return int(self.day_summary(day).get(MADE_AS, self.tags[day]))

    def made_of(self, day: date) -> Mapping[str, Any]:
        """The recorded inputs of a published day; empty for a day without a tag."""
        made_of: Mapping[str, Any] = json.loads(self.day_summary(day).get(INPUTS, "{}"))
        return made_of

    def summary_of_same_rows(self, day: date) -> dict[str, str]:
        """What a commit records that publishes a day once more with the same rows."""
        own = {k: v for k, v in self.day_summary(day).items() if k.startswith("cdc.")}
        return {**own, MADE_AS: str(self.made_as(day))}

    @property
    def key_columns(self) -> list[str]:
        """The key's columns by their names in messages; empty before the first day or without."""
        keys: list[str] = json.loads(self.properties.get(KEY, "[]"))
        return keys

    def day_before(self, day: date) -> int | None:
        """The commit that made the day before, on which a day is built.

        If that day has expired, the base that the day recorded.
        """
        before = day - timedelta(days=1)
        if before in self.tags:
            return self.made_as(before)
        if self.is_expired(before):
            recorded: int | None = self.made_of(day).get("day_before")
            return recorded
        return None

    def day_summary(self, day: date) -> Mapping[str, str]:
        """The summary of a published day; empty for a day without a tag."""
        snapshot = self.tags.get(day)
        return self.snapshots[snapshot].summary if snapshot is not None else {}


@dataclass(frozen=True)
class DayCommit:
    """The commit that last wrote a day of a stage table, and what the day was made of."""

    snapshot_id: int
    inputs: Mapping[str, Any] = field(default_factory=dict)
    records: int | None = None  # written by the commit for all its days; None if not recorded
    removed: int | None = None  # number of the day's records that maintenance has removed


@dataclass(frozen=True)
class DayFiles:
    """The size of a day of a stage table."""

    files: int = 0
    bytes: int = 0
    records: int = 0


class DayCommits(dict[date, DayCommit]):
    """The days of a stage table; `head` is the table's newest commit when they were read."""

    head: int | None = None

    @classmethod
    def recorded_in(cls, state: TableState | None) -> DayCommits:
        """The days in a stage table's metadata; empty where there is no table."""
        if state is None:
            return cls()
        commits = cls(days_made((s.id, s.summary) for s in state.snapshots.values()))
        commits.head = state.refs.get("main")
        return commits

    def records(self, days: Iterable[date]) -> int | None:
        """An upper bound of the rows of some days; None if a commit does not record it."""
        total, seen = 0, set()
        for made in (self[day] for day in days if day in self):
            if made.records is None:
                return None
            total += made.records if made.snapshot_id not in seen else 0
            seen.add(made.snapshot_id)
        return total


def days_made(commits: Iterable[tuple[int, Mapping[str, str]]]) -> dict[date, DayCommit]:
    """The days of a stage table: the latest commit that recorded each day.

    Inputs that maintenance carried over are older than those of every remaining snapshot.

    Args:
        commits: snapshot id and summary, oldest first.
    """
    listed = list(commits)
    days: dict[date, DayCommit] = {}
    for _, summary in listed:
        for day, known in json.loads(summary.get(CARRIED, "{}")).items():
            removed = known.get("removed")
            days[date.fromisoformat(day)] = DayCommit(
                known["commit"], known["inputs"], removed=removed
            )
    for snapshot, summary in listed:
        for day, inputs in json.loads(summary.get(INPUTS, "{}")).items():
            records = int(summary.get("added-records", 0))
            days[date.fromisoformat(day)] = DayCommit(snapshot, inputs, records)
        for day, count in json.loads(summary.get(REMOVED, "{}")).items():
            commit = days.get(date.fromisoformat(day), DayCommit(0))
            days[date.fromisoformat(day)] = replace(commit, removed=count)
    return days


BRANCH_PREFIX = "ld_"


NEW_FIELD = "_cdc_new_"  # begins the name of a field that is not published yet


@dataclass(frozen=True)
class Retyped:
    """A column that gets a type which it can't be widened to, as a new field of the table.

    `before` and `after` are Spark's types.
    """

    name: str
    before: str
    after: str
    comment: str = ""

    @property
    def stored(self) -> str:
        """The new field's name until the day is published."""
        return f"{NEW_FIELD}{self.name}"


@dataclass(frozen=True)
class DayBranch:
    """A private branch on which one writer builds a day of a state table.

    `base` is the snapshot that it starts from, None for an empty table; `replaces` the day's
    published snapshot when the writer began, None where it had none. `retyped` columns get another
    type with the day. Where the fields of the table are not those of `base`, its rows are written
    once more (`is_written_again`).
    """

    table: str
    day: date
    base: int | None
    replaces: int | None
    name: str
    retyped: tuple[Retyped, ...] = ()
    is_written_again: bool = False

    @property
    def identifier(self) -> str:
        """The branch as Spark reads and writes it."""
        return f"{self.table}.{quote('branch_' + self.name)}"


@dataclass(frozen=True)
class BranchFigures:
    """What a branch's own commits added, by their summaries; `net` rows."""

    net: int = 0
    written: int = 0
    removed: int = 0
    bytes_added: int = 0
    files_added: int = 0


def branch_figures(state: TableState, branch: DayBranch) -> BranchFigures:
    """What a branch's own commits added to its base.

    Args:
        state: the table's metadata, read after them.
        branch: the branch.
    """
    new = []
    # Other runs commit to other branches of the table meanwhile.
    commit: int | None = state.refs[branch.name]
    while commit is not None and commit != branch.base:
        new.append(state.snapshots[commit].summary)
        commit = state.snapshots[commit].parent

    def total(key: str) -> int:
        return sum(int(summary.get(key, 0)) for summary in new)

    # A commit writes again the deletes of the files that it deletes from.
    removed = total("added-position-deletes") - total("removed-position-deletes")
    removed += total("deleted-records")
    return BranchFigures(
        net=total("added-records") - removed,
        written=total("added-records"),
        removed=removed,
        bytes_added=total("added-files-size"),
        files_added=total("added-data-files") + total("added-delete-files"),
    )


def is_own_branch(name: str) -> bool:
    """Whether a branch is a day's (:class:`DayBranch`), not one that a user created."""
    return bool(_OWN_BRANCH.fullmatch(name))


_OWN_BRANCH = re.compile(re.escape(BRANCH_PREFIX) + r"\d{4}-\d{2}-\d{2}_[0-9a-f]{8}")


def branch_prefix(day: date) -> str:
    """The prefix of a day's branches; a branch can't have the name of the day's tag."""
    return f"{BRANCH_PREFIX}{day}_"


def is_day(name: str) -> bool:
    """Whether a reference is the tag of a published day, not one that a user created."""
    try:
        return len(name) == 10 and str(date.fromisoformat(name)) == name
    except ValueError:
        return False


def days_named(names: Iterable[str]) -> Iterable[date]:
    """The published days among the names of references."""
    return (date.fromisoformat(name) for name in names if is_day(name))
