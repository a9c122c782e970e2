"""The settings that a landed file is read by: a named source's, its folder's, or a format's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cdc_assets.cdc.config import FORMATS, Config, SourceConfig, local_path, parse_config
from cdc_assets.cdc.errors import ConfigError


@dataclass(frozen=True)
class Rules:
    """The source whose settings a file is read by, and the configuration that has it."""

    source: str
    settings: SourceConfig
    config: Config
    is_bare: bool = False  # a format alone, without cdc.yaml


def rules_of_source(config: Config, source: str | None, file: Path) -> Rules:
    """The rules of a named source, else of the source whose landing folder has the file.

    Raises:
        ConfigError: there is no such source.
    """
    if source is not None:
        return Rules(source, config.source(source), config)
    for known, settings in config.sources.items():
        if settings.landing.files is None:
            continue
        folder = local_path(settings.landing.files)
        if file.resolve().is_relative_to(folder.resolve()):
            return Rules(known, settings, config)
    raise ConfigError(
        [
            f"{file} is not in the landing folder of a source; name its source or format: "
            f"--source {' | '.join(config.sources)}, or --format-of {'|'.join(FORMATS)}"
        ]
    )


def rules_of_format(name: str, file: Path) -> Rules:
    """The rules of a format alone, without tables and without cdc.yaml.

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
