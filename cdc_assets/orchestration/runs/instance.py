"""Dagster's home and the instance in it, for processes that Dagster did not start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_assets.cdc.config import config_path

if TYPE_CHECKING:
    import dagster as dg

HOME, _SETTINGS = "DAGSTER_HOME", "dagster.yaml"


def dagster_home(default: Path | None = None) -> Path:
    """DAGSTER_HOME, else `default`, else the folder of cdc.yaml."""
    home = os.environ.get(HOME)
    return Path(home) if home else default or config_path().parent


def has_instance(home: Path) -> bool:
    """Whether a folder configures an instance; runs without one are not recorded."""
    return (home / _SETTINGS).is_file()


def run_instance() -> dg.DagsterInstance:
    """The instance that records the runs of this process, which moves to its folder."""
    import dagster as dg

    home = dagster_home()
    if not os.environ.get(HOME):
        if not has_instance(home):
            return dg.DagsterInstance.ephemeral()
        os.environ[HOME] = str(home)
    os.chdir(home)  # the start of relative folders in dagster.yaml
    return dg.DagsterInstance.get()


@contextmanager
def open_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of a folder, which is the working directory of the block."""
    import dagster as dg

    before = Path.cwd()
    os.chdir(home)  # the start of relative folders in dagster.yaml
    try:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            yield instance
    finally:
        os.chdir(before)
