"""Markdown for Dagster's pages, with values from data.

Dagster renders Markdown in the reader's browser: an image in a value would be fetched there, a link
could be followed. Every value goes through :func:`literal`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

# Words and numbers: they have no meaning in Markdown.
_PLAIN = re.compile(r"[^\W_]+(?: [^\W_]+)*|-?[0-9]+(?:\.[0-9]+)?|•••")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
_CELL, _LINE = 80, 300


class Markdown(str):
    """A text that is shown as Markdown."""

    __slots__ = ()


def literal(value: Any, width: int = _CELL) -> str:
    """A value on one line, cut to a width, without markup, links or images.

    Everything but plain words and numbers becomes code spans, the only place where GitHub's
    Markdown finds neither markup nor addresses (`www.…`, e-mail). Control characters, line breaks
    and marks of direction become a space.
    """
    text = _UNSEEN.sub(" ", "" if value is None else str(value))
    text = text if len(text) <= width else text[: width - 1] + "…"
    if not text.strip() or _PLAIN.fullmatch(text):
        return text.strip()
    # A bar would end a table's cell, even inside a code span.
    return "&#124;".join(_code(part) if part else "" for part in text.split("|"))


def plain(text: str) -> str:
    """The text shown by Markdown of :func:`literal` values."""
    shown = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", _inner, text)
    return shown.replace("&#124;", "|")


def _inner(span: re.Match[str]) -> str:
    text = span[2]
    is_padded = text.startswith(" ") and text.endswith(" ") and text.strip()
    return text[1:-1] if is_padded else text


# Prose without the signs of links, images and HTML.
_PROSE = re.compile(r"[\w\s.,;:()'%/+&?=°…-]*")
_ADDRESS = re.compile(r"www\.|://", re.I)


def sentence(text: str) -> str:
    """A text on one line: prose is unchanged, other text becomes code as in :func:`literal`."""
    text = _UNSEEN.sub(" ", text)
    is_prose = _PROSE.fullmatch(text) and not _ADDRESS.search(text)
    return text.strip() if is_prose else literal(text, max(len(text), 1))


def _code(text: str) -> str:
    fence = "`" * (_longest_ticks(text) + 1)
    # Markdown strips one space at each end, unless there are only spaces.
    pad = " " if text.strip() and (text[0] in " `" or text[-1] in " `") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _longest_ticks(text: str) -> int:
    return max((len(ticks) for ticks in re.findall("`+", text)), default=0)


def table(names: Sequence[str], rows: Iterable[Sequence[Any]], width: int = _CELL) -> Markdown:
    """A table of literal names and cells, cut to a width."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    cells = [[literal(value, width) for value in row] for row in rows]
    head = [literal(name, width) for name in names]
    return Markdown("\n".join([line(head), line(["---"] * len(names)), *map(line, cells)]))


def bullets(lines: Iterable[str]) -> Markdown:
    """A list of literal lines."""
    return Markdown("\n".join(f"- {literal(line, _LINE)}" for line in lines))


def sql(statement: str) -> Markdown:
    """A code block with a statement, ready to be copied."""
    return _block(statement, "sql")


def shell(command: str) -> Markdown:
    """A code block with a command on one line, ready to be copied."""
    return _block(_UNSEEN.sub(" ", command), "sh")


def _block(text: str, language: str) -> Markdown:
    fence = "`" * max(3, _longest_ticks(text) + 1)
    return Markdown(f"{fence}{language}\n{text}\n{fence}")
