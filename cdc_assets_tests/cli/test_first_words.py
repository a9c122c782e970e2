"""No command is silent: help and the first words come before anything heavy is imported.

Told by the modules that are imported, not by the clock.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_assets.cli import output
from cdc_assets.cli.app import COMMANDS
from cdc_assets_tests.paths import REPOSITORY

# Each takes a good part of a second to import, or several.
HEAVY = (
    *("dagster", "pandas", "pandera", "py4j", "pyarrow", "pyiceberg", "pyspark"),
    *("matplotlib", "numpy", "sqlalchemy", "cdc_assets.cdc.config"),
)
HELPED = """
import sys
from cdc_assets.cli.app import COMMANDS, app
for arguments in ([], *([command.__name__] for command in COMMANDS)):
    try:
        app([*arguments, "--help"])
    except SystemExit as end:
        assert end.code == 0, arguments
print(*sys.modules, file=sys.stderr)
"""
# Ends with 0 if the file that stderr goes to holds words when a heavy module is asked for first.
WATCHED = """
import os, sys

class Watch:
    @staticmethod
    def find_spec(name, *_):
        if name in HEAVY:
            os._exit(0 if os.path.getsize(sys.argv[1]) else 77)

HEAVY = set(sys.argv[2].split(","))
sys.meta_path.insert(0, Watch)
from cdc_assets.cli.app import app
app(sys.argv[3:])
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "100"}


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELPED],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    for command in COMMANDS:
        assert f" {command.__name__} " in done.stdout
    # Typer's own: it reads the options of a command that is called with it.
    assert set(done.stderr.split()).isdisjoint({*HEAVY, "pydantic", "yaml"})


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("demo",), "looking for landed days"),
        (("run", "--from", "2026-11-01"), "reading cdc.yaml"),
        (("doctor",), "checking cdc.yaml, packages and Java"),
        (("maintain",), "reading cdc.yaml"),
        (("show", "customers"), "reading customers"),
        (("lag",), "reading the lag of the changes"),
        (("quarantine",), "reading the quarantine"),
        (("report",), "reading the lake"),
        (("discover", "landing"), "looking at landing"),
        (("inspect", "part.jsonl", "--format-of", "debezium"), "looking at part.jsonl"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_first_words_come_before_anything_heavy(
    tmp_path: Path, command: tuple[str, ...], says: str
) -> None:
    (tmp_path / "part.jsonl").write_text("{}\n", encoding="utf-8")
    words = tmp_path / "stderr"
    with words.open("w") as stderr:
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, str(words), ",".join(HEAVY), *command],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=stderr,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stdout, words.read_text()) == (0, b"", f"{says}\n")


# -- what is being done


class Terminal(io.StringIO):
    """What a terminal is sent."""

    def isatty(self) -> bool:
        return True


def test_piped_each_thing_that_is_done_is_a_line() -> None:
    out = io.StringIO()
    with output.Activity("reading cdc.yaml", out) as activity:
        activity.say("starting Spark")
        activity.show("12 of 40")
        activity.line("made 2026-11-01")
    assert out.getvalue() == "reading cdc.yaml\nstarting Spark\nmade 2026-11-01\n"


def test_on_a_terminal_what_is_done_is_one_line_that_goes_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with output.Activity("reading \x1b[2Jcdc.yaml", out) as activity:
        assert "reading \\x1b[2Jcdc.yaml" in out.getvalue()
        with activity.paused():
            before = out.getvalue()
            activity.line("a line")
            assert out.getvalue().removeprefix(before) == "a line\n"
        activity.show("12 of 40")
    assert "12 of 40" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")


def test_a_table_and_what_is_done_do_not_meet_on_stdout(tmp_path: Path) -> None:
    """stdout is what other programs read: of a command that fails it is empty."""
    done = subprocess.run(
        [sys.executable, "-m", "cdc_assets.cli.app", "doctor", "--quick", "--format", "json"],
        cwd=tmp_path,
        env={**ENVIRONMENT, "CDC_CONFIG": "cdc.yaml"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[0]["check"] == "configuration"
    assert done.stderr.splitlines()[0] == "checking cdc.yaml, packages and Java"
