"""How many rows a day of a table reads, by metadata alone."""

from __future__ import annotations

from datetime import date, timedelta

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayCommits, TableState
from cdc_assets.cdc.spark import is_small
from cdc_assets.cdc.state.source_context import SourceContext
from cdc_assets.cdc.state.table_day import TableDay


def rows_to_read(
    lake: Lake, source: str, table: str, day: date, context: SourceContext, state: TableState | None
) -> int | None:
    """At most how many rows one Spark stage of the day reads; None for small days.

    A stage may read the table's events, the whole table, or both side by side. Files of `changes`
    hold events of several tables: where most of what may be read is not this table's, the figure
    would say nothing of how far its day is, and is None, too.

    Args:
        state: what the table's metadata says, None where there is no table yet.
    """
    table_day = TableDay(lake, source, table, day, context, state)
    past = sorted({*table_day.pair_window, *table_day.window}) if table_day.looks_back else []
    days = [*past, day]
    days_facts = table_day.facts_on_days(days)
    summary = state.day_summary(day - timedelta(days=1)) if state else {}
    stands = int(summary.get("total-records", 0))
    own = stands + sum(facts.events for facts in days_facts)
    if is_small(own):
        return None
    changed = DayCommits(context.commits["changes"]).records(days)
    if changed is None:
        return None
    # An event that changes the key is two: of the old key's row and of the new one's.
    most = stands + changed + sum(facts.key_changes for facts in days_facts)
    return most if most <= 2 * own else None
