"""All imports of Dagster's private names, each with its reason.

Any version may move them: `pyproject.toml` bounds Dagster's version, and tests run all their users.
"""

from __future__ import annotations

# What a selection of one's own, here of checks by their name, is asked with.
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph

# The name of the repository, for the origin of a run (see below).
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME

# An output with this mark gets no materialization: days are recorded as soon as they are done.
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

# Raised in a step of a stopped run; no failure.
from dagster._core.errors import DagsterExecutionInterruptedError

# Filters and cursors of the event log without a public API: events since the last alert, and the
# newest evaluation of a check on one day.
from dagster._core.event_api import EventLogCursor, PartitionKeyFilter, RunStatusChangeEventType
from dagster._core.events import DagsterEvent, EngineEventData

# The parts of Dagster's own executors, which run steps one after another or in processes; here they
# make one that runs steps in threads.
from dagster._core.execution.api import ExecuteRunWithPlanIterable, execute_run
from dagster._core.execution.compute_logs import create_compute_log_file_key
from dagster._core.execution.context.system import (
    PlanExecutionContext,
    PlanOrchestrationContext,
    StepExecutionContext,
)
from dagster._core.execution.context_creation_job import PlanExecutionContextManager
from dagster._core.execution.plan.active import ActiveExecution
from dagster._core.execution.plan.execute_plan import (
    _handle_compute_log_setup_error as compute_log_setup_error,
)
from dagster._core.execution.plan.execute_plan import (
    _handle_compute_log_teardown_error as compute_log_teardown_error,
)
from dagster._core.execution.plan.execute_plan import _trigger_hook as trigger_hook
from dagster._core.execution.plan.execute_plan import dagster_event_sequence_for_step
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode, get_retries_config
from dagster._core.executor.base import Executor

# The origin of a run, from the location in workspace.yaml: Dagster's timeline leaves out runs
# without one.
from dagster._core.remote_origin import RemoteJobOrigin, RemoteRepositoryOrigin

# The states of recorded evaluations: a planned one hides the previous one.
from dagster._core.storage.asset_check_execution_record import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)
from dagster._core.workspace.load import location_origins_from_yaml_paths

__all__ = [
    "COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES",
    "SINGLETON_REPOSITORY_NAME",
    "SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION",
    "ActiveExecution",
    "AssetCheckExecutionRecord",
    "AssetCheckExecutionRecordStatus",
    "BaseAssetGraph",
    "DagsterEvent",
    "DagsterExecutionInterruptedError",
    "EngineEventData",
    "EventLogCursor",
    "ExecuteRunWithPlanIterable",
    "ExecutionPlan",
    "Executor",
    "InstanceConcurrencyContext",
    "PartitionKeyFilter",
    "PlanExecutionContext",
    "PlanExecutionContextManager",
    "PlanOrchestrationContext",
    "RemoteJobOrigin",
    "RemoteRepositoryOrigin",
    "RetryMode",
    "RunStatusChangeEventType",
    "StepExecutionContext",
    "compute_log_setup_error",
    "compute_log_teardown_error",
    "create_compute_log_file_key",
    "dagster_event_sequence_for_step",
    "execute_run",
    "get_retries_config",
    "location_origins_from_yaml_paths",
    "trigger_hook",
]
