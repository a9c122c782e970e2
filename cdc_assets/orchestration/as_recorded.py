"""Steps whose days are up to date and recorded as they are: recorded again, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError
from cdc_assets.cdc.findings import AUDIT, Check, Finding
from cdc_assets.cdc.up_to_date import UpToDate
from cdc_assets.orchestration import records
from cdc_assets.orchestration.checks import recorded_finding
from cdc_assets.orchestration.jobs import FORCE

Versions = Mapping[date, records.Version]


def step_records(
    context: dg.AssetExecutionContext,
    config: Config,
    name: str,
    judged: Mapping[dg.AssetKey, Sequence[Check]],
    days: Sequence[date],
    tables: Mapping[dg.AssetKey, str] | None = None,
) -> list[records.DayRecord] | None:
    """The records of a step; None where a day is to be made, or Spark has to look at one.

    Args:
        judged: the step's assets with their checks.
        days: those of the run.
        tables: the table of each asset, where the step makes tables.
    """
    # A forced day is made again; checks of the open day compare with now.
    if FORCE in context.run.tags or any(map(config.is_open, days)):
        return None
    up_to_date, found = UpToDate(config, name), []
    try:
        for key, checks in judged.items():
            if tables:
                versions = _of_table(up_to_date, tables[key], days)
            else:
                versions = _of_stage(up_to_date, key.path[1], days)
            of_asset = None if versions is None else _of_days(context, key, checks, versions)
            if of_asset is None:
                return None
            found += of_asset
    except (CdcError, OSError):  # the step itself says what is wrong
        return None
    return found


def _of_stage(up_to_date: UpToDate, stage: str, days: Sequence[date]) -> Versions | None:
    commits = up_to_date.stage(stage, days)
    if commits is None:
        return None
    return records.stage_versions(up_to_date.config, up_to_date.name, commits, days)


def _of_table(up_to_date: UpToDate, table: str, days: Sequence[date]) -> Versions | None:
    config, name = up_to_date.config, up_to_date.name
    of_table = [day for day in days if day >= config.start_of(name, table)]
    if not of_table:
        return {}
    state = up_to_date.table(table, of_table)
    return None if state is None else records.table_versions(config, name, table, state, of_table)


def _of_days(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    checks: Sequence[Check],
    versions: Versions,
) -> list[records.DayRecord] | None:
    """The records of an asset's days, that of the last one with its checks: none is missing."""
    if not versions:
        return []
    before = records.recorded(context, key, list(versions))
    last = max(versions)
    findings = _findings(context, key, checks, last)
    found = []
    for day, version in versions.items():
        known = version.as_recorded(before.get(day))
        if known is None or findings is None:
            return None
        of_day = findings if day == last else ()
        found.append(records.DayRecord(key, day, "as before", known, of_day))
    return found


def _findings(
    context: dg.AssetExecutionContext, key: dg.AssetKey, checks: Sequence[Check], day: date
) -> list[Finding] | None:
    """What the checks found on a day when it was recorded; None where one has to look again.

    A failed audit is that of a version that was not published.
    """
    keys = [dg.AssetCheckKey(key, check.name) for check in checks]
    evaluations = records.newest_evaluations(context.instance, keys, day)
    if len(evaluations) < len(keys) or any(AUDIT in e.metadata for e in evaluations.values()):
        return None
    return [recorded_finding(evaluations[check]) for check in keys]
