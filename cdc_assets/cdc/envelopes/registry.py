"""Which function reads which format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cdc_assets.cdc.envelopes.dataworks import read_dataworks
from cdc_assets.cdc.envelopes.debezium import read_debezium, read_lindorm
from cdc_assets.cdc.envelopes.flat import read_flat
from cdc_assets.cdc.sqltext import Query

READERS: Mapping[str, Callable[[Query], Query]] = {
    "debezium": read_debezium,
    "debezium-flat": read_flat,
    "lindorm": read_lindorm,
    "dataworks": read_dataworks,
}

# Members one of which stands in the document of each row event: without them a reader finds none.
ROW_MEMBERS: Mapping[str, Sequence[str]] = {
    "debezium": ("source.table", "payload.source.table"),
    "debezium-flat": ("__op", "__deleted", "payload.__op", "payload.__deleted"),
    "lindorm": ("source.namespace", "payload.source.namespace"),
    "dataworks": ("schema.source.tableName",),
}
