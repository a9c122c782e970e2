"""A record that names another table than its topic is counted, where the topic is one table's."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cdc_assets.cdc.changes.figures import day_figures
from cdc_assets.cdc.changes.stray_tables import stray_tables
from cdc_assets.orchestration import checks
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf

DAYS = [ev.DAY, ev.DAY + timedelta(days=1)]


@pytest.mark.parametrize(
    ("counts", "before", "expected"),
    [
        ({"a": {"t.a": 9}, "b": {"t.b": 9}}, {}, []),
        # A topic was one table's until today.
        ({"a": {"t.a": 9, "t.x": 1}}, {"a": {"t.a"}}, [("a", "t.x", 1, "t.a")]),
        (
            {"a": {"t.x": 1, "t.y": 1}},
            {"a": {"t.a"}},
            [("a", "t.x", 1, "t.a"), ("a", "t.y", 1, "t.a")],
        ),
        # On the first day the other table is at home elsewhere.
        ({"a": {"t.a": 9, "t.b": 1}, "b": {"t.b": 9}}, {}, [("a", "t.b", 1, "t.a")]),
        # Topics of several tables are nobody's.
        ({"all": {"t.a": 9, "t.b": 1}}, {}, []),
        ({"all": {"t.a": 9, "t.b": 1, "t.c": 1}}, {"all": {"t.a", "t.b"}}, []),
    ],
)
def test_a_topic_is_a_table_s_where_all_others_there_agree(
    counts: dict[str, dict[str, int]],
    before: dict[str, set[str]],
    expected: list[tuple[str, str, int, str]],
) -> None:
    found = stray_tables(counts, before)
    assert [(s.topic, s.table, s.changes, s.of_topic) for s in found] == expected


def test_a_record_on_the_topic_of_another_table_fails_the_check(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = ev.PgLog("shop", "public", "a", types={"id": "int32"})
    other = ev.PgLog("shop", "public", "b", types={"id": "int32"}, landing=log.landing)
    log.create(id=1)
    other.create(id=1)
    log.next_day()
    log.create(id=2)
    stray = ev.created({"id": 7}, offset=99, table=("public", "b"), topic="shop.public.a")
    log.landing.put(stray)
    ev.write_landing(tmp_path, log.landed)
    tables = {"public.a": {"key": ["id"]}, "public.b": {"key": ["id"]}}
    lake = lake_of({name: lakes.source_config(tmp_path, tables=tables)})
    lakes.run_stages(lake, name, DAYS)
    findings = checks.changes_findings(lake, name, day_figures(lake, name, DAYS), {})
    first, second = (
        next(f for f in findings[day] if f.name == "tables_on_their_topics") for day in DAYS
    )
    assert first.passed
    assert not second.passed
    assert second.metadata["changes"] == 1
    said = str(second.metadata["examples"])
    assert "shop.public.a: 1 changes of public.b, all others there are of public.a" in said
