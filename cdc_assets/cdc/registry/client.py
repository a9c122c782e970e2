"""The schemas of some ids: of a registry that is asked, or of its answers in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from cdc_assets.cdc.config import RegistryConfig
from cdc_assets.cdc.errors import RegistryError
from cdc_assets.cdc.registry.saved import SavedAnswers
from cdc_assets.cdc.registry.served import served

AVRO, JSON = "AVRO", "JSON"


class Registry(Protocol):
    """A registry with Confluent's interface."""

    def ask(self, *path: str) -> Mapping[str, Any] | None:
        """An answer that has a schema; None where the registry has none at this path.

        Args:
            path: its parts, as in ``("schemas", "ids", "7")``, which may hold any characters.

        Raises:
            RegistryError: it does not answer, or not as a registry.
        """

    def inventory(self) -> str | None:
        """What it holds, in a few words; None where that is nothing.

        Raises:
            RegistryError: it does not answer, or not as a registry.
        """

    def error(self, path: Sequence[str], what: str) -> RegistryError:
        """An error that names the path."""


@dataclass(frozen=True)
class RegistrySchema:
    """What a registry has under an id.

    `kind` is AVRO, JSON or PROTOBUF; `references` are the texts of schemas that `text` names types
    of, each after those that it names itself.
    """

    kind: str
    text: str
    references: tuple[str, ...] = ()


def fetch_schemas(
    source: str, config: RegistryConfig, ids: Sequence[str]
) -> dict[str, RegistrySchema]:
    """The schemas of some ids, without those that the registry does not have.

    Args:
        source: named in errors.
        config: where the registry is.
        ids: numbers, or GUIDs.

    Raises:
        RegistryError: the registry does not answer, or not as one.
    """
    found = {}
    with _opened(source, config) as registry:
        for schema_id in ids:
            kind = "ids" if schema_id.isdigit() else "guids"
            answer = registry.ask("schemas", kind, schema_id)
            if answer is not None:
                references = tuple(_references(registry, answer, frozenset()))
                found[schema_id] = RegistrySchema(
                    answer.get("schemaType") or AVRO, answer["schema"], references
                )
    return found


def inventory(source: str, config: RegistryConfig) -> str | None:
    """What a registry holds, in a few words; None where that is nothing.

    Args:
        source: named in errors.
        config: where the registry is.

    Raises:
        RegistryError: the registry does not answer, or not as one.
    """
    with _opened(source, config) as registry:
        return registry.inventory()


def _opened(source: str, config: RegistryConfig) -> AbstractContextManager[Registry]:
    if config.files is not None:
        return nullcontext(SavedAnswers.of(source, config.files))
    return served(source, config)


def _references(
    registry: Registry, answer: Mapping[str, Any], above: frozenset[tuple[str, ...]]
) -> list[str]:
    """The texts of the schemas that an answer refers to, the deepest first."""
    texts = []
    for reference in answer.get("references") or ():
        path = (
            "subjects",
            str(reference.get("subject")),
            "versions",
            str(reference.get("version")),
        )
        if path in above:
            raise registry.error(path, "has schemas that refer to each other")
        if (found := registry.ask(*path)) is None:
            raise registry.error(path, "does not have it, though another schema refers to it")
        texts += [*_references(registry, found, above | {path}), found["schema"]]
    return texts
