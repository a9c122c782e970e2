"""What landed for one table, and how it is shown."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from cdc_assets_tests import events as ev
from cdc_assets_tests.events import TOAST
from cdc_assets_tests.model import Landed, Record

DAYS = [ev.DAY + timedelta(days=n) for n in range(int(os.environ.get("CDC_WORLD_DAYS", "4")))]


_REPLACED = {"on_resnapshot": "replace", "resnapshot_remove_percent": 100}


@dataclass(frozen=True)
class Settings:
    """What the worlds of one source share: how cdc.yaml sets the source."""

    format: str
    late_days: int
    missing_columns: str = "null"
    position_reset: tuple[str, ...] = ()
    registry: str | None = None  # of which kind the schemas are that its records are written with
    connector: str | None = None  # where all its worlds have the same
    flattening: tuple[tuple[str, Any], ...] = ()  # what debezium-flat asks for beside
    servers: bool = False  # others take over in its worlds
    several_databases: bool = False  # its connector reads two
    in_three_parts: bool = False  # and cdc.yaml names them
    on_drop: str = "keep"  # with `empty` truncates are statements, too
    retyped: bool = False  # a column of integers becomes text in its worlds
    leaves: bool = False  # its tables come as two that go into one (R8)
    reread: bool = False  # its tables are snapshotted again, and rows go unseen before (R7)
    own_values: bool = False  # cells of YugabyteDB, ids of MongoDB of all kinds, Canal's labels

    def options(self) -> dict[str, Any]:
        """As members of the source in cdc.yaml."""
        flattening = {n: list(v) if isinstance(v, tuple) else v for n, v in self.flattening}
        return {
            "late_days": self.late_days,
            "missing_columns": self.missing_columns,
            "position_reset": list(self.position_reset) or "auto",
            "on_drop": self.on_drop,
            **flattening,
            **(_REPLACED if self.reread else {}),
        }


@dataclass(frozen=True)
class World:
    """One table's story: its settings in cdc.yaml, and what landed, in the order of landing."""

    name: str
    settings: Settings
    table: str
    config: dict[str, Any]
    landed: dict[date, tuple[Record, ...]]

    @property
    def configured(self) -> str:
        """The table as cdc.yaml names it."""
        return self.table.replace("__", ".", 1) if self.settings.in_three_parts else self.table

    @property
    def start(self) -> date:
        """The first day of the table."""
        start: date = self.config["start_date"]
        return start

    @property
    def records(self) -> list[tuple[date, Record]]:
        return [(day, record) for day, records in self.landed.items() for record in records]

    def landing(self) -> Landed:
        """All days, also those on which nothing landed."""
        return {day: list(self.landed.get(day, ())) for day in DAYS}

    @property
    def families(self) -> list[int]:
        """The families of which something landed."""
        found = {family_of(record) for _, record in self.records}
        return sorted(family for family in found if family is not None)

    def of(self, records: Iterable[tuple[date, Record]], name: str) -> World:
        """The same world under another name, of a length that is the same, with these records."""
        assert len(name) == len(self.name)
        landed: dict[date, list[Record]] = {day: [] for day in DAYS}
        for day, record in records:
            landed[day].append(_renamed(record, self.name, name))
        return World(
            name,
            self.settings,
            self.table.replace(self.name, name),
            self.config,
            {day: tuple(of_day) for day, of_day in landed.items()},
        )

    def __str__(self) -> str:
        source = {"format": self.settings.format, **self.settings.options()}
        if self.settings.registry is not None:
            source["registry"] = self.settings.registry
        lines = [f"world {self.name}: {json.dumps(source)}", f"  {self.table}: {self.config}"]
        for day in DAYS:
            lines += [f"  {day}", *(f"    {compact(r)}" for r in self.landed.get(day, ()))]
        return "\n".join(lines)


def family_of(record: Record) -> int | None:
    """The family of the key that a record is about; None for a truncate and the like."""
    sent = (record.key or b"") + (record.value or b"")
    found = re.search(rb'"(?:pk\.)?id":(?:\{"value":)?"?(?:\\")?k?(\d+)', sent)
    return int(found[1]) // 10 if found else None


def landing_lines(landed: Mapping[date, Iterable[Record]]) -> list[str]:
    """The lines of a golden case's ``landing.jsonl``."""
    return [
        json.dumps({"landing_date": str(day), **json.loads(ev.kcat_line(record))})
        for day, records in landed.items()
        for record in records
        if not record.malformed_line
    ]


def _renamed(record: Record, old: str, new: str) -> Record:
    def text(data: bytes | None) -> bytes | None:
        return data and data.replace(old.encode(), new.encode())

    topic = record.topic and record.topic.replace(old, new)
    headers = tuple((name, text(value)) for name, value in record.headers)
    sent = {"value": text(record.value), "key": text(record.key), "headers": headers}
    return replace(record, topic=topic, **sent)


SHOWN = ("lsn", "pos", "commit_lsn", "scn", "commit_ts", "ts_micro")
IDENTIFYING = ("change_lsn", "rs_id", "row", "ord")


def compact(record: Record) -> str:
    """A record as a line that a person reads: place, key, and of the value what tells it apart."""
    place = f"{record.partition}:{record.offset}"
    key = (record.key or b"").decode("utf-8", "replace")
    headers = {n: (v or b"").decode() for n, v in record.headers}
    try:
        value = json.loads(record.value or b"null")
        payload = value.get("payload", value)
        source = payload.get("source") or {}
        told = (source.get(name) for name in SHOWN)
        position = next((place for place in told if place), None) or payload.get("sequenceId")
        at = position or source.get("ts_ms")
        number = next((source[n] for n in IDENTIFYING if source.get(n) is not None), None)
        at = at if number is None else f"{at}#{number}"
        at = at if source.get("txId") is None else f"{at} tx={source['txId']}"
        images = f"before={_image(payload.get('before'))} after={_image(payload.get('after'))}"
        types = "" if value is payload or not value.get("schema") else " schema"
        snapshot = source.get("snapshot")
        mark = f" snapshot={snapshot}" if snapshot not in (None, "false", False) else ""
        order = ":".join(str(v) for v in (payload.get("transaction") or {}).values())
        body = f"{payload.get('op')} @{at}{order and f'/{order}'} {images}"
        body += types + mark
        if "op" not in payload:
            body = _image(payload) + types
    except (ValueError, AttributeError):
        body = repr(record.value)
    return f"{place} {key} {body}{f' {headers}' if headers else ''}"


def _image(image: Any) -> str:
    row = image.get("dataColumn", image) if isinstance(image, dict) else image
    return json.dumps(row).replace(TOAST, "~")
