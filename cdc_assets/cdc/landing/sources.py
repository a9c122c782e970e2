"""The landing of a source, by its configuration."""

from __future__ import annotations

from typing import Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.landing.file_landing import FileLanding
from cdc_assets.cdc.landing.kafka_landing import KafkaLanding
from cdc_assets.cdc.landing.record_days import RecordDayLanding, RecordTimes
from cdc_assets.cdc.landing.sink_landing import SinkLanding
from cdc_assets.cdc.landing.source import LandingSource
from cdc_assets.cdc.landing.table_landing import TableLanding


def landing_source(
    config: Config, source: str, times: RecordTimes | None = None
) -> LandingSource[Any]:
    """Files, Kafka or a table, as `sources.<source>.landing` says.

    Args:
        config: cdc.yaml.
        source: the source's name.
        times: reads the times in values, for who lands.
    """
    landing = config.source(source).landing
    if landing.kafka is not None:
        return KafkaLanding(config, source)
    if landing.table is not None:
        return TableLanding(config, source)
    if landing.file_layout is None:
        return FileLanding(config, source)
    if landing.has_days_of_records:
        return RecordDayLanding(config, source, times)
    return SinkLanding(config, source)
