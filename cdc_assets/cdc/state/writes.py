"""The day's winners → the day's branch: what changed, or the whole of a small table anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from cdc_assets.cdc.config import TABLE_OF_ROW
from cdc_assets.cdc.lake.commits import DayBranch
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Sql, case, literal, named
from cdc_assets.cdc.state.day_types import OwnColumn, TableColumns
from cdc_assets.cdc.state.retyping import as_stored, rows_on
from cdc_assets.cdc.state.table_day import LANDED, POSITION, SOURCE_TS, TableDay
from cdc_assets.cdc.state.unsent_values import UnsentColumns

# Up to so many keys of a day are sent to all cores; more are sorted with the table's.
FEW_KEYS = 300_000


def fingerprint(key: Sql, position: Sql, condition: Sql) -> Sql:
    """A number that is the same for the same rows in any order: of their keys and positions."""
    return f"bit_xor(CASE WHEN {condition} THEN xxhash64({key}, {position}) END)"


def append(
    day: TableDay, branch: DayBranch, rows: DataFrame, columns: TableColumns, unsent: UnsentColumns
) -> None:
    """Append the winners: of a table without rows, or behind :func:`delete_keys`."""
    row = _row(day, columns, lambda c: _insert(c, unsent))
    new = rows.where("NOT is_removal").alias("s").selectExpr(*_listed(row))
    stored = as_stored(new, branch)
    with_retry(lambda: stored.writeTo(branch.identifier).append())


def compare_with_table(
    day: TableDay,
    branch: DayBranch,
    rows: DataFrame,
    columns: TableColumns,
    unsent: UnsentColumns,
    where: Sql,
) -> DataFrame:
    """The winners that are newer than the row of their key, complete with what it alone holds.

    The rows of these keys are looked up in the table; a MERGE would shuffle and sort all of it.

    Args:
        rows: the day's winners, a local checkpoint: they are read twice.
        where: a condition on the rows `t` of their keys.

    Returns:
        `k`, `pos`, `is_removal`, `source_ts_ms` and each column's value.
    """
    target = partial(_target_column, "t")
    stood = (*map(quote, columns.key_names), POSITION, *(quote(c.name) for c in unsent.columns))
    values = {c.work: f"s.{c.work}" for c in columns.own}
    for c in unsent.columns:
        updated = _update(c, unsent, target)
        values[c.work] = case(("t IS NULL", _insert(c, unsent)), otherwise=updated)
    known = [f"s.{name}" for name in ("k", "pos", "is_removal", "source_ts_ms")]
    table = day.rows_in(rows_on(branch))
    with named(rows) as winners, named(keys_of(day, rows, columns)) as keys:
        newer = rows.sparkSession.sql(
            f"SELECT {', '.join([*known, *_listed(values)])} "
            f"FROM (SELECT struct(*) AS s FROM {winners}) "
            f"LEFT JOIN (SELECT struct({', '.join(stood)}) AS t FROM {table} t "
            f"WHERE {where} AND {is_of_keys(keys, columns)}) ON {_same_key(columns, target)} "
            f"WHERE t IS NULL OR {_beats(target)}"
        )
        return newer.select("*")  # a plan that names no view any more


@dataclass(frozen=True)
class Rewritten:
    """What a rewritten table is made of.

    `standing` rows stood there, `removed` of them were replaced or deleted; of `winners`, removals
    left out, `written` were written, with this `fingerprint`; the rows that were kept have `kept`.
    """

    winners: int = 0
    standing: int = 0
    removed: int = 0
    written: int = 0
    fingerprint: int | None = None
    kept: int | None = None


def rewrite(
    day: TableDay,
    branch: DayBranch,
    rows: DataFrame,
    columns: TableColumns,
    unsent: UnsentColumns,
    below: Sequence[int] | None,
) -> Rewritten:
    """Write the whole table anew: winners, and the rows that none of them beats.

    For a small table one commit of one file costs less than to find and mark what is gone, and
    no day leaves a file that the next ones have to read.

    Args:
        below: rows at lower positions do not stand any more: the day truncates them.
    """
    target = partial(_target_column, "t")
    standing = "" if below is None else f"WHERE NOT coalesce({_is_below(below)}, false)"
    wins = f"s IS NOT NULL AND (t IS NULL OR {_beats(target)})"
    inserted = _row(day, columns, lambda c: _insert(c, unsent))
    updated = _row(day, columns, lambda c: _update(c, unsent, target))
    row = {
        name: case(("NOT wins", f"t.{name}"), ("t IS NULL", sql), otherwise=updated[name])
        for name, sql in inserted.items()
    }
    with named(rows) as winners:
        joined = rows.sparkSession.sql(
            f"SELECT t, s, coalesce({wins}, false) AS wins "
            f"FROM (SELECT struct(*) AS t FROM {day.rows_in(rows_on(branch))} {standing}) "
            f"FULL OUTER JOIN (SELECT struct(*) AS s FROM {winners}) "
            f"ON {_same_key(columns, target)}"
        )
        observed = Observation()
        counted = joined.observe(observed, *_rewritten_figures(columns))
        new = counted.where("CASE WHEN wins THEN NOT s.is_removal ELSE t IS NOT NULL END")
        written = as_stored(new.selectExpr(*_listed(row)), branch)
    with_retry(lambda: written.writeTo(branch.identifier).overwrite(F.lit(True)))
    return Rewritten(**figures_of(observed))


def _rewritten_figures(columns: TableColumns) -> list[Column]:
    """The figures of :class:`Rewritten`, over `t`, `s` and `wins`."""
    target = partial(_target_column, "t")
    keys = f"struct({', '.join(target(name) for name in columns.key_names)})"
    figures = (
        "count_if(NOT s.is_removal) AS winners",
        "count(t) AS standing",
        "count_if(wins AND t IS NOT NULL) AS removed",
        "count_if(wins AND NOT s.is_removal) AS written",
        f"{fingerprint('s.k', 's.pos', 'wins AND NOT s.is_removal')} AS fingerprint",
        f"{fingerprint(keys, target(POSITION), 't IS NOT NULL AND NOT wins')} AS kept",
    )
    return [F.expr(figure) for figure in figures]


def delete_keys(
    day: TableDay, branch: str, rows: DataFrame, columns: TableColumns, where: Sql = "true"
) -> None:
    """Delete the rows of all keys that have a winner; only key columns of the table are read.

    Args:
        where: a condition on the rows `t` of these keys.
    """
    with named(keys_of(day, rows, columns)) as keys:
        statement = f"DELETE FROM {branch} t WHERE {where} AND {is_of_keys(keys, columns)}"
        with_retry(lambda: day.lake.spark.sql(statement))


def delete_below(
    day: TableDay, branch: str, position: Sequence[int], leaf: str | None = None
) -> None:
    """D12: a truncate removes every row whose position is lower than its own.

    Args:
        leaf: of a table that goes into this one: only the rows that came from there (R8).
    """
    below = _is_below(position, day.position_of("t"))
    if leaf is not None:
        below = f"{below} AND {TABLE_OF_ROW} = {literal(leaf)}"
    statement = f"DELETE FROM {branch} t WHERE {below}"
    with_retry(lambda: day.lake.spark.sql(statement))


def count_rows(day: TableDay, on: DayBranch) -> int:
    """How many rows a branch has; a job."""
    return day.lake.spark.sql(f"SELECT 1 FROM {day.rows_in(rows_on(on))}").count()


def delete_all(day: TableDay, branch: str) -> int:
    """Delete all rows of a branch; how many there were."""
    stood = day.lake.spark.table(branch).count()
    with_retry(lambda: day.lake.spark.sql(f"DELETE FROM {branch}"))
    return stood


def figures_of(observed: Observation) -> dict[str, int]:
    """What was counted on the way; empty where nothing was.

    Spark stops looking for rows where it finds that there are none, and then has counted nothing:
    PySpark can't read such an answer.
    """
    return observed.get if observed._jo.getRow().size() else {}  # type: ignore[union-attr]


# --- SQL


def keys_of(day: TableDay, rows: DataFrame, columns: TableColumns) -> DataFrame:
    """The winners' keys, sent to where the table is read, unless they are too many."""
    keys = rows.selectExpr(*(f"k.{work}" for work in columns.key_work))
    return F.broadcast(keys) if day.day_facts.events <= FEW_KEYS else keys


def is_of_keys(keys: Sql, columns: TableColumns) -> Sql:
    """True for a row `t` of the table that has one of these keys."""
    same = _same_key(columns, partial(_target_column, "t"), "s")
    return f"EXISTS (SELECT 1 FROM {keys} s WHERE {same})"


def _beats(target: Callable[[Sql], Sql]) -> Sql:
    """Does a winner `s` take the place of its key's row? What was folded began below that."""
    return f"(s.is_folded OR s.pos > {target(POSITION)})"


def _is_below(position: Sequence[int], row_position: Sql = POSITION) -> Sql:
    # slice() keeps the comparison out of Iceberg's filters, which know no arrays.
    return f"slice({row_position}, 1, 64) < array({', '.join(f'{int(n)}L' for n in position)})"


def _target_column(target: Sql, name: str) -> Sql:
    """A column of the table that is written."""
    return f"{target}.{quote(name)}"


def _same_key(columns: TableColumns, target: Callable[[str], Sql], key: Sql = "s.k") -> Sql:
    return " AND ".join(
        f"{target(name)} = {key}.{work}"
        for name, work in zip(columns.key_names, columns.key_work, strict=True)
    )


def _row(day: TableDay, columns: TableColumns, value: Callable[[OwnColumn], Sql]) -> dict[str, Sql]:
    """By quoted name what a row of winner `s` has in each column of the table."""
    return {
        **{quote(c.name): value(c) for c in columns.own},
        POSITION: "s.pos",
        SOURCE_TS: "s.source_ts_ms",
        LANDED: f"DATE'{day.day}'",
    }


def _listed(row: dict[str, Sql]) -> list[Sql]:
    return [f"{sql} AS {name}" for name, sql in row.items()]


def _insert(c: OwnColumn, unsent: UnsentColumns) -> Sql:
    """The column of a row that is new."""
    if c not in unsent.columns:
        return f"s.{c.work}"
    return case((f"s.{c.unsent}", f"s.{c.fill}"), otherwise=f"s.{c.work}")


def _update(c: OwnColumn, unsent: UnsentColumns, target: Callable[[str], Sql]) -> Sql:
    """The column of a row that stands there: what was not sent stays as it is."""
    if c not in unsent.columns:
        return f"s.{c.work}"
    is_later = f"s.{c.last_pos} > {target(POSITION)} OR s.removed_pos > {target(POSITION)}"
    return case(
        (f"NOT s.{c.unsent}", f"s.{c.work}"),
        (is_later, f"s.{c.fill}"),
        otherwise=target(c.name),
    )
