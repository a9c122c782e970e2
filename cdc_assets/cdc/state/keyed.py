"""The moves of a day: upserts and removals by key, each at its place in the order of events."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_assets.cdc.envelopes.formats import FIRST_HALVES, SECOND_HALVES
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.names import column, quote
from cdc_assets.cdc.positions import (
    cut_before,
    directly_after,
    latest,
    literal_position,
    of_removal,
    real_part,
    says_order,
)
from cdc_assets.cdc.sqltext import Query, Sql, case, literal, with_columns
from cdc_assets.cdc.state.columns import POSITION, TableColumns
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.unsent_values import Unchanged
from cdc_assets.cdc.values.readers import At, grown, of_member, read_key

_PLACE = ("landing_date", "topic", "partition", "offset")
# A row is there after it; the BEFOR half of a split update writes none (W3).
_UPSERT = "op IN ('c', 'u', 'r') AND after IS NOT NULL"


class Keyed:
    """The moves of a day (upserts and removals by typed key) and their winners."""

    def __init__(self, day: TableDay, columns: TableColumns) -> None:
        self.day, self.columns = day, columns
        self.lake = day.lake
        self._types = {c.name: c.spark for c in columns.own}
        self.truncated = day.truncated([day.day])

    def moves(self) -> DataFrame:
        """Upserts and removals of the day, also those that an earlier day's removal beats.

        Returns:
            `k` (typed key), `pos` (effective position), `is_removal`, `after`, `schema_id`,
            `source_ts_ms`, `link` (the key that the row had before, where it changed).
        """
        day = self.day
        events = self.keyed(day.events([day.day]))
        # Above all that landed before, events meet no truncate of it.
        past_cut = None if day.is_all_after else day.truncated(day.window)
        moves = self._expand(self._linked(events))
        if day.day_facts.without_position:
            base = self._base_positions(self.removed)
            placed = self._placed(moves, events, [day.day], base, past_cut)
            moves = placed.drop("position", *_PLACE)
        else:
            moves = Query(moves).extend({"pos": "position"}).drop("position", *_PLACE).plan()
        if self.day.has_split_updates:
            moves = moves.unionByName(self._pair_removals(), allowMissingColumns=True)
        floor = max([p for p in (self.truncated, past_cut) if p is not None], default=None)
        if floor is not None:
            moves = moves.where(F.col("pos") > literal_position(floor))
        return moves

    def winners(
        self, moves: DataFrame, unchanged: Unchanged, checkpoints: Checkpoints
    ) -> DataFrame:
        """One row a key: its highest event, and what unchanged columns last carried."""
        own = {
            c.lake: (c.index, c.name, c.spark)
            for c in self.columns.own
            if c.name not in self.columns.key_names
        }
        moves = unchanged.prepare(moves, own)
        # What a removal beats writes nothing, yet may hold what its row took to a new key.
        moves = unchanged.inherit(moves, self.removed, self.standing, checkpoints)
        if self.removed is not None:
            moves = self._guarded(moves, self.removed)
        what = ("is_removal", "pos", "after", "schema_id", "source_ts_ms", *unchanged.flags)
        of_key = [
            f"max_by(struct({', '.join(what)}), pos) AS w",
            "max(CASE WHEN is_removal THEN pos END) AS removed_pos",
            *unchanged.aggregates(),
        ]
        grouped = Query(moves).then(f"AGGREGATE {', '.join(of_key)} GROUP BY k")
        winners = grouped.select("k", "w.*", "removed_pos", *unchanged.carried_names)
        return winners.replace(unchanged.settled()).plan()

    # --- keys

    def keyed(self, events: DataFrame) -> DataFrame:
        """Add `k` and `ok`: key and old key as structs of the table's own types."""
        texts = {"k": "key", "ok": "old_key"}
        complete = {
            k: " AND ".join(f"{k}t.{work} IS NOT NULL" for work in self.columns.key_work)
            for k in texts
        }
        docs = Query(events).extend({f"{k}v": self._document(t) for k, t in texts.items()})
        typed = docs.extend({f"{k}t": self._struct(f"{k}v") for k in texts})
        keyed = typed.extend({k: case((complete[k], f"{k}t")) for k in texts})
        return keyed.drop(*(f"{k}{part}" for k in texts for part in "vt")).plan()

    @property
    def _is_whole(self) -> bool:
        """Are all key columns whole numbers, which need no VARIANT to be exact?"""
        return all(self._types[name] in ("int", "bigint") for name in self.columns.key_names)

    def _document(self, key: Sql) -> Sql:
        if not self._is_whole:
            return f"try_parse_json({key})"
        names = self.columns.key_names
        members = (
            f'{re.escape(json.dumps(name, ensure_ascii=False))}:"?([+-]?\\d+)"?' for name in names
        )
        # Digits are cut out of a canonical key: a parser made for each costs several times more.
        canonical = literal(rf"^\{{{','.join(members)}\}}$")
        cut = (
            f"{literal(name)}, regexp_extract({key}, {canonical}, {group})"
            for group, name in enumerate(names, 1)
        )
        kind = ", ".join(f"{quote(name)}: string" for name in names)
        return case(
            (f"{key} RLIKE {canonical}", f"named_struct({', '.join(cut)})"),
            otherwise=f"from_json({key}, {literal(f'struct<{kind}>')})",
        )

    def _struct(self, document: Sql) -> Sql:
        members = (
            f"{literal(work)}, {read_key(self._member(document, name), self._types[name])}"
            for name, work in zip(self.columns.key_names, self.columns.key_work, strict=True)
        )
        return f"named_struct({', '.join(members)})"

    def _member(self, document: Sql, name: str) -> At:
        if not self._is_whole:
            return of_member(document, name)
        return lambda _: f"{document}.{quote(name)}"

    def target(self) -> DataFrame | None:
        """The table at the end of the day before: `k`, `pos` and its columns."""
        state = self.columns.state
        before = self.day.day - timedelta(days=1)
        if state is None or before not in state.tags or self.day.day <= self.day.start:
            return None
        return self._table_at(state.tags[before])

    def _table_at(self, snapshot: int) -> DataFrame:
        table = self.lake.at(self.day.identifier, snapshot)
        present = set(table.columns)
        key = F.struct(
            *(
                # The snapshot has the types of its own day.
                (column(name) if name in present else F.lit(None)).cast(self._types[of]).alias(work)
                for name, of, work in zip(
                    self.columns.key_lake,
                    self.columns.key_names,
                    self.columns.key_work,
                    strict=True,
                )
            )
        )
        values = [
            (
                F.expr(grown(quote(c.lake), table.schema[c.lake].dataType, c.spark))
                if c.lake in present
                else F.lit(None).cast(c.spark)
            ).alias(c.work)
            for c in self.columns.own
        ]
        return table.select(key.alias("k"), F.col(POSITION).alias("pos"), *values)

    def standing(self) -> DataFrame | None:
        """:meth:`target` without the rows that a truncate of the day removes."""
        rows = self.target()
        if rows is None or self.truncated is None:
            return rows
        return rows.where(F.col("pos") >= literal_position(self.truncated))

    # --- moves

    def _linked(self, events: DataFrame) -> DataFrame:
        """Add `link`: the key that the row had before, also where a BEFOR half says so (W3)."""
        if not (self.day.may_be_unsent and self.day.has_split_updates):
            return with_columns(events, {"link": "ok"})
        pairs = (
            self._pairs()
            .where(F.col("after_day") == F.lit(self.day.day))
            .groupBy(F.col("sequence").alias("of_pair"))
            .agg(F.max("before_k").alias("before_k"))
        )
        is_after = F.col("source_op").isin(*SECOND_HALVES) & F.col("before").isNull()
        same = is_after & (F.col("source_elements") == F.col("of_pair"))
        return events.join(pairs, same, "left").withColumn("link", F.coalesce("ok", "before_k"))

    def _expand(self, events: DataFrame) -> DataFrame:
        """The moves of events: `k`, `is_removal`, `position`, `after`, `link` and their place."""
        common = ("schema_id", "source_ts_ms", *_PLACE)
        own = Query(events).where(f"op = 'd' OR ({_UPSERT})").extend({"is_removal": "op = 'd'"})
        kept = [f"CASE WHEN NOT is_removal THEN {name} END AS {name}" for name in ("after", "link")]
        moves = own.select("k", "is_removal", "position", *kept, *common).where("k IS NOT NULL")
        if not self.day.day_facts.moves:
            return moves.plan()
        gone = ("true AS is_removal", "position", "CAST(NULL AS string) AS after")
        no_link = f"CAST(NULL AS {_kind(events, 'k').simpleString()}) AS link"
        left = _left(events).where("k IS NOT NULL")
        return moves.plan().unionByName(left.selectExpr("k", *gone, no_link, *common))

    @property
    def is_all_after(self) -> bool:
        """Does each move stand after all that landed before the day?"""
        return self.day.is_all_after and not self.day.has_split_updates

    def _pairs(self) -> DataFrame:
        """Split updates that change the key and are complete (W2, W3).

        Returns:
            `sequence`, the halves' keys `before_k` and `after_k`, their days, `pos` of the first
            half, `day` on which the later half landed.
        """
        day = self.day
        is_before = F.col("source_op").isin(*FIRST_HALVES)
        is_after = F.col("source_op").isin(*SECOND_HALVES) & F.col("before").isNull()
        halves = day.events([*day.pair_window, day.day]).where(is_before | is_after)
        # Without a sequenceId nothing says which halves belong together.
        near = self.keyed(halves.where(says_order(F.col("source_elements")))).withColumnRenamed(
            "source_elements", "sequence"
        )
        before = near.where(is_before).select(
            "sequence",
            F.col("k").alias("before_k"),
            F.col("position").alias("pos"),
            "source_ts_ms",
            F.col("landing_date").alias("before_day"),
        )
        after = near.where(is_after).select(
            "sequence", F.col("k").alias("after_k"), F.col("landing_date").alias("after_day")
        )
        apart = F.abs(F.date_diff("before_day", "after_day"))
        return (
            before.join(after, "sequence")
            .where(F.col("before_k") != F.col("after_k"))
            .where(apart <= day.source.late_days)
            .withColumn("day", F.greatest("before_day", "after_day"))
        )

    def _pair_removals(self) -> DataFrame:
        pairs = self._pairs().where(F.col("day") == F.lit(self.day.day))
        removal = F.lit(True).alias("is_removal")
        return pairs.select(F.col("before_k").alias("k"), removal, "pos", "source_ts_ms").distinct()

    # --- late and repeated events (O12)

    @cached_property
    def removed(self) -> DataFrame | None:
        """`k`, `pos` of what was removed in the `late_days` window; None where nothing was.

        Nor where no event meets it: above all that landed before, only an unsent value may be that
        of a row before its removal.
        """
        day = self.day
        if not any(s.removals or s.split_updates for s in day.past):
            return None
        if day.is_all_after and not day.may_be_unsent:
            return None
        events = self.keyed(day.events(day.window))
        removals = events.where("op = 'd'").select("k", "position", *_PLACE)
        removed = removals.unionByName(_left(events).select("k", "position", *_PLACE))
        if any(s.tombstones for s in day.past):
            upserts = events.where(_UPSERT).select("k", "position", *_PLACE)
            of_all = removed.withColumn("is_removal", F.lit(True)).unionByName(
                upserts.withColumn("is_removal", F.lit(False))
            )
            base = self._start_of_window()
            placed = self._placed(of_all, events, day.window, base, None)
            removed = placed.where("is_removal").select("k", "pos")
        else:
            removed = removed.select("k", F.col("position").alias("pos"))
        if any(s.split_updates for s in day.past):
            first, last = F.lit(day.window[0]), F.lit(day.window[-1])
            earlier = self._pairs().where(F.col("day").between(first, last))
            removed = removed.unionByName(earlier.select(F.col("before_k").alias("k"), "pos"))
        return removed.where("k IS NOT NULL AND pos IS NOT NULL")

    def _start_of_window(self) -> DataFrame | None:
        state = self.columns.state
        before = self.day.window[0] - timedelta(days=1)
        if state is None or before not in state.tags:
            return None
        return self._table_at(state.tags[before]).select("k", "pos")

    def _guarded(self, moves: DataFrame, removed: DataFrame) -> DataFrame:
        """Drop what an earlier day's removal of the same key beats."""
        beaten = removed.groupBy(F.col("k").alias("rk")).agg(F.max("pos").alias("rpos"))
        return moves.join(
            beaten, (F.col("k") == F.col("rk")) & (F.col("rpos") > F.col("pos")), "left_anti"
        )

    # --- events without a position (O6)

    def _base_positions(self, removed: DataFrame | None) -> DataFrame | None:
        """`k`, `pos`: the highest event of each key that landed before the day."""
        parts = [
            frame.select("k", "pos") for frame in (self.target(), removed) if frame is not None
        ]
        if not parts:
            return None
        both = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        return both.groupBy("k").agg(F.max("pos").alias("pos"))

    def _placed(
        self,
        moves: DataFrame,
        events: DataFrame,
        days: Sequence[date],
        base: DataFrame | None,
        past_cut: Sequence[int] | None,
    ) -> DataFrame:
        """Add `pos`: a move's own position, or directly after what landed before it.

        Args:
            moves: `k`, `position`, and the place in Kafka of the event that each is of.
            events: for their truncates.
            days: of both.
            base: the highest position of each key that landed before these days.
            past_cut: that of truncates.
        """
        placed = moves.withColumn("seen", self._seen(days))
        known = [F.col("seen"), literal_position(past_cut)]
        if any(of_day.truncates for of_day in self.day.of_days(days)):
            placed = placed.crossJoin(F.broadcast(_cuts(events)))
            known += [cut_before(), _cut_earlier_day()]
        if base is not None:
            bases = base.select(F.col("k").alias("bk"), real_part(F.col("pos")).alias("base_pos"))
            placed = placed.join(bases, F.col("k") == F.col("bk"), "left")
            known.append(F.col("base_pos"))
        after = directly_after(
            latest(*known), F.col("landing_date"), F.col("partition"), F.col("offset")
        )
        return placed.withColumn("pos", F.coalesce("position", after)).drop(
            "cuts", "seen", "bk", "base_pos"
        )

    def _seen(self, days: Sequence[date]) -> Column:
        """The highest position of a key that landed before a move on some days."""
        if all(of_day.without_position == of_day.events for of_day in self.day.of_days(days)):
            return literal_position(None)  # as in a first load: there is none to look for
        within = (
            Window.partitionBy("k", "topic", "partition")
            .orderBy("offset")
            .rangeBetween(Window.unboundedPreceding, -1)
        )
        seen = [F.max("position").over(within)]
        if len(days) > 1:
            earlier_days = (
                Window.partitionBy("k")
                .orderBy(F.unix_date("landing_date"))
                .rangeBetween(Window.unboundedPreceding, -1)
            )
            seen.append(F.max("position").over(earlier_days))
        return latest(*seen)


def _cuts(events: DataFrame) -> DataFrame:
    """One row: `cuts`, the truncates that have a position, and where each stands in Kafka."""
    place = ("topic", "partition", "offset", "position", "landing_date")
    truncates = events.where("op = 't' AND position IS NOT NULL")
    return truncates.agg(F.collect_list(F.struct(*place)).alias("cuts"))


def _cut_earlier_day() -> Column:
    """The highest truncate that landed on a day before; `cuts` lists them."""
    earlier = F.filter("cuts", lambda t: t["landing_date"] < F.col("landing_date"))
    return F.array_max(F.transform(earlier, lambda t: t["position"]))


def _left(events: DataFrame) -> DataFrame:
    """The old keys of key changes (D9, D10), as removals: `k`, and the rank of a removal (O4)."""
    moved = events.where("op IN ('c', 'u', 'r') AND ok IS NOT NULL AND NOT (ok <=> k)")
    return moved.withColumns({"k": F.col("ok"), "position": of_removal(F.col("position"))})


def _kind(frame: DataFrame, name: str) -> Any:
    return frame.schema[name].dataType
