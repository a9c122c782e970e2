"""What the SQL of values is built of."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from cdc_assets.cdc.sqltext import Sql, case, let, literal


def once(value: Sql, body: Callable[[Sql], Sql]) -> Sql:
    """``body(value)`` with the value computed once, however often the body names it.

    Steps that each name the one before several times would grow exponentially.
    """
    name = lambda_variable(value)
    return let(name, value, body(name))


def each(items: Sql, body: Callable[[Sql], Sql]) -> Sql:
    """The array of ``body(item)`` for each item of an array."""
    name = lambda_variable(items)
    return f"transform({items}, {name} -> {body(name)})"


def lambda_variable(text: Sql) -> Sql:
    """A lambda's variable, of another name than those of the lambdas around it."""
    return f"v{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def cast(value: Sql, kind: str) -> Sql:
    """The value as a type; an error where it does not fit."""
    return f"CAST({value} AS {kind})"


def try_cast(value: Sql, kind: str) -> Sql:
    """The value as a type; null where it does not fit."""
    return f"try_cast({value} AS {kind})"


def matches(text: Sql, pattern: str) -> Sql:
    """Has the text a part of this pattern?"""
    return f"({text} RLIKE {literal(pattern)})"


def replaced(text: Sql, pattern: str, by: str) -> Sql:
    """The text with each part of this pattern replaced."""
    return f"regexp_replace({text}, {literal(pattern)}, {literal(by)})"


def extracted(text: Sql, pattern: str) -> Sql:
    """What the pattern's first group has of the text; an empty text where it is not found."""
    return f"regexp_extract({text}, {literal(pattern)}, 1)"


def null_of(kind: str) -> Sql:
    """Null of a type."""
    return cast("NULL", kind)


def from_base64(text: Sql) -> Sql:
    """Bytes of padded base64; Spark alone would read the text NaN as two bytes."""
    return case((f"length({text}) % 4 = 0", f"try_to_binary({text}, 'base64')"))
