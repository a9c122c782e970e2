"""Positions: the order of a table's events (O1–O11)."""

from __future__ import annotations

import re
from typing import Any

from cdc_assets_tests.model.documents import instant_ms, long_of
from cdc_assets_tests.model.records import Event

CONNECTORS = {  # O8
    "postgresql": "lsn",
    "mysql": "binlog",
    "mariadb": "binlog",
    "sqlserver": "commit_lsn",
    "db2": "commit_lsn",
    "informix": "commit_lsn",
    "oracle": "scn",
    "ticdc": "commit_ts",
    "mongodb": "ord",
}
SOURCE_TIME = "time"
BASIS_NAMES = {  # as `changes` calls them: two that are as frequent are told apart by name
    "ts_micro": "ts_micro",
    "lsn": "lsn",
    "binlog": "file,pos,row",
    "commit_lsn": "commit_lsn,change_lsn,event_serial_no",
    "scn": "commit_scn,scn,ssn",
    "commit_ts": "commit_ts",
    "ord": "ts_ms,ord",
    "sequenceId": "sequenceId",
    "position": "position,xoffset",
    "pos": "pos",
    SOURCE_TIME: "ts_ms",
}


def source_elements(source: dict[str, Any]) -> tuple[str, list[Any]]:
    """O8. The connector decides the shape, never the single event (O4)."""
    basis = CONNECTORS.get(str(source.get("connector")).lower(), SOURCE_TIME)
    if basis == "binlog":
        file = source.get("file")  # a number is no file's name
        number = re.search(r"\d+$", file, re.ASCII) if isinstance(file, str) else None
        elements = [number[0] if number else None, source.get("pos"), source.get("row")]
    elif basis == "commit_lsn":
        parts = (*_lsn_parts(source.get("commit_lsn")), *_lsn_parts(source.get("change_lsn")))
        elements = [*parts, source.get("event_serial_no")]
    else:
        members = {
            "lsn": ["lsn"],
            "scn": ["commit_scn", "scn", "ssn"],
            "commit_ts": ["commit_ts"],
            "ord": ["ts_ms", "ord"],
            SOURCE_TIME: ["ts_ms"],
        }
        elements = [source.get(name) for name in members[basis]]
    return basis, elements


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
    """O8: where all are absent or 0 the source's time stands in."""
    numbers = [long_of(element) for element in elements]
    event.own_elements = tuple(numbers)
    event.has_elements = any(number is not None for number in numbers)
    event.basis, event.elements = basis, tuple(max(number or 0, 0) for number in numbers)
    if not any(event.elements):
        event.basis, event.elements = SOURCE_TIME, (max(event.source_ts_ms or 0, 0),)


def set_position(source: dict[str, Any], event: Event) -> None:
    """O4; None for snapshot reads (O6)."""
    if event.is_snapshot or event.destination != "changes":
        return
    record = event.record
    timestamp = record.timestamp_ms
    resets = [instant_ms(instant) for instant in source.get("position_reset") or []]
    epoch = sum(1 for reset in resets if timestamp is not None and timestamp >= reset)  # O11
    # O4: the half of a change that takes a row away while its other half writes one.
    is_left = event.op == "d" and any(name == "__debezium.newkey" for name, _ in record.headers)
    rank = 0 if is_left or event.half == "before" else 1
    kafka = (record.partition or 0, record.offset or 0)
    event.position = (epoch, *event.elements, event.total_order, rank, *kafka)
