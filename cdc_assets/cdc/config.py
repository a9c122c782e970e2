"""cdc.yaml as frozen models.

One file says where the lake is, which sources there are and how their tables are keyed.
A wrong file gives one readable line per fault, each with its path inside the file.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.names import TableName, TablePattern, is_table_pattern, parts_in
from cdc_assets.cdc.places import Places
from cdc_assets.cdc.redaction import secrets_in
from cdc_assets.cdc.strict_yaml import YamlPath, kind_of, path_of, read_yaml, written_of

PLACEHOLDER = "__debezium_unavailable_value"
RESERVED_PREFIX = "_cdc_"
_SHORTEST_SECRET = 4  # shorter ones would be found in words that are none

_COLUMN_TYPE = re.compile(
    r"(?:boolean|int|bigint|float|double|string|binary|date"
    r"|timestamp(?:_ntz)?(?:\(\s*(?:s|ms|us|ns)\s*\))?"
    r"|decimal\(\s*([1-9]|[12]\d|3[0-8])\s*,\s*\d+\s*\)"
    r"|(?:array<|map<\s*string\s*,)(?P<element>.+)>)$"
)


def _is_column_type(kind: str) -> bool:
    """True for the scalar types, and for arrays and maps of such."""
    found = _COLUMN_TYPE.match(kind.strip())
    element = found["element"] if found else None
    return bool(found) and (not element or _is_column_type(element))


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """pydantic would take `yes` for 1."""
        kinds = {"int": int, "float": float, "int | None": int, "float | None": float}
        kind = kinds.get(str(cls.__annotations__.get(info.field_name or "")))
        if kind is not None and isinstance(value, bool):
            raise PydanticCustomError(f"{kind.__name__}_type", "no number")
        return value


def _empty_mapping(value: Any) -> Any:
    """``key:`` with nothing behind it means the defaults."""
    return {} if value is None else value


_OWNER = re.compile(r"team:[A-Za-z0-9_]+|[^@\s]+@[^@\s]+\.[^@\s]+")
_TAG_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,63}(/[A-Za-z0-9_.\-]{1,63})?")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.\-]{0,63}")


def _owners(value: tuple[str, ...]) -> tuple[str, ...]:
    for owner in value:
        if not _OWNER.fullmatch(owner):
            raise ValueError(f"got {owner!r}; expected team:<name> or an e-mail address")
    return value


def _tags(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _TAG_NAME.fullmatch(name) or not _TAG_VALUE.fullmatch(text):
            raise ValueError(
                f"got {name}: {text!r}; names and values are at most 63 letters, digits, _ . -"
            )
    return value


Owners = Annotated[tuple[str, ...], AfterValidator(_owners)]
Tags = Annotated[dict[str, str], AfterValidator(_tags), BeforeValidator(_empty_mapping)]


class TableConfig(_Model):
    """How one table is read and shown; every setting has a default."""

    key: tuple[str, ...] | Literal["none", "row"] | None = Field(
        default=None,
        description="Key columns; `none` appends, `row` takes the whole old row (FORMATS O14); "
        "unset takes the message key (D5).",
    )
    replica_identity: Literal["unknown", "default", "nothing", "index", "full"] = "unknown"
    on_drop: Literal["keep", "empty"] | None = Field(
        default=None, description="As the source's; unset takes that."
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="Column types; they win over those of messages, by a closed list (R3).",
    )
    start_date: date | None = None
    bucket: int | None = Field(default=None, ge=1, le=10_000)
    rename: dict[str, str] = Field(
        default_factory=dict, description="Own columns that must have another name in the lake."
    )
    description: str | None = None
    owners: Owners = Field(default=(), description="In addition to the source's.")
    tags: Tags = Field(default_factory=dict, description="In addition to the source's.")
    sensitive: tuple[str, ...] = Field(
        default=(), description="Columns whose values are in no sample; the lake has them."
    )
    exclude: tuple[str, ...] = Field(
        default=(), description="Columns that stay in `landing`: no other table has them."
    )
    hash: tuple[str, ...] = Field(
        default=(), description="Columns whose values leave `landing` as a salted SHA-256."
    )

    @field_validator("key", mode="before")
    @classmethod
    def _key(cls, value: Any) -> Any:
        if value is None or value in ("none", "row"):
            return value
        if not isinstance(value, list) or not value:
            raise PydanticCustomError("key_type", "no key")
        for index, name in enumerate(value):
            if not isinstance(name, str):
                raise PydanticCustomError("key_column", "no text", {"index": index})
            if not name:
                raise ValueError(f"got {value!r}; every key column is a non-empty text")
        if len(set(value)) != len(value):
            raise ValueError(f"got {value!r}; a key column is named twice")
        return tuple(value)

    @field_validator("columns")
    @classmethod
    def _columns(cls, value: dict[str, str]) -> dict[str, str]:
        lowered = {name: kind.strip().lower() for name, kind in value.items()}
        for name, kind in lowered.items():
            if not _is_column_type(kind):
                raise ValueError(
                    f"{name}: got type {kind!r}; expected one of boolean, int, bigint, float, "
                    "double, decimal(p,s), string, binary, date, timestamp, timestamp_ntz, "
                    "array<…>, map<string,…>"
                )
        return lowered

    @field_validator("rename")
    @classmethod
    def _rename(cls, value: dict[str, str]) -> dict[str, str]:
        for name, to in value.items():
            if to.startswith(RESERVED_PREFIX):
                raise ValueError(f"{name}: {to!r} starts with {RESERVED_PREFIX}, which is taken")
        if len(set(value.values())) != len(value):
            raise ValueError("two columns get the same name")
        return value

    @model_validator(mode="after")
    def _protected(self) -> TableConfig:
        if both := sorted({*self.exclude} & {*self.hash}):
            raise ValueError(f"exclude and hash both name {', '.join(both)}; keep one")
        if isinstance(self.key, tuple) and (gone := sorted({*self.exclude} & {*self.key})):
            raise ValueError(
                f"exclude names {', '.join(gone)}, a column of the key; name it in hash instead"
            )
        return self

    @property
    def is_protected(self) -> bool:
        """True where a column is excluded or hashed."""
        return bool(self.exclude or self.hash)

    @property
    def lake_columns(self) -> dict[str, str]:
        """`columns` as the lake has them: a hash is a text."""
        kept = {name: kind for name, kind in self.columns.items() if name not in self.exclude}
        return {name: "string" if name in self.hash else kind for name, kind in kept.items()}


class KafkaConfig(_Model):
    """Where a source's topics are, and how Kafka is spoken to.

    `options` are those of Kafka's own clients with `kafka.` before their names, as Spark takes
    them: `kafka.security.protocol`, `kafka.sasl.jaas.config` … They may hold secrets and are
    never shown.
    """

    bootstrap_servers: str = Field(min_length=1)
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = Field(
        default=None, description="A regular expression that a topic's whole name matches."
    )
    options: Annotated[dict[str, str], BeforeValidator(_empty_mapping)] = Field(
        default_factory=dict, repr=False
    )

    @field_validator("options", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(name): _conf_text(text) for name, text in value.items()}
        return value

    @field_validator("options")
    @classmethod
    def _options(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not name.startswith("kafka."):
                raise ValueError(
                    f"{name}: write it as kafka.{name}, an option of Kafka's own consumer"
                )
            if name in _OWN_KAFKA_OPTIONS:
                raise ValueError(f"{name}: {_OWN_KAFKA_OPTIONS[name]}")
        return value

    @field_validator("topic_pattern")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(
                f"got {value!r}, which is not a regular expression: {error}"
            ) from error
        return value

    @model_validator(mode="after")
    def _one_way(self) -> KafkaConfig:
        if bool(self.topics) == bool(self.topic_pattern):
            got = "both" if self.topics else "neither"
            raise ValueError(f"got {got} of topics and topic_pattern; name one of them")
        if len(set(self.topics)) != len(self.topics):
            raise ValueError("topics: a topic is named twice")
        return self


# What the landing itself decides; Spark refuses most of them, too.
_OWN_KAFKA_OPTIONS = {
    "kafka.bootstrap.servers": "it is bootstrap_servers, beside options",
    "kafka.isolation.level": "records of open or aborted transactions are never read",
    "kafka.auto.offset.reset": "each day's offsets are the landing's own",
    "kafka.enable.auto.commit": "each day's offsets are the landing's own",
    "kafka.key.deserializer": "bytes land as they came",
    "kafka.value.deserializer": "bytes land as they came",
    "kafka.interceptor.classes": "bytes land as they came",
}


class RegistryConfig(_Model):
    """The schema registry that records were written with: its address, or its saved answers.

    `ca` is a file of the certificates that are trusted, in the place of the system's. It and the
    login belong to `url`.
    """

    url: str | None = Field(default=None, pattern=r"^https?://[^/@]+(/[^@]*)?$")
    files: str | None = Field(default=None, min_length=1)
    username: str | None = Field(default=None, min_length=1)
    password: str | None = Field(default=None, min_length=1, repr=False)
    token: str | None = Field(
        default=None, min_length=1, repr=False, description="Sent as a bearer token."
    )
    ca: str | None = None

    @property
    def place(self) -> str:
        """The address or the folder, which tells one registry from another."""
        return self.url or self.files or ""

    @field_validator("files")
    @classmethod
    def _local(cls, value: str | None) -> str | None:
        if value is not None and "://" in value and not value.startswith("file:"):
            raise ValueError(f"got {value!r}; expected a folder of this machine")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> RegistryConfig:
        if (self.url is None) == (self.files is None):
            got = "neither" if self.url is None else "both"
            raise ValueError(f"got {got} of url and files; name one of them")
        if self.files is not None:
            for name in ("username", "password", "token", "ca"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name}: it belongs to url; files need none")
        return self

    @model_validator(mode="after")
    def _one_login(self) -> RegistryConfig:
        if self.token is not None and self.username is not None:
            raise ValueError("got both of username and token; name one of them")
        if self.password is not None and self.username is None:
            raise ValueError("password: it needs a username beside it")
        return self


class LandingConfig(_Model):
    """Where a source's records come from: landed files, or Kafka.

    With a `registry` they are decoded by its schemas.
    """

    files: str | None = None
    kafka: KafkaConfig | None = None
    registry: RegistryConfig | None = None

    @model_validator(mode="after")
    def _one_way(self) -> LandingConfig:
        if (self.files is None) == (self.kafka is None):
            got = "neither" if self.files is None else "both"
            raise ValueError(f"got {got} of files and kafka; name one of them")
        return self


def _is_pattern(name: Any, table: Any) -> bool:
    """True for an entry of `tables` that is not one table with its settings."""
    return table is False or is_table_pattern(str(name))


# The formats of connectors that read several databases with schemas (D4).
WITH_DATABASES = ("debezium", "debezium-flat")
# The settings of debezium-flat.
_OF_FLAT = (
    "add_fields", "add_fields_prefix", "add_headers", "add_headers_prefix", "table_from_topic"
)  # fmt: skip
_ADDED = re.compile(r"(\w+\.)?\w+(:[^\s:,]+)?")
# What Java's regular expressions and Python's read alike: the pattern is checked by one and
# matched by the other.
_ALIKE = re.compile(
    r"""( \\[dDwWsSbB] | \\[^A-Za-z0-9]                      # classes, quoted characters
    | \((?!\?) | \(\?(:|=|!|<=|<!|<[A-Za-z][A-Za-z0-9]*>) | \)  # groups
    | \[\^?(\\[dDwWsS]|\\[^A-Za-z0-9]|[^]\[\\&])+\]
    | \{\d+(,\d*)?\} | [^]\\()\[{}]
    )*""",
    re.VERBOSE,
)


def _topic_groups(pattern: str) -> dict[str, int]:
    """The numbers of a pattern's named groups.

    Raises:
        ValueError: it is no pattern of tables.
    """
    alike = _ALIKE.match(pattern)
    if alike is None or alike.end() < len(pattern):
        rest = pattern[alike.end() if alike else 0 :]
        raise ValueError(
            f"got {pattern!r}, whose part {rest!r} is not understood; use groups, named as in "
            "(?<table>…), character classes and quantifiers"
        )
    try:
        groups = dict(re.compile(re.sub(r"(?<!\\)\(\?<(?=[A-Za-z])", "(?P<", pattern)).groupindex)
    except re.error as error:
        raise ValueError(f"got {pattern!r}, which is not a regular expression: {error}") from error
    if "table" not in groups or not groups.keys() & {"schema", "db"}:
        raise ValueError(
            f"got {pattern!r}; expected groups (?<schema>…) or (?<db>…), and (?<table>…)"
        )
    if unknown := groups.keys() - {"schema", "db", "table"}:
        raise ValueError(
            f"got {pattern!r}, with a group {min(unknown)!r}; groups are schema, db and table"
        )
    return groups


class SourceConfig(_Model):
    """One producer of change events: its format, its landing and its tables."""

    format: Literal[
        "debezium", "debezium-flat", "debezium-mongodb", "debezium-cassandra", "lindorm",
        "dataworks", "canal", "maxwell", "ogg",
    ]  # fmt: skip
    landing: LandingConfig
    lag_slo_ms: int | None = Field(default=None, ge=0)
    on_quarantine: Literal["publish", "block"] = "publish"
    late_days: int = Field(default=3, ge=0, le=366)
    position_reset: Literal["auto"] | tuple[datetime, ...] = "auto"
    add_fields: tuple[str, ...] = Field(
        default=(), description="`add.fields` of debezium-flat, where it gives new names."
    )
    add_fields_prefix: str = "__"
    add_headers: tuple[str, ...] = Field(
        default=(), description="`add.headers` of debezium-flat, where it gives new names."
    )
    add_headers_prefix: str = "__"
    table_from_topic: str | None = Field(
        default=None,
        description="Regular expression of whole topic names, with groups `schema` or `db`, and "
        "`table`: of debezium-flat records that do not say their table.",
    )
    missing_columns: Literal["null", "keep"] = "null"
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
    tables: Annotated[dict[str, TableConfig], BeforeValidator(_empty_mapping)] = Field(
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
        of_parts = {parts_in(str(name)): str(name) for name in value}
        if 3 not in of_parts:
            return False
        if 2 in of_parts:
            raise ValueError(
                f"{of_parts[2]!r} has two parts and {of_parts[3]!r} has three. A source that reads "
                "several databases names all its tables in three: <database>.<schema>.<table>"
            )
        format = info.data.get("format", "debezium")
        if format not in WITH_DATABASES:
            raise ValueError(
                f"{of_parts[3]!r} has three parts, which are for the formats "
                f"{' and '.join(WITH_DATABASES)}; format is {format}. Write <namespace>.<table>"
            )
        return True

    @field_validator("tables", mode="before")
    @classmethod
    def _defaults(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                name: _empty_mapping(table)
                for name, table in value.items()
                if not _is_pattern(name, table)
            }
        return value

    @field_validator("table_patterns", mode="before")
    @classmethod
    def _patterns(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                name: None if table is False else _empty_mapping(table)
                for name, table in value.items()
                if _is_pattern(name, table)
            }
        return {}  # a fault of `tables`

    @model_validator(mode="before")
    @classmethod
    def _partial_rows(cls, values: Any) -> Any:
        """Cassandra's events have the columns that were written, and no others."""
        if isinstance(values, dict) and values.get("format") == "debezium-cassandra":
            return {"missing_columns": "keep", **values}
        return values

    @field_validator("missing_columns", mode="before")
    @classmethod
    def _yaml_null(cls, value: Any) -> Any:
        return "null" if value is None else value

    @field_validator(*_OF_FLAT)
    @classmethod
    def _of_flat(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("format", "debezium-flat") != "debezium-flat":
            raise ValueError(f"is for format debezium-flat; format is {info.data['format']}")
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
            _topic_groups(value)
        return value

    @field_validator("unavailable_value")
    @classmethod
    def _of_hex(cls, value: str) -> str:
        """`hex:…` as Debezium's own setting has it, of a text's bytes."""
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
    def _whole_row_keys(self) -> SourceConfig:
        for text, table in (*self.tables.items(), *self.table_patterns.items()):
            if table is not None and table.key == "row" and self.format != "debezium":
                raise ValueError(
                    f"tables.{text}.key: got row, which needs Debezium's `before` (replica "
                    f"identity FULL); format is {self.format}. Name key columns, or none"
                )
        return self

    @property
    def resets(self) -> tuple[datetime, ...]:
        """The instants at which a new server took over, where they are named."""
        return () if self.position_reset == "auto" else self.position_reset

    @property
    def finds_epochs(self) -> bool:
        """True where it is found when a new server takes over (FORMATS O11)."""
        return self.position_reset == "auto"

    @property
    def topic_groups(self) -> dict[str, int]:
        """The numbers of the groups of `table_from_topic`, by their names."""
        return {} if self.table_from_topic is None else _topic_groups(self.table_from_topic)

    @property
    def flat_rules(self) -> dict[str, Any] | None:
        """The settings of debezium-flat; None of other formats."""
        if self.format != "debezium-flat":
            return None
        return {name: getattr(self, name) for name in _OF_FLAT}

    @property
    def adopts_tables(self) -> bool:
        """True where a pattern adopts tables."""
        return any(table is not None for table in self.table_patterns.values())

    def pattern_of(self, table: str) -> str | None:
        """The entry of `table_patterns` that decides on a table.

        That is its own name, else the matching pattern with the most literal characters, of
        several such ones the last. None where nothing matches, or the name is none of a table.
        """
        try:
            name = TableName.parse(table)
        except ValueError:
            return None
        parsed = {text: TablePattern.parse(text) for text in self.table_patterns}
        matching = [text for text, pattern in parsed.items() if pattern.matches(name)]
        return max(
            reversed(matching),  # max takes the first of equals
            key=lambda text: (parsed[text].is_exact, parsed[text].literals),
            default=None,
        )

    def knows(self, table: str) -> bool:
        """Whether `tables` lists a table, or a pattern adopts or excludes it."""
        return table in self.tables or self.pattern_of(table) is not None

    @property
    def emptied_by_statements(self) -> list[str]:
        """The tables whose rows go where a statement drops or truncates them."""
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
        """Whether messages and rows may be shown: with `samples: false` none are.

        Nor where a column is sensitive, excluded or hashed: nothing says what a message, a key or
        an error of Java has of it. Asked where a value is taken, not where it is shown.
        """
        return self.samples and not any(
            table.sensitive or table.is_protected for table in self.tables.values()
        )

    def shows_column(self, table: str, column: str) -> bool:
        """Whether values of one column of a table may be shown."""
        settings = self.tables.get(table)
        hidden = settings is not None and column in {
            *(*settings.sensitive, *settings.exclude, *settings.hash)
        }
        return self.samples and not hidden


FORMATS: tuple[str, ...] = get_args(SourceConfig.model_fields["format"].annotation)


class LakeConfig(_Model):
    """Where the tables live."""

    warehouse: str = "data/warehouse"
    catalog: Annotated[dict[str, str], BeforeValidator(_empty_mapping)] = Field(
        default_factory=dict
    )
    namespaces: Literal["nested", "flat"] = "nested"

    @property
    def is_named(self) -> bool:
        """True for a warehouse that a REST catalog knows by its name."""
        return self._kind == "rest" and not re.search(r"[/\\:]", self.warehouse)

    @property
    def is_flat(self) -> bool:
        """True where state tables are in one namespace level."""
        return self.namespaces == "flat"

    def places(self, sources: Iterable[str]) -> Places:
        """The places of tables, of which none but the sources' own tables have one yet."""
        # These catalogs keep names in lower case.
        return Places(sources, self.is_flat, folds_case=self._kind in ("glue", "hive"))

    @property
    def _kind(self) -> str:
        kind = self.catalog.get("type") or self.catalog.get("catalog-impl", "").rpartition(".")[2]
        return kind.lower().removesuffix("catalog")

    @property
    def is_local(self) -> bool:
        """True for a warehouse in a folder of this machine."""
        is_url = "://" in self.warehouse and not self.warehouse.startswith("file:")
        return not (is_url or self.is_named)

    @property
    def folder(self) -> Path:
        """The folder of a local warehouse."""
        return local_path(self.warehouse)

    @property
    def sqlite_file(self) -> Path:
        """The embedded catalog, which is in the warehouse itself."""
        return self.folder / "catalog.db"

    @model_validator(mode="after")
    def _catalog_for_remote(self) -> LakeConfig:
        if not self.is_local and not self.catalog:
            raise ValueError(
                f"warehouse {self.warehouse}: the embedded SQLite catalog serves a warehouse on "
                "this machine only; name a catalog in lake.catalog (type: rest | glue | hive | "
                "jdbc, with its uri)"
            )
        return self


def _cron(value: str) -> str:
    fields = value.split()
    if len(fields) != 5 or any(not re.fullmatch(r"[\dA-Za-z*/,\-]+", f) for f in fields):
        raise ValueError(f'got {value!r}; expected five cron fields such as "*/30 * * * *"')
    return value


Cron = Annotated[str, AfterValidator(_cron)]


class AutomationConfig(_Model):
    """What Dagster starts by itself; each can be switched in its UI, too."""

    daily_at: str | None = Field(
        default="01:00", description="When the days that have ended are made; null: never."
    )
    catch_up_days: int = Field(
        default=30,
        ge=1,
        description="At most so many missing days a run of the daily schedule makes.",
    )
    open_day: Cron | None = Field(
        default=None, description="A cron expression: when the open day is made again."
    )
    new_files: bool = Field(
        default=True, description="Make days whose landed files are new or changed."
    )
    conditions: bool = Field(
        default=False,
        description="Dagster's declarative automation: ended days that are missing, and what "
        "stands behind a day that was made again, also by hand.",
    )

    @field_validator("daily_at", mode="before")
    @classmethod
    def _time(cls, value: Any) -> Any:
        # YAML reads 01:00 without quotes as a number of minutes.
        is_minutes = isinstance(value, int) and not isinstance(value, bool)
        if is_minutes and 0 <= value < 24 * 60:
            return f"{value // 60:02}:{value % 60:02}"
        if value is not None and not re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", str(value)):
            raise PydanticCustomError("time_of_day", "no time")
        return value

    @property
    def daily_cron(self) -> str:
        """`daily_at` as a cron expression."""
        hour, _, minute = (self.daily_at or "01:00").partition(":")
        return f"{int(minute)} {int(hour)} * * *"


class MaintenanceConfig(_Model):
    """When the lake is maintained, and how old is what it removes."""

    cron: Cron | None = Field(
        default=None, description="When the schedule runs, in `timezone`; unset leaves it off."
    )
    snapshot_hours: int = Field(
        default=24, ge=1, description="Younger commits stay: someone may be reading them."
    )
    # Iceberg refuses less than a day: a run that is under way writes before it commits.
    orphan_hours: int = Field(
        default=72, ge=25, description="Younger files stay that no commit knows (yet)."
    )


_SALT = 16  # characters, at least


def _http(value: str | None) -> str | None:
    # The address may hold a secret: it is not repeated.
    if value is not None and not re.match(r"https?://[^\s/]", value):
        raise ValueError("not a web address; expected http://… or https://…")
    return value


HttpUrl = Annotated[str, AfterValidator(_http)]


class WebhookConfig(_Model):
    """Alerts as a JSON document each, sent to an address by POST."""

    url: HttpUrl = Field(repr=False)
    headers: Annotated[dict[str, str], BeforeValidator(_empty_mapping)] = Field(
        default_factory=dict, repr=False
    )


class SlackConfig(_Model):
    """Alerts in a Slack channel, through the extra `slack`."""

    token: str = Field(min_length=1, repr=False, description="A bot's, with `chat:write`.")
    channel: str = Field(min_length=1)
    base_url: HttpUrl | None = Field(
        default=None, description="Where Slack's API is, if not at Slack."
    )


_MAIL = re.compile(r"[^@\s,;<>\"]+@[^@\s,;<>\"]+")


def _mail(value: str) -> str:
    if not _MAIL.fullmatch(value):
        raise ValueError(f"got {value!r}; expected an e-mail address such as data@example.org")
    return value


Mail = Annotated[str, AfterValidator(_mail)]


class EmailConfig(_Model):
    """Alerts by e-mail.

    All alerts go to `to`; owners that are e-mail addresses get those of their sources and tables.
    """

    host: str = Field(min_length=1)
    port: int = Field(default=587, ge=1, le=65535)
    sender: Mail = Field(alias="from")
    to: tuple[Mail, ...] = ()
    user: str | None = Field(default=None, min_length=1)
    password: str | None = Field(default=None, min_length=1, repr=False)
    tls: Literal["starttls", "ssl", "none"] = Field(
        default="starttls", description="`ssl`: from the first byte on, mostly on port 465."
    )

    @model_validator(mode="after")
    def _login(self) -> EmailConfig:
        if (self.user is None) != (self.password is None):
            raise ValueError("got one of user and password; name both or neither")
        if self.password and self.tls == "none":
            raise ValueError("password: tls: none would send it in the clear; use starttls or ssl")
        return self


class AlertsConfig(_Model):
    """The receivers of alerts: failed runs, failed checks and sources without new data."""

    webhook: WebhookConfig | None = None
    slack: SlackConfig | None = None
    email: EmailConfig | None = None
    dagster_url: HttpUrl | None = Field(
        default=None, description="Where Dagster's pages are; alerts link to them."
    )

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of those that are configured."""
        return tuple(n for n in ("webhook", "slack", "email") if getattr(self, n) is not None)


class Config(_Model):
    """The whole of cdc.yaml."""

    lake: Annotated[LakeConfig, BeforeValidator(_empty_mapping)] = LakeConfig()
    spark: Annotated[dict[str, str], BeforeValidator(_empty_mapping)] = Field(default_factory=dict)
    start_date: date
    timezone: str = "UTC"
    automation: Annotated[AutomationConfig, BeforeValidator(_empty_mapping)] = AutomationConfig()
    maintenance: Annotated[MaintenanceConfig, BeforeValidator(_empty_mapping)] = MaintenanceConfig()
    hash_salt: str | None = Field(
        default=None,
        repr=False,
        description="What `hash` puts before a value; a secret, from the environment.",
    )
    alerts: Annotated[AlertsConfig, BeforeValidator(_empty_mapping)] = AlertsConfig()
    sources: dict[str, SourceConfig] = Field(min_length=1)

    @field_validator("spark", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(k): _conf_text(v) for k, v in value.items()}
        return value

    @field_validator("hash_salt")
    @classmethod
    def _salt(cls, value: str | None) -> str | None:
        if value is not None and len(value) < _SALT:
            raise ValueError(f"got {len(value)} characters; expected a secret of {_SALT} or more")
        return value

    @field_validator("timezone")
    @classmethod
    def _zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(
                f"got {value!r}; expected an IANA name such as UTC or Asia/Shanghai"
            ) from error
        return value

    @field_validator("sources")
    @classmethod
    def _source_names(cls, value: dict[str, SourceConfig]) -> dict[str, SourceConfig]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(
                    f"{name!r}: a source's name is letters, digits and _; it names the group, "
                    "the assets and the namespace"
                )
        return value

    @model_validator(mode="after")
    def _salted(self) -> Config:
        for name, source in self.sources.items():
            for text, table in source.tables.items():
                if table.hash and self.hash_salt is None:
                    raise ValueError(
                        f"hash_salt: is missing; sources.{name}.tables.{text}.hash needs it. Write "
                        "hash_salt: ${CDC_HASH_SALT} and set the variable to a secret of "
                        f"{_SALT} or more characters. Keep it: with another one all hashes change"
                    )
        return self

    @model_validator(mode="after")
    def _a_place_each(self) -> Config:
        places = self.lake.places(self.sources)
        for name, source in self.sources.items():
            for table in source.tables:
                if why := places.fault_of(name, table):
                    fault = f"sources.{name}.tables.{table}: {why}"
                    raise ValueError(fault)
                places.take(name, table)
        return self

    @model_validator(mode="after")
    def _somebody_reads_the_mails(self) -> Config:
        """Where e-mail is the only channel, alerts of every source must reach someone."""
        email = self.alerts.email
        if email is None or email.to or self.alerts.channels != ("email",):
            return self
        unread = [name for name in self.sources if not self.mail_owners(name)]
        if unread:
            raise ValueError(
                f"alerts.email.to: is empty, and no owner of {', '.join(unread)} is an e-mail "
                "address; nobody would get the alerts. Name addresses in to, or owners of the "
                "sources"
            )
        return self

    def mail_owners(self, source: str, table: str | None = None) -> tuple[str, ...]:
        """The e-mail addresses among the owners of a source, or of one of its tables."""
        found = [*self.sources[source].owners]
        if table is not None:
            found += self.sources[source].tables[table].owners
        return tuple(dict.fromkeys(owner for owner in found if "@" in owner))

    def start_of(self, source: str, table: str) -> date:
        """The first day of a table: the project's, or the table's own where it is later."""
        own = self.sources[source].tables[table].start_date
        return max(self.start_date, own) if own else self.start_date

    def hint_of_pattern(self, table: str, sources: Iterable[str]) -> str:
        """What a pattern does with a table that is not configured, as a text to follow another."""
        for name in sources:
            own = table.removeprefix(f"{name}.") if table.count(".") > 1 else table
            try:
                pattern = self.source(name).pattern_of(own)
            except ConfigError:  # no such source
                continue
            if pattern is None:
                continue
            place = f". The entry {pattern} of sources.{name}.tables"
            if self.sources[name].table_patterns[pattern] is None:
                return f"{place} is false and excludes {own}"
            return (
                f"{place} adopts {own} once {name}.changes has events of it: "
                "make a day without --table first"
            )
        return ""

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets that are in it, which nothing that is shown or kept may hold."""
        return frozenset(found for found in self._secrets() if len(found) >= _SHORTEST_SECRET)

    def _secrets(self) -> Iterator[str]:
        yield from secrets_in({**self.spark, **self.lake.catalog})
        yield self.hash_salt or ""
        for source in self.sources.values():
            if source.landing.kafka is not None:
                yield from secrets_in(source.landing.kafka.options)
            if (registry := source.landing.registry) is not None:
                yield from (registry.password or "", registry.token or "")
        alerts = self.alerts
        if alerts.webhook is not None:
            yield alerts.webhook.url
            # Receivers of chats have the secret in the path.
            yield from (part for part in urlsplit(alerts.webhook.url).path.split("/") if part[7:])
            yield from secrets_in({"url": alerts.webhook.url})
            yield from alerts.webhook.headers.values()
        if alerts.slack is not None:
            yield alerts.slack.token
        if alerts.email is not None:
            yield alerts.email.password or ""

    def today(self) -> date:
        """The open day in the project's time zone."""
        return datetime.now(ZoneInfo(self.timezone)).date()

    def fault_of(self, day: date) -> str | None:
        """Why a day can't be made, as a text to follow the day; None where it can be."""
        if day < self.start_date:
            return f"is before start_date {self.start_date}; no day is made before it"
        if day > self.today():
            return f"is in the future; today is {self.today()} in {self.timezone}"
        return None

    def end_of(self, day: date) -> datetime:
        """The instant at which a day ends."""
        end = datetime.combine(
            day + timedelta(days=1), datetime.min.time(), ZoneInfo(self.timezone)
        )
        return end.astimezone(timezone.utc)

    def is_open(self, day: date) -> bool:
        """True while more can still land for the day."""
        return datetime.now(timezone.utc) < self.end_of(day)

    def source(self, name: str) -> SourceConfig:
        """One source by name.

        Raises:
            ConfigError: there is no such source.
        """
        if name not in self.sources:
            raise ConfigError([f"no source {name!r}; there are {', '.join(self.sources)}"])
        return self.sources[name]


def _conf_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _expand(value: Any, path: str, faults: list[str]) -> Any:
    """Replace ``${NAME}`` in all texts; secrets come only so."""
    if isinstance(value, str):

        def read(found: re.Match[str]) -> str:
            name = found.group(1)
            if name not in os.environ:
                faults.append(f"{path}: the environment variable {name} is not set")
            return os.environ.get(name, "")

        return _ENV.sub(read, value)
    if isinstance(value, dict):
        return {k: _expand(v, f"{path}.{k}" if path else str(k), faults) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v, f"{path}[{i}]", faults) for i, v in enumerate(value)]
    return value


_SECRETS = (("alerts", "slack", "token"), ("alerts", "email", "password"))


def _plain_secrets(raw: Mapping[str, Any]) -> list[str]:
    """Secrets that stand in the file itself; they are not repeated."""
    faults = []
    for place in _SECRETS:
        value: Any = raw
        for name in place:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None and not (isinstance(value, str) and _ENV.fullmatch(value)):
            faults.append(
                f"{'.'.join(place)}: is written in the file; name an environment variable that "
                "holds it, as in ${NAME}"
            )
    return faults


def config_path(path: str | Path | None = None) -> Path:
    """The configuration file: the argument, else ``CDC_CONFIG``, else ``./cdc.yaml``."""
    return Path(path or os.environ.get("CDC_CONFIG") or "cdc.yaml").absolute()


def load_config(path: str | Path | None = None) -> Config:
    """Read and check cdc.yaml.

    Relative paths in it start at the file's folder; ``CDC_WAREHOUSE`` wins over
    ``lake.warehouse``.

    Raises:
        ConfigError: the file is missing, is not YAML, or breaks a rule; one line per fault.
    """
    file = config_path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            [
                f"can't be read ({error}); pass --config, set CDC_CONFIG, or run in the folder of "
                "cdc.yaml"
            ],
            str(file),
        ) from error
    found = read_yaml(text)
    if found.faults:
        raise ConfigError(found.faults, str(file))
    raw = found.value
    if not isinstance(raw, dict):
        raise ConfigError(["not a mapping; expected start_date, sources, …"], str(file))
    faults = _plain_secrets(raw)
    raw = _expand(raw, "", faults)
    if faults:
        raise ConfigError(faults, str(file))
    return parse_config(raw, file.parent, str(file), found.written)


def parse_config(
    raw: Mapping[str, Any],
    base: Path,
    name: str | None = None,
    written: Mapping[YamlPath, str] | None = None,
) -> Config:
    """Check a configuration that has been read already.

    Args:
        raw: the file's content, environment variables replaced.
        base: where relative paths start.
        name: the file, for errors.
        written: values as the file has them: errors show these, and so no secret.

    Raises:
        ConfigError: one line per fault, each with its path.
    """
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(
            [_fault(fault, written or {}) for fault in error.errors()], name
        ) from None
    return _anchored(config, base)


_A_NUMBER, _WHOLE, _A_DATE = "a number", "a whole number", "a date such as 2026-11-04"
_INSTANT = "an instant with its zone, such as 2026-11-05T12:30:00Z"
_MAPPING = "a mapping (lines of `name: value`)"
# What a setting takes, by the first words of the type of pydantic's error.
_EXPECTED = {
    "string_too_short": "a text that is not empty",
    "string": "a text",
    "tuple": "a list such as [a, b]",
    "dict": _MAPPING,
    "model": _MAPPING,
    "too_short": "at least one entry",
    "int": _WHOLE,
    "float": _A_NUMBER,
    "finite_number": _A_NUMBER,
    "number": _A_NUMBER,
    "bool": "true or false",
    "datetime": _INSTANT,
    "timezone": _INSTANT,
    "date": _A_DATE,
    "key": "a list of column names such as [id], none, or row",
    "time_of_day": 'a time of day such as "01:00", or null for never',
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
}
_EXAMPLES = {
    "LandingConfig": "{files: <folder>} or {kafka: {bootstrap_servers: …, topics: […]}}",
    "KafkaConfig": "{bootstrap_servers: …, topics: […]}",
    "SourceConfig": "format, landing and tables",
    "TableConfig": "{key: [id]}, {} for a table without settings, or false for none",
    "WebhookConfig": "{url: ${NAME}}",
    "SlackConfig": "{token: ${NAME}, channel: …}",
    "EmailConfig": "{host: …, from: …, to: […]}",
}


def _fault(fault: Any, written: Mapping[YamlPath, str]) -> str:
    kind, context, value = fault["type"], fault.get("ctx", {}), fault["input"]
    # pydantic names the branch of a union it tried; a reader of the file knows no branches.
    place = tuple(p for p in fault["loc"] if not re.match(r"(tuple\[|literal\[|function-)", str(p)))
    if kind == "key_column":
        kind, place, value = "string_type", (*place, context["index"]), value[context["index"]]
    path = path_of(place)
    if kind == "value_error":
        says = str(context["error"])
    elif kind == "extra_forbidden":
        says = f"unknown key; {_meant(place[-1])}"
    elif kind == "missing":
        says = "is missing"
    else:
        says = _got_and_expected(kind, context, value, written_of(written, place, value))
    return f"{path}: {says}" if path else says


def _got_and_expected(kind: str, context: Mapping[str, Any], value: Any, got: str) -> str:
    known = [prefix for prefix in _EXPECTED if kind.startswith(prefix)]
    expected = _EXPECTED[max(known, key=len)] if known else "what docs/configuration.md says"
    expected = expected.format(**{"ge": "", "gt": "", "le": "", "expected": "", **context})
    if kind.startswith(("string_type", "key", "literal")) and (misread := kind_of(value)):
        cure = f'. Write it in quotes: "{got}"' if kind == "string_type" else ""
        return f"got {got}, which YAML reads as {misread}; expected {expected}{cure}"
    if kind.startswith("tuple") and isinstance(value, str):
        return f"got {got}; expected a list. Write [{got.strip(chr(39))}]"
    if example := _EXAMPLES.get(context.get("class_name", "")):
        expected = f"{expected}: {example}"
    return f"got {got}; expected {expected}"


def _meant(key: Any) -> str:
    """The settings whose names are close to an unknown key's."""
    models = _Model.__subclasses__()
    names = {field.alias or name for m in models for name, field in m.model_fields.items()}
    close = sorted(difflib.get_close_matches(str(key), names))
    return f"did you mean {' or '.join(close)}?" if close else "look for a spelling mistake"


def _anchored_landing(landing: LandingConfig, base: Path) -> LandingConfig:
    found: dict[str, Any] = {}
    if landing.files is not None:
        found["files"] = _location(landing.files, base)
    if landing.registry is not None:
        found["registry"] = _anchored_registry(landing.registry, base)
    return landing.model_copy(update=found)


def _anchored_registry(registry: RegistryConfig, base: Path) -> RegistryConfig:
    found: dict[str, Any] = {}
    if registry.files is not None:
        found["files"] = _location(registry.files, base)
    if registry.ca is not None:
        found["ca"] = str(base / registry.ca)
    return registry.model_copy(update=found)


def _anchored(config: Config, base: Path) -> Config:
    warehouse = os.environ.get("CDC_WAREHOUSE") or config.lake.warehouse
    if not config.lake.model_copy(update={"warehouse": warehouse}).is_named:
        warehouse = _location(warehouse, base)
    sources = {
        name: source.model_copy(update={"landing": _anchored_landing(source.landing, base)})
        for name, source in config.sources.items()
    }
    lake = LakeConfig.model_validate({**config.lake.model_dump(), "warehouse": warehouse})
    return config.model_copy(update={"lake": lake, "sources": sources})


def local_path(place: str) -> Path:
    """The path of a folder of this machine, which may be written ``file:…``."""
    return Path(place.removeprefix("file://").removeprefix("file:"))


def _location(place: str, base: Path) -> str:
    """A folder or URL; a relative folder starts at the configuration file's."""
    if "://" in place or place.startswith("file:"):
        return place.rstrip("/")
    return str((base / Path(place).expanduser()).resolve())
