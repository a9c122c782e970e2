"""The executor `threads`: the steps of a run in threads of one process and one Spark session.

While Spark plans one step, another can use the cores. Dagster's own executors run steps one after
another (in process) or start a JVM per step (multiprocess).
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Protocol, runtime_checkable

import dagster as dg

from cdc_assets.orchestration.assets.keys import asset_key
from cdc_assets.orchestration.execution import progress
from cdc_assets.orchestration.internals import (
    ActiveExecution,
    DagsterEvent,
    DagsterExecutionInterruptedError,
    EngineEventData,
    ExecuteRunWithPlanIterable,
    ExecutionPlan,
    Executor,
    InstanceConcurrencyContext,
    PlanExecutionContext,
    PlanExecutionContextManager,
    PlanOrchestrationContext,
    RetryMode,
    StepExecutionContext,
    compute_log_setup_error,
    compute_log_teardown_error,
    create_compute_log_file_key,
    dagster_event_sequence_for_step,
    get_retries_config,
    trigger_hook,
)

# Steps mostly wait for the driver, the catalog and Kafka; more steps would compete for cores.
STEPS_AT_ONCE = 4
_POLL_SECONDS = 1.0  # seconds between two checks whether the run was stopped


@dg.executor(
    name="threads",
    config_schema={
        "max_concurrent": dg.Field(
            int, default_value=STEPS_AT_ONCE, description="Steps of a run side by side."
        ),
        "retries": get_retries_config(),  # type: ignore[no-untyped-call]
    },
)
def threads_executor(init: dg.InitExecutorContext) -> ThreadsExecutor:
    """Runs steps in threads of the run's process, all with the same resources.

    A stopped run calls `cancel` of the resources that have it until all steps have ended. The
    run config `execution: {config: {max_concurrent: 1}}` runs one step after another.
    """
    config = init.executor_config
    retries = RetryMode.from_config(config["retries"]) or RetryMode.ENABLED  # type: ignore[arg-type]
    return ThreadsExecutor(retries, int(config["max_concurrent"]))  # type: ignore[call-overload]


@runtime_checkable
class Cancelable(Protocol):
    """A resource that can stop the work of steps."""

    def cancel(self) -> None: ...


class ThreadsExecutor(Executor):
    """See :func:`threads_executor`."""

    def __init__(self, retries: RetryMode, at_once: int) -> None:
        self._retries, self._at_once = retries, max(1, at_once)

    @property
    def retries(self) -> RetryMode:
        return self._retries

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[DagsterEvent]:
        """The events of all steps of the plan, interleaved.

        Raises:
            DagsterExecutionInterruptedError: the run was stopped and its steps have ended.
        """
        yield DagsterEvent.engine_event(
            plan_context,
            f"Executing up to {self._at_once} steps at once in threads (pid: {os.getpid()})",
            event_specific_data=EngineEventData.in_process(
                os.getpid(), execution_plan.step_keys_to_execute
            ),
        )
        yield from ExecuteRunWithPlanIterable(
            execution_plan=execution_plan,
            iterator=self._run,
            execution_context_manager=PlanExecutionContextManager(
                job=plan_context.job,
                retry_mode=plan_context.retry_mode,
                execution_plan=execution_plan,
                run_config=plan_context.run_config,
                dagster_run=plan_context.dagster_run,
                instance=plan_context.instance,
                raise_on_error=plan_context.raise_on_error,
                output_capture=plan_context.output_capture,
            ),
        )

    def _run(
        self, job_context: PlanExecutionContext, execution_plan: ExecutionPlan
    ) -> Iterator[DagsterEvent]:
        with ExitStack() as stack:
            slots = InstanceConcurrencyContext(job_context.instance, job_context.dagster_run)
            active = execution_plan.start(
                retry_mode=job_context.retry_mode,
                max_concurrent=self._at_once,
                instance_concurrency_context=stack.enter_context(slots),
                step_dependency_config=job_context.step_dependency_config,
            )
            stack.enter_context(active)
            capture = stack.enter_context(ExitStack())
            try:
                yield self._capture(job_context, execution_plan, capture)
            except Exception:  # a run does not fail because its output can't be captured
                yield from compute_log_setup_error(job_context, sys.exc_info())
            with ThreadPoolExecutor(self._at_once, "step") as pool:
                run = _Run(job_context, active, pool)
                with progress.listen(progress.LogLines(run.step_log)):
                    yield from run.events()
            try:
                capture.close()
            except Exception:
                yield from compute_log_teardown_error(job_context, sys.exc_info())

    def _capture(
        self, job_context: PlanExecutionContext, plan: ExecutionPlan, capture: ExitStack
    ) -> DagsterEvent:
        """Capture stdout and stderr of the process as the output of all steps."""
        logs = job_context.instance.compute_log_manager
        file = create_compute_log_file_key()  # type: ignore[no-untyped-call]
        key = logs.build_log_key_for_run(job_context.run_id, file)
        context = capture.enter_context(logs.capture_logs(key))
        steps = [step.key for step in plan.get_steps_to_execute_in_topo_order()]
        captured: DagsterEvent = DagsterEvent.capture_logs(job_context, steps, key, context)
        return captured


class _Run:
    """The running steps and their events."""

    def __init__(
        self, job: PlanExecutionContext, active: ActiveExecution, pool: ThreadPoolExecutor
    ) -> None:
        self.job, self.active, self.pool = job, active, pool
        self.running: dict[Future[None], StepExecutionContext] = {}
        self.queue: SimpleQueue[DagsterEvent] = SimpleQueue()
        self.wake = threading.Event()
        self.step_events: dict[str, list[DagsterEvent]] = {}

    def events(self) -> Iterator[DagsterEvent]:
        try:
            while not self.active.is_complete or self.running:
                if self.active.check_for_interrupts():
                    self.active.mark_interrupted()
                    raise DagsterExecutionInterruptedError("the run was stopped")
                for step in self.active.get_steps_to_execute():
                    self._start(self.job.for_step(step, self.active.get_known_state()))
                yield from self.active.concurrency_event_iterator(self.job)
                self._wait()
                yield from self._handled()
        except BaseException:
            self._cancel()
            raise

    def step_log(self, step: progress.Step) -> logging.Logger:
        """The log of the step that makes an asset, else the run's; safe from any thread."""
        key = asset_key(step.source, step.stage)
        for running in list(self.running.values()):
            layer = running.job_def.asset_layer
            if key in layer.get_selected_entity_keys_for_node(running.step.node_handle):
                return running.log
        return self.job.log

    def _start(self, step: StepExecutionContext) -> None:
        self.step_events[step.step.key] = []
        future = self.pool.submit(self._work, step)
        self.running[future] = step
        future.add_done_callback(lambda _: self.wake.set())

    def _work(self, step: StepExecutionContext) -> None:
        for event in dagster_event_sequence_for_step(step):
            self.queue.put(event)
            self.wake.set()

    def _wait(self) -> None:
        """Wait for an event, or until it is time to look again."""
        if self.running:
            self.wake.wait(_POLL_SECONDS)
            self.wake.clear()
        else:
            self.active.sleep_til_ready()

    def _handled(self) -> Iterator[DagsterEvent]:
        ended = [future for future in self.running if future.done()]  # all their events are queued
        while not self.queue.empty():
            event = self.queue.get()
            if event.step_key in self.step_events:
                self.step_events[event.step_key].append(event)
            yield event
            self.active.handle_event(event)
        for future in ended:
            step = self.running.pop(future)
            if self.job.raise_on_error:
                future.result()
            self.active.verify_complete(self.job, step.step.key)
            skipped = list(self.active.plan_events_iterator(self.job))
            yield from skipped
            yield from trigger_hook(step, [*self.step_events.pop(step.step.key), *skipped])

    def _cancel(self) -> None:
        """Cancel repeatedly until all steps end: a step may be between two Spark jobs.

        The events of these steps are in Dagster's records already.
        """
        while not all(future.done() for future in self.running):
            for resource in self._resources():
                resource.cancel()
            wait(self.running, timeout=_POLL_SECONDS)

    def _resources(self) -> Collection[Cancelable]:
        resources = [
            resource
            for step in self.running.values()
            for resource in step.resources.original_resource_dict.values()
        ]
        return {id(r): r for r in resources if isinstance(r, Cancelable)}.values()
