"""Small worlds, drawn by hypothesis: a table's rows change, and their events arrive as Kafka brings
them: late, twice, out of order, in part.

A `World` is one configured table and all that landed for it. Its keys fall into families that have
nothing to do with each other, so that one table, whose every day costs Spark a second of planning,
holds several histories. A world's table and topic bear its name; worlds whose `Settings` are the
same are tables of one source.

To add a kind of event, write a method of the `Teller` and name it in `ACTIONS`; to add a format,
derive a Teller and name it in `TELLERS`.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

import hypothesis.strategies as st

from cdc_assets_tests import events as ev
from cdc_assets_tests.events import TOAST
from cdc_assets_tests.model import Landed, Record
from cdc_assets_tests.registries import as_structs

DAYS = [ev.DAY + timedelta(days=n) for n in range(int(os.environ.get("CDC_WORLD_DAYS", "4")))]
FAMILIES, KEYS = 24, 3
PARTITIONS = 3
NOON = datetime(2026, 11, 4, 12, tzinfo=timezone.utc)

Values = dict[str, Any]


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

    def options(self) -> dict[str, Any]:
        """As members of the source in cdc.yaml."""
        flattening = {n: list(v) if isinstance(v, tuple) else v for n, v in self.flattening}
        return {
            "late_days": self.late_days,
            "missing_columns": self.missing_columns,
            "position_reset": list(self.position_reset),
            **flattening,
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
    found = re.search(rb'"(?:pk\.)?id":"?(?:\\")?k?(\d+)', sent)
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


def compact(record: Record) -> str:
    """A record as a line that a person reads: place, key, and of the value what tells it apart."""
    place = f"{record.partition}:{record.offset}"
    key = (record.key or b"").decode("utf-8", "replace")
    headers = {n: (v or b"").decode() for n, v in record.headers}
    try:
        value = json.loads(record.value or b"null")
        payload = value.get("payload", value)
        source = payload.get("source") or {}
        position = source.get("lsn") or source.get("pos") or payload.get("sequenceId")
        at = position or source.get("ts_ms")
        images = f"before={_image(payload.get('before'))} after={_image(payload.get('after'))}"
        types = "" if value is payload or not value.get("schema") else " schema"
        snapshot = source.get("snapshot")
        mark = f" snapshot={snapshot}" if snapshot not in (None, "false", False) else ""
        order = (payload.get("transaction") or {}).get("total_order")
        body = f"{payload.get('op')} @{at}{'' if order is None else f'/{order}'} {images}"
        body += types + mark
        if "op" not in payload:
            body = _image(payload) + types
    except (ValueError, AttributeError):
        body = repr(record.value)
    return f"{place} {key} {body}{f' {headers}' if headers else ''}"


def _image(image: Any) -> str:
    row = image.get("dataColumn", image) if isinstance(image, dict) else image
    return json.dumps(row).replace(TOAST, "~")


# -- what is drawn -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One thing that happens; `form` picks among the ways in which it may look."""

    action: str
    family: int
    key: int
    unsent: int  # bits: which columns the event does not send
    delay: int  # days by which it lands later; -1: at the end of its day
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
    connector: str = "postgresql"  # of Debezium's worlds; the others' elements tie often (O4, O8)
    kept: Kept | None = None  # of flattened worlds


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


# Source elements that several changes share: transactions, one SCN, one millisecond, none at all.
COARSE: dict[str, Callable[[int], dict[str, Any]]] = {
    "db2": lambda n: {"change_lsn": f"0:0:{n:x}", "commit_lsn": f"0000:187a:{n:08x}"},
    "sqlserver": lambda n: {"change_lsn": f"27:{n:x}:2", "commit_lsn": f"27:{n:x}:5"},
    "informix": lambda n: {"change_lsn": str(n), "commit_lsn": str(n)},
    "oracle": lambda n: {"scn": str(n), "commit_scn": str(n), "ssn": 0},
    "TiCDC": lambda n: {"commit_ts": 447_507_027_004_751_870 + n},
    "mongodb": lambda n: {"ts_ms": 1_793_793_600_000 + n * 1000, "ord": 1},
    "vitess": lambda n: {"ts_ms": ev.NOON_MS + n * 1000},
    "none": lambda n: {"connector": None, "ts_ms": None},
}

# What of an update Spanner captures; NEW_VALUES do not tell null from what did not change.
CAPTURED = (
    "OLD_AND_NEW_VALUES", "OLD_AND_NEW_VALUES", "OLD_AND_NEW_VALUES", "NEW_ROW",
    "NEW_ROW_AND_OLD_VALUES", "NEW_VALUES",
)  # fmt: skip

ACTIONS = {
    "write": 72,
    "delete": 27,
    "move": 24,
    "chain": 12,
    "there_and_back": 6,
    "shift": 12,
    "read": 12,
    "lone_tombstone": 6,
    "again": 18,
    "odd": 6,
    "bad": 3,
    "control": 1,
    "alter": 2,
    "truncate": 1,
}


def _weighted(weights: dict[str, int]) -> list[str]:
    return [name for name, weight in weights.items() for _ in range(weight)]


def steps() -> st.SearchStrategy[Step]:
    return st.builds(
        Step,
        action=st.sampled_from(_weighted(ACTIONS)),
        family=st.integers(0, FAMILIES - 1),
        key=st.integers(0, KEYS - 1),
        unsent=st.sampled_from([0, 0, 0, 1, 1, 2, 3]),
        delay=st.sampled_from([0] * 14 + [-1, -1, 1, 1, 2, 3]),
        form=st.integers(0, 2**20 - 1),
    )


def traits(format: str) -> st.SearchStrategy[Traits]:
    keys: list[Any] = [None, None, ["id"], ["id"], ["id"]]
    if format in ("debezium", "debezium-flat"):
        keys.append("none")
    return st.builds(
        Traits,
        schemas=st.sampled_from(["on", "off", "mixed"]),
        key=st.sampled_from(keys),
        composite=st.sampled_from([False, False, True]),
        text_keys=st.sampled_from([False, False, True]),
        full=st.booleans(),
        start=st.sampled_from([0, 0, 0, 0, 1, 2]),
        lanes=st.integers(1, PARTITIONS),
        shared_topic=st.sampled_from([False, False, False, True]),
        connector=st.sampled_from(["postgresql"] * len(COARSE) + list(COARSE)),
        kept=kept() if format == "debezium-flat" else st.none(),
    )


def kept() -> st.SearchStrategy[Kept]:
    return st.builds(
        Kept,
        mode=st.sampled_from(
            ["rewrite"] * 3
            + ["rewrite-with-tombstone"] * 3
            + ["tombstone", "tombstone", "delete-to-tombstone", "none", "drop"]
        ),
        place=st.sampled_from(["fields", "fields", "headers", "both", "split"]),
        op=st.sampled_from([True, True, False]),
        table=st.booleans(),
        order=st.sampled_from([True, True, False]),
        connector=st.booleans(),
        times=st.sampled_from(
            [("source.ts_ms", "ts_ms"), ("source.ts_ms",), ("source.ts_ms", "source.snapshot"), ()]
        ),
        converter=st.sampled_from([ev.as_text, ev.as_json, ev.as_json_with_schema]),
    )


# New names of all that a world may keep, of any connector.
RENAMED = (
    "op:OP", "connector", "schema:S", "db", "keyspace", "table:T", "lsn:POS", "file", "pos:at",
    "source.ts_ms:changed_at", "ts_ms", "transaction.total_order", "version",
)  # fmt: skip
BY_TOPIC = r"[^.]+\.(?<schema>[^.]+)\.(?<table>[^.]+)"


def flattenings() -> st.SearchStrategy[tuple[tuple[str, Any], ...]]:
    """The options of `debezium-flat` in cdc.yaml; without a list any field may have been added."""
    lists: list[dict[str, Any]] = [
        {},
        {},
        {"add_fields_prefix": "meta.", "add_headers_prefix": "X-"},
        {"add_fields_prefix": "_cdc"},
        {"add_fields": RENAMED, "add_fields_prefix": "", "add_headers": ()},
        {"add_fields": ("op:deleted_by",), "add_headers": RENAMED, "add_headers_prefix": ""},
    ]
    topics = [{}, {"table_from_topic": BY_TOPIC}]
    topics.append({"table_from_topic": BY_TOPIC.replace("schema", "db")})
    return st.builds(
        lambda listed, topic: tuple({**listed, **topic}.items()),
        st.sampled_from(lists),
        st.sampled_from(topics),
    )


def settings_of(format: str) -> st.SearchStrategy[Settings]:
    noon_of_a_day = [(NOON + timedelta(days=n, seconds=8)).isoformat() for n in (1, 2)]
    resets = st.sampled_from([(), (), *((instant,) for instant in noon_of_a_day)])
    return st.builds(
        Settings,
        format=st.just(format),
        late_days=st.integers(0, 2),
        missing_columns=st.sampled_from(["null", "null", "keep"]),
        position_reset=resets if format in ("debezium", "debezium-flat") else st.just(()),
        flattening=flattenings() if format == "debezium-flat" else st.just(()),
    )


@st.composite
def worlds(draw: st.DrawFn, settings: Settings, name: str) -> World:
    drawn = draw(traits(settings.format))
    if settings.registry is not None:
        drawn = replace(drawn, schemas="on")
    if settings.connector is not None:
        drawn = replace(drawn, connector=settings.connector, text_keys=False)
    if settings.connector == "spanner":  # whose tables have keys, and old images few columns
        drawn = replace(drawn, full=False, key=None if drawn.key == "none" else drawn.key)
    teller = TELLERS[settings.format](name, settings, drawn)
    if teller.traits.shared_topic:
        teller.neighbour()
    # As many steps over more days: hypothesis draws no more than so much at once.
    of_a_day = st.lists(steps(), min_size=96 // len(DAYS), max_size=360 // len(DAYS))
    for of_day in draw(st.tuples(*(of_a_day for _ in DAYS))):
        for step in of_day:
            teller.tell(step)
        teller.next_day()
    world = teller.world()
    if settings.registry != "AVRO":
        return world
    return replace(world, landed={d: tuple(of) for d, of in as_structs(world.landing()).items()})


# -- the telling ---------------------------------------------------------------------------------


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
        place = (step.family, step.key)
        getattr(self, step.action)(place, step)

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
        """A new row under a key; every value tells which event it is of."""
        self.serial += 1
        number = 10 * (place[0] + 1) + place[1]
        row: Values = {"id": f"k{number}" if self.traits.text_keys else number}
        if self.traits.composite:
            row["part"] = "p"
        wide = 2**40 if "n" in self.types and self.types["n"] == "int64" else 0
        values = {
            "v": f"v{self.serial}",
            "doc": f"d{self.serial}",
            "n": wide + self.serial,
            "w": f"w{self.serial}",
        }
        return {**row, **{name: v for name, v in values.items() if name in self.types}}

    @property
    def types(self) -> dict[str, str]:
        own = {"id": "string" if self.traits.text_keys else "int32"}
        if self.traits.composite:
            own["part"] = "string"
        return {**own, **VERSIONS[self.version]}

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
    def topic(self) -> str:
        return f"worlds.{self.name}"

    @property
    def table(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    def lane(self, key: Values) -> int:
        return sum(str(key).encode()) % self.traits.lanes

    def key_bytes(self, key: Values) -> bytes:
        types = {n: t for n, t in self.types.items() if n in key} if self.has_schema() else None
        return ev.key_bytes(key, None, types) or b""

    def has_schema(self) -> bool:
        """Whether the events of this time carry their schema."""
        kind = self.traits.schemas
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
        if day >= len(DAYS):
            return  # beyond the days that are looked at
        late = timedelta(days=max(self.delay, 0), seconds=40 if self.delay < 0 else 0)
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
        if self.traits.full and isinstance(self, DebeziumTeller):
            config["replica_identity"] = "full"
        table = f"{self.namespace}.{self.name}"
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


class DebeziumTeller(Teller):
    """PostgreSQL, and MySQL, Vitess and others for some worlds."""

    lsn = 1000

    @property
    def is_mysql(self) -> bool:
        return self.traits.lanes == 2 and self.traits.text_keys and self.traits.key != "none"

    def event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        # Rows of one statement may share their LSN (O4).
        self.lsn += self.pick(8, 8, 8, 0)
        return self.send(self._record(build, *images, **{"lsn": self.lsn, **options}))

    def _record(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        rows = [image for image in reversed(images) if image is not None]
        row = options.pop("row", rows[0] if rows else None)
        now = self.now_ms()
        defaults: dict[str, Any] = {
            "table": self.table,
            "topic": self.topic,
            "types": self.types if self.has_schema() else None,
            "key": None if row is None else self.key_bytes(self.key_of(row)),
            "partition": 0 if row is None else self.lane(self.key_of(row)),
            "source_ts_ms": now,
            "processed_ts_ms": now + 200,
            "extra": {"transaction": self.transaction()},
        }
        connector = "mysql" if self.is_mysql else self.traits.connector
        if connector != "postgresql":
            # Its events have no LSN: the number tells their own elements.
            lsn, options["lsn"] = options.pop("lsn", None) or 0, None
            captured = options.pop("captured", CAPTURED[0])
            db, table = options.get("table", self.table)
            if connector == "mysql":
                options["source"] = ev.mysql_source(db, table, pos=lsn // 8, row=lsn % 8)
            elif connector == "vitess":
                # It is upgraded after the first day.
                is_old = self.day == 0
                options["source"] = ev.vitess_source(db, table, number=lsn // 64, is_old=is_old)
            elif connector == "spanner":
                at = {"ts_ms": ev.NOON_MS + lsn // 64}
                options["source"] = ev.spanner_source(db, captured) | at
            else:
                elements = COARSE[connector](lsn // 64)
                options["source"] = {"connector": connector, **elements}
        return build(*images, **{**defaults, **options})

    def transaction(self) -> dict[str, Any] | None:
        order = self.pick(None, None, None, 1, "2")
        return None if order is None else {"id": "7:1", "total_order": order}

    def before_of(self, row: Values) -> Values | None:
        if self.traits.full:
            return row
        made_up = {"v": "", "doc": "", "n": 0}
        return self.pick(None, None, self.key_of(row), {**row, **made_up})

    def created(self, row: Values, step: Step) -> None:
        self.event(ev.created, row)

    def updated(self, before: Values, row: Values, step: Step) -> None:
        if self.traits.connector == "spanner":
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
        """d(old) with its tombstone, and c(new), under one LSN (D9)."""
        form = self.pick("struct", "text", "schema", "java")
        old, new = self.key_of(before), self.key_of(row)
        image = self.before_of(before)
        after = self.after_of(row, step)
        to = {"__debezium.newkey": ev.key_header(new, form)}
        gone = self.event(ev.deleted, image, row=before, headers=to)
        if self.pick(True, True, False):
            self.bury(gone)
        of = {"__debezium.oldkey": ev.key_header(old, form)}
        # The two halves may travel in different partitions, and one may be late alone.
        self.delay = self.pick(self.delay, self.delay, self.delay, 0, 1)
        self.send(self._record(ev.created, after, row=row, lsn=self.lsn, headers=of))

    def truncated(self, step: Step) -> None:
        self.event(ev.truncated)

    def read(self, place: tuple[int, int], step: Step) -> None:
        """Initial and incremental snapshots (D14, O6)."""
        row = self.rows.get(place) or self.row_of(place)
        self.rows[place] = row
        mark = self.pick("incremental", "true", "first", True)
        # `changes` holds no source elements of snapshot reads (O6): without a key, one that has
        # them in its message can't be told from its redelivery.
        has_lsn = mark != "incremental" and self.traits.key != "none"
        lsn = self.lsn if has_lsn else None
        build = self.pick(ev.read, ev.read, ev.created)
        self.event(build, row, snapshot=mark, lsn=lsn)

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
        if self.is_mysql:
            return ["db"]
        return ["schema", "keyspace"] if self.traits.connector == "vitess" else ["schema"]

    @property
    def position_names(self) -> list[str]:
        """What orders the connector's events."""
        if self.is_mysql:
            return ["file", "pos", "row"]
        if self.traits.connector in COARSE:
            elements = COARSE[self.traits.connector](0)
            return [name for name in elements if name not in ("ts_ms", "connector")]
        return ["lsn", "transaction.total_order"]

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


class LindormTeller(Teller):
    """Whole old rows, no schema, a clock for a position."""

    namespace = "default"

    def event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        return self.send(self._record(build, *images, **options))

    def _record(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        now = self.now_ms() - self.pick(0, 0, 1000)
        key = self.key_of(images[-1])
        defaults: dict[str, Any] = {
            "table": self.table,
            "topic": self.topic,
            "types": self.types if self.has_schema() else None,
            "key": self.pick(self.key_bytes(key), None),
            "partition": self.lane(key),
            "source_ts_ms": now,
            "processed_ts_ms": now + 8,
        }
        if self.traits.key is None:
            defaults["key"] = self.key_bytes(key)
        return build(*images, **{**defaults, **options})

    def created(self, row: Values, step: Step) -> None:
        self.event(ev.lindorm_created, row)

    def updated(self, before: Values, row: Values, step: Step) -> None:
        self.event(ev.lindorm_updated, before, self.after_of(row, step))

    def deleted(self, before: Values, step: Step) -> None:
        self.event(ev.lindorm_deleted, before)

    def odd(self, place: tuple[int, int], step: Step) -> None:
        self.event(ev.lindorm_created, self.row_of(place), source_ts_ms=self.pick(None, 0))

    def control(self, place: tuple[int, int], step: Step) -> None:
        self.send(ev.heartbeat(self.now_ms(), topic=self.topic))

    def sample(self, row: Values) -> Record:
        return self._record(ev.lindorm_created, row)


class DataWorksTeller(Teller):
    """Updates in two halves, of which either may be late."""

    namespace = "shop"
    sequence = 1_620_457_642_589_000_000

    def event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        return self.send(self._record(build, *images, **options))

    def _record(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        rows = [image for image in reversed(images) if image is not None]
        key = self.key_of(rows[0]) if rows else {}
        if "sequence_id" not in options:
            self.sequence += 1
        now = self.now_ms()
        kinds = {"int32": "LONG", "int64": "LONG", "string": "STRING"}
        with_columns = self.has_schema()
        defaults: dict[str, Any] = {
            "table": self.table,
            "topic": self.topic,
            "columns": {n: kinds[t] for n, t in self.types.items()} if with_columns else None,
            "primary_key": None if self.traits.key else list(self.key_names),
            "partition": self.lane(key),
            "sequence_id": str(self.sequence),
            "event_time": now,
            "system_time": self.pick(now + 300, now + 300, None),
        }
        return build(*images, **{**defaults, **options})

    def created(self, row: Values, step: Step) -> None:
        self.event(ev.dataworks_inserted, row)

    def updated(self, before: Values, row: Values, step: Step) -> None:
        after = self.after_of(row, step)
        if self.pick(True, True, False):
            self._pair(before, after)
        else:
            self.event(ev.dataworks_updated, before, after)

    def _pair(self, before: Values, after: Values) -> None:
        """Two records with one sequenceId; each half has a delay of its own (W3)."""
        self.sequence += 1
        shared = {"sequence_id": str(self.sequence)}
        halves = [(ev.dataworks_update_before, before), (ev.dataworks_update_after, after)]
        lost = self.pick(None, None, None, None, None, 0, 1)
        late = self.delay
        for number, (build, image) in enumerate(halves):
            self.delay = self.pick(late, late, late, 0, 1, 2, 3)
            if number != lost:
                self.event(build, image, **shared)

    def deleted(self, before: Values, step: Step) -> None:
        self.event(ev.dataworks_deleted, before)

    def truncated(self, step: Step) -> None:
        self.event(ev.dataworks_truncated)

    def odd(self, place: tuple[int, int], step: Step) -> None:
        sequence = self.pick(None, "9" * 30, str(self.sequence - 5), "x")
        self.event(ev.dataworks_inserted, self.row_of(place), sequence_id=sequence)

    def control(self, place: tuple[int, int], step: Step) -> None:
        self.send(
            self.pick(
                ev.dataworks_heartbeat(self.now_ms(), topic=self.topic),
                ev.dataworks_ddl("ALTER TABLE x", topic=self.topic),
            )
        )

    def sample(self, row: Values) -> Record:
        return self._record(ev.dataworks_inserted, row)


class MaxwellTeller(Teller):
    """Old values of changed columns alone; positions of the binlog, or seconds alone."""

    namespace = "shop"
    op_name, image_name = "type", "data"
    pos = 1000

    @property
    def has_positions(self) -> bool:
        return self.traits.connector == "postgresql"

    def key_bytes(self, key: Values) -> bytes:
        return ev.maxwell_key(key, self.table)

    def place(self) -> dict[str, Any]:
        """Rows of a transaction share their position; the last of it says `commit`."""
        self.pos += self.pick(8, 8, 0)
        if not self.has_positions:
            return {}
        order = self.pick({"xoffset": self.serial % 4}, {"xoffset": 0}, {"commit": True})
        return {"position": f"binlog.{3 + self.day:06}:{self.pos}", **order}

    def event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        return self.send(self._record(build, *images, **{**self.place(), **options}))

    def _record(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        key = self.key_of(images[-1])
        is_named = self.pick(True, True, False)
        defaults: dict[str, Any] = {
            "table": self.table,
            "topic": self.topic,
            "primary_key": list(self.key_names) if is_named else None,
            "key": self.pick(self.key_bytes(key), None),
            "partition": self.lane(key),
            "ts": (self.now_ms() - self.pick(0, 0, 1000)) // 1000,
        }
        if not is_named:
            defaults["key"] = self.key_bytes(key)
        return build(*images, **{**defaults, **options})

    def created(self, row: Values, step: Step) -> None:
        self.event(ev.maxwell_inserted, row)

    def updated(self, before: Values, row: Values, step: Step) -> None:
        self.event(ev.maxwell_updated, before, self.after_of(row, step))

    def deleted(self, before: Values, step: Step) -> None:
        self.event(ev.maxwell_deleted, before)

    def read(self, place: tuple[int, int], step: Step) -> None:
        """A row of a bootstrap."""
        row = self.rows.setdefault(place, self.row_of(place))
        self.event(ev.maxwell_bootstrapped, row, position=None, xoffset=None, commit=False)

    def odd(self, place: tuple[int, int], step: Step) -> None:
        """Events without a position, or without any time."""
        absent: dict[str, Any] = {"position": None}
        other = self.pick({}, {"ts": None}, {"ts": 0})
        self.event(ev.maxwell_inserted, self.row_of(place), **absent, **other)

    def control(self, place: tuple[int, int], step: Step) -> None:
        own: dict[str, Any] = {"topic": self.topic, "table": self.table}
        self.send(
            self.pick(
                ev.maxwell_ddl("ALTER TABLE x", **own),
                ev.maxwell_change("bootstrap-start", {}, **own),
            )
        )

    def sample(self, row: Values) -> Record:
        return self._record(ev.maxwell_inserted, row)


class OggTeller(Teller):
    """A place in the trail; images whole or without what did not change."""

    namespace = "SHOP"
    op_name = "op_type"
    pos = 1000

    def event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        self.pos += self.pick(8, 8, 8, 0)
        return self.send(self._record(build, *images, **options))

    def _record(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        rows = [image for image in reversed(images) if image is not None]
        key = self.key_of(rows[0]) if rows else {}
        now = self.now_ms()
        defaults: dict[str, Any] = {
            "table": ".".join(self.table),
            "topic": self.topic,
            "primary_keys": list(self.key_names),
            "key": self.pick(None, self.key_bytes(key)),
            "partition": self.lane(key),
            "pos": f"{self.pos:020}",
            "op_ms": now,
            "current_ms": self.pick(now + 300, now + 300, None),
        }
        return build(*images, **{**defaults, **options})

    def created(self, row: Values, step: Step) -> None:
        self.event(ev.ogg_inserted, row)

    def updated(self, before: Values, row: Values, step: Step) -> None:
        whole = self.pick(before, before, None)
        self.event(ev.ogg_updated, whole, self.after_of(row, step))

    def deleted(self, before: Values, step: Step) -> None:
        self.event(ev.ogg_deleted, before)

    def truncated(self, step: Step) -> None:
        self.event(ev.ogg_truncated, key=None)

    def odd(self, place: tuple[int, int], step: Step) -> None:
        pos = self.pick(None, "9" * 39, f"{self.pos - 24:020}", "x", self.pos)
        other = self.pick({}, {"op_ms": None})
        self.event(ev.ogg_inserted, self.row_of(place), pos=pos, **other)

    def control(self, place: tuple[int, int], step: Step) -> None:
        """GoldenGate sends rows alone: another table's on this topic."""
        other = f"{self.namespace}.{self.name}b"
        self.event(ev.ogg_inserted, self.row_of(place), table=other)

    def sample(self, row: Values) -> Record:
        return self._record(ev.ogg_inserted, row)


class CanalTeller(Teller):
    """Messages of one row or two; old values of changed columns alone."""

    namespace = "shop"
    op_name, image_name = "type", "data"

    def event(self, kind: str, *rows: tuple[Values | None, Values], **options: Any) -> Record:
        return self.send(self._record(kind, *rows, **options))

    def _record(self, kind: str, *rows: tuple[Values | None, Values], **options: Any) -> Record:
        """`rows`: old values, or none, and the row."""
        now = self.now_ms() - self.pick(0, 0, 1000)
        key = self.key_of(rows[0][1]) if rows else {}
        is_ti = self.traits.connector == "TiCDC"
        kinds = {"int32": "int(11)", "int64": "bigint(20)", "string": "varchar(80)"}
        olds = [old for old, _ in rows]
        defaults: dict[str, Any] = {
            "table": self.table,
            "topic": self.topic,
            "types": {n: kinds[t] for n, t in self.types.items()} if self.has_schema() else None,
            "keys": list(self.key_names),
            "key": self.pick(None, self.key_bytes(key)) if rows else None,
            "partition": self.lane(key),
            "es": now,
            "ts": now + 200,
            "id": 0,
            "commit_ts": 447_507_027_004_751_870 + self.clock if is_ti else None,
        }
        data = [row for _, row in rows] if rows else None
        return ev.canal_message(
            kind, data, olds if kind == "UPDATE" else None, **{**defaults, **options}
        )

    def second(self, step: Step) -> tuple[int, int] | None:
        """Another place of the family, for a message of two rows."""
        other = (step.family, (step.key + 1) % KEYS)
        return other if self.pick(False, False, True) else None

    def created(self, row: Values, step: Step) -> None:
        other = self.second(step)
        if other is None or other in self.rows:
            self.event("INSERT", (None, row))
            return
        self.rows[other] = self.row_of(other)
        self.event("INSERT", (None, row), (None, self.rows[other]))

    def updated(self, before: Values, row: Values, step: Step) -> None:
        after = self.after_of(row, step)
        rows = [(ev.old_values(before, after), after)]
        other = self.second(step)
        if other in self.rows and self.key_of(self.rows[other]) != self.key_of(row):
            old, self.rows[other] = self.rows[other], self.row_of(other)
            rows.append((ev.old_values(old, self.rows[other]), self.rows[other]))
        self.event("UPDATE", *rows)

    def deleted(self, before: Values, step: Step) -> None:
        self.event("DELETE", (None, before))

    def truncated(self, step: Step) -> None:
        self.event("TRUNCATE", is_ddl=True, sql="TRUNCATE TABLE x")

    def odd(self, place: tuple[int, int], step: Step) -> None:
        """Without a time, and a row twice in one message."""
        row, again = self.row_of(place), self.row_of(place)
        self.event("INSERT", (None, row), (None, again), es=self.pick(None, 0, self.now_ms()))

    def control(self, place: tuple[int, int], step: Step) -> None:
        self.event("ALTER", is_ddl=True, sql="ALTER TABLE x", keys=None, types=None)

    def sample(self, row: Values) -> Record:
        return self._record("INSERT", (None, row))


class MongoTeller(Teller):
    """Whole documents; an id never changes."""

    namespace = "shop"

    @property
    def key_names(self) -> tuple[str, ...]:
        return ("_id",)

    def row_of(self, place: tuple[int, int]) -> Values:
        row = super().row_of(place)
        number = row.pop("id")
        part = row.pop("part", None)
        return {"_id": number if part is None else {"part": part, "id": number}, **row}

    def event(self, op: str, row: Values, **options: Any) -> Record:
        return self.send(self._record(op, row, **options))

    def _record(self, op: str, row: Values, source: Values | None = None, **extra: Any) -> Record:
        now = self.now_ms()
        return ev.mongodb_change(
            op,
            row,
            table=self.table,
            topic=self.topic,
            source_ts_ms=now,
            processed_ts_ms=now + 200,
            ord=1 + self.clock % 3,
            source=source,
            extra=extra,
            partition=self.lane({"_id": row["_id"]}),
        )

    def created(self, row: Values, step: Step) -> None:
        self.event("c", row)

    def updated(self, before: Values, row: Values, step: Step) -> None:
        if before["_id"] != row["_id"]:
            self.deleted(before, step)
            self.created(row, step)
        else:
            self.event("u", row)

    def deleted(self, before: Values, step: Step) -> None:
        image = self.pick({}, {"before": json.dumps(before)})
        record = self.event("d", before, **image)
        if self.pick(True, False):
            self.send(replace(record, value=None))

    def read(self, place: tuple[int, int], step: Step) -> None:
        row = self.rows.setdefault(place, self.row_of(place))
        self.event("r", row, source={"snapshot": "true"})

    def lone_tombstone(self, place: tuple[int, int], step: Step) -> None:
        row = self.rows.pop(place, None) or self.row_of(place)
        self.send(replace(self._record("d", row), value=self.pick(None, b"null", b"")))

    def odd(self, place: tuple[int, int], step: Step) -> None:
        """An update that does not send its document."""
        told = {"updatedFields": '{"v": "x"}', "removedFields": None}
        self.event("u", self.row_of(place), after=None, updateDescription=told)

    def control(self, place: tuple[int, int], step: Step) -> None:
        self.send(ev.heartbeat(self.now_ms(), topic=self.topic))

    def sample(self, row: Values) -> Record:
        return self._record("c", row)


class CassandraTeller(Teller):
    """The cells that a statement wrote; a write may be older than one before it."""

    namespace = "shop"

    def event(self, op: str, cells: Values) -> Record:
        return self.send(self._record(op, cells))

    def _record(self, op: str, row: Values) -> Record:
        """`row`: values; None for a cell that was deleted."""
        now = self.now_ms() - self.pick(0, 0, 1000)
        return ev.cassandra_change(
            op,
            row,
            key=self.key_names,
            unsent=[name for name in self.types if name not in row],
            table=self.table,
            topic=self.topic,
            ts_micro=now * 1000 + self.clock % 7,
            processed_ts_ms=now + 200,
            partition=self.lane(self.key_of(row)),
        )

    def created(self, row: Values, step: Step) -> None:
        self.event(self.pick("i", "c"), row)

    def updated(self, before: Values, row: Values, step: Step) -> None:
        if self.key_of(before) != self.key_of(row):
            self.deleted(before, step)
        names = self._unsent_names(step)
        kept = {n: v for n, v in row.items() if n not in names}
        gone = {n: None for n in self.pick((), (), ("v",)) if n in kept}
        self.event(self.pick("u", "i"), {**kept, **gone})

    def deleted(self, before: Values, step: Step) -> None:
        record = self.event("d", self.key_of(before))
        if self.pick(True, False):
            self.send(replace(record, value=None))

    def odd(self, place: tuple[int, int], step: Step) -> None:
        """A range of rows that was deleted."""
        self.event("r", self.row_of(place))

    def control(self, place: tuple[int, int], step: Step) -> None:
        self.send(ev.heartbeat(self.now_ms(), topic=self.topic))

    def sample(self, row: Values) -> Record:
        return self._record("i", row)


TELLERS: dict[str, type[Teller]] = {
    "canal": CanalTeller,
    "debezium-mongodb": MongoTeller,
    "debezium-cassandra": CassandraTeller,
    "debezium": DebeziumTeller,
    "debezium-flat": FlatTeller,
    "lindorm": LindormTeller,
    "dataworks": DataWorksTeller,
    "maxwell": MaxwellTeller,
    "ogg": OggTeller,
}
