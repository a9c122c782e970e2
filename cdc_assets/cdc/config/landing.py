"""`landing:` — where a source's records come from: files, Kafka, a table; with a registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from cdc_assets.cdc.config.fields import Settings, conf_text, empty_mapping
from cdc_assets.cdc.config.file_layouts import FILE_LAYOUTS, TABLE_LAYOUTS, FileLayoutConfig
from cdc_assets.cdc.names import TablePath

# Options that the landing sets itself; Spark refuses most of them too.
_OWN_KAFKA_OPTIONS = {
    "kafka.bootstrap.servers": "it is bootstrap_servers, beside options",
    "kafka.isolation.level": "records of open or aborted transactions are never read",
    "kafka.auto.offset.reset": "each day's offsets are the landing's own",
    "kafka.enable.auto.commit": "each day's offsets are the landing's own",
    "kafka.key.deserializer": "bytes land as they came",
    "kafka.value.deserializer": "bytes land as they came",
    "kafka.interceptor.classes": "bytes land as they came",
}


class KafkaConfig(Settings):
    """The topics of a source, and how to connect to Kafka.

    `options` are those of Kafka's own clients with the prefix `kafka.` that Spark expects:
    `kafka.security.protocol`, `kafka.sasl.jaas.config` … They may hold secrets and are never shown.
    """

    bootstrap_servers: str = Field(min_length=1)
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = Field(
        default=None, description="A regular expression that a topic's whole name matches."
    )
    options: Annotated[dict[str, str], BeforeValidator(empty_mapping)] = Field(
        default_factory=dict, repr=False
    )

    @field_validator("options", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(name): conf_text(text) for name, text in value.items()}
        return value

    @field_validator("options")
    @classmethod
    def _options(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not name.startswith("kafka."):
                raise ValueError(
                    f"{name}: write it as kafka.{name}, an option of Kafka's own consumer"
                )
            if name in _OWN_KAFKA_OPTIONS:
                raise ValueError(f"{name}: {_OWN_KAFKA_OPTIONS[name]}")
        return value

    @field_validator("topic_pattern")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(
                f"got {value!r}, which is not a regular expression: {error}"
            ) from error
        return value

    @model_validator(mode="after")
    def _one_way(self) -> KafkaConfig:
        if bool(self.topics) == bool(self.topic_pattern):
            got = "both" if self.topics else "neither"
            raise ValueError(f"got {got} of topics and topic_pattern; name one of them")
        if len(set(self.topics)) != len(self.topics):
            raise ValueError("topics: a topic is named twice")
        return self


class RegistryConfig(Settings):
    """The schema registry that records were written with: its address, or its saved answers.

    `ca` is a file of trusted certificates that replaces the system's. It and the login belong to
    `url`.
    """

    url: str | None = Field(default=None, pattern=r"^https?://[^/@]+(/[^@]*)?$")
    files: str | None = Field(default=None, min_length=1)
    username: str | None = Field(default=None, min_length=1)
    password: str | None = Field(default=None, min_length=1, repr=False)
    token: str | None = Field(
        default=None, min_length=1, repr=False, description="Sent as a bearer token."
    )
    ca: str | None = None

    @property
    def place(self) -> str:
        """The address or the folder, which tells one registry from another."""
        return self.url or self.files or ""

    @field_validator("files")
    @classmethod
    def _local(cls, value: str | None) -> str | None:
        if value is not None and "://" in value and not value.startswith("file:"):
            raise ValueError(f"got {value!r}; expected a folder of this machine")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> RegistryConfig:
        if (self.url is None) == (self.files is None):
            got = "neither" if self.url is None else "both"
            raise ValueError(f"got {got} of url and files; name one of them")
        if self.files is not None:
            for name in ("username", "password", "token", "ca"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name}: it belongs to url; files need none")
        return self

    @model_validator(mode="after")
    def _one_login(self) -> RegistryConfig:
        if self.token is not None and self.username is not None:
            raise ValueError("got both of username and token; name one of them")
        if self.password is not None and self.username is None:
            raise ValueError("password: it needs a username beside it")
        return self


# The columns of Spark's Kafka source, by which a table of records is read.
KAFKA_COLUMNS = (
    "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"
)  # fmt: skip


_OF_FILES = FileLayoutConfig.model_fields.keys() - {"layout"}


class PathTableConfig(Settings):
    """A table that no catalog has, by its folder."""

    path: str = Field(min_length=1, description="The folder, or its URL.")
    format: Literal["parquet", "delta"]


# A name or a folder; faults name the settings of the one that is written.
_Table = Annotated[
    Annotated[str, Tag("branch-name")] | Annotated[PathTableConfig, Tag("branch-folder")],
    Discriminator(lambda v: "branch-name" if isinstance(v, str) else "branch-folder"),
]


class LandingConfig(FileLayoutConfig):
    """Where a source's records come from: landed files, Kafka, or a table that has a copy of it.

    The schemas of a `registry` decode them.
    """

    files: str | None = None
    kafka: KafkaConfig | None = None
    table: _Table | None = Field(
        default=None,
        description="[catalog.]namespace.table, * in its last part stands for any text; or a "
        "folder and its format.",
    )
    columns: Annotated[dict[str, str], BeforeValidator(empty_mapping)] = Field(
        default_factory=dict,
        description="The table's own names, by those of Spark's Kafka source.",
    )
    settle_minutes: int = Field(
        default=30, ge=0, description="How long after its end a table's day waits for late records."
    )
    registry: RegistryConfig | None = None

    @property
    def table_path(self) -> TablePath | None:
        """The name of the table, or of several, in parts."""
        return TablePath.parse(self.table) if isinstance(self.table, str) else None

    @property
    def table_name(self) -> str | None:
        """The table, as messages name it."""
        return self.table.path if isinstance(self.table, PathTableConfig) else self.table

    @field_validator("table")
    @classmethod
    def _name(cls, value: str | PathTableConfig | None) -> str | PathTableConfig | None:
        if isinstance(value, str):
            TablePath.parse(value)
        return value

    @field_validator("columns")
    @classmethod
    def _known(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if name not in KAFKA_COLUMNS:
                raise ValueError(f"{name}: expected one of {', '.join(KAFKA_COLUMNS)}")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> LandingConfig:
        given = [name for name in ("files", "kafka", "table") if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"got {got} of files, kafka and table; name one of them")
        if self.table is None:
            for name in sorted({"columns", "settle_minutes"} & self.model_fields_set):
                raise ValueError(f"{name}: it belongs to table; {given[0]} has none")
        if self.files is None:
            for name in sorted(_OF_FILES & self.model_fields_set):
                raise ValueError(f"{name}: it belongs to files; {given[0]} has none")
        if self.kafka is not None and self.layout is not None:
            raise ValueError("layout: it belongs to files and table; kafka has none")
        if self.table is not None and self.layout not in (None, *TABLE_LAYOUTS):
            listed = " and ".join(TABLE_LAYOUTS)
            raise ValueError(f"layout: {self.layout} is of files; those of a table are {listed}")
        if self.files is not None and self.layout in TABLE_LAYOUTS:
            listed = ", ".join(FILE_LAYOUTS)
            raise ValueError(
                f"layout: {self.layout} belongs to table; of files it is one of {listed}"
            )
        if self.files is not None:
            _ = self.file_layout  # raises for settings that do not go together
        if self.layout == "redpanda" and isinstance(self.table, PathTableConfig):
            raise ValueError("layout: Redpanda's tables are in a catalog; name them in table")
        if self.layout == "redpanda" and self.columns:
            raise ValueError("columns: Redpanda's tables have columns of fixed names")
        return self
