"""changes → a table as it stood at the end of a day, published as a tag.

A day starts from the tag of the day before, on a branch of its own; the winner of each key
(highest position) is merged, the branch is audited, and one commit tags it and moves main.
A crash or a failed audit leaves the published days as they were.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DateType, LongType, StructField, StructType

from cdc_assets.cdc import changes, types
from cdc_assets.cdc.config import RESERVED_PREFIX, SourceConfig, TableConfig
from cdc_assets.cdc.envelopes.dataworks import BEFORE_OPS
from cdc_assets.cdc.errors import AuditError, ConfigError, MissingDayError, SchemaDriftError
from cdc_assets.cdc.jsontext import field as json_field
from cdc_assets.cdc.kept import keeping
from cdc_assets.cdc.lake import DayCommit, Lake, TableState, column_ddl, with_retry
from cdc_assets.cdc.names import TableName, column, quote
from cdc_assets.cdc.positions import directly_after, real_part
from cdc_assets.cdc.unchanged import Unchanged, placeholder_forms

log = logging.getLogger(__name__)

# Raised when the making of days changes, so that days made before are made again.
MERGER_VERSION = 1

POSITION, SOURCE_TS, LANDED = "_cdc_position", "_cdc_source_ts_ms", "_cdc_landing_date"
OWN_COLUMNS = StructType(
    [
        StructField(
            POSITION,
            ArrayType(LongType()),
            True,
            {"comment": "position of the event that the row is from"},
        ),
        StructField(SOURCE_TS, LongType(), True, {"comment": "when the source changed it, ms UTC"}),
        StructField(LANDED, DateType(), True, {"comment": "day whose changes wrote the row"}),
    ]
)
INPUTS, REPORT, KEY, INFERRED = "cdc.inputs", "cdc.report", "cdc.key", "cdc.inferred-columns"


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
    schema_ids: tuple[str, ...] = ()
    key_names: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class DayReport:
    """What a day of a table came to."""

    table: str
    day: str
    rows: int = 0
    rows_before: int = 0
    events: int = 0
    ops: Mapping[str, int] = field(default_factory=dict)
    written: int = 0
    removed: int = 0
    bytes_added: int = 0
    files_added: int = 0
    unfit: Mapping[str, Any] = field(default_factory=dict)
    unresolved: int = 0
    incompatible: Sequence[str] = ()
    seconds: float = 0.0
    made: bool = True


@dataclass(frozen=True)
class Facts:
    """What the days of a run need to know of their source, read once for all of them."""

    surveys: Mapping[tuple[str, date], Survey]
    schemas: changes.KnownSchemas
    commits: Mapping[str, Mapping[date, DayCommit]]


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
    rows = (
        lake.spark.table(identifier)
        .where(
            F.col("landing_date").between(F.lit(first), F.lit(days[-1]))
            & F.col("table_name").isin(list(tables))
        )
        .groupBy("table_name", "landing_date")
        .agg(
            F.count("*").alias("events"),
            F.count_if(F.col("op") == "t").alias("truncates"),
            F.count_if(F.col("position").isNull()).alias("without_position"),
            F.count_if(F.col("position").isNull() & (F.col("op") == "d")).alias("tombstones"),
            F.count_if((F.col("op") == "d") | F.col("old_key").isNotNull()).alias("removals"),
            F.count_if(is_half).alias("halves"),
            F.count_if(has_form).alias("maybe_unchanged"),
            F.count_if(F.col("schema_id").isNull() & F.col("after").isNotNull()).alias(
                "without_schema"
            ),
            F.collect_set("schema_id").alias("schema_ids"),
            F.collect_set(F.json_object_keys("key")).alias("key_names"),
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
    found: dict[tuple[str, date], Survey] = {}
    for row in rows:
        facts = row.asDict()
        found[row.table_name, row.landing_date] = Survey(
            events=row.events,
            ops={op: facts[f"op_{op}"] for op in "cudrt" if facts[f"op_{op}"]},
            **{
                k: facts[k]
                for k in (
                    "truncates",
                    "without_position",
                    "tombstones",
                    "removals",
                    "halves",
                    "maybe_unchanged",
                    "without_schema",
                )
            },
            schema_ids=tuple(sorted(row.schema_ids)),
            key_names=tuple(sorted(tuple(sorted(names)) for names in row.key_names if names)),
        )
    return found


# --- the day


class TableDay:
    """One day of one table: reads `changes`, merges on a branch, audits, publishes."""

    def __init__(self, lake: Lake, name: str, table: str, day: date, facts: Facts) -> None:
        self.lake, self.name, self.table, self.day = lake, name, table, day
        self.facts = facts
        self.source: SourceConfig = lake.config.source(name)
        self.config: TableConfig = self.source.tables[table]
        self.start = lake.config.start_of(name, table)
        self.window = [d for d in window_of(lake, name, day) if d >= self.start]
        self.survey = facts.surveys.get((table, day), Survey())
        self.past = [facts.surveys.get((table, d), Survey()) for d in self.window]
        self.identifier = lake.state(name, TableName.parse(table))
        self.label = f"{name}.{table}"

    def make(self, force: bool = False) -> DayReport:
        """Make and publish the day, unless it was already made of the same inputs.

        Raises:
            MissingDayError: the day before, or the day's changes, are not there yet.
            AuditError: the day's audit failed; nothing is published.
            ConfigError: a column can't be in the lake under its name.
            SchemaDriftError: the key's columns or types changed.
        """
        began = time.monotonic()
        state = self.lake.read_state(self.identifier)
        self._check_start(state)
        inputs = self._inputs(state)
        if state and not force:
            summary = state.day_summary(self.day)
            if summary.get(INPUTS) == json.dumps(inputs, sort_keys=True):
                self._mend_main(state)
                return self._report_of(summary)
        self._check_quarantine()
        columns = Columns(self, state)
        columns.prepare()
        branch = self.lake.start_branch(self.identifier, self.day, inputs["day_before"])
        rows_before = self._rows_before(state)
        try:
            figures = self._merge(branch, columns) if self.survey.events else {"rows": rows_before}
        except BaseException:
            self.lake.drop_branch(self.identifier, self.day)
            raise
        report = DayReport(
            table=self.table,
            day=str(self.day),
            rows_before=rows_before,
            events=self.survey.events,
            ops=self.survey.ops,
            incompatible=columns.incompatible,
            seconds=round(time.monotonic() - began, 2),
            **{**figures, **self._written(state)},
        )
        self.lake.seal_branch(
            self.identifier,
            self.day,
            {
                INPUTS: json.dumps(inputs, sort_keys=True),
                REPORT: json.dumps(asdict(report), ensure_ascii=False),
            },
        )
        self.lake.publish(self.identifier, self.day)
        return report

    # --- what the day is made of

    def _check_start(self, state: TableState | None) -> None:
        """A later start would leave days that no run can make again."""
        made = sorted(state.tags) if state else []
        if made and made[0] < self.start:
            raise ConfigError(
                [
                    f"{self.label}: start_date {self.start} is later than {made[0]}, which is "
                    f"made already. Set start_date: {made[0]}, or drop the table first"
                ]
            )

    def _inputs(self, state: TableState | None) -> dict[str, Any]:
        commits = self.facts.commits
        expected = changes.inputs_of(self.lake.config, self.name, commits["landing"], self.day)
        for table in ("quarantine", "control", "changes"):
            if commits[table].get(self.day, DayCommit(0)).inputs != expected:
                raise MissingDayError(
                    f"{self.name}.{table}",
                    self.day,
                    "It is missing, or older than its landing. Materialize it first: "
                    f"cdc-assets run --source {self.name} --from {self.day} --to {self.day}.",
                )
        made_of = {
            str(d): commits["changes"][d].snapshot_id
            for d in [*self.window, self.day]
            if d in commits["changes"]
        }
        return {
            "day_before": self._day_before(state),
            "changes": made_of,
            "rules": self._rules(),
        }

    def _day_before(self, state: TableState | None) -> int | None:
        if self.day <= self.start:
            return None
        tags = state.tags if state else {}
        before = self.day - timedelta(days=1)
        if before not in tags:
            missing = self.start
            while missing in tags:
                missing += timedelta(days=1)
            raise MissingDayError(
                self.label, before, f"Materialize it first, or run --from {missing}."
            )
        return tags[before]

    def _rules(self) -> str:
        rules = [
            MERGER_VERSION,
            changes.rules_fingerprint(self.source),
            self.source.missing_columns,
            self.source.unavailable_value,
            self.source.late_days,
            self.config.rename,
        ]
        return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]

    def _mend_main(self, state: TableState) -> None:
        """main follows the newest tag; a crash between the two is mended here."""
        newest = max(state.tags)
        if state.refs.get("main") != state.tags[newest]:
            with_retry(
                lambda: (
                    self.lake.handle(self.identifier)
                    .manageSnapshots()
                    .replaceBranch("main", state.tags[newest])
                    .commit()
                )
            )

    def _report_of(self, summary: Mapping[str, str]) -> DayReport:
        return DayReport(**{**json.loads(summary[REPORT]), "made": False})

    def _rows_before(self, state: TableState | None) -> int:
        if self.day <= self.start:
            return 0
        summary = state.day_summary(self.day - timedelta(days=1)) if state else {}
        return int(json.loads(summary[REPORT])["rows"]) if REPORT in summary else 0

    def _written(self, before: TableState | None) -> dict[str, int]:
        """What the branch's commits added, of their summaries."""
        state = self.lake.read_state(self.identifier)
        assert state is not None
        old = set(before.snapshots) if before else set()
        new = [s.summary for i, s in state.snapshots.items() if i not in old]

        def total(key: str) -> int:
            return sum(int(summary.get(key, 0)) for summary in new)

        return {
            "written": total("added-records"),
            "removed": total("added-position-deletes") + total("deleted-records"),
            "bytes_added": total("added-files-size"),
            "files_added": total("added-data-files") + total("added-delete-files"),
        }

    def _check_quarantine(self) -> None:
        if self.source.on_quarantine != "block":
            return
        bad = (
            self.lake.spark.table(self.lake.stage(self.name, "quarantine"))
            .where(F.col("landing_date") == F.lit(self.day))
            .groupBy("table_name", "reason")
            .count()
            .collect()
        )
        named = {r.table_name for r in bad}
        if bad and (None in named or self.table in named):
            reasons = ", ".join(sorted(f"{r['count']} {r.reason}" for r in bad))
            raise AuditError(
                self.label,
                self.day,
                f"quarantine holds {reasons} and on_quarantine is block. See "
                f"lake.{self.name}.quarantine; mend the landing, or set on_quarantine: publish.",
            )

    # --- events

    def _events(self, days: Sequence[date]) -> DataFrame:
        return self.lake.spark.table(self.lake.stage(self.name, "changes")).where(
            F.col("landing_date").isin([F.lit(d) for d in days])
            & (F.col("table_name") == self.table)
        )

    def _merge(self, branch: str, columns: Columns) -> dict[str, Any]:
        if self.config.key == "none":
            return self._append(branch, columns)
        keyed = Keyed(self, columns)
        unchanged = Unchanged(
            placeholder=self.source.unavailable_value,
            keep_missing=self.source.missing_columns == "keep",
            maybe=self.survey.maybe_unchanged > 0,
        )
        view = f"cdc_day_{uuid.uuid4().hex}"
        with keeping() as kept:
            # Unsent values are looked for several times in the same moves.
            moves = kept.keep(keyed.moves()) if self.survey.maybe_unchanged else keyed.moves()
            winners = keyed.winners(moves, unchanged)
            rows = kept.keep(columns.typed(winners, unchanged))
            figures = self._values_audit(rows, columns, unchanged, keyed.target())
            truncated = keyed.truncated
            if truncated is not None:
                self._delete_below(branch, truncated)
            rows.createOrReplaceTempView(view)
            try:
                merge = columns.merge_sql(branch, view, unchanged)
                with_retry(lambda: self.lake.spark.sql(merge))
            finally:
                self.lake.spark.catalog.dropTempView(view)
            return {**figures, "rows": self._audit_keys(branch, rows, columns)}

    def _delete_below(self, branch: str, position: Sequence[int]) -> None:
        """D12: a truncate removes every row whose position is lower than its own."""
        # slice() keeps the comparison out of Iceberg's filters, which know no arrays.
        literal = ", ".join(f"{int(n)}L" for n in position)
        with_retry(
            lambda: self.lake.spark.sql(
                f"DELETE FROM {branch} WHERE slice({POSITION}, 1, 64) < array({literal})"
            )
        )

    def _append(self, branch: str, columns: Columns) -> dict[str, Any]:
        """`key: none`: rows are appended; a redelivered row is known by what it is (O14)."""
        events = self._events([*self.window, self.day]).withColumn(
            "elements", F.expr("slice(position, 2, size(position) - 5)")
        )
        truncate = events.where("op = 't'").agg(F.max("position").alias("p")).first()
        floor = truncate.p if truncate else None
        stream = Window.partitionBy("topic", "partition").orderBy("offset")
        broken = ~(
            F.col("elements").eqNullSafe(F.lag("elements").over(stream))
            & (F.col("offset") == F.lag("offset").over(stream) + 1)
        )
        runs = (
            events.where("op IN ('c', 'r')")
            .dropDuplicates(["topic", "partition", "offset"])
            .withColumn("is_start", F.coalesce(broken, F.lit(True)).cast("int"))
            .withColumn("run", F.sum("is_start").over(stream))
        )
        alike = ["topic", "partition", "run", "elements", "after"]
        ordinal = F.row_number().over(Window.partitionBy(*alike).orderBy("offset"))
        identity = Window.partitionBy("elements", "after", "ordinal").orderBy(
            "landing_date", "topic", "partition", "offset"
        )
        # Without source elements every offset is a row.
        first = F.col("elements").isNull() | (F.row_number().over(identity) == 1)
        new = (
            runs.withColumn("ordinal", ordinal)
            .withColumn("is_first", first)
            .where(F.col("is_first") & (F.col("landing_date") == F.lit(self.day)))
        )
        truncates = self._events([self.day]).where("op = 't' AND position IS NOT NULL")
        listed = truncates.agg(
            F.collect_list(F.struct("topic", "partition", "offset", "position")).alias("cuts")
        )
        past = self._truncates_before()
        placed = new.crossJoin(F.broadcast(listed)).withColumn(
            "pos",
            F.coalesce(
                "position",
                directly_after(
                    _latest(_cut_before(), _literal_position(past)),
                    F.col("landing_date"),
                    F.col("partition"),
                    F.col("offset"),
                ),
            ),
        )
        if floor is not None:
            placed = placed.where(F.col("pos") > _literal_position(floor))
        winners = placed.select(
            F.lit(False).alias("is_removal"),
            "pos",
            "after",
            "schema_id",
            "source_ts_ms",
        )
        unchanged = Unchanged(self.source.unavailable_value, keep_missing=False, maybe=False)
        with keeping() as kept:
            rows = kept.keep(columns.typed(winners, unchanged))
            figures = self._values_audit(rows, columns, unchanged, None)
            if floor is not None:
                self._delete_below(branch, floor)
            out = rows.select(
                *(F.col(c.work).alias(c.lake) for c in columns.own),
                F.col("pos").alias(POSITION),
                F.col("source_ts_ms").alias(SOURCE_TS),
                F.lit(self.day).alias(LANDED),
            )
            with_retry(lambda: out.writeTo(branch).append())
        return {**figures, "rows": self.lake.spark.table(branch).count()}

    def _truncates_before(self) -> list[int] | None:
        """The highest truncate that landed on the days looked back on."""
        if not any(s.truncates for s in self.past):
            return None
        row = self._events(self.window).where("op = 't'").agg(F.max("position").alias("p")).first()
        return row.p if row else None

    # --- audit

    def _values_audit(
        self,
        rows: DataFrame,
        columns: Columns,
        unchanged: Unchanged,
        base: DataFrame | None,
    ) -> dict[str, Any]:
        """Count what its columns can't hold (R4), in one pass over the day's rows."""
        unfit = [(c, F.col(c.unfit)) for c in columns.own]
        aggregates = [F.count("*").alias("n")]
        for c, text in unfit:
            aggregates += [
                F.count(text).alias(f"{c.work}_n"),
                F.min(F.substring(text, 1, 60)).alias(f"{c.work}_x"),
            ]
        found = rows.where("NOT is_removal").agg(*aggregates).first()
        assert found is not None
        report = {
            c.lake: {"count": found[f"{c.work}_n"], "example": found[f"{c.work}_x"]}
            for c, _ in unfit
            if found[f"{c.work}_n"]
        }
        for c in columns.own:
            if c.lake in report and c.lake in columns.inferred:
                raise AuditError(
                    self.label,
                    self.day,
                    f"column {c.name!r} was inferred as {c.spark} and can't hold "
                    f"{report[c.lake]['example']} ({report[c.lake]['count']} rows). Say its type "
                    f"in cdc.yaml: sources.{self.name}.tables.{self.table}.columns: "
                    f"{{{json.dumps(c.name, ensure_ascii=False)}: string}}",
                )
        unresolved = 0
        if unchanged.columns:
            unresolved = columns.unresolved(rows, base, unchanged)
        return {"unfit": report, "unresolved": unresolved}

    def _audit_keys(self, branch: str, rows: DataFrame, columns: Columns) -> int:
        """Each key written today stands on the branch exactly once; the branch's row count.

        An upsert's key is there, be it by this day's event or by a row with a higher
        position; keys that were not touched were unique the day before.

        Raises:
            AuditError: a key stands twice, or was lost.
        """
        work = columns.key_work
        written = rows.where("NOT is_removal").select(
            *(F.col(f"k.{w}").alias(w) for w in work), F.lit(1).alias("written")
        )
        on_branch = self.lake.spark.table(branch).select(
            *(column(name).alias(w) for name, w in zip(columns.key_lake, work, strict=True))
        )
        found = (
            on_branch.join(written, work, "left")
            .agg(F.count("*").alias("rows"), F.count("written").alias("hits"))
            .crossJoin(written.agg(F.count("*").alias("expected")))
            .first()
        )
        assert found is not None
        if found.hits != found.expected:
            counted = on_branch.groupBy(*work).count().where("count > 1").limit(5).collect()
            raise AuditError(
                self.label,
                self.day,
                f"{found.expected} keys were written and {found.hits} rows have them; keys that "
                f"stand twice: {[tuple(r) for r in counted] or 'none, some are lost'}",
            )
        return int(found.rows)


def _literal_position(position: Sequence[int] | None) -> Column:
    if position is None:
        return F.lit(None).cast("array<bigint>")
    return F.array(*(F.lit(int(n)).cast("bigint") for n in position))


def _latest(*positions: Column) -> Column:
    """The highest of some positions, null where all are."""
    return F.array_max(F.array(*positions))


def _cut_before() -> Column:
    """The highest truncate of the same partition at a lower offset; `cuts` lists them."""
    earlier = F.filter(
        "cuts",
        lambda t: (
            (t["topic"] == F.col("topic"))
            & (t["partition"] == F.col("partition"))
            & (t["offset"] < F.col("offset"))
        ),
    )
    return F.array_max(F.transform(earlier, lambda t: t["position"]))


# --- columns


@dataclass(frozen=True)
class OwnColumn:
    """A column of the table: its name in messages and in the lake, its type, its work names."""

    name: str
    lake: str
    spark: str
    index: int

    @property
    def work(self) -> str:
        """The value's name in work frames, free of characters that need quoting."""
        return f"c{self.index}"

    @property
    def unfit(self) -> str:
        """The text of a value that the column can't hold, null where it can."""
        return f"x{self.index}"


class Columns:
    """The columns of a table on a day, and how each value of the day is read."""

    def __init__(self, day: TableDay, state: TableState | None) -> None:
        self.day = day
        self.lake = day.lake
        self.state = state
        self.own: list[OwnColumn] = []
        self.inferred: set[str] = set()
        self.incompatible: list[str] = []
        self._by_schema: dict[str | None, types.Columns] = {}
        self.key_names: tuple[str, ...] = ()

    @property
    def key_work(self) -> list[str]:
        """Names of the key's members in work frames."""
        return [f"k{i}" for i in range(len(self.key_names))]

    @property
    def key_lake(self) -> list[str]:
        """Names of the key columns in the lake."""
        return [self._lake_name(name) for name in self.key_names]

    def prepare(self) -> None:
        """Find the day's types, create or alter the table, and fix how values are read."""
        day = self.day
        schemas = day.facts.schemas
        latest = schemas.latest(day.table, day.day)
        configured = types.columns_of_config(day.config.columns)
        found: types.Columns = {}
        oldest_first = sorted(
            day.survey.schema_ids, key=lambda i: (schemas.first_landed[day.table, i], i)
        )
        for schema_id in oldest_first:
            of_schema = schemas.columns[day.table, schema_id]
            self._by_schema[schema_id] = of_schema
            for name, kind in of_schema.items():
                if name in found and types.holds(found[name].spark, kind.spark):
                    continue
                found[name] = kind
        without: types.Columns = {**configured, **latest}
        # A schema that names no columns, such as Lindorm's `{}`, is none (L1).
        blank = [schema_id for schema_id in oldest_first if not self._by_schema[schema_id]]
        if day.survey.without_schema or blank:
            inferred = self._infer(set(without), blank)
            without = {**inferred, **without}
            self.inferred = {self._lake_name(n) for n, k in inferred.items() if k.inferred}
        self._by_schema.update(dict.fromkeys([None, *blank], without))
        for name, kind in {**without, **configured}.items():
            found.setdefault(name, kind)
        self._evolve(found)

    def _lake_name(self, name: str) -> str:
        return self.day.config.rename.get(name, name)

    def _infer(self, known: set[str], blank: Sequence[str]) -> types.Columns:
        has_none = F.col("schema_id").isNull() | F.col("schema_id").isin(list(blank))
        rows = self.day._events([self.day.day]).where(has_none & F.col("after").isNotNull())
        row = rows.agg(F.schema_of_variant_agg(F.try_parse_json("after")).alias("kind")).first()
        inferred = types.columns_of_inference(row.kind if row and row.kind else "")
        return {name: kind for name, kind in inferred.items() if name not in known}

    def _key_names(self, existing: Sequence[str] | None) -> tuple[str, ...]:
        config = self.day.config.key
        if config == "none":
            return ()
        if isinstance(config, tuple):
            if existing is not None and set(existing) != set(config):
                raise ConfigError(
                    [
                        f"sources.{self.day.name}.tables.{self.day.table}.key: got {list(config)}, "
                        f"but the table in the lake is keyed by {list(existing)}. Keep that key, "
                        "or drop the table and make its days again"
                    ]
                )
            return config
        seen = set(self.day.survey.key_names)
        if existing is not None:
            seen.add(tuple(sorted(existing)))
        if len(seen) > 1:
            listed = " and ".join(str(list(names)) for names in sorted(seen))
            raise SchemaDriftError(
                f"{self.day.label} {self.day.day}: message keys name different columns, {listed}. "
                f"Say which are the key: sources.{self.day.name}.tables.{self.day.table}.key: […]"
            )
        return tuple(existing) if existing is not None else next(iter(seen), ())

    def _evolve(self, found: types.Columns) -> None:
        """Create the table, or add and widen columns (R5)."""
        day = self.day
        for name in found:
            if self._lake_name(name).startswith(RESERVED_PREFIX):
                raise ConfigError(
                    [
                        f"{day.label}: the column {name!r} starts with {RESERVED_PREFIX}, which "
                        f"is taken. Give it another name: sources.{day.name}.tables.{day.table}."
                        f"rename: {{{name}: {name.removeprefix(RESERVED_PREFIX)}}}"
                    ]
                )
        lake_types = {self._lake_name(name): kind.spark for name, kind in found.items()}
        if len(lake_types) != len(found):
            raise ConfigError([f"{day.label}: rename gives two columns the same name"])
        state = self.state
        properties = state.properties if state else {}
        stored = json.loads(properties[KEY]) if KEY in properties else None
        self.key_names = self._key_names(stored)
        lake_types.update(self._types_of_bare_keys(lake_types))
        if state is None:
            fields = [StructField(n, DataType.fromDDL(t), True) for n, t in lake_types.items()]
            self.lake.create_state(
                day.name,
                TableName.parse(day.table),
                StructType([*fields, *OWN_COLUMNS.fields]),
                f"{day.label} as it stood at the end of each day: VERSION AS OF '<day>'",
                self._bucket(lake_types),
            )
        existing = self._existing()
        is_altered = self._alter(existing, lake_types)
        inferred = set(json.loads(properties.get(INFERRED, "[]"))) | (
            self.inferred - set(existing) if state else self.inferred
        )
        self.inferred = inferred - {self._lake_name(n) for n in day.config.columns}
        wanted = {INFERRED: json.dumps(sorted(inferred), ensure_ascii=False)}
        if self.key_names:
            wanted[KEY] = json.dumps(list(self.key_names), ensure_ascii=False)
        if any(properties.get(k) != v for k, v in wanted.items()):
            self._set_properties(wanted)
        back = {self._lake_name(name): name for name in [*found, *self.key_names]}
        back.update({to: name for name, to in day.config.rename.items()})
        final = self._existing() if is_altered else existing
        self.own = [OwnColumn(back.get(n, n), n, t, i) for i, (n, t) in enumerate(final.items())]

    def _existing(self) -> dict[str, str]:
        return {
            f.name: f.dataType.simpleString()
            for f in self.lake.spark.table(self.day.identifier).schema.fields
            if not f.name.startswith(RESERVED_PREFIX)
        }

    def _types_of_bare_keys(self, known: Mapping[str, str]) -> dict[str, str]:
        """Types of key columns that no image carried yet, as on a day of deletes alone."""
        missing = [n for n in self.key_names if self._lake_name(n) not in known]
        if not missing or not self.day.survey.events:
            return {}
        rows = self.day._events([self.day.day])
        row = rows.agg(F.schema_of_variant_agg(F.try_parse_json("key")).alias("kind")).first()
        inferred = types.columns_of_inference(row.kind if row and row.kind else "")
        return {self._lake_name(n): inferred[n].spark for n in missing if n in inferred}

    def _bucket(self, lake_types: Mapping[str, str]) -> str | None:
        buckets, keys = self.day.config.bucket, self.key_lake
        if buckets is None or not keys or keys[0] not in lake_types:
            return None
        return f"bucket({buckets}, {quote(keys[0])})"

    def _alter(self, existing: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
        """Add and widen columns; true where something was altered."""
        identifier = self.day.identifier
        statements = []
        last = list(existing)[-1] if existing else None
        keys = set(self.key_lake)
        for name, kind in wanted.items():
            if name not in existing:
                place = f"AFTER {quote(last)}" if last else "FIRST"
                statements.append(f"ADD COLUMN {column_ddl(name, kind)} {place}")
                last = name
            elif types.widened(existing[name], kind):
                statements.append(f"ALTER COLUMN {quote(name)} TYPE {kind}")
            elif not types.holds(existing[name], kind):
                if name in keys:
                    raise SchemaDriftError(
                        f"{self.day.label} {self.day.day}: key column {name!r} is "
                        f"{existing[name]} and now comes as {kind}. Rebuild the table under the "
                        "new type, or say the key's type in columns:."
                    )
                self.incompatible.append(f"{name}: {existing[name]} ← {kind}")
        for statement in statements:
            with_retry(partial(self.lake.spark.sql, f"ALTER TABLE {identifier} {statement}"))
        return bool(statements)

    def _set_properties(self, properties: Mapping[str, str]) -> None:
        def commit() -> None:
            update = self.lake.handle(self.day.identifier).updateProperties()
            for key, value in properties.items():
                update.set(key, value)
            update.commit()

        with_retry(commit)

    # --- values

    def typed(self, winners: DataFrame, unchanged: Unchanged) -> DataFrame:
        """Each winner's row as typed columns `c<i>`, and `x<i>` what a column can't hold."""
        opened = winners.withColumn("row", F.try_parse_json("after"))
        by_work: dict[str, Column] = {}
        for c in self.own:
            value = self._value(F.col("row"), c)
            raw = json_field(F.col("row"), c.name, "variant")
            is_sent = raw.isNotNull() & ~F.is_variant_null(raw)
            if c.lake in unchanged.columns:
                is_sent = is_sent & ~F.col(unchanged.flag(c.index))
                value = F.when(~F.col(unchanged.flag(c.index)), value)
            by_work[c.work] = value
            by_work[f"s{c.index}"] = F.when(is_sent, F.to_json(raw))
        valued = opened.withColumns(by_work)
        fills = {
            unchanged.fill(c.index): self._value_of_text(c, unchanged)
            for c in self.own
            if c.lake in unchanged.columns
        }
        unfit = {c.unfit: F.when(F.col(c.work).isNull(), F.col(f"s{c.index}")) for c in self.own}
        return valued.withColumns({**unfit, **fills}).drop(
            "row", "after", *(f"s{c.index}" for c in self.own)
        )

    def _value(self, row: Column, c: OwnColumn) -> Column:
        return self._by_kind(types.of_member(row, c.name), c, F.col("schema_id"))

    def _value_of_text(self, c: OwnColumn, unchanged: Unchanged) -> Column:
        carried = F.col(unchanged.carried(c.index))
        text = F.try_parse_json(carried["json"])
        at: types.At = lambda kind: F.try_variant_get(text, "$", kind)  # noqa: E731
        value = self._by_kind(at, c, carried["schema_id"])
        of_old_row = F.col(unchanged.old_row(c.index)).cast(c.spark)
        return F.when(carried.isNotNull(), value).otherwise(of_old_row)

    def _by_kind(self, at: types.At, c: OwnColumn, schema_id: Column) -> Column:
        """The value by its schema's type; one branch a type, not one a schema."""
        ids: dict[types.ColumnType | None, list[str | None]] = {}
        for schema, columns in self._by_schema.items():
            ids.setdefault(columns.get(c.name), []).append(schema)
        kinds = [kind for kind in ids if kind is not None]
        if not kinds:
            return F.lit(None).cast(c.spark)
        result: Column | None = None
        for kind in kinds[:-1]:
            of_kind = F.lit(False)
            for schema in ids[kind]:
                of_kind = of_kind | schema_id.eqNullSafe(F.lit(schema))
            value = types.read_value(at, kind, c.spark)
            result = F.when(of_kind, value) if result is None else result.when(of_kind, value)
        last = types.read_value(at, kinds[-1], c.spark)
        return last if result is None else result.otherwise(last)

    # --- SQL

    def merge_sql(self, branch: str, view: str, unchanged: Unchanged) -> str:
        """The MERGE of the day's winners; names are quoted, values come from the view alone."""
        on = " AND ".join(
            f"t.{quote(name)} = s.k.{work}"
            for name, work in zip(self.key_lake, self.key_work, strict=True)
        )
        updates = [f"t.{quote(c.lake)} = {self._update(c, unchanged)}" for c in self.own]
        updates += [
            f"t.{POSITION} = s.pos",
            f"t.{SOURCE_TS} = s.source_ts_ms",
            f"t.{LANDED} = DATE'{self.day.day}'",
        ]
        names = ", ".join([*(quote(c.lake) for c in self.own), POSITION, SOURCE_TS, LANDED])
        values = ", ".join(
            [
                *(self._insert(c, unchanged) for c in self.own),
                "s.pos",
                "s.source_ts_ms",
                f"DATE'{self.day.day}'",
            ]
        )
        return (
            f"MERGE INTO {branch} t USING (SELECT * FROM {view}) s ON {on} "
            f"WHEN MATCHED AND s.pos > t.{POSITION} AND s.is_removal THEN DELETE "
            f"WHEN MATCHED AND s.pos > t.{POSITION} THEN UPDATE SET {', '.join(updates)} "
            f"WHEN NOT MATCHED AND NOT s.is_removal THEN INSERT ({names}) VALUES ({values})"
        )

    def _update(self, c: OwnColumn, unchanged: Unchanged) -> str:
        if c.lake not in unchanged.columns:
            return f"s.{c.work}"
        carried = f"s.{unchanged.carried(c.index)}.pos"
        return (
            f"CASE WHEN NOT s.{unchanged.flag(c.index)} THEN s.{c.work} "
            f"WHEN {carried} > t.{POSITION} OR s.removed_pos > t.{POSITION} "
            f"OR s.link_pos > t.{POSITION} "
            f"THEN s.{unchanged.fill(c.index)} ELSE t.{quote(c.lake)} END"
        )

    def _insert(self, c: OwnColumn, unchanged: Unchanged) -> str:
        if c.lake not in unchanged.columns:
            return f"s.{c.work}"
        return (
            f"CASE WHEN s.{unchanged.flag(c.index)} THEN s.{unchanged.fill(c.index)} "
            f"ELSE s.{c.work} END"
        )

    def unresolved(self, rows: DataFrame, base: DataFrame | None, unchanged: Unchanged) -> int:
        """How many rows hold an unchanged value that nothing known fills (R2)."""
        open_flags = F.lit(False)
        for c in self.own:
            if c.lake in unchanged.columns:
                no_fill = F.col(unchanged.fill(c.index)).isNull()
                open_flags = open_flags | (F.col(unchanged.flag(c.index)) & no_fill)
        lacking = rows.where(open_flags & ~F.col("is_removal"))
        if base is None:
            return lacking.count()
        known = base.select(F.col("k").alias("bk"), F.col("pos").alias("bpos"))
        still = F.col("removed_pos").isNull() | (F.col("removed_pos") < F.col("bpos"))
        return lacking.join(known, (F.col("k") == F.col("bk")) & still, "left_anti").count()


# --- keys


class Keyed:
    """The moves of a day (upserts and removals by typed key) and their winners."""

    def __init__(self, day: TableDay, columns: Columns) -> None:
        self.day, self.columns = day, columns
        self.lake = day.lake
        self._types = {c.name: c.spark for c in columns.own}
        self.truncated: list[int] | None = None
        self.base: DataFrame | None = None

    def moves(self) -> DataFrame:
        """Upserts and removals of the day.

        Returns:
            `k` (typed key), `pos` (effective position), `is_removal`, `after`, `schema_id`,
            `source_ts_ms`, `link` (the key that the row had before, where it changed).
        """
        day = self.day
        events = self._keyed(day._events([day.day]))
        past_cut = day._truncates_before()
        removed = self.removed()
        self.base = self._base_positions(removed) if self._needs_base() else None
        if day.survey.without_position:
            events = self._placed(events, [day.day], self.base, past_cut)
        else:
            events = events.withColumn("pos", F.col("position"))
        row = (
            events.where("op = 't'").agg(F.max("pos").alias("p")).first()
            if day.survey.truncates
            else None
        )
        self.truncated = row.p if row else None
        floor = max([p for p in (self.truncated, past_cut) if p is not None], default=None)
        moves = self._expand(events)
        if self._halves_near():
            moves = moves.unionByName(self._pair_removals())
        if floor is not None:
            moves = moves.where(F.col("pos") > _literal_position(floor))
        if removed is not None:
            moves = self._guarded(moves, removed)
        return moves

    def winners(self, moves: DataFrame, unchanged: Unchanged) -> DataFrame:
        """One row a key: its highest event, and what unchanged columns last carried."""
        names = {c.lake: (c.index, c.name) for c in self.columns.own}
        moves = unchanged.prepare(moves, names)
        removal_pos = F.max(F.when(F.col("is_removal"), F.col("pos")))
        what = F.struct("is_removal", "pos", "after", "schema_id", "source_ts_ms", *unchanged.flags)
        grouped = moves.groupBy("k").agg(
            F.max_by(what, "pos").alias("w"),
            removal_pos.alias("removed_pos"),
            *unchanged.aggregates(),
        )
        winners = grouped.select("k", "w.*", "removed_pos", *unchanged.carried_names)
        return unchanged.settle(winners, moves, self.base, self.target)

    # --- keys

    def _keyed(self, events: DataFrame) -> DataFrame:
        """Add `k` and `ok`: key and old key as structs of the table's own types."""
        docs = events.withColumns(
            {"kv": F.try_parse_json("key"), "okv": F.try_parse_json("old_key")}
        )
        return docs.withColumns({"k": self._struct("kv"), "ok": self._struct("okv")}).drop(
            "kv", "okv"
        )

    def _struct(self, document: str) -> Column:
        members, complete = [], F.lit(True)
        for name, work in zip(self.columns.key_names, self.columns.key_work, strict=True):
            at = types.of_member(F.col(document), name)
            value = types.read_key(at, self._types[name])
            complete = complete & value.isNotNull()
            members.append(value.alias(work))
        return F.when(complete, F.struct(*members))

    def target(self) -> DataFrame | None:
        """The table at the end of the day before: `k`, `pos` and its columns."""
        state = self.columns.state
        before = self.day.day - timedelta(days=1)
        if state is None or before not in state.tags or self.day.day <= self.day.start:
            return None
        return self._table_at(state.tags[before])

    def _table_at(self, snapshot: int) -> DataFrame:
        table = self.lake.at(self.day.identifier, snapshot)
        present = set(table.columns)
        key = F.struct(
            *(
                (column(name) if name in present else F.lit(None).cast(self._types[of])).alias(work)
                for name, of, work in zip(
                    self.columns.key_lake,
                    self.columns.key_names,
                    self.columns.key_work,
                    strict=True,
                )
            )
        )
        values = [
            (column(c.lake) if c.lake in present else F.lit(None)).cast(c.spark).alias(c.work)
            for c in self.columns.own
        ]
        return table.select(key.alias("k"), F.col(POSITION).alias("pos"), *values)

    # --- moves

    def _expand(self, events: DataFrame) -> DataFrame:
        common = ("pos", "schema_id", "source_ts_ms")
        upserts = events.where("op IN ('c', 'u', 'r') AND after IS NOT NULL").select(
            "k", F.lit(False).alias("is_removal"), *common, "after", F.col("ok").alias("link")
        )
        gone = F.lit(None)
        removals = events.where("op = 'd'").select(
            "k",
            F.lit(True).alias("is_removal"),
            *common,
            gone.cast("string").alias("after"),
            F.lit(None).cast(_kind(events, "ok")).alias("link"),
        )
        moves = upserts.unionByName(removals)
        if self.day.survey.removals:
            left = events.where("ok IS NOT NULL AND op IN ('c', 'u', 'r')").select(
                F.col("ok").alias("k"),
                F.lit(True).alias("is_removal"),
                *common,
                gone.cast("string").alias("after"),
                F.lit(None).cast(_kind(events, "ok")).alias("link"),
            )
            moves = moves.unionByName(left)
        return moves.where("k IS NOT NULL")

    def _halves_near(self) -> bool:
        return bool(self.day.survey.halves or any(s.halves for s in self.day.past))

    def _pairs(self) -> DataFrame:
        """Completed pairs of split updates (W2, W3): both keys, and the day that completed them."""
        near = self._keyed(self.day._events([*self.day.window, self.day.day]))
        near = near.withColumn("sequence", F.slice("position", 2, 3))
        is_before = F.col("source_op").isin(*BEFORE_OPS)
        before = near.where(is_before).select(
            "sequence",
            F.col("k").alias("before_k"),
            F.col("position").alias("pos"),
            "source_ts_ms",
            F.col("landing_date").alias("before_day"),
        )
        after = near.where(
            (F.col("source_op") == "UPDATE_AFTER") & F.col("before").isNull()
        ).select("sequence", F.col("k").alias("after_k"), F.col("landing_date").alias("after_day"))
        none = F.array(*[F.lit(0).cast("bigint")] * 3)
        return (
            before.join(after, "sequence")
            .where((F.col("before_k") != F.col("after_k")) & (F.col("sequence") != none))
            .withColumn("day", F.greatest("before_day", "after_day"))
        )

    def _pair_removals(self) -> DataFrame:
        pairs = self._pairs().where(F.col("day") == F.lit(self.day.day))
        return pairs.select(
            F.col("before_k").alias("k"),
            F.lit(True).alias("is_removal"),
            "pos",
            F.lit(None).cast("string").alias("schema_id"),
            "source_ts_ms",
            F.lit(None).cast("string").alias("after"),
            F.lit(None).cast(_kind(pairs, "before_k")).alias("link"),
        ).distinct()

    # --- late and repeated events (O12)

    def removed(self) -> DataFrame | None:
        """`k`, `pos` of what was removed on the days looked back on; None where nothing was."""
        day = self.day
        if not any(s.removals or s.halves for s in day.past):
            return None
        events = self._keyed(day._events(day.window))
        if any(s.tombstones for s in day.past):
            events = self._placed(events, day.window, self._start_of_window(), None)
        else:
            events = events.withColumn("pos", F.col("position"))
        removals = events.where("op = 'd'").select("k", "pos")
        left = events.where("ok IS NOT NULL AND op <> 'd'").select(F.col("ok").alias("k"), "pos")
        removed = removals.unionByName(left)
        if any(s.halves for s in day.past):
            earlier = self._pairs().where(F.col("day") < F.lit(day.day))
            removed = removed.unionByName(earlier.select(F.col("before_k").alias("k"), "pos"))
        return (
            removed.where("k IS NOT NULL AND pos IS NOT NULL")
            .groupBy("k")
            .agg(F.max("pos").alias("pos"))
        )

    def _start_of_window(self) -> DataFrame | None:
        state = self.columns.state
        before = self.day.window[0] - timedelta(days=1)
        if state is None or before not in state.tags:
            return None
        return self._table_at(state.tags[before]).select("k", "pos")

    def _guarded(self, moves: DataFrame, removed: DataFrame) -> DataFrame:
        """Drop what an earlier day's removal of the same key beats."""
        beaten = removed.select(F.col("k").alias("rk"), F.col("pos").alias("rpos"))
        return moves.join(
            beaten, (F.col("k") == F.col("rk")) & (F.col("rpos") > F.col("pos")), "left_anti"
        )

    # --- events without a position (O6)

    def _needs_base(self) -> bool:
        return bool(
            self.day.survey.without_position
            or self.day.survey.maybe_unchanged
            or self.day.source.missing_columns == "keep"
        )

    def _base_positions(self, removed: DataFrame | None) -> DataFrame | None:
        """`k`, `pos`: the highest event of each key that landed before the day."""
        parts = [
            frame.select("k", "pos") for frame in (self.target(), removed) if frame is not None
        ]
        if not parts:
            return None
        both = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        return both.groupBy("k").agg(F.max("pos").alias("pos"))

    def _placed(
        self,
        events: DataFrame,
        days: Sequence[date],
        base: DataFrame | None,
        past_cut: Sequence[int] | None,
    ) -> DataFrame:
        """Add `pos`: the event's own position, or directly after what landed before it."""
        within = (
            Window.partitionBy("k", "topic", "partition")
            .orderBy("offset")
            .rangeBetween(Window.unboundedPreceding, -1)
        )
        earlier_days = (
            Window.partitionBy("k")
            .orderBy(F.unix_date("landing_date"))
            .rangeBetween(Window.unboundedPreceding, -1)
        )
        cuts = events.where("op = 't' AND position IS NOT NULL").agg(
            F.collect_list(
                F.struct("topic", "partition", "offset", "position", "landing_date")
            ).alias("cuts")
        )
        seen = [F.max("position").over(within)]
        if len(days) > 1:
            seen.append(F.max("position").over(earlier_days))
        placed = events.crossJoin(F.broadcast(cuts)).withColumn("seen", _latest(*seen))
        cut_earlier_day = F.array_max(
            F.transform(
                F.filter("cuts", lambda t: t["landing_date"] < F.col("landing_date")),
                lambda t: t["position"],
            )
        )
        known = [F.col("seen"), _cut_before(), cut_earlier_day, _literal_position(past_cut)]
        if base is not None:
            bases = base.select(F.col("k").alias("bk"), real_part(F.col("pos")).alias("base_pos"))
            placed = placed.join(bases, F.col("k") == F.col("bk"), "left")
            known.append(F.col("base_pos"))
        after = directly_after(
            _latest(*known), F.col("landing_date"), F.col("partition"), F.col("offset")
        )
        return placed.withColumn("pos", F.coalesce("position", after)).drop(
            "cuts", "seen", "bk", "base_pos"
        )


def _kind(frame: DataFrame, name: str) -> Any:
    return frame.schema[name].dataType


def make_table_day(
    lake: Lake, name: str, table: str, day: date, facts: Facts, force: bool = False
) -> DayReport:
    """Make one day of one table; see :class:`TableDay`."""
    return TableDay(lake, name, table, day, facts).make(force)
