"""What events do to keys that two rows may hold for a moment (O16): frames, no Spark job."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.changes import order_facts
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.positions import has_whole_rows, is_late_checked
from cdc_assets.cdc.sqltext import Query, Sql, case, literal, literals
from cdc_assets.cdc.state.copies import TOLD_BY, judged
from cdc_assets.cdc.state.day_types import OwnColumn, TableColumns
from cdc_assets.cdc.state.entry_queue import (
    ARRIVES,
    DELETED,
    LEAVES,
    READ,
    REMOVING,
    TRUNCATED,
    UPDATES,
)
from cdc_assets.cdc.state.implied_removals import BY_TRUNCATE
from cdc_assets.cdc.state.keyed_day import CHANGES_KEY, IS_LINK, PLACE, KeyedDay
from cdc_assets.cdc.state.row_sql import with_typed_columns
from cdc_assets.cdc.state.table_events import IS_ROW_CHANGE, IS_UPSERT
from cdc_assets.cdc.state.unsent_values import UnsentColumns, stood_value

# What tells copies and transactions apart, beside images and times.
_TOLD_BY = (
    "position_basis", "identity", "tx", "is_late_checked", "has_whole_rows", "nulls_say_nothing",
    *TOLD_BY,
)  # fmt: skip
_BY_TRUNCATE = f"snapshot <=> {literal(BY_TRUNCATE)}"
_KEY_TO_FOLD = {"start": "min(start)", "is_needed": "max(is_needed)"}
_NO_VALUES = "CAST(array() AS array<struct<column: int, value: string>>)"


def keys_to_fold(keyed: KeyedDay, unsent: UnsentColumns, checkpoints: Checkpoints) -> DataFrame:
    """The keys of the day that are folded, a local checkpoint.

    Args:
        checkpoints: keeps each step: a job each.

    Returns:
        `k`; `start`, the day from whose beginning it is folded; `is_needed`, false where it is
        only for the values of rows that come from it or go there.
    """
    day = keyed.day
    events, today = keyed.events([day.day]), literal(day.day)
    parts = []

    def add(chosen: DataFrame, start: Sql, is_needed: bool = True) -> None:
        both = "inline(array(named_struct('k', k), named_struct('k', ok)))"
        needed = f"{literal(is_needed)} AS is_needed"
        parts.append(chosen.selectExpr(f"{start} AS start", needed, both))

    if day.day_facts.crossed or not day.day_facts.is_order_known:
        hashed = order_facts.entries(Query(events), (), "k", "ok")
        hashes = F.broadcast(order_facts.crossed_keys(hashed).distinct())
        at_it = F.expr("key_hash IN (xxhash64(k), xxhash64(ok))")
        add(events.join(hashes, at_it, "left_semi"), today)
    transactions = day.open_transactions
    if transactions:
        tx = f"xxhash64({order_facts.transaction()})"
        starts = ((f"{tx} = {literal(t)}", literal(first)) for t, first in transactions.items())
        opened = Query(events).extend({"start": case(*starts)}).where("start IS NOT NULL")
        add(opened.plan(), "start")
    if unsent.has_links:
        # The value of a row that left another key may be that of one that was folded.
        add(events.where(IS_LINK), today, is_needed=False)
    both = Query(reduce(DataFrame.unionByName, parts)).where("k IS NOT NULL")
    found = checkpoints.add(both.aggregate(("k",), _KEY_TO_FOLD).plan())
    is_followed = unsent.has_links and transactions
    return _with_old_keys(keyed, found, checkpoints) if is_followed else found


def _with_old_keys(keyed: KeyedDay, found: DataFrame, checkpoints: Checkpoints) -> DataFrame:
    """Add the keys from which rows came to a key on the earlier days that it is folded from."""
    day = keyed.day
    links = keyed.events(day.days_from(min(day.open_transactions.values()))).where(IS_LINK)
    moves = checkpoints.add(links.selectExpr("k AS to_k", "ok", "landing_date AS moved_on"))
    reached = found.where(F.col("start") < F.lit(day.day))
    while not reached.isEmpty():
        came = reached.join(moves, F.expr("k = to_k AND moved_on >= start"))
        both = found.unionByName(came.selectExpr("ok AS k", "start", "false AS is_needed"))
        known = found.selectExpr("k", "start AS known_start")
        found = checkpoints.add(Query(both).aggregate(("k",), _KEY_TO_FOLD).plan())
        earlier = F.expr("known_start IS NULL OR start < known_start")
        reached = found.join(known, "k", "left").where(earlier).drop("known_start")
    return found


def for_keys(frame: DataFrame, keys: DataFrame, are_few: bool) -> DataFrame:
    """The rows of a frame that have one of some keys."""
    # A transaction may have reached more keys than fit into the memory of each worker.
    return frame.join(F.broadcast(keys) if are_few else keys, "k", "left_semi")


def entries_since(
    keyed: KeyedDay, start: date, keys: DataFrame | None = None, are_few: bool = True
) -> DataFrame:
    """The entries of some keys from a day on, and of the days that it looks back on.

    Args:
        start: the day.
        keys: `k`; None: of all keys.
        are_few: the keys fit into the memory of each worker.

    Returns:
        The entries, and `is_copy`: a redelivered change, or a record that landed before.
    """
    day = keyed.day
    days = day.days_from(start)
    if start < day.day or day.may_repeat_earlier:
        days = [*day.window_since_start(start), *days]
    days = [d for d in days if day.facts_on(d).events]
    events = keyed.events(days, with_new_key=True)
    entries = entries_of(keyed, events, days)
    if keys is not None:
        entries = for_keys(entries, keys, are_few)
    again = (
        "row_number() OVER (PARTITION BY k, kind, topic, partition, offset, "
        "try_element_at(position, -1) ORDER BY landing_date) > 1"
    )
    known = judged(Query(entries.repartition("k"))).extend({"has_landed": again})
    return known.replace({"is_copy": "is_copy OR has_landed"}).drop("has_landed").plan()


def entries_of(keyed: KeyedDay, events: DataFrame, days: Sequence[date]) -> DataFrame:
    """What the events of some days do to keys, one row a key and event.

    Returns:
        `k`, `kind`, `op`, `link` (the key that an arriving row had before), `to_k` (the key that a
        leaving row takes), `position`, `before`, `after`, `schema_id`, `source_ts_ms`,
        `content` (a hash), `tx`, `is_late_checked`, and what tells copies apart.
    """
    is_full = keyed.day.config.replica_identity == "full"
    # Those of tables that go into this one stand at the keys of their rows (R8).
    has_truncates = any(f.leaf_truncate_ranges for f in keyed.day.facts_on_days(days))
    at_key = case(
        (f"{IS_UPSERT} AND (op = 'r' OR is_snapshot)", f"'{READ}'"),
        *([(_BY_TRUNCATE, f"'{TRUNCATED}'")] if has_truncates else []),
        (f"op = 'c' OR (op = 'u' AND {CHANGES_KEY})", f"'{ARRIVES}'"),
        ("op = 'u'", f"'{UPDATES}'"),
        (order_facts.SAYS_NEW_KEY, f"'{LEAVES}'"),
        otherwise=f"'{DELETED}'",
    )
    known = {
        "kind": at_key,
        "tx": order_facts.transaction(),
        "is_late_checked": is_late_checked("position_basis", "connector"),
        "has_whole_rows": has_whole_rows("position_basis", "connector", is_full),
        # SQL Server sends no old value of a large column.
        "nulls_say_nothing": "coalesce(lower(connector) = 'sqlserver', false)",
        **TOLD_BY,
    }
    changes = Query(events).where(IS_ROW_CHANGE).extend(known)
    if has_truncates:
        changes = changes.replace({"op": case((_BY_TRUNCATE, "'t'"), otherwise="op")})
    same = ("op", "schema_id", "source_ts_ms", *_TOLD_BY, *PLACE)
    link = case((f"kind = '{ARRIVES}'", "ok"))
    if "link" in events.columns:  # a split update's first half says it, too (W3)
        link = case((f"kind NOT IN ({literals(REMOVING)})", "link"))
    own = changes.select(
        "k", "kind", f"{link} AS link", "nk AS to_k", "position", "before", "after", *same
    )
    if not any(facts.key_changes for facts in keyed.day.facts_on_days(days)):
        return own.plan()
    no_key = f"CAST(NULL AS {events.schema['k'].dataType.simpleString()})"
    # What is left was whole before an update; a create says nothing of it.
    before = f"{case((order_facts.LEAVES_KEY, 'before'))} AS before"
    left = keyed.old_key_removals(changes.plan(), days).selectExpr(
        "k", f"'{LEAVES}' AS kind", f"{no_key} AS link", "left_for AS to_k", "position",
        before, "CAST(NULL AS string) AS after", *same,
    )  # fmt: skip
    return own.plan().unionByName(left)


# --- values


def with_image_values(
    entries: DataFrame, columns: TableColumns, unsent: UnsentColumns
) -> DataFrame:
    """Add `now` and `was`: the values of both images, as the table's columns hold them.

    Each is an array of STRUCT<column, value> of the columns that were sent; `names` and
    `was_names` are all that the images have. `is_whole` is true where `before` may be taken for
    the whole old row. Of unsent columns `OwnColumn.old` is added.
    """
    frame = unsent.add_to(_with_names(entries, columns).plan())
    if unsent.columns:
        held = {c.old: unsent.value_in("before", c, "is_whole") for c in unsent.columns}
        frame = Query(frame).extend(held).plan()
    for name, image, names in (("now", "after", "names"), ("was", "before", "was_names")):
        values = ", ".join(_value(c, unsent, names, image) for c in columns.values)
        sent = f"filter(array({values}), v -> v.is_sent)" if values else _NO_VALUES
        plain = f"transform({sent}, v -> named_struct('column', v.column, 'value', v.value))"
        work = [w for c in columns.own for w in (c.work, c.unfit)]
        work += [c.contradicted for c in columns.keys]
        kept = Query(frame).extend({"sent_after": "after"}).replace({"after": image})
        typed = Query(with_typed_columns(kept.plan(), columns)).extend(
            {name: case((f"{names} IS NOT NULL", plain), otherwise=_NO_VALUES)}
        )
        frame = typed.extend({"after": "sent_after"}).drop("sent_after", *work).plan()
    return frame


def _with_names(entries: DataFrame, columns: TableColumns) -> Query:
    key_names = literals(columns.key_names)
    names = {
        name: f"array_except(json_object_keys({image}), array({key_names}))"
        for name, image in (("names", "after"), ("was_names", "before"))
    }
    is_whole = "has_whole_rows AND before IS NOT NULL"
    opened = Query(entries).extend(names)
    return opened.extend({"is_whole": is_whole, "is_removal": "after IS NULL"})


def _value(c: OwnColumn, unsent: UnsentColumns, names: Sql, image: str) -> Sql:
    """A column's value in an image, as text; `is_sent` is false where it equals any other."""
    sent = f"array_contains({names}, {literal(c.name)})"
    if c in unsent.columns:
        sent_image = "sent_after" if image == "after" else image
        sent += f" AND NOT {unsent.is_unsent(sent_image, c.name)}"
    if image == "before":
        sent += f" AND NOT (nulls_say_nothing AND {c.work} IS NULL)"
    return (
        f"named_struct('column', {c.index}, 'value', {_text(c)}, "
        f"'is_sent', coalesce({sent}, false))"
    )


def standing_entries(
    base: DataFrame, present: Collection[str], columns: TableColumns, unsent: UnsentColumns
) -> DataFrame:
    """The rows that stood in the table, as entries; `present` are the columns that they had."""
    values = ", ".join(
        f"named_struct('column', {c.index}, 'value', {_text(c)})"
        for c in columns.values
        if c.name in present
    )
    lasts = {c.last: stood_value(c) for c in unsent.columns}
    now = f"array({values})" if values else _NO_VALUES
    return Query(base).extend({"now": now, **lasts}).plan()


def _text(c: OwnColumn) -> Sql:
    """A column's value as a text that is the same for equal values."""
    if "<" in c.spark:
        return f"to_json(struct({c.work}))"
    return f"hex({c.work})" if c.spark == "binary" else f"CAST({c.work} AS string)"
