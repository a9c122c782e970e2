"""Tables with a key: what each key holds at the end of a day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from itertools import chain
from typing import Any, Literal

from cdc_assets_tests.model.copies import copies, elements_of, met_elements
from cdc_assets_tests.model.days import Order, Removal, Row, Table
from cdc_assets_tests.model.documents import LEAF, key_text
from cdc_assets_tests.model.fold import UNKNOWN, Held, OldRow, Queue
from cdc_assets_tests.model.history import Step, Timeline
from cdc_assets_tests.model.positions import LATE_CHECKED, lane_of
from cdc_assets_tests.model.records import Event, KeyColumnsError, KeyTypeError
from cdc_assets_tests.model.snapshots import Ended, landed_since
from cdc_assets_tests.model.streams import landed_before, place_in_day, row_order
from cdc_assets_tests.model.transactions import OpenTransactions
from cdc_assets_tests.model.values import DoesNotFitError, hold, read_wire

NO_KEY: dict[str, Any] = {}
# What an event does to a key: a new row comes, a row changes, a row goes to another key or away.
Kind = Literal["read", "arrive", "update", "depart", "delete", "truncate"]
REMOVING = ("depart", "delete", "truncate")
NOTHING_KNOWN = Held({}, set(), {})


@dataclass
class Change:
    """What an event does to one key; a truncate does it to all."""

    kind: Kind
    event: Event
    day: date  # that of the event, or of the half that completes it (W3)
    key: dict[str, Any]
    order: Order | None = None
    has_before: bool = True  # its `before` is of this key
    is_unread: bool = False  # no event: a snapshot did not read the row (R7)


@dataclass
class Entry:
    """One thing in the history of a key."""

    order: Order
    row: Row | None = None  # as it was at the end of an earlier day
    change: Change | None = None  # None without row: something removed on an earlier day
    leaf: str | None = None  # of a truncate: it touches the rows of its own leaf (R8)

    @property
    def removes(self) -> bool:
        """Nothing stands at the key after it."""
        return self.row is None and (self.change is None or self.change.kind in REMOVING)


@dataclass
class Fold:
    """A key, and what is still to be read of its history."""

    queue: Queue
    entries: list[Entry]
    start: date  # the first day whose events are read
    order: Order = ((), ())
    done: int = 0

    @property
    def next_change(self) -> Change | None:
        return self.entries[self.done].change

    @property
    def is_done(self) -> bool:
        return self.done == len(self.entries)

    def below(self, order: Order) -> list[Entry]:
        """What stands before a place in the history of the key, the last first."""
        return [entry for entry in reversed(self.entries) if entry.order < order]


@dataclass
class Day:
    """What a day is made of."""

    date: date
    changes: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))
    truncates: list[Change] = field(default_factory=list)
    # arriving event → the departures of the row that it brings, the likeliest first
    departures: dict[int, list[Event]] = field(default_factory=lambda: defaultdict(list))
    folds: dict[str, Fold] = field(default_factory=dict)
    # first day → key, None for all → what stood before it
    earlier: dict[date, dict[str | None, list[Entry]]] = field(default_factory=dict)


class KeyedTable(Table):
    """A table with a key."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state: list[Row] = []
        self.key_columns: set[frozenset[str]] = set()
        self.landed: dict[date, list[Event]] = {}
        self.ends: dict[date, list[Row]] = {}  # the rows at the end of each day
        self.open = OpenTransactions(self.source, self.events)
        self.departed: dict[int, Held | None] = {}  # departure → the row that it took
        self.scattered: dict[date, int] = {}
        self.timelines: list[Timeline] = []
        self.identities: dict[int, str] = {}  # of key documents, with the types of the day
        self.unread: list[Change] = []  # what snapshots did not read

    def rows(self) -> list[dict[str, Any]]:
        ordered = sorted(self.state, key=lambda row: key_text(row.key))
        return [self._shown(row.values) for row in ordered]

    def _held(self) -> Iterator[dict[str, Any]]:
        """Each once: a row may stand in several places."""
        rows = chain(self.state, *self.ends.values())
        held = (step.held for timeline in self.timelines for step in timeline.steps)
        all_held = chain(held, self.departed.values())
        both = chain((row.values for row in rows), (h.values for h in all_held if h is not None))
        return iter({id(values): values for values in both}.values())

    def look_on(self, day: date, events: list[Event]) -> None:
        self._folded(day, events)

    def merge(self, day: date, events: list[Event]) -> None:
        self.key_columns |= {frozenset(event.key) for event in events if event.key}
        if len(self.key_columns) > 1:
            columns = " and ".join(sorted(str(sorted(names)) for names in self.key_columns))
            raise KeyColumnsError("keys differ", table=self.name, column=columns, day=day)
        self._learn_types(day, events)
        folds = self._folded(day, events)
        self.state = [
            Row(self._known(held.values), fold.order, held.key, held.source_ms)
            for fold in folds
            for held in fold.queue.rows[-1:]
        ]
        ended = self.snapshots.end_on(day)
        if ended is not None and self.replaces:
            self._remove_unread(day, ended)
        self.ends[day] = self.state
        if self.config.get("history"):
            self._keep_history(day)

    def _remove_unread(self, day: date, ended: Ended) -> None:
        """R7: rows that a snapshot did not read, and of which nothing landed since, are gone."""
        first, last = ended
        since = [e for d, of in self.landed.items() for e in of if d >= first.day]
        since = [event for event in since if landed_since(first, event)]
        keys = [key for e in since for key in (e.key, e.old_key, e.new_key) if key is not None]
        read = {self._identity(key) for key in keys}
        recent = [r for r in self.removals if r.key is None and self._is_recent(r.day, day)]
        for row in list(self.state):
            # A read without a time of its own says nothing of when the snapshot was.
            is_later = bool(first.source_ts_ms) and (row.source_ms or 0) >= first.source_ts_ms
            if self._identity(row.key) in read or is_later:
                continue
            highest = max([row.order[0], *(r.order[0] for r in recent)])
            order = highest, (day, 2**62, last.record.offset or 0)
            gone = replace(
                last, op="d", key=row.key, before=None, after=None, old_key=None, new_key=None,
                position=None, tx=None, is_snapshot=False,
            )  # fmt: skip
            change = Change("delete", gone, day, row.key, order, is_unread=True)
            self.unread.append(change)
            self.removals.append(Removal(day, row.key, order, gone))
            identity = self._identity(row.key)
            self.of_day.changes[identity].append(change)
            self.of_day.folds[identity].entries.append(Entry(order, change=change))
            self.state = [other for other in self.state if other is not row]

    # -- versions ----------------------------------------------------------------------------------

    def versions(self) -> list[dict[str, Any]]:
        """Each version of each row: its values, and when, by which op and how it began and ended.

        The row is shown as the table's is; times are in ms.
        """
        return [
            {
                **self._shown(self._known(version.values)),
                "_cdc_valid_from": version.valid_from,
                "_cdc_valid_to": version.valid_to,
                "_cdc_op": version.op,
                "_cdc_closed_by": version.closed_by,
            }
            for timeline in self.timelines
            for version in timeline.versions()
        ]

    def _keep_history(self, day: date) -> None:
        """Put the events of the day between those that landed before: each at its place, however
        late it comes; at the end stands what the table has."""
        of_day, departed = self.of_day, dict(self.departed)
        rows = {self._identity(row.key): row for row in self.state}
        known = {self._identity(timeline.key): timeline for timeline in self.timelines}
        for identity, fold in of_day.folds.items():
            entries = [e for e in fold.entries if e.change is not None]
            if not entries:
                continue
            key = next((c.key for c in of_day.changes.get(identity, [])), None)
            timeline = known.setdefault(identity, Timeline(key or rows[identity].key))
            since = day - timedelta(days=self.late_days)
            timeline.settle(since, self._are_same)
            steps = [step for step in timeline.steps if step.day < fold.start]
            steps += self._removals_before(identity, fold.start, steps, of_day)
            timeline.steps = self._in_order(steps, entries, of_day)
            self._end_as_table(timeline, rows.get(identity), day)
            timeline.settle(since, self._are_same)
        self.timelines = list(known.values())
        self.departed = departed

    def _removals_before(
        self, identity: str, start: date, steps: list[Step], of_day: Day
    ) -> list[Step]:
        """What was removed lately and is no step yet, as it may still end one: truncates while
        the key had no row, and what landed before the table's first day."""
        known = {(step.day, step.order) for step in steps}
        own = of_day.changes.get(identity, [])
        removals = [c for c in own if c.day < min(self.ends) and c.kind in REMOVING]
        return [
            Step(c.order, c.day, c.kind, "d", None, self._time_of(c.event), was_known=True)
            for c in (*of_day.truncates, *removals)
            if c.order is not None
            and self._in_window(c.day, start)
            and (c.kind != "truncate" or c.event.leaf is None)
            and (c.day, c.order) not in known
        ]

    @staticmethod
    def _time_of(event: Event) -> int | None:
        return event.landed_ms if event.source_ts_ms is None else event.source_ts_ms

    def _in_order(self, steps: list[Step], entries: list[Entry], of_day: Day) -> list[Step]:
        queue, done = Queue(self.types), []
        steps = sorted(steps, key=lambda step: step.order)
        for one in entries:  # what has no place of its own comes behind all that landed before
            if one.change is not None and one.change.event.position is None and steps:
                one.order = (max(one.order[0], steps[-1].order[0]), one.order[1])
        every: list[Step | Entry] = [*steps, *entries]
        ops = {id(step.held): step.row_op for step in steps}
        for one in sorted(every, key=lambda e: (e.order, isinstance(e, Entry))):
            if isinstance(one, Step):
                queue.set(one.held)
                done.append(one)
                continue
            change = one.change
            assert change is not None
            event = change.event
            if change.kind == "truncate":
                _truncate(queue, event.leaf)
            else:
                before = {id(row) for row in queue.rows}
                self._apply(queue, change, of_day)
                ops |= {id(r): event.op or "" for r in queue.rows if id(r) not in before}
            held = queue.newest
            time = self._time_of(event)
            step = Step(one.order, change.day, change.kind, event.op or "", held, time)
            step.row_op = ops.get(id(held), "")
            done.append(step)
        return done

    def _end_as_table(self, timeline: Timeline, row: Row | None, day: date) -> None:
        """An event that is older than what removed its row more than `late_days` ago brings it
        back in the table."""
        held = timeline.steps[-1].held
        if row is None and held is None:
            return
        own = None if row is None else Held(row.values, set(row.values), row.key)
        if own is not None and held is not None and self._are_same(held, own):
            return
        kind, op = ("read", "r") if own else ("delete", "d")
        order = (timeline.steps[-1].order[0], (date.max, 0, 0))
        timeline.steps.append(Step(order, day, kind, op, own, None, op))

    def _are_same(self, one: Held, other: Held) -> bool:
        shown = [self._shown(self._known(held.values)) for held in (one, other)]
        return repr(shown[0]) == repr(shown[1])

    @staticmethod
    def _known(values: dict[str, Any]) -> dict[str, Any]:
        return {c: None if value is UNKNOWN else value for c, value in values.items()}

    def scattered_keys(self, day: date) -> int:
        """O8: keys with events of the day that tie and stand in several partitions or topics."""
        return self.scattered[day]

    # -- what the events do to keys ----------------------------------------------------------------

    def _folded(self, day: date, events: list[Event]) -> list[Fold]:
        self.landed[day] = events
        self.identities = {}
        of_day = self.of_day = Day(day)
        self._collect(of_day)
        self._match_departures(of_day)
        self.scattered[day] = 0
        stood = [self._identity(row.key) for row in self.state]
        starts = {i: self._start(i, of_day) for i in {*of_day.changes, *stood}}
        of_day.folds = {i: self._fold(i, start, of_day) for i, start in sorted(starts.items())}
        folds = list(of_day.folds.values())
        self.removals += [
            Removal(day, None, change.order or ((), ()), change.event)
            for change in of_day.truncates
            if change.day == day
        ]
        self._advance(folds, of_day)
        return folds

    def _collect(self, of_day: Day) -> None:
        """The changes of every day up to this one, by key."""
        everything = [event for landed in self.landed.values() for event in landed]
        deletes: dict[str, list[Event]] = defaultdict(list)
        for event in everything:
            if event.removes and event.position is not None and event.key is not None:
                deletes[self._identity(event.key)].append(event)
        for event in sorted(everything, key=lambda e: (e.day, row_order(e))):
            for change in self._changes_of(event, deletes):
                self._add(of_day, change)
        for day in self.landed:
            for change in self._first_halves(day):
                self._add(of_day, change)
        for change in self.unread:
            of_day.changes[self._identity(change.key)].append(change)

    def _add(self, of_day: Day, change: Change) -> None:
        event = change.event
        if event.position is not None:
            *higher, place = event.full_position
            is_left = change.kind == "depart" and event.writes
            change.order = (*higher, place - 1 if is_left else place), ()
        if change.kind == "truncate":
            of_day.truncates.append(change)
        else:
            is_written = event.writes and change.key is event.key and event.day == of_day.date
            identity = self._identity(change.key, of_row_on=of_day.date if is_written else None)
            of_day.changes[identity].append(change)

    def _changes_of(self, event: Event, deletes: dict[str, list[Event]]) -> Iterator[Change]:
        if event.op == "t":  # D12
            yield Change("truncate", event, event.day, {})
        elif event.key is None:
            return
        elif event.removes:
            departs = any(name == "__debezium.newkey" for name, _ in event.record.headers)
            yield Change("depart" if departs else "delete", event, event.day, event.key)
        elif event.writes:
            old_key = self._old_key(event)
            if old_key is not None and not event.is_old_key_sent:  # D10
                yield Change("depart", event, event.day, old_key)
            elif old_key is not None and not self._has_delete(
                event, deletes[self._identity(old_key)]
            ):  # D9
                yield Change("depart", event, event.day, old_key, has_before=False)
            is_new = event.op == "c" or old_key is not None
            kind: Kind = "arrive" if is_new else "update"
            yield Change("read" if event.is_snapshot else kind, event, event.day, event.key)

    def _old_key(self, event: Event) -> dict[str, Any] | None:
        old, own = event.old_key, self._identity(event.key or NO_KEY)
        return None if old is None or self._identity(old) == own else old

    def _has_delete(self, event: Event, deletes: list[Event]) -> bool:
        """Did the `d` of a key change land, which Debezium sends before its `c`?"""
        return event.position is not None and any(
            self._is_recent(other.day, event.day) and elements_of(other) == elements_of(event)
            for other in deletes
        )

    def _first_halves(self, day: date) -> Iterator[Change]:
        """W3: a pair whose key changed takes the old row away."""
        seen = set()
        for before, after in self._completed_pairs(day):
            if before.key is None or after.key is None or id(before) in seen:
                continue
            if self._identity(before.key) != self._identity(after.key):
                seen.add(id(before))
                yield Change("depart", before, day, before.key)

    def _identity(self, key: dict[str, Any], *, of_row_on: date | None = None) -> str:
        """The key as text, its values as the table's columns hold them (D5)."""
        if id(key) in self.identities and of_row_on is None:
            return self.identities[id(key)]
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
        self.identities[id(key)] = key_text(held)
        return self.identities[id(key)]

    # -- key changes: which row departed -----------------------------------------------------------

    def _match_departures(self, of_day: Day) -> None:
        """R2: the n-th arrival at a key from another brings the n-th row that departed there."""
        departed: dict[Any, list[Change]] = defaultdict(list)
        arrived: dict[Any, list[Change]] = defaultdict(list)
        for changes in of_day.changes.values():
            recent = [c for c in changes if self._is_recent(c.day, of_day.date)]
            for change in self._without_copies(recent, [], []):
                event = change.event
                if change.kind == "arrive" and event.old_key is not None:
                    if event.is_old_key_sent and change.order is not None:
                        arrived[self._way(event, event.old_key, event.key)].append(change)
                    of_day.departures[id(event)].append(event)  # D10; the `d` of D9 is lost
                elif change.kind == "depart" and event.removes and event.new_key is not None:
                    departed[self._way(event, event.key, event.new_key)].append(change)
                elif change.kind == "depart" and event.half == "before":
                    for after in self.halves:
                        if after.half == "after" and self._are_halves(event, after):
                            of_day.departures[id(after)].append(event)
        for way, arrivals in arrived.items():
            departures = self._ordered(departed[way])
            for n, arrival in enumerate(self._ordered(arrivals)):
                if departures:  # what arrives once more left once more
                    departure = departures[min(n, len(departures) - 1)]
                    of_day.departures[id(arrival.event)].insert(0, departure.event)

    def _way(self, event: Event, old: Any, new: Any) -> Any:
        return self._identity(old), self._identity(new), elements_of(event)

    @staticmethod
    def _ordered(changes: Iterable[Change]) -> list[Change]:
        return sorted(changes, key=lambda change: change.order or ((), ()))

    # -- the history of a key ----------------------------------------------------------------------

    def _start(self, identity: str, of_day: Day) -> date:
        """The day from whose beginning the key is folded: no transaction of its events from there
        on began earlier."""
        lowest = min(self.ends, default=of_day.date)
        start, before = of_day.date, None
        while start != before:
            before = start
            for change in of_day.changes.get(identity, []):
                event = change.event
                if event.day >= before and self._is_late_checked(event) and event.tx is not None:
                    start = min(start, self.open.first_day(event))
            start = max(start, lowest)
        return start

    def _fold(self, identity: str, start: date, of_day: Day) -> Fold:
        entries = self._earlier_entries(identity, start, of_day)
        own = of_day.changes.get(identity, [])
        changes = [change for change in own if change.day >= start]
        truncates = [change for change in of_day.truncates if change.day >= start]
        met = [entry.order[0] for entry in entries]
        self._put_reads([*changes, *truncates], met)
        window = [c for c in own if self._in_window(c.day, start) and not c.is_unread]
        sent = [change for change in changes if not change.is_unread]
        kept = self._without_copies(sent, window, met)
        kept += [change for change in changes if change.is_unread]
        self.removals += [
            Removal(of_day.date, change.key, change.order or ((), ()), change.event)
            for change in kept
            if change.kind in ("depart", "delete") and change.day == of_day.date
        ]
        self._count_scattered(kept, of_day)
        entries += [Entry(c.order or ((), ()), change=c) for c in (*kept, *truncates)]
        # At equal order the row beats the event it came from, landed again.
        entries.sort(key=lambda entry: (entry.order, entry.row is not None))
        return Fold(Queue(self.types), entries, start)

    def _earlier_entries(self, identity: str, start: date, of_day: Day) -> list[Entry]:
        """The row of the day before, and what was removed lately (O12)."""
        if start not in of_day.earlier:
            of_day.earlier[start] = self._earlier_by_key(start)
        by_key = of_day.earlier[start]
        return [*by_key[identity], *by_key[None]]

    def _earlier_by_key(self, start: date) -> dict[str | None, list[Entry]]:
        by_key: dict[str | None, list[Entry]] = defaultdict(list)
        for row in self.ends.get(start - timedelta(days=1), []):
            by_key[self._identity(row.key)].append(Entry(row.order, row=row))
        for removal in self._recent_removals(start):
            identity = None if removal.key is None else self._identity(removal.key)
            leaf = removal.event.leaf if removal.key is None else None
            by_key[identity].append(Entry(removal.order, leaf=leaf))
        return by_key

    def _put_reads(self, changes: list[Change], met: list[tuple[int, ...]]) -> None:
        """O6: directly after the highest event of the key, or truncate, that landed before."""
        placed = [change for change in changes if change.event.position is not None]
        for change in changes:
            event = change.event
            if event.position is not None or change.is_unread:
                continue
            before = [
                other.order[0]
                for other in placed
                if other.order is not None and landed_before(other.event, event)
            ]
            highest = max([*met, *before], default=())
            change.order = highest, (event.day, *place_in_day(event))

    def _without_copies(
        self, changes: list[Change], earlier: list[Change], met: list[tuple[int, ...]]
    ) -> list[Change]:
        def meets(event: Event) -> bool:
            return any(elements_of(event) == met_elements(order, event) for order in met)

        found = copies([c.event for c in changes], [c.event for c in earlier], meets)
        return [change for change in changes if id(change.event) not in found]

    def _count_scattered(self, changes: list[Change], of_day: Day) -> None:
        lanes: dict[Any, set[Any]] = defaultdict(set)
        for change in changes:
            if change.event.position is not None:
                lanes[change.event.full_position[:-3]].add(lane_of(change.event.record))
        self.scattered[of_day.date] += any(len(of_tied) > 1 for of_tied in lanes.values())

    # -- reading it --------------------------------------------------------------------------------

    def _advance(self, folds: list[Fold], of_day: Day) -> None:
        """Reads all histories to their ends; an arrival waits until its row has departed."""
        changes = [entry.change for fold in folds for entry in fold.entries if entry.change]
        pending = {id(change.event) for change in changes if change.kind == "depart"}

        def waits(fold: Fold) -> bool:
            change = fold.next_change
            if change is None or change.kind not in ("arrive", "update"):
                return False
            return any(id(d) in pending for d in of_day.departures.get(id(change.event), []))

        while left := [fold for fold in folds if not fold.is_done]:
            ready = [fold for fold in left if not waits(fold)] or left[:1]
            for fold in ready:
                change = fold.next_change
                self._read(fold, of_day)
                if change is not None and change.kind == "depart":
                    pending.discard(id(change.event))

    def _read(self, fold: Fold, of_day: Day) -> None:
        entry = fold.entries[fold.done]
        fold.done += 1
        fold.order = entry.order
        if entry.row is not None:
            row = entry.row
            held = Held(row.values, set(row.values), row.key, source_ms=row.source_ms)
            fold.queue.set(held)
        elif entry.change is None or entry.change.kind == "truncate":
            leaf = entry.leaf if entry.change is None else entry.change.event.leaf
            _truncate(fold.queue, leaf)
        else:
            self._apply(fold.queue, entry.change, of_day)

    def _apply(self, queue: Queue, change: Change, of_day: Day) -> None:
        event = change.event

        def build(taken: Held | None) -> Held:
            return self._built(change, taken, of_day)

        departs = change.kind == "depart"
        if change.kind == "read":
            queue.replace(build)
        elif not self._is_late_checked(event):
            if departs or change.kind == "delete":
                self.departed[id(event)] = queue.remove()
            else:
                queue.replace(build)
        else:
            queue.begin(event.tx)
            old = self._old_row(event) if change.has_before else OldRow()
            if change.kind == "arrive":
                queue.arrive(build)
            elif change.kind == "update":
                queue.update(old, build, set(event.after or {}) - set(event.key or {}))
            else:
                self.departed[id(event)] = queue.leave(old, departs=departs)

    def _is_late_checked(self, event: Event) -> bool:
        """O16: can two rows hold its key for a moment?"""
        of_debezium = self.source.get("format", "debezium") in ("debezium", "debezium-flat")
        return of_debezium and event.connector in LATE_CHECKED

    def _is_vouched(self, event: Event) -> bool:
        """What its `before` has is of the old row (D8)."""
        is_full = self.config.get("replica_identity") == "full"
        return self._is_late_checked(event) and (event.connector != "postgresql" or is_full)

    def _old_row(self, event: Event) -> OldRow:
        if event.before is None:
            return OldRow()
        return OldRow(
            values={column: self._old_value(event, column) for column in event.before},
            columns=set(event.before),
            is_vouched=self._is_vouched(event),
            null_is_any=event.connector == "sqlserver",
        )

    def _old_value(self, event: Event, column: str) -> Any:
        """A value of `before` as its column holds it, UNKNOWN where it was not sent."""
        raw = (event.before or {}).get(column)
        column_type, wire = self.types.get(column), event.wires.get(column)
        if column not in (event.before or {}) or self.placeholder(raw):
            return UNKNOWN
        if raw is None or column_type is None:
            return None
        try:
            return hold(read_wire(wire, raw) if wire else raw, column_type)
        except DoesNotFitError:
            return None

    # -- rows --------------------------------------------------------------------------------------

    def _built(self, change: Change, taken: Held | None, of_day: Day) -> Held:
        event, values, unsent = change.event, {}, set()
        for column in self.types:
            value = self._carried(event, column, of_day.date)
            if value is UNKNOWN:
                unsent.add(column)
            values[column] = (
                self._filled(change, column, taken, of_day) if value is UNKNOWN else value
            )
        columns = set(event.image())
        if self.keep_missing and taken is not None:
            columns |= taken.columns
        return Held(values, columns, event.key or {}, unsent, event.source_ts_ms)

    def _carried(self, event: Event, column: str, day: date) -> Any:
        """The value that the event itself brings, UNKNOWN where it says "unchanged"."""
        image = event.image()
        if column in (event.key or {}):  # D5
            return self._key_value(event, column)
        if column not in image:
            return UNKNOWN if self.keep_missing else None  # R1
        if self.placeholder(image[column]):
            return UNKNOWN  # R2
        return self._typed(event, column, image[column], day)

    def _key_value(self, event: Event, column: str) -> Any:
        """A key column holds the key, whatever the image says."""
        try:
            return hold((event.key or {})[column], self.types[column])
        except DoesNotFitError:
            return None

    def _filled(self, change: Change, column: str, taken: Held | None, of_day: Day) -> Any:
        """R2: the value of the row that departed, else of the row that the event took."""
        value = self._said_value(change, column, of_day)
        if value is UNKNOWN and taken is not None:
            value = taken.values.get(column, UNKNOWN)
        return value

    def _said_value(self, change: Change, column: str, of_day: Day) -> Any:
        """What an event that did not send a value says of it: by its old image, by its old key."""
        value = self._departed_value(change, column, of_day)
        if value is UNKNOWN and self._is_vouched(change.event):
            value = self._old_value(change.event, column)
        return value

    def _departed_value(self, change: Change, column: str, of_day: Day) -> Any:
        """R2: after a key change, what the row had at its old key."""
        event, start = change.event, of_day.folds[self._identity(change.key)].start
        for departure in of_day.departures.get(id(event), []):
            value: Any = UNKNOWN
            if departure.day >= start and self._is_vouched(departure):
                value = self._old_value(departure, column)
            if value is UNKNOWN and departure.day >= start and self._is_late_checked(event):
                held = self.departed.get(id(departure), NOTHING_KNOWN)
                if held is None:
                    return UNKNOWN  # no row left
                value = held.values.get(column, UNKNOWN)
            if value is UNKNOWN:
                old_key = event.old_key if departure is event else departure.key
                value = self._last_known(old_key or {}, column, change, of_day)
            if value is not UNKNOWN:
                return value
        return UNKNOWN

    def _last_known(self, key: dict[str, Any], column: str, mover: Change, of_day: Day) -> Any:
        """Down the history of a key to the first value, from where the key change `mover` took the
        row away, if that is known; another removal ends it."""
        fold = of_day.folds.get(self._identity(key))
        below = fold.below(mover.order or ((), ())) if fold else []
        left = [n for n, e in enumerate(below) if e.removes and self._is_part_of(e, mover)]
        for entry in below[min(left, default=0) :]:
            change = entry.change
            if entry.row is not None:
                return entry.row.values.get(column)  # null: its table got the column later
            if entry.removes or change is None:
                if self._is_part_of(entry, mover):
                    continue
                return UNKNOWN
            value = self._carried(change.event, column, of_day.date)
            if value is UNKNOWN:
                value = self._said_value(change, column, of_day)
            if value is not UNKNOWN:
                return value
        return UNKNOWN

    @staticmethod
    def _is_part_of(removal: Entry, mover: Change) -> bool:
        """Does the old key's delete, its tombstone or its BEFOR half belong to this key change?"""
        event, change = mover.event, removal.change
        if change is not None and change.event is event:
            return True
        if event.position is None or (change is not None and change.kind == "truncate"):
            return False
        # Epoch and ordering elements.
        shared = len(event.full_position) - (3 if event.half_element is None else 4)
        is_known = any(event.full_position[1:shared])
        return is_known and removal.order[0][:shared] == event.full_position[:shared]


def _truncate(queue: Queue, leaf: str | None) -> None:
    newest = queue.newest
    if leaf is None or (newest is not None and newest.values.get(LEAF) == leaf):
        queue.set(None)
