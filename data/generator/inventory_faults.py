"""`inventory`: records that must be quarantined, and what they leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .agenda import scene
from .inventory_scenes import InventoryScenes
from .kafka import Record, compact
from .landed import kcat_line, spark_line
from .postgres import Change, Row
from .wire import long_text, zoned

CUSTOMERS, ORDERS = "inventory.public.customers", "inventory.public.orders"
OTHER, MESSAGES = "inventory.other", "inventory.message"


class Inventory(InventoryScenes):
    """One scene for each reason code. The rows named here (9001 and up) exist nowhere else."""

    def _event(self, number: int, op: str = "c", **given: Any) -> Row:
        """The payload of an event on customer `number`."""
        row = self.new_customer(number, **given)
        if any(c.name == "phone" for c in self.customers.columns):
            row["phone"] = None
        lsn = self.db.advance()
        sequence = compact([str(lsn - 96), str(lsn)])
        images = (None, row, lsn, 1, 0, sequence)
        change = Change(op, self.customers, (number,), *images, commit_ms=self.now)
        return self.db.payload(change, self.now + 40)

    def _raw(self, topic: str, key: Any, value: Any) -> Record:
        return self.kafka.produce(topic, key, value, self.now + 60)

    def _customer_key(self, number: int) -> Any:
        return self.db.key(self.customers, (number,))

    def _wrapped(self, payload: Row) -> Any:
        return self.db.wrap(self.db.value_schema(self.customers), payload)

    @scene(
        "2 08:00",
        "malformed_landing_line",
        "A landed line cut short, a log line of kcat, JSON that is no record",
    )
    def lines_that_are_no_records(self) -> Iterator[str]:
        last = self._record_of_today()
        self.kafka.stray_line(spark_line(last)[:170])
        yield "4 08:00"
        self.kafka.stray_line("% Reached end of topic inventory.public.orders [0] at offset 261")
        yield "6 08:00"
        self.kafka.stray_line('["a","list","is","no","record"]')
        self.kafka.stray_line(kcat_line(self._record_of_today())[:90])

    def _record_of_today(self) -> Record:
        records = [r for r in self.kafka.landed[self.kafka.day] if isinstance(r, Record)]
        return next(r for r in reversed(records) if r.topic == CUSTOMERS)

    @scene(
        "2 13:00",
        "D17 registry_encoded",
        "Records of a producer with a schema registry: 0x00, a 4-byte id, Avro",
    )
    def registry_encoded(self) -> Iterator[str]:
        # D17
        magic = b"\x00\x00\x00\x01\x2a"
        self._raw(
            CUSTOMERS, magic + b"\x02\x92\x8c\x01", magic + b"\x00\x02\x92\x8c\x01\x0aOlive\xff\xfe"
        )
        yield "3 13:00"
        self._raw(
            CUSTOMERS, magic + b"\x02\x94\x8c\x01", magic + b"\x00\x02\x94\x8c\x01\x08Remy\xe9"
        )
        yield "5 13:00"
        self._raw(ORDERS, self.db.key(self.orders, (9_003,)), magic + b'{"op":"c"}')

    @scene(
        "1 10:00",
        "D19 malformed_json",
        "Missing comma after `sequence`, missing comma before `message`, invalid UTF-8,"
        " trailing text, single quotes, a name twice, 5,000 levels",
    )
    def not_json(self) -> Iterator[str]:
        # D19
        text = compact(self._wrapped(self._event(9_001)))
        self._raw(
            CUSTOMERS,
            self._customer_key(9_001),
            text.replace(',"schema":"public"', '"schema":"public"'),
        )
        yield "2 13:10"
        row = self._event(9_002, notes="caf\u00e9")
        broken = compact(self._wrapped(row)).encode().replace("é".encode(), b"\xe9")
        self._raw(CUSTOMERS, self._customer_key(9_002), broken)
        yield "3 13:10"
        self._raw(
            CUSTOMERS,
            self._customer_key(9_004),
            compact(self._wrapped(self._event(9_004))) + " EOF",
        )
        yield "4 13:10"
        single = compact(self._event(9_005, notes=None, profile=None)).replace('"', "'")
        self._raw(CUSTOMERS, self._customer_key(9_005), single)
        yield "5 13:10"
        twice = compact(self._event(9_006)).replace('"op":"c"', '"op":"c","op":"d"')
        self._raw(CUSTOMERS, self._customer_key(9_006), twice)
        self._raw(CUSTOMERS, self._customer_key(9_006), "[" * 5_000 + "]" * 5_000)
        yield "6 13:10"
        message = (
            '{"source":{"version":"3.0.2.Final","connector":"postgresql","schema":"","table":""},'
        )
        self._raw(
            MESSAGES, None, message + '"op":"m","ts_ms":1793970600000"message":{"prefix":"foo"}}'
        )

    @scene(
        "2 13:20",
        "D18 not_an_envelope",
        "A flattened record, a greeting, a number, an empty object",
    )
    def no_envelope(self) -> Iterator[str]:
        # D18
        flat = self.new_customer(9_007) | {
            "__op": "c",
            "__deleted": "false",
            "__source_ts_ms": self.now,
        }
        self._raw(CUSTOMERS, self._customer_key(9_007), flat)
        yield "4 13:20"
        self._raw(ORDERS, {"order_id": 9_008}, {"hello": "orders"})
        yield "5 13:20"
        self._raw(ORDERS, {"order_id": 9_008}, "42")
        self._raw(ORDERS, {"order_id": 9_008}, {})

    @scene("2 13:30", "missing_op", "`op` is absent, `op` is null")
    def no_op(self) -> Iterator[str]:
        # D3
        payload = self._event(9_009)
        del payload["op"]
        self._raw(CUSTOMERS, self._customer_key(9_009), self._wrapped(payload))
        yield "4 13:30"
        self._raw(
            CUSTOMERS, self._customer_key(9_009), self._wrapped(self._event(9_009) | {"op": None})
        )

    @scene("3 13:30", "unknown_op", "`op` is x, `op` is C")
    def other_op(self) -> Iterator[str]:
        # D3
        self._raw(CUSTOMERS, self._customer_key(9_010), self._wrapped(self._event(9_010, "x")))
        yield "6 13:30"
        self._raw(CUSTOMERS, self._customer_key(9_010), self._wrapped(self._event(9_010, "C")))

    @scene(
        "3 18:00",
        "D11 D4 missing_table",
        "A lone tombstone on a topic of two tables; a source without table",
    )
    def no_table(self) -> Iterator[str]:
        # D4, D11
        self._raw(OTHER, {"code": "SPRING"}, None)
        yield "4 13:40"
        payload = self._event(9_011)
        payload["source"] |= {"schema": None, "table": None}
        self._raw(OTHER, self._customer_key(9_011), self._wrapped(payload))

    @scene("3 13:50", "D3 missing_image", "c without `after`, r with `after` null")
    def no_image(self) -> Iterator[str]:
        # D3
        payload = self._event(9_012)
        del payload["after"]
        self._raw(CUSTOMERS, self._customer_key(9_012), self._wrapped(payload))
        yield "5 13:50"
        self._raw(
            CUSTOMERS,
            self._customer_key(9_013),
            self._wrapped(self._event(9_013, "r") | {"after": None}),
        )

    @scene(
        "2 14:00",
        "D6 malformed_key",
        "A delete with half a key and no images; an update whose id is null in key and value",
    )
    def unreadable_key(self) -> Iterator[str]:
        # D6
        self._raw(CUSTOMERS, '{"id":90', self._wrapped(self._event(9_014, "d") | {"after": None}))
        yield "5 14:00"
        self._raw(CUSTOMERS, {"id": None}, self._wrapped(self._event(9_015, "u", id=None)))

    @scene(
        "3 14:10",
        "D5 D7 O14 missing_key",
        "An order without message key, an update in audit_log, a delete that has its "
        "key in `before` only",
    )
    def no_key(self) -> Iterator[str]:
        # D5, D7, O14
        order = self.new_order(9_016, self.now, 41)
        self._produce_keyless("c", self.orders, None, order)
        yield "4 14:40"
        self._produce_keyless("u", self.audit, None, self.audit_row("edited", self.now))
        yield "6 14:10"
        before = self.customers.old_image(self.new_customer(9_017) | {"phone": None})
        self._produce_keyless("d", self.customers, before, None)

    def _produce_keyless(self, op: str, table: Any, before: Row | None, after: Row | None) -> None:
        lsn = self.db.advance()
        change = Change(op, table, None, before, after, lsn, 1, commit_ms=self.now)
        self._produce(change, self.db.payload(change, self.now + 50), None)

    @scene(
        "5 15:00",
        "R2 malformed_json",
        "Customer 35: its c is cut off, then updates send a placeholder for a note that"
        " nobody has seen",
    )
    def placeholder_without_a_known_value(self) -> Iterator[str]:
        # R2
        row = self.new_customer(35, notes=long_text("Customer 35")) | {"phone": None}
        tx = self.db.begin()
        tx.insert(self.customers, row)
        (change,) = self.db.commit(tx, self.now, deliver=False)
        text = compact(self._wrapped(self.db.payload(change, self.now + 30)))
        self._raw(CUSTOMERS, self._customer_key(35), text[: len(text) * 9 // 10])
        self._change_customer(35, status="active")
        yield "6 15:00"
        self._change_customer(35, score=35.0, updated_at=zoned(self.now))
