"""Each source's assets: one function per stage builds them from its configuration.

A body gets the days of its run (one, or a range) and makes them in one Spark session.
Metadata and checks are recorded a day each. (Dagster reads the annotations of bodies as
objects, so this module does not postpone them.)
"""

import json
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Any

import dagster as dg
from pyspark.sql import functions as F

from cdc_assets import checks, metadata, partitions, progress
from cdc_assets.cdc import changes, contracts, snapshots
from cdc_assets.cdc import lag as lag_stage
from cdc_assets.cdc.config import Config, SourceConfig
from cdc_assets.cdc.envelopes import columns
from cdc_assets.cdc.errors import CdcError
from cdc_assets.cdc.lake import Lake
from cdc_assets.cdc.landing.stage import land
from cdc_assets.cdc.names import TableName
from cdc_assets.resources import SparkResource

# Merges of small tables wait more for the driver than for the cores.
_TABLES_AT_ONCE = 3

ALLOW_LOSS = "cdc/allow_loss"  # a run's tag: land what Kafka still has


def build_assets(name: str, config: Config) -> list[dg.AssetsDefinition]:
    """All assets of one source, in the order in which data flows."""
    built = [_landing(name, config), _changes(name, config), _lag(name, config)]
    if config.sources[name].tables:
        built.append(_tables(name, config))
    return built


def table_key(name: str, table: str) -> dg.AssetKey:
    """``[source, schema, table]``; characters that Dagster's names can't hold are coded."""
    parts = TableName.parse(table)
    return dg.AssetKey([name, *(_key_part(p) for p in parts)])


def _key_part(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-]", lambda m: f"_x{ord(m.group()):X}_", part)


def _spec(
    key: dg.AssetKey, source: SourceConfig, description: str, deps: list[Any], **extra: Any
) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        deps=deps,
        description=description,
        group_name=key.path[0],
        owners=list(source.owners) or None,
        kinds=extra.pop("kinds", {"spark", "iceberg"}),
        **extra,
    )


def _common(name: str, config: Config) -> dict[str, Any]:
    return {
        "partitions_def": partitions.daily(config),
        "backfill_policy": dg.BackfillPolicy.single_run(),
        "can_subset": True,
        "pool": f"cdc_{name}",  # two runs of one source wait for each other
    }


def _day_before(key: dg.AssetKey, start: int = -1, end: int = -1) -> dg.AssetDep:
    with warnings.catch_warnings():
        # In beta for several minor versions; without it the first day would lack a parent.
        warnings.simplefilter("ignore", dg.BetaWarning)
        mapping = dg.TimeWindowPartitionMapping(
            start_offset=start, end_offset=end, allow_nonexistent_upstream_partitions=True
        )
    return dg.AssetDep(key, partition_mapping=mapping)


def _result(key: dg.AssetKey) -> dg.MaterializeResult[Any]:
    return dg.MaterializeResult(asset_key=key)


def _add(
    context: dg.AssetExecutionContext, key: dg.AssetKey, day: date, values: Mapping[str, Any]
) -> None:
    context.add_asset_metadata(dict(values), asset_key=key, partition_key=day.isoformat())


def _table_metadata(config: Config, name: str, table: str, schema: Any) -> dict[str, Any]:
    namespace = f"lake.{name}"
    return {
        "dagster/table_name": f"{namespace}.{table}",
        "dagster/column_schema": metadata.column_schema(schema),
    }


def _raise_failure(error: CdcError) -> None:
    raise dg.Failure(description=str(error), allow_retries=False) from error


# --- landing


def _landing(name: str, config: Config) -> dg.AssetsDefinition:
    source, key = config.sources[name], dg.AssetKey([name, "landing"])
    spec = _spec(
        key,
        source,
        "A row is a Kafka record, bytes as they came.",
        deps=[],
        kinds={"kafka", "spark", "iceberg"},
        metadata=_table_metadata(config, name, "landing", columns.LANDING),
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
        lake, days = spark.lake(), partitions.days_of(context)
        with progress.step(name, "landing", _span(days)) as say:
            try:
                landed = land(lake, name, days, allow_loss=ALLOW_LOSS in context.run.tags)
            except CdcError as error:
                _raise_failure(error)
            counts = _count_days(lake, name, "landing", days)
            say(f"{sum(counts.values())} records")
        findings = checks.landing_findings(lake, name, days)
        for of_day in landed:
            day = of_day.day
            _add(context, key, day, metadata.of_landing(of_day, counts.get(day, 0), lake.config))
            checks.record(context, key, day, checks.LANDING, findings[day])
        yield _result(key)

    return landing


def _span(days: list[date]) -> str:
    return str(days[0]) if len(days) == 1 else f"{days[0]}…{days[-1]}"


def _count_days(lake: Lake, name: str, table: str, days: list[date]) -> dict[date, int]:
    rows = (
        lake.spark.table(lake.stage(name, table))
        .where(F.col("landing_date").isin([F.lit(d) for d in days]))
        .groupBy("landing_date")
        .count()
        .collect()
    )
    return {row.landing_date: row["count"] for row in rows}


# --- changes, control, quarantine


def _changes(name: str, config: Config) -> dg.AssetsDefinition:
    source = config.sources[name]
    keys = {t: dg.AssetKey([name, t]) for t in ("changes", "control", "quarantine")}
    described = {
        "changes": ("A row is an event that changes rows of a table.", columns.CHANGES),
        "control": ("A row is an event that was understood and changes no row.", columns.CONTROL),
        "quarantine": (
            "A row is a landed record that could not be read, with its reason.",
            columns.QUARANTINE,
        ),
    }
    landing = dg.AssetKey([name, "landing"])
    specs = [
        _spec(
            keys[table],
            source,
            text,
            deps=[_day_before(landing, start=-1, end=0)],
            metadata=_table_metadata(config, name, table, schema),
        )
        for table, (text, schema) in described.items()
    ]

    @dg.multi_asset(
        name=f"{name}__changes",
        specs=specs,
        check_specs=checks.specs(keys["changes"], checks.CHANGES),
        **_common(name, config),
    )
    def parsed(
        context: dg.AssetExecutionContext, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        lake, days = spark.lake(), partitions.days_of(context)
        began = time.monotonic()
        with progress.step(name, "changes", _span(days)) as say:
            try:
                changes.make_changes(lake, name, days)
            except CdcError as error:
                _raise_failure(error)
            figures = changes.count_by(lake, name, days)
            totals = {
                k: sum(sum(f[k].values()) for f in figures.values())
                for k in ("changes", "control", "quarantine")
            }
            say(", ".join(f"{count} {kind}" for kind, count in totals.items()))
        seconds = round((time.monotonic() - began) / len(days), 2)
        table = lake.spark.table(lake.stage(name, "changes"))
        contract = checks.listed("contract", contracts.broken(table, columns.CHANGES))
        findings = checks.changes_findings(lake, name, source, figures)
        for day in days:
            for kind, values in metadata.of_changes(figures[day], seconds).items():
                _add(context, keys[kind], day, values)
            checks.record(context, keys["changes"], day, checks.CHANGES, [*findings[day], contract])
        for key in context.selected_asset_keys:
            yield _result(key)

    return parsed


# --- tables


def _tables(name: str, config: Config) -> dg.AssetsDefinition:
    source = config.sources[name]
    keys = {table: table_key(name, table) for table in source.tables}
    parents = [dg.AssetKey([name, t]) for t in ("changes", "control", "quarantine")]
    specs = [
        _spec(
            key,
            source,
            f"A row is a row of {table} as it stood at the end of the day.",
            deps=[*parents, _day_before(key)],
            metadata={"dagster/table_name": f"lake.{name}.{table}"},
        )
        for table, key in keys.items()
    ]

    @dg.multi_asset(
        name=f"{name}__tables",
        specs=specs,
        check_specs=[s for key in keys.values() for s in checks.specs(key, checks.TABLE)],
        **_common(name, config),
    )
    def tables(
        context: dg.AssetExecutionContext, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        lake, days = spark.lake(), partitions.days_of(context)
        chosen = {t: k for t, k in keys.items() if k in context.selected_asset_keys}
        facts = snapshots.gather(lake, name, chosen, days)

        def make(table: str) -> tuple[list[snapshots.DayReport], Exception | None]:
            return _make_table(lake, name, table, days, facts)

        with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
            made = dict(zip(chosen, pool.map(make, chosen), strict=True))
        failures = []
        for table, (reports, error) in made.items():
            key = chosen[table]
            identifier = lake.state(name, TableName.parse(table))
            contract = _table_contract(lake, identifier) if reports else None
            for report in reports:
                day = date.fromisoformat(report.day)
                values = metadata.of_table(lake, identifier, report)
                if report is reports[-1]:
                    # Of a range the newest day alone: a sample costs a Spark job.
                    values["sample"] = dg.MetadataValue.md(metadata.sample(lake, identifier, day))
                findings = checks.table_findings(lake, identifier, day, report)
                if contract is not None:
                    findings.append(contract)
                if error is None:
                    _add(context, key, day, values)
                else:
                    # The asset as a whole failed, but these days of it are published.
                    context.log_event(
                        dg.AssetMaterialization(key, partition=report.day, metadata=values)
                    )
                checks.record(context, key, day, checks.TABLE, findings)
            if error is None:
                yield _result(key)
            else:
                failures.append(error)
        if failures:
            raise dg.Failure(
                description="\n".join(str(e) for e in failures),
                metadata={"tables_failed": len(failures), "tables_made": len(made) - len(failures)},
                allow_retries=not all(isinstance(e, CdcError) for e in failures),
            ) from failures[0]

    return tables


def _make_table(
    lake: Lake, name: str, table: str, days: list[date], facts: snapshots.Facts
) -> tuple[list[snapshots.DayReport], Exception | None]:
    """The days of one table in order; a failed day stops those behind it."""
    reports: list[snapshots.DayReport] = []
    for day in days:
        if day < lake.config.start_of(name, table):
            continue
        try:
            with progress.step(name, table, str(day)) as say:
                report = snapshots.make_table_day(lake, name, table, day, facts)
                say(f"{report.rows} rows" + ("" if report.made else " (as before)"))
        except Exception as error:
            return reports, error
        reports.append(report)
    return reports, None


def _table_contract(lake: Lake, identifier: str) -> checks.Finding:
    table = lake.spark.table(identifier)
    state = lake.read_state(identifier)
    key = json.loads((state.properties if state else {}).get("cdc.key", "[]"))
    faults = contracts.broken(table, snapshots.OWN_COLUMNS, needed=key)
    return checks.listed("contract", faults)


# --- lag


def _lag(name: str, config: Config) -> dg.AssetsDefinition:
    source, key = config.sources[name], dg.AssetKey([name, "lag"])
    spec = _spec(
        key,
        source,
        "A row is the lag of a table's changes: of a source hour, or of the whole day.",
        deps=[dg.AssetKey([name, "changes"])],
        metadata=_table_metadata(config, name, "lag", columns.LAG),
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
        lake, days = spark.lake(), partitions.days_of(context)
        with progress.step(name, "lag", _span(days)) as say:
            try:
                lag_stage.make_lag(lake, name, days)
            except CdcError as error:
                _raise_failure(error)
            rows = (
                lake.spark.table(lake.stage(name, "lag"))
                .where(
                    F.col("landing_date").isin([F.lit(d) for d in days]) & F.col("hour").isNull()
                )
                .orderBy("table_name", "kind")
                .collect()
            )
            say(f"{len({r.table_name for r in rows})} tables")
        for day in days:
            of_day = [r.asDict() for r in rows if r.landing_date == day]
            complete = not lake.config.is_open(day)
            _add(context, key, day, metadata.of_lag(of_day, complete))
            checks.record(
                context, key, day, checks.LAG, checks.lag_findings(of_day, source.lag_slo_ms)
            )
        yield _result(key)

    return lag
