"""SQL expressions as text.

A text costs Spark one call from Python and a parse of a millisecond; the same expression built
from `pyspark.sql.functions` costs a call for every node of it. Names and values from data come
into a text only through :func:`~cdc_assets.cdc.names.quote` and :func:`literal`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

Sql = str  # an expression of columns

# How the text of a JSON number or list begins, and others that are not those of texts alone.
_NO_TEXT = ", ".join(str(ord(character)) for character in "-0123456789[")
_WORDS = "'true', 'false', 'Infinity'"


def literal(value: str | int | bool | date | None) -> Sql:
    """A value as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int):
        return f"{value}L"
    if isinstance(value, date):
        return f"DATE'{value}'"
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literals(values: Iterable[str]) -> Sql:
    """Texts as literals, in a list."""
    return ", ".join(literal(value) for value in values)


def is_one_of(value: Sql, listed: Iterable[str]) -> Sql:
    """True where the value is one of these texts; false for null."""
    texts = literals(listed)
    return f"coalesce({value} IN ({texts}), false)" if texts else "false"


def case(*branches: tuple[Sql, Sql], otherwise: Sql = "NULL") -> Sql:
    """The value of the first condition that holds."""
    if not branches:
        return otherwise
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
    return f"CASE {whens} ELSE {otherwise} END"


def lookup(text: Sql, table: Mapping[str, str]) -> Sql:
    """What a table of texts says of a text; null for one that is not in it."""
    return case(*((f"{text} = {literal(name)}", literal(to)) for name, to in table.items()))


def interpreted_if(condition: Sql, value: Sql) -> Sql:
    """The value where a condition holds that few records meet, else null.

    Spark interprets a lambda: what stands in one is not part of the code that is compiled for all.
    """
    return f"get(transform(CASE WHEN {condition} THEN array(0) END, _ -> {value}), 0)"


def get(value: Sql, path: str = "$", kind: str = "variant") -> Sql:
    """What stands at a path of a VARIANT, as a type; null where it is absent or does not fit.

    `path` is of names of the formats, never of names from data.
    """
    return f"try_variant_get({value}, {literal(path)}, {literal(kind)})"


def whole(text: Sql) -> Sql:
    """A text as BIGINT; `true`, 1.5 and the like, which a cast of a VARIANT takes, are null."""
    return f"try_cast({text} AS bigint)"


def base64_of(data: Sql) -> Sql:
    """Bytes as base64 without line breaks; Spark's own has lines of 76 characters."""
    return f"translate(base64({data}), '\\r\\n', '')"


def is_present(value: Sql) -> Sql:
    """True for a VARIANT that is there and is not JSON null."""
    return f"({value} IS NOT NULL AND NOT is_variant_null({value}))"


def is_text(value: Sql) -> Sql:
    """True for a VARIANT that is a JSON string."""
    return f"coalesce(schema_of_variant({value}) = 'STRING', false)"


def was_text(text: Sql, value: Sql, path: str = "$") -> Sql:
    """True where a JSON string stands at a path of a VARIANT, whose cast to a text is `text`.

    Only a text that a number, a boolean or a list could have become is asked what it was.
    """
    return case(
        (f"startswith({text}, '{{')", f"NOT {is_object(value, path)}"),
        (
            f"ascii({text}) IN ({_NO_TEXT}) OR {text} IN ({_WORDS})",
            is_text(get(value, path)),
        ),
        otherwise=f"{text} IS NOT NULL",
    )


def string_of(value: Sql) -> Sql:
    """The text of a VARIANT that is a JSON string and not empty, else null: 1 is not a name."""
    return f"CASE WHEN {is_text(value)} THEN nullif({get(value, '$', 'string')}, '') END"


def is_object(value: Sql, path: str = "$") -> Sql:
    """True for a VARIANT, or what stands at a path of one, that is a JSON object.

    A cast to a struct asks for that alone, where a cast to a map copies each member.
    """
    return f"({get(value, path, 'struct<_: string>')} IS NOT NULL)"


def members_of(value: Sql) -> Sql:
    """A VARIANT object as MAP<STRING, VARIANT>, null for anything else."""
    return f"try_cast({value} AS map<string, variant>)"


def struct(**members: str) -> str:
    """A struct type; what is asked to be a STRING is what a cast makes of any value."""
    return f"struct<{', '.join(f'{name}: {kind}' for name, kind in members.items())}>"


# Each iteration of Spark's analyzer resolves the next of unresolved steps, and visits all of them.
_STEPS_AT_ONCE = 8


@dataclass(frozen=True)
class Query:
    """Steps over the rows of a frame, as SQL text: each a SELECT of what the one before gives.

    Spark gets some of them at once, in a few calls, where each step of a DataFrame takes a call for
    each column. (Pipe syntax says the same, and Spark takes a sixth longer to analyze it.)
    """

    frame: DataFrame
    steps: tuple[tuple[Sql, Sql], ...] = ()  # what is selected, and what stands behind FROM

    def select(self, *columns: Sql) -> Query:
        """These columns alone."""
        return self._then(", ".join(columns))

    def extend(self, columns: Mapping[str, Sql]) -> Query:
        """Add new columns; none sees another."""
        return self._then(f"*, {_listed(columns)}") if columns else self

    def explode(self, array: Sql, number: str, element: str) -> Query:
        """A row for each element of an array, with its place from 0; one of nulls without any."""
        return self._then(f"*, posexplode_outer({array}) AS ({number}, {element})")

    def replace(self, columns: Mapping[str, Sql]) -> Query:
        """Put these columns in the place of those of the same names; they stand last."""
        if not columns:
            return self
        return self._then(f"* EXCEPT ({', '.join(columns)}), {_listed(columns)}")

    def drop(self, *names: str) -> Query:
        """Without these columns."""
        return self._then(f"* EXCEPT ({', '.join(names)})")

    def where(self, condition: Sql) -> Query:
        """The rows for which this is true."""
        return self._then("*", f"WHERE {condition}")

    def aggregate(self, by: Sequence[Sql], columns: Mapping[str, Sql]) -> Query:
        """A row for each group of rows that agree in `by`: these, and aggregates."""
        kept = [*by, *([_listed(columns)] if columns else [])]
        return self._then(", ".join(kept), f"GROUP BY {', '.join(by)}" if by else "")

    def aggregate_sets(
        self, by: Sequence[Sql], each: Sequence[Sql], columns: Mapping[str, Sql]
    ) -> Query:
        """As :meth:`aggregate`, by `by` and each of some further columns in turn.

        Returns:
            `by`, `nth` (the place of that further column, from 0) and the aggregates.
        """
        sets = (f"({', '.join([*by, column])})" for column in each)
        nth = case(*((f"grouping({column}) = 0", str(n)) for n, column in enumerate(each)))
        return self._then(
            f"{', '.join(by)}, {nth} AS nth, {_listed(columns)}",
            f"GROUP BY GROUPING SETS ({', '.join(sets)})",
        )

    def plan(self) -> DataFrame:
        """The frame that the steps make; nothing is computed yet."""
        with named(self.frame) as view:
            source = view
            for columns, behind in self.steps:
                source = f"(SELECT {columns} FROM {source} {behind})"
            return self.frame.sparkSession.sql(f"FROM {source}")

    def _then(self, columns: Sql, behind: Sql = "") -> Query:
        if len(self.steps) == _STEPS_AT_ONCE:
            return Query(self.plan(), ((columns, behind),))
        return Query(self.frame, (*self.steps, (columns, behind)))


@contextmanager
def named(frame: DataFrame) -> Iterator[Sql]:
    """A name by which SQL text reads the frame; no other work of the session has it."""
    view = f"cdc_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(view)
    try:
        yield view
    finally:
        # PySpark's own call looks for cached plans of the view, which takes as long as planning it;
        # no view of ours is cached.
        session: Any = frame.sparkSession._jsparkSession
        session.sessionState().catalog().dropTempView(view)


def _listed(columns: Mapping[str, Sql]) -> Sql:
    return ", ".join(f"{sql} AS {name}" for name, sql in columns.items())


def with_columns(frame: DataFrame, columns: Mapping[str, Sql]) -> DataFrame:
    """The frame and these new columns, in one step: none sees another."""
    return frame.selectExpr("*", *(f"{sql} AS {name}" for name, sql in columns.items()))


def with_replaced(frame: DataFrame, columns: Mapping[str, Sql]) -> DataFrame:
    """The frame with these columns, in the place of those of the same names."""
    return frame.withColumns({name: F.expr(sql) for name, sql in columns.items()})


def few_rows(spark: SparkSession, rows: Iterable[tuple[Any, ...]], **columns: str) -> DataFrame:
    """A few rows that the driver knows; `columns` are names and types."""
    listed = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
    names = ", ".join(columns)
    typed = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in columns.items())
    return spark.sql(f"SELECT {typed} FROM VALUES {listed} AS t({names})")
