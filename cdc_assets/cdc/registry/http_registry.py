"""A schema registry over HTTP.

It speaks Confluent's interface, as do Apicurio (`/apis/ccompat/v7`), Karapace, Redpanda and the
adapters of AWS and Azure.
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

_SECONDS = 10.0
_NOT_THERE = (40401, 40402, 40403)  # subject, version, schema
_TRIES = Retry(total=3, backoff_factor=0.5, status_forcelist=(429, 502, 503, 504))


@contextmanager
def http_registry(source: str, config: RegistryConfig) -> Iterator[HttpRegistry]:
    """The registry at `config.url`, through a session of its own; `source` is named in errors."""
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
        yield HttpRegistry(source, config.place.rstrip("/"), session)


@dataclass(frozen=True)
class HttpRegistry:
    """A :class:`~cdc_assets.cdc.registry.client.Registry` at a URL."""

    source: str
    url: str
    session: requests.Session

    def ask(self, *path: str) -> Mapping[str, Any] | None:
        """The answer with a schema at a path; None where the registry has none.

        Any web server answers 404; only a registry adds one of its error codes.
        """
        answer, body = self._get(path)
        if isinstance(body, dict) and body.get("error_code") in _NOT_THERE:
            return None
        if answer.ok and isinstance(body, dict) and isinstance(body.get("schema"), str):
            return body
        raise self._refusal(path, answer, body)

    def inventory(self) -> str | None:
        """The number of subjects."""
        answer, body = self._get(("subjects",))
        if answer.ok and isinstance(body, list):
            return f"{len(body)} subjects" if body else None
        raise self._refusal(("subjects",), answer, body)

    def error(self, path: Sequence[str], what: str) -> RegistryError:
        """An error that names the URL of a path."""
        return RegistryError(self.source, self._url(path), what)

    def _url(self, path: Sequence[str]) -> str:
        return "/".join([self.url, *(quote(part, safe="") for part in path)])

    def _get(self, path: Sequence[str]) -> tuple[requests.Response, Any]:
        """The answer and its JSON, None if it has none."""
        try:
            answer = self.session.get(self._url(path), timeout=_SECONDS)
        except requests.RequestException as error:
            raise self.error(path, f"does not answer: {first_line(error)}") from error
        try:
            return answer, answer.json()
        except ValueError:
            return answer, None

    def _refusal(self, path: Sequence[str], answer: requests.Response, body: Any) -> RegistryError:
        message = body.get("message") if isinstance(body, dict) else answer.text
        return self.error(path, f"answers {answer.status_code}: {str(message)[:200]}")
