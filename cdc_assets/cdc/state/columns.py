"""The columns of a state table: found in the day's schemas, added and widened (FORMATS R3–R6)."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    LongType,
    MapType,
    StructField,
    StructType,
)

from cdc_assets.cdc.config import RESERVED_PREFIX
from cdc_assets.cdc.errors import ConfigError, SchemaDriftError
from cdc_assets.cdc.lake.catalog import column_ddl
from cdc_assets.cdc.lake.commits import KEY
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import TableName, ddl_of, is_column_name, quote
from cdc_assets.cdc.sqltext import Query, Sql, case, is_present, literal, literals
from cdc_assets.cdc.state.configured_types import with_lake, with_messages
from cdc_assets.cdc.state.labels import Labels, as_labels, find_labels
from cdc_assets.cdc.state.record_order import names_in_order, place_columns
from cdc_assets.cdc.state.table_day import LANDED, POSITION, SOURCE_TS, TableDay
from cdc_assets.cdc.state.unsent_values import Unchanged
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.placeholders import placeholder_forms
from cdc_assets.cdc.values.readers import At, itself, member, of_member, read_value
from cdc_assets.cdc.values.strict_json import shallow

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
INFERRED = "cdc.inferred-columns"


@dataclass(frozen=True)
class OwnColumn:
    """A column of the table: its name in messages and in the lake, its type, its work names."""

    name: str
    lake: str
    spark: str
    index: int

    @property
    def work(self) -> str:
        """The value's name in work frames, free of characters that need quoting."""
        return f"c{self.index}"

    @property
    def text(self) -> str:
        """What the row's image holds, as a text."""
        return f"t{self.index}"

    @property
    def contradicted(self) -> str:
        """True where an image holds another value than the key does; of key columns alone."""
        return f"d{self.index}"

    @property
    def unfit(self) -> str:
        """The text of a value that the column can't hold, null where it can."""
        return f"x{self.index}"


def _paths(name: str, kind: str) -> set[str]:
    """The full names that Iceberg gives a column and its members."""
    found: set[str] = set()

    def add(path: str, of: DataType) -> None:
        found.add(path)
        if isinstance(of, StructType):
            for member in of.fields:
                add(f"{path}.{member.name}", member.dataType)
        elif isinstance(of, ArrayType):
            add(f"{path}.element", of.elementType)
        elif isinstance(of, MapType):
            add(f"{path}.key", of.keyType)
            add(f"{path}.value", of.valueType)

    add(name, DataType.fromDDL(kind) if "<" in kind else LongType())
    return found


def _holds_keys(column: str, keys: str, whole: bool) -> bool:
    """Can a column hold keys that came as this type? `whole`: their texts are whole numbers."""
    return column in (keys, "string") or (column == "bigint" and whole)


class TableColumns:
    """The columns of a table on a day, and how each value of the day is read."""

    def __init__(self, day: TableDay) -> None:
        self.day = day
        self.lake = day.lake
        self.state = day.state
        self.own: list[OwnColumn] = []
        self.inferred: set[str] = set()
        self._unlike: dict[str, str] = {}
        self._by_schema: dict[str | None, types.ColumnTypes] = {}
        self._latest: types.ColumnTypes = {}
        self._said: types.ColumnTypes = {}
        self._before: dict[str, str] = {}
        self._comments: dict[str, str] = {}
        self._in_records: list[str] = []
        self.labels = Labels()
        self.key_names: tuple[str, ...] = ()

    @property
    def incompatible(self) -> list[str]:
        """Columns whose new types they can't take on, a line each (R5)."""
        return list(self._unlike.values())

    @property
    def has_rows(self) -> bool:
        """Whether events can change rows: by a key that is known, or without one."""
        if self.day.config.key in ("none", "row"):
            return True
        # A key that the configuration names may be of no column yet.
        return bool(self.key_names) and {c.name for c in self.own}.issuperset(self.key_names)

    @property
    def key_work(self) -> list[str]:
        """Names of the key's members in work frames."""
        return [f"k{i}" for i in range(len(self.key_names))]

    @property
    def key_lake(self) -> list[str]:
        """Names of the key columns in the lake."""
        return [self._lake_name(name) for name in self.key_names]

    def prepare(self) -> None:
        """Find the day's types, create or alter the table, and fix how values are read."""
        day = self.day
        self._before = self._existing() if day.state else {}
        schemas = day.context.schemas
        configured = types.columns_of_config(day.config.lake_columns)
        latest = self._as_wanted(schemas.latest(day.table, day.day), configured)
        without = self._latest = types.over(configured, latest)
        found: dict[str, list[str]] = {}
        # Of those that are new today that of most events first: one record types no column.
        oldest_first = sorted(
            day.day_facts.schema_ids, key=lambda i: schemas.first_landed[day.table, i]
        )
        for schema_id in oldest_first:
            said = self._as_wanted(schemas.columns[day.table, schema_id], configured)
            of_schema = types.over({name: without[name] for name in said if name in without}, said)
            self._by_schema[schema_id] = of_schema
            for name, kind in of_schema.items():
                of_column = found.setdefault(name, [])
                if kind.spark not in of_column:
                    of_column.append(kind.spark)
        self._find_narrower(oldest_first)
        # Schemas of the day speak last: one that came back is the newest again. By their ids, where
        # nothing says which came first, so that no day describes a column in turns.
        self._said = latest
        for schema_id in sorted(
            oldest_first, key=lambda i: (schemas.first_landed[day.table, i], i)
        ):
            self._said = types.over(self._said, self._by_schema[schema_id])
        named = {**latest, **found}
        of_schemas = {self._lake_name(name) for name in named}
        # A schema that names no columns, such as Lindorm's `{}`, is none (L1).
        blank = [schema_id for schema_id in oldest_first if not self._by_schema[schema_id]]
        if day.day_facts.without_schema or blank:
            inferred = self._infer(set(without), blank)
            without = {**inferred, **without}
            self.inferred = {self._lake_name(n) for n, k in inferred.items() if k.inferred}
        self._by_schema.update(dict.fromkeys([None, *blank], without))
        self.labels = find_labels(day, [*self._by_schema.values(), self._latest])
        if self.labels.are_sent:
            self._latest = self._with_labels(self._latest)
            self._by_schema = {i: self._with_labels(of) for i, of in self._by_schema.items()}
        for name, kind in {**without, **configured}.items():
            found.setdefault(name, [kind.spark])
        self._evolve(self._in_order(found, named), of_schemas)

    def _in_order(
        self, found: Mapping[str, Sequence[str]], of_schemas: Container[str]
    ) -> dict[str, Sequence[str]]:
        """Columns in the order of the message schemas, then of the records that have others."""
        place = {name: n for n, name in enumerate(self._in_records)}
        others = (name for name in found if name not in of_schemas)
        ordered = sorted(others, key=lambda name: place.get(name, len(place)))
        return {name: found[name] for name in [*(n for n in found if n in of_schemas), *ordered]}

    def _as_wanted(
        self, said: types.ColumnTypes, configured: types.ColumnTypes
    ) -> types.ColumnTypes:
        """The types of messages, where cdc.yaml types a column as read into that (R3).

        Raises:
            ConfigError: the one can't become the other.
        """
        keys = self._possible_keys()
        if faults := with_messages(self.day.source, self.day.table, said, configured, keys):
            raise ConfigError([str(fault) for fault in faults])
        of_rows = {n: k for n, k in said.items() if n not in keys}
        of_keys = {n: k for n, k in said.items() if n in keys}
        wanted_keys = {n: k for n, k in configured.items() if n in of_keys}
        wanted_rows = {n: k for n, k in configured.items() if n in of_rows}
        typed = {
            **types.as_configured(of_rows, wanted_rows),
            **types.as_configured(of_keys, wanted_keys, is_key=True),
        }
        return {name: typed[name] for name in said}

    def _with_labels(self, columns: types.ColumnTypes) -> types.ColumnTypes:
        """Types as a source has them that sends labels; keys are read without asking others."""
        keys = self._possible_keys()
        return {n: kind if n in keys else as_labels(kind) for n, kind in columns.items()}

    def _possible_keys(self) -> set[str]:
        """Columns that are in the table's key, or in that of records of the day."""
        names = {name for names in self.day.day_facts.key_names for name in names}
        stored = self.state.properties.get(KEY) if self.state else None
        return names | set(json.loads(stored or "[]"))

    def _find_narrower(self, schema_ids: Sequence[str]) -> None:
        """Note columns that a newer schema makes narrower than one of an earlier day did (R5)."""
        table, schemas = self.day.table, self.day.context.schemas
        older = [
            (landed, schemas.columns[table, schema_id])
            for (name, schema_id), landed in schemas.first_landed.items()
            if name == table and landed < self.day.day
        ]
        for schema_id in schema_ids:
            landed = schemas.first_landed[table, schema_id]
            for name, kind in self._by_schema[schema_id].items():
                if name in self.day.config.lake_columns:
                    continue
                for wide in {of[name].spark for day, of in older if day < landed and name in of}:
                    if wide != kind.spark and types.evolution(wide, kind.spark) == []:
                        self._unlike[self._lake_name(name)] = f"{name}: {wide} ← {kind.spark}"

    def _lake_name(self, name: str) -> str:
        return self.day.config.rename.get(name, name)

    def _message_name(self, name: str) -> str:
        renamed = {to: sent for sent, to in self.day.config.rename.items()}
        return renamed.get(name, name)

    def _infer(self, known: set[str], blank: Sequence[str]) -> types.ColumnTypes:
        has_none = F.col("schema_id").isNull() | F.col("schema_id").isin(list(blank))
        # What a delete says of a row after it is not a row.
        writes = F.col("op").isin("c", "r", "u") & F.col("after").isNotNull()
        rows = self.day.events([self.day.day]).where(has_none & writes)
        placed = {self._message_name(name) for name in self._before}
        places = [F.expr(sql).alias(name) for name, sql in place_columns(placed).items()]
        rows = rows.withColumn("names", F.json_object_keys("after"))
        if known:
            # Names are read far faster than types.
            others = F.expr(f"max(size(array_except(names, array({literals(sorted(known))}))))")
            found = rows.agg(others.alias("others"), *places).first()
            assert found is not None
            if (found.others or 0) < 1:
                self._find_order(found, known - placed)
                return {}
        after = "after"
        # A value that was not sent says nothing of its column's type (R2). The longest first: a
        # map's placeholder holds the text's.
        for form in sorted(placeholder_forms(self.day.settings.unavailable_value), key=len)[::-1]:
            after = f"replace({after}, {literal(f':{form}')}, ':null')"
        names = sorted({name for names in self.day.day_facts.key_names for name in names})
        row = rows.agg(
            F.expr(f"schema_of_variant_agg({shallow(after)})").alias("kind"),
            F.expr(f"schema_of_variant_agg({shallow('key')})").alias("of_keys"),
            *places,
            *(
                F.expr(
                    f"count_if({member('try_parse_json(key)', name, 'string')} "
                    "NOT RLIKE '^[+-]?[0-9]+$')"
                )
                for name in names
            ),
        ).first()
        assert row is not None
        inferred = types.columns_of_inference(row.kind or "")
        of_keys = types.columns_of_inference(row.of_keys or "")
        self._find_order(row, {*inferred, *known} - placed)
        for name, unlike in zip(names, row[2 + len(places) :], strict=True):
            # Keys are typed by the images (D5), unless these could not hold them all.
            if (
                name in inferred
                and name in of_keys
                and not _holds_keys(inferred[name].spark, of_keys[name].spark, whole=not unlike)
            ):
                inferred[name] = of_keys[name]
        return {name: kind for name, kind in inferred.items() if name not in known}

    def _find_order(self, found: Row, names: set[str]) -> None:
        """Look up in which order records have these columns, where they are new."""
        day = self.day
        if names and found.first:
            self._in_records = names_in_order(self.lake, day.source, day.day, found, names)

    def _key_names(self, existing: Sequence[str] | None) -> tuple[str, ...]:
        config = self.day.config.key
        if config in ("none", "row"):
            return ()
        if isinstance(config, tuple):
            if existing is not None and set(existing) != set(config):
                raise ConfigError(
                    [
                        f"sources.{self.day.source}.tables.{self.day.table}.key: "
                        f"got {list(config)}, but the table in the lake is keyed by "
                        f"{list(existing)}. Keep that key, or drop the table and make its days "
                        "again"
                    ]
                )
            return config
        seen = set(self.day.day_facts.key_names)
        if existing is not None:
            seen.add(tuple(sorted(existing)))
        if len(seen) > 1:
            listed = " and ".join(str(list(names)) for names in sorted(seen))
            raise SchemaDriftError(
                f"{self.day.label} {self.day.day}: message keys name different columns, {listed}. "
                f"Say which are the key: sources.{self.day.source}.tables.{self.day.table}.key: […]"
            )
        return tuple(existing) if existing is not None else next(iter(seen), ())

    def _evolve(self, found: Mapping[str, Sequence[str]], of_schemas: set[str]) -> None:
        """Create the table, or add and widen columns (R5).

        Args:
            found: the types that each column of the day has in messages, oldest first.
            of_schemas: lake names of the columns that message schemas have typed so far.
        """
        day = self.day
        for name in found:
            if self._lake_name(name).startswith(RESERVED_PREFIX):
                raise ConfigError(
                    [
                        f"{day.label}: the column {name!r} starts with {RESERVED_PREFIX}, which "
                        f"is taken. Give it another name: sources.{day.source}.tables.{day.table}."
                        f"rename: {{{name}: {name.removeprefix(RESERVED_PREFIX)}}}"
                    ]
                )
        if len({self._lake_name(name) for name in found}) != len(found):
            raise ConfigError([f"{day.label}: rename gives two columns the same name"])
        wanted = {
            self._lake_name(name): list(kinds)
            for name, kinds in found.items()
            if self._is_possible(name)
        }
        state = self.state
        properties = state.properties if state else {}
        stored = json.loads(properties[KEY]) if KEY in properties else None
        self.key_names = self._key_names(stored)
        wanted.update({n: [kind] for n, kind in self._types_of_bare_keys(wanted).items()})
        if state is None:
            if not of_schemas:
                wanted = {**{n: wanted[n] for n in self.key_lake if n in wanted}, **wanted}
            distinct = self._distinct({}, wanted)
            fields = [
                StructField(
                    n, DataType.fromDDL(t[0]), True, {"comment": self._description(n, t[0])}
                )
                for n, t in distinct.items()
            ]
            self.lake.create_state(
                day.source,
                TableName.parse(day.table),
                StructType([*fields, *OWN_COLUMNS.fields]),
                f"{day.label} as it stood at the end of each day: VERSION AS OF '<day>'",
                self._bucket(wanted),
            )
        before = self._existing() if state is None else self._before
        described = set(before)
        existing = self._as_configured(dict(before), wanted)
        if day.day <= day.start:
            existing = self._without_contradicted(existing, self.read_otherwise(existing))
        existing = self._alter(existing, self._distinct(existing, wanted))
        self._describe({name: kind for name, kind in existing.items() if name in described})
        known = set(json.loads(properties.get(INFERRED, "[]")))
        fresh = self.inferred - set(before) if state else self.inferred
        typed = of_schemas - set(self._unlike)
        inferred = (known | fresh) - typed
        self.inferred = inferred - {self._lake_name(n) for n in day.config.lake_columns}
        properties_wanted = {INFERRED: json.dumps(sorted(inferred), ensure_ascii=False)}
        if self.key_names:
            properties_wanted[KEY] = json.dumps(list(self.key_names), ensure_ascii=False)
        if any(properties.get(k) != v for k, v in properties_wanted.items()):
            self._set_properties(properties_wanted)
        back = {self._lake_name(name): name for name in [*found, *self.key_names]}
        back.update({to: name for name, to in day.config.rename.items()})
        self.own = [OwnColumn(back.get(n, n), n, t, i) for i, (n, t) in enumerate(existing.items())]

    def _is_possible(self, name: str) -> bool:
        """False for a column that no table can have; it is left out, and told (R5).

        Raises:
            ConfigError: it is a column of the key, without which there is no table.
        """
        if is_column_name(self._lake_name(name)):
            return True
        day = self.day
        cure = (
            f"give it another name: sources.{day.source}.tables.{day.table}.rename: "
            f"{{{json.dumps(name)}: …}}"
        )
        if any(name in names for names in day.day_facts.key_names):
            raise ConfigError([f"{day.label}: no column can be called {name!r}; {cure}"])
        self._unlike[self._lake_name(name)] = (
            f"{name!r} is left out, no column has such a name; {cure}"
        )
        return False

    def _existing(self) -> dict[str, str]:
        """The table's columns and their types; `_comments` has what is said of them."""
        schema = self.lake.spark.table(self.day.identifier).schema
        own = [f for f in schema.fields if not f.name.startswith(RESERVED_PREFIX)]
        self._comments = {f.name: f.metadata.get("comment", "") for f in own}
        return {f.name: ddl_of(f.dataType) for f in own}

    def _description(self, name: str, kind: str) -> str:
        """What a column of the lake says of itself, as the newest message schemas have it."""
        said = self._said.get(self._message_name(name))
        return types.description(said, kind) if said else ""

    def _describe(self, existing: Mapping[str, str]) -> None:
        """Describe columns again where message schemas of the newest day describe them otherwise.

        A column of which the schemas say nothing keeps its description.
        """
        day = self.day
        published = day.state.tags if day.state else {}
        if not day.day_facts.schema_ids or max([*published, day.day]) != day.day:
            return
        changed: dict[str, str | None] = {}
        for name, kind in existing.items():
            text, said = self._description(name, kind), self._said.get(self._message_name(name))
            is_said = bool(text) or (said is not None and said.comment is not None)
            if is_said and text != self._comments.get(name, ""):
                changed[name] = text or None

        def commit() -> None:
            update = self.lake.handle(day.identifier).updateSchema()
            for name, text in changed.items():
                update.updateColumnDoc(name, text)
            update.commit()

        if changed:
            with_retry(commit)

    def _types_of_bare_keys(self, known: Container[str]) -> dict[str, str]:
        """Types of key columns that no image carried yet, as on a day of deletes alone."""
        missing = [n for n in self.key_names if self._lake_name(n) not in known]
        if not missing or not self.day.day_facts.events:
            return {}
        rows = self.day.events([self.day.day])
        row = rows.agg(F.expr(f"schema_of_variant_agg({shallow('key')})").alias("kind")).first()
        inferred = types.columns_of_inference(row.kind if row and row.kind else "")
        return {self._lake_name(n): inferred[n].spark for n in missing if n in inferred}

    def _bucket(self, lake_types: Container[str]) -> str | None:
        buckets, keys = self.day.config.bucket, self.key_lake
        if buckets is None or not keys or keys[0] not in lake_types:
            return None
        return f"bucket({buckets}, {quote(keys[0])})"

    def _as_configured(
        self, existing: dict[str, str], wanted: Mapping[str, Sequence[str]]
    ) -> dict[str, str]:
        """Give columns whose configured type has changed that type, on the table's first day.

        Days before keep the schema that they were written with.

        Raises:
            ConfigError: on a later day, where the values of the days before would be lost.
        """
        day = self.day
        entries = {
            name: wanted[name][0]
            for name in (self._lake_name(n) for n in day.config.lake_columns)
            if name in existing
        }
        faults = with_lake(day.source, day.table, existing, entries, day.start, day.day)
        if faults and day.day > day.start:
            raise ConfigError([str(fault) for fault in faults])
        return self._without_contradicted(existing, entries)

    def _without_contradicted(
        self, existing: dict[str, str], wanted: Mapping[str, str]
    ) -> dict[str, str]:
        """The columns without those of another type than is wanted, which go out of the table."""
        gone = [n for n, k in wanted.items() if types.evolution(existing[n], k) is None]
        for name in gone:
            self._alter_table(f"DROP COLUMN {quote(name)}")
        return {name: kind for name, kind in existing.items() if name not in gone}

    def read_otherwise(self, existing: Mapping[str, str]) -> dict[str, str]:
        """Columns that an earlier version gave another type than messages have, and that type.

        A decimal without digits (C2) was a DECIMAL(10,0).
        """
        is_bare = (
            (self._lake_name(name), kind.spark)
            for name, kind in self._said.items()
            if kind.encoding == types.BARE_DECIMAL.encoding
            and name not in self.day.config.lake_columns
        )
        return {name: kind for name, kind in is_bare if existing.get(name) == "decimal(10,0)"}

    def _distinct(
        self, existing: Mapping[str, str], wanted: Mapping[str, Sequence[str]]
    ) -> dict[str, Sequence[str]]:
        """Leave out new columns that Iceberg can't tell from a member of another.

        Its names of members are joined by dots: a column `a.b` beside the member `b` of `a`.
        """
        taken = {path for name, kind in existing.items() for path in _paths(name, kind)}
        distinct: dict[str, Sequence[str]] = {}
        for name, kinds in wanted.items():
            paths = _paths(name, kinds[0])
            if name not in existing and not taken.isdisjoint(paths):
                self._unlike[name] = f"{name!r} is left out: another column has a member so named"
                continue
            taken.update(paths)
            distinct[name] = kinds
        return distinct

    def _alter(
        self, existing: dict[str, str], wanted: Mapping[str, Sequence[str]]
    ) -> dict[str, str]:
        """Add and widen columns; the columns of the table after that."""
        last = list(existing)[-1] if existing else None
        for name in [n for n in wanted if n not in existing]:
            place = f"AFTER {quote(last)}" if last else "FIRST"
            column = column_ddl(name, wanted[name][0], self._description(name, wanted[name][0]))
            self._alter_table(f"ADD COLUMN {column} {place}")
            existing[name], last = wanted[name][0], name
        for name, kinds in wanted.items():
            for kind in kinds:
                changes = types.evolution(existing[name], kind)
                is_truth = kind == "boolean" and types.is_number(existing[name])
                if is_truth and name not in self.key_lake:
                    continue  # 1 and 0
                if changes is None:
                    self._refuse_for_keys(name, existing[name], kind)
                    self._unlike[name] = f"{name}: {existing[name]} ← {kind}"
                for path, to, is_new in changes or []:
                    at = quote(name, *path)
                    self._alter_table(
                        f"ADD COLUMN {at} {to}" if is_new else f"ALTER COLUMN {at} TYPE {to}"
                    )
                if changes:
                    existing[name] = self._existing()[name]
        return existing

    def _alter_table(self, change: str) -> None:
        statement = f"ALTER TABLE {self.day.identifier} {change}"
        with_retry(partial(self.lake.spark.sql, statement))

    def _refuse_for_keys(self, name: str, existing: str, kind: str) -> None:
        """R6: the type of a key never changes silently."""
        if name in self.key_lake:
            raise SchemaDriftError(
                f"{self.day.label} {self.day.day}: key column {name!r} is {existing} and now "
                f"comes as {kind}. Rebuild the table under the new type, or say the key's type "
                "in columns:."
            )

    def _set_properties(self, properties: Mapping[str, str]) -> None:
        def commit() -> None:
            update = self.lake.handle(self.day.identifier).updateProperties()
            for key, value in properties.items():
                update.set(key, value)
            update.commit()

        with_retry(commit)

    @property
    def without_unit(self) -> list[OwnColumn]:
        """Configured time stamps whose unit nobody said."""
        return [
            c
            for c in self.own
            if c.name in self._latest and types.has_no_unit(self._latest[c.name])
        ]

    def latest_of(self, c: OwnColumn) -> types.ColumnType | None:
        """A column's type in messages, as the newest say."""
        return self._latest.get(c.name)

    # --- values

    def typed(self, winners: DataFrame, unchanged: Unchanged) -> DataFrame:
        """Each winner's row as typed columns `c<i>`, and `x<i>` what a column can't hold."""
        opened = Query(winners).extend({"row": "try_parse_json(after)"})
        texts: dict[str, Sql] = {}
        values: dict[str, Sql] = {}
        unfit: dict[str, Sql] = {}
        fills: dict[str, Sql] = {}
        of_key = dict(zip(self.key_names, self.key_work, strict=True))
        for c in self.own:
            value = self._value(partial(self._read, texts, c), c, "schema_id")
            raw = member("row", c.name)
            is_sent = is_present(raw)
            if c.name in of_key:
                # D5: key columns hold the key, whatever the image says of them.
                key = f"k.{of_key[c.name]}"
                values[c.contradicted] = f"{is_sent} AND NOT ({value} <=> {key})"
                values[c.work], unfit[c.unfit] = key, "CAST(NULL AS string)"
                continue
            if c.lake in unchanged.columns:
                flag = unchanged.flag(c.index)
                is_sent = f"{is_sent} AND NOT {flag}"
                value = case((f"NOT {flag}", value))
                last = self._last_sent(c, unchanged.carried(c.index))
                old = self._value(of_member("try_parse_json(old_image)", c.name), c, "schema_id")
                unsent = unchanged.is_unsent("old_image", c.name)
                fills[unchanged.fill(c.index)] = (
                    f"coalesce({last}, CASE WHEN NOT {unsent} THEN {old} END)"
                )
            values[c.work] = value
            unfit[c.unfit] = case((f"{c.work} IS NULL AND {is_sent}", f"to_json({raw})"))
        # What was sent is asked for where there is no value alone, and so a step later.
        valued = opened.extend(texts).extend(values).extend({**unfit, **fills})
        image = ["old_image"] if unchanged.columns else []
        return valued.drop("row", "after", *image, *texts).plan()

    @staticmethod
    def _read(texts: dict[str, Sql], c: OwnColumn, kind: str) -> Sql:
        """The column's value in `row`; its text, which most types ask for, once for all."""
        value = member("row", c.name, kind)
        if kind != "string":
            return value
        texts[c.text] = value
        return c.text

    def _last_sent(self, c: OwnColumn, carried: str) -> Sql:
        """The last value that was sent: from a row of the table, or from an event's JSON."""
        text = f"try_parse_json({carried}.json)"
        value = self._value(itself(text), c, f"{carried}.schema_id")
        return f"coalesce(CAST({carried}.row AS {c.spark}), {value})"

    def _value(self, at: At, c: OwnColumn, schema_id: Sql) -> Sql:
        """The value by its schema's type; one branch a type, not one a schema."""
        ids: dict[types.ColumnType | None, list[str | None]] = {}
        for schema, columns in self._by_schema.items():
            ids.setdefault(columns.get(c.name), []).append(schema)
        # The latest stands last: what a schema does not name is read so, too.
        latest = self._latest.get(c.name)
        kinds = sorted((kind for kind in ids if kind is not None), key=lambda kind: kind == latest)
        if not kinds and c.lake in self.inferred:
            # Inferred on an earlier day; today only an old row may have it.
            kinds = [types.inferred_as(c.spark)]
        if not kinds:
            return f"CAST(NULL AS {c.spark})"
        *others, last = kinds
        return case(
            *(
                (
                    " OR ".join(f"{schema_id} <=> {literal(schema)}" for schema in ids[kind]),
                    read_value(at, kind, c.spark),
                )
                for kind in others
            ),
            otherwise=read_value(at, last, c.spark),
        )

    def unresolved(self, rows: DataFrame, base: DataFrame | None, unchanged: Unchanged) -> int:
        """How many rows hold an unchanged value that nothing known fills (R2)."""
        open_flags = F.lit(False)
        for c in self.own:
            if c.lake in unchanged.columns:
                no_fill = F.col(unchanged.fill(c.index)).isNull()
                open_flags = open_flags | (F.col(unchanged.flag(c.index)) & no_fill)
        lacking = rows.where(open_flags & ~F.col("is_removal"))
        if base is None:
            return lacking.count()
        known = base.select(F.col("k").alias("bk"), F.col("pos").alias("bpos"))
        still = F.col("removed_pos").isNull() | (F.col("removed_pos") < F.col("bpos"))
        return lacking.join(known, (F.col("k") == F.col("bk")) & still, "left_anti").count()
