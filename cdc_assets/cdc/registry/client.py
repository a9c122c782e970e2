"""Schemas by id, from a registry over HTTP or from its answers saved in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from cdc_assets.cdc.config import RegistryConfig
from cdc_assets.cdc.errors import RegistryError
from cdc_assets.cdc.registry.avro import DEEPEST, MOST_REFERENCES
from cdc_assets.cdc.registry.file_registry import FileRegistry
from cdc_assets.cdc.registry.http_registry import http_registry

AVRO, JSON = "AVRO", "JSON"


class Registry(Protocol):
    """A registry with Confluent's interface."""

    def ask(self, *path: str) -> Mapping[str, Any] | None:
        """The answer with a schema at a path; None where the registry has none.

        Args:
            path: its parts, as in ``("schemas", "ids", "7")``, which may hold any characters.

        Raises:
            RegistryError: it does not answer, or not as a registry.
        """

    def inventory(self) -> str | None:
        """A few words on its contents; None if it is empty.

        Raises:
            RegistryError: it does not answer, or not as a registry.
        """

    def error(self, path: Sequence[str], what: str) -> RegistryError:
        """An error that names the path."""


@dataclass(frozen=True)
class RegistrySchema:
    """A schema of a registry.

    `kind` is AVRO, JSON or PROTOBUF; `references` are the texts of schemas whose types `text` uses,
    dependencies first; empty where there are too many.
    """

    kind: str
    text: str
    references: tuple[str, ...] = ()
    has_too_many_references: bool = False


def fetch_schemas(
    source: str, config: RegistryConfig, ids: Sequence[str]
) -> dict[str, RegistrySchema]:
    """The schemas with these ids; ids that the registry lacks are left out.

    Args:
        source: named in errors.
        config: where the registry is.
        ids: numbers, or GUIDs.

    Raises:
        RegistryError: the registry does not answer, or not as one.
    """
    found = {}
    with _opened(source, config) as registry:
        resolver = _References(registry)
        for schema_id in ids:
            kind = "ids" if schema_id.isdigit() else "guids"
            answer = registry.ask("schemas", kind, schema_id)
            if answer is not None:
                references = resolver.resolve(answer)
                found[schema_id] = RegistrySchema(
                    answer.get("schemaType") or AVRO,
                    answer["schema"],
                    references or (),
                    has_too_many_references=references is None,
                )
    return found


def inventory(source: str, config: RegistryConfig) -> str | None:
    """A few words on a registry's contents; None if it is empty.

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
        return nullcontext(FileRegistry.open(source, config.files))
    return http_registry(source, config)


Path = tuple[str, ...]


class _References:
    """Referenced schemas; each is requested once."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[Path, Mapping[str, Any]] = {}

    def resolve(self, answer: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The texts of the schemas that an answer refers to, dependencies first.

        None where there are more than :data:`MOST_REFERENCES`, or a chain of more than
        :data:`DEEPEST`.
        """
        done: dict[Path, None] = {}  # dependencies first
        open_: list[tuple[Path | None, Iterator[Path]]] = [(None, _paths(answer))]
        while open_:
            own, rest = open_[-1]
            path = next(rest, None)
            if path is None:
                open_.pop()
                if own is not None:
                    done[own] = None
                continue
            if any(path == above for above, _ in open_):
                raise self._registry.error(path, "has schemas that refer to each other")
            if path in done:
                continue
            if len(done) + len(open_) > MOST_REFERENCES or len(open_) > DEEPEST:
                return None
            open_.append((path, _paths(self._fetched(path))))
        return tuple(str(self._known[path]["schema"]) for path in done)

    def _fetched(self, path: Path) -> Mapping[str, Any]:
        if path not in self._known:
            found = self._registry.ask(*path)
            if found is None:
                raise self._registry.error(
                    path, "does not have it, though another schema refers to it"
                )
            self._known[path] = found
        return self._known[path]


def _paths(answer: Mapping[str, Any]) -> Iterator[Path]:
    for reference in answer.get("references") or ():
        subject, version = reference.get("subject"), reference.get("version")
        yield ("subjects", str(subject), "versions", str(version))
