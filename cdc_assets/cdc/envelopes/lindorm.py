"""Lindorm's events (FORMATS L1–L4): Debezium's shape, `namespace` for the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_assets.cdc.envelopes.debezium import event_in, read_envelopes
from cdc_assets.cdc.envelopes.debezium_event import EVENT
from cdc_assets.cdc.envelopes.envelope import Format, TableAndRow, object_in, table_and_row
from cdc_assets.cdc.sqltext import Query
from cdc_assets.cdc.values.column_types import columns_of_images


def read_lindorm(records: Query) -> Query:
    """Read Lindorm events; `r` is reserved (L3).

    Args:
        records: has `d`, of the members `EVENT`.

    Returns:
        The records with the columns of `Envelope`.
    """
    return read_envelopes(records, row_ops=("c", "u", "d", "r"), lindorm=True)


def _table_and_row(document: Mapping[str, Any]) -> TableAndRow | None:
    event = event_in(document)
    source = object_in(event, "source")
    return table_and_row(source.get("namespace"), source.get("table"), event.get("after"))


LINDORM = Format(
    "lindorm",
    EVENT,
    read_lindorm,
    signatures=(("source.namespace",), ("payload.source.namespace",)),
    columns_of_schema=columns_of_images,
    table_and_row=_table_and_row,
    whole_old_rows=True,
)
