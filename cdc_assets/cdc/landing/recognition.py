"""Which sink left the files of a folder or bucket, told by their names and by a first line."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

from cdc_assets.cdc.config.file_layouts import CONFLUENT_DAYS, PATHS
from cdc_assets.cdc.landing.files import as_uri
from cdc_assets.cdc.landing.sink_files import COMPANION, Tree, is_left_out
from cdc_assets.cdc.path_templates import PathPlace, PathTemplate

_PEEKED = 1 << 16  # bytes of a file that are looked at
_HOURLY = re.compile(r"/hour=\d\d/")
_TOMBSTONES = "/tombstone/"
_CSV = (["value"], ["key", "value"], ["key", "value", "offset"])
_WHOLE_CSV = ["key", "value", "offset", "timestamp"]
_NO_KEYS = (
    "keys are not stored: name `key` for each table, and `replica_identity: full` where rows are "
    "deleted, or let the sink store them ({})"
)
_NO_DAYS = (
    "no path names a day, so each file is read once for the days of its records: let the sink "
    "write days (partitioner.class=…DailyPartitioner, or a date in file.name.template)"
)
_NO_PLACE = (
    "values have no topic, offset, timestamp or key: name `key` for each table, and "
    "`replica_identity: full` where rows are deleted; the format's own positions order rows"
)


@dataclass(frozen=True)
class Recognised:
    """What a folder holds.

    Args:
        landing: the settings of `landing` beside `files`.
        kind: what it is, in words.
        places: what the paths of its files say.
        lacks: what is missing for right tables, with the sink's option.
    """

    landing: dict[str, Any]
    kind: Sequence[str]
    places: Sequence[PathPlace]
    lacks: tuple[str, ...] = ()

    @property
    def days(self) -> list[date]:
        """The days that paths say, in order."""
        return sorted({place.day for place in self.places if place.day is not None})

    @property
    def text(self) -> str:
        """What it is, in one line."""
        topics = {place.topic for place in self.places if place.topic is not None}
        counted = [_counted(len(topics), "topic")] if topics else []
        span = [f"{self.days[0]} to {self.days[-1]}"] if self.days else []
        return ", ".join([*self.kind, *counted, _counted(len(self.places), "file"), *span])


def recognise(folder: str, topic: str) -> Recognised | None:
    """What a sink left in a folder; None for anything else.

    Args:
        folder: the folder, or its URL.
        topic: a topic's name for values that have none.

    Raises:
        OSError: the folder can't be listed.
    """
    tree = Tree(folder)
    paths = [path for path in tree.files("", deep=True) if not is_left_out(path)]
    values = [p for p in paths if not COMPANION.search(p) and _TOMBSTONES not in p]
    for kind in (_confluent, _event_hubs, _values_by_hour, _aiven):
        if values and (found := kind(folder, paths, values, topic)) is not None:
            return found
    return None


def seen_in(folder: str) -> list[str]:
    """Some of the files in a folder, for who is told that nothing is recognised."""
    return sorted(path for path in Tree(folder).files("", deep=True) if not is_left_out(path))


def _places(template: str, values: Sequence[str]) -> list[PathPlace] | None:
    """What all paths say; None where one has another shape."""
    own = PathTemplate(template)
    found = [place for path in values if (place := own.match(path)) is not None]
    return found if len(found) == len(values) else None


def _confluent(
    folder: str, paths: Sequence[str], values: Sequence[str], topic: str
) -> Recognised | None:
    places = _places(CONFLUENT_DAYS, values)
    landing: dict[str, Any] = {"layout": "confluent"}
    lacks = []
    if places is None:
        places = _places(PATHS["confluent"], values)
        landing["day"] = "value"
        lacks.append(_NO_DAYS)
    if places is None:
        return None
    has_keys = any(found[1] == "keys" for path in paths if (found := COMPANION.search(path)))
    if not has_keys:
        lacks.append(_NO_KEYS.format("store.kafka.keys=true"))
    spread = "hourly" if any(map(_HOURLY.search, values)) else "daily"
    parts = [
        "files of Kafka Connect's sinks as Confluent names them",
        *([] if "day" in landing else [spread]),
        "Avro" if all(".avro" in path for path in values) else "JSON",
        "with keys" if has_keys else "without keys",
    ]
    return Recognised(landing, parts, places, tuple(lacks))


def _event_hubs(
    folder: str, paths: Sequence[str], values: Sequence[str], topic: str
) -> Recognised | None:
    places = _places(PATHS["eventhubs"], values)
    if places is None:
        return None
    return Recognised({"layout": "eventhubs"}, ["Azure Event Hubs Capture"], places)


def _aiven(
    folder: str, paths: Sequence[str], values: Sequence[str], topic: str
) -> Recognised | None:
    by_day = "{yyyy}-{MM}-{dd}/{topic}-{partition}-{offset}*"
    landing: dict[str, Any] = {"layout": "aiven", "path": by_day}
    places = _places(by_day, values)
    if places is None:
        landing = {"layout": "aiven", "day": "timestamp"}
        places = _places(PATHS["aiven"], values)
    if places is None:
        return None
    line = _first_line(folder, values)
    document = None
    with suppress(ValueError):
        document = json.loads(line)
    if isinstance(document, dict) and "topic" in document and "offset" in document:
        return None  # lines as kcat writes them, in files of such names
    lacks = [] if "path" in landing else [_NO_DAYS]
    form = "JSON lines"
    if not isinstance(document, dict):
        commas = line.count(b",")
        landing["fields"] = _CSV[commas] if commas < len(_CSV) else _WHOLE_CSV
        form = f"CSV of {_counted(commas + 1, 'field')}"
        lacks.append("see that `fields` are those of the sink's format.output.fields, in order")
    if "day" in landing and "timestamp" not in landing.get("fields", ["timestamp"]):
        landing["day"] = "value"
    has_key = "key" in (document if isinstance(document, dict) else landing["fields"])
    if not has_key:
        lacks.append(_NO_KEYS.format("format.output.fields with key"))
    return Recognised(landing, ["files of Aiven's sinks", form], places, tuple(lacks))


def _values_by_hour(
    folder: str, paths: Sequence[str], values: Sequence[str], topic: str
) -> Recognised | None:
    path = "{yyyy}/{MM}/{dd}/{HH}/*"
    places = _places(path, values)
    if places is None:
        return None
    landing = {"path": path, "record": "value", "topic": topic}
    kind = ["values alone by hour, as Amazon Data Firehose writes them"]
    return Recognised(landing, kind, places, (_NO_PLACE,))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _first_line(folder: str, paths: Sequence[str]) -> bytes:
    """The first line of a file that has one, decompressed."""
    for data in _beginnings(folder, paths):
        if line := data.split(b"\n")[0]:
            return line
    return b""


def _beginnings(folder: str, paths: Sequence[str]) -> Iterator[bytes]:
    from pyarrow import ArrowInvalid, BufferReader, CompressedInputStream, fs, py_buffer

    system, root = fs.FileSystem.from_uri(as_uri(folder))
    for path in paths[:20]:
        with system.open_input_stream(f"{root.rstrip('/')}/{path}", compression=None) as stream:
            data: bytes = stream.read(_PEEKED)
        if data.startswith(b"\x1f\x8b"):
            data = zlib.decompressobj(wbits=31).decompress(data, _PEEKED)
        elif data.startswith(b"\x28\xb5\x2f\xfd"):
            with suppress(ArrowInvalid, OSError):
                data = CompressedInputStream(BufferReader(py_buffer(data)), "zstd").read(_PEEKED)
        yield data
