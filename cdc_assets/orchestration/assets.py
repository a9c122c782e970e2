"""Each source's assets: one function per stage builds them from its configuration.

A body gets the days of its run (one, or a range) and makes them in one Spark session.
Metadata and checks are recorded a day each. (Dagster reads the annotations of bodies as
objects, so this module does not postpone them.)
"""

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import chain
from queue import SimpleQueue
from typing import Any

import dagster as dg

from cdc_assets.cdc import lag as lag_stage
from cdc_assets.cdc import made_of
from cdc_assets.cdc.changes import stage as changes
from cdc_assets.cdc.changes.figures import count_landed, day_figures
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError, JavaError
from cdc_assets.cdc.java_errors import root_cause
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayFiles
from cdc_assets.cdc.lake.errors import lake_error, one_line
from cdc_assets.cdc.landing.stage import land
from cdc_assets.cdc.spark import is_lost
from cdc_assets.cdc.state import contracts
from cdc_assets.cdc.state import stage as table_days
from cdc_assets.orchestration import (
    charts,
    checks,
    markdown,
    metadata,
    partitions,
    progress,
    records,
)
from cdc_assets.orchestration.as_recorded import step_records
from cdc_assets.orchestration.asset_keys import PARSED, table_key
from cdc_assets.orchestration.failures import failure
from cdc_assets.orchestration.jobs import ALLOW_LOSS, FORCE
from cdc_assets.orchestration.resources import SparkResource
from cdc_assets.orchestration.table_steps import TABLES_AT_ONCE, MadeTable, TableSteps

StepEvent = dg.MaterializeResult[Any] | dg.AssetMaterialization | dg.AssetCheckEvaluation

_AC = dg.AutomationCondition
# Asks for ended days that are missing, one after another, and for all that stands behind a day
# that was made again. `AutomationCondition.eager()` asks for the newest day alone, which is the
# open one here, and passes over what was missing when it was switched on.
_CONDITION = (
    (_AC.newly_missing() | _AC.any_deps_updated()).since(
        _AC.newly_requested() | _AC.newly_updated()
    )
    & ~_AC.in_latest_time_window()
    & ~_AC.in_progress()
    & ~_AC.any_deps_missing()
    & ~_AC.any_deps_in_progress()
).with_label("missing, or built on a day that was made again")


def build_assets(name: str, config: Config) -> list[dg.AssetsDefinition]:
    """All assets of one source, in the order in which data flows."""
    built = [_landing(name, config), _changes(name, config), _lag(name, config)]
    if config.sources[name].tables:
        built.append(_tables(name, config))
    return built


def _spec(
    key: dg.AssetKey,
    config: Config,
    description: str,
    deps: list[Any],
    owners: Iterable[str] = (),
    tags: Mapping[str, str] | None = None,
    kinds: Iterable[str] = (),
    **extra: Any,
) -> dg.AssetSpec:
    source = config.sources[key.path[0]]
    return dg.AssetSpec(
        key,
        deps=deps,
        description=description,
        group_name=key.path[0],
        owners=list(dict.fromkeys([*source.owners, *owners])) or None,
        tags={**source.tags, **(tags or {})},
        kinds={"spark", "iceberg", *kinds},
        automation_condition=_CONDITION,
        **extra,
    )


def _stage_spec(
    name: str, table: str, config: Config, description: str, deps: list[Any], **extra: Any
) -> dg.AssetSpec:
    schema = _STAGE_SCHEMAS[table]
    facts: dict[str, Any] = {
        "dagster/table_name": f"lake.{name}.{table}",
        "dagster/column_schema": metadata.column_schema(schema),
    }
    lineage = metadata.lineage_of_stage(name, table, schema)
    if lineage is not None:
        facts["dagster/column_lineage"] = lineage
    key = dg.AssetKey([name, table])
    return _spec(key, config, description, deps, metadata=facts, **extra)


_STAGE_SCHEMAS = {
    "landing": columns.LANDING,
    "changes": columns.CHANGES,
    "control": columns.CONTROL,
    "quarantine": columns.QUARANTINE,
    "lag": columns.LAG,
}


def _common(name: str, config: Config) -> dict[str, Any]:
    return {
        "partitions_def": partitions.daily(config),
        "backfill_policy": dg.BackfillPolicy.single_run(),
        "can_subset": True,
        "pool": f"cdc_{name}",  # two runs of one source wait for each other
    }


def _day_before(key: dg.AssetKey) -> dg.AssetDep:
    with warnings.catch_warnings():
        # In beta for several minor versions; without it the first day would lack a parent.
        warnings.simplefilter("ignore", dg.BetaWarning)
        mapping = dg.TimeWindowPartitionMapping(
            start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True
        )
    return dg.AssetDep(key, partition_mapping=mapping)


@contextmanager
def _failures(context: dg.AssetExecutionContext, config: Config, name: str) -> Iterator[None]:
    """Bad data fails the run for good; a run that lost Spark is started again by the daemon.

    A Java exception is one line as a failure's description; its stack trace is in the log.
    """
    try:
        yield
    except dg.Failure:
        raise
    except CdcError as error:
        raise failure(str(error), error, config, allow_retries=False) from None
    except Exception as error:
        _raise_if_lost(context, config, error)
        if known := lake_error(error, config):
            raise failure(str(known), error, config, allow_retries=False) from None
        shows = config.source(name).shows_values
        raise failure(root_cause(error, shows), error, config) from None


def _lake(context: dg.AssetExecutionContext, spark: SparkResource) -> Lake:
    """The lake. Without Java the run ends as canceled: a failed one marks good days as failed."""
    try:
        return spark.lake()
    except JavaError as error:
        context.instance.report_run_canceling(context.run, str(error))
        raise dg.Failure(description=str(error), allow_retries=False) from None


def _suited(lake: Lake, name: str, stage: str, days: Iterable[date]) -> Lake:
    """The lake in the session that suits what these days of a stage hold."""
    return lake.sized(lake.day_commits(lake.stage(name, stage)).records(days))


def _raise_if_lost(context: dg.AssetExecutionContext, config: Config, error: Exception) -> None:
    if is_lost(error):
        # A new process: this one's JVM, or its executors, are gone.
        context.instance.add_run_tags(
            context.run_id, {"dagster/retry_on_asset_or_op_failure": "true"}
        )
        raise failure(
            f"Spark was lost, out of memory or killed: {root_cause(error)}. Days made before are "
            "kept. Dagster's daemon starts the run again; without it, run the same again",
            error,
            config,
        ) from None


def _is_final(error: Exception, config: Config) -> bool:
    return isinstance(error, CdcError) or lake_error(error, config) is not None


def _is_forced(context: dg.AssetExecutionContext) -> bool:
    return FORCE in context.run.tags


@dataclass(frozen=True)
class StageDays:
    """The days of a stage's asset: those that Dagster has recorded as they are, and the others."""

    key: dg.AssetKey
    versions: Mapping[date, records.Version]
    known: Mapping[date, dict[str, Any]]

    @property
    def fresh(self) -> list[date]:
        """The days that are to be recorded anew."""
        return [day for day in self.versions if day not in self.known]


def _stage_days(
    context: dg.AssetExecutionContext, lake: Lake, key: dg.AssetKey, days: Sequence[date]
) -> StageDays:
    commits = lake.day_commits(lake.stage(key.path[0], key.path[1]))
    versions = records.stage_versions(lake.config, key.path[0], commits, days)
    before = records.recorded(context, key, days)
    known = {day: version.as_recorded(before.get(day)) for day, version in versions.items()}
    return StageDays(key, versions, {day: of for day, of in known.items() if of is not None})


def _to_look_at(days: Sequence[date], *stages: StageDays) -> list[date]:
    """Days that are not as recorded, and the last one of the run.

    Of a run's last day all checks are evaluated, so that none is missing from the run.
    """
    fresh = {day for stage in stages for day in stage.fresh}
    return [d for d in days if d in fresh or d == days[-1]]


def _stage_records(
    lake: Lake,
    stage: StageDays,
    seconds: float,
    says: Mapping[date, str],
    facts: Mapping[date, Mapping[str, Any]],
    findings: Mapping[date, Sequence[checks.Finding]],
) -> Iterator[records.DayRecord]:
    """The records of a stage's days; those that were made share the seconds."""
    identifier = lake.stage(stage.key.path[0], stage.key.path[1])
    state = lake.read_state(identifier)
    held = lake.day_files(identifier, stage.fresh) if stage.fresh else {}
    share = round(seconds / max(1, len(stage.fresh)), 2)
    for day, version in stage.versions.items():
        of_day = stage.known.get(day)
        if of_day is None:
            location = state.location if state else ""
            common = metadata.of_stage_day(
                identifier, location, day, held.get(day, DayFiles()), share
            )
            of_day = {**facts[day], **common, **version.metadata()}
        yield records.DayRecord(
            stage.key, day, says.get(day, "as before"), of_day, findings.get(day, ())
        )


# --- landing


def _landing(name: str, config: Config) -> dg.AssetsDefinition:
    key = dg.AssetKey([name, "landing"])
    from_kafka = config.sources[name].landing.kafka is not None
    spec = _stage_spec(
        name,
        "landing",
        config,
        "Kafka records as they landed, one row per record, bytes unchanged. All other tables are "
        "built from them.",
        deps=[],
        kinds={"kafka" if from_kafka else "file"},
    )

    @dg.multi_asset(
        name=f"{name}__landing",
        specs=[spec],
        check_specs=checks.specs(key, checks.LANDING),
        **_common(name, config),
    )
    def landing(context: dg.AssetExecutionContext, spark: SparkResource) -> Iterator[StepEvent]:
        days = partitions.days_of(context)
        records.leave_out_missing_checks(context)
        judged = {key: checks.LANDING}
        if (before := _as_recorded(context, spark, name, judged, days)) is not None:
            yield from before
            return
        with _failures(context, config, name), progress.step(name, "landing", _span(days)) as say:
            lake = _lake(context, spark)
            began = time.monotonic()
            allow_loss = ALLOW_LOSS in context.run.tags
            landed = land(lake, name, days, force=_is_forced(context), allow_loss=allow_loss)
            progress.expect()  # what follows reads the landed rows, not what they came from
            seconds = time.monotonic() - began
            stage = _stage_days(context, lake, key, days)
            looked_at = _to_look_at(days, stage)
            lake = _suited(lake, name, "landing", looked_at)
            counts = count_landed(lake, name, looked_at)
            say(_of_days(f"{sum(counts.values())} records", days, stage))
            findings = checks.landing_findings(lake, name, looked_at)
            facts = {d.day: metadata.of_landing(d, counts.get(d.day, 0), config) for d in landed}
            says = {day: f"{counts.get(day, 0)} records" for day in looked_at}
            yield from _recorded(
                context, _stage_records(lake, stage, seconds, says, facts, findings), checks.LANDING
            )
        yield records.result(key)

    return landing


def _as_recorded(
    context: dg.AssetExecutionContext,
    spark: SparkResource,
    name: str,
    judged: Mapping[dg.AssetKey, Sequence[checks.Check]],
    days: Sequence[date],
    tables: Mapping[dg.AssetKey, str] | None = None,
) -> Iterable[StepEvent] | None:
    """The events of a step whose days are as recorded; None where Spark is needed."""
    began = time.monotonic()
    of_days = step_records(context, spark.config(), name, judged, days, tables)
    if of_days is None:
        return None
    stage = "tables" if tables else next(iter(judged)).path[1]
    seconds = round(time.monotonic() - began, 1)
    text = f"{len(judged)} up to date" if tables else "up to date"
    progress.notify(progress.Step(name, stage, _span(days), text, seconds))
    events = (event for of_day in of_days for event in of_day.events(context, judged[of_day.key]))
    return chain(events, map(records.result, judged))


def _recorded(
    context: dg.AssetExecutionContext,
    of_days: Iterable[records.DayRecord],
    judged: Sequence[checks.Check],
) -> Iterator[Any]:
    for of_day in of_days:
        yield from of_day.events(context, judged)


def _of_days(made: str, days: Sequence[date], stage: StageDays) -> str:
    """What a stage came to, for the terminal."""
    if not stage.fresh:
        return "up to date"
    left = len(days) - len(stage.fresh)
    return f"{made} ({left} of {len(days)} days as before)" if left else made


def _span(days: Sequence[date]) -> str:
    return str(days[0]) if len(days) == 1 else f"{days[0]}…{days[-1]}"


# --- changes, control, quarantine


def _changes(name: str, config: Config) -> dg.AssetsDefinition:
    keys = {table: dg.AssetKey([name, table]) for table in PARSED}
    source = config.sources[name]
    judged = {"changes": checks.CHANGES, "quarantine": checks.QUARANTINE}
    described = {
        "changes": "Events that change rows, read into common columns, a row each.",
        "control": "Events that were understood and change no row: heartbeats, marks of "
        "transactions, DDL, messages; a row each.",
        "quarantine": "Landed records that could not be read, a row each, with the reason.",
    }
    landing = dg.AssetKey([name, "landing"])
    specs = [
        # The landing of the day before is read, too (D11); as a dependency it would have Dagster
        # make a day more than was asked for, before that day has landed.
        _stage_spec(name, table, config, text, deps=[landing])
        for table, text in described.items()
    ]

    @dg.multi_asset(
        name=f"{name}__changes",
        specs=specs,
        check_specs=[s for table in judged for s in checks.specs(keys[table], judged[table])],
        **_common(name, config),
    )
    def parsed(context: dg.AssetExecutionContext, spark: SparkResource) -> Iterator[StepEvent]:
        days = partitions.days_of(context)
        records.leave_out_missing_checks(context)
        # All three are made together; Dagster takes records of those that were asked for.
        chosen = {t: k for t, k in keys.items() if k in context.selected_asset_keys}
        of_assets = {key: judged.get(table, ()) for table, key in chosen.items()}
        if (before := _as_recorded(context, spark, name, of_assets, days)) is not None:
            yield from before
            return
        with _failures(context, config, name):
            lake = _lake(context, spark)
            began = time.monotonic()
            with progress.step(name, "changes", _span(days)) as say:
                progress.expect(lake.day_commits(lake.stage(name, "landing")).records(days))
                made_before = lake.day_commits(lake.stage(name, "changes"))
                others = made_of.made_by_other_rules(config, name, made_before)
                changes.make_changes(lake, name, days, force=_is_forced(context))
                seconds = time.monotonic() - began
                stages = {t: _stage_days(context, lake, key, days) for t, key in chosen.items()}
                looked_at = _to_look_at(days, *stages.values())
                lake = _suited(lake, name, "landing", looked_at)
                figures = day_figures(lake, name, looked_at)
                totals = {k: sum(f.records(k) for f in figures.values()) for k in PARSED}
                made = ", ".join(f"{count} {kind}" for kind, count in totals.items())
                say(_of_days(made, days, next(iter(stages.values()))))
                if again := [day for day in others if day in days]:
                    say(f"({len(again)} days made again: the rules have changed)")
                if standing := [day for day in others if day not in days]:
                    say(
                        f"({len(standing)} days, {standing[0]} to {standing[-1]}, stand as earlier "
                        "rules made them; cdc-assets doctor says how to make them again)"
                    )
            examples = checks.quarantine_examples(lake, name, looked_at)
            findings = {
                "changes": checks.changes_findings(lake, name, figures, examples),
                "quarantine": checks.quarantine_findings(source, figures),
            }
            facts = {day: metadata.of_changes(figures[day]) for day in looked_at}
            with_values = source.shows_values
            for day, rows in examples.items():
                shown = metadata.quarantine_examples(rows, with_values)
                facts[day]["quarantine"]["examples"] = shown
            for table, stage in stages.items():
                found: dict[date, list[checks.Finding]] = {day: [] for day in looked_at}
                if table in judged:
                    contract = checks.listed("contract", _stage_contract(lake, name, table))
                    for day in looked_at:
                        found[day] = [*findings[table][day], contract]
                of_table = {day: of_day[table] for day, of_day in facts.items()}
                says = {day: metadata.words(of_table[day]) for day in looked_at}
                yield from _recorded(
                    context,
                    _stage_records(lake, stage, seconds, says, of_table, found),
                    judged.get(table, ()),
                )
        for key in chosen.values():
            yield records.result(key)

    return parsed


def _stage_contract(lake: Lake, name: str, table: str) -> list[str]:
    return contracts.broken(lake.spark.table(lake.stage(name, table)), _STAGE_SCHEMAS[table])


# --- tables


def _tables(name: str, config: Config) -> dg.AssetsDefinition:
    source = config.sources[name]
    keys = {table: table_key(name, table) for table in source.tables}
    tables_by_key = {key: table for table, key in keys.items()}
    judged = {
        table: checks.of_table(has_key=of_table.key not in ("none", "row"))
        for table, of_table in source.tables.items()
    }
    # `control` and `quarantine`, which are read as well, are made in the same step.
    parent = dg.AssetKey([name, "changes"])
    specs = [
        _spec(
            key,
            config,
            _says(table, source.tables[table].description),
            deps=[parent, _day_before(key)],
            owners=source.tables[table].owners,
            tags=source.tables[table].tags,
            metadata={"dagster/table_name": f"lake.{name}.{table}"},
        )
        for table, key in keys.items()
    ]

    @dg.multi_asset(
        name=f"{name}__tables",
        specs=specs,
        check_specs=[s for t, key in keys.items() for s in checks.specs(key, judged[t])],
        **_common(name, config),
    )
    def tables(context: dg.AssetExecutionContext, spark: SparkResource) -> Iterator[StepEvent]:
        days = partitions.days_of(context)
        records.leave_out_missing_checks(context)
        chosen = {t: k for t, k in keys.items() if k in context.selected_asset_keys}
        of_assets = {key: judged[table] for table, key in chosen.items()}
        before = _as_recorded(context, spark, name, of_assets, days, tables_by_key)
        if before is not None:
            yield from before
            return
        with _failures(context, config, name):
            lake = _lake(context, spark)
            facts = table_days.gather(lake, name, chosen, days)
        came: SimpleQueue[records.DayRecord | None] = SimpleQueue()

        def make(table: str) -> MadeTable:
            try:
                known = records.recorded(context, chosen[table], days)
                steps = TableSteps(lake, name, table, chosen[table], facts, known, spark)
                return steps.make(days, _is_forced(context), came.put)
            finally:
                came.put(None)

        with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
            try:
                futures = {table: pool.submit(make, table) for table in chosen}
                for _ in futures:
                    for of_day in iter(came.get, None):
                        yield from of_day.events(context, judged[tables_by_key[of_day.key]])
                made = {table: future.result() for table, future in futures.items()}
            except BaseException:
                spark.cancel()  # the run was stopped, and the pool is left soon
                raise
        for table, of_table in made.items():
            if of_table.error is None:
                yield records.result(chosen[table])
        failures = [of_table.error for of_table in made.values() if of_table.error is not None]
        for error in failures:
            _raise_if_lost(context, config, error)
        if failures:
            raise failure(
                "\n".join(
                    f"{one_line(of_table.error, config, source.shows_values)}{_left_out(of_table)}"
                    for of_table in made.values()
                    if of_table.error is not None
                ),
                failures[0],
                config,
                {"tables_failed": len(failures), "tables_made": len(made) - len(failures)},
                allow_retries=not all(_is_final(e, config) for e in failures),
            ) from None

    return tables


def _left_out(made: MadeTable) -> str:
    if not made.left_out:
        return ""
    return f" (days behind it were not made: {_span(made.left_out)})"


def _says(table: str, description: str | None) -> str:
    row = f"{markdown.literal(table)} as it stood at the end of the day, row by row."
    return f"{description}\n\n{row}" if description else row


# --- lag


def _lag(name: str, config: Config) -> dg.AssetsDefinition:
    source, key = config.sources[name], dg.AssetKey([name, "lag"])
    spec = _stage_spec(
        name,
        "lag",
        config,
        "Lag of the changes: one row per table, kind and source hour, and one per table, kind and "
        "day.",
        deps=[dg.AssetKey([name, "changes"])],
    )

    @dg.multi_asset(
        name=f"{name}__lag",
        specs=[spec],
        check_specs=checks.specs(key, checks.LAG),
        **_common(name, config),
    )
    def lag(context: dg.AssetExecutionContext, spark: SparkResource) -> Iterator[StepEvent]:
        days = partitions.days_of(context)
        records.leave_out_missing_checks(context)
        judged = {key: checks.LAG}
        if (before := _as_recorded(context, spark, name, judged, days)) is not None:
            yield from before
            return
        with _failures(context, config, name), progress.step(name, "lag", _span(days)) as say:
            lake = _lake(context, spark)
            began = time.monotonic()
            progress.expect(lake.day_commits(lake.stage(name, "changes")).records(days))
            lag_stage.make_lag(lake, name, days, force=_is_forced(context))
            seconds = time.monotonic() - began
            stage = _stage_days(context, lake, key, days)
            looked_at = _to_look_at(days, stage)
            lake = _suited(lake, name, "lag", looked_at)
            rows = lag_stage.of_days(lake, name, looked_at)
            hours = lag_stage.worst_by_hour(lake, name, stage.fresh) if stage.fresh else {}
            tables = {row["table_name"] for of_day in rows.values() for row in of_day}
            say(_of_days(f"{len(tables)} tables", days, stage))
            facts, says, findings = {}, {}, {}
            for day in looked_at:
                of_day = rows.get(day, [])
                chart = charts.lag_over_hours(day, hours.get(day, []), source.lag_slo_ms)
                # First, as Dagster's pages keep the order.
                shown = {} if chart is None else {"by_hour": dg.MetadataValue.md(chart)}
                facts[day] = {**shown, **metadata.of_lag(of_day, not config.is_open(day))}
                says[day] = f"lag of {len({row['table_name'] for row in of_day})} tables"
                findings[day] = checks.lag_findings(of_day, source.lag_slo_ms)
            yield from _recorded(
                context, _stage_records(lake, stage, seconds, says, facts, findings), checks.LAG
            )
        yield records.result(key)

    return lag
