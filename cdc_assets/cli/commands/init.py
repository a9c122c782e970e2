"""`cdc-assets init`: the files of a new project."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Sequence
from datetime import date, datetime, timezone
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cli.terminal import echo

if TYPE_CHECKING:
    from cdc_assets.cdc.landing.recognition import Recognised


def init(
    folder: Annotated[
        Path, typer.Argument(help="The project's folder; created if missing.", file_okay=False)
    ],
    source: Annotated[
        str, typer.Option("--source", metavar="NAME", help="Name of the source.")
    ] = "inventory",
    format_of: Annotated[
        str,
        typer.Option(
            "--format-of",
            metavar="FORMAT",
            help="Format of the events: debezium, debezium-flat, lindorm, dataworks, canal …",
        ),
    ] = "debezium",
    files: Annotated[
        str | None,
        typer.Option(
            "--files",
            metavar="PATH",
            help="Landing folder, with a folder per day (default: data/landing/NAME, created).",
        ),
    ] = None,
    landing_at: Annotated[
        str | None,
        typer.Option(
            "--landing",
            metavar="URL",
            help="Folder or URL of what a sink left; how its files are named is found out.",
        ),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", metavar="SERVERS", help="Kafka bootstrap servers, host:port,…"),
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option("--topics", metavar="LIST", help="Kafka topics, separated by commas."),
    ] = None,
) -> None:
    """Write cdc.yaml, workspace.yaml and dagster.yaml of a new project; overwrite nothing."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", source):
        raise typer.BadParameter(f"--source {source!r}: a source's name is letters, digits and _")
    if len(list(filter(None, (kafka, files, landing_at)))) > 1:
        raise typer.BadParameter("give one of --files, --landing and --kafka")
    if bool(kafka) != bool(topics):
        raise typer.BadParameter("--kafka and --topics belong together")
    folder = folder.absolute()
    own_files = f"data/landing/{source}"
    landing: dict[str, Any] = {"files": _as_written(files, folder) if files else own_files}
    if kafka and topics:
        listed = [topic.strip() for topic in topics.split(",")]
        if "" in listed:
            raise typer.BadParameter(f"--topics {topics!r} holds an empty name")
        landing = {"kafka": {"bootstrap_servers": kafka, "topics": listed}}
    first = _first_landed(Path(files)) if files else None
    notes: Sequence[str] = ()
    if landing_at:
        found = _recognised(landing_at, source)
        landing = {"files": _as_written(landing_at, folder), **found.landing}
        first = next(iter(found.days), None)
        notes = (f"found {found.text}", *found.lacks)
    texts = {
        "cdc.yaml": _cdc_yaml(source, format_of, landing, first),
        "workspace.yaml": _template("workspace.yaml"),
        "dagster.yaml": _template("dagster.yaml"),
    }
    _check(texts["cdc.yaml"])
    _write(folder, texts)
    if not kafka and not files and not landing_at:
        (folder / own_files).mkdir(parents=True, exist_ok=True)
    echo(f"wrote {', '.join(texts)} in {folder}", err=True)
    for note in notes:
        echo(note, err=True)
    echo(_next(folder, source, landing, first))


def _cdc_yaml(source: str, format_of: str, landing: dict[str, Any], first: date | None) -> str:
    # JSON is YAML, and quotes the values of options.
    lines = "\n".join(
        f"      {kind}: {json.dumps(value, ensure_ascii=False)}" for kind, value in landing.items()
    )
    if landing.keys() == {"files"}:
        lines += "   # <files>/<YYYY-MM-DD>/*.jsonl | .jsonl.gz | .parquet"
    return Template(_template("cdc.yaml")).substitute(
        source=source,
        format=json.dumps(format_of),
        landing=lines,
        start_date=first or datetime.now(timezone.utc).date(),
    )


def _template(name: str) -> str:
    return (resources.files("cdc_assets") / "templates" / name).read_text(encoding="utf-8")


def _as_written(files: str, folder: Path) -> str:
    """A landing folder as in cdc.yaml: relative to its folder if inside it, else absolute."""
    if "://" in files:
        return files
    path = Path(files).absolute()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _first_landed(folder: Path) -> date | None:
    """The first landed day of a local folder."""
    days = []
    for path in folder.glob("????-??-??/") if folder.is_dir() else ():
        try:
            days.append(date.fromisoformat(path.name))
        except ValueError:
            continue
    return min(days, default=None)


def _check(text: str) -> None:
    """Check that cdc.yaml is valid with the given names.

    Raises:
        ConfigError: it is not.
    """
    from cdc_assets.cdc.config import load_config

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cdc.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            load_config(file)
        except ConfigError as error:
            raise ConfigError(error.faults) from None


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write the files.

    Raises:
        ConfigError: one of them exists already, or the folder can't be written to.
    """
    if there := [name for name in texts if (folder / name).exists()]:
        raise ConfigError(
            [f"{folder} holds {', '.join(there)} already; nothing was written. Name another folder"]
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError([f"{folder} can't be written to: {error}"]) from error


def _next(folder: Path, source: str, landing: dict[str, Any], first: date | None) -> str:
    land = "see that the files are those of this source"
    if landing.keys() == {"files"}:
        land = "land a day's files in the folder YYYY-MM-DD there"
    elif "kafka" in landing:
        land = "start Kafka"
    day = first or "YYYY-MM-DD"
    return f"""next:
  cd {shlex.quote(str(folder))}
  # {land}, then
  cdc-assets discover {source}       # prints the tables: block for cdc.yaml
  cdc-assets doctor                  # Java, jars, cdc.yaml, landings: what is missing
  cdc-assets run --from {day}
  DAGSTER_HOME="$PWD" dagster dev -w workspace.yaml   # on http://127.0.0.1:3000; it has no login
  # once in each environment, a minute: Spark then starts in half the time
  python -m cdc_assets.warm"""


def _recognised(place: str, source: str) -> Recognised:
    """What a sink left in a folder or bucket."""
    from cdc_assets.cdc.landing.recognition import recognise, seen_in

    try:
        found = recognise(place, source)
        seen = seen_in(place) if found is None else []
    except (OSError, ValueError) as error:  # ValueError: of a URL that PyArrow does not know
        raise typer.BadParameter(f"--landing {place}: can't be listed ({error})") from error
    if found is None:
        more = f" and {len(seen) - 3} more" if seen[3:] else ""
        raise typer.BadParameter(
            f"--landing {place}: holds nothing that is known, but "
            f"{', '.join(seen[:3]) or 'no file'}{more}; expected files as Kafka Connect's sinks, "
            "Event Hubs Capture or Firehose name them. Use --files for folders named by day"
        )
    return found
