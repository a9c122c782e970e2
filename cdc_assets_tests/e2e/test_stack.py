"""The test bed itself: it starts, stops and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cdc_assets.cdc.config import load_config
from cdc_assets_tests.e2e.stack import Broker, StackError
from cdc_assets_tests.paths import REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def processes_of(folder: Path) -> list[str]:
    """Command lines of this machine's processes that name a folder."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
        if str(folder) in line and "try_it" not in line:
            lines.append(line)
    return lines


def test_ctrl_c_stops_the_stack_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    command = [sys.executable, "-u", "-m", "cdc_assets_tests.e2e.try_it", "--folder", str(folder)]
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as run:
        assert run.stdout is not None
        told = []
        for line in run.stdout:
            told.append(line)
            if "Ctrl-C stops it all" in line:
                break
        assert len(processes_of(folder)) == 2, "".join(told)  # broker and Connect
        config = load_config(folder / "cdc.yaml")
        assert set(config.sources["shop"].tables) == {
            "public.customers",
            "public.orders",
            "public.visits",
        }
        run.send_signal(signal.SIGINT)
        assert run.stdout.read().endswith("stopped\n")
        assert run.wait(60) == 0
    assert processes_of(folder) == []
    assert yaml.safe_load((folder / "cdc.yaml").read_text())["sources"]


def test_a_part_that_does_not_start_says_why_and_is_gone(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"log.dirs": "/proc/nowhere"})
    with pytest.raises(StackError, match=r"kafka[\w-]* ended with .*kafka.log"), broker:
        pass
    assert broker.is_stopped
    assert processes_of(tmp_path) == []
