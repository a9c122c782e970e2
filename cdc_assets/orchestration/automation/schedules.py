"""The daily schedule and the schedule of the open day."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from zoneinfo import ZoneInfo

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError, ConfigError
from cdc_assets.orchestration.automation.catch_up import CatchUp, catch_up_runs
from cdc_assets.orchestration.execution.failures import failure
from cdc_assets.orchestration.execution.jobs import (
    RANGE_END,
    RANGE_START,
    SOURCE,
    daily,
    is_unfinished,
)


def build_schedules(config: Config) -> list[dg.ScheduleDefinition]:
    """The daily schedule and, if `automation.open_day` is set, the schedule of the open day.

    Raises:
        ConfigError: `automation.open_day` is not a cron expression.
    """
    found = [_daily(config)]
    if config.automation.open_day:
        with cron_setting("automation.open_day", config.automation.open_day):
            found.append(_open_day(config, config.automation.open_day))
    return found


def status(is_on: bool) -> dg.DefaultScheduleStatus:
    """The default status of a schedule."""
    return dg.DefaultScheduleStatus.RUNNING if is_on else dg.DefaultScheduleStatus.STOPPED


@contextmanager
def cron_setting(path: str, cron: str | None) -> Iterator[None]:
    """Name the setting in the error that Dagster raises for an invalid cron expression."""
    try:
        yield
    except dg.DagsterInvalidDefinitionError as error:
        raise ConfigError(
            [f'{path}: got {cron!r}; expected five cron fields such as "*/30 * * * *"']
        ) from error


def _daily(config: Config) -> dg.ScheduleDefinition:
    """Request the ended days that each source lacks, oldest first.

    Dagster's `build_schedule_from_partitioned_job` would request the newest partition, which is the
    open day and still empty.
    """
    automation = config.automation

    @dg.schedule(
        job=daily,
        cron_schedule=automation.daily_cron,
        execution_timezone=config.timezone,
        name="daily_schedule",
        description=(
            "Requests the ended days that are missing, oldest first, in one run per source. Days "
            "of a missed or failed night are requested again the next night."
        ),
        default_status=status(automation.daily_at is not None),
    )
    def schedule(
        context: dg.ScheduleEvaluationContext,
    ) -> list[dg.RunRequest] | dg.SkipReason:
        local = context.scheduled_execution_time.astimezone(ZoneInfo(config.timezone))
        ended = local.date() - timedelta(days=1)
        if ended < config.start_date:
            return dg.SkipReason(f"{ended} is before start_date {config.start_date}")
        try:
            requests = [
                _catch_up_request(source, ended, run)
                for source in config.sources
                for run in catch_up_runs(config, source, ended)
            ]
        except CdcError as error:
            raise failure(str(error), error, config) from None
        return requests or dg.SkipReason(f"no day is missing from {config.start_date} to {ended}")

    return schedule


def _catch_up_request(source: str, ended: date, run: CatchUp) -> dg.RunRequest:
    # With the night in the key a tick that is evaluated twice requests one run, and the night after
    # a failure requests the same days again.
    run_key = f"{ended} {source}" + (f" behind from {run.first}" if run.is_behind else "")
    return dg.RunRequest(
        run_key=run_key,
        asset_selection=list(run.assets),
        tags={RANGE_START: str(run.first), RANGE_END: str(run.last), SOURCE: source},
    )


def _open_day(config: Config, cron: str) -> dg.ScheduleDefinition:
    @dg.schedule(
        job=daily,
        cron_schedule=cron,
        execution_timezone=config.timezone,
        name="open_day_schedule",
        description="Makes the open day of every source again, with what has landed so far.",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        at = context.scheduled_execution_time.astimezone(ZoneInfo(config.timezone))
        if at.date() < config.start_date:
            return dg.SkipReason(f"{at.date()} is before start_date {config.start_date}")
        if is_unfinished(context.instance, **{"dagster/schedule_name": "open_day_schedule"}):
            return dg.SkipReason("the previous run has not ended yet")
        return dg.RunRequest(run_key=at.isoformat(), partition_key=str(at.date()))

    return schedule
