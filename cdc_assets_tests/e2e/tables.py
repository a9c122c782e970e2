"""The tables of the workload: each PostgreSQL type, each way to have a key or none.

A column says how its values are made (as text that PostgreSQL casts) and what a value of it is
in the lake, by R3 of FORMATS.md. The truth of a column is a query of its own, so that
PostgreSQL says what it holds.
"""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from psycopg import Connection, sql

Make = Callable[[random.Random], "str | None"]
Expect = Callable[[Any], Any]
EPOCH = datetime(1970, 1, 1)


def same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Column:
    """A column: type, how a value is made, and what it is in the lake.

    `truth` is the SQL expression that is read ({c} is the column), `expect` makes the lake's
    Python value of what psycopg returns for it.
    """

    name: str
    kind: str
    make: Make
    expect: Expect = same
    truth: str = "{c}"


@dataclass(frozen=True)
class Table:
    """A table: its columns, its key, and which changes it may see."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    constraint: str = ""
    after: str = ""  # more SQL once it is there: replica identity, indexes
    ops: str = "iud"  # k: key updates
    config: Mapping[str, Any] = field(default_factory=dict)  # its entry in cdc.yaml

    @property
    def qualified(self) -> str:
        return f"public.{self.name}"

    def create(self, db: Connection[Any]) -> None:
        columns = ", ".join(f'"{c.name}" {c.kind}' for c in self.columns)
        more = f", {self.constraint}" if self.constraint else ""
        db.execute(f"CREATE TABLE {self.name} ({columns}{more})".encode())
        if self.after:
            db.execute(self.after.format(t=self.name).encode())


@dataclass(frozen=True)
class Read:
    """How a kind of column is read instead, under other modes of the connector."""

    expect: Expect = same
    truth: str = "{c}"


Reads = Mapping[str, Read]  # by the column's type


def state(
    db: Connection[Any], table: Table, reads: Reads = MappingProxyType({})
) -> list[dict[str, Any]]:
    """What PostgreSQL holds now, in the lake's values."""
    there = [
        row[0]
        for row in db.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass"
            " AND attnum > 0 AND NOT attisdropped",
            [table.qualified],
        )
    ]
    columns = [
        replace(c, expect=r.expect, truth=r.truth) if (r := reads.get(c.kind)) else c
        for c in table.columns
        if c.name in there
    ]
    listed = sql.SQL(", ").join(
        sql.SQL(c.truth.replace("{c}", "{0}")).format(sql.Identifier(c.name)) for c in columns
    )
    rows = db.execute(sql.SQL("SELECT {} FROM {}").format(listed, sql.Identifier(table.name)))
    return [
        {c.name: None if v is None else c.expect(v) for c, v in zip(columns, row, strict=True)}
        for row in rows
    ]


# --- what values become (R3)


def float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def micros_of_day(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def utc(value: datetime) -> datetime:
    return value.astimezone(timezone.utc)


def bits(value: str) -> bytes:
    """A bit string as Debezium sends it: little-endian bytes, none for leading zeros."""
    number = int(value, 2)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def plain_number(value: Decimal) -> str:
    """An exact number as text, without exponent."""
    return format(value, "f")


def each(expect: Expect) -> Expect:
    return lambda values: [None if v is None else expect(v) for v in values]


def iso_time(value: time) -> str:
    fraction = f"{value.microsecond:06}".rstrip("0")
    return f"{value:%H:%M:%S}" + (f".{fraction}" if fraction else "") + "Z"


def base64_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


# --- how values are made


def maybe(make: Make, none: float = 0.15) -> Make:
    return lambda rng: None if rng.random() < none else make(rng)


def integer(low: int, high: int) -> Make:
    return lambda rng: str(rng.choice([low, high, 0, rng.randint(low, high), rng.randint(-9, 99)]))


def decimal(digits: int, scale: int) -> Make:
    def make(rng: random.Random) -> str:
        number = rng.randrange(10 ** rng.randint(1, digits)) * rng.choice([1, -1])
        return plain_number(Decimal(number).scaleb(-scale))

    return make


WORDS = (
    "plain",
    "",
    "O'Brien",
    'say "hi"',
    "tab\there",
    "back\\slash",
    "ünï",
    "日本語",
    "🦆",
    "\u2028",
)


def text(rng: random.Random) -> str:
    return rng.choice(WORDS) + rng.choice(["", f" {rng.randrange(1000)}"])


def floating(rng: random.Random) -> str:
    return repr(rng.choice([0.0, 0.1, -1.5, 1e20, 1e-7, rng.uniform(-1e6, 1e6)]))


def hexed(rng: random.Random) -> str:
    return "\\x" + rng.randbytes(rng.choice([0, 1, 5, 40])).hex()


def day(rng: random.Random) -> str:
    return str(
        date(1970, 1, 1) + timedelta(days=rng.choice([0, -1, -700_000, rng.randrange(40_000)]))
    )


def clock(rng: random.Random) -> str:
    return str(time(rng.randrange(24), rng.randrange(60), rng.randrange(60), rng.randrange(10**6)))


def stamp(rng: random.Random) -> str:
    return str(
        EPOCH + timedelta(microseconds=rng.choice([0, -1, 1, rng.randrange(-(10**16), 4 * 10**15)]))
    )


def zoned(rng: random.Random) -> str:
    return stamp(rng) + rng.choice(["+00", "+05:30", "-08", "+14"])


def bitstring(length: int) -> Make:
    return lambda rng: "".join(rng.choice("01") for _ in range(length))


def one_of(*values: str) -> Make:
    return lambda rng: rng.choice(values)


def array_of(make: Make) -> Make:
    def made(rng: random.Random) -> str:
        values = [None if rng.random() < 0.1 else make(rng) for _ in range(rng.randrange(4))]
        quoted = ["NULL" if v is None else json.dumps(v, ensure_ascii=False) for v in values]
        return "{" + ",".join(quoted) + "}"

    return made


# 30.4375 days a month, as Debezium counts an interval in microseconds.
_INTERVAL = (
    "((extract(year from {c}) * 12 + extract(month from {c})) * 30.4375 * 86400000000"
    " + extract(day from {c}) * 86400000000 + extract(hour from {c}) * 3600000000"
    " + extract(minute from {c}) * 60000000 + extract(microseconds from {c}))::bigint"
)
_INTERVALS = {
    "1 year 2 mons -3 days +04:05:06.7": "P1Y2M-3DT4H5M6.7S",
    "00:00:00": "P0Y0M0DT0H0M0S",
    "-01:00:00": "P0Y0M0DT-1H0M0S",
    "40 days": "P0Y0M40DT0H0M0S",
}

# decimal.handling.mode=string, time.precision.mode=isostring, binary.handling.mode=base64,
# interval.handling.mode=string: what needs no schema to be told from text becomes text.
AS_TEXT: Reads = {
    **{kind: Read(plain_number) for kind in (
        "numeric(10,2)", "numeric(38,10)", "numeric(50,5)", "numeric(6,2)", "price"
    )},
    "numeric": Read(plain_number),
    "money": Read(plain_number, "{c}::numeric(19,2)"),
    "bytea": Read(base64_text),
    "time": Read(iso_time),
    "time(3)": Read(iso_time),
    "interval": Read(_INTERVALS.__getitem__, "{c}::text"),
    "numeric(8,3)[]": Read(each(plain_number)),
}  # fmt: skip
# decimal.handling.mode=double, time.precision.mode=connect, binary.handling.mode=hex.
AS_NUMBERS: Reads = {
    **{kind: Read(float) for kind in (
        "numeric(10,2)", "numeric(38,10)", "numeric(50,5)", "numeric(6,2)", "numeric", "money",
        "price",
    )},
    "money": Read(float, "{c}::numeric(19,2)"),
    "bytea": Read(bytes.hex),
    "time": Read(lambda v: micros_of_day(v) // 1000 * 1000),
    "timestamp": Read(lambda v: v.replace(microsecond=v.microsecond // 1000 * 1000)),
    "numeric(8,3)[]": Read(each(float)),
    "timestamp[]": Read(each(lambda v: v.replace(microsecond=v.microsecond // 1000 * 1000))),
}  # fmt: skip
UUIDS = one_of("b68a35a7-17ad-35b3-af2a-ae46edb4545b", "00000000-0000-0000-0000-000000000000")
INTERVALS = one_of("1 year 2 mons -3 days 04:05:06.7", "0", "-01:00:00", "40 days")

_TYPES: tuple[tuple[str, Make, Expect, str], ...] = (
    ("boolean", one_of("true", "false"), same, "{c}"),
    ("smallint", integer(-(2**15), 2**15 - 1), same, "{c}"),
    ("integer", integer(-(2**31), 2**31 - 1), same, "{c}"),
    ("bigint", integer(-(2**63), 2**63 - 1), same, "{c}"),
    ("oid", integer(0, 2**31), same, "{c}::bigint"),
    ("real", floating, float32, "{c}"),
    ("double precision", floating, same, "{c}"),
    ("numeric(10,2)", decimal(10, 2), same, "{c}"),
    ("numeric(38,10)", decimal(38, 10), same, "{c}"),
    ("numeric(50,5)", decimal(50, 5), plain_number, "{c}"),
    # Zeros at its end come or stay away, by the mode and whether it was a snapshot.
    ("numeric", lambda rng: decimal(30, 7)(rng) + "1", plain_number, "{c}"),
    ("money", decimal(10, 2), same, "{c}::numeric(19,2)"),
    ("text", text, same, "{c}"),
    ("varchar(40)", text, same, "{c}"),
    ("character(8)", one_of("a", "", "12345678"), same, "{c}"),
    ("citext", text, same, "{c}::text"),
    ("bytea", hexed, bytes, "{c}"),
    ("date", day, same, "{c}"),
    ("time", clock, micros_of_day, "{c}"),
    ("time(3)", clock, micros_of_day, "{c}"),
    ("timestamp", stamp, same, "{c}"),
    ("timestamp(3)", stamp, same, "{c}"),
    ("timestamptz", zoned, utc, "{c}"),
    ("interval", INTERVALS, same, _INTERVAL),
    ("uuid", UUIDS, str, "{c}"),
    ("json", one_of('{"b": 1,  "a": [1.50, null]}', "null", '"x"', "[]"), same, "{c}::text"),
    ("jsonb", one_of('{"b": 1, "a": [1.50, null]}', "null", '"x"', "[]"), same, "{c}::text"),
    ("xml", one_of("<a/>", "<a>ü</a>"), same, "{c}::text"),
    ("bit(1)", one_of("0", "1"), lambda v: v == "1", "{c}::text"),
    ("bit(12)", bitstring(12), bits, "{c}::text"),
    ("bit varying(16)", bitstring(11), bits, "{c}::text"),
    ("inet", one_of("10.0.0.1", "10.1.0.0/16", "::1"), same, "abbrev({c})"),
    ("cidr", one_of("10.0.0.0/8", "::/0"), same, "{c}::text"),
    ("macaddr", one_of("08:00:2b:01:02:03"), same, "{c}::text"),
    ("macaddr8", one_of("08:00:2b:01:02:03:04:05"), same, "{c}::text"),
    ("int4range", one_of("[1,5)", "empty", "(,3]"), same, "{c}::text"),
    ("int8range", one_of("[1,5)", "empty"), same, "{c}::text"),
    ("numrange", one_of("[1.5,2]", "(,)"), same, "{c}::text"),
    ("tsrange", one_of('["2026-01-01 00:00:00","2026-01-02 00:00:00")'), same, "{c}::text"),
    ("daterange", one_of("[2026-01-01,2026-02-01)"), same, "{c}::text"),
    ("ltree", one_of("a.b.c", "top"), same, "{c}::text"),
    ("mood", one_of("sad", "ok", "ha'ppy"), same, "{c}::text"),
    ("tsvector", one_of("'a':1 'cat':2"), same, "{c}::text"),
    ("price", decimal(8, 3), same, "{c}"),
    ("integer[]", array_of(integer(-9, 9)), same, "{c}"),
    ("text[]", array_of(text), same, "{c}"),
    ("boolean[]", array_of(one_of("true", "false")), same, "{c}"),
    ("double precision[]", array_of(floating), same, "{c}"),
    ("date[]", array_of(day), same, "{c}"),
    ("uuid[]", array_of(UUIDS), each(str), "{c}"),
    ("numeric(8,3)[]", array_of(decimal(8, 3)), same, "{c}"),
    ("timestamp[]", array_of(stamp), same, "{c}"),
)  # fmt: skip


def column_of(index: int, kind: str, make: Make, expect: Expect, truth: str) -> Column:
    words = "".join(c if c.isalnum() else "_" for c in kind).strip("_")
    return Column(f"c{index:02}_{words}", kind, maybe(make), expect, truth)


def _id(low: int = 1, high: int = 60) -> Make:
    return lambda rng: str(rng.randint(low, high))


ID = Column("id", "integer", _id())
AMOUNT = Column("amount", "numeric(10,2)", maybe(decimal(10, 2)))
NOTE = Column("note", "text", maybe(text))
COUNT = Column("n", "integer", integer(-9, 99))


def big(rng: random.Random) -> str:
    """Too large for a row's page: stored out of line, and left out of updates that leave it."""
    return "".join(rng.choices("abcdefghij", k=rng.choice([10, 3000, 9000])))


TYPES = Table(
    "every_type",
    (ID, *(column_of(i, *spec) for i, spec in enumerate(_TYPES))),
    ("id",),
    "PRIMARY KEY (id)",
)
ORDERS = Table("orders", (ID, NOTE, AMOUNT, COUNT), ("id",), "PRIMARY KEY (id)", ops="iudk")
FULL = Table(
    "full_identity",
    (Column("region", "varchar(8)", one_of("eu", "us", "O'B")), ID, NOTE, AMOUNT),
    ("region", "id"),
    "PRIMARY KEY (region, id)",
    "ALTER TABLE {t} REPLICA IDENTITY FULL",
    ops="iudk",
    config={"key": ["region", "id"], "replica_identity": "full"},
)
NOTHING = Table(
    "nothing_identity",
    (ID, NOTE, AMOUNT),
    ("id",),
    "PRIMARY KEY (id)",
    "ALTER TABLE {t} REPLICA IDENTITY NOTHING",
    ops="i",  # PostgreSQL refuses updates and deletes of such a table
)
INDEXED = Table(
    "index_identity",
    (Column("code", "text NOT NULL", _id()), NOTE, COUNT),
    ("code",),
    "",
    "CREATE UNIQUE INDEX {t}_code ON {t} (code);"
    " ALTER TABLE {t} REPLICA IDENTITY USING INDEX {t}_code",
    ops="iudk",
    config={"key": ["code"], "replica_identity": "index"},
)
TOASTED = Table(
    "toasted",
    (
        ID,
        COUNT,
        Column("big_text", "text", maybe(big)),
        Column("big_bytes", "bytea", maybe(lambda rng: "\\x" + big(rng).encode().hex()), bytes),
        Column("big_list", "text[]", maybe(lambda rng: "{" + big(rng) + "," + big(rng) + "}")),
        Column(
            "big_json", "jsonb", maybe(lambda rng: json.dumps({"v": big(rng)})), same, "{c}::text"
        ),
    ),
    ("id",),
    "PRIMARY KEY (id)",
    "ALTER TABLE {t} ALTER big_text SET STORAGE EXTERNAL, ALTER big_bytes SET STORAGE EXTERNAL,"
    " ALTER big_list SET STORAGE EXTERNAL, ALTER big_json SET STORAGE EXTERNAL",
    ops="iudk",
)
SHAPED = Table(
    "shaped",
    (
        ID,
        NOTE,
        COUNT,
        Column("added", "text", maybe(text)),
        Column("amount", "numeric(6,2)", maybe(decimal(6, 2))),
        Column("dropped", "text", maybe(text)),
    ),
    ("id",),
    "PRIMARY KEY (id)",
    "ALTER TABLE {t} DROP COLUMN added",
)
AUDIT = Table("audit_log", (COUNT, NOTE), (), ops="i", config={"key": "none"})
BAG = Table(
    "bag",
    (COUNT, Column("what", "text", one_of("pen", "cup", "🦆"))),
    (),
    "",
    "ALTER TABLE {t} REPLICA IDENTITY FULL",
    ops="iud",
    config={"key": "row", "replica_identity": "full"},
)
MARKER = Table(
    "marker", (Column("id", "integer", _id()), COUNT), ("id",), "PRIMARY KEY (id)", ops=""
)
TABLES = (TYPES, ORDERS, FULL, NOTHING, INDEXED, TOASTED, SHAPED, AUDIT, BAG, MARKER)
SETUP = (
    "CREATE EXTENSION citext; CREATE EXTENSION ltree; CREATE EXTENSION hstore;"
    " CREATE TYPE mood AS ENUM ('sad', 'ok', 'ha''ppy'); CREATE DOMAIN price AS numeric(8,3);"
    " CREATE TABLE signals (id text PRIMARY KEY, type text, data text);"
    " CREATE TABLE heartbeat (id integer PRIMARY KEY, at timestamptz);"
    " INSERT INTO heartbeat VALUES (1, now())"
)
