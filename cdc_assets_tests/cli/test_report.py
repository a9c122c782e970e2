"""The report: what is read of lake and records, and what stands in the page; `ui` looks at it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner, Result

from cdc_assets.cdc.config import Config, load_config
from cdc_assets.cdc.lake.commits import INPUTS, REPORT
from cdc_assets.cdc.lake.figures import LAG_COLUMNS
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.tables import find_table
from cdc_assets.cdc.state.findings import CHECKS
from cdc_assets.cli.app import app
from cdc_assets.cli.report import charts
from cdc_assets.cli.report import page as report_page
from cdc_assets.cli.report.data import Count, Figures, Seconds, Size, gather
from cdc_assets.cli.report.page import headline, page, page_data
from cdc_assets.orchestration.runs import recorded_runs
from cdc_assets.orchestration.runs.instance import dagster_home, open_instance
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog
from cdc_assets_tests.figures import FIRST, HOSTILE, empty_figures, figures_of, lag_row
from cdc_assets_tests.paths import REPOSITORY

CDC_YAML = {
    "lake": {"warehouse": "warehouse"},
    "start_date": "2026-11-01",
    "sources": {
        name: {
            "format": "debezium",
            "landing": {"files": "landing"},
            "lag_slo_ms": 1_000,
            "tables": {"public.customers": {"key": ["id"]}, "public.orders": {}},
        }
        for name in ("shop", "store")
    },
}
DAYS = [date(2026, 11, n) for n in (1, 2, 3)]


@pytest.fixture(autouse=True)
def project(project: Path) -> Path:
    (project / "cdc.yaml").write_text(json.dumps(CDC_YAML), encoding="utf-8")
    return project


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["report", *arguments])


# -- a lake, written without Spark

_COUNTS = {
    **dict.fromkeys(("destination", "table_name", "op", "source_op", "reason"), pa.string()),
    "landing_date": pa.date32(),
    "records": pa.int64(),
}
_LAG = {
    **dict.fromkeys(LAG_COLUMNS, pa.int64()),
    **dict.fromkeys(("table_name", "kind"), pa.string()),
    "landing_date": pa.date32(),
    "hour": pa.timestamp("us", "UTC"),
    "complete": pa.bool_(),
}
_STATE = {"id": pa.int64()}


class Lake:
    """The lake of a project's folder, whose tables a test writes row by row."""

    def __init__(self, project: Path) -> None:
        warehouse = project / "warehouse"
        warehouse.mkdir()
        uri = f"sqlite:///{warehouse}/catalog.db"
        self.catalog = SqlCatalog("lake", uri=uri, warehouse=str(warehouse))
        self.catalog.create_tables()

    def stage(self, source: str, name: str, days: list[date], rows: Sequence[Any] = ()) -> None:
        columns = {"facts": _COUNTS, "lag": _LAG}.get(name, {"landing_date": pa.date32()})
        inputs = {INPUTS: json.dumps({str(day): {} for day in days})}
        self._table((source, name), columns).append(
            pa.Table.from_pylist(
                [{c: row.get(c) for c in columns} for row in rows],
                pa.schema(list(columns.items())),
            ),
            snapshot_properties=inputs,
        )

    def state(self, source: str, table: str, rows: Mapping[date, int]) -> None:
        opened = self._table((source, *table.split(".")), _STATE)
        for day, count in rows.items():
            data = pa.table({"id": list(range(count))}, pa.schema(list(_STATE.items())))
            said = {REPORT: json.dumps({"rows": count, "seconds": 1.5})}
            opened.append(data, snapshot_properties=said)
            snapshot = opened.current_snapshot()
            assert snapshot is not None
            opened.manage_snapshots().create_tag(snapshot.snapshot_id, str(day)).commit()

    def _table(self, parts: tuple[str, ...], columns: Mapping[str, Any]) -> Any:
        for depth in range(1, len(parts)):
            self.catalog.create_namespace_if_not_exists(parts[:depth])
        return self.catalog.create_table(parts, pa.schema(list(columns.items())))


@pytest.fixture
def lake(project: Path) -> Any:
    made = Lake(project)
    yield made
    made.catalog.engine.dispose()


def count_of(day: date, destination: str, table: str | None, **more: Any) -> dict[str, Any]:
    return {
        "landing_date": day,
        "destination": destination,
        "table_name": table,
        "records": 1,
        **more,
    }


def lag_of(day: date, kind: str, ms: int, hour: int | None = None) -> dict[str, Any]:
    when = hour if hour is None else datetime(2026, 11, day.day, hour, tzinfo=timezone.utc)
    row = lag_row("", day, kind, ms, when)
    return {**row, "landing_date": day, "table_name": "public.customers", "complete": True}


def made_of_three_days(lake: Lake) -> None:
    customers = {"op": "c", "source_op": "c", "records": 10}
    rows = [count_of(day, "changes", "public.customers", **customers) for day in DAYS]
    rows += [
        count_of(DAYS[1], "changes", "public.customers", op="u", source_op="u", records=4),
        # The first half of a split update.
        count_of(DAYS[1], "changes", "public.customers", op="u", source_op="UPDATE_BEFOR"),
        count_of(DAYS[1], "control", None, op="heartbeat", records=99),
        count_of(DAYS[2], "quarantine", None, reason="malformed_json", records=3),
        count_of(DAYS[2], "quarantine", "public.orders", reason="missing_key"),
    ]
    lake.stage("shop", "changes", DAYS)
    lake.stage("shop", "facts", DAYS, rows)
    lags = [lag_of(DAYS[0], "capture", 500), lag_of(DAYS[0], "capture", 700, 5)]
    lake.stage("shop", "lag", DAYS, lags)
    lake.state("shop", "public.customers", {day: 10 * n for n, day in enumerate(DAYS, 1)})


def test_the_figures_of_the_days_asked_for_are_read(lake: Lake) -> None:
    made_of_three_days(lake)
    config = load_config()
    figures = gather(config, "shop", DAYS[1], DAYS[2])
    customers, nowhere = "shop.public.customers", "shop (no table)"
    assert figures.days == DAYS[1:]
    key = lambda count: (count.day, count.what)  # noqa: E731
    assert sorted(figures.changes, key=key) == [
        Count(DAYS[1], customers, "c", 10),
        Count(DAYS[1], customers, "u", 4),
        Count(DAYS[2], customers, "c", 10),
    ]
    assert sorted(figures.quarantine, key=key) == [
        Count(DAYS[2], nowhere, "malformed_json", 3),
        Count(DAYS[2], "shop.public.orders", "missing_key", 1),
    ]
    assert [(s.day, s.table, s.rows) for s in figures.sizes] == [
        (DAYS[1], customers, 20),
        (DAYS[2], customers, 30),
    ]
    assert [s.bytes for s in figures.sizes] == bytes_of(config, DAYS[1:])
    assert figures.seconds == [Seconds(day, customers, 1.5) for day in DAYS[1:]]
    assert figures.lag_days == []
    assert any("No day is made yet of shop.public.orders" in note for note in figures.notes)


def bytes_of(config: Config, days: list[date]) -> list[int]:
    """What the files of each day's snapshot take."""
    table = find_table(config, "shop.public.customers")
    opened = open_table(config, table)
    found = []
    for day in days:
        files = opened.scan(snapshot_id=opened.refs()[str(day)].snapshot_id).plan_files()
        found.append(sum(task.file.file_size_in_bytes for task in files))
    return found


def test_the_lag_of_days_and_hours_is_read(lake: Lake) -> None:
    made_of_three_days(lake)
    figures = gather(load_config(), "shop")
    (day,), (hour,) = figures.lag_days, figures.lag_hours
    assert (day["table"], day["p95_ms"], day["hour"]) == ("shop.public.customers", 1_500, None)
    assert hour["hour"] == datetime(2026, 11, 1, 5, tzinfo=timezone.utc)
    assert figures.lag_slo_ms == {"shop": 1_000}


def test_without_from_the_newest_thirty_days_are_shown(lake: Lake) -> None:
    days = [date(2026, 11, 1) + timedelta(days=n) for n in range(40)]
    for stage in ("changes", "facts", "lag"):
        lake.stage("shop", stage, days)
    figures = gather(load_config(), "shop")
    assert figures.days == days[-30:]
    assert any(note.startswith("10 older made days are left out") for note in figures.notes)
    assert gather(load_config(), "shop", days[0]).days == days
    assert gather(load_config(), "shop", last=days[34]).days == days[5:35]


def test_a_source_that_is_not_made_is_a_note_and_no_error(lake: Lake) -> None:
    made_of_three_days(lake)
    figures = gather(load_config())
    assert figures.sources == ["shop"]
    assert any("store.changes is not in the lake yet" in note for note in figures.notes)


@pytest.mark.parametrize(
    ("timezone_name", "begins"),
    [("UTC", "2026-11-01T00:00"), ("Asia/Kolkata", "2026-10-31T18:00")],
)
def test_the_hours_of_the_days_are_those_of_their_time_zone(
    project: Path, lake: Lake, timezone_name: str, begins: str
) -> None:
    made_of_three_days(lake)
    (project / "cdc.yaml").write_text(json.dumps({**CDC_YAML, "timezone": timezone_name}))
    figures = gather(load_config(), "shop")
    assert figures.start == datetime.fromisoformat(f"{begins}+00:00")
    assert page_data(figures)["panels"][0]["columns"][0] == begins.replace("T", " ")


def test_days_are_open_until_their_end(lake: Lake) -> None:
    today = datetime.now(timezone.utc).date()
    days = [today - timedelta(days=1), today]
    for stage in ("changes", "facts", "lag"):
        lake.stage("shop", stage, days)
    # At midnight today becomes yesterday.
    assert set(gather(load_config(), "shop").open_days) <= {today}
    text = page(empty_figures(2, open_days=[FIRST]))
    assert f"open, more can still land: {FIRST}" in text


@pytest.mark.slow
def test_a_lake_of_spark_is_counted_as_spark_counts_it(
    lake_of: LakeOf, name: str, tmp_path: Path
) -> None:
    log = PgLog(name, landing=Landing(ev.DAY))
    log.create(id=1, v="a")
    log.create(id=2, v="a")
    log.next_day()
    log.update(id=1, v="b")
    log.delete(id=2)
    tables = {"public.customers": {"key": ["id"]}}
    lake = lake_of({name: lakes.write_source(tmp_path / name, log.landed, tables=tables)})
    days = [ev.DAY, ev.DAY + timedelta(days=1)]
    lakes.run_all(lake, name, days, lag=True)
    figures = gather(lake.config, name)
    table = f"{name}.public.customers"
    assert [s.rows for s in figures.sizes] == [2, 1]
    assert all(s.bytes > 0 for s in figures.sizes)
    counted = {(c.day, c.table, c.what): c.records for c in figures.changes}
    assert counted == {
        (days[0], table, "c"): 2,
        (days[1], table, "u"): 1,
        (days[1], table, "d"): 1,
    }
    lag = [row for row in lakes.stage_rows(lake, name, "lag") if row["hour"] is None]
    read = {(r["landing_date"], r["kind"]): r["p95_ms"] for r in figures.lag_days}
    assert read == {(str(r["landing_date"]), r["kind"]): r["p95_ms"] for r in lag}


# -- Dagster's records

DAGSTER_YAML = "storage: {sqlite: {base_dir: .dagster}}\ntelemetry: {enabled: false}\n"


def record(instance: dg.DagsterInstance, day: date, passed: bool) -> None:
    """A run that evaluates `keys_unique` of shop.public.customers, as the project's assets do."""
    key = dg.AssetKey(["shop", "public", "customers"])
    daily = dg.DailyPartitionsDefinition(str(DAYS[0]))

    @dg.multi_asset(
        specs=[dg.AssetSpec(key, partitions_def=daily)],
        check_specs=[dg.AssetCheckSpec("keys_unique", asset=key)],
        can_subset=True,
    )
    def customers(context):  # type: ignore[no-untyped-def]  # Dagster reads annotations as objects
        context.log_event(
            dg.AssetCheckEvaluation(
                asset_key=key,
                check_name="keys_unique",
                passed=passed,
                metadata={
                    "faults": 2,
                    "examples": dg.MetadataValue.md("- `a.b: 1`\n- `c`&#124;`d`"),
                },
                severity=dg.AssetCheckSeverity.WARN,
                partition=str(day),
            )
        )
        yield dg.MaterializeResult(asset_key=key)

    assert dg.materialize([customers], instance=instance, partition_key=str(day)).success


def test_the_newest_verdict_of_a_check_and_day_is_read(project: Path) -> None:
    (project / "dagster.yaml").write_text(DAGSTER_YAML)
    home = dagster_home()
    assert home == project
    with open_instance(home) as instance:
        record(instance, DAYS[0], passed=False)
        record(instance, DAYS[0], passed=True)
        record(instance, DAYS[1], passed=True)
        record(instance, DAYS[1], passed=False)
        record(instance, DAYS[2], passed=False)
        found = recorded_runs.newest_verdicts(instance, load_config(), ["shop"], DAYS[:2])
    assert [(v.asset, v.check, v.day, v.passed) for v in found] == [
        ("shop.public.customers", "keys_unique", DAYS[0], True),
        ("shop.public.customers", "keys_unique", DAYS[1], False),
    ]
    assert found[1].severity == "WARN"
    spoken = {check.name: check.description for check in CHECKS}
    assert found[1].holds == spoken["keys_unique"]
    assert "faults: 2" in found[1].says
    assert "- a.b: 1\n- c|d" in found[1].says
    assert Path.cwd() == project


def test_the_seconds_of_a_stage_are_those_of_its_newest_materialization(project: Path) -> None:
    (project / "dagster.yaml").write_text(DAGSTER_YAML)
    key = dg.AssetKey(["shop", "landing"])
    with open_instance(project) as instance:
        for day, seconds in ((DAYS[0], 3.0), (DAYS[0], 1.25), (DAYS[1], 2.0), (DAYS[2], 9.0)):
            instance.report_runless_asset_event(
                dg.AssetMaterialization(key, metadata={"seconds": seconds}, partition=str(day))
            )
        found = recorded_runs.stage_seconds(instance, ["shop"], DAYS[:2])
    assert sorted(found) == [("shop.landing", DAYS[0], 1.25), ("shop.landing", DAYS[1], 2.0)]


def test_without_records_the_page_says_why_and_how_to_get_them(project: Path, lake: Lake) -> None:
    made_of_three_days(lake)
    figures = gather(load_config(), "shop")
    assert "There is no dagster.yaml" in figures.no_records
    assert "Set DAGSTER_HOME" in figures.no_records
    text = page(figures)
    assert text.count("Set DAGSTER_HOME") >= 2, "in the checks and in the seconds"
    (project / "dagster.yaml").write_text(DAGSTER_YAML)
    assert "hold no check of these days" in gather(load_config(), "shop").no_records
    (project / "dagster.yaml").write_text("storage: {nonsense: {}}")
    assert "can't be read" in gather(load_config(), "shop").no_records
    assert {t["label"]: t["value"] for t in headline(figures)}[
        "failing verdicts of checks"
    ] == "not known"


# -- the command


def test_the_command_writes_one_page_and_says_what_it_does(lake: Lake, project: Path) -> None:
    made_of_three_days(lake)
    result = call("--source", "shop", "--out", "r.html")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    said = result.stderr.splitlines()
    assert said[0] == "reading the lake"
    assert re.fullmatch(
        r"wrote r.html: \d\.\d MB, 2026-11-01 to 2026-11-03 \(3 made days\)", said[-1]
    )
    first = (project / "r.html").read_text("utf-8")
    assert "<title>cdc-assets report, 2026-11-01 to 2026-11-03</title>" in first
    assert call("--source", "shop", "--out", "r.html", "--from", "2026-11-03").exit_code == 0
    assert "report, 2026-11-03 to" in (project / "r.html").read_text("utf-8")
    assert [p.name for p in project.glob("*html*")] == ["r.html"]
    assert not list(project.glob("tmp*")), "no unfinished file is left"


def test_a_file_that_is_no_report_is_not_overwritten(lake: Lake, project: Path) -> None:
    made_of_three_days(lake)
    before = (project / "cdc.yaml").read_bytes()
    result = call("--out", "cdc.yaml")
    assert result.exit_code == 2
    assert "is not a report of cdc-assets" in result.stderr
    assert (project / "cdc.yaml").read_bytes() == before
    nowhere = call("--out", "nowhere/r.html")
    assert nowhere.exit_code == 2
    assert "does not exist; create it" in nowhere.stderr


def test_a_page_that_fails_leaves_the_older_one(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_page.write(empty_figures(), project / "r.html")
    before = (project / "r.html").read_bytes()

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(report_page.CdcError, match="No space left on device"):
        report_page.write(figures_of(1, 1), project / "r.html")
    assert (project / "r.html").read_bytes() == before
    assert not list(project.glob("tmp*"))


def test_a_missing_lake_and_missing_days_are_the_errors_of_lag(project: Path) -> None:
    result = call()
    assert result.exit_code == 1
    assert "error: there is no lake in " in result.stderr
    made = Lake(project)
    try:
        made.stage("shop", "changes", DAYS)
        result = call("--from", "2026-11-05", "--to", "2026-11-06")
        assert result.exit_code == 1
        assert result.stderr.splitlines()[-1] == (
            "error: no changes for 2026-11-05 to 2026-11-06: shop.changes has 2026-11-01 to "
            "2026-11-03. Make the days first: cdc-assets run --source shop --from 2026-11-05 --to "
            "2026-11-06"
        )
    finally:
        made.catalog.engine.dispose()
    assert call("--source", "nope").exit_code == 2
    assert call("--from", "2026-11-06", "--to", "2026-11-05").exit_code == 2


def test_plotly_is_imported_by_the_report_alone() -> None:
    says = (
        "import sys, cdc_assets.cli.app, cdc_assets.cli.report.data; print('plotly' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", says],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "False\n"


# -- the page


def panel_of(figures: Figures, name: str) -> dict[str, Any]:
    return next(p for p in page_data(figures)["panels"] if p["id"] == name)


def test_a_made_day_without_a_change_says_so() -> None:
    text = page(empty_figures())
    assert "No change landed on these days." in text
    for panel in page_data(empty_figures())["panels"]:
        assert panel["empty"] in text
        assert f'id="{panel["id"]}-chart"' not in text


def test_no_text_from_data_is_markup() -> None:
    figures = figures_of(200, 1)
    figures.notes = [f"{HOSTILE[0]} {HOSTILE[1]}"]
    figures.no_records = ""
    own = page(empty_figures()).count("<script")
    text = page(figures)
    assert text.count("<script") == own
    assert "<img" not in re.sub(r"(?s)<script>.*?</script>", "", text)
    assert "\u202e" not in text, "a control character is shown as \\u202e"
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_the_page_asks_the_network_for_nothing() -> None:
    text = re.sub(r"(?s)<script.*?</script>", "", page(figures_of(3, 2)))
    assert "http" not in text.replace("http-equiv", "")
    assert "default-src 'none'" in text
    assert not re.search(r"<(link|img|iframe)\b|@import|url\(", text)


def test_hours_are_columns_as_fine_as_the_page_bears() -> None:
    for tables, days, step in ((3, 6, 1), (3, 30, 2), (200, 30, 4), (200, 6, 1), (3, 400, 24)):
        figures = empty_figures(days)
        found, columns = charts._hour_columns(figures.start, figures.end, tables)
        assert found == step, (tables, days)
        assert len(columns) == -(-24 * days // step) <= 400
        assert columns[0] == f"{FIRST} 00:00"


def test_a_column_of_several_hours_has_the_largest_value_and_says_so() -> None:
    figures = empty_figures(30)
    hour = figures.start + timedelta(hours=2)
    for at, ms in ((hour, 100), (hour + timedelta(hours=1), 400), (hour, 300)):
        figures.lag_hours.append(lag_row("shop.a.b", FIRST, "capture", ms, at))
    panel = panel_of(figures, "lag")
    assert panel["groups"][0] == {
        "label": "capture",
        "cells": [[0, [1], [400], [1_200], [2_000], [3_200]]],
    }
    assert "A column is 2 source hours: the largest value of them" in panel["notes"][0]


def test_source_hours_outside_the_days_are_counted_and_not_drawn() -> None:
    figures = empty_figures(2)
    inside = figures.start + timedelta(hours=3)
    for at in (inside, inside, inside, figures.start - timedelta(hours=1), figures.end):
        figures.lag_hours.append(lag_row("shop.a.b", FIRST, "capture", 100, at))
    panel = panel_of(figures, "lag")
    assert panel["groups"][0]["cells"] == [[0, [3], [100], [300], [500], [800]]]
    says = "2 source hours of 1 table lie before or after those of the chart"
    assert panel["notes"][0].startswith(says)
    assert "max 800 ms" in panel["notes"][0]


def test_a_replay_of_old_changes_is_drawn_in_its_own_hours() -> None:
    figures = empty_figures(2)
    old = figures.start - timedelta(days=100)
    for at in (old, old + timedelta(hours=47), figures.start):
        figures.lag_hours.append(lag_row("shop.a.b", FIRST, "capture", 100, at))
    panel = panel_of(figures, "lag")
    assert panel["columns"][0] == f"{FIRST - timedelta(days=100)} 00:00"
    assert [cell[1] for cell in panel["groups"][0]["cells"]] == [[0, 47]]
    assert panel["notes"][0].startswith("Most of what landed on these days changed at other times")


def test_lags_below_zero_are_kept_and_said() -> None:
    figures = empty_figures()
    figures.lag_days.append(lag_row("shop.a.b", FIRST, "capture", -5))
    figures.lag_hours.append(lag_row("shop.a.b", FIRST, "capture", -5, figures.start))
    panel = panel_of(figures, "lag")
    assert panel["groups"][0]["cells"] == [[0, [0], [-5], [-15], [-25], [-40]]]
    assert panel["notes"][0].startswith("7 lags are below zero")


def test_a_day_over_the_slo_is_marked() -> None:
    figures = empty_figures()
    figures.lag_days = [
        lag_row("shop.a.b", FIRST, kind, 30_000) for kind in ("capture", "delivery")
    ]
    figures.lag_days.append(lag_row("shop.a.c", FIRST, "capture", 10_000))
    rows = {(r[0], r[2]): r[3] for r in page_data(figures)["tables"]["lag-days"]["rows"]}
    assert rows == {
        ("shop.a.b", "capture"): "over 60,000 ms",
        ("shop.a.b", "delivery"): "",
        ("shop.a.c", "capture"): "≤ 60,000 ms",
    }
    worst = headline(figures)[3]
    assert (worst["value"], worst["state"]) == ("1.5 min", "warn")
    assert worst["detail"] == f"90,000 ms: shop.a.b, {FIRST}"


def test_failing_checks_stand_first_errors_before_warnings() -> None:
    figures = figures_of(3, 30)
    failing = page_data(figures)["tables"]["failing"]["rows"]
    assert len(failing) == sum(not v.passed for v in figures.verdicts) > 2
    severities = [row[0] for row in failing]
    assert severities == sorted(severities), "ERROR, then WARN"
    findings = page_data(figures)["tables"]["findings"]
    lines = findings["rows"]
    assert len(lines) == len({(row[0], row[3]) for row in failing}) < len(failing)
    assert [row[0] for row in lines] == sorted(row[0] for row in lines)
    assert sum(len(assets) for assets in findings["search"]) == sum(row[7] for row in lines)
    newest = {(row[0], row[3]): max(r[1] for r in failing if r[3] == row[3]) for row in failing}
    assert all(row[2] <= newest[row[0], row[1]] for row in lines)
    every = page_data(figures)["tables"]["every-check"]["rows"]
    failed = [row[4] for row in every]
    assert failed == sorted(failed, reverse=True)
    assert sum(failed) == len(failing)
    assert all(row[4] + row[5] + row[6] == 30 for row in every)


def test_counts_and_sizes_are_exact_by_day_and_table() -> None:
    figures = empty_figures(2)
    late = FIRST + timedelta(days=1)
    figures.changes = [Count(FIRST, "s.a.b", "u", 3), Count(late, "s.a.b", "c", 4)]
    figures.changes.append(Count(FIRST, "s.a.a", "c", 12_345_678_901))
    figures.sizes = [Size(late, "s.a.b", 7, 2**50)]
    changes = panel_of(figures, "changes")
    assert [f["label"] for f in changes["figures"]] == ["c create", "u update"]
    assert changes["rows"] == ["s.a.a", "s.a.b"]
    assert changes["groups"][0]["cells"] == [
        [0, [0], [12_345_678_901], [0]],
        [1, [0, 1], [0, 4], [3, 0]],
    ]
    assert panel_of(figures, "sizes")["groups"][0]["cells"] == [[0, [1], [7], [2**50]]]


@pytest.mark.slow
def test_a_page_of_two_hundred_tables_and_thirty_days_stays_small() -> None:
    assert len(page(figures_of(200, 30))) < 12_000_000
