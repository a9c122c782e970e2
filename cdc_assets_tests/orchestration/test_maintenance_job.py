"""The job `maintenance` as Dagster sees it: its pools, its schedule, its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_assets import definitions
from cdc_assets.cdc.config import Config, parse_config
from cdc_assets.cdc.errors import ConfigError
from cdc_assets_tests.lakes import source_config


def config_of(tmp_path: Path, maintenance: Any = None) -> Config:
    """Two sources, and what cdc.yaml says under `maintenance`."""
    raw = {
        "start_date": "2026-11-01",
        "timezone": "Asia/Shanghai",
        "sources": {name: source_config(tmp_path) for name in ("shop", "bank")},
        "maintenance": maintenance,
    }
    return parse_config(raw, tmp_path)


def schedule_of(config: Config) -> dg.ScheduleDefinition:
    found = definitions.build_definitions(config).resolve_schedule_def("maintenance_schedule")
    assert isinstance(found, dg.ScheduleDefinition)
    return found


def test_each_source_is_maintained_in_its_own_pool(tmp_path: Path) -> None:
    defs = definitions.build_definitions(config_of(tmp_path))
    ops = defs.resolve_job_def("maintenance").all_node_defs
    assert {op.name: op.pool for op in ops if isinstance(op, dg.OpDefinition)} == {
        "maintain_shop": "cdc_shop",
        "maintain_bank": "cdc_bank",
    }


def test_the_schedule_is_off_until_cdc_yaml_says_when(tmp_path: Path) -> None:
    off = schedule_of(config_of(tmp_path))
    assert off.default_status is dg.DefaultScheduleStatus.STOPPED
    on = schedule_of(config_of(tmp_path, {"cron": "30 5 * * 6"}))
    assert on.default_status is dg.DefaultScheduleStatus.RUNNING
    assert (on.cron_schedule, on.execution_timezone) == ("30 5 * * 6", "Asia/Shanghai")


@pytest.mark.parametrize(
    ("maintenance", "says"),
    [
        ({"cron": "daily"}, "maintenance.cron: got 'daily'; expected five cron fields"),
        ({"cron": "61 4 * * 0"}, "maintenance.cron: got '61 4 * * 0'; expected five cron fields"),
        ({"orphan_hours": 3}, "maintenance.orphan_hours: "),
        ({"snapshot_hours": 0}, "maintenance.snapshot_hours: "),
        ({"hours": 3}, "maintenance.hours: unknown key"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_its_path(
    tmp_path: Path, maintenance: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as error:
        definitions.build_definitions(config_of(tmp_path, maintenance))
    assert says in str(error.value)
