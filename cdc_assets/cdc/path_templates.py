"""Templates of file paths, such as ``{topic}/{yyyy}-{MM}-{dd}/**/{topic}+{partition}+{offset}*``.

A name in braces is read from the path, ``*`` stands for any text within a name, ``**`` for folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Protocol

_VARIABLES = {
    "topic": "[^/]+",
    "partition": r"\d{1,9}",
    "offset": r"\d{1,18}",
    "yyyy": r"\d{4}",
    "MM": r"\d{2}",
    "dd": r"\d{2}",
    "HH": r"\d{2}",
    "mm": r"\d{2}",
    "ss": r"\d{2}",
}
_DAY = ("yyyy", "MM", "dd")
_TOKEN = re.compile(r"\{([^{}]*)\}|(\*)|([^{}*]+)|([{}])")
_ANY_FOLDERS = "**"


@dataclass(frozen=True)
class PathPlace:
    """What a path says; None for what its template does not name."""

    topic: str | None
    partition: int | None
    offset: int | None
    day: date | None


class Folders(Protocol):
    """A tree of files, as far as it is asked for."""

    def names(self, folder: str) -> Iterator[str]:
        """The folders in a folder; none where there is no such folder."""

    def files(self, folder: str, deep: bool) -> Iterator[str]:
        """The paths of the files in a folder, and below if `deep`."""


@dataclass(frozen=True)
class PathTemplate:
    """A template of paths below a root.

    Raises:
        ValueError: braces that do not match, or a name that is none of the known ones.
    """

    text: str

    def __post_init__(self) -> None:
        for token in _TOKEN.finditer(self.text):
            name = token[1]
            if token[4] or (name is not None and name not in _VARIABLES):
                known = ", ".join(f"{{{v}}}" for v in _VARIABLES)
                raise ValueError(f"got {token[0]!r}; expected {known}, * or **")
        if not self.text or self.text.startswith("/") or self.parts[-1] in ("", _ANY_FOLDERS):
            raise ValueError("expected the path of a file below the folder, such as {topic}/*.json")
        if any("**" in part and part != _ANY_FOLDERS for part in self.parts):
            raise ValueError("expected ** between two /, for any folders")

    @cached_property
    def parts(self) -> list[str]:
        """The names between the slashes."""
        return self.text.split("/")

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names in braces."""
        return frozenset(name for name, *_ in _TOKEN.findall(self.text) if name)

    @property
    def has_day(self) -> bool:
        """Whether paths say a day."""
        return self.variables.issuperset(_DAY)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        seen: set[str] = set()
        texts = []
        for part in self.parts:
            folders = part == _ANY_FOLDERS
            texts.append("(?:[^/]+/)*" if folders else f"{_pattern(part, seen)}/")
        return re.compile("".join(texts).removesuffix("/"), re.ASCII)

    def match(self, path: str) -> PathPlace | None:
        """What a path says; None for a path of another shape."""
        found = self._pattern.fullmatch(path)
        if found is None:
            return None
        said = found.groupdict()
        day = None
        if self.has_day:
            try:
                day = date(*(int(said[name]) for name in _DAY))
            except ValueError:
                return None
        partition, offset = (int(said[n]) if n in said else None for n in ("partition", "offset"))
        return PathPlace(said.get("topic"), partition, offset, day)

    def paths(self, folders: Folders, day: date | None) -> Iterator[str]:
        """The paths of files that may be of a day, or of all; only their folders are listed."""
        yield from self._below(folders, "", 0, day)

    def _below(self, folders: Folders, folder: str, at: int, day: date | None) -> Iterator[str]:
        part, last = self.parts[at], at == len(self.parts) - 1
        if day is None or part == _ANY_FOLDERS or last:
            yield from folders.files(folder, deep=not last)
            return
        known = _of_day(part, day)
        if _is_literal(known):
            yield from self._below(folders, folder + known + "/", at + 1, day)
            return
        pattern = re.compile(_pattern(known, set()), re.ASCII)
        for name in folders.names(folder):
            if pattern.fullmatch(name):
                yield from self._below(folders, folder + name + "/", at + 1, day)


def _of_day(part: str, day: date) -> str:
    for name, text in zip(_DAY, day.isoformat().split("-"), strict=True):
        part = part.replace(f"{{{name}}}", text)
    return part


def _is_literal(part: str) -> bool:
    return "{" not in part and "*" not in part


def _pattern(part: str, seen: set[str]) -> str:
    """A regular expression of a name; a variable that was seen before has the same text again."""
    texts = []
    for name, star, text, _ in _TOKEN.findall(part):
        if name:
            again = name in seen
            texts.append(f"(?P={name})" if again else f"(?P<{name}>{_VARIABLES[name]})")
            seen.add(name)
        else:
            texts.append("[^/]*" if star else re.escape(text))
    return "".join(texts)
