"""`cdc-assets discover`: from landings to the `sources:` block that reads them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import yaml
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
from cdc_assets.cdc.discovery.evidence import Findings, look_at
from cdc_assets.cdc.discovery.proposals import (
    Proposal,
    by_pattern,
    listed,
    notes_of,
    pattern_of,
    propose,
)
from cdc_assets.cdc.errors import ConfigError, LandingError, RegistryError
from cdc_assets.cdc.java_errors import causes
from cdc_assets.cdc.lake.errors import is_landing_read
from cdc_assets.cdc.landing.files import LANDED, day_of, list_day, read_days, unreadable
from cdc_assets.cdc.landing.kafka import read_latest
from cdc_assets.cdc.landing.kafka_client import failed
from cdc_assets.cdc.names import TableName
from cdc_assets.cli.inspect import NO_DAY, read_file

KAFKA_RECORDS = 1000
REGISTRY = "--registry"
_ENCODED = "registry_encoded"
_TOLD = {"url", "files", "ca"}  # of a registry


@dataclass(frozen=True)
class Place:
    """What to look at: a landing folder, one of its days or files; and for which source."""

    name: str
    landing: str  # the landing folder as cdc.yaml should write it
    folder: str | None  # None: `file` alone
    file: Path | None = None
    day: date | None = None  # only this day
    source: SourceConfig | None = None  # where cdc.yaml has the source already
    named_registry: RegistryConfig | None = None  # in the place of the source's own

    @property
    def kafka(self) -> KafkaConfig | None:
        """Where the source's topics are, of a source that is read from Kafka."""
        return self.source.landing.kafka if self.source else None

    @property
    def registry(self) -> RegistryConfig | None:
        """The schema registry that the records are decoded by."""
        own = self.source.landing.registry if self.source else None
        return self.named_registry or own

    @property
    def landing_block(self) -> dict[str, Any]:
        """The `landing:` block; options of Kafka and logins, secret or not, stay in cdc.yaml."""
        if self.kafka is None:
            block: dict[str, Any] = {"files": self.landing}
        else:
            kafka = self.kafka.model_dump(mode="json", exclude={"options"}, exclude_unset=True)
            block = {"kafka": kafka}
        if self.registry is not None:
            told = self.registry.model_dump(mode="json", include=_TOLD, exclude_none=True)
            files = {name: _as_written(path) for name, path in told.items() if name != "url"}
            block["registry"] = {**told, **files}
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
        source = config.sources[text]
        folder = source.landing.files
        if folder is None:
            return Place(name or text, _topics(source), None, source=source), config
        return Place(name or text, _as_written(folder), folder, source=source), config
    path = Path(text)
    if not path.exists():
        known = f"no source: {fault}" if fault else f"no source of cdc.yaml ({_listed(config)})"
        raise ConfigError([f"{text} is no file or folder, and {known}"])
    place = _place(path.resolve(), name)
    if config is None:
        bare = {"format": "debezium", "landing": {"files": place.landing}}
        raw = {"start_date": NO_DAY, "sources": {place.name: bare}}
        config = parse_config(raw, Path.cwd())
    return place, config


def _topics(source: SourceConfig) -> str:
    kafka = source.landing.kafka
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


def _as_written(folder: str) -> str:
    """A local folder as seen from here, else whole."""
    here = Path.cwd()
    path = Path(folder)
    return str(path.relative_to(here)) if path.is_relative_to(here) else folder


def read_place(spark: SparkSession, place: Place, days: int | None) -> DataFrame:
    """The landing rows of a place (`LANDING`), of its newest `days` days or of all.

    Of Kafka they are the newest `KAFKA_RECORDS` of each partition.

    Raises:
        LandingError: there is nothing to read, or a file is of another kind.
    """
    if place.kafka is not None:
        return read_latest(spark, place.name, place.kafka, KAFKA_RECORDS)
    if place.file is not None:
        return read_file(spark, place.file, place.name)
    folder = str(place.folder)
    wanted = [place.day] if place.day else landed_days(spark, folder)
    found = [list_day(spark, place.name, folder, day) for day in wanted[-(days or 0) :]]
    if not any(day.files for day in found):
        raise LandingError(
            place.name,
            f"{folder} holds no landed day; expected "
            "<folder>/<YYYY-MM-DD>/*.jsonl, *.jsonl.gz or *.parquet",
        )
    return read_days(spark, place.name, found)


def local_files(place: Place, days: int | None) -> list[Path] | None:
    """The files of a place that are read; None where they are not on this machine."""
    if place.file is not None:
        return [place.file]
    if place.folder is None or ("://" in place.folder and not place.folder.startswith("file:")):
        return None
    folder = local_path(place.folder)
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
            place.name,
            f"the schema registry {error.what} ({error.url}). Try the address, or correct {where}",
        ) from error
    except (PySparkException, Py4JJavaError) as error:
        if place.kafka is not None:
            raise failed(place.name, place.kafka, error) from None
        if any(map(is_landing_read, causes(error))):
            raise unreadable(place.name, error) from error
        raise


def discover_rows(rows: DataFrame, place: Place, limit: int | None = None) -> Findings:
    """As :func:`discover`, of landing rows (`LANDING`) from wherever they are.

    Raises:
        LandingError: no record is understood in any format.
        RegistryError: the schema registry does not answer.
    """
    if limit is not None:
        rows = rows.limit(limit)
    placeholder = place.source.unavailable_value if place.source else None
    found = look_at(rows, place.name, placeholder, place.registry)
    if not found.records:
        raise LandingError(place.name, f"{place.landing} holds no records yet")
    if not found.tables and not found.control:
        if encoded := _encoded(found, place):
            raise LandingError(
                place.name,
                f"no record of {place.landing} is a change event of a known format. {encoded}",
            )
        tried = "; ".join(f"{t.format}: {listed(t.reasons)}" for t in found.tried)
        raise LandingError(
            place.name,
            f"no record of {place.landing} is a change event of a known format ({tried}). "
            "cdc-assets inspect FILE --format-of FORMAT says what each record is",
        )
    return found


def _encoded(found: Findings, place: Place) -> str | None:
    """That records were written with a schema registry and are not decoded, and what to do."""
    bad = found.bad.get(_ENCODED)
    if bad is None:
        return None
    says = f"{bad.count} of {found.records} records were written with a schema registry"
    if place.registry is not None:
        return f"{says} and can't be decoded, such as {bad.example}"
    in_yaml = "set landing.registry of the source in cdc.yaml, or " if place.source else ""
    return f"{says}: {in_yaml}name it with {REGISTRY} https://registry:8081"


# --- what is printed


def proposed(found: Findings, place: Place) -> dict[str, Any]:
    """The `sources:` block as plain values."""
    proposals = [p for p in propose(found) if not p.blocked]
    namespaces = by_pattern(proposals)
    tables = {
        **{pattern_of(n, of[0].database): {} for n, of in namespaces.items()},
        **{p.key: p.config for p in proposals if _is_listed(p, namespaces)},
    }
    source = {"format": found.format, "landing": place.landing_block, "tables": tables}
    return {"sources": {place.name: source}}


def as_yaml(found: Findings, place: Place, bounds: Sequence[str] = ()) -> str:
    """The `sources:` block with all that was judged as comments.

    Args:
        found: of the place.
        place: names the source.
        bounds: what was left unread.
    """
    lines = [*_comments(_head(found, place, bounds), ""), "sources:", f"  {_bare(place.name)}:"]
    source = {"format": found.format, "landing": place.landing_block}
    lines += _dumped(source, "    ")
    proposals = propose(found)
    lines.append("    tables:" if any(not p.blocked for p in proposals) else "    tables: {}")
    indent, namespaces = "      ", by_pattern(proposals)
    for namespace, tables in namespaces.items():
        own = sum(_is_listed(p, namespaces) for p in tables)
        lines += _comments([_adopts(tables, own)], indent)
        lines += _dumped({pattern_of(namespace, tables[0].database): {}}, indent)
    for proposal in proposals:
        if not (proposal.blocked or _is_listed(proposal, namespaces)):
            continue
        notes = [_seen(proposal), *proposal.notes, *_against(proposal, place)]
        if proposal.blocked:
            notes = [f"{proposal.table.name}: {proposal.blocked}", *notes]
            lines += _comments(notes, indent)
            continue
        lines += _comments(notes, indent)
        lines += _dumped({proposal.key: proposal.config}, indent)
    if place.source:
        gone = sorted(set(place.source.tables) - set(found.tables))
        lines += _comments(
            [f"{name}: in cdc.yaml, but nothing of it landed" for name in gone], "      "
        )
    return "\n".join(lines) + "\n"


def _is_listed(proposal: Proposal, namespaces: Collection[str]) -> bool:
    """Whether a table has a line of its own: no pattern has its namespace, or it needs settings."""
    is_adopted = TableName.parse(proposal.table.name).namespace in namespaces
    return not is_adopted or proposal.needs_settings


def _adopts(tables: Sequence[Proposal], own: int) -> str:
    records = sum(p.table.records for p in tables)
    says = f"{len(tables)} tables, {records} records: adopts these and each that lands later"
    return f"{says}; {own} with settings of their own follow" if own else says


def as_rows(found: Findings, place: Place) -> Iterator[dict[str, Any]]:
    """A JSON object a table: what was seen, the settings proposed, and the notes."""
    for proposal in propose(found):
        table = proposal.table
        yield {
            "source": place.name,
            "format": found.format,
            "landing": place.landing,
            "table": proposal.key,
            "records": table.records,
            "ops": dict(table.ops),
            "first_day": _shown_day(table.first),
            "last_day": _shown_day(table.last),
            "topics": sorted(table.topics),
            "config": proposal.config,
            "blocked": proposal.blocked,
            "notes": [*proposal.notes, *_against(proposal, place)],
        }


def notes(found: Findings, place: Place, bounds: Sequence[str] = ()) -> list[str]:
    """What is said of the landing as a whole, where no YAML carries it."""
    return [_one_line(note) for note in _head(found, place, bounds)]


def _head(found: Findings, place: Place, bounds: Sequence[str]) -> list[str]:
    said = [f"{place.name}: {_days(found.first, found.last)} in {place.landing}", *bounds]
    said += notes_of(found)
    if place.registry is None and (encoded := _encoded(found, place)):
        said.append(encoded)
    if place.registry is not None and (place.registry.username or place.registry.token):
        said.append("the login of landing.registry is not printed: keep it")
    if place.source and place.source.format != found.format:
        said.append(f"cdc.yaml says format {place.source.format}")
    if place.source:
        said.append("other settings of this source in cdc.yaml are not repeated here: keep them")
    elif found.first and found.first != NO_DAY:
        said.append(f"a new cdc.yaml also needs a line such as: start_date: {found.first}")
    return said


def _seen(proposal: Proposal) -> str:
    table = proposal.table
    topics = ", ".join(sorted(table.topics))
    return (
        f"{table.records} records ({listed(table.ops)}), {_days(table.first, table.last)}, "
        f"topic {topics}"
    )


def _against(proposal: Proposal, place: Place) -> list[str]:
    if place.source is None:
        return []
    name = proposal.table.name
    if name in place.source.tables:
        return []
    pattern = place.source.pattern_of(name)
    if pattern is None:
        return ["not in cdc.yaml yet"]
    excluded = place.source.table_patterns[pattern] is None
    return [f"cdc.yaml {'excludes' if excluded else 'adopts'} it by {pattern}"]


def _days(first: date | None, last: date | None) -> str:
    if first is None or first == NO_DAY:
        return "no landing day"
    return str(first) if first == last else f"{first} to {last}"


def _shown_day(day: date | None) -> str | None:
    return None if day is None or day == NO_DAY else str(day)


# --- YAML


class _Dumper(yaml.SafeDumper):
    """Block style, lists of plain values in one line, odd names escaped in double quotes."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=True)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)


def _dumped(value: dict[str, Any], indent: str) -> list[str]:
    # No scalar spans lines (odd texts are escaped), so that indenting them is safe.
    text = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False,
        width=sys.maxsize,
    )  # fmt: skip
    return [indent + line for line in text.rstrip("\n").split("\n")]


def _bare(name: str) -> str:
    """A source's name as a YAML key; words such as `on` need quotes."""
    return name if yaml.safe_load(name) == name else f'"{name}"'


def _comments(texts: Sequence[str], indent: str) -> list[str]:
    return [f"{indent}# {_one_line(text)}" for text in texts]


def _one_line(text: str) -> str:
    """Texts from data on one line: what is not printable is shown as an escape."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
