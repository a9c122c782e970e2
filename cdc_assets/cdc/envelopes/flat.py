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
from cdc_assets.cdc.envelopes.debezium import (
    EVENT,
    ROW_OPS,
    SOURCE_NAMES,
    SOURCE_TEXTS,
    Source,
    member,
    namespace_in,
    read_envelope,
    unread_connector,
    with_event,
)
from cdc_assets.cdc.envelopes.envelope import (
    Format,
    SourceSettings,
    TableAndRow,
    object_in,
    table_and_row,
)
from cdc_assets.cdc.envelopes.images import with_images
from cdc_assets.cdc.names import namespace_of_database_sql, quote, table_name_sql
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    get,
    interpreted_if,
    is_object,
    is_present,
    is_text,
    literal,
    literals,
    members_of,
    string_of,
    struct,
    whole,
)
from cdc_assets.cdc.values.column_types import ColumnTypes, columns_of_fields
from cdc_assets.cdc.values.strict_json import DOCUMENT

NAME = "debezium-flat"
DELETED = "__deleted"
_ADD_FIELDS = (
    ": set add.fields=op,schema,table,lsn,txId,source.ts_ms (MySQL: op,db,table,file,pos,row,"
    "gtid,source.ts_ms) on ExtractNewRecordState"
)
_OR_TOPIC = ", or table_from_topic in cdc.yaml, which takes the table from the topic"
# What is read of the envelope, by Debezium's own paths, and as what.
_MEMBERS = {
    "op": "variant", "ts_ms": "string", "transaction.id": "string",
    "transaction.total_order": "string", "source.collection": "string",
    **{f"source.{name}": "string" for name in SOURCE_TEXTS},
    **{f"source.{name}": "variant" for name in SOURCE_NAMES},
}  # fmt: skip
_MESSAGE_SOURCE = struct(
    **dict.fromkeys(SOURCE_TEXTS, "string"), **dict.fromkeys(SOURCE_NAMES, "variant")
)
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
    paths = list(listed) or [*_MEMBERS, *(path.split(".")[-1] for path in _MEMBERS)]
    names: dict[str, list[str]] = {path: [] for path in _MEMBERS}
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

    def is_column_sql(self, name: Sql) -> Sql:
        """As :meth:`is_column`."""
        if self.all_of is None:
            return f"{name} NOT IN ({literals(self.listed)})"
        own = f"NOT startswith({name}, {literal(self.all_of)})"
        return own if DELETED.startswith(self.all_of) else f"{own} AND {name} <> '{DELETED}'"

    def kind_of(self, paths: Iterable[str]) -> str:
        """The struct type of the fields of some members, and of ``__deleted``."""
        kinds = {name: _MEMBERS.get(p, "variant") for p in paths for name in self.fields[p]}
        return struct(**{quote(name): kind for name, kind in {DELETED: "variant", **kinds}.items()})

    def of_topic(self, group: str) -> Sql:
        """What a group of the pattern holds (STRING); null where the pattern does not match."""
        if self.topic is None or group not in self.groups:
            return "CAST(NULL AS string)"
        pattern = literal(f"\\A(?:{self.topic})\\z")
        return f"nullif(regexp_extract(topic, {pattern}, {self.groups[group]}), '')"


def _column(path: str) -> str:
    """The member of `f` that has what stands at a path of the envelope."""
    return path.replace(".", "_")


def _from_field(rules: _Rules, path: str) -> Sql:
    found = [f"_fields.{quote(name)}" for name in rules.fields[path]]
    if not found:
        return f"CAST(NULL AS {_MEMBERS[path]})"
    if _MEMBERS[path] == "string":
        return f"coalesce({', '.join(found)})"
    *others, last = found
    return case(*((is_present(other), other) for other in others), otherwise=last)


def _from_any(rules: _Rules, path: str) -> Sql:
    """The same from a header, where no field has it."""
    field = _from_field(rules, path)
    names = rules.headers[path]
    if not names:
        return field
    header = f"coalesce({', '.join(f'try_element_at(_headers, {literal(n)})' for n in names)})"
    if _MEMBERS[path] == "string":
        return f"coalesce({field}, {header})"
    is_of_field = f"{is_present(field)} OR {header} IS NULL"
    return case((is_of_field, field), otherwise=f"CAST({header} AS variant)")


def _headers(rules: _Rules) -> Sql:
    """The known headers as MAP<STRING, STRING>, of equal names the first; null without any."""
    known = literals(name for names in rules.headers.values() for name in names)
    if not known:
        return "CAST(NULL AS map<string, string>)"
    found = f"filter(headers, header -> header.key IN ({known}))"
    text = "CAST(header.value AS string)"
    document = f"try_parse_json({text})"
    # A header converter writes the text itself, as JSON, or as JSON with its schema.
    value = case(
        (is_object(document), get(document, "$.payload", "string")),
        (is_text(document), get(document, "$", "string")),
        (f"is_variant_null({document})", "NULL"),
        otherwise=text,
    )
    merged = (
        f"aggregate({found}, CAST(map() AS map<string, string>), (named, header) -> CASE "
        "WHEN map_contains_key(named, header.key) THEN named "
        f"ELSE map_concat(named, map(header.key, {value})) END)"
    )
    return case((f"size(headers) > 0 AND size({found}) > 0", merged))


def _members(rules: _Rules, find: Any) -> Sql:
    found = ", ".join(f"'{_column(path)}', {find(rules, path)}" for path in _MEMBERS)
    return f"named_struct({found})"


def _read_flat(records: Query, rules: _Rules) -> Query:
    """Read flattened events; what the transform leaves as it was (D13, D16) is control.

    Args:
        records: has the columns of :func:`~cdc_assets.cdc.envelopes.connect.with_document`.
        rules: how they were flattened.

    Returns:
        The records with the columns of `Envelope`.
    """
    # A row may have a column called payload: in a wrapper nothing but the schema is beside it.
    names = f"map_keys({get('doc', DOCUMENT, 'map<string, variant>')})"
    is_row = (
        f"({get('doc', f'{DOCUMENT}.payload')} IS NOT NULL "
        f"AND size(array_except({names}, array('schema', 'payload'))) > 0)"
    )
    marks = get("doc", DOCUMENT, rules.kind_of(["op"]))
    is_bare = f"{_is_marked(rules, marks)} OR coalesce({is_row}, false)"
    cast = with_event(records, is_bare=is_bare).extend(
        {
            "_fields": member(kind=rules.kind_of(_MEMBERS)),
            "e": member(kind=EVENT),
            "_headers": _headers(rules),
            **{f"topic_{group}": rules.of_topic(group) for group in ("schema", "db", "table")},
        }
    )
    with_headers = interpreted_if("_headers IS NOT NULL", _members(rules, _from_any))
    of_fields = _members(rules, _from_field)
    merged = cast.extend({"f": f"coalesce({with_headers}, {of_fields})"})
    ops = literals(rules.headers["op"]) or "''"
    # A tombstone has no other header of the transform; no table is truncated by one.
    says_more = f"size(array_except(map_keys(_headers), array({ops}))) > 0"
    op_text = get("f.op", "$", "string")
    is_null = f"coalesce(is_empty OR is_variant_null({member()}), false)"
    is_removal = case(
        ("f.op IS NULL", says_more), (f"{op_text} = 'd'", says_more), (f"{op_text} = 't'", "true")
    )
    is_envelope = (
        "(e.op IS NOT NULL AND (e.source IS NOT NULL OR e.before IS NOT NULL "
        "OR e.after IS NOT NULL))"
    )
    is_known = (
        f"(_headers IS NOT NULL OR topic_table IS NOT NULL OR {is_present('f.source_table')})"
    )
    marked = merged.extend(
        {
            "is_marked": _is_marked(rules, "_fields"),
            "is_removal": f"coalesce({is_null} AND {is_removal}, false)",
            "is_row": f"coalesce(e IS NOT NULL AND NOT {is_envelope} AND {is_known}, false)",
            "is_null": is_null,
            "is_deleted": f"lower({get(f'_fields.{DELETED}', '$', 'string')}) = 'true'",
            "is_message": "coalesce(e.op = 'm', false)",
        }
    ).extend({"is_flat": "is_marked OR is_removal OR is_row"})
    is_known_op = f"coalesce({op_text} IN ({literals(ROW_OPS)}), false)"
    # Without an op a record is a write or a delete; either way it says how the row is now.
    derived = case(("is_deleted OR is_removal", "'d'"), ("NOT is_deleted OR NOT is_marked", "'u'"))
    is_plain = f"NOT (coalesce(is_deleted, false) AND {is_known_op})"
    op = case(
        (f"{is_present('f.op')} AND {is_plain}", "f.op"),
        otherwise=f"CAST({derived} AS variant)",
    )
    opened = marked.extend(
        {
            "v_op": case(("is_flat", op), ("is_message", "CAST(e.op AS variant)")),
            "v_has_body": f"is_flat OR (is_message AND {member('source')} IS NOT NULL)",
            "v_has_source": "is_flat OR (is_message AND e.source IS NOT NULL)",
            "s": case(("is_message", member("source", _MESSAGE_SOURCE))),
            "v_ts_ms": case(("is_flat", whole("f.ts_ms")), otherwise=whole("e.ts_ms")),
            "v_total_order": whole("f.transaction_total_order"),
            "v_transaction": "f.transaction_id",
            "v_is_avro_json": "false",
        }
    )
    with_op = opened.extend(
        {
            "flat_op_text": get("v_op", "$", "string"),
            "v_op_text": case((is_text("v_op"), get("v_op", "$", "string"))),
            "v_has_op": is_present("v_op"),
        }
    )
    own = case(("is_flat", _own(rules, member())))
    exact = case(("is_flat", _own(rules, _digits_event())))
    is_before = "coalesce(flat_op_text = 'd', false)"
    is_after = "coalesce(flat_op_text NOT IN ('d', 't'), false)"
    imaged = with_images(
        with_op,
        case((is_before, own)),
        case((is_after, own)),
        (case((is_before, exact)), case((is_after, exact))),
    )
    sent_op = case(("is_flat", string_of("f.op")), otherwise="e_source_op")
    basis = positions.basis_of_members(_of_source)
    source = Source(text=_text_of_source, name=_name_of_source, basis=basis)
    read = read_envelope(
        imaged, source, ROW_OPS, "v_op", "NOT is_flat", in_databases=rules.in_databases
    )
    of_topic = "coalesce(topic_schema, topic_db)"
    if rules.in_databases:
        of_topic = namespace_of_database_sql("topic_db", "topic_schema")
    topic_name = table_name_sql(of_topic, "topic_table")
    return read.replace(
        {
            "e_source_op": sent_op,
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
    is_envelope = "e.op IS NOT NULL AND (e.source IS NOT NULL OR e.after IS NOT NULL)"
    return case(
        (
            "e_reason = 'missing_table'",
            f"coalesce({unread_connector(connector)}, "
            f"concat('the record lacks ', {missing}, {cure}))",
        ),
        ("e_reason = 'not_an_envelope' AND e IS NULL", "'JSON that is not an object'"),
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


def _is_marked(rules: _Rules, cast: Sql) -> Sql:
    marks = (f"{cast}.{quote(name)} IS NOT NULL" for name in (DELETED, *rules.fields["op"]))
    return f"coalesce({' OR '.join(marks)}, false)"


def _own(rules: _Rules, event: Sql) -> Sql:
    """The row without the fields of the envelope; null for what is not an object."""
    return f"map_filter({members_of(event)}, (name, value) -> {rules.is_column_sql('name')})"


def _digits_event() -> Sql:
    return f"CASE WHEN is_wrapped THEN {get('digits', '$.payload')} ELSE digits END"


def _text_of_source(name: str) -> Sql:
    if name not in SOURCE_NAMES:
        return _of_source(name)
    own = get(_of_source(name), "$", "string")
    return f"coalesce({own}, {_topic_name(name)})" if name in ("schema", "db") else own


def _name_of_source(name: str) -> Sql:
    own = string_of(_of_source(name))
    if name not in ("schema", "db", "table"):
        return own
    is_said = is_present(_of_source(name))
    return case((is_said, own), otherwise=_topic_name(name))


def _topic_name(name: str) -> Sql:
    return case(("is_flat", f"topic_{name}"))


def _of_source(name: str) -> Sql:
    """A member of what `source` was; a logical message has its `source` still."""
    found = f"f.source_{name}"
    if name == "connector":
        # PostgreSQL's alone has LSNs, and Vitess' keyspaces.
        own = case(
            (f"{whole('f.source_lsn')} IS NOT NULL", "'postgresql'"),
            (is_present("f.source_keyspace"), "'vitess'"),
        )
        found = f"coalesce({found}, {own})"
    return f"CASE WHEN is_flat THEN {found} ELSE s.{name} END"


def _columns_of_schema(schema: Mapping[str, Any], rules: _Rules) -> ColumnTypes:
    fields = columns_of_fields(schema)
    return {name: kind for name, kind in fields.items() if rules.is_column(name)}


def _table_and_row(document: Mapping[str, Any], rules: _Rules) -> TableAndRow | None:
    marks = {DELETED, *rules.fields["op"]}
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
    marks = [(DELETED,), *((name,) for name in rules.fields["op"]), *tables]
    return Format(
        NAME,
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
