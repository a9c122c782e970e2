"""The contract between formats and stages: what a format is, and what it reads an event into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from cdc_assets.cdc.json_reader import Wanted
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.sqltext import Query, Sql, case, literal
from cdc_assets.cdc.values.column_types import ColumnTypes

TableAndRow = tuple[str, Mapping[str, Any]]


class TableSettings(Protocol):
    """What reading asks of a table's settings (:class:`cdc_assets.cdc.config.TableConfig`)."""

    @property
    def key(self) -> tuple[str, ...] | str | None: ...
    @property
    def replica_identity(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, str]: ...


class SourceSettings(Protocol):
    """What reading asks of a source's settings (:class:`cdc_assets.cdc.config.SourceConfig`).

    The configuration asks formats what it may say of them, so they know it by this alone.
    """

    @property
    def format(self) -> str: ...
    @property
    def format_settings(self) -> Mapping[str, Any]: ...
    @property
    def topic_groups(self) -> Mapping[str, int]: ...
    @property
    def has_databases(self) -> bool: ...
    @property
    def unavailable_value(self) -> str: ...
    @property
    def tables(self) -> Mapping[str, TableSettings]: ...


@dataclass(frozen=True)
class Format:
    """All that the stages ask of a format; each has a module of its own in this package.

    `members` are the columns that are read of each document, into the struct `d`
    (:func:`cdc_assets.cdc.json_reader.read`); `read` makes the columns of `Envelope` of them.
    `signatures` are sets of members, paths of names: each row event has all members of one of them.
    `schema_path` is where a document has the message's schema, an object; `columns_of_schema` gives
    the columns of a row out of it.
    `table_and_row` gives table and whole row, as it is now, of an event that has one: a quick look
    without Spark, not a full reader.
    `whole_old_rows`: `before` is always the whole old row (FORMATS D5).
    `names_keys`: the messages name their key columns.
    `first_halves` are the ops (as sent) of the first record of an update that is sent as two, the
    old row and the new one; `second_halves` those of the second.
    `key_row` gives the key columns (JSON of an object) out of those that the message key has, where
    it has more than they.
    `columns_choose`: `columns` of a table in cdc.yaml say which members of an event are columns.
    `configured` gives the format as the settings of a source say it is written, where it has such.
    """

    name: str
    members: Mapping[str, Wanted]
    read: Callable[[Query], Query]
    signatures: tuple[tuple[str, ...], ...]
    columns_of_schema: Callable[[Mapping[str, Any]], ColumnTypes]
    table_and_row: Callable[[Mapping[str, Any]], TableAndRow | None]
    schema_path: tuple[str, ...] = ("schema",)
    whole_old_rows: bool = False
    names_keys: bool = False
    first_halves: tuple[str, ...] = ()
    second_halves: tuple[str, ...] = ()
    key_row: Callable[[Sql], Sql] | None = None
    columns_choose: bool = False
    configured: Callable[[SourceSettings], Format] | None = None


def table_and_row(namespace: Any, table: Any, row: Any) -> TableAndRow | None:
    """Those of an event, where all three are there."""
    names = isinstance(namespace, str) and isinstance(table, str) and namespace and table
    if not (names and isinstance(row, dict) and row):
        return None
    return str(TableName(namespace, table)), row


def object_in(parent: Any, name: str) -> Mapping[str, Any]:
    """A member that is an object; an empty one for anything else."""
    found = parent.get(name) if isinstance(parent, dict) else None
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """One event in the words that all formats share; an SQL expression each.

    `reason` and `detail` say why the event can't be read (null: it can). `kind` is row,
    control or tombstone. `before` and `after` are the images as canonical JSON, null where there is
    no object, and `columns` the most columns of one. `schema_id` is the SHA-256 of the canonical
    JSON of the schema that the message carries. `key_names` are the key columns that the message
    itself names.
    `elements` are the source elements that order the event, `basis` says which members of the
    source they are; `stand_in` takes their place where they say nothing (FORMATS O8). `identity`
    is what identifies the event besides, a JSON object. `last_commit` is that before the event,
    where the source numbers commits in their order beside its elements (O3). `half` is 0 for the
    first record of a split update and 1 for all others, of formats that have those (O4).
    `snapshot` is the mark of a snapshot read as sent (R7).
    `row_number` is the row's place, from 0, in a record of many rows. What has a default here, not
    every format says.
    """

    reason: Sql
    detail: Sql
    kind: Sql
    op: Sql
    source_op: Sql
    connector: Sql
    server: Sql = "CAST(NULL AS string)"
    db: Sql
    table_name: Sql
    before: Sql
    after: Sql
    columns: Sql = "CAST(NULL AS int)"
    key_names: Sql
    source_ts_ms: Sql
    processed_ts_ms: Sql = "CAST(NULL AS bigint)"
    elements: Sql
    basis: Sql
    stand_in: Sql
    tx_id: Sql = "CAST(NULL AS string)"
    tx_order: Sql = "CAST(NULL AS bigint)"
    identity: Sql = "CAST(NULL AS string)"
    last_commit: Sql = "CAST(NULL AS bigint)"
    half: Sql = "1"
    is_snapshot: Sql = "false"
    snapshot: Sql = "CAST(NULL AS string)"
    schema_id: Sql = "CAST(NULL AS string)"
    payload: Sql = "CAST(NULL AS string)"
    row_number: Sql = "CAST(NULL AS int)"

    def add_to(self, records: Query) -> Query:
        """The records with these columns, prefixed by ``e_``."""
        return records.extend({f"e_{f.name}": getattr(self, f.name) for f in fields(self)})


def reason_of(no_event: Sql, no_op: Sql, unknown_op: Sql, no_table: Sql, no_image: Sql) -> Sql:
    """The reason code of what is wrong with an event, by conditions: the first that holds."""
    return case(
        (no_event, "'not_an_envelope'"),
        (no_op, "'missing_op'"),
        (unknown_op, "'unknown_op'"),
        (no_table, "'missing_table'"),
        (no_image, "'missing_image'"),
    )


def detail_of(op_name: str, sent_op: Sql, no_table: str, no_image: str) -> Sql:
    """What there is to say of the reason `v_reason`.

    Args:
        op_name: what the format calls the op.
        sent_op: the op as it was sent (JSON); its text is `v_op`.
        no_table: what is said where the table is missing.
        no_image: the end of what is said of an op without its image.
    """
    return case(
        ("v_reason = 'not_an_envelope'", "'JSON that is not a change event of this format'"),
        ("v_reason = 'missing_op'", literal(f"an event without {op_name}")),
        (
            "v_reason = 'unknown_op'",
            f"concat({literal(f'{op_name} ')}, substring({sent_op}, 1, 40))",
        ),
        ("v_reason = 'missing_table'", literal(no_table)),
        (
            "v_reason = 'missing_image'",
            f"concat({literal(f'{op_name} ')}, v_op, {literal(no_image)})",
        ),
    )
