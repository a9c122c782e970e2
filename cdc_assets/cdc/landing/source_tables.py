"""The tables with a copy of Kafka's records that a source lands: what is known without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REDPANDA = "redpanda"  # the layout of its Iceberg topics, and the column that has a record's place


@dataclass(frozen=True)
class Seen:
    """The state of a table that was read."""

    snapshot: int | None  # None: the table has no rows yet, or no snapshots
    sequence: int  # its number in the table's history, 0 in tables without one
    committed_ms: int

    @classmethod
    def recorded(cls, values: Sequence[Any]) -> Seen:
        """As :attr:`values` were recorded."""
        return cls(*values)

    @property
    def values(self) -> list[Any]:
        """What a day's commit records."""
        return [self.snapshot, self.sequence, self.committed_ms]

    def is_newer(self, other: Seen) -> bool:
        """Whether this state came after another one."""
        return self.sequence > other.sequence or self.committed_ms > other.committed_ms


NEVER = Seen(None, 0, 0)


@dataclass(frozen=True)
class Appended:
    """Rows that were added to a table in one file: when, and between which times of records."""

    seen: Seen
    first_ms: int
    last_ms: int


class SourceTable(Protocol):
    """A table that records are read from, as of the state that it had when it was opened."""

    @property
    def name(self) -> str:
        """Its name or folder, as it is shown and recorded."""
        ...

    @property
    def topic(self) -> str:
        """Its last part, which is the topic where each topic has a table."""
        ...

    @property
    def timestamp(self) -> str:
        """The column of Kafka's timestamp, with a dot where it is in a struct."""
        ...

    @property
    def seen(self) -> Seen:
        """Its state."""
        ...

    @property
    def records(self) -> int | None:
        """How many rows it has; None where that is not known without reading it."""
        ...

    @property
    def has_times(self) -> bool:
        """Whether the statistics of all files say the times of their records."""
        ...

    def appended_since(self, seen: Seen) -> Iterator[Appended]:
        """The files that were added after a state, by the statistics of their records' times.

        Files that only hold what others held, as compaction writes them, are left out where the
        table's format can tell, as are files without statistics.
        """
        ...

    def read(self, spark: SparkSession, since_ms: int | None) -> DataFrame | None:
        """Its rows; None without any.

        Args:
            spark: the session.
            since_ms: rows that came before may be left out; None: none.
        """
        ...


def timestamp_column(is_redpanda: bool, columns: Mapping[str, str]) -> str:
    """The column of Kafka's timestamp in a table, with a dot where it is in a struct."""
    return f"{REDPANDA}.timestamp" if is_redpanda else columns.get("timestamp", "timestamp")
