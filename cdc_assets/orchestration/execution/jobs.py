"""The job `daily` and the tags of its runs."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import dagster as dg

from cdc_assets.cdc.verification.findings import MATCHES_SOURCE
from cdc_assets.orchestration.execution.executor import threads_executor
from cdc_assets.orchestration.internals import BaseAssetGraph

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


class _ChecksAgainstDatabases(dg.AssetSelection):
    """The checks that read a source's database; a day's run does not."""

    def resolve_inner(
        self, asset_graph: BaseAssetGraph[Any], allow_missing: bool
    ) -> Set[dg.AssetKey]:
        return set()

    def resolve_checks_inner(
        self, asset_graph: BaseAssetGraph[Any], allow_missing: bool
    ) -> Set[dg.AssetCheckKey]:
        return {key for key in asset_graph.asset_check_keys if key.name == MATCHES_SOURCE.name}

    def to_serializable_asset_selection(
        self, asset_graph: BaseAssetGraph[Any]
    ) -> dg.AssetSelection:
        return dg.AssetSelection.checks(*self.resolve_checks_inner(asset_graph, True))


daily = dg.define_asset_job(
    "daily",
    selection=dg.AssetSelection.all() - _ChecksAgainstDatabases(),
    description="Makes a day of every source: landing, changes, tables and lag.",
    executor_def=threads_executor,
)
