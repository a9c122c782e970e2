"""`tables:` — how one table is read and shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from cdc_assets.cdc.config.fields import Owners, Settings, Tags
from cdc_assets.cdc.config.layout import Layout, SortField, Transform
from cdc_assets.cdc.names import FEED, HISTORY, TableName

RESERVED_PREFIX = "_cdc_"
# Of a table into which others go (FORMATS R8): the one that a row came from.
TABLE_OF_ROW = f"{RESERVED_PREFIX}table"
# Of a row that the source has deleted, and that the table keeps.
DELETED_AT = f"{RESERVED_PREFIX}deleted_at"


def is_reserved(name: str) -> bool:
    """Whether a column of the lake is one that cdc-assets adds to a table's own."""
    return name.startswith(RESERVED_PREFIX) and name != TABLE_OF_ROW


_COLUMN_TYPE = re.compile(
    r"(?:boolean|int|bigint|float|double|string|binary|date"
    r"|timestamp(?:_ntz)?(?:\(\s*(?:s|ms|us|ns)\s*\))?"
    r"|decimal\(\s*([1-9]|[12]\d|3[0-8])\s*,\s*\d+\s*(?:,\s*base64\s*)?\)"
    r"|(?:array<|map<\s*string\s*,)(?P<element>.+)>)$"
)


def _is_column_type(kind: str) -> bool:
    """True for scalar types, and for arrays and maps of them."""
    found = _COLUMN_TYPE.match(kind.strip())
    element = found["element"] if found else None
    return bool(found) and (not element or _is_column_type(element))


class HistoryConfig(Settings):
    """Whose changes begin a version: those of some columns, or of all but some."""

    columns: tuple[str, ...] = Field(
        default=(), description="Only changes of these columns begin a version."
    )
    except_: tuple[str, ...] = Field(
        default=(), alias="except", description="Changes of these columns alone begin no version."
    )

    @model_validator(mode="after")
    def _one(self) -> HistoryConfig:
        if self.columns and self.except_:
            raise ValueError("has columns and except; keep one")
        return self


class TableConfig(Settings):
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
    history: HistoryConfig | None = Field(
        default=None,
        description="`true`, or whose changes count: also keep every version of each row, in the "
        "table `<table>__history`.",
    )
    feed: bool = Field(
        default=False,
        description="Also list each change of its rows, day by day, in the table `<table>__feed`.",
    )
    into: str | None = Field(
        default=None,
        description="Its events are those of this table (R8); all else stands under that one.",
    )
    add: dict[str, str] = Field(
        default_factory=dict,
        description="With `into`: columns of the key, each a text in which `{1}` is what the first "
        "`*` or `?` of the entry's name stands for.",
    )
    soft_delete: bool = Field(
        default=False,
        description="Rows that the source deleted stay, with the time in `_cdc_deleted_at`.",
    )
    start_date: date | None = None
    bucket: int | None = Field(default=None, ge=1, le=10_000)
    partition_by: tuple[str, ...] = Field(
        default=(),
        description="Partitions by Iceberg's transforms, `[days(created_at), bucket(16, id)]`; a "
        "change counts for what is written from then on, maintenance writes the rest.",
    )
    sort_by: tuple[str, ...] = Field(
        default=(), description="The order of rows within a file, `[id]`, `[created_at desc]`."
    )
    immutable: tuple[str, ...] = Field(
        default=(),
        description="Columns whose value never changes in a row: a day looks for its rows in the "
        "partitions of these values.",
    )
    rename: dict[str, str] = Field(
        default_factory=dict,
        description="Own columns that have another name in the lake, by their names in messages. "
        "`{new: old}` or `{old: new}` makes one column of one that the source renamed.",
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

    @field_validator("history", mode="before")
    @classmethod
    def _history(cls, value: Any) -> Any:
        return {True: {}, False: None}[value] if isinstance(value, bool) else value

    @field_validator("columns")
    @classmethod
    def _columns(cls, value: dict[str, str]) -> dict[str, str]:
        lowered = {name: kind.strip().lower() for name, kind in value.items()}
        for name, kind in lowered.items():
            if not _is_column_type(kind):
                raise ValueError(
                    f"{name}: got type {kind!r}; expected one of boolean, int, bigint, float, "
                    "double, decimal(p,s), decimal(p,s,base64), string, binary, date, timestamp, "
                    "timestamp_ntz, array<…>, map<string,…>"
                )
        return lowered

    @field_validator("rename")
    @classmethod
    def _rename(cls, value: dict[str, str]) -> dict[str, str]:
        for name, to in value.items():
            if to.startswith(RESERVED_PREFIX):
                raise ValueError(f"{name}: {to!r} starts with {RESERVED_PREFIX}, which is taken")
        return value

    @field_validator("partition_by")
    @classmethod
    def _partitions(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        parsed = list(map(Transform.parse, value))
        # Iceberg refuses a column's second time: the coarser one says nothing more.
        kinds = {(p.column, "time" if p.is_time else p.name) for p in parsed}
        if len(kinds) != len(parsed):
            raise ValueError(f"got {list(value)}; a column has two partitions of the same kind")
        return value

    @field_validator("sort_by")
    @classmethod
    def _order(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            SortField.parse(text)
        return value

    @model_validator(mode="after")
    def _partitioned(self) -> TableConfig:
        if self.bucket is not None and self.partition_by:
            raise ValueError("has bucket and partition_by; write bucket(n, <key>) in partition_by")
        return self

    @model_validator(mode="after")
    def _protected(self) -> TableConfig:
        if both := sorted({*self.exclude} & {*self.hash}):
            raise ValueError(f"exclude and hash both name {', '.join(both)}; keep one")
        if isinstance(self.key, tuple) and (gone := sorted({*self.exclude} & {*self.key})):
            raise ValueError(
                f"exclude names {', '.join(gone)}, a column of the key; name it in hash instead"
            )
        return self

    @model_validator(mode="after")
    def _goes_into(self) -> TableConfig:
        if self.into is None:
            if self.add:
                raise ValueError("add: is for an entry with into")
            return self
        if others := sorted(self.model_fields_set - {"into", "add"}):
            raise ValueError(
                f"into: got {', '.join(others)} beside it; write that under {self.into}"
            )
        TableName.configured(self.into)
        for name in self.add:
            if not name or name.startswith(RESERVED_PREFIX):
                raise ValueError(f"add: got the column {name!r}; expected another name")
        return self

    @model_validator(mode="after")
    def _keyed(self) -> TableConfig:
        if self.soft_delete and self.key in ("none", "row"):
            raise ValueError(
                f"soft_delete: got key {self.key}; a deleted row is told by its key. Name key "
                "columns, or leave soft_delete out"
            )
        if self.key != "none":
            return self
        if self.history is not None:
            raise ValueError(
                "history: got key none; versions are told apart by a key. Name key columns, or "
                "leave history out"
            )
        if self.feed:
            raise ValueError(
                "feed: got key none; changes are those of rows with a key. Name key columns, or "
                "leave feed out: each row of this table is an event already"
            )
        return self

    @property
    def derived(self) -> list[str]:
        """The kinds of tables that are derived from it; without a key of its own it has none."""
        if self.key == "row":
            return []
        kinds = ((HISTORY, self.history is not None), (FEED, self.feed))
        return [kind for kind, is_wanted in kinds if is_wanted]

    def lake_name(self, name: str) -> str:
        """A column's name in the lake, by a name in messages."""
        return self.rename.get(name, name)

    def sent_name(self, name: str) -> str:
        """A column's name in messages, by its name in the lake; one of several, if they were."""
        return {to: sent for sent, to in self.rename.items()}.get(name, name)

    def sent_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """All names that some columns may have in messages: before a renaming, and after it."""
        listed = list(names)
        columns = {self.lake_name(name) for name in listed}
        renamed = [sent for sent, to in self.rename.items() if to in columns]
        same = [name for name in columns if name not in self.rename]
        return tuple(dict.fromkeys([*listed, *renamed, *sorted(same)]))

    @property
    def excluded(self) -> tuple[str, ...]:
        """`exclude`, by all names that messages may have for these columns."""
        return self.sent_names(self.exclude)

    @property
    def hashed(self) -> tuple[str, ...]:
        """`hash`, by all names that messages may have for these columns."""
        return self.sent_names(self.hash)

    @property
    def layout(self) -> Layout:
        """How its files are laid out, with the columns by their names in the lake."""
        layout = Layout(
            tuple(map(Transform.parse, self.partition_by)),
            tuple(map(SortField.parse, self.sort_by)),
        )
        return layout.renamed(self.lake_name)

    @property
    def in_lake(self) -> TableConfig:
        """The same, with the columns by their names in the lake."""
        if not self.rename:
            return self

        def named(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(map(self.lake_name, names)))

        history = self.history
        if history is not None:
            columns = {"columns": named(history.columns), "except_": named(history.except_)}
            history = history.model_copy(update=columns)
        return self.model_copy(
            update={
                "rename": {},
                "key": named(self.key) if isinstance(self.key, tuple) else self.key,
                "columns": {self.lake_name(name): kind for name, kind in self.columns.items()},
                "history": history,
                "sensitive": named(self.sensitive),
                "exclude": named(self.exclude),
                "hash": named(self.hash),
                "immutable": named(self.immutable),
                "partition_by": tuple(map(str, self.layout.partitions)),
                "sort_by": tuple(map(str, self.layout.order)),
            }
        )

    @property
    def is_protected(self) -> bool:
        """True where a column is excluded or hashed."""
        return bool(self.exclude or self.hash)

    @property
    def lake_columns(self) -> dict[str, str]:
        """`columns` in the lake, where a hash is a text."""
        return {
            name: "string" if name in self.hash else kind
            for name, kind in self.columns.items()
            if name not in self.exclude
        }
