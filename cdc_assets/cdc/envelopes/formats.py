"""The formats of change events, the most particular first: a reader may take another's events."""

from __future__ import annotations

from cdc_assets.cdc.envelopes.canal import CANAL
from cdc_assets.cdc.envelopes.cassandra import DEBEZIUM_CASSANDRA
from cdc_assets.cdc.envelopes.dataworks import DATAWORKS
from cdc_assets.cdc.envelopes.debezium import DEBEZIUM
from cdc_assets.cdc.envelopes.declared import DECLARED, DeclaredFormat
from cdc_assets.cdc.envelopes.envelope import Format, SourceSettings
from cdc_assets.cdc.envelopes.flat import DEBEZIUM_FLAT
from cdc_assets.cdc.envelopes.lindorm import LINDORM
from cdc_assets.cdc.envelopes.maxwell import MAXWELL
from cdc_assets.cdc.envelopes.mongodb import DEBEZIUM_MONGODB
from cdc_assets.cdc.envelopes.ogg import OGG
from cdc_assets.cdc.json_reader import Wanted
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Sql, case, literal

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        DATAWORKS, LINDORM, CANAL, MAXWELL, OGG, DEBEZIUM_MONGODB, DEBEZIUM_CASSANDRA, DEBEZIUM,
        DEBEZIUM_FLAT,
    )
}  # fmt: skip

# The ops, as sent, of the records of an update that is sent as two (FORMATS W2).
FIRST_HALVES = tuple(op for each in FORMATS.values() for op in each.first_halves)
SECOND_HALVES = tuple(op for each in FORMATS.values() for op in each.second_halves)


def add_format(own: Format, declared: DeclaredFormat) -> None:
    """Add a format from outside this package, before a configuration that names it is read.

    Args:
        own: how its events are read.
        declared: what cdc.yaml may say of a source in it.

    Raises:
        ValueError: there is a format of that name, or the two have different names.
    """
    if own.name != declared.name or own.name in FORMATS:
        raise ValueError(f"a format can't be added as {own.name}, declared as {declared.name}")
    FORMATS[own.name], DECLARED[own.name] = own, declared


def format_of(source: SourceSettings) -> Format:
    """The format of a source, as its settings say it is written."""
    own = FORMATS[source.format]
    return own.configured(source) if own.configured else own


def signature_members(name: str) -> dict[str, Wanted]:
    """What is read of a document to tell whether it may be a row event of this format."""
    return {
        f"is_{name}_{path}": ("kind", *path.split("."))
        for members in FORMATS[name].signatures
        for path in members
    }


def has_signature(name: str) -> Sql:
    """May a record's `d` be a row event of this format?"""
    sets = (
        " AND ".join(f"d.{quote(f'is_{name}_{path}')} IS NOT NULL" for path in members)
        for members in FORMATS[name].signatures
    )
    return " OR ".join(f"({each})" for each in sets)


def other_members(name: str) -> dict[str, Wanted]:
    """What :func:`other_format` asks of a document."""
    others = (signature_members(other) for other in FORMATS if other != name)
    return {column: wanted for members in others for column, wanted in members.items()}


def other_format(name: str) -> Sql:
    """Which other format than this a record's `d` seems to be of; null if none."""
    return case(
        *(
            (
                has_signature(other),
                literal(f"an event of the format {other}: set `format: {other}`"),
            )
            for other in FORMATS
            if other != name
        )
    )
