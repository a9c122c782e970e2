"""Records that name another table than all others of their topic.

Any topic can write any table: the record says which. A record of another table on the topic of one
table is a mistake, or comes from somebody who may write only to that topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import Row
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.facts import ORDER
from cdc_assets.cdc.changes.inputs import FACTS
from cdc_assets.cdc.lake.catalog import Lake

# The earlier days on which a topic's tables are looked up.
_DAYS = 30

Counts = Mapping[str, Mapping[str, int]]  # topic → table → changes


@dataclass(frozen=True)
class Stray:
    """The changes of a table on the topic of another one."""

    topic: str
    table: str
    changes: int
    owner: str  # the table of all other changes there

    def __str__(self) -> str:
        return (
            f"{self.topic}: {self.changes} changes of {self.table}, all others there are of "
            f"{self.owner}"
        )


def changes_by_topic(facts: Iterable[Row]) -> dict[date, dict[str, dict[str, int]]]:
    """The changes of each day, by topic and table."""
    found: dict[date, dict[str, dict[str, int]]] = {}
    for fact in facts:
        if fact.destination == ORDER and fact.topic is not None and fact.table_name is not None:
            tables = found.setdefault(fact.landing_date, {}).setdefault(fact.topic, {})
            # Facts do not count records without a position; they only say that there are some.
            changes = max(1, fact.records or 0)
            tables[fact.table_name] = tables.get(fact.table_name, 0) + changes
    return found


def tables_before(
    lake: Lake, source: str, days: Mapping[date, Counts]
) -> dict[date, dict[str, set[str]]]:
    """The tables that the shared topics of some days had on the 30 days before.

    One job, or none where no topic is shared.
    """
    shared = {day: topics for day, counts in days.items() if (topics := shared_topics(counts))}
    if not shared:
        return {}
    window = timedelta(days=_DAYS)
    topics = sorted({topic for names in shared.values() for topic in names})
    rows = (
        lake.spark.table(lake.stage(source, FACTS))
        .where(F.col("landing_date").between(min(shared) - window, max(shared)))
        .where(F.col("topic").isin(topics))
        .select("landing_date", "topic", "table_name")
        .distinct()
        .collect()
    )
    found: dict[date, dict[str, set[str]]] = {}
    for day, names in shared.items():
        known: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            if row.topic in names and day - window <= row.landing_date < day:
                known[row.topic].add(row.table_name)
        found[day] = dict(known)
    return found


def shared_topics(counts: Counts) -> list[str]:
    """The topics with changes of several tables."""
    return sorted(topic for topic, tables in counts.items() if len(tables) > 1)


def stray_tables(counts: Counts, before: Mapping[str, Iterable[str]]) -> list[Stray]:
    """The tables that are on a topic of another one.

    A topic belongs to the only table that it had on the days before; a new topic to the only table
    on it that has no more changes on another topic. A topic of several tables has no owner.

    Args:
        counts: the changes of a day.
        before: the tables that topics had on the days before.
    """
    found = []
    for topic in shared_topics(counts):
        tables = counts[topic]
        earlier = set(before.get(topic, ()))
        if earlier:
            owner = next(iter(earlier)) if len(earlier) == 1 else None
        else:
            at_home = [t for t, n in tables.items() if n >= _most_elsewhere(counts, topic, t)]
            owner = at_home[0] if len(at_home) == 1 else None
        if owner is not None:
            found += [Stray(topic, t, n, owner) for t, n in sorted(tables.items()) if t != owner]
    return found


def _most_elsewhere(counts: Counts, topic: str, table: str) -> int:
    return max((tables.get(table, 0) for t, tables in counts.items() if t != topic), default=0)
