"""The figures of made days of changes, from their facts and metadata; no record is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pyspark.sql import Row

from cdc_assets.cdc.changes.classify import DESTINATIONS
from cdc_assets.cdc.changes.facts import ORDER, read_facts
from cdc_assets.cdc.changes.protected import PROTECTED, missing_columns
from cdc_assets.cdc.changes.stray_tables import changes_by_topic
from cdc_assets.cdc.lake.catalog import Lake

Counts = Mapping[str, int]


@dataclass(frozen=True)
class ChangesFigures:
    """The figures of a day.

    Attributes:
        landed: records that landed.
        changes: records by ``op:source_op``.
        control: records by op.
        quarantine: records by reason.
        written: what the files of each destination hold, by their own metadata.
        tables: changes by table.
        topics: changes by topic and table.
        further_rows: rows beyond the first of their record.
        scattered: tables that may have events of one key and of equal positions in several
            partitions.
        falls: events below an event at a lower offset of their partition: a redelivery, or a new
            server.
        streams: the streams of each table.
        placed: by table, the keys with ties and the snapshot reads that the place in files decided.
        unprotected: by table, the columns of `exclude` and `hash` that none of its rows has.
    """

    landed: int = 0
    changes: Counts = field(default_factory=dict)
    control: Counts = field(default_factory=dict)
    quarantine: Counts = field(default_factory=dict)
    written: Counts = field(default_factory=dict)
    tables: Mapping[str | None, int] = field(default_factory=dict)
    topics: Mapping[str, Counts] = field(default_factory=dict)
    further_rows: int = 0
    scattered: Sequence[str] = ()
    falls: int = 0
    streams: Mapping[str, frozenset[str]] = field(default_factory=dict)
    placed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unprotected: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def records(self, destination: str) -> int:
        """How many records went to a destination."""
        counts: dict[str, Counts] = {
            "changes": self.changes,
            "control": self.control,
            "quarantine": self.quarantine,
        }
        return sum(counts[destination].values())


def day_figures(lake: Lake, source: str, days: Sequence[date]) -> dict[date, ChangesFigures]:
    """The figures of made days of a source."""
    landed = _landed(lake, source, days)
    facts = read_facts(lake, source, days)
    written = {table: _written(lake, source, table, days) for table in DESTINATIONS}
    unprotected: dict[date, dict[str, list[str]]] = {day: {} for day in days}
    for (day, table), missing in missing_columns(facts, lake.config.source(source)).items():
        unprotected[day][table] = missing
    topics = changes_by_topic(facts)
    by_day: dict[date, list[Row]] = {day: [] for day in days}
    for fact in facts:
        by_day[fact.landing_date].append(fact)
    return {
        day: _figures(
            by_day[day],
            landed.get(day, 0),
            {table: records[day] for table, records in written.items() if day in records},
            topics.get(day, {}),
            unprotected[day],
        )
        for day in days
    }


def _figures(
    facts: Iterable[Row],
    landed: int,
    written: Counts,
    topics: Mapping[str, Counts],
    unprotected: Mapping[str, Sequence[str]],
) -> ChangesFigures:
    records: dict[str, Counter[str]] = {table: Counter() for table in DESTINATIONS}
    tables: Counter[str | None] = Counter()
    streams: dict[str, set[str]] = {}
    placed: dict[str, tuple[int, int]] = {}
    scattered, falls, further_rows = [], 0, 0
    for fact in facts:
        if fact.destination == ORDER:
            falls += fact.falls or 0
            if fact.stream is not None and fact.first_kafka_ms is not None:
                streams.setdefault(fact.table_name, set()).add(fact.stream)
            if fact.placed_ties is not None:
                placed[fact.table_name] = (fact.placed_ties, fact.placed_reads)
            if fact.scattered:
                scattered.append(fact.table_name)
        elif fact.destination != PROTECTED:
            further_rows += fact.further_rows or 0
            records[fact.destination][_label(fact)] += fact.records
            if fact.destination == "changes":
                tables[fact.table_name] += fact.records
    return ChangesFigures(
        landed=landed,
        **{table: dict(counts) for table, counts in records.items()},
        written=written,
        tables=dict(tables),
        topics=topics,
        further_rows=further_rows,
        scattered=scattered,
        falls=falls,
        streams={table: frozenset(found) for table, found in streams.items()},
        placed=placed,
        unprotected=unprotected,
    )


def _label(fact: Row) -> Any:
    """The label by which a destination counts the records of a fact."""
    if fact.destination == "changes":
        return f"{fact.op}:{fact.source_op}"
    return fact.op if fact.destination == "control" else fact.reason


def _written(lake: Lake, source: str, table: str, days: Sequence[date]) -> dict[date, int]:
    """The records in the files of a table on some days; a day without a file is left out."""
    files = lake.day_files(lake.stage(source, table), days)
    return {day: found.records for day, found in files.items()}


def _landed(lake: Lake, source: str, days: Sequence[date]) -> dict[date, int]:
    """Records that landed on some days, also those removed since; a day without any is left out."""
    commits = lake.day_commits(source, "landing")
    removed = {day: commits[day].removed for day in days if day in commits}
    counts = _written(lake, source, "landing", days)
    return {**counts, **{day: count for day, count in removed.items() if count is not None}}
