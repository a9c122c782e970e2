"""Columns whose value was not sent because it did not change (FORMATS R2, and R1 with keep).

PostgreSQL sends a placeholder for an unchanged TOASTed value. The column keeps its last
known value: of the highest event up to this one that carries one, else the row's own;
after a key change, the old key's row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.config import PLACEHOLDER
from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.positions import is_one_change, of_removal
from cdc_assets.cdc.sqltext import Query, Sql, case, is_one_of
from cdc_assets.cdc.values.placeholders import placeholder_forms
from cdc_assets.cdc.values.readers import member


class Unchanged:
    """Which columns of a day hold unsent values, and the columns that carry their last ones.

    The work columns of own column `i` are `u<i>` (its value was not sent), `l<i>` (the last
    one that was: STRUCT<json, schema_id, row>, `row` a typed value that stood in the table)
    and `f<i>` (the value that it gives).
    """

    def __init__(
        self, placeholder: str, keep_missing: bool, maybe: bool, has_halves: bool = False
    ) -> None:
        self._forms = placeholder_forms(placeholder)
        self._keep_missing = keep_missing
        self._maybe = maybe
        self._has_halves = has_halves
        self.has_links = False
        self.columns: dict[str, tuple[int, str, str]] = {}

    @staticmethod
    def flag(index: int) -> str:
        """True where the column's value was not sent."""
        return f"u{index}"

    @staticmethod
    def carried(index: int) -> str:
        """The last value that was sent: STRUCT<json, schema_id, row>."""
        return f"l{index}"

    @staticmethod
    def carried_pos(index: int) -> str:
        """The position of the event that carries it."""
        return f"p{index}"

    @staticmethod
    def fill(index: int) -> str:
        """The last value that was sent, typed."""
        return f"f{index}"

    @property
    def indexes(self) -> list[int]:
        """The numbers of the columns concerned."""
        return [index for index, _, _ in self.columns.values()]

    @property
    def flags(self) -> list[str]:
        """All flag columns."""
        return [self.flag(index) for index in self.indexes]

    @property
    def carried_names(self) -> list[str]:
        """All columns of last values."""
        return [of(index) for index in self.indexes for of in (self.carried, self.carried_pos)]

    def find(self, moves: DataFrame, own: Mapping[str, tuple[int, str, str]]) -> None:
        """Find the columns that the day's moves leave unsent: a job, if any may.

        Args:
            moves: the day's moves.
            own: index, name in messages and type of each column of the table.
        """
        if self._keep_missing or self._maybe:
            self.columns = self._concerned(moves, own)

    def is_unsent(self, image: Sql, name: str) -> Sql:
        """True where an image, a JSON text, has a column whose value was not sent."""
        value = f"to_json({member(f'try_parse_json({image})', name)})"
        return is_one_of(value, self._forms)

    def value_in(self, image: Sql, name: str, condition: Sql) -> Sql:
        """A column's value in an image, as :meth:`carried`; null where it was not sent there."""
        value = f"to_json({member(f'try_parse_json({image})', name)})"
        kind = next(kind for _, known, kind in self.columns.values() if known == name)
        is_sent = f"{condition} AND {value} IS NOT NULL AND NOT {self.is_unsent(image, name)}"
        held = f"named_struct('json', {value}, 'schema_id', schema_id, 'row', CAST(NULL AS {kind}))"
        return case((is_sent, held))

    def add_to(self, moves: DataFrame, with_old_images: bool = False) -> DataFrame:
        """Add flags and values of the columns that :meth:`find` found.

        Args:
            moves: has `after`, `schema_id` and `is_removal`.
            with_old_images: and `old_image`, which has what was not sent, and what a removal took.
        """
        if not self.columns:
            return moves
        opened = Query(moves).extend({"row": "try_parse_json(after)"})
        texts = {f"j{i}": f"to_json({member('row', n)})" for i, n, _ in self.columns.values()}
        flags: dict[str, Sql] = {}
        for index, _, _ in self.columns.values():
            unsent = is_one_of(f"j{index}", self._forms)
            if self._keep_missing:
                unsent = f"({unsent} OR j{index} IS NULL)"
            flags[self.flag(index)] = f"{unsent} AND NOT is_removal"
        carried: dict[str, Sql] = {}
        for index, name, kind in self.columns.values():
            sent = (
                f"named_struct('json', j{index}, 'schema_id', schema_id, "
                f"'row', CAST(NULL AS {kind}))"
            )
            is_sent = f"NOT is_removal AND NOT {self.flag(index)}"
            known = [(is_sent, sent)]
            if with_old_images:
                known.append(("old_image IS NOT NULL", self.value_in("old_image", name, "true")))
            carried[self.carried(index)] = case(*known)
        found = opened.extend(texts).extend(flags).extend(carried)
        return found.drop("row", *texts).plan()

    def _concerned(
        self, moves: DataFrame, own: Mapping[str, tuple[int, str, str]]
    ) -> dict[str, tuple[int, str, str]]:
        """The columns with unsent values; and whether any key changed."""
        unsent = {
            self.flag(index): is_one_of(f"to_json({member('row', name)})", self._forms)
            for index, name, _ in own.values()
            if not self._keep_missing
        }
        counts = {"links": "count_if(link IS NOT NULL)"}
        counts |= {flag: f"count_if({sql})" for flag, sql in unsent.items()}
        opened = Query(moves).extend({"row": "try_parse_json(after)"})
        found = opened.aggregate((), counts).plan().first()
        assert found is not None
        self.has_links = bool(found.links)
        if self._keep_missing:
            return dict(own)
        return {lake: at for lake, at in own.items() if found[self.flag(at[0])]}

    # --- key changes

    def inherit(
        self,
        moves: DataFrame,
        removed: DataFrame | None,
        target: Callable[[], DataFrame | None],
        checkpoints: Checkpoints,
    ) -> DataFrame:
        """Give an event that changed the key, for what it did not send, the old key's values.

        The old key's values may be inherited too (a→b→c): each round looks one change further,
        and most days have none. A removal of the old key ends the search, unless it is part of
        the same change.

        Args:
            moves: the day's moves as :meth:`add_to` gives them.
            removed: `k`, `pos` of removals on the days looked back on.
            target: the table at the end of the day before.
            checkpoints: keeps the few rows of each round.
        """
        if not self.columns or not self.has_links:
            return moves
        lacking = F.lit(False)
        for flag in self.flags:
            lacking = lacking | F.col(flag)
        concerned = moves.where(F.col("link").isNotNull() & lacking)
        movers = checkpoints.add(concerned.select("k", "pos", "link").distinct())
        past = self._past(movers, removed, target)
        inherited = self._of_old_keys(movers, moves, past)
        chained = movers
        while not (chained := checkpoints.add(self._chained(chained))).isEmpty():
            inherited = checkpoints.add(inherited)
            inherited = self._of_old_keys(movers, self._with(moves, inherited), past)
        return self._with(moves, inherited)

    def _past(
        self,
        movers: DataFrame,
        removed: DataFrame | None,
        target: Callable[[], DataFrame | None],
    ) -> DataFrame | None:
        """Entries of old keys from before the day: the rows that stood there, and removals."""
        olds = movers.select(F.col("link").alias("k")).distinct()
        parts = []
        rows = target()
        if rows is not None:
            values = {
                self.carried(i): F.struct(
                    F.lit(None).cast("string").alias("json"),
                    F.lit(None).cast("string").alias("schema_id"),
                    F.col(f"c{i}").alias("row"),
                )
                for i in self.indexes
            }
            standing = rows.join(olds, "k", "left_semi").withColumns(values)
            parts.append(standing.select("k", "pos", F.lit(False).alias("is_removal"), *values))
        if removed is not None:
            gone = removed.join(olds, "k", "left_semi").withColumn("is_removal", F.lit(True))
            parts.append(gone)
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0]
        return parts[0].unionByName(parts[1], allowMissingColumns=True)

    @staticmethod
    def _chained(movers: DataFrame) -> DataFrame:
        """Those key changes whose old key itself came of one of these."""
        earlier = movers.select(F.col("k").alias("via"), F.col("pos").alias("via_pos"))
        follows = (F.col("link") == F.col("via")) & (F.col("via_pos") < F.col("pos"))
        return movers.join(earlier, follows, "left_semi")

    def _with(self, moves: DataFrame, inherited: DataFrame) -> DataFrame:
        of = inherited.select(
            F.col("k").alias("mover_k"),
            F.col("pos").alias("mover_pos"),
            *(F.col(self.carried(i)).alias(f"i{i}") for i in self.indexes),
        )
        same = (F.col("k") == F.col("mover_k")) & (F.col("pos") == F.col("mover_pos"))
        known = {
            self.carried(i): F.coalesce(
                self.carried(i), F.when(~F.col("is_removal"), F.col(f"i{i}"))
            )
            for i in self.indexes
        }
        return (
            moves.join(of, same, "left")
            .withColumns(known)
            .drop("mover_k", "mover_pos", *(f"i{i}" for i in self.indexes))
        )

    def _of_old_keys(
        self, movers: DataFrame, moves: DataFrame, past: DataFrame | None
    ) -> DataFrame:
        """`k`, `pos` of key changes, and the last values of the old key below each."""
        names = [self.carried(i) for i in self.indexes]
        entries = moves.select("k", "pos", "is_removal", *names)
        if past is not None:
            entries = entries.unionByName(past, allowMissingColumns=True)
        olds = entries.select(
            F.col("k").alias("old_k"),
            F.col("pos").alias("old_pos"),
            F.col("is_removal").alias("is_gone"),
            *(F.col(name).alias(f"o{i}") for i, name in zip(self.indexes, names, strict=True)),
        )
        below = (F.col("link") == F.col("old_k")) & (F.col("old_pos") < F.col("pos"))
        same_change = is_one_change("old_pos", "pos", self._has_halves)
        own = f"({same_change} OR old_pos = {of_removal('pos')})"
        left_at = f"max(CASE WHEN is_gone AND {own} THEN old_pos END) OVER (PARTITION BY k, pos)"
        # Where this change took the row away: what stood before that is what it was.
        found = Query(movers.join(olds, below)).extend({"left_at": f"coalesce({left_at}, pos)"})
        gone_before = f"is_gone AND NOT {own} AND old_pos < left_at"
        aggregates = {"ended": f"max({case((gone_before, 'old_pos'))})"}
        for i in self.indexes:
            is_known = f"o{i} IS NOT NULL AND NOT is_gone AND old_pos < left_at"
            at = case((is_known, "old_pos"))
            of_image = case((f"o{i} IS NOT NULL AND is_gone AND {own}", "old_pos"))
            aggregates |= {f"o{i}": f"max_by(o{i}, {at})", f"at{i}": f"max({at})"}
            aggregates[f"image{i}"] = f"max_by(o{i}, {of_image})"
        last = {i: case((f"ended IS NULL OR at{i} > ended", f"o{i}")) for i in self.indexes}
        known = (f"coalesce(image{i}, {last[i]}) AS {self.carried(i)}" for i in self.indexes)
        grouped = found.aggregate(("k", "pos"), aggregates)
        return grouped.select("k", "pos", *known).plan()

    # --- winners

    def aggregates(self) -> dict[str, Sql]:
        """The last value known of each column, per key, and where."""
        found: dict[str, Sql] = {}
        for index in self.indexes:
            value, at = self.carried(index), self.carried_pos(index)
            known = f"CASE WHEN {value} IS NOT NULL THEN pos END"
            found |= {value: f"max_by({value}, {known})", at: f"max({known})"}
        return found

    def settled(self) -> dict[str, Sql]:
        """The carried columns without values from before the row was removed."""
        alive = {
            index: f"removed_pos IS NULL OR {self.carried_pos(index)} > removed_pos"
            for index in self.indexes
        }
        return {
            of(index): case((alive[index], of(index)))
            for index in self.indexes
            for of in (self.carried, self.carried_pos)
        }


NONE_UNSENT = Unchanged(PLACEHOLDER, keep_missing=False, maybe=False)
