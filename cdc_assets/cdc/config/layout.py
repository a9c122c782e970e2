"""How the files of a table are laid out: its partitions and its order, by Iceberg's transforms."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

_TIMES = ("years", "months", "days", "hours")
_NUMBERED = ("bucket", "truncate")
_CALL = re.compile(r"(?P<name>[a-z]+)\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<column>.+?)\s*\)")
_EXPECTED = (
    "a column, or one of years, months, days, hours (<column>), bucket(<n>, <column>), "
    "truncate(<n>, <column>)"
)


@dataclass(frozen=True)
class Transform:
    """A column, or what one of Iceberg's transforms makes of it; `identity` is the column."""

    name: str
    column: str
    number: int | None = None

    @classmethod
    def parse(cls, text: str) -> Transform:
        """``days(created_at)``, ``bucket(16, id)``, ``truncate(4, name)``, ``region``.

        A name may stand in backticks.

        Raises:
            ValueError: it is none of them.
        """
        called = _CALL.fullmatch(text.strip())
        if called is None:
            return cls("identity", _name(text))
        name, number = called["name"], called["number"]
        is_right = name in (_TIMES if number is None else _NUMBERED)
        if not is_right or (number is not None and not 1 <= int(number) <= 10_000):
            raise ValueError(f"got {text!r}; expected {_EXPECTED}, n from 1 to 10,000")
        return cls(name, _name(called["column"]), None if number is None else int(number))

    @property
    def is_time(self) -> bool:
        """Is it a part of a time?"""
        return self.name in _TIMES

    def __str__(self) -> str:
        if self.name == "identity":
            return self.column
        number = "" if self.number is None else f"{self.number}, "
        return f"{self.name}({number}{self.column})"


@dataclass(frozen=True)
class SortField:
    """What rows are sorted by within a file."""

    term: Transform
    is_descending: bool = False

    @classmethod
    def parse(cls, text: str) -> SortField:
        """A transform, behind it `desc` where the highest value stands first.

        Raises:
            ValueError: it is none.
        """
        words = text.strip().rsplit(None, 1)
        if len(words) == 2 and words[1].lower() in ("asc", "desc"):
            return cls(Transform.parse(words[0]), words[1].lower() == "desc")
        return cls(Transform.parse(text))

    def __str__(self) -> str:
        return f"{self.term}{' desc' * self.is_descending}"


@dataclass(frozen=True)
class Layout:
    """The partitions of a table and the order of its rows within a file."""

    partitions: Sequence[Transform] = ()
    order: Sequence[SortField] = ()

    @property
    def columns(self) -> list[str]:
        """The columns that it needs, each once."""
        terms = [*self.partitions, *(field.term for field in self.order)]
        return list(dict.fromkeys(term.column for term in terms))

    def renamed(self, name: Callable[[str], str]) -> Layout:
        """The same by other names of columns."""

        def term(of: Transform) -> Transform:
            return replace(of, column=name(of.column))

        return Layout(
            tuple(map(term, self.partitions)),
            tuple(replace(field, term=term(field.term)) for field in self.order),
        )


def _name(text: str) -> str:
    """A column's name, without backticks.

    Raises:
        ValueError: it is empty, or the parentheses of something else.
    """
    text = text.strip()
    if len(text) > 2 and text[0] == text[-1] == "`":
        return text[1:-1].replace("``", "`")
    if not text or any(sign in text for sign in "`(),"):
        raise ValueError(f"got {text!r}; expected {_EXPECTED}")
    return text
