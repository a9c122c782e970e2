"""`inventory`: the scripted scenes with events that are as they should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from .agenda import clock, scene
from .inventory import InventoryWork
from .postgres import Change, Column, Row, Table
from .wire import AWKWARD_TEXTS, base64_text, decimal, long_text, zoned


class InventoryScenes(InventoryWork):
    """Each scene names the rules it shows; the rows it uses are left alone by the daily work."""

    # -- short hands

    def _send_again(self, changes: Sequence[Change]) -> None:
        """A restarted connector: the same events at new offsets, met by it just now."""
        for change in changes:
            self.db.send(change, at=self.now)

    def _change_customer(self, number: int, deliver: bool = True, **new: Any) -> list[Change]:
        tx = self.db.begin()
        tx.update(self.customers, (number,), new | {"updated_at": zoned(self.now)})
        return self.db.commit(tx, self.now, deliver)

    def _delete_customer(self, number: int, deliver: bool = True) -> list[Change]:
        tx = self.db.begin()
        tx.delete(self.customers, (number,))
        return self.db.commit(tx, self.now, deliver)

    def _insert(self, table: Table, *rows: Row) -> list[Change]:
        tx = self.db.begin()
        for row in rows:
            tx.insert(table, row)
        return self.db.commit(tx, self.now)

    def _produce(self, change: Change, payload: Row, key: Any = ...) -> None:
        """An event whose payload or key a scene has altered."""
        assert change.table
        value = self.db.wrap(self.db.value_schema(change.table), payload)
        sent_key = self.db.key(change.table, change.key) if key is ... else key
        self.kafka.produce(self.db.topic(change.table), sent_key, value, self.now + 90)

    # -- snapshots

    @scene(
        "1 00:05",
        "D14 O6",
        "Initial snapshot while a transaction on customer 5 is open: it commits later "
        "with a lower LSN than its `r` record",
    )
    def snapshot_with_an_open_transaction(self) -> Iterator[str]:
        # D14, O6
        tx = self.db.begin()
        tx.update(self.customers, (5,), {"status": "blocked", "updated_at": zoned(self.now)})
        lsn = self.db.advance()
        tables = (self.customers, self.orders, self.items, self.audit, self.prices)
        self.db.snapshot(tables, self.now, tx.id - 1, lsn)
        yield "1 00:20"
        self.db.commit(tx, self.now)

    @scene(
        "4 11:00",
        "D14 O6",
        "Incremental snapshot of price.list: `r` without LSN between updates of prices 1 and 2",
    )
    def incremental_snapshot(self) -> None:
        # D14, O6
        rows = list(self.prices.rows.items())
        self._new_value(1, "11.25")
        self._read(rows[:8], "incremental")
        self._new_value(2, "-2.50")
        self._read(rows[8:], "incremental")

    @scene(
        "5 11:00",
        "D14",
        'Reads marked `true` as a boolean and `"blocking"`, a value not in the documents',
    )
    def other_snapshot_marks(self) -> None:
        # D14
        for number, mark in ((36, True), (17, True), (18, "blocking")):
            row = self.customers.rows[number,]
            self.db.send(self.db.read(self.customers, (number,), row, self.now, mark))

    def _read(self, rows: Sequence[Any], mark: str) -> None:
        for key, _ in rows:
            row = self.prices.rows[key]
            self.db.send(self.db.read(self.prices, key, row, self.now, mark))

    def _new_value(self, number: int, value: str) -> None:
        tx = self.db.begin()
        tx.update(self.prices, (number,), {"value": decimal(value, 2)})
        self.db.commit(tx, self.now)

    # -- forms of key and value

    @scene(
        "1 08:00",
        "D5 D6",
        "Customers 1 to 4, and 6: key garbage, a scalar, empty, null, and the {name, schema: "
        "INT32} form with a text id; the value holds the id",
    )
    def keys_in_other_forms(self) -> None:
        # D5, D6
        documented = {
            "schema": {
                "type": "struct",
                "name": "inventory.public.customers.Key",
                "optional": "false",
                "fields": [
                    {"name": "id", "index": "0", "schema": {"type": "INT32", "optional": "false"}}
                ],
            },
            "payload": {"id": "6"},
        }
        for number, key in ((1, "}{ no key"), (2, "2"), (3, ""), (4, None), (6, documented)):
            (change,) = self._change_customer(number, deliver=False, score=float(number))
            self._produce(change, self.db.payload(change, self.now + 70), key)

    @scene("2 06:00", "D2", "`payload` before `schema`: customer 19, order 5001 with its items")
    def payload_before_schema(self) -> None:
        # D2
        self.db.style = "payload_first"
        self._change_customer(19, notes=AWKWARD_TEXTS[1])
        tx = self.db.begin()
        tx.update(self.orders, (5_001,), {"comment": AWKWARD_TEXTS[2]})
        tx.update(self.items, (5_001, 1), {"quantity": 7})
        self.db.commit(tx, self.now)
        self.db.style = "with_schema"

    @scene(
        "4 09:00",
        "D1 D2",
        'An hour without schemas: {"schema":null,"payload":…}, from 09:30 the bare '
        "payload; every table, a delete with its tombstone",
    )
    def an_hour_without_schemas(self) -> Iterator[str]:
        # D1, D2
        self.db.style = "null_schema"
        self._touch_every_table("11.00", cancelled=5_003)
        yield "4 09:30"
        self.db.style = "bare"
        self._touch_every_table("12.00", cancelled=5_008)
        yield "4 10:00"
        self.db.style = "with_schema"

    def _touch_every_table(self, amount: str, cancelled: int) -> None:
        tx = self.db.begin()
        new = {"credit_limit": decimal(amount, 2), "updated_at": zoned(self.now)}
        tx.update(self.customers, (20,), new)
        tx.update(self.orders, (5_002,), {"total": decimal(amount, 2), "comment": AWKWARD_TEXTS[7]})
        tx.update(self.items, (5_002, 1), {"unit_price": decimal(amount, 4)})
        tx.delete(self.items, (cancelled, 1))
        tx.insert(self.audit, self.audit_row("no-schema", self.now, {"amount": amount}))
        tx.update(self.prices, (3,), {"value": decimal(amount, 2)})
        self.db.commit(tx, self.now)

    @scene("6 00:30", "D15", "A newer connector: `ts_us` and `ts_ns` beside every `ts_ms`")
    def connector_upgrade(self) -> None:
        # D15
        self.db.version = "3.0.2.Final"
        self.db.extra_fields = True
        self._change_customer(19, score=1.5)

    @scene("6 10:00", "D3 G2", "No `ts_ms` in the payload: an update of customer 19 without lag")
    def no_processing_time(self) -> None:
        # D3, G2
        (change,) = self._change_customer(19, deliver=False, score=2.5)
        payload = self.db.payload(change, self.now)
        self._produce(change, {k: v for k, v in payload.items() if not k.startswith("ts_")})

    # -- order, duplicates, late events

    @scene(
        "2 09:00",
        "O2",
        "Interleaved transactions: customer 10's higher LSN is committed, and lands, "
        "before customer 9's lower one",
    )
    def interleaved_transactions(self) -> None:
        # O2
        slow, quick = self.db.begin(), self.db.begin()
        slow.update(self.customers, (9,), {"score": 9.25})
        quick.update(self.customers, (10,), {"score": 10.25})
        slow.update(self.orders, (5_004,), {"paid": True})
        self.db.commit(quick, self.now)
        self.db.commit(slow, self.now + 800)

    @scene(
        "2 10:30",
        "O4 O14",
        "COPY into order_items and audit_log: six items, then three log rows (two of "
        "them equal), each group with one LSN",
    )
    def one_lsn_for_many(self) -> None:
        # O4, O14
        tx = self.db.begin()
        with self.db.one_lsn():
            for line in range(11, 17):
                tx.insert(self.items, self.new_item(5_005, line))
        same = self.audit_row("import", self.now)
        with self.db.one_lsn():
            for row in (same, same | {"action": "import-end"}, same):
                tx.insert(self.audit, dict(row))
        self.db.commit(tx, self.now)

    @scene(
        "2 23:40",
        "O1 O3 O5 O14",
        "Connector restart over the day cut: customer 17 A(1) B(2) A(1) | B(2), log "
        "rows in between",
    )
    def restart_over_midnight(self) -> Iterator[str]:
        # O1, O3, O5, O14
        stretch = self._change_customer(17, status="prospect", email="a@mail.example")
        same = self.audit_row("export", self.now)
        stretch += self._insert(self.audit, same, dict(same))
        until = len(stretch)
        stretch += self._change_customer(17, status="active", email="b@mail.example")
        stretch += self._insert(self.audit, self.audit_row("refund", self.now))
        yield "2 23:57"
        self._send_again(stretch[:until])
        yield "3 00:00:02"
        self._send_again(stretch[until:])

    @scene(
        "4 16:00",
        "O12",
        "Customer 14: deleted on day 4, and on day 5 an update from before the delete lands",
    )
    def late_update_after_a_delete(self) -> Iterator[str]:
        # O12
        held_back = self._change_customer(14, deliver=False, email="late@mail.example")
        self._delete_customer(14)
        yield "5 09:30"
        self._send_again(held_back)

    @scene(
        "5 23:50",
        "D11 O5",
        "Customer 21: deleted and created anew; the d and its tombstone are sent again,"
        " the c only after the day cut",
    )
    def redelivered_delete(self) -> Iterator[str]:
        # D11, O5
        row = dict(self.customers.rows[21,])
        stretch = self._delete_customer(21)
        self.now += 2_000
        stretch += self._insert(self.customers, row | {"notes": "back again"})
        yield "5 23:58"
        self._send_again(stretch[:1])
        yield "6 00:00:01"
        self._send_again(stretch[1:])

    @scene(
        "1 23:59:59.970",
        "offsets",
        "A record of day 1 whose Kafka timestamp is of day 2: its offset decides",
    )
    def timestamp_of_the_next_day(self) -> None:
        self._change_customer(28, score=28.0)

    @scene(
        "4 00:00:00.020",
        "offsets",
        "A record of day 4 whose Kafka timestamp is of day 3: its offset decides",
    )
    def timestamp_of_the_day_before(self) -> None:
        before = self.now - 700
        (change,) = self._change_customer(28, deliver=False, score=28.5)
        payload = self.db.payload(replace(change, commit_ms=before), before + 80)
        topic, key = self.db.topic(self.customers), self.db.key(self.customers, (28,))
        value = self.db.wrap(self.db.value_schema(self.customers), payload)
        self.kafka.produce(topic, key, value, before + 95)

    # -- deletes, tombstones, key changes, truncates

    @scene(
        "2 09:40",
        "D11",
        "Deletes of customers 23, 24, 26: tombstones as the text `null`, as "
        '{"schema":null,"payload":null}, and empty',
    )
    def tombstones_of_old_converters(self) -> None:
        # D11
        texts = {23: "null", 24: '{"schema":null,"payload":null}', 26: ""}
        for number, tombstone in texts.items():
            (change,) = self._delete_customer(number, deliver=False)
            self.db.send(change, tombstone=False)
            self.db.send_tombstone(change, tombstone)

    @scene("3 16:00", "D11", "A lone tombstone deletes customer 12")
    def lone_tombstone(self) -> None:
        # D11
        del self.customers.rows[12,]
        key = self.db.key(self.customers, (12,))
        self.kafka.produce(self.db.topic(self.customers), key, None, self.now)

    @scene(
        "3 23:59:50",
        "D11",
        "Customer 13: d on day 3, its tombstone on day 4, created again at 08:30",
    )
    def tombstone_after_the_day_cut(self) -> Iterator[str]:
        # D11
        row = dict(self.customers.rows[13,])
        (change,) = self._delete_customer(13, deliver=False)
        self.db.send(change, tombstone=False)
        yield "4 00:00:01"
        self.db.send_tombstone(change, at=self.now)
        yield "4 08:30"
        self._insert(self.customers, row | {"notes": "a new contract"})

    @scene(
        "3 10:00",
        "D9 R2",
        "Customer 16 becomes 36 (headers: JSON with schema); its long note is a "
        "placeholder in the c",
    )
    def key_change_with_placeholder(self) -> None:
        # D9, R2
        self._rekey(16, 36, "with_schema")

    @scene("4 18:00", "D9", "Customer 15 becomes 33 (headers: JSON text)")
    def key_change_json_header(self) -> None:
        # D9
        self._rekey(15, 33, "json")

    @scene("5 18:00", "D9", "Customer 33 becomes 34 (headers: Struct{id=…})")
    def key_change_struct_header(self) -> None:
        # D9
        self._rekey(33, 34, "struct")

    def _rekey(self, old: int, new: int, form: str) -> None:
        self.db.key_header_form = form
        tx = self.db.begin()
        tx.rekey(self.customers, (old,), {"id": new, "updated_at": zoned(self.now)})
        self.db.commit(tx, self.now)

    @scene(
        "5 10:00",
        "D8",
        "Replica identity NOTHING: a delete of customer 22 without images; the key identifies the "
        "row",
    )
    def delete_without_images(self) -> None:
        # D8
        (change,) = self._delete_customer(22, deliver=False)
        self.db.send(replace(change, before=None))

    @scene("4 12:30", "D12 O14", "audit_log is truncated, new rows follow")
    def truncate_the_log(self) -> None:
        # D12, O14
        self._truncate(self.audit)
        self._insert(
            self.audit, self.audit_row("log-emptied", self.now), self.audit_row("login", self.now)
        )

    @scene(
        "5 08:00",
        "D12",
        "price.list is truncated (no `before` and `after` in the event) and filled anew in one LSN",
    )
    def truncate_the_prices(self) -> None:
        # D12
        tx = self.db.begin()
        tx.truncate(self.prices)
        (change,) = self.db.commit(tx, self.now, deliver=False)
        payload = self.db.payload(change, self.now + 60)
        self._produce(change, {k: v for k, v in payload.items() if k not in ("before", "after")})
        tx = self.db.begin()
        with self.db.one_lsn():
            for number in range(1, 13):
                tx.insert(self.prices, self.new_price(number))
        self.db.commit(tx, self.now + 5_000)

    def _truncate(self, table: Table) -> None:
        tx = self.db.begin()
        tx.truncate(table)
        self.db.commit(tx, self.now)

    # -- rows and types

    @scene(
        "2 15:00",
        "R2",
        "Customer 7: a new long note, then placeholders on days 2, 3 and 4 that hide it",
    )
    def placeholders_over_days(self) -> Iterator[str]:
        # R2
        self._change_customer(7, notes=long_text("Second note of customer 7"))
        self._change_customer(7, score=7.25)
        self._change_customer(7, newsletter=True)
        yield "3 12:00"
        self._change_customer(7, score=7.5)
        yield "4 12:00"
        self._change_customer(7, status="active")

    @scene(
        "6 12:00",
        "R2",
        "Customer 25: new note and placeholder in one transaction; customer 7 a "
        "placeholder after three days",
    )
    def placeholder_in_one_transaction(self) -> None:
        # R2
        tx = self.db.begin()
        tx.update(self.customers, (25,), {"notes": long_text("Second note of customer 25")})
        tx.update(self.customers, (25,), {"score": 25.5})
        self.db.commit(tx, self.now)
        self._change_customer(7, score=7.75)

    @scene("2 11:15", "R4", "updated_at of customer 11 is `infinity`")
    def infinite_timestamp(self) -> None:
        # R4
        tx = self.db.begin()
        tx.update(self.customers, (11,), {"updated_at": "infinity"})
        self.db.commit(tx, self.now)

    @scene(
        "2 11:20",
        "R3",
        "Customer 27, order 5006: largest and smallest numbers, dates before 1970",
    )
    def values_at_the_edges(self) -> None:
        # R3
        tx = self.db.begin()
        new = {
            "credit_limit": decimal("-9999999999.99", 2),
            "birth_date": -14_473,
            "score": 5e-324,
            "created_at": -1_047_174_586_392_001,
            "updated_at": "2026-11-02T11:19:59.123456789Z",
            "photo_hash": base64_text(bytes(range(0, 256, 15))),
        }
        tx.update(self.customers, (27,), new)
        tx.update(self.orders, (5_006,), {"total": decimal("999999999999.99", 2)})
        tx.update(self.items, (5_006, 1), {"unit_price": decimal("-0.0001", 4), "weight_kg": 0.1})
        self.db.commit(tx, self.now)

    @scene(
        "3 07:00",
        "R5 D16",
        "ALTER TABLE customers ADD COLUMN phone: schema-change record, then schema and "
        "rows have it",
    )
    def added_column(self) -> None:
        # R5, D16
        ddl = "ALTER TABLE public.customers ADD COLUMN phone text"
        self.customers.columns.append(Column("phone", "string"))
        for row in self.customers.rows.values():
            row["phone"] = None
        self._schema_change(self.customers, "ALTER", ddl)
        self._change_customer(18, phone="+81 3 5550 0118")

    # -- records that change no row

    @scene("1 00:01", "D16", "Schema-change records: CREATE TABLE")
    def create_tables(self) -> None:
        # D16
        for table in self.all_tables[:5]:
            columns = ", ".join(f'"{c.name}" {c.type}' for c in table.columns)
            self._schema_change(table, "CREATE", f'CREATE TABLE public."{table.name}" ({columns})')

    def _schema_change(self, table: Table, kind: str, ddl: str) -> None:
        source: Row = {"version": self.db.version, "connector": "postgresql", "name": "inventory"}
        source |= {
            "ts_ms": self.now,
            "db": "warehouse",
            "schema": table.schema,
            "table": table.name,
        }
        columns = [{"name": c.name, "typeName": c.type, "optional": True} for c in table.columns]
        change = {
            "type": kind,
            "id": f'"public"."{table.name}"',
            "table": {"primaryKeyColumnNames": list(table.key), "columns": columns},
        }
        value = {
            "source": source,
            "ts_ms": self.now + 15,
            "databaseName": "warehouse",
            "schemaName": "public",
            "ddl": ddl,
            "tableChanges": [change],
        }
        self.kafka.produce("inventory", {"databaseName": "warehouse"}, value, self.now + 20)

    @scene(
        "1 11:00",
        "D13 G4",
        "Logical messages in and out of a transaction; the content is bytes, not text",
    )
    def logical_messages(self) -> Iterator[str]:
        # D13, G4
        self._two_messages(b"\xff\x9drecount")
        yield "4 11:30"
        self._two_messages(b"\x00\x01\xfe close of month")
        yield "6 11:30"
        self._two_messages("盘点".encode())

    def _two_messages(self, content: bytes) -> None:
        tx = self.db.begin()
        tx.message("stocktake", base64_text(content))
        tx.update(self.orders, (5_007,), {"paid": True})
        self.db.commit(tx, self.now)
        alone = {"prefix": "watchdog", "content": base64_text(content[::-1])}
        lsn = self.db.advance()
        no_row = (None, None, None, None)
        self.db.send(Change("m", *no_row, lsn=lsn, tx_id=None, commit_ms=self.now, message=alone))

    @scene(
        "3 11:00",
        "D5",
        "Tables that are not configured, routed to one topic: stock_moves with schema, "
        "coupons without",
    )
    def tables_not_configured(self) -> Iterator[str]:
        self._insert(self.moves, *({"move_id": n, "sku": "SAW-4", "moved": -n} for n in (1, 2, 3)))
        self.db.style = "bare"
        self._insert(
            self.coupons, {"code": "冬-10", "percent": 10}, {"code": "SPRING", "percent": 5}
        )
        self.db.style = "with_schema"
        yield "5 11:30"
        tx = self.db.begin()
        tx.delete(self.moves, (2,))
        self.db.commit(tx, self.now)

    # -- lag

    @scene("2 12:00", "G3", "Negative lag: the database's clock is 4.2 s ahead, customer 18")
    def negative_lag(self) -> None:
        # G3
        (change,) = self._change_customer(18, deliver=False, score=18.0)
        payload = self.db.payload(replace(change, commit_ms=self.now + 4_200), self.now)
        self._produce(change, payload)

    @scene(
        "4 13:50",
        "G1",
        "The connector is stalled until 14:16 while a batch job changes items of "
        "order 5005: minutes of lag",
    )
    def burst_of_lag(self) -> Iterator[str]:
        # G1
        self.db.stalled_until = clock("4 14:16")
        for minute in range(51, 63):
            tx = self.db.begin()
            for line in range(11, 17):
                tx.update(self.items, (5_005, line), {"quantity": minute})
            self.db.commit(tx, clock("4 13:00") + minute * 60_000)
        yield "4 14:16"
        self.db.stalled_until = 0
