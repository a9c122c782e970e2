"""`billing`: invoices and payments, brought to Kafka by DataWorks."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .agenda import DAYS, HOUR, SECOND, Script, Source, clock, scene
from .kafka import Json, compact
from .wire import AWKWARD_TEXTS, base64_text

Row = dict[str, Any]
Key = tuple[Any, ...]

ROW_ID = "#alibaba_rds_row_id#"
SCENE_INVOICES = 7_010
BIG = 2**53
FORMAT_VERSION = "0.0.1"


@dataclass
class Table:
    """A table as the synchronisation node knows it; `key` is empty where there is none."""

    topic: str
    db: str
    name: str
    columns: dict[str, str]
    key: tuple[str, ...] = ()
    db_type: str = "MySQL"
    schema: str | None = None
    rows: dict[Key, Row] = field(default_factory=dict)

    def key_of(self, row: Row) -> Key:
        return tuple(row[c] for c in self.key or (ROW_ID,))

    def description(self) -> Json:
        """The `schema` member of a message (W1)."""
        source = {"dbType": self.db_type, "dbVersion": None, "dbName": self.db}
        if self.schema:
            source["schemaName"] = self.schema
        return {
            "dataColumn": [{"name": n, "type": t} for n, t in self.columns.items()],
            "primaryKey": list(self.key) or None,
            "source": source | {"tableName": self.name},
        }


class BillingWork(Source):
    """The tables, the message format and the accountants' everyday work."""

    name = "billing"
    seed = 20261103

    def __init__(self) -> None:
        super().__init__()
        self.invoices = Table(
            "billing.shop.invoices",
            "shop",
            "invoices",
            {
                "invoice_no": "LONG",
                "customer": "STRING",
                "amount_cents": "LONG",
                "tax_rate": "DOUBLE",
                "issued_at": "DATE",
                "paid": "BOOLEAN",
                "scan": "BYTES",
                "external_ref": "LONG",
                "memo": "STRING",
            },
            ("invoice_no",),
        )
        columns = {"event": "STRING", "cents": "LONG", "note": "STRING", ROW_ID: "LONG"}
        self.no_pk = Table("billing.shop.no_pk", "shop", "no_pk", columns)
        self.payments = Table(
            "billing.eu.payments",
            "shop",
            "payments",
            {
                "payment_id": "STRING",
                "part": "LONG",
                "amount": "DOUBLE",
                "settled_at": "DATE",
                "receipt": "BYTES",
            },
            ("payment_id", "part"),
            db_type="PostgreSQL",
            schema="eu",
        )
        self.ledger = Table(
            "billing.erp.ledger",
            "erp",
            "LEDGER",
            {"ENTRY": "LONG", "AMOUNT": "DOUBLE", "rowid": "STRING"},
            ("ENTRY",),
            db_type="Oracle",
            schema="FIN",
        )
        self.one_record_an_update = False
        # 19 digits fit 64 bits, the payments' 22 do not; only the last digits differ (O10).
        self._sequence = {"MySQL": 1_793_491_200_000_000_000, "PostgreSQL": 9_793_491_200 * 10**12}
        self._next_no = {"invoice": SCENE_INVOICES, "payment": 0, "row": 0}

    # -- messages

    def next_sequence(self, table: Table) -> str:
        kind = "PostgreSQL" if table.db_type == "PostgreSQL" else "MySQL"
        self._sequence[kind] += self.rng.randrange(1, 7)
        return str(self._sequence[kind])

    def message(
        self,
        table: Table,
        op: str,
        before: Row | None = None,
        after: Row | None = None,
        sequence: str | None = None,
        ddl: str | None = None,
    ) -> Row:
        """A message of DataWorks (W1); a change that names no sequence takes the next one."""
        event = self.now // SECOND * SECOND
        lag = self.now - event + min(90 + int(self.rng.expovariate(1 / 350)), 20_000)
        # What DataWorks puts here is a serialised Java object; nobody is to open it (W7).
        meta = base64.b64encode(b"\xac\xed\x00\x05t\x00\x04" + (ddl or "")[:4].encode()).decode()
        return {
            "schema": table.description(),
            "payload": {
                "before": {"dataColumn": before} if before is not None else None,
                "after": {"dataColumn": after} if after is not None else None,
                "sequenceId": sequence or self.next_sequence(table),
                "timestamp": {
                    "eventTime": event,
                    "systemTime": event + lag,
                    "checkpointTime": event,
                },
                "op": op,
                "ddl": {"text": ddl, "ddlMeta": meta} if ddl else None,
            },
            "version": FORMAT_VERSION,
        }

    def send(self, table: Table, message: Json, key: Json = ...) -> None:
        """Puts a message on the table's topic; without a primary key the message key is empty."""
        payload = message["payload"]
        times = payload["timestamp"]
        if key is ...:
            image = payload["after"] or payload["before"] or {"dataColumn": {}}
            key = "_".join(str(image["dataColumn"].get(c)) for c in table.key)
        ts = max(times.get("systemTime") or 0, self.now) + self.rng.randrange(3, 60)
        self.kafka.produce(table.topic, key, message, ts)

    def insert(self, table: Table, row: Row) -> None:
        table.rows[table.key_of(row)] = row
        self.send(table, self.message(table, "INSERT", after=row))

    def delete(self, table: Table, key: Key) -> None:
        self.send(table, self.message(table, "DELETE", before=table.rows.pop(key)))

    def update(self, table: Table, key: Key, new: Row) -> list[Json]:
        """One record or two with one sequenceId, as the node is set up (W2)."""
        old = table.rows.pop(key)
        row = old | new
        table.rows[table.key_of(row)] = row
        messages = self.update_messages(table, old, row)
        for message in messages:
            self.send(table, message)
        return messages

    def update_messages(self, table: Table, old: Row, row: Row) -> list[Json]:
        sequence = self.next_sequence(table)
        if self.one_record_an_update:
            return [self.message(table, "UPDATE_AFTER", old, row, sequence)]
        # The node of the payments writes the word in full.
        word = "UPDATE_BEFORE" if table is self.payments else "UPDATE_BEFOR"
        before = self.message(table, word, before=old, sequence=sequence)
        after = self.message(table, "UPDATE_AFTER", after=row, sequence=sequence)
        after["payload"]["timestamp"] = before["payload"]["timestamp"]
        return [before, after]

    def control(self, op: str, ddl: str | None = None, table: Table | None = None) -> None:
        """A record that changes no row itself."""
        self.send(table or self.invoices, self.message(table or self.invoices, op, ddl=ddl), None)

    # -- rows

    def number(self, kind: str) -> int:
        self._next_no[kind] += 1
        return self._next_no[kind]

    def new_invoice(self, number: int) -> Row:
        rng = self.rng
        row = {
            "invoice_no": number,
            "customer": rng.choice(
                ("Brack & Søn", "Oyelaran Ltd", "合同会社ハヤブサ", 'O\'Hara "Tools"')
            ),
            "amount_cents": rng.randrange(-50_000, 9_000_000),
            "tax_rate": rng.choice((0.0, 0.07, 0.19, 0.2)),
            "issued_at": self.now - rng.randrange(48 * HOUR),
            "paid": False,
            "scan": base64_text(rng.randbytes(6)) if rng.random() < 0.5 else None,
            "external_ref": BIG + rng.randrange(1, 10**6),
            "memo": rng.choice((None, *AWKWARD_TEXTS)),
        }
        if "due_at" in self.invoices.columns:
            row["due_at"] = self.now // HOUR * HOUR + 30 * 24 * HOUR
        return row

    def new_payment(self, number: int, part: int) -> Row:
        return {
            "payment_id": f"P-{number:05}",
            "part": part,
            "amount": self.rng.randrange(1, 900_000) / 100,
            "settled_at": self.rng.choice((None, self.now)),
            "receipt": base64_text(self.rng.randbytes(5)),
        }

    def new_event(self, event: str) -> Row:
        note = self.rng.choice(AWKWARD_TEXTS)
        cents = self.rng.randrange(100_000)
        return {"event": event, "cents": cents, "note": note, ROW_ID: self.number("row")}

    # -- the everyday work

    def background(self) -> list[tuple[int, Script]]:
        work: list[tuple[int, Script]] = [(clock("1 00:15"), self._copy_all)]
        for day in range(1, DAYS + 1):
            work += [(at, self._work) for at in self.office_times(day, 64)]
            work += [(clock(f"{day} {hour:02}:02"), self._heartbeat) for hour in range(0, 24, 2)]
        return work

    def _copy_all(self) -> None:
        """The first synchronisation: every row as an INSERT."""
        for number in (*range(7_001, 7_006), *(self.number("invoice") for _ in range(60))):
            self.insert(self.invoices, self.new_invoice(number))
        for _ in range(30):
            self.insert(self.payments, self.new_payment(self.number("payment"), 1))
        for _ in range(15):
            self.insert(self.no_pk, self.new_event("opening"))

    def _heartbeat(self) -> None:
        # W6: null members, no sequenceId, no systemTime.
        times = {"eventTime": self.now, "checkpointTime": self.now}
        payload: Row = {"before": None, "after": None, "sequenceId": None, "timestamp": times}
        payload |= {"op": "MHEARTBEAT", "ddl": None}
        schema = {"dataColumn": None, "primaryKey": None, "source": None}
        value = {"schema": schema, "payload": payload, "version": FORMAT_VERSION}
        self.kafka.produce("billing.shop.invoices", None, value, self.now + 11)

    def _work(self) -> None:
        kinds = (self._bill, self._settle, self._pay, self._note, self._void)
        self.rng.choices(kinds, weights=(6, 6, 5, 4, 1))[0]()

    def _bill(self) -> None:
        self.insert(self.invoices, self.new_invoice(self.number("invoice")))

    def _settle(self) -> None:
        self.control("TRANSACTION_BEGIN")
        self.update(self.invoices, self._any_invoice(), {"paid": self.rng.random() < 0.8})
        self.control("TRANSACTION_END")

    def _pay(self) -> None:
        number = self.number("payment")
        for part in range(1, self.rng.randrange(2, 4)):
            self.insert(self.payments, self.new_payment(number, part))
        key = self.rng.choice(list(self.payments.rows))
        self.update(self.payments, key, {"settled_at": self.now})

    def _note(self) -> None:
        self.insert(self.no_pk, self.new_event("note"))
        if self.rng.random() < 0.4:
            key = self.rng.choice(list(self.no_pk.rows))
            self.update(self.no_pk, key, {"note": self.rng.choice(AWKWARD_TEXTS)})

    def _void(self) -> None:
        self.delete(self.invoices, self._any_invoice())

    def _any_invoice(self) -> Key:
        return self.rng.choice([key for key in self.invoices.rows if key[0] > SCENE_INVOICES])


class Billing(BillingWork):
    """The scenes; invoices 7001 to 7010 are changed here only."""

    @scene(
        "1 00:14",
        "W2 W7",
        "CREATE, CINDEX, then over the days QUERY, DINDEX, ERASE, RENAME, with ddlMeta",
    )
    def definitions(self) -> Iterator[str]:
        # W2, W7
        self.control("CREATE", "CREATE TABLE invoices (invoice_no BIGINT PRIMARY KEY, …)")
        self.control("CINDEX", "CREATE INDEX by_customer ON invoices (customer)")
        yield "4 20:00"
        self.control("QUERY", "UPDATE invoices SET memo = NULL WHERE memo = ''")
        yield "5 20:00"
        self.control("DINDEX", "DROP INDEX by_customer ON invoices")
        self.control("ERASE", "DROP TABLE scratch", self.no_pk)
        yield "6 20:00"
        self.control("RENAME", "RENAME TABLE no_pk TO no_pk_2027", self.no_pk)

    @scene("2 07:00", "W2", "GTID, XACOMMIT, XAROLLBACK")
    def marks_of_transactions(self) -> None:
        # W2
        for op in ("GTID", "XACOMMIT", "XAROLLBACK"):
            self.control(op)

    @scene("3 09:00", "R5 W2", "ALTER adds due_at; invoice 7005 is the first to have it")
    def added_column(self) -> None:
        # R5, W2
        self.invoices.columns["due_at"] = "DATE"
        for row in self.invoices.rows.values():
            row["due_at"] = None
        self.control("ALTER", "ALTER TABLE invoices ADD COLUMN due_at DATETIME")
        self.update(self.invoices, (7_005,), {"due_at": clock("6 12:00")})

    @scene(
        "2 23:59:59.400",
        "W2 W3",
        "Update of invoice 7001: UPDATE_BEFOR on day 2, UPDATE_AFTER on day 3",
    )
    def pair_over_midnight(self) -> Iterator[str]:
        # W2, W3
        yield from self._split_over({"memo": "over midnight"}, (7_001,), "3 00:00:00.700")

    @scene(
        "3 23:59:59.100",
        "W3",
        "The same with a changed key over the next day cut: invoice 7002 becomes 7007",
    )
    def key_change_over_midnight(self) -> Iterator[str]:
        # W3
        yield from self._split_over({"invoice_no": 7_007}, (7_002,), "4 00:00:01")

    def _split_over(self, new: Row, key: Key, until: str) -> Iterator[str]:
        old = self.invoices.rows.pop(key)
        row = old | new
        before, after = self.update_messages(self.invoices, old, row)
        self.send(self.invoices, before)
        yield until
        self.invoices.rows[self.invoices.key_of(row)] = row
        self.send(self.invoices, after)

    @scene("3 10:00", "W3", "A split update with a changed key: invoice 7003 becomes 7008")
    def key_change_in_a_pair(self) -> None:
        # W3
        self.update(self.invoices, (7_003,), {"invoice_no": 7_008})

    @scene(
        "4 06:00",
        "W2",
        "The node is set to one record an update: from here UPDATE_AFTER has both images",
    )
    def one_record_an_update_from_here(self) -> None:
        # W2
        self.one_record_an_update = True
        self.update(self.invoices, (7_001,), {"memo": "both images"})

    @scene(
        "5 10:00",
        "D10 W3",
        "One record with both images and a changed key: invoice 7004 becomes 7009",
    )
    def key_change_in_one_record(self) -> None:
        # D10, W3
        self.update(self.invoices, (7_004,), {"invoice_no": 7_009})

    @scene("6 22:00", "W3", "A lone UPDATE_BEFOR of invoice 7005 at the end: nothing changes yet")
    def lone_first_half(self) -> None:
        # W3
        old = self.invoices.rows[7_005,]
        self.send(self.invoices, self.message(self.invoices, "UPDATE_BEFOR", before=old))

    @scene(
        "5 16:00",
        "O1 O10",
        "The node restarts: two updates of invoice 7001 are sent again with their sequenceIds",
    )
    def restart(self) -> None:
        # O1, O10
        stretch = self.update(self.invoices, (7_001,), {"memo": "A"})
        stretch += self.update(self.invoices, (7_001,), {"memo": "B"})
        self.now += 90 * SECOND
        for message in stretch:
            self.send(self.invoices, message)

    @scene("4 12:00", "D12 W4", "TRUNCATE of no_pk, then new rows")
    def truncate(self) -> None:
        # D12, W4
        self.no_pk.rows.clear()
        self.control("TRUNCATE", "TRUNCATE TABLE no_pk", self.no_pk)
        for event in ("reopened", "reopened", "counted"):
            self.insert(self.no_pk, self.new_event(event))

    @scene("3 12:00", "W6 G2", "No systemTime: payments without lag")
    def no_system_time(self) -> None:
        # W6, G2
        for part in (1, 2):
            row = self.new_payment(90_000, part)
            self.payments.rows[self.payments.key_of(row)] = row
            message = self.message(self.payments, "INSERT", after=row)
            del message["payload"]["timestamp"]["systemTime"]
            self.send(self.payments, message)

    @scene("4 15:00", "R4", 'amount_cents of invoice 7005 is the text "n/a"')
    def text_in_a_number(self) -> None:
        # R4
        self.update(self.invoices, (7_005,), {"amount_cents": "n/a"})

    @scene(
        "2 12:00",
        "W1 W4 D5",
        "Oracle table erp__FIN.LEDGER with scn and rowid, which is not configured",
    )
    def table_not_configured(self) -> Iterator[str]:
        # W1, W4, D5
        self._post(1)
        yield "5 12:00"
        self._post(2)

    def _post(self, entry: int) -> None:
        row = {"ENTRY": entry, "AMOUNT": 12.5 * entry, "rowid": f"AAIUMPAAFAACx{entry:05}"}
        message = self.message(self.ledger, "INSERT", after=row)
        message["payload"]["scn"] = f"88123456789{entry}"
        self.send(self.ledger, message)

    # -- records that must be quarantined

    def _event(self, op: str = "INSERT", **given: Any) -> Json:
        return self.message(self.invoices, op, after=self.new_invoice(9_900) | given)

    def _raw(self, value: Any, table: Table | None = None, key: Any = None) -> None:
        self.kafka.produce((table or self.invoices).topic, key, value, self.now + 25)

    @scene("5 08:00", "malformed_landing_line", "A line without topic and offset, an empty text")
    def lines_that_are_no_records(self) -> Iterator[str]:
        self.kafka.stray_line('{"partition":0,"payload":"whose am I?"}')
        yield "6 08:00"
        self.kafka.stray_line('""')

    @scene("6 08:10", "D17 registry_encoded", "0x00 and a schema id before the bytes")
    def registry_encoded(self) -> None:
        # D17
        self._raw(b"\x00\x00\x00\x00\x63\x00\xf0\x9d" + b"invoice")

    @scene("1 08:00", "D19 malformed_json", "Python's None for null; two documents in one value")
    def not_json(self) -> Iterator[str]:
        # D19
        self._raw("{'schema': None, 'payload': None}")
        yield "5 08:10"
        self._raw(compact(self._event()) * 2)

    @scene("3 08:00", "not_an_envelope", "A list; a Canal message")
    def no_envelope(self) -> Iterator[str]:
        self._raw([self._event()])
        yield "5 08:20"
        self._raw(
            {"type": "INSERT", "database": "shop", "table": "invoices", "data": [{"id": "1"}]}
        )

    @scene("2 08:00", "missing_op", "`op` absent; `op` null")
    def no_op(self) -> Iterator[str]:
        message = self._event()
        del message["payload"]["op"]
        self.send(self.invoices, message)
        yield "6 08:20"
        message = self._event()
        message["payload"]["op"] = None
        self.send(self.invoices, message)

    @scene("4 08:00", "W2 unknown_op", "`insert` in small letters; UPSERT")
    def other_op(self) -> Iterator[str]:
        # W2
        self.send(self.invoices, self._event("insert"))
        yield "6 08:30"
        self.send(self.invoices, self._event("UPSERT"))

    @scene("2 08:10", "W1 missing_table", "A source without tableName; source null")
    def no_table(self) -> Iterator[str]:
        # W1
        message = self._event()
        del message["schema"]["source"]["tableName"]
        self.send(self.invoices, message)
        yield "5 08:30"
        message = self._event()
        message["schema"]["source"] = None
        self.send(self.invoices, message)

    @scene("2 08:20", "missing_image", "UPDATE_BEFOR without `before`; INSERT without `after`")
    def no_image(self) -> Iterator[str]:
        self.send(self.invoices, self.message(self.invoices, "UPDATE_BEFOR"), "9900")
        yield "4 08:10"
        self.send(self.invoices, self.message(self.invoices, "INSERT"), "9900")

    @scene("3 08:10", "malformed_key", "invoice_no is null")
    def unreadable_key(self) -> Iterator[str]:
        self.send(self.invoices, self._event(invoice_no=None), "")
        yield "5 08:40"
        self.send(self.invoices, self._event(invoice_no=None), "")

    @scene("3 08:20", "W4 missing_key", "A row of no_pk without its row id")
    def no_key(self) -> Iterator[str]:
        # W4
        row = {"event": "nameless", "cents": 1, "note": None}
        for until in ("6 08:40", ""):
            message = self.message(self.no_pk, "INSERT", after=row)
            columns = message["schema"]["dataColumn"]
            message["schema"]["dataColumn"] = [c for c in columns if c["name"] != ROW_ID]
            self.send(self.no_pk, message, "")
            if until:
                yield until
