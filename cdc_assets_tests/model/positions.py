"""Positions: the order of a table's events (O1–O11)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from cdc_assets_tests.model.documents import instant_ms, json_text, long_of, parse_json
from cdc_assets_tests.model.records import Event, Record

BINLOG, COMMIT_LSN = "file,pos", "commit_lsn"
SOURCE_TIME, KAFKA_TIME = "ts_ms", "kafka_ts_ms"
CONNECTORS = {  # O8: what orders
    "postgresql": "lsn",
    "mysql": BINLOG,
    "mariadb": BINLOG,
    "sqlserver": COMMIT_LSN,
    "db2": COMMIT_LSN,
    "informix": COMMIT_LSN,
    "oracle": "scn",
    "ticdc": "commit_ts",
    "mongodb": "ts_ms,ord",
}
IDENTIFYING = {  # O8: what identifies a change besides
    BINLOG: ("row", "gtid"),
    COMMIT_LSN: ("change_lsn", "event_serial_no"),
    "scn": ("txId", "rs_id", "ssn", "lcr_position"),
}
# Databases that check keys at the end of a statement or transaction (O16).
LATE_CHECKED = ("postgresql", "oracle", "sqlserver", "db2", "informix")
OTHER_BASIS = -2  # below all elements of an epoch


def basis_of(source: dict[str, Any]) -> str:
    """O8. The connector decides the shape, never the single event (O4)."""
    return CONNECTORS.get(str(source.get("connector")).lower(), SOURCE_TIME)


def source_elements(source: dict[str, Any]) -> tuple[str, list[Any]]:
    basis = basis_of(source)
    if basis == BINLOG:
        file = source.get("file")  # a number is no file's name
        number = re.search(r"\d+$", file, re.ASCII) if isinstance(file, str) else None
        return basis, [number[0] if number else None, source.get("pos")]
    if basis == COMMIT_LSN:
        return basis, list(_lsn_parts(source.get("commit_lsn")))
    return basis, [source.get(name) for name in basis.split(",")]


def _lsn_parts(value: Any) -> list[int | None]:
    text = str(value)
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return [int(text), 0, 0]
    found = re.fullmatch(r"([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)", text, re.ASCII)
    if not found or any(len(part) > 32 for part in found.groups()):
        return [None, None, None]
    numbers = (int(part, 16) for part in found.groups())
    return [number if number < 16**15 else None for number in numbers]


def set_elements(event: Event, basis: str, elements: list[Any]) -> None:
    """O8: where all are absent or 0 a time stands in, the source's or Kafka's."""
    numbers = [long_of(element) for element in elements]
    event.own_elements = tuple(numbers)
    event.basis, event.elements = basis, tuple(max(number or 0, 0) for number in numbers)
    if any(event.elements):
        return
    if basis in (BINLOG, KAFKA_TIME):
        event.basis, event.elements = KAFKA_TIME, ()
    else:
        event.basis, event.elements = SOURCE_TIME, (max(event.source_ts_ms or 0, 0),)


# -- what identifies a change, and its transaction ------------------------------------------------


def set_source(event: Event, source: dict[str, Any], transaction: dict[str, Any]) -> None:
    """Elements, identity and transaction of an event of a Debezium connector."""
    event.connector = str(source.get("connector")).lower()
    basis, elements = source_elements(source)
    set_elements(event, basis, elements)
    members = {name: source.get(name) for name in IDENTIFYING.get(basis, ())}
    number = long_of(transaction.get("total_order"))
    if transaction.get("id") is not None and number is not None:
        members["transaction.id"] = transaction["id"]
        members["transaction.total_order"] = number
    event.identity = identity_of(members)
    event.database = _text(source.get("db")) or None
    _set_stream(event, source, basis)
    _set_transaction(event, _text(source.get("txId")), _text(transaction.get("id")), elements)


def _set_stream(event: Event, source: dict[str, Any], basis: str) -> None:
    """O11: whose the event is, and the element that never falls but by a new server."""
    connector, name = (_text(source.get(n)) for n in ("connector", "name"))
    if connector and name:
        database = (_text(source.get("db")) or "",) if basis == COMMIT_LSN else ()
        event.stream = (connector.lower(), name, *database)
    if basis in (BINLOG, COMMIT_LSN) and event.basis == basis:
        event.stream_element = event.elements
    commit = _commit_before(source.get("sequence")) if basis == "lsn" else None
    if commit is not None and commit > 0:
        event.stream_element = (commit,)


def _commit_before(sequence: Any) -> int | None:
    """The first element of PostgreSQL's `sequence` (O3)."""
    if not isinstance(sequence, str):
        return None
    try:
        listed = parse_json(sequence.encode())
    except ValueError:
        return None
    return long_of(listed[0]) if isinstance(listed, list) and listed else None


def identity_of(members: dict[str, Any]) -> dict[str, str]:
    texts = {name: _text(value) for name, value in members.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json_text(value)


def _set_transaction(
    event: Event, tx_id: str | None, transaction_id: str | None, elements: list[Any]
) -> None:
    """O7, O16: one of PostgreSQL's ids differs behind the colon within one transaction."""
    if event.connector == "postgresql" and transaction_id is not None:
        transaction_id = transaction_id.partition(":")[0]
    if event.connector in ("postgresql", "oracle"):
        event.tx_id = event.tx = transaction_id if tx_id is None else tx_id
        return
    event.tx_id = event.tx = transaction_id
    if CONNECTORS.get(event.connector or "") == COMMIT_LSN and any(elements):
        event.tx = json_text(elements)


# -- positions ------------------------------------------------------------------------------------


def end_of(day: date) -> int:
    """The last millisecond of a day."""
    return _start_ms(day + timedelta(days=1)) - 1


def set_positions(days: Iterable[tuple[date, list[Event]]]) -> None:
    """O4; None for snapshot reads and tombstones (O6)."""
    for day, events in days:
        _set_times(day, events)
        for event in events:
            has_own = event.destination == "changes" and not event.is_tombstone
            if has_own and not event.is_snapshot:
                event.position = _position(event)


def _position(event: Event) -> tuple[int, ...]:
    if event.basis == KAFKA_TIME:
        event.elements = (max(event.kafka_ms, 0),)
    half = () if event.half_element is None else (event.half_element,)
    place = 2 * (event.row_number or 0) + (1 if event.writes else 0)
    return (*event.elements, *half, *lane_of(event.record)[1:], offset_of(event.record), place)


def _set_times(day: date, events: list[Event]) -> None:
    """The Kafka timestamp, or what stands in for it; and as a position has it (O8): within the
    landing day, and at least that of every lower offset of the partition."""
    end = end_of(day)
    lanes: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        if not event.record.malformed_line:
            event.landed_ms = _landed_ms(event, day)
            lanes[lane_of(event.record)].append(event)
    for lane in lanes.values():
        highest: dict[int, int] = {}  # offset → the highest time there
        for event in lane:
            offset, time = offset_of(event.record), min(event.landed_ms, end)
            highest[offset] = max(time, highest.get(offset, time))
        for lower, offset in pairwise(sorted(highest)):
            highest[offset] = max(highest[offset], highest[lower])
        for event in lane:
            event.kafka_ms = highest[offset_of(event.record)]


def _landed_ms(event: Event, day: date) -> int:
    timestamp = event.record.timestamp_ms
    if timestamp is not None and timestamp >= 0:
        return timestamp
    return _start_ms(day) if event.processed_ts_ms is None else event.processed_ts_ms


def _start_ms(day: date) -> int:
    return instant_ms(day.isoformat())


def lane_of(record: Record) -> tuple[str, int]:
    return (record.topic or "", record.partition or 0)


def offset_of(record: Record) -> int:
    return record.offset or 0


def compared_elements(full_position: tuple[int, ...], basis: str) -> tuple[int, ...]:
    """What ties two events (O15): a Kafka timestamp that stands in is not compared."""
    behind = 4 if basis == KAFKA_TIME else 3  # partition, offset, place
    return full_position[:-behind]
