"""Checks of everything that a run needs: machine, configuration, lake, landings, Dagster.

Each check gives lines: what was looked at, how it is, what was found and what to do. A check
that raises is itself a problem, and no line holds a secret.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from pyspark.sql import SparkSession

from cdc_assets.cdc.config import (
    Config,
    KafkaConfig,
    SourceConfig,
    config_path,
    load_config,
    local_path,
)
from cdc_assets.cdc.errors import CdcError, ConfigError, JavaError, MissingTableError
from cdc_assets.cdc.java import class_archive, java_path, require_java
from cdc_assets.cdc.java_errors import JAVA_ERRORS
from cdc_assets.cdc.lake import pyiceberg_reads as reads
from cdc_assets.cdc.lake.commits import TIMEZONE
from cdc_assets.cdc.lake.errors import one_line
from cdc_assets.cdc.landing.files import LANDED, day_of, is_ignored
from cdc_assets.cdc.spark import CATALOG, PACKAGES, build_session, spark_conf, sqlite_folder
from cdc_assets.cli.key_columns import columns_of_tables
from cdc_assets.orchestration.interrupts import interruptible

_FREE_BYTES = 5 * 1024**3
# A daemon beats every half minute.
_HEARTBEAT_SECONDS = 120


class Status(str, Enum):
    """How a check ended."""

    ok = "ok"
    warning = "warning"
    problem = "problem"


@dataclass(frozen=True)
class Line:
    """What a check found; `remedy` is empty where nothing is to be done."""

    check: str
    status: Status
    found: str
    remedy: str = ""


@dataclass
class Patient:
    """What the checks share: the configuration, once it could be read, and a Spark session."""

    config_file: str | None = None
    quick: bool = False
    config: Config | None = None
    spark: SparkSession | None = None
    secrets: set[str] = field(default_factory=set)


Check = Callable[[Patient], Iterator[Line]]


def examine(
    config_file: str | None = None,
    quick: bool = False,
    only: Collection[str] = (),
    begin: Callable[[str], None] = lambda _: None,
) -> Iterator[Line]:
    """The checks in order, a line each as soon as it is known. Never raises.

    Args:
        config_file: cdc.yaml [default: the usual places].
        quick: start no Spark session; then topics and credentials of Kafka are not checked.
        only: names in :data:`CHECKS` [default: all]; most need the configuration's.
        begin: called with the name of each check before it begins.
    """
    patient = Patient(config_file, quick)
    try:
        for name, check in CHECKS.items():
            if not only or name in only:
                begin(name)
                yield from _lines_of(name, check, patient)
    finally:
        if patient.spark is not None:
            patient.spark.stop()


def _lines_of(name: str, check: Check, patient: Patient) -> Iterator[Line]:
    try:
        for line in check(patient):
            yield _without_secrets(line, patient)
    except Exception as error:
        is_plain = not isinstance(error, (CdcError, *JAVA_ERRORS))
        kind = f"{type(error).__name__}: " if is_plain else ""
        why = one_line(error, patient.config).splitlines()[0]
        what = f"can't be checked: {kind}{why}"
        line = Line(name, Status.problem, what, "mend what it says")
        yield _without_secrets(line, patient)


# --- secrets

_SECRET_NAME = re.compile(r"jaas|password|passwd|secret|token|credential|private|\bkey", re.I)


def _find_secrets(patient: Patient) -> None:
    """Collect what may not be shown: values under such names, and those of such variables."""
    text = ""
    with suppress(OSError, UnicodeDecodeError):  # said by the check of the configuration
        text = config_path(patient.config_file).read_text(encoding="utf-8")
    named = {n: os.environ.get(n, "") for n in re.findall(r"\$\{(\w+)\}", text)}
    settings = dict(named)
    if patient.config is not None:
        settings |= patient.config.spark | patient.config.lake.catalog
        for source in patient.config.sources.values():
            settings |= source.landing.kafka.options if source.landing.kafka else {}
    for name, value in settings.items():
        patient.secrets |= set(re.findall(r"://[^/@\s]*:([^/@\s]+)@", value))
        if _SECRET_NAME.search(name):
            patient.secrets |= {value, *re.findall(r"""["']([^"']+)["']""", value)}
    patient.secrets.discard("")


def _without_secrets(line: Line, patient: Patient) -> Line:
    found, remedy = line.found, line.remedy
    for secret in sorted(patient.secrets, key=len, reverse=True):
        found, remedy = found.replace(secret, "***"), remedy.replace(secret, "***")
    return Line(line.check, line.status, found, remedy)


# --- the machine


def _python(patient: Patient) -> Iterator[Line]:
    version = ".".join(map(str, sys.version_info[:3]))
    needed = importlib.metadata.metadata("cdc-assets")["Requires-Python"]
    fits = SpecifierSet(needed).contains(version)
    yield _line("python", fits, f"{version} at {sys.executable}", f"install Python {needed}")


def _packages(patient: Patient) -> Iterator[Line]:
    wrong = []
    required = [Requirement(text) for text in importlib.metadata.requires("cdc-assets") or ()]
    needed = [r for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]
    for requirement in needed:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} is {version}, needed is {requirement.specifier}")
    remedy = "install cdc-assets again, or make the environment anew (make setup)"
    found = "; ".join(wrong) or f"{len(needed)} packages fit"
    yield _line("packages", not wrong, found, remedy)
    spark = importlib.metadata.version("pyspark")
    runtime = PACKAGES[0].split(":")[1]
    pair = f"pyspark {spark} with {runtime} {PACKAGES[0].split(':')[2]}"
    fits = f"runtime-{'.'.join(spark.split('.')[:2])}_" in runtime
    yield _line("packages", fits, pair, "install the pyspark that Iceberg's runtime is for")


def _java(patient: Patient) -> Iterator[Line]:
    try:
        yield Line("java", Status.ok, require_java())
    except JavaError as error:
        yield Line("java", Status.problem, error.found, error.remedy)
        return
    has = "jdk.incubator.vector" in _output(java_path(), "--list-modules")
    found = f"module jdk.incubator.vector is {'there' if has else 'missing'}"
    yield _line("java", has, found, "Spark asks for it: install a whole JRE, not a cut one")
    archive = class_archive()
    if archive.is_file():
        yield Line("java", Status.ok, f"Spark's classes are mapped in from {archive}")
    else:
        remedy = "python -m cdc_assets.warm makes it, in a minute"
        yield Line("java", Status.ok, f"{archive} is not there: Spark starts slower", remedy)


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stderr + done.stdout


def _jars(patient: Patient) -> Iterator[Line]:
    folder = os.environ.get("CDC_SPARK_JARS")
    names = [f"{p.split(':')[1]}-{p.split(':')[2]}.jar" for p in PACKAGES]
    if folder:
        there = {jar.name for jar in Path(folder).glob("*.jar")}
        # Also as Ivy names them: <organisation>_<artifact>-<version>.jar.
        missing = [n for n in names if not any(j == n or j.endswith(f"_{n}") for j in there)]
        found = f"CDC_SPARK_JARS: {folder} holds {len(there)} jars"
        if missing:
            yield Line("jars", Status.problem, f"{found}, and not {', '.join(missing)}", "add it")
        else:
            yield Line("jars", Status.ok, found)
        return
    own = patient.config.spark if patient.config else {}
    ivy = Path(own.get("spark.jars.ivy") or own.get("jars.ivy") or Path.home() / ".ivy2.5.2")
    missing = [p for p in PACKAGES if not (ivy / "jars" / f"{_ivy_name(p)}.jar").exists()]
    if missing:
        yield Line(
            "jars",
            Status.warning,
            f"not yet in {ivy}: {', '.join(missing)}",
            "the first Spark session gets them from a Maven repository; without a network put "
            "them into a folder and name it in CDC_SPARK_JARS",
        )
    else:
        yield Line("jars", Status.ok, f"{len(names)} jars in {ivy}")


def _ivy_name(package: str) -> str:
    organisation, artifact, version = package.split(":")
    return f"{organisation}_{artifact}-{version}"


# --- the configuration


def _configuration(patient: Patient) -> Iterator[Line]:
    file = config_path(patient.config_file)
    try:
        patient.config = load_config(patient.config_file)
    except ConfigError as error:
        _find_secrets(patient)
        for fault in error.faults:
            yield Line("configuration", Status.problem, f"{file}: {fault}", "correct it there")
        return
    _find_secrets(patient)
    tables = sum(len(source.tables) for source in patient.config.sources.values())
    found = f"{file}: {len(patient.config.sources)} sources, {tables} tables"
    yield Line("configuration", Status.ok, found)
    if not tables:
        yield Line(
            "configuration",
            Status.warning,
            "no table is configured",
            "cdc-assets discover SOURCE prints the tables of a landing",
        )


def _definitions(patient: Patient) -> Iterator[Line]:
    """What Dagster loads; a wrong asset key or cron expression shows here."""
    if patient.config is None:
        return
    os.environ["CDC_CONFIG"] = str(config_path(patient.config_file))
    from cdc_assets.definitions import build_definitions

    defs = build_definitions(patient.config)
    count = len(list(defs.resolve_asset_graph().get_all_asset_keys()))
    yield Line("definitions", Status.ok, f"Dagster loads them: {count} assets")


# --- the lake


def _warehouse(patient: Patient) -> Iterator[Line]:
    config = patient.config
    if config is None:
        return
    if not config.lake.is_local:
        found = f"{config.lake.warehouse} is no folder of this machine"
        yield Line("warehouse", Status.ok, f"{found}; its space is not checked")
        return
    folder = sqlite_folder(config)
    there = next(p for p in (folder, *folder.parents) if p.exists())
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    found = f"{folder}" if there == folder else f"{folder} will be made in {there}"
    if not writable:
        remedy = f"make {there} a folder that this user may write, or change lake.warehouse"
        yield Line("warehouse", Status.problem, f"{found}; {there} can't be written", remedy)
        return
    free = shutil.disk_usage(there).free
    room = f"{found}; {free / 1024**3:.1f} GB free"
    remedy = "make room: cdc-assets maintain removes what nobody needs"
    enough = Status.ok if free >= _FREE_BYTES else Status.warning
    yield Line("warehouse", enough, room, "" if enough is Status.ok else remedy)


def _catalog(patient: Patient) -> Iterator[Line]:
    """The catalog, and what the lake holds against what the configuration says."""
    config = patient.config
    if config is None:
        return
    if not config.lake.catalog and not (sqlite_folder(config) / "catalog.db").exists():
        found = f"no lake in {config.lake.warehouse} yet"
        yield Line("catalog", Status.ok, f"{found}; the first run makes it")
        return
    if config.lake.catalog:
        from pyiceberg.catalog import load_catalog

        properties = reads.catalog_properties(config)
        spaces = load_catalog(CATALOG, **properties).list_namespaces()
        kind = config.lake.catalog.get("type") or config.lake.catalog["catalog-impl"]
        yield Line("catalog", Status.ok, f"{kind}: {len(spaces)} namespaces")
    made, faults = 0, []
    for table in reads.known_tables(config):
        try:
            opened = reads.open_table(config, table)
        except MissingTableError:
            continue
        made += 1
        faults += list(_conflicts(config, table, opened))
    if not config.lake.catalog:
        yield Line("catalog", Status.ok, f"SQLite in {config.lake.warehouse}: {made} tables")
    yield from faults


def _conflicts(config: Config, table: reads.LakeTable, opened: Any) -> Iterator[Line]:
    zone = opened.properties.get(TIMEZONE, config.timezone)
    if zone != config.timezone:
        yield Line(
            "catalog",
            Status.problem,
            f"timezone: got {config.timezone}, but the days of {table} are cut in {zone}",
            f"set timezone: {zone}, or use another warehouse",
        )
    if table.is_state:
        days = list(reads.days_of(opened, is_state=True))
        start = config.start_of(table.source, table.name)
        if days and days[0] < start:
            yield Line(
                "catalog",
                Status.problem,
                f"{table}: start_date {start} is later than {days[0]}, which is made already",
                f"set start_date: {days[0]}, or drop the table first",
            )


def _spark(patient: Patient) -> Iterator[Line]:
    """The true test: a session with all settings and jars, and the catalog through it."""
    config = patient.config
    if config is None:
        return
    if patient.quick:
        spark_conf(config)
        yield Line("spark", Status.ok, "not started (--quick)")
        return
    began = time.monotonic()
    patient.spark = spark = interruptible(build_session, config)
    version, seconds = spark.version, time.monotonic() - began
    spaces = interruptible(lambda: spark.sql(f"SHOW NAMESPACES IN {CATALOG}").count())
    found = f"{version} started in {seconds:.0f} s and sees {spaces} namespaces of the catalog"
    yield Line("spark", Status.ok, found)


# --- the landings


def _landings(patient: Patient) -> Iterator[Line]:
    for name, source in patient.config.sources.items() if patient.config else ():
        check = f"landing of {name}"
        kafka = source.landing.kafka

        def of_source(
            patient: Patient,
            check: str = check,
            name: str = name,
            source: SourceConfig = source,
            kafka: KafkaConfig | None = kafka,
        ) -> Iterator[Line]:
            if kafka is not None:
                return _kafka(check, name, kafka, patient)
            return _files(check, name, source, patient)

        yield from _lines_of(check, of_source, patient)


def _files(check: str, name: str, source: SourceConfig, patient: Patient) -> Iterator[Line]:
    config, place = patient.config, source.landing.files or ""
    assert config is not None
    setting = f"sources.{name}.landing.files"
    if "://" in place and not place.startswith("file:"):
        yield Line(check, Status.ok, f"{place} is no folder of this machine; it is not looked into")
        return
    folder = local_path(place)
    if not folder.is_dir():
        remedy = f"create it, or correct {setting}"
        yield Line(check, Status.problem, f"{folder} is no folder", remedy)
        return
    shown = [p for p in folder.iterdir() if not is_ignored(p.name)]
    days = {day: p for p in shown if p.is_dir() and (day := day_of(p.name))}
    others = sorted(p.name for p in shown if not (p.is_dir() and day_of(p.name)))
    if others:
        listed = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if others[3:] else "")
        remedy = "a day is a folder named YYYY-MM-DD; rename them, or let their names start with _"
        yield Line(check, Status.warning, f"{folder} holds what is no day: {listed}", remedy)
    usable = [day for day in days if config.start_date <= day <= config.today()]
    if not usable:
        remedy = f"land into {folder}/YYYY-MM-DD/, or change start_date"
        found = f"{folder} has no day from start_date {config.start_date} to today"
        yield Line(check, Status.warning, found, remedy)
        return
    newest = max(usable)
    found = f"{folder}: {len(usable)} days, the newest {newest}"
    if early := sum(day < config.start_date for day in days):
        found += f"; {early} before start_date are not made"
    odd = [
        p.name
        for p in days[newest].iterdir()
        if not is_ignored(p.name) and not p.name.endswith(LANDED)
    ]
    if odd:
        remedy = f"expected {', '.join('*' + e for e in LANDED)}; rename it, or begin it with _"
        yield Line(check, Status.problem, f"{found}, which holds {odd[0]}", remedy)
    else:
        yield Line(check, Status.ok, found)


def _kafka(check: str, name: str, kafka: KafkaConfig, patient: Patient) -> Iterator[Line]:
    if patient.spark is None:
        yield _brokers(check, name, kafka)
        return
    from cdc_assets.cdc.landing.kafka_client import Client
    from cdc_assets.cdc.landing.kafka_plan import Found

    def find(spark: SparkSession) -> Found:
        with Client(spark, name, kafka) as client:
            return client.find()

    found = interruptible(find, patient.spark)
    waiting = sum(found.end[place] - found.first[place] for place in found.end)
    yield Line(
        check,
        Status.ok,
        f"{kafka.bootstrap_servers}: {len(found.ids)} topics, {len(found.end)} partitions, "
        f"{waiting} offsets that are still there",
    )


def _brokers(check: str, name: str, kafka: KafkaConfig) -> Line:
    """Whether anybody listens; Kafka's own client, which knows more, needs Spark's JVM."""
    deaf = []
    servers = [server.strip() for server in kafka.bootstrap_servers.split(",")]
    for server in servers:
        place = urlsplit(f"//{server}")
        try:
            socket.create_connection((place.hostname or "", place.port or 9092), 3).close()
        except (OSError, ValueError) as error:
            deaf.append(f"{server} ({error})")
    if len(deaf) == len(servers):
        remedy = f"see that it runs, and that sources.{name}.landing.kafka.bootstrap_servers is it"
        return Line(check, Status.problem, f"no broker answers: {', '.join(deaf)}", remedy)
    found = f"{len(servers) - len(deaf)} of {len(servers)} brokers answer"
    return Line(check, Status.ok, f"{found}; topics and rights are checked without --quick")


# --- the keys


def _keys(patient: Patient) -> Iterator[Line]:
    for name in patient.config.sources if patient.config else ():

        def of_source(patient: Patient, name: str = name) -> Iterator[Line]:
            return _keys_of(name, patient)

        yield from _lines_of(f"keys of {name}", of_source, patient)


def _keys_of(name: str, patient: Patient) -> Iterator[Line]:
    """Columns that are named and that no row has.

    A wrong key sends every record of the table to quarantine, a wrong name in `exclude` or `hash`
    protects nothing.
    """
    config = patient.config
    assert config is not None
    check, known, looked_at = f"keys of {name}", columns_of_tables(config, name), 0
    for table, settings in config.sources[name].tables.items():
        if table not in known:
            continue
        has_key = isinstance(settings.key, tuple)
        looked_at += has_key
        named = {
            "key": settings.key if isinstance(settings.key, tuple) else (),
            "exclude": settings.exclude,
            "hash": settings.hash,
        }
        for setting, columns in named.items():
            missing = [column for column in columns if column not in known[table]]
            if missing:
                listed = ", ".join(sorted(known[table]))
                found = f"{table} has no column {', '.join(missing)}; it has {listed}"
                close = difflib.get_close_matches(missing[0], known[table], n=1)
                hint = f" (did you mean {close[0]}?)" if close else ""
                remedy = f"correct sources.{name}.tables.{table}.{setting}{hint}"
                yield Line(check, Status.problem, found, remedy)
    with_key = sum(isinstance(t.key, tuple) for t in config.sources[name].tables.values())
    found = f"{looked_at} of {with_key} tables with key columns have rows or schemas to compare"
    yield Line(check, Status.ok, found)


# --- Dagster


def _dagster(patient: Patient) -> Iterator[Line]:
    import dagster as dg

    home = os.environ.get("DAGSTER_HOME")
    folder = Path(home) if home else config_path(patient.config_file).parent
    if home and not (folder.is_absolute() and folder.is_dir()):
        remedy = "name an existing folder by its absolute path"
        yield Line("dagster", Status.problem, f"DAGSTER_HOME is {home}", remedy)
        return
    if not (folder / "dagster.yaml").is_file():
        found = f"no dagster.yaml in {folder}"
        remedy = "set DAGSTER_HOME to the folder that holds it"
        if not home:
            found, remedy = f"{found} and no DAGSTER_HOME: runs are not kept", remedy
        yield Line("dagster", Status.warning, found, remedy)
        if not home:
            return
    # Relative folders in dagster.yaml start at the working directory.
    before = Path.cwd()
    os.chdir(folder)
    try:
        with dg.DagsterInstance.from_config(str(folder)) as instance:
            runs = instance.get_runs_count()
            beats = instance.get_daemon_heartbeats()
    finally:
        os.chdir(before)
    yield Line("dagster", Status.ok, f"{folder}: {runs} runs recorded")
    alive = [n for n, b in beats.items() if time.time() - b.timestamp < _HEARTBEAT_SECONDS]
    if alive:
        yield Line("dagster", Status.ok, f"the daemon is alive: {', '.join(sorted(alive))}")
    else:
        yield Line(
            "dagster",
            Status.warning,
            "no daemon is alive" if not beats else "the daemon has stopped",
            "schedules, sensors and queued runs wait for it: dagster dev -w workspace.yaml, or "
            "dagster-daemon run",
        )


def _line(check: str, fits: bool, found: str, remedy: str) -> Line:
    return Line(check, Status.ok, found) if fits else Line(check, Status.problem, found, remedy)


CHECKS: dict[str, Check] = {
    "configuration": _configuration,
    "python": _python,
    "packages": _packages,
    "java": _java,
    "jars": _jars,
    "definitions": _definitions,
    "warehouse": _warehouse,
    "catalog": _catalog,
    "spark": _spark,
    "landing": _landings,
    "keys": _keys,
    "dagster": _dagster,
}
