"""Columns whose value was not sent because it did not change (FORMATS R2, and R1 with keep).

PostgreSQL sends a placeholder for an unchanged TOASTed value. The column keeps its last
known value: of the highest event up to this one that carries one, else the row's own;
after a key change, the old key's row.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.jsontext import field as json_field

_DEFAULT = "__debezium_unavailable_value"
_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"


def placeholder_forms(placeholder: str) -> list[str]:
    """The JSON texts that a placeholder takes, by column type (R2)."""
    codes = json.dumps([ord(char) for char in placeholder], separators=(",", ":"))
    text = json.dumps(placeholder, ensure_ascii=False)
    coded = json.dumps(base64.b64encode(placeholder.encode()).decode())
    pairs = f"{{{text}:{text}}}"
    forms = [text, coded, f"[{text}]", f"[{coded}]", codes, pairs]
    # hstore.handling.mode=json sends the map as text.
    forms.append(json.dumps(pairs, ensure_ascii=False))
    return [*forms, f'["{_UUID}"]'] if placeholder == _DEFAULT else forms


class Unchanged:
    """Which columns of a day hold unsent values, and the columns that carry their last ones.

    The work columns of own column `i` are `u<i>` (its value was not sent), `l<i>` (the last
    one that was: pos, schema_id, json), `r<i>` (the old key's row, after a key change) and
    `f<i>` (the value that these give).
    """

    def __init__(self, placeholder: str, keep_missing: bool, maybe: bool) -> None:
        self._forms = placeholder_forms(placeholder)
        self._keep_missing = keep_missing
        self._maybe = maybe
        self.columns: dict[str, tuple[int, str]] = {}

    @staticmethod
    def flag(index: int) -> str:
        """True where the column's value was not sent."""
        return f"u{index}"

    @staticmethod
    def carried(index: int) -> str:
        """The last value that was sent: STRUCT<pos, schema_id, json>."""
        return f"l{index}"

    @staticmethod
    def fill(index: int) -> str:
        """The last value that was sent, typed."""
        return f"f{index}"

    @staticmethod
    def old_row(index: int) -> str:
        """The value of the row that stood under the old key, after a key change."""
        return f"r{index}"

    @property
    def flags(self) -> list[str]:
        """All flag columns."""
        return [self.flag(index) for index, _ in self.columns.values()]

    @property
    def carried_names(self) -> list[str]:
        """All columns of last values."""
        return [self.carried(index) for index, _ in self.columns.values()]

    def prepare(self, moves: DataFrame, names: Mapping[str, tuple[int, str]]) -> DataFrame:
        """Find the columns concerned and add their flags and values to the day's moves."""
        if self._keep_missing:
            self.columns = dict(names)
        elif self._maybe:
            self.columns = self._columns_with_placeholders(moves, names)
        if not self.columns:
            return moves
        moves = moves.withColumn("row", F.try_parse_json("after"))
        added: dict[str, Column] = {}
        for index, name in self.columns.values():
            value = json_field(F.col("row"), name, "variant")
            unsent = F.coalesce(F.to_json(value).isin(self._forms), F.lit(False))
            if self._keep_missing:
                unsent = unsent | value.isNull()
            added[self.flag(index)] = unsent & ~F.col("is_removal")
            added[f"j{index}"] = F.to_json(value)
        return moves.withColumns(added).drop("row")

    def _columns_with_placeholders(
        self, moves: DataFrame, names: Mapping[str, tuple[int, str]]
    ) -> dict[str, tuple[int, str]]:
        row = F.try_parse_json("after")
        counts = moves.withColumn("row", row).agg(
            *(
                F.count_if(
                    F.to_json(json_field(F.col("row"), name, "variant")).isin(self._forms)
                ).alias(self.flag(index))
                for index, name in names.values()
            )
        )
        found = counts.first()
        assert found is not None
        return {lake: at for lake, at in names.items() if found[self.flag(at[0])]}

    def aggregates(self) -> list[Column]:
        """The last value sent of each column, per key."""
        return [self._last(index).alias(self.carried(index)) for index, _ in self.columns.values()]

    def _last(self, index: int) -> Column:
        sent = ~F.col("is_removal") & ~F.col(self.flag(index))
        value = F.struct("pos", "schema_id", F.col(f"j{index}").alias("json"))
        return F.max(F.when(sent, value))

    def settle(
        self,
        winners: DataFrame,
        moves: DataFrame,
        base: DataFrame | None,
        target: Callable[[], DataFrame | None],
    ) -> DataFrame:
        """Forget values from before the row was removed; look through key changes."""
        if not self.columns:
            return winners
        for index, _ in self.columns.values():
            carried = F.col(self.carried(index))
            alive = F.col("removed_pos").isNull() | (carried["pos"] > F.col("removed_pos"))
            winners = winners.withColumn(self.carried(index), F.when(alive, carried))
        return self._through_key_changes(winners, moves, target)

    def _through_key_changes(
        self, winners: DataFrame, moves: DataFrame, target: Callable[[], DataFrame | None]
    ) -> DataFrame:
        """After a key change the last value is the old key's: its events', else its row's."""
        links = (
            moves.where("link IS NOT NULL AND NOT is_removal")
            .groupBy("k")
            .agg(F.max(F.struct("pos", F.col("link").alias("k"))).alias("link"))
            .select("k", F.col("link.k").alias("old_k"), F.col("link.pos").alias("link_pos"))
        )
        olds = moves.where("NOT is_removal").select(
            F.col("k").alias("old_k"),
            F.col("pos").alias("old_pos"),
            *(
                F.when(
                    ~F.col(self.flag(i)), F.struct("pos", "schema_id", F.col(f"j{i}").alias("json"))
                ).alias(f"o{i}")
                for i, _ in self.columns.values()
            ),
        )
        found = (
            links.join(olds, "old_k", "left")
            .groupBy("k", "old_k", "link_pos")
            .agg(
                *(
                    F.max(F.when(F.col("old_pos") < F.col("link_pos"), F.col(f"o{i}"))).alias(
                        f"o{i}"
                    )
                    for i, _ in self.columns.values()
                )
            )
        )
        rows = target()
        if rows is not None:
            old_rows = rows.select(
                F.col("k").alias("old_k"),
                *(F.col(f"c{i}").alias(f"r{i}") for i, _ in self.columns.values()),
            )
            found = found.join(old_rows, "old_k", "left")
        else:
            found = found.withColumns(
                {self.old_row(i): F.lit(None) for i, _ in self.columns.values()}
            )
        joined = winners.join(
            found.select(
                F.col("k").alias("link_k"),
                "link_pos",
                *(F.col(f"{x}{i}") for x in "or" for i, _ in self.columns.values()),
            ),
            F.col("k") == F.col("link_k"),
            "left",
        )
        for index, _ in self.columns.values():
            own = F.col(self.carried(index))
            is_own = own["pos"] >= F.col("link_pos")
            joined = joined.withColumn(
                self.carried(index),
                F.when(F.col("link_pos").isNull() | is_own, own).otherwise(F.col(f"o{index}")),
            )
        return joined.drop("link_k", *(f"o{i}" for i, _ in self.columns.values()))
