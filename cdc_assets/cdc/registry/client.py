"""The schemas of some ids: of a registry that is asked, or of its answers in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from cdc_assets.cdc.config import RegistryConfig
from cdc_assets.cdc.errors import RegistryError
from cdc_assets.cdc.registry.avro import DEEPEST, MOST_REFERENCES
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
    of, each after those that it names itself; without them where they are too many.
    """

    kind: str
    text: str
    references: tuple[str, ...] = ()
    has_too_many_references: bool = False


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
        asked = _References(registry)
        for schema_id in ids:
            kind = "ids" if schema_id.isdigit() else "guids"
            answer = registry.ask("schemas", kind, schema_id)
            if answer is not None:
                references = asked.of(answer)
                found[schema_id] = RegistrySchema(
                    answer.get("schemaType") or AVRO,
                    answer["schema"],
                    references or (),
                    has_too_many_references=references is None,
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


Path = tuple[str, ...]


class _References:
    """The schemas that others refer to; each is asked for once."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[Path, Mapping[str, Any]] = {}

    def of(self, answer: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The texts of those that an answer refers to, each behind those that it refers to itself.

        None where there are more than :data:`MOST_REFERENCES`, or more than :data:`DEEPEST` refer
        to one another.
        """
        done: dict[Path, None] = {}  # in the order in which they are complete
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
            open_.append((path, _paths(self._asked(path))))
        return tuple(str(self._known[path]["schema"]) for path in done)

    def _asked(self, path: Path) -> Mapping[str, Any]:
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
