"""Columns whose value was not sent because it did not change (FORMATS R2, and R1 with keep).

PostgreSQL sends a placeholder for an unchanged TOASTed value. The column keeps its last
known value: of the highest event up to this one that carries one, else the row's own;
after a key change, the old key's row (:mod:`cdc_assets.cdc.state.inherited_values`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from cdc_assets.cdc.sqltext import Query, Sql, case, is_one_of
from cdc_assets.cdc.state.day_types import OwnColumn
from cdc_assets.cdc.values.json_value import member


@dataclass(frozen=True)
class UnsentColumns:
    """The columns that events of a day leave unsent, and how their last values are carried.

    `placeholders` are the JSON texts that stand for such a value. `are_absent`: a column that an
    image does not have is unsent, too (R1). `has_links`: an event of the day changes a key, so
    that what was not sent may come with the row from another one.
    """

    columns: tuple[OwnColumn, ...] = ()
    placeholders: tuple[str, ...] = ()
    are_absent: bool = False
    has_links: bool = False

    @property
    def flags(self) -> list[str]:
        """The work columns that say whether a value was not sent."""
        return [c.unsent for c in self.columns]

    @property
    def lasts(self) -> list[str]:
        """The work columns of last values."""
        return [c.last for c in self.columns]

    @property
    def carried(self) -> list[str]:
        """The work columns of last values and of their positions."""
        return [name for c in self.columns for name in (c.last, c.last_pos)]

    def is_unsent(self, image: Sql, name: str) -> Sql:
        """True where an image, a JSON text, has a column whose value was not sent."""
        return is_one_of(_json_in(image, name), self.placeholders)

    def value_in(self, image: Sql, c: OwnColumn, condition: Sql) -> Sql:
        """A column's value in an image, as `OwnColumn.last`; null where it was not sent there."""
        value = _json_in(image, c.name)
        is_sent = f"{condition} AND {value} IS NOT NULL AND NOT {self.is_unsent(image, c.name)}"
        return case((is_sent, sent_value(value, c)))

    def add_to(self, changes: DataFrame, with_old_images: bool = False) -> DataFrame:
        """Add `unsent` and `last` of the columns.

        Args:
            changes: has `after`, `schema_id` and `is_removal`.
            with_old_images: and `old_image`, which has what was not sent, and what a removal took.
        """
        if not self.columns:
            return changes
        opened = Query(changes).extend({"row": "try_parse_json(after)"})
        texts = {f"j{c.index}": f"to_json({member('row', c.name)})" for c in self.columns}
        flags: dict[str, Sql] = {}
        lasts: dict[str, Sql] = {}
        for text, c in zip(texts, self.columns, strict=True):
            unsent = is_one_of(text, self.placeholders)
            if self.are_absent:
                unsent = f"({unsent} OR {text} IS NULL)"
            flags[c.unsent] = f"{unsent} AND NOT is_removal"
            known = [(f"NOT is_removal AND NOT {c.unsent}", sent_value(text, c))]
            if with_old_images:
                known.append(("old_image IS NOT NULL", self.value_in("old_image", c, "true")))
            lasts[c.last] = case(*known)
        found = opened.extend(texts).extend(flags).extend(lasts)
        return found.drop("row", *texts).plan()

    def aggregates(self) -> dict[str, Sql]:
        """The last value known of each column, per key, and where."""
        found: dict[str, Sql] = {}
        for c in self.columns:
            known = f"CASE WHEN {c.last} IS NOT NULL THEN pos END"
            found |= {c.last: f"max_by({c.last}, {known})", c.last_pos: f"max({known})"}
        return found

    def after_removal(self) -> dict[str, Sql]:
        """The aggregates without values from before the row was removed."""
        return {
            name: case((f"removed_pos IS NULL OR {c.last_pos} > removed_pos", name))
            for c in self.columns
            for name in (c.last, c.last_pos)
        }


NONE_UNSENT = UnsentColumns()


def sent_value(json: Sql, c: OwnColumn) -> Sql:
    """An event's value as `OwnColumn.last`."""
    return f"named_struct('json', {json}, 'schema_id', schema_id, 'row', CAST(NULL AS {c.spark}))"


def stood_value(c: OwnColumn) -> Sql:
    """The value of a row that stood in the table as `OwnColumn.last`."""
    no_text = "CAST(NULL AS string)"
    return f"named_struct('json', {no_text}, 'schema_id', {no_text}, 'row', {c.work})"


def _json_in(image: Sql, name: str) -> Sql:
    return f"to_json({member(f'try_parse_json({image})', name)})"
