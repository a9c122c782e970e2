"""The folder in which the commands run."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, whose cdc.yaml is the configuration."""
    monkeypatch.chdir(tmp_path)
    # Commands set CDC_CONFIG; monkeypatch restores only a variable that it has set.
    monkeypatch.setenv("CDC_CONFIG", "cdc.yaml")
    for name in ("CDC_WAREHOUSE", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
