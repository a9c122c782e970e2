"""A day of a derived table: made on a branch of its own, audited, published as a tag."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Generic, TypeVar

from pyspark.sql.types import StructType

from cdc_assets.cdc.derived.columns import prepare
from cdc_assets.cdc.derived.inputs import DerivedInputs
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import KEY, BranchFigures, DayBranch, Retyped, branch_figures
from cdc_assets.cdc.lake.published_day import publish_day, recorded_report
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import TableName, derived_name
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.evolution import prepare_columns
from cdc_assets.cdc.state.retyping import day_branch, write_again
from cdc_assets.cdc.state.source_context import SourceContext
from cdc_assets.cdc.state.table_day import TableDay


@dataclass(frozen=True)
class DerivedReport:
    """What a day of a derived table came to."""

    table: str
    day: str
    rows: int = 0
    rows_before: int = 0
    events: int = 0
    written: int = 0
    removed: int = 0
    bytes_added: int = 0
    files_added: int = 0
    seconds: float = 0.0
    made: bool = True


ReportT = TypeVar("ReportT", bound=DerivedReport)


@dataclass(frozen=True)
class DerivedDay:
    """A day of a derived table that is being written.

    Attributes:
        of_table: the table's day.
        inputs: what it is made of.
        columns: those of the table, with the types of the day.
        branch: where its rows go.
    """

    of_table: TableDay
    inputs: DerivedInputs
    columns: TableColumns
    branch: DayBranch


@dataclass(frozen=True)
class DerivedKind(Generic[ReportT]):
    """A kind of derived tables.

    Attributes:
        name: the end of their names.
        columns: their own columns, behind those of their table.
        comment: of a table `{label}`.
        day_column: the column that they are partitioned by; None: they are not.
        report: the class of what a day comes to.
        write: writes a day's rows, audits them, and returns the report's own figures.
        without_rows: the report's own figures of a day that writes nothing, by the report of the
            day before.
    """

    name: str
    columns: StructType
    comment: str
    day_column: str | None
    report: type[ReportT]
    write: Callable[[DerivedDay], Mapping[str, Any]]
    without_rows: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda before: {}

    def make_day(
        self,
        lake: Lake,
        source: str,
        table: str,
        day: date,
        context: SourceContext,
        force: bool = False,
    ) -> ReportT:
        """Make and publish a day of the table's derived table, if it is not made of the same.

        Raises:
            MissingDayError: the day of the table, or the day before, is not there yet.
            AuditError: the day's audit failed; nothing is published.
            ConfigError: the settings name columns that the table does not have.
            ConcurrentRunError: another run published the day meanwhile, made of something else.
        """
        began = time.monotonic()
        inputs = self._inputs(lake, source, table, day)
        state, name = inputs.state, derived_name(table, self.name)
        is_made = inputs.is_up_to_date  # raises where a day is missing, before a table is created
        if state and is_made and not force:
            if state.refs.get("main") != state.tags[max(state.tags)]:
                lake.mend_main(lake.state(source, name))
            return recorded_report(inputs.summary, self.report)
        base = _base(inputs)
        of_table = TableDay(lake, source, table, day, context, inputs.of_table)
        columns = prepare_columns(of_table, is_made=True)
        identifier, retyped = self._prepare(lake, inputs, of_table)
        branch = day_branch(lake, identifier, day, base, state, retyped)
        has_events = bool(of_table.day_facts.events) or inputs.begins_later(day)
        has_rows = columns.are_keys_known and has_events
        return publish_day(
            lake,
            branch,
            inputs,
            inputs.label,
            self.report,
            lambda started: self._build(of_table, inputs, columns, started, has_rows, began),
            has_rows or branch.is_written_again,
            lambda: self._inputs(lake, source, table, day),
        )

    def _inputs(self, lake: Lake, source: str, table: str, day: date) -> DerivedInputs:
        """The inputs of a day, by the metadata as it is now."""
        of_table = lake.read_state(lake.state(source, TableName.parse(table)))
        state = lake.read_state(lake.state(source, derived_name(table, self.name)))
        return DerivedInputs(lake.config, source, table, self.name, day, of_table, state)

    def _prepare(
        self, lake: Lake, inputs: DerivedInputs, of_table: TableDay
    ) -> tuple[str, list[Retyped]]:
        """The table with its columns and the key, which readers without Spark ask for."""
        identifier, retyped = prepare(
            lake,
            inputs.source,
            derived_name(inputs.table, self.name),
            of_table.identifier,
            self.columns,
            self.comment.format(label=of_table.label),
            self.day_column,
            inputs.is_first,
            of_table.sent.rename,
        )
        assert inputs.of_table is not None  # its day is made
        key = inputs.of_table.properties.get(KEY)
        if key is not None and not (inputs.state and inputs.state.properties.get(KEY) == key):
            with_retry(lambda: lake.handle(identifier).updateProperties().set(KEY, key).commit())
        return identifier, retyped

    def _build(
        self,
        of_table: TableDay,
        inputs: DerivedInputs,
        columns: TableColumns,
        started: DayBranch | None,
        has_rows: bool,
        began: float,
    ) -> ReportT:
        before, added = inputs.report_before(), BranchFigures()
        own = self.without_rows(before)
        if started is not None:
            branch = write_again(of_table.lake, started)
            if has_rows:
                own = self.write(DerivedDay(of_table, inputs, columns, branch))
            state = of_table.lake.read_state(branch.table)
            assert state is not None
            added = branch_figures(state, branch)
        rows_before = before.get("rows", 0)
        return self.report(
            table=of_table.table,
            day=str(of_table.day),
            rows=rows_before + added.net,
            rows_before=rows_before,
            events=of_table.day_facts.events,
            written=added.written,
            removed=added.removed,
            bytes_added=added.bytes_added,
            files_added=added.files_added,
            seconds=round(time.monotonic() - began, 2),
            **own,
        )


def _base(inputs: DerivedInputs) -> int | None:
    """The snapshot of the day before; None of the first day.

    Raises:
        MissingDayError: it has expired.
    """
    if inputs.is_first or inputs.state is None:
        return None
    before = inputs.day - timedelta(days=1)
    if before not in inputs.state.tags:
        raise inputs.missing(before)
    return inputs.state.tags[before]
