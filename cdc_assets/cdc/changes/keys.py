"""The keys of a day's records: their shapes, which fit their table, and their canonical text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.key_forms import KeyForm, majority_key_form, readable_as
from cdc_assets.cdc.changes.message_schemas import KnownSchemas
from cdc_assets.cdc.config import SourceConfig
from cdc_assets.cdc.json_reader import names_in
from cdc_assets.cdc.sqltext import Query, Sql, case, few_rows, is_one_of, literal
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.configured import as_configured
from cdc_assets.cdc.values.json_value import of_member
from cdc_assets.cdc.values.readers import canonical_key


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


@dataclass(frozen=True)
class KeyShapes:
    """The shapes of row keys with their counts, and those of each day's tombstones."""

    shapes: Mapping[Shape, int]
    tombstones: frozenset[Shape]  # for a table each; its name is not known yet

    def tombstones_as(self, tables: Iterable[str]) -> list[Shape]:
        """The shapes that tombstones would have as records of these tables."""
        return [replace(shape, table_name=table) for table in tables for shape in self.tombstones]


def key_shapes(groups: Iterable[Row]) -> KeyShapes:
    """The keys of some records.

    Args:
        groups: rows of :func:`~cdc_assets.cdc.changes.reading.group_records`.
    """
    shapes: dict[Shape, int] = {}
    tombstones: set[Shape] = set()
    for r in groups:
        names = tuple(r.key_names or ())
        key = (names, r.key_schema, r.key_kinds, r.key_unquoted)
        if r.kind == "tombstone":
            tombstones.add(Shape(r.landing_date, "", None, *key))
        elif r.kind == "row" and r.table_name is not None and names:
            shape = Shape(r.landing_date, r.table_name, r.schema_id, *key)
            shapes[shape] = shapes.get(shape, 0) + r.records
    return KeyShapes(shapes, frozenset(tombstones))


RAW_KEYS = ("key_raw", "old_key_raw", "new_key_raw")
TypedNames = tuple[tuple[str, ...], tuple[tuple[str, types.ColumnType], ...]]


def with_canonical_keys(
    parsed: DataFrame,
    settings: SourceConfig,
    shapes: Iterable[Shape],
    schemas: KnownSchemas,
    misfits: Mapping[Shape, str],
) -> Query:
    """Replace raw keys by canonical ones (DESIGN, column `key`) and judge unfit values.

    A key whose columns have no type that is known by its day is canonical as JSON wrote it.
    """
    by_types: dict[TypedNames, list[Shape]] = {}
    for shape in shapes:
        typed = _types_of_key(shape, settings, schemas)
        if typed or shape in misfits:
            by_types.setdefault((shape.names, typed), []).append(shape)
    planned = _with_plans(parsed, list(by_types.values()), misfits)
    keyed = with_canonical(Query(planned), RAW_KEYS, list(by_types))
    is_change = "(kind = 'row' OR (kind = 'tombstone' AND op = 'd'))"
    is_unfit = "((key_raw IS NOT NULL AND key IS NULL) OR key_misfit IS NOT NULL)"
    malformed = (
        f"reason IS NULL AND {is_one_of('table_name', settings.tables)} "
        f"AND {is_change} AND {is_unfit}"
    )
    says = "coalesce(key_misfit, concat('a key value does not fit its column: ', key_raw))"
    return keyed.replace(
        {
            # D10: a row whose key is the old one keeps its key.
            "old_key": "nullif(old_key, key)",
            "reason": case((malformed, "'malformed_key'"), otherwise="reason"),
            "detail": case((malformed, says), otherwise="detail"),
        },
    ).drop("key_plan", "key_misfit", *RAW_KEYS)


def _types_of_key(
    shape: Shape, settings: SourceConfig, schemas: KnownSchemas
) -> tuple[tuple[str, types.ColumnType], ...]:
    """The key columns whose types are known by the shape's day, each as its column holds it."""
    table = settings.tables.get(shape.table_name)
    own = schemas.columns.get((shape.table_name, shape.schema_id), {}) if shape.schema_id else {}
    said = {**schemas.latest(shape.table_name, shape.day), **_typed(own)}
    configured = types.columns_of_config(table.columns if table else {})
    known = _typed(as_configured(_typed(said), configured, is_key=True))
    # A message key is read as its own schema writes it, and held as its column (D5).
    message_key = types.columns_of_key(shape.key_schema) if shape.key_schema else {}
    return tuple(
        (name, types.held_as(message_key.get(name, column), column.spark))
        for name, column in ((n, known.get(n)) for n in shape.names)
        if column is not None
    )


def _typed(columns: types.ColumnTypes) -> types.ColumnTypes:
    return {name: kind for name, kind in columns.items() if kind.wire != "unknown"}


def judge_keys(
    keys: KeyShapes,
    settings: SourceConfig,
    schemas: KnownSchemas,
    before: Mapping[str, KeyForm | None],
) -> dict[Shape, str]:
    """The shapes of keys that their table can't hold, each with what is wrong (R6).

    Args:
        keys: :func:`key_shapes` of some days.
        settings: only keys of configured tables are judged.
        schemas: all that landed up to these days.
        before: the form of the keys of :func:`tables_in_doubt` before these days.
    """
    misfits: dict[Shape, str] = {}
    for table, days in _forms_by_table(keys, settings, schemas).items():
        form = before.get(table)
        for forms in days:
            form_of_day = majority_key_form(forms.counts(), form)
            if form_of_day is None:
                continue
            form = form_of_day
            for shape, own in (*forms.rows.items(), *forms.tombstones.items()):
                if not form.holds(own):
                    misfits[shape] = f"the key is ({own}), the table's is ({form})"
    return misfits


def tables_in_doubt(
    keys: KeyShapes, settings: SourceConfig, schemas: KnownSchemas
) -> Iterator[str]:
    """Tables with keys of several forms: their earlier keys decide which form is right."""
    for table, (first, *_) in _forms_by_table(keys, settings, schemas).items():
        # One form on the first day is the table's from then on.
        if len({*first.rows.values(), *first.tombstones.values()}) > 1:
            yield table


@dataclass(frozen=True)
class _DayForms:
    """The forms of a table's keys on a day, for its rows and for tombstones."""

    rows: Mapping[Shape, KeyForm]
    tombstones: Mapping[Shape, KeyForm]
    records: Mapping[Shape, int]

    def counts(self) -> Counter[KeyForm]:
        """How many records have keys of each form."""
        counts: Counter[KeyForm] = Counter()
        for shape, form in self.rows.items():
            counts[form] += self.records[shape]
        return counts


def _forms_by_table(
    keys: KeyShapes, settings: SourceConfig, schemas: KnownSchemas
) -> dict[str, list[_DayForms]]:
    """The forms of each configured table's keys, day by day."""
    by_table: dict[str, dict[date, dict[Shape, KeyForm]]] = {}
    for shape in keys.shapes:
        table = settings.tables.get(shape.table_name)
        if table is not None and table.key not in ("none", "row"):
            days = by_table.setdefault(shape.table_name, {})
            days.setdefault(shape.day, {})[shape] = _form(shape, settings, schemas)
    found: dict[str, list[_DayForms]] = {}
    for name, days in by_table.items():
        tombstones = [shape for shape in keys.tombstones_as([name]) if shape.names]
        found[name] = [
            _DayForms(
                rows,
                {s: _form(s, settings, schemas) for s in tombstones if s.day == day},
                keys.shapes,
            )
            for day, rows in sorted(days.items())
        ]
    return found


def _form(shape: Shape, settings: SourceConfig, schemas: KnownSchemas) -> KeyForm:
    typed = {name: (kind.spark,) for name, kind in _types_of_key(shape, settings, schemas)}
    kinds, unquoted = (types.columns_of_inference(k or "") for k in (shape.kinds, shape.unquoted))
    inferred = {
        name: readable_as(kind.spark, unquoted.get(name, kind).spark)
        for name, kind in kinds.items()
    }
    return KeyForm(tuple((n, typed.get(n, inferred.get(n, ()))) for n in sorted(shape.names)))


_PLAN_COLUMNS = {
    "plan_day": "date",
    "plan_table": "string",
    "plan_schema": "string",
    "plan_key_schema": "string",
    "plan_names": "string",
    "plan_kinds": "string",
    "plan_unquoted": "string",
    "key_plan": "int",
    "key_misfit": "string",
}
_HAS_PLAN = (
    "landing_date = plan_day AND table_name = plan_table "
    "AND coalesce(schema_id, '') = plan_schema AND coalesce(key_schema, '') = plan_key_schema "
    "AND key_names = from_json(plan_names, 'array<string>') "
    "AND coalesce(key_kinds, '') = plan_kinds AND coalesce(key_unquoted, '') = plan_unquoted"
)


def _with_plans(
    parsed: DataFrame, plans: Sequence[Sequence[Shape]], misfits: Mapping[Shape, str]
) -> DataFrame:
    """Add `key_plan`, the plan that reads the record's key, and `key_misfit`, its fault.

    Both are null where nothing is known about the key.
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
    known = few_rows(parsed.sparkSession, rows, **_PLAN_COLUMNS)
    plan_columns = [name for name in _PLAN_COLUMNS if name.startswith("plan_")]
    return parsed.join(F.broadcast(known), F.expr(_HAS_PLAN), "left").drop(*plan_columns)


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
    """True for a key that has all its columns."""
    if len(names) == 1:
        return f"{text} <> '{{}}'"
    return f"size({names_in(text)}) = {len(names)}"
