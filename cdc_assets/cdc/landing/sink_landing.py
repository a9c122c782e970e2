"""A landing of files that a sink left: Kafka Connect's sinks, Event Hubs Capture, Firehose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from cdc_assets.cdc.envelopes.declared import DECLARED
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets.cdc.landing.copied_files import without_copies
from cdc_assets.cdc.landing.file_landing import Counts, FileLanding, Landed
from cdc_assets.cdc.landing.files import LandedDay, SeenDay
from cdc_assets.cdc.landing.sink_files import SinkDay, SinkFolder
from cdc_assets.cdc.landing.sink_records import SinkRecords
from cdc_assets.cdc.landing.source import DERIVED_OFFSETS, LAYOUT

IS_EMPTY = "key IS NULL AND coalesce(length(value), 0) = 0"
# Columns of records that are counted, and what a day's metadata call them.
COUNTED = {
    "is_left_out": "records_left_out",
    "is_early": "records_before_start_date",
    "is_ahead": "records_ahead_of_their_file",
}


class SinkLanding(FileLanding):
    """Files whose paths say what their records lack; a day lands again when its files changed."""

    def _folder(self, landed: Landed) -> SinkFolder:
        return SinkFolder(self.config, self.source)

    def _see(self, days: Sequence[date] | None, landed: Landed) -> Mapping[date, SeenDay]:
        return self._folder(landed).see_days(days)

    def _made_of(self, fingerprint: str) -> dict[str, Any]:
        """The files, how they are read, and whether offsets are derived."""
        landing = self.settings.landing
        layout = landing.file_layout
        assert layout is not None
        told = [layout.name, layout.template.text, layout.reads, landing.topic or "-", landing.day]
        more = [*landing.fields, landing.encoding or "-", landing.tombstones]
        derived = {DERIVED_OFFSETS: True} if landing.derives_offsets else {}
        return {"files": fingerprint, LAYOUT: " ".join([*told, *more]), **derived}

    def _list(self, lake: Lake, landed: Landed, days: Sequence[date]) -> Sequence[LandedDay]:
        return self._list_in(self._folder(landed), days)

    def _list_in(self, folder: SinkFolder, days: Sequence[date]) -> Sequence[LandedDay]:
        try:
            return folder.list_days(days)
        except OSError as error:
            raise LandingError(
                self.source,
                f"the landing folder {self.folder} can't be listed ({error}). See that it is there "
                "and that this user may read it",
                self.folder,
            ) from error

    def _refuse_other_layout(self, lake: Lake, found: Sequence[LandedDay]) -> None:
        if not any(day.files for day in found):
            self._folder({}).refuse_other_layout()

    def _records(self, lake: Lake) -> SinkRecords:
        return SinkRecords(lake.spark, self._folder({}))

    def _rows(self, lake: Lake, days: Sequence[SinkDay]) -> DataFrame:
        """The records of some days, with columns that count some of them (:data:`COUNTED`)."""
        return self._records(lake).read(days).withColumn("is_left_out", F.expr(IS_EMPTY))

    def _without_copies(self, rows: DataFrame) -> tuple[DataFrame, Counts]:
        """Leave out files that repeat another one where nothing but their place orders events.

        Where events have positions, these tell a copy (FORMATS O15).
        """
        declared = DECLARED[self.settings.format]
        if not (declared.may_lack_positions and self.settings.landing.derives_offsets):
            return rows, {}
        return without_copies(rows)

    @contextmanager
    def _reading(
        self, lake: Lake, days: Sequence[LandedDay]
    ) -> Iterator[tuple[DataFrame, Callable[[], Counts]]]:
        found = [day for day in days if isinstance(day, SinkDay)]
        rows = self._rows(lake, found)
        if not any(day.found for day in found):
            yield rows.select(*LANDING.names), dict
            return
        flags = [
            F.count_if(flag).alias(name) for flag, name in COUNTED.items() if flag in rows.columns
        ]
        read, seen = rows, Observation()
        rows = rows.observe(seen, *flags)

        def counts() -> Counts:
            total = seen.get
            if len(found) == 1 or not any(total.values()):
                return {day.day: dict(total) for day in found}
            # Which day they are of is asked only where there are any: the files are read once more.
            by_day = {r.landing_date: r for r in read.groupBy("landing_date").agg(*flags).collect()}
            return {
                day.day: {name: by_day[day.day][name] if day.day in by_day else 0 for name in total}
                for day in found
            }

        yield rows.where("NOT is_left_out").select(*LANDING.names), counts
