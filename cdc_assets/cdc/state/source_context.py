"""What the days of a run need to know before they are made, read at once for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

from pyspark.sql import Row

from cdc_assets.cdc.changes.earlier_days import known_schemas
from cdc_assets.cdc.changes.facts import ORDER, count_by_epoch, read_facts
from cdc_assets.cdc.changes.message_schemas import KnownSchemas
from cdc_assets.cdc.changes.protected import protected_schemas
from cdc_assets.cdc.changes.snapshot_marks import Mark, marks_by_day
from cdc_assets.cdc.config import Config, TableConfig
from cdc_assets.cdc.earlier_positions import basis_today, from_earlier, is_earlier, is_vague_today
from cdc_assets.cdc.envelopes.formats import FIRST_HALVES, FORMATS, SECOND_HALVES
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayCommit
from cdc_assets.cdc.positions import on_other_basis, stands_in
from cdc_assets.cdc.state.epochs import SourceEpochs
from cdc_assets.cdc.state.judge import TABLE as EPOCHS
from cdc_assets.cdc.state.judge import Commits, days_to_judge, judge, keep, newest_kept
from cdc_assets.cdc.state.renaming import schemas_in_lake
from cdc_assets.cdc.values.column_types import ColumnTypes


@dataclass(frozen=True)
class PositionRange:
    """The positions of one epoch and basis that a table has on a day."""

    epoch: int
    basis: str
    count: int
    lowest: tuple[int, ...]
    highest: tuple[int, ...]

    def joined(self, other: PositionRange) -> PositionRange:
        """This and more positions of the same epoch and basis."""
        return replace(
            self,
            count=self.count + other.count,
            lowest=min(self.lowest, other.lowest),
            highest=max(self.highest, other.highest),
        )

    def in_todays_form(self, is_kafka: bool) -> PositionRange:
        """The same with positions of today's form."""
        if not is_earlier(self.basis):
            return self
        lowest, highest = (
            tuple(from_earlier(position, self.basis, is_kafka))
            for position in (self.lowest, self.highest)
        )
        basis = basis_today(self.basis, is_kafka)
        return replace(self, basis=basis, lowest=lowest, highest=highest)


def bases_of(days: Iterable[DayFacts], known: Mapping[int, str]) -> dict[int, str]:
    """The basis of a table's positions in each epoch (FORMATS O8).

    That of most events of the first day that has any; where two are as many, not what stands in.

    Args:
        days: facts of some days, oldest first.
        known: what is settled by earlier days.
    """
    bases = dict(known)
    for facts in days:
        new = [r for r in facts.ranges if r.epoch not in bases]
        for found in sorted(new, key=lambda r: (r.count, not stands_in(r.basis), r.basis)):
            bases[found.epoch] = found.basis
    return bases


@dataclass(frozen=True)
class Lane:
    """A table's events of a day in one partition of a topic: transactions, as hashes (O16)."""

    first_tx: int
    last_tx: int
    lowest_tx: int
    highest_tx: int


@dataclass(frozen=True)
class Arrival:
    """A table's events of a stream in one partition of a topic: where and when they landed.

    `first_ms` is of those that have a position, None where none has one.
    """

    stream: str
    topic: str
    partition: int
    first_offset: int
    first_ms: int | None
    last_ms: int


@dataclass(frozen=True)
class DayFacts:
    """What a day holds for one table: the facts that choose the plan of its merge."""

    events: int = 0
    ops: Mapping[str, int] = field(default_factory=dict)
    truncates: int = 0  # of the whole table
    without_position: int = 0
    tombstones: int = 0
    key_changes: int = 0  # events that change the key
    removals: int = 0  # these and deletes
    split_updates: int = 0  # first halves that landed
    maybe_unchanged: int = 0
    without_schema: int = 0
    schema_ids: tuple[str, ...] = ()  # that of most events first
    key_names: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[PositionRange, ...] = ()
    truncate_ranges: tuple[PositionRange, ...] = ()
    # Of truncates of tables that go into it (R8), by their names.
    leaf_truncate_ranges: Mapping[str, tuple[PositionRange, ...]] = field(default_factory=dict)
    source_times: tuple[int, int] | None = None  # first and last of events with a position (ms)
    tied: int = 0  # keys with events that nothing of the source tells apart (O15)
    crossed: int = 0  # keys at which rows arrive and leave in one transaction (O16)
    is_paired: bool = True  # each key change by header has its delete and its create (D9)
    is_order_known: bool = True  # false of days made before these were counted
    lanes: tuple[Lane, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    databases: Mapping[str, int] = field(default_factory=dict)  # events of each that one names (D4)
    # When the last read of a snapshot came that has no mark (R7); -1: none did, None: not known.
    last_unmarked_ms: int | None = -1
    parts: tuple[Row, ...] = field(default=(), repr=False, compare=False)  # all facts of the day

    def in_database(self, database: str | None) -> DayFacts:
        """What the events of one database hold, and those that name none; None: all."""
        if database is None or self.databases.keys() <= {database}:
            return self
        return _whole_day(
            [f for f in self.parts if f.destination == ORDER or f.db in (None, database)]
        )

    @property
    def is_vague(self) -> bool:
        """Do lowest and highest positions say nothing of the order of today's positions?"""
        return any(is_vague_today(r.basis) for r in self.ranges)

    def in_lake(self, table: TableConfig) -> DayFacts:
        """The same, with the key's columns by their names in the lake."""
        if not table.rename:
            return self
        keys = {tuple(sorted(map(table.lake_name, names))) for names in self.key_names}
        return replace(self, key_names=tuple(sorted(keys)))

    def in_todays_form(self, is_kafka: bool) -> DayFacts:
        """The same with positions of today's form.

        Args:
            is_kafka: the Kafka timestamp stands in for the source time now (O8).
        """
        if not any(is_earlier(r.basis) for r in self.ranges):
            return self
        return replace(
            self,
            ranges=tuple(r.in_todays_form(is_kafka) for r in self.ranges),
            truncate_ranges=tuple(r.in_todays_form(is_kafka) for r in self.truncate_ranges),
        )

    def ranges_on(self, bases: Mapping[int, str]) -> list[PositionRange]:
        """The positions that can be compared with the table's (FORMATS O8)."""
        return [r for r in self.ranges if bases.get(r.epoch) == r.basis]

    def lowest(self, bases: Mapping[int, str]) -> tuple[int, ...] | None:
        """The lowest position of the table's own bases."""
        return min((r.lowest for r in self.ranges_on(bases)), default=None)

    def highest(self, bases: Mapping[int, str]) -> tuple[int, ...] | None:
        """The highest position of the table's own bases."""
        return max((r.highest for r in self.ranges_on(bases)), default=None)

    def truncated(self, bases: Mapping[int, str]) -> list[int] | None:
        """The highest truncate in the order of the table's positions; None where there is none."""
        return _highest(self.truncate_ranges, bases)

    def truncated_leaves(self, bases: Mapping[int, str]) -> dict[str, list[int]]:
        """The same of the tables that go into it, by their names."""
        found = ((n, _highest(ranges, bases)) for n, ranges in self.leaf_truncate_ranges.items())
        return {name: position for name, position in found if position}


def _highest(ranges: Iterable[PositionRange], bases: Mapping[int, str]) -> list[int] | None:
    places = (
        list(r.highest) if bases.get(r.epoch) == r.basis else on_other_basis(r.highest)
        for r in ranges
    )
    return max(places, default=None)


@dataclass(frozen=True)
class SourceContext:
    """What the days of a run need to know of their source, read once for all of them."""

    days: Mapping[tuple[str, date], DayFacts]
    marks: Mapping[date, Sequence[tuple[str, Mark]]]  # with their tables, of all tables (R7)
    schemas: KnownSchemas
    epochs: SourceEpochs | None  # None: position_reset names them
    commits: Mapping[str, Mapping[date, DayCommit]]

    def columns_of(self, table: str, days: Iterable[date]) -> ColumnTypes:
        """The columns that the message schemas of some days name."""
        ids = {i for day in days for i in self.days.get((table, day), DayFacts()).schema_ids}
        found: ColumnTypes = {}
        for schema_id in sorted(ids):
            found.update(self.schemas.columns[table, schema_id])
        return found


def gather(lake: Lake, source: str, tables: Iterable[str], days: Sequence[date]) -> SourceContext:
    """Read the facts for some tables and days: two Spark jobs, however many there are."""
    listed, settings = list(tables), lake.config.source(source)
    lake = lake.for_rows(0)  # whatever the days hold, what is known of them is little
    changes = lake.day_commits(source, "changes")
    found = read_day_facts(lake, source, listed, days, changes)
    return SourceContext(
        found.days,
        found.marks,
        schemas_in_lake(protected_schemas(known_schemas(lake, source, listed), settings), settings),
        found.epochs,
        {
            "changes": changes,
            **{
                table: lake.day_commits(source, table)
                for table in ("landing", "control", "quarantine", EPOCHS)
            },
        },
    )


def window_of(config: Config, source: str, day: date) -> list[date]:
    """The days whose changes a day looks back on (O12), oldest first, without the day."""
    first = max(config.start_date, day - timedelta(days=config.source(source).late_days))
    return [first + timedelta(days=i) for i in range((day - first).days)]


def pair_window_of(config: Config, source: str, day: date) -> list[date]:
    """The days that hold halves of updates completed in the `late_days` window (W2).

    The first half of an update that was completed in the window may be older than the window.
    """
    days = window_of(config, source, day)
    if not days or not FORMATS[config.source(source).format].first_halves:
        return days
    return [*window_of(config, source, days[0]), *days]


@dataclass(frozen=True)
class FactsOfDays:
    """What days hold for tables, and the epochs of their source (None: they are named).

    `marks` are the reads of all tables at which a snapshot begins or ends, as they arrived.
    """

    days: Mapping[tuple[str, date], DayFacts]
    marks: Mapping[date, Sequence[tuple[str, Mark]]]
    epochs: SourceEpochs | None


def read_day_facts(
    lake: Lake, source: str, tables: Iterable[str], days: Sequence[date], changes: Commits
) -> FactsOfDays:
    """What the days hold for some tables, with the days that they look back on.

    Streams are judged up to the last of the days, and what is found is kept (O11).

    Args:
        changes: the days of `changes`.
    """
    settings, listed = lake.config.source(source), set(tables)
    if not days:
        return FactsOfDays({}, {}, None)
    # Where a transaction began on an earlier day, that day's own window counts, too (O16).
    first = days[0]
    for _ in range(2):
        first = min([first, *window_of(lake.config, source, first)])
    window = [first + timedelta(days=n) for n in range((days[0] - first).days)]
    kept = newest_kept(lake, source, changes) if settings.finds_epochs else None
    to_judge = [] if kept is None else days_to_judge(kept, changes, max(days))
    facts = read_facts(lake, source, sorted({*window, *days, *to_judge}), sorted(listed))
    epochs = None
    if kept is not None:
        epochs = judge(lake, source, kept, to_judge, facts)
        if to_judge:
            keep(lake, source, changes, kept, to_judge[-1], epochs)
    parts: dict[tuple[str, date], list[Row]] = {}
    for fact in facts:
        is_own = fact.table_name in listed and fact.landing_date in {*window, *days}
        if is_own and fact.destination in ("changes", ORDER):
            parts.setdefault((fact.table_name, fact.landing_date), []).append(fact)
    if epochs is not None:
        parts = {place: _in_epochs(lake, source, *place, of, epochs) for place, of in parts.items()}
    of_days = {place: _whole_day(rows) for place, rows in parts.items()}
    return FactsOfDays(of_days, marks_by_day(facts), epochs)


def _in_epochs(
    lake: Lake, source: str, table: str, day: date, facts: list[Row], epochs: SourceEpochs
) -> list[Row]:
    """The facts of a table's day with the epochs that were found; a job where one begins there."""
    table_epochs = epochs.for_table(table)
    if table_epochs.count == 1:
        return facts
    numbers = {
        table_epochs.number_in(
            f.stream,
            f.topic,
            f.partition,
            (f.first_offset, f.last_offset),
            (f.first_kafka_ms, f.last_kafka_ms),
        )
        for f in facts
        if f.topic is not None
        and f.first_kafka_ms is not None
        and table_epochs.comes_from(f.stream)
    }
    if len(numbers) == 1 and None not in numbers:
        return [_with_epoch(fact, numbers.copy().pop()) for fact in facts]
    if not numbers:
        return facts
    order = [fact for fact in facts if fact.destination == ORDER]
    return [*order, *count_by_epoch(lake, source, table, day, table_epochs.sql)]


def _with_epoch(fact: Row, epoch: int | None) -> Row:
    if fact.epoch is None or is_earlier(fact.basis):
        return fact
    return Row(**{**fact.asDict(), "epoch": epoch})


def _whole_day(parts: Sequence[Row]) -> DayFacts:
    """The facts of a table's day, of all its parts."""
    facts = [fact for fact in parts if fact.destination == "changes"]
    order = [fact for fact in parts if fact.destination == ORDER]

    def total(name: str, chosen: Iterable[Row] = facts) -> int:
        return sum(fact[name] for fact in chosen)

    first_halves = [fact for fact in facts if fact.source_op in FIRST_HALVES]
    # A split update's first half is not a change of its own (W2).
    whole = [fact for fact in facts if fact.source_op not in FIRST_HALVES]
    ops = _records_by(whole, "op")
    schemas = _records_by(facts, "schema_id")
    deletes = [fact for fact in facts if fact.op == "d"]
    truncates = [fact for fact in facts if fact.op == "t"]
    of_leaves: dict[str, list[Row]] = {}
    for fact in truncates:
        of_leaves.setdefault(fact.truncated_table or "", []).append(fact)
    of_table = of_leaves.pop("", [])
    leaf_truncates = sum(total("records", of) for of in of_leaves.values())
    key_changes = total("moves", (fact for fact in facts if fact.op != "d"))
    return DayFacts(
        events=total("records"),
        ops={op: ops[op] for op in "cudrt" if ops[op]},
        truncates=total("records", of_table),
        without_position=total("without_position"),
        tombstones=total("without_position", deletes),
        key_changes=key_changes,
        removals=total("records", deletes) + key_changes + leaf_truncates,
        split_updates=total("records", first_halves)
        + total("without_before", (f for f in whole if f.source_op in SECOND_HALVES)),
        maybe_unchanged=total("maybe_unsent"),
        without_schema=total("without_schema"),
        schema_ids=tuple(sorted(schemas, key=lambda i: (-schemas[i], i))),
        key_names=tuple(sorted({tuple(sorted(n)) for fact in facts for n in fact.key_names if n})),
        ranges=_ranges(facts),
        truncate_ranges=_ranges(of_table),
        leaf_truncate_ranges={name: _ranges(of) for name, of in of_leaves.items()},
        source_times=_source_times(facts),
        tied=sum(fact.tied or 0 for fact in order),
        crossed=sum(fact.crossed or 0 for fact in order),
        is_paired=_header_key_changes(facts, "cu") == _header_key_changes(facts, "d"),
        is_order_known=all(fact.key_changes is not None for fact in facts),
        lanes=tuple(_lane(fact) for fact in order if fact.first_tx is not None),
        arrivals=tuple(_arrival(fact) for fact in order if fact.stream is not None),
        databases=dict(sorted(_records_by(facts, "db").items())),
        last_unmarked_ms=None
        if any(fact.unmarked_reads is None for fact in facts)
        else max((f.last_unmarked_ms for f in facts if f.unmarked_reads), default=-1),
        parts=tuple(parts),
    )


def _records_by(facts: Iterable[Row], name: str) -> Counter[str]:
    """Records by the value of a column of the facts, those without one left out."""
    counts: Counter[str] = Counter()
    for fact in facts:
        if fact[name]:
            counts[fact[name]] += fact.records
    return counts


def _header_key_changes(facts: Iterable[Row], ops: str) -> tuple[int, int]:
    """How many events of some ops say by a header that a key changed, and a hash of them all."""
    count, hashed = 0, 0
    for fact in facts:
        if fact.op in ops:
            count += fact.key_changes or 0
            hashed ^= fact.key_change_hash or 0
    return count, hashed


def _lane(fact: Row) -> Lane:
    names = ("first_tx", "last_tx", "lowest_tx", "highest_tx")
    return Lane(*(fact[name] for name in names))


def _arrival(fact: Row) -> Arrival:
    names = ("stream", "topic", "partition", "first_offset", "first_kafka_ms", "last_kafka_ms")
    return Arrival(*(fact[name] for name in names))


def _source_times(facts: Sequence[Row]) -> tuple[int, int] | None:
    """The first and the last time at the source; None where one is not known."""
    placed = [fact for fact in facts if fact.records > fact.without_position]
    first = [fact.first_source_ts_ms for fact in placed]
    last = [fact.last_source_ts_ms for fact in placed]
    return None if not placed or None in (*first, *last) else (min(first), max(last))


def _ranges(facts: Iterable[Row]) -> tuple[PositionRange, ...]:
    ranges: dict[tuple[int, str], PositionRange] = {}
    for fact in facts:
        if fact.epoch is not None:
            place = (fact.epoch, fact.basis)
            # Positions of the earlier form have their epoch in front.
            epoch = () if is_earlier(fact.basis) else (fact.epoch,)
            lowest, highest = (*epoch, *fact.lowest), (*epoch, *fact.highest)
            found = PositionRange(*place, fact.records, lowest, highest)
            ranges[place] = found.joined(ranges[place]) if place in ranges else found
    return tuple(ranges.values())
