"""What is shown of any stage's day: plain values, which Dagster's pages plot and render.

Beside numbers and texts a value is :class:`~cdc_assets.cdc.markdown.Markdown`, a `datetime`, or
one of the types of this module. Names that begin with `dagster/` are known to Dagster.
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
    """Where a table's files are."""

    __slots__ = ()


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and those of them that are its key."""

    schema: StructType
    keys: Sequence[str] = ()


@dataclass(frozen=True)
class Lineage:
    """For each column of an asset the columns of its parent that it comes from."""

    parent: tuple[str, ...]  # the key of the asset
    columns: Mapping[str, Sequence[str]]


def column_lineage(
    schema: StructType,
    parent: tuple[str, ...],
    known: Sequence[str],
    origins: Mapping[str, Sequence[str]],
) -> Lineage:
    """Which columns of the parent each column comes from.

    Args:
        schema: the asset's columns.
        parent: the key of the asset that they come from.
        known: the parent's columns; a column comes from the one of its name.
        origins: the parent's columns by a column that has another name there; ``*`` for all others.
    """
    named = {name: [name] for name in known}
    found = {**named, **origins}
    return Lineage(parent, {name: found.get(name, origins["*"]) for name in schema.names})


_TIMES = ("source_ts_ms", "processed_ts_ms", "kafka_ts_ms")


def stage_lineage(source: str, table: str, schema: StructType) -> Lineage | None:
    """The lineage of a source's own table; None for the landing, which has no table before it."""
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
    """SQL for Spark that reads a day, ready to be copied."""
    clause = kind.sql_clause.format(day=day)
    return markdown.sql(f"SELECT *\nFROM {identifier}\n{clause}")


def stage_day(
    identifier: str, location: str, day: date, held: DayFiles, seconds: float
) -> dict[str, Any]:
    """What all stages show of a day: where it is, its size in the lake, how long it took."""
    return {
        "query": query(identifier, day, STAGE),
        "location": Location(location),
        "data_files": held.files,
        "bytes": held.bytes,
        "seconds": seconds,
    }


def counts(what: str, known: Iterable[str], counted: Mapping[str, int]) -> dict[str, int]:
    """A number each; what did not occur is 0, so that a plot over the days has its good days."""
    return {f"{what}_{name}": n for name, n in {**dict.fromkeys(known, 0), **counted}.items()}
