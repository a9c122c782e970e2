"""Conversion of positions of the earlier form, which a lake has in days made by earlier versions.

The earlier form mixed identifying with ordering elements, followed by the order in the transaction,
a rank, partition and offset; in `changes` the epoch came first.
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
    """A basis of the earlier form.

    `size` is the number of source elements, `ordering` the indexes of those that order.
    """

    size: int
    ordering: tuple[int, ...]
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
_EARLIER_ROWS = 1 << 20  # most rows of a record: their numbers followed its offset
_EARLIER_LAST_ROW = 2**63 - 1  # instead of xoffset, in Maxwell's last row of a transaction


def is_earlier(basis: str | None) -> bool:
    """Whether this is a basis of the earlier form."""
    return basis in _EARLIER


def is_earlier_sql(basis: Sql) -> Sql:
    """:func:`is_earlier` as SQL."""
    return is_one_of(basis, _EARLIER)


def basis_today(basis: str, is_kafka: bool = False) -> str:
    """The current basis for one of the earlier form; a current basis is unchanged.

    Args:
        basis: of either form.
        is_kafka: whether the Kafka timestamp now replaces the source time (O8).
    """
    if basis not in _EARLIER:
        return basis
    form = _EARLIER[basis]
    own = KAFKA_TIME if is_kafka and form.basis == SOURCE_TIME else form.basis
    return ",".join([own, *((HALF,) if form.basis == "sequenceId" else ()), *TAIL])


def from_earlier(position: Sequence[int], basis: str, is_kafka: bool = False) -> list[int]:
    """A table's position of the earlier form in the current form.

    If the Kafka timestamp now replaces the source time, it is 0: stored rows are older than all new
    events.
    """
    form = _EARLIER[basis]
    if len(position) < 1 + form.size + _EARLIER_TAIL or position[1] < 0:
        return list(position)  # without a real part, or of another basis
    elements = position[1 : 1 + form.size]
    tx_order, rank, partition, offset, *behind = position[1 + form.size :]
    ordering = [elements[n] for n in form.ordering]
    if is_kafka and form.basis == SOURCE_TIME:
        ordering = [0]
    half = [rank] if form.basis == "sequenceId" else []
    row = tx_order % _EARLIER_ROWS if tx_order // _EARLIER_ROWS == offset else 0
    return [position[0], *ordering, *half, partition, offset, 2 * row + rank, *behind]


def is_vague_today(basis: str) -> bool:
    """Whether the bounds of positions of this basis are no bounds in the current order."""
    return basis in _EARLIER and _EARLIER[basis].ordering[0] != 0


def from_earlier_sql(position: Sql, basis: str, kafka_time: Sql | None = None) -> Sql:
    """:func:`from_earlier` as SQL; positions of the current form are unchanged.

    Args:
        kafka_time: the time that now replaces the source time, if any.
    """
    form = _EARLIER[basis]
    at = [f"get({position}, {n})" for n in range(1 + form.size + _EARLIER_TAIL)]
    elements, (tx_order, rank, partition, offset) = at[1 : 1 + form.size], at[1 + form.size :]
    ordering = [elements[n] for n in form.ordering]
    if kafka_time is not None and form.basis == SOURCE_TIME:
        ordering = [kafka_time]
    half = [rank] if form.basis == "sequenceId" else []
    row = case(
        (f"{tx_order} div {_EARLIER_ROWS}L = {offset}", f"{tx_order} % {_EARLIER_ROWS}L"),
        otherwise="0L",
    )
    new = [at[0], *ordering, *half, partition, offset, f"2L * ({row}) + {rank}"]
    turned = f"concat(array({', '.join(new)}), slice({position}, {len(at) + 1}, size({position})))"
    # A real position alone, or followed by the four elements of an effective one.
    is_earlier_form = f"size({position}) IN ({len(at)}, {len(at) + 4}) AND get({position}, 1) >= 0"
    if half:
        # Current positions have as many elements, with the half 1 of a split update at this index.
        is_earlier_form += f" AND {tx_order} = 0"
    return case((is_earlier_form, turned), otherwise=position)


def changes_from_earlier(kafka_time: Sql) -> dict[str, Sql]:
    """Columns of `changes` converted to the current form; rows of the current form are unchanged.

    Only Maxwell's events get an `identity`: for most others the earlier form lacks a part of it.

    Args:
        kafka_time: the event's Kafka timestamp or its replacement (ms).

    Returns:
        `position` (without the epoch), `position_basis`, `source_elements`, `identity`, `tx_id`.
    """
    is_earlier_row = f"({is_earlier_sql('position_basis')} OR position_basis IS NULL)"
    is_maxwell = (
        f"{is_earlier_sql('position_basis')} AND lower(connector) = 'maxwell' AND tx_id IS NOT NULL"
    )
    is_postgresql = f"position_basis = '{LSN}' OR lower(connector) = 'postgresql'"
    xoffset = f"nullif(get(source_elements, 2), {_EARLIER_LAST_ROW}L)"
    maxwell_identity = {
        "ts": "CAST(source_ts_ms div 1000 AS string)",
        "xid": "tx_id",
        "xoffset": f"CAST({xoffset} AS string)",
    }
    commit_id = "substring_index(tx_id, ':', 1)"
    return {
        **_converted_positions(kafka_time),
        "identity": case((is_maxwell, identity_of(maxwell_identity)), otherwise="identity"),
        "tx_id": case((f"{is_earlier_row} AND ({is_postgresql})", commit_id), otherwise="tx_id"),
    }


def _converted_positions(kafka_time: Sql) -> dict[str, Sql]:
    """`position`, `position_basis` and `source_elements` of :func:`changes_from_earlier`."""
    is_kafka_placed = f"lower(connector) IN ({literals(sorted(_PLACED_BY_KAFKA))})"
    positions, bases, elements = [], [], []
    for basis, form in _EARLIER.items():
        has_basis = f"position_basis = {literal(basis)}"
        branches: list[tuple[Sql, Sql | None]] = [(has_basis, None)]
        if basis == SOURCE_TIME:
            branches.insert(0, (f"{has_basis} AND {is_kafka_placed}", kafka_time))
        for condition, time in branches:
            turned = from_earlier_sql("position", basis, time)
            positions.append((condition, f"slice({turned}, 2, size({turned}))"))
            bases.append((condition, literal(basis_today(basis, time is not None))))
            ordering = [f"get(source_elements, {n})" for n in form.ordering]
            own = f"array({', '.join(ordering)})" if time is None else NO_ELEMENTS
            elements.append((f"{condition} AND source_elements IS NOT NULL", own))
    return {
        "position": case(*positions, otherwise="position"),
        "position_basis": case(*bases, otherwise="position_basis"),
        "source_elements": case(*elements, otherwise="source_elements"),
    }
