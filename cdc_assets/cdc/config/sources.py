"""`sources:` — a source's format, landing, rules and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from cdc_assets.cdc.config.database import Address
from cdc_assets.cdc.config.fields import Owners, Settings, Tags, empty_mapping
from cdc_assets.cdc.config.landing import LandingConfig
from cdc_assets.cdc.config.tables import TABLE_OF_ROW, TableConfig
from cdc_assets.cdc.config.topic_patterns import topic_groups
from cdc_assets.cdc.envelopes.declared import DECLARED, PLACEHOLDER, DeclaredFormat
from cdc_assets.cdc.names import (
    TableName,
    TablePattern,
    is_table_pattern,
    parts_in,
    wildcards_in_parts,
)

FORMATS: tuple[str, ...] = tuple(DECLARED)
_ADDED = re.compile(r"(\w+\.)?\w+(:[^\s:,]+)?")


def _is_pattern(name: Any, table: Any) -> bool:
    """True for an entry of `tables` that is a pattern, `false`, or goes into another table."""
    goes_into = isinstance(table, Mapping) and table.get("into") is not None
    return table is False or goes_into or is_table_pattern(str(name))


def _into_tables(entries: Mapping[Any, Any], own: Mapping[Any, Any]) -> dict[str, Any]:
    """The tables that others go into, which need no entry of their own, with their columns."""
    found: dict[str, Any] = {}
    names = {_canonical(name): name for name in own}
    for entry in entries.values():
        into = entry.get("into") if isinstance(entry, Mapping) else None
        if not isinstance(into, str) or (canonical := _canonical(into)) is None:
            continue  # a fault that the entry reports
        name = names.setdefault(canonical, into)
        table = found.get(name, own.get(name, {}))
        if isinstance(table, Mapping):
            added = entry.get("add") if isinstance(entry.get("add"), Mapping) else {}
            columns = {**dict.fromkeys(added, "string"), **(table.get("columns") or {})}
            found[name] = {**table, "columns": {TABLE_OF_ROW: "string", **columns}}
    return found


def _canonical(name: Any) -> str | None:
    try:
        return str(TableName.configured(str(name)))
    except ValueError:
        return None


def _known_format(value: Any) -> Any:
    if not isinstance(value, str) or value not in DECLARED:
        *names, last = map(repr, FORMATS)
        raise PydanticCustomError(
            "literal_error", "no format", {"expected": f"{', '.join(names)} or {last}"}
        )
    return value


def _named(formats: Iterable[DeclaredFormat]) -> str:
    return " and ".join(declared.name for declared in formats)


def _address(value: str) -> str:
    Address.parse(value)
    return value


_FORMAT_SETTINGS = [name for declared in DECLARED.values() for name in declared.settings]


class SourceConfig(Settings):
    """One producer of change events: its format, its landing and its tables."""

    format: Annotated[str, BeforeValidator(_known_format)]
    landing: LandingConfig
    database: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None,
        repr=False,
        description="Its database, postgresql://…, which `verify` compares its tables with.",
    )
    lag_slo_ms: int | None = Field(default=None, ge=0)
    on_quarantine: Literal["publish", "block"] = "publish"
    late_days: int = Field(default=3, ge=0, le=366)
    position_reset: Literal["auto"] | tuple[datetime, ...] = "auto"
    add_fields: tuple[str, ...] = Field(
        default=(), description="`add.fields` of Debezium's transform, where it gives new names."
    )
    add_fields_prefix: str = "__"
    add_headers: tuple[str, ...] = Field(
        default=(), description="`add.headers` of the transform, where it gives new names."
    )
    add_headers_prefix: str = "__"
    table_from_topic: str | None = Field(
        default=None,
        description="Regular expression of whole topic names, with groups `schema` or `db`, and "
        "`table`: for flattened records that do not say their table.",
    )
    missing_columns: Literal["null", "keep"] = "null"
    on_type_change: Literal["string", "keep", "fail"] = Field(
        default="string",
        description="What becomes of a column whose type changed and can't be widened (R5).",
    )
    on_resnapshot: Literal["warn", "replace"] = Field(
        default="warn",
        description="`replace`: rows that a later snapshot of their table did not read go (R7).",
    )
    resnapshot_remove_percent: float = Field(
        default=10.0,
        ge=0,
        le=100,
        description="`on_resnapshot: replace` removes at most this share of a table's rows.",
    )
    on_drop: Literal["keep", "empty"] = Field(
        default="keep",
        description="`empty`: rows go when a statement drops or truncates their table (D21).",
    )
    unavailable_value: str = Field(default=PLACEHOLDER, min_length=1)
    keep_days: int = Field(default=400, ge=1)
    landing_keep_days: int | None = Field(
        default=None,
        ge=1,
        description="Landed records that are older are removed; unset keeps them for good.",
    )
    quarantine_error_percent: float = Field(
        default=5.0,
        ge=0,
        le=100,
        description="More of a day's landed records in quarantine is an error; fewer, or one "
        "record alone, a warning.",
    )
    quarantine_error_count: int | None = Field(
        default=None,
        ge=0,
        description="More records of a day in quarantine are an error, whatever their share.",
    )
    fresh_within_hours: float | None = Field(
        default=26, gt=0, description="A source whose newest data is older is not fresh."
    )
    max_silence_minutes: int | None = Field(
        default=None,
        ge=1,
        description="A source without event or heartbeat for so long is taken for dead.",
    )
    max_record_mb: int = Field(
        default=64,
        ge=1,
        le=1024,
        description="A record, or a landed line, of more bytes is quarantined unread.",
    )
    max_columns: int = Field(
        default=5000, ge=1, description="A record whose row has more columns is quarantined."
    )
    max_kinds: int = Field(
        default=5000,
        ge=1,
        description="At most so many kinds of records of a day are read, a kind being a table with "
        "a schema and a form of its key, and so many ids asked of a registry in a run.",
    )
    protect: Literal["check", "strict"] = Field(
        default="check",
        description="`strict`: a day without a column that `exclude` or `hash` names is not made.",
    )
    samples: bool = Field(
        default=True, description="False: no value of a row or message is shown in Dagster."
    )
    owners: Owners = ()
    tags: Tags = Field(default_factory=dict)
    has_databases: bool = Field(
        default=False,
        alias="tables",
        exclude=True,
        description="The entries of `tables` have three parts, the first of them a database.",
    )
    tables: Annotated[dict[str, TableConfig], BeforeValidator(empty_mapping)] = Field(
        default_factory=dict
    )
    table_patterns: dict[str, TableConfig | None] = Field(
        default_factory=dict,
        alias="tables",
        exclude=True,
        description="The entries of `tables` that are patterns or `false`, here None.",
    )

    @field_validator("has_databases", mode="before")
    @classmethod
    def _three_parts(cls, value: Any, info: ValidationInfo) -> bool:
        if not isinstance(value, Mapping):
            return False
        by_parts = {parts_in(str(name)): str(name) for name in value}
        if 3 not in by_parts:
            return False
        if 2 in by_parts:
            raise ValueError(
                f"{by_parts[2]!r} has two parts and {by_parts[3]!r} has three. A source that reads "
                "several databases names all its tables in three: <database>.<schema>.<table>"
            )
        declared = DECLARED.get(info.data.get("format", ""))
        if declared is not None and not declared.has_databases:
            able = _named(other for other in DECLARED.values() if other.has_databases)
            raise ValueError(
                f"{by_parts[3]!r} has three parts, which are for the formats "
                f"{able}; format is {declared.name}. Write <namespace>.<table>"
            )
        return True

    @field_validator("tables", mode="before")
    @classmethod
    def _defaults(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            own = {
                name: empty_mapping(table)
                for name, table in value.items()
                if not _is_pattern(name, table)
            }
            return own | _into_tables(value, own)
        return value

    @field_validator("table_patterns", mode="before")
    @classmethod
    def _patterns(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                name: None if table is False else empty_mapping(table)
                for name, table in value.items()
                if _is_pattern(name, table)
            }
        return {}  # a fault that `tables` reports

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_format(cls, values: Any) -> Any:
        name = values.get("format") if isinstance(values, dict) else None
        declared = DECLARED.get(name) if isinstance(name, str) else None
        return values if declared is None else {**declared.defaults, **values}

    @field_validator("missing_columns", mode="before")
    @classmethod
    def _yaml_null(cls, value: Any) -> Any:
        return "null" if value is None else value

    @field_validator(*_FORMAT_SETTINGS)
    @classmethod
    def _settings_of_format(cls, value: Any, info: ValidationInfo) -> Any:
        setting, declared = info.field_name, DECLARED.get(info.data.get("format", ""))
        if declared is not None and setting not in declared.settings:
            able = _named(other for other in DECLARED.values() if setting in other.settings)
            raise ValueError(f"is for format {able}; format is {declared.name}")
        return value

    @field_validator("add_fields", "add_headers")
    @classmethod
    def _added(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if not _ADDED.fullmatch(one):
                raise ValueError(
                    f"got {one!r}; expected <field>, <struct>.<field> or <field>:<name>"
                )
        names = [one.rpartition(":")[2].replace(".", "_").lower() for one in value]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{twice[0]!r} is named twice; names that differ in case are one")
        return value

    @field_validator("table_from_topic")
    @classmethod
    def _topic_pattern(cls, value: str | None) -> str | None:
        if value is not None:
            topic_groups(value)
        return value

    @field_validator("unavailable_value")
    @classmethod
    def _decoded(cls, value: str) -> str:
        """`hex:…` is a text's bytes, as Debezium's own setting has it."""
        if not value.startswith("hex:"):
            return value
        try:
            text = bytes.fromhex(value.removeprefix("hex:")).decode("utf-8")
        except ValueError:
            text = ""
        if not text:
            raise ValueError(
                f"got {value!r}; expected hex: and the bytes of a text in UTF-8, two digits each"
            )
        return text

    @field_validator("position_reset")
    @classmethod
    def _instants(
        cls, value: Literal["auto"] | tuple[datetime, ...]
    ) -> Literal["auto"] | tuple[datetime, ...]:
        if value == "auto":
            return "auto"
        for instant in value:
            if instant.tzinfo is None:
                raise ValueError(f"got {instant.isoformat()}; write the zone, as in …T12:30:00Z")
        return tuple(sorted(value))

    @field_validator("tables")
    @classmethod
    def _names(cls, value: dict[str, TableConfig]) -> dict[str, TableConfig]:
        seen: dict[TableName, str] = {}
        for text in value:
            name = TableName.configured(text)
            if name in seen:
                raise ValueError(
                    f"{seen[name]!r} and {text!r} are two spellings of one table, {name}; keep one"
                )
            seen[name] = text
        return {str(TableName.configured(text)): table for text, table in value.items()}

    @field_validator("table_patterns")
    @classmethod
    def _pattern_names(
        cls, value: dict[str, TableConfig | None], info: ValidationInfo
    ) -> dict[str, TableConfig | None]:
        for text, table in value.items():
            if TablePattern.parse(text).is_exact:
                name = str(TableName.configured(text))
                if name in info.data.get("tables", ()):
                    raise ValueError(
                        f"{name!r} and {text!r} are two spellings of one table, {name}; keep one"
                    )
            if table is not None and table.is_protected:
                raise ValueError(
                    f"{text}: exclude and hash protect a table from its first record on, and a "
                    "pattern adopts a table after that. List the table by its own name"
                )
        return value

    @model_validator(mode="after")
    def _known_marks(self) -> SourceConfig:
        for name in ("add_fields", "add_headers"):
            if not getattr(self, name) and not getattr(self, f"{name}_prefix"):
                raise ValueError(
                    f"{name}_prefix: without a prefix nothing tells the added fields from the "
                    f"others; list them in {name}"
                )
        return self

    @model_validator(mode="after")
    def _added_keys(self) -> SourceConfig:
        for text, entry in self.table_patterns.items():
            if entry is None or entry.into is None:
                continue
            table = self.tables.get(str(TableName.configured(entry.into)))
            key = table.key if table is not None else None
            if isinstance(key, tuple) and (lacking := sorted({*entry.add} - {*key})):
                raise ValueError(
                    f"tables.{text}.add: {', '.join(lacking)} is no column of "
                    f"tables.{entry.into}.key; name it there, too"
                )
            for column, value in entry.add.items():
                for number in re.findall(r"\{(\d+)\}", value):
                    if not 1 <= int(number) <= sum(wildcards_in_parts(text)):
                        raise ValueError(
                            f"tables.{text}.add.{column}: got {{{number}}}; the name has "
                            f"{sum(wildcards_in_parts(text))} wildcards"
                        )
        return self

    @model_validator(mode="after")
    def _whole_row_keys(self) -> SourceConfig:
        has_row_keys = DECLARED[self.format].has_row_keys
        for text, table in (*self.tables.items(), *self.table_patterns.items()):
            if table is not None and table.key == "row" and not has_row_keys:
                raise ValueError(
                    f"tables.{text}.key: got row, which needs Debezium's `before` (replica "
                    f"identity FULL); format is {self.format}. Name key columns, or none"
                )
        return self

    @property
    def resets(self) -> tuple[datetime, ...]:
        """The configured instants at which a new server took over."""
        return () if self.position_reset == "auto" else self.position_reset

    @property
    def finds_epochs(self) -> bool:
        """True where the takeover by a new server is detected (FORMATS O11)."""
        return self.position_reset == "auto"

    @property
    def topic_groups(self) -> dict[str, int]:
        """The numbers of the groups of `table_from_topic`, by their names."""
        return {} if self.table_from_topic is None else topic_groups(self.table_from_topic)

    @property
    def format_settings(self) -> dict[str, Any]:
        """The settings that only this format has, by name."""
        return {name: getattr(self, name) for name in DECLARED[self.format].settings}

    @property
    def adopts_tables(self) -> bool:
        """True where a pattern adopts tables."""
        return any(table is not None and not table.into for table in self.table_patterns.values())

    @property
    def has_leaves(self) -> bool:
        """True where tables go into others (R8)."""
        return any(table is not None and table.into for table in self.table_patterns.values())

    def leaves_of(self, table: str) -> dict[str, TableConfig]:
        """The entries whose tables go into a table, by their names."""
        return {
            text: entry
            for text, entry in self.table_patterns.items()
            if entry is not None and entry.into is not None
            if str(TableName.configured(entry.into)) == table
        }

    @property
    def patterns_in_order(self) -> list[str]:
        """The entries of `table_patterns`, those first that win (:meth:`pattern_of`)."""
        parsed = {text: TablePattern.parse(text) for text in self.table_patterns}
        last_first = [*parsed][::-1]
        return sorted(
            last_first, key=lambda t: (parsed[t].is_exact, parsed[t].literals), reverse=True
        )

    def pattern_of(self, table: str) -> str | None:
        """The entry of `table_patterns` that applies to a table; None where nothing matches.

        That is its own name, else the last matching pattern with the most literal characters.
        """
        try:
            name = TableName.parse(table)
        except ValueError:
            return None
        listed = self.patterns_in_order
        return next((text for text in listed if TablePattern.parse(text).matches(name)), None)

    def knows(self, table: str) -> bool:
        """Whether `tables` lists a table, or a pattern adopts or excludes it."""
        return table in self.tables or self.pattern_of(table) is not None

    @property
    def derived(self) -> list[tuple[str, str]]:
        """The tables that others are derived from, each with the kind of that one."""
        return [(name, kind) for name, table in self.tables.items() for kind in table.derived]

    @property
    def emptied_by_statements(self) -> list[str]:
        """The tables whose rows are removed when a statement drops or truncates them."""
        return sorted(
            name
            for name, table in self.tables.items()
            if (table.on_drop or self.on_drop) == "empty"
        )

    @property
    def is_protected(self) -> bool:
        """True where a column of some table is excluded or hashed."""
        return any(table.is_protected for table in self.tables.values())

    @property
    def shows_values(self) -> bool:
        """Whether messages and rows may be shown: not with `samples: false`.

        Nor with a sensitive, excluded or hashed column: a message, a key or an error of Java may
        contain its values. Checked where a value is read, not where it is shown.
        """
        return self.samples and not any(
            table.sensitive or table.is_protected for table in self.tables.values()
        )

    def shows_column(self, table: str, column: str) -> bool:
        """Whether values of a column of a table may be shown, by its name in the lake."""
        settings = self.tables[table].in_lake if table in self.tables else None
        hidden = settings is not None and column in {
            *(*settings.sensitive, *settings.exclude, *settings.hash)
        }
        return self.samples and not hidden
