"""Debezium's events of Cassandra: the cells that a statement wrote.

Each column of `after` is a cell ``{"value": …, "deletion_ts": …, "set": true}``, or null where
the statement did not write it: such a column stays as it was (`missing_columns: keep`). A cell with
a `deletion_ts` was deleted: it is null. An insert writes over a row that is there, as Cassandra's
does. The time of the write, `source.ts_micro`, orders events, also those of several nodes, whose
commit logs have positions of their own; what was written last counts, as in Cassandra.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_assets.cdc.envelopes.debezium import (
    event_in,
    event_type,
    member,
    read_envelope,
    source_of,
    with_event,
    with_parts,
)
from cdc_assets.cdc.envelopes.envelope import Format, TableAndRow, object_in, table_and_row
from cdc_assets.cdc.envelopes.images import with_images
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    get,
    interpreted_if,
    is_present,
    literal,
    members_of,
    whole,
)
from cdc_assets.cdc.values.column_types import ColumnTypes, columns_of_images

# Snapshots write "i" too; older documents say "c". "r" is a range of rows that was deleted.
ROW_OPS = ("i", "c", "u", "d")
_EVENT = event_type("map<string, variant>", "keyspace", "ts_micro")
_BASIS = "ts_micro"
_MOST_MS = 10**14  # the year 5138: some versions write microseconds into `ts_ms`
_RANGE = "op r deletes a range of rows, which it does not name: delete rows by their keys"


def read_cassandra(records: Query) -> Query:
    """Read events of Cassandra.

    Args:
        records: has the columns of :func:`~cdc_assets.cdc.envelopes.connect.with_document`.

    Returns:
        The records with the columns of `Envelope`.
    """
    events = with_event(records).extend({"e": member(kind=_EVENT)})
    parts = with_parts(events, ROW_OPS)
    shaped = parts.extend({"v_sent_op": "v_op_text"}).replace(
        {"v_op_text": case(("v_op_text = 'i'", "'c'"), otherwise="v_op_text")}
    )
    again = members_of(
        f"CASE WHEN is_wrapped THEN {get('digits', '$.payload.after')} "
        f"ELSE {get('digits', '$.after')} END"
    )
    images = [
        (case(("v_op_text = 'd'", _values(cells))), case(("v_op_text <> 'd'", _cells(cells))))
        for cells in ("e.after", again)
    ]
    imaged = with_images(shaped, *images[0], images[1])
    read = read_envelope(
        imaged, source_of(schema="keyspace"), ("c", "u", "d"), member("op"), "true"
    )
    milliseconds, most = whole("e.source.ts_ms"), literal(_MOST_MS)
    micros = (
        f"coalesce({whole('e.source.ts_micro')}, CASE WHEN {milliseconds} > -{most} "
        f"AND {milliseconds} < {most} THEN {milliseconds} * 1000L ELSE {milliseconds} END)"
    )
    # `div` rounds towards 0: the milliseconds before 1970 would not be those of their clock.
    rounded = f"{micros} div 1000L - CASE WHEN {micros} % 1000L < 0 THEN 1L ELSE 0L END"
    detail = case(
        ("e_reason = 'unknown_op' AND v_sent_op = 'r'", literal(_RANGE)), otherwise="e_detail"
    )
    return read.replace(
        {
            "e_detail": interpreted_if("e_reason IS NOT NULL", detail),
            "e_source_op": "v_sent_op",
            "e_elements": f"array({micros})",
            "e_basis": literal(_BASIS),
            "e_stand_in": micros,
            "e_source_ts_ms": rounded,
        }
    )


def _written(cells: Sql) -> Sql:
    is_set = f"NOT {get('v', '$.set', 'string')} <=> 'false'"
    is_written = f"NOT is_variant_null(v) AND {is_set}"
    return f"map_filter({cells}, (name, v) -> {is_written})"


def _values(cells: Sql) -> Sql:
    """What the cells of a deleted row held: its key."""
    value = get("v", "$.value")
    return f"transform_values({_written(cells)}, (name, v) -> coalesce({value}, v))"


def _cells(cells: Sql) -> Sql:
    """The columns that were written."""
    is_deleted = is_present(get("v", "$.deletion_ts"))
    held = f"coalesce({get('v', '$.value')}, v)"
    value = case((is_deleted, "parse_json('null')"), otherwise=held)
    return f"transform_values({_written(cells)}, (name, v) -> {value})"


def _key_row(key_row: Sql) -> Sql:
    """Key columns that are plain values, or cells."""
    is_cell = f"{get('v', '$.value')} IS NOT NULL AND {get('v', '$.deletion_ts')} IS NOT NULL"
    value = case((is_cell, get("v", "$.value")), otherwise="v")
    return f"transform_values({key_row}, (name, v) -> {value})"


def _columns_of_schema(schema: Mapping[str, Any]) -> ColumnTypes:
    """Of the schema of a cell, the type of its value."""

    def fields(of: Any) -> list[Any]:
        found = of.get("fields") if isinstance(of, dict) else None
        return found if isinstance(found, list) else []

    def of_value(cell: Any) -> Any:
        value = next((f for f in fields(cell) if f.get("field") == "value"), None)
        return cell if value is None else {**value, "field": cell.get("field")}

    images = [
        {**image, "fields": [of_value(cell) for cell in fields(image)]} if fields(image) else image
        for image in fields(schema)
    ]
    return columns_of_images({**schema, "fields": images})


def _table_and_row(document: Mapping[str, Any]) -> TableAndRow | None:
    event = event_in(document)
    source, cells = object_in(event, "source"), object_in(event, "after")
    if event.get("op") == "d":
        return None
    row = {
        n: cell["value"] for n, cell in cells.items() if isinstance(cell, dict) and "value" in cell
    }
    return table_and_row(source.get("keyspace"), source.get("table"), row)


DEBEZIUM_CASSANDRA = Format(
    "debezium-cassandra",
    read_cassandra,
    signatures=(
        *(
            (f"{at}source.keyspace", f"{at}source.{own}")
            for at in ("", "payload.")
            for own in ("cluster", "ts_micro")
        ),
    ),
    columns_of_schema=_columns_of_schema,
    table_and_row=_table_and_row,
    whole_old_rows=True,
    key_row=_key_row,
)
