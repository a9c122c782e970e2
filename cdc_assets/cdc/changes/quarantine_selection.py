"""Count and read selected records in quarantine, and export them to land again."""

from __future__ import annotations

import difflib
import heapq
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from pathlib import Path
from typing import IO, Any

from cdc_assets.cdc.changes.quarantine_rows import Quarantined, quarantine_by_day, quarantined
from cdc_assets.cdc.changes.reasons import REASONS
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError, MissingTableError
from cdc_assets.cdc.lake.figures import require_made
from cdc_assets.cdc.landing.lines import landed_line, new_file, write_lines

STDOUT = "-"  # as name of the file to export to

Counts = dict[tuple[date, str], int]


class ExportError(CdcError):
    """Raised when the file to export to can't be written, or is there already."""


def reason_fault(text: str) -> str | None:
    """What is wrong with the name of a reason; None where it is in the list."""
    if text in REASONS:
        return None
    close = difflib.get_close_matches(text, REASONS, n=2, cutoff=0.6)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    return f"{text!r} is not a reason{hint}; the reasons are {', '.join(REASONS)}"


def export_fault(to: str) -> str | None:
    """What is wrong with the name of a file to export to; None where nothing is."""
    if to == STDOUT or to.endswith(".jsonl"):
        return None
    return f"got {to!r}; a file of landed lines is named *.jsonl (- is standard output)"


@dataclass
class Selection:
    """Selected records in quarantine, counted by source, day and reason."""

    config: Config
    counts: dict[str, Counts] = field(default_factory=dict)
    other_reasons: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """The number of records."""
        return sum(sum(counts.values()) for counts in self.counts.values())

    @property
    def reasons(self) -> Counter[str]:
        """The number of records by reason."""
        found: Counter[str] = Counter()
        for counts in self.counts.values():
            for (_, reason), count in counts.items():
                found[reason] += count
        return found

    def records(self, limit: int | None = None) -> Iterator[Quarantined]:
        """The records, the newest day first, and one source after the other within a day."""
        by_source = (quarantined(self.config, s, counts) for s, counts in self.counts.items())
        found = heapq.merge(*by_source, key=lambda q: q.record.landing_date, reverse=True)
        return islice(found, limit)


def select(
    config: Config,
    sources: Sequence[str],
    first: date | None = None,
    last: date | None = None,
    reason: str | None = None,
) -> Selection:
    """Count the records in quarantine of some sources, days, and perhaps one reason.

    Raises:
        MissingTableError: no day of any of the sources was made.
        LakeError: none of these days was made; or the lake can't be read.
    """
    selection = Selection(config)
    missing: list[MissingTableError] = []
    for source in sources:
        try:
            counts = quarantine_by_day(config, source, first, last)
        except MissingTableError as error:
            missing.append(error)
            continue
        selection.counts[source] = {k: n for k, n in counts.items() if reason in (None, k[1])}
        for (_, other), count in counts.items():
            if other != reason:
                selection.other_reasons[other] += count
    if not selection.counts:
        raise missing[0]
    if not selection.total:
        require_made(config, "quarantine", list(selection.counts), first, last)
    return selection


@dataclass
class Exported:
    """The records of a selection that were written, and the files that they landed from."""

    records: int = 0
    gone: int = 0
    too_long: int = 0
    lines_without_place: int = 0  # lines that are not records
    files: Counter[tuple[date, str]] = field(default_factory=Counter)
    days: set[date] = field(default_factory=set)


def export(selection: Selection, to: str, limit: int | None = None) -> Exported:
    """Write the records of one source as lines that land as them again.

    Args:
        selection: records of one source.
        to: a file that is not there yet; ``-`` for standard output.
        limit: at most so many records.

    Raises:
        ExportError: the file is there already, or can't be written.
    """
    done = Exported()
    lines = _lines(selection.records(limit), done)
    with _out(to) as out:
        done.records = write_lines(lines, out)
    return done


@contextmanager
def _out(to: str) -> Iterator[IO[bytes]]:
    if to == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        if os.path.lexists(to):  # before it takes the time to read
            raise FileExistsError
        with new_file(Path(to)) as out:
            yield out
    except FileExistsError:
        raise ExportError(
            f"{to} is there already, and is not overwritten; name another file"
        ) from None
    except OSError as error:
        raise ExportError(
            f"{to} can't be written: {error.strerror or error}. Name a file in a folder that is "
            "there and that this user may write to"
        ) from error


def _lines(records: Iterable[Quarantined], done: Exported) -> Iterator[bytes]:
    for found in records:
        record = found.record
        if found.is_gone:
            done.gone += 1
            continue
        line = landed_line(record, quarantined=_why(found))
        if line is None:
            done.too_long += 1
            continue
        done.days.add(record.landing_date)
        done.files[record.landing_date, record.file or ""] += 1
        done.lines_without_place += record.topic is None
        yield line


def _why(found: Quarantined) -> Mapping[str, Any]:
    """What helps to repair a line; the landing ignores it."""
    return {
        "reason": found.reason,
        "detail": found.detail,
        "table": found.table_name,
        "day": str(found.record.landing_date),
        "file": found.record.file,
    }
