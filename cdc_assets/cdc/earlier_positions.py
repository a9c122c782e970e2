"""Positions before what identifies a change was told from what orders it, read as today's.

A lake keeps them where a day was made by earlier rules. Behind the source elements stood the order
in the transaction, a rank, partition and offset; `changes` had the epoch in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdc_assets.cdc.positions import (
    BINLOG,
    COMMIT_LSN,
    COMMIT_TS,
    CONNECTORS,
    HALF,
    KAFKA_TIME,
    LSN,
    NO_ELEMENTS,
    ORDINAL,
    SCN,
    SOURCE_TIME,
    TAIL,
    identity_of,
)
from cdc_assets.cdc.sqltext import Sql, case, is_one_of, literal, literals


@dataclass(frozen=True)
class _EarlierForm:
    """A basis of positions before what identifies was told from what orders.

    `size` is the number of source elements, `kept` those that order, from 0. Behind them stood the
    order in the transaction, a rank, partition and offset.
    """

    size: int
    kept: tuple[int, ...]
    basis: str


_EARLIER = {
    "lsn": _EarlierForm(1, (0,), LSN),
    "file,pos,row": _EarlierForm(3, (0, 1), BINLOG),
    "commit_lsn,change_lsn,event_serial_no": _EarlierForm(7, (0, 1, 2), COMMIT_LSN),
    "commit_scn,scn,ssn": _EarlierForm(3, (1,), SCN),
    "commit_ts": _EarlierForm(1, (0,), COMMIT_TS),
    "ts_ms,ord": _EarlierForm(2, (0, 1), ORDINAL),
    "ts_ms": _EarlierForm(1, (0,), SOURCE_TIME),
    "sequenceId": _EarlierForm(3, (0, 1, 2), "sequenceId"),
    "position,xoffset": _EarlierForm(3, (0, 1), "position"),
    "pos": _EarlierForm(3, (0, 1, 2), "pos"),
    "ts_micro": _EarlierForm(1, (0,), "ts_micro"),
}
_EARLIER_TAIL = 4
_PLACED_BY_KAFKA = ("canal", "maxwell", *CONNECTORS[BINLOG])
_EARLIER_ROWS = 1 << 20  # of a record: they were numbered within its offset
_EARLIER_LAST_ROW = 2**63 - 1  # Maxwell's row that ends its transaction has no offset in it


def is_earlier(basis: str | None) -> bool:
    """Is this the basis of positions of the earlier form?"""
    return basis in _EARLIER


def is_earlier_sql(basis: Sql) -> Sql:
    """As :func:`is_earlier`, of an SQL expression."""
    return is_one_of(basis, _EARLIER)


def basis_today(basis: str, is_kafka: bool = False) -> str:
    """The basis that one of the earlier form has become; one of today's is left as it is.

    Args:
        basis: one of any form.
        is_kafka: the Kafka timestamp stands in for the source time now (O8).
    """
    if basis not in _EARLIER:
        return basis
    form = _EARLIER[basis]
    own = KAFKA_TIME if is_kafka and form.basis == SOURCE_TIME else form.basis
    return ",".join([own, *((HALF,) if form.basis == "sequenceId" else ()), *TAIL])


def from_earlier(position: Sequence[int], basis: str, is_kafka: bool = False) -> list[int]:
    """A table's position of the earlier form in today's.

    Where the Kafka timestamp stands in now, its time is 0: what stands is older than what lands.
    """
    form = _EARLIER[basis]
    if len(position) < 1 + form.size + _EARLIER_TAIL or position[1] < 0:
        return list(position)  # without a real part, or of another basis
    elements = position[1 : 1 + form.size]
    tx_order, rank, partition, offset, *behind = position[1 + form.size :]
    kept = [elements[n] for n in form.kept]
    if is_kafka and form.basis == SOURCE_TIME:
        kept = [0]
    half = [rank] if form.basis == "sequenceId" else []
    row = tx_order % _EARLIER_ROWS if tx_order // _EARLIER_ROWS == offset else 0
    return [position[0], *kept, *half, partition, offset, 2 * row + rank, *behind]


def is_vague_today(basis: str) -> bool:
    """Do the lowest and the highest position of this basis say nothing of today's order?"""
    return basis in _EARLIER and _EARLIER[basis].kept[0] != 0


def from_earlier_sql(position: Sql, basis: str, kafka_time: Sql | None = None) -> Sql:
    """As :func:`from_earlier`, of an SQL expression; a row's position of today's form stays.

    Args:
        kafka_time: what stands in for the source time now; None: nothing does.
    """
    form = _EARLIER[basis]
    at = [f"get({position}, {n})" for n in range(1 + form.size + _EARLIER_TAIL)]
    elements, (tx_order, rank, partition, offset) = at[1 : 1 + form.size], at[1 + form.size :]
    kept = [elements[n] for n in form.kept]
    if kafka_time is not None and form.basis == SOURCE_TIME:
        kept = [kafka_time]
    half = [rank] if form.basis == "sequenceId" else []
    row = case(
        (f"{tx_order} div {_EARLIER_ROWS}L = {offset}", f"{tx_order} % {_EARLIER_ROWS}L"),
        otherwise="0L",
    )
    new = [at[0], *kept, *half, partition, offset, f"2L * ({row}) + {rank}"]
    turned = f"concat(array({', '.join(new)}), slice({position}, {len(at) + 1}, size({position})))"
    # A real position alone, or with the four elements of an effective one behind it.
    is_it = f"size({position}) IN ({len(at)}, {len(at) + 4}) AND get({position}, 1) >= 0"
    if half:
        # Today's have as many elements; there a row's own half, 1, stands for the order.
        is_it += f" AND {tx_order} = 0"
    return case((is_it, turned), otherwise=position)


def changes_from_earlier(kafka_time: Sql) -> dict[str, Sql]:
    """The columns of changes of the earlier form in today's; those of today's are left.

    `identity` is known of Maxwell's alone: of most others a part of it was not kept.

    Returns:
        `position`, without the epoch, `position_basis`, `source_elements`, `identity`, `tx_id`.

    Args:
        kafka_time: the event's Kafka timestamp, or what stands in for it (ms).
    """
    kafka = f"lower(connector) IN ({literals(sorted(_PLACED_BY_KAFKA))})"
    positions, bases, elements = [], [], []
    for basis, form in _EARLIER.items():
        is_it = f"position_basis = {literal(basis)}"
        branches: list[tuple[Sql, Sql | None]] = [(is_it, None)]
        if basis == SOURCE_TIME:
            branches.insert(0, (f"{is_it} AND {kafka}", kafka_time))
        for condition, time in branches:
            turned = from_earlier_sql("position", basis, time)
            positions.append((condition, f"slice({turned}, 2, size({turned}))"))
            bases.append((condition, literal(basis_today(basis, time is not None))))
            kept = [f"get(source_elements, {n})" for n in form.kept]
            own = f"array({', '.join(kept)})" if time is None else NO_ELEMENTS
            elements.append((f"{condition} AND source_elements IS NOT NULL", own))
    xoffset = f"nullif(get(source_elements, 2), {_EARLIER_LAST_ROW}L)"
    maxwell_identity = {
        "ts": "CAST(source_ts_ms div 1000 AS string)",
        "xid": "tx_id",
        "xoffset": f"CAST({xoffset} AS string)",
    }
    is_postgresql = f"position_basis = '{LSN}' OR lower(connector) = 'postgresql'"
    is_earlier_row = f"({is_earlier_sql('position_basis')} OR position_basis IS NULL)"
    return {
        "position": case(*positions, otherwise="position"),
        "position_basis": case(*bases, otherwise="position_basis"),
        "source_elements": case(*elements, otherwise="source_elements"),
        "identity": case(
            (
                f"{is_earlier_sql('position_basis')} AND lower(connector) = 'maxwell' "
                "AND tx_id IS NOT NULL",
                identity_of(maxwell_identity),
            ),
            otherwise="identity",
        ),
        "tx_id": case(
            (f"{is_earlier_row} AND ({is_postgresql})", "substring_index(tx_id, ':', 1)"),
            otherwise="tx_id",
        ),
    }
