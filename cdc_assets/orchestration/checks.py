"""Checks and findings of `cdc` ↔ Dagster's asset checks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import dagster as dg

from cdc_assets.cdc.changes import findings as changes
from cdc_assets.cdc.derived import findings as derived
from cdc_assets.cdc.findings import Check, Finding, Severity
from cdc_assets.cdc.lag import findings as lag
from cdc_assets.cdc.landing import findings as landing
from cdc_assets.cdc.state import findings as state
from cdc_assets.orchestration.metadata import dagster_values

# The checks that have a day.
DAY_CHECKS: tuple[Check, ...] = (
    *landing.CHECKS,
    *changes.CHECKS,
    *changes.QUARANTINE_CHECKS,
    *state.CHECKS,
    *(check for check in derived.ALL_CHECKS if check not in state.CHECKS),
    *lag.CHECKS,
)


def specs(asset: dg.AssetKey, checks: Sequence[Check]) -> list[dg.AssetCheckSpec]:
    """Dagster's specs of checks on an asset."""
    return [dg.AssetCheckSpec(c.name, asset=asset, description=c.description) for c in checks]


def evaluation(
    finding: Finding, asset: dg.AssetKey, checks: Sequence[Check], day: date | None = None
) -> dg.AssetCheckEvaluation:
    """A finding as Dagster records it.

    Args:
        finding: the finding of one of `checks`.
        asset: the checked asset.
        checks: the checks of the asset, with their default severities.
        day: None for a check without a day.
    """
    default = {check.name: check.severity for check in checks}[finding.name]
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=finding.name,
        passed=finding.passed,
        metadata=dagster_values(finding.values),
        severity=dg.AssetCheckSeverity[(finding.severity or default).name],
        description=finding.description,
        partition=day.isoformat() if day else None,
    )


def result(evaluation: dg.AssetCheckEvaluation) -> dg.AssetCheckResult:
    """An evaluation as a check's own step yields it."""
    return dg.AssetCheckResult(
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        passed=evaluation.passed,
        metadata=evaluation.metadata,
        severity=evaluation.severity,
        description=evaluation.description,
    )


def recorded_finding(evaluation: dg.AssetCheckEvaluation) -> Finding:
    """A recorded evaluation as a finding; its values are Dagster's."""
    return Finding(
        evaluation.check_name,
        evaluation.passed,
        evaluation.metadata,
        Severity[evaluation.severity.name],
        evaluation.description,
    )
