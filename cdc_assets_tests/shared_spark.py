"""Dagster's runs in the Spark session of the tests."""

from __future__ import annotations

from typing import Any, ClassVar

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.orchestration.execution.resources import SparkResource


class SharedSpark(SparkResource):
    """The test session's lake, which outlives the run.

    Dagster makes the resource anew for a run; so the lake is the class's.
    """

    shared: ClassVar[Any] = None

    def lake(self) -> Lake:
        return self.shared

    def config(self) -> Config:
        return self.shared.config

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Leave the session to the other tests."""
