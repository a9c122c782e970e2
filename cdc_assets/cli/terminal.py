"""Lines on the terminal, and Ctrl-C."""

from __future__ import annotations

from typing import IO, Any

import typer

from cdc_assets.cdc.names import printable


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while stderr goes to a log: `terminal` takes the command's last line.

    Threads left behind write to stderr until the process ends, so it stays redirected.
    """

    def __init__(self, terminal: IO[str]) -> None:
        super().__init__()
        self.terminal = terminal


def echo(text: str, err: bool = False, file: IO[Any] | None = None) -> None:
    """Print lines; control characters, which data may hold, are shown and not sent."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=err, file=file)
