"""The package as its users have it: installed from its wheel, without this repository."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from cdc_assets_tests.paths import REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.process, pytest.mark.long]

DAY = "2026-11-01"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment that holds the wheel and what it needs.

    uv, where there is one, has the packages of the set-up still; with pip they come from the
    package index, and Spark is built: some minutes.
    """
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=REPOSITORY, check=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True, timeout=120)
    python = folder / "env" / "bin" / "python"
    own = REPOSITORY / ".uv-venv" / "bin"
    uv = shutil.which("uv", path=f"{own}{os.pathsep}{os.environ['PATH']}")
    install = [str(python), "-m", "pip", "install"]
    if uv is not None:
        install = [uv, "pip", "install", "--python", str(python)]
    subprocess.run([*install, "-q", str(wheel)], check=True, timeout=1800)
    return python.parent


def environment(programs: Path, **more: str) -> dict[str, str]:
    hidden = ("PYTHON", "CDC_", "DAGSTER_", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **more}


def test_a_project_is_made_run_and_shown_without_the_repository(
    programs: Path, tmp_path: Path
) -> None:
    project = tmp_path / "a project"

    def call(*command: str, folder: Path = project, **more: str) -> str:
        done = subprocess.run(
            [str(programs / command[0]), *command[1:]],
            cwd=folder,
            env=environment(programs, **more),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call("cdc-assets", "init", project.name, folder=tmp_path)
    landing = project / "data" / "landing" / "inventory"
    shutil.copytree(REPOSITORY / "data" / "landing" / "inventory" / DAY, landing / DAY)

    # As the comments of cdc.yaml say: `discover` gives the tables, and the first day is written.
    found = yaml.safe_load(call("cdc-assets", "discover", "inventory"))
    config = yaml.safe_load((project / "cdc.yaml").read_text())
    config["sources"]["inventory"]["tables"] = found["sources"]["inventory"]["tables"]
    config["start_date"] = DAY
    (project / "cdc.yaml").write_text(yaml.safe_dump(config))

    checks = call("cdc-assets", "doctor", "--format", "json").splitlines()
    problems = [row for row in map(json.loads, checks) if row["status"] == "problem"]
    assert problems == []
    call("cdc-assets", "run", "--from", DAY)
    rows = call("cdc-assets", "show", "customers", "--format", "json").splitlines()
    assert len(rows) > 100
    validate = ("dagster", "definitions", "validate", "-w", "workspace.yaml")
    call(*validate, DAGSTER_HOME=str(project))
    _dagster_comes_up(programs, project)


def _dagster_comes_up(programs: Path, project: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(programs / "dagster"), "dev", "-w", "workspace.yaml"]
    with (project / "dev.log").open("w") as log:
        server = subprocess.Popen(
            [*command, "-h", "127.0.0.1", "-p", str(port)],
            cwd=project,
            env=environment(programs, DAGSTER_HOME=str(project)),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            assert _answers(f"http://127.0.0.1:{port}/server_info"), (
                project / "dev.log"
            ).read_text()
            server.send_signal(signal.SIGINT)
            server.wait(120)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait(30)


def _answers(address: str, seconds: float = 180) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(address, timeout=5) as response:
                return "dagster_version" in json.load(response)
        except OSError:
            time.sleep(1)
    return False
