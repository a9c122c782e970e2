"""A column takes on a type that it can't be widened to: its rows are written once more (R5).

Iceberg knows a column by the number of its field. The new type is a new field, under a reserved
name on the day's branch; the commit that publishes the day takes the old field away and gives the
new one its name (:meth:`~cdc_assets.cdc.lake.catalog.Lake.publish`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.lake.catalog import Lake, column_ddl
from cdc_assets.cdc.lake.commits import (
    NEW_FIELD,
    RETYPED,
    DayBranch,
    Retyped,
    TableState,
)
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import ddl_of, quote
from cdc_assets.cdc.sqltext import Sql
from cdc_assets.cdc.values.grown import grown


def day_branch(
    lake: Lake,
    identifier: str,
    day: date,
    base: int | None,
    state: TableState | None,
    retyped: Sequence[Retyped],
) -> DayBranch:
    """A day's branch, whose rows are written once more where columns have other fields since.

    Nothing is written to it; the new fields of `retyped` are added to the table.

    Args:
        identifier: the table.
        base: the snapshot that the day starts from; None for an empty table.
        state: the table's metadata, None where it was just created.
        retyped: the columns that get another type on the day.
    """
    tags = state.tags if state else {}
    was_retyped = state is not None and RETYPED in state.properties
    if state and retyped and max(tags, default=day) > day:
        # Of the newest day at once: main is there, and has the new field from then on.
        _retype_newest(lake, identifier, state, retyped)
        retyped, was_retyped = (), True
    branch = lake.branch(identifier, day, base, tags.get(day))
    _add_fields(lake, identifier, retyped)
    branch = replace(branch, retyped=tuple(retyped))
    if state is None or base is None or not (retyped or was_retyped):
        return branch
    has_rows = state.snapshots[base].summary.get("total-records") != "0"
    is_old = bool(retyped) or _has_other_fields(lake, identifier, base)
    return replace(branch, is_written_again=has_rows and is_old)


def _has_other_fields(lake: Lake, identifier: str, base: int) -> bool:
    """Has a column another field now than it had in a snapshot?"""
    now, then = _fields(lake, identifier, base)
    return any(number not in now and name in now.values() for number, name in then.items())


def _fields(lake: Lake, identifier: str, snapshot: int) -> tuple[dict[int, str], dict[int, str]]:
    """The names of a table's columns by the numbers of their fields: now, and in a snapshot."""
    table = lake.handle(identifier)
    before = table.schemas().get(table.snapshot(snapshot).schemaId())
    now, then = ({f.fieldId(): f.name() for f in s.columns()} for s in (table.schema(), before))
    return now, then


def write_again(lake: Lake, branch: DayBranch) -> DayBranch:
    """Write the rows of a branch that was started once more, where it is needed.

    Returns:
        The branch, based on what was written.
    """
    if not branch.is_written_again or branch.base is None:
        return branch
    base = lake.at(branch.table, branch.base)  # by its own schema
    now, then = _fields(lake, branch.table, branch.base)
    earlier = {now[number]: name for number, name in then.items() if number in now}
    present = {field.name: field for field in base.schema.fields}
    new = {retyped.name: retyped.after for retyped in branch.retyped}
    values = {}
    for field in lake.spark.table(branch.table).schema.fields:
        if field.name in {retyped.stored for retyped in branch.retyped}:
            continue
        kind = new.get(field.name, ddl_of(field.dataType))
        old = present.get(earlier.get(field.name, field.name))
        value = "NULL" if old is None else grown(quote(old.name), old.dataType, kind)
        values[field.name] = f"CAST({value} AS {kind})"
    rows = base.selectExpr(*(f"{value} AS {quote(name)}" for name, value in values.items()))
    again = as_stored(rows, branch)
    with_retry(lambda: again.writeTo(branch.identifier).overwrite(F.lit(True)))
    state = lake.read_state(branch.table)
    assert state is not None
    return replace(branch, base=state.refs[branch.name])


def rows_on(branch: DayBranch) -> Sql:
    """The rows of a branch, each column under its name: a relation."""
    if not branch.retyped:
        return branch.identifier
    hidden = [quote(n) for retyped in branch.retyped for n in (retyped.name, retyped.stored)]
    shown = [f"{quote(retyped.stored)} AS {quote(retyped.name)}" for retyped in branch.retyped]
    return f"(SELECT * EXCEPT ({', '.join(hidden)}), {', '.join(shown)} FROM {branch.identifier})"


def as_stored(rows: DataFrame, branch: DayBranch) -> DataFrame:
    """Rows as the branch holds them, from rows whose columns have their names.

    What they do not have is null, as Spark writes by name.
    """
    for retyped in branch.retyped:
        rows = rows.withColumnRenamed(retyped.name, retyped.stored)
    return rows


def drop_left_over(
    lake: Lake, identifier: str, names: Iterable[str], retyped: Sequence[Retyped]
) -> None:
    """Take away the new fields that a run left which was killed.

    Args:
        names: of the table's columns.
        retyped: the columns whose new fields the day needs.
    """
    kept = {column.stored for column in retyped}
    for name in names:
        if name.startswith(NEW_FIELD) and name not in kept:
            drop = f"ALTER TABLE {identifier} DROP COLUMN {quote(name)}"
            with_retry(partial(lake.spark.sql, drop))


def _add_fields(lake: Lake, identifier: str, retyped: Sequence[Retyped]) -> None:
    """Add the new fields, each beside the one whose place it takes.

    A run that was killed may have left some of its own.
    """
    if not retyped:
        return
    present = {
        field.name: ddl_of(field.dataType) for field in lake.spark.table(identifier).schema.fields
    }
    for column in retyped:
        if present.get(column.stored) == column.after:
            continue
        if column.stored in present:
            drop = f"ALTER TABLE {identifier} DROP COLUMN {quote(column.stored)}"
            with_retry(partial(lake.spark.sql, drop))
        field = column_ddl(column.stored, column.after, column.comment)
        add = f"ALTER TABLE {identifier} ADD COLUMN {field} AFTER {quote(column.name)}"
        with_retry(partial(lake.spark.sql, add))


def _retype_newest(
    lake: Lake, identifier: str, state: TableState, retyped: Sequence[Retyped]
) -> None:
    """Publish the newest day once more, with the same rows in the new types."""
    newest = max(state.tags)
    branch = lake.branch(identifier, newest, state.tags[newest], state.tags[newest])
    branch = replace(branch, retyped=tuple(retyped), is_written_again=True)
    _add_fields(lake, identifier, retyped)
    try:
        lake.start(branch)
        write_again(lake, branch)
        lake.publish(branch, state.summary_of_same_rows(newest))
    except BaseException:
        lake.drop_branch(branch)
        raise
