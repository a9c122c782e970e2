"""A landing from tables that have a copy of Kafka's records, such as a bronze table of Iceberg.

Days are cut as from Kafka (:mod:`cdc_assets.cdc.landing.kafka_landing`): by offsets, at the first
one whose timestamp is at or after the day's end. Other than Kafka, a copy gets records late, and
twice, and may begin with any offset. Each offset lands once; a record that comes after its day has
landed makes the day stale, and is added to what has landed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.lake import schemas
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.checkpoints import local_checkpoints
from cdc_assets.cdc.lake.commits import DayCommit, DayCommits
from cdc_assets.cdc.landing.kafka_landing import refuse_fewer
from cdc_assets.cdc.landing.kafka_plan import (
    NO_ID,
    ONE_DAY,
    DayRequest,
    Found,
    KafkaDay,
    Range,
    TopicPartition,
    plan,
)
from cdc_assets.cdc.landing.open_tables import open_tables
from cdc_assets.cdc.landing.source import LANDING, TABLE, WatchedLanding, stale_days
from cdc_assets.cdc.landing.source_tables import NEVER, Seen, SourceTable
from cdc_assets.cdc.landing.table_records import TableRecords, Window
from cdc_assets.cdc.reading_progress import expect

Recorded = Mapping[date, KafkaDay]
Places = Mapping[TopicPartition, Row]  # of :meth:`TableRecords.collect_places`


@dataclass(frozen=True)
class _Counted:
    """What is known of the offsets to read."""

    has_strays: bool  # some have timestamps far from their day
    has_copies: bool  # some are there more than once


class TableLanding(WatchedLanding[KafkaDay]):
    """Tables with Kafka's records; a day is closed some minutes after its end."""

    kind = "iceberg"

    @property
    def place(self) -> str:
        return str(self.settings.landing.table_name)

    def changed_days(self, landed: Mapping[date, DayCommit], before_ms: float) -> dict[date, str]:
        """The landed days that got records since; schedules ask for days that have not landed."""
        tables = open_tables(self.config, self.source)
        days = [day for day, commit in landed.items() if commit.inputs.get("closed")]
        late = self._stale(landed, days, tables)
        return dict.fromkeys(late, repr([table.seen.values for table in tables]))

    def inputs(self, days: Sequence[date]) -> dict[date, Mapping[str, Any]]:
        """A closed day, see :meth:`LandingSource.inputs`; an open one may still grow."""
        return {day: {"closed": True} for day in days}

    def stale(self, landed: Mapping[date, DayCommit], days: Sequence[date]) -> list[date]:
        """The days that are not closed, or whose records came after they were.

        Raises:
            LandingError: the tables can't be opened.
        """
        return self._stale(landed, days, None)

    def _stale(
        self,
        landed: Mapping[date, DayCommit],
        days: Sequence[date],
        tables: Sequence[SourceTable] | None,
    ) -> list[date]:
        stale = stale_days(landed, self.inputs(days))
        closed = {
            day: seen
            for day in days
            if day not in stale
            # Maintenance has removed the records of days that are too old.
            and landed[day].removed is None
            and (seen := _seen(landed[day])) is not None
        }
        if not closed:
            return stale
        tables = open_tables(self.config, self.source) if tables is None else tables
        late = {day for table in tables for day in self._late(table, closed)}
        return [day for day in days if day in stale or day in late]

    def _late(
        self, table: SourceTable, closed: Mapping[date, Mapping[str, Seen]]
    ) -> Iterable[date]:
        """The days that a table got records of since they were read from it."""
        seen = {day: tables.get(table.name, NEVER) for day, tables in closed.items()}
        oldest = min(seen.values(), key=lambda s: (s.sequence, s.committed_ms))
        for added in table.appended_since(oldest):
            for day, last in seen.items():
                starts = _millis(self.config.end_of(day - ONE_DAY))
                is_within = added.first_ms < _millis(self.config.end_of(day)) and (
                    added.last_ms >= starts or day == self.config.start_date
                )
                if is_within and added.seen.is_newer(last):
                    yield day

    def land(
        self,
        lake: Lake,
        landed: DayCommits,
        days: Sequence[date],
        force: bool = False,
        allow_loss: bool = False,
    ) -> list[KafkaDay]:
        """See :meth:`LandingSource.land`; `force` reads the tables again for all of a day.

        Raises:
            LandingError: a table can't be read, or a day can't be landed whole and `allow_loss`
                is false.
        """
        recorded = {
            d: known for d, c in landed.items() if (known := KafkaDay.from_inputs(d, c.inputs))
        }
        tables = open_tables(self.config, self.source)
        wanted = list(days) if force else self._stale(landed, days, tables)
        if not allow_loss:
            self._refuse_landed_files([d for d in wanted if d in landed and d not in recorded])
        if wanted:
            window = self._window(wanted)
            records = TableRecords(
                lake.spark, self.source, self.settings.landing, tables, window.first_ms
            )
            self._refuse_unplaced(records)
            places = self._places(records, window, wanted)
            planned = self._plan_days(records, window, wanted, recorded, places, allow_loss)
            counted = self._count(records, window, planned, places)
            expect(rows=sum(day.span for day in planned.values()))
            rows = records.rows(
                None if counted.has_strays else window,
                {day: of.ranges for day, of in planned.items()},
                counted.has_copies,
            )
            seen = {TABLE: {table.name: table.seen.values for table in tables}}
            inputs = {day: {**of.to_inputs(), **seen} for day, of in planned.items()}
            kept = [] if force else [day for day in wanted if day in recorded]
            self._write(lake, landed.head, rows, inputs, kept, force and not allow_loss)
            recorded |= planned
        return [recorded[day] for day in days]

    def _refuse_landed_files(self, days: Sequence[date]) -> None:
        if days:
            raise LandingError(
                self.source,
                f"{', '.join(map(str, days))} landed from files before; the table may have less of "
                "it. Give the source of the table another name, or replace the days with "
                "--allow-loss",
            )

    def _refuse_unplaced(self, records: TableRecords) -> None:
        if (row := records.collect_unplaced()) is not None:
            raise LandingError(
                self.source,
                f"{row.file} has a record without its place in Kafka: topic {row.topic}, partition "
                f"{row.partition}, offset {row.offset}, timestamp {row.timestamp}. No day can be "
                "told for it. Remove such rows from the table",
            )

    def _window(self, days: Sequence[date]) -> Window:
        """The timestamps of these days and some around them: partitions are not in their order."""
        first = min(days)
        starts = None
        if first != self.config.start_date:
            starts = _millis(self.config.end_of(first - 2 * ONE_DAY))
        return Window(starts, _millis(self.config.end_of(max(days) + 2 * ONE_DAY)))

    def _is_over(self, day: date) -> bool:
        settled = self.config.end_of(day) + timedelta(minutes=self.settings.landing.settle_minutes)
        return not self.config.is_open(day) and datetime.now(timezone.utc) >= settled

    def _ends(self, days: Sequence[date]) -> dict[date, int]:
        """The ends of the days and of those before them, in ms."""
        return {d: _millis(self.config.end_of(d)) for end in days for d in (end - ONE_DAY, end)}

    def _places(self, records: TableRecords, window: Window, days: Sequence[date]) -> Places:
        """What the window has of each partition; a job."""
        instants = sorted(set(self._ends(days).values()))
        now_ms = _millis(datetime.now(timezone.utc))
        rows = records.collect_places(window, instants[0], instants, now_ms)
        return {(row.topic, row.partition): row for row in rows}

    def _plan_days(
        self,
        records: TableRecords,
        window: Window,
        days: Sequence[date],
        recorded: Recorded,
        places: Places,
        allow_loss: bool,
    ) -> dict[date, KafkaDay]:
        ends = self._ends(days)
        is_over = {day: self._is_over(day) for day in days}
        instants = sorted(set(ends.values()))
        found = self._find(records, window, sorted(days), instants, recorded, places)
        known, planned = dict(recorded), {}
        for day in sorted(days):
            request = DayRequest(
                day=day,
                start_ms=ends[day - ONE_DAY],
                end_ms=ends[day],
                is_over=is_over[day],
                is_first=day == self.config.start_date,
                recorded=known,
                is_copy=True,
            )
            planned[day] = known[day] = plan(self.source, request, found, allow_loss)
        return planned

    def _find(
        self,
        records: TableRecords,
        window: Window,
        days: Sequence[date],
        instants: Sequence[int],
        recorded: Recorded,
        places: Places,
    ) -> Found:
        """The offsets of each partition, as Kafka would tell them; a job where some are gone."""
        before = _before(days, recorded)
        first = {place: row.first for place, row in places.items()}
        end = {place: row.last + 1 for place, row in places.items()}
        for place, landed in before.items():
            newest = places[place].newest if place in places else None
            if newest is not None and newest + 1 < landed:
                # All records since are below those before: offsets have begun anew.
                end[place] = newest + 1
            else:
                end[place] = max(end.get(place, 0), landed)
            first.setdefault(place, landed)
        # What has landed of the days themselves may be gone from the table.
        for day in days:
            for place, (start, landed) in recorded[day].ranges.items() if day in recorded else ():
                first.setdefault(place, start)
                end[place] = max(end.get(place, 0), landed)
        # Where records seem to be gone, or a partition is new, the whole table says how it begins.
        asked = {p: o for p, o in first.items() if o > before.get(p, 0)}
        if before and asked and window.first_ms is not None:
            first |= records.collect_lowest(asked)
        at = {
            instant: {
                place: (offset, instant)
                for place, row in places.items()
                if (offset := row[f"at_{instant}"]) is not None
            }
            for instant in instants
        }
        return Found({topic: NO_ID for topic, _ in first}, first, end, at)

    def _write(
        self,
        lake: Lake,
        head: int | None,
        rows: DataFrame,
        inputs: Mapping[date, Mapping[str, Any]],
        kept: Sequence[date],
        refuses_fewer: bool,
    ) -> None:
        """Replace the days by these rows; to those in `kept` they are added."""
        identifier = lake.stage(self.source, LANDING)
        with local_checkpoints() as checkpoints:
            if kept:
                assert head is not None  # a recorded day has a commit
                landed = lake.at(identifier, head)
                landed = landed.where(F.col("landing_date").isin([F.lit(d) for d in kept]))
                place = ["landing_date", "topic", "partition", "offset"]
                late = rows.join(landed.select(*place), place, "left_anti")
                rows = landed.select(*schemas.LANDING.names).unionByName(
                    late.select(*schemas.LANDING.names)
                )
            if refuses_fewer:
                rows = checkpoints.add(rows)
                refuse_fewer(
                    self.source, "the table", lake.spark.table(identifier), rows, list(inputs)
                )
            lake.overwrite_days(identifier, rows, inputs, head)

    def _count(
        self, records: TableRecords, window: Window, planned: Recorded, places: Places
    ) -> _Counted:
        """Whether offsets are there twice, and whether some have far other timestamps.

        Jobs tell it, unless the window has each of the offsets once.
        """
        ranges = {day: of.ranges for day, of in planned.items()}
        if all(_has_each_once(places, of) for of in ranges.values()):
            return _Counted(False, False)
        counts = records.collect_counts(window, ranges)
        has_copies = any(row.records > row.offsets for row in counts)
        found = {(r.landing_date, r.topic, r.partition): r.offsets for r in counts}
        gaps: dict[date, dict[TopicPartition, tuple[int, int]]] = {}
        for day, of_day in ranges.items():
            for place, (start, end) in of_day.items():
                if end - start > found.get((day, *place), 0):
                    gaps.setdefault(day, {})[place] = (start, end)
        if not gaps:
            return _Counted(False, has_copies)
        whole = records.collect_counts(None, gaps)
        has_strays = any(
            row.offsets > found.get((row.landing_date, row.topic, row.partition), 0)
            for row in whole
        )
        return _Counted(has_strays, has_copies or any(row.records > row.offsets for row in whole))


def _has_each_once(places: Places, ranges: Mapping[TopicPartition, Range]) -> bool:
    """Whether each offset of the ranges is there once, as all of their partitions are."""
    for place, (start, end) in ranges.items():
        if end > start:
            row = places.get(place)
            if row is None or not row.records == row.offsets == row.last + 1 - row.first:
                return False
            if start < row.first or end > row.last + 1:
                return False
    return True


def _before(days: Sequence[date], recorded: Recorded) -> dict[TopicPartition, int]:
    """The offset that each partition had landed up to before the first of these days."""
    ends: dict[TopicPartition, int] = {}
    for day, known in recorded.items():
        if day < days[0]:
            for place, (_, end) in known.ranges.items():
                ends[place] = max(ends.get(place, 0), end)
    return ends


def _seen(commit: DayCommit) -> dict[str, Seen] | None:
    """The snapshots that a day was read from; None for a day that landed from elsewhere."""
    recorded = commit.inputs.get(TABLE)
    if recorded is None:
        return None
    return {name: Seen.recorded(values) for name, values in recorded.items()}


def _millis(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)
