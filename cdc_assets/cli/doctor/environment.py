"""Checks of the machine: Python, packages, Java, jars and the Dagster instance."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from cdc_assets.cdc import json_reader
from cdc_assets.cdc.added_jars import AVRO_PACKAGES, KAFKA_PACKAGES, POSTGRESQL_PACKAGES
from cdc_assets.cdc.config import config_path
from cdc_assets.cdc.errors import JavaError
from cdc_assets.cdc.jars import artifact_of, check_jars, fetched_jar, ivy_folder
from cdc_assets.cdc.java import class_archive, require_java
from cdc_assets.cdc.spark import PACKAGES, packages_of
from cdc_assets.cli.doctor.findings import Context, Finding, Status, finding
from cdc_assets.orchestration.runs.instance import (
    HOME,
    dagster_home,
    has_instance,
    open_instance,
)

# The Dagster daemon sends a heartbeat every 30 seconds.
_HEARTBEAT_SECONDS = 120


def python(context: Context) -> Iterator[Finding]:
    """The interpreter has a supported version."""
    version = ".".join(map(str, sys.version_info[:3]))
    needed = importlib.metadata.metadata("cdc-assets")["Requires-Python"]
    fits = SpecifierSet(needed).contains(version)
    yield finding("python", fits, f"{version} at {sys.executable}", f"install Python {needed}")


def packages(context: Context) -> Iterator[Finding]:
    """The installed packages are those that cdc-assets requires."""
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
    remedy = "install cdc-assets again, or create the environment again (make setup)"
    found = "; ".join(wrong) or f"{len(needed)} packages fit"
    yield finding("packages", not wrong, found, remedy)
    spark = importlib.metadata.version("pyspark")
    runtime = PACKAGES[0].split(":")[1]
    pair = f"pyspark {spark} with {runtime} {PACKAGES[0].split(':')[2]}"
    fits = f"runtime-{'.'.join(spark.split('.')[:2])}_" in runtime
    yield finding("packages", fits, pair, "install the pyspark that Iceberg's runtime is built for")


def java(context: Context) -> Iterator[Finding]:
    """Java is new enough and complete; the class archive and the reader of JSON exist."""
    try:
        found_java = require_java()
        yield Finding("java", Status.ok, str(found_java))
    except JavaError as error:
        yield Finding("java", Status.problem, error.found, error.remedy)
        return
    has = "jdk.incubator.vector" in _output(found_java.path, "--list-modules")
    found = f"module jdk.incubator.vector is {'there' if has else 'missing'}"
    yield finding("java", has, found, "Spark needs it: install a full JRE or JDK")
    archive = class_archive()
    if archive.is_file():
        yield Finding("java", Status.ok, f"Spark's classes are loaded from the archive {archive}")
    else:
        remedy = "python -m cdc_assets.warm creates it, in a minute"
        yield Finding("java", Status.ok, f"no class archive {archive}: Spark starts slower", remedy)
    if jar := json_reader.find_jar():
        yield Finding("java", Status.ok, f"the reader of JSON is compiled: {jar}")
    else:
        found = f"the reader of JSON is not compiled: no {json_reader.jar_name()}"
        yield Finding("java", Status.ok, found, "the first Spark session compiles it, in a second")


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stderr + done.stdout


def jars(context: Context) -> Iterator[Finding]:
    """Spark has its jars, unmodified, or can download them."""
    folder = os.environ.get("CDC_SPARK_JARS")
    packages = packages_of(context.config) if context.config else PACKAGES
    names = [f"{artifact_of(p)}.jar" for p in packages]
    if folder:
        check_jars(Path(folder).glob("*.jar"))
        present = {jar.name for jar in Path(folder).glob("*.jar")}
        # Also as Ivy names them: <organisation>_<artifact>-<version>.jar.
        missing = [n for n in names if not any(j == n or j.endswith(f"_{n}") for j in present)]
        found = f"CDC_SPARK_JARS: {folder} holds {len(present)} jars"
        if missing:
            found, remedy = f"{found}, but not {', '.join(missing)}", "add the missing jars"
            yield Finding("jars", Status.problem, found, remedy)
        else:
            yield Finding("jars", Status.ok, found)
        return
    ivy = ivy_folder(context.config.spark if context.config else {})
    missing = [p for p in packages if not fetched_jar(p, ivy).exists()]
    check_jars(
        fetched_jar(p, ivy)
        for p in (*packages, *KAFKA_PACKAGES, *AVRO_PACKAGES, *POSTGRESQL_PACKAGES)
    )
    if missing:
        yield Finding(
            "jars",
            Status.warning,
            f"not yet in {ivy}: {', '.join(missing)}",
            "the first Spark session downloads them from a Maven repository; without a network "
            "put them into a folder and name it in CDC_SPARK_JARS",
        )
    else:
        yield Finding("jars", Status.ok, f"{len(names)} jars in {ivy}, by their SHA-256")


def dagster(context: Context) -> Iterator[Finding]:
    """The Dagster instance opens and its daemon runs."""
    home = os.environ.get(HOME)
    folder = dagster_home(config_path(context.config_file).parent)
    if home and not (folder.is_absolute() and folder.is_dir()):
        remedy = "name an existing folder by its absolute path"
        yield Finding("dagster", Status.problem, f"DAGSTER_HOME is {home}", remedy)
        return
    if not has_instance(folder):
        found = f"no dagster.yaml in {folder}"
        if not home:
            found += " and no DAGSTER_HOME: runs are not recorded"
        remedy = "set DAGSTER_HOME to the folder that holds it"
        yield Finding("dagster", Status.warning, found, remedy)
        if not home:
            return
    with open_instance(folder) as instance:
        runs = instance.get_runs_count()
        heartbeats = instance.get_daemon_heartbeats()
    yield Finding("dagster", Status.ok, f"{folder}: {runs} runs recorded")
    now = time.time()
    alive = [n for n, h in heartbeats.items() if now - h.timestamp < _HEARTBEAT_SECONDS]
    if alive:
        yield Finding("dagster", Status.ok, f"the daemon is running: {', '.join(sorted(alive))}")
    else:
        yield Finding(
            "dagster",
            Status.warning,
            "no daemon is running" if not heartbeats else "the daemon has stopped",
            "schedules, sensors and queued runs wait for it: dagster dev -w workspace.yaml, or "
            "dagster-daemon run",
        )
