"""Checks of each source: its landing, and the columns that its tables name."""

from __future__ import annotations

import difflib
import socket
from collections.abc import Iterator
from functools import partial
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from cdc_assets.cdc.config import Config, KafkaConfig, RegistryConfig, local_path
from cdc_assets.cdc.discovery.columns import table_columns
from cdc_assets.cdc.landing.files import LANDED, day_of, is_ignored, no_day, see_days
from cdc_assets.cdc.landing.open_tables import open_tables
from cdc_assets.cdc.landing.sink_files import SinkFolder
from cdc_assets.cli.doctor.findings import Check, Context, Finding, Status, run_check
from cdc_assets.orchestration.execution.interrupts import interruptible


def landings(context: Context) -> Iterator[Finding]:
    """The landing of each source."""
    config = context.config
    for source, settings in config.sources.items() if config else ():
        landing, title = settings.landing, f"landing of {source}"
        check: Check = partial(_files, title, source)
        if landing.kafka is not None:
            check = partial(_kafka, title, source, landing.kafka)
        elif landing.table is not None:
            check = partial(_tables, title, source)
        elif landing.file_layout is not None:
            check = partial(_sink_files, title, source)
        yield from run_check(title, check, context)
        if landing.registry is not None:
            title = f"landing of {source}, schema registry"
            yield from run_check(
                title, partial(_registry, title, source, landing.registry), context
            )


def _registry(check: str, source: str, registry: RegistryConfig, _: Context) -> Iterator[Finding]:
    from cdc_assets.cdc.registry.client import inventory

    found = inventory(source, registry)
    if found is not None:
        yield Finding(check, Status.ok, f"{registry.place}: {found}")
        return
    setting = f"sources.{source}.landing.registry"
    missing, remedy = "subject", f"let a producer register a schema, or correct {setting}.url"
    if registry.files is not None:
        missing = "schema"
        remedy = f"save the registry's answers as schemas/ids/<id>.json, or correct {setting}.files"
    yield Finding(check, Status.warning, f"{registry.place} has no {missing}", remedy)


def _files(check: str, source: str, context: Context) -> Iterator[Finding]:
    config = _config(context)
    place = config.sources[source].landing.files or ""
    setting = f"sources.{source}.landing.files"
    if "://" in place and not place.startswith("file:"):
        yield _remote_days(check, source, place, config)
        return
    folder = local_path(place)
    if not folder.is_dir():
        remedy = f"create it, or correct {setting}"
        yield Finding(check, Status.problem, f"{folder} is not a folder", remedy)
        return
    entries = [p for p in folder.iterdir() if not is_ignored(p.name)]
    days = {day: p for p in entries if p.is_dir() and (day := day_of(p.name))}
    others = sorted(p.name for p in entries if not (p.is_dir() and day_of(p.name)))
    if others and not days:
        yield Finding(check, Status.problem, str(no_day(source, str(folder), others)), "see there")
        return
    if others:
        listed = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if others[3:] else "")
        remedy = "a day is a folder named YYYY-MM-DD; rename them, or let their names start with _"
        found = f"{folder} has entries that are not days: {listed}"
        yield Finding(check, Status.warning, found, remedy)
    usable = [day for day in days if config.start_date <= day <= config.today()]
    if not usable:
        remedy = f"land files into {folder}/YYYY-MM-DD/, or change start_date"
        found = f"{folder} has no day from start_date {config.start_date} to today"
        yield Finding(check, Status.warning, found, remedy)
        return
    newest = max(usable)
    found = f"{folder}: {len(usable)} days, the newest {newest}"
    if early := sum(day < config.start_date for day in days):
        found += f"; {early} before start_date are ignored"
    names = [p.name for p in days[newest].iterdir() if not is_ignored(p.name)]
    if unknown := [name for name in names if not name.endswith(LANDED)]:
        expected = ", ".join("*" + ending for ending in LANDED)
        remedy = f"expected {expected}; rename it, or let its name start with _"
        yield Finding(check, Status.problem, f"{found}, which holds {unknown[0]}", remedy)
    else:
        yield Finding(check, Status.ok, found)


def _sink_files(check: str, source: str, context: Context) -> Iterator[Finding]:
    """Whether there are files with names of the layout, and of which days."""
    config = _config(context)
    folder = SinkFolder(config, source)
    seen = folder.see_days()
    if not seen:
        folder.refuse_other_layout()
    usable = [day for day in seen if config.start_date <= day <= config.today()]
    newest = f", the newest {max(usable)}" if usable else ""
    found = f"{folder.folder}: {len(usable)} days{newest}"
    if early := sum(day < config.start_date for day in seen):
        found += f"; {early} before start_date are ignored"
    remedy = "" if usable else "see that the sink writes there, or change start_date"
    yield Finding(check, Status.ok if usable else Status.warning, found, remedy)


def _remote_days(check: str, source: str, place: str, config: Config) -> Finding:
    seen = see_days(source, place)  # raises if there are entries and no day
    usable = [day for day in seen if config.start_date <= day <= config.today()]
    newest = f", the newest {max(usable)}" if usable else ""
    remedy = "" if usable else f"land files into {place}/YYYY-MM-DD/, or change start_date"
    status = Status.ok if usable else Status.warning
    return Finding(check, status, f"{place}: {len(usable)} days{newest}", remedy)


def _tables(check: str, source: str, context: Context) -> Iterator[Finding]:
    """Whether the tables can be opened, and tell the times of their records without being read."""
    tables = open_tables(_config(context), source)
    counts = [table.records for table in tables]
    rows = None if None in counts else sum(filter(None, counts))
    listed = ", ".join(table.name for table in tables[:3])
    more = f" and {len(tables) - 3} more" if tables[3:] else ""
    found = f"{listed}{more}" + ("" if rows is None else f": {rows} records")
    if without := [table.name for table in tables if not table.has_times]:
        remedy = (
            f"write the table with metrics for {tables[0].timestamp} (write.metadata.metrics."
            "default: truncate(16) or full): late records of landed days can't be found without"
        )
        found += f"; {without[0]} has files without statistics of {tables[0].timestamp}"
        yield Finding(check, Status.warning, found, remedy)
        return
    yield Finding(check, Status.ok, found)


def _kafka(check: str, source: str, kafka: KafkaConfig, context: Context) -> Iterator[Finding]:
    if context.spark is None:
        yield _brokers(check, source, kafka)
        return
    from cdc_assets.cdc.landing.kafka_client import Client
    from cdc_assets.cdc.landing.kafka_plan import Found

    def find(spark: SparkSession) -> Found:
        with Client(spark, source, kafka) as client:
            return client.find()

    found = interruptible(find, context.spark)
    retained = sum(found.end[place] - found.first[place] for place in found.end)
    yield Finding(
        check,
        Status.ok,
        f"{kafka.bootstrap_servers}: {len(found.ids)} topics, {len(found.end)} partitions, "
        f"{retained} offsets retained",
    )


def _brokers(check: str, source: str, kafka: KafkaConfig) -> Finding:
    """Whether the brokers accept connections; Kafka's client would need Spark's JVM."""
    failed = []
    servers = [server.strip() for server in kafka.bootstrap_servers.split(",")]
    for server in servers:
        place = urlsplit(f"//{server}")
        try:
            socket.create_connection((place.hostname or "", place.port or 9092), 3).close()
        except (OSError, ValueError) as error:
            failed.append(f"{server} ({error})")
    if len(failed) == len(servers):
        setting = f"sources.{source}.landing.kafka.bootstrap_servers"
        remedy = f"start the broker, or correct {setting}"
        return Finding(check, Status.problem, f"no broker answers: {', '.join(failed)}", remedy)
    found = f"{len(servers) - len(failed)} of {len(servers)} brokers answer"
    return Finding(check, Status.ok, f"{found}; --quick checks neither topics nor access rights")


def columns(context: Context) -> Iterator[Finding]:
    """The columns that the tables of each source name."""
    for source in context.config.sources if context.config else ():
        title = f"keys of {source}"
        yield from run_check(title, partial(_columns, title, source), context)


def _columns(check: str, source: str, context: Context) -> Iterator[Finding]:
    """Columns in `key`, `exclude` and `hash` that no row has.

    A wrong key sends every record of the table to quarantine, a wrong name in `exclude` or `hash`
    protects nothing.
    """
    config = _config(context)
    adopted = context.adopted.get(source, ())
    tables = {t: s for t, s in config.sources[source].tables.items() if t not in adopted}
    known, compared = table_columns(config, source), 0
    for table, settings in tables.items():
        if table not in known:
            continue
        key = settings.key if isinstance(settings.key, tuple) else ()
        compared += isinstance(settings.key, tuple)
        named = {"key": key, "exclude": settings.exclude, "hash": settings.hash}
        for setting, names in named.items():
            missing = [column for column in names if column not in known[table]]
            if missing:
                listed = ", ".join(sorted(known[table]))
                found = f"{table} has no column {', '.join(missing)}; it has {listed}"
                close = difflib.get_close_matches(missing[0], known[table], n=1)
                hint = f" (did you mean {close[0]}?)" if close else ""
                remedy = f"correct sources.{source}.tables.{table}.{setting}{hint}"
                yield Finding(check, Status.problem, found, remedy)
    with_key = sum(isinstance(settings.key, tuple) for settings in tables.values())
    found = f"{compared} of {with_key} tables with key columns have rows or schemas to compare"
    yield Finding(check, Status.ok, found)


def _config(context: Context) -> Config:
    assert context.config is not None  # without it there is no source to check
    return context.config
