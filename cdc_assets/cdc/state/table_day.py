"""One day of one table: what metadata says of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame

from cdc_assets.cdc.config import DELETED_AT, SourceConfig, TableConfig
from cdc_assets.cdc.earlier_positions import (
    basis_today,
    from_earlier,
    from_earlier_sql,
    is_earlier,
    is_vague_today,
)
from cdc_assets.cdc.envelopes.declared import DECLARED
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import KEEPS_DELETED, REPORT, TableState
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.positions import (
    KEYS_CHECKED_LATE,
    is_all_after,
    is_placed_by_kafka,
)
from cdc_assets.cdc.spark import is_small
from cdc_assets.cdc.sqltext import Sql, case, literal
from cdc_assets.cdc.state.day_inputs import DayInputs
from cdc_assets.cdc.state.epochs import TableEpochs
from cdc_assets.cdc.state.renaming import at_in_lake
from cdc_assets.cdc.state.snapshots import (
    Snapshot,
    SnapshotsOnDay,
    reading_of,
    snapshot_of,
    snapshots_on,
)
from cdc_assets.cdc.state.source_context import (
    DayFacts,
    SourceContext,
    bases_of,
    pair_window_of,
    window_of,
)

POSITION, SOURCE_TS, LANDED = "_cdc_position", "_cdc_source_ts_ms", "_cdc_landing_date"
# A row of the table is read and written again in a quarter of the time that an event takes.
_ROWS_AN_EVENT = 4
REWRITTEN_BYTES = 4_000_000


class TableDay:
    """A day of a table, with the table's metadata as it was read once.

    Args:
        state: what the table's metadata says, None where there is no table yet.
    """

    def __init__(
        self,
        lake: Lake,
        source: str,
        table: str,
        day: date,
        context: SourceContext,
        state: TableState | None,
    ) -> None:
        self.source, self.table, self.day = source, table, day
        self._reports: dict[date, dict[str, Any]] = {}
        self.context, self.state = context, state
        self.settings: SourceConfig = lake.config.source(source)
        self.sent: TableConfig = self.settings.tables[table]  # by the names in messages
        self.config: TableConfig = self.sent.in_lake
        self.inputs = DayInputs(lake.config, source, table, day, context.commits, state)
        self.start = self.inputs.start
        self.window = window_of(lake.config, source, day)
        self.pair_window = pair_window_of(lake.config, source, day)
        self._is_kafka = self._is_placed_by_kafka()
        self.database = self._database()
        self.day_facts = self.facts_on(day)
        self.past = [self.facts_on(d) for d in self.window]
        self.identifier = lake.state(source, TableName.parse(table))
        self.label = f"{source}.{table}"
        work = self._work()
        self.lake = lake.for_rows(work)
        # What stays as it was is written again, too: so the table must be small itself.
        self.is_rewritten = is_small(work) and self._stands("total-files-size") <= REWRITTEN_BYTES

    def _work(self) -> int:
        """At most how many events are read for the day, or rows of the table for as much work."""
        read: list[DayFacts] = [self.day_facts, *(self.past if self.looks_back else ())]
        events = sum(facts.events for facts in read)
        return events + self._stands("total-records") // _ROWS_AN_EVENT

    def _stands(self, figure: str) -> int:
        """A total of the table at the end of the day before, by its commit's summary."""
        summary = self.state.day_summary(self.day - timedelta(days=1)) if self.state else {}
        return int(summary.get(figure, 0))

    @cached_property
    def has_leaves(self) -> bool:
        """Whether other tables go into it (R8)."""
        return bool(self.settings.leaves_of(self.table))

    @property
    def is_keyed(self) -> bool:
        """Whether rows are told apart by a key."""
        return self.config.key not in ("none", "row")

    # --- what it starts from

    @cached_property
    def base(self) -> int | None:
        """The snapshot that the day starts from, None for the first day.

        Raises:
            MissingDayError: the day before has expired, or the one before the `late_days`
                window.
        """
        if self.day <= self.start or self.state is None:
            return None
        before = self.day - timedelta(days=1)
        for needed in (before, min([self.day, *self.window]) - timedelta(days=1)):
            if needed >= self.start and self.state.is_expired(needed):
                raise self.inputs.missing(needed)
        return self.state.tags[before]

    @property
    def starts_empty(self) -> bool:
        """Whether no row stands in the table at the end of the day before."""
        if self.base is None or self.state is None:
            return True
        return self.state.snapshots[self.base].summary.get("total-records") == "0"

    @property
    def rows_before(self) -> int:
        """The rows of the table at the end of the day before."""
        return int(self._before.get("rows", 0))

    def report_on(self, day: date) -> dict[str, Any]:
        """What a published day came to; empty where it is not published.

        `highest` is of today's form, `bases` are as they were.
        """
        if day not in self._reports:
            self._reports[day] = self._read_report(day)
        return self._reports[day]

    def _read_report(self, day: date) -> dict[str, Any]:
        summary = self.state.day_summary(day) if self.state and day >= self.start else {}
        found: dict[str, Any] = json.loads(summary.get(REPORT, "{}"))
        if highest := found.get("highest"):
            basis = found["bases"].get(str(highest[0]))
            if is_earlier(basis):
                found["highest"] = from_earlier(highest, basis, self._is_kafka)
        return found

    # --- whose its events are

    def _database(self) -> str | None:
        """The database that the table is of; None where no event has said one, or several did.

        It is that of its first events (D4), which each day's report says again.
        """
        recorded: str | None = self._before.get("database")
        return recorded or (self.databases[0] if len(self.databases) == 1 else None)

    @property
    def databases(self) -> list[str]:
        """The databases that events of the day and of those looked back on name."""
        return sorted({db for d in [*self.window, self.day] for db in self._landed_on(d).databases})

    @property
    def other_databases(self) -> dict[str, int]:
        """Events of the day that are of other databases than the table, by database."""
        found = self._landed_on(self.day).databases
        return {db: events for db, events in found.items() if db != self.database}

    def _landed_on(self, day: date) -> DayFacts:
        return self.context.days.get((self.table, day), DayFacts())

    # --- rows whose position has the earlier form

    def _is_placed_by_kafka(self) -> bool:
        """Does the Kafka timestamp stand in for the source time, which no event has any more?"""
        known = (self.context.days.get((self.table, d)) for d in [*self.window, self.day])
        bases = {r.basis for facts in known if facts for r in facts.ranges}
        today = {basis for basis in bases if not is_earlier(basis)}
        if today:
            return any(map(is_placed_by_kafka, today))
        return DECLARED[self.settings.format].may_lack_positions

    @cached_property
    def earlier_rows(self) -> tuple[date, dict[int, str]] | None:
        """The last day whose rows have positions of the earlier form, and their bases by epoch.

        None where neither the table nor what it was on a day that is looked back on has such a row.
        A small table is written anew on its first day of today; its days before are read, too.
        """
        first = self.day
        for _ in range(3):  # as far as a transaction may reach back
            first = min([first, *self.window_before(first)])
        for n in range(1, max((self.day - first).days, 1) + 1):
            day = self.day - timedelta(days=n)
            report = self.report_on(day)
            bases = {int(epoch): basis for epoch, basis in report.get("bases", {}).items()}
            if any(is_earlier(basis) for basis in bases.values()):
                return day, bases
            if until := report.get("earlier_until"):
                earlier = {int(epoch): basis for epoch, basis in report["earlier_bases"].items()}
                return date.fromisoformat(until), earlier
        return None

    def at(self, snapshot: int) -> DataFrame:
        """The table as of a snapshot, its columns by their names of today.

        Deleted rows that it keeps are none of its rows.
        """
        rows = self.at_with_deleted(snapshot)
        return rows.where(f"{DELETED_AT} IS NULL") if DELETED_AT in rows.columns else rows

    def at_with_deleted(self, snapshot: int) -> DataFrame:
        """As :meth:`at`, and the deleted rows that it keeps."""
        return at_in_lake(self.lake.at(self.identifier, snapshot), self.sent.rename)

    @property
    def may_hold_deleted(self) -> bool:
        """Whether deleted rows may be among those of the table."""
        return self.state is not None and KEEPS_DELETED in self.state.properties

    def position_of(self, row: Sql) -> Sql:
        """The position of a row of the table, in today's form."""
        position, landed = f"{row}.{POSITION}", f"{row}.{LANDED}"
        if self.earlier_rows is None:
            return position
        until, bases = self.earlier_rows
        time = "0L" if self._is_kafka else None
        turned = (
            (f"get({position}, 0) = {epoch}L", from_earlier_sql(position, basis, time))
            for epoch, basis in bases.items()
            if is_earlier(basis)
        )
        is_earlier_row = f"{landed} <= {literal(until)}"
        return case((is_earlier_row, case(*turned, otherwise=position)), otherwise=position)

    def rows_in(self, table: Sql) -> Sql:
        """The rows of the table, or of its branch, with positions of today's form: a relation.

        Deleted rows that it keeps are none of its rows.
        """
        if self.may_hold_deleted:
            table = f"(SELECT * FROM {table} WHERE {DELETED_AT} IS NULL)"
        if self.earlier_rows is None:
            return table
        return (
            f"(SELECT * EXCEPT ({POSITION}), {self.position_of('rows_in')} AS {POSITION} "
            f"FROM {table} AS rows_in)"
        )

    # --- what its events are

    def facts_on(self, day: date) -> DayFacts:
        """What metadata says of the table's events on a day, positions in today's form."""
        landed = self._landed_on(day).in_database(self.database).in_lake(self.sent)
        facts = landed.in_todays_form(self._is_kafka)
        if day == self.day or not self.removed_unread_on(day):
            return facts
        return replace(facts, removals=facts.removals + 1)  # no event has them

    # --- snapshots (R7)

    @cached_property
    def snapshots(self) -> SnapshotsOnDay:
        """The snapshots of the table on the day."""
        marks = self.context.marks.get(self.day, ())
        reading = tuple(map(reading_of, self._before.get("reading") or ()))
        if not marks or self.is_of_other_databases([self.day]):
            return SnapshotsOnDay(reading=reading)
        past = [mark for d in self.window for mark in self.context.marks.get(d, ())]
        near = [self.day, *self.window[-1:]]
        unmarked = [self._landed_on(d).last_unmarked_ms for d in near]
        last = None if None in unmarked else max(ms for ms in unmarked if ms is not None)
        return snapshots_on(self.table, marks, past, reading, last)

    @property
    def may_leave_unread(self) -> bool:
        """May rows have been there before a snapshot that ended on the day?"""
        ended = self.snapshots.ended
        if not self.starts_empty or len(ended) > 1:
            return bool(ended)
        if not ended or ended[0].first.day < self.day:
            return bool(ended)
        first = ended[0].first
        return not all(
            own.first_offset >= first.offset
            if (own.topic, own.partition) == (first.topic, first.partition)
            else own.first_ms is None or own.first_ms >= first.ms
            for own in self._landed_on(self.day).arrivals
        )

    def removed_unread_on(self, day: date) -> list[Snapshot]:
        """The snapshots after which rows that they did not read were removed on a made day."""
        found = self.report_on(day).get("snapshot") or {}
        return list(map(snapshot_of, found["ended"])) if found.get("removed") else []

    # --- what its events ask for

    @property
    def may_be_unsent(self) -> bool:
        """Whether an event of the day may leave a column as it was (R1, R2)."""
        return self.day_facts.maybe_unchanged > 0 or self.settings.missing_columns == "keep"

    @property
    def has_split_updates(self) -> bool:
        """Whether the day, or one of those that it looks back on, has halves of split updates."""
        return any(facts.split_updates for facts in [self.day_facts, *self.past])

    @property
    def looks_back(self) -> bool:
        """Whether events of the days before may be read, not only what metadata says of them."""
        if not self.is_keyed or self.has_split_updates:
            return True
        return not self.is_all_after or self.may_be_unsent or self.may_repeat_earlier

    @property
    def days_read(self) -> list[date]:
        """The days whose events are read, oldest first, the day itself among them."""
        first = min([self.day, *self.open_transactions.values()])
        if self.looks_back or first < self.day:
            first = min([first, *self.window_before(first)])
        return self.days_from(first)

    @cached_property
    def bases(self) -> dict[int, str]:
        """What the table's positions are made of in each epoch, by the end of the day (O8)."""
        known = {
            int(epoch): basis_today(basis, self._is_kafka)
            for epoch, basis in self._before.get("bases", {}).items()
        }
        return bases_of([*self.past, self.day_facts], known)

    @property
    def highest(self) -> list[int] | None:
        """The highest position that has landed by the end of the day."""
        known = [self.highest_before, list(self.day_facts.highest(self.bases) or ())]
        return max((p for p in known if p), default=None)

    @property
    def highest_before(self) -> list[int] | None:
        """The highest position that had landed by the end of the day before."""
        highest: list[int] | None = self._before.get("highest")
        return highest

    @cached_property
    def is_all_after(self) -> bool:
        """Does each event of the day stand after all that landed before it?"""
        own = self.day_facts.ranges_on(self.bases)
        return sum(r.count for r in own) == self.day_facts.events and not self.may_meet_earlier

    @cached_property
    def may_meet_earlier(self) -> bool:
        """May a position of the day stand before one that landed earlier, or tie with it?"""
        own = self.day_facts.ranges_on(self.bases)
        if len(own) < len(self.day_facts.ranges):
            return True
        if not own:
            return False
        before: list[Sequence[int] | None] = [self.highest_before]
        before += [facts.highest(self.bases) for facts in self.past]
        if not any(before):
            return False
        sent = (self.context.days.get((self.table, d), DayFacts()) for d in self.window)
        bases = self._before.get("bases", {}).values()
        if any(facts.is_vague for facts in sent) or any(map(is_vague_today, bases)):
            return True
        return not all(is_all_after(r.lowest, p) for r in own for p in before if p)

    @cached_property
    def last_source_time(self) -> int | None:
        """The last time at the source that landed on the days looked back on (ms), if known."""
        times = [facts.source_times for facts in self.past if facts.ranges]
        return None if None in times else max((t[1] for t in times if t), default=-1)

    @cached_property
    def may_repeat_earlier(self) -> bool:
        """May an event of the day be a copy of one that landed before (O15)?"""
        if not all(is_placed_by_kafka(r.basis) for r in self.day_facts.ranges):
            return self.may_meet_earlier
        if self.settings.format == "canal" or not self.day_facts.ranges:
            return False  # nothing tells a copy
        # A Kafka timestamp that stands in tells nothing of copies: these have the source's time.
        first = self.day_facts.source_times
        if self.last_source_time is None or first is None:
            return any(facts.ranges for facts in self.past)
        return first[0] <= self.last_source_time

    @property
    def may_have_copies(self) -> bool:
        """May an event of the day be a copy of another one (O15)?"""
        is_alone = self.day_facts.is_order_known and not self.day_facts.tied
        return not is_alone or self.may_repeat_earlier

    @property
    def may_hold_keys_twice(self) -> bool:
        """May rows arrive at a key before its own row leaves (O16)?"""
        may_cross = self.day_facts.crossed > 0 or not self.day_facts.is_order_known
        return self.is_late_checked and (may_cross or bool(self.open_transactions))

    @cached_property
    def is_late_checked(self) -> bool:
        """Does the table's database check keys at the end of a statement or transaction (O16)?"""
        days = [*self.past, self.day_facts]
        if any(facts.lanes for facts in days):
            return True
        bases = [r.basis for facts in days for r in facts.ranges]
        return any(basis.split(",")[0] in KEYS_CHECKED_LATE for basis in bases)

    @cached_property
    def open_transactions(self) -> dict[int, date]:
        """Transactions of the day that began on an earlier one (O16).

        They are those of the last event, or of the highest position, of a partition on an earlier
        day: the hash of each, and the day from which its keys are folded.

        Raises:
            MissingDayError: the day before that one has expired.
        """
        found: dict[int, date] = {}
        begin = {tx for lane in self.day_facts.lanes for tx in (lane.first_tx, lane.lowest_tx)}
        for tx in self._ends_before(self.day):
            # A redelivery may begin with another one: then the day's events are asked.
            if self.may_meet_earlier or tx in begin:
                found[tx] = self._fold_from(self._first_day(tx))
        return found

    def _fold_from(self, first: date) -> date:
        """The day from which keys are folded that hold a transaction which began on `first`.

        Another transaction may be cut by that day's beginning, and so on.
        """
        days = self.days_from(first)
        ends = self._ends_before(first)
        begins = [
            self._first_day(tx)
            for d in days
            for lane in self.facts_on(d).lanes
            for tx in {lane.first_tx, lane.lowest_tx, lane.last_tx, lane.highest_tx} & ends
        ]
        earliest = max(min([first, *begins]), self.start)
        if earliest < first:
            return self._fold_from(earliest)
        first = max(first, self.start)
        before = first - timedelta(days=1)
        if first > self.start and self.state is not None and self.state.is_expired(before):
            raise self.inputs.missing(before)
        return first

    def _ends_before(self, day: date) -> set[int]:
        """The transactions at the ends of partitions in the `late_days` before a day."""
        return {
            tx
            for d in self.window_before(day)
            for lane in self.facts_on(d).lanes
            for tx in (lane.last_tx, lane.highest_tx)
        }

    def _first_day(self, tx: int) -> date:
        """The first day at whose end a transaction was open, as far as each window reaches."""
        first = self.day
        while True:
            earlier = [
                d
                for d in self.window_before(first)
                for lane in self.facts_on(d).lanes
                if tx in (lane.last_tx, lane.highest_tx)
            ]
            if not earlier:
                return first
            first = min(earlier)

    def days_from(self, first: date) -> list[date]:
        """The days from one on up to the day itself."""
        return [first + timedelta(days=n) for n in range((self.day - first).days + 1)]

    def window_since_start(self, day: date) -> list[date]:
        """Those of the `late_days` before a day whose events the table has met."""
        return [d for d in self.window_before(day) if d >= self.start and self.facts_on(d).events]

    def window_before(self, day: date) -> list[date]:
        """The `late_days` before a day, oldest first."""
        return window_of(self.inputs.config, self.source, day)

    @property
    def _before(self) -> dict[str, Any]:
        return self.report_on(self.day - timedelta(days=1))

    def has_earlier_changes(self, days: Sequence[date]) -> bool:
        """Has `changes` positions of the earlier form on some days?"""
        known = [facts for d in days if (facts := self.context.days.get((self.table, d)))]
        return any(is_earlier(r.basis) for facts in known for r in facts.ranges)

    def truncated(self, days: Sequence[date]) -> list[int] | None:
        """The position of the highest truncate that landed on some days, None where none did."""
        found = (facts.truncated(self.bases) for facts in self.facts_on_days(days))
        return max((position for position in found if position), default=None)

    def truncated_leaves(self, days: Sequence[date]) -> dict[str, list[int]]:
        """The position of the highest truncate of each leaf that landed on some days (R8)."""
        found: dict[str, list[int]] = {}
        for facts in self.facts_on_days(days):
            for leaf, position in facts.truncated_leaves(self.bases).items():
                found[leaf] = max(found.get(leaf, position), position)
        return found

    @property
    def epochs(self) -> TableEpochs | None:
        """The epochs of the table; None: position_reset names them."""
        epochs = self.context.epochs
        return None if epochs is None else epochs.for_table(self.table)

    def is_of_other_databases(self, days: Iterable[date]) -> bool:
        """Whether events of some days name other databases than the table's."""
        return any(self._landed_on(d).databases.keys() - {self.database} for d in days)

    def facts_on_days(self, days: Sequence[date]) -> list[DayFacts]:
        """What metadata says of the table's events on some days; nothing of days without any."""
        return [self.facts_on(day) for day in days if (self.table, day) in self.context.days]
