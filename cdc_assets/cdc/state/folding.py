"""Keys that two rows may hold for a moment: their events are folded one by one (O16).

Within a transaction of a database that checks keys at its end a key holds a queue: the row that
stood there, then each row that arrives; an update or delete takes the row of it that its `before`
names. Most days have no such key (see :mod:`cdc_assets.cdc.changes.order_facts`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.changes import order_facts
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.positions import has_whole_rows, is_late_checked, literal_position
from cdc_assets.cdc.spark import is_small
from cdc_assets.cdc.sqltext import Query, Sql, case, literal, literals
from cdc_assets.cdc.state.columns import OwnColumn, TableColumns
from cdc_assets.cdc.state.copies import TOLD_BY, judged
from cdc_assets.cdc.state.entry_queue import (
    ARRIVES,
    DELETED,
    LEAVES,
    READ,
    STOOD,
    UPDATES,
    fold_entries,
)
from cdc_assets.cdc.state.keyed import IS_MOVE, Keyed
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.unsent_values import NONE_UNSENT, Unchanged

_PLACE = ("landing_date", "topic", "partition", "offset", "kafka_time")
# What copies and transactions are told by, beside images and times.
_TOLD_BY = (
    "position_basis", "identity", "tx", "is_late_checked", "has_whole_rows", "nulls_say_nothing",
    *TOLD_BY,
)  # fmt: skip
_NO_VALUES = "CAST(array() AS array<struct<column: int, value: string>>)"
_ROUNDS = 32  # each looks twice as far back as the one before


@dataclass(frozen=True)
class Folded:
    """What folding came to.

    `keys` are the keys that were folded (`k`). `rows` has one row of each that events of the day
    reach: as `TableColumns.typed` gives them, and `is_folded`. `unresolved` of them lack a value
    that was not sent.
    """

    keys: DataFrame
    rows: DataFrame
    unresolved: int


class Folding:
    """The fold of some keys of a day."""

    def __init__(
        self, keyed: Keyed, columns: TableColumns, unchanged: Unchanged, checkpoints: Checkpoints
    ) -> None:
        self.keyed, self.columns, self.unchanged = keyed, columns, unchanged
        self.day: TableDay = keyed.day
        self.checkpoints = checkpoints
        self.has_few_keys = True

    def fold(self) -> Folded | None:
        """Fold the keys of the day that need it; None where none does."""
        found = self.checkpoints.add(self._keys())
        counts = ("count(*) AS n", "count_if(is_needed) AS needed", "collect_set(start) AS starts")
        known = found.selectExpr(*counts).first()
        assert known is not None
        if not known.needed:
            return None
        self.has_few_keys = is_small(known.n)
        ends = [
            self._ends(start, found.where(F.col("start") == F.lit(start)).select("k"))
            for start in sorted(known.starts)
        ]
        rows, unresolved = self._rows(reduce(DataFrame.unionByName, ends))
        return Folded(found.select("k"), rows, unresolved)

    # --- which keys

    def _keys(self) -> DataFrame:
        """`k`; `start`, the day from whose beginning it is folded; `is_needed`, false where it is
        only for the values of rows that come from it or go there."""
        day = self.day
        events = self.keyed.events([day.day])
        parts = []

        def add(chosen: DataFrame, start: Sql, is_needed: bool = True) -> None:
            both = "inline(array(named_struct('k', k), named_struct('k', ok)))"
            needed = f"{literal(is_needed)} AS is_needed"
            parts.append(chosen.selectExpr(f"{start} AS start", needed, both))

        if day.day_facts.crossed or not day.day_facts.is_order_known:
            hashed = order_facts.entries(Query(events), (), "k", "ok")
            hashes = F.broadcast(order_facts.crossed_keys(hashed).distinct())
            at_it = F.expr("key_hash IN (xxhash64(k), xxhash64(ok))")
            add(events.join(hashes, at_it, "left_semi"), literal(day.day))
        if day.open_transactions:
            tx = f"xxhash64({order_facts.transaction()})"
            start = case(
                *(
                    (f"{tx} = {literal(known)}", literal(of_tx))
                    for known, of_tx in day.open_transactions.items()
                )
            )
            opened = Query(events).extend({"start": start}).where("start IS NOT NULL")
            add(opened.plan(), "start")
        if self.unchanged.columns and self.unchanged.has_links:
            # The value of a row that left another key may be that of one that was folded.
            links = "op IN ('c', 'u') AND ok IS NOT NULL AND NOT (ok <=> k)"
            add(events.where(links), literal(day.day), is_needed=False)
            if day.open_transactions:
                first = min(day.open_transactions.values())
                days = day.days_from(first)[:-1]
                before = Query(self.keyed.events(days)).where(links).extend({"start": start})
                add(before.where("start IS NOT NULL").plan(), "start", is_needed=False)
        both = Query(reduce(DataFrame.unionByName, parts)).where("k IS NOT NULL")
        known = {"start": "min(start)", "is_needed": "max(is_needed)"}
        return both.aggregate(("k",), known).plan()

    def _of_keys(self, frame: DataFrame, keys: DataFrame) -> DataFrame:
        """Those rows that are of some keys."""
        # A transaction may have reached more keys than fit into the memory of each worker.
        return frame.join(F.broadcast(keys) if self.has_few_keys else keys, "k", "left_semi")

    # --- their events

    def _entries(self, events: DataFrame, days: Sequence[date]) -> DataFrame:
        """What the events of some days do to keys, one row a key and event.

        Returns:
            `k`, `kind`, `link` (the key that an arriving row had before), `to_k` (the key that a
            leaving row takes), `position`, `before`, `after`, `schema_id`, `source_ts_ms`,
            `content` (a hash), `tx`, `is_late_checked`, and what copies are told by.
        """
        is_full = self.day.config.replica_identity == "full"
        changes_key = "op = 'u' AND ok IS NOT NULL AND NOT (ok <=> k)"
        at_key = case(
            ("op = 'r'", f"'{READ}'"),
            (f"op = 'c' OR ({changes_key})", f"'{ARRIVES}'"),
            ("op = 'u'", f"'{UPDATES}'"),
            ("op = 'd' AND new_key IS NOT NULL", f"'{LEAVES}'"),
            otherwise=f"'{DELETED}'",
        )
        opened = Query(events).where(IS_MOVE)
        told = opened.extend(
            {
                "kind": at_key,
                "tx": order_facts.transaction(),
                "is_late_checked": is_late_checked("position_basis", "connector"),
                "has_whole_rows": has_whole_rows("position_basis", "connector", is_full),
                # SQL Server sends no old value of a large column.
                "nulls_say_nothing": "coalesce(lower(connector) = 'sqlserver', false)",
                **TOLD_BY,
            }
        )
        same = ("schema_id", "source_ts_ms", *_TOLD_BY, *_PLACE)
        link = case((f"kind = '{ARRIVES}'", "ok"))
        own = told.select(
            "k", "kind", f"{link} AS link", "nk AS to_k", "position", "before", "after", *same
        )
        no_key = f"CAST(NULL AS {events.schema['k'].dataType.simpleString()})"
        # What is left was whole before an update; a create says nothing of it.
        before = f"{case((order_facts.LEAVES_KEY, 'before'))} AS before"
        left = self.keyed.left_keys(told.plan(), days).selectExpr(
            "k", f"'{LEAVES}' AS kind", f"{no_key} AS link", "left_for AS to_k", "position",
            before, "CAST(NULL AS string) AS after", *same,
        )  # fmt: skip
        return own.plan().unionByName(left)

    def _history(self, start: date, keys: DataFrame) -> DataFrame:
        """The entries of some keys from a day on, and of the days that it looks back on.

        Returns:
            The entries, and `is_copy`: a redelivered change, or a record that landed before.
        """
        day = self.day
        days = day.days_from(start)
        if start < day.day or day.may_repeat_earlier:
            days = [*day.window_since_start(start), *days]
        days = [d for d in days if day.facts_on(d).events]
        events = self.keyed.events(days, with_new_key=True)
        entries = self._of_keys(self._entries(events, days), keys)
        again = (
            "row_number() OVER (PARTITION BY k, kind, topic, partition, offset, "
            "try_element_at(position, -1) ORDER BY landing_date) > 1"
        )
        known = judged(Query(entries.repartition("k"))).extend({"has_landed": again})
        return known.replace({"is_copy": "is_copy OR has_landed"}).drop("has_landed").plan()

    # --- the fold

    def _ends(self, start: date, keys: DataFrame) -> DataFrame:
        """Keys with their entries and what the fold leaves.

        What is older than the row that stood there, or than what was removed before, is left out.

        Args:
            start: the day from whose beginning they are folded.
            keys: `k`.

        Returns:
            `k`; `es`, the entries in their order, the row that stood there first; `took`, of each
            the number of the entry whose row it takes (-1: none); `top`, that of the row that is
            left (-1: none); `last`, the highest position; `is_reached`, by an event of the day.
        """
        day, keyed = self.day, self.keyed
        days = day.days_from(start)
        past = day.window_before(start)
        # Plans are made anew by each step: what is behind a checkpoint is not.
        history = self.checkpoints.add(self._history(start, keys))
        entries = Query(history).where(f"NOT is_copy AND landing_date >= {literal(start)}")
        placed = entries.drop("is_copy").extend({"pos": "position"}).plan()
        base = keyed.rows_before(start)
        if base is not None:
            base = self.checkpoints.add(self._of_keys(base, keys))
        removed = self._removed(start, keys, history)
        past_cut = None if start == day.day and day.is_all_after else day.truncated(past)
        cut = day.truncated(days)
        if any(day.facts_on(d).without_position for d in days):
            events = keyed.events(days)
            positions = keyed.base_positions(removed, base)
            placed = keyed.placed(placed, events, days, positions, past_cut)
        floor = max([p for p in (cut, past_cut) if p is not None], default=None)
        if floor is not None:
            placed = placed.where(F.col("pos") > literal_position(floor))
        if removed is not None:
            placed = keyed.guarded(placed, removed)
        if base is not None:
            if cut is not None:
                base = base.where(F.col("pos") >= literal_position(cut))
            stands = base.selectExpr("k AS base_k", "pos AS base_pos")
            placed = placed.join(stands, F.expr("k = base_k AND pos <= base_pos"), "left_anti")
        values = self._with_values(self.checkpoints.add(placed))
        if base is None:
            nothing = {c.work: f"CAST(NULL AS {c.spark})" for c in self.columns.own}
            nothing["stood_source_ts_ms"] = "CAST(NULL AS bigint)"
            of_all = Query(values).extend(nothing).plan()
        else:
            stood = self._stood(base, keyed.columns_before(start))
            of_all = values.unionByName(stood, allowMissingColumns=True)
        numbered = Query(of_all).extend(
            {
                "n": f"CAST(row_number() OVER (PARTITION BY k ORDER BY kind <> '{STOOD}', pos) - 1 "
                "AS int)"
            }
        )
        others = [quote(name) for name in sorted(of_all.columns) if name not in ("k", "n")]
        entries_of = f"collect_list(struct(n, {', '.join(others)}))"
        of_key = {"es": f"array_sort({entries_of}, (l, r) -> l.n - r.n)", "last": "max(pos)"}
        done = fold_entries("es", is_key_alone=not self._values)
        folded = numbered.aggregate(("k",), of_key).extend({"done": done})
        top = "coalesce(try_element_at(done.q, -1), -1) AS top"
        is_reached = f"exists(es, e -> e.landing_date = {literal(day.day)}) AS is_reached"
        return folded.select("k", "last", "es", "done.taken AS took", top, is_reached).plan()

    def _removed(self, start: date, keys: DataFrame, history: DataFrame) -> DataFrame | None:
        """`k`, `pos` of what was removed in the days looked back on, without copies."""
        day, keyed = self.day, self.keyed
        is_today = start == day.day
        removed = keyed.removed if is_today else keyed.removed_on(day.window_before(start))
        if removed is None:
            return None
        again = history.where("is_copy").selectExpr("k AS copy_k", "position AS copy_at")
        left = removed.join(again, F.expr("k = copy_k AND pos = copy_at"), "left_anti")
        return self.checkpoints.add(self._of_keys(left, keys))

    def _with_values(self, entries: DataFrame) -> DataFrame:
        """Add `now` and `was`: the values of both images, as the table's columns hold them.

        Each is an array of STRUCT<column, value> of the columns that were sent; `names` and
        `was_names` are all that the images have. `is_whole` is true where `before` may be taken for
        the whole old row.
        """
        key_names = literals(self.columns.key_names)
        opened = (
            Query(entries)
            .extend(
                {
                    name: f"array_except(json_object_keys({image}), array({key_names}))"
                    for name, image in (("names", "after"), ("was_names", "before"))
                }
            )
            .extend(
                {
                    "is_whole": "has_whole_rows AND before IS NOT NULL",
                    "is_removal": "after IS NULL",
                }
            )
        )
        frame = self.unchanged.add_to(opened.plan())
        if self.unchanged.columns:
            held = {
                self._before(i): self.unchanged.value_in("before", name, "is_whole")
                for i, name, _ in self.unchanged.columns.values()
            }
            frame = Query(frame).extend(held).plan()
        for name, image, names in (("now", "after", "names"), ("was", "before", "was_names")):
            values = ", ".join(self._value(c, names, image) for c in self._values)
            sent = f"filter(array({values}), v -> v.is_sent)" if values else _NO_VALUES
            plain = f"transform({sent}, v -> named_struct('column', v.column, 'value', v.value))"
            work = [w for c in self.columns.own for w in (c.work, c.unfit)]
            work += [c.contradicted for c in self.columns.own if c.name in self.columns.key_names]
            kept = Query(frame).extend({"sent_after": "after"}).replace({"after": image})
            typed = Query(self.columns.typed(kept.plan(), NONE_UNSENT)).extend(
                {name: case((f"{names} IS NOT NULL", plain), otherwise=_NO_VALUES)}
            )
            frame = typed.extend({"after": "sent_after"}).drop("sent_after", *work).plan()
        return frame

    @staticmethod
    def _before(index: int) -> str:
        """What an old image that may be taken for the whole row holds, as `Unchanged.carried`."""
        return f"b{index}"

    @property
    def _values(self) -> list[OwnColumn]:
        """The columns that tell rows of one key apart."""
        return [c for c in self.columns.own if c.name not in self.columns.key_names]

    def _value(self, c: OwnColumn, names: Sql, image: str) -> Sql:
        """A column's value in an image, as text; `is_sent` is false where it equals any other."""
        sent = f"array_contains({names}, {literal(c.name)})"
        if c.lake in self.unchanged.columns:
            sent_image = "sent_after" if image == "after" else image
            sent += f" AND NOT {self.unchanged.is_unsent(sent_image, c.name)}"
        if image == "before":
            sent += f" AND NOT (nulls_say_nothing AND {c.work} IS NULL)"
        return (
            f"named_struct('column', {c.index}, 'value', {_text(c)}, "
            f"'is_sent', coalesce({sent}, false))"
        )

    def _stood(self, base: DataFrame, present: Collection[str]) -> DataFrame:
        """The rows that stood there, as entries; `present` are the columns that they had."""
        values = ", ".join(
            f"named_struct('column', {c.index}, 'value', {_text(c)})"
            for c in self._values
            if c.lake in present
        )
        carried = {
            self.unchanged.carried(i): "named_struct('json', CAST(NULL AS string), 'schema_id', "
            f"CAST(NULL AS string), 'row', c{i})"
            for i in self.unchanged.indexes
        }
        now = f"array({values})" if values else _NO_VALUES
        return Query(base).extend({"kind": f"'{STOOD}'", "now": now, **carried}).plan()

    # --- rows

    def _rows(self, ends: DataFrame) -> tuple[DataFrame, int]:
        """The rows that are left, typed, and how many lack a value that was not sent."""
        indexes, flag = self.unchanged.indexes, self.unchanged.flag
        if self.unchanged.columns:
            entries = Query(ends).select("k", "last", "top", "took", "is_reached", "inline(es)")
            numbered = entries.extend({"taken": "get(took, n)"}).drop("took")
            known = self._with_unsent(self.checkpoints.add(numbered.plan()))
            left = Query(known).where("is_reached AND n = greatest(top, 0)")
        else:
            one = "inline(array(get(es, greatest(top, 0))))"
            left = Query(ends).where("is_reached").select("k", "last", "top", one)
        stood = f"kind = '{STOOD}' AND top >= 0"
        time = f"CASE WHEN {stood} THEN stood_source_ts_ms ELSE source_ts_ms END"
        picked = left.select(
            "k", "top < 0 AS is_removal", "last AS pos", f"{stood} AS has_stood",
            f"{time} AS source_ts_ms",
            "CASE WHEN top >= 0 THEN after END AS after", "schema_id",
            *(f"{c.work} AS s{c.index}" for c in self.columns.own),
            *(f"{flag(i)} AND top >= 0 AS {flag(i)}" for i in indexes),
            *(self.unchanged.carried(i) for i in indexes),
            *(["CAST(NULL AS string) AS old_image"] if indexes else []),
        )  # fmt: skip
        typed = Query(self.columns.typed(picked.plan(), self.unchanged))
        value = {c.index: c.work for c in self.columns.own}
        value |= {i: case((f"{flag(i)} <=> true", f"f{i}"), otherwise=f"c{i}") for i in indexes}
        value = {i: case(("has_stood", f"s{i}"), otherwise=sql) for i, sql in value.items()}
        rows = typed.extend({"is_folded": "true"})
        dropped = ["has_stood", *(f"s{i}" for i in value)]
        unresolved = 0
        if indexes:
            lacks = " OR ".join(
                f"({flag(i)} <=> true AND {self.unchanged.carried(i)} IS NULL)" for i in indexes
            )
            kept = self.checkpoints.add(rows.extend({"lacks": lacks}).plan())
            found = kept.selectExpr("count_if(lacks AND NOT is_removal) AS n").first()
            assert found is not None
            unresolved, rows = found.n, Query(kept)
            dropped += ["lacks", *self.unchanged.flags]
            dropped += [
                name(i) for i in indexes for name in (self.unchanged.carried, self.unchanged.fill)
            ]
        changed = {f"c{i}": sql for i, sql in value.items() if sql != f"c{i}"}
        return rows.replace(changed).drop(*dropped).plan(), unresolved

    def _with_unsent(self, known: DataFrame) -> DataFrame:
        """Give what was not sent the value of the row that was taken, or left another key (R2)."""
        carried = [self.unchanged.carried(i) for i in self.unchanged.indexes]
        same = "compared"
        moved = Query(known).extend(
            {
                "leaving": f"row_number() OVER (PARTITION BY k, to_k, {same}, kind ORDER BY n)",
                "arriving": f"row_number() OVER (PARTITION BY k, link, {same}, kind ORDER BY n)",
                "left_count": f"count(*) OVER (PARTITION BY k, to_k, {same}, kind)",
            }
        )
        frame = self.checkpoints.add(moved.plan())
        indexes = self.unchanged.indexes
        held = [f"{self._before(i)} AS left_{self._before(i)}" for i in indexes]
        left = (
            Query(frame)
            .where(f"kind = '{LEAVES}'")
            .select(
                "k AS left_k", "to_k AS left_to", f"{same} AS left_at", "leaving AS left_nth",
                "left_count AS left_last", "taken AS left_taken", *held,
            )
            .plan()
        )  # fmt: skip
        is_it = F.expr(
            f"kind = '{ARRIVES}' AND link = left_k AND k = left_to AND {same} = left_at "
            "AND least(arriving, left_last) = left_nth"
        )
        linked = Query(frame.join(left, is_it, "left")).extend(
            {
                # Where no row is known to have left, the newest of its own key.
                "from_k": case(("left_taken >= 0", "left_k"), otherwise="k"),
                "from_n": case(("left_taken >= 0", "left_taken"), otherwise="taken"),
            }
        )
        # An old image says what the row was, that of the row that left or its own.
        told = linked.replace(
            {
                name: f"coalesce({name}, CASE WHEN kind = '{ARRIVES}' "
                f"THEN left_{self._before(i)} END, "
                f"CASE WHEN kind IN ('{ARRIVES}', '{UPDATES}') THEN {self._before(i)} END)"
                for i, name in zip(indexes, carried, strict=True)
            }
        )
        gone = (
            "left_k", "left_to", "left_at", "left_nth", "left_last", "left_taken", "leaving",
            "left_count", "arriving",
        )  # fmt: skip
        others = [f"left_{self._before(i)}" for i in indexes]
        kept = told.extend({"first_k": "from_k", "first_n": "from_n"}).drop(*gone, *others)
        current = self._taken_over(self.checkpoints.add(kept.plan()), carried)
        # Where what is known to have left says nothing, the newest of its own key.
        lacking = f"kind = '{ARRIVES}' AND ({' OR '.join(f'{name} IS NULL' for name in carried)})"
        may_look_further = f"{lacking} AND taken >= 0 AND first_k <> k"
        if not current.where(may_look_further).isEmpty():
            again = Query(current).replace(
                {
                    "from_k": case((may_look_further, "k"), otherwise="first_k"),
                    "from_n": case((may_look_further, "taken"), otherwise="first_n"),
                }
            )
            current = self._taken_over(again.plan(), carried)
        return Query(current).drop("from_k", "from_n", "first_k", "first_n").plan()

    def _taken_over(self, entries: DataFrame, carried: Sequence[str]) -> DataFrame:
        """Give each entry what it lacks of the entry `from_k`, `from_n`, and of those before it.

        Each round looks twice as far back as the one before.
        """
        current = entries
        lacking = " OR ".join(f"{name} IS NULL" for name in carried)
        is_open = f"kind IN ('{ARRIVES}', '{UPDATES}') AND from_n >= 0 AND ({lacking})"
        for _ in range(_ROUNDS):
            if current.where(is_open).isEmpty():
                break
            renamed = ", ".join(f"{name} AS p_{name}" for name in carried)
            before = Query(current).select(
                "k AS p_k", "n AS p_n", "from_k AS p_from_k", "from_n AS p_from_n", renamed
            )
            joined = current.join(
                before.plan(), F.expr(f"{is_open} AND from_k = p_k AND from_n = p_n"), "left"
            )
            step = Query(joined).replace(
                {
                    **{name: f"coalesce({name}, p_{name})" for name in carried},
                    "from_k": "p_from_k",
                    "from_n": "coalesce(p_from_n, -1)",
                }
            )
            names = ("p_k", "p_n", "p_from_k", "p_from_n", *(f"p_{name}" for name in carried))
            current = self.checkpoints.add(step.drop(*names).plan())
        return current


def _text(c: OwnColumn) -> Sql:
    """A column's value as a text that is the same for equal values."""
    if "<" in c.spark:
        return f"to_json(struct({c.work}))"
    return f"hex({c.work})" if c.spark == "binary" else f"CAST({c.work} AS string)"
