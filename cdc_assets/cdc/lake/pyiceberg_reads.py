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
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import (
    CdcError,
    ConfigError,
    LakeError,
    MissingDayError,
    MissingTableError,
    UnknownTableError,
    first_line,
)
from cdc_assets.cdc.lake.commits import (
    KEY,
    REPORT,
    DayCommit,
    Snapshot,
    TableState,
    days_made,
    is_day,
)
from cdc_assets.cdc.landing.lines import LandedRecord, instant_text, text_of
from cdc_assets.cdc.names import TableName, with_database
from cdc_assets.cdc.places import OWN_ASSETS, earlier_place, own_place, state_place
from cdc_assets.cdc.spark import CATALOG, sqlite_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
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
    earlier: tuple[str, ...] = ()  # where an earlier version made it, if elsewhere

    def __str__(self) -> str:
        return f"{self.source}.{self.name}"


def own_table(source: str, name: str) -> LakeTable:
    """One of a source's own tables: landing, changes, control, quarantine, lag, schemas."""
    return LakeTable(source, name, own_place(source, name), is_state=False)


def state_table(config: Config, source: str, name: str) -> LakeTable:
    """The state table of ``namespace.table``, be it configured or not."""
    table, flat = TableName.parse(name), config.lake.is_flat
    parts, earlier = state_place(source, table, flat), earlier_place(source, table, flat)
    earlier = earlier if earlier != parts else ()
    return LakeTable(source, name, parts, is_state=True, earlier=earlier)


def known_tables(config: Config) -> list[LakeTable]:
    """All tables that the configuration names, each source's own ones last."""
    found = []
    for source, settings in config.sources.items():
        found += [state_table(config, source, text) for text in settings.tables]
        found += [own_table(source, name) for name in OWN_ASSETS]
    return found


def find_table(config: Config, text: str, source: str | None = None) -> LakeTable:
    """The table that a user means.

    `inventory.public.customers`; `public.customers` or `customers` where one source has it;
    `inventory.changes` for a source's own table; names of three parts as cdc.yaml has them. Quotes
    around a part that holds a dot may be left out where that leaves no doubt.

    Raises:
        UnknownTableError: no table has that name, or several have.
    """
    known = [t for t in known_tables(config) if source is None or t.source == source]
    for spelled in (_exactly, _without_quotes):
        written = {spelled(text), spelled(with_database(text) or text)}
        for names in (_full_name, _own_name, _last_part):
            found = [t for t in known if written & {spelled(n) for n in names(t)}]
            if len(found) == 1:
                return found[0]
            if found:
                listed = ", ".join(str(t) for t in found)
                raise UnknownTableError(text, f"it may be one of {listed}; write which")
    sources = list(config.sources) if source is None else [source]
    raise UnknownTableError(text, _suggestion(text, known) + config.hint_of_pattern(text, sources))


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
    if table.earlier:
        try:
            return open_table(config, replace(table, earlier=()))
        except MissingTableError:
            return open_table(config, replace(table, parts=table.earlier, earlier=()))
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


def table_state(table: Table) -> TableState:
    """What the table's metadata says, as :meth:`Lake.read_state` reads it with Spark."""
    summaries = _summaries(table)
    snapshots = {
        s.snapshot_id: Snapshot(
            s.snapshot_id, summaries[s.snapshot_id], s.timestamp_ms, s.parent_snapshot_id
        )
        for s in table.snapshots()
    }
    refs = {name: ref.snapshot_id for name, ref in table.refs().items()}
    return TableState(refs, snapshots, table.properties, table.location())


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
    opened, scan = _scan_of(config, table, as_of)
    order = _order(config, opened, table)
    with _files_of(table):
        if limit is not None and _total(opened, scan.get("snapshot_id")) > _SORTED_ROWS:
            return opened.scan(limit=limit, **scan).to_arrow()
        found = opened.scan(**scan).to_arrow()
    found = _sorted(found, [name for name in order if name in found.column_names])
    return found if limit is None else found.slice(0, limit)


def read_all_rows(
    config: Config, table: LakeTable, as_of: date | None = None
) -> Iterator[pa.Table]:
    """All rows of a table, a part at a time: the first one may be empty, and has the columns.

    As those of :func:`read_rows`; a table that is too large to be sorted is never held as a whole.
    """
    import pyarrow as pa

    opened, scan = _scan_of(config, table, as_of)
    if _total(opened, scan.get("snapshot_id")) <= _SORTED_ROWS:
        yield read_rows(config, table, as_of)
        return
    with _files_of(table):
        reader = opened.scan(**scan).to_arrow_batch_reader()
        yield pa.Table.from_batches([], reader.schema)
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _scan_of(config: Config, table: LakeTable, as_of: date | None) -> tuple[Table, dict[str, Any]]:
    """A table, and which of its rows are asked for."""
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
    return opened, scan


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
        for row in _python_rows(batch):
            yield {name: json_value(value, kinds[name]) for name, value in row.items()}


def _python_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Rows as Python has them; instants in years that it does not know are texts."""
    columns = [_python_values(column) for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def _python_values(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        if not pa.types.is_timestamp(column.type):
            raise
        micros = column.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
        return [None if instant is None else instant_text(instant) for instant in micros]
    return values


def messages(rows: pa.Table, with_bytes: bool) -> Iterator[dict[str, Any]]:
    """As :func:`records`, of `landing` or `quarantine`, with keys, values and headers as text.

    Args:
        rows: of that table.
        with_bytes: keep the bytes in base64 where they are, and add `key_text`, `value_text` and
            each header's `value_text`, null where the bytes are not UTF-8. Else the text stands in
            their place, and base64 begins with ``base64:``.
    """
    for row in records(rows):
        yield _with_texts(row, ("key", "value"), with_bytes) | {
            "headers": [_with_texts(h, ("value",), with_bytes) for h in row["headers"] or ()]
        }


def _with_texts(row: dict[str, Any], names: Sequence[str], with_bytes: bool) -> dict[str, Any]:
    coded = {name: row[name] for name in names}
    texts = {
        name: None if code is None else text_of(base64.b64decode(code))
        for name, code in coded.items()
    }
    if with_bytes:
        return {**row, **{f"{name}_text": text for name, text in texts.items()}}
    shown = {
        name: f"base64:{code}" if code is not None and texts[name] is None else texts[name]
        for name, code in coded.items()
    }
    return {**row, **shown}


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


def require_made(
    config: Config, name: str, sources: Sequence[str], first: date | None, last: date | None
) -> None:
    """See that some of these days of sources' own table was made, be it without a row.

    Raises:
        LakeError: of no source it was.
    """
    first, last = first or config.start_date, last or config.today()
    tables = [own_table(source, name) for source in sources]
    made = {t: days_of(open_table(config, t), is_state=False) for t in tables}
    if any(first <= day <= last for days in made.values() for day in days):
        return
    has = [f"{t} has {min(days)} to {max(days)}" for t, days in made.items() if days]
    raise LakeError(
        f"no {name} for {first} to {last}: {'; '.join(has) or 'no day is made yet'}. "
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


# --- what is in quarantine

_FEW_OFFSETS = 200  # as many as PyIceberg compares with the lowest and highest of a file


@dataclass(frozen=True)
class Quarantined:
    """A record in quarantine, and why it is there.

    `is_gone` where neither the row nor the landing has its bytes, or the landing has several
    records at its place.
    """

    source: str
    record: LandedRecord
    reason: str
    detail: str | None
    table_name: str | None
    is_gone: bool = False


def quarantine_days(config: Config, source: str) -> list[date]:
    """The days of a source that were made, be they without a record in quarantine.

    Raises:
        MissingTableError: none was.
        LakeError: the catalog can't be read.
    """
    return list(days_of(open_table(config, own_table(source, "quarantine")), is_state=False))


def quarantine_by_day(
    config: Config, source: str, first: date | None = None, last: date | None = None
) -> dict[tuple[date, str], int]:
    """How many records of a source are in quarantine, by landing day and reason.

    Raises:
        MissingTableError: no day of the source was made.
        LakeError: the catalog or a file can't be read.
    """
    quarantine = own_table(source, "quarantine")
    opened = open_table(config, quarantine)
    span = {"landing_date >= ": first, "landing_date <= ": last}
    wanted = [f"{compared}'{day}'" for compared, day in span.items() if day]
    with _files_of(quarantine):
        rows = opened.scan(
            row_filter=" AND ".join(wanted) or "landing_date IS NOT NULL",
            selected_fields=("landing_date", "reason"),
        ).to_arrow()
    by = ["landing_date", "reason"]
    counts = rows.group_by(by).aggregate([([], "count_all")]).to_pylist()
    return {(row["landing_date"], row["reason"]): row["count_all"] for row in counts}


def quarantined(
    config: Config, source: str, counts: Mapping[tuple[date, str], int]
) -> Iterator[Quarantined]:
    """The records in quarantine of some days and reasons, the newest day first.

    A record whose key and value are both null may have its bytes in `landing` alone: they are
    looked up there. In a day they come by topic, partition and offset, where it is small
    enough to be sorted.

    Args:
        config: cdc.yaml.
        source: the source's name.
        counts: which days and reasons, as :func:`quarantine_by_day` counts them.

    Raises:
        LakeError: a file can't be read.
    """
    from pyiceberg import expressions

    e: Any = expressions  # mypy does not know their positional arguments
    quarantine = own_table(source, "quarantine")
    opened = open_table(config, quarantine)
    made_of = {day: made.inputs.get("landing") for day, made in day_commits(opened).items()}
    for day in sorted({day for day, _ in counts}, reverse=True):
        reasons = {reason for of, reason in counts if of == day}
        total = sum(counts[day, reason] for reason in reasons)
        chosen = e.And(e.EqualTo("landing_date", str(day)), e.In("reason", reasons))
        with _files_of(quarantine):
            for rows in _stretches(opened, chosen, total <= _SORTED_ROWS):
                landed = _landed_bytes(config, source, day, made_of.get(day), rows)
                for row in _rows(rows):
                    yield _quarantined(source, row, landed)


def _stretches(opened: Table, chosen: BooleanExpression, is_sorted: bool) -> Iterator[pa.Table]:
    """The rows of a scan, all at once where they are to be sorted."""
    import pyarrow as pa

    scan = opened.scan(row_filter=chosen)
    if is_sorted:
        yield _sorted(scan.to_arrow(), ["topic", "partition", "offset", "file", "detail"])
        return
    for batch in scan.to_arrow_batch_reader():
        yield pa.Table.from_batches([batch])


def _rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as Python has them; `timestamp` in µs: Kafka's clocks may say years beyond Python's."""
    import pyarrow as pa

    place = rows.column_names.index("timestamp")
    rows = rows.set_column(place, "timestamp", rows["timestamp"].cast(pa.int64()))
    for batch in rows.to_batches(max_chunksize=1_000):
        yield from batch.to_pylist()


def _quarantined(source: str, row: Mapping[str, Any], landed: _LandedRows) -> Quarantined:
    about = (row["reason"], row["detail"], row["table_name"])
    if row["key"] is not None or row["value"] is not None:
        return Quarantined(source, _landed_record(row), *about)
    at_place = landed.get(_place(row), [])
    if not at_place:
        return Quarantined(source, _landed_record(row), *about, is_gone=True)
    # Those at one place differ only where as many landed as are in quarantine: all are given.
    return Quarantined(source, _landed_record(at_place.pop()), *about)


def _landed_record(row: Mapping[str, Any]) -> LandedRecord:
    names = ("landing_date", "topic", "partition", "offset", "timestamp_type", "key", "value")
    return LandedRecord(
        **{name: row[name] for name in names},
        timestamp_us=row["timestamp"],
        headers=[(header["key"], header["value"]) for header in row["headers"] or ()],
        file=row["file"],
    )


_Place = tuple[str | None, int | None, int | None, str | None]
_LandedRows = dict[_Place, list[dict[str, Any]]]


def _place(row: Mapping[str, Any]) -> _Place:
    return row["topic"], row["partition"], row["offset"], row["file"]


def _landed_bytes(
    config: Config, source: str, day: date, made_of: int | None, rows: pa.Table
) -> _LandedRows:
    """The landing rows of those rows in quarantine that have neither key nor value.

    None of a place where other records landed, too: nothing says which of them is meant. None of
    a day that landed again since.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    is_bare = pc.and_(pc.is_null(rows["key"]), pc.is_null(rows["value"]))
    bare = rows.select(["topic", "partition", "offset", "file"]).filter(is_bare)
    wanted = Counter(_place(row) for row in bare.to_pylist())
    if not wanted:
        return {}
    opened = open_table(config, own_table(source, "landing"))
    landed = day_commits(opened).get(day)
    if landed is None or landed.snapshot_id != made_of:
        return {}
    found: _LandedRows = {}
    scan = opened.scan(row_filter=_at_offsets(day, {offset for _, _, offset, _ in wanted}))
    for batch in scan.to_arrow_batch_reader():
        places = batch.select(["topic", "partition", "offset", "file"]).to_pylist()
        at = [n for n, place in enumerate(places) if _place(place) in wanted]
        for row in _rows(pa.Table.from_batches([batch]).take(pa.array(at, pa.int64()))):
            found.setdefault(_place(row), []).append(row)
    return {
        place: at_place
        for place, at_place in found.items()
        if len(at_place) == wanted[place] or all(row == at_place[0] for row in at_place)
    }


def _at_offsets(day: date, offsets: Set[int | None]) -> BooleanExpression:
    """Landing rows of a day at some offsets; at all between them where they are many."""
    from pyiceberg import expressions

    e: Any = expressions
    known = {offset for offset in offsets if offset is not None}
    at = e.In("offset", known)
    if len(known) > _FEW_OFFSETS:
        at = e.And(
            e.GreaterThanOrEqual("offset", min(known)), e.LessThanOrEqual("offset", max(known))
        )
    if None in offsets:
        at = e.Or(at, e.IsNull("offset"))
    chosen: BooleanExpression = e.And(e.EqualTo("landing_date", str(day)), at)
    return chosen


# --- figures of days


def record_counts(config: Config, source: str, days: Collection[date] = ()) -> list[dict[str, Any]]:
    """How many records of each day went where, as `changes` recorded it when it was made.

    Args:
        config: cdc.yaml.
        source: the source's name.
        days: the landing days [default: all].

    Returns:
        `landing_date, destination, table_name, op, source_op, reason, records`; a row each
        combination, in no order.
    """
    facts = own_table(source, "facts")
    opened = open_table(config, facts)
    of_days = f"landing_date >= '{min(days)}' AND landing_date <= '{max(days)}'" if days else "true"
    keys = ["landing_date", "destination", "table_name", "op", "source_op", "reason"]
    with _files_of(facts):
        scan = opened.scan(row_filter=of_days, selected_fields=(*keys, "records"))
        rows = scan.to_arrow().group_by(keys).aggregate([("records", "sum")]).to_pylist()
    return [
        {**{key: row[key] for key in keys}, "records": row["records_sum"]}
        for row in rows
        if not days or row["landing_date"] in days
    ]


@dataclass(frozen=True)
class TableDay:
    """A published day of a state table: rows and bytes at its end, seconds that making it took.

    `bytes` are those of the data and delete files that make up the table.
    """

    rows: int
    bytes: int
    seconds: float | None


def table_days(config: Config, table: LakeTable) -> dict[date, TableDay]:
    """What the commits of a state table say of its days; no rows are read.

    Raises:
        MissingTableError: nothing of it was made yet.
    """
    found = {}
    for day, summary in days_of(open_table(config, table), is_state=True).items():
        report = json.loads(summary.get(REPORT, "{}"))
        if "rows" in report:
            size = int(summary.get("total-files-size", 0))
            found[day] = TableDay(int(report["rows"]), size, report.get("seconds"))
    return found
