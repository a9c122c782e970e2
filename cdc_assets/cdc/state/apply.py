"""The day's events → the rows that they leave → the day's branch, written and audited.

The Spark jobs of a table's day are run here, by what is handed `checkpoints`, and by the writes and
audits; the other functions make frames.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from cdc_assets.cdc.lake.checkpoints import Checkpoints, local_checkpoints
from cdc_assets.cdc.lake.commits import DayBranch
from cdc_assets.cdc.spark import is_small
from cdc_assets.cdc.state.audit import (
    Expected,
    audit_appended,
    audit_compared,
    audit_rewritten,
    audit_written,
)
from cdc_assets.cdc.state.copies import find_copies
from cdc_assets.cdc.state.day_types import TableColumns, with_types_of
from cdc_assets.cdc.state.folding import fold
from cdc_assets.cdc.state.inherited_values import inherit
from cdc_assets.cdc.state.keyed_day import KeptEvents, KeyedDay
from cdc_assets.cdc.state.met_rows import MetRows, count_met_rows
from cdc_assets.cdc.state.placement import removed_in_window
from cdc_assets.cdc.state.row_changes import row_changes, winners
from cdc_assets.cdc.state.row_sql import lacking_values, with_typed_columns
from cdc_assets.cdc.state.soft_deletes import keep_deleted
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.touched import EVERYWHERE, Touched, touched
from cdc_assets.cdc.state.unkeyed import UnkeyedDay
from cdc_assets.cdc.state.unkeyed_writes import write_unkeyed
from cdc_assets.cdc.state.unread_rows import UnreadRows, handle_unread, reads_again
from cdc_assets.cdc.state.unsent_columns import find_unsent
from cdc_assets.cdc.state.unsent_values import NONE_UNSENT, UnsentColumns
from cdc_assets.cdc.state.value_figures import (
    ValueCounts,
    ValueFigures,
    count_unreadable_keys,
    judge_values,
    value_counts,
)
from cdc_assets.cdc.state.writes import (
    append,
    compare_with_table,
    count_rows,
    delete_all,
    delete_below,
    delete_keys,
    figures_of,
    fingerprint,
    rewrite,
)


@dataclass(frozen=True)
class WrittenRows:
    """What was written to a branch; `rows`, `written`, `removed` None: its commits say it."""

    counts: ValueCounts
    touched: Touched = EVERYWHERE
    rows: int | None = None
    written: int | None = None
    removed: int | None = None


@dataclass(frozen=True)
class RowFigures:
    """What a day's rows came to; `rows`, `written`, `removed` None: the branch's commits say it."""

    values: ValueFigures = field(default_factory=ValueFigures)
    rows: int | None = None
    written: int | None = None
    removed: int | None = None
    unresolved: int = 0
    unreadable_keys: int = 0
    met: MetRows = field(default_factory=MetRows)
    keys_audited: int = 0
    touched: Touched = EVERYWHERE
    unread: UnreadRows | None = None


@dataclass(frozen=True)
class Winners:
    """The rows that a day leaves, typed; `unresolved` of them lack a value that was not sent."""

    rows: DataFrame
    unsent: UnsentColumns
    unresolved: int


def make_rows(day: TableDay, on: DayBranch, columns: TableColumns) -> RowFigures:
    """Write the day's rows to its branch, and see that they are there."""
    with local_checkpoints() as checkpoints:
        if not day.is_keyed:
            return _make_unkeyed(day, on, columns, checkpoints)
        first = min([day.day, *day.open_transactions.values()])
        columns = with_types_of(day, columns, day.days_from(first))
        keyed = keyed_day(day, columns, checkpoints)
        removed = removed_in_window(keyed)
        found = _find_winners(keyed, removed, checkpoints)
        if day.config.soft_delete:  # asked for once more behind the writes
            found = replace(found, rows=checkpoints.add(found.rows))
        written = _write(keyed, on, found, checkpoints)
        unread = handle_unread(keyed, on, checkpoints)
        gone = unread.removed if unread else 0
        written = replace(
            written,
            rows=None if written.rows is None else written.rows - gone,
            removed=None if written.removed is None else written.removed + gone,
        )
        if day.config.soft_delete or day.may_hold_deleted:
            is_whole = day.is_rewritten or keyed.truncated is not None or gone > 0
            own = keep_deleted(keyed, on, found.rows, is_whole)
            written = WrittenRows(
                written.counts, written.touched, own.rows, own.written, own.removed
            )
        return RowFigures(
            values=judge_values(day, found.rows, written.counts, columns),
            rows=written.rows,
            written=written.written,
            removed=written.removed,
            unread=unread,
            unresolved=found.unresolved,
            unreadable_keys=count_unreadable_keys(day, columns),
            met=count_met_rows(keyed, removed),
            keys_audited=written.counts.n,
            touched=written.touched,
        )


def keyed_day(
    day: TableDay, columns: TableColumns, checkpoints: Checkpoints, is_made: bool = False
) -> KeyedDay:
    """The day with its copies, and its events where several steps will ask for them.

    Args:
        is_made: as :attr:`KeyedDay.is_made`.
    """
    keyed = KeyedDay(day, columns, is_made=is_made)
    if day.may_have_copies or day.may_hold_keys_twice:
        days = day.days_read
        if is_small(sum(day.facts_on(d).events for d in days)):
            events = keyed.events(days, with_new_key=True)
            keyed = replace(keyed, kept=KeptEvents(frozenset(days), checkpoints.add(events)))
    if day.may_have_copies:
        keyed = replace(keyed, copies=find_copies(keyed, checkpoints))
    return keyed


def _find_winners(keyed: KeyedDay, removed: DataFrame | None, checkpoints: Checkpoints) -> Winners:
    """The rows that the day leaves.

    Args:
        removed: `k`, `pos` of what was removed in the `late_days` window.
    """
    day, columns = keyed.day, keyed.columns
    changes = row_changes(keyed, removed)
    if day.may_be_unsent:  # unsent values are looked for several times in the same changes
        changes = checkpoints.add(changes)
    unsent = find_unsent(keyed, changes)
    folded = None
    if day.may_hold_keys_twice:
        folded = fold(keyed, removed, unsent, checkpoints)
    if folded is not None:  # the highest position decides on all other keys
        changes = changes.join(folded.keys, "k", "left_anti")
    changes = unsent.add_to(changes, with_old_images=True)
    if unsent.has_links:
        # What a removal beats writes nothing, yet may hold what its row took to a new key.
        past = keyed.standing(), removed
        changes = inherit(changes, unsent, past, day.has_split_updates, checkpoints)
    rows = with_typed_columns(winners(changes, removed, unsent), columns, unsent)
    unresolved = 0
    if unsent.columns:
        rows = checkpoints.add(rows)
        unresolved = lacking_values(rows, keyed.standing(), unsent).count()
    rows = rows.withColumn("is_folded", F.lit(False))
    if folded is None:
        return Winners(rows, unsent, unresolved)
    rows = rows.unionByName(folded.rows, allowMissingColumns=True)
    if unsent.flags:
        rows = rows.fillna(False, unsent.flags)
    return Winners(rows, unsent, unresolved + folded.unresolved)


def _write(keyed: KeyedDay, on: DayBranch, found: Winners, checkpoints: Checkpoints) -> WrittenRows:
    """Append the winners to an empty table, rewrite a small one, or replace their keys' rows."""
    day, columns, unsent = keyed.day, keyed.columns, found.unsent
    observed = Observation()
    rows = found.rows.observe(observed, *value_counts(columns), _fingerprint())
    if day.starts_empty and not unsent.columns:
        append(day, on, rows, columns, unsent)
        counts = ValueCounts(**figures_of(observed))
        audit_appended(day, on, counts.n)
        return WrittenRows(counts)
    if day.is_rewritten:
        rewritten = rewrite(day, on, rows, columns, unsent, keyed.truncated)
        counts = ValueCounts(**figures_of(observed))
        stood = day.rows_before if keyed.truncated is None else None
        audit_rewritten(day, on.identifier, columns, counts.n, stood, rewritten)
        return WrittenRows(
            counts,
            rows=rewritten.standing - rewritten.removed + rewritten.written,
            removed=(day.rows_before - rewritten.standing) + rewritten.removed,
            written=rewritten.written,
        )
    # What is read twice takes longer to compute than to keep.
    rows = checkpoints.add(rows)
    counts = ValueCounts(**figures_of(observed))
    places = _change(keyed, on, rows, counts, unsent, checkpoints)
    if keyed.truncated is None:
        return WrittenRows(counts, places)
    # A file that goes as a whole is counted with the rows that were gone from it.
    return WrittenRows(counts, places, rows=count_rows(day, on))


def _change(
    keyed: KeyedDay,
    on: DayBranch,
    rows: DataFrame,
    counts: ValueCounts,
    unsent: UnsentColumns,
    checkpoints: Checkpoints,
) -> Touched:
    """Write what the day changed, in a table that is too large to rewrite.

    Args:
        rows: the day's winners, a local checkpoint.
        counts: those of the winners.

    Returns:
        Where in the table it was.
    """
    day, columns, branch = keyed.day, keyed.columns, on.identifier
    if keyed.truncated is not None:
        delete_below(day, branch, keyed.truncated)
    places = touched(keyed, on, rows)
    all_rows, expected = rows, Expected(counts.n, counts.fingerprint)
    is_compared = bool(unsent.columns) or not keyed.is_all_after or bool(day.open_transactions)
    if is_compared:
        # A row of the table may beat one of the day's, or have a value that it needs.
        observed = Observation()
        newer = compare_with_table(day, on, rows, columns, unsent, places.where)
        n = F.expr("count_if(NOT is_removal) AS n")
        rows = checkpoints.add(newer.observe(observed, n, _fingerprint()))
        expected = Expected(**figures_of(observed))
        unsent = NONE_UNSENT
    delete_keys(day, branch, rows, columns, places.where)
    append(day, on, rows, columns, unsent)
    audit_written(day, branch, rows, columns, expected, places.where)
    if is_compared:
        audit_compared(day, branch, all_rows, columns, counts.n, places.where)
    return places


def _fingerprint() -> Column:
    """That of the rows that are to be there."""
    return F.expr(fingerprint("k", "pos", "NOT is_removal")).alias("fingerprint")


def _make_unkeyed(
    day: TableDay, on: DayBranch, columns: TableColumns, checkpoints: Checkpoints
) -> RowFigures:
    unkeyed = UnkeyedDay(day, columns)
    changes = checkpoints.add(with_typed_columns(unkeyed.row_changes(), columns))
    today = changes.where("is_today")
    counts = today.agg(*value_counts(columns)).first()
    assert counts is not None
    values = judge_values(day, today, ValueCounts(**counts.asDict()), columns)
    unresolved = 0
    if day.day_facts.maybe_unchanged:
        unresolved = changes.where("is_today AND unfilled").count()
    unread = reads_again(day)
    if unread is not None and unkeyed.is_replaced:
        unread = replace(unread, removed=delete_all(day, on.identifier))
    else:
        if unkeyed.floor is not None:
            delete_below(day, on.identifier, unkeyed.floor)
        for leaf, cut in unkeyed.leaf_floors.items():
            delete_below(day, on.identifier, cut, leaf)
    rows = write_unkeyed(unkeyed, on, changes, checkpoints)
    return RowFigures(values, rows=rows, unresolved=unresolved, unread=unread)
