"""Transactions that a day's end cuts (O16; DESIGN section 5, step 3)."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from cdc_assets_tests.model.positions import lane_of
from cdc_assets_tests.model.records import Event
from cdc_assets_tests.model.streams import row_order

Lane = tuple[str, int]


class OpenTransactions:
    """Per day: the transactions that may go on the next day, those of the last event and of the
    highest position in each topic and partition."""

    def __init__(self, source: dict[str, Any], events: dict[date, list[Event]]) -> None:
        self.late_days = source.get("late_days", 3)
        self.days: dict[date, set[str | None]] = {}
        for day, landed in events.items():
            lanes: dict[Lane, list[Event]] = {}
            for event in landed:
                if event.destination == "changes" and event.position is not None:
                    lanes.setdefault(lane_of(event.record), []).append(event)
            listed = (self._listed(own) for own in lanes.values())
            self.days[day] = set[str | None]().union(*listed)

    @staticmethod
    def _listed(events: list[Event]) -> set[str | None]:
        last = max(events, key=row_order)
        highest = max(events, key=lambda e: (e.epoch, e.position))
        return {last.tx, highest.tx}

    def first_day(self, event: Event) -> date:
        """The first day that holds the event's transaction.

        Not the day before alone says so: a redelivery can fill that one.
        """
        first = event.day
        while True:
            holding = [
                day
                for day, listed in self.days.items()
                if first - timedelta(days=self.late_days) <= day < first and event.tx in listed
            ]
            if not holding:
                return first
            first = min(holding)
