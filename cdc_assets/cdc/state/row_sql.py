"""Images → typed columns, keys → structs of the table's types: pure functions of its columns."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets.cdc.json_reader import Wanted, read, value_at
from cdc_assets.cdc.names import column, quote
from cdc_assets.cdc.sqltext import Query, Sql, case, get, literal
from cdc_assets.cdc.state.day_types import OwnColumn, TableColumns
from cdc_assets.cdc.state.unsent_values import NONE_UNSENT, UnsentColumns
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.grown import grown
from cdc_assets.cdc.values.json_value import At, InVariant, itself, of_member
from cdc_assets.cdc.values.readers import read_key, read_value


def with_typed_columns(
    rows: DataFrame, columns: TableColumns, unsent: UnsentColumns = NONE_UNSENT
) -> DataFrame:
    """As :func:`typed_columns`, of the rows of a frame."""
    return typed_columns(Query(rows), columns, unsent).plan()


def typed_columns(rows: Query, columns: TableColumns, unsent: UnsentColumns = NONE_UNSENT) -> Query:
    """Each row's image `after` as typed columns: `OwnColumn.work`, `unfit` and `contradicted`.

    Args:
        rows: `k` (where the table has a key), `after`, `schema_id`; of unsent columns also
            `old_image` and their `unsent` and `last`, from which their `fill` is made.
    """
    image = _Image()
    values: dict[str, Sql] = {}
    unfit: dict[str, Sql] = {}
    fills: dict[str, Sql] = {}
    key_work = dict(zip(columns.key_names, columns.key_work, strict=True))
    for c in columns.own:
        at = _InImage(image, c)
        value, is_sent = _value(columns, at, c, "schema_id"), f"{at.text} IS NOT NULL"
        if c.name in key_work:
            # D5: key columns hold the key, whatever the image says of them.
            key = f"k.{key_work[c.name]}"
            values[c.contradicted] = f"{is_sent} AND NOT ({value} <=> {key})"
            values[c.work], unfit[c.unfit] = key, "CAST(NULL AS string)"
            continue
        if c in unsent.columns:
            is_sent = f"{is_sent} AND NOT {c.unsent}"
            value = case((f"NOT {c.unsent}", value))
            fills[c.fill] = _fill(columns, unsent, c)
        values[c.work] = value
        json_sent = value_at("after", literal(c.name))
        unfit[c.unfit] = case((f"{c.work} IS NULL AND {is_sent}", json_sent))
    # What was sent is asked for where there is no value alone, and so a step later.
    opened = rows.extend({"image": read("after", **image.wanted)})
    valued = opened.extend(values).extend({**unfit, **fills})
    old_image = ["old_image"] if unsent.columns else []
    return valued.drop("image", "after", *old_image)


@dataclass(frozen=True)
class _Image:
    """What is read of the image of a row, into the struct `image`."""

    _columns: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, wanted: str, c: OwnColumn) -> Sql:
        """Where it is."""
        return f"image.{self._columns.setdefault((c.name, wanted), f'{wanted}_{c.index}')}"

    @property
    def wanted(self) -> dict[str, Wanted]:
        """In the order that the image has, in which the reader looks for them."""
        ordered = sorted(self._columns.items(), key=lambda item: item[0][0].encode("utf-16-be"))
        return {column: (wanted, name) for (name, wanted), column in ordered}


@dataclass(frozen=True)
class _InImage:
    """A column's value in the image of a row."""

    image: _Image
    column: OwnColumn

    def __call__(self, kind: str) -> Sql:
        if kind == "string":
            return self.text
        document = f"try_parse_json({self.image.add('json', self.column)})"
        return document if kind == "variant" else get(document, "$", kind)

    @property
    def text(self) -> Sql:
        return self.image.add("text", self.column)

    @property
    def is_string(self) -> Sql:
        return f"coalesce({self.image.add('kind', self.column)} = 'string', false)"

    @property
    def is_double(self) -> Sql:
        # An image is canonical: a double stands there with an exponent, or as digits.
        return f"({self.image.add('kind', self.column)} = 'number' AND contains({self.text}, 'E'))"


def _fill(columns: TableColumns, unsent: UnsentColumns, c: OwnColumn) -> Sql:
    """The last value that was sent: of a row of the table, an event's JSON, or the old image."""
    sent = itself(f"try_parse_json({c.last}.json)")
    value = _value(columns, sent, c, f"{c.last}.schema_id")
    last = f"coalesce(CAST({c.last}.row AS {c.spark}), {value})"
    old = _value(columns, of_member("try_parse_json(old_image)", c.name), c, "schema_id")
    is_unsent = unsent.is_unsent("old_image", c.name)
    return f"coalesce({last}, CASE WHEN NOT {is_unsent} THEN {old} END)"


def _value(columns: TableColumns, at: At, c: OwnColumn, schema_id: Sql) -> Sql:
    """The value by its schema's type; one branch a type, not one a schema."""
    ids: dict[types.ColumnType | None, list[str | None]] = {}
    for schema, named in columns.types.by_schema.items():
        ids.setdefault(named.get(c.name), []).append(schema)
    # The latest stands last: what a schema does not name is read so, too.
    latest = columns.types.latest.get(c.name)
    kinds = sorted((kind for kind in ids if kind is not None), key=lambda kind: kind == latest)
    if not kinds and c.name in columns.inferred:
        # Inferred on an earlier day; today only an old row may have it.
        kinds = [types.inferred_as(c.spark)]
    if not kinds:
        return f"CAST(NULL AS {c.spark})"
    *others, last = kinds
    return case(
        *(
            (
                " OR ".join(f"{schema_id} <=> {literal(schema)}" for schema in ids[kind]),
                read_value(at, kind, c.spark),
            )
            for kind in others
        ),
        otherwise=read_value(at, last, c.spark),
    )


def lacking_values(rows: DataFrame, base: DataFrame | None, unsent: UnsentColumns) -> DataFrame:
    """The rows that hold an unsent value which nothing known fills (R2).

    Args:
        rows: the day's winners, typed.
        base: the rows that stand in the table: `k`, `pos`.
    """
    is_open = F.lit(False)
    for c in unsent.columns:
        is_open = is_open | (F.col(c.unsent) & F.col(c.fill).isNull())
    lacking = rows.where(is_open & ~F.col("is_removal"))
    if base is None:
        return lacking
    known = base.select(F.col("k").alias("bk"), F.col("pos").alias("bpos"))
    still = F.col("removed_pos").isNull() | (F.col("removed_pos") < F.col("bpos"))
    return lacking.join(known, (F.col("k") == F.col("bk")) & still, "left_anti")


# --- keys


def with_keys(events: DataFrame, columns: TableColumns, with_new_key: bool = False) -> DataFrame:
    """Add `k` and `ok`: key and old key as structs of the table's own types.

    Args:
        with_new_key: add `nk`, too, the key that a leaving row takes.
    """
    texts = {"k": "key", "ok": "old_key", **({"nk": "new_key"} if with_new_key else {})}
    complete = {
        k: " AND ".join(f"{k}t.{work} IS NOT NULL" for work in columns.key_work) for k in texts
    }
    docs = Query(events).extend({f"{k}v": _document(columns, t) for k, t in texts.items()})
    typed = docs.extend({f"{k}t": _key_struct(columns, f"{k}v") for k in texts})
    keyed = typed.extend({k: case((complete[k], f"{k}t")) for k in texts})
    return keyed.drop(*(f"{k}{part}" for k in texts for part in "vt")).plan()


def key_types(columns: TableColumns) -> list[str]:
    """The Spark types of the key's members."""
    kinds = {c.name: c.spark for c in columns.own}
    return [kinds[name] for name in columns.key_names]


def _are_whole(columns: TableColumns) -> bool:
    """Are all key columns whole numbers, which need no VARIANT to be exact?"""
    return all(kind in ("int", "bigint") for kind in key_types(columns))


def _document(columns: TableColumns, key: Sql) -> Sql:
    if not _are_whole(columns):
        return f"try_parse_json({key})"
    names = columns.key_names
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


def _key_struct(columns: TableColumns, document: Sql) -> Sql:
    members = (
        f"{literal(work)}, {read_key(_key_member(columns, document, name), kind)}"
        for name, work, kind in zip(
            columns.key_names, columns.key_work, key_types(columns), strict=True
        )
    )
    return f"named_struct({', '.join(members)})"


def _key_member(columns: TableColumns, document: Sql, name: str) -> At:
    if not _are_whole(columns):
        return of_member(document, name)
    return InVariant(lambda _: f"{document}.{quote(name)}")


def standing_values(schema: StructType, columns: TableColumns) -> list[Column]:
    """`k` and the value of each column of rows that stand in a table, as the day's types.

    Args:
        schema: of the table; it has the types of its own day.
    """
    present = set(schema.names)
    key = F.struct(
        *(
            (column(name) if name in present else F.lit(None)).cast(kind).alias(work)
            for name, kind, work in zip(
                columns.key_names, key_types(columns), columns.key_work, strict=True
            )
        )
    )
    values = (
        (
            F.expr(grown(quote(c.name), schema[c.name].dataType, c.spark))
            if c.name in present
            else F.lit(None).cast(c.spark)
        ).alias(c.work)
        for c in columns.own
    )
    return [key.alias("k"), *values]
