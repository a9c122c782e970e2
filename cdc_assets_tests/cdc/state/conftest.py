"""Fixtures of the tests of tables."""

from __future__ import annotations

import pytest

from cdc_assets.cdc.state import table_day


@pytest.fixture(params=["rewritten", "in_parts"])
def _size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are written anew each day, larger ones get delete files."""
    if request.param == "in_parts":
        monkeypatch.setattr(table_day, "REWRITTEN_BYTES", -1)
