"""`inventory`: a hardware shop's PostgreSQL database through Debezium; its everyday work."""

from __future__ import annotations

from typing import Any, ClassVar

from .agenda import DAYS, HOUR, Script, Source, clock
from .postgres import Column, Key, Postgres, Row, Table, Transaction, decimal_column
from .wire import (
    AWKWARD_TEXTS,
    base64_text,
    decimal,
    epoch_days,
    json_text,
    long_text,
    random_uuid,
    zoned,
)

FIRST_NAMES = (
    "Ottilie",
    "Bram",
    "Yuki",
    "美玲",
    "Tariq",
    "Saoirse",
    "Ngozi",
    "Élodie",
    "Zsófia",
    "نور",
)
LAST_NAMES = ("Vantongeren", "O'Dowd", "Sato", "陈", "Al-Rashid", "Adeyemi", "Lefèvre", "Kővári")
STATES = ("prospect", "active", "blocked")
SKUS = tuple(f"{kind}-{size}" for kind in ("BOLT", "HINGE", "SAW", "ROPE") for size in (4, 6, 10))
ACTIONS = ("login", "export", "refund", "price-change")

# Rows up to these numbers change in scripted scenes only, so that a scene can be followed.
SCENE_CUSTOMERS = 40
FREE_CUSTOMERS = range(31, 41)
SCENE_ORDERS = 5_010
SCENE_PRICES = 4

DATE, TIME = "io.debezium.time.Date", "io.debezium.time.Time"
TIMESTAMP, MICRO_TIMESTAMP = "io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp"


def _tables() -> tuple[Table, ...]:
    return (
        Table(
            "customers",
            [
                Column("id", "int32", required=True),
                Column("first_name", "string", required=True),
                Column("last_name", "string", required=True),
                Column("email", "string"),
                Column("external_id", "string", "io.debezium.data.Uuid"),
                decimal_column("credit_limit", 12, 2),
                Column("birth_date", "int32", DATE),
                Column(
                    "status",
                    "string",
                    "io.debezium.data.Enum",
                    required=True,
                    parameters=(("allowed", ",".join(STATES)),),
                ),
                Column("newsletter", "boolean", required=True),
                Column("score", "double"),
                Column("notes", "string"),
                Column("profile", "string", "io.debezium.data.Json"),
                Column("photo_hash", "bytes"),
                Column("created_at", "int64", MICRO_TIMESTAMP, required=True),
                Column("updated_at", "string", "io.debezium.time.ZonedTimestamp"),
            ],
            key=("id",),
        ),
        Table(
            "orders",
            [
                Column("order_id", "int64", required=True),
                Column("customer_id", "int32"),
                Column("ordered_at", "int64", TIMESTAMP, required=True),
                Column("delivery_date", "int32", DATE),
                Column("pickup_from", "int64", "io.debezium.time.MicroTime"),
                decimal_column("total", 14, 2),
                Column("currency", "string", required=True),
                Column("paid", "boolean", required=True),
                Column("comment", "string"),
            ],
            key=("order_id",),
            full_identity=True,
        ),
        Table(
            "order_items",
            [
                Column("order_id", "int64", required=True),
                Column("line_no", "int16", required=True),
                Column("sku", "string", required=True),
                Column("quantity", "int32", required=True),
                decimal_column("unit_price", 10, 4),
                Column("discount", "double"),
                Column("weight_kg", "float"),
            ],
            key=("order_id", "line_no"),
        ),
        Table(
            "audit_log",
            [
                Column("logged_at", "int64", MICRO_TIMESTAMP, required=True),
                Column("actor", "string", required=True),
                Column("action", "string", required=True),
                Column("detail", "string", "io.debezium.data.Json"),
            ],
        ),
        Table(
            "price.list",
            [
                Column("order", "int32", required=True),
                decimal_column("value", 10, 2),
                Column("a.b", "string"),
                Column("op", "string"),
                Column("schema", "string"),
                Column("payload", "string"),
                Column("valid from", "int32", DATE),
                Column("opens", "int32", TIME),
            ],
            key=("order",),
        ),
        Table(
            "stock_moves",
            [
                Column("move_id", "int64", required=True),
                Column("sku", "string", required=True),
                Column("moved", "int32", required=True),
            ],
            key=("move_id",),
            topic="inventory.other",
        ),
        Table(
            "coupons",
            [Column("code", "string", required=True), Column("percent", "int32")],
            key=("code",),
            topic="inventory.other",
        ),
    )


class InventoryWork(Source):
    """The tables, their first rows, and what the shop does all day."""

    name = "inventory"
    seed = 20261101
    partitions: ClassVar[dict[str, int]] = {"inventory.public.customers": 3}

    def __init__(self) -> None:
        super().__init__()
        self.db = Postgres(self.kafka, self.rng, "inventory", first_lsn=26_843_545_600)
        self.all_tables = _tables()
        self.customers, self.orders, self.items, self.audit, self.prices = self.all_tables[:5]
        self.moves, self.coupons = self.all_tables[5:]
        self._fill()

    # -- the rows at the start

    def _fill(self) -> None:
        for number in (n for n in range(1, 181) if n not in FREE_CUSTOMERS):
            self.customers.rows[number,] = self.new_customer(number)
        for number in range(5_001, 5_141):
            self._fill_order(number)
        for _ in range(30):
            row = self.audit_row(self.rng.choice(ACTIONS), clock("1 00:00"))
            self.audit.rows[self.audit.key_of(row)] = row
        for number in range(1, 17):
            self.prices.rows[number,] = self.new_price(number)

    def _fill_order(self, number: int) -> None:
        placed = clock("1 00:00") - self.rng.randrange(30 * 24 * HOUR)
        order = self.new_order(number, placed, self.rng.randrange(41, 181))
        self.orders.rows[number,] = order
        for line in range(1, self.rng.randrange(2, 4)):
            self.items.rows[number, line] = self.new_item(number, line)

    def new_customer(self, number: int, **given: Any) -> Row:
        rng = self.rng
        first, last = rng.choice(FIRST_NAMES), rng.choice(LAST_NAMES)
        created = clock("1 00:00") - rng.randrange(900 * 24 * HOUR)
        row = {
            "id": number,
            "first_name": first,
            "last_name": last,
            "email": rng.choice((None, f"c{number}@mail.example", f"c{number}@post.example")),
            "external_id": random_uuid(rng),
            "credit_limit": decimal(f"{rng.randrange(-50_000, 900_000) / 100:.2f}", 2),
            "birth_date": epoch_days("1931-05-17") + rng.randrange(27_000),
            "status": rng.choice(STATES),
            "newsletter": rng.random() < 0.4,
            "score": rng.choice((None, rng.randrange(1_000) / 8)),
            "notes": self._note(number),
            "profile": json_text(
                {"lang": rng.choice(("en", "zh", "ar")), "tags": [rng.choice(SKUS)]}
            ),
            "photo_hash": base64_text(rng.randbytes(8)) if rng.random() < 0.3 else None,
            "created_at": created * 1_000 + rng.randrange(1_000),
            "updated_at": zoned(created),
        }
        return row | given

    def _note(self, number: int) -> str | None:
        if number % 9 == 7:
            return long_text(f"Customer {number}")
        return self.rng.choice(AWKWARD_TEXTS) if self.rng.random() < 0.5 else None

    def new_order(self, number: int, placed: int, customer: int) -> Row:
        rng = self.rng
        today = placed // (24 * HOUR)
        return {
            "order_id": number,
            "customer_id": customer,
            "ordered_at": placed,
            "delivery_date": rng.choice((None, today + rng.randrange(1, 9))),
            "pickup_from": rng.choice((None, rng.randrange(8, 18) * HOUR * 1_000)),
            "total": decimal(f"{rng.randrange(500, 4_000_000) / 100:.2f}", 2),
            "currency": rng.choice(("EUR", "JPY", "GBP")),
            "paid": False,
            "comment": rng.choice(AWKWARD_TEXTS) if rng.random() < 0.3 else None,
        }

    def new_item(self, order: int, line: int) -> Row:
        rng = self.rng
        return {
            "order_id": order,
            "line_no": line,
            "sku": rng.choice(SKUS),
            "quantity": rng.randrange(1, 40),
            "unit_price": decimal(f"{rng.randrange(1, 900_000) / 10_000:.4f}", 4),
            "discount": rng.choice((None, 0.05, 0.125)),
            "weight_kg": rng.choice((None, 0.5, 2.25, 1e-07)),
        }

    def audit_row(self, action: str, at: int, detail: Any = None) -> Row:
        return {
            "logged_at": at * 1_000 + self.rng.randrange(1_000),
            "actor": f"clerk{self.rng.randrange(1, 6)}",
            "action": action,
            "detail": json_text(detail) if detail else None,
        }

    def new_price(self, number: int) -> Row:
        rng = self.rng
        return {
            "order": number,
            "value": decimal(f"{rng.randrange(10, 90_000) / 100:.2f}", 2),
            "a.b": rng.choice((None, "left", "right")),
            "op": rng.choice(("c", "d", "buy")),
            "schema": rng.choice((None, "retail")),
            "payload": rng.choice(("pallet", "box")),
            "valid from": epoch_days("2026-10-01") + rng.randrange(60),
            "opens": rng.randrange(6, 10) * HOUR,
        }

    # -- the everyday work

    def background(self) -> list[tuple[int, Script]]:
        work: list[tuple[int, Script]] = []
        for day in range(1, DAYS + 1):
            work += [(at, self._work) for at in self.office_times(day, 62)]
            work += [(clock(f"{day} {hour}:00"), self._heartbeat) for hour in range(1, 24, 2)]
        return work

    def _heartbeat(self) -> None:
        self.db.heartbeat(self.now)

    def _work(self) -> None:
        kinds = (
            self._order,
            self._pay,
            self._edit_customer,
            self._join,
            self._correct,
            self._cancel,
        )
        tx = self.db.begin()
        self.rng.choices(kinds, weights=(8, 6, 8, 2, 4, 2))[0](tx)
        self.db.commit(tx, self.now)

    def _order(self, tx: Transaction) -> None:
        number = max(self.orders.rows)[0] + 1
        tx.insert(self.orders, self.new_order(number, self.now, self._any_customer()))
        for line in range(1, self.rng.randrange(2, 5)):
            tx.insert(self.items, self.new_item(number, line))

    def _pay(self, tx: Transaction) -> None:
        tx.update(self.orders, self._any_order(), {"paid": True})
        if self.rng.random() < 0.5:
            tx.insert(self.audit, self.audit_row("payment", self.now, {"by": "card"}))

    def _edit_customer(self, tx: Transaction) -> None:
        rng = self.rng
        changed: Row = rng.choice(
            (
                {"score": rng.randrange(1_000) / 8},
                {"status": rng.choice(STATES), "newsletter": rng.random() < 0.5},
                {"credit_limit": decimal(f"{rng.randrange(-9_000, 900_000) / 100:.2f}", 2)},
                {"notes": rng.choice(AWKWARD_TEXTS)},
            )
        )
        tx.update(
            self.customers, (self._any_customer(),), changed | {"updated_at": zoned(self.now)}
        )
        if rng.random() < 0.3:
            tx.insert(self.audit, self.audit_row(rng.choice(ACTIONS), self.now))

    def _join(self, tx: Transaction) -> None:
        number = max(self.customers.rows)[0] + 1
        given = {"created_at": self.now * 1_000, "updated_at": zoned(self.now)}
        if any(c.name == "phone" for c in self.customers.columns):
            given["phone"] = f"+44 20 7946 0{self.rng.randrange(100, 1_000)}"
        tx.insert(self.customers, self.new_customer(number, **given))

    def _correct(self, tx: Transaction) -> None:
        keys = [key for key in self.items.rows if key[0] > SCENE_ORDERS]
        tx.update(self.items, self.rng.choice(keys), {"quantity": self.rng.randrange(1, 60)})
        prices = [key for key in self.prices.rows if key[0] > SCENE_PRICES]
        if self.rng.random() < 0.5 and prices:
            value = decimal(f"{self.rng.randrange(10, 90_000) / 100:.2f}", 2)
            tx.update(self.prices, self.rng.choice(prices), {"value": value})

    def _cancel(self, tx: Transaction) -> None:
        order = self._any_order()
        for key in [key for key in self.items.rows if key[0] == order[0]]:
            tx.delete(self.items, key)
        tx.delete(self.orders, order)

    def _any_customer(self) -> int:
        numbers: list[int] = [n for (n,) in self.customers.rows if n > SCENE_CUSTOMERS]
        return self.rng.choice(numbers)

    def _any_order(self) -> Key:
        return self.rng.choice([key for key in self.orders.rows if key[0] > SCENE_ORDERS])
