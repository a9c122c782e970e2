"""The job that makes a day of everything."""

from __future__ import annotations

import dagster as dg

from cdc_assets.orchestration.executor import threads_executor

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def is_unfinished(instance: dg.DagsterInstance, **tags: str) -> bool:
    """True while a run with these tags waits or goes on."""
    return bool(instance.get_runs(dg.RunsFilter(statuses=UNFINISHED, tags=tags), limit=1))


# A run over several days: all of them in one process, in order.
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
SOURCE = "cdc/source"  # the source whose days were asked for
# Land what Kafka, or the folder, still has; make again what is made already.
ALLOW_LOSS, FORCE = "cdc/allow_loss", "cdc/force"

daily = dg.define_asset_job(
    "daily",
    selection=dg.AssetSelection.all(),
    description="Makes a day of every source: landing, changes, tables and lag.",
    executor_def=threads_executor,
)
