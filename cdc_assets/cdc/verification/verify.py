"""`cdc-assets verify`: the rows of a source in one snapshot, against those of the lake as of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from cdc_assets.cdc.config.database import Address
from cdc_assets.cdc.errors import LakeError, SourceError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.checkpoints import Checkpoints, local_checkpoints
from cdc_assets.cdc.names import TableName, quote
from cdc_assets.cdc.sqltext import Query, Sql, literal
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.cdc.stages.contract import AS_USUAL
from cdc_assets.cdc.stages.landing import LandingStage
from cdc_assets.cdc.state.day_types import TableColumns, with_types_of
from cdc_assets.cdc.state.evolution import prepare_columns
from cdc_assets.cdc.state.source_context import gather
from cdc_assets.cdc.state.stage import make_table_day
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.writes import figures_of
from cdc_assets.cdc.verification.columns import Columns, Compared, columns_of
from cdc_assets.cdc.verification.findings import Verification, place
from cdc_assets.cdc.verification.in_motion import LakeRows, rows_as_of
from cdc_assets.cdc.verification.postgres import Snapshot, snapshot_of

EQUAL, DIFFERS = "equal", "differs"
ONLY_IN_SOURCE, ONLY_IN_LAKE, DOUBLED = "only in source", "only in lake", "doubled"
UNFIT = "not comparable"  # equal but for values that the lake's columns can't hold
_EXAMPLES = 10
_DETAILED = 1_000  # rows that differ, of which both sides are looked at
_BETWEEN = 2.0  # seconds


def verify(
    lake: Lake,
    source: str,
    table: str,
    address: Address,
    as_of: date | None = None,
    where: str | None = None,
    sample: int | None = None,
    wait: float = 300.0,
    land: Callable[[Sequence[date]], None] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Verification:
    """Compare a table of the lake with the database that it is of.

    Args:
        lake: the lake.
        source: the source's name.
        table: the table's name in the configuration.
        address: of its PostgreSQL database.
        as_of: the day of the lake's table [default: the newest].
        where: only rows of this condition, which both PostgreSQL and Spark understand.
        sample: only about so many rows, which their keys choose, the same ones each time.
        wait: how long to wait for what the snapshot has and the lake has not (s).
        land: lands and parses what there is of some days, the day that is compared among them
            [default: the source's stages].
        tell: is told what is being done.

    Raises:
        MissingDayError: the day was not made.
        LakeError: the table has no key.
        SourceError: the database can't be read, or the lake does not reach the snapshot in time.
    """
    began = time.monotonic()
    _, day = lake.made_day(source, table, as_of)
    tell(f"taking a snapshot of {address}")
    with snapshot_of(lake.spark, address) as snapshot, local_checkpoints() as checkpoints:
        days = _days_since(lake, day)
        tell("landing what the snapshot has")
        _catch_up(lake, source, days, snapshot, land or _stages(lake, source), wait)
        context = gather(lake, source, [table], days)
        # What landed since on the day itself is no part of its table: an open day is made again.
        make_table_day(lake, source, table, day, context)
        state = lake.table_state(source, table)
        table_day = TableDay(lake, source, table, day, context, state)
        if not table_day.is_keyed:
            raise LakeError(f"{source}.{table} has no key that tells its rows apart")
        columns = with_types_of(table_day, prepare_columns(table_day, is_made=True), days)
        tell("comparing")
        comparison = _Comparison(table_day, columns, snapshot, where, sample, checkpoints)
        found = comparison.run(rows_as_of(table_day, columns, days, snapshot, checkpoints))
    return Verification(
        table=f"{source}.{table}",
        day=str(day),
        against=str(address),
        lsn=snapshot.lsn,
        taken_ms=snapshot.ms,
        seconds=round(time.monotonic() - began, 2),
        **found,
    )


def _stages(lake: Lake, source: str) -> Callable[[Sequence[date]], None]:
    stages = (LandingStage(lake.config, source), ChangesStage(lake.config, source))

    def land(days: Sequence[date]) -> None:
        for stage in stages:
            stage.make(lake, days, AS_USUAL)

    return land


def _days_since(lake: Lake, day: date) -> list[date]:
    return [day + timedelta(days=n) for n in range((lake.config.today() - day).days + 1)]


def _catch_up(
    lake: Lake,
    source: str,
    days: Sequence[date],
    snapshot: Snapshot,
    land: Callable[[Sequence[date]], None],
    wait: float,
) -> None:
    """Land until all has landed that the snapshot has.

    That is so where an event behind it has landed, or where the connector has confirmed a place
    behind it, and what it had sent by then has landed.

    Raises:
        SourceError: it takes too long.
    """
    until = time.monotonic() + wait
    while True:
        confirmed = snapshot.ask(
            "SELECT coalesce(min(confirmed_flush_lsn - '0/0'::pg_lsn), 0)::bigint AS lsn "
            "FROM pg_replication_slots WHERE database = current_database() AND active"
        )[0]["lsn"]
        land(days)
        events = lake.stage_days(source, "changes", days).where("position_basis LIKE 'lsn%'")
        found = events.selectExpr("max(get(position, 0)) AS lsn").first()
        landed = (found.lsn if found else None) or 0
        if int(confirmed) >= snapshot.lsn:
            return
        if landed >= snapshot.lsn:
            # Brokers may have got what is behind it in one topic before what is ahead in another.
            time.sleep(_BETWEEN)
            land(days)
            return
        if time.monotonic() > until:
            raise SourceError(
                f"{snapshot.address}: the snapshot is at {place(snapshot.lsn)}; after {wait:g} s "
                f"{source} has landed up to {place(landed)}, and its connector has confirmed "
                f"{place(int(confirmed))}. Is it running, with heartbeats "
                "(heartbeat.interval.ms)? --wait waits longer"
            )
        time.sleep(_BETWEEN)


@dataclass(frozen=True)
class _Chosen:
    """Which rows are compared: of a condition, and those that a sample chooses on both sides."""

    where: Sql | None
    sample: int | None
    asked: Sql | None = None  # the sample's condition in PostgreSQL
    sampled: Sql | None = None  # and in Spark

    @property
    def source(self) -> Sql | None:
        """The condition in PostgreSQL."""
        return " AND ".join(f"({text})" for text in (self.where, self.asked) if text) or None

    @property
    def told(self) -> str:
        """It in words."""
        told = [f"where {self.where}"] if self.where else []
        if self.sample is not None:
            told.append(f"a sample of about {self.sample} rows")
        return ", ".join(told) or "all"


@dataclass(frozen=True)
class _Comparison:
    """The rows of both sides, by hashes first: values are looked at where these differ."""

    day: TableDay
    columns: TableColumns
    snapshot: Snapshot
    where: str | None
    sample: int | None
    checkpoints: Checkpoints

    def run(self, lake: LakeRows) -> dict[str, Any]:
        compared = self._compared()
        keys = [c for c in compared.compared if c.name in self.columns.key_names]
        if len(keys) < len(self.columns.key_names):
            missing = sorted(set(self.columns.key_names) - {c.name for c in keys})
            why = "; ".join(f"{n}: {compared.left_out.get(n, 'is not there')}" for n in missing)
            raise SourceError(f"{self.day.label}: its key can't be compared: {why}")
        values = [c for c in compared.compared if c not in keys]
        chosen = self._chosen(keys)
        names = [c.name for c in keys]
        unknown = lake.unknown.selectExpr(
            *(f"k.{work} AS {quote(name)}" for name, work in self._key_pairs())
        ).distinct()
        if chosen.sampled is not None:
            unknown = unknown.where(chosen.sampled)
        sent = Query(self._source(compared, chosen.source)).select(
            *(f"{c.source} AS {quote(c.name)}" for c in keys),
            f"{_hash(values, 'source')} AS s_hash",
            f"{' OR '.join(f'({c.is_unfit})' for c in values) or 'false'} AS is_unfit",
            f"array({', '.join(f'CAST({quote(c.name)} AS string)' for c in keys)}) AS asked",
        )
        held = Query(self._lake(lake.rows, chosen)).select(
            *map(quote, names), f"{_hash(values, 'lake')} AS l_hash"
        )
        left, right = (
            side.plan().join(F.broadcast(unknown), names, "left_anti") for side in (sent, held)
        )
        read, counted = Observation(), Observation()
        both = left.observe(read, F.expr("count(*) AS n")).join(right, names, "full")
        what = (
            f"CASE WHEN s_hash IS NULL THEN '{ONLY_IN_LAKE}' WHEN l_hash IS NULL THEN "
            f"'{ONLY_IN_SOURCE}' WHEN s_hash <> l_hash THEN '{DIFFERS}' WHEN is_unfit THEN "
            f"'{UNFIT}' ELSE '{EQUAL}' END"
        )
        told = both.withColumn("what", F.expr(what)).observe(
            counted, F.expr("count(s_hash) AS of_source")
        )
        others = self.checkpoints.add(told.where(f"what <> '{EQUAL}'").drop("s_hash", "l_hash"))
        key = f"struct({', '.join(map(quote, names))})"
        by_what = others.groupBy("what").agg(
            F.expr("count(*) AS rows"), F.expr(f"count(DISTINCT {key}) AS keys")
        )
        counts = {row.what: row for row in by_what.collect()}
        rows, keys_of = (
            {what: row[figure] for what, row in counts.items()} for figure in ("rows", "keys")
        )
        # A key of the source is there once: each more that was joined is of a row in the lake.
        of_source = figures_of(read).get("n", 0)
        doubled = figures_of(counted).get("of_source", 0) - of_source
        unequal = sum(keys_of.get(what, 0) for what in (ONLY_IN_SOURCE, DIFFERS, UNFIT))
        detailed = self._details(compared, keys, values, lake.rows, others)
        if doubled:
            detailed["examples"] += self._doubled(lake.rows, names, chosen)
        unfit = detailed.pop("unfit")
        return {
            "equal": of_source - unequal,
            "differs": keys_of.get(DIFFERS, 0) - unfit,
            "only_in_source": keys_of.get(ONLY_IN_SOURCE, 0),
            "only_in_lake": rows.get(ONLY_IN_LAKE, 0),
            "doubled": doubled,
            "not_comparable": unknown.count() + keys_of.get(UNFIT, 0) + unfit,
            "moved": lake.moved,
            "compared": chosen.told,
            "left_out": dict(compared.left_out),
            **detailed,
        }

    def _compared(self) -> Columns:
        source = self.snapshot.columns(self._name)
        lake = {c.name: c.spark for c in self.columns.own}
        return columns_of(source, lake, self.day.sent.rename, self.day.config.hashed)

    @property
    def _name(self) -> TableName:
        return TableName.parse(self.day.table)

    def _key_pairs(self) -> list[tuple[str, str]]:
        return list(zip(self.columns.key_names, self.columns.key_work, strict=True))

    def _chosen(self, keys: Sequence[Compared]) -> _Chosen:
        """The rows that are compared.

        Raises:
            SourceError: both sides do not write the key alike, so that no sample is the same.
        """
        if self.sample is None:
            return _Chosen(self.where, None)
        if other := [c.name for c in keys if c.as_asked is None]:
            raise SourceError(
                f"{self.day.label}: --sample needs a key of whole numbers, texts, UUIDs or dates; "
                f"{', '.join(other)} is none. Use --where"
            )
        share = self.sample / max(self.snapshot.count(self._name), 1)
        if share >= 1:
            return _Chosen(self.where, None)
        # Rows whose hash has a low start: for the same key on both sides the same.
        last = f"'{int(share * (1 << 32)):08x}'"
        sent = ", ".join(f"({c.asked})::text" for c in keys)
        held = ", ".join(str(c.as_asked) for c in keys)
        return _Chosen(
            self.where,
            self.sample,
            f"md5(convert_to(concat_ws(',', {sent}), 'UTF8')) COLLATE \"C\" < {last}",
            f"md5(CAST(concat_ws(',', {held}) AS binary)) < {last}",
        )

    def _source(
        self, compared: Columns, condition: Sql | None = None, parts: int | None = None
    ) -> DataFrame:
        asked = {c.name: c.asked for c in compared.compared}
        parts = parts or 4 * self.snapshot.spark.sparkContext.defaultParallelism
        return self.snapshot.rows(self._name, asked, condition, parts)

    def _lake(self, rows: DataFrame, chosen: _Chosen | None = None) -> DataFrame:
        """The lake's rows by their own names."""
        values = [c for c in self.columns.own if c.name not in self.columns.key_names]
        keyed = rows.selectExpr(
            *(f"k.{work} AS {quote(name)}" for name, work in self._key_pairs()),
            *(f"{c.work} AS {quote(c.name)}" for c in values),
        )
        for condition in (chosen.where, chosen.sampled) if chosen else ():
            keyed = keyed.where(condition) if condition else keyed
        return keyed

    def _doubled(
        self, rows: DataFrame, names: Sequence[str], chosen: _Chosen
    ) -> list[dict[str, Any]]:
        """Examples of keys that several rows of the lake have."""
        counted = Query(self._lake(rows, chosen)).aggregate([*map(quote, names)], {"n": "count(*)"})
        found = counted.where("n > 1").plan().limit(_EXAMPLES).collect()
        return [{"what": DOUBLED, "key": self._key(row), "columns": {}} for row in found]

    def _key(self, row: Any) -> dict[str, Any] | None:
        """The key of a row, where the source shows it."""
        names = self.columns.key_names
        if not all(self.day.settings.shows_column(self.day.table, name) for name in names):
            return None
        return {name: row[name] for name in names}

    def _details(
        self,
        compared: Columns,
        keys: Sequence[Compared],
        values: Sequence[Compared],
        rows: DataFrame,
        others: DataFrame,
    ) -> dict[str, Any]:
        """Which columns of rows differ, and examples of all that are not equal."""
        columns: dict[str, int] = {}
        examples: list[dict[str, Any]] = []
        unfit: dict[Any, bool] = {}
        differing = others.where(f"what = '{DIFFERS}'").limit(_DETAILED).collect()
        if differing:
            told = self._both(compared, keys, values, rows, [row.asked for row in differing])
            for row in told:
                pairs = {
                    c.name: (row[f"s_{n}"], row[f"l_{n}"])
                    for n, c in enumerate(values)
                    if row[f"d_{n}"]
                }
                key = tuple(row[: len(keys)])
                unfit[key] = unfit.get(key, True) and not pairs
                if not pairs:
                    continue
                for name in pairs:
                    columns[name] = columns.get(name, 0) + 1
                if len(examples) < _EXAMPLES:
                    shown = {
                        name: pair if self.day.settings.shows_column(self.day.table, name) else None
                        for name, pair in pairs.items()
                    }
                    examples.append({"what": DIFFERS, "key": self._key(row), "columns": shown})
        for what in (ONLY_IN_SOURCE, ONLY_IN_LAKE):
            for row in others.where(f"what = '{what}'").limit(_EXAMPLES).collect():
                examples.append({"what": what, "key": self._key(row), "columns": {}})
        return {"columns": columns, "examples": examples, "unfit": sum(unfit.values())}

    def _both(
        self,
        compared: Columns,
        keys: Sequence[Compared],
        values: Sequence[Compared],
        rows: DataFrame,
        asked: Sequence[Sequence[str]],
    ) -> list[Any]:
        """The rows of some keys on both sides, with which of their columns differ."""
        asked_key = ", ".join(f"({c.asked})::text" for c in keys)
        listed = ", ".join(f"({', '.join(map(_pg_text, key))})" for key in asked)
        sent = self._source(compared, f"({asked_key}) IN ({listed})", parts=1)
        left = sent.selectExpr(
            *(f"{c.source} AS {quote(c.name)}" for c in keys),
            *(f"{c.source} AS a_{n}" for n, c in enumerate(values)),
            *(f"{c.is_unfit} AS u_{n}" for n, c in enumerate(values)),
        )
        right = self._lake(rows).selectExpr(
            *(quote(c.name) for c in keys), *(f"{c.lake} AS b_{n}" for n, c in enumerate(values))
        )
        both = right.join(F.broadcast(left), [c.name for c in keys])
        return both.selectExpr(
            *(quote(c.name) for c in keys),
            *(f"NOT a_{n} <=> b_{n} AND NOT u_{n} AS d_{n}" for n in range(len(values))),
            *(f"CAST(a_{n} AS string) AS s_{n}" for n in range(len(values))),
            *(f"CAST(b_{n} AS string) AS l_{n}" for n in range(len(values))),
        ).collect()


def _hash(columns: Sequence[Compared], side: str) -> Sql:
    """A number that is the same for the same values, and another one where one is null instead."""
    values = [getattr(c, side) for c in columns]
    parts = [part for value in values for part in (f"{value} IS NULL", value)]
    return f"xxhash64({', '.join(parts) or literal('')})"


def _pg_text(text: str) -> Sql:
    """A text as PostgreSQL's literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"
