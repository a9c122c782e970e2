"""Where one JSON value stands, and how it is read as a type of Spark's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cdc_assets.cdc.names import json_path
from cdc_assets.cdc.sqltext import Sql, get, is_text, literal, members_of


class At(Protocol):
    """Where one JSON value stands."""

    def __call__(self, kind: str) -> Sql:
        """The value as a Spark type; null where it is absent or does not fit."""

    @property
    def text(self) -> Sql:
        """A string itself, of other values their JSON; null where it is absent, or JSON null."""

    @property
    def is_string(self) -> Sql:
        """Is it a JSON string?"""

    @property
    def is_double(self) -> Sql:
        """Is it a number that VARIANT holds as a double?"""


@dataclass(frozen=True)
class InVariant:
    """A value that stands in a VARIANT."""

    read: Callable[[str], Sql]

    def __call__(self, kind: str) -> Sql:
        return self.read(kind)

    @property
    def text(self) -> Sql:
        return f"coalesce({self('string')}, nullif(to_json({self('variant')}), 'null'))"

    @property
    def is_string(self) -> Sql:
        return is_text(self("variant"))

    @property
    def is_double(self) -> Sql:
        return f"schema_of_variant({self('variant')}) = 'DOUBLE'"


def member(row: Sql, name: str, kind: str = "variant") -> Sql:
    """A named member of a VARIANT object, whatever characters the name has."""
    path = json_path(name)
    if path is not None:
        return get(row, path, kind)
    # Names with both quotes have no path; a map lookup needs none.
    found = f"try_element_at({members_of(row)}, {literal(name)})"
    return found if kind == "variant" else get(found, "$", kind)


def of_member(row: Sql, name: str) -> At:
    """Reads the member `name` of a VARIANT row."""
    return InVariant(lambda kind: member(row, name, kind))


def itself(value: Sql) -> At:
    """Reads a VARIANT."""
    return InVariant(lambda kind: get(value, "$", kind))
