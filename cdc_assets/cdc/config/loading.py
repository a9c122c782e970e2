"""Reading and checking cdc.yaml."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cdc_assets.cdc.config.faults import in_words
from cdc_assets.cdc.config.landing import LandingConfig, PathTableConfig
from cdc_assets.cdc.config.model import Config, LakeConfig
from cdc_assets.cdc.config.strict_yaml import YamlPath, read_yaml
from cdc_assets.cdc.errors import ConfigError

_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _expand(value: Any, path: str, faults: list[str]) -> Any:
    """Replace ``${NAME}`` in all texts; secrets can only be given like this."""
    if isinstance(value, str):

        def read(found: re.Match[str]) -> str:
            name = found.group(1)
            if name not in os.environ:
                faults.append(f"{path}: the environment variable {name} is not set")
            return os.environ.get(name, "")

        return _ENV.sub(read, value)
    if isinstance(value, dict):
        return {k: _expand(v, f"{path}.{k}" if path else str(k), faults) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v, f"{path}[{i}]", faults) for i, v in enumerate(value)]
    return value


_SECRETS = (("alerts", "slack", "token"), ("alerts", "email", "password"))


def _plain_secrets(raw: Mapping[str, Any]) -> list[str]:
    """Faults for secrets that are written in the file; they are not repeated."""
    faults = []
    for place in _SECRETS:
        value: Any = raw
        for name in place:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None and not (isinstance(value, str) and _ENV.fullmatch(value)):
            faults.append(
                f"{'.'.join(place)}: is written in the file; name an environment variable that "
                "holds it, as in ${NAME}"
            )
    return faults


def config_path(path: str | Path | None = None) -> Path:
    """The configuration file: the argument, else ``CDC_CONFIG``, else ``./cdc.yaml``."""
    return Path(path or os.environ.get("CDC_CONFIG") or "cdc.yaml").absolute()


def load_config(path: str | Path | None = None) -> Config:
    """Read and check cdc.yaml.

    Relative paths in it start at the file's folder; ``CDC_WAREHOUSE`` wins over
    ``lake.warehouse``.

    Raises:
        ConfigError: the file is missing, is not YAML, or breaks a rule; one line per fault.
    """
    file = config_path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            [
                f"can't be read ({error}); pass --config, set CDC_CONFIG, or run in the folder of "
                "cdc.yaml"
            ],
            str(file),
        ) from error
    found = read_yaml(text)
    if found.faults:
        raise ConfigError(found.faults, str(file))
    raw = found.value
    if not isinstance(raw, dict):
        raise ConfigError(["not a mapping; expected start_date, sources, …"], str(file))
    faults = _plain_secrets(raw)
    raw = _expand(raw, "", faults)
    if faults:
        raise ConfigError(faults, str(file))
    return parse_config(raw, file.parent, str(file), found.written)


def parse_config(
    raw: Mapping[str, Any],
    base: Path,
    name: str | None = None,
    written: Mapping[YamlPath, str] | None = None,
) -> Config:
    """Check a configuration that has been read.

    Args:
        raw: the file's content, environment variables replaced.
        base: where relative paths start.
        name: the file, for errors.
        written: values as the file has them; errors show these, and thus no secret.

    Raises:
        ConfigError: one line per fault, each with its path.
    """
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(
            [in_words(fault, written or {}) for fault in error.errors()], name
        ) from None
    return _anchored(config, base)


def _anchored_landing(landing: LandingConfig, base: Path) -> LandingConfig:
    found: dict[str, Any] = {}
    if landing.files is not None:
        found["files"] = _location(landing.files, base)
    if isinstance(landing.table, PathTableConfig):
        path = _location(landing.table.path, base)
        found["table"] = landing.table.model_copy(update={"path": path})
    if (registry := landing.registry) is not None:
        local: dict[str, Any] = {}
        if registry.files is not None:
            local["files"] = _location(registry.files, base)
        if registry.ca is not None:
            local["ca"] = str(base / registry.ca)
        found["registry"] = registry.model_copy(update=local)
    return landing.model_copy(update=found)


def _anchored(config: Config, base: Path) -> Config:
    warehouse = os.environ.get("CDC_WAREHOUSE") or config.lake.warehouse
    if not config.lake.model_copy(update={"warehouse": warehouse}).is_named:
        warehouse = _location(warehouse, base)
    sources = {
        source: settings.model_copy(update={"landing": _anchored_landing(settings.landing, base)})
        for source, settings in config.sources.items()
    }
    lake = LakeConfig.model_validate({**config.lake.model_dump(), "warehouse": warehouse})
    return config.model_copy(update={"lake": lake, "sources": sources})


def _location(place: str, base: Path) -> str:
    """A folder or URL; a relative folder starts at the configuration file's."""
    if "://" in place or place.startswith("file:"):
        return place.rstrip("/")
    return str((base / Path(place).expanduser()).resolve())
