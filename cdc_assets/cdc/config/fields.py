"""The base of the models of cdc.yaml, and field types with rules of their own."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `yes`, which pydantic would read as 1."""
        kinds = {"int": int, "float": float, "int | None": int, "float | None": float}
        kind = kinds.get(str(cls.__annotations__.get(info.field_name or "")))
        if kind is not None and isinstance(value, bool):
            raise PydanticCustomError(f"{kind.__name__}_type", "no number")
        return value


def empty_mapping(value: Any) -> Any:
    """``key:`` with nothing behind it means the defaults."""
    return {} if value is None else value


_OWNER = re.compile(r"team:[A-Za-z0-9_]+|[^@\s]+@[^@\s]+\.[^@\s]+")
_TAG_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,63}(/[A-Za-z0-9_.\-]{1,63})?")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.\-]{0,63}")


def _owners(value: tuple[str, ...]) -> tuple[str, ...]:
    for owner in value:
        if not _OWNER.fullmatch(owner):
            raise ValueError(f"got {owner!r}; expected team:<name> or an e-mail address")
    return value


def _tags(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _TAG_NAME.fullmatch(name) or not _TAG_VALUE.fullmatch(text):
            raise ValueError(
                f"got {name}: {text!r}; names and values are at most 63 letters, digits, _ . -"
            )
    return value


Owners = Annotated[tuple[str, ...], AfterValidator(_owners)]
Tags = Annotated[dict[str, str], AfterValidator(_tags), BeforeValidator(empty_mapping)]


def _cron(value: str) -> str:
    fields = value.split()
    if len(fields) != 5 or any(not re.fullmatch(r"[\dA-Za-z*/,\-]+", f) for f in fields):
        raise ValueError(f'got {value!r}; expected five cron fields such as "*/30 * * * *"')
    return value


Cron = Annotated[str, AfterValidator(_cron)]


def _http(value: str | None) -> str | None:
    # The address may hold a secret: it is not repeated.
    if value is not None and not re.match(r"https?://[^\s/]", value):
        raise ValueError("not a web address; expected http://… or https://…")
    return value


HttpUrl = Annotated[str, AfterValidator(_http)]


def conf_text(value: Any) -> Any:
    """A YAML scalar as text for Spark and Kafka."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def local_path(place: str) -> Path:
    """The path of a local folder, which may be written ``file:…``."""
    return Path(place.removeprefix("file://").removeprefix("file:"))
