"""Real events of public documents and tests reach the outcome that their producer's docs state.

All cases of a format land together and pass the stage `changes` once; the model judges the same
records. What a case expects stands beside it, in ``cases/public``; what is expected of formats
that are not read is decided here, a kind at a time.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY
from cdc_assets_tests.lakes import land, make_changes
from cdc_assets_tests.model import Record
from cdc_assets_tests.paths import CASES

PUBLIC = CASES / "public"

pytestmark = pytest.mark.cases

Place = tuple[str | None, int | None, int | None, int]  # last the row in the record
Outcome = dict[str, Any]  # destination, reason, op, table, before, after, detail, payload
IMAGES = ("before", "after")
FIELDS = ("destination", "reason", "op", "table", *IMAGES)

NO_TABLE = {"destination": "quarantine", "reason": "missing_table"}
NO_ENVELOPE = {"destination": "quarantine", "reason": "not_an_envelope"}
# What a kind comes to whose cases say `unsupported?`: the outcome, and what `detail` names.
UNREAD: dict[str, tuple[Outcome, str]] = {
    "avro-json-encoding": (NO_ENVELOPE, "Avro's JSON encoding"),
}
# Envelopes of these kinds have a whole source, op and images: they are read as any connector's.
READ_AS_ANY = {"flinkcdc": "db", "spanner": "db", "vitess-1.6": "schema", "vitess-1.9": "keyspace"}


def _of_canal(event: dict[str, Any], number: int) -> Outcome:
    """Rows, or a schema change; old values are of changed columns."""
    if event["isDdl"]:
        return {"destination": "control", "reason": None, "op": "ddl"}
    row, old = event["data"][number], event["old"][number] if event["old"] else None
    op = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}[event["type"]]
    before = row if op == "d" else {**row, **old} if op == "u" and old else None
    after = None if op == "d" else row
    return _change(op, f"{event['database']}.{event['table']}", before, after)


def _of_maxwell(event: dict[str, Any], number: int) -> Outcome:
    op = {"insert": "c", "update": "u", "delete": "d"}[event["type"]]
    row = event["data"]
    before = row if op == "d" else {**row, **event["old"]} if op == "u" else None
    after = None if op == "d" else row
    return _change(op, f"{event['database']}.{event['table']}", before, after)


def _of_ogg(event: dict[str, Any], number: int) -> Outcome:
    op = {"I": "c", "U": "u", "D": "d"}[event["op_type"]]
    before = event["before"] if op in "ud" else None
    return _change(op, event["table"], before, None if op == "d" else event["after"])


def _of_mongodb(document: dict[str, Any], number: int) -> Outcome:
    """The whole document as text; a patch alone says too little."""
    event = document.get("payload", document)
    op, text, source = event["op"], event.get("after"), event["source"]

    def row(text: str | None) -> dict[str, Any] | None:
        if text is None:
            return None
        own = model.parse_json(text.encode())["_id"]
        digits = own.get("$numberLong")
        return {"_id": digits or model.json_text(own), "document": text}

    if op == "u" and text is None:
        return {"destination": "quarantine", "reason": "missing_image"}
    removed = row(event.get("filter")) if op == "d" else None
    before = None if removed is None else {"_id": removed["_id"]}
    return _change(op, f"{source['db']}.{source['collection']}", before, row(text))


def _of_cassandra(event: dict[str, Any], number: int) -> Outcome:
    op, source = event["op"], event["source"]
    cells = {name: cell["value"] for name, cell in event["after"].items() if cell is not None}
    images = (cells, None) if op == "d" else (None, cells)
    return _change(op, f"{source['keyspace']}.{source['table']}", *images)


def _change(op: str, table: str, before: Any, after: Any) -> Outcome:
    images = {"before": before, "after": after}
    return {"destination": "changes", "reason": None, "op": op, "table": table, **images}


OWN_FORMATS = {
    "canal": ("canal", _of_canal),
    "maxwell": ("maxwell", _of_maxwell),
    "ogg": ("ogg", _of_ogg),
    "mongodb": ("debezium-mongodb", _of_mongodb),
    "cassandra": ("debezium-cassandra", _of_cassandra),
}


@dataclass(frozen=True)
class Case:
    """A landed line and what must become of it; `file:line` is where it stands."""

    file: str
    line: int
    landing: dict[str, Any]
    expect: dict[str, Any]
    origin: str  # the public document or test that it is from
    row: int = 0  # in a record of many rows

    @property
    def is_dataworks(self) -> bool:
        """Listed among Debezium's, whose `source` they lack; they are whole events of DataWorks."""
        return "/kafka/aliyun/" in self.origin

    @property
    def format(self) -> str:
        if self.is_dataworks:
            return "dataworks"
        if (own := self.file.partition("-")[0]) in OWN_FORMATS:
            return OWN_FORMATS[own][0]
        return "debezium-flat" if self.file.startswith("flat") else "debezium"

    @property
    def place(self) -> Place:
        if self.record.malformed_line:
            return None, None, None, 0
        landing = self.landing
        return landing["topic"], landing["partition"], landing["offset"], self.row

    @property
    def text(self) -> str:
        return json.dumps(self.landing, ensure_ascii=False)

    @property
    def record(self) -> Record:
        """What the model reads; Kafka has no timestamp beyond the year 9999."""
        line = self.landing
        if line["ts"] > 253_402_300_799_999:
            return ev.malformed_line(self.text)
        key, value = (None if line[n] is None else line[n].encode() for n in ("key", "payload"))
        return Record(line["topic"], line["partition"], line["offset"], line["ts"], key, value)

    @property
    def expected(self) -> Outcome:
        """The fields of the outcome that are known."""
        expect = self.expect
        if self.record.malformed_line:
            return {"destination": "quarantine", "reason": "malformed_landing_line"}
        if self.is_dataworks:
            return self._expected_of_dataworks()
        if (own := self.file.partition("-")[0]) in OWN_FORMATS:
            event = model.parse_json(self.landing["payload"].encode())
            return OWN_FORMATS[own][1](event, self.row)
        if expect["destination"] == "?":  # flattened, and nothing says the namespace
            return NO_TABLE
        if expect["destination"] == "unsupported?":
            return self._expected_of_unsupported()
        known = {name: expect[name] for name in FIELDS if name in expect}
        if known["destination"] == "quarantine":
            return {name: known[name] for name in ("destination", "reason")}
        return {**known, "reason": None}

    def _expected_of_dataworks(self) -> Outcome:
        """FORMATS W1, W2."""
        document = model.parse_json(self.landing["payload"].encode())
        payload, source = document["payload"], document["schema"]["source"]
        images = {name: payload[name] and payload[name]["dataColumn"] for name in IMAGES}
        op = {"INSERT": "c", "UPDATE_AFTER": "u", "DELETE": "d"}[payload["op"]]
        parts = [source[name] for name in ("dbName", "schemaName") if source.get(name)]
        table = f"{'__'.join(parts)}.{source['tableName']}"
        return {"destination": "changes", "reason": None, "op": op, "table": table, **images}

    def _expected_of_unsupported(self) -> Outcome:
        for start, namespace in READ_AS_ANY.items():
            if self.file.startswith(start):
                document = model.parse_json(self.landing["payload"].encode())
                event = document.get("payload", document)
                if event["source"][namespace] is None:
                    return NO_TABLE
                return {
                    "destination": "changes",
                    "reason": None,
                    "op": event["op"],
                    "table": f"{event['source'][namespace]}.{event['source']['table']}",
                    "before": event["before"],
                    "after": event["after"],
                }
        unread = _unread(self.file)
        assert unread, f"{self.file}: decide in UNREAD or READ_AS_ANY what this kind comes to"
        return unread[0]


def _unread(file: str) -> tuple[Outcome, str] | None:
    return next((found for start, found in UNREAD.items() if file.startswith(start)), None)


def _cases() -> list[Case]:
    cases = []
    for path in sorted(PUBLIC.glob("*.jsonl")):
        for number, text in enumerate(path.read_text("utf-8").splitlines(), start=1):
            case = model.parse_json(text.encode())  # numbers are exact
            parts = (path.name, number, case["landing"], case["expect"], case["source"])
            rows = _rows(case["landing"]["payload"]) if path.name.startswith("canal") else 1
            cases += [Case(*parts, row) for row in range(rows)]
    assert cases, f"{PUBLIC} has no *.jsonl"
    return cases


def _rows(payload: str) -> int:
    return len(json.loads(payload)["data"] or [None])


def _by_format(cases: Iterable[Case]) -> dict[str, list[Case]]:
    found = defaultdict(list)
    for case in cases:
        found[case.format].append(case)
    return found


def _source(format_name: str) -> str:
    return f"public_{format_name.replace('-', '_')}"


# -- what the stage and the model say ------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    sources = {}
    for name, cases in _by_format(_cases()).items():
        folder = tmp_path_factory.mktemp(name)
        file = folder / str(DAY) / "cases.jsonl"
        file.parent.mkdir()
        file.write_text("".join(f"{c.text}\n" for c in cases if not c.row), "utf-8")
        sources[_source(name)] = lakes.source_config(folder, name)
    made = lake_of(sources)
    for name in sources:
        land(made, name, [DAY])
        make_changes(made, name, [DAY])
    return made


@pytest.fixture(scope="module")
def outcomes(lake: Lake) -> dict[str, dict[Place, Outcome]]:
    """Of each format: what the stage `changes` made of the record at a place."""
    found: dict[str, dict[Place, Outcome]] = {}
    for name in _by_format(_cases()):
        of_format = found[name] = {}
        for destination in ("changes", "control", "quarantine"):
            for row in lakes.stage_rows(lake, _source(name), destination):
                images = {n: lakes.json_value(row.get(n)) for n in IMAGES}
                # A Canal message has many rows, which are ordered by their place in it.
                number = (row.get("position") or [0])[-1] // 2 if name == "canal" else 0
                place = (row["topic"], row["partition"], row["offset"], number)
                assert place not in of_format, f"{place} went to two destinations"
                row |= {"destination": destination, "table": row["table_name"], **images}
                of_format[place] = row
    return found


def _modelled(cases: Iterable[Case]) -> dict[Place, Outcome]:
    found = {}
    for name, of_format in _by_format(cases).items():
        records = [case.record for case in of_format if not case.row]
        classified = model.classify({"format": name}, {DAY: records})
        for case, one in zip(of_format, classified[DAY], strict=True):
            names = ("destination", "reason", "op", "source_op", *IMAGES)
            names += ("is_snapshot", "source_ts_ms", "processed_ts_ms")
            outcome = {name: getattr(one, name) for name in names}
            found[case.place] = {**outcome, "table": one.table_name}
    return found


# -- comparing -----------------------------------------------------------------------------------


def _differences(case: Case, expected: Outcome, got: Outcome | None) -> list[str]:
    """A line a field: file:line, the field, what is expected and what was got."""
    where = f"{case.file}:{case.line}"
    if got is None:
        return [f"{where}: expected {expected['destination']}, got no row in any destination"]
    return [
        f"{where}: {name}: expected {_shown(value)}, got {_shown(got.get(name))}"
        + (f" ({got['reason']}: {got.get('detail')})" if got.get("reason") else "")
        for name, value in expected.items()
        if _shown(got.get(name)) != _shown(value)
    ]


def _shown(value: Any) -> str:
    """Equal for equal values: 3.50 and 3.5 are one number."""
    return model.json_text(value)


def _assert_none(differences: list[str]) -> None:
    assert not differences, "\n" + "\n".join(differences)


# -- tests ---------------------------------------------------------------------------------------


def test_the_model_gives_every_public_event_its_expected_outcome() -> None:
    cases = _cases()
    found = _modelled(cases)
    _assert_none([d for c in cases for d in _differences(c, c.expected, found.get(c.place))])


@pytest.mark.slow
def test_the_stage_gives_every_public_event_its_expected_outcome(
    outcomes: dict[str, dict[Place, Outcome]],
) -> None:
    found = [(case, outcomes[case.format].get(case.place)) for case in _cases()]
    _assert_none([d for case, got in found for d in _differences(case, case.expected, got)])


@pytest.mark.slow
def test_the_stage_and_the_model_read_a_public_event_alike(
    outcomes: dict[str, dict[Place, Outcome]],
) -> None:
    differences = []
    cases = _cases()
    expected = _modelled(cases)
    for case in cases:
        of_model, got = expected[case.place], outcomes[case.format][case.place]
        if of_model["destination"] != "changes":
            of_model = {name: of_model[name] for name in ("destination", "reason")}
        differences += _differences(case, of_model, got)
    _assert_none(differences)


@pytest.mark.slow
def test_the_detail_names_the_format_or_connector_that_is_not_read(
    outcomes: dict[str, dict[Place, Outcome]],
) -> None:
    differences = []
    for case in _cases():
        if (unread := _unread(case.file)) is not None:
            detail = outcomes[case.format][case.place]["detail"]
            if unread[1] not in detail:
                where = f"{case.file}:{case.line}"
                differences.append(f"{where}: detail: expected {unread[1]!r}, got {detail!r}")
    _assert_none(differences)


@pytest.mark.slow
def test_the_detail_of_a_flattened_record_names_the_fields_that_it_lacks(
    outcomes: dict[str, dict[Place, Outcome]],
) -> None:
    for case in _by_format(_cases())["debezium-flat"]:
        if case.expected.get("reason") is None:
            continue
        detail = outcomes[case.format][case.place]["detail"]
        document = json.loads(case.landing["payload"])
        has_table = "__table" in document.get("payload", document)
        lacks = "__schema (or __db)" if has_table else "__schema (or __db) and __table"
        assert detail.startswith(f"the record lacks {lacks}: set add.fields=op,schema,table,")


@pytest.mark.slow
def test_a_schema_change_without_ddl_text_says_what_changed(
    outcomes: dict[str, dict[Place, Outcome]],
) -> None:
    """FORMATS D16: SQL Server, Db2 and Informix."""
    seen = 0
    for case in _cases():
        if not case.file.startswith("ddl"):
            continue
        document = json.loads(case.landing["payload"])
        event = document.get("payload", document)
        payload = outcomes[case.format][case.place]["payload"]
        if event["ddl"]:
            assert payload == event["ddl"]
        else:
            seen += 1
            assert json.loads(payload) == event["tableChanges"], f"{case.file}:{case.line}"
    assert seen
