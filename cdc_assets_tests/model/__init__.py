"""A plain-Python reference of FORMATS.md: slow and obvious, the referee of the Spark code.

Three questions about a source and what has landed, each a function of the whole history:

- ``classify``: where does each record go, as what, with which key and position?
- ``tables``: what does each configured table hold at the end of each day?
- ``lag``: how late were the changes of each day?

Only the standard library, nothing from the package: what both get wrong, they get wrong twice.
Rule ids (D1, O4, R2 …) are those of FORMATS.md; "section 4" is DESIGN.md's.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from cdc_assets_tests.model.appended import AppendedTable, MultisetTable
from cdc_assets_tests.model.days import Table
from cdc_assets_tests.model.documents import (
    date_of,
    deep_recursion,
    json_text,
    parse_json,
    table_configs,
)
from cdc_assets_tests.model.envelopes import read_events
from cdc_assets_tests.model.keyed import KeyedTable
from cdc_assets_tests.model.lag_rows import lag_of_day
from cdc_assets_tests.model.records import (
    Classified,
    DatabasesError,
    Event,
    InferredTypeError,
    KeyColumnsError,
    KeyTypeError,
    Landed,
    Record,
    TableError,
)
from cdc_assets_tests.model.values import DoesNotFitError, hold, read_wire, wire_type

__all__ = [
    "Classified",
    "DoesNotFitError",
    "InferredTypeError",
    "KeyColumnsError",
    "KeyTypeError",
    "Landed",
    "Record",
    "TableError",
    "classify",
    "deep_recursion",
    "histories",
    "hold",
    "json_text",
    "lag",
    "parse_json",
    "read_wire",
    "tables",
    "wire_type",
]


def classify(source: dict[str, Any], landed: Landed) -> dict[date, list[Classified]]:
    """One Classified for each landed record, in the order in which the day's records landed."""
    with deep_recursion():
        return {day: [e.public() for e in events] for day, events in read_events(source, landed)}


def tables(source: dict[str, Any], landed: Landed) -> dict[date, dict[str, list[dict[str, Any]]]]:
    """Day → configured table → its rows at the end of that day, own columns only.

    Every day from the first to the last that landed is there, in order. A table is absent before
    its ``start_date``. Rows of a table are in the order of their keys' text.

    Raises: InferredTypeError (R3), KeyTypeError, KeyColumnsError (R6).
    """
    result: dict[date, dict[str, list[dict[str, Any]]]] = {}
    for day, name, table in _days_of_tables(source, landed):
        of_day = result.setdefault(day, {})
        if table is not None:
            of_day[name] = table.rows()
    return result


def histories(
    source: dict[str, Any], landed: Landed
) -> dict[date, dict[str, list[dict[str, Any]]]]:
    """Day → configured table with a history → the versions of its rows by the end of that day."""
    result: dict[date, dict[str, list[dict[str, Any]]]] = {}
    for day, name, table in _days_of_tables(source, landed):
        if isinstance(table, KeyedTable) and table.config.get("history"):
            result.setdefault(day, {})[name] = table.versions()
    return result


def _days_of_tables(
    source: dict[str, Any], landed: Landed
) -> Iterator[tuple[date, str, Table | None]]:
    """Each day of each table as it then stands; None before its ``start_date``."""
    if not landed:
        return
    with deep_recursion():
        events = dict(read_events(source, landed))
        first, last = min(landed), max(landed)
        days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        for name, config in table_configs(source).items():
            state = _table(name, config, source, events)
            start = date_of(config.get("start_date")) or first
            database: str | None = None
            for day in days:
                sent = [
                    e
                    for e in events.get(day, [])
                    if e.destination == "changes" and e.table_name == name and not e.is_sent_again
                ]
                if day >= start:
                    database = database or _database_of(name, source, events, day)
                own = [e for e in sent if database is None or e.database in (None, database)]
                state.place(own)
                if day < start:
                    state.look_on(day, own)
                else:
                    state.merge(day, own)
                yield day, name, state if day >= start else None


def _database_of(
    name: str, source: dict[str, Any], events: dict[date, list[Event]], day: date
) -> str | None:
    """D4: that of a table's first events."""
    since = day - timedelta(days=source.get("late_days", 3))
    found = {
        event.database
        for then, of_day in events.items()
        for event in of_day
        if since <= then <= day and event.destination == "changes" and event.table_name == name
    } - {None}
    if len(found) > 1:
        raise DatabasesError(f"{sorted(map(str, found))}", table=name, column="", day=day)
    return next(iter(found), None)


def _table(
    name: str, config: dict[str, Any], source: dict[str, Any], events: dict[date, list[Event]]
) -> Table:
    kinds: dict[Any, type[Table]] = {"none": AppendedTable, "row": MultisetTable}
    key = config.get("key")
    kind = kinds.get(key, KeyedTable) if isinstance(key, str) else KeyedTable
    return kind(name, config, source, events)


def lag(source: dict[str, Any], landed: Landed) -> dict[date, list[dict[str, Any]]]:
    """Day → rows of the ``lag`` table: for each table and kind one a source hour, one for the day.

    ``hour`` is the start of the hour in ms UTC, None for the whole day; snapshot reads count in the
    whole day alone. A group in which all is excluded has count 0 and no numbers. ``complete`` is
    always True: the model has no clock.
    """
    with deep_recursion():
        return {day: lag_of_day(day, events) for day, events in read_events(source, landed)}
