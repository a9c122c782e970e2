"""Standing asset checks: what must hold of a day, with figures and examples.

A check is evaluated a day each, also in a range run, and states the healthy condition. The
audit that stops a bad day runs before publishing, inside the step (see
:mod:`cdc_assets.cdc.snapshots`); these tell what came of the day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import dagster as dg
from pyspark.sql import functions as F

from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.lake import Lake
from cdc_assets.cdc.snapshots import DayReport

ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


@dataclass(frozen=True)
class Check:
    """A check's name, what it says is true, and how bad it is when it is not."""

    name: str
    description: str
    severity: dg.AssetCheckSeverity = ERROR


LANDING = (
    Check(
        "offsets_contiguous", "Each partition's offsets follow one another, also from day to day."
    ),
)
CHANGES = (
    Check("nothing_lost", "Every landed record is in changes, control or quarantine, once."),
    Check("op_codes_known", "No record was quarantined for its op code."),
    Check("keys_present", "No record was quarantined for its key."),
    Check("tables_configured", "Every table in the data is in the configuration.", WARN),
    Check("positions_in_order", "No table's newest position fell behind the day before's.", WARN),
    Check("no_hidden_changes", "No DDL that may have changed rows out of sight.", WARN),
    Check("contract", "The table's columns and types are as documented."),
)
TABLE = (
    Check("keys_unique", "Each key stands once (audited before publishing)."),
    Check("built_on_day_before", "The day was built on the day before as it is now."),
    Check("values_representable", "Every value fits its column.", WARN),
    Check("schema_compatible", "No column came with a type that its column can't take.", WARN),
    Check("contract", "The key columns are there and the types are ones the lake holds."),
)
LAG = (Check("lag_within_slo", "The p95 capture lag of each table is within lag_slo_ms.", WARN),)


def specs(asset: dg.AssetKey, checks: Sequence[Check]) -> list[dg.AssetCheckSpec]:
    """Dagster's specs of some checks on an asset."""
    return [dg.AssetCheckSpec(c.name, asset=asset, description=c.description) for c in checks]


@dataclass(frozen=True)
class Finding:
    """What a check found on a day."""

    name: str
    passed: bool
    metadata: Mapping[str, Any] = field(default_factory=dict)


def record(
    context: dg.AssetExecutionContext,
    asset: dg.AssetKey,
    day: date,
    checks: Sequence[Check],
    findings: Sequence[Finding],
) -> None:
    """Log findings as evaluations of the day; an `AssetCheckResult` would belong to no day."""
    severities = {check.name: check.severity for check in checks}
    for finding in findings:
        context.log_event(
            dg.AssetCheckEvaluation(
                asset_key=asset,
                check_name=finding.name,
                passed=finding.passed,
                metadata=dict(finding.metadata),
                severity=severities[finding.name],
                partition=day.isoformat(),
            )
        )


def landing_findings(lake: Lake, name: str, days: Sequence[date]) -> dict[date, list[Finding]]:
    """`offsets_contiguous` of some days: gaps, repeats, and the step from the day before."""
    if not days:
        return {}
    span = [days[0] - timedelta(days=1), *days]
    rows = (
        lake.spark.table(lake.stage(name, "landing"))
        .where(F.col("landing_date").isin([F.lit(d) for d in span]) & F.col("offset").isNotNull())
        .groupBy("landing_date", "topic", "partition")
        .agg(
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count("*").alias("records"),
            F.count_distinct("offset").alias("offsets"),
        )
        .collect()
    )
    by_day: dict[date, dict[tuple[str, int], Any]] = {}
    for row in rows:
        by_day.setdefault(row.landing_date, {})[row.topic, row.partition] = row
    findings = {}
    for day in days:
        before = by_day.get(day - timedelta(days=1), {})
        faults = []
        for (topic, partition), row in sorted(by_day.get(day, {}).items()):
            where = f"{topic} [{partition}]"
            if missing := row["last"] - row["first"] + 1 - row.offsets:
                faults.append(f"{where}: {missing} offsets missing in {row['first']}…{row['last']}")
            if row.records > row.offsets:
                faults.append(f"{where}: {row.records - row.offsets} records landed twice")
            old = before.get((topic, partition))
            if old is not None and row["first"] != old["last"] + 1:
                faults.append(
                    f"{where}: starts at {row['first']}, the day before ended at {old['last']}"
                )
        findings[day] = [listed("offsets_contiguous", faults)]
    return findings


def listed(name: str, faults: Sequence[str]) -> Finding:
    """A finding that passes where there is no fault; the first faults are its examples."""
    metadata: dict[str, Any] = {"faults": len(faults)}
    if faults:
        metadata["examples"] = dg.MetadataValue.md("\n".join(f"- {f}" for f in faults[:20]))
    return Finding(name, not faults, metadata)


def changes_findings(
    lake: Lake, name: str, source: SourceConfig, day: date, figures: Mapping[str, Any]
) -> list[Finding]:
    """The findings of a day of changes, of the figures of `count_by` and two small queries."""
    reached = sum(sum(figures[k].values()) for k in ("changes", "control", "quarantine"))
    reasons = figures["quarantine"]
    extra = {t: n for t, n in figures["tables"].items() if t not in source.tables and t is not None}
    op_reasons = {r: reasons[r] for r in ("missing_op", "unknown_op") if r in reasons}
    key_reasons = {r: reasons[r] for r in ("malformed_key", "missing_key") if r in reasons}
    return [
        Finding(
            "nothing_lost",
            reached == figures["landed"],
            {"landed": figures["landed"], "reached": reached},
        ),
        Finding("op_codes_known", not op_reasons, _with_examples(lake, name, day, op_reasons)),
        Finding("keys_present", not key_reasons, _with_examples(lake, name, day, key_reasons)),
        Finding("tables_configured", not extra, {"events": extra} if extra else {}),
        _positions_finding(lake, name, day),
        _ddl_finding(lake, name, day),
    ]


def _with_examples(lake: Lake, name: str, day: date, reasons: Mapping[str, int]) -> dict[str, Any]:
    metadata: dict[str, Any] = dict(reasons)
    if reasons:
        rows = (
            lake.spark.table(lake.stage(name, "quarantine"))
            .where((F.col("landing_date") == F.lit(day)) & F.col("reason").isin(list(reasons)))
            .select("topic", "partition", "offset", "reason", "detail")
            .limit(5)
            .collect()
        )
        metadata["examples"] = dg.MetadataValue.md(
            "\n".join(
                f"- {r.topic} [{r.partition}] {r.offset}: {r.reason}, {r.detail}" for r in rows
            )
        )
    return metadata


def _positions_finding(lake: Lake, name: str, day: date) -> Finding:
    """O11: a new server starts its positions afresh; without a reset old rows beat new ones."""
    rows = (
        lake.spark.table(lake.stage(name, "changes"))
        .where(
            F.col("landing_date").isin([F.lit(day), F.lit(day - timedelta(days=1))])
            & F.col("position").isNotNull()
        )
        .groupBy("table_name", "landing_date")
        .agg(F.max("position").alias("newest"))
        .collect()
    )
    newest = {(r.table_name, r.landing_date): list(r.newest) for r in rows}
    faults = [
        f"{table}: {position} after {newest[table, day - timedelta(days=1)]}; if the server is "
        "new or restored, say when in position_reset"
        for (table, of), position in sorted(newest.items())
        if of == day
        and (table, day - timedelta(days=1)) in newest
        and position < newest[table, day - timedelta(days=1)]
    ]
    return listed("positions_in_order", faults)


def _ddl_finding(lake: Lake, name: str, day: date) -> Finding:
    rows = (
        lake.spark.table(lake.stage(name, "control"))
        .where(
            (F.col("landing_date") == F.lit(day))
            & F.col("source_op").isin("QUERY", "ERASE", "RENAME", "ALTER")
        )
        .select("table_name", "source_op", "payload")
        .limit(20)
        .collect()
    )
    return listed("no_hidden_changes", [f"{r.table_name} {r.source_op}: {r.payload}" for r in rows])


def table_findings(lake: Lake, identifier: str, day: date, report: DayReport) -> list[Finding]:
    """The findings of a published day of a table."""
    import json

    state = lake.read_state(identifier)
    assert state is not None
    made_of = json.loads(state.day_summary(day).get("cdc.inputs", "{}"))
    before = state.tags.get(day - timedelta(days=1))
    unfit = {c: f"{v['count']}, such as {v['example']}" for c, v in report.unfit.items()}
    return [
        Finding("keys_unique", True, {"rows": report.rows}),
        Finding(
            "built_on_day_before",
            made_of.get("day_before") in (None, before),
            {"built_on": str(made_of.get("day_before")), "day_before": str(before)},
        ),
        Finding(
            "values_representable",
            not unfit and not report.unresolved,
            {**unfit, "unresolved_unchanged_values": report.unresolved},
        ),
        listed("schema_compatible", list(report.incompatible)),
    ]


def lag_findings(rows: Sequence[Mapping[str, Any]], slo_ms: int | None) -> list[Finding]:
    """`lag_within_slo` of one day's lag rows (hour null)."""
    capture = {
        r["table_name"]: r["p95_ms"]
        for r in rows
        if r["kind"] == "capture" and r["p95_ms"] is not None
    }
    late = {t: p95 for t, p95 in capture.items() if slo_ms is not None and p95 > slo_ms}
    metadata: dict[str, Any] = {"lag_slo_ms": slo_ms if slo_ms is not None else "none"}
    if capture:
        metadata["worst_p95_ms"] = max(capture.values())
    if late:
        metadata["late_tables"] = late
    return [Finding("lag_within_slo", not late, metadata)]
