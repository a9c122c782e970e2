"""landing → changes, control, quarantine: every landed record reaches exactly one.

One pass over the landing of some days reads all tables of a source. What it has read is kept by
Spark (on disk where memory is short) while the few facts that need the whole
day are found: which schemas are new, how keys are typed, which tombstones follow their own
delete. Then three commits: quarantine, control, and last changes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.facts import COMMENT, facts_of, read_facts
from cdc_assets.cdc.changes.facts import TABLE as FACTS
from cdc_assets.cdc.changes.key_forms import KeyForm, readable_as, settled_form
from cdc_assets.cdc.changes.message_schemas import (
    Carried,
    KnownSchemas,
    MessageSchemas,
    Place,
    known_schemas,
    read_schemas,
    register_schemas,
)
from cdc_assets.cdc.changes.parse import parse
from cdc_assets.cdc.config import Config, SourceConfig
from cdc_assets.cdc.envelopes.connect import parts_of, start_hash
from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import DayCommit, DayCommits, Lake, landed_on
from cdc_assets.cdc.lake.checkpoints import Kept, keeping
from cdc_assets.cdc.sqltext import (
    Query,
    Sql,
    case,
    few_rows,
    is_one_of,
    literal,
    with_columns,
    with_replaced,
)
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.readers import canonical_key, of_member
from cdc_assets.cdc.values.strict_json import shallow

log = logging.getLogger(__name__)

# Raised when the reading of records changes, so that days made before are made again.
READER_VERSION = 4

DESTINATIONS = ("changes", "control", "quarantine")
_IDENTITY = ("landing_date", "topic", "partition", "offset", "value_hash")


@dataclass(frozen=True)
class Shape:
    """How the keys of one table's records of a day look: which columns, under which schemas."""

    day: date
    table_name: str
    schema_id: str | None
    names: tuple[str, ...]
    key_schema: str | None = None
    kinds: str | None = None  # the values' JSON types, where no schema says them
    unquoted: str | None = None  # the same with whole numbers out of their quotes


# --- what the day's records have in common

_SHAPE = (
    "kind", "landing_date", "table_name", "start_hash", "schema_id", "key_schema", "key_names",
    "key_kinds", "key_unquoted",
)  # fmt: skip


def survey_records(parsed: DataFrame) -> list[Row]:
    """How many readable records look alike, by topic and partition, and the first of each.

    Also of records that are not readable, where something was cut off them.
    """
    return (
        parsed.where("reason IS NULL OR cut_hash IS NOT NULL")
        .withColumn("is_read", F.expr("reason IS NULL"))
        .groupBy("topic", "partition", "cut_hash", "is_read", *_SHAPE)
        .agg(F.expr("count(*) AS records"), F.expr("min(offset) AS first_offset"))
        .collect()
    )


def schemas_carried(surveyed: Iterable[Row]) -> dict[tuple[str | None, Carried], Place]:
    """By table: what says a message's schema, and the first record that has it."""
    found: dict[tuple[str | None, Carried], Place] = {}
    for r in surveyed:
        carried = Carried(r.start_hash, r.schema_id)
        if carried == Carried(None, None) or not r.is_read:
            continue
        place = Place(r.landing_date, r.topic, r.partition, r.first_offset)
        before = found.get((r.table_name, carried), place)
        found[r.table_name, carried] = min(before, place)
    return found


def fresh_schemas(
    carried: Mapping[tuple[str | None, Carried], Place],
    schemas: MessageSchemas,
    known: KnownSchemas,
) -> list[Row]:
    """Schemas that are not known, or landed before the day known: rows of the table `schemas`."""
    first: dict[tuple[str, str], date] = {}
    for (table, what), place in carried.items():
        schema_id = schemas.id_of(what)
        if table is not None and schema_id is not None:
            of_table = (table, schema_id)
            first[of_table] = min(first.get(of_table, date.max), place.landing_date)
    return [
        Row(schema_id=i, table_name=table, schema=schemas.texts[i], first_landed=landed)
        for (table, i), landed in first.items()
        if known.first_landed.get((table, i), date.max) > landed
    ]


def with_schema_ids(parsed: DataFrame, schemas: MessageSchemas) -> DataFrame:
    """Put each start's schema in `schema_id`."""
    rows = [(start, schema_id) for start, schema_id in schemas.of_start.items()]
    if not rows:
        return parsed.drop("start_hash")
    known = few_rows(parsed.sparkSession, rows, start_hash="bigint", _of_start="string")
    joined = parsed.join(F.broadcast(known), "start_hash", "left")
    ids = F.expr("coalesce(_of_start, schema_id)")
    return joined.withColumn("schema_id", ids).drop("start_hash", "_of_start")


# --- keys

RAW_KEYS = ("key_raw", "old_key_raw", "new_key_raw")
TypedNames = tuple[tuple[str, ...], tuple[tuple[str, types.ColumnType], ...]]


def with_canonical_keys(
    parsed: DataFrame,
    source: SourceConfig,
    shapes: Iterable[Shape],
    schemas: KnownSchemas,
    misfits: Mapping[Shape, str],
) -> Query:
    """Replace raw keys by canonical ones (DESIGN, column `key`) and judge unfit values.

    A key whose columns have no type that is known by its day is canonical as JSON wrote it.
    """
    by_types: dict[TypedNames, list[Shape]] = {}
    for shape in shapes:
        typed = _types_of_key(shape, source, schemas)
        if typed or shape in misfits:
            by_types.setdefault((shape.names, typed), []).append(shape)
    planned = _with_plans(parsed, list(by_types.values()), misfits)
    keyed = with_canonical(Query(planned), RAW_KEYS, list(by_types))
    is_change = "(kind = 'row' OR (kind = 'tombstone' AND op = 'd'))"
    is_unfit = "((key_raw IS NOT NULL AND key IS NULL) OR key_misfit IS NOT NULL)"
    malformed = (
        f"reason IS NULL AND {is_one_of('table_name', source.tables)} "
        f"AND {is_change} AND {is_unfit}"
    )
    says = "coalesce(key_misfit, concat('a key value does not fit its column: ', key_raw))"
    return keyed.replace(
        {
            # D10: a row that has the key that it had did not move.
            "old_key": "nullif(old_key, key)",
            "reason": case((malformed, "'malformed_key'"), otherwise="reason"),
            "detail": case((malformed, says), otherwise="detail"),
        },
    ).drop("key_plan", "key_misfit", *RAW_KEYS)


def _types_of_key(
    shape: Shape, source: SourceConfig, schemas: KnownSchemas
) -> tuple[tuple[str, types.ColumnType], ...]:
    """The key columns whose types are known by the shape's day, each as its column holds it."""
    config = source.tables.get(shape.table_name)
    own = schemas.columns.get((shape.table_name, shape.schema_id), {}) if shape.schema_id else {}
    said = (
        types.columns_of_config(config.columns if config else {}),
        schemas.latest(shape.table_name, shape.day),
        own,
    )
    known = {n: c for columns in said for n, c in columns.items() if c.wire != "unknown"}
    # A message key is read as its own schema writes it, and held as its column (D5).
    of_key = types.columns_of_key(shape.key_schema) if shape.key_schema else {}
    return tuple(
        (name, types.held_as(of_key.get(name, column), column.spark))
        for name, column in ((n, known.get(n)) for n in shape.names)
        if column is not None
    )


def judge_keys(
    keys: KeySurvey,
    source: SourceConfig,
    schemas: KnownSchemas,
    before: Callable[[str], KeyForm | None],
) -> dict[Shape, str]:
    """The shapes of keys that their table can't hold, each with what is wrong (R6).

    Args:
        keys: :func:`survey_keys` of some days.
        source: the rules; only keys of configured tables are judged.
        schemas: all that landed up to these days.
        before: gives the form of a table's keys before these days; asked only in doubt.
    """
    by_table: dict[str, dict[date, dict[KeyForm, dict[Shape, int]]]] = {}
    for shape, count in keys.shapes.items():
        config = source.tables.get(shape.table_name)
        if config is not None and config.key not in ("none", "row"):
            form = _form(shape, source, schemas)
            of_day = by_table.setdefault(shape.table_name, {}).setdefault(shape.day, {})
            of_day.setdefault(form, {})[shape] = count
    misfits: dict[Shape, str] = {}
    for table, days in by_table.items():
        so_far: KeyForm | None = None
        for day, forms in sorted(days.items()):
            bare = [s for s in keys.of_tombstones([table]) if s.day == day and s.names]
            lone = {shape: _form(shape, source, schemas) for shape in bare}
            if len({*forms, *lone.values()}) > 1 and so_far is None:
                so_far = before(table)
            counts = {form: sum(shapes.values()) for form, shapes in forms.items()}
            settled = settled_form(counts, so_far)
            so_far = settled or so_far
            if settled is None:
                continue
            of_rows = {shape: form for form, shapes in forms.items() for shape in shapes}
            for shape, form in {**of_rows, **lone}.items():
                if not settled.holds(form):
                    misfits[shape] = f"the key is ({form}), the table's is ({settled})"
    return misfits


def _form(shape: Shape, source: SourceConfig, schemas: KnownSchemas) -> KeyForm:
    typed = {name: (kind.spark,) for name, kind in _types_of_key(shape, source, schemas)}
    kinds, unquoted = (types.columns_of_inference(k or "") for k in (shape.kinds, shape.unquoted))
    inferred = {
        name: readable_as(kind.spark, unquoted.get(name, kind).spark)
        for name, kind in kinds.items()
    }
    return KeyForm(tuple((n, typed.get(n, inferred.get(n, ()))) for n in sorted(shape.names)))


def key_form_before(
    lake: Lake, name: str, table: str, first: date, schemas: KnownSchemas
) -> KeyForm | None:
    """The form of a table's keys on its newest day of changes before `first`, if it has one."""
    rows = lake.spark.table(lake.stage(name, "changes")).where(
        (F.col("landing_date") < F.lit(first))
        & (F.col("table_name") == table)
        & F.col("key").isNotNull()
    )
    newest = rows.agg(F.max("landing_date").alias("day")).first()
    if newest is None or newest.day is None:
        return None
    of_day = rows.where(F.col("landing_date") == F.lit(newest.day))
    found = of_day.agg(
        F.collect_set(F.array_sort(F.json_object_keys("key"))).alias("names"),
        F.expr(f"schema_of_variant_agg({shallow('key')})").alias("kind"),
    ).first()
    if found is None or len(found.names) != 1:
        return None
    inferred = types.columns_of_inference(found.kind or "")
    known = types.over(
        types.columns_of_config(lake.config.source(name).tables[table].columns),
        schemas.latest(table, newest.day),
    )
    columns = ((n, known.get(n) or inferred.get(n)) for n in sorted(found.names[0]))
    return KeyForm(tuple((n, (kind.spark,) if kind else ()) for n, kind in columns))


def _with_plans(
    parsed: DataFrame, plans: Sequence[Sequence[Shape]], misfits: Mapping[Shape, str]
) -> DataFrame:
    """Add `key_plan`: which of the plans reads the record's key, and what `misfits` says of it.

    Both are null where nothing is known of the key.
    """
    rows = [
        (
            shape.day,
            shape.table_name,
            shape.schema_id or "",
            shape.key_schema or "",
            json.dumps(shape.names, ensure_ascii=False),
            shape.kinds or "",
            shape.unquoted or "",
            number,
            misfits.get(shape),
        )
        for number, shapes in enumerate(plans)
        for shape in shapes
    ]
    if not rows:
        nothing = ("CAST(NULL AS int) AS key_plan", "CAST(NULL AS string) AS key_misfit")
        return parsed.selectExpr("*", *nothing)
    known = few_rows(
        parsed.sparkSession,
        rows,
        plan_day="date",
        plan_table="string",
        plan_schema="string",
        plan_key_schema="string",
        plan_names="string",
        plan_kinds="string",
        plan_unquoted="string",
        key_plan="int",
        key_misfit="string",
    )
    same = F.expr(
        "landing_date = plan_day AND table_name = plan_table "
        "AND coalesce(schema_id, '') = plan_schema AND coalesce(key_schema, '') = plan_key_schema "
        "AND key_names = from_json(plan_names, 'array<string>') "
        "AND coalesce(key_kinds, '') = plan_kinds AND coalesce(key_unquoted, '') = plan_unquoted"
    )
    of_plan = [name for name in known.columns if name.startswith("plan_")]
    return parsed.join(F.broadcast(known), same, "left").drop(*of_plan)


def with_canonical(parsed: Query, raws: Sequence[str], plans: Sequence[TypedNames]) -> Query:
    """Add the canonical text of each raw key; null where a column can't hold its value."""
    forms = [(n, form) for n, plan in enumerate(plans) if (form := canonical_form(plan))]
    judged = parsed.extend(
        {
            f"_{raw}_is_canonical": case(
                *((f"key_plan = {n}", f"{raw} RLIKE {literal(form)}") for n, form in forms),
                otherwise="false",
            )
            for raw in raws
        },
    )
    documents = judged.extend(
        {f"_{raw}": case((f"NOT _{raw}_is_canonical", f"try_parse_json({raw})")) for raw in raws},
    )
    # A member that is null is left out of the text.
    read = documents.extend(
        {
            f"_{raw}_read": case(
                *((f"key_plan = {n}", _read_key(f"_{raw}", plan)) for n, plan in enumerate(plans)),
                otherwise="CAST(NULL AS string)",
            )
            for raw in raws
        },
    )
    canonical = {}
    for raw in raws:
        whole = (
            (f"key_plan = {n}", case((_has_members(f"_{raw}_read", names), f"_{raw}_read")))
            for n, (names, _) in enumerate(plans)
        )
        canonical[raw.removesuffix("_raw")] = case(
            (f"{raw} IS NULL", "CAST(NULL AS string)"),
            (f"_{raw}_is_canonical", raw),
            *whole,
            otherwise=raw,
        )
    dropped = (f"_{raw}{part}" for raw in raws for part in ("", "_read", "_is_canonical"))
    return read.extend(canonical).drop(*dropped)


# The JSON of values that are canonical as they were sent, by the type of their column.
_CANONICAL = {
    "int": "(?:0|-?[1-9][0-9]{0,8})",
    "bigint": "(?:0|-?[1-9][0-9]{0,17})",
    "string": r'"[^"\\]*"',
}
_PLAIN_NAME = re.compile("[A-Za-z0-9_]+")


def canonical_form(plan: TypedNames) -> str | None:
    """A pattern of raw keys that are canonical, which most are; None where the types have none."""
    names, typed = plan
    known = {name: kind.wire for name, kind in typed}
    members = [
        f'"{name}":{_CANONICAL[known[name]]}'
        for name in sorted(names)
        if known.get(name) in _CANONICAL and _PLAIN_NAME.fullmatch(name)
    ]
    return rf"^\{{{','.join(members)}\}}\z" if len(members) == len(names) > 0 else None


def _read_key(document: Sql, plan: TypedNames) -> Sql:
    names, typed = plan
    known = dict(typed)
    members = []
    for name in sorted(names):
        at = of_member(document, name)
        value = canonical_key(at, known[name]) if name in known else at("variant")
        members.append(f"{literal(name)}, {value}")
    return f"to_json(named_struct({', '.join(members)}))"


def _has_members(text: Sql, names: Sequence[str]) -> Sql:
    """Has a key all its columns?"""
    if len(names) == 1:
        return f"{text} <> '{{}}'"
    return f"size(json_object_keys({text})) = {len(names)}"


# --- tombstones


def settle_tombstones(
    lake: Lake, name: str, parsed: DataFrame, before: DataFrame | None, first: date
) -> DataFrame:
    """Tell tombstones that follow their own delete from lone ones (D11).

    Args:
        parsed: records of some days from `first` on.
        before: what landed on the day before `first`; None where nothing did.

    Returns:
        `_IDENTITY` of each tombstone, `follows_delete`, and its `table_name` (null where
        its topic has none or several).
    """
    source = lake.config.source(name)
    slim = parsed.select(*_IDENTITY, "message_key", "kind", "op", "table_name", "reason")
    tombstones = slim.where("kind = 'tombstone' AND reason IS NULL AND length(message_key) > 0")
    place = ["topic", "partition", "message_key"]
    history = slim.join(tombstones.select(*place).distinct(), place, "left_semi").unionByName(
        slim.where("kind = 'tombstone' AND coalesce(length(message_key), 0) = 0")
    )
    if before is not None:
        keys = tombstones.selectExpr("topic", "partition", "message_key AS key").distinct()
        of_keys = before.join(keys, ["topic", "partition", "key"], "left_semi")
        earlier = parse(of_keys.to(before.schema), source, whole=True).select(*slim.columns)
        history = history.unionByName(earlier)
    return judge_tombstones(history, _topic_tables(lake, name, parsed, first), first)


def judge_tombstones(history: DataFrame, topics: DataFrame, first: date) -> DataFrame:
    """Each tombstone of `history` from `first` on against the nearest record before it (D11).

    Args:
        history: parsed records: all that share topic, partition and key bytes with a tombstone,
            and the tombstones without a key, which follow nothing.
        topics: as :func:`tables_by_topic` gives them.

    Returns:
        `_IDENTITY`, `follows_delete`, `tombstone_table`, and `nearest_offset`, where the nearest
        earlier record of the same key bytes stands (null: there is none).
    """
    # Offsets strictly below: a record that landed twice is not its own predecessor.
    below = (
        "OVER (PARTITION BY topic, partition, message_key ORDER BY offset "
        "RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    # Also a delete that was quarantined, for want of a key or under `key: none`.
    is_delete = "coalesce(kind = 'row' AND op = 'd', false)"
    seen_before = f"struct({is_delete} AS is_delete, landing_date, table_name, offset)"
    judged = with_columns(history, {"nearest": f"max_by({seen_before}, offset) {below}"}).where(
        "kind = 'tombstone' AND reason IS NULL"
    )
    has_key = "length(message_key) > 0"  # D6: an empty one is none
    is_recent = "nearest.landing_date >= date_sub(landing_date, 1)"
    follows = f"coalesce({has_key} AND nearest.is_delete AND {is_recent}, false)"
    # Of tables that the topic had by the day of the tombstone.
    until = "filter(seen, t -> t.since <= landing_date)"
    only_table = case((f"size({until}) = 1", f"get({until}, 0).table_name"))
    return (
        judged.where(f"landing_date >= {literal(first)}")
        .join(F.broadcast(topics), "topic", "left")
        .selectExpr(
            *_IDENTITY,
            f"{follows} AS follows_delete",
            f"CASE WHEN {follows} THEN nearest.table_name ELSE {only_table} END AS tombstone_table",
            f"CASE WHEN {has_key} THEN nearest.offset END AS nearest_offset",
        )
        .distinct()
    )


def _topic_tables(lake: Lake, name: str, parsed: DataFrame, first: date) -> DataFrame:
    """As :func:`tables_by_topic`, with what the lake has seen before `first`."""
    seen = _rows_seen(parsed)
    identifier = lake.stage(name, "changes")
    if lake.exists(identifier):
        past = lake.spark.table(identifier).where(F.col("landing_date") < F.lit(first))
        seen = seen.unionByName(past.select("topic", "table_name", "landing_date"))
    return _by_topic(seen)


def tables_by_topic(parsed: DataFrame) -> DataFrame:
    """`topic`, `seen`: the tables of each topic and the day each was first seen."""
    return _by_topic(_rows_seen(parsed))


def _rows_seen(parsed: DataFrame) -> DataFrame:
    rows = parsed.where("kind = 'row' AND reason IS NULL")
    return rows.select("topic", "table_name", "landing_date")


def _by_topic(seen: DataFrame) -> DataFrame:
    return (
        seen.where("table_name IS NOT NULL")
        .groupBy("topic", "table_name")
        .agg(F.min("landing_date").alias("since"))
        .groupBy("topic")
        .agg(F.collect_list(F.struct("table_name", "since")).alias("seen"))
    )


# --- the stage


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
    landed = lake.day_commits(lake.stage(name, "landing"))
    made_of = {day: inputs_of(config, name, landed, day) for day in days}
    current = {t: lake.day_commits(i) for t, i in identifiers.items()}
    stale = [
        day
        for day in days
        if force
        or any(current[t].get(day, DayCommit(0)).inputs != made_of[day] for t in identifiers)
    ]
    for run in _contiguous(stale):
        # Of tombstones the day before is read as well.
        rows = landed.records([run[0] - timedelta(days=1), *run])
        _make_run(lake.sized(rows), name, source, run, made_of, identifiers, current)
    return stale


def inputs_of(
    config: Config, name: str, landed: Mapping[date, DayCommit], day: date
) -> dict[str, Any]:
    """What changes(day) is made of: the landings' snapshots and the rules of reading.

    Raises:
        MissingDayError: the day has no landing.
    """
    if day not in landed:
        raise MissingDayError(
            f"{name}.landing",
            day,
            f"Materialize it first: cdc-assets run --source {name} "
            f"--from {day} --to {day}, or the asset {name}/landing.",
        )
    before = landed.get(day - timedelta(days=1))
    return {
        "landing": landed[day].snapshot_id,
        "landing_before": before.snapshot_id if before else None,
        "rules": rules_fingerprint(config.source(name)),
    }


def made_by_other_rules(lake: Lake, name: str, days: Sequence[date]) -> list[date]:
    """Those days whose changes an older version or configuration made: they are made again."""
    made = lake.day_commits(lake.stage(name, "changes"))
    rules = rules_fingerprint(lake.config.source(name))
    return [day for day in days if day in made and made[day].inputs.get("rules") != rules]


def rules_fingerprint(source: SourceConfig) -> str:
    """Changes with everything in the configuration that decides how a record is read."""
    tables = {n: [t.key, t.replica_identity, t.columns] for n, t in sorted(source.tables.items())}
    resets = [instant.isoformat() for instant in source.position_reset]
    rules = [READER_VERSION, source.format, resets, tables, source.unavailable_value]
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]


def _contiguous(days: Sequence[date]) -> list[list[date]]:
    runs: list[list[date]] = []
    for day in sorted(days):
        if runs and day - runs[-1][-1] == timedelta(days=1):
            runs[-1].append(day)
        else:
            runs.append([day])
    return runs


@dataclass(frozen=True)
class Reading:
    """The records of some days, read, and what they have in common."""

    parsed: DataFrame  # kept, with the `schema_id` of each
    carried: Mapping[tuple[str | None, Carried], Place]
    schemas: MessageSchemas
    keys: KeySurvey

    def landed_schemas(self, source: SourceConfig) -> KnownSchemas:
        """The schemas that these records carry, without a lake."""
        none = KnownSchemas({}, {})
        return none.joined(fresh_schemas(self.carried, self.schemas, none), source.format)


def read_records(landing: DataFrame, source: SourceConfig, kept: Kept) -> Reading:
    """Read landing rows in one pass, and survey what was read."""
    parsed = kept.keep(parse(landing, source))
    surveyed = survey_records(parsed)
    schemas = read_schemas(landing, source, _examples(surveyed))
    if schemas.no_starts:
        # What stands before the payload is no schema: such messages are read whole.
        starts = ", ".join(f"{start}L" for start in schemas.no_starts)
        text = "CAST(value AS string)"
        hashed = start_hash(text, parts_of(text))
        again = parse(landing.where(f"{hashed} IN ({starts})"), source, whole=True)
        cut = parsed.where(f"NOT coalesce(cut_hash IN ({starts}), false)")
        parsed = kept.keep(cut.unionByName(again))
        surveyed = survey_records(parsed)
        schemas = read_schemas(landing, source, _examples(surveyed))
    return Reading(
        with_schema_ids(parsed.drop("cut_hash"), schemas),
        schemas_carried(surveyed),
        schemas,
        survey_keys(surveyed, schemas),
    )


def _examples(surveyed: Iterable[Row]) -> dict[Carried, Place]:
    """The first record of each schema that was sent, and of each text that was cut off."""
    first: dict[Carried, Place] = {}
    for r in surveyed:
        place = Place(r.landing_date, r.topic, r.partition, r.first_offset)
        for what in (Carried(r.cut_hash, None), Carried(r.start_hash, r.schema_id)):
            if what != Carried(None, None) and (r.is_read or what.start_hash is not None):
                first[what] = min(first.get(what, place), place)
    return first


def _make_run(
    lake: Lake,
    name: str,
    source: SourceConfig,
    days: Sequence[date],
    made_of: Mapping[date, Mapping[str, Any]],
    identifiers: Mapping[str, str],
    current: Mapping[str, DayCommits],
) -> None:
    landing = lake.spark.table(lake.stage(name, "landing"))
    of_days = landing.where(landed_on(days))
    with keeping() as kept:
        reading = read_records(of_days, source, kept)
        parsed, keys = reading.parsed, reading.keys
        lake.create_stage(name, "schemas", columns.SCHEMAS, "message schemas of the source")
        known = known_schemas(lake, name)
        fresh = fresh_schemas(reading.carried, reading.schemas, known)
        schemas = known.joined(fresh, source.format)
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
        schemas = known.joined(fresh, source.format)
        verdicts = None
        if keys.tombstones:
            # Planning the reading of a day that is not there takes as long as that of any other.
            has_before = made_of[days[0]]["landing_before"] is not None
            before = landing.where(landed_on([days[0] - timedelta(days=1)])) if has_before else None
            verdicts = kept.keep(settle_tombstones(lake, name, parsed, before, days[0]))
        of_records = route(parsed, source, keys, schemas, verdicts, misfits)
        # Kept: each write asks for one destination, and Spark would push that condition below the
        # keys, planning and working out all of them twice a write.
        routed = kept.keep(of_records.select(*_ROUTED))
        facts = facts_of(routed, source).collect()
        register_schemas(lake, name, _used_by_changes(fresh, facts))
        reached = {fact.destination for fact in facts}
        inputs = {day: made_of[day] for day in days}
        # changes last: with it the day is complete.
        for table, rows in (
            (FACTS, lake.spark.createDataFrame(facts, columns.FACTS)),
            ("quarantine", _quarantined(of_days, routed)),
            ("control", _ordered(_control(routed))),
            ("changes", _ordered(_changes(routed))),
        ):
            chosen = rows if table in {FACTS, *reached} else _none(lake, identifiers[table])
            lake.overwrite_days(identifiers[table], chosen, inputs, current[table].head)


def _used_by_changes(fresh: Iterable[Row], facts: Iterable[Row]) -> list[Row]:
    """Those schemas that records in `changes` carried, each with the day of the first of them."""
    first: dict[tuple[str, str], date] = {}
    for fact in facts:
        if fact.destination == "changes" and fact.schema_id is not None:
            of_table = (fact.table_name, fact.schema_id)
            first[of_table] = min(first.get(of_table, date.max), fact.landing_date)
    return [
        Row(**{**row.asDict(), "first_landed": first[row.table_name, row.schema_id]})
        for row in fresh
        if (row.table_name, row.schema_id) in first
    ]


def _none(lake: Lake, identifier: str) -> DataFrame:
    """No rows of a table."""
    return lake.spark.table(identifier).where("false")


@dataclass(frozen=True)
class KeySurvey:
    """The shapes of row keys with their counts, and those of each day's tombstones."""

    shapes: Mapping[Shape, int]
    tombstones: frozenset[Shape]  # for a table each; its name is not known yet

    def of_tombstones(self, tables: Iterable[str]) -> list[Shape]:
        """The shapes that tombstones would have as records of these tables."""
        return [replace(shape, table_name=table) for table in tables for shape in self.tombstones]


def survey_keys(surveyed: Iterable[Row], schemas: MessageSchemas) -> KeySurvey:
    """Which keys some records have, of :func:`survey_records`."""
    shapes: dict[Shape, int] = {}
    tombstones: set[Shape] = set()
    for r in (row for row in surveyed if row.is_read):
        names = tuple(r.key_names or ())
        of_key = (names, r.key_schema, r.key_kinds, r.key_unquoted)
        if r.kind == "tombstone":
            tombstones.add(Shape(r.landing_date, "", None, *of_key))
        elif r.kind == "row" and r.table_name is not None and names:
            schema_id = schemas.id_of(Carried(r.start_hash, r.schema_id))
            shape = Shape(r.landing_date, r.table_name, schema_id, *of_key)
            shapes[shape] = shapes.get(shape, 0) + r.records
    return KeySurvey(shapes, frozenset(tombstones))


def route(
    parsed: DataFrame,
    source: SourceConfig,
    keys: KeySurvey,
    schemas: KnownSchemas,
    verdicts: DataFrame | None,
    misfits: Mapping[Shape, str] | None = None,
) -> DataFrame:
    """Give every parsed record its canonical keys and its destination.

    Args:
        parsed: as :func:`parse` gives it.
        keys: :func:`survey_keys` of these records.
        verdicts: of their tombstones (:func:`judge_tombstones`); None where there are none.
        misfits: of these keys (:func:`judge_keys`).

    Returns:
        The records with `key, old_key, new_key`, the final `reason`, `detail`, `op` and
        `table_name`, and `destination`: changes, control or quarantine.
    """
    shapes, settled = set(keys.shapes), parsed
    if verdicts is not None:
        settled = _with_verdicts(parsed, verdicts, source)
        shapes.update(keys.of_tombstones(source.tables))
    keyed = with_canonical_keys(settled, source, sorted(shapes, key=str), schemas, misfits or {})
    return keyed.extend({"destination": _DESTINATION}).plan()


def _with_verdicts(parsed: DataFrame, verdicts: DataFrame, source: SourceConfig) -> DataFrame:
    """Give each tombstone its table and op: control, or the delete of a row."""
    joined = parsed.join(verdicts, list(_IDENTITY), "left")
    is_tombstone = "kind = 'tombstone'"
    is_lone = f"({is_tombstone} AND reason IS NULL AND NOT coalesce(follows_delete, false))"
    no_table = f"{is_lone} AND tombstone_table IS NULL"
    # O14: nothing says which row of a table without a key it deletes.
    unkeyed = [name for name, table in source.tables.items() if table.key in ("none", "row")]
    of_unkeyed = f"({is_lone} AND {is_one_of('tombstone_table', unkeyed)})"
    configured = is_one_of("tombstone_table", source.tables)
    no_key = f"({is_lone} AND key_raw IS NULL AND (message_key IS NULL OR {configured}))"
    reason = case(
        (no_table, "'missing_table'"),
        (f"{of_unkeyed} OR ({no_key} AND message_key IS NULL)", "'missing_key'"),
        (no_key, "'malformed_key'"),
    )
    detail = case(
        (no_table, "'a lone tombstone on a topic of no table, or of several'"),
        (of_unkeyed, "'a lone tombstone of a table without a key'"),
        (no_key, "'a lone tombstone without a readable key'"),
    )
    return with_replaced(
        joined,
        {
            "reason": f"coalesce(reason, {reason})",
            "detail": f"coalesce({detail}, detail)",
            "op": case((is_lone, "'d'"), (is_tombstone, "'tombstone'"), otherwise="op"),
            "table_name": case((is_tombstone, "tombstone_table"), otherwise="table_name"),
            "is_snapshot": case((is_tombstone, "false"), otherwise="is_snapshot"),
        },
    ).drop("follows_delete", "tombstone_table")


_DESTINATION = case(
    ("reason IS NOT NULL", "'quarantine'"),
    ("kind = 'row' OR (kind = 'tombstone' AND op = 'd')", "'changes'"),
    otherwise="'control'",
)


# What is written of a record, and what finds it in the landing again.
_ROUTED = (
    *dict.fromkeys((*columns.CHANGES.names, *columns.CONTROL.names)),
    *("value_hash", "message_key_json", "reason", "detail", "destination"),
)


def _quarantined(landing: DataFrame, routed: DataFrame) -> DataFrame:
    """Landing rows of what could not be read; their bytes are read from the landing again."""
    bad = (
        routed.where("destination = 'quarantine'")
        .groupBy(*(F.col(c).alias(f"bad_{c}") for c in _IDENTITY))
        .agg(*(F.min(c).alias(c) for c in ("reason", "detail", "table_name")))
    )
    rows = landing.withColumn("value_hash", F.xxhash64("value"))
    same = [F.col(c).eqNullSafe(F.col(f"bad_{c}")) for c in _IDENTITY]
    return rows.join(bad, same).to(columns.QUARANTINE)


def _control(routed: DataFrame) -> DataFrame:
    rows = routed.where("destination = 'control'")
    return with_replaced(rows, {"key": "coalesce(key, message_key_json)"}).to(columns.CONTROL)


def _changes(routed: DataFrame) -> DataFrame:
    return routed.where("destination = 'changes'").to(columns.CHANGES)


def _ordered(rows: DataFrame) -> DataFrame:
    """Files clustered by table, so that a table's merge reads its own part."""
    return rows.sortWithinPartitions("landing_date", "table_name", "topic", "partition", "offset")


def count_landed(lake: Lake, name: str, days: Sequence[date]) -> dict[date, int]:
    """Records that landed on some days; a day without any is left out."""
    rows = lake.stage_days(name, "landing", days)
    return {r.landing_date: r["count"] for r in rows.groupBy("landing_date").count().collect()}


def count_by(lake: Lake, name: str, days: Sequence[date]) -> dict[date, dict[str, Any]]:
    """Figures of made days: records per destination, op, table and reason.

    `written` is what the files of each destination hold, by their own metadata.
    """
    figures: dict[date, dict[str, Any]] = {
        day: {"landed": 0, "written": {}, "tables": {}, **{table: {} for table in DESTINATIONS}}
        for day in days
    }
    for day, count in count_landed(lake, name, days).items():
        figures[day]["landed"] = count
    for table in DESTINATIONS:
        for day, files in lake.day_files(lake.stage(name, table), days).items():
            figures[day]["written"][table] = files.records
    for fact in read_facts(lake, name, days):
        of_day = figures[fact.landing_date]
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
