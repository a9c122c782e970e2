"""What was done to rows, as the events of a table's log, and when the source says it was."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from cdc_assets_tests import events as ev
from cdc_assets_tests.events import TOAST, PgLog

DAYS = [ev.DAY + timedelta(days=n) for n in range(4)]
TYPES = {"id": "int32", "v": "string", "w": "string"}


def at(day: int, minute: int) -> int:
    """A time at the source, ms UTC: minutes after noon of one of the days."""
    return ev.NOON_MS + (day * 24 * 60 + minute) * 60_000


class Story(PgLog):
    """The log of a table whose events say when they were."""

    def at(self, minute: int) -> dict[str, Any]:
        day = (self.landing.day - DAYS[0]).days
        return {"_source_ts_ms": at(day, minute)}


def plain(log: Story) -> None:
    log.create(id=1, v="a", **log.at(0))
    log.create(id=2, v="x", **log.at(1))
    sent = log.update(id=1, v="b", **log.at(5))
    log.landing.put(replace(sent, value=b"{", offset=None))
    log.next_day()
    log.delete(id=2, **log.at(0))
    log.next_day()
    log.create(id=2, v="y", **log.at(0))
    log.next_day()


def late(log: Story) -> None:
    """An update lands a day after those before and behind it; the last comes too late for that."""
    log.create(id=1, v="a", _lsn=100, _source_ts_ms=at(0, 0))
    log.update(id=1, v="c", _lsn=300, _source_ts_ms=at(0, 20))
    log.next_day()
    log.update(id=1, v="d", _lsn=400, _source_ts_ms=at(1, 0))
    log.next_day()
    log.update(id=1, v="b", _lsn=200, _source_ts_ms=at(0, 10))
    log.next_day()
    log.delete(id=1, _lsn=150, _source_ts_ms=at(0, 5))


def one_transaction(log: Story) -> None:
    """A row is deleted and inserted anew in one transaction."""
    log.create(id=1, v="a", **log.at(0))
    log.next_day()
    for _ in range(2):
        log.next_day()
    log.delete(id=1, _lsn=5000, **log.at(0))
    log.create(id=1, v="b", _lsn=5000, **log.at(0))


def moved(log: Story) -> None:
    """A key is moved away and back."""
    log.create(id=1, v="a", **log.at(0))
    log.change_key({"id": 1}, id=2, v="a", **log.at(1))
    log.next_day()
    log.change_key({"id": 2}, id=1, v="a", **log.at(0))
    for _ in range(2):
        log.next_day()


def truncates(log: Story) -> None:
    """A truncate between two updates, and one of a row that no event of the day names."""
    log.create(id=1, v="a", **log.at(0))
    log.create(id=2, v="x", **log.at(0))
    log.next_day()
    log.update(id=1, v="b", **log.at(0))
    log.truncate(**log.at(1))
    log.create(id=1, v="c", **log.at(2))
    log.next_day()
    log.truncate(**log.at(0))
    log.next_day()


def thrice(log: Story) -> None:
    """An event is sent three times, the last time on another day."""
    log.create(id=1, v="a", **log.at(0))
    sent = log.update(id=1, v="b", **log.at(1))
    log.landing.again(sent)
    log.update(id=1, v="c", **log.at(2))
    log.next_day()
    log.landing.again(sent)
    for _ in range(2):
        log.next_day()


def read_again(log: Story) -> None:
    """Snapshot reads, of which one says what the row is already."""
    log.read(id=1, v="a", **log.at(0))
    log.read(id=2, v="x", **log.at(0))
    log.next_day()
    log.read(id=1, v="a", **log.at(0))
    log.read(id=2, v="y", **log.at(0))
    for _ in range(2):
        log.next_day()


def unsent(log: Story) -> None:
    """A value that is not sent is that of the version before."""
    log.create(id=1, v="a", w="long", **log.at(0))
    log.update(id=1, v="b", w=TOAST, **log.at(1))
    log.update(id=1, v="c", w="longer", **log.at(2))
    log.next_day()
    log.update(id=1, v="d", w=TOAST, **log.at(0))
    for _ in range(2):
        log.next_day()


def read_without_position(log: Story) -> None:
    """A read that has no position, and a time before that at which the row had left."""
    log.create(id=1, v="a", **log.at(10))
    log.delete(id=1, **log.at(20))
    log.next_day()
    log.read(id=1, v="b", _lsn=None, _source_ts_ms=at(0, 5))
    log.delete(id=1, **log.at(0))
    for _ in range(2):
        log.next_day()


def clock(log: Story) -> None:
    """The source's clock falls back: versions never overlap."""
    log.create(id=1, v="a", **log.at(10))
    log.update(id=1, v="b", **log.at(5))
    log.delete(id=1, **log.at(4))
    log.next_day()
    log.create(id=1, v="c", _source_ts_ms=at(0, 3))
    for _ in range(2):
        log.next_day()


def tracked(log: Story) -> None:
    """Only changes of v begin a version; w is as it was at the version's end."""
    log.create(id=1, v="a", w="1", **log.at(0))
    log.update(id=1, v="a", w="2", **log.at(1))
    log.update(id=1, v="b", w="3", **log.at(2))
    log.next_day()
    log.update(id=1, v="b", w="4", **log.at(0))
    log.next_day()
    log.update(id=1, v="c", w="4", **log.at(0))
    log.next_day()


def columns(log: Story) -> None:
    """A column is dropped, and another one added."""
    log.create(id=1, v="a", w="old", **log.at(0))
    log.next_day()
    log.defaults["types"] = {"id": "int32", "v": "string"}
    log.update(id=1, v="b", **log.at(0))
    log.next_day()
    log.defaults["types"] = {"id": "int32", "v": "string", "n": "int32"}
    log.update(id=1, v="c", n=7, **log.at(0))
    log.next_day()


def brought_back(log: Story) -> None:
    """An event that is older than what removed its row more than `late_days` ago."""
    log.create(id=1, v="a", _lsn=100, **log.at(0))
    log.delete(id=1, _lsn=300, **log.at(9))
    for _ in range(3):
        log.next_day()
    log.update(id=1, v="b", _lsn=200, _source_ts_ms=at(0, 5))


def after_removal(log: Story) -> None:
    """A delete, and the delete of a key change, land a day before the rows that they remove."""
    log.create(id=9, v="z", _lsn=90, **log.at(0))
    newkey = {"__debezium.newkey": ev.key_header({"id": 4})}
    log.delete(id=1, _lsn=200, **log.at(20))
    log.delete(id=2, _lsn=210, _headers=newkey, **log.at(21))
    log.next_day()
    oldkey = {"__debezium.oldkey": ev.key_header({"id": 2})}
    log.create(id=1, v="a", _lsn=100, _source_ts_ms=at(0, 5))
    log.create(id=2, v="m", _lsn=110, _source_ts_ms=at(0, 6))
    log.create(id=4, v="m", _lsn=210, _headers=oldkey, _source_ts_ms=at(0, 21))
    for _ in range(2):
        log.next_day()


def above_removals(log: Story) -> None:
    """A removal that ended nothing says nothing of when a later row came, but ends an older one."""
    log.delete(id=1, _lsn=200, **log.at(30))
    log.truncate(_lsn=210, **log.at(29))
    log.next_day()
    log.create(id=1, v="a", _lsn=300, _source_ts_ms=at(0, 25))
    log.next_day()
    log.create(id=2, v="x", _lsn=100, _source_ts_ms=at(0, 10))
    log.next_day()


def beneath(log: Story) -> None:
    """A row passes over the key of another one within a transaction; a late event follows."""
    log.create(id=1, v="a", **log.at(0))
    log.create(id=2, v="b", **log.at(1))
    log.next_day()
    for old, new in ((2, 1), (1, 3)):
        one: dict[str, Any] = {"_source": {"txId": 9000}, **log.at(2)}
        newkey = {"__debezium.newkey": ev.key_header({"id": new})}
        oldkey = {"__debezium.oldkey": ev.key_header({"id": old})}
        log.delete(id=old, v="b", _headers=newkey, **one)
        log.create(id=new, v="b", _lsn=log.lsn, _headers=oldkey, **one)
    log.next_day()
    log.create(id=4, v="late", _lsn=900, _source_ts_ms=at(0, 3))
    log.update(id=1, v="c", **log.at(0))
    log.next_day()
