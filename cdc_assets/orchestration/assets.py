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
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any

import dagster as dg

from cdc_assets.cdc import lag as lag_stage
from cdc_assets.cdc.changes import stage as changes
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import AuditError, CdcError, JavaError
from cdc_assets.cdc.java_errors import JAVA_ERRORS, root_cause
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayFiles
from cdc_assets.cdc.lake.errors import lake_error, one_line
from cdc_assets.cdc.landing.stage import land
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.spark import is_lost
from cdc_assets.cdc.state import contracts
from cdc_assets.cdc.state import stage as table_days
from cdc_assets.orchestration import charts, checks, markdown, metadata, partitions, progress
from cdc_assets.orchestration.asset_keys import PARSED, table_key
from cdc_assets.orchestration.resources import SparkResource

# Merges of small tables wait more for the driver than for the cores.
TABLES_AT_ONCE = 4

# Tags of a run: land what Kafka, or the folder, still has; make again what is made already.
ALLOW_LOSS, FORCE = "cdc/allow_loss", "cdc/force"

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
).with_label("missing or behind a corrected day")


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
        freshness_policy=_freshness(source.fresh_within_hours),
        **extra,
    )


def _freshness(hours: float | None) -> dg.FreshnessPolicy | None:
    if hours is None:
        return None
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=hours))


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


def _result(key: dg.AssetKey) -> dg.MaterializeResult[Any]:
    return dg.MaterializeResult(asset_key=key)


def _add(
    context: dg.AssetExecutionContext, key: dg.AssetKey, day: date, values: Mapping[str, Any]
) -> None:
    context.add_asset_metadata(dict(values), asset_key=key, partition_key=day.isoformat())


@contextmanager
def _failures(context: dg.AssetExecutionContext, config: Config) -> Iterator[None]:
    """Bad data fails the run for good; a run that lost Spark is started again by the daemon.

    A Java exception is one line as a failure's description; its stack trace is in the log.
    """
    try:
        yield
    except CdcError as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error
    except Exception as error:
        _raise_if_lost(context, error)
        if known := lake_error(error, config):
            raise dg.Failure(description=str(known), allow_retries=False) from error
        if isinstance(error, JAVA_ERRORS):
            raise dg.Failure(description=root_cause(error)) from error
        raise


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


def _raise_if_lost(context: dg.AssetExecutionContext, error: Exception) -> None:
    if is_lost(error):
        # A new process: this one's JVM, or its executors, are gone.
        context.instance.add_run_tags(
            context.run_id, {"dagster/retry_on_asset_or_op_failure": "true"}
        )
        raise dg.Failure(
            description=f"Spark was lost, out of memory or killed: {root_cause(error)}. Days made "
            "before are kept. Dagster's daemon starts the run again; without it, run the same again"
        ) from error


def _is_final(error: Exception, config: Config) -> bool:
    return isinstance(error, CdcError) or lake_error(error, config) is not None


def _is_forced(context: dg.AssetExecutionContext) -> bool:
    return FORCE in context.run.tags


def _record_stage(
    context: dg.AssetExecutionContext,
    lake: Lake,
    key: dg.AssetKey,
    days: Sequence[date],
    seconds: float,
    facts: Mapping[date, Mapping[str, Any]],
) -> None:
    """Metadata of a stage's days; of a range each day has its share of the seconds."""
    identifier = lake.stage(key.path[0], key.path[1])
    state = lake.read_state(identifier)
    held = lake.day_files(identifier, days)
    share = round(seconds / len(days), 2)
    for day in days:
        location = state.location if state else ""
        common = metadata.of_stage_day(identifier, location, day, held.get(day, DayFiles()), share)
        _add(context, key, day, {**common, **facts.get(day, {})})


# --- landing


def _landing(name: str, config: Config) -> dg.AssetsDefinition:
    key = dg.AssetKey([name, "landing"])
    from_kafka = config.sources[name].landing.kafka is not None
    spec = _stage_spec(
        name,
        "landing",
        config,
        "Kafka's records as they came, bytes untouched, a row each: what all else is made of.",
        deps=[],
        kinds={"kafka" if from_kafka else "file"},
    )

    @dg.multi_asset(
        name=f"{name}__landing",
        specs=[spec],
        check_specs=checks.specs(key, checks.LANDING),
        **_common(name, config),
    )
    def landing(
        context: dg.AssetExecutionContext, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        days = partitions.days_of(context)
        with _failures(context, config), progress.step(name, "landing", _span(days)) as say:
            lake = _lake(context, spark)
            began = time.monotonic()
            allow_loss = ALLOW_LOSS in context.run.tags
            landed = land(lake, name, days, force=_is_forced(context), allow_loss=allow_loss)
            seconds = time.monotonic() - began
            lake = _suited(lake, name, "landing", days)
            counts = changes.count_landed(lake, name, days)
            say(f"{sum(counts.values())} records")
            findings = checks.landing_findings(lake, name, days)
            facts = {
                of_day.day: metadata.of_landing(of_day, counts.get(of_day.day, 0), lake.config)
                for of_day in landed
            }
            _record_stage(context, lake, key, days, seconds, facts)
        for day in days:
            checks.record(context, key, day, checks.LANDING, findings[day])
        yield _result(key)

    return landing


def _span(days: list[date]) -> str:
    return str(days[0]) if len(days) == 1 else f"{days[0]}…{days[-1]}"


# --- changes, control, quarantine


def _changes(name: str, config: Config) -> dg.AssetsDefinition:
    keys = {table: dg.AssetKey([name, table]) for table in PARSED}
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
    def parsed(
        context: dg.AssetExecutionContext, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        days = partitions.days_of(context)
        with _failures(context, config):
            lake = _lake(context, spark)
            began = time.monotonic()
            with progress.step(name, "changes", _span(days)) as say:
                progress.expect(lake.day_commits(lake.stage(name, "landing")).records(days))
                again = changes.made_by_other_rules(lake, name, days)
                changes.make_changes(lake, name, days, force=_is_forced(context))
                seconds = time.monotonic() - began
                lake = _suited(lake, name, "landing", days)
                figures = changes.count_by(lake, name, days)
                totals = {k: sum(sum(f[k].values()) for f in figures.values()) for k in PARSED}
                say(", ".join(f"{count} {kind}" for kind, count in totals.items()))
                if again:
                    say(f"({len(again)} days made again: the rules have changed)")
            examples = checks.quarantine_examples(lake, name, days)
            findings = checks.changes_findings(lake, name, figures, examples)
            facts = {day: metadata.of_changes(figures[day]) for day in days}
            with_values = config.sources[name].samples
            for day, rows in examples.items():
                shown = metadata.quarantine_examples(rows, with_values)
                facts[day]["quarantine"]["examples"] = shown
            # All three are made together; Dagster takes records of those that were asked for.
            chosen = {t: k for t, k in keys.items() if k in context.selected_asset_keys}
            for table, key in chosen.items():
                of_table = {day: of_day[table] for day, of_day in facts.items()}
                _record_stage(context, lake, key, days, seconds, of_table)
            contract = {
                table: checks.listed("contract", _stage_contract(lake, name, table))
                for table in judged
                if table in chosen
            }
        for day in days:
            for table, finding in contract.items():
                found = [*(findings[day] if table == "changes" else ()), finding]
                checks.record(context, keys[table], day, judged[table], found)
        for key in chosen.values():
            yield _result(key)

    return parsed


def _stage_contract(lake: Lake, name: str, table: str) -> list[str]:
    return contracts.broken(lake.spark.table(lake.stage(name, table)), _STAGE_SCHEMAS[table])


# --- tables


def _tables(name: str, config: Config) -> dg.AssetsDefinition:
    source = config.sources[name]
    keys = {table: table_key(name, table) for table in source.tables}
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
    def tables(
        context: dg.AssetExecutionContext, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        days = partitions.days_of(context)
        chosen = {t: k for t, k in keys.items() if k in context.selected_asset_keys}
        is_forced = _is_forced(context)
        with _failures(context, config):
            lake = _lake(context, spark)
            facts = table_days.gather(lake, name, chosen, days)

        def make(table: str) -> MadeTable:
            made = _make_table(lake, name, table, days, facts, is_forced, spark)
            return made if not made.reports else _look_at(lake, name, table, facts, made)

        with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
            try:
                made = dict(zip(chosen, pool.map(make, chosen), strict=True))
            except BaseException:
                spark.cancel()  # the run was stopped, and the pool is left soon
                raise
        failures = []
        for table, of_table in made.items():
            _record_table(context, chosen[table], of_table, judged[table])
            if of_table.error is None:
                yield _result(chosen[table])
            else:
                failures.append(of_table.error)
        for error in failures:
            _raise_if_lost(context, error)
        if failures:
            raise dg.Failure(
                description="\n".join(
                    f"{one_line(of_table.error, config)}{_left_out(of_table)}"
                    for of_table in made.values()
                    if of_table.error is not None
                ),
                metadata={"tables_failed": len(failures), "tables_made": len(made) - len(failures)},
                allow_retries=not all(_is_final(e, config) for e in failures),
            ) from failures[0]

    return tables


def _says(table: str, description: str | None) -> str:
    row = f"{markdown.literal(table)} as it stood at the end of the day, row by row."
    return f"{description}\n\n{row}" if description else row


@dataclass(frozen=True)
class MadeTable:
    """The days of a table that a run made, until one failed; what is recorded of each."""

    reports: Sequence[table_days.DayReport]
    error: Exception | None = None
    left_out: Sequence[date] = ()
    metadata: Mapping[date, Mapping[str, Any]] = field(default_factory=dict)
    findings: Mapping[date, Sequence[checks.Finding]] = field(default_factory=dict)


def _left_out(made: MadeTable) -> str:
    if not made.left_out:
        return ""
    return f" (days behind it were not made: {_span(list(made.left_out))})"


def _make_table(
    lake: Lake,
    name: str,
    table: str,
    days: Sequence[date],
    facts: table_days.Facts,
    is_forced: bool,
    spark: SparkResource,
) -> MadeTable:
    """The days of one table in order; a failed day stops those behind it."""
    reports: list[table_days.DayReport] = []
    for day in days:
        if day < lake.config.start_of(name, table) or spark.is_canceled:
            continue
        try:
            with progress.step(name, table, str(day)) as say:
                report = table_days.make_table_day(lake, name, table, day, facts, is_forced)
                again = ", made again: the rules have changed" if report.rules_changed else ""
                say(f"{report.rows} rows" + (again if report.made else " (as before)"))
        except Exception as error:
            return MadeTable(reports, error, left_out=[d for d in days if d > day])
        reports.append(report)
    return MadeTable(reports)


def _look_at(
    lake: Lake, name: str, table: str, facts: table_days.Facts, made: MadeTable
) -> MadeTable:
    """What there is to say of the days of a table."""
    try:
        identifier = lake.state(name, TableName.parse(table))
        state, frame = lake.read_state(identifier), lake.spark.table(identifier)
        assert state is not None
        days = [date.fromisoformat(report.day) for report in made.reports]
        source = lake.config.source(name)
        of_messages = facts.columns_of(table, days)
        faults = contracts.broken_of_table(
            frame, source.tables[table], of_messages, state.key_columns
        )
        contract = checks.listed("contract", faults)
        values, findings = {}, {}
        for day, report in zip(days, made.reports, strict=True):
            values[day] = metadata.of_table(name, identifier, frame.schema, state, report)
            found = checks.table_findings(state, day, report)
            if source.tables[table].key in ("none", "row"):
                found = [f for f in found if f.name not in checks.OF_KEYS]
            findings[day] = [*found, contract]
        if source.samples:
            # Of a range the newest day alone: a sample costs a Spark job.
            hidden = source.tables[table].sensitive
            shown = metadata.sample(lake, identifier, days[-1], hidden)
            values[days[-1]] = {"sample": dg.MetadataValue.md(shown), **values[days[-1]]}
    except Exception as error:
        return replace(made, error=made.error or error)
    return replace(made, metadata=values, findings=findings)


def _record_table(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    made: MadeTable,
    judged: Sequence[checks.Check],
) -> None:
    for day, values in made.metadata.items():
        if made.error is None:
            _add(context, key, day, values)
        else:
            # The asset as a whole failed, but these days of it are published.
            context.log_event(
                dg.AssetMaterialization(key, partition=str(day), metadata=dict(values))
            )
        checks.record(context, key, day, judged, made.findings[day])
    error = made.error
    if isinstance(error, AuditError) and error.check is not None:
        failed = checks.Finding(error.check, False, {"audit": str(error)})
        checks.record(context, key, error.day, judged, [failed])


# --- lag


def _lag(name: str, config: Config) -> dg.AssetsDefinition:
    source, key = config.sources[name], dg.AssetKey([name, "lag"])
    spec = _stage_spec(
        name,
        "lag",
        config,
        "How late changes came: a row a table, kind of lag and source hour, and one for the day.",
        deps=[dg.AssetKey([name, "changes"])],
    )

    @dg.multi_asset(
        name=f"{name}__lag",
        specs=[spec],
        check_specs=checks.specs(key, checks.LAG),
        **_common(name, config),
    )
    def lag(
        context: dg.AssetExecutionContext, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        days = partitions.days_of(context)
        with _failures(context, config), progress.step(name, "lag", _span(days)) as say:
            lake = _lake(context, spark)
            began = time.monotonic()
            lag_stage.make_lag(lake, name, days, force=_is_forced(context))
            seconds = time.monotonic() - began
            lake = _suited(lake, name, "lag", days)
            rows = lag_stage.of_days(lake, name, days)
            hours = lag_stage.worst_by_hour(lake, name, days)
            say(f"{len({row['table_name'] for of_day in rows.values() for row in of_day})} tables")
            facts = {}
            for day in days:
                facts[day] = metadata.of_lag(rows.get(day, []), not lake.config.is_open(day))
                chart = charts.lag_over_hours(day, hours.get(day, []), source.lag_slo_ms)
                if chart is not None:
                    facts[day]["by_hour"] = dg.MetadataValue.md(chart)
            _record_stage(context, lake, key, days, seconds, facts)
        for day in days:
            findings = checks.lag_findings(rows.get(day, []), source.lag_slo_ms)
            checks.record(context, key, day, checks.LAG, findings)
        yield _result(key)

    return lag
