"""Landed lines that are too long for Spark, found before Spark reads them.

Spark holds a line in memory: an endless line of a compressed file would end the JVM. Only the
beginning and the length of such a line land, as a line that is not a record.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import IO, Any

from pyspark.sql import DataFrame, SparkSession

from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets.cdc.landing.files import LandedDay, open_landed
from cdc_assets.cdc.landing.lines import KEPT_BYTES, LINE_BYTES
from cdc_assets.cdc.sqltext import local_frame

_BLOCK = 1 << 20  # a line within one block is never too long
_DEFLATED = 1032  # gzip's maximum compression ratio


@dataclass(frozen=True)
class LongLine:
    """A line that is too long: its day and file, its beginning and its size in bytes."""

    day: date
    file: str
    beginning: bytes
    bytes: int


@contextmanager
def without_long_lines(
    spark: SparkSession, source: str, days: Sequence[LandedDay], most: int
) -> Iterator[tuple[list[LandedDay], list[LongLine]]]:
    """The days, with copies of the files that have lines of more than `most` bytes.

    The copies lack these lines and exist within the block. Most files are too small for such a
    line; the others are read once before Spark reads them.

    Raises:
        LandingError: there is such a line, and Spark's executors run on other machines, which
            have no copy.
    """
    suspects = {
        path
        for day in days
        for path, size in zip(day.texts, day.sizes, strict=True)
        if _may_have(path, size, most)
    }
    found: list[LongLine] = []
    with tempfile.TemporaryDirectory(prefix="cdc-assets-") as folder:
        read = []
        for day in days:
            texts = []
            for landed in day.texts:
                path = landed
                lines = _long_lines(day.day, path, most) if path in suspects else []
                if lines:
                    if not (spark.sparkContext.master or "").startswith("local"):
                        raise _too_long(source, path, lines[0], most)
                    found += lines
                    path = _copy(path, Path(folder) / str(day.day), most)
                texts.append(path)
            read.append(replace(day, texts=tuple(texts)))
        yield read, found


def as_rows(spark: SparkSession, lines: Sequence[LongLine]) -> DataFrame:
    """Long lines as rows of `LANDING`."""
    rows: list[tuple[Any, ...]] = []
    for line in lines:
        known = {
            "value": line.beginning,
            "headers": [(LINE_BYTES, str(line.bytes).encode())],
            "landing_date": line.day,
            "file": line.file,
        }
        rows.append(tuple(known.get(name) for name in LANDING.names))
    return local_frame(spark, rows, LANDING)


def _may_have(path: str, size: int, most: int) -> bool:
    return (size * _DEFLATED if path.endswith(".gz") else size) > most


def _long_lines(day: date, path: str, most: int) -> list[LongLine]:
    found: list[LongLine] = []
    file = path.rpartition("/")[2]

    def see(beginning: bytes, size: int) -> None:
        found.append(LongLine(day, file, beginning, size))

    with _opened(path) as stream:
        _walk(stream, most, see, None)
    return found


def _copy(path: str, folder: Path, most: int) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / path.rpartition("/")[2]
    with _opened(path) as stream, _made(copy) as out:
        _walk(stream, most, lambda *_: None, out)
    return f"file:{copy}"


def _walk(
    stream: IO[bytes], most: int, see: Callable[[bytes, int], None], out: IO[bytes] | None
) -> None:
    """Read lines block by block: pass long ones to `see`, write the others to `out`."""
    held, size = bytearray(), 0  # the beginning of the unfinished line, and its size

    def end(rest: bytes) -> None:
        """End the unfinished line with these bytes, including the newline."""
        nonlocal size
        whole = size + len(rest)
        if whole - 1 > most:
            see(bytes((held + rest)[:KEPT_BYTES]), whole - 1)
        elif out is not None:
            out.write(held)
            out.write(rest)
        held.clear()
        size = 0

    while block := stream.read(_BLOCK):
        first = block.find(b"\n")
        if first < 0:
            held += block if len(held) <= most else b""
            size += len(block)
            continue
        end(block[: first + 1])
        last = block.rfind(b"\n")
        if out is not None:
            out.write(block[first + 1 : last + 1])
        held += block[last + 1 :]
        size = len(block) - last - 1
    if size > most:
        see(bytes(held[:KEPT_BYTES]), size)
    elif out is not None:
        out.write(held)


@contextmanager
def _made(copy: Path) -> Iterator[Any]:
    if copy.name.endswith(".gz"):
        with gzip.open(copy, "wb", compresslevel=1) as packed:
            yield packed
    else:
        with copy.open("wb") as file:
            yield file


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    with open_landed(path) as raw:
        if path.endswith(".gz"):
            with gzip.GzipFile(fileobj=raw) as stream:
                yield stream  # type: ignore[misc]
        else:
            yield raw


def _too_long(source: str, path: str, line: LongLine, most: int) -> LandingError:
    return LandingError(
        source,
        f"{path} has a line of {line.bytes} bytes; max_record_mb is {most >> 20}. Take the line "
        "out and deliver the file again, or raise max_record_mb if it is a record",
        path,
    )
