"""Transactions over a small database, and what a connector delivers of them: the rules of order
(FORMATS O4, O6, O8, O15, O16) against rows that are known.

    landed, truth = history("oracle", seed=7)

`landed` holds days of records, cut anywhere, also amid a transaction. `truth` has the table's rows
at the end of each day that ends with a transaction, and of no other. A connector is started again
now and then and sends a stretch once more: for a shape of `SHAPES` that `is_queue` the rows
are known amid that, too; for others once it has caught up.

Everything is drawn from the seed. Nothing here knows the package or the model.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, NamedTuple

from cdc_assets_tests import events as ev
from cdc_assets_tests.events import Landing, Smt
from cdc_assets_tests.model import Record

Row = dict[str, Any]
KEYS, VALUES, BODIES = range(6), "xyz", "pqr"
MOST_SENT_AGAIN = 8  # events, each time that the connector is started again


@dataclass(frozen=True)
class Shape:
    """What a connector sends of a change."""

    connector: str
    keys_held_twice: bool = True  # keys are checked at the end of a statement or transaction
    whole_before: bool = True
    has_headers: bool = True  # at a key change
    has_unsent: bool = False  # values that did not change and were not sent
    is_interleaved: bool = False  # transactions that run at the same time
    format: str = "debezium"
    table: tuple[str, str] = ("shop", "goods")

    @property
    def is_queue(self) -> bool:
        """Its events are read transaction by transaction (O16)."""
        return self.connector in ("postgresql", "oracle", "sqlserver", "db2", "informix")

    @property
    def table_name(self) -> str:
        return ".".join(self.table)

    @property
    def source(self) -> dict[str, Any]:
        """The source's settings."""
        config = {"replica_identity": "full"} if self.whole_before and self.is_postgresql else {}
        own = {"format": self.format, "late_days": 60}
        return {**own, "tables": {self.table_name: config}}

    @property
    def is_postgresql(self) -> bool:
        return self.connector == "postgresql"


SHAPES = {
    "postgresql": Shape("postgresql", has_unsent=True),
    "postgresql key": Shape(
        "postgresql", keys_held_twice=False, whole_before=False, has_unsent=True
    ),
    "postgresql interleaved": Shape("postgresql", has_unsent=True, is_interleaved=True),
    "oracle": Shape("oracle"),
    "sqlserver": Shape("sqlserver", has_headers=False),
    "sqlserver flat": Shape(
        "sqlserver", keys_held_twice=False, has_headers=False, format="debezium-flat"
    ),
    "db2": Shape("db2"),
    "informix": Shape("informix"),
    "mysql compressed": Shape("mysql", keys_held_twice=False),
    "canal": Shape("canal", keys_held_twice=False, has_headers=False, format="canal"),
}


class History(NamedTuple):
    landed: dict[date, list[Record]]
    truth: dict[date, list[Row]]  # by key


@dataclass
class Change:
    """A row's change as the source's log has it; a key change is two, d and c."""

    op: str
    key: int
    before: Row | None
    after: Row | None
    other_key: int | None = None  # of a key change
    place: Row = field(default_factory=dict)  # members of `source`
    transaction: Row | None = None


Statement = list[Change]


def history(name: str, seed: Any) -> History:
    """What landed of a simulated database, and its rows."""
    rng = random.Random(f"{name} {seed}")
    shape = SHAPES[name]
    transactions = list(_transactions(rng, shape))
    _number(rng, shape, [changes for changes, _ in transactions])
    return _Delivery(rng, shape).deliver(transactions)


# -- the database ----------------------------------------------------------------------------------


def _transactions(rng: random.Random, shape: Shape) -> Iterator[tuple[list[Statement], list[Row]]]:
    """Each transaction's statements, and the rows after it."""
    rows: list[Row] = []
    for _ in range(rng.randint(3, 7)):
        statements = []
        for _ in range(rng.randint(1, 4)):
            statement, rows = _statement(rng, shape, rows)
            if statement:
                statements.append(statement)
        if shape.is_postgresql and rng.random() < 0.1:
            rows, statements = [], [[Change("t", -1, None, None)]]
        yield statements, rows


def _statement(rng: random.Random, shape: Shape, rows: list[Row]) -> tuple[Statement, list[Row]]:
    rows = list(rows)
    kinds = ["insert", "insert", "delete", "update", "move", "shift", "shift", "shift and touch"]
    kind = rng.choice(kinds)
    if kind.startswith("shift"):
        return _shift(rng, shape, rows, touches=kind != "shift"), rows
    free = sorted(set(KEYS) - {row["id"] for row in rows})
    if kind == "insert":
        if not free:
            return [], rows
        new = {"id": rng.choice(free), "v": rng.choice(VALUES), "body": rng.choice(BODIES)}
        rows.append(new)
        return [Change("c", new["id"], None, new)], rows
    if not rows or (kind == "move" and not free):
        return [], rows
    n = rng.randrange(len(rows))
    if kind == "delete":
        old = rows.pop(n)
        return [Change("d", old["id"], old, None)], rows
    if kind == "update":
        return [_update(rng, rows, n)], rows
    return _key_change(rows, n, rng.choice(free)), rows


def _shift(rng: random.Random, shape: Shape, rows: list[Row], *, touches: bool) -> Statement:
    """`id = id + 1`, row by row in any order; `touches`: others are updated between."""
    by, order = rng.choice([1, -1]), list(range(len(rows)))
    if shape.keys_held_twice:
        rng.shuffle(order)
    else:
        order.sort(key=lambda n: -by * rows[n]["id"])
    changes = []
    for n in order:
        changes += _key_change(rows, n, rows[n]["id"] + by)
        if touches:
            changes.append(_update(rng, rows, rng.randrange(len(rows))))
    return changes


def _key_change(rows: list[Row], n: int, key: int) -> Statement:
    old = rows[n]
    rows[n] = new = {**old, "id": key}
    gone = Change("d", old["id"], old, None, other_key=key)
    return [gone, Change("c", key, None, new, other_key=old["id"])]


def _update(rng: random.Random, rows: list[Row], n: int) -> Change:
    old = rows[n]
    changed = {"v": rng.choice(VALUES)}
    if rng.random() < 0.3:
        changed["body"] = rng.choice(BODIES)
    rows[n] = new = {**old, **changed}
    return Change("u", old["id"], old, new)


# -- positions -------------------------------------------------------------------------------------


def _number(rng: random.Random, shape: Shape, transactions: list[list[Statement]]) -> None:
    """Says of each change where it stands in the source's log."""
    if shape.is_postgresql:
        _number_lsns(rng, shape, transactions)
        return
    scn = 100
    for tx, statements in enumerate(transactions, start=1):
        n = 0
        for statement in statements:
            scn += rng.randint(0, 1)
            for change in statement:
                change.place = _place(shape.connector, tx, scn, n)
                n += 1
        scn += 1


def _place(connector: str, tx: int, scn: int, n: int) -> Row:
    """The elements below a transaction do not follow the stream."""
    if connector == "oracle":
        own = {"txId": f"0a00{tx}", "rs_id": f"0x{n * 7 % 5}", "ssn": n}
        return {"scn": str(scn), "commit_scn": "7", **own}
    if connector in ("sqlserver", "db2"):
        own = {"change_lsn": f"0000002a:{n * 5 % 7:08x}:0003", "event_serial_no": n}
        return {"commit_lsn": f"0000002a:{tx:08x}:0001", **own}
    if connector == "informix":
        return {"commit_lsn": str(4000 + tx), "change_lsn": str(3000 + n * 5 % 7 * 100 + n)}
    return {"file": "bin.000003", "pos": 1000 + tx, "row": 0}  # a compressed transaction's events


def _number_lsns(rng: random.Random, shape: Shape, transactions: list[list[Statement]]) -> None:
    lsn = 1000
    is_numbered = rng.random() < 0.3
    left = list(enumerate(transactions, start=1))
    while left:
        together = [left.pop(0)]
        if shape.is_interleaved and left and not _keys(together[0][1]) & _keys(left[0][1]):
            together.append(left.pop(0))
        streams = [(tx, [c for statement in own for c in statement]) for tx, own in together]
        orders = {tx: 0 for tx, _ in streams}
        while streams := [(tx, changes) for tx, changes in streams if changes]:
            tx, changes = rng.choice(streams)
            lsn += 8
            is_key_change = changes[0].op == "d" and changes[0].other_key is not None
            for change in [changes.pop(0) for _ in range(2 if is_key_change else 1)]:
                change.place = {"txId": tx, "lsn": lsn}
                orders[tx] += 1
                if is_numbered:
                    change.transaction = {"id": f"{tx}:{lsn}", "total_order": orders[tx]}


def _keys(statements: list[Statement]) -> set[int]:
    """The keys that a transaction locks; a truncate locks all."""
    changes = [change for statement in statements for change in statement]
    if any(change.op == "t" for change in changes):
        return {*KEYS, *range(-20, 20)}
    return {change.key for change in changes}


# -- records ---------------------------------------------------------------------------------------


def _messages(shape: Shape, statement: Statement) -> list[list[Change]]:
    """The changes that one message holds: Canal's hold several of a statement."""
    if shape.format != "canal":
        return [[change] for change in statement]
    messages: list[list[Change]] = []
    for change in _as_canal(statement):
        if messages and messages[-1][0].op == change.op:
            messages[-1].append(change)
        else:
            messages.append([change])
    return messages


def _as_canal(statement: Statement) -> list[Change]:
    """A key change is one update."""
    found = []
    for change in statement:
        if change.op == "c" and change.other_key is not None:
            found[-1] = Change("u", change.key, found[-1].before, change.after)
        else:
            found.append(change)
    return found


def _records(shape: Shape, message: list[Change], *, unsent: bool, times: Row) -> list[Record]:
    if shape.format == "canal":
        return [_canal_record(shape, message, times)]
    change = message[0]
    table = {"table": shape.table, "topic": "sim"}
    if change.op == "t":
        source = _source(shape, change)
        return [ev.truncated(source=source, transaction=change.transaction, **table, **times)]
    before, after = _images(shape, change, unsent=unsent)
    record = ev.change(
        change.op,
        before,
        after,
        key={"id": change.key},
        source=_source(shape, change),
        transaction=change.transaction,
        headers=_headers(shape, change),
        **table,
        **times,
    )
    if shape.format == "debezium-flat":
        flat = Smt("rewrite-with-tombstone", FLAT_FIELDS).applied(record)
        return [] if flat is None else [flat]
    return [record]


FLAT_FIELDS = (
    "op", "source.connector", "source.schema", "source.table", "source.ts_ms", "source.snapshot",
    "source.commit_lsn", "source.change_lsn", "source.event_serial_no",
)  # fmt: skip


def _source(shape: Shape, change: Change) -> Row:
    names: Row = {"connector": shape.connector, "lsn": None, "txId": None}
    if shape.connector == "mysql":
        names |= {"db": shape.table[0], "schema": None}
    return {**names, **change.place}


def _images(shape: Shape, change: Change, *, unsent: bool) -> tuple[Row | None, Row | None]:
    before, after = change.before, change.after
    if not shape.whole_before and before is not None:
        # Replica identity DEFAULT: the key alone, all else made up (D8).
        before = {"id": before["id"], "v": "", "body": None} if change.op == "d" else None
    if after is not None and change.op != "r" and unsent and _keeps_body(change):
        after = {**after, "body": ev.TOAST}
    return before, after


def _keeps_body(change: Change) -> bool:
    if change.op == "c":
        return change.other_key is not None
    return (change.before or {}).get("body") == (change.after or {}).get("body")


def _headers(shape: Shape, change: Change) -> Mapping[str, Any] | None:
    if change.other_key is None or not shape.has_headers:
        return None
    name = "__debezium.newkey" if change.op == "d" else "__debezium.oldkey"
    return {name: ev.key_header({"id": change.other_key})}


def _canal_record(shape: Shape, message: list[Change], times: Row) -> Record:
    kind = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[message[0].op]
    rows = [change.after or change.before or {} for change in message]
    olds = None
    if kind == "UPDATE":
        olds = [ev.old_values(change.before or {}, change.after or {}) for change in message]
    # `es` is when the statement began, in whole seconds.
    clocks = {"es": ev.NOON_MS, "ts": times["processed_ts_ms"]}
    own = {"table": shape.table, "topic": "sim", "timestamp_ms": times["timestamp_ms"]}
    types = {"id": "int", "v": "varchar(9)", "body": "varchar(9)"}
    return ev.canal_message(kind, rows, olds, types=types, **own, **clocks)


# -- delivery --------------------------------------------------------------------------------------


@dataclass
class _Unit:
    """What is delivered wholly or not at all."""

    message: list[Change]
    unsent: bool
    ends: list[Row] | None = None  # the rows, where a transaction ends with it


class _Delivery:
    """A connector that is started again now and then, and days that end anywhere."""

    def __init__(self, rng: random.Random, shape: Shape) -> None:
        self.rng, self.shape = rng, shape
        self.landing = Landing()
        self.truth: dict[date, list[Row]] = {}
        self.partitions = 1 if shape.format == "canal" else rng.randint(1, 3)
        self.cuts = rng.choice([0.02, 0.1, 0.2])
        self.with_tombstones = shape.format == "debezium" and rng.random() < 0.5
        self.rows: list[Row] | None = []  # None amid a transaction

    def deliver(self, transactions: list[tuple[list[Statement], list[Row]]]) -> History:
        if self.shape.format == "debezium" and self.rng.random() < 0.3:
            begins = self.rng.randrange(len(transactions) - 1)
            self._take_snapshot(transactions[begins][1])
            transactions = transactions[begins + 1 :]
        units = list(self._units(transactions))
        position = furthest = 0
        while position < len(units):
            unit = units[position]
            position += 1
            furthest = max(furthest, position)
            ends = units[furthest - 1].ends
            is_known = self.shape.is_queue or position == furthest
            self.rows = ends if is_known else None
            self._land(unit)
            if position == furthest and ends is not None:
                self._read_some(ends)
            if self.rng.random() < 0.08:
                position = max(0, position - self.rng.randint(1, MOST_SENT_AGAIN))
        self._end_day()
        return History(self.landing.landed, self.truth)

    def _units(self, transactions: list[tuple[list[Statement], list[Row]]]) -> Iterator[_Unit]:
        for statements, rows in transactions:
            messages = [m for statement in statements for m in _messages(self.shape, statement)]
            for n, message in enumerate(messages, start=1):
                unsent = self.shape.has_unsent and self.rng.random() < 0.7
                yield _Unit(message, unsent, rows if n == len(messages) else None)

    def _land(self, unit: _Unit) -> None:
        known, change = self.rows, unit.message[0]
        for record in _records(self.shape, unit.message, unsent=unit.unsent, times=self._times()):
            self._put(record, change.key)
            if change.op == "d" and self.with_tombstones:
                self._cut(known)
                key = {"id": change.key}
                self._put(ev.tombstone(key, topic="sim", timestamp_ms=self._now()), change.key)
        self._cut(known)

    def _take_snapshot(self, rows: list[Row]) -> None:
        """The connector begins when there are rows."""
        for n, row in enumerate(rows, start=1):
            self.rows = None if n < len(rows) else rows
            self._read(row, "true")
            self._cut(self.rows)

    def _read_some(self, rows: list[Row]) -> None:
        """An incremental snapshot reads some rows; it has no position."""
        for row in rows:
            if self.shape.format == "debezium" and self.rng.random() < 0.1:
                self._read(row, "incremental")
                self._cut(rows)

    def _read(self, row: Row, mark: str) -> None:
        change = Change("r", row["id"], None, row)
        source = {**_source(self.shape, change), "snapshot": mark}
        table = {"table": self.shape.table, "topic": "sim", "key": {"id": row["id"]}}
        self._put(ev.read(row, source=source, **table, **self._times()), row["id"])

    def _put(self, record: Record, key: int) -> None:
        partition = 0 if key == -1 else key % self.partitions
        self.landing.put(replace(record, partition=partition))

    def _now(self) -> int:
        return self.landing.tick() + 500

    def _times(self) -> Row:
        now = self._now()
        return {"source_ts_ms": now - 500, "processed_ts_ms": now - 300, "timestamp_ms": now}

    def _cut(self, rows: list[Row] | None) -> None:
        """The day may end here."""
        if self.rng.random() < self.cuts:
            self.rows = rows
            self._end_day()
            self.landing.next_day()

    def _end_day(self) -> None:
        if self.rows is not None:
            self.truth[self.landing.day] = sorted(self.rows, key=lambda row: row["id"])
