"""Entries of `columns:` that contradict what messages or the lake have (FORMATS R3)."""

from __future__ import annotations

import shlex
from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import date

from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.configured import cannot_become
from cdc_assets.cdc.values.spark_types import evolution


@dataclass(frozen=True)
class Contradiction:
    """An entry that can't be, and what to do."""

    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found}. {self.remedy}"


def with_messages(
    source: str,
    table: str,
    said: types.ColumnTypes,
    configured: types.ColumnTypes,
    keys: Container[str],
) -> list[Contradiction]:
    """The entries whose type a message's can't become.

    Args:
        source: the source's name.
        table: the table's.
        said: what messages have.
        configured: what cdc.yaml has, by the names in messages.
        keys: the columns that are in the key.
    """
    found = []
    for name in sorted(said.keys() & configured.keys()):
        is_key = name in keys
        if can_be := cannot_become(said[name], configured[name], is_key):
            found.append(
                Contradiction(
                    f"sources.{source}.tables.{table}.columns: {name} is {configured[name].spark}, "
                    f"but messages have {said[name].spark}, which can't become that"
                    f"{' in a key' * is_key}",
                    f"Leave the entry out, or write one of {', '.join(can_be)}",
                )
            )
    return found


def with_lake(
    source: str,
    table: str,
    existing: Mapping[str, str],
    wanted: Mapping[str, str],
    start: date,
    day: date,
    keys: Container[str],
) -> list[Contradiction]:
    """The entries that columns of the lake contradict.

    `string` is none: the column becomes one, with its values (R5); but in a key (R6).

    Args:
        source: the source's name.
        table: the table's.
        existing: the lake's columns.
        wanted: what cdc.yaml has, by the lake's names.
        start: the table's first day.
        day: the last one that it has, or is to have.
        keys: the columns that are in the key, by the lake's names.
    """
    return [
        Contradiction(
            f"sources.{source}.tables.{table}.columns: {name} is {kind}, but the column in the "
            f"lake is {existing[name]}",
            f"Make the table anew from its first day: {command_to_make(source, table, start, day)}",
        )
        for name, kind in wanted.items()
        if name in existing
        and evolution(existing[name], kind) is None
        and (kind != "string" or name in keys)
    ]


def command_to_make(source: str, table: str, start: date, day: date) -> str:
    """The command that makes a table anew."""
    named = f"--source {shlex.quote(source)} --table {shlex.quote(table)}"
    return f"cdc-assets run {named} --from {start} --to {day}"
