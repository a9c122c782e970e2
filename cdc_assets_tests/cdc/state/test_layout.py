"""`partition_by` and `sort_by`: a table's files, and where a day looks for its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from cdc_assets.cdc.config import SortField, TableConfig, Transform
from cdc_assets.cdc.errors import ConfigError, SchemaDriftError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import REPORT
from cdc_assets.cdc.lake.layouts import partition_value
from cdc_assets.cdc.lake.maintenance import maintain_table
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.state import table_day
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]
TABLE = "public.t"
TYPES = {"id": "int32", "created_on": "string", "v": "string"}
LAYOUT = {"partition_by": ["days(created_on)", "bucket(2, id)"], "sort_by": ["id desc"]}


def row(n: int, v: str = "a") -> dict[str, Any]:
    """A row that was created in January: 1 to 9 on the first, 10 to 19 on the second, …"""
    return {"id": n, "created_on": f"2026-01-{n // 10 + 1:02}", "v": v}


class Source:
    """A table of 50 rows in five partitions by day, too large to be written anew each day."""

    def __init__(self, lake_of: LakeOf, folder: Path) -> None:
        self.lake_of, self.folder = lake_of, folder
        self.name = f"laid_out_{uuid4().hex[:8]}"
        self.log = ev.PgLog(table="t", types=TYPES, landing=ev.Landing(DAYS[0]))
        for n in range(50):
            self.log.create(**row(n))
        self.log.next_day()

    def lake(self, **table: Any) -> Lake:
        table = {"key": ["id"], "columns": {"created_on": "date"}, **table}
        tables = {TABLE: table}
        config = lakes.write_source(self.folder / "landing", self.log.landed, tables=tables)
        return self.lake_of({self.name: config})

    def rows(self, lake: Lake, day: date) -> dict[int, Any]:
        found = lakes.rows_of(lake, self.name, TABLE, day)
        return {r["id"]: (str(r["created_on"]), r["v"]) for r in found}

    def touched(self, lake: Lake, day: date) -> Mapping[str, Any] | None:
        state = lake.table_state(self.name, TABLE)
        assert state is not None
        found: Mapping[str, Any] | None = json.loads(state.day_summary(day)[REPORT])["touched"]
        return found

    def identifier(self, lake: Lake) -> str:
        return lake.state(self.name, TableName.parse(TABLE))


@pytest.fixture
def source(lake_of: LakeOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setattr(table_day, "REWRITTEN_BYTES", -1)
    return Source(lake_of, tmp_path)


def change(source: Source, whole: bool) -> dict[int, Any]:
    """Change rows of the second and the fourth partition; the rows after it."""
    before = {"before": row(11)} if whole else {}
    source.log.update(**row(11, "b"), **{f"_{name}": old for name, old in before.items()})
    source.log.delete(**(row(32) if whole else {"id": 32}))
    source.log.create(**row(60, "new"))
    rows = {n: (row(n)["created_on"], row(n)["v"]) for n in range(50)}
    del rows[32]
    return {**rows, 11: ("2026-01-02", "b"), 60: ("2026-01-07", "new")}


@pytest.mark.slow
def test_a_day_looks_for_its_rows_in_the_partitions_that_its_images_say(source: Source) -> None:
    expected = change(source, whole=True)
    lake = source.lake(**LAYOUT)
    lakes.run_all(lake, source.name, DAYS[:2])
    assert source.rows(lake, DAYS[1]) == expected
    assert source.touched(lake, DAYS[0]) is None, "the table was empty"
    found = source.touched(lake, DAYS[1])
    # The created row is looked up by its key: no row of the table has it.
    partitions = {"days(created_on)": 3, "bucket(2, id)": 1}
    assert found == {"partitions": partitions, "elsewhere": 1, "unknown": []}


@pytest.mark.slow
def test_without_old_values_all_partitions_are_read_and_the_report_says_so(
    source: Source,
) -> None:
    expected = change(source, whole=False)
    lake = source.lake(partition_by=["days(created_on)"])
    lakes.run_all(lake, source.name, DAYS[:2])
    assert source.rows(lake, DAYS[1]) == expected
    assert source.touched(lake, DAYS[1]) == {
        "partitions": {},
        "elsewhere": 0,
        "unknown": ["created_on"],
    }


@pytest.mark.slow
def test_rows_of_immutable_columns_are_found_wherever_they_stand(source: Source) -> None:
    expected = change(source, whole=False)
    # The claim is wrong of this row: it moves to another partition.
    source.log.update(id=25, created_on="2026-03-01", v="moved")
    expected[25] = ("2026-03-01", "moved")
    lake = source.lake(partition_by=["days(created_on)"], immutable=["created_on"])
    lakes.run_all(lake, source.name, DAYS[:2])
    assert source.rows(lake, DAYS[1]) == expected
    found = source.touched(lake, DAYS[1])
    # The deleted row, whose image has the key alone, the new one, and the one that moved.
    assert found == {"partitions": {"days(created_on)": 3}, "elsewhere": 3, "unknown": []}


@pytest.mark.slow
def test_late_and_repeated_events_find_their_rows_in_other_partitions(source: Source) -> None:
    late = source.log.update(**row(41, "late"), _before=row(41))
    source.log.update(id=41, created_on="2026-05-05", v="newest", _before=row(41))
    source.log.landing.landed[DAYS[1]].remove(late)
    source.log.next_day()
    source.log.landing.add(late)
    expected = {n: (row(n)["created_on"], row(n)["v"]) for n in range(50)}
    expected[41] = ("2026-05-05", "newest")
    lake = source.lake(**LAYOUT)
    lakes.run_all(lake, source.name, DAYS)
    assert source.rows(lake, DAYS[2]) == expected
    found = source.touched(lake, DAYS[2])
    assert found is not None
    assert found["elsewhere"] == 1


@pytest.mark.slow
def test_a_layout_that_changes_counts_from_then_on_and_maintenance_writes_the_rest(
    source: Source,
) -> None:
    expected = change(source, whole=True)
    source.log.next_day()
    source.log.update(**row(12, "c"), _before=row(12))
    expected[12] = ("2026-01-02", "c")
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[:1])
    lake = source.lake(**LAYOUT)
    lakes.run_all(lake, source.name, DAYS[1:2])
    lake = source.lake(partition_by=["months(created_on)"], sort_by=["id"])
    lakes.run_all(lake, source.name, DAYS[2:])
    assert source.rows(lake, DAYS[2]) == expected
    specs = f"SELECT DISTINCT spec_id FROM {source.identifier(lake)}.files WHERE content = 0"
    assert lake.spark.sql(specs).count() == 3
    maintain_table(lake, source.name, TABLE)
    assert source.rows(lake, DAYS[2]) == expected
    assert lake.spark.sql(specs).count() == 1
    found = lake.handle(source.identifier(lake))
    assert [f.transform().toString() for f in found.spec().fields()] == ["month"]
    by_file: dict[str, list[int]] = {}
    for r in lake.spark.sql(f"SELECT id, _file FROM {source.identifier(lake)}").collect():
        by_file.setdefault(r["_file"], []).append(r.id)
    assert all(ids == sorted(ids) for ids in by_file.values())
    assert max(map(len, by_file.values())) > 40
    # No layout any more.
    lake = source.lake()
    lakes.run_all(lake, source.name, DAYS[2:], force=True)
    assert source.rows(lake, DAYS[2]) == expected
    assert lake.handle(source.identifier(lake)).spec().isUnpartitioned()


@pytest.mark.slow
def test_a_column_may_be_called_as_a_partition_would_be(source: Source) -> None:
    lake = source.lake(**LAYOUT)
    lakes.run_all(lake, source.name, DAYS[:1])
    types = {**TYPES, "created_on_day": "string", "id_bucket_2": "string"}
    source.log.create(**row(70), created_on_day="x", id_bucket_2="y", _types=types)
    lake = source.lake(**LAYOUT)
    lakes.run_all(lake, source.name, DAYS[1:2])
    found = lakes.rows_of(lake, source.name, TABLE, DAYS[1])
    (new,) = (r for r in found if r["id"] == 70)
    assert (new["created_on_day"], new["id_bucket_2"]) == ("x", "y")


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"partition_by": ["days(made_on)"]}, "the table has no column 'made_on'"),
        ({"partition_by": ["hours(created_on)"]}, "the column is date; expected one of timestamp"),
        ({"sort_by": ["truncate(3, created_on)"]}, "the column is date"),
    ],
)
def test_a_layout_that_the_table_can_not_have_is_an_error(
    source: Source, layout: dict[str, Any], said: str
) -> None:
    lake = source.lake(**layout)
    with pytest.raises(ConfigError, match=said) as error:
        lakes.run_all(lake, source.name, DAYS[:1])
    (setting,) = layout
    assert f"sources.{source.name}.tables.{TABLE}.{setting}: {layout[setting][0]}" in str(error)


@pytest.mark.slow
def test_a_column_of_the_layout_gets_no_other_type(source: Source) -> None:
    source.log.create(id=80, created_on="2026-01-01", v=1, _types={**TYPES, "v": "int32"})
    lake = source.lake(sort_by=["v"], columns={})
    lakes.run_all(lake, source.name, DAYS[:1])
    source.log.next_day()
    lake = source.lake(sort_by=["v"], columns={"created_on": "date"})
    with pytest.raises(ConfigError, match="created_on is date"):
        lakes.run_all(lake, source.name, DAYS[1:2])
    source.log.create(id=81, created_on="2026-01-01", v=True, _types={**TYPES, "id": "string"})
    with pytest.raises((SchemaDriftError, ConfigError)):
        lakes.run_all(lake, source.name, DAYS[1:])


@pytest.mark.parametrize(
    ("text", "transform"),
    [
        ("days(created_at)", Transform("days", "created_at")),
        ("bucket( 16 , id )", Transform("bucket", "id", 16)),
        ("truncate(4, `a (b), c`)", Transform("truncate", "a (b), c", 4)),
        ("`odd``name`", Transform("identity", "odd`name")),
        ("region", Transform("identity", "region")),
    ],
)
def test_transforms_are_iceberg_s(text: str, transform: Transform) -> None:
    assert Transform.parse(text) == transform
    assert SortField.parse(f"{text} desc") == SortField(transform, True)


@pytest.mark.parametrize(
    "setting",
    [
        {"partition_by": ["day(created_at)"]},
        {"partition_by": ["bucket(id)"]},
        {"partition_by": ["bucket(0, id)"]},
        {"partition_by": ["days(1, created_at)"]},
        {"partition_by": ["days(a)", "months(a)"]},
        {"sort_by": ["a, b"]},
        {"partition_by": ["id"], "bucket": 4},
    ],
)
def test_other_texts_are_faults(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected a column|two partitions|has bucket"):
        TableConfig.model_validate(setting)


def test_layouts_name_columns_by_any_of_their_names() -> None:
    layout = {"partition_by": ["days(new)"], "sort_by": ["old desc"], "immutable": ["new"]}
    table = TableConfig.model_validate({**layout, "rename": {"new": "old"}})
    assert list(map(str, table.layout.partitions)) == ["days(old)"]
    assert table.in_lake.layout == table.layout
    assert table.in_lake.immutable == ("old",)


def test_iceberg_s_functions_are_known_to_its_scans(spark: SparkSession, source: Source) -> None:
    lake = source.lake(**LAYOUT)
    lakes.run_all(lake, source.name, DAYS[:1])
    own = partition_value(Transform("days", "created_on"), "created_on")
    found = lake.spark.sql(
        f"SELECT * FROM {source.identifier(lake)} WHERE {own} IN (DATE'2026-01-02')"
    )
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "filters=day(created_on) = " in plan
    assert found.count() == 10
