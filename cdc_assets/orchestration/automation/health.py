"""Health checks of a source, which belong to no day: fresh, alive, changes made of all landings.

Runs evaluate them after `changes`, the sensor `health` between runs. Both read the lake's metadata,
without Spark.

(Dagster reads the annotations of bodies as objects, so this module does not postpone them.)
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError, ConfigError, MissingTableError
from cdc_assets.cdc.findings import Check, Finding, Severity
from cdc_assets.cdc.lake.metadata import PyIcebergMetadata
from cdc_assets.cdc.lake.newest import NewestData, committed_ms, newest_data
from cdc_assets.cdc.lake.pyiceberg_catalog import catalog_properties, open_table
from cdc_assets.cdc.lake.tables import own_table
from cdc_assets.cdc.redaction import without_secrets
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.orchestration.assets.keys import asset_key
from cdc_assets.orchestration.checks import evaluation, result, specs
from cdc_assets.orchestration.internals import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES as COMPLETED,
)
from cdc_assets.orchestration.internals import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

FRESH = Check(
    "fresh", "The source's newest data is not older than fresh_within_hours.", Severity.WARN
)
ALIVE = Check(
    "source_alive_now",
    "The source's newest event or heartbeat is not older than max_silence_minutes.",
    Severity.WARN,
)
MADE = Check(
    "made_of_landing",
    "The changes of every landed day are made of what has landed: no record waits for a run.",
)
NAMES = (FRESH.name, ALIVE.name, MADE.name)
# After landing a day, a run may take so long to make its changes.
_UNDER_WAY = timedelta(hours=1)

EVERY_SECONDS = 300
_VERDICT = {True: "passes", False: "fails"}
# How often an unchanged result is recorded, with newer data and without.
_NEWER_DATA, _SAME_DATA = timedelta(hours=1), timedelta(hours=24)


def health_checks(config: Config, source: str) -> list[Check]:
    """The health checks of a source, on its `changes`.

    `fresh` and `source_alive_now` need a setting. There are none if only Spark can read the
    catalog.
    """
    if config.lake.catalog:
        try:
            catalog_properties(config)
        except ConfigError:
            return []
    settings = config.source(source)
    checks = [FRESH] if settings.fresh_within_hours is not None else []
    return [*checks, *([ALIVE] if settings.max_silence_minutes is not None else []), MADE]


def health_findings(config: Config, source: str, now: datetime | None = None) -> list[Finding]:
    """Evaluate the health checks of a source.

    Raises:
        MissingTableError: no day of the source is made yet.
        LakeError: the lake can't be read.
    """
    settings, now = config.source(source), now or datetime.now(timezone.utc)
    limits = {
        FRESH.name: timedelta(hours=settings.fresh_within_hours or 0),
        ALIVE.name: timedelta(minutes=settings.max_silence_minutes or 0),
    }
    timed = [c.name for c in health_checks(config, source) if c.name in limits]
    newest = newest_data(config, source) if timed else None
    ages = [_age_finding(config, c, newest, limits[c], now) for c in timed if newest is not None]
    return [*ages, _made_finding(config, source, now)]


def _made_finding(config: Config, source: str, now: datetime) -> Finding:
    landing = open_table(config, own_table(source, "landing"))
    lake = PyIcebergMetadata(config)
    landed = lake.day_commits(source, "landing")
    days = [
        day
        for day in ChangesStage(config, source).outdated(lake)
        if now.timestamp() - (committed_ms(landing, landed[day].snapshot_id) or 0) / 1000
        > _UNDER_WAY.total_seconds()
    ]
    if not days:
        return Finding(MADE.name, True, description=f"{len(landed)} landed days have their changes")
    span = f"{days[0]}" if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return Finding(
        MADE.name,
        False,
        {"days": ", ".join(map(str, days[:20])), "count": len(days)},
        description=f"the changes of {len(days)} landed days ({span}) are not made of what has "
        "landed: a run landed them and failed behind that. See its error, then make them: "
        f"cdc-assets run --source {source} --from {days[0]} --to {max(landed)}",
    )


def _age_finding(
    config: Config, check: str, newest: NewestData, limit: timedelta, now: datetime
) -> Finding:
    known = {
        "landed_day": str(newest.landed_day or "none"),
        "newest_day": str(newest.day or "none"),
        "limit": _span(limit),
    }
    landed = _landed(config, newest)
    if newest.record is None:
        return Finding(
            check, False, known, description=f"no landed record has a timestamp; {landed}"
        )
    age = max(now - newest.record, timedelta())
    return Finding(
        check,
        age <= limit,
        {
            "newest": newest.record,
            "age_hours": round(age / timedelta(hours=1), 2),
            **known,
        },
        description=f"the newest record that has landed is of {_local(config, newest.record)}, "
        f"{_span(age)} ago (limit {_span(limit)}), landed day {newest.day}; {landed}",
    )


def _landed(config: Config, newest: NewestData) -> str:
    if newest.landed_day is None:
        return "no day has landed yet"
    day = (
        ""
        if newest.landed_day == newest.day
        else f"the newest day that landed is {newest.landed_day}; "
    )
    if newest.landed_at is None:
        return f"{day}when it landed is no longer known"
    return f"{day}no run has landed anything since {_local(config, newest.landed_at)}"


def _local(config: Config, instant: datetime) -> str:
    return f"{instant.astimezone(ZoneInfo(config.timezone)):%Y-%m-%d %H:%M %Z}"


def _span(span: timedelta) -> str:
    minutes = round(span / timedelta(minutes=1))
    if minutes < 120:
        return f"{minutes} minutes"
    hours = round(span / timedelta(hours=1))
    return f"{hours} hours" if hours < 72 else f"{round(span / timedelta(days=1))} days"


def build_health_checks(config: Config) -> list[dg.AssetChecksDefinition]:
    """The check definitions that runs evaluate, alone or after `changes`."""
    return [_checks(config, source) for source in config.sources if health_checks(config, source)]


def _checks(config: Config, source: str) -> dg.AssetChecksDefinition:
    key = asset_key(source, "changes")

    # Not a check of the asset's step, where each evaluation would have a partition.
    @dg.multi_asset_check(
        name=f"{source}__health", specs=specs(key, health_checks(config, source)), can_subset=True
    )
    def body(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        checks = health_checks(config, source)
        chosen = {check.name for check in context.selected_asset_check_keys}
        try:
            findings = health_findings(config, source)
        except CdcError as error:
            # The run's days are made: only the checks fail.
            text = f"can't be evaluated: {error}"
            findings = [Finding(check, False, description=text) for check in NAMES]
        for finding in findings:
            if finding.name in chosen:
                yield result(evaluation(finding, key, checks))

    return body


def build_health_sensor(config: Config) -> dg.SensorDefinition | None:
    """The sensor `health`, on by default; None if no source has a health check."""
    sources = [source for source in config.sources if health_checks(config, source)]
    if not sources:
        return None

    @dg.sensor(
        name="health",
        minimum_interval_seconds=EVERY_SECONDS,
        description="Evaluates fresh, source_alive_now and made_of_landing of each source from the "
        "lake's metadata, and records them when the result or the newest data changes.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        return _tick(context, config, sources)

    return sensor


def _tick(
    context: dg.SensorEvaluationContext, config: Config, sources: Sequence[str]
) -> dg.SkipReason:
    faults, messages = [], []
    for source in sources:
        try:
            findings = health_findings(config, source)
        except MissingTableError:
            messages.append(f"{source}: nothing has landed yet")
            continue
        except CdcError as error:
            faults.append(f"{source}: {error}")
            continue
        for finding in findings:
            found = evaluation(finding, asset_key(source, "changes"), health_checks(config, source))
            if is_worth_recording(context.instance, found):
                context.instance.report_runless_asset_event(found)
            messages.append(
                f"{source}: {finding.name} {_VERDICT[finding.passed]}: {finding.description}"
            )
    faults = [without_secrets(fault, config.secrets) for fault in faults]
    if faults and not messages:
        raise dg.Failure("\n".join(faults))
    for fault in faults:
        context.log.error(fault)
    return dg.SkipReason("; ".join(messages))


def is_worth_recording(
    instance: dg.DagsterInstance, evaluation: dg.AssetCheckEvaluation, now: datetime | None = None
) -> bool:
    """Whether an evaluation differs enough from the last recorded one."""
    key = evaluation.asset_check_key
    last = last_recorded(instance, key.asset_key, key.name)
    if last is None or (was := last.evaluation) is None or last.event is None:
        return True
    if (was.passed, was.severity) != (evaluation.passed, evaluation.severity):
        return True
    if was.metadata.get("days") != evaluation.metadata.get("days"):
        return True
    latest = instance.get_latest_asset_check_evaluation_record(key)
    if latest is not None and latest.status == AssetCheckExecutionRecordStatus.PLANNED:
        # A run that planned the check and did not evaluate it hides the last evaluation.
        run = instance.get_run_by_id(latest.run_id)
        if run is None or run.is_finished:
            return True
    is_newer = was.metadata.get("newest") != evaluation.metadata.get("newest")
    age = (now or datetime.now(timezone.utc)).timestamp() - last.event.timestamp
    return age >= (_NEWER_DATA if is_newer else _SAME_DATA).total_seconds()


def last_recorded(
    instance: dg.DagsterInstance, asset: dg.AssetKey, check: str
) -> AssetCheckExecutionRecord | None:
    """The newest evaluation of a check; a planned one does not count."""
    history = instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(asset, check), limit=1, status=COMPLETED
    )
    return history[0] if history else None
