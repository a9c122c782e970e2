"""Markdown for Dagster's pages, of values that come from data.

Dagster renders Markdown in the browser of whoever looks at it: an image in a row would be fetched
from there, a link would lead there. Every value goes through :func:`literal`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

# Words and numbers: nothing in them means anything to Markdown.
_PLAIN = re.compile(r"[^\W_]+(?: [^\W_]+)*|-?[0-9]+(?:\.[0-9]+)?|•••")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
_CELL, _LINE = 80, 300


class Markdown(str):
    """A text that is shown as Markdown."""

    __slots__ = ()


def literal(value: Any, width: int = _CELL) -> str:
    """A value as it is, on one line, cut to a width; no markup, no link, no image comes of it.

    All but plain words and numbers becomes code spans. In these alone neither markup nor the
    addresses that GitHub's Markdown makes links of (`www.…`, e-mail) are looked for.
    Control characters, line breaks and marks of direction become a space.
    """
    text = _UNSEEN.sub(" ", "" if value is None else str(value))
    text = text if len(text) <= width else text[: width - 1] + "…"
    if not text.strip() or _PLAIN.fullmatch(text):
        return text.strip()
    # A bar would end a table's cell, also inside a code span.
    return "&#124;".join(_code(part) if part else "" for part in text.split("|"))


def plain(text: str) -> str:
    """Markdown of :func:`literal` values as the text that it shows."""
    shown = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", _inner, text)
    return shown.replace("&#124;", "|")


def _inner(span: re.Match[str]) -> str:
    text = span[2]
    is_padded = text.startswith(" ") and text.endswith(" ") and text.strip()
    return text[1:-1] if is_padded else text


# Signs of prose that make neither a link, an image nor HTML.
_PROSE = re.compile(r"[\w\s.,;:()'%/+&?=°…-]*")
_ADDRESS = re.compile(r"www\.|://", re.I)


def sentence(text: str) -> str:
    """A text as it is, on one line: prose stays prose, all else becomes code as in `literal`."""
    text = _UNSEEN.sub(" ", text)
    is_prose = _PROSE.fullmatch(text) and not _ADDRESS.search(text)
    return text.strip() if is_prose else literal(text, max(len(text), 1))


def _code(text: str) -> str:
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    # One space at each end belongs to the fence, unless there are only spaces.
    pad = " " if text.strip() and (text[0] in " `" or text[-1] in " `") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def table(names: Sequence[str], rows: Iterable[Sequence[Any]], width: int = _CELL) -> Markdown:
    """A table; names and cells are shown as they are, cut to a width."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    cells = [[literal(value, width) for value in row] for row in rows]
    head = [literal(name, width) for name in names]
    return Markdown("\n".join([line(head), line(["---"] * len(names)), *map(line, cells)]))


def bullets(lines: Iterable[str]) -> Markdown:
    """A list, a line each, shown as it is."""
    return Markdown("\n".join(f"- {literal(line, _LINE)}" for line in lines))


def sql(statement: str) -> Markdown:
    """A statement in a block of its own, ready to be copied."""
    longest = max((len(ticks) for ticks in re.findall("`+", statement)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markdown(f"{fence}sql\n{statement}\n{fence}")
