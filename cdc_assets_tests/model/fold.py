"""What a key holds while its events are read one by one (O16)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cdc_assets_tests.model.values import Type, grown

UNKNOWN = object()  # a value that was not sent


@dataclass
class Held:
    """A row that stands at a key, or stood there."""

    values: dict[str, Any]  # of all columns
    columns: set[str]  # those that it was sent with, or that its table has
    key: dict[str, Any]
    unsent: set[str] = field(default_factory=set)  # columns that its event left out
    source_ms: int | None = None  # when the source made it so


@dataclass
class OldRow:
    """The `before` of an event: of which row does it speak?"""

    values: dict[str, Any] = field(default_factory=dict)  # UNKNOWN where not sent
    columns: set[str] = field(default_factory=set)
    is_vouched: bool = False  # it is the whole old row, as far as it has columns
    null_is_any: bool = False  # SQL Server leaves out what is large

    def whole(self, columns: set[str]) -> bool:
        return self.is_vouched and columns <= self.columns

    def equals(self, row: Held, types: dict[str, Type]) -> bool:
        """Column by column, of those that both have; the key alone says nothing of the row, and
        what was not sent equals any."""
        own = {column for column in row.columns if column in types and column not in row.key}
        common = own & self.columns
        if not common:
            return not own
        sent = common - row.unsent
        return all(self._same(row.values[c], self.values[c], types[c]) for c in sent)

    def _same(self, value: Any, old: Any, column_type: Type) -> bool:
        if value is UNKNOWN or old is UNKNOWN or (old is None and self.null_is_any):
            return True
        value, old = grown(value, column_type), grown(old, column_type)
        return bool(value == old) or (value != value and old != old)  # NaN is NaN


Builder = Callable[[Held | None], Held]  # the row taken, if any, lends what was not sent


class Queue:
    """The rows of one key, oldest first. Without `keys_held_twice` the last event decides."""

    def __init__(self, types: dict[str, Type]) -> None:
        self.types = types
        self.rows: list[Held] = []
        self.stood = False  # the oldest was there before the transaction
        self.tx: str | None = None

    def set(self, row: Held | None) -> None:
        """A row of an earlier day, a read, a truncate: whatever was held is gone."""
        self.rows = [] if row is None else [row]
        self.stood, self.tx = bool(self.rows), None

    def begin(self, tx: str | None) -> None:
        """The next event is of this transaction, None: of one of its own."""
        if tx is None or tx != self.tx:
            self.rows = self.rows[-1:]
            self.stood, self.tx = bool(self.rows), tx

    @property
    def newest(self) -> Held | None:
        return self.rows[-1] if self.rows else None

    def arrive(self, build: Builder) -> None:
        self.rows.append(build(self.newest))

    def update(self, old: OldRow, build: Builder, columns: set[str]) -> None:
        is_sure = old.whole(columns)
        taken = self._taken(old, is_sure)
        if taken is None and (is_sure or not self.rows):
            # The row that it changes was never known: below those that arrived.
            self.rows.insert(0, build(None))
            self.stood = True
            return
        taken = len(self.rows) - 1 if taken is None else taken
        self.rows[taken] = build(self.rows[taken])

    def leave(self, old: OldRow, *, departs: bool) -> Held | None:
        """The row that a `d` takes away; `departs`: by a change of its key."""
        is_sure = old.whole(self._columns_of_newest())
        taken = self._taken(old, is_sure)
        if taken is None and departs and self.rows and not is_sure:
            taken = 0
        if taken is not None:
            self.stood = self.stood and taken > 0
            return self.rows.pop(taken)
        newest = self.newest
        if not is_sure:
            self.rows, self.stood = [], False
            return newest
        return None

    def _taken(self, old: OldRow, is_sure: bool) -> int | None:
        equal = [n for n, row in enumerate(self.rows) if old.equals(row, self.types)]
        if equal:
            return equal[0]
        return 0 if is_sure and self.stood else None

    def _columns_of_newest(self) -> set[str]:
        newest = self.newest
        return newest.columns & set(self.types) - set(newest.key) if newest else set()

    # -- all other connectors ----------------------------------------------------------------------

    def replace(self, build: Builder) -> None:
        self.set(build(self.newest))

    def remove(self) -> Held | None:
        newest = self.newest
        self.set(None)
        return newest
