"""landing → changes, control, quarantine: every landed record reaches exactly one.

One pass over the landing of some days reads all tables of a source. Spark holds the parsed records
in a checkpoint (on disk where memory is short) while the facts that need the whole day are found:
new schemas, types of keys, tombstones that follow their own delete. Then come the commits: facts,
quarantine, control, and last changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row

from cdc_assets.cdc.changes.classify import classified_tombstones, classify
from cdc_assets.cdc.changes.earlier_days import corrected_first_days, earlier_days, known_schemas
from cdc_assets.cdc.changes.facts import COMMENT, count_facts
from cdc_assets.cdc.changes.inputs import FACTS, PARSED
from cdc_assets.cdc.changes.message_schemas import KnownSchemas, SchemaOfTable
from cdc_assets.cdc.changes.order_in_files import check_ordered
from cdc_assets.cdc.changes.protected import check_found, check_keys
from cdc_assets.cdc.changes.reading import read_records
from cdc_assets.cdc.changes.written import change_rows, control_rows, quarantine_rows, routed_rows
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.checkpoints import local_checkpoints
from cdc_assets.cdc.lake.commits import DayCommit, DayCommits
from cdc_assets.cdc.lake.metadata import LakeMetadata
from cdc_assets.cdc.lake.schema_rows import add_schemas, move_schemas
from cdc_assets.cdc.registry.schema_cache import cached_decoding
from cdc_assets.cdc.sqltext import local_frame


def create_tables(lake: Lake, source: str) -> None:
    """Create the missing tables of the stage."""
    for table, schema, comment in (
        (
            "quarantine",
            columns.QUARANTINE,
            "landed records that could not be read, with the reason",
        ),
        (FACTS, columns.FACTS, COMMENT),
        ("control", columns.CONTROL, "events that change no row"),
        ("changes", columns.CHANGES, "events that change rows"),
    ):
        lake.create_stage(source, table, schema, comment)


def make_changes(
    lake: Lake,
    source: str,
    metadata: LakeMetadata,
    inputs: Mapping[date, Mapping[str, Any]],
) -> None:
    """Make changes, control and quarantine of some days, one pass a run of days.

    Args:
        lake: has the tables of :func:`create_tables`.
        source: the source.
        metadata: of the lake when the inputs were read.
        inputs: the inputs of each day.

    Raises:
        MissingDayError: the records of a day, or of the day before, were removed for their age.
    """
    settings = lake.config.source(source)
    landed = metadata.day_commits(source, "landing")
    current = {table: metadata.day_commits(source, table) for table in PARSED}
    for day in inputs:
        _refuse_removed(source, settings, landed, day)
    for run in _contiguous(list(inputs)):
        # Tombstones need the day before as well.
        rows = landed.records([run[0] - timedelta(days=1), *run])
        _make_run(lake.for_rows(rows), source, run, inputs, current)


def _refuse_removed(
    source: str, settings: SourceConfig, landed: Mapping[date, DayCommit], day: date
) -> None:
    """Refuse a day whose landing, or that of the day before (for tombstones), was removed."""
    for needed in (day, day - timedelta(days=1)):
        if landed.get(needed, DayCommit(0)).removed is not None:
            raise MissingDayError(
                f"{source}.landing",
                needed,
                f"Its records were removed (landing_keep_days: {settings.landing_keep_days}), and "
                f"the changes of {day} can't be made again without them; what was made stays as it "
                "is. Where files or Kafka still have the day, land it again: "
                f"cdc-assets run --source {source} --from {needed} --to {day} --force",
            )


def _contiguous(days: Sequence[date]) -> list[list[date]]:
    runs: list[list[date]] = []
    for day in sorted(days):
        if runs and day - runs[-1][-1] == timedelta(days=1):
            runs[-1].append(day)
        else:
            runs.append([day])
    return runs


def _make_run(
    lake: Lake,
    source: str,
    days: Sequence[date],
    inputs: Mapping[date, Mapping[str, Any]],
    current: Mapping[str, DayCommits],
) -> None:
    settings = lake.config.source(source)
    landing = lake.stage_days(source, "landing", days)
    lake.create_stage(source, "schemas", columns.SCHEMAS, "message schemas of the source")
    with local_checkpoints() as checkpoints:
        # Tombstones need the day before as well.
        decoding = cached_decoding(lake, source, [days[0] - timedelta(days=1), *days])
        stored = known_schemas(lake, source)
        known = stored.landed_before(days[0])
        reading = read_records(landing, settings, checkpoints, decoding, known)
        check_keys(reading.keys, source, settings)
        has_before = inputs[days[0]]["landing_before"] is not None
        earlier = earlier_days(lake, source, reading, stored, days, has_before)
        tombstones = classified_tombstones(reading, earlier)
        if tombstones is not None:
            tombstones = checkpoints.add(tombstones)
        classified = classify(reading, earlier, lake.config.timezone, tombstones)
        # A checkpoint: each write filters by one destination, and Spark would push the filter below
        # the keys, planning and computing all of them twice a write.
        routed = checkpoints.add(routed_rows(classified, reading, lake.config.hash_salt, days))
        facts = count_facts(routed, settings, lake.config.timezone)
        check_found(facts, source, settings)
        check_ordered(lake, source, facts)
        _record_schemas(lake, source, days, stored, classified.new_schemas, facts)
        run_inputs = {day: inputs[day] for day in days}
        rows = _rows_by_table(lake, landing, routed, facts, settings)
        # changes last: with it the day is complete.
        for table in PARSED:
            head = current[table].head
            lake.overwrite_days(lake.stage(source, table), rows.get(table), run_inputs, head)


def _rows_by_table(
    lake: Lake, landing: DataFrame, routed: DataFrame, facts: Sequence[Row], settings: SourceConfig
) -> dict[str, DataFrame]:
    """The rows of each table that gets any."""
    makers: Mapping[str, Callable[[], DataFrame]] = {
        FACTS: lambda: local_frame(lake.spark, facts, columns.FACTS),
        "quarantine": lambda: quarantine_rows(landing, routed, settings),
        "control": lambda: _ordered(control_rows(routed)),
        "changes": lambda: _ordered(change_rows(routed)),
    }
    reached = {fact.destination for fact in facts} | ({FACTS} if facts else set())
    return {table: make() for table, make in makers.items() if table in reached}


def _record_schemas(
    lake: Lake,
    source: str,
    days: Sequence[date],
    stored: KnownSchemas,
    new_schemas: Iterable[Row],
    facts: Iterable[Row],
) -> None:
    """Write the schemas that records in `changes` carry, with the first day of each."""
    first: dict[SchemaOfTable, date] = {}
    for fact in facts:
        if fact.destination == "changes" and fact.schema_id is not None:
            schema = (fact.table_name, fact.schema_id)
            first[schema] = min(first.get(schema, date.max), fact.landing_date)
    move_schemas(lake, source, corrected_first_days(lake, source, stored, days, first))
    used = [
        Row(**{**row.asDict(), "first_landed": first[row.table_name, row.schema_id]})
        for row in new_schemas
        if (row.table_name, row.schema_id) in first
    ]
    add_schemas(lake, source, used)


def _ordered(rows: DataFrame) -> DataFrame:
    """Files clustered by table, so that a table's merge reads its own part."""
    return rows.sortWithinPartitions("landing_date", "table_name", "topic", "partition", "offset")
