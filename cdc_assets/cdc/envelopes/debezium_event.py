"""What is read of an event of Debezium, and where it stands in a message (FORMATS D1, D2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc_assets.cdc import positions
from cdc_assets.cdc.json_reader import Wanted
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    whole,
)

# What of an update Spanner's change streams capture: whole rows, or values of changed columns.
_CAPTURES_ROWS = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
CAPTURES_OLD_AND_NEW = "OLD_AND_NEW_VALUES"

# What of `source` is read as text, and the names, which must be texts.
SOURCE_TEXTS = (
    "connector", "name", "snapshot", "ts_ms", "txId", "value_capture_type",
    *positions.SOURCE_MEMBERS,
)  # fmt: skip
SOURCE_NAMES = ("db", "schema", "namespace", "keyspace", "table", "file")
_PAYLOAD = "p_"  # begins the names of what is read in the payload


def source_members(at: tuple[str, ...], *more: str) -> dict[str, Wanted]:
    """The members of a `source`: each as text, `s_…`, and those that are names, `n_…`."""
    texts = dict.fromkeys((*SOURCE_TEXTS, *SOURCE_NAMES, *more))
    names = dict.fromkeys((*SOURCE_NAMES, *more))
    return {
        **{f"s_{name}": ("text", *at, name) for name in texts},
        **{f"n_{name}": ("string", *at, name) for name in names},
    }


def event_members(*of_source: str, **more: Wanted) -> dict[str, Wanted]:
    """What is read of an event, which may be the payload of `{"schema": …, "payload": …}`.

    Args:
        of_source: more members of `source`.
        more: more members of the event.
    """
    event: dict[str, Wanted] = {
        "kind": ("kind",),
        "names": ("names",),
        "op": ("string", "op"),
        "op_sent": ("json", "op"),
        "ts_ms": ("text", "ts_ms"),
        "ts_ms_kind": ("kind", "ts_ms"),
        "tx_id": ("text", "transaction", "id"),
        "tx_order": ("text", "transaction", "total_order"),
        "ddl": ("json", "ddl"),
        "ddl_text": ("text", "ddl"),
        "status": ("text", "status"),
        "id": ("text", "id"),
        "table_changes": ("json", "tableChanges"),
        "content": ("text", "message", "content"),
        **{f"{name}_kind": ("kind", name) for name in ("source", "before", "after")},
        **{name: ("object", name) for name in ("before", "after")},
        **{f"{name}_size": ("size", name) for name in ("before", "after")},
        **source_members(("source",), *of_source),
        **more,
    }
    in_payload = {
        _PAYLOAD + name: (wanted, "payload", *path) for name, (wanted, *path) in event.items()
    }
    wrapper: dict[str, Wanted] = {
        "size": ("size",),
        "schema_kind": ("kind", "schema"),
        "schema_id": ("hash", "schema"),
    }
    return {**event, **in_payload, **wrapper}


EVENT = event_members()


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


def parts() -> dict[str, Sql]:
    """The parts of an envelope that `read_envelope` asks for, of an event `e`."""
    kinds = ("e.source_kind", "e.after_kind", "e.before_kind")
    return {
        "v_op_text": "e.op",
        "v_has_op": "coalesce(e.op_sent <> 'null', false)",
        "v_has_body": f"coalesce({', '.join(kinds)}) IS NOT NULL",
        "v_has_source": "e.source_kind <=> 'object'",
        "v_ts_ms": whole("e.ts_ms"),
        "v_total_order": whole("e.tx_order"),
        "v_transaction": "e.tx_id",
        # Avro's JSON encoding writes {"long": 1} where Connect's converter writes 1, and wraps rows
        # in the names of their types.
        "v_is_avro_json": "e.ts_ms_kind <=> 'object'",
    }


def source_of(**named: str) -> Source:
    """The `source` of events, `e`.

    Args:
        named: what a connector calls a member that others call by the first name.
    """
    return Source(
        lambda of: f"e.s_{named.get(of, of)}",
        lambda of: f"nullif(e.n_{named.get(of, of)}, '')",
        captures=(*_CAPTURES_ROWS, CAPTURES_OLD_AND_NEW),
    )


def with_event(records: Query, members: Mapping[str, Wanted], is_bare: Sql | None = None) -> Query:
    """Add `is_wrapped`, and `e`, the event: the document, or the payload in it (D1, D2).

    Args:
        records: has `d`, of these members.
        members: :func:`event_members`.
        is_bare: what tells a bare event, if not `op` beside an image or `source`.
    """
    # A row may itself have a column called payload: op beside an image decides first.
    body = "coalesce(d.source_kind, d.before_kind, d.after_kind) IS NOT NULL"
    bare = is_bare or f"d.op_sent IS NOT NULL AND {body}"
    # Without an object in it, payload is the wrapper's only where nothing but schema is beside it.
    own = "CASE WHEN d.schema_kind IS NULL THEN 1 ELSE 2 END"
    wraps = f"d.p_kind = 'object' OR (d.p_kind IS NOT NULL AND d.size = {own})"
    told = records.extend({"is_wrapped": f"coalesce(NOT ({bare}) AND ({wraps}), false)"})
    names = (name for name in members if _PAYLOAD + name in members)
    fields = (
        f"'{n}', {case(('is_wrapped', f'd.{_PAYLOAD}{n}'), otherwise=f'd.{n}')}" for n in names
    )
    schema_id = "'schema_id', coalesce(sent_schema_id, d.schema_id)"
    return told.extend({"e": f"named_struct({', '.join((*fields, schema_id))})"})
