"""Ctrl-C in a command."""

from __future__ import annotations

from typing import IO


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while stderr goes to a log: `terminal` takes the command's last line.

    Threads that were left behind write to stderr until the process ends, so it stays in the log.
    """

    def __init__(self, terminal: IO[str]) -> None:
        super().__init__()
        self.terminal = terminal
