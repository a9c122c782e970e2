"""The address of a source's database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

_PORT = 5432
_EXPECTED = "expected postgresql://user@host:5432/database"


@dataclass(frozen=True)
class Address:
    """Where a database is, and who reads it; its text shows no password."""

    host: str
    port: int
    database: str
    user: str | None
    password: str | None = field(repr=False)
    options: Mapping[str, str]

    @classmethod
    def parse(cls, url: str) -> Address:
        """``postgresql://user@host:5432/db?sslmode=require``.

        The password is in the URL, in ``PGPASSWORD``, or in the driver's own ``.pgpass``.

        Raises:
            ValueError: it is none; the URL itself is not shown.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or _PORT
        except ValueError as error:
            raise ValueError(f"the address can't be read; {_EXPECTED}") from error
        if parts.scheme not in ("postgresql", "postgres"):
            raise ValueError(f"got the scheme {parts.scheme!r}; {_EXPECTED}")
        database = unquote(parts.path.removeprefix("/"))
        if not parts.hostname or not database:
            raise ValueError(f"the host or the database is missing; {_EXPECTED}")
        password = unquote(parts.password) if parts.password else os.environ.get("PGPASSWORD")
        user = unquote(parts.username) if parts.username else os.environ.get("PGUSER")
        options = dict(parse_qsl(parts.query))
        return cls(parts.hostname, port, database, user, password, options)

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"postgresql://{user}{self.host}:{self.port}/{self.database}"

    @property
    def jdbc_url(self) -> str:
        """The driver's address, without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"jdbc:postgresql://{host}:{self.port}/{self.database}"

    @property
    def properties(self) -> dict[str, str]:
        """What the driver gets beside it."""
        known = {"user": self.user, "password": self.password}
        return {**self.options, **{name: value for name, value in known.items() if value}}
