"""The order of events (FORMATS O1–O11): what makes a position, per connector.

A position is an array of BIGINT of one length per basis, compared element by element:
epoch, the source's own elements, order in the transaction, rank, partition, offset.
Its *basis* names the members of the source that the elements are, such as ``lsn``; positions of
different bases can't be compared, so a table has one basis an epoch (:func:`on_basis`).
An *effective* position is that of an event without one of its own (a snapshot read, a lone
tombstone): the highest position that landed before it for its key, followed by
``[-1, day, partition, offset]``, so that it sorts directly after. Where nothing landed
before it the tail stands alone and sorts below every position, whose first element is 0
or more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.cdc.jsontext import string_of

_POSITION = "array<bigint>"
_NUMBER_WIDTH, _NUMBER_PARTS = 13, 3
_TAIL = 4  # order in the transaction, rank, partition, offset
_OTHER_BASIS = -2  # below every source element; -1 marks an effective position


class Reader(Protocol):
    """Reads a dotted member of the event as a type."""

    def __call__(self, path: str, kind: str, /) -> Column: ...


@dataclass(frozen=True)
class Elements:
    """The source elements of an event (O8): ARRAY<BIGINT>, a missing one is null.

    `basis` names the members of the source that they are; `stand_in` (BIGINT) is the source time,
    which takes their place where they are absent or all 0.
    """

    own: Column
    basis: Column
    stand_in: Column


SOURCE_TIME = "ts_ms"
_LSN, _BINLOG = "lsn", "file,pos,row"
_COMMIT_LSN, _SCN = "commit_lsn,change_lsn,event_serial_no", "commit_scn,scn,ssn"
_COMMIT_TS, _ORDINAL = "commit_ts", "ts_ms,ord"
_BASIS = {
    "postgresql": _LSN,
    "mysql": _BINLOG,
    "mariadb": _BINLOG,
    "sqlserver": _COMMIT_LSN,
    "db2": _COMMIT_LSN,
    "informix": _COMMIT_LSN,
    "oracle": _SCN,
    "ticdc": _COMMIT_TS,
    "mongodb": _ORDINAL,
}


def debezium_elements(connector: Column, at: Reader) -> Elements:
    """The source elements of a Debezium or Lindorm event (O2, O8).

    Args:
        connector: the event's connector, null for Lindorm.
        at: reads a member of the event's `source`.
    """

    def number(path: str) -> Column:
        return at(path, "bigint")

    file_number = F.regexp_extract(string_of(at("file", "variant")), r"(\d+)$", 1)
    elements = {
        _LSN: [number("lsn")],
        _BINLOG: [
            F.nullif(file_number, F.lit("")).try_cast("bigint"),
            number("pos"),
            number("row"),
        ],
        _COMMIT_LSN: [
            *_lsn_parts(at("commit_lsn", "string")),
            *_lsn_parts(at("change_lsn", "string")),
            number("event_serial_no"),
        ],
        _SCN: [number("commit_scn"), number("scn"), number("ssn")],
        _COMMIT_TS: [number("commit_ts")],
        _ORDINAL: [number("ts_ms"), number("ord")],
    }
    of_connector = F.lower(connector)
    is_of = {
        name: of_connector.isin([c for c, basis in _BASIS.items() if basis == name])
        for name in elements
    }
    own = [F.when(is_of[name], F.array(*members)) for name, members in elements.items()]
    basis = [F.when(is_of[name], F.lit(name)) for name in elements]
    return Elements(
        own=F.coalesce(*own, F.array(number("ts_ms"))),
        basis=F.coalesce(*basis, F.lit(SOURCE_TIME)),
        stand_in=number("ts_ms"),
    )


def wide_number(digits: Column) -> Column:
    """A decimal text of up to 39 digits as three elements of 13 digits (O10); nulls if unfit."""
    padded = F.lpad(digits, _NUMBER_WIDTH * _NUMBER_PARTS, "0")
    parts = F.array(
        *(
            F.substring(padded, 1 + i * _NUMBER_WIDTH, _NUMBER_WIDTH).cast("bigint")
            for i in range(_NUMBER_PARTS)
        )
    )
    nulls = F.array(*[F.lit(None).cast("bigint")] * _NUMBER_PARTS)
    return F.when(digits.rlike(r"^\d{1,39}$"), parts).otherwise(nulls)


def _element(value: Column) -> Column:
    """No null and nothing below 0: -1 marks an effective position."""
    return F.greatest(F.coalesce(value, F.lit(0)), F.lit(0)).cast("bigint")


_HEX_PARTS = r"^([0-9a-fA-F]{1,32}):([0-9a-fA-F]{1,32}):([0-9a-fA-F]{1,32})$"


def _lsn_parts(lsn: Column) -> list[Column]:
    """``00000027:00000ac0:0002``, as SQL Server and Db2 write it, or one decimal (Informix)."""

    def part(number: int) -> Column:
        # conv() fails above 64 bits; longer parts are no LSN.
        digits = F.regexp_extract(F.regexp_extract(lsn, _HEX_PARTS, number), "^0*(.{1,15})$", 1)
        of_hex = F.conv(F.nullif(digits, F.lit("")), 16, 10).try_cast("bigint")
        whole = lsn.try_cast("bigint") if number == 1 else F.lit(0).cast("bigint")
        return F.when(lsn.rlike(r"^\d{1,18}$"), whole).otherwise(of_hex)

    return [part(number) for number in (1, 2, 3)]


def position(
    elements: Column,
    tx_order: Column,
    rank: Column,
    kafka_ts_ms: Column,
    resets: Sequence[datetime],
) -> Column:
    """A position of landing columns `partition` and `offset` and these (O4, O11)."""
    epoch = F.lit(0).cast("bigint")
    for instant in resets:
        reached = kafka_ts_ms >= F.lit(int(instant.timestamp() * 1000))
        epoch = epoch + F.when(reached, 1).otherwise(0)
    tail = F.array(
        _element(tx_order),
        rank.cast("bigint"),
        F.col("partition").cast("bigint"),
        F.col("offset").cast("bigint"),
    )
    return F.concat(F.array(epoch), F.transform(elements, _element), tail).cast(_POSITION)


def says_order(elements: Column) -> Column:
    """True where the source's own elements say anything: not all are absent or 0 (O8)."""
    return F.exists(elements, lambda element: element > 0)


def on_basis(position: Column, basis: Column, of_table: Mapping[int, str]) -> Column:
    """A position whose basis is not its table's, moved below all of its epoch (O8).

    Args:
        basis: what the position's elements are.
        of_table: the basis of the table in each epoch.
    """
    is_own = F.lit(False)
    for epoch, name in of_table.items():
        is_own = is_own | ((F.get(position, F.lit(0)) == F.lit(epoch)) & (basis == F.lit(name)))
    below = F.array(F.lit(_OTHER_BASIS).cast("bigint"))
    moved = F.concat(F.slice(position, 1, 1), below, F.slice(position, F.lit(2), F.size(position)))
    return F.when(is_own, position).otherwise(moved)


def of_removal(position: Column) -> Column:
    """The position of what an event removes beside its own row: the rank of a removal (O4)."""
    before_rank = F.slice(position, F.lit(1), F.size(position) - _TAIL + 1)
    rank = F.array(F.lit(0).cast("bigint"))
    return F.concat(before_rank, rank, F.slice(position, F.size(position) - 1, F.lit(2)))


def is_one_change(one: Column, other: Column) -> Column:
    """Do two effective positions share epoch and source elements, as the parts of a key change?

    Never where the source gave no elements: all zeros say nothing.
    """
    shared = F.size(other) - _TAIL
    prefix = F.slice(other, F.lit(1), F.greatest(shared, F.lit(0)))
    is_known = ~F.array_contains(other, -1) & F.exists(
        F.slice(prefix, F.lit(2), F.size(prefix)), lambda element: element > 0
    )
    return is_known & (F.slice(one, F.lit(1), F.size(prefix)) == prefix)


def real_part(effective: Column) -> Column:
    """The position that an effective position stands behind; the position itself otherwise."""
    marker = F.array_position(effective, -1)
    return F.when(marker > 0, F.slice(effective, 1, (marker - 1).cast("int"))).otherwise(effective)


def directly_after(base: Column, day: Column, partition: Column, offset: Column) -> Column:
    """The effective position of an event without one (O6); `base` may be null."""
    tail = F.array(
        F.lit(-1).cast("bigint"),
        F.unix_date(day).cast("bigint"),
        partition.cast("bigint"),
        offset.cast("bigint"),
    )
    empty = F.array().cast(_POSITION)
    return F.concat(F.coalesce(base, empty), tail)


def literal_position(position: Sequence[int] | None) -> Column:
    """A position that the driver knows, null for none."""
    if position is None:
        return F.lit(None).cast("array<bigint>")
    return F.array(*(F.lit(int(n)).cast("bigint") for n in position))


def latest(*positions: Column) -> Column:
    """The highest of some positions, null where all are."""
    return F.array_max(F.array(*positions))


def cut_before() -> Column:
    """The highest truncate of the same partition at a lower offset; `cuts` lists them."""
    earlier = F.filter(
        "cuts",
        lambda t: (
            (t["topic"] == F.col("topic"))
            & (t["partition"] == F.col("partition"))
            & (t["offset"] < F.col("offset"))
        ),
    )
    return F.array_max(F.transform(earlier, lambda t: t["position"]))
