"""The job `daily` and the tags of its runs."""

from __future__ import annotations

import dagster as dg

from cdc_assets.orchestration.execution.executor import threads_executor

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def is_unfinished(instance: dg.DagsterInstance, **tags: str) -> bool:
    """True while a run with these tags is queued or running."""
    return bool(instance.get_runs(dg.RunsFilter(statuses=UNFINISHED, tags=tags), limit=1))


# Dagster's tags of a run over a range of days.
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
SOURCE = "cdc/source"  # the source whose days are requested
# Land what Kafka or the folder still has; also make days that are up to date.
ALLOW_LOSS, FORCE = "cdc/allow_loss", "cdc/force"

daily = dg.define_asset_job(
    "daily",
    selection=dg.AssetSelection.all(),
    description="Makes a day of every source: landing, changes, tables and lag.",
    executor_def=threads_executor,
)
