"""landing → changes, control, quarantine: every landed record reaches exactly one.

One pass over the landing of some days reads all tables of a source. What it has read is kept by
Spark (on disk where memory is short) while the few facts that need the whole
day are found: which schemas are new, how keys are typed, which tombstones follow their own
delete. Then three commits: quarantine, control, and last changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.cdc import made_of
from cdc_assets.cdc.changes.facts import (
    COMMENT,
    ORDER,
    SchemaOfTable,
    count_facts,
    first_uses,
    has_facts_of_all,
    read_facts,
)
from cdc_assets.cdc.changes.keys import judge_keys, key_form_before
from cdc_assets.cdc.changes.message_schemas import KnownSchemas, fresh_schemas, known_schemas
from cdc_assets.cdc.changes.parse import IDENTITY
from cdc_assets.cdc.changes.protected import (
    PROTECTED,
    check_found,
    check_keys,
    missing_columns,
    protect,
)
from cdc_assets.cdc.changes.reading import Reading, placed_by_kafka, read_records
from cdc_assets.cdc.changes.route import DESTINATIONS, route
from cdc_assets.cdc.changes.stray_tables import counts_of
from cdc_assets.cdc.changes.tombstones import settle_tombstones
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake, landed_on
from cdc_assets.cdc.lake.checkpoints import local_checkpoints
from cdc_assets.cdc.lake.commits import DayCommit, DayCommits
from cdc_assets.cdc.lake.schema_rows import add_schemas, move_schemas
from cdc_assets.cdc.landing.lines import KEPT_BYTES
from cdc_assets.cdc.made_of import FACTS
from cdc_assets.cdc.registry.kept import kept_decoding
from cdc_assets.cdc.sqltext import with_replaced


def make_changes(lake: Lake, name: str, days: Sequence[date], force: bool = False) -> list[date]:
    """Make changes, control and quarantine of some days in one pass.

    A day that was already made of the same landing by the same rules is left as it is.

    Returns:
        The days that were made.

    Raises:
        MissingDayError: a day has no landing.
    """
    config, source = lake.config, lake.config.source(name)
    identifiers = {
        table: lake.create_stage(name, table, schema, comment)
        for table, schema, comment in (
            (
                "quarantine",
                columns.QUARANTINE,
                "landed records that could not be read, with the reason",
            ),
            (FACTS, columns.FACTS, COMMENT),
            ("control", columns.CONTROL, "events that change no row"),
            ("changes", columns.CHANGES, "events that change rows"),
        )
    }
    landed = lake.day_commits(name, "landing")
    current = {table: lake.day_commits(name, table) for table in identifiers}
    stale = list(days) if force else made_of.stale_changes(config, name, landed, current, days)
    inputs = {day: made_of.of_changes(config, name, landed, day) for day in stale}
    for day in stale:
        _refuse_removed(source, name, landed, day)
    for run in _contiguous(stale):
        # Of tombstones the day before is read as well.
        rows = landed.records([run[0] - timedelta(days=1), *run])
        _make_run(lake.sized(rows), name, source, run, inputs, identifiers, current)
    return stale


def _refuse_removed(
    source: SourceConfig, name: str, landed: Mapping[date, DayCommit], day: date
) -> None:
    """A day is read from its landing, and of tombstones from that of the day before."""
    for needed in (day, day - timedelta(days=1)):
        if landed.get(needed, DayCommit(0)).removed is not None:
            raise MissingDayError(
                f"{name}.landing",
                needed,
                f"Its records were removed (landing_keep_days: {source.landing_keep_days}), and "
                f"the changes of {day} can't be made again without them; what was made stays as it "
                "is. Where files or Kafka still have the day, land it again: "
                f"cdc-assets run --source {name} --from {needed} --to {day} --force",
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
    name: str,
    source: SourceConfig,
    days: Sequence[date],
    inputs: Mapping[date, Mapping[str, Any]],
    identifiers: Mapping[str, str],
    current: Mapping[str, DayCommits],
) -> None:
    landing = lake.spark.table(lake.stage(name, "landing"))
    of_days = landing.where(landed_on(days))
    with local_checkpoints() as checkpoints:
        lake.create_stage(name, "schemas", columns.SCHEMAS, "message schemas of the source")
        # Of tombstones the day before is read as well.
        day_before = days[0] - timedelta(days=1)
        decoding = kept_decoding(lake, name, [day_before, *days])
        reading = read_records(of_days, source, checkpoints, decoding)
        parsed, keys = reading.parsed, reading.keys
        if reading.is_kafka_placed:
            parsed = placed_by_kafka(parsed, lake.config.timezone)
        check_keys(keys, name, source)
        stood = known_schemas(lake, name)
        carried_first = _first_days(reading)
        known = stood.moved(_no_longer_first(lake, name, stood, days, carried_first))
        fresh = fresh_schemas(reading.carried, reading.schemas, known)
        schemas = known.joined(fresh, source)
        misfits = judge_keys(
            keys,
            source,
            schemas,
            lambda table: key_form_before(lake, name, table, days[0], schemas),
        )
        # What is quarantined says nothing of its table (R3): here by its key's form, and below
        # by any of its values.
        used = {(s.table_name, s.schema_id) for s in keys.shapes if s not in misfits}
        unused = {(s.table_name, s.schema_id) for s in misfits} - used
        fresh = [row for row in fresh if (row.table_name, row.schema_id) not in unused]
        schemas = known.joined(fresh, source)
        verdicts = None
        if keys.tombstones:
            # Planning the reading of a day that is not there takes as long as that of any other.
            has_before = inputs[days[0]]["landing_before"] is not None
            before = landing.where(landed_on([day_before])) if has_before else None
            settled = settle_tombstones(lake, name, parsed, before, days[0], decoding)
            verdicts = checkpoints.add(settled)
        of_records = route(parsed, source, keys, schemas, verdicts, misfits)
        # A checkpoint: each write filters by one destination, and Spark would push the filter below
        # the keys, planning and computing all of them twice a write.
        carried = {
            (table, schema_id)
            for table, what in reading.carried
            if table is not None and (schema_id := reading.schemas.id_of(what)) is not None
        }
        salt = lake.config.hash_salt
        routed = checkpoints.add(
            protect(of_records.select(*_ROUTED), source, salt, days, carried, schemas).drop("kind")
        )
        facts = count_facts(routed, source, lake.config.timezone)
        check_found(facts, name, source)
        first = _used_by_changes(facts)
        move_schemas(lake, name, _no_longer_first(lake, name, stood, days, first))
        add_schemas(lake, name, _with_first_days(fresh, first))
        reached = {fact.destination for fact in facts} - {ORDER, PROTECTED}
        of_days_made = {day: inputs[day] for day in days}
        # changes last: with it the day is complete.
        for table, rows in (
            (FACTS, lake.spark.createDataFrame(facts, columns.FACTS)),
            ("quarantine", _quarantined(of_days, routed, source)),
            ("control", _ordered(_control(routed))),
            ("changes", _ordered(_changes(routed))),
        ):
            chosen = rows if table in {FACTS, *reached} else _none(lake, identifiers[table])
            lake.overwrite_days(identifiers[table], chosen, of_days_made, current[table].head)


FirstDays = dict[SchemaOfTable, date]


def _first_days(reading: Reading) -> FirstDays:
    """The schemas that readable records of tables carry, each with the day of the first of them."""
    first: FirstDays = {}
    for (table, what), place in reading.carried.items():
        schema_id = reading.schemas.id_of(what)
        if table is not None and schema_id is not None:
            known = first.get((table, schema_id), date.max)
            first[table, schema_id] = min(known, place.landing_date)
    return first


def _used_by_changes(facts: Iterable[Row]) -> FirstDays:
    """The schemas that records in `changes` carried, each with the day of the first of them."""
    first: FirstDays = {}
    for fact in facts:
        if fact.destination == "changes" and fact.schema_id is not None:
            of_table = (fact.table_name, fact.schema_id)
            first[of_table] = min(first.get(of_table, date.max), fact.landing_date)
    return first


def _no_longer_first(
    lake: Lake, name: str, known: KnownSchemas, days: Sequence[date], found: FirstDays
) -> dict[SchemaOfTable, date | None]:
    """The schemas that these days no longer begin, after their landing was corrected.

    Each with the day that begins it now: types would else come from records that are gone. None
    where no day has it. A job where there is such a schema.

    Args:
        known: as they stood.
        days: those that are made again.
        found: the schemas of these days as they are now.
    """
    moved = [
        key
        for key, first in known.first_landed.items()
        if first in days and found.get(key) != first
    ]
    if not moved or not has_facts_of_all(lake, name):
        return {}
    elsewhere = first_uses(lake, name, set(moved), days)
    firsts = {key: [d for d in (found.get(key), elsewhere.get(key)) if d] for key in moved}
    return {key: min(of_key, default=None) for key, of_key in firsts.items()}


def _with_first_days(fresh: Iterable[Row], first: FirstDays) -> list[Row]:
    return [
        Row(**{**row.asDict(), "first_landed": first[row.table_name, row.schema_id]})
        for row in fresh
        if (row.table_name, row.schema_id) in first
    ]


def _none(lake: Lake, identifier: str) -> DataFrame:
    """No rows of a table."""
    return lake.spark.table(identifier).where("false")


# What is written of a record, and what finds it in the landing again.
_ROUTED = (
    *dict.fromkeys((*columns.CHANGES.names, *columns.CONTROL.names)),
    *("value_hash", "message_key_json", "reason", "detail", "destination", "kind", "row_number"),
)


_BYTES = ("key", "value", "headers")


def _quarantined(landing: DataFrame, routed: DataFrame, source: SourceConfig) -> DataFrame:
    """Landing rows of what could not be read; their bytes are read from the landing again.

    Nothing says which columns are in such bytes: where one is protected, they stay in the landing.
    """
    bad = (
        routed.where("destination = 'quarantine'")
        .groupBy(*(F.col(c).alias(f"bad_{c}") for c in IDENTITY), "row_number")
        .agg(*(F.min(c).alias(c) for c in ("reason", "detail", "table_name")))
    )
    rows = landing.withColumn("value_hash", F.xxhash64("value"))
    same = [F.col(c).eqNullSafe(F.col(f"bad_{c}")) for c in IDENTITY]
    found = rows.join(bad, same)
    # Of what is too large the beginning finds it again; the landing has all of it.
    is_over = F.col("reason") == "over_limit"
    kept = {
        c: F.when(is_over, F.substring(c, 1, KEPT_BYTES)).otherwise(F.col(c))
        for c in ("key", "value")
    }
    found = found.withColumns(kept).to(columns.QUARANTINE)
    if not source.is_protected:
        return found
    nothing = {c: F.lit(None).cast(columns.QUARANTINE[c].dataType) for c in _BYTES}
    return found.withColumns(nothing)


def _control(routed: DataFrame) -> DataFrame:
    rows = routed.where("destination = 'control'")
    return with_replaced(rows, {"key": "coalesce(key, message_key_json)"}).to(columns.CONTROL)


def _changes(routed: DataFrame) -> DataFrame:
    return routed.where("destination = 'changes'").to(columns.CHANGES)


def _ordered(rows: DataFrame) -> DataFrame:
    """Files clustered by table, so that a table's merge reads its own part."""
    return rows.sortWithinPartitions("landing_date", "table_name", "topic", "partition", "offset")


def count_landed(lake: Lake, name: str, days: Sequence[date]) -> dict[date, int]:
    """Records that landed on some days, also those removed since; a day without any is left out."""
    rows = lake.stage_days(name, "landing", days)
    counts = {r.landing_date: r["count"] for r in rows.groupBy("landing_date").count().collect()}
    commits = lake.day_commits(name, "landing")
    removed = {day: commits[day].removed for day in days if day in commits}
    return {**counts, **{day: count for day, count in removed.items() if count is not None}}


def count_by(lake: Lake, name: str, days: Sequence[date]) -> dict[date, dict[str, Any]]:
    """Figures of made days: records per destination, op, table and reason.

    `written` is what the files of each destination hold, by their own metadata; `further_rows` are
    those beyond the first of their record; `scattered` are tables that may have events of one key
    and of equal positions in several partitions; `falls` are events below one at a lower offset of
    their partition, which a redelivery or a new server sends; `streams` are those of each table;
    `unprotected` are, by table, the columns of `exclude` and `hash` that none of its rows has;
    `topics` are the changes by topic and table.
    """
    figures: dict[date, dict[str, Any]] = {
        day: {
            "landed": 0,
            "further_rows": 0,
            "written": {},
            "tables": {},
            "scattered": [],
            "falls": 0,
            "streams": {},
            "unprotected": {},
            "topics": {},
            **{table: {} for table in DESTINATIONS},
        }
        for day in days
    }
    for day, count in count_landed(lake, name, days).items():
        figures[day]["landed"] = count
    for table in DESTINATIONS:
        for day, files in lake.day_files(lake.stage(name, table), days).items():
            figures[day]["written"][table] = files.records
    facts = read_facts(lake, name, days)
    for (day, table), missing in missing_columns(facts, lake.config.source(name)).items():
        figures[day]["unprotected"][table] = missing
    for day, topics in counts_of(facts).items():
        figures[day]["topics"] = topics
    for fact in facts:
        if fact.destination == PROTECTED:
            continue
        if fact.destination == ORDER:
            figures[fact.landing_date]["falls"] += fact.falls or 0
            if fact.stream is not None and fact.first_kafka_ms is not None:
                of_table = figures[fact.landing_date]["streams"].setdefault(fact.table_name, set())
                of_table.add(fact.stream)
            if fact.scattered:
                figures[fact.landing_date]["scattered"].append(fact.table_name)
            continue
        of_day = figures[fact.landing_date]
        of_day["further_rows"] += fact.further_rows or 0
        label = {
            "changes": f"{fact.op}:{fact.source_op}",
            "control": fact.op,
            "quarantine": fact.reason,
        }[fact.destination]
        counts = of_day[fact.destination]
        counts[label] = counts.get(label, 0) + fact.records
        if fact.destination == "changes":
            tables = of_day["tables"]
            tables[fact.table_name] = tables.get(fact.table_name, 0) + fact.records
    return figures
