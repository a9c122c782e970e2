"""Debezium's envelope (FORMATS D1–D17)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from cdc_assets.cdc import positions
from cdc_assets.cdc.envelopes.debezium_event import (
    CAPTURES_OLD_AND_NEW,
    EVENT,
    Source,
    parts,
    source_of,
    with_event,
)
from cdc_assets.cdc.envelopes.declared import PLACEHOLDER
from cdc_assets.cdc.envelopes.envelope import (
    Envelope,
    Format,
    TableAndRow,
    object_in,
    table_and_row,
)
from cdc_assets.cdc.envelopes.images import with_values
from cdc_assets.cdc.envelopes.statements import kind_of
from cdc_assets.cdc.json_reader import names_in, value_at, values_at
from cdc_assets.cdc.names import TableName, namespace_of_database_sql, table_name_sql
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    interpreted_if,
    is_one_of,
    literal,
    literals,
    whole,
)
from cdc_assets.cdc.values.column_types import columns_of_images

ROW_OPS = ("c", "u", "d", "r", "t")
MESSAGE_OP = "m"
# Connectors whose events say their table and row in a way of their own.
_OTHER_FORMATS = {"mongodb": "debezium-mongodb", "cassandra": "debezium-cassandra"}


_CELL = {"value", "set"}
_NO_ROW = (
    " of Spanner does not have the whole row: "
    "ALTER CHANGE STREAM … SET OPTIONS (value_capture_type = 'NEW_ROW')"
)


def read_debezium(records: Query, unavailable_value: str, in_databases: bool = False) -> Query:
    """Read Debezium events of any connector.

    Args:
        records: has `d`, of the members `EVENT`.
        unavailable_value: stands in `after` for a value that was not sent (FORMATS R2).
        in_databases: tables are of several databases (D4).

    Returns:
        The records with the columns of `Envelope`.
    """
    return read_envelopes(records, ROW_OPS, False, unavailable_value, in_databases)


def read_envelopes(
    records: Query,
    row_ops: tuple[str, ...],
    lindorm: bool,
    unavailable_value: str | None = None,
    in_databases: bool = False,
) -> Query:
    """Read events of Debezium's shape; Lindorm's have `namespace` for the schema."""
    before, after = "e.before", "e.after"
    if unavailable_value is not None:
        before, after = _sent(before, after, unavailable_value)
    images = {"v_before": before, "v_after": after}
    opened = with_event(records, EVENT).extend({**parts(), **images})
    may_be_message = "false" if lindorm else "true"
    return read_envelope(opened, source_of(), row_ops, may_be_message, lindorm, in_databases)


def _sent(before: Sql, after: Sql, unavailable_value: str) -> tuple[Sql, Sql]:
    """The images, where a connector has a way of its own to say what it did not send."""
    unsent = literal(json.dumps(unavailable_value, ensure_ascii=False))
    # Of a row that is new there is nothing to keep.
    kept = case(("e.op = 'u'", unsent))
    value = _value_of_cell("v")
    is_set = f"startswith(v, {literal(_SET)})"
    cells = with_values(after, case((is_set, value), otherwise=kept))
    was = with_values(before, case((is_set, value)))
    image = f"coalesce({after}, {before})"
    may, has = _may_have_cells(image), _has_cells(image)
    return (
        case((may, interpreted_if(may, case((has, was), otherwise=before))), otherwise=before),
        case(
            (may, interpreted_if(may, case((has, cells), otherwise=after))),
            (_IS_PARTIAL, interpreted_if(_IS_PARTIAL, _whole_of_spanner(after, before, unsent))),
            otherwise=after,
        ),
    )


# Cells of YugabyteDB's own format (D22): ``{"value": …, "set": …}``, here as canonical JSON.
_SET, _NOT_SET = '{"set":true,"value":', '{"set":false,"value":'


def _is_cell(value: Sql) -> Sql:
    is_of_both = (
        f"(startswith({value}, {literal(_SET)}) OR startswith({value}, {literal(_NOT_SET)}))"
    )
    return f"({is_of_both} AND size({names_in(value)}) = 2)"


def _value_of_cell(cell: Sql) -> Sql:
    return value_at(cell, "'value'")


def _has_cells(image: Sql) -> Sql:
    """Is each value of an image a cell, or null?"""
    values = values_at(image, names_in(image))
    return (
        f"coalesce(forall({values}, v -> v = 'null' OR {_is_cell('v')}) "
        f"AND exists({values}, v -> v <> 'null'), false)"
    )


def _may_have_cells(text: Sql) -> Sql:
    """Most images do not name such a member."""
    return f"contains({text}, {literal(_SET[:7])})"


def _key_row(key_row: Sql) -> Sql:
    """Key columns that are plain values, or cells."""
    values = values_at(key_row, names_in(key_row))
    are_cells = (
        f"coalesce({_may_have_cells(key_row)} AND forall({values}, v -> {_is_cell('v')}), false)"
    )
    return case((are_cells, with_values(key_row, _value_of_cell("v"))), otherwise=key_row)


_IS_PARTIAL = (
    "e.op = 'u' AND e.s_connector = 'spanner' "
    f"AND e.s_value_capture_type = '{CAPTURES_OLD_AND_NEW}'"
)


def _whole_of_spanner(after: Sql, before: Sql, unsent: Sql) -> Sql:
    """A row after an update, where Spanner captures the old and new values of changed columns.

    Both images then have a null for each column that did not change.
    """
    now = f"CASE WHEN v = 'null' AND coalesce(o, 'null') = 'null' THEN {unsent} ELSE v END"
    return with_values(after, now, before)


def read_envelope(
    opened: Query,
    source: Source,
    row_ops: tuple[str, ...],
    may_be_message: Sql,
    lindorm: bool = False,
    in_databases: bool = False,
) -> Query:
    """Judge and name the parts of Debezium events.

    Args:
        opened: has :func:`with_event`'s columns, the images `v_before` and `v_after` (JSON) and the
            parts of the envelope: `v_op_text` (STRING, null where the op is not a text),
            `v_ts_ms`, `v_total_order` (BIGINT), `v_transaction` (STRING), `v_has_op`, `v_has_body`
            (source or an image is there, if only as null), `v_has_source` (it is an object) and
            `v_is_avro_json` (BOOLEAN).
        source: the event's `source`.
        row_ops: the ops that change rows.
        may_be_message: where op `m` is a logical message (D13).
        lindorm: the table is `source.namespace`.
        in_databases: it is of one of several databases, each with schemas of its own (D4).
    """
    judged = opened.extend(_judgements(source, may_be_message, lindorm, in_databases))
    row_op = f"coalesce(v_op_text IN ({literals(row_ops)}), false)"
    reasoned = judged.extend({"v_reason": _reason(source, row_op, lindorm)})
    detail = interpreted_if("v_reason IS NOT NULL", _detail(source, lindorm, in_databases))
    return _envelope(source, row_op, detail, lindorm).add_to(reasoned)


def _judgements(
    source: Source, may_be_message: Sql, lindorm: bool, in_databases: bool
) -> dict[str, Sql]:
    """Of which table an event is, and whether it is one."""
    table = source.name("table")
    namespace = _namespace(source, lindorm, in_databases)
    connector = _connector(source, lindorm)
    is_event = "v_has_op AND v_has_body"
    is_message = f"{is_event} AND coalesce(v_op_text = '{MESSAGE_OP}', false) AND {may_be_message}"
    # A heartbeat is an object of times alone: `ts_ms`, in later versions also `ts_us` … (D16).
    times = "forall(e.names, name -> startswith(name, 'ts_'))"
    is_neither = "NOT v_has_op AND NOT v_has_body"
    return {
        "v_namespace": namespace,
        "v_table": table,
        "v_name": table_name_sql(f"({namespace})", table),
        "v_basis": case(
            (f"{connector} IS NULL", source.basis),
            otherwise=positions.debezium_basis(connector),
        ),
        "v_is_event": is_event,
        "v_control": case(
            (is_message, "'message'"),
            ("NOT v_has_op AND e.ddl IS NOT NULL", "'ddl'"),  # D16: also JSON null
            (
                "NOT v_has_op AND e.status IN ('BEGIN', 'END') AND e.id IS NOT NULL",
                "'transaction'",
            ),
            (
                f"{is_neither} AND {whole('e.ts_ms')} IS NOT NULL "
                f"AND {interpreted_if(is_neither, times)}",
                "'heartbeat'",
            ),
        ),
    }


def _connector(source: Source, lindorm: bool) -> Sql:
    return "CAST(NULL AS string)" if lindorm else source.text("connector")


def _namespace(source: Source, lindorm: bool, in_databases: bool) -> Sql:
    """The namespace of an event's table."""
    # A schema that is there and no text names no table; only without one the database does.
    own = "namespace" if lindorm else "schema"
    namespace = source.name(own)
    if in_databases:
        return namespace_of_database_sql(source.name("db"), namespace)
    if lindorm:
        return namespace
    return case(
        (f"{source.text(own)} IS NOT NULL", namespace),
        # Of Vitess `db` is empty.
        (f"{source.text('connector')} = 'vitess'", source.name("keyspace")),
        otherwise=source.name("db"),
    )


def _reason(source: Source, row_op: Sql, lindorm: bool) -> Sql:
    """What is wrong with an event; null where nothing is."""
    has_object = "(v_has_source OR v_before IS NOT NULL OR v_after IS NOT NULL)"
    return case(
        ("v_control IS NOT NULL", "NULL"),
        (f"NOT v_has_op AND {has_object}", "'missing_op'"),
        ("NOT v_is_event OR coalesce(v_is_avro_json, false)", "'not_an_envelope'"),
        (f"NOT {row_op}", "'unknown_op'"),
        ("v_name IS NULL", "'missing_table'"),
        ("v_op_text IN ('c', 'r', 'u') AND v_after IS NULL", "'missing_image'"),
        (_lacks_row(source) if not lindorm else "false", "'missing_image'"),
    )


def _envelope(source: Source, row_op: Sql, detail: Sql, lindorm: bool) -> Envelope:
    """The event in the words of all formats."""
    text, op = source.text, "v_op_text"
    elements = positions.debezium_elements("v_basis", text, source.name("file"))
    statement = "coalesce(nullif(e.ddl_text, ''), nullif(e.table_changes, 'null'))"
    kind = interpreted_if("v_control = 'ddl'", kind_of(statement, "CAST(NULL AS string)"))
    return Envelope(
        reason="v_reason",
        detail=detail,
        kind=case(
            ("e.kind = 'null'", "'tombstone'"),
            ("v_control IS NOT NULL", "'control'"),
            (f"v_is_event AND {row_op}", "'row'"),
        ),
        op=f"coalesce(v_control, {op})",
        # An event of DDL has no op: what its statement does to rows takes its place.
        source_op=f"coalesce({op}, {kind})",
        connector=f"coalesce({text('connector')}, {literal('lindorm' if lindorm else None)})",
        server=text("name"),
        db=text("db"),
        table_name="v_name",
        before="v_before",
        after="v_after",
        columns="greatest(e.before_size, e.after_size)",
        key_names="CAST(NULL AS array<string>)",
        source_ts_ms=whole(text("ts_ms")),
        processed_ts_ms="v_ts_ms",
        elements=elements.own,
        basis=elements.basis,
        stand_in=elements.stand_in,
        tx_id=positions.transaction_of("v_basis", text("txId"), "v_transaction"),
        tx_order="v_total_order",
        identity=positions.debezium_identity("v_basis", text, "v_transaction", "v_total_order"),
        last_commit=positions.last_commit("v_basis", text("sequence")),
        # D14: a mark that is not yet known counts as a snapshot read. No truncate is read from a
        # table: without a position of its own it would remove nothing.
        is_snapshot=f"coalesce({op} = 'r', false) "
        f"OR coalesce(NOT {op} <=> 't' AND {text('snapshot')} <> 'false', false)",
        snapshot=case((f"{text('snapshot')} <> 'false'", text("snapshot"))),
        schema_id=case(("is_wrapped", "e.schema_id")),
        payload=case(
            ("v_control = 'message'", "e.content"),
            ("v_control = 'ddl'", statement),
            ("v_control = 'transaction'", "concat_ws(' ', e.status, e.id)"),
        ),
    )


_AVRO_JSON = (
    'Avro\'s JSON encoding ({"long": …} for a number) is not read: write the topic with the '
    "converter org.apache.kafka.connect.json.JsonConverter"
)


def _lacks_row(source: Source) -> Sql:
    """True for an update of Spanner that may not say how the row is now: null is no value then."""
    captured = is_one_of(source.text("value_capture_type"), source.captures)
    return f"v_op_text = 'u' AND {source.text('connector')} = 'spanner' AND NOT {captured}"


def _detail(source: Source, lindorm: bool, in_databases: bool) -> Sql:
    unread = unread_connector(source.text("connector"))
    captured = source.text("value_capture_type")
    no_row = (
        f"concat('an update with ', coalesce({captured}, 'no value_capture_type'), "
        f"{literal(_NO_ROW)})"
    )
    no_op = case(("v_reason = 'missing_op'", "'an envelope without op'"))
    no_event = "'JSON that is not a change event of this format'"
    return case(
        (
            "v_reason IN ('missing_op', 'not_an_envelope')",
            f"coalesce({case(('v_is_avro_json', literal(_AVRO_JSON)))}, {no_op}, {no_event})",
        ),
        (
            "v_reason = 'unknown_op'",
            f"coalesce({unread}, concat('op ', substring(e.op_sent, 1, 40)))",
        ),
        (
            "v_reason = 'missing_table'",
            f"coalesce({unread}, {_missing_table(lindorm, in_databases)})",
        ),
        (
            "v_reason = 'missing_image'",
            f"coalesce({unread}, CASE WHEN v_after IS NOT NULL THEN {no_row} END, "
            "concat('op ', v_op_text, ' without after'))",
        ),
    )


def unread_connector(connector: Sql) -> Sql:
    """Says that the events of a connector are of another format; null for the others."""
    return case(
        *(
            (
                f"{connector} = {literal(name)}",
                literal(f"events of the connector {name} are not read: set `format: {other}`"),
            )
            for name, other in _OTHER_FORMATS.items()
        )
    )


def _missing_table(lindorm: bool, in_databases: bool) -> Sql:
    own = "db or schema, which names of three parts need," if in_databases else "schema (or db)"
    wanted = literal("namespace" if lindorm else own)
    missing = (
        f"concat_ws(' and ', CASE WHEN v_namespace IS NULL THEN {wanted} END, "
        "CASE WHEN v_table IS NULL THEN 'table' END)"
    )
    return f"concat('source lacks ', {missing})"


def event_in(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The event of a document: itself, or the payload in `{"schema": …, "payload": …}`."""
    is_bare = "op" in document and not document.keys().isdisjoint(("source", "before", "after"))
    return document if is_bare or "payload" not in document else object_in(document, "payload")


def _table_and_row(document: Mapping[str, Any], in_databases: bool) -> TableAndRow | None:
    event = event_in(document)
    source = object_in(event, "source")
    namespace = namespace_in(source.get, in_databases)
    return table_and_row(namespace, source.get("table"), _plain_row(event.get("after")))


def _plain_row(image: Any) -> Any:
    """A row of plain values, also of one of cells."""
    sent = {n: v for n, v in image.items() if v is not None} if isinstance(image, dict) else {}
    if not sent or not all(isinstance(v, dict) and v.keys() == _CELL for v in sent.values()):
        return image
    return {name: cell["value"] for name, cell in sent.items()}


def namespace_in(said: Callable[[str], Any], in_databases: bool) -> Any:
    """The namespace of an event's table.

    Args:
        said: a member of the event's `source`.
        in_databases: it is of one of several databases.
    """
    if not in_databases:
        return said("schema") or said("db") or said("keyspace")
    database, schema = said("db"), said("schema")
    is_known = isinstance(database, str) and isinstance(schema, str) and database and schema
    return TableName.in_database(database, schema, "").namespace if is_known else None


def _format(unavailable_value: str, in_databases: bool = False) -> Format:
    return Format(
        "debezium",
        EVENT,
        partial(read_debezium, unavailable_value=unavailable_value, in_databases=in_databases),
        signatures=(("source.table",), ("payload.source.table",)),
        columns_of_schema=columns_of_images,
        table_and_row=partial(_table_and_row, in_databases=in_databases),
        key_row=_key_row,
        configured=lambda source: _format(source.unavailable_value, source.has_databases),
    )


DEBEZIUM = _format(PLACEHOLDER)
