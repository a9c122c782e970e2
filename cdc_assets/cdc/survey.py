"""What the days of a run need to know before they are made, read in few jobs for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

from pyspark.sql import Row
from pyspark.sql import functions as F

from cdc_assets.cdc import changes
from cdc_assets.cdc.envelopes.dataworks import BEFORE_OPS
from cdc_assets.cdc.lake import DayCommit, Lake
from cdc_assets.cdc.placeholders import placeholder_forms
from cdc_assets.cdc.positions import SOURCE_TIME
from cdc_assets.cdc.types import Columns


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


def bases_of(surveys: Iterable[Survey], known: Mapping[int, str]) -> dict[int, str]:
    """The basis of a table's positions in each epoch (FORMATS O8).

    That of most events of the first day that has any; where two are as many, not the source time.

    Args:
        surveys: of some days, oldest first.
        known: what is settled by earlier days.
    """
    bases = dict(known)
    for survey in surveys:
        new = [r for r in survey.ranges if r.epoch not in bases]
        for found in sorted(new, key=lambda r: (r.count, r.basis != SOURCE_TIME, r.basis)):
            bases[found.epoch] = found.basis
    return bases


@dataclass(frozen=True)
class Survey:
    """What a day holds for one table: the facts that choose the plan of its merge."""

    events: int = 0
    ops: Mapping[str, int] = field(default_factory=dict)
    truncates: int = 0
    without_position: int = 0
    tombstones: int = 0
    removals: int = 0
    halves: int = 0
    maybe_unchanged: int = 0
    without_schema: int = 0
    schema_ids: tuple[str, ...] = ()  # that of most events first
    key_names: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[PositionRange, ...] = ()

    def of_bases(self, of_table: Mapping[int, str]) -> list[PositionRange]:
        """The positions that can be compared with the table's (FORMATS O8)."""
        return [r for r in self.ranges if of_table.get(r.epoch) == r.basis]

    def lowest(self, of_table: Mapping[int, str]) -> tuple[int, ...] | None:
        """The lowest position of the table's own bases."""
        return min((r.lowest for r in self.of_bases(of_table)), default=None)

    def highest(self, of_table: Mapping[int, str]) -> tuple[int, ...] | None:
        """The highest position of the table's own bases."""
        return max((r.highest for r in self.of_bases(of_table)), default=None)


@dataclass(frozen=True)
class Facts:
    """What the days of a run need to know of their source, read once for all of them."""

    surveys: Mapping[tuple[str, date], Survey]
    schemas: changes.KnownSchemas
    commits: Mapping[str, Mapping[date, DayCommit]]

    def columns_of(self, table: str, days: Iterable[date]) -> Columns:
        """The columns that the message schemas of some days name."""
        ids = {i for day in days for i in self.surveys.get((table, day), Survey()).schema_ids}
        found: Columns = {}
        for schema_id in sorted(ids):
            found.update(self.schemas.columns[table, schema_id])
        return found


def gather(lake: Lake, name: str, tables: Iterable[str], days: Sequence[date]) -> Facts:
    """Read the facts for some tables and days: two Spark jobs, however many there are."""
    listed = list(tables)
    return Facts(
        survey(lake, name, listed, days),
        changes.known_schemas(lake, name, listed),
        {
            table: lake.day_commits(lake.stage(name, table))
            for table in ("landing", "changes", "control", "quarantine")
        },
    )


def window_of(lake: Lake, name: str, day: date) -> list[date]:
    """The days whose changes a day looks back on (O12), oldest first, without the day."""
    first = max(lake.config.start_date, day - timedelta(days=lake.config.source(name).late_days))
    return [first + timedelta(days=i) for i in range((day - first).days)]


def pair_window_of(lake: Lake, name: str, day: date) -> list[date]:
    """The days that hold halves of updates completed on the days looked back on (W2).

    The first half of an update that was completed in the window may be older than the window.
    """
    days = window_of(lake, name, day)
    if not days or lake.config.source(name).format != "dataworks":
        return days
    return [*window_of(lake, name, days[0]), *days]


def survey(
    lake: Lake, name: str, tables: Iterable[str], days: Sequence[date]
) -> dict[tuple[str, date], Survey]:
    """Survey the changes of some tables and days in one job, with the days they look back on."""
    source = lake.config.source(name)
    identifier = lake.stage(name, "changes")
    if not days or not lake.exists(identifier):
        return {}
    first = min([days[0], *window_of(lake, name, days[0])])
    forms = placeholder_forms(source.unavailable_value)
    has_form = F.lit(False)
    for form in forms:
        has_form = has_form | F.col("after").contains(form)
    is_half = F.col("source_op").isin(*BEFORE_OPS)
    is_second = (F.col("source_op") == "UPDATE_AFTER") & F.col("before").isNull()
    rows = (
        lake.spark.table(identifier)
        .where(
            F.col("landing_date").between(F.lit(first), F.lit(days[-1]))
            & F.col("table_name").isin(list(tables))
        )
        .groupBy(
            "table_name",
            "landing_date",
            F.get("position", F.lit(0)).alias("epoch"),
            F.when(F.col("position").isNotNull(), F.col("position_basis")).alias("basis"),
            "schema_id",
        )
        .agg(
            F.count("*").alias("events"),
            F.count_if(F.col("op") == "t").alias("truncates"),
            F.count_if(F.col("position").isNull()).alias("without_position"),
            F.count_if(F.col("position").isNull() & (F.col("op") == "d")).alias("tombstones"),
            F.count_if((F.col("op") == "d") | F.col("old_key").isNotNull()).alias("removals"),
            F.count_if(is_half | is_second).alias("halves"),
            F.count_if(has_form).alias("maybe_unchanged"),
            F.count_if(F.col("schema_id").isNull() & F.col("after").isNotNull()).alias(
                "without_schema"
            ),
            F.collect_set(F.json_object_keys("key")).alias("key_names"),
            F.min("position").alias("lowest"),
            F.max("position").alias("highest"),
            *(
                # A split update's first half is no change of its own (W2).
                F.count_if((F.col("op") == op) & ~F.coalesce(is_half, F.lit(False))).alias(
                    f"op_{op}"
                )
                for op in "cudrt"
            ),
        )
        .collect()
    )
    parts: dict[tuple[str, date], list[Row]] = {}
    for row in rows:
        parts.setdefault((row.table_name, row.landing_date), []).append(row)
    return {place: _whole_day(of_day) for place, of_day in parts.items()}


_COUNTED = (
    "events",
    "truncates",
    "without_position",
    "tombstones",
    "removals",
    "halves",
    "maybe_unchanged",
    "without_schema",
)


def _whole_day(parts: Sequence[Row]) -> Survey:
    """One survey of a table's day from those of its epochs and bases."""

    def total(name: str) -> int:
        return sum(part[name] for part in parts)

    ops = {op: total(f"op_{op}") for op in "cudrt"}
    names = {tuple(sorted(names)) for part in parts for names in part.key_names if names}
    schemas: Counter[str] = Counter()
    ranges: dict[tuple[int, str], PositionRange] = {}
    for part in parts:
        if part.schema_id is not None:
            schemas[part.schema_id] += part.events
        if part.epoch is not None:
            place = (part.epoch, part.basis)
            found = PositionRange(*place, part.events, tuple(part.lowest), tuple(part.highest))
            ranges[place] = found.joined(ranges[place]) if place in ranges else found
    return Survey(
        ops={op: count for op, count in ops.items() if count},
        **{name: total(name) for name in _COUNTED},
        schema_ids=tuple(sorted(schemas, key=lambda i: (-schemas[i], i))),
        key_names=tuple(sorted(names)),
        ranges=tuple(ranges.values()),
    )
