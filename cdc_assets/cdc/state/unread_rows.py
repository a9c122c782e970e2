"""Rows that a snapshot of their table did not read: they were removed while nobody listened (R7).

Their removal is in no event. A row counts as one of them where no event of its key landed since
the snapshot's first read, and the source changed it before that read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame

from cdc_assets.cdc.config import TABLE_OF_ROW
from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.lake.commits import DayBranch
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.implied_removals import not_read
from cdc_assets.cdc.state.keyed_day import KeyedDay
from cdc_assets.cdc.state.retyping import rows_on
from cdc_assets.cdc.state.row_sql import standing_values
from cdc_assets.cdc.state.snapshots import has_landed_since
from cdc_assets.cdc.state.table_day import SOURCE_TS, TableDay
from cdc_assets.cdc.state.table_events import events_on
from cdc_assets.cdc.state.writes import count_rows, delete_keys

_EXAMPLES = 5


@dataclass(frozen=True)
class UnreadRows:
    """What a snapshot that ended on a day did not read.

    Attributes:
        missing: rows of the table that it did not read.
        removed: those of them that were removed.
        examples: the keys of some, as JSON; none where the source does not show them.
        reads: of a table without a key: its reads, which may be rows that are there already.
    """

    missing: int = 0
    removed: int = 0
    examples: Sequence[str] = ()
    reads: int = 0

    def as_json(self) -> dict[str, Any]:
        """Its attributes by name."""
        return {**self.__dict__, "examples": list(self.examples)}


def handle_unread(keyed: KeyedDay, on: DayBranch, checkpoints: Checkpoints) -> UnreadRows | None:
    """Count the rows on the day's branch that its snapshots did not read; remove them if told to.

    Runs jobs where a snapshot has ended that may have left rows unread; None: none has.

    Args:
        on: the branch, the day's events among its rows.

    Raises:
        AuditError: they are more than may be removed.
    """
    day, columns = keyed.day, keyed.columns
    if not day.snapshots.ended or not day.may_leave_unread:
        return None
    rows = day.lake.spark.sql(f"SELECT * FROM {day.rows_in(rows_on(on))}")
    key, *_ = standing_values(rows.schema, columns)
    leaf = [TABLE_OF_ROW] if day.has_leaves else []
    known = rows.select(key, SOURCE_TS, *leaf)
    of_each = (not_read(day, columns, known, snapshot) for snapshot in day.snapshots.ended)
    # A partitioned table may be read itself, beside its partitions.
    unread = checkpoints.add(reduce(DataFrame.unionByName, of_each).dropDuplicates(["k"]))
    missing = unread.count()
    if not missing:
        return UnreadRows()
    found = UnreadRows(missing, examples=_examples(day, unread, columns))
    if day.settings.on_resnapshot == "warn":
        return found
    stood = count_rows(day, on)
    _check_share(day, found, stood)
    delete_keys(day, on.identifier, unread, columns)
    left = count_rows(day, on)
    if left != stood - missing:
        raise AuditError(
            day.label,
            day.day,
            f"{missing} of {stood} rows were to be removed, which its snapshot did not read, and "
            f"{left} rows are left. Nothing is published; make the day again, and report this "
            "with the table's snapshots",
        )
    return UnreadRows(missing, missing, found.examples)


def reads_again(day: TableDay) -> UnreadRows | None:
    """Count the reads of a snapshot of a table without a key: rows that may be there already.

    Runs a job where such a snapshot ended; None: none did.
    """
    if not day.snapshots.ended or not day.may_leave_unread:
        return None
    days = sorted({d for snapshot in day.snapshots.ended for d in snapshot.days})
    since = " OR ".join(has_landed_since(snapshot.first) for snapshot in day.snapshots.ended)
    return UnreadRows(reads=events_on(day, days).where(f"op = 'r' AND ({since})").count())


def _examples(day: TableDay, unread: DataFrame, columns: TableColumns) -> list[str]:
    """The keys of some rows."""
    if not all(day.settings.shows_column(day.table, name) for name in columns.key_names):
        return []
    members = zip(columns.key_names, columns.key_work, strict=True)
    named = ", ".join(f"k.{work} AS {quote(name)}" for name, work in members)
    ordered = unread.orderBy("k").limit(_EXAMPLES)
    return [row.key for row in ordered.selectExpr(f"to_json(struct({named})) AS key").collect()]


def _check_share(day: TableDay, found: UnreadRows, stood: int) -> None:
    percent = day.settings.resnapshot_remove_percent
    if found.missing * 100 <= stood * percent:
        return
    such = f", such as those with the keys {', '.join(found.examples)}" if found.examples else ""
    setting = f"sources.{day.source}.resnapshot_remove_percent"
    raise AuditError(
        day.label,
        day.day,
        f"a snapshot did not read {found.missing} of its {stood} rows{such}; on_resnapshot: "
        f"replace removes at most {percent:g} percent ({setting}). Nothing is published. Were they "
        "removed at the source, allow more of them; was the snapshot filtered, or not of the "
        f"whole table, say sources.{day.source}.on_resnapshot: warn",
        check="rows_missing_from_snapshot",
    )
