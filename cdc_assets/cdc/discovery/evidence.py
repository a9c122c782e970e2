"""Evidence about a source in its landing rows: format, tables, keys, images and values.

:mod:`cdc_assets.cdc.discovery.proposals` says what it suggests for cdc.yaml.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from cdc_assets.cdc.added_jars import use_added_jars
from cdc_assets.cdc.changes.message_schemas import NO_SCHEMAS, KnownSchemas
from cdc_assets.cdc.changes.parse import with_documents
from cdc_assets.cdc.changes.reading import Reading, read_records
from cdc_assets.cdc.config import LandingConfig, RegistryConfig, SourceConfig
from cdc_assets.cdc.discovery.looks import looks_of
from cdc_assets.cdc.envelopes.declared import DECLARED
from cdc_assets.cdc.envelopes.formats import (
    FIRST_HALVES,
    FORMATS,
    has_signature,
    signature_members,
)
from cdc_assets.cdc.json_reader import Wanted
from cdc_assets.cdc.lake.checkpoints import Checkpoints, local_checkpoints
from cdc_assets.cdc.names import TableName, quote
from cdc_assets.cdc.registry.decode import Decoding
from cdc_assets.cdc.registry.schema_cache import fetched_decoding
from cdc_assets.cdc.sqltext import Query
from cdc_assets.cdc.values.placeholders import placeholder_forms

SAMPLE = 2_000  # records on which the formats are tried


@dataclass(frozen=True)
class Tried:
    """How many records of the sample a format's reader understands."""

    format: str
    rows: int
    others: int  # control events and tombstones
    reasons: Mapping[str, int]


@dataclass
class Member:
    """The values that one column had in row images: `kinds` counts them by JSON kind.

    A kind is BIGINT, DOUBLE, DECIMAL(p,s), STRING, BOOLEAN, OBJECT, ARRAY, VOID (null) or
    UNCHANGED (a placeholder, R2).
    """

    kinds: Counter[str] = field(default_factory=Counter)
    looks: Counter[str] = field(default_factory=Counter)  # texts that look like times
    inexact: int = 0  # numbers that a double can't hold
    without_schema: int = 0
    equal_to_key: int = 0  # images whose value is the bare message key
    real: Counter[str] = field(default_factory=Counter)  # values not made up (D8), by image


@dataclass
class Table:
    """The evidence about one table; images are counted over its row events."""

    name: str
    databases: Counter[str] = field(default_factory=Counter)  # named by its events
    ops: Counter[str] = field(default_factory=Counter)
    first_halves: int = 0  # of split updates; no op counts them
    first: date | None = None
    last: date | None = None
    topics: set[str] = field(default_factory=set)
    keys: Counter[tuple[str, ...]] = field(default_factory=Counter)  # readable key → records
    unkeyed: Counter[str] = field(default_factory=Counter)  # none, bare, unreadable, partial
    bare_images: int = 0  # row images beside a bare key
    bare_keys: int = 0  # distinct bare keys, at least
    olds: int = 0  # u and d that have a before image
    whole_names: int = 0  # u whose before names every column of after
    members: dict[str, Member] = field(default_factory=lambda: defaultdict(Member))
    schema_columns: set[str] = field(default_factory=set)

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(self.ops.values())

    @property
    def rewrites(self) -> int:
        """The number of u and d, whose whole old rows replica identity FULL sends."""
        return self.ops["u"] + self.ops["d"]


@dataclass
class Bad:
    """Records quarantined for one reason, and one of them."""

    count: int = 0
    example: str = ""


@dataclass
class Findings:
    """The evidence in a landing, read as one format."""

    format: str
    tried: Sequence[Tried]
    records: int = 0
    first: date | None = None
    last: date | None = None
    tables: dict[str, Table] = field(default_factory=dict)
    control: Counter[str] = field(default_factory=Counter)
    tombstones: int = 0
    bad: dict[str, Bad] = field(default_factory=lambda: defaultdict(Bad))
    has_databases: bool = False  # tables are named with their databases (D4)


def bare_source(
    format_name: str, registry: RegistryConfig | None = None, **settings: Any
) -> SourceConfig:
    """A source of a format, with no table configured."""
    landing = LandingConfig(files=".", registry=registry)
    return SourceConfig.model_validate({"format": format_name, "landing": landing, **settings})


def examine(
    landing: DataFrame,
    source: str,
    placeholder: str | None = None,
    registry: RegistryConfig | None = None,
) -> Findings:
    """Find the format of landing rows (`LANDING`, no null `landing_date`), then read all of them.

    Args:
        landing: the rows, which are checkpointed.
        source: named in errors.
        placeholder: the text of an unsent value where it is not Debezium's (R2).
        registry: has the schemas of encoded records.

    Raises:
        RegistryError: the registry does not answer.
    """
    given = {} if placeholder is None else {"unavailable_value": placeholder}

    def read_as(format_name: str, **more: Any) -> tuple[SourceConfig, Reading]:
        settings = bare_source(format_name, registry, **given, **more)
        return settings, read_records(landing, settings, checkpoints, decoding)

    with local_checkpoints() as checkpoints, _threads(landing.sparkSession, 1) as pool:
        landing = checkpoints.add(landing)
        decoding = fetched_decoding(landing, source, bare_source("debezium", registry))
        order = F.xxhash64("topic", "partition", "offset", "value")
        sample = checkpoints.add(landing.orderBy(order).limit(SAMPLE).where("length(value) > 0"))
        documents = _Documents(sample, decoding)
        likely = _with_row_members(documents)
        trying = pool.submit(_try_formats, documents, likely)
        # Planning takes longer than reading a small landing: read all of it meanwhile as the format
        # that is most likely by the sample.
        guess = min(likely, key=_rank, default=None)
        reading = read_as(guess) if guess else None
        tried = trying.result()
        found = Findings(best_format(tried), tried)
        if reading is None or found.format != guess:
            reading = read_as(found.format)
        counted = _count(*reading, checkpoints, pool)
        if counted.has_databases:
            found.has_databases = True
            counted = _count(*read_as(found.format, tables={"*.*.*": {}}), checkpoints, pool)
        counted.add_to(found)
    return found


# --- format


@dataclass(frozen=True)
class _Documents:
    """The records of the sample that have a value."""

    records: DataFrame
    decoding: Decoding | None

    def read(self, members: Mapping[str, Wanted]) -> Query:
        """The records, read into the members of `d`."""
        return with_documents(self.records, members, self.decoding)


def _threads(spark: SparkSession, count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, initializer=use_added_jars, initargs=(spark,))


def _try_formats(documents: _Documents, likely: Sequence[str]) -> list[Tried]:
    """Read the same records as every likely format, or as all formats where none finds a row.

    Keys and positions say nothing about the format: only the formats' readers run.
    """
    tried = _read_as(documents, likely)
    if not any(t.rows for t in tried):
        tried += _read_as(documents, [name for name in FORMATS if name not in likely])
    found = {t.format: t for t in tried}
    return [found.get(name) or Tried(name, rows=0, others=0, reasons={}) for name in FORMATS]


def _with_row_members(documents: _Documents) -> list[str]:
    """The formats whose row events may be among the records: one job."""
    signatures = (signature_members(name) for name in FORMATS)
    members = {column: wanted for found in signatures for column, wanted in found.items()}
    counts = (f"count_if({has_signature(name)}) > 0 AS {quote(name)}" for name in FORMATS)
    [seen] = documents.read(members).select(*counts).plan().collect()
    return [name for name in FORMATS if seen[name]]


def _read_as(documents: _Documents, formats: Sequence[str]) -> list[Tried]:
    """Read the records as some formats: one job."""
    if not formats:
        return []
    unreadable = F.when(F.col("offset").isNull(), "malformed_landing_line").when(
        ~F.col("is_document"), "malformed_json"
    )
    reason = F.coalesce(unreadable, "e_reason").alias("reason")

    def counted(name: str) -> DataFrame:
        own = FORMATS[name]
        read = own.read(documents.read(own.members)).plan()
        kinds = read.groupBy(F.col("e_kind").alias("kind"), reason).count()
        return kinds.withColumn("format", F.lit(name))

    with _threads(documents.records.sparkSession, len(formats)) as pool:
        frames = list(pool.map(counted, formats))
    rows = reduce(DataFrame.unionByName, frames).collect()
    tried = []
    for name in formats:
        own = [row for row in rows if row.format == name]
        good = [row for row in own if row.reason is None]
        tried.append(
            Tried(
                name,
                rows=sum(row["count"] for row in good if row.kind == "row"),
                others=sum(row["count"] for row in good if row.kind != "row"),
                reasons=_sums((row.reason, row["count"]) for row in own if row.reason),
            )
        )
    return tried


def _sums(pairs: Any) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for name, count in pairs:
        sums[name] += count
    return dict(sums.most_common())


def _rank(name: str) -> int:
    """The place of a format in the order of preference: more specific formats come first.

    A general reader may understand messages of a specific format (Debezium's reads Lindorm's): the
    specific one wins where it reads at least half as many rows.
    """
    return list(FORMATS).index(name)


def best_format(tried: Sequence[Tried]) -> str:
    """The format that reads most rows, or most other events where there is no row."""
    ordered = sorted(tried, key=lambda t: _rank(t.format))
    most = max(t.rows for t in tried)
    if most:
        return next(t.format for t in ordered if 2 * t.rows >= most)
    return max(ordered, key=lambda t: t.others).format


# --- records


@dataclass(frozen=True)
class _Counted:
    """The counts of records and of members."""

    settings: SourceConfig
    schemas: KnownSchemas
    records: list[Row]
    members: list[Row]

    @property
    def has_databases(self) -> bool:
        """True where tables of several databases with schemas were read as one (D4)."""
        if not DECLARED[self.settings.format].has_databases or self.settings.has_databases:
            return False
        named = (row for row in self.records if row.table_name is not None)
        # Without a schema a database is the namespace itself.
        databases = {
            db
            for row in named
            for db in row.databases
            if db and db not in TableName.parse(row.table_name)
        }
        return len(databases) > 1

    def add_to(self, found: Findings) -> None:
        """Add the counts to the findings."""
        _add_records(found, self.records)
        _add_members(found, self.members, self.schemas, self.settings)


def _count(
    settings: SourceConfig, reading: Reading, checkpoints: Checkpoints, pool: ThreadPoolExecutor
) -> _Counted:
    """Count parsed records: two jobs, side by side."""
    parsed = checkpoints.add(_slim(reading.parsed))
    counting = pool.submit(_counted_records, parsed)
    schemas = reading.joined_schemas(NO_SCHEMAS)
    members = _counted_members(parsed, schemas, settings)
    return _Counted(settings, schemas, counting.result(), members)


def _slim(parsed: DataFrame) -> DataFrame:
    """The columns of the passes below."""
    return parsed.selectExpr(
        *("landing_date", "topic", "partition", "offset", "kind", "reason", "detail"),
        *("table_name", "db", "op", "source_op", "schema_id", "before", "after"),
        "coalesce(unnamed_key_kind, 'named') AS key_state",
        "json_object_keys(key_raw) AS key_names",
        "unnamed_key_text AS bare_key",
    )


def _counted_records(parsed: DataFrame) -> list[Row]:
    """Count records by table, op, key and reason: one job."""
    has_before = F.col("before").isNotNull() & F.col("op").isin("u", "d")
    missing = F.array_except(F.json_object_keys("after"), F.json_object_keys("before"))
    place = F.format_string(
        "%s [%s] %s",
        F.col("topic"),
        F.col("partition").cast("string"),
        F.col("offset").cast("string"),
    )
    example = F.struct("landing_date", "topic", "partition", "offset", "detail", place.alias("at"))
    return (
        parsed.groupBy("kind", "reason", "table_name", "op", "source_op", "key_state", "key_names")
        .agg(
            F.count("*").alias("records"),
            F.min("landing_date").alias("first"),
            F.max("landing_date").alias("last"),
            F.collect_set("topic").alias("topics"),
            F.collect_set("db").alias("databases"),
            F.count_if(has_before).alias("olds"),
            F.count_if((F.col("op") == "u") & (F.size(missing) == 0)).alias("whole_names"),
            F.count_if(F.col("bare_key").isNotNull() & F.col("after").isNotNull()).alias(
                "bare_images"
            ),
            F.approx_count_distinct("bare_key").alias("bare_keys"),
            F.min(example).alias("example"),
        )
        .collect()
    )


def _add_records(found: Findings, counted: Sequence[Row]) -> None:
    for row in sorted(counted, key=str):
        found.records += row.records
        found.first = min(filter(None, (found.first, row.first)), default=None)
        found.last = max(filter(None, (found.last, row.last)), default=None)
        if row.reason is not None:
            bad = found.bad[row.reason]
            bad.count += row.records
            says = row.example["detail"] or ""
            at = row.example["at"] if row.reason != "malformed_landing_line" else "a line"
            bad.example = bad.example or f"{at}: {says}"
        elif row.kind == "tombstone":
            found.tombstones += row.records
        elif row.kind == "control":
            found.control[row.op] += row.records
        else:
            _add_to_table(found.tables.setdefault(row.table_name, Table(row.table_name)), row)
    for table in found.tables.values():
        table.ops = Counter({op: table.ops[op] for op in "crudt" if table.ops[op]})


def _add_to_table(table: Table, row: Any) -> None:
    # A split update counts once, by its second half (W2).
    if row.source_op in FIRST_HALVES:
        table.first_halves += row.records
    else:
        table.ops[row.op] += row.records
    table.first = min(filter(None, (table.first, row.first)), default=None)
    table.last = max(filter(None, (table.last, row.last)), default=None)
    table.topics |= set(row.topics)
    table.databases.update(row.databases)
    if row.op == "t":
        return
    table.olds += row.olds
    table.whole_names += row.whole_names
    table.bare_images += row.bare_images
    table.bare_keys = max(table.bare_keys, row.bare_keys)
    if row.key_state == "named":
        table.keys[tuple(row.key_names)] += row.records
    else:
        table.unkeyed[row.key_state] += row.records


# --- values

# What a producer writes for an unknown value (D8).
_MADE_UP = ("", "0", "0.0", "false", "AA==", "[]", "{}", "1970-01-01", "1970-01-01T00:00:00Z")
_EXACT = 2**53  # integers up to it are exact in a double


def _counted_members(parsed: DataFrame, schemas: KnownSchemas, settings: SourceConfig) -> list[Row]:
    """Count the values of each column by kind: one job, a row a column and kind."""
    blank = {key for key, columns in schemas.columns.items() if not columns}
    ids = sorted({schema_id for _, schema_id in blank})
    has_schema = F.col("schema_id").isNotNull() & ~F.col("schema_id").isin(ids)
    is_old = F.col("op").isin("u", "d")
    image = F.explode(
        F.array(
            F.struct(
                F.when(F.col("op") == "u", "u").otherwise("c").alias("image"),
                F.col("after").alias("json"),
            ),
            F.struct(F.lit("old").alias("image"), F.when(is_old, F.col("before")).alias("json")),
        )
    )
    rows = parsed.where("kind = 'row' AND reason IS NULL").select(
        "table_name", "bare_key", has_schema.alias("has_schema"), image.alias("seen")
    )
    members = rows.where("seen.json IS NOT NULL").select(
        *("table_name", "bare_key", "has_schema", "seen.image"),
        F.explode(F.try_parse_json("seen.json").try_cast("map<string,variant>")).alias(
            "name", "value"
        ),
    )
    return (
        _judged(members, placeholder_forms(settings.unavailable_value))
        .groupBy("table_name", "name", "image", "has_schema", "kind", "looks")
        .agg(
            F.count("*").alias("values"),
            F.count_if("is_real").alias("real"),
            F.count_if("is_inexact").alias("inexact"),
            F.count_if(F.coalesce(F.col("text") == F.col("bare_key"), F.lit(False))).alias("equal"),
        )
        .collect()
    )


def _add_members(
    found: Findings, counted: Sequence[Row], schemas: KnownSchemas, settings: SourceConfig
) -> None:
    for (name, _), columns in schemas.columns.items():
        if name in found.tables:
            found.tables[name].schema_columns |= set(columns)
    for row in sorted(counted, key=str):
        member = found.tables[row.table_name].members[row.name]
        member.real[row.image] += row.real
        # Old images may be made up, unless the format sends whole old rows.
        if row.image == "old" and not FORMATS[settings.format].whole_old_rows:
            continue
        if row.image != "old":
            member.equal_to_key += row.equal
        if not row.has_schema:
            member.kinds[row.kind] += row["values"]
            member.inexact += row.inexact
            member.without_schema += row["values"]
            if row.looks:
                member.looks[row.looks] += row["values"]


def _judged(members: DataFrame, placeholders: Sequence[str]) -> DataFrame:
    value = F.col("value")
    whole = F.regexp_replace(F.schema_of_variant(value), "^(OBJECT|ARRAY).*$", "$1")
    opened = members.withColumns({"kind": whole, "text": F.try_variant_get(value, "$", "string")})
    text, kind = F.col("text"), F.col("kind")
    written = F.coalesce(text, F.to_json(value))
    is_placeholder = F.coalesce(F.to_json(value).isin(*placeholders), F.lit(False))
    exact: Column = text.try_cast("decimal(38,18)")
    through_double = text.try_cast("double").cast("string").try_cast("decimal(38,18)")
    is_inexact = (
        F.when(kind == "BIGINT", ~text.try_cast("bigint").between(-_EXACT, _EXACT))
        .when(kind.startswith("DECIMAL"), ~F.coalesce(exact == through_double, F.lit(False)))
        .otherwise(F.lit(False))
    )
    return opened.withColumns(
        {
            "is_real": (kind != "VOID") & ~written.isin(*_MADE_UP) & ~is_placeholder,
            "is_inexact": F.coalesce(is_inexact, F.lit(False)),
            "looks": looks_of(text, kind == "STRING"),
            "kind": F.when(is_placeholder, "UNCHANGED").otherwise(kind),
        }
    )
