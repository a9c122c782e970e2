"""What every format reads an event into: the contract between formats and stages."""

from __future__ import annotations

from dataclasses import dataclass, fields

from cdc_assets.cdc.sqltext import Query, Sql


@dataclass(frozen=True)
class Envelope:
    """One event in the words that all formats share; an SQL expression each.

    `reason` and `detail` say why the event can't be read (null: it can). `kind` is row,
    control or tombstone. `before_row` and `after_row` are images as MAP<STRING, VARIANT>, `before`
    and `after` their canonical JSON. `schema` is the schema (VARIANT) of a message without
    a start, and `start` the hash of the start of one that has it (see
    :mod:`cdc_assets.cdc.envelopes.connect`). `key_names` are the key columns that the message
    itself names.
    `elements` are the source elements of the position, `basis` says which members of the source
    they are; `stand_in` takes their place where they say nothing (FORMATS O8). `rank` is 0 for the
    half of a change that takes a row away while its other half writes one (O4).
    """

    reason: Sql
    detail: Sql
    kind: Sql
    op: Sql
    source_op: Sql
    connector: Sql
    server: Sql
    db: Sql
    table_name: Sql
    before_row: Sql
    after_row: Sql
    before: Sql
    after: Sql
    key_names: Sql
    source_ts_ms: Sql
    processed_ts_ms: Sql
    elements: Sql
    basis: Sql
    stand_in: Sql
    tx_id: Sql
    tx_order: Sql
    rank: Sql
    is_snapshot: Sql
    schema: Sql
    start: Sql
    payload: Sql

    def add_to(self, records: Query) -> Query:
        """The records with these columns, prefixed by ``e_``."""
        return records.extend({f"e_{f.name}": getattr(self, f.name) for f in fields(self)})
