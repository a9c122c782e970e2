"""What starts by itself: schedules, the sensor for landed files, conditions, runs started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from datetime import time as clock
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._daemon.auto_run_reexecution.auto_run_reexecution import should_retry

from cdc_assets.cdc.config import Config, parse_config
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.landing.file_landing import FileLanding
from cdc_assets.definitions import build_definitions
from cdc_assets.orchestration.assets.keys import asset_keys, table_key
from cdc_assets.orchestration.automation.catch_up import catch_up_runs
from cdc_assets.orchestration.automation.sensors import days_to_request
from cdc_assets.orchestration.execution.jobs import RANGE_END, RANGE_START
from cdc_assets.orchestration.execution.resources import SparkResource
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.killed_run import children
from cdc_assets_tests.lakes import land, make_changes, make_lag
from cdc_assets_tests.paths import REPOSITORY

DAYS = [ev.DAY + timedelta(days=n) for n in range(6)]
TABLES = {"public.customers": {"key": ["id"]}}


def config(folder: Path | str = "landed", **top: Any) -> Config:
    source = lakes.source_config(folder, tables=TABLES)
    return parse_config({"start_date": ev.DAY, "sources": {"s": source}, **top}, Path("/"))


# -- schedules -----------------------------------------------------------------------------------


def requests_of(defs: dg.Definitions, name: str, at: datetime) -> Sequence[dg.RunRequest]:
    """The runs that a schedule asks for."""
    with (
        dg.instance_for_test() as instance,
        dg.build_schedule_context(
            instance, scheduled_execution_time=at, repository_def=defs.get_repository_def()
        ) as context,
    ):
        return defs.resolve_schedule_def(name).evaluate_tick(context).run_requests or []


def tick(defs: dg.Definitions, name: str, at: datetime) -> list[tuple[str, str]]:
    """The first and the last day of each run that a schedule asks for."""
    tags = [request.tags for request in requests_of(defs, name, at)]
    day = "dagster/partition"
    return [(t.get(RANGE_START) or t[day], t.get(RANGE_END) or t[day]) for t in tags]


def night_after(day: date, hour: int = 1) -> datetime:
    return datetime.combine(day + timedelta(days=1), clock(hour), timezone.utc)


def test_the_daily_schedule_runs_from_the_start_at_the_configured_time_of_the_zone() -> None:
    defs = build_definitions(
        config(automation={"daily_at": "03:30"}, timezone="Asia/Shanghai", start_date=DAYS[0])
    )
    schedule = defs.resolve_schedule_def("daily_schedule")
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 3 * * *", "Asia/Shanghai")
    # 03:30 in Shanghai is the evening before in UTC.
    at = datetime(DAYS[1].year, DAYS[1].month, DAYS[1].day, 19, 30, tzinfo=timezone.utc)
    assert tick(defs, "daily_schedule", at) == [(str(DAYS[0]), str(DAYS[1]))]


def test_without_a_time_the_daily_schedule_is_off() -> None:
    schedule = build_definitions(config(automation={"daily_at": None})).resolve_schedule_def(
        "daily_schedule"
    )
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED


def test_the_open_day_is_made_again_by_a_schedule_of_its_own() -> None:
    defs = build_definitions(config(automation={"open_day": "*/30 * * * *"}))
    at = night_after(DAYS[1], hour=9)
    assert tick(defs, "open_day_schedule", at) == [(str(DAYS[2]), str(DAYS[2]))]


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        (
            "daily_at",
            "25:00",
            "automation.daily_at: got '25:00'; expected a time of day such as \"0",
        ),
        ("daily_at", False, 'automation.daily_at: got False; expected a time of day such as "0'),
        ("open_day", "hourly", "automation.open_day: got 'hourly'; expected five cron fields"),
        ("open_day", "99 * * * *", "automation.open_day: got '99 * * * *'; expected five cron"),
        ("catch_up_days", 0, "automation.catch_up_days: "),
        ("new_file", True, "automation.new_file: unknown key"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build_definitions(config(automation={setting: value}))
    assert says in str(raised.value)


# -- missing days --------------------------------------------------------------------------------


def test_the_daily_schedule_asks_for_the_oldest_missing_days_of_each_source() -> None:
    files = lakes.source_config("landed", tables=TABLES)
    kafka = {"bootstrap_servers": "localhost:9", "topics": ["t"]}
    sources = {"f": files, "k": {"format": "debezium", "landing": {"kafka": kafka}}}
    known = config(sources=sources, automation={"catch_up_days": 3})
    defs = build_definitions(known)
    found = requests_of(defs, "daily_schedule", night_after(DAYS[4]))
    assert [r.tags["cdc/source"] for r in found] == ["f", "k"]
    for request in found:
        assert request.tags[RANGE_START] == str(DAYS[0])
        assert request.tags[RANGE_END] == str(DAYS[2])
        name = request.tags["cdc/source"]
        assert set(request.asset_selection or []) == set(asset_keys(name, known))


def test_a_tick_asks_once_and_the_next_night_asks_again() -> None:
    defs = build_definitions(config(automation={"catch_up_days": 1}))
    first, again, next_night = (
        requests_of(defs, "daily_schedule", night_after(day)) for day in (DAYS[3], DAYS[3], DAYS[4])
    )
    assert [r.run_key for r in first] == [r.run_key for r in again]
    assert first[0].run_key
    assert next_night[0].tags[RANGE_END] == first[0].tags[RANGE_END]
    assert next_night[0].run_key != first[0].run_key, "a failed night would not be tried again"


def test_the_ticks_of_three_missed_nights_ask_for_every_missing_day() -> None:
    """A daemon that comes back evaluates the ticks that it missed, one after another."""
    defs = build_definitions(config())
    found = [tick(defs, "daily_schedule", night_after(day)) for day in DAYS[2:5]]
    assert found == [[(str(DAYS[0]), str(day))] for day in DAYS[2:5]]


def test_the_daily_schedule_asks_only_for_what_the_lake_lacks(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "landed"
    tables = {"public.good": {"key": ["id"]}, "public.stuck": {"key": ["id"]}}
    log = ev.PgLog("shop", "public", "good", types={"id": "int32"})
    other = ev.PgLog("shop", "public", "stuck", types={"id": "int32"}, landing=log.landing)
    for number, day in enumerate(DAYS):
        log.landing.on(day)
        log.create(id=number)
        other.create(id=number)
    ev.write_landing(folder, log.landed)
    source = lakes.source_config(folder, tables=tables)
    lake = lake_of({name: source}, automation={"catch_up_days": 2})
    good, stuck = (table_key(name, table) for table in tables)
    everything = asset_keys(name, lake.config)
    stages = [key for key in everything if key not in (good, stuck)]

    def wanted(ended: date) -> list[tuple[date, date, set[dg.AssetKey]]]:
        runs = catch_up_runs(lake.config, name, ended)
        return [(run.first, run.last, set(run.assets)) for run in runs]

    lakes.run_all(lake, name, DAYS[:1], lag=True)
    assert wanted(DAYS[0]) == []
    assert wanted(DAYS[1]) == [(DAYS[1], DAYS[1], set(everything))]
    assert wanted(DAYS[4]) == [(DAYS[1], DAYS[2], set(everything))]

    lakes.run_stages(lake, name, DAYS[1:4], lag=True)
    lakes.run_tables(lake, name, DAYS[1:4], ["public.good"])
    assert wanted(DAYS[3]) == [(DAYS[1], DAYS[2], {stuck})]
    # The newest day does not wait for a table that is further behind than a run reaches.
    assert wanted(DAYS[4]) == [
        (DAYS[4], DAYS[4], {*stages, good}),
        (DAYS[1], DAYS[2], {stuck}),
    ]

    lakes.run_all(lake, name, DAYS[:5], lag=True)
    assert wanted(DAYS[4]) == []
    # A day that is made of other changes than the table was is missing in the table.
    make_changes(lake, name, DAYS[3:4], force=True)
    make_lag(lake, name, DAYS[3:4])
    assert wanted(DAYS[4]) == [(DAYS[3], DAYS[4], {good, stuck})]
    # Tombstones of the day after are read with the landing of this one.
    land(lake, name, DAYS[3:4], force=True)
    assert wanted(DAYS[4]) == [(DAYS[3], DAYS[4], set(everything))]


def test_a_day_that_was_made_while_it_was_open_is_missing_once_it_has_ended(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    today = datetime.now(timezone.utc).date()
    folder = tmp_path / "landed"
    ev.write_landing(folder, {today: [ev.created({"id": 1}, offset=1)]})
    lake = lake_of({name: lakes.source_config(folder, tables=TABLES)}, start=today)
    lakes.run_all(lake, name, [today], lag=True)
    (run,) = catch_up_runs(lake.config, name, today)
    assert (run.first, run.last) == (today, today)


def test_a_catalog_that_does_not_answer_fails_the_tick_and_asks_for_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "catalog.db").write_bytes(b"this is no database at all" * 100)
    catalog = {"type": "rest", "uri": "http://127.0.0.1:9"}
    for lake in ({"warehouse": str(folder)}, {"warehouse": "s3://lake", "catalog": catalog}):
        defs = build_definitions(config(lake=lake))
        with pytest.raises(Exception, match="daily_schedule") as raised:
            tick(defs, "daily_schedule", night_after(DAYS[2]))
        assert isinstance(raised.value.__cause__, dg.Failure)
        assert "can't be read" in (raised.value.__cause__.description or "")


# -- landed files --------------------------------------------------------------------------------


def settled(folder: Path) -> float:
    """A time at which no file is young."""
    return max(path.stat().st_mtime for path in folder.rglob("*.jsonl")) + 60


def test_new_changed_and_late_files_ask_for_their_days_and_all_behind_them(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = ev.PgLog("shop", "public", "customers", types={"id": "int32", "name": "string"})
    for number, day in enumerate(DAYS):
        log.create(id=number, name=f"row {number}")
        if day != DAYS[-1]:
            log.next_day()
    folder = tmp_path / "landed"
    ev.write_landing(folder, log.landed)
    lake = lake_of({name: lakes.source_config(folder, tables=TABLES)})

    def wanted() -> Any:
        return days_to_request(FileLanding(lake.config, name), settled(folder))

    everything = wanted()
    assert (everything.first, everything.last) == (DAYS[0], DAYS[5])
    lakes.run_all(lake, name, DAYS, lag=True)
    assert wanted() is None, "what has landed is asked for again"

    late = ev.PgLog("shop", "public", "customers", types={"id": "int32", "name": "string"})
    late.landing.offset = 900
    late.create(id=77, name="late")
    ev.write_landing(tmp_path / "more", {DAYS[1]: late.landed[ev.DAY]})
    (tmp_path / "more" / str(DAYS[1]) / "part-0.jsonl").rename(folder / str(DAYS[1]) / "late.jsonl")
    again = wanted()
    assert (again.first, again.last, again.changed) == (DAYS[1], DAYS[5], (DAYS[1],))
    lakes.run_all(lake, name, lakes.days_of([again.first, again.last]), lag=True)
    assert wanted() is None
    for day in DAYS[1:]:
        rows = lakes.rows_of(lake, name, "public.customers", day)
        assert "late" in {row["name"] for row in rows}, day

    for path in (folder / str(DAYS[0])).iterdir():
        path.unlink()
    assert wanted() is None, "files that were cleared away are no reason to empty a day"


def test_files_that_are_still_written_wait(tmp_path: Path) -> None:
    ev.write_landing(tmp_path, {DAYS[0]: [ev.created({"id": 1}, offset=1)]})
    warehouse = {"warehouse": str(tmp_path / "lake")}
    known = config(tmp_path, lake=warehouse)
    now = settled(tmp_path) - 60
    assert days_to_request(FileLanding(known, "s"), now + 5) is None
    later = days_to_request(FileLanding(known, "s"), now + 40)
    assert later is not None
    assert later.changed == (DAYS[0],)


def test_the_sensor_asks_for_one_run_a_source_over_the_range(tmp_path: Path) -> None:
    ev.write_landing(tmp_path, {day: [ev.created({"id": 1}, offset=1)] for day in DAYS[1:4]})
    for path in tmp_path.rglob("*.jsonl"):
        os.utime(path, (time.time() - 600, time.time() - 600))
    known = config(tmp_path, lake={"warehouse": str(tmp_path / "lake")})
    defs = build_definitions(known)
    sensor = defs.resolve_sensor_def("landed_files")
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
    with dg.DagsterInstance.ephemeral() as instance:
        with dg.build_sensor_context(instance, definitions=defs) as context:
            (request,) = sensor.evaluate_tick(context).run_requests or []
        assert request.tags["dagster/asset_partition_range_start"] == str(DAYS[1])
        assert request.tags["dagster/asset_partition_range_end"] == str(DAYS[3])
        assert set(request.asset_selection or []) == set(asset_keys("s", known))
        assert request.run_key

        instance.add_run(
            dg.DagsterRun(job_name="daily", status=dg.DagsterRunStatus.STARTED, tags=request.tags)
        )
        with dg.build_sensor_context(instance, definitions=defs) as context:
            busy = sensor.evaluate_tick(context)
    assert not busy.run_requests
    assert "has not ended" in (busy.skip_message or "")


def test_sources_in_kafka_have_no_sensor_for_files() -> None:
    kafka = {"bootstrap_servers": "localhost:9", "topics": ["t"]}
    source = {"format": "debezium", "landing": {"kafka": kafka}}
    defs = build_definitions(
        parse_config({"start_date": ev.DAY, "sources": {"s": source}}, Path("/"))
    )
    assert [s.name for s in defs.sensors or []] == ["missing_and_corrected_days", "health"]


# -- declarative automation ----------------------------------------------------------------------


class Conditions:
    """Ticks of the condition sensor, at noon of the fourth day; what it asks for is made."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.defs = build_definitions(config())
        self.now = datetime.combine(DAYS[3], datetime.min.time(), timezone.utc)
        self.now += timedelta(hours=12)
        self.cursor: Any = None

    def made(self, key: dg.AssetKey, day: date) -> None:
        self.instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=str(day)))

    def tick(self) -> set[tuple[str, str]]:
        self.now += timedelta(seconds=30)
        result = dg.evaluate_automation_conditions(
            self.defs, self.instance, cursor=self.cursor, evaluation_time=self.now
        )
        self.cursor = result.cursor
        asked = set()
        for key in asset_keys("s", config()):
            for day in sorted(result.get_requested_partitions(key)):
                assert day is not None
                self.made(key, date.fromisoformat(day))
                asked.add((key.path[-1], day))
        return asked


@pytest.fixture
def conditions() -> Iterator[Conditions]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Conditions(instance)


def test_conditions_walk_the_missing_days_in_order_and_leave_the_open_one(
    conditions: Conditions,
) -> None:
    ticks = [conditions.tick() for _ in range(4)]
    walked = [sorted(day for name, day in asked if name == "customers") for asked in ticks]
    assert walked == [[str(DAYS[0])], [str(DAYS[1])], [str(DAYS[2])], []]
    assert {day for asked in ticks for _, day in asked} == {str(day) for day in DAYS[:3]}


def test_conditions_make_all_behind_a_corrected_day_again(conditions: Conditions) -> None:
    while conditions.tick():
        pass
    conditions.made(dg.AssetKey(["s", "landing"]), DAYS[1])
    asked: set[tuple[str, str]] = set()
    while new := conditions.tick():
        asked |= new
    again = {str(DAYS[1]), str(DAYS[2])}
    assert {day for name, day in asked if name == "customers"} == again
    assert {day for name, day in asked if name == "changes"} >= {str(DAYS[1])}
    assert str(DAYS[0]) not in {day for _, day in asked}


def test_conditions_are_off_until_configured() -> None:
    def status(**automation: Any) -> dg.DefaultSensorStatus:
        defs = build_definitions(config(automation=automation))
        return defs.resolve_sensor_def("missing_and_corrected_days").default_status

    assert status() == dg.DefaultSensorStatus.STOPPED
    assert status(conditions=True) == dg.DefaultSensorStatus.RUNNING


# -- runs that are started again -----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.long
def test_a_run_whose_spark_dies_is_started_again_and_one_of_bad_data_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # dagster.yaml's folders are relative
    landed = tmp_path / "landed"
    ev.write_landing(landed, {DAYS[0]: [ev.created({"id": n}, offset=n) for n in range(200)]})
    (tmp_path / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text())
    raw = {
        "lake": {"warehouse": "lake"},
        "spark": {"spark.master": "local[1]", "spark.driver.memory": "1g"},
        "start_date": DAYS[0],
        "sources": {"s": lakes.source_config("landed", tables=TABLES)},
    }
    (tmp_path / "cdc.yaml").write_text(yaml.safe_dump(raw))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CDC_", "DAGSTER_"))}
    environment |= {"PYTHONPATH": str(REPOSITORY), "DAGSTER_HOME": str(tmp_path)}

    def run_day(kill_spark_at: str | None) -> str:
        command = [sys.executable, "-m", "cdc_assets.cli.app", "run", "--from", str(DAYS[0])]
        with subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as running:
            assert running.stderr is not None
            said = []
            for line in running.stderr:
                said.append(line)
                if kill_spark_at and kill_spark_at in line:
                    kill_spark_at = None
                    threading.Timer(0.5, _kill_java, (running.pid,)).start()
            running.wait()
        return "".join(said)

    lost = run_day(kill_spark_at="landing")
    assert "Spark was lost" in lost, lost
    (landed / str(DAYS[0]) / "notes.csv").write_text("no landed file")
    bad = run_day(kill_spark_at=None)
    assert "notes.csv" in bad, bad
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        newest, oldest = instance.get_runs()
        assert should_retry(oldest, instance)
        assert not should_retry(newest, instance)


def _kill_java(parent: int) -> None:
    for child in children(parent):
        if b"java" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]:
            os.kill(child, signal.SIGKILL)


def test_a_check_that_is_asked_for_alone_says_how_it_is_evaluated() -> None:
    defs = build_definitions(config())
    check = dg.AssetCheckKey(dg.AssetKey(["s", "landing"]), "offsets_contiguous")
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            list(defs.assets or []),
            selection=dg.AssetSelection.checks(check),
            instance=instance,
            resources={"spark": SparkResource()},
            raise_on_error=False,
        )
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    data = failure.step_failure_data.user_failure_data
    assert data is not None
    assert "materialize the day" in (data.description or "")


def test_each_table_can_be_asked_for_alone() -> None:
    defs = build_definitions(config())
    job = defs.resolve_job_def("daily").get_subset(
        asset_selection={table_key("s", "public.customers")}
    )
    assert {key.path[-1] for key in job.asset_layer.selected_asset_keys} == {"customers"}
