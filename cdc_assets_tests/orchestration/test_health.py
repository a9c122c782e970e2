"""Is a source's data new, and does it still send: judged now, in runs and between them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_assets.cdc.changes.findings import CHECKS
from cdc_assets.cdc.config import Config, parse_config
from cdc_assets.definitions import build_definitions
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.automation.health import (
    build_health_checks,
    build_health_sensor,
    health_findings,
    is_worth_recording,
    last_recorded,
)
from cdc_assets_tests import events as ev
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import run_stages, source_config
from cdc_assets_tests.shared_spark import SharedSpark

NOW = datetime.now(timezone.utc)
TODAY = NOW.date()
OLD = TODAY - timedelta(days=3)
CHANGES = dg.AssetKey(["s", "changes"])


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def event(offset: int, came: datetime) -> Any:
    return ev.created({"id": offset}, offset=offset, timestamp_ms=round(came.timestamp() * 1000))


def config_of(**options: Any) -> Config:
    source = source_config("landed", tables={}, **options)
    return parse_config({"start_date": TODAY, "sources": {"s": source}}, Path("/"))


# -- verdicts ------------------------------------------------------------------------------------


def test_a_source_is_judged_by_its_newest_record_and_now(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    came = NOW - timedelta(hours=2)
    ev.write_landing(tmp_path, {came.date(): [event(0, came)]})
    settings = {"fresh_within_hours": 3, "max_silence_minutes": 90}
    lake = lake_of({name: source_config(tmp_path, **settings)}, start=OLD)
    run_stages(lake, name, [came.date()], lag=True)

    def verdicts(hours: float) -> dict[str, bool]:
        later = NOW + timedelta(hours=hours)
        return {f.name: f.passed for f in health_findings(lake.config, name, later)}

    made = {"made_of_landing": True}
    assert verdicts(-1) == {"fresh": True, "source_alive_now": True, **made}
    assert verdicts(0) == {"fresh": True, "source_alive_now": False, **made}
    assert verdicts(2) == {"fresh": False, "source_alive_now": False, **made}
    (fresh, alive, _) = health_findings(lake.config, name, NOW)
    assert fresh.values["age_hours"] == 2
    assert f"is of {came:%Y-%m-%d %H:%M} UTC, 2 hours ago (limit 3 hours)" in (
        fresh.description or ""
    )
    assert f"landed day {came.date()}; no run has landed anything since" in (
        fresh.description or ""
    )
    assert "(limit 90 minutes)" in (alive.description or "")


def test_a_run_of_old_days_judges_the_newest_data(
    lake_of: LakeOf, tmp_path: Path, name: str, instance: dg.DagsterInstance
) -> None:
    minute_ago = datetime.now(timezone.utc) - timedelta(minutes=1)
    old = datetime.combine(OLD, datetime.min.time(), timezone.utc)
    ev.write_landing(tmp_path, {OLD: [event(0, old)], minute_ago.date(): [event(1, minute_ago)]})
    lake = lake_of({name: source_config(tmp_path, max_silence_minutes=60)}, start=OLD)
    run_stages(lake, name, [OLD, minute_ago.date()], lag=True)
    SharedSpark.shared = lake
    key = dg.AssetKey([name, "changes"])
    result = dg.materialize(
        [*build_assets(name, lake.config), *build_health_checks(lake.config)],
        instance=instance,
        selection=[dg.AssetKey([name, "landing"]), key],
        resources={"spark": SharedSpark()},
        tags={
            "dagster/asset_partition_range_start": str(OLD),
            "dagster/asset_partition_range_end": str(OLD),
        },
    )
    found = {e.check_name: e for e in result.get_asset_check_evaluations() if e.asset_key == key}
    of_now = {name: found[name] for name in ("fresh", "source_alive_now")}
    assert all(e.passed and e.partition is None for e in of_now.values())
    assert found["nothing_lost"].partition == str(OLD)
    latest = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(key, "fresh"))
    assert latest is not None
    assert latest.evaluation == of_now["fresh"]


def test_the_sensor_records_a_verdict_between_runs_and_no_event_a_tick(
    lake_of: LakeOf, tmp_path: Path, name: str, instance: dg.DagsterInstance
) -> None:
    came = NOW - timedelta(hours=5)
    ev.write_landing(tmp_path, {came.date(): [event(0, came)]})
    lake = lake_of({name: source_config(tmp_path, fresh_within_hours=2)}, start=OLD)
    run_stages(lake, name, [came.date()], lag=True)
    key = dg.AssetKey([name, "changes"])
    sensor = build_health_sensor(lake.config)
    assert sensor is not None
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING

    def tick() -> str:
        with dg.build_sensor_context(instance) as context:
            return sensor.evaluate_tick(context).skip_message or ""

    assert f"{name}: fresh fails: the newest record that has landed is of" in tick()
    for _ in range(3):
        tick()
    record = last_recorded(instance, key, "fresh")
    assert record is not None
    assert record.evaluation is not None
    assert not record.evaluation.passed
    assert record.evaluation.severity == dg.AssetCheckSeverity.WARN
    assert len(instance.get_records_for_run("").records) == 2  # one a check

    new = datetime.now(timezone.utc) - timedelta(minutes=1)
    ev.write_landing(tmp_path, {TODAY: [event(1, new)]})
    run_stages(lake, name, [TODAY], force=True, lag=True)
    assert "fresh passes" in tick()
    assert len(instance.get_records_for_run("").records) == 3


def test_a_lake_that_can_not_be_read_fails_the_tick(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    (tmp_path / "catalog.db").write_bytes(b"no database" * 100)
    raw = {"start_date": TODAY, "lake": {"warehouse": str(tmp_path)}}
    config = parse_config({**raw, "sources": {"s": source_config("landed")}}, tmp_path)
    sensor = build_health_sensor(config)
    assert sensor is not None
    with (
        dg.build_sensor_context(instance) as context,
        pytest.raises(dg.Failure, match=r"s: the catalog .* can't be read"),
    ):
        sensor.evaluate_tick(context)
    assert instance.get_records_for_run("").records == []


def test_a_lake_without_a_day_is_left_alone(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    raw = {"start_date": TODAY, "lake": {"warehouse": str(tmp_path / "lake")}}
    config = parse_config({**raw, "sources": {"s": source_config("landed")}}, tmp_path)
    sensor = build_health_sensor(config)
    assert sensor is not None
    with dg.build_sensor_context(instance) as context:
        said = sensor.evaluate_tick(context).skip_message
    assert said == "s: nothing has landed yet"
    assert instance.get_records_for_run("").records == []


# -- what is worth an event ----------------------------------------------------------------------


def evaluation(passed: bool, newest: datetime = NOW, age_hours: float = 1) -> Any:
    return dg.AssetCheckEvaluation(
        asset_key=CHANGES,
        check_name="fresh",
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"newest": dg.MetadataValue.timestamp(newest), "age_hours": age_hours},
    )


def test_another_verdict_is_worth_recording_at_once_newer_data_hourly_and_age_alone_daily(
    instance: dg.DagsterInstance,
) -> None:
    now = datetime.now(timezone.utc)  # of the event; this module may be older
    assert is_worth_recording(instance, evaluation(True))
    instance.report_runless_asset_event(evaluation(True))
    later = now + timedelta(minutes=5)
    newer = evaluation(True, newest=later)
    assert is_worth_recording(instance, evaluation(False), now)
    assert not is_worth_recording(
        instance, evaluation(True, age_hours=2), now + timedelta(hours=23)
    )
    assert is_worth_recording(instance, evaluation(True, age_hours=26), now + timedelta(hours=25))
    assert not is_worth_recording(instance, newer, now + timedelta(minutes=50))
    assert is_worth_recording(instance, newer, now + timedelta(minutes=70))


def test_a_verdict_is_recorded_again_behind_a_run_that_did_not_come_to_it(
    instance: dg.DagsterInstance,
) -> None:
    @dg.asset(key=CHANGES)
    def changes() -> None:
        raise dg.Failure("boom")

    @dg.asset_check(asset=CHANGES)
    def fresh() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    instance.report_runless_asset_event(evaluation(True))
    assert not is_worth_recording(instance, evaluation(True))
    dg.materialize([changes, fresh], instance=instance, raise_on_error=False)
    assert is_worth_recording(instance, evaluation(True))
    instance.report_runless_asset_event(evaluation(True))
    assert not is_worth_recording(instance, evaluation(True))


# -- which checks there are ----------------------------------------------------------------------


def checks_on_changes(config: Config) -> set[str]:
    graph = build_definitions(config).resolve_asset_graph()
    return {key.name for key in graph.asset_check_keys if key.asset_key == CHANGES}


def test_a_source_has_the_checks_that_it_is_configured_for() -> None:
    of_days = {check.name for check in CHECKS}
    assert checks_on_changes(config_of()) - of_days == {"fresh", "made_of_landing"}
    both = config_of(max_silence_minutes=60)
    of_both = {"fresh", "source_alive_now", "made_of_landing"}
    assert checks_on_changes(both) - of_days == of_both
    none = config_of(fresh_within_hours=None)
    assert checks_on_changes(none) - of_days == {"made_of_landing"}


def test_a_lake_that_spark_alone_can_read_has_no_such_check() -> None:
    nessie = {"catalog-impl": "org.apache.iceberg.nessie.NessieCatalog", "uri": "http://n:1"}
    raw = {"start_date": TODAY, "lake": {"warehouse": "s3://lake", "catalog": nessie}}
    config = parse_config({**raw, "sources": {"s": source_config("landed")}}, Path("/"))
    assert not checks_on_changes(config) & {"fresh", "made_of_landing"}
    assert "health" not in {s.name for s in build_definitions(config).sensors or []}


def test_freshness_is_no_matter_of_the_last_materialization() -> None:
    specs = [spec for asset in build_assets("s", config_of()) for spec in asset.specs]
    assert {spec.freshness_policy for spec in specs} == {None}
