"""Tables without a key (O14)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from itertools import chain
from typing import Any

from cdc_assets_tests.model.days import Order, Removal, Row, Table
from cdc_assets_tests.model.documents import LEAF, json_text
from cdc_assets_tests.model.records import Event
from cdc_assets_tests.model.snapshots import landed_since
from cdc_assets_tests.model.streams import landed_before, place_in_day, row_order


class AppendedTable(Table):
    """``key: none``: rows are appended, known by their identity; a truncate empties it (O14)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state: list[Row] = []
        self.seen: list[tuple[date, Any]] = []

    def rows(self) -> list[dict[str, Any]]:
        return [self._shown(row.values) for row in self.state]

    def _held(self) -> Iterator[dict[str, Any]]:
        return (row.values for row in self.state)

    def look_on(self, day: date, events: list[Event]) -> None:
        for event in events:
            self.seen.append((day, self._row_identity(event)))
            if event.op == "t" and event.position is not None:
                self.removals.append(Removal(day, None, (event.full_position, ()), event))

    def merge(self, day: date, events: list[Event]) -> None:
        self._learn_types(day, events)
        ordered = sorted(events, key=row_order)
        for event in ordered:
            if event.op == "t" and event.position is not None:
                self.removals.append(Removal(day, None, (event.full_position, ()), event))
        for event in ordered:
            if self._is_new(day, event) and event.writes:
                values = self._values(event, event.after, day)
                self.state.append(Row(values, self._order(day, event), event=event))
        self._truncate(day)
        ended = self.snapshots.end_on(day)
        if ended is not None and self.replaces:  # R7: this snapshot, and what came after it
            self.state = [r for r in self.state if r.event and landed_since(ended[0], r.event)]

    def _truncate(self, day: date) -> None:
        """Rows below a truncate go; of a leaf, those that came from there (R8)."""
        self.state = [
            row
            for row in self.state
            if not any(
                t.order > row.order and t.event.leaf in (None, row.values.get(LEAF))
                for t in self._truncates(day)
            )
        ]

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
            return row_order(event)
        elements = (event.own_elements, json_text(event.identity))
        return elements, json_text([event.before, event.after]), event.ordinal

    def _values(self, event: Event, image: dict[str, Any] | None, day: date) -> dict[str, Any]:
        values = {}
        for column in self.types:
            raw = (image or {}).get(column)
            values[column] = None if self.placeholder(raw) else self._typed(event, column, raw, day)
        return values

    def _order(self, day: date, event: Event) -> Order:
        if event.position is not None:
            return event.full_position, ()
        before = [r.order[0] for r in self._truncates(day) if landed_before(r.event, event)]
        return max(before, default=()), (event.day, *place_in_day(event))


class MultisetTable(AppendedTable):
    """``key: row``: as above, and ``before`` takes one equal row away (O14)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.debts: list[tuple[date, Row]] = []  # taken away before they were there

    def _held(self) -> Iterator[dict[str, Any]]:
        return chain(super()._held(), (row.values for _, row in self.debts))

    def merge(self, day: date, events: list[Event]) -> None:
        self._learn_types(day, events)
        for event in events:
            if event.op == "t" and event.position is not None:
                self.removals.append(Removal(day, None, (event.full_position, ()), event))
        completed = []
        for before, _ in self._completed_pairs(day):
            if before not in completed:
                completed.append(before)
        ready = [event for event in sorted(events, key=row_order) if event.half != "before"]
        fresh = [event for event in [*ready, *completed] if self._is_new(day, event)]
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
        self._truncate(day)

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
