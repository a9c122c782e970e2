"""Tellers of all other formats."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from cdc_assets_tests import events as ev
from cdc_assets_tests.model import Record
from cdc_assets_tests.worlds.teller import FAMILIES, KEYS, Step, Teller, Values


class LindormTeller(Teller):
    """Whole old rows, no schema, a clock for a position."""

    namespace = "default"

    def event(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        return self.send(self._record(build, *images, **options))

    def _record(self, build: Callable[..., Record], *images: Any, **options: Any) -> Record:
        now = self.written_ms()
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
            "event_time": self.tx.began_ms,
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

    @property
    def has_positions(self) -> bool:
        return self.traits.connector == "postgresql"

    def key_bytes(self, key: Values) -> bytes:
        return ev.maxwell_key(key, self.table)

    def place(self) -> dict[str, Any]:
        """Rows of a transaction share their position; the last of it says `commit`."""
        pos, number = 1000 + 8 * self.next_change(), self.numbered()
        own: dict[str, Any] = {"xid": 7125 + self.tx.number}
        if self.has_positions:
            own["position"] = f"binlog.{3 + self.tx.day:06}:{pos}"
        other = self.pick({"xoffset": self.serial % 4}, {"xoffset": 0}, {"commit": True})
        return own | (other if number is None else {"xoffset": number})

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
            "ts": (self.tx.began_ms - self.pick(0, 0, 1000)) // 1000,
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
        self.pos = 1000 + 8 * self.next_change()
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
            "op_ms": self.tx.began_ms,
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
        now = self.now_ms()
        key = self.key_of(rows[0][1]) if rows else {}
        number = self.next_change()
        kinds = {"int32": "int(11)", "int64": "bigint(20)", "string": "varchar(80)"}
        olds = [old for old, _ in rows]
        types = {n: kinds[t] for n, t in self.types.items()}
        if self.settings.own_values:
            types |= {"size": "enum('S','M','it''s')", "flags": "set('a','b','c')"}
        defaults: dict[str, Any] = {
            "table": self.table,
            "topic": self.topic,
            "types": types if self.has_schema() else None,
            "keys": list(self.key_names),
            "key": self.pick(None, self.key_bytes(key)) if rows else None,
            "partition": self.lane(key),
            "es": self.tx.began_ms // 1000 * 1000,
            "ts": now + 200,
            "id": 0,
            "commit_ts": 447_507_027_004_751_870 + number if self.is_ti else None,
        }
        data = [row for _, row in rows] if rows else None
        return ev.canal_message(
            kind, data, olds if kind == "UPDATE" else None, **{**defaults, **options}
        )

    @property
    def is_ti(self) -> bool:
        return self.traits.connector in ("TiCDC", "oracle")

    def statement(
        self,
        changes: Iterable[tuple[Values | None, Values | None]],
        step: Step,
        move: Callable[[Values, Values, Step], None] | None = None,
    ) -> None:
        """Messages of rows that stand together, or one for each."""
        size = self.pick(KEYS, KEYS, 1)
        messages: list[tuple[str, list[tuple[Values | None, Values]]]] = []
        for before, row in changes:
            kind = "DELETE" if row is None else "INSERT" if before is None else "UPDATE"
            if not messages or messages[-1][0] != kind or len(messages[-1][1]) == size:
                messages.append((kind, []))
            if row is None or before is None:
                messages[-1][1].append((None, row or before or {}))
            else:
                after = self.after_of(row, step)
                messages[-1][1].append((dict(ev.old_values(before, after)), after))
        for kind, rows in messages:
            self.event(kind, *rows)

    def second(self, step: Step) -> tuple[int, int] | None:
        """Another place of the family, for a message of two rows."""
        other = (step.family, (step.key + 1) % KEYS)
        return other if self.pick(False, False, True) else None

    def row_of(self, place: tuple[int, int]) -> Values:
        row = super().row_of(place)
        if self.settings.own_values:
            row["size"] = (None, "0", "1", "3", "M", "4")[self.serial % 6]
            row["flags"] = ("0", "5", "a,c", "2")[self.serial % 4]
        return row

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
        own = self.id_of(number)[0] if self.settings.own_values else number
        return {"_id": own if part is None else {"part": part, "id": own}, **row}

    @staticmethod
    def id_of(number: Any) -> tuple[Any, Any]:
        """An id as documents have it, and as message keys have it."""
        digits = int(str(number).strip("k"))
        ms = 1_793_872_800_000 + digits
        if digits % 4 == 1:
            time = datetime.fromtimestamp(ms / 1000, timezone.utc)
            text = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            return {"$date": {"$numberLong": str(ms)}}, {"$date": text}
        if digits % 4 == 2:
            data = base64.b64encode(digits.to_bytes(16, "big")).decode()
            new = {"$binary": {"base64": data, "subType": "04"}}
            return {"$binary": data, "$type": "04"}, new
        if digits % 4 == 3:
            return {"$numberLong": str(digits)}, digits
        return number, number

    def key_id_of(self, sent: Any) -> Any:
        """The id of a message key."""
        if isinstance(sent, dict) and "part" in sent:
            return {**sent, "id": self.key_id_of(sent["id"])}
        if not isinstance(sent, dict):
            return sent
        forms = (self.id_of(number) for number in range(10 * (FAMILIES + 1)))
        return next(relaxed for strict, relaxed in forms if strict == sent)

    def event(self, op: str, row: Values, **options: Any) -> Record:
        return self.send(self._record(op, row, **options))

    def _record(self, op: str, row: Values, source: Values | None = None, **extra: Any) -> Record:
        now, of_tx = self.now_ms(), self.traits.grain == "transaction"
        self.tx.order += 1
        if self.traits.names in ("transaction", "both"):
            own = {"id": f"lsid:{self.tx.number}", "total_order": self.numbered()}
            extra = {"transaction": own, **extra}
        return ev.mongodb_change(
            op,
            row,
            table=self.table,
            topic=self.topic,
            source_ts_ms=self.tx.began_ms if of_tx else now,
            processed_ts_ms=now + 200,
            ord=1 if of_tx else 1 + self.clock % 3,
            source=source,
            extra=extra,
            key_id=self.key_id_of(row["_id"]),
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
        now = self.written_ms()
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
