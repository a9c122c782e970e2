"""By which source's settings landed records are read: a named one, a folder's, or a bare format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cdc_assets.cdc.config import FORMATS, Config, SourceConfig, local_path, parse_config
from cdc_assets.cdc.errors import ConfigError


@dataclass(frozen=True)
class Rules:
    """The source by whose rules a file is read, and the configuration that it is from."""

    name: str
    source: SourceConfig
    config: Config
    is_bare: bool = False  # a format alone, without cdc.yaml


def rules_of_source(config: Config, name: str | None, file: Path) -> Rules:
    """The rules of a named source, else of the one in whose landing folder the file lies.

    Raises:
        ConfigError: there is no such source.
    """
    if name is not None:
        return Rules(name, config.source(name), config)
    for known, source in config.sources.items():
        if source.landing.files is None:
            continue
        folder = local_path(source.landing.files)
        if file.resolve().is_relative_to(folder.resolve()):
            return Rules(known, source, config)
    raise ConfigError(
        [
            f"{file} is not in the landing folder of a source; name its source or format: "
            f"--source {' | '.join(config.sources)}, or --format-of {'|'.join(FORMATS)}"
        ]
    )


def rules_of_format(name: str, file: Path) -> Rules:
    """The rules of a format alone: no table is configured, nothing of cdc.yaml is read.

    Raises:
        ConfigError: there is no such format.
    """
    raw = {
        "start_date": "2000-01-01",
        "sources": {"file": {"format": name, "landing": {"files": str(file.parent)}}},
    }
    try:
        config = parse_config(raw, file.parent)
    except ConfigError as error:
        raise ConfigError(
            [f"--format-of: got {name!r}; expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"]
        ) from error
    return Rules(name, config.sources["file"], config, is_bare=True)
