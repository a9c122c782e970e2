"""The landing of a source, by its configuration."""

from __future__ import annotations

from typing import Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.landing.file_landing import FileLanding
from cdc_assets.cdc.landing.kafka_landing import KafkaLanding
from cdc_assets.cdc.landing.source import LandingSource


def landing_source(config: Config, source: str) -> LandingSource[Any]:
    """Files or Kafka, as `sources.<source>.landing` says."""
    is_kafka = config.source(source).landing.kafka is not None
    return KafkaLanding(config, source) if is_kafka else FileLanding(config, source)
