"""Checks of cdc.yaml and of the definitions that Dagster loads from it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

from cdc_assets.cdc.config import Config, config_path, load_config
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.lake.adopted_tables import with_adopted_tables
from cdc_assets.cdc.redaction import secrets_in
from cdc_assets.cdc.spark import conf_name
from cdc_assets.cli.doctor.findings import Context, Finding, Status


def configuration(context: Context) -> Iterator[Finding]:
    """cdc.yaml is valid. Sets `context.config` and `context.secrets`."""
    file = config_path(context.config_file)
    try:
        listed = load_config(context.config_file)
    except ConfigError as error:
        context.secrets |= _secrets(context)
        for fault in error.faults:
            yield Finding("configuration", Status.problem, f"{file}: {fault}", "correct it there")
        return
    context.config = with_adopted_tables(listed)
    sources = context.config.sources
    context.adopted = {
        source: settings.tables.keys() - listed.sources[source].tables.keys()
        for source, settings in sources.items()
    }
    context.secrets |= _secrets(context)
    yield from _in_the_clear(context.config)
    tables = sum(len(settings.tables) for settings in sources.values())
    found = f"{file}: {len(sources)} sources, {tables} tables"
    yield Finding("configuration", Status.ok, found)
    for source, settings in sources.items():
        counts = Counter(settings.pattern_of(table) for table in context.adopted[source])
        for pattern, table_settings in settings.table_patterns.items():
            if table_settings is not None:
                found = f"sources.{source}.tables.{pattern} adopts {counts[pattern]} tables"
                if table_settings.into is not None:
                    found = f"sources.{source}.tables.{pattern} goes into {table_settings.into}"
                yield Finding("configuration", Status.ok, found)
    if not tables and not any(settings.adopts_tables for settings in sources.values()):
        yield Finding(
            "configuration",
            Status.warning,
            "no table is configured",
            "cdc-assets discover SOURCE prints the tables of a landing",
        )


def _in_the_clear(config: Config) -> Iterator[Finding]:
    """Logins sent without encryption, and a Spark cluster without authentication."""
    sent = {}
    for source, settings in config.sources.items():
        registry = settings.landing.registry
        if registry is not None and (registry.password or registry.token):
            sent[f"sources.{source}.landing.registry.url"] = registry.url
    webhook = config.alerts.webhook
    if webhook is not None and (webhook.headers or "@" in urlsplit(webhook.url).netloc):
        sent["alerts.webhook.url"] = webhook.url
    if config.alerts.slack is not None:
        sent["alerts.slack.base_url"] = config.alerts.slack.base_url
    for setting, url in sent.items():
        parts = urlsplit(url or "")
        if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            yield Finding(
                "configuration",
                Status.warning,
                f"{setting}: a login is sent over http:// to {parts.hostname}, for all on the way "
                "to read",
                "use https://",
            )
    conf = {conf_name(name): value for name, value in config.spark.items()}
    master = conf.get("spark.master", "local[*]")
    if not master.startswith("local") and conf.get("spark.authenticate", "").lower() != "true":
        yield Finding(
            "configuration",
            Status.warning,
            f"spark.master is {master}, and spark.authenticate is not true: who reaches the "
            "driver's or an executor's port can read the data and run code",
            "set spark.authenticate: true (standalone: with spark.authenticate.secret on all "
            "nodes), or see that nobody else reaches the ports",
        )


def _secrets(context: Context) -> set[str]:
    """Values of settings and environment variables with names of secrets."""
    text = ""
    with suppress(OSError, UnicodeDecodeError):  # the check reports it
        text = config_path(context.config_file).read_text(encoding="utf-8")
    settings = {n: os.environ.get(n, "") for n in re.findall(r"\$\{(\w+)\}", text)}
    found = {*secrets_in(settings)} - {""}
    return found | context.config.secrets if context.config is not None else found


def definitions(context: Context) -> Iterator[Finding]:
    """Dagster loads the definitions; a wrong asset key or cron expression fails here."""
    if context.config is None:
        return
    os.environ["CDC_CONFIG"] = str(config_path(context.config_file))
    from cdc_assets.definitions import build_definitions

    defs = build_definitions(context.config)
    count = len(list(defs.resolve_asset_graph().get_all_asset_keys()))
    yield Finding("definitions", Status.ok, f"Dagster loads {count} assets")
