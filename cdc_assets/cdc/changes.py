"""landing → changes, control, quarantine: every landed record reaches exactly one.

One pass over the landing of some days reads all tables of a source. The parsed records
are kept by Spark (on disk where memory is short) while the few facts that need the whole
day are found: which schemas are new, how keys are typed, which tombstones follow their own
delete. Then three commits: quarantine, control, and last changes.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from cdc_assets.cdc import positions, types
from cdc_assets.cdc.config import Config, SourceConfig
from cdc_assets.cdc.connect import known_starts, schema_id, with_document
from cdc_assets.cdc.envelopes import columns
from cdc_assets.cdc.envelopes.keys import (
    NEW_KEY,
    has_header,
    message_key_text,
    with_header_keys,
    with_message_key,
    with_raw_keys,
)
from cdc_assets.cdc.envelopes.registry import reader
from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.jsontext import let, shallow, text_of
from cdc_assets.cdc.kept import keeping
from cdc_assets.cdc.key_forms import KeyForm, readable_as, settled_form
from cdc_assets.cdc.lake import DayCommit, DayCommits, Lake, landed_on, with_retry

log = logging.getLogger(__name__)

# Raised when the reading of records changes, so that days made before are made again.
READER_VERSION = 4

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


# --- parse: landing rows → records in common columns


def parse(landing: DataFrame, source: SourceConfig, starts: DataFrame | None = None) -> DataFrame:
    """Read landing rows; one row out for each row in.

    Args:
        landing: has the columns of `LANDING`.
        source: the rules.
        starts: of :func:`~cdc_assets.cdc.connect.known_starts`, to read faster.

    Returns:
        `landing_date, topic, partition, offset, kafka_ts_ms, value_hash, message_key`, the
        event in common columns, `kind` (row, control, tombstone; null where `reason` is
        set), raw keys, `reason` and `detail`.
    """
    # `key` and `value` are bytes; a text of them is only read where it is valid UTF-8.
    value = F.col("value")
    is_empty = value.isNull() | (F.length(value) == 0)
    is_registry = (F.length(value) >= 5) & (F.substring(value, 1, 1) == F.lit(b"\x00"))
    text = F.when(~is_empty & ~is_registry, value.cast("string"))
    typed = landing.withColumns(
        {
            "value_text": text,
            "value_hash": F.xxhash64("value"),
            "is_empty": is_empty,
            "is_registry": F.coalesce(is_registry, F.lit(False)),
            "kafka_ts_ms": F.unix_millis("timestamp"),
        }
    )
    documents = with_document(typed, starts, key_doc=message_key_text())
    events = reader(source.format)(documents)
    keyed = with_raw_keys(with_header_keys(with_message_key(events)), source)
    is_null_document = F.coalesce(
        F.is_variant_null(F.try_variant_get("doc", "$[0]", "variant")), F.lit(False)
    )
    is_record = F.col("offset").isNotNull()
    is_tombstone = is_record & (
        F.col("is_empty") | is_null_document | (F.col("e_kind") == "tombstone")
    )
    is_tombstone = F.coalesce(is_tombstone, F.lit(False))
    unreadable = (
        F.when(~is_record, "malformed_landing_line")
        .when(F.col("is_registry"), "registry_encoded")
        .when(F.col("doc").isNull() & ~F.col("is_empty"), "malformed_json")
    )
    reason = F.coalesce(unreadable, F.when(~is_tombstone, F.coalesce("e_reason", "key_reason")))
    says_order = F.coalesce(positions.says_order(F.col("e_elements")), F.lit(False))
    return keyed.select(
        "landing_date",
        "topic",
        "partition",
        "offset",
        "kafka_ts_ms",
        "value_hash",
        F.col("key").alias("message_key"),
        F.when(is_tombstone, "tombstone").otherwise(F.col("e_kind")).alias("kind"),
        reason.alias("reason"),
        F.coalesce(_unreadable_detail(reason), "e_detail", "key_detail").alias("detail"),
        F.col("e_op").alias("op"),
        F.when(~is_tombstone, F.col("e_source_op")).alias("source_op"),
        *(F.col(f"e_{name}").alias(name) for name in ("connector", "server", "db", "table_name")),
        F.when(is_tombstone, F.to_json("key_row")).otherwise(F.col("key_raw")).alias("key_raw"),
        "old_key_raw",
        "new_key_raw",
        # Where an image holds the key, the value's schema says how it is written.
        F.when(
            is_tombstone | (F.col("e_after_row").isNull() & F.lit(not source.whole_old_rows)),
            F.col("key_schema"),
        ).alias("key_schema"),
        # Shown where there is no canonical key.
        F.when(
            ~F.col("e_kind").eqNullSafe(F.lit("row")) | F.col("key_reason").isNotNull(),
            F.to_json("key_row"),
        ).alias("message_key_json"),
        text_of(F.col("e_before_row")).alias("before"),
        text_of(F.col("e_after_row")).alias("after"),
        F.col("e_source_ts_ms").alias("source_ts_ms"),
        F.col("e_processed_ts_ms").alias("processed_ts_ms"),
        _position(source, is_tombstone, says_order).alias("position"),
        F.when(_has_source() & ~is_tombstone, F.col("e_elements")).alias("source_elements"),
        F.when(
            _has_position(is_tombstone),
            F.when(says_order, F.col("e_basis")).otherwise(F.lit(positions.SOURCE_TIME)),
        ).alias("position_basis"),
        F.col("e_tx_id").alias("tx_id"),
        F.col("e_tx_order").alias("tx_order"),
        F.col("e_is_snapshot").alias("is_snapshot"),
        F.when(
            F.col("e_schema").isNotNull(),
            F.coalesce("start_schema_id", schema_id(F.col("e_schema"))),
        ).alias("schema_id"),
        F.col("e_payload").alias("payload"),
    )


def _position(source: SourceConfig, is_tombstone: Column, says_order: Column) -> Column:
    """O4; the source time stands in for elements that say nothing (O8)."""
    is_left = (F.col("e_op") == "d") & has_header(NEW_KEY)
    return F.when(
        _has_position(is_tombstone),
        positions.position(
            F.when(says_order, F.col("e_elements")).otherwise(F.array("e_stand_in")),
            F.col("e_tx_order"),
            F.when(is_left, 0).otherwise(F.col("e_rank")),
            F.col("kafka_ts_ms"),
            source.position_reset,
        ),
    )


def _has_position(is_tombstone: Column) -> Column:
    """O6: a snapshot read and a tombstone have no position of their own."""
    has_none = is_tombstone | F.coalesce(F.col("e_is_snapshot"), F.lit(False))
    return _has_source() & ~has_none


def _has_source() -> Column:
    return (F.col("e_kind") == "row") | (F.col("e_op") == "message")


def _unreadable_detail(reason: Column) -> Column:
    start = F.regexp_replace(F.substring(F.col("value").cast("string"), 1, 60), r"[\p{Cntrl}]", " ")
    start = F.when(F.is_valid_utf8(start), start).otherwise(F.lit("bytes that are no UTF-8"))
    return (
        F.when(reason == "malformed_landing_line", F.concat(F.lit("no landed record: "), start))
        .when(
            reason == "registry_encoded",
            F.concat(
                F.lit("encoded by a schema registry, schema id "),
                F.conv(F.hex(F.substring("value", 2, 4)), 16, 10),
            ),
        )
        .when(
            reason == "malformed_json",
            F.concat(F.lit("not exactly one strict JSON document: "), start),
        )
    )


# --- schemas


def fresh_schemas(
    lake: Lake, name: str, parsed: DataFrame, landing: DataFrame, known: KnownSchemas
) -> list[Row]:
    """Schemas that are not known, or landed before the day known: rows of the table `schemas`.

    The parsed records carry a schema's hash alone; its text is read again from one landed
    example.
    """
    found = _schema_examples(parsed)
    examples = [
        row
        for row in found.collect()  # schemas are few
        if known.first_landed.get((row.table_name, row.schema_id), date.max) > row.landing_date
    ]
    if not examples:
        return []
    wanted = lake.spark.createDataFrame(examples, found.schema)
    return _schema_texts(wanted, landing, lake.config.source(name)).collect()


def register_schemas(lake: Lake, name: str, fresh: Sequence[Row]) -> None:
    """Add schemas not seen before to the table `schemas`, each with the day it first landed."""
    if not fresh:
        return
    # Few and small; as plain rows they can't meet MERGE's trouble with views on Iceberg tables.
    rows = lake.spark.createDataFrame(fresh, columns.SCHEMAS)
    rows.createOrReplaceTempView("cdc_fresh_schemas")
    with_retry(
        lambda: lake.spark.sql(
            f"MERGE INTO {lake.stage(name, 'schemas')} t USING cdc_fresh_schemas s "
            "ON t.schema_id = s.schema_id AND t.table_name = s.table_name "
            "WHEN MATCHED THEN UPDATE SET t.first_landed = least(t.first_landed, s.first_landed) "
            "WHEN NOT MATCHED THEN INSERT (schema_id, table_name, schema, first_landed) "
            "VALUES (s.schema_id, s.table_name, s.schema, s.first_landed)"
        )
    )


def _used_by_changes(fresh: Sequence[Row], routed: DataFrame) -> list[Row]:
    """Those schemas that records in `changes` carried, each with the day of the first of them."""
    if not fresh:
        return []
    carried = routed.where("destination = 'changes' AND schema_id IS NOT NULL")
    first_days = {
        (row.table_name, row.schema_id): row.day
        for row in carried.groupBy("table_name", "schema_id")
        .agg(F.min("landing_date").alias("day"))
        .collect()
    }
    return [
        Row(**{**row.asDict(), "first_landed": first_days[row.table_name, row.schema_id]})
        for row in fresh
        if (row.table_name, row.schema_id) in first_days
    ]


def _schema_examples(parsed: DataFrame) -> DataFrame:
    """`schema_id, table_name` and the place of the first record that carried the schema."""
    return (
        parsed.where("schema_id IS NOT NULL AND table_name IS NOT NULL AND reason IS NULL")
        .groupBy("schema_id", "table_name")
        .agg(F.min(F.struct("landing_date", "topic", "partition", "offset")).alias("example"))
        .select("schema_id", "table_name", "example.*")
    )


def _schema_texts(examples: DataFrame, landing: DataFrame, source: SourceConfig) -> DataFrame:
    """`schema_id, table_name, schema, first_landed`: the texts that the examples carry."""
    place = ["landing_date", "topic", "partition", "offset"]
    days = sorted({row.landing_date for row in examples.select("landing_date").collect()})
    rows = landing.where(landed_on(days)).join(
        F.broadcast(examples.select(*place)), place, "left_semi"
    )
    documents = with_document(rows.withColumn("value_text", F.col("value").cast("string")), None)
    texts = reader(source.format)(documents).select(F.to_json("e_schema").alias("schema"), *place)
    return (
        texts.join(F.broadcast(examples), place)
        .groupBy("schema_id", "table_name")
        .agg(F.first("schema").alias("schema"), F.min("landing_date").alias("first_landed"))
        .select(*columns.SCHEMAS.names)
    )


@dataclass(frozen=True)
class KnownSchemas:
    """The message schemas of a source, read once for a stage."""

    columns: Mapping[tuple[str, str], types.Columns]  # (table_name, schema_id)
    first_landed: Mapping[tuple[str, str], date]

    def latest(self, table_name: str, day: date) -> types.Columns:
        """All columns of a table as its schemas up to a day say, the latest winning."""
        ids = sorted(
            (landed, schema_id)
            for (name, schema_id), landed in self.first_landed.items()
            if name == table_name and landed <= day
        )
        merged: types.Columns = {}
        for _, known in ids:
            merged = types.over(merged, self.columns[table_name, known])
        return merged

    def joined(self, fresh: Iterable[Row], format_name: str) -> KnownSchemas:
        """These and some rows of the table `schemas`, each with its earliest day."""
        parsed, landed = dict(self.columns), dict(self.first_landed)
        for row in fresh:
            key = (row.table_name, row.schema_id)
            parsed[key] = types.columns_of_schema(row.schema, format_name)
            landed[key] = min(row.first_landed, landed.get(key, date.max))
        return KnownSchemas(parsed, landed)


def known_schemas(lake: Lake, name: str, tables: Iterable[str] | None = None) -> KnownSchemas:
    """Read the table `schemas`; it has a row a table and schema version."""
    identifier = lake.stage(name, "schemas")
    if not lake.exists(identifier):
        return KnownSchemas({}, {})
    frame = lake.spark.table(identifier)
    if tables is not None:
        frame = frame.where(F.col("table_name").isin(list(tables)))
    return KnownSchemas({}, {}).joined(frame.collect(), lake.config.source(name).format)


def landed_schemas(parsed: DataFrame, landing: DataFrame, source: SourceConfig) -> KnownSchemas:
    """The schemas that some landing rows carry, without a lake.

    Args:
        parsed: :func:`parse` of these landing rows; computed rows, they are read twice.
    """
    examples = _schema_examples(parsed).collect()  # schemas are few
    if not examples:
        return KnownSchemas({}, {})
    wanted = parsed.sparkSession.createDataFrame(examples, _schema_examples(parsed).schema)
    texts = _schema_texts(wanted, landing, source).collect()
    return KnownSchemas({}, {}).joined(texts, source.format)


# --- keys

RAW_KEYS = ("key_raw", "old_key_raw", "new_key_raw")
TypedNames = tuple[tuple[str, ...], tuple[tuple[str, types.ColumnType], ...]]


def with_canonical_keys(
    parsed: DataFrame,
    source: SourceConfig,
    shapes: Iterable[Shape],
    schemas: KnownSchemas,
    misfits: Mapping[Shape, str],
) -> DataFrame:
    """Replace raw keys by canonical ones (DESIGN, column `key`) and judge unfit values.

    A key whose columns have no type that is known by its day is canonical as JSON wrote it.
    """
    by_types: dict[TypedNames, list[Shape]] = {}
    for shape in shapes:
        typed = _types_of_key(shape, source, schemas)
        if typed or shape in misfits:
            by_types.setdefault((shape.names, typed), []).append(shape)
    opened = _with_plans(parsed, list(by_types.values()), misfits).withColumns(
        {f"{raw}_doc": F.try_parse_json(raw) for raw in RAW_KEYS}
    )
    plans = list(by_types)
    keyed = opened.withColumns(
        {raw.removesuffix("_raw"): _canonical(raw, plans) for raw in RAW_KEYS}
    )
    # D10: a row that has the key that it had did not move.
    keyed = keyed.withColumn("old_key", F.nullif("old_key", F.col("key")))
    unfit = F.col("key_raw").isNotNull() & F.col("key").isNull()
    configured = F.coalesce(F.col("table_name").isin(list(source.tables)), F.lit(False))
    is_change = (F.col("kind") == "row") | ((F.col("kind") == "tombstone") & (F.col("op") == "d"))
    is_judged = F.col("reason").isNull() & configured & is_change
    malformed = is_judged & (unfit | F.col("key_misfit").isNotNull())
    says = F.coalesce(
        "key_misfit", F.concat(F.lit("a key value does not fit its column: "), F.col("key_raw"))
    )
    return keyed.withColumns(
        {
            "reason": F.when(malformed, "malformed_key").otherwise(F.col("reason")),
            "detail": F.when(malformed, says).otherwise(F.col("detail")),
        }
    ).drop("key_plan", "key_misfit", *RAW_KEYS, *(f"{raw}_doc" for raw in RAW_KEYS))


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
        F.schema_of_variant_agg(shallow(F.col("key"))).alias("kind"),
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
            json.dumps(shape.names),
            shape.kinds or "",
            shape.unquoted or "",
            number,
            misfits.get(shape),
        )
        for number, shapes in enumerate(plans)
        for shape in shapes
    ]
    if not rows:
        nothing = {"key_plan": F.lit(None).cast("int"), "key_misfit": F.lit(None).cast("string")}
        return parsed.withColumns(nothing)
    known = parsed.sparkSession.createDataFrame(
        rows,
        "plan_day date, plan_table string, plan_schema string, plan_key_schema string, "
        "plan_names string, plan_kinds string, plan_unquoted string, key_plan int, "
        "key_misfit string",
    ).withColumn("plan_names", F.from_json("plan_names", "array<string>"))
    kinds, unquoted = _key_kinds()
    same = (
        (F.col("landing_date") == F.col("plan_day"))
        & (F.col("table_name") == F.col("plan_table"))
        & (F.coalesce("schema_id", F.lit("")) == F.col("plan_schema"))
        & (F.coalesce("key_schema", F.lit("")) == F.col("plan_key_schema"))
        & (F.json_object_keys("key_raw") == F.col("plan_names"))
        & (F.coalesce(kinds, F.lit("")) == F.col("plan_kinds"))
        & (F.coalesce(unquoted, F.lit("")) == F.col("plan_unquoted"))
    )
    return parsed.join(F.broadcast(known), same, "left").drop(
        "plan_day",
        "plan_table",
        "plan_schema",
        "plan_key_schema",
        "plan_names",
        "plan_kinds",
        "plan_unquoted",
    )


def _canonical(raw: str, plans: Sequence[TypedNames]) -> Column:
    """The canonical text of a raw key; null where a column can't hold its value."""
    result = F.when(F.col(raw).isNull(), F.lit(None).cast("string"))
    for number, (names, typed) in enumerate(plans):
        known = dict(typed)
        members = []
        for name in sorted(names):
            at = types.of_member(F.col(f"{raw}_doc"), name)
            value = types.canonical_key(at, known[name]) if name in known else at("variant")
            members.append(value.alias(name))
        result = result.when(F.col("key_plan") == number, _key_text(F.struct(*members), names))
    return result.otherwise(F.col(raw))


def _key_text(key: Column, names: Sequence[str]) -> Column:
    def text(members: Column) -> Column:
        complete = F.lit(True)
        for name in names:
            complete = complete & members.getField(name).isNotNull()
        return F.when(complete, F.to_json(members))

    return let(key, text)


# --- tombstones


def settle_tombstones(
    lake: Lake, name: str, parsed: DataFrame, landing: DataFrame, first: date
) -> DataFrame:
    """Tell tombstones that follow their own delete from lone ones (D11).

    Args:
        parsed: records of some days from `first` on.
        landing: the source's landing, for the day before `first`.

    Returns:
        `_IDENTITY` of each tombstone, `follows_delete`, and its `table_name` (null where
        its topic has none or several).
    """
    source = lake.config.source(name)
    slim = parsed.select(*_IDENTITY, "message_key", "kind", "op", "table_name", "reason")
    tombstones = slim.where("kind = 'tombstone' AND reason IS NULL AND length(message_key) > 0")
    place = ["topic", "partition", "message_key"]
    before = landing.where(F.col("landing_date") == F.lit(first - timedelta(days=1)))
    earlier = parse(
        before.join(
            tombstones.select("topic", "partition", F.col("message_key").alias("key")).distinct(),
            ["topic", "partition", "key"],
            "left_semi",
        ).select(landing.columns),
        source,
    ).select(*slim.columns)
    history = slim.join(tombstones.select(*place).distinct(), place, "left_semi").unionByName(
        slim.where("kind = 'tombstone' AND coalesce(length(message_key), 0) = 0")
    )
    topics = _topic_tables(lake, name, parsed, first)
    return judge_tombstones(history.unionByName(earlier), topics, first)


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
    # Also a delete that was quarantined, for want of a key or under `key: none`.
    is_delete = F.coalesce((F.col("kind") == "row") & (F.col("op") == "d"), F.lit(False))
    # Offsets strictly below: a record that landed twice is not its own predecessor.
    below = (
        Window.partitionBy("topic", "partition", "message_key")
        .orderBy("offset")
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    seen_before = F.struct("is_delete", "landing_date", "table_name", "offset")
    judged = (
        history.withColumn("is_delete", is_delete)
        .withColumn("nearest", F.max_by(seen_before, "offset").over(below))
        .where("kind = 'tombstone' AND reason IS NULL")
    )
    recent = F.col("nearest.landing_date") >= F.date_sub("landing_date", 1)
    has_key = F.length("message_key") > 0  # D6: an empty one is none
    follows = F.coalesce(has_key & F.col("nearest.is_delete") & recent, F.lit(False))
    return (
        judged.where(F.col("landing_date") >= F.lit(first))
        .withColumns({"follows_delete": follows, "own_table": F.col("nearest.table_name")})
        .drop("table_name")
        .join(F.broadcast(topics), "topic", "left")
        .select(
            *_IDENTITY,
            "follows_delete",
            F.when(follows, F.col("own_table"))
            .otherwise(_only_table_so_far(F.col("seen"), F.col("landing_date")))
            .alias("tombstone_table"),
            F.when(has_key, F.col("nearest.offset")).alias("nearest_offset"),
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


def _only_table_so_far(seen: Column, day: Column) -> Column:
    until = F.filter(seen, lambda t: t["since"] <= day)
    return F.when(F.size(until) == 1, F.get(until, F.lit(0))["table_name"])


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
        _make_run(lake, name, source, run, made_of, identifiers, current)
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
        starts = kept.keep(known_starts(of_days))
        parsed = kept.keep(parse(of_days, source, starts))
        keys = survey_keys(parsed)
        lake.create_stage(name, "schemas", columns.SCHEMAS, "message schemas of the source")
        known = known_schemas(lake, name)
        fresh = fresh_schemas(lake, name, parsed, landing, known)
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
            verdicts = kept.keep(settle_tombstones(lake, name, parsed, landing, days[0]))
        routed = kept.keep(route(parsed, source, keys, schemas, verdicts, misfits))
        register_schemas(lake, name, _used_by_changes(fresh, routed))
        inputs = {day: made_of[day] for day in days}
        # changes last: with it the day is complete.
        for table, rows in (
            ("quarantine", _quarantined(of_days, routed)),
            ("control", _ordered(_control(routed))),
            ("changes", _ordered(_changes(routed))),
        ):
            lake.overwrite_days(identifiers[table], rows, inputs, current[table].head)


@dataclass(frozen=True)
class KeySurvey:
    """The shapes of row keys with their counts, and those of each day's tombstones."""

    shapes: Mapping[Shape, int]
    tombstones: frozenset[Shape]  # for a table each; its name is not known yet

    def of_tombstones(self, tables: Iterable[str]) -> list[Shape]:
        """The shapes that tombstones would have as records of these tables."""
        return [replace(shape, table_name=table) for table in tables for shape in self.tombstones]


def survey_keys(parsed: DataFrame) -> KeySurvey:
    """Which keys some parsed records have: one pass."""
    kinds, unquoted = _key_kinds()
    rows = (
        parsed.where("reason IS NULL AND kind IN ('row', 'tombstone')")
        .groupBy(
            "kind",
            "landing_date",
            "table_name",
            "schema_id",
            "key_schema",
            F.json_object_keys("key_raw").alias("names"),
            kinds.alias("kinds"),
            unquoted.alias("unquoted"),
        )
        .count()
        .collect()
    )
    shapes: dict[Shape, int] = {}
    tombstones: set[Shape] = set()
    for r in rows:
        names = tuple(r.names or ())
        if r.kind == "tombstone":
            tombstones.add(
                Shape(r.landing_date, "", None, names, r.key_schema, r.kinds, r.unquoted)
            )
        elif r.table_name is not None and names:
            shape = Shape(
                r.landing_date, r.table_name, r.schema_id, names, r.key_schema, r.kinds, r.unquoted
            )
            shapes[shape] = r["count"]
    return KeySurvey(shapes, frozenset(tombstones))


_BLANK_SCHEMA = hashlib.sha256(b"{}").hexdigest()


def _key_kinds() -> tuple[Column, Column]:
    """The JSON types of a raw key's members, where no schema of the message says them."""
    has_schema = F.col("schema_id").isNotNull() & (F.col("schema_id") != _BLANK_SCHEMA)
    key = F.when(~has_schema & F.col("key_schema").isNull(), F.col("key_raw"))
    # The text is canonical JSON: within a string, the quotes would be escaped.
    unquoted = F.regexp_replace(key, r'":"([+-]?\d{1,18})"', '":$1')
    kinds = F.schema_of_variant(F.try_parse_json(key))
    return kinds, F.schema_of_variant(F.try_parse_json(unquoted))


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
    return keyed.withColumn("destination", _destination())


def _with_verdicts(parsed: DataFrame, verdicts: DataFrame, source: SourceConfig) -> DataFrame:
    """Give each tombstone its table and op: control, or the delete of a row."""
    joined = parsed.join(verdicts, list(_IDENTITY), "left")
    is_lone = (
        (F.col("kind") == "tombstone")
        & F.col("reason").isNull()
        & ~F.coalesce("follows_delete", F.lit(False))
    )
    no_table = is_lone & F.col("tombstone_table").isNull()
    configured = F.coalesce(F.col("tombstone_table").isin(list(source.tables)), F.lit(False))
    # O14: nothing says which row of a table without a key it deletes.
    unkeyed = [name for name, table in source.tables.items() if table.key in ("none", "row")]
    of_unkeyed = is_lone & F.coalesce(F.col("tombstone_table").isin(unkeyed), F.lit(False))
    no_key = is_lone & F.col("key_raw").isNull() & (F.col("message_key").isNull() | configured)
    reason = (
        F.when(no_table, "missing_table")
        .when(of_unkeyed | (no_key & F.col("message_key").isNull()), "missing_key")
        .when(no_key, "malformed_key")
    )
    detail = (
        F.when(no_table, F.lit("a lone tombstone on a topic of no table, or of several"))
        .when(of_unkeyed, F.lit("a lone tombstone of a table without a key"))
        .when(no_key, F.lit("a lone tombstone without a readable key"))
    )
    is_tombstone = F.col("kind") == "tombstone"
    return joined.withColumns(
        {
            "reason": F.coalesce("reason", reason),
            "detail": F.coalesce(detail, "detail"),
            "op": F.when(is_lone, "d").when(is_tombstone, "tombstone").otherwise(F.col("op")),
            "table_name": F.when(is_tombstone, F.col("tombstone_table")).otherwise(
                F.col("table_name")
            ),
            "is_snapshot": F.when(is_tombstone, F.lit(False)).otherwise(F.col("is_snapshot")),
        }
    ).drop("follows_delete", "tombstone_table")


def _destination() -> Column:
    return (
        F.when(F.col("reason").isNotNull(), "quarantine")
        .when(F.col("kind") == "row", "changes")
        .when((F.col("kind") == "tombstone") & (F.col("op") == "d"), "changes")
        .otherwise("control")
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
    return rows.join(bad, same).select(*columns.QUARANTINE.names)


def _control(routed: DataFrame) -> DataFrame:
    rows = routed.where("destination = 'control'").withColumn(
        "key", F.coalesce("key", "message_key_json")
    )
    return rows.select(*columns.CONTROL.names)


def _changes(routed: DataFrame) -> DataFrame:
    return routed.where("destination = 'changes'").select(*columns.CHANGES.names)


def _ordered(rows: DataFrame) -> DataFrame:
    """Files clustered by table, so that a table's merge reads its own part."""
    return rows.sortWithinPartitions("landing_date", "table_name", "topic", "partition", "offset")


def count_landed(lake: Lake, name: str, days: Sequence[date]) -> dict[date, int]:
    """Records that landed on some days; a day without any is left out."""
    rows = lake.stage_days(name, "landing", days)
    return {r.landing_date: r["count"] for r in rows.groupBy("landing_date").count().collect()}


def count_by(lake: Lake, name: str, days: Sequence[date]) -> dict[date, dict[str, Any]]:
    """Figures of made days: records per destination, op, table and reason."""
    figures: dict[date, dict[str, Any]] = {
        day: {"landed": 0, "changes": {}, "control": {}, "quarantine": {}, "tables": {}}
        for day in days
    }

    def of(table: str, *by: str) -> list[Any]:
        rows = lake.stage_days(name, table, days)
        return list(rows.groupBy("landing_date", *by).count().collect())

    for day, count in count_landed(lake, name, days).items():
        figures[day]["landed"] = count
    for row in of("changes", "table_name", "op", "source_op"):
        of_day = figures[row.landing_date]
        of_day["tables"][row.table_name] = of_day["tables"].get(row.table_name, 0) + row["count"]
        label = f"{row.op}:{row.source_op}"
        of_day["changes"][label] = of_day["changes"].get(label, 0) + row["count"]
    for row in of("control", "op"):
        figures[row.landing_date]["control"][row.op] = row["count"]
    for row in of("quarantine", "reason"):
        figures[row.landing_date]["quarantine"][row.reason] = row["count"]
    return figures
