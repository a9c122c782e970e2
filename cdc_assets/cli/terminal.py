"""What goes to the terminal: control characters and the like are shown there, not sent."""

from __future__ import annotations

from typing import IO, Any

import typer

from cdc_assets.cdc.names import printable


def echo(text: str, err: bool = False, file: IO[Any] | None = None) -> None:
    """Print lines; names and values in them may come from data."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=err, file=file)
