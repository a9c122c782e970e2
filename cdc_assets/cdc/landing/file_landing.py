"""A landing of files in folders named by day."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from typing import Any

from pyspark.sql import DataFrame

from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.java_errors import JAVA_ERRORS, causes, root_cause
from cdc_assets.cdc.lake.catalog import Lake, landed_on
from cdc_assets.cdc.lake.commits import DayCommit, DayCommits
from cdc_assets.cdc.lake.errors import is_landing_read
from cdc_assets.cdc.landing.files import (
    NONE,
    LandedDay,
    SeenDay,
    day_of,
    list_day,
    list_names,
    no_day,
    read_days,
    see_days,
    unreadable,
)
from cdc_assets.cdc.landing.long_lines import as_rows, without_long_lines
from cdc_assets.cdc.landing.source import LANDING, LOST, WatchedLanding, stale_days

_RECORD_BYTES = 500  # rough size of a landed record, to tell small days from large ones

Landed = Mapping[date, DayCommit]
Counts = Mapping[date, Mapping[str, int]]
Lost = dict[date, dict[str, list[int]]]  # file → records that landed before, records now


class FileLanding(WatchedLanding[LandedDay]):
    """Folders ``<files>/<YYYY-MM-DD>/``; a day lands again when its files have changed."""

    kind = "file"

    @property
    def folder(self) -> str:
        """The landing folder."""
        assert self.settings.landing.files is not None
        return self.settings.landing.files

    @property
    def place(self) -> str:
        return self.folder

    def inputs(self, days: Sequence[date]) -> dict[date, Mapping[str, Any]]:
        """The fingerprint of each day's files, see :meth:`LandingSource.inputs`."""
        return self._inputs(days, {})

    def stale(self, landed: Landed, days: Sequence[date]) -> list[date]:
        return stale_days(landed, self._inputs(days, landed))

    def _inputs(self, days: Sequence[date], landed: Landed) -> dict[date, Mapping[str, Any]]:
        seen = self._see(days, landed)
        return {day: self._made_of(seen[day].fingerprint if day in seen else NONE) for day in days}

    def _see(self, days: Sequence[date] | None, landed: Landed) -> Mapping[date, SeenDay]:
        """The days that have files: at least those of `days` (None: all), found without Spark."""
        return see_days(self.source, self.folder)

    def _made_of(self, fingerprint: str) -> dict[str, Any]:
        """The inputs of a day whose files have this fingerprint."""
        return {"files": fingerprint}

    def changed_days(self, landed: Landed, before_ms: float) -> dict[date, str]:
        """The fingerprints of days whose files differ from the landed ones.

        Deleted files are no change: landed records stay. Days with a newer file than `before_ms`
        are left out.
        """
        found = {
            day: seen.fingerprint
            for day, seen in self._see(None, landed).items()
            if seen.modified_ms <= before_ms
        }
        stale = stale_days(landed, {day: self._made_of(files) for day, files in found.items()})
        return {day: found[day] for day in stale}

    def land(
        self,
        lake: Lake,
        landed: DayCommits,
        days: Sequence[date],
        force: bool = False,
        allow_loss: bool = False,
    ) -> list[LandedDay]:
        """See :meth:`LandingSource.land`.

        Raises:
            LandingError: a file can't be read, the folder holds no day but something else, or a
                landed day has lost records and `allow_loss` is false.
        """
        found = list(self._list(lake, landed, days))
        self._refuse_kafka_days(landed, days)
        self._refuse_other_layout(lake, found)
        made_of = {d.day: {**self._made_of(d.fingerprint), **d.learned} for d in found}
        changed = stale_days(landed, made_of)
        new = [day for day in found if force or day.day in changed]
        if new:
            lake = lake.for_rows(sum(day.bytes for day in new) // _RECORD_BYTES)
            with self._naming_unreadable_file():
                counts = self._write(lake, landed, new, changed, allow_loss)
            found = [replace(day, counts=counts.get(day.day, {})) for day in found]
        return found

    def _list(self, lake: Lake, landed: Landed, days: Sequence[date]) -> Sequence[LandedDay]:
        try:
            return [list_day(lake.spark, self.source, self.folder, day) for day in days]
        except JAVA_ERRORS as error:
            raise LandingError(
                self.source,
                f"the landing folder {self.folder} can't be listed ({root_cause(error)}). See that "
                "it is there and that this user may read it",
                self.folder,
            ) from error

    def _refuse_kafka_days(self, landed: Landed, days: Sequence[date]) -> None:
        if kafka_days := [
            str(day) for day in days if day in landed and "kafka" in landed[day].inputs
        ]:
            raise LandingError(
                self.source,
                f"{', '.join(kafka_days)} landed from Kafka before, and is not replaced by files. "
                "Give the source of the files another name",
            )

    def _refuse_other_layout(self, lake: Lake, found: Sequence[LandedDay]) -> None:
        """Refuse a folder with entries but no day: it would land empty days without an error."""
        if any(day.files for day in found):
            return
        entries = list_names(lake.spark, self.folder)
        if entries and not any(map(day_of, entries)):
            raise no_day(self.source, self.folder, entries)

    @contextmanager
    def _naming_unreadable_file(self) -> Iterator[None]:
        """Name the file in the error of a failed read."""
        try:
            yield
        except JAVA_ERRORS as error:
            if any(map(is_landing_read, causes(error))):
                shows = self.settings.shows_values
                raise unreadable(self.source, error, with_values=shows) from error
            raise

    def _write(
        self,
        lake: Lake,
        landed: DayCommits,
        new: Sequence[LandedDay],
        changed: Sequence[date],
        allow_loss: bool,
    ) -> Counts:
        """Land the days; returns what there is to count of their records."""
        identifier = lake.stage(self.source, LANDING)
        again = [day.day for day in new if day.day in landed]
        # Unchanged files have lost only what was given up when they landed.
        given_up = {
            day: landed[day].inputs[LOST]
            for day in again
            if LOST in landed[day].inputs and day not in changed
        }
        # Maintenance has removed the landed records of the other days.
        to_compare = [d for d in again if d in changed and landed[d].removed is None]
        with self._reading(lake, new) as (rows, counts):
            if to_compare:
                assert landed.head is not None  # landed days have a commit
                stored = lake.at(identifier, landed.head)
                given_up |= self._lost(landed, stored, rows, to_compare, allow_loss)
            inputs = {
                day.day: {
                    **self._made_of(day.fingerprint),
                    **({LOST: given_up[day.day]} if day.day in given_up else {}),
                    **day.learned,
                }
                for day in new
            }
            kept, copied = self._without_copies(rows)
            lake.overwrite_days(identifier, kept, inputs, landed.head)
            found = counts()
            return {day: {**found.get(day, {}), **copied.get(day, {})} for day in {*found, *copied}}

    def _without_copies(self, rows: DataFrame) -> tuple[DataFrame, Counts]:
        """The records to land, and by day the number of others, which are copies of them."""
        return rows, {}

    @contextmanager
    def _reading(
        self, lake: Lake, days: Sequence[LandedDay]
    ) -> Iterator[tuple[DataFrame, Callable[[], Counts]]]:
        """The records of the days, and what to ask, once they are written, for counts of them."""
        most = self.settings.max_record_mb << 20
        with without_long_lines(lake.spark, self.source, days, most) as (to_read, long_lines):
            rows = read_days(lake.spark, self.source, to_read)
            if long_lines:
                rows = rows.unionByName(as_rows(lake.spark, long_lines))
            yield rows, dict

    def _lost(
        self,
        landed: Landed,
        stored: DataFrame,
        rows: DataFrame,
        days: Sequence[date],
        allow_loss: bool,
    ) -> Lost:
        """Records that days give up when they land again, to be recorded with them.

        Raises:
            LandingError: a day has fewer records than in the lake, and `allow_loss` is false.
        """
        lost, newly_lost = _lost_records(landed, stored, rows, days)
        if not newly_lost:
            return lost
        if not allow_loss:
            raise self._loss_error(newly_lost)
        return _without_moved(landed, stored, rows, lost, newly_lost)

    def _loss_error(self, lost: Lost) -> LandingError:
        texts = [
            f"{day}/{file}: {had} landed, {has or 'none'} left"
            for day, files in lost.items()
            for file, (had, has) in files.items()
        ]
        more = f" and {len(texts) - 5} files more" if texts[5:] else ""
        return LandingError(
            self.source,
            f"files in {self.folder} no longer exist or have fewer records than when they landed "
            f"({'; '.join(texts[:5])}{more}); the landed records are kept. Restore the files, "
            "leave these days out, or give the records up with --allow-loss",
            self.folder,
        )


def _lost_records(
    landed: Landed, stored: DataFrame, rows: DataFrame, days: Sequence[date]
) -> tuple[Lost, Lost]:
    """The files of landed days that are gone, or have fewer records than when they landed.

    Returns:
        All of them, including what an earlier run gave up with `--allow-loss` and the file still
        lacks; and those with fewer records than in the lake.
    """
    had, has = (_by_file(frame.where(landed_on(days))) for frame in (stored, rows))
    lost: Lost = {}
    newly_lost: Lost = {}
    for day in days:
        in_lake, now = had.get(day, {}), has.get(day, {})
        before = {file: given_up[0] for file, given_up in landed[day].inputs.get(LOST, {}).items()}
        most = {f: max(in_lake.get(f, 0), before.get(f, 0)) for f in {**before, **in_lake}}
        for found, counts in ((lost, most), (newly_lost, in_lake)):
            less = {f: [n, now.get(f, 0)] for f, n in sorted(counts.items()) if now.get(f, 0) < n}
            if less:
                found[day] = less
    return lost, newly_lost


def _without_moved(
    landed: Landed, stored: DataFrame, rows: DataFrame, lost: Lost, newly_lost: Lost
) -> Lost:
    """`lost` without files whose records have all landed from other files; a job.

    For example, bad records were taken out of their file and delivered in another one.
    """
    place = ["landing_date", "topic", "partition", "offset"]
    on_days = landed_on(newly_lost)
    had = stored.where(on_days).select(*place, "file")
    gone = had.join(rows.where(on_days).select(*place), place, "left_anti")
    missing = {
        (row.landing_date, row.file)
        for row in gone.select("landing_date", "file").distinct().collect()
    }
    remaining = {
        day: {
            file: counts
            for file, counts in files.items()
            if file not in newly_lost.get(day, {})
            or (day, file) in missing
            or file in landed[day].inputs.get(LOST, {})
        }
        for day, files in lost.items()
    }
    return {day: files for day, files in remaining.items() if files}


def _by_file(rows: DataFrame) -> dict[date, dict[str, int]]:
    """Rows by day and file; the job splits lines but parses no JSON."""
    counts: dict[date, dict[str, int]] = {}
    for row in rows.groupBy("landing_date", "file").count().collect():
        if row.file is not None:
            counts.setdefault(row.landing_date, {})[row.file] = row["count"]
    return counts
