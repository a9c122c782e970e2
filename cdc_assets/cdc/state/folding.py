"""Keys that two rows may hold for a moment: their events are folded one by one (O16).

Within a transaction of a database that checks keys at its end a key holds a queue: the row that
stood there, then each row that arrives; an update or delete takes the row of it that its `before`
names. Most days have no such key (see :mod:`cdc_assets.cdc.changes.order_facts`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.changes import order_facts
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.positions import (
    LSN,
    is_late_checked,
    literal_position,
)
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
from cdc_assets.cdc.state.keyed import Keyed
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.unsent_values import NONE_UNSENT, Unchanged

_PLACE = ("landing_date", "topic", "partition", "offset", "kafka_time")
# What copies and transactions are told by, beside images and times.
_TOLD_BY = (
    "position_basis", "identity", "tx", "is_late_checked", "is_postgresql", "nulls_say_nothing",
    *TOLD_BY,
)  # fmt: skip
_NO_VALUES = "CAST(array() AS array<struct<column: int, value: string>>)"
_ROUNDS = 32  # each looks twice as far back as the one before


@dataclass(frozen=True)
class Folded:
    """What folding came to.

    `keys` are the keys that were folded (`k`), None: all of the day. `rows` has one row of each
    that events of the day reach: as `TableColumns.typed` gives them, and `is_folded`. `unresolved`
    of them lack a value that was not sent.
    """

    keys: DataFrame | None
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
        self.past: Sequence[date] = ()  # the days looked back on, before the first that is folded

    def fold(self) -> Folded | None:
        """Fold the keys of the day that need it; None where none does.

        Of a small day all keys are folded: to find those that need it takes longer.
        """
        day = self.day
        is_all = is_small(day.day_facts.events)
        events = self.keyed.keyed(day.events([day.day]), with_new_key=True)
        if not is_all or day.may_be_unsent or day.may_repeat_earlier or day.open_transactions:
            events = self.checkpoints.add(events)  # they are read several times
        entries = self._entries(events, [day.day])
        if day.may_be_unsent:
            self.keyed.find_unsent(entries, self.unchanged)
        keys = entries.select("k")
        if self.unchanged.columns:
            # What was not sent may be of a row that left another key.
            keys = keys.unionAll(entries.select("link"))
        keys = keys.where("k IS NOT NULL").distinct()
        is_cut = False
        if is_all and day.open_transactions:
            is_cut = not entries.where(_is_of(day.open_transactions)).isEmpty()
        if not is_all:
            found = self.checkpoints.add(self._keys(events, entries))
            why = found.selectExpr("count(*) AS n", "max(is_cut) AS cut").first()
            assert why is not None
            if not why.n:
                return None
            keys, is_cut = found.select("k"), bool(why.cut)
        first = day.fold_from(min(day.open_transactions.values())) if is_cut else day.day
        self.past = day.window_before(first)
        if self.unchanged.has_links and not day.day_facts.is_paired:
            # The row of an arriving one may have left its key on an earlier day.
            first = min(first, day.first_in_window)
            self.past = [d for d in self.past if d < first]
        looks_back = is_cut or day.may_repeat_earlier
        if self.unchanged.columns and first < day.day:
            # A row of the day may have come from any key since.
            keys = keys.unionAll(self._keys_of(first)).distinct()
        history = self._history(keys, events, first, looks_back)
        if looks_back:  # of those days copies of removals are left out, too
            history = self.checkpoints.add(history)
        copies = Query(history).where(f"is_copy AND landing_date < {literal(first)}")
        kept = Query(history).where(f"NOT is_copy AND landing_date >= {literal(first)}")
        removed = self._removed(first, copies.plan() if looks_back else None)
        # All rows of a small table are read fast, and those that no event reaches are left out.
        wanted = None if is_all and day.is_rewritten else keys
        ends = self._ends(wanted, kept.drop("is_copy").plan(), removed, first)
        rows, unresolved = self._rows(ends)
        return Folded(None if is_all else keys, rows, unresolved)

    # --- which keys

    def _keys(self, events: DataFrame, entries: DataFrame) -> DataFrame:
        """`k`, and whether it has an event of a transaction that began earlier (`is_cut`)."""
        day = self.day
        entries = Query(entries).where("k IS NOT NULL").plan()
        parts = []

        def found(frame: DataFrame, key: Sql = "k", is_cut: bool = False) -> None:
            parts.append(frame.selectExpr(f"{key} AS k", f"{literal(is_cut)} AS is_cut"))

        if day.day_facts.crossed or not day.day_facts.is_order_known:
            hashed = order_facts.entries(Query(events), (), "k", "ok").plan()
            suspects = order_facts.keys_to_fold(hashed, ()).where(f"{order_facts.CROSSED} > 0")
            of_suspects = F.broadcast(suspects.select("key_hash").distinct())
            found(entries.join(of_suspects, F.expr("xxhash64(k) = key_hash"), "left_semi"))
        if day.open_transactions:
            found(entries.where(_is_of(day.open_transactions)), is_cut=True)
        if self.unchanged.columns and self.unchanged.has_links:
            # The value of a row that left another key may be that of one that was folded.
            linked = entries.where("link IS NOT NULL")
            found(linked)
            found(linked, "link")
        of_all = Query(reduce(DataFrame.unionAll, parts)).where("k IS NOT NULL")
        return of_all.then("AGGREGATE max(is_cut) AS is_cut GROUP BY k").plan()

    # --- their events

    def _entries(self, events: DataFrame, days: Sequence[date]) -> DataFrame:
        """What the events of some days do to keys, one row a key and event.

        Returns:
            `k`, `kind`, `link` (the key that an arriving row had before), `to_k` (the key that a
            leaving row takes), `position`, `before`, `after`, `schema_id`, `source_ts_ms`,
            `content` (a hash), `tx`, `is_late_checked`, and what copies are told by.
        """
        changes_key = "op = 'u' AND ok IS NOT NULL AND NOT (ok <=> k)"
        at_key = case(
            ("op = 'r'", f"'{READ}'"),
            (f"op = 'c' OR ({changes_key})", f"'{ARRIVES}'"),
            ("op = 'u'", f"'{UPDATES}'"),
            ("op = 'd' AND new_key IS NOT NULL", f"'{LEAVES}'"),
            otherwise=f"'{DELETED}'",
        )
        opened = Query(events).where("op = 'd' OR (op IN ('c', 'u', 'r') AND after IS NOT NULL)")
        told = opened.extend(
            {
                "kind": at_key,
                "tx": order_facts.transaction(),
                "is_late_checked": is_late_checked("position_basis", "connector"),
                "is_postgresql": f"coalesce(startswith(position_basis, '{LSN},') "
                "OR lower(connector) = 'postgresql', false)",
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

    def _keys_of(self, first: date) -> DataFrame:
        """`k`: all keys that events reach from a day on, before the day that is made."""
        days = [first + timedelta(days=n) for n in range((self.day.day - first).days)]
        keyed = self.keyed.keyed(self.day.events(days), with_new_key=True)
        entries = self._entries(keyed, days)
        return entries.select("k").unionAll(entries.select("link")).where("k IS NOT NULL")

    def _history(
        self, keys: DataFrame, events: DataFrame, first: date, looks_back: bool
    ) -> DataFrame:
        """The entries of some keys from the first day on, and of the days looked back on.

        Returns:
            The entries, and `is_copy`: a redelivered change, or a record that landed before.
        """
        day = self.day
        days = [first + timedelta(days=n) for n in range((day.day - first).days)]
        past = self.past if looks_back else []
        before = [d for d in [*past, *days] if day.facts_on(d).events]
        entries = self._entries(events, [day.day])
        if before:
            earlier = self.keyed.keyed(day.events(before), with_new_key=True)
            entries = entries.unionByName(self._entries(earlier, before))
        # Distributed once, for all that is asked of a key.
        if before or not is_small(day.day_facts.events):
            entries = entries.join(F.broadcast(keys), "k", "left_semi")
        entries = entries.where("k IS NOT NULL").repartition("k")
        again = (
            "row_number() OVER (PARTITION BY k, kind, topic, partition, offset, "
            "try_element_at(position, -1) ORDER BY landing_date) > 1"
        )
        known = judged(Query(entries)).extend({"has_landed": again})
        return known.replace({"is_copy": "is_copy OR has_landed"}).drop("has_landed").plan()

    def _removed(self, first: date, copies: DataFrame | None) -> DataFrame | None:
        """`k`, `pos` of what was removed in the days looked back on, without copies."""
        if first == self.day.day:
            removed = self.keyed.removed
        else:
            removed = self.keyed.removed_on(self.past) if self.past else None
        if removed is None or copies is None:
            return removed
        again = copies.selectExpr("k AS copy_k", "position AS copy_at")
        return removed.join(again, F.expr("k = copy_k AND pos = copy_at"), "left_anti")

    # --- the fold

    def _ends(
        self,
        keys: DataFrame | None,
        entries: DataFrame,
        removed: DataFrame | None,
        first: date,
    ) -> DataFrame:
        """Keys with their entries and what the fold leaves.

        What is older than the row that stood there, or than what was removed before, is left out.

        Returns:
            `k`; `es`, the entries in their order, the row that stood there first; `took`, of each
            the number of the entry whose row it takes (-1: none); `top`, that of the row that is
            left (-1: none); `last`, the highest position; `is_reached`, by an event of the day.
        """
        day, keyed = self.day, self.keyed
        days = [first + timedelta(days=n) for n in range((day.day - first).days + 1)]
        base = keyed.rows_before(first)
        past_cut = None if first == day.day and day.is_all_after else day.truncated(self.past)
        cut = day.truncated(days)
        placed = entries.withColumn("pos", F.col("position"))
        if base is not None and keys is not None:
            base = base.join(F.broadcast(keys), "k", "left_semi")
        if any(day.facts_on(d).without_position for d in days):
            events = keyed.keyed(day.events(days))
            positions = keyed.base_positions(removed, base)
            placed = keyed.placed(entries, events, days, positions, past_cut)
        if day.has_split_updates:
            pairs = keyed.pair_removals()
            if keys is not None:
                pairs = pairs.join(F.broadcast(keys), "k", "left_semi")
            told = {"kind": F.lit(DELETED), "is_late_checked": F.lit(False)}
            told["landing_date"] = F.lit(day.day)
            pairs = pairs.withColumns(told).drop("is_removal")
            placed = placed.unionByName(pairs, allowMissingColumns=True)
        floor = max([p for p in (cut, past_cut) if p is not None], default=None)
        if floor is not None:
            placed = placed.where(F.col("pos") > literal_position(floor))
        if removed is not None:
            placed = keyed.guarded(placed, removed)
        if base is None:
            placed = self._with_values(placed)
        else:
            if cut is not None:
                base = base.where(F.col("pos") >= literal_position(cut))
            stands = base.selectExpr("k AS base_k", "pos AS base_pos")
            newer = placed.join(stands, F.expr("k = base_k AND pos <= base_pos"), "left_anti")
            stood = self._stood(base, keyed.columns_before(first))
            placed = self._with_values(newer).unionByName(stood, allowMissingColumns=True)
        numbered = Query(placed).extend(
            {
                "n": f"CAST(row_number() OVER (PARTITION BY k ORDER BY kind <> '{STOOD}', pos) - 1 "
                "AS int)"
            }
        )
        others = [quote(name) for name in placed.columns if name not in ("k", "n")]
        folded = numbered.then(
            f"AGGREGATE array_sort(collect_list(struct(n, {', '.join(others)})), "
            "(l, r) -> l.n - r.n) AS es, max(pos) AS last GROUP BY k"
        ).extend({"done": fold_entries("es", is_key_alone=not self._values)})
        top = "coalesce(try_element_at(done.q, -1), -1) AS top"
        is_reached = f"exists(es, e -> e.landing_date = {literal(day.day)}) AS is_reached"
        return folded.select("k", "last", "es", "done.taken AS took", top, is_reached).plan()

    def _with_values(self, entries: DataFrame) -> DataFrame:
        """Add `now` and `was`: the values of both images, as the table's columns hold them.

        Each is an array of STRUCT<column, value> of the columns that were sent; `names` and
        `was_names` are all that the images have. `is_whole` is true where `before` may be taken for
        the whole old row.
        """
        is_full = literal(self.day.config.replica_identity == "full")
        whole = f"is_late_checked AND before IS NOT NULL AND (NOT is_postgresql OR {is_full})"
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
                    "is_whole": f"coalesce({whole}, false)",
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
        has_stood = "stood_source_ts_ms" in _names_in(ends)
        stood = f"kind = '{STOOD}' AND top >= 0"
        time = f"CASE WHEN {stood} THEN stood_source_ts_ms ELSE source_ts_ms END"
        picked = left.select(
            "k", "top < 0 AS is_removal", "last AS pos", f"{stood} AS has_stood",
            f"{time if has_stood else 'source_ts_ms'} AS source_ts_ms",
            "CASE WHEN top >= 0 THEN after END AS after", "schema_id",
            *(f"{c.work} AS s{c.index}" for c in self.columns.own if has_stood),
            *(f"{flag(i)} AND top >= 0 AS {flag(i)}" for i in indexes),
            *(self.unchanged.carried(i) for i in indexes),
            *(["CAST(NULL AS string) AS old_image"] if indexes else []),
        )  # fmt: skip
        typed = Query(self.columns.typed(picked.plan(), self.unchanged))
        value = {c.index: c.work for c in self.columns.own}
        value |= {i: case((f"{flag(i)} <=> true", f"f{i}"), otherwise=f"c{i}") for i in indexes}
        if has_stood:
            value = {i: case(("has_stood", f"s{i}"), otherwise=sql) for i, sql in value.items()}
        rows = typed.extend({"is_folded": "true"})
        dropped = ["has_stood", *(f"s{i}" for i in value if has_stood)]
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
        """Give what was not sent the value of the row that was taken, or left another key (R2).

        Each round looks twice as far back as the one before.
        """
        carried = [self.unchanged.carried(i) for i in self.unchanged.indexes]
        same = "coalesce(tx, to_json(compared), '')"
        moved = Query(known).extend(
            {
                "leaving": f"row_number() OVER (PARTITION BY k, to_k, {same}, kind ORDER BY n)",
                "arriving": f"row_number() OVER (PARTITION BY k, link, {same}, kind ORDER BY n)",
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
                "taken AS left_taken", *held,
            )
            .plan()
        )  # fmt: skip
        is_it = F.expr(
            f"kind = '{ARRIVES}' AND link = left_k AND k = left_to AND {same} = left_at "
            "AND arriving = left_nth"
        )
        linked = Query(frame.join(left, is_it, "left")).extend(
            {
                # Where no row is known to have left, the newest of its own key.
                "from_k": case(("left_taken >= 0", "left_k"), otherwise="k"),
                "from_n": case(("left_taken >= 0", "left_taken"), otherwise="taken"),
            }
        )
        # Where no row is known an old image says what it was, of the row that left or of its own.
        image = {
            self._before(i): f"coalesce(left_{self._before(i)}, {self._before(i)})" for i in indexes
        }
        alone = (
            f"kind IN ('{ARRIVES}', '{UPDATES}') AND (coalesce(from_n, -1) < 0 "
            "OR (left_k IS NOT NULL AND left_taken < 0))"
        )
        told = linked.replace(image).replace(
            {
                name: case((alone, f"coalesce({name}, {self._before(i)})"), otherwise=name)
                for i, name in zip(indexes, carried, strict=True)
            }
        )
        gone = ("left_k", "left_to", "left_at", "left_nth", "left_taken", "leaving", "arriving")
        others = [f"left_{self._before(i)}" for i in indexes]
        current = self.checkpoints.add(told.drop(*gone, *others).plan())
        lacking = " OR ".join(f"{name} IS NULL" for name in carried)
        for _ in range(_ROUNDS):
            is_open = f"kind IN ('{ARRIVES}', '{UPDATES}') AND from_n >= 0 AND ({lacking})"
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
        last = {
            name: case(
                (f"kind IN ('{ARRIVES}', '{UPDATES}')", f"coalesce({name}, {self._before(i)})"),
                otherwise=name,
            )
            for i, name in zip(indexes, carried, strict=True)
        }
        return Query(current).replace(last).drop("from_k", "from_n").plan()


def _text(c: OwnColumn) -> Sql:
    """A column's value as a text that is the same for equal values."""
    if "<" in c.spark:
        return f"to_json(struct({c.work}))"
    return f"hex({c.work})" if c.spark == "binary" else f"CAST({c.work} AS string)"


def _is_of(transactions: Mapping[tuple[str, int, int], date]) -> Sql:
    """True for entries of some transactions: topic, partition and the hash of each."""
    lanes: dict[tuple[str, int], list[int]] = {}
    for topic, partition, tx in transactions:
        lanes.setdefault((topic, partition), []).append(tx)
    of_lanes = (
        f"(topic = {literal(topic)} AND partition = {partition} "
        f"AND xxhash64(tx) IN ({', '.join(literal(tx) for tx in hashes)}))"
        for (topic, partition), hashes in lanes.items()
    )
    return " OR ".join(of_lanes) or "false"


def _names_in(ends: DataFrame) -> list[str]:
    """The columns of entries in `es`."""
    kind: Any = ends.schema["es"].dataType
    names: list[str] = kind.elementType.names
    return names
