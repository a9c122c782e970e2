"""Tables of MongoDB that an earlier version made: is each id written as it is today (FORMATS M1)?

Where one is not, its next change would be a second row beside the first: such a table stops.
"""

from __future__ import annotations

from datetime import timedelta

from cdc_assets.cdc.envelopes.extended_json import canonical, id_text, is_document, plain_id_text
from cdc_assets.cdc.envelopes.mongodb import DEBEZIUM_MONGODB, ID, TEXT
from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.json_reader import read
from cdc_assets.cdc.sqltext import Query, Sql
from cdc_assets.cdc.state.earlier_values import how_to_make
from cdc_assets.cdc.state.table_day import TableDay

CANONICAL = "canonical_ids"


def has_document_ids(day: TableDay) -> bool:
    """Is the table one of MongoDB?"""
    return day.settings.format == DEBEZIUM_MONGODB.name


def check_ids(day: TableDay) -> None:
    """Compare the ids of the day before, which an earlier version made, with their texts of today.

    A job of its own, once a table.

    Raises:
        AuditError: an id stands otherwise, or a document of several members whose order nothing
            shows.
    """
    if not has_document_ids(day) or day.base is None or day.starts_empty:
        return
    if day.report_on(day.day - timedelta(days=1)).get(CANONICAL):
        return
    rows = day.at(day.base)
    own = day.sent.lake_name(ID)
    text = day.sent.lake_name(TEXT)
    has_text = text in rows.columns and text not in {*day.config.columns, *day.config.hash}
    is_hashed = own in day.config.hash
    differs = _differs(f"`{own}`", f"`{text}`" if has_text else None, is_hashed)
    example = Query(rows).where(differs).select(f"`{own}` AS id").plan().first()
    if example is None:
        return
    is_shown = not is_hashed and day.settings.shows_column(day.table, own)
    shown = f", such as {example.id}" if is_shown else ""
    raise AuditError(
        day.label,
        day.day,
        f"an earlier version wrote ids of its rows otherwise than they are read now{shown}: the "
        f"next change of such a row would be a second row. {how_to_make(day)}",
    )


def _differs(own: Sql, text: Sql | None, is_hashed: bool) -> Sql:
    """True for a row whose id has another text today, or may have."""
    if text is None:
        return "true" if is_hashed else f"NOT {canonical(own)} <=> {own} OR {is_document(own)}"
    sent = f"{read(text, id=('json', ID))}.id"
    today = id_text(sent, text)
    if is_hashed:
        return f"NOT {today} <=> {plain_id_text(sent)} OR {is_document(today)}"
    return f"NOT coalesce({today}, {canonical(own)}) <=> {own}"
