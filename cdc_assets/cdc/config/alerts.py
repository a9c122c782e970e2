"""`alerts:` — the receivers of alerts."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cdc_assets.cdc.config.fields import HttpUrl, Settings, empty_mapping


class WebhookConfig(Settings):
    """Alerts sent to an address by POST, each as a JSON document."""

    url: HttpUrl = Field(repr=False)
    headers: Annotated[dict[str, str], BeforeValidator(empty_mapping)] = Field(
        default_factory=dict, repr=False
    )


class SlackConfig(Settings):
    """Alerts in a Slack channel, through the extra `slack`."""

    token: str = Field(min_length=1, repr=False, description="A bot's, with `chat:write`.")
    channel: str = Field(min_length=1)
    base_url: HttpUrl | None = Field(
        default=None, description="Where Slack's API is, if not at Slack."
    )


_MAIL = re.compile(r"[^@\s,;<>\"]+@[^@\s,;<>\"]+")


def _mail(value: str) -> str:
    if not _MAIL.fullmatch(value):
        raise ValueError(f"got {value!r}; expected an e-mail address such as data@example.org")
    return value


Mail = Annotated[str, AfterValidator(_mail)]


class EmailConfig(Settings):
    """Alerts by e-mail.

    All alerts go to `to`; owners that are e-mail addresses get those of their sources and tables.
    """

    host: str = Field(min_length=1)
    port: int = Field(default=587, ge=1, le=65535)
    sender: Mail = Field(alias="from")
    to: tuple[Mail, ...] = ()
    user: str | None = Field(default=None, min_length=1)
    password: str | None = Field(default=None, min_length=1, repr=False)
    tls: Literal["starttls", "ssl", "none"] = Field(
        default="starttls", description="`ssl`: from the first byte on, mostly on port 465."
    )

    @model_validator(mode="after")
    def _login(self) -> EmailConfig:
        if (self.user is None) != (self.password is None):
            raise ValueError("got one of user and password; name both or neither")
        if self.password and self.tls == "none":
            raise ValueError("password: tls: none would send it in the clear; use starttls or ssl")
        return self


class AlertsConfig(Settings):
    """The receivers of alerts: failed runs, failed checks and sources without new data."""

    webhook: WebhookConfig | None = None
    slack: SlackConfig | None = None
    email: EmailConfig | None = None
    dagster_url: HttpUrl | None = Field(
        default=None, description="Where Dagster's pages are; alerts link to them."
    )

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of those that are configured."""
        return tuple(n for n in ("webhook", "slack", "email") if getattr(self, n) is not None)
