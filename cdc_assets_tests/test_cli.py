"""The command line: exit codes, formats and messages."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from cdc_assets import progress, reads, runs, screen
from cdc_assets.cli import app

CDC_YAML = {
    "lake": {"warehouse": "warehouse"},
    "start_date": "2026-11-01",
    "sources": {
        "shop": {
            "format": "debezium",
            "landing": {"files": "landing"},
            "tables": {"public.customers": {"key": ["id"]}, "public.orders": {}},
        }
    },
}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with cdc.yaml, which is the working directory."""
    (tmp_path / "cdc.yaml").write_text(json.dumps(CDC_YAML), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # Set, so that what the commands set is undone with it.
    monkeypatch.setenv("CDC_CONFIG", "cdc.yaml")
    monkeypatch.delenv("CDC_WAREHOUSE", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


# -- usage and configuration


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "--from", "2026-13-01"), "is no day"),
        (("run", "--from", "20261101"), "YYYY-MM-DD"),
        (("run", "--from", "2026-11-02", "--to", "2026-11-01"), "before"),
        (("run", "--from", "2026-11-01", "--source", "nope"), "no source 'nope'"),
        (("run", "--from", "2026-11-01", "--table", "public.nope"), "no table 'public.nope'"),
        (("run", "--from", "2026-11-01", "--table", "shop.changes"), "leave --table out"),
        (("run",), "--from"),
        (("show", "custmers"), "did you mean shop.public.customers"),
        (("show", "customers", "--format", "xml"), "xml"),
        (("lag", "--source", "nope"), "no source 'nope'"),
        (("maintain", "--source", "nope"), "no source 'nope'"),
        (("demo",), "no landed day"),
        (("inspect", "cdc.yaml"), "--source"),
        (
            ("inspect", "cdc.yaml", "--format-of", "avro"),
            "debezium, debezium-flat, lindorm or dataworks",
        ),
        (("show", "customers", "--config", "nowhere.yaml"), "can't be read"),
    ],
)
def test_wrong_usage_exits_2_with_one_message(arguments: tuple[str, ...], says: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert says in " ".join(result.stderr.replace("│", " ").split())
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_each_fault_of_the_configuration_is_named(project: Path) -> None:
    wrong = {**CDC_YAML, "strat_date": "2026-11-01", "timezone": "Mars"}
    (project / "cdc.yaml").write_text(json.dumps(wrong), encoding="utf-8")
    result = call("show", "customers")
    assert result.exit_code == 2
    assert "strat_date: unknown key" in result.stderr
    assert "timezone: got 'Mars'" in result.stderr


def test_a_lake_that_is_not_there_exits_1() -> None:
    for arguments in (("show", "customers"), ("lag",)):
        result = call(*arguments)
        assert result.exit_code == 1
        assert result.stderr.startswith("error: there is no lake in ")


# -- run


@contextmanager
def _runs_that(outcome: runs.Outcome, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    asked: dict[str, Any] = {}

    def run_days(first: date, last: date, **options: Any) -> runs.Outcome:
        asked.update(first=first, last=last, **options)
        progress.tell(progress.Step("shop", "landing", str(first), "…"))
        progress.tell(progress.Step("shop", "landing", str(first), "3 records", 0.5))
        return outcome

    monkeypatch.setattr(runs, "run_days", run_days)
    yield asked


def test_run_passes_on_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with _runs_that(runs.Outcome(seconds=2.0), monkeypatch) as asked:
        result = call("run", "--from", "2026-11-02", "--table", "orders", "--verbose")
    assert result.exit_code == 0, result.output
    assert (asked["first"], asked["last"]) == (date(2026, 11, 2), date(2026, 11, 2))
    assert (asked["source"], asked["table"]) == ("shop", "public.orders")
    assert "3 records" in result.stderr
    assert "made 2026-11-02 in 2.0 s" in result.stderr
    assert result.stdout == ""


def test_a_failed_run_exits_1_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = runs.Outcome(ok=False, failures=["shop__landing: the disk is full"])
    with _runs_that(failed, monkeypatch):
        result = call("run", "--from", "2026-11-02", "--verbose")
    assert result.exit_code == 1
    assert "error: shop__landing: the disk is full" in result.stderr


# -- rows


def rows_as(form: str, capsys: pytest.CaptureFixture[str]) -> str:
    table = pa.table({"id": [1, 2], "name": ['say "hi",\nyou', None], "note": ["", "\x1b[31m"]})
    screen.print_rows(table.column_names, reads.records(table), form)
    return capsys.readouterr().out


def test_json_is_a_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in rows_as("json", capsys).splitlines()]
    assert rows[0] == {"id": 1, "name": 'say "hi",\nyou', "note": ""}
    assert rows[1]["name"] is None


def test_csv_tells_null_from_an_empty_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = rows_as("csv", capsys)
    assert text == 'id,name,note\r\n1,"say ""hi"",\nyou",""\r\n2,,\x1b[31m\r\n'
    assert list(csv.reader(io.StringIO(text, newline="")))[1] == ["1", 'say "hi",\nyou', ""]


def test_a_table_sends_no_control_character_of_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    lines = rows_as("table", capsys).splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["id", "name", "note"]
    assert "\\x1b[31m" in lines[2]


@pytest.fixture
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 60 columns to print to."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(screen.Console, "is_terminal", True)
    return io.StringIO()


def test_a_terminal_shows_whole_columns_in_lines_of_their_own(
    narrow_terminal: io.StringIO,
) -> None:
    row = {"id": 1, "cut": "a" * 99, "whole": "to be read " * 9}
    screen.print_table(list(row), [row], narrow_terminal, fold=False, whole=["whole"])
    lines = narrow_terminal.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 60
    text = " ".join(narrow_terminal.getvalue().split())
    assert "a" * 39 + "…" in text
    assert ("to be read " * 9).strip() in text
