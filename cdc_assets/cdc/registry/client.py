"""Asking a schema registry for the schemas of some ids.

Confluent's interface, which Apicurio (`/apis/ccompat/v7`), Karapace, Redpanda and AWS's and Azure's
adapters have, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from cdc_assets.cdc.config import RegistryConfig
from cdc_assets.cdc.errors import RegistryError, first_line

AVRO, JSON = "AVRO", "JSON"
_SECONDS = 10.0
_NOT_THERE = (40401, 40402, 40403)  # subject, version, schema
_TRIES = Retry(total=3, backoff_factor=0.5, status_forcelist=(429, 502, 503, 504))


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
            answer = registry.ask(f"/schemas/{kind}/{quote(schema_id, safe='')}")
            if answer is not None:
                references = tuple(registry.references(answer, frozenset()))
                found[schema_id] = RegistrySchema(
                    answer.get("schemaType") or AVRO, answer["schema"], references
                )
    return found


def subjects(source: str, config: RegistryConfig) -> list[str]:
    """The subjects of a registry.

    Args:
        source: named in errors.
        config: where the registry is.

    Raises:
        RegistryError: the registry does not answer, or not as one.
    """
    with _opened(source, config) as registry:
        return registry.subjects()


@contextmanager
def _opened(source: str, config: RegistryConfig) -> Iterator[_Registry]:
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=_TRIES))
        session.headers["Accept"] = "application/vnd.schemaregistry.v1+json, application/json"
        if config.username is not None:
            session.auth = (config.username, config.password or "")
        if config.token is not None:
            session.headers["Authorization"] = f"Bearer {config.token}"
        if config.ca is not None:
            session.verify = config.ca
        yield _Registry(source, config.url.rstrip("/"), session)


@dataclass(frozen=True)
class _Registry:
    source: str
    url: str
    session: requests.Session

    def ask(self, path: str) -> Mapping[str, Any] | None:
        """An answer that has a schema; None where the registry says that it has none.

        An address that is no registry's answers 404, too, but not with such a code.
        """
        answer, body = self._get(path)
        if isinstance(body, dict) and body.get("error_code") in _NOT_THERE:
            return None
        if answer.ok and isinstance(body, dict) and isinstance(body.get("schema"), str):
            return body
        raise self._refusal(path, answer, body)

    def subjects(self) -> list[str]:
        """The names of all subjects."""
        answer, body = self._get("/subjects")
        if answer.ok and isinstance(body, list):
            return [str(name) for name in body]
        raise self._refusal("/subjects", answer, body)

    def _get(self, path: str) -> tuple[requests.Response, Any]:
        """An answer, and its JSON; None where it is none."""
        try:
            answer = self.session.get(f"{self.url}{path}", timeout=_SECONDS)
        except requests.RequestException as error:
            raise self._error(path, f"does not answer: {first_line(error)}") from error
        try:
            return answer, answer.json()
        except ValueError:
            return answer, None

    def _refusal(self, path: str, answer: requests.Response, body: Any) -> RegistryError:
        said = body.get("message") if isinstance(body, dict) else answer.text
        return self._error(path, f"answers {answer.status_code}: {str(said)[:200]}")

    def references(self, answer: Mapping[str, Any], above: frozenset[str]) -> list[str]:
        """The texts of the schemas that an answer refers to, the deepest first."""
        texts = []
        for reference in answer.get("references") or ():
            subject, version = str(reference.get("subject")), str(reference.get("version"))
            path = f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}"
            if path in above:
                raise self._error(path, "has schemas that refer to each other")
            if (found := self.ask(path)) is None:
                raise self._error(path, "does not have it, though another schema refers to it")
            texts += [*self.references(found, above | {path}), found["schema"]]
        return texts

    def _error(self, path: str, what: str) -> RegistryError:
        return RegistryError(self.source, f"{self.url}{path}", what)
