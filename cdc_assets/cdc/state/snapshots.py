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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from cdc_assets.cdc.changes import stage as changes
from cdc_assets.cdc.config import SourceConfig, TableConfig
from cdc_assets.cdc.errors import AuditError, ConcurrentRunError, ConfigError, MissingDayError
from cdc_assets.cdc.lake.catalog import (
    INPUTS,
    REPORT,
    DayBranch,
    DayCommit,
    Lake,
    TableState,
    with_retry,
)
from cdc_assets.cdc.lake.checkpoints import keeping
from cdc_assets.cdc.names import TableName, quote
from cdc_assets.cdc.positions import is_all_after, literal_position, on_basis
from cdc_assets.cdc.sqltext import Sql
from cdc_assets.cdc.state.columns import LANDED, OWN_COLUMNS, POSITION, Columns
from cdc_assets.cdc.state.keyed import Keyed
from cdc_assets.cdc.state.survey import Facts, Survey, bases_of, gather, pair_window_of, window_of
from cdc_assets.cdc.state.unkeyed import Unkeyed
from cdc_assets.cdc.state.unsent_values import Unchanged

__all__ = ["OWN_COLUMNS", "DayReport", "Facts", "TableDay", "gather", "make_table_day"]

log = logging.getLogger(__name__)

# Raised when the making of days changes, so that days made before are made again.
MERGER_VERSION = 5


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
    too_late: int = 0
    highest: Sequence[int] | None = None
    bases: Mapping[str, str] = field(default_factory=dict)
    other_basis: int = 0
    contradicted: int = 0
    unreadable_keys: int = 0
    keys_audited: int = 0
    rules_changed: bool = False
    seconds: float = 0.0
    made: bool = True


class TableDay:
    """One day of one table: reads `changes`, merges on a branch, audits, publishes."""

    def __init__(self, lake: Lake, name: str, table: str, day: date, facts: Facts) -> None:
        self.lake, self.name, self.table, self.day = lake, name, table, day
        self.facts = facts
        self.source: SourceConfig = lake.config.source(name)
        self.config: TableConfig = self.source.tables[table]
        self.start = lake.config.start_of(name, table)
        self.window = window_of(lake, name, day)
        self.pair_window = pair_window_of(lake, name, day)
        self.survey = facts.surveys.get((table, day), Survey())
        self.past = [facts.surveys.get((table, d), Survey()) for d in self.window]
        self.bases: Mapping[int, str] = {}
        self.is_all_after = False
        self.identifier = lake.state(name, TableName.parse(table))
        self.label = f"{name}.{table}"

    def make(self, force: bool = False) -> DayReport:
        """Make and publish the day, unless it was already made of the same inputs.

        Raises:
            MissingDayError: the day before, or the day's changes, are not there yet.
            AuditError: the day's audit failed; nothing is published.
            ConfigError: a column can't be in the lake under its name.
            SchemaDriftError: the key's columns or types changed.
            ConcurrentRunError: another run published the day meanwhile, made of something else.
        """
        began = time.monotonic()
        state = self.lake.read_state(self.identifier)
        self._check_start(state)
        inputs = self._inputs(state)
        self.bases = self._bases(state)
        self.is_all_after = self._is_all_after(state)
        if state and not force:
            summary = state.day_summary(self.day)
            if summary.get(INPUTS) == json.dumps(inputs, sort_keys=True):
                if state.refs.get("main") != state.tags[max(state.tags)]:
                    self.lake.mend_main(self.identifier)
                return self._report_of(summary)
        self._check_quarantine()
        base = self._base(state)
        columns = Columns(self, state)
        columns.prepare()
        replaces = state.tags.get(self.day) if state else None
        branch = self.lake.start_branch(self.identifier, self.day, base, replaces)
        try:
            report = self._build(branch, columns, state, began)
            self.lake.seal_branch(
                branch,
                {
                    INPUTS: json.dumps(inputs, sort_keys=True),
                    REPORT: json.dumps(asdict(report), ensure_ascii=False),
                },
            )
            self.lake.publish(branch)
        except Exception as error:
            self.lake.drop_branch(branch)
            if made := self._made_meanwhile(branch, inputs, error):
                return made
            raise
        except BaseException:
            self.lake.drop_branch(branch)
            raise
        return report

    def _build(
        self, branch: DayBranch, columns: Columns, state: TableState | None, began: float
    ) -> DayReport:
        """Merge the day's changes into its branch and audit it."""
        rows_before = self._rows_before(state)
        figures: dict[str, Any] = {}
        # Without a key there are only truncates, of a table that never had a row.
        if self.survey.events and (columns.key_names or self.config.key in ("none", "row")):
            figures = self._merge(branch, columns, self._starts_empty(state))
        written = self._written(state)
        return DayReport(
            table=self.table,
            day=str(self.day),
            rows_before=rows_before,
            events=self.survey.events,
            ops=self.survey.ops,
            incompatible=columns.incompatible,
            too_late=self._too_late(state),
            highest=self._highest(state),
            bases={str(epoch): basis for epoch, basis in self.bases.items()},
            rules_changed=self._rules_changed(state),
            other_basis=sum(r.count for r in self.survey.ranges)
            - sum(r.count for r in self.survey.of_bases(self.bases)),
            seconds=round(time.monotonic() - began, 2),
            **{"rows": rows_before + written.pop("net"), **written, **figures},
        )

    def _made_meanwhile(
        self, branch: DayBranch, inputs: Mapping[str, Any], error: Exception
    ) -> DayReport | None:
        """The report of another run that published the day, where it made it of the same.

        Raises:
            ConcurrentRunError: it made the day of something else.
        """
        state = self.lake.read_state(self.identifier)
        if state is None or state.tags.get(self.day) == branch.replaces:
            return None
        summary = state.day_summary(self.day)
        if summary.get(INPUTS) == json.dumps(inputs, sort_keys=True):
            return self._report_of(summary)
        raise ConcurrentRunError(self.label, [self.day]) from error

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
            for d in [*self.pair_window, self.day]
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
        made = state.day_before(self.day) if state else None
        if made is None:
            raise self._missing(state, self.day - timedelta(days=1))
        return made

    def _base(self, state: TableState | None) -> int | None:
        """The snapshot that the day's branch starts at, None for the first day.

        Raises:
            MissingDayError: the day before has expired, or the one before the days that are
                looked back on.
        """
        if self.day <= self.start or state is None:
            return None
        before = self.day - timedelta(days=1)
        for needed in (before, min([self.day, *self.window]) - timedelta(days=1)):
            if needed >= self.start and state.is_expired(needed):
                raise self._missing(state, needed)
        return state.tags[before]

    def _missing(self, state: TableState | None, day: date) -> MissingDayError:
        if state and state.is_expired(day):
            return MissingDayError(
                self.label,
                day,
                f"It has expired (keep_days: {self.source.keep_days}), and {self.day} can't be "
                "made without it. What was made stays as it is; to make the table anew from its "
                f"first day: cdc-assets run --source {self.name} --table '{self.table}' "
                f"--from {self.start} --to {max(state.tags)}.",
            )
        missing, tags = self.start, state.tags if state else {}
        while missing in tags:
            missing += timedelta(days=1)
        return MissingDayError(self.label, day, f"Materialize it first, or run --from {missing}.")

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

    def _rules_changed(self, state: TableState | None) -> bool:
        """Whether the day was made before, by other rules: an older version or configuration."""
        made_of = state.made_of(self.day) if state and self.day in state.tags else {}
        return bool(made_of) and made_of.get("rules") != self._rules()

    def _report_of(self, summary: Mapping[str, str]) -> DayReport:
        of_day = {**json.loads(summary[REPORT]), "made": False, "rules_changed": False}
        return DayReport(**of_day)

    def _rows_before(self, state: TableState | None) -> int:
        return int(self._report_on(self.day - timedelta(days=1), state).get("rows", 0))

    def _bases(self, state: TableState | None) -> dict[int, str]:
        """What the table's positions are made of in each epoch, by the end of the day (O8)."""
        before = self._report_on(self.day - timedelta(days=1), state).get("bases", {})
        known = {int(epoch): basis for epoch, basis in before.items()}
        return bases_of([*self.past, self.survey], known)

    def _highest(self, state: TableState | None) -> list[int] | None:
        """The highest position that has landed by the end of the day."""
        known = [self._report_on(self.day - timedelta(days=1), state).get("highest")]
        known.append(list(self.survey.highest(self.bases) or ()))
        return max((p for p in known if p), default=None)

    def _is_all_after(self, state: TableState | None) -> bool:
        """Does each event of the day stand after all that landed before it?"""
        own = self.survey.of_bases(self.bases)
        if sum(r.count for r in own) < self.survey.events:
            return False
        before = [self._report_on(self.day - timedelta(days=1), state).get("highest")]
        before += [survey.highest(self.bases) for survey in self.past]
        return all(is_all_after(r.lowest, p) for r in own for p in before if p)

    def _too_late(self, state: TableState | None) -> int:
        """Events below what had landed before the days looked back on (O12).

        A removal that landed then is not looked up any more: such an event may bring its row back.
        """
        last = (self.window[0] if self.window else self.day) - timedelta(days=1)
        known = self._report_on(last, state).get("highest")
        lowest = self.survey.lowest(self.bases)
        if not known or not lowest or list(lowest) >= list(known):
            return 0
        # Those on another basis are counted apart.
        is_comparable = F.col("position_basis").isin(*self.bases.values())
        events = self._events([self.day]).where(is_comparable)
        return events.where(F.col("position") < literal_position(known)).count()

    def _report_on(self, day: date, state: TableState | None) -> dict[str, Any]:
        summary = state.day_summary(day) if state and day >= self.start else {}
        found: dict[str, Any] = json.loads(summary.get(REPORT, "{}"))
        return found

    def _written(self, before: TableState | None) -> dict[str, int]:
        """What the branch's commits added, of their summaries."""
        state = self.lake.read_state(self.identifier)
        assert state is not None
        old = set(before.snapshots) if before else set()
        new = [s.summary for i, s in state.snapshots.items() if i not in old]

        def total(key: str) -> int:
            return sum(int(summary.get(key, 0)) for summary in new)

        # A commit writes again the deletes of the files that it deletes from.
        removed = total("added-position-deletes") - total("removed-position-deletes")
        return {
            "written": total("added-records"),
            "removed": removed + total("deleted-records"),
            "net": total("added-records") - removed - total("deleted-records"),
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

    @property
    def may_be_unsent(self) -> bool:
        """Whether an event of the day may leave a column as it was (R1, R2)."""
        return self.survey.maybe_unchanged > 0 or self.source.missing_columns == "keep"

    # --- events

    def _events(self, days: Sequence[date]) -> DataFrame:
        changed = self.lake.stage_days(self.name, "changes", days)
        events = changed.where(F.col("table_name") == self.table)
        ranges = [r for survey in [*self.past, self.survey] for r in survey.ranges]
        if all(self.bases.get(r.epoch) == r.basis for r in ranges):
            return events
        # O8: an event on another basis is older than all of its table's.
        own = on_basis(F.col("position"), F.col("position_basis"), self.bases)
        return events.withColumn("position", own)

    def _starts_empty(self, state: TableState | None) -> bool:
        base = self._base(state)
        if base is None or state is None:
            return True
        return state.snapshots[base].summary.get("total-records") == "0"

    def _merge(self, on: DayBranch, columns: Columns, is_empty: bool) -> dict[str, Any]:
        branch = on.identifier
        if self.config.key in ("none", "row"):
            return self._merge_unkeyed(branch, columns)
        keyed = Keyed(self, columns)
        unchanged = Unchanged(
            placeholder=self.source.unavailable_value,
            keep_missing=self.source.missing_columns == "keep",
            maybe=self.survey.maybe_unchanged > 0,
        )
        with keeping() as kept:
            # Unsent values are looked for several times in the same moves.
            moves = kept.keep(keyed.moves()) if self.may_be_unsent else keyed.moves()
            rows = columns.typed(keyed.winners(moves, unchanged, kept), unchanged)
            if is_empty and not self.may_be_unsent:
                return self._append(on, rows, columns, unchanged)
            unresolved = 0
            if unchanged.columns:
                rows = kept.keep(rows)
                unresolved = columns.unresolved(rows, keyed.standing(), unchanged)
            observed = Observation()
            counts = [
                *self._value_counts(columns),
                F.expr(_fingerprint("k", "pos", "NOT is_removal")),
            ]
            counted = rows.observe(observed, *counts)
            figures: dict[str, Any] = {}
            if keyed.truncated is not None:
                self._delete_below(branch, keyed.truncated)
            with_retry(lambda: columns.merge(counted, branch, unchanged))
            self._audit(branch, rows, columns, observed.get)
            if keyed.truncated is not None:
                # A file that goes as a whole is counted with the rows that were gone from it.
                figures["rows"] = self.lake.spark.table(branch).count()
            return {
                **figures,
                **self._judge_values(rows, observed.get, columns),
                "unresolved": unresolved,
                **self._unreadable_keys(columns),
                "keys_audited": observed.get["n"],
            }

    def _append(
        self, branch: DayBranch, rows: DataFrame, columns: Columns, unchanged: Unchanged
    ) -> dict[str, Any]:
        """The winners of a table without rows, in one job: there is nothing that they could meet.

        Raises:
            AuditError: the commit has not as many rows as there are winners.
        """
        observed = Observation()
        winners = rows.where("NOT is_removal").observe(observed, *self._value_counts(columns))
        typed = winners.alias("s").selectExpr(*columns.inserted(unchanged))
        with_retry(lambda: typed.writeTo(branch.identifier).append())
        found = observed.get
        state = self.lake.read_state(self.identifier)
        assert state is not None
        summary = state.snapshots[state.refs[branch.name]].summary
        written = int(summary.get("added-records", 0))
        if written != found["n"]:
            raise AuditError(
                self.label,
                self.day,
                f"{found['n']} keys were written and {written} rows have them",
                check="keys_unique",
            )
        return {
            **self._judge_values(rows, found, columns),
            **self._unreadable_keys(columns),
            "keys_audited": written,
        }

    def _delete_below(self, branch: str, position: Sequence[int]) -> None:
        """D12: a truncate removes every row whose position is lower than its own."""
        # slice() keeps the comparison out of Iceberg's filters, which know no arrays.
        literal = ", ".join(f"{int(n)}L" for n in position)
        with_retry(
            lambda: self.lake.spark.sql(
                f"DELETE FROM {branch} WHERE slice({POSITION}, 1, 64) < array({literal})"
            )
        )

    def _merge_unkeyed(self, branch: str, columns: Columns) -> dict[str, Any]:
        unkeyed = Unkeyed(self, columns)
        unchanged = Unchanged(self.source.unavailable_value, keep_missing=False, maybe=False)
        with keeping() as kept:
            moves = kept.keep(columns.typed(unkeyed.moves(), unchanged))
            today = moves.where("is_today")
            found = today.agg(*self._value_counts(columns)).first()
            assert found is not None
            figures = self._judge_values(today, found.asDict(), columns)
            if self.survey.maybe_unchanged:
                figures["unresolved"] = moves.where("is_today AND unfilled").count()
            if unkeyed.floor is not None:
                self._delete_below(branch, unkeyed.floor)
            return {**figures, "rows": unkeyed.write(branch, moves, kept)}

    def _truncates_before(self) -> list[int] | None:
        """The highest truncate that landed on the days looked back on."""
        if not any(s.truncates for s in self.past):
            return None
        row = self._events(self.window).where("op = 't'").agg(F.max("position").alias("p")).first()
        return row.p if row else None

    # --- audit

    def _value_counts(self, columns: Columns) -> list[Column]:
        """`n` rows, how many contradict their key, and how many hold what a column can't (R4)."""
        differ = [c.contradicted for c in columns.own if c.name in columns.key_names]
        unfit = ", ".join(c.unfit for c in columns.own)
        counts = {
            "n": "NOT is_removal",
            "contradicted": f"NOT is_removal AND ({' OR '.join(differ) or 'false'})",
            "unfit": f"NOT is_removal AND coalesce({unfit}) IS NOT NULL" if unfit else "false",
        }
        return [F.expr(f"count_if({condition}) AS {name}") for name, condition in counts.items()]

    def _judge_values(
        self, rows: DataFrame, found: Mapping[str, Any], columns: Columns
    ) -> dict[str, Any]:
        """What the day's rows hold that their columns can't.

        Raises:
            AuditError: the type of such a column was inferred.
        """
        report = self._unfit(rows, columns) if found["unfit"] else {}
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
        return {"unfit": report, "contradicted": found["contradicted"]}

    def _unfit(self, rows: DataFrame, columns: Columns) -> dict[str, Any]:
        """By column the number of values that it can't hold and one of them: a job of its own."""
        aggregates = [
            f"{of} AS {c.work}_{name}"
            for c in columns.own
            for name, of in (("n", f"count({c.unfit})"), ("x", f"min(substring({c.unfit}, 1, 60))"))
        ]
        found = rows.where("NOT is_removal").selectExpr(*aggregates).first()
        assert found is not None
        return {
            c.lake: {"count": found[f"{c.work}_n"], "example": found[f"{c.work}_x"]}
            for c in columns.own
            if found[f"{c.work}_n"]
        }

    def _unreadable_keys(self, columns: Columns) -> dict[str, int]:
        """Events whose key the table's inferred key columns can't hold; such change no row."""
        if columns.inferred.isdisjoint(columns.key_lake):
            return {}
        keyed = Keyed(self, columns).keyed(self._events([self.day]))
        lost = keyed.where("key IS NOT NULL AND k IS NULL").count()
        return {"unreadable_keys": lost}

    def _audit(
        self, branch: str, rows: DataFrame, columns: Columns, winners: Mapping[str, Any]
    ) -> None:
        """The branch holds the day's winners, each once and at its position.

        What was written is read back and compared with what was to be written: two numbers. Only
        where they differ, as they do where a late event is older than its row, are the keys
        looked up one by one.

        Args:
            rows: the day's winners, as they were merged.
            winners: `n` of them that are no removals, and their `fingerprint`.

        Raises:
            AuditError: a key stands twice, was lost, or stands at another event's position.
        """
        key = ", ".join(map(quote, columns.key_lake))
        written = self.lake.spark.sql(
            f"SELECT count(*) AS n, {_fingerprint(f'struct({key})', POSITION, 'true')} "
            f"FROM {branch} WHERE {LANDED} = DATE'{self.day}'"
        ).first()
        assert written is not None
        if (written.n, written.fingerprint) != (winners["n"], winners["fingerprint"]):
            self._audit_keys(branch, rows, columns)

    def _audit_keys(self, branch: str, rows: DataFrame, columns: Columns) -> None:
        """Look up the key of each of the day's winners on the branch.

        It stands there once, be it by its event or, written before, by one that is not older; keys
        that the day did not touch were unique the day before.
        """
        work = columns.key_work
        winners = rows.where("NOT is_removal").selectExpr(
            *(f"k.{w} AS {w}" for w in work), "pos AS winner", "true AS is_winner"
        )
        on_branch = self.lake.spark.table(branch).selectExpr(
            *(f"{quote(n)} AS {w}" for n, w in zip(columns.key_lake, work, strict=True)),
            f"{POSITION} AS pos",
            f"{LANDED} <=> DATE'{self.day}' AS is_written",
        )
        of_event = "CASE WHEN is_written THEN pos <=> winner ELSE NOT winner > pos END"
        found = (
            on_branch.join(winners, work, "left")
            .selectExpr(
                "count(is_winner) AS hits",
                f"count_if(is_winner AND NOT {of_event}) AS misplaced",
                "count_if(is_winner IS NULL AND is_written) AS others",
            )
            .crossJoin(winners.agg(F.count("*").alias("expected")))
            .first()
        )
        assert found is not None
        if found.hits == found.expected and not found.misplaced and not found.others:
            return
        counted = on_branch.groupBy(*work).count().where("count > 1").limit(5).collect()
        raise AuditError(
            self.label,
            self.day,
            f"{found.expected} keys were written and {found.hits} rows have them, "
            f"{found.misplaced} at another position than their event's; {found.others} rows are of "
            f"no event. Keys that stand twice: {[tuple(r) for r in counted] or 'none'}. Nothing is "
            "published; make the day again, and report this with the table's snapshots",
            check="keys_unique",
        )


def _fingerprint(key: Sql, position: Sql, condition: Sql) -> Sql:
    """A number that is the same for the same rows in any order: of their keys and positions."""
    of_row = f"xxhash64({key}, {position})"
    return f"bit_xor(CASE WHEN {condition} THEN {of_row} END) AS fingerprint"


def make_table_day(
    lake: Lake, name: str, table: str, day: date, facts: Facts, force: bool = False
) -> DayReport:
    """Make one day of one table; see :class:`TableDay`."""
    return TableDay(lake, name, table, day, facts).make(force)
