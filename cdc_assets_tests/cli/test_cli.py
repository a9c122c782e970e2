"""The command line: exit codes, formats and messages."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner, Result

from cdc_assets.cdc import java
from cdc_assets.cdc.errors import JavaError
from cdc_assets.cdc.lake.commits import INPUTS
from cdc_assets.cdc.lake.figures import LAG_COLUMNS
from cdc_assets.cdc.lake.json_values import json_rows
from cdc_assets.cli import output
from cdc_assets.cli.app import app
from cdc_assets.orchestration.execution import progress
from cdc_assets.orchestration.runs import run_days as runs
from cdc_assets_tests.paths import REPOSITORY

DAGSTER_YAML = """
storage: {sqlite: {base_dir: .dagster}}
telemetry: {enabled: false}
"""
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
def project(project: Path) -> Path:
    (project / "cdc.yaml").write_text(json.dumps(CDC_YAML), encoding="utf-8")
    return project


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


# -- usage and configuration


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "--from", "2026-13-01"), "is not a day"),
        (("run", "--from", "20261101"), "YYYY-MM-DD"),
        (("run", "--from", "2026-11-02", "--to", "2026-11-01"), "before"),
        (("run", "--from", "2101-01-01"), "error: --from 2101-01-01 is in the future"),
        (("run", "--from", "2026-11-01", "--to", "2101-01-01"), "error: --to 2101-01-01 is in the"),
        (("run", "--from", "2026-10-31"), "error: --from 2026-10-31 is before start_date"),
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
            "lindorm, dataworks, canal, maxwell or ogg",
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
    assert "starting Spark" not in result.stderr


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
        assert result.stderr.splitlines()[-1].startswith("error: there is no lake in ")


# -- Java


def without_java(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, to which no Java is known."""
    programs = project / "programs"
    programs.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", *command],
        # Another one of the machine would be found beside it.
        env=_environment(PATH=str(programs), JAVA_HOME=str(programs)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**kept, "PYTHONPATH": str(REPOSITORY), **more}


def land(project: Path, *records: dict[str, Any]) -> Path:
    """Land inserts into public.customers on 2026-11-01."""
    day = project / "landing" / "2026-11-01"
    day.mkdir(parents=True, exist_ok=True)
    lines = []
    for offset, row in enumerate(records):
        source = {"connector": "postgresql", "schema": "public", "table": "customers"}
        source |= {"ts_ms": 1793500000000, "lsn": 100 + offset, "snapshot": "false"}
        event = {"op": "c", "before": None, "after": row, "source": source, "ts_ms": 1793500000001}
        record = {"topic": "shop.public.customers", "partition": 0, "offset": offset}
        record |= {"ts": 1793500000002, "key": json.dumps({"id": row["id"]})}
        lines.append(json.dumps({**record, "payload": json.dumps(event)}))
    (day / "part.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return day / "part.jsonl"


def no_java(project: Path) -> str:
    home = project / "programs"
    return (
        f"error: Spark can't start: JAVA_HOME is {home}, and {home}/bin/java is not there. "
        "Install a JDK or JRE 17 or 21 (17 to 22 will do), or name it in JAVA_HOME\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        ("run", "--from", "2026-11-01"),
        ("demo",),
        ("maintain",),
        ("discover", "shop"),
        ("inspect", "landing/2026-11-01/part.jsonl"),
    ],
    ids=lambda command: str(command[0]),
)
def test_without_java_one_line_says_so_and_nothing_is_recorded(
    project: Path, command: tuple[str, ...]
) -> None:
    land(project, {"id": 1})
    (project / "dagster.yaml").write_text(DAGSTER_YAML, encoding="utf-8")
    before = sorted(project.rglob("*"))
    result = without_java(project, "cdc_assets.cli.app", *command)
    assert (result.returncode, result.stdout) == (1, "")
    said = no_java(project)
    assert [line for line in result.stderr.splitlines(True) if "error" in line] == [said]
    assert result.stderr.endswith(said)
    assert sorted(project.rglob("*")) == sorted([*before, project / "programs"])


ESC = "\x1b]0;title\x07"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_nothing_of_the_data_acts_on_a_terminal(form: str) -> None:
    names = [f"a{ESC}", "b\u202e"]
    rows = [{names[0]: f"x{ESC}\ny", names[1]: "\u2066=1+1\x9b31m"}]
    out = Terminal()
    output.print_rows(names, rows, form, out)
    printed = re.sub(r"\x1b\[\d*m", "", out.getvalue())  # bold, of a table's head
    assert not set(printed) & set("\x1b\x07\u202e\u2066\x9b")
    assert out.getvalue().count("\n") <= 5
    if form == "json":
        assert json.loads(out.getvalue()) == rows[0]


def test_a_text_that_a_spreadsheet_would_run_is_a_text_in_csv() -> None:
    cells = ["=1+1", "+x", "-x", "@x", "\tx", "-5", "+1.5e3", "a=1", "-", None, -5]
    rows = [{"v": cell} for cell in cells]
    escaped, raw = io.StringIO(newline=""), io.StringIO(newline="")
    output.print_rows(["v"], rows, "csv", escaped)
    output.print_rows(["v"], rows, "csv", raw, raw=True)

    def read(text: str) -> list[str]:
        return [line[0] if line else "" for line in csv.reader(io.StringIO(text))][1:]

    assert read(escaped.getvalue()) == [
        "'=1+1", "'+x", "'-x", "'@x", "'\tx", "-5", "+1.5e3", "a=1", "'-", "", "-5",
    ]  # fmt: skip
    assert read(raw.getvalue())[:5] == cells[:5]


def test_an_error_spells_what_a_terminal_would_obey() -> None:
    result = call("show", f"public.{ESC}x")
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
    assert "\\x1b" in result.stderr


def a_java(folder: Path, version: str, release: bool = False) -> Path:
    """A `java` that only says its version, as a package manager installs it."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


@pytest.mark.parametrize("version", ["11.0.2", "25.0.1"])
def test_a_java_that_does_not_fit_is_refused_before_spark_starts(
    project: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    a_java(project, version)
    monkeypatch.setenv("JAVA_HOME", str(project))
    land(project, {"id": 1})
    result = call("run", "--from", "2026-11-01")
    assert result.exit_code == 1
    assert f'Spark can\'t start: JAVA_HOME names openjdk version "{version}"' in result.stderr
    assert "17 or 21" in result.stderr
    assert "starting Spark" not in result.stderr


def test_a_java_that_fits_is_found_beside_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = a_java(tmp_path / "newest", "25.0.1")
    for version in ("25.0.1", "21.0.4", "17.0.9", "11.0.2"):
        a_java(tmp_path / "jvm" / f"jdk-{version}", version, release=True)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{newest.parent}:/usr/bin:/bin")
    monkeypatch.setattr(java, "_FOLDERS", (str(tmp_path / "none"), str(tmp_path / "jvm")))
    found = java.find_java()
    assert found.path == str(tmp_path / "jvm" / "jdk-17.0.9" / "bin" / "java")
    assert java.require_java() == found
    assert os.environ.pop("JAVA_HOME") == str(tmp_path / "jvm" / "jdk-17.0.9")
    monkeypatch.setattr(java, "_FOLDERS", ())
    with pytest.raises(JavaError, match=r"25\.0\.1.*17 or 21"):
        java.find_java()


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            ["WARNING: x", "Unrecognized VM option 'Foo'", "Error: Could not create the JVM"],
            "Unrecognized VM option 'Foo'",
        ),
        (
            [
                "Using Spark's default log4j profile",
                'Exception in thread "main" java.lang.UnsupportedOperationException: getSubject',
                "\tat java.base/javax.security.auth.Subject.getSubject(Subject.java:277)",
            ],
            'Exception in thread "main" java.lang.UnsupportedOperationException: getSubject',
        ),
        ([], "it said nothing"),
    ],
)
def test_the_line_in_which_java_says_why_is_shown(said: list[str], line: str) -> None:
    assert java.first_failure(said) == line


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.long
def test_a_java_that_does_not_start_is_one_line(project: Path) -> None:
    land(project, {"id": 1})
    config = yaml.safe_load((project / "cdc.yaml").read_text("utf-8"))
    config["spark"] = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:+UseG1GC"}
    (project / "cdc.yaml").write_text(yaml.safe_dump(config), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "cdc_assets.cli.app", "run", "--from", "2026-11-01"],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    (line,) = (text for text in done.stderr.splitlines() if "error" in text)
    assert "Spark can't start: Multiple garbage collectors selected" in line


def test_an_option_that_is_given_twice_is_refused(project: Path) -> None:
    result = call("run", "--source", "shop", "--source", "other", "--from", "2026-11-01")
    assert result.exit_code == 2
    assert "--source" in result.stderr
    assert "given 2 times" in result.stderr
    assert call("show", "public.customers", "--format", "json", "--format", "csv").exit_code == 2


def test_a_run_of_dagster_without_java_is_canceled_so_that_no_good_day_looks_failed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "dagster.yaml").write_text(DAGSTER_YAML, encoding="utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(project))
    materialize = ("dagster", "asset", "materialize", "-m", "cdc_assets.definitions")
    chosen = ("--select", 'key:"shop/landing"', "--partition", "2026-11-01")
    result = without_java(project, *materialize, *chosen)
    assert result.returncode == 1
    with dg.DagsterInstance.from_config(str(project)) as instance:
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.CANCELED
        said = [
            e.dagster_event.message or "" for e in instance.all_logs(run.run_id) if e.dagster_event
        ]
    assert no_java(project).removeprefix("error: ").strip() in said


# -- Ctrl-C


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, as a terminal starts it."""
    with subprocess.Popen(
        [sys.executable, "-m", "cdc_assets.cli.app", *command],
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def press_ctrl_c(process: subprocess.Popen[str], after: str, seconds: float) -> str:
    """Interrupt a command some time after it said something; what it says from then on."""
    assert process.stdout is not None
    for line in process.stdout:
        if after in line:
            break
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    return process.stdout.read()


GOES_ON = "interrupted: finished days are kept; run the same command again to continue"


def test_ctrl_c_while_spark_starts_ends_a_run_with_130_and_one_line(project: Path) -> None:
    land(project, {"id": 1})
    with started("run", "--from", "2026-11-01") as process:
        assert press_ctrl_c(process, "starting Spark", 2.0) == GOES_ON + "\n"
        assert process.wait(30) == 130


LEFT_BEHIND = """
import sys
from pathlib import Path
from cdc_assets.cli import imports, output
from cdc_assets.cli.terminal import Interrupted
imports.is_own_process = True
try:
    with output.own_stderr(Path("spark.log")):
        raise KeyboardInterrupt
except Interrupted as interrupt:
    sys.stderr.write("of a thread that goes on")
    sys.stderr.flush()
    interrupt.terminal.write("the last line")
    interrupt.terminal.flush()
"""


def test_what_goes_on_behind_a_ctrl_c_writes_to_the_log_and_not_to_the_terminal(
    project: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT_BEHIND],
        env=_environment(),
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "the last line"
    assert (project / "spark.log").read_text() == "of a thread that goes on"


@pytest.mark.slow
@pytest.mark.long
def test_ctrl_c_between_stages_cancels_the_run_and_the_same_command_goes_on(project: Path) -> None:
    land(project, {"id": 1}, {"id": 2})
    (project / "dagster.yaml").write_text(DAGSTER_YAML, encoding="utf-8")
    shutil.copy(REPOSITORY / "workspace.yaml", project)
    with started("run", "--from", "2026-11-01") as process:
        said = press_ctrl_c(process, "shop.landing", 2.0)
        assert said.splitlines()[-1] == GOES_ON
        assert "failed" not in said
        assert "Traceback" not in said
        assert process.wait(30) == 130
    with dg.DagsterInstance.from_config(str(project)) as instance:
        assert [r.status for r in instance.get_runs()] == [dg.DagsterRunStatus.CANCELED]
    with started("run", "--from", "2026-11-01") as process:
        said, _ = process.communicate(timeout=600)
        assert "made 2026-11-01" in said
        assert process.returncode == 0
    with dg.DagsterInstance.from_config(str(project)) as instance:
        finished = instance.get_runs()[0]
    assert finished.job_name == "daily"
    assert finished.tags["cdc/days"] == "2026-11-01"
    assert finished.tags["cdc/sources"] == "shop"
    # By it Dagster's timeline finds the run.
    origin = finished.remote_job_origin
    assert origin is not None
    assert (origin.location_name, origin.job_name) == ("cdc-assets", "daily")
    assert (
        json.loads(call("show", "customers", "--format", "json").stdout.splitlines()[1])["id"] == 2
    )
    with started("maintain", "--verbose") as process:
        # Spark's first words: without them nothing says that it starts.
        assert GOES_ON in press_ctrl_c(process, "", 4.0).splitlines()
        assert process.wait(60) == 130


# -- run


@contextmanager
def _runs_that(outcome: runs.Outcome, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    asked: dict[str, Any] = {}

    def run_days(first: date, last: date, **options: Any) -> runs.Outcome:
        asked.update(first=first, last=last, **options)
        progress.notify(progress.Step("shop", "landing", str(first), "…"))
        progress.notify(progress.Step("shop", "landing", str(first), "3 records", 0.5))
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


# -- lag


def lag_table(project: Path, *days: str) -> None:
    """A lake whose table shop.lag was made for these days and has no row."""
    warehouse = project / "warehouse"
    warehouse.mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    try:
        catalog.create_namespace("shop")
        kinds = {"landing_date": pa.date32(), "hour": pa.timestamp("us", "UTC")}
        schema = pa.schema([(name, kinds.get(name, pa.string())) for name in LAG_COLUMNS])
        table = catalog.create_table(("shop", "lag"), schema)
        inputs = json.dumps({day: {} for day in days})
        table.append(schema.empty_table(), snapshot_properties={INPUTS: inputs})
    finally:
        catalog.engine.dispose()


@pytest.mark.parametrize("form", ["table", "json"])
def test_lag_of_days_that_are_not_made_says_what_to_run(project: Path, form: str) -> None:
    lag_table(project, "2026-11-01", "2026-11-02")
    result = call("lag", "--from", "2026-11-05", "--to", "2026-11-06", "--format", form)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "reading the lag of the changes\n"
        "error: no lag for 2026-11-05 to 2026-11-06: shop.lag has 2026-11-01 to 2026-11-02. Make "
        "the days first: cdc-assets run --source shop --from 2026-11-05 --to 2026-11-06\n"
    )
    future = call("lag", "--from", "2101-01-01", "--format", form)
    assert future.exit_code == 1
    assert "cdc-assets run" not in future.stderr


def test_lag_of_made_days_without_changes_is_no_error(project: Path) -> None:
    lag_table(project, "2026-11-01", "2026-11-02")
    result = call("lag", "--from", "2026-11-02")
    assert result.exit_code == 0
    assert "no change with a measurable lag" in result.stderr


# -- rows


def rows_as(form: str, capsys: pytest.CaptureFixture[str]) -> str:
    table = pa.table({"id": [1, 2], "name": ['say "hi",\nyou', None], "note": ["", "\x1b[31m"]})
    output.print_rows(table.column_names, json_rows(table), form)
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
    monkeypatch.setattr(output.Console, "is_terminal", True)
    return io.StringIO()


def test_a_terminal_shows_whole_columns_in_lines_of_their_own(
    narrow_terminal: io.StringIO,
) -> None:
    row = {"id": 1, "cut": "a" * 99, "whole": "to be read " * 9}
    output.print_table(list(row), [row], narrow_terminal, fold=False, whole=["whole"])
    lines = narrow_terminal.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 60
    text = " ".join(narrow_terminal.getvalue().split())
    assert "a" * 39 + "…" in text
    assert ("to be read " * 9).strip() in text
