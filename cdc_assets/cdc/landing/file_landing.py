"""A landing of files in folders named by day; bytes as they came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    day_of,
    list_day,
    list_names,
    no_day,
    read_days,
    see_days,
    unreadable,
)
from cdc_assets.cdc.landing.long_lines import as_rows, without_long_lines
from cdc_assets.cdc.landing.source import LANDING, LOST, LandingSource, stale_days

_RECORD_BYTES = 500  # of a landed record, about: to tell small days from large ones

Landed = Mapping[date, DayCommit]
Lost = dict[date, dict[str, list[int]]]  # file → records that landed before, records now


class FileLanding(LandingSource[LandedDay]):
    """Folders ``<files>/<YYYY-MM-DD>/``; a day lands again when its files have changed."""

    kind = "file"

    @property
    def folder(self) -> str:
        """The landing folder."""
        assert self.settings.landing.files is not None
        return self.settings.landing.files

    def inputs(self, days: Sequence[date]) -> dict[date, Mapping[str, Any]]:
        """The fingerprint of the files that are there, see :meth:`LandingSource.inputs`."""
        seen = see_days(self.source, self.folder)
        return {day: _inputs(seen[day].fingerprint if day in seen else NONE) for day in days}

    def changed_files(self, landed: Landed, before_ms: float) -> dict[date, str]:
        """The fingerprints of files that differ from those that landed, all older than an instant.

        Days whose files were deleted are no change: landed records stay.

        Args:
            landed: the days of `landing`.
            before_ms: days with a younger file are left out, which may still be written.

        Raises:
            OSError: the folder can't be listed.
            LandingError: the folder has entries, but none of a day.
        """
        found = {
            day: seen.fingerprint
            for day, seen in see_days(self.source, self.folder).items()
            if seen.modified_ms <= before_ms
        }
        stale = stale_days(landed, {day: _inputs(files) for day, files in found.items()})
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
            LandingError: a file can't be read, the folder holds no day but something else, or less
                is left of a landed day and `allow_loss` does not say otherwise.
        """
        found = self._list(lake, days)
        self._refuse_kafka_days(landed, days)
        self._refuse_other_layout(lake, found)
        changed = stale_days(landed, {day.day: _inputs(day.fingerprint) for day in found})
        new = [day for day in found if force or day.day in changed]
        if new:
            lake = lake.for_rows(sum(day.bytes for day in new) // _RECORD_BYTES)
            with self._unreadable_files():
                self._write(lake, landed, new, changed, allow_loss)
        return found

    def _list(self, lake: Lake, days: Sequence[date]) -> list[LandedDay]:
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
        """A folder that has entries, but none of a day, would land days that are empty and good."""
        if any(day.files for day in found):
            return
        entries = list_names(lake.spark, self.folder)
        if entries and not any(map(day_of, entries)):
            raise no_day(self.source, self.folder, entries)

    @contextmanager
    def _unreadable_files(self) -> Iterator[None]:
        """Name the file in the error of a read that failed."""
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
    ) -> None:
        identifier = lake.stage(self.source, LANDING)
        again = [day.day for day in new if day.day in landed]
        # Files that are as they landed lack nothing but what was given up then.
        given_up = {
            day: landed[day].inputs[LOST]
            for day in again
            if LOST in landed[day].inputs and day not in changed
        }
        # Nothing is known of days whose landed records maintenance has removed.
        to_compare = [d for d in again if d in changed and landed[d].removed is None]
        most = self.settings.max_record_mb << 20
        with without_long_lines(lake.spark, self.source, new, most) as (to_read, long_lines):
            rows = read_days(lake.spark, self.source, to_read)
            if long_lines:
                rows = rows.unionByName(as_rows(lake.spark, long_lines))
            if to_compare:
                assert landed.head is not None  # landed days have a commit
                stands = lake.at(identifier, landed.head)
                given_up |= self._lost(landed, stands, rows, to_compare, allow_loss)
            inputs = {
                day.day: {
                    **_inputs(day.fingerprint),
                    **({LOST: given_up[day.day]} if day.day in given_up else {}),
                }
                for day in new
            }
            lake.overwrite_days(identifier, rows, inputs, landed.head)

    def _lost(
        self,
        landed: Landed,
        stands: DataFrame,
        rows: DataFrame,
        days: Sequence[date],
        allow_loss: bool,
    ) -> Lost:
        """What days that land again give up, to be recorded with them.

        Raises:
            LandingError: less is left of a day than stands in the lake, and nobody allowed it.
        """
        lost, fresh = _lost_records(landed, stands, rows, days)
        if fresh and not allow_loss:
            raise self._less(fresh)
        return _without_moved(landed, stands, rows, lost, fresh) if fresh else lost

    def _less(self, lost: Lost) -> LandingError:
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


def _inputs(fingerprint: str) -> dict[str, Any]:
    return {"files": fingerprint}


def _lost_records(
    landed: Landed, stands: DataFrame, rows: DataFrame, days: Sequence[date]
) -> tuple[Lost, Lost]:
    """The files of landed days that are gone, or have fewer records than when they landed.

    The first of the two are all of them: what an earlier run gave up with `--allow-loss` is given
    up until the file has it again. The second are those that have fewer than stand in the lake.
    """
    had, has = (_by_file(frame.where(landed_on(days))) for frame in (stands, rows))
    lost: Lost = {}
    fresh: Lost = {}
    for day in days:
        standing, now = had.get(day, {}), has.get(day, {})
        before = {file: given_up[0] for file, given_up in landed[day].inputs.get(LOST, {}).items()}
        once = {f: max(standing.get(f, 0), before.get(f, 0)) for f in {**before, **standing}}
        for found, counts in ((lost, once), (fresh, standing)):
            less = {f: [n, now.get(f, 0)] for f, n in sorted(counts.items()) if now.get(f, 0) < n}
            if less:
                found[day] = less
    return lost, fresh


def _without_moved(
    landed: Landed, stands: DataFrame, rows: DataFrame, lost: Lost, fresh: Lost
) -> Lost:
    """Without the files whose records have all landed from other ones; a job.

    Bad records that were taken out of their file and delivered in another one are such.
    """
    place = ["landing_date", "topic", "partition", "offset"]
    on_days = landed_on(fresh)
    had = stands.where(on_days).select(*place, "file")
    gone = had.join(rows.where(on_days).select(*place), place, "left_anti")
    missing = {
        (row.landing_date, row.file)
        for row in gone.select("landing_date", "file").distinct().collect()
    }
    kept = {
        day: {
            file: counts
            for file, counts in files.items()
            if file not in fresh.get(day, {})
            or (day, file) in missing
            or file in landed[day].inputs.get(LOST, {})
        }
        for day, files in lost.items()
    }
    return {day: files for day, files in kept.items() if files}


def _by_file(rows: DataFrame) -> dict[date, dict[str, int]]:
    """How many rows each day has of each file; a pass that reads no JSON, only where lines end."""
    counts: dict[date, dict[str, int]] = {}
    for row in rows.groupBy("landing_date", "file").count().collect():
        if row.file is not None:
            counts.setdefault(row.landing_date, {})[row.file] = row["count"]
    return counts
