"""Records of a step whose days are all up to date, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError
from cdc_assets.cdc.findings import AUDIT, Check, Finding
from cdc_assets.cdc.lake.metadata import PyIcebergMetadata
from cdc_assets.cdc.stages.contract import Stage, Version
from cdc_assets.orchestration.assets import records
from cdc_assets.orchestration.checks import recorded_finding
from cdc_assets.orchestration.execution.jobs import FORCE


def step_records(
    context: dg.AssetExecutionContext,
    config: Config,
    stages: Sequence[Stage[Any]],
    keys: Mapping[str, dg.AssetKey],
    checks: Mapping[str, Sequence[Check]],
    days: Sequence[date],
) -> list[records.DayRecord] | None:
    """The records of a step; None if a day must be made or checked with Spark.

    Args:
        context: of the step.
        config: cdc.yaml.
        stages: the stages of the step.
        keys: the assets to record, by table.
        checks: the checks of each table.
        days: the days of the run.
    """
    # A forced day is made again; checks of the open day compare with now.
    if FORCE in context.run.tags or any(map(config.is_open, days)):
        return None
    lake, found = PyIcebergMetadata(config), []
    try:
        for stage in stages:
            own_days = stage.own_days(days)
            if own_days and stage.stale(lake, own_days):
                return None
            for table in (table for table in stage.checks if table in keys):
                versions = stage.versions(lake, table, own_days)
                recorded = _asset_records(context, keys[table], checks.get(table, ()), versions)
                if recorded is None:
                    return None
                found += recorded
    except (CdcError, OSError):  # the step itself reports the error
        return None
    return found


def _asset_records(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    checks: Sequence[Check],
    versions: Mapping[date, Version],
) -> list[records.DayRecord] | None:
    """The records of an asset's days, the last with the findings; None if one is outdated."""
    if not versions:
        return []
    before = records.recorded(context, key, list(versions))
    last = max(versions)
    findings = _findings(context, key, checks, last)
    found = []
    for day, version in versions.items():
        known = records.as_recorded(version, before.get(day))
        if known is None or findings is None:
            return None
        found.append(
            records.DayRecord(key, day, "as before", known, findings if day == last else ())
        )
    return found


def _findings(
    context: dg.AssetExecutionContext, key: dg.AssetKey, checks: Sequence[Check], day: date
) -> list[Finding] | None:
    """The recorded findings of a day; None if one is missing.

    A failed audit does not count: it belongs to a version that was not published.
    """
    keys = [dg.AssetCheckKey(key, check.name) for check in checks]
    evaluations = records.newest_evaluations(context.instance, keys, day)
    if len(evaluations) < len(keys) or any(AUDIT in e.metadata for e in evaluations.values()):
        return None
    return [recorded_finding(evaluations[check]) for check in keys]
