"""When the job `daily` runs."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.jobs import daily


def daily_schedule(config: Config) -> dg.ScheduleDefinition:
    """At 01:00 of the project's time zone, the last day that has ended.

    Dagster's `build_schedule_from_partitioned_job` would ask for the newest partition, which
    is the open day and still empty.
    """

    @dg.schedule(
        job=daily,
        cron_schedule="0 1 * * *",
        execution_timezone=config.timezone,
        name="daily_schedule",
        description="The last day that has ended, of every source.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        ended = context.scheduled_execution_time.date() - timedelta(days=1)
        if ended < config.start_date:
            return dg.SkipReason(f"{ended} is before start_date {config.start_date}")
        return dg.RunRequest(run_key=str(ended), partition_key=str(ended))

    return schedule
