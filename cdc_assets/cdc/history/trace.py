"""From a row to its messages: the landed records that made it, in their order, and those that lost.

All events of the key are put in order at once, from the table's first day on, by the rules that a
day's merge has; what the merge of each day made of them may differ for events later than
`late_days` alone, and that is said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.errors import ConfigError, LakeError
from cdc_assets.cdc.history.entries import Keys, entries_of_all
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.checkpoints import Checkpoints, local_checkpoints
from cdc_assets.cdc.lake.json_values import instant_text
from cdc_assets.cdc.names import json_path
from cdc_assets.cdc.sqltext import Sql, is_one_of, literal
from cdc_assets.cdc.state.day_types import TableColumns, with_types_of
from cdc_assets.cdc.state.entry_queue import DELETED, REMOVING
from cdc_assets.cdc.state.evolution import prepare_columns
from cdc_assets.cdc.state.fold_entries import entries_since
from cdc_assets.cdc.state.keyed_day import KeyedDay
from cdc_assets.cdc.state.row_sql import key_types, standing_values
from cdc_assets.cdc.state.source_context import gather
from cdc_assets.cdc.state.table_day import POSITION, TableDay
from cdc_assets.cdc.state.unsent_values import NONE_UNSENT

_PLACE = ("landing_date", "topic", "partition", "offset")


@dataclass(frozen=True)
class TracedRecord:
    """A landed record of a key, and what it did to the key's row.

    `position` is null where it has none of its own. Times are ISO texts in UTC.
    """

    landing_date: date
    topic: str | None
    partition: int | None
    offset: int | None
    op: str | None
    source_time: str | None
    kafka_time: str | None
    position: Sequence[int] | None
    did: str

    def as_row(self) -> dict[str, Any]:
        """Its fields by name."""
        return dict(self.__dict__)


def trace(
    lake: Lake, source: str, table: str, key: Mapping[str, Any], as_of: date | None = None
) -> list[TracedRecord]:
    """The records of a key that have landed by the end of a day, in the order of their events.

    Args:
        lake: the lake.
        source: the source's name.
        table: the table's name in the configuration.
        key: the value of each key column by its name in the lake.
        as_of: the day [default: the table's newest].

    Returns:
        Each change of the key and each truncate between them, then what is in quarantine.

    Raises:
        MissingDayError: the day was not made.
        LakeError: the table has no key.
        ConfigError: the key has other columns than the table's, or a value of another type.
    """
    state, day = lake.made_day(source, table, as_of)
    start = lake.config.start_of(source, table)
    days = [date.fromordinal(n) for n in range(start.toordinal(), day.toordinal() + 1)]
    context = gather(lake, source, [table], days)
    table_day = TableDay(lake, source, table, day, context, state)
    if not table_day.is_keyed:
        raise LakeError(f"{source}.{table} has no key that tells its rows apart")
    columns = with_types_of(table_day, prepare_columns(table_day, is_made=True), days)
    with local_checkpoints() as checkpoints:
        traced = _Trace(KeyedDay(table_day, columns, is_made=True), key, start, checkpoints)
        changes = traced.changes()
        topics = sorted({record.topic for record in changes if record.topic is not None})
        return [*changes, *traced.quarantined(topics)]


@dataclass(frozen=True)
class _Trace:
    keyed: KeyedDay
    key: Mapping[str, Any]
    start: date
    checkpoints: Checkpoints

    @property
    def _columns(self) -> TableColumns:
        return self.keyed.columns

    def _key_frame(self) -> DataFrame:
        """`k`: the key, as the table's types.

        Raises:
            ConfigError: it has other columns, or a value that is none of its column.
        """
        names = self._columns.key_names
        if set(self.key) != set(names):
            got, expected = sorted(self.key), sorted(names)
            raise ConfigError([f"--key: got {got}; {self.keyed.day.label} is keyed by {expected}"])
        kinds = key_types(self._columns)
        members = ", ".join(
            f"{literal(work)}, try_cast({literal(_text(self.key[name]))} AS {kind})"
            for name, work, kind in zip(names, self._columns.key_work, kinds, strict=True)
        )
        frame = self.keyed.day.lake.spark.sql(f"SELECT named_struct({members}) AS k")
        row = frame.first()
        assert row is not None
        for name, kind, value in zip(names, kinds, row.k, strict=True):
            if value is None:
                raise ConfigError([f"--key: {name}: got {self.key[name]!r}; expected {kind}"])
        return frame

    def changes(self) -> list[TracedRecord]:
        """What events did to the key, and the copies of them."""
        day, frame = self.keyed.day, self._key_frame()
        known = self.checkpoints.add(entries_since(self.keyed, self.start, frame))
        copies = known.where("is_copy").orderBy(*_PLACE).collect()
        keys = Keys(self.keyed, self.start, None, False, self.checkpoints, frame, is_folded=True)
        shown = ("n", "kind", "op", "pos", "position", "source_ts_ms", "kafka_time", *_PLACE)
        ordered = entries_of_all([keys], NONE_UNSENT).plan()
        rows = ordered.orderBy("n").select(*shown, "top", "top_before").collect()
        standing = self._standing_position(frame)
        found = []
        for n, row in enumerate(rows):
            did = _did(rows, n, standing, day.settings.late_days)
            if row.kind == DELETED and self._place(row) in self._ends_of_snapshots:
                found.append(self._traced(row, _did_not_read(did), is_read=True))
            else:
                found.append(self._traced(row, did))
        found += [self._traced(row, "repeats an event that had landed") for row in copies]
        return found

    def _standing_position(self, frame: DataFrame) -> list[int] | None:
        """The position of the row that stands at the end of the day; None where none does."""
        day = self.keyed.day
        assert day.state is not None  # its day is made
        table = day.at(day.state.tags[day.day])
        rows = table.select(*standing_values(table.schema, self._columns), POSITION)
        row = rows.join(frame, "k", "left_semi").select(POSITION).first()
        return None if row is None else list(row[0])

    @cached_property
    def _ends_of_snapshots(self) -> set[tuple[Any, ...]]:
        """The places of the last reads of snapshots after which rows were removed (R7)."""
        day = self.keyed.day
        found = ((d, s.last) for d in day.days_from(self.start) for s in day.removed_unread_on(d))
        return {(d, last.topic, last.partition, last.offset) for d, last in found}

    @staticmethod
    def _place(row: Any) -> tuple[Any, ...]:
        return tuple(row[name] for name in _PLACE)

    def _traced(self, row: Any, did: str, is_read: bool = False) -> TracedRecord:
        return TracedRecord(
            **{name: row[name] for name in _PLACE},
            op="r" if is_read else row.op,
            source_time=_instant(row.source_ts_ms),
            kafka_time=_instant(row.kafka_time),
            position=None if is_read else row.position,
            did=did,
        )

    def quarantined(self, topics: Sequence[str]) -> list[TracedRecord]:
        """The records in quarantine whose key this is, as far as it can be read.

        Args:
            topics: of the table; a record may not even say its table.
        """
        day = self.keyed.day
        unsaid = f"table_name IS NULL AND {is_one_of('topic', topics)}"
        rows = (
            day.lake.spark.table(day.lake.stage(day.source, "quarantine"))
            .where(F.col("landing_date") <= F.lit(day.day))
            .where(f"table_name = {literal(day.table)} OR ({unsaid})")
            .where(" AND ".join(self._has_value(name) for name in self._columns.key_names))
            .orderBy(*_PLACE)
            .select(*_PLACE, F.unix_millis("timestamp").alias("ms"), "reason")
            .collect()
        )
        return [
            TracedRecord(
                **{name: row[name] for name in _PLACE},
                op=None,
                source_time=None,
                kafka_time=_instant(row.ms),
                position=None,
                did=f"is in quarantine: {row.reason}",
            )
            for row in rows
        ]

    def _has_value(self, name: str) -> Sql:
        """True where the key of a record, with its schema or without, has a column's value."""
        text, parsed = _text(self.key[name]), "try_parse_json(CAST(key AS string))"
        sent = self.keyed.day.sent.sent_names([name])
        places = ((n, root) for n in sent for root in ("$.payload", "$"))
        paths = [path for n, root in places if (path := json_path(n, root))]
        found = ", ".join(f"try_variant_get({parsed}, {literal(p)}, 'string')" for p in paths)
        return f"coalesce({found or 'NULL'}, '') = {literal(text)}"


def _instant(ms: int | None) -> str | None:
    return None if ms is None else instant_text(ms * 1000)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _did_not_read(did: str) -> str:
    """What the end of a snapshot did to a row that it had not read."""
    if did == "removed the row":
        return "ended a snapshot that had not read the row: it was removed"
    return f"ended a snapshot that had not read the row, which {did}"


def _did(rows: Sequence[Any], n: int, standing: Sequence[int] | None, late_days: int) -> str:
    """What an entry did to the row, in words."""
    row = rows[n]
    removes = row.kind in REMOVING
    final = rows[-1].top
    if standing is not None and final < 0 and not removes and list(row.pos or ()) == standing:
        return (
            f"is the row: what removed it had landed more than {late_days} days before, and is not "
            "looked up any more"
        )
    if standing is not None and final == row.n:
        return "is the row"
    if row.top == row.top_before:
        if removes:
            return "removed nothing" if row.top < 0 else "removed no row that is seen"
        return "is hidden: another row arrived at its key in the same transaction"
    after = next((later for later in rows[n + 1 :] if later.top != later.top_before), None)
    if after is not None and after.landing_date < row.landing_date:
        won = "a delete" if after.kind in REMOVING else "an event"
        return f"lost: it is older than {won} that had landed before"
    return "removed the row" if removes else "was the row"
