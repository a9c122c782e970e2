"""Events of a Dagster instance since a position: ended runs and evaluated checks.

They include runs of `cdc-assets run`, which belong to no code location. Evaluations of a run are
read once it has ended, runless evaluations at once. Reading goes forward from a position, so no
event is read twice or skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import dagster as dg

from cdc_assets.orchestration.execution.jobs import RANGE_END, RANGE_START
from cdc_assets.orchestration.internals import EventLogCursor, RunStatusChangeEventType
from cdc_assets.orchestration.runs.run_days import failure_reason

_RUNLESS = ""  # Dagster's run id of events that belong to no run
_ENDED: tuple[RunStatusChangeEventType, ...] = (
    dg.DagsterEventType.RUN_SUCCESS,
    dg.DagsterEventType.RUN_FAILURE,
    dg.DagsterEventType.RUN_CANCELED,
)
RUNS_AT_ONCE, EVENTS_AT_ONCE = 50, 2_000


@dataclass(frozen=True)
class Position:
    """A position in the events of an instance.

    `run` is the storage id of the last run end read, `of_run` the cursor in the next run's events,
    `runless` the cursor in the runless events.
    """

    run: int
    runless: str
    of_run: str | None = None

    @classmethod
    def newest(cls, instance: dg.DagsterInstance) -> Position:
        """The position after all events so far."""
        ended = [
            record.storage_id
            for kind in _ENDED
            for record in instance.fetch_run_status_changes(kind, limit=1).records
        ]
        runless = instance.get_records_for_run(
            _RUNLESS, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION, limit=1, ascending=False
        ).records
        last = runless[0].storage_id if runless else -1
        return cls(max(ended, default=-1), EventLogCursor.from_storage_id(last).to_string())


@dataclass(frozen=True)
class CheckEvaluated:
    """An evaluation of a check; `at` is in seconds since 1970."""

    at: float
    evaluation: dg.AssetCheckEvaluation
    run_id: str | None = None


@dataclass(frozen=True)
class RunEnded:
    """A run that succeeded or failed; `reasons` has the error of each failed step."""

    at: float
    run: dg.DagsterRun
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the run failed."""
        return self.run.status == dg.DagsterRunStatus.FAILURE

    @property
    def days(self) -> tuple[date, date] | None:
        """The first and last requested day."""
        return partition_range(self.run)


Event = CheckEvaluated | RunEnded


def partition_range(run: dg.DagsterRun) -> tuple[date, date] | None:
    """The first and last day of a run; None for a run without partitions."""
    one = run.tags.get("dagster/partition")
    first, last = run.tags.get(RANGE_START, one), run.tags.get(RANGE_END, one)
    try:
        return (date.fromisoformat(first), date.fromisoformat(last)) if first and last else None
    except ValueError:
        return None  # another project's partitions


def events_since(instance: dg.DagsterInstance, position: Position) -> tuple[list[Event], Position]:
    """The events since a position, by time, and the position after them.

    About `EVENTS_AT_ONCE` at most; call it again with the new position for the rest.
    """
    runless = instance.get_records_for_run(
        _RUNLESS,
        cursor=position.runless,
        of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION,
        limit=EVENTS_AT_ONCE,
    )
    found: list[Event] = [_evaluated(record) for record in runless.records]
    if runless.records:
        last = EventLogCursor.from_storage_id(runless.records[-1].storage_id).to_string()
        position = replace(position, runless=last)
    left = EVENTS_AT_ONCE
    for record in _ended_runs(instance, position.run):
        run = instance.get_run_by_id(record.run_id)
        if run is not None:
            events = instance.get_records_for_run(
                run.run_id,
                cursor=position.of_run,
                of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION,
                limit=left,
            )
            found += [_evaluated(event) for event in events.records]
            left -= len(events.records)
            if left <= 0:
                return _by_time(found), replace(position, of_run=events.cursor)
            found += _run_end(instance, run, record.timestamp)
        position = replace(position, run=record.storage_id, of_run=None)
    return _by_time(found), position


def _by_time(found: list[Event]) -> list[Event]:
    return sorted(found, key=lambda event: event.at)


def _ended_runs(instance: dg.DagsterInstance, after: int) -> Sequence[dg.EventLogRecord]:
    """The next run ends, oldest first."""
    found: list[dg.EventLogRecord] = []
    horizon = None
    for kind in _ENDED:
        records = instance.fetch_run_status_changes(
            dg.RunStatusChangeRecordsFilter(kind, after_storage_id=after),
            limit=RUNS_AT_ONCE,
            ascending=True,
        ).records
        found += records
        if len(records) == RUNS_AT_ONCE:
            # More of this kind may follow; later events of other kinds wait for them.
            last = records[-1].storage_id
            horizon = last if horizon is None else min(horizon, last)
    ordered = sorted(found, key=lambda record: record.storage_id)
    return [r for r in ordered if horizon is None or r.storage_id <= horizon]


def _evaluated(record: dg.EventLogRecord) -> CheckEvaluated:
    entry = record.event_log_entry
    data: Any = entry.dagster_event.event_specific_data if entry.dagster_event else None
    assert isinstance(data, dg.AssetCheckEvaluation)
    return CheckEvaluated(entry.timestamp, data, entry.run_id or None)


def _run_end(instance: dg.DagsterInstance, run: dg.DagsterRun, at: float) -> list[Event]:
    if run.status == dg.DagsterRunStatus.SUCCESS:
        return [RunEnded(at, run)]
    if run.status != dg.DagsterRunStatus.FAILURE:
        return []
    failures = instance.get_records_for_run(
        run.run_id, of_type={dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    ).records
    events = [r.event_log_entry.dagster_event for r in failures]
    steps = {
        e.step_key: failure_reason(e)
        for e in events
        if e is not None and e.is_step_failure and e.step_key is not None
    }
    if steps:
        return [RunEnded(at, run, steps)]
    messages = [e.message for e in events if e is not None and e.message]
    return [RunEnded(at, run, {"run": messages[-1] if messages else "its process died"})]
