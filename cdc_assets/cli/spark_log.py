"""Spark's log of a command, in a temporary file."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_assets.cdc.errors import CdcError
from cdc_assets.cli import output

if TYPE_CHECKING:
    from cdc_assets.cdc.config import Config


class SparkLog:
    """The file of Spark's log, None for the terminal; removed at the end unless kept."""

    def __init__(self, file: Path | None) -> None:
        self.file, self.is_kept = file, False
        self.config: Config | None = None  # once read; some errors name its settings

    def keep(self) -> None:
        """Keep the file, as an error names it."""
        self.is_kept = True


@contextmanager
def quiet(verbose: bool, text: str) -> Iterator[tuple[output.Activity, SparkLog]]:
    """Show what the command does; Spark's log goes to a file unless `verbose`.

    A Java exception becomes one line on the terminal; the log has its stack trace.
    """
    folder = None if verbose else Path(tempfile.mkdtemp(prefix="cdc-log-"))
    log = SparkLog(folder / "spark.log" if folder else None)
    try:
        with output.own_stderr(log.file) as err, output.Activity(text, err) as activity:
            try:
                yield activity, log
            except Exception as error:
                from cdc_assets.cdc.java_errors import JAVA_ERRORS
                from cdc_assets.cdc.lake.errors import one_line

                if not isinstance(error, JAVA_ERRORS):
                    raise
                traceback.print_exc()
                log.keep()
                at = f". Spark's log: {log.file}" if log.file else ""
                raise CdcError(f"{one_line(error, log.config)}{at}") from error
    finally:
        if folder and not log.is_kept:
            shutil.rmtree(folder, ignore_errors=True)
