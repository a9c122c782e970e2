"""Landed records, what they come to, and the events read from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

from cdc_assets_tests.model.documents import key_text

Destination = Literal["changes", "control", "quarantine"]
Landed = dict[date, list["Record"]]


@dataclass(frozen=True)
class Record:
    """One landed Kafka record; ``timestamp_ms`` is Kafka's, in ms UTC."""

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    malformed_line: bool = False  # the landed line itself was no record
    sent_key: bytes | None = None  # where `key` is what a registry's schema says of these bytes


@dataclass(frozen=True)
class Classified:
    """Where a record goes. All but record, day and reason are None for a quarantined one."""

    record: Record
    day: date
    destination: Destination
    reason: str | None = None
    op: str | None = None
    source_op: str | None = None
    table_name: str | None = None
    key: str | None = None
    old_key: str | None = None
    new_key: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    source_ts_ms: int | None = None
    processed_ts_ms: int | None = None
    is_snapshot: bool = False
    position: tuple[int, ...] | None = None


class TableError(Exception):
    """Raised when a day of a table can't be published; names table, column and day."""

    def __init__(self, message: str, *, table: str, column: str, day: date) -> None:
        super().__init__(f"{table}.{column}, {day}: {message}")
        self.table, self.column, self.day = table, column, day


class InferredTypeError(TableError):
    """Raised when a value doesn't fit the type that its column was inferred to have (R3)."""


class KeyTypeError(TableError):
    """Raised when a key column changes to a type that its own can't take (R6)."""


class KeyColumnsError(TableError):
    """Raised when the keys of messages name different columns and nobody says which (D5, R6)."""


Wire = dict[str, Any]


class QuarantinedError(Exception):
    """Raised when a record can't be understood; carries the reason code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ControlledError(Exception):
    """Raised to leave the reading of a record that changes no row."""


@dataclass
class KeyDocument:
    """A message key or key header: missing, garbage, scalar or struct (D6)."""

    state: Literal["missing", "garbage", "scalar", "struct"]
    value: Any = None
    wires: dict[str, Wire] = field(default_factory=dict)


@dataclass
class Event:
    """A record and all that is known of it."""

    record: Record
    day: date
    destination: Destination = "changes"
    reason: str | None = None
    op: str | None = None
    source_op: str | None = None
    table_name: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    source_ts_ms: int | None = None
    processed_ts_ms: int | None = None
    is_snapshot: bool = False
    is_tombstone: bool = False
    half: Literal["before", "after"] | None = None  # of a split DataWorks update
    sequence_id: int | None = None
    elements: tuple[int, ...] = ()  # O8
    has_elements: bool = False
    own_elements: tuple[int | None, ...] = ()  # before anything stands in for them
    basis: str = ""  # what the elements are; those of different bases can't be compared (O8)
    total_order: int = 0
    position: tuple[int, ...] | None = None
    key: dict[str, Any] | None = None  # column → value, read with its type
    old_key: dict[str, Any] | None = None
    new_key: dict[str, Any] | None = None
    wires: dict[str, Wire] = field(default_factory=dict)  # column → field schema
    has_own_schema: bool = False  # the message names its columns, so that none is inferred (R3)
    source_key: list[str] | None = None  # the key columns that the producer names (W4)
    ordinal: int = 0  # O14
    row_number: int | None = None  # in a record of many rows

    @property
    def removes(self) -> bool:
        return self.op == "d"

    @property
    def writes(self) -> bool:
        """A row is there after it; a BEFOR half writes none (W3)."""
        return self.op in ("c", "u", "r") and self.half != "before"

    def image(self) -> dict[str, Any]:
        """The row written: ``after``, and key columns that only the message key has."""
        return {**(self.key or {}), **(self.after or {})}

    def public(self) -> Classified:
        if self.destination == "quarantine":
            return Classified(self.record, self.day, "quarantine", self.reason)
        return Classified(
            record=self.record,
            day=self.day,
            destination=self.destination,
            reason=None,
            op=self.op,
            source_op=self.source_op,
            table_name=self.table_name,
            key=None if self.key is None else key_text(self.key),
            old_key=None if self.old_key is None else key_text(self.old_key),
            new_key=None if self.new_key is None else key_text(self.new_key),
            before=self.before if self.destination == "changes" else None,
            after=self.after if self.destination == "changes" else None,
            source_ts_ms=self.source_ts_ms,
            processed_ts_ms=self.processed_ts_ms,
            is_snapshot=self.is_snapshot,
            position=self.position,
        )
