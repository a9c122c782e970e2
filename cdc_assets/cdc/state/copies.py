"""Redelivered changes: a copy takes the place of its first delivery (FORMATS O15)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.changes import order_facts
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.positions import elements_in, is_kafka_placed, real_part
from cdc_assets.cdc.spark import is_small
from cdc_assets.cdc.sqltext import Query, literal
from cdc_assets.cdc.state.keyed_day import KeyedDay
from cdc_assets.cdc.state.placement import highest_positions, removed_on
from cdc_assets.cdc.state.table_events import IS_ROW_CHANGE, events_on

# What tells a copy from another change, beside its place.
TOLD_BY = {
    "compared": order_facts.compared_elements(),
    "can_copy": f"coalesce(position IS NOT NULL AND {order_facts.may_be_copied()}, false)",
    "content": order_facts.CONTENT,
}
_ENTRY = (
    "k", "landing_date", "topic", "partition", "offset", "position", "identity", "position_basis",
    "source_ts_ms", *TOLD_BY,
)  # fmt: skip


def judged(entries: Query) -> Query:
    """Add `is_copy`: the entry repeats an earlier one of its key.

    Args:
        entries: `k`, `topic`, `landing_date`, `partition`, `offset`, `position`, `identity` and the
            columns of `TOLD_BY`; distributed by `k`.
    """
    # Elements that two different changes of the key share tell no copy.
    group = "PARTITION BY k, topic, compared, can_copy"
    named = "coalesce(identity, '')"
    place = "landing_date, topic, partition, offset, position"
    counted = entries.extend(
        {
            "identities": f"size(collect_set({named}) OVER ({group}))",
            "changes": f"size(collect_set(struct({named}, content)) OVER ({group}))",
            # A record that landed twice on a day has one place.
            "nth": f"dense_rank() OVER ({group}, {named}, content ORDER BY {place})",
        }
    )
    is_copy = "can_copy AND identities = changes AND nth > 1"
    return counted.extend({"is_copy": is_copy}).drop("identities", "changes", "nth")


def find_copies(keyed: KeyedDay, checkpoints: Checkpoints) -> DataFrame | None:
    """The copies among what a day's events do to keys, and those of the days looked back on.

    Earlier days are read only of keys with an event that ties with what landed there.

    Returns:
        `k`, `topic`, `landing_date`, `position` of each; None where there are none.
    """
    day = keyed.day
    past = day.window_since_start(day.day) if day.may_repeat_earlier else []
    own = _entries(keyed, [day.day])
    found = own
    if past:
        found = own.unionByName(_entries(keyed, past))
    if not is_small(sum(day.facts_on(d).events for d in [*past, day.day])):
        found = found.join(_suspects(keyed, own), "k", "left_semi")
    copies = judged(Query(found.repartition("k"))).where("is_copy")
    kept = checkpoints.add(copies.select("k", "topic", "landing_date", "position").plan())
    return None if kept.isEmpty() else kept


def _entries(keyed: KeyedDay, days: Sequence[date]) -> DataFrame:
    """What the events of some days do to keys: the columns that tell copies apart."""
    events = Query(keyed.events(days)).extend(TOLD_BY).plan()
    own = events.where(IS_ROW_CHANGE)
    entries = own.select(*_ENTRY)
    if any(facts.key_changes for facts in keyed.day.facts_on_days(days)):
        entries = entries.unionByName(keyed.old_key_removals(events, days).select(*_ENTRY))
    return entries.where("k IS NOT NULL AND position IS NOT NULL")


def _suspects(keyed: KeyedDay, own: DataFrame) -> DataFrame:
    """`k`: keys with an event of the day that equals another, or ties with what landed earlier."""
    day = keyed.day
    same = ("k", "topic", "compared", "identity", "content")
    repeated = Query(own).where("can_copy").aggregate(same, {"n": "count(*)"})
    parts = [repeated.where("n > 1").select("k").plan()]
    if day.may_repeat_earlier:
        by_kafka = is_kafka_placed("position_basis")
        last = literal(day.last_source_time)
        early = f"can_copy AND {by_kafka} AND coalesce(source_ts_ms <= {last}, true)"
        parts.append(own.where(early).select("k"))
        placed_by_source = own.where(f"can_copy AND NOT {by_kafka}")
        stood = highest_positions(removed_on(keyed, day.window), keyed.rows_before(day.day))
        if stood is not None:
            met = stood.selectExpr("k AS met_k", f"{elements_in(real_part('pos'))} AS met")
            ties = F.expr("k = met_k AND compared = met")
            parts.append(placed_by_source.join(met, ties, "left_semi").select("k"))
        if any(facts.truncates for facts in day.past):
            cuts = events_on(day, day.window).where("op = 't' AND position IS NOT NULL")
            met = F.broadcast(cuts.selectExpr(f"{elements_in('position')} AS met").distinct())
            parts.append(
                placed_by_source.join(met, F.expr("compared = met"), "left_semi").select("k")
            )
    return reduce(DataFrame.unionAll, parts).distinct()
