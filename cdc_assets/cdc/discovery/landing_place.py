"""The place that `cdc-assets discover` reads: a landing folder, a day, a file, or topics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pydantic import ValidationError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.cdc.config import (
    Config,
    KafkaConfig,
    RegistryConfig,
    SourceConfig,
    load_config,
    local_path,
    parse_config,
)
from cdc_assets.cdc.discovery.evidence import Findings, examine
from cdc_assets.cdc.discovery.proposals import listed
from cdc_assets.cdc.errors import ConfigError, LandingError, RegistryError
from cdc_assets.cdc.java_errors import causes
from cdc_assets.cdc.lake.errors import is_landing_read
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets.cdc.landing.files import (
    LANDED,
    NO_DAY,
    day_of,
    list_day,
    read_days,
    read_file,
    unreadable,
)
from cdc_assets.cdc.landing.kafka import read_latest
from cdc_assets.cdc.landing.kafka_client import failed
from cdc_assets.cdc.landing.open_tables import open_tables
from cdc_assets.cdc.landing.recognition import recognise, seen_in
from cdc_assets.cdc.landing.sink_files import SinkFolder
from cdc_assets.cdc.landing.sink_records import SinkRecords
from cdc_assets.cdc.landing.source_tables import SourceTable
from cdc_assets.cdc.landing.table_records import TableRecords

KAFKA_RECORDS = 1000
TABLE_RECORDS = 20_000
REGISTRY = "--registry"
_ENCODED = "registry_encoded"
_SHOWN = {"url", "files", "ca"}  # of a registry


@dataclass(frozen=True)
class Place:
    """The landing folder, or one of its days or files, to look at, and its source."""

    source: str
    landing: str  # the landing folder as cdc.yaml should write it
    folder: str | None  # None: `file` alone
    file: Path | None = None
    day: date | None = None  # only this day
    settings: SourceConfig | None = None  # where cdc.yaml has the source already
    named_registry: RegistryConfig | None = None  # replaces the source's own
    tables: Sequence[SourceTable] | None = None  # where the source's records are, if in tables
    sink: SinkFolder | None = None  # where they are, if in files that a sink wrote
    notes: Sequence[str] = ()  # what the files are, and what they lack

    @property
    def kafka(self) -> KafkaConfig | None:
        """Where the source's topics are; None where it is not read from Kafka."""
        return self.settings.landing.kafka if self.settings else None

    @property
    def registry(self) -> RegistryConfig | None:
        """The schema registry that the records are decoded by."""
        own = self.settings.landing.registry if self.settings else None
        return self.named_registry or own

    @property
    def landing_block(self) -> dict[str, Any]:
        """The `landing:` block; options of Kafka and logins, secret or not, stay in cdc.yaml."""
        if self.sink is not None:
            block: dict[str, Any] = self.sink.settings.model_dump(
                mode="json", include=self.sink.settings.model_fields_set - {"registry"}
            )
            block["files"] = self.landing
        elif self.settings is not None and self.tables is not None:
            written = self.settings.landing.model_fields_set - {"registry"}
            block = self.settings.landing.model_dump(mode="json", include=written)
        elif self.kafka is None:
            block = {"files": self.landing}
        else:
            kafka = self.kafka.model_dump(mode="json", exclude={"options"}, exclude_unset=True)
            block = {"kafka": kafka}
        if self.registry is not None:
            shown = self.registry.model_dump(mode="json", include=_SHOWN, exclude_none=True)
            files = {name: _as_written(path) for name, path in shown.items() if name != "url"}
            block["registry"] = {**shown, **files}
        return block


# --- what to look at


def resolve(
    text: str, config_file: str | None, name: str | None, registry: str | None = None
) -> tuple[Place, Config]:
    """The place that SOURCE_OR_PATH names, and the configuration whose Spark settings hold.

    A source of cdc.yaml comes first; a path needs no cdc.yaml. `registry` is the URL of a schema
    registry.

    Raises:
        ConfigError: it is neither a source nor a path, `name` can't be a source's, or `registry`
            no registry's.
        LandingError: a table of the source can't be opened.
    """
    place, config = _resolve(text, config_file, name)
    return replace(place, named_registry=_registry_at(registry)), config


def _registry_at(url: str | None) -> RegistryConfig | None:
    try:
        return None if url is None else RegistryConfig(url=url)
    except ValidationError:
        raise ConfigError(
            [
                "--registry: expected a URL such as https://registry:8081, without a login; "
                "a login belongs to landing.registry of a source in cdc.yaml"
            ]
        ) from None


def _resolve(text: str, config_file: str | None, name: str | None) -> tuple[Place, Config]:
    if name is not None and not _SOURCE_NAME.fullmatch(name):
        raise ConfigError([f"--name {name!r}: a source's name is letters, digits and _"])
    config, fault = None, None
    try:
        config = load_config(config_file)
    except ConfigError as error:
        if config_file is not None:
            raise
        fault = error
    if config and text in config.sources:
        settings = config.sources[text]
        folder = settings.landing.files
        if folder is None:
            table = settings.landing.table_name
            tables = open_tables(config, text) if table else None
            shown = table or _topics(settings)
            return Place(name or text, shown, None, settings=settings, tables=tables), config
        sink = SinkFolder(config, text) if settings.landing.file_layout else None
        place = Place(name or text, _as_written(folder), folder, settings=settings, sink=sink)
        return place, config
    path = Path(text)
    is_remote = "://" in text
    if not is_remote and not path.exists():
        known = f"no source: {fault}" if fault else f"no source of cdc.yaml ({_listed(config)})"
        raise ConfigError([f"{text} is no file or folder, and {known}"])
    place = _remote_place(text, name) if is_remote else _place(path.resolve(), name)
    if place.file is None and place.day is None:
        place = _with_sink(place)
    if config is None:
        bare = {"format": "debezium", "landing": place.landing_block}
        raw = {"start_date": NO_DAY, "sources": {place.source: bare}}
        config = parse_config(raw, Path.cwd())
    return place, config


def _topics(settings: SourceConfig) -> str:
    kafka = settings.landing.kafka
    assert kafka is not None
    return f"{', '.join(kafka.topics) or kafka.topic_pattern} at {kafka.bootstrap_servers}"


def _listed(config: Config | None) -> str:
    return ", ".join(config.sources) if config else ""


_SOURCE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _place(path: Path, name: str | None) -> Place:
    day = path if path.is_dir() else path.parent
    landed = day_of(day.name)
    folder = day.parent if landed else day
    own = re.sub(r"[^A-Za-z0-9_]", "_", folder.name)
    own = name or (own if _SOURCE_NAME.fullmatch(own) else f"source_{own}".rstrip("_"))
    landing = _as_written(str(folder))
    if path.is_file():
        return Place(own, landing, None, file=path)
    return Place(own, landing, str(folder), day=landed)


def _remote_place(url: str, name: str | None) -> Place:
    return Place(name or "source", url, url)


def _with_sink(place: Place) -> Place:
    """The place, read as the sink that its files' names tell has left them, if one does.

    Raises:
        LandingError: a folder of a store can't be listed, or nothing in it is known.
    """
    folder = str(place.folder)
    try:
        found = recognise(folder, place.source)
        if found is None and "://" not in folder:
            return place
        seen = seen_in(folder) if found is None else []
    except (OSError, ValueError) as error:  # ValueError: of a URL that PyArrow does not know
        raise LandingError(
            place.source,
            f"the landing folder {folder} can't be listed ({error}). See that it is there and that "
            "this user may read it",
            folder,
        ) from error
    if found is None:
        if any(day_of(path.split("/")[0]) for path in seen):
            return place
        more = f" and {len(seen) - 3} more" if seen[3:] else ""
        raise LandingError(
            place.source,
            f"{folder} holds nothing that is known, but {', '.join(seen[:3]) or 'no file'}{more}; "
            "expected folders named YYYY-MM-DD, or files as Kafka Connect's sinks, Event Hubs "
            "Capture or Firehose name them. Name how they are named in landing.path",
            folder,
        )
    landing = {"files": folder, **found.landing}
    source = {"format": "debezium", "landing": landing}
    config = parse_config({"start_date": NO_DAY, "sources": {place.source: source}}, Path.cwd())
    notes = (found.text, *found.lacks)
    return replace(place, sink=SinkFolder(config, place.source), notes=notes)


def _as_written(folder: str) -> str:
    """A folder relative to the current one where it is inside, else whole."""
    here = Path.cwd()
    path = Path(folder)
    return str(path.relative_to(here)) if path.is_relative_to(here) else folder


def read_place(spark: SparkSession, place: Place, days: int | None) -> DataFrame:
    """The landing rows of a place (`LANDING`), from its newest `days` days or from all.

    Kafka gives the newest `KAFKA_RECORDS` of each partition, a table some `TABLE_RECORDS`.

    Raises:
        LandingError: there is nothing to read, or a file is of another kind.
    """
    if place.kafka is not None:
        return read_latest(spark, place.source, place.kafka, KAFKA_RECORDS)
    if place.tables is not None:
        assert place.settings is not None  # which names them
        records = TableRecords(spark, place.source, place.settings.landing, place.tables)
        return records.some(TABLE_RECORDS)
    if place.file is not None:
        return read_file(spark, place.file, place.source)
    if place.sink is not None:
        return _read_sink(spark, place.sink, days)
    folder = str(place.folder)
    wanted = [place.day] if place.day else landed_days(spark, folder)
    found = [list_day(spark, place.source, folder, day) for day in wanted[-(days or 0) :]]
    if not any(day.files for day in found):
        raise LandingError(
            place.source,
            f"{folder} holds no landed day; expected "
            "<folder>/<YYYY-MM-DD>/*.jsonl, *.jsonl.gz or *.parquet",
        )
    return read_days(spark, place.source, found)


def _read_sink(spark: SparkSession, sink: SinkFolder, days: int | None) -> DataFrame:
    newest = sorted(sink.see_days())[-(days or 0) :]
    if not newest:
        sink.refuse_other_layout()
        raise LandingError(sink.source, f"{sink.folder} holds no landed file", sink.folder)
    return SinkRecords(spark, sink).read(sink.list_days(newest)).select(*LANDING.names)


def local_files(place: Place, days: int | None) -> list[Path] | None:
    """The files of a place that are read; None where they are not on this machine."""
    if place.file is not None:
        return [place.file]
    if place.folder is None or ("://" in place.folder and not place.folder.startswith("file:")):
        return None
    folder = local_path(place.folder)
    if place.sink is not None:
        return [path for path in folder.rglob("*") if path.is_file()]
    landed = sorted(path for path in folder.glob("*/") if day_of(path.name))
    wanted = [folder / str(place.day)] if place.day else landed[-(days or 0) :]
    return [file for day in wanted for file in day.glob("*") if file.name.endswith(LANDED)]


def landed_days(spark: SparkSession, folder: str) -> list[date]:
    """The days that have a folder in a landing folder, oldest first; none where it is missing."""
    jvm: Any = spark._jvm
    jsc: Any = spark._jsc
    root = jvm.org.apache.hadoop.fs.Path(folder)
    system = root.getFileSystem(jsc.hadoopConfiguration())
    names = [s.getPath().getName() for s in system.listStatus(root)] if system.exists(root) else []
    return sorted(filter(None, (day_of(name) for name in names)))


def discover(
    spark: SparkSession, place: Place, days: int | None = None, limit: int | None = None
) -> Findings:
    """Look at a place; `days` and `limit` (records) bound what is read.

    Raises:
        LandingError: nothing to read, a file can't be read whole, no record is understood, or the
            schema registry does not answer.
    """
    rows = read_place(spark, place, days)
    try:
        return discover_rows(rows, place, limit)
    except RegistryError as error:
        own = "landing.registry of the source in cdc.yaml"
        where = REGISTRY if place.named_registry else own
        raise LandingError(
            place.source,
            f"the schema registry {error.what} ({error.url}). Try the address, or correct {where}",
        ) from error
    except (PySparkException, Py4JJavaError) as error:
        if place.kafka is not None:
            raise failed(place.source, place.kafka, error) from None
        if any(map(is_landing_read, causes(error))):
            raise unreadable(place.source, error) from error
        raise


def discover_rows(rows: DataFrame, place: Place, limit: int | None = None) -> Findings:
    """:func:`discover` for landing rows (`LANDING`) from any place.

    Raises:
        LandingError: no record is understood in any format.
        RegistryError: the schema registry does not answer.
    """
    if limit is not None:
        rows = rows.limit(limit)
    placeholder = place.settings.unavailable_value if place.settings else None
    found = examine(rows, place.source, placeholder, place.registry)
    if not found.records:
        raise LandingError(place.source, f"{place.landing} holds no records yet")
    if not found.tables and not found.control:
        if encoded := undecoded_note(found, place):
            raise LandingError(
                place.source,
                f"no record of {place.landing} is a change event of a known format. {encoded}",
            )
        tried = "; ".join(f"{t.format}: {listed(t.reasons)}" for t in found.tried)
        raise LandingError(
            place.source,
            f"no record of {place.landing} is a change event of a known format ({tried}). "
            "cdc-assets inspect FILE --format-of FORMAT says what each record is",
        )
    return found


def undecoded_note(found: Findings, place: Place) -> str | None:
    """A note on records that are not decoded by a schema registry, and what to do."""
    bad = found.bad.get(_ENCODED)
    if bad is None:
        return None
    says = f"{bad.count} of {found.records} records were written with a schema registry"
    if place.registry is not None:
        return f"{says} and can't be decoded, such as {bad.example}"
    in_yaml = "set landing.registry of the source in cdc.yaml, or " if place.settings else ""
    return f"{says}: {in_yaml}name it with {REGISTRY} https://registry:8081"
