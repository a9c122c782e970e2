"""Tellers of Debezium's connectors, and of its events flattened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cdc_assets_tests import events as ev
from cdc_assets_tests.events import TOAST
from cdc_assets_tests.model import Record
from cdc_assets_tests.worlds.teller import Kept, Step, Teller, Values


@dataclass(frozen=True)
class Mark:
    """What identifies an event in its source: its transaction, and its number if it has one."""

    tx: int | None
    number: int | None

    @property
    def tx_text(self) -> str | None:
        return None if self.tx is None else f"0a00{self.tx:012x}"

    @property
    def scrambled(self) -> int:
        """A number of its own that does not follow the stream."""
        return 0 if self.number is None else self.number * 5 % 7 * 1000 + self.number


NO_MARK = Mark(None, None)


def _sqlserver(n: int, mark: Mark) -> Values:
    change, serial = f"27:{mark.scrambled:x}:2", 1 + (mark.number or 0) % 2
    source = ev.sqlserver_source(f"27:{n:x}:5", change, serial)
    unmarked = {"change_lsn": None, "event_serial_no": None}
    return source | (unmarked if mark.number is None else {})


def _oracle(n: int, mark: Mark) -> Values:
    rs_id = None if mark.number is None else f"0x{mark.scrambled:06x}.00000001.0010"
    # Before 2.5 its events have the commit before.
    return ev.oracle_source(n, max(n - 9, 0), tx=mark.tx_text, rs_id=rs_id, ssn=n % 2)


# Source elements of connectors, by a number that several changes may share: transactions, one SCN,
# one millisecond, none at all.
COARSE: dict[str, Callable[[int, Mark], Values]] = {
    "db2": lambda n, mark: ev.db2_source(f"0000:187a:{n:08x}", f"0:{mark.scrambled:x}:0"),
    "sqlserver": _sqlserver,
    "informix": lambda n, mark: ev.informix_source(n, mark.scrambled, mark.tx or 0),
    "oracle": _oracle,
    "TiCDC": lambda n, mark: {"commit_ts": 447_507_027_004_751_870 + n},
    "mongodb": lambda n, mark: {"ts_ms": 1_793_793_600_000 + n * 1000, "ord": 1},
    "vitess": lambda n, mark: {"ts_ms": ev.NOON_MS + n * 1000},
    "none": lambda n, mark: {"connector": None, "ts_ms": None},
}
# They check keys at the end of a statement or transaction (O16).
LATE_CHECKED = ("db2", "sqlserver", "informix", "oracle")
BY_COMMIT = LATE_CHECKED[:3]

EU, US = "eu", "us"  # databases of one connector

# What of an update Spanner captures; NEW_VALUES do not tell null from what did not change.
CAPTURED = (
    "OLD_AND_NEW_VALUES", "OLD_AND_NEW_VALUES", "OLD_AND_NEW_VALUES", "NEW_ROW",
    "NEW_ROW_AND_OLD_VALUES", "NEW_VALUES",
)  # fmt: skip


class DebeziumTeller(Teller):
    """PostgreSQL, and MySQL, Vitess and others for some worlds."""

    lsn = 1000
    former: dict[str, int] | None = None  # how much higher a number was at the former server

    @property
    def connector(self) -> str:
        return self.traits.connector

    @property
    def configured_namespace(self) -> str:
        return f"{EU}__{self.namespace}" if self.settings.in_three_parts else self.namespace

    def own(self, kind: str, number: int) -> int:
        """A number as its server counts it."""
        servers = self.traits.servers
        if servers is None or servers.server is None or self.day < servers.server:
            return number
        lower = {"lower": number - 1, "overlapping": 6, "higher": -60}[servers.begins]
        self.former = self.former or {}
        return max(1, number - self.former.setdefault(kind, lower))

    def has_begun(self, day: int | None) -> bool:
        """Is this event another connector's, or another database's, which begin on a day?"""
        return day is not None and self.day >= day

    def whose(self) -> Values:
        """What names the stream."""
        servers, name = self.traits.servers, f"worlds-{self.name}"
        if servers is None:
            return {"name": name}
        if self.has_begun(servers.connector) and self.pick(*[True] * 4, not servers.shares):
            name += "b"
        if not self.settings.several_databases:
            return {"name": name}
        is_other = self.has_begun(servers.database) and self.pick(False, False, False, True)
        return {"name": name, "db": US if is_other else EU}

    def event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        number = self.own("change", self.next_change())
        self.lsn = 0 if self.traits.grain == "nothing" else 1000 + 8 * number
        return self.send(self._record(build, *images, **{"lsn": self.lsn, **options}))

    def _record(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        rows = [image for image in reversed(images) if image is not None]
        row = options.pop("row", rows[0] if rows else None)
        captured = options.pop("captured", CAPTURED[0])
        own = self.leaf_of(row) if self.settings.leaves else self.table
        db, table = options.get("table", own)
        lsn = options.get("lsn")
        mark = NO_MARK if lsn is None else Mark(700 + self.tx.number, self.numbered())
        now = self.now_ms()
        defaults: dict[str, Any] = {
            "table": own,
            "topic": self.topic,
            "types": self.types if self.has_schema() else None,
            "key": None if row is None else self.key_bytes(self.key_of(row)),
            "partition": 0 if row is None else self.lane(self.key_of(row)),
            "source_ts_ms": self.tx.began_ms,
            "processed_ts_ms": now + 200,
            # A stream of its own: the model reads each world alone.
            "source": {**self.source(lsn, mark, db, table, captured), **self.whose()},
            "extra": {"transaction": None if lsn is None else self.transaction(mark)},
        }
        if self.connector != "postgresql":
            options["lsn"] = None  # its elements are those of its own, by the same number
        record = build(*images, **{**defaults, **options})
        return ev.as_cells(record) if self.settings.own_values else record

    def leaf_of(self, row: Values | None) -> tuple[str, str]:
        """The leaf of a row; a truncate is of any."""
        number = self.pick(0, 1) if row is None else sum(str(row["id"]).encode()) % 2
        return self.table[0], f"{self.table[1]}_{number}"

    def has_schema(self) -> bool:
        return super().has_schema() and not self.settings.own_values

    def source(
        self, lsn: int | None, mark: Mark, db: str, table: str, captured: str | None
    ) -> Values:
        """The connector's own members of `source`."""
        number = (lsn or 0) // 8
        is_named = self.traits.names in ("source", "both")
        tx = mark.tx if is_named else None
        if self.connector == "postgresql":
            commit = self.own("transaction", self.tx.number)
            return {"txId": tx, "sequence": f'["{commit}", "{lsn}"]'}
        if self.connector == "mysql":
            own = ev.mysql_source(db, table, pos=number, row=mark.number or 0)
            gtid = None if tx is None else f"5a2c1f9e-11ee-4b0a-9a5d-0242ac120002:{tx}"
            own |= {"txId": None, "gtid": gtid}
            # Without file and position Kafka's time stands in (O8).
            return {**own, "file": None} if self.traits.grain == "nothing" else own
        if self.connector == "vitess":
            # It is upgraded after the first day.
            is_old = self.day == 0
            return ev.vitess_source(db, table, number=number, is_old=is_old)
        if self.connector == "spanner":
            return ev.spanner_source(db, captured) | {"ts_ms": ev.NOON_MS + number}
        elements = COARSE[self.connector](number, Mark(tx, mark.number))
        return {"connector": self.connector, "txId": None, **elements}

    def transaction(self, mark: Mark) -> dict[str, Any] | None:
        """Of PostgreSQL, the id differs within a transaction (O7)."""
        is_named = self.traits.names in ("transaction", "both")
        if not is_named and self.tx.number % 4:  # all events of a transaction, or none
            return None
        own = f"{mark.tx}:{self.lsn}" if self.connector == "postgresql" else str(mark.tx)
        order = mark.number and self.pick(mark.number, mark.number, str(mark.number))
        return {"id": own, "total_order": order}

    def before_of(self, row: Values) -> Values | None:
        if self.traits.full:
            return row
        made_up = {"v": "", "doc": "", "n": 0}
        whole = []
        if self.connector in LATE_CHECKED:
            # SQL Server's have nulls where a large value did not change, Oracle's a placeholder.
            unsent = None if self.connector == "sqlserver" else TOAST
            whole = [row, row, row, row, {**row, "doc": unsent}]
        return self.pick(*whole, None, None, self.key_of(row), {**row, **made_up})

    def created(self, row: Values, step: Step) -> None:
        self.event(ev.created, row)

    def updated(self, before: Values, row: Values, step: Step) -> None:
        if self.connector == "spanner":
            self._captured(before, row)
            return
        after = self.after_of(row, step)
        self.event(ev.updated, after, self.before_of(before), row=row)

    def _captured(self, before: Values, row: Values) -> None:
        """An update as Spanner captures it: a value that it does not send is null."""
        captured = self.pick(*CAPTURED)
        told = {n for n in row if row[n] != before.get(n)} | set(self.key_of(row))
        was, now = ({n: of.get(n) if n in told else None for n in row} for of in (before, row))
        if captured.startswith("NEW_ROW"):
            now = row
        self.event(ev.updated, now, was, row=row, captured=captured)

    def deleted(self, before: Values, step: Step) -> None:
        record = self.event(ev.deleted, self.before_of(before), row=before)
        if self.pick(True, False):
            self.bury(record)

    def bury(self, deleted: Record) -> None:
        value = self.pick(None, None, b"null")
        self.send(replace(deleted, value=value, headers=()))

    def moved(self, before: Values, row: Values, step: Step) -> None:
        """d(old) with its tombstone, and c(new), under one LSN (D9); SQL Server marks neither."""
        form = self.pick("struct", "text", "schema", "java")
        is_marked = self.connector != "sqlserver" or self.pick(False, False, True)
        old, new = self.key_of(before), self.key_of(row)
        image = self.before_of(before)
        after = self.after_of(row, step)
        to = {"__debezium.newkey": ev.key_header(new, form)} if is_marked else None
        gone = self.event(ev.deleted, image, row=before, headers=to)
        if self.pick(True, True, False):
            self.bury(gone)
        of = {"__debezium.oldkey": ev.key_header(old, form)} if is_marked else None
        # The two halves may travel in different partitions, and one may be late alone.
        self.delay = self.pick(self.delay, self.delay, self.delay, 0, 1)
        self.tx.order, self.tx.row = self.tx.order + 1, self.tx.row + 1
        self.send(self._record(ev.created, after, row=row, lsn=self.lsn, headers=of))

    def truncated(self, step: Step) -> None:
        if self.settings.on_drop == "empty" and self.pick(True, False):
            words = self.pick("DROP TABLE `{}`", "TRUNCATE {}", "drop table if exists {}.{}")
            names = self.table if words.count("{}") == 2 else self.table[1:]
            self.event(partial(ev.statement, words.format(*names)))
        else:
            self.event(ev.truncated)

    def read(self, place: tuple[int, int], step: Step) -> None:
        """Initial and incremental snapshots (D14, O6), and whole ones (R7)."""
        if self.settings.reread and self.pick(True, True, False):
            self.snapshot(step)
            return
        row = self.rows.get(place) or self.row_of(place)
        self.rows[place] = row
        mark = self.pick("incremental", "true", "first", True)
        # `changes` holds no source elements of snapshot reads (O6): without a key, one that has
        # them in its message can't be told from its redelivery.
        has_lsn = mark != "incremental" and self.traits.key != "none"
        lsn = self.lsn if has_lsn else None
        build = self.pick(ev.read, ev.read, ev.created)
        self.event(build, row, snapshot=mark, lsn=lsn)

    def snapshot(self, step: Step) -> None:
        """All rows are read again, after some were removed unseen; it may cross a day's end."""
        for place in list(self.rows)[:: 3 + step.unsent]:
            if self.pick(True, False):
                del self.rows[place]
        held = list(self.rows.values())
        if not held:
            return
        of_all = self.pick((True, True), (False, False))
        marks = ev.snapshot_marks(len(held), *of_all)
        cut = self.pick(None, None, len(held) // 2, len(held) - 1)
        breaks_off = self.pick(False, False, False, True)
        time = self.now_ms()
        for n, (row, mark) in enumerate(zip(held, marks, strict=True)):
            if breaks_off and n >= len(held) // 2 > 0:
                break
            self.delay = 1 if cut is not None and n >= cut else 0
            self.event(ev.read, row, snapshot=mark, source_ts_ms=time)

    def odd(self, place: tuple[int, int], step: Step) -> None:
        """Keys in other forms, times that are not there, old events out of the blue."""
        row = self.row_of(place)
        number = row["id"]
        key = self.pick(
            ev.to_json({n: str(v) for n, v in self.key_of(row).items()}).encode(),
            ev.to_json(number).encode(),
            b"",
            None,
        )
        times = self.pick({}, {"source_ts_ms": None}, {"processed_ts_ms": self.now_ms() - 9000})
        lsn = self.pick(self.lsn, self.lsn - 80, None, self.lsn + 80)
        build = self.pick(ev.created, ev.deleted, ev.updated)
        image = None if build is ev.deleted and not self.traits.full else row
        self.event(build, image, row=row, key=key, lsn=lsn, **times)

    def control(self, place: tuple[int, int], step: Step) -> None:
        own = {"topic": self.topic, "partition": 0}
        record = self.pick(
            lambda: ev.message(**own),
            lambda: ev.heartbeat(self.now_ms(), **own),
            lambda: ev.transaction_mark(**own),
            lambda: ev.schema_change("ALTER TABLE x", **own),
            lambda: ev.created(self.row_of(place), table=(self.namespace, f"{self.name}b"), **own),
        )
        self.send(record())

    def sample(self, row: Values) -> Record:
        return self._record(ev.created, row, lsn=self.lsn)


class FlatTeller(DebeziumTeller):
    """Debezium's events as the transform ExtractNewRecordState leaves them."""

    image_name = "id"

    @property
    def kept(self) -> Kept:
        assert self.traits.kept is not None
        return self.traits.kept

    @property
    def says_table(self) -> bool:
        """Whether the records say their table; else the topic alone does."""
        listed = dict(self.settings.flattening)
        return self.kept.table or "add_fields" in listed or "table_from_topic" not in listed

    @property
    def smt(self) -> ev.Smt:
        own = dict(self.settings.flattening)
        kept = self.kept
        op = ["op"] if kept.op else []
        more = [*kept.times]
        if self.says_table:
            more += ["table", *self.namespace_names]
        if kept.order:
            more += self.position_names
        if kept.connector:
            more.append("connector")
        placed = {
            "fields": ([*op, *more], []),
            "headers": ([], [*op, *more]),
            "both": ([*op, *more], [*op, *more]),
            "split": (op, more),
        }
        fields, headers = placed[kept.place]
        return ev.Smt(
            kept.mode,
            own.get("add_fields", fields),
            own.get("add_headers", headers),
            own.get("add_fields_prefix", "__"),
            own.get("add_headers_prefix", "__"),
            kept.converter,
        )

    @property
    def namespace_names(self) -> list[str]:
        if self.connector == "mysql":
            return ["db"]
        return ["schema", "keyspace"] if self.connector == "vitess" else ["schema"]

    @property
    def position_names(self) -> list[str]:
        """What orders and identifies the connector's events."""
        of_any = ["transaction.id", "transaction.total_order"]
        if self.connector == "mysql":
            return ["file", "pos", "row", "gtid", *of_any]
        if self.connector in COARSE:
            elements = COARSE[self.connector](1, Mark(1, 1))
            absent = ("ts_ms", "connector", "lsn")
            return [*(name for name in elements if name not in absent), *of_any]
        return ["lsn", "txId", *of_any]

    @property
    def topic(self) -> str:
        return f"worlds-{self.name}.{self.namespace}.{self.name}"

    def send(self, record: Record) -> Record:
        """Lands what the transform makes of a record, if anything; the record itself returns."""
        written = self.smt.applied(record)
        if written is not None:
            super().send(written)
        return record

    def neighbour(self) -> None:
        if self.says_table:
            self.send(self._other())

    def _other(self, **options: Any) -> Record:
        table = (self.namespace, f"{self.name}b")
        return self._record(ev.created, self.row_of((0, 0)), table=table, **options)

    @property
    def op_name(self) -> str:  # type: ignore[override]
        """A field without which, or with another value, a record is a bad one."""
        return "__deleted" if self.kept.mode.startswith("rewrite") else "id"

    def control(self, place: tuple[int, int], step: Step) -> None:
        server = f"worlds-{self.name}"
        record = self.pick(
            lambda: ev.message(topic=f"{server}.message"),
            lambda: ev.message(topic=self.topic),
            lambda: ev.heartbeat(self.now_ms(), topic=f"__debezium-heartbeat.{server}"),
            lambda: ev.transaction_mark(topic=f"{server}.transaction"),
            lambda: ev.schema_change("ALTER TABLE x", topic=server),
            lambda: self._other(topic=f"{self.topic}b"),
        )
        self.send(record())

    def sample(self, row: Values) -> Record:
        return self.smt.applied(super().sample(row)) or super().sample(row)
