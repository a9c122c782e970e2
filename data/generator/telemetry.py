"""`telemetry`: sensors of cold stores, a Lindorm database that writes to Kafka itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .agenda import DAYS, HOUR, MINUTE, Script, Source, clock, scene
from .kafka import Json
from .wire import AWKWARD_TEXTS

Row = dict[str, Any]
Key = tuple[Any, ...]

SITES = ("Antwerp quay", "Osaka-北", "Tromsø", "مسقط")
SCENE_DEVICES = 8
DEVICE_TYPES = {
    "id": "string",
    "name": "string",
    "site": "string",
    "firmware": "string",
    "lat": "double",
    "active": "boolean",
    "serial": "int64",
}


class Table:
    """A Lindorm table; `types` gives the schema of its messages, none means `"schema":{}`."""

    def __init__(
        self, name: str, key: tuple[str, ...], types: dict[str, str] | None = None
    ) -> None:
        self.name, self.key, self.types = name, key, types
        self.rows: dict[Key, Row] = {}

    def key_of(self, row: Row) -> Key:
        return tuple(row[c] for c in self.key)

    def schema(self) -> Json:
        """The schema of the whole message: structs without names (L1)."""
        if self.types is None:
            return {}
        columns = [
            {"type": type_, "optional": name not in self.key, "field": name}
            for name, type_ in self.types.items()
        ]
        image = {"type": "struct", "fields": columns, "optional": True}
        text = {"type": "string", "optional": False}
        number = {"type": "int64", "optional": False}
        source = [text | {"field": name} for name in ("version", "db", "namespace", "table")]
        fields = [
            text | {"field": "op"},
            number | {"field": "ts_ms"},
            image | {"field": "before"},
            image | {"field": "after"},
            {
                "type": "struct",
                "fields": [*source, number | {"field": "ts_ms"}],
                "optional": False,
                "field": "source",
            },
        ]
        return {"type": "struct", "fields": fields, "optional": False}


class TelemetryWork(Source):
    """The tables and the sensors' everyday life."""

    name = "telemetry"
    seed = 20261102

    def __init__(self) -> None:
        super().__init__()
        self.devices = Table("devices", ("id",), dict(DEVICE_TYPES))
        self.readings = Table("readings", ("device_id", "ts"))
        self.jobs = Table("firmware_jobs", ("job",))
        self.held_up_until = 0

    # -- Lindorm

    def envelope(
        self, table: Table, op: str, before: Row | None, after: Row | None, at: int
    ) -> Row:
        """The payload of a change made at `at` ms (L2, L3)."""
        lag = min(4 + int(self.rng.expovariate(1 / 45)), 2_500)
        source = {"version": "v1.0", "db": "ld-coldstore", "namespace": "default"}
        return {
            "op": op,
            "ts_ms": max(at + lag, self.held_up_until),
            "before": before,
            "after": after,
            "source": source | {"table": table.name, "ts_ms": at},
        }

    def send(self, table: Table, payload: Row, key: Json = ...) -> None:
        """Writes a message: `payload` first, as Lindorm does (L1)."""
        row = payload.get("after") or payload.get("before") or {}
        if key is ...:
            key = {c: row.get(c) for c in table.key}
        ts = (payload.get("ts_ms") or self.now) + self.rng.randrange(1, 15)
        value = {"payload": payload, "schema": table.schema()}
        self.kafka.produce(f"telemetry.{table.name}", key, value, ts)

    def put(self, table: Table, row: Row, at: int = 0) -> None:
        """Inserts or updates a row."""
        key = table.key_of(row)
        before = table.rows.get(key)
        table.rows[key] = row
        self.send(table, self.envelope(table, "u" if before else "c", before, row, at or self.now))

    def change(self, device: str, at: int = 0, **new: Any) -> None:
        self.put(self.devices, self.devices.rows[device,] | new, at)

    def remove(self, table: Table, key: Key) -> None:
        before = table.rows.pop(key)
        self.send(table, self.envelope(table, "d", before, None, self.now))

    # -- the sensors

    def new_device(self, number: int) -> Row:
        rng = self.rng
        row = {
            "id": device_id(number),
            "name": rng.choice(AWKWARD_TEXTS),
            "site": rng.choice(SITES),
            "firmware": rng.choice(("2.1", "2.2-rc1")),
            "lat": rng.randrange(-9_000, 9_000) / 100,
            "active": rng.random() < 0.9,
            # Beyond what a double holds exactly.
            "serial": 2**53 + 2 * rng.randrange(10_000) + 1,
        }
        return {name: value for name, value in row.items() if name in (self.devices.types or {})}

    def background(self) -> list[tuple[int, Script]]:
        work: list[tuple[int, Script]] = [(clock("1 00:10"), self._install)]
        for day in range(1, DAYS + 1):
            work += [(at, self._measure) for at in self._even_times(day, 150)]
            work += [(at, self._edit) for at in self.office_times(day, 22)]
        return work

    def _even_times(self, day: int, number: int) -> list[int]:
        start = clock(f"{day} 00:30")
        return sorted(start + self.rng.randrange(23 * HOUR) for _ in range(number))

    def _install(self) -> None:
        for number in range(1, 37):
            self.put(self.devices, self.new_device(number), self.now + number * 40)

    def _measure(self) -> None:
        rng = self.rng
        row = {
            "device_id": device_id(rng.randrange(1, 37)),
            "ts": self.now - rng.randrange(200),
            "celsius": rng.choice((None, rng.randrange(-400, 100) / 10)),
            "humidity": rng.randrange(1_000) / 10,
            "battery": rng.randrange(101),
            "counter": 2**53 + rng.randrange(1, 10**6),
        }
        self.put(self.readings, row)

    def _edit(self) -> None:
        rng = self.rng
        if rng.random() < 0.4:
            old = self.readings.rows[rng.choice(list(self.readings.rows))]
            self.put(self.readings, old | {"celsius": rng.randrange(-400, 100) / 10})
        elif rng.random() < 0.3 and len(self.readings.rows) > 60:
            self.remove(self.readings, next(iter(self.readings.rows)))
        else:
            device = rng.choice([d for (d,) in self.devices.rows if d > device_id(SCENE_DEVICES)])
            self.change(device, active=rng.random() < 0.8, name=rng.choice(AWKWARD_TEXTS))


class Telemetry(TelemetryWork):
    """The scenes; devices 1 to 8 (and 90 up) are changed here only."""

    @scene("2 10:00", "O9", "Two updates of dev-003 in one millisecond: the higher offset wins")
    def tie_in_a_millisecond(self) -> None:
        # O9
        self.change("dev-003", name="first of two")
        self.change("dev-003", name="second of two")

    @scene(
        "3 11:00",
        "O8 O13",
        "An update of dev-004 that is a minute older than what has landed, with a later `ts_ms`",
    )
    def older_event_after_newer(self) -> None:
        # O8, O13
        row = dict(self.devices.rows["dev-004",])
        self.change("dev-004", name="newer")
        older = self.envelope(self.devices, "u", row, row | {"name": "older"}, self.now - MINUTE)
        self.send(self.devices, older | {"ts_ms": self.now + 5_000})

    @scene(
        "3 15:00",
        "O12",
        "dev-005 is deleted; on day 4 an update from before lands; on day 5 it is created anew",
    )
    def late_update_after_a_delete(self) -> Iterator[str]:
        # O12
        row = dict(self.devices.rows["dev-005",])
        late = self.envelope(self.devices, "u", row, row | {"name": "too late"}, self.now - 400)
        self.remove(self.devices, ("dev-005",))
        yield "4 07:00"
        self.send(self.devices, late | {"ts_ms": self.now})
        yield "5 07:00"
        self.put(self.devices, self.new_device(5))

    @scene(
        "4 09:00",
        "L4 R1",
        "Column firmware is dropped: an update of dev-001 whose `after` lacks it, then "
        "every message",
    )
    def dropped_column(self) -> None:
        # L4, R1
        assert self.devices.types
        before = dict(self.devices.rows["dev-001",])
        payload = self.envelope(self.devices, "u", before, None, self.now)
        del self.devices.types["firmware"]
        for row in self.devices.rows.values():
            row.pop("firmware")
        self.send(self.devices, payload | {"after": dict(self.devices.rows["dev-001",])})

    @scene("5 12:00", "D10", "An update whose `before` has another key: dev-006 becomes dev-096")
    def update_of_the_key(self) -> None:
        # D10
        before = self.devices.rows.pop(("dev-006",))
        after = before | {"id": "dev-096"}
        self.devices.rows["dev-096",] = after
        self.send(self.devices, self.envelope(self.devices, "u", before, after, self.now))

    @scene("6 12:00", "D6", "dev-007: the message key is a bare text, then empty")
    def keys_in_other_forms(self) -> None:
        # D6
        for name, key in (("bare key", '"dev-007"'), ("empty key", "")):
            before = self.devices.rows["dev-007",]
            after = self.devices.rows["dev-007",] = before | {"name": name}
            self.send(self.devices, self.envelope(self.devices, "u", before, after, self.now), key)

    @scene("5 14:00", "G1", "Lindorm's export is stalled for four minutes")
    def burst_of_lag(self) -> Iterator[str]:
        # G1
        self.held_up_until = clock("5 14:04")
        for minute in range(4):
            for second in range(10, 60, 10):
                self.change("dev-002", active=second % 20 == 0)
                yield f"5 14:{minute:02}:{second}"
        self.held_up_until = 0

    @scene("2 16:00", "D5", "Table default.firmware_jobs, which is not configured")
    def table_not_configured(self) -> Iterator[str]:
        # D5
        self.put(self.jobs, {"job": 1, "state": "queued"})
        self.put(self.jobs, {"job": 2, "state": "queued"})
        yield "3 16:00"
        self.put(self.jobs, {"job": 1, "state": "done"})
        self.remove(self.jobs, (2,))

    # -- records that must be quarantined

    def _event(self, op: Any = "c", **given: Any) -> Row:
        row = self.new_device(900) | given
        return self.envelope(self.devices, op, None, row, self.now)

    def _raw(self, table: str, value: Any, key: Any = None) -> None:
        self.kafka.produce(f"telemetry.{table}", key, value, self.now + 20)

    @scene(
        "3 08:00",
        "malformed_landing_line",
        "An empty JSON object and half a line as landed lines",
    )
    def lines_that_are_no_records(self) -> Iterator[str]:
        self.kafka.stray_line("{}")
        yield "5 08:00"
        self.kafka.stray_line('{"topic":"telemetry.readings","partition":0,"offs')

    @scene("4 10:00", "D17 registry_encoded", "0x00 and a schema id before the bytes")
    def registry_encoded(self) -> None:
        # D17
        self._raw("readings", b"\x00\x00\x00\x00\x07\x0edev-001\xc8\xff")

    @scene("2 08:00", "D19 malformed_json", "A value cut off; a trailing comma; NaN")
    def not_json(self) -> Iterator[str]:
        # D19
        self._raw("readings", '{"payload":{"op":"c","ts_ms":17', "{}")
        yield "5 08:10"
        self._raw("devices", '{"payload":{"op":"c","after":{"id":"dev-900"},},"schema":{}}')
        self._raw("readings", '{"payload":{"op":"c","after":{"celsius":NaN}},"schema":{}}')

    @scene("1 09:00", "not_an_envelope", "A ping; a text")
    def no_envelope(self) -> Iterator[str]:
        self._raw("readings", {"ping": 1})
        yield "5 08:20"
        self._raw("devices", '"dev-900 is back"')

    @scene("3 08:20", "missing_op", "`op` absent; `op` null")
    def no_op(self) -> Iterator[str]:
        # D3
        payload = self._event()
        del payload["op"]
        self.send(self.devices, payload)
        yield "5 08:30"
        self.send(self.devices, self._event(None))

    @scene("4 10:10", "unknown_op", "`op` is U; `op` is upsert")
    def other_op(self) -> Iterator[str]:
        # D3
        self.send(self.devices, self._event("U"))
        yield "6 10:10"
        self.send(self.devices, self._event("upsert"))

    @scene(
        "3 08:30",
        "L2 missing_table",
        "A source without names; a source with a namespace only",
    )
    def no_table(self) -> Iterator[str]:
        # L2
        self.send(self.devices, self._event() | {"source": {}})
        yield "6 10:20"
        only_space = {"version": "v1.0", "namespace": "default", "ts_ms": self.now}
        self.send(self.devices, self._event() | {"source": only_space})

    @scene("6 10:30", "missing_image", "c whose `after` is null; c without `after`")
    def no_image(self) -> None:
        # D3
        self.send(self.devices, self._event() | {"after": None}, {"id": "dev-900"})
        payload = self._event()
        del payload["after"]
        self.send(self.devices, payload, {"id": "dev-900"})

    @scene(
        "4 10:20",
        "D6 malformed_key",
        "id is null in key and value; the key is garbage and the value lacks `ts`",
    )
    def unreadable_key(self) -> Iterator[str]:
        # D6
        self.send(self.devices, self._event(id=None))
        yield "6 10:40"
        payload = self.envelope(self.readings, "c", None, {"device_id": "dev-900"}, self.now)
        self.send(self.readings, payload, "dev-900;")

    @scene("2 08:30", "D5 missing_key", "No message key, and `after` has no `ts`; no id anywhere")
    def no_key(self) -> Iterator[str]:
        # D5
        payload = self.envelope(self.readings, "c", None, {"device_id": "dev-900"}, self.now)
        self.send(self.readings, payload, None)
        yield "3 08:40"
        nameless = self._event()
        del nameless["after"]["id"]
        self.send(self.devices, nameless, None)


def device_id(number: int) -> str:
    """The id of the nth device; ids sort as numbers do."""
    return f"dev-{number:03}"
