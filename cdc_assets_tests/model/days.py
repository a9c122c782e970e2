"""What all kinds of tables share, day by day: types, removals, and the basis of positions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from cdc_assets_tests.model.documents import json_text, unavailable_value
from cdc_assets_tests.model.positions import KAFKA_TIME, OTHER_BASIS, SOURCE_TIME
from cdc_assets_tests.model.records import Event, InferredTypeError, KeyTypeError
from cdc_assets_tests.model.snapshots import Snapshots
from cdc_assets_tests.model.streams import kafka_order
from cdc_assets_tests.model.values import (
    DoesNotFitError,
    Placeholder,
    Type,
    grown,
    hold,
    infer,
    parse_type,
    read_wire,
    widen,
    wire_type,
)

# Where an event or row stands among the others: its position, or for what has none (O6) that of
# the event after which it is put, then the landing (day, partition, offset). `()` is lowest.
Order = tuple[tuple[int, ...], tuple[date, int, int] | tuple[()]]


@dataclass
class Row:
    values: dict[str, Any]
    order: Order
    key: dict[str, Any] = field(default_factory=dict)
    source_ms: int | None = None  # when the source made it so
    event: Event | None = None  # of a table without a key


@dataclass
class Removal:
    """Something removed on a day: the row of a key, or with key None the whole table (O12)."""

    day: date
    key: dict[str, Any] | None
    order: Order
    event: Event


STAND_INS = (f"{SOURCE_TIME},partition", f"{KAFKA_TIME},")
# Names that no column of an Iceberg table can have, or none that Spark's MERGE writes.
NO_COLUMNS = {"", "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id"}
NO_COLUMNS |= {"_last_updated_sequence_number", "__row_id"}
NO_COLUMNS |= {"__row_from_source", "__row_from_target", "__row_operation"}


def _holds(old: Type, new: Type) -> bool:
    """Any value as text, true and false as 1 and 0, a date as its midnight (R5)."""
    if new == ("boolean",) and old[0] in ("int", "bigint", "float", "double", "decimal"):
        return True
    return old == ("string",) or (old[0], new[0]) == ("timestamp_ntz", "date")


class Table:
    """What all kinds of tables share: types, removals, orders."""

    def __init__(
        self,
        name: str,
        config: dict[str, Any],
        source: dict[str, Any],
        events: dict[date, list[Event]],
    ) -> None:
        self.name, self.config, self.source, self.events = name, config, source, events
        self.late_days = source.get("late_days", 3)
        # Cassandra's events have the columns that a statement wrote.
        absent = "keep" if source.get("format") == "debezium-cassandra" else "null"
        self.keep_missing = source.get("missing_columns", absent) == "keep"
        self.placeholder = Placeholder(unavailable_value(source))
        self.types: dict[str, Type] = {}
        self.highest: tuple[int, ...] = ()  # position that has landed on the days before
        self.inferred: set[str] = set()
        self.removals: list[Removal] = []
        self.snapshots = Snapshots(name, events, self._in_window)
        self.replaces = source.get("on_resnapshot") == "replace"
        self.bases: dict[int, str] = {}  # epoch → what positions are made of (O8)
        self.halves = [
            e
            for of_day in events.values()
            for e in of_day
            if e.destination == "changes" and e.table_name == name and e.half
        ]

    def merge(self, day: date, events: list[Event]) -> None:
        raise NotImplementedError

    def look_on(self, day: date, events: list[Event]) -> None:
        """A day before the table starts: what is removed there still beats older events (O12)."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def place(self, events: list[Event]) -> None:
        """The epoch in front (O11); an event on another basis than its table's is older than all
        of the epoch (O8)."""
        found: dict[int, Counter[str]] = defaultdict(Counter)
        streamed = [event for event in events if event.position is not None]
        for event in streamed:
            found[event.epoch][event.position_basis] += 1
        for epoch, counts in found.items():
            most = max(counts, key=lambda b: (counts[b], not b.startswith(STAND_INS), b))
            self.bases.setdefault(epoch, most)
        for event in streamed:
            is_other = event.position_basis != self.bases[event.epoch]
            below = (OTHER_BASIS,) if is_other else ()
            event.full_position = (event.epoch, *below, *(event.position or ()))

    def _in_window(self, then: date, day: date) -> bool:
        return day - timedelta(days=self.late_days) <= then < day

    def _is_recent(self, then: date, day: date) -> bool:
        return then == day or self._in_window(then, day)

    def _recent_removals(self, day: date) -> list[Removal]:
        return [r for r in self.removals if self._in_window(r.day, day)]

    def _completed_pairs(self, day: date) -> list[tuple[Event, Event]]:
        """(BEFOR, AFTER) of one sequenceId of which the later half has landed today (W2, W3)."""
        return [
            (before, after)
            for before in self.halves
            for after in self.halves
            if before.half == "before"
            and after.half == "after"
            and self._are_halves(before, after)
            and max(before.day, after.day) == day
        ]

    def _are_halves(self, one: Event, other: Event) -> bool:
        is_one_change = one.sequence_id is not None and one.sequence_id == other.sequence_id
        return is_one_change and abs((one.day - other.day).days) <= self.late_days

    # -- types ---------------------------------------------------------------------------------

    def _learn_types(self, day: date, events: list[Event]) -> None:
        """R3, R5: message schema, else configuration, else inferred; only from what has landed."""
        if not events:
            return
        key_columns = {name for event in events for name in event.key or {}}
        # One record types no column: the schema of most events comes first.
        configured = {c: parse_type(t) for c, t in (self.config.get("columns") or {}).items()}
        self.types.update(configured)
        schemas = Counter(json_text(event.wires) for event in events)
        refused = set()
        for event in sorted(events, key=lambda e: (-schemas[json_text(e.wires)], kafka_order(e))):
            for column, wire in event.wires.items():
                seen = wire_type(wire)
                if seen is None or column in NO_COLUMNS or column in configured:
                    continue
                if column in key_columns and seen[0] in ("struct", "array", "map"):
                    seen = ("string",)
                old = self.types.get(column, seen)
                wider = widen(old, seen)
                if wider is None and column in key_columns:  # R6
                    raise KeyTypeError(
                        f"the key is {old}, now {seen}", table=self.name, column=column, day=day
                    )
                self.types[column] = wider or old
                if wider is not None:
                    self.inferred.discard(column)
                elif not _holds(old, seen):
                    refused.add(column)
        self._retype(events, refused)
        unknown: dict[str, list[Any]] = defaultdict(list)
        for event in events:
            is_inferred = event.writes and not event.has_own_schema
            for column, raw in event.image().items() if is_inferred else ():
                if column in self.types or column in NO_COLUMNS:
                    continue
                if raw is not None and not self.placeholder(raw):
                    unknown[column].append(raw)
        for column, values in unknown.items():
            keys = [e.key[column] for e in events if e.key and column in e.key]
            self.types[column] = self._infer_key(values, keys) if keys else infer(values)
            self.inferred.add(column)
        for column in {column for event in events for column in event.wires} - set(NO_COLUMNS):
            self.types.setdefault(column, ("string",))  # named, and typed by nobody

    def _retype(self, events: list[Event], refused: set[str]) -> None:
        """R5: the type that the day's newest event declares, if none that landed is newer."""
        newest = max(events, key=lambda e: (e.position is not None, e.full_position, e.landed_ms))
        is_newest = newest.position is None or newest.full_position >= self.highest
        for column in sorted(refused & newest.wires.keys()):
            old, new = self.types[column], wire_type(newest.wires[column])
            is_kept = self.source.get("on_type_change", "string") == "keep"
            if is_kept or not is_newest or new is None or widen(old, new) is not None:
                continue
            is_longer = (old[0], new[0]) == ("date", "timestamp_ntz")
            self.types[column] = ("timestamp_ntz",) if is_longer else ("string",)
            for values in self._held():
                if values.get(column) is not None:
                    values[column] = hold(values[column], self.types[column])
        positions = [e.full_position for e in events if e.position is not None]
        self.highest = max([self.highest, *positions])

    def _held(self) -> Iterator[dict[str, Any]]:
        """The values of all rows that the table has, or may show again."""
        raise NotImplementedError

    @staticmethod
    def _infer_key(images: list[Any], keys: list[Any]) -> Type:
        """Keys are typed by the images (D5), unless these could not hold them all."""
        found = infer(images)
        try:
            for key in keys:
                hold(key, found)
        except DoesNotFitError:
            return infer(keys)
        return found

    def _typed(self, event: Event, column: str, raw: Any, day: date) -> Any:
        """A value of an image as its column holds it, None where it can't (R4)."""
        column_type, wire = self.types.get(column), event.wires.get(column)
        if raw is None or column_type is None:
            return None
        if column in (event.key or {}) and column not in (event.after or {}):
            wire = None  # a key value is read already
        try:
            value = hold(read_wire(wire, raw) if wire else raw, column_type)
            of_wire = (wire and wire_type(wire)) or ("",)
            if column_type == ("string",) and of_wire[0] == "decimal":  # all digits of its scale
                value = format(hold(value, of_wire), "f")
            if column in self.inferred and isinstance(value, float) and isinstance(raw, int):
                self._refuse_if_rounded(value, raw)
            return value
        except DoesNotFitError as error:
            is_written = event.after is not None and raw is event.after.get(column)
            if is_written and column in self.inferred:
                raise InferredTypeError(
                    f"{raw!r} doesn't fit {column_type}: {error}; add it to `columns:`",
                    table=self.name,
                    column=column,
                    day=day,
                ) from error
            return None

    @staticmethod
    def _refuse_if_rounded(value: float, raw: int) -> None:
        if int(value) != raw:  # R3: an integer never passes through a double
            raise DoesNotFitError("the integer would be rounded")

    def _shown(self, values: dict[str, Any]) -> dict[str, Any]:
        return {c: grown(values.get(c), column_type) for c, column_type in self.types.items()}
