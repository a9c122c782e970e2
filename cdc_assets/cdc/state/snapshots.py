"""Snapshots of a table that has rows already (FORMATS R7): by metadata alone, no Spark.

A snapshot runs from the first mark of its table to the last one, maybe over several days. One that
broke off has no last mark; the next one begins with a first mark again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from typing import Any

from cdc_assets.cdc.changes.snapshot_marks import FIRST_OF_ALL, LAST_OF_ALL, Mark, without_copies
from cdc_assets.cdc.sqltext import Sql, literal


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a table from its first read to its last one, or to the last of all tables."""

    first: Mark
    last: Mark

    @property
    def days(self) -> list[date]:
        """The days on which it landed."""
        count = (self.last.day - self.first.day).days + 1
        return [self.first.day + timedelta(days=n) for n in range(count)]

    def as_json(self) -> dict[str, Any]:
        """What :func:`snapshot_of` reads."""
        return {"first": _mark_as_json(self.first), "last": _mark_as_json(self.last)}


@dataclass(frozen=True)
class Reading:
    """A snapshot that has not ended.

    `is_of_newest` is false where another snapshot of the same stream has begun since: that one's
    end says nothing of this one.
    """

    first: Mark
    is_of_newest: bool = True

    def as_json(self) -> dict[str, Any]:
        """What :func:`reading_of` reads."""
        return {"first": _mark_as_json(self.first), "is_of_newest": self.is_of_newest}


@dataclass(frozen=True)
class SnapshotsOnDay:
    """The snapshots that ended on a day, the newest of each leaf, and those that had not.

    A table into which others go has one for each of these leaves (R8).
    """

    ended: tuple[Snapshot, ...] = ()
    reading: tuple[Reading, ...] = ()


def snapshots_on(
    table: str,
    marks: Sequence[tuple[str, Mark]],
    before: Sequence[tuple[str, Mark]],
    reading: Sequence[Reading],
    last_unmarked_ms: int | None,
) -> SnapshotsOnDay:
    """The snapshots of a table on a day.

    Args:
        table: its name.
        marks: those of the day with their tables, of all tables of the source, as they arrived.
        before: those of the days looked back on.
        reading: what had not ended by the end of the day before.
        last_unmarked_ms: when the table's last snapshot read without a mark came, on the day or
            the one before; -1: none did, None: not known.
    """
    fresh = set(without_copies([mark for _, mark in marks], (mark for _, mark in before)))
    of_all = [(name == table, mark) for name, mark in marks if mark in fresh]
    open_of = {one.first.source_table: one for one in reading}
    leaves = {mark.source_table for is_own, mark in of_all if is_own} | open_of.keys()
    ended, left = [], []
    for leaf in sorted(leaves, key=lambda name: name or ""):
        own = ((is_own and mark.source_table == leaf, mark) for is_own, mark in of_all)
        known = (m.ms for name, m in before if (name, m.source_table) == (table, leaf))
        last_ms = max(known, default=-1)
        end, still_open = _of_leaf(own, open_of.get(leaf), last_ms, last_unmarked_ms)
        ended += [end] if end else []
        left += [still_open] if still_open else []
    return SnapshotsOnDay(tuple(ended), tuple(left))


def _of_leaf(
    marks: Iterable[tuple[bool, Mark]],
    reading: Reading | None,
    last_ms: int,
    last_unmarked_ms: int | None,
) -> tuple[Snapshot | None, Reading | None]:
    """The newest snapshot of a leaf that ended, and the one that has not.

    A last mark without a first one is that of the only row, if no other read came since the mark
    before it.

    Args:
        marks: as they arrived, and whether each is the leaf's own.
        last_ms: when the leaf's last mark of the days before came.
    """
    ended = None
    for is_own, mark in marks:
        if is_own and mark.is_first:
            reading = Reading(mark)
        elif is_own:
            is_one_row = last_unmarked_ms is not None and last_unmarked_ms <= last_ms
            if reading is not None or is_one_row:
                ended = Snapshot(reading.first if reading else mark, mark)
            reading = None
        elif reading is not None and mark.stream == reading.first.stream:
            if mark.mark == FIRST_OF_ALL:
                reading = replace(reading, is_of_newest=False)
            elif mark.mark == LAST_OF_ALL and reading.is_of_newest:
                # A table of one row that is the first of all has no last mark of its own.
                ended, reading = Snapshot(reading.first, mark), None
        if is_own:
            last_ms = max(last_ms, mark.ms)
    return ended, reading


def has_landed_since(mark: Mark) -> Sql:
    """True for an event that landed at a mark or after it, or may have.

    In other partitions the Kafka timestamp tells.
    """
    here = f"topic <=> {literal(mark.topic)} AND partition <=> {mark.partition}"
    return (
        f"(landing_date > {literal(mark.day)} OR (landing_date = {literal(mark.day)} AND "
        f"CASE WHEN {here} THEN offset >= {mark.offset}L ELSE kafka_time >= {mark.ms}L END))"
    )


def snapshot_of(found: Mapping[str, Any]) -> Snapshot:
    """The snapshot that a day's report has."""
    return Snapshot(_mark_of(found["first"]), _mark_of(found["last"]))


def reading_of(found: Mapping[str, Any]) -> Reading:
    """The snapshot that had not ended, as a day's report has it."""
    return Reading(_mark_of(found["first"]), found["is_of_newest"])


def _mark_as_json(mark: Mark) -> dict[str, Any]:
    return asdict(mark) | {"day": str(mark.day)}


def _mark_of(found: Mapping[str, Any]) -> Mark:
    return Mark(**{**found, "day": date.fromisoformat(found["day"])})
