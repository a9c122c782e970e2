"""What the formats let cdc.yaml say of a source: all that reading the configuration asks of them.

It is read with every command, so nothing here imports PySpark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PLACEHOLDER = "__debezium_unavailable_value"  # Debezium's own `unavailable.value.placeholder`


@dataclass(frozen=True)
class DeclaredFormat:
    """What cdc.yaml may say of a source in a format.

    Attributes:
        name: as `format:` has it.
        has_databases: its connectors read several databases with schemas, whose tables have names
            of three parts (FORMATS D4).
        may_lack_positions: some or all installations send none; the place in Kafka orders their
            events (FORMATS O8).
        has_row_keys: a table's `key` may be `row`: an event has its whole old row (FORMATS O14).
        settings: the settings of a source that only this format has.
        defaults: settings whose default is another one in this format.
    """

    name: str
    has_databases: bool = False
    may_lack_positions: bool = False
    has_row_keys: bool = False
    settings: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


DECLARED: dict[str, DeclaredFormat] = {
    each.name: each
    for each in (
        DeclaredFormat("debezium", has_databases=True, has_row_keys=True),
        DeclaredFormat(
            "debezium-flat",
            has_databases=True,
            settings=(
                "add_fields", "add_fields_prefix", "add_headers", "add_headers_prefix",
                "table_from_topic",
            ),
        ),
        DeclaredFormat("debezium-mongodb"),
        # Events have the columns that were written, and no others.
        DeclaredFormat("debezium-cassandra", defaults={"missing_columns": "keep"}),
        DeclaredFormat("lindorm"),
        DeclaredFormat("dataworks"),
        DeclaredFormat("canal", may_lack_positions=True),
        DeclaredFormat("maxwell", may_lack_positions=True),
        DeclaredFormat("ogg"),
    )
}  # fmt: skip
