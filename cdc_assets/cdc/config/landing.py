"""`landing:` — where a source's records come from: files, or Kafka; with a schema registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from cdc_assets.cdc.config.fields import Settings, conf_text, empty_mapping

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


class LandingConfig(Settings):
    """Where a source's records come from: landed files, or Kafka.

    The schemas of a `registry` decode them.
    """

    files: str | None = None
    kafka: KafkaConfig | None = None
    registry: RegistryConfig | None = None

    @model_validator(mode="after")
    def _one_way(self) -> LandingConfig:
        if (self.files is None) == (self.kafka is None):
            got = "neither" if self.files is None else "both"
            raise ValueError(f"got {got} of files and kafka; name one of them")
        return self
