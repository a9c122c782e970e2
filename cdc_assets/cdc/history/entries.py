"""What a day's events do to keys, one after the other, between the versions that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.history import columns as names
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.sqltext import Query, case, literal, literals
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.entry_queue import (
    DELETED,
    LEAVES,
    NUMBER,
    READ,
    REMOVING,
    STOOD,
    TRUNCATED,
)
from cdc_assets.cdc.state.fold_entries import (
    entries_of,
    entries_since,
    for_keys,
    keys_to_fold,
    standing_entries,
    with_image_values,
)
from cdc_assets.cdc.state.fold_unsent import with_unsent_values
from cdc_assets.cdc.state.folding import folded_keys
from cdc_assets.cdc.state.inherited_values import inherit
from cdc_assets.cdc.state.keyed_day import PLACE, KeyedDay
from cdc_assets.cdc.state.placement import (
    highest_positions,
    removed_in_window,
    removed_on,
    with_positions,
)
from cdc_assets.cdc.state.row_sql import standing_values
from cdc_assets.cdc.state.split_updates import first_halves, split_updates, with_link
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.unsent_columns import find_unsent, may_find_unsent
from cdc_assets.cdc.state.unsent_values import NONE_UNSENT, UnsentColumns, stood_value
from cdc_assets.cdc.state.writes import FEW_KEYS

# What ends a version and leaves no row, by `_cdc_closed_by`.
CLOSING = {"d": DELETED, "k": LEAVES, "t": TRUNCATED}
_SENT = "timestamp_micros(try_multiply(coalesce(source_ts_ms, kafka_time), 1000L))"


@dataclass(frozen=True)
class Keys:
    """Some keys of a day: the versions that they have, and what happens to them.

    Attributes:
        keyed: the day.
        start: the first day whose events are read.
        versions: the history as it was before that day; None where it had no row.
        may_fall: a source's clock may have fallen below the times of versions that ended.
        checkpoints: keeps each step: a job each.
        folded: `k`: keys that two rows may hold for a moment.
        is_folded: these are the keys; else all others that the day touches.
        all_stand: the versions of all keys that stand are entries, not only those of keys that the
            day touches: of a small table they need not be looked for.
    """

    keyed: KeyedDay
    start: date
    versions: DataFrame | None
    may_fall: bool
    checkpoints: Checkpoints
    folded: DataFrame | None = None
    is_folded: bool = False
    all_stand: bool = False

    @property
    def _day(self) -> TableDay:
        return self.keyed.day

    @property
    def _columns(self) -> TableColumns:
        return self.keyed.columns

    @cached_property
    def days(self) -> list[date]:
        """The days whose events are read."""
        return self._day.days_from(self.start)

    @property
    def is_late(self) -> bool:
        """May an event stand before one that landed earlier?"""
        day = self._day
        return self.start < day.day or day.may_meet_earlier or day.has_split_updates

    @property
    def has_reads(self) -> bool:
        """May an entry say what a row is, that says nothing new?"""
        facts = self._day.facts_on_days(self.days)
        return self.is_late or any(f.ops.get("r") or f.without_position for f in facts)

    @property
    def _are_few(self) -> bool:
        return self._day.day_facts.events <= FEW_KEYS

    def _own(self, frame: DataFrame) -> DataFrame:
        """The rows of a frame that are of these keys, as far as folding tells them apart."""
        if self.folded is None:
            return frame
        keys = F.broadcast(self.folded) if self._are_few else self.folded
        return frame.join(keys, "k", "left_semi" if self.is_folded else "left_anti")

    def _of_placed(self, frame: DataFrame) -> DataFrame:
        """The rows of a frame whose keys have an entry."""
        return for_keys(frame, self.placed.select("k").distinct(), self._are_few)

    # --- frames, each a checkpoint where it is read more than once

    @cached_property
    def placed(self) -> DataFrame:
        """The entries of the days: `pos`, `time` and the columns of :func:`entries_of`.

        `was_known` is true of truncates that landed before them.
        """
        known, day = self._own(self._known), self._day
        placed = {"pos": "position", "time": _SENT}
        if any(day.facts_on(d).without_position for d in self.days):
            known = self._with_effective_positions(known)
            del placed["pos"]
        if self._truncates:
            with_pos = Query(known).extend({n: s for n, s in placed.items() if n == "pos"}).plan()
            known = with_pos.unionByName(self._at_each_key(with_pos), allowMissingColumns=True)
            placed.pop("pos", None)
            placed["was_known"] = f"kind = '{TRUNCATED}' AND landing_date < {literal(self.start)}"
        entries = Query(known).extend(placed).plan()
        is_read_once = self.all_stand and not (
            self.is_late
            or self.is_folded
            or self._truncates
            or day.may_be_unsent
            or day.open_transactions
        )
        return entries if is_read_once else self.checkpoints.add(entries)

    @cached_property
    def _own_versions(self) -> DataFrame | None:
        """The versions of the keys that an entry may change or end, and the one before them.

        Returns:
            `k`, the value of each column, the columns of a version, and `is_before`: an entry
            changes nothing of it. It says at which time at least the next one begins.
        """
        if self.versions is None:
            return None
        known = [F.col(name) for name in names.VERSION_COLUMNS.names]
        values = standing_values(self.versions.schema, self._columns)
        versions = self.versions.select(*values, *known)
        if not (self.is_late or self.may_fall):
            current = versions.where(F.col(names.TO_POSITION).isNull())
            own = self._own(current) if self.all_stand else self._of_placed(current)
            return own.withColumn("is_before", F.lit(False))
        keys = self.replaced.withColumnRenamed("k", "low_k")
        of_keys = versions.join(F.broadcast(keys) if self._are_few else keys, F.expr("k = low_k"))
        ended = f"coalesce({names.TO_POSITION} < low, false)"
        newest = f"max(CASE WHEN {ended} THEN {names.TO_POSITION} END) OVER (PARTITION BY k)"
        found = Query(of_keys).extend({"is_before": ended, "newest": newest})
        kept = found.where(f"NOT is_before OR {names.TO_POSITION} = newest")
        return self.checkpoints.add(kept.drop("low_k", "low", "newest").plan())

    @property
    def replaced(self) -> DataFrame:
        """`k`, `low`: the versions of these keys that end there or later are replaced."""
        return self.placed.groupBy("k").agg(F.min("pos").alias("low"))

    # --- the entries of the day

    @property
    def _known(self) -> DataFrame:
        """The entries of the days without copies."""
        keyed, day = self.keyed, self._day
        if self.is_folded:
            known = entries_since(keyed, self.start, self.folded, self._are_few)
            is_on = f"NOT is_copy AND landing_date >= {literal(self.start)}"
            return Query(known).where(is_on).drop("is_copy").plan()
        events = with_link(keyed, keyed.events(self.days, with_new_key=True))
        known = keyed.without_copies(entries_of(keyed, events, self.days)).where("k IS NOT NULL")
        if day.has_split_updates:
            known = known.unionByName(self._first_halves(), allowMissingColumns=True)
        return known

    def _first_halves(self) -> DataFrame:
        """The old keys of split updates that are complete on these days, as entries (W3)."""
        pairs = split_updates(self.keyed).where(F.col("day").isin(self.days))
        return first_halves(pairs).withColumnRenamed("pos", "position").distinct()

    def _with_effective_positions(self, entries: DataFrame) -> DataFrame:
        """Events without a position directly after what landed before them (O6)."""
        day = self._day
        before = day.window_before(self.start)
        rows = self._met_by_versions()
        positions = highest_positions(removed_on(self.keyed, before), rows)
        events = self.keyed.events(self.days)
        return with_positions(day, entries, events, self.days, positions, day.truncated(before))

    def _met_by_versions(self) -> DataFrame | None:
        """`k`, `pos`: each version of all keys, at the last position that it has met."""
        if self.versions is None:
            return None
        key, *_ = standing_values(self.versions.schema, self._columns)
        last = F.coalesce(names.TO_POSITION, names.LAST_POSITION)
        return self._own(self.versions.select(key, last.alias("pos")))

    @property
    def _truncates(self) -> list[date]:
        """The days whose truncates have a place among the entries."""
        days = self._day.window_before(self.start) if self.is_late else []
        return [d for d in [*days, *self.days] if self._day.facts_on(d).truncates]

    def _at_each_key(self, entries: DataFrame) -> DataFrame:
        """The truncates, at each key that has an entry or a row."""
        events = self.keyed.events(self._truncates).where("op = 't' AND position IS NOT NULL")
        cuts = events.selectExpr(
            f"'{TRUNCATED}' AS kind", "op", "position AS pos", "source_ts_ms", *PLACE
        )
        keys = entries.select("k")
        if self.versions is not None and self._day.day_facts.truncates:
            current = self.versions.where(F.col(names.TO_POSITION).isNull())
            key, *_ = standing_values(current.schema, self._columns)
            keys = keys.unionByName(self._own(current.select(key)))
        return keys.distinct().crossJoin(F.broadcast(cuts))

    # --- all entries

    def parts(self, unsent: UnsentColumns) -> list[DataFrame]:
        """All that happens to the keys: see :func:`entries_of_all`.

        Args:
            unsent: the columns that entries of the day did not send.
        """
        own = self._with_values(unsent)
        typed = [self._with_standing_values(part, unsent) for part in self._typed_entries(unsent)]
        if not typed:
            nothing = {c.work: f"CAST(NULL AS {c.spark})" for c in self._columns.own}
            nothing["from_position"] = "CAST(NULL AS array<bigint>)"
            own = Query(own).extend({**nothing, "is_typed": "false"}).plan()
        return [own, *typed, *self._closings()]

    def _with_values(self, unsent: UnsentColumns) -> DataFrame:
        """The entries of the days with what folding compares, and what they did not send."""
        if self.is_folded:
            return with_image_values(self.placed, self._columns, unsent)
        if not unsent.columns:
            return self.placed
        keyed, day = self.keyed, self._day
        whole = "CASE WHEN op IN ('u', 'd') AND has_whole_rows THEN before END AS old_image"
        is_removal = f"kind IN ({literals(REMOVING)}) AS is_removal"
        is_truncate = f"kind = '{TRUNCATED}' AS is_truncate"
        changes = self.placed.selectExpr("*", whole, is_removal, is_truncate)
        flagged = unsent.add_to(changes, with_old_images=True)
        past = keyed.rows_before(day.day), removed_in_window(keyed)
        return inherit(flagged, unsent, past, day.has_split_updates, self.checkpoints)

    def _with_standing_values(self, typed: DataFrame, unsent: UnsentColumns) -> DataFrame:
        if self.is_folded:
            present = [] if self.versions is None else self.versions.columns
            return standing_entries(typed, present, self._columns, unsent)
        if not unsent.columns:
            return typed
        return Query(typed).extend({c.last: stood_value(c) for c in unsent.columns}).plan()

    def _typed_entries(self, unsent: UnsentColumns) -> list[DataFrame]:
        """The versions that stood, and the table's rows at the end where they may be others.

        They may where events are late: a removal that landed more than `late_days` ago is not
        looked up any more, so that an event that is older brings its row back, in the table (O12)
        and so in its history. And where values come with rows from other keys.
        """
        found = []
        if self._own_versions is not None:
            found.append(self._stood(self._own_versions))
        if unsent.has_links or (self.is_late and found):
            found.append(self._end())
        return found

    def _stood(self, versions: DataFrame) -> DataFrame:
        return Query(versions).where("NOT is_before").select(
            "k", *(c.work for c in self._columns.own), f"'{STOOD}' AS kind",
            f"{names.OP} AS op", f"{names.FROM_POSITION} AS pos",
            f"{names.VALID_FROM} AS time", f"{names.LANDED} AS landing_date",
            f"{names.FROM_POSITION} AS from_position", "true AS is_typed",
        ).plan()  # fmt: skip

    def _end(self) -> DataFrame:
        day = self._day
        assert day.state is not None  # the table's day is made
        table = day.at(day.state.tags[day.day])
        rows = table.select(*standing_values(table.schema, self._columns))
        keys = self.placed.select("k").distinct()
        stands = keys.join(rows.withColumn("has_row", F.lit(True)), "k", "left")
        kind = case(("has_row", f"'{READ}'"), otherwise=f"'{DELETED}'")
        return Query(stands).select(
            "k", *(c.work for c in self._columns.own), f"{kind} AS kind",
            "CASE WHEN has_row THEN 'r' ELSE 'd' END AS op",
            "CAST(NULL AS array<bigint>) AS pos", "CAST(NULL AS timestamp) AS time",
            "CAST(NULL AS date) AS landing_date",
            "CAST(NULL AS array<bigint>) AS from_position", "true AS is_typed",
        ).plan()  # fmt: skip

    def _closings(self) -> list[DataFrame]:
        """Where versions ended and left no row, and removals lately that ended none (O12)."""
        versions, found = self._own_versions, []
        if versions is not None and (self.is_late or self.may_fall):
            ended = Query(versions).where(f"{names.CLOSED_BY} IN ({literals(CLOSING)})")
            kind = case(*((f"{names.CLOSED_BY} = '{op}'", f"'{k}'") for op, k in CLOSING.items()))
            columns = ("k", f"{kind} AS kind", "'d' AS op", f"{names.TO_POSITION} AS pos")
            times = (f"{names.VALID_TO} AS time", f"{names.LANDED} AS landing_date")
            found.append(ended.select(*columns, *times).plan())
        removed = None
        if self.is_late:
            told = ("kind", "source_ts_ms", "kafka_time", "landing_date")
            removed = removed_on(self.keyed, self._day.window_before(self.start), told)
        if removed is None:
            return found
        removed = self._of_placed(removed)
        if versions is not None:
            spans = versions.selectExpr(
                "k AS span_k", f"{names.FROM_POSITION} AS f", f"{names.TO_POSITION} AS t"
            )
            within = F.expr("k = span_k AND f <= pos AND (t IS NULL OR pos <= t)")
            removed = removed.join(spans, within, "left_anti")
        shown = ("k", "kind", "'d' AS op", "pos", f"{_SENT} AS time", "landing_date")
        found.append(removed.selectExpr(*shown, "true AS was_known"))
        return found


def entries_of_all(parts: Sequence[Keys], unsent: UnsentColumns) -> Query:
    """Each entry of some keys in its order.

    Args:
        parts: the keys, all of which are folded, or none.
        unsent: the columns that entries of the day did not send.

    Returns:
        `k`; `n`, its number; `kind`, `op`, `pos`, `time`, `landing_date`; `after` and `schema_id`,
        or where `is_typed` the value of each column, of a version that stood also `from_position`;
        `top_before` and `top`, the numbers of the entries whose rows are the key's before and after
        it (-1: none). What was not sent is in `OwnColumn.last`. `time` is null of what landed
        before the days of the keys and removes no row: it changed nothing then either.
    """
    frames = [frame for keys in parts for frame in keys.parts(unsent)]
    both = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    found = _in_their_order(both, parts, unsent)
    if "was_known" not in both.columns:
        return found
    says_nothing = "was_known AND top = top_before"
    return found.replace({"time": case((says_nothing, "NULL"), otherwise="time")}).drop("was_known")


def _in_their_order(entries: DataFrame, parts: Sequence[Keys], unsent: UnsentColumns) -> Query:
    if not parts[0].is_folded:
        return _in_order(entries, unsent)
    folded = folded_keys(entries, is_key_alone=not parts[0].keyed.columns.values)
    end = "concat(done.tops, array(coalesce(try_element_at(done.q, -1), -1)))"
    each = folded.select("k", "done.taken AS took", f"{end} AS tops", "inline(es)")
    known = each.extend(
        {"taken": "get(took, n)", "top_before": "get(tops, n)", "top": "get(tops, n + 1)"}
    ).drop("took", "tops", "now", "was")
    checkpoints = parts[0].checkpoints
    frame = checkpoints.add(known.plan())
    return Query(with_unsent_values(frame, unsent, checkpoints) if unsent.columns else frame)


def _in_order(entries: DataFrame, unsent: UnsentColumns) -> Query:
    """The entries in order, the last of which decides, with the values that were not sent (R2)."""
    numbered = Query(entries).extend({"n": NUMBER})
    is_removal = f"kind IN ({literals(REMOVING)})"
    by_key = "PARTITION BY k ORDER BY n"
    steps = numbered.extend({"top": case((is_removal, "-1"), otherwise="n")}).extend(
        {"top_before": f"coalesce(lag(top) OVER ({by_key}), -1)"}
    )
    if not unsent.columns:
        return steps
    # The highest event up to an entry that carries one, since the last removal.
    since = steps.extend({"removals": f"count_if({is_removal}) OVER ({by_key})"})
    sent = "PARTITION BY k, removals ORDER BY n ROWS UNBOUNDED PRECEDING"
    lasts = {
        name: f"last(CASE WHEN NOT {is_removal} THEN {name} END, true) OVER ({sent})"
        for name in unsent.lasts
    }
    return since.replace(lasts).drop("removals")


def keys_of(
    keyed: KeyedDay,
    versions_before: Callable[[date], DataFrame | None],
    may_fall: bool,
    checkpoints: Checkpoints,
    all_stand: bool = False,
) -> tuple[list[list[Keys]], UnsentColumns]:
    """The keys of a day, those that are folded apart, and the columns that were not sent.

    Args:
        versions_before: the history as it was before a day.
        may_fall: a source's clock may have fallen below the times of versions that ended.
        all_stand: as :attr:`Keys.all_stand`.
    """
    day = keyed.day
    versions = versions_before(day.day)
    plain = Keys(keyed, day.day, versions, may_fall, checkpoints, all_stand=all_stand)
    unsent = find_unsent(keyed, plain.placed) if may_find_unsent(day) else NONE_UNSENT
    if not day.may_hold_keys_twice:
        return [[plain]], unsent
    found = keys_to_fold(keyed, unsent, checkpoints)
    counts = ("count_if(is_needed) AS needed", "collect_set(start) AS starts")
    known = found.selectExpr(*counts).first()
    assert known is not None
    if not known.needed:
        return [[plain]], unsent
    others, parts = replace(plain, folded=found.select("k")), []
    for start in sorted(known.starts):
        own = found.where(F.col("start") == F.lit(start)).select("k")
        before = versions_before(start)
        parts.append(Keys(keyed, start, before, may_fall, checkpoints, own, is_folded=True))
    return [[others], parts], unsent
