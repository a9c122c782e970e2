"""Materialization metadata common to all stages: plain values that Dagster plots and renders.

A value is a number, a text, :class:`~cdc_assets.cdc.markdown.Markdown`, a `datetime`, or one of the
types of this module. Dagster defines the names that begin with `dagster/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.cdc import markdown
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.commits import DayFiles
from cdc_assets.cdc.lake.tables import STAGE, TableKind
from cdc_assets.cdc.markdown import Markdown

OPS = ("c", "u", "d", "r", "t")


class Location(str):
    """The location of a table's files."""

    __slots__ = ()


@dataclass(frozen=True)
class Columns:
    """The columns of a table and their key columns."""

    schema: StructType
    keys: Sequence[str] = ()


@dataclass(frozen=True)
class Lineage:
    """The parent's columns that each column of an asset comes from."""

    parent: tuple[str, ...]  # the key of the asset
    columns: Mapping[str, Sequence[str]]


def column_lineage(
    schema: StructType,
    parent: tuple[str, ...],
    known: Sequence[str],
    origins: Mapping[str, Sequence[str]],
) -> Lineage:
    """The parent's columns that each column comes from.

    Args:
        schema: the asset's columns.
        parent: the key of the parent asset.
        known: the parent's columns; a column comes from the one of the same name.
        origins: the parent's columns for columns of other names; ``*`` for all others.
    """
    named = {name: [name] for name in known}
    found = {**named, **origins}
    return Lineage(parent, {name: found.get(name, origins["*"]) for name in schema.names})


_TIMES = ("source_ts_ms", "processed_ts_ms", "kafka_ts_ms")


def stage_lineage(source: str, table: str, schema: StructType) -> Lineage | None:
    """The lineage of a source's own table; None for the landing, which has no parent."""
    if table == "landing":
        return None
    origins: dict[str, Sequence[str]]
    if table == "lag":
        parent, known = "changes", columns.CHANGES.names
        origins = {"hour": ["source_ts_ms"], "complete": ["landing_date"], "*": _TIMES}
    else:
        parent, known = "landing", columns.LANDING.names
        origins = {"kafka_ts_ms": ["timestamp"], "*": ["value"]}
        if table != "quarantine":
            origins |= {c: ["value", "key", "headers"] for c in ("key", "old_key", "new_key")}
    return column_lineage(schema, (source, parent), known, origins)


def query(identifier: str, day: date, kind: TableKind) -> Markdown:
    """Spark SQL that reads a day, ready to be copied."""
    clause = kind.sql_clause.format(day=day)
    return markdown.sql(f"SELECT *\nFROM {identifier}\n{clause}")


def stage_day(
    identifier: str, location: str, day: date, held: DayFiles, seconds: float
) -> dict[str, Any]:
    """Metadata of a stage's day: query, location, files, bytes and duration."""
    return {
        "query": query(identifier, day, STAGE),
        "location": Location(location),
        "data_files": held.files,
        "bytes": held.bytes,
        "seconds": seconds,
    }


def counts(what: str, known: Iterable[str], counted: Mapping[str, int]) -> dict[str, int]:
    """A count per name, 0 for known ones that did not occur, so that plots show good days too."""
    return {f"{what}_{name}": n for name, n in {**dict.fromkeys(known, 0), **counted}.items()}
