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
from cdc_assets.cdc.config.layout import Layout, SortField, Transform
from cdc_assets.cdc.config.loading import config_path, load_config, parse_config
from cdc_assets.cdc.config.model import AutomationConfig, Config, LakeConfig, MaintenanceConfig
from cdc_assets.cdc.config.sources import FORMATS, SourceConfig
from cdc_assets.cdc.config.tables import (
    DELETED_AT,
    RESERVED_PREFIX,
    TABLE_OF_ROW,
    HistoryConfig,
    TableConfig,
    is_reserved,
)
from cdc_assets.cdc.envelopes.declared import PLACEHOLDER

__all__ = [
    "DELETED_AT",
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
    "Layout",
    "MaintenanceConfig",
    "PathTableConfig",
    "RegistryConfig",
    "SlackConfig",
    "SortField",
    "SourceConfig",
    "TableConfig",
    "Transform",
    "WebhookConfig",
    "config_path",
    "is_reserved",
    "load_config",
    "local_path",
    "parse_config",
]
