"""Histories, a kind of derived tables: a day replaces the versions that it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from itertools import chain
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.derived.inputs import DerivedInputs
from cdc_assets.cdc.derived.stage import DerivedDay, DerivedKind, DerivedReport
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.history.columns import VERSION_COLUMNS
from cdc_assets.cdc.history.entries import keys_of
from cdc_assets.cdc.history.versions import rows_that_stand, versions_of
from cdc_assets.cdc.history.writes import Versions, audit, write
from cdc_assets.cdc.lake.checkpoints import local_checkpoints
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import HISTORY as NAME
from cdc_assets.cdc.state.apply import keyed_day
from cdc_assets.cdc.state.day_types import OwnColumn, TableColumns, with_types_of
from cdc_assets.cdc.state.renaming import at_in_lake
from cdc_assets.cdc.state.retyping import as_stored
from cdc_assets.cdc.state.table_day import REWRITTEN_BYTES, TableDay


@dataclass(frozen=True)
class HistoryReport(DerivedReport):
    """What a day of a history came to.

    `rows` are its versions, `current` those that stand, of the keys that were looked at
    (`versions_audited`): of a small table all.
    """

    current: int = 0
    versions_audited: int = 0
    latest_ms: int | None = None  # the last time at which a version began or ended


def _write(day: DerivedDay) -> Mapping[str, Any]:
    of_table, inputs, branch = day.of_table, day.inputs, day.branch
    is_small = of_table.is_rewritten and _bytes_before(inputs) <= REWRITTEN_BYTES
    first = min([of_table.day, *of_table.open_transactions.values()])
    if inputs.begins_later(first):
        versions = as_stored(rows_that_stand(of_table), branch)
        with_retry(lambda: versions.writeTo(branch.identifier).overwrite(F.lit(True)))
        return _figures(inputs, audit(of_table, branch, None, day.columns))
    columns = with_types_of(of_table, day.columns, of_table.days_from(first))
    with local_checkpoints() as checkpoints:
        keyed = keyed_day(of_table, columns, checkpoints, is_made=True)

        def before(start: date) -> DataFrame | None:
            return _versions_before(of_table, inputs, branch.table, start)

        groups, unsent = keys_of(keyed, before, _may_fall(of_table, inputs), checkpoints)
        tracked = _tracked(inputs, columns)
        rows = reduce(
            DataFrame.unionByName, (versions_of(keys, unsent, tracked) for keys in groups)
        )
        replaced = reduce(DataFrame.unionByName, (keys.replaced for keys in chain(*groups)))
        if branch.base is not None and not is_small:
            rows = checkpoints.add(rows)
        write(of_table.lake, branch, rows, replaced, columns, is_small)
        looked_at = None if is_small or branch.base is None else replaced.select("k")
        found = audit(of_table, branch, looked_at, columns)
    return _figures(inputs, found)


def _figures(inputs: DerivedInputs, found: Versions) -> Mapping[str, Any]:
    known = (found.latest_ms, inputs.report_before().get("latest_ms"))
    return {
        "current": found.current,
        "versions_audited": found.audited,
        "latest_ms": max((time for time in known if time), default=None),
    }


HISTORY = DerivedKind(
    name=NAME,
    columns=VERSION_COLUMNS,
    comment="every version of the rows of {label}: VERSION AS OF '<day>'",
    day_column=None,
    report=HistoryReport,
    write=_write,
    without_rows=lambda before: {"latest_ms": before.get("latest_ms")},
)


def _bytes_before(inputs: DerivedInputs) -> int:
    if inputs.state is None:
        return 0
    summary = inputs.state.day_summary(inputs.day - timedelta(days=1))
    return int(summary.get("total-files-size", 0))


def _versions_before(
    day: TableDay, inputs: DerivedInputs, identifier: str, start: date
) -> DataFrame | None:
    """The history as it was before a day.

    Raises:
        MissingDayError: that day has expired.
    """
    before = start - timedelta(days=1)
    if before < inputs.start or inputs.state is None:
        return None
    if before not in inputs.state.tags:
        raise inputs.missing(before)
    if inputs.state.day_summary(before).get("total-records") in (None, "0"):
        return None
    return at_in_lake(day.lake.at(identifier, inputs.state.tags[before]), day.sent.rename)


def _may_fall(day: TableDay, inputs: DerivedInputs) -> bool:
    """May an event of the day have a time before that at which a version ended?"""
    latest, facts = inputs.report_before().get("latest_ms"), day.day_facts
    if latest is None or facts.source_times is None or facts.without_position:
        return True  # not known: the facts have times of events with a position alone
    return bool(facts.source_times[0] < latest)


def _tracked(inputs: DerivedInputs, columns: TableColumns) -> list[OwnColumn] | None:
    """The columns whose changes begin a version; None: each event does.

    Raises:
        ConfigError: the table has none of the columns that are named.
    """
    settings = inputs.settings.tables[inputs.table].history
    if settings and settings.columns:
        found = [c for c in columns.values if c.name in settings.columns]
        if not found:
            got, known = (
                ", ".join(n) for n in (settings.columns, (c.name for c in columns.values))
            )
            raise ConfigError(
                [
                    f"sources.{inputs.source}.tables.{inputs.table}.history.columns: got {got}; "
                    f"the table has {known or 'none'}"
                ]
            )
        return found
    if settings and settings.except_:
        return [c for c in columns.values if c.name not in settings.except_]
    return None
