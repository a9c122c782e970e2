"""The table `facts`: counts of a day's records, made in the pass that reads them.

A row counts records with one destination, table, op, reason, epoch, position basis and schema;
rows with the destination `ORDER` count a table's events of a day. The table stage reads these few
rows and none of its changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.cdc.changes import snapshot_marks
from cdc_assets.cdc.changes.inputs import FACTS
from cdc_assets.cdc.changes.order_facts import (
    CROSSED,
    SAYS_NEW_KEY,
    SAYS_OLD_KEY,
    SCATTERED,
    TIED,
    compared_elements,
    entries,
    keys_to_fold,
    placed_by_files,
    transaction,
)
from cdc_assets.cdc.changes.protected import FOUND, PROTECTED
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.earlier_positions import changes_from_earlier, is_earlier_sql
from cdc_assets.cdc.envelopes.declared import DECLARED
from cdc_assets.cdc.json_reader import names_in
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.positions import epoch_of, stream_of, time_in_day
from cdc_assets.cdc.sqltext import Query, Sql, case, literal
from cdc_assets.cdc.values.placeholders import may_hold_placeholder

COMMENT = "counts of the records of each day by destination, table and op"

ORDER = "order"  # the destination of facts about all events of a table
_ALIKE = (
    "landing_date", "destination", "table_name", "db", "op", "source_op", "reason", "epoch",
    "basis", "schema_id", "truncated_table",
)  # fmt: skip
_TABLE_DAY = ("landing_date", "table_name")


def facts_of(records: DataFrame, settings: SourceConfig, timezone: str) -> DataFrame:
    """The facts of some records.

    Args:
        records: has `destination`, `reason`, `row_number` and else the columns of `CHANGES`.
        timezone: the time zone of the days.

    Returns:
        The columns of `FACTS`.
    """
    parts = [
        _counts(records, settings, epoch_of("kafka_ts_ms", settings.resets), timezone),
        _order_of_tables(records),
        _partitions(records, timezone),
    ]
    if settings.landing.derives_offsets:
        parts.append(_placed_by_files(records))
    if FOUND in records.columns:
        parts.append(_columns_found(records))
    counted, *others = (part.to(columns.FACTS) for part in parts)
    for other in others:
        counted = counted.unionAll(other)
    return counted


_MOST_FACTS = 200_000


def count_facts(records: DataFrame, settings: SourceConfig, timezone: str) -> list[Row]:
    """Collect :func:`facts_of`; without quarantined tables where records name too many."""
    facts = facts_of(records, settings, timezone).limit(_MOST_FACTS + 1).collect()
    if len(facts) <= _MOST_FACTS:
        return facts
    unnamed = {name: case(("destination <> 'quarantine'", name)) for name in ("table_name", "db")}
    return facts_of(Query(records).replace(unnamed).plan(), settings, timezone).collect()


def _counts(records: DataFrame, settings: SourceConfig, epoch: Sql, timezone: str) -> DataFrame:
    """Count records that are alike, and what they have in common."""
    return (
        _to_count(records, settings, epoch, timezone)
        .groupBy(*_ALIKE)
        .agg(
            F.expr("count(*) AS records"),
            F.expr("count_if(position IS NULL) AS without_position"),
            F.expr("count_if(has_old_key) AS moves"),
            F.expr("count_if(has_no_before) AS without_before"),
            F.expr("count_if(is_untyped) AS without_schema"),
            F.expr("count_if(may_be_unsent) AS maybe_unsent"),
            F.expr("collect_set(names) AS key_names"),
            F.expr("min(position) AS lowest"),
            F.expr("max(position) AS highest"),
            F.expr("min(time) AS first_source_ts_ms"),
            F.expr("max(time) AS last_source_ts_ms"),
            F.expr("count_if(row_number > 0) AS further_rows"),
            F.expr("count(key_change) AS key_changes"),
            F.expr("bit_xor(key_change) AS key_change_hash"),
            F.expr("count_if(is_incomplete) AS incomplete"),
            F.expr("max(arrival_ms) AS newest_ms"),
            *(F.expr(f"{sql} AS {name}") for name, sql in snapshot_marks.counts().items()),
        )
    )


def _to_count(records: DataFrame, settings: SourceConfig, epoch: Sql, timezone: str) -> DataFrame:
    """The columns of records that :func:`_counts` groups by and aggregates."""
    is_change = "destination = 'changes'"
    # Positions of the earlier form have their epoch in front.
    epoch = case((is_earlier_sql("position_basis"), "get(position, 0)"), otherwise=epoch)
    says_old, says_new = SAYS_OLD_KEY, SAYS_NEW_KEY
    change = case(
        (says_old, f"xxhash64(old_key, key, {compared_elements()})"),
        (says_new, f"xxhash64(key, new_key, {compared_elements()})"),
    )
    # In other formats the database tells no tables apart (D4).
    db = "db" if DECLARED[settings.format].has_databases else "CAST(NULL AS string) AS db"
    # Unreadable records may hold any text there: a row for each would exhaust the driver.
    is_read = "destination <> 'quarantine'"
    return records.selectExpr(
        *("landing_date", "destination", "table_name", "reason", "schema_id"),
        *(f"{case((is_read, name))} AS {name}" for name in ("op", "source_op")),
        db,
        "CASE WHEN op = 't' THEN source_table END AS truncated_table",
        f"CASE WHEN position IS NOT NULL THEN {epoch} END AS epoch",
        "CASE WHEN position IS NOT NULL THEN position_basis END AS basis",
        "position",
        "CASE WHEN position IS NOT NULL THEN source_ts_ms END AS time",
        "old_key IS NOT NULL AS has_old_key",
        "before IS NULL AS has_no_before",
        "schema_id IS NULL AND after IS NOT NULL AS is_untyped",
        f"{may_hold_placeholder('after', settings.unavailable_value)} AS may_be_unsent",
        "row_number",
        f"{lacks_part()} AS is_incomplete",
        f"{arrival_ms()} AS arrival_ms",
        f"{case((is_change, names_in('key')))} AS names",
        f"{change} AS key_change",
        *(f"{sql} AS {name}" for name, sql in snapshot_marks.columns_to_count(timezone).items()),
    )


def lacks_part() -> Sql:
    """True for an event whose position lacks a part: it counts as 0 there (O4)."""
    return "position IS NOT NULL AND exists(source_elements, e -> e IS NULL)"


def arrival_ms() -> Sql:
    """When a record arrived in Kafka, else its next best time, in ms; null beyond year 9999."""
    arrival = "coalesce(kafka_ts_ms, processed_ts_ms, source_ts_ms)"
    return case((f"{arrival} BETWEEN 0 AND {columns.MAX_MS}L", arrival))


def _order_of_tables(records: DataFrame) -> DataFrame:
    """Count the keys of each table that need more than positions to be ordered."""
    changes = Query(records).where("destination = 'changes'")
    # A header may have a number of the key as text.
    keys = ("replace(key, '\"')", "replace(old_key, '\"')")
    found = entries(changes, _TABLE_DAY, *keys)
    counted = {name: f"count_if({name})" for name in (TIED, SCATTERED, CROSSED)}
    return (
        keys_to_fold(found, _TABLE_DAY)
        .aggregate(_TABLE_DAY, counted)
        .extend({"destination": literal(ORDER)})
        .plan()
    )


def _placed_by_files(records: DataFrame) -> DataFrame:
    """Count what only the place in files decided, by table and day."""
    changes = Query(records).where("destination = 'changes'")
    return placed_by_files(changes, _TABLE_DAY).extend({"destination": literal(ORDER)}).plan()


def _columns_found(records: DataFrame) -> DataFrame:
    """The columns to protect that rows of each table have."""
    return (
        Query(records)
        .where(f"{FOUND} IS NOT NULL")
        .aggregate(
            _TABLE_DAY,
            {
                "records": "count(*)",
                "columns_found": f"array_sort(array_distinct(flatten(collect_set({FOUND}))))",
            },
        )
        .extend({"destination": literal(PROTECTED)})
        .plan()
    )


def _partitions(records: DataFrame, timezone: str) -> DataFrame:
    """Count each table's events in a partition, by stream.

    The counts tell a redelivery from a new server (O11), and have the transactions at the ends of
    the day (O16).
    """
    falls = "stream_element < highest_before"
    by_element = case(("stream_element IS NOT NULL", "struct(stream_element, offset)"))
    by_offset, by_position = (case(("tx IS NOT NULL", n)) for n in ("offset", "position"))
    return (
        _changes_in_lanes(records, timezone)
        .aggregate(
            (*_LANE, "table_name"),
            {
                "records": f"count_if({_PLACED})",
                "judged": "count(stream_element)",
                "first_offset": "min(offset)",
                "last_offset": "max(offset)",
                "last_streamed_offset": f"max({case((_PLACED, 'offset'))})",
                "first_kafka_ms": f"min({case((_PLACED, 'time'))})",
                "last_kafka_ms": "max(time)",
                "lowest": "min(stream_element)",
                "highest": "max(stream_element)",
                "highest_offset": f"max_by(offset, {by_element})",
                "highest_kafka_ms": f"max_by(time, {by_element})",
                "last_source_ts_ms": "max(own_time)",
                "falls": f"count_if({falls})",
                "falls_later": f"count_if({falls} AND own_time > latest_before)",
                "first_tx": f"min_by(tx, {by_offset})",
                "last_tx": f"max_by(tx, {by_offset})",
                "lowest_tx": f"min_by(tx, {by_position})",
                "highest_tx": f"max_by(tx, {by_position})",
            },
        )
        .extend({"destination": literal(ORDER)})
        .plan()
    )


# The events of a stream in a partition arrive in its order, unless they are sent again.
_LANE = ("landing_date", "topic", "partition", "stream")
_PLACED = "position IS NOT NULL"


def _changes_in_lanes(records: DataFrame, timezone: str) -> Query:
    """Changes with the highest stream element and source time before them in their lane."""
    in_order = (
        f"OVER (PARTITION BY {', '.join(_LANE)} ORDER BY offset "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    return (
        Query(records)
        .where("destination = 'changes'")
        .extend(
            {
                "stream": stream_of("connector", "server", "db"),
                "time": time_in_day(timezone),
                "own_time": case((_PLACED, "source_ts_ms")),
                "in_tx": case((_PLACED, transaction())),
            }
        )
        .select(
            *(*_LANE, "table_name", "offset", "time", "position", "stream_element", "own_time"),
            f"max(stream_element) {in_order} AS highest_before",
            f"max(own_time) {in_order} AS latest_before",
            case(("in_tx IS NOT NULL", "xxhash64(in_tx)")) + " AS tx",
        )
    )


def read_facts(
    lake: Lake, source: str, days: Sequence[date], tables: Sequence[str] | None = None
) -> list[Row]:
    """The facts of some days: recorded ones, or counted now for days that have none.

    Args:
        lake: where they are.
        source: the source.
        days: those that are not made are left out.
        tables: only these; recorded facts of partitions are read for all.
    """
    changes, recorded = (lake.day_commits(source, t) for t in ("changes", FACTS))
    made = [day for day in days if day in changes]
    # Facts with other inputs than the changes come from a run that did not end.
    with_facts = [d for d in made if d in recorded and recorded[d].inputs == changes[d].inputs]
    without = [d for d in made if d not in with_facts]
    found: list[Row] = []
    if with_facts:
        # A table of an earlier version may lack columns until its next day is made.
        rows = lake.stage_days(source, FACTS, with_facts).to(columns.FACTS)
        found += _with_streams(rows, tables).collect()
    settings = lake.config.source(source)
    if without:
        rows = _in_todays_form(lake, source, without, tables)
        found += facts_of(rows, settings, lake.config.timezone).collect()
    # Facts of earlier versions have no transactions: count those of the last such day, whose end
    # may have cut one (O16).
    earlier = [f.landing_date for f in found if f.destination == "changes" and not _has_order(f)]
    if earlier and settings.format in ("debezium", "debezium-flat"):
        rows = _in_todays_form(lake, source, [max(earlier)], tables)
        found += _partitions(rows, lake.config.timezone).to(columns.FACTS).collect()
    return found


def count_by_epoch(
    lake: Lake, source: str, table: str, day: date, epoch_of: Callable[[Sql], Sql]
) -> list[Row]:
    """The facts of a table's changes on a day on which an epoch begins; a job.

    Args:
        epoch_of: the epoch of an event, by its Kafka timestamp, at most the end of its landing day.
    """
    rows = _in_todays_form(lake, source, [day], [table])
    epoch = epoch_of(time_in_day(lake.config.timezone))
    counted = _counts(rows, lake.config.source(source), epoch, lake.config.timezone)
    return counted.to(columns.FACTS).collect()


def _has_order(fact: Row) -> bool:
    """True where it was counted what the events of this fact need to be ordered."""
    return fact.key_changes is not None


def _in_todays_form(
    lake: Lake, source: str, days: Sequence[date], tables: Sequence[str] | None
) -> DataFrame:
    """Changes of some days in the columns of :func:`facts_of`."""
    # A table of an earlier version may lack columns until its next day is made.
    rows = lake.stage_days(source, "changes", days).to(columns.CHANGES)
    turned = changes_from_earlier(time_in_day(lake.config.timezone))
    marks = {
        "destination": "'changes'",
        "reason": "CAST(NULL AS string)",
        "row_number": "CAST(NULL AS int)",
    }
    return Query(_only(rows, tables)).replace(turned).extend(marks).plan()


def _only(rows: DataFrame, tables: Sequence[str] | None) -> DataFrame:
    return rows if tables is None else rows.where(F.col("table_name").isin(list(tables)))


def _with_streams(facts: DataFrame, tables: Sequence[str] | None) -> DataFrame:
    """The facts of some tables, and of all what a stream has: its partitions and its snapshots."""
    if tables is None:
        return facts
    is_of_all = F.col("stream").isNotNull() | F.col("snapshot_marks").isNotNull()
    return facts.where(F.col("table_name").isin(list(tables)) | is_of_all)
