"""Steps of a run side by side in threads (Dagster's own machinery, without Spark)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from cdc_assets.orchestration.execution import progress
from cdc_assets.orchestration.execution.executor import threads_executor

WAIT_S = 30
_meeting = threading.Barrier(2)
_attempts: list[str] = []
_canceled = threading.Event()


class Session:
    """Something that steps share and that can be canceled."""

    def cancel(self) -> None:
        _canceled.set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    _meeting.reset()
    _attempts.clear()
    _canceled.clear()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def asset(name: str, body: Any, deps: Any = (), **options: Any) -> dg.AssetsDefinition:
    @dg.asset(name=name, deps=list(deps), required_resource_keys={"session"}, **options)
    def made() -> None:
        body()

    return made


def job_of(*assets: dg.AssetsDefinition, **options: Any) -> dg.JobDefinition:
    job = dg.define_asset_job("all_of_them", executor_def=threads_executor, **options)
    found = dg.Definitions(assets=assets, jobs=[job], resources={"session": Session()})
    return found.resolve_job_def("all_of_them")


def two_that_meet() -> dg.JobDefinition:
    return job_of(*(asset(name, lambda: _meeting.wait(WAIT_S)) for name in ("a", "b")))


def a_failure_beside_a_chain() -> dg.JobDefinition:
    def fails() -> None:
        raise dg.Failure("no good")

    bad = asset("bad", fails)
    good = asset("good", lambda: None)
    return job_of(
        bad, good, asset("behind_bad", lambda: None, [bad]), asset("last", lambda: None, [good])
    )


def one_that_needs_two_attempts() -> dg.JobDefinition:
    def flaky() -> None:
        _attempts.append("again")
        if len(_attempts) == 1:
            raise dg.RetryRequested(max_retries=1, seconds_to_wait=0.1)

    return job_of(asset("flaky", flaky))


def one_by_one() -> dg.JobDefinition:
    busy = threading.Lock()

    def alone() -> None:
        assert busy.acquire(blocking=False)
        _attempts.append("made")
        time.sleep(0.05)
        busy.release()

    one = {"execution": {"config": {"max_concurrent": 1}}}
    return job_of(*(asset(f"a{n}", alone) for n in range(6)), config=one)


def one_that_is_stopped() -> dg.JobDefinition:
    def stopped() -> None:
        context = dg.AssetExecutionContext.get()
        context.instance.report_run_canceling(context.run)
        signal.raise_signal(signal.SIGINT)
        assert _canceled.wait(WAIT_S)

    first = asset("first", stopped)
    return job_of(first, asset("second", lambda: _attempts.append("begun"), [first]))


def one_that_takes_minutes() -> dg.JobDefinition:
    """Two steps, of which another thread says how far the second one is."""

    def long() -> None:
        with progress.step("shop", "changes", "2026-11-01"):
            step = progress.Step("shop", "changes", "2026-11-01", "half of it is read")
            teller = threading.Thread(target=progress.notify, args=(step,))
            teller.start()
            teller.join()

    @dg.asset(key=["shop", "changes"], required_resource_keys={"session"})
    def changes() -> None:
        long()

    return job_of(asset("quick", lambda: None), changes)


def run(job: Any, instance: dg.DagsterInstance, **options: Any) -> dg.JobExecutionResult:
    return dg.execute_job(dg.reconstructable(job), instance, **options)


def events(result: dg.JobExecutionResult, kind: str) -> set[str]:
    return {str(e.step_key) for e in result.all_events if e.event_type_value == kind}


def test_steps_that_need_nothing_of_each_other_run_side_by_side(
    instance: dg.DagsterInstance,
) -> None:
    assert run(two_that_meet, instance).success


def test_a_long_step_says_in_its_own_log_how_far_it_is(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LOG_SECONDS", 0.0)
    result = run(one_that_takes_minutes, instance)
    said = [
        (entry.step_key, entry.user_message)
        for entry in instance.all_logs(result.run_id)
        if "half of it is read" in entry.user_message
    ]
    assert said == [("shop__changes", "shop.changes 2026-11-01: half of it is read")]


def test_a_failed_step_stops_what_is_behind_it_and_nothing_else(
    instance: dg.DagsterInstance,
) -> None:
    result = run(a_failure_beside_a_chain, instance)
    assert not result.success
    assert events(result, "STEP_FAILURE") == {"bad"}
    assert events(result, "STEP_SUCCESS") == {"good", "last"}
    materialized = instance.get_records_for_run(result.run_id).records
    keys = {
        r.event_log_entry.dagster_event.asset_key.to_user_string()
        for r in materialized
        if r.event_log_entry.dagster_event
        and r.event_log_entry.dagster_event.asset_key
        and r.event_log_entry.dagster_event.event_type_value == "ASSET_MATERIALIZATION"
    }
    assert keys == {"good", "last"}


def test_a_step_is_tried_again_as_it_asks(instance: dg.DagsterInstance) -> None:
    assert run(one_that_needs_two_attempts, instance).success
    assert len(_attempts) == 2


def test_steps_run_one_after_another_where_so_configured(instance: dg.DagsterInstance) -> None:
    assert run(one_by_one, instance).success
    assert len(_attempts) == 6


def test_an_error_is_raised_to_who_asks_for_it(
    instance: dg.DagsterInstance,
) -> None:
    with pytest.raises(dg.Failure, match="no good"):
        run(a_failure_beside_a_chain, instance, raise_on_error=True)


def test_a_stopped_run_cancels_its_steps_and_begins_no_other(instance: dg.DagsterInstance) -> None:
    assert threading.current_thread() is threading.main_thread()
    assert not run(one_that_is_stopped, instance).success
    assert _attempts == []
    [of_run] = instance.get_runs()
    assert of_run.status == dg.DagsterRunStatus.CANCELED
