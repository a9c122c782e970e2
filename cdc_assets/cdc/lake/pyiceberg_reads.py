"""Small reads of the lake without Spark: tables, days, lag and quarantine through PyIceberg.

The settings are those of cdc.yaml. Heavy libraries are imported where they are used, so
that `cdc-assets show` answers in a second or two.
"""

from __future__ import annotations

import base64
import difflib
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_assets.cdc.config import OWN_ASSETS, Config
from cdc_assets.cdc.errors import (
    CdcError,
    ConfigError,
    LakeError,
    MissingDayError,
    MissingTableError,
    UnknownTableError,
    first_line,
)
from cdc_assets.cdc.lake.catalog import state_parts
from cdc_assets.cdc.lake.commits import KEY, REPORT, DayCommit, days_made, is_day
from cdc_assets.cdc.names import TableName, escape
from cdc_assets.cdc.spark import CATALOG, sqlite_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

# Up to here a table is sorted before its first rows are shown; beyond, any rows will do.
_SORTED_ROWS = 200_000
_HAS_TABLES = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'iceberg_tables'"
_CATALOG_TYPES = {"rest": "rest", "glue": "glue", "hive": "hive", "jdbc": "sql"}


# --- names


@dataclass(frozen=True)
class LakeTable:
    """A table of the lake: a source's own (`changes`) or a state table (`public.customers`)."""

    source: str
    name: str
    parts: tuple[str, ...]
    is_state: bool

    def __str__(self) -> str:
        return f"{self.source}.{self.name}"


def own_table(source: str, name: str) -> LakeTable:
    """One of a source's own tables: landing, changes, control, quarantine, lag, schemas."""
    return LakeTable(source, name, (escape(source), name), is_state=False)


def known_tables(config: Config) -> list[LakeTable]:
    """All tables that the configuration names, each source's own ones last."""
    found = []
    for source, settings in config.sources.items():
        for text in settings.tables:
            parts = state_parts(config, source, TableName.parse(text))
            found.append(LakeTable(source, text, parts, is_state=True))
        found += [own_table(source, name) for name in OWN_ASSETS]
    return found


def find_table(config: Config, text: str, source: str | None = None) -> LakeTable:
    """The table that a user means.

    `inventory.public.customers`; `public.customers` or `customers` where one source has it;
    `inventory.changes` for a source's own table. Quotes around a part that holds a dot may
    be left out where that leaves no doubt.

    Raises:
        UnknownTableError: no table has that name, or several have.
    """
    known = [t for t in known_tables(config) if source is None or t.source == source]
    for spelled in (_exactly, _without_quotes):
        for names in (_full_name, _own_name, _last_part):
            found = [t for t in known if spelled(text) in {spelled(n) for n in names(t)}]
            if len(found) == 1:
                return found[0]
            if found:
                listed = ", ".join(str(t) for t in found)
                raise UnknownTableError(text, f"it may be one of {listed}; write which")
    raise UnknownTableError(text, _suggestion(text, known))


def _exactly(text: str) -> str:
    return text


def _without_quotes(text: str) -> str:
    return text.replace('"', "")


def _full_name(table: LakeTable) -> list[str]:
    return [str(table), f"{CATALOG}.{table}"]


def _own_name(table: LakeTable) -> list[str]:
    return [table.name] if table.is_state else []


def _last_part(table: LakeTable) -> list[str]:
    return [TableName.parse(table.name).table] if table.is_state else [table.name]


def _suggestion(text: str, known: Sequence[LakeTable]) -> str:
    spellings = {n: str(t) for t in known for n in (*_full_name(t), *_last_part(t), t.name)}
    close = [spellings[n] for n in difflib.get_close_matches(text, spellings, n=3, cutoff=0.7)]
    hint = f"did you mean {' or '.join(dict.fromkeys(close))}? " if close else ""
    states = ", ".join(str(t) for t in known if t.is_state)
    return f"{hint}There are {states}, and of each source {', '.join(OWN_ASSETS)}"


# --- tables


def open_table(config: Config, table: LakeTable) -> Table:
    """The table's metadata as PyIceberg's Table.

    Raises:
        MissingTableError: there is no lake yet, or no such table in it.
        LakeError: the catalog or the table's metadata can't be read.
    """
    if config.lake.catalog:
        return _from_catalog(config, table)
    from pyiceberg.table import StaticTable

    location = _sqlite_location(config, table)
    with _files_of(table):
        return StaticTable.from_metadata(location)


@contextmanager
def _files_of(table: LakeTable) -> Iterator[None]:
    """Turns what the file system or the object store says into a :class:`LakeError`."""
    try:
        yield
    except OSError as error:
        raise LakeError(
            f"{table}: a file of it in the lake can't be read: {first_line(error)}. See that the "
            "warehouse is there and that this user may read it; restore a file that is gone"
        ) from error


def _sqlite_location(config: Config, table: LakeTable) -> str:
    """Where the embedded catalog says that the metadata is.

    One row of one table, read without SQLAlchemy: PyIceberg's own SQL catalog would take
    most of the time that `show` has.
    """
    file = sqlite_folder(config) / "catalog.db"
    try:
        file.stat()
    except FileNotFoundError:
        raise _no_lake(config) from None
    except OSError as error:
        raise _unreadable(file, error) from error
    try:
        catalog = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=60)
        try:
            # Made by the first run, with the tables that Iceberg keeps its catalog in.
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
        raise _not_made(table)
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


def _not_made(table: LakeTable) -> MissingTableError:
    return MissingTableError(
        f"{table} is not in the lake yet. Make a day of it first: "
        f"cdc-assets run --source {table.source} --from D --to D"
    )


def _from_catalog(config: Config, table: LakeTable) -> Table:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    properties = catalog_properties(config)
    try:
        catalog = load_catalog(CATALOG, **properties)
        if properties["type"] == "sql" and not _has_tables(catalog):
            raise _not_made(table)
        return catalog.load_table(table.parts)
    except CdcError:
        raise
    except NoSuchTableError:
        raise _not_made(table) from None
    except Exception as error:  # of as many libraries as there are catalogs
        raise LakeError(
            f"{table}: the catalog ({properties['type']}) can't be read: "
            f"{type(error).__name__}: {first_line(error)}. See that it is up, and that "
            "lake.catalog has its address and user"
        ) from error


def _has_tables(catalog: Any) -> bool:
    """False of a database in which no run has made Iceberg's tables yet."""
    from sqlalchemy import inspect

    return bool(inspect(catalog.engine).has_table("iceberg_tables"))


def catalog_properties(config: Config) -> dict[str, str]:
    """`lake.catalog`, which has Spark's keys, with PyIceberg's.

    Raises:
        ConfigError: PyIceberg has no such catalog.
    """
    own = dict(config.lake.catalog)
    kind = own.pop("type", "")
    implementation = own.pop("catalog-impl", "").rpartition(".")[2].lower()
    kind = kind or implementation.removesuffix("catalog")
    if kind not in _CATALOG_TYPES:
        raise ConfigError(
            [
                f"lake.catalog.type: got {kind or 'nothing'}; without Spark only "
                f"{', '.join(_CATALOG_TYPES)} can be read. Query the tables in Spark instead"
            ]
        )
    own.pop("io-impl", None)  # a Java class; PyIceberg chooses by the address
    own.setdefault("warehouse", config.lake.warehouse)
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
    # SQLAlchemy's own choice for PostgreSQL is psycopg2; its successor does as well.
    psycopg = next(filter(find_spec, ("psycopg2", "psycopg")), "psycopg2")
    driver = {"postgresql": f"postgresql+{psycopg}", "mysql": "mysql+pymysql"}.get(scheme, scheme)
    return f"{driver}:{rest}"


# --- days


def days_of(table: Table, is_state: bool) -> dict[date, Mapping[str, Any]]:
    """The days that a table has, oldest first, each with the summary of its commit."""
    if is_state:
        summaries = _summaries(table)
        tags = {name: ref.snapshot_id for name, ref in table.refs().items() if is_day(name)}
        return {date.fromisoformat(d): summaries[tags[d]] for d in sorted(tags)}
    return {day: made.inputs for day, made in sorted(day_commits(table).items())}


def day_commits(table: Table) -> dict[date, DayCommit]:
    """For each day of a stage table the commit that wrote it last."""
    return days_made(_summaries(table).items())


def _summaries(table: Table) -> dict[int, dict[str, str]]:
    """The summary of each snapshot, oldest first."""
    return {
        s.snapshot_id: dict(s.summary.additional_properties) if s.summary else {}
        for s in table.snapshots()
    }


def day_rows(config: Config, table: LakeTable) -> dict[date, int]:
    """Rows of a state table at the end of each day, as its commits say; nothing is read."""
    days = days_of(open_table(config, table), is_state=True)
    reports = {day: json.loads(summary.get(REPORT, "{}")) for day, summary in days.items()}
    return {day: int(report["rows"]) for day, report in reports.items() if "rows" in report}


# --- rows


def read_table(
    config: Config,
    source: str,
    table: str,
    as_of: date | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Rows of a table as Arrow.

    Args:
        config: cdc.yaml.
        source: the source's name.
        table: `public.customers`, or one of the source's own tables.
        as_of: a state table at the end of that day; of an own table the rows that landed on
            that day (of `schemas` those known by then). Without it the newest published day,
            or all rows.
        limit: at most so many rows, the lowest keys or offsets first where the table is
            small enough to be sorted.

    Raises:
        UnknownTableError: there is no such table.
        MissingTableError: nothing of it was made yet.
        LakeError: the catalog or a file can't be read.
        MissingDayError: that day was not made.
    """
    return read_rows(config, find_table(config, table, source), as_of, limit)


def read_rows(
    config: Config,
    table: LakeTable,
    as_of: date | None = None,
    limit: int | None = None,
) -> pa.Table:
    """As :func:`read_table`, of a table that was found already."""
    opened = open_table(config, table)
    days = days_of(opened, table.is_state)
    # Schemas are not made by the day; those known by then are asked for.
    if as_of is not None and as_of not in days and table.name != "schemas":
        raise _missing_day(config, table, as_of, list(days))
    scan: dict[str, Any] = {}
    if as_of is not None:
        if table.is_state:
            scan["snapshot_id"] = opened.refs()[str(as_of)].snapshot_id
        else:
            scan["row_filter"] = _landed(table, as_of)
    elif opened.current_snapshot() is None:
        raise _not_made(table)
    order = _order(config, opened, table)
    with _files_of(table):
        if limit is not None and _total(opened, scan.get("snapshot_id")) > _SORTED_ROWS:
            return opened.scan(limit=limit, **scan).to_arrow()
        found = opened.scan(**scan).to_arrow()
    found = _sorted(found, [name for name in order if name in found.column_names])
    return found if limit is None else found.slice(0, limit)


def _missing_day(config: Config, table: LakeTable, day: date, days: Sequence[date]) -> CdcError:
    remedy = f"It has {days[0]} to {days[-1]}" if days else "It has no day yet"
    if config.start_date <= day <= config.today():
        remedy += (
            f". Make the day first: cdc-assets run --source {table.source} --from {day} --to {day}"
        )
    return MissingDayError(str(table), day, remedy)


def _landed(table: LakeTable, day: date) -> str:
    if table.name == "schemas":
        return f"first_landed <= '{day}'"
    return f"landing_date = '{day}'"


def _total(opened: Table, snapshot_id: int | None) -> int:
    snapshot = (
        opened.snapshot_by_id(snapshot_id) if snapshot_id is not None else opened.current_snapshot()
    )
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties.get("total-records", 0))


def _order(config: Config, opened: Table, table: LakeTable) -> list[str]:
    if not table.is_state:
        return [
            "landing_date",
            "first_landed",
            "table_name",
            "topic",
            "partition",
            "offset",
            "kind",
            "hour",
        ]
    rename = config.sources[table.source].tables[table.name].rename
    key = json.loads(opened.properties.get(KEY, "[]"))
    return [rename.get(name, name) for name in key]


def _sorted(rows: pa.Table, order: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    if not order:
        return rows
    try:
        return rows.sort_by([(name, "ascending") for name in order])
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # a type without an order
        return rows


# --- values


def records(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as what JSON can hold without loss.

    Instants are ISO texts in UTC, decimals exact texts, bytes base64, nested values objects
    and lists; NaN and infinities are texts.
    """
    kinds = {field.name: field.type for field in rows.schema}
    for batch in rows.to_batches(max_chunksize=1_000):
        for row in batch.to_pylist():
            yield {name: json_value(value, kinds[name]) for name, value in row.items()}


def json_value(value: Any, kind: pa.DataType) -> Any:
    """One Arrow value, as Python has it, for JSON."""
    import pyarrow as pa

    if isinstance(value, datetime):
        text = value.isoformat()
        return text.replace("+00:00", "Z") if value.tzinfo else text
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if pa.types.is_map(kind):
        return {str(json_value(k, kind.key_type)): json_value(v, kind.item_type) for k, v in value}
    if pa.types.is_struct(kind):
        return {f.name: json_value(value.get(f.name), f.type) for f in kind}
    return [json_value(item, kind.value_type) for item in value]


# --- lag and quarantine

LAG_COLUMNS = (
    "landing_date", "table_name", "hour", "kind", "count", "excluded", "negative", "min_ms",
    "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms", "mean_ms", "complete",
)  # fmt: skip


def lag_rows(
    config: Config,
    source: str,
    first: date | None = None,
    last: date | None = None,
    hours: bool = False,
) -> list[dict[str, Any]]:
    """Rows of a source's table `lag`: of whole days, or with `hours` of source hours.

    Raises:
        MissingTableError: the source has no lag yet.
        LakeError: the catalog or a file can't be read.
    """
    wanted = ["hour IS NOT NULL" if hours else "hour IS NULL"]
    if first:
        wanted.append(f"landing_date >= '{first}'")
    if last:
        wanted.append(f"landing_date <= '{last}'")
    lag = own_table(source, "lag")
    opened = open_table(config, lag)
    with _files_of(lag):
        rows = opened.scan(row_filter=" AND ".join(wanted)).to_arrow()
    ordered = _sorted(rows, ["landing_date", "table_name", "hour", "kind"])
    return [{"source": source, **row} for row in records(ordered)]


def require_lag(
    config: Config, sources: Sequence[str], first: date | None, last: date | None
) -> None:
    """See that the lag of some of these days was made, be it without a row.

    Raises:
        LakeError: of no source it was.
    """
    first, last = first or config.start_date, last or config.today()
    tables = [own_table(source, "lag") for source in sources]
    made = {t: days_of(open_table(config, t), is_state=False) for t in tables}
    if any(first <= day <= last for days in made.values() for day in days):
        return
    has = [f"{t} has {min(days)} to {max(days)}" for t, days in made.items() if days]
    raise LakeError(
        f"no lag for {first} to {last}: {'; '.join(has) or 'no day is made yet'}. "
        + _how_to_make(config, sources, first, last)
    )


def _how_to_make(config: Config, sources: Sequence[str], first: date, last: date) -> str:
    first, last = max(first, config.start_date), min(last, config.today())
    if last < first:
        return f"Days can be made from {config.start_date} to {config.today()}"
    of = f" --source {sources[0]}" if len(sources) == 1 else ""
    return f"Make the days first: cdc-assets run{of} --from {first} --to {last}"


def quarantine_counts(config: Config, source: str) -> dict[str, int]:
    """How many records of a source are quarantined, by reason, most frequent first."""
    quarantine = own_table(source, "quarantine")
    opened = open_table(config, quarantine)
    with _files_of(quarantine):
        rows = opened.scan(selected_fields=("reason",)).to_arrow()
    counts = rows.group_by("reason").aggregate([("reason", "count")]).to_pylist()
    ordered = sorted(counts, key=lambda row: (-row["reason_count"], row["reason"]))
    return {row["reason"]: row["reason_count"] for row in ordered}
