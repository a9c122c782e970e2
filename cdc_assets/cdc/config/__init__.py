"""cdc.yaml as frozen models.

One file says where the lake is, which sources there are and how their tables are keyed.
A wrong file gives one readable line per fault, each with its path inside the file.
"""

from cdc_assets.cdc.config.alerts import AlertsConfig, EmailConfig, SlackConfig, WebhookConfig
from cdc_assets.cdc.config.fields import local_path
from cdc_assets.cdc.config.landing import (
    KAFKA_COLUMNS,
    KafkaConfig,
    LandingConfig,
    PathTableConfig,
    RegistryConfig,
)
from cdc_assets.cdc.config.loading import config_path, load_config, parse_config
from cdc_assets.cdc.config.model import AutomationConfig, Config, LakeConfig, MaintenanceConfig
from cdc_assets.cdc.config.sources import FORMATS, SourceConfig
from cdc_assets.cdc.config.tables import (
    RESERVED_PREFIX,
    TABLE_OF_ROW,
    HistoryConfig,
    TableConfig,
    is_reserved,
)
from cdc_assets.cdc.envelopes.declared import PLACEHOLDER

__all__ = [
    "FORMATS",
    "KAFKA_COLUMNS",
    "PLACEHOLDER",
    "RESERVED_PREFIX",
    "TABLE_OF_ROW",
    "AlertsConfig",
    "AutomationConfig",
    "Config",
    "EmailConfig",
    "HistoryConfig",
    "KafkaConfig",
    "LakeConfig",
    "LandingConfig",
    "MaintenanceConfig",
    "PathTableConfig",
    "RegistryConfig",
    "SlackConfig",
    "SourceConfig",
    "TableConfig",
    "WebhookConfig",
    "config_path",
    "is_reserved",
    "load_config",
    "local_path",
    "parse_config",
]
