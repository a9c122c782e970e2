"""The channels of alerts: webhook, Slack and e-mail.

Messages may hold names and error texts from data, so they are plain text that no receiver renders
as markup. No error shows an address, token or password.
"""

from __future__ import annotations

import logging
import re
import smtplib
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from functools import partial
from importlib.util import find_spec
from typing import Any

import requests
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from cdc_assets.cdc.config import Config, EmailConfig, SlackConfig, WebhookConfig
from cdc_assets.cdc.errors import ConfigError, first_line

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 5
_ATTEMPTS = 3
_SHOWN = 20  # alerts that a text shows in full; the others are counted
_WIDTH = 500  # of a line
_SLACK_CHARACTERS = 3_500  # Slack advises 4,000 with the title
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


class SendError(Exception):
    """Raised when a receiver does not accept a message; a retry may help if `is_transient`."""

    def __init__(self, message: str, is_transient: bool = False) -> None:
        self.is_transient = is_transient
        super().__init__(message)


@dataclass(frozen=True)
class Message:
    """Alerts that are sent together: the title and lines of each, and all as plain data."""

    title: str
    parts: Sequence[tuple[str, Sequence[str]]]
    alerts: Sequence[Mapping[str, Any]]

    def text(self, characters: int = 100_000) -> str:
        """All alerts as plain text; those that do not fit are counted."""
        blocks: list[str] = []
        for title, lines in self.parts[:_SHOWN]:
            block = "\n".join([_line(title), *(f"  {_line(line)}" for line in lines)])
            if blocks and sum(len(b) + 2 for b in blocks) + len(block) > characters:
                break
            blocks.append(block)
        if more := len(self.parts) - len(blocks):
            blocks.append(f"… and {more} more, see Dagster")
        return "\n\n".join(blocks)


def _line(text: str) -> str:
    text = _UNSEEN.sub(" ", text).strip()
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


@dataclass(frozen=True)
class Channel:
    """A receiver: its name in the sensor's cursor, its sender, and what it subscribes to.

    `subscriptions` maps sources to their tables, None for all tables of a source. Without
    `subscriptions` the channel gets every alert.
    """

    name: str
    post: Callable[[Message], None] = field(repr=False)
    subscriptions: Mapping[str, frozenset[str] | None] | None = None

    def accepts(self, sources: Sequence[str], table: str | None) -> bool:
        """Whether an alert about these sources, or about this table, goes to the channel."""
        if self.subscriptions is None:
            return True
        subscribed = [self.subscriptions[s] for s in sources if s in self.subscriptions]
        return any(tables is None or table in tables for tables in subscribed)

    def send(self, message: Message) -> None:
        """Send a message; transient errors are retried.

        Raises:
            SendError: the receiver does not accept it.
        """
        attempts = Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, SendError) and e.is_transient),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_exponential(multiplier=0.5, max=2),
            reraise=True,
        )
        attempts(self.post, message)


def build_channels(config: Config) -> list[Channel]:
    """The channels of cdc.yaml; each owner that is an e-mail address is one.

    Raises:
        ConfigError: a channel's package is not installed.
    """
    alerts, found = config.alerts, []
    if alerts.webhook is not None:
        found.append(Channel("webhook", partial(_post, alerts.webhook)))
    if alerts.slack is not None:
        if find_spec("dagster_slack") is None:
            raise ConfigError(
                ["alerts.slack: needs the package dagster-slack: pip install 'cdc-assets[slack]'"]
            )
        found.append(Channel("slack", partial(_post_to_slack, alerts.slack)))
    if alerts.email is not None:
        if alerts.email.to:
            found.append(Channel("email", partial(_mail, alerts.email, alerts.email.to)))
        for address, subscriptions in _owners(config).items():
            if address not in alerts.email.to:
                post = partial(_mail, alerts.email, (address,))
                found.append(Channel(f"email {address}", post, subscriptions))
    return found


def _owners(config: Config) -> dict[str, dict[str, frozenset[str] | None]]:
    """The subscriptions of the owners that are e-mail addresses."""
    found: dict[str, dict[str, frozenset[str] | None]] = {}
    for source, settings in config.sources.items():
        for table in settings.tables:
            for address in config.mail_owners(source, table):
                tables = found.setdefault(address, {}).get(source) or frozenset()
                found[address][source] = tables | {table}
        for address in config.mail_owners(source):
            found.setdefault(address, {})[source] = None
    return found


# --- webhook


def _post(config: WebhookConfig, message: Message) -> None:
    document = {"title": _line(message.title), "text": message.text(), "alerts": message.alerts}
    try:
        answer = requests.post(
            config.url,
            json=document,
            headers=config.headers,
            timeout=_TIMEOUT_SECONDS,
            # A redirected POST becomes a GET, and its headers may go elsewhere.
            allow_redirects=False,
        )
    except (requests.RequestException, ValueError) as error:
        # The error's text contains the URL, which may be a secret.
        raise SendError(f"no answer ({type(error).__name__})", is_transient=True) from None
    if not 200 <= answer.status_code < 300:
        is_transient = answer.status_code == 429 or answer.status_code >= 500
        raise SendError(f"the receiver answered {answer.status_code}, expected 2xx", is_transient)


# --- Slack


def _post_to_slack(config: SlackConfig, message: Message) -> None:
    from dagster_slack import SlackResource
    from slack_sdk.errors import SlackApiError

    client = SlackResource(token=config.token).get_client()
    client.timeout = _TIMEOUT_SECONDS
    if config.base_url is not None:
        client.base_url = config.base_url.rstrip("/") + "/"
    text = message.text(_SLACK_CHARACTERS)
    text = f"{_line(message.title)}\n\n{text}" if len(message.parts) > 1 else text
    try:
        client.chat_postMessage(
            channel=config.channel,
            text=_slack_literal(text),
            mrkdwn=False,
            unfurl_links=False,
            unfurl_media=False,
        )
    except SlackApiError as error:
        reason = str(error.response.get("error", "no reason"))[:80]
        status = error.response.status_code
        is_transient = status == 429 or status >= 500
        raise SendError(f"Slack answered {reason!r} ({status})", is_transient) from None
    except OSError as error:  # the base of all errors of urllib
        raise SendError(f"no answer ({type(error).__name__})", is_transient=True) from None


def _slack_literal(text: str) -> str:
    """Escape a text: `<!channel>` and `<https://…|name>` stay plain text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# --- e-mail


def _mail(config: EmailConfig, to: Sequence[str], message: Message) -> None:
    mail = EmailMessage()
    mail["Subject"] = f"[cdc-assets] {_line(message.title)}"
    mail["From"] = config.sender
    mail["To"] = ", ".join(to)
    mail["Date"] = formatdate()
    mail["Message-ID"] = make_msgid(domain=config.sender.rpartition("@")[2])
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text())
    try:
        refused = _deliver(config, mail, to)
    except smtplib.SMTPRecipientsRefused:
        raise SendError("the server refused every recipient") from None
    except smtplib.SMTPResponseException as error:
        is_transient = 400 <= error.smtp_code < 500
        raise SendError(f"the server answered {error.smtp_code}", is_transient) from None
    except (smtplib.SMTPException, OSError) as error:
        raise SendError(f"{type(error).__name__}: {first_line(error)}", is_transient=True) from None
    if refused:
        log.warning("alerts.email: the server refused %d of %d recipients", refused, len(to))


def _deliver(config: EmailConfig, mail: EmailMessage, to: Sequence[str]) -> int:
    """Send a mail; returns the number of recipients that the server refused."""
    place = (config.host, config.port)
    if config.tls == "ssl":
        context = ssl.create_default_context()
        server: smtplib.SMTP = smtplib.SMTP_SSL(*place, timeout=_TIMEOUT_SECONDS, context=context)
    else:
        server = smtplib.SMTP(*place, timeout=_TIMEOUT_SECONDS)
    try:
        if config.tls == "starttls":
            server.starttls(context=ssl.create_default_context())
        if config.user is not None and config.password is not None:
            server.login(config.user, config.password)
        return len(server.send_message(mail, from_addr=config.sender, to_addrs=list(to)))
    finally:
        # The mail is accepted or refused by now; an error while closing changes nothing.
        with suppress(smtplib.SMTPException, OSError):
            server.quit()
        server.close()
