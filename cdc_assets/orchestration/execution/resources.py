"""The resource `spark`: one Spark session per run, and the lake in it."""

from __future__ import annotations

from threading import Lock
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr

from cdc_assets.cdc.config import Config, load_config
from cdc_assets.cdc.java import STARTING_SPARK
from cdc_assets.cdc.lake.adopted_tables import with_adopted_tables
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.spark import build_session
from cdc_assets.orchestration.execution import progress

# Steps run in threads; the first one starts Spark and reads the configuration.
_STARTING, _READING = Lock(), Lock()


class SparkResource(LazyPySparkResource):
    """One Spark session per run, built on first use and stopped when the run ends.

    `config_path` is the file cdc.yaml (empty: the usual places); its `spark` settings override
    `spark_config`.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict)
    config_path: str = ""
    _is_canceled: bool = PrivateAttr(default=False)
    _config: Config | None = PrivateAttr(default=None)

    def _init_session(self) -> None:
        with _STARTING:
            if self._spark_session is None:
                config = self.config()
                progress.notify(STARTING_SPARK)
                spark = {**self.spark_config, **config.spark}
                self._spark_session = build_session(config.model_copy(update={"spark": spark}))

    def lake(self) -> Lake:
        """The lake, in this session."""
        spark = self.spark_session
        progress.name_jobs()
        return Lake(spark, self.config())

    def config(self) -> Config:
        """The configuration with the tables that it adopts, read once per run, without Spark."""
        with _READING:
            if self._config is None:
                self._config = with_adopted_tables(load_config(self.config_path or None))
            return self._config

    @property
    def is_canceled(self) -> bool:
        """True once the run was stopped: steps begin no further day."""
        return self._is_canceled

    def cancel(self) -> None:
        """Cancel the jobs of the session; steps begin no further day."""
        self._is_canceled = True
        if self._spark_session is not None:
            self._spark_session.sparkContext.cancelAllJobs()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stop the session, if there is one."""
        self._is_canceled, self._config = False, None
        if self._spark_session is not None:
            self._spark_session.stop()
            self._spark_session = None
