"""Checks from outside this package, evaluated with those of a stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from cdc_assets.cdc.findings import Check, Finding
from cdc_assets.cdc.lake.catalog import Lake

TABLES = "tables"  # every table of state
Find = Callable[[Lake, str, str, Sequence[date]], Mapping[date, Finding]]


@dataclass(frozen=True)
class AddedCheck:
    """A check and what finds it: given lake, source, table and days, a finding for each day."""

    check: Check
    find: Find


_ADDED: dict[str, list[AddedCheck]] = {}


def add_check(table: str, check: Check, find: Find) -> None:
    """Add a check to a table of every source, before Dagster's definitions are built.

    Args:
        table: one of a source's own tables, such as `changes`, or `tables` for those of state.
        check: its name, its healthy condition and its severity.
        find: called with the lake, the source, the table and the days of a run that are examined.

    Raises:
        ValueError: the table has an added check of that name.
    """
    added = _ADDED.setdefault(table, [])
    if any(known.check.name == check.name for known in added):
        raise ValueError(f"{table} has an added check {check.name}")
    added.append(AddedCheck(check, find))


def remove_check(table: str, name: str) -> None:
    """Take an added check away again."""
    _ADDED[table] = [added for added in _ADDED.get(table, ()) if added.check.name != name]


def added_checks(table: str) -> Sequence[AddedCheck]:
    """The checks that were added to a table, in their order."""
    return tuple(_ADDED.get(table, ()))
