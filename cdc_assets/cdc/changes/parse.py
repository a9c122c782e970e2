"""landing rows → records in common columns, each text parsed once.

A value and its key are read once each by :mod:`cdc_assets.cdc.json_reader`, into the members that
the format declares: strictly, and exact to the last digit. Numbers come as text, then are read:
`true` and 1.5 are no BIGINT.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pyspark.sql import DataFrame

from cdc_assets.cdc import positions
from cdc_assets.cdc.changes.leaves import with_added_keys, with_leaves
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.envelopes.envelope import Format
from cdc_assets.cdc.envelopes.formats import format_of, other_format, other_members
from cdc_assets.cdc.envelopes.headers import header
from cdc_assets.cdc.envelopes.keys import (
    KEY_MEMBERS,
    MESSAGE_KEY,
    key_detail,
    with_header_keys,
    with_message_key,
    with_raw_keys,
)
from cdc_assets.cdc.envelopes.statements import namespaces_of, with_emptied
from cdc_assets.cdc.json_reader import Wanted, names_in, read
from cdc_assets.cdc.landing.lines import LINE_BYTES
from cdc_assets.cdc.registry.decode import Decoding, is_framed, number_in
from cdc_assets.cdc.sqltext import Query, Sql, case, interpreted_if, is_one_of, literal

# What tells a record from all others, also from its copies.
IDENTITY = ("landing_date", "topic", "partition", "offset", "value_hash")

_SHOWN, _UTF8 = 60, 4  # characters, and bytes at most of each
_SET_REGISTRY = "': set landing.registry of the source'"


def with_documents(
    landing: DataFrame,
    members: Mapping[str, Wanted],
    decoding: Decoding | None = None,
    most_bytes: int | None = None,
) -> Query:
    """Read each record's value into the struct `d`, and its key into `k`.

    Args:
        landing: landing rows.
        members: what is read of values; of keys it is `KEY_MEMBERS`.
        decoding: how those are decoded that were written with a schema registry; without it their
            values are not read.
        most_bytes: of a record's key and value; of larger ones nothing is read.

    Returns:
        The rows with `d`, `k`, `key_text`, `is_empty`, `is_document`, `is_registry`,
        `registry_over`, `registry_detail`, `over_size` (what a record is that is too large),
        `value_hash`, `kafka_ts_ms`, and only the beginning of values that are read.
    """
    rows = Query(landing)
    rows = rows.extend({"over_size": _over_size(most_bytes)})
    is_registry, is_over = is_framed("value"), "false"
    fault = f"concat('schema id ', {number_in('value')}, {_SET_REGISTRY})"
    value, key = "value", MESSAGE_KEY
    if decoding is None:
        rows = rows.extend({"sent_schema_id": "CAST(NULL AS string)"})
    else:
        rows = decoding.add_to(rows)
        key = f"coalesce(sent_key, {key})"
        value = "coalesce(encode(sent_value, 'UTF-8'), value)"
        is_registry, fault = "registry_fault IS NOT NULL", "registry_fault"
        is_over = "registry_is_over AND registry_fault IS NOT NULL"
    is_readable = f"over_size IS NULL AND length(value) > 0 AND NOT ({is_registry})"
    key_text = case(("over_size IS NULL", key))
    documents = rows.extend(
        {
            "registry_over": is_over,
            "is_empty": "value IS NULL OR length(value) = 0",
            "is_registry": is_registry,
            "registry_detail": case((is_registry, fault)),
            "value_hash": "xxhash64(value)",
            "kafka_ts_ms": "unix_millis(timestamp)",
            "key_text": key_text,
            "d": read(case((is_readable, value)), **members),
            "k": read(key_text, **KEY_MEMBERS),
        }
    )
    # To carry the bytes of records that are read from step to step is dear.
    is_document = "coalesce(d.is_json, false)"
    shown = f"substring(value, 1, {_SHOWN * _UTF8})"
    beginning = case((f"NOT {is_document} OR offset IS NULL", shown))
    return documents.select(
        "* EXCEPT (value)", f"{beginning} AS value", f"{is_document} AS is_document"
    )


def _over_size(most_bytes: int | None) -> Sql:
    if most_bytes is None:
        return "CAST(NULL AS string)"
    size = "coalesce(length(value), 0) + coalesce(length(key), 0)"
    line = f"CAST({header(LINE_BYTES)} AS string)"
    is_line = "offset IS NULL AND size(headers) = 1"
    limit = f"' bytes; max_record_mb is {most_bytes >> 20}'"
    return case(
        (f"{size} > {most_bytes}", f"concat('has ', {size}, {limit})"),
        (f"{is_line} AND {line} IS NOT NULL", f"concat('has ', {line}, {limit})"),
    )


def parse(
    landing: DataFrame,
    source: SourceConfig,
    decoding: Decoding | None = None,
) -> DataFrame:
    """Read landing rows; one row out for each row in, or for each row in a record of many.

    Args:
        landing: has the columns of `LANDING`.
        source: the rules.
        decoding: how records are decoded that were written with a schema registry.

    Returns:
        `landing_date, topic, partition, offset, kafka_ts_ms, value_hash, message_key`, the
        event in common columns, `kind` (row, control, tombstone; null where `reason` is
        set), raw keys with their `key_names` and `key_kinds`, the `schema_id` of the message's
        schema, `row_number` in a record of many rows,
        `kafka_time` (the Kafka timestamp, or what stands in for it, ms), `reason` and `detail`.
    """
    own = format_of(source)
    events = _events(landing, source, own, decoding)
    known_schema = "sent_key_schema" if decoding is not None else None
    keyed = with_header_keys(with_message_key(events, own.key_row, known_schema))
    judged = with_raw_keys(with_added_keys(keyed, source), source).extend(_judgements(source))
    columns = {**_event_columns(source), **_key_columns(own), **_order_columns(own)}
    landed = ("landing_date", "topic", "partition", "offset", "kafka_ts_ms", "value_hash")
    read = judged.select(*landed, *(f"{sql} AS {name}" for name, sql in columns.items()))
    return read.extend(_key_kinds()).drop("_bare_key").plan()


def _events(
    landing: DataFrame, source: SourceConfig, own: Format, decoding: Decoding | None
) -> Query:
    """The documents as the events of the source's format: the columns of `Envelope`."""
    members = {"kind": ("kind",), **own.members, **other_members(own.name)}
    documents = with_documents(landing, members, decoding, source.max_record_mb << 20)
    # What later steps ask of the document itself, so that none has to carry all of its members.
    asked = {"is_json_null": "d.kind = 'null'", "other_format": other_format(own.name)}
    events = with_leaves(own.read(documents.extend(asked)), source)
    if emptied := source.emptied_by_statements:
        events = with_emptied(events, namespaces_of(source.tables), emptied)
    return events


def _judgements(source: SourceConfig) -> dict[str, Sql]:
    """What later columns ask: is it a tombstone, what is wrong with it, does it say an order."""
    is_record = "offset IS NOT NULL"
    is_tombstone = (
        f"coalesce({is_record} AND (e_kind = 'tombstone' "
        "OR (NOT e_kind <=> 'row' AND (is_empty OR is_json_null))), false)"
    )
    unreadable = case(
        ("over_size IS NOT NULL", "'over_limit'"),
        (f"NOT ({is_record})", "'malformed_landing_line'"),
        ("registry_over", "'over_limit'"),
        ("is_registry", "'registry_encoded'"),
        ("NOT is_document AND NOT is_empty", "'malformed_json'"),
    )
    is_wide = case((f"e_columns > {source.max_columns}", "'over_limit'"))
    of_event = case((f"NOT {is_tombstone}", f"coalesce(e_reason, key_reason, {is_wide})"))
    return {
        "is_tombstone": is_tombstone,
        "_reason": f"coalesce({unreadable}, {of_event})",
        "_has_source": f"NOT {is_tombstone} AND (e_kind = 'row' OR e_op = 'message')",
        "_has_position": f"NOT {is_tombstone} AND NOT coalesce(e_is_snapshot, false) "
        "AND (e_kind = 'row' OR e_op IN ('message', 'ddl'))",
        "ordered": positions.ordered("e_elements"),
        "says_order": "coalesce(array_max(e_elements) > 0, false)",
        "kafka_time": positions.time_in_kafka("e_processed_ts_ms"),
    }


def _event_columns(source: SourceConfig) -> dict[str, Sql]:
    """What the event is, and what is wrong with it."""
    which_row = case(
        ("e_row_number > 0", "concat('row ', e_row_number + 1, ' of its record: ')"), otherwise="''"
    )
    is_foreign = "_reason IN ('not_an_envelope', 'missing_op')"
    return {
        "message_key": "key",
        "kind": "CASE WHEN is_tombstone THEN 'tombstone' ELSE e_kind END",
        "reason": "_reason",
        "detail": interpreted_if(
            "_reason IS NOT NULL",
            f"concat({which_row}, coalesce({_unreadable_detail(source)}, "
            f"{case((is_foreign, 'other_format'))}, e_detail, {key_detail(source)}))",
        ),
        "source_op": "CASE WHEN NOT is_tombstone THEN e_source_op END",
        **{name: f"e_{name}" for name in _AS_READ},
    }


# Columns of `Envelope` that a record has as they are.
_AS_READ = (
    "op", "connector", "server", "db", "table_name", "before", "after", "source_ts_ms",
    "processed_ts_ms", "tx_id", "tx_order", "is_snapshot", "snapshot", "schema_id", "payload",
    "row_number", "source_table",
)  # fmt: skip


def _key_columns(own: Format) -> dict[str, Sql]:
    """The record's key, and what there is instead where nothing names its columns."""
    key_raw = "CASE WHEN is_tombstone THEN key_row ELSE key_raw END"
    # Where an image holds the key, the value's schema says how it is written.
    is_in_key = f"is_tombstone OR (e_after IS NULL AND {literal(not own.whole_old_rows)})"
    key_schema = case((is_in_key, "key_schema"))
    return {
        "key_raw": key_raw,
        "old_key_raw": "old_key_raw",
        "new_key_raw": "new_key_raw",
        "key_schema": key_schema,
        "key_names": names_in(key_raw),
        "_bare_key": _bare_key(key_raw, key_schema),
        "unnamed_key_kind": case(
            ("key_raw IS NOT NULL", "NULL"),
            ("key_row IS NOT NULL", "'partial'"),
            ("key_scalar IS NOT NULL", "'bare'"),
            ("key_is_garbage", "'unreadable'"),
            otherwise="'none'",
        ),
        "unnamed_key_text": case(
            (
                "key_raw IS NULL",
                "coalesce(key_scalar_text, "
                "CASE WHEN key_is_garbage AND is_valid_utf8(key_text) THEN key_text END)",
            )
        ),
        # Shown where there is no canonical key.
        "message_key_json": case(("NOT (e_kind <=> 'row') OR key_reason IS NOT NULL", "key_row")),
    }


def _order_columns(own: Format) -> dict[str, Sql]:
    """The record's position, what it is made of, and what identifies the event besides."""
    first_half = is_one_of("e_source_op", own.first_halves)
    placed = positions.placed(
        elements="ordered",
        says_order="says_order",
        basis="e_basis",
        source_time="e_stand_in",
        kafka_time="kafka_time",
        place=positions.place_of("e_row_number", f"e_op IN ('c', 'u', 'r') AND NOT {first_half}"),
        half="e_half" if own.first_halves else None,
    )
    falls = positions.stream_element("e_basis", "ordered", "says_order", "e_last_commit")
    return {
        "position": case(("_has_position", placed.position)),
        "source_elements": case(("_has_source", "e_elements")),
        "position_basis": case(("_has_position", placed.basis)),
        "identity": case(("_has_source", "e_identity")),
        "stream_element": case(("_has_position", falls)),
        "kafka_time": "kafka_time",
    }


_BLANK_SCHEMA = hashlib.sha256(b"{}").hexdigest()
_QUOTED_WHOLE = r'":"([+-]?[0-9]{1,18})"'
_UNQUOTED = '":$1'


def _bare_key(key_raw: Sql, key_schema: Sql) -> Sql:
    """The key where no schema of the message says its types."""
    has_none = f"e_schema_id IS NULL OR e_schema_id = '{_BLANK_SCHEMA}'"
    return case((f"({key_schema}) IS NULL AND ({has_none})", key_raw))


def _key_kinds() -> dict[str, Sql]:
    """The JSON types of a bare key's members; the same with whole numbers out of their quotes."""
    # The text is canonical JSON: within a string, the quotes would be escaped.
    unquoted = f"regexp_replace(_bare_key, {literal(_QUOTED_WHOLE)}, {literal(_UNQUOTED)})"
    kinds = "schema_of_variant(try_parse_json(_bare_key))"
    return {
        "key_kinds": kinds,
        "key_unquoted": case(
            (
                f"_bare_key RLIKE {literal(_QUOTED_WHOLE)}",
                f"schema_of_variant(try_parse_json({unquoted}))",
            ),
            otherwise=kinds,
        ),
    }


def _unreadable_detail(source: SourceConfig) -> Sql:
    text = f"regexp_replace(substring(CAST(value AS string), 1, {_SHOWN}), '[\\\\p{{Cntrl}}]', ' ')"
    shown = f"CASE WHEN is_valid_utf8({text}) THEN {text} ELSE 'bytes that are not UTF-8' END"
    wide = f"the row has more than {source.max_columns} columns, which is max_columns"
    over = f"coalesce(over_size, registry_detail, {literal(wide)})"
    return case(
        ("_reason = 'over_limit'", over),
        ("_reason = 'malformed_landing_line'", f"concat('not a landed record: ', {shown})"),
        (
            "_reason = 'registry_encoded'",
            "concat('encoded by a schema registry, ', registry_detail)",
        ),
        (
            "_reason = 'malformed_json'",
            f"concat('not exactly one strict JSON document: ', {shown})",
        ),
    )
