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

from cdc_assets.cdc.envelopes.debezium import event_in, read_envelope
from cdc_assets.cdc.envelopes.debezium_event import event_members, parts, source_of, with_event
from cdc_assets.cdc.envelopes.envelope import Format, TableAndRow, object_in, table_and_row
from cdc_assets.cdc.envelopes.images import with_values
from cdc_assets.cdc.json_reader import Wanted, read
from cdc_assets.cdc.sqltext import Query, Sql, case, interpreted_if, literal, whole
from cdc_assets.cdc.values.column_types import ColumnTypes, columns_of_images

# Snapshots write "i" too; older documents say "c". "r" is a range of rows that was deleted.
ROW_OPS = ("i", "c", "u", "d")
EVENT = event_members("ts_micro")
_BASIS = "ts_micro"
# The parts of a cell, `cell`; `v` is its JSON, or a plain value's.
_CELL: dict[str, Wanted] = {
    "held": ("json", "value"),
    "deletion_kind": ("kind", "deletion_ts"),
    "is_set": ("text", "set"),
}
_HELD = "coalesce(cell.held, v)"
_NOW = case(("cell.deletion_kind <> 'null'", "'null'"), otherwise=_HELD)
_MOST_MS = 10**14  # the year 5138: some versions write microseconds into `ts_ms`
_RANGE = "op r deletes a range of rows, which it does not name: delete rows by their keys"


def read_cassandra(records: Query) -> Query:
    """Read events of Cassandra.

    Args:
        records: has `d`, of the members `EVENT`.

    Returns:
        The records with the columns of `Envelope`.
    """
    opened = with_event(records, EVENT).extend(parts())
    shaped = opened.extend(
        {
            "v_sent_op": "v_op_text",
            "v_before": case(("v_op_text = 'd'", _written(_HELD))),
            "v_after": case(("v_op_text <> 'd'", _written(_NOW))),
        }
    ).replace({"v_op_text": case(("v_op_text = 'i'", "'c'"), otherwise="v_op_text")})
    events = read_envelope(shaped, source_of(schema="keyspace"), ("c", "u", "d"), "true")
    milliseconds, most = whole("e.s_ts_ms"), literal(_MOST_MS)
    micros = (
        f"coalesce({whole('e.s_ts_micro')}, CASE WHEN {milliseconds} > -{most} "
        f"AND {milliseconds} < {most} THEN {milliseconds} * 1000L ELSE {milliseconds} END)"
    )
    # `div` rounds towards 0: the milliseconds before 1970 would not be those of their clock.
    rounded = f"{micros} div 1000L - CASE WHEN {micros} % 1000L < 0 THEN 1L ELSE 0L END"
    detail = case(
        ("e_reason = 'unknown_op' AND v_sent_op = 'r'", literal(_RANGE)), otherwise="e_detail"
    )
    return events.replace(
        {
            "e_detail": interpreted_if("e_reason IS NOT NULL", detail),
            "e_source_op": "v_sent_op",
            "e_columns": f"{read('coalesce(v_before, v_after)', size=('size',))}.size",
            "e_elements": f"array({micros})",
            "e_basis": literal(_BASIS),
            "e_stand_in": micros,
            "e_source_ts_ms": rounded,
        }
    )


def _written(value: Sql) -> Sql:
    """The row of the cells that a statement wrote, each with this value."""
    is_written = "v <> 'null' AND NOT cell.is_set <=> 'false'"
    return with_values("e.after", _with_cell(case((is_written, value))))


def _with_cell(value: Sql) -> Sql:
    """An expression of `cell` and `v` as one of `v` alone."""
    return f"get(transform(array({read('v', **_CELL)}), cell -> {value}), 0)"


def _key_row(key_row: Sql) -> Sql:
    """Key columns that are plain values, or cells."""
    is_cell = "cell.held IS NOT NULL AND cell.deletion_kind IS NOT NULL"
    values = with_values(key_row, _with_cell(case((is_cell, "cell.held"), otherwise="v")))
    may_have_cells = f"contains({key_row}, '\"deletion_ts\"')"
    return case((may_have_cells, values), otherwise=key_row)


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
    EVENT,
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
