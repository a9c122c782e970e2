"""Debezium's envelope (FORMATS D1–D17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cdc_assets.cdc import positions
from cdc_assets.cdc.envelopes.declared import PLACEHOLDER
from cdc_assets.cdc.envelopes.envelope import (
    Envelope,
    Format,
    TableAndRow,
    object_in,
    table_and_row,
)
from cdc_assets.cdc.envelopes.images import with_images
from cdc_assets.cdc.envelopes.statements import kind_of
from cdc_assets.cdc.names import TableName, namespace_of_database_sql, table_name_sql
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    get,
    interpreted_if,
    is_object,
    is_one_of,
    is_present,
    literal,
    literals,
    members_of,
    struct,
    was_text,
    whole,
)
from cdc_assets.cdc.values.column_types import columns_of_images
from cdc_assets.cdc.values.strict_json import DOCUMENT

ROW_OPS = ("c", "u", "d", "r", "t")
MESSAGE_OP = "m"
# Connectors whose events say their table and row in a way of their own.
_OTHER_FORMATS = {"mongodb": "debezium-mongodb", "cassandra": "debezium-cassandra"}


# What of an update Spanner's change streams capture: whole rows, or values of changed columns.
_CAPTURES_ROWS = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
_CAPTURES_OLD_AND_NEW = "OLD_AND_NEW_VALUES"
_CELL = {"value", "set"}
_NO_ROW = (
    " of Spanner does not have the whole row: "
    "ALTER CHANGE STREAM … SET OPTIONS (value_capture_type = 'NEW_ROW')"
)

# What of `source` is read as text, and the names, which must be texts.
SOURCE_TEXTS = (
    "connector", "name", "snapshot", "ts_ms", "txId", "value_capture_type",
    *positions.SOURCE_MEMBERS,
)  # fmt: skip
SOURCE_NAMES = ("db", "schema", "namespace", "keyspace", "table", "file")


def event_type(image: str, *of_source: str, **members: str) -> str:
    """The type of an event, which is read by one cast: what is no object where one is wanted is
    null.

    Args:
        image: the type of `before` and `after`.
        of_source: more members of `source`.
        members: more members of the event, and their types.
    """
    source = dict.fromkeys((*SOURCE_TEXTS, *SOURCE_NAMES, *of_source), "string")
    return struct(
        op="string", source=struct(**source), before=image, after=image, ts_ms="string",
        transaction=struct(id="string", total_order="string"), ddl="variant", status="string",
        id="string", tableChanges="variant", message=struct(content="string"), **members,
    )  # fmt: skip


EVENT = event_type("map<string, variant>")


@dataclass(frozen=True)
class Source:
    """The members of an event's `source`, as SQL expressions.

    `text` gives a member's text, `name` that of one that is a JSON string and not empty; `basis`
    says what orders events that do not say their connector. `captures` are Spanner's ways of
    capturing an update that leave the whole row to be read.
    """

    text: Callable[[str], Sql]
    name: Callable[[str], Sql]
    captures: tuple[str, ...] = _CAPTURES_ROWS
    basis: Sql = f"'{positions.SOURCE_TIME}'"


def read_debezium(records: Query, unavailable_value: str, in_databases: bool = False) -> Query:
    """Read Debezium events of any connector.

    Args:
        records: has the columns of :func:`~cdc_assets.cdc.envelopes.connect.with_document`.
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
    parts = with_parts(with_event(records).extend({"e": member(kind=EVENT)}), row_ops)
    again = [
        members_of(
            f"CASE WHEN is_wrapped THEN {get('digits', f'$.payload.{name}')} "
            f"ELSE {get('digits', f'$.{name}')} END"
        )
        for name in ("before", "after")
    ]
    images = [("e.before", "e.after"), (again[0], again[1])]
    if unavailable_value is not None:
        parts = parts.extend({"v_has_cells": _has_cells("coalesce(e.after, e.before)")})
        images = [_sent(before, after, unavailable_value) for before, after in images]
    imaged = with_images(parts, *images[0], images[1])
    may_be_message = "false" if lindorm else "true"
    return read_envelope(
        imaged, source_of(), row_ops, member("op"), may_be_message, lindorm, in_databases
    )


def _sent(before: Sql, after: Sql, unavailable_value: str) -> tuple[Sql, Sql]:
    """The images, where a connector has a way of its own to say what it did not send."""
    unsent = f"CAST({literal(unavailable_value)} AS variant)"
    was = case(("v_has_cells", _values(before, "false", unsent)), otherwise=before)
    # Of a row that is new there is nothing to keep.
    cells = _values(after, "e.op = 'u'", unsent)
    now = case(("v_has_cells", cells), otherwise=_whole_of_spanner(after, before, unsent))
    return was, now


def _is_cell(value: Sql) -> Sql:
    """Is a value ``{"value": …, "set": …}``, of nothing else (D22)?"""
    kind = f"startswith(schema_of_variant({value}), 'OBJECT<set: BOOLEAN, value: ')"
    return f"coalesce({kind} AND size({members_of(value)}) = 2, false)"


def _has_cells(image: Sql) -> Sql:
    """Is each value of an image a cell, or null (D22)? Of YugabyteDB's own format."""
    values = f"map_values({image})"
    are_cells = (
        f"forall({values}, v -> is_variant_null(v) OR {_is_cell('v')}) "
        f"AND exists({values}, v -> NOT is_variant_null(v))"
    )
    return interpreted_if(_may_have_cells("body"), f"coalesce({are_cells}, false)")


def _may_have_cells(text: Sql) -> Sql:
    """Most messages do not name such a member; those in Avro have no text."""
    return f"({text} IS NULL OR contains({text}, '\"set\"'))"


def _values(cells: Sql, keeps: Sql, unsent: Sql) -> Sql:
    """The values of cells; of what was not sent none, or `unsent` where `keeps` holds."""
    value, is_set = get("v", "$.value"), f"coalesce({get('v', '$.set', 'boolean')}, false)"
    chosen = f"map_filter({cells}, (name, v) -> {keeps} OR {is_set})"
    return f"transform_values({chosen}, (name, v) -> {case((is_set, value), otherwise=unsent)})"


def _key_row(key_row: Sql) -> Sql:
    """Key columns that are plain values, or cells."""
    all_are = f"coalesce(forall(map_values({key_row}), v -> {_is_cell('v')}), false)"
    are_cells = f"{_may_have_cells('key_text')} AND {all_are}"
    values = f"transform_values({key_row}, (name, v) -> {get('v', '$.value')})"
    return case((are_cells, values), otherwise=key_row)


def _whole_of_spanner(after: Sql, before: Sql, unsent: Sql) -> Sql:
    """A row after an update, where Spanner captures the old and new values of changed columns.

    Both images then have a null for each column that did not change.
    """
    is_partial = (
        "e.op = 'u' AND e.source.connector = 'spanner' "
        f"AND e.source.value_capture_type = '{_CAPTURES_OLD_AND_NEW}'"
    )
    was_null = f"coalesce(is_variant_null(try_element_at({before}, name)), true)"
    now = f"CASE WHEN is_variant_null(v) AND {was_null} THEN {unsent} ELSE v END"
    return case(
        (is_partial, f"transform_values({after}, (name, v) -> {now})"),
        otherwise=after,
    )


def with_parts(events: Query, row_ops: tuple[str, ...]) -> Query:
    """Add the parts of the envelope that :func:`read_envelope` asks for.

    Args:
        events: has :func:`with_event`'s columns and `e`, the event as an :func:`event_type`.
        row_ops: the ops that change rows.
    """
    # No other value than the text becomes the text of a known op.
    is_known = f"e.op IN ({literals((*row_ops, MESSAGE_OP))})"
    present = " OR ".join(
        f"e.{name} IS NOT NULL OR {member(name)} IS NOT NULL"
        for name in ("source", "after", "before")
    )
    return events.extend(
        {
            "v_op_text": case((f"{is_known} OR {was_text('e.op', member('op'))}", "e.op")),
            "v_has_op": "e.op IS NOT NULL",
            "v_has_body": present,
            "v_has_source": "e.source IS NOT NULL",
            "v_ts_ms": whole("e.ts_ms"),
            "v_total_order": whole("e.transaction.total_order"),
            "v_transaction": "e.transaction.id",
            # Avro's JSON encoding writes {"long": 1} where Connect's converter writes 1, and
            # wraps rows in the names of their types.
            "v_is_avro_json": f"startswith(e.ts_ms, '{{') AND {is_object(member('ts_ms'))}",
        }
    )


def source_of(**named: str) -> Source:
    """The `source` of events, `e`.

    Args:
        named: what a connector calls a member that others call by the first name.
    """

    def text(of: str) -> Sql:
        return f"e.source.{named.get(of, of)}"

    def name(of: str) -> Sql:
        is_text = was_text(text(of), member(f"source.{named.get(of, of)}"))
        return f"CASE WHEN {is_text} THEN nullif({text(of)}, '') END"

    return Source(text, name, captures=(*_CAPTURES_ROWS, _CAPTURES_OLD_AND_NEW))


def read_envelope(
    opened: Query,
    source: Source,
    row_ops: tuple[str, ...],
    sent_op: Sql,
    may_be_message: Sql,
    lindorm: bool = False,
    in_databases: bool = False,
) -> Query:
    """Judge and name the parts of Debezium events.

    Args:
        opened: has :func:`with_event`'s columns, :func:`~.images.with_images`'s, `e` (`EVENT`) and
            the parts of the envelope: `v_op_text` (STRING, null where the op is not a text),
            `v_ts_ms`, `v_total_order` (BIGINT), `v_transaction` (STRING), `v_has_op`, `v_has_body`
            (source or an image is there, if only as null), `v_has_source` (it is an object) and
            `v_is_avro_json` (BOOLEAN).
        source: the event's `source`.
        row_ops: the ops that change rows.
        sent_op: the op as it was sent (VARIANT).
        may_be_message: where op `m` is a logical message (D13).
        lindorm: the table is `source.namespace`.
        in_databases: it is of one of several databases, each with schemas of its own (D4).
    """
    of_source = source.text
    # A schema that is there and no text names no table; only without one the database does.
    own = "namespace" if lindorm else "schema"
    namespace = source.name(own)
    if in_databases:
        namespace = namespace_of_database_sql(source.name("db"), namespace)
    elif not lindorm:
        namespace = case(
            (f"{of_source(own)} IS NOT NULL", namespace),
            # Of Vitess `db` is empty.
            (f"{of_source('connector')} = 'vitess'", source.name("keyspace")),
            otherwise=source.name("db"),
        )
    connector = "CAST(NULL AS string)" if lindorm else of_source("connector")
    named = opened.extend(
        {
            "v_namespace": namespace,
            "v_table": source.name("table"),
            "v_basis": case(
                (f"{connector} IS NULL", source.basis),
                otherwise=positions.debezium_basis(connector),
            ),
        }
    )
    op = "v_op_text"
    row_op = f"coalesce({op} IN ({literals(row_ops)}), false)"
    is_event = "v_has_op AND v_has_body"
    is_message = f"{is_event} AND coalesce({op} = '{MESSAGE_OP}', false) AND {may_be_message}"
    # A heartbeat is an object of times alone: `ts_ms`, in later versions also `ts_us` … (D16).
    times = f"forall(json_object_keys(to_json({member()})), name -> startswith(name, 'ts_'))"
    judged = named.extend(
        {
            "v_name": table_name_sql("v_namespace", "v_table"),
            "v_is_event": is_event,
            "v_control": case(
                (is_message, "'message'"),
                ("NOT v_has_op AND e.ddl IS NOT NULL", "'ddl'"),  # D16: also JSON null
                (
                    "NOT v_has_op AND e.status IN ('BEGIN', 'END') AND e.id IS NOT NULL",
                    "'transaction'",
                ),
                (
                    f"NOT v_has_op AND NOT v_has_body AND {whole('e.ts_ms')} IS NOT NULL "
                    f"AND coalesce({times}, false)",
                    "'heartbeat'",
                ),
            ),
        }
    )
    has_object = "(v_has_source OR before_row IS NOT NULL OR after_row IS NOT NULL)"
    reasoned = judged.extend(
        {
            "v_reason": case(
                ("v_control IS NOT NULL", "NULL"),
                (f"NOT v_has_op AND {has_object}", "'missing_op'"),
                ("NOT v_is_event OR coalesce(v_is_avro_json, false)", "'not_an_envelope'"),
                (f"NOT {row_op}", "'unknown_op'"),
                ("v_name IS NULL", "'missing_table'"),
                (f"{op} IN ('c', 'r', 'u') AND after_row IS NULL", "'missing_image'"),
                (_lacks_row(source) if not lindorm else "false", "'missing_image'"),
            )
        }
    )
    elements = positions.debezium_elements("v_basis", of_source, source.name("file"))
    mark = of_source("snapshot")
    statement = (
        f"coalesce(nullif({get('e.ddl', '$', 'string')}, ''), "
        f"{case((is_present('e.tableChanges'), 'to_json(e.tableChanges)'))})"
    )
    kind = interpreted_if("v_control = 'ddl'", kind_of(statement, "CAST(NULL AS string)"))
    return Envelope(
        reason="v_reason",
        detail=interpreted_if(
            "v_reason IS NOT NULL", _detail(source, sent_op, lindorm, in_databases)
        ),
        kind=case(
            (f"e IS NULL AND coalesce(is_variant_null({member()}), false)", "'tombstone'"),
            ("v_control IS NOT NULL", "'control'"),
            (f"v_is_event AND {row_op}", "'row'"),
        ),
        op=f"coalesce(v_control, {op})",
        # An event of DDL has no op: what its statement does to rows takes its place.
        source_op=f"coalesce({op}, {kind})",
        connector=f"coalesce({of_source('connector')}, {literal('lindorm' if lindorm else None)})",
        server=of_source("name"),
        db=of_source("db"),
        table_name="v_name",
        before_row="before_row",
        after_row="after_row",
        before="before",
        after="after",
        key_names="CAST(NULL AS array<string>)",
        source_ts_ms=whole(of_source("ts_ms")),
        processed_ts_ms="v_ts_ms",
        elements=elements.own,
        basis=elements.basis,
        stand_in=elements.stand_in,
        tx_id=positions.transaction_of("v_basis", of_source("txId"), "v_transaction"),
        tx_order="v_total_order",
        identity=positions.debezium_identity(
            "v_basis", of_source, "v_transaction", "v_total_order"
        ),
        last_commit=positions.last_commit("v_basis", of_source("sequence")),
        # D14: a mark that is not yet known counts as a snapshot read. No truncate is read from a
        # table: without a position of its own it would remove nothing.
        is_snapshot=f"coalesce({op} = 'r', false) "
        f"OR coalesce(NOT {op} <=> 't' AND {mark} <> 'false', false)",
        schema=case(
            (f"is_wrapped AND {is_object('doc', _of('schema'))}", get("doc", _of("schema")))
        ),
        start=case(("is_wrapped", "start_hash")),
        payload=case(
            ("v_control = 'message'", "e.message.content"),
            ("v_control = 'ddl'", statement),
            ("v_control = 'transaction'", "concat_ws(' ', e.status, e.id)"),
        ),
    ).add_to(reasoned)


def with_event(records: Query, is_bare: Sql | None = None) -> Query:
    """Add `is_wrapped`: is the event the payload of `{"schema": …, "payload": …}` (D1, D2)?

    Args:
        records: has the columns of :func:`~cdc_assets.cdc.envelopes.connect.with_document`.
        is_bare: what tells a bare event, if not `op` beside an image or `source`.
    """

    def is_there(name: str) -> Sql:
        return f"{get('doc', _of(name))} IS NOT NULL"

    # A row may itself have a column called payload: op beside an image decides first.
    body = " OR ".join(
        (is_object("doc", _of("source")), *map(is_there, ("before", "after", "source")))
    )
    bare = is_bare or f"{is_there('op')} AND ({body})"
    # Without an object in it, payload is the wrapper's only where nothing but schema is beside it.
    names = f"map_keys({get('doc', DOCUMENT, 'map<string, variant>')})"
    is_alone = f"size(array_except({names}, array('schema', 'payload'))) = 0"
    wraps = f"{is_object('doc', _of('payload'))} OR ({is_there('payload')} AND {is_alone})"
    return records.extend({"is_wrapped": f"coalesce(NOT ({bare}) AND ({wraps}), false)"})


def member(path: str = "", kind: str = "variant") -> Sql:
    """What stands at a path of an event, or all of it, as a type.

    An expression of the columns of :func:`with_event`, not a column: what few records are asked
    for is read for those alone.
    """
    wrapped, bare = (f"{at}.{path}" if path else at for at in (_of("payload"), DOCUMENT))
    return case(("is_wrapped", get("doc", wrapped, kind)), otherwise=get("doc", bare, kind))


def _of(name: str) -> str:
    """The path of a member of the document."""
    return f"{DOCUMENT}.{name}"


_AVRO_JSON = (
    'Avro\'s JSON encoding ({"long": …} for a number) is not read: write the topic with the '
    "converter org.apache.kafka.connect.json.JsonConverter"
)


def _lacks_row(source: Source) -> Sql:
    """True for an update of Spanner that may not say how the row is now: null is no value then."""
    captured = is_one_of(source.text("value_capture_type"), source.captures)
    return f"v_op_text = 'u' AND {source.text('connector')} = 'spanner' AND NOT {captured}"


def _detail(source: Source, sent_op: Sql, lindorm: bool, in_databases: bool) -> Sql:
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
            f"coalesce({unread}, concat('op ', substring(to_json({sent_op}), 1, 40)))",
        ),
        (
            "v_reason = 'missing_table'",
            f"coalesce({unread}, {_missing_table(lindorm, in_databases)})",
        ),
        (
            "v_reason = 'missing_image'",
            f"coalesce({unread}, CASE WHEN after_row IS NOT NULL THEN {no_row} END, "
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
        partial(read_debezium, unavailable_value=unavailable_value, in_databases=in_databases),
        signatures=(("source.table",), ("payload.source.table",)),
        columns_of_schema=columns_of_images,
        table_and_row=partial(_table_and_row, in_databases=in_databases),
        key_row=_key_row,
        configured=lambda source: _format(source.unavailable_value, source.has_databases),
    )


DEBEZIUM = _format(PLACEHOLDER)
