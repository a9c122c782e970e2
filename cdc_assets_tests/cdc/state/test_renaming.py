"""A column that the source renamed is one column, under either name, with all its values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cdc_assets.cdc.config import TableConfig
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.diff import read_diff
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]
TABLE = "public.t"
OLD = {"id": "int32", "old": "string"}
NEW = {"id": "int32", "new": "string"}
ROWS: dict[date, dict[int, str | None]] = {
    DAYS[0]: {1: "x", 2: "y", 3: "z"},
    DAYS[1]: {1: "x2", 2: "y", 4: "n"},
    DAYS[2]: {1: "x2", 2: "y3", 4: "n"},
}


def table_that_is_renamed(has_schemas: bool = True) -> ev.PgLog:
    """On the second day `old` is called `new`; on the third one it is `old` again."""
    log = ev.PgLog(table="t", types=OLD if has_schemas else None, landing=ev.Landing(DAYS[0]))
    for n, value in enumerate("xyz", 1):
        log.create(id=n, old=value)
    log.next_day()
    if has_schemas:
        log.defaults["types"] = NEW
    log.update(id=1, new="x2")
    log.delete(id=3)
    log.create(id=4, new="n")
    log.next_day()
    if has_schemas:
        log.defaults["types"] = OLD
    log.update(id=2, old="y3")
    return log


def values(rows: list[Mapping[str, Any]], name: str) -> dict[int, Any]:
    return {row["id"]: row[name] for row in rows}


def lake_with(lake_of: LakeOf, folder: Path, log: ev.PgLog, name: str, **table: Any) -> Lake:
    table = {"key": ["id"], "history": True, "feed": True, **table}
    config = lakes.write_source(folder / "landing", log.landed, tables={TABLE: table}, late_days=1)
    return lake_of({name: config})


@pytest.fixture
def name() -> str:
    return f"renamed_{uuid4().hex[:8]}"


@pytest.mark.slow
@pytest.mark.usefixtures("_size")
@pytest.mark.parametrize("rename", [{"new": "old"}, {"old": "new"}])
def test_messages_of_both_names_are_of_one_column(
    lake_of: LakeOf, tmp_path: Path, name: str, rename: dict[str, str]
) -> None:
    log, (column,) = table_that_is_renamed(), rename.values()
    lake = lake_with(lake_of, tmp_path, log, name, rename=rename)
    lakes.run_all(lake, name, DAYS)
    lakes.run_derived(lake, name, DAYS)
    for day in DAYS:
        rows = lakes.rows_of(lake, name, TABLE, day)
        assert values(rows, column) == ROWS[day], day
        assert "old" not in rows[0] or "new" not in rows[0]
        lakes.assert_feed_leads_on(lake, name, TABLE, day)
    versions = lakes.versions_at(lake, name, TABLE, DAYS[-1])
    assert [v[column] for v in versions if v["id"] == 1] == ["x", "x2"]
    assert [v[column] for v in versions if v["id"] == 2] == ["y", "y3"]


@pytest.mark.slow
@pytest.mark.usefixtures("_size")
def test_a_column_that_stands_gets_the_name_with_its_values(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = table_that_is_renamed()
    lake = lake_with(lake_of, tmp_path, log, name)
    lakes.run_all(lake, name, DAYS[:1])
    lakes.run_derived(lake, name, DAYS[:1])
    lake = lake_with(lake_of, tmp_path, log, name, rename={"old": "new"})
    lakes.run_all(lake, name, DAYS[1:])
    lakes.run_derived(lake, name, DAYS[1:])
    for day in DAYS[1:]:
        rows = lakes.rows_of(lake, name, TABLE, day)
        assert values(rows, "new") == ROWS[day], day
        assert "old" not in rows[0]
    assert values(lakes.rows_of(lake, name, TABLE, DAYS[0]), "old") == ROWS[DAYS[0]]
    versions = lakes.versions_at(lake, name, TABLE, DAYS[-1])
    assert [v["new"] for v in versions if v["id"] == 1] == ["x", "x2"]
    changed = read_diff(lake.config, name, TABLE, *DAYS[:2]).to_pylist()
    assert {(row["key"]["id"], row["op"]) for row in changed} == {(1, "u"), (3, "d"), (4, "c")}
    assert [row["before"]["new"] for row in changed if row["op"] == "u"] == ["x"]
    # Made again, the day before it has the name of today.
    lakes.run_all(lake, name, DAYS[:2], force=True)
    for day in DAYS[:2]:
        assert values(lakes.rows_of(lake, name, TABLE, day), "new") == ROWS[day]


@pytest.mark.slow
def test_records_without_a_schema_are_renamed_alike(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = table_that_is_renamed(has_schemas=False)
    lake = lake_with(lake_of, tmp_path, log, name, rename={"new": "old"})
    lakes.run_all(lake, name, DAYS)
    for day in DAYS:
        assert values(lakes.rows_of(lake, name, TABLE, day), "old") == ROWS[day]


def test_a_message_with_both_names_is_an_error_that_names_them(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = table_that_is_renamed()
    log.create(id=9, old="a", new="b", _types={**OLD, **NEW})
    lake = lake_with(lake_of, tmp_path, log, name, rename={"new": "old"})
    lakes.run_all(lake, name, DAYS[:2])
    with pytest.raises(ConfigError, match="messages have 'old' beside 'new'"):
        lakes.run_all(lake, name, DAYS[2:])


def test_settings_name_a_column_by_any_of_its_names() -> None:
    for rename in ({"new": "old"}, {"old": "new"}):
        for named in ("old", "new"):
            table = TableConfig.model_validate(
                {"rename": rename, "exclude": [named], "columns": {named: "string"}, "key": ["id"]}
            )
            assert set(table.excluded) == {"old", "new"}
            assert table.in_lake.columns == dict.fromkeys(rename.values(), "string")
            assert table.in_lake.exclude == tuple(rename.values())
            assert table.in_lake.key == ("id",)


def test_names_that_change_places_stay_apart() -> None:
    table = TableConfig.model_validate({"rename": {"a": "b", "b": "a"}, "exclude": ["a"]})
    assert table.excluded == ("a",)
    assert table.in_lake.exclude == ("b",)
    assert [table.sent_name(table.lake_name(name)) for name in "ab"] == ["a", "b"]


def test_a_column_that_was_renamed_twice_is_one() -> None:
    table = TableConfig.model_validate({"rename": {"b": "a", "c": "a"}, "hash": ["a"]})
    assert set(table.hashed) == {"a", "b", "c"}
