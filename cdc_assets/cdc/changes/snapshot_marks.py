"""The reads at which a snapshot of a table begins and ends (FORMATS R7).

Debezium marks the first and the last read of a table, and of the whole snapshot. A table of one
row has one read with one of these marks; an incremental snapshot has none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.sql import Row

from cdc_assets.cdc.lake.schemas import SNAPSHOT_MARK
from cdc_assets.cdc.positions import stream_of, time_in_day
from cdc_assets.cdc.sqltext import Sql, case, is_one_of

# The first and the last read of all tables are marked so, and those of each other table.
FIRST_OF_ALL, LAST_OF_ALL = "first", "last"
_FIRST = (FIRST_OF_ALL, "first_in_data_collection")
_LAST = (LAST_OF_ALL, "last_in_data_collection")
_MOST = 1000  # of a table and day: the newest ones


@dataclass(frozen=True)
class Mark:
    """A read with a mark: its place, and `content`, which its copies have, too."""

    ms: int
    topic: str
    partition: int
    offset: int
    mark: str
    day: date
    source_ts_ms: int | None
    content: int
    stream: str
    source_table: str | None = None

    @property
    def arrival(self) -> tuple[int, int, str, int, int]:
        """What marks are sorted by; a small snapshot is read within a millisecond."""
        rank = (*_FIRST, *reversed(_LAST)).index(self.mark)
        return self.ms, rank, self.topic, self.partition, self.offset

    @property
    def is_first(self) -> bool:
        """Whether a table's snapshot begins with it."""
        return self.mark in _FIRST


def marks_by_day(facts: Iterable[Row]) -> dict[date, list[tuple[str, Mark]]]:
    """The marks of each day with their tables, in the order of arrival."""
    by_day: dict[date, list[tuple[str, Mark]]] = {}
    for fact in facts:
        for mark in fact.snapshot_marks or ():
            found = fact.table_name, Mark(**mark.asDict())
            by_day.setdefault(fact.landing_date, []).append(found)
    return {day: sorted(on, key=lambda of: of[1].arrival) for day, on in by_day.items()}


def columns_to_count(timezone: str) -> dict[str, Sql]:
    """Of each record `snapshot_mark`, and `unmarked_ms`, when another read of a snapshot came."""
    is_change, is_marked = "destination = 'changes'", is_one_of("snapshot", (*_FIRST, *_LAST))
    values = {
        "ms": time_in_day(timezone),
        "mark": "snapshot",
        "day": "landing_date",
        "stream": stream_of("connector", "server", "db"),
        "content": "xxhash64(snapshot, key, after, source_ts_ms, processed_ts_ms, source_elements)",
    }
    members = ", ".join(f"'{name}', {values.get(name, name)}" for name in SNAPSHOT_MARK.names)
    is_other = f"snapshot <> 'incremental' AND NOT {is_marked}"
    return {
        "snapshot_mark": case((f"{is_change} AND {is_marked}", f"named_struct({members})")),
        "unmarked_ms": case((f"{is_change} AND op = 'r' AND {is_other}", time_in_day(timezone))),
    }


def counts() -> dict[str, Sql]:
    """The aggregates over them, by the names of facts."""
    newest = f"slice(sort_array(collect_list(snapshot_mark), false), 1, {_MOST})"
    return {
        "snapshot_marks": case(("count(snapshot_mark) > 0", newest)),
        "unmarked_reads": "count(unmarked_ms)",
        "last_unmarked_ms": "max(unmarked_ms)",
    }


def without_copies(marks: Sequence[Mark], before: Iterable[Mark]) -> list[Mark]:
    """The marks that are the first delivery of their read.

    Args:
        marks: in the order of arrival.
        before: those that landed on earlier days.
    """
    known, found = {m.content for m in before}, []
    for mark in marks:
        if mark.content not in known:
            known.add(mark.content)
            found.append(mark)
    return found
