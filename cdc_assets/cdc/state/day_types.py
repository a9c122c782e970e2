"""The types that a day's messages give a table's columns (FORMATS R3-R5): pure, no Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from pyspark.sql.types import (
    ArrayType,
    DateType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from cdc_assets.cdc.config import DELETED_AT, RESERVED_PREFIX, is_reserved
from cdc_assets.cdc.errors import ConfigError, SchemaDriftError
from cdc_assets.cdc.lake.commits import KEY, Retyped
from cdc_assets.cdc.names import is_column_name
from cdc_assets.cdc.state.configured_types import with_messages
from cdc_assets.cdc.state.labels import Labels, as_labels
from cdc_assets.cdc.state.table_day import LANDED, POSITION, SOURCE_TS, TableDay
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.configured import as_configured, has_no_unit
from cdc_assets.cdc.values.spark_types import evolution

OWN_COLUMNS = StructType(
    [
        StructField(
            POSITION,
            ArrayType(LongType()),
            True,
            {"comment": "position of the event that the row is from"},
        ),
        StructField(SOURCE_TS, LongType(), True, {"comment": "when the source changed it, ms UTC"}),
        StructField(LANDED, DateType(), True, {"comment": "day whose changes wrote the row"}),
    ]
)
# Of a table that keeps its deleted rows.
DELETED_AT_COLUMN = StructField(
    DELETED_AT, TimestampType(), True, {"comment": "when the source deleted the row"}
)


@dataclass(frozen=True)
class OwnColumn:
    """A column of the table: its name in the lake, its type, its work names.

    Work names are those of the column's values in frames, free of characters that need quoting.
    """

    name: str
    spark: str
    index: int

    @property
    def work(self) -> str:
        """The value."""
        return f"c{self.index}"

    @property
    def contradicted(self) -> str:
        """True where an image holds another value than the key does; of key columns alone."""
        return f"d{self.index}"

    @property
    def unfit(self) -> str:
        """The text of a value that the column can't hold, null where it can."""
        return f"x{self.index}"

    @property
    def unsent(self) -> str:
        """True where the value was not sent because it did not change (R2)."""
        return f"u{self.index}"

    @property
    def last(self) -> str:
        """The last value that was sent: STRUCT<json, schema_id, row>.

        `row` is a typed value that stood in the table, the others are of an event's image.
        """
        return f"l{self.index}"

    @property
    def last_pos(self) -> str:
        """The position of the event that sent it."""
        return f"p{self.index}"

    @property
    def fill(self) -> str:
        """The last value that was sent, typed."""
        return f"f{self.index}"

    @property
    def old(self) -> str:
        """What the image of the whole old row holds, as `last`."""
        return f"b{self.index}"

    @property
    def stood(self) -> str:
        """The value of the row that stood in the table."""
        return f"s{self.index}"


@dataclass(frozen=True)
class MessageTypes:
    """What the message schemas of a day say, columns by their names in messages.

    `latest` is what the newest schemas have, with the types of cdc.yaml; `described` is the same
    where schemas of the day speak last. `by_schema` has the day's schemas, `found` the Spark types
    of each of their columns, that of the oldest schema first. `blank` schemas name no columns, such
    as Lindorm's `{}` (L1). `narrower` says by lake name which columns a newer schema makes narrower
    than one of an earlier day did (R5).
    """

    key_names: tuple[str, ...]
    configured: types.ColumnTypes
    latest: types.ColumnTypes
    described: types.ColumnTypes
    by_schema: Mapping[str, types.ColumnTypes]
    found: Mapping[str, Sequence[str]]
    blank: Sequence[str]
    narrower: Mapping[str, str]

    @property
    def typed(self) -> types.ColumnTypes:
        """What records without a schema are read as, as far as anything says it."""
        return types.over(self.configured, self.latest)

    @property
    def named(self) -> list[str]:
        """The columns of message schemas, in their order."""
        return list({**self.latest, **self.found})


@dataclass(frozen=True)
class Inferred:
    """What the records of a day say that its message schemas do not.

    `columns` are the types of columns of records without a schema, `order` is theirs in a record,
    `keys` the types of key columns that no image carried yet.
    """

    columns: types.ColumnTypes = field(default_factory=dict)
    order: Sequence[str] = ()
    keys: types.ColumnTypes = field(default_factory=dict)
    labels: Labels = field(default_factory=Labels)


@dataclass(frozen=True)
class DayTypes:
    """How the values of a day are read, and which columns their table is to have.

    None is the schema of records without one. `wanted` has the Spark types that messages have, in
    the order of the columns. `schema_columns` are those that message schemas type, `inferred` those
    that records typed.
    """

    key_names: tuple[str, ...]
    by_schema: Mapping[str | None, types.ColumnTypes]
    latest: types.ColumnTypes
    described: types.ColumnTypes
    wanted: Mapping[str, Sequence[str]]
    schema_columns: frozenset[str]
    inferred: frozenset[str]
    incompatible: Mapping[str, str]
    labels: Labels


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table on a day, and how each value of the day is read.

    `inferred` are the columns that no schema has typed; `retyped` get another type on
    the day; `incompatible` has a line for each of them, and for each column whose new type it can't
    take on (R5).
    """

    own: tuple[OwnColumn, ...]
    types: DayTypes
    inferred: frozenset[str]
    incompatible: tuple[str, ...]
    retyped: tuple[Retyped, ...] = ()

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key columns."""
        return self.types.key_names

    @property
    def key_work(self) -> list[str]:
        """Names of the key's members in work frames."""
        return [f"k{i}" for i in range(len(self.key_names))]

    @property
    def keys(self) -> list[OwnColumn]:
        """The key columns, in the table's order."""
        return [c for c in self.own if c.name in self.key_names]

    @property
    def values(self) -> list[OwnColumn]:
        """The columns that are not in the key."""
        return [c for c in self.own if c.name not in self.key_names]

    @property
    def are_keys_known(self) -> bool:
        """Is each key column there? One that cdc.yaml names may be of no column yet."""
        return bool(self.key_names) and {c.name for c in self.own}.issuperset(self.key_names)

    @property
    def without_unit(self) -> list[OwnColumn]:
        """Configured time stamps whose unit nobody said."""
        latest = self.types.latest
        return [c for c in self.own if c.name in latest and has_no_unit(latest[c.name])]


def message_types(day: TableDay) -> MessageTypes:
    """What the message schemas of a day say.

    Raises:
        ConfigError: cdc.yaml gives a column a type that the messages' can't become, or a key that
            the table has not.
        SchemaDriftError: message keys name different columns.
    """
    schemas, table = day.context.schemas, day.table
    configured = types.columns_of_config(day.config.lake_columns)
    latest = _as_wanted(day, schemas.latest(table, day.day), configured)
    typed = types.over(configured, latest)
    # Of columns that are new today the type of most events comes first: one record types none.
    oldest_first = sorted(day.day_facts.schema_ids, key=lambda i: schemas.first_landed[table, i])
    by_schema: dict[str, types.ColumnTypes] = {}
    found: dict[str, list[str]] = {}
    for schema_id in oldest_first:
        said = _as_wanted(day, schemas.columns[table, schema_id], configured)
        by_schema[schema_id] = types.over({n: typed[n] for n in said if n in typed}, said)
        for name, kind in by_schema[schema_id].items():
            kinds = found.setdefault(name, [])
            if kind.spark not in kinds:
                kinds.append(kind.spark)
    # The day's schemas come last: one that returns is the newest again. Schemas that landed on the
    # same day are ordered by id, so that descriptions do not alternate.
    described = latest
    for schema_id in sorted(oldest_first, key=lambda i: (schemas.first_landed[table, i], i)):
        described = types.over(described, by_schema[schema_id])
    return MessageTypes(
        key_names=_key_names(day),
        configured=configured,
        latest=latest,
        described=described,
        by_schema=by_schema,
        found=found,
        blank=[schema_id for schema_id in oldest_first if not by_schema[schema_id]],
        narrower=_find_narrower(day, by_schema),
    )


def with_types_of(day: TableDay, columns: TableColumns, days: Sequence[date]) -> TableColumns:
    """The columns with how values of the schemas of other days are read, too (R3)."""
    known = columns.types
    ids = {i for facts in day.facts_on_days(days) for i in facts.schema_ids} - set(known.by_schema)
    if not ids:
        return columns
    configured = types.columns_of_config(day.config.lake_columns)
    by_schema: dict[str | None, types.ColumnTypes] = {}
    for schema_id in sorted(ids):
        said = _as_wanted(day, day.context.schemas.columns[day.table, schema_id], configured)
        typed = {name: known.latest[name] for name in said if name in known.latest}
        by_schema[schema_id] = types.over(typed, said) if said else known.by_schema[None]
    if known.labels.are_sent:
        by_schema = {i: _with_labels(day, said) for i, said in by_schema.items()}
    return replace(columns, types=replace(known, by_schema={**by_schema, **known.by_schema}))


def types_by_schema(
    said: MessageTypes, inferred: types.ColumnTypes
) -> dict[str | None, types.ColumnTypes]:
    """How each schema's columns are read; None: those of records without one."""
    by_schema: dict[str | None, types.ColumnTypes] = dict(said.by_schema.items())
    typed = {**inferred, **said.typed}
    by_schema.update(dict.fromkeys([None, *said.blank], typed))
    return by_schema


def day_types(day: TableDay, said: MessageTypes, inferred: Inferred) -> DayTypes:
    """How the values of a day are read, by its message schemas and by what its records say.

    Raises:
        ConfigError: a column can't be in the lake under its name.
    """
    latest, by_schema = said.typed, types_by_schema(said, inferred.columns)
    found: dict[str, Sequence[str]] = dict(said.found)
    for name, kind in {**by_schema[None], **said.configured}.items():
        found.setdefault(name, [kind.spark])
    if inferred.labels.are_sent:
        latest = _with_labels(day, latest)
        by_schema = {i: _with_labels(day, columns) for i, columns in by_schema.items()}
    ordered = _in_order(found, said.named, inferred.order)
    _check_names(day, ordered)
    wanted = {n: kinds for n, kinds in ordered.items() if is_column_name(n)}
    wanted |= {name: [kind.spark] for name, kind in inferred.keys.items()}
    return DayTypes(
        key_names=said.key_names,
        by_schema=by_schema,
        latest=latest,
        described=said.described,
        wanted=wanted,
        schema_columns=frozenset(said.named),
        inferred=frozenset(n for n, k in inferred.columns.items() if k.inferred),
        incompatible={**said.narrower, **_left_out(day, ordered)},
        labels=inferred.labels,
    )


def read_otherwise(
    day: TableDay, described: types.ColumnTypes, existing: Mapping[str, str]
) -> dict[str, str]:
    """Columns that an earlier version gave another type than messages have, and that type.

    A decimal without digits (C2) was a DECIMAL(10,0).

    Args:
        described: what messages have.
        existing: the lake's columns.
    """
    return {
        name: kind.spark
        for name, kind in described.items()
        if kind.encoding == types.BARE_DECIMAL.encoding
        and name not in day.config.lake_columns
        and existing.get(name) == "decimal(10,0)"
    }


# --- keys


def _stored_key(day: TableDay) -> list[str] | None:
    """The key, as the table's properties have it."""
    stored = day.state.properties.get(KEY) if day.state else None
    return None if stored is None else list(map(day.sent.lake_name, json.loads(stored)))


def _key_names(day: TableDay) -> tuple[str, ...]:
    """The key; empty where nothing says it, or where there is none."""
    existing, config = _stored_key(day), day.config.key
    if config in ("none", "row"):
        return ()
    where = f"sources.{day.source}.tables.{day.table}"
    if isinstance(config, tuple):
        if existing is not None and set(existing) != set(config):
            raise ConfigError(
                [
                    f"{where}.key: got {list(config)}, but the table in the lake is keyed by "
                    f"{list(existing)}. Keep that key, or drop the table and make its days again"
                ]
            )
        return config
    seen = set(day.day_facts.key_names)
    if existing is not None:
        seen.add(tuple(sorted(existing)))
    if len(seen) > 1:
        listed = " and ".join(str(list(names)) for names in sorted(seen))
        raise SchemaDriftError(
            f"{day.label} {day.day}: message keys name different columns, {listed}. "
            f"Say which are the key: {where}.key: […]"
        )
    return tuple(existing) if existing is not None else next(iter(seen), ())


def _possible_keys(day: TableDay) -> set[str]:
    """Columns that are in the table's key, or in that of records of the day."""
    names = {name for names in day.day_facts.key_names for name in names}
    return names | set(_stored_key(day) or ())


# --- types


def _as_wanted(
    day: TableDay, said: types.ColumnTypes, configured: types.ColumnTypes
) -> types.ColumnTypes:
    """The types of messages, where cdc.yaml types a column as read into that (R3).

    Raises:
        ConfigError: the one can't become the other.
    """
    keys = _possible_keys(day)
    if faults := with_messages(day.source, day.table, said, configured, keys):
        raise ConfigError([str(fault) for fault in faults])
    typed: types.ColumnTypes = {}
    for is_key in (False, True):
        columns = {name: kind for name, kind in said.items() if (name in keys) == is_key}
        wanted = {name: kind for name, kind in configured.items() if name in columns}
        typed |= as_configured(columns, wanted, is_key=is_key)
    return {name: typed[name] for name in said}


def _with_labels(day: TableDay, columns: types.ColumnTypes) -> types.ColumnTypes:
    """Types as a source has them that sends labels; keys are read without asking others."""
    keys = _possible_keys(day)
    return {n: kind if n in keys else as_labels(kind) for n, kind in columns.items()}


def _find_narrower(day: TableDay, by_schema: Mapping[str, types.ColumnTypes]) -> dict[str, str]:
    """Columns that a newer schema makes narrower than one of an earlier day did (R5)."""
    table, schemas = day.table, day.context.schemas
    older = [
        (landed, schemas.columns[table, schema_id])
        for (name, schema_id), landed in schemas.first_landed.items()
        if name == table and landed < day.day
    ]
    found: dict[str, str] = {}
    for schema_id, columns in by_schema.items():
        landed = schemas.first_landed[table, schema_id]
        for name, kind in columns.items():
            if name in day.config.lake_columns:
                continue
            for wide in {had[name].spark for at, had in older if at < landed and name in had}:
                if wide != kind.spark and evolution(wide, kind.spark) == []:
                    found[name] = f"{name}: {wide} ← {kind.spark}"
    return found


# --- columns


def _in_order(
    found: Mapping[str, Sequence[str]], named: Sequence[str], in_records: Sequence[str]
) -> dict[str, Sequence[str]]:
    """Columns in the order of the message schemas, then of the records that have others."""
    known = set(named)
    place = {name: n for n, name in enumerate(in_records)}
    others = (name for name in found if name not in known)
    ordered = sorted(others, key=lambda name: place.get(name, len(place)))
    return {name: found[name] for name in [*(n for n in found if n in known), *ordered]}


def _check_names(day: TableDay, names: Mapping[str, Sequence[str]]) -> None:
    """Each column can have a name of its own in the lake.

    Raises:
        ConfigError: one can't.
    """
    where = f"sources.{day.source}.tables.{day.table}.rename"
    for name in names:
        if is_reserved(name):
            raise ConfigError(
                [
                    f"{day.label}: the column {name!r} starts with {RESERVED_PREFIX}, which "
                    f"is taken. Give it another name: {where}: "
                    f"{{{name}: {name.removeprefix(RESERVED_PREFIX)}}}"
                ]
            )
    rename = day.sent.rename
    for name in names:
        # Of a message with both they stay two columns.
        if rename.get(name) in names and name not in rename.values():
            raise ConfigError(
                [
                    f"{day.label}: rename gives two columns the same name: messages have "
                    f"{rename[name]!r} beside {name!r}"
                ]
            )
    keys = {name for key in day.day_facts.key_names for name in key}
    for name in names:
        if name in keys and not is_column_name(name):
            cure = _cure(day, name)
            raise ConfigError([f"{day.label}: no column can be called {name!r}; {cure}"])


def _left_out(day: TableDay, names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """A line for each column that no table can have."""
    return {
        n: f"{n!r} is left out, no column has such a name; {_cure(day, n)}"
        for n in names
        if not is_column_name(n)
    }


def _cure(day: TableDay, name: str) -> str:
    where = f"sources.{day.source}.tables.{day.table}.rename"
    return f"give it another name: {where}: {{{json.dumps(name)}: …}}"
