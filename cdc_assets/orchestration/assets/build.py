"""The assets of each source, a step per stage.

A step makes the days of its run, one or a range, in one Spark session. Metadata and checks are
recorded per day. (Dagster reads the annotations of bodies as objects, so this module does not
postpone them.)
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_assets.cdc import markdown
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.landing.sources import landing_source
from cdc_assets.cdc.metadata import Columns, stage_lineage
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.cdc.stages.contract import Stage, StageOfTables
from cdc_assets.cdc.stages.history import HistoryStage
from cdc_assets.cdc.stages.lag import LagStage
from cdc_assets.cdc.stages.landing import LandingStage
from cdc_assets.cdc.stages.tables import TableStage
from cdc_assets.orchestration import checks
from cdc_assets.orchestration.assets import partitions
from cdc_assets.orchestration.assets.body import Step, StepEvent
from cdc_assets.orchestration.assets.keys import asset_key, history_key, table_key
from cdc_assets.orchestration.execution.resources import SparkResource
from cdc_assets.orchestration.metadata import dagster_values

_AC = dg.AutomationCondition
# Requests missing ended days, and the days downstream of one that was made again.
# `AutomationCondition.eager()` requests only the newest day, which is the open one, and ignores
# days that were missing when it was switched on.
_CONDITION = (
    (_AC.newly_missing() | _AC.any_deps_updated()).since(
        _AC.newly_requested() | _AC.newly_updated()
    )
    & ~_AC.in_latest_time_window()
    & ~_AC.in_progress()
    & ~_AC.any_deps_missing()
    & ~_AC.any_deps_in_progress()
).with_label("missing, or built on a day that was made again")

_DESCRIPTIONS = {
    "landing": "Kafka records as they landed, one row per record, bytes unchanged. All other "
    "tables are built from them.",
    "changes": "Events that change rows, read into common columns, a row each.",
    "control": "Events that were understood and change no row: heartbeats, marks of "
    "transactions, DDL, messages; a row each.",
    "quarantine": "Landed records that could not be read, a row each, with the reason.",
    "lag": "Lag of the changes: one row per table, kind and source hour, and one per table, kind "
    "and day.",
}
# Changes also read the landing of the day before (D11). As a dependency, Dagster would make that
# day as well, before it has landed.
_PARENTS = {
    "landing": None,
    "changes": "landing",
    "control": "landing",
    "quarantine": "landing",
    "lag": "changes",
}


def build_assets(source: str, config: Config) -> list[dg.AssetsDefinition]:
    """All assets of one source, in the order in which data flows."""
    kind = landing_source(config, source).kind
    built = [
        _step([LandingStage(config, source)], _stage_specs(LandingStage(config, source), {kind})),
        _step([ChangesStage(config, source)], _stage_specs(ChangesStage(config, source))),
        _step([LagStage(config, source)], _stage_specs(LagStage(config, source))),
    ]
    tables = [TableStage(config, source, table) for table in config.sources[source].tables]
    if tables:
        built.append(_step(tables, list(map(_table_spec, tables))))
    histories = [HistoryStage(config, source, of) for of in config.sources[source].histories]
    if histories:
        built.append(_step(histories, list(map(_history_spec, histories))))
    return built


def _step(stages: Sequence[Stage[Any]], specs: Sequence[dg.AssetSpec]) -> dg.AssetsDefinition:
    """The assets that one step makes."""
    step = Step(stages)

    @dg.multi_asset(
        name=f"{step.source}__{step.name}",
        specs=specs,
        check_specs=[
            spec
            for table, key in step.keys.items()
            for spec in checks.specs(key, step.checks[table])
        ],
        partitions_def=partitions.daily(step.config),
        backfill_policy=dg.BackfillPolicy.single_run(),
        can_subset=True,
        pool=f"cdc_{step.source}",  # two runs of one source wait for each other
    )
    def made(context: dg.AssetExecutionContext, spark: SparkResource) -> Iterator[StepEvent]:
        yield from step.run(context, spark, partitions.partition_days(context))

    return made


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
    settings = config.sources[key.path[0]]
    return dg.AssetSpec(
        key,
        deps=deps,
        description=description,
        group_name=key.path[0],
        owners=list(dict.fromkeys([*settings.owners, *owners])) or None,
        tags={**settings.tags, **(tags or {})},
        kinds={"spark", "iceberg", *kinds},
        automation_condition=_CONDITION,
        **extra,
    )


def _stage_specs(stage: StageOfTables[Any], kinds: Iterable[str] = ()) -> list[dg.AssetSpec]:
    source, specs = stage.source, []
    for table, schema in stage.schemas.items():
        shown: dict[str, Any] = {
            "dagster/table_name": f"lake.{source}.{table}",
            "dagster/column_schema": Columns(schema),
        }
        if (lineage := stage_lineage(source, table, schema)) is not None:
            shown["dagster/column_lineage"] = lineage
        parent = _PARENTS[table]
        specs.append(
            _spec(
                asset_key(source, table),
                stage.config,
                _DESCRIPTIONS[table],
                deps=[asset_key(source, parent)] if parent else [],
                kinds=kinds,
                metadata=dagster_values(shown),
            )
        )
    return specs


def _table_spec(stage: TableStage) -> dg.AssetSpec:
    source, table, settings = stage.source, stage.table, stage.table_settings
    key = table_key(source, table)
    row = f"{markdown.literal(table)} as it stood at the end of the day, row by row."
    return _spec(
        key,
        stage.config,
        f"{settings.description}\n\n{row}" if settings.description else row,
        # It also reads `control` and `quarantine`, which the same step makes.
        deps=[asset_key(source, "changes"), _day_before(key)],
        owners=settings.owners,
        tags=settings.tags,
        metadata={"dagster/table_name": f"lake.{source}.{table}"},
    )


def _history_spec(stage: HistoryStage) -> dg.AssetSpec:
    source, settings = stage.source, stage.table_settings
    key = history_key(source, stage.of)
    return _spec(
        key,
        stage.config,
        f"Every version of each row of {markdown.literal(stage.of)}: from which event to which it "
        "stood, by source time and by position.",
        # It also reads `changes` of the day and of those looked back on.
        deps=[table_key(source, stage.of), _day_before(key)],
        owners=settings.owners,
        tags=settings.tags,
        metadata={"dagster/table_name": f"lake.{source}.{stage.table}"},
    )


def _day_before(key: dg.AssetKey) -> dg.AssetDep:
    with warnings.catch_warnings():
        # Beta since several minor versions; without the mapping the first day would lack a parent.
        warnings.simplefilter("ignore", dg.BetaWarning)
        mapping = dg.TimeWindowPartitionMapping(
            start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True
        )
    return dg.AssetDep(key, partition_mapping=mapping)
