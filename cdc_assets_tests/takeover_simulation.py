"""A server that others take over, and what a connector delivers of them (FORMATS O11).

    landed, truth = history("gtid", seed=7)

`landed` holds days of records, cut anywhere. `truth` has the table's rows at the end of each day,
as far as the connector had come by then; a day of which a part lands later is in no truth. The
connector is started again now and then and sends a stretch once more, which takes its time.
Positions of a new server are lower than, overlap or are higher than those before; its clock
differs. Where they overlap the last ones of the old server nothing tells them apart: of 500
histories a few do not hold.

Everything is drawn from the seed. Nothing here knows the package or the model.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any, NamedTuple

from cdc_assets_tests import events as ev
from cdc_assets_tests.model import Record

Row = dict[str, Any]
TABLE = "shop.goods"
KEYS = (0, 1, 2, 3, 4, 5)
_DAY_MS = 86_400_000
# Which takeovers are drawn: of servers with GTIDs or without, a RESET MASTER (numbers of GTIDs
# begin again), LSNs, and two servers that write one log and are not taken over.
KINDS = ("gtid", "no gtid", "reset master", "lsn", "many servers")


class History(NamedTuple):
    landed: dict[date, list[Record]]
    truth: dict[date, list[Row]]  # by key
    source: dict[str, Any]  # its settings


@dataclass(frozen=True)
class Event:
    """A change as a server's log has it; without a key a truncate."""

    key: int | None
    value: int
    position: int
    gtid: str | None
    source_ms: int
    clock_ms: int
    server: int


@dataclass(frozen=True)
class Sent:
    """A delivery of it."""

    event: Event
    partition: int
    offset: int
    kafka_ms: int
    day: int
    at: int  # events of the log delivered by then, and at most so far
    far: int


@dataclass
class _Log:
    """What the servers wrote, one after the other."""

    rng: random.Random
    kind: str
    events: list[Event] = field(default_factory=list)
    again: set[int] = field(default_factory=set)  # places that repeat earlier ones

    def write(self) -> None:
        rng, kind = self.rng, self.kind
        clock, position, skew = 0, rng.choice([50, 10_000]), 0
        servers = ["a", "z"] if kind == "many servers" else ["a"]
        count = 0 if kind == "many servers" else rng.randint(0, 2)
        takeovers = sorted(rng.sample(range(20, 120), count))
        numbers: dict[str, int] = defaultdict(int)
        for n in range(150):
            clock += rng.choice([20_000, 400_000, 9_000_000])
            number = sum(at <= n for at in takeovers)
            if n in takeovers:
                clock += rng.randrange(2_000, 300_000)
                skew = rng.randrange(-5_000, 5_000)
                position = rng.choice([4, max(4, position - 60), position + 1000])
                if kind == "gtid":
                    servers = [servers[0] + "b"]
                    position = self._repeat(position, clock, number)
                elif kind == "reset master":
                    numbers.clear()
            position += 10
            server = rng.choice(servers)
            numbers[server] += 1
            # MySQL's time is when a statement began.
            waited = rng.randrange(60_000) if kind != "lsn" and rng.random() < 0.2 else 0
            gtid = None if kind in ("no gtid", "lsn") else f"{server}:{numbers[server]}"
            key = rng.choice([*KEYS * 8, None])
            own = (key, n, position, gtid, clock + skew - waited, clock, number)
            self.events.append(Event(*own))

    def _repeat(self, position: int, clock: int, server: int) -> int:
        """The new server has the last transactions of the old one, at places of its own."""
        first = len(self.events) - self.rng.randint(1, 4)
        for n in range(first, len(self.events)):
            if n in self.again:
                continue
            position += 10
            self.again.add(len(self.events))
            moved = replace(self.events[n], position=position, clock_ms=clock, server=server)
            self.events.append(moved)
        return position

    def deliver(self) -> list[Sent]:
        rng, log = self.rng, self.events
        at = far = rng.randrange(15)
        offsets: dict[int, int] = defaultdict(int)
        sent: list[Sent] = []
        now = 0
        while at < len(log) and len(sent) < 2000:
            event, is_again = log[at], at < far
            at += 1
            far = max(far, at)
            # A redelivery takes its time; neighbours share a millisecond.
            pause = rng.choice([1, 1_000, 60_000, 600_000]) if is_again else rng.randrange(2)
            now = max(now + pause, event.clock_ms)
            partition = (event.key or 0) % 2
            place = (partition, offsets[partition], now, now // _DAY_MS)
            offsets[partition] += 1
            sent.append(Sent(event, *place, at, far))
            if rng.random() < 0.04:
                at = self._restart(at)
        # A file that lands a day late.
        return [replace(s, day=s.day + 1) if rng.random() < 0.02 else s for s in sent]

    def _restart(self, at: int) -> int:
        back = max(0, at - self.rng.choice([3, 10, 40]))
        while back < at and self.events[back].server != self.events[at - 1].server:
            back += 1  # the old server is gone
        return back


def history(kind: str, seed: Any) -> History:
    """What landed of servers that take over from one another, and the rows of a table there."""
    rng = random.Random(f"{kind} {seed}")
    log = _Log(rng, kind)
    log.write()
    sent = log.deliver()
    landed: dict[date, list[Record]] = {}
    truth: dict[date, list[Row]] = {}
    for n in range(max(s.day for s in sent) + 1):
        day = ev.DAY + timedelta(days=n)
        landed[day] = [_record(kind, s) for s in sent if s.day == n]
        until = [s for s in sent if s.day <= n]
        if not landed[day] or not until:
            continue
        far = max(s.far for s in until)
        is_whole = all(s.day <= n for s in sent if s.at <= far and s.kafka_ms // _DAY_MS <= n)
        if is_whole:
            truth[day] = _rows(log.events[min(s.at for s in until) - 1 : far])
    tables = {TABLE: {"key": ["id"]}}
    return History(
        landed, truth, {"format": "debezium", "position_reset": "auto", "tables": tables}
    )


def _rows(events: list[Event]) -> list[Row]:
    rows: dict[int, int] = {}
    for event in events:
        if event.key is None:
            rows.clear()
        else:
            rows[event.key] = event.value
    return [{"id": key, "v": rows[key]} for key in sorted(rows)]


def _record(kind: str, sent: Sent) -> Record:
    event = sent.event
    start = ev.DAY.toordinal() - date(1970, 1, 1).toordinal()
    begin = start * _DAY_MS
    if kind == "lsn":
        own = ev.sqlserver_source(f"0000002a:{event.position:08x}:0001", "0000002a:00000001:0002")
    else:
        own = {**ev.mysql_source(*TABLE.split("."), pos=event.position), "gtid": event.gtid}
    options: dict[str, Any] = {
        "table": tuple(TABLE.split(".")),
        "topic": "server.shop.goods",
        "source": own,
        "source_ts_ms": begin + event.source_ms,
        "processed_ts_ms": begin + sent.kafka_ms,
        "timestamp_ms": begin + sent.kafka_ms,
        "partition": sent.partition,
        "offset": sent.offset,
    }
    if event.key is None:
        return ev.truncated(**options)
    return ev.updated({"id": event.key, "v": event.value}, **options)
