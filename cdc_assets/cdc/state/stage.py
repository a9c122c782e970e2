"""changes → a table as it stood at the end of a day, published as a tag.

A day starts from the tag of the day before, on a branch of its own; the winner of each key
(highest position) is merged, the branch is audited, and one commit tags it and moves main.
A crash or a failed audit leaves the published days as they were.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from pyspark.sql import functions as F

from cdc_assets.cdc.errors import AuditError, MissingDayError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import BranchFigures, DayBranch, TableState, branch_figures
from cdc_assets.cdc.lake.published_day import publish_day, recorded_report
from cdc_assets.cdc.names import TableName, key_in_database
from cdc_assets.cdc.positions import literal_position
from cdc_assets.cdc.state import apply
from cdc_assets.cdc.state.day_inputs import DayInputs
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.document_ids import check_ids, has_document_ids
from cdc_assets.cdc.state.earlier_values import VALUES_VERSION, earlier_values
from cdc_assets.cdc.state.epochs import SourceEpochs, named_instants
from cdc_assets.cdc.state.evolution import prepare_columns
from cdc_assets.cdc.state.retyping import day_branch, write_again
from cdc_assets.cdc.state.source_context import SourceContext, gather
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.table_events import events_on
from cdc_assets.cdc.state.touched import EVERYWHERE
from cdc_assets.cdc.state.unread_rows import UnreadRows

__all__ = ["DayReport", "SourceContext", "gather", "make_table_day"]


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
    units: Mapping[str, str] = field(default_factory=dict)  # time stamps in another unit than ms
    open_labels: Mapping[str, int] = field(default_factory=dict)  # numbers that may be labels
    labels_sent: bool | None = None  # by the source, instead of their numbers
    unresolved: int = 0
    canonical_ids: bool = False  # of MongoDB, as M1 writes them
    values_version: int = 0  # how values are read
    read_otherwise: Mapping[str, str] = field(default_factory=dict)  # of rows made before that
    incompatible: Sequence[str] = ()
    too_late: int = 0
    highest: Sequence[int] | None = None
    bases: Mapping[str, str] = field(default_factory=dict)
    other_basis: int = 0
    database: str | None = None
    other_databases: Mapping[str, int] = field(default_factory=dict)
    earlier_until: str | None = None
    earlier_bases: Mapping[str, str] = field(default_factory=dict)
    contradicted: int = 0
    unreadable_keys: int = 0
    arrived_on_rows: int = 0
    before_of_others: int = 0
    of_other_tables: int = 0
    keys_audited: int = 0
    touched: Mapping[str, Any] | None = None  # where in a table with partitions its rows stood
    snapshot: Mapping[str, Any] | None = None  # those that ended, and what they did not read
    reading: Sequence[Mapping[str, Any]] = ()  # those that have not ended
    rules_changed: bool = False
    seconds: float = 0.0
    made: bool = True


def make_table_day(
    lake: Lake,
    source: str,
    table: str,
    day: date,
    context: SourceContext,
    force: bool = False,
    state: TableState | None = None,
) -> DayReport:
    """Make and publish one day of one table, unless it was already made of the same inputs.

    `state` is the table's metadata where the caller has just read it.

    Raises:
        MissingDayError: the day before, or the day's changes, are not there yet.
        AuditError: the day's audit failed; nothing is published.
        ConfigError: a column can't be in the lake under its name.
        SchemaDriftError: the key's columns or types changed.
        ConcurrentRunError: another run published the day meanwhile, made of something else.
    """
    began = time.monotonic()
    table_day = _read(lake, source, table, day, context, state)
    inputs, state = table_day.inputs, table_day.state
    if state and not force and inputs.is_up_to_date:
        if state.refs.get("main") != state.tags[max(state.tags)]:
            lake.mend_main(table_day.identifier)
        return recorded_report(inputs.summary, DayReport)
    if make_earlier_again(lake, source, table, day, context, state):
        table_day = _read(lake, source, table, day, context)
    _check_databases(table_day)
    _check_streams(table_day)
    check_ids(table_day)
    _check_quarantine(table_day)
    return _publish(lake, table_day, began)


def _publish(lake: Lake, day: TableDay, began: float) -> DayReport:
    base, columns = day.base, prepare_columns(day)
    branch = day_branch(lake, day.identifier, day.day, base, day.state, columns.retyped)
    # Without a key there are only truncates, of a table that never had a row.
    can_have_rows = columns.are_keys_known or not day.is_keyed
    has_rows = bool(day.day_facts.events) and can_have_rows
    return publish_day(
        lake,
        branch,
        day.inputs,
        day.label,
        DayReport,
        lambda started: _build(day, started, columns, has_rows, began),
        has_rows or branch.is_written_again,
        lambda: _read(lake, day.source, day.table, day.day, day.context).inputs,
    )


def make_earlier_again(
    lake: Lake, source: str, table: str, day: date, context: SourceContext, state: TableState | None
) -> dict[date, DayReport]:
    """Make those days before a day again, on which a new server had begun that was found since.

    Args:
        state: the table's metadata.

    Raises:
        MissingDayError: what such a day is made of is gone.
    """
    made: dict[date, DayReport] = {}
    inputs = DayInputs(lake.config, source, table, day, context.commits, state)
    for earlier in inputs.outdated:
        try:
            earlier_context = gather(lake, source, [table], [earlier])
            made[earlier] = make_table_day(lake, source, table, earlier, earlier_context)
        except MissingDayError as error:
            found = (context.epochs or SourceEpochs()).for_table(table)
            instants = named_instants(found.starts)
            raise MissingDayError(
                error.what,
                error.day,
                f"{earlier} was made before it was found that {'; '.join(found.in_words)}. It is "
                f"to be made again, and can't. {error.remedy} To go on from {day} without that, "
                f"name the instants: sources.{source}.position_reset: {instants}",
            ) from error
    return made


def _read(
    lake: Lake,
    source: str,
    table: str,
    day: date,
    context: SourceContext,
    state: TableState | None = None,
) -> TableDay:
    if state is None:
        state = lake.read_state(lake.state(source, TableName.parse(table)))
    return TableDay(lake, source, table, day, context, state)


def _build(
    day: TableDay, started: DayBranch | None, columns: TableColumns, has_rows: bool, began: float
) -> DayReport:
    """Merge the day's changes into its branch, and audit it; None: there is nothing to write."""
    rows, added = apply.RowFigures(), BranchFigures()
    if started is not None:
        branch = write_again(day.lake, started)
        if has_rows:
            rows = apply.make_rows(day, branch, columns)
        state = day.lake.read_state(day.identifier)
        assert state is not None
        added = branch_figures(state, branch)
    # Rows with positions of the earlier form are written again with the whole of a small table.
    are_rewritten = has_rows and day.is_rewritten and day.is_keyed
    earlier = None if are_rewritten else day.earlier_rows
    facts, labels = day.day_facts, columns.types.labels
    own_basis = sum(r.count for r in facts.ranges_on(day.bases))
    return DayReport(
        table=day.table,
        day=str(day.day),
        rows=day.rows_before + added.net if rows.rows is None else rows.rows,
        rows_before=day.rows_before,
        events=facts.events,
        ops=facts.ops,
        written=added.written if rows.written is None else rows.written,
        removed=added.removed if rows.removed is None else rows.removed,
        bytes_added=added.bytes_added,
        files_added=added.files_added,
        unfit=rows.values.unfit,
        units=rows.values.units,
        open_labels=labels.open,
        labels_sent=labels.are_sent,
        unresolved=rows.unresolved,
        canonical_ids=has_document_ids(day),
        values_version=VALUES_VERSION,
        read_otherwise=earlier_values(day, columns),
        incompatible=list(columns.incompatible),
        too_late=_count_too_late(day),
        highest=day.highest,
        bases=_by_text(day.bases),
        other_basis=sum(r.count for r in facts.ranges) - own_basis,
        database=day.database,
        other_databases=day.other_databases,
        earlier_until=str(earlier[0]) if earlier else None,
        earlier_bases=_by_text(earlier[1]) if earlier else {},
        contradicted=rows.values.contradicted,
        unreadable_keys=rows.unreadable_keys,
        arrived_on_rows=rows.met.arrived_on_rows,
        before_of_others=rows.met.before_of_others,
        of_other_tables=rows.met.of_other_tables,
        keys_audited=rows.keys_audited,
        touched=None if rows.touched == EVERYWHERE else rows.touched.as_json(),
        snapshot=_snapshot(day, rows.unread),
        reading=[one.as_json() for one in day.snapshots.reading],
        rules_changed=day.inputs.rules_changed,
        seconds=round(time.monotonic() - began, 2),
    )


def _snapshot(day: TableDay, unread: UnreadRows | None) -> dict[str, Any] | None:
    """The snapshots that ended on the day, and what they did not read of rows before them."""
    if unread is None:
        return None
    return {"ended": [one.as_json() for one in day.snapshots.ended], **unread.as_json()}


def _by_text(bases: Mapping[int, str]) -> dict[str, str]:
    """Bases by epoch, as JSON has them."""
    return {str(epoch): basis for epoch, basis in bases.items()}


def _count_too_late(day: TableDay) -> int:
    """Events older than the `late_days` window (O12).

    A removal that landed then is not looked up any more: such an event may bring its row back.
    """
    last = (day.window[0] if day.window else day.day) - timedelta(days=1)
    known = day.report_on(last).get("highest")
    lowest = day.day_facts.lowest(day.bases)
    if not known or not lowest or list(lowest) >= list(known):
        return 0
    # Those on another basis are counted apart.
    is_comparable = F.col("position_basis").isin(*day.bases.values())
    events = events_on(day, [day.day]).where(is_comparable)
    return events.where(F.col("position") < literal_position(known)).count()


def _check_databases(day: TableDay) -> None:
    """Rows of several databases are never made one table (D4)."""
    if day.database is None and day.databases:
        named = ", ".join(key_in_database(day.table, db) for db in day.databases)
        raise AuditError(
            day.label,
            day.day,
            f"its events are of several databases ({', '.join(day.databases)}), whose rows would "
            "overwrite each other. Name all tables of the source in three parts, in cdc.yaml under "
            f"sources.{day.source}.tables: {named}",
        )


def _check_streams(day: TableDay) -> None:
    """Tables that go into one have positions of one stream, or keys that `add` tells apart (R8)."""
    if not day.has_leaves:
        return
    spans: dict[str, tuple[int, int]] = {}
    for own in day.day_facts.arrivals:
        if own.first_ms is not None:
            first, last = spans.get(own.stream, (own.first_ms, own.last_ms))
            spans[own.stream] = min(first, own.first_ms), max(last, own.last_ms)
    # A connector that takes over begins behind the former one (O11).
    in_order = sorted(spans, key=lambda stream: spans[stream])
    beside = [(one, other) for one, other in pairwise(in_order) if spans[other][0] <= spans[one][1]]
    entries = day.settings.leaves_of(day.table)
    lacking = [text for text, entry in entries.items() if not entry.add]
    where = f"sources.{day.source}.tables"
    if beside and lacking:
        raise AuditError(
            day.label,
            day.day,
            f"its tables come from several servers ({' and '.join(beside[0])}), whose positions "
            f"can't be compared. Nothing is published. Say in {where}.{lacking[0]}.add which "
            "column of the key tells their rows apart, as in add: {shard: '{1}'}",
        )
    if beside and day.settings.position_reset == "auto":
        raise AuditError(
            day.label,
            day.day,
            f"its tables come from several servers ({' and '.join(beside[0])}), and which of them "
            "took over from another can't be told. Nothing is published. Name the instants: "
            f"sources.{day.source}.position_reset: [], where there were none",
        )


def _check_quarantine(day: TableDay) -> None:
    if day.settings.on_quarantine != "block":
        return
    bad = (
        day.lake.spark.table(day.lake.stage(day.source, "quarantine"))
        .where(F.col("landing_date") == F.lit(day.day))
        .groupBy("table_name", "reason")
        .count()
        .collect()
    )
    named = {r.table_name for r in bad}
    if bad and (None in named or day.table in named):
        reasons = ", ".join(sorted(f"{r['count']} {r.reason}" for r in bad))
        raise AuditError(
            day.label,
            day.day,
            f"quarantine holds {reasons} and on_quarantine is block. See "
            f"lake.{day.source}.quarantine; mend the landing, or set on_quarantine: publish.",
        )
