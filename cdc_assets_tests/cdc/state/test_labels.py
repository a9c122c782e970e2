"""ENUM and SET of Canal whose labels are numbers: other columns say what is sent (C1).

A source sends its columns alike; `size` leaves open what 1 is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.state.stage import DayReport
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY, Landing, canal_message

DAYS = [DAY, DAY + timedelta(days=1)]
TABLE = "shop.parcels"
TYPES = {"id": "int(11)", "size": "enum('10','1','2')", "flags": "set('1','2','x')"}
OTHER = {"id": "int(11)", "kind": "enum('a','b')"}


def _says(landing: Landing, table: str, types: dict[str, str], **row: Any) -> None:
    now = landing.tick()
    message = canal_message(
        "INSERT", [row], table=("shop", table), types=types, es=now, timestamp_ms=now
    )
    landing.put(message)


def numbers(landing: Landing) -> None:
    for n, day in enumerate(DAYS):
        landing.on(day)
        _says(landing, "parcels", TYPES, id=n, size="1", flags="3")
        _says(landing, "others", OTHER, id=n, kind="2")


def labels(landing: Landing) -> None:
    """On the second day no other column says it again."""
    for n, day in enumerate(DAYS):
        landing.on(day)
        _says(landing, "parcels", TYPES, id=n, size="1", flags="1,x")
        if n == 0:
            _says(landing, "others", OTHER, id=n, kind="b")


def nothing(landing: Landing) -> None:
    for n, day in enumerate(DAYS):
        landing.on(day)
        _says(landing, "parcels", TYPES, id=n, size="2", flags="x")


SOURCES: dict[str, tuple[Callable[[Landing], None], tuple[str, str], int]] = {
    # what `size` and `flags` are, and how many values of `size` are open on a day
    "labels_numbers": (numbers, ("10", "1,2"), 0),
    "labels_labels": (labels, ("1", "1,x"), 0),
    "labels_nothing": (nothing, ("1", "x"), 1),
}


@pytest.fixture(scope="module")
def told(
    lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Lake, dict[str, DayReport], dict[str, Any]]:
    options, landed = {}, {}
    for name, (tell, *_) in SOURCES.items():
        landing = Landing(DAYS[0])
        tell(landing)
        folder: Path = tmp_path_factory.mktemp(name)
        landed[name] = landing.landed
        options[name] = lakes.write_source(
            folder, landing.landed, "canal", tables={TABLE: {}, "shop.others": {}}
        )
    lake = lake_of(options, DAYS[0])
    reports = {name: lakes.run_all(lake, name, DAYS)[TABLE, DAYS[1]] for name in SOURCES}
    return lake, reports, {name: (options[name], landed[name]) for name in SOURCES}


@pytest.mark.parametrize("name", SOURCES)
def test_a_number_is_what_other_columns_of_its_source_say(
    told: tuple[Lake, dict[str, DayReport], dict[str, Any]], name: str
) -> None:
    lake, reports, _ = told
    _, (size, flags), count = SOURCES[name]
    rows = lakes.rows_of(lake, name, TABLE, DAYS[1])
    assert {(row["size"], row["flags"]) for row in rows} == {(size, flags)}
    assert reports[name].open_labels == ({"size": count} if count else {})


@pytest.mark.parametrize("name", SOURCES)
def test_every_day_is_what_the_model_says(
    told: tuple[Lake, dict[str, DayReport], dict[str, Any]], name: str
) -> None:
    lake, _, written = told
    lakes.assert_tables_as_model(lake, name, *written[name])
