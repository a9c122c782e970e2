"""How new a source's data is, by the lake's metadata."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from cdc_assets.cdc.errors import LakeError, MissingTableError
from cdc_assets.cdc.lake import newest
from cdc_assets.cdc.lake.newest import newest_data
from cdc_assets_tests import events as ev
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import run_stages, source_config

DAYS = [ev.DAY + timedelta(days=n) for n in range(4)]


def at(day: date, hour: float) -> datetime:
    midnight = datetime.combine(day, datetime.min.time(), timezone.utc)
    return midnight + timedelta(hours=hour)


def ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)


def event(offset: int, came: datetime | None, **options: Any) -> Any:
    came_ms = None if came is None else ms(came)
    return ev.created({"id": offset}, offset=offset, timestamp_ms=came_ms, **options)


def beat(offset: int, came: datetime) -> Any:
    return ev.heartbeat(ms(came), timestamp_ms=ms(came), offset=offset)


@contextmanager
def no_data_file_is_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def scan(*_: Any, **__: Any) -> None:
        raise AssertionError("rows were read")

    with monkeypatch.context() as patched:
        patched.setattr(Table, "scan", scan)
        yield


def test_the_newest_event_or_heartbeat_counts_and_no_row_is_read(
    lake_of: LakeOf, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed = {
        DAYS[0]: [event(0, at(DAYS[0], 12))],
        DAYS[1]: [
            event(1, at(DAYS[1], 9)),
            beat(0, at(DAYS[1], 23)),
            ev.raw(b"no json", offset=2, timestamp_ms=ms(at(DAYS[1], 23.5))),
        ],
        DAYS[2]: [],
    }
    ev.write_landing(tmp_path, landed)
    lake = lake_of({name: source_config(tmp_path)})
    with pytest.raises(MissingTableError):
        newest_data(lake.config, name)
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    run_stages(lake, name, DAYS[:3])
    with no_data_file_is_read(monkeypatch):
        found = newest_data(lake.config, name)
        assert (found.record, found.day) == (at(DAYS[1], 23), DAYS[1])
        assert found.landed_day == DAYS[2]
        assert found.landed_at is not None
        assert before < found.landed_at <= datetime.now(timezone.utc)

        ev.write_landing(tmp_path, {DAYS[3]: [event(3, at(DAYS[3], 1))]})
        run_stages(lake, name, DAYS[3:])
        again = newest_data(lake.config, name)
        assert (again.record, again.day) == (at(DAYS[3], 1), DAYS[3])
        run_stages(lake, name, DAYS[:1], force=True)
        assert newest_data(lake.config, name).day == DAYS[3], "an old day that was made again"


def test_a_time_ahead_of_the_clocks_says_nothing(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    ahead = datetime.now(timezone.utc) + timedelta(days=400)
    landed = {
        DAYS[0]: [event(0, at(DAYS[0], 12)), event(1, ahead), event(2, at(DAYS[0], 15))],
        DAYS[1]: [event(3, ahead)],
    }
    ev.write_landing(tmp_path, landed)
    lake = lake_of({name: source_config(tmp_path)})
    run_stages(lake, name, DAYS[:2])
    found = newest_data(lake.config, name)
    assert (found.record, found.day) == (at(DAYS[0], 15), DAYS[0])


def test_a_record_without_a_kafka_time_counts_by_when_it_was_processed(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    late = at(DAYS[0], 18)
    landed = [event(0, at(DAYS[0], 12)), event(1, None, processed_ts_ms=ms(late))]
    ev.write_landing(tmp_path, {DAYS[0]: landed})
    lake = lake_of({name: source_config(tmp_path)})
    run_stages(lake, name, DAYS[:1])
    assert newest_data(lake.config, name).record == late


def test_a_source_without_any_time_has_no_newest_record(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    silent = event(0, None, processed_ts_ms=None, source_ts_ms=None)
    ev.write_landing(tmp_path, {DAYS[0]: [silent]})
    lake = lake_of({name: source_config(tmp_path)})
    run_stages(lake, name, DAYS[:1])
    found = newest_data(lake.config, name)
    assert (found.record, found.day, found.landed_day) == (None, None, DAYS[0])


def test_a_lost_file_of_the_lake_is_named(
    lake_of: LakeOf, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev.write_landing(tmp_path, {DAYS[0]: [event(0, at(DAYS[0], 12))]})
    lake = lake_of({name: source_config(tmp_path)})
    run_stages(lake, name, DAYS[:1])
    folder = Path(lake.config.lake.warehouse) / name / "changes" / "metadata"
    for file in folder.glob("*.avro"):
        file.unlink()
    monkeypatch.setattr(newest, "_CACHE", {})
    with pytest.raises(LakeError, match=f"{name}: a file of changes or control .* can't be read"):
        newest_data(lake.config, name)
