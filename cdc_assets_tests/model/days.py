"""The state of a table, day by day."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from cdc_assets_tests.model.documents import json_text, key_text, unavailable_value
from cdc_assets_tests.model.positions import BASIS_NAMES, SOURCE_TIME
from cdc_assets_tests.model.records import Event, InferredTypeError, KeyColumnsError, KeyTypeError
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


@dataclass
class Removal:
    """Something removed on a day: the row of a key, or with key None the whole table (O12)."""

    day: date
    key: dict[str, Any] | None
    order: Order
    event: Event


@dataclass
class Entry:
    """One thing in the history of a key: a row of the day before, an event, or a removal."""

    order: Order
    row: Row | None = None
    event: Event | None = None
    removed: bool = False
    lane: tuple[str, int, int] | None = None  # (topic, partition, offset) if of today


_UNKNOWN = object()
# Names that no column of an Iceberg table can have, or none that Spark's MERGE writes.
NO_COLUMNS = {"", "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id"}
NO_COLUMNS |= {"_last_updated_sequence_number", "__row_id"}
NO_COLUMNS |= {"__row_from_source", "__row_from_target", "__row_operation"}


class Table:
    """What all kinds of tables share: types, removals, orders."""

    def __init__(
        self,
        name: str,
        config: dict[str, Any],
        source: dict[str, Any],
        events: dict[date, list[Event]],
    ) -> None:
        self.name, self.config = name, config
        self.late_days = source.get("late_days", 3)
        # Cassandra's events have the columns that a statement wrote.
        absent = "keep" if source.get("format") == "debezium-cassandra" else "null"
        self.keep_missing = source.get("missing_columns", absent) == "keep"
        self.placeholder = Placeholder(unavailable_value(source))
        self.types: dict[str, Type] = {}
        self.inferred: set[str] = set()
        self.removals: list[Removal] = []
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
        """O8: an event on another basis than its table's is older than all of the epoch."""
        found: dict[int, Counter[str]] = defaultdict(Counter)
        for event in events:
            if event.position is not None:
                found[event.position[0]][event.basis] += 1
        for epoch, counts in found.items():
            most = max(counts, key=lambda b: (counts[b], b != SOURCE_TIME, BASIS_NAMES[b]))
            self.bases.setdefault(epoch, most)
        for event in events:
            if event.position is not None and event.basis != self.bases[event.position[0]]:
                epoch, *rest = event.position
                event.position = (epoch, -2, *rest)

    def _in_window(self, then: date, day: date) -> bool:
        return day - timedelta(days=self.late_days) <= then < day

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
            and before.sequence_id is not None
            and before.sequence_id == after.sequence_id
            and max(before.day, after.day) == day
            and abs((before.day - after.day).days) <= self.late_days
        ]

    # -- types ---------------------------------------------------------------------------------

    def _learn_types(self, day: date, events: list[Event]) -> None:
        """R3, R5: message schema, else configuration, else inferred; only from what has landed."""
        if not events:
            return
        key_columns = {name for event in events for name in event.key or {}}
        # One record types no column: the schema of most events comes first.
        schemas = Counter(json_text(event.wires) for event in events)
        for event in sorted(events, key=lambda e: (-schemas[json_text(e.wires)], kafka_order(e))):
            for column, wire in event.wires.items():
                seen = wire_type(wire)
                if seen is None or column in NO_COLUMNS:
                    continue
                old = self.types.get(column, seen)
                wider = widen(old, seen)
                if wider is None and column in key_columns:  # R6
                    raise KeyTypeError(
                        f"the key is {old}, now {seen}", table=self.name, column=column, day=day
                    )
                self.types[column] = wider or old
                if wider is not None:
                    self.inferred.discard(column)
        for column, text in (self.config.get("columns") or {}).items():
            self.types.setdefault(column, parse_type(text))
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


class KeyedTable(Table):
    """A table with a key: per key, the highest of row, events and removals wins."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state: list[Row] = []
        self.entries: dict[str, list[Entry]] = {}
        self.truncates: list[Entry] = []
        self.key_columns: set[frozenset[str]] = set()

    def rows(self) -> list[dict[str, Any]]:
        ordered = sorted(self.state, key=lambda row: key_text(row.key))
        return [self._shown(row.values) for row in ordered]

    def look_on(self, day: date, events: list[Event]) -> None:
        self._collect(day, events)

    def merge(self, day: date, events: list[Event]) -> None:
        self.key_columns |= {frozenset(event.key) for event in events if event.key}
        if len(self.key_columns) > 1:
            columns = " and ".join(sorted(str(sorted(names)) for names in self.key_columns))
            raise KeyColumnsError("keys differ", table=self.name, column=columns, day=day)
        self._learn_types(day, events)
        self._collect(day, events)
        state = []
        for identity in self.entries:
            top = self._timeline(identity)[-1]
            if top.removed:
                continue
            if top.row is not None:
                state.append(top.row)
            elif top.event is not None:
                state.append(self._build(identity, top, day))
        self.state = state

    # -- the history of each key ---------------------------------------------------------------

    def _collect(self, day: date, events: list[Event]) -> None:
        """Entries per key: the rows of the day before, recent removals, today's events."""
        self.entries, self.truncates = defaultdict(list), []
        for row in self.state:
            self.entries[self._identity(row.key)].append(Entry(row.order, row=row))
        for removal in self._recent_removals(day):  # O12
            entry = Entry(removal.order, event=removal.event, removed=True)
            if removal.key is None:
                self.truncates.append(entry)
            else:
                self.entries[self._identity(removal.key)].append(entry)
        for event in sorted(events, key=kafka_order):
            if event.op == "t":  # D12
                self._remove(day, None, event)
            elif event.removes and event.key is not None:
                self._remove(day, event.key, event)
            elif event.writes and event.key is not None:
                identity = self._identity(event.key, of_row_on=day)
                if event.old_key is not None and self._identity(event.old_key) != identity:
                    self._remove(day, event.old_key, event)  # D9, D10
                order = self._order(event, identity)
                entry = Entry(order, event=event, lane=kafka_order(event))
                self.entries[identity].append(entry)
        for before, after in self._completed_pairs(day):  # W3
            if before.key is None or after.key is None:
                continue
            if self._identity(before.key) != self._identity(after.key):
                self._remove(day, before.key, before)

    def _remove(self, day: date, key: dict[str, Any] | None, event: Event) -> None:
        identity = None if key is None else self._identity(key)
        order = self._order(event, identity, removes=True)
        entry = Entry(order, event=event, removed=True, lane=kafka_order(event))
        (self.truncates if identity is None else self.entries[identity]).append(entry)
        self.removals.append(Removal(day, key, order, event))

    def _order(self, event: Event, identity: str | None, *, removes: bool = False) -> Order:
        if event.position is not None:
            *higher, rank, partition, offset = event.position
            rank = 0 if removes and event.writes else rank  # the old key of D9, D10
            return (*higher, rank, partition, offset), ()
        # O6: directly after the highest of its own key, or truncate, that landed before it.
        topic, partition, offset = kafka_order(event)
        before = [
            entry.order[0]
            for entry in [*self.entries.get(identity or "", []), *self.truncates]
            if entry.lane is None
            or (entry.lane[:2] == (topic, partition) and entry.lane[2] < offset)
        ]
        return max(before, default=()), (event.day, partition, offset)

    def _identity(self, key: dict[str, Any], *, of_row_on: date | None = None) -> str:
        """The key as text, its values as the table's columns hold them (D5)."""
        held = {}
        for column, value in key.items():
            try:
                column_type = self.types.get(column)
                held[column] = hold(value, column_type) if column_type else value
            except DoesNotFitError as error:
                if of_row_on is not None:  # R6
                    raise KeyTypeError(
                        f"key value {value!r} doesn't fit {column_type}",
                        table=self.name,
                        column=column,
                        day=of_row_on,
                    ) from error
                held[column] = value  # no row has such a key
        return key_text(held)

    def _timeline(self, identity: str) -> list[Entry]:
        """Lowest first; at equal order the row beats the event it came from, landed again."""
        return sorted(
            [*self.entries.get(identity, []), *self.truncates],
            key=lambda entry: (entry.order, entry.row is not None),
        )

    # -- the row of the winner -----------------------------------------------------------------

    def _build(self, identity: str, entry: Entry, day: date) -> Row:
        event = entry.event
        assert event is not None
        values = {}
        for column in self.types:
            value = self._carried(event, column, day)
            if value is _UNKNOWN:
                value = self._filled(identity, entry, column, day)
            values[column] = None if value is _UNKNOWN else value
        return Row(values, entry.order, event.key or {})

    def _carried(self, event: Event, column: str, day: date) -> Any:
        """The value that the event itself brings, _UNKNOWN where it says "unchanged"."""
        image = event.image()
        if column in (event.key or {}):  # D5
            return self._key_value(event, column)
        if column not in image:
            return _UNKNOWN if self.keep_missing else None  # R1
        if self.placeholder(image[column]):
            return _UNKNOWN  # R2
        return self._typed(event, column, image[column], day)

    def _key_value(self, event: Event, column: str) -> Any:
        """A key column holds the key, whatever the image says."""
        try:
            return hold((event.key or {})[column], self.types[column])
        except DoesNotFitError:
            return None

    def _filled(self, identity: str, entry: Entry, column: str, day: date) -> Any:
        """R2: after a key change the old key's row, else the row's own last known value."""
        event = entry.event
        assert event is not None
        for old in self._old_keys(event, day):
            found = self._last_known(self._identity(old), column, entry.order, event, day)
            if found is not _UNKNOWN:
                return found
        return self._last_known(identity, column, entry.order, None, day)

    def _last_known(
        self, identity: str, column: str, below: Order, mover: Event | None, day: date
    ) -> Any:
        """Down the history of a key to the first value; a removal ends it, unless it is part of
        the key change ``mover`` itself."""
        for entry in reversed(self._timeline(identity)):
            if not entry.order < below:
                continue
            if entry.removed:
                if mover is not None and self._part_of(entry, mover):
                    continue
                return _UNKNOWN
            if entry.row is not None:
                return entry.row.values.get(column, _UNKNOWN)
            assert entry.event is not None
            found = self._carried(entry.event, column, day)
            if found is _UNKNOWN and self._old_keys(entry.event, day):
                found = self._filled(identity, entry, column, day)
            if found is not _UNKNOWN:
                return found
        return _UNKNOWN

    @staticmethod
    def _part_of(removal: Entry, mover: Event) -> bool:
        """Does the old key's delete, its tombstone or its BEFOR half belong to this key change?"""
        event = removal.event
        if event is None or event.op == "t" or mover.position is None or not any(mover.elements):
            return event is mover
        shared = len(mover.position) - 4  # epoch and source elements
        return removal.order[0][:shared] == mover.position[:shared]

    def _old_keys(self, event: Event, day: date) -> list[dict[str, Any]]:
        paired = [
            before.key
            for before in self.halves
            if event.half == "after"
            and before.half == "before"
            and before.day <= day
            and abs((before.day - event.day).days) <= self.late_days
            and before.sequence_id is not None
            and before.sequence_id == event.sequence_id
        ]
        own = self._identity(event.key or {})
        olds = [old for old in (event.old_key, *paired) if old is not None]
        return [old for old in olds if self._identity(old) != own]


class AppendedTable(Table):
    """``key: none``: rows are appended, known by their identity; a truncate empties it (O14)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state: list[Row] = []
        self.seen: list[tuple[date, Any]] = []

    def rows(self) -> list[dict[str, Any]]:
        return [self._shown(row.values) for row in self.state]

    def look_on(self, day: date, events: list[Event]) -> None:
        for event in events:
            self.seen.append((day, self._row_identity(event)))
            if event.op == "t" and event.position is not None:
                self.removals.append(Removal(day, None, (event.position, ()), event))

    def merge(self, day: date, events: list[Event]) -> None:
        self._learn_types(day, events)
        ordered = sorted(events, key=kafka_order)
        for event in ordered:
            if event.op == "t" and event.position is not None:
                self.removals.append(Removal(day, None, (event.position, ()), event))
        for event in ordered:
            if self._is_new(day, event) and event.writes:
                values = self._values(event, event.after, day)
                self.state.append(Row(values, self._order(day, event)))
        truncates = [r.order for r in self._truncates(day)]
        self.state = [row for row in self.state if not any(t > row.order for t in truncates)]

    def _truncates(self, day: date) -> list[Removal]:
        recent = [r for r in self.removals if r.day == day or self._in_window(r.day, day)]
        return [r for r in recent if r.key is None]

    def _is_new(self, day: date, event: Event) -> bool:
        identity = self._row_identity(event)
        known = any(i == identity and (d == day or self._in_window(d, day)) for d, i in self.seen)
        self.seen.append((day, identity))
        return not known

    def _row_identity(self, event: Event) -> Any:
        if not event.has_elements:
            return kafka_order(event)
        return event.own_elements, json_text([event.before, event.after]), event.ordinal

    def _values(self, event: Event, image: dict[str, Any] | None, day: date) -> dict[str, Any]:
        values = {}
        for column in self.types:
            raw = (image or {}).get(column)
            values[column] = None if self.placeholder(raw) else self._typed(event, column, raw, day)
        return values

    def _order(self, day: date, event: Event) -> Order:
        if event.position is not None:
            return event.position, ()
        topic, partition, offset = kafka_order(event)
        before = []
        for removal in self._truncates(day):
            lane = kafka_order(removal.event)
            earlier = lane[:2] == (topic, partition) and lane[2] < offset
            if removal.day < day or earlier:
                before.append(removal.order[0])
        return max(before, default=()), (event.day, partition, offset)


class MultisetTable(AppendedTable):
    """``key: row``: as above, and ``before`` takes one equal row away (O14)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.debts: list[tuple[date, Row]] = []  # taken away before they were there

    def merge(self, day: date, events: list[Event]) -> None:
        self._learn_types(day, events)
        for event in events:
            if event.op == "t" and event.position is not None:
                self.removals.append(Removal(day, None, (event.position, ()), event))
        completed = []
        for before, _ in self._completed_pairs(day):
            if before not in completed:
                completed.append(before)
        ready = [event for event in sorted(events, key=kafka_order) if event.half != "before"]
        fresh = [event for event in [*ready, *completed] if self._is_new(day, event)]
        truncates = [r.order for r in self._truncates(day)]
        self.debts = [(d, row) for d, row in self.debts if self._in_window(d, day)]
        for event in sorted(fresh, key=lambda e: self._order(day, e)):
            order = self._order(day, event)
            if event.op in ("u", "d") and event.half != "after":
                self._take(day, self._values(event, event.before, day), order)
            if event.writes:
                after = dict(event.after or {})
                for column, raw in (event.before or {}).items():
                    if self.placeholder(after.get(column)):
                        after[column] = raw
                self._add(Row(self._values(event, after, day), order))
        self.state = [row for row in self.state if not any(t > row.order for t in truncates)]

    def _take(self, day: date, values: dict[str, Any], order: Order) -> None:
        shown = self._shown(values)
        for row in sorted(self.state, key=lambda r: r.order, reverse=True):
            if row.order < order and self._shown(row.values) == shown:
                self.state = [other for other in self.state if other is not row]
                return
        self.debts.append((day, Row(values, order)))

    def _add(self, row: Row) -> None:
        for debt in self.debts:
            if debt[1].order > row.order and self._shown(debt[1].values) == self._shown(row.values):
                self.debts = [other for other in self.debts if other is not debt]
                return
        self.state.append(row)


def table_state(
    name: str, config: dict[str, Any], source: dict[str, Any], events: dict[date, list[Event]]
) -> Table:
    kinds: dict[Any, type[Table]] = {"none": AppendedTable, "row": MultisetTable}
    key = config.get("key")
    kind = kinds.get(key, KeyedTable) if isinstance(key, str) else KeyedTable
    return kind(name, config, source, events)
