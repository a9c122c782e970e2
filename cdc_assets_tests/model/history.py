"""The versions of a key's rows: every event that has landed, each between those that it met."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any

from cdc_assets_tests.model.days import Order
from cdc_assets_tests.model.fold import Held

CLOSED_BY = {"depart": "k", "delete": "d", "truncate": "t"}


@dataclass
class Step:
    """What an event left at a key."""

    order: Order
    day: date
    kind: str
    op: str
    held: Held | None
    time: int | None  # of the source, ms
    row_op: str = ""  # of the event that made the row
    was_known: bool = False  # when the key was last looked at


@dataclass
class Version:
    values: dict[str, Any]
    valid_from: int | None
    valid_to: int | None
    op: str
    closed_by: str | None


@dataclass
class Timeline:
    """The steps of a key in their order."""

    key: dict[str, Any]
    steps: list[Step] = field(default_factory=list)

    def settle(self, since: date, is_same: Any) -> None:
        """Leave out what changed nothing, but removals since a day: they may yet end something.

        Args:
            since: the day.
            is_same: whether two rows are equal.
        """
        kept: list[Step] = []
        top: Held | None = None
        latest: int | None = None
        for step in self.steps:
            says_nothing = step.was_known and step.held is top
            if step.time is not None and not says_nothing:
                latest = step.time if latest is None else max(latest, step.time)
            if step.held is not top:
                is_news = not (
                    step.kind == "read"
                    and top is not None
                    and step.held is not None
                    and is_same(top, step.held)
                )
                top = step.held
                if is_news:
                    step.time = latest
                    kept.append(step)
                else:
                    kept[-1].held = top
            elif step.held is None and step.day >= since:
                step.was_known = True
                kept.append(step)
        self.steps = kept

    def versions(self) -> list[Version]:
        found: list[Version] = []
        top: Held | None = None
        for step in self.steps:
            if step.held is top:
                continue
            if top is not None:
                found[-1].valid_to = step.time
                found[-1].closed_by = CLOSED_BY.get(step.kind, "u")
            if step.held is not None:
                found.append(Version(step.held.values, step.time, None, step.row_op, None))
            top = step.held
        return found
