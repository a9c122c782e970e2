"""Landed records, what they come to, and the events read from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any, Literal

from cdc_assets_tests.model.documents import json_text, key_text

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
    position_basis: str | None = None
    identity: str | None = None
    tx_id: str | None = None
    stream_element: tuple[int, ...] | None = None


class TableError(Exception):
    """Raised when a day of a table can't be published; names table, column and day."""

    def __init__(self, message: str, *, table: str, column: str, day: date) -> None:
        super().__init__(f"{table}.{column}, {day}: {message}")
        self.table, self.column, self.day = table, column, day


class InferredTypeError(TableError):
    """Raised when a value doesn't fit the type that its column was inferred to have (R3)."""


class DatabasesError(TableError):
    """Raised when a table's first events are of several databases (D4)."""


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
    leaf: str | None = None  # its own table, where that goes into another one (R8)
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    source_ts_ms: int | None = None
    processed_ts_ms: int | None = None
    is_snapshot: bool = False
    snapshot: str | None = None  # the mark of a read of Debezium's (R7)
    is_tombstone: bool = False
    half: Literal["before", "after"] | None = None  # of a split DataWorks update
    half_element: int | None = None  # of every DataWorks event (O4)
    sequence_id: int | None = None
    connector: str | None = None
    elements: tuple[int, ...] = ()  # that order (O8)
    own_elements: tuple[int | None, ...] = ()  # before anything stands in for them
    basis: str = ""  # what the elements are; those of different bases can't be compared (O8)
    identity: dict[str, str] = field(default_factory=dict)  # elements that identify besides
    database: str | None = None  # as Debezium names it (D4)
    stream: tuple[str, ...] | None = None  # connector and server, of some the database (O11)
    stream_element: tuple[int, ...] | None = None  # what is judged of it
    epoch: int = 0
    is_sent_again: bool = False  # by a new server, with the GTID that it had
    tx: str | None = None  # O16
    tx_id: str | None = None
    landed_ms: int = 0  # the Kafka timestamp, or what stands in for it
    kafka_ms: int = 0  # as it stands in for elements (O8)
    position: tuple[int, ...] | None = None
    full_position: tuple[int, ...] = ()  # with the epoch in front, as the merge has it
    key: dict[str, Any] | None = None  # column → value, read with its type
    old_key: dict[str, Any] | None = None
    new_key: dict[str, Any] | None = None
    is_old_key_sent: bool = False  # by a header (D9); else it was found in `before` (D10)
    wires: dict[str, Wire] = field(default_factory=dict)  # column → field schema
    has_own_schema: bool = False  # the message names its columns, so that none is inferred (R3)
    source_key: list[str] | None = None  # the key columns that the producer names (W4)
    ordinal: int = 0  # O14
    row_number: int | None = None  # in a record of many rows
    statement: str | None = None  # of DDL (D21)
    said_source: dict[str, Any] = field(default_factory=dict)  # of a statement's event

    @property
    def removes(self) -> bool:
        return self.op == "d"

    @property
    def position_basis(self) -> str:
        """What the position is made of, as `changes` names it (O8)."""
        half = "half," if self.half_element is not None else ""
        return f"{self.basis},{half}partition,offset,place"

    @cached_property
    def identity_text(self) -> str:
        return json_text(self.identity)

    @cached_property
    def content(self) -> str:
        """What a copy has, too (O15)."""
        keys = [None if key is None else key_text(key) for key in (self.old_key, self.new_key)]
        return json_text([self.op, self.before, self.after, *keys])

    @property
    def has_elements(self) -> bool:
        """Any element of O8, ordering or identifying, that the source sent (O14)."""
        return bool(self.identity) or any(number is not None for number in self.own_elements)

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
        is_change = self.destination == "changes"
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
            before=self.before if is_change else None,
            after=self.after if is_change else None,
            source_ts_ms=self.source_ts_ms,
            processed_ts_ms=self.processed_ts_ms,
            is_snapshot=self.is_snapshot,
            position=self.position,
            position_basis=None if self.position is None else self.position_basis,
            identity=self.identity_text if self.identity and is_change else None,
            tx_id=self.tx_id if is_change else None,
            stream_element=None if self.position is None else self.stream_element,
        )
