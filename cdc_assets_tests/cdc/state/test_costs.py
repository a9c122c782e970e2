"""What a day of a table costs: Spark jobs and calls to the JVM, which seconds depend on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.state import stage as table_days
from cdc_assets.cdc.state.stage import DayReport
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog, TxLog

pytestmark = pytest.mark.slow

TABLE = "public.customers"
DAYS = [ev.DAY + timedelta(days=n) for n in range(4)]
CREATED, CHANGED, CHANGED_AGAIN, QUIET = DAYS
TYPES = {"id": "int64", "v": "string"}


def jobs_and_calls(lake: Lake, work: Callable[[], Any]) -> tuple[int, int]:
    """How many jobs Spark ran meanwhile, and how often Python called the JVM."""
    before = lakes.jobs_run(lake)
    with lakes.counted_calls() as calls:
        work()
    return lakes.jobs_run(lake) - before, calls.total()


def test_a_tables_day_takes_few_jobs_and_calls_and_none_where_nothing_is_new(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    landing = Landing(CREATED)
    log = PgLog("cost", landing=landing, types=TYPES)
    for row_id in range(5):
        log.create(id=row_id, v="a")
    for gone in (2, 3):
        log.next_day()
        log.update(id=1, v="b")
        log.delete(id=gone)
    log.next_day()
    log.heartbeat()
    ev.write_landing(tmp_path / "files", landing.landed)
    tables = {TABLE: {"key": ["id"]}}
    lake = lake_of({name: lakes.source_config(tmp_path / "files", tables=tables)})
    lakes.run_stages(lake, name, DAYS)
    facts = table_days.gather(lake, name, [TABLE], DAYS)

    def make(day: Any) -> DayReport:
        return table_days.make_table_day(lake, name, TABLE, day, facts)

    for day in (CREATED, CHANGED):
        make(day)
    jobs, calls = jobs_and_calls(lake, lambda: make(CHANGED_AGAIN))
    assert jobs <= 5
    assert calls <= 350
    jobs, _ = jobs_and_calls(lake, lambda: make(QUIET))
    assert jobs == 0, "a day without an event"
    jobs, calls = jobs_and_calls(lake, lambda: make(QUIET))
    assert jobs == 0, "nothing new"
    assert calls <= 30


def cost_of_last_day(
    lake_of: LakeOf, folder: Path, name: str, log: ev.Log, table: str, format: str = "debezium"
) -> tuple[int, int]:
    """Jobs and calls of the last of the days that landed."""
    source = lakes.write_source(folder, log.landed, format, tables={table: {"key": ["id"]}})
    lake = lake_of({name: source})
    days = lakes.days_of(log.landed)
    lakes.run_stages(lake, name, days)
    facts = table_days.gather(lake, name, [table], days)
    for day in days[:-1]:
        table_days.make_table_day(lake, name, table, day, facts)
    return jobs_and_calls(
        lake, lambda: table_days.make_table_day(lake, name, table, days[-1], facts)
    )


def test_a_row_deleted_then_inserted_anew_in_one_transaction_is_no_more_work(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:  # O16: never do two rows hold the key
    log = TxLog("postgresql", table=("public", "slots"), landing=Landing(CREATED))
    log.begin()
    log.insert({"id": 1, "v": "a"}, {"id": 2, "v": "b"})
    log.next_day()
    log.begin()
    log.delete({"id": 1, "v": "a"})
    log.insert({"id": 1, "v": "c"})
    jobs, calls = cost_of_last_day(lake_of, tmp_path / "files", name, log, "public.slots")
    assert jobs <= 5
    assert calls <= 350


def test_a_day_that_kafka_orders_reads_no_earlier_day_where_it_repeats_nothing(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:  # O15: a copy has the source's time of the event that it repeats
    log = ev.Log(Landing(CREATED))
    for number in range(3):
        if number:
            log.next_day()
        at = log.landing.tick()
        row = {"id": number, "v": "a"}
        log.landing.put(
            ev.maxwell_inserted(row, ts=at // 1000, xid=number, xoffset=0, timestamp_ms=at)
        )
    jobs, calls = cost_of_last_day(
        lake_of, tmp_path / "files", name, log, "shop.customers", "maxwell"
    )
    assert jobs <= 5
    assert calls <= 350
