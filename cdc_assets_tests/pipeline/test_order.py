"""What rows are after transactions of several statements, restarts and clocks that go back.

A story is item in every form that can send it, of keys and a partition of its own in that form's
table, and returns the rows at the end of each day, written by hand. The model reads each story
alone; the lake holds them all.

Databases that check keys at the end of a statement or transaction let two rows hold a key for a
moment (`LATE`); all other forms are of databases, or settings, that check them row by row.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from typing import Any

import pytest

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import TOAST, CanalTxLog, Landing, MaxwellTxLog, TxLog

DAYS = [ev.DAY + timedelta(days=n) for n in range(4)]
Row = dict[str, Any]
Rows = list[Row]
Tell = Callable[[Any], list[Rows]]

# -- forms ---------------------------------------------------------------------------------------

FLAT = ("op", "schema", "table", "source.ts_ms", "ts_ms", "source.snapshot", "source.connector")
FLAT_SQLSERVER = (
    *FLAT, "source.commit_lsn", "source.change_lsn", "source.event_serial_no",
)  # fmt: skip


@dataclass(frozen=True)
class Form:
    """A connector with its settings: one table.

    `basis` and `identity` are what its events order and identify (O8).
    """

    format: str
    log: Callable[..., TxLog]
    basis: str
    identity: frozenset[str] = frozenset()
    config: Mapping[str, Any] = field(default_factory=dict)


def _debezium(
    connector: str, basis: str, identity: Iterable[str] = (), config: Any = None, **options: Any
) -> Form:
    log = partial(TxLog, connector, **options)
    format = "debezium-flat" if options.get("flat") else "debezium"
    return Form(format, log, basis, frozenset(identity), config or {})


FORMS: dict[str, Form] = {
    "postgresql": _debezium("postgresql", "lsn", config={"replica_identity": "full"}),
    "postgresql_keys": _debezium("postgresql", "lsn", row_by_row=True, keys_alone=True),
    "oracle": _debezium("oracle", "scn", ("txId", "rs_id", "ssn")),
    "sqlserver": _debezium("sqlserver", "commit_lsn", ("change_lsn", "event_serial_no")),
    "db2": _debezium("db2", "commit_lsn", ("change_lsn",)),
    "informix": _debezium("informix", "commit_lsn", ("change_lsn",)),
    "mysql": _debezium("mysql", "file,pos", ("row", "gtid"), row_by_row=True),
    "flat_postgresql": _debezium(
        "postgresql", "lsn", row_by_row=True, keys_alone=True, flat=(*FLAT, "source.lsn")
    ),
    "flat_sqlserver": _debezium(
        "sqlserver",
        "commit_lsn",
        ("change_lsn", "event_serial_no"),
        row_by_row=True,
        flat=FLAT_SQLSERVER,
    ),
    "canal": Form("canal", partial(CanalTxLog, "canal", row_by_row=True), "kafka_ts_ms"),
    "maxwell": Form(
        "maxwell",
        partial(MaxwellTxLog, row_by_row=True),
        "position",
        frozenset({"xid", "xoffset", "ts"}),
    ),
    "maxwell_without_position": Form(
        "maxwell",
        partial(MaxwellTxLog, row_by_row=True, has_position=False),
        "kafka_ts_ms",
        frozenset({"xid", "xoffset", "ts"}),
    ),
}
ALL = tuple(FORMS)
LATE = ("postgresql", "oracle", "sqlserver", "db2", "informix")
DEFERRABLE = ("postgresql", "oracle", "informix")
BY_IMAGE = ("canal", "maxwell", "maxwell_without_position")  # a key change is one update
D_AND_C = tuple(form for form in ALL if form not in (*LATE, *BY_IMAGE))  # it is two events
WITH_HEADERS = (
    "postgresql", "postgresql_keys", "oracle", "db2", "informix", "mysql", "flat_postgresql",
)  # fmt: skip
WITH_READS = tuple(form for form in ALL if form != "canal")
WITH_IDENTITY = tuple(form for form in ALL if form != "canal")
# A key change by image stands in the partition of its new key: the departure from the old one can
# tie with an arrival there, in another partition.
SPREADABLE = tuple(form for form in ALL if form != "maxwell")
# Two changes of a row in one transaction are item apart.
WITH_IDENTITY_IN_TRANSACTION = tuple(form for form in WITH_IDENTITY if form != "mysql")
WITHOUT_IDENTITY_IN_TRANSACTION = ("canal", "mysql")


# -- stories -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """What one function tells, in one form.

    `own_table`: a truncate would reach the rows of others.
    """

    name: str
    form: str
    tell: Tell
    own_table: bool

    @property
    def table(self) -> str:
        return f"{self.form}__{self.name}" if self.own_table else self.form

    def log(self, landing: Landing, number: int) -> TxLog:
        """The log of the story that has this number in its table."""
        partition = 0 if self.own_table else 10 * number
        return FORMS[self.form].log(
            table=("shop", self.table),
            key=("story", "id"),
            constant={"story": self.name},
            partition=partition,
            start=1000 * (number + 1),
            landing=landing,
        )


STORIES: dict[str, Story] = {}


def story(
    rule: str, *forms: str, own_table: bool = False, name: str = ""
) -> Callable[[Tell], Tell]:
    """A story of these forms; it returns the rows (no story, no nulls) at the end of each day."""

    def register(tell: Tell) -> Tell:
        for form in forms:
            made = Story(name or tell.__name__, form, tell, own_table)
            STORIES[f"{rule}-{form}-{made.name}"] = made
        return tell

    return register


def row(id: int, v: str, **more: Any) -> Row:
    return {"id": id, "v": v, **more}


# -- rows that change their keys -----------------------------------------------------------------


@story("O16", *ALL)
def all_rows_shift(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"), row(3, "c"))
    log.next_day()
    log.begin()
    log.shift(row(1, "a"), row(2, "b"), row(3, "c"))
    log.next_day()
    log.begin()
    log.shift(row(2, "a"), row(3, "b"), row(4, "c"), by=-1)
    log.next_day()
    log.begin()
    log.update(row(1, "a"), row(1, "A"))
    log.begin()
    log.delete(row(2, "b"))
    return [
        [row(1, "a"), row(2, "b"), row(3, "c")],
        [row(2, "a"), row(3, "b"), row(4, "c")],
        [row(1, "a"), row(2, "b"), row(3, "c")],
        [row(1, "A"), row(3, "c")],
    ]


@story("O16", *ALL)
def all_rows_shift_twice_in_one_transaction(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"), row(3, "c"))
    log.next_day()
    log.begin()
    log.shift(row(1, "a"), row(2, "b"), row(3, "c"))
    log.shift(row(2, "a"), row(3, "b"), row(4, "c"))
    return [
        [row(1, "a"), row(2, "b"), row(3, "c")],
        [row(3, "a"), row(4, "b"), row(5, "c")],
    ]


@story("O16", *ALL)
def rows_are_inserted_and_shift_twice_in_one_transaction(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.shift(row(1, "a"), row(2, "b"))
    log.insert(row(1, "new"))
    log.shift(row(1, "new"), row(2, "a"), row(3, "b"))
    return [[row(2, "new"), row(3, "a"), row(4, "b")]]


@story("O16", *ALL)
def a_row_that_passes_through_a_key_leaves_nothing_there(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"))
    log.next_day()
    log.begin()
    log.move(row(1, "a"), row(2, "a"))
    log.move(row(2, "a"), row(3, "a"))
    return [[row(1, "a")], [row(3, "a")]]


@story("O16", *ALL)
def a_row_passes_through_a_key_whose_row_was_deleted_before(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.delete(row(2, "b"))
    log.move(row(1, "a"), row(2, "a"))
    log.move(row(2, "a"), row(3, "a"))
    return [[row(1, "a"), row(2, "b")], [row(3, "a")]]


@story("O16", *DEFERRABLE)
def a_row_passes_through_a_key_whose_row_stays(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.move(row(1, "a"), row(2, "a"))
    log.move(row(2, "a"), row(3, "a"))
    return [[row(1, "a"), row(2, "b")], [row(2, "b"), row(3, "a")]]


@story("O16", *ALL)
def rows_that_are_equal_but_for_the_key_shift(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "x"), row(2, "x"))
    log.next_day()
    log.begin()
    log.shift(row(1, "x"), row(2, "x"))
    log.next_day()
    log.begin()
    log.shift(row(2, "x"), row(3, "x"))
    log.shift(row(3, "x"), row(4, "x"))
    return [
        [row(1, "x"), row(2, "x")],
        [row(2, "x"), row(3, "x")],
        [row(4, "x"), row(5, "x")],
    ]


@story("O16", *ALL)
def rows_are_updated_before_and_after_a_shift(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.update(row(2, "b"), row(2, "b1"))
    log.shift(row(1, "a"), row(2, "b1"))
    log.update(row(2, "a"), row(2, "a1"))
    log.update(row(3, "b1"), row(3, "b2"))
    return [[row(1, "a"), row(2, "b")], [row(2, "a1"), row(3, "b2")]]


@story("O16", *LATE)
def rows_are_updated_while_two_hold_a_key(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"), row(11, "a"), row(12, "b"))
    log.next_day()
    log.begin()
    log.move(row(1, "a"), row(2, "a"))
    log.update(row(2, "b"), row(2, "b1"))
    log.update(row(2, "a"), row(2, "a1"))
    log.move(row(2, "b1"), row(3, "b1"))
    log.begin()
    log.move(row(11, "a"), row(12, "a"))
    log.update(row(12, "a"), row(12, "a1"))
    log.update(row(12, "b"), row(12, "b1"))
    log.update(row(12, "a1"), row(12, "a2"))
    log.move(row(12, "b1"), row(13, "b1"))
    return [
        [row(1, "a"), row(2, "b"), row(11, "a"), row(12, "b")],
        [row(2, "a1"), row(3, "b1"), row(12, "a2"), row(13, "b1")],
    ]


@story("O16", *LATE)
def a_row_moves_onto_a_key_whose_own_row_is_deleted_after_it(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.move(row(1, "a"), row(2, "a"))
    log.delete(row(2, "b"))
    log.next_day()
    log.begin()
    log.insert(row(1, "c"))
    log.insert(row(2, "d"))  # arrives before the row leaves
    log.delete(row(2, "a"))
    return [
        [row(1, "a"), row(2, "b")],
        [row(2, "a")],
        [row(1, "c"), row(2, "d")],
    ]


@story("O16", *LATE)
def a_row_that_arrived_is_deleted_while_the_key_s_own_row_stays(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.move(row(1, "a"), row(2, "a"))
    log.delete(row(2, "a"))
    return [[row(1, "a"), row(2, "b")], [row(2, "b")]]


@story("O16", *ALL)
def a_row_returns_to_its_key(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(11, "b"))
    log.next_day()
    log.begin()
    log.move(row(1, "a"), row(2, "a"))
    log.move(row(2, "a"), row(1, "a"))
    log.begin()
    log.move(row(11, "b"), row(12, "b"))
    log.update(row(12, "b"), row(12, "B"))
    log.move(row(12, "B"), row(11, "B"))
    return [[row(1, "a"), row(11, "b")], [row(1, "a"), row(11, "B")]]


@story("O16", *LATE)
def two_rows_change_places(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.move(row(1, "a"), row(2, "a"))
    log.move(row(2, "b"), row(1, "b"))
    return [[row(1, "a"), row(2, "b")], [row(1, "b"), row(2, "a")]]


@story("O16", *ALL)
def a_row_that_is_updated_and_moved_leaves_nothing_at_its_old_key(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"))
    log.next_day()
    log.begin()
    log.update(row(1, "a"), row(1, "b"))
    log.move(row(1, "b"), row(2, "b"))
    log.update(row(2, "b"), row(2, "c"))
    return [[row(1, "a")], [row(2, "c")]]


@story("O16", *ALL)
def rows_are_inserted_changed_and_deleted_in_their_transaction(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"))
    log.update(row(1, "a"), row(1, "b"))
    log.insert(row(2, "a"))
    log.delete(row(2, "a"))
    log.insert(row(3, "a"))
    log.update(row(3, "a"), row(3, "b"))
    log.delete(row(3, "b"))
    log.insert(row(3, "c"))
    log.insert(row(4, "a"))
    log.update(row(4, "a"), row(4, "b"))
    log.delete(row(4, "b"))
    log.next_day()
    log.redeliver(11)
    rows = [row(1, "b"), row(3, "c")]
    return [rows, rows]


@story("O16", *LATE)
def the_rows_of_keys_were_never_known(log: TxLog) -> list[Rows]:
    """The lake begins later."""
    log.begin()
    log.shift(row(1, "a"), row(2, "b"))
    log.begin()
    log.move(row(11, "a"), row(12, "a"))
    log.update(row(12, "b"), row(12, "b1"))
    log.move(row(12, "b1"), row(13, "b1"))
    log.begin()
    log.move(row(21, "a"), row(22, "a"))
    log.delete(row(22, "b"))
    return [[row(2, "a"), row(3, "b"), row(12, "a"), row(13, "b1"), row(22, "a")]]


@story("O16", *LATE)
def a_whole_old_row_that_the_lake_has_otherwise_is_the_one_that_stood(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(*(row(tens + id, v) for tens in (0, 10, 20) for id, v in ((1, "a"), (2, "stale"))))
    log.next_day()
    log.begin()
    log.shift(row(1, "a"), row(2, "b"))
    log.begin()
    log.move(row(11, "a"), row(12, "a"))
    log.update(row(12, "b"), row(12, "b1"))
    log.move(row(12, "b1"), row(13, "b1"))
    log.begin()
    log.move(row(21, "a"), row(22, "a"))
    log.delete(row(22, "b"))
    return [
        [row(tens + id, v) for tens in (0, 10, 20) for id, v in ((1, "a"), (2, "stale"))],
        [row(2, "a"), row(3, "b"), row(12, "a"), row(13, "b1"), row(22, "a")],
    ]


@story("D9", *WITH_HEADERS)
def a_key_change_whose_delete_is_lost_removes_the_old_row(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"))
    log.next_day()
    log.begin()
    log.hold()
    log.move(row(1, "a"), row(2, "a"))
    log.lose()
    log.deliver()
    log.next_day()
    log.begin()
    log.insert(row(1, "b"))
    return [[row(1, "a")], [row(2, "a")], [row(1, "b"), row(2, "a")]]


@story("D10", "postgresql")
def keys_change_by_the_images_of_updates(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"), row(11, "a"), row(12, "b"), row(21, "a"))
    log.next_day()
    log.begin()
    log.update(row(1, "a"), row(2, "a"))
    log.update(row(2, "b"), row(3, "b"))
    log.begin()
    log.update(row(11, "a"), row(12, "a"))
    log.update(row(12, "b"), row(11, "b"))
    log.begin()
    log.update(row(21, "a"), row(22, "A"))
    log.update(row(22, "A"), row(23, "A"))
    return [
        [row(1, "a"), row(2, "b"), row(11, "a"), row(12, "b"), row(21, "a")],
        [row(2, "a"), row(3, "b"), row(11, "b"), row(12, "a"), row(23, "A")],
    ]


@story("O16", "postgresql", "oracle")
def a_transaction_is_known_by_its_id_alone(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin(known_by_id=True)
    log.hold()
    log.shift(row(1, "a"), row(2, "b"))
    log.deliver(2)
    log.next_day()
    log.deliver()
    return [[row(1, "a"), row(2, "b")], [row(2, "a")], [row(2, "a"), row(3, "b")]]


@story("O16", "sqlserver")
def nulls_in_an_old_row_equal_any_value(log: TxLog) -> list[Rows]:
    """Large columns are null in SQL Server's old rows."""
    log.begin()
    log.insert(row(1, "x", doc="long a"), row(2, "x", doc="long b"))
    log.next_day()
    log.begin()
    log.move(row(1, "x", doc=None), row(2, "x", doc="long a"))
    log.update(row(2, "x", doc=None), row(2, "y", doc="long b"))
    log.move(row(2, "y", doc=None), row(3, "y", doc="long b"))
    return [
        [row(1, "x", doc="long a"), row(2, "x", doc="long b")],
        [row(2, "x", doc="long a"), row(3, "y", doc="long b")],
    ]


@story("O16", "postgresql", "sqlserver", "db2", "informix")
def a_column_is_added_while_two_rows_hold_a_key(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.insert(row(4, "d"))
    log.move(row(1, "a"), row(2, "a"))
    # ALTER TABLE … ADD w
    log.move(row(2, "b", w=None), row(3, "b", w="n"))
    log.update(row(2, "a", w=None), row(2, "a", w="m"))
    log.update(row(4, "d", w=None), row(4, "d", w="k"))
    return [
        [row(1, "a"), row(2, "b")],
        [row(2, "a", w="m"), row(3, "b", w="n"), row(4, "d", w="k")],
    ]


@story("O16", "postgresql_keys", "flat_postgresql", "flat_sqlserver")
def a_column_is_added_between_key_changes(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.insert(row(4, "d"))
    log.move(row(2, "b"), row(3, "b"))
    # ALTER TABLE … ADD w
    log.move(row(1, "a", w=None), row(2, "a", w="n"))
    log.update(row(3, "b", w=None), row(3, "b", w="m"))
    log.update(row(4, "d", w=None), row(4, "d", w="k"))
    return [
        [row(1, "a"), row(2, "b")],
        [row(2, "a", w="n"), row(3, "b", w="m"), row(4, "d", w="k")],
    ]


@story("O16", *SPREADABLE)
def keys_of_a_shift_are_spread_over_partitions(log: TxLog) -> list[Rows]:
    log.spread = True
    log.begin()
    log.insert(row(1, "a"), row(2, "b"), row(3, "c"))
    log.next_day()
    log.begin()
    log.shift(row(1, "a"), row(2, "b"), row(3, "c"))
    log.next_day()
    log.begin()
    log.shift(row(2, "a"), row(3, "b"), row(4, "c"), by=-1)
    return [
        [row(1, "a"), row(2, "b"), row(3, "c")],
        [row(2, "a"), row(3, "b"), row(4, "c")],
        [row(1, "a"), row(2, "b"), row(3, "c")],
    ]


@story("O16", "postgresql", "oracle")
def events_older_than_a_shift_change_nothing(log: TxLog) -> list[Rows]:
    def older(event: int) -> dict[str, Any]:
        if log.connector == "oracle":
            return {"scn": str(100 * log.tx - 300 + event)}
        return {"lsn": 8 * log.change - 200 + event}

    log.begin()
    log.insert(row(1, "a"), row(2, "b"), row(3, "c"))
    log.change += 50  # their numbers come late
    log.begin()
    log.begin()
    log.next_day()
    log.begin()
    log.shift(row(1, "a"), row(2, "b"), row(3, "c"))
    log.begin()
    log.update(row(3, "c"), row(3, "late"), **older(1))  # in the day of the shift
    log.next_day()
    log.begin()
    log.update(row(1, "a"), row(1, "late"), **older(0))
    log.update(row(2, "b"), row(2, "late"), **older(0))
    shifted = [row(2, "a"), row(3, "b"), row(4, "c")]
    return [[row(1, "a"), row(2, "b"), row(3, "c")], shifted, shifted]


# -- days that end within a transaction ----------------------------------------------------------

# The rows after each change of a shift of rows 1 and 2.
AFTER_EACH: dict[tuple[str, ...], list[Rows]] = {
    LATE: [
        [row(2, "b")],
        [row(2, "a")],
        [row(2, "a")],
        [row(2, "a"), row(3, "b")],
    ],
    D_AND_C: [
        [row(1, "a")],
        [row(1, "a"), row(3, "b")],
        [row(3, "b")],
        [row(2, "a"), row(3, "b")],
    ],
    BY_IMAGE: [
        [row(1, "a"), row(3, "b")],
        [row(2, "a"), row(3, "b")],
    ],
}


def _cut(log: TxLog, *, after: int, then: Rows) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.hold()
    log.shift(row(1, "a"), row(2, "b"))
    log.deliver(after)
    log.next_day()
    log.deliver()
    log.next_day()
    log.begin()
    log.update(row(2, "a"), row(2, "A"))
    log.delete(row(3, "b"))
    return [[row(1, "a"), row(2, "b")], then, [row(2, "a"), row(3, "b")], [row(2, "A")]]


for _forms, _rows in AFTER_EACH.items():
    for _after, _then in enumerate(_rows[:-1], 1):
        story("O16", *_forms, name=f"a_day_ends_after_{_after}_changes_of_a_shift")(
            partial(_cut, after=_after, then=_then)
        )


@story("O16", *LATE)
def a_shift_goes_on_over_three_days(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.hold()
    log.shift(row(1, "a"), row(2, "b"))
    log.deliver(1)
    log.next_day()
    log.deliver(1)
    log.next_day()
    log.deliver()
    return [
        [row(1, "a"), row(2, "b")],
        [row(2, "b")],
        [row(2, "a")],
        [row(2, "a"), row(3, "b")],
    ]


@story("O16", *LATE)
def a_day_ends_within_the_second_shift_of_a_transaction(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.hold()
    log.shift(row(1, "a"), row(2, "b"))
    log.shift(row(2, "a"), row(3, "b"))
    log.deliver(6)  # row a stands at 3, where b still is
    log.next_day()
    log.deliver()
    return [
        [row(1, "a"), row(2, "b")],
        [row(3, "a")],
        [row(3, "a"), row(4, "b")],
    ]


@story("O16", *LATE)
def a_day_ends_within_a_shift_after_another_transaction(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.update(row(1, "a"), row(1, "a1"))
    log.update(row(2, "b"), row(2, "b1"))
    log.begin()
    log.hold()
    log.shift(row(1, "a1"), row(2, "b1"))
    log.deliver(2)
    log.next_day()
    log.deliver()
    log.begin()
    log.shift(row(2, "a1"), row(3, "b1"))
    return [
        [row(1, "a"), row(2, "b")],
        [row(2, "a1")],
        [row(3, "a1"), row(4, "b1")],
    ]


@story("O16", *LATE)
def a_day_ends_between_updates_of_two_rows_that_hold_a_key(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.move(row(1, "a"), row(2, "a"))
    log.update(row(2, "b"), row(2, "b1"))
    log.next_day()
    log.update(row(2, "a"), row(2, "a1"))
    log.update(row(2, "b1"), row(2, "b2"))
    log.next_day()
    log.move(row(2, "b2"), row(3, "b2"))
    return [
        [row(1, "a"), row(2, "b")],
        [row(2, "a")],
        [row(2, "a1")],
        [row(2, "a1"), row(3, "b2")],
    ]


@story("O16", *LATE)
def a_day_ends_before_the_key_s_own_row_is_deleted(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.move(row(1, "a"), row(2, "a"))
    log.next_day()
    log.delete(row(2, "b"))
    return [[row(1, "a"), row(2, "b")], [row(2, "a")], [row(2, "a")]]


@story("D10", "postgresql")
def a_day_ends_between_key_changes_by_image(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.update(row(1, "a"), row(2, "a"))
    log.next_day()
    log.update(row(2, "b"), row(3, "b"))
    return [[row(1, "a"), row(2, "b")], [row(2, "a")], [row(2, "a"), row(3, "b")]]


@story("O16", *LATE)
def a_day_ends_within_a_shift_of_keys_in_several_partitions(log: TxLog) -> list[Rows]:
    log.spread = True
    log.begin()
    log.insert(row(1, "a"), row(2, "b"), row(3, "c"))
    log.next_day()
    log.begin()
    log.hold()
    log.shift(row(1, "a"), row(2, "b"), row(3, "c"))
    log.deliver(4)
    log.next_day()
    log.deliver()
    return [
        [row(1, "a"), row(2, "b"), row(3, "c")],
        [row(2, "a"), row(3, "b")],
        [row(2, "a"), row(3, "b"), row(4, "c")],
    ]


@story("O16", *ALL)
def a_day_ends_within_an_inserted_row_s_transaction(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"))
    log.insert(row(2, "a"))
    log.next_day()
    log.update(row(1, "a"), row(1, "b"))
    log.delete(row(2, "a"))
    log.insert(row(3, "a"))
    log.next_day()
    log.move(row(1, "b"), row(4, "b"))
    log.delete(row(3, "a"))
    return [[row(1, "a"), row(2, "a")], [row(1, "b"), row(3, "a")], [row(4, "b")]]


# -- redeliveries --------------------------------------------------------------------------------


@story("O15", *ALL)
def a_shift_is_delivered_twice_in_a_day(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"), row(3, "c"))
    log.next_day()
    log.begin()
    already = len(log.sent)
    log.shift(row(1, "a"), row(2, "b"), row(3, "c"))
    log.redeliver(len(log.sent) - already)
    return [
        [row(1, "a"), row(2, "b"), row(3, "c")],
        [row(2, "a"), row(3, "b"), row(4, "c")],
    ]


@story("O15", *ALL)
def a_shift_is_delivered_again_the_next_day(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"), row(3, "c"))
    log.next_day()
    log.begin()
    already = len(log.sent)
    log.shift(row(1, "a"), row(2, "b"), row(3, "c"))
    log.next_day()
    log.redeliver(len(log.sent) - already)
    shifted = [row(2, "a"), row(3, "b"), row(4, "c")]
    return [[row(1, "a"), row(2, "b"), row(3, "c")], shifted, shifted]


@story("O1", *ALL)
def a_file_that_lands_twice_changes_nothing(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.begin()
    log.shift(row(1, "a"), row(2, "b"))
    log.update(row(3, "b"), row(3, "B"))
    log.insert(row(4, "d"))
    log.delete(row(4, "d"))
    log.insert(row(4, "e"))
    log.land_twice()
    log.next_day()
    log.land_twice()
    rows = [row(2, "a"), row(3, "B"), row(4, "e")]
    return [rows, rows]


@story("O15", *WITH_IDENTITY)
def a_day_ends_within_the_redelivery_of_a_shift(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.shift(row(1, "a"), row(2, "b"))
    back = len(log.sent) - 2
    log.redeliver(back, back // 2)
    log.next_day()
    log.redeliver(back // 2)
    shifted = [row(2, "a"), row(3, "b")]
    return [[row(1, "a"), row(2, "b")], shifted, shifted]


@story("O15", "canal")
def a_day_ends_within_the_redelivery_of_what_nothing_identifies(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.shift(row(1, "a"), row(2, "b"))
    log.redeliver(2, 1)  # b moves from 2 to 3 once more, where by now a stands
    log.next_day()
    log.redeliver(1)
    return [[row(1, "a"), row(2, "b")], [row(3, "b")], [row(2, "a"), row(3, "b")]]


@story("O15", *LATE)
def a_connector_starts_again_within_a_shift(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.hold()
    log.shift(row(1, "a"), row(2, "b"))
    log.deliver(2)
    log.redeliver(2)
    log.deliver(1)
    log.redeliver(3, 2)
    log.next_day()
    log.redeliver(1)
    log.deliver()
    return [[row(1, "a"), row(2, "b")], [row(2, "a")], [row(2, "a"), row(3, "b")]]


@story("O15", *LATE)
def a_connector_starts_again_within_a_shift_after_a_day_without_events(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.hold()
    log.shift(row(1, "a"), row(2, "b"))
    log.deliver(2)
    log.next_day(2)
    log.redeliver(2)
    log.deliver()
    return [
        [row(1, "a"), row(2, "b")],
        [row(2, "a")],
        [row(2, "a")],
        [row(2, "a"), row(3, "b")],
    ]


@story("O15", *LATE)
def a_day_holds_nothing_but_a_redelivery_within_a_shift(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.hold()
    log.shift(row(1, "a"), row(2, "b"))
    log.deliver(2)
    log.next_day()
    log.redeliver(2)
    log.next_day()
    log.redeliver(1)
    log.deliver()
    return [
        [row(1, "a"), row(2, "b")],
        [row(2, "a")],
        [row(2, "a")],
        [row(2, "a"), row(3, "b")],
    ]


def _restart_over_two_days(log: TxLog) -> None:
    """Of the last two changes the first is sent again, the second and then the first on the days
    after."""
    log.redeliver(2, 1)
    log.next_day()
    log.redeliver(1)
    log.next_day()
    log.redeliver(2, 1)


@story("O5", *WITH_IDENTITY)
def a_restart_over_a_day_s_end_ends_in_the_last_state(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "A"))
    log.begin()
    log.update(row(1, "A"), row(1, "B"))
    _restart_over_two_days(log)
    rows = [row(1, "B")]
    return [rows, rows, rows]


@story("O5", *WITH_IDENTITY_IN_TRANSACTION)
def a_restart_within_a_transaction_ends_in_the_last_state(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "A"))
    log.update(row(1, "A"), row(1, "B"))
    _restart_over_two_days(log)
    rows = [row(1, "B")]
    return [rows, rows, rows]


@story("O5", *WITHOUT_IDENTITY_IN_TRANSACTION)
def a_restart_where_nothing_identifies_ends_as_last_delivered(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "A"))
    log.update(row(1, "A"), row(1, "B"))
    _restart_over_two_days(log)
    return [[row(1, "A")], [row(1, "B")], [row(1, "A")]]


@story("O15", *WITH_IDENTITY_IN_TRANSACTION)
def a_deleted_row_s_transaction_is_delivered_again_in_part(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.update(row(1, "a"), row(1, "A"))
    log.delete(row(1, "A"))
    log.next_day()
    log.redeliver(4, 3)
    log.next_day()
    log.redeliver(1)
    rows = [row(2, "b")]
    return [rows, rows, rows]


@story("O8", "mysql", "sqlserver")
def a_place_in_its_transaction_identifies_a_change(log: TxLog) -> list[Rows]:
    log.begin(known_by_id=True)
    log.insert(row(1, "A"))
    log.update(row(1, "A"), row(1, "B"))
    log.redeliver(2, 1)
    log.next_day()
    log.redeliver(2, 1)
    return [[row(1, "B")], [row(1, "B")]]


# -- MySQL's compressed transactions -------------------------------------------------------------


@story("O15", "mysql")
def a_row_is_inserted_deleted_and_inserted_at_one_position(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"))
    log.delete(row(1, "a"))
    log.insert(row(1, "b"))
    log.next_day()
    log.redeliver(3)
    log.next_day()
    log.redeliver(3, 2)
    log.next_day()
    log.redeliver(1)
    return [[row(1, "b")], [row(1, "b")], [], [row(1, "b")]]


@story("O15", "mysql")
def equal_changes_at_one_position_are_three_changes(log: TxLog) -> list[Rows]:
    """The two inserts of row 1 are equal in all that they say."""
    log.begin()
    log.insert(row(1, "a"))
    log.delete(row(1, "a"))
    log.insert(row(1, "a"))
    log.insert(row(2, "a"))
    log.delete(row(2, "a"))
    log.insert(row(2, "a"))
    log.delete(row(2, "a"))
    return [[row(1, "a")]]


@story("O15", "mysql")
def a_redelivery_of_one_position_is_older_than_the_next_transaction(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "a"))
    log.delete(row(1, "a"), row(2, "a"))
    log.insert(row(1, "b"), row(2, "b"))
    log.begin()
    log.update(row(1, "b"), row(1, "c"))
    log.delete(row(2, "b"))
    log.next_day()
    log.redeliver(8, 4)
    log.next_day()
    log.redeliver(4)
    rows = [row(1, "c")]
    return [rows, rows, rows]


# -- clocks --------------------------------------------------------------------------------------


@story("O13", *ALL)
def a_clock_of_the_source_that_goes_back_orders_nothing(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "a"), row(3, "a"))
    log.begin(earlier_ms=3_600_000)
    log.update(row(1, "a"), row(1, "b"))
    log.delete(row(2, "a"))
    log.next_day()
    log.begin(earlier_ms=7 * 86_400_000)
    log.update(row(1, "b"), row(1, "c"))
    log.move(row(3, "a"), row(4, "a"))
    return [[row(1, "b"), row(3, "a")], [row(1, "c"), row(4, "a")]]


@story("O8", *ALL)
def a_key_goes_to_another_partition_when_partitions_are_added(log: TxLog) -> list[Rows]:
    lowest = log.partition
    log.partition = lowest + 1
    log.begin()
    log.insert(row(1, "a"), row(2, "a"), row(3, "a"))
    log.partition = lowest + 5
    log.begin()
    log.update(row(1, "a"), row(1, "b"))
    log.delete(row(2, "a"))
    log.partition = lowest
    log.begin()
    log.update(row(1, "b"), row(1, "c"))
    log.next_day()
    log.begin()
    log.update(row(1, "c"), row(1, "d"))
    log.delete(row(3, "a"))
    log.partition = lowest + 3
    log.begin()
    log.insert(row(2, "b"))
    log.partition = lowest + 2
    log.begin()
    log.update(row(2, "b"), row(2, "c"))
    return [[row(1, "c"), row(3, "a")], [row(1, "d"), row(2, "c")]]


@story("O8", "canal", "maxwell_without_position")
def a_kafka_timestamp_in_the_future_is_its_landing_day_s_end(log: TxLog) -> list[Rows]:
    lowest = log.partition
    log.partition, log.ahead_ms = lowest + 1, 10 * 86_400_000
    log.begin()
    log.insert(row(1, "a"), row(2, "a"))
    log.ahead_ms = 0
    log.update(row(1, "a"), row(1, "b"))  # follows it in its partition
    log.next_day()
    log.partition = lowest
    log.begin()
    log.update(row(1, "b"), row(1, "c"))
    log.delete(row(2, "a"))
    return [[row(1, "b"), row(2, "a")], [row(1, "c")]]


@story("O8", "canal", "maxwell_without_position")
def a_kafka_timestamp_that_goes_back_keeps_the_order_of_its_partition(log: TxLog) -> list[Rows]:
    lowest = log.partition
    log.begin()
    log.insert(row(1, "a"))
    log.partition = lowest + 1
    log.insert(row(9, "later than row 1"))
    log.ahead_ms = -3_600_000
    log.update(row(1, "a"), row(1, "b"))  # not before row 9, and so not before row a
    log.insert(row(2, "a"))
    log.delete(row(2, "a"))
    log.insert(row(2, "b"))
    return [[row(1, "b"), row(2, "b"), row(9, "later than row 1")]]


@story("D12", "canal", own_table=True)
def a_truncate_in_partition_0_meets_other_partitions_by_kafka_time(log: TxLog) -> list[Rows]:
    log.begin()
    log.partition = 1
    log.insert(row(1, "before"), row(2, "before"))
    log.partition = 2
    log.insert(row(3, "before"))
    log.begin(earlier_ms=60_000)  # the truncate's own clock is behind
    log.partition = 0
    log.truncate()
    log.begin(earlier_ms=120_000)
    log.partition = 1
    log.insert(row(4, "after"))
    log.ahead_ms = -3_600_000  # Kafka's clock goes back in partition 1
    log.insert(row(5, "after"))
    log.ahead_ms = 0
    log.partition = 2
    log.insert(row(3, "after"))
    log.next_day()
    log.begin()
    log.partition = 1
    log.insert(row(6, "before"))
    log.update(row(4, "after"), row(4, "before"))
    log.partition = 0
    log.truncate()
    log.partition = 2
    log.insert(row(7, "after"))
    log.next_day()
    log.begin()
    log.partition = 1
    log.insert(row(8, "new"))
    return [
        [row(3, "after"), row(4, "after"), row(5, "after")],
        [row(7, "after")],
        [row(7, "after"), row(8, "new")],
    ]


@story("O8", "canal", own_table=True)
def a_truncate_meets_rows_of_a_kafka_timestamp_in_the_future(log: TxLog) -> list[Rows]:
    log.begin()
    log.partition, log.ahead_ms = 1, 10 * 86_400_000
    log.insert(row(1, "a"))
    log.partition, log.ahead_ms = 0, 0
    log.truncate()
    log.next_day()
    log.begin()
    log.truncate()
    log.partition = 1
    log.insert(row(2, "b"))
    return [[row(1, "a")], [row(2, "b")]]


@story("D12", "postgresql", own_table=True)
def a_truncate_stands_within_the_transaction_of_a_shift(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"), row(5, "e"))
    log.next_day()
    log.begin()
    log.update(row(1, "a"), row(1, "A"))
    log.truncate()
    log.insert(row(1, "c"), row(2, "d"))
    log.shift(row(1, "c"), row(2, "d"))
    return [[row(1, "a"), row(2, "b"), row(5, "e")], [row(2, "c"), row(3, "d")]]


@story("D12", "postgresql", own_table=True)
def a_day_ends_after_a_truncate_within_a_transaction(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"), row(5, "e"))
    log.next_day()
    log.begin()
    log.update(row(1, "a"), row(1, "A"))
    log.truncate()
    log.next_day()
    log.insert(row(1, "c"), row(2, "d"))
    log.shift(row(1, "c"), row(2, "d"))
    return [[row(1, "a"), row(2, "b"), row(5, "e")], [], [row(2, "c"), row(3, "d")]]


@story("O8", "oracle")
def a_commit_scn_of_another_commit_orders_nothing(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "a"), commit_scn="500")  # of the commit before
    log.update(row(1, "a"), row(1, "b"), commit_scn="9000")  # its last event
    log.begin()
    log.update(row(1, "b"), row(1, "c"), commit_scn="9000")
    log.delete(row(2, "a"), commit_scn="500")
    log.next_day()
    log.begin()
    log.update(row(1, "c"), row(1, "d"), commit_scn="8000")  # threads take turns
    log.insert(row(2, "b"), commit_scn="8000")
    return [[row(1, "c")], [row(1, "d"), row(2, "b")]]


@story("O8", "postgresql")
def a_tie_of_one_key_in_two_partitions_is_published(log: TxLog) -> list[Rows]:
    """Nothing tells which is later: the higher partition counts."""
    lowest = log.partition
    log.begin()
    log.insert(row(1, "a"))
    log.begin()
    tie = {"lsn": 8 * log.change + 400}
    log.partition = lowest + 1
    log.update(row(1, "a"), row(1, "of partition 1"), **tie)
    log.partition = lowest
    log.update(row(1, "a"), row(1, "of partition 0"), **tie)
    return [[row(1, "of partition 1")]]


# -- snapshot reads ------------------------------------------------------------------------------


@story("O6", *WITH_READS)
def an_incremental_snapshot_reads_between_transactions(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.next_day()
    log.begin()
    log.shift(row(1, "a"), row(2, "b"))
    back = len(log.sent) - 2
    log.read(row(2, "read"), row(7, "read"))
    log.next_day()
    log.begin()
    log.shift(row(2, "read"), row(3, "b"))
    log.next_day()
    log.read(row(3, "read again"))
    log.redeliver(2 * back + 3, back)
    return [
        [row(1, "a"), row(2, "b")],
        [row(2, "read"), row(3, "b"), row(7, "read")],
        [row(3, "read"), row(4, "b"), row(7, "read")],
        [row(3, "read again"), row(4, "b"), row(7, "read")],
    ]


@story("O6", *WITH_READS)
def a_read_stands_after_a_shift_that_is_delivered_again(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a"), row(2, "b"))
    log.begin()
    log.shift(row(1, "a"), row(2, "b"))
    back = len(log.sent) - 2
    log.read(row(2, "read"))
    log.redeliver(back + 1, back)
    log.begin()
    log.delete(row(3, "b"))
    return [[row(2, "read")]]


# -- values that are not sent --------------------------------------------------------------------


@story("R2", "postgresql", "postgresql_keys", "oracle")
def unsent_values_of_a_shift_are_those_of_the_rows_that_departed(log: TxLog) -> list[Rows]:
    def of(id: int, v: str, doc: str) -> Row:
        return row(id, v, doc=doc)

    log.begin()
    log.insert(of(1, "a", "long a"), of(2, "b", "long b"))
    log.next_day()
    log.begin()
    log.shift(of(1, "a", "long a"), of(2, "b", "long b"), unsent=["doc"])
    log.next_day()
    log.begin()
    log.shift(of(2, "a", "long a"), of(3, "b", "long b"), unsent=["doc"])
    log.shift(of(3, "a", "long a"), of(4, "b", "long b"), unsent=["doc"])
    log.next_day()
    log.begin()
    log.update(of(4, "a", "long a"), of(4, "a", "longer a"))
    log.shift(of(4, "a", "longer a"), of(5, "b", "long b"), unsent=["doc"])
    log.update(of(6, "b", "long b"), of(6, "B", TOAST))
    return [
        [of(1, "a", "long a"), of(2, "b", "long b")],
        [of(2, "a", "long a"), of(3, "b", "long b")],
        [of(4, "a", "long a"), of(5, "b", "long b")],
        [of(5, "a", "longer a"), of(6, "B", "long b")],
    ]


@story("R2", "postgresql", "oracle")
def unsent_values_are_of_the_row_that_an_update_took(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a", doc="long a"), row(2, "b", doc="long b"))
    log.next_day()
    shown = TOAST if log.connector == "oracle" else "long b"
    log.begin()
    log.move(row(1, "a", doc="long a"), row(2, "a", doc=TOAST))
    log.update(row(2, "b", doc=shown), row(2, "b1", doc=TOAST))
    log.move(row(2, "b1", doc=shown), row(3, "b1", doc=TOAST))
    return [
        [row(1, "a", doc="long a"), row(2, "b", doc="long b")],
        [row(2, "a", doc="long a"), row(3, "b1", doc="long b")],
    ]


@story("R2", "postgresql", "oracle")
def unsent_values_of_a_shift_outlast_a_day_s_end(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a", doc="long a"), row(2, "b", doc="long b"))
    log.next_day()
    log.begin()
    log.hold()
    log.shift(row(1, "a", doc="long a"), row(2, "b", doc="long b"), unsent=["doc"])
    log.deliver(2)
    log.next_day()
    log.deliver()
    log.next_day()
    log.redeliver(4)
    return [
        [row(1, "a", doc="long a"), row(2, "b", doc="long b")],
        [row(2, "a", doc="long a")],
        [row(2, "a", doc="long a"), row(3, "b", doc="long b")],
        [row(2, "a", doc="long a"), row(3, "b", doc="long b")],
    ]


@story("R2", "postgresql", "oracle")
def what_a_transaction_left_unsent_before_a_day_s_end_is_no_value_after_it(
    log: TxLog,
) -> list[Rows]:
    """No event of the last day leaves a value unsent."""
    log.begin()
    log.insert(row(1, "a", doc="long a"), row(2, "b", doc="long b"))
    log.next_day()
    log.begin()
    log.shift(row(1, "a", doc="long a"), unsent=["doc"])
    log.next_day()
    log.delete(row(2, "b", doc="long b"))
    return [
        [row(1, "a", doc="long a"), row(2, "b", doc="long b")],
        [row(2, "a", doc="long a")],
        [row(2, "a", doc="long a")],
    ]


@story("R2", "postgresql", "oracle")
def a_row_came_with_an_unsent_value_before_the_transaction_that_a_day_s_end_cuts(
    log: TxLog,
) -> list[Rows]:
    """The row's old key is read from the earlier day on, too."""
    log.begin()
    log.insert(row(1, "a", doc="long a"))
    log.next_day()
    log.begin()
    log.move(row(1, "a", doc=TOAST), row(2, "a", doc=TOAST))
    log.begin()
    log.update(row(2, "a", doc=TOAST), row(2, "b", doc=TOAST))
    log.next_day()
    log.update(row(2, "b", doc=TOAST), row(2, "c", doc=TOAST))
    return [
        [row(1, "a", doc="long a")],
        [row(2, "b", doc="long a")],
        [row(2, "c", doc="long a")],
    ]


@story("R2", "postgresql", "oracle")
def a_row_came_over_several_keys_before_the_transaction_that_a_day_s_end_cuts(
    log: TxLog,
) -> list[Rows]:
    """Each of the row's old keys is read from the earlier day on, too."""
    log.begin()
    log.insert(row(1, "a", doc="long a"))
    log.next_day()
    for key in (1, 2, 3):
        log.begin()
        log.move(row(key, "a", doc=TOAST), row(key + 1, "a", doc=TOAST))
    log.begin()
    log.update(row(4, "a", doc=TOAST), row(4, "b", doc=TOAST))
    log.next_day()
    log.update(row(4, "b", doc=TOAST), row(4, "c", doc=TOAST))
    return [
        [row(1, "a", doc="long a")],
        [row(4, "b", doc="long a")],
        [row(4, "c", doc="long a")],
    ]


@story("R2", "sqlserver")
def a_row_whose_departure_is_told_as_a_plain_delete_keeps_its_unsent_value(
    log: TxLog,
) -> list[Rows]:
    """The event of the new key alone says where the row comes from."""
    log.headers = True
    log.begin()
    log.insert(row(1, "a", doc="long a"), row(2, "b", doc="long b"))
    log.next_day()
    log.begin()
    log.hold()
    log.delete(row(1, "a", doc="long a"))
    log.move(row(1, "a", doc="long a"), row(2, "a", doc=TOAST))
    log.deliver(1)
    log.lose()
    log.deliver()
    log.move(row(2, "b", doc="long b"), row(3, "b", doc=TOAST))
    return [
        [row(1, "a", doc="long a"), row(2, "b", doc="long b")],
        [row(2, "a", doc="long a"), row(3, "b", doc="long b")],
    ]


@story("R2", "postgresql", "oracle")
def a_day_ends_between_a_departure_and_the_arrival_of_its_unsent_values(
    log: TxLog,
) -> list[Rows]:
    log.begin()
    log.insert(row(1, "a", doc="long a"), row(2, "b", doc="long b"))
    log.next_day()
    log.begin()
    log.hold()
    log.shift(row(1, "a", doc="long a"), row(2, "b", doc="long b"), unsent=["doc"])
    log.deliver(3)
    log.next_day()
    log.deliver()
    return [
        [row(1, "a", doc="long a"), row(2, "b", doc="long b")],
        [row(2, "a", doc="long a")],
        [row(2, "a", doc="long a"), row(3, "b", doc="long b")],
    ]


@story("R2", "postgresql")
def the_old_row_of_a_departure_has_values_that_the_lake_never_had(log: TxLog) -> list[Rows]:
    log.begin()
    log.insert(row(9, "z", doc="short"))
    log.next_day()
    log.begin()
    log.move(row(1, "a", doc="long a"), row(2, "a", doc=TOAST))  # the lake begins later
    return [
        [row(9, "z", doc="short")],
        [row(2, "a", doc="long a"), row(9, "z", doc="short")],
    ]


# -- the model -----------------------------------------------------------------------------------


def _tables(stories: Iterable[Story]) -> dict[str, dict[str, Any]]:
    return {f"shop.{each.table}": dict(FORMS[each.form].config) for each in stories}


def _rows_of(name: str, rows: Iterable[Mapping[str, Any]]) -> Rows:
    """The rows of a story; columns that other stories added are null."""
    return [
        {n: v for n, v in row.items() if n != "story" and v is not None}
        for row in rows
        if row["story"] == name
    ]


@pytest.mark.parametrize("name", STORIES)
def test_the_model_ends_every_day_of_a_story_as_written(name: str) -> None:
    item = STORIES[name]
    landing = Landing(DAYS[0])
    expected = item.tell(item.log(landing, 0))
    assert len(landing.landed) <= len(expected) <= len(DAYS)
    source = {"format": FORMS[item.form].format, "tables": _tables([item])}
    got = model.tables(source, landing.landed)
    for day, rows in zip(DAYS, expected, strict=False):
        if day in got:
            own = _rows_of(item.name, got[day][f"shop.{item.table}"])
            lakes.assert_same_rows(own, rows, str(day))


# -- the lake ------------------------------------------------------------------------------------


@dataclass
class Run:
    """The lake after all stories: the rows of each story by day, and what each source landed."""

    lake: Lake
    sources: dict[str, dict[str, Any]]
    landed: dict[str, model.Landed]
    expected: dict[str, list[Rows]]
    errors: dict[tuple[str, date], Exception]

    def errors_of(self, table: str) -> dict[date, str]:
        """What stopped a table, at most one day's error."""
        return {day: _cause(error) for (name, day), error in self.errors.items() if name == table}


def _cause(error: Exception) -> str:
    lines = str(error).splitlines() or [repr(error)]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes or lines)[-1 if causes else 0]


def _source_of(format: str) -> str:
    return f"order_{format}".replace("-", "_")


@pytest.fixture(scope="module")
def run(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("order")
    by_format: dict[str, list[str]] = defaultdict(list)
    for name, item in STORIES.items():
        by_format[FORMS[item.form].format].append(name)
    sources: dict[str, dict[str, Any]] = {}
    landed: dict[str, model.Landed] = {}
    expected: dict[str, list[Rows]] = {}
    for format, names in by_format.items():
        landing = Landing(DAYS[0])
        numbers: dict[str, int] = defaultdict(int)
        for name in names:
            item = STORIES[name]
            landing.on(DAYS[0])
            expected[name] = item.tell(item.log(landing, numbers[item.table]))
            numbers[item.table] += 1
        landed[_source_of(format)] = {day: landing.landed.get(day, []) for day in DAYS}
        sources[_source_of(format)] = lakes.write_source(
            folder / format,
            landed[_source_of(format)],
            format,
            tables=_tables(STORIES[name] for name in names),
        )
    lake = lake_of(sources, DAYS[0])
    errors: dict[tuple[str, date], Exception] = {}
    for source in sources:
        lakes.run_stages(lake, source, DAYS)
        errors |= lakes.run_tables(lake, source, DAYS)[1]
    return Run(lake, sources, landed, expected, errors)


# Of the story that has them.
PLACE_IN_TRANSACTION = {"transaction.id", "transaction.total_order"}
TABLES = sorted({item.table for item in STORIES.values()})


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_every_day_of_every_story_ends_as_written(run: Run, table: str) -> None:
    names = [name for name, item in STORIES.items() if item.table == table]
    source = _source_of(FORMS[STORIES[names[0]].form].format)
    errors = run.errors_of(f"shop.{table}")
    made = [day for day in DAYS if day < min(errors, default=date.max)]
    rows = {day: lakes.rows_of(run.lake, source, f"shop.{table}", day) for day in made}
    found = [f"{day} was not published: {error}" for day, error in errors.items()]
    for name in names:
        days = run.expected[name]
        for number, day in enumerate(made):
            own = _rows_of(STORIES[name].name, rows[day])
            expected = days[min(number, len(days) - 1)]
            if difference := lakes.difference_of(own, expected):
                found.append(f"{name}, day {number + 1}\n{difference}")
    assert not found, "\n" + "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("format", sorted({form.format for form in FORMS.values()}))
def test_every_event_is_read_as_the_model_reads_it(run: Run, format: str) -> None:
    source = _source_of(format)
    lakes.assert_as_model(run.lake, source, run.sources[source], run.landed[source])


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_events_are_ordered_and_identified_by_the_elements_of_their_form(
    run: Run, name: str
) -> None:  # O4, O8
    form = FORMS[name]
    rows = [
        row
        for row in lakes.stage_rows(run.lake, _source_of(form.format), "changes")
        if row["table_name"] == f"shop.{name}" and row["position"] is not None
    ]
    assert {row["position_basis"] for row in rows} == {f"{form.basis},partition,offset,place"}
    names = {frozenset(json.loads(row["identity"] or "{}")) for row in rows}
    assert frozenset().union(*names) - PLACE_IN_TRANSACTION == form.identity
    assert len({len(row["position"]) for row in rows}) == 1
