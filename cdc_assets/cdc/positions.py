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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.cdc.sqltext import Sql, case, literal, literals, whole

_POSITION = "array<bigint>"
_NUMBER_WIDTH, _NUMBER_PARTS = 13, 3
_TAIL = 4  # order in the transaction, rank, partition, offset
_OTHER_BASIS = -2  # below every source element; -1 marks an effective position


@dataclass(frozen=True)
class Elements:
    """The source elements of an event (O8): ARRAY<BIGINT>; SQL expressions.

    `own` has a null for each that is missing; `basis` names the members of the source that they
    are; `stand_in` (BIGINT) is the source time, which takes their place where they are absent or
    all 0.
    """

    own: Sql
    basis: Sql
    stand_in: Sql


SOURCE_TIME = "ts_ms"
_LSN, _BINLOG = "lsn", "file,pos,row"
_COMMIT_LSN, _SCN = "commit_lsn,change_lsn,event_serial_no", "commit_scn,scn,ssn"
COMMIT_TS, _ORDINAL = "commit_ts", "ts_ms,ord"
_CONNECTORS = {
    _LSN: ("postgresql",),
    _BINLOG: ("mysql", "mariadb"),
    _COMMIT_LSN: ("sqlserver", "db2", "informix"),
    _SCN: ("oracle",),
    COMMIT_TS: ("ticdc",),
    _ORDINAL: ("mongodb",),
}
# What of a Debezium event's `source` its position is made of, beside `ts_ms`.
SOURCE_MEMBERS = (
    "lsn", "pos", "row", "commit_lsn", "change_lsn", "event_serial_no", "commit_scn",
    "scn", "ssn", "commit_ts", "ord",
)  # fmt: skip


def debezium_basis(connector: Sql) -> Sql:
    """Which members of the source say the order of a connector's events (O2)."""
    branches = (
        (f"lower({connector}) IN ({literals(names)})", literal(basis))
        for basis, names in _CONNECTORS.items()
    )
    return case(*branches, otherwise=literal(SOURCE_TIME))


def basis_of_members(of_source: Callable[[str], Sql]) -> Sql:
    """The same of events that do not say their connector: by the members that are there (O8)."""
    telling = {
        _LSN: "lsn",
        _BINLOG: "pos",
        _COMMIT_LSN: "commit_lsn",
        _SCN: "scn",
        COMMIT_TS: "commit_ts",
    }
    branches = ((f"{of_source(n)} IS NOT NULL", literal(basis)) for basis, n in telling.items())
    return case(*branches, otherwise=literal(SOURCE_TIME))


def debezium_elements(basis: Sql, of_source: Callable[[str], Sql], file: Sql) -> Elements:
    """The source elements of a Debezium or Lindorm event (O2, O8).

    Args:
        basis: :func:`debezium_basis`.
        of_source: the text of a member of the event's `source`.
        file: its member `file`, null where that is no JSON string.
    """

    def number(name: str) -> Sql:
        return whole(of_source(name))

    file_number = f"regexp_extract({file}, '([0-9]+)$', 1)"
    members = {
        _LSN: [number("lsn")],
        _BINLOG: [whole(f"nullif({file_number}, '')"), number("pos"), number("row")],
        _COMMIT_LSN: [
            *_lsn_parts(of_source("commit_lsn")),
            *_lsn_parts(of_source("change_lsn")),
            number("event_serial_no"),
        ],
        _SCN: [number("commit_scn"), number("scn"), number("ssn")],
        COMMIT_TS: [number("commit_ts")],
        _ORDINAL: [number("ts_ms"), number("ord")],
    }
    branches = (
        (f"{basis} = {literal(name)}", f"array({', '.join(parts)})")
        for name, parts in members.items()
    )
    own = case(*branches, otherwise=f"array({number('ts_ms')})")
    return Elements(own, basis, stand_in=number("ts_ms"))


def wide_number(digits: Sql) -> list[Sql]:
    """A decimal text of up to 39 digits as three elements of 13 digits (O10); nulls if unfit."""
    padded = f"lpad({digits}, {_NUMBER_WIDTH * _NUMBER_PARTS}, '0')"
    is_number = f"{digits} RLIKE '^[0-9]{{1,39}}$'"
    return [
        case(
            (
                is_number,
                whole(f"substring({padded}, {1 + i * _NUMBER_WIDTH}, {_NUMBER_WIDTH})"),
            )
        )
        for i in range(_NUMBER_PARTS)
    ]


def elements_of(parts: Sequence[Sql], basis: str, stand_in: Sql) -> Elements:
    """The elements of a format that has one basis."""
    return Elements(
        own=f"array({', '.join(parts)})",
        basis=literal(basis),
        stand_in=stand_in,
    )


def ordered(elements: Sql) -> Sql:
    """Source elements as they are compared."""
    return f"transform({elements}, number -> {_element('number')})"


def _element(value: Sql) -> Sql:
    """No null and nothing below 0: -1 marks an effective position."""
    return f"greatest(coalesce({value}, 0L), 0L)"


_HEX_PARTS = r"^([0-9a-fA-F]{1,32}):([0-9a-fA-F]{1,32}):([0-9a-fA-F]{1,32})$"


def _lsn_parts(lsn: Sql) -> list[Sql]:
    """``00000027:00000ac0:0002``, as SQL Server and Db2 write it, or one decimal (Informix)."""

    def part(number: int) -> Sql:
        # conv() fails above 64 bits; longer parts are no LSN.
        hexadecimal = f"regexp_extract({lsn}, {literal(_HEX_PARTS)}, {number})"
        digits = f"regexp_extract({hexadecimal}, '^0*(.{{1,15}})$', 1)"
        of_hex = whole(f"conv(nullif({digits}, ''), 16, 10)")
        decimal = whole(lsn) if number == 1 else "0L"
        return case((f"{lsn} RLIKE '^[0-9]{{1,18}}$'", decimal), otherwise=of_hex)

    return [part(number) for number in (1, 2, 3)]


def position(
    elements: Sql, tx_order: Sql, rank: Sql, kafka_ts_ms: Sql, resets: Sequence[datetime]
) -> Sql:
    """A position of landing columns `partition` and `offset` and these (O4, O11).

    `elements` are :func:`ordered`, the source's own or what stands in for them.
    """
    reached = [
        f"CASE WHEN {kafka_ts_ms} >= {int(instant.timestamp() * 1000)}L THEN 1L ELSE 0L END"
        for instant in resets
    ]
    epoch = " + ".join(["0L", *reached])
    tail = (
        f"array({_element(tx_order)}, CAST({rank} AS bigint), CAST(partition AS bigint), "
        "CAST(offset AS bigint))"
    )
    return f"concat(array({epoch}), {elements}, {tail})"


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


def of_other_basis(position: Sequence[int]) -> list[int]:
    """A position whose basis is not its table's, as :func:`on_basis` moves it."""
    return [position[0], _OTHER_BASIS, *position[1:]]


def of_removal(position: Column) -> Column:
    """The position of what an event removes beside its own row: the rank of a removal (O4)."""
    before_rank = F.slice(position, F.lit(1), F.size(position) - _TAIL + 1)
    rank = F.array(F.lit(0).cast("bigint"))
    return F.concat(before_rank, rank, F.slice(position, F.size(position) - 1, F.lit(2)))


def is_all_after(lowest: Sequence[int], highest: Sequence[int]) -> bool:
    """Do positions from `lowest` on stand after those up to `highest`, and what is placed beside?

    Removals (:func:`of_removal`) and events without a position (:func:`directly_after`) differ from
    another event in their tails alone.
    """
    elements = min(len(lowest), len(highest)) - _TAIL
    return list(lowest[:elements]) > list(highest[:elements])


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
