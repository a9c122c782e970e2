"""The body of all steps: makes the days of its stages, and records each as soon as it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from queue import SimpleQueue
from typing import Any

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import AuditError, CdcError, JavaError
from cdc_assets.cdc.findings import AUDIT, Finding
from cdc_assets.cdc.java_errors import root_cause
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.errors import lake_error, one_line
from cdc_assets.cdc.lake.metadata import ReadOnce
from cdc_assets.cdc.spark import is_lost
from cdc_assets.cdc.stages.contract import MakeOptions, Stage, Version
from cdc_assets.cdc.stages.derived import DerivedStage
from cdc_assets.cdc.stages.one_table import OneTableStage
from cdc_assets.orchestration.assets import records
from cdc_assets.orchestration.assets.as_recorded import step_records
from cdc_assets.orchestration.assets.keys import stage_key
from cdc_assets.orchestration.execution import progress
from cdc_assets.orchestration.execution.failures import failure
from cdc_assets.orchestration.execution.jobs import ALLOW_LOSS, FORCE
from cdc_assets.orchestration.execution.resources import SparkResource

StepEvent = dg.MaterializeResult[Any] | dg.AssetMaterialization | dg.AssetCheckEvaluation

# Merges of small tables wait for the driver rather than for the cores.
STAGES_AT_ONCE = 4


@dataclass(frozen=True)
class StageEnd:
    """The end of a stage: the days of a batch that failed, and those behind it."""

    error: Exception | None = None
    failed: Sequence[date] = ()
    left_out: Sequence[date] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all its days are made."""
        return self.error is None and not self.left_out


class Step:
    """A step of Dagster: one stage, or all tables of a source in threads.

    A table and those that are derived from it are made one after the other; other tables do not
    wait for them.

    Args:
        stages: stages of one source and one kind.
    """

    def __init__(self, stages: Sequence[Stage[Any]]) -> None:
        self.stages = stages
        self.name, self.source, self.config = stages[0].name, stages[0].source, stages[0].config
        self.checks = {table: c for stage in stages for table, c in stage.all_checks.items()}
        self.keys = {t: stage_key(stage, t) for stage in stages for t in stage.checks}
        self._is_of_tables = stages[0].is_of_one_table
        self._checks = {self.keys[table]: checks for table, checks in self.checks.items()}

    def run(
        self, context: dg.AssetExecutionContext, spark: SparkResource, days: Sequence[date]
    ) -> Iterator[StepEvent]:
        """Make the days and yield their records.

        A stage makes all its tables together; only selected assets are recorded.
        """
        records.leave_out_missing_checks(context)
        keys = {t: k for t, k in self.keys.items() if k in context.selected_asset_keys}
        stages = [stage for stage in self.stages if not keys.keys().isdisjoint(stage.checks)]
        if (before := self._as_recorded(context, spark, stages, keys, days)) is not None:
            yield from before
            return
        with self._failures(context):
            lake = _lake(context, spark)
            prepared = stages[0].prepared(lake, stages, days)
        done: SimpleQueue[records.DayRecord | None] = SimpleQueue()

        def make(stages: Sequence[Stage[Any]]) -> list[StageEnd]:
            try:
                return _make_in_turn(
                    [StageRun(stage, lake, context, spark, keys) for stage in stages],
                    days,
                    done.put,
                )
            finally:
                done.put(None)

        groups = list(_by_table(prepared))
        with ThreadPoolExecutor(STAGES_AT_ONCE) as pool:
            try:
                futures = [pool.submit(make, group) for group in groups]
                for _ in futures:
                    for record in iter(done.get, None):
                        yield from record.events(context, self._checks[record.key])
                ends = list(chain(*(future.result() for future in futures)))
            except BaseException:
                spark.cancel()  # the run was stopped; the pool waits for its threads
                raise
        for stage, end in zip(chain(*groups), ends, strict=True):
            if end.is_complete:
                yield from (
                    records.result(key) for table, key in keys.items() if table in stage.checks
                )
        self._raise_failures(context, ends)

    def _as_recorded(
        self,
        context: dg.AssetExecutionContext,
        spark: SparkResource,
        stages: Sequence[Stage[Any]],
        keys: Mapping[str, dg.AssetKey],
        days: Sequence[date],
    ) -> Iterable[StepEvent] | None:
        """The events of a step whose days are as recorded; None if Spark is needed."""
        began = time.monotonic()
        found = step_records(context, spark.config(), stages, keys, self.checks, days)
        if found is None:
            return None
        seconds = round(time.monotonic() - began, 1)
        text = f"{len(stages)} up to date" if self._is_of_tables else "up to date"
        progress.notify(progress.Step(self.source, self.name, span(days), text, seconds))
        events = (e for record in found for e in record.events(context, self._checks[record.key]))
        return chain(events, map(records.result, keys.values()))

    @contextmanager
    def _failures(self, context: dg.AssetExecutionContext) -> Iterator[None]:
        try:
            yield
        except dg.Failure:
            raise
        except Exception as error:
            raise self._failure(context, error) from None

    def _raise_failures(self, context: dg.AssetExecutionContext, ends: Sequence[StageEnd]) -> None:
        """Raise one failure for all stages that failed."""
        failed = [end for end in ends if end.error is not None]
        errors = [end.error for end in failed if end.error is not None]
        if not failed:
            return
        if not self._is_of_tables:
            raise self._failure(context, errors[0]) from None
        for error in errors:
            if is_lost(error):
                raise self._failure(context, error) from None
        shows = self.config.source(self.source).shows_values
        raise failure(
            "\n".join(
                one_line(error, self.config, shows) + _left_out(end)
                for end, error in zip(failed, errors, strict=True)
            ),
            errors[0],
            self.config,
            {
                "tables_failed": len(failed),
                "tables_made": sum(end.is_complete for end in ends),
            },
            allow_retries=not all(_is_final(error, self.config) for error in errors),
        ) from None

    def _failure(self, context: dg.AssetExecutionContext, error: Exception) -> dg.Failure:
        """Errors of data or configuration allow no retry; the daemon retries a run that lost Spark.

        A Java exception becomes one line; the log has its stack trace.
        """
        if isinstance(error, dg.Failure):
            return error
        if isinstance(error, CdcError):
            return failure(str(error), error, self.config, allow_retries=False)
        if is_lost(error):
            # In a new process: the JVM or the executors of this one are lost.
            tags = {"dagster/retry_on_asset_or_op_failure": "true"}
            context.instance.add_run_tags(context.run_id, tags)
            return failure(
                f"Spark was lost, out of memory or killed: {root_cause(error)}. Days made before "
                "are kept. Dagster's daemon starts the run again; without it, run the same again",
                error,
                self.config,
            )
        if known := lake_error(error, self.config):
            return failure(str(known), error, self.config, allow_retries=False)
        shows = self.config.source(self.source).shows_values
        return failure(root_cause(error, shows), error, self.config)


class StageRun:
    """Makes the days of one stage and builds their records."""

    def __init__(
        self,
        stage: Stage[Any],
        lake: Lake,
        context: dg.AssetExecutionContext,
        spark: SparkResource,
        keys: Mapping[str, dg.AssetKey],
    ) -> None:
        self.stage, self.lake, self.context, self.spark = stage, lake, context, spark
        self.keys = {table: key for table, key in keys.items() if table in stage.checks}
        tags = context.run.tags
        self._options = MakeOptions(force=FORCE in tags, allow_loss=ALLOW_LOSS in tags)
        self._known = ReadOnce(lake)

    def make(self, days: Sequence[date], done: Callable[[records.DayRecord], None]) -> StageEnd:
        """Make the days in order; calls `done` with the records of each as soon as it is made."""
        days, batch = self.stage.own_days(days), []
        try:
            for batch in self.stage.batches(self._known, days):
                if self.spark.is_canceled:
                    break
                for record in self._batch(batch, is_last=batch[-1] == days[-1]):
                    done(record)
        except Exception as error:
            if isinstance(error, AuditError) and error.check is not None:
                failed = Finding(error.check, False, {AUDIT: str(error)})
                (key,) = self.keys.values()
                done(records.DayRecord(key, error.day, findings=[failed]))
            return StageEnd(error, batch, [day for day in days if batch and day > batch[-1]])
        return StageEnd()

    def _batch(self, days: Sequence[date], is_last: bool) -> Iterator[records.DayRecord]:
        """Make days together and build their records."""
        stage = self.stage
        with progress.step(stage.source, stage.label, span(days)) as say:
            progress.expect(stage.rows_to_read(self.lake, self._known, days))
            began = time.monotonic()
            made = stage.make(self.lake, days, self._options, self._known)
            seconds = time.monotonic() - began
            self._known = ReadOnce(self.lake)  # another run may have made a day meanwhile
            progress.expect()  # the rest reads little
            versions = {t: stage.versions(self._known, t, list(made)) for t in self.keys}
            recorded = {
                table: self._recorded(table, made_as) for table, made_as in versions.items()
            }
            # The last day gets all checks: each run then has an evaluation of each.
            examined = {
                day: made[day]
                for day in made
                if any(day not in known for known in recorded.values())
                or (is_last and day == days[-1])
            }
            lake = stage.examining(self.lake, self._known, list(examined))
            figures = stage.figures(lake, self._known, examined)
            for text in stage.summary(self._known, figures, made):
                say(text)
        for table, known in recorded.items():
            fresh = [day for day in made if day not in known]
            share = round(seconds / max(1, len(fresh)), 2)  # new days share the seconds
            findings = stage.all_findings(lake, figures, table, sorted(examined))
            values = stage.values(lake, figures, table, fresh, share)
            for day in made:
                line = stage.day_line(figures, table, day) if day in examined else "as before"
                shown = known.get(day)
                if shown is None:
                    version = records.version_metadata(versions[table][day])
                    shown = {**values[day], **version}
                yield records.DayRecord(self.keys[table], day, line, shown, findings.get(day, ()))

    def _recorded(self, table: str, versions: Mapping[date, Version]) -> dict[date, dict[str, Any]]:
        """The metadata of the days whose records in Dagster are up to date."""
        before = records.recorded(self.context, self.keys[table], list(versions))
        found = {
            day: records.as_recorded(version, before.get(day)) for day, version in versions.items()
        }
        return {day: known for day, known in found.items() if known is not None}


def _by_table(stages: Iterable[Stage[Any]]) -> Iterator[list[Stage[Any]]]:
    """The stages of each table together; others are alone."""
    by_table: dict[str, list[Stage[Any]]] = {}
    for stage in stages:
        if isinstance(stage, OneTableStage):
            by_table.setdefault(stage.of, []).append(stage)
        else:
            yield [stage]
    yield from by_table.values()


def _make_in_turn(
    runs: Sequence[StageRun], days: Sequence[date], done: Callable[[records.DayRecord], None]
) -> list[StageEnd]:
    """Make a table, then those that are derived from it, up to the day that it failed on."""
    ends: list[StageEnd] = []
    without: Sequence[date] = ()  # the days that the table itself lacks
    for run in runs:
        end = run.make([day for day in days if day not in without], done)
        if isinstance(run.stage, DerivedStage):
            end = replace(end, left_out=sorted({*end.left_out, *without}))
        elif end.error is not None:
            without = [*end.failed, *end.left_out] or days
        ends.append(end)
    return ends


def span(days: Sequence[date]) -> str:
    """A day, or the first and last of several."""
    return str(days[0]) if len(days) == 1 else f"{days[0]}…{days[-1]}"


def _lake(context: dg.AssetExecutionContext, spark: SparkResource) -> Lake:
    """The lake. Without Java the run is canceled: a failed run would mark good days as failed."""
    try:
        return spark.lake()
    except JavaError as error:
        context.instance.report_run_canceling(context.run, str(error))
        raise dg.Failure(description=str(error), allow_retries=False) from None


def _is_final(error: Exception, config: Config) -> bool:
    return isinstance(error, CdcError) or lake_error(error, config) is not None


def _left_out(end: StageEnd) -> str:
    if not end.left_out:
        return ""
    return f" (days behind it were not made: {span(end.left_out)})"
