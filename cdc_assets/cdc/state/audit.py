"""Is what stands on a day's branch what was to be written? Asked before the day is published."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.lake.commits import DayBranch
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Sql, named
from cdc_assets.cdc.state.day_types import TableColumns
from cdc_assets.cdc.state.table_day import LANDED, POSITION, TableDay
from cdc_assets.cdc.state.writes import (
    FEW_KEYS,
    Rewritten,
    fingerprint,
    is_of_keys,
    keys_of,
)


@dataclass(frozen=True)
class Expected:
    """The rows that are to be on the branch: `n` of them, their keys and positions as a number."""

    n: int = 0
    fingerprint: int | None = None


def audit_appended(day: TableDay, on: DayBranch, winners: int) -> None:
    """The one commit to a table without rows has as many as there are winners.

    Raises:
        AuditError: it has more or fewer.
    """
    state = day.lake.read_state(day.identifier)
    assert state is not None
    written = int(state.snapshots[state.refs[on.name]].summary.get("added-records", 0))
    if written != winners:
        raise AuditError(
            day.label,
            day.day,
            f"{winners} keys were written and {written} rows have them",
            check="keys_unique",
        )


def audit_written(
    day: TableDay,
    branch: str,
    rows: DataFrame,
    columns: TableColumns,
    expected: Expected,
    where: Sql,
) -> None:
    """The branch holds the day's winners, each once and at its position.

    What was written is read back, with all rows of the same keys, and compared with what was to
    be written: two numbers. Where they differ the keys are looked up one by one, to say which.

    Args:
        rows: what was written: the day's winners, without those that are older than their row.
        expected: what is to be there.
        where: a condition on the rows `t` of these keys.

    Raises:
        AuditError: a key stands twice, was lost, or stands at another event's position.
    """
    names = [quote(name) for name in columns.key_names]
    found = fingerprint(f"struct({', '.join(f'w.{n}' for n in names)})", f"w.{POSITION}", "true")
    hint = "/*+ BROADCAST(w) */ " if expected.n <= FEW_KEYS else ""
    written = day.lake.spark.sql(
        f"WITH w AS (SELECT {', '.join(names)}, {POSITION} FROM {branch} "
        f"WHERE {LANDED} = DATE'{day.day}') "
        f"SELECT {hint}count(*) AS n, {found} AS fingerprint FROM {branch} t "
        f"JOIN w ON {' AND '.join(f't.{n} = w.{n}' for n in names)} WHERE {where}"
    ).first()
    assert written is not None
    if (written.n, written.fingerprint) != (expected.n, expected.fingerprint):
        _explain_keys(day, branch, rows, columns)


def audit_rewritten(
    day: TableDay,
    branch: str,
    columns: TableColumns,
    winners: int,
    stood: int | None,
    rewritten: Rewritten,
) -> None:
    """The branch holds what the table was rewritten of: each key once, no row lost or changed.

    Args:
        winners: the day's winners that are not removals, as they were counted.
        stood: the rows of the day before; None where a truncate of the day removed some.

    Raises:
        AuditError: it holds something else.
    """
    names = [quote(name) for name in columns.key_names]
    row = f"struct({', '.join(names)})", POSITION
    is_new = f"{LANDED} <=> DATE'{day.day}'"
    found = day.lake.spark.sql(
        "SELECT count(*) AS keys, coalesce(sum(n), 0) AS rows, coalesce(sum(written), 0) AS "
        "written, bit_xor(fingerprint) AS fingerprint, bit_xor(kept) AS kept FROM ("
        f"SELECT count(*) AS n, count_if({is_new}) AS written, "
        f"{fingerprint(*row, is_new)} AS fingerprint, "
        f"{fingerprint(*row, f'NOT ({is_new})')} AS kept "
        f"FROM {branch} GROUP BY {', '.join(names)})"
    ).first()
    assert found is not None
    rows = rewritten.standing - rewritten.removed + rewritten.written
    expected = (rows, rows, rewritten.written, rewritten.fingerprint, rewritten.kept)
    is_read = rewritten.winners == winners and stood in (None, rewritten.standing)
    if tuple(found) == expected and is_read:
        return
    raise AuditError(
        day.label,
        day.day,
        f"{rewritten.written} keys were written and {found.written} rows have them; the table is "
        f"to have {rows} rows, and has {found.rows} of {found['keys']} keys; "
        f"{rewritten.standing} rows were read of {'those' if stood is None else stood} "
        f"of the day before, and {rewritten.winners} of the day's {winners}. Nothing is "
        "published; make the day again, and report this with the table's snapshots",
        check="keys_unique",
    )


def audit_compared(
    day: TableDay, branch: str, rows: DataFrame, columns: TableColumns, winners: int, where: Sql
) -> None:
    """Each key of the day's winners stands once, be it by its event or by a newer row.

    Args:
        rows: all winners of the day, also those that are older than their row.
        winners: how many of them are not removals.
        where: a condition on the rows `t` of these keys.

    Raises:
        AuditError: a key was lost, or stands twice.
    """
    with named(keys_of(day, rows.where("NOT is_removal"), columns)) as keys:
        found = day.lake.spark.sql(
            f"SELECT count(*) AS n FROM {branch} t WHERE {where} AND {is_of_keys(keys, columns)}"
        ).first()
    assert found is not None
    if found.n != winners:
        raise AuditError(
            day.label,
            day.day,
            f"{winners} keys were written, or have a newer row, and {found.n} rows have them",
            check="keys_unique",
        )


def _explain_keys(day: TableDay, branch: str, rows: DataFrame, columns: TableColumns) -> None:
    """Say what is wrong with the rows of the day's winners."""
    work = columns.key_work
    winners = rows.where("NOT is_removal").selectExpr(
        *(f"k.{w} AS {w}" for w in work), "pos AS winner", "true AS is_winner"
    )
    on_branch = day.lake.spark.table(branch).selectExpr(
        *(f"{quote(n)} AS {w}" for n, w in zip(columns.key_names, work, strict=True)),
        f"{POSITION} AS pos",
        f"{LANDED} <=> DATE'{day.day}' AS is_written",
    )
    found = (
        on_branch.join(winners, work, "left")
        .selectExpr(
            "count(is_winner) AS hits",
            "count_if(is_winner AND NOT pos <=> winner) AS misplaced",
            "count_if(is_winner IS NULL AND is_written) AS others",
        )
        .crossJoin(winners.agg(F.count("*").alias("expected")))
        .first()
    )
    assert found is not None
    are_shown = all(day.settings.shows_column(day.table, name) for name in columns.key_names)
    twice = on_branch.groupBy(*work).count().where("count > 1")
    counted = [tuple(r) for r in twice.limit(5).collect()] if are_shown else twice.count()
    raise AuditError(
        day.label,
        day.day,
        f"{found.expected} keys were written and {found.hits} rows have them, "
        f"{found.misplaced} at another position than their event's; {found.others} rows were "
        f"written by no event. Duplicate keys: {counted or 'none'}. Nothing is "
        "published; make the day again, and report this with the table's snapshots",
        check="keys_unique",
    )
