"""Which function reads which format."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
