"""Stories that once came out wrong: each ``golden/<case>`` ends as its ``expected.jsonl`` says.

A case is a source as cdc.yaml has it (``source.yaml``, with the rule that it is about), landed
lines as kcat writes them, each with its ``landing_date``, and the rows that must stand at the end
of every day, written by hand. All cases run in one lake; those of equal settings in one source.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One folder."""

    settings: dict[str, Any]
    tables: dict[str, dict[str, Any]]
    landed: dict[date, list[str]]
    expected: dict[tuple[date, str], Rows]

    @property
    def made(self) -> dict[str, dict[str, Any]]:
        """The tables that are made: not those that go into another one."""
        return {name: config for name, config in self.tables.items() if "into" not in config}

    @property
    def days(self) -> list[date]:
        return lakes.days_of([ev.DAY, *self.landed])


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def _case(name: str) -> Case:
    source = yaml.safe_load((GOLDEN / name / "source.yaml").read_text("utf-8"))
    del source["rule"]
    landed: dict[date, list[str]] = defaultdict(list)
    for line in _lines(GOLDEN / name / "landing.jsonl"):
        day = date.fromisoformat(line.pop("landing_date"))
        landed[day].append(json.dumps(line, ensure_ascii=False))
    expected: dict[tuple[date, str], Rows] = defaultdict(list)
    for line in _lines(GOLDEN / name / "expected.jsonl"):
        expected[date.fromisoformat(line["landing_date"]), line["table"]].append(line["row"])
    return Case(source, source.pop("tables"), dict(landed), dict(expected))


@dataclass(frozen=True)
class Run:
    """The lake after all cases, and the source of each."""

    lake: Lake
    cases: dict[str, Case]
    source_of: dict[str, str]


@pytest.fixture(scope="module")
def ran(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("golden")
    cases = {name: _case(name) for name in CASES}
    together: dict[str, list[str]] = defaultdict(list)
    for name, case in cases.items():
        together[json.dumps(case.settings, sort_keys=True)].append(name)
    sources: dict[str, dict[str, Any]] = {}
    source_of: dict[str, str] = {}
    for number, names in enumerate(together.values()):
        source = f"golden_{number}"
        tables: dict[str, Any] = {}
        for name in names:
            assert not tables.keys() & cases[name].tables.keys(), f"{name}: a table of another case"
            tables |= cases[name].tables
            source_of[name] = source
            for day, lines in cases[name].landed.items():
                path = folder / source / str(day) / f"{name}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        settings = cases[names[0]].settings
        sources[source] = lakes.source_config(folder / source, **settings, tables=tables)
    lake = lake_of(sources)
    for source in sources:
        days = max((cases[n].days for n in CASES if source_of[n] == source), key=len)
        lakes.run_all(lake, source, days)
    return Run(lake, cases, source_of)


@pytest.mark.parametrize("name", CASES)
def test_a_golden_case_ends_every_day_as_written(ran: Run, name: str) -> None:
    case = ran.cases[name]
    known = {
        (day, table)
        for table, config in case.made.items()
        for day in case.days
        if day >= config.get("start_date", day)
    }
    assert case.expected.keys() <= known
    for day, table in sorted(known):
        got = lakes.rows_of(ran.lake, ran.source_of[name], table, day)
        lakes.assert_same_rows(got, case.expected.get((day, table), []), f"{table} on {day}")


@pytest.mark.parametrize("name", CASES)
def test_the_changes_of_each_day_lead_to_the_next(ran: Run, name: str) -> None:
    case = ran.cases[name]
    for table, config in case.made.items():
        days = [day for day in case.days if day >= config.get("start_date", day)]
        for first, last in pairwise(days):
            lakes.assert_diff_leads_on(ran.lake, ran.source_of[name], table, first, last)
