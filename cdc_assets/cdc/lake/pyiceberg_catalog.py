"""Tables opened with PyIceberg, from the catalog in cdc.yaml.

Functions import heavy libraries themselves, so that `cdc-assets show` answers in a second or two.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError, ConfigError, LakeError, MissingTableError, first_line
from cdc_assets.cdc.lake.tables import LakeTable
from cdc_assets.cdc.places import CATALOG

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_HAS_TABLES = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'iceberg_tables'"
_CATALOG_TYPES = {"rest": "rest", "glue": "glue", "hive": "hive", "jdbc": "sql"}


def open_table(config: Config, table: LakeTable) -> Table:
    """The table's metadata as PyIceberg's Table.

    Raises:
        MissingTableError: there is no lake yet, or no such table in it.
        LakeError: the catalog or the table's metadata can't be read.
    """
    if table.earlier:
        try:
            return open_table(config, replace(table, earlier=()))
        except MissingTableError:
            return open_table(config, replace(table, parts=table.earlier, earlier=()))
    if config.lake.catalog:
        return _from_catalog(config, table)
    from pyiceberg.table import StaticTable

    location = _sqlite_location(config, table)
    with readable_files(table):
        return StaticTable.from_metadata(location)


def missing_table(table: LakeTable) -> MissingTableError:
    """The error of a table that no run has made."""
    return MissingTableError(
        f"{table} is not in the lake yet. Make a day of it first: "
        f"cdc-assets run --source {table.source} --from D --to D"
    )


@contextmanager
def readable_files(table: LakeTable) -> Iterator[None]:
    """Turn errors of the file system or the object store into a :class:`LakeError`."""
    try:
        yield
    except OSError as error:
        raise LakeError(
            f"{table}: a file of it in the lake can't be read: {first_line(error)}. See that the "
            "warehouse is there and that this user may read it; restore a file that is gone"
        ) from error


def _sqlite_location(config: Config, table: LakeTable) -> str:
    """The location of the table's metadata, from the embedded catalog.

    Read without SQLAlchemy: PyIceberg's own SQL catalog would take most of the time of `show`.
    """
    file = config.lake.sqlite_file
    try:
        file.stat()
    except FileNotFoundError:
        raise _no_lake(config) from None
    except OSError as error:
        raise _unreadable(file, error) from error
    try:
        catalog = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=60)
        try:
            # The first run creates the file, and Iceberg its tables in it.
            if not catalog.execute(_HAS_TABLES).fetchone():
                raise _no_lake(config)
            row = catalog.execute(
                "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? "
                "AND table_namespace = ? AND table_name = ?",
                (CATALOG, ".".join(table.parts[:-1]), table.parts[-1]),
            ).fetchone()
        finally:
            catalog.close()
    except sqlite3.Error as error:
        raise _unreadable(file, error) from error
    if row is None:
        raise missing_table(table)
    return str(row[0])


def _unreadable(file: Path, error: Exception) -> LakeError:
    return LakeError(
        f"the catalog {file} can't be read: {error}. See that it is a file which this user may "
        "read and no program holds; restore a damaged one from a backup"
    )


def _no_lake(config: Config) -> MissingTableError:
    return MissingTableError(
        f"there is no lake in {config.lake.warehouse} yet. Make days first: "
        "cdc-assets demo, or cdc-assets run --from D --to D"
    )


def _from_catalog(config: Config, table: LakeTable) -> Table:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    properties = catalog_properties(config)
    try:
        catalog = load_catalog(CATALOG, **properties)
        if properties["type"] == "sql" and not _has_tables(catalog):
            raise missing_table(table)
        return catalog.load_table(table.parts)
    except CdcError:
        raise
    except NoSuchTableError:
        raise missing_table(table) from None
    except Exception as error:  # each catalog has a library and errors of its own
        raise LakeError(
            f"{table}: the catalog ({properties['type']}) can't be read: "
            f"{type(error).__name__}: {first_line(error)}. See that it is up, and that "
            "lake.catalog has its address and user"
        ) from error


def _has_tables(catalog: Any) -> bool:
    """False for a database in which no run has made Iceberg's tables yet."""
    from sqlalchemy import inspect

    return bool(inspect(catalog.engine).has_table("iceberg_tables"))


def catalog_properties(config: Config) -> dict[str, str]:
    """The settings `lake.catalog`, which have Spark's keys, with PyIceberg's keys.

    Raises:
        ConfigError: PyIceberg has no such catalog.
    """
    return _as_pyiceberg(config.lake.catalog, config.lake.warehouse, "lake.catalog.type")


def any_catalog(config: Config, name: str) -> Catalog:
    """The lake's catalog, or another one that the settings of Spark name.

    Raises:
        ConfigError: there is no such catalog, or PyIceberg can't read its kind.
    """
    from pyiceberg.catalog import load_catalog

    if name == CATALOG and config.lake.catalog:
        return load_catalog(name, **catalog_properties(config))
    if name == CATALOG:
        # A lake without tables yet: opening the catalog would make its file.
        if not config.lake.sqlite_file.exists():
            raise _no_lake(config)
        uri = f"sqlite:///{config.lake.sqlite_file}?timeout=60"
        return load_catalog(name, type="sql", uri=uri, init_catalog_tables="false")
    own = catalog_settings(config, name)
    if not own:
        setting = f"spark.sql.catalog.{name}"
        raise ConfigError([f"spark: has no {setting}; the catalog {name} is not configured"])
    warehouse = own.pop("warehouse", "")
    return load_catalog(
        name, **_as_pyiceberg(own, warehouse, f"spark: spark.sql.catalog.{name}.type")
    )


def catalog_settings(config: Config, name: str) -> dict[str, str]:
    """The settings of a catalog under `spark:`, by the end of their names; empty without any."""
    prefix = f"spark.sql.catalog.{name}"
    whole = {
        key if key.startswith("spark.") else f"spark.{key}": v for key, v in config.spark.items()
    }
    return {
        key[len(prefix) + 1 :]: v for key, v in whole.items() if f"{key}.".startswith(f"{prefix}.")
    }


def _as_pyiceberg(
    spark_settings: Mapping[str, str], warehouse: str, setting: str
) -> dict[str, str]:
    own = {key: value for key, value in spark_settings.items() if key}
    kind = own.pop("type", "")
    implementation = own.pop("catalog-impl", "").rpartition(".")[2].lower()
    kind = kind or implementation.removesuffix("catalog")
    if kind not in _CATALOG_TYPES:
        raise ConfigError(
            [
                f"{setting}: got {kind or 'nothing'}; without Spark only "
                f"{', '.join(_CATALOG_TYPES)} can be read. Query the tables in Spark instead"
            ]
        )
    own.pop("io-impl", None)  # a Java class; PyIceberg chooses by the location
    own.setdefault("warehouse", warehouse)
    own["type"] = _CATALOG_TYPES[kind]
    if kind == "jdbc":
        own["uri"] = _sqlalchemy_uri(own)
        own["init_catalog_tables"] = "false"
    return own


def _sqlalchemy_uri(properties: Mapping[str, str]) -> str:
    from urllib.parse import quote as percent

    uri = properties.get("uri", "").removeprefix("jdbc:")
    scheme, _, rest = uri.partition(":")
    if scheme == "sqlite":
        return f"sqlite:///{rest.partition('?')[0]}?timeout=60"
    user, password = properties.get("jdbc.user"), properties.get("jdbc.password")
    if user and "@" not in rest:
        secret = f":{percent(password, safe='')}" if password else ""
        rest = rest.replace("//", f"//{percent(user, safe='')}{secret}@", 1)
    # SQLAlchemy's default for PostgreSQL is psycopg2; its successor psycopg works too.
    psycopg = next(filter(find_spec, ("psycopg2", "psycopg")), "psycopg2")
    driver = {"postgresql": f"postgresql+{psycopg}", "mysql": "mysql+pymysql"}.get(scheme, scheme)
    return f"{driver}:{rest}"
