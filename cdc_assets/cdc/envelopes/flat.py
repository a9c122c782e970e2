"""Flattened Debezium records (FORMATS D18), as the transform `ExtractNewRecordState` writes them.

The row stands alone. What was kept of the envelope stands beside its columns, in fields with a
prefix: ``__op``, ``__table``, ``__source_ts_ms``, ``__source_lsn`` … (option `add.fields`), and in
headers of the same kind of names (`add.headers`); the field wins. ``__deleted``, which has this
name whatever the prefix, says of a rewritten delete that it is one. Where none of them is there,
the topic may still say the table (`table_from_topic` in cdc.yaml): then the value is the row as it
is now, and a null value deletes it.

A delete that became a null value (`delete-to-tombstone`) keeps its headers, and is read by them; a
tombstone has at most the op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cdc_assets.cdc import positions
from cdc_assets.cdc.envelopes.debezium import ROW_OPS, namespace_in, read_envelope, unread_connector
from cdc_assets.cdc.envelopes.debezium_event import (
    SOURCE_NAMES,
    SOURCE_TEXTS,
    Source,
    event_members,
    with_event,
)
from cdc_assets.cdc.envelopes.envelope import (
    Format,
    SourceSettings,
    TableAndRow,
    object_in,
    table_and_row,
)
from cdc_assets.cdc.json_reader import Wanted, read, without
from cdc_assets.cdc.names import namespace_of_database_sql, table_name_sql
from cdc_assets.cdc.sqltext import Query, Sql, case, interpreted_if, literal, literals, whole
from cdc_assets.cdc.values.column_types import ColumnTypes, columns_of_fields

NAME = "debezium-flat"
DELETED = "__deleted"
_ADD_FIELDS = (
    ": set add.fields=op,schema,table,lsn,txId,source.ts_ms (MySQL: op,db,table,file,pos,row,"
    "gtid,source.ts_ms) on ExtractNewRecordState"
)
_OR_TOPIC = ", or table_from_topic in cdc.yaml, which takes the table from the topic"
# What is read of the envelope, by Debezium's own paths; those in `_NAMES` must be JSON strings.
_PATHS = (
    "op", "ts_ms", "transaction.id", "transaction.total_order", "source.collection",
    *(f"source.{name}" for name in (*SOURCE_TEXTS, *SOURCE_NAMES)),
)  # fmt: skip
_NAMES = ("op", *(f"source.{name}" for name in SOURCE_NAMES))
_HEADER_MEMBERS: dict[str, Wanted] = {
    "kind": ("kind",),
    "text": ("text",),
    "payload": ("text", "payload"),
}
# A name without a struct is one of these, else of `source`.
_OF_ENVELOPE = ("op", "ts_ms", "ts_us", "ts_ns")
_OF_TRANSACTION = ("id", "total_order", "data_collection_order")


def _path_of(name: str) -> str:
    """The path of what `add.fields` calls by a name, with or without its struct."""
    if "." in name or name in _OF_ENVELOPE:
        return name
    return f"{'transaction' if name in _OF_TRANSACTION else 'source'}.{name}"


def _written(prefix: str, listed: Iterable[str]) -> dict[str, list[str]]:
    """How each member is written: the names of fields or headers, the first that is there counts.

    Args:
        prefix: stands before each of them.
        listed: what the transform adds, as it is told: ``op``, ``source.ts_ms:EVENT_TIME``; all
            that is read where nothing is listed.
    """
    paths = list(listed) or [*_PATHS, *(path.split(".")[-1] for path in _PATHS)]
    names: dict[str, list[str]] = {path: [] for path in _PATHS}
    for one in paths:
        name, _, new = one.partition(":")
        written = prefix + (new or name.replace(".", "_"))
        of_member = names.setdefault(_path_of(name), [])
        if written not in of_member:
            of_member.append(written)
    return names


@dataclass(frozen=True)
class _Rules:
    """How a source's records were flattened.

    `fields` and `headers` give the names under which each member may stand; `all_of` the prefix of
    fields that are none of the row's columns, None where they are listed. `topic` is the pattern of
    topics, `groups` the numbers of its groups.
    """

    fields: Mapping[str, list[str]]
    headers: Mapping[str, list[str]]
    all_of: str | None
    topic: str | None
    groups: Mapping[str, int]
    in_databases: bool = False  # tables are of several databases (D4)

    @property
    def listed(self) -> list[str]:
        """The names of all fields that are known."""
        return [DELETED, *(name for names in self.fields.values() for name in names)]

    def is_column(self, name: str) -> bool:
        """Is a field a column of the row?"""
        if self.all_of is not None and name.startswith(self.all_of):
            return False
        return name != DELETED if self.all_of is not None else name not in self.listed

    @property
    def marks(self) -> list[str]:
        """The fields that tell a flattened event."""
        return [DELETED, *self.fields["op"]]

    def row_in(self, event: Sql) -> Sql:
        """The row's own columns, those of :meth:`is_column`, of an event (JSON of an object)."""
        names = self.listed if self.all_of is None else [DELETED]
        prefix = "CAST(NULL AS string)" if self.all_of is None else literal(self.all_of)
        return without(event, f"array({literals(names)})", prefix)

    def of_topic(self, group: str) -> Sql:
        """What a group of the pattern holds (STRING); null where the pattern does not match."""
        if self.topic is None or group not in self.groups:
            return "CAST(NULL AS string)"
        pattern = literal(f"\\A(?:{self.topic})\\z")
        return f"nullif(regexp_extract(topic, {pattern}, {self.groups[group]}), '')"


def _column(path: str) -> str:
    """The member of `f` that has what stands at a path of the envelope."""
    return path.replace(".", "_")


def _members(rules: _Rules) -> dict[str, Wanted]:
    """What is read of an event: Debezium's members, and the fields that were added."""
    fields: dict[str, Wanted] = {}
    for path in _PATHS:
        for n, name in enumerate(rules.fields[path]):
            fields[f"{_column(path)}_{n}"] = ("text", name)
            if path in _NAMES:
                fields[f"{_column(path)}_{n}_string"] = ("string", name)
    marks: dict[str, Wanted] = {f"mark_{n}": ("kind", name) for n, name in enumerate(rules.marks)}
    return event_members(row=("raw",), deleted=("text", DELETED), **marks, **fields)


def _is_marked(rules: _Rules, event: Sql) -> Sql:
    marks = (f"{event}.mark_{n} IS NOT NULL" for n in range(len(rules.marks)))
    return f"({' OR '.join(marks)})"


def _headers(rules: _Rules) -> Sql:
    """The text of each header (ARRAY<STRING>); null where none is known."""
    known = literals(name for names in rules.headers.values() for name in names)
    opened = (
        "transform(headers.value, v -> "
        f"struct(CAST(v AS string) AS text, {read('v', **_HEADER_MEMBERS)} AS json))"
    )
    # A header converter writes the text itself, as JSON, or as JSON with its schema.
    said = case(
        ("h.json.kind = 'object'", "h.json.payload"),
        ("h.json.kind IN ('string', 'null')", "h.json.text"),
        otherwise="h.text",
    )
    has_known = f"size(headers) > 0 AND arrays_overlap(headers.key, array({known}))"
    return case((has_known, f"transform({opened}, h -> {said})"))


def _in_headers(rules: _Rules, path: str) -> list[Sql]:
    """What the headers say of a member; of equal names the first counts."""
    names = map(literal, rules.headers[path])
    return [f"get(_headers, CAST(array_position(headers.key, {n}) AS int) - 1)" for n in names]


def _said(rules: _Rules, or_headers: bool) -> Sql:
    """The text of each member, from a field or else a header; as `…_string` that of a JSON string.

    Args:
        rules: the names of fields and headers.
        or_headers: some records have known headers; what stands there is a string.
    """
    said = {}
    for path in _PATHS:
        fields = [f"e.{_column(path)}_{n}" for n in range(len(rules.fields[path]))]
        headers = [*(_in_headers(rules, path) if or_headers else ()), "CAST(NULL AS string)"]
        said[_column(path)] = f"coalesce({', '.join([*fields, *headers])})"
        if path in _NAMES:
            said[f"{_column(path)}_string"] = case(
                *((f"{field} IS NOT NULL", f"{field}_string") for field in fields),
                otherwise=f"coalesce({', '.join(headers)})",
            )
    listed = ", ".join(f"'{name}', {sql}" for name, sql in said.items())
    return f"named_struct({listed})"


def _read_flat(records: Query, rules: _Rules) -> Query:
    """Read flattened events; what the transform leaves as it was (D13, D16) is control.

    Args:
        records: has `d`, of :func:`_members`.
        rules: how they were flattened.

    Returns:
        The records with the columns of `Envelope`.
    """
    # A row may have a column called payload: in a wrapper nothing but the schema is beside it.
    is_row = "d.p_kind IS NOT NULL AND d.size > CASE WHEN d.schema_kind IS NULL THEN 1 ELSE 2 END"
    is_bare = f"{_is_marked(rules, 'd')} OR {is_row}"
    topics = {f"topic_{group}": rules.of_topic(group) for group in ("schema", "db", "table")}
    events = with_event(records, _members(rules), is_bare).extend(
        {"_headers": _headers(rules), **topics}
    )
    with_headers = interpreted_if("_headers IS NOT NULL", _said(rules, or_headers=True))
    merged = events.extend({"f": f"coalesce({with_headers}, {_said(rules, or_headers=False)})"})
    return _with_envelope(_with_op(_with_signs(merged, rules)), rules)


def _with_signs(merged: Query, rules: _Rules) -> Query:
    """Add `is_flat` and what it follows from."""
    # A tombstone has no other header of the transform; no table is truncated by one.
    ops = rules.headers["op"]
    others = literals(n for names in rules.headers.values() for n in names if n not in ops)
    says_more = f"arrays_overlap(headers.key, CAST(array({others}) AS array<string>))"
    is_null = "coalesce(is_empty OR e.kind = 'null', false)"
    is_removal = case(
        ("f.op IS NULL OR f.op = 'd'", f"_headers IS NOT NULL AND {says_more}"),
        ("f.op = 't'", "true"),
    )
    has_body = "(e.source_kind <=> 'object' OR e.before IS NOT NULL OR e.after IS NOT NULL)"
    is_envelope = f"(coalesce(e.op_sent <> 'null', false) AND {has_body})"
    is_known = "(_headers IS NOT NULL OR topic_table IS NOT NULL OR f.source_table IS NOT NULL)"
    return merged.extend(
        {
            "is_marked": _is_marked(rules, "e"),
            "is_removal": f"coalesce({is_null} AND {is_removal}, false)",
            "is_row": f"e.kind <=> 'object' AND NOT {is_envelope} AND {is_known}",
            "is_null": is_null,
            "is_deleted": "lower(e.deleted) = 'true'",
            "is_message": "coalesce(e.op = 'm', false)",
        }
    ).extend({"is_flat": "is_marked OR is_removal OR is_row"})


def _with_op(marked: Query) -> Query:
    """Add the op, and the parts of the envelope that :func:`read_envelope` asks for."""
    is_known_op = f"coalesce(f.op IN ({literals(ROW_OPS)}), false)"
    # Without an op a record is a write or a delete; either way it says how the row is now.
    derived = case(("is_deleted OR is_removal", "'d'"), ("NOT is_deleted OR NOT is_marked", "'u'"))
    is_plain = f"NOT (coalesce(is_deleted, false) AND {is_known_op})"
    op = case((f"f.op IS NOT NULL AND {is_plain}", "f.op"), otherwise=derived)
    opened = marked.extend(
        {
            "v_op": case(("is_flat", op), ("is_message", "e.op")),
            "v_has_body": "is_flat OR (is_message AND e.source_kind IS NOT NULL)",
            "v_has_source": "is_flat OR (is_message AND e.source_kind <=> 'object')",
            "v_ts_ms": case(("is_flat", whole("f.ts_ms")), otherwise=whole("e.ts_ms")),
            "v_total_order": whole("f.transaction_total_order"),
            "v_transaction": "f.transaction_id",
            "v_is_avro_json": "false",
        }
    )
    is_no_text = "is_flat AND f.op IS NOT NULL AND f.op_string IS NULL"
    return opened.extend(
        {
            "v_op_text": case((is_no_text, "NULL"), otherwise="v_op"),
            "v_has_op": "v_op IS NOT NULL",
        }
    )


def _with_envelope(opened: Query, rules: _Rules) -> Query:
    rows = opened.extend({"v_row": case(("is_flat", rules.row_in("e.row")))})
    imaged = rows.extend(
        {
            "v_before": case(("v_op = 'd'", "v_row.json")),
            "v_after": case(("v_op NOT IN ('d', 't')", "v_row.json")),
        }
    )
    basis = positions.basis_of_members(_of_source)
    source = Source(text=_text_of_source, name=_name_of_source, basis=basis)
    envelope = read_envelope(
        imaged, source, ROW_OPS, "NOT is_flat", in_databases=rules.in_databases
    )
    of_topic = "coalesce(topic_schema, topic_db)"
    if rules.in_databases:
        of_topic = namespace_of_database_sql("topic_db", "topic_schema")
    topic_name = table_name_sql(of_topic, "topic_table")
    has_image = "v_before IS NOT NULL OR v_after IS NOT NULL"
    return envelope.replace(
        {
            "e_source_op": case(("is_flat", "nullif(f.op_string, '')"), otherwise="e_source_op"),
            "e_columns": case((has_image, "v_row.size")),
            "e_detail": interpreted_if("e_reason IS NOT NULL", _detail(rules)),
            "e_kind": case(("is_removal", "'row'"), otherwise="e_kind"),
            # Of a tombstone the topic alone can say the table.
            "e_table_name": case(("is_null AND NOT is_flat", topic_name), otherwise="e_table_name"),
        }
    )


def _detail(rules: _Rules) -> Sql:
    """Which fields a record lacks, and what adds them or stands in."""
    namespace = literal("__db or __schema" if rules.in_databases else "__schema (or __db)")
    missing = (
        f"concat_ws(' and ', CASE WHEN v_namespace IS NULL THEN {namespace} END, "
        "CASE WHEN v_table IS NULL THEN '__table' END)"
    )
    if rules.topic is None:
        cure = literal(_ADD_FIELDS + _OR_TOPIC)
    else:
        cure = "concat(', and table_from_topic does not match the topic ', topic)"
    # ExtractNewDocumentState, the transform for MongoDB, names a collection.
    connector = case(
        ("f.source_collection IS NOT NULL", "'mongodb'"), otherwise=_of_source("connector")
    )
    is_envelope = "e.op_sent <> 'null' AND (e.source_kind <=> 'object' OR e.after IS NOT NULL)"
    sent_op = "CASE WHEN f.op_string IS NULL THEN f.op ELSE to_json(CAST(f.op AS variant)) END"
    return case(
        (
            "e_reason = 'unknown_op'",
            f"coalesce({unread_connector(_of_source('connector'))}, "
            f"concat('op ', substring({sent_op}, 1, 40)))",
        ),
        (
            "e_reason = 'missing_table'",
            f"coalesce({unread_connector(connector)}, "
            f"concat('the record lacks ', {missing}, {cure}))",
        ),
        (
            "e_reason = 'not_an_envelope' AND NOT e.kind <=> 'object'",
            "'JSON that is not an object'",
        ),
        (
            f"e_reason = 'not_an_envelope' AND {is_envelope}",
            "'a whole envelope, which ExtractNewRecordState has not flattened'",
        ),
        (
            "e_reason = 'not_an_envelope'",
            f"concat('the record lacks __op and __deleted', {cure})",
        ),
        otherwise="e_detail",
    )


def _text_of_source(name: str) -> Sql:
    own = _of_source(name)
    return f"coalesce({own}, {_topic_name(name)})" if name in ("schema", "db") else own


def _name_of_source(name: str) -> Sql:
    said = case(("is_flat", f"f.source_{name}_string"), otherwise=_of_message("n", name))
    own = f"nullif({said}, '')"
    if name not in ("schema", "db", "table"):
        return own
    return case((f"{_of_source(name)} IS NOT NULL", own), otherwise=_topic_name(name))


def _of_message(kind: str, name: str) -> Sql:
    """A member of the `source` that a logical message still has."""
    return f"CASE WHEN is_message THEN e.{kind}_{name} END"


def _topic_name(name: str) -> Sql:
    return case(("is_flat", f"topic_{name}"))


def _of_source(name: str) -> Sql:
    """The text of a member of what was `source`."""
    found = f"f.source_{name}"
    if name == "connector":
        # PostgreSQL's alone has LSNs, and Vitess' keyspaces.
        own = case(
            (f"{whole('f.source_lsn')} IS NOT NULL", "'postgresql'"),
            ("f.source_keyspace IS NOT NULL", "'vitess'"),
        )
        found = f"coalesce({found}, {own})"
    return f"CASE WHEN is_flat THEN {found} ELSE {_of_message('s', name)} END"


def _columns_of_schema(schema: Mapping[str, Any], rules: _Rules) -> ColumnTypes:
    fields = columns_of_fields(schema)
    return {name: kind for name, kind in fields.items() if rules.is_column(name)}


def _table_and_row(document: Mapping[str, Any], rules: _Rules) -> TableAndRow | None:
    marks = set(rules.marks)
    event = document if marks & document.keys() else object_in(document, "payload")

    def said(path: str) -> Any:
        return next((event[n] for n in rules.fields[path] if event.get(n) is not None), None)

    if not marks & event.keys() or said("op") == "d" or event.get(DELETED) == "true":
        return None
    row = {name: event[name] for name in event if rules.is_column(name)}
    namespace = namespace_in(lambda name: said(f"source.{name}"), rules.in_databases)
    return table_and_row(namespace, said("source.table"), row)


def _format(rules: _Rules) -> Format:
    tables = [(name,) for name in rules.fields["source.table"]]
    marks = [*((name,) for name in rules.marks), *tables]
    return Format(
        NAME,
        _members(rules),
        partial(_read_flat, rules=rules),
        signatures=(*marks, *((f"payload.{name}",) for (name,) in marks)),
        columns_of_schema=partial(_columns_of_schema, rules=rules),
        table_and_row=partial(_table_and_row, rules=rules),
        configured=_configured,
    )


def _configured(source: SourceSettings) -> Format:
    own = source.format_settings
    fields, prefix = own["add_fields"], own["add_fields_prefix"]
    return _format(
        _Rules(
            fields=_written(prefix, fields),
            headers=_written(own["add_headers_prefix"], own["add_headers"]),
            all_of=None if fields else prefix,
            topic=own["table_from_topic"],
            groups=source.topic_groups,
            in_databases=source.has_databases,
        )
    )


DEBEZIUM_FLAT = _format(_Rules(_written("__", ()), _written("__", ()), "__", None, {}))
