"""Keys that two rows may hold for a moment: their events are folded one by one (O16).

Within a transaction of a database that checks keys at its end a key holds a queue: the row that
stood there, then each row that arrives; an update or delete takes the row of it that its `before`
names. Most days have no such key (see :mod:`cdc_assets.cdc.changes.order_facts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.positions import literal_position
from cdc_assets.cdc.spark import is_small
from cdc_assets.cdc.sqltext import Query, case, literal
from cdc_assets.cdc.state.entry_queue import NUMBER, STOOD, fold_entries
from cdc_assets.cdc.state.fold_entries import (
    entries_since,
    for_keys,
    keys_to_fold,
    standing_entries,
    with_image_values,
)
from cdc_assets.cdc.state.fold_unsent import with_unsent_values
from cdc_assets.cdc.state.keyed_day import KeyedDay
from cdc_assets.cdc.state.placement import above_rows, placed_entries, removed_before
from cdc_assets.cdc.state.row_sql import with_typed_columns
from cdc_assets.cdc.state.unsent_values import UnsentColumns


@dataclass(frozen=True)
class Folded:
    """What folding came to.

    `keys` are the keys that were folded (`k`). `rows` has one row of each that events of the day
    reach: as `with_typed_columns` gives them, and `is_folded`. `unresolved` of them lack a value
    that was not sent.
    """

    keys: DataFrame
    rows: DataFrame
    unresolved: int


def fold(
    keyed: KeyedDay, removed: DataFrame | None, unsent: UnsentColumns, checkpoints: Checkpoints
) -> Folded | None:
    """Fold the keys of the day that need it; None where none does.

    Args:
        removed: `k`, `pos` of what was removed in the `late_days` window.
        checkpoints: keeps each step: a job each.
    """
    found = keys_to_fold(keyed, unsent, checkpoints)
    counts = ("count(*) AS n", "count_if(is_needed) AS needed", "collect_set(start) AS starts")
    known = found.selectExpr(*counts).first()
    assert known is not None
    if not known.needed:
        return None
    folding = _Folding(keyed, removed, unsent, checkpoints, is_small(known.n))
    ends = [
        folding.ends(start, found.where(F.col("start") == F.lit(start)).select("k"))
        for start in sorted(known.starts)
    ]
    rows, unresolved = folding.rows(reduce(DataFrame.unionByName, ends))
    return Folded(found.select("k"), rows, unresolved)


def folded_keys(entries: DataFrame, is_key_alone: bool) -> Query:
    """Fold the entries of each key in their order, the row that stood there first.

    Args:
        entries: as :func:`with_image_values` gives them, with `pos`, and what stood.
        is_key_alone: rows have no other columns than the key's.

    Returns:
        `k`; `es`, the entries with their numbers `n`; `last`, the highest position; `done`, what
        :func:`fold_entries` gives.
    """
    numbered = Query(entries).extend({"n": NUMBER})
    others = [quote(name) for name in sorted(entries.columns) if name not in ("k", "n")]
    listed = f"collect_list(struct(n, {', '.join(others)}))"
    aggregates = {"es": f"array_sort({listed}, (l, r) -> l.n - r.n)", "last": "max(pos)"}
    return numbered.aggregate(("k",), aggregates).extend({"done": fold_entries("es", is_key_alone)})


@dataclass(frozen=True)
class _Folding:
    """The fold of some keys of a day."""

    keyed: KeyedDay
    removed: DataFrame | None
    unsent: UnsentColumns
    checkpoints: Checkpoints
    are_few: bool

    def ends(self, start: date, keys: DataFrame) -> DataFrame:
        """Keys with their entries and what the fold leaves.

        Args:
            start: the day from whose beginning they are folded.
            keys: `k`.

        Returns:
            `k`; `es`, the entries in their order, the row that stood there first; `took`, of each
            the number of the entry whose row it takes (-1: none); `top`, that of the row that is
            left (-1: none); `last`, the highest position; `is_reached`, by an event of the day.
        """
        keyed, columns = self.keyed, self.keyed.columns
        base = keyed.rows_before(start)
        if base is not None:
            base = self.checkpoints.add(for_keys(base, keys, self.are_few))
        placed = self._placed(start, keys, base)
        cut = keyed.day.truncated(keyed.day.days_from(start))
        if base is not None and cut is not None:
            base = base.where(F.col("pos") >= literal_position(cut))
        if base is not None:
            placed = above_rows(placed, base)
        values = with_image_values(self.checkpoints.add(placed), columns, self.unsent)
        if base is None:
            nothing = {c.work: f"CAST(NULL AS {c.spark})" for c in columns.own}
            nothing["stood_source_ts_ms"] = "CAST(NULL AS bigint)"
            return self._folded(Query(values).extend(nothing).plan())
        base = Query(base).extend({"kind": f"'{STOOD}'"}).plan()
        stood = standing_entries(base, keyed.columns_before(start), columns, self.unsent)
        return self._folded(values.unionByName(stood, allowMissingColumns=True))

    def _placed(self, start: date, keys: DataFrame, base: DataFrame | None) -> DataFrame:
        """The entries that are newer than truncates, and than what was removed before."""
        # Plans are made anew by each step: what is behind a checkpoint is not.
        known = self.checkpoints.add(entries_since(self.keyed, start, keys, self.are_few))
        removed = removed_before(self.keyed, start, known, self.removed)
        if removed is not None:
            removed = self.checkpoints.add(for_keys(removed, keys, self.are_few))
        placed = placed_entries(self.keyed, start, known, removed, base)
        cut = self.keyed.day.truncated(self.keyed.day.days_from(start))
        return placed if cut is None else placed.where(F.col("pos") > literal_position(cut))

    def _folded(self, entries: DataFrame) -> DataFrame:
        folded = folded_keys(entries, is_key_alone=not self.keyed.columns.values)
        top = "coalesce(try_element_at(done.q, -1), -1) AS top"
        is_today = f"e -> e.landing_date = {literal(self.keyed.day.day)}"
        is_reached = f"exists(es, {is_today}) AS is_reached"
        return folded.select("k", "last", "es", "done.taken AS took", top, is_reached).plan()

    # --- rows

    def rows(self, ends: DataFrame) -> tuple[DataFrame, int]:
        """The rows that are left, typed, and how many lack a value that was not sent."""
        typed = Query(with_typed_columns(self._picked(ends), self.keyed.columns, self.unsent))
        rows = typed.extend({"is_folded": "true"})
        dropped = ["has_stood", *(c.stood for c in self.keyed.columns.own)]
        unresolved, unsent = 0, self.unsent.columns
        if unsent:
            lacks = " OR ".join(f"({c.unsent} <=> true AND {c.last} IS NULL)" for c in unsent)
            kept = self.checkpoints.add(rows.extend({"lacks": lacks}).plan())
            found = kept.selectExpr("count_if(lacks AND NOT is_removal) AS n").first()
            assert found is not None
            unresolved, rows = found.n, Query(kept)
            dropped += ["lacks", *self.unsent.flags]
            dropped += [name for c in unsent for name in (c.last, c.fill)]
        values = {}
        for c in self.keyed.columns.own:
            value = c.work
            if c in unsent:
                value = case((f"{c.unsent} <=> true", c.fill), otherwise=c.work)
            values[c.work] = case(("has_stood", c.stood), otherwise=value)
        return rows.replace(values).drop(*dropped).plan(), unresolved

    def _picked(self, ends: DataFrame) -> DataFrame:
        """The entry that each key ends with, and `has_stood` where its row stood in the table."""
        columns, unsent = self.keyed.columns.own, self.unsent
        if unsent.columns:
            entries = Query(ends).select("k", "last", "top", "took", "is_reached", "inline(es)")
            numbered = entries.extend({"taken": "get(took, n)"}).drop("took")
            kept = self.checkpoints.add(numbered.plan())
            known = with_unsent_values(kept, unsent, self.checkpoints)
            left = Query(known).where("is_reached AND n = greatest(top, 0)")
        else:
            one = "inline(array(get(es, greatest(top, 0))))"
            left = Query(ends).where("is_reached").select("k", "last", "top", one)
        stood = f"kind = '{STOOD}' AND top >= 0"
        time = f"CASE WHEN {stood} THEN stood_source_ts_ms ELSE source_ts_ms END"
        return left.select(
            "k", "top < 0 AS is_removal", "last AS pos", f"{stood} AS has_stood",
            f"{time} AS source_ts_ms",
            "CASE WHEN top >= 0 THEN after END AS after", "schema_id",
            *(f"{c.work} AS {c.stood}" for c in columns),
            *(f"{name} AND top >= 0 AS {name}" for name in unsent.flags),
            *unsent.lasts,
            *(["CAST(NULL AS string) AS old_image"] if unsent.columns else []),
        ).plan()  # fmt: skip
