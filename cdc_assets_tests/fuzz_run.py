"""Hostile events through all stages, against the plain-Python model.

``python -m cdc_assets_tests.fuzz_run --records 100000 --seed 7`` runs it by hand; test_fuzz.py runs
some thousand records. Good events of every format are changed by mutations.py, records of a schema
registry by encoded_mutations.py, and land over several days. No stage may fail, every landed record
reaches one destination, and destinations, changes, lag and every day of every configured table are
what the model says. The same for the same seed, wherever it runs: the public events, which not
every clone has, are changed and land in sources of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from cdc_assets.cdc.errors import first_line
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.tables import find_table
from cdc_assets.cdc.names import TableName
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.encoded_mutations import EncodedMutator, schemas_by_id
from cdc_assets_tests.model import Landed, Record
from cdc_assets_tests.model.documents import NotJsonError
from cdc_assets_tests.mutations import NAMES, Mutator
from cdc_assets_tests.paths import CASES
from cdc_assets_tests.registries import Schemas, as_structs, in_json

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]
SHARES = {
    "debezium": 10,
    "lindorm": 3,
    "dataworks": 3,
    "debezium-flat": 3,
    "canal": 3,
    "maxwell": 3,
    "ogg": 3,
}
# Beside them, of the same whole: the others' events stay what they were before these came.
ALL_SHARES = {**SHARES, "debezium-mongodb": 3, "debezium-cassandra": 3}
AVRO, AVRO_SHARE = "debezium, Avro", 3  # events of Debezium that are written with a registry
PUBLIC = "{}, public"  # what reports call the public events of a format
NAMES_OF_A_SOURCE = 8  # how many hostile column names a small run tries; each alters its tables
IDS = 40

Values = dict[str, Any]


@dataclass(frozen=True)
class FuzzedSource:
    """A source as cdc.yaml has it, and what lands for it."""

    name: str
    format: str
    tables: dict[str, Any]
    landed: Landed
    registry: Schemas | None = None
    label: str = ""  # what reports call it

    @cached_property
    def as_json(self) -> Landed:
        """What lands as the model reads it: what a registry's schemas decode is JSON."""
        if self.registry is None:
            return self.landed
        with tempfile.TemporaryDirectory() as folder:
            saved = self.registry.saved(Path(folder))
            return {d: [in_json(r, saved) for r in records] for d, records in self.landed.items()}

    def options(self) -> dict[str, Any]:
        """The source as the model reads it."""
        return {"format": self.format, "tables": self.tables}


# -- good events ---------------------------------------------------------------------------------

TYPES = {
    "id": "int64",
    "name": "string",
    "n": "int32",
    "price": (ev.DECIMAL, 2, 12),
    "at": "io.debezium.time.MicroTimestamp",
    "tags": {"type": "array", "items": {"type": "string"}, "optional": True},
}
COLUMNS = {"id": "bigint", "name": "string", "n": "bigint", "price": "decimal(12,2)"}
PAIR = {"id": "bigint", "part": "string", "name": "string", "n": "bigint", "price": "decimal(12,2)"}


@dataclass
class Story:
    """Rows of one table that come, change and go; `keys` are its key columns."""

    rng: Random
    log: Any
    keys: tuple[str, ...] = ("id",)
    typed: bool = False
    whole_before: bool = False
    rows: dict[int, Values] = field(default_factory=dict)

    def tell(self) -> None:
        """The next event, about one of `IDS` rows."""
        number = self.rng.randrange(1, IDS + 1)
        old = self.rows.get(number)
        if old is None:
            self._create(number)
        else:
            self.rng.choices([self._update, self._delete, self._move, self._read], [12, 4, 2, 1])[
                0
            ](number, old)

    def row(self, number: int) -> Values:
        row: Values = {"id": number, "name": f"name {self.rng.randrange(1000)}"}
        if "part" in self.keys:
            row["part"] = f"p{number % 3}"
        row |= {"n": self.rng.randrange(1000), "price": Decimal(self.rng.randrange(10_000)) / 100}
        if self.typed:
            row |= {"at": self.rng.randrange(2**50), "tags": ["a", "b"]}
        return row

    def key_of(self, row: Values) -> Values:
        return {name: row[name] for name in self.keys}

    def _create(self, number: int) -> None:
        row = self.rows[number] = self.row(number)
        if isinstance(self.log, ev.DataWorksLog):
            self.log.insert(**row)
        elif isinstance(self.log, ev.CanalLog):
            # Some statements insert many rows.
            more = range(number + 1, number + self.rng.randrange(1, 4))
            self.rows |= {n: self.row(n) for n in more if n <= IDS and n not in self.rows}
            self.log.says("INSERT", [row, *(self.rows[n] for n in more if n <= IDS)])
        else:
            self.log.create(**row)

    def _update(self, number: int, old: Values) -> None:
        row = self.rows[number] = self.row(number)
        if isinstance(self.log, ev.PgLog):
            self.log.update(**row, _before=old if self.whole_before else None)
        elif isinstance(self.log, ev.DataWorksLog) and self.rng.random() < 0.5:
            self.log.update_pair(old, **row)
        else:
            self.log.update(old, **row)

    def _delete(self, number: int, old: Values) -> None:
        del self.rows[number]
        if isinstance(self.log, ev.MongoLog):
            self.log.delete(**old, _tombstone=self.rng.random() < 0.7)
        elif isinstance(self.log, ev.PgLog):
            before = old if self.whole_before else self.key_of(old)
            self.log.delete(**before, _tombstone=self.rng.random() < 0.7)
        else:
            self.log.delete(**old)

    def _move(self, number: int, old: Values) -> None:
        target = number % IDS + 1
        row = self.row(target)
        del self.rows[number]
        self.rows[target] = row
        if isinstance(self.log, ev.PgLog) and not isinstance(self.log, ev.FlatLog):
            self.log.change_key(self.key_of(old), **row)
        elif isinstance(self.log, ev.PgLog):
            self.log.update(**row)
        else:
            self.log.update(old, **row)

    def _read(self, number: int, old: Values) -> None:
        if isinstance(self.log, (ev.PgLog, ev.MaxwellLog, ev.MongoLog)):
            self.log.read(**old)
        else:
            self._update(number, old)


_NO_TRUNCATES = (ev.FlatLog, ev.LindormLog, ev.MaxwellLog, ev.MongoLog, ev.CassandraLog)
_NO_HEARTBEATS = (ev.FlatLog, ev.LindormLog, ev.CanalLog, ev.MaxwellLog, ev.OggLog)


def _told(stories: Sequence[Story], landing: ev.Landing, rng: Random, count: int) -> Landed:
    """Events of several tables over all days, with truncates and heartbeats among them."""
    for day in DAYS:
        landing.on(day)
        for _ in range(count // len(DAYS)):
            story = rng.choice(stories)
            story.tell()
            if rng.random() < 0.002 and not isinstance(story.log, _NO_TRUNCATES):
                story.log.truncate()
                story.rows.clear()
            if rng.random() < 0.01 and not isinstance(story.log, _NO_HEARTBEATS):
                story.log.heartbeat()
            if isinstance(story.log, ev.MaxwellLog) and rng.random() < 0.01:
                story.log.ddl("ALTER TABLE customers COMMENT ''")
    return landing.landed


def _debezium(rng: Random, count: int) -> tuple[dict[str, Any], Landed]:
    landing = ev.Landing(DAYS[0])

    def log(table: str, **options: Any) -> ev.PgLog:
        return ev.PgLog("inventory", "public", table, landing=landing, **options)

    stories = [
        Story(rng, log("customers")),
        Story(rng, log("orders", types=TYPES), typed=True),
        Story(rng, log("items", key=("id", "part")), keys=("id", "part"), whole_before=True),
        Story(rng, log("audit_log")),
        Story(rng, log("history"), whole_before=True),
    ]
    tables: dict[str, Any] = {
        "public.customers": {"key": ["id"], "columns": COLUMNS},
        "public.orders": {},
        "public.items": {"key": ["id", "part"], "columns": PAIR, "replica_identity": "full"},
        "public.audit_log": {"key": "none", "columns": COLUMNS},
        "public.history": {"key": "row", "columns": COLUMNS, "replica_identity": "full"},
    }
    return tables, _told(stories, landing, rng, count)


AVRO_TYPES = TYPES | {
    "active": "boolean",
    "ratio": "double",
    "photo": "bytes",
    "more": {
        "type": "map",
        "keys": {"type": "string"},
        "values": {"type": "int32", "optional": True},
        "optional": True,
    },
}


@dataclass
class AvroStory(Story):
    """A story whose rows have more of Avro's types."""

    def row(self, number: int) -> Values:
        more = {"a": 1, "b": None} if number % 2 else {}
        return {
            **super().row(number),
            "active": number % 3 == 0,
            "ratio": self.rng.randrange(1000) / 8,
            "photo": self.rng.randbytes(number % 5),
            "more": more,
        }


def _avro(rng: Random, count: int) -> tuple[dict[str, Any], Landed]:
    landing = ev.Landing(DAYS[0])
    pair = ("id", "part")

    def log(table: str, types: dict[str, Any], **options: Any) -> ev.PgLog:
        return ev.PgLog("inventory", "public", table, landing=landing, types=types, **options)

    plain = {name: TYPES[name] for name in ("id", "name", "n", "price")}
    stories = [
        AvroStory(rng, log("orders", AVRO_TYPES), typed=True),
        Story(rng, log("items", plain | {"part": "string"}, key=pair), pair, whole_before=True),
    ]
    tables: dict[str, Any] = {
        "public.orders": {},
        "public.items": {"key": list(pair), "replica_identity": "full"},
    }
    return tables, as_structs(_told(stories, landing, rng, count))


def _lindorm(rng: Random, count: int) -> tuple[dict[str, Any], Landed]:
    landing = ev.Landing(DAYS[0])
    story = Story(rng, ev.LindormLog(landing=landing))
    return {"default.customers": {"columns": COLUMNS}}, _told([story], landing, rng, count)


def _dataworks(rng: Random, count: int) -> tuple[dict[str, Any], Landed]:
    landing = ev.Landing(DAYS[0])
    columns = {"id": "LONG", "name": "STRING", "n": "LONG", "price": "DOUBLE"}
    story = Story(rng, ev.DataWorksLog(columns=columns, landing=landing))
    return {"shop.customers": {}}, _told([story], landing, rng, count)


def _flat(rng: Random, count: int) -> tuple[dict[str, Any], Landed]:
    landing = ev.Landing(DAYS[0])
    story = Story(rng, ev.FlatLog(landing=landing))
    return {"public.customers": {"columns": COLUMNS}}, _told([story], landing, rng, count)


def _canal(rng: Random, count: int) -> tuple[dict[str, Any], Landed]:
    landing = ev.Landing(DAYS[0])
    types = {"id": "bigint", "name": "varchar(20)", "n": "int"}
    story = Story(rng, ev.CanalLog(types=types, landing=landing))
    return {"shop.customers": {"columns": COLUMNS}}, _told([story], landing, rng, count)


def _maxwell(rng: Random, count: int) -> tuple[dict[str, Any], Landed]:
    landing = ev.Landing(DAYS[0])
    stories = [
        Story(rng, ev.MaxwellLog(landing=landing)),
        # Its key is in the message key alone.
        Story(rng, ev.MaxwellLog(table="orders", primary_key=None, landing=landing)),
    ]
    tables: dict[str, Any] = {
        "shop.customers": {"columns": COLUMNS},
        "shop.orders": {"columns": COLUMNS},
    }
    return tables, _told(stories, landing, rng, count)


def _ogg(rng: Random, count: int) -> tuple[dict[str, Any], Landed]:
    landing = ev.Landing(DAYS[0])
    story = Story(rng, ev.OggLog(landing=landing))
    return {"SHOP.CUSTOMERS": {"columns": COLUMNS}}, _told([story], landing, rng, count)


def _mongodb(rng: Random, count: int) -> tuple[dict[str, Any], Landed]:
    landing = ev.Landing(DAYS[0])
    stories = [
        Story(rng, ev.MongoLog(landing=landing)),
        Story(rng, ev.MongoLog(collection="orders", landing=landing)),
    ]
    columns = {name: kind for name, kind in COLUMNS.items() if name != "id"}
    tables: dict[str, Any] = {"shop.customers": {}, "shop.orders": {"columns": columns}}
    return tables, _told(stories, landing, rng, count)


def _cassandra(rng: Random, count: int) -> tuple[dict[str, Any], Landed]:
    landing = ev.Landing(DAYS[0])
    pair = ("id", "part")
    stories = [
        Story(rng, ev.CassandraLog(landing=landing)),
        Story(rng, ev.CassandraLog(table="items", key=pair, landing=landing), keys=pair),
    ]
    tables: dict[str, Any] = {
        "shop.customers": {"columns": COLUMNS},
        "shop.items": {"key": list(pair), "columns": PAIR},
    }
    return tables, _told(stories, landing, rng, count)


_GOOD = {
    "debezium": _debezium,
    "lindorm": _lindorm,
    "dataworks": _dataworks,
    "debezium-flat": _flat,
    "canal": _canal,
    "maxwell": _maxwell,
    "ogg": _ogg,
    "debezium-mongodb": _mongodb,
    "debezium-cassandra": _cassandra,
}

# -- public events -------------------------------------------------------------------------------


_OF_FILE = {
    "flat": "debezium-flat",
    "aliyun-json": "dataworks",
    "maxwell": "maxwell",
    "ogg": "ogg",
}
# These are among the events of Debezium, too, which quarantines them.
_ALSO_OF_FILE = {"debezium-mongodb": "mongodb-", "debezium-cassandra": "cassandra-"}


def public_events(format: str) -> list[tuple[str | None, Record]]:
    """The public events of a format, each with the table that it is of; none where none are."""
    found: list[tuple[str | None, Record]] = []
    for path in sorted(CASES.glob("public/*.jsonl")):
        starts = (own for start, own in _OF_FILE.items() if path.name.startswith(start))
        if format in _ALSO_OF_FILE:
            if not path.name.startswith(_ALSO_OF_FILE[format]):
                continue
        elif format != next(starts, "debezium"):
            continue
        for text in path.read_text("utf-8").splitlines():
            case = json.loads(text)
            if case["landing"]["ts"] > 10**16:
                continue  # the mutation `kafka_clock` has such, and can be left out
            is_change = case["expect"]["destination"] == "changes"
            found.append((case["expect"].get("table") if is_change else None, _landed(case)))
    return found


def _landed(case: dict[str, Any]) -> Record:
    line = case["landing"]

    def data(text: str | None) -> bytes | None:
        return None if text is None else text.encode("utf-8")

    flat = [data(part) for part in line.get("headers") or ()]
    headers = tuple(((n or b"").decode(), v) for n, v in zip(flat[::2], flat[1::2], strict=True))
    place = (line["topic"], line["partition"], line["offset"], line["ts"])
    return Record(*place, data(line["key"]), data(line["payload"]), headers)


def _public_tables(events: Iterable[tuple[str | None, Record]], most: int) -> dict[str, Any]:
    """The tables with the most events, with the types of columns that no message schema has."""
    columns: dict[str, dict[str, str]] = defaultdict(dict)
    counts: Counter[str] = Counter()
    for name, record in events:
        if name is None or "None" in name.split("."):
            continue
        table = str(TableName(*name.split(".")))
        counts[table] += 1
        document = json.loads(record.value or b"{}", parse_float=Decimal)
        payload = document.get("payload") or document
        for column, value in ((payload.get("after") if "op" in payload else payload) or {}).items():
            kind = {bool: "boolean", int: "bigint", Decimal: "double"}.get(type(value), "string")
            if not column.startswith("__"):
                columns[table].setdefault(column, kind)
    return {table: {"columns": columns[table]} for table, _ in counts.most_common(most)}


def public_sources(
    records: int,
    seed: int,
    *,
    names: int = NAMES_OF_A_SOURCE,
    tables: int = 1,
    without: Collection[str] = (),
) -> list[FuzzedSource]:
    """Beside those of `fuzzed_sources`, a source of each format that has public events: a quarter
    of so many records, all of its events first, then any of them again."""
    sources = []
    for number, (format, share) in enumerate(ALL_SHARES.items()):
        events = public_events(format)
        if not events:
            continue
        label = PUBLIC.format(format)
        rng = Random(f"{seed} {label}")
        count = _part(records, share) // 4
        good = [record for _, record in events][:count]
        good += [rng.choice(events)[1] for _ in range(count - len(good))]
        landed: Landed = {day: [] for day in DAYS}
        for record in good:
            landed[rng.choice(DAYS)].append(record)
        mutator = Mutator(rng, names=_sampled(rng, names), without=without, format=format)
        made = _changed(rng, landed, mutator)
        of_most = _public_tables(events, tables)
        name = f"fuzz_public_{number}"
        sources.append(FuzzedSource(name, format, of_most, made, label=label))
    return sources


# -- what lands ----------------------------------------------------------------------------------


def fuzzed_sources(
    records: int,
    seed: int,
    *,
    names: int = NAMES_OF_A_SOURCE,
    without: Collection[str] = (),
) -> list[FuzzedSource]:
    """A source of each format with about so many records in those of `SHARES`, a third of them
    changed."""
    sources = []
    for number, (format, share) in enumerate(ALL_SHARES.items()):
        rng = Random(f"{seed} {format}")
        tables, landed = _GOOD[format](rng, _part(records, share))
        mutator = Mutator(rng, names=_sampled(rng, names), without=without, format=format)
        made = _changed(rng, landed, mutator)
        sources.append(FuzzedSource(f"fuzz_{number}", format, tables, made, label=format))
    return [*sources, encoded_source(_part(records, AVRO_SHARE), seed)]


def encoded_source(count: int, seed: int) -> FuzzedSource:
    """A source of so many records written with a schema registry, some of them changed."""
    rng = Random(f"{seed} {AVRO}")
    tables, landed = _avro(rng, count)
    schemas = Schemas(first=100)  # no low ids, which mutations have as those of no schema
    sent = schemas.all_sent(landed)
    made = _changed(rng, sent, EncodedMutator(rng, schemas_by_id(schemas.by_id)))
    return FuzzedSource("fuzz_avro", "debezium", tables, made, schemas, label=AVRO)


def _part(records: int, share: int) -> int:
    return records * share // sum(SHARES.values())


def _sampled(rng: Random, names: int) -> list[str]:
    return rng.sample(NAMES, min(names, len(NAMES)))


def _changed(rng: Random, landed: Landed, mutator: Mutator | EncodedMutator) -> Landed:
    made = {day: [r for good in of_day for r in mutator(good)] for day, of_day in landed.items()}
    return _offset_anew(rng, made)


def _offset_anew(rng: Random, landed: Landed) -> Landed:
    """Each record at the next offset of its partition; now and then one lands twice at its own."""
    next_offset: Counter[tuple[str | None, int | None]] = Counter()

    def placed(records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            lane = (record.topic, record.partition)
            if record.malformed_line:
                yield record
                continue
            yield (one := replace(record, offset=next_offset[lane]))
            next_offset[lane] += 1
            if rng.random() < 0.01:
                yield one

    return {day: list(placed(landed.get(day, ()))) for day in DAYS}


# -- running and comparing -----------------------------------------------------------------------


@dataclass
class Report:
    """What a run shows; no failure is the healthy state."""

    progress: Callable[[str], None] = lambda _: None
    landed: Counter[str] = field(default_factory=Counter)  # by destination
    compared: int = 0  # days of tables
    failures: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)  # from the model

    def differ(self, where: str, text: str) -> None:
        """Note where stages and model disagree."""
        self.differences.append(f"{where}:\n{text}")
        self.progress(f"{self.differences[-1]}\n")

    def fail(self, where: str, text: str) -> None:
        """Note a failure."""
        self.failures.append(f"{where}:\n{text}")
        self.progress(f"{self.failures[-1]}\n")


def run(
    lake_of: Callable[..., Lake],
    folder: Path,
    sources: Sequence[FuzzedSource],
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Make all days of all sources and compare them with the model.

    Args:
        lake_of: the lake of some sources, as the fixture of conftest.py.
        folder: where the files land.
    """
    configs = {}
    for s in sources:
        config = lakes.write_source(folder / s.name, s.landed, s.format, tables=s.tables)
        if s.registry is not None:
            answers = s.registry.saved(folder / f"{s.name}_registry")
            config["landing"]["registry"] = {"files": str(answers)}
        configs[s.name] = config
    lake = lake_of(configs, DAYS[0])
    report = Report(progress)
    for source in sources:
        for step in (_make_stages, _compare_stages, _make_tables):
            began = time.monotonic()
            if not step(lake, source, report):
                break
            progress(f"{source.label}: {step.__name__} took {time.monotonic() - began:.0f} s")
    return report


def _make_stages(lake: Lake, source: FuzzedSource, report: Report) -> bool:
    """landing, changes and lag; False where one of them fails."""
    for stage in (lakes.land, lakes.make_changes, lakes.make_lag):
        try:
            stage(lake, source.name, DAYS)
        except Exception as error:
            report.fail(f"{source.label}, {stage.__name__}", _shown(error))
            return False
    return True


def _further_rows(record: Record) -> int:
    """The rows of a message of Canal beyond its first."""
    try:
        with model.deep_recursion():
            document = model.parse_json(record.value or b"")
    except NotJsonError:
        return 0
    rows = document.get("data") if isinstance(document, dict) else None
    return max(len(rows) - 1, 0) if isinstance(rows, list) else 0


def _compare_stages(lake: Lake, source: FuzzedSource, report: Report) -> bool:
    destinations = lakes.destinations_read(lake, source.name)
    report.landed.update(row["destination"] for row in destinations)
    reached = Counter(row["landing_date"] for row in destinations)
    rows = lake.spark.table(lake.stage(source.name, "landing")).groupBy("landing_date").count()
    landed = {row["landing_date"]: row["count"] for row in rows.collect()}
    for day in DAYS:
        sent = len(source.landed[day])
        further = sum(map(_further_rows, source.landed[day])) if source.format == "canal" else 0
        if not sent == landed.get(day, 0) == reached[day] - further:
            report.fail(
                f"{source.label}, nothing lost on {day}",
                f"{sent} sent, {landed.get(day, 0)} landed, {reached[day]} reached a destination",
            )
    for row in destinations:
        row["reason"] = _one_key_reason(row["reason"])
    options = source.options()
    classified = model.classify(options, source.as_json)
    lag = model.lag(options, source.as_json)
    for what, got, expected in (
        ("destinations", destinations, expected_destinations(classified)),
        ("changes", lakes.changes_read(lake, source.name), lakes.changes_expected(classified)),
        ("lag", lakes.lag_read(lake, source.name), lakes.lag_expected(lag)),
    ):
        if text := lakes.difference_of(got, expected):
            report.differ(f"{source.label}, {what}", text)
    return True


def _one_key_reason(reason: str | None) -> str | None:
    """A damaged key is often both unreadable and incomplete; which is said first is not compared
    here, but in test_keys.py."""
    return "missing_key" if reason == "malformed_key" else reason


def expected_destinations(
    classified: Mapping[date, Iterable[model.Classified]],
) -> list[dict[str, Any]]:
    """The model's destinations, with one reason for keys."""
    rows = lakes.destinations_expected(classified)
    return [{**row, "reason": _one_key_reason(row["reason"])} for row in rows]


def _make_tables(lake: Lake, source: FuzzedSource, report: Report) -> bool:
    """All days of the tables; each table is compared up to the day on which it fails."""
    _, errors = lakes.run_tables(lake, source.name, DAYS)
    failed = dict(errors.keys())
    for (table, day), error in errors.items():
        options = {**source.options(), "tables": {table: source.tables[table]}}
        try:
            model.tables(options, source.as_json)
        except model.TableError as refused:
            # R3: a value that an inferred column can't hold stops its table, in the model too.
            if refused.day == day:
                report.compared += sum(1 for d in DAYS if d >= day)
                continue
        report.fail(f"{source.label}, {table} on {day}", _shown(error))
    # The model reads all of a source for a call: once for the tables without a failure.
    whole = {name: config for name, config in source.tables.items() if name not in failed}
    try:
        at_once = model.tables({**source.options(), "tables": whole}, source.as_json)
    except model.TableError:
        at_once = None
    for table, config in source.tables.items():
        made = [day for day in DAYS if table not in failed or day < failed[table]]
        by_model = at_once if table in whole else None
        if by_model is None:
            options = {**source.options(), "tables": {table: config}}
            landed = {day: records for day, records in source.as_json.items() if day in made}
            try:
                by_model = model.tables(options, landed)
            except model.TableError as error:
                report.differ(f"{source.label}, the model of {table}", str(error))
                continue
        _compare_table(lake, source, table, by_model, made, report)
    return True


def _compare_table(
    lake: Lake,
    source: FuzzedSource,
    table: str,
    by_model: Mapping[date, Mapping[str, list[dict[str, Any]]]],
    days: list[date],
    report: Report,
) -> None:
    """Report the first day of a table that is not what the model says."""
    for day in days:
        got = state_rows(lake, source.name, table, day)
        report.compared += 1
        rows = ([*map(lakes.with_doubles, of_day)] for of_day in (got, by_model[day][table]))
        if text := lakes.difference_of(*rows):
            report.differ(f"{source.label}, {table} on {day}", text)
            return


def state_rows(lake: Lake, source: str, table: str, day: date) -> list[dict[str, Any]]:
    """A day's rows, read without Spark: a job for each would take most of the time."""
    state = open_table(lake.config, find_table(lake.config, table, source))
    snapshot = state.snapshot_by_name(str(day))
    assert snapshot is not None, f"{table} has no tag {day}"
    rows = (
        state.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist(maps_as_pydicts="strict")
    )
    own = {"_cdc_position", "_cdc_source_ts_ms", "_cdc_landing_date"}
    # A schema that names a column by 1e400 names it so: VARIANT's text of what no double holds.
    own |= {name for name in ("Infinity",) if all(row.get(name) is None for row in rows)}
    return [{name: v for name, v in row.items() if name not in own} for row in rows]


def _shown(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    return text if len(text) < 2000 else f"{type(error).__name__}: {first_line(error)}"


# -- by hand -------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and print what fails; 1 where something does."""
    from cdc_assets.cdc.spark import build_session
    from cdc_assets_tests.conftest import SPARK

    parser = argparse.ArgumentParser(
        prog="python -m cdc_assets_tests.fuzz_run", description=__doc__
    )
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--names", type=int, default=len(NAMES), help="hostile column names a source"
    )
    parser.add_argument("--public-tables", type=int, default=12, help="tables of public events")
    labels = [*_GOOD, AVRO, *map(PUBLIC.format, _GOOD)]
    parser.add_argument("--format", action="append", choices=labels, help="only these")
    parser.add_argument("--without", action="append", default=[], help="a mutation to leave out")
    chosen = parser.parse_args(arguments)
    size = (chosen.records, chosen.seed)
    same: dict[str, Any] = {"names": chosen.names, "without": chosen.without}
    sources = fuzzed_sources(*size, **same)
    sources += public_sources(*size, **same, tables=chosen.public_tables)
    sources = [s for s in sources if s.label in (chosen.format or labels)]
    os.environ.pop("CDC_WAREHOUSE", None)
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder) / "warehouse"
        none = {"none": lakes.source_config(warehouse)}
        spark = build_session(lakes.config_of(none, warehouse, spark=SPARK))
        spark.sparkContext.setLogLevel("ERROR")

        def lake_of(configs: dict[str, Any], start: date) -> Lake:
            return Lake(spark, lakes.config_of(configs, warehouse, start))

        report = run(lake_of, Path(folder), sources, print)
        spark.stop()
    print(f"{dict(report.landed)}; {report.compared} days of tables compared")
    print(f"{len(report.failures)} failures, {len(report.differences)} differences from the model")
    return 1 if report.failures or report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
