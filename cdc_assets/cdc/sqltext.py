"""SQL expressions as text.

A text costs one call from Python and a parse of a millisecond; the same expression built from
`pyspark.sql.functions` costs a call for every node. Names and values from data enter a text only
through :func:`~cdc_assets.cdc.names.quote` and :func:`literal`.
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
from pyspark.sql.types import StructType

Sql = str  # an expression of columns


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
    """The value of a text in a table; null for a text that is not in it."""
    return case(*((f"{text} = {literal(name)}", literal(to)) for name, to in table.items()))


def interpreted_if(condition: Sql, value: Sql) -> Sql:
    """The value if a rare condition holds, else null.

    Spark interprets lambdas: the value's expression stays out of the compiled code.
    """
    return f"get(transform(CASE WHEN {condition} THEN array(0) END, _ -> {value}), 0)"


def let(name: str, value: Sql, body: Sql) -> Sql:
    """The body, in which a name stands for a value that is computed once; Spark interprets it."""
    return f"get(transform(array({value}), {name} -> {body}), 0)"


def get(value: Sql, path: str = "$", kind: str = "variant") -> Sql:
    """The value at a path of a VARIANT, as a type; null if it is absent or does not fit.

    `path` has names of the formats, never names from data.
    """
    return f"try_variant_get({value}, {literal(path)}, {literal(kind)})"


def whole(text: Sql) -> Sql:
    """A text as BIGINT; null for `true`, 1.5 and the like, which a cast of a VARIANT accepts."""
    return f"try_cast({text} AS bigint)"


def base64_of(data: Sql) -> Sql:
    """Bytes as base64 without line breaks; Spark's own has lines of 76 characters."""
    return f"translate(base64({data}), '\\r\\n', '')"


def is_present(value: Sql) -> Sql:
    """True for a VARIANT that is neither null nor JSON null."""
    return f"({value} IS NOT NULL AND NOT is_variant_null({value}))"


def is_text(value: Sql) -> Sql:
    """True for a VARIANT that is a JSON string."""
    return f"coalesce(schema_of_variant({value}) = 'STRING', false)"


def members_of(value: Sql) -> Sql:
    """A VARIANT object as MAP<STRING, VARIANT>, null for anything else."""
    return f"try_cast({value} AS map<string, variant>)"


# Each iteration of Spark's analyzer resolves one more step and visits all of them.
_STEPS_AT_ONCE = 8


@dataclass(frozen=True)
class Query:
    """Steps over the rows of a frame, as SQL text: each is a SELECT from the one before.

    Spark gets several steps at once, in a few calls; a step of a DataFrame takes a call for each
    column. (Spark takes a sixth longer to analyze pipe syntax.)
    """

    frame: DataFrame
    steps: tuple[tuple[Sql, Sql], ...] = ()  # selected columns, and the clause behind FROM

    def select(self, *columns: Sql) -> Query:
        """Only these columns."""
        return self._then(", ".join(columns))

    def extend(self, columns: Mapping[str, Sql]) -> Query:
        """Add new columns; none sees another."""
        return self._then(f"*, {_listed(columns)}") if columns else self

    def explode(self, array: Sql, number: str, element: str) -> Query:
        """A row for each element of an array with its index; a row of nulls for an empty one."""
        return self._then(f"*, posexplode_outer({array}) AS ({number}, {element})")

    def replace(self, columns: Mapping[str, Sql]) -> Query:
        """Replace columns of the same names; the new ones come last."""
        if not columns:
            return self
        return self._then(f"* EXCEPT ({', '.join(columns)}), {_listed(columns)}")

    def drop(self, *names: str) -> Query:
        """Drop these columns."""
        return self._then(f"* EXCEPT ({', '.join(names)})")

    def where(self, condition: Sql) -> Query:
        """The rows for which this is true."""
        return self._then("*", f"WHERE {condition}")

    def aggregate(self, by: Sequence[Sql], columns: Mapping[str, Sql]) -> Query:
        """A row for each group of `by`: these columns, and aggregates."""
        selected = [*by, *([_listed(columns)] if columns else [])]
        return self._then(", ".join(selected), f"GROUP BY {', '.join(by)}" if by else "")

    def aggregate_sets(
        self, by: Sequence[Sql], each: Sequence[Sql], columns: Mapping[str, Sql]
    ) -> Query:
        """Aggregate by `by` and each column of `each` in turn.

        Returns:
            `by`, `nth` (the index of that column in `each`) and the aggregates.
        """
        sets = (f"({', '.join([*by, column])})" for column in each)
        nth = case(*((f"grouping({column}) = 0", str(n)) for n, column in enumerate(each)))
        return self._then(
            f"{', '.join(by)}, {nth} AS nth, {_listed(columns)}",
            f"GROUP BY GROUPING SETS ({', '.join(sets)})",
        )

    def plan(self) -> DataFrame:
        """The frame of the steps; nothing is computed yet."""
        with named(self.frame) as view:
            source = view
            for columns, clause in self.steps:
                source = f"(SELECT {columns} FROM {source} {clause})"
            return self.frame.sparkSession.sql(f"FROM {source}")

    def _then(self, columns: Sql, clause: Sql = "") -> Query:
        if len(self.steps) == _STEPS_AT_ONCE:
            return Query(self.plan(), ((columns, clause),))
        return Query(self.frame, (*self.steps, (columns, clause)))


@contextmanager
def named(frame: DataFrame) -> Iterator[Sql]:
    """A temporary view of the frame for SQL text, with a unique name."""
    view = f"cdc_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(view)
    try:
        yield view
    finally:
        # PySpark's dropTempView searches for cached plans of the view, which takes as long as
        # planning it; these views are never cached.
        session: Any = frame.sparkSession._jsparkSession
        session.sessionState().catalog().dropTempView(view)


def _listed(columns: Mapping[str, Sql]) -> Sql:
    return ", ".join(f"{sql} AS {name}" for name, sql in columns.items())


def with_columns(frame: DataFrame, columns: Mapping[str, Sql]) -> DataFrame:
    """The frame and these new columns, in one step; none sees another."""
    return frame.selectExpr("*", *(f"{sql} AS {name}" for name, sql in columns.items()))


def with_replaced(frame: DataFrame, columns: Mapping[str, Sql]) -> DataFrame:
    """The frame with columns of the same names replaced."""
    return frame.withColumns({name: F.expr(sql) for name, sql in columns.items()})


def few_rows(spark: SparkSession, rows: Iterable[tuple[Any, ...]], **columns: str) -> DataFrame:
    """A frame of a few literal rows; `columns` are names and types."""
    listed = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
    names = ", ".join(columns)
    typed = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in columns.items())
    return spark.sql(f"SELECT {typed} FROM VALUES {listed} AS t({names})")


def local_frame(
    spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: StructType | str
) -> DataFrame:
    """A frame of rows that Python holds, each with all columns of the schema (or DDL), in order.

    Arrow brings them into the plan; Spark itself would start workers of Python for a job of their
    own, which take longer than to write the rows.
    """
    import pyarrow as pa  # not needed by commands that only read the configuration
    from pyspark.sql.pandas.types import to_arrow_schema

    kind = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(kind, StructType)
    columns = list(zip(*rows, strict=True)) or [() for _ in kind]
    fields = to_arrow_schema(kind)
    arrays = [pa.array(values, f.type) for values, f in zip(columns, fields, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=fields), kind)
