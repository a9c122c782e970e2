"""Feeds, a kind of derived tables: a day's changes stand behind those of the days before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from cdc_assets.cdc.derived.stage import DerivedDay, DerivedKind, DerivedReport
from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.feed import columns as names
from cdc_assets.cdc.feed.changes import changes_of, rows_as_versions
from cdc_assets.cdc.history.entries import keys_of
from cdc_assets.cdc.lake.checkpoints import local_checkpoints
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import FEED as NAME
from cdc_assets.cdc.state.apply import keyed_day
from cdc_assets.cdc.state.day_types import with_types_of
from cdc_assets.cdc.state.retyping import as_stored
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.writes import figures_of


@dataclass(frozen=True)
class FeedReport(DerivedReport):
    """What a day of a feed came to: `rows` are its changes of all days."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0


def _write(day: DerivedDay) -> Mapping[str, Any]:
    of_table, branch = day.of_table, day.branch
    first = min([of_table.day, *of_table.open_transactions.values()])
    columns = with_types_of(of_table, day.columns, of_table.days_from(first))
    with local_checkpoints() as checkpoints:
        keyed = keyed_day(of_table, columns, checkpoints, is_made=True)

        def before(start: date) -> DataFrame | None:
            return rows_as_versions(keyed, start)

        groups, unsent = keys_of(keyed, before, False, checkpoints, of_table.is_rewritten)
        found = reduce(DataFrame.unionByName, (changes_of(keys, unsent) for keys in groups))
        counted, kinds = Observation(), (names.INSERT, names.UPDATE, names.DELETE)
        counts = (F.count_if(F.col(names.CHANGE) == kind).alias(f"{kind}s") for kind in kinds)
        rows = as_stored(found.observe(counted, *counts), branch)
        with_retry(lambda: rows.writeTo(branch.identifier).append())
        figures = {f"{kind}s": 0 for kind in kinds} | figures_of(counted)
    _audit(of_table, figures)
    return figures


FEED = DerivedKind(
    name=NAME,
    columns=names.CHANGE_COLUMNS,
    comment="the changes of the rows of {label}, those of a day by _cdc_landing_date",
    day_column=names.LANDED,
    report=FeedReport,
    write=_write,
)


def _audit(day: TableDay, figures: Mapping[str, int]) -> None:
    """The day's changes make the number of the table's rows what it is.

    Raises:
        AuditError: they do not.
    """
    report = day.report_on(day.day)
    expected = report["rows"] - report["rows_before"]
    inserted, deleted = figures["inserts"], figures["deletes"]
    if inserted - deleted != expected:
        raise AuditError(
            day.label,
            day.day,
            f"the changes in its feed insert {inserted} rows and delete {deleted}; the table has "
            f"{report['rows']} rows and had {report['rows_before']} on the day before. Nothing is "
            "published; make the day again, and report this with the tables' snapshots",
            check="changes_match_table",
        )
