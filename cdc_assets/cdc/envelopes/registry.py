"""What every format reads an event into, and which function reads which format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Envelope:
    """One event in the words that all formats share; a column each.

    `reason` and `detail` say why the event can't be read (null: it can). `kind` is row,
    control or tombstone. `before_row`, `after_row` and `schema` are VARIANT objects.
    `key_names` are the key columns that the message itself names. `elements` are the source
    elements of the position and `basis` says which members of the source they are; `stand_in`
    takes their place where they say nothing (FORMATS O8). `rank` is 0 for the half of a change
    that takes a row away while its other half writes one (O4).
    """

    reason: Column
    detail: Column
    kind: Column
    op: Column
    source_op: Column
    connector: Column
    server: Column
    db: Column
    table_name: Column
    before_row: Column
    after_row: Column
    key_names: Column
    source_ts_ms: Column
    processed_ts_ms: Column
    elements: Column
    basis: Column
    stand_in: Column
    tx_id: Column
    tx_order: Column
    rank: Column
    is_snapshot: Column
    schema: Column
    payload: Column

    def add_to(self, records: DataFrame) -> DataFrame:
        """The records with these columns beside the landing columns."""
        return records.select(
            "*", *(getattr(self, f.name).alias(f"e_{f.name}") for f in fields(self))
        )


Reader = Callable[[DataFrame], DataFrame]


def reader(format_name: str) -> Reader:
    """The function that reads a format's records."""
    from cdc_assets.cdc.envelopes import dataworks, debezium, flat

    readers: dict[str, Reader] = {
        "debezium": debezium.read_debezium,
        "debezium-flat": flat.read_flat,
        "lindorm": debezium.read_lindorm,
        "dataworks": dataworks.read_dataworks,
    }
    return readers[format_name]
