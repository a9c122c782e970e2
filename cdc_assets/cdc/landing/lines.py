"""Landing rows as the lines that land as them again; the counterpart of `files`, without Spark."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import IO, Any

from cdc_assets.cdc.lake.json_values import instant_text, texts_of

# A landed line that was too long to be landed whole says by this header how long it was.
LINE_BYTES = "cdc-assets.line-bytes"
KEPT_BYTES = 1 << 20  # of a record or a line that is too long
_BYTE_ORDER_MARK = "\ufeff".encode()
# Spark's parser rejects longer texts; it counts UTF-16 code units, as Java does.
_TEXT_LIMIT = 20_000_000


@dataclass(frozen=True)
class LandedRecord:
    """A row of `landing`: a Kafka record, or another line (`topic` is null)."""

    landing_date: date
    topic: str | None
    partition: int | None
    offset: int | None
    timestamp_us: int | None  # µs since 1970, UTC
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str | None, bytes | None]] = ()
    file: str | None = None

    @property
    def timestamp(self) -> str | None:
        """The Kafka timestamp as ISO text in UTC."""
        return None if self.timestamp_us is None else instant_text(self.timestamp_us)


def landed_line(record: LandedRecord, **more: Any) -> bytes | None:
    """The line, without its newline, that lands as this record: the same bytes in each column.

    A line that is not a record is returned as it is. A row of a Parquet file without a place in
    Kafka becomes a line without one. Characters that are not printable are escaped.

    Args:
        record: a row of `landing`.
        more: members for readers of the line, which the landing ignores.

    Returns:
        None for a record whose key or value is too long for a line.
    """
    if record.topic is None and not (record.file or "").endswith(".parquet"):
        return record.value
    line = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": _timestamp(record),
        "timestampType": record.timestamp_type,
        **texts_of("key", record.key),
        **texts_of("value", record.value),
        "headers": [{"key": k, **texts_of("value", v)} for k, v in record.headers] or None,
        **more,
    }
    if any(map(_is_too_long, line.values())):
        return None
    return _escaped(json.dumps(line, ensure_ascii=False)).encode()


def _is_too_long(value: object) -> bool:
    if not isinstance(value, str) or len(value) <= _TEXT_LIMIT // 2:
        return False
    return len(value) + sum(character > "\uffff" for character in value) > _TEXT_LIMIT


def _timestamp(record: LandedRecord) -> int | str | None:
    """The timestamp in ms; text if it is negative or has fractions of a ms, as in a landed file."""
    micros = record.timestamp_us
    if micros is None or micros < 0 or micros % 1000:
        return record.timestamp
    return micros // 1000


def _escaped(text: str) -> str:
    """JSON text without control characters for a terminal."""
    if text.isprintable():
        return text
    return re.sub(r"[^\x20-\x7e]", lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


def write_lines(lines: Iterable[bytes], out: IO[bytes]) -> int:
    """Write lines of :func:`landed_line`; returns their number."""
    count = 0
    for count, line in enumerate(lines, 1):
        if count == 1 and line.startswith(_BYTE_ORDER_MARK):
            out.write(b"\n")  # Spark strips the mark at a file's start; empty lines are ignored
        out.write(line)
        out.write(b"\n")
    return count


@contextmanager
def new_file(file: Path) -> Iterator[IO[bytes]]:
    """A new file, created atomically at the end of the block.

    Until then its name begins with a dot, which the landing ignores.

    Raises:
        FileExistsError: the file exists.
    """
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with part.open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(part, file)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if os.path.lexists(file):
                raise FileExistsError(str(file)) from None
            part.rename(file)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
