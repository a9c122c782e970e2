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

from cdc_assets.cdc.changes.order_facts import LEAVES_KEY, SAYS_OLD_KEY, compared_elements
from cdc_assets.cdc.envelopes.formats import FIRST_HALVES, SECOND_HALVES
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.names import column, quote
from cdc_assets.cdc.positions import (
    cut_before,
    directly_after,
    has_whole_rows,
    latest,
    literal_position,
    of_removal,
    real_part,
    says_order,
)
from cdc_assets.cdc.sqltext import Query, Sql, case, literal, with_columns
from cdc_assets.cdc.state.columns import TableColumns
from cdc_assets.cdc.state.table_day import POSITION, SOURCE_TS, TableDay
from cdc_assets.cdc.state.unsent_values import Unchanged
from cdc_assets.cdc.values.readers import At, grown, of_member, read_key

_PLACE = ("landing_date", "topic", "partition", "offset", "kafka_time")
# A row is there after it; the BEFOR half of a split update writes none (W3).
_UPSERT = "op IN ('c', 'u', 'r') AND after IS NOT NULL"
IS_MOVE = f"op = 'd' OR ({_UPSERT})"  # it does something to its key


class Keyed:
    """The moves of a day (upserts and removals by typed key) and their winners."""

    def __init__(self, day: TableDay, columns: TableColumns) -> None:
        self.day, self.columns = day, columns
        self.lake = day.lake
        self._types = {c.name: c.spark for c in columns.own}
        self.truncated = day.truncated([day.day])
        # `k`, `topic`, `landing_date`, `position` of entries that repeat others (O15).
        self.copies: DataFrame | None = None
        self._kept: tuple[set[date], DataFrame] | None = None

    def keep(self, days: Sequence[date], checkpoints: Checkpoints) -> None:
        """Read the events of some days once, for all that will ask for them."""
        events = self.keyed(self.day.events(days), with_new_key=True)
        self._kept = set(days), checkpoints.add(events)

    def events(self, days: Sequence[date], with_new_key: bool = False) -> DataFrame:
        """The events of some days, with their keys as :meth:`keyed` adds them."""
        if self._kept is None or not self._kept[0].issuperset(days):
            return self.keyed(self.day.events(days), with_new_key)
        known, events = self._kept
        return events if known == set(days) else events.where(F.col("landing_date").isin(*days))

    def moves(self) -> DataFrame:
        """Upserts and removals of the day, also those that an earlier day's removal beats.

        Returns:
            `k` (typed key), `pos` (effective position), `is_removal`, `after`, `schema_id`,
            `source_ts_ms`, `link` (the key that the row had before, where it changed).
        """
        day = self.day
        events = self.events([day.day])
        # Above all that landed before, events meet no truncate of it.
        past_cut = None if day.is_all_after else day.truncated(day.window)
        moves = self.without_copies(self._expand(self._linked(events)))
        if day.day_facts.without_position:
            base = self.base_positions(self.removed, self.target())
            placed = self.placed(moves, events, [day.day], base, past_cut)
            moves = placed.drop("position", *_PLACE)
        else:
            moves = Query(moves).extend({"pos": "position"}).drop("position", *_PLACE).plan()
        if self.day.has_split_updates:
            moves = moves.unionByName(self.pair_removals(), allowMissingColumns=True)
        floor = max([p for p in (self.truncated, past_cut) if p is not None], default=None)
        if floor is not None:
            moves = moves.where(F.col("pos") > literal_position(floor))
        return moves

    def winners(
        self, moves: DataFrame, unchanged: Unchanged, checkpoints: Checkpoints
    ) -> DataFrame:
        """One row a key: its highest event, and what unchanged columns last carried."""
        moves = unchanged.add_to(moves, with_old_images=True)
        # What a removal beats writes nothing, yet may hold what its row took to a new key.
        moves = unchanged.inherit(moves, self.removed, self.standing, checkpoints)
        if self.removed is not None:
            moves = self.guarded(moves, self.removed)
        what = ["is_removal", "pos", "after", "schema_id", "source_ts_ms", *unchanged.flags]
        if unchanged.columns:
            what.append("old_image")
        of_key = {
            "w": f"max_by(struct({', '.join(what)}), pos)",
            "removed_pos": "max(CASE WHEN is_removal THEN pos END)",
            **unchanged.aggregates(),
        }
        grouped = Query(moves).aggregate(("k",), of_key)
        winners = grouped.select("k", "w.*", "removed_pos", *unchanged.carried_names)
        return winners.replace(unchanged.settled()).plan()

    def find_unsent(self, moves: DataFrame, unchanged: Unchanged) -> None:
        """Find the columns whose values the moves leave unsent: never those of the key."""
        own = {
            c.lake: (c.index, c.name, c.spark)
            for c in self.columns.own
            if c.name not in self.columns.key_names
        }
        unchanged.find(moves, own)

    # --- keys

    def keyed(self, events: DataFrame, with_new_key: bool = False) -> DataFrame:
        """Add `k` and `ok`: key and old key as structs of the table's own types.

        Args:
            with_new_key: add `nk`, too, the key that a leaving row takes.
        """
        texts = {"k": "key", "ok": "old_key", **({"nk": "new_key"} if with_new_key else {})}
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
        return self.rows_before(self.day.day)

    def _snapshot_before(self, day: date) -> int | None:
        state, before = self.columns.state, day - timedelta(days=1)
        if state is None or before not in state.tags or day <= self.day.start:
            return None
        return state.tags[before]

    def rows_before(self, day: date) -> DataFrame | None:
        """The table as it stood before a day: `k`, `pos`, its columns, `stood_source_ts_ms`."""
        snapshot = self._snapshot_before(day)
        return None if snapshot is None else self._table_at(snapshot)

    def columns_before(self, day: date) -> list[str]:
        """The columns that the table had before a day."""
        snapshot = self._snapshot_before(day)
        return [] if snapshot is None else self.lake.at(self.day.identifier, snapshot).columns

    def _table_at(self, snapshot: int) -> DataFrame:
        table = self.lake.at(self.day.identifier, snapshot)
        present = set(table.columns)
        if self.day.earlier_rows is not None:
            turned = F.expr(self.day.position_of("rows_in"))
            table = table.alias("rows_in").withColumn(POSITION, turned)
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
        return table.select(
            key.alias("k"),
            F.col(POSITION).alias("pos"),
            F.col(SOURCE_TS).alias("stood_source_ts_ms"),
            *values,
        )

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
        common = ["schema_id", "source_ts_ms", *_PLACE]
        image = "CAST(NULL AS string)"
        if self.day.may_be_unsent:
            # The whole old row has what an update did not send (R2).
            is_full = self.day.config.replica_identity == "full"
            is_whole = has_whole_rows("position_basis", "connector", is_full)
            image = case((f"op IN ('u', 'd') AND {is_whole}", "before"))
        common.append(f"{image} AS old_image")
        own = Query(events).where(IS_MOVE).extend({"is_removal": "op = 'd'"})
        kept = [f"CASE WHEN NOT is_removal THEN {name} END AS {name}" for name in ("after", "link")]
        moves = own.select("k", "is_removal", "position", *kept, *common).where("k IS NOT NULL")
        if not self.day.day_facts.key_changes:
            return moves.plan()
        gone = ("true AS is_removal", "position", "CAST(NULL AS string) AS after")
        no_link = f"CAST(NULL AS {_kind(events, 'k').simpleString()}) AS link"
        left = self.left_keys(events, [self.day.day]).where("k IS NOT NULL")
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
            .where(apart <= day.settings.late_days)
            .withColumn("day", F.greatest("before_day", "after_day"))
        )

    def pair_removals(self) -> DataFrame:
        pairs = self._pairs().where(F.col("day") == F.lit(self.day.day))
        removal = F.lit(True).alias("is_removal")
        return pairs.select(F.col("before_k").alias("k"), removal, "pos", "source_ts_ms").distinct()

    def pair_arrivals(self) -> DataFrame:
        """`k`, `pos` (that of the first half), `is_removal` of the day's rows that pairs bring."""
        pairs = self._pairs().where(F.col("after_day") == F.lit(self.day.day))
        first = pairs.groupBy("sequence", F.col("after_k").alias("k")).agg(
            F.min("pos").alias("pos")
        )
        return first.select("k", "pos", F.lit(False).alias("is_removal"))

    def left_keys(self, events: DataFrame, days: Sequence[date]) -> DataFrame:
        """The old keys of key changes, as removals: `k`, and their place before the row's (O4).

        An update says its old key itself (D10). A create whose header says it stands behind the
        delete that takes the row away (D9), and counts only where that one was lost.
        """
        changed = events.where("op IN ('c', 'u') AND ok IS NOT NULL AND NOT (ok <=> k)")
        left = changed.where(LEAVES_KEY)
        if not all(
            facts.is_paired and facts.is_order_known for facts in self.day.facts_on_days(days)
        ):
            elements = compared_elements()
            gone = ("k AS gone", f"{elements} AS gone_at")
            deletes = events.where("op = 'd'").selectExpr(*gone)
            # The delete may have landed on a day before.
            others = [d for d in self.day.window if d not in days]
            if any(facts.ops.get("d") for facts in self.day.facts_on_days(others)):
                earlier = self.events(others).where("op = 'd'")
                deletes = deletes.unionByName(earlier.selectExpr(*gone))
            deletes = deletes.distinct()
            is_it = F.expr(f"ok = gone AND {elements} <=> gone_at")
            lone = changed.where(SAYS_OLD_KEY).join(deletes, is_it, "left_anti")
            left = left.unionByName(lone)
        return left.withColumns(
            {"left_for": F.col("k"), "k": F.col("ok"), "position": F.expr(of_removal("position"))}
        )

    # --- late and repeated events (O12, O15)

    def without_copies(self, moves: DataFrame) -> DataFrame:
        """Moves without those that repeat others."""
        if self.copies is None:
            return moves
        names = ("k", "topic", "landing_date", "position")
        return moves.join(self.copies, list(names), "left_anti")

    @cached_property
    def removed(self) -> DataFrame | None:
        """`k`, `pos` of what was removed in the `late_days` window; None where nothing was.

        Nor where no event meets it: above all that landed before, only an unsent value may be that
        of a row before its removal.
        """
        day = self.day
        if day.is_all_after and not day.may_be_unsent:
            return None
        return self.removed_on(day.window)

    def removed_on(self, days: Sequence[date]) -> DataFrame | None:
        """`k`, `pos` of what was removed on some days; None where nothing was."""
        day = self.day
        past = day.facts_on_days(days)
        if not any(s.removals or s.split_updates for s in past):
            return None
        events = self.events(days)
        removals = events.where("op = 'd'").select("k", "position", *_PLACE)
        left = self.left_keys(events, days)
        removed = self.without_copies(removals.unionByName(left.select("k", "position", *_PLACE)))
        if any(s.tombstones for s in past):
            upserts = events.where(_UPSERT).select("k", "position", *_PLACE)
            of_all = removed.withColumn("is_removal", F.lit(True)).unionByName(
                upserts.withColumn("is_removal", F.lit(False))
            )
            base = self.rows_before(days[0])
            positions = None if base is None else base.select("k", "pos")
            placed = self.placed(of_all, events, days, positions, None)
            removed = placed.where("is_removal").select("k", "pos")
        else:
            removed = removed.select("k", F.col("position").alias("pos"))
        if any(s.split_updates for s in past):
            first, last = F.lit(days[0]), F.lit(days[-1])
            earlier = self._pairs().where(F.col("day").between(first, last))
            removed = removed.unionByName(earlier.select(F.col("before_k").alias("k"), "pos"))
        return removed.where("k IS NOT NULL AND pos IS NOT NULL")

    def guarded(self, moves: DataFrame, removed: DataFrame) -> DataFrame:
        """Drop what an earlier day's removal of the same key beats."""
        beaten = removed.groupBy(F.col("k").alias("rk")).agg(F.max("pos").alias("rpos"))
        return moves.join(
            beaten, (F.col("k") == F.col("rk")) & (F.col("rpos") > F.col("pos")), "left_anti"
        )

    # --- events without a position (O6)

    def base_positions(self, removed: DataFrame | None, rows: DataFrame | None) -> DataFrame | None:
        """`k`, `pos`: the highest event of each key that landed before some day.

        Args:
            removed: what was removed before it.
            rows: the table as it stood before it.
        """
        parts = [frame.select("k", "pos") for frame in (rows, removed) if frame is not None]
        if not parts:
            return None
        both = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        return both.groupBy("k").agg(F.max("pos").alias("pos"))

    def placed(
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
        if any(facts.truncates for facts in self.day.facts_on_days(days)):
            placed = placed.crossJoin(F.broadcast(_cuts(events)))
            known += [cut_before(), _cut_earlier_day()]
        if base is not None:
            bases = base.select(F.col("k").alias("bk"), F.expr(real_part("pos")).alias("base_pos"))
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
        if all(facts.without_position == facts.events for facts in self.day.facts_on_days(days)):
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
    place = ("topic", "partition", "offset", "position", "landing_date", "kafka_time")
    truncates = events.where("op = 't' AND position IS NOT NULL")
    return truncates.agg(F.collect_list(F.struct(*place)).alias("cuts"))


def _cut_earlier_day() -> Column:
    """The highest truncate that landed on a day before; `cuts` lists them."""
    earlier = F.filter("cuts", lambda t: t["landing_date"] < F.col("landing_date"))
    return F.array_max(F.transform(earlier, lambda t: t["position"]))


def _kind(frame: DataFrame, name: str) -> Any:
    return frame.schema[name].dataType
