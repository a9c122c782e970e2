"""The definitions that Dagster loads."""

from __future__ import annotations

import dagster as dg

from cdc_assets.cdc.config import Config, load_config
from cdc_assets.cdc.lake.adopted_tables import with_adopted_tables
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.automation.health import build_health_checks
from cdc_assets.orchestration.automation.maintenance_job import (
    maintenance_job,
    maintenance_schedule,
)
from cdc_assets.orchestration.automation.schedules import build_schedules
from cdc_assets.orchestration.automation.sensors import build_sensors
from cdc_assets.orchestration.automation.source_checks import build_source_checks
from cdc_assets.orchestration.execution.executor import threads_executor
from cdc_assets.orchestration.execution.jobs import daily
from cdc_assets.orchestration.execution.resources import SparkResource


def build_definitions(config: Config) -> dg.Definitions:
    """Assets, checks, jobs, schedules and sensors of a configuration.

    Steps share the Spark session of their run; Dagster's default executor starts a JVM per step.
    """
    maintenance = maintenance_job(config)
    return dg.Definitions(
        assets=[asset for source in config.sources for asset in build_assets(source, config)],
        asset_checks=[*build_health_checks(config), *build_source_checks(config)],
        jobs=[daily, maintenance],
        schedules=[*build_schedules(config), maintenance_schedule(config, maintenance)],
        sensors=build_sensors(config),
        resources={"spark": SparkResource()},
        executor=threads_executor,
    )


defs = build_definitions(with_adopted_tables(load_config()))
