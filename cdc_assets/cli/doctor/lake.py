"""Checks of the warehouse, the catalog and a Spark session that reads them."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress

from pyiceberg.table import Table

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import MissingTableError
from cdc_assets.cdc.java_errors import JAVA_ERRORS
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import TIMEZONE
from cdc_assets.cdc.lake.json_values import json_rows
from cdc_assets.cdc.lake.metadata import PyIcebergMetadata, day_commits, table_state
from cdc_assets.cdc.lake.pyiceberg_catalog import catalog_properties, open_table
from cdc_assets.cdc.lake.references import without_references
from cdc_assets.cdc.lake.rows import read_rows
from cdc_assets.cdc.lake.tables import LakeTable, known_tables, own_table
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.places import CATALOG
from cdc_assets.cdc.spark import build_session, spark_conf
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.cdc.state.epochs import SourceEpochs
from cdc_assets.cdc.state.judge import TABLE as EPOCHS
from cdc_assets.cli.doctor.findings import Context, Finding, Status
from cdc_assets.orchestration.execution.interrupts import interruptible

_FREE_BYTES = 5 * 1024**3


def warehouse(context: Context) -> Iterator[Finding]:
    """The warehouse can be written and has free space."""
    config = context.config
    if config is None:
        return
    if not config.lake.is_local:
        found = f"{config.lake.warehouse} is not a local folder; its free space is not checked"
        yield Finding("warehouse", Status.ok, found)
        return
    folder = config.lake.folder
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    found = f"{folder}" if existing == folder else f"{folder} will be created in {existing}"
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        remedy = f"make {existing} a folder that this user can write, or change lake.warehouse"
        found = f"{found}; {existing} can't be written"
        yield Finding("warehouse", Status.problem, found, remedy)
        return
    free = shutil.disk_usage(existing).free
    found = f"{found}; {free / 1024**3:.1f} GB free"
    if free >= _FREE_BYTES:
        yield Finding("warehouse", Status.ok, found)
    else:
        remedy = "free some space: cdc-assets maintain removes what has expired"
        yield Finding("warehouse", Status.warning, found, remedy)


def catalog(context: Context) -> Iterator[Finding]:
    """The catalog can be read, and its tables agree with the configuration."""
    config = context.config
    if config is None:
        return
    if not config.lake.catalog and not config.lake.sqlite_file.exists():
        found = f"no lake in {config.lake.warehouse} yet; the first run creates it"
        yield Finding("catalog", Status.ok, found)
        return
    if config.lake.catalog:
        from pyiceberg.catalog import load_catalog

        properties = catalog_properties(config)
        namespaces = load_catalog(CATALOG, **properties).list_namespaces()
        kind = config.lake.catalog.get("type") or config.lake.catalog["catalog-impl"]
        yield Finding("catalog", Status.ok, f"{kind}: {len(namespaces)} namespaces")
    count, conflicts = 0, []
    for table in known_tables(config):
        try:
            opened = open_table(config, table)
        except MissingTableError:
            continue
        count += 1
        conflicts += list(_conflicts(config, table, opened))
    if not config.lake.catalog:
        yield Finding("catalog", Status.ok, f"SQLite in {config.lake.warehouse}: {count} tables")
    yield from conflicts


def _conflicts(config: Config, table: LakeTable, opened: Table) -> Iterator[Finding]:
    zone = opened.properties.get(TIMEZONE, config.timezone)
    if zone != config.timezone:
        yield Finding(
            "catalog",
            Status.problem,
            f"timezone: got {config.timezone}, but the days of {table} are cut in {zone}",
            f"set timezone: {zone}, or use another warehouse",
        )
    if table == own_table(table.source, "changes"):
        yield from _made_by_other_rules(config, table.source)
    if not table.kind.is_own:
        days = table.kind.days(table_state(opened))
        start = config.start_of(table.source, table.of)
        if days and days[0] < start:
            yield Finding(
                "catalog",
                Status.problem,
                f"{table}: start_date {start} is later than {days[0]}, which is made already",
                f"set start_date: {days[0]}, or drop the table first",
            )


def _made_by_other_rules(config: Config, source: str) -> Iterator[Finding]:
    """Days whose changes an older version or configuration made; runs leave them."""
    lake = PyIcebergMetadata(config)
    earlier = ChangesStage(config, source).made_by_other_rules(lake)
    if not earlier:
        return
    made, landing = (lake.day_commits(source, stage) for stage in ("changes", "landing"))
    gone = [day for day in earlier if day not in landing or landing[day].removed is not None]
    remakable = [day for day in earlier if day not in gone]
    remedy = "their landing is gone: nothing can make them again"
    if remakable:
        remedy = (
            f"they stand; to make them, and all later days of their tables, again: cdc-assets run "
            f"--source {source} --from {remakable[0]} --to {max(made)}"
        )
        if gone:
            remedy += f" (the landing of {len(gone)} earlier ones is gone)"
    yield Finding(
        "catalog",
        Status.warning,
        f"{source}: {len(earlier)} days, {earlier[0]} to {earlier[-1]}, were made by earlier rules",
        remedy,
    )


def epochs(context: Context) -> Iterator[Finding]:
    """The servers whose positions each source has: takeovers found or configured."""
    config = context.config
    for source, settings in config.sources.items() if config else ():
        check = f"servers of {source}"
        if not settings.finds_epochs:
            found = f"position_reset names {len(settings.resets)} takeovers; none is looked for"
            yield Finding(check, Status.ok, found)
            continue
        assert config is not None
        takeovers = known_epochs(config, source).in_words
        for found in takeovers or ["no other one has taken over so far"]:
            yield Finding(check, Status.ok, found)


def known_epochs(config: Config, source: str) -> SourceEpochs:
    """The stored epochs of a source; none before its first day."""
    table = own_table(source, EPOCHS)
    try:
        opened = open_table(config, table)
    except MissingTableError:
        return SourceEpochs()
    newest = max(day_commits(opened), default=None)
    if newest is None:
        return SourceEpochs()
    rows = read_rows(config, table, newest)
    (streams,) = (row["streams"] for row in json_rows(rows))
    return SourceEpochs.read(json.loads(streams))


def spark(context: Context) -> Iterator[Finding]:
    """A Spark session starts with all settings and jars, and reads the catalog."""
    config = context.config
    if config is None:
        return
    if context.quick:
        spark_conf(config)
        yield Finding("spark", Status.ok, "not started (--quick)")
        return
    began = time.monotonic()
    context.spark = session = interruptible(build_session, config)
    version, seconds = session.version, time.monotonic() - began
    count = interruptible(lambda: session.sql(f"SHOW NAMESPACES IN {CATALOG}").count())
    found = f"{version} started in {seconds:.0f} s and sees {count} namespaces of the catalog"
    yield Finding("spark", Status.ok, found)
    if config.lake.catalog:
        yield interruptible(references, Lake(session, config))


def references(lake: Lake) -> Finding:
    """The catalog keeps branches and tags: tested with a table that is dropped again."""
    namespace = quote(CATALOG, "cdc_assets_doctor")
    name = f"{namespace}.{quote(f'references_{uuid.uuid4().hex[:8]}')}"
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    lake.spark.sql(f"CREATE TABLE {name} (id INT) USING iceberg")
    try:
        transaction = lake.handle(name).newTransaction()
        transaction.newAppend().commit()
        snapshot = transaction.table().currentSnapshot().snapshotId()
        change = transaction.manageSnapshots()
        change.createBranch("a_branch", snapshot).createTag("a_tag", snapshot).commit()
        transaction.commitTransaction()
        state = lake.read_state(name)
        has_references = {"a_branch", "a_tag"} <= (state.refs.keys() if state else set())
    finally:
        lake.spark.sql(f"DROP TABLE {name} PURGE")
        with suppress(*JAVA_ERRORS):  # another doctor has a table in it
            lake.spark.sql(f"DROP NAMESPACE {namespace}")
    if has_references:
        return Finding("catalog", Status.ok, "the catalog keeps branches and tags of tables")
    found, _, remedy = without_references(lake.config).partition(": ")
    return Finding("catalog", Status.problem, found, remedy)
