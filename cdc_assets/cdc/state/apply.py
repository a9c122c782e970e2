"""The day's events → the rows that they leave → the day's branch, written and audited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from cdc_assets.cdc.errors import AuditError
from cdc_assets.cdc.lake.checkpoints import Checkpoints, local_checkpoints
from cdc_assets.cdc.lake.commits import DayBranch
from cdc_assets.cdc.spark import is_small
from cdc_assets.cdc.sqltext import Query, Sql
from cdc_assets.cdc.state.audit import audit_appended, audit_rewritten, audit_settled, audit_written
from cdc_assets.cdc.state.columns import TableColumns
from cdc_assets.cdc.state.copies import find_copies
from cdc_assets.cdc.state.folding import Folding
from cdc_assets.cdc.state.keyed import Keyed
from cdc_assets.cdc.state.met_rows import count_met_rows
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.unkeyed import Unkeyed
from cdc_assets.cdc.state.unsent_values import NONE_UNSENT, Unchanged
from cdc_assets.cdc.state.writes import (
    append,
    delete_below,
    delete_keys,
    figures_of,
    fingerprint,
    rewrite,
    settle,
)
from cdc_assets.cdc.values.readers import PER_SECOND


def make_rows(day: TableDay, on: DayBranch, columns: TableColumns) -> dict[str, Any]:
    """Write the day's rows to its branch, and see that they are there; figures of the report."""
    branch = on.identifier
    if day.config.key in ("none", "row"):
        return _merge_unkeyed(day, branch, columns)
    keyed = Keyed(day, columns)
    unchanged = Unchanged(
        placeholder=day.settings.unavailable_value,
        keep_missing=day.settings.missing_columns == "keep",
        maybe=day.day_facts.maybe_unchanged > 0,
        has_halves=day.has_split_updates,
    )
    with local_checkpoints() as checkpoints:
        if day.may_have_copies or day.may_hold_keys_twice:
            days = day.days_read
            if is_small(sum(day.facts_on(d).events for d in days)):
                keyed.keep(days, checkpoints)
        if day.may_have_copies:
            keyed.copies = find_copies(keyed, checkpoints)
        rows, unresolved = _winners(keyed, columns, unchanged, checkpoints)
        observed = Observation()
        counted = rows.observe(observed, *_value_counts(columns), _fingerprint())
        figures: dict[str, Any] = {}
        if day.starts_empty and not unchanged.columns:
            append(day, branch, counted, columns, unchanged)
            found = _figures_of(observed)
            audit_appended(day, on, found["n"])
        elif day.is_rewritten:
            made_of = rewrite(day, branch, counted, columns, unchanged, keyed.truncated)
            found = _figures_of(observed)
            stood = day.rows_before if keyed.truncated is None else None
            audit_rewritten(day, branch, columns, found["n"], stood, made_of)
            figures = {
                "rows": made_of.standing - made_of.removed + made_of.written,
                "removed": (day.rows_before - made_of.standing) + made_of.removed,
                "written": made_of.written,
            }
        else:
            # What is read twice takes longer to compute than to keep.
            counted = checkpoints.add(counted)
            found = _figures_of(observed)
            _change(day, branch, keyed, counted, found, columns, unchanged, checkpoints)
            if keyed.truncated is not None:
                # A file that goes as a whole is counted with the rows that were gone from it.
                figures["rows"] = day.lake.spark.table(branch).count()
        return {
            **figures,
            **_judge_values(day, rows, found, columns),
            "unresolved": unresolved,
            **_unreadable_keys(day, columns),
            **count_met_rows(keyed),
            "keys_audited": found["n"],
        }


def _winners(
    keyed: Keyed,
    columns: TableColumns,
    unchanged: Unchanged,
    checkpoints: Checkpoints,
) -> tuple[DataFrame, int]:
    """The rows that the day leaves, typed, and how many lack a value that was not sent."""
    # Unsent values are looked for several times in the same moves.
    may_be_unsent = keyed.day.may_be_unsent
    moves = checkpoints.add(keyed.moves()) if may_be_unsent else keyed.moves()
    keyed.find_unsent(moves, unchanged)
    folded = None
    if keyed.day.may_hold_keys_twice:
        folded = Folding(keyed, columns, unchanged, checkpoints).fold()
    if folded is not None:  # of all other keys the highest position decides
        moves = moves.join(folded.keys, "k", "left_anti")
    rows = columns.typed(keyed.winners(moves, unchanged, checkpoints), unchanged)
    unresolved = 0
    if unchanged.columns:
        rows = checkpoints.add(rows)
        unresolved = columns.unresolved(rows, keyed.standing(), unchanged)
    rows = rows.withColumn("is_folded", F.lit(False))
    if folded is None:
        return rows, unresolved
    both = rows.unionByName(folded.rows, allowMissingColumns=True)
    if unchanged.flags:
        both = both.fillna(False, unchanged.flags)
    return both, unresolved + folded.unresolved


def _change(
    day: TableDay,
    branch: str,
    keyed: Keyed,
    rows: DataFrame,
    to_be_there: Mapping[str, Any],
    columns: TableColumns,
    unchanged: Unchanged,
    checkpoints: Checkpoints,
) -> None:
    """Write what the day changed, in a table that is too large to rewrite.

    Args:
        rows: the day's winners, a local checkpoint.
        to_be_there: `n` of them that are not removals, and their `fingerprint`.
    """
    if keyed.truncated is not None:
        delete_below(day, branch, keyed.truncated)
    winners, n = rows, to_be_there["n"]
    is_settled = bool(unchanged.columns) or not keyed.is_all_after or bool(day.open_transactions)
    if is_settled:
        # A row of the table may beat one of the day's, or have a value that it needs.
        observed = Observation()
        settled = settle(day, branch, rows, columns, unchanged)
        rows = checkpoints.add(settled.observe(observed, *_to_be_there()))
        to_be_there = _figures_of(observed)
        unchanged = NONE_UNSENT
    delete_keys(day, branch, rows, columns)
    append(day, branch, rows, columns, unchanged)
    audit_written(day, branch, rows, columns, to_be_there)
    if is_settled:
        audit_settled(day, branch, winners, columns, n)


_NOTHING = {"n": 0, "contradicted": 0, "unfit": 0, "fingerprint": None}


def _figures_of(observed: Observation) -> dict[str, Any]:
    return {**_NOTHING, **figures_of(observed)}


def _merge_unkeyed(day: TableDay, branch: str, columns: TableColumns) -> dict[str, Any]:
    unkeyed = Unkeyed(day, columns)
    unchanged = NONE_UNSENT
    with local_checkpoints() as checkpoints:
        moves = checkpoints.add(columns.typed(unkeyed.moves(), unchanged))
        today = moves.where("is_today")
        found = today.agg(*_value_counts(columns)).first()
        assert found is not None
        figures = _judge_values(day, today, found.asDict(), columns)
        if day.day_facts.maybe_unchanged:
            figures["unresolved"] = moves.where("is_today AND unfilled").count()
        if unkeyed.floor is not None:
            delete_below(day, branch, unkeyed.floor)
        return {**figures, "rows": unkeyed.write(branch, moves, checkpoints)}


def _to_be_there() -> list[Column]:
    return [F.expr("count_if(NOT is_removal) AS n"), _fingerprint()]


def _fingerprint() -> Column:
    """That of the rows that are to be there."""
    return F.expr(fingerprint("k", "pos", "NOT is_removal")).alias("fingerprint")


def _value_counts(columns: TableColumns) -> list[Column]:
    """`n` rows, how many contradict their key, and how many hold what a column can't (R4)."""
    differ = [c.contradicted for c in columns.own if c.name in columns.key_names]
    unfit = ", ".join(c.unfit for c in columns.own)
    counts = {
        "n": "NOT is_removal",
        "contradicted": f"NOT is_removal AND ({' OR '.join(differ) or 'false'})",
        "unfit": f"NOT is_removal AND coalesce({unfit}) IS NOT NULL" if unfit else "false",
    }
    return [F.expr(f"count_if({condition}) AS {name}") for name, condition in counts.items()]


def _judge_values(
    day: TableDay, rows: DataFrame, found: Mapping[str, Any], columns: TableColumns
) -> dict[str, Any]:
    """What the day's rows hold that their columns can't.

    Raises:
        AuditError: the type of such a column was inferred.
    """
    report = _unfit(day, rows, columns) if found["unfit"] else {}
    for c in columns.own:
        if c.lake in report and c.lake in columns.inferred:
            raise AuditError(
                day.label,
                day.day,
                f"column {c.name!r} was inferred as {c.spark} and can't hold "
                f"{report[c.lake].get('example', 'its values')} "
                f"({report[c.lake]['count']} rows). Say its type "
                f"in cdc.yaml: sources.{day.source}.tables.{day.table}.columns: "
                f"{{{json.dumps(c.name, ensure_ascii=False)}: string}}",
            )
    units = _plain_units(rows, columns)
    return {"unfit": report, "contradicted": found["contradicted"], "units": units}


# The years 1990 to 2100 in seconds: numbers in this range are plainly such.
_FROM, _TO = 631_152_000, 4_102_444_800


def _plain_units(rows: DataFrame, columns: TableColumns) -> dict[str, str]:
    """By column the type to configure where more than half of its numbers are plainly no ms.

    A job of its own, none where every time stamp has a unit.
    """
    asked = columns.without_unit
    if not asked:
        return {}
    seconds = f"unix_millis(CAST({{}} AS timestamp)) BETWEEN {_FROM} AND {_TO}"
    larger = "try_cast({} AS bigint) BETWEEN {} AND {}"
    counts: dict[str, Sql] = {}
    for c in asked:
        counts[f"{c.work}_n"] = f"count({c.work}) + count({c.unfit})"
        counts[f"{c.work}_s"] = f"count_if({seconds.format(c.work)})"
        for unit in ("us", "ns"):
            bounds = (limit * PER_SECOND[unit] for limit in (_FROM, _TO))
            counts[f"{c.work}_{unit}"] = f"count_if({larger.format(c.unfit, *bounds)})"
    found = Query(rows).where("NOT is_removal").aggregate((), counts).plan().first()
    assert found is not None
    return {
        c.lake: f"{c.spark}({unit})"
        for c in asked
        for unit in ("s", "us", "ns")
        if 2 * found[f"{c.work}_{unit}"] > found[f"{c.work}_n"]
    }


def _unfit(day: TableDay, rows: DataFrame, columns: TableColumns) -> dict[str, Any]:
    """By column the number of values that it can't hold and one of them: a job of its own.

    What the source does not show is not taken: the report stands in the lake's metadata.
    """
    shown = {c.name for c in columns.own if day.settings.shows_column(day.table, c.name)}
    aggregates = [f"count({c.unfit}) AS {c.work}_n" for c in columns.own]
    aggregates += [
        f"min(substring({c.unfit}, 1, 60)) AS {c.work}_x" for c in columns.own if c.name in shown
    ]
    found = rows.where("NOT is_removal").selectExpr(*aggregates).first()
    assert found is not None
    return {
        c.lake: {
            "count": found[f"{c.work}_n"],
            **({"example": found[f"{c.work}_x"]} if c.name in shown else {}),
        }
        for c in columns.own
        if found[f"{c.work}_n"]
    }


def _unreadable_keys(day: TableDay, columns: TableColumns) -> dict[str, int]:
    """Events whose key the table's inferred key columns can't hold; such change no row."""
    if columns.inferred.isdisjoint(columns.key_lake):
        return {}
    keyed = Keyed(day, columns).keyed(day.events([day.day]))
    lost = keyed.where("key IS NOT NULL AND k IS NULL").count()
    return {"unreadable_keys": lost}
