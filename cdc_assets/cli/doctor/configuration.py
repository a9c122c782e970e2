"""Checks of cdc.yaml and of what Dagster loads from it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from cdc_assets.cdc.config import config_path, load_config
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.lake.adopted_tables import with_adopted_tables
from cdc_assets.cli.doctor.findings import Context, Finding, Status

_SECRET_NAME = re.compile(r"jaas|password|passwd|secret|token|credential|private|\bkey", re.I)


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
    context.adopted = {
        name: source.tables.keys() - listed.sources[name].tables.keys()
        for name, source in context.config.sources.items()
    }
    context.secrets |= _secrets(context)
    tables = sum(len(source.tables) for source in context.config.sources.values())
    found = f"{file}: {len(context.config.sources)} sources, {tables} tables"
    yield Finding("configuration", Status.ok, found)
    for name, source in context.config.sources.items():
        by = Counter(source.pattern_of(table) for table in context.adopted[name])
        for pattern, settings in source.table_patterns.items():
            if settings is not None:
                found = f"sources.{name}.tables.{pattern} adopts {by[pattern]} tables"
                yield Finding("configuration", Status.ok, found)
    if not tables and not any(source.adopts_tables for source in context.config.sources.values()):
        yield Finding(
            "configuration",
            Status.warning,
            "no table is configured",
            "cdc-assets discover SOURCE prints the tables of a landing",
        )


def _secrets(context: Context) -> set[str]:
    """Values of settings and environment variables whose names suggest a secret."""
    text = ""
    with suppress(OSError, UnicodeDecodeError):  # a finding of the check
        text = config_path(context.config_file).read_text(encoding="utf-8")
    settings = {n: os.environ.get(n, "") for n in re.findall(r"\$\{(\w+)\}", text)}
    if context.config is not None:
        settings |= context.config.spark | context.config.lake.catalog
        for source in context.config.sources.values():
            settings |= source.landing.kafka.options if source.landing.kafka else {}
    secrets: set[str] = set()
    for name, value in settings.items():
        secrets |= set(re.findall(r"://[^/@\s]*:([^/@\s]+)@", value))
        if _SECRET_NAME.search(name):
            secrets |= {value, *re.findall(r"""["']([^"']+)["']""", value)}
    return secrets - {""}


def definitions(context: Context) -> Iterator[Finding]:
    """Dagster loads the definitions; a wrong asset key or cron expression fails here."""
    if context.config is None:
        return
    os.environ["CDC_CONFIG"] = str(config_path(context.config_file))
    from cdc_assets.definitions import build_definitions

    defs = build_definitions(context.config)
    count = len(list(defs.resolve_asset_graph().get_all_asset_keys()))
    yield Finding("definitions", Status.ok, f"Dagster loads {count} assets")
