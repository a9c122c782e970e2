"""The records of tables that have a copy of Kafka's, read with Spark as of one snapshot each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from functools import reduce
from types import MappingProxyType

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    StringType,
    StructType,
    TimestampNTZType,
)

from cdc_assets.cdc.config import KAFKA_COLUMNS, LandingConfig
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets.cdc.landing.kafka_plan import Range, TopicPartition
from cdc_assets.cdc.landing.source_tables import REDPANDA, SourceTable
from cdc_assets.cdc.names import ddl_of, quote
from cdc_assets.cdc.sqltext import Query, Sql, case, literal, local_frame

_PLACE = ("topic", "partition", "offset")
_NEEDED = ("partition", "offset", "timestamp", "value")
_CLOCKS = {"CreateTime": 0, "LogAppendTime": 1}
_RANGE = "wanted_topic string, wanted_partition int, first bigint, after bigint, landing_date date"

Ranges = Mapping[date, Mapping[TopicPartition, Range]]


@dataclass(frozen=True)
class Window:
    """The timestamps of the records to look at, in ms; a table is pruned by them."""

    first_ms: int | None  # None: from the first record on
    end_ms: int


class TableRecords:
    """The records of a source's tables; no method but `collect…` runs a job.

    Args:
        spark: the session.
        source: the source.
        landing: how the columns are named.
        tables: where the records are.
        since_ms: records that came before may be left out; None: none.

    Raises:
        LandingError: a column is missing, or of another type.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: str,
        landing: LandingConfig,
        tables: Sequence[SourceTable],
        since_ms: int | None = None,
    ) -> None:
        self._spark = spark
        self._frames = [
            _with_landing_columns(frame, source, landing, table)
            for table in tables
            if (frame := table.read(spark, since_ms)) is not None
        ]

    def collect_places(
        self, window: Window, since_ms: int, instants: Iterable[int], now_ms: int
    ) -> list[Row]:
        """The offsets of each partition among the records of a window; a job.

        Returns:
            `topic`, `partition`, `first`, `last`; `newest`, the last offset with a timestamp from
            `since_ms` on; for each instant `at_<ms>`, the first offset at or after it; and
            `records` and `offsets`, how many there are of each. Timestamps of the future say
            nothing about the order of days.
        """
        ms = "unix_millis(timestamp)"
        past = f"{ms} <= {now_ms}"
        lowest = {
            "first": "offset",
            **{f"at_{i}": case((f"{past} AND {ms} >= {i}", "offset")) for i in instants},
        }
        highest = {"last": "offset", "newest": case((f"{past} AND {ms} >= {since_ms}", "offset"))}
        blocks = {name: f"min({offset})" for name, offset in lowest.items()}
        blocks |= {name: f"max({offset})" for name, offset in highest.items()}
        places = {name: f"min({name})" for name in lowest}
        places |= {name: f"max({name})" for name in highest}
        return _counted(Query(self._within(window)), _PLACE[:2], blocks, places)

    def collect_lowest(self, below: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The lowest offset below the given one in each partition that has one; a job."""
        rows = self._in_ranges(self._all(), {date.min: {p: (0, end) for p, end in below.items()}})
        found = Query(rows).aggregate(_PLACE[:2], {"first": "min(offset)"}).plan().collect()
        return {(row.topic, row.partition): row.first for row in found}

    def collect_counts(self, window: Window | None, ranges: Ranges) -> list[Row]:
        """`landing_date`, `topic`, `partition`, `records` and `offsets` of ranges; a job.

        Args:
            window: only records with these timestamps; None: only those with others.
            ranges: the offsets of each day.
        """
        rows = self._all() if window is None else self._within(window)
        return _counted(Query(self._in_ranges(rows, ranges)), ("landing_date", *_PLACE[:2]))

    def collect_unplaced(self) -> Row | None:
        """A record that lacks its place or time; a job, which statistics answer if none does."""
        lacks = " OR ".join(f"{name} IS NULL" for name in (*_PLACE, "timestamp"))
        return self._all().where(lacks).select(*_PLACE, "timestamp", "file").first()

    def rows(self, window: Window | None, ranges: Ranges, has_copies: bool) -> DataFrame:
        """Landing rows of some offsets.

        Args:
            window: their timestamps; None: any.
            ranges: the offsets of each day.
            has_copies: whether an offset is there more than once; one of them is taken then.
        """
        rows = self._in_ranges(self._all() if window is None else self._within(window), ranges)
        if has_copies:
            rows = rows.dropDuplicates(list(_PLACE))
        return rows.select(*LANDING.names)

    def some(self, records: int) -> DataFrame:
        """Landing rows of at most so many records, the day by their timestamp in UTC."""
        rows = self._all().limit(records).withColumn("landing_date", F.to_date("timestamp"))
        return rows.select(*LANDING.names)

    def _all(self) -> DataFrame:
        if not self._frames:
            fields = [f for f in LANDING.fields if f.name != "landing_date"]
            return local_frame(self._spark, [], StructType(fields))
        return reduce(DataFrame.unionByName, self._frames)

    def _within(self, window: Window) -> DataFrame:
        rows = self._all().where(f"timestamp < {_instant(window.end_ms)}")
        if window.first_ms is None:
            return rows
        return rows.where(f"timestamp >= {_instant(window.first_ms)}")

    def _in_ranges(self, rows: DataFrame, ranges: Ranges) -> DataFrame:
        """The rows of these offsets, with their day."""
        wanted = [
            (topic, partition, start, end, day)
            for day, places in ranges.items()
            for (topic, partition), (start, end) in places.items()
            if end > start
        ]
        if wanted:
            # What the statistics of files can tell.
            topics = ", ".join(literal(topic) for topic in sorted({w[0] for w in wanted}))
            rows = rows.where(
                f"topic IN ({topics}) AND offset >= {min(w[2] for w in wanted)} "
                f"AND offset < {max(w[3] for w in wanted)}"
            )
        days = local_frame(self._spark, wanted, _RANGE)
        within = (
            (F.col("topic") == F.col("wanted_topic"))
            & (F.col("partition") == F.col("wanted_partition"))
            & (F.col("offset") >= F.col("first"))
            & (F.col("offset") < F.col("after"))
        )
        return rows.join(F.broadcast(days), within).drop(
            "wanted_topic", "wanted_partition", "first", "after"
        )


def _counted(
    rows: Query,
    by: Sequence[str],
    blocks: Mapping[str, Sql] = MappingProxyType({}),
    groups: Mapping[str, Sql] = MappingProxyType({}),
) -> list[Row]:
    """The number of records and of offsets of each group; a job.

    Offsets are counted by a bit each, in blocks: as distinct values, each would be sent to its
    partition. `blocks` are aggregates of the records of a block, `groups` of its blocks.
    """
    bits = "bitmap_count(bitmap_construct_agg(bitmap_bit_position(offset)))"
    in_blocks = rows.aggregate(
        (*by, "bitmap_bucket_number(offset)"), {"n": "count(*)", "bits": bits, **blocks}
    )
    counts = {"records": "sum(n)", "offsets": "sum(bits)"}
    return in_blocks.aggregate(by, {**counts, **groups}).plan().collect()


def _instant(ms: int) -> Sql:
    """An instant as SQL; a TIMESTAMP without a zone counts as UTC, the session's zone."""
    at = datetime.fromtimestamp(ms / 1000, timezone.utc)
    return f"TIMESTAMP'{at:%Y-%m-%d %H:%M:%S}.{ms % 1000:03}Z'"


def _with_landing_columns(
    frame: DataFrame, source: str, landing: LandingConfig, table: SourceTable
) -> DataFrame:
    """The columns of `LANDING` but the day."""
    is_redpanda = landing.layout == REDPANDA
    found = _redpanda_columns(frame) if is_redpanda else _kafka_columns(frame, landing)
    own = {name: sql for name, (sql, _) in found.items()}
    kinds = {name: kind for name, (_, kind) in found.items()}
    needed = _NEEDED if is_redpanda else ("topic", *_NEEDED)
    if missing := [name for name in needed if name not in own]:
        named = [landing.columns.get(name, name) for name in missing]
        raise LandingError(
            source,
            f"{table.name} lacks the column {', '.join(named)}; it has "
            f"{', '.join(frame.columns)}. Say how it is named: landing: {{table: …, columns: "
            f"{{{missing[0]}: <name>}}}}",
        )
    selected = {
        "topic": literal(table.topic) if is_redpanda else f"CAST({own['topic']} AS string)",
        "partition": f"CAST({own['partition']} AS int)",
        "offset": f"CAST({own['offset']} AS bigint)",
        "timestamp": _timestamp(own["timestamp"], kinds["timestamp"]),
        "timestamp_type": _clock(own, kinds),
        **{name: _bytes(source, table, name, own, kinds) for name in ("key", "value")},
        "headers": _headers(source, table, own, kinds),
        "file": literal(table.name),
    }
    return frame.selectExpr(*(f"{sql} AS {name}" for name, sql in selected.items()))


Columns = dict[str, tuple[Sql, DataType]]  # by the names of Spark's Kafka source


def _kafka_columns(frame: DataFrame, landing: LandingConfig) -> Columns:
    by_name = {name: landing.columns.get(name, name) for name in KAFKA_COLUMNS}
    return {
        name: (quote(own), frame.schema[own].dataType)
        for name, own in by_name.items()
        if own in frame.columns
    }


def _redpanda_columns(frame: DataFrame) -> Columns:
    """A struct has what Kafka knows of a record, a column beside it its value."""
    place = frame.schema[REDPANDA].dataType if REDPANDA in frame.columns else None
    members = place.fields if isinstance(place, StructType) else []
    own = {
        ("timestampType" if member.name == "timestamp_type" else member.name): (
            quote(REDPANDA, member.name),
            member.dataType,
        )
        for member in members
    }
    if "value" in frame.columns:
        own["value"] = (quote("value"), frame.schema["value"].dataType)
    return own


def _timestamp(column: Sql, kind: DataType) -> Sql:
    # Without a cast, Spark prunes by the column's statistics.
    return f"CAST({column} AS timestamp)" if isinstance(kind, TimestampNTZType) else column


def _clock(own: Mapping[str, Sql], kinds: Mapping[str, DataType]) -> Sql:
    if "timestampType" not in own:
        return "CAST(NULL AS int)"
    column = own["timestampType"]
    if isinstance(kinds["timestampType"], StringType):
        named = ((f"{column} = {literal(text)}", str(n)) for text, n in _CLOCKS.items())
        return f"CAST({case(*named)} AS int)"
    return f"CAST({column} AS int)"


def _bytes(
    source: str,
    table: SourceTable,
    name: str,
    own: Mapping[str, Sql],
    kinds: Mapping[str, DataType],
) -> Sql:
    if name not in own:
        return "CAST(NULL AS binary)"
    if not isinstance(kinds[name], (BinaryType, StringType)):
        raise _wrong_type(source, table, name, kinds[name], "binary or string, the bytes as sent")
    return f"CAST({own[name]} AS binary)"


def _headers(
    source: str, table: SourceTable, own: Mapping[str, Sql], kinds: Mapping[str, DataType]
) -> Sql:
    kind = ddl_of(LANDING["headers"].dataType)
    if "headers" not in own:
        return f"CAST(NULL AS {kind})"
    found = kinds["headers"]
    if not (isinstance(found, ArrayType) and isinstance(found.elementType, StructType)):
        raise _wrong_type(source, table, "headers", found, "an array of key and value")
    return f"CAST({own['headers']} AS {kind})"


def _wrong_type(
    source: str, table: SourceTable, name: str, found: DataType, expected: str
) -> LandingError:
    return LandingError(
        source,
        f"{table.name}: the column for {name} is {found.simpleString()}, expected {expected}. Name "
        f"another one: landing: {{table: …, columns: {{{name}: <name>}}}}",
    )
