"""Keys whose tied events stand in several partitions: nothing tells their order (FORMATS O8)."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from cdc_assets.cdc.changes.figures import day_figures
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.orchestration import checks
from cdc_assets.orchestration.checks import Finding
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import CanalTxLog, Landing, TxLog

pytestmark = pytest.mark.slow

TABLE = ("shop", "slots")


def of_order(lake: Lake, source: str) -> Finding:
    """What `positions_in_order` says of the day."""
    lakes.run_stages(lake, source, [ev.DAY])
    figures = day_figures(lake, source, [ev.DAY])
    found = checks.changes_findings(lake, source, figures, {})[ev.DAY]
    return next(f for f in found if f.name == "positions_in_order")


def two_partitions(log: TxLog) -> TxLog:
    """One row is inserted, and changed in the same transaction in another partition."""
    log.begin()
    log.insert({"id": 1, "v": "a"}, {"id": 2, "v": "b"})
    log.partition = 1
    log.update({"id": 1, "v": "a"}, {"id": 1, "v": "c"})
    return log


def test_a_key_whose_tied_events_stand_in_several_partitions_is_an_error(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = two_partitions(TxLog("oracle", table=TABLE, landing=Landing(ev.DAY)))
    source = lakes.write_source(tmp_path, log.landed, tables={"shop.slots": {}})
    found = of_order(lake_of({name: source}), name)
    assert not found.passed
    assert found.severity is dg.AssetCheckSeverity.ERROR
    assert found.metadata["keys_in_several_partitions"] == 1
    text = found.metadata["examples"].md_str
    assert "shop.slots" in text
    assert "oracle.shop.slots [0]" in text
    assert "oracle.shop.slots [1]" in text
    assert "make the table's key the message key" in text


def test_a_redelivery_into_another_partition_is_none(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:  # O15: a copy takes the place of the event that it repeats
    log = TxLog("oracle", table=TABLE, landing=Landing(ev.DAY))
    log.begin()
    log.insert({"id": 1, "v": "a"})
    log.partition = 1
    log.redeliver(1)
    source = lakes.write_source(tmp_path, log.landed, tables={"shop.slots": {}})
    assert of_order(lake_of({name: source}), name).passed


def test_events_that_kafka_alone_orders_are_a_warning(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:  # they tie by chance: their timestamps are equal
    log = CanalTxLog("canal", table=TABLE, landing=Landing(ev.DAY))
    log.begin()
    log.insert({"id": 1, "v": "a"})
    first = log.landed[ev.DAY][0]
    again = ev.canal_message(
        "UPDATE",
        [{"id": "1", "v": "c"}],
        [{"v": "a"}],
        table=TABLE,
        topic=first.topic,
        partition=1,
        timestamp_ms=first.timestamp_ms,
    )
    log.landing.put(again)
    source = lakes.write_source(
        tmp_path, log.landed, "canal", tables={"shop.slots": {"key": ["id"]}}
    )
    found = of_order(lake_of({name: source}), name)
    assert not found.passed
    assert found.severity is not dg.AssetCheckSeverity.ERROR
