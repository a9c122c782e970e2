"""Output of the command line: rows as a table, CSV or JSON lines, and the progress of a run.

Texts may come from data: none is interpreted as markup, and control characters are shown, not sent
to the terminal (:func:`cdc_assets.cdc.names.printable`).
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from cdc_assets.cdc.names import printable
from cdc_assets.cli import imports
from cdc_assets.cli.terminal import Interrupted

if TYPE_CHECKING:
    from typing_extensions import Self

    from cdc_assets.orchestration.execution.progress import Step

_CELL = 40  # characters of a value in a table
_SAY_SECONDS = 30  # between two lines of a step's progress without a terminal

Row = Mapping[str, Any]


# --- rows


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Row],
    form: str,
    out: IO[str] | None = None,
    fold: bool = True,
    whole: Sequence[str] = (),
    raw: bool = False,
) -> int:
    """Print rows as `form`, table, json or csv; returns their number. See :func:`print_table`.

    In CSV, texts that a spreadsheet would run as formulas get an apostrophe in front unless `raw`,
    and a terminal gets only printable characters.
    """
    out = out or sys.stdout
    if form == "json":
        return _count(out.write(_json_line(row)) for row in rows)
    if form == "csv":

        def line(values: Iterable[Any]) -> str:
            cells = [value if raw else _no_formula(value) for value in values]
            if out.isatty():
                cells = [printable(cell) if isinstance(cell, str) else cell for cell in cells]
            return _csv_line(cells)

        out.write(line(columns))
        return _count(out.write(line([row.get(c) for c in columns])) for row in rows)
    listed = list(rows)
    print_table(columns, listed, out, fold, whole)
    return len(listed)


def _count(done: Iterable[object]) -> int:
    return sum(1 for _ in done)


def _json_line(row: Row) -> str:
    text = json.dumps(row, ensure_ascii=False)
    # Unprintable characters as JSON escapes: the same text.
    return (text if text.isprintable() else _UNPRINTABLE.sub(_escaped, text)) + "\n"


_UNPRINTABLE = re.compile(r"[^ -~]")


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return character if character.isprintable() else json.dumps(character)[1:-1]


# The begin of what a spreadsheet runs, unless it is a number.
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


def _no_formula(value: Any) -> Any:
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def _csv_line(values: Iterable[Any]) -> str:
    return ",".join(_csv_field(value) for value in values) + "\r\n"


def _csv_field(value: Any) -> str:
    """RFC 4180; null is an empty field, an empty text is ``""``."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else _as_text(value)
    if text and not any(char in text for char in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    return printable(_as_text(value))


def _is_numeric(values: Sequence[Any]) -> bool:
    """Whether all values but nulls are numbers, and one is."""
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in known
    )


def print_table(
    columns: Sequence[str],
    rows: Sequence[Row],
    out: IO[str] | None = None,
    fold: bool = True,
    whole: Sequence[str] = (),
) -> None:
    """A Rich table on a terminal, plain columns if piped.

    Without `fold` a table too wide for the terminal becomes a block per row. A terminal gets long
    values cut, except those of the columns in `whole` in a block.
    """
    console = Console(file=out or sys.stdout, highlight=False)
    cells = [[_shown(row.get(c)) for c in columns] for row in rows]
    right = [_is_numeric([row.get(c) for row in rows]) for c in columns]
    if not console.is_terminal:
        _print_plain(columns, cells, right, out or sys.stdout)
        return
    uncut, cells = cells, [[_cut(cell) for cell in row] for row in cells]
    is_wide = _width(columns, uncut if whole else cells) > console.width
    if is_wide and not fold:
        blocks = [
            [u if n in whole else c for n, u, c in zip(columns, us, cs, strict=True)]
            for us, cs in zip(uncut, cells, strict=True)
        ]
        _print_blocks(columns, blocks, console)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, is_right in zip(columns, right, strict=True):
        table.add_column(
            Text(_shown(name)),
            justify="right" if is_right else "left",
            overflow="fold",
            no_wrap=is_right or not is_wide,
        )
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _cut(text: str) -> str:
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def _width(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    return sum(
        2 + max(len(c) for c in (name, *(row[i] for row in cells)))
        for i, name in enumerate(columns)
    )


def _print_plain(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool], out: IO[str]
) -> None:
    lines = [[_shown(c) for c in columns], *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        padded = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, right, strict=True)
        )
        out.write("  ".join(padded).rstrip() + "\n")


def room(columns: Sequence[str], out: IO[str] | None = None) -> int | None:
    """Characters per line for a value in a block; None without a terminal."""
    console = Console(file=out or sys.stdout)
    return _room(columns, console) if console.is_terminal else None


def _room(columns: Sequence[str], console: Console) -> int:
    return max(20, console.width - max(len(c) for c in columns) - 4)


def _print_blocks(columns: Sequence[str], cells: Sequence[Sequence[str]], console: Console) -> None:
    width = max(len(c) for c in columns)
    for number, row in enumerate(cells, 1):
        console.print(Text(f"row {number}", style="bold"))
        for name, cell in zip(columns, row, strict=True):
            first, *rest = textwrap.wrap(cell, _room(columns, console)) or [""]
            for label, line in [(_shown(name), first), *(("", line) for line in rest)]:
                console.print(Text(f"  {label:<{width}}  {line}"), no_wrap=True, crop=True)


# --- progress


class Activity:
    """Shows what a command does: a live line on a terminal, else a line each time."""

    def __init__(self, text: str, out: IO[str] | None = None) -> None:
        self.console = Console(file=out or sys.stderr, highlight=False)
        self._text = text
        self._spinner = Spinner("dots")
        # `paused` lets commands write to stdout.
        self._live = Live(
            self._spinner,
            console=self.console,
            transient=True,
            refresh_per_second=10,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self.say(self._text)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Show what the command does now."""
        if self.console.is_terminal:
            self.show(text)
        else:
            self.line(text)

    def show(self, text: str) -> None:
        """As :meth:`say`, but on a terminal only, for what changes often."""
        if self.console.is_terminal:
            self._spinner.update(text=Text(_shown(text)))
            self._live.start(refresh=True)

    def line(self, text: str) -> None:
        """A line that stays, above the live one."""
        self.console.print(Text(_shown(text)), soft_wrap=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the live line while stdout writes to the same terminal."""
        self._live.stop()
        try:
            yield
        finally:
            if self.console.is_terminal:
                self._live.start(refresh=True)


class Progress(Activity):
    """Shows the running steps of a run, and a line for each finished one."""

    def __init__(self, text: str, out: IO[str] | None = None) -> None:
        super().__init__(text, out)
        self._lock = Lock()
        self._under_way: dict[str, str] = {}  # text of each running step
        self._said: dict[str, float] = {}  # time of its last line

    def __call__(self, news: Step | str) -> None:
        """Show a step that runs (no seconds) or has ended, or a sentence."""
        with self._lock:
            if isinstance(news, str):
                self.say(news)
            else:
                self._show_step(news)

    def _show_step(self, step: Step) -> None:
        if step.seconds is None:
            self._under_way[step.name] = step.text
            self._say_now_and_then(step)
        else:
            self._under_way.pop(step.name, None)
            self._said.pop(step.name, None)
            self.line(
                f"{step.day:<21}  {f'{step.source}.{step.stage}':<32}  "
                f"{step.seconds:>6.1f} s  {step.text}"
            )
        known = [f"{name}: {text}" for name, text in self._under_way.items()]
        self.show(", ".join(text.removesuffix(": …") for text in known) or "…")

    def _say_now_and_then(self, step: Step) -> None:
        """Print the progress of a long step if there is no terminal."""
        now = time.monotonic()
        last = self._said.setdefault(step.name, now)
        if not self.console.is_terminal and now - last >= _SAY_SECONDS:
            self._said[step.name] = now
            self.line(f"{step.day:<21}  {f'{step.source}.{step.stage}':<32}  {step.text}")


@contextmanager
def own_stderr(log: Path | None) -> Iterator[IO[str]]:
    """Redirect stderr to `log`; yields the terminal for the command's own output.

    It redirects descriptor 2, which the JVM inherits. Without `log` nothing is redirected.

    Raises:
        Interrupted: Ctrl-C in a process of our own, which is about to end.
    """
    if log is None:
        yield sys.stderr
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    saved = os.dup(2)
    # Private: Spark logs its settings, Java its errors.
    file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.dup2(file, 2)
    os.close(file)
    terminal = os.fdopen(os.dup(saved), "w", encoding="utf-8", errors="replace", buffering=1)
    is_left = False
    try:
        yield terminal
    except KeyboardInterrupt:
        is_left = imports.is_own_process
        if is_left:
            raise Interrupted(terminal) from None
        raise
    finally:
        if not is_left:
            terminal.close()
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
