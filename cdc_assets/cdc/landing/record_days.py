"""A landing of files whose records say the day, since no path does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.schemas import MAX_MS, MIN_MS
from cdc_assets.cdc.landing.file_landing import Landed
from cdc_assets.cdc.landing.files import LandedDay
from cdc_assets.cdc.landing.sink_files import FileVersion, SinkDay, SinkFile, SinkFolder
from cdc_assets.cdc.landing.sink_landing import IS_EMPTY, SinkLanding
from cdc_assets.cdc.landing.sink_records import files_of
from cdc_assets.cdc.landing.source import stale_days
from cdc_assets.cdc.sqltext import Query, literal, local_frame

READ = "read"  # input of a landed day: days of files that were read for it
_A_DAY_MS = 86_400_000
_ALL_BITS = (1 << 64) - 1

RecordTimes = Callable[[DataFrame], DataFrame]
"""From landing rows to `file_number`, `line` and `time_ms`, the time in the value (null: none)."""


def known_days(landed: Landed) -> dict[FileVersion, dict[date, str]]:
    """The days of the files that were read before, as the commits of landed days recorded them."""
    return {
        (path, size, modified_ms): {date.fromisoformat(day): told for day, told in days.items()}
        for commit in landed.values()
        for path, (size, modified_ms, days) in commit.inputs.get(READ, {}).items()
    }


class RecordDayLanding(SinkLanding):
    """Files of a sink, each record on the day of its timestamp, or of the time in its value.

    Which days a file holds is read once and recorded. Until then it counts for the day on which it
    was written, so that a run of that day finds it out.

    Args:
        config: cdc.yaml.
        source: the source's name.
        times: reads the times in values; None where nothing lands.
    """

    def __init__(self, config: Config, source: str, times: RecordTimes | None = None) -> None:
        super().__init__(config, source)
        self._times = times

    def _folder(self, landed: Landed) -> SinkFolder:
        return SinkFolder(self.config, self.source, known_days(landed))

    def _list(self, lake: Lake, landed: Landed, days: Sequence[date]) -> Sequence[LandedDay]:
        """The files of some days; jobs read the days of files that are new.

        Raises:
            LandingError: as of :meth:`LandingSource.land`, or no record of any file says a day.
        """
        folder = self._folder(landed)
        found = self._list_in(folder, days)
        stale = stale_days(landed, {day.day: self._made_of(day.fingerprint) for day in found})
        unread = folder.unread() if stale else []
        if not unread:
            return [replace(day, learned=_recorded(landed, day.day)) for day in found]
        with self._naming_unreadable_file():
            read = self._read_days(lake, unread, is_first=not folder.known)
        learned = {
            path: [size, modified_ms, {str(day): told for day, told in sorted(of.items())}]
            for (path, size, modified_ms), of in read.items()
        }
        return [
            replace(
                day,
                learned={READ: {**_recorded(landed, day.day).get(READ, {}), **learned}}
                if day.day == stale[0]
                else _recorded(landed, day.day),
            )
            for day in folder.knowing(read).list_days(days)
        ]

    def _read_days(
        self, lake: Lake, files: Sequence[SinkFile], is_first: bool
    ) -> dict[FileVersion, dict[date, str]]:
        """The days of the records in some files, each with a digest of its records: a job."""
        size = sum(file.bytes for file in files)
        whole = SinkDay(self.config.start_date, (), (), "", size, found=tuple(files))
        rows = self._dated(lake, [whole])
        digest = F.bit_xor(F.xxhash64("line", "key", "value"))
        counted = (
            rows.groupBy("file_number", "landing_date")
            .agg(
                F.count("*").alias("records"),
                digest.alias("digest"),
                F.count_if(F.col("is_dated")).alias("dated"),
            )
            .collect()
        )
        if is_first and counted and not any(row.dated for row in counted):
            raise self._no_day()
        days: dict[int, dict[date, str]] = {}
        for row in counted:
            told = f"{row.records} {row.digest & _ALL_BITS:016x}"
            days.setdefault(row.file_number, {})[row.landing_date] = told
        return {file.version: days.get(number, {}) for number, file in enumerate(files)}

    def _no_day(self) -> LandingError:
        landing = self.settings.landing
        remedy = {
            "timestamp": "let the sink store it (Aiven: format.output.fields with timestamp)",
            "value": "see with cdc-assets inspect what its values are",
        }[landing.day]
        return LandingError(
            self.source,
            f"no record in {self.folder} says its day (sources.{self.source}.landing.day: "
            f"{landing.day}): {remedy}, or set day: modified",
            self.folder,
        )

    def _rows(self, lake: Lake, days: Sequence[SinkDay]) -> DataFrame:
        rows = self._dated(lake, days)
        return rows.withColumn("is_left_out", F.expr(IS_EMPTY))

    def _dated(self, lake: Lake, days: Sequence[SinkDay]) -> DataFrame:
        """The records of files with their own days as `landing_date`.

        A record that says none has the day of the one before it in its file, the first ones that
        of the next; in a file without any, that on which the file was written. A time behind the
        file's own by more than a day says none.
        """
        rows = self._records(lake).read(days)
        files = [file for _, file in files_of(days)]
        if not files:
            return rows.withColumn("is_dated", F.lit(False))
        times = self._record_times(rows)
        written = local_frame(
            lake.spark,
            [(number, file.modified_ms) for number, file in enumerate(files)],
            "file_number int, written_ms bigint",
        )
        joined = rows.join(times, ["file_number", "line"], "left").join(
            F.broadcast(written), "file_number"
        )
        zone, start = literal(self.config.timezone), literal(self.config.start_date)
        is_ahead = f"time_ms > written_ms + {_A_DAY_MS}L"
        in_file = "PARTITION BY file_number ORDER BY line ROWS BETWEEN"
        before, behind = (
            "UNBOUNDED PRECEDING AND CURRENT ROW",
            "CURRENT ROW AND UNBOUNDED FOLLOWING",
        )
        return (
            Query(joined)
            .extend({"is_ahead": f"coalesce({is_ahead}, false)"})
            .extend({"_day": f"CASE WHEN NOT is_ahead THEN {_day_of('time_ms', zone)} END"})
            .extend(
                {
                    "is_dated": "_day IS NOT NULL",
                    "is_early": f"coalesce(_day < {start}, false)",
                    "_said": f"coalesce(last_value(_day) IGNORE NULLS OVER ({in_file} {before}), "
                    f"first_value(_day) IGNORE NULLS OVER ({in_file} {behind}), "
                    f"{_day_of('written_ms', zone)})",
                }
            )
            .replace({"landing_date": f"greatest(_said, {start})"})
            .plan()
        )

    def _record_times(self, rows: DataFrame) -> DataFrame:
        if self.settings.landing.day == "timestamp":
            return rows.selectExpr("file_number", "line", "unix_millis(timestamp) AS time_ms")
        assert self._times is not None  # of who lands
        return self._times(rows)


def _day_of(millis: str, zone: str) -> str:
    instant = f"CAST(timestamp_millis({millis}) AS timestamp_ntz)"
    day = f"CAST(convert_timezone('UTC', {zone}, {instant}) AS date)"
    return f"CASE WHEN {millis} BETWEEN {MIN_MS} AND {MAX_MS} THEN {day} END"


def _recorded(landed: Landed, day: date) -> Mapping[str, Any]:
    """What an earlier run recorded with a day: it stays with it when it lands again."""
    read = landed[day].inputs.get(READ) if day in landed else None
    return {} if read is None else {READ: read}
