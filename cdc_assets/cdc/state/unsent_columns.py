"""Which columns the events of a day leave unsent (FORMATS R2)."""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame

from cdc_assets.cdc.sqltext import Query, is_one_of
from cdc_assets.cdc.state.keyed_day import IS_LINK, KeyedDay
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.table_events import IS_UPSERT
from cdc_assets.cdc.state.unsent_values import NONE_UNSENT, UnsentColumns
from cdc_assets.cdc.values.json_value import member
from cdc_assets.cdc.values.placeholders import placeholder_forms


def may_find_unsent(day: TableDay) -> bool:
    """May an event of the day, or of one that is folded with it, leave a value unsent?"""
    earlier = day.facts_on_days(_days_folded_before(day))
    return day.may_be_unsent or any(facts.maybe_unchanged for facts in earlier)


def _days_folded_before(day: TableDay) -> list[date]:
    """The days before from which on a transaction is folded that the day goes on with (O16)."""
    begins = day.open_transactions.values() if day.may_hold_keys_twice else ()
    days = day.days_from(min([day.day, *begins]))[:-1]
    return [d for d in days if day.facts_on(d).events]


def find_unsent(keyed: KeyedDay, changes: DataFrame) -> UnsentColumns:
    """The columns that row changes leave unsent, never those of the key.

    A job, none where no event may leave a value unsent.

    Args:
        keyed: the day.
        changes: its row changes: `after`, `link`.
    """
    day, columns = keyed.day, keyed.columns
    if not may_find_unsent(day):
        return NONE_UNSENT
    placeholders = tuple(placeholder_forms(day.settings.unavailable_value))
    are_absent = day.settings.missing_columns == "keep"
    counts = {"links": "count_if(is_linked)"}
    if not are_absent:
        for c in columns.values:
            unsent = is_one_of(f"to_json({member('row', c.name)})", placeholders)
            counts[c.unsent] = f"count_if({unsent})"
    seen = changes.selectExpr("after", "link IS NOT NULL AS is_linked")
    if earlier := _days_folded_before(day):
        events = keyed.events(earlier).where(IS_UPSERT)
        seen = seen.unionByName(events.selectExpr("after", f"{IS_LINK} AS is_linked"))
    opened = Query(seen).extend({"row": "try_parse_json(after)"})
    found = opened.aggregate((), counts).plan().first()
    assert found is not None
    lacking = tuple(c for c in columns.values if are_absent or found[c.unsent])
    has_links = bool(lacking) and bool(found.links)
    return UnsentColumns(lacking, placeholders, are_absent, has_links)
