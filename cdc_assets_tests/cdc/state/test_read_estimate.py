"""How many rows a day of a table is said to read, by metadata alone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.state import read_estimate
from cdc_assets.cdc.state import stage as table_days
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog

TABLE = "public.customers"
FIRST, SECOND = ev.DAY, ev.DAY + timedelta(days=1)


def test_a_large_day_reads_at_most_the_table_and_the_days_changes_and_of_a_small_one_nobody_asks(
    lake_of: LakeOf, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(FIRST)
    log = PgLog("cost", landing=landing, types={"id": "int64", "v": "string"})
    for row_id in range(5):
        log.create(id=row_id, v="a")
    log.next_day()
    log.update(id=1, v="b")
    log.delete(id=2)
    ev.write_landing(tmp_path / "files", landing.landed)
    tables = {TABLE: {"key": ["id"]}}
    lake = lake_of({name: lakes.source_config(tmp_path / "files", tables=tables)})
    lakes.run_stages(lake, name, [FIRST, SECOND])
    facts = table_days.gather(lake, name, [TABLE], [FIRST, SECOND])
    table_days.make_table_day(lake, name, TABLE, FIRST, facts)
    state = lake.read_state(lake.state(name, TableName.parse(TABLE)))

    assert read_estimate.rows_to_read(lake, name, TABLE, SECOND, facts, state) is None, "small"
    monkeypatch.setattr(read_estimate, "is_small", lambda rows: rows < 3)
    first = read_estimate.rows_to_read(lake, name, TABLE, FIRST, facts, None)
    second = read_estimate.rows_to_read(lake, name, TABLE, SECOND, facts, state)
    # Both days of `changes` are of one commit, which does not say how many rows are of which.
    assert (first, second) == (7, 12)
