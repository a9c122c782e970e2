"""Removal of a configuration's secrets from logs, records and messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

# Names of settings whose values are secrets.
SECRET_NAME = re.compile(
    r"jaas|password|passwd|secret|token|credential|private|salt|access[.-]?key|\bkey$", re.I
)
_HIDDEN = "***"
_USER = re.compile(r"(://)[^/@\s'\"]*@")
_PASSED = re.compile(
    r"([?&;,\s](?:password|passwd|pwd|token|secret|api_?key|access_?key|credential)s?\s*=\s*)"
    r"[^&;,\s'\")]+",
    re.I,
)


def without_logins(text: str) -> str:
    """A text without users in addresses and passwords in their parameters."""
    return _PASSED.sub(rf"\1{_HIDDEN}", _USER.sub(rf"\1{_HIDDEN}@", text))


def without_secrets(text: str, secrets: Collection[str]) -> str:
    """A text without these secrets and without logins in addresses."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return without_logins(text)


def secrets_in(settings: Mapping[str, str]) -> Iterator[str]:
    """The secrets among settings: by their names, in quotes within them, and in addresses."""
    for name, value in settings.items():
        yield from re.findall(r"://[^/@\s]*:([^/@\s]+)@", value)
        yield from (passed[0].partition("=")[2].strip() for passed in _PASSED.finditer(value))
        if SECRET_NAME.search(name):
            yield value
            yield from re.findall(r"""["']([^"']+)["']""", value)
