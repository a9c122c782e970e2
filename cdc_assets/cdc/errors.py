"""Exceptions of cdc-assets.

Every message says what happened and where, what was got and expected, and what to do next. The
fields are attributes of the exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date

from cdc_assets.cdc.redaction import without_logins


def first_line(error: BaseException) -> str:
    """The first line of an error, at most 300 characters; its type if the message is empty."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    # The message of a LookupError is only the missing key.
    line = f"{type(error).__name__}: {line}" if isinstance(error, LookupError) else line
    return without_logins(line)


class CdcError(Exception):
    """Base class of all errors that cdc-assets raises."""


class ConfigError(CdcError):
    """Raised when cdc.yaml is wrong, or contradicts what is already in the lake.

    `faults` holds one readable line per fault, each with its path inside the file.
    """

    def __init__(self, faults: Sequence[str], path: str | None = None) -> None:
        self.faults = list(faults)
        self.path = path
        head = f"{path}: " if path else ""
        if len(self.faults) == 1:
            super().__init__(head + self.faults[0])
        else:
            lines = "".join(f"\n  - {fault}" for fault in self.faults)
            super().__init__(f"{head}{len(self.faults)} faults{lines}")


class UnknownTableError(CdcError):
    """Raised when a text names no table of the configuration, or several."""

    def __init__(self, text: str, message: str) -> None:
        self.text = text
        super().__init__(f"no table {text!r}: {message}")


class JavaError(CdcError):
    """Raised when there is no Java that Spark can run on, or Spark does not start."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"Spark can't start: {found}. {remedy[0].upper()}{remedy[1:]}")


class LandingError(CdcError):
    """Raised when a day cannot be landed whole; nothing of the day is written."""

    def __init__(self, source: str, message: str, file: str | None = None) -> None:
        self.source = source
        self.file = file
        super().__init__(f"{source}: {message}")


class OrderError(CdcError):
    """Raised when nothing orders the events of a day; the day stays as it was."""

    def __init__(self, source: str, day: date, tables: Iterable[str], why: str) -> None:
        self.source = source
        self.day = day
        super().__init__(
            f"{source}, {day}: nothing orders the events of {', '.join(sorted(tables)[:5])}: they "
            f"have no positions, and {why}. Nothing of the day was written. Let the source send "
            "positions (Maxwell: output_binlog_position=true), or land its records from Kafka or "
            "by a sink that keeps offsets"
        )


class RegistryError(CdcError):
    """Raised when a source's schema registry does not answer; the day stays as it was."""

    def __init__(self, source: str, url: str, what: str) -> None:
        self.source = source
        self.url = url
        self.what = what
        super().__init__(
            f"{source}: the schema registry {what} ({url}). Nothing of the day was changed. See "
            f"sources.{source}.landing.registry in cdc.yaml, then run the day again"
        )


class MissingDayError(CdcError):
    """Raised when a stage needs a day that has not been made yet."""

    def __init__(self, what: str, day: date, remedy: str) -> None:
        self.what = what
        self.day = day
        self.remedy = remedy
        super().__init__(f"{what}: no state for {day}. {remedy}")


class SchemaDriftError(CdcError):
    """Raised when values or types no longer fit a table and data would be lost."""


class AuditError(CdcError):
    """Raised when a day fails its audit on the branch; the published day stays as it was.

    `check` names the asset check whose condition does not hold.
    """

    def __init__(self, table: str, day: date, message: str, check: str | None = None) -> None:
        self.table = table
        self.day = day
        self.check = check
        super().__init__(f"{table} {day}: {message}")


class LakeError(CdcError):
    """Raised when the catalog or a commit fails and a retry would not help."""


class SourceError(CdcError):
    """A database can't be reached, or refuses what is asked."""


class MissingTableError(LakeError):
    """Raised when a table is not in the lake, because no day of it was made yet."""


class ConcurrentRunError(LakeError):
    """Raised when another run wrote the same day meanwhile; its result stays."""

    def __init__(self, table: str, days: Iterable[date]) -> None:
        self.table = table
        self.days = list(days)
        super().__init__(
            f"{table.replace('`', '')} {', '.join(map(str, self.days))}: another run wrote it "
            "at the same time. Nothing was overwritten; the result of this run was dropped. Run "
            "the days again: days that are up to date are skipped. Runs that Dagster queues wait "
            "for each other in their source's pool"
        )
