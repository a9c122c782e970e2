"""The state table takes on the columns of a day: all DDL of a table is here (FORMATS R3-R6)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StructField, StructType

from cdc_assets.cdc.config import is_reserved
from cdc_assets.cdc.errors import ConfigError, SchemaDriftError
from cdc_assets.cdc.lake.catalog import column_ddl
from cdc_assets.cdc.lake.commits import KEEPS_DELETED, KEY, Retyped
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import TableName, ddl_of, quote
from cdc_assets.cdc.state.configured_types import with_lake
from cdc_assets.cdc.state.day_types import (
    DELETED_AT_COLUMN,
    OWN_COLUMNS,
    DayTypes,
    OwnColumn,
    TableColumns,
    day_types,
    message_types,
    read_otherwise,
)
from cdc_assets.cdc.state.inference import infer
from cdc_assets.cdc.state.layout import drop_layout, lay_out
from cdc_assets.cdc.state.renaming import rename_columns
from cdc_assets.cdc.state.retyping import drop_left_over
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.table_events import newest_schema
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.spark_types import evolution, is_number

INFERRED = "cdc.inferred-columns"


@dataclass(frozen=True)
class LakeColumns:
    """The columns of the table as it is: their Spark types and their descriptions.

    `reserved` are the names of those that are not the source's.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)
    reserved: Sequence[str] = ()


def prepare_columns(day: TableDay, is_made: bool = False) -> TableColumns:
    """Find the day's types, create or alter the table, and fix how values are read.

    Args:
        is_made: the day is published already: no column gets another type.

    Raises:
        ConfigError: a column can't be in the lake under its name, or as its configured type.
        SchemaDriftError: the key's columns or types changed, or `on_type_change: fail`.
    """
    before = _with_names_of_today(day, _lake_columns(day)) if day.state else LakeColumns()
    said = message_types(day)
    inferred = infer(day, said, before.types)
    return _evolve(day, day_types(day, said, inferred), before, is_made)


def _evolve(day: TableDay, wanted: DayTypes, before: LakeColumns, is_made: bool) -> TableColumns:
    """Create the table, or add, widen and retype columns (R5).

    Args:
        before: the columns before the day; none where there is no table yet.
        is_made: as :func:`prepare_columns`.
    """
    if day.state is None:
        _create(day, wanted)
        before = _lake_columns(day)
    existing = _with_configured_types(day, wanted, before.types)
    is_dropped = len(existing) < len(before.types)
    distinct, left_out = _distinct(existing, wanted.wanted)
    existing = _with_added(day, wanted, existing, distinct)
    existing, refused = _with_widened(day, wanted, existing, distinct)
    retyped = [] if is_made else _retyped(day, wanted, existing, list(refused))
    if not is_made:
        drop_left_over(day.lake, day.identifier, before.reserved, retyped)
    existing |= {column.name: column.after for column in retyped}
    refused |= {
        column.name: f"{column.name}: {column.before} → {column.after} from this day on, "
        f"{day.rows_before} rows written once more"
        for column in retyped
    }
    for column in _added_columns(day):
        if column.name not in before.reserved:
            comment = column.metadata["comment"]
            _alter_table(day, f"ADD COLUMN {column_ddl(column.name, 'timestamp', comment)}")
    _describe(day, wanted, before, {n: kind for n, kind in existing.items() if n in before.types})
    incompatible = {**wanted.incompatible, **left_out, **refused}
    inferred = _record_properties(day, wanted, before.types, incompatible)
    lay_out(day, existing, is_dropped)
    return TableColumns(
        own=tuple(
            OwnColumn(name, kind, index) for index, (name, kind) in enumerate(existing.items())
        ),
        types=wanted,
        inferred=frozenset(inferred - day.config.lake_columns.keys()),
        incompatible=tuple(incompatible.values()),
        retyped=tuple(retyped),
    )


def _lake_columns(day: TableDay) -> LakeColumns:
    schema = day.lake.spark.table(day.identifier).schema
    own = [f for f in schema.fields if not is_reserved(f.name)]
    return LakeColumns(
        {f.name: ddl_of(f.dataType) for f in own},
        {f.name: f.metadata.get("comment", "") for f in own},
        [f.name for f in schema.fields if f not in own],
    )


def _with_names_of_today(day: TableDay, before: LakeColumns) -> LakeColumns:
    """The columns, those that `rename` gives another name under that one, with their values."""
    renamed = rename_columns(day.lake, day.identifier, list(before.types), day.sent.rename)
    if not renamed:
        return before
    return replace(
        before,
        types={renamed.get(name, name): kind for name, kind in before.types.items()},
        comments={renamed.get(name, name): text for name, text in before.comments.items()},
    )


def _create(day: TableDay, wanted: DayTypes) -> None:
    columns, keys = dict(wanted.wanted), wanted.key_names
    if not wanted.schema_columns:
        columns = {**{name: columns[name] for name in keys if name in columns}, **columns}
    distinct, _ = _distinct({}, columns)
    fields = [
        StructField(
            name,
            DataType.fromDDL(kinds[0]),
            True,
            {"comment": _description(day, wanted, name, kinds[0])},
        )
        for name, kinds in distinct.items()
    ]
    buckets = day.config.bucket
    is_bucketed = buckets is not None and bool(keys) and keys[0] in columns
    day.lake.create_state(
        day.source,
        TableName.parse(day.table),
        StructType([*fields, *OWN_COLUMNS.fields, *_added_columns(day)]),
        f"{day.label} as it stood at the end of each day: VERSION AS OF '<day>'",
        f"bucket({buckets}, {quote(keys[0])})" if is_bucketed else None,
    )


def _added_columns(day: TableDay) -> list[StructField]:
    """The columns behind those that each table has."""
    return [DELETED_AT_COLUMN] if day.config.soft_delete else []


def _with_configured_types(
    day: TableDay, wanted: DayTypes, existing: Mapping[str, str]
) -> dict[str, str]:
    """The columns without those that are to get another type on the table's first day.

    They are dropped, and added anew; days before keep the schema that they were written with.

    Raises:
        ConfigError: on a later day, where the values of the days before would be lost.
    """
    entries = {name: wanted.wanted[name][0] for name in day.config.lake_columns if name in existing}
    keys = wanted.key_names
    faults = with_lake(day.source, day.table, existing, entries, day.start, day.day, keys)
    if faults and day.day > day.start:
        raise ConfigError([str(fault) for fault in faults])
    if day.day > day.start:
        return dict(existing)
    left = _without_contradicted(day, existing, entries)
    return _without_contradicted(day, left, read_otherwise(day, wanted.described, left))


def _without_contradicted(
    day: TableDay, existing: Mapping[str, str], wanted: Mapping[str, str]
) -> dict[str, str]:
    """The columns without those of another type than is wanted, which go out of the table."""
    gone = [n for n, k in wanted.items() if evolution(existing[n], k) is None]
    if gone:
        drop_layout(day)
    for name in gone:
        _alter_table(day, f"DROP COLUMN {quote(name)}")
    return {name: kind for name, kind in existing.items() if name not in gone}


def _with_added(
    day: TableDay,
    wanted: DayTypes,
    existing: Mapping[str, str],
    columns: Mapping[str, Sequence[str]],
) -> dict[str, str]:
    added, last = dict(existing), list(existing)[-1] if existing else None
    for name in [n for n in columns if n not in existing]:
        kind = columns[name][0]
        place = f"AFTER {quote(last)}" if last else "FIRST"
        column = column_ddl(name, kind, _description(day, wanted, name, kind))
        _alter_table(day, f"ADD COLUMN {column} {place}")
        added[name], last = kind, name
    return added


def _with_widened(
    day: TableDay,
    wanted: DayTypes,
    existing: Mapping[str, str],
    columns: Mapping[str, Sequence[str]],
) -> tuple[dict[str, str], dict[str, str]]:
    """The columns after they were widened, and a line for each that can't take on a type."""
    widened, keys = dict(existing), wanted.key_names
    refused: dict[str, str] = {}
    for name, kind in ((name, kind) for name, kinds in columns.items() for kind in kinds):
        changes = evolution(widened[name], kind)
        is_truth = kind == "boolean" and is_number(widened[name])
        if is_truth and name not in keys:
            continue  # 1 and 0
        if name not in keys and (
            widened[name] == "string" or (widened[name], kind) == ("timestamp_ntz", "date")
        ):
            continue  # as text, as midnight
        if changes is None:
            if name in keys:
                raise _changed_key(day, name, widened[name], kind)
            refused[name] = f"{name}: {widened[name]} ← {kind}"
        for path, to, is_new in changes or []:
            at = quote(name, *path)
            change = f"ADD COLUMN {at} {to}" if is_new else f"ALTER COLUMN {at} TYPE {to}"
            _alter_table(day, change)
        if changes:
            widened[name] = _lake_columns(day).types[name]
    return widened, refused


def _retyped(
    day: TableDay, wanted: DayTypes, existing: Mapping[str, str], refused: Sequence[str]
) -> list[Retyped]:
    """The columns that get another type on the day (R5).

    One record of an older schema changes none: what counts is what the newest event declares, if
    nothing newer landed on an earlier day.

    Args:
        refused: the columns that messages of the day have another type of.

    Raises:
        SchemaDriftError: one was to, and `on_type_change` is `fail`.
    """
    configured = day.config.lake_columns.keys()
    found = {
        name: "string"
        for name in configured & existing.keys()
        if wanted.wanted[name][0] == "string" != existing[name]
    }
    # What an earlier version read otherwise has lost digits: its table is to be made anew.
    left = configured | read_otherwise(day, wanted.described, existing).keys()
    asked = [name for name in refused if name in existing and name not in left]
    if asked and day.settings.on_type_change != "keep":
        schema_id = newest_schema(day)
        newest = wanted.by_schema[schema_id] if schema_id else {}
        for name in asked:
            kind = newest.get(name)
            if kind is None or evolution(existing[name], kind.spark) is not None:
                continue
            if day.settings.on_type_change == "fail":
                raise _changed_type(day, name, existing[name], kind.spark)
            is_longer = (existing[name], kind.spark) == ("date", "timestamp_ntz")
            found[name] = "timestamp_ntz" if is_longer else "string"
    for name in day.config.layout.columns:
        if name in found:
            raise _laid_out(day, name, existing[name], found[name])
    return [
        Retyped(name, existing[name], kind, _description(day, wanted, name, kind))
        for name, kind in found.items()
    ]


def _laid_out(day: TableDay, name: str, existing: str, kind: str) -> SchemaDriftError:
    return SchemaDriftError(
        f"{day.label} {day.day}: column {name!r} is {existing} and is to become {kind}, and "
        "partition_by or sort_by names it. Nothing is published. Take it out there, and put it "
        "back after this day; or say on_type_change: keep, where other values become null."
    )


def _changed_type(day: TableDay, name: str, existing: str, kind: str) -> SchemaDriftError:
    return SchemaDriftError(
        f"{day.label} {day.day}: column {name!r} is {existing} and now comes as {kind}, and "
        f"sources.{day.source}.on_type_change is fail. Nothing is published. To make the column "
        "STRING with all its values, say on_type_change: string; to keep its type, where other "
        "values become null, say keep."
    )


def _changed_key(day: TableDay, name: str, existing: str, kind: str) -> SchemaDriftError:
    """R6: the type of a key never changes silently."""
    return SchemaDriftError(
        f"{day.label} {day.day}: key column {name!r} is {existing} and now "
        f"comes as {kind}. Rebuild the table under the new type, or say the key's type "
        "in columns:."
    )


def _alter_table(day: TableDay, change: str) -> None:
    with_retry(partial(day.lake.spark.sql, f"ALTER TABLE {day.identifier} {change}"))


# --- names


def _distinct(
    existing: Mapping[str, str], wanted: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Sequence[str]], dict[str, str]]:
    """Leave out new columns that Iceberg can't tell from a member of another.

    Its names of members are joined by dots: a column `a.b` beside the member `b` of `a`.

    Returns:
        The columns that stay, and a line for each that is left out.
    """
    taken = {path for name, kind in existing.items() for path in _paths(name, kind)}
    distinct: dict[str, Sequence[str]] = {}
    left_out: dict[str, str] = {}
    for name, kinds in wanted.items():
        paths = _paths(name, kinds[0])
        if name not in existing and not taken.isdisjoint(paths):
            left_out[name] = f"{name!r} is left out: another column has a member so named"
            continue
        taken.update(paths)
        distinct[name] = kinds
    return distinct, left_out


def _paths(name: str, kind: str) -> set[str]:
    """The full names that Iceberg gives a column and its members."""
    found: set[str] = set()

    def add(path: str, data_type: DataType) -> None:
        found.add(path)
        if isinstance(data_type, StructType):
            for member in data_type.fields:
                add(f"{path}.{member.name}", member.dataType)
        elif isinstance(data_type, ArrayType):
            add(f"{path}.element", data_type.elementType)
        elif isinstance(data_type, MapType):
            add(f"{path}.key", data_type.keyType)
            add(f"{path}.value", data_type.valueType)

    add(name, DataType.fromDDL(kind) if "<" in kind else LongType())
    return found


# --- descriptions and properties


def _description(day: TableDay, wanted: DayTypes, name: str, kind: str) -> str:
    """What a column of the lake says of itself, as the newest message schemas have it."""
    said = wanted.described.get(name)
    return types.description(said, kind) if said else ""


def _describe(
    day: TableDay, wanted: DayTypes, before: LakeColumns, existing: Mapping[str, str]
) -> None:
    """Describe columns again where message schemas of the newest day describe them otherwise.

    A column of which the schemas say nothing keeps its description.
    """
    published = day.state.tags if day.state else {}
    if not day.day_facts.schema_ids or max([*published, day.day]) != day.day:
        return
    changed: dict[str, str | None] = {}
    for name, kind in existing.items():
        text = _description(day, wanted, name, kind)
        said = wanted.described.get(name)
        is_said = bool(text) or (said is not None and said.comment is not None)
        if is_said and text != before.comments.get(name, ""):
            changed[name] = text or None

    def commit() -> None:
        update = day.lake.handle(day.identifier).updateSchema()
        for name, text in changed.items():
            update.updateColumnDoc(name, text)
        update.commit()

    if changed:
        with_retry(commit)


def _record_properties(
    day: TableDay, wanted: DayTypes, before: Mapping[str, str], incompatible: Mapping[str, str]
) -> set[str]:
    """Record the key and the columns that no schema has typed; these are returned."""
    stored = day.state.properties if day.state else {}
    fresh = wanted.inferred - set(before) if day.state else wanted.inferred
    known = set(json.loads(stored.get(INFERRED, "[]")))
    inferred = (known | fresh) - (wanted.schema_columns - set(incompatible))
    properties = {INFERRED: json.dumps(sorted(inferred), ensure_ascii=False)}
    if day.config.soft_delete:
        properties[KEEPS_DELETED] = "true"
    if wanted.key_names:
        sent = list(map(day.sent.sent_name, wanted.key_names))
        properties[KEY] = json.dumps(sent, ensure_ascii=False)

    def commit() -> None:
        update = day.lake.handle(day.identifier).updateProperties()
        for key, value in properties.items():
            update.set(key, value)
        update.commit()

    if any(stored.get(key) != value for key, value in properties.items()):
        with_retry(commit)
    return inferred
