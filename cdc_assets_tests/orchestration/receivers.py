"""Receivers of alerts on this machine: a web server that is a webhook and Slack, a mail server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any
from urllib.parse import parse_qs

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

from cdc_assets_tests import loopback
from cdc_assets_tests.e2e.stack import free_port


@dataclass
class Posted:
    """A request that a web server got."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def form(self) -> dict[str, str]:
        """The body as a form, as Slack's client sends it; or as JSON."""
        if self.headers.get("Content-Type", "").startswith("application/json"):
            return dict(self.document)
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}


@dataclass
class WebServer:
    """A web server; `statuses` are what it answers next, then 200."""

    address: str = ""
    posted: list[Posted] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    tokens: set[str] = field(default_factory=lambda: {"xoxb-s3cret"})

    def answer(self, request: Posted) -> tuple[int, Any]:
        """The status and the JSON document that a request is answered with."""
        status = self.statuses.pop(0) if self.statuses else 200
        if request.path != "/api/chat.postMessage":
            return status, {}
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            return 200, {"ok": False, "error": "invalid_auth"}
        return status, {"ok": status == 200, "ts": "1.0", "channel": "C1"}


@contextmanager
def web_server() -> Iterator[WebServer]:
    """A web server on a free port."""
    server = WebServer()

    class Handler(loopback.Handler):
        def do_POST(self) -> None:  # noqa: N802  (the name is the library's)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Posted(self.path, dict(self.headers), body)
            server.posted.append(request)
            self.send_json(*server.answer(request))

    with loopback.serving(Handler) as server.address:
        yield server


@dataclass
class MailServer:
    """A mail server; `refuses` are recipients that it does not know."""

    port: int = 0
    mails: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)

    async def handle_RCPT(  # noqa: N802  (the name is the library's)
        self, server: Any, session: Any, envelope: Envelope, address: str, options: Any
    ) -> str:
        if address in self.refuses:
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802  (the name is the library's)
        self, server: Any, session: Any, envelope: Envelope
    ) -> str:
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append((list(envelope.rcpt_tos), mail))
        return "250 OK"


@contextmanager
def mail_server(tls: Any = None, at_once: bool = False) -> Iterator[MailServer]:
    """A mail server on a free port.

    With a TLS context it asks for a login, and for TLS: `at_once`, or by STARTTLS.
    """
    received = MailServer()

    def login(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        received.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"m4il-s3cret")

    options: dict[str, Any] = {"authenticator": login} if tls else {}
    if tls and at_once:
        options |= {"ssl_context": tls, "auth_require_tls": False}
    elif tls:
        options |= {"tls_context": tls, "require_starttls": True}
    received.port = free_port()
    controller = Controller(received, hostname="127.0.0.1", port=received.port, **options)
    controller.start()
    try:
        yield received
    finally:
        controller.stop()
