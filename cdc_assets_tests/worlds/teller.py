"""Steps, and the teller of what they do to the rows of a table."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

from cdc_assets_tests import events as ev
from cdc_assets_tests.events import TOAST
from cdc_assets_tests.model import Record
from cdc_assets_tests.worlds.world import DAYS, Settings, World

FAMILIES, KEYS = 24, 3
PARTITIONS = 3
NOON = datetime(2026, 11, 4, 12, tzinfo=timezone.utc)

Values = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One thing that happens; `form` picks among the ways in which it may look."""

    action: str
    family: int
    key: int
    unsent: int  # bits: which columns the event does not send
    delay: int  # days by which it lands later; -1: at the end of its day
    joins: int  # 1: goes on in the newest transaction, 2: in the one before it; 0: begins its own
    form: int


@dataclass(frozen=True)
class Traits:
    """What holds for a whole world."""

    schemas: str  # on, off, mixed
    key: Any  # as in cdc.yaml: None, a list, "none"
    composite: bool
    text_keys: bool
    full: bool
    start: int  # day on which the table starts
    lanes: int
    shared_topic: bool
    grown: int | None  # day from which keys go on in partitions that were added
    outage: int | None  # day on which nothing lands but on the next one
    clock: str  # Kafka's: right, or now and then ahead
    alike: bool  # rows have few different values
    grain: str  # what the elements that order tell apart: change, transaction, block, nothing
    identity: str  # what those that identify do: change; statement, if they begin anew; nothing
    names: str  # what names a transaction: source, transaction, both, nothing
    connector: str = "postgresql"  # of Debezium's worlds; the others' elements tie often (O4, O8)
    kept: Kept | None = None  # of flattened worlds
    servers: Servers | None = None


@dataclass(frozen=True)
class Servers:
    """Days on which other servers and connectors begin (O11), and from which there are others'.

    `begins` says where the positions of another server do; `shares`: the former connector goes on.
    """

    server: int | None
    begins: str  # lower, overlapping, higher
    connector: int | None
    shares: bool
    database: int | None


@dataclass(frozen=True)
class Kept:
    """What the transform of a world keeps of the envelope, where cdc.yaml does not list it.

    `place` says where: in fields, in headers, in both, or split: the op alone in a field.
    """

    mode: str
    place: str
    op: bool
    table: bool
    order: bool  # the connector's own elements
    connector: bool
    times: tuple[str, ...]
    converter: Callable[[Any], bytes | None]


@dataclass
class Tx:
    """A transaction, and how far it has come."""

    number: int
    family: int
    day: int
    began_ms: int  # by the clock of its source
    order: int = 0  # of its newest event
    row: int = 0  # the same, within the statement


@dataclass
class Teller:
    """Follows the rows of a table and lands the events of what happens to them."""

    name: str
    settings: Settings
    traits: Traits
    day: int = 0
    clock: int = 0
    serial: int = 0
    version: int = 0
    started: int = 0  # transactions
    changes: int = 0
    txs: list[Tx] = field(default_factory=list)  # the two newest, last the one that is told
    rows: dict[tuple[int, int], Values] = field(default_factory=dict)
    days: list[list[Record]] = field(default_factory=lambda: [[] for _ in DAYS])
    ends: list[list[Record]] = field(default_factory=lambda: [[] for _ in DAYS])
    history: list[Record] = field(default_factory=list)
    form: int = 0
    delay: int = 0

    namespace = "public"
    op_name, image_name = "op", "after"  # members of the event

    # what happens

    def neighbour(self) -> None:
        """A record of another table on this topic, which leaves lone tombstones without (D11)."""
        record = self.sample(self.row_of((0, 0)))
        value = re.sub(rb'"(table|tableName)":"([\w.]+)"', rb'"\1":"\2b"', record.value or b"")
        self.send(replace(record, value=value))

    def tell(self, step: Step) -> None:
        self.form, self.delay = step.form, step.delay
        self.clock += 1
        if step.action not in ("again", "alter", "control"):
            step = self.enter(step)
        getattr(self, step.action)((step.family, step.key), step)

    def enter(self, step: Step) -> Step:
        """Begin a transaction, or go on in one: then the step is of that one's family."""
        if 0 < step.joins <= len(self.txs):
            self.txs.append(self.txs.pop(-step.joins))
        else:
            self.started += 1
            # One that waited for another's lock began before it.
            began_ms = self.now_ms() - self.pick(0, 0, 0, 1000, 61_000, 86_400_000)
            self.txs = [*self.txs[-1:], Tx(self.started, step.family, self.day, began_ms)]
        self.next_statement()
        return replace(step, family=self.tx.family)

    @property
    def tx(self) -> Tx:
        return self.txs[-1] if self.txs else Tx(0, 0, 0, self.now_ms())

    def next_statement(self) -> None:
        self.tx.row = 0

    def next_change(self) -> int:
        """What the source's own order says of the next event."""
        self.changes += int(self.pick(1, 1, 1, 0))  # rows of one statement may share it (O4)
        self.tx.order, self.tx.row = self.tx.order + 1, self.tx.row + 1
        if self.traits.grain == "transaction":
            return self.tx.number
        return {"change": self.changes, "block": self.changes // 8}.get(self.traits.grain, 0)

    def numbered(self) -> int | None:
        """What tells the event apart from others that tie with it."""
        numbers = {"change": self.tx.order, "statement": self.tx.row}
        return numbers.get(self.traits.identity)

    def written_ms(self) -> int:
        """When a database wrote that takes the time of day for an order, or some of it."""
        if self.traits.grain == "transaction":
            return self.tx.began_ms
        return self.now_ms() - int(self.pick(0, 0, 1000))

    def next_day(self) -> None:
        self.day += 1
        self.clock = 0

    def pick(self, *options: Any) -> Any:
        """One of some options; each call looks at another part of the step's form."""
        self.form, chosen = divmod(self.form, len(options)) if self.form else (0, 0)
        return options[chosen]

    def write(self, place: tuple[int, int], step: Step) -> None:
        before = self.rows.get(place)
        row = self.row_of(place)
        if before is None:
            self.created(row, step)
        else:
            self.updated(before, row, step)
        self.rows[place] = row

    def delete(self, place: tuple[int, int], step: Step) -> None:
        before = self.rows.pop(place, None) or self.row_of(place)
        self.deleted(before, step)

    def move(self, place: tuple[int, int], step: Step) -> None:
        self._move(place, 1 + self.pick(0, 1), step)

    def chain(self, place: tuple[int, int], step: Step) -> None:
        via = self._move(place, 1, step)
        self._move(via, 1, step)

    def there_and_back(self, place: tuple[int, int], step: Step) -> None:
        via = self._move(place, 1, step)
        self._move(via, KEYS - 1, step)

    def _move(self, place: tuple[int, int], by: int, step: Step) -> tuple[int, int]:
        target = (place[0], (place[1] + by) % KEYS)
        before = self.rows.pop(place, None) or self.row_of(place)
        row = {**self.row_of(target), **self.unsent_of(before, step)}
        self.moved(before, row, step)
        self.rows[target] = row
        return target

    def several(self, place: tuple[int, int], step: Step) -> None:
        """A statement writes all rows of a family, or deletes those that are there."""
        is_delete = self.pick(False, False, True)
        changes: list[tuple[Values | None, Values | None]] = []
        for key in range(KEYS):
            at = (place[0], key)
            before = self.rows.pop(at, None)
            row = None if is_delete else self.row_of(at)
            if row is not None:
                self.rows[at] = row
            if before or row:
                changes.append((before, row))
        self.statement(changes, step)

    def slide(self, place: tuple[int, int], step: Step) -> None:
        """All rows of a family change their keys, as `id = id + 1` does.

        Each comes while the next one's row is still there, or they begin at the free end (O16);
        where no end is free they go round.
        """
        held = sorted(at for at in self.rows if at[0] == place[0])
        if self.pick(True, True, False):
            held.reverse()
        move = self.pick(self.moved, self.moved, self.updated)  # D9, D10
        by = self.pick(1, KEYS - 1)
        olds = [self.rows.pop(at) for at in held]
        changes: list[tuple[Values | None, Values | None]] = []
        for (family, key), before in zip(held, olds, strict=True):
            target = (family, (key + by) % KEYS)
            self.rows[target] = {**self.row_of(target), **self.kept_of(before, step)}
            changes.append((before, self.rows[target]))
        self.statement(changes, step, move)

    def statement(
        self,
        changes: Iterable[tuple[Values | None, Values | None]],
        step: Step,
        move: Callable[[Values, Values, Step], None] | None = None,
    ) -> None:
        """One statement's changes: each row before and after it."""
        delay = self.delay
        for before, row in changes:
            if before is None:
                self.created(row or {}, step)
            elif row is None:
                self.deleted(before, step)
            elif self.key_of(before) == self.key_of(row):
                self.updated(before, row, step)
            else:
                (move or self.moved)(before, row, step)
                self.delay = delay

    def repeat(self, place: tuple[int, int], step: Step) -> None:
        """What happened happens again, each time by a statement of its own (O15)."""
        row, other = self.row_of(place), self.row_of(place)
        story: list[Values | None] = self.pick([None, row, None, row], [row, other, row])
        for now in story:
            before = self.rows.pop(place, None)
            self.next_statement()
            if before or now:
                self.statement([(before, now)], step)
            if now is not None:
                self.rows[place] = now

    def shift(self, place: tuple[int, int], step: Step) -> None:
        """An update whose images have different keys."""
        target = (place[0], (place[1] + 1) % KEYS)
        before = self.rows.pop(place, None) or self.row_of(place)
        row = {**self.row_of(target), **self.unsent_of(before, step)}
        self.updated(before, row, step)
        self.rows[target] = row

    def alter(self, place: tuple[int, int], step: Step) -> None:
        self.version = min(self.version + 1, len(VERSIONS) - 1)

    def again(self, place: tuple[int, int], step: Step) -> None:
        """A stretch is sent once more (O1)."""
        back, length = 1 + self.pick(*range(12)), 1 + self.pick(*range(6))
        start = max(0, len(self.history) - back)
        for record in self.history[start : start + length]:
            self.land(record)

    def truncate(self, place: tuple[int, int], step: Step) -> None:
        self.rows.clear()
        self.truncated(step)

    def lone_tombstone(self, place: tuple[int, int], step: Step) -> None:
        key = self.key_of(self.rows.pop(place, None) or self.row_of(place))
        value = self.pick(None, b"null", b"", b'{"schema":null,"payload":null}')
        wire = self.key_bytes(key)
        self.send(ev.tombstone(wire, topic=self.topic, value=value, partition=self.lane(key)))

    def bad(self, place: tuple[int, int], step: Step) -> None:
        """Records that nobody can read, or that name no row (D3, D17, D19)."""
        good = self.sample(self.row_of(place))
        value = good.value or b""
        bad = self.pick(
            lambda: replace(good, value=value + b"}"),
            lambda: replace(good, value=b"\x00\x00\x00\x00\x07" + value),
            lambda: replace(good, value=_without(value, self.op_name)),
            lambda: replace(good, value=_with(value, self.op_name, "x")),
            lambda: replace(good, value=_with(value, self.image_name, None)),
            lambda: replace(good, value=b"[1]"),
            lambda: replace(good, key=b"{garbage"),
            lambda: replace(good, key=None),
            lambda: ev.malformed_line(f"no record of {self.name}"),
            lambda: replace(good, value=value.replace(b'"id"', b'"no_id"'), key=None),
        )
        self.send(bad())

    def control(self, place: tuple[int, int], step: Step) -> None:
        raise NotImplementedError

    def odd(self, place: tuple[int, int], step: Step) -> None:
        raise NotImplementedError

    # rows

    def key_of(self, row: Values) -> Values:
        return {name: row[name] for name in self.key_names}

    @property
    def key_names(self) -> tuple[str, ...]:
        return ("id", "part") if self.traits.composite else ("id",)

    def row_of(self, place: tuple[int, int]) -> Values:
        """A new row under a key; every value tells which event it is of, unless rows are alike."""
        self.serial += 1
        id_ = 10 * (place[0] + 1) + place[1]
        row: Values = {"id": f"k{id_}" if self.traits.text_keys else id_}
        if self.traits.composite:
            row["part"] = "p"
        wide = 2**40 if "n" in self.types and self.types["n"] == "int64" else 0
        told = self.serial % 3 if self.traits.alike else self.serial
        number = wide + told
        n = number if self.types.get("n") != "string" else f"n{number}" if told % 2 else str(number)
        values = {"v": f"v{told}", "doc": f"d{told}", "n": n, "w": f"w{told}"}
        return {**row, **{name: v for name, v in values.items() if name in self.types}}

    @property
    def types(self) -> dict[str, str]:
        own = {"id": "string" if self.traits.text_keys else "int32"}
        if self.traits.composite:
            own["part"] = "string"
        version = VERSIONS[self.version]
        if self.settings.retyped and self.version > 0:
            version = {**version, "n": "string"}
        return {**own, **version}

    def kept_of(self, before: Values, step: Step) -> Values:
        """What a statement leaves as it was that changes keys alone, or more."""
        if self.pick(True, False):
            return {n: v for n, v in before.items() if n in self.types and n not in self.key_names}
        return self.unsent_of(before, step)

    def unsent_of(self, before: Values, step: Step) -> Values:
        """What a row keeps when its key changes and the event does not send it."""
        names = self._unsent_names(step)
        return {name: before[name] for name in names if name in before and name in self.types}

    @staticmethod
    def _unsent_names(step: Step) -> list[str]:
        return [name for bit, name in ((1, "doc"), (2, "v")) if step.unsent & bit]

    def after_of(self, row: Values, step: Step) -> Values:
        """The row as the event sends it."""
        if self.traits.key == "none":
            return row
        names = self._unsent_names(step)
        if self.settings.missing_columns == "keep" and self.pick(True, False):
            return {name: value for name, value in row.items() if name not in names}
        return {name: self.placeholder(name, value, names) for name, value in row.items()}

    def placeholder(self, name: str, value: Any, names: Sequence[str]) -> Any:
        return TOAST if name in names else value

    # records

    @property
    def configured_namespace(self) -> str:
        return self.namespace

    @property
    def topic(self) -> str:
        return f"worlds.{self.name}"

    @property
    def table(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    def lane(self, key: Values) -> int:
        """Higher for some keys once partitions were added: ties go on in the stream's order."""
        added, lane = divmod(sum(str(key).encode()), self.traits.lanes)
        has_more = self.traits.grown is not None and self.day >= self.traits.grown
        return lane + self.traits.lanes * (added % 2 if has_more else 0)

    def key_bytes(self, key: Values) -> bytes:
        types = {n: t for n, t in self.types.items() if n in key} if self.has_schema() else None
        return ev.key_bytes(key, None, types) or b""

    def has_schema(self) -> bool:
        """Whether the events of this time carry their schema."""
        kind = "on" if self.settings.retyped else self.traits.schemas
        return kind == "on" or (kind == "mixed" and self.serial % 3 != 0)

    def now_ms(self) -> int:
        now = NOON + timedelta(days=self.day, seconds=self.clock)
        return int(now.timestamp() * 1000)

    def send(self, record: Record) -> Record:
        self.history.append(record)
        self.land(record)
        return record

    def land(self, record: Record) -> None:
        """Late records land on a later day, or after all others of theirs."""
        day = self.day + max(self.delay, 0)
        if day == self.traits.outage:
            day += 1
        if day >= len(DAYS):
            return  # beyond the days that are looked at
        late = timedelta(days=day - self.day, seconds=40 if self.delay < 0 else 0)
        if self.traits.clock == "ahead" and self.clock % 5 == 0:
            late += timedelta(hours=13)  # later than its day (O8)
        landed_ms = self.now_ms() + 500 + late // timedelta(milliseconds=1)
        if not record.malformed_line:
            record = replace(record, timestamp_ms=landed_ms)
        (self.ends if self.delay < 0 else self.days)[day].append(record)

    def world(self) -> World:
        offsets: dict[Any, int] = defaultdict(int)
        landed: dict[date, tuple[Record, ...]] = {}
        for day, records, ends in zip(DAYS, self.days, self.ends, strict=True):
            numbered = []
            for record in [*records, *ends]:
                if not record.malformed_line:
                    lane = (record.topic, record.partition)
                    record = replace(record, offset=offsets[lane])
                    offsets[lane] += 1
                numbered.append(record)
            landed[day] = tuple(numbered)
        config: dict[str, Any] = {"start_date": DAYS[self.traits.start]}
        if self.traits.key is not None:
            config["key"] = self.traits.key if self.traits.key == "none" else list(self.key_names)
        if self.traits.full and self.settings.format in ("debezium", "debezium-flat"):
            config["replica_identity"] = "full"
        table = f"{self.configured_namespace}.{self.name}"
        return World(self.name, self.settings, table, config, landed)

    # how each format says it

    def created(self, row: Values, step: Step) -> None:
        raise NotImplementedError

    def updated(self, before: Values, row: Values, step: Step) -> None:
        raise NotImplementedError

    def deleted(self, before: Values, step: Step) -> None:
        raise NotImplementedError

    def moved(self, before: Values, row: Values, step: Step) -> None:
        self.updated(before, row, step)

    def truncated(self, step: Step) -> None:
        """Not every format has it."""

    def read(self, place: tuple[int, int], step: Step) -> None:
        self.write(place, step)

    def sample(self, row: Values) -> Record:
        raise NotImplementedError


VERSIONS: list[dict[str, str]] = [
    {"v": "string", "doc": "string", "n": "int32"},
    {"v": "string", "doc": "string", "n": "int64"},
    {"v": "string", "doc": "string", "n": "int64", "w": "string"},
    {"doc": "string", "n": "int64", "w": "string"},
    {"doc": "string", "n": "int64", "w": "string", "v": "string"},
]


def _with(value: bytes, name: str, member: Any) -> bytes:
    document = json.loads(value)
    document.get("payload", document)[name] = member
    return ev.to_json(document).encode()


def _without(value: bytes, name: str) -> bytes:
    document = json.loads(value)
    document.get("payload", document).pop(name)
    return ev.to_json(document).encode()
