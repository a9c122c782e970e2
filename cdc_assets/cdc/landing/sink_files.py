"""The files that a sink left in a folder or bucket, by the day that they are of; without Spark."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.config.file_layouts import FileLayout
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.landing.files import (
    LandedDay,
    SeenDay,
    as_uri,
    fingerprint_of,
    is_ignored,
)
from cdc_assets.cdc.path_templates import PathPlace, PathTemplate

# Beside `_` and `.`: what the HDFS sink still writes, and indexes of its offsets.
_UNFINISHED = "+tmp"
_NO_RECORDS = (".index",)
COMPANION = re.compile(r"\.(keys|headers)(?=\.(?:json|avro)\b)")


FileVersion = tuple[str, int, int]  # path, size, modified in ms
Companions = dict[str, dict[str, str]]  # path of values → keys, headers → path


@dataclass(frozen=True)
class SinkFile:
    """A file with records, and those that belong to it line by line."""

    path: str  # below the landing folder
    bytes: int
    modified_ms: int
    place: PathPlace
    is_tombstones: bool = False
    keys: str | None = None
    headers: str | None = None

    @property
    def paths(self) -> list[str]:
        """Its path and those of its companions."""
        return [path for path in (self.path, self.keys, self.headers) if path is not None]

    @property
    def version(self) -> FileVersion:
        """What tells it from the file of this name before it was written again."""
        return self.path, self.bytes, self.modified_ms


@dataclass(frozen=True)
class SinkDay(LandedDay):
    """The files of one day."""

    found: tuple[SinkFile, ...] = ()


class SinkFolder:
    """The folder of a source whose files have another layout than days.

    What it has listed it does not list again, so that a run reads what it recorded: each run asks
    a new one.

    Args:
        config: cdc.yaml.
        source: the source's name.
        known: where records say the day, the days of the files that were read before, each with
            what tells its records from others. Files that were not are taken for those of the day
            on which they were written.
    """

    def __init__(
        self,
        config: Config,
        source: str,
        known: Mapping[FileVersion, Mapping[date, str]] | None = None,
    ) -> None:
        landing = config.source(source).landing
        assert landing.files is not None
        assert landing.file_layout is not None
        self.source, self.folder, self.settings = source, landing.files, landing
        self.most = config.source(source).max_record_mb << 20  # bytes of a record
        self.layout: FileLayout = landing.file_layout
        self.known = known or {}
        self._zone, self._start = ZoneInfo(config.timezone), config.start_date

    def knowing(self, read: Mapping[FileVersion, Mapping[date, str]]) -> SinkFolder:
        """The same files, as they were listed, with the days of more of them."""
        told = copy(self)
        told.known = {**self.known, **read}
        told.__dict__.pop("_last", None)
        return told

    def see_days(self, days: Sequence[date] | None = None) -> dict[date, SeenDay]:
        """The days that have files: those of `days`, or all."""
        listed = self._days(None).values() if days is None else self.list_days(days)
        return {
            found.day: SeenDay(found.fingerprint, max(f.modified_ms for f in found.found))
            for found in listed
            if found.found
        }

    def list_days(self, days: Sequence[date]) -> list[SinkDay]:
        """The files of some days; where paths name the day, only their folders are listed.

        Raises:
            OSError: the folder can't be listed.
            LandingError: there are files, but none that has the name of the layout's.
        """
        if self.settings.day == "path" and self.settings.tombstones == "ignore":
            listed = {day: self._days(day).get(day) for day in days}
        else:
            known = self._days(None)
            listed = {day: known.get(day) for day in days}
        return [listed[day] or SinkDay(day, (), (), fingerprint_of(())) for day in days]

    def file_at(self, path: str) -> SinkDay | None:
        """A file below the folder as a day of its own; None for one of another name."""
        above = path.rpartition("/")[0]
        beside = self._tree.files(f"{above}/" if above else "", deep=False)
        files, _ = self._with_companions(self.layout.template, list(beside), is_tombstones=False)
        found = next((file for file in files if file.path == path), None)
        return None if found is None else self._landed_day(min(self._days_of(found)), [found])

    def unread(self) -> list[SinkFile]:
        """Files whose records say days that are not known yet."""
        files = self._files(self.layout.template, None, is_tombstones=False)
        return [file for file, _ in files if file.version not in self.known]

    def url(self, path: str) -> str:
        """Where a file is, for Hadoop's file systems."""
        return f"{self.folder.rstrip('/')}/{path}"

    def refuse_other_layout(self) -> None:
        """Refuse a folder with entries of which none can be read.

        Raises:
            LandingError: it lists what was seen, and what was expected.
        """
        if self._days(None):
            return
        seen = sorted(p for p in self._tree.files("", deep=True) if not is_left_out(p))
        if seen:
            more = f" and {len(seen) - 3} more" if seen[3:] else ""
            raise LandingError(
                self.source,
                f"{self.folder} has no file named {self.layout.template.text}, but "
                f"{', '.join(seen[:3])}{more}. Correct sources.{self.source}.landing: files is the "
                "folder in which such names begin, layout the sink that wrote them, path how they "
                "are named",
                self.folder,
            )

    def _days(self, day: date | None) -> dict[date, SinkDay]:
        files: dict[date, list[SinkFile]] = {}
        for file, days in self._files(self.layout.template, day, is_tombstones=False):
            for of in days:
                files.setdefault(of, []).append(file)
        if self.layout.tombstones is not None and self.settings.tombstones == "modified":
            for file, days in self._files(self.layout.tombstones, None, is_tombstones=True):
                for of in days:
                    files.setdefault(of, []).append(file)
        return {of: self._landed_day(of, found) for of, found in files.items()}

    def _files(
        self, template: PathTemplate, day: date | None, is_tombstones: bool
    ) -> Iterator[tuple[SinkFile, Collection[date]]]:
        """The files of this name with their days; companions are members of theirs."""
        by_modified = is_tombstones or self.settings.day != "path"
        paths = template.paths(self._tree, None if by_modified else day)
        own, alone = self._with_companions(template, paths, is_tombstones)
        for file in own:
            days = self._days_of(file)
            if day is None or day in days:
                yield file, days
        if alone and day is not None:  # else the values may be about to arrive
            self._refuse_alone(alone)

    def _with_companions(
        self, template: PathTemplate, paths: Iterable[str], is_tombstones: bool
    ) -> tuple[list[SinkFile], Companions]:
        """The files of this name among some, and companions whose own file is not among them."""
        companions: Companions = {}
        own: list[SinkFile] = []
        for path in paths:
            place = None if is_left_out(path) else template.match(path)
            if place is None:
                continue
            kind = COMPANION.search(path) if self.layout.has_companions else None
            if kind is not None and not is_tombstones:
                base = path[: kind.start()] + path[kind.end() :]
                companions.setdefault(base, {})[kind[1]] = path
                continue
            size, modified_ms = self._tree.infos[path]
            own.append(SinkFile(path, size, modified_ms, place, is_tombstones))
        beside = [companions.pop(file.path, {}) for file in own]
        found = [
            replace(file, keys=of.get("keys"), headers=of.get("headers"))
            for file, of in zip(own, beside, strict=True)
        ]
        return found, companions

    def _refuse_alone(self, companions: Companions) -> None:
        values, others = min(companions.items())
        raise LandingError(
            self.source,
            f"{min(others.values())} has no {values.rpartition('/')[2]} beside it, whose keys or "
            "headers it has. Deliver that file again, or let the name of this one start with _",
            values,
        )

    def _days_of(self, file: SinkFile) -> Collection[date]:
        if self.settings.day == "path" and not file.is_tombstones:
            return () if file.place.day is None else (file.place.day,)
        if self.settings.has_days_of_records and not file.is_tombstones:
            return self._told(file)
        return (self._written(file),)

    def _told(self, file: SinkFile) -> Mapping[date, str]:
        """The days of a file's records, each with what tells these from others.

        One that was not read yet has those of its last version, and the day of its writing.
        """
        if (known := self.known.get(file.version)) is not None:
            return known
        written = max(self._written(file), self._start)
        return {**self._last.get(file.path, {}), written: f"{file.bytes} {file.modified_ms}"}

    @cached_property
    def _last(self) -> dict[str, Mapping[date, str]]:
        """The days of each file that was read, as it was last."""
        in_order = sorted(self.known.items(), key=lambda item: item[0][2])
        return {path: days for (path, *_), days in in_order}

    def _written(self, file: SinkFile) -> date:
        return datetime.fromtimestamp(file.modified_ms / 1000, self._zone).date()

    def _landed_day(self, day: date, files: Sequence[SinkFile]) -> SinkDay:
        found = tuple(sorted(files, key=lambda f: f.path))
        texts = tuple(self.url(f.path) for f in found)
        sizes = [self._tree.infos[path][0] for f in found for path in f.paths]
        return SinkDay(day, texts, (), self._fingerprint(day, found), sum(sizes), found=found)

    def _fingerprint(self, day: date, files: Sequence[SinkFile]) -> str:
        """Of files as they are, or where records say the day, of their records of this day."""
        by_records = self.settings.has_days_of_records
        of_records = [
            (f.path, self._told(f)[day], 0) for f in files if by_records and not f.is_tombstones
        ]
        others = [f for f in files if not by_records or f.is_tombstones]
        whole = [(path, *self._tree.infos[path]) for f in others for path in f.paths]
        return fingerprint_of([*of_records, *whole])

    @cached_property
    def _tree(self) -> Tree:
        return Tree(self.folder)


class Tree:
    """A folder, or a bucket, as it is listed; `infos` has the size and time of each file met."""

    def __init__(self, folder: str) -> None:
        from pyarrow import fs

        self._system, root = fs.FileSystem.from_uri(as_uri(folder))
        self._root = root.rstrip("/")
        self.infos: dict[str, tuple[int, int]] = {}
        self._listed: dict[tuple[str, bool], list[Any]] = {}
        if self._system.get_file_info(self._root).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"{folder} is missing")

    def names(self, folder: str) -> Iterator[str]:
        """The folders in a folder."""
        for info in self._list(folder, deep=False):
            if not info.is_file and not is_left_out(info.base_name):
                yield info.base_name

    def files(self, folder: str, deep: bool) -> Iterator[str]:
        """The paths of the files in a folder, and below if `deep`."""
        for info in self._list(folder, deep):
            if info.is_file:
                path = info.path[len(self._root) :].lstrip("/")
                self.infos[path] = (info.size or 0, info.mtime_ns // 1_000_000)
                yield path

    def _list(self, folder: str, deep: bool) -> Iterable[Any]:
        from pyarrow import fs

        if (folder, deep) not in self._listed:
            place = f"{self._root}/{folder}".rstrip("/")
            asked = fs.FileSelector(place, recursive=deep, allow_not_found=True)
            self._listed[folder, deep] = self._system.get_file_info(asked)
        return self._listed[folder, deep]


def is_left_out(path: str) -> bool:
    """True for files that are unfinished, or hold no records."""
    parts = path.split("/")
    return path.endswith(_NO_RECORDS) or any(is_ignored(p) or p == _UNFINISHED for p in parts)
