"""Dagster's private names, imported here and nowhere else, each with its reason.

They may move in any version: `pyproject.toml` bounds Dagster's, and tests run all that uses them.
"""

from __future__ import annotations

# The repository of all definitions of this package, for the origin of a run (see below).
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME

# An output with this mark gets no materialization of its own: days are recorded as they are done.
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

# Raised in a step when the run is stopped; the executor tells it from a failure.
from dagster._core.errors import DagsterExecutionInterruptedError

# The filters and cursors of the event log that the public API has no reader for: what alerts have
# not told yet, and the newest evaluation of a check on one day.
from dagster._core.event_api import EventLogCursor, PartitionKeyFilter, RunStatusChangeEventType
from dagster._core.events import DagsterEvent, EngineEventData

# Dagster's own executors run steps one after another or start a JVM each; one that runs them in
# threads is made of the parts that theirs are made of.
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

# A run that a command makes shows in the timeline of Dagster's pages only with this origin, which
# the location in workspace.yaml gives.
from dagster._core.remote_origin import RemoteJobOrigin, RemoteRepositoryOrigin

# The states of a check's recorded evaluations: a planned one hides the one before it.
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
