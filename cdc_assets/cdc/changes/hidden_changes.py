"""Statements that changed rows without an event for each (FORMATS D21, W2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import Row, Window
from pyspark.sql import functions as F

from cdc_assets.cdc.envelopes.statements import (
    DROP,
    DROP_DATABASE,
    EMPTYING,
    TRUNCATE,
    hit_of,
    kind_of,
    namespaces_of,
    tables_of,
)
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.sqltext import Query, Sql, case, is_one_of

# The names that sources give to statements that may have changed rows of any table (W2).
_VAGUE = ("QUERY", "ERASE", "RENAME", "ALTER")
_READ, _SHOWN = 200, 20  # statements a day
# The last elements of a position come from Kafka: partition, offset and place.
_KAFKA_ELEMENTS = 3


@dataclass(frozen=True)
class Statement:
    """A statement that may have changed rows without change events.

    `tables` are the configured tables that it is about, or the table that its event names where
    it may have changed rows of any table. `kind` is what it does, or what the source calls it.
    `text` is None where the event has no text, or the source shows no values.
    """

    day: date
    tables: tuple[str, ...]
    kind: str
    text: str | None

    @property
    def leaves_rows(self) -> bool:
        """True where a table is gone and its rows stay."""
        return self.kind in (DROP, DROP_DATABASE)

    def __str__(self) -> str:
        said = f"{', '.join(self.tables)} {self.kind}" + (f": {self.text}" if self.text else "")
        cure = "its rows stay; on_drop: empty has them removed"
        return f"{said} ({cure})" if self.leaves_rows else said


def hidden_statements(lake: Lake, source: str, days: Sequence[date]) -> dict[date, list[Statement]]:
    """The statements of some days after which rows may differ from the events; a job or two.

    A truncate whose event landed too, and a snapshot's first statements (D14), do not count.

    Returns:
        At most 20 a day, in the order of their records.
    """
    if not days:
        return {}
    settings = lake.config.source(source)
    emptied = settings.emptied_by_statements
    found = _read_statements(lake, source, days)
    sent = _truncates(lake, source, [row for row in found if row.kind == TRUNCATE])
    statements: dict[date, list[Statement]] = {}
    for row in found:
        applied = emptied if row.kind in EMPTYING else ()
        hit = tuple(
            table
            for table in row.hit or ()
            if table not in applied and (table, _elements(row.position)) not in sent
        )
        if row.hit and not hit:
            continue
        listed = statements.setdefault(row.landing_date, [])
        if len(listed) < _SHOWN:
            tables = hit or (str(row.table_name),)
            text = row.payload if settings.shows_values else None
            listed.append(Statement(row.landing_date, tables, row.kind, text))
    return statements


_NONE: Sql = "CAST(array() AS array<string>)"


def _read_statements(lake: Lake, source: str, days: Sequence[date]) -> list[Row]:
    """Statements about configured tables, or perhaps about any table, by day and in order."""
    tables = namespaces_of(lake.config.source(source).tables)
    rows = lake.stage_days(source, "control", days).where("op = 'ddl' AND NOT is_snapshot <=> true")
    hit = case(("kind IS NOT NULL", hit_of(tables, "kind", "named"))) if tables else _NONE
    statements = (
        Query(rows)
        .extend({"kind": kind_of("payload", "source_op")})
        .extend({"named": tables_of("payload", "kind", "table_name", "db")})
        .extend({"hit": hit})
    )
    is_vague = is_one_of("source_op", _VAGUE)
    chosen = statements.where(f"size(hit) > 0 OR {is_vague}").select(
        *("landing_date", "topic", "partition", "offset", "hit", "position"),
        *("coalesce(kind, source_op) AS kind", "payload", "table_name"),
    )
    order = Window.partitionBy("landing_date").orderBy("topic", "partition", "offset")
    placed = chosen.plan().withColumn("n", F.row_number().over(order))
    return placed.where(F.col("n") <= _READ).orderBy("landing_date", "n").collect()


def _elements(position: Sequence[int] | None) -> tuple[int, ...]:
    return tuple(position or ())[:-_KAFKA_ELEMENTS]


def _truncates(
    lake: Lake, source: str, statements: Sequence[Row]
) -> set[tuple[str, tuple[int, ...]]]:
    """The truncates that landed around some statements, as tables and the source's elements."""
    tables = sorted({table for row in statements for table in row.hit})
    if not tables:
        return set()
    days = {row.landing_date + timedelta(days=n) for row in statements for n in (-1, 0, 1)}
    rows = lake.stage_days(source, "changes", sorted(days)).where("op = 't'")
    found = rows.where(F.col("table_name").isin(tables)).select("table_name", "position").collect()
    return {(row.table_name, _elements(row.position)) for row in found}
