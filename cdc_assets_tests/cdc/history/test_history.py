"""The versions of rows, against what was done to them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog

DAYS = [ev.DAY + timedelta(days=n) for n in range(6)]
TABLE = "public.customers"


def made(
    lake_of: LakeOf, tmp_path: Path, landing: Landing, source: str, **settings: object
) -> Lake:
    """The lake of a source with one table and its history, all days made."""
    table = {"key": ["id"], "history": True, **settings}
    raw = lakes.write_source(tmp_path, landing.landed, tables={TABLE: table})
    lake = lake_of({source: raw})
    days = sorted(landing.landed)
    lakes.run_all(lake, source, days)
    lakes.run_histories(lake, source, days)
    return lake


def shown(lake: Lake, source: str, day: object) -> list[str]:
    return [
        f"{row['id']} {row['v']} {row['_cdc_op']} {row['_cdc_closed_by']}"
        for row in lakes.versions_at(lake, source, TABLE, day)  # type: ignore[arg-type]
    ]


def test_each_change_ends_a_version_and_begins_the_next(lake_of: LakeOf, tmp_path: Path) -> None:
    landing = Landing(DAYS[0])
    log = PgLog("versions", types={"id": "int32", "v": "string"}, landing=landing)
    log.create(id=1, v="a")
    log.create(id=2, v="x")
    log.update(id=1, v="b")
    log.next_day()
    log.update(id=1, v="c")
    log.delete(id=2, v="x")
    log.next_day()
    log.create(id=2, v="y")
    lake = made(lake_of, tmp_path, landing, "versions")
    for day in DAYS[:3]:
        print(day)
        for row in lakes.versions_at(lake, "versions", TABLE, day):
            print(row)
    assert shown(lake, "versions", DAYS[0]) == ["1 a c u", "2 x c None", "1 b u None"]
