"""Which ended days the lake lacks, and the runs that make them: read without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from cdc_assets.cdc import made_of
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import MissingTableError
from cdc_assets.cdc.lake.commits import EXPIRED, DayCommit
from cdc_assets.cdc.lake.metadata import day_commits, table_state
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.tables import LakeTable, find_table, own_table
from cdc_assets.cdc.state.day_inputs import DayInputs
from cdc_assets.orchestration.asset_keys import STAGES, table_key

if TYPE_CHECKING:
    from pyiceberg.table import Table

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class CatchUp:
    """Days of a source that one run makes in order, and the assets that lack them."""

    first: date
    last: date
    assets: tuple[dg.AssetKey, ...]
    is_behind: bool = False


def catch_up_runs(config: Config, name: str, ended: date) -> list[CatchUp]:
    """The runs that make the missing days of a source, from the oldest on.

    A run covers at most `automation.catch_up_days` days. All assets that miss a day share one run.
    A table that lags so far behind that its run would not reach the newest days has a run of its
    own, over days that the other assets have: a table that fails every night delays no other.

    Args:
        config: cdc.yaml.
        name: the source.
        ended: the newest day that is asked for.

    Raises:
        LakeError: the catalog can't be read. No day counts as missing for that reason.
    """
    span = timedelta(days=config.automation.catch_up_days)
    stages, tables = missing_since(config, name, ended)
    newest = stages or ended + _DAY
    together = {table: day for table, day in tables.items() if day > newest - span}
    runs = []
    if stages or together:
        first = min([newest, *together.values()])
        assets = [dg.AssetKey([name, stage]) for stage in STAGES] if stages else []
        assets += [table_key(name, table) for table in together]
        runs.append(CatchUp(first, min(first + span - _DAY, ended), tuple(assets)))
    behind: dict[date, list[str]] = defaultdict(list)
    for table, day in tables.items():
        if table not in together:
            behind[day].append(table)
    for first, late in sorted(behind.items()):
        keys = tuple(table_key(name, table) for table in late)
        runs.append(CatchUp(first, first + span - _DAY, keys, is_behind=True))
    return runs


def missing_since(config: Config, name: str, ended: date) -> tuple[date | None, dict[str, date]]:
    """The oldest missing day of a source's stages, and of each table that misses one.

    A day that was made before its end is missing until it is made again: more may have landed.
    """
    landing, changes, lag = (_commits(config, name, t) for t in ("landing", "changes", "lag"))
    made = made_of.complete_days(landing, changes, lag)
    tables = {
        table: _oldest_missing(
            config.start_of(name, table), ended, _days(config, name, table, changes)
        )
        for table in config.sources[name].tables
    }
    return (
        _oldest_missing(config.start_date, ended, made),
        {table: day for table, day in tables.items() if day is not None},
    )


def _oldest_missing(first: date, last: date, made: Collection[date]) -> date | None:
    days = (first + n * _DAY for n in range((last - first).days + 1))
    return next((day for day in days if day not in made), None)


def _commits(config: Config, name: str, stage: str) -> dict[date, DayCommit]:
    table = _open(config, own_table(name, stage))
    return day_commits(table) if table else {}


def _days(
    config: Config, name: str, table: str, changes: Mapping[date, DayCommit]
) -> Collection[date]:
    """The days of a table that were made of what is there now, or have expired."""
    opened = _open(config, find_table(config, table, name))
    if opened is None:
        return ()
    state, commits = table_state(opened), {"changes": changes}
    inputs = {day: DayInputs(config, name, table, day, commits, state) for day in state.tags}
    made = {day for day, of_day in inputs.items() if of_day.is_of_what_is_there}
    return made | _expired(config.start_of(name, table), opened)


def _expired(first: date, table: Table) -> set[date]:
    text = table.properties.get(EXPIRED)
    if text is None:
        return set()
    return {first + n * _DAY for n in range((date.fromisoformat(text) - first).days + 1)}


def _open(config: Config, table: LakeTable) -> Table | None:
    """The table, or None where no run has made it. Any other error of the catalog is raised."""
    try:
        return open_table(config, table)
    except MissingTableError:
        return None
