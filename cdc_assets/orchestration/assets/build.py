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
from cdc_assets.cdc.names import FEED, HISTORY
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.cdc.stages.contract import Stage, StageOfTables
from cdc_assets.cdc.stages.derived import DerivedStage
from cdc_assets.cdc.stages.lag import LagStage
from cdc_assets.cdc.stages.landing import LandingStage
from cdc_assets.cdc.stages.one_table import OneTableStage
from cdc_assets.cdc.stages.source import stages_of_tables
from cdc_assets.orchestration import checks
from cdc_assets.orchestration.assets import partitions
from cdc_assets.orchestration.assets.body import Step, StepEvent
from cdc_assets.orchestration.assets.keys import asset_key, stage_key, table_key
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
_DERIVED = {
    HISTORY: "Every version of each row of {table}: from which event to which it stood, by source "
    "time and by position.",
    FEED: "Each change of a row of {table}, those of a day by `_cdc_landing_date`, in the order of "
    "each key.",
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
    if tables := stages_of_tables(config, source):
        built.append(_step(tables, list(map(_spec_of_table, tables))))
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


def _spec_of_table(stage: OneTableStage[Any]) -> dg.AssetSpec:
    source, settings, key = stage.source, stage.table_settings, stage_key(stage, stage.table)
    name = markdown.literal(stage.of)
    if isinstance(stage, DerivedStage):
        # It also reads `changes` of the day and of those looked back on.
        text, parent = _DERIVED[stage.kind.name].format(table=name), table_key(source, stage.of)
    else:
        text = f"{name} as it stood at the end of the day, row by row."
        if settings.description:
            text = f"{settings.description}\n\n{text}"
        # It also reads `control` and `quarantine`, which the same step makes.
        parent = asset_key(source, "changes")
    return _spec(
        key,
        stage.config,
        text,
        deps=[parent, _day_before(key)],
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
