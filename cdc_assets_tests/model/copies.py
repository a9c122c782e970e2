"""Which events of a key are copies of a redelivery (O15)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from cdc_assets_tests.model.positions import KAFKA_TIME, compared_elements
from cdc_assets_tests.model.records import Event
from cdc_assets_tests.model.streams import row_order

Elements = tuple[Any, ...]


def elements_of(event: Event) -> Elements:
    return compared_elements(event.full_position, event.basis)


def met_elements(order: tuple[int, ...], event: Event) -> Elements:
    """Those of a row or removal that stands in the event's way, as the event's are compared."""
    return compared_elements(order, event.basis)


def may_be_copy(event: Event) -> bool:
    """Something of the source tells it from others."""
    if event.position is None:
        return False
    return bool(event.identity) or (event.basis != KAFKA_TIME and any(event.elements))


def copies(
    events: Iterable[Event], earlier: Iterable[Event], meets: Callable[[Event], bool]
) -> set[int]:
    """The ids of those of `events` that are copies of others, or of `earlier` ones.

    `events` and `earlier` are of one key; `meets` says whether an event ties with what stands
    there, so that earlier days are looked at.
    """
    groups, earlier_groups = _grouped(events), _grouped(earlier)
    found: set[int] = set()
    for elements, group in groups.items():
        found |= _landed_twice(group)
        pool = [event for event in group if may_be_copy(event)]
        own = {id(event) for event in pool}
        if pool and meets(pool[0]):
            pool += [event for event in earlier_groups[elements] if may_be_copy(event)]
        if _identifies(pool):
            found |= own & _all_but_first(pool)
    return found


def _grouped(events: Iterable[Event]) -> dict[Elements, list[Event]]:
    groups: dict[Elements, list[Event]] = defaultdict(list)
    for event in events:
        if event.position is not None:
            groups[(event.record.topic, *elements_of(event))].append(event)
    return groups


def _identifies(events: list[Event]) -> bool:
    contents: dict[str, set[str]] = defaultdict(set)
    for event in events:
        contents[event.identity_text].add(event.content)
    return all(len(different) == 1 for different in contents.values())


def _all_but_first(events: list[Event]) -> set[int]:
    seen: set[str] = set()
    found = set()
    for event in sorted(events, key=lambda e: (e.day, row_order(e))):
        identity = event.identity_text
        if identity in seen:
            found.add(id(event))
        seen.add(identity)
    return found


def _landed_twice(events: list[Event]) -> set[int]:
    """The same record, landed once more: it counts once at its offset."""
    seen: set[Any] = set()
    found = set()
    for event in sorted(events, key=lambda e: (e.day, row_order(e))):
        place = (event.full_position, event.content)
        if place in seen:
            found.add(id(event))
        seen.add(place)
    return found
