"""The sensors: landed files, missing and corrected days, health, alerts."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from datetime import date
from typing import Any

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError
from cdc_assets.cdc.lake.metadata import PyIcebergMetadata
from cdc_assets.cdc.landing.source import WatchedLanding
from cdc_assets.cdc.landing.sources import landing_source
from cdc_assets.cdc.redaction import without_secrets
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.orchestration.assets.keys import asset_keys
from cdc_assets.orchestration.automation.alerts import build_alerts_sensor
from cdc_assets.orchestration.automation.health import build_health_sensor
from cdc_assets.orchestration.execution.jobs import (
    RANGE_END,
    RANGE_START,
    SOURCE,
    daily,
    is_unfinished,
)

_SETTLED_SECONDS = 30  # younger files may still be written


def build_sensors(config: Config) -> list[dg.SensorDefinition]:
    """The sensors of a configuration.

    `automation` switches on the sensors that request days. `health` is on by default, as is
    `alerts`, which exists if `alerts` has a channel.

    Raises:
        ConfigError: a channel's package is not installed.
    """
    conditions = dg.AutomationConditionSensorDefinition(
        "missing_and_corrected_days",
        target=dg.AssetSelection.all(),
        description="Requests ended days that are missing, and the days after one that was made "
        "again.",
        default_status=_status(config.automation.conditions),
    )
    files = [_landed_files(config)] if _watched_landings(config) else []
    watching = [build_health_sensor(config), build_alerts_sensor(config)]
    return [*files, conditions, *(sensor for sensor in watching if sensor is not None)]


def _status(is_on: bool) -> dg.DefaultSensorStatus:
    return dg.DefaultSensorStatus.RUNNING if is_on else dg.DefaultSensorStatus.STOPPED


def _watched_landings(config: Config) -> list[WatchedLanding[Any]]:
    """The landings whose days may change after their end: files and tables."""
    landings = (landing_source(config, source) for source in config.sources)
    return [landing for landing in landings if isinstance(landing, WatchedLanding)]


@dataclass(frozen=True)
class RequestedDays:
    """The days of a source to make because of its landing.

    `changed` days have other files than have landed, or records that came since, or changes older
    than their landing.
    """

    first: date
    last: date
    changed: tuple[date, ...]
    fingerprint: str


def days_to_request(landing: WatchedLanding[Any], now: float | None = None) -> RequestedDays | None:
    """The days from the first one with new or changed files to the newest day that landed.

    Landed days without changes made of them are requested as well. Days after a changed one are
    built on it, so they are made again. The files are compared with the lake, not with earlier
    ticks: a day that was made by hand is not requested.

    Args:
        landing: the landing of a source.
        now: seconds since 1970; files younger than 30 seconds wait for the next tick.

    Raises:
        OSError: the folder can't be listed.
        LandingError: the folder has entries, but no day.
        LakeError: the lake can't be read.
    """
    config, source = landing.config, landing.source
    lake = PyIcebergMetadata(config)
    landed = lake.day_commits(source, "landing")
    settled_ms = ((time.time() if now is None else now) - _SETTLED_SECONDS) * 1000
    changed = {
        day: fingerprint
        for day, fingerprint in landing.changed_days(landed, settled_ms).items()
        if config.start_date <= day <= config.today()
    }
    outdated = ChangesStage(config, source).outdated(lake)
    older = [day for day in outdated if day >= config.start_date and day not in changed]
    if not changed and not older:
        return None
    prints = {str(day): fingerprint for day, fingerprint in sorted(changed.items())}
    prints |= {f"landing of {day}": str(landed[day].snapshot_id) for day in older}
    days = sorted([*changed, *older])
    return RequestedDays(
        days[0],
        max([*landed, *changed]),
        tuple(days),
        hashlib.sha256(repr(prints).encode()).hexdigest()[:16],
    )


def _landed_files(config: Config) -> dg.SensorDefinition:
    @dg.sensor(
        job=daily,
        name="landed_files",
        minimum_interval_seconds=60,
        description=(
            "Requests the days whose landed files are new, changed or late, whose tables got late "
            "records, or which did not reach the changes, and every day after them, in one run per "
            "source."
        ),
        default_status=_status(config.automation.new_files),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        requests, busy, faults = [], [], []
        for landing in _watched_landings(config):
            source = landing.source
            if is_unfinished(context.instance, **{SOURCE: source}):
                busy.append(source)
                continue
            try:
                requested = days_to_request(landing)
            except OSError as error:
                faults.append(f"{source}: {landing.place} can't be listed: {error}")
                continue
            except CdcError as error:
                faults.append(f"{source}: {error}")
                continue
            if requested is not None:
                requests.append(_request(config, source, requested))
        faults = [without_secrets(fault, config.secrets) for fault in faults]
        if faults and not requests:
            raise dg.Failure("\n".join(faults))
        for fault in faults:
            context.log.error(fault)
        reason = (
            f"{', '.join(busy)}: the previous run has not ended yet" if busy else "no new files"
        )
        return dg.SensorResult(requests, skip_reason=None if requests else reason)

    return sensor


def _request(config: Config, source: str, requested: RequestedDays) -> dg.RunRequest:
    # A failed run is requested again once its files change or have landed.
    return dg.RunRequest(
        run_key=f"{source} {requested.first}…{requested.last} {requested.fingerprint}",
        asset_selection=asset_keys(source, config),
        tags={
            RANGE_START: str(requested.first),
            RANGE_END: str(requested.last),
            SOURCE: source,
            "cdc/changed_days": ", ".join(map(str, requested.changed))[:200],
        },
    )
