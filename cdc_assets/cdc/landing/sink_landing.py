"""A landing of files that a sink left: Kafka Connect's sinks, Event Hubs Capture, Firehose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.landing.file_landing import FileLanding
from cdc_assets.cdc.landing.files import LandedDay, SeenDay
from cdc_assets.cdc.landing.sink_files import SinkDay, SinkFolder
from cdc_assets.cdc.landing.sink_records import SinkRecords
from cdc_assets.cdc.landing.source import DERIVED_OFFSETS, LAYOUT
from cdc_assets.cdc.sqltext import literal

_IS_EMPTY = "key IS NULL AND coalesce(length(value), 0) = 0"


class SinkLanding(FileLanding):
    """Files whose paths say what their records lack; a day lands again when its files changed."""

    def _folder(self) -> SinkFolder:
        return SinkFolder(self.config, self.source)

    def _see(self, days: Sequence[date] | None) -> Mapping[date, SeenDay]:
        return self._folder().see_days(days)

    def _made_of(self, fingerprint: str) -> dict[str, Any]:
        """The files, how they are read, and whether offsets are derived."""
        landing = self.settings.landing
        layout = landing.file_layout
        assert layout is not None
        told = [layout.name, layout.template.text, layout.reads, landing.topic or "-", landing.day]
        more = [*landing.fields, landing.encoding or "-", landing.tombstones]
        derived = {} if layout.has_offsets(landing.fields) else {DERIVED_OFFSETS: True}
        return {"files": fingerprint, LAYOUT: " ".join([*told, *more]), **derived}

    def _list(self, lake: Lake, days: Sequence[date]) -> Sequence[LandedDay]:
        try:
            return self._folder().list_days(days)
        except OSError as error:
            raise LandingError(
                self.source,
                f"the landing folder {self.folder} can't be listed ({error}). See that it is there "
                "and that this user may read it",
                self.folder,
            ) from error

    def _refuse_other_layout(self, lake: Lake, found: Sequence[LandedDay]) -> None:
        if not any(day.files for day in found):
            self._folder().refuse_other_layout()

    @contextmanager
    def _reading(
        self, lake: Lake, days: Sequence[LandedDay]
    ) -> Iterator[tuple[DataFrame, Callable[[], Mapping[date, int]]]]:
        found = [day for day in days if isinstance(day, SinkDay)]
        records = SinkRecords(lake.spark, self._folder(), self.settings.max_record_mb << 20)
        rows = records.read(found)
        if not any(day.found for day in found):
            yield rows, dict
            return
        seen = Observation()
        counted = {
            str(at): F.expr(f"count_if({_IS_EMPTY} AND landing_date = {literal(day.day)})")
            for at, day in enumerate(found)
        }
        rows = rows.observe(seen, *(count.alias(name) for name, count in counted.items()))

        def left_out() -> Mapping[date, int]:
            counts = seen.get
            return {day.day: int(counts[str(at)]) for at, day in enumerate(found)}

        yield rows.where(f"NOT ({_IS_EMPTY})"), left_out
